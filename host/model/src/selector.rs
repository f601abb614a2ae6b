//! Label selectors in kubectl's syntax, as the manifest's `related` rules and `look-up` use them, matched against
//! labels that the host has already. Grammar and meaning are those of `k8s.io/apimachinery/pkg/labels`: a key that is
//! absent satisfies `!=`, `notin` and `!key`.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::Meta;

/// Requirements that all must hold; none of them matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

/// A text that is no selector: what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("selector `{selector}`: {problem}")]
pub struct SelectorError {
    selector: String,
    problem: String,
}

/// Fills in `$(name)`, `$(namespace)` and `$(uid)` of the primary.
pub fn expand(template: &str, primary: &Meta) -> Result<String, SelectorError> {
    let error = |problem| SelectorError { selector: template.to_owned(), problem };
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("$(") {
        let (name, after) = after.split_once(')').ok_or_else(|| error("`$(` without `)`".to_owned()))?;
        text.push_str(before);
        text.push_str(match name {
            "name" => &primary.name,
            "namespace" => primary.namespace.as_deref().unwrap_or_default(),
            "uid" => &primary.uid,
            _ => {
                let problem =
                    format!("`$({name})` is not known: $(name), $(namespace) or $(uid) would be right");
                return Err(error(problem));
            }
        });
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// What a template selects whatever the primary is, for the API server to select by: what it leaves out never enters
/// a cache. Requirements without `$(…)` as they are, and of those with one that a label is there. Fails as
/// [`Selector::parse`] would.
pub fn common(template: &str) -> Result<String, SelectorError> {
    let parts = split(template).into_iter().map(|part| {
        if !part.contains("$(") {
            return Ok(Some(part.trim().to_owned()));
        }
        filled_key(part)
    });
    let mut common: Vec<String> =
        parts.collect::<Result<Vec<_>, SelectorError>>()?.into_iter().flatten().collect();
    // In one form, so that rules that select the same share a watch.
    common.sort();
    common.dedup();
    Ok(common.join(","))
}

/// The label by whose value a template tells the objects of one primary from those of another: `app` in
/// `tier=front,app=$(name)`. None if there is none.
pub fn telling_label(template: &str) -> Option<String> {
    split(template).into_iter().filter(|part| part.contains("$(")).find_map(|part| filled_key(part).ok()?)
}

/// The key of a requirement whose values are filled in, if the label must be there and the key itself is not filled in.
fn filled_key(part: &str) -> Result<Option<String>, SelectorError> {
    let filled = |value: &str| {
        let example =
            Meta { name: value.into(), namespace: Some(value.into()), uid: value.into(), ..Meta::default() };
        Selector::parse(&expand(part, &example)?)
    };
    let keys = |selector: Selector| {
        selector.0.into_iter().find(|one| matches!(one.test, Test::In(_))).map(|one| one.key)
    };
    let (one, other) = (keys(filled("a")?), keys(filled("b")?));
    Ok(one.filter(|key| other.as_ref() == Some(key)))
}

/// A requirement by which the objects that a selector may match can be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold<'a> {
    /// The label has one of these values.
    Values(&'a str, &'a BTreeSet<String>),
    /// The label is there.
    Present(&'a str),
}

impl Selector {
    /// Everything to look up by; none: any object may match.
    pub fn holds(&self) -> impl Iterator<Item = Hold<'_>> {
        self.0.iter().filter_map(|Requirement { key, test }| match test {
            Test::In(values) => Some(Hold::Values(key, values)),
            Test::Exists | Test::Above(_) | Test::Below(_) => Some(Hold::Present(key)),
            Test::Absent | Test::NotIn(_) => None,
        })
    }

    /// The values that a label must have one of, if it must.
    pub fn values(&self, label: &str) -> Option<&BTreeSet<String>> {
        self.holds().find_map(|hold| match hold {
            Hold::Values(key, values) if key == label => Some(values),
            _ => None,
        })
    }

    /// Reads kubectl's syntax, for example `app=web,tier in (front, back),!canary`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let error = |problem| SelectorError { selector: text.to_owned(), problem };
        let requirements = split(text).into_iter().map(|part| requirement(part).map_err(error));
        requirements.collect::<Result<_, _>>().map(Self)
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.get(key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Above(limit) => number().is_some_and(|number| number > *limit),
                Test::Below(limit) => number().is_some_and(|number| number < *limit),
            }
        })
    }
}

/// Parts between commas that are not within parentheses. An empty text has none.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut depth) = (0, 0_u32);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if begin > 0 || !text.trim().is_empty() {
        parts.push(&text[begin..]);
    }
    parts
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let text = text.trim();
    if let Some(key) = text.strip_prefix('!') {
        return Ok(Requirement { key: checked_key(key)?, test: Test::Absent });
    }
    let end = text.find(|c: char| c.is_whitespace() || "=!<>(".contains(c)).unwrap_or(text.len());
    let (key, rest) = text.split_at(end);
    let key = checked_key(key)?;
    let rest = rest.trim();
    let test = if rest.is_empty() {
        Test::Exists
    } else if let Some(value) = rest.strip_prefix("!=") {
        Test::NotIn(BTreeSet::from([checked_value(value)?]))
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        Test::In(BTreeSet::from([checked_value(value)?]))
    } else if let Some(value) = rest.strip_prefix('>') {
        Test::Above(number(value)?)
    } else if let Some(value) = rest.strip_prefix('<') {
        Test::Below(number(value)?)
    } else if let Some(values) = set(rest, "notin") {
        Test::NotIn(values?)
    } else if let Some(values) = set(rest, "in") {
        Test::In(values?)
    } else {
        return Err(format!("`{rest}` after `{key}`: =, ==, !=, in (…), notin (…), > or < would be right"));
    };
    Ok(Requirement { key, test })
}

/// The values of `OPERATOR (a, b)`; none if it is another operator.
fn set(text: &str, operator: &str) -> Option<Result<BTreeSet<String>, String>> {
    let list = text.strip_prefix(operator)?.trim_start();
    let inner = list.strip_prefix('(')?;
    Some(match inner.strip_suffix(')') {
        Some(inner) => inner.split(',').map(checked_value).collect(),
        None => Err(format!("`{list}` has no closing parenthesis")),
    })
}

fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{}` is no whole number", text.trim()))
}

fn checked_key(text: &str) -> Result<String, String> {
    let key = text.trim();
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    let prefix_right = prefix.len() <= 253
        && prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        && (!prefix.is_empty() || !key.contains('/'));
    if !prefix_right || name.is_empty() || !is_label_text(name) {
        return Err(format!("`{key}` is no label key"));
    }
    Ok(key.to_owned())
}

fn checked_value(text: &str) -> Result<String, String> {
    let value = text.trim();
    if is_label_text(value) { Ok(value.to_owned()) } else { Err(format!("`{value}` is no label value")) }
}

/// At most 63 characters; letters, digits, `-`, `_`, `.`, with a letter or digit at both ends; or nothing.
fn is_label_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_mean_what_they_mean_to_kubectl() {
        let labels = BTreeMap::from(
            [("app", "web"), ("example.com/tier", "front"), ("empty", ""), ("replicas", "3")]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        for (selector, expected) in [
            ("", true),
            (" ", true),
            ("app=web", true),
            ("app == web", true),
            ("app=db", false),
            ("app!=db", true),
            ("absent!=db", true),
            ("app", true),
            ("!app", false),
            ("! absent", true),
            ("absent", false),
            ("empty=", true),
            ("app=web,example.com/tier in (front, back)", true),
            ("example.com/tier in (back)", false),
            ("app notin (web,db)", false),
            ("absent notin (web)", true),
            ("app in(web)", true),
            ("replicas>2,replicas < 4", true),
            ("replicas>3", false),
            ("app>1", false),
        ] {
            assert_eq!(Selector::parse(selector).unwrap().matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for (selector, part) in [
            ("app=we b", "`we b` is no label value"),
            ("app in (web", "no closing parenthesis"),
            ("=web", "`` is no label key"),
            ("app,", "`` is no label key"),
            ("app like web", "`like web` after `app`"),
            ("-app=web", "`-app` is no label key"),
            ("/app", "`/app` is no label key"),
            ("replicas>many", "`many` is no whole number"),
        ] {
            let error = Selector::parse(selector).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("selector `{selector}`: ")) && error.contains(part),
                "{error}"
            );
        }
    }

    #[test]
    fn what_a_template_selects_for_every_primary_is_told_apart() {
        for (template, expected, label) in [
            ("app=web", "app=web", None),
            ("", "", None),
            ("tier in (b, a), app=$(name)", "app,tier in (b, a)", Some("app")),
            ("app in ($(name), x-$(uid)),!canary", "!canary,app", Some("app")),
            ("app!=$(name)", "", None),
            ("app notin ($(name)),in=$(namespace)", "in", Some("in")),
            ("of-$(name)=yes", "", None),
            ("of-$(name)", "", None),
        ] {
            assert_eq!(common(template).unwrap(), expected, "{template}");
            assert_eq!(telling_label(template).as_deref(), label, "{template}");
        }
        assert!(common("app=$(nam)").is_err());
    }

    #[test]
    fn objects_are_looked_up_by_what_must_be_there() {
        let selector = Selector::parse("a in (x, y),b,c!=z,!d,e>1").unwrap();
        let values = BTreeSet::from(["x".to_owned(), "y".to_owned()]);
        let holds: Vec<_> = selector.holds().collect();
        assert_eq!(holds, [Hold::Values("a", &values), Hold::Present("b"), Hold::Present("e")]);
        assert_eq!((selector.values("a"), selector.values("b")), (Some(&values), None));
    }

    #[test]
    fn the_primary_is_filled_in() {
        let primary = Meta {
            name: "orders".into(),
            namespace: Some("shop".into()),
            uid: "u-1".into(),
            ..Meta::default()
        };
        let text = expand("app=$(name),in=$(namespace)-x,$(uid)", &primary).unwrap();
        assert_eq!(text, "app=orders,in=shop-x,u-1");
        assert!(expand("app=$(nam)", &primary).unwrap_err().to_string().contains("`$(nam)` is not known"));
        assert!(expand("app=$(name", &primary).unwrap_err().to_string().contains("without `)`"));
    }
}
