//! `pilothouse inspect`: what a plugin is, without running a reconcile.

use std::path::PathBuf;

use pilothouse_model::grants::Grants;
use pilothouse_model::guard::FailurePolicy;
use pilothouse_model::manifest::{Controller, Resource};
use pilothouse_model::webhook;
use serde_json::{Value, json};

use crate::cli::exit::{EXIT_CODES, Exit};
use crate::cli::output::{self, Format};
use crate::cli::plugin::{self, Plugin};

/// Show a plugin's manifest, digest, sizes and imports
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct InspectArgs {
    /// Component: NAME.wasm, gzip'd or zstd'd or not
    plugin: PathBuf,
    /// Text shows an overview, JSON the whole manifest with its CustomResourceDefinitions
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: InspectFormat,
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum InspectFormat {
    Text,
    Json,
}

pub(crate) fn main(args: &InspectArgs) -> Result<(), Exit> {
    let plugin = plugin::load(&plugin::sandbox()?, &args.plugin)?;
    match args.output {
        InspectFormat::Text => output::write(&output::yaml(&overview(&plugin))?),
        InspectFormat::Json => output::print(&[whole(&plugin)], Format::Json),
    }
}

/// Everything, for scripts.
fn whole(plugin: &Plugin) -> Value {
    let prepared = &plugin.prepared;
    json!({
        "manifest": plugin.manifest(),
        "digest": prepared.digest().to_string(),
        "contract": prepared.contract_version(),
        "imports": prepared.imports(),
        "exports": prepared.exports(),
        "bytes": {
            "compressed": plugin.artifact.compressed_bytes,
            "wasm": prepared.wasm_bytes(),
            "compiled": prepared.compiled_bytes(),
        },
        "grantsNeeded": Grants::needed(plugin.manifest()),
        "settings": plugin.artifact.settings,
    })
}

/// What fits a screen: kinds in a word each instead of the schemas, and nothing that is not there.
fn overview(plugin: &Plugin) -> Value {
    let manifest = plugin.manifest();
    let controllers: Vec<Value> = manifest.controllers.iter().map(controller).collect();
    let crds: Vec<&Value> = manifest.crds.iter().map(|crd| &crd["metadata"]["name"]).collect();
    let webhooks = webhooks(plugin);
    let mut overview = whole(plugin);
    overview["manifest"] = json!({"name": manifest.name, "version": manifest.version, "crds": crds, "controllers": controllers, "webhooks": webhooks});
    without_absent(overview)
}

/// What the API server asks the plugin, in a line each.
fn webhooks(plugin: &Plugin) -> Vec<String> {
    let manifest = plugin.manifest();
    let guards = manifest.admission.iter().map(|guard| {
        let does = match (guard.validates, guard.defaults) {
            (true, true) => "defaults and validates",
            (true, false) => "validates",
            (false, _) => "defaults",
        };
        let operations: Vec<&str> = guard.operations.iter().map(|one| one.as_str()).collect();
        let fails = match guard.failure_policy {
            FailurePolicy::Fail => "fails",
            FailurePolicy::Ignore => "goes on",
        };
        let kind = guard.resource.kind();
        format!("{does} {kind} on {}; {fails} without an answer", operations.join(", "))
    });
    let converts = plugin.prepared.converts();
    let conversions = webhook::converted_crds(manifest).filter(|_| converts).map(|(name, crd)| {
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        let versions: Vec<&str> = versions.filter_map(|version| version["name"].as_str()).collect();
        format!("converts {name} between {}", versions.join(", "))
    });
    guards.chain(conversions).collect()
}

fn controller(controller: &Controller) -> Value {
    let kind = |resource: &Resource| resource.kind().to_string();
    let related = controller.related.iter().map(|rule| {
        let how =
            rule.selector.as_ref().map_or("by look-up".to_owned(), |selector| format!("selector {selector}"));
        format!("{}: {}, {how}", rule.name, kind(&rule.resource))
    });
    let targets = controller
        .targets
        .iter()
        .map(|target| json!({"kind": kind(&target.resource), "verbs": target.verbs}));
    json!({
        "primary": kind(&controller.primary),
        "children": controller.children.iter().map(|child| kind(&child.resource)).collect::<Vec<_>>(),
        "related": related.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "finalizer": controller.finalizer,
        "resyncSeconds": controller.resync_seconds,
    })
}

/// Without nulls and empty lists.
fn without_absent(value: Value) -> Value {
    let is_absent = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !is_absent(value));
            Value::Object(fields.map(|(name, value)| (name, without_absent(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_absent).collect()),
        scalar => scalar,
    }
}
