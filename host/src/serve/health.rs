//! Readiness: a set of gates, each owned by the part that knows. The host is ready when all are open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All gates. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Health {
    gates: Arc<Mutex<BTreeMap<String, State>>>,
    /// Told when a gate has ended.
    ended: Arc<Notify>,
}

/// One gate.
#[derive(Default)]
struct State {
    /// Why it is closed.
    closed: Option<String>,
    /// What is to be said of it although it is open.
    note: Option<String>,
}

/// One condition of readiness. It stops counting when dropped.
pub(crate) struct Gate {
    health: Health,
    name: String,
}

impl Health {
    /// A new gate, closed for this reason. `name` must be unique among the living ones.
    pub(crate) fn gate(&self, name: String, reason: &str) -> Gate {
        self.lock().insert(name.clone(), State { closed: Some(reason.to_owned()), note: None });
        Gate { health: self.clone(), name }
    }

    /// A line for each closed gate, and for each of the `expected` ones that does not exist: whoever should have made
    /// it has not got there yet, or has ended.
    pub(crate) fn unready(&self, expected: impl IntoIterator<Item = String>) -> Vec<String> {
        let gates = self.lock();
        let closed =
            gates.iter().filter_map(|(name, gate)| Some(format!("{name}: {}", gate.closed.as_ref()?)));
        let missing = expected.into_iter().filter(|name| !gates.contains_key(name));
        closed.chain(missing.map(|name| format!("{name}: not running"))).collect()
    }

    /// Waits until none of these gates is there any more. Cancel safe.
    pub(crate) async fn without(&self, names: &[&str]) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // From before the look, so that no end in between is missed.
            ended.as_mut().enable();
            if !names.iter().any(|name| self.lock().contains_key(*name)) {
                return;
            }
            ended.await;
        }
    }

    /// What open gates have to say.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.lock().values().filter_map(|gate| gate.note.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, State>> {
        // A map of strings is whole whenever the lock is free, also after a panic.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Opens the gate, or closes it for a reason.
    pub(crate) fn set(&self, state: Result<(), String>) {
        let state = State { closed: state.err(), note: None };
        self.health.lock().insert(self.name.clone(), state);
    }

    /// Opens the gate, with something to say.
    pub(crate) fn open_with(&self, note: String) {
        self.health.lock().insert(self.name.clone(), State { closed: None, note: Some(note) });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.health.lock().remove(&self.name);
        self.health.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_gates_goes_on_with_the_last_of_them() {
        let health = Health::default();
        health.without(&["a"]).await;
        let (a, b) = (health.gate("a".to_owned(), "x"), health.gate("b".to_owned(), "x"));
        let waiting = {
            let health = health.clone();
            tokio::spawn(async move { health.without(&["a", "b"]).await })
        };
        drop(a);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(b);
        waiting.await.unwrap();
    }

    #[test]
    fn ready_when_every_living_gate_is_open() {
        let health = Health::default();
        assert!(health.unready([]).is_empty());
        let watch = health.gate("plugin web".to_owned(), "watches are starting");
        let other = health.gate("plugins".to_owned(), "first scan");
        assert_eq!(health.unready([]), ["plugin web: watches are starting", "plugins: first scan"]);
        watch.set(Ok(()));
        drop(other);
        assert!(health.unready([]).is_empty());
        watch.set(Err("forbidden".to_owned()));
        assert_eq!(health.unready([]), ["plugin web: forbidden"]);
        watch.set(Ok(()));
        watch.open_with("stands by".to_owned());
        assert_eq!((health.unready([]).len(), health.notes()), (0, vec!["stands by".to_owned()]));
        watch.set(Ok(()));
        assert!(health.notes().is_empty());
        let expected = || ["plugin web", "plugin db"].map(str::to_owned);
        assert_eq!(health.unready(expected()), ["plugin db: not running"]);
        drop(watch);
        assert_eq!(health.unready(expected()).len(), 2, "a controller that ended");
    }
}
