//! Tables: which are damaged, and what is left of those.

use std::sync::Arc;

use base::{
    Account, Codec, EntryKind, Error, ErrorKind, KeyspaceId, Result, Seqno, StoreId, TableId,
    Trailer,
};
use bytes::Bytes;
use compact::RetainedVersion;
use media::{Medium, Purpose};
use table::{
    Dictionaries, FILTER_BITS_DEFAULT, LostKeys, Pointer, RangeDeletesFound, Salvaged, Spec,
    Summary, Table, Writer, file_name, salvage,
};

use super::{Lost, LostRange};
use base::KeyRange;
use manifest::{LivePiece, LiveTable, TableEntry};

/// What tables are read and written with.
pub(super) struct Shop {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) store: StoreId,
    pub(super) dictionaries: Arc<dyn Dictionaries>,
    pub(super) account: Account,
}

/// What becomes of a version that was read.
pub(super) enum Fate {
    /// It is kept as it is.
    Keep,
    /// It is a pointer: its value lies elsewhere now.
    Moved(Pointer),
    /// It goes.
    Drop,
}

/// Says what becomes of a version: of its key, trailer and stored value.
pub(super) type Judge<'a> = dyn FnMut(&[u8], Trailer, &[u8]) -> Result<Fate> + 'a;

/// What hides the versions of a key that are to come: so that the new table tells, as one of a merge does,
/// what of it is garbage. Range deletes come after all versions and are not looked for.
#[derive(Default)]
struct Hiding {
    key: Vec<u8>,
    /// The last version of the key, where it says all by itself.
    by: Option<Seqno>,
}

impl Hiding {
    /// Passes the next version; the number of what supersedes it.
    fn pass(&mut self, key: &[u8], trailer: Trailer) -> Result<Option<Seqno>> {
        if *key != *self.key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.by = None;
        }
        let by = self.by.filter(|by| *by > trailer.seqno());
        if trailer.kind()? != EntryKind::Merge {
            self.by = Some(trailer.seqno());
        }
        Ok(by)
    }
}

/// What is left of a damaged table.
pub(super) struct Remains {
    pub(super) versions: u64,
    /// The table that holds it, if it was written and is not empty.
    pub(super) summary: Option<Summary>,
    lost: Vec<LostKeys>,
    ranges: RangeDeletesFound,
}

impl Shop {
    /// Whether `error`, of opening the file `name`, is no damage: a newer build wrote it.
    pub(super) fn is_newer(&self, error: &Error, name: &str) -> Result<bool> {
        // What is not there is invalid, too.
        Ok(error.kind() == ErrorKind::Invalid
            && self.medium.list()?.iter().any(|file| file.name == name))
    }

    /// What is wrong with a table, the first of it.
    ///
    /// # Errors
    /// `Retry` where memory is short, `Invalid` where a newer build wrote it.
    pub(super) fn examine(&self, entry: &TableEntry) -> Result<Option<Error>> {
        let dictionaries = Arc::clone(&self.dictionaries);
        let (bytes, account) = (Some(entry.file_bytes), &self.account);
        let opened = Table::open(
            &*self.medium,
            self.store,
            entry.id,
            bytes,
            entry.seqno,
            dictionaries,
            account,
        );
        match opened.and_then(|table| table.check(account, &mut |_, _| {})) {
            Ok(report) => Ok(report.listed.into_iter().next().map(|damage| {
                damage.error.at(format_args!("page {}", damage.page)).at(file_name(entry.id))
            })),
            Err(error) if error.is_retryable() => Err(error),
            Err(error) if self.is_newer(&error, &file_name(entry.id))? => Err(error),
            Err(error) => Ok(Some(error)),
        }
    }

    /// Reads what is left of `table`, and of that what `judge` keeps; into the table `new` of
    /// `keyspace`, where one is given.
    ///
    /// # Errors
    /// `Retry` where memory is short, and the device's where it cannot be written.
    pub(super) fn salvage(
        &self,
        table: &TableEntry,
        keyspace: KeyspaceId,
        codec: Codec,
        new: Option<TableId>,
        judge: &mut Judge<'_>,
    ) -> Result<Remains> {
        let mut lost = Vec::new();
        let mut writer = None;
        let mut hiding = Hiding::default();
        let mut add = |found: Salvaged<'_>| {
            let fate = match found {
                Salvaged::Lost(keys) => {
                    lost.push(keys);
                    return Ok(());
                }
                Salvaged::Version { key, trailer, value } => judge(key, trailer, value)?,
                Salvaged::RangeDelete(_) => Fate::Keep,
            };
            let Some(new) = new.filter(|_| !matches!(fate, Fate::Drop)) else { return Ok(()) };
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(self.writer(new, keyspace, codec, table.seqno)?),
            };
            match found {
                Salvaged::Version { key, trailer, value } => {
                    let pointer = match fate {
                        Fate::Moved(pointer) => Some((trailer, pointer)),
                        Fate::Keep | Fate::Drop => None,
                    };
                    let superseded_by = hiding.pass(key, trailer)?;
                    RetainedVersion { key, trailer, value, superseded_by }.add_to(writer, pointer)
                }
                Salvaged::RangeDelete(it) => writer.add_range_delete(it.start, it.end, it.seqnos),
                Salvaged::Lost(_) => Ok(()),
            }
        };
        let (medium, dictionaries) = (&*self.medium, &*self.dictionaries);
        let found = salvage(medium, self.store, table.id, dictionaries, &self.account, &mut add)?;
        let summary = writer.map(Writer::finish).transpose()?;
        Ok(Remains { versions: found.versions, summary, lost, ranges: found.range_deletes })
    }

    /// A writer of what takes the place of a table that was ingested at `ingested`, if it was.
    fn writer(
        &self,
        table: TableId,
        keyspace: KeyspaceId,
        codec: Codec,
        ingested: Option<Seqno>,
    ) -> Result<Writer> {
        // A dictionary may be what is damaged.
        let spec = Spec {
            store: self.store,
            table,
            keyspace,
            codec,
            level: 0,
            dictionary: None,
            filter_bits: FILTER_BITS_DEFAULT,
            purpose: Purpose::Scrub,
        };
        let mut writer = Writer::create(&self.medium, spec, &self.account)?;
        if let Some(seqno) = ingested {
            // Its place, should the manifest be lost.
            writer.written_after(seqno.before());
        }
        Ok(writer)
    }
}

impl Remains {
    /// What of `old` it lost, by the keys that count.
    pub(super) fn lost_of(&self, old: &LiveTable, keyspace: &str) -> Vec<LostRange> {
        let entry = &old.entry;
        let file = file_name(entry.id);
        let in_pieces = |range: &KeyRange, pages, what| {
            let cut = old.pieces.iter().map(|piece| piece.range.intersection(range));
            let lost = |range: KeyRange| LostRange {
                file: file.clone(),
                pages,
                keyspace: Some(keyspace.to_owned()),
                keys: Some(range.shown()),
                what,
            };
            cut.filter(|range| !range.is_empty()).map(lost).collect::<Vec<_>>()
        };
        let mut lost = Vec::new();
        for LostKeys { pages, after, before, .. } in &self.lost {
            let first = after.as_ref().map_or_else(|| entry.range.first.clone(), |it| copy(it));
            let end = match before {
                Some(before) => KeyRange::through(before, before).end,
                None => entry.range.end.clone(),
            };
            let pages = Some((pages.start, pages.end - pages.start));
            lost.extend(in_pieces(&KeyRange { first, end }, pages, Lost::Versions));
        }
        let had_ranges = match self.ranges {
            RangeDeletesFound::All => false,
            RangeDeletesFound::Lost => true,
            RangeDeletesFound::Unknown => entry.range_deletes > 0,
        };
        if had_ranges {
            lost.extend(in_pieces(&entry.range, None, Lost::RangeDeletes));
        }
        lost
    }

    /// What takes the place of `old`; none where nothing of it counts.
    pub(super) fn replacement(&self, old: &LiveTable) -> Option<LiveTable> {
        let summary = self.summary.as_ref()?;
        let was = &old.entry;
        let mut entry = TableEntry::of(summary, was.run, was.level);
        if was.seqno.is_some() {
            (entry.seqno, entry.seqno_min, entry.seqno_max) =
                (was.seqno, was.seqno_min, was.seqno_max);
        }
        let left = old.pieces.iter().map(|piece| {
            let range = piece.range.intersection(&entry.range);
            LivePiece { range, ..piece.clone() }
        });
        let pieces: Vec<_> = left.filter(|piece| !piece.range.is_empty()).collect();
        let entry = Arc::new(entry);
        (!pieces.is_empty()).then_some(LiveTable { entry, pieces, damaged: false })
    }
}

fn copy(key: &[u8]) -> Bytes {
    Bytes::copy_from_slice(key)
}
