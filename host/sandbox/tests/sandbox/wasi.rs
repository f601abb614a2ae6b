//! A component that imports WASI finds nothing of the machine, and the same on each run.

use std::sync::Arc;

use pilothouse_model::action::{Action, Outcome};
use pilothouse_sandbox::{Level, Reply};
use serde_json::Value;

use crate::guests::{prepare, request, sandbox};

fn probe(behaviour: &str, seed: u64) -> Reply {
    let sandbox = sandbox();
    let plugin = prepare(&sandbox, pilothouse_guests::wasi_probe());
    assert!(
        plugin.imports().iter().any(|name| name.starts_with("wasi:cli/environment@0.2.")),
        "not built with WASI"
    );
    let request = pilothouse_model::action::Request { seed, ..request(behaviour, 0) };
    sandbox.reconcile_blocking(&plugin, &pilothouse_model::limits::Limits::default(), Arc::new(request))
}

fn status(reply: Reply) -> Value {
    let Ok(Outcome { actions, .. }) = reply.result else { panic!("{reply:?}") };
    let [Action::SetStatus(status)] = &actions[..] else { panic!("{actions:?}") };
    serde_json::from_str(status).unwrap()
}

#[test]
fn nothing_of_the_machine_is_there() {
    let status = status(probe("look", 7));
    for denied in ["root", "passwd", "written", "network"] {
        assert_eq!(status[denied], false, "{denied}: {status}");
    }
    for nothing in ["arguments", "variables", "stdin"] {
        assert_eq!(status[nothing], 0, "{nothing}: {status}");
    }
}

#[test]
fn what_has_an_error_for_it_is_refused_with_that_error() {
    let status = status(probe("look", 7));
    assert_eq!(status["socketDenied"], true, "{status}");
    assert_eq!(status["httpDenied"], true, "{status}");
}

#[test]
fn clocks_begin_at_now_and_an_hour_passes_at_once() {
    let status = status(probe("look", 7));
    assert_eq!(status["sleptSeconds"], 3600);
    // 2026-01-02T03:04:05Z, and the hour.
    assert_eq!(status["unixSeconds"], 1_767_323_045 + 3600);
}

#[test]
fn randomness_is_a_function_of_the_seed() {
    assert_eq!(status(probe("look", 7)), status(probe("look", 7)));
    assert_ne!(status(probe("look", 7))["random"], status(probe("look", 8))["random"]);
}

#[test]
fn output_is_logged_by_lines() {
    let reply = probe("print", 7);
    assert!(reply.result.is_ok());
    let mut lines: Vec<(Level, &str)> =
        reply.logs.iter().map(|line| (line.level, line.message.as_str())).collect();
    lines.sort();
    let expected = [
        (Level::Info, "and a second line"),
        (Level::Info, "to stdout"),
        (Level::Warn, "to stderr in two pieces"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_exit_is_a_trap_and_a_panic_carries_its_text() {
    let error = probe("exit", 7).result.unwrap_err();
    assert_eq!((error.reason(), error.to_string().as_str()), ("Trap", "trapped: exited"));
    let error = probe("panic", 7).result.unwrap_err();
    assert_eq!(error.reason(), "Trap");
    assert!(error.to_string().contains("words of a panic"), "{error}");
}
