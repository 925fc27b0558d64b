//! The table of commands. Beside Redis's flags: `no_auth`, before AUTH; `during_multi`, executed and not
//! queued between MULTI and EXEC; `while_subscribed`, by a RESP2 client with subscriptions; `all_keys`, under
//! the locks of all keys; `whole_database`, sees all earlier commands of its EXEC through the store.

use super::{
    acl, bits, client, config, hashes, keys, lists, pubsub, server, sets, sorted, strings,
    transaction,
};
use crate::spec::{Run, Spec, Table};

const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const DELETE: &[&str] = &["write", "fast"];
const MOVABLE: &[&str] = &["readonly", "movablekeys"];
const MOVABLE_WRITE: &[&str] = &["write", "denyoom", "movablekeys"];
const BLOCKING: &[&str] = &["write", "blocking"];
const PLAIN: &[&str] = &["fast", "loading"];
const ADMIN: &[&str] = &["admin", "noscript"];
const DATABASE: &[&str] = &["readonly", "whole_database"];
const FLUSH: &[&str] = &["write", "all_keys", "whole_database"];
const TOPICS: &[&str] = &["pubsub", "noscript", "while_subscribed"];
const NO_MULTI: &[&str] = &["admin", "noscript", "no_multi"];
const MULTI: &[&str] = &["noscript", "fast", "during_multi"];
const ALWAYS: &[&str] = &["fast", "no_auth", "during_multi", "while_subscribed"];

type Keys = fn(&mut crate::spec::Call<'_>) -> crate::reply::Done;
type Session = fn(&mut crate::session::Session, &[Vec<u8>]) -> crate::reply::Done;

const fn on_keys(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    run: Keys,
) -> Spec {
    Spec { name, arity, flags, keys, numkeys: 0, run: Run::Keys(run) }
}

/// A command with an argument `numkeys`, the number of the keys behind it.
const fn numbered(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    numkeys: usize,
    run: Keys,
) -> Spec {
    Spec { name, arity, flags, keys, numkeys, run: Run::Keys(run) }
}

const fn other(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    run: Session,
) -> Spec {
    Spec { name, arity, flags, keys: NONE, numkeys: 0, run: Run::Session(run) }
}

/// Sorted by name.
static COMMANDS: &[Spec] = &[
    other("acl", -2, ADMIN, acl::acl),
    on_keys("append", 3, WRITE, ONE, strings::append),
    other("auth", -2, &["fast", "no_auth", "noscript", "loading"], client::auth),
    other("bgsave", -1, ADMIN, server::bgsave),
    on_keys("bitcount", -2, READ, ONE, bits::bitcount),
    on_keys("bitop", -4, WRITE, (2, -1, 1), bits::bitop),
    on_keys("bitpos", -3, READ, ONE, bits::bitpos),
    on_keys("blmove", 6, BLOCKING, (1, 2, 1), lists::blmove),
    numbered("blmpop", -5, BLOCKING, NONE, 2, lists::blmpop),
    on_keys("blpop", -3, BLOCKING, (1, -2, 1), lists::blpop),
    on_keys("brpop", -3, BLOCKING, (1, -2, 1), lists::brpop),
    on_keys("brpoplpush", 4, BLOCKING, (1, 2, 1), lists::brpoplpush),
    numbered("bzmpop", -5, BLOCKING, NONE, 2, sorted::bzmpop),
    on_keys("bzpopmax", -3, BLOCKING, (1, -2, 1), sorted::bzpopmax),
    on_keys("bzpopmin", -3, BLOCKING, (1, -2, 1), sorted::bzpopmin),
    other("client", -2, PLAIN, client::client),
    other("command", -1, PLAIN, server::command),
    other("config", -2, ADMIN, config::config),
    on_keys("copy", -3, WRITE, (1, 2, 1), keys::copy),
    other("dbsize", 1, DATABASE, keys::dbsize),
    on_keys("decr", 2, WRITE, ONE, strings::decr),
    on_keys("decrby", 3, WRITE, ONE, strings::decrby),
    on_keys("del", -2, DELETE, ALL, keys::del),
    other("discard", 1, MULTI, transaction::discard),
    other("echo", 2, PLAIN, client::echo),
    other("exec", 1, MULTI, transaction::exec),
    on_keys("exists", -2, READ, ALL, keys::exists),
    on_keys("expire", -3, DELETE, ONE, keys::expire),
    on_keys("expireat", -3, DELETE, ONE, keys::expireat),
    on_keys("expiretime", 2, READ, ONE, keys::expiretime),
    other("flushall", -1, FLUSH, keys::flushall),
    other("flushdb", -1, FLUSH, keys::flushdb),
    other("function", -2, PLAIN, server::function),
    on_keys("get", 2, READ, ONE, strings::get),
    on_keys("getbit", 3, READ, ONE, bits::getbit),
    on_keys("getdel", 2, DELETE, ONE, strings::getdel),
    on_keys("getex", -2, DELETE, ONE, strings::getex),
    on_keys("getrange", 4, READ, ONE, strings::getrange),
    on_keys("getset", 3, WRITE, ONE, strings::getset),
    on_keys("hdel", -3, DELETE, ONE, hashes::hdel),
    other("hello", -1, &["fast", "no_auth", "noscript", "loading"], client::hello),
    on_keys("hexists", 3, READ, ONE, hashes::hexists),
    on_keys("hget", 3, READ, ONE, hashes::hget),
    on_keys("hgetall", 2, READ, ONE, hashes::hgetall),
    on_keys("hincrby", 4, WRITE, ONE, hashes::hincrby),
    on_keys("hincrbyfloat", 4, WRITE, ONE, hashes::hincrbyfloat),
    on_keys("hkeys", 2, READ, ONE, hashes::hkeys),
    on_keys("hlen", 2, READ, ONE, hashes::hlen),
    on_keys("hmget", -3, READ, ONE, hashes::hmget),
    on_keys("hmset", -4, WRITE, ONE, hashes::hmset),
    on_keys("hrandfield", -2, READ, ONE, hashes::hrandfield),
    on_keys("hscan", -3, READ, ONE, hashes::hscan),
    on_keys("hset", -4, WRITE, ONE, hashes::hset),
    on_keys("hsetnx", 4, WRITE, ONE, hashes::hsetnx),
    on_keys("hstrlen", 3, READ, ONE, hashes::hstrlen),
    on_keys("hvals", 2, READ, ONE, hashes::hvals),
    on_keys("incr", 2, WRITE, ONE, strings::incr),
    on_keys("incrby", 3, WRITE, ONE, strings::incrby),
    on_keys("incrbyfloat", 3, WRITE, ONE, strings::incrbyfloat),
    other("info", -1, PLAIN, server::info),
    other("keys", 2, DATABASE, keys::keys),
    other("kv.compact", 1, ADMIN, server::kv_compact),
    other("kv.scan", -3, DATABASE, server::kv_scan),
    other("lastsave", 1, PLAIN, server::lastsave),
    on_keys("lindex", 3, READ, ONE, lists::lindex),
    on_keys("linsert", 5, WRITE, ONE, lists::linsert),
    on_keys("llen", 2, READ, ONE, lists::llen),
    on_keys("lmove", 5, WRITE, (1, 2, 1), lists::lmove),
    numbered("lmpop", -4, MOVABLE_WRITE, NONE, 1, lists::lmpop),
    on_keys("lpop", -2, DELETE, ONE, lists::lpop),
    on_keys("lpos", -3, READ, ONE, lists::lpos),
    on_keys("lpush", -3, WRITE, ONE, lists::lpush),
    on_keys("lpushx", -3, WRITE, ONE, lists::lpushx),
    on_keys("lrange", 4, READ, ONE, lists::lrange),
    on_keys("lrem", 4, DELETE, ONE, lists::lrem),
    on_keys("lset", 4, WRITE, ONE, lists::lset),
    on_keys("ltrim", 4, DELETE, ONE, lists::ltrim),
    other("memory", -2, DATABASE, server::memory),
    on_keys("mget", -2, READ, ALL, strings::mget),
    on_keys("move", 3, DELETE, ONE, keys::move_key),
    on_keys("mset", -3, WRITE, (1, -1, 2), strings::mset),
    on_keys("msetnx", -3, WRITE, (1, -1, 2), strings::msetnx),
    other("multi", 1, MULTI, transaction::multi),
    on_keys("object", -2, READ, (2, 2, 1), keys::object),
    on_keys("persist", 2, DELETE, ONE, keys::persist),
    on_keys("pexpire", -3, DELETE, ONE, keys::pexpire),
    on_keys("pexpireat", -3, DELETE, ONE, keys::pexpireat),
    on_keys("pexpiretime", 2, READ, ONE, keys::pexpiretime),
    other("ping", -1, &["fast", "while_subscribed"], client::ping),
    on_keys("psetex", 4, WRITE, ONE, strings::psetex),
    other("psubscribe", -2, TOPICS, pubsub::psubscribe),
    on_keys("pttl", 2, READ, ONE, keys::pttl),
    other("publish", 3, &["pubsub", "fast"], pubsub::publish),
    other("pubsub", -2, &["pubsub"], pubsub::pubsub),
    other("punsubscribe", -1, TOPICS, pubsub::punsubscribe),
    other("quit", -1, ALWAYS, client::quit),
    other("randomkey", 1, DATABASE, keys::randomkey),
    on_keys("rename", 3, WRITE, (1, 2, 1), keys::rename),
    on_keys("renamenx", 3, WRITE, (1, 2, 1), keys::renamenx),
    other("reset", 1, ALWAYS, client::reset),
    other("role", 1, PLAIN, server::role),
    on_keys("rpop", -2, DELETE, ONE, lists::rpop),
    on_keys("rpoplpush", 3, WRITE, (1, 2, 1), lists::rpoplpush),
    on_keys("rpush", -3, WRITE, ONE, lists::rpush),
    on_keys("rpushx", -3, WRITE, ONE, lists::rpushx),
    on_keys("sadd", -3, WRITE, ONE, sets::sadd),
    other("save", 1, NO_MULTI, server::save),
    other("scan", -2, DATABASE, keys::scan),
    on_keys("scard", 2, READ, ONE, sets::scard),
    on_keys("sdiff", -2, READ, ALL, sets::sdiff),
    on_keys("sdiffstore", -3, WRITE, ALL, sets::sdiffstore),
    other("select", 2, PLAIN, client::select),
    on_keys("set", -3, WRITE, ONE, strings::set),
    on_keys("setbit", 4, WRITE, ONE, bits::setbit),
    on_keys("setex", 4, WRITE, ONE, strings::setex),
    on_keys("setnx", 3, WRITE, ONE, strings::setnx),
    on_keys("setrange", 4, WRITE, ONE, strings::setrange),
    other("shutdown", -1, NO_MULTI, server::shutdown),
    on_keys("sinter", -2, READ, ALL, sets::sinter),
    numbered("sintercard", -3, MOVABLE, NONE, 1, sets::sintercard),
    on_keys("sinterstore", -3, WRITE, ALL, sets::sinterstore),
    on_keys("sismember", 3, READ, ONE, sets::sismember),
    other("slowlog", -2, ADMIN, config::slowlog),
    on_keys("smembers", 2, READ, ONE, sets::smembers),
    on_keys("smismember", -3, READ, ONE, sets::smismember),
    on_keys("smove", 4, DELETE, (1, 2, 1), sets::smove),
    on_keys("spop", -2, DELETE, ONE, sets::spop),
    on_keys("srandmember", -2, READ, ONE, sets::srandmember),
    on_keys("srem", -3, DELETE, ONE, sets::srem),
    on_keys("sscan", -3, READ, ONE, sets::sscan),
    on_keys("strlen", 2, READ, ONE, strings::strlen),
    other("subscribe", -2, TOPICS, pubsub::subscribe),
    on_keys("substr", 4, READ, ONE, strings::getrange),
    on_keys("sunion", -2, READ, ALL, sets::sunion),
    on_keys("sunionstore", -3, WRITE, ALL, sets::sunionstore),
    other("time", 1, PLAIN, server::time),
    on_keys("touch", -2, READ, ALL, keys::exists),
    on_keys("ttl", 2, READ, ONE, keys::ttl),
    on_keys("type", 2, READ, ONE, keys::type_of),
    on_keys("unlink", -2, DELETE, ALL, keys::del),
    other("unsubscribe", -1, TOPICS, pubsub::unsubscribe),
    other("unwatch", 1, PLAIN, transaction::unwatch),
    other("watch", -2, MULTI, transaction::watch),
    on_keys("zadd", -4, WRITE, ONE, sorted::zadd),
    on_keys("zcard", 2, READ, ONE, sorted::zcard),
    on_keys("zcount", 4, READ, ONE, sorted::zcount),
    numbered("zdiff", -3, MOVABLE, NONE, 1, sorted::zdiff),
    numbered("zdiffstore", -4, MOVABLE_WRITE, ONE, 2, sorted::zdiffstore),
    on_keys("zincrby", 4, WRITE, ONE, sorted::zincrby),
    numbered("zinter", -3, MOVABLE, NONE, 1, sorted::zinter),
    numbered("zintercard", -3, MOVABLE, NONE, 1, sorted::zintercard),
    numbered("zinterstore", -4, MOVABLE_WRITE, ONE, 2, sorted::zinterstore),
    on_keys("zlexcount", 4, READ, ONE, sorted::zlexcount),
    numbered("zmpop", -4, MOVABLE_WRITE, NONE, 1, sorted::zmpop),
    on_keys("zmscore", -3, READ, ONE, sorted::zmscore),
    on_keys("zpopmax", -2, DELETE, ONE, sorted::zpopmax),
    on_keys("zpopmin", -2, DELETE, ONE, sorted::zpopmin),
    on_keys("zrandmember", -2, READ, ONE, sorted::zrandmember),
    on_keys("zrange", -4, READ, ONE, sorted::zrange),
    on_keys("zrangebylex", -4, READ, ONE, sorted::zrangebylex),
    on_keys("zrangebyscore", -4, READ, ONE, sorted::zrangebyscore),
    on_keys("zrangestore", -5, WRITE, (1, 2, 1), sorted::zrangestore),
    on_keys("zrank", 3, READ, ONE, sorted::zrank),
    on_keys("zrem", -3, DELETE, ONE, sorted::zrem),
    on_keys("zremrangebylex", 4, DELETE, ONE, sorted::zremrangebylex),
    on_keys("zremrangebyrank", 4, DELETE, ONE, sorted::zremrangebyrank),
    on_keys("zremrangebyscore", 4, DELETE, ONE, sorted::zremrangebyscore),
    on_keys("zrevrange", -4, READ, ONE, sorted::zrevrange),
    on_keys("zrevrangebylex", -4, READ, ONE, sorted::zrevrangebylex),
    on_keys("zrevrangebyscore", -4, READ, ONE, sorted::zrevrangebyscore),
    on_keys("zrevrank", 3, READ, ONE, sorted::zrevrank),
    on_keys("zscan", -3, READ, ONE, sorted::zscan),
    on_keys("zscore", 3, READ, ONE, sorted::zscore),
    numbered("zunion", -3, MOVABLE, NONE, 1, sorted::zunion),
    numbered("zunionstore", -4, MOVABLE_WRITE, ONE, 2, sorted::zunionstore),
];

/// Commands of Redis 7.0 that are not here, and why.
static ABSENT: &[(&str, &[&str])] = &[
    (
        "scripts are not supported",
        &["eval", "eval_ro", "evalsha", "evalsha_ro", "script", "fcall", "fcall_ro"],
    ),
    (
        "replication is not supported",
        &["replicaof", "slaveof", "psync", "sync", "replconf", "wait"],
    ),
    (
        "the cluster bus is not supported",
        &["cluster", "asking", "readonly", "readwrite", "failover"],
    ),
    (
        "streams are not supported yet",
        &[
            "xadd",
            "xack",
            "xautoclaim",
            "xclaim",
            "xdel",
            "xgroup",
            "xinfo",
            "xlen",
            "xpending",
            "xrange",
            "xread",
            "xreadgroup",
            "xrevrange",
            "xsetid",
            "xtrim",
        ],
    ),
    (
        "geographic sets are not supported yet",
        &[
            "geoadd",
            "geodist",
            "geohash",
            "geopos",
            "georadius",
            "georadiusbymember",
            "geosearch",
            "geosearchstore",
        ],
    ),
    (
        "HyperLogLogs are not supported yet",
        &["pfadd", "pfcount", "pfmerge", "pfdebug", "pfselftest"],
    ),
    (
        "the command is not supported yet",
        &[
            "sort",
            "sort_ro",
            "dump",
            "restore",
            "lcs",
            "bitfield",
            "bitfield_ro",
            "swapdb",
            "migrate",
            "spublish",
            "ssubscribe",
            "sunsubscribe",
        ],
    ),
    ("the command is not supported", &["monitor", "module", "debug", "bgrewriteaof", "latency"]),
];

/// The subcommands of the commands that have some.
static SUBCOMMANDS: &[(&str, &[&str])] = &[
    (
        "acl",
        &[
            "CAT", "DELUSER", "DRYRUN", "GENPASS", "GETUSER", "HELP", "LIST", "LOAD", "LOG",
            "SAVE", "SETUSER", "USERS", "WHOAMI",
        ],
    ),
    (
        "client",
        &[
            "ID", "INFO", "LIST", "GETNAME", "SETNAME", "SETINFO", "NO-EVICT", "REPLY", "KILL",
            "UNBLOCK",
        ],
    ),
    ("command", &["COUNT", "LIST", "INFO", "DOCS", "GETKEYS"]),
    ("config", &["GET", "SET", "RESETSTAT", "REWRITE"]),
    ("function", &["FLUSH", "LIST"]),
    ("memory", &["USAGE"]),
    ("object", &["ENCODING", "REFCOUNT", "IDLETIME", "FREQ", "HELP"]),
    ("pubsub", &["CHANNELS", "NUMSUB", "NUMPAT"]),
    ("slowlog", &["GET", "LEN", "RESET", "HELP"]),
];

/// The table of this server.
pub(crate) static TABLE: Table =
    Table { commands: COMMANDS, subcommands: SUBCOMMANDS, absent: ABSENT };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for spec in TABLE.commands {
            let found = TABLE.find(spec.name.to_uppercase().as_bytes()).map(|found| found.name);
            assert_eq!(found, Some(spec.name), "the table is sorted");
        }
        assert!(TABLE.find(b"nosuch").is_none());
    }

    /// Rules of users name commands and subcommands of the catalog; one that is missing there could be
    /// permitted to nobody.
    #[test]
    fn every_command_and_subcommand_can_be_named_in_rules() {
        let is_known =
            |name: &str| crate::acl::catalog::COMMANDS.iter().any(|(known, _, _)| *known == name);
        for spec in TABLE.commands {
            assert!(is_known(spec.name), "{}", spec.name);
        }
        for (command, names) in TABLE.subcommands {
            for name in *names {
                let name = format!("{command}|{}", name.to_ascii_lowercase());
                assert!(is_known(&name), "{name}");
            }
        }
    }

    #[test]
    fn keys_of_a_request_are_those_of_the_table() {
        let request =
            |text: &str| text.split(' ').map(|arg| arg.as_bytes().to_vec()).collect::<Vec<_>>();
        for (text, keys) in [
            ("mset a 1 b 2", vec!["a", "b"]),
            ("bitop and to a b", vec!["to", "a", "b"]),
            ("del a b c", vec!["a", "b", "c"]),
            ("get a", vec!["a"]),
            ("ping", vec![]),
        ] {
            let request = request(text);
            let found = TABLE.find(&request[0]).unwrap().keys_of(&request);
            assert_eq!(found, keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), "{text}");
        }
    }
}
