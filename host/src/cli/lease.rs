//! The part of `run`'s arguments that is about Leases.

use std::time::Duration;

use pilothouse_cluster::lease::{SHARDS_MAX, Timing, TimingError};

use crate::cli::exit::Exit;
use crate::cli::run::check_namespace;

/// With a dash and a shard's number it stays below the API server's 253.
const NAME_BYTES_MAX: usize = 240;

/// Which of several hosts writes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leases")]
pub(crate) struct LeaseArgs {
    /// Whether hosts elect by Leases who writes. `off`: there is only this one, and the user sees to that
    #[arg(long, value_name = "on|off", env = "PILOTHOUSE_LEASES", default_value = "on")]
    leases: Switch,
    /// Namespace of the Leases [default: $POD_NAMESPACE, else that of the kubeconfig's context]
    #[arg(long, value_name = "NAMESPACE", env = "PILOTHOUSE_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Name of the Lease; with several shards, what their names begin with. Hosts that are to work beside each other,
    /// on other plugins or namespaces, need names of their own
    #[arg(long, value_name = "NAME", env = "PILOTHOUSE_LEASE_NAME", default_value = "pilothouse")]
    lease_name: String,
    /// Parts that the work is divided into, by plugin and namespace. Hosts share them. The same for all hosts
    #[arg(long, value_name = "N", env = "PILOTHOUSE_SHARDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=SHARDS_MAX as u64))]
    shards: u64,
    /// Seconds without a renewal after which another host takes a Lease
    #[arg(long, value_name = "SECONDS", env = "PILOTHOUSE_LEASE_DURATION", default_value = "15",
          value_parser = seconds)]
    lease_duration: Duration,
    /// Seconds without a renewal after which a host gives its Lease up
    #[arg(long, value_name = "SECONDS", env = "PILOTHOUSE_LEASE_RENEW_DEADLINE", default_value = "10",
          value_parser = seconds)]
    lease_renew_deadline: Duration,
    /// Seconds between renewals, and between looks at a Lease that another host holds
    #[arg(long, value_name = "SECONDS", env = "PILOTHOUSE_LEASE_RETRY_PERIOD", default_value = "2",
          value_parser = seconds)]
    lease_retry_period: Duration,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// What the arguments say, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseConfig {
    /// None: the pod's, or the kubeconfig's.
    pub(crate) namespace: Option<String>,
    /// Of the only one, or the beginning of all.
    pub(crate) name: String,
    /// How many.
    pub(crate) shards: usize,
    /// Their times.
    pub(crate) timing: Timing,
}

impl LeaseArgs {
    /// Checks what was typed. None: no Leases.
    pub(crate) fn config(self) -> Result<Option<LeaseConfig>, Exit> {
        if let Some(namespace) = &self.lease_namespace {
            check_namespace("--lease-namespace", namespace)?;
        }
        check_lease_name(&self.lease_name)?;
        let (duration, deadline, retry) =
            (self.lease_duration, self.lease_renew_deadline, self.lease_retry_period);
        let timing = Timing::new(duration, deadline, retry).map_err(|error| {
            let flag = match error {
                TimingError::Duration(_) => "--lease-duration",
                TimingError::RenewDeadline(..) => "--lease-renew-deadline",
                TimingError::RetryPeriod(..) => "--lease-retry-period",
            };
            Exit::bad_input(format!("{flag}: {error}"))
        })?;
        let shards = usize::try_from(self.shards).unwrap_or(SHARDS_MAX);
        match (self.leases, shards) {
            (Switch::On, _) => {
                let (namespace, name) = (self.lease_namespace, self.lease_name);
                Ok(Some(LeaseConfig { namespace, name, shards, timing }))
            }
            (Switch::Off, 1) => Ok(None),
            (Switch::Off, _) => {
                Err(Exit::bad_input("--shards: shards are shared by Leases: `--leases on` would be right"))
            }
        }
    }
}

/// A Lease's name is a DNS subdomain.
pub(crate) fn check_lease_name(name: &str) -> Result<(), Exit> {
    if is_dns_name(name) {
        return Ok(());
    }
    Err(Exit::bad_input(format!(
        "--lease-name: `{name}` is no name of a Lease: lower case letters, digits, `-` and `.` would be right, at most \
         {NAME_BYTES_MAX} of them"
    )))
}

/// A DNS subdomain that something may be added to.
pub(crate) fn is_dns_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        !bytes.is_empty()
            && bytes.iter().all(|b| plain(*b) || *b == b'-')
            && plain(bytes[0])
            && plain(bytes[bytes.len() - 1])
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label)
}

/// `2`, `0.5`, `2s`, `500ms`
fn seconds(text: &str) -> Result<Duration, String> {
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 0.001),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let parsed = number.parse::<f64>().ok().map(|number| number * factor);
    let time = parsed.filter(|seconds| seconds.is_finite()).map(Duration::try_from_secs_f64);
    match time {
        // No finer than the flags are meant.
        Some(Ok(time)) => Ok(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))),
        _ => Err("seconds, such as `2` or `0.5`, would be right".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_with_and_without_their_unit() {
        for (text, ms) in [("2", 2_000), ("0.5", 500), ("2s", 2_000), ("500ms", 500), ("1.25s", 1_250)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1", "2m", "inf", "NaN", "two"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for name in ["pilothouse", "a.b-c.d0"] {
            assert!(check_lease_name(name).is_ok(), "{name}");
        }
        for name in ["", "a..b", "-a", "a-", "A", "a_b", &"a".repeat(241)] {
            assert!(check_lease_name(name).is_err(), "{name}");
        }
    }
}
