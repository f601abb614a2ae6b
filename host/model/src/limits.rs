//! Limits of one call into a plugin. Plain numbers, never optional: a call without a limit cannot be expressed.

use serde::{Deserialize, Serialize};

/// What one call may use. The defaults are the ones that the documentation promises; an administrator sets others
/// in the plugin's settings, within the bounds that [`Limits::check`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// CPU time of the guest, milliseconds. 1,000: three orders of magnitude above an ordinary pass.
    pub cpu_ms: u64,
    /// Time that a call may wait inside the host for its turn on a processor, milliseconds.
    pub wait_ms: u64,
    /// All linear memories of an instance together, bytes.
    pub memory_bytes: u64,
    /// Actions in one outcome.
    pub actions: u64,
    /// Bytes that one outcome takes on the host's side.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu_ms: 1_000, wait_ms: 5_000, memory_bytes: 64 << 20, actions: 2_000, output_bytes: 8 << 20 }
    }
}

impl Limits {
    /// Largest memory that may be asked for: the host reserves address space for it in each pool slot.
    pub const MEMORY_BYTES_MAX: u64 = 1 << 30;

    /// Each limit by its name in the settings, with its value and the least and the most that may be asked for.
    pub fn bounds(&self) -> [(&'static str, u64, u64, u64); 5] {
        [
            ("cpuMs", self.cpu_ms, 1, 60_000),
            ("waitMs", self.wait_ms, 1, 60_000),
            ("memoryBytes", self.memory_bytes, 1 << 20, Self::MEMORY_BYTES_MAX),
            ("actions", self.actions, 1, 100_000),
            ("outputBytes", self.output_bytes, 1 << 10, 128 << 20),
        ]
    }

    /// Says what is out of bounds: the field, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        for (field, value, min, max) in self.bounds() {
            if !(min..=max).contains(&value) {
                return Err(format!(
                    "limits.{field}: {value} is out of bounds, {min} to {max} would be right"
                ));
            }
        }
        Ok(())
    }
}
