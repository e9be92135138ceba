//! What is not a hello and a request is refused with its reason, and the connection closes.

use super::*;
use cordon_protocol::RefusalCode;
use nix::sys::socket::{MsgFlags, recv};
use std::os::fd::AsRawFd;

/// Sends the bytes on a fresh connection and gives the refusal.
fn refused(monitor: &Monitor, bytes: &[u8], then_close: bool) -> Refusal {
    let mut client = monitor.connect();
    client.send_bytes(bytes);
    if then_close {
        half_close(&client);
    }
    let refusal = client.refusal();
    client.close(monitor);
    monitor.hear_nothing();
    refusal
}

fn frames(requests: &[Request]) -> Vec<u8> {
    requests.iter().flat_map(|r| encode_frame(r, limits::REQUEST_FRAME_MAX).unwrap()).collect()
}

#[test]
fn another_version_is_named() {
    let monitor = Monitor::start();
    let refusal = refused(&monitor, &frames(&[hello(2)]), false);
    assert_eq!(refusal.code, RefusalCode::BadVersion);
    assert_eq!(refusal.message, "version: the client speaks version 2, this executor version 1");
    // A later version's hello may have other fields.
    let refusal = refused(&monitor, &[9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7], false);
    assert_eq!(refusal.code, RefusalCode::BadVersion);
    monitor.stop();
}

#[test]
fn what_is_no_frame_is_refused() {
    let monitor = Monitor::start();
    let refusal = refused(&monitor, &u32::MAX.to_le_bytes(), false);
    assert_eq!(refusal.code, RefusalCode::BadFrame);
    assert_eq!(refusal.message, "frame of 4294967295 bytes is over the limit of 16777216 bytes");
    let whole = frames(&[hello(1), Request::Run(Box::new(line("true")))]);
    for end in [2, 10, 25, whole.len() - 1] {
        let refusal = refused(&monitor, &whole[..end], true);
        assert_eq!(refusal.code, RefusalCode::BadFrame, "{end}");
        assert_eq!(refusal.message, "connection ended inside a frame");
    }
    for garbage in [&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..], b"\x03\x00\x00\x00GET", &[0; 4]] {
        assert_eq!(refused(&monitor, garbage, false).code, RefusalCode::BadFrame);
    }
    // Text that is not UTF-8 where text belongs: a Kill with the id `ff`.
    let mut bytes = frames(&[hello(1)]);
    bytes.extend([13, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff]);
    let refusal = refused(&monitor, &bytes, false);
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert_eq!(refusal.message, "id: is not UTF-8: byte 0 of `\u{fffd}` is 0xff");
    monitor.stop();
}

#[test]
fn a_frame_in_the_wrong_place_is_refused() {
    let monitor = Monitor::start();
    for (requests, expected) in [
        (vec![Request::Ps], "frame Ps is out of order: expected Hello"),
        (vec![hello(1), hello(1)], "frame Hello is out of order: expected a request"),
        (vec![hello(1), Request::Stdin(vec![1])], "frame Stdin is out of order: expected a request"),
        (vec![hello(1), Request::StdinEnd], "frame StdinEnd is out of order: expected a request"),
    ] {
        let refusal = refused(&monitor, &frames(&requests), false);
        assert_eq!((refusal.code, refusal.message.as_str()), (RefusalCode::OutOfOrder, expected));
    }
    monitor.stop();
}

#[test]
fn a_refusal_reaches_a_client_that_is_still_writing() {
    let monitor = Monitor::start();
    let mut client = monitor.connect();
    let mut writing = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut bytes = frames(&[hello(7)]);
        bytes.resize(3 << 20, 0);
        writing.write_all(&bytes).is_ok()
    });
    assert_eq!(client.refusal().code, RefusalCode::BadVersion);
    assert!(writer.join().unwrap(), "everything was taken");
    client.close(&monitor);
    monitor.stop();
}

#[test]
fn one_that_only_connects_and_leaves_is_closed_once() {
    let monitor = Monitor::start();
    monitor.connect().close(&monitor);
    let mut client = monitor.connect();
    client.send(&hello(1));
    client.close(&monitor);
    monitor.hear_nothing();
    monitor.stop();
}

#[tokio::test(start_paused = true)]
async fn silent_connections_are_refused_in_time_and_hold_up_nobody() {
    let (link, theirs) = link_pair();
    let test = async {
        let mut clients = Vec::new();
        for connection in 0..100 {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            // Half of them say hello and then nothing more.
            if connection % 2 == 0 {
                ours.write_all(&frames(&[hello(1)])).unwrap();
            }
            let message = ToServer::Connection { connection, uid: UID, profiles: 0 };
            scm::send(link.as_fd(), &message.encode(), &[theirs.as_fd()]).unwrap();
            clients.push(ours);
        }
        tokio::time::sleep(limits::HELLO_TIMEOUT - Duration::from_millis(1)).await;
        for client in &clients {
            let early = recv(client.as_raw_fd(), &mut [0; 1], MsgFlags::MSG_DONTWAIT);
            assert_eq!(early, Err(nix::errno::Errno::EAGAIN));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        for (i, client) in clients.iter_mut().enumerate() {
            client.set_nonblocking(true).unwrap();
            let event = read_frame(client, limits::EVENT_FRAME_MAX).unwrap();
            let Some(Event::Refused(refusal)) = event else { panic!("{event:?}") };
            assert_eq!(refusal.code, RefusalCode::Timeout);
            let expected = if i % 2 == 0 { "request" } else { "Hello" };
            assert_eq!(refusal.message, format!("timeout: no {expected} within 10 s of connecting"));
        }
    };
    let served =
        super::super::serve(theirs, fixture::config(), layers(), 0, super::super::Landmarks::default());
    tokio::select! {
        () = test => {}
        ended = served => panic!("{ended:?}"),
    }
}
