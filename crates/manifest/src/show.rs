//! Prints edits as lines of text, for `terrace inspect`.

use std::fmt;

use crate::{Edit, ScrubPosition, TableEntry, ValuesEntry};

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyspaceCreated { keyspace, kind, name } => {
                write!(f, "keyspace {keyspace} created: {kind}, `{}`", name.escape_debug())
            }
            Self::KeyspaceDropped { keyspace } => write!(f, "keyspace {keyspace} dropped"),
            Self::TableAdded { keyspace, table } => {
                let TableEntry { id, run, level, file_bytes, entries, .. } = &**table;
                write!(f, "keyspace {keyspace} gains table {id}: ")?;
                if *run != TableEntry::UNPLACED {
                    write!(f, "run {run}, ")?;
                }
                write!(
                    f,
                    "level {level}, {file_bytes} bytes, {entries} entries ({} deletes, {} range \
                     deletes), seqnos {}..={}, keys {}",
                    table.deletes,
                    table.range_deletes,
                    table.seqno_min,
                    table.seqno_max,
                    table.range
                )
            }
            Self::ValuesAdded { keyspace, values } => {
                let ValuesEntry { id, file_bytes, values, value_bytes, .. } = values;
                write!(f, "keyspace {keyspace} gains value file {id}: {file_bytes} bytes, ")?;
                write!(f, "{values} values of {value_bytes} bytes")
            }
            Self::TableCut { keyspace, table, range } => {
                write!(f, "keyspace {keyspace} cuts {range} out of table {table}")
            }
            Self::TableMoved { keyspace, table, range, run, level } => {
                write!(
                    f,
                    "keyspace {keyspace} moves {range} of table {table} to run {run}, level {level}"
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
            Self::ClockReached { unix_ms } => {
                write!(f, "clock reached {unix_ms} ms after 1970")
            }
            Self::Ingested { keyspace, last } => {
                write!(f, "keyspace {keyspace} ingested up to seqno {last}")
            }
            Self::TableCold { keyspace, table, file } => {
                write!(
                    f,
                    "keyspace {keyspace} has table {table} in the object store, as `{}`",
                    file.escape_debug()
                )
            }
            Self::ColdOpened { number } => {
                write!(f, "the store uses its object store for the time {number}")
            }
            Self::TableDamaged { keyspace, table } => {
                write!(f, "keyspace {keyspace} keeps damaged table {table} out of merges")
            }
            Self::Scrubbed(ScrubPosition { began_ms, next, end }) => write!(
                f,
                "scrub of {began_ms} ms after 1970 goes on at table {next} of those below {end}"
            ),
            Self::LogBegins { lane, segment } => {
                write!(f, "lane {lane} of the log begins with segment {segment}")
            }
            Self::LogReached { reached: wal::Reached { lane, segment, sequence, last } } => write!(
                f,
                "lane {lane} of the log is durable below record {sequence}, up to seqno {last}, in segment \
                 {segment} or before"
            ),
            Self::LogPlaced { place } if !place.is_on_devices() => {
                f.write_str("the log is in the store's directory")
            }
            Self::LogPlaced { place } => {
                write!(f, "the log is on devices, {} lanes each:", place.lanes_each)?;
                place.devices.iter().try_for_each(|device| {
                    write!(f, " {:032x} at `{}`", device.id, device.place.escape_debug())
                })
            }
            Self::LineageBegan { lineage } => write!(f, "a copy, of lineage {lineage}"),
            Self::KeyspaceOperator { keyspace, name } => {
                write!(f, "keyspace {keyspace} merges by `{}`", name.escape_debug())
            }
            Self::KeyspaceTables { keyspace, options } => {
                write!(f, "keyspace {keyspace} writes tables with {options}")
            }
            Self::TableIdsReserved { below } => write!(f, "table ids reserved below {below}"),
        }
    }
}
