//! Who looks at what without owning it. A change of such an object wakes the primaries that it concerns, and no other:
//! with 10,000 of them a change must not cost 10,000 evaluations of selectors.
//!
//! Each interest is kept at a place where an object that it matches leads by itself: the object's name, or one of its
//! labels. Of several places the emptiest is taken, so in `tier=front,app=NAME` the name tells primaries apart and not
//! what they have in common. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::names::Key;
use crate::object::Object;
use crate::selector::{Hold, Selector};

/// Objects that somebody looks at.
#[derive(Debug, PartialEq, Eq)]
pub struct Interest {
    /// Position of the related rule, which says the kind.
    pub rule: usize,
    /// In this namespace; none: in all, or in none.
    pub namespace: Option<Arc<str>>,
    /// Which of them.
    pub what: What,
}

/// See [`Interest`].
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// The one of this name.
    Named(Arc<str>),
    /// All that a label selector matches.
    Selected(Selector),
}

/// The interests of all primaries of a controller.
#[derive(Debug, Default)]
pub struct Interests {
    places: HashMap<Place, HashMap<Key, Vec<Arc<Interest>>>>,
    of: HashMap<Key, Vec<Placed>>,
    /// Interests by rule.
    rules: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Placed {
    interest: Arc<Interest>,
    at: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    rule: usize,
    namespace: Option<Arc<str>>,
    lead: Lead,
}

/// What leads from an object to a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Lead {
    Name(Arc<str>),
    Label(Box<str>, Box<str>),
    Present(Box<str>),
    /// Nothing: every object does.
    Any,
}

impl Interests {
    /// Replaces the interests of one primary.
    pub fn set(&mut self, key: &Key, interests: impl IntoIterator<Item = Interest>) {
        self.remove(key);
        for interest in interests {
            self.add(key, interest);
        }
    }

    /// Adds one, if it is not there.
    pub fn add(&mut self, key: &Key, interest: Interest) {
        if self.of.get(key).into_iter().flatten().any(|placed| *placed.interest == interest) {
            return;
        }
        let at = self.places_for(&interest);
        *self.rules.entry(interest.rule).or_default() += 1;
        let interest = Arc::new(interest);
        for place in &at {
            let here = self.places.entry(place.clone()).or_default();
            here.entry(key.clone()).or_default().push(Arc::clone(&interest));
        }
        self.of.entry(key.clone()).or_default().push(Placed { interest, at });
    }

    /// Forgets a primary.
    pub fn remove(&mut self, key: &Key) {
        let all = self.of.remove(key).unwrap_or_default();
        for Placed { interest, .. } in &all {
            if let Some(count) = self.rules.get_mut(&interest.rule) {
                *count -= 1;
            }
        }
        self.rules.retain(|_, count| *count > 0);
        for place in all.into_iter().flat_map(|placed| placed.at) {
            if let Some(here) = self.places.get_mut(&place) {
                here.remove(key);
                if here.is_empty() {
                    self.places.remove(&place);
                }
            }
        }
    }

    /// Whether somebody has an interest by this rule.
    pub fn has(&self, rule: usize) -> bool {
        self.rules.contains_key(&rule)
    }

    /// The primaries that one of these states of an object of `rule` concerns.
    pub fn concerned(&self, rule: usize, states: &[&Object]) -> HashSet<Key> {
        let mut concerned = HashSet::new();
        for object in states {
            let (meta, labels) = (object.meta(), object.labels());
            let by_labels = labels.iter().flat_map(|(label, value)| {
                [
                    Lead::Label(label.as_str().into(), value.as_str().into()),
                    Lead::Present(label.as_str().into()),
                ]
            });
            let leads = [Lead::Name(Arc::clone(&meta.name)), Lead::Any].into_iter().chain(by_labels);
            for lead in leads {
                let spaces = [meta.namespace.clone(), None];
                for namespace in spaces.into_iter().take(1 + usize::from(meta.namespace.is_some())) {
                    let here = self.places.get(&Place { rule, namespace, lead: lead.clone() });
                    let matching = here.into_iter().flatten().filter(|(_, interests)| {
                        interests.iter().any(|interest| match &interest.what {
                            What::Named(_) => true,
                            What::Selected(selector) => selector.matches(&labels),
                        })
                    });
                    concerned.extend(matching.map(|(key, _)| key.clone()));
                }
            }
        }
        concerned
    }

    fn places_for(&self, interest: &Interest) -> Vec<Place> {
        let place = |lead| Place { rule: interest.rule, namespace: interest.namespace.clone(), lead };
        let selector = match &interest.what {
            What::Named(name) => return vec![place(Lead::Name(Arc::clone(name)))],
            What::Selected(selector) => selector,
        };
        let choices = selector.holds().map(|hold| match hold {
            Hold::Values(label, values) => {
                let lead = |value: &String| Lead::Label(label.into(), value.as_str().into());
                values.iter().map(|value| place(lead(value))).collect()
            }
            Hold::Present(label) => vec![place(Lead::Present(label.into()))],
        });
        let crowd = |places: &Vec<Place>| -> usize {
            places.iter().filter_map(|place| self.places.get(place)).map(HashMap::len).sum()
        };
        choices.min_by_key(crowd).unwrap_or_else(|| vec![place(Lead::Any)])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn selected(rule: usize, namespace: Option<&str>, selector: &str) -> Interest {
        let what = What::Selected(Selector::parse(selector).unwrap());
        Interest { rule, namespace: namespace.map(Arc::from), what }
    }

    fn named(namespace: Option<&str>, name: &str) -> Interest {
        Interest { rule: 0, namespace: namespace.map(Arc::from), what: What::Named(name.into()) }
    }

    fn object(namespace: Option<&str>, name: &str, labels: &[(String, String)]) -> Object {
        let labels: std::collections::BTreeMap<_, _> = labels.iter().cloned().collect();
        let metadata = json!({"namespace": namespace, "name": name, "labels": labels});
        Object::from_value(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    }

    #[test]
    fn what_primaries_have_in_common_does_not_lead_to_them() {
        let mut interests = Interests::default();
        for n in 0..10_000 {
            interests.set(
                &Key::namespaced("n", &n.to_string()),
                [selected(0, Some("n"), &format!("tier=front,app=a{n}"))],
            );
        }
        let crowds: Vec<usize> = interests.places.values().map(HashMap::len).collect();
        assert_eq!(crowds.iter().max(), Some(&1));
        let labels =
            [("app", "a77"), ("tier", "front")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let concerned = interests.concerned(0, &[&object(Some("n"), "x", &labels)]);
        assert_eq!(concerned, HashSet::from([Key::namespaced("n", "77")]));
        assert!(interests.concerned(0, &[&object(Some("m"), "x", &labels)]).is_empty());
        assert!(interests.concerned(1, &[&object(Some("n"), "x", &labels)]).is_empty());
        for n in 0..10_000 {
            interests.remove(&Key::namespaced("n", &n.to_string()));
        }
        assert!(interests.places.is_empty() && interests.of.is_empty() && !interests.has(0));
    }

    fn interest() -> impl Strategy<Value = Interest> {
        let requirement = prop_oneof![
            "[ab]=[xy]",
            "[ab] in \\([xy],[xyz]\\)",
            "[ab]",
            "![ab]",
            "[ab]!=[xy]",
            "[ab] notin \\([xy]\\)"
        ];
        let namespace = || prop_oneof![Just(None), Just(Some("n")), Just(Some("m"))];
        prop_oneof![
            (0..2_usize, namespace(), prop::collection::vec(requirement, 0..3))
                .prop_map(|(rule, namespace, parts)| selected(rule, namespace, &parts.join(","))),
            (namespace(), "[pq]").prop_map(|(namespace, name)| named(namespace, &name)),
        ]
    }

    fn state() -> impl Strategy<Value = Object> {
        let labels = prop::collection::vec(("[abc]", "[xyz]"), 0..3);
        (prop_oneof![Just(None), Just(Some("n")), Just(Some("o"))], "[pqr]", labels)
            .prop_map(|(namespace, name, labels)| object(namespace, &name, &labels))
    }

    fn matches(interest: &Interest, rule: usize, object: &Object) -> bool {
        let meta = object.meta();
        interest.rule == rule
            && (interest.namespace.is_none() || interest.namespace == meta.namespace)
            && match &interest.what {
                What::Named(name) => *name == meta.name,
                What::Selected(selector) => selector.matches(&object.labels()),
            }
    }

    proptest! {
        #[test]
        fn those_are_concerned_whose_interest_matches_before_or_after(
            all in prop::collection::vec((0..4_u32, prop::collection::vec(interest(), 0..4)), 0..12),
            states in prop::collection::vec(state(), 1..3),
        ) {
            let mut interests = Interests::default();
            let mut plain: HashMap<Key, Vec<Interest>> = HashMap::new();
            for (n, set) in all {
                let key = Key::namespaced("n", &n.to_string());
                let again = set.iter().map(|one| Interest { rule: one.rule, namespace: one.namespace.clone(), what: match &one.what {
                    What::Named(name) => What::Named(Arc::clone(name)),
                    What::Selected(selector) => What::Selected(selector.clone()),
                }});
                interests.set(&key, again);
                plain.insert(key, set);
            }
            let states: Vec<&Object> = states.iter().collect();
            for rule in 0..2 {
                let expected: HashSet<Key> = plain.iter()
                    .filter(|(_, set)| set.iter().any(|one| states.iter().any(|state| matches(one, rule, state))))
                    .map(|(key, _)| key.clone()).collect();
                prop_assert_eq!(interests.concerned(rule, &states), expected);
            }
            for key in plain.keys() {
                interests.remove(key);
            }
            prop_assert!(interests.places.is_empty() && interests.of.is_empty() && interests.rules.is_empty());
        }
    }
}
