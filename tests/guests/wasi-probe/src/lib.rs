//! A plugin that reaches for everything that WASI has. Built for wasm32-wasip1, as components of most languages are,
//! its status says what it found: nothing of the machine, and the same on each run.

#![allow(missing_docs, unsafe_code, reason = "generated bindings")]
#![allow(clippy::pedantic, reason = "generated bindings")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "one of the things that it tries")]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

// WASI's interfaces with one function each: a host knows them by their names, and by the types that are imported.
wit_bindgen::generate!({
    path: "../../../wit",
    world: "test:probe/probe",
    inline: "
        package test:probe;

        world probe {
            include pilothouse:operator/plugin@0.1.0;
            import wasi:sockets/tcp-create-socket@0.2.9;
            import wasi:http/outgoing-handler@0.2.9;
        }

        package wasi:sockets@0.2.9 {
            interface tcp-create-socket {
                enum address-family { ipv4, ipv6 }
                enum error-code { unknown, access-denied, not-supported }
                resource tcp-socket;
                create-tcp-socket: func(address-family: address-family) -> result<tcp-socket, error-code>;
            }
        }

        package wasi:http@0.2.9 {
            interface outgoing-handler {
                variant error-code { internal-error(option<string>), HTTP-request-denied }
                handle: func(request: string) -> result<string, error-code>;
            }
        }
    ",
    generate_all,
});

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::types::{Action, Desired, Outcome};
use wasi::http::outgoing_handler;
use wasi::sockets::tcp_create_socket::{self, AddressFamily};

struct Probe;

export!(Probe);

impl Guest for Probe {
    fn describe() -> String {
        json!({
            "name": "wasi-probe",
            "version": "0.1.0",
            "controllers": [{
                "primary": { "group": "test.pilothouse.dev", "version": "v1", "kind": "Probe", "plural": "probes" },
            }],
        })
        .to_string()
    }

    fn reconcile(desired: Desired, _observed: Observed) -> Outcome {
        let primary: Value = serde_json::from_str(&desired.primary).unwrap_or_default();
        match primary["spec"]["behaviour"].as_str().unwrap_or("look") {
            "exit" => std::process::exit(3),
            "panic" => panic!("words of a panic"),
            "print" => print(),
            _ => {}
        }
        Outcome { actions: vec![Action::SetStatus(look().to_string())], failure: None }
    }
}

fn look() -> Value {
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(3600));
    let slept = started.elapsed();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut input = String::new();
    let read = std::io::stdin().read_line(&mut input).map_err(|error| error.to_string());
    json!({
        "arguments": std::env::args().count(),
        "variables": std::env::vars().count(),
        "sleptSeconds": slept.as_secs(),
        "unixSeconds": now.as_secs(),
        "random": RandomState::new().hash_one("x").to_string(),
        "stdin": read.ok(),
        "root": std::fs::read_dir("/").is_ok(),
        "passwd": std::fs::read("/etc/passwd").is_ok(),
        "written": std::fs::write("planted", "x").is_ok(),
        "network": std::net::TcpStream::connect("127.0.0.1:80").is_ok(),
        "socketDenied": matches!(
            tcp_create_socket::create_tcp_socket(AddressFamily::Ipv4),
            Err(tcp_create_socket::ErrorCode::AccessDenied)
        ),
        "httpDenied": matches!(
            outgoing_handler::handle("http://127.0.0.1/"),
            Err(outgoing_handler::ErrorCode::HttpRequestDenied)
        ),
    })
}

fn print() {
    println!("to stdout");
    println!("and a second line");
    eprint!("to stderr ");
    eprintln!("in two pieces");
}
