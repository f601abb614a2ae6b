//! [`Problems`]: everything that is wrong with a resource, field by field, for whoever checks it: a pass, or a webhook.

use std::fmt;

use crate::condition::Condition;
use crate::reconciler::Failure;

/// One thing that is wrong with a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, for example `spec.replicas`.
    pub field: &'static str,
    /// What would be right.
    pub message: String,
}

/// All of them, so that a user need not find them one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// A problem with this field unless it is right.
    pub fn check(&mut self, right: bool, field: &'static str, message: impl Into<String>) {
        if !right {
            self.0.push(Problem { field, message: message.into() });
        }
    }

    /// A checked value, or a problem with this field.
    pub fn take<T>(&mut self, field: &'static str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|message| self.check(false, field, message)).ok()
    }

    /// Nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// The condition `Ready` of a resource with these problems.
    pub fn condition(&self) -> Condition {
        Condition::no("Ready", "InvalidSpec", self.to_string())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Problem { field, message }) in self.0.iter().enumerate() {
            write!(f, "{}{field}: {message}", if at > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::Invalid(problems.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_said_at_once() {
        let mut problems = Problems::default();
        problems.check(true, "spec.right", "never said");
        assert!(problems.is_empty());
        problems.check(false, "spec.a", "use 1");
        assert_eq!(problems.take("spec.b", Ok(5)), Some(5));
        assert_eq!(problems.take::<()>("spec.c", Err("use 2".to_owned())), None);
        assert_eq!(problems.condition().message, "spec.a: use 1; spec.c: use 2");
        assert_eq!(Failure::from(problems), Failure::Invalid("spec.a: use 1; spec.c: use 2".to_owned()));
    }
}
