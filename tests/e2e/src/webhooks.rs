//! Hosts that serve webhooks: on loopback, where the test's API server finds them by address.

use std::{net::TcpListener, process::Output};

use kube::{
    Client,
    api::{DynamicObject, Patch, PatchParams},
    core::Status,
};
use pilothouse_harness::HostOptions;
use serde_json::Value;

use crate::{Kind, World};

/// A port of the loopback interface that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl World {
    /// As [`World::options`], for a host that serves webhooks at `listen` and is found at `at`, under configurations that
    /// are named as the test's namespace.
    pub fn guarding(&self, listen: u16, at: u16) -> HostOptions {
        let flags = [
            ("--webhook-listen", format!("127.0.0.1:{listen}")),
            ("--webhook-url", format!("https://127.0.0.1:{at}")),
            ("--webhook-name", self.namespace.clone()),
        ];
        let arguments = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        HostOptions { arguments, ..self.options() }
    }

    /// An object without a namespace; none if it is not there.
    pub async fn get_cluster(&self, kind: Kind, name: &str) -> Option<Value> {
        let object = kind.cluster_api(&self.client).get_opt(name).await.unwrap();
        object.map(|object| serde_json::to_value(object).unwrap())
    }

    /// `kubectl apply -f -`, with what it says on stderr.
    pub async fn try_apply(&self, object: &Value) -> (bool, String) {
        let Output { status, stdout, stderr } = self.try_kubectl("apply -f -", &object.to_string()).await;
        let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (status.success(), text)
    }

    /// Server-side apply as somebody called `user`, and what the API server says.
    pub async fn server_apply(&self, kind: Kind, object: &Value) -> Result<Value, Status> {
        server_apply(&self.client, &self.namespace, kind, object).await
    }
}

/// Server-side apply as somebody called `user`, and what the API server says.
pub async fn server_apply(
    client: &Client,
    namespace: &str,
    kind: Kind,
    object: &Value,
) -> Result<Value, Status> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let objects: kube::Api<DynamicObject> = kind.api(client, namespace);
    match objects.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(error) => panic!("{error}"),
    }
}
