//! Commands over stored bytes that may be anything, for the fuzz target and a test of random bytes: bytes
//! of the store are bytes from outside. Nothing is committed, so one store serves many inputs.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use terracedb::{Db, Result};

use crate::command::TABLE;
use crate::keys::{Keys, stored_key};
use crate::part::part_row;
use crate::reply::{Done, Fail, Reply};
use crate::spec::{Call, Run, Spec};
use crate::unit::Unit;
use crate::value::{Head, Value};

/// One request or more for each command on keys: `k` and `l` hold the input, `m` is missing, `f` is a
/// member of it at times.
const REQUESTS: &str = "\
append k f;bitcount k;bitcount k 0 -1;bitop and m k l;bitop not m k;bitpos k 1;bitpos k 0 1 -1;
blmove k m left right 0;blmpop 0 2 m k left count 3;blpop k 0;brpop k 0;brpoplpush k m 0;
bzmpop 0 1 k min count 3;bzpopmax k 0;bzpopmin k 0;copy k m;copy k m db 1 replace;decr k;decrby k 2;
del k;exists k l;expire k 100;expireat k 1;expiretime k;get k;getbit k 9;getdel k;getex k persist;
getrange k 1 -2;getset k f;hdel k f g;hexists k f;hget k f;hgetall k;hincrby k f 1;hincrbyfloat k f 1.5;
hkeys k;hlen k;hmget k f g;hmset k f v g w;hrandfield k;hrandfield k 3 withvalues;
hrandfield k -3 withvalues;hscan k 0 count 100;hset k f v;hsetnx k f v;hstrlen k f;hvals k;incr k;
incrby k 2;incrbyfloat k 1.5;lindex k 0;lindex k -1;linsert k before f g;linsert k after f g;llen k;
lmove k m right left;lmove k l left left;lmpop 2 m k left count 3;lpop k;lpop k 2;
lpos k f rank -1 count 0;lpush k f;lpushx k f;lrange k 0 -1;lrange k 1 2;lrem k 0 f;lrem k -1 f;
lset k 0 f;ltrim k 1 -2;mget k l;move k 1;mset k f;msetnx m f l g;object encoding k;persist k;
pexpire k 100;pexpireat k 1;pexpiretime k;psetex k 100 f;pttl k;rename k m;renamenx k m;rpop k;rpop k 2;
rpoplpush k m;rpush k f;rpushx k f;sadd k f g;scard k;sdiff k l;sdiffstore m k l;set k f;setbit k 9 1;
setex k 100 f;setnx k f;setrange k 3 f;sinter k l;sintercard 2 k l;sinterstore m k l;sismember k f;
smembers k;smismember k f g;smove k m f;smove k l f;spop k;spop k 2;srandmember k;srandmember k 2;
srandmember k -2;srem k f;sscan k 0 count 100;strlen k;substr k 0 -1;sunion k l;sunionstore m k l;
touch k;ttl k;type k;unlink k;zadd k 1 f;zadd k incr 1 f;zcard k;zcount k -inf +inf;
zdiff 2 k l withscores;zdiffstore m 2 k l;zincrby k 1 f;zinter 2 k l withscores;zintercard 2 k l;
zinterstore m 2 k l;zlexcount k - +;zmpop 2 m k max count 3;zmscore k f g;zpopmax k;zpopmax k 2;
zpopmin k 3;zrandmember k;zrandmember k 2 withscores;zrange k 0 -1 withscores;zrange k - + bylex;
zrangebylex k [f +;zrangebyscore k -inf +inf withscores;zrangestore m k 0 -1;zrank k f;zrem k f;
zremrangebylex k [f [g;zremrangebyrank k 0 1;zremrangebyscore k -1 1;zrevrange k 0 -1;
zrevrangebylex k + -;zrevrangebyscore k +inf -inf limit 1 2;zrevrank k f;zscan k 0 count 100;zscore k f;
zunion 2 k l withscores;zunionstore m 2 k l weights 2 3";

/// A store, and the requests.
#[derive(Debug)]
pub struct StoredBytes {
    keys: Arc<Keys>,
    requests: Vec<Vec<Vec<u8>>>,
}

/// The number of the collection whose rows are the input.
const ID: u64 = 7;

impl StoredBytes {
    /// Opens a store in `directory`.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(directory: &Path) -> Result<Self> {
        let db = Db::builder(directory).memory(64 << 20).open()?;
        let requests = REQUESTS.split(';').map(str::trim).map(|request| {
            request.split(' ').map(|argument| argument.as_bytes().to_vec()).collect()
        });
        Ok(Self { keys: Arc::new(Keys::open(db, &[])?), requests: requests.collect() })
    }

    /// Runs every request over a key with the stored bytes `value` and over the rows of collection 7.
    /// Returns the number of requests without an error.
    ///
    /// # Panics
    /// If a reply is none, or more than one.
    #[must_use]
    pub fn run(&self, value: &[u8], rows: &[(&[u8], &[u8])]) -> usize {
        self.requests.iter().filter(|request| self.request(request, value, rows).is_ok()).count()
    }

    fn request(&self, request: &[Vec<u8>], value: &[u8], rows: &[(&[u8], &[u8])]) -> Done {
        let name = request.first().ok_or_else(Fail::syntax)?;
        let spec: &Spec = TABLE.find(name).ok_or_else(Fail::syntax)?;
        let Run::Keys(run) = spec.run else { return Err(Fail::syntax()) };
        let mut unit = Unit::new(&self.keys);
        let value = Value::decode(&Bytes::copy_from_slice(value))?;
        for key in [b"k", b"l"] {
            unit.set(&stored_key(0, key), Some(value.clone()))?;
        }
        for (element, value) in rows {
            unit.set_part(part_row(0, ID, element), Some(Bytes::copy_from_slice(value)))?;
        }
        let (mut reply, mut block) = (Reply { bytes: Vec::new(), is_resp3: true }, None);
        let (unit, block) = (&mut unit, &mut block);
        run(&mut Call {
            args: request,
            unit,
            reply: &mut reply,
            database: 0,
            can_block: false,
            block,
        })?;
        let rest = skip_reply(&reply.bytes);
        assert_eq!(rest, Some(&[][..]), "one reply to {:?}", String::from_utf8_lossy(name));
        Ok(())
    }
}

/// The stored value of a large collection with the number of [`StoredBytes`]'s rows.
#[must_use]
pub fn large_value(kind: u8, count: u64, start: u64) -> Vec<u8> {
    [&[kind, 2][..], &Head { id: ID, count, start }.encode()].concat()
}

/// The bytes behind one reply of RESP3; `None`: there is no whole one.
fn skip_reply(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes;
    let mut missing = 1_usize;
    while missing > 0 {
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (kind, number) = rest.get(..end)?.split_first()?;
        let number = || std::str::from_utf8(number).ok()?.parse::<usize>().ok();
        rest = rest.get(end + 2..)?;
        missing -= 1;
        match kind {
            b'*' | b'~' | b'>' => missing = missing.checked_add(number()?)?,
            b'%' => missing = missing.checked_add(number()?.checked_mul(2)?)?,
            b'$' => rest = rest.get(number()?..)?.strip_prefix(b"\r\n")?,
            b'+' | b'-' | b':' | b',' | b'_' => {}
            _ => return None,
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// splitmix64.
    fn draw(state: &mut u64) -> u64 {
        *state = crate::unit::mix(*state);
        *state
    }

    #[test]
    fn every_command_on_keys_has_a_request() {
        let directory = tempfile::tempdir().unwrap();
        let stored = StoredBytes::open(directory.path()).unwrap();
        let names: BTreeSet<_> = stored.requests.iter().map(|request| request[0].clone()).collect();
        for spec in TABLE.commands.iter().filter(|spec| matches!(spec.run, Run::Keys(_))) {
            assert!(names.contains(spec.name.as_bytes()), "{}", spec.name);
        }
        for request in &stored.requests {
            let spec = TABLE.find(&request[0]).unwrap();
            assert!(spec.takes(request.len()), "{}", spec.name);
            assert!(matches!(spec.run, Run::Keys(_)), "{}", spec.name);
        }
        // A good value of each type: commands of its type succeed.
        let small: [&[u8]; 5] = [
            b"\0\x007",
            b"\x01\0\x01\0f\x01\x007",
            b"\x02\0\x01\0f",
            b"\x03\0\x01\0f\0\0\0\0\0\0\xf8\x3f",
            b"\x04\0\x01\0f",
        ];
        for value in small {
            let count = stored.run(value, &[]);
            assert!(count > 40, "{count} of {}: {value:?}", stored.requests.len());
        }
        let rows: [(&[u8], &[u8]); 2] =
            [(b"\x80\0\0\0\0\0\0\0", b"f"), (b"\x80\0\0\0\0\0\0\x01", b"g")];
        assert!(stored.run(&large_value(4, 2, 0), &rows) > 40);
    }

    /// A count that is not that of the rows, and rows of any form, are errors; every reply is whole.
    #[test]
    fn damaged_rows_are_errors_and_replies_are_whole() {
        let directory = tempfile::tempdir().unwrap();
        let stored = StoredBytes::open(directory.path()).unwrap();
        let mut state = 0x5eed_u64;
        for round in 0..400_u64 {
            let kind = 1 + (round % 4) as u8;
            let count =
                [0, 1, 2, 3, 200, 1 << 60, u64::MAX / 2, u64::MAX][(draw(&mut state) % 8) as usize];
            let start =
                [0, 1, u64::MAX, 1 << 63, draw(&mut state)][(draw(&mut state) % 5) as usize];
            let rows: Vec<(Vec<u8>, Vec<u8>)> = (0..draw(&mut state) % 4)
                .map(|place| {
                    let element = match draw(&mut state) % 4 {
                        // Of a list; by member; by score; anything.
                        0 => (place ^ 1 << 63).to_be_bytes().to_vec(),
                        1 => [&[0][..], &(draw(&mut state) as u32).to_be_bytes(), b"f"].concat(),
                        2 => [&[1][..], &draw(&mut state).to_be_bytes(), b"f"].concat(),
                        _ => draw(&mut state).to_le_bytes()[..(draw(&mut state) % 9) as usize]
                            .to_vec(),
                    };
                    (
                        element,
                        draw(&mut state).to_le_bytes()[..(draw(&mut state) % 9) as usize].to_vec(),
                    )
                })
                .collect();
            let rows: Vec<_> =
                rows.iter().map(|(row, value)| (row.as_slice(), value.as_slice())).collect();
            let mut value = large_value(kind, count, start);
            if draw(&mut state).is_multiple_of(3) {
                // A small one, of any bytes.
                value = vec![kind, (draw(&mut state) % 8) as u8];
                value.extend((0..draw(&mut state) % 30).map(|_| (draw(&mut state) % 5) as u8));
            }
            let _count = stored.run(&value, &rows);
        }
    }

    #[test]
    fn a_copy_that_is_too_large_is_refused_before_work() {
        let directory = tempfile::tempdir().unwrap();
        let stored = StoredBytes::open(directory.path()).unwrap();
        let refused = |request: &str, kind: u8, count: u64| {
            let request: Vec<_> = request.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            stored.request(&request, &large_value(kind, count, 0), &[])
        };
        // The head says so: not one row is read, for there is none.
        let too_large =
            Fail::new("ERR the change is too large: one command stores at most 1000000 elements");
        for (request, kind) in [
            ("copy k m", 1),
            ("move k 1", 2),
            ("sunionstore m k l", 2),
            ("sdiffstore m k", 2),
            ("zunionstore m 2 k l", 3),
            ("zdiffstore m 1 k", 3),
            ("zrangestore m k 0 -1", 3),
            ("copy k m", 4),
        ] {
            assert_eq!(refused(request, kind, 1_000_001), Err(too_large.clone()), "{request}");
        }
        // A member of a sorted set has two rows.
        assert_eq!(refused("copy k m", 3, 500_001), Err(too_large));
    }
}
