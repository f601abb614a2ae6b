//! Admission: what crosses the border to `admission` and `conversion` of the contract, and what the host takes of it.
//!
//! A plugin may say no, fill in defaults and convert between versions; it may not contradict itself, use words that the
//! API server does not know, or touch what is not its own: identity, metadata, status. What it does beyond that is a
//! [`Lie`], which is an error of the call and no answer to the user: then the webhook's failure policy decides.

use serde_json::Value;

/// What the user is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// POST, or an apply of something new.
    Create,
    /// PUT or PATCH.
    Update,
    /// DELETE.
    Delete,
}

/// One request to the API server, as a plugin gets it. Objects are JSON texts without `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// What the user is doing.
    pub operation: Operation,
    /// The object as it would be stored; none for a deletion.
    pub new: Option<String>,
    /// The object as it is stored; none for a creation.
    pub old: Option<String>,
    /// Who asks.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// Empty, `status` or `scale`.
    pub subresource: String,
    /// The plugin's configuration as JSON text.
    pub config: String,
    /// RFC 3339, UTC.
    pub now: String,
}

/// The answer to one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The request may go on.
    pub allowed: bool,
    /// What is wrong, one for each field.
    pub causes: Vec<Cause>,
    /// Shown to the user in any case.
    pub warnings: Vec<String>,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Path of the field, for example `spec.replicas`.
    pub field: String,
    /// One of [`REASONS`].
    pub reason: String,
    /// What would be right.
    pub message: String,
}

/// The API server's words for causes, each with the words that it begins such a message with.
pub const REASONS: [(&str, &str); 10] = [
    ("FieldValueNotFound", "Not found"),
    ("FieldValueRequired", "Required value"),
    ("FieldValueDuplicate", "Duplicate value"),
    ("FieldValueInvalid", "Invalid value"),
    ("FieldValueNotSupported", "Unsupported value"),
    ("FieldValueForbidden", "Forbidden"),
    ("FieldValueTooLong", "Too long"),
    ("FieldValueTooMany", "Too many"),
    ("FieldValueTypeInvalid", "Invalid value"),
    ("InternalError", "Internal error"),
];

/// Causes in an answer; more help nobody, and the API server keeps the answer in its log.
pub const CAUSES_MAX: usize = 64;
/// Warnings in an answer.
pub const WARNINGS_MAX: usize = 16;
/// Characters of a warning: the API server cuts longer ones when they are many.
const WARNING_CHARACTERS_MAX: usize = 256;
/// Bytes of a cause's field and message; what is longer is no explanation.
const CAUSE_BYTES_MAX: usize = 4 << 10;
/// Characters of a value that is quoted in a cause.
const VALUE_CHARACTERS_MAX: usize = 128;

/// A plugin's answer that cannot be taken. The text names what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lie(pub(crate) String);

impl Verdict {
    /// The verdict, if it means one thing only. Warnings are cut to what the API server shows.
    pub fn checked(mut self) -> Result<Self, Lie> {
        match (self.allowed, self.causes.len()) {
            (true, 0) => {}
            (true, causes) => {
                return Err(Lie(format!(
                    "the verdict allows the request and names {causes} causes against it"
                )));
            }
            (false, 0) => return Err(Lie("the verdict denies the request and names no cause".to_owned())),
            (false, causes) if causes > CAUSES_MAX => {
                return Err(Lie(format!(
                    "the verdict names {causes} causes, at most {CAUSES_MAX} are taken"
                )));
            }
            (false, _) => {}
        }
        for (at, cause) in self.causes.iter().enumerate() {
            if words(&cause.reason).is_none() {
                return Err(Lie(format!(
                    "causes[{at}].reason: `{}` is no word of the API server: `FieldValueInvalid` would be right",
                    excerpt(&cause.reason, VALUE_CHARACTERS_MAX)
                )));
            }
            for (part, text) in [("field", &cause.field), ("message", &cause.message)] {
                if text.len() > CAUSE_BYTES_MAX || (part == "message" && text.is_empty()) {
                    let bytes = text.len();
                    return Err(Lie(format!(
                        "causes[{at}].{part}: {bytes} bytes, 1 to {CAUSE_BYTES_MAX} would be right"
                    )));
                }
            }
        }
        self.warnings.truncate(WARNINGS_MAX);
        for warning in &mut self.warnings {
            // A header cannot hold them.
            warning.retain(|character| !character.is_control());
            *warning = excerpt(warning, WARNING_CHARACTERS_MAX);
        }
        self.warnings.retain(|warning| !warning.is_empty());
        Ok(self)
    }
}

impl Cause {
    /// The message in the API server's own form, for example `Invalid value: -1: use 0 or more`. The value is looked up
    /// in the object, and left out where there is none to quote.
    pub fn told(&self, object: Option<&Value>) -> String {
        let begin = words(&self.reason).unwrap_or("Invalid value");
        let quoted = matches!(
            &*self.reason,
            "FieldValueInvalid" | "FieldValueNotSupported" | "FieldValueDuplicate" | "FieldValueTypeInvalid"
        );
        match object.filter(|_| quoted).and_then(|object| at_field(object, &self.field)).and_then(quote) {
            Some(value) => format!("{begin}: {value}: {}", self.message),
            None => format!("{begin}: {}", self.message),
        }
    }
}

fn words(reason: &str) -> Option<&'static str> {
    REASONS.iter().find(|(known, _)| *known == reason).map(|(_, words)| *words)
}

/// The first so many characters, and a sign that there were more.
fn excerpt(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(characters_max - 1).chain(['…']).collect(),
    }
}

fn quote(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        scalar => Some(excerpt(&scalar.to_string(), VALUE_CHARACTERS_MAX)),
    }
}

/// The value at a path as the API server writes them: `spec.ports[0].name`, `metadata.labels[app]`.
fn at_field<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.trim_start_matches('.');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (key, after) = after.split_once(']')?;
            let key = key.trim_matches('"');
            value = match key.parse::<usize>() {
                Ok(at) if value.is_array() => value.get(at)?,
                _ => value.get(key)?,
            };
            rest = after.trim_start_matches('.');
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            value = value.get(&rest[..end])?;
            rest = rest[end..].trim_start_matches('.');
        }
    }
    Some(value)
}

/// Fields that a plugin's defaults may not touch: who the object is, and what others say of it.
const KEPT: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// What a plugin filled in, as a JSON patch (RFC 6902); empty if nothing.
pub fn defaults_patch(before: &Value, after: &Value) -> Result<json_patch::Patch, Lie> {
    if !after.is_object() {
        return Err(Lie("the result is no object".to_owned()));
    }
    for field in KEPT {
        if before.get(field) != after.get(field) {
            let below = first_difference(before.get(field), after.get(field), field.to_owned());
            return Err(Lie(format!("changes {below}, which a plugin may not default")));
        }
    }
    Ok(json_patch::diff(before, after))
}

/// The path of the first field that differs.
fn first_difference(before: Option<&Value>, after: Option<&Value>, path: String) -> String {
    let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) else { return path };
    let mut fields = before.keys().chain(after.keys());
    match fields.find(|field| before.get(*field) != after.get(*field)) {
        Some(field) => first_difference(before.get(field), after.get(field), format!("{path}.{field}")),
        None => path,
    }
}

/// Whether an update changes nothing that a plugin has a say in: finalizers, owner references, annotations of the host.
/// Such writes are made by the host itself and by Kubernetes' garbage collector, also to an object that has become wrong
/// since it was stored; whoever refused them would keep it from being deleted.
pub fn is_bookkeeping(old: &Value, new: &Value) -> bool {
    // Most updates change something else, and are told by their generation or by a first look.
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["finalizers", "ownerReferences", "resourceVersion", "generation", "managedFields"] {
                metadata.remove(field);
            }
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.retain(|name, _| !name.starts_with(crate::names::HOST_PREFIX));
            }
            if metadata.get("annotations").is_some_and(|annotations| *annotations == serde_json::json!({})) {
                metadata.remove("annotations");
            }
        }
        object
    };
    let same_content = |field: &&String| old.get(*field) == new.get(*field);
    let fields = |object: &Value| {
        object.as_object().is_some_and(|fields| {
            fields.keys().filter(|field| *field != "metadata").all(|field| same_content(&field))
        })
    };
    fields(old) && fields(new) && without(old) == without(new)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn cause(field: &str, reason: &str) -> Cause {
        Cause { field: field.to_owned(), reason: reason.to_owned(), message: "use 0 or more".to_owned() }
    }

    fn denied(causes: Vec<Cause>) -> Verdict {
        Verdict { allowed: false, causes, warnings: Vec::new() }
    }

    #[test]
    fn a_verdict_means_one_thing() {
        let invalid = cause("spec.replicas", "FieldValueInvalid");
        assert!(denied(vec![invalid.clone()]).checked().is_ok());
        assert!(Verdict { allowed: true, ..Verdict::default() }.checked().is_ok());
        for (verdict, part) in [
            (denied(Vec::new()), "names no cause"),
            (Verdict { allowed: true, ..denied(vec![invalid.clone()]) }, "allows the request and names 1"),
            (denied(vec![invalid.clone(); CAUSES_MAX + 1]), "65 causes"),
            (denied(vec![cause("a", "Wrong")]), "causes[0].reason: `Wrong` is no word"),
            (denied(vec![Cause { message: String::new(), ..invalid.clone() }]), "causes[0].message: 0 bytes"),
            (denied(vec![Cause { field: "x".repeat(5000), ..invalid }]), "causes[0].field: 5000 bytes"),
        ] {
            let lie = verdict.checked().unwrap_err().to_string();
            assert!(lie.contains(part), "{lie}");
        }
    }

    #[test]
    fn warnings_are_cut_to_what_a_header_holds() {
        let warnings = vec!["a\nb".to_owned(), "é".repeat(300), String::new()];
        let verdict = Verdict { allowed: true, warnings, ..Verdict::default() }.checked().unwrap();
        assert_eq!(verdict.warnings[0], "ab");
        assert_eq!((verdict.warnings[1].chars().count(), verdict.warnings.len()), (256, 2));
        assert!(verdict.warnings[1].ends_with("é…"));
        let many = Verdict { allowed: true, warnings: vec!["w".to_owned(); 99], ..Verdict::default() };
        assert_eq!(many.checked().unwrap().warnings.len(), WARNINGS_MAX);
    }

    #[test]
    fn causes_are_told_as_the_api_server_tells_its_own() {
        let object = json!({"spec": {"replicas": -1, "ports": [{"name": "a"}, {"name": "b"}], "list": [1]},
                            "metadata": {"labels": {"a.b/c": "x"}}});
        let told = |field: &str, reason: &str| cause(field, reason).told(Some(&object));
        assert_eq!(told("spec.replicas", "FieldValueInvalid"), "Invalid value: -1: use 0 or more");
        assert_eq!(
            told("spec.ports[1].name", "FieldValueNotSupported"),
            "Unsupported value: \"b\": use 0 or more"
        );
        assert_eq!(
            told("metadata.labels[a.b/c]", "FieldValueInvalid"),
            "Invalid value: \"x\": use 0 or more"
        );
        assert_eq!(told("spec.list", "FieldValueInvalid"), "Invalid value: use 0 or more");
        assert_eq!(told("spec.none[7].x", "FieldValueInvalid"), "Invalid value: use 0 or more");
        assert_eq!(told("spec.replicas", "FieldValueForbidden"), "Forbidden: use 0 or more");
        assert_eq!(cause("spec", "FieldValueRequired").told(None), "Required value: use 0 or more");
    }

    #[test]
    fn defaults_touch_nothing_that_is_not_the_plugins() {
        let before = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "labels": {"x": "y"}},
                            "spec": {"size": 1}});
        let after = |field: &str, value: Value| {
            let mut after = before.clone();
            *after.pointer_mut(field).unwrap() = value;
            after
        };
        for (wrong, part) in [
            (after("/metadata/labels/x", json!("z")), "changes metadata.labels.x,"),
            (after("/metadata/name", json!("b")), "changes metadata.name,"),
            (after("/kind", json!("B")), "changes kind,"),
            (json!([]), "no object"),
            (json!({"spec": {}}), "changes apiVersion"),
        ] {
            let lie = defaults_patch(&before, &wrong).unwrap_err().to_string();
            assert!(lie.contains(part), "{lie}");
        }
        let mut with_status = before.clone();
        with_status["status"] = json!({});
        assert!(defaults_patch(&before, &with_status).unwrap_err().to_string().contains("changes status,"));
        let patch = defaults_patch(&before, &after("/spec", json!({"size": 1, "color": "red"}))).unwrap();
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/color", "value": "red"}]));
        assert_eq!(defaults_patch(&before, &before).unwrap().0.len(), 0);
    }

    #[test]
    fn bookkeeping_is_what_changes_neither_content_nor_labels() {
        let object =
            |metadata: Value, size: i32| json!({"kind": "A", "metadata": metadata, "spec": {"size": size}});
        let plain = object(json!({"name": "a", "generation": 1}), 1);
        let guarded = object(
            json!({"name": "a", "generation": 2, "finalizers": ["x/y"], "resourceVersion": "7",
                                    "annotations": {"pilothouse.dev/plan": "{}"}}),
            1,
        );
        assert!(is_bookkeeping(&plain, &guarded) && is_bookkeeping(&guarded, &plain));
        for other in [
            object(json!({"name": "a", "labels": {"x": "y"}}), 1),
            object(json!({"name": "a", "annotations": {"x": "y"}}), 1),
            object(json!({"name": "a"}), 2),
            json!({"kind": "A", "metadata": {"name": "a"}, "spec": {"size": 1}, "data": {}}),
        ] {
            assert!(!is_bookkeeping(&plain, &other) && !is_bookkeeping(&other, &plain), "{other}");
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a~/ ]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[ab~/]{1,2}", inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_of_defaults_leads_from_one_object_to_the_other(a in any_value(), b in any_value()) {
            let object = |spec: &Value| json!({"kind": "A", "metadata": {"name": "a"}, "spec": spec});
            let (before, after) = (object(&a), object(&b));
            let patch = defaults_patch(&before, &after).unwrap();
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(patched, after);
        }
    }
}
