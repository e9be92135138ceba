//! What SIGHUP does to `cordon up` and to its gateway.

use crate::harness::{
    PATIENCE, Up, client::line, eventually, http::request_bytes, marker, process::sandboxed,
};
use cordon_protocol::client::blocking;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use std::{fs, io::Write, net::TcpStream};

#[test]
fn cordon_up_reads_its_profiles_again_and_passes_the_signal_on() {
    let mut up = Up::start();
    let (through_gateway, marker) = (marker(), marker());
    let _running = blocking::run(&up.socket, "test", line(&format!("sleep {marker}; :"))).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
    let (host, token) = (format!("127.0.0.1:{}", up.port), format!("Bearer {}", up.token));
    let headers = [("Host", &*host), ("Authorization", &token), ("Content-Type", "application/json")];
    let body = json!({"command": format!("sleep {through_gateway}; :")}).to_string();
    stream.write_all(&request_bytes("POST /v1/exec", &headers, body.as_bytes())).unwrap();
    let run = || !sandboxed(&marker).is_empty() && !sandboxed(&through_gateway).is_empty();
    eventually("both run", PATIENCE, run);
    let file = up.directory().join("profiles.toml");
    fs::write(&file, "[profiles.added]\n").unwrap();
    up.process().signal(Signal::SIGHUP);
    up.process().wait_for("configuration read anew: 2 profiles");
    assert_eq!(up.inside_profile("added", "echo works"), "works\n");
    let over_http = |up: &Up| up.exec(&json!({"command": "echo works", "profile": "added"})).stdout;
    assert_eq!(over_http(&up).as_deref(), Some("works\n"));
    fs::write(&file, "[profiles.added]\nconcurrency = 0\n").unwrap();
    up.process().signal(Signal::SIGHUP);
    up.process().wait_for("the configuration stays as it was");
    assert!(up.process().log().contains("concurrency: 0"), "{}", up.process().log());
    assert_eq!(over_http(&up).as_deref(), Some("works\n"));
    fs::write(&file, "").unwrap();
    up.process().signal(Signal::SIGHUP);
    up.process().wait_for("configuration read anew: 1 profile");
    let gone = up.post(&json!({"command": "echo ran", "profile": "added"}));
    assert_eq!(gone.error(400).0, "unknown_profile");
    assert!(run(), "nothing of them was ended");
}

#[test]
fn what_the_gateway_cannot_read_anew_is_told_and_it_goes_on() {
    let mut up = Up::start();
    let works =
        |up: &Up| assert_eq!(up.exec(&json!({"command": "echo works"})).stdout.as_deref(), Some("works\n"));
    kill(Pid::from_raw(up.gateway()), Signal::SIGHUP).unwrap();
    up.process().wait_for("nothing is read anew: configuration and token are read at start");
    works(&up);
    let says = "/token is not the token that the gateway has";
    up.process().signal(Signal::SIGHUP);
    up.process().wait_for("configuration read anew");
    assert!(!up.process().log().contains(says));
    fs::write(up.directory().join("token"), "0".repeat(64)).unwrap();
    up.process().signal(Signal::SIGHUP);
    up.process().wait_for(says);
    works(&up);
}
