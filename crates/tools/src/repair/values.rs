//! Repair of value files: examines them, and salvages the damaged ones.
//!
//! Every value of a damaged file that verifies (I8) and that a table points to is copied to a new file. The
//! tables that point into the damaged file are rewritten: their pointers lead to the copies. Versions with
//! lost values are dropped, so that reads find older versions of their keys if there are any.
//!
//! Memory: one value at a time.

use std::sync::Arc;

use base::{Codec, EntryKind, Error, KeyspaceId, Result, TableId, Trailer};
use manifest::{KeyspaceEntry, LiveTable, ValuesEntry};
use media::Purpose;
use table::{Pointer, Values, ValuesSpec, ValuesWriter, file_name, values_file_name};

use super::changes::Changes;
use super::ids::next_id;
use super::tables::{Salvager, Verdict};
use super::{Lost, LostRange, Repair, RepairedFile, Walk};

impl Repair<'_> {
    /// Examines every value file, and replaces the damaged ones. Returns the names of those files and of the
    /// tables that were rewritten.
    pub(super) fn values(&mut self, walk: &mut Walk<'_>) -> Result<Vec<String>> {
        let Walk { salvager, state, changes, progress } = walk;
        let mut replaced = Vec::new();
        for (id, keyspace) in &mut state.keyspaces {
            let keyspace = Arc::make_mut(keyspace);
            for values in keyspace.values.values().map(|live| live.entry).collect::<Vec<_>>() {
                self.cancel.check("repair")?;
                let error = salvager.examine_values(&values)?;
                self.report.value_files += 1;
                self.report.bytes += values.file_bytes;
                progress(self.report.bytes);
                let Some(error) = error else { continue };
                refuse_cold(keyspace, values.id, &error)?;
                let new = next_id(&mut state.tables_below);
                changes.add_created(values_file_name(new));
                let write = (!self.dry_run).then_some(new);
                let mut rescue = Rescue::new(salvager, *id, values.id, write)?;
                let below = &mut state.tables_below;
                replaced.extend(self.rewrite_tables(&mut rescue, keyspace, below, changes)?);
                rescue.end()?;
                replaced.push(values_file_name(values.id));
                self.report_values(rescue, &keyspace.name, error);
            }
        }
        Ok(replaced)
    }

    /// Rewrites the tables that point into the damaged value file of `rescue`. Returns their file names; none
    /// in a dry run. `below`: the end of the used table ids.
    fn rewrite_tables(
        &mut self,
        rescue: &mut Rescue<'_>,
        keyspace: &mut KeyspaceEntry,
        below: &mut TableId,
        changes: &mut Changes,
    ) -> Result<Vec<String>> {
        let (salvager, id, file) = (rescue.salvager, rescue.keyspace, rescue.file);
        let form = keyspace.kind.key_form();
        let mut replaced = Vec::new();
        let tables = keyspace.tables.values().filter(|live| live.entry.points_into(file));
        for live in tables.cloned().collect::<Vec<_>>() {
            let new = next_id(below);
            changes.add_created(file_name(new));
            let write = (!self.dry_run).then_some(new);
            let mut judge =
                |key: &[u8], trailer, stored: &[u8]| rescue.judge(&live, key, trailer, stored);
            let remains = salvager.salvage(&live.entry, id, form, write, &mut judge)?;
            self.report.lost.extend(remains.lost_of(&live, &keyspace.name));
            if self.dry_run {
                continue;
            }
            keyspace.tables.remove(&live.entry.id);
            if let Some(replacement) = remains.replacement(&live) {
                keyspace.tables.insert(replacement.entry.id, Arc::new(replacement));
            }
            replaced.push(file_name(live.entry.id));
        }
        Ok(replaced)
    }

    /// Reports a value file, damaged as `error` says, and its lost values.
    fn report_values(&mut self, rescue: Rescue<'_>, keyspace: &str, error: Error) {
        let file = values_file_name(rescue.file);
        let versions = rescue.copied;
        let new = rescue.new.filter(|_| versions > 0);
        self.report.lost.extend(rescue.lost.into_iter().map(|(key, pointer)| LostRange {
            file: file.clone(),
            pages: Some((pointer.page, pointer.pages)),
            keyspace: Some(keyspace.to_owned()),
            keys: Some((key.clone(), key)),
            what: Lost::Versions,
        }));
        self.report.repaired.push(RepairedFile {
            file,
            keyspace: Some(keyspace.to_owned()),
            error,
            new_file: new.map(values_file_name),
            versions,
        });
    }
}

/// Refuses the damaged value file `file` if a cold table points into it: that would have to be rewritten.
fn refuse_cold(keyspace: &KeyspaceEntry, file: TableId, error: &Error) -> Result<()> {
    let mut tables = keyspace.tables.values();
    match tables.find(|live| live.cold.is_some() && live.entry.points_into(file)) {
        None => Ok(()),
        Some(live) => Err(Error::invalid("repair of a value file")
            .at(values_file_name(file))
            .expected("tables in the store's directory alone that point into it; restore a backup")
            .got(format_args!("the cold table {}", file_name(live.entry.id)))
            .caused_by(error.clone())),
    }
}

impl Salvager {
    /// Reads the whole value file, and returns its first damage.
    ///
    /// # Errors
    /// `Retry` without memory, `Invalid` if a newer version wrote it.
    fn examine_values(&self, entry: &ValuesEntry) -> Result<Option<Error>> {
        let examine = || {
            // A length of 0 means that the entry is not known.
            let bytes = Some(entry.file_bytes).filter(|bytes| *bytes > 0);
            let values = Values::open(&*self.medium, self.store, entry.id, bytes, &self.account)?;
            let digest = values.footer().digest;
            if digest != entry.digest {
                return Err(Error::corrupt("digest of a value file")
                    .at(values_file_name(entry.id))
                    .expected(format_args!("{:016x}", entry.digest))
                    .got(format_args!("{digest:016x}")));
            }
            let found = values.verify(&mut |_| ())?.listed.into_iter().next();
            Ok(found.map(|damage| {
                let page = format_args!("page {}", damage.page);
                damage.error.at(page).at(values_file_name(entry.id))
            }))
        };
        match examine() {
            Err(error) if error.is_retryable() => Err(error),
            Err(error) if self.is_newer(&error, &values_file_name(entry.id))? => Err(error),
            Err(error) => Ok(Some(error)),
            examined => examined,
        }
    }
}

/// Copies the readable values of a damaged value file.
struct Rescue<'a> {
    salvager: &'a Salvager,
    keyspace: KeyspaceId,
    file: TableId,
    /// The damaged file; `None` if it is missing.
    from: Option<Arc<Values>>,
    /// The id of the new file; `None` in a dry run.
    new: Option<TableId>,
    /// The writer of the new file, once it has a value.
    writer: Option<ValuesWriter>,
    /// Number of values that the new file has, or would have.
    copied: u64,
    /// Keys and pointers of the values that could not be read.
    lost: Vec<(Vec<u8>, Pointer)>,
}

impl<'a> Rescue<'a> {
    fn new(
        salvager: &'a Salvager,
        keyspace: KeyspaceId,
        file: TableId,
        new: Option<TableId>,
    ) -> Result<Self> {
        let from = match Values::open_damaged(
            &*salvager.medium,
            salvager.store,
            file,
            &salvager.account,
        ) {
            Ok(values) => Some(values),
            Err(error) if error.is_retryable() => return Err(error),
            Err(_) => None,
        };
        Ok(Self { salvager, keyspace, file, from, new, writer: None, copied: 0, lost: Vec::new() })
    }

    /// Decides about a version of `table`, and copies its value.
    fn judge(
        &mut self,
        table: &LiveTable,
        key: &[u8],
        trailer: Trailer,
        stored: &[u8],
    ) -> Result<Verdict> {
        if trailer.kind()? != EntryKind::PutPointer {
            return Ok(Verdict::Keep);
        }
        let pointer = Pointer::decode(stored)?;
        if pointer.file != self.file {
            return Ok(Verdict::Keep);
        }
        // A merge has cut this key out of the table: it is not read any more.
        if !table.pieces.iter().any(|piece| piece.range.holds(key)) {
            return Ok(Verdict::Drop);
        }
        let read = self.from.as_ref().map(|values| values.value(key, pointer, Purpose::Scrub));
        match (&self.from, read) {
            (Some(from), Some(Ok(_))) => {
                self.copied += 1;
                let Some(new) = self.new else { return Ok(Verdict::Keep) };
                let writer = match &mut self.writer {
                    Some(writer) => writer,
                    none => none.insert(self.salvager.values_writer(new, self.keyspace)?),
                };
                writer.copy(from, key, pointer).map(Verdict::Moved)
            }
            (_, Some(Err(error))) if error.is_retryable() => Err(error),
            _ => {
                self.lost.push((key.to_vec(), pointer));
                Ok(Verdict::Drop)
            }
        }
    }

    /// Completes the new file.
    fn end(&mut self) -> Result<()> {
        self.writer.take().map(ValuesWriter::finish).transpose().map(drop)
    }
}

impl Salvager {
    fn values_writer(&self, file: TableId, keyspace: KeyspaceId) -> Result<ValuesWriter> {
        let (store, purpose) = (self.store, Purpose::Scrub);
        // Copied values stay compressed as they are.
        let spec = ValuesSpec {
            store,
            file,
            keyspace,
            codec: Codec::None,
            level: 0,
            purpose,
            leave: table::Leave::Nothing,
        };
        ValuesWriter::create(&self.medium, spec, &self.account)
    }
}
