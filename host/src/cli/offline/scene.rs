//! From files to what the host would show a plugin: the resource as the API server would have stored it, the children
//! that it owns, and the answers to the manifest's rules and to look-ups.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_model::field_selector::FieldSelector;
use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::{Controller, Manifest, Projection, Related, Resource, Scope};
use pilothouse_model::names::Digest;
use pilothouse_model::object::Object;
use pilothouse_model::plan::LookUp;
use pilothouse_model::selector::{self, Selector, SelectorError};
use serde_json::{Value, json};

use crate::cli::documents::Document;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::snapshot::{Found, Snapshot};

use super::defaults;

/// Namespace of a resource that names none, as kubectl's.
pub(crate) const NAMESPACE: &str = "default";

/// The objects of `--observed` and `--related`, of kinds that the manifest declares.
pub(crate) struct Objects {
    observed: Vec<Document>,
    related: Vec<Document>,
}

impl Objects {
    pub(crate) fn new(
        manifest: &Manifest,
        observed: Vec<Document>,
        related: Vec<Document>,
    ) -> Result<Self, Exit> {
        let children = manifest.controllers.iter().flat_map(|controller| &controller.children);
        check_declared(
            &observed,
            "children",
            &children.map(|child| child.resource.kind()).collect::<Vec<_>>(),
        )?;
        let rules = manifest.controllers.iter().flat_map(|controller| &controller.related);
        check_declared(&related, "related", &rules.map(|rule| rule.resource.kind()).collect::<Vec<_>>())?;
        Ok(Self { observed, related })
    }
}

fn check_declared(documents: &[Document], list: &str, declared: &[Kind]) -> Result<(), Exit> {
    let mut places: BTreeMap<(Kind, String, String), &str> = BTreeMap::new();
    for document in documents {
        let kind = kind_of(document)?;
        let name = name_of(document)?;
        if !declared.contains(&kind) {
            return Err(Exit::bad_input(format!(
                "{}: {kind} is not among the {list} of the plugin's manifest: {} would be right",
                document.place,
                listed(declared)
            )));
        }
        let namespace = document.value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        if let Some(other) = places.insert((kind.clone(), namespace, name.to_owned()), &document.place) {
            return Err(Exit::bad_input(format!("{}: {kind} {name} is at {other} already", document.place)));
        }
    }
    Ok(())
}

/// The resources of kinds that the plugin serves. Others in the same files, such as their Namespace, are left out, and
/// that is said; an error if nothing is left.
pub(crate) fn served(manifest: &Manifest, documents: Vec<Document>) -> Result<Vec<Document>, Exit> {
    let mut served = Vec::new();
    let mut others = Vec::new();
    for document in documents {
        let kind = kind_of(&document)?;
        if manifest.controller(&kind).is_some() {
            served.push(document);
        } else {
            let place = document.place;
            others.push(format!("{place}: {kind} is not served by plugin {}", manifest.name));
        }
    }
    if served.is_empty()
        && let Some(first) = others.first()
    {
        let kinds: Vec<Kind> = manifest.controllers.iter().map(|other| other.primary.kind()).collect();
        return Err(Exit::bad_input(format!("{first}: {} would be right", listed(&kinds))));
    }
    for other in others {
        output::say(&format!("{other} and is left out"));
    }
    Ok(served)
}

/// All that one pass over one resource sees.
pub(crate) struct Scene<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) snapshot: Snapshot,
    pub(crate) deleting: bool,
    /// Everything that its rules and look-ups can find.
    related: Vec<Arc<Object>>,
}

impl<'a> Scene<'a> {
    /// `sole`: there is no other resource that an object without an owner could belong to.
    pub(crate) fn new(
        manifest: &'a Manifest,
        document: &Document,
        objects: &Objects,
        sole: bool,
        now: &str,
    ) -> Result<Self, Exit> {
        let kind = kind_of(document)?;
        let Some((_, controller)) = manifest.controller(&kind) else {
            return Err(Exit::bad_input(format!("{}: {kind} is not served", document.place)));
        };
        let (primary, deleting) = primary(manifest, controller, document, now)?;
        let primary = Arc::new(primary);
        let children = children(controller, &primary, &objects.observed, sole)?;
        let related = related(controller, &primary, &objects.related)?;
        let snapshot = Snapshot { primary, children, related: Vec::new() };
        let mut scene = Self { controller, snapshot, deleting, related };
        for rule in &controller.related {
            if let Some(template) = &rule.selector {
                let found = scene.by_rule(rule, template).map_err(|error| {
                    Exit::bad_input(format!("manifest: related `{}`: {error}", rule.name))
                })?;
                scene.snapshot.related.push(found);
            }
        }
        Ok(scene)
    }

    /// `Kind namespace/name`, for people.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.snapshot.primary.kind().kind, self.snapshot.primary.key())
    }

    /// Answers questions from the related objects.
    pub(crate) fn answer(&mut self, look_ups: &[LookUp]) -> Result<(), String> {
        for look_up in look_ups {
            let mut objects = match (&look_up.name, &look_up.label_selector) {
                (Some(name), _) => self.select(&look_up.kind, look_up.namespace.as_deref(), |object| {
                    object.meta().name.as_ref() == name.as_str()
                }),
                (None, selector) => {
                    let selector = Selector::parse(selector.as_deref().unwrap_or_default())
                        .map_err(|error| format!("looks up `{}` by a wrong {error}", look_up.id))?;
                    self.select(&look_up.kind, look_up.namespace.as_deref(), |object| {
                        selector.matches(&object.labels())
                    })
                }
            };
            let complete = objects.len() <= look_up.limit;
            objects.truncate(look_up.limit);
            self.snapshot.answer(Found { query: look_up.id.clone(), complete, objects });
        }
        Ok(())
    }

    fn by_rule(&self, rule: &Related, template: &str) -> Result<Found, SelectorError> {
        let primary = self.snapshot.primary.meta();
        let selector = Selector::parse(&selector::expand(template, primary)?)?;
        let namespace = match rule.resource.scope {
            Scope::Cluster => None,
            Scope::Namespaced => primary.namespace.as_deref(),
        };
        // The manifest was checked to have a field selector here.
        let fields = rule.field_selector.as_deref().and_then(|text| FieldSelector::parse(text).ok());
        let found = self.select(&rule.resource.kind(), namespace, |object| {
            let has_fields = || fields.as_ref().is_none_or(|fields| fields.matches(&object.to_value()));
            selector.matches(&object.labels()) && has_fields()
        });
        let objects = found.iter().map(|object| projected(object, &rule.projection)).collect();
        Ok(Found { query: rule.name.clone(), complete: true, objects })
    }

    /// Related objects of a kind, in one namespace if one is given, by namespace and name.
    fn select(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        wanted: impl Fn(&Object) -> bool,
    ) -> Vec<Arc<Object>> {
        let in_place = |object: &Object| {
            namespace.is_none_or(|namespace| object.meta().namespace.as_deref() == Some(namespace))
        };
        let is_wanted = |object: &&Arc<Object>| object.kind() == kind && in_place(object) && wanted(object);
        self.related.iter().filter(is_wanted).cloned().collect()
    }
}

/// The resource as the API server would have stored it and the host would show it, and whether it is being deleted.
fn primary(
    manifest: &Manifest,
    controller: &Controller,
    document: &Document,
    now: &str,
) -> Result<(Object, bool), Exit> {
    let kind = controller.primary.kind();
    name_of(document)?;
    let mut value = document.value.clone();
    defaults::fill(&mut value, &kind, manifest);
    let document = Document { value, place: document.place.clone() };
    let mut value = place_in_namespace(&document, &controller.primary, Some(NAMESPACE))?;
    let metadata = &mut value["metadata"];
    for (field, default) in [("generation", json!(1)), ("creationTimestamp", json!(now))] {
        if metadata[field].is_null() {
            metadata[field] = default;
        }
    }
    let deleting = !metadata["deletionTimestamp"].is_null();
    // The host's own is there for what the host cleans up; no pass sees the end of such an object.
    let finalizer = if deleting { controller.finalizer.as_deref() } else { controller.guard() };
    if let Some(finalizer) = finalizer {
        let has_it = metadata["finalizers"].as_array().is_some_and(|all| all.contains(&json!(finalizer)));
        if deleting && !has_it {
            return Err(left_to_garbage_collection(
                &document,
                &format!("finalizer {finalizer} is not there"),
            ));
        }
        if !has_it {
            match metadata["finalizers"].as_array_mut() {
                Some(all) => all.push(json!(finalizer)),
                None => metadata["finalizers"] = json!([finalizer]),
            }
        }
    } else if deleting {
        return Err(left_to_garbage_collection(&document, "the plugin has no finalizer"));
    }
    Ok((parse(&value, &document.place)?, deleting))
}

fn left_to_garbage_collection(document: &Document, why: &str) -> Exit {
    let place = &document.place;
    Exit::bad_input(format!("{place}: metadata.deletionTimestamp is set and {why}: there would be no pass"))
}

/// The objects among `observed` that the primary owns, in the order of the manifest, then by namespace and name.
fn children(
    controller: &Controller,
    primary: &Object,
    observed: &[Document],
    sole: bool,
) -> Result<Vec<Arc<Object>>, Exit> {
    let own = primary.meta().namespace.as_deref();
    let mut children = Vec::new();
    for child in &controller.children {
        let mut of_kind = Vec::new();
        for document in observed {
            if kind_of(document)? != child.resource.kind() {
                continue;
            }
            let object = Arc::new(stored(document, &child.resource, own)?);
            if owns(primary, &object, document, sole)? {
                of_kind.push(projected(&object, &child.projection));
            }
        }
        of_kind.sort_by_key(sort_key);
        children.append(&mut of_kind);
    }
    Ok(children)
}

/// The objects among `related` of kinds that this controller reads, by namespace and name.
fn related(
    controller: &Controller,
    primary: &Object,
    related: &[Document],
) -> Result<Vec<Arc<Object>>, Exit> {
    let own = primary.meta().namespace.as_deref();
    let mut objects = Vec::new();
    for document in related {
        let kind = kind_of(document)?;
        // Another controller of the plugin may read what this one does not.
        if let Some(rule) = controller.related.iter().find(|rule| rule.resource.kind() == kind) {
            objects.push(Arc::new(stored(document, &rule.resource, own)?));
        }
    }
    objects.sort_by_key(sort_key);
    Ok(objects)
}

fn owns(primary: &Object, object: &Object, document: &Document, sole: bool) -> Result<bool, Exit> {
    let meta = primary.meta();
    // Where no owner reference reaches, a label and an annotation may.
    let owner = &object.meta().owner;
    let tracked_in = owner.as_ref().and_then(|owner| owner.tracked_in.clone());
    if meta.namespace.is_some() && meta.namespace != tracked_in.or(object.meta().namespace.clone()) {
        return Ok(false);
    }
    match owner {
        // The primary's uid is made up if its file has none; then its kind and name have to do.
        Some(owner) => Ok(owner.uid == meta.uid
            || (meta.resource_version == 0
                && *owner.kind == *primary.kind().kind
                && *owner.group == *primary.kind().group
                && owner.name == meta.name)),
        // Whoever writes the list and leaves it empty means it.
        None if document.value["metadata"]["ownerReferences"].is_array() => Ok(false),
        None if sole => Ok(true),
        None => Err(Exit::bad_input(format!(
            "{}: {} has no controlling owner reference: with several resources each child needs one",
            document.place,
            object.reference()
        ))),
    }
}

/// An object as the API server would have stored it.
fn stored(document: &Document, resource: &Resource, namespace: Option<&str>) -> Result<Object, Exit> {
    parse(&place_in_namespace(document, resource, namespace)?, &document.place)
}

/// An object as far as it is watched.
fn projected(object: &Arc<Object>, projection: &Projection) -> Arc<Object> {
    let mut part = Arc::clone(object);
    if *projection != Projection::Full {
        Arc::make_mut(&mut part).project(projection);
    }
    part
}

/// Namespace and uid as the API server would have set them. A made-up uid follows from kind, namespace and name.
pub(crate) fn place_in_namespace(
    document: &Document,
    resource: &Resource,
    default: Option<&str>,
) -> Result<Value, Exit> {
    let mut value = document.value.clone();
    let metadata = &mut value["metadata"];
    match (resource.scope, metadata["namespace"].as_str()) {
        (Scope::Cluster, Some(namespace)) => {
            return Err(Exit::bad_input(format!(
                "{}: metadata.namespace: `{namespace}`, yet {} is cluster-scoped",
                document.place,
                resource.kind()
            )));
        }
        (Scope::Namespaced, None) => metadata["namespace"] = json!(default.unwrap_or(NAMESPACE)),
        _ => {}
    }
    if metadata["uid"].is_null() {
        let text = format!("{} {} {}", resource.kind(), metadata["namespace"], metadata["name"]);
        let hex = Digest::of(text.as_bytes()).hex();
        let part = |from: usize, to: usize| &hex[from..to];
        // Version 8: made by a rule of one's own (RFC 9562).
        metadata["uid"] = json!(format!(
            "{}-{}-8{}-8{}-{}",
            part(0, 8),
            part(8, 12),
            part(13, 16),
            part(17, 20),
            part(20, 32)
        ));
    }
    Ok(value)
}

fn parse(value: &Value, place: &str) -> Result<Object, Exit> {
    Object::from_value(value).map_err(|error| Exit::bad_input(format!("{place}: {error}")))
}

/// Group, version and kind of a document.
pub(crate) fn kind_of(document: &Document) -> Result<Kind, Exit> {
    let field = |name: &str| match document.value[name].as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        _ => {
            Err(Exit::bad_input(format!("{}: {name} is missing: it is no Kubernetes object", document.place)))
        }
    };
    Ok(Kind::from_api_version(field("apiVersion")?, field("kind")?))
}

fn name_of(document: &Document) -> Result<&str, Exit> {
    match document.value["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(Exit::bad_input(format!(
            "{}: metadata.name is missing: a text would be right",
            document.place
        ))),
    }
}

fn sort_key(object: &Arc<Object>) -> (Option<Arc<str>>, Arc<str>) {
    (object.meta().namespace.clone(), Arc::clone(&object.meta().name))
}

fn listed(kinds: &[Kind]) -> String {
    if kinds.is_empty() {
        return "none".to_owned();
    }
    let mut kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    kinds.dedup();
    kinds.join(", ")
}

#[cfg(test)]
mod tests;
