//! Sorts rows by key in bounded memory: full buffers become sorted runs in temporary files, which are merged.
//! Of rows with the same key the one of the last line stays.
//!
//! Memory: half of the budget for the buffer, a quarter for the buffers of the runs that are merged; the last
//! quarter is the caller's, for the row that it parses. A key of each run that is merged comes on top.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use terracedb::{Error, Result};

use super::run::{Run, RunReader, RunWriter};
use crate::interrupt;

/// Most runs that are merged at a time, each with a file and a buffer.
const FAN_IN: usize = 32;

/// A row in the buffer: its line, key and value stand one after the other.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: usize,
    key_len: u32,
    value_len: u32,
}

/// Takes a row: its line, key and value.
type Consume<'a> = dyn FnMut(u64, &[u8], &[u8]) -> Result<()> + 'a;

/// Bytes of the line number before a key in the buffer.
const LINE_BYTES: usize = 8;

/// See the module.
pub(super) struct Sorter {
    dir: PathBuf,
    buffer: Vec<u8>,
    slots: Vec<Slot>,
    /// Runs by the number of times that their rows were merged: at most [`FAN_IN`] of each.
    levels: Vec<Vec<Run>>,
    buffer_bytes_max: usize,
    slots_max: usize,
    run_buffer_bytes: usize,
}

impl Sorter {
    /// A sorter that uses `budget_bytes`, and temporary files in `dir`.
    pub(super) fn new(dir: &Path, budget_bytes: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            buffer: Vec::new(),
            slots: Vec::new(),
            levels: Vec::new(),
            buffer_bytes_max: budget_bytes / 8 * 3,
            slots_max: (budget_bytes / 8 / size_of::<Slot>()).max(1),
            run_buffer_bytes: budget_bytes / 4 / FAN_IN,
        }
    }

    /// Refuses a row that is longer than the buffer.
    ///
    /// # Errors
    /// `Invalid` then.
    pub(super) fn check(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (len, max) = (key.len() + value.len(), self.buffer_bytes_max - LINE_BYTES);
        if len <= max && u32::try_from(len).is_ok() {
            return Ok(());
        }
        Err(Error::invalid("row")
            .expected(format_args!("at most {max} bytes, or more --sort-memory"))
            .got(len))
    }

    /// Adds the row of `line`. Lines ascend.
    ///
    /// # Errors
    /// As [`Sorter::check`]; those of the temporary files.
    pub(super) fn add(&mut self, line: u64, key: &[u8], value: &[u8]) -> Result<()> {
        self.check(key, value)?;
        let needed = LINE_BYTES + key.len() + value.len();
        let bounded = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let (key_len, value_len) = (bounded(key.len()), bounded(value.len()));
        let is_full = self.buffer.len() + needed > self.buffer_bytes_max;
        if is_full || self.slots.len() == self.slots_max {
            self.spill()?;
        }
        if self.slots.is_empty() {
            // Pages that are not written take no memory, and growing would hold the buffer twice.
            self.buffer.reserve_exact(self.buffer_bytes_max);
            self.slots.reserve_exact(self.slots_max);
        }
        self.slots.push(Slot { at: self.buffer.len(), key_len, value_len });
        self.buffer.extend_from_slice(&line.to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        Ok(())
    }

    /// Passes each row to `consume`, by ascending key: line, key and value. Returns the number of rows that
    /// were left out, because a later line has their key.
    ///
    /// # Errors
    /// Those of `consume` and of the temporary files; `Cancelled` after a signal.
    pub(super) fn finish(mut self, consume: &mut Consume<'_>) -> Result<u64> {
        if self.levels.is_empty() {
            return self.drain(consume);
        }
        self.spill()?;
        (self.buffer, self.slots) = (Vec::new(), Vec::new());
        while self.levels.iter().map(Vec::len).sum::<usize>() > FAN_IN {
            // The lowest level with more than one has the shortest runs.
            let level = self.levels.iter().position(|runs| runs.len() > 1).unwrap_or_default();
            self.merge_level(level)?;
        }
        let runs = std::mem::take(&mut self.levels).into_iter().flatten().collect();
        merge(runs, self.run_buffer_bytes, consume)
    }

    /// Writes the buffer as a run, and merges the runs of each level that is full.
    fn spill(&mut self) -> Result<()> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let mut run = RunWriter::new(&self.dir, self.run_buffer_bytes)?;
        self.drain(&mut |line, key, value| run.row(line, key, value))?;
        self.add_run(0, run.finish()?);
        for level in 0.. {
            match self.levels.get(level) {
                Some(runs) if runs.len() >= FAN_IN => self.merge_level(level)?,
                Some(_) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Merges the runs of `level` into one of the next level.
    fn merge_level(&mut self, level: usize) -> Result<()> {
        let Some(runs) = self.levels.get_mut(level).map(std::mem::take) else { return Ok(()) };
        let mut merged = RunWriter::new(&self.dir, self.run_buffer_bytes)?;
        merge(runs, self.run_buffer_bytes, &mut |line, key, value| merged.row(line, key, value))?;
        self.add_run(level + 1, merged.finish()?);
        Ok(())
    }

    fn add_run(&mut self, level: usize, run: Run) {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Vec::new);
        }
        if let Some(runs) = self.levels.get_mut(level) {
            runs.push(run);
        }
    }

    /// Passes the rows of the buffer on, sorted, and empties it. Returns the number of rows that were left
    /// out.
    fn drain(&mut self, consume: &mut Consume<'_>) -> Result<u64> {
        let Self { buffer, slots, .. } = self;
        let key = |slot: &Slot| {
            let at = slot.at + LINE_BYTES;
            buffer.get(at..at + slot.key_len as usize).unwrap_or_default()
        };
        // Positions in the buffer ascend with the lines.
        slots.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.at.cmp(&b.at)));
        let mut left_out = 0;
        for (index, slot) in slots.iter().enumerate() {
            if slots.get(index + 1).is_some_and(|next| key(next) == key(slot)) {
                left_out += 1;
                continue;
            }
            interrupt::check("load")?;
            let line = buffer.get(slot.at..).and_then(|rest| rest.first_chunk());
            let line = u64::from_le_bytes(*line.unwrap_or(&[0; LINE_BYTES]));
            let at = slot.at + LINE_BYTES + slot.key_len as usize;
            let value = buffer.get(at..at + slot.value_len as usize).unwrap_or_default();
            consume(line, key(slot), value)?;
        }
        slots.clear();
        buffer.clear();
        Ok(left_out)
    }
}

/// A run, ordered by its row: the first in order is the greatest, as the heap wants it.
struct Head(RunReader);

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of the same key the last line comes first.
        other.0.key().cmp(self.0.key()).then(self.0.line().cmp(&other.0.line()))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Merges `runs`. Returns the number of rows that were left out.
fn merge(runs: Vec<Run>, buffer_bytes: usize, consume: &mut Consume<'_>) -> Result<u64> {
    let mut heads = BinaryHeap::new();
    for run in runs {
        let mut reader = run.read(buffer_bytes)?;
        if reader.next()? {
            heads.push(Head(reader));
        }
    }
    let (mut last, mut value, mut left_out) = (None::<Vec<u8>>, Vec::new(), 0);
    while let Some(mut head) = heads.pop() {
        interrupt::check("load")?;
        if last.as_deref() == Some(head.0.key()) {
            head.0.skip_value()?;
            left_out += 1;
        } else {
            head.0.value(&mut value)?;
            consume(head.0.line(), head.0.key(), &value)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(head.0.key());
        }
        if head.0.next()? {
            heads.push(head);
        }
    }
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::Rng;

    use super::*;

    type Rows = Vec<(Vec<u8>, Vec<u8>, u64)>;

    /// Sorts random rows, many of whose keys repeat. Returns the rows, those expected, and the runs at the
    /// end.
    fn sorted(rng: &mut Rng, budget: usize, count: u64) -> (Rows, Rows, u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path(), budget);
        let (mut model, mut repeated) = (BTreeMap::new(), 0);
        for line in 1..=count {
            let key = format!("{:x}", rng.below(count)).repeat(1 + rng.below(3) as usize);
            let value = vec![line as u8; rng.below(60) as usize];
            sorter.add(line, key.as_bytes(), &value).unwrap();
            repeated += u64::from(model.insert(key.into_bytes(), (value, line)).is_some());
        }
        let mut found = Rows::new();
        let spilled = sorter.levels.iter().map(Vec::len).sum::<usize>() as u64;
        let mut left_out = 0;
        left_out += sorter
            .finish(&mut |line, key, value| {
                found.push((key.to_vec(), value.to_vec(), line));
                Ok(())
            })
            .unwrap();
        // Rows that a run or a merge left out are not counted at the end.
        assert!(left_out <= repeated);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the files have no names");
        let expected = model.into_iter().map(|(key, (value, line))| (key, value, line)).collect();
        (found, expected, spilled, left_out)
    }

    #[test]
    fn rows_are_sorted_in_memory_in_runs_and_in_merged_runs() {
        let (mut rng, seed) = Rng::from_env();
        for (budget, count, spills) in
            [(1 << 20, 500, false), (1 << 14, 3000, true), (1 << 11, 9000, true)]
        {
            let (found, expected, spilled, _) = sorted(&mut rng, budget, count);
            assert!(found == expected, "TERRACE_SEED={seed}, budget {budget}");
            assert_eq!(spilled > 0, spills, "budget {budget}: {spilled} runs");
        }
    }

    #[test]
    fn a_row_over_the_budget_is_refused_and_the_others_are_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path(), 8000);
        sorter.add(1, b"b", &[1; 1000]).unwrap();
        let error = sorter.add(2, b"x", &[1; 3000]).unwrap_err();
        assert!(error.to_string().contains("--sort-memory"), "{error}");
        sorter.add(3, b"a", &[1; 2900]).unwrap();
        let mut keys = Vec::new();
        sorter
            .finish(&mut |_, key, value| {
                keys.push((key.to_vec(), value.len()));
                Ok(())
            })
            .unwrap();
        assert_eq!(keys, [(b"a".to_vec(), 2900), (b"b".to_vec(), 1000)]);
    }
}
