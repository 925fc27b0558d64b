//! The value file walk of a check: value files that the manifest names, or all that exist if the manifest is
//! lost.

use base::limits::PAGE_BYTES;
use base::{Error, Problem, Result, StoreId, TableId};
use manifest::{LiveValues, ManifestState};
use table::{ValueDamage, Values, ValuesFooter, parse_values_file_name, values_file_name};

use super::Walk;

impl Walk<'_> {
    /// Checks the value files.
    pub(super) fn values(&mut self, state: Option<&ManifestState>) -> Result<()> {
        let (Some(state), Some(store)) = (state, self.report.store) else {
            return self.values_without_manifest();
        };
        for (&keyspace_id, keyspace) in &state.keyspaces {
            for live in keyspace.values.values() {
                let (LiveValues { entry, .. }, damages) = (live, self.report.damages);
                let name = values_file_name(entry.id);
                let owner = Some(&*keyspace.name);
                if self.listed(&name).is_none() {
                    let error = Error::corrupt("value file").expected("its file").got("none");
                    self.note_values(owner, &name, None, error);
                    self.lost_of_values(&keyspace.name, live, None);
                    continue;
                }
                let expected = entry.footer(store, keyspace_id);
                let listed = self.report.problems.len();
                self.value_file(store, entry.id, owner, Some(expected))?;
                if self.report.damages > damages {
                    let of_file = self.report.problems.get(listed..).unwrap_or_default().iter();
                    let found: Vec<_> = of_file
                        .filter_map(|it| {
                            Some((it.pages?, it.keys.as_ref().map(|(key, _)| key.clone())))
                        })
                        .collect();
                    let unlisted = self.report.damages - damages > found.len() as u64;
                    for ((page, pages), key) in found {
                        self.lost_of_values(&keyspace.name, live, Some((page, pages, key)));
                    }
                    if unlisted {
                        self.report.lost.add_unknown();
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks each value file under the identity that its footer claims.
    fn values_without_manifest(&mut self) -> Result<()> {
        let names: Vec<_> = self.files.iter().map(|file| file.name.clone()).collect();
        for name in names {
            let Some(id) = parse_values_file_name(&name) else { continue };
            match Values::store_of(&**self.medium, id) {
                Ok(store) => self.value_file(store, id, None, None)?,
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => self.note_values(None, &name, None, error),
            }
        }
        Ok(())
    }

    /// Adds a problem of a value file; `damage`: first page, number of pages, and key.
    fn note_values(
        &mut self,
        keyspace: Option<&str>,
        name: &str,
        damage: Option<(u32, u32, Option<Vec<u8>>)>,
        error: Error,
    ) {
        let (pages, keys) = match damage {
            Some((page, pages, key)) => (Some((page, pages)), key.map(|key| (key.clone(), key))),
            None => (None, None),
        };
        let mut problem = Problem::of(name, error).on_pages(pages).of_keys(keys);
        problem.keyspace = keyspace.map(str::to_owned);
        self.report.note(problem);
    }

    /// Checks one value file, which exists.
    fn value_file(
        &mut self,
        store: StoreId,
        id: TableId,
        keyspace: Option<&str>,
        expected: Option<ValuesFooter>,
    ) -> Result<()> {
        let name = values_file_name(id);
        self.report.files += 1;
        let size = self.listed(&name).map_or(0, |file| file.len);
        let digest = expected.map(|footer| footer.digest);
        let medium = &**self.medium;
        let opened = match expected {
            // The manifest entry stands in for the footer, so that a damaged footer is reported with the
            // other pages.
            Some(known) => Values::open_known(medium, known, &self.account),
            None => Values::open(medium, store, id, None, &self.account),
        };
        match opened {
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => self.note_values(keyspace, &name, None, error),
            Ok(values) => {
                let found = values.footer().digest;
                if digest.is_some_and(|digest| digest != found) {
                    let error = Error::corrupt("digest of a value file");
                    self.note_values(
                        keyspace,
                        &name,
                        None,
                        error.got(format_args!("{found:016x}")),
                    );
                }
                let (done, total) = (self.done, self.total);
                let (progress, mut pages_done) = (&mut *self.progress, 0);
                let found = values.verify(&mut |pages| {
                    pages_done += u64::from(pages);
                    progress((done + pages_done * PAGE_BYTES as u64).min(total), total);
                })?;
                self.report.pages += u64::from(found.pages);
                self.report.values += found.values;
                self.report.damages += found.damages - found.listed.len() as u64;
                for ValueDamage { page, pages, key, error } in found.listed {
                    self.note_values(keyspace, &name, Some((page, pages, key)), error);
                }
            }
        }
        self.walked(size);
        Ok(())
    }
}
