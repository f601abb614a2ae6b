//! Paths of the API server.

use std::fmt::Write as _;

use pilothouse_model::manifest::{Resource, Scope};

/// `/api/v1` or `/apis/GROUP/VERSION`.
pub(crate) fn of_version(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// The path of all objects of a resource, in one namespace or in all of them.
pub(crate) fn of_collection(resource: &Resource, namespace: Option<&str>) -> String {
    let mut path = of_version(&resource.group, &resource.version);
    if resource.scope == Scope::Namespaced
        && let Some(namespace) = namespace
    {
        path.push_str("/namespaces/");
        push_segment(&mut path, namespace);
    }
    path.push('/');
    path.push_str(&resource.plural);
    path
}

/// The path of one object.
pub(crate) fn of_object(resource: &Resource, namespace: Option<&str>, name: &str) -> String {
    let mut path = of_collection(resource, namespace);
    path.push('/');
    push_segment(&mut path, name);
    path
}

/// Percent-encodes what is not unreserved (RFC 3986, 2.3): a name comes from a plugin and must not leave its segment.
fn push_segment(path: &mut String, segment: &str) {
    // `.` and `..` are dot segments even when encoded by some proxies; no Kubernetes name consists of dots alone.
    for byte in segment.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b':');
        let dot = byte == b'.' && segment.bytes().any(|other| other != b'.');
        if plain || dot {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, scope: Scope) -> Resource {
        Resource {
            group: group.into(),
            version: "v1".into(),
            kind: "Web".into(),
            plural: "webs".into(),
            scope,
        }
    }

    #[test]
    fn core_and_named_groups_namespaces_and_cluster_scope() {
        let core = resource("", Scope::Namespaced);
        assert_eq!(of_collection(&core, None), "/api/v1/webs");
        assert_eq!(of_object(&core, Some("shop"), "a.b"), "/api/v1/namespaces/shop/webs/a.b");
        let cluster = resource("example.com", Scope::Cluster);
        assert_eq!(of_object(&cluster, Some("ignored"), "system:x"), "/apis/example.com/v1/webs/system:x");
    }

    #[test]
    fn a_name_does_not_leave_its_segment() {
        let core = resource("", Scope::Namespaced);
        assert_eq!(of_object(&core, None, "../secrets?x"), "/api/v1/webs/..%2Fsecrets%3Fx");
        assert_eq!(of_object(&core, None, ".."), "/api/v1/webs/%2E%2E");
    }
}
