//! Blocking pops of `terrace serve`: order, timeouts, transactions, clients that leave.

use std::time::Duration;

use crate::serve_client::*;
use crate::support::*;

/// Waits until so many clients are blocked.
pub(crate) fn until_blocked(client: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    for _ in 0..1200 {
        let Reply::Bulk(info) = client.say("INFO clients") else { panic!() };
        if String::from_utf8(info).unwrap().contains(&wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("never {wanted}");
}

pub(crate) fn blocked(server: &Server, other: &mut Client, count: usize, command: &str) -> Client {
    let mut client = server.client();
    client.send(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    until_blocked(other, count);
    client
}

fn array(elements: &[&str]) -> Reply {
    Reply::Array(elements.iter().map(|element| bulk(element)).collect())
}

#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let mut other = server.client();
    let mut waiting: Vec<_> =
        (1..=6).map(|count| blocked(&server, &mut other, count, "BLPOP other list 0")).collect();
    // A client of another type, and one whose wait is given up, are passed over.
    let mut sorted = blocked(&server, &mut other, 7, "BZPOPMIN list 0");
    drop(waiting.remove(1));
    until_blocked(&mut other, 6);
    assert_eq!(other.say("RPUSH list a b"), Reply::Int(2));
    assert_eq!(other.say("RPUSH list c d e f"), Reply::Int(4));
    for (client, element) in waiting.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        assert_eq!(client.try_read().unwrap(), array(&["list", element]));
        assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
    }
    assert_eq!(other.say("LRANGE list 0 -1"), array(&["f"]));
    assert_eq!(other.say("DEL list"), Reply::Int(1));
    assert_eq!(other.say("ZADD list 2 m 1 n"), Reply::Int(2));
    assert_eq!(sorted.try_read().unwrap(), array(&["list", "n", "1"]));
    until_blocked(&mut other, 0);
}

/// The pops of many clients and the pushes of others, all at once: each element is popped once.
#[test]
fn every_element_is_popped_once() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let (poppers, pushes) = (8, 400);
    let mut popped: Vec<String> = std::thread::scope(|scope| {
        let server = &server;
        let threads: Vec<_> = (0..poppers)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = server.client();
                    let command = match number % 4 {
                        0 => "BLPOP a b 0",
                        1 => "BRPOP b a 0",
                        2 => "BLMOVE a done LEFT RIGHT 0",
                        _ => "BLMPOP 0 2 b a LEFT COUNT 1",
                    };
                    let mut elements = Vec::new();
                    loop {
                        let reply = client.say(command);
                        let element = match (&reply, number % 4) {
                            (Reply::Bulk(element), _) => element.clone(),
                            (Reply::Array(parts), 3) => {
                                let Reply::Array(inner) = &parts[1] else { panic!("{reply:?}") };
                                let [Reply::Bulk(element)] = &inner[..] else { panic!() };
                                element.clone()
                            }
                            (Reply::Array(parts), _) => {
                                let Reply::Bulk(element) = &parts[1] else { panic!("{reply:?}") };
                                element.clone()
                            }
                            _ => panic!("{reply:?}"),
                        };
                        let element = String::from_utf8(element).unwrap();
                        if element == "end" {
                            return elements;
                        }
                        elements.push(element);
                    }
                })
            })
            .collect();
        let pushers: Vec<_> = ["a", "b"]
            .into_iter()
            .map(|key| {
                scope.spawn(move || {
                    let mut client = server.client();
                    for number in 0..pushes {
                        client.say(&format!("LPUSH {key} {key}{number}"));
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        // The clients that move pop only from `a`.
        let mut client = server.client();
        while client.say("LLEN a") != Reply::Int(0) || client.say("LLEN b") != Reply::Int(0) {
            std::thread::yield_now();
        }
        until_blocked(&mut client, poppers);
        for _ in 0..poppers {
            client.say("RPUSH a end");
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut expected: Vec<_> = ["a", "b"]
        .iter()
        .flat_map(|key| (0..pushes).map(move |number| format!("{key}{number}")))
        .collect();
    popped.sort();
    expected.sort();
    assert_eq!(popped, expected);
}

#[test]
fn transactions_timeouts_and_moves() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let mut other = server.client();
    for command in
        ["BLPOP k 0.01", "BZPOPMAX k 0.01", "BLMPOP 0.01 1 k LEFT", "BLMOVE k l LEFT LEFT 0.01"]
    {
        assert_eq!(other.say(command), Reply::Null, "{command}");
    }
    // In a transaction nothing waits.
    for command in ["MULTI", "BLPOP k 0", "BLMOVE k l LEFT LEFT 0", "BZMPOP 0 1 k MIN"] {
        other.say(command);
    }
    assert_eq!(other.say("EXEC"), Reply::Array(vec![Reply::Null, Reply::Null, Reply::Null]));
    // A list that a transaction creates and deletes again serves no waiting client.
    let mut client = blocked(&server, &mut other, 1, "BLPOP k 0");
    for command in ["MULTI", "RPUSH k a", "DEL k", "EXEC"] {
        other.say(command);
    }
    for command in ["MULTI", "RPUSH k b", "LPUSH k c", "EXEC"] {
        other.say(command);
    }
    assert_eq!(client.try_read().unwrap(), array(&["k", "c"]));
    other.say("DEL k");
    // Moves serve those that wait for their destinations, and commands sent meanwhile are answered behind
    // the pop.
    let mut first = blocked(&server, &mut other, 1, "BLMOVE k l LEFT LEFT 0");
    let mut second = blocked(&server, &mut other, 2, "BRPOPLPUSH l m 0");
    let mut third = blocked(&server, &mut other, 3, "BRPOP m 0");
    third.send(&[b"ECHO", b"later"]);
    other.say("SET unrelated 1");
    assert_eq!(other.say("RPUSH k x"), Reply::Int(1));
    assert_eq!(first.try_read().unwrap(), bulk("x"));
    assert_eq!(second.try_read().unwrap(), bulk("x"));
    assert_eq!(third.try_read().unwrap(), array(&["m", "x"]));
    assert_eq!(third.try_read().unwrap(), bulk("later"));
    assert_eq!(other.say("EXISTS k l m"), Reply::Int(0));
    // A destination of another type is an error, and the element stays.
    let mut client = blocked(&server, &mut other, 1, "BLMOVE k unrelated LEFT LEFT 0");
    assert_eq!(other.say("RPUSH k y"), Reply::Int(1));
    assert!(
        matches!(client.try_read().unwrap(), Reply::Error(text) if text.starts_with("WRONGTYPE"))
    );
    assert_eq!(other.say("LLEN k"), Reply::Int(1));
    // A client that is killed or unblocked while it waits takes nothing.
    let mut killed = server.client();
    let Reply::Int(id) = killed.say("CLIENT ID") else { panic!() };
    killed.send(&[b"BLPOP", b"gone", b"0"]);
    until_blocked(&mut other, 1);
    assert_eq!(other.say(&format!("CLIENT KILL ID {id}")), Reply::Int(1));
    assert!(killed.try_read().is_err());
    until_blocked(&mut other, 0);
    assert_eq!(other.say("RPUSH gone z"), Reply::Int(1));
    assert_eq!(other.say("LPOP gone"), bulk("z"));
    let mut client = server.client();
    let Reply::Int(id) = client.say("CLIENT ID") else { panic!() };
    client.send(&[b"BLPOP", b"gone", b"0"]);
    until_blocked(&mut other, 1);
    assert_eq!(other.say(&format!("CLIENT UNBLOCK {id} ERROR")), Reply::Int(1));
    assert!(
        matches!(client.try_read().unwrap(), Reply::Error(text) if text.starts_with("UNBLOCKED"))
    );
    assert_eq!(other.say(&format!("CLIENT UNBLOCK {id}")), Reply::Int(0));
    // The server ends while clients wait.
    let _waiting = blocked(&server, &mut other, 1, "BLPOP gone 0");
    assert_eq!(server.stop(), Some(0));
}

/// Timeouts that pass while an element is on its way: every client gets a reply, an element or none.
#[test]
fn a_timeout_during_a_push_is_answered() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let (clients, rounds) = (8, 150);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client();
                    let replies = (0..rounds).map(|_| client.say("BLPOP k 0.001"));
                    replies.filter(|reply| *reply != Reply::Null).count()
                })
            })
            .collect();
        let pusher = scope.spawn(|| {
            let (mut client, mut pushed) = (server.client(), 0);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                client.say("RPUSH k x");
                pushed += 1;
            }
            pushed
        });
        let popped: usize = waiting.into_iter().map(|thread| thread.join().unwrap()).sum();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let pushed = pusher.join().unwrap();
        let left = server.client().say("LLEN k");
        assert_eq!(left, Reply::Int(pushed - popped as i64));
    });
}
