use std::collections::BTreeSet;
use std::time::Duration;

use pilothouse_cluster::queue::{QueueSettings, Scheduler, Wake};
use pilothouse_model::names::{Digest, Generation, Key};
use pilothouse_model::settings::BackoffSettings;
use pilothouse_sandbox::Usage;

use super::controller::PassResult;
use super::*;

fn queue() -> Queue {
    let settings = QueueSettings { backoff: BackoffSettings::default(), resync: Duration::from_mins(10) };
    Scheduler::new(1).plugin(1).queue(settings)
}

/// Names and labels of all series.
fn series(metrics: &Metrics) -> BTreeSet<String> {
    let text = metrics.render(Format::Prometheus).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

/// One of everything that a controller counts.
fn busy(metrics: &Metrics, plugin: &str, kind: &Kind) -> ControllerMetrics {
    let queue = queue();
    queue.add(Key::namespaced("n", "a"), Wake::change());
    let controller = metrics.controller(&plugin.parse().unwrap(), kind, &queue);
    controller.concurrency(10);
    for result in [
        PassResult::Success,
        PassResult::RequeueAfter,
        PassResult::Error { reason: "InvalidResource", terminal: true },
        PassResult::Error { reason: "PluginTrapped", terminal: false },
    ] {
        controller.pass_begins(Duration::from_millis(1));
        controller.pass_ends(Duration::from_millis(3), result);
    }
    controller.trapped();
    controller.plugin_fault("Trap");
    controller.write("NoOp");
    controller.held(2, 1, 0);
    controller.call(&Usage { cpu: Duration::from_millis(1), memory_bytes_peak: 1 << 20, ..Usage::default() });
    controller
}

#[test]
fn the_series_of_a_controller_are_those_of_controller_runtime_and_end_with_it() {
    let metrics = Metrics::default();
    let before = series(&metrics);
    let controller = busy(&metrics, "web", &Kind::new("example.com", "v1", "Web"));
    let text = metrics.render(Format::Prometheus).unwrap();
    for line in [
        "# TYPE controller_runtime_reconcile_total counter",
        "controller_runtime_reconcile_total{controller=\"web/Web.example.com\",result=\"success\"} 1",
        "controller_runtime_reconcile_total{controller=\"web/Web.example.com\",result=\"error\"} 2",
        "controller_runtime_reconcile_total{controller=\"web/Web.example.com\",result=\"requeue\"} 0",
        "controller_runtime_reconcile_total{controller=\"web/Web.example.com\",result=\"requeue_after\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"web/Web.example.com\"} 2",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"web/Web.example.com\"} 1",
        "controller_runtime_reconcile_panics_total{controller=\"web/Web.example.com\"} 1",
        "controller_runtime_max_concurrent_reconciles{controller=\"web/Web.example.com\"} 10",
        "controller_runtime_active_workers{controller=\"web/Web.example.com\"} 0",
        "# TYPE controller_runtime_reconcile_time_seconds histogram",
        "controller_runtime_reconcile_time_seconds_bucket{controller=\"web/Web.example.com\",le=\"0.005\"} 4",
        "workqueue_depth{name=\"web/Web.example.com\",controller=\"web/Web.example.com\",priority=\"0\"} 1",
        "workqueue_adds_total{name=\"web/Web.example.com\",controller=\"web/Web.example.com\"} 1",
        "workqueue_retries_total{name=\"web/Web.example.com\",controller=\"web/Web.example.com\"} 0",
        "# TYPE workqueue_unfinished_work_seconds gauge",
        "# TYPE workqueue_longest_running_processor_seconds gauge",
        "# TYPE pilothouse_queue_oldest_due_seconds gauge",
        "workqueue_queue_duration_seconds_count{name=\"web/Web.example.com\",controller=\"web/Web.example.com\"} 4",
        "workqueue_work_duration_seconds_count{name=\"web/Web.example.com\",controller=\"web/Web.example.com\"} 4",
        "pilothouse_pass_failures_total{plugin=\"web\",controller=\"web/Web.example.com\",reason=\"PluginTrapped\"} 1",
        "pilothouse_plugin_faults_total{plugin=\"web\",controller=\"web/Web.example.com\",reason=\"Trap\"} 1",
        "pilothouse_held_keys{plugin=\"web\",controller=\"web/Web.example.com\",reason=\"Paused\"} 2",
        "pilothouse_plugin_call_memory_bytes{plugin=\"web\",controller=\"web/Web.example.com\"} 1048576",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    drop(controller);
    assert_eq!(series(&metrics), before);
}

#[test]
fn equal_kinds_of_two_groups_are_two_controllers() {
    let metrics = Metrics::default();
    let one = busy(&metrics, "web", &Kind::new("a.example.com", "v1", "Web"));
    let before = series(&metrics);
    let other = busy(&metrics, "web", &Kind::new("b.example.com", "v1", "Web"));
    assert!(series(&metrics).len() > before.len());
    drop(other);
    assert_eq!(series(&metrics), before, "the first one's series are its own");
    drop(one);
    assert_eq!(controller_label(&"x".parse().unwrap(), &Kind::new("", "v1", "Pod")), "x/Pod");
}

#[test]
fn a_thousand_plugins_that_come_and_go_leave_no_series() {
    let metrics = Metrics::default();
    let base = series(&metrics);
    for round in 0..1_000_u64 {
        let name = format!("come-{round}");
        let plugin: PluginName = name.parse().unwrap();
        let serving =
            metrics.plugins().serves(&plugin, &Digest::of(name.as_bytes()), Generation(round), 4_096);
        let controller = busy(&metrics, &name, &Kind::new("example.com", "v1", "Come"));
        drop((serving, controller));
    }
    assert_eq!(series(&metrics), base);
}

#[test]
fn a_new_version_takes_over_the_series_of_its_plugin() {
    let metrics = Metrics::default();
    let plugin: PluginName = "web".parse().unwrap();
    drop(metrics.plugins().serves(&plugin, &Digest::of(b"1"), Generation(1), 1));
    let _second = metrics.plugins().serves(&plugin, &Digest::of(b"2"), Generation(2), 1);
    let text = metrics.render(Format::Prometheus).unwrap();
    assert!(text.contains("pilothouse_plugin_generation{plugin=\"web\"} 2\n"), "{text}");
    assert_eq!(text.matches("pilothouse_plugin_loaded{").count(), 1);
}

#[test]
fn places_whose_plugin_does_not_serve_are_counted_as_they_are_now() {
    let metrics = Metrics::default();
    metrics.plugins().not_serving(["DescribeFailed", "KindTaken", "KindTaken"]);
    assert!(series(&metrics).contains("pilothouse_plugins_not_serving{reason=\"DescribeFailed\"}"));
    metrics.plugins().not_serving(["KindTaken"]);
    let text = metrics.render(Format::Prometheus).unwrap();
    assert!(text.contains("pilothouse_plugins_not_serving{reason=\"KindTaken\"} 1\n"), "{text}");
    assert!(!text.contains("DescribeFailed"));
}

#[test]
fn both_formats_say_the_same_and_each_in_its_form() {
    let metrics = Metrics::default();
    let _controller = busy(&metrics, "web", &Kind::new("example.com", "v1", "Web"));
    let lease = metrics.leaders().lease("pilothouse");
    lease.set(true);
    let open = metrics.render(Format::OpenMetrics).unwrap();
    let plain = metrics.render(Format::Prometheus).unwrap();
    assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
    // A family of counters is named without its suffix there, and with it here.
    assert!(open.contains("# TYPE controller_runtime_reconcile counter\n"));
    assert!(plain.contains("# TYPE controller_runtime_reconcile_total counter\n"));
    assert!(
        open.contains("# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n"),
        "{open}"
    );
    assert!(plain.contains("\nprocess_cpu_seconds_total "));
    assert!(
        open.contains("# TYPE pilothouse_build info\n")
            && open.contains("\npilothouse_build_info{version=\"")
    );
    let names = |text: &str| -> BTreeSet<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&open), names(&plain));
    for name in [
        "leader_election_master_status",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
        "process_threads",
    ] {
        assert!(names(&plain).contains(name), "{name}");
    }
}
