//! Prometheus text, as far as tests need it.

use std::collections::BTreeMap;

/// The samples of one scrape: name and labels as they were printed, and the value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Reads the text (or OpenMetrics) exposition format; lines that are no samples are left out.
    pub fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            // A label's value may hold spaces and braces, so the series ends at the last brace, if there is one.
            let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
            let (series, rest) = line.split_at(end);
            let value = rest.split_whitespace().next()?.parse().ok()?;
            Some((series.to_owned(), value))
        };
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The value of one series, named as it is printed: `name` or `name{label="value",…}`.
    pub fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }

    /// The sum over all series of this name that have all of these labels; zero if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let matches = |series: &str| {
            let (own, its) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.iter().all(|label| its.contains(label.as_str()))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| value).sum()
    }

    /// All samples in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(series, value)| (series.as_str(), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_series_and_summed_by_label() {
        let text = "# HELP passes Passes.\npasses_total{plugin=\"a b\",outcome=\"ok\"} 3\n\
                    passes_total{plugin=\"c}\",outcome=\"ok\"} 4 1700000000\nup 1\n# EOF\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.get("up"), Some(1.0));
        assert_eq!(metrics.get("passes_total{plugin=\"c}\",outcome=\"ok\"}"), Some(4.0));
        assert!((metrics.sum("passes_total", &[("outcome", "ok")]) - 7.0).abs() < f64::EPSILON);
        assert!((metrics.sum("passes_total", &[("plugin", "a b")]) - 3.0).abs() < f64::EPSILON);
    }
}
