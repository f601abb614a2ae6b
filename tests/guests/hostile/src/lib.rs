//! A plugin that misbehaves as `spec.behaviour` of the object says, so that a test can see that the host bears it.
//!
//! `describe` has no argument to be told by. The host's tests write its behaviour into the component's bytes, where
//! `DESCRIBE` lies.

#![allow(missing_docs, reason = "generated bindings")]
#![allow(unsafe_code, reason = "it is hostile: it builds strings and lists that Rust does not allow")]
#![allow(clippy::pedantic, reason = "generated bindings")]

use std::hint::black_box;

use serde_json::{Value, json};

wit_bindgen::generate!({ path: "../../../wit", world: "plugin" });

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::log::{Level, write};
use pilothouse::operator::types::{
    Action, Apply, Desired, Event, Extension, Failure, KeyValue, Outcome, SecretTemplate, Severity,
};

/// How `describe` behaves: one word, padded with dots.
#[used]
static DESCRIBE: [u8; 32] = *b"describe=honest.................";

struct Hostile;

export!(Hostile);

impl Guest for Hostile {
    fn describe() -> String {
        let told = black_box(&DESCRIBE);
        let told = std::str::from_utf8(told).unwrap_or_default().trim_end_matches('.');
        match told.trim_start_matches("describe=") {
            "loops" => endless(),
            "traps" => trap("describe"),
            "lies" => json!({ "name": "Not A Name", "version": "1", "controllers": [] }).to_string(),
            "babbles" => "{\"name\":".to_owned(),
            "floods" => "x".repeat(8 << 20),
            _ => include_str!("manifest.json").to_owned(),
        }
    }

    fn reconcile(desired: Desired, observed: Observed) -> Outcome {
        let primary: Value = serde_json::from_str(&desired.primary).unwrap_or_default();
        let amount = primary["spec"]["amount"].as_u64().unwrap_or(0);
        match primary["spec"]["behaviour"].as_str().unwrap_or("nothing") {
            "trap" => trap("reconcile"),
            "panic" => panic_with_hook(),
            "loop" => endless(),
            "work" => work(amount),
            "allocate" => allocate(),
            "allocate-and-go-on" => allocate_and_go_on(),
            "large-frame" => large_frame(),
            "recurse" => outcome(vec![Action::RequeueAfter(recurse(&primary, 0))]),
            "many-actions" => outcome(vec![Action::Release; usize::try_from(amount).unwrap_or(usize::MAX)]),
            "much-output" => much_output(),
            "long-text" => outcome(vec![Action::SetStatus("x".repeat(amount as usize))]),
            "invalid-utf8" => outcome(vec![Action::SetStatus(not_utf8())]),
            "invalid-utf8-in-failure" => Outcome { actions: Vec::new(), failure: Some(Failure::Retry(not_utf8())) },
            "wild-string" => outcome(vec![Action::SetStatus(wild_string())]),
            "garbage-json" => outcome(vec![apply("{\"apiVersion\": \"v1\", \"kind\":")]),
            "foreign-kind" => outcome(vec![apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": "all-mine" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            }).to_string())]),
            "other-namespace" => outcome(vec![apply(&json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "planted", "namespace": "kube-system" },
            }).to_string())]),
            "log-flood" => log_flood(amount),
            "log-long-line" => {
                write(Level::Info, &"x".repeat(1 << 20));
                outcome(Vec::new())
            }
            "remember" => outcome(vec![Action::RequeueAfter(remember())]),
            "every-action" => outcome(every_action(&desired)),
            "echo" => outcome(vec![Action::SetStatus(echo(&desired, &observed))]),
            "fail" => Outcome { actions: Vec::new(), failure: Some(Failure::Invalid("spec.amount: no".to_owned())) },
            "child" => outcome(vec![child(&primary)]),
            _ => outcome(Vec::new()),
        }
    }
}

fn outcome(actions: Vec<Action>) -> Outcome {
    Outcome { actions, failure: None }
}

fn apply(object: &str) -> Action {
    Action::Apply(Apply { object: object.to_owned(), options: String::new() })
}

/// What a good plugin would do: one ConfigMap named after the primary.
fn child(primary: &Value) -> Action {
    apply(
        &json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": primary["metadata"]["name"] },
            "data": { "amount": primary["spec"]["amount"].to_string() },
        })
        .to_string(),
    )
}

fn trap(place: &str) -> ! {
    write(Level::Error, &format!("about to trap in {place}\nwith a second line"));
    #[cfg(target_arch = "wasm32")]
    std::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort()
}

/// As the SDK does it: a panic's text goes to the log, then the instance traps.
fn panic_with_hook() -> ! {
    std::panic::set_hook(Box::new(|info| write(Level::Error, &info.to_string())));
    panic!("the plugin's author made a mistake")
}

fn endless() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

/// Some CPU time, then a good end.
fn work(amount: u64) -> Outcome {
    let mut count = 0_u64;
    for _ in 0..amount {
        count = black_box(count.wrapping_add(1));
    }
    outcome(vec![Action::RequeueAfter(count)])
}

fn allocate() -> ! {
    let mut hoard = Vec::new();
    loop {
        hoard.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Takes what it can get and, when refused, ends well.
fn allocate_and_go_on() -> Outcome {
    let mut hoard: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() {
            break;
        }
        block.resize(1 << 20, 1);
        hoard.push(black_box(block));
    }
    outcome(vec![Action::RequeueAfter(hoard.len() as u64)])
}

/// Rust keeps large values on a stack of its own in linear memory, which ends before its memory does.
#[inline(never)]
fn large_frame() -> Outcome {
    let frame = black_box([0_u8; 4 << 20]);
    outcome(vec![Action::RequeueAfter(u64::from(frame[0]))])
}

#[inline(never)]
#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(primary: &Value, depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(black_box(primary), depth + 1) + frame[3]
}

/// 200 MB in 100 texts that all lie in the same 2 MB.
fn much_output() -> Outcome {
    let text = "x".repeat(2_000_000);
    let (pointer, length) = (text.as_ptr().cast_mut(), text.len());
    std::mem::forget(text);
    // SAFETY: none; the texts are never freed, as the host refuses them.
    let alias = || unsafe { String::from_raw_parts(pointer, length, length) };
    outcome((0..100).map(|_| Action::SetStatus(alias())).collect())
}

fn not_utf8() -> String {
    // SAFETY: none.
    unsafe { String::from_utf8_unchecked(b"{\"a\": \"\xff\xfe\"}".to_vec()) }
}

fn wild_string() -> String {
    // SAFETY: none; it lies beyond the end of the memory.
    unsafe { String::from_raw_parts(0xffff_0000 as *mut u8, 0xfff0, 0xfff0) }
}

fn log_flood(lines: u64) -> Outcome {
    for line in 0..lines {
        write(Level::Info, &format!("line {line}"));
    }
    outcome(Vec::new())
}

/// Counts its calls in static memory; a fresh instance has never been called.
fn remember() -> u64 {
    static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
}

/// One action of each case, to see that nothing is lost or swapped on the way.
fn every_action(desired: &Desired) -> Vec<Action> {
    use pilothouse::operator::types::{Alphabet, Deletion, Kind, Query, RandomKey, Reference, TargetPatch};
    let text = |part: &str| format!("{part} of {}", desired.seed);
    let kind = || Kind { group: text("group"), version: text("version"), kind: text("kind") };
    let reference = || Reference {
        kind: kind(),
        namespace: Some(text("namespace")),
        name: text("name"),
        uid: Some(text("uid")),
    };
    let pair = |of: &str| KeyValue { key: text(&format!("{of} key")), value: text(&format!("{of} value")) };
    let random = |alphabet| RandomKey { key: text("random key"), length: 24, alphabet };
    vec![
        Action::Apply(Apply { object: text("object"), options: text("apply options") }),
        Action::Delete(Deletion { target: reference(), options: text("delete options") }),
        Action::PatchTarget(TargetPatch {
            target: reference(),
            patch: text("patch"),
            options: text("patch options"),
        }),
        Action::GenerateSecret(SecretTemplate {
            name: text("secret"),
            literals: vec![pair("literal")],
            random: vec![
                random(Alphabet::Alphanumeric),
                random(Alphabet::Hexadecimal),
                random(Alphabet::Base64url),
            ],
            composed: vec![pair("composed")],
            options: text("secret options"),
        }),
        Action::SetStatus(text("status")),
        Action::RecordEvent(Event {
            severity: Severity::Normal,
            reason: text("reason"),
            message: text("message"),
        }),
        Action::RecordEvent(Event {
            severity: Severity::Warning,
            reason: text("reason"),
            message: text("message"),
        }),
        Action::LookUp(Query {
            id: text("id"),
            kind: kind(),
            namespace: None,
            name: Some(text("name")),
            options: text("query options"),
        }),
        Action::RequeueAfter(desired.seed),
        Action::Release,
        Action::Extension(Extension { name: text("extension"), body: text("body") }),
    ]
}

/// Everything that arrived.
fn echo(desired: &Desired, observed: &Observed) -> String {
    let related: Vec<Value> = observed
        .related
        .iter()
        .map(|answer| json!([answer.query, answer.complete, answer.objects]))
        .collect();
    let last: Vec<Value> = observed
        .last
        .iter()
        .map(|rejected| {
            let target = rejected.target.as_ref().map(|target| {
                json!([
                    target.kind.group,
                    target.kind.version,
                    target.kind.kind,
                    target.namespace,
                    target.name,
                    target.uid
                ])
            });
            json!([rejected.index, target, rejected.reason, rejected.message])
        })
        .collect();
    json!([
        desired.primary,
        desired.deleting,
        desired.config,
        desired.now,
        desired.seed,
        observed.children,
        related,
        last
    ])
    .to_string()
}
