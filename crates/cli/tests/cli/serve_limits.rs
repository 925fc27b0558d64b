//! Limits and rules of `terrace serve` that one connection meets: before AUTH, in transactions, with
//! subscriptions.

use std::io::Write;

use crate::serve_client::*;
use crate::support::*;

#[test]
fn strangers_send_short_requests_only() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--requirepass", "secret"]);
    for (request, error) in [
        ("*11\r\n", "ERR Protocol error: unauthenticated multibulk length"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.0.get_mut().write_all(request.as_bytes()).unwrap();
        assert_eq!(client.try_read().unwrap(), Reply::Error(error.into()));
        assert!(client.try_read().is_err(), "closed");
    }
    // The limits end with AUTH, also for requests that are sent together with it.
    let mut client = server.client();
    let mut both =
        b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n".to_vec();
    both.extend(vec![b'x'; 20_000]);
    both.extend(b"\r\n");
    client.0.get_mut().write_all(&both).unwrap();
    assert_eq!((client.try_read().unwrap(), client.try_read().unwrap()), (ok(), ok()));
    // Passwords are not kept in the slow log.
    assert_eq!(client.say("CONFIG SET slowlog-log-slower-than 0"), ok());
    client.say("AUTH secret");
    client.say("HELLO 2 AUTH default secret");
    let log = format!("{:?}", client.say("SLOWLOG GET -1"));
    assert!(!log.contains(&format!("{:?}", b"secret".to_vec())), "{log}");
    assert!(log.contains(&format!("{:?}", b"(redacted)".to_vec())), "{log}");
}

#[test]
fn a_watched_key_that_expires_has_changed() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    client.say("SET gone 1 PX 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    client.say("SET k 1 PX 30");
    for command in ["WATCH gone", "WATCH k"] {
        assert_eq!(client.say(command), ok());
    }
    while client.say("EXISTS k") == Reply::Int(1) {
        std::thread::yield_now();
    }
    client.say("MULTI");
    assert_eq!(client.say("EXEC"), Reply::Null);
    // One that was expired before is missing before and after.
    client.say("SET k 1 PX 1");
    while client.say("EXISTS k") == Reply::Int(1) {
        std::thread::yield_now();
    }
    client.say("WATCH k");
    client.say("MULTI");
    assert_eq!(client.say("EXEC"), Reply::Array(Vec::new()));
    // A failed command of a transaction stages nothing.
    for command in ["MULTI", "RPUSH l a", "HSET l f v", "SAVE", "LPUSH l b"] {
        client.say(command);
    }
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(client.say("EXEC"), Reply::Error(aborted.into()));
    for command in ["MULTI", "RPUSH l a", "HSET l f v", "SELECT 99", "LPUSH l b"] {
        assert_eq!(
            client.say(command).clone(),
            if command == "MULTI" { ok() } else { Reply::Simple("QUEUED".into()) }
        );
    }
    let Reply::Array(replies) = client.say("EXEC") else { panic!() };
    assert_eq!((&replies[0], &replies[3]), (&Reply::Int(1), &Reply::Int(2)));
}

/// Messages that a subscriber got before it leaves a channel come before the reply to UNSUBSCRIBE, and none
/// behind it.
#[test]
fn no_message_comes_behind_the_reply_to_unsubscribe() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let mut publisher = server.client();
    for _ in 0..50 {
        let mut subscriber = server.client();
        subscriber.say("SUBSCRIBE news");
        std::thread::scope(|scope| {
            let publishing =
                scope.spawn(|| while publisher.say("PUBLISH news x") == Reply::Int(1) {});
            subscriber.send(&[b"UNSUBSCRIBE", b"news"]);
            loop {
                let Reply::Array(message) = subscriber.try_read().unwrap() else { panic!() };
                if message[0] == bulk("unsubscribe") {
                    break;
                }
                assert_eq!(message[0], bulk("message"));
            }
            publishing.join().unwrap();
            assert_eq!(subscriber.say("PING"), Reply::Simple("PONG".into()));
        });
    }
}
