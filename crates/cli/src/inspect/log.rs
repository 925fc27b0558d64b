//! `terrace inspect log`: the records of a segment, and with `--entries` their operations.

use std::fmt;

use base::LOST;
use media::Medium;
use serde_json::{Value, json};
use terracedb::Result;

use super::Printer;
use super::operations;
use crate::interrupt;
use crate::outcome::Outcome;

impl Printer {
    pub(super) fn log(
        &mut self,
        medium: &dyn Medium,
        name: &str,
        entries: bool,
    ) -> Result<Outcome> {
        let (mut next, mut is_unreadable) = (0, false);
        let mut damage = None;
        wal::inspect_bodies(medium, name, &mut |entry, body| {
            interrupt::check("inspect")?;
            match &entry {
                wal::LogEntry::Header(_) => {}
                wal::LogEntry::Begin { begin, .. } => next = begin.sequence + 1,
                wal::LogEntry::Mark { sequence, .. }
                | wal::LogEntry::Gap { sequence, .. }
                | wal::LogEntry::Batch { sequence, .. } => next = sequence + 1,
                wal::LogEntry::End { unreadable, .. } => is_unreadable = unreadable.is_some(),
            }
            if matches!(entry, wal::LogEntry::Header(_)) && !self.json {
                let [at, kind, sequence, seqno] = ["OFFSET", "RECORD", "SEQUENCE", "SEQNO"];
                self.out.line(format_args!("{at:>12}  {kind:<6}  {sequence:>10}  {seqno:>12}"))?;
            }
            let moved = Moved::of(&entry, body);
            self.line(LogRow::of(&entry, &moved), || entry_to_json(&entry, &moved))?;
            if !entries {
                return Ok(());
            }
            for operation in operations::of(&entry, body) {
                match operation {
                    Ok(operation) => self.line(&operation, || operation.to_json())?,
                    Err(error) => damage = Some(error),
                }
            }
            Ok(())
        })?;
        if let Some(error) = damage {
            self.line(
                format_args!("damage: {error}"),
                || json!({"fact": "damage", "error": error.to_string()}),
            )?;
            return Ok(Outcome::Negative);
        }
        Ok(match is_unreadable && was_durable(medium, name, next)? {
            true => Outcome::Negative,
            false => Outcome::Done,
        })
    }
}

/// Whether the unreadable record of lane sequence `next` in segment `name` is damage.
///
/// The record is damage if later segments of the lane state that it was durable, and none of them begins at
/// or below its lane sequence. A torn tail after a crash is no damage: it never was durable, or the log
/// continued with its lane sequence in a later segment. A preallocated segment states nothing.
fn was_durable(medium: &dyn Medium, name: &str, next: u64) -> Result<bool> {
    let Some((lane, segment)) = wal::parse_segment_name(name) else { return Ok(false) };
    let (mut limit, mut durable_below) = (u64::MAX, 0);
    for file in medium.list()? {
        let other = wal::parse_segment_name(&file.name);
        if !other.is_some_and(|other| other.0 == lane && other.1 > segment) {
            continue;
        }
        let inspected = wal::inspect(medium, &file.name, &mut |entry| {
            match entry {
                wal::LogEntry::Begin { begin, .. } => {
                    limit = limit.min(begin.sequence);
                    durable_below = durable_below.max(begin.durable);
                }
                wal::LogEntry::Mark { durable, .. } => durable_below = durable_below.max(durable),
                _ => {}
            }
            Ok(())
        });
        // Damage in the other segment is reported by an inspection of that segment.
        drop(inspected);
    }
    Ok(next < limit.min(durable_below))
}

/// Whether a batch has entries of resident keyspaces that the collector moved, and how many of them are lost.
struct Moved {
    is_moved: bool,
    lost: usize,
}

impl Moved {
    fn of(entry: &wal::LogEntry, body: &[u8]) -> Self {
        let is_moved = matches!(entry, wal::LogEntry::Batch { .. }) && base::is_moved(body);
        let moved = base::decode_moved(body).map_while(Result::ok);
        let lost = moved.filter(|(_, moved)| is_moved && moved.op.kind == LOST).count();
        Self { is_moved, lost }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lost {
            0 => Ok(()),
            lost => write!(f, ", {lost} of lost entries"),
        }
    }
}

/// A row of the table that shows a log segment.
struct LogRow {
    offset: u64,
    kind: &'static str,
    sequence: Option<u64>,
    seqno: Option<u64>,
    rest: String,
}

impl LogRow {
    fn of(entry: &wal::LogEntry, moved: &Moved) -> Self {
        let row = |offset, kind, sequence, seqno: Option<base::Seqno>, rest| Self {
            offset,
            kind,
            sequence,
            seqno: seqno.map(base::Seqno::get),
            rest,
        };
        match entry {
            wal::LogEntry::Header(header) => {
                let rest = format!(
                    "lane {}, segment {} of store {}, {} bytes",
                    header.lane, header.segment, header.store, header.capacity
                );
                row(0, "header", None, None, rest)
            }
            wal::LogEntry::Begin { offset, seqno, begin } => {
                let opened = if begin.opened { ", the log was opened here" } else { "" };
                let rest = format!("durable below {}{opened}", begin.durable);
                row(*offset, "begin", Some(begin.sequence), Some(*seqno), rest)
            }
            wal::LogEntry::Mark { offset, sequence, durable } => {
                let rest = format!("durable below {durable}");
                row(*offset, "mark", Some(*sequence), None, rest)
            }
            wal::LogEntry::Gap { offset, sequence, seqno, count } => {
                let rest = format!("{count} sequence numbers of unlogged operations");
                row(*offset, "gap", Some(*sequence), Some(*seqno), rest)
            }
            wal::LogEntry::Batch { offset, bytes, sequence, seqno, ops, keyspaces, .. } => {
                let keyspaces: Vec<_> = keyspaces.iter().map(ToString::to_string).collect();
                let keyspaces = keyspaces.join(" ");
                let rest = format!("{ops} operations, {bytes} bytes, keyspaces {keyspaces}{moved}");
                let kind = if moved.is_moved { "moved" } else { "batch" };
                row(*offset, kind, Some(*sequence), Some(*seqno), rest)
            }
            wal::LogEntry::End { offset, unreadable } => {
                let rest = unreadable.as_ref().map(|error| format!("unreadable: {error}"));
                row(*offset, "end", None, None, rest.unwrap_or_default())
            }
        }
    }
}

impl fmt::Display for LogRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<u64>| number.map_or_else(String::new, |n| n.to_string());
        let Self { offset, kind, sequence, seqno, rest } = self;
        let (sequence, seqno) = (number(*sequence), number(*seqno));
        write!(f, "{offset:>12}  {kind:<6}  {sequence:>10}  {seqno:>12}  {rest}")
    }
}

fn entry_to_json(entry: &wal::LogEntry, moved: &Moved) -> Value {
    match entry {
        wal::LogEntry::Header(header) => json!({
            "fact": "header",
            "store": header.store.to_string(),
            "lane": header.lane.0,
            "segment": header.segment.0,
            "capacity": header.capacity,
        }),
        wal::LogEntry::Begin { offset, seqno, begin } => json!({
            "fact": "begin",
            "offset": offset,
            "sequence": begin.sequence,
            "seqno": seqno.get(),
            "durable": begin.durable,
            "opened": begin.opened,
        }),
        wal::LogEntry::Mark { offset, sequence, durable } => {
            json!({"fact": "mark", "offset": offset, "sequence": sequence, "durable": durable})
        }
        wal::LogEntry::Gap { offset, sequence, seqno, count } => json!({
            "fact": "gap",
            "offset": offset,
            "sequence": sequence,
            "seqno": seqno.get(),
            "count": count,
        }),
        wal::LogEntry::Batch { offset, bytes, sequence, seqno, ops, keyspaces, body_bytes } => {
            json!({
                "fact": "batch",
                "offset": offset,
                "bytes": bytes,
                "sequence": sequence,
                "seqno": seqno.get(),
                "ops": ops,
                "keyspaces": keyspaces.iter().map(|keyspace| keyspace.0).collect::<Vec<_>>(),
                "body_bytes": body_bytes,
                "moved": moved.is_moved,
                "lost": moved.lost,
            })
        }
        wal::LogEntry::End { offset, unreadable } => json!({
            "fact": "end",
            "offset": offset,
            "unreadable": unreadable.as_ref().map(ToString::to_string),
        }),
    }
}
