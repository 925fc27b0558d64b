//! The table of commands. Beside Redis's flags: `no_auth`, before AUTH; `during_multi`, executed and not
//! queued between MULTI and EXEC; `while_subscribed`, by a RESP2 client with subscriptions; `all_keys`, under
//! the locks of all keys; `whole_database`, sees all earlier commands of its EXEC through the store.

use super::{bits, client, keys, pubsub, server, strings, transaction};
use crate::spec::{Run, Spec};

const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const DELETE: &[&str] = &["write", "fast"];
const PLAIN: &[&str] = &["fast", "loading"];
const ADMIN: &[&str] = &["admin", "noscript"];
const DATABASE: &[&str] = &["readonly", "whole_database"];
const FLUSH: &[&str] = &["write", "all_keys", "whole_database"];
const TOPICS: &[&str] = &["pubsub", "noscript", "during_multi", "while_subscribed"];
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
    Spec { name, arity, flags, keys, run: Run::Keys(run) }
}

const fn other(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    run: Session,
) -> Spec {
    Spec { name, arity, flags, keys: NONE, run: Run::Session(run) }
}

/// Sorted by name.
static TABLE: &[Spec] = &[
    on_keys("append", 3, WRITE, ONE, strings::append),
    other("auth", -2, &["fast", "no_auth", "during_multi"], client::auth),
    other("bgsave", -1, ADMIN, server::bgsave),
    on_keys("bitcount", -2, READ, ONE, bits::bitcount),
    on_keys("bitop", -4, WRITE, (2, -1, 1), bits::bitop),
    on_keys("bitpos", -3, READ, ONE, bits::bitpos),
    other("client", -2, PLAIN, client::client),
    other("command", -1, PLAIN, server::command),
    other("config", -2, ADMIN, server::config),
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
    on_keys("get", 2, READ, ONE, strings::get),
    on_keys("getbit", 3, READ, ONE, bits::getbit),
    on_keys("getdel", 2, DELETE, ONE, strings::getdel),
    on_keys("getex", -2, DELETE, ONE, strings::getex),
    on_keys("getrange", 4, READ, ONE, strings::getrange),
    on_keys("getset", 3, WRITE, ONE, strings::getset),
    other("hello", -1, &["fast", "no_auth", "during_multi"], client::hello),
    on_keys("incr", 2, WRITE, ONE, strings::incr),
    on_keys("incrby", 3, WRITE, ONE, strings::incrby),
    on_keys("incrbyfloat", 3, WRITE, ONE, strings::incrbyfloat),
    other("info", -1, PLAIN, server::info),
    other("keys", 2, DATABASE, keys::keys),
    other("kv.compact", 1, ADMIN, server::kv_compact),
    other("kv.scan", -3, DATABASE, server::kv_scan),
    other("lastsave", 1, PLAIN, server::lastsave),
    other("memory", -2, DATABASE, server::memory),
    on_keys("mget", -2, READ, ALL, strings::mget),
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
    other("save", 1, ADMIN, server::save),
    other("scan", -2, DATABASE, keys::scan),
    other("select", 2, PLAIN, client::select),
    on_keys("set", -3, WRITE, ONE, strings::set),
    on_keys("setbit", 4, WRITE, ONE, bits::setbit),
    on_keys("setex", 4, WRITE, ONE, strings::setex),
    on_keys("setnx", 3, WRITE, ONE, strings::setnx),
    on_keys("setrange", 4, WRITE, ONE, strings::setrange),
    other("shutdown", -1, ADMIN, server::shutdown),
    other("slowlog", -2, ADMIN, server::slowlog),
    on_keys("strlen", 2, READ, ONE, strings::strlen),
    other("subscribe", -2, TOPICS, pubsub::subscribe),
    on_keys("substr", 4, READ, ONE, strings::getrange),
    other("time", 1, PLAIN, server::time),
    on_keys("touch", -2, READ, ALL, keys::exists),
    on_keys("ttl", 2, READ, ONE, keys::ttl),
    on_keys("type", 2, READ, ONE, keys::type_of),
    on_keys("unlink", -2, DELETE, ALL, keys::del),
    other("unsubscribe", -1, TOPICS, pubsub::unsubscribe),
    other("unwatch", 1, PLAIN, transaction::unwatch),
    other("watch", -2, MULTI, transaction::watch),
];

/// Every command.
pub(crate) fn all() -> &'static [Spec] {
    TABLE
}

/// The command called `name`, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    let name = name.to_ascii_lowercase();
    let at = TABLE.binary_search_by(|spec| spec.name.as_bytes().cmp(&name)).ok()?;
    TABLE.get(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for spec in all() {
            let found = find(spec.name.to_uppercase().as_bytes()).map(|found| found.name);
            assert_eq!(found, Some(spec.name), "the table is sorted");
        }
        assert!(find(b"nosuch").is_none());
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
            let found = find(&request[0]).unwrap().keys_of(&request);
            assert_eq!(found, keys.iter().map(|key| key.as_bytes()).collect::<Vec<_>>(), "{text}");
        }
    }
}
