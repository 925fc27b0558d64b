//! [`Spec`]: one command as the [`Table`] describes it, and [`Call`], the argument of its function.

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
    /// The keys of a request that the rules of its user must permit. Commands without locks on keys may name
    /// some, too.
    pub(crate) fn checked_keys<'a>(&self, args: &'a [Vec<u8>]) -> Vec<&'a Vec<u8>> {
        match self.name {
            "watch" => args.iter().skip(1).collect(),
            "memory" => args.iter().skip(2).take(1).collect(),
            _ => self.keys_of(args),
        }
    }

    /// The stored keys that a request of a client of `database` needs locks of.
    pub(crate) fn locked_keys(&self, args: &[Vec<u8>], database: u8) -> Vec<Vec<u8>> {
        let other = other_database(self.name, args);
        let databases = std::iter::once(database).chain(other);
        let keys = self.keys_of(args);
        databases.flat_map(|it| keys.iter().map(move |key| stored_key(it, key))).collect()
    }
}

/// The other database that a request of COPY or MOVE writes to.
fn other_database(name: &str, args: &[Vec<u8>]) -> Option<u8> {
    let number = match name {
        "move" => args.get(2),
        "copy" => {
            let at = args.iter().skip(3).rposition(|arg| arg.eq_ignore_ascii_case(b"db"))?;
            args.get(3 + at + 1)
        }
        _ => None,
    };
    args::database(number?, "").ok()
}

/// All commands. A [`Session`] is given the table that it looks its requests up in, so it can be read and
/// tested without the commands.
pub(crate) struct Table {
    /// The commands, sorted by name.
    pub(crate) commands: &'static [Spec],
    /// The subcommands of the commands that have some.
    pub(crate) subcommands: &'static [(&'static str, &'static [&'static str])],
    /// Commands of Redis that do not exist here, by the reason that the error states.
    pub(crate) absent: &'static [(&'static str, &'static [&'static str])],
}

impl Table {
    /// The command called `name`, in any case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&'static Spec> {
        let name = name.to_ascii_lowercase();
        let at = self.commands.binary_search_by(|spec| spec.name.as_bytes().cmp(&name)).ok()?;
        self.commands.get(at)
    }

    /// Whether a request with `command` and the argument `name` names an existing subcommand, or needs none.
    pub(crate) fn is_subcommand(&self, command: &str, name: Option<&Vec<u8>>) -> bool {
        let known = self.subcommands.iter().find(|(known, _)| *known == command);
        let (Some((_, known)), Some(name)) = (known, name) else { return true };
        known.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// The reason that the command of Redis called `name` is not here.
    pub(crate) fn absent(&self, name: &[u8]) -> Option<&'static str> {
        let is_name = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
        let found = self.absent.iter().find(|(_, names)| names.iter().any(is_name));
        found.map(|(reason, _)| *reason)
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
