//! What a plugin, or a client, may do wrong: an error for its own call, and for nobody else's.

use pilothouse_e2e::{VALIDATING, tls_client::TlsClient, webhooks::free_port};
use pilothouse_harness::Host;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{guarded, host, object};
use crate::{
    scripted::SCRIPTED,
    stamped::count,
    support::{DEADLINE, World},
};

#[tokio::test]
async fn a_plugin_that_fails_is_an_error_of_the_call_and_the_policy_decides() {
    let flood = json!({"flood": 20 << 20});
    let cases = [
        (json!({"behaviour": "trap"}), "plugin `scripted` trapped"),
        (json!({"behaviour": "loop"}), "used more than its 1000 ms of CPU time"),
        (json!({"behaviour": "allocate"}), "needs more than its 64 MiB of memory"),
        (flood, "returned more than its 8 MiB of output"),
        (json!({"allowed": false}), "denies the request and names no cause"),
        (
            json!({"allowed": true, "deny": [{"field": "a", "message": "b"}]}),
            "allows the request and names 1 causes",
        ),
        (
            json!({"deny": [{"field": "a", "message": "b", "reason": "Nope"}]}),
            "`Nope` is no word of the API server",
        ),
    ];
    for policy in ["Fail", "Ignore"] {
        let world = guarded("fails", &json!({"failurePolicy": policy})).await;
        let host = host(&world).await;
        for (at, (admission, part)) in cases.iter().enumerate() {
            let name = format!("case-{at}");
            let applied = world.server_apply(SCRIPTED, &object(&name, admission.clone())).await;
            if policy == "Ignore" {
                assert!(applied.is_ok(), "{part}: {applied:?}");
                continue;
            }
            let status = applied.unwrap_err();
            assert_eq!(status.code, 500, "{part}: {status:?}");
            let start = "failed calling webhook \"scripteds.scripted.pilothouse.dev\"";
            assert!(
                status.message.contains(start) && status.message.contains(part),
                "{part}: {}",
                status.message
            );
        }
        let labels = [("webhook", "/validate/scripted"), ("code", "500")];
        assert_eq!(
            count(&host, "controller_runtime_webhook_requests_total", &labels).await,
            cases.len() as u64
        );
    }
}

#[tokio::test]
async fn what_is_no_call_is_refused_with_the_reason() {
    let world = guarded("malformed", &json!({})).await;
    let port = free_port();
    let _host = Host::start(world.guarding(port, port)).await.unwrap();
    let client = client(&world, port).await;
    let review = |kind: &str| json!({"apiVersion": "admission.k8s.io/v1", "kind": kind}).to_string();
    let (json_type, validate) = ("application/json", "/validate/scripted");
    for (method, path, kind, body, status, part) in [
        ("GET", validate, json_type, String::new(), 405, "by POST"),
        ("POST", "/", json_type, "{}".to_owned(), 404, "no webhook at this path"),
        ("POST", "/validate/scripted/more", json_type, "{}".to_owned(), 404, "no webhook at this path"),
        ("POST", "/validate/other", json_type, "{}".to_owned(), 500, "plugin `other` is not loaded"),
        ("POST", validate, "text/plain", "{}".to_owned(), 415, "application/json"),
        ("POST", validate, json_type, String::new(), 400, "EOF"),
        ("POST", validate, json_type, "{}".to_owned(), 400, "no AdmissionReview of admission.k8s.io/v1"),
        ("POST", validate, json_type, review("AdmissionReview"), 400, "has no request"),
        ("POST", validate, json_type, review("ConversionReview"), 400, "no AdmissionReview"),
        ("POST", "/convert/scripted", json_type, review("AdmissionReview"), 400, "no ConversionReview"),
        ("POST", validate, json_type, " ".repeat((8 << 20) + 1), 413, "at most 8388608 bytes"),
    ] {
        let (code, said) = client.ask(method, path, kind, body.as_bytes()).await;
        assert!(code == status && said.contains(part), "{method} {path}: {code} {said}");
    }
    // Nobody else has noticed.
    world.server_apply(SCRIPTED, &object("a", json!({}))).await.unwrap();
}

#[tokio::test]
async fn clients_that_dawdle_are_shown_the_door_and_hold_nobody_up() {
    let world = guarded("slow", &json!({})).await;
    let port = free_port();
    let _host = Host::start(world.guarding(port, port)).await.unwrap();
    let client = client(&world, port).await;

    let mut without_handshake = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut without_request = client.connect().await;
    let mut half_a_head = client.connect().await;
    half_a_head.write_all(b"POST /validate/scripted HTTP/1.1\r\nHost: a\r\n").await.unwrap();
    let mut half_a_body = client.connect().await;
    let head = b"POST /validate/scripted HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                 Content-Length: 1000\r\n\r\n{";
    half_a_body.write_all(head).await.unwrap();

    world.server_apply(SCRIPTED, &object("a", json!({}))).await.unwrap();
    let mut rest = Vec::new();
    // A connection that is cut reads as ended, or as an error.
    let _ = timeout(DEADLINE, without_handshake.read_to_end(&mut rest)).await.expect("no handshake");
    for (stream, what) in [
        (&mut without_request, "no request"),
        (&mut half_a_head, "half a head"),
        (&mut half_a_body, "half a body"),
    ] {
        let _ = timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect(what);
    }
    world.server_apply(SCRIPTED, &object("b", json!({}))).await.unwrap();
}

#[tokio::test]
async fn an_object_of_a_megabyte_is_checked_like_any_other() {
    let world = guarded("large", &json!({"defaults": true})).await;
    let _host = host(&world).await;
    let mut large = object("a", json!({"defaults": {"spec": {"size": 1}}}));
    large["spec"]["text"] = json!("x".repeat(1 << 20));
    let stored = world.server_apply(SCRIPTED, &large).await.unwrap();
    assert_eq!(stored["spec"]["size"], 1);
    // Both the old and the new object are sent.
    large["spec"]["text"] = json!("y".repeat(1 << 20));
    large["spec"]["admission"]["deny"] = json!([{"field": "spec.text", "message": "too much"}]);
    let status = world.server_apply(SCRIPTED, &large).await.unwrap_err();
    assert!(status.code == 422 && status.message.len() < 1_000, "{}", status.message.len());
}

async fn client(world: &World, port: u16) -> TlsClient {
    let configuration = world.get_cluster(VALIDATING, &world.namespace).await.unwrap();
    TlsClient::new(&configuration, port)
}
