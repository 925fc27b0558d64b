//! Value files: which are damaged, and what is left of those.
//!
//! Of a damaged one every value that verifies (I8) and that a table points at is copied to a new file. The
//! tables that point into it are written anew: their pointers lead to the copies, and what is lost is
//! in none of them, so that older versions of its keys are read again where there are any.
//!
//! One value is in memory at a time.

use std::sync::Arc;

use base::{Codec, EntryKind, Error, KeyspaceId, Result, TableId, Trailer};
use media::Purpose;
use table::{Pointer, Values, ValuesSpec, ValuesWriter, file_name, values_file_name};

use super::changes::Changes;
use super::tables::{Fate, Shop};
use super::{Lost, LostRange, Repair, RepairedFile, next_id};
use manifest::{LiveTable, ManifestState, ValuesEntry};

impl Repair<'_> {
    /// Examines every value file, and puts what is left in the place of those that are damaged; their
    /// files, and those of the tables that were written anew.
    pub(super) fn values(
        &mut self,
        shop: &Shop,
        state: &mut ManifestState,
        changes: &mut Changes,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<String>> {
        let mut replaced = Vec::new();
        for (id, keyspace) in &mut state.keyspaces {
            let keyspace = Arc::make_mut(keyspace);
            for values in keyspace.values.values().map(|live| live.entry).collect::<Vec<_>>() {
                let error = shop.examine_values(&values)?;
                self.report.value_files += 1;
                self.report.bytes += values.file_bytes;
                progress(self.report.bytes);
                let Some(error) = error else { continue };
                let new = next_id(&mut state.tables_below);
                changes.made(values_file_name(new));
                let mut rescue = Rescue::new(shop, *id, values.id, (!self.dry_run).then_some(new))?;
                let tables =
                    keyspace.tables.values().filter(|live| live.entry.points_into(values.id));
                for live in tables.cloned().collect::<Vec<_>>() {
                    let table = live.entry.id;
                    let anew = next_id(&mut state.tables_below);
                    changes.made(file_name(anew));
                    let write = (!self.dry_run).then_some(anew);
                    let mut judge = |key: &[u8], trailer, stored: &[u8]| {
                        rescue.judge(&live, key, trailer, stored)
                    };
                    let remains = shop.salvage(&live.entry, *id, Codec::Lz4, write, &mut judge)?;
                    self.report.lost.extend(remains.lost_of(&live, &keyspace.name));
                    if self.dry_run {
                        continue;
                    }
                    keyspace.tables.remove(&table);
                    if let Some(replacement) = remains.replacement(&live) {
                        keyspace.tables.insert(replacement.entry.id, Arc::new(replacement));
                    }
                    replaced.push(file_name(table));
                }
                let file = values_file_name(values.id);
                rescue.end()?;
                let versions = rescue.copied;
                self.report.lost.extend(rescue.lost.into_iter().map(|(key, pointer)| LostRange {
                    file: file.clone(),
                    pages: Some((pointer.page, pointer.pages)),
                    keyspace: Some(keyspace.name.clone()),
                    keys: Some((key.clone(), key)),
                    what: Lost::Versions,
                }));
                self.report.repaired.push(RepairedFile {
                    file: file.clone(),
                    keyspace: Some(keyspace.name.clone()),
                    error,
                    new_file: (versions > 0 && !self.dry_run).then(|| values_file_name(new)),
                    versions,
                });
                replaced.push(file);
            }
        }
        Ok(replaced)
    }
}

impl Shop {
    /// What is wrong with a value file, the first of it.
    ///
    /// # Errors
    /// `Retry` where memory is short, `Invalid` where a newer build wrote it.
    fn examine_values(&self, entry: &ValuesEntry) -> Result<Option<Error>> {
        let examine = || {
            // None is so short: of what could not be read nothing is known.
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

/// The copying of what is left of a value file.
struct Rescue<'a> {
    shop: &'a Shop,
    keyspace: KeyspaceId,
    file: TableId,
    /// None where the file is not there.
    from: Option<Arc<Values>>,
    /// The new file's id, where one is to be written, and its writer, once there was a value.
    new: Option<TableId>,
    writer: Option<ValuesWriter>,
    /// How many values the new file has, or would have.
    copied: u64,
    lost: Vec<(Vec<u8>, Pointer)>,
}

impl<'a> Rescue<'a> {
    fn new(
        shop: &'a Shop,
        keyspace: KeyspaceId,
        file: TableId,
        new: Option<TableId>,
    ) -> Result<Self> {
        let from = match Values::open_damaged(&*shop.medium, shop.store, file, &shop.account) {
            Ok(values) => Some(values),
            Err(error) if error.is_retryable() => return Err(error),
            Err(_) => None,
        };
        let (writer, copied, lost) = Default::default();
        Ok(Self { shop, keyspace, file, from, new, writer, copied, lost })
    }

    /// What becomes of a version of `table`.
    fn judge(
        &mut self,
        table: &LiveTable,
        key: &[u8],
        trailer: Trailer,
        stored: &[u8],
    ) -> Result<Fate> {
        if trailer.kind()? != EntryKind::PutPointer {
            return Ok(Fate::Keep);
        }
        let pointer = Pointer::decode(stored)?;
        if pointer.file != self.file {
            return Ok(Fate::Keep);
        }
        // What a merge took from the table is not read any more.
        if !table.pieces.iter().any(|piece| piece.range.holds(key)) {
            return Ok(Fate::Drop);
        }
        let read = self.from.as_ref().map(|values| values.value(key, pointer, Purpose::Scrub));
        match (&self.from, read) {
            (Some(from), Some(Ok(_))) => {
                self.copied += 1;
                let Some(new) = self.new else { return Ok(Fate::Keep) };
                let writer = match &mut self.writer {
                    Some(writer) => writer,
                    none => none.insert(self.shop.values_writer(new, self.keyspace)?),
                };
                writer.copy(from, key, pointer).map(Fate::Moved)
            }
            (_, Some(Err(error))) if error.is_retryable() => Err(error),
            _ => {
                self.lost.push((key.to_vec(), pointer));
                Ok(Fate::Drop)
            }
        }
    }

    /// Ends the new file.
    fn end(&mut self) -> Result<()> {
        self.writer.take().map(ValuesWriter::finish).transpose().map(drop)
    }
}

impl Shop {
    fn values_writer(&self, file: TableId, keyspace: KeyspaceId) -> Result<ValuesWriter> {
        let (store, purpose) = (self.store, Purpose::Scrub);
        // What is copied stays compressed as it is.
        let spec = ValuesSpec { store, file, keyspace, codec: Codec::None, level: 0, purpose };
        ValuesWriter::create(&self.medium, spec, &self.account)
    }
}
