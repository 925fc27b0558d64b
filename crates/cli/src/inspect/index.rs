//! `terrace inspect index`: a checkpoint of the indexes of resident keyspaces.

use media::Medium;
use serde_json::json;
use terracedb::Result;
use terracedb::tools::{IndexFact, inspect_index};

use super::Printer;
use crate::interrupt;
use crate::outcome::Outcome;

impl Printer {
    pub(super) fn index(&mut self, medium: &dyn Medium, name: &str) -> Result<Outcome> {
        let mut outcome = Outcome::Done;
        inspect_index(medium, name, &mut |fact| {
            interrupt::check("inspect")?;
            if matches!(fact, IndexFact::End { damage: Some(_), .. }) {
                outcome = Outcome::Negative;
            }
            self.index_fact(&fact)
        })?;
        Ok(outcome)
    }

    fn index_fact(&mut self, fact: &IndexFact) -> Result<()> {
        match fact {
            IndexFact::Header { store, number, bytes, begun, below } => self.line(
                format_args!(
                    "index checkpoint {number} of store {store}: {bytes} bytes, begun at {begun} s, has \
                     every write to resident keyspaces below {below}"
                ),
                || {
                    json!({
                        "fact": "index",
                        "store": store.to_string(),
                        "number": number,
                        "bytes": bytes,
                        "begun_unix_s": begun,
                        "below_seqno": below,
                    })
                },
            ),
            IndexFact::Keyspace { keyspace, entries, tombstones } => self.line(
                format_args!("keyspace {keyspace}: {entries} entries, {tombstones} tombstones"),
                || {
                    json!({
                        "fact": "index keyspace",
                        "keyspace": keyspace.0,
                        "entries": entries,
                        "tombstones": tombstones,
                    })
                },
            ),
            IndexFact::Segment { lane, segment, operations, bytes, batches } => self.line(
                format_args!(
                    "entries of lane {lane}, segment {segment}: {operations} operations, {bytes} \
                         bytes, {batches} records of several operations"
                ),
                || {
                    json!({
                        "fact": "index segment",
                        "lane": lane.0,
                        "segment": segment.0,
                        "operations": operations,
                        "bytes": bytes,
                        "batches": batches,
                    })
                },
            ),
            IndexFact::Full { lane, segment, bytes, first, keyspaces } => {
                let pins = keyspaces.iter();
                let pins: Vec<_> = pins.map(|(id, end)| format!("{id} below {end}")).collect();
                self.line(
                    format_args!(
                        "full: lane {lane}, segment {segment}, {bytes} bytes from sequence number \
                         {first} on, keyspaces {}",
                        pins.join(", ")
                    ),
                    || {
                        let pins = keyspaces.iter();
                        let pins =
                            pins.map(|(id, end)| json!({"keyspace": id.0, "below_seqno": end}));
                        json!({
                            "fact": "full segment",
                            "lane": lane.0,
                            "segment": segment.0,
                            "bytes": bytes,
                            "first_seqno": first,
                            "keyspaces": pins.collect::<Vec<_>>(),
                        })
                    },
                )
            }
            IndexFact::End { is_finished, damage } => {
                let whole = *is_finished && damage.is_none();
                let why = damage.as_ref().map(ToString::to_string);
                let text = match (&why, is_finished) {
                    (Some(why), _) => format!("damage: {why}"),
                    (None, true) => "whole".to_owned(),
                    (None, false) => "not finished: an open passes over it".to_owned(),
                };
                let finished = *is_finished;
                self.line(text, || {
                    json!({"fact": "index end", "whole": whole, "finished": finished, "error": why})
                })
            }
        }
    }
}
