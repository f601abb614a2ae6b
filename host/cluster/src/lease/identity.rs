//! Who holds a Lease: the pod or the machine, and a part that no other process has, ever.
//!
//! The second part names the process: the machine's boot, the namespace of its process ids, its process id and when it
//! started. So a host that finds a Lease held by a process of its own machine can look whether that process still
//! exists, and need not wait for the Lease to end when it was killed a moment ago. It must be sure of it; whatever is
//! in doubt is taken for alive:
//!
//! - another boot, or another namespace of process ids (another container): nothing can be said;
//! - the namespace's number is given again only after it has ended, with all of its processes;
//! - a process that this one may not see is answered differently from one that does not exist.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::random;

/// The identity of this process, and its view of others.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    text: String,
    process: Option<Process>,
}

/// One process of one machine, for as long as the machine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    boot: String,
    namespace: u64,
    pid: u32,
    started: u64,
}

impl Identity {
    /// This process, under the name of its pod or machine.
    pub(crate) fn of_this_process(name: &str) -> Self {
        let process = Process::current();
        let unique = match &process {
            Some(Process { boot, namespace, pid, started }) => format!("{boot}-{namespace}-{pid}-{started}"),
            // Without /proc: unique all the same, and nobody can say that it has ended.
            None => format!("{:016x}{:016x}", random(), random()),
        };
        Self { text: format!("{name}_{unique}"), process }
    }

    /// `holderIdentity` of a Lease.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the process behind another identity has certainly ended.
    pub(crate) fn knows_dead(&self, holder: &str) -> bool {
        let (Some(own), Some(other)) = (&self.process, Process::parse(holder)) else { return false };
        (own.boot.as_str(), own.namespace) == (&*other.boot, other.namespace) && other.has_ended()
    }
}

impl Process {
    fn current() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let pid = std::process::id();
        // Where /proc is that of another namespace, this is somebody else's or nobody's.
        let own = fs::read_link("/proc/self").ok()?;
        if own.to_str() != Some(&pid.to_string()) || boot.len() != 16 {
            return None;
        }
        Some(Self { boot, namespace, pid, started: started(pid)? })
    }

    fn parse(holder: &str) -> Option<Self> {
        let (_, unique) = holder.rsplit_once('_')?;
        let mut parts = unique.split('-');
        let process = Self {
            boot: parts.next()?.to_owned(),
            namespace: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            started: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(process)
    }

    /// Only to be asked about processes of this machine and this namespace.
    fn has_ended(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        match test_kill_process(pid) {
            Err(Errno::SRCH) => true,
            // It exists, or the kernel does not tell; with another start it is another process with the same number.
            _ => started(self.pid).is_some_and(|started| started != self.started),
        }
    }
}

/// When the process with this id started, in clock ticks since the boot: field 22 of proc(5)'s stat, counted from the
/// end of the command's name, which may hold spaces and parentheses.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// The identity that another process of this machine would have.
    fn identity(pid: u32, started: u64) -> String {
        let Process { boot, namespace, .. } = Process::current().unwrap();
        format!("some_pod_{boot}-{namespace}-{pid}-{started}")
    }

    #[test]
    fn a_process_is_dead_when_it_has_ended_and_not_before() {
        let own = Identity::of_this_process("pod");
        assert!(own.as_str().starts_with("pod_") && !own.knows_dead(own.as_str()));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let holder = identity(child.id(), started(child.id()).unwrap());
        assert!(!own.knows_dead(&holder));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own.knows_dead(&holder));
    }

    #[test]
    fn a_process_id_that_was_given_again_is_another_process() {
        let own = Identity::of_this_process("pod");
        let pid = std::process::id();
        let now = started(pid).unwrap();
        assert!(own.knows_dead(&identity(pid, now - 1)));
        assert!(!own.knows_dead(&identity(pid, now)));
    }

    #[test]
    fn what_this_process_cannot_know_it_takes_for_alive() {
        let own = Identity::of_this_process("pod");
        let Process { boot, namespace, .. } = Process::current().unwrap();
        // No process has this number, which is above the kernel's limit.
        let pid = (1 << 30) - 1;
        assert!(own.knows_dead(&identity(pid, 1)));
        for holder in [
            format!("pod_{boot}-{}-{pid}-1", namespace + 1),
            format!("pod_0123456789abcdef-{namespace}-{pid}-1"),
            format!("pod_{boot}-{namespace}-{pid}"),
            format!("pod_{boot}-{namespace}-{pid}-1-2"),
            format!("pod_{boot}-{namespace}-0-1"),
            "controller-7d9c_2f1b1c4e-8a45-4c0f-9d3e-0a9d2b6f7c11".to_owned(),
            "4 shards".to_owned(),
            String::new(),
        ] {
            assert!(!own.knows_dead(&holder), "{holder}");
        }
    }
}
