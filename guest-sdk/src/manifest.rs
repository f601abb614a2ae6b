//! The manifest: what a plugin says of itself when it is loaded, in the form of `wit/manifest.schema.json`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::crd::Crd;
use crate::kinds::Resource;
use crate::update::Update;

/// What a plugin is, serves and may touch. Made by [`export!`](crate::export).
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Identity: the name of the plugin's package.
    pub name: &'static str,
    /// Version of the plugin's package.
    pub version: &'static str,
    /// One for each primary kind.
    pub controllers: Vec<Controller>,
    /// One for each kind that is guarded.
    pub guards: Vec<Guard>,
}

/// How objects of one kind are reconciled, and what may be touched for them.
#[derive(Debug, Clone)]
pub struct Controller {
    pub(crate) primary: Resource,
    pub(crate) crd: Option<Crd>,
    pub(crate) children: Vec<Child>,
    pub(crate) related: Vec<Related>,
    pub(crate) targets: Vec<Target>,
    pub(crate) finalizer: Option<String>,
    pub(crate) resync: Option<Duration>,
}

/// The kind that a controller reconciles: the plugin's own, or one that exists already.
#[derive(Debug, Clone)]
pub enum Primary {
    /// Of a CRD that the plugin brings along.
    Own(Box<Crd>),
    /// Built in, or of somebody else's CRD.
    Existing(Resource),
}

impl From<Crd> for Primary {
    fn from(crd: Crd) -> Self {
        Self::Own(Box::new(crd))
    }
}

impl From<Resource> for Primary {
    fn from(resource: Resource) -> Self {
        Self::Existing(resource)
    }
}

impl Controller {
    /// A controller of a kind: `Crd::of::<Self>()` for the plugin's own, a [`Resource`] for one that exists already.
    pub fn new(primary: impl Into<Primary>) -> Self {
        let (primary, crd) = match primary.into() {
            Primary::Own(crd) => (crd.resource, Some(*crd)),
            Primary::Existing(resource) => (resource, None),
        };
        Self {
            primary,
            crd,
            children: Vec::new(),
            related: Vec::new(),
            targets: Vec::new(),
            finalizer: None,
            resync: None,
        }
    }

    /// A kind that the plugin creates and owns: a [`Resource`], or a [`Child`] with options.
    #[must_use]
    pub fn owns(mut self, child: impl Into<Child>) -> Self {
        self.children.push(child.into());
        self
    }

    /// A kind that it reads without owning.
    #[must_use]
    pub fn reads(mut self, related: Related) -> Self {
        self.related.push(related);
        self
    }

    /// A kind that it changes or deletes without owning.
    #[must_use]
    pub fn changes(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// A finalizer, `domain/name`: [`Reconciler::finalize`](crate::Reconciler::finalize) runs before the object goes
    /// away. Without one, deletion is garbage collection alone.
    #[must_use]
    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizer = Some(name.to_owned());
        self
    }

    /// How often an unchanged object is reconciled again, 10 s to a day.
    #[must_use]
    pub fn resync(mut self, interval: Duration) -> Self {
        self.resync = Some(interval);
        self
    }

    fn to_json(&self) -> Value {
        let mut controller = Map::new();
        let mut put = |field: &str, value: Value| controller.insert(field.to_owned(), value);
        put("primary", self.primary.to_json());
        put("children", self.children.iter().map(Child::to_json).collect());
        put("related", self.related.iter().map(Related::to_json).collect());
        put("targets", self.targets.iter().map(Target::to_json).collect());
        if let Some(finalizer) = &self.finalizer {
            put("finalizer", finalizer.as_str().into());
        }
        if let Some(resync) = self.resync {
            put("resyncSeconds", resync.as_secs().into());
        }
        Value::Object(controller)
    }
}

/// A kind that the plugin creates and owns, with options.
#[derive(Debug, Clone)]
pub struct Child {
    pub(crate) resource: Resource,
    projection: Projection,
    pub(crate) create_only: bool,
    force_conflicts: bool,
    any_namespace: bool,
    update: Update,
}

impl From<Resource> for Child {
    fn from(resource: Resource) -> Self {
        Self {
            resource,
            projection: Projection::Full,
            create_only: false,
            force_conflicts: true,
            any_namespace: false,
            update: Update::in_place(),
        }
    }
}

impl Child {
    /// Show only `apiVersion`, `kind` and `metadata` in passes.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.projection = Projection::Metadata;
        self
    }

    /// Show only these fields beside `apiVersion`, `kind` and `metadata`, for example `.status.phase` or
    /// `.status.conditions[*].type`. The host's memory then holds no more of each object.
    #[must_use]
    pub fn fields(mut self, paths: &[&str]) -> Self {
        self.projection = Projection::Fields(paths.iter().map(|path| (*path).to_owned()).collect());
        self
    }

    /// Never touch an object of this kind again once it exists.
    #[must_use]
    pub fn create_only(mut self) -> Self {
        self.create_only = true;
        self
    }

    /// Leave fields to other field managers that own them, and report the conflict, instead of taking them back.
    #[must_use]
    pub fn yield_conflicts(mut self) -> Self {
        self.force_conflicts = false;
        self
    }

    /// Objects of this kind may be in other namespaces than their primary, as far as the administrator grants it: say
    /// `metadata.namespace` in them. The host deletes them before their primary goes.
    #[must_use]
    pub fn in_any_namespace(mut self) -> Self {
        self.any_namespace = true;
        self
    }

    /// How objects of this kind that exist follow a change of what the plugin wants: in place, unless said otherwise.
    #[must_use]
    pub fn update(mut self, update: Update) -> Self {
        self.update = update;
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "resource": self.resource.to_json(),
            "projection": self.projection.to_json(),
            "createOnly": self.create_only,
            "forceConflicts": self.force_conflicts,
            "namespaces": if self.any_namespace { "any" } else { "own" },
            "updateStrategy": self.update.to_json(),
        })
    }
}

/// How much of each object the host watches and shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Projection {
    Full,
    Metadata,
    Fields(Vec<String>),
}

impl Projection {
    fn to_json(&self) -> Value {
        match self {
            Self::Full => "full".into(),
            Self::Metadata => "metadata".into(),
            Self::Fields(paths) => json!({"fields": paths}),
        }
    }
}

/// A kind that the plugin reads without owning.
#[derive(Debug, Clone)]
pub struct Related {
    pub(crate) name: String,
    resource: Resource,
    selector: Option<String>,
    field_selector: Option<String>,
    projection: Projection,
}

impl Related {
    /// Objects that a label selector matches, in the primary's namespace. It may use `$(name)`, `$(namespace)` and
    /// `$(uid)` of the primary. `name` is how a pass asks for them.
    pub fn matching(name: &str, resource: Resource, selector: &str) -> Self {
        let selector = Some(selector.to_owned());
        Self { name: name.to_owned(), resource, selector, field_selector: None, projection: Projection::Full }
    }

    /// Objects that a pass looks up itself.
    pub fn on_request(name: &str, resource: Resource) -> Self {
        Self {
            name: name.to_owned(),
            resource,
            selector: None,
            field_selector: None,
            projection: Projection::Full,
        }
    }

    /// Of the objects that the label selector matches, only those that a field selector selects: what objects that are
    /// shown by metadata alone cannot say themselves. The API server knows few fields to select by; of pods
    /// `status.phase` and `spec.nodeName` are among them.
    #[must_use]
    pub fn with_fields(mut self, selector: &str) -> Self {
        self.field_selector = Some(selector.to_owned());
        self
    }

    /// Show only `apiVersion`, `kind` and `metadata` in passes.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.projection = Projection::Metadata;
        self
    }

    /// Show only these fields beside `apiVersion`, `kind` and `metadata`, for example `.status.phase` or
    /// `.status.conditions[*].type`. The host's memory then holds no more of each object.
    #[must_use]
    pub fn fields(mut self, paths: &[&str]) -> Self {
        self.projection = Projection::Fields(paths.iter().map(|path| (*path).to_owned()).collect());
        self
    }

    fn to_json(&self) -> Value {
        let mut rule = json!({
            "name": self.name,
            "resource": self.resource.to_json(),
            "projection": self.projection.to_json(),
        });
        if let Some(selector) = &self.selector {
            rule["selector"] = selector.as_str().into();
        }
        if let Some(selector) = &self.field_selector {
            rule["fieldSelector"] = selector.as_str().into();
        }
        rule
    }
}

/// A kind that the plugin changes or deletes without owning.
#[derive(Debug, Clone)]
pub struct Target {
    pub(crate) resource: Resource,
    pub(crate) verbs: Vec<&'static str>,
}

impl Target {
    /// Objects that it changes.
    pub fn patch(resource: Resource) -> Self {
        Self { resource, verbs: vec!["patch"] }
    }

    /// Objects that it deletes.
    pub fn delete(resource: Resource) -> Self {
        Self { resource, verbs: vec!["delete"] }
    }

    /// Objects that it changes and deletes.
    pub fn patch_and_delete(resource: Resource) -> Self {
        Self { resource, verbs: vec!["patch", "delete"] }
    }

    /// Objects whose status it changes.
    pub fn patch_status(resource: Resource) -> Self {
        Self { resource, verbs: vec!["patch-status"] }
    }

    /// Objects whose scale it changes.
    pub fn patch_scale(resource: Resource) -> Self {
        Self { resource, verbs: vec!["patch-scale"] }
    }

    fn to_json(&self) -> Value {
        json!({"resource": self.resource.to_json(), "verbs": self.verbs})
    }
}

/// Which requests for a kind are checked or completed before they are stored, and what becomes of them while nobody
/// answers.
#[derive(Debug, Clone)]
pub struct Guard {
    resource: Resource,
    operations: Vec<&'static str>,
    subresources: Vec<&'static str>,
    /// What differs from the defaults.
    options: Map<String, Value>,
}

impl Guard {
    /// Creations and changes are checked; they fail while the plugin does not answer.
    pub fn of(resource: Resource) -> Self {
        let operations = vec!["create", "update"];
        Self { resource, operations, subresources: Vec::new(), options: Map::new() }
    }

    /// Deletions are checked as well.
    #[must_use]
    pub fn deletions(mut self) -> Self {
        self.operations.push("delete");
        self
    }

    /// Changes through the subresource `scale` are checked as well, as `kubectl scale` makes them: `asked.object` is a
    /// `Scale` of `autoscaling/v1` then.
    #[must_use]
    pub fn scale(mut self) -> Self {
        self.subresources.push("scale");
        self
    }

    /// Changes of the status are checked as well.
    #[must_use]
    pub fn status(mut self) -> Self {
        self.subresources.push("status");
        self
    }

    /// Fields are filled in, before the check.
    #[must_use]
    pub fn defaults(self) -> Self {
        self.with("defaults", true)
    }

    /// While the plugin does not answer, requests go on unchecked, instead of failing.
    #[must_use]
    pub fn fails_open(self) -> Self {
        self.with("failurePolicy", "Ignore")
    }

    /// How long the API server waits, 1 to 30 whole seconds; 10 unless said otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with("timeoutSeconds", timeout.as_secs())
    }

    /// Only requests for this very version; else those for other versions are shown in this one.
    #[must_use]
    pub fn exact_version(self) -> Self {
        self.with("matchPolicy", "Exact")
    }

    /// Fields are filled in once more when somebody else has changed the object since.
    #[must_use]
    pub fn reinvoked(self) -> Self {
        self.with("reinvocation", "IfNeeded")
    }

    /// Only objects with these labels: `matchLabels` and `matchExpressions`, as the API server writes them.
    #[must_use]
    pub fn labelled(self, selector: Value) -> Self {
        self.with("objectSelector", selector)
    }

    /// Only requests for which this CEL expression holds. `name` is for people.
    #[must_use]
    pub fn only_if(mut self, name: &str, expression: &str) -> Self {
        let condition = json!({"name": name, "expression": expression});
        match self.options.get_mut("matchConditions").and_then(Value::as_array_mut) {
            Some(conditions) => conditions.push(condition),
            None => return self.with("matchConditions", json!([condition])),
        }
        self
    }

    fn with(mut self, option: &str, value: impl Into<Value>) -> Self {
        self.options.insert(option.to_owned(), value.into());
        self
    }

    fn to_json(&self) -> Value {
        let mut guard = self.options.clone();
        guard.insert("resource".to_owned(), self.resource.to_json());
        guard.insert("operations".to_owned(), json!(self.operations));
        if !self.subresources.is_empty() {
            guard.insert("subresources".to_owned(), json!(self.subresources));
        }
        Value::Object(guard)
    }
}

impl Manifest {
    /// The JSON that `describe` answers.
    pub fn to_json(&self) -> Value {
        let crds: Vec<_> =
            self.controllers.iter().filter_map(|one| one.crd.as_ref().map(Crd::to_json)).collect();
        let controllers: Vec<_> = self.controllers.iter().map(Controller::to_json).collect();
        let mut manifest =
            json!({"name": self.name, "version": self.version, "crds": crds, "controllers": controllers});
        if !self.guards.is_empty() {
            manifest["admission"] = self.guards.iter().map(Guard::to_json).collect();
        }
        manifest
    }
}
