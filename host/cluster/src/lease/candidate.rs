//! What one host knows of one Lease, and what follows from it. Pure: moments and answers are arguments, requests are
//! results.
//!
//! The rule is client-go's. Nobody believes another's wall clock: `renewTime` is written for people. A candidate
//! remembers when *it* saw the Lease change last, and takes it when it has seen no change for as long as the holder
//! said. It measures from the answer that showed the change; the holder from before the request that made it. So the
//! holder's count ends first, however slow both of their networks are. That two take it at once is excluded by the
//! version that each write carries.

use std::time::Duration;

use super::clock::Moment;
use super::record::Lease;
use super::timing::Timing;

/// How long a holder must have been seen dead before its Lease is taken: the API server notices the end of its
/// connections at once, and carries out what had arrived in milliseconds.
const LAST_REQUESTS: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Candidate {
    name: String,
    identity: String,
    timing: Timing,
    /// The Lease as it was seen last, also after it has vanished.
    seen: Option<Seen>,
    /// Before the request was sent that renewed it last. None: others may hold it.
    renewed: Option<Moment>,
}

#[derive(Debug)]
struct Seen {
    lease: Lease,
    /// When its holder's last change was seen first.
    changed: Moment,
    /// It was not there any more at the last look.
    vanished: bool,
    /// When its holder was first known to be dead.
    dead: Option<Moment>,
}

/// What a candidate may do about a Lease that it does not hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Claim {
    /// Write this; then it is held.
    Take(Lease),
    /// Not before this moment, as far as is known now.
    Wait(Moment),
}

impl Candidate {
    pub(crate) fn new(name: &str, identity: &str, timing: Timing) -> Self {
        Self { name: name.to_owned(), identity: identity.to_owned(), timing, seen: None, renewed: None }
    }

    /// The API server answered a look, or a write of this host's own, with this. `answered`: when.
    pub(crate) fn saw(&mut self, lease: Option<Lease>, answered: Moment) {
        match (lease, &mut self.seen) {
            (None, Some(seen)) => seen.vanished = true,
            (None, None) => {}
            (Some(lease), Some(seen)) if !seen.vanished && lease.is_unrenewed_since(&seen.lease) => {
                seen.lease = lease; // in another version, perhaps
            }
            (Some(lease), seen) => {
                *seen = Some(Seen { lease, changed: answered, vanished: false, dead: None });
            }
        }
        // One that vanished is still this host's to create again, until its time is up.
        if self.holder() != Some(&*self.identity) {
            self.renewed = None;
        }
    }

    /// A write of this host's own, sent at this moment, made the Lease what it is now.
    pub(crate) fn wrote(&mut self, lease: Lease, sent: Moment, answered: Moment) {
        let held = lease.holder() == Some(&*self.identity);
        self.saw(Some(lease), answered);
        self.renewed = held.then_some(sent);
    }

    /// The holder could not renew it in time, or gives it up without a word.
    pub(crate) fn lose(&mut self) {
        self.renewed = None;
    }

    /// Who holds it as far as is known; none: nobody.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.seen.as_ref()?.lease.holder()
    }

    /// Who would like to have it.
    pub(crate) fn asked_by(&self) -> Option<&str> {
        self.seen.as_ref()?.lease.asked_by()
    }

    /// What a candidate may do that does not hold it. `patience`: how long it leaves a free Lease to others first.
    /// `is_dead`: whether a holder's process has certainly ended.
    pub(crate) fn claim(
        &mut self,
        now: Moment,
        wall: &str,
        patience: Duration,
        is_dead: impl Fn(&str) -> bool,
    ) -> Claim {
        let duration = self.timing.duration();
        let Some(seen) = &mut self.seen else {
            return Claim::Take(Lease::new(&self.name, &self.identity, duration, wall));
        };
        let free = match seen.lease.holder() {
            // Nobody else has this name: an answer was lost, or this host gave up too soon.
            Some(holder) if holder == self.identity => now,
            None => seen.changed + patience,
            Some(holder) => {
                if seen.dead.is_none() && is_dead(holder) {
                    seen.dead = Some(now);
                }
                let ends = seen.changed + seen.lease.duration().unwrap_or(duration);
                // Also of one that has vanished: whoever deleted it did not ask its holder.
                seen.dead.map_or(ends, |dead| ends.min(dead + LAST_REQUESTS)) + patience
            }
        };
        if now < free {
            return Claim::Wait(free);
        }
        let lease = if seen.lease.holder() == Some(&*self.identity) {
            seen.lease.renewed(&self.identity, duration, wall)
        } else {
            seen.lease.taken(&self.identity, duration, wall)
        };
        Claim::Take(if seen.vanished { lease.reborn(&self.name) } else { lease })
    }

    /// What the holder writes to go on holding it. None: it does not hold it any more.
    pub(crate) fn renewal(&self, wall: &str) -> Option<Lease> {
        self.renewed?;
        let seen = self.seen.as_ref()?;
        let lease = seen.lease.renewed(&self.identity, self.timing.duration(), wall);
        Some(if seen.vanished { lease.reborn(&self.name) } else { lease })
    }

    /// What the holder writes when it gives it up, with whom it leaves it to. None: it does not hold it any more.
    pub(crate) fn release(&self, next: Option<&str>, wall: &str) -> Option<Lease> {
        self.renewed?;
        let seen = self.seen.as_ref().filter(|seen| !seen.vanished)?;
        Some(seen.lease.released(next, wall))
    }

    /// The Lease with the question whether this host may have it. None: it is not there, or was asked for already.
    pub(crate) fn question(&self) -> Option<Lease> {
        let seen = self.seen.as_ref().filter(|seen| !seen.vanished)?;
        (seen.lease.asked_by() != Some(&*self.identity)).then(|| seen.lease.asked(&self.identity))
    }

    /// Until when writes of the holder are covered: counted from before the renewal was sent. None: it holds nothing.
    pub(crate) fn covered_until(&self) -> Option<Moment> {
        Some(self.renewed? + self.timing.duration())
    }

    /// When the holder gives up unless it renews.
    pub(crate) fn gives_up_at(&self) -> Option<Moment> {
        Some(self.renewed? + self.timing.renew_deadline())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LATE: f64 = 0.3;

    fn candidate(identity: &str) -> Candidate {
        Candidate::new("pilothouse", identity, Timing::default())
    }

    fn at(seconds: f64) -> Moment {
        Moment::at(seconds)
    }

    /// An API server with one Lease: what it stores when a write's version fits.
    #[derive(Default)]
    struct Server {
        lease: Option<Lease>,
        versions: u64,
    }

    impl Server {
        fn write(&mut self, lease: &Lease) -> Option<Lease> {
            let stored: Option<serde_json::Value> =
                self.lease.as_ref().map(|lease| serde_json::from_slice(&lease.to_body()).unwrap());
            let mut sent: serde_json::Value = serde_json::from_slice(&lease.to_body()).unwrap();
            let version = |lease: &serde_json::Value| lease["metadata"]["resourceVersion"].clone();
            let current = stored.as_ref().map(version).unwrap_or_default();
            if version(&sent) != current {
                return None;
            }
            self.versions += 1;
            sent["metadata"]["resourceVersion"] = self.versions.to_string().into();
            let uid = stored.map_or_else(|| self.versions.into(), |stored| stored["metadata"]["uid"].clone());
            sent["metadata"]["uid"] = uid;
            self.lease = Some(Lease::parse(&sent.to_string()).unwrap());
            self.lease.clone()
        }
    }

    fn take(candidate: &mut Candidate, server: &mut Server, now: f64) -> bool {
        candidate.saw(server.lease.clone(), at(now));
        let Claim::Take(lease) = candidate.claim(at(now), "wall", Duration::ZERO, |_| false) else {
            return false;
        };
        let answer = server.write(&lease);
        let won = answer.is_some();
        if let Some(lease) = answer {
            candidate.wrote(lease, at(now), at(now + LATE));
        }
        won
    }

    fn renew(candidate: &mut Candidate, server: &mut Server, now: f64) {
        let lease = candidate.renewal("later").unwrap();
        let stored = server.write(&lease).unwrap();
        candidate.wrote(stored, at(now), at(now + LATE));
    }

    #[test]
    fn a_lease_is_taken_when_it_did_not_change_for_as_long_as_it_says() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        assert!(take(&mut a, &mut server, 0.0));
        assert_eq!(a.covered_until(), Some(at(15.0)));
        assert!(!take(&mut b, &mut server, 1.0));
        assert_eq!(b.claim(at(1.0), "", Duration::ZERO, |_| false), Claim::Wait(at(16.0)));
        renew(&mut a, &mut server, 2.0);
        assert!(!take(&mut b, &mut server, 2.5));
        assert!(!take(&mut b, &mut server, 17.4), "changed at 2.5 as far as it knows");
        assert!(take(&mut b, &mut server, 17.5));
        assert_eq!((b.covered_until(), a.covered_until()), (Some(at(32.5)), Some(at(17.0))));
        a.saw(server.lease, at(18.0));
        assert_eq!((a.covered_until(), a.renewal(""), a.release(None, "")), (None, None, None));
    }

    #[test]
    fn of_two_who_take_it_at_once_one_does() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        let claims = [&mut a, &mut b].map(|one| one.claim(at(0.0), "", Duration::ZERO, |_| false));
        let won = claims.map(|claim| {
            let Claim::Take(lease) = claim else { panic!("{claim:?}") };
            server.write(&lease).is_some()
        });
        assert_eq!(won, [true, false]);
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_first_by_whom_it_was_left_to() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        assert!(take(&mut a, &mut server, 0.0));
        let released = a.release(Some("b"), "").unwrap();
        let stored = server.write(&released).unwrap();
        a.wrote(stored, at(1.0), at(1.1));
        assert_eq!((a.covered_until(), a.asked_by(), a.holder()), (None, Some("b"), None));
        let patience = Duration::from_secs(4);
        assert_eq!(a.claim(at(2.0), "", patience, |_| false), Claim::Wait(at(5.1)));
        assert!(take(&mut b, &mut server, 2.0));
    }

    #[test]
    fn a_dead_holder_is_not_waited_for() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        assert!(take(&mut a, &mut server, 0.0));
        b.saw(server.lease, at(0.2));
        let claim = |b: &mut Candidate, now| b.claim(at(now), "", Duration::ZERO, |holder| holder == "a");
        assert_eq!(claim(&mut b, 0.5), Claim::Wait(at(0.6)));
        assert!(matches!(claim(&mut b, 0.6), Claim::Take(_)));
    }

    #[test]
    fn a_question_does_not_keep_a_dead_holder_alive() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        assert!(take(&mut a, &mut server, 0.0));
        b.saw(server.lease.clone(), at(0.0));
        let question = b.question().unwrap();
        b.wrote(server.write(&question).unwrap(), at(9.0), at(9.1));
        assert_eq!((b.question(), b.covered_until(), b.asked_by()), (None, None, Some("b")));
        assert!(take(&mut b, &mut server, 15.0));
    }

    #[test]
    fn a_deleted_lease_comes_back_with_its_holder_and_others_respect_it_meanwhile() {
        let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
        assert!(take(&mut a, &mut server, 0.0));
        b.saw(server.lease.clone(), at(0.5));
        server.lease = None;
        assert!(!take(&mut b, &mut server, 10.0));
        a.saw(None, at(10.0));
        renew(&mut a, &mut server, 10.0);
        assert_eq!(a.covered_until(), Some(at(25.0)));
        assert!(!take(&mut b, &mut server, 20.0), "a change was seen at 20");
        server.lease = None;
        assert!(!take(&mut b, &mut server, 34.9));
        assert!(take(&mut b, &mut server, 35.0));
    }

    #[test]
    fn a_write_whose_answer_was_lost_is_found_again() {
        let (mut server, mut a) = (Server::default(), candidate("a"));
        let Claim::Take(lease) = a.claim(at(0.0), "", Duration::ZERO, |_| false) else { panic!() };
        server.write(&lease).unwrap();
        assert!(take(&mut a, &mut server, 5.0));
        assert_eq!(a.covered_until(), Some(at(20.0)), "counted anew");
    }

    /// What may happen to one of two hosts in a step.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// It looks, and takes or renews as it may. The request and the answer travel for these tenths of a second.
        Acts { request: u8, answer: u8 },
        /// The same, and the answer is lost.
        ActsUnanswered { request: u8 },
        /// It hands over, if it can.
        Releases,
    }

    fn steps() -> impl Strategy<Value = Vec<(usize, u8, Step)>> {
        let step = prop_oneof![
            6 => (0..40_u8, 0..40_u8).prop_map(|(request, answer)| Step::Acts { request, answer }),
            2 => (0..40_u8).prop_map(|request| Step::ActsUnanswered { request }),
            1 => Just(Step::Releases),
        ];
        prop::collection::vec((0..3_usize, 0..100_u8, step), 1..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is slow, lost or given up: at no moment do two believe that they are covered.
        #[test]
        fn two_are_never_covered_at_once(steps in steps()) {
            let mut server = Server::default();
            let mut hosts = ["a", "b", "c"].map(candidate);
            let mut now = 0.0;
            for (who, after, step) in steps {
                now += f64::from(after) / 10.0;
                let host = &mut hosts[who];
                if host.gives_up_at().is_some_and(|end| at(now) >= end) {
                    host.lose();
                }
                let (request, answer) = match step {
                    Step::Acts { request, answer } => (request, Some(answer)),
                    Step::ActsUnanswered { request } => (request, None),
                    Step::Releases => (0, Some(0)),
                };
                host.saw(server.lease.clone(), at(now));
                let sent = now;
                let write = match (step, host.renewal("")) {
                    (Step::Releases, _) => host.release(None, ""),
                    (_, Some(renewal)) => Some(renewal),
                    (_, None) => match host.claim(at(now), "", Duration::ZERO, |_| false) {
                        Claim::Take(lease) => Some(lease),
                        Claim::Wait(_) => None,
                    },
                };
                // The clock goes on while the request travels; the others' turns come after it.
                now += f64::from(request) / 10.0;
                if let Some(stored) = write.and_then(|write| server.write(&write)) {
                    now += f64::from(answer.unwrap_or_default()) / 10.0;
                    if answer.is_some() {
                        hosts[who].wrote(stored, at(sent), at(now));
                    }
                }
                let covered: Vec<&str> = hosts
                    .iter()
                    .filter(|host| host.covered_until().is_some_and(|end| at(now) < end))
                    .map(|host| &*host.identity)
                    .collect();
                prop_assert!(covered.len() <= 1, "at {now}: {covered:?}");
            }
        }
    }
}
