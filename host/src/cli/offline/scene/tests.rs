use serde_json::json;

use super::*;
use crate::cli::documents;

const NOW: &str = "2026-01-02T03:04:05Z";

fn manifest() -> Manifest {
    let resource = |kind: &str, plural: &str| json!({"version": "v1", "kind": kind, "plural": plural});
    let text = json!({
        "name": "web", "version": "1",
        "controllers": [{
            "primary": {"group": "example.com", "version": "v1", "kind": "Web", "plural": "webs"},
            "children": [
                {"resource": resource("Secret", "secrets")},
                {"resource": resource("ConfigMap", "configmaps"), "projection": "metadata"}
            ],
            "related": [
                {"name": "pods", "resource": resource("Pod", "pods"), "selector": "app=$(name)",
                 "fieldSelector": "status.phase!=Failed", "projection": "metadata"},
                {"name": "nodes", "resource":
                    {"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"}}
            ],
            "finalizer": "example.com/cleanup"
        }]
    });
    Manifest::parse(&text.to_string()).unwrap()
}

fn documents(yaml: &str) -> Vec<Document> {
    documents::parse(yaml, "in.yaml").unwrap()
}

const WEB: &str =
    "{apiVersion: example.com/v1, kind: Web, metadata: {name: a, namespace: shop}, spec: {x: 1}}";

/// Builds the scenes of these texts and hands them over.
fn scenes<T>(
    primaries: &str,
    observed: &str,
    related: &str,
    check: impl FnOnce(&mut [Scene<'_>]) -> T,
) -> Result<T, String> {
    let manifest = manifest();
    let run = || {
        let objects = Objects::new(&manifest, documents(observed), documents(related))?;
        let primaries = served(&manifest, documents(primaries))?;
        let sole = primaries.len() == 1;
        let mut scenes: Vec<Scene<'_>> = primaries
            .iter()
            .map(|primary| Scene::new(&manifest, primary, &objects, sole, NOW))
            .collect::<Result<_, _>>()?;
        Ok(check(&mut scenes))
    };
    run().map_err(|exit: Exit| exit.message)
}

fn error(primaries: &str, observed: &str, related: &str) -> String {
    scenes(primaries, observed, related, |_| ()).unwrap_err()
}

fn names(objects: &[Arc<Object>]) -> Vec<String> {
    objects.iter().map(|object| format!("{} {}", object.kind().kind, object.key())).collect()
}

#[test]
fn the_resource_is_as_the_api_server_and_the_host_would_have_left_it() {
    let bare = "{apiVersion: example.com/v1, kind: Web, metadata: {name: a}}";
    scenes(bare, "", "", |scenes| {
        let metadata = &scenes[0].snapshot.primary.to_value()["metadata"];
        assert_eq!(metadata["namespace"], "default");
        assert_eq!(metadata["creationTimestamp"], NOW);
        assert_eq!(metadata["generation"], 1);
        assert_eq!(metadata["finalizers"], json!(["example.com/cleanup"]));
        assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
        assert!(!scenes[0].deleting);
    })
    .unwrap();
}

#[test]
fn other_kinds_in_the_same_file_are_left_out() {
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let left = scenes(&format!("{namespace}\n---\n{WEB}"), "", "", |scenes| scenes.len()).unwrap();
    assert_eq!(left, 1);
    let error = error(namespace, "", "");
    assert!(error.starts_with("in.yaml:1: Namespace.v1 is not served by plugin web: "), "{error}");
}

#[test]
fn a_deletion_is_seen_as_long_as_the_finalizer_is_there() {
    let web = |finalizers: &str| {
        format!(
            "{{apiVersion: example.com/v1, kind: Web, metadata: {{name: a, deletionTimestamp: '{NOW}', finalizers: [{finalizers}]}}}}"
        )
    };
    scenes(&web("example.com/cleanup"), "", "", |scenes| assert!(scenes[0].deleting)).unwrap();
    let error = error(&web("other.com/x"), "", "");
    assert!(error.contains("finalizer example.com/cleanup is not there: there would be no pass"), "{error}");
}

#[test]
fn children_are_those_that_it_owns_in_the_order_of_the_manifest() {
    let owner = |name: &str| {
        format!(
            "ownerReferences: [{{apiVersion: example.com/v1, kind: Web, name: {name}, uid: u, controller: true}}]"
        )
    };
    let observed = format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: z}}, data: {{a: b}}}}\n---\n\
         {{apiVersion: v1, kind: ConfigMap, metadata: {{name: b, namespace: shop, {}}}}}\n---\n\
         {{apiVersion: v1, kind: ConfigMap, metadata: {{name: other, {}}}}}\n---\n\
         {{apiVersion: v1, kind: ConfigMap, metadata: {{name: far, namespace: elsewhere}}}}\n---\n\
         {{apiVersion: v1, kind: Secret, metadata: {{name: s}}, data: {{password: c2VjcmV0}}}}\n",
        owner("a"),
        owner("b"),
    );
    scenes(WEB, &observed, "", |scenes| {
        let snapshot = &scenes[0].snapshot;
        assert_eq!(names(&snapshot.children), ["Secret shop/s", "ConfigMap shop/b", "ConfigMap shop/z"]);
        let request = snapshot.request(false, "{}", NOW, 0, &[]);
        assert!(!request.children[0].contains("c2VjcmV0") && request.children[0].contains("password"));
        assert!(!request.children[2].contains(r#""data""#), "metadata only: {}", request.children[2]);
    })
    .unwrap();
}

#[test]
fn with_several_resources_each_child_needs_its_owner() {
    let second = WEB.replace("name: a", "name: b");
    let child = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}";
    let error = error(&format!("{WEB}\n---\n{second}"), child, "");
    assert!(error.starts_with("in.yaml:1: Secret.v1 shop/s has no controlling owner reference"), "{error}");
}

#[test]
fn related_objects_answer_rules_and_look_ups() {
    let pod = |name: &str, namespace: &str, app: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}}}\n---\n"
        )
    };
    let related = [
        pod("p2", "shop", "a"),
        pod("p1", "shop", "a"),
        pod("p3", "shop", "b"),
        pod("p4", "elsewhere", "a"),
        pod("p5", "shop", "a").replace("}}}", "}}, status: {phase: Failed}}"),
        "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n".to_owned(),
        "{apiVersion: v1, kind: Node, metadata: {name: n2}}".to_owned(),
    ];
    let look_up = |id: &str, name: Option<&str>, limit: usize| LookUp {
        id: id.to_owned(),
        kind: Kind::new("", "v1", "Node"),
        plural: "nodes".to_owned(),
        namespace: None,
        name: name.map(str::to_owned),
        label_selector: None,
        limit,
    };
    scenes(WEB, "", &related.concat(), |scenes| {
        let scene = &mut scenes[0];
        let found = &scene.snapshot.related;
        assert_eq!(found.len(), 1, "a rule without a selector is for look-ups only");
        assert_eq!((found[0].query.as_str(), found[0].complete), ("pods", true));
        assert_eq!(names(&found[0].objects), ["Pod shop/p1", "Pod shop/p2"]);

        scene
            .answer(&[
                look_up("all", None, 1),
                look_up("one", Some("n2"), 10),
                look_up("none", Some("n3"), 10),
            ])
            .unwrap();
        let found = &scene.snapshot.related;
        assert_eq!((names(&found[1].objects), found[1].complete), (vec!["Node n1".to_owned()], false));
        assert_eq!((names(&found[2].objects), found[2].complete), (vec!["Node n2".to_owned()], true));
        assert_eq!((found[3].query.as_str(), names(&found[3].objects)), ("none", Vec::new()));
        scene.answer(&[look_up("all", None, 10)]).unwrap();
        let queries: Vec<&str> = scene.snapshot.related.iter().map(|found| found.query.as_str()).collect();
        assert_eq!(queries, ["pods", "all", "one", "none"], "answers of the round before stay");
        assert!(scene.snapshot.related[1].complete, "what is asked again is answered anew");
        let wrong = LookUp { label_selector: Some("a b".to_owned()), ..look_up("wrong", None, 1) };
        assert!(
            scene.answer(&[wrong]).unwrap_err().starts_with("looks up `wrong` by a wrong selector `a b`: ")
        );
    })
    .unwrap();
}

#[test]
fn errors_name_the_place_and_what_would_be_right() {
    for (primaries, observed, related, expected) in [
        ("{kind: Web}", "", "", "in.yaml:1: apiVersion is missing"),
        ("{apiVersion: v1, metadata: {name: a}}", "", "", "in.yaml:1: kind is missing"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
            "",
            "",
            "in.yaml:1: Pod.v1 is not served by plugin web: Web.v1.example.com would be right",
        ),
        (
            "{apiVersion: example.com/v1, kind: Web, metadata: {}}",
            "",
            "",
            "in.yaml:1: metadata.name is missing: a text would be right",
        ),
        (
            WEB,
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
            "",
            "in.yaml:1: Pod.v1 is not among the children of the plugin's manifest: Secret.v1, ConfigMap.v1 would be right",
        ),
        (
            WEB,
            "",
            "{apiVersion: v1, kind: Secret, metadata: {name: a}}",
            "in.yaml:1: Secret.v1 is not among the related of the plugin's manifest: Pod.v1, Node.v1 would be right",
        ),
        (
            WEB,
            "",
            "{apiVersion: v1, kind: Node, metadata: {name: a, namespace: b}}",
            "in.yaml:1: metadata.namespace: `b`, yet Node.v1 is cluster-scoped",
        ),
        (
            WEB,
            "{apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: a}}",
            "",
            "in.yaml:3: Secret.v1 a is at in.yaml:1 already",
        ),
    ] {
        let error = error(primaries, observed, related);
        assert!(error.starts_with(expected), "{error}");
    }
}
