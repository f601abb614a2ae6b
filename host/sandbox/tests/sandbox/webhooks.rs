//! `admission` and `conversion`: calls like any other, beside the passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use pilothouse_guests::Scripted;
use pilothouse_model::admission::{AdmissionRequest, Operation};
use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, Compiler, Prepared, Sandbox, SandboxOptions};
use serde_json::{Value, json};

use crate::guests::{prepare, request, sandbox};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn scripted(sandbox: &Sandbox) -> Arc<Prepared> {
    let manifest = json!({"admission": {"defaults": true}});
    prepare(sandbox, &Scripted { name: "scripted", kind: "Scripted", version: "1", manifest }.component())
}

fn object(admission: &Value) -> Value {
    json!({"apiVersion": "test.pilothouse.dev/v1", "kind": "Scripted", "metadata": {"name": "a"},
           "spec": {"admission": admission}})
}

fn asked(admission: &Value) -> AdmissionRequest {
    AdmissionRequest {
        operation: Operation::Create,
        new: Some(object(admission).to_string()),
        old: None,
        user: "somebody".to_owned(),
        groups: vec!["some".to_owned()],
        dry_run: true,
        subresource: String::new(),
        config: "{}".to_owned(),
        now: "2026-01-02T03:04:05Z".to_owned(),
    }
}

#[test]
fn a_plugin_is_asked_what_it_exports() {
    let sandbox = sandbox();
    let (plugin, limits) = (scripted(&sandbox), Limits::default());
    assert!(plugin.admits() && plugin.converts());
    let without = prepare(&sandbox, pilothouse_guests::steady());
    assert!(!without.admits() && !without.converts());

    let told = json!({"deny": [{"field": "spec.a", "message": "no"}], "warnings": ["$(operation) by $(user), $(dryRun)"]});
    let verdict = block_on(sandbox.validate(&plugin, &limits, asked(&told))).result.unwrap();
    assert!(!verdict.allowed && verdict.causes[0].field == "spec.a");
    assert_eq!(verdict.warnings, ["create by somebody, true"]);

    let told = json!({"defaults": {"spec": {"size": 1}}});
    let text = block_on(sandbox.default_fields(&plugin, &limits, asked(&told))).result.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["spec"]["size"], 1);

    let convert = |conversion: Value| {
        let mut object = object(&json!({}));
        object["spec"]["conversion"] = conversion;
        block_on(sandbox.convert(&plugin, &limits, vec![object.to_string()], "x/v2".to_owned()))
            .result
            .unwrap()
    };
    let converted: Value = serde_json::from_str(&convert(json!({})).unwrap()[0]).unwrap();
    assert_eq!(converted["apiVersion"], "x/v2");
    assert_eq!(convert(json!({"error": "no"})), Err("no".to_owned()));
}

#[test]
fn its_calls_have_the_limits_of_a_pass() {
    let sandbox = sandbox();
    let (plugin, limits) = (scripted(&sandbox), Limits { cpu_ms: 50, ..Limits::default() });
    let error = |told: Value| block_on(sandbox.validate(&plugin, &limits, asked(&told))).result.unwrap_err();
    assert!(matches!(error(json!({"behaviour": "loop"})), CallError::CpuLimit { .. }));
    assert!(matches!(error(json!({"behaviour": "trap"})), CallError::Trap { .. }));
    assert!(matches!(error(json!({"behaviour": "allocate"})), CallError::MemoryLimit { .. }));
    assert!(matches!(error(json!({"flood": 20 << 20})), CallError::OutputLimit { .. }));
    let raw = asked(&json!({"behaviour": "loop"}));
    let looping = block_on(sandbox.default_fields(&plugin, &limits, raw)).result;
    assert!(matches!(looping, Err(CallError::CpuLimit { .. })), "{looping:?}");
}

#[test]
fn a_flood_of_them_does_not_hold_up_the_passes_of_their_plugin() {
    const FLOOD: usize = 20;
    let options = SandboxOptions { permits: 1, ..SandboxOptions::new(Compiler::InProcess) };
    let sandbox = Sandbox::new(options).unwrap();
    let (plugin, limits) = (scripted(&sandbox), Limits { cpu_ms: 60, wait_ms: 60_000, ..Limits::default() });
    let ended = AtomicUsize::new(0);
    let flood = join_all((0..FLOOD).map(|_| async {
        let told = json!({"behaviour": "loop"});
        sandbox.validate(&plugin, &limits, asked(&told)).await.result.unwrap_err();
        ended.fetch_add(1, Ordering::Relaxed);
    }));
    let pass = async {
        sandbox.reconcile(&plugin, &limits, Arc::new(request("honest", 0))).await.result.unwrap();
        ended.load(Ordering::Relaxed)
    };
    // The flood is there first.
    let (_, before) = block_on(async { futures::join!(flood, pass) });
    assert!(before < FLOOD / 2, "{before} of {FLOOD} calls went before it");
}
