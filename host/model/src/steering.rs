//! What people say to the host by annotations on one resource: leave it alone, show what you would do, go ahead.
//!
//! Whatever is not plainly a permission is taken for the careful thing: a typing error must not make the host write.

use std::collections::BTreeMap;

use crate::names::{APPROVE_ANNOTATION, MODE_ANNOTATION, PAUSED_ANNOTATION};
use crate::settings::Mode;

/// The annotations of one resource that steer the host. Two that are equal ask for the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steering {
    paused: Option<Box<str>>,
    mode: Option<Box<str>>,
    approve: Option<Box<str>>,
}

impl Steering {
    /// From `metadata.annotations` as JSON text; none if nothing in it is for the host, which is almost always.
    pub(crate) fn read(annotations: &str) -> Option<Self> {
        // Most objects have annotations, and hardly any of ours: do not parse for nothing.
        if !annotations.contains("pilothouse.dev/") {
            return None;
        }
        let mut texts: BTreeMap<String, Option<Box<str>>> = serde_json::from_str(annotations).ok()?;
        let mut take = |name| texts.remove(name).flatten();
        let steering = Self {
            paused: take(PAUSED_ANNOTATION),
            mode: take(MODE_ANNOTATION),
            approve: take(APPROVE_ANNOTATION),
        };
        (steering != Self::default()).then_some(steering)
    }

    /// What is to be done with the resource, where `settings` is the plugin's mode. The more careful of both wins: an
    /// administrator's word is not undone by whoever may edit the resource.
    ///
    /// - `pilothouse.dev/paused` with any value but `false` pauses.
    /// - `pilothouse.dev/mode` with any value but `apply` asks for a plan.
    pub fn mode(&self, settings: Mode) -> Mode {
        if settings == Mode::Paused || self.paused.as_deref().is_some_and(|paused| paused != "false") {
            return Mode::Paused;
        }
        if self.mode.as_deref().is_some_and(|mode| mode != "apply") { Mode::Plan } else { settings }
    }

    /// The plan that somebody approved: its hash.
    pub fn approved(&self) -> Option<&str> {
        self.approve.as_deref().map(str::trim).filter(|hash| !hash.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(annotations: serde_json::Value) -> Option<Steering> {
        Steering::read(&annotations.to_string())
    }

    #[test]
    fn what_is_not_plainly_a_permission_is_taken_for_the_careful_thing() {
        let mode = |annotation: &str, value: &str, settings| {
            read(json!({annotation: value, "other": "x"})).unwrap().mode(settings)
        };
        for (value, expected) in
            [("true", Mode::Paused), ("false", Mode::Apply), ("", Mode::Paused), ("True", Mode::Paused)]
        {
            assert_eq!(mode(PAUSED_ANNOTATION, value, Mode::Apply), expected, "{value:?}");
        }
        for (value, expected) in [("plan", Mode::Plan), ("apply", Mode::Apply), ("paln", Mode::Plan)] {
            assert_eq!(mode(MODE_ANNOTATION, value, Mode::Apply), expected, "{value:?}");
        }
        assert_eq!(mode(MODE_ANNOTATION, "apply", Mode::Plan), Mode::Plan, "the administrator's word");
        assert_eq!(mode(PAUSED_ANNOTATION, "false", Mode::Paused), Mode::Paused);
        assert_eq!(Steering::default().mode(Mode::Plan), Mode::Plan);
    }

    #[test]
    fn only_annotations_for_the_host_count() {
        assert_eq!(read(json!({"note": "see pilothouse.dev/paused", "pilothouse.dev/plan": "plan x"})), None);
        assert_eq!(read(json!({})), None);
        assert_eq!(Steering::read("null"), None);
        let approval = |hash: &str| read(json!({APPROVE_ANNOTATION: hash})).unwrap();
        assert_eq!(approval(" 0123456789abcdef\n").approved(), Some("0123456789abcdef"));
        assert_eq!(approval("").approved(), None);
        assert_ne!(approval("a"), approval("b"));
        assert_eq!(read(json!({PAUSED_ANNOTATION: null})), None);
    }
}
