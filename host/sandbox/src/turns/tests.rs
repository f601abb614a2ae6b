//! The rules of the queue, with jobs that are closures: no guest, no engine.

use std::sync::mpsc::{self, Receiver, Sender};

use super::*;

/// For what takes microseconds, on a machine that does much else.
const SOON: Duration = Duration::from_secs(30);

struct Call<F>(F);

impl<F: FnOnce(Result<Turn, Stop>) + Send> Job for Call<F> {
    fn run(self: Box<Self>, turn: Turn) {
        (self.0)(Ok(turn));
    }

    fn refuse(self: Box<Self>, stop: Stop, _waited: Duration) {
        (self.0)(Err(stop));
    }
}

fn turns(permits: usize) -> Turns {
    Turns::new(permits, || {}).unwrap()
}

fn terms() -> Terms {
    Terms { cpu: SOON, wait: SOON, abandoned: Arc::default() }
}

fn submit(turns: &Turns, lane: &Arc<Lane>, call: impl FnOnce(Result<Turn, Stop>) + Send + 'static) {
    turns.submit(lane, terms(), Box::new(Call(call)));
}

/// A guest that loops: ticks until it is stopped, or `until` has a message.
fn spin(mut turn: Turn, until: &Receiver<()>) -> Result<(), Stop> {
    while until.try_recv().is_err() {
        turn.tick()?;
    }
    Ok(())
}

/// A call that holds its permit until the sender is used or dropped.
fn gate(turns: &Turns) -> Sender<()> {
    let ((opened, open), (began, begun)) = (mpsc::channel(), mpsc::channel());
    submit(turns, &Arc::default(), move |turn| {
        let _turn = turn.unwrap();
        began.send(()).unwrap();
        let _ = open.recv();
    });
    begun.recv_timeout(SOON).unwrap();
    opened
}

#[test]
fn no_more_than_the_permitted_calls_run_and_all_do() {
    let turns = turns(2);
    let running = Arc::new(AtomicUsize::new(0));
    let (sender, results) = mpsc::channel();
    let lanes: Vec<Arc<Lane>> = (0..5).map(|_| Arc::default()).collect();
    for lane in lanes.iter().cycle().take(100) {
        let (running, sender) = (Arc::clone(&running), sender.clone());
        submit(&turns, lane, move |turn| {
            let turn = turn.unwrap();
            let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            drop(turn);
            sender.send(at_once).unwrap();
        });
    }
    drop(sender);
    let at_once: Vec<usize> = results.iter().collect();
    assert_eq!(at_once.len(), 100);
    assert!(at_once.iter().all(|at_once| *at_once <= 2), "{at_once:?}");
}

/// The order in which calls run that were all waiting when the only permit became free.
fn order(turns: &Turns, calls: &[(&Arc<Lane>, &'static str)]) -> Vec<&'static str> {
    let gate = gate(turns);
    let (sender, order) = mpsc::channel();
    for (lane, name) in calls {
        let (sender, name) = (sender.clone(), *name);
        submit(turns, lane, move |turn| {
            sender.send(name).unwrap();
            drop(turn);
        });
    }
    drop((gate, sender));
    order.iter().collect()
}

#[test]
fn lanes_take_turns() {
    let turns = turns(1);
    let (busy, other) = (Arc::default(), Arc::default());
    // Once each, so that both are known.
    order(&turns, &[(&busy, "a"), (&other, "x")]);
    assert_eq!(
        order(&turns, &[(&busy, "a"), (&busy, "b"), (&busy, "c"), (&other, "x")]),
        ["a", "x", "b", "c"]
    );
}

#[test]
fn plugins_that_are_known_to_be_quick_go_first_but_not_for_ever() {
    let turns = turns(1);
    let (known, new) = (Arc::default(), Arc::default());
    order(&turns, &[(&known, "k")]);
    let mut calls = vec![(&new, "n")];
    calls.extend([(&known, "k"); 6]);
    let order = order(&turns, &calls);
    let overtaken = order.iter().take_while(|name| **name == "k").count();
    assert!((1..=4).contains(&overtaken), "{order:?}");
    assert_eq!(order.len(), 7);
}

#[test]
fn a_slow_call_gives_way_and_comes_back() {
    let turns = turns(1);
    let ((end, until), (sender, ended)) = (mpsc::channel(), mpsc::channel());
    submit(&turns, &Arc::default(), move |turn| sender.send(spin(turn.unwrap(), &until)).unwrap());
    // The only permit is taken; this call can only run if it is given up.
    submit(&turns, &Arc::default(), move |turn| {
        drop(turn.unwrap());
        end.send(()).unwrap();
    });
    assert_eq!(ended.recv_timeout(SOON).unwrap(), Ok(()));
}

#[test]
fn a_slow_plugin_has_no_more_started_calls_than_there_are_permits() {
    let turns = turns(2);
    let slow: Arc<Lane> = Arc::default();
    let ((began, begun), (sender, ended)) = (mpsc::channel(), mpsc::channel());
    let mut ends = Vec::new();
    for _ in 0..10 {
        let (end, until) = mpsc::channel();
        ends.push(end);
        let (began, sender) = (began.clone(), sender.clone());
        submit(&turns, &slow, move |turn| {
            let turn = turn.unwrap();
            began.send(()).unwrap();
            sender.send(spin(turn, &until)).unwrap();
        });
    }
    for _ in 0..2 {
        begun.recv_timeout(SOON).unwrap();
    }
    // Others get their turns meanwhile, many times, and none of the waiting calls has used one.
    for _ in 0..100 {
        let (sender, done) = mpsc::channel();
        submit(&turns, &Arc::default(), move |turn| {
            drop(turn);
            sender.send(()).unwrap();
        });
        done.recv_timeout(SOON).unwrap();
    }
    assert!(begun.try_recv().is_err(), "a third call of the slow plugin was started");
    for end in ends {
        end.send(()).unwrap();
    }
    for _ in 0..10 {
        assert_eq!(ended.recv_timeout(SOON).unwrap(), Ok(()));
    }
}

#[test]
fn cpu_time_is_charged_and_waiting_is_not() {
    let turns = turns(1);
    let (sender, used) = mpsc::channel();
    let gate = gate(&turns);
    let terms = Terms { cpu: Duration::from_millis(20), ..terms() };
    let call = move |turn: Result<Turn, Stop>| {
        let mut turn = turn.unwrap();
        while turn.tick().is_ok() {}
        sender.send((turn.cpu(), turn.waited(), turn.tick())).unwrap();
    };
    let waits_from = Instant::now();
    turns.submit(&Arc::default(), terms, Box::new(Call(call)));
    while waits_from.elapsed() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
    drop(gate);
    let (cpu, waited, end) = used.recv_timeout(SOON).unwrap();
    assert_eq!(end, Err(Stop::Cpu));
    assert!(cpu >= Duration::from_millis(20) && cpu < Duration::from_secs(1), "{cpu:?}");
    assert!(waited >= Duration::from_millis(50), "{waited:?}");
}

#[test]
fn whoever_waits_too_long_or_is_gone_is_refused() {
    let turns = turns(1);
    let _gate = gate(&turns);
    let (sender, refused) = mpsc::channel();
    for (terms, expected) in [
        (Terms { wait: Duration::from_millis(10), ..terms() }, Stop::Wait),
        (Terms { abandoned: Arc::new(AtomicBool::new(true)), ..terms() }, Stop::Closed),
    ] {
        let sender = sender.clone();
        let call = move |turn: Result<Turn, Stop>| sender.send((turn.err(), expected)).unwrap();
        turns.submit(&Arc::default(), terms, Box::new(Call(call)));
    }
    for _ in 0..2 {
        let (stop, expected) = refused.recv_timeout(SOON).unwrap();
        assert_eq!(stop, Some(expected));
    }
}

#[test]
fn closing_stops_what_runs_and_refuses_what_waits() {
    let turns = turns(1);
    let (sender, stopped) = mpsc::channel();
    let (began, begun) = mpsc::channel();
    let (_end, until) = mpsc::channel();
    let lane: Arc<Lane> = Arc::default();
    let looping = sender.clone();
    submit(&turns, &lane, move |turn| {
        began.send(()).unwrap();
        looping.send(spin(turn.unwrap(), &until)).unwrap();
    });
    begun.recv_timeout(SOON).unwrap();
    submit(&turns, &lane, move |turn| sender.send(turn.map(drop)).unwrap());
    drop(turns);
    // All threads have ended, so both answers are there.
    assert_eq!(stopped.try_iter().collect::<Vec<_>>(), [Err(Stop::Closed); 2]);
}

#[test]
fn a_call_that_panics_takes_nothing_along() {
    let turns = turns(1);
    submit(&turns, &Arc::default(), |turn| {
        let _turn = turn.unwrap();
        panic!("a bug of the host, as this test wants it");
    });
    let (sender, done) = mpsc::channel();
    submit(&turns, &Arc::default(), move |turn| sender.send(turn.is_ok()).unwrap());
    assert_eq!(done.recv_timeout(SOON), Ok(true));
}
