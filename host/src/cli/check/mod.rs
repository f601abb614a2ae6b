//! `pilothouse check`: does a plugin keep the contract? Its author gives cases, resources with the outcome that is
//! expected of each. From each case come many questions: the same again, passes over their own results, the deletion, the
//! resource gone wrong. No cluster is needed; what the host does with an outcome is the host's own code.

mod bounds;
mod case;
mod difference;
mod finding;
mod invalid;
mod life;
mod outcome;
mod schema;
mod server;
mod suite;
mod world;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::exit::Exit;
use crate::cli::offline::pass::Caller;
use crate::cli::output;
use crate::cli::plugin::{self, Plugin};

use case::CaseFile;
use finding::{Finding, Rule};
use suite::{Purpose, Report};

/// Check a plugin against cases and the rules of the contract
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A case is a YAML file: a resource, the other objects of the cluster as far as they
matter, and at the end the outcome as `pilothouse render` prints it. An object of a child kind belongs to the resource
unless it has a list of ownerReferences (`[]`: nobody's). Several resources in one file have an outcome each, and
their children name their owners. An outcome may say `now`, the time of its pass, and `config`. --record writes what
the plugin answers today into the files: read it before you commit it.

What is checked with each case:
  expected     the outcome is the one in the file
  determinism  the same request gives the same outcome, whatever the limits; the manifest is always the same
  idempotence  passes over their own results come to rest
  limits       calls end within the limits of the plugin's settings
  trap         nothing traps
  status       no field that the schema does not declare or that is the host's, nothing that changes in each pass
  finalizing   a resource that is being deleted is released, and nothing is created meanwhile; one that has gone wrong
               is too, or a failure `invalid` names the field and the finalizer
  invalid      a field that is missing or of another type is a failure `invalid` that names it
  names        children do not depend on the seed, and other resources have other children
  manifest, namespace, actions
               actions are what manifest, settings and contract allow
  schema       the API server would take the CustomResourceDefinitions, and the cases by them

Exit codes:
  0  all rules are kept
  1  a rule is broken
  2  bad input: arguments, files, or a component that is no plugin
  3  the plugin trapped or exceeded a limit")]
pub(crate) struct CheckArgs {
    /// Component: NAME.wasm, gzip'd or zstd'd or not; settings in NAME.yaml beside it are used
    plugin: PathBuf,
    /// Files of cases, or directories of them
    #[arg(required = true, value_name = "CASES")]
    cases: Vec<PathBuf>,
    /// Write the outcomes of now into the files, in place of those that they have
    #[arg(long)]
    record: bool,
}

pub(crate) fn main(args: &CheckArgs) -> Result<ExitCode, Exit> {
    let sandbox = plugin::sandbox()?;
    let plugin = plugin::load(&sandbox, &args.plugin)?;
    let settings = &plugin.artifact.settings;
    let config = settings.config.to_string();
    let caller = Caller { sandbox: &sandbox, plugin: &plugin, limits: &settings.limits, config: &config };
    let files = case::read(&args.cases, plugin.manifest())?;

    let purpose = if args.record { Purpose::Record } else { Purpose::Compare };
    let mut worst = None;
    let mut tally = Tally::default();
    let itself = of_plugin(&caller);
    let name = args.plugin.display().to_string();
    if !itself.is_empty() {
        output::write(&said(&format!("FAIL  {name}"), &itself))?;
        worst = worst.max(itself.iter().map(|finding| finding.code).max());
        tally.failed += 1;
    }
    for file in &files {
        let mut outcomes = Vec::new();
        for case in &file.cases {
            let report = suite::check(&caller, file, case, purpose)?;
            worst = worst.max(report.findings.iter().map(|finding| finding.code).max());
            tally.count(&report);
            output::write(&told(&report, file))?;
            outcomes.extend(report.outcome);
        }
        if args.record && outcomes.len() == file.cases.len() {
            record(file, &outcomes)?;
        }
    }
    output::write(&format!("{}\n", tally.text(&plugin)))?;
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// What is asked once.
fn of_plugin(caller: &Caller<'_>) -> Vec<Finding> {
    let manifest = caller.plugin.manifest();
    let mut findings: Vec<Finding> =
        schema::of_manifest(manifest).into_iter().map(|text| Finding::new(Rule::Schema, text)).collect();
    match caller.sandbox.describe(&caller.plugin.prepared, caller.limits) {
        Ok(again) if again == *manifest => {}
        Ok(_) => {
            findings.push(Finding::new(Rule::Determinism, "`describe` does not answer the same each time"));
        }
        Err(error) => {
            let text = format!("`describe` answers once and fails the second time: {error}");
            findings.push(Finding::new(Rule::Determinism, text));
        }
    }
    findings
}

fn told(report: &Report, file: &CaseFile) -> String {
    let head = format!("{}: {}", file.path.display(), report.name);
    if !report.findings.is_empty() {
        return said(&format!("FAIL  {head}"), &report.findings);
    }
    let rest = match report.passes {
        Some(0) => "at rest, ".to_owned(),
        Some(1) => "at rest after 1 pass, ".to_owned(),
        Some(passes) => format!("at rest after {passes} passes, "),
        None => String::new(),
    };
    format!("ok    {head}: {rest}{}\n", used(report))
}

fn said(head: &str, findings: &[Finding]) -> String {
    let mut text = format!("{head}\n");
    for finding in findings {
        text.push_str("  ");
        text.push_str(finding.rule.as_str());
        text.push_str(": ");
        text.push_str(&finding.text.replace('\n', "\n  "));
        text.push('\n');
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn used(report: &Report) -> String {
    let milliseconds = report.used.cpu.as_secs_f64() * 1e3;
    let mebibytes = report.used.memory_bytes_peak as f64 / f64::from(1 << 20);
    format!("{milliseconds:.1} ms of CPU time and {mebibytes:.1} MiB of memory at most")
}

/// Replaces the file by renaming, as an editor may have it open.
fn record(file: &CaseFile, outcomes: &[serde_json::Value]) -> Result<(), Exit> {
    let text = file.with_outcomes(outcomes)?;
    if file.is(&text) {
        return Ok(());
    }
    let half = file.path.with_extension("recorded.tmp");
    let written = fs::write(&half, text).and_then(|()| fs::rename(&half, &file.path));
    written.map_err(|error| {
        // What could not be written cannot be removed either.
        let _ = fs::remove_file(&half);
        Exit::failed(format!("{}: {error}", file.path.display()))
    })?;
    output::say(&format!("{}: recorded", file.path.display()));
    Ok(())
}

#[derive(Default)]
struct Tally {
    cases: usize,
    failed: usize,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        self.cases += 1;
        self.failed += usize::from(!report.findings.is_empty());
    }

    fn text(&self, plugin: &Plugin) -> String {
        let manifest = plugin.manifest();
        let (cases, failed) = (self.cases, self.failed);
        format!("{} {}: {cases} cases, {failed} failed", manifest.name, manifest.version)
    }
}
