//! Field selectors as the API server takes them: `path=value` and `path!=value`, joined by commas. The API server
//! evaluates them for watches; this is for the check of a manifest, and for passes that are rendered offline.

use serde_json::Value;

/// Requirements that all must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    /// A JSON pointer.
    pointer: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads the API server's syntax, for example `status.phase!=Running,spec.nodeName=`. Says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(requirement).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an object has these fields. One that is not there is empty text, as in the API server.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|Requirement { pointer, equal, value }| {
            let field = match object.pointer(pointer) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            (field == *value) == *equal
        })
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let (path, value, equal) = match (text.split_once("!="), text.split_once('=')) {
        (Some((path, value)), _) => (path, value, false),
        (None, Some((path, value))) => (path, value.strip_prefix('=').unwrap_or(value), true),
        (None, None) => return Err(format!("`{text}`: path=value or path!=value would be right")),
    };
    let path = path.trim();
    let is_path =
        path.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()));
    if !is_path {
        return Err(format!("`{path}` is no path of a field: status.phase would be right"));
    }
    Ok(Requirement { pointer: format!("/{}", path.replace('.', "/")), equal, value: value.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_hold_together_and_what_is_absent_is_empty() {
        let finished =
            FieldSelector::parse("status.phase!=Pending,status.phase!=Running, spec.nodeName==a").unwrap();
        let pod = |phase: &str, node: &str| json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
        assert!(finished.matches(&pod("Failed", "a")));
        assert!(!finished.matches(&pod("Running", "a")));
        assert!(!finished.matches(&pod("Failed", "b")));
        assert!(FieldSelector::parse("spec.nodeName=").unwrap().matches(&json!({"spec": {}})));
        assert!(
            FieldSelector::parse("spec.hostNetwork=true")
                .unwrap()
                .matches(&json!({"spec": {"hostNetwork": true}}))
        );
    }

    #[test]
    fn what_is_no_selector_is_said() {
        assert_eq!(
            FieldSelector::parse("status.phase").unwrap_err(),
            "`status.phase`: path=value or path!=value would be right"
        );
        assert!(FieldSelector::parse("a..b=1").unwrap_err().contains("`a..b` is no path"));
        assert!(FieldSelector::parse("").is_err());
    }
}
