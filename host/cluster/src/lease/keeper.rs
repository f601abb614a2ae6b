//! Keeps one Lease: looks at it, takes it when it may, renews it, hands it over. A task for each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pilothouse_model::names::Key;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::balance;
use super::board::Board;
use super::candidate::{Candidate, Claim};
use super::client::{LeaseClient, Written, resource};
use super::clock::Moment;
use super::identity::Identity;
use super::record::Lease;
use super::term::{Gate, Term};
use super::timing::Timing;
use crate::error::ReadError;
use crate::random;
use crate::watches::{Query, Subscription, Watches};

/// How long a shard that is handed over waits for its passes. After that they may write no more, which ends them. A pass
/// takes milliseconds; one with a slow webhook behind each write some seconds.
const HAND_OVER_MAX: Duration = Duration::from_secs(10);
/// After a shard came from a host that lives: time for its last writes to arrive in this host's caches, which takes
/// milliseconds. Nothing depends on it: an object that a cache does not show is not created a second time, none is
/// changed or deleted but by its UID, and before a primary is let go the API server is asked for the children that no
/// owner reference ties to it. What it spares are passes on a state that was.
const CACHE_LAG: Duration = Duration::from_millis(200);
/// After a write that somebody else overtook: longer than a request takes, and not the same for two.
const OVERTAKEN_PAUSE_MAX: Duration = Duration::from_millis(100);

/// How the host ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It does not.
    No,
    /// All passes have ended: Leases are released.
    Release,
    /// Something may still be under way: Leases run out.
    Abandon,
}

/// What a Lease is for.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    /// The right to serve a shard, within the term of the group if there is one.
    Shard { shard: usize, group: Option<watch::Receiver<Option<Term>>> },
    /// The right of all hosts with so many shards to be there at all; held by them together.
    Group { shards: usize, term: watch::Sender<Option<Term>> },
}

/// What all keepers of a host share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) client: LeaseClient,
    pub(crate) timing: Timing,
    pub(crate) identity: Identity,
    pub(crate) board: Board,
    pub(crate) gate: Gate,
    pub(crate) stop: watch::Receiver<Stop>,
}

/// The keeper of one Lease.
pub(crate) struct Keeper {
    common: Common,
    name: String,
    purpose: Purpose,
    candidate: Candidate,
    /// Tells of changes sooner than the next look would. Nothing depends on it.
    watch: Subscription,
    woken: Arc<Notify>,
    /// Somebody else held it while this host's caches were filled already.
    succeeds: bool,
    /// What went wrong last, said once.
    said: String,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Time,
    Stop,
    Settled,
    GroupLost,
}

impl Keeper {
    pub(crate) fn new(common: Common, name: String, purpose: Purpose, watches: &Watches) -> Self {
        let holder = match &purpose {
            Purpose::Shard { .. } => common.identity.as_str().to_owned(),
            Purpose::Group { shards, .. } => group_identity(*shards),
        };
        let candidate = Candidate::new(&name, &holder, common.timing);
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let query = Query::new(resource())
            .in_namespace(common.client.namespace())
            // By name, so that a right to this Lease is enough.
            .with_fields(&format!("metadata.name={name}"));
        let watch = watches.subscribe(query, move |_| wake.notify_one());
        Self { common, name, purpose, candidate, watch, woken, succeeds: false, said: String::new() }
    }

    /// Runs until the host stops. Dropping the future leaves the Lease as it is; it runs out.
    pub(crate) async fn run(mut self) {
        while self.follow().await && self.lead().await {}
    }

    /// Stands by until the Lease is taken. False: the host stops.
    async fn follow(&mut self) -> bool {
        loop {
            if !self.is_group_there().await {
                return false;
            }
            let pause = match self.try_take().await {
                Ok(None) => return true,
                Ok(Some(pause)) => {
                    self.common.board.set_problem(&self.name, None);
                    pause
                }
                Err(error) => {
                    self.complain("cannot be looked at or taken", &error);
                    self.common.board.set_problem(&self.name, Some(error.to_string()));
                    self.jittered_retry_period()
                }
            };
            if self.idle(pause).await == Woken::Stop {
                return false;
            }
        }
    }

    /// Without the right of the group a shard is none of this host's business. False: the host stops.
    async fn is_group_there(&mut self) -> bool {
        let Purpose::Shard { group: Some(group), .. } = &mut self.purpose else { return !self.stops() };
        let mut stop = self.common.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop != Stop::No) => false,
            held = group.wait_for(|term| term.as_ref().is_some_and(|term| !term.is_over())) => held.is_ok(),
        }
    }

    /// Looks at the Lease and takes it if that may be. None: it is taken; else when to look again.
    async fn try_take(&mut self) -> Result<Option<Duration>, ReadError> {
        let lease = self.common.client.get(&self.name).await?;
        self.candidate.saw(lease, Moment::now());
        self.tell_holder();
        self.tell_excluded();
        let (patience, identity) = (self.patience(), &self.common.identity);
        let is_dead = |holder: &str| identity.knows_dead(holder);
        match self.candidate.claim(Moment::now(), &wall(), patience, is_dead) {
            Claim::Take(lease) => {
                if self.write(&lease).await? {
                    return Ok(None);
                }
                Ok(Some(brief_pause()))
            }
            Claim::Wait(until) => {
                let lives = |holder: &str| !self.common.identity.knows_dead(holder);
                // Also once it has been released and is left to others for a while.
                self.succeeds |= self.candidate.holder().is_some_and(lives);
                self.ask().await?;
                Ok(Some(until.since(Moment::now()).min(self.jittered_retry_period())))
            }
        }
    }

    /// How long a free Lease is left to others.
    fn patience(&self) -> Duration {
        let Common { board, identity, timing, .. } = &self.common;
        match &self.purpose {
            Purpose::Group { .. } | Purpose::Shard { group: None, .. } => Duration::ZERO,
            Purpose::Shard { .. } => balance::patience(
                &board.states().holders,
                identity.as_str(),
                self.candidate.asked_by(),
                timing.retry_period(),
            ),
        }
    }

    /// Asks for this shard if its holder has too many.
    async fn ask(&mut self) -> Result<(), ReadError> {
        let Purpose::Shard { shard, group: Some(_) } = self.purpose else { return Ok(()) };
        let states = self.common.board.states();
        if balance::wants(&states.holders, self.common.identity.as_str()) != Some(shard) {
            return Ok(());
        }
        let Some(question) = self.candidate.question() else { return Ok(()) };
        tracing::debug!(lease = self.name, "asking its holder for this shard");
        self.write(&question).await.map(drop)
    }

    /// Stores the Lease. False: somebody else was faster.
    async fn write(&mut self, lease: &Lease) -> Result<bool, ReadError> {
        let sent = Moment::now();
        match self.common.client.write(&self.name, lease).await? {
            Written::Stored(lease) => {
                self.candidate.wrote(lease, sent, Moment::now());
                Ok(true)
            }
            Written::Overtaken => Ok(false),
            Written::Gone => {
                self.candidate.saw(None, Moment::now());
                Ok(false)
            }
        }
    }

    /// Holds the Lease until it is lost or handed over. False: the host stops.
    async fn lead(&mut self) -> bool {
        let Common { timing, gate, .. } = &self.common;
        let group = self.group();
        if group.is_none() && matches!(self.purpose, Purpose::Shard { group: Some(_), .. }) {
            self.candidate.lose(); // The group was lost meanwhile.
        }
        let Some(until) = self.candidate.covered_until() else { return !self.stops() };
        let term = Term::begin(timing, until, group, gate.clone());
        tracing::info!(lease = self.full_name(), holder = self.candidate.holder(), "holds the Lease");
        self.said.clear();
        self.common.board.set_problem(&self.name, None);
        self.tell_excluded();
        if std::mem::take(&mut self.succeeds) && matches!(self.purpose, Purpose::Shard { .. }) {
            sleep(CACHE_LAG).await;
        }
        self.publish(Some(&term));
        let stays = self.hold(&term).await;
        term.end();
        self.candidate.lose();
        self.publish(None);
        tracing::info!(lease = self.full_name(), "does not hold the Lease any more");
        stays
    }

    async fn hold(&mut self, term: &Term) -> bool {
        let mut leaves: Option<Leave> = None;
        let mut pause = self.common.timing.retry_period();
        loop {
            let Some(end) = self.candidate.gives_up_at() else { return true };
            let left = end.since(Moment::now());
            if left.is_zero() {
                tracing::warn!(lease = self.full_name(), "not renewed within the deadline: given up");
                return true;
            }
            match self.busy(pause.min(left), term, leaves.as_ref()).await {
                Woken::Time => {}
                Woken::GroupLost => return true,
                Woken::Stop if *self.common.stop.borrow() == Stop::Abandon => return false,
                Woken::Stop => {
                    leaves.get_or_insert_with(|| self.leave(term, None));
                    pause = Duration::ZERO;
                    continue;
                }
                Woken::Settled => {
                    let next = leaves.and_then(|leave| leave.next);
                    self.release(next.as_deref()).await;
                    return !self.stops();
                }
            }
            pause = self.renew(term).await;
            if leaves.is_none()
                && let Some(asker) = self.shall_give()
            {
                leaves = Some(self.leave(term, Some(asker)));
            }
            if leaves.as_ref().is_some_and(|leave| Moment::now() >= leave.until) {
                // Their writes are refused, which ends them; the Lease is held until they have.
                term.end();
            }
        }
    }

    /// Renews once. Returns the pause until the next attempt.
    async fn renew(&mut self, term: &Term) -> Duration {
        let (Some(lease), Some(end)) = (self.candidate.renewal(&wall()), self.candidate.gives_up_at()) else {
            return Duration::ZERO;
        };
        let outcome = timeout(end.since(Moment::now()), self.write(&lease)).await;
        match outcome {
            Ok(Ok(true)) => {
                if let Some(until) = self.candidate.covered_until() {
                    term.extend(until);
                }
                if !self.said.is_empty() {
                    tracing::info!(lease = self.full_name(), "renewed again");
                    self.said.clear();
                }
                return self.common.timing.retry_period();
            }
            Ok(Ok(false)) => {
                let look = self.common.client.get(&self.name);
                match timeout(end.since(Moment::now()), look).await {
                    Ok(Ok(lease)) => {
                        self.candidate.saw(lease, Moment::now());
                        if self.candidate.renewal("").is_none() {
                            let holder = self.candidate.holder();
                            tracing::warn!(lease = self.full_name(), holder, "somebody else has taken it");
                            self.tell_holder();
                        }
                        return brief_pause();
                    }
                    Ok(Err(error)) => self.complain("cannot be looked at", &error),
                    Err(_) => {}
                }
            }
            Ok(Err(error)) => self.complain("cannot be renewed", &error),
            Err(_) => {}
        }
        self.common.timing.retry_period()
    }

    /// The one who asked for this shard, if it should be given away.
    fn shall_give(&self) -> Option<String> {
        let Purpose::Shard { group: Some(_), .. } = self.purpose else { return None };
        let asker = self.candidate.asked_by()?;
        let states = self.common.board.states();
        balance::gives(&states.holders, self.common.identity.as_str(), asker).then(|| asker.to_owned())
    }

    /// No more passes begin under this term.
    fn leave(&self, term: &Term, next: Option<String>) -> Leave {
        if let Some(next) = &next {
            tracing::info!(lease = self.full_name(), next, "hands this shard over");
        }
        term.close();
        if let Purpose::Shard { shard, .. } = self.purpose {
            // It counts as nobody's for the shares, and its keys are nobody's.
            self.common.board.set_holder(shard, "");
            self.common.board.set_term(shard, None);
        }
        Leave { next, until: Moment::now() + HAND_OVER_MAX }
    }

    async fn release(&mut self, next: Option<&str>) {
        // The group's is others' as well.
        let Purpose::Shard { .. } = self.purpose else { return };
        let Some(lease) = self.candidate.release(next, &wall()) else { return };
        match self.write(&lease).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!(lease = self.name, "not released: it changed at that moment"),
            Err(error) => self.complain("cannot be released, so it runs out", &error),
        }
        self.tell_holder();
    }

    /// Waits this long, or until the watch shows that the Lease is free.
    async fn idle(&self, pause: Duration) -> Woken {
        let mut stop = self.common.stop.clone();
        let key = Key::namespaced(self.common.client.namespace(), &self.name);
        let freed = async {
            loop {
                self.woken.notified().await;
                let holder =
                    self.watch.store().get(&key).map(|lease| lease.field("spec")["holderIdentity"].clone());
                if holder.is_none_or(|holder| holder.as_str().unwrap_or_default().is_empty()) {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop != Stop::No) => Woken::Stop,
            () = sleep(pause) => Woken::Time,
            () = freed => Woken::Time,
        }
    }

    /// Waits this long, or until something is to be done about the term.
    async fn busy(&self, pause: Duration, term: &Term, leaves: Option<&Leave>) -> Woken {
        let mut stop = self.common.stop.clone();
        // The group is left when no shard of it is held any more, and a shard but once.
        let stays = leaves.is_some() || matches!(self.purpose, Purpose::Group { .. });
        let due = if stays { Stop::Abandon } else { Stop::Release };
        let group = async {
            match &self.purpose {
                Purpose::Shard { group: Some(group), .. } => {
                    let _ = group.clone().wait_for(|group| group.as_ref() != term.within()).await;
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop == due || *stop == Stop::Abandon) => Woken::Stop,
            () = term.settled(), if leaves.is_some() => Woken::Settled,
            () = group => Woken::GroupLost,
            () = sleep(pause) => Woken::Time,
        }
    }

    /// The term of the group that a shard lies in.
    fn group(&self) -> Option<Term> {
        match &self.purpose {
            Purpose::Shard { group: Some(group), .. } => group.borrow().clone(),
            _ => None,
        }
    }

    fn publish(&self, term: Option<&Term>) {
        match &self.purpose {
            Purpose::Shard { shard, .. } => {
                self.tell_holder();
                self.common.board.set_term(*shard, term.cloned());
            }
            Purpose::Group { term: group, .. } => drop(group.send_replace(term.cloned())),
        }
    }

    fn tell_holder(&self) {
        if let Purpose::Shard { shard, .. } = self.purpose {
            self.common.board.set_holder(shard, self.candidate.holder().unwrap_or_default());
        }
    }

    /// Says if hosts with another number of shards are there.
    fn tell_excluded(&self) {
        let (shards, is_other): (usize, fn(&str, usize) -> bool) = match self.purpose {
            Purpose::Group { shards, .. } => (shards, |holder, shards| holder != group_identity(shards)),
            Purpose::Shard { group: None, .. } => (1, |holder, _| holder.ends_with(GROUP_SUFFIX)),
            Purpose::Shard { .. } => return,
        };
        let other = self.candidate.holder().filter(|holder| is_other(holder, shards));
        let reason = other.map(|holder| {
            format!(
                "Lease {} is held by `{holder}`, with another number of shards than --shards {shards} of this host: \
                 all hosts must have the same, and this one waits until those have ended",
                self.full_name()
            )
        });
        if let Some(reason) = &reason
            && self.common.board.states().excluded.is_none()
        {
            tracing::error!("{reason}");
        }
        self.common.board.set_excluded(reason);
    }

    fn complain(&mut self, what: &str, error: &ReadError) {
        let text = error.to_string();
        if text != self.said {
            tracing::warn!(lease = self.full_name(), "{what}: {text}");
            self.said = text;
        }
    }

    fn full_name(&self) -> String {
        format!("{}/{}", self.common.client.namespace(), self.name)
    }

    fn stops(&self) -> bool {
        *self.common.stop.borrow() != Stop::No
    }

    fn jittered_retry_period(&self) -> Duration {
        let retry = self.common.timing.retry_period();
        retry + random_part(retry / 5)
    }
}

/// A Lease that is about to be given up.
struct Leave {
    next: Option<String>,
    /// Until when its passes may go on.
    until: Moment,
}

const GROUP_SUFFIX: &str = " shards";

/// Under which name all hosts with so many shards hold the first Lease together.
fn group_identity(shards: usize) -> String {
    format!("{shards}{GROUP_SUFFIX}")
}

fn brief_pause() -> Duration {
    random_part(OVERTAKEN_PAUSE_MAX)
}

fn random_part(of: Duration) -> Duration {
    let part = u32::try_from(random() % 1_000).unwrap_or_default();
    of * part / 1_000
}

/// Kubernetes' MicroTime, for people.
fn wall() -> String {
    format!("{:.6}", Timestamp::now())
}
