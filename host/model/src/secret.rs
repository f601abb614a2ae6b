//! Templates of `generate-secret`: which keys are drawn, which are kept, and how composed keys follow.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::{Alphabet, RandomKey, SecretTemplate};

/// A checked template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    literals: BTreeMap<String, String>,
    random: Vec<RandomKey>,
    composed: BTreeMap<String, Vec<Part>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Key(String),
}

/// Bytes of a drawn text per character that is taken: the widest rejection is 62 of 64.
const RANDOM_BYTES_PER_CHARACTER: usize = 2;

/// Bytes of a Secret's data, the API server's own limit. It counts here as well: one key of 8 MiB of `$(other)` would
/// ask for terabytes.
const DATA_BYTES_MAX: usize = 1 << 20;

impl Alphabet {
    fn characters(self) -> &'static [u8] {
        match self {
            Self::Alphanumeric => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
            Self::Hexadecimal => b"0123456789abcdef",
            Self::Base64url => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        }
    }

    /// Characters from random bytes without bias: of each byte the low bits that the alphabet needs, and a value
    /// beyond the alphabet is skipped. Shorter than asked if there were too few bytes.
    fn draw(self, bytes: &[u8], length: usize) -> String {
        let characters = self.characters();
        let mask = characters.len().next_power_of_two() - 1;
        let drawn = bytes.iter().filter_map(|byte| characters.get(usize::from(*byte) & mask));
        drawn.take(length).map(|byte| char::from(*byte)).collect()
    }
}

/// Checks a plugin's template; says what is wrong by key.
pub fn check(asked: SecretTemplate) -> Result<Template, String> {
    let mut keys = BTreeSet::new();
    let all = asked.literals.iter().chain(&asked.composed).map(|entry| &entry.key);
    for key in all.chain(asked.random.iter().map(|random| &random.key)) {
        let right = !key.is_empty()
            && key.len() <= 253
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !right {
            return Err(format!(
                "key `{}`: letters, digits, `-`, `_` and `.` would be right",
                crate::plan::clip(key, 253)
            ));
        }
        if !keys.insert(key.clone()) {
            return Err(format!("key `{key}`: is named twice"));
        }
    }
    for random in &asked.random {
        if !(16..=256).contains(&random.length) {
            return Err(format!("key `{}`: length {}, 16 to 256 would be right", random.key, random.length));
        }
    }
    let composed: BTreeMap<String, Vec<Part>> = asked
        .composed
        .into_iter()
        .map(|entry| {
            Ok((
                entry.key.clone(),
                parts(&entry.value).map_err(|problem| format!("key `{}`: {problem}", entry.key))?,
            ))
        })
        .collect::<Result<_, String>>()?;
    for (key, parts) in &composed {
        for part in parts {
            if let Part::Key(name) = part
                && (composed.contains_key(name) || !keys.contains(name))
            {
                return Err(format!(
                    "key `{key}`: `$({name})` is not a literal or random key of this Secret"
                ));
            }
        }
    }
    let literals = asked.literals.into_iter().map(|entry| (entry.key, entry.value)).collect();
    let template = Template { literals, random: asked.random, composed };
    let bytes = template.bytes();
    if bytes > DATA_BYTES_MAX {
        return Err(format!("the values: {bytes} bytes, at most {DATA_BYTES_MAX} would be right"));
    }
    Ok(template)
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            plain.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('(') {
            let end = after.find(')').ok_or("`$(` without `)`")?;
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Key(after[..end].to_owned()));
            rest = &after[end + 1..];
        } else {
            return Err("a lone `$`: write `$$` for a dollar sign".to_owned());
        }
    }
    plain.push_str(rest);
    parts.push(Part::Text(plain));
    Ok(parts)
}

impl Template {
    /// Bytes of all values when each random key has its length.
    fn bytes(&self) -> usize {
        let literals = self.literals.iter().map(|(key, value)| (key.as_str(), value.len()));
        let random = self.random.iter().map(|random| (random.key.as_str(), random.length as usize));
        let lengths: BTreeMap<&str, usize> = literals.chain(random).collect();
        let parts = self.composed.values().flatten().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Key(name) => lengths.get(name.as_str()).copied().unwrap_or_default(),
        });
        parts.chain(lengths.values().copied()).fold(0, usize::saturating_add)
    }

    /// Random bytes that [`Template::fill`] needs at most, with a margin that makes running short a matter of
    /// 2^-64: it would fail, not shorten a password.
    pub fn random_bytes(&self) -> usize {
        self.random.iter().map(|random| random.length as usize * RANDOM_BYTES_PER_CHARACTER + 64).sum()
    }

    /// The whole data: literals as given, random keys as `existing` has them (a key that is there and not empty is
    /// kept whatever its form) or drawn from `entropy`, composed keys from both. None if `entropy` was too short.
    pub fn fill(
        &self,
        existing: &BTreeMap<String, Vec<u8>>,
        entropy: &[u8],
    ) -> Option<BTreeMap<String, Vec<u8>>> {
        let mut data: BTreeMap<String, Vec<u8>> =
            self.literals.iter().map(|(key, value)| (key.clone(), value.clone().into_bytes())).collect();
        let mut entropy = entropy;
        for random in &self.random {
            let length = random.length as usize;
            let value = match existing.get(&random.key) {
                Some(kept) if !kept.is_empty() => kept.clone(),
                _ => {
                    let (mine, rest) = entropy.split_at_checked(length * RANDOM_BYTES_PER_CHARACTER + 64)?;
                    entropy = rest;
                    let drawn = random.alphabet.draw(mine, length);
                    if drawn.len() < length {
                        return None;
                    }
                    drawn.into_bytes()
                }
            };
            data.insert(random.key.clone(), value);
        }
        // A kept value may be longer than the template's own. What is cut here is too large to be stored.
        let mut room = DATA_BYTES_MAX + 1;
        for (key, parts) in &self.composed {
            let mut value = Vec::new();
            for part in parts {
                let text = match part {
                    Part::Text(text) => text.as_bytes(),
                    Part::Key(name) => data.get(name).map_or(&[][..], Vec::as_slice),
                };
                let text = &text[..text.len().min(room)];
                room -= text.len();
                value.extend_from_slice(text);
            }
            data.insert(key.clone(), value);
        }
        Some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::KeyValue;

    fn template() -> SecretTemplate {
        let entry = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
        SecretTemplate {
            name: "s".to_owned(),
            literals: vec![entry("username", "app"), entry("host", "db-rw")],
            random: vec![RandomKey {
                key: "password".to_owned(),
                length: 24,
                alphabet: Alphabet::Alphanumeric,
            }],
            composed: vec![entry("uri", "postgresql://$(username):$(password)@$(host)/$$x")],
            options: String::new(),
        }
    }

    fn entropy(template: &Template) -> Vec<u8> {
        (0..template.random_bytes()).map(|at| u8::try_from(at * 37 % 256).unwrap()).collect()
    }

    #[test]
    fn drawn_once_and_kept_afterwards() {
        let template = check(template()).unwrap();
        let first = template.fill(&BTreeMap::new(), &entropy(&template)).unwrap();
        assert_eq!(first["password"].len(), 24);
        assert!(first["password"].iter().all(u8::is_ascii_alphanumeric));
        let password = String::from_utf8(first["password"].clone()).unwrap();
        assert_eq!(first["uri"], format!("postgresql://app:{password}@db-rw/$x").into_bytes());
        assert_eq!(template.fill(&first, &[]).unwrap(), first);
    }

    #[test]
    fn composed_keys_follow_a_changed_literal_and_an_edited_password() {
        let before = check(template()).unwrap();
        let mut data = before.fill(&BTreeMap::new(), &entropy(&before)).unwrap();
        data.insert("password".to_owned(), b"mine".to_vec());
        let mut changed = template();
        changed.literals[1].value = "other".to_owned();
        let after = check(changed).unwrap().fill(&data, &[]).unwrap();
        assert_eq!(after["uri"], b"postgresql://app:mine@other/$x");
    }

    #[test]
    fn too_little_entropy_is_no_password() {
        let template = check(template()).unwrap();
        assert_eq!(template.fill(&BTreeMap::new(), &[0; 8]), None);
        // Bytes that the alphabet skips: 63 of 0..=63.
        assert_eq!(template.fill(&BTreeMap::new(), &vec![63; template.random_bytes()]), None);
    }

    #[test]
    fn a_composed_key_cannot_ask_for_terabytes() {
        let mut huge = template();
        huge.literals[0].value = "x".repeat(4 << 20);
        huge.composed[0].value = "$(username)".repeat(400_000);
        let problem = check(huge).unwrap_err();
        assert!(problem.contains("at most 1048576"), "{problem}");

        // A value that was edited by hand is kept, however long.
        let mut many = template();
        many.composed[0].value = "$(password)".repeat(10_000);
        let kept = BTreeMap::from([("password".to_owned(), vec![b'x'; 1 << 19])]);
        let data = check(many).unwrap().fill(&kept, &[]).unwrap();
        assert_eq!(data["uri"].len(), DATA_BYTES_MAX + 1, "the API server refuses it");
    }

    #[test]
    fn wrong_templates_are_refused_by_key() {
        let mut short = template();
        short.random[0].length = 8;
        let mut twice = template();
        twice.literals[1].key = "username".to_owned();
        let mut unknown = template();
        unknown.composed[0].value = "$(nobody)".to_owned();
        let mut lone = template();
        lone.composed[0].value = "a$b".to_owned();
        let mut open = template();
        open.composed[0].value = "$(a".to_owned();
        let mut key = template();
        key.literals[0].key = "a b".to_owned();
        for (wrong, part) in [
            (short, "key `password`: length 8"),
            (twice, "key `username`: is named twice"),
            (unknown, "`$(nobody)`"),
            (lone, "a lone `$`"),
            (open, "`$(` without `)`"),
            (key, "key `a b`"),
        ] {
            let problem = check(wrong).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
