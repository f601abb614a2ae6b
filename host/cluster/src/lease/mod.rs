//! Who may write: `coordination.k8s.io` Leases, one for each shard of the work.
//!
//! Every host watches and keeps its caches warm; the one that holds a shard's Lease makes its passes. Kubernetes'
//! client libraries leave it there and end the process when the Lease is lost. Here each write asks as well:
//!
//! - A renewal that was *sent* at some moment covers the [`timing`](Timing) duration after it, on a clock that goes on
//!   while the machine sleeps. Others count from when they have *seen* the renewal, so their count ends later; nobody
//!   believes another's wall clock. Two who take it at the same time are told apart by its resourceVersion.
//! - A write begins only with [`Timing::reserve`] left: the time that its bytes may be under way before the kernel drops
//!   them (TCP_USER_TIMEOUT), the time that the API server may take from then on (`timeout=`), and a second. So it has
//!   happened or never will before anybody else may begin.
//! - The connection looks at the clock once more, just before bytes enter the kernel. A process that was stopped in
//!   between (SIGSTOP, a frozen cgroup) or a request that waited behind others does not get out any more.
//! - A pass holds the [`Term`] that it began under and no other. A Lease that was lost and taken again is another term.
//! - A Lease is given up only after its passes have ended, and after writes that got no answer have had their time. Its
//!   next holder waits for a moment before its first pass, so that its caches show what the last one wrote.
//!
//! # What this cannot exclude
//!
//! The API server does not look at the Lease when it carries out a write, so no client can make it impossible that a
//! request arrives too late:
//!
//! - something between that acknowledges bytes and passes them on later (a proxy, a load balancer) by more than the
//!   second that is left over and what the write did not use of its time;
//! - a process that is stopped between its last look at the clock and the system call after it: about a microsecond;
//! - a machine whose clock stands still for all of its processes, as when a hypervisor stops it, at that same point;
//! - a write of one of several shards whose Lease alone is not renewed, if it waits on the connection for more than a
//!   second: the last look at the clock knows whether this host holds any Lease, not which;
//! - a holder that was killed and whose successor on the same machine knows it: what it had sent is carried out in the
//!   milliseconds that the API server takes for it (the successor waits 100 ms).
//!
//! For these, each write has a precondition that makes it harmless if the world has moved on: creations fail if the name
//! is taken, deletions and applies carry the UID, statuses, patches of lists and of Secrets the resourceVersion,
//! finalizers the position. What remains is an apply of an older version of our own configuration to the same object,
//! within moments after a takeover; the new holder's watch shows it and its next pass puts it right.
//!
//! A Lease that somebody deletes protects nobody whom it does not know: its holder creates it again and candidates that
//! had seen it wait as long as it said, but a host that starts at that moment does not know that there was one.
//!
//! # Shards
//!
//! With one shard there is one Lease. With more there are as many and one above them, which all hosts hold together under
//! the name `4 shards`; a term of a shard is only good within it. A host with another number finds that Lease taken and
//! waits. So two hosts that disagree never write at the same time, and a rollout that changes the number goes through by
//! itself.

mod balance;
mod board;
mod candidate;
mod client;
mod clock;
mod identity;
mod keeper;
mod record;
mod shards;
mod term;
mod timing;

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use self::board::Board;
use self::client::LeaseClient;
use self::identity::Identity;
use self::keeper::{Common, Keeper, Purpose, Stop};
pub use self::shards::Shards;
pub(crate) use self::term::Gate;
pub use self::term::{Term, WorkGuard};
pub use self::timing::{Timing, TimingError};
use crate::config::ConnectError;
use crate::connect::Cluster;
use crate::watches::Watches;

/// Most shards. Each costs a renewal every two seconds.
pub const SHARDS_MAX: usize = 64;
/// Releasing a Lease is one request; a write without an answer may have to be waited for before it.
const END_MAX: Duration = Duration::from_secs(9);

/// Which Leases, and as whom.
#[derive(Debug, Clone)]
pub struct LeaseOptions {
    /// Where they are.
    pub namespace: String,
    /// The only one, or what the names of all begin with.
    pub name: String,
    /// How many shards; 1 to [`SHARDS_MAX`].
    pub shards: usize,
    /// Their times.
    pub timing: Timing,
    /// The pod or machine, for people.
    pub host: String,
}

/// All Leases that hosts with these options use: the only one; or the common one, and then one for each shard.
pub fn lease_names(name: &str, shards: usize) -> Vec<String> {
    let shards = (0..shards).filter(|_| shards > 1).map(|shard| format!("{name}-{shard}"));
    std::iter::once(name.to_owned()).chain(shards).collect()
}

/// This host's part in the election. Dropping it lets its Leases run out.
pub struct Leadership {
    shards: Shards,
    stop: watch::Sender<Stop>,
    keepers: JoinSet<()>,
    /// Of the Lease above the shards'. It outlasts theirs, whose terms lie within it.
    _group: JoinSet<()>,
}

impl Leadership {
    /// Stands for election from now on. Nothing can be written through [`Cluster::writer`] any more but under a term.
    pub async fn begin(
        cluster: &Cluster,
        watches: &Watches,
        options: LeaseOptions,
    ) -> Result<Self, ConnectError> {
        let LeaseOptions { namespace, name, shards, timing, host } = options;
        let client = cluster.lease_client(timing.retry_period()).await?;
        let board = Board::new(shards);
        let (stop, stopped) = watch::channel(Stop::No);
        cluster.gate().arm();
        let common = Common {
            client: LeaseClient::new(client, &namespace, timing.request_time()),
            timing,
            identity: Identity::of_this_process(&host),
            board: board.clone(),
            gate: cluster.gate().clone(),
            stop: stopped,
        };
        let keeper =
            |name: &str, purpose| Keeper::new(common.clone(), name.to_owned(), purpose, watches).run();
        let (mut keepers, mut group) = (JoinSet::new(), JoinSet::new());
        let names = lease_names(&name, shards);
        let full_names = |names: &[String]| names.iter().map(|name| format!("{namespace}/{name}")).collect();
        let leases = match &names[..] {
            [name] => {
                keepers.spawn(keeper(name, Purpose::Shard { shard: 0, group: None }));
                full_names(&names)
            }
            [all, names @ ..] => {
                let (term, held) = watch::channel(None);
                group.spawn(keeper(all, Purpose::Group { shards, term }));
                for (shard, name) in names.iter().enumerate() {
                    keepers.spawn(keeper(name, Purpose::Shard { shard, group: Some(held.clone()) }));
                }
                full_names(names)
            }
            [] => Vec::new(),
        };
        Ok(Self { shards: Shards::new(board.subscribe(), leases), stop, keepers, _group: group })
    }

    /// The shards, for those who write.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Waits until a keeper ends by itself, which is a bug. Cancel safe.
    pub async fn failed(&mut self) {
        let _ = self.keepers.join_next().await;
    }

    /// Ends it. `passes_ended`: nothing is under way any more, so that others may take over at once; else they must
    /// wait until the Leases have run out.
    pub async fn end(mut self, passes_ended: bool) {
        self.stop.send_replace(if passes_ended { Stop::Release } else { Stop::Abandon });
        let all = async { while self.keepers.join_next().await.is_some() {} };
        if tokio::time::timeout(END_MAX, all).await.is_err() {
            tracing::warn!("Leases could not be released within {} s and run out", END_MAX.as_secs());
        }
    }
}
