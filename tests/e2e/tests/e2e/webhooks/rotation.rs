//! Certificates are replaced while calls go on, and no call notices.

use std::{
    collections::VecDeque,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use pilothouse_e2e::{
    SECRET, VALIDATING,
    stream::{Stream, all_taken},
    tls_client::TlsClient,
    webhooks::free_port,
};
use pilothouse_harness::{Host, HostOptions, eventually};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::time::{Instant, interval};

use super::{guarded, object};
use crate::{scripted::SCRIPTED, stamped::count, support::World};

/// A rotation takes the time that API servers get to hear of it, and a certificate's two thirds come before it.
const ROTATION: Duration = Duration::from_mins(3);

async fn certificate(world: &World) -> Option<String> {
    let secret = world.get(SECRET, &format!("{}-webhook", world.namespace)).await?;
    secret["data"]["tls.crt"].as_str().map(str::to_owned)
}

async fn other_than(world: &World, before: &str) -> String {
    eventually(ROTATION, "another certificate", || async {
        Ok(certificate(world).await.filter(|now| now != before))
    })
    .await
}

/// Connects again and again with a configuration that is a second old, as an API server that hears of changes late, and
/// counts how often.
async fn late_listener(client: Client, name: String, port: u16, connections: Arc<AtomicUsize>) {
    const LATE: Duration = Duration::from_secs(1);
    // What the host leaves them, with certificates as short as here.
    const SETTLE: Duration = Duration::from_secs(2);
    let mut read = VecDeque::new();
    let mut pace = interval(Duration::from_millis(100));
    loop {
        pace.tick().await;
        let since = Instant::now();
        let configuration = VALIDATING.cluster_api(&client).get(&name).await.unwrap();
        read.push_back((since, TlsClient::new(&serde_json::to_value(configuration).unwrap(), port)));
        while let Some((since, client)) = read.pop_front_if(|(since, _)| since.elapsed() >= LATE) {
            let connected = client.try_connect().await;
            // A machine that is too busy proves nothing.
            if since.elapsed() < SETTLE {
                connected.expect("a certificate that was shown before it was announced");
                connections.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::test]
async fn no_apply_fails_while_certificates_are_replaced() {
    let world = guarded("rotation", &json!({"defaults": true})).await;
    let port = free_port();
    let mut options: HostOptions = world.guarding(port, port);
    options.arguments.extend(["--webhook-cert-lifetime".to_owned(), "30".to_owned()]);
    let host = Host::start(options).await.unwrap();
    let first = certificate(&world).await.unwrap();

    let stream = Stream::begin(&world, SCRIPTED, |number| {
        let mut object = object(&format!("o-{}", number % 40), json!({}));
        object["spec"]["number"] = json!(number);
        object
    });
    let connections = Arc::new(AtomicUsize::new(0));
    let (client, name) = (world.client.clone(), world.namespace.clone());
    let late = tokio::spawn(late_listener(client, name, port, Arc::clone(&connections)));
    let second = other_than(&world, &first).await;
    // Deleted, it is replaced at once.
    world.delete(SECRET, &format!("{}-webhook", world.namespace)).await;
    let third = other_than(&world, &second).await;
    assert_ne!(third, first);
    let taken = all_taken(&stream.end().await);
    assert!(!late.is_finished(), "{:?}", late.await);
    late.abort();
    assert!(connections.load(Ordering::Relaxed) > 20, "{connections:?}");

    let asked = |webhook| async move {
        let labels = [("webhook", webhook), ("code", "200")];
        usize::try_from(count(&host, "controller_runtime_webhook_requests_total", &labels).await).unwrap()
    };
    let asked = asked("/validate/scripted").await;
    assert!(taken > 100 && asked >= taken, "{taken} applies, {asked} of them checked");
}

/// An authority and a certificate for this machine, as cert-manager would mount them; and the authority, PEM.
fn issue(directory: &Path) -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let ca = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let serving = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = serving.signed_by(&key, &issuer).unwrap().pem();
    // The authority last: a host that looks in between sees a pair that it does not know yet.
    for (name, pem) in [("tls.crt", &certificate), ("tls.key", &key.serialize_pem()), ("ca.crt", &ca)] {
        fs::write(directory.join(name), pem).unwrap();
    }
    ca
}

#[tokio::test]
async fn certificates_from_a_directory_are_followed_and_no_apply_fails() {
    let world = guarded("cert-dir", &json!({})).await;
    let directory = tempfile::tempdir().unwrap();
    issue(directory.path());
    let port = free_port();
    let mut options = world.guarding(port, port);
    let flag = ["--webhook-cert-dir".to_owned(), directory.path().display().to_string()];
    options.arguments.extend(flag);
    let host = Host::start(options).await.unwrap();
    assert!(world.get(SECRET, &format!("{}-webhook", world.namespace)).await.is_none(), "none is needed");

    let stream = Stream::begin(&world, SCRIPTED, |number| object(&format!("o-{}", number % 20), json!({})));
    let before = shown(&world, port).await;
    let ca = issue(directory.path());
    eventually(ROTATION, "the new certificate to be shown", || async {
        Ok(shown(&world, port).await != before)
    })
    .await;
    let configuration = world.get_cluster(VALIDATING, &world.namespace).await.unwrap();
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
    let bundle = String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap();
    assert!(bundle.contains(&ca) && bundle.matches("BEGIN CERTIFICATE").count() == 2, "both are believed");
    assert!(all_taken(&stream.end().await) > 50);
    drop(host);
}

/// The certificate that the host shows to whoever believes its configuration.
async fn shown(world: &World, port: u16) -> Vec<u8> {
    let configuration = world.get_cluster(VALIDATING, &world.namespace).await.unwrap();
    let stream = TlsClient::new(&configuration, port).connect().await;
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}
