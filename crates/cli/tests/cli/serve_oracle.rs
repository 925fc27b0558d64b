//! `terrace serve` beside redis-server: the same random commands, the same replies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use crate::serve_client::*;
use crate::support::*;

/// The path of redis-server: that of `TERRACE_REDIS_SERVER`, or Debian's if it is installed.
fn oracle() -> Option<PathBuf> {
    let named = std::env::var_os("TERRACE_REDIS_SERVER").map(PathBuf::from);
    let installed = ["/usr/bin/redis-server", "/usr/bin/redis-check-rdb"].map(PathBuf::from);
    named.into_iter().chain(installed).find(|path| path.exists())
}

/// A redis-server and a `terrace serve`, with a client of each.
pub(crate) struct Pair {
    #[expect(dead_code, reason = "ends with the test")]
    redis: Server,
    #[expect(dead_code, reason = "ends with the test")]
    server: Server,
    pub(crate) theirs: Client,
    pub(crate) ours: Client,
}

impl Pair {
    /// Starts both, or says that redis-server is not installed.
    pub(crate) fn start(scratch: &Scratch) -> Option<Self> {
        use std::os::unix::process::CommandExt;
        let Some(redis) = oracle() else {
            eprintln!("skipped: redis-server 7.0 is not installed");
            return None;
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let redis = std::process::Command::new(redis)
            // The program has several names, and acts by its name.
            .arg0("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(["--bind", "127.0.0.1"])
            .current_dir(scratch.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Server { child: redis, address: format!("127.0.0.1:{port}") };
        let mut is_connected = false;
        for _ in 0..600 {
            is_connected = TcpStream::connect(&redis.address).is_ok();
            if is_connected {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(is_connected, "redis-server starts");
        let server = Server::start(&scratch.path("data"), &[]);
        let (theirs, ours) = (redis.client(), server.client());
        Some(Self { redis, server, theirs, ours })
    }
}

/// Random commands on few keys, in pipelines: every reply is that of redis-server.
#[test]
fn random_commands_get_the_replies_of_redis() {
    let scratch = Scratch::new();
    let Some(mut pair) = Pair::start(&scratch) else { return };
    let Pair { theirs, ours, .. } = &mut pair;
    let mut state = 0x5eed_u64;
    let mut draw = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut pipeline, mut length) = (Vec::new(), 1);
    for step in 0..20_000 {
        let key = |draw: &mut dyn FnMut(u64) -> u64| format!("k{}", draw(6));
        let (a, b) = (key(&mut draw), key(&mut draw));
        let values =
            ["0", "1", "-5", "9223372036854775807", "abc", "3.5", "hello world", "\u{1}\u{2}", ""];
        let value = |draw: &mut dyn FnMut(u64) -> u64| values[draw(9) as usize].to_owned();
        let number = |draw: &mut dyn FnMut(u64) -> u64| (draw(40) as i64 - 20).to_string();
        let (v, n, m) = (value(&mut draw), number(&mut draw), number(&mut draw));
        let option =
            ["NX", "XX", "GET", "KEEPTTL", "PERSIST", "GT", "LT", "EX", "BIT", "BYTE", "junk"];
        let (o, p) = (option[draw(11) as usize], option[draw(11) as usize]);
        // No time that passes while the test runs, and no two that differ by as much: the two servers would
        // not see it at the same command.
        let time = 1000 * (1000 + step * 7919 % 20_011);
        let template = [
            "SET a v",
            "SET a v o",
            "SET a v o p",
            "SET a v EX t",
            "SET a v PX 0",
            "SETNX a v",
            "SETEX a t v",
            "GETSET a v",
            "GETDEL a",
            "GETEX a o",
            "GETEX a EX t",
            "MGET a b a",
            "MSET a v b n",
            "MSETNX a v b n",
            "APPEND a v",
            "STRLEN a",
            "GETRANGE a n m",
            "SETRANGE a n v",
            "INCR a",
            "DECR a",
            "INCRBY a n",
            "DECRBY a n",
            "DEL a b",
            "EXISTS a b a",
            "TYPE a",
            "EXPIRE a t o",
            "EXPIRE a -1",
            "EXPIREAT a n",
            "PEXPIRE a tms o p",
            "TTL a",
            "PERSIST a",
            "RENAME a b",
            "RENAMENX a b",
            "COPY a b",
            "COPY a b REPLACE",
            "SETBIT a n 1",
            "SETBIT a n 0",
            "GETBIT a n",
            "BITCOUNT a",
            "BITCOUNT a n m",
            "BITCOUNT a n m o",
            "BITPOS a 1",
            "BITPOS a 0",
            "BITPOS a 0 n",
            "BITPOS a 1 n m",
            "BITPOS a 0 n m o",
            "BITOP AND a b a",
            "BITOP OR a a b",
            "BITOP XOR a b b",
            "BITOP NOT a b",
            "DBSIZE",
            "MULTI",
            "EXEC",
            "DISCARD",
            "WATCH a",
            "UNWATCH",
            "EXPIRETIME a",
            "SUBSTR a n m",
            "GET a",
            "GET",
            "ECHO v",
            "PING",
            "TOUCH a b",
            "UNLINK a",
            "SELECT 0",
            "SELECT n",
            "SELECT 0",
            "FLUSHDB",
            "NOSUCH v",
            "INCRBYFLOAT a 0.1",
            "INCRBYFLOAT a v",
            "SET a 3.0e3",
            "BGSAVE foo",
            "CONFIG FOO",
            "client foo",
        ];
        let text = template[draw(template.len() as u64) as usize];
        if text == "FLUSHDB" && draw(10) > 0 {
            continue;
        }
        let args: Vec<String> = text
            .split(' ')
            .map(|word| match word {
                "a" => a.clone(),
                "b" => b.clone(),
                "t" => time.to_string(),
                "tms" => format!("{time}000"),
                "v" => v.clone(),
                "n" => n.clone(),
                "m" => m.clone(),
                "o" => o.to_owned(),
                "p" => p.to_owned(),
                word => word.to_owned(),
            })
            .collect();
        pipeline.push((text, args));
        if pipeline.len() < length {
            continue;
        }
        length = 1 + draw(12) as usize;
        let (texts, requests): (Vec<_>, Vec<_>) = std::mem::take(&mut pipeline).into_iter().unzip();
        let (expected, got) = (theirs.pipeline(&requests), ours.pipeline(&requests));
        for ((at, mut expected), mut got) in (0..).zip(expected).zip(got) {
            // Times that pass between the two servers.
            if matches!(texts[at], "TTL a" | "EXPIRETIME a" | "EXEC") {
                for reply in [&mut expected, &mut got] {
                    round_times(reply);
                }
            }
            assert_eq!(got, expected, "step {step}, command {at} of {requests:?}");
        }
    }
    // Scans return every key once that is there all the time.
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
    ours.say("FLUSHALL");
    ours.say("DISCARD");
    ours.say("SELECT 0");
    ours.say("FLUSHALL");
    let mut model = BTreeMap::new();
    for number in 0..500 {
        ours.say(&format!("SET key:{number} {number}"));
        model.insert(format!("key:{number}"), number);
    }
    loop {
        let Reply::Array(reply) = ours.say(&format!("SCAN {cursor} MATCH key:* COUNT 7")) else {
            panic!()
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        for key in keys {
            let Reply::Bulk(key) = key else { panic!() };
            assert!(seen.insert(String::from_utf8(key.clone()).unwrap()), "twice");
        }
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert!(seen.iter().eq(model.keys()));
}

/// Makes replies equal that differ by the seconds between two calls.
fn round_times(reply: &mut Reply) {
    match reply {
        Reply::Int(time) if *time > 100 => *time = 1000,
        Reply::Array(replies) => replies.iter_mut().for_each(round_times),
        _ => {}
    }
}
