//! The names that an author gives: those that Cargo, the API server and the manifest take alike, and what would be right
//! where one does not.

use pilothouse_model::names::PluginName;

use crate::cli::exit::Exit;

/// Words that Cargo refuses as the name of a package, or that are a library in it.
const TAKEN: [&str; 60] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "pilothouse",
    "pilothouse-sdk",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "schemars",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Longest plural, characters: a label of DNS.
const LABEL_MAX: usize = 63;

/// Longest kind, characters: `KINDList` is a label, too.
const KIND_MAX: usize = LABEL_MAX - "List".len();

/// Longest name of a CustomResourceDefinition, `PLURAL.GROUP`, characters.
const NAME_MAX: usize = 253;

/// Group, version and kind, with the plural name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gvk {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) plural: String,
}

impl Gvk {
    pub(super) fn parse(text: &str, plural: Option<&str>) -> Result<Self, Exit> {
        let wrong = |problem: &str| Exit::bad_input(format!("--kind: `{text}`: {problem}"));
        let parts: Vec<&str> = text.split('/').collect();
        let [group, version, kind] = parts[..] else {
            return Err(wrong("Group/Version/Kind would be right, as example.com/v1alpha1/Site"));
        };
        if !group.contains('.') || group.len() > NAME_MAX || !group.split('.').all(is_label) {
            return Err(wrong("the group must be a domain of yours, as example.com"));
        }
        if ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
        {
            return Err(wrong(
                "the group is one of Kubernetes' own: a domain of yours would be right, as example.com",
            ));
        }
        if !is_version(version) {
            return Err(wrong("the version must be as v1, v1beta1 or v1alpha1"));
        }
        let starts_right = kind.starts_with(|first: char| first.is_ascii_uppercase());
        if !starts_right || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(wrong("the kind must be in upper camel case, as Site"));
        }
        if kind.len() > KIND_MAX {
            return Err(wrong(&format!("the kind must have at most {KIND_MAX} characters")));
        }
        let plural = plural.map_or_else(|| plural_of(&kind.to_ascii_lowercase()), str::to_owned);
        let wrong = |problem: &str| Exit::bad_input(format!("--plural: `{plural}`: {problem}"));
        // The API server asks for a label that a service could have as its name.
        if !is_label(&plural) || !plural.starts_with(|first: char| first.is_ascii_lowercase()) {
            return Err(wrong("small letters and digits, a letter first, would be right, as sites"));
        }
        if plural.len() + ".".len() + group.len() > NAME_MAX {
            return Err(wrong(&format!(
                "it must have at most {NAME_MAX} characters together with the group"
            )));
        }
        Ok(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural })
    }

    pub(super) fn singular(&self) -> String {
        self.kind.to_ascii_lowercase()
    }
}

/// A plugin's name that can be a package's, too.
pub(super) fn check_name(name: &str) -> Result<(), Exit> {
    if let Err(error) = name.parse::<PluginName>() {
        return Err(Exit::bad_input(format!("NAME: {error}")));
    }
    if TAKEN.contains(&name) {
        return Err(Exit::bad_input(format!(
            "NAME: `{name}` is a word of the language or a library: another name would be right, as {name}-operator"
        )));
    }
    Ok(())
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    bytes.len() <= LABEL_MAX
        && inner(*first)
        && inner(*last)
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
}

/// `v1`, `v2beta3`: the form by which kubectl and the API server know which version is newer.
fn is_version(text: &str) -> bool {
    let is_number = |text: &str| {
        !text.starts_with('0') && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some(rest) = text.strip_prefix('v') else { return false };
    let (major, minor) = match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => (major, Some(minor)),
        None => (rest, None),
    };
    text.len() <= LABEL_MAX && is_number(major) && minor.is_none_or(is_number)
}

/// As `kubebuilder` and people make it: policies, boxes, sites.
fn plural_of(singular: &str) -> String {
    let before_y = singular.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{stem}ies"),
        None if ["s", "x", "z", "ch", "sh"].iter().any(|end| singular.ends_with(end)) => {
            format!("{singular}es")
        }
        None => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_with_its_plural() {
        for (kind, plural) in
            [("Site", "sites"), ("Policy", "policies"), ("Mailbox", "mailboxes"), ("Gateway", "gateways")]
        {
            let gvk = Gvk::parse(&format!("apps.example.com/v1beta2/{kind}"), None).unwrap();
            assert_eq!((gvk.kind.as_str(), gvk.plural.as_str()), (kind, plural));
        }
        assert_eq!(Gvk::parse("example.com/v1/Data", Some("data")).unwrap().plural, "data");
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, right) in [
            ("Site", "Group/Version/Kind would be right, as example.com/v1alpha1/Site"),
            ("example.com/v1/Site/x", "Group/Version/Kind would be right"),
            ("example/v1/Site", "a domain of yours, as example.com"),
            ("Example.com/v1/Site", "a domain of yours, as example.com"),
            ("apps.k8s.io/v1/Site", "one of Kubernetes' own"),
            ("example.com/1/Site", "as v1, v1beta1 or v1alpha1"),
            ("example.com/v0/Site", "as v1, v1beta1 or v1alpha1"),
            ("example.com/v1gamma1/Site", "as v1, v1beta1 or v1alpha1"),
            ("example.com/v1/site", "upper camel case, as Site"),
            ("example.com/v1/Web-site", "upper camel case, as Site"),
        ] {
            let error = Gvk::parse(text, None).unwrap_err().message;
            assert!(error.starts_with(&format!("--kind: `{text}`: ")) && error.contains(right), "{error}");
        }
        for plural in ["Data", "2data", "-data", ""] {
            let error = Gvk::parse("example.com/v1/Data", Some(plural)).unwrap_err().message;
            assert!(
                error.starts_with(&format!("--plural: `{plural}`: ")) && error.contains("as sites"),
                "{error}"
            );
        }
        for name in ["", "Web", "1web", "web_site", "web-", "match", "std", "pilothouse-sdk"] {
            let error = check_name(name).unwrap_err().message;
            assert!(error.starts_with("NAME: "), "{error}");
        }
        check_name("web-sites").unwrap();
    }

    /// As long as the API server takes the definition, with the names that are made of these.
    #[test]
    fn names_are_as_long_as_the_api_server_takes_them() {
        let kind = |length: usize| format!("example.com/v1/{}", "K".repeat(length));
        Gvk::parse(&kind(59), None).unwrap();
        let error = Gvk::parse(&kind(60), None).unwrap_err().message;
        assert!(error.ends_with("at most 59 characters"), "{error}");
        let label = "g".repeat(62);
        let group = |last: usize| [&label, &*label, &label, &"g".repeat(last)].join(".");
        Gvk::parse(&format!("{}/v1/Site", group(58)), None).unwrap();
        let error = Gvk::parse(&format!("{}/v1/Site", group(59)), None).unwrap_err().message;
        assert!(
            error.starts_with("--plural: `sites`: ") && error.ends_with("together with the group"),
            "{error}"
        );
    }

    #[test]
    fn taken_words_can_be_searched() {
        assert!(TAKEN.is_sorted());
    }
}
