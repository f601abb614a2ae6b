//! `pilothouse render`: one reconcile without a cluster. The plugin sees what the host would show it, in the sandbox
//! and under the limits that it has there; what it decides is checked as the host would check it, and printed.

use std::path::PathBuf;
use std::process::ExitCode;

use jiff::Timestamp;
use pilothouse_model::action::Failure;
use pilothouse_sandbox::{Level, LogLine};
use serde_json::json;

use crate::cli::documents;
use crate::cli::exit::{Code, Exit, code_of};
use crate::cli::offline::pass::{Caller, Calls, Moment, Problem};
use crate::cli::offline::readable;
use crate::cli::offline::scene::{self, Objects, Scene};
use crate::cli::output::{self, Format};
use crate::cli::plugin;
use crate::snapshot;

/// The same in each run, and in `check`: a rendered outcome can be compared with a committed one.
pub(crate) const SEED: u64 = 0;

/// Run one reconcile offline and print the actions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each resource is reconciled once and printed as one document. Documents of other
kinds, as a Namespace in the same file, are left out. What the API server and the host would have done before is done
here too: defaults of the plugin's CustomResourceDefinition, namespace `default`, uid, creationTimestamp, the
plugin's finalizer. Values of Secrets are blanked. Settings are read from NAME.yaml beside the plugin. Time and memory
that the plugin used, and what it logged, are told on stderr.

With --observed, give the children that exist already. One without a controlling owner reference is taken as owned by
the resource, unless it has an empty list of them; with several resources each child needs its reference. With --related, give what the manifest's rules
and look-ups find, by kind, namespace and label selector. Files may hold several documents and Lists, as `kubectl get
-o yaml` writes them; of a DIR the *.yaml, *.yml and *.json are read.

Exit codes (the worst of several resources):
  0  actions are printed
  1  the plugin returned a failure, or the host would refuse the plan; the actions are printed all the same
  2  bad input: arguments, files, or a component that is no plugin
  3  the plugin trapped or exceeded a limit")]
pub(crate) struct RenderArgs {
    /// Component: NAME.wasm, gzip'd or zstd'd or not
    plugin: PathBuf,
    /// Resources to reconcile; `-` is stdin
    #[arg(short, long = "file", value_name = "FILE|DIR|-", required = true)]
    files: Vec<PathBuf>,
    /// Children that exist already
    #[arg(long, value_name = "FILE|DIR|-")]
    observed: Vec<PathBuf>,
    /// Objects that the plugin reads without owning them
    #[arg(long, value_name = "FILE|DIR|-")]
    related: Vec<PathBuf>,
    /// Time of the pass, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Form of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Format,
}

pub(crate) fn main(args: &RenderArgs) -> Result<ExitCode, Exit> {
    let inputs = args.files.iter().chain(&args.observed).chain(&args.related);
    if inputs.filter(|path| path.as_os_str() == "-").count() > 1 {
        return Err(Exit::bad_input("`-` is given twice: stdin can be read once"));
    }
    let sandbox = plugin::sandbox()?;
    let plugin = plugin::load(&sandbox, &args.plugin)?;
    let now = snapshot::time(args.now.unwrap_or_else(Timestamp::now));

    // All input is read and checked before anything is called.
    let primaries = documents::read(&args.files)?;
    if primaries.is_empty() {
        return Err(Exit::bad_input(
            "-f: no resource found: a Kubernetes object in YAML or JSON would be right",
        ));
    }
    let manifest = plugin.manifest();
    let primaries = scene::served(manifest, primaries)?;
    let objects = Objects::new(manifest, documents::read(&args.observed)?, documents::read(&args.related)?)?;
    let sole = primaries.len() == 1;
    let scenes: Vec<Scene<'_>> = primaries
        .iter()
        .map(|primary| Scene::new(manifest, primary, &objects, sole, &now))
        .collect::<Result<_, _>>()?;

    let settings = &plugin.artifact.settings;
    let config = settings.config.to_string();
    let caller = Caller { sandbox: &sandbox, plugin: &plugin, limits: &settings.limits, config: &config };
    let mut worst = None;
    let mut documents = Vec::with_capacity(scenes.len());
    for mut scene in scenes {
        let name = scene.name();
        let passed = caller.pass(&mut scene, Moment { now: &now, seed: SEED });
        for line in &passed.logs {
            say_log(&name, line);
        }
        say_calls(&name, &passed.calls);
        if let Some((code, text)) = bad_news(passed.plan.map(|plan| plan.failure)) {
            output::say(&format!("{name}: {text}"));
            worst = worst.max(Some(code));
        }
        if let Some(outcome) = &passed.outcome {
            let mut document = readable::document(&scene.snapshot.primary, outcome);
            if args.now.is_some() {
                // The outcome may depend on it: a case for `check` that is made of this has to say it.
                document["now"] = json!(now);
            }
            documents.push(document);
        }
    }
    output::print(&documents, args.output)?;
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn bad_news(ended: Result<Option<Failure>, Problem>) -> Option<(Code, String)> {
    match ended {
        Ok(None) => None,
        Ok(Some(failure)) => Some((Code::Failed, failure_text(&failure))),
        Err(Problem::Call(error)) => Some((code_of(&error), Problem::Call(error).text())),
        Err(problem) => Some((Code::Failed, problem.text())),
    }
}

fn failure_text(failure: &Failure) -> String {
    match failure {
        Failure::Invalid(message) => format!("the plugin says that it is invalid: {message}"),
        Failure::Retry(message) => format!("the plugin wants to try again later: {message}"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn say_calls(name: &str, calls: &Calls) {
    let milliseconds = calls.usage.cpu.as_secs_f64() * 1e3;
    let mebibytes = calls.usage.memory_bytes_peak as f64 / f64::from(1 << 20);
    let count = if calls.count == 1 { String::new() } else { format!(" in {} calls", calls.count) };
    output::say(&format!("{name}: {milliseconds:.1} ms of CPU time, {mebibytes:.1} MiB of memory{count}"));
    if calls.usage.log_lines_dropped > 0 {
        let dropped = calls.usage.log_lines_dropped;
        output::say(&format!("{name}: {dropped} log lines over the limit are not shown"));
    }
}

fn say_log(name: &str, line: &LogLine) {
    let level = match line.level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    };
    output::say(&format!("{name}: log {level}: {}", line.message));
}
