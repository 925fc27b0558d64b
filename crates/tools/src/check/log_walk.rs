//! The log walk of a check: reads the log as recovery would, and compares it with the manifest.

use base::{Error, ErrorKind, KeyspaceId, Problem, Result};
use manifest::ManifestState;
use wal::{LogEntry, segment_name};

use super::Walk;

impl Walk<'_> {
    /// Checks the log.
    pub(super) fn log(&mut self, state: Option<&ManifestState>) -> Result<()> {
        let known = state.map(ManifestState::known_log).unwrap_or_default();
        let start = &known.start;
        let is_needed = |(lane, segment)| segment >= start.of(lane);
        let listed = self.files.iter();
        let listed =
            listed.filter(|file| wal::parse_segment_name(&file.name).is_some_and(is_needed));
        let segments: Vec<_> = listed.map(|file| (file.name.clone(), file.len)).collect();
        self.report.files += segments.len();
        self.report.log_segments = segments.len();
        let newest = segments.last().map_or_else(|| "log".to_owned(), |(name, _)| name.clone());
        let (store, strict) = (self.report.store, wal::Recover::Strict);
        let damaged = match wal::check(self.medium, store, &known, strict, &self.account) {
            Ok(found) => {
                self.report.log_records = found.records;
                self.report.log_torn = found.torn.map(|cut| {
                    format!("{}, byte {}", segment_name(cut.lane, cut.segment), cut.offset)
                });
                None
            }
            Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
            Err(error) => {
                self.lost_of_log(state, &error)?;
                let text = error.to_string();
                // The first needed segment and the last known one may be missing from the directory.
                let begins = start.iter().map(|(lane, segment)| segment_name(lane, segment));
                let reached = known.reached.iter().map(|it| segment_name(it.lane, it.segment));
                let mut names =
                    begins.chain(reached).chain(segments.iter().map(|(name, _)| name.clone()));
                let file = names.find(|name| text.contains(name.as_str()));
                let file = file.unwrap_or_else(|| newest.clone());
                self.report.note(Problem::of(&file, error));
                Some(file)
            }
        };
        for (name, bytes) in &segments {
            let other = damaged.as_ref().map(|file| file != name && *name != newest);
            self.segment(name, state, other)?;
            self.walked(*bytes);
        }
        Ok(())
    }

    /// Reads each record of a segment. `damaged` is `None` in an intact log: unreadable bytes are then a tail
    /// that recovery drops. In a damaged log it states whether unreadable bytes here are damage apart from
    /// the one already reported.
    fn segment(
        &mut self,
        name: &str,
        state: Option<&ManifestState>,
        damaged: Option<bool>,
    ) -> Result<()> {
        let below = state.map_or(KeyspaceId(u32::MAX), |state| state.keyspaces_below);
        let (mut records, mut unknown, mut unread) = (0, None, None);
        let seen = wal::inspect(&**self.medium, name, &mut |entry| {
            match entry {
                LogEntry::Batch { offset, keyspaces, .. } => {
                    records += 1;
                    let found = keyspaces.into_iter().find(|keyspace| *keyspace >= below);
                    unknown = unknown.or(found.map(|keyspace| (offset, keyspace)));
                }
                LogEntry::End { unreadable, .. } => unread = unreadable,
                LogEntry::Header(_)
                | LogEntry::Begin { .. }
                | LogEntry::Mark { .. }
                | LogEntry::Gap { .. } => {}
            }
            Ok(())
        });
        if let Some((offset, keyspace)) = unknown {
            let error = Error::corrupt("keyspace of a log record")
                .at(format_args!("offset {offset}"))
                .expected(format_args!("below {below}, as the manifest knows"))
                .got(keyspace);
            self.report.note(Problem::of(name, error));
        }
        let unread = match seen {
            Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
            Err(error) => Some(error),
            Ok(()) => unread,
        };
        if let Some(own) = damaged {
            // Recovery stopped before it counted them.
            self.report.log_records += records;
            if let Some(error) = unread.filter(|_| own) {
                self.report.note(Problem::of(name, error));
            }
        }
        Ok(())
    }
}
