//! Two hosts for the same work, each with a network of its own that fails at random instants, and what the API server
//! has to say about it: did one of them ever write an object while the Lease was the other's?

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use pilothouse_harness::{AuditEvent, Host, HostOptions, Line, Proxy, eventually};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{Account, CONFIG_MAP, DEADLINE, GREETING, World};

/// Short, so that a round takes seconds; and long enough that a machine which compiles beside the test does not come
/// between a write and its Lease.
const LEASE: Duration = Duration::from_secs(6);
const LEASE_FLAGS: [&str; 6] =
    ["--lease-duration", "6", "--lease-renew-deadline", "4", "--lease-retry-period", "0.5"];
/// Longest way of a byte. A write begins with 3.75 s of such a Lease left, so what is on its way for this long has been
/// carried out in time; see `host/cluster/src/lease`.
const SLOW_MAX: Duration = Duration::from_millis(1_500);
/// Objects that are edited all the time, so that passes are under way whenever something breaks.
const GREETINGS: u64 = 12;
/// Between two edits. The API server serves the edits, and the passes that follow each of them, and other tests.
const PACE: Duration = Duration::from_millis(15);

/// One of the two.
struct Side {
    user: String,
    host: Host,
    proxy: Proxy,
}

/// What breaks on the side of the one that leads.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Line(Line),
    /// SIGSTOP, until SIGCONT.
    Stopped,
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How often the Lease went to the other host.
    pub takeovers: usize,
    /// Successful writes of objects.
    pub writes: usize,
}

/// Lets two hosts work in this world, which must have the plugin `config-map`, and breaks something of the one that
/// leads so many times, each time at another instant and for another time. In the end all work is done.
///
/// # Panics
/// If one of them wrote while the Lease was the other's, or work was left.
pub async fn duel(world: &World, rounds: usize) -> Outcome {
    let mark = world.mark().await;
    let sides = [Side::start(world, "a").await, Side::start(world, "b").await];
    let work = Work::begin(world).await;
    let mut said = Vec::new();
    for round in 0..rounds {
        let side = leader(&sides).await;
        let fault = fault(round);
        sleep_until(Instant::now() + random_part(Duration::from_secs(2))).await;
        side.inflict(fault);
        // Every other one outlasts the Lease, and of each kind in turn.
        let is_long = (round + round / 4) % 2 == 1;
        let lasts = if is_long { LEASE * 3 / 2 } else { LEASE / 4 } + random_part(LEASE);
        sleep_until(Instant::now() + lasts).await;
        side.recover(fault);
        said.push(format!("{fault:?} of {} for {lasts:?}", side.user));
    }
    leader(&sides).await;
    work.finish(world).await;

    let events = world.events_since(mark).await;
    let users = sides.each_ref().map(|side| side.user.as_str());
    let trespasses = trespasses(&events, &users);
    assert!(trespasses.is_empty(), "{said:#?}\n{trespasses:#?}");
    let outcome = Outcome {
        takeovers: lease_writes(&events, &users)
            .windows(2)
            .filter(|pair| pair[0].user != pair[1].user)
            .count(),
        writes: object_writes(&events, &users).len(),
    };
    eprintln!("{outcome:?} in {rounds} rounds");
    outcome
}

/// Writes of objects that may have happened while the Lease was the other host's.
///
/// The API server does not say when a write took effect, only that it was between its arrival and its answer. So an
/// object's write counts from its answer (`stageTimestamp` of `ResponseComplete`), which is when it has happened at the
/// latest, and a Lease's from its arrival (`requestReceivedTimestamp`), when it cannot have happened yet: no write that
/// came second passes for one that came first. One that came first and was answered late might be called a trespass;
/// with a fence that leaves a second there is none.
pub fn trespasses(events: &[AuditEvent], users: &[&str]) -> Vec<String> {
    let leases = lease_writes(events, users);
    let object_writes = object_writes(events, users);
    let trespass = |write: &&AuditEvent| {
        let last = leases.iter().rev().find(|lease| lease.received <= write.reached);
        match last {
            Some(lease) if lease.user == write.user => None,
            Some(lease) => Some(format!(
                "{} {} {} of {} arrived {} answered {}, but {} wrote the Lease at {}",
                write.verb,
                write.resource,
                write.name,
                write.user,
                write.received,
                write.reached,
                lease.user,
                lease.received
            )),
            None => Some(format!(
                "{} {} {} of {} without a Lease",
                write.verb, write.resource, write.name, write.user
            )),
        }
    };
    object_writes.iter().filter_map(trespass).collect()
}

/// Those of the Lease, in the order in which they arrived.
fn lease_writes<'a>(events: &'a [AuditEvent], users: &[&str]) -> Vec<&'a AuditEvent> {
    let mut leases: Vec<_> =
        successful_writes(events, users).filter(|event| event.resource == "leases").collect();
    leases.sort_by_key(|event| event.received);
    leases
}

fn object_writes<'a>(events: &'a [AuditEvent], users: &[&str]) -> Vec<&'a AuditEvent> {
    successful_writes(events, users).filter(|event| event.resource != "leases").collect()
}

fn successful_writes<'a>(events: &'a [AuditEvent], users: &[&str]) -> impl Iterator<Item = &'a AuditEvent> {
    let users: Vec<String> = users.iter().map(|user| (*user).to_owned()).collect();
    events.iter().filter(move |event| {
        users.contains(&event.user)
            && event.is_write()
            && !event.is_dry_run()
            && (200..300).contains(&event.code)
    })
}

impl Side {
    async fn start(world: &World, name: &str) -> Self {
        let Account { user, kubeconfig } = world.account(name, 1).await;
        let upstream: SocketAddr = world.plane.url().trim_start_matches("https://").parse().unwrap();
        let proxy = Proxy::start(upstream).await.unwrap();
        let mut options = HostOptions {
            kubeconfig: proxy.kubeconfig(&kubeconfig).unwrap(),
            arguments: LEASE_FLAGS.map(str::to_owned).to_vec(),
            ..world.options()
        };
        options.environment.insert("POD_NAME".to_owned(), format!("host-{name}"));
        Self { user, host: Host::start(options).await.unwrap(), proxy }
    }

    async fn leads(&self) -> anyhow::Result<bool> {
        Ok(self.host.metrics().await?.sum("leader_election_master_status", &[]) > 0.0)
    }

    fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Line(line) => self.proxy.set(line),
            Fault::Stopped => self.host.pause().unwrap(),
        }
    }

    fn recover(&self, fault: Fault) {
        match fault {
            Fault::Line(_) => self.proxy.set(Line::Good),
            Fault::Stopped => self.host.resume().unwrap(),
        }
    }
}

async fn leader(sides: &[Side; 2]) -> &Side {
    eventually(DEADLINE, "one of the two to lead", || async {
        for side in sides {
            if side.leads().await? {
                return Ok(Some(side));
            }
        }
        anyhow::Ok(None)
    })
    .await
}

fn fault(round: usize) -> Fault {
    match round % 4 {
        0 => Fault::Line(Line::Silent),
        1 => Fault::Stopped,
        2 => Fault::Line(Line::Reset),
        _ => Fault::Line(Line::Slow(random_part(SLOW_MAX))),
    }
}

fn random_part(of: Duration) -> Duration {
    of * u32::try_from(RandomState::new().hash_one(0) % 1_000).unwrap() / 1_000
}

/// Greetings that somebody edits in turn.
struct Work {
    edits: Arc<AtomicU64>,
    task: JoinSet<()>,
}

impl Work {
    async fn begin(world: &World) -> Self {
        for greeting in 0..GREETINGS {
            let object = json!({"apiVersion": GREETING.0, "kind": GREETING.1,
                                "metadata": {"name": name(greeting)}, "spec": {"text": "hello"}});
            world.create(GREETING, &object).await;
        }
        let edits = Arc::new(AtomicU64::new(0));
        let (greetings, count) = (GREETING.api(&world.client, &world.namespace), Arc::clone(&edits));
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let edit = count.load(Ordering::Relaxed);
                let patch = Patch::Merge(json!({"spec": {"text": text(edit)}}));
                let due = Instant::now() + PACE;
                greetings.patch(&name(edit % GREETINGS), &PatchParams::default(), &patch).await.unwrap();
                count.store(edit + 1, Ordering::Relaxed);
                sleep_until(due).await;
            }
        });
        Self { edits, task }
    }

    /// Stops the edits and waits until every ConfigMap says what its Greeting said last.
    async fn finish(mut self, world: &World) {
        self.task.shutdown().await;
        let edits = self.edits.load(Ordering::Relaxed);
        assert!(edits > GREETINGS, "nothing was edited");
        for greeting in 0..GREETINGS {
            eventually(DEADLINE, "every edit to be carried out", || async {
                let wanted = GREETING.api(&world.client, &world.namespace).get(&name(greeting)).await?;
                let made = CONFIG_MAP.api(&world.client, &world.namespace).get(&name(greeting)).await?;
                let (wanted, made) = (&wanted.data["spec"]["text"], &made.data["data"]["text"]);
                anyhow::ensure!(wanted == made, "{wanted} is wanted, {made} is there");
                Ok(true)
            })
            .await;
        }
        eprintln!("{edits} edits");
    }
}

fn name(greeting: u64) -> String {
    format!("greeting-{greeting}")
}

fn text(edit: u64) -> String {
    format!("edit {edit}")
}

#[cfg(test)]
mod tests {
    use pilothouse_harness::audit::Stage;

    use super::*;

    fn write(user: &str, resource: &str, code: u16, received: u32, reached: u32) -> AuditEvent {
        let at = |second: u32| format!("2025-01-02T03:04:{second:02}Z").parse().unwrap();
        AuditEvent {
            id: String::new(),
            stage: Stage::ResponseComplete,
            user: user.to_owned(),
            impersonated_user: None,
            user_agent: String::new(),
            verb: "patch".to_owned(),
            uri: String::new(),
            api_group: String::new(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            code,
            received: at(received),
            reached: at(reached),
        }
    }

    #[test]
    fn a_write_after_the_others_lease_is_a_trespass_and_nothing_else_is() {
        let found = |events: &[AuditEvent]| trespasses(events, &["a", "b"]).len();
        let lease = |user, at| write(user, "leases", 200, at, at);
        let history =
            [lease("a", 1), write("a", "pods", 200, 2, 3), lease("b", 9), write("b", "pods", 200, 10, 11)];
        assert_eq!(found(&history), 0);
        let with = |event: AuditEvent| found(&[&history[..], &[event]].concat());
        assert_eq!(with(write("a", "pods", 201, 10, 10)), 1);
        assert_eq!(with(write("a", "pods", 200, 8, 10)), 1, "it may have happened after");
        assert_eq!(with(write("b", "pods", 200, 7, 8)), 1);
        assert_eq!(with(write("a", "pods", 200, 0, 0)), 1, "nobody held it");
        assert_eq!(with(write("a", "pods", 409, 10, 10)), 0, "refused");
        assert_eq!(with(write("c", "pods", 200, 10, 10)), 0, "somebody else");
        assert_eq!(with(write("a", "leases", 409, 12, 12)), 0);
    }
}
