use std::sync::Arc;

use super::*;
use crate::action::{Alphabet, Extension, RandomKey, Severity};
use crate::grants::Grants;
use crate::limits::Limits;
use crate::manifest::{Manifest, Namespaces};
use crate::object::Object;

struct Case {
    manifest: Manifest,
    primary: Object,
    children: Vec<Arc<Object>>,
    related: Vec<Arc<Object>>,
    limits: Limits,
    deleting: bool,
    grants: Grants,
    namespaces: Vec<String>,
}

impl Case {
    fn new() -> Self {
        let resource = |group: &str, kind: &str, plural: &str| json!({"group": group, "version": "v1", "kind": kind, "plural": plural});
        let manifest = json!({
            "name": "web", "version": "1",
            "controllers": [{
                "primary": resource("example.com", "Web", "webs"),
                "children": [
                    {"resource": resource("", "ConfigMap", "configmaps")},
                    {"resource": resource("", "Secret", "secrets")}
                ],
                "related": [{"name": "nodes", "resource":
                    {"version": "v1", "kind": "Node", "plural": "nodes", "scope": "Cluster"}},
                    {"name": "pods", "resource": resource("", "Pod", "pods")}],
                "targets": [{"resource": resource("", "Pod", "pods"), "verbs": ["delete"]},
                    {"resource": resource("", "Service", "services"), "verbs": ["patch"]}],
                "finalizer": "example.com/f"
            }]
        });
        let primary = json!({"apiVersion": "example.com/v1", "kind": "Web",
            "metadata": {"name": "a", "namespace": "shop", "uid": "u-1"}});
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "shop", "uid": "u-2"}});
        Self {
            manifest: Manifest::parse(&manifest.to_string()).unwrap(),
            primary: Object::from_value(&primary).unwrap(),
            children: vec![Arc::new(Object::from_value(&child).unwrap())],
            related: Vec::new(),
            limits: Limits::default(),
            deleting: false,
            grants: Grants::default(),
            namespaces: Vec::new(),
        }
    }

    fn admit(&self, actions: Vec<Action>) -> Result<Plan, Refusal> {
        let cx = Context {
            plugin: &self.manifest.name,
            controller: &self.manifest.controllers[0],
            primary: &self.primary,
            children: &self.children,
            related: &self.related,
            deleting: self.deleting,
            limits: &self.limits,
            grants: &self.grants,
            namespaces: &self.namespaces,
        };
        admit(Outcome { actions, failure: None }, &cx)
    }

    fn refuses(&self, action: Action, reason: RefusalReason, part: &str) {
        let refusal = self.admit(vec![Action::RequeueAfter(1), action]).unwrap_err();
        assert_eq!((refusal.index, refusal.reason), (1, reason), "{refusal}");
        assert!(refusal.to_string().contains(part), "{refusal}");
    }
}

fn apply(object: Value, options: &str) -> Action {
    Action::Apply(Apply { object: object.to_string(), options: options.to_owned() })
}

fn config_map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v"}})
}

fn reference(kind: &str, name: &str) -> Reference {
    Reference { kind: Kind::new("", "v1", kind), namespace: None, name: name.to_owned(), uid: None }
}

#[test]
fn a_child_is_made_ours() {
    let plan =
        Case::new().admit(vec![apply(config_map(json!({"name": "a", "labels": {"x": "y"}})), "")]).unwrap();
    let [Write { target, plural, operation: Operation::Apply { object, create_only, .. }, .. }] =
        &plan.writes[..]
    else {
        panic!("{plan:?}")
    };
    assert_eq!(target.to_string(), "ConfigMap.v1 shop/a");
    assert_eq!((plural.as_str(), *create_only), ("configmaps", false));
    assert_eq!(
        object["metadata"],
        json!({
            "name": "a", "namespace": "shop", "labels": {"x": "y", MANAGED_LABEL: "web"},
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Web", "name": "a", "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true}]
        })
    );
}

#[test]
fn what_a_manifest_does_not_allow_refuses_the_whole_outcome() {
    use RefusalReason::{KindNotDeclared, Malformed, NamespaceNotGranted, NotAllowed, TooMuch, Unknown};
    let case = Case::new();
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}});
    case.refuses(
        apply(role, ""),
        KindNotDeclared,
        "Role.v1.rbac.authorization.k8s.io is not among the children",
    );
    case.refuses(
        apply(config_map(json!({"name": "a", "namespace": "kube-system"})), ""),
        NamespaceNotGranted,
        "`kube-system` is not that of the primary, `shop`",
    );
    for field in ["uid", "ownerReferences", "resourceVersion", "generateName"] {
        case.refuses(apply(config_map(json!({"name": "a", field: "x"})), ""), NotAllowed, field);
    }
    case.refuses(apply(config_map(json!({"name": "../x"})), ""), Malformed, "metadata.name");
    case.refuses(apply(config_map(json!({"name": "a"})), "{\"force\":true}"), Malformed, "`force`");
    case.refuses(
        Action::Apply(Apply { object: "{".to_owned(), options: String::new() }),
        Malformed,
        "object: ",
    );
    case.refuses(Action::Release, NotAllowed, "not being deleted");
    case.refuses(Action::SetStatus("[]".to_owned()), Malformed, "no JSON object");
    case.refuses(
        Action::Extension(Extension { name: "x.io/y".to_owned(), body: String::new() }),
        Unknown,
        "`x.io/y` is not known",
    );
    let node = Action::Delete(Deletion { target: reference("Node", "n"), options: String::new() });
    case.refuses(node, KindNotDeclared, "targets with the verb delete");
    let event = Event { severity: Severity::Normal, reason: "Not a word".to_owned(), message: String::new() };
    case.refuses(Action::RecordEvent(event.clone()), Malformed, "one word");
    let many = vec![Action::RecordEvent(Event { reason: "X".to_owned(), ..event }); EVENTS_MAX + 1];
    assert_eq!(case.admit(many).unwrap_err().reason, TooMuch);
    let few = Case { limits: Limits { actions: 2, ..Limits::default() }, ..Case::new() };
    assert_eq!(few.admit(vec![Action::RequeueAfter(1); 3]).unwrap_err().reason, TooMuch);
}

#[test]
fn only_what_the_snapshot_showed_is_deleted_and_only_that_very_object() {
    let deletion = |name: &str| {
        Action::Delete(Deletion {
            target: reference("ConfigMap", name),
            options: r#"{"propagation":"orphan"}"#.to_owned(),
        })
    };
    let plan = Case::new().admit(vec![deletion("never-seen"), deletion("a")]).unwrap();
    let [write] = &plan.writes[..] else { panic!("{plan:?}") };
    assert_eq!((write.index, write.target.uid.as_deref()), (1, Some("u-2")));
    assert!(matches!(write.operation, Operation::Delete { propagation: Propagation::Orphan, .. }));
}

#[test]
fn patches_touch_labels_annotations_and_fields_only() {
    let case = Case::new();
    let with = |kind: &str, patch: Value, options: &str| {
        Action::PatchTarget(TargetPatch {
            target: reference(kind, "s"),
            patch: patch.to_string(),
            options: options.to_owned(),
        })
    };
    let patch = |kind: &str, patch: Value| with(kind, patch, "");
    let status = with("Service", json!({}), r#"{"subresource":"status"}"#);
    case.refuses(status, RefusalReason::KindNotDeclared, "verb patch-status");
    assert_eq!(
        case.admit(vec![patch("Service", json!({"metadata": {"labels": {"a": null}}}))])
            .unwrap()
            .writes
            .len(),
        1
    );
    case.refuses(
        patch("Service", json!({"metadata": {"finalizers": []}})),
        RefusalReason::NotAllowed,
        "only labels",
    );
    case.refuses(patch("Pod", json!({})), RefusalReason::KindNotDeclared, "verb patch");
}

#[test]
fn secrets_are_owned_and_carry_no_data_from_the_plugin() {
    let template = SecretTemplate {
        name: "a-app".to_owned(),
        literals: vec![],
        random: vec![RandomKey { key: "password".to_owned(), length: 24, alphabet: Alphabet::Alphanumeric }],
        composed: vec![],
        options: r#"{"labels":{"x":"y"}}"#.to_owned(),
    };
    let plan = Case::new().admit(vec![Action::GenerateSecret(template)]).unwrap();
    let Operation::GenerateSecret { object, .. } = &plan.writes[0].operation else { panic!("{plan:?}") };
    assert_eq!(object["metadata"]["labels"], json!({"x": "y", MANAGED_LABEL: "web"}));
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
    assert_eq!((object.get("data"), &object["type"]), (None, &json!("Opaque")));
}

#[test]
fn the_shortest_requeue_counts_within_its_bounds() {
    let case = Case::new();
    let requeue = |ms: &[u64]| {
        case.admit(ms.iter().map(|ms| Action::RequeueAfter(*ms)).collect()).unwrap().requeue_after_ms
    };
    assert_eq!(requeue(&[]), None);
    assert_eq!(requeue(&[5_000, 2_000, 9_000]), Some(2_000));
    assert_eq!(requeue(&[0]), Some(REQUEUE_MS_MIN));
    assert_eq!(requeue(&[u64::MAX]), Some(REQUEUE_MS_MAX));
}

#[test]
fn one_child_is_wanted_in_one_way() {
    let case = Case::new();
    let template = |name: &str| {
        Action::GenerateSecret(SecretTemplate {
            name: name.to_owned(),
            literals: vec![],
            random: vec![],
            composed: vec![],
            options: String::new(),
        })
    };
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    for twice in [
        vec![apply(config_map(json!({"name": "x"})), ""), apply(config_map(json!({"name": "x"})), "")],
        vec![template("s"), template("s")],
        vec![apply(secret.clone(), ""), template("s")],
    ] {
        let refusal = case.admit(twice).unwrap_err();
        assert_eq!((refusal.index, refusal.reason), (1, RefusalReason::NotAllowed), "{refusal}");
        assert!(refusal.to_string().contains("twice in one outcome"), "{refusal}");
    }
    // Making anew by hand: the old one goes, then the new one is created.
    let old = Action::Delete(Deletion { target: reference("ConfigMap", "a"), options: String::new() });
    let plan = case.admit(vec![old, apply(config_map(json!({"name": "a"})), ""), template("s")]).unwrap();
    assert_eq!(plan.writes.len(), 3);
}

#[test]
fn a_secret_as_a_guest_saw_it_is_not_written_back_over_the_real_one() {
    let live =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "djE="}});
    let seen: Value = serde_json::from_str(&Object::from_value(&live).unwrap().guest_json()).unwrap();
    Case::new().refuses(apply(seen, ""), RefusalReason::NotAllowed, BLANKED_ANNOTATION);
}

#[test]
fn an_object_is_not_its_own_child() {
    let mut case = Case::new();
    let child = case.manifest.controllers[0].children[0].clone();
    let resource = crate::manifest::Resource {
        version: "v2".to_owned(),
        ..case.manifest.controllers[0].primary.clone()
    };
    case.manifest.controllers[0].children.push(Child { resource, ..child });
    let web = |name: &str| json!({"apiVersion": "example.com/v2", "kind": "Web", "metadata": {"name": name}});
    case.refuses(apply(web("a"), ""), RefusalReason::NotAllowed, "its own child");
    assert!(case.admit(vec![apply(web("b"), "")]).is_ok());
}

#[test]
fn what_a_plugin_only_reads_it_does_not_delete_by_owning_others_of_the_kind() {
    let mut case = Case::new();
    let foreign = |kind: &str| {
        let value = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "b", "namespace": "shop", "uid": "u-3"}});
        Arc::new(Object::from_value(&value).unwrap())
    };
    case.related = vec![foreign("ConfigMap"), foreign("Pod")];
    let deletion =
        |kind: &str| Action::Delete(Deletion { target: reference(kind, "b"), options: String::new() });
    let plan = case.admit(vec![deletion("ConfigMap"), deletion("Pod")]).unwrap();
    let kinds: Vec<_> = plan.writes.iter().map(|write| write.target.kind.kind.as_str()).collect();
    assert_eq!(kinds, ["Pod"], "the target alone");
}

#[test]
fn questions_are_bounded_and_well_formed() {
    let case = Case::new();
    let query = |id: &str, name: Option<&str>, options: &str| {
        Action::LookUp(Query {
            id: id.to_owned(),
            kind: Kind::new("", "v1", "Pod"),
            namespace: None,
            name: name.map(str::to_owned),
            options: options.to_owned(),
        })
    };
    assert_eq!(case.admit(vec![query("q", Some("a"), "")]).unwrap().look_ups[0].name.as_deref(), Some("a"));
    case.refuses(query("q", Some(""), ""), RefusalReason::Malformed, "name: `` is not a name");
    case.refuses(query("q", Some("../secrets"), ""), RefusalReason::Malformed, "name: `../secrets`");
    case.refuses(
        query("q", None, r#"{"labelSelector":"a b"}"#),
        RefusalReason::Malformed,
        "options.labelSelector",
    );
    let twice = case.admit(vec![query("q", None, ""), query("q", None, "")]).unwrap_err();
    assert!(twice.to_string().contains("`q` is asked twice"), "{twice}");
    let many = (0..=LOOK_UPS_MAX).map(|at| query(&at.to_string(), None, "")).collect();
    assert_eq!(case.admit(many).unwrap_err().reason, RefusalReason::TooMuch);
}

#[test]
fn a_text_that_is_small_as_json_and_huge_as_values_is_not_parsed() {
    let case = Case::new();
    let mut many = config_map(json!({"name": "x"}));
    many["data"] = json!({"many": vec![json!({"a": 0}); CONTAINERS_MAX]});
    case.refuses(apply(many, ""), RefusalReason::TooMuch, "maps and lists");
    let mut text = config_map(json!({"name": "x"}));
    let dashboard = json!({"many": vec![json!({"a": {"b": 0}}); 20_000]}).to_string();
    text["data"] = (0..10).map(|at| (at.to_string(), json!(dashboard))).collect::<Map<_, _>>().into();
    assert!(case.admit(vec![apply(text, "")]).is_ok(), "JSON within a text");
}

#[test]
fn a_write_comes_after_earlier_writes_alone() {
    use RefusalReason::Malformed;
    let case = Case::new();
    let map = |name: &str, options: &str| apply(config_map(json!({"name": name})), options);
    let plan = case
        .admit(vec![
            map("a", ""),
            Action::RequeueAfter(1),
            map("b", r#"{"after": [0]}"#),
            map("c", r#"{"after": [2, 0]}"#),
        ])
        .unwrap();
    assert_eq!(
        plan.writes.iter().map(|write| write.after.clone()).collect::<Vec<_>>(),
        [vec![], vec![0], vec![2, 0]]
    );
    // Itself, a later one, one that is no write, none at all.
    for after in ["[1]", "[2]", "[0]", "[7]"] {
        case.refuses(map("a", &format!("{{\"after\": {after}}}")), Malformed, "options.after");
    }
}

#[test]
fn kinds_with_a_rolling_strategy_are_rolled_out_each_by_itself_unless_the_primary_goes() {
    let mut case = Case::new();
    case.deleting = false;
    let children = &mut case.manifest.controllers[0].children;
    children[0].update_strategy =
        serde_json::from_value(json!({"method": "RollingRecreate", "maxUnavailable": "50%"})).unwrap();
    let actions = || {
        let map = |name: &str, options: &str| apply(config_map(json!({"name": name})), options);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        vec![
            map("a", ""),
            apply(secret, ""),
            map("b", ""),
            map("c", r#"{"createOnly": true}"#),
            map("d", ""),
            map("e", ""),
        ]
    };
    let plan = case.admit(actions()).unwrap();
    let [rollout] = &plan.rollouts[..] else { panic!("{plan:?}") };
    assert_eq!((&rollout.writes, rollout.unavailable_max), (&vec![0, 2, 4, 5], 2));
    case.deleting = true;
    assert_eq!(case.admit(actions()).unwrap().rollouts, []);
}

#[test]
fn on_delete_is_create_only() {
    let mut case = Case::new();
    case.manifest.controllers[0].children[0].update_strategy =
        serde_json::from_value(json!({"method": "OnDelete"})).unwrap();
    let plan = case.admit(vec![apply(config_map(json!({"name": "a"})), r#"{"createOnly": false}"#)]).unwrap();
    assert!(matches!(plan.writes[0].operation, Operation::Apply { create_only: true, .. }));
}

/// A case in which children may be in other namespaces, as far as the manifest says and these grants allow.
fn wide(grants: &Value) -> Case {
    let mut case = Case::new();
    case.grants = serde_json::from_value(grants.clone()).unwrap();
    let controller = &mut case.manifest.controllers[0];
    controller.children[0].namespaces = Namespaces::Any;
    let role = json!({"resource": {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole",
        "plural": "clusterroles", "scope": "Cluster"}});
    controller.children.push(serde_json::from_value(role).unwrap());
    case
}

fn far(namespace: &str) -> Action {
    apply(config_map(json!({"name": "c", "namespace": namespace})), "")
}

fn cluster_role() -> Action {
    let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
    apply(object, "")
}

#[test]
fn cr_675_what_no_owner_reference_reaches_is_refused_or_tracked() {
    use RefusalReason::{KindNotGranted, NamespaceNotGranted};
    wide(&json!([])).refuses(far("team-a"), NamespaceNotGranted, "`grants` in the plugin's settings");
    wide(&json!([])).refuses(cluster_role(), KindNotGranted, "`grants` in the plugin's settings");
    let grants = json!([{"kind": "ConfigMap", "namespaces": ["team-a"]}, {"kind": "ClusterRole.rbac.authorization.k8s.io"}]);
    let mut case = wide(&grants);
    case.refuses(far("team-b"), NamespaceNotGranted, "namespace `team-b` is not that of the primary, `shop`");
    let plan = case.admit(vec![far("team-a"), cluster_role(), far("shop")]).unwrap();
    let metadata = |at: usize| match &plan.writes[at].operation {
        Operation::Apply { object, .. } => object["metadata"].clone(),
        other => panic!("{other:?}"),
    };
    let tags = json!({MANAGED_LABEL: "web", OWNER_UID_LABEL: "u-1"});
    let annotations = json!({OWNER_ANNOTATION: "Web.example.com/shop/a"});
    assert_eq!(
        metadata(0),
        json!({"name": "c", "namespace": "team-a", "labels": tags, "annotations": annotations})
    );
    assert_eq!(metadata(1), json!({"name": "r", "labels": tags, "annotations": annotations}));
    assert!(
        metadata(2)["ownerReferences"].is_array() && metadata(2)["labels"].get(OWNER_UID_LABEL).is_none()
    );

    case.namespaces = vec!["shop".to_owned()];
    case.refuses(far("team-a"), NamespaceNotGranted, "the host does not serve it");
    case.manifest.controllers[0].children[0].namespaces = Namespaces::Own;
    case.refuses(far("team-a"), NamespaceNotGranted, "does not say `namespaces: any`");
}

#[test]
fn a_primary_without_a_namespace_reaches_those_that_are_granted() {
    use RefusalReason::NamespaceNotGranted;
    let mut case = wide(&json!([{"kind": "ConfigMap", "namespaces": ["*"]}]));
    case.manifest.controllers[0].children[0].namespaces = Namespaces::Own;
    let primary =
        json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a", "uid": "u-1"}});
    case.primary = Object::from_value(&primary).unwrap();
    let plan = case.admit(vec![far("team-a")]).unwrap();
    let Operation::Apply { object, .. } = &plan.writes[0].operation else { panic!("{plan:?}") };
    assert!(object["metadata"]["ownerReferences"].is_array(), "the garbage collector knows this one");
    case.refuses(apply(config_map(json!({"name": "c"})), ""), NamespaceNotGranted, "needs a namespace");
    case.namespaces = vec!["team-b".to_owned()];
    case.refuses(far("team-a"), NamespaceNotGranted, "the host does not serve it");
    case.grants = Grants::default();
    case.refuses(far("team-b"), NamespaceNotGranted, "do not allow it for ConfigMap.v1");
}

#[test]
fn what_it_owns_it_may_delete_when_the_grant_is_gone() {
    let mut case = wide(&json!([]));
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "team-a", "uid": "u-3"}});
    case.children.push(Arc::new(Object::from_value(&child).unwrap()));
    let delete = |name: &str| {
        let target = Reference { namespace: Some("team-a".to_owned()), ..reference("ConfigMap", name) };
        Action::Delete(Deletion { target, options: String::new() })
    };
    let plan = case.admit(vec![delete("c")]).unwrap();
    assert_eq!(plan.writes[0].target.to_string(), "ConfigMap.v1 team-a/c");
    case.refuses(delete("d"), RefusalReason::NamespaceNotGranted, "team-a");
}

#[test]
fn a_plugin_does_not_say_whose_an_object_is() {
    let case = Case::new();
    for (field, tag) in
        [("labels", OWNER_UID_LABEL), ("labels", PLUGIN_LABEL), ("annotations", OWNER_ANNOTATION)]
    {
        let child = config_map(json!({"name": "a", field: {tag: "x"}}));
        case.refuses(apply(child, ""), RefusalReason::NotAllowed, tag);
        let patch = TargetPatch {
            target: reference("Service", "s"),
            patch: json!({"metadata": {field: {tag: "x"}}}).to_string(),
            options: String::new(),
        };
        case.refuses(Action::PatchTarget(patch), RefusalReason::NotAllowed, tag);
    }
}
