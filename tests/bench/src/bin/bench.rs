//! `make bench`: runs the measuring programs beside this one, one after the other, and prints one table of their figures;
//! then the comparison with other operators, which prints its own.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The programs, in the order in which they run: alone, as they share the machine's processors.
const PROGRAMS: [&str; 2] = ["bench-sandbox", "bench-host"];

/// The program that compares.
const COMPARISON: &str = "bench-peers";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "the table")]
fn run() -> Result<()> {
    let directory = std::env::current_exe()?.parent().context("a program lies in a directory")?.to_owned();
    let mut rows = Vec::new();
    for program in PROGRAMS {
        eprintln!("measuring: {program}");
        let output = Command::new(directory.join(program))
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{program} cannot be started"))?;
        if !output.status.success() {
            bail!("{program} failed ({})", output.status);
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let figure: Value =
                serde_json::from_str(line).with_context(|| format!("{program} printed `{line}`"))?;
            rows.push(figure);
        }
    }
    println!("{:<60} {:>10} {:>10} {:<5} ", "measure", "value", "goal", "unit");
    for row in &rows {
        let number =
            |field: &str| row[field].as_f64().map_or("-".to_owned(), |number| format!("{number:.3}"));
        let mark = if row["met"] == true { "" } else { "  missed" };
        let (name, unit) =
            (row["name"].as_str().unwrap_or_default(), row["unit"].as_str().unwrap_or_default());
        println!("{name:<60} {:>10} {:>10} {unit:<5}{mark}", number("value"), number("goal"));
    }
    let status = Command::new(directory.join(COMPARISON))
        .status()
        .with_context(|| format!("{COMPARISON} cannot be started"))?;
    if !status.success() {
        bail!("{COMPARISON} failed ({status})");
    }
    Ok(())
}
