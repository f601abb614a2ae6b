//! Amounts as Kubernetes writes them: compared by value, written in the canonical form that the API server would give
//! them, so that what is applied equals what is read back.

use std::fmt;

use pilothouse_sdk::Failure;

/// CPU in thousandths of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cpu(u32);

/// Memory in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Memory(u32);

/// Size of a volume in GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Storage(u32);

impl Cpu {
    /// `2`, `0.5` or `500m`.
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self, Failure> {
        let millis = if let Some(millis) = text.strip_suffix('m') {
            millis.parse().ok()
        } else {
            let (whole, part) = text.split_once('.').unwrap_or((text, ""));
            // Thousandths: `.5` is 500.
            let part = [part, "000"].concat().get(..3).and_then(|digits| digits.parse::<u32>().ok());
            let whole = whole.parse::<u32>().ok().and_then(|whole| whole.checked_mul(1000));
            whole.zip(part).map(|(whole, part)| whole.saturating_add(part))
        };
        positive(field, text, millis, "`500m` or `2`").map(Self)
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) { write!(f, "{}", self.0 / 1000) } else { write!(f, "{}m", self.0) }
    }
}

impl Memory {
    /// `512Mi` or `4Gi`.
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self, Failure> {
        let mebibytes = match (text.strip_suffix("Mi"), text.strip_suffix("Gi")) {
            (Some(mebibytes), _) => mebibytes.parse().ok(),
            (_, Some(gibibytes)) => {
                gibibytes.parse::<u32>().ok().and_then(|gibibytes| gibibytes.checked_mul(1024))
            }
            _ => None,
        };
        positive(field, text, mebibytes, "`512Mi` or `4Gi`").map(Self)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_binary(f, u64::from(self.0), &["Mi", "Gi", "Ti", "Pi"])
    }
}

impl Storage {
    /// `20Gi`.
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self, Failure> {
        let gibibytes = text.strip_suffix("Gi").and_then(|gibibytes| gibibytes.parse().ok());
        positive(field, text, gibibytes, "`20Gi`").map(Self)
    }

    /// The size in an object of the API server; none if it is not one that this plugin has written.
    pub(crate) fn read(text: &str) -> Option<Self> {
        for (suffix, gibibytes) in [("Gi", 1), ("Ti", 1 << 10), ("Pi", 1 << 20), ("Ei", 1 << 30)] {
            if let Some(number) = text.strip_suffix(suffix) {
                return number.parse::<u32>().ok()?.checked_mul(gibibytes).map(Self);
            }
        }
        None
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_binary(f, u64::from(self.0), &["Gi", "Ti", "Pi", "Ei"])
    }
}

/// The largest unit that leaves a whole number.
fn write_binary(f: &mut fmt::Formatter<'_>, mut number: u64, units: &[&str; 4]) -> fmt::Result {
    let mut at = 0;
    while at < units.len() - 1 && number.is_multiple_of(1024) {
        number /= 1024;
        at += 1;
    }
    write!(f, "{number}{}", units[at])
}

fn positive(field: &str, text: &str, number: Option<u32>, right: &str) -> Result<u32, Failure> {
    match number {
        Some(number) if number > 0 => Ok(number),
        _ => Err(Failure::invalid(
            field,
            &["`", text, "` is no amount of this kind: ", right, " would be right"].concat(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_the_api_server_writes_them() {
        for (text, canonical) in
            [("2", "2"), ("1000m", "1"), ("0.5", "500m"), ("1.25", "1250m"), ("100m", "100m"), ("007", "7")]
        {
            assert_eq!(Cpu::parse("f", text).unwrap().to_string(), canonical, "{text}");
        }
        for (text, canonical) in [("512Mi", "512Mi"), ("1024Mi", "1Gi"), ("4Gi", "4Gi"), ("2048Gi", "2Ti")] {
            assert_eq!(Memory::parse("f", text).unwrap().to_string(), canonical, "{text}");
        }
        for (text, canonical) in [
            ("20Gi", "20Gi"),
            ("020Gi", "20Gi"),
            ("1024Gi", "1Ti"),
            ("1048576Gi", "1Pi"),
            ("1073741824Gi", "1Ei"),
        ] {
            let storage = Storage::parse("f", text).unwrap();
            assert_eq!(storage.to_string(), canonical, "{text}");
            assert_eq!(Storage::read(canonical), Some(storage), "{text}");
        }
    }

    #[test]
    fn amounts_compare_by_value() {
        assert!(Cpu::parse("f", "1500m").unwrap() < Cpu::parse("f", "2").unwrap());
        assert!(Memory::parse("f", "1025Mi").unwrap() > Memory::parse("f", "1Gi").unwrap());
        assert!(Storage::parse("f", "9Gi").unwrap() < Storage::parse("f", "10Gi").unwrap());
    }

    #[test]
    fn what_is_no_amount_is_refused_by_field() {
        for text in ["", "0", "0m", "m", "x", "-1", "5000000"] {
            assert!(Cpu::parse("f", text).is_err(), "{text}");
        }
        for text in ["", "0Gi", "Gi", "1", "4194304Gi", "99999999999Gi"] {
            assert!(Memory::parse("f", text).is_err(), "{text}");
        }
        let error = Storage::parse("spec.storage", "0Gi").unwrap_err();
        let expected = "spec.storage: `0Gi` is no amount of this kind: `20Gi` would be right";
        assert_eq!(error, Failure::Invalid(expected.to_owned()));
    }
}
