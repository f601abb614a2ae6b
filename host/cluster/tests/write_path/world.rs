//! A namespace with a primary, a plugin's applier, and a look at the children as a watch would show them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse_cluster::apply::{Applier, ApplyContext, Report, Sink, WriteResult};
use pilothouse_cluster::write::{AlwaysOpen, Verb, Writer};
use pilothouse_harness::{ControlPlane, eventually};
use pilothouse_model::action::{Action, Apply, Deletion, Outcome, RejectReason, TargetPatch};
use pilothouse_model::grants::Grants;
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::limits::Limits;
use pilothouse_model::manifest::{Manifest, Resource, Scope};
use pilothouse_model::names::{MANAGED_LABEL, PluginName};
use pilothouse_model::object::Object;
use pilothouse_model::plan::{self, Plan};
use serde_json::{Value, json};

/// Long enough for a machine that compiles at the same time.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
pub(crate) const PLUGIN: &str = "web";

/// Requests by verb; verbs that were not used are left out.
pub(crate) type Spent = BTreeMap<&'static str, u64>;

pub(crate) struct World {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    pub(crate) writer: Writer,
    pub(crate) applier: Applier,
    pub(crate) primary: Object,
    pub(crate) responses: Responses,
    /// The primary is being deleted.
    pub(crate) deleting: bool,
    /// `RoleBinding` is a kind that needs one.
    pub(crate) grants: Grants,
    manifest: Value,
}

/// Remembers what was handed on.
#[derive(Default)]
pub(crate) struct Responses {
    pub(crate) written: Mutex<Vec<Arc<Object>>>,
    pub(crate) deleted: Mutex<Vec<Reference>>,
}

impl Sink for Responses {
    fn written(&self, object: Arc<Object>) {
        self.written.lock().unwrap().push(object);
    }

    fn deleted(&self, reference: &Reference) {
        self.deleted.lock().unwrap().push(reference.clone());
    }
}

pub(crate) fn resource(api_version: &str, kind: &str, plural: &str) -> Resource {
    let Kind { group, version, kind } = Kind::from_api_version(api_version, kind);
    Resource { group, version, kind, plural: plural.to_owned(), scope: Scope::Namespaced }
}

fn resources() -> Vec<Resource> {
    let all = [
        ("v1", "ConfigMap", "configmaps"),
        ("v1", "Secret", "secrets"),
        ("v1", "Service", "services"),
        ("v1", "ServiceAccount", "serviceaccounts"),
        ("v1", "Pod", "pods"),
        ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ("apps/v1", "Deployment", "deployments"),
        ("apps/v1", "StatefulSet", "statefulsets"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        ("networking.k8s.io/v1", "Ingress", "ingresses"),
        ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ];
    let mut all: Vec<_> =
        all.into_iter().map(|(api_version, kind, plural)| resource(api_version, kind, plural)).collect();
    let cluster_role = resource("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles");
    all.push(Resource { scope: Scope::Cluster, ..cluster_role });
    all
}

impl World {
    pub(crate) async fn new(prefix: &str) -> Self {
        let plane = ControlPlane::shared().await;
        let client = plane.client().await.unwrap();
        let namespace = plane.namespace(prefix).await.unwrap();
        let writer = Writer::new(client.clone(), "test", Arc::new(AlwaysOpen));
        let applier = Applier::new(&writer, plugin());
        let config_map = resource("v1", "ConfigMap", "configmaps");
        let manifest = json!({
            "name": PLUGIN, "version": "0.1.0",
            "controllers": [{
                "primary": config_map,
                "children": resources().iter().map(|resource| json!({"resource": resource})).collect::<Vec<_>>(),
                "targets": [
                    {"resource": config_map, "verbs": ["patch", "delete"]},
                    {"resource": resource("apps/v1", "Deployment", "deployments"), "verbs": ["patch", "patch-scale"]}
                ]
            }]
        });
        let primary = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "primary"}});
        let mut world = Self {
            client,
            namespace,
            writer,
            applier,
            primary: Object::from_value(&primary).unwrap(),
            responses: Responses::default(),
            deleting: false,
            grants: serde_json::from_value(json!([{"kind": "RoleBinding.rbac.authorization.k8s.io"}]))
                .unwrap(),
            manifest,
        };
        world.primary = Object::from_value(&world.create(&primary).await).unwrap();
        world
    }

    /// As after a restart: nothing is remembered.
    pub(crate) fn restart(&mut self) {
        self.applier = Applier::new(&self.writer, plugin());
    }

    /// The manifest says so of each child.
    pub(crate) fn declare(&mut self, field: &str, value: &Value) {
        for child in self.manifest["controllers"][0]["children"].as_array_mut().unwrap() {
            child[field] = value.clone();
        }
    }

    /// The manifest says so of this child.
    pub(crate) fn declare_of(&mut self, kind: &str, field: &str, value: &Value) {
        let children = self.manifest["controllers"][0]["children"].as_array_mut().unwrap();
        let child = children.iter_mut().find(|child| child["resource"]["kind"] == kind).unwrap();
        child[field] = value.clone();
    }

    pub(crate) fn plan(&self, actions: Vec<Action>, children: &[Arc<Object>]) -> Plan {
        let manifest = Manifest::parse(&self.manifest.to_string()).unwrap();
        let cx = plan::Context {
            plugin: &plugin(),
            controller: &manifest.controllers[0],
            primary: &self.primary,
            children,
            related: &[],
            deleting: self.deleting,
            limits: &Limits::default(),
            grants: &self.grants,
            namespaces: &[],
        };
        plan::admit(Outcome { actions, failure: None }, &cx).unwrap()
    }

    /// One pass: a look, a plan, its writes.
    pub(crate) async fn pass(&self, actions: Vec<Action>) -> Report {
        let children = self.children().await;
        self.pass_on(actions, &children).await
    }

    /// A pass on a snapshot that may be old.
    pub(crate) async fn pass_on(&self, actions: Vec<Action>, children: &[Arc<Object>]) -> Report {
        self.pass_with(&self.applier, actions, children).await
    }

    pub(crate) async fn pass_with(
        &self,
        applier: &Applier,
        actions: Vec<Action>,
        children: &[Arc<Object>],
    ) -> Report {
        let plan = self.plan(actions, children);
        let cx = ApplyContext {
            primary: &self.primary,
            primary_resource: &by_kind("ConfigMap"),
            children,
            related: &[],
            sink: &self.responses,
        };
        applier.apply(&plan, cx).await
    }

    /// Children as watches show them: with our label, of the primary, of managedFields our own entry.
    pub(crate) async fn children(&self) -> Vec<Arc<Object>> {
        let mut children = Vec::new();
        for resource in resources() {
            let path = format!("{}?labelSelector={MANAGED_LABEL}%3D{PLUGIN}", path_of(&resource, None, None));
            let list: Value = self.request("GET", &path, &Value::Null).await.unwrap();
            for item in list["items"].as_array().unwrap() {
                let mut object: Object = serde_json::from_value(item.clone()).unwrap();
                object.stamp(&std::sync::Arc::new(resource.kind()));
                object.keep_manager(&plugin().field_manager());
                if object.meta().owner.as_ref().is_some_and(|owner| owner.uid == self.primary.meta().uid) {
                    children.push(Arc::new(object));
                }
            }
        }
        children
    }

    fn path(&self, resource: &Resource, name: Option<&str>) -> String {
        path_of(resource, Some(&self.namespace), name)
    }

    /// A request as somebody else.
    pub(crate) async fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
        self.client.request(request.unwrap()).await
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.get_in(&self.namespace, kind, name).await
    }

    pub(crate) async fn get_in(&self, namespace: &str, kind: &str, name: &str) -> Option<Value> {
        let path = path_of(&by_kind(kind), Some(namespace), Some(name));
        match self.request("GET", &path, &Value::Null).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Somebody else creates an object.
    pub(crate) async fn create(&self, object: &Value) -> Value {
        self.create_as("kubectl-create", object).await
    }

    pub(crate) async fn create_as(&self, manager: &str, object: &Value) -> Value {
        let kind = object["kind"].as_str().unwrap();
        let path = format!("{}?fieldManager={manager}", self.path(&by_kind(kind), None));
        self.request("POST", &path, object).await.unwrap()
    }

    pub(crate) async fn create_in(&self, namespace: &str, object: &Value) -> Value {
        let path = path_of(&by_kind(object["kind"].as_str().unwrap()), Some(namespace), None);
        self.request("POST", &format!("{path}?fieldManager=kubectl-create"), object).await.unwrap()
    }

    /// Somebody else edits an object.
    pub(crate) async fn edit(&self, kind: &str, name: &str, patch: &Value) -> Value {
        self.edit_in(&self.namespace, kind, name, patch).await
    }

    pub(crate) async fn edit_in(&self, namespace: &str, kind: &str, name: &str, patch: &Value) -> Value {
        let path = path_of(&by_kind(kind), Some(namespace), Some(name));
        self.request("PATCH", &format!("{path}?fieldManager=kubectl-edit"), patch).await.unwrap()
    }

    pub(crate) async fn edit_subresource(&self, kind: &str, name: &str, subresource: &str, patch: &Value) {
        let path = self.path(&by_kind(kind), Some(&format!("{name}/{subresource}")));
        self.request("PATCH", &path, patch).await.unwrap();
    }

    /// Somebody else deletes an object; waits until it is gone.
    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.delete_in(&self.namespace, kind, name).await;
    }

    /// Somebody else asks for the deletion of an object.
    pub(crate) async fn delete_of(&self, kind: &str, name: &str) {
        self.request("DELETE", &self.path(&by_kind(kind), Some(name)), &Value::Null).await.unwrap();
    }

    pub(crate) async fn delete_in(&self, namespace: &str, kind: &str, name: &str) {
        let path = path_of(&by_kind(kind), Some(namespace), Some(name));
        self.request("DELETE", &path, &Value::Null).await.unwrap();
        let gone = async || self.get_in(namespace, kind, name).await.is_none();
        eventually(DEADLINE, "the object to go", gone).await;
    }

    pub(crate) fn spent(&self) -> Spent {
        spent(&self.writer)
    }

    /// Requests since `before`.
    pub(crate) fn spent_since(&self, before: &Spent) -> Spent {
        let mut now = self.spent();
        now.retain(|verb, count| {
            *count -= before.get(verb).copied().unwrap_or(0);
            *count > 0
        });
        now
    }
}

/// Without a namespace: of all.
fn path_of(resource: &Resource, namespace: Option<&str>, name: Option<&str>) -> String {
    let Resource { group, version, plural, scope, .. } = resource;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let namespace = namespace.filter(|_| *scope == Scope::Namespaced);
    let namespace = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{root}{namespace}/{plural}{name}")
}

pub(crate) fn spent(writer: &Writer) -> Spent {
    Verb::ALL.into_iter().map(|verb| (verb.as_str(), writer.counters().sent(verb))).collect()
}

pub(crate) fn plugin() -> PluginName {
    PLUGIN.parse().unwrap()
}

pub(crate) fn by_kind(kind: &str) -> Resource {
    resources().into_iter().find(|resource| resource.kind == kind).unwrap()
}

pub(crate) fn apply(object: &Value) -> Action {
    apply_with(object, &json!({}))
}

pub(crate) fn apply_with(object: &Value, options: &Value) -> Action {
    Action::Apply(Apply { object: object.to_string(), options: options.to_string() })
}

pub(crate) fn delete(kind: &str, name: &str) -> Action {
    let target = Reference { kind: by_kind(kind).kind(), namespace: None, name: name.to_owned(), uid: None };
    Action::Delete(Deletion { target, options: String::new() })
}

pub(crate) fn patch(kind: &str, name: &str, patch: &Value, options: &Value) -> Action {
    let target = Reference { kind: by_kind(kind).kind(), namespace: None, name: name.to_owned(), uid: None };
    Action::PatchTarget(TargetPatch { target, patch: patch.to_string(), options: options.to_string() })
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub(crate) fn pod_template(label: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": label}},
        "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "3600"]}]}
    })
}

/// What became of each write, in short: `NoOp`, `Written`, `Deleted`, or the reason.
pub(crate) fn short(report: &Report) -> Vec<&'static str> {
    let word = |result: &WriteResult| match result {
        WriteResult::NoOp => "NoOp",
        WriteResult::Written(_) => "Written",
        WriteResult::Deleted { .. } => "Deleted",
        WriteResult::Held(_) => "Held",
        WriteResult::Rejected(rejected) => rejected.reason.as_str(),
    };
    report.entries.iter().map(|entry| word(&entry.result)).collect()
}

/// The message of the only rejection.
pub(crate) fn message(report: &Report) -> (RejectReason, &str) {
    let rejected: Vec<_> = report.rejected().collect();
    assert_eq!(rejected.len(), 1, "{report:?}");
    (rejected[0].reason, &rejected[0].message)
}

pub(crate) fn none() -> Spent {
    Spent::new()
}
