//! Update strategies of child kinds, named and meant as Metacontroller's `childUpdateStrategy`, and the checks that say
//! whether a child is available.
//!
//! Metacontroller's default is `OnDelete`; ours is `InPlace`, which is what server-side apply does. What is ours alone
//! is `maxUnavailable`: there a roll-out goes one by one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::object::Object;

/// Conditions that one kind may be checked for: no kind has more that matter.
const CHECKS_MAX: usize = 16;

/// How children of one kind follow a change of what the plugin wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateStrategy {
    /// In which way.
    #[serde(default)]
    pub method: Method,
    /// When an updated child lets a rolling update go on.
    #[serde(default, skip_serializing_if = "StatusChecks::is_empty")]
    pub status_checks: StatusChecks,
    /// Children of the kind that a rolling update may have unavailable.
    #[serde(default)]
    pub max_unavailable: MaxUnavailable,
}

/// The way in which children follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Never, once they exist: a change is taken when somebody deletes them.
    OnDelete,
    /// They are deleted and created anew, all at once.
    Recreate,
    /// They are changed, all at once.
    #[default]
    InPlace,
    /// They are deleted and created anew, a few at a time.
    RollingRecreate,
    /// They are changed, a few at a time.
    RollingInPlace,
}

impl Method {
    /// A few at a time.
    pub fn is_rolling(self) -> bool {
        matches!(self, Self::RollingRecreate | Self::RollingInPlace)
    }

    /// Deleted and created anew rather than changed.
    pub fn recreates(self) -> bool {
        matches!(self, Self::Recreate | Self::RollingRecreate)
    }
}

/// What must hold of a child so that it counts as available.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatusChecks {
    /// All of these.
    #[serde(default)]
    pub conditions: Vec<ConditionCheck>,
}

/// A condition in `status.conditions` that must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConditionCheck {
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its status; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its reason; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A number of children, or a share of those that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CountOrText", into = "CountOrText")]
pub enum MaxUnavailable {
    /// So many, at least 1.
    Count(u32),
    /// So many of a hundred, 1 to 100.
    Percent(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum CountOrText {
    Count(u32),
    Text(String),
}

impl Default for MaxUnavailable {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl MaxUnavailable {
    /// The number of children, of so many that are wanted: rounded down, as a Deployment does, and never 0, for then
    /// nothing would ever move.
    pub fn of(self, wanted: usize) -> usize {
        let count = match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => wanted.saturating_mul(percent as usize) / 100,
        };
        count.max(1)
    }
}

impl FromStr for MaxUnavailable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent =
            text.strip_suffix('%').filter(|number| number.starts_with(|c: char| ('1'..='9').contains(&c)));
        let percent = percent.and_then(|number| number.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        percent
            .map(Self::Percent)
            .ok_or_else(|| format!("`{text}` is neither a number from 1 nor `1%` to `100%`"))
    }
}

impl TryFrom<CountOrText> for MaxUnavailable {
    type Error = String;

    fn try_from(value: CountOrText) -> Result<Self, String> {
        match value {
            CountOrText::Count(0) => Err("0 would let no update begin: at least 1 would be right".to_owned()),
            CountOrText::Count(count) => Ok(Self::Count(count)),
            CountOrText::Text(text) => text.parse(),
        }
    }
}

impl From<MaxUnavailable> for CountOrText {
    fn from(value: MaxUnavailable) -> Self {
        match value {
            MaxUnavailable::Count(count) => Self::Count(count),
            MaxUnavailable::Percent(percent) => Self::Text(format!("{percent}%")),
        }
    }
}

impl UpdateStrategy {
    /// Whether it is what a manifest that says nothing means.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Path below the strategy and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        if !self.method.is_rolling() && *self != (Self { method: self.method, ..Self::default() }) {
            let problem = "statusChecks and maxUnavailable are for RollingRecreate and RollingInPlace alone";
            return Err((String::new(), problem.to_owned()));
        }
        let checks = &self.status_checks.conditions;
        if checks.len() > CHECKS_MAX {
            let problem = format!("{} conditions, at most {CHECKS_MAX} would be right", checks.len());
            return Err((".statusChecks.conditions".to_owned(), problem));
        }
        if let Some(at) = checks.iter().position(|check| check.type_name.is_empty()) {
            let path = format!(".statusChecks.conditions[{at}].type");
            return Err((path, "is empty: `Ready` would be right".to_owned()));
        }
        Ok(())
    }
}

impl StatusChecks {
    /// Nothing is checked.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Why this child is not available; none if it is. A status that is about an older generation of the child says
    /// nothing about what it became by the update, so it is waited for.
    pub fn unavailable(&self, child: &Object) -> Option<String> {
        if child.meta().deleting {
            return Some("is being deleted".to_owned());
        }
        let status = child.field("status");
        let generation = child.meta().generation;
        if status["observedGeneration"].as_i64().is_some_and(|observed| 0 < observed && observed < generation)
        {
            return Some(format!("its status is not about generation {generation} yet"));
        }
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        self.conditions.iter().find_map(|check| {
            let Some(found) = conditions.iter().find(|one| one["type"] == *check.type_name) else {
                return Some(format!("has no condition {}", check.type_name));
            };
            for (field, wanted) in [("status", &check.status), ("reason", &check.reason)] {
                let is = found[field].as_str().unwrap_or_default();
                if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != is) {
                    let name = &check.type_name;
                    return Some(format!(
                        "its condition {name} has {field} `{}`, not `{wanted}`",
                        crate::plan::clip(is, 64)
                    ));
                }
            }
            None
        })
    }
}

impl fmt::Display for MaxUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn strategy(value: &Value) -> Result<UpdateStrategy, String> {
        let strategy: UpdateStrategy =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        strategy.check().map(|()| strategy).map_err(|(path, problem)| format!("{path}: {problem}"))
    }

    #[test]
    fn what_is_left_out_is_in_place_and_one_by_one() {
        assert!(strategy(&json!({})).unwrap().is_default());
        let rolling = strategy(&json!({"method": "RollingRecreate"})).unwrap();
        assert_eq!((rolling.max_unavailable.of(40), rolling.status_checks.is_empty()), (1, true));
        let text = json!({"method": "RollingInPlace", "maxUnavailable": "25%",
            "statusChecks": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(serde_json::to_value(strategy(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn a_share_is_rounded_down_and_never_nothing() {
        let of = |text: &str, wanted| text.parse::<MaxUnavailable>().unwrap().of(wanted);
        assert_eq!([of("25%", 10), of("25%", 3), of("100%", 7), of("1%", 0)], [2, 1, 7, 1]);
        assert_eq!(MaxUnavailable::Count(3).of(2), 3);
    }

    #[test]
    fn what_could_never_work_is_refused() {
        for (value, part) in [
            (json!({"method": "Sometimes"}), "Sometimes"),
            (json!({"method": "RollingInPlace", "maxUnavailable": 0}), "at least 1"),
            (json!({"method": "RollingInPlace", "maxUnavailable": "0%"}), "0%"),
            (json!({"method": "RollingInPlace", "maxUnavailable": "half"}), "half"),
            (json!({"method": "InPlace", "maxUnavailable": 2}), "alone"),
            (json!({"statusChecks": {"conditions": [{"type": "Ready"}]}}), "alone"),
            (json!({"method": "RollingInPlace", "statusChecks": {"conditions": [{"type": ""}]}}), "[0].type"),
            (json!({"method": "RollingInPlace", "statusChecks": {"condition": []}}), "condition"),
        ] {
            let error = strategy(&value).unwrap_err();
            assert!(error.contains(part), "{value}: {error}");
        }
    }

    #[test]
    fn a_child_is_available_when_all_checks_pass_on_its_newest_generation() {
        let check = |status: &Value, generation: i64, deleting: bool| {
            let mut child = json!({"apiVersion": "v1", "kind": "X", "status": status,
                "metadata": {"name": "a", "generation": generation}});
            if deleting {
                child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let checks = json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "reason": "Done"}]});
            let checks: StatusChecks = serde_json::from_value(checks).unwrap();
            checks.unavailable(&Object::from_value(&child).unwrap()).unwrap_or_default()
        };
        let good = json!({"observedGeneration": 2, "conditions": [
            {"type": "Ready", "status": "True", "reason": "R"}, {"type": "Synced", "status": "False", "reason": "Done"}]});
        assert_eq!(check(&good, 2, false), "");
        assert!(check(&good, 3, false).contains("generation 3"));
        assert!(check(&good, 2, true).contains("deleted"));
        assert!(check(&Value::Null, 2, false).contains("no condition Ready"));
        let mut bad = good.clone();
        bad["conditions"][0]["status"] = json!("False");
        assert_eq!(check(&bad, 2, false), "its condition Ready has status `False`, not `True`");
        bad = good;
        bad["conditions"][1]["reason"] = json!("Busy");
        assert!(check(&bad, 2, false).contains("`Busy`, not `Done`"));
        assert_eq!(
            StatusChecks::default()
                .unavailable(&Object::from_value(&json!({"apiVersion": "v1", "kind": "X"})).unwrap()),
            None
        );
    }
}
