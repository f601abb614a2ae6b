//! A cluster in small around one resource: the objects of a case, and what passes make of them. Reads and decisions are
//! the host's own code; what the API server does is pretended (`server`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use pilothouse_model::condition::{self, Reason, Reconciled};
use pilothouse_model::kind::{Kind, Reference};
use pilothouse_model::manifest::{Controller, Manifest, Resource};
use pilothouse_model::merge_patch;
use pilothouse_model::plan::{Operation, Plan};
use pilothouse_model::secret::Template;
use serde_json::{Value, json};

use crate::cli::documents::Document;
use crate::cli::exit::Exit;
use crate::cli::offline::scene::{self, Objects, Scene};
use crate::snapshot;

use super::difference::{self, Difference};
use super::{schema, server};

/// Kind, namespace and name.
type Place = (Kind, Option<String>, String);

/// The objects of a case.
#[derive(Clone)]
pub(super) struct World<'a> {
    manifest: &'a Manifest,
    controller: &'a Controller,
    /// As the API server has it.
    pub(super) primary: Value,
    objects: BTreeMap<Place, Value>,
    /// What was applied last.
    applied: BTreeMap<Place, Value>,
    /// `file:line` of the primary.
    place: String,
    /// Time of the next pass.
    now: Timestamp,
    /// The uids that were given out.
    created: u32,
}

/// One thing that a pass changed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// `create ConfigMap a`, `delete Pod b`, `release`
    Whole(String),
    /// Fields of an object.
    Fields(String, Vec<Difference>),
    /// Fields of the primary's status.
    Status(Vec<Difference>),
}

impl<'a> World<'a> {
    /// `sole`: an object that no owner is named of belongs to this primary, if it is of a child kind.
    pub(super) fn new(
        manifest: &'a Manifest,
        primary: &Document,
        objects: &[Document],
        sole: bool,
        now: &str,
    ) -> Result<Self, Exit> {
        let kind = scene::kind_of(primary)?;
        let Some((_, controller)) = manifest.controller(&kind) else {
            return Err(Exit::bad_input(format!("{}: {kind} is not served", primary.place)));
        };
        let start = now.parse().map_err(|error| Exit::bad_input(format!("{now}: {error}")))?;
        // The same checks and additions as for `render`.
        let (observed, related) = by_use(manifest, objects)?;
        let objects_seen = Objects::new(manifest, observed, related)?;
        let scene = Scene::new(manifest, primary, &objects_seen, sole, now)?;
        let stored = scene.snapshot.primary.to_value();
        let mut world = Self {
            manifest,
            controller,
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            place: primary.place.clone(),
            now: start,
            created: 0,
            primary: stored,
        };
        let namespace = world.primary["metadata"]["namespace"].as_str().map(str::to_owned);
        for document in objects {
            let kind = scene::kind_of(document)?;
            let Some(resource) = resource(controller, &kind) else { continue };
            let mut value = scene::place_in_namespace(document, resource, namespace.as_deref())?;
            let is_child = controller.child(&kind).is_some();
            if is_child && sole && value["metadata"]["ownerReferences"].is_null() {
                value["metadata"]["ownerReferences"] = json!([owner(&world.primary)]);
            }
            world.objects.insert(place_of(&value, &kind), value);
        }
        Ok(world)
    }

    /// What a pass sees.
    pub(super) fn scene(&self) -> Result<Scene<'a>, Exit> {
        let document = |value: &Value| Document { value: value.clone(), place: self.place.clone() };
        let documents: Vec<Document> = self.objects.values().map(document).collect();
        let (observed, related) = by_use(self.manifest, &documents)?;
        let objects = Objects::new(self.manifest, observed, related)?;
        Scene::new(self.manifest, &document(&self.primary), &objects, false, &self.now())
    }

    /// RFC 3339.
    pub(super) fn now(&self) -> String {
        snapshot::time(self.now)
    }

    /// Lets time pass: at least a second, so that nothing can be the same by chance.
    pub(super) fn wait(&mut self, milliseconds: u64) {
        let milliseconds = i64::try_from(milliseconds.max(1_000)).unwrap_or(i64::MAX);
        // Past the last year that can be written, the clock stands.
        self.now = self.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap_or(self.now);
    }

    /// As `kubectl delete` does, if nobody did it yet.
    pub(super) fn delete(&mut self) {
        if self.primary["metadata"]["deletionTimestamp"].is_null() {
            self.primary["metadata"]["deletionTimestamp"] = json!(self.now());
        }
    }

    /// The same cluster, in which the primary has another name and uid, and no status yet.
    pub(super) fn renamed(&self) -> Self {
        let mut other = self.clone();
        other.primary["metadata"]["name"] = json!(format!("{}-other", self.name()));
        other.primary["metadata"]["uid"] = json!("00000000-0000-8000-8000-000000000000");
        if let Some(fields) = other.primary.as_object_mut() {
            fields.remove("status");
        }
        other
    }

    pub(super) fn kind(&self) -> Kind {
        self.controller.primary.kind()
    }

    /// The plugin's own.
    pub(super) fn finalizer(&self) -> Option<&'a str> {
        self.controller.finalizer.as_deref()
    }

    /// `metadata.name`
    pub(super) fn name(&self) -> &str {
        self.primary["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Whether a name is, begins or ends with, a text of the resource's spec, labels or annotations, or another
    /// object's name.
    pub(super) fn says(&self, name: &str) -> bool {
        let metadata = &self.primary["metadata"];
        let given = [&self.primary["spec"], &metadata["annotations"], &metadata["labels"]];
        given.into_iter().any(|value| mentions(value, name))
            || self.objects.values().any(|object| mentions(&object["metadata"]["name"], name))
    }

    /// Whether an object is there.
    pub(super) fn has(&self, target: &Reference) -> bool {
        self.objects.contains_key(&place(target))
    }

    /// Carries a plan out; what changed.
    pub(super) fn carry_out(&mut self, plan: &Plan) -> Vec<Change> {
        let mut changes = Vec::new();
        for write in &plan.writes {
            let target = &write.target;
            let changed = match &write.operation {
                Operation::Apply { object, create_only, .. } => self.apply(target, object, *create_only),
                Operation::GenerateSecret { object, template } => {
                    let mut object = object.clone();
                    object["data"] = self.secret_data(target, template);
                    self.apply(target, &object, false)
                }
                Operation::Delete { .. } => {
                    let gone = self.objects.remove(&place(target)).is_some();
                    self.applied.remove(&place(target));
                    gone.then(|| Change::Whole(format!("delete {}", short(target))))
                }
                Operation::Patch { patch, .. } => self.patch(target, patch),
            };
            changes.extend(changed);
        }
        changes.extend(self.set_status(plan));
        changes
    }

    fn apply(&mut self, target: &Reference, desired: &Value, create_only: bool) -> Option<Change> {
        let at = place(target);
        let Some(live) = self.objects.get(&at) else {
            let object = self.created(desired);
            self.objects.insert(at.clone(), object);
            self.applied.insert(at, desired.clone());
            return Some(Change::Whole(format!("create {}", short(target))));
        };
        // The host refuses to take what it finds with another owner.
        if create_only || !self.owns(live) {
            return None;
        }
        let new = server::applied(live, self.applied.get(&at), desired);
        let differences = difference::between("", live, &new);
        self.objects.insert(at.clone(), new);
        self.applied.insert(at, desired.clone());
        (!differences.is_empty()).then(|| Change::Fields(short(target), differences))
    }

    /// As the API server stores a new object.
    fn created(&mut self, desired: &Value) -> Value {
        self.created += 1;
        let mut object = merge_patch::without_nulls(desired);
        object["metadata"]["uid"] = json!(format!("00000000-0000-8000-9000-{:012}", self.created));
        object["metadata"]["creationTimestamp"] = json!(self.now());
        object["metadata"]["generation"] = json!(1);
        if object["kind"] == "Pod" && object["apiVersion"] == "v1" {
            object["status"] = json!({"phase": "Pending"});
        }
        object
    }

    fn owns(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let uid = &self.primary["metadata"]["uid"];
        let tracked = || metadata["labels"][pilothouse_model::names::OWNER_UID_LABEL] == *uid;
        let references = metadata["ownerReferences"].as_array().into_iter().flatten();
        references.into_iter().any(|reference| reference["uid"] == *uid) || tracked()
    }

    fn secret_data(&self, target: &Reference, template: &Template) -> Value {
        let existing = self.objects.get(&place(target)).and_then(|secret| secret["data"].as_object());
        let decoded = |(key, value): (&String, &Value)| {
            let bytes = STANDARD.decode(value.as_str()?).ok()?;
            Some((key.clone(), bytes))
        };
        let existing = existing.into_iter().flatten().filter_map(decoded).collect();
        // Random enough: no guest ever sees it.
        let entropy: Vec<u8> = (0..=u8::MAX).cycle().take(template.random_bytes()).collect();
        let data = template.fill(&existing, &entropy).unwrap_or_default();
        data.into_iter().map(|(key, value)| (key, json!(STANDARD.encode(value)))).collect()
    }

    fn patch(&mut self, target: &Reference, patch: &Value) -> Option<Change> {
        let live = self.objects.get_mut(&place(target))?;
        let new = merge_patch::apply(live, patch);
        let differences = difference::between("", live, &new);
        *live = new;
        (!differences.is_empty()).then(|| Change::Fields(short(target), differences))
    }

    /// The plugin's part and the host's condition, as the host merges them and the API server keeps them.
    fn set_status(&mut self, plan: &Plan) -> Option<Change> {
        if plan.release {
            return None;
        }
        let kind = self.controller.primary.kind();
        let reconciled = match &plan.failure {
            None => Reconciled::succeeded(),
            Some(failure) => failed(failure),
        };
        let host = self.manifest.holds_conditions(&kind).then_some(&reconciled);
        let generation = self.primary["metadata"]["generation"].as_i64().unwrap_or(0);
        let live = self.primary["status"].clone();
        let patch = condition::patch(&live, plan.status.as_ref(), host, generation, &self.now())?;
        let mut new = merge_patch::apply(&live, &patch);
        if let Some(schema) = schema::of(self.manifest, &kind) {
            schema::prune(&mut new, &schema["properties"]["status"]);
        }
        let differences = difference::between("status", &live, &new);
        self.primary["status"] = new;
        (!differences.is_empty()).then_some(Change::Status(differences))
    }
}

/// Whether a text in a value is the name, or what it begins or ends with.
fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => {
            let rest = name.strip_prefix(text.as_str()).map(|rest| rest.starts_with('-'));
            let rest = rest.or_else(|| name.strip_suffix(text.as_str()).map(|rest| rest.ends_with('-')));
            name == text || !text.is_empty() && rest == Some(true)
        }
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, name)),
        _ => false,
    }
}

fn failed(failure: &pilothouse_model::action::Failure) -> Reconciled {
    use pilothouse_model::action::Failure;
    let (reason, message) = match failure {
        Failure::Invalid(message) => (Reason::InvalidResource, message),
        Failure::Retry(message) => (Reason::PluginFailed, message),
    };
    Reconciled { reason, message: message.clone() }
}

fn owner(primary: &Value) -> Value {
    json!({
        "apiVersion": primary["apiVersion"], "kind": primary["kind"], "name": primary["metadata"]["name"],
        "uid": primary["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// Objects that children can be, and objects that rules and look-ups can find: some are both.
fn by_use(manifest: &Manifest, objects: &[Document]) -> Result<(Vec<Document>, Vec<Document>), Exit> {
    let (mut observed, mut related) = (Vec::new(), Vec::new());
    for document in objects {
        let kind = scene::kind_of(document)?;
        let is_child = manifest.controllers.iter().any(|controller| controller.child(&kind).is_some());
        let rules = || manifest.controllers.iter().flat_map(|controller| &controller.related);
        let is_related = rules().any(|rule| rule.resource.kind() == kind);
        if is_related {
            related.push(document.clone());
        }
        // What is neither is refused with the kinds that would be right.
        if is_child || !is_related {
            observed.push(document.clone());
        }
    }
    Ok((observed, related))
}

fn resource<'c>(controller: &'c Controller, kind: &Kind) -> Option<&'c Resource> {
    let children = controller.children.iter().map(|child| &child.resource);
    let related = controller.related.iter().map(|rule| &rule.resource);
    children.chain(related).find(|resource| resource.kind() == *kind)
}

fn place_of(object: &Value, kind: &Kind) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    (kind.clone(), text("namespace"), text("name").unwrap_or_default())
}

fn place(target: &Reference) -> Place {
    (target.kind.clone(), target.namespace.clone(), target.name.clone())
}

/// `ConfigMap hello`
pub(super) fn short(target: &Reference) -> String {
    format!("{} {}", target.kind.kind, target.name)
}
