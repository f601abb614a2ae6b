//! CustomResourceDefinitions that a plugin brings along: applied, and waited for.

use std::time::Duration;

use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::{Resource, Scope};
use pilothouse_model::object::Object;
use pilothouse_model::{backoff, settings::BackoffSettings};
use serde_json::Value;

use crate::keep::{self, Kept};
use crate::write::{Endpoint, Writer};
use crate::write_error::WriteError;

/// The host's own field manager, as opposed to those of its plugins.
pub const HOST_MANAGER: &str = "pilothouse";
/// An API server establishes a CRD within a second; a busy one may take some.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
/// Pace of looking whether it is.
const LOOK: BackoffSettings = BackoffSettings { base_ms: 20, cap_ms: 1_000 };

/// A CRD that is not served as it should be.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// It has no name.
    #[error("crds[{0}].metadata.name is missing")]
    Nameless(usize),
    /// The API server does not take it.
    #[error("CustomResourceDefinition {name}: {error}")]
    Write {
        /// Which one.
        name: String,
        /// Why.
        error: WriteError,
    },
    /// The API server took it and does not serve it.
    #[error("CustomResourceDefinition {name} is not established after {} s: {problem}", ESTABLISHED_WITHIN.as_secs())]
    NotEstablished {
        /// Which one.
        name: String,
        /// What its conditions say.
        problem: String,
    },
}

impl CrdError {
    /// How long the API server asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Write { error, .. } => error.retry_after,
            Self::Nameless(_) | Self::NotEstablished { .. } => None,
        }
    }
}

/// Applies CRDs by server-side apply as [`HOST_MANAGER`], taking fields over from whoever else set them, and returns
/// when the API server has established all of them. Writes nothing for one that is as it should be.
///
/// Watches of the new kinds begin sooner after [`Watches::retry`](crate::watches::Watches::retry). A dropped future
/// leaves the CRDs that were applied so far.
pub async fn apply_crds(writer: &Writer, crds: &[Value]) -> Result<(), CrdError> {
    let writer = writer.with_manager(HOST_MANAGER);
    let named = |(at, crd): (usize, &Value)| match crd["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(CrdError::Nameless(at)),
    };
    let names = crds.iter().enumerate().map(named).collect::<Result<Vec<String>, CrdError>>()?;
    for (crd, name) in crds.iter().zip(&names) {
        apply(&writer, crd, name).await.map_err(|error| CrdError::Write { name: name.clone(), error })?;
    }
    for name in &names {
        established(&writer, name).await?;
    }
    Ok(())
}

fn endpoint(name: &str) -> Endpoint<'_> {
    let kind = Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Endpoint::new(&kind, "customresourcedefinitions", None, name)
}

async fn apply(writer: &Writer, crd: &Value, name: &str) -> Result<(), WriteError> {
    let resource = Resource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        scope: Scope::Cluster,
    };
    if keep::apply(writer, &resource, name, crd, false, |_| true).await? == Kept::Written {
        tracing::info!(crd = name, "applied");
    }
    Ok(())
}

async fn established(writer: &Writer, name: &str) -> Result<(), CrdError> {
    let mut problem = "it was not looked at".to_owned();
    let look = async {
        for looks in 1_u32.. {
            problem = match writer.get(&endpoint(name)).await {
                Ok(Some(crd)) => match standing(&crd) {
                    Standing::Established => return,
                    Standing::Waits(problem) => problem,
                },
                Ok(None) => "it is gone".to_owned(),
                Err(error) => error.to_string(),
            };
            tokio::time::sleep(backoff::delay(&LOOK, looks, 0)).await;
        }
    };
    let in_time = tokio::time::timeout(ESTABLISHED_WITHIN, look).await;
    in_time.map_err(|_| CrdError::NotEstablished { name: name.to_owned(), problem })
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Established,
    Waits(String),
}

fn standing(crd: &Object) -> Standing {
    let status = crd.field("status");
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let is = |kind: &str, value: &str| conditions.iter().find(|c| c["type"] == kind && c["status"] == value);
    if let Some(refused) = is("NamesAccepted", "False") {
        return Standing::Waits(refused["message"].as_str().unwrap_or("its names are taken").to_owned());
    }
    match is("Established", "True") {
        Some(_) => Standing::Established,
        None => Standing::Waits("it has no condition Established".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crd_whose_names_are_taken_says_so() {
        let crd = |conditions: Value| {
            let value = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                               "metadata": {"name": "x"}, "status": {"conditions": conditions}});
            standing(&Object::from_value(&value).unwrap())
        };
        let accepted = json!({"type": "NamesAccepted", "status": "True"});
        let established = json!({"type": "Established", "status": "True"});
        assert_eq!(crd(json!([accepted, established])), Standing::Established);
        assert!(matches!(crd(json!([accepted])), Standing::Waits(_)));
        let taken = json!({"type": "NamesAccepted", "status": "False", "message": "\"webs\" is in use"});
        assert_eq!(crd(json!([taken, established])), Standing::Waits("\"webs\" is in use".to_owned()));
    }
}
