//! Processes by pid *and* start time, so that a reused pid is never taken for the process that had it before.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The unit of CPU times in `/proc/PID/stat`: `USER_HZ`, which is 100 on every Linux architecture that Rust's
/// tier 1 and 2 know.
const TICKS_PER_SECOND: u64 = 100;

/// One process, for as long as the machine runs: no later process is equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub started: u64,
}

/// What a process has taken from the machine so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, with shared pages.
    pub rss_bytes: u64,
    /// The most resident memory that it ever had.
    pub rss_peak_bytes: u64,
    /// Time on a CPU, user and system, of all its threads.
    pub cpu: Duration,
}

impl Process {
    /// The process that has this pid now; `None` if there is none or only its exit status is left.
    pub fn find(pid: u32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!stat.ended).then_some(Self { pid, started: stat.started })
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Sends a signal to this very process. False if it has ended.
    pub fn signal(self, signal: Signal) -> Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is no process id", self.pid))?;
        // The handle is taken first and the start time read after it: from then on the handle means this
        // process, whatever becomes of its pid.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
        if !self.is_alive() {
            return Ok(false);
        }
        match pidfd_send_signal(handle, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }

    /// Memory and CPU time of this process, or an error if it has ended.
    pub fn usage(self) -> Result<Usage> {
        let ended = || format!("process {} has ended", self.pid);
        let stat = Stat::read(self.pid).filter(|stat| stat.started == self.started).with_context(ended)?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).with_context(ended)?;
        let kibibytes = |field: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let value = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
            let value = value.with_context(|| format!("/proc/{}/status has no {field}", self.pid))?;
            value.parse().with_context(|| format!("{field} of /proc/{}/status: {value:?}", self.pid))
        };
        Ok(Usage {
            rss_bytes: kibibytes("VmRSS")? * 1024,
            rss_peak_bytes: kibibytes("VmHWM")? * 1024,
            cpu: Duration::from_millis(stat.cpu_ticks * 1000 / TICKS_PER_SECOND),
        })
    }
}

struct Stat {
    ended: bool,
    started: u64,
    cpu_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Field numbers are those of proc(5), less the two that end with the command's closing parenthesis (which
    /// may itself hold spaces and parentheses) and less one for counting from zero.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            ended: matches!(*fields.first()?, "Z" | "X"),
            started: number(22)?,
            cpu_ticks: number(14)? + number(15)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line =
            "42 (a) b (c)) S 1 42 42 0 -1 4194304 0 0 0 0 7 5 0 0 20 0 1 0 987 1000 20 18446744073709551615";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.ended, stat.started, stat.cpu_ticks), (false, 987, 12));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(own.usage().unwrap().rss_bytes > 0);
        let earlier = Process { started: own.started - 1, ..own };
        assert!(!earlier.is_alive());
        assert!(!earlier.signal(Signal::KILL).unwrap(), "a reused pid was signalled");
    }
}
