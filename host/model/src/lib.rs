//! Values and decisions of the host. No IO, no async, no clock: everything here is a function of its arguments.
//!
//! - what crosses the border to a plugin: [`action`], [`manifest`], [`settings`] with their [`grants`]
//! - what the host knows of the cluster: [`object`] and its [`owner`], [`kind`], [`names`]
//! - what stands before the API server stores something: [`guard`], [`webhook`], [`admission`], [`conversion`]
//! - what it decides: [`plan`] (may this outcome be carried out, and how), [`diff`] (is a write needed, by [`fields`]),
//!   [`rollout`] (which children may be touched now, by the strategies of [`update`]), [`steering`] and [`approval`] (may
//!   anything be written now, or only shown, as [`pending`]), [`condition`] (which status patch, by [`merge_patch`]),
//!   [`backoff`] (when again), [`limits`]

pub mod action;
pub mod admission;
pub mod approval;
pub mod backoff;
pub mod condition;
pub mod conversion;
pub mod diff;
pub mod field_selector;
pub mod fields;
pub mod grants;
pub mod guard;
pub mod interests;
pub mod kind;
pub mod limits;
pub mod manifest;
pub mod merge_patch;
pub mod names;
pub mod object;
pub mod owner;
pub mod pending;
pub mod plan;
pub mod projection;
pub mod rbac;
pub mod rollout;
pub mod secret;
pub mod selector;
pub mod settings;
pub mod steering;
pub mod update;
pub mod webhook;
