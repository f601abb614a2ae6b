//! The log on stderr: one line for each event, as text or as JSON, with the time in RFC 3339 and the fields of the pass
//! that it belongs to (`plugin`, `kind`, `key`, `generation`): in JSON the innermost span is `span`, all are `spans`.
//!
//! `PILOTHOUSE_LOG` says what is logged, in the directives of `RUST_LOG`; `info` by default: transitions. `debug` has a
//! line for each pass that failed. Values of Secrets are in none.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};

use pilothouse_cluster::LOG_DIRECTIVES;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::cli::run::LogFormat;

/// What must be finished when the host ends.
pub(crate) struct Log(Option<Finish>);

type Finish = Box<dyn FnOnce()>;

impl Log {
    /// Logs from now on, panics as well. With the feature `otel`, traces are sent by this runtime if the environment
    /// says where to.
    pub(crate) fn start(format: LogFormat, runtime: &Handle) -> Self {
        let wanted = std::env::var("PILOTHOUSE_LOG").unwrap_or_else(|_| "info".to_owned());
        let filter = EnvFilter::builder().parse_lossy(format!("{wanted},{LOG_DIRECTIVES}"));
        let registry = Registry::default().with(lines(format, filter, std::io::stderr));
        let finish = start_with(registry, runtime);
        panic::set_hook(Box::new(log_panic));
        Self(finish)
    }

    /// Sends the traces that wait, for a few seconds at most. Not to be called on the runtime.
    pub(crate) fn finish(self) {
        if let Some(finish) = self.0 {
            finish();
        }
    }
}

#[cfg(feature = "otel")]
fn start_with<S: Traceable>(registry: S, runtime: &Handle) -> Option<Finish> {
    match pilothouse_telemetry::layer(runtime.clone()) {
        Ok(Some((traces, telemetry))) => {
            registry.with(traces).init();
            Some(Box::new(move || telemetry.finish()))
        }
        Ok(None) => {
            registry.init();
            None
        }
        Err(problem) => {
            registry.init();
            tracing::error!("no traces are sent: {problem}");
            None
        }
    }
}

#[cfg(not(feature = "otel"))]
fn start_with<S: Traceable>(registry: S, _: &Handle) -> Option<Finish> {
    registry.init();
    None
}

/// Where spans can be looked up.
trait Traceable: Subscriber + Send + Sync + for<'span> LookupSpan<'span> + Sized {}
impl<S: Subscriber + Send + Sync + for<'span> LookupSpan<'span>> Traceable for S {}

/// The lines of the log.
fn lines<S: Traceable, W>(format: LogFormat, filter: EnvFilter, writer: W) -> impl Layer<S> + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines: Box<dyn Layer<S> + Send + Sync> = match format {
        LogFormat::Text => Box::new(lines.with_ansi(false)),
        LogFormat::Json => Box::new(lines.json().flatten_event(true)),
    };
    lines.with_filter(filter)
}

/// A panic is a bug of the host and one line like any other: std's own words would be several, and no JSON.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a payload that is no text");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or_default();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!(place, thread, %backtrace, "panic: {message}");
    } else {
        tracing::error!(place, thread, "panic: {message}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use jiff::Timestamp;
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged in this form while `work` runs on this thread.
    fn logged(format: LogFormat, work: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let lines_of_test = super::lines(format, EnvFilter::new("info"), move || writer.clone());
        tracing::subscriber::with_default(Registry::default().with(lines_of_test), work);
        let bytes = lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).unwrap()
    }

    fn in_a_pass(work: impl FnOnce()) {
        tracing::info_span!("pass", plugin = "web", kind = "Web", key = "n/a", generation = 3).in_scope(work);
    }

    #[test]
    fn a_line_of_json_has_time_level_message_and_the_fields_of_its_pass() {
        let text = logged(LogFormat::Json, || in_a_pass(|| tracing::warn!(reason = "Trap", "line\none")));
        let line: Value = serde_json::from_str(&text).unwrap();
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.parse::<Timestamp>().is_ok(), "{time}");
        assert_eq!(
            (&line["level"], &line["message"], &line["reason"]),
            (&Value::from("WARN"), &Value::from("line\none"), &Value::from("Trap"))
        );
        let span = &line["span"];
        assert_eq!(
            (&span["plugin"], &span["kind"], &span["key"], &span["generation"]),
            (&Value::from("web"), &Value::from("Web"), &Value::from("n/a"), &Value::from(3))
        );
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_line_of_text_has_them_too() {
        let text = logged(LogFormat::Text, || in_a_pass(|| tracing::info!("done")));
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok(), "{time}");
        for part in ["INFO", "pass{plugin=\"web\" kind=\"Web\" key=\"n/a\" generation=3}", "done\n"] {
            assert!(rest.contains(part), "{part}: {rest}");
        }
    }

    #[test]
    fn a_panic_is_one_line_of_the_log() {
        let text = logged(LogFormat::Json, || {
            let before = panic::take_hook();
            panic::set_hook(Box::new(log_panic));
            let caught = panic::catch_unwind(|| in_a_pass(|| panic!("slot {} is taken", 7)));
            panic::set_hook(before);
            assert!(caught.is_err());
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["message"]),
            (&Value::from("ERROR"), &Value::from("panic: slot 7 is taken"))
        );
        assert!(line["place"].as_str().unwrap().contains("log.rs:"), "{line}");
        assert_eq!(line["span"]["key"], "n/a", "which key it was");
    }
}
