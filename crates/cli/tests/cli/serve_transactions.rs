//! Commands of the connection between MULTI and EXEC, as in Redis 7.0: AUTH, HELLO and SUBSCRIBE are queued
//! as others are. And transactions that fail.

use std::io::Write;

use crate::serve_blocking::until_blocked;
use crate::serve_client::*;
use crate::serve_oracle::Pair;
use crate::support::*;

fn queued() -> Reply {
    Reply::Simple("QUEUED".into())
}

/// Replaces the number of the client, which differs between servers.
fn without_id(reply: &mut Reply) {
    match reply {
        Reply::Array(elements) | Reply::Push(elements) => {
            // HELLO of RESP2: names and values in turn.
            if let Some(at) = elements.iter().position(|element| *element == bulk("id")) {
                elements[at + 1] = Reply::Int(0);
            }
            elements.iter_mut().for_each(without_id);
        }
        Reply::Map(pairs) => {
            for (name, value) in pairs {
                if *name == bulk("id") {
                    *value = Reply::Int(0);
                }
            }
        }
        _ => {}
    }
}

/// Commands, each with the number of its replies.
const SCRIPTS: [&[(&str, usize)]; 6] = [
    // Errors of the arguments at once; errors of the command in the EXEC.
    &[("MULTI", 1), ("AUTH", 1), ("PING", 1), ("EXEC", 1)],
    &[("MULTI", 1), ("SUBSCRIBE", 1), ("EXEC", 1), ("PING", 1)],
    &[
        ("MULTI", 1),
        ("AUTH x", 1),
        ("AUTH default x", 1),
        ("AUTH nobody x", 1),
        ("HELLO 4", 1),
        ("HELLO x", 1),
        ("HELLO 2 SETNAME", 1),
        ("HELLO 2 SETNAME me", 1),
        ("CLIENT GETNAME", 1),
        ("EXEC", 1),
        ("PING", 1),
    ],
    // The protocol changes within the reply to EXEC, as in Redis.
    &[
        ("MULTI", 1),
        ("HELLO 3", 1),
        ("HGETALL nothing", 1),
        ("HELLO", 1),
        ("EXEC", 1),
        ("GET nothing", 1),
        ("MULTI", 1),
        ("HELLO 2", 1),
        ("GET nothing", 1),
        ("EXEC", 1),
        ("GET nothing", 1),
    ],
    // Two channels are two elements, so the reply has one more than its length says.
    &[
        ("MULTI", 1),
        ("SUBSCRIBE a b", 1),
        ("SET k 1", 1),
        ("PING", 1),
        ("EXEC", 2),
        ("GET k", 1),
        ("MULTI", 1),
        ("PING", 1),
        ("UNSUBSCRIBE a", 1),
        ("RESET", 1),
        ("GET k", 1),
    ],
    &[
        ("HELLO 3", 1),
        ("MULTI", 1),
        ("SUBSCRIBE a", 1),
        ("PSUBSCRIBE b*", 1),
        ("UNSUBSCRIBE a", 1),
        ("PUBSUB NUMPAT", 1),
        ("EXEC", 1),
        ("GET k", 1),
        ("MULTI", 1),
        ("RESET", 1),
        ("EXEC", 1),
    ],
];

#[test]
fn commands_of_the_connection_are_queued_as_in_redis() {
    let scratch = Scratch::new();
    let Some(mut pair) = Pair::start(&scratch) else { return };
    for script in SCRIPTS {
        for (command, replies) in script {
            let run = |client: &mut Client| {
                let mut all = vec![client.say(command)];
                all.extend((1..*replies).map(|_| client.try_read().unwrap()));
                all.iter_mut().for_each(without_id);
                all
            };
            assert_eq!(run(&mut pair.ours), run(&mut pair.theirs), "{command}");
        }
        for client in [&mut pair.ours, &mut pair.theirs] {
            client.say("RESET");
        }
    }
}

/// The same without redis-server, and with a password.
#[test]
fn a_login_within_a_transaction_counts_from_its_exec_on() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--requirepass", "secret"]);
    let mut client = server.client();
    let refused = Reply::Error("NOAUTH Authentication required.".into());
    assert_eq!(client.say("MULTI"), refused);
    assert_eq!(client.say("SUBSCRIBE a"), refused);
    assert_eq!(client.say("AUTH secret"), ok());
    for (command, reply) in [
        ("MULTI", ok()),
        ("AUTH wrong", queued()),
        ("SET k 1", queued()),
        ("HELLO 3 AUTH default wrong", queued()),
        ("HELLO 3 AUTH default secret SETNAME me", queued()),
        ("SUBSCRIBE a", queued()),
    ] {
        assert_eq!(client.say(command), reply, "{command}");
    }
    let Reply::Array(replies) = client.say("EXEC") else { panic!() };
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(replies[..3], [Reply::Error(wrong.into()), ok(), Reply::Error(wrong.into())]);
    let Reply::Map(fields) = &replies[3] else { panic!("{replies:?}") };
    assert!(fields.contains(&(bulk("proto"), Reply::Int(3))), "{fields:?}");
    assert_eq!(replies[4], Reply::Push(vec![bulk("subscribe"), bulk("a"), Reply::Int(1)]));
    // A failed login takes nothing from the client, and with RESP3 a subscriber may call anything.
    assert_eq!(client.say("GET k"), bulk("1"));
    assert_eq!(client.say("CLIENT GETNAME"), bulk("me"));
    // RESET ends the transaction, the subscriptions and the login.
    assert_eq!(client.say("MULTI"), ok());
    assert_eq!(client.say("RESET"), Reply::Simple("RESET".into()));
    assert_eq!(client.say("EXEC"), refused);
}

/// A message that came before its subscriber left stands before the reply to EXEC, and not within it.
#[test]
fn no_message_stands_within_the_reply_to_exec() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    client.say("HELLO 3");
    client.say("SUBSCRIBE news");
    for command in ["MULTI", "PUBLISH news x", "UNSUBSCRIBE news"] {
        client.say(command);
    }
    let message = Reply::Push(vec![bulk("message"), bulk("news"), bulk("x")]);
    assert_eq!(client.say("EXEC"), message);
    let left = Reply::Push(vec![bulk("unsubscribe"), bulk("news"), Reply::Int(0)]);
    assert_eq!(client.try_read().unwrap(), Reply::Array(vec![Reply::Int(1), left.clone()]));
    assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
    // A client of RESP2 that comes and goes within one EXEC gets no message at all.
    client.say("HELLO 2");
    for command in ["MULTI", "SUBSCRIBE news", "PUBLISH news x", "UNSUBSCRIBE news"] {
        client.say(command);
    }
    let came = Reply::Array(vec![bulk("subscribe"), bulk("news"), Reply::Int(1)]);
    let left = Reply::Array(vec![bulk("unsubscribe"), bulk("news"), Reply::Int(0)]);
    assert_eq!(client.say("EXEC"), Reply::Array(vec![came, Reply::Int(1), left]));
    assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
}

/// An EXEC whose replies are too long fails. Replies before and behind it are sent, and a client that waits
/// for a key that got its value before the failure is served.
#[test]
fn an_exec_with_replies_that_are_too_long_fails_alone() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    let value = vec![b'v'; 4 << 20];
    assert_eq!(client.call(&[b"SET", b"big", &value]), ok());
    let mut waiting = server.client();
    waiting.send(&[b"BLPOP", b"list", b"0"]);
    until_blocked(&mut client, 1);
    // DBSIZE sees the writes before it, so they are committed.
    let reads = 17;
    let mut requests = "SET a 1\r\nMULTI\r\nRPUSH list x\r\nDBSIZE\r\n".to_owned();
    requests += &"GET big\r\n".repeat(reads);
    requests += "SET b 1\r\nEXEC\r\nEXISTS a b\r\n";
    client.0.get_mut().write_all(requests.as_bytes()).unwrap();
    assert_eq!(client.try_read().unwrap(), ok());
    assert_eq!(client.try_read().unwrap(), ok());
    for _ in 0..reads + 3 {
        assert_eq!(client.try_read().unwrap(), queued());
    }
    let error = "ERR the reply is longer than the output buffer of a client";
    assert_eq!(client.try_read().unwrap(), Reply::Error(error.into()));
    assert_eq!(client.try_read().unwrap(), Reply::Int(1), "no write behind DBSIZE");
    assert_eq!(waiting.try_read().unwrap(), Reply::Array(vec![bulk("list"), bulk("x")]));
}
