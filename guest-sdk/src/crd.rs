//! [`Crd`]: the CustomResourceDefinition of a kind, generated from the Rust types of its spec and status.

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::reconciler::Reconciler;
use crate::schema;

/// A CustomResourceDefinition in the making. One version, served and stored, with the status subresource; others
/// besides if there are any.
#[derive(Debug, Clone)]
pub struct Crd {
    pub(crate) resource: Resource,
    description: Option<Value>,
    spec: Value,
    status: Value,
    name: Option<Value>,
    short_names: Vec<String>,
    columns: Vec<Value>,
    rules: Vec<Value>,
    scale: Option<Value>,
    /// Served and not stored.
    others: Vec<Other>,
}

/// One more version.
#[derive(Debug, Clone)]
struct Other {
    name: String,
    description: Option<Value>,
    spec: Value,
}

/// Type of a printer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// A whole number.
    Integer,
    /// Text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A time, shown as an age.
    Date,
}

impl Column {
    fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Text => "string",
            Self::Boolean => "boolean",
            Self::Date => "date",
        }
    }
}

impl Crd {
    /// The definition of the kind that `R` reconciles: the schemas of `R` and its status, plus `conditions` and
    /// `observedGeneration`, which every status has. The doc comment of `R` is what `kubectl explain KIND` says, that of the
    /// status what it says of the status.
    ///
    /// # Panics
    /// If a type cannot be said as a structural schema; the message names the path.
    pub fn of<R>() -> Self
    where
        R: Reconciler + JsonSchema,
        R::Status: JsonSchema,
    {
        let (description, spec) = explained::<R>(R::PRIMARY.kind);
        let mut status = with_conditions(schema::of_status::<R::Status>());
        if status["description"].is_null() {
            status["description"] = ["Observed state of the ", R::PRIMARY.kind, "."].concat().into();
        }
        Self {
            resource: R::PRIMARY,
            description,
            spec,
            status,
            name: None,
            short_names: Vec::new(),
            columns: Vec::new(),
            rules: Vec::new(),
            scale: None,
            others: Vec::new(),
        }
    }

    /// One more version in which objects are served, with a spec of its own and the same status. They are stored in the
    /// version that is reconciled; the plugin converts between the two by
    /// [`Conversion`](crate::Conversion). Columns, rules and the scale are those of that version alone.
    ///
    /// # Panics
    /// As [`Crd::of`].
    #[must_use]
    pub fn version<Spec: JsonSchema>(mut self, name: &str) -> Self {
        let (description, spec) = explained::<Spec>(self.resource.kind);
        self.others.push(Other { name: name.to_owned(), description, spec });
        self
    }

    /// A short name for kubectl.
    #[must_use]
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }

    /// A column of `kubectl get`.
    #[must_use]
    pub fn column(self, name: &str, kind: Column, path: &str) -> Self {
        self.printed(name, kind, path, 0)
    }

    /// A column of `kubectl get -o wide`.
    #[must_use]
    pub fn wide_column(self, name: &str, kind: Column, path: &str) -> Self {
        self.printed(name, kind, path, 1)
    }

    /// The column `Age`.
    #[must_use]
    pub fn age(self) -> Self {
        self.column("Age", Column::Date, ".metadata.creationTimestamp")
    }

    fn printed(mut self, name: &str, kind: Column, path: &str, priority: u8) -> Self {
        let mut column = json!({"name": name, "type": kind.as_str(), "jsonPath": path});
        if priority > 0 {
            column["priority"] = priority.into();
        }
        self.columns.push(column);
        self
    }

    /// Which names objects may have: children's names are made from them. A pattern, and the most characters.
    #[must_use]
    pub fn names(mut self, pattern: &str, length_max: u32) -> Self {
        self.name = Some(json!({"type": "string", "pattern": pattern, "maxLength": length_max}));
        self
    }

    /// A CEL rule (`x-kubernetes-validations`) over the whole object. Rules of one field stand at the field:
    /// `#[schemars(extend("x-kubernetes-validations" = [...]))]`.
    #[must_use]
    pub fn rule(mut self, rule: &str, message: &str) -> Self {
        self.rules.push(json!({"rule": rule, "message": message}));
        self
    }

    /// A CEL rule over the whole object whose message is about one field, for example `.spec.name`: one that compares the
    /// field with others, or that must also hold when the field is set or left out anew.
    #[must_use]
    pub fn rule_at(mut self, field: &str, rule: &str, message: &str) -> Self {
        self.rules.push(json!({"rule": rule, "message": message, "fieldPath": field}));
        self
    }

    /// The scale subresource, for `kubectl scale`: paths of the wanted and of the present number.
    #[must_use]
    pub fn scale(self, spec_path: &str, status_path: &str) -> Self {
        self.scaled("specReplicasPath", spec_path).scaled("statusReplicasPath", status_path)
    }

    /// Where the status holds the label selector of the pods, for autoscalers. Beside [`Crd::scale`].
    #[must_use]
    pub fn scale_selector(self, path: &str) -> Self {
        self.scaled("labelSelectorPath", path)
    }

    fn scaled(mut self, field: &str, path: &str) -> Self {
        self.scale.get_or_insert_with(|| json!({}))[field] = path.into();
        self
    }

    /// The whole object.
    pub(crate) fn to_json(&self) -> Value {
        let resource = &self.resource;
        let mut subresources = json!({"status": {}});
        if let Some(scale) = &self.scale {
            subresources["scale"] = scale.clone();
        }
        let mut version = json!({
            "name": resource.version,
            "served": true,
            "storage": true,
            "schema": {"openAPIV3Schema": self.schema()},
            "subresources": subresources,
        });
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = json!(self.columns);
        }
        let mut versions = vec![version];
        for Other { name, description, spec } in &self.others {
            let schema = self.schema_of(description.as_ref().or(self.description.as_ref()), spec);
            versions.push(json!({
                "name": name,
                "served": true,
                "storage": false,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }));
        }
        let mut names = json!({
            "kind": resource.kind,
            "listKind": format!("{}List", resource.kind),
            "plural": resource.plural,
            "singular": resource.kind.to_ascii_lowercase(),
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", resource.plural, resource.group)},
            "spec": {
                "group": resource.group,
                "names": names,
                "scope": resource.scope.as_str(),
                "versions": versions,
            },
        })
    }

    fn schema(&self) -> Value {
        let mut schema = self.schema_of(self.description.as_ref(), &self.spec);
        if !self.rules.is_empty() {
            schema["x-kubernetes-validations"] = json!(self.rules);
        }
        schema
    }

    /// What all versions have alike.
    fn schema_of(&self, description: Option<&Value>, spec: &Value) -> Value {
        let mut schema = json!({"type": "object", "properties": {"spec": spec, "status": self.status}});
        if spec.get("required").is_some() {
            schema["required"] = json!(["spec"]);
        }
        if let Some(description) = description {
            schema["description"] = description.clone();
        }
        if let Some(name) = &self.name {
            schema["properties"]["metadata"] = json!({"type": "object", "properties": {"name": name}});
        }
        schema
    }
}

/// What is said of the kind, and the schema of its spec. The type is the spec's and its author describes the kind with it:
/// of the spec itself there is no more to say than what it is.
fn explained<Spec: JsonSchema>(kind: &str) -> (Option<Value>, Value) {
    let mut spec = schema::of_spec::<Spec>();
    let fields = spec.as_object_mut();
    let description = fields.and_then(|fields| {
        fields.insert("description".to_owned(), ["Desired state of the ", kind, "."].concat().into())
    });
    (description, spec)
}

/// Adds what every status has: `observedGeneration`, and `conditions` as a list whose entries several writers may
/// own, each by its `type`. Patterns and lengths are those of `metav1.Condition`.
fn with_conditions(mut status: Value) -> Value {
    // As text, since the same built by code is 12 KB of a plugin.
    let shared: Value =
        serde_json::from_str(include_str!("conditions.json")).expect("conditions.json is JSON");
    if status["properties"].is_null() {
        status = json!({"type": "object", "properties": {}});
    }
    for name in ["conditions", "observedGeneration"] {
        status["properties"][name] = shared[name].clone();
    }
    status
}
