//! Frames on the socket that break the rules.

use super::*;
use crate::harness::{
    PATIENCE, Up,
    client::{argv, line},
    eventually, shared,
    wire::{Wire, frame, hello},
};
use cordon_protocol::{
    Event, RefusalCode, Request,
    codec::encode_payload,
    limits::{self, PROTOCOL_VERSION},
};
use std::{net::Shutdown, time::Duration};

#[test]
fn frames_that_break_the_rules_are_refused_by_name() {
    let _verdict = crate::escape::probe!();
    let connect = || Wire::connect(&shared().socket);
    let greeted = || Wire::greeted(&shared().socket);
    let mut wire = connect();
    wire.send_bytes(&u32::MAX.to_le_bytes());
    assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "oversize");
    let mut wire = greeted();
    wire.send_bytes(&(limits::REQUEST_FRAME_MAX as u32 + 1).to_le_bytes());
    let refusal = wire.refusal();
    assert_eq!(refusal.code, RefusalCode::BadFrame);
    assert_says(&refusal.message, &[&(limits::REQUEST_FRAME_MAX + 1).to_string()]);
    for garbage in [&[0xff; 64][..], &[], &[9, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut wire = greeted();
        wire.send_bytes(&frame(garbage));
        assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "{garbage:?}");
    }
    let mut payload = encode_payload(&Request::Ps).unwrap();
    payload.push(0);
    let mut wire = greeted();
    wire.send_bytes(&frame(&payload));
    assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "a byte left over");
    let mut wire = greeted();
    wire.send_bytes(&[100, 0, 0, 0, 1, 2, 3]);
    wire.stream.shutdown(Shutdown::Write).unwrap();
    let answer = wire.next();
    let fine = match &answer {
        Ok(Some(Event::Refused(refusal))) => refusal.code == RefusalCode::BadFrame,
        other => matches!(other, Ok(None)),
    };
    assert!(fine, "truncated: {answer:?}");
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut wire = connect();
        wire.send(&hello(version));
        let refusal = wire.refusal();
        assert_eq!(refusal.code, RefusalCode::BadVersion);
        assert_says(&refusal.message, &[&version.to_string(), &PROTOCOL_VERSION.to_string()]);
    }
    shared().assert_works();
}

#[test]
fn frames_out_of_order_are_refused() {
    let run = || Request::Run(Box::new(argv(&["sleep", "30"])));
    let cases: [&[Request]; 6] = [
        &[run()],
        &[Request::Ps],
        &[hello(PROTOCOL_VERSION), hello(PROTOCOL_VERSION)],
        &[hello(PROTOCOL_VERSION), Request::Stdin(vec![1])],
        &[hello(PROTOCOL_VERSION), Request::StdinEnd],
        &[hello(PROTOCOL_VERSION), Request::Kill { id: "x".repeat(10_000) }],
    ];
    for frames in cases {
        let mut wire = Wire::connect(&shared().socket);
        frames.iter().for_each(|f| wire.send(f));
        let code = wire.refusal().code;
        let expected = [RefusalCode::OutOfOrder, RefusalCode::NotFound, RefusalCode::BadRequest];
        let is_kill = matches!(frames.last(), Some(Request::Kill { .. }));
        assert!(
            if is_kill { expected[1..].contains(&code) } else { code == RefusalCode::OutOfOrder },
            "{frames:?}: {code:?}"
        );
    }
    // While a command runs: it ends, and the connection too.
    let marker = crate::harness::marker();
    let with_stdin = |stdin| {
        let mut request = argv(&["sleep", &marker]);
        request.stdin = stdin;
        Request::Run(Box::new(request))
    };
    let cases: [(bool, &[Request]); 3] = [
        (false, &[Request::Stdin(vec![1])]),
        (true, &[run()]),
        (true, &[Request::StdinEnd, Request::Stdin(vec![1])]),
    ];
    for (stdin, frames) in cases {
        let mut wire = Wire::greeted(&shared().socket);
        wire.send(&with_stdin(stdin));
        assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
        frames.iter().for_each(|f| wire.send(f));
        let last = loop {
            match wire.next() {
                Ok(Some(Event::Refused(refusal))) => break Some(refusal.code),
                Ok(Some(_)) => {}
                _ => break None,
            }
        };
        assert_eq!(last, Some(RefusalCode::OutOfOrder), "{frames:?}");
        eventually("the command ended", PATIENCE, || crate::harness::process::sandboxed(&marker).is_empty());
    }
}

#[test]
fn a_piece_of_input_that_is_too_large_is_refused() {
    let mut request = argv(&["cat"]);
    request.stdin = true;
    let mut wire = Wire::greeted(&shared().socket);
    wire.send(&Request::Run(Box::new(request)));
    assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
    wire.send(&Request::Stdin(vec![b'x'; limits::CHUNK_MAX + 1]));
    let refused = loop {
        match wire.next() {
            Ok(Some(Event::Refused(refusal))) => break refusal,
            Ok(Some(Event::Exited(report))) => panic!("{report:?}"),
            Ok(Some(_)) => {}
            end => panic!("{end:?}"),
        }
    };
    assert_eq!(refused.code, RefusalCode::BadFrame);
}

#[test]
fn a_slow_client_s_frames_are_put_together() {
    let mut wire = Wire::connect(&shared().socket);
    let bytes: Vec<u8> = [hello(PROTOCOL_VERSION), Request::Run(Box::new(line("echo slow")))]
        .iter()
        .flat_map(|r| cordon_protocol::codec::encode_frame(r, limits::REQUEST_FRAME_MAX).unwrap())
        .collect();
    for byte in bytes {
        wire.send_bytes(&[byte]);
    }
    assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
    let Some(Event::Exited(report)) = wire.next().unwrap() else { panic!("no report") };
    assert_eq!(report.stdout.as_deref(), Some("slow\n"));
}

#[test]
fn bad_input_to_a_fresh_instance_leaves_it_level() {
    let _verdict = crate::escape::probe!();
    let up = Up::start();
    up.assert_works();
    let count = || {
        crate::harness::process::descriptors(up.server()).len()
            + crate::harness::process::descriptors(up.monitor()).len()
    };
    eventually("the pools are full", PATIENCE, || {
        let before = count();
        std::thread::sleep(Duration::from_millis(300));
        before == count()
    });
    let before = count();
    for i in 0..100_u32 {
        let mut wire = Wire::connect(&up.socket);
        match i % 3 {
            0 => wire.send_bytes(&frame(&[0xff; 32])),
            1 => wire.send(&hello(7)),
            _ => wire.send_bytes(&[1, 2]),
        }
    }
    eventually("every descriptor is closed again", PATIENCE, || count() <= before + 2);
    up.assert_works();
}
