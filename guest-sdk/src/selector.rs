//! [`LabelSelector`]: as users of Kubernetes write it in a spec.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// Selects objects by their labels: all requirements must hold, and none selects everything. As text it is what
/// [`LookUp::selector`](crate::action::LookUp::selector) takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(description = "Labels that are required; none selects everything.")]
pub struct LabelSelector {
    /// Labels with the values that they must have.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    pub match_expressions: Vec<Requirement>,
}

/// What a label must be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// How its value and `values` must stand to each other.
    pub operator: Operator,
    /// Values, for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// How the value of a label and those of a requirement must stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Operator {
    /// It is one of them.
    In,
    /// It is none of them, or the label is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| [key, "=", value].concat());
        let expressions = self.match_expressions.iter().map(|Requirement { key, operator, values }| {
            let values = || ["(", &values.join(","), ")"].concat();
            match operator {
                Operator::In => [key, " in ", &values()].concat(),
                Operator::NotIn => [key, " notin ", &values()].concat(),
                Operator::Exists => key.clone(),
                Operator::DoesNotExist => ["!", key].concat(),
            }
        });
        f.write_str(&labels.chain(expressions).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_model::selector::Selector;
    use serde_json::json;

    use super::*;

    #[test]
    fn its_text_is_one_that_the_host_reads() {
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"app": "web", "tier": "front"},
            "matchExpressions": [
                {"key": "stage", "operator": "In", "values": ["dev", "test"]},
                {"key": "old", "operator": "NotIn", "values": ["yes"]},
                {"key": "team", "operator": "Exists"},
                {"key": "keep", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        let text = selector.to_string();
        assert_eq!(text, "app=web,tier=front,stage in (dev,test),old notin (yes),team,!keep");
        Selector::parse(&text).unwrap();
        assert_eq!(LabelSelector::default().to_string(), "");
    }
}
