//! What the hostile guest does, and that each time the pass fails with the right reason while the host goes on.

use std::time::{Duration, Instant};

use pilothouse_model::action::{
    Action, Alphabet, Answer, Apply, Deletion, Event, Extension, Failure, KeyValue, Outcome, Query,
    RandomKey, RejectReason, Rejected, Request, SecretTemplate, Severity, TargetPatch,
};
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, Level};

use crate::guests::{Hostile, request};

/// After each misdeed the same plugin must serve the next pass as if nothing had been.
fn fails(hostile: &Hostile, behaviour: &str, amount: u64) -> CallError {
    let error = hostile.call(behaviour, amount).result.expect_err(behaviour);
    assert!(hostile.call("child", 1).result.is_ok(), "after `{behaviour}`");
    error
}

#[test]
fn a_trap_carries_its_kind_and_the_last_error_line() {
    let error = fails(&Hostile::new(), "trap", 0);
    assert_eq!(error.reason(), "Trap");
    let CallError::Trap { message, .. } = error else { panic!("{error}") };
    assert!(message.contains("unreachable"), "{message}");
    assert!(message.ends_with("about to trap in reconcile with a second line"), "{message}");
}

#[test]
fn a_panic_carries_its_text_and_place() {
    let error = fails(&Hostile::new(), "panic", 0).to_string();
    assert!(error.contains("the plugin's author made a mistake") && error.contains("lib.rs:"), "{error}");
}

#[test]
fn an_endless_loop_ends_at_its_cpu_limit() {
    let hostile = Hostile::new().with(Limits { cpu_ms: 100, ..Limits::default() });
    let begun = Instant::now();
    let reply = hostile.call("loop", 0);
    assert_eq!(reply.result, Err(CallError::CpuLimit { limit: Duration::from_millis(100) }));
    assert!(reply.usage.cpu >= Duration::from_millis(100), "{:?}", reply.usage);
    assert!(reply.usage.cpu < Duration::from_millis(200), "{:?}", reply.usage);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(hostile.call("child", 1).result.is_ok());
}

#[test]
fn allocating_without_end_ends_at_the_memory_limit() {
    let hostile = Hostile::new();
    let reply = hostile.call("allocate", 0);
    assert_eq!(reply.result, Err(CallError::MemoryLimit { limit_bytes: 64 << 20, shared: false }));
    assert!(reply.usage.memory_bytes_peak <= 64 << 20, "{:?}", reply.usage);
    assert!(reply.usage.memory_bytes_peak > 32 << 20, "{:?}", reply.usage);
    assert!(hostile.call("child", 1).result.is_ok());
}

#[test]
fn a_guest_that_bears_a_refusal_is_not_failed_for_it() {
    let hostile = Hostile::new();
    let Ok(Outcome { actions, .. }) = hostile.call("allocate-and-go-on", 0).result else { panic!() };
    let [Action::RequeueAfter(blocks)] = actions[..] else { panic!("{actions:?}") };
    assert!((40..64).contains(&blocks), "{blocks} MiB of 64");
}

#[test]
fn a_larger_memory_limit_needs_nothing_but_the_limit() {
    let hostile = Hostile::new().with(Limits { memory_bytes: 256 << 20, ..Limits::default() });
    let Ok(Outcome { actions, .. }) = hostile.call("allocate-and-go-on", 0).result else { panic!() };
    let [Action::RequeueAfter(blocks)] = actions[..] else { panic!("{actions:?}") };
    assert!((160..256).contains(&blocks), "{blocks} MiB of 256");
}

#[test]
fn stacks_end_without_harm() {
    let hostile = Hostile::new();
    for behaviour in ["recurse", "large-frame"] {
        let error = fails(&hostile, behaviour, 0);
        assert_eq!(error.reason(), "Trap", "{behaviour}: {error}");
    }
}

#[test]
fn actions_are_limited_in_number_and_in_bytes() {
    let hostile = Hostile::new();
    assert_eq!(hostile.call("many-actions", 2_000).result.unwrap().actions.len(), 2_000);
    assert_eq!(
        fails(&hostile, "many-actions", 2_001),
        CallError::ActionLimit { actions: 2_001, limit: 2_000 }
    );
    let many = fails(&hostile, "many-actions", 100_000);
    assert!(matches!(many, CallError::ActionLimit { .. } | CallError::OutputLimit { .. }), "{many}");

    let limit_bytes = 8 << 20;
    assert!(hostile.call("long-text", limit_bytes - 1024).result.is_ok());
    assert_eq!(fails(&hostile, "long-text", limit_bytes), CallError::OutputLimit { limit_bytes });
}

/// If this fails after an update of wasmtime, its words for exhausted fuel have changed: see `call::is_fuel_exhausted`.
#[test]
fn two_hundred_megabytes_of_output_are_never_copied() {
    let error = fails(&Hostile::new(), "much-output", 0);
    assert_eq!(error, CallError::OutputLimit { limit_bytes: 8 << 20 });
}

#[test]
fn what_is_no_text_or_no_outcome_is_invalid_output() {
    let hostile = Hostile::new();
    for (behaviour, words) in [
        ("invalid-utf8", "no UTF-8"),
        ("invalid-utf8-in-failure", "no UTF-8"),
        ("wild-string", "out of bounds"),
    ] {
        let error = fails(&hostile, behaviour, 0);
        assert_eq!(error.reason(), "InvalidOutput", "{behaviour}: {error}");
        assert!(error.to_string().contains(words), "{behaviour}: {error}");
    }
}

/// What an action means is not the sandbox's to judge: it hands it on, and `plan` refuses it.
#[test]
fn wrong_actions_pass_through_unchanged() {
    let hostile = Hostile::new();
    for (behaviour, part) in [
        ("garbage-json", "\"kind\":"),
        ("foreign-kind", "ClusterRoleBinding"),
        ("other-namespace", "kube-system"),
    ] {
        let outcome = hostile.call(behaviour, 0).result.unwrap();
        let [Action::Apply(Apply { object, options })] = &outcome.actions[..] else { panic!("{outcome:?}") };
        assert!(object.contains(part) && options.is_empty(), "{outcome:?}");
    }
}

#[test]
fn a_flood_of_lines_is_cut_and_counted() {
    let hostile = Hostile::new();
    let reply = hostile.call("log-flood", 10_000);
    assert!(reply.result.is_ok());
    assert_eq!((reply.logs.len(), reply.usage.log_lines_dropped), (100, 9_900));
    assert_eq!((reply.logs[99].level, reply.logs[99].message.as_str()), (Level::Info, "line 99"));

    let reply = hostile.call("log-long-line", 0);
    assert!(reply.result.is_ok());
    assert_eq!((reply.logs.len(), reply.usage.log_lines_dropped), (0, 1));
}

#[test]
fn nothing_is_remembered_from_call_to_call() {
    let hostile = Hostile::new();
    for _ in 0..3 {
        assert_eq!(hostile.call("remember", 0).result.unwrap().actions, [Action::RequeueAfter(1)]);
    }
}

#[test]
fn a_failure_of_the_plugin_is_an_outcome() {
    let outcome = Hostile::new().call("fail", 0).result.unwrap();
    let failure = Some(Failure::Invalid("spec.amount: no".to_owned()));
    assert_eq!(outcome, Outcome { actions: Vec::new(), failure });
}

#[test]
fn every_part_of_a_request_arrives() {
    let hostile = Hostile::new();
    let target = Reference {
        kind: Kind::new("apps", "v1", "Deployment"),
        namespace: Some("tests".to_owned()),
        name: "web".to_owned(),
        uid: Some("u-1".to_owned()),
    };
    let rejected = |index, target, reason| Rejected { index, target, reason, message: "why".to_owned() };
    let request = Request {
        deleting: true,
        config: "{\"a\":1}".to_owned(),
        seed: u64::MAX,
        children: vec!["{\"one\":1}".to_owned(), "{\"zwei\":\"ä\"}".to_owned()],
        related: vec![
            Answer { query: "none".to_owned(), complete: false, objects: Vec::new() },
            Answer { query: "some".to_owned(), complete: true, objects: vec!["{}".to_owned()] },
        ],
        last: vec![
            rejected(3, Some(target), RejectReason::Conflict),
            rejected(4, None, RejectReason::TooLarge),
        ],
        ..request("echo", 0)
    };
    let primary = request.primary.clone();
    let reply = hostile.sandbox.reconcile_blocking(&hostile.plugin, &hostile.limits, request.into());
    let outcome = reply.result.unwrap();
    let [Action::SetStatus(echo)] = &outcome.actions[..] else { panic!("{outcome:?}") };
    let expected = serde_json::json!([
        primary,
        true,
        "{\"a\":1}",
        "2026-01-02T03:04:05Z",
        u64::MAX,
        ["{\"one\":1}", "{\"zwei\":\"ä\"}"],
        [["none", false, []], ["some", true, ["{}"]]],
        [
            [3, ["apps", "v1", "Deployment", "tests", "web", "u-1"], "Conflict", "why"],
            [4, null, "TooLarge", "why"],
        ],
    ]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(echo).unwrap(), expected);
}

#[test]
fn every_case_of_an_action_arrives() {
    let text = |part: &str| format!("{part} of 7");
    let kind = || Kind { group: text("group"), version: text("version"), kind: text("kind") };
    let reference = || Reference {
        kind: kind(),
        namespace: Some(text("namespace")),
        name: text("name"),
        uid: Some(text("uid")),
    };
    let pair = |of: &str| KeyValue { key: text(&format!("{of} key")), value: text(&format!("{of} value")) };
    let random = |alphabet| RandomKey { key: text("random key"), length: 24, alphabet };
    let event =
        |severity| Action::RecordEvent(Event { severity, reason: text("reason"), message: text("message") });
    let expected = [
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
        event(Severity::Normal),
        event(Severity::Warning),
        Action::LookUp(Query {
            id: text("id"),
            kind: kind(),
            namespace: None,
            name: Some(text("name")),
            options: text("query options"),
        }),
        Action::RequeueAfter(7),
        Action::Release,
        Action::Extension(Extension { name: text("extension"), body: text("body") }),
    ];
    assert_eq!(Hostile::new().call("every-action", 0).result.unwrap().actions, expected);
}
