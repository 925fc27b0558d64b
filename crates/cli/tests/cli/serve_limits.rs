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
    // On a slow machine the key may expire before it is watched.
    loop {
        client.say("SET k 1 PX 30");
        for command in ["WATCH gone", "WATCH k"] {
            assert_eq!(client.say(command), ok());
        }
        if client.say("EXISTS k") == Reply::Int(1) {
            break;
        }
        client.say("UNWATCH");
    }
    while client.say("EXISTS k") == Reply::Int(1) {
        std::thread::yield_now();
    }
    client.say("MULTI");
    assert_eq!(client.say("EXEC"), Reply::Null);
    // A watched key that had expired before the WATCH is missing at WATCH and at EXEC.
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

/// The reply to a command that needs much memory: while flushes hold it, the server says to try again.
fn with_memory(client: &mut Client, command: &str) -> Reply {
    for _ in 0..200 {
        match client.say(command) {
            Reply::Error(text) if text.starts_with("OOM") => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            reply => return reply,
        }
    }
    panic!("no memory for `{command}` although nothing else is written");
}

/// COPY and the commands that store a result write it in one batch. One that is too large for it is refused
/// by name, and nothing is written.
#[test]
fn copies_that_are_too_large_are_refused_by_name() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    let element = vec![b'e'; 512 << 10];
    for _ in 0..40 {
        client.call(&[b"RPUSH", b"list", &element]);
    }
    for number in 0..500 {
        let member = [format!("{number:04}").as_bytes(), &vec![b'm'; 40_000]].concat();
        let key: &[u8] = if number % 2 == 0 { b"even" } else { b"odd" };
        client.call(&[b"SADD", key, &member]);
        client.call(&[b"ZADD", b"sorted", b"1", &member]);
    }
    for command in [
        "COPY list copy",
        "COPY list copy DB 1",
        "MOVE list 1",
        "COPY sorted copy",
        "SUNIONSTORE copy even odd",
        "ZUNIONSTORE copy 2 even odd",
        "ZRANGESTORE copy sorted 0 -1",
    ] {
        let Reply::Error(text) = with_memory(&mut client, command) else { panic!("{command}") };
        let expected = "ERR the change is too large: one command stores at most";
        assert!(text.starts_with(expected), "{command}: {text}");
    }
    assert_eq!(client.say("DBSIZE"), Reply::Int(4));
    assert_eq!(client.say("LLEN list"), Reply::Int(40));
    // Smaller ones are copied and moved whole.
    client.say("LTRIM list 0 9");
    assert_eq!(with_memory(&mut client, "COPY list copy"), Reply::Int(1));
    assert_eq!(with_memory(&mut client, "MOVE list 1"), Reply::Int(1));
    assert_eq!(client.say("EXISTS list"), Reply::Int(0));
    assert_eq!(client.say("LLEN copy"), Reply::Int(10));
    assert_eq!(client.say("SELECT 1"), ok());
    assert_eq!(client.call(&[b"LINDEX", b"list", b"9"]), Reply::Bulk(element));
    assert_eq!(client.say("DBSIZE"), Reply::Int(1));
}

/// A filter must name the clients to kill.
#[test]
fn client_kill_without_arguments_kills_nobody() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let (mut client, mut other) = (server.client(), server.client());
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
    let refused = "ERR wrong number of arguments for 'client|kill' command";
    assert_eq!(client.say("CLIENT KILL"), Reply::Error(refused.into()));
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
}

/// A write looks its key up once.
#[test]
fn a_write_reads_its_key_once() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    let before = client.lookups();
    let mut writer = server.client();
    for number in 0..50 {
        writer.say(&format!("SET k{number} 1"));
        writer.say(&format!("INCR k{number}"));
    }
    assert_eq!(client.lookups() - before, 100);
}

/// A damaged value is an error of its own commands, and keeps the sweeper from no other key.
#[test]
fn keys_that_expired_are_swept_past_a_damaged_one() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &[]);
    server.client().say("SET lasting 1");
    assert_eq!(server.stop(), Some(0));
    let text = data.to_str().unwrap();
    // A value of an unknown type that expired in 1970, and a list whose elements are missing.
    for (keyspace, key, value) in [
        ("redis.keys", "\\x00damaged", "?"),
        ("redis.expiry", "\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00damaged", ""),
        ("redis.keys", "\\x00list", "\u{4}\u{2}c\0\0\0\0\0\0\0\u{3}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    ] {
        let put = ["put", text, "--keyspace", keyspace, "--memory", "64MiB", key, "-"];
        let mut child = command(put).stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("SET short 1 PX 1"), ok());
    let mut left = 2;
    for _ in 0..600 {
        let Reply::Int(count) = client.say("DBSIZE") else { panic!() };
        left = count;
        if left == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(left, 1, "the damaged key was never counted");
    for command in ["GET damaged", "LRANGE list 0 -1", "LINDEX list 0", "LPOP list"] {
        assert!(matches!(client.say(command), Reply::Error(_)), "{command}");
    }
    assert_eq!(client.say("GET lasting"), bulk("1"));
}
