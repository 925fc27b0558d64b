//! The trees of a store at open: every table that the manifest names, put together to versions.

use std::sync::Arc;

use base::{Discard, Error, ErrorKind, HashedPolicy, Result, Seqno, TableId};
use compact::Operators;
use manifest::{LiveTable, ManifestState};
use media::Medium;
use table::{Dictionaries, Table, file_name};
use tree::{Piece, Resident, TableFile, Tree, TreeContext, Trees, Version};

use crate::recovery::Recovery;
use crate::resources::Components as _;
use crate::{KeyspaceOptions, Resources};

/// Opens every table of the manifest's `state`. A damaged table still becomes a part of its tree;
/// reads of its range fail.
///
/// # Errors
/// Those of opening a table, except `Corrupt`; `Corrupt` if the pieces of a run overlap; `Invalid` if a
/// window's priority is not registered.
pub(super) fn open_trees(
    context: &TreeContext,
    resources: &Resources,
    state: &ManifestState,
    operators: &Operators,
    recovery: &mut Recovery,
) -> Result<Arc<Trees>> {
    let trees = Arc::new(Trees::default());
    let memtables = resources.account("memtables");
    for (id, entry) in &state.keyspaces {
        if let Some(HashedPolicy::Window { discard: Discard::Priority(priority), .. }) =
            entry.kind.policy()
        {
            let at = |error: Error| error.at(format_args!("keyspace `{}`", entry.name));
            operators.check_priority(priority).map_err(at)?;
        }
        let mut pieces = Vec::with_capacity(entry.tables.len());
        for table in entry.tables.values() {
            let file = open_table(context, table, recovery)?;
            let parts = table.pieces.iter().map(|part| (part.range.clone(), part.level));
            let parts: Vec<_> = parts.collect();
            if let Ok(table) = file.table() {
                // As merges did: what the table pins for keys that they cut off is given back.
                let ranges: Vec<_> = parts.iter().map(|(range, _)| range.clone()).collect();
                let _ = table.trim(&ranges);
            }
            if parts.iter().any(|(range, _)| *range != file.entry().range) {
                file.prepare_cuts();
            }
            let count = parts.len();
            let parts = Piece::parts(&file, parts);
            base::invariant!(parts.len() == count, "every piece that the manifest names is opened");
            pieces.extend(table.pieces.iter().map(|part| part.run).zip(parts));
        }
        let version = Version::from_pieces(pieces)?;
        let read_context = resources.read_context(&context.timekeeper);
        if let Some(name) = entry.operator.clone() {
            let operator = operators.get(&name).cloned();
            read_context.set_operator(name, operator);
        }
        if entry.kind.is_resident() {
            let account = resources.indexes_account();
            let resident = Resident::new(*id, &context.segments, &account)?;
            // Until the replay is over.
            resident.keep_tombstones_below(Seqno::MAX);
            read_context.set_resident(resident);
        }
        let (kind, name) = (entry.kind.clone(), entry.name.clone());
        let first = Seqno::ZERO;
        let tree = Tree::new(*id, kind, name, version, read_context, &memtables, first)?;
        let options = KeyspaceOptions::stored_tables(entry.table_options);
        let at = |error: Error| error.at(format_args!("keyspace `{}`", entry.name));
        tree.set_table_options(options.map_err(at)?);
        trees.insert(tree);
    }
    Ok(trees)
}

/// Opens one table, or notes its damage.
fn open_table(
    context: &TreeContext,
    table: &LiveTable,
    recovery: &mut Recovery,
) -> Result<Arc<TableFile>> {
    let id = table.entry.id;
    let open = || {
        Table::open(
            &*context.medium,
            context.store,
            id,
            Some(table.entry.file_bytes),
            table.entry.seqno,
            Arc::clone(&context.dictionaries) as Arc<dyn Dictionaries>,
            &context.accounts,
        )
    };
    // A read that failed once is no damage: the table would answer errors until the next open.
    let opened = open().or_else(|error| match error.kind() {
        ErrorKind::Corrupt => open().map_err(|_| error),
        _ => Err(error),
    });
    let opened = opened.or_else(|error| damage(&*context.medium, id, error));
    match &opened {
        Ok(opened) => recovery.read_by_copy.extend(opened.tail_damage().cloned()),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            recovery.damaged_tables.push(error.clone());
        }
        // A newer format or a shortage of memory is not damage. Refuse to open rather than answer less.
        Err(error) => return Err(error.clone()),
    }
    let file = context.table_file(opened, Arc::clone(&table.entry));
    if table.damaged {
        file.mark_damaged();
    }
    Ok(file)
}

/// The reason why `table` could not be opened: `error`, or `Corrupt` if its file is missing.
fn damage<T>(medium: &dyn Medium, table: TableId, error: Error) -> Result<T> {
    let name = file_name(table);
    if medium.list()?.iter().any(|listing| listing.name == name) {
        return Err(error.at(name));
    }
    Err(Error::corrupt("table file").at(name).expected("a file").got("none"))
}
