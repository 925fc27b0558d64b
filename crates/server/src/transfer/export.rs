//! [`export`]: a store as commands of the Redis protocol, for `redis-cli --pipe`, or as an append-only file
//! that Redis loads.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use terracedb::Db;

use super::stopped::Stopped;
use crate::collection::{List, Members, score, score_of};
use crate::keys::{DATABASES, Keys};
use crate::unit::Unit;
use crate::value::{Kind, Value};

/// Elements of one command, and bytes of them.
const ELEMENTS: usize = 500;
const BYTES: usize = 1 << 20;
/// Keys between two calls of `progress`.
const KEYS_PER_UPDATE: u64 = 256;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Keys.
    pub keys: u64,
    /// Commands.
    pub commands: u64,
}

/// Appends a request: an array of strings.
pub(super) fn push_request(bytes: &mut Vec<u8>, request: &[impl AsRef<[u8]>]) {
    bytes.extend(format!("*{}\r\n", request.len()).bytes());
    for arg in request {
        let arg = arg.as_ref();
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Writes every key of `db` that has not expired. Calls `progress` with the keys so far.
///
/// # Errors
/// Those of the store and of `out`; that a value is damaged.
pub fn export(
    db: Db,
    out: &mut impl Write,
    mut progress: impl FnMut(u64) -> terracedb::Result<()>,
) -> Result<Exported, Stopped> {
    let keys = Arc::new(Keys::open(db, &[])?);
    let mut writer = Writer { out, exported: Exported::default() };
    for database in 0..DATABASES {
        let space = keys.space(database)?;
        let mut has_selected = false;
        // Hashed keyspaces have entries only; those of an ordered one are of all databases.
        let mut visit = |name: &[u8], stored: &terracedb::Bytes| {
            let value = Value::decode(stored)?;
            let mut unit = Unit::reading(&keys, false);
            if value.is_expired(unit.now) {
                return Ok::<_, Stopped>(());
            }
            if !has_selected {
                writer.write(&[b"SELECT".as_slice(), database.to_string().as_bytes()])?;
                has_selected = true;
            }
            let shown = String::from_utf8_lossy(name.get(1..).unwrap_or_default()).into_owned();
            let written = writer.key(&mut unit, name, &value);
            written.map_err(|stopped| stopped.at(format_args!("key `{shown}`")))?;
            writer.exported.keys += 1;
            if writer.exported.keys.is_multiple_of(KEYS_PER_UPDATE) {
                progress(writer.exported.keys)?;
            }
            Ok(())
        };
        if space.is_ordered() {
            let (start, end) = ([database], [database + 1]);
            for entry in space.keyspace.range(&start[..]..&end[..])? {
                let (name, stored) = entry?;
                visit(&name, &stored)?;
            }
        } else {
            for entry in space.keyspace.entries()? {
                let (name, stored) = entry?;
                visit(&name, &stored)?;
            }
        }
    }
    writer.out.flush()?;
    Ok(writer.exported)
}

struct Writer<'a, W> {
    out: &'a mut W,
    exported: Exported,
}

impl<W: Write> Writer<'_, W> {
    fn write(&mut self, request: &[impl AsRef<[u8]>]) -> Result<(), Stopped> {
        let mut bytes = Vec::new();
        push_request(&mut bytes, request);
        self.exported.commands += 1;
        Ok(self.out.write_all(&bytes)?)
    }

    /// The commands that make a key.
    fn key(&mut self, unit: &mut Unit, stored: &[u8], value: &Value) -> Result<(), Stopped> {
        let name = stored.get(1..).unwrap_or_default();
        let command: &[u8] = match value.kind {
            Kind::String => {
                self.write(&[b"SET".as_slice(), name, &value.bytes])?;
                return self.expiry(name, value.expiry);
            }
            Kind::Hash => b"HSET",
            Kind::Set => b"SADD",
            Kind::SortedSet => b"ZADD",
            Kind::List => b"RPUSH",
        };
        let (mut batch, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        let mut failed = Ok(());
        let mut add = |arguments: [Option<Vec<u8>>; 2]| {
            for argument in arguments.into_iter().flatten() {
                bytes += argument.len();
                batch.push(argument);
            }
            if batch.len() >= ELEMENTS || bytes >= BYTES {
                failed = self.collection(command, name, &mut batch);
                bytes = 0;
            }
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if value.kind == Kind::List {
            let list = List::open(unit, stored)?;
            list.walk(unit, 0..list.len(), false, |_, element| {
                Ok(add([Some(element.to_vec()), None]))
            })?;
        } else {
            Members::of(stored, value)?.walk(unit, |member, payload| {
                Ok(add(match value.kind {
                    Kind::Hash => [Some(member.to_vec()), Some(payload.to_vec())],
                    Kind::SortedSet => {
                        [Some(score::text(score_of(payload)?).into_bytes()), Some(member.to_vec())]
                    }
                    _ => [Some(member.to_vec()), None],
                }))
            })?;
        }
        failed?;
        self.collection(command, name, &mut batch)?;
        self.expiry(name, value.expiry)
    }

    fn collection(
        &mut self,
        command: &[u8],
        name: &[u8],
        batch: &mut Vec<Vec<u8>>,
    ) -> Result<(), Stopped> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut request = vec![command.to_vec(), name.to_vec()];
        request.append(batch);
        self.write(&request)
    }

    fn expiry(&mut self, name: &[u8], expiry: u64) -> Result<(), Stopped> {
        if expiry == 0 {
            return Ok(());
        }
        self.write(&[b"PEXPIREAT".as_slice(), name, expiry.to_string().as_bytes()])
    }
}
