//! Repair of tables: examines them, and salvages the damaged ones.

use std::sync::Arc;

use base::{
    Account, Codec, EntryKind, Error, ErrorKind, KeyForm, KeyRange, KeyspaceId, Result, Seqno,
    StoreId, TableId, Trailer,
};
use bytes::Bytes;
use compact::RetainedVersion;
use manifest::{LivePiece, LiveTable, TableEntry};
use media::{Medium, Purpose};
use table::{
    Dictionaries, FILTER_BITS_DEFAULT, Layout, LostKeys, Pointer, RangeDeletesFound, Salvaged,
    Spec, Summary, Table, Writer, file_name, salvage,
};

use super::{Lost, LostRange};

/// Reads damaged files of one store and writes their replacements.
pub(crate) struct Salvager {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) store: StoreId,
    pub(crate) dictionaries: Arc<dyn Dictionaries>,
    pub(crate) account: Account,
}

/// Decision about a salvaged version.
pub(crate) enum Verdict {
    /// The version is kept unchanged.
    Keep,
    /// The version is a pointer, and its value was copied to this place.
    Moved(Pointer),
    /// The version is dropped.
    Drop,
}

/// Decides about a version, given its key, trailer and stored value.
pub(crate) type Judge<'a> = dyn FnMut(&[u8], Trailer, &[u8]) -> Result<Verdict> + 'a;

/// Tracks which version supersedes the following versions of its key, so that the new table counts garbage as
/// the output of a merge does. Range deletes come after all versions and are not considered.
#[derive(Default)]
struct Superseding {
    key: Vec<u8>,
    /// The sequence number of the key's last version, unless that is a merge operand.
    by: Option<Seqno>,
}

impl Superseding {
    /// Adds the next version. Returns the sequence number of the version that supersedes it.
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

/// The readable content of a damaged table.
pub(crate) struct Remains {
    /// Number of versions that could be read.
    pub(crate) versions: u64,
    /// The replacement table, if it was written and is not empty.
    summary: Option<Summary>,
    lost: Vec<LostKeys>,
    ranges: RangeDeletesFound,
}

impl Salvager {
    /// Whether `error`, from opening the file `name`, means that a newer version wrote the file or that this
    /// user may not read it, and is not damage.
    pub(super) fn is_newer(&self, error: &Error, name: &str) -> Result<bool> {
        // Opening a missing file gives `Invalid` too.
        Ok(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::PermissionDenied)
            && self.medium.list()?.iter().any(|file| file.name == name))
    }

    /// Reads the whole table, and returns its first damage.
    ///
    /// # Errors
    /// `Retry` without memory, `Invalid` if a newer version wrote it.
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

    /// Reads the versions of `table` that can be read. Those that `judge` keeps are written to the table
    /// `new` of `keyspace`, if one is given.
    ///
    /// # Errors
    /// `Retry` without memory, and the device's when the new table is written.
    pub(crate) fn salvage(
        &self,
        table: &TableEntry,
        keyspace: KeyspaceId,
        form: KeyForm,
        new: Option<TableId>,
        judge: &mut Judge<'_>,
    ) -> Result<Remains> {
        let mut lost = Vec::new();
        let mut writer = None;
        let mut superseding = Superseding::default();
        let mut add = |found: Salvaged<'_>| {
            let fate = match found {
                Salvaged::Lost(keys) => {
                    lost.push(keys);
                    return Ok(());
                }
                Salvaged::Version { key, trailer, value } => judge(key, trailer, value)?,
                Salvaged::RangeDelete(_) => Verdict::Keep,
            };
            let Some(new) = new.filter(|_| !matches!(fate, Verdict::Drop)) else { return Ok(()) };
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(self.writer(new, keyspace, form, table)?),
            };
            match found {
                Salvaged::Version { key, trailer, value } => {
                    let pointer = match fate {
                        Verdict::Moved(pointer) => Some((trailer, pointer)),
                        Verdict::Keep | Verdict::Drop => None,
                    };
                    let superseded_by = superseding.pass(key, trailer)?;
                    RetainedVersion { key, trailer, value, superseded_by }.add_to(writer, pointer)
                }
                Salvaged::RangeDelete(it) => writer.add_range_delete(it.start, it.end, it.seqnos),
                Salvaged::Lost(_) => Ok(()),
            }
        };
        let (medium, dictionaries, account) = (&*self.medium, &*self.dictionaries, &self.account);
        let hash_key = match form {
            KeyForm::Plain => None,
            KeyForm::Hashed(hash_key) => Some(hash_key),
        };
        let found =
            salvage(medium, self.store, table.id, dictionaries, hash_key, account, &mut add)?;
        let summary = writer.map(Writer::finish).transpose()?;
        Ok(Remains { versions: found.versions, summary, lost, ranges: found.range_deletes })
    }

    /// Creates the writer of the table `new`, a replacement of `old`.
    fn writer(
        &self,
        new: TableId,
        keyspace: KeyspaceId,
        form: KeyForm,
        old: &TableEntry,
    ) -> Result<Writer> {
        let layout = match form {
            KeyForm::Plain => Layout::Sorted,
            KeyForm::Hashed(_) => {
                Layout::bins(old.file_bytes, &old.range.first, old.range.end.as_deref())
            }
        };
        // Without a dictionary, because that may be damaged.
        let spec = Spec {
            store: self.store,
            table: new,
            keyspace,
            codec: Codec::Lz4,
            level: 0,
            dictionary: None,
            filter_bits: FILTER_BITS_DEFAULT,
            layout,
            purpose: Purpose::Scrub,
            leave: table::Leave::Nothing,
        };
        let mut writer = Writer::create(&self.medium, spec, &self.account)?;
        writer.keys_are(&form);
        if let Some(seqno) = old.seqno {
            // Gives the table's place by age, in case the manifest is lost later.
            writer.written_after(seqno.before());
        }
        Ok(writer)
    }
}

impl Remains {
    /// The keys of the valid pieces of `old` that are lost.
    pub(crate) fn lost_of(&self, old: &LiveTable, keyspace: &str) -> Vec<LostRange> {
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

    /// The replacement of `old`; `None` if no valid key is left.
    pub(super) fn replacement(&self, old: &LiveTable) -> Option<LiveTable> {
        let summary = self.summary.as_ref()?;
        let was = &old.entry;
        let mut entry = TableEntry::of(summary, was.run, was.level);
        if was.seqno.is_some() {
            (entry.seqno, entry.seqno_min, entry.seqno_max) =
                (was.seqno, was.seqno_min, was.seqno_max);
        }
        let rest = old.pieces.iter().map(|piece| {
            let range = piece.range.intersection(&entry.range);
            LivePiece { range, ..piece.clone() }
        });
        let pieces: Vec<_> = rest.filter(|piece| !piece.range.is_empty()).collect();
        let entry = Arc::new(entry);
        (!pieces.is_empty()).then_some(LiveTable { entry, pieces, damaged: false, cold: None })
    }
}

fn copy(key: &[u8]) -> Bytes {
    Bytes::copy_from_slice(key)
}
