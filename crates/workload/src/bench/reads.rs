//! The workloads that read, and the verification of their answers.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use base::{Result, Rng};

use super::ledger::{Expected, Version};
use super::{Draws, Kind, Name, Pace, Run};
use crate::figures::Tally;
use crate::{Direction, Values};

/// Keys per `multi_get`, as a multiple of the depth. At the end of a call the lookups in flight run out, and
/// the slowest reads of a device take many times the median. Calls are long so that their ends weigh little.
const CALL_DEPTHS: usize = 128;

/// The most key bytes per `multi_get`, except that a call has at least `depth` keys.
const CALL_BYTES_MAX: usize = 1 << 20;

pub(super) fn run(run: &Run<'_>, thread: usize, rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let operations = run.share(thread);
    let count = operations.end - operations.start;
    match run.name {
        Name::ReadSeq | Name::Verify => walk(run, Direction::Forward, pace),
        Name::ReadReverse => walk(run, Direction::Reverse, pace),
        Name::SeekRandom => seek(run, count, rng, pace),
        Name::MultiReadRandom => multi_read(run, count, rng, pace),
        _ => read(run, count, rng, pace),
    }
}

/// Point lookups of keys that may exist, or in `readmissing` of keys that never exist.
fn read(run: &Run<'_>, count: u64, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let (mut draws, mut key) = (Draws::new(&run.source), Vec::new());
    for _ in 0..count {
        let number = draws.draw(&mut rng);
        if run.name == Name::ReadMissing {
            run.look_up_missing(number, &mut key, pace)?;
        } else {
            run.look_up(number, &mut key, pace)?;
        }
        if !(if run.name.is_mixed() { pace.lap_as(Kind::Read) } else { pace.lap() }) {
            break;
        }
    }
    Ok(())
}

/// Lookups with `depth` of them in flight. A lookup begins when the one `depth` places before it ends; its
/// latency counts from there.
fn multi_read(run: &Run<'_>, count: u64, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let depth = run.options.depth;
    let call = (depth * CALL_DEPTHS).min(CALL_BYTES_MAX / run.layout.key_bytes()).max(depth);
    let mut draws = Draws::new(&run.source);
    let mut numbers = vec![0; call];
    let mut keys = vec![Vec::new(); call];
    let mut ends = VecDeque::with_capacity(depth + 1);
    let mut left = count;
    let mut go_on = true;
    while go_on && left > 0 {
        let count = usize::try_from(left).unwrap_or(call).min(call);
        left -= count as u64;
        numbers.truncate(count);
        for (number, key) in numbers.iter_mut().zip(&mut keys) {
            *number = draws.draw(&mut rng);
            run.layout.write(*number, key);
        }
        let asked: Vec<&[u8]> = keys.iter().take(count).map(Vec::as_slice).collect();
        ends.clear();
        ends.resize(depth, run.clock.monotonic());
        let mut shown = 0u64;
        run.store.multi_get(&asked, depth, &mut |at, value| {
            shown += 1;
            let (Some(number), Some(key)) = (numbers.get(at), asked.get(at)) else {
                pace.tally.wrong += 1;
                return;
            };
            let expected = run.ledger.expected(Some(*number));
            let right = |value| run.value_is_right(Some(*number), expected, key, value);
            let answer = value.map(|value| (value.len(), right(value)));
            pace.tally.count_due(answer.is_some());
            run.count(&mut pace.tally, expected, key.len(), answer);
            let began = ends.pop_front().unwrap_or_else(|| pace.now());
            go_on &= pace.lap_since(began);
            ends.push_back(pace.now());
        })?;
        pace.tally.wrong += shown.abs_diff(count as u64);
        pace.tally.lookups += count as u64;
    }
    Ok(())
}

/// Seeks. The entries returned must be the first expected ones from the key on, without a gap.
fn seek(run: &Run<'_>, count: u64, mut rng: Rng, pace: &mut Pace<'_>) -> Result<()> {
    let known = run.is_known;
    let entries = run.options.entries;
    let (mut draws, mut from) = (Draws::new(&run.source), Vec::new());
    for _ in 0..count {
        let number = draws.draw(&mut rng);
        run.layout.write(number, &mut from);
        // With unknown content, the search for the next expected key would go through the whole ledger.
        let mut next = known.then(|| run.ledger.next(number)).flatten();
        let (mut shown, mut is_met) = (0, false);
        run.store.scan(Some(&from), Direction::Forward, entries, &mut |key, value| {
            let there = run.layout.number(key);
            let placed = if known { next.is_some() && next == there } else { key >= &*from };
            let expected = run.ledger.expected(there);
            let right = placed && run.value_is_right(there, expected, key, value);
            run.count(&mut pace.tally, expected, key.len(), Some((value.len(), right)));
            is_met |= shown == 0 && key == &*from;
            next = there.filter(|_| known).and_then(|there| run.ledger.next(there + 1));
            shown += 1;
            if shown < entries { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if shown < entries && (next.is_some() || shown == 0) {
            let expected = match next {
                _ if !known => Expected::Unknown,
                None => Expected::Absent,
                Some(_) => run.ledger.expected(next),
            };
            run.count(&mut pace.tally, expected, 0, None);
        }
        pace.tally.lookups += 1;
        pace.tally.count_due(is_met);
        if !pace.lap() {
            break;
        }
    }
    Ok(())
}

/// One scan of the whole store. Each step checks the order; the end checks that no key is missing.
fn walk(run: &Run<'_>, direction: Direction, pace: &mut Pace<'_>) -> Result<()> {
    let mut last: Vec<u8> = Vec::new();
    let mut cut_short = false;
    run.store.scan(None, direction, usize::MAX, &mut |key, value| {
        let ordered = match direction {
            Direction::Forward => last.as_slice() < key,
            Direction::Reverse => key < last.as_slice(),
        };
        let ordered = ordered || last.is_empty();
        last.clear();
        last.extend_from_slice(key);
        let number = run.layout.number(key);
        let expected = run.ledger.expected(number);
        let right = ordered && run.value_is_right(number, expected, key, value);
        run.count(&mut pace.tally, expected, key.len(), Some((value.len(), right)));
        if pace.lap() {
            return ControlFlow::Continue(());
        }
        cut_short = true;
        ControlFlow::Break(())
    })?;
    if let Some(live) = run.ledger.live().filter(|_| !cut_short) {
        let lost = live.saturating_sub(pace.tally.ops);
        pace.tally.missing += lost;
        pace.tally.wrong += lost;
    }
    Ok(())
}

impl Run<'_> {
    /// Looks up the key of `number`. `key` is a buffer.
    pub(super) fn look_up(
        &self,
        number: u64,
        key: &mut Vec<u8>,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        self.layout.write(number, key);
        let found = self.get(Some(number), key, pace)?;
        pace.tally.count_due(found);
        Ok(())
    }

    /// Looks up a key that is never written, next to that of `number`. `key` is a buffer.
    pub(super) fn look_up_missing(
        &self,
        number: u64,
        key: &mut Vec<u8>,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        self.layout.write_missing(number, key);
        self.get(None, key, pace).map(drop)
    }

    /// Looks up `key`, checks the answer, and returns whether a value was shown.
    #[inline]
    fn get(&self, number: Option<u64>, key: &[u8], pace: &mut Pace<'_>) -> Result<bool> {
        let expected = self.ledger.expected(number);
        let mut answer = None;
        let found = self.store.get(key, &mut |value| {
            answer = Some((value.len(), self.value_is_right(number, expected, key, value)));
        })?;
        self.count(&mut pace.tally, expected, key.len(), answer);
        // A return value that contradicts the call of the visitor is wrong too.
        pace.tally.wrong += u64::from(found != answer.is_some());
        pace.tally.lookups += 1;
        Ok(answer.is_some())
    }

    /// Whether `value` may be the value of `key`, the key of `number`: it is the version `expected` before
    /// the lookup, or one that the run may have written since.
    #[inline]
    pub(super) fn value_is_right(
        &self,
        number: Option<u64>,
        expected: Expected,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        let is = |version: Version| {
            version.bytes.is_none_or(|bytes| bytes == value.len())
                && Values::epoch(value).is_none_or(|written| written == version.epoch)
        };
        let known = match expected {
            Expected::Unknown => true,
            Expected::Absent => false,
            Expected::Written(version) => is(version),
        };
        let known =
            known || number.and_then(|number| self.ledger.under_way(number)).is_some_and(is);
        known && Values::verify(key, value)
    }

    /// Counts one answer: the length of the value and whether it is right, or that there was none.
    #[inline]
    fn count(
        &self,
        tally: &mut Tally,
        expected: Expected,
        key_bytes: usize,
        answer: Option<(usize, bool)>,
    ) {
        match answer {
            Some((bytes, right)) => {
                tally.found += 1;
                tally.wrong += u64::from(!right);
                tally.read_bytes += (key_bytes + bytes) as u64;
            }
            None => {
                tally.missing += 1;
                tally.wrong += u64::from(matches!(expected, Expected::Written(_)));
            }
        }
    }
}
