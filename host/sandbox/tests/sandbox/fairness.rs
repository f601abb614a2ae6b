//! Whose turn it is: looping plugins share what is left over, quick ones hardly notice them, and whoever is gone or too
//! late is let go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CallError, Compiler, Prepared, Sandbox, SandboxOptions};

use crate::guests::{prepare, request, sandbox};

/// For what takes milliseconds, on a machine that does much else.
const SOON: Duration = Duration::from_secs(30);

fn one_permit() -> (Arc<Sandbox>, Arc<Prepared>) {
    let sandbox =
        Sandbox::new(SandboxOptions { permits: 1, ..SandboxOptions::new(Compiler::InProcess) }).unwrap();
    let hostile = prepare(&sandbox, pilothouse_guests::hostile());
    (Arc::new(sandbox), hostile)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

/// A minute of everything.
const ENDLESS: Limits =
    Limits { cpu_ms: 60_000, wait_ms: 60_000, memory_bytes: 64 << 20, actions: 2_000, output_bytes: 8 << 20 };

#[test]
fn a_hundred_loops_of_ten_plugins_hardly_delay_a_neighbour() {
    let sandbox = Arc::new(sandbox());
    let neighbour = prepare(&sandbox, pilothouse_guests::steady());
    let loops: Vec<Arc<Prepared>> = (0..10)
        .map(|number| prepare(&sandbox, &pilothouse_guests::variant(pilothouse_guests::hostile(), number)))
        .collect();
    runtime().block_on(async {
        let limits = Limits { cpu_ms: 250, wait_ms: 2_000, ..Limits::default() };
        let looping: Vec<_> = loops
            .iter()
            .flat_map(|plugin| std::iter::repeat_n(plugin, 10))
            .map(|plugin| {
                let (sandbox, plugin) = (Arc::clone(&sandbox), Arc::clone(plugin));
                tokio::spawn(async move {
                    sandbox.reconcile(&plugin, &limits, Arc::new(request("loop", 0))).await.result
                })
            })
            .collect();
        let mut delays = Vec::new();
        while !looping.iter().all(tokio::task::JoinHandle::is_finished) {
            let begun = Instant::now();
            let reply = sandbox.reconcile(&neighbour, &Limits::default(), Arc::new(request("", 0))).await;
            assert!(reply.result.is_ok(), "{reply:?}");
            delays.push(begun.elapsed());
            // The pace of an ordinary plugin: its queue is not always full.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for looping in looping {
            let error = looping.await.unwrap().unwrap_err();
            assert!(matches!(error, CallError::CpuLimit { .. } | CallError::WaitLimit { .. }), "{error}");
        }
        delays.sort();
        let median = delays[delays.len() / 2];
        assert!(delays.len() > 20, "only {} calls of the neighbour while others looped", delays.len());
        // Without turns it would be a second; the bench has the figures.
        assert!(
            median < Duration::from_millis(50),
            "median {median:?}, longest {:?}",
            delays[delays.len() - 1]
        );
    });
}

#[test]
fn a_slow_call_ends_well_among_quick_ones() {
    let (sandbox, hostile) = one_permit();
    let quick = prepare(&sandbox, pilothouse_guests::steady());
    runtime().block_on(async {
        let slow = tokio::spawn({
            let (sandbox, hostile) = (Arc::clone(&sandbox), Arc::clone(&hostile));
            async move { sandbox.reconcile(&hostile, &ENDLESS, Arc::new(request("work", 100_000_000))).await }
        });
        let begun = Instant::now();
        while !slow.is_finished() {
            assert!(begun.elapsed() < SOON, "starved");
            let calls = (0..8).map(|_| sandbox.reconcile(&quick, &ENDLESS, Arc::new(request("", 0))));
            for reply in futures::future::join_all(calls).await {
                assert!(reply.result.is_ok(), "{reply:?}");
            }
        }
        let reply = slow.await.unwrap();
        assert!(reply.result.is_ok(), "{reply:?}");
    });
}

#[test]
fn a_dropped_future_stops_its_call() {
    let (sandbox, hostile) = one_permit();
    runtime().block_on(async {
        for _ in 0..3 {
            // While it loops, no other call of its plugin may start: the plugin is slow, and there is one permit.
            let looping = sandbox.reconcile(&hostile, &ENDLESS, Arc::new(request("loop", 0)));
            assert!(tokio::time::timeout(Duration::from_millis(50), looping).await.is_err());
        }
        let begun = Instant::now();
        let reply = sandbox.reconcile(&hostile, &ENDLESS, Arc::new(request("child", 0))).await;
        assert!(reply.result.is_ok() && begun.elapsed() < SOON, "{reply:?}");
    });
}

#[test]
fn a_call_that_waits_too_long_says_so() {
    let (sandbox, hostile) = one_permit();
    runtime().block_on(async {
        let looping = sandbox.reconcile(&hostile, &ENDLESS, Arc::new(request("loop", 0)));
        let waiting = async {
            // Until the plugin counts as slow, so that its next call has to wait for the end of this one.
            loop {
                let limits = Limits { wait_ms: 50, ..Limits::default() };
                let reply = sandbox.reconcile(&hostile, &limits, Arc::new(request("child", 0))).await;
                if let Err(error) = reply.result {
                    assert_eq!(error, CallError::WaitLimit { limit: Duration::from_millis(50) });
                    assert!(reply.usage.wait >= Duration::from_millis(50), "{:?}", reply.usage);
                    assert_eq!(reply.usage.cpu, Duration::ZERO);
                    break;
                }
            }
        };
        tokio::select! {
            reply = looping => panic!("{reply:?}"),
            waited = tokio::time::timeout(SOON, waiting) => waited.unwrap(),
        }
    });
}

#[test]
fn closing_stops_running_and_waiting_calls() {
    let (sandbox, hostile) = one_permit();
    let (begun, calls) = (Instant::now(), 5);
    let (sender, receiver) = std::sync::mpsc::channel();
    let runtime = runtime();
    for _ in 0..calls {
        let (sandbox, hostile, sender) = (Arc::downgrade(&sandbox), Arc::clone(&hostile), sender.clone());
        runtime.spawn(async move {
            // Submitted while the sandbox is there; the future that waits does not keep it.
            let Some(sandbox) = sandbox.upgrade() else { return };
            let call = sandbox.reconcile(&hostile, &ENDLESS, Arc::new(request("loop", 0)));
            let reply = tokio::time::timeout(Duration::from_millis(200), call).await;
            sender.send(reply.is_err()).unwrap();
        });
    }
    drop(sender);
    assert_eq!(receiver.iter().filter(|late| *late).count(), calls);
    drop(runtime);
    drop(sandbox);
    assert!(begun.elapsed() < SOON);
}

#[test]
fn all_calls_together_have_a_memory_limit_too() {
    let options = SandboxOptions { memory_bytes_max: 32 << 20, ..SandboxOptions::new(Compiler::InProcess) };
    let sandbox = Sandbox::new(options).unwrap();
    let hostile = prepare(&sandbox, pilothouse_guests::hostile());
    let call = |behaviour| {
        sandbox.reconcile_blocking(&hostile, &Limits::default(), Arc::new(request(behaviour, 0))).result
    };
    assert_eq!(call("allocate"), Err(CallError::MemoryLimit { limit_bytes: 32 << 20, shared: true }));
    assert!(call("child").is_ok(), "memory was not given back");
}
