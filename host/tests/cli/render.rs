use serde_json::{Value, json};

use super::{Files, greeter, parse, pilothouse, pilothouse_reading};

const GREETING: &str = "\
apiVersion: example.com/v1alpha1
kind: Greeting
metadata:
  name: hello
  namespace: shop
spec:
  text: \"yes\"
";

fn hostile(behaviour: &str, amount: u64) -> String {
    format!(
        "{{apiVersion: test.pilothouse.dev/v1, kind: Hostile, metadata: {{name: one}}, \
         spec: {{behaviour: {behaviour}, amount: {amount}}}}}"
    )
}

#[test]
fn actions_are_printed_as_yaml_that_reads_back() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let resource = files.write("greeting.yaml", GREETING);
    let done = pilothouse(&["render", &plugin, "-f", &resource]);
    let documents = done.documents();
    assert_eq!(documents.len(), 1);
    let resource = json!({"apiVersion": "example.com/v1alpha1", "kind": "Greeting", "namespace": "shop", "name": "hello"});
    assert_eq!(documents[0]["resource"], resource);
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hello"}, "data": {"text": "yes"}});
    assert_eq!(documents[0]["actions"][0], json!({"apply": {"object": config_map}}));
    assert!(
        done.stdout.starts_with("---\nresource:\n  apiVersion: example.com/v1alpha1\n"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("text: \"yes\"") || done.stdout.contains("text: 'yes'"), "{}", done.stdout);
    assert!(
        done.stderr.starts_with("Greeting shop/hello: ") && done.stderr.contains("of memory"),
        "{}",
        done.stderr
    );
}

/// What the hostile plugin was given, as it echoes it.
fn echo(plugin: &str, resource: &str, now: &str) -> Value {
    let done = pilothouse(&["render", plugin, "-f", resource, "--now", now]);
    // The echo is no object, so the host would refuse it; it is printed all the same.
    done.failed(1, "status: is no JSON object");
    parse(&done.stdout)[0]["actions"][0]["set-status"].clone()
}

#[test]
fn the_same_input_gives_the_same_output() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    let resource = files.write("one.yaml", hostile("echo", 0));
    let first = echo(&plugin, &resource, "2026-01-02T03:04:05Z");
    assert_eq!(first[3], "2026-01-02T03:04:05Z");
    assert_eq!(first, echo(&plugin, &resource, "2026-01-02T04:04:05+01:00"));
    assert_ne!(first, echo(&plugin, &resource, "2026-01-02T03:04:06Z"));
}

#[test]
fn observed_children_reach_the_plugin() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let ready = |arguments: &[&str]| {
        let done = pilothouse_reading(&[&["render", &plugin, "-f", "-"], arguments].concat(), GREETING);
        done.documents()[0]["actions"][1]["set-status"]["conditions"][0]["status"].clone()
    };
    assert_eq!(ready(&[]), "False");
    let child = "{apiVersion: v1, kind: ConfigMap, metadata: {name: hello}}";
    let file = files.write("child.yaml", child);
    assert_eq!(ready(&["--observed", &file]), "True");
    // A directory, and the List that kubectl writes.
    let directory = files.path("observed");
    std::fs::create_dir(&directory).unwrap();
    files.write("observed/children.json", r#"{"apiVersion": "v1", "kind": "List", "items": []}"#);
    files.write("observed/notes.txt", "no YAML: [");
    assert_eq!(ready(&["--observed", &directory]), "False");
    files.write("observed/more.yml", format!("apiVersion: v1\nkind: List\nitems: [{child}]\n"));
    assert_eq!(ready(&["--observed", &directory]), "True");
}

#[test]
fn each_of_several_resources_is_one_document() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm.zst", zstd::encode_all(greeter(), 3).unwrap());
    let text = format!("{GREETING}---\n{}", GREETING.replace("hello", "bye"));
    let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &text);
    let documents = done.documents();
    let names: Vec<_> = documents.iter().map(|document| document["resource"]["name"].clone()).collect();
    assert_eq!(names, ["hello", "bye"]);

    let done = pilothouse_reading(&["render", &plugin, "-f", "-", "-o", "json"], &text);
    let mut stream = serde_json::Deserializer::from_str(&done.stdout).into_iter::<serde_json::Value>();
    for document in &documents {
        assert_eq!(stream.next().unwrap().unwrap(), *document);
    }
    assert!(stream.next().is_none());
}

#[test]
fn exit_code_1_a_failure_that_the_plugin_returned() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &hostile("fail", 0));
    done.failed(1, "Hostile default/one: the plugin says that it is invalid: spec.amount: no");
    assert_eq!(parse(&done.stdout)[0]["failure"], json!({"invalid": "spec.amount: no"}));
}

#[test]
fn exit_code_1_a_plan_that_the_host_would_refuse() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    for (behaviour, part) in [
        ("foreign-kind", "ClusterRoleBinding.v1.rbac.authorization.k8s.io is not among the children"),
        ("other-namespace", "namespace `kube-system` is not that of the primary, `default`"),
        ("garbage-json", "action 0 (apply): object: "),
    ] {
        let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &hostile(behaviour, 0));
        done.failed(1, "the host would refuse the outcome: action 0 (apply): ");
        done.failed(1, part);
        assert!(
            parse(&done.stdout)[0]["actions"][0]["apply"]["object"].is_object()
                || behaviour == "garbage-json"
        );
    }
}

#[test]
fn exit_code_3_a_trap_or_a_limit() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    files.write("hostile.yaml", "limits: {cpuMs: 50, memoryBytes: 16777216, actions: 10}\n");
    for (behaviour, part) in [
        ("trap", "the plugin trapped"),
        ("loop", "used more than its 50 ms of CPU time"),
        ("allocate", "needs more than its 16 MiB of memory"),
        ("many-actions", "returned 11 actions, at most 10 are allowed"),
        ("invalid-utf8", "text that is no UTF-8"),
    ] {
        let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &hostile(behaviour, 11));
        done.failed(3, part);
        assert_eq!(done.stdout, "", "{behaviour}");
    }
}

#[test]
fn the_worst_of_several_resources_is_the_exit_code_and_the_others_are_printed() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    let text = [hostile("trap", 0), hostile("fail", 0), hostile("child", 5)]
        .join("\n---\n")
        .replace("name: one", "name: x");
    let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &text);
    done.failed(3, "the plugin trapped");
    done.failed(3, "spec.amount: no");
    assert_eq!(parse(&done.stdout).len(), 2);
}

#[test]
fn settings_beside_the_plugin_are_used_and_log_lines_shown() {
    let files = Files::new();
    let plugin = files.write("hostile.wasm", pilothouse_guests::hostile());
    let resource = files.write("one.yaml", hostile("echo", 0));
    files.write("hostile.yaml", "config: {greeting: hi}\n");
    assert_eq!(echo(&plugin, &resource, "2026-01-02T03:04:05Z")[2], r#"{"greeting":"hi"}"#);

    let done = pilothouse_reading(&["render", &plugin, "-f", "-"], &hostile("trap", 0));
    done.failed(3, "Hostile default/one: log error: about to trap in reconcile");
}
