//! Edits as lines for people, in `terrace inspect manifest`.

use std::fmt;

use super::edit::{Edit, TableEntry};

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyspaceCreated { keyspace, kind, name } => {
                write!(f, "keyspace {keyspace} created: {kind:?}, `{}`", name.escape_debug())
            }
            Self::KeyspaceDropped { keyspace } => write!(f, "keyspace {keyspace} dropped"),
            Self::TableAdded { keyspace, table } => {
                let TableEntry { id, level, file_bytes, entries, .. } = table;
                write!(
                    f,
                    "keyspace {keyspace} gains table {id}: level {level}, {file_bytes} bytes, \
                     {entries} entries, seqnos {}..={}, keys `{}` to `{}`",
                    table.seqno_min,
                    table.seqno_max,
                    table.first_key.escape_ascii(),
                    table.last_key.escape_ascii()
                )
            }
            Self::TableRemoved { keyspace, table } => {
                write!(f, "keyspace {keyspace} loses table {table}")
            }
            Self::Flushed { keyspace, below } => {
                write!(f, "keyspace {keyspace} flushed below seqno {below}")
            }
            Self::DictionaryAdded { keyspace, dictionary } => {
                write!(f, "keyspace {keyspace} compresses with dictionary {dictionary}")
            }
            Self::DictionaryIdsUsed { last } => write!(f, "dictionary ids used up to {last}"),
            Self::TableIdsReserved { below } => write!(f, "table ids reserved below {below}"),
        }
    }
}
