//! Components of Python, JavaScript and Go: their runtimes find nothing of the machine, do the same on each run, and end at
//! the same limits as any other plugin.

use std::sync::{Arc, LazyLock};

use pilothouse_model::action::{
    Action, Alphabet, Apply, Deletion, Event, Extension, Failure, KeyValue, Outcome, Query, RandomKey,
    Request, SecretTemplate, Severity, TargetPatch,
};
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, Compiler, Level, Prepared, Reply, Sandbox, SandboxOptions};
use serde_json::{Value, json};

struct Probe {
    sandbox: Sandbox,
    plugin: Arc<Prepared>,
}

impl Probe {
    /// Under the limits that every plugin has.
    fn new(name: &str) -> Self {
        let component = pilothouse_guests::foreign(&format!("guests/{name}.wasm")).unwrap();
        let cache_dir = Some(pilothouse_guests::code_cache());
        let options = SandboxOptions { cache_dir, ..SandboxOptions::new(Compiler::InProcess) };
        let sandbox = Sandbox::new(options).unwrap();
        let plugin = Arc::new(sandbox.prepare(&component, &Limits::default()).unwrap());
        Self { sandbox, plugin }
    }

    fn call(&self, behaviour: &str, seed: u64) -> Reply {
        let request = Request { seed, ..crate::guests::request(behaviour, 0) };
        let primary = request.primary.replace("\"Hostile\"", "\"Probe\"");
        let request = Arc::new(Request { primary, ..request });
        self.sandbox.reconcile_blocking(&self.plugin, &Limits::default(), request)
    }

    fn look(&self, seed: u64) -> Value {
        status(self.call("look", seed))
    }
}

static PYTHON: LazyLock<Probe> = LazyLock::new(|| Probe::new("probe-python"));
static JAVASCRIPT: LazyLock<Probe> = LazyLock::new(|| Probe::new("probe-javascript"));
static GO: LazyLock<Probe> = LazyLock::new(|| Probe::new("probe-go"));

fn all() -> [&'static Probe; 3] {
    [&PYTHON, &JAVASCRIPT, &GO]
}

fn status(reply: Reply) -> Value {
    let Ok(Outcome { actions, failure: None }) = reply.result else { panic!("{reply:?}") };
    let [Action::SetStatus(status)] = &actions[..] else { panic!("{actions:?}") };
    serde_json::from_str(status).unwrap()
}

#[test]
fn python_finds_nothing_of_the_machine_and_gets_exceptions() {
    let status = PYTHON.look(7);
    let expected = json!({
        "read": "FileNotFoundError", "write": "FileNotFoundError", "list": "FileNotFoundError",
        "temporary": "FileNotFoundError", "socket": "PermissionError", "loop": "PermissionError",
        "process": "OSError", "thread": "RuntimeError", "recursion": "RecursionError",
    });
    assert_eq!(status["denied"], expected);
    assert_eq!((&status["variables"], &status["stdin"]), (&json!(0), &json!("''")), "{status}");
}

#[test]
fn javascript_finds_nothing_of_the_machine_and_gets_exceptions() {
    let status = JAVASCRIPT.look(7);
    let expected = json!({
        "fetch": "TypeError", "process": "ReferenceError", "require": "TypeError", "recursion": "InternalError",
    });
    assert_eq!(status["denied"], expected);
    assert_eq!(status["zone"], 0);
}

#[test]
fn go_finds_nothing_of_the_machine_and_gets_errors() {
    let status = GO.look(7);
    assert_eq!(status["refused"], json!([true, true, true, true]), "{status}");
    assert_eq!(status["variables"], 0);
}

/// Go writes the contract's records byte by byte: a wrong offset would be another field.
#[test]
fn each_action_of_go_arrives_as_it_was_meant() {
    let pod = Kind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
    let deployment =
        Kind { group: "apps".to_owned(), version: "v1".to_owned(), kind: "Deployment".to_owned() };
    let some = |text: &str| Some(text.to_owned());
    let target = Reference { kind: pod, namespace: some("there"), name: "pod".to_owned(), uid: some("uid") };
    let pair = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#.to_owned();
    let expected = vec![
        Action::Apply(Apply { object, options: String::new() }),
        Action::Delete(Deletion {
            target: target.clone(),
            options: r#"{"propagation":"orphan"}"#.to_owned(),
        }),
        Action::PatchTarget(TargetPatch {
            target,
            patch: "{}".to_owned(),
            options: r#"{"subresource":"status"}"#.to_owned(),
        }),
        Action::GenerateSecret(SecretTemplate {
            name: "secret".to_owned(),
            literals: vec![pair("user", "app"), pair("db", "app")],
            random: vec![RandomKey { key: "password".to_owned(), length: 32, alphabet: Alphabet::Base64url }],
            composed: vec![pair("uri", "$(user)")],
            options: r#"{"type":"Opaque"}"#.to_owned(),
        }),
        Action::SetStatus("{}".to_owned()),
        Action::RecordEvent(Event {
            severity: Severity::Warning,
            reason: "Reason".to_owned(),
            message: "message 1".to_owned(),
        }),
        Action::LookUp(Query {
            id: "id".to_owned(),
            kind: deployment,
            namespace: some("there"),
            name: some("n"),
            options: "{}".to_owned(),
        }),
        Action::RequeueAfter(5_000),
        Action::Release,
        Action::Extension(Extension { name: "example.com/thing".to_owned(), body: "1".to_owned() }),
    ];
    assert_eq!(GO.call("every", 7).result.unwrap().actions, expected);
}

#[test]
fn clocks_stand_at_now() {
    for probe in all() {
        let status = probe.look(7);
        // 2026-01-02T03:04:05Z
        assert_eq!(status["unixSeconds"].as_f64(), Some(1_767_323_045.0), "{status}");
        assert_eq!(status["now"], true, "{status}");
    }
    assert_eq!(PYTHON.look(7)["sleptSeconds"], json!([3600.0, 3600.0]));
    assert_eq!(GO.look(7)["sleptSeconds"].as_f64(), Some(3600.0));
}

#[test]
fn the_same_request_gives_the_same_actions_and_another_seed_other_randomness() {
    for probe in all() {
        let (first, second) = (probe.call("look", 7), probe.call("look", 7));
        assert_eq!(first.result, second.result);
        let (one, other) = (status(first), probe.look(8));
        let drawn = |status: &Value| status["random"].as_array().unwrap().clone();
        for (one, other) in drawn(&one).iter().zip(&drawn(&other)) {
            assert_ne!(one, other, "drawn when the component was built");
        }
    }
}

#[test]
fn nothing_is_remembered_from_call_to_call() {
    for probe in all() {
        for _ in 0..2 {
            assert_eq!(status(probe.call("remember", 7)), json!({"calls": 1}));
        }
    }
}

#[test]
fn output_and_logging_arrive_with_their_levels() {
    for probe in all() {
        let reply = probe.call("look", 7);
        let lines: Vec<(Level, &str)> =
            reply.logs.iter().map(|line| (line.level, line.message.as_str())).collect();
        for line in [(Level::Info, "looking"), (Level::Info, "to stdout"), (Level::Warn, "to stderr")] {
            assert!(lines.contains(&line), "{line:?}: {lines:?}");
        }
    }
}

#[test]
fn a_mistake_is_a_failure_that_names_it_and_the_log_has_the_trace() {
    for (probe, error, file) in [(&PYTHON, "KeyError", "probe.py"), (&JAVASCRIPT, "TypeError", "reconcile@")]
    {
        let reply = probe.call("raise", 7);
        let Ok(Outcome { actions, failure: Some(Failure::Retry(text)) }) = &reply.result else {
            panic!("{reply:?}")
        };
        assert!(actions.is_empty());
        assert!(text.starts_with(error) && text.contains("words of a mistake"), "{text}");
        let trace = reply.logs.iter().any(|line| line.level == Level::Error && line.message.contains(file));
        assert!(trace, "{:?}", reply.logs);
    }
}

#[test]
fn an_error_that_go_returns_is_a_failure_with_its_text() {
    let Ok(Outcome { actions, failure }) = GO.call("raise", 7).result else { panic!("no outcome") };
    assert!(actions.is_empty());
    assert_eq!(failure, Some(Failure::Retry("words of a mistake".to_owned())));
}

#[test]
fn limits_end_them_as_they_end_any_plugin() {
    for probe in all() {
        let error = probe.call("loop", 7).result.unwrap_err();
        assert!(matches!(error, CallError::CpuLimit { .. }), "{error}");
    }
    // CPython asks for memory, is refused, and would go on: an exception. The host's limit says what it was.
    let reply = PYTHON.call("grow", 7);
    let Ok(Outcome { failure: Some(Failure::Retry(text)), .. }) = &reply.result else { panic!("{reply:?}") };
    assert!(text.starts_with("MemoryError"), "{text}");
    let error = GO.call("grow", 7).result.unwrap_err();
    assert!(matches!(error, CallError::MemoryLimit { .. }), "{error}");
    // The engine's allocations that fail are an exception or the end, as it likes.
    assert!(!matches!(JAVASCRIPT.call("grow", 7).result, Ok(Outcome { failure: None, .. })));
}

#[test]
fn a_call_stays_far_below_the_limits() {
    for probe in all() {
        let request = crate::guests::request("steady", 0);
        let primary = json!({
            "apiVersion": "test.pilothouse.dev/v1", "kind": "Probe",
            "metadata": {"name": "one", "namespace": "tests"},
            "spec": {"behaviour": "steady", "text": "a"},
        });
        let request = Arc::new(Request { primary: primary.to_string(), ..request });
        let reply = probe.sandbox.reconcile_blocking(&probe.plugin, &Limits::default(), request);
        assert_eq!(reply.result.unwrap().actions.len(), 6);
        assert!(reply.usage.memory_bytes_peak < Limits::default().memory_bytes / 2, "{:?}", reply.usage);
    }
}

/// Whether it has the interface decides whether the host may ask: the SDKs export it for plugins that guard, and no others.
#[test]
fn admission_is_exported_by_plugins_that_guard() {
    for (name, admits) in [
        ("guarding-python", true),
        ("guarding-javascript", true),
        ("probe-python", false),
        ("probe-javascript", false),
    ] {
        assert_eq!(Probe::new(name).plugin.admits(), admits, "{name}");
    }
}
