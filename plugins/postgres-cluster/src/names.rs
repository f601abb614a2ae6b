//! Names, labels and selectors: what ties the objects of one cluster together. All are functions of the cluster's name
//! alone, so that nothing has to be remembered.

use pilothouse_sdk::prelude::*;

/// Names that a cluster may have: those that a Service may have, as three are named after it.
pub(crate) const PATTERN: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";

/// A pod's label `controller-revision-hash` is the StatefulSet's name and 11 characters more, 63 at most.
pub(crate) const LENGTH_MAX: u32 = 52;

/// Name of the port, in the container and in the Services.
pub(crate) const PORT_NAME: &str = "pg";
/// Number of the port.
pub(crate) const PORT: u16 = 5432;
/// The database and its owner.
pub(crate) const DATABASE: &str = "app";
/// Key of the Secret that holds the owner's password.
pub(crate) const PASSWORD_KEY: &str = "password";

/// The name of one cluster and those that follow from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    /// The cluster's own, also the StatefulSet's, its headless Service's and the budget's.
    pub(crate) cluster: &'a str,
    pub(crate) namespace: &'a str,
}

impl<'a> Names<'a> {
    /// Refuses a name that objects made from it could not bear. The CRD refuses it first, unless the object is older
    /// than the rule.
    pub(crate) fn of(cluster: &'a str, namespace: &'a str) -> Result<Self, Failure> {
        let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let right = cluster.len() <= LENGTH_MAX as usize
            && cluster.bytes().all(letters)
            && cluster.starts_with(|first: char| first.is_ascii_lowercase())
            && !cluster.ends_with('-');
        if right {
            return Ok(Self { cluster, namespace });
        }
        let problem = "use lower case letters, digits and `-`, beginning with a letter, at most 52 characters: a name that \
                       Services and pods can be named after";
        Err(Failure::invalid("metadata.name", problem))
    }

    /// The Service of the instance that takes writes.
    pub(crate) fn rw(self) -> String {
        [self.cluster, "-rw"].concat()
    }

    /// The Service of the standbys.
    pub(crate) fn ro(self) -> String {
        [self.cluster, "-ro"].concat()
    }

    /// The Secret of the application.
    pub(crate) fn secret(self) -> String {
        [self.cluster, "-app"].concat()
    }

    /// The instance with ordinal 0.
    pub(crate) fn first_pod(self) -> String {
        [self.cluster, "-0"].concat()
    }

    /// `metadata` of one of the cluster's objects.
    pub(crate) fn metadata(self, name: &str) -> Value {
        let mut metadata = json!({"name": name});
        for (label, value) in self.labels() {
            metadata["labels"][label] = json!(value);
        }
        metadata
    }

    /// The recommended labels.
    pub(crate) fn labels(self) -> [(&'static str, &'a str); 3] {
        [
            ("app.kubernetes.io/name", "postgresql"),
            ("app.kubernetes.io/instance", self.cluster),
            ("app.kubernetes.io/managed-by", "pilothouse"),
        ]
    }

    /// Selects all instances.
    pub(crate) fn selector(self) -> Value {
        json!({"app.kubernetes.io/instance": self.cluster})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_still_leaves_room_for_what_is_made_from_it() {
        let longest = "a".repeat(LENGTH_MAX as usize);
        let names = Names::of(&longest, "shop").unwrap();
        for made in
            [names.rw(), names.ro(), names.secret(), names.first_pod(), [&longest, "-5b7c9d8f64"].concat()]
        {
            assert!(made.len() <= 63, "{made}");
        }
    }

    #[test]
    fn names_that_services_could_not_bear_are_refused_by_field() {
        for name in ["", "9lives", "Orders", "orders.db", "orders-", "-orders", &"a".repeat(53)] {
            let Err(Failure::Invalid(text)) = Names::of(name, "shop") else {
                panic!("`{name}` was accepted")
            };
            assert!(text.starts_with("metadata.name: "), "{text}");
        }
    }
}
