//! Secrets whose random values the host draws: once, whatever crashes or races.
//!
//! - The first write is one POST of the complete Secret. Of two hosts, or two passes, one creates it; the other is
//!   told that the name is taken, reads what is there and finds nothing left to do.
//! - A later write is a merge patch of the keys, labels and annotations that differ, with the UID and the version of
//!   the Secret that it was computed from. It never removes anything, least of all a value that somebody uses: keys
//!   that the template names no longer stay.
//!
//! Values are neither logged nor put into errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use pilothouse_model::names::BLANKED_ANNOTATION;
use pilothouse_model::object::Object;
use pilothouse_model::plan::Write;
use pilothouse_model::secret::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::apply::{Done, Run};
use crate::desired;
use crate::write::{Answer, Endpoint, Mode};
use crate::write_error::{Fault, WriteError};

type Data = BTreeMap<String, Vec<u8>>;

impl Run<'_> {
    /// Creates the Secret, or brings one that is there up to the template.
    pub(crate) async fn generate_secret(
        &mut self,
        write: &Write,
        object: &Value,
        template: &Template,
    ) -> Done {
        let at = Endpoint::of_write(write);
        let mut live = match self.seen.get(&write.target) {
            Some(_) => self.find(write, &at).await?,
            None => match self.create_secret(write, &at, object, template).await {
                Err(error) if error.fault == Fault::AlreadyExists => self.find(write, &at).await?,
                done => return done,
            },
        };
        if let Some(part) = live.take_if(|live| !shows_values(live)) {
            live = Some(self.look_again(&at, &part).await?);
        }
        let Some(found) = live else { return Err(moved(&at)) };
        match self.complete_secret(&at, object, template, &found).await {
            // Somebody else wrote in between: once more, from what is there now.
            Err(error) if error.fault == Fault::Stale => {
                let found = self.look_again(&at, &found).await?;
                self.complete_secret(&at, object, template, &found).await
            }
            done => done,
        }
    }

    async fn create_secret(
        &mut self,
        write: &Write,
        at: &Endpoint<'_>,
        object: &Value,
        template: &Template,
    ) -> Done {
        self.refuse_in_terminating_namespace(write)?;
        let mut secret = object.clone();
        secret["data"] = encode(fill(template, &Data::new())?);
        let response = self.writer().create(at, &secret, Mode::Store, Answer::Whole).await?;
        Ok(self.written(response))
    }

    async fn complete_secret(
        &mut self,
        at: &Endpoint<'_>,
        object: &Value,
        template: &Template,
        live: &Arc<Object>,
    ) -> Done {
        if live.meta().deleting {
            let message = format!("{at} is being deleted, and is created again when it is gone");
            return Err(WriteError::here(Fault::ObjectTerminating, message));
        }
        let secret = Secret::read(live).ok_or_else(|| {
            WriteError::here(Fault::Unavailable, format!("{at} was not answered as a Secret"))
        })?;
        let wanted_type = object["type"].as_str().unwrap_or("Opaque");
        if secret.type_name != wanted_type {
            let message = format!("type: is {}, may not change to {wanted_type}", secret.type_name);
            return Err(WriteError::here(Fault::Immutable, message));
        }
        let existing: Data = secret.data.into_iter().map(|(key, value)| (key, value.0)).collect();
        let mut wanted = fill(template, &existing)?;
        wanted.retain(|key, value| existing.get(key) != Some(value));

        let mut patch = json!({});
        if !wanted.is_empty() {
            patch["data"] = encode(wanted);
        }
        for (field, live) in
            [("labels", &secret.metadata.labels), ("annotations", &secret.metadata.annotations)]
        {
            let wanted = object["metadata"][field].as_object().into_iter().flatten();
            let differing: Map<String, Value> = wanted
                .filter(|(key, value)| live.get(*key) != Some(*value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !differing.is_empty() {
                patch["metadata"][field] = Value::Object(differing);
            }
        }
        // `find` has seen that no other controller is there.
        if live.meta().owner.is_none() {
            let ours = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let others = secret
                .metadata
                .owner_references
                .iter()
                .filter(|other| !ours.clone().any(|ours| ours["uid"] == other["uid"]));
            patch["metadata"]["ownerReferences"] = others.chain(ours.clone()).cloned().collect();
        }
        if patch == json!({}) {
            return Ok(self.unchanged(live.clone()));
        }
        patch["metadata"]["uid"] = json!(&*live.meta().uid);
        patch["metadata"]["resourceVersion"] = json!(live.meta().resource_version.to_string());
        let response = self.writer().merge_patch(at, None, &patch).await?;
        Ok(self.written(response))
    }
}

/// The parts of a Secret that are compared.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
    #[serde(default, rename = "type")]
    type_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    owner_references: Vec<Value>,
}

impl Secret {
    fn read(object: &Object) -> Option<Self> {
        serde_json::from_str(object.json()).ok()
    }
}

/// Whether this is the Secret itself. One from a watch that shows a part of it, or as a guest sees it, looks as if nothing had
/// been drawn yet.
fn shows_values(secret: &Object) -> bool {
    let blanked = secret
        .field("metadata")
        .pointer("/annotations")
        .is_some_and(|all| all.get(BLANKED_ANNOTATION).is_some());
    !secret.is_partial() && secret.field("data").is_object() && !blanked
}

fn fill(template: &Template, existing: &Data) -> Result<Data, WriteError> {
    // At rest there is nothing to draw.
    if let Some(data) = template.fill(existing, &[]) {
        return Ok(data);
    }
    let failed =
        |why: &str| WriteError::here(Fault::Unavailable, format!("cannot draw random values: {why}"));
    let mut entropy = vec![0; template.random_bytes()];
    getrandom::fill(&mut entropy).map_err(|error| failed(&error.to_string()))?;
    template.fill(existing, &entropy).ok_or_else(|| failed("the system's source was too short"))
}

fn encode(data: Data) -> Value {
    data.into_iter().map(|(key, value)| (key, desired::base64(value))).collect::<Map<_, _>>().into()
}

fn moved(at: &Endpoint<'_>) -> WriteError {
    WriteError::here(Fault::Stale, format!("{at} went while it was looked at"))
}
