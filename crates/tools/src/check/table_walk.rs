//! The table walk of a check: tables and dictionaries that the manifest names, or all that exist if the
//! manifest is lost.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{DictionaryId, Error, KeyForm, Problem, Result, Seqno, StoreId, TableId};
use manifest::{KeyspaceEntry, ManifestState, TableEntry, range_of};
use media::Listing;
use table::{
    Damage, Dictionaries, Dictionary, Fact, Properties, StoreDictionaries, Table, describe,
    file_name, parse_file_name,
};

use super::Walk;

/// The keyspace and manifest entry of a table.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) keyspace: &'a str,
    pub(super) form: KeyForm,
    pub(super) entry: &'a TableEntry,
}

impl<'a> Owner<'a> {
    pub(super) fn of(keyspace: &'a KeyspaceEntry, entry: &'a TableEntry) -> Self {
        Self { keyspace: &keyspace.name, form: keyspace.kind.key_form(), entry }
    }

    pub(super) fn problem(self, error: Error) -> Problem {
        let problem = Problem::of(&file_name(self.entry.id), error).in_keyspace(self.keyspace);
        problem.of_keys(Some(self.entry.range.shown()))
    }
}

impl Walk<'_> {
    /// Checks the tables and dictionaries.
    pub(super) fn tables(&mut self, state: Option<&ManifestState>) -> Result<()> {
        let (Some(state), Some(store)) = (state, self.report.store) else {
            return self.tables_without_manifest();
        };
        let dictionaries = self.dictionaries(store);
        for (keyspace_id, keyspace) in &state.keyspaces {
            for id in &keyspace.dictionaries {
                self.dictionary(&*dictionaries, &keyspace.name, *id)?;
            }
            for (entry, error) in unflushed(keyspace) {
                self.report.note(Owner::of(keyspace, entry).problem(error));
            }
            self.order(store, keyspace, &dictionaries)?;
            for live in keyspace.tables.values() {
                let (entry, damages) = (&*live.entry, self.report.damages);
                let owner = Owner::of(keyspace, entry);
                if live.cold.is_some() {
                    self.report.cold_tables += 1;
                    continue;
                }
                if self.listed(&file_name(entry.id)).is_none() {
                    let error = Error::corrupt("table").expected("its file").got("none");
                    self.report.note(owner.problem(error));
                } else {
                    self.table(store, entry.id, Some(owner), &dictionaries)?;
                }
                if self.report.damages > damages {
                    self.lost_of_table(store, (*keyspace_id, keyspace), live, &dictionaries)?;
                }
            }
        }
        Ok(())
    }

    /// The listing of the file `name`. The listings are sorted by name.
    pub(super) fn listed(&self, name: &str) -> Option<&Listing> {
        let at = self.files.binary_search_by(|file| file.name.as_str().cmp(name));
        at.ok().and_then(|at| self.files.get(at))
    }

    fn size_of(&self, name: &str) -> u64 {
        self.listed(name).map_or(0, |file| file.len)
    }

    fn dictionaries(&self, store: StoreId) -> Arc<StoreDictionaries> {
        let medium = Arc::clone(self.medium);
        Arc::new(StoreDictionaries::new(medium, store, self.account.clone()))
    }

    /// Checks a dictionary that `keyspace` uses. Without it, the blocks that name it are lost.
    fn dictionary(
        &mut self,
        dictionaries: &dyn Dictionaries,
        keyspace: &str,
        id: DictionaryId,
    ) -> Result<()> {
        let name = Dictionary::file_name(id);
        let read = if self.listed(&name).is_some() {
            self.report.files += 1;
            self.report.dictionaries += 1;
            dictionaries.get(id).map(drop)
        } else {
            Err(Error::corrupt("dictionary").expected("its file").got("none"))
        };
        match read {
            Ok(()) => {}
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                self.report.note(Problem::of(&name, error).in_keyspace(keyspace));
            }
        }
        self.walked(self.size_of(&name));
        Ok(())
    }

    /// Checks each table under the identity that it claims.
    fn tables_without_manifest(&mut self) -> Result<()> {
        // Which keys the tables should have, only the manifest says.
        self.report.lost.add_unknown();
        let names: Vec<_> = self.files.iter().map(|file| file.name.clone()).collect();
        for name in names {
            let Some(table) = parse_file_name(&name) else { continue };
            let mut footer = None;
            let described = describe(&**self.medium, &name, &self.account, false, &mut |fact| {
                if let Fact::Footer(found) = fact {
                    footer = Some(*found);
                }
            });
            match (described, footer) {
                (_, Some(footer)) => {
                    let dictionaries = self.dictionaries(footer.store);
                    self.table(footer.store, table, None, &dictionaries)?;
                }
                (Err(error), None) if error.is_retryable() => return Err(error),
                (Err(error), None) => self.report.note(Problem::of(&name, error)),
                // A description that succeeds begins with the footer.
                (Ok(()), None) => {}
            }
        }
        Ok(())
    }

    /// Checks one table. Its file exists.
    fn table(
        &mut self,
        store: StoreId,
        id: TableId,
        owner: Option<Owner<'_>>,
        dictionaries: &Arc<StoreDictionaries>,
    ) -> Result<()> {
        let name = file_name(id);
        let of = |error| match owner {
            Some(owner) => owner.problem(error),
            None => Problem::of(&name, error),
        };
        self.report.files += 1;
        self.report.tables += 1;
        let size = self.size_of(&name);
        let expected = owner.map(|owner| owner.entry.file_bytes);
        let seqno = owner.and_then(|owner| owner.entry.seqno);
        let account = self.account.clone();
        let dictionaries = Arc::clone(dictionaries) as Arc<dyn Dictionaries>;
        match Table::open(&**self.medium, store, id, expected, seqno, dictionaries, &account) {
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => self.report.note(of(error)),
            Ok(table) => {
                if let Some(owner) = owner {
                    for error in contradictions(owner, table.properties()) {
                        self.report.note(of(error));
                    }
                }
                let (done, total) = (self.done, self.total);
                let progress = &mut *self.progress;
                let found = table.check(&account, &mut |pages, _| {
                    progress((done + pages * PAGE_BYTES as u64).min(total), total);
                })?;
                self.report.pages += u64::from(found.pages);
                self.report.entries += found.entries;
                self.report.damages += found.damages - found.listed.len() as u64;
                for Damage { page, pages, keys, error } in found.listed {
                    let mut problem = Problem::of(&name, error).on_pages(Some((page, pages)));
                    problem.keyspace = owner.map(|owner| owner.keyspace.to_owned());
                    self.report.note(problem.of_keys(keys));
                }
            }
        }
        self.walked(size);
        Ok(())
    }
}

/// Differences between a table's properties and its manifest entry.
fn contradictions(owner: Owner<'_>, properties: &Properties) -> Vec<Error> {
    let Owner { entry, form, .. } = owner;
    let mut errors = Vec::new();
    if properties.key_form() != form {
        errors.push(Error::corrupt("hash key of a table").expected("that of its keyspace"));
    }
    let mut compare = |property: &'static str, expected: String, got: String| {
        if expected != got {
            errors.push(Error::corrupt(property).expected(expected).got(got));
        }
    };
    let range = |min: Seqno, max: Seqno| format!("{min}..={max}");
    let number = |number: u64| number.to_string();
    compare("entries of a table", number(entry.entries), number(properties.entries));
    // The entries of an ingested table are stored without sequence numbers.
    let numbers = entry.seqno.map_or((entry.seqno_min, entry.seqno_max), |_| Default::default());
    compare(
        "sequence numbers of a table",
        range(numbers.0, numbers.1),
        range(properties.seqno_min, properties.seqno_max),
    );
    if !range_of(properties).covers(&entry.range) {
        compare("keys of a table", entry.range.to_string(), range_of(properties).to_string());
    }
    errors
}

/// The tables of `keyspace` with writes at or above the flushed bound. A window's tables may have some that
/// were never logged: recovery does not replay them.
fn unflushed(keyspace: &KeyspaceEntry) -> impl Iterator<Item = (&TableEntry, Error)> {
    let tables = keyspace.tables.values().map(|table| &*table.entry);
    let bad = tables.filter(|entry| {
        !keyspace.kind.is_window()
            && entry.seqno_max >= keyspace.flushed_below
            && entry.seqno_max > keyspace.ingested
    });
    bad.map(|entry| {
        let error = Error::corrupt("sequence numbers of a table")
            .expected(format_args!("below {}, the flushed bound", keyspace.flushed_below));
        (entry, error.got(entry.seqno_max))
    })
}
