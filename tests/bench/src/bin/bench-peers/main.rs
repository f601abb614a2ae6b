//! The host beside operators on kube-rs and controller-runtime: the same work in turns, each time on a fresh control
//! plane, and the bars that the host is to stay below. Only runs of one call are comparable.
//!
//! `BENCH_RUNS` (5), `BENCH_LARGE_RUNS` (as many) and `BENCH_ONLY` (names, by commas) make it shorter; a bar whose part
//! was left out counts as missed.

mod audit;
mod contestants;
mod load;
mod report;
mod scenarios;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use contestants::{Contestant, Programs};
use report::{Bars, Runs, quantile};

/// Resources of A, B and C.
const RESOURCES: usize = 200;
/// Resources of D.
const RESOURCES_LARGE: usize = 2_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match measure().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("bench-peers: a bar was missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "the result")]
async fn measure() -> Result<bool> {
    let runs = number("BENCH_RUNS", 5)?;
    let large_runs = number("BENCH_LARGE_RUNS", runs)?;
    let costs = number("BENCH_COSTS", large_runs.min(1))?;
    let only = std::env::var("BENCH_ONLY").ok();
    let takes_part =
        |one: &Contestant| only.as_deref().is_none_or(|only| only.split(',').any(|name| name == one.name()));
    let programs = Programs::locate()?;

    let (mut small, mut large, mut floor) = (Runs::new(), Runs::new(), Vec::new());
    for run in 1..=runs {
        eprintln!("run {run} of {runs}: floor");
        floor.extend(scenarios::floor().await?);
        for one in Contestant::ALL.into_iter().filter(takes_part).filter(|one| *one != Contestant::WholePods)
        {
            eprintln!("run {run} of {runs}: {}", one.name());
            small
                .entry(one)
                .or_default()
                .push(scenarios::life(one, &programs, RESOURCES).await.context(one.name())?);
        }
    }
    for run in 1..=large_runs {
        for one in Contestant::ALL.into_iter().filter(takes_part) {
            eprintln!("large run {run} of {large_runs}: {}", one.name());
            large
                .entry(one)
                .or_default()
                .push(scenarios::life(one, &programs, RESOURCES_LARGE).await.context(one.name())?);
        }
    }
    let mut cost = [f64::NAN; 2];
    if costs > 0 && takes_part(&Contestant::Pilothouse) {
        for (at, count) in [100, 10_000].into_iter().enumerate() {
            eprintln!("patches among {count} resources");
            cost[at] = scenarios::cost_among(Contestant::Pilothouse, &programs, count).await?;
        }
    }

    report::table("A, B, C, E: 200 resources of five pods", &small);
    println!(
        "{:<30} {:>24}",
        "floor of B, p50 and p99 ms",
        format!("{:.2}, {:.2} of {}", quantile(&floor, 0.5), quantile(&floor, 0.99), floor.len())
    );
    report::table("D: 2,000 resources of five pods", &large);

    let mut bars = Bars::new();
    bars.compare("A, B, C", &small);
    let most = |runs: &Runs, one, read: fn(&scenarios::Run) -> f64| {
        quantile(&runs.get(&one).into_iter().flatten().map(read).collect::<Vec<_>>(), 1.0)
    };
    let ours = Contestant::Pilothouse;
    bars.bar("C: first reaction after a restart s, most", most(&small, ours, |run| run.reaction_s), 0.3);
    if large_runs > 0 {
        bars.compare("D", &large);
        bars.bar("D: peak RSS MiB, metadata of pods, most", most(&large, ours, |run| run.peak_mib), 35.0);
        let whole = most(&large, Contestant::WholePods, |run| run.peak_mib);
        bars.bar("D: peak RSS MiB, whole pods, most", whole, 60.0);
    }
    if costs > 0 {
        println!("CPU of a patch among 100 and 10,000 resources: {:.2} ms, {:.2} ms", cost[0], cost[1]);
        bars.bar("CPU of a patch among 10,000 resources, of that among 100", cost[1] / cost[0], 1.2);
    }
    Ok(bars.met())
}

fn number(variable: &str, default: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}: `{text}` is no number")),
        Err(_) => Ok(default),
    }
}
