//! [`Reconciler`]: what an author implements, and [`Failure`].

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::action::Actions;
use crate::kinds::Resource;
use crate::manifest::Controller;
use crate::pass::{LastPass, Pass};

/// Implemented by the type of a kind's `spec`.
///
/// A pass is a pure function: the same desired and observed state give the same actions. It is called with what there
/// is, not with what happened, so it says what shall be there and leaves it to the host to find out what to write.
///
/// The type reads as little of the object as it needs: a kind without a `spec` is read from `{}`. An object whose spec it
/// cannot read is `invalid`, with the path of the field, and not reconciled; it is still finalized.
pub trait Reconciler: DeserializeOwned + Sized + 'static {
    /// The kind that is reconciled.
    const PRIMARY: Resource;

    /// What its status says beside conditions; [`NoStatus`] if nothing.
    type Status: Serialize;

    /// What the manifest says: the kinds that it owns, reads and changes, its finalizer.
    fn controller() -> Controller;

    /// One pass. Actions that were pushed before an error are carried out all the same, so a pass that fails can
    /// still set a status that says why.
    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure>;

    /// One pass over an object that is being deleted, if the controller has a finalizer. Undo what garbage collection
    /// would not, then [`Actions::release`]; the default has nothing to undo and releases at once.
    ///
    /// It is called whatever the spec has become, since an object that nobody can read must be able to go too. So the
    /// spec is a `Result` here: undo what you can by names, children and status, and where that does not do, ask
    /// [`pass.spec()?`](LastPass::spec), which keeps the object and tells its user why. A pass that returns neither a
    /// release nor a failure waits for the next change.
    fn finalize(pass: &LastPass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let _ = pass;
        actions.release();
        Ok(())
    }
}

/// For kinds whose status has nothing but conditions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct NoStatus {}

/// Why a pass could not reach its goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The object is wrong and its user must change it: no retry until then. The text names the field and what would
    /// be right.
    Invalid(String),
    /// Something else is wrong: try again, each time later.
    Retry(String),
}

impl Failure {
    /// The object's user must change this field.
    pub fn invalid(field: &str, problem: &str) -> Self {
        Self::Invalid([field, ": ", problem].concat())
    }
}
