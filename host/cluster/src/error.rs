//! Why the API server did not give what was asked for, sorted by what the asker does next.

use std::time::Duration;

use kube::core::Status;

/// A request that reads failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// 404: the object, or the kind itself, is not there. It may come.
    #[error("not found: {0}")]
    Missing(String),
    /// 403: RBAC does not allow it. The administrator must act; it heals when granted.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// 401: the credentials are not accepted. They are re-read by themselves.
    #[error("not authenticated: {0}")]
    Unauthorized(String),
    /// 410: the version or the continue token is too old. Begin again without it.
    #[error("expired: {0}")]
    Expired(String),
    /// 429: too many requests. Wait at least this long.
    #[error("throttled: {message}")]
    Throttled {
        /// What the API server asks for; its default is one second.
        after: Duration,
        /// Its words.
        message: String,
    },
    /// Another status: a 4xx that repeating will not change, or a 5xx that it may.
    #[error("refused with status {code}: {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// More than this many bytes: ask for fewer objects.
    #[error(
        "more than {bytes_max} bytes: ask for fewer objects, or for fewer of their fields by a projection"
    )]
    TooLarge {
        /// What would be right.
        bytes_max: u64,
    },
    /// No answer: no connection, a broken one, or none in time.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// An answer that is no Kubernetes JSON.
    #[error("not understood: {0}")]
    Malformed(String),
}

impl ReadError {
    /// One of a closed list of words, for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => "Missing",
            Self::Forbidden(_) => "Forbidden",
            Self::Unauthorized(_) => "Unauthorized",
            Self::Expired(_) => "Expired",
            Self::Throttled { .. } => "Throttled",
            Self::Refused { .. } => "Refused",
            Self::TooLarge { .. } => "TooLarge",
            Self::Unreachable(_) => "Unreachable",
            Self::Malformed(_) => "Malformed",
        }
    }

    /// How long the API server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// From a `Status` that came as an answer or inside a watch.
    pub(crate) fn from_status(status: &Status) -> Self {
        let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
        match status.code {
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden(message),
            404 => Self::Missing(message),
            410 => Self::Expired(message),
            429 => {
                let seconds = status.details.as_ref().map_or(1, |details| details.retry_after_seconds);
                Self::Throttled { after: Duration::from_secs(u64::from(seconds.max(1))), message }
            }
            code => Self::Refused { code, message },
        }
    }
}

impl From<kube::Error> for ReadError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(&status),
            kube::Error::SerdeError(error) => Self::Malformed(error.to_string()),
            kube::Error::FromUtf8(error) => Self::Malformed(error.to_string()),
            other => Self::Unreachable(causes(&other)),
        }
    }
}

/// An error with its causes: hyper says only "client error (Connect)" at the top.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_sorted_by_what_the_asker_does_next() {
        let of = |code| ReadError::from_status(&Status::failure("m", "R").with_code(code)).reason();
        assert_eq!(
            [401, 403, 404, 410, 429, 422, 500].map(of),
            ["Unauthorized", "Forbidden", "Missing", "Expired", "Throttled", "Refused", "Refused"]
        );
    }

    #[test]
    fn a_throttled_answer_says_how_long() {
        let text = r#"{"kind":"Status","code":429,"message":"m","details":{"retryAfterSeconds":7}}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        let ReadError::Throttled { after, .. } = ReadError::from_status(&status) else {
            panic!("{status:?}")
        };
        assert_eq!(after, Duration::from_secs(7));
    }
}
