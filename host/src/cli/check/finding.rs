//! What can be wrong with a plugin, each with a name: scripts and people look for the same word.

use pilothouse_model::plan::RefusalReason;
use pilothouse_sandbox::CallError;

use crate::cli::exit::{Code, code_of};
use crate::cli::offline::pass::Problem;

/// The rules of the contract that `check` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// The outcome is the one that the case expects.
    Expected,
    /// The same request gives the same outcome, and the manifest is the same each time.
    Determinism,
    /// Passes over their own results come to rest.
    Idempotence,
    /// Calls end, within their limits.
    Limits,
    /// Nothing traps, and what is returned is what the contract's types say.
    Trap,
    /// The status is what the schema declares and the host's part is left to the host.
    Status,
    /// A resource that is being deleted goes, and nothing is made meanwhile.
    Finalizing,
    /// A wrong resource is the user's to change, and told so.
    Invalid,
    /// Children of two resources are two objects, in each pass the same ones.
    Names,
    /// Actions are for kinds of the manifest.
    Manifest,
    /// Actions stay in namespaces that the plugin may write.
    Namespace,
    /// Actions are of the form that the contract says.
    Actions,
    /// CustomResourceDefinitions are such that the API server takes them, and cases are such by them.
    Schema,
}

impl Rule {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Expected => "expected",
            Self::Determinism => "determinism",
            Self::Idempotence => "idempotence",
            Self::Limits => "limits",
            Self::Trap => "trap",
            Self::Status => "status",
            Self::Finalizing => "finalizing",
            Self::Invalid => "invalid",
            Self::Names => "names",
            Self::Manifest => "manifest",
            Self::Namespace => "namespace",
            Self::Actions => "actions",
            Self::Schema => "schema",
        }
    }

    /// Which rule a pass broke that came to no plan.
    pub(super) fn broken_by(problem: &Problem) -> Self {
        match problem {
            Problem::Call(CallError::Trap { .. } | CallError::InvalidOutput(_)) => Self::Trap,
            Problem::Call(_) | Problem::LookUp(_) => Self::Limits,
            Problem::Refusal(refusal) => match refusal.reason {
                _ if refusal.action == "set-status" => Self::Status,
                _ if refusal.action == "release" => Self::Finalizing,
                RefusalReason::KindNotDeclared | RefusalReason::KindNotGranted => Self::Manifest,
                RefusalReason::NamespaceNotGranted => Self::Namespace,
                RefusalReason::TooMuch => Self::Limits,
                RefusalReason::Malformed | RefusalReason::NotAllowed | RefusalReason::Unknown => {
                    Self::Actions
                }
            },
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) rule: Rule,
    /// Names the field or the action, and what would be right. May have several lines.
    pub(super) text: String,
    pub(super) code: Code,
}

impl Finding {
    pub(super) fn new(rule: Rule, text: impl Into<String>) -> Self {
        Self { rule, text: text.into(), code: Code::Failed }
    }

    /// A pass that came to no plan; `when` says which.
    pub(super) fn stopped(problem: &Problem, when: &str) -> Self {
        let code = match problem {
            Problem::Call(error) => code_of(error),
            Problem::Refusal(_) | Problem::LookUp(_) => Code::Failed,
        };
        Self { rule: Rule::broken_by(problem), text: format!("{when}{}", problem.text()), code }
    }
}
