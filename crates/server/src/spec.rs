//! [`Spec`]: one command as the table describes it, and [`Call`], the argument of its function.

use crate::args;
use crate::blocking::Block;
use crate::collection::Members;
use crate::keys::stored_key;
use crate::reply::{Done, Fail, Reply};
use crate::session::Session;
use crate::unit::Unit;
use crate::value::{Kind, Value};

/// A command on keys.
pub(crate) struct Call<'a> {
    pub(crate) args: &'a [Vec<u8>],
    pub(crate) unit: &'a mut Unit,
    pub(crate) reply: &'a mut Reply,
    pub(crate) database: u8,
    /// The client may wait: it is not in a transaction.
    pub(crate) can_block: bool,
    /// Set by a command that waits and has not replied.
    pub(crate) block: &'a mut Option<Block>,
}

/// The function of a command.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Reads and writes the keys that the table names, in a [`Unit`].
    Keys(fn(&mut Call<'_>) -> Done),
    /// Anything else.
    Session(fn(&mut Session, &[Vec<u8>]) -> Done),
}

/// Finds a command by its name.
pub(crate) type Find = fn(&[u8]) -> Option<&'static Spec>;

/// One command.
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// The number of arguments with the name; negative: at least that many.
    pub(crate) arity: i64,
    /// Redis's flags.
    pub(crate) flags: &'static [&'static str],
    /// First key, last key (negative: from the end), step.
    pub(crate) keys: (i64, i64, i64),
    /// The argument with the number of the keys behind it; 0: there is none.
    pub(crate) numkeys: usize,
    pub(crate) run: Run,
}

impl Spec {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub(crate) fn takes(&self, args: usize) -> bool {
        let args = i64::try_from(args).unwrap_or(i64::MAX);
        if self.arity < 0 { args >= -self.arity } else { args == self.arity }
    }

    /// The keys of a request with this command.
    pub(crate) fn keys_of<'a>(&self, args: &'a [Vec<u8>]) -> Vec<&'a Vec<u8>> {
        let (first, last, step) = self.keys;
        let (Ok(first), Ok(step)) = (usize::try_from(first), usize::try_from(step)) else {
            return Vec::new();
        };
        let last = match usize::try_from(last) {
            Ok(last) => last,
            Err(_) => args.len().saturating_sub(last.unsigned_abs() as usize),
        };
        let mut keys: Vec<_> = match first {
            0 => Vec::new(),
            _ => args.get(first..=last).unwrap_or_default().iter().step_by(step.max(1)).collect(),
        };
        if self.numkeys > 0
            && let Some(count) = args.get(self.numkeys).and_then(|arg| args::integer(arg).ok())
        {
            let count = usize::try_from(count).unwrap_or(0);
            keys.extend(args.iter().skip(self.numkeys + 1).take(count));
        }
        keys
    }
}

impl Spec {
    /// The stored keys that a request of a client of `database` needs locks of.
    pub(crate) fn locked_keys(&self, args: &[Vec<u8>], database: u8) -> Vec<Vec<u8>> {
        let other = crate::command::keys::other_database(self.name, args);
        let databases = std::iter::once(database).chain(other);
        let keys = self.keys_of(args);
        databases.flat_map(|it| keys.iter().map(move |key| stored_key(it, key))).collect()
    }
}

impl<'a> Call<'a> {
    /// Argument `number`; the name is argument 0.
    ///
    /// # Errors
    /// A syntax error if there is none.
    pub(crate) fn arg(&self, number: usize) -> Result<&'a [u8], Fail> {
        self.args.get(number).map(Vec::as_slice).ok_or_else(Fail::syntax)
    }

    /// The arguments from `number` on.
    pub(crate) fn rest(&self, number: usize) -> &'a [Vec<u8>] {
        self.args.get(number..).unwrap_or_default()
    }

    /// The lower-case name of the command.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.args.first().map_or(&[][..], Vec::as_slice))
            .to_ascii_lowercase()
    }

    /// Argument `number` as a stored key.
    ///
    /// # Errors
    /// As [`Call::arg`].
    pub(crate) fn key(&self, number: usize) -> Result<Vec<u8>, Fail> {
        Ok(stored_key(self.database, self.arg(number)?))
    }

    /// The string of the key in argument `number`.
    ///
    /// # Errors
    /// As [`Call::arg`]; that the value is none of a string; those of the store.
    pub(crate) fn value(&mut self, number: usize) -> Result<Option<Value>, Fail> {
        let key = self.key(number)?;
        self.unit.get_kind(&key, Kind::String)
    }

    /// The value of any type of the key in argument `number`.
    ///
    /// # Errors
    /// As [`Call::arg`]; those of the store.
    pub(crate) fn value_of(&mut self, number: usize) -> Result<Option<Value>, Fail> {
        let key = self.key(number)?;
        self.unit.get(&key)
    }

    /// The hash, set or sorted set of the key in argument `number`; an empty one if there is none.
    ///
    /// # Errors
    /// As [`Call::value`].
    pub(crate) fn members(&mut self, number: usize, kind: Kind) -> Result<Members, Fail> {
        let key = self.key(number)?;
        Members::open(self.unit, &key, kind)
    }

    /// An empty collection, to replace the value of the key in argument `number`.
    ///
    /// # Errors
    /// As [`Call::arg`].
    pub(crate) fn no_members(&self, number: usize, kind: Kind) -> Result<Members, Fail> {
        Ok(Members::empty(&self.key(number)?, kind))
    }

    /// Stages a value for the key in argument `number`.
    ///
    /// # Errors
    /// As [`Call::value`].
    pub(crate) fn set(&mut self, number: usize, value: Option<Value>) -> Done {
        let key = self.key(number)?;
        self.unit.set(&key, value)
    }
}
