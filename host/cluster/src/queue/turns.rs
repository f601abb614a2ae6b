//! Whose turn it is: at most so many passes over all plugins, at most so many of each plugin, and round robin between
//! plugins, then between a plugin's queues. A plugin with 10,000 due keys delays the single one of another by no more
//! than one pass.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use pilothouse_model::names::Key;
use tokio::sync::Notify;

use super::keys::{Keys, Outcome, QueueSettings, Started, Wake};

/// Names a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PluginId(u64);

/// Names a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId(u64);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Turns {
    passes_max: usize,
    running: usize,
    ids: u64,
    plugins: BTreeMap<PluginId, Plugin>,
    queues: BTreeMap<QueueId, Queue>,
    /// Who had the last turn.
    last: PluginId,
}

#[derive(Debug)]
struct Plugin {
    concurrency: u32,
    running: u32,
    /// Which of its queues had the last turn.
    last: QueueId,
}

#[derive(Debug)]
struct Queue {
    plugin: PluginId,
    keys: Keys,
    /// How many wait for a pass of this queue.
    waiting: usize,
    /// Passes for them that they have not taken yet. Invariant: no more than wait.
    granted: VecDeque<Started>,
    wake: Arc<Notify>,
}

impl Turns {
    pub(crate) fn new(passes_max: usize) -> Self {
        Self {
            passes_max,
            running: 0,
            ids: 0,
            plugins: BTreeMap::new(),
            queues: BTreeMap::new(),
            last: PluginId(0),
        }
    }

    pub(crate) fn add_plugin(&mut self, concurrency: u32) -> PluginId {
        self.ids += 1;
        let id = PluginId(self.ids);
        self.plugins.insert(id, Plugin { concurrency, running: 0, last: QueueId(0) });
        id
    }

    pub(crate) fn set_concurrency(&mut self, id: PluginId, concurrency: u32, now: Instant) {
        if let Some(plugin) = self.plugins.get_mut(&id) {
            plugin.concurrency = concurrency;
            self.dispatch(now);
        }
    }

    /// Its queues hold it, so it has none any more.
    pub(crate) fn remove_plugin(&mut self, id: PluginId) {
        self.plugins.remove(&id);
    }

    pub(crate) fn add_queue(
        &mut self,
        plugin: PluginId,
        settings: QueueSettings,
        wake: Arc<Notify>,
    ) -> QueueId {
        self.ids += 1;
        let id = QueueId(self.ids);
        let keys = Keys::new(settings);
        self.queues.insert(id, Queue { plugin, keys, waiting: 0, granted: VecDeque::new(), wake });
        id
    }

    /// Who waits on it and passes that run hold it, so there are none any more.
    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        self.queues.remove(&id);
    }

    pub(crate) fn keys(&mut self, id: QueueId) -> Option<&mut Keys> {
        self.queues.get_mut(&id).map(|queue| &mut queue.keys)
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Plugins and queues; for tests of what is left behind.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.plugins.len(), self.queues.len())
    }

    pub(crate) fn add(&mut self, id: QueueId, key: Key, wake: Wake, now: Instant) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.keys.add(key, wake, now);
        if queue.waiting > queue.granted.len() {
            self.dispatch(now);
        }
    }

    pub(crate) fn begin_wait(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.waiting += 1;
        }
    }

    /// One who waits goes away; what was granted to it goes back.
    pub(crate) fn give_up_wait(&mut self, id: QueueId, now: Instant) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.waiting -= 1;
        if queue.granted.len() > queue.waiting
            && let Some(started) = queue.granted.pop_back()
        {
            queue.keys.put_back(started, now);
            let plugin = queue.plugin;
            self.release(plugin);
            self.dispatch(now);
        }
    }

    /// One who waits takes what was granted to it.
    pub(crate) fn take(&mut self, id: QueueId) -> Option<Started> {
        let queue = self.queues.get_mut(&id)?;
        let started = queue.granted.pop_front()?;
        queue.waiting -= 1;
        Some(started)
    }

    pub(crate) fn finish(
        &mut self,
        plugin: PluginId,
        id: QueueId,
        key: &Key,
        outcome: Outcome,
        written: &[u64],
        now: Instant,
    ) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.keys.finish(key, outcome, written, now);
            // All who wait have to learn of the new time: the one who knows it may leave with another key.
            queue.wake.notify_waiters();
        }
        self.release(plugin);
        self.dispatch(now);
    }

    fn release(&mut self, plugin: PluginId) {
        self.running -= 1;
        if let Some(plugin) = self.plugins.get_mut(&plugin) {
            plugin.running -= 1;
        }
    }

    /// Grants passes as long as there are a free place, a key that is due, and somebody who waits for it.
    pub(crate) fn dispatch(&mut self, now: Instant) {
        while self.running < self.passes_max {
            let Some(id) = self.next_queue(now) else { return };
            let Some(queue) = self.queues.get_mut(&id) else { return };
            let Some(started) = queue.keys.start(now) else { return };
            queue.granted.push_back(started);
            queue.wake.notify_one();
            self.running += 1;
            self.last = queue.plugin;
            if let Some(plugin) = self.plugins.get_mut(&queue.plugin) {
                plugin.running += 1;
                plugin.last = id;
            }
        }
    }

    fn next_queue(&mut self, now: Instant) -> Option<QueueId> {
        let mut ready: Vec<(PluginId, QueueId)> = Vec::new();
        for (id, queue) in &mut self.queues {
            let Some(plugin) = self.plugins.get(&queue.plugin) else { continue };
            if plugin.running < plugin.concurrency
                && queue.waiting > queue.granted.len()
                && queue.keys.is_due(now)
            {
                ready.push((queue.plugin, *id));
            }
        }
        // The next after the last one; with none after it, the first.
        let (plugin, _) = *ready.iter().min_by_key(|(plugin, _)| (*plugin <= self.last, *plugin))?;
        let last = self.plugins.get(&plugin)?.last;
        let own = ready.iter().filter(|(other, _)| *other == plugin).map(|(_, queue)| *queue);
        own.min_by_key(|queue| (*queue <= last, *queue))
    }
}
