//! `process_*`: what Prometheus' own client libraries say of a process on Linux, read from `/proc` when somebody
//! scrapes. What cannot be read is left out.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Clock ticks in a second, as `/proc` counts: `USER_HZ`, 100 on all architectures that this is built for.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read = |file: &str| fs::read_to_string(format!("/proc/{file}")).unwrap_or_default();
        let process =
            Process::parse(&read("self/stat"), &read("self/status"), &read("self/limits"), &read("stat"));
        if let Some(seconds) = process.cpu_seconds {
            let help =
                "User and system CPU time of the process, without the compiler's, which has one of its own";
            let unit = Some(&Unit::Seconds);
            let metric = encoder.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(metric)?;
        }
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
        let open_fds = open_fds.and_then(|count| u32::try_from(count).ok()).map(f64::from);
        let gauges = [
            ("process_resident_memory", "Resident memory", Some(Unit::Bytes), process.resident_bytes),
            ("process_virtual_memory", "Virtual memory", Some(Unit::Bytes), process.virtual_bytes),
            (
                "process_start_time",
                "Start of the process since the epoch",
                Some(Unit::Seconds),
                process.start_seconds,
            ),
            ("process_threads", "Threads", None, process.threads),
            ("process_open_fds", "Open file descriptors", None, open_fds),
            ("process_max_fds", "File descriptors that may be open", None, process.max_fds),
        ];
        for (name, help, unit, value) in gauges {
            let Some(value) = value else { continue };
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                unit.as_ref(),
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq)]
struct Process {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    start_seconds: Option<f64>,
    threads: Option<f64>,
    max_fds: Option<f64>,
}

impl Process {
    /// From `/proc/self/{stat,status,limits}` and `/proc/stat`; see proc(5).
    fn parse(stat: &str, status: &str, limits: &str, system: &str) -> Self {
        // The second field is the program's name in parentheses and may hold spaces: fields are counted behind it.
        let fields: Vec<f64> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect())
            .unwrap_or_default();
        let ticks = |number: usize| Some(fields.get(number - 3)? / TICKS_PER_SECOND);
        let line = |text: &str, name: &str| -> Option<f64> {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let kibibytes = |name| Some(line(status, name)? * 1_024.0);
        Self {
            cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, system)| user + system),
            resident_bytes: kibibytes("VmRSS:"),
            virtual_bytes: kibibytes("VmSize:"),
            start_seconds: ticks(22).zip(line(system, "btime ")).map(|(since_boot, boot)| boot + since_boot),
            threads: line(status, "Threads:"),
            max_fds: line(limits, "Max open files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_proc_5_also_behind_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 900 0 3 0 250 150 0 0 20 0 9 0 12345 1000000 500 18446744073709551615";
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t  1024 kB\nThreads:\t9\n";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096      files\n";
        let process = Process::parse(stat, status, limits, "cpu 1 2\nbtime 1700000000\n");
        let expected = Process {
            cpu_seconds: Some(4.0),
            resident_bytes: Some(1_048_576.0),
            virtual_bytes: Some(2_097_152.0),
            start_seconds: Some(1_700_000_123.45),
            threads: Some(9.0),
            max_fds: Some(1_024.0),
        };
        assert_eq!(process, expected);
        assert_eq!(Process::parse("", "", "", ""), Process::default());
    }
}
