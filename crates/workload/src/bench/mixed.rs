//! One thread of a mixed workload. Each operation draws its kind, its key and its size independently of one
//! another.

use std::ops::ControlFlow;

use base::{Result, Rng, broken_invariant};

use super::ledger::Expected;
use super::mix::Mix;
use super::{Chooser, Kind, Pace, Run};
use crate::Direction;

pub(super) fn run(
    run: &Run<'_>,
    mix: &'static Mix,
    thread: usize,
    rng: Rng,
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Some(chooser) = &run.chooser else {
        return Err(broken_invariant!("a mixed run has a chooser of keys"));
    };
    let mut mixed = Mixed { run, mix, chooser, rng, key: Vec::new(), value: Vec::new() };
    for _ in run.share(thread) {
        let kind = mixed.kind();
        match kind {
            Kind::Read => mixed.read(pace)?,
            Kind::Update => {
                let number = mixed.number();
                mixed.put(number, pace)?;
            }
            Kind::Insert => {
                let number = run.ledger.insert();
                mixed.put(number, pace)?;
                run.ledger.inserted();
            }
            Kind::Scan => mixed.scan(pace)?,
            Kind::ReadModifyWrite => {
                let number = mixed.number();
                run.look_up(number, &mut mixed.key, pace)?;
                mixed.put(number, pace)?;
            }
        }
        if !pace.lap_as(kind) {
            break;
        }
    }
    Ok(())
}

struct Mixed<'a> {
    run: &'a Run<'a>,
    mix: &'static Mix,
    chooser: &'a Chooser,
    rng: Rng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Mixed<'_> {
    fn kind(&mut self) -> Kind {
        let mut at = self.rng.unit();
        for (kind, part) in self.mix.kinds {
            if at < *part {
                return *kind;
            }
            at -= part;
        }
        // Rounding may leave the sum of the shares just below 1.
        self.mix.kinds.first().map_or(Kind::Read, |(kind, _)| *kind)
    }

    fn number(&mut self) -> u64 {
        self.chooser.draw(self.run.ledger.end(), &mut self.rng)
    }

    fn read(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let number = self.number();
        if self.mix.absent > 0.0 && self.rng.unit() < self.mix.absent {
            return self.run.look_up_missing(number, &mut self.key, pace);
        }
        self.run.look_up(number, &mut self.key, pace)
    }

    fn put(&mut self, number: u64, pace: &mut Pace<'_>) -> Result<()> {
        let bytes = self.run.sizes.draw(&mut self.rng);
        self.run.layout.write(number, &mut self.key);
        self.run.values.write(&self.key, self.run.epoch, bytes, &mut self.value);
        self.run.ledger.writing(number);
        self.run.store.put(&self.key, &self.value, self.run.options.sync)?;
        self.run.ledger.wrote(number);
        pace.tally.written_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    /// Scans from a key on. If that key is expected, it must come first. The order must be right, and if keys
    /// sort like their numbers, no expected key may be missing.
    fn scan(&mut self, pace: &mut Pace<'_>) -> Result<()> {
        let run = self.run;
        let number = self.number();
        let limit = self.mix.scans.draw(&mut self.rng);
        run.layout.write(number, &mut self.key);
        let from = self.key.as_slice();
        let first = run.ledger.expected(Some(number));
        // The next expected number, in a store of known content whose keys sort like their numbers.
        let mut due = (run.is_known && run.layout.is_ordered()).then_some(number);
        let last = &mut self.value;
        last.clear();
        let mut wrong = 0;
        let (mut bytes, mut is_met) = (0, false);
        let shown = run.store.scan(Some(from), Direction::Forward, limit, &mut |key, value| {
            let there = run.layout.number(key);
            let placed = match due {
                Some(due) => run.ledger.next(due) == there,
                None if last.is_empty() => match first {
                    Expected::Written(_) => key == from,
                    _ => key >= from,
                },
                None => key > last.as_slice(),
            };
            is_met |= last.is_empty() && key == from;
            due = due.and(there).map(|number| number + 1);
            // The scan's read view may be older than a write that has ended since.
            let before = run.ledger.expected_before(there);
            let right = run.value_is_right(there, before, key, value);
            wrong += u64::from(!placed || !right);
            bytes += (key.len() + value.len()) as u64;
            last.clear();
            last.extend_from_slice(key);
            ControlFlow::Continue(())
        })?;
        let cut_short = match due {
            Some(due) => shown < limit && run.ledger.next(due).is_some(),
            None => shown == 0 && matches!(first, Expected::Written(_)),
        };
        pace.tally.wrong += wrong + u64::from(cut_short);
        pace.tally.read_bytes += bytes;
        pace.tally.lookups += 1;
        pace.tally.found += u64::from(shown > 0);
        pace.tally.missing += u64::from(shown == 0);
        pace.tally.count_due(is_met);
        Ok(())
    }
}
