//! Medians side by side, and the bars.

use std::collections::BTreeMap;

use crate::contestants::Contestant;
use crate::scenarios::Run;

/// All runs of each contestant.
pub(crate) type Runs = BTreeMap<Contestant, Vec<Run>>;

/// A row of the table: what it is, and how it is read off one run.
type Row = (&'static str, fn(&Run) -> f64);

/// Reads the samples of one run.
type Samples = fn(&Run) -> &Vec<f64>;

const ROWS: [Row; 12] = [
    ("E  idle, RSS MiB", |run| run.idle_mib),
    ("A  time to converge s", |run| run.converge_s),
    ("A  CPU s", |run| run.cold_cpu_s),
    ("A  writes over those needed", |run| run.cold_writes_over),
    ("A  lists", |run| run.cold_lists),
    ("A  peak RSS MiB", |run| run.peak_mib),
    ("B  CPU of 50 patches s", |run| run.patches_cpu_s),
    ("B  writes over 100", |run| run.patches_writes_over),
    ("C  writes", |run| run.restart_writes),
    ("C  CPU s", |run| run.restart_cpu_s),
    ("C  RSS after it MiB", |run| run.restart_mib),
    ("C  first reaction s", |run| run.reaction_s),
];

/// The value that `part` of all do not exceed, between two if need be. NaN if there are none.
pub(crate) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index below the number of values"
    )]
    let (at, low) = (last as f64 * part, (last as f64 * part) as usize);
    let high = (low + 1).min(last);
    #[allow(clippy::cast_precision_loss, reason = "the same")]
    let weight = at - low as f64;
    sorted[low] * (1.0 - weight) + sorted[high] * weight
}

fn values(runs: &[Run], read: fn(&Run) -> f64) -> Vec<f64> {
    runs.iter().map(read).collect()
}

fn pooled(runs: &[Run], read: Samples) -> Vec<f64> {
    runs.iter().flat_map(|run| read(run).iter().copied()).collect()
}

/// Prints medians with their ranges, a column for each contestant.
#[allow(clippy::print_stdout, reason = "the table")]
pub(crate) fn table(title: &str, runs: &Runs) {
    println!(
        "\n{title}: medians of {} runs [lowest, highest]",
        runs.values().map(Vec::len).max().unwrap_or(0)
    );
    let head: Vec<String> = runs.keys().map(|one| format!(" {:>24}", one.name())).collect();
    println!("{:<30}{}", "", head.concat());
    for (what, read) in ROWS {
        let cells: Vec<String> = runs.values().map(|runs| cell(&values(runs, read))).collect();
        println!("{what:<30}{}", cells.concat());
    }
    let latencies: [(&str, f64, Samples); 5] = [
        ("B  patch to pod, p50 ms", 0.5, |run| &run.pod_ms),
        ("B  p95 ms", 0.95, |run| &run.pod_ms),
        ("B  p99 ms", 0.99, |run| &run.pod_ms),
        ("B  patch to status, p50 ms", 0.5, |run| &run.status_ms),
        ("B  p95 ms", 0.95, |run| &run.status_ms),
    ];
    for (what, part, read) in latencies {
        let of = |runs: &Vec<Run>| {
            let all = pooled(runs, read);
            format!(" {:>24}", format!("{:.2} of {}", quantile(&all, part), all.len()))
        };
        let cells: Vec<String> = runs.values().map(of).collect();
        println!("{what:<30}{}", cells.concat());
    }
}

fn cell(values: &[f64]) -> String {
    let text =
        format!("{:.2} [{:.2}, {:.2}]", quantile(values, 0.5), quantile(values, 0.0), quantile(values, 1.0));
    format!(" {text:>24}")
}

/// What is promised, and how it came out.
#[derive(Debug)]
pub(crate) struct Bars {
    met: bool,
}

impl Bars {
    #[allow(clippy::print_stdout, reason = "the bars")]
    pub(crate) fn new() -> Self {
        println!("\n{:<62} {:>9} {:>9}", "bar", "value", "at most");
        Self { met: true }
    }

    /// Prints one bar. A value that was not measured is not met.
    #[allow(clippy::print_stdout, reason = "the bars")]
    pub(crate) fn bar(&mut self, what: &str, value: f64, at_most: f64) {
        let met = value <= at_most;
        self.met &= met;
        println!("{what:<62} {value:>9.3} {at_most:>9.3}{}", if met { "" } else { "   MISSED" });
    }

    /// Whether all were met.
    pub(crate) fn met(&self) -> bool {
        self.met
    }

    /// The bars of E, A, B and C at 200 resources, or of D.
    pub(crate) fn compare(&mut self, letter: &str, runs: &Runs) {
        let of = |one| runs.get(&one).map_or(&[][..], Vec::as_slice);
        let (ours, kube) = (of(Contestant::Pilothouse), of(Contestant::KubeRs));
        let controller_runtime = of(Contestant::ControllerRuntime);
        let median = |runs: &[Run], read: fn(&Run) -> f64| quantile(&values(runs, read), 0.5);
        let most = |runs: &[Run], read: fn(&Run) -> f64| quantile(&values(runs, read), 1.0);
        let mut bar = |what: &str, value, at_most| self.bar(&format!("{letter}: {what}"), value, at_most);

        bar("writes over those needed, most", most(ours, |run| run.cold_writes_over), 0.0);
        bar("lists of passes, most", most(ours, |run| run.cold_lists), 0.0);
        let converge = |runs| median(runs, |run| run.converge_s);
        bar("time to converge, of kube-rs", converge(ours) / converge(kube), 1.05);
        let cpu = |runs| median(runs, |run| run.cold_cpu_s);
        bar("CPU per resource, of kube-rs", cpu(ours) / cpu(kube), 1.3);
        bar("CPU per resource, of controller-runtime", cpu(ours) / cpu(controller_runtime), 0.6);
        bar("writes over 100 of 50 patches, most", most(ours, |run| run.patches_writes_over), 0.0);
        bar("writes of a restart, most", most(ours, |run| run.restart_writes), 0.0);
        let latency = |runs, part| quantile(&pooled(runs, |run| &run.pod_ms), part);
        bar("patch to pod p50, ms over kube-rs", latency(ours, 0.5) - latency(kube, 0.5), 1.0);
        bar("patch to pod p99, of kube-rs", latency(ours, 0.99) / latency(kube, 0.99), 1.2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let values = [3.0, 1.0, 2.0];
        let shown = [0.0, 0.5, 0.75, 1.0].map(|part| format!("{:.3}", quantile(&values, part)));
        assert_eq!(shown, ["1.000", "2.000", "2.500", "3.000"]);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let mut bars = Bars::new();
        bars.bar("met", 1.0, 1.0);
        assert!(bars.met());
        bars.bar("not measured", f64::NAN, 1.0);
        assert!(!bars.met());
    }
}
