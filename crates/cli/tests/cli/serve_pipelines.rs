//! Writes of a pipeline, which share a commit where they can.

use std::thread;

use crate::serve_blocking::blocked;
use crate::serve_client::*;
use crate::support::*;

#[test]
fn writes_of_a_pipeline_share_a_commit() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut client = server.client();
    let before = client.lookups();
    let replies = client.say_all(&["INCR a"; 20]);
    assert_eq!(replies, (1..=20).map(Reply::Int).collect::<Vec<_>>());
    // A command of its own reads the key.
    assert_eq!(client.lookups() - before, 1);
    assert_eq!(client.count("total_commands_processed"), 22 + 2);
}

#[test]
fn a_write_that_fails_changes_nothing_and_the_others_of_its_pipeline_stay() {
    for options in [&[][..], &["--appendfsync", "always"]] {
        let scratch = Scratch::new();
        let server = Server::start(&scratch.path("data"), options);
        let mut client = server.client();
        let long = format!("SET long {}", "v".repeat(100_000));
        let replies = client.say_all(&[
            "SET a 1",
            "INCR a",
            "LPUSH a x",
            "MSET a 5 b",
            "INCR a",
            "SET b abc",
            "INCR b",
            "RPUSH list x y z",
            "LSET list 7 w",
            "LPOP list 2",
            &long,
            "APPEND b d",
            "GETDEL a",
            "NOSUCH b",
            "DEL b list",
            "EXISTS a b list long",
        ]);
        let error = |text: &str| Reply::Error(text.to_owned());
        let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let arity = "ERR wrong number of arguments for 'mset' command";
        assert_eq!(replies[..4], [ok(), Reply::Int(2), error(wrong_type), error(arity)]);
        let not_integer = error("ERR value is not an integer or out of range");
        assert_eq!(replies[4..7], [Reply::Int(3), ok(), not_integer]);
        assert_eq!(replies[7..9], [Reply::Int(3), error("ERR index out of range")]);
        assert_eq!(replies[9], Reply::Array(vec![bulk("x"), bulk("y")]));
        assert_eq!(replies[10..13], [ok(), Reply::Int(4), bulk("3")]);
        assert!(matches!(&replies[13], Reply::Error(text) if text.starts_with("ERR unknown")));
        assert_eq!(replies[14..], [Reply::Int(2), Reply::Int(1)]);
        assert_eq!(client.say("DBSIZE"), Reply::Int(1));
    }
}

#[test]
fn pipelines_serve_clients_that_wait_and_break_watches() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let (mut client, mut watching) = (server.client(), server.client());
    watching.say("WATCH w");
    watching.say("MULTI");
    watching.say("SET w 0");
    let mut waiting = blocked(&server, &mut client, 1, "BLPOP queue 0");
    let replies = client.say_all(&["SET v 1", "SET w 1", "RPUSH queue x", "RPUSH queue y"]);
    assert_eq!(replies[..2], [ok(), ok()]);
    assert_eq!(replies[2..], [Reply::Int(1), Reply::Int(1)]);
    assert_eq!(waiting.try_read().unwrap(), Reply::Array(vec![bulk("queue"), bulk("x")]));
    assert_eq!(watching.say("EXEC"), Reply::Null);
    assert_eq!(client.say("LRANGE queue 0 -1"), Reply::Array(vec![bulk("y")]));
}

#[test]
fn pipelines_of_several_clients_lose_no_increment() {
    const ROUNDS: i64 = 100;
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                let increments = ["INCR a", "HINCRBY h f 1", "INCR b", "SADD s x", "INCR a"];
                (0..ROUNDS).for_each(|_| drop(client.say_all(&increments)));
            });
        }
    });
    let totals = server.client().say_all(&["GET a", "GET b", "HGET h f", "SCARD s", "DBSIZE"]);
    let count = |times: i64| bulk(&(times * 4 * ROUNDS).to_string());
    assert_eq!(totals, [count(2), count(1), count(1), Reply::Int(1), Reply::Int(4)]);
}
