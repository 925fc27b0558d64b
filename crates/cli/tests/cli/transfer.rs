//! `terrace import` and `terrace export`.

use std::io::Write;

use crate::serve_client::*;
use crate::serve_oracle::Pair;
use crate::support::*;

fn dump(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/data");
    folder.join(name).display().to_string()
}

/// Everything that a data set with keys of every type shows.
fn shown(client: &mut Client) -> Vec<Reply> {
    let mut replies = Vec::new();
    for command in [
        "GET s",
        "GET n",
        "GET e",
        "PEXPIRETIME e",
        "HGET h f7",
        "HLEN h",
        "LRANGE l 0 -1",
        "SCARD set",
        "SISMEMBER set m7",
        "ZRANGE z 0 -1 WITHSCORES",
        "TTL s",
        "TYPE h",
        "EXISTS gone",
        "DBSIZE",
    ] {
        replies.push(client.say(command));
    }
    client.say("SELECT 5");
    replies.push(client.say("GET other"));
    client.say("SELECT 0");
    replies
}

/// Adds keys of every type, small and large ones.
fn fill(client: &mut Client) {
    client.call(&[b"SET", b"s", b"text with\r\nlines \0 and bytes \xff"]);
    client.say("SET n 12345");
    client.say("SET e later PXAT 4102444800123");
    for number in 0..1500 {
        client.say(&format!("HSET h f{number} v{number}"));
        client.say(&format!("RPUSH l e{number}"));
        client.say(&format!("SADD set m{number}"));
        client.say(&format!("ZADD z {number}.5 m{number}"));
    }
    client.say("ZADD z -inf least inf most");
    client.say("SELECT 5");
    client.say("SET other 1");
    client.say("SELECT 0");
}

#[test]
fn a_dump_of_redis_becomes_a_store() {
    let scratch = Scratch::new();
    let data = scratch.arg("data");
    let json = |file: &str| {
        let args = ["import", "redis-rdb", &dump(file), "--data", &data, "--json"];
        serde_json::from_str::<Value>(&terrace(&[&args[..], &MEMORY[..]].concat()).good()).unwrap()
    };
    let packed = json("redis-7.0-packed.rdb");
    assert_eq!((&packed["keys"], &packed["expired"]), (&13.into(), &0.into()));
    assert_eq!(packed["skipped"], serde_json::json!({ "function": 1, "stream": 1 }));
    let large = json("redis-7.0-large.rdb");
    assert_eq!((&large["keys"], &large["elements"]), (&6.into(), &3001.into()));
    let server = Server::start(Path::new(&data), &[]);
    let mut client = server.client();
    // Keys of the second dump replaced those of the first.
    for (command, reply) in [
        ("GET s", Reply::Error(String::new())),
        ("SCARD s", Reply::Int(600)),
        ("HGET h field-600", bulk("value-600")),
        ("HGET h a", Reply::Null),
        ("LINDEX l -1", bulk("element-600")),
        ("LLEN l", Reply::Int(600)),
        ("ZSCORE z least", bulk("-inf")),
        ("ZRANK z member-1", Reply::Int(1)),
        ("PEXPIRETIME e", Reply::Int(4_102_444_800_123)),
        ("SISMEMBER i 599", Reply::Int(1)),
        ("STRLEN compressible", Reply::Int(5000)),
        ("DBSIZE", Reply::Int(13)),
    ] {
        let got = match client.say(command) {
            Reply::Error(_) => Reply::Error(String::new()),
            got => got,
        };
        assert_eq!(got, reply, "{command}");
    }
    client.say("SELECT 5");
    assert_eq!(client.say("GET other"), bulk("db"));
}

#[test]
fn sources_that_cannot_be_read_are_named() {
    let scratch = Scratch::new();
    let data = scratch.arg("data");
    let damaged = scratch.path("damaged.rdb");
    let mut bytes = fs::read(dump("redis-7.0-packed.rdb")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let refused = |args: &[&str]| {
        terrace(&[&["import"][..], args, &["--data", &data], &MEMORY[..]].concat()).bad(2)
    };
    assert!(refused(&["redis-rdb", damaged.to_str().unwrap()]).contains("damaged.rdb"));
    assert!(refused(&["redis-rdb", &scratch.arg("missing.rdb")]).contains("missing.rdb"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(refused(&["--from", &format!("redis://{free}")]).contains(&free.to_string()));
    let new = scratch.arg("new");
    let unreachable = format!("redis://{free}");
    terrace(&[&["import", "--from", &unreachable, "--data", &new], &MEMORY[..]].concat()).bad(2);
    assert!(!scratch.path("new").exists(), "an import that wrote nothing leaves no store");
    assert!(refused(&["--from", "http://x"]).contains("redis://"));
    // A server that is none.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let garbage = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"*99999999\r\n").unwrap();
    });
    assert!(refused(&["--from", &format!("redis://{address}")]).contains("too long"));
    garbage.join().unwrap();
}

/// From one server to another by its socket, and back out as commands.
#[test]
fn a_running_server_is_copied_and_exported() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("first"), &["--requirepass", "secret"]);
    let mut client = server.client();
    client.say("AUTH secret");
    fill(&mut client);
    let second = scratch.arg("second");
    let url = format!("redis://:secret@{}", server.address);
    let args = ["import", "--from", &url, "--data", &second, "--json"];
    let tally = terrace(&[&args[..], &MEMORY[..]].concat()).good();
    let tally: Value = serde_json::from_str(&tally).unwrap();
    assert_eq!(tally["keys"], 8);
    let copy = Server::start(Path::new(&second), &[]);
    assert_eq!(shown(&mut copy.client()), shown(&mut client));
    assert_eq!(copy.stop(), Some(0));
    let wrong = format!("redis://:wrong@{}", server.address);
    let args = ["import", "--from", &wrong, "--data", &second];
    assert!(terrace(&[&args[..], &MEMORY[..]].concat()).bad(2).contains("WRONGPASS"));
    // The export is a stream of commands that every server takes.
    let file = scratch.arg("export.resp");
    let args = ["export", "--data", &second, &file, "--json"];
    let exported = terrace(&[&args[..], &MEMORY[..]].concat()).good();
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap()["keys"], 8);
    let third = Server::start(&scratch.path("third"), &[]);
    let mut client_3 = third.client();
    replay(&mut client_3, &fs::read(&file).unwrap());
    assert_eq!(shown(&mut client_3), shown(&mut client));
    let none = scratch.arg("none");
    terrace(&["keyspace", "create", &none, "other", "--memory", "64MiB"]);
    assert_ne!(terrace(&["export", "--data", &none, &file, "--memory", "64MiB"]).code, 0);
}

/// Sends commands, and reads as many replies, none of which is an error. Returns to database 0.
fn replay(client: &mut Client, commands: &[u8]) {
    let count = commands.windows(3).filter(|at| at[0] == b'\n' && at[1] == b'*').count() + 1;
    client.0.get_mut().write_all(commands).unwrap();
    for _ in 0..count {
        let reply = client.try_read().unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    assert_eq!(client.say("SELECT 0"), ok());
}

/// A redis-server's data by its socket and by its dump file, and an export that Redis takes.
#[test]
fn redis_is_copied_by_its_socket_and_by_its_dump() {
    let scratch = Scratch::new();
    let Some(mut pair) = Pair::start(&scratch) else { return };
    fill(&mut pair.theirs);
    pair.theirs.say("XADD x * f v");
    assert_eq!(pair.theirs.say("SAVE"), ok());
    let url = format!("redis://{}", pair.theirs.0.get_ref().peer_addr().unwrap());
    let (by_socket, by_dump) = (scratch.arg("socket"), scratch.arg("dump"));
    let file = scratch.arg("dump.rdb");
    for (source, data) in [(vec!["--from", &url], &by_socket), (vec!["redis-rdb", &file], &by_dump)]
    {
        let args = [&["import"][..], &source, &["--data", data, "--json"], &MEMORY[..]].concat();
        let tally: Value = serde_json::from_str(&terrace(&args).good()).unwrap();
        assert_eq!((&tally["keys"], &tally["skipped"]["stream"]), (&8.into(), &1.into()));
        pair.theirs.say("DEL x");
        let copy = Server::start(Path::new(data), &[]);
        assert_eq!(shown(&mut copy.client()), shown(&mut pair.theirs), "{source:?}");
        assert_eq!(copy.stop(), Some(0));
        pair.theirs.say("XADD x * f v");
        let export =
            terrace(&[&["export", "--data", data, &scratch.arg("out")][..], &MEMORY[..]].concat());
        export.good();
    }
    pair.theirs.say("DEL x");
    let before = shown(&mut pair.theirs);
    pair.theirs.say("FLUSHALL");
    replay(&mut pair.theirs, &fs::read(scratch.path("out")).unwrap());
    assert_eq!(shown(&mut pair.theirs), before);
}
