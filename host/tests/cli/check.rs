use serde_json::json;

use super::{Files, greeter, pilothouse};

const GREETING: &str = "\
# Said each morning.
apiVersion: example.com/v1alpha1
kind: Greeting
metadata:
  name: hello
spec:
  text: good day
";

#[test]
fn what_render_prints_is_a_case() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let resource = files.write("hello.yaml", GREETING);
    let rendered = pilothouse(&["render", &plugin, "-f", &resource, "--now", "2026-01-02T03:04:05Z"]);
    assert_eq!(rendered.documents()[0]["now"], "2026-01-02T03:04:05Z");
    let case = files.write("case.yaml", format!("{GREETING}{}", rendered.stdout));
    let done = pilothouse(&["check", &plugin, &case]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(
        done.stdout.contains("case.yaml: Greeting default/hello: at rest after 2 passes, "),
        "{}",
        done.stdout
    );
    assert!(done.stdout.ends_with("config-map 0.1.0: 1 cases, 0 failed\n"), "{}", done.stdout);
}

#[test]
fn recording_keeps_what_people_wrote_and_is_done_once() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let two = format!("{GREETING}---\n{}", GREETING.replace("name: hello", "name: bye"));
    let case = files.write("case.yaml", &two);
    let done = pilothouse(&["check", &plugin, &case]);
    done.failed(1, "");
    assert!(done.stdout.contains("\n  expected: the file says no outcome: `--record`"), "{}", done.stdout);

    let record = || pilothouse(&["check", &plugin, &case, "--record"]);
    assert!(record().stderr.contains("case.yaml: recorded"));
    let recorded = std::fs::read_to_string(&case).unwrap();
    assert!(recorded.starts_with(&two), "{recorded}");
    assert_eq!(recorded.matches("\nresource:\n").count(), 2, "{recorded}");
    assert_eq!(record().stderr, "");
    assert_eq!(std::fs::read_to_string(&case).unwrap(), recorded);
    assert_eq!(pilothouse(&["check", &plugin, &case]).code, 0);

    // What is wrong in a case is told by file and line.
    for (changed, problem) in [
        (recorded.replace("\nactions:", "\nactionz: 1\nactions:"), "actionz: is no field of an outcome"),
        (recorded.replace("\nactions:", "\nnow: today\nactions:"), "now: \"today\": a time as"),
        (
            recorded.replace("  name: bye\n  namespace", "  name: by\n  namespace"),
            "resource: no such resource",
        ),
        (format!("{recorded}---\n{GREETING}"), "an object after the expected outcome"),
        (format!("{GREETING}---\nfailure: {{retry: later}}\n"), "actions: a list would be right"),
    ] {
        let case = files.write("wrong.yaml", changed);
        let done = pilothouse(&["check", &plugin, &case]);
        done.failed(2, problem);
        assert!(done.stderr.contains("wrong.yaml:"), "{}", done.stderr);
    }
}

#[test]
fn configuration_of_a_case_goes_before_the_settings() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    files.write("hostile.yaml", "config: {greeting: hi}\n");
    let resource = json!({"apiVersion": "test.pilothouse.dev/v1", "kind": "Hostile", "metadata": {"name": "one"},
        "spec": {"behaviour": "child", "amount": 1}});
    let expected = json!({"resource": {"apiVersion": "test.pilothouse.dev/v1", "kind": "Hostile", "name": "one"},
        "config": {"greeting": "ho"}, "actions": []});
    let case = files.write("case.yaml", format!("{resource}\n---\n{expected}\n"));
    pilothouse(&["check", &plugin, &case, "--record"]);
    let recorded = std::fs::read_to_string(&case).unwrap();
    assert!(recorded.contains("config:\n  greeting: ho\n"), "{recorded}");
}

#[test]
fn a_directory_without_cases_is_bad_input() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let empty = files.path("cases");
    std::fs::create_dir(&empty).unwrap();
    pilothouse(&["check", &plugin, &empty])
        .refused(&format!("{empty}: no cases: a file NAME.yaml would be right"));
    let other = files.write("map.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
    pilothouse(&["check", &plugin, &other])
        .refused(&format!("{other}: no resource that plugin config-map serves"));
}
