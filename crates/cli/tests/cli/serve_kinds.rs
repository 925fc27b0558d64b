//! `terrace serve` with databases of several kinds.

use crate::serve_client::*;
use crate::support::*;

fn is_error(reply: &Reply, text: &str) -> bool {
    matches!(reply, Reply::Error(error) if error.contains(text))
}

#[test]
fn a_hashed_database_serves_points_and_keeps_its_kind() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &["--database", "1=keep"]);
    let mut client = server.client();
    client.say("SET shared ordered");
    client.say("SELECT 1");
    for number in 0..300 {
        client.say(&format!("SET key:{number} {number} EX 1000"));
        client.say(&format!("RPUSH list e{number}"));
    }
    assert_eq!(client.say("GET key:7"), bulk("7"));
    assert_eq!(client.say("MGET key:7 none key:299"), {
        Reply::Array(vec![bulk("7"), Reply::Null, bulk("299")])
    });
    assert_eq!(client.say("LLEN list"), Reply::Int(300));
    assert_eq!(client.say("DBSIZE"), Reply::Int(301));
    assert_eq!(client.say("GET shared"), Reply::Null, "of another database");
    assert!(is_error(&client.say("SCAN 0"), "cannot be scanned"));
    assert!(is_error(&client.say("RANDOMKEY"), "cannot be scanned"));
    let Reply::Array(keys) = client.say("KEYS key:29*") else { panic!("KEYS") };
    assert_eq!(keys.len(), 11);
    assert_eq!(client.say("CONFIG GET maxmemory-policy"), {
        Reply::Array(vec![bulk("maxmemory-policy"), bulk("noeviction")])
    });
    client.say("SET gone 1 PX 1");
    while client.say("EXISTS gone") == Reply::Int(1) {}
    client.say("RENAME key:7 renamed");
    client.say("MOVE renamed 0");
    assert_eq!(server.stop(), Some(0));
    // The kind stays without the option, and cannot become another one.
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("GET renamed"), bulk("7"));
    client.say("SELECT 1");
    assert_eq!(client.say("GET key:8"), bulk("8"));
    assert_eq!(client.say("LINDEX list 299"), bulk("e299"));
    assert!(is_error(&client.say("SCAN 0"), "cannot be scanned"));
    assert_eq!(client.say("FLUSHDB"), ok());
    assert_eq!(client.say("DBSIZE"), Reply::Int(0));
    assert_eq!(client.say("GET key:8"), Reply::Null);
    client.say("SELECT 0");
    assert_eq!(client.say("DBSIZE"), Reply::Int(2));
    assert_eq!(server.stop(), Some(0));
    let data = data.to_str().unwrap();
    let start = |kind: &str| {
        let arguments = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--database", kind];
        terrace(&[&arguments[..], &MEMORY[..]].concat()).bad(2)
    };
    assert!(start("1=ordered").contains("1=keep, because the kind"));
    assert!(start("0=keep").contains("0=ordered, because the kind"));
    assert!(start("16=keep").contains("0 to 15"));
    assert!(start("1=volatile-lru").contains("allkeys-lru=SIZE"));
}

/// A configuration file has what the flags have, and a flag overrides it.
#[test]
fn a_server_takes_its_settings_from_a_file() {
    let scratch = Scratch::new();
    let (data, file) = (scratch.path("data"), scratch.path("serve.toml"));
    let text = "[serve]\nappendfsync = 'always'\nmaxclients = 7\n\
                databases = ['1=keep', '2=allkeys-lru=4MiB', '3=keep']\n";
    fs::write(&file, text).unwrap();
    let arguments = ["--config", file.to_str().unwrap(), "--database", "3=ordered"];
    let server = Server::start(&data, &arguments);
    let mut client = server.client();
    let setting = |client: &mut Client, name: &str| {
        let Reply::Array(pair) = client.say(&format!("CONFIG GET {name}")) else {
            panic!("{name}")
        };
        pair[1].clone()
    };
    assert_eq!(setting(&mut client, "appendfsync"), bulk("always"));
    assert_eq!(setting(&mut client, "maxclients"), bulk("7"));
    client.say("SELECT 1");
    assert!(is_error(&client.say("SCAN 0"), "cannot be scanned"));
    client.say("SELECT 2");
    assert_eq!(setting(&mut client, "maxmemory-policy"), bulk("allkeys-lru"));
    client.say("SELECT 3");
    assert!(!is_error(&client.say("SCAN 0"), "cannot be scanned"), "the flag's kind");
    assert_eq!(server.stop(), Some(0));
    fs::write(&file, "[serve]\ntls-cert = 'server.pem'\n").unwrap();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--config", file.to_str().unwrap()];
    assert!(terrace(&arguments).bad(2).contains("a certificate alone"));
    fs::write(&file, "[serve]\ndatabases = ['1=heap']\n").unwrap();
    assert!(terrace(&arguments).bad(2).contains("serve.toml:2"));
}

/// A window forgets its oldest entries, and no other database does.
#[test]
fn a_window_is_a_cache_of_the_newest_entries() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server =
        Server::start(&data, &["--database", "2=allkeys-fifo=4MiB", "--appendfsync", "no"]);
    let mut client = server.client();
    client.say("SET kept 1");
    client.say("SELECT 2");
    assert_eq!(client.say("CONFIG GET maxmemory-policy"), {
        Reply::Array(vec![bulk("maxmemory-policy"), bulk("allkeys-fifo")])
    });
    client.say("HSET hash f v g w");
    client.say("SET short 1 PX 1");
    while client.say("EXISTS short") == Reply::Int(1) {}
    assert_eq!(client.say("HGETALL hash").clone(), {
        Reply::Array(["f", "v", "g", "w"].map(bulk).to_vec())
    });
    assert_eq!(client.say("MGET hash none"), Reply::Array(vec![Reply::Null, Reply::Null]));
    let elements: Vec<_> = (0..200).map(|number| format!("e{number}")).collect();
    let long = client.say(&format!("SADD long {}", elements.join(" ")));
    assert!(is_error(&long, "at most 128 elements"), "{long:?}");
    client.say("SELECT 0");
    client.say(&format!("SADD long {}", elements.join(" ")));
    assert!(is_error(&client.say("MOVE long 2"), "at most 128 elements"));
    assert_eq!(client.say("SCARD long"), Reply::Int(200), "nothing moved");
    client.say("SELECT 2");
    // Values that do not compress: 2 MiB a run, so the window holds the last two or three.
    let mut state = 7_u64;
    let mut value = || -> Vec<u8> {
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..2048).map(|_| byte()).collect()
    };
    let mut last = Vec::new();
    let mut is_evicted = false;
    for run in 0..100 {
        for number in 0..1024 {
            last = value();
            let key = format!("{run}:{number}");
            assert_eq!(client.call(&[b"SET", key.as_bytes(), &last]), ok());
        }
        client.say("SAVE");
        assert_eq!(client.call(&[b"GET", format!("{run}:1023").as_bytes()]), {
            Reply::Bulk(last.clone())
        });
        let Reply::Bulk(info) = client.say("INFO databases") else { panic!("INFO") };
        is_evicted = !String::from_utf8(info).unwrap().contains("evicted_keys=0,");
        if is_evicted {
            break;
        }
    }
    assert!(is_evicted, "200 MiB stayed in a window of 4 MiB");
    // Nobody has read it, so no cache has it.
    assert_eq!(client.say("EXISTS 0:0 0:1"), Reply::Int(0));
    let Reply::Bulk(info) = client.say("INFO databases") else { panic!("INFO") };
    let info = String::from_utf8(info).unwrap();
    assert!(
        info.contains("database2:kind=window=4.0MiB,policy=allkeys-fifo,evicted_keys="),
        "{info}"
    );
    assert!(!info.contains("evicted_keys=0,"), "{info}");
    let Reply::Int(size) = client.say("DBSIZE") else { panic!("DBSIZE") };
    assert!(size > 0);
    client.say("SELECT 0");
    assert_eq!(client.say("GET kept"), bulk("1"));
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("DBSIZE"), Reply::Int(2));
    client.say("SELECT 2");
    assert_eq!(client.say("FLUSHDB"), ok());
    assert_eq!(client.say("DBSIZE"), Reply::Int(0));
}
