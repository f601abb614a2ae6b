//! The log on stderr: one line for each event, as text or as JSON, with the time in RFC 3339 and the fields of the pass
//! that it belongs to (`plugin`, `kind`, `key`, `generation`).
//!
//! `PILOTHOUSE_LOG` says what is logged, in the directives of `RUST_LOG`; `info` by default: transitions. `debug` has a
//! line for each pass that failed. Values of Secrets are in none.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};

use pilothouse_cluster::LOG_DIRECTIVES;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};

use crate::cli::run::LogFormat;

/// Logs from now on, panics as well.
pub(crate) fn start(format: LogFormat) {
    let wanted = std::env::var("PILOTHOUSE_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::builder().parse_lossy(format!("{wanted},{LOG_DIRECTIVES}"));
    tracing::subscriber::set_global_default(subscriber(format, filter, std::io::stderr))
        .unwrap_or_else(|error| eprintln!("the log cannot be started: {error}"));
    panic::set_hook(Box::new(log_panic));
}

type AnySubscriber = Box<dyn tracing::Subscriber + Send + Sync>;

fn subscriber<W>(format: LogFormat, filter: EnvFilter, writer: W) -> AnySubscriber
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let log = SubscriberBuilder::default()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_writer(writer);
    match format {
        LogFormat::Text => Box::new(log.with_ansi(false).finish()),
        LogFormat::Json => Box::new(log.json().flatten_event(true).with_span_list(false).finish()),
    }
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
        let subscriber = subscriber(format, EnvFilter::new("info"), move || writer.clone());
        tracing::subscriber::with_default(subscriber, work);
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
