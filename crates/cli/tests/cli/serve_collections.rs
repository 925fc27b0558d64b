//! Collections of `terrace serve` beside redis-server: the same random commands, the same replies.

use std::collections::BTreeSet;

use crate::serve_client::*;
use crate::serve_oracle::Pair;
use crate::support::*;

/// Replies whose elements have no order: their numbers in a group of elements that stay together.
const UNORDERED: [(&str, usize); 9] = [
    ("HGETALL", 2),
    ("HKEYS", 1),
    ("HVALS", 1),
    ("SMEMBERS", 1),
    ("SINTER", 1),
    ("SUNION", 1),
    ("SDIFF", 1),
    ("SRANDMEMBER", 1),
    ("HRANDFIELD", 1),
];

/// A zero below zero: whether it is one depends on the encoding in Redis.
fn unsigned(reply: &mut Reply) {
    match reply {
        Reply::Double(text) if text == "-0" => *text = "0".to_owned(),
        Reply::Bulk(text) if text == b"-0" => *text = b"0".to_vec(),
        Reply::Array(elements) => elements.iter_mut().for_each(unsigned),
        _ => {}
    }
}

/// Sorts the elements of a reply without order.
fn sort(name: &str, reply: &mut Reply) {
    let Some((_, group)) = UNORDERED.iter().find(|(known, _)| *known == name) else { return };
    if let Reply::Array(elements) | Reply::Set(elements) = reply {
        let mut groups: Vec<_> = elements.chunks(*group).map(<[Reply]>::to_vec).collect();
        groups.sort_by_key(|group| format!("{group:?}"));
        *elements = groups.concat();
    } else if let Reply::Map(pairs) = reply {
        pairs.sort_by_key(|pair| format!("{pair:?}"));
    }
}

/// One random stream of `templates`, in pipelines: `a`, `b`, `c` are keys, `m` and `w` members, `n` and `i`
/// numbers, `s` and `t` scores, `v` a value.
fn run(pair: &mut Pair, templates: &[&str], steps: usize, members: u64) {
    let mut state = 0x5eed_u64 + templates.len() as u64;
    let mut draw = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let scores = ["0", "1", "-1.5", "3.25", "inf", "-inf", "1e10", "0.1", "2", "nan", "x"];
    let values = ["1", "-7", "3.5", "abc", "", "10.25", "9223372036854775807", "\u{1}"];
    let long = "long".repeat(20);
    let (mut pipeline, mut length) = (Vec::new(), 1);
    for step in 0..steps {
        let text = templates[draw(templates.len() as u64) as usize];
        let args: Vec<String> = text
            .split(' ')
            .map(|word| match word {
                "a" | "b" | "c" => format!("k{}", draw(4)),
                "m" | "w" => match draw(40) {
                    0 => long.clone(),
                    _ => format!("member:{}", draw(members)),
                },
                "n" | "i" => (draw(24) as i64 - 12).to_string(),
                "s" | "t" => scores[draw(11) as usize].to_owned(),
                "(s" => format!("({}", scores[draw(9) as usize]),
                "[m" => format!("[member:{}", draw(members)),
                "(m" => format!("(member:{}", draw(members)),
                "v" => values[draw(8) as usize].to_owned(),
                word => word.to_owned(),
            })
            .collect();
        pipeline.push(args);
        if pipeline.len() < length {
            continue;
        }
        length = 1 + draw(12) as usize;
        let requests = std::mem::take(&mut pipeline);
        let (expected, got) = (pair.theirs.pipeline(&requests), pair.ours.pipeline(&requests));
        for ((at, mut expected), mut got) in (0..).zip(expected).zip(got) {
            unsigned(&mut expected);
            unsigned(&mut got);
            sort(&requests[at][0], &mut expected);
            sort(&requests[at][0], &mut got);
            assert_eq!(got, expected, "step {step}, command {at} of {requests:?}");
        }
    }
}

/// Commands on keys of any type, for every stream.
const KEYS: [&str; 14] = [
    "DEL a",
    "UNLINK a b",
    "TYPE a",
    "EXISTS a b",
    "RENAME a b",
    "RENAMENX a b",
    "COPY a b",
    "COPY a b REPLACE",
    "OBJECT ENCODING a",
    "EXPIRE a 1000",
    "PERSIST a",
    "DBSIZE",
    "GET a",
    "SET a v",
];

/// Runs `templates` twice, by both protocols, with few members and with so many that the collections are
/// large.
fn stream(templates: &[&str]) {
    let scratch = Scratch::new();
    let Some(mut pair) = Pair::start(&scratch) else { return };
    let all: Vec<&str> = templates.iter().chain(&KEYS).copied().collect();
    run(&mut pair, &all, 4000, 12);
    for client in [&mut pair.theirs, &mut pair.ours] {
        client.say("FLUSHALL");
        client.say("HELLO 3");
    }
    // Keys are deleted less often, so that collections grow.
    let mut grows: Vec<&str> = templates.to_vec();
    for _ in 0..6 {
        grows.extend(templates);
    }
    grows.extend(KEYS);
    run(&mut pair, &grows, 12_000, 500);
}

#[test]
fn hashes_reply_as_those_of_redis() {
    stream(&[
        "HSET a m v",
        "HSET a m v w v m v",
        "HSET a m v w",
        "HMSET a m v w v",
        "HSETNX a m v",
        "HGET a m",
        "HMGET a m w m",
        "HDEL a m",
        "HDEL a m w",
        "HLEN a",
        "HSTRLEN a m",
        "HEXISTS a m",
        "HGETALL a",
        "HKEYS a",
        "HVALS a",
        "HINCRBY a m n",
        "HINCRBY a m v",
        "HINCRBYFLOAT a m v",
        "HINCRBYFLOAT a m 0.1",
        "HRANDFIELD a 0",
        "HRANDFIELD a 10000",
        "HRANDFIELD a n x",
        "HSCAN a x",
    ]);
}

#[test]
fn sets_reply_as_those_of_redis() {
    stream(&[
        "SADD a m",
        "SADD a m w m",
        "SADD a m w m w m w m w",
        "SADD a n i",
        "SREM a m w",
        "SMOVE a b m",
        "SISMEMBER a m",
        "SMISMEMBER a m w",
        "SCARD a",
        "SMEMBERS a",
        "SPOP a 0",
        "SPOP a n x",
        "SRANDMEMBER a 10000",
        "SRANDMEMBER a 0",
        "SINTER a b",
        "SINTER a b c",
        "SUNION a b c",
        "SDIFF a b",
        "SINTERSTORE a b c",
        "SUNIONSTORE a b c",
        "SDIFFSTORE a b c",
        "SINTERCARD 2 a b",
        "SINTERCARD 2 a b LIMIT 3",
        "SINTERCARD n a b",
        "SINTERCARD 1 a LIMIT n",
    ]);
}

#[test]
fn sorted_sets_reply_as_those_of_redis() {
    stream(&[
        "ZADD a s m",
        "ZADD a s m t w",
        "ZADD a 1 m 1 w 2 m",
        "ZADD a s m t",
        "ZADD a NX s m",
        "ZADD a XX CH s m t w",
        "ZADD a GT CH s m",
        "ZADD a LT s m",
        "ZADD a GT NX s m",
        "ZADD a INCR s m",
        "ZADD a XX INCR s m",
        "ZINCRBY a s m",
        "ZREM a m w",
        "ZCARD a",
        "ZSCORE a m",
        "ZMSCORE a m w",
        "ZRANK a m",
        "ZREVRANK a m",
        "ZRANGE a n i",
        "ZRANGE a n i REV WITHSCORES",
        "ZRANGE a s t BYSCORE",
        "ZRANGE a s t BYSCORE REV LIMIT n i WITHSCORES",
        "ZRANGE a n i LIMIT 1 2",
        "ZRANGESTORE b a n i",
        "ZRANGESTORE b a (s t BYSCORE LIMIT 0 5",
        "ZREVRANGE a n i WITHSCORES",
        "ZRANGEBYSCORE a (s t WITHSCORES",
        "ZRANGEBYSCORE a s (s LIMIT n i",
        "ZREVRANGEBYSCORE a t s",
        "ZCOUNT a s (s",
        "ZREMRANGEBYRANK a n n",
        "ZREMRANGEBYSCORE a (s t",
        "ZPOPMIN a",
        "ZPOPMAX a 3",
        "ZPOPMIN a n",
        "ZMPOP 2 a b MIN",
        "ZMPOP 2 a b MAX COUNT 3",
        "ZUNION 2 a b WITHSCORES",
        "ZINTER 2 a b WEIGHTS 2 -1 WITHSCORES",
        "ZINTER 2 a b AGGREGATE MAX WITHSCORES",
        "ZDIFF 2 a b WITHSCORES",
        "ZUNIONSTORE a 2 b c WEIGHTS s t",
        "ZUNIONSTORE a 2 b c AGGREGATE MIN",
        "ZINTERSTORE a 2 b c AGGREGATE SUM",
        "ZDIFFSTORE a 2 b c",
        "ZUNION n a b",
        "ZINTERCARD 2 a b LIMIT n",
        "ZRANDMEMBER a 0",
        "SADD a m w",
    ]);
}

/// Ranges by member, which Redis defines for members of one score only.
#[test]
fn ranges_by_member_reply_as_those_of_redis() {
    stream(&[
        "ZADD a 0 m 0 w 0 m 0 w",
        "ZREM a m",
        "ZRANGE a [m (m BYLEX",
        "ZRANGE a - + BYLEX REV LIMIT 1 3",
        "ZRANGEBYLEX a [m [m",
        "ZRANGEBYLEX a (m + LIMIT n i",
        "ZREVRANGEBYLEX a + [m",
        "ZREVRANGEBYLEX a (m (m LIMIT 1 2",
        "ZLEXCOUNT a [m (m",
        "ZLEXCOUNT a - +",
        "ZRANGEBYLEX a m +",
        "ZREMRANGEBYLEX a [m (m",
    ]);
}

#[test]
fn lists_reply_as_those_of_redis() {
    stream(&[
        "LPUSH a m",
        "RPUSH a m w m",
        "RPUSH a m w m w m w",
        "LPUSHX a m",
        "RPUSHX a m w",
        "LPOP a",
        "RPOP a",
        "LPOP a 3",
        "RPOP a n",
        "LLEN a",
        "LINDEX a n",
        "LSET a n v",
        "LRANGE a n i",
        "LRANGE a 0 -1",
        "LTRIM a 0 100",
        "LTRIM a 1 -2",
        "LINSERT a BEFORE m w",
        "LINSERT a AFTER m w",
        "LINSERT a x m w",
        "LREM a n m",
        "LREM a 1 m",
        "LPOS a m",
        "LPOS a m RANK n",
        "LPOS a m COUNT 0 MAXLEN 20",
        "LPOS a m RANK -1 COUNT 2",
        "LPOS a m COUNT n",
        "LMOVE a b LEFT RIGHT",
        "LMOVE a b RIGHT LEFT",
        "LMOVE a a LEFT RIGHT",
        "RPOPLPUSH a b",
        "LMPOP 2 a b LEFT",
        "LMPOP 2 a b RIGHT COUNT 5",
        "LMPOP n a LEFT",
        "BLPOP a -1",
        "BLPOP a x",
        "SADD a m",
    ]);
}

/// Collections stay whole over restarts and transactions, large ones too; their rows go with them.
#[test]
fn large_collections_survive_a_restart_and_leave_no_rows() {
    let scratch = Scratch::new();
    let data = scratch.path("data");
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    for number in 0..500 {
        client.say(&format!("HSET hash f{number} {number}"));
        client.say(&format!("SADD set {number}"));
        client.say(&format!("ZADD sorted {number} m{number}"));
        client.say(&format!("RPUSH list {number}"));
    }
    assert_eq!(client.say("RENAME hash other"), ok());
    assert_eq!(client.say("COPY other copy"), Reply::Int(1));
    for command in
        ["MULTI", "HSET copy new 1", "DEL set", "SADD set one", "LSET list 999 x", "EXEC"]
    {
        client.say(command);
    }
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&data, &[]);
    let mut client = server.client();
    assert_eq!(client.say("HLEN copy"), Reply::Int(501));
    assert_eq!(client.say("HLEN other"), Reply::Int(500));
    assert_eq!(client.say("SCARD set"), Reply::Int(1));
    assert_eq!(client.say("ZRANGE sorted 498 -1"), Reply::Array(vec![bulk("m498"), bulk("m499")]));
    assert_eq!(client.say("LINDEX list -1"), bulk("499"));
    // Every element once, by pages.
    for (scan, key, group) in [("HSCAN", "copy", 2), ("ZSCAN", "sorted", 2), ("SSCAN", "set", 1)] {
        let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
        loop {
            let reply = client.say(&format!("{scan} {key} {cursor} COUNT 7"));
            let Reply::Array(reply) = reply else { panic!("{reply:?}") };
            let [Reply::Bulk(next), Reply::Array(elements)] = &reply[..] else { panic!() };
            for element in elements.chunks(group) {
                assert!(seen.insert(format!("{:?}", element[0])), "twice");
            }
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        let expected = match key {
            "copy" => 501,
            "sorted" => 500,
            _ => 1,
        };
        assert_eq!(seen.len(), expected, "{scan}");
    }
    assert_eq!(client.say("PEXPIRE copy 1"), Reply::Int(1));
    assert_eq!(client.say("DEL other set sorted"), Reply::Int(3));
    assert_eq!(client.say("LTRIM list 1 0"), ok());
    // The sweeper deletes the expired one.
    let mut left = 1;
    for _ in 0..600 {
        let Reply::Int(count) = client.say("DBSIZE") else { panic!() };
        left = count;
        if left == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(left, 0);
    assert_eq!(server.stop(), Some(0));
    let scan = ["scan", data.to_str().unwrap(), "--keyspace", "redis.parts", "--memory", "64MiB"];
    assert_eq!(terrace(&scan).good(), "", "rows without a collection");
}
