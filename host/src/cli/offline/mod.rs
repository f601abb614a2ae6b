//! What the host does in a cluster, done with files: what a plugin would see of them, one pass over it, and what comes
//! of the pass. For the commands `render` and `check`.

mod defaults;
pub(crate) mod pass;
pub(crate) mod readable;
pub(crate) mod scene;
