//! Secret NAME-app: all that an application needs to connect. The host draws the password; this plugin never sees it.

use pilothouse_sdk::prelude::*;

use crate::names::{DATABASE, Names, PASSWORD_KEY, PORT};

/// 32 of 62 characters: 190 bits, and none that a URI or a connection string would have to quote.
const PASSWORD_LENGTH: u32 = 32;

pub(crate) fn template(names: Names<'_>) -> SecretTemplate {
    // With the namespace, so that it also works from another one.
    let host = [&names.rw(), ".", names.namespace, ".svc"].concat();
    let mut template = SecretTemplate::new(&names.secret())
        .literal("username", DATABASE)
        .literal("host", host)
        .literal("port", PORT.to_string())
        .literal("dbname", DATABASE)
        .random(PASSWORD_KEY, PASSWORD_LENGTH, Alphabet::Alphanumeric)
        .composed("uri", "postgresql://$(username):$(password)@$(host):$(port)/$(dbname)");
    for (label, value) in names.labels() {
        template = template.label(label, value);
    }
    template
}
