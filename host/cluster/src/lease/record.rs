//! A Lease object as it is read and written. What other programs put into it stays there.

use std::time::Duration;

use serde_json::{Value, json};

use crate::error::ReadError;

/// On a shard's Lease: who would like to have it, and is asked to be the next. Not part of `spec`, so that a question
/// does not make a Lease look renewed.
pub(crate) const ASKED_BY: &str = "pilothouse.dev/asked-by";

/// One Lease, as the API server answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lease(Value);

impl Lease {
    pub(crate) fn parse(text: &str) -> Result<Self, ReadError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ReadError::Malformed(error.to_string()))?;
        if value["kind"] != "Lease" {
            return Err(ReadError::Malformed("the answer about a Lease is no Lease".to_owned()));
        }
        Ok(Self(value))
    }

    /// None: it is free.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.0["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
    }

    /// For how long its holder wants it to be respected after a renewal.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.0["spec"]["leaseDurationSeconds"].as_u64().map(Duration::from_secs)
    }

    pub(crate) fn asked_by(&self) -> Option<&str> {
        self.0["metadata"]["annotations"][ASKED_BY].as_str()
    }

    /// Whether the holder has certainly written nothing between the two: nobody has, or somebody has put a question. A
    /// holder whose wall clock stands still writes the same `spec` again and again.
    pub(crate) fn is_unrenewed_since(&self, earlier: &Self) -> bool {
        let metadata = |field: &str| self.0["metadata"][field] == earlier.0["metadata"][field];
        let question = self.asked_by().is_some() && self.asked_by() != earlier.asked_by();
        metadata("resourceVersion") || (question && metadata("uid") && self.0["spec"] == earlier.0["spec"])
    }

    /// A new Lease, taken by its creator.
    pub(crate) fn new(name: &str, holder: &str, duration: Duration, now: &str) -> Self {
        Self(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": duration.as_secs(),
                "acquireTime": now, "renewTime": now, "leaseTransitions": 0
            }
        }))
    }

    /// It changes hands.
    pub(crate) fn taken(&self, holder: &str, duration: Duration, now: &str) -> Self {
        let mut lease = self.renewed(holder, duration, now);
        lease.0["spec"]["acquireTime"] = json!(now);
        let transitions = self.0["spec"]["leaseTransitions"].as_u64().unwrap_or(0);
        lease.0["spec"]["leaseTransitions"] = json!(transitions + 1);
        lease
    }

    /// Its holder goes on. A question that was put is answered by that.
    pub(crate) fn renewed(&self, holder: &str, duration: Duration, now: &str) -> Self {
        let mut lease = self.without_question();
        lease.0["spec"]["holderIdentity"] = json!(holder);
        lease.0["spec"]["leaseDurationSeconds"] = json!(duration.as_secs());
        lease.0["spec"]["renewTime"] = json!(now);
        lease
    }

    /// Nobody holds it, and `next` may take it first. One second, as client-go has it: zero is refused.
    pub(crate) fn released(&self, next: Option<&str>, now: &str) -> Self {
        let mut lease = self.renewed("", Duration::from_secs(1), now);
        if let Some(next) = next {
            lease = lease.asked(next);
        }
        lease
    }

    /// As it is, with a question.
    pub(crate) fn asked(&self, by: &str) -> Self {
        let mut lease = self.clone();
        lease.0["metadata"]["annotations"][ASKED_BY] = json!(by);
        lease
    }

    fn without_question(&self) -> Self {
        let mut lease = self.clone();
        if let Some(annotations) = lease.0["metadata"]["annotations"].as_object_mut() {
            annotations.remove(ASKED_BY);
        }
        lease
    }

    /// To be created anew, after somebody deleted it.
    pub(crate) fn reborn(&self, name: &str) -> Self {
        let mut lease = self.clone();
        lease.0["metadata"] = json!({"name": name});
        lease
    }

    /// Whether it has been stored; a write to it then carries the version that it was read in.
    pub(crate) fn is_stored(&self) -> bool {
        self.0["metadata"]["resourceVersion"].is_string()
    }

    pub(crate) fn to_body(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(15);

    fn stored() -> Lease {
        let mut lease = Lease::new("x", "a", SECONDS, "t0");
        lease.0["metadata"] = json!({"name": "x", "uid": "u", "resourceVersion": "7", "annotations": {"a": "b"},
                                     "labels": {"team": "ops"}});
        lease.0["spec"]["preferredHolder"] = json!("c");
        lease
    }

    #[test]
    fn a_lease_changes_hands_as_others_expect_and_keeps_what_is_theirs() {
        let mut expected = stored().0;
        let taken = stored().taken("b", SECONDS, "t1");
        expected["spec"] = json!({"holderIdentity": "b", "leaseDurationSeconds": 15, "acquireTime": "t1",
                                  "renewTime": "t1", "leaseTransitions": 1, "preferredHolder": "c"});
        assert_eq!(taken.0, expected);
        let renewed = taken.renewed("b", SECONDS, "t2");
        expected["spec"]["renewTime"] = json!("t2");
        assert_eq!(renewed.0, expected);
        let released = renewed.released(None, "t3");
        assert_eq!((released.holder(), released.duration()), (None, Some(Duration::from_secs(1))));
        assert_eq!(released.taken("c", SECONDS, "t4").0["spec"]["leaseTransitions"], 2);
        assert!(released.is_stored() && !Lease::new("x", "a", SECONDS, "t0").is_stored());
        assert!(!released.reborn("x").is_stored());
    }

    #[test]
    fn a_question_renews_nothing_and_is_answered_by_the_next_renewal() {
        let asked = stored().asked("b");
        assert_eq!(asked.asked_by(), Some("b"));
        let later = |mut lease: Lease, version: &str| {
            lease.0["metadata"]["resourceVersion"] = json!(version);
            lease
        };
        let asked = later(asked, "8");
        assert!(asked.is_unrenewed_since(&stored()) && asked.is_unrenewed_since(&asked));
        let renewed = later(asked.renewed("a", SECONDS, "t0"), "9");
        assert_eq!(renewed.asked_by(), None);
        assert!(!renewed.is_unrenewed_since(&asked));
        let again = later(renewed.renewed("a", SECONDS, "t0"), "10");
        assert!(!again.is_unrenewed_since(&renewed), "a wall clock that stands still");
        assert_eq!(asked.released(Some("b"), "t1").asked_by(), Some("b"));
    }

    #[test]
    fn what_is_no_lease_is_an_error() {
        assert!(Lease::parse(r#"{"kind":"Status"}"#).is_err() && Lease::parse("").is_err());
        let free = Lease::parse(r#"{"kind":"Lease","spec":{"holderIdentity":""}}"#).unwrap();
        assert_eq!((free.holder(), free.duration(), free.asked_by()), (None, None, None));
    }
}
