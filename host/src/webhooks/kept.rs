//! What the replicas' Secret holds, and what its keeper must do next. Pure: the rotation is a function of the Secret,
//! the clock and what the API server has been told.
//!
//! A rotation takes three writes, and a host that dies between any two leaves what the next one goes on with:
//!
//! 1. *prepare*: the next pair enters the Secret, and so its authority the `caBundle`; the present certificate is shown
//! 2. the API server is told, by whoever keeps its configuration, and gets some time to hear of it everywhere
//! 3. *promote*: the next pair becomes the present one, and its authority's predecessor stays in the `caBundle`

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_model::object::Object;
use serde_json::{Value, json};

use super::pair::Pair;

const ISSUED: &str = "pilothouse.dev/issued";
const NAMES: &str = "pilothouse.dev/names";
const NEXT_ISSUED: &str = "pilothouse.dev/next-issued";
const NEXT_NAMES: &str = "pilothouse.dev/next-names";

/// The content of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// What is shown.
    pub(super) current: Pair,
    /// What will be shown when the API server knows its authority.
    pub(super) next: Option<Pair>,
    /// Authority of what was shown before.
    pub(super) previous_ca: Option<String>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing for this long.
    Rest(Duration),
    /// Make the next pair.
    Prepare,
    /// Show the next pair.
    Promote,
}

impl Kept {
    /// A first pair.
    pub(super) fn new(current: Pair) -> Self {
        Self { current, next: None, previous_ca: None }
    }

    /// Reads a Secret. None: it does not hold what we put there.
    pub(super) fn read(secret: &Object) -> Option<Self> {
        let data = secret.field("data");
        let text = |key: &str| String::from_utf8(STANDARD.decode(data[key].as_str()?).ok()?).ok();
        let annotations = secret.field("metadata")["annotations"].clone();
        let pair = |issued: &str, names: &str, keys: [&str; 3]| {
            let [ca, certificate, key] = keys.map(text);
            Some(Pair {
                names: annotations[names].as_str()?.split(',').map(str::to_owned).collect(),
                issued: annotations[issued].as_str()?.parse().ok()?,
                ca: ca?,
                certificate: certificate?,
                key: key?,
            })
        };
        Some(Self {
            current: pair(ISSUED, NAMES, ["ca.crt", "tls.crt", "tls.key"])?,
            next: pair(NEXT_ISSUED, NEXT_NAMES, ["next-ca.crt", "next-tls.crt", "next-tls.key"]),
            previous_ca: text("previous-ca.crt"),
        })
    }

    /// The Secret's metadata and data, with null for what must not be there: good for a creation and a merge patch.
    pub(super) fn written(&self) -> Value {
        let next = self.next.as_ref();
        let data: BTreeMap<&str, Option<String>> = [
            ("ca.crt", Some(&self.current.ca)),
            ("tls.crt", Some(&self.current.certificate)),
            ("tls.key", Some(&self.current.key)),
            ("next-ca.crt", next.map(|next| &next.ca)),
            ("next-tls.crt", next.map(|next| &next.certificate)),
            ("next-tls.key", next.map(|next| &next.key)),
            ("previous-ca.crt", self.previous_ca.as_ref()),
        ]
        .map(|(key, pem)| (key, pem.map(|pem| STANDARD.encode(pem))))
        .into();
        json!({
            "metadata": {
                "annotations": {
                    ISSUED: self.current.issued.to_string(),
                    NAMES: self.current.names.join(","),
                    NEXT_ISSUED: next.map(|next| next.issued.to_string()),
                    NEXT_NAMES: next.map(|next| next.names.join(",")),
                },
            },
            "data": data,
        })
    }

    /// All authorities that the API server should know, the present one first.
    pub(super) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.ca);
        [Some(&self.current.ca), next, self.previous_ca.as_ref()].into_iter().flatten().cloned().collect()
    }

    /// The next pair takes the present one's place.
    pub(super) fn promoted(self) -> Self {
        match self.next {
            Some(next) => Self { current: next, next: None, previous_ca: Some(self.current.ca) },
            None => self,
        }
    }

    /// What is to be done at `now`. `told`: for how long the API server's configuration has had [`Kept::bundle`]; none if
    /// it does not.
    pub(super) fn step(
        &self,
        names: &[String],
        now: u64,
        lifetime: Duration,
        told: Option<Duration>,
    ) -> Step {
        let lifetime_s = lifetime.as_secs();
        let due = self.current.issued.saturating_add(lifetime_s / 3 * 2);
        if self.current.names == names && now < due {
            // A pair that was prepared for nothing stays where it is until it is due.
            return Step::Rest(Duration::from_secs(due - now));
        }
        let Some(next) = &self.next else { return Step::Prepare };
        if next.names != names || now >= next.issued.saturating_add(lifetime_s / 3) {
            return Step::Prepare;
        }
        // What is shown is good for nothing any more: there is nothing to wait for.
        let expired = now >= self.current.issued.saturating_add(lifetime_s);
        let settle = settle(lifetime);
        match told {
            _ if expired => Step::Promote,
            Some(told) if told >= settle => Step::Promote,
            Some(told) => Step::Rest(settle.saturating_sub(told)),
            None => Step::Rest(settle),
        }
    }
}

/// How long API servers get to hear of a change of their configuration, each by its own watch: a minute; less where
/// certificates live for hours or, in tests, seconds.
pub(super) fn settle(lifetime: Duration) -> Duration {
    (lifetime / 20).clamp(Duration::from_secs(2), Duration::from_mins(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_mins(150);
    const SETTLE: u64 = 60;

    fn pair(name: &str, issued: u64) -> Pair {
        Pair {
            names: vec![name.to_owned()],
            issued,
            ca: format!("ca {issued}\n"),
            certificate: format!("certificate {issued}"),
            key: format!("key {issued}"),
        }
    }

    fn object(kept: &Kept) -> Object {
        let mut secret = kept.written();
        secret["apiVersion"] = json!("v1");
        secret["kind"] = json!("Secret");
        secret["metadata"]["name"] = json!("s");
        // As the API server does with null.
        for at in ["/data", "/metadata/annotations"] {
            secret.pointer_mut(at).unwrap().as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
        Object::from_value(&secret).unwrap()
    }

    #[test]
    fn a_secret_says_what_was_kept() {
        let mut kept = Kept::new(pair("a", 1));
        assert_eq!(Kept::read(&object(&kept)), Some(kept.clone()));
        kept.next = Some(pair("a", 2));
        assert_eq!(Kept::read(&object(&kept)), Some(kept.clone()));
        let promoted = kept.promoted();
        assert_eq!((promoted.current.issued, promoted.bundle()), (2, "ca 2\nca 1\n".to_owned()));
        assert_eq!(Kept::read(&object(&promoted)), Some(promoted));
        let foreign =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "Yg=="}});
        assert_eq!(Kept::read(&Object::from_value(&foreign).unwrap()), None);
    }

    #[test]
    fn a_rotation_prepares_waits_until_all_know_and_promotes() {
        let names = ["a".to_owned()];
        let mut kept = Kept::new(pair("a", 1_000));
        let step = |kept: &Kept, now, told: Option<u64>| {
            kept.step(&names, now, LIFETIME, told.map(Duration::from_secs))
        };
        assert_eq!(step(&kept, 1_000, Some(9)), Step::Rest(Duration::from_mins(100)));
        assert_eq!(step(&kept, 7_000, Some(9)), Step::Prepare);
        kept.next = Some(pair("a", 7_000));
        assert_eq!(step(&kept, 7_001, None), Step::Rest(Duration::from_secs(SETTLE)), "nobody has been told");
        assert_eq!(step(&kept, 7_001, Some(10)), Step::Rest(Duration::from_secs(SETTLE - 10)));
        assert_eq!(step(&kept, 7_100, Some(SETTLE)), Step::Promote);
        assert_eq!(step(&kept, 10_000, None), Step::Prepare, "the next one is old itself");
        kept.next = Some(pair("a", 10_000));
        assert_eq!(step(&kept, 10_001, None), Step::Promote, "the present one has expired");
        let kept = kept.promoted();
        assert_eq!(step(&kept, 10_001, None), Step::Rest(Duration::from_secs(5_999)));
    }

    #[test]
    fn another_address_needs_another_certificate() {
        let mut kept = Kept::new(pair("a", 1_000));
        let names = ["b".to_owned()];
        assert_eq!(kept.step(&names, 1_001, LIFETIME, Some(LIFETIME)), Step::Prepare);
        kept.next = Some(pair("a", 1_000));
        assert_eq!(
            kept.step(&names, 1_001, LIFETIME, Some(LIFETIME)),
            Step::Prepare,
            "prepared for the old one"
        );
        kept.next = Some(pair("b", 1_000));
        assert_eq!(kept.step(&names, 1_001, LIFETIME, Some(LIFETIME)), Step::Promote);
    }
}
