//! What a plugin costs: to compile, to load, to keep and to call; and what its neighbours feel when others loop.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use pilothouse_bench::{Figure, quantile};
use pilothouse_model::action::Request;
use pilothouse_model::limits::Limits;
use pilothouse_sandbox::{CompileLimits, Compiler, Prepared, Sandbox, SandboxOptions};

/// Distinct plugins at the same time.
const PLUGINS: u32 = 100;
/// Calls per measurement.
const CALLS: usize = 5_000;
/// The same for languages whose calls take milliseconds.
const CALLS_OF_INTERPRETERS: usize = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        // The compiler child of the sandboxes below.
        ["compile"] => return pilothouse_sandbox::compile_main(),
        // In a process of its own, whose memory is not mixed with that of compiling.
        ["idle", cache] => idle(Path::new(cache)),
        [] => measure(),
        _ => Err(anyhow::anyhow!("usage: bench-sandbox")),
    };
    if let Err(error) = result {
        eprintln!("bench: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measure() -> Result<()> {
    // Beside the program, which lies on a disk: in a memory file system each page of code would count as private.
    let program = std::env::current_exe()?;
    let directory = tempfile::tempdir_in(program.parent().context("the program lies nowhere")?)?;
    let cache = directory.path().join("code");
    compile_and_load(&cache)?;
    let plugins = fill(&cache)?;
    calls(&plugins)?;
    drop(plugins);
    let status = Command::new(std::env::current_exe()?).arg("idle").arg(&cache).status()?;
    if !status.success() {
        bail!("measuring idle plugins failed ({status})");
    }
    languages(&cache)?;
    neighbours()
}

fn sandbox(cache: &Path) -> Result<Sandbox> {
    let program = std::env::current_exe()?;
    let compiler =
        Compiler::Child { program, arguments: vec!["compile".to_owned()], limits: CompileLimits::default() };
    Ok(Sandbox::new(SandboxOptions { cache_dir: Some(cache.to_owned()), ..SandboxOptions::new(compiler) })?)
}

/// The largest plugin of ours.
fn compile_and_load(cache: &Path) -> Result<()> {
    let component = pilothouse_guests::component("postgres-cluster", pilothouse_guests::Target::Unknown);
    let sandbox = sandbox(cache)?;
    let begun = Instant::now();
    let plugin = sandbox.prepare(&component, &Limits::default())?;
    if plugin.from_cache() {
        bail!("the cache was not empty");
    }
    Figure::millis("cold compile of postgres-cluster, in the child", begun.elapsed(), Some(1_000.0)).print();

    let mut loads = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        sandbox.prepare(&component, &Limits::default())?;
        loads.push(begun.elapsed());
    }
    Figure::millis("load it from the cache, median", quantile(&mut loads, 0.5), Some(10.0)).print();
    Ok(())
}

struct Plugins {
    sandbox: Sandbox,
    prepared: Vec<Arc<Prepared>>,
}

/// Compiles what is not in the cache yet.
fn fill(cache: &Path) -> Result<Plugins> {
    let sandbox = sandbox(cache)?;
    let prepared = (0..PLUGINS)
        .map(|number| {
            let component = pilothouse_guests::variant(pilothouse_guests::steady(), number);
            Ok(Arc::new(sandbox.prepare(&component, &Limits::default())?))
        })
        .collect::<Result<_>>()?;
    for entry in fs::read_dir(cache)? {
        // Until they are written back, pages of a new file count as dirty.
        fs::File::open(entry?.path())?.sync_all()?;
    }
    Ok(Plugins { sandbox, prepared })
}

/// The object, and its five children as they are.
fn request() -> Arc<Request> {
    let object = |kind: &str, version: &str, name: &str| {
        serde_json::json!({
            "apiVersion": version, "kind": kind,
            "metadata": {
                "name": name, "namespace": "bench", "uid": "4f6c1f6e-5a0e-4c1e-9d0e-2b9d6a2f1c11",
                "resourceVersion": "123456", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": { "app.kubernetes.io/instance": "one", "pilothouse.dev/managed": "steady" },
            },
            "spec": { "text": "a text of some words" },
            "data": { "text": "a text of some words", "position": "0" },
        })
        .to_string()
    };
    Arc::new(Request {
        primary: object("Steady", "test.pilothouse.dev/v1", "one"),
        deleting: false,
        config: "{}".to_owned(),
        now: "2026-01-02T03:04:05Z".to_owned(),
        seed: 7,
        children: (0..5).map(|at| object("ConfigMap", "v1", &format!("one-{at}"))).collect(),
        related: Vec::new(),
        last: Vec::new(),
    })
}

fn calls(Plugins { sandbox, prepared }: &Plugins) -> Result<()> {
    let request = request();
    let measured = |plugins: &[Arc<Prepared>]| -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(CALLS);
        for plugin in plugins.iter().cycle().take(CALLS) {
            let begun = Instant::now();
            let reply = sandbox.reconcile_blocking(plugin, &Limits::default(), Arc::clone(&request));
            times.push(begun.elapsed());
            let actions = reply.result?.actions.len();
            if actions != 6 {
                bail!("the plugin returned {actions} actions");
            }
        }
        Ok(times)
    };
    let mut hot = measured(&prepared[..1])?;
    Figure::micros("call with 5 children, hot, median", quantile(&mut hot, 0.5), Some(100.0)).print();
    Figure::micros("call with 5 children, hot, 99 %", quantile(&mut hot, 0.99), None).print();
    let mut round = measured(prepared)?;
    Figure::micros(
        "call with 5 children, round robin over 100, median",
        quantile(&mut round, 0.5),
        Some(200.0),
    )
    .print();
    Ok(())
}

/// One language: its component, and what its figures are called.
struct Language {
    file: &'static str,
    names: [&'static str; 4],
}

const LANGUAGES: [Language; 3] = [
    Language {
        file: "guests/probe-python.wasm",
        names: [
            "Python: cold compile, in the child",
            "Python: call with 5 children, median",
            "Python: call with 5 children, 99 %",
            "Python: memory of a call",
        ],
    },
    Language {
        file: "guests/probe-javascript.wasm",
        names: [
            "JavaScript: cold compile, in the child",
            "JavaScript: call with 5 children, median",
            "JavaScript: call with 5 children, 99 %",
            "JavaScript: memory of a call",
        ],
    },
    Language {
        file: "guests/probe-go.wasm",
        names: [
            "Go: cold compile, in the child",
            "Go: call with 5 children, median",
            "Go: call with 5 children, 99 %",
            "Go: memory of a call",
        ],
    },
];

/// The reconciler of [`calls`], written in other languages. For information: an interpreter's or a runtime's start is in each call.
fn languages(cache: &Path) -> Result<()> {
    let steady = request();
    let mut primary: serde_json::Value = serde_json::from_str(&steady.primary)?;
    primary["kind"] = "Probe".into();
    primary["spec"]["behaviour"] = "steady".into();
    let request = Arc::new(Request { primary: primary.to_string(), ..Request::clone(&steady) });
    for Language { file, names: [compile, median, tail, memory] } in LANGUAGES {
        let component = match pilothouse_guests::foreign(file) {
            Ok(component) => component,
            Err(error) => {
                eprintln!("not measured: {error:#}");
                continue;
            }
        };
        let sandbox = sandbox(cache)?;
        let begun = Instant::now();
        let plugin = Arc::new(sandbox.prepare(&component, &Limits::default())?);
        Figure::millis(compile, begun.elapsed(), None).print();
        let mut times = Vec::with_capacity(CALLS_OF_INTERPRETERS);
        let mut peak = 0;
        for _ in 0..CALLS_OF_INTERPRETERS {
            let begun = Instant::now();
            let reply = sandbox.reconcile_blocking(&plugin, &Limits::default(), Arc::clone(&request));
            times.push(begun.elapsed());
            peak = peak.max(reply.usage.memory_bytes_peak);
            let actions = reply.result?.actions.len();
            if actions != 6 {
                bail!("{file} returned {actions} actions");
            }
        }
        Figure::micros(median, quantile(&mut times, 0.5), None).print();
        Figure::micros(tail, quantile(&mut times, 0.99), None).print();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        Figure { name: memory, value: peak as f64 / 1024.0, unit: "KiB", goal: None }.print();
    }
    Ok(())
}

/// Private and resident memory of this process, KiB.
fn memory() -> Result<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let field = |name: &str| -> Result<f64> {
        let line = text.lines().find(|line| line.starts_with(name)).context("no such line")?;
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).context("no number")
    };
    Ok((field("Private_Dirty:")?, field("Rss:")?))
}

fn idle(cache: &Path) -> Result<()> {
    let sandbox = sandbox(cache)?;
    // Built before measuring, as the bytes are not the plugin's.
    let components: Vec<Vec<u8>> =
        (0..PLUGINS).map(|number| pilothouse_guests::variant(pilothouse_guests::steady(), number)).collect();
    let mut plugins = Vec::with_capacity(components.len());
    let prepare = |component: &Vec<u8>| sandbox.prepare(component, &Limits::default());
    // The first one pays for what all share.
    plugins.push(prepare(&components[0])?);
    let (private_before, resident_before) = memory()?;
    for component in &components[1..] {
        let plugin = prepare(component)?;
        if !plugin.from_cache() {
            bail!("the cache was not filled");
        }
        plugins.push(plugin);
    }
    let (private_after, resident_after) = memory()?;
    let each = |before: f64, after: f64| (after - before) / f64::from(PLUGINS - 1);
    let kib = |name, value, goal| Figure { name, value, unit: "KiB", goal: Some(goal) };
    kib("idle plugin, private memory", each(private_before, private_after), 102.4).print();
    kib("idle plugin, resident memory", each(resident_before, resident_after), 307.2).print();

    // The last call's tick may still be due.
    std::thread::sleep(Duration::from_millis(100));
    let before = wake_ups()?;
    std::thread::sleep(Duration::from_secs(1));
    let value = wake_ups()? - before;
    Figure { name: "wake-ups of the idle sandbox in a second", value, unit: "", goal: Some(0.0) }.print();
    Ok(())
}

/// How often the sandbox's threads have gone to sleep so far, which is how often they were woken.
fn wake_ups() -> Result<f64> {
    let mut sum = 0.0;
    for task in fs::read_dir("/proc/self/task")? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("Name:").is_some_and(|name| name.starts_with("sandbox-")) {
            sum += field("voluntary_ctxt_switches:").context("no such line")?.parse::<f64>()?;
        }
    }
    Ok(sum)
}

/// Ten plugins loop, ten calls each, while another one is called every 5 ms.
fn neighbours() -> Result<()> {
    let sandbox = Arc::new(Sandbox::new(SandboxOptions::new(Compiler::InProcess))?);
    let prepare = |component: &[u8]| sandbox.prepare(component, &Limits::default()).map(Arc::new);
    let neighbour = prepare(pilothouse_guests::steady())?;
    let looping = (0..10)
        .map(|number| prepare(&pilothouse_guests::variant(pilothouse_guests::hostile(), number)))
        .collect::<Result<Vec<_>, _>>()?;
    let known = sandbox.reconcile_blocking(&neighbour, &Limits::default(), request());
    known.result?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let mut delays = runtime.block_on(async {
        let endless = Arc::new(Request {
            primary: serde_json::json!({ "spec": { "behaviour": "loop" } }).to_string(),
            ..Request::clone(&request())
        });
        let loops: Vec<_> = looping
            .iter()
            .flat_map(|plugin| std::iter::repeat_n(plugin, 10))
            .map(|plugin| {
                let (sandbox, plugin, endless) =
                    (Arc::clone(&sandbox), Arc::clone(plugin), Arc::clone(&endless));
                tokio::spawn(async move { sandbox.reconcile(&plugin, &Limits::default(), endless).await })
            })
            .collect();
        let mut delays = Vec::new();
        while !loops.iter().all(tokio::task::JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let begun = Instant::now();
            let reply = sandbox.reconcile(&neighbour, &Limits::default(), request()).await;
            delays.push(begun.elapsed());
            reply.result?;
        }
        anyhow::Ok(delays)
    })?;
    Figure::millis("call beside 100 loops of 10 plugins, 99 %", quantile(&mut delays, 0.99), Some(50.0))
        .print();
    Figure::millis("call beside 100 loops of 10 plugins, longest", quantile(&mut delays, 1.0), Some(50.0))
        .print();
    Ok(())
}
