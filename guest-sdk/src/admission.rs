//! [`Admission`]: checks and defaults before an object is stored, while its user waits.
//!
//! A check here says at once, in `kubectl apply`, what a pass could only say later in a condition. It is no replacement:
//! objects may be older than a check, and a cluster may have been without it; so [`Reconciler`](crate::Reconciler)s
//! check as well, best by the same function.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kinds::Resource;
use crate::manifest::Guard;
use crate::object::Object;
use crate::pass::read;
use crate::problems::{Problem, Problems};
use crate::reconciler::Failure;

/// Implemented by the type of a kind's `spec`, for a kind that the plugin guards: mostly its own. Named in
/// [`export!`](crate::export): `export!(Web; admission: Web)`.
///
/// ```
/// # use pilothouse_sdk::prelude::*;
/// #[derive(Deserialize)]
/// struct Web {
///     replicas: i32,
/// }
///
/// impl Admission for Web {
///     const GUARDED: Resource = Resource::namespaced("example.com", "v1", "Web", "webs");
///
///     fn validate(review: &Review<Self>) -> Verdict {
///         let mut problems = Problems::default();
///         problems.check(review.spec.replicas >= 0, "spec.replicas", "use 0 or more");
///         if let Some(old) = &review.old {
///             problems.check(review.spec.replicas >= old.replicas, "spec.replicas", "it only grows");
///         }
///         Verdict::from(problems)
///     }
/// }
/// ```
pub trait Admission: DeserializeOwned + 'static {
    /// The kind.
    const GUARDED: Resource;

    /// Which requests are guarded, and what becomes of them while nobody answers: creations and changes, which then fail,
    /// unless said otherwise.
    fn guard() -> Guard {
        Guard::of(Self::GUARDED)
    }

    /// May this object be stored, or on deletion: may it go? An object whose spec does not fit the type is refused before
    /// this is called.
    fn validate(review: &Review<Self>) -> Verdict;

    /// Fills in what the user left out of the spec; called if [`Guard::defaults`] says so, and before the spec is read.
    /// To be called again with its own result must change nothing. Constant defaults are better said in the schema.
    fn default_fields(spec: &mut Value, review: &Asked) {
        let _ = (spec, review);
    }
}

/// What the user is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

/// One request to the API server.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What the user is doing.
    pub operation: Operation,
    /// The object as it would be stored; on deletion, as it is.
    pub object: Object,
    /// The object as it is stored, if it is.
    pub old_object: Option<Object>,
    /// Who asks.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Empty, `status` or `scale`.
    pub subresource: String,
    /// Time of the request, RFC 3339 in UTC.
    pub now: String,
    pub(crate) config: Value,
}

impl Asked {
    /// `metadata.name` of the object; empty while it is to be generated.
    pub fn name(&self) -> &str {
        self.object.name()
    }

    /// `metadata.namespace` of the object.
    pub fn namespace(&self) -> &str {
        self.object.namespace()
    }

    /// The plugin's configuration, as the administrator gave it.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        read("config", &self.config).map_err(Failure::Retry)
    }
}

/// One request about an object whose spec has been read. It dereferences to what was [`Asked`].
#[derive(Debug, Clone)]
pub struct Review<A> {
    /// `spec` of the object as it would be stored; on deletion, as it is.
    pub spec: A,
    /// `spec` of the object as it is stored; none if there is none, or it does not fit the type.
    pub old: Option<A>,
    /// Everything else.
    pub asked: Asked,
}

impl<A> std::ops::Deref for Review<A> {
    type Target = Asked;

    fn deref(&self) -> &Asked {
        &self.asked
    }
}

/// The answer to one request: allowed, unless there are causes against it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong.
    pub causes: Vec<Cause>,
    /// Shown to the user in any case.
    pub warnings: Vec<String>,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field, for example `spec.replicas`.
    pub field: String,
    /// In which way.
    pub wrong: Wrong,
    /// What would be right.
    pub message: String,
}

/// In which way a field is wrong, in the API server's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Its value is.
    Invalid,
    /// It is missing.
    Required,
    /// It must not be there, or not change.
    Forbidden,
    /// It is none of those that there are.
    NotSupported,
    /// It is there already.
    Duplicate,
}

impl Wrong {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Required => "FieldValueRequired",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }
}

impl Verdict {
    /// Nothing is wrong.
    pub fn allow() -> Self {
        Self::default()
    }

    /// This field is wrong.
    pub fn deny(field: &str, wrong: Wrong, message: impl Into<String>) -> Self {
        let cause = Cause { field: field.to_owned(), wrong, message: message.into() };
        Self { causes: vec![cause], warnings: Vec::new() }
    }

    /// With one more line that the user shall see.
    #[must_use]
    pub fn warn(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Whether the request may go on.
    pub fn is_allowed(&self) -> bool {
        self.causes.is_empty()
    }
}

/// Each problem is an invalid value.
impl From<Problems> for Verdict {
    fn from(problems: Problems) -> Self {
        let cause = |Problem { field, message }: &Problem| Cause {
            field: (*field).to_owned(),
            wrong: Wrong::Invalid,
            message: message.clone(),
        };
        Self { causes: problems.iter().map(cause).collect(), warnings: Vec::new() }
    }
}

/// For tests: a cause for each line, as kubectl shows them without values.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cause) in self.causes.iter().enumerate() {
            write!(f, "{}{}: {}", if at > 0 { "\n" } else { "" }, cause.field, cause.message)?;
        }
        Ok(())
    }
}

/// Validates one request.
pub(crate) fn validate<A: Admission>(asked: Asked) -> Verdict {
    // A scale is no object of the kind.
    let is_whole = asked.object.is_a(A::GUARDED);
    let spec = match read_spec::<A>(&asked.object) {
        Ok(spec) => spec,
        Err(_) if !is_whole => return Verdict::allow(),
        Err(problem) => {
            let (field, message) = problem.split_once(": ").unwrap_or(("spec", &problem));
            return Verdict::deny(field, Wrong::Invalid, message);
        }
    };
    let old = asked.old_object.as_ref().and_then(|old| read_spec(old).ok());
    A::validate(&Review { spec, old, asked })
}

/// The object with defaults, as JSON.
pub(crate) fn default_fields<A: Admission>(asked: Asked) -> Value {
    let mut object = (*asked.object).clone();
    // What has no spec gets none.
    let mut spec = object.get("spec").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let before = spec.clone();
    A::default_fields(&mut spec, &asked);
    if spec != before {
        object["spec"] = spec;
    }
    object
}

fn read_spec<A: DeserializeOwned>(object: &Object) -> Result<A, String> {
    let empty = Value::Object(serde_json::Map::new());
    read("spec", object.get("spec").unwrap_or(&empty))
}
