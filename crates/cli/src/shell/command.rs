//! The commands of the shell, and their execution on an open store.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use base::format_bytes;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use terracedb::hashed::HashedPolicy;
use terracedb::{Db, EntryOptions, Expiry, Keyspace, KeyspaceOptions, Result};

use super::value_type::ValueType;
use crate::interrupt;
use crate::output::Output;
use crate::parsers::seconds;
use crate::shared_args::{decode_key, existing_keyspace, must_ascend};

/// Most entries that `scan` prints if no limit is given.
const SCAN_DEFAULT: usize = 100;

/// A line of the shell.
#[derive(Debug, Parser)]
#[command(multicall = true, disable_version_flag = true)]
pub(super) struct Line {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// The type of values in a line.
#[derive(Debug, clap::Args)]
pub(super) struct TypeArgs {
    /// The type of the values [default: that of `as`, at first text]
    #[arg(long = "as", value_name = "TYPE", value_enum)]
    of: Option<ValueType>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the value of a key
    Get {
        #[arg(allow_negative_numbers = true)]
        key: String,
        #[command(flatten)]
        of: TypeArgs,
    },
    /// Set the value of a key
    #[command(visible_alias = "set")]
    Put {
        #[arg(allow_negative_numbers = true)]
        key: String,
        #[arg(allow_negative_numbers = true)]
        value: String,
        #[command(flatten)]
        of: TypeArgs,
        /// Expire the entry after this time, as in 90s, 12h or 7d
        #[arg(long, value_name = "TIME", value_parser = seconds)]
        ttl: Option<Duration>,
    },
    /// Merge an operand into the value of a key, in a keyspace with a merge operator
    Merge {
        #[arg(allow_negative_numbers = true)]
        key: String,
        #[arg(allow_negative_numbers = true)]
        operand: String,
        #[command(flatten)]
        of: TypeArgs,
    },
    /// Delete a key
    #[command(visible_alias = "del")]
    Delete {
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print the time until a key expires
    Ttl {
        #[arg(allow_negative_numbers = true)]
        key: String,
    },
    /// Print entries in key order, at first those with the lowest keys
    Scan {
        /// The first key
        #[arg(long, allow_negative_numbers = true)]
        from: Option<String>,
        /// The first key that is not printed
        #[arg(long, allow_negative_numbers = true)]
        to: Option<String>,
        /// Keys that begin with this
        #[arg(allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
        prefix: Option<String>,
        /// Print at most this many entries
        #[arg(long, default_value_t = SCAN_DEFAULT)]
        limit: usize,
        /// Print the highest keys first
        #[arg(long)]
        reverse: bool,
        #[command(flatten)]
        of: TypeArgs,
    },
    /// Count the entries of the keyspace, or those with a prefix
    Count {
        #[arg(allow_negative_numbers = true)]
        prefix: Option<String>,
    },
    /// Use another keyspace from now on
    Use { keyspace: String },
    /// List the keyspaces
    Keyspaces,
    /// Create a keyspace, and use it
    Create {
        name: String,
        /// The merge operator, as in terrace.i64-add.1
        #[arg(long, value_name = "NAME")]
        merge_operator: Option<String>,
        /// Store the keys in the order of a hash: `keep`, or `window=SIZE`
        #[arg(long, value_name = "POLICY", conflicts_with = "merge_operator")]
        hashed: Option<HashedPolicy>,
    },
    /// Drop a keyspace with all its data
    Drop { name: String },
    /// Read and print values as this type from now on
    As {
        #[arg(value_enum)]
        of: ValueType,
    },
    /// Flush the memtables to tables
    Flush,
    /// Show the present state of a store that is open for reading only
    Refresh,
    /// End the shell; so does the end of the input (Ctrl-D)
    #[command(visible_alias = "quit")]
    Exit,
}

/// The state of a shell.
pub(super) struct Session {
    pub(super) db: Db,
    /// The name of the keyspace in use. It may not exist yet: the first write creates it.
    pub(super) keyspace: String,
    of: ValueType,
    json: bool,
}

impl Session {
    pub(super) fn new(db: Db, keyspace: String, json: bool) -> Self {
        Self { db, keyspace, of: ValueType::default(), json }
    }

    /// Runs `command` and prints its result.
    ///
    /// # Errors
    /// Those of the command.
    pub(super) fn run(&mut self, command: Command, out: &mut Output) -> Result<()> {
        match command {
            Command::Get { key, of } => {
                let value = self.existing()?.get(key_of(&key)?)?;
                self.print_value(&key, value.as_deref(), of, out)
            }
            Command::Put { key, value, of, ttl } => {
                let value = self.of(&of).read(&value)?;
                let options = ttl.map_or(EntryOptions::new(), |ttl| EntryOptions::new().ttl(ttl));
                self.writable()?.put_opt(key_of(&key)?, value, &options)
            }
            Command::Merge { key, operand, of } => {
                let operand = self.of(&of).read(&operand)?;
                self.writable()?.merge(key_of(&key)?, operand)
            }
            Command::Delete { key } => self.existing()?.delete(key_of(&key)?),
            Command::Ttl { key } => {
                let expiry = self.existing()?.expiry(key_of(&key)?)?;
                self.print_ttl(&key, expiry, out)
            }
            Command::Scan { from, to, prefix, limit, reverse, of } => {
                let range = Range::of(from.as_ref(), to.as_ref(), prefix.as_ref())?;
                self.scan(&range, limit, reverse, self.of(&of), out)
            }
            Command::Count { prefix } => self.count(prefix.as_ref(), out),
            Command::Use { keyspace } => {
                existing_keyspace(&self.db, "keyspace", &keyspace)?;
                self.keyspace = keyspace;
                Ok(())
            }
            Command::Keyspaces => self.print_keyspaces(out),
            Command::Create { name, merge_operator, hashed } => {
                let mut options = KeyspaceOptions::new();
                if let Some(operator) = merge_operator {
                    options = options.merge_operator(operator);
                }
                if let Some(policy) = hashed {
                    options = options.hashed(policy);
                }
                self.db.create_keyspace_opt(&name, &options)?;
                self.keyspace = name;
                Ok(())
            }
            Command::Drop { name } => {
                existing_keyspace(&self.db, "keyspace", &name)?;
                self.db.drop_keyspace(&name).map(drop)
            }
            Command::As { of } => {
                self.of = of;
                Ok(())
            }
            Command::Flush => self.db.flush(),
            Command::Refresh => {
                self.db = self.db.refresh()?;
                Ok(())
            }
            Command::Exit => Ok(()),
        }
    }

    fn of(&self, args: &TypeArgs) -> ValueType {
        args.of.unwrap_or(self.of)
    }

    fn existing(&self) -> Result<Keyspace> {
        existing_keyspace(&self.db, "keyspace", &self.keyspace)
    }

    fn writable(&self) -> Result<Keyspace> {
        self.db.open_or_create_keyspace(&self.keyspace)
    }

    fn print_value(
        &self,
        key: &str,
        value: Option<&[u8]>,
        of: TypeArgs,
        out: &mut Output,
    ) -> Result<()> {
        let of = self.of(&of);
        match (value, self.json) {
            (value, true) => {
                let value = value.map_or(Value::Null, |value| of.json(value));
                out.line(json!({ "key": key, "value": value }))
            }
            (Some(value), false) => out.line(of.text(value)),
            (None, false) => out.line("(no such key)"),
        }
    }

    fn print_ttl(&self, key: &str, expiry: Option<Expiry>, out: &mut Output) -> Result<()> {
        let left = match expiry {
            Some(Expiry::At(time)) => {
                Some(time.duration_since(SystemTime::now()).unwrap_or_default().as_secs_f64())
            }
            _ => None,
        };
        match (expiry, left, self.json) {
            (expiry, left, true) => {
                out.line(json!({ "key": key, "exists": expiry.is_some(), "seconds": left }))
            }
            (None, ..) => out.line("(no such key)"),
            (Some(_), None, _) => out.line("never"),
            (Some(_), Some(seconds), _) => out.line(format_args!("{seconds:.0} s")),
        }
    }

    fn scan(
        &self,
        range: &Range,
        limit: usize,
        reverse: bool,
        of: ValueType,
        out: &mut Output,
    ) -> Result<()> {
        let keyspace = self.existing()?;
        let mut left = limit;
        let is_unordered = keyspace.hashed_policy().is_some() && range.is_all() && !reverse;
        let more = if is_unordered {
            each(keyspace.entries()?, &mut left, |key, value| {
                self.print_entry(key, value, of, out)
            })?
        } else {
            let iter = range.iter(&keyspace)?;
            let mut print = |key: &[u8], value: &[u8]| self.print_entry(key, value, of, out);
            match reverse {
                false => each(iter, &mut left, &mut print)?,
                true => each(iter.rev(), &mut left, &mut print)?,
            }
        };
        if more && !self.json {
            out.line(format_args!("(more than {limit}: give --limit or a prefix)"))?;
        }
        Ok(())
    }

    fn print_entry(&self, key: &[u8], value: &[u8], of: ValueType, out: &mut Output) -> Result<()> {
        if self.json {
            let key = ValueType::Text.json(key);
            return out.line(json!({ "key": key, "value": of.json(value) }));
        }
        out.line(format_args!("{}\t{}", ValueType::Text.text(key), of.text(value)))
    }

    fn count(&self, prefix: Option<&String>, out: &mut Output) -> Result<()> {
        let keyspace = self.existing()?;
        let (mut count, mut left) = (0u64, usize::MAX);
        let add = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(())
        };
        match prefix {
            None if keyspace.hashed_policy().is_some() => {
                each(keyspace.entries()?, &mut left, add)?
            }
            None => each(keyspace.iter()?, &mut left, add)?,
            Some(prefix) => each(keyspace.prefix(key_of(prefix)?)?, &mut left, add)?,
        };
        match self.json {
            true => out.line(json!({ "count": count })),
            false => out.line(count),
        }
    }

    fn print_keyspaces(&self, out: &mut Output) -> Result<()> {
        for keyspace in self.db.statistics().keyspaces {
            let is_used = keyspace.name == self.keyspace;
            let bytes = keyspace.table_bytes + keyspace.value_file_bytes;
            match self.json {
                true => out.line(json!({
                    "name": keyspace.name,
                    "kind": keyspace.kind,
                    "bytes": bytes,
                    "unflushed_bytes": keyspace.unflushed_bytes,
                    "in_use": is_used,
                }))?,
                false => out.line(format_args!(
                    "{} {}\t{}\t{} in tables, {} not flushed",
                    if is_used { '*' } else { ' ' },
                    keyspace.name.escape_debug(),
                    keyspace.kind,
                    format_bytes(bytes),
                    format_bytes(keyspace.unflushed_bytes)
                ))?,
            }
        }
        Ok(())
    }

    /// Makes every write of the session durable.
    ///
    /// # Errors
    /// As [`Db::close`].
    pub(super) fn close(&self) -> Result<()> {
        self.db.close()
    }
}

/// Calls `consume` with at most `left` entries. Returns whether there are more.
fn each<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    entries: impl Iterator<Item = Result<(K, V)>>,
    left: &mut usize,
    mut consume: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<bool> {
    for entry in entries {
        interrupt::check("scan")?;
        let (key, value) = entry?;
        if *left == 0 {
            return Ok(true);
        }
        *left -= 1;
        consume(key.as_ref(), value.as_ref())?;
    }
    Ok(false)
}

/// The keys of a scan.
struct Range {
    prefix: Option<Vec<u8>>,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Range {
    fn of(from: Option<&String>, to: Option<&String>, prefix: Option<&String>) -> Result<Self> {
        let decoded = |text: Option<&String>| text.map(|text| key_of(text)).transpose();
        let (from, to) = (decoded(from)?, decoded(to)?);
        must_ascend(from.as_ref(), to.as_ref())?;
        Ok(Self {
            prefix: decoded(prefix)?,
            from: from.map_or(Bound::Unbounded, Bound::Included),
            to: to.map_or(Bound::Unbounded, Bound::Excluded),
        })
    }

    fn is_all(&self) -> bool {
        let Self { prefix, from, to } = self;
        prefix.is_none() && *from == Bound::Unbounded && *to == Bound::Unbounded
    }

    fn iter(&self, keyspace: &Keyspace) -> Result<terracedb::Iter> {
        match &self.prefix {
            Some(prefix) => keyspace.prefix(prefix),
            None => keyspace.range((self.from.clone(), self.to.clone())),
        }
    }
}

fn key_of(typed: &str) -> Result<Vec<u8>> {
    decode_key(typed, false)
}
