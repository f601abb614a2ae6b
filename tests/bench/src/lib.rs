//! What all measurements share: a figure beside its goal, printed as one line of JSON for `make bench` to collect.

use std::time::Duration;

/// One figure.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What was measured.
    pub name: &'static str,
    /// How much it was.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// At most this much is wanted; none: said for information.
    pub goal: Option<f64>,
}

impl Figure {
    /// A time.
    pub fn millis(name: &'static str, value: Duration, goal: Option<f64>) -> Self {
        Self { name, value: value.as_secs_f64() * 1e3, unit: "ms", goal }
    }

    /// A short time.
    pub fn micros(name: &'static str, value: Duration, goal: Option<f64>) -> Self {
        Self { name, value: value.as_secs_f64() * 1e6, unit: "µs", goal }
    }

    /// Prints it on stdout.
    #[allow(clippy::print_stdout, reason = "the result of a program that measures")]
    pub fn print(&self) {
        let Self { name, value, unit, goal } = self;
        let value = (value * 1000.0).round() / 1000.0;
        println!(
            "{}",
            serde_json::json!({ "name": name, "value": value, "unit": unit, "goal": goal, "met": goal.is_none_or(|goal| value <= goal) })
        );
    }
}

/// The value that `part` of all samples do not exceed; 0.5 is the median.
pub fn quantile(samples: &mut [Duration], part: f64) -> Duration {
    assert!(!samples.is_empty() && (0.0..=1.0).contains(&part), "nothing was measured");
    samples.sort_unstable();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index below the number of samples"
    )]
    let at = ((samples.len() - 1) as f64 * part).round() as usize;
    samples[at]
}
