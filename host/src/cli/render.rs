//! `pilothouse render`: one reconcile without a cluster. The plugin sees what the host would show it, in the sandbox
//! and under the limits that it has there; what it decides is checked as the host would check it, and printed.

mod defaults;
mod readable;
mod scene;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;
use pilothouse_model::action::{Failure, Outcome};
use pilothouse_model::plan::{self, LOOK_UP_ROUNDS_MAX, Plan, Refusal};
use pilothouse_sandbox::{CallError, Level, LogLine, Sandbox, Usage};

use crate::cli::documents;
use crate::cli::exit::{Code, Exit, code_of};
use crate::cli::output::{self, Format};
use crate::cli::plugin::{self, Plugin};
use crate::snapshot;

use scene::{Objects, Scene};

/// The same in each run: a rendered outcome can be compared with a committed one.
const SEED: u64 = 0;

/// Run one reconcile offline and print the actions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each resource is reconciled once and printed as one document. Documents of other
kinds, as a Namespace in the same file, are left out. What the API server and the host would have done before is done
here too: defaults of the plugin's CustomResourceDefinition, namespace `default`, uid, creationTimestamp, the
plugin's finalizer. Values of Secrets are blanked. Settings are read from NAME.yaml beside the plugin. Time and memory
that the plugin used, and what it logged, are told on stderr.

With --observed, give the children that exist already. One without a controlling owner reference is taken as owned by
the resource; with several resources each child needs its reference. With --related, give what the manifest's rules
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

/// What came of one resource.
struct Rendered {
    /// None if the pass was stopped.
    outcome: Option<Outcome>,
    /// Bad news, if there is some.
    problem: Option<Problem>,
}

enum Problem {
    Failure(Failure),
    Refusal(Refusal),
    LookUp(String),
    Call(CallError),
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

    let mut worst = None;
    let mut documents = Vec::with_capacity(scenes.len());
    for mut scene in scenes {
        let rendered = render(&sandbox, &plugin, &mut scene, &now);
        if let Some(problem) = &rendered.problem {
            output::say(&format!("{}: {}", scene.name(), problem.text()));
            worst = worst.max(Some(problem.code()));
        }
        if let Some(outcome) = &rendered.outcome {
            documents.push(readable::document(&scene.snapshot.primary, outcome));
        }
    }
    output::print(&documents, args.output)?;
    Ok(worst.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// One pass: calls the plugin, again with answers as long as it asks, within the rounds that the contract allows.
fn render(sandbox: &Sandbox, plugin: &Plugin, scene: &mut Scene<'_>, now: &str) -> Rendered {
    let mut calls = Calls::default();
    let rendered = call(sandbox, plugin, scene, now, &mut calls);
    calls.say(&scene.name());
    rendered
}

fn call(sandbox: &Sandbox, plugin: &Plugin, scene: &mut Scene<'_>, now: &str, calls: &mut Calls) -> Rendered {
    let settings = &plugin.artifact.settings;
    let config = settings.config.to_string();
    loop {
        let request = Arc::new(scene.snapshot.request(scene.deleting, &config, now, SEED, &[]));
        let reply = sandbox.reconcile_blocking(&plugin.prepared, &settings.limits, request);
        calls.add(&reply.usage);
        for line in &reply.logs {
            say_log(&scene.name(), line);
        }
        let outcome = match reply.result {
            Ok(outcome) => outcome,
            Err(error) => return Rendered { outcome: None, problem: Some(Problem::Call(error)) },
        };
        let plan = match admit(&outcome, plugin, scene) {
            Ok(plan) => plan,
            Err(refusal) => {
                return Rendered { outcome: Some(outcome), problem: Some(Problem::Refusal(refusal)) };
            }
        };
        if plan.look_ups.is_empty() {
            return Rendered { outcome: Some(outcome), problem: plan.failure.map(Problem::Failure) };
        }
        let answered = if calls.count <= LOOK_UP_ROUNDS_MAX {
            scene.answer(&plan.look_ups)
        } else {
            Err(format!("asked for more objects after {LOOK_UP_ROUNDS_MAX} rounds of look-ups"))
        };
        if let Err(problem) = answered {
            return Rendered { outcome: Some(outcome), problem: Some(Problem::LookUp(problem)) };
        }
    }
}

fn admit(outcome: &Outcome, plugin: &Plugin, scene: &Scene<'_>) -> Result<Plan, Refusal> {
    let related = scene.snapshot.related_objects();
    let context = plan::Context {
        plugin: &plugin.manifest().name,
        controller: scene.controller,
        primary: &scene.snapshot.primary,
        children: &scene.snapshot.children,
        related: &related,
        deleting: scene.deleting,
        limits: &plugin.artifact.settings.limits,
        grants: &plugin.artifact.settings.grants,
        namespaces: &[],
    };
    plan::admit(outcome.clone(), &context)
}

/// What the calls of one pass used together.
#[derive(Default)]
struct Calls {
    count: usize,
    usage: Usage,
}

impl Calls {
    fn add(&mut self, usage: &Usage) {
        self.count += 1;
        self.usage.cpu += usage.cpu;
        self.usage.memory_bytes_peak = self.usage.memory_bytes_peak.max(usage.memory_bytes_peak);
        self.usage.log_lines_dropped += usage.log_lines_dropped;
    }

    #[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
    fn say(&self, name: &str) {
        let milliseconds = self.usage.cpu.as_secs_f64() * 1e3;
        let mebibytes = self.usage.memory_bytes_peak as f64 / f64::from(1 << 20);
        let calls = if self.count == 1 { String::new() } else { format!(" in {} calls", self.count) };
        output::say(&format!(
            "{name}: {milliseconds:.1} ms of CPU time, {mebibytes:.1} MiB of memory{calls}"
        ));
        if self.usage.log_lines_dropped > 0 {
            output::say(&format!(
                "{name}: {} log lines over the limit are not shown",
                self.usage.log_lines_dropped
            ));
        }
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

impl Problem {
    fn code(&self) -> Code {
        match self {
            Self::Failure(_) | Self::Refusal(_) | Self::LookUp(_) => Code::Failed,
            Self::Call(error) => code_of(error),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Failure(Failure::Invalid(message)) => {
                format!("the plugin says that it is invalid: {message}")
            }
            Self::Failure(Failure::Retry(message)) => {
                format!("the plugin wants to try again later: {message}")
            }
            Self::Refusal(refusal) => format!("the host would refuse the outcome: {refusal}"),
            Self::LookUp(problem) => format!("the plugin {problem}"),
            Self::Call(error) => format!("the plugin {error}"),
        }
    }
}
