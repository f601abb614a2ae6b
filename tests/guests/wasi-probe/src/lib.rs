//! A plugin that reaches for everything that WASI has. Built for wasm32-wasip1, as components of most languages are,
//! its status says what it found: nothing of the machine, and the same on each run.

#![allow(missing_docs, unsafe_code, reason = "generated bindings")]
#![allow(clippy::pedantic, reason = "generated bindings")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "one of the things that it tries")]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

wit_bindgen::generate!({ path: "../../../wit", world: "plugin" });

use exports::pilothouse::operator::reconciler::{Guest, Observed};
use pilothouse::operator::types::{Action, Desired, Outcome};

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
    })
}

fn print() {
    println!("to stdout");
    println!("and a second line");
    eprint!("to stderr ");
    eprintln!("in two pieces");
}
