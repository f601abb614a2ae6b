//! `docs/limits.md`: every number that an author can run into, from the code that enforces it.

use std::fmt::Write as _;

use pilothouse_model::condition::CONDITIONS_MAX;
use pilothouse_model::limits::Limits;
use pilothouse_model::names::PluginName;
use pilothouse_model::plan::{
    CONTAINERS_MAX, EVENT_MESSAGE_BYTES_MAX, EVENTS_MAX, LOOK_UP_ROUNDS_MAX, LOOK_UPS_MAX, REQUEUE_MS_MAX,
    REQUEUE_MS_MIN, STATUS_BYTES_MAX,
};
use pilothouse_model::settings::Settings;
use pilothouse_sandbox::{DESCRIBE_BYTES_MAX, LOG_BYTES_MAX, LOG_LINES_MAX};

use crate::MADE;

pub(crate) fn page() -> String {
    let mut page = format!(
        "# Limits\n\n{MADE}\n\nNothing that a plugin does is without a bound. A call that goes over one ends there: nothing of \
         the pass is carried out, the resource's condition `Reconciled` says `LimitExceeded` (of an outcome: \
         `OutcomeRefused`) with the limit's name, and the host tries again with backoff. `pilothouse render` and \
         `pilothouse check` have the same limits.\n\n\
         ## Of each call\n\n\
         The administrator sets others in `NAME.yaml` beside the plugin, below `limits`.\n\n\
         | Limit | Default | From | To | |\n|---|---|---|---|---|\n"
    );
    for ((field, default, min, max), about) in Limits::default().bounds().into_iter().zip([
        "CPU time of the guest, milliseconds",
        "time to wait for a turn on a processor, milliseconds",
        "memory, bytes",
        "actions in one outcome",
        "bytes of one outcome",
    ]) {
        writeln!(page, "| `{field}` | {} | {} | {} | {about} |", number(default), number(min), number(max))
            .expect("a String");
    }
    let Settings { concurrency, backoff, .. } = Settings::default();
    let of = |bytes: usize| number(bytes as u64);
    let rows: [(&str, String); 17] = [
        ("Look-ups in one round", of(LOOK_UPS_MAX)),
        ("Rounds of look-ups in one pass", of(LOOK_UP_ROUNDS_MAX)),
        ("Events in one pass", of(EVENTS_MAX)),
        ("Bytes of an event's message, the rest is cut", of(EVENT_MESSAGE_BYTES_MAX)),
        ("Bytes of a status", of(STATUS_BYTES_MAX)),
        ("Conditions in a status", of(CONDITIONS_MAX)),
        ("Maps and lists in all JSON of one outcome", of(CONTAINERS_MAX)),
        ("Shortest `requeue-after`, milliseconds; less is brought to it", number(REQUEUE_MS_MIN)),
        ("Longest `requeue-after`, milliseconds; more is brought to it", number(REQUEUE_MS_MAX)),
        ("Lines of the log in one call, the rest is counted", of(LOG_LINES_MAX)),
        ("Bytes of the log in one call", of(LOG_BYTES_MAX)),
        ("Bytes of a manifest", number(DESCRIBE_BYTES_MAX)),
        ("Characters of a plugin's name", of(PluginName::BYTES_MAX)),
        ("Passes of one plugin at a time (`concurrency` in its settings)", number(u64::from(concurrency))),
        ("First retry, milliseconds (`backoff.baseMs`); each doubles it", number(backoff.base_ms)),
        ("Longest retry, milliseconds (`backoff.capMs`)", number(backoff.cap_ms)),
        ("Bytes of a packed plugin in a ConfigMap", number(1 << 20)),
    ];
    page.push_str("\n## Of the contract\n\n| | |\n|---|---|\n");
    for (about, value) in rows {
        writeln!(page, "| {about} | {value} |").expect("a String");
    }
    page
}

/// With commas, as in the contract.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
