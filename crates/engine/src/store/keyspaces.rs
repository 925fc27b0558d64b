//! Keyspaces of an open store: found by name, created, dropped.

use std::sync::Arc;

use base::limits::{KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX};
use base::{
    Discard, Error, ErrorKind, HashKey, HashedPolicy, KeyspaceId, Result, Seqno, invariant,
};
use manifest::{Edit, KeyspaceFile, KeyspaceKind, TableOptions};
use tree::{Memtable, Resident, Tree, Version};

use super::Store;
use crate::KeyspaceOptions;

impl Store {
    /// The keyspace called `name`.
    ///
    /// # Errors
    /// `NotFound` if there is none, naming those that exist.
    pub fn keyspace(&self, name: &str) -> Result<Arc<Tree>> {
        self.owner.check()?;
        self.trees.by_name(name).ok_or_else(|| self.unknown_keyspace(name))
    }

    fn unknown_keyspace(&self, name: &str) -> Error {
        /// The most names that the error lists.
        const NAMES_MAX: usize = 16;
        let quoted = |name: &str| format!("`{}`", name.escape_debug());
        let trees = self.trees.all();
        let mut known: Vec<_> = trees.iter().take(NAMES_MAX).map(|it| quoted(it.name())).collect();
        if trees.len() > NAMES_MAX {
            known.push(format!("or {} more", trees.len() - NAMES_MAX));
        }
        let error = Error::not_found("keyspace").got(quoted(name));
        match known.is_empty() {
            true => error.expected("a keyspace that was created; the store has none"),
            false => error.expected(format_args!("one of {}", known.join(", "))),
        }
    }

    /// Creates the keyspace `name` with these options.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one of that name; otherwise as [`Store::open_or_create_keyspace`].
    pub fn create_keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Tree>> {
        self.owner.check()?;
        self.check_options(options)?;
        self.buffers.check_open()?;
        let _keyspaces = self.keyspaces.lock();
        if self.trees.by_name(name).is_some() {
            return Err(Error::already_exists("keyspace").at(format_args!("`{name}`")));
        }
        self.add_keyspace(name, options)
    }

    /// The keyspace called `name`. Creates it with these options if there is none, and adds options that
    /// it does not have yet.
    ///
    /// # Errors
    /// `Invalid` for a name out of bounds, an unknown merge operator, another operator than the keyspace's,
    /// or too many keyspaces. Those of the manifest and the log.
    pub fn open_or_create_keyspace(
        &self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<Arc<Tree>> {
        self.owner.check()?;
        let has_options = |tree: &Tree| {
            let operator = match &options.merge_operator {
                Some(wanted) => tree.view().read_context.operator_name() == Some(wanted),
                None => true,
            };
            operator
                && (options.hashed.is_none() || options.hashed.as_ref() == tree.kind().policy())
                && has_base_filter(tree, options)
                && options.tables.or(tree.table_options()) == tree.table_options()
        };
        if let Some(tree) = self.trees.by_name(name).filter(|tree| has_options(tree)) {
            return Ok(tree);
        }
        self.check_options(options)?;
        self.buffers.check_open()?;
        let _keyspaces = self.keyspaces.lock();
        match self.trees.by_name(name) {
            Some(tree) => self.add_options(&tree, options).map(|()| tree),
            None => self.add_keyspace(name, options),
        }
    }

    /// Refuses options that contradict each other, and a merge operator or a priority that is not registered.
    fn check_options(&self, options: &KeyspaceOptions) -> Result<()> {
        options.check()?;
        if let Some(HashedPolicy::Window { discard: Discard::Priority(name), .. }) = &options.hashed
        {
            self.operators.check_priority(name)?;
        }
        match &options.merge_operator {
            Some(operator) if self.operators.get(operator).is_none() => {
                Err(unknown_operator(operator))
            }
            _ => Ok(()),
        }
    }

    /// Adds the options to an existing keyspace that does not have them yet.
    fn add_options(&self, tree: &Tree, options: &KeyspaceOptions) -> Result<()> {
        if let Some(wanted) = &options.hashed
            && tree.kind().policy() != Some(wanted)
        {
            return Err(Error::invalid("kind of a keyspace")
                .at(format_args!("`{}`", tree.name()))
                .expected(tree.kind())
                .got(format_args!("hashed {wanted}")));
        }
        if !has_base_filter(tree, options) {
            return Err(Error::invalid("base-filter-bits of a keyspace")
                .at(format_args!("`{}`", tree.name()))
                .expected(tree.kind().base_filter_bits())
                .got(options.base_filter_bits.unwrap_or(0)));
        }
        if options.merge_operator.is_some() && tree.kind().policy().is_some() {
            return Err(KeyspaceOptions::operator_of_hashed());
        }
        let tables = options.tables.or(tree.table_options());
        if tables != tree.table_options() {
            if tables.filter_bits.is_some() && tree.kind().policy().is_some() {
                return Err(KeyspaceOptions::filters_of_hashed());
            }
            let keyspace = tree.id();
            self.manifest.append(vec![Edit::KeyspaceTables { keyspace, options: tables }])?;
            tree.set_table_options(tables);
        }
        let Some(wanted) = &options.merge_operator else { return Ok(()) };
        let read_context = Arc::clone(&tree.view().read_context);
        match read_context.operator_name() {
            Some(known) if known == wanted => Ok(()),
            Some(known) => Err(Error::invalid("merge operator of a keyspace")
                .at(format_args!("`{}`", tree.name()))
                .expected(format_args!("`{known}`"))
                .got(format_args!("`{wanted}`"))),
            None => {
                let (keyspace, name) = (tree.id(), wanted.clone());
                self.manifest.append(vec![Edit::KeyspaceOperator { keyspace, name }])?;
                read_context.set_operator(wanted.clone(), self.operators.get(wanted).cloned());
                Ok(())
            }
        }
    }

    /// Adds a keyspace that does not exist. The caller holds `keyspaces`.
    fn add_keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Tree>> {
        if name.is_empty() || name.len() > KEYSPACE_NAME_BYTES_MAX || name.contains('\0') {
            return Err(Error::invalid("keyspace name")
                .expected(format_args!("1..={KEYSPACE_NAME_BYTES_MAX} bytes, none of them zero"))
                .got(format_args!("`{}`", name.escape_debug())));
        }
        let state = self.manifest.state();
        if state.keyspaces.len() >= KEYSPACES_MAX {
            return Err(Error::invalid("number of keyspaces")
                .expected(format_args!("at most {KEYSPACES_MAX}"))
                .got(state.keyspaces.len() + 1));
        }
        if self.log.statistics().segments_live == 0 {
            // A store with keyspaces has a log, so that a missing log is known as damage.
            self.log.prepare(1)?;
        }
        let keyspace = state.keyspaces_below.max(KeyspaceId(1));
        invariant!(self.trees.get(keyspace).is_none(), "a keyspace's id is never used again");
        let account = self.buffers.account();
        let read_context = self.resources.read_context(&self.timekeeper);
        let kind = match options.hashed.clone() {
            None => KeyspaceKind::Ordered,
            Some(policy) => {
                let hash_key = options.hash_key.map_or_else(HashKey::random, Ok)?;
                let base_filter_bits = options.base_filter_bits.unwrap_or(0);
                KeyspaceKind::Hashed { hash_key, policy, base_filter_bits }
            }
        };
        if kind.is_resident() {
            self.check_resident(name)?;
            let account = self.resources.indexes_account();
            read_context.set_resident(Resident::new(keyspace, &self.segments, &account)?);
        }
        if kind.is_window() {
            // Before there is one: versions without unlogged writes refuse the log from here on.
            self.log.allow_gaps()?;
        }
        let file = KeyspaceFile::of(self.id, keyspace, &kind, name);
        if let Some(file) = &file {
            // Before the manifest has the keyspace: whatever names it later, its kind is known.
            file.install(&*self.medium)?;
        }
        let created = Edit::KeyspaceCreated { keyspace, kind: kind.clone(), name: name.to_owned() };
        let mut edits = vec![created];
        if let Some(operator) = &options.merge_operator {
            edits.push(Edit::KeyspaceOperator { keyspace, name: operator.clone() });
            read_context.set_operator(operator.clone(), self.operators.get(operator).cloned());
        }
        if options.tables != TableOptions::default() {
            edits.push(Edit::KeyspaceTables { keyspace, options: options.tables });
        }
        let version = Version::default();
        let (name, first) = (name.to_owned(), Seqno::ZERO);
        let tree = Tree::new(keyspace, kind, name, version, read_context, account, first);
        let added = tree.and_then(|tree| self.manifest.append(edits).map(|()| tree));
        let tree = added.inspect_err(|_| {
            if file.is_some() {
                self.remove_keyspace_file(keyspace);
            }
        })?;
        tree.set_table_options(options.tables);
        debug_assert_eq!(
            tree.kind().is_resident(),
            tree.view().read_context.resident().is_some(),
            "a resident keyspace has an index, and no other has"
        );
        if tree.kind().is_resident() {
            // Before it has a record.
            self.log.keep_resident(keyspace);
        }
        self.trees.insert(Arc::clone(&tree));
        Ok(tree)
    }

    /// Removes the file of a keyspace that does not exist. A file that stays is removed by the next open.
    fn remove_keyspace_file(&self, keyspace: KeyspaceId) {
        let _ = self.medium.remove(&KeyspaceFile::file_name(keyspace));
    }

    /// Refuses a resident keyspace in a store whose log is not on storage-class memory: reads go to the log.
    fn check_resident(&self, name: &str) -> Result<()> {
        if self.manifest.state().log_place.is_on_devices() {
            return Ok(());
        }
        Err(Error::invalid("resident keyspace")
            .at(format_args!("`{name}`"))
            .expected("a store with its log on storage-class memory (`log.path`)")
            .got("a log in the store's directory"))
    }

    /// Drops the keyspace called `name` with all its data. Returns false if there is none.
    ///
    /// # Errors
    /// Those of the manifest. If the manifest is poisoned by this call, the keyspace may be gone at the next
    /// open and refuses writes until then.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.owner.check()?;
        self.buffers.check_open()?;
        let _keyspaces = self.keyspaces.lock();
        let Some(tree) = self.trees.by_name(name) else { return Ok(false) };
        // First, so that a flush that does not find the keyspace in the manifest knows the reason.
        tree.mark_dropped(true);
        let mut edits = vec![Edit::KeyspaceDropped { keyspace: tree.id() }];
        let start = self.log.start_once_flushed(tree.id(), Seqno::MAX);
        edits.extend(Edit::log_begins(&start));
        if let Err(error) = self.manifest.append(edits) {
            // A manifest that was poisoned by this append may have recorded the drop, and writes until the
            // next open would be lost. A manifest poisoned earlier was not written to.
            let is_in_doubt = error.kind() != ErrorKind::Poisoned;
            tree.mark_dropped(is_in_doubt && self.manifest.poisoned().is_some());
            return Err(error);
        }
        if *tree.kind() != KeyspaceKind::Ordered {
            self.remove_keyspace_file(tree.id());
        }
        tree.discard(Memtable::new(self.buffers.account(), Seqno::ZERO).ok());
        self.trees.remove(tree.id());
        self.log.forget(tree.id());
        let state = self.manifest.state();
        invariant!(!state.keyspaces.contains_key(&tree.id()), "the manifest recorded the drop");
        self.dictionaries.keep(|id| state.has_dictionary(id));
        self.buffers.wake_flusher();
        Ok(true)
    }
}

/// Whether `tree` has the base filters that `options` ask for, if they do.
fn has_base_filter(tree: &Tree, options: &KeyspaceOptions) -> bool {
    options.base_filter_bits.is_none_or(|wanted| wanted == tree.kind().base_filter_bits())
}

fn unknown_operator(name: &str) -> Error {
    Error::invalid("merge operator")
        .expected("one that was given to the builder or is built in")
        .got(format_args!("`{}`", name.escape_debug()))
}
