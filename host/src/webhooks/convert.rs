//! `convert`: one ConversionReview. A list may have thousands of objects: a plugin gets them in portions that fit into
//! its memory.

use pilothouse_model::conversion::converted;
use serde_json::Value;
use tracing::Instrument as _;

use super::review::{self, ConversionBody, shown};
use super::service::{Call, Refusal};

/// JSON text of one call; a guest takes some ten times that for its values, of 64 MiB.
const PORTION_BYTES: usize = 1 << 20;

/// Answers a review with a review. What goes wrong once it could be read is said in the answer: that is how the API
/// server quotes it.
pub(super) async fn answer(call: &Call<'_>, body: &[u8]) -> Result<String, Refusal> {
    let ConversionBody { uid, desired_api_version, objects } = review::conversion(body)?;
    let span = tracing::info_span!(
        "webhook",
        plugin = %call.plugin.prepared.manifest().name,
        webhook = "convert",
        to = desired_api_version,
        objects = objects.len(),
    );
    let converted = convert_all(call, objects, &desired_api_version).instrument(span.clone()).await;
    let converted = converted.map_err(|refusal| {
        span.in_scope(|| tracing::warn!(reason = refusal.reason, "{}", refusal.message));
        call.metrics.failed(refusal.reason);
        refusal.message
    });
    Ok(review::conversion_answer(&uid, converted))
}

async fn convert_all(call: &Call<'_>, objects: Vec<Value>, to: &str) -> Result<Vec<Value>, Refusal> {
    let mut answers = Vec::with_capacity(objects.len());
    let mut portion = Vec::new();
    let mut bytes = 0;
    for object in &objects {
        let Some(seen) = shown(object.clone()) else {
            return Err(Refusal::malformed(format!(
                "objects[{}] is no object",
                answers.len() + portion.len()
            )));
        };
        let text = seen.to_string();
        if bytes + text.len() > PORTION_BYTES && !portion.is_empty() {
            convert(call, std::mem::take(&mut portion), &objects, to, &mut answers).await?;
            bytes = 0;
        }
        bytes += text.len();
        portion.push(text);
    }
    if !portion.is_empty() {
        convert(call, portion, &objects, to, &mut answers).await?;
    }
    Ok(answers)
}

async fn convert(
    call: &Call<'_>,
    portion: Vec<String>,
    objects: &[Value],
    to: &str,
    answers: &mut Vec<Value>,
) -> Result<(), Refusal> {
    let asked = portion.len();
    let sandbox = &call.shared.sandbox;
    let converted_texts =
        call.wait(sandbox.convert(&call.plugin.prepared, &call.limits(), portion, to.to_owned())).await?;
    let refused = |message: String| {
        let name = &call.plugin.prepared.manifest().name;
        Refusal::new(
            axum::http::StatusCode::INTERNAL_SERVER_ERROR,
            "Refused",
            format!("plugin `{name}`: {message}"),
        )
    };
    let texts = converted_texts.map_err(|problem| refused(format!("cannot convert to {to}: {problem}")))?;
    if texts.len() != asked {
        return Err(refused(format!("`convert` returned {} objects for {asked}", texts.len())));
    }
    for text in texts {
        let at = answers.len();
        answers.push(converted(at, &objects[at], &text, to).map_err(|lie| call.lied("convert", &lie))?);
    }
    Ok(())
}
