//! The two text formats, and which of them a scraper wants.

use prometheus_client::encoding::prometheus_text;

/// Form of an answer to a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus text 0.0.4, which every scraper reads.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The one that an `Accept` header asks for: OpenMetrics if it is named and not wanted less than plain text. What
    /// cannot be understood counts as not said.
    pub(crate) fn accepted(accept: &str) -> Self {
        let (mut open_metrics, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let wanted = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => &mut open_metrics,
                "text/plain" | "text/*" | "*/*" => &mut plain,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            *wanted = wanted.max(quality);
        }
        if open_metrics > 0.0 && open_metrics >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_what_it_asks_for_and_the_older_format_if_it_asks_for_nothing() {
        // What Prometheus 3 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/html, */*;q=0.8", Format::Prometheus),
            ("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.1", Format::Prometheus),
            ("application/openmetrics-text; q=0", Format::Prometheus),
            ("application/openmetrics-text; q=nonsense", Format::OpenMetrics),
            ("application/OpenMetrics-Text; version=1.0.0", Format::OpenMetrics),
            (prometheus, Format::OpenMetrics),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
