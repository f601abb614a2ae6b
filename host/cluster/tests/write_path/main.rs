//! The writing half against a real API server: quiet at rest, drift repaired, ownership kept, nothing done twice.

#![allow(clippy::unwrap_used, reason = "clippy knows only functions that are tests themselves")]

mod drift;
mod events;
mod finalizers;
mod immutable;
mod order;
mod ownership;
mod quiet;
mod rehearsal;
mod rollout;
mod secrets;
mod statuses;
mod tracked;
mod world;
