//! What the tests stand on lives in this package's library, as the fault tests use it too.

pub(crate) use pilothouse_e2e::*;
