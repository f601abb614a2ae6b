//! What is refused: one line that names the file or field and what would be right, exit code 2.

use super::{Files, greeter, pilothouse, pilothouse_reading};

#[test]
fn files_that_are_no_plugin() {
    let files = Files::new();
    for (name, content, problem) in [
        (
            "core.wasm",
            &b"\0asm\x01\0\0\0"[..],
            "is a core module, not a component: build it with `cargo component build",
        ),
        ("none.wasm", b"\0asm\x0d\0\x01\0", "is no plugin: it does not export"),
        ("text.wasm", b"(component)", "is WebAssembly text"),
        ("page.wasm", b"<html>", "is no WebAssembly binary"),
        ("empty.wasm", b"", "is empty"),
        ("half.wasm", &greeter()[..1000], "ends at byte 1000, within a section"),
        ("half.wasm.gz", &[0x1f, 0x8b, 8, 0], "cannot be unpacked"),
    ] {
        let plugin = files.write(name, content);
        for command in [&["inspect", &plugin][..], &["crds", &plugin], &["rbac", &plugin]] {
            pilothouse(command).refused(&format!("{plugin}: {problem}"));
        }
    }
    let missing = files.path("missing.wasm");
    pilothouse(&["inspect", &missing]).refused(&format!("{missing}: No such file or directory"));
    let directory = files.path("");
    pilothouse(&["inspect", &directory]).refused(&format!("{directory} is not a regular file"));
}

#[test]
fn plugins_that_describe_themselves_wrongly() {
    let files = Files::new();
    let plugin = files.write("lies.wasm", pilothouse_guests::hostile_describing("lies"));
    pilothouse(&["inspect", &plugin]).refused(&format!("{plugin}: manifest: "));
    let plugin = files.write("traps.wasm", pilothouse_guests::hostile_describing("traps"));
    pilothouse(&["inspect", &plugin]).failed(3, "`describe` failed: trapped");
    files.write("loops.yaml", "limits: {cpuMs: 20}\n");
    let plugin = files.write("loops.wasm", pilothouse_guests::hostile_describing("loops"));
    pilothouse(&["inspect", &plugin]).failed(3, "used more than its 20 ms of CPU time");
}

#[test]
fn settings_with_a_wrong_key() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let settings = files.write("greeter.yaml", "concurency: 3\n");
    let done = pilothouse(&["inspect", &plugin]);
    done.failed(2, &format!("error: {settings}: "));
    done.failed(2, "concurency");
}

#[test]
fn resources_that_cannot_be_rendered() {
    let files = Files::new();
    let plugin = files.write("greeter.wasm", greeter());
    let resource = files.path("resource.yaml");
    for (text, problem) in [
        ("kind: Greeting\nspec: {text: a\nmore: b\n", ":3:"),
        ("- a\n", ":1: is no Kubernetes object"),
        ("kind: Greeting\n", ":1: apiVersion is missing"),
        (
            "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
            ":2: Pod.v1 is not served by plugin config-map: Greeting.v1alpha1.example.com would be right",
        ),
        ("apiVersion: example.com/v1alpha1\nkind: Greeting\nspec: {}\n", ":1: metadata.name is missing"),
    ] {
        files.write("resource.yaml", text);
        let done = pilothouse(&["render", &plugin, "-f", &resource]);
        done.refused(&format!("{resource}{problem}"));
    }
    pilothouse_reading(&["render", &plugin, "-f", "-"], "").refused("-f: no resource found");
    pilothouse(&["render", &plugin, "-f", "-", "--observed", "-"]).refused("`-` is given twice");
    let greeting = "{apiVersion: example.com/v1alpha1, kind: Greeting, metadata: {name: a}, spec: {text: a}}";
    let pod = files.write("pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a}}");
    pilothouse_reading(&["render", &plugin, "-f", "-", "--observed", &pod], greeting).refused(&format!(
        "{pod}:1: Pod.v1 is not among the children of the plugin's manifest: ConfigMap.v1"
    ));
    let done = pilothouse_reading(&["render", &plugin, "-f", "-", "--now", "yesterday"], greeting);
    done.failed(2, "invalid value 'yesterday' for '--now <TIME>'");
}

#[test]
fn arguments_of_run() {
    pilothouse(&["run"])
        .refused("no source of plugins: give --plugins DIR, --plugin-configmaps NAMESPACE, or both");
    let files = Files::new();
    let missing = files.path("kubeconfig");
    pilothouse(&["run", "--plugins", "/tmp", "--kubeconfig", &missing])
        .refused(&format!("--kubeconfig {missing}: No such file or directory"));
    pilothouse(&["run", "--plugin-configmaps", "Ops"]).refused("--plugin-configmaps: `Ops` is no namespace");
    pilothouse(&["run", "--plugins", "/tmp", "--namespace", "a/b"])
        .refused("--namespace: `a/b` is no namespace");
    pilothouse(&["run", "--plugins", "/tmp", "--resync", "5"]).failed(2, "5 is not in 10..=86400");
    pilothouse(&["run", "--plugins", "/tmp", "--listen", "8080"]).failed(2, "'--listen <ADDR:PORT>'");
    let run = |arguments: &[&str]| pilothouse(&[&["run", "--plugins", "/tmp"], arguments].concat());
    run(&["--lease-duration", "2"]).refused("--lease-duration: duration: 2s is out of bounds");
    run(&["--lease-duration", "8"]).refused("--lease-renew-deadline: renew deadline: 10s must be shorter");
    run(&["--lease-retry-period", "9"]).refused("--lease-retry-period: retry period: 9s is out of bounds");
    run(&["--lease-retry-period", "soon"]).failed(2, "seconds, such as `2` or `0.5`, would be right");
    run(&["--lease-name", "A"]).refused("--lease-name: `A` is no name of a Lease");
    run(&["--lease-namespace", "a/b"]).refused("--lease-namespace: `a/b` is no namespace");
    run(&["--shards", "0"]).failed(2, "0 is not in 1..=64");
    run(&["--shards", "2", "--leases", "off"]).refused("--shards: shards are shared by Leases");
    pilothouse(&["rendr"]).failed(2, "'render'");
}
