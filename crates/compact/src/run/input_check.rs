//! The first phase of a run: opens every input piece, checks that it is the one the job names, and collects
//! the range deletes and the key span of all inputs.

use std::cmp::Ordering;

use base::{Charge, Error, KeyForm, Result, TableId, invariant};
use bytes::Bytes;
use table::{Properties, RangeDelete, RangeDeletes};

use super::source::{Opened, Reading};
use crate::job::{Input, Job};
use crate::{Horizon, Retention};

/// The check of the inputs, one piece per step.
pub(super) struct InputCheck {
    /// Pieces to check with the index of their run, the next one last.
    pieces: Vec<(usize, Input)>,
    /// The first piece of each run, left open for its source.
    opened: Vec<Option<Opened>>,
    /// The piece checked last.
    blame: Option<TableId>,
    /// The run index and end key of the last piece that held any keys.
    before: Option<(usize, Vec<u8>)>,
    /// Smallest and largest key of all inputs.
    keys: Option<(Vec<u8>, Vec<u8>)>,
    range_deletes: Vec<RangeDelete>,
    /// Memory of `range_deletes`, bytes.
    bytes: u64,
    horizon: Horizon,
    key_form: KeyForm,
    /// The policy of the inputs' window; empty if they are of no window.
    window: Vec<u8>,
}

impl InputCheck {
    pub(super) fn new(job: &Job) -> Self {
        let runs = job.inputs.iter().enumerate();
        let pieces = runs.flat_map(|(run, input)| input.tables.iter().map(move |it| (run, it)));
        let mut pieces: Vec<_> = pieces.map(|(run, piece)| (run, piece.clone())).collect();
        pieces.reverse();
        Self {
            pieces,
            opened: job.inputs.iter().map(|_| None).collect(),
            blame: None,
            before: None,
            keys: None,
            range_deletes: Vec::new(),
            bytes: 0,
            horizon: job.horizon.clone(),
            key_form: KeyForm::Plain,
            window: Vec::new(),
        }
    }

    /// The open first piece of run `number`; `None` if it was taken before.
    pub(super) fn take_opened(&mut self, number: usize) -> Option<Opened> {
        invariant!(self.pieces.is_empty(), "sources start once every input is checked");
        self.opened.get_mut(number)?.take()
    }

    /// The piece that was checked when a step failed.
    pub(super) const fn blame(&self) -> Option<TableId> {
        self.blame
    }

    /// Checks the next piece. False if none is left.
    ///
    /// # Errors
    /// `Corrupt` if the piece is not the one that the job names.
    pub(super) fn step(&mut self, reading: &Reading) -> Result<bool> {
        let Some((run, piece)) = self.pieces.pop() else { return Ok(false) };
        self.blame = Some(piece.id);
        let opened = reading.open(&piece)?;
        if let Some(first @ None) = self.opened.get_mut(run) {
            *first = Some(opened.clone());
        }
        let (table, bounds) = opened;
        self.key_form = table.properties().key_form();
        if self.window.is_empty() {
            self.window.clone_from(&table.properties().window);
        }
        let Properties { first_key, last_key, entries, .. } = table.properties();
        let first = (&*bounds.first).max(first_key);
        let end_key = table.properties().end_key();
        let end = bounds.end.as_deref().map_or(&*end_key, |end| end.min(&end_key));
        let follows =
            self.before.as_ref().is_none_or(|(before, key)| *before != run || **key <= *first);
        if !follows {
            return Err(Error::corrupt("order of the tables of a run")
                .at(table::file_name(piece.id))
                .expected("keys after those of the previous table"));
        }
        if first.cmp(end) != Ordering::Less {
            return Ok(true);
        }
        if *entries > 0 {
            self.widen(first, last_key);
        }
        self.before = Some((run, end.to_vec()));
        let range_deletes = reading.range_deletes(&piece, &table, &bounds)?;
        self.bytes += range_deletes.bytes() as u64;
        self.range_deletes.extend(range_deletes.deletes());
        Ok(true)
    }

    fn widen(&mut self, first: &[u8], last: &[u8]) {
        match &mut self.keys {
            None => self.keys = Some((first.to_vec(), last.to_vec())),
            Some((least, most)) => {
                if first < &**least {
                    *least = first.to_vec();
                }
                if last > &**most {
                    *most = last.to_vec();
                }
            }
        }
    }

    /// How the keyspace of the inputs stores its keys.
    pub(super) const fn key_form(&self) -> &KeyForm {
        &self.key_form
    }

    /// The policy of the inputs' window, as they state it.
    pub(super) fn window(&self) -> &[u8] {
        &self.window
    }

    /// Length of the common prefix of all keys, bytes.
    pub(super) fn common_prefix_bytes(&self) -> usize {
        let Some((least, most)) = &self.keys else { return 0 };
        least.iter().zip(most).take_while(|(one, other)| one == other).count()
    }

    /// The range deletes of all inputs, and those of them that survive.
    pub(super) fn range_deletes(
        &mut self,
        retention: &mut Retention,
        charge: &mut Charge,
    ) -> Result<(RangeDeletes, RangeDeletes)> {
        if self.range_deletes.is_empty() {
            return Ok(<_>::default());
        }
        // Four times: the list, its sorted copy, and the two results.
        charge.grow(4 * self.bytes)?;
        invariant!(self.pieces.is_empty(), "range deletes of every input are collected");
        let deletes = std::mem::take(&mut self.range_deletes);
        let all = RangeDeletes::build_for(deletes, self.horizon.seqnos());
        let (mut kept, mut seqnos) = (Vec::new(), Vec::new());
        for fragment in all.iter() {
            retention.range_deletes(
                fragment.start,
                Some(fragment.end),
                fragment.seqnos,
                &mut seqnos,
            );
            let delete = |seqno| RangeDelete {
                start: Bytes::clone(fragment.start),
                end: Bytes::clone(fragment.end),
                seqno,
            };
            kept.extend(seqnos.drain(..).map(delete));
        }
        let kept = RangeDeletes::build(kept);
        invariant!(kept.len() <= all.len(), "retention only drops range deletes");
        Ok((all, kept))
    }
}
