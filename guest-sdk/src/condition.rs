//! Conditions of a status, in the form of `metav1.Condition`.

use serde_json::{Value, json};

/// One condition as a plugin decides it. The host adds `observedGeneration` and keeps `lastTransitionTime` right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What it is about, for example `Ready`.
    pub name: String,
    /// Whether it holds.
    pub state: State,
    /// One word in upper camel case, for machines.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does.
    True,
    /// It does not.
    False,
    /// It cannot be said.
    Unknown,
}

impl State {
    /// The text of `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for State {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Condition {
    /// A condition that holds.
    pub fn yes(name: &str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(name, State::True, reason, message)
    }

    /// A condition that does not hold.
    pub fn no(name: &str, reason: &str, message: impl Into<String>) -> Self {
        Self::new(name, State::False, reason, message)
    }

    /// A condition in this state: a [`State`], or a `bool` for the two that are certain.
    pub fn new(name: &str, state: impl Into<State>, reason: &str, message: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state: state.into(),
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "type": self.name,
            "status": self.state.as_str(),
            "reason": self.reason,
            "message": self.message,
        })
    }

    /// The condition of this name in an object's status. None if it is not there or not well-formed.
    pub(crate) fn find(object: &Value, name: &str) -> Option<Self> {
        let conditions = object.get("status")?.get("conditions")?.as_array()?;
        let found = conditions.iter().find(|condition| condition["type"] == name)?;
        let state = match found["status"].as_str()? {
            "True" => State::True,
            "False" => State::False,
            _ => State::Unknown,
        };
        let text = |field: &str| found[field].as_str().unwrap_or_default();
        Some(Self::new(name, state, text("reason"), text("message")))
    }
}
