//! What the API server takes as a name or a label, for checks before it refuses.

/// DNS labels (RFC 1123) as a pattern of a schema: names of containers, Services and namespaces.
pub const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Longest DNS label, and longest value of a Kubernetes label.
pub const DNS_LABEL_LENGTH_MAX: u32 = 63;

/// Whether it is a DNS label.
pub fn is_dns_label(text: &str) -> bool {
    let bare = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= DNS_LABEL_LENGTH_MAX as usize
        && bytes.iter().all(|byte| bare(byte) || *byte == b'-')
        && [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(bare))
}

/// Whether it is a label to look for: a key, or `key=value`.
pub fn is_label(text: &str) -> bool {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let (domain, name) = key.rsplit_once('/').unwrap_or(("domain", key));
    !name.is_empty() && is_word(name) && is_word(value) && domain.split('.').all(is_dns_label)
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].into_iter().flatten().all(u8::is_ascii_alphanumeric);
    ends && bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// The number in a name that is made of another one: 7 in `web-7` for `web`. None for other names, and for numbers that
/// no program writes: `web-07` is another object than `web-7`.
pub fn number_after(base: &str, name: &str) -> Option<usize> {
    let text = name.strip_prefix(base)?.strip_prefix('-')?;
    text.parse().ok().filter(|number: &usize| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_labels_are_those_of_the_api_server() {
        for right in ["a", "0", "web-1", &"a".repeat(63)] {
            assert!(is_dns_label(right), "{right}");
        }
        for wrong in ["", "-", "a-", "-a", "A", "a.b", "a_b", "ä", &"a".repeat(64)] {
            assert!(!is_dns_label(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_label_is_a_key_or_a_key_and_a_value() {
        for right in ["keep", "keep=", "keep=yes", "chaos.example.com/Keep_it=a.B-1", "a/b"] {
            assert!(is_label(right), "{right}");
        }
        for wrong in
            ["", "=", "=x", "a==b", "a=b=c", "!a", "a in (b)", "a,b", "/a", "a/", "a/b/c", "A/b", "a=-"]
        {
            assert!(!is_label(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_number_is_one_that_a_program_writes() {
        for (name, number) in [("web-0", Some(0)), ("web-12", Some(12))] {
            assert_eq!(number_after("web", name), number, "{name}");
        }
        for other in
            ["web", "web-", "web-01", "web-+1", "web-x", "webs-1", "web--1", "web-99999999999999999999"]
        {
            assert_eq!(number_after("web", other), None, "{other}");
        }
    }
}
