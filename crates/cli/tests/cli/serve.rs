//! `terrace serve`: the binary as a process, with clients of the Redis protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::serve_client::*;
use crate::support::*;

#[test]
fn a_server_answers_keeps_its_keys_and_ends_cleanly() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
    assert_eq!(client.say("SET a 1 EX 1000"), ok());
    assert_eq!(client.say("INCR a"), Reply::Int(2));
    assert_eq!(client.say("MSET b x c y"), ok());
    assert_eq!(client.say("DEL c nothing"), Reply::Int(1));
    assert_eq!(client.say("SELECT 3"), ok());
    assert_eq!(client.say("SET other-database 1"), ok());
    assert_eq!(
        client.say("NOSUCH x").clone(),
        Reply::Error("ERR unknown command 'NOSUCH', with args beginning with: 'x'".into())
    );
    assert_eq!(
        client.say("GET"),
        Reply::Error("ERR wrong number of arguments for 'get' command".into())
    );
    // A command that is sent in pieces, and an inline one.
    client.0.get_mut().write_all(b"PI").unwrap();
    client.0.get_mut().write_all(b"NG\r\n").unwrap();
    assert_eq!(client.try_read().unwrap(), Reply::Simple("PONG".into()));
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("DBSIZE"), Reply::Int(2), "the count is exact after a restart");
    assert_eq!(client.say("MGET a b c"), Reply::Array(vec![bulk("2"), bulk("x"), Reply::Null]));
    let Reply::Int(ttl) = client.say("TTL a") else { panic!() };
    assert!((1..=1000).contains(&ttl));
    client.send(&[b"SHUTDOWN"]);
    assert!(client.try_read().is_err(), "no reply");
    let mut server = server;
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn transactions_watches_and_messages_work_between_clients() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let (mut one, mut two) = (server.client(), server.client());
    assert_eq!(one.say("MULTI"), ok());
    assert_eq!(one.say("SET k 1"), Reply::Simple("QUEUED".into()));
    assert_eq!(one.say("INCR k"), Reply::Simple("QUEUED".into()));
    assert_eq!(one.say("GET k"), Reply::Simple("QUEUED".into()));
    assert_eq!(
        one.say("APPEND k"),
        Reply::Error("ERR wrong number of arguments for 'append' command".into())
    );
    let aborted = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(one.say("EXEC"), Reply::Error(aborted.into()));
    assert_eq!(one.say("GET k"), Reply::Null);
    for command in ["MULTI", "SET k 1", "INCR k", "SETRANGE k -1 x", "GET k", "DBSIZE"] {
        one.say(command);
    }
    let error = Reply::Error("ERR offset is out of range".into());
    let replies = vec![ok(), Reply::Int(2), error, bulk("2"), Reply::Int(1)];
    assert_eq!(one.say("EXEC"), Reply::Array(replies));
    one.say("WATCH k");
    two.say("SET k changed");
    one.say("MULTI");
    one.say("SET k mine");
    assert_eq!(one.say("EXEC"), Reply::Null);
    assert_eq!(one.say("GET k"), bulk("changed"));
    one.say("WATCH k");
    two.say("FLUSHALL");
    one.say("MULTI");
    assert_eq!(one.say("EXEC"), Reply::Null);
    one.say("SUBSCRIBE news");
    assert_eq!(two.say("PUBLISH news hello"), Reply::Int(1));
    assert_eq!(
        one.try_read().unwrap(),
        Reply::Array(vec![bulk("message"), bulk("news"), bulk("hello")])
    );
}

#[test]
fn a_password_is_asked_for_and_other_machines_need_one() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.say("GET a"), Reply::Error("NOAUTH Authentication required.".into()));
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for guess in ["secre", "secretsecret", "x"] {
        assert_eq!(client.say(&format!("AUTH {guess}")), Reply::Error(wrong.into()));
    }
    assert_eq!(client.say("AUTH secret"), ok());
    assert_eq!(client.say("GET a"), Reply::Null);
    let other = scratch.arg("other");
    let open = ["serve", "--data", &other, "--listen", "0.0.0.0:0", "--memory", "64MiB"];
    assert!(terrace(&open).bad(2).contains("a loopback address, or a password"));
    assert!(!scratch.path("other").exists(), "a server that cannot start creates no store");
    let taken = server.address.clone();
    let open = ["serve", "--data", &other, "--listen", &taken, "--memory", "64MiB"];
    assert!(terrace(&open).bad(2).contains("client socket"));
    assert!(!scratch.path("other").exists(), "nor does one whose address is taken");
}

/// What breaks the protocol ends that connection with an error, and no other.
#[test]
fn broken_requests_end_their_connection_only() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let mut other = server.client();
    for (request, error) in [
        ("*1\r\n$99999999999\r\n", "ERR Protocol error: invalid bulk length"),
        ("*2000000\r\n", "ERR Protocol error: invalid multibulk length"),
        ("*1\r\n!3\r\n", "ERR Protocol error: expected '$', got '!'"),
    ] {
        let mut client = server.client();
        client.0.get_mut().write_all(request.as_bytes()).unwrap();
        assert_eq!(client.try_read().unwrap(), Reply::Error(error.into()));
        assert!(client.try_read().is_err(), "closed");
    }
    let mut client = server.client();
    // The server may close before it has read everything.
    let _ = client.0.get_mut().write_all(&vec![b'x'; 200_000]);
    drop(client);
    // A web page can make a browser send this: nothing of it is executed.
    other.say("SET kept 1");
    let mut page = server.client();
    let request = "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nFLUSHALL\r\n";
    page.0.get_mut().write_all(request.as_bytes()).unwrap();
    assert!(matches!(page.try_read().unwrap(), Reply::Error(_)));
    assert!(page.try_read().is_err(), "closed");
    assert_eq!(other.say("EXISTS kept"), Reply::Int(1));
    // RANDOMKEY stays within its database although the first keys there have expired.
    for command in ["SELECT 5", "SET a 1 PX 1", "SET b 1 PX 1", "SET c 1", "SET d 1"] {
        other.say(command);
    }
    for _ in 0..20 {
        let key = other.say("RANDOMKEY");
        let expected = [&b"a"[..], b"b", b"c", b"d"];
        assert!(expected.iter().any(|it| key == Reply::Bulk(it.to_vec())), "{key:?}");
    }
    assert!(matches!(other.say("KV.SCAN - + COUNT 0"), Reply::Error(_)));
    let mut truncated = server.client();
    truncated.0.get_mut().write_all(b"*2\r\n$3\r\nGET\r\n$100\r\nabc").unwrap();
    drop(truncated);
    assert_eq!(other.say("PING"), Reply::Simple("PONG".into()));
    let clients = ["--maxclients", "2"];
    let few = Server::start(&scratch.path("few"), &clients);
    let mut held: Vec<_> = (0..2).map(|_| few.client()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.say("PING"), Reply::Simple("PONG".into())));
    let refused = few.client().try_read().unwrap();
    assert_eq!(refused, Reply::Error("ERR max number of clients reached".into()));
}

/// A subscriber that reads nothing is cut off at its buffer limit; the publisher and the memory are unharmed.
#[test]
fn a_subscriber_that_does_not_read_is_cut_off() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let (mut subscriber, mut publisher) = (server.client(), server.client());
    subscriber.say("SUBSCRIBE news");
    let message = vec![b'm'; 1 << 20];
    // 64 MiB of limit, and what the sockets of the system hold.
    let cut = (0..400).any(|_| publisher.call(&[b"PUBLISH", b"news", &message]) == Reply::Int(0));
    assert!(cut, "400 MiB of messages were kept");
    assert_eq!(publisher.say("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn metrics_and_health_are_served_on_the_admin_port() {
    let scratch = Scratch::new();
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(&scratch.path("data"), &["--admin", &port.to_string()]);
    server.client().say("SET a 1");
    let get = |path: &str| {
        let mut socket = TcpStream::connect(port).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/healthz").ends_with("\r\n\r\nok\n"));
    let metrics = get("/metrics");
    assert!(metrics.contains("terrace_keys{database=\"0\"} 1\n"), "{metrics}");
    assert!(metrics.contains("terrace_memory_bytes{component=\"network\"}"), "{metrics}");
    assert!(get("/other").starts_with("HTTP/1.0 404"));
}

/// With `appendfsync always`, a killed server has every acknowledged write. Each client writes its own keys
/// in order.
#[test]
fn acknowledged_writes_survive_kill_9() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let mut acknowledged = [0_u64; 4];
    for round in 0..3_u64 {
        let mut server = Server::start(&data, &["--appendfsync", "always"]);
        let mut client = server.client();
        for (number, last) in acknowledged.iter().enumerate() {
            for count in (1..=*last).rev().take(50) {
                let key = format!("{number}:{count}");
                assert_eq!(client.say(&format!("GET {key}")), bulk(&count.to_string()), "{key}");
            }
        }
        let Reply::Int(size) = client.say("DBSIZE") else { panic!("DBSIZE") };
        assert!(size as u64 >= acknowledged.iter().sum(), "{size} {acknowledged:?}");
        let total = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let address = &server.address;
            let total = &total;
            let writers: Vec<_> = acknowledged
                .iter()
                .enumerate()
                .map(|(number, last)| {
                    let mut count = *last;
                    scope.spawn(move || {
                        let mut client = Client::connect(address);
                        loop {
                            let next = count + 1;
                            let (key, value) = (format!("{number}:{next}"), next.to_string());
                            let request = format!(
                                "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n",
                                key.len(),
                                value.len()
                            );
                            let sent = client.0.get_mut().write_all(request.as_bytes());
                            match sent.and_then(|()| client.try_read()) {
                                Ok(reply) => assert_eq!(reply, ok()),
                                Err(_) => return count,
                            }
                            count = next;
                            total.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while total.load(Ordering::Relaxed) < 200 + 100 * round {
                std::thread::yield_now();
            }
            server.child.kill().unwrap();
            for (last, writer) in acknowledged.iter_mut().zip(writers) {
                *last = writer.join().unwrap();
            }
        });
    }
}
