//! [`Update`]: how children that exist follow a change of what the plugin wants.

use serde_json::{Value, json};

/// An update strategy of a child kind. The host looks at the children alone, so a roll-out goes on after a restart where
/// it was, a second change begins where the first one stands, and nothing waits once the object is being deleted.
#[derive(Debug, Clone)]
pub struct Update {
    method: &'static str,
    conditions: Vec<Value>,
    max_unavailable: Option<Value>,
}

impl Update {
    fn new(method: &'static str) -> Self {
        Self { method, conditions: Vec::new(), max_unavailable: None }
    }

    /// Not at all: one that somebody deletes is created as wanted then.
    pub fn on_delete() -> Self {
        Self::new("OnDelete")
    }

    /// Each that differs is deleted and created anew, all at once.
    pub fn recreate() -> Self {
        Self::new("Recreate")
    }

    /// Each is changed, all at once. The default.
    pub fn in_place() -> Self {
        Self::new("InPlace")
    }

    /// Deleted and created anew, one at a time.
    pub fn rolling_recreate() -> Self {
        Self::new("RollingRecreate")
    }

    /// Changed, one at a time.
    pub fn rolling_in_place() -> Self {
        Self::new("RollingInPlace")
    }

    /// For a rolling update: it goes on only while this condition of the children that were updated has this status.
    #[must_use]
    pub fn while_condition(mut self, name: &str, status: &str) -> Self {
        self.conditions.push(json!({"type": name, "status": status}));
        self
    }

    /// For a rolling update: so many children at a time, at least 1, may be unavailable.
    #[must_use]
    pub fn max_unavailable(mut self, count: u32) -> Self {
        self.max_unavailable = Some(count.into());
        self
    }

    /// For a rolling update: so many of a hundred children at a time, 1 to 100, may be unavailable.
    #[must_use]
    pub fn max_unavailable_percent(mut self, percent: u32) -> Self {
        self.max_unavailable = Some(Value::String([&percent.to_string(), "%"].concat()));
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut strategy = json!({"method": self.method});
        if !self.conditions.is_empty() {
            strategy["statusChecks"] = json!({"conditions": self.conditions});
        }
        if let Some(max) = &self.max_unavailable {
            strategy["maxUnavailable"] = max.clone();
        }
        strategy
    }
}
