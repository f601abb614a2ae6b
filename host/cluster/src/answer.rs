//! Answers to requests that read: their head judged, their body bounded while it arrives.
//!
//! In place of kube's `request_text` and `request_stream`, which read a body whole however long it is, and drop the
//! headers of a refusal: `Retry-After` stands there and nowhere else when the API server's priority and fairness, or a
//! load balancer before it, refuses a request.

use std::time::Duration;

use futures::{AsyncBufRead, TryStreamExt as _};
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;

use crate::error::ReadError;

/// Of a refusal only the reason is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// An hour's pause that somebody asks for is a mistake; the API server asks for a second.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// The body of the answer to one request, at most `bytes_max` of it.
///
/// `timeout` is for all of it. Dropping the future gives the answer up.
pub(crate) async fn text(
    client: &Client,
    request: Request<Vec<u8>>,
    timeout: Duration,
    bytes_max: usize,
) -> Result<String, ReadError> {
    let whole = async {
        let body = judged(client.send(request.map(Body::from)).await?).await?;
        let bytes = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                ReadError::TooLarge { bytes_max: bytes_max as u64 }
            } else {
                ReadError::Unreachable(crate::error::causes(&*error))
            }
        })?;
        String::from_utf8(bytes.to_bytes().into()).map_err(|error| ReadError::Malformed(error.to_string()))
    };
    match tokio::time::timeout(timeout, whole).await {
        Ok(answer) => answer,
        Err(_) => Err(silence(timeout)),
    }
}

/// The body of the answer to one request as it arrives. `timeout` is for the head alone.
pub(crate) async fn stream(
    client: &Client,
    request: Request<Vec<u8>>,
    timeout: Duration,
) -> Result<impl AsyncBufRead + use<>, ReadError> {
    let opened = async { judged(client.send(request.map(Body::from)).await?).await };
    match tokio::time::timeout(timeout, opened).await {
        Ok(body) => Ok(body?.into_data_stream().map_err(std::io::Error::other).into_async_read()),
        Err(_) => Err(silence(timeout)),
    }
}

pub(crate) fn silence(lasted: Duration) -> ReadError {
    ReadError::Unreachable(format!("nothing came within {} s", lasted.as_secs()))
}

async fn judged(response: Response<Body>) -> Result<Body, ReadError> {
    let (head, body) = response.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    // Without its words the status says enough.
    let words = Limited::new(body, REFUSAL_BYTES_MAX).collect().await.ok();
    let words = words.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(refusal(head.status.as_u16(), &head.headers, &words))
}

/// A refusal by a `Status`, or by whatever stands before the API server, which has words of its own.
fn refusal(code: u16, headers: &HeaderMap, text: &[u8]) -> ReadError {
    let status: Option<Status> = serde_json::from_slice(text).ok();
    let mut status = status.filter(|status| status.code == code || status.code == 0).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(text);
        let words = text.lines().next().unwrap_or_default().trim();
        Status { message: words.chars().take(256).collect(), ..Status::default() }
    });
    status.code = code;
    if status.message.is_empty() && status.reason.is_empty() {
        status.message = format!("HTTP status {code}");
    }
    let mut error = ReadError::from_status(&status);
    // In seconds, as the API server writes it; a date is left alone.
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    if let (ReadError::Throttled { after, .. }, Some(seconds)) = (&mut error, seconds) {
        *after = (*after).max(Duration::from_secs(seconds)).min(RETRY_AFTER_MAX);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(header: Option<&str>, text: &str) -> (Duration, String) {
        let mut headers = HeaderMap::new();
        headers.extend(header.map(|value| (RETRY_AFTER, value.parse().unwrap())));
        match refusal(429, &headers, text.as_bytes()) {
            ReadError::Throttled { after, message } => (after, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_throttled_answer_says_how_long_in_its_head_or_in_its_body() {
        let seconds = Duration::from_secs;
        // As the API server's priority and fairness answers: no Status, and the time in the head alone.
        let words = "Too many requests, please try again later.\n";
        assert_eq!(throttled(Some("7"), words), (seconds(7), words.trim().to_owned()));
        let status = r#"{"kind":"Status","code":429,"message":"m","details":{"retryAfterSeconds":9}}"#;
        assert_eq!(throttled(Some("7"), status), (seconds(9), "m".to_owned()));
        assert_eq!(throttled(None, status).0, seconds(9));
        assert_eq!(throttled(None, "").0, seconds(1));
        assert_eq!(throttled(Some("Wed, 21 Oct 2026 07:28:00 GMT"), "").0, seconds(1));
        assert_eq!(throttled(Some("999999"), "").0, RETRY_AFTER_MAX);
    }

    #[test]
    fn a_refusal_is_told_in_whatever_words_there_are() {
        let none = HeaderMap::new();
        let say = |code, text: &str| refusal(code, &none, text.as_bytes()).to_string();
        assert_eq!(say(403, r#"{"kind":"Status","code":403,"message":"no"}"#), "forbidden: no");
        assert_eq!(say(503, "<html>down</html>\nmore"), "refused with status 503: <html>down</html>");
        assert_eq!(say(502, ""), "refused with status 502: HTTP status 502");
        assert_eq!(say(503, r#"{"code":200}"#), r#"refused with status 503: {"code":200}"#);
    }
}
