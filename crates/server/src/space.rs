//! [`Space`]: the keyspace of a database's values, of the kind that the configuration chose.
//!
//! Ordered databases share the keyspace `redis.keys`. A database of another kind has a hashed keyspace of its
//! own, `redis.keys.N`: `keep` answers point reads with less memory, and `window` is a cache of the newest
//! entries, which forgets the oldest when it is full. The kind of a database is fixed once it exists.
//!
//! A window evicts without telling, so no row may belong to an entry: its keys have no count and no row in
//! the index of expiries, and its collections must fit their value.

use std::fmt;
use std::str::FromStr;

use terracedb::hashed::{Discard, HashedPolicy};
use terracedb::{Db, Error, Keyspace, KeyspaceOptions};

use crate::keys::DATABASES;
use crate::reply::Fail;

/// The kind of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Keys in order; the default.
    Ordered,
    /// Keys in the order of a hash.
    Hashed(HashedPolicy),
}

impl DatabaseKind {
    /// The word of Redis's `maxmemory-policy` that comes nearest.
    #[must_use]
    pub const fn policy(&self) -> &'static str {
        match self {
            Self::Ordered | Self::Hashed(HashedPolicy::Keep | HashedPolicy::Resident) => {
                "noeviction"
            }
            Self::Hashed(HashedPolicy::Window { discard: Discard::Fifo, .. }) => "allkeys-fifo",
            Self::Hashed(HashedPolicy::Window { discard: Discard::Clock, .. }) => "allkeys-lru",
            Self::Hashed(HashedPolicy::Window { .. }) => "allkeys-priority",
        }
    }
}

impl fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str("ordered"),
            Self::Hashed(policy) => policy.fmt(f),
        }
    }
}

/// Parses `ordered`, `keep`, `window=8GiB` and `window=8GiB,clock`, and in the words of Redis `noeviction`,
/// `allkeys-fifo=8GiB` and `allkeys-lru=8GiB`.
impl FromStr for DatabaseKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let policy = match text.split_once('=') {
            None if matches!(text, "ordered" | "noeviction") => return Ok(Self::Ordered),
            Some(("allkeys-fifo", size)) => format!("window={size}"),
            Some(("allkeys-lru", size)) => format!("window={size},clock"),
            _ => text.to_owned(),
        };
        let policy = policy.parse().map_err(|error: Error| {
            Error::invalid("kind of a database")
                .expected(
                    "ordered, keep, window=SIZE[,clock], allkeys-fifo=SIZE or allkeys-lru=SIZE",
                )
                .got(format_args!("`{}` ({error})", text.escape_debug()))
        })?;
        Ok(Self::Hashed(policy))
    }
}

/// The keyspace of a database's values.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) keyspace: Keyspace,
    pub(crate) kind: DatabaseKind,
}

/// Entries of a window that are counted one by one.
const COUNTED_MAX: usize = 10_000;

impl Space {
    pub(crate) fn is_ordered(&self) -> bool {
        self.kind == DatabaseKind::Ordered
    }

    /// Old entries are evicted.
    pub(crate) fn is_window(&self) -> bool {
        matches!(self.kind, DatabaseKind::Hashed(HashedPolicy::Window { .. }))
    }

    /// Checks that commands may walk the keys of this database.
    ///
    /// # Errors
    /// That they have no order.
    pub(crate) fn check_order(&self, database: u8) -> Result<(), Fail> {
        match self.is_ordered() {
            true => Ok(()),
            false => Err(Fail::new(format!(
                "ERR the database {database} is of the kind {}, whose keys cannot be scanned; KEYS \
                 reads them all",
                self.kind
            ))),
        }
    }

    /// The number of entries, exact for a few thousand; 0 if they cannot be read.
    pub(crate) fn entries(&self, db: &Db) -> i64 {
        let counted = self
            .keyspace
            .entries()
            .map(|entries| entries.take(COUNTED_MAX).take_while(Result::is_ok).count());
        let counted = counted.unwrap_or(0) as u64;
        let in_tables = || {
            let keyspaces = db.statistics().keyspaces;
            let own = keyspaces.iter().find(|keyspace| keyspace.name == self.keyspace.name());
            own.map_or(0, |own| own.table_entries)
        };
        let entries = if counted < COUNTED_MAX as u64 { counted } else { counted.max(in_tables()) };
        i64::try_from(entries).unwrap_or(i64::MAX)
    }
}

/// The name of a hashed database's keyspace.
fn name(database: u8) -> String {
    format!("redis.keys.{database}")
}

/// Opens the keyspaces of the databases. `kinds`: those that the configuration names.
///
/// # Errors
/// Those of the store; `Invalid` if a database exists and has another kind.
pub(crate) fn open(db: &Db, kinds: &[(u8, DatabaseKind)]) -> terracedb::Result<Vec<Space>> {
    let ordered = db.open_or_create_keyspace("redis.keys")?;
    let existing = db.keyspaces();
    let one = |database: u8| {
        let wanted = kinds.iter().rev().find(|(of, _)| *of == database).map(|(_, kind)| kind);
        let existing = existing.iter().find(|keyspace| keyspace.name() == name(database));
        let (start, end) = ([database], [database + 1]);
        let kind = match (existing.and_then(Keyspace::hashed_policy), wanted) {
            (Some(policy), _) => DatabaseKind::Hashed(policy.clone()),
            (None, Some(DatabaseKind::Hashed(policy))) => {
                // The values of an ordered database would not be found any more.
                if ordered.range(&start[..]..&end[..])?.next().transpose()?.is_some() {
                    DatabaseKind::Ordered
                } else {
                    DatabaseKind::Hashed(policy.clone())
                }
            }
            (None, _) => DatabaseKind::Ordered,
        };
        if let Some(wanted) = wanted.filter(|wanted| **wanted != kind) {
            return Err(Error::invalid("--database")
                .expected(format_args!(
                    "{database}={kind}, because the kind of a database cannot be changed"
                ))
                .got(format_args!("{database}={wanted}")));
        }
        let keyspace = match &kind {
            DatabaseKind::Ordered => ordered.clone(),
            DatabaseKind::Hashed(policy) => {
                let options = KeyspaceOptions::new().hashed(policy.clone());
                db.open_or_create_keyspace_opt(&name(database), &options)?
            }
        };
        Ok(Space { keyspace, kind })
    };
    (0..DATABASES).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_this_store_and_of_redis() {
        for (text, shown, policy) in [
            ("ordered", "ordered", "noeviction"),
            ("noeviction", "ordered", "noeviction"),
            ("keep", "keep", "noeviction"),
            ("window=1GiB", "window=1.0 GiB", "allkeys-fifo"),
            ("allkeys-fifo=1GiB", "window=1.0 GiB", "allkeys-fifo"),
            ("window=1GiB,clock", "window=1.0 GiB,clock", "allkeys-lru"),
            ("allkeys-lru=1GiB", "window=1.0 GiB,clock", "allkeys-lru"),
        ] {
            let kind: DatabaseKind = text.parse().unwrap();
            assert_eq!((kind.to_string().as_str(), kind.policy()), (shown, policy), "{text}");
        }
        for wrong in [
            "",
            "allkeys-lru",
            "volatile-ttl=1GiB",
            "window",
            "window=0x",
            "allkeys-lru=1GiB,clock",
        ] {
            assert!(wrong.parse::<DatabaseKind>().is_err(), "{wrong}");
        }
    }
}
