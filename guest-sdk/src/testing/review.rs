//! [`Request`]: what the API server would ask an [`Admission`] about; and conversions there and back.

use std::marker::PhantomData;

use serde_json::{Value, json};

use crate::admission::{self, Admission, Asked, Operation, Verdict};
use crate::conversion::{self, Conversion};
use crate::kinds::Scope;
use crate::object::Object;

/// One request to the API server, about an object in the namespace `default`.
///
/// ```
/// # use pilothouse_sdk::prelude::*;
/// # #[derive(Deserialize)]
/// # struct Web { replicas: i32 }
/// # impl Admission for Web {
/// #     const GUARDED: Resource = Resource::namespaced("example.com", "v1", "Web", "webs");
/// #     fn validate(review: &Review<Self>) -> Verdict {
/// #         let mut problems = Problems::default();
/// #         problems.check(review.spec.replicas >= 0, "spec.replicas", "use 0 or more");
/// #         problems.into()
/// #     }
/// # }
/// use pilothouse_sdk::testing::Request;
///
/// assert!(Request::<Web>::create("shop", json!({"replicas": 1})).validate().is_allowed());
/// let verdict = Request::<Web>::create("shop", json!({"replicas": -1})).validate();
/// assert_eq!(verdict.to_string(), "spec.replicas: use 0 or more");
/// ```
#[derive(Debug, Clone)]
pub struct Request<A> {
    /// What the user is doing; to be changed as the test likes.
    pub asked: Asked,
    admission: PhantomData<A>,
}

impl<A: Admission> Request<A> {
    /// A new object.
    pub fn create(name: &str, spec: Value) -> Self {
        Self::new(Operation::Create, object::<A>(name, spec), None)
    }

    /// A changed spec of an object.
    pub fn update(name: &str, old: Value, new: Value) -> Self {
        Self::new(Operation::Update, object::<A>(name, new), Some(object::<A>(name, old)))
    }

    /// A deletion.
    pub fn delete(name: &str, spec: Value) -> Self {
        let object = object::<A>(name, spec);
        Self::new(Operation::Delete, object.clone(), Some(object))
    }

    fn new(operation: Operation, object: Value, old_object: Option<Value>) -> Self {
        let asked = Asked {
            operation,
            object: Object::from(object),
            old_object: old_object.map(Object::from),
            user: "somebody".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            dry_run: false,
            subresource: String::new(),
            now: "2025-01-01T00:00:00Z".to_owned(),
            config: json!({}),
        };
        Self { asked, admission: PhantomData }
    }

    /// With this configuration of the plugin.
    #[must_use]
    pub fn config(mut self, config: Value) -> Self {
        self.asked.config = config;
        self
    }

    /// What the plugin says of it.
    pub fn validate(self) -> Verdict {
        admission::validate::<A>(self.asked)
    }

    /// The spec with the plugin's defaults.
    ///
    /// # Panics
    /// If the plugin changes what it has completed already: that would never end.
    pub fn defaults(self) -> Value {
        let mut again = self.asked.clone();
        let once = admission::default_fields::<A>(self.asked);
        again.object = Object::from(once.clone());
        let twice = admission::default_fields::<A>(again);
        assert_eq!(once["spec"], twice["spec"], "defaults of what has its defaults must change nothing");
        once["spec"].clone()
    }
}

fn object<A: Admission>(name: &str, spec: Value) -> Value {
    let mut object = A::GUARDED.object(name);
    if A::GUARDED.scope == Scope::Namespaced {
        object["metadata"]["namespace"] = json!("default");
    }
    object["spec"] = spec;
    object
}

/// An object in another version of its kind, for example `v1`.
///
/// # Panics
/// If it cannot be converted, if the way back leads to something else, or if more of its metadata changes than labels
/// and annotations.
pub fn converted<C: Conversion>(object: &Value, version: &str) -> Value {
    let to = if C::CONVERTED.group.is_empty() {
        version.to_owned()
    } else {
        [C::CONVERTED.group, "/", version].concat()
    };
    let convert = |object: &Value, to: &str| {
        let done = conversion::convert::<C>(object.clone(), to);
        done.unwrap_or_else(|problem| panic!("cannot be converted to {to}: {problem}"))
    };
    let there = convert(object, &to);
    let metadata = |object: &Value| {
        let mut metadata = object["metadata"].clone();
        if let Some(fields) = metadata.as_object_mut() {
            fields.retain(|field, _| field != "labels" && field != "annotations");
        }
        metadata
    };
    assert_eq!(metadata(&there), metadata(object), "only labels and annotations may change");
    let back = convert(&there, object["apiVersion"].as_str().unwrap_or_default());
    assert_eq!(back, *object, "there and back must lose nothing");
    there
}
