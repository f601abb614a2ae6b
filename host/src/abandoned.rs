//! What a plugin leaves behind when it is taken away: objects that hold its finalizer. Nothing drains them, as only the
//! plugin knows what is to be undone before they go: each waits, once it is deleted, until a plugin with that finalizer
//! is back. So the host says how many there are, in its log and in a metric, and what lets them go.

use std::collections::HashMap;

use pilothouse_model::kind::Kind;
use pilothouse_model::names::PluginName;

use crate::metrics::Metrics;
use crate::metrics::plugins::Held;

/// The objects of one kind that held the finalizer of a plugin when it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Abandoned {
    /// Whose finalizer.
    pub plugin: PluginName,
    /// Kind of the objects.
    pub kind: Kind,
    /// The finalizer.
    pub finalizer: String,
    /// How many held it. Nobody watches them any more, so this is not kept up to date.
    pub objects: usize,
}

/// What was left behind and not taken up again, by group and kind.
#[derive(Default)]
pub(crate) struct AbandonedKinds(HashMap<(String, String), (String, Held)>);

impl AbandonedKinds {
    /// A plugin is gone and left this.
    pub(crate) fn add(&mut self, left: Abandoned, metrics: &Metrics) {
        let Abandoned { plugin, kind, finalizer, objects } = left;
        if objects == 0 {
            return;
        }
        tracing::warn!(
            %plugin, %kind, finalizer, objects,
            "the plugin is gone and these objects hold its finalizer: when deleted they wait until it is back, or until \
             somebody removes the finalizer from metadata.finalizers"
        );
        let held = metrics.plugins().holds(&kind, objects);
        self.0.insert((kind.group, kind.kind), (finalizer, held));
    }

    /// A plugin serves this kind, with this finalizer or none: it takes up what was left with the same one.
    pub(crate) fn take_up(&mut self, kind: &Kind, finalizer: Option<&str>) {
        let key = (kind.group.clone(), kind.kind.clone());
        if self.0.get(&key).is_some_and(|(left, _)| Some(left.as_str()) == finalizer) {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::format::Format;

    #[test]
    fn what_was_left_is_shown_until_a_plugin_with_the_finalizer_is_back() {
        let (metrics, mut behind) = (Metrics::default(), AbandonedKinds::default());
        let kind = Kind::new("example.com", "v1", "Web");
        let left = |objects| Abandoned {
            plugin: "web".parse().unwrap(),
            kind: kind.clone(),
            finalizer: "example.com/web".to_owned(),
            objects,
        };
        let series = "pilothouse_finalizers_left{kind=\"Web.example.com\"} 3";
        let shown = || metrics.render(Format::Prometheus).unwrap().contains(series);
        behind.add(left(0), &metrics);
        assert!(!shown());
        behind.add(left(3), &metrics);
        assert!(shown());
        for other in [None, Some("example.com/other")] {
            behind.take_up(&kind, other);
            assert!(shown(), "{other:?} releases none of them");
        }
        behind.take_up(&Kind::new("example.com", "v2", "Web"), Some("example.com/web"));
        assert!(!shown(), "objects are the same in all versions");
    }
}
