//! The sandbox itself: what is made once, and the way of a component and of a call through the other modules.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use pilothouse_model::action::Request;
use pilothouse_model::admission::{AdmissionRequest, Verdict};
use pilothouse_model::limits::Limits;
use pilothouse_model::manifest::Manifest;
use pilothouse_model::names::Digest;
use tokio::sync::oneshot;
use wasmtime::component::{Component, Linker};

use crate::budget::SharedMemory;
use crate::cache::Cache;
use crate::call::{CallState, Context, Reply};
use crate::compile::Compiler;
use crate::error::{CallError, PrepareError, SandboxError};
use crate::prepare::{Linked, Prepared};
use crate::turns::{Job, Lane, Stop, Terms, Turn, Turns};
use crate::{call, engine, inspect, log, prepare, wasi};

/// How a sandbox is made.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// Calls that run at the same time. Default: one more than there are processors, so that a call that waits for a
    /// page does not leave one idle.
    pub permits: usize,
    /// Where compiled code is kept, a directory of this user's alone. None: it is kept in memory.
    pub cache_dir: Option<PathBuf>,
    /// How components are compiled.
    pub compiler: Compiler,
    /// Uncompressed size of a component. Default 64 MiB: three times a Python one.
    pub wasm_bytes_max: u64,
    /// Memory of all running calls together. Default 1 GiB; should be well below what the host may use itself.
    pub memory_bytes_max: u64,
}

impl SandboxOptions {
    /// The defaults, without a cache.
    pub fn new(compiler: Compiler) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            permits: processors + 1,
            cache_dir: None,
            compiler,
            wasm_bytes_max: 64 << 20,
            memory_bytes_max: 1 << 30,
        }
    }
}

/// Prepares and calls plugins. Share it in an `Arc`. Dropping it stops all calls within a few milliseconds, waits for
/// that, and ends its threads.
pub struct Sandbox {
    context: Context,
    turns: Turns,
    linker: Linker<CallState>,
    compiler: Compiler,
    /// Held while compiling: one at a time.
    compiling: Mutex<()>,
    cache: Option<Cache>,
    wasm_bytes_max: u64,
}

impl Sandbox {
    /// Reserves address space, checks the cache directory, starts the threads.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let SandboxOptions { permits, cache_dir, compiler, wasm_bytes_max, memory_bytes_max } = options;
        let permits = permits.max(1);
        // One slot more than calls: a call that panicked inside the host frees its turn before its instance.
        let slots = u32::try_from(Turns::slots(permits) + 1).unwrap_or(u32::MAX);
        let engine = engine::host(slots)?;
        let cache = cache_dir.map(|path| Cache::open(&path, engine::compatibility(&engine))).transpose()?;
        let mut linker = Linker::new(&engine);
        log::link(&mut linker)
            .map_err(|error| SandboxError::Engine { slots, reason: format!("{error:#}") })?;
        let ticking = engine.clone();
        let turns = Turns::new(permits, move || ticking.increment_epoch()).map_err(SandboxError::Thread)?;
        Ok(Self {
            context: Context { engine, memory: SharedMemory::new(memory_bytes_max) },
            turns,
            linker,
            compiler,
            compiling: Mutex::new(()),
            cache,
            wasm_bytes_max,
        })
    }

    /// Makes an uncompressed component callable. Blocks: for a few milliseconds if its code is cached, else for as
    /// long as compiling takes, behind others that are being compiled.
    pub fn prepare(&self, wasm: &[u8], limits: &Limits) -> Result<Prepared, PrepareError> {
        let linked = self.link(wasm)?;
        let pre = linked.pre.clone();
        // A lane of its own: it has no history yet, and must not borrow that of the version before it.
        let reply = self.wait(&Arc::default(), limits, move |context, limits, turn| {
            call::describe(context, &pre, limits, turn)
        });
        let manifest = Manifest::parse(&reply.result?)?;
        if !manifest.admission.is_empty() && linked.further.admission.is_none() {
            return Err(PrepareError::Contract(format!(
                "its manifest guards kinds, and it does not export `{}`",
                inspect::ADMISSION
            )));
        }
        Ok(linked.described(manifest))
    }

    /// Asks a plugin for its manifest once more: it must answer the same each time.
    pub fn describe(&self, plugin: &Prepared, limits: &Limits) -> Result<Manifest, PrepareError> {
        let pre = plugin.pre.clone();
        let reply = self.wait(&plugin.lane, limits, move |context, limits, turn| {
            call::describe(context, &pre, limits, turn)
        });
        Ok(Manifest::parse(&reply.result?)?)
    }

    /// One pass, on a thread of the sandbox. The request goes into the guest by one copy of each text.
    ///
    /// Dropping the future stops the call: at once if it has not begun, else within a few milliseconds. Nothing of it
    /// remains, as a pass has no effects.
    pub async fn reconcile(&self, plugin: &Arc<Prepared>, limits: &Limits, request: Arc<Request>) -> Reply {
        let (sender, receiver) = oneshot::channel();
        let abandoned = self.submit_pass(plugin, limits, request, move |reply| {
            // The receiver is gone if the future was dropped.
            let _ = sender.send(reply);
        });
        answer(abandoned, receiver).await
    }

    /// Asks the plugin's `validate`. As with [`Sandbox::reconcile`], dropping the future stops the call.
    ///
    /// # Panics
    /// If the plugin does not export `admission`; see [`Prepared::admits`].
    pub async fn validate(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        request: AdmissionRequest,
    ) -> Reply<Verdict> {
        self.webhook(plugin, limits, move |context, plugin, limits, turn| {
            call::validate(context, plugin, limits, turn, request)
        })
        .await
    }

    /// Asks the plugin's `default-fields`: the object with defaults, as JSON text.
    ///
    /// # Panics
    /// If the plugin does not export `admission`.
    pub async fn default_fields(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        request: AdmissionRequest,
    ) -> Reply<String> {
        self.webhook(plugin, limits, move |context, plugin, limits, turn| {
            call::default_fields(context, plugin, limits, turn, request)
        })
        .await
    }

    /// Asks the plugin's `convert`: the objects in the other version as JSON texts, or why that cannot be.
    ///
    /// # Panics
    /// If the plugin does not export `conversion`; see [`Prepared::converts`].
    pub async fn convert(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        objects: Vec<String>,
        to_version: String,
    ) -> Reply<Result<Vec<String>, String>> {
        self.webhook(plugin, limits, move |context, plugin, limits, turn| {
            call::convert(context, plugin, limits, turn, &objects, &to_version)
        })
        .await
    }

    async fn webhook<T: Send + 'static>(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        work: impl FnOnce(&Context, &Prepared, &Limits, Turn) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (sender, receiver) = oneshot::channel();
        let called = Arc::clone(plugin);
        let abandoned = self.submit(
            &plugin.webhook_lane,
            limits,
            move |context, limits, turn| work(context, &called, limits, turn),
            move |reply| {
                let _ = sender.send(reply);
            },
        );
        answer(abandoned, receiver).await
    }

    /// One pass, for callers without a runtime. Blocks until it is done.
    pub fn reconcile_blocking(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        request: Arc<Request>,
    ) -> Reply {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit_pass(plugin, limits, request, move |reply| {
            let _ = sender.send(reply);
        });
        receiver.recv().unwrap_or_else(|_| lost())
    }

    fn submit_pass(
        &self,
        plugin: &Arc<Prepared>,
        limits: &Limits,
        request: Arc<Request>,
        done: impl FnOnce(Reply) + Send + 'static,
    ) -> Arc<AtomicBool> {
        let lane = Arc::clone(&plugin.lane);
        let plugin = Arc::clone(plugin);
        self.submit(
            &lane,
            limits,
            move |context, limits, turn| call::reconcile(context, &plugin.pre, limits, turn, &request),
            done,
        )
    }

    fn wait<T: Send + 'static>(
        &self,
        lane: &Arc<Lane>,
        limits: &Limits,
        work: impl FnOnce(&Context, &Limits, Turn) -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(lane, limits, work, move |reply| {
            let _ = sender.send(reply);
        });
        receiver.recv().unwrap_or_else(|_| lost())
    }

    fn submit<T: 'static>(
        &self,
        lane: &Arc<Lane>,
        limits: &Limits,
        work: impl FnOnce(&Context, &Limits, Turn) -> Reply<T> + Send + 'static,
        done: impl FnOnce(Reply<T>) + Send + 'static,
    ) -> Arc<AtomicBool> {
        let abandoned = Arc::new(AtomicBool::new(false));
        let terms = Terms {
            cpu: Duration::from_millis(limits.cpu_ms),
            wait: Duration::from_millis(limits.wait_ms),
            abandoned: Arc::clone(&abandoned),
        };
        let job = CallJob { context: self.context.clone(), limits: *limits, work, done };
        self.turns.submit(lane, terms, Box::new(job));
        abandoned
    }

    fn link(&self, wasm: &[u8]) -> Result<Linked, PrepareError> {
        let wasm_bytes = wasm.len() as u64;
        if wasm_bytes > self.wasm_bytes_max {
            return Err(PrepareError::TooLarge { bytes: wasm_bytes, max: self.wasm_bytes_max });
        }
        let inspection = inspect::inspect(wasm)?;
        let digest = Digest::of(wasm);
        let Code { component, compiled_bytes, from_cache } = self.code(&digest, wasm)?;
        prepare::check_resources(&component)?;
        let contract = |error: wasmtime::Error| PrepareError::Contract(format!("{error:#}"));
        let pre = if inspection.needs_wasi() {
            let mut linker = self.linker.clone();
            wasi::link(&mut linker, &component).map_err(contract)?;
            linker.instantiate_pre(&component)
        } else {
            self.linker.instantiate_pre(&component)
        };
        let (pre, further) = prepare::bind(pre.map_err(contract)?, &inspection)?;
        Ok(Linked { pre, further, digest, inspection, wasm_bytes, compiled_bytes, from_cache })
    }

    /// Maps the component's code from the cache, or makes it.
    fn code(&self, digest: &Digest, wasm: &[u8]) -> Result<Code, PrepareError> {
        if let Some(code) = self.cached(digest) {
            return Ok(code);
        }
        let _alone = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have compiled the same component while this one waited.
        if let Some(code) = self.cached(digest) {
            return Ok(code);
        }
        let code = self.compiler.compile(wasm)?;
        if let Some(cache) = &self.cache {
            let stored = cache.store(digest, &code).map_err(|error| PrepareError::Map(error.to_string()));
            match stored.and_then(|file| self.map(&file, false)) {
                Ok(code) => return Ok(code),
                // A full disk, or one that is mounted `noexec`, costs the next start a compilation and this plugin
                // some memory.
                Err(error) => {
                    tracing::warn!(%digest, %error, "compiled code cannot be cached");
                    cache.forget(digest);
                }
            }
        }
        let file = prepare::anonymous(&code).map_err(|error| PrepareError::Map(error.to_string()))?;
        self.map(&file, false)
    }

    fn cached(&self, digest: &Digest) -> Option<Code> {
        let cache = self.cache.as_ref()?;
        let mapped = self.map(&cache.load(digest)?, true);
        mapped
            .inspect_err(|error| {
                tracing::warn!(%digest, %error, "cached code is not usable and will be made again");
                cache.forget(digest);
            })
            .ok()
    }

    fn map(&self, file: &File, from_cache: bool) -> Result<Code, PrepareError> {
        let compiled_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Code { component: prepare::map(&self.context.engine, file)?, compiled_bytes, from_cache })
    }
}

struct Code {
    component: Component,
    compiled_bytes: u64,
    from_cache: bool,
}

/// Waits for a reply. Dropping the future stops the call.
async fn answer<T>(abandoned: Arc<AtomicBool>, receiver: oneshot::Receiver<Reply<T>>) -> Reply<T> {
    let guard = AbandonOnDrop(abandoned);
    let reply = receiver.await;
    drop(guard);
    reply.unwrap_or_else(|_| lost())
}

/// A call whose reply never came: it panicked inside the host, which has been logged.
fn lost<T>() -> Reply<T> {
    Reply::unstarted(CallError::HostFault("the call was lost".to_owned()), Duration::ZERO)
}

struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct CallJob<W, D> {
    context: Context,
    limits: Limits,
    work: W,
    done: D,
}

impl<T, W, D> Job for CallJob<W, D>
where
    W: FnOnce(&Context, &Limits, Turn) -> Reply<T> + Send,
    D: FnOnce(Reply<T>) + Send,
{
    fn run(self: Box<Self>, turn: Turn) {
        let Self { context, limits, work, done } = *self;
        done(work(&context, &limits, turn));
    }

    fn refuse(self: Box<Self>, stop: Stop, waited: Duration) {
        let cpu = Duration::from_millis(self.limits.cpu_ms);
        let wait = Duration::from_millis(self.limits.wait_ms);
        (self.done)(Reply::unstarted(call::stopped(stop, cpu, wait), waited));
    }
}
