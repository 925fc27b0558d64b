//! The log on storage-class memory, in `/dev/shm`: a server that is killed, `terrace log move`, and the
//! tools.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::serve_client::*;
use crate::support::*;

/// A directory in memory; `None` on a machine without it.
fn shared_memory() -> Option<(tempfile::TempDir, String)> {
    let directory = tempfile::tempdir_in("/dev/shm").ok()?;
    let log = directory.path().join("log").display().to_string();
    Some((directory, log))
}

fn segments(directory: &str) -> usize {
    fs::read_dir(directory).map_or(0, |files| {
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("log-") && name != "log-device").count()
    })
}

const CLIENTS: usize = 4;

fn value(client: usize, number: u64) -> String {
    format!("{client}.{number}.").repeat(1 + (number % 40) as usize)
}

/// Sets numbered keys from several clients until the server is killed, after at least `least` replies.
/// Returns the last number of each client that was acknowledged.
fn one_life(mut server: Server, first: [u64; CLIENTS], least: u64) -> [u64; CLIENTS] {
    let replies = AtomicU64::new(0);
    let mut last = first;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (mut connection, replies) = (server.client(), &replies);
                let mut number = first[client];
                scope.spawn(move || {
                    loop {
                        let (key, value) =
                            (format!("{client}:{}", number + 1), value(client, number + 1));
                        let request: [&[u8]; 3] = [b"SET", key.as_bytes(), value.as_bytes()];
                        if connection.try_send(&request).is_err() {
                            return number;
                        }
                        match connection.try_read() {
                            Ok(reply) => assert_eq!(reply, ok()),
                            Err(_) => return number,
                        }
                        number += 1;
                        replies.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while replies.load(Ordering::Relaxed) < least {
            std::thread::yield_now();
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        for (last, client) in last.iter_mut().zip(clients) {
            *last = client.join().unwrap();
        }
    });
    last
}

/// `kill -9` of a server with its log in `/dev/shm` loses no acknowledged write: the stores of a process are
/// in memory that outlives it, in whichever lane.
fn servers_die(kills: u64) {
    let Some((_directory, log)) = shared_memory() else { return };
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let mut acknowledged = [0; CLIENTS];
    for kill in 0..kills {
        // The store finds its log again.
        let options = ["--log-path", &log];
        let server = Server::start(&data, if kill % 2 == 0 { &options } else { &[] });
        acknowledged = one_life(server, acknowledged, 200 + kill * 61 % 400);
        assert!(segments(&log) >= 2 && segments(data.to_str().unwrap()) == 0);
        let server = Server::start(&data, &[]);
        let mut client = server.client();
        for (number, last) in acknowledged.iter_mut().enumerate() {
            for written in 1..=*last {
                let found = client.say(&format!("GET {number}:{written}"));
                let expected = bulk(&value(number, written));
                assert_eq!(found, expected, "kill {kill}: {number}:{written} of {last}");
            }
            // The write that was in flight is whole or absent.
            let next = *last + 1;
            let found = client.say(&format!("GET {number}:{next}"));
            assert!(found == Reply::Null || found == bulk(&value(number, next)), "{found:?}");
            *last += u64::from(found != Reply::Null);
        }
        let database = client.say("DBSIZE");
        assert_eq!(database, Reply::Int(acknowledged.iter().sum::<u64>() as i64), "kill {kill}");
        if kill % 2 == 0 {
            assert_eq!(server.stop(), Some(0));
            terrace(&["check", data.to_str().unwrap()]).good();
        }
    }
}

#[test] // I11
fn a_killed_server_with_its_log_in_memory_loses_no_acknowledged_write() {
    servers_die(4);
}

#[test]
#[ignore = "minutes: 200 kills"]
fn servers_with_their_log_in_memory_are_killed_for_long() {
    servers_die(200);
}

#[test]
fn a_resident_keyspace_is_served_by_every_command_and_keeps_its_log() {
    let Some((_directory, log)) = shared_memory() else { return };
    let scratch = Scratch::new();
    let (data, flash) = (scratch.arg("data"), scratch.arg("flash"));
    let refused = terrace(&["keyspace", "create", &flash, "r", "--hashed", "resident"]).bad(2);
    assert!(refused.contains("resident keyspace") && refused.contains("log.path"), "{refused}");
    let create = ["keyspace", "create", &data, "r", "--hashed", "resident", "--log-path", &log];
    terrace(&create).good();
    let in_r = |args: &[&str]| terrace(&[args, &["--keyspace", "r"]].concat());
    for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        in_r(&["put", &data, key, value]).good();
    }
    in_r(&["put", &data, "a", "4"]).good();
    in_r(&["delete", &data, "c"]).good();
    assert_eq!(in_r(&["get", &data, "a"]).good(), "4\n");
    assert_eq!(in_r(&["get", &data, "c"]).code, 1);
    let scanned = in_r(&["scan", &data]).good();
    let mut lines: Vec<_> = scanned.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a\t4", "b\t2"]);
    let stats = terrace(&["stats", &data, "--json"]).good();
    let stats: Value = serde_json::from_str(stats.lines().next().unwrap()).unwrap();
    let found = &stats["keyspaces"][0];
    assert_eq!((&found["kind"], &found["tables"]), (&"hashed resident".into(), &0.into()));
    terrace(&["check", &data]).good();
    let refused = terrace(&["log", "move", &data, "--to", "store"]).bad(2);
    assert!(refused.contains("resident keyspace `r`"), "{refused}");
    assert_eq!(in_r(&["get", &data, "b"]).good(), "2\n");
    // A copy has its log in its directory, and reads the entries from there.
    let copy = scratch.arg("copy");
    terrace(&["checkpoint", &data, &copy]).good();
    assert_eq!(in_r(&["get", &copy, "b"]).good(), "2\n");
    let (backups, restored) = (scratch.arg("backups"), scratch.arg("restored"));
    terrace(&["backup", "create", &data, &backups]).good();
    terrace(&["restore", &backups, "1", &restored]).good();
    assert_eq!(in_r(&["get", &restored, "a"]).good(), "4\n");
    assert_eq!(in_r(&["get", &restored, "c"]).code, 1);
}

#[test]
fn a_log_is_moved_and_found_by_every_command() {
    let Some((_directory, log)) = shared_memory() else { return };
    let scratch = Scratch::new();
    let data = filled(&scratch);
    let moved = terrace(&["log", "move", &data, "--to", &log, "--lanes", "2", "--json"]).good();
    let report: Value = serde_json::from_str(&moved).unwrap();
    assert_eq!(
        (&report["places"][0], &report["lanes"], &report["left"]),
        (&Value::from(log.as_str()), &Value::from(2), &Value::Array(Vec::new()))
    );
    assert_eq!((segments(&data), segments(&log)), (0, 2));
    terrace(&["put", &data, "after", "the move"]).good();
    assert_eq!(terrace(&["get", &data, "after"]).good(), "the move\n");
    assert_eq!(terrace(&["get", &data, "zz"]).good(), "last\n");
    terrace(&["check", &data]).good();
    terrace(&["scrub", &data]).good();
    let copy = scratch.arg("copy");
    terrace(&["checkpoint", &data, &copy]).good();
    assert_eq!(terrace(&["get", &copy, "after"]).good(), "the move\n");

    // Another store does not take the device, and an open without it names it.
    let other = scratch.arg("other");
    let refused = terrace(&["put", &other, "a", "b", "--log-path", &log]).bad(2);
    assert!(refused.contains(&log), "{refused}");
    let away = format!("{log}-away");
    fs::rename(&log, &away).unwrap();
    let refused = terrace(&["get", &data, "after"]).bad(2);
    assert!(refused.contains(&format!("log device last at `{log}`")), "{refused}");
    let found = ["get", &data, "after", "--log-path", &away];
    assert_eq!(terrace(&found).good(), "the move\n");
    // The new place is recorded.
    assert_eq!(terrace(&["get", &data, "after"]).good(), "the move\n");

    let text = terrace(&["log", "move", &data, "--to", "store"]).good();
    assert_eq!(text, "the log is in the store's directory\n");
    assert_eq!((segments(&data), segments(&away)), (1, 0));
    assert_eq!(terrace(&["get", &data, "after"]).good(), "the move\n");
    terrace(&["check", &data]).good();
    let refused = terrace(&["log", "move", &data, "--to", "store"]).bad(2);
    assert!(refused.contains("where it is"), "{refused}");
    let flash = scratch.arg("on-flash");
    let refused = terrace(&["log", "move", &data, "--to", &flash]).bad(2);
    assert!(refused.contains("DAX or tmpfs"), "{refused}");
}
