//! The write-combining buffer of a medium: gathers short writes into whole units.
//!
//! A complete unit is written at once. An incomplete unit waits for the rest of its lines; if the buffer is
//! full, a random incomplete unit is written to make room.

use std::collections::HashMap;

use base::Rng;

/// The granularity of gathering, bytes: a cache line.
const LINE_BYTES: u64 = 64;

/// Writes beyond this offset are moved below it: no device is as large.
const END: u64 = 1 << 62;

/// The incomplete units.
#[derive(Debug)]
pub(super) struct Combining {
    unit: u64,
    capacity: usize,
    /// By unit number: a bit for each line written, and the unit's index in `order`.
    partial: HashMap<u64, (u64, usize)>,
    order: Vec<u64>,
    rng: Rng,
}

impl Combining {
    /// A buffer for `capacity` units of `unit` bytes (at most 64 lines each).
    pub(super) fn new(unit: u64, capacity: usize) -> Self {
        Self { unit, capacity, partial: HashMap::new(), order: Vec::new(), rng: Rng::new(1) }
    }

    /// Adds `len` bytes at `at`. Returns the number of units that the medium writes now.
    pub(super) fn write(&mut self, at: u64, len: u64) -> u64 {
        let (at, len) = (at.min(END - len.clamp(1, END)), len.clamp(1, END));
        let (first, last) = (at / self.unit, (at + len - 1) / self.unit);
        if self.capacity == 0 {
            return last - first + 1;
        }
        // All units but the first and the last are complete, and are written at once.
        let mut written = (last - first).saturating_sub(1);
        written += self.write_part(first, at, len);
        if last > first {
            written += self.write_part(last, at, len);
        }
        written
    }

    /// Adds the part of a write that lies in `unit`. Returns the number of units written now.
    fn write_part(&mut self, unit: u64, at: u64, len: u64) -> u64 {
        let start = unit * self.unit;
        let from = at.max(start) - start;
        let to = (at + len).min(start + self.unit) - start;
        let lines = self.unit.div_ceil(LINE_BYTES).min(64);
        let all = u64::MAX >> (64 - lines);
        let below = |line: u64| if line >= 64 { u64::MAX } else { (1 << line) - 1 };
        let arrived = (below(to.div_ceil(LINE_BYTES)) & !below(from / LINE_BYTES)) & all;
        let known = self.partial.get(&unit).copied();
        let (written, index) = known.unwrap_or((0, self.order.len()));
        if written | arrived == all {
            if known.is_some() {
                self.remove(index);
            }
            return 1;
        }
        self.partial.insert(unit, (written | arrived, index));
        if known.is_some() {
            return 0;
        }
        self.order.push(unit);
        if self.order.len() <= self.capacity {
            return 0;
        }
        // Any unit but the one just added.
        let evicted = self.rng.below(self.capacity as u64);
        self.remove(usize::try_from(evicted).unwrap_or(0));
        1
    }

    fn remove(&mut self, index: usize) {
        base::invariant!(
            index < self.order.len(),
            "each incomplete unit has its place in the order"
        );
        if index >= self.order.len() {
            return;
        }
        let evicted = self.order.swap_remove(index);
        self.partial.remove(&evicted);
        if let Some(entry) = self.order.get(index).and_then(|moved| self.partial.get_mut(moved)) {
            entry.1 = index;
        }
        base::invariant!(self.partial.len() == self.order.len(), "units and their order agree");
    }
}

#[cfg(test)]
mod tests {
    use super::Combining;

    /// Units written per line, if each of `lines` units arrives in two halves: first all first halves, then
    /// all second halves.
    fn halves(lines: u64, rounds: u64) -> f64 {
        let mut buffer = Combining::new(256, 72);
        let mut written = 0;
        for pass in 0..rounds * 2 {
            for line in 0..lines {
                let line = pass / 2 * lines + line;
                written += buffer.write(line * 256 + pass % 2 * 128, 128);
            }
        }
        written as f64 / (lines * rounds) as f64
    }

    #[test]
    fn units_that_fit_the_buffer_are_written_once_and_others_twice() {
        assert_eq!(halves(1, 10), 1.0);
        assert_eq!(halves(72, 1), 1.0);
        assert!((1.2..1.5).contains(&halves(80, 100)));
        assert!((1.9..=2.0).contains(&halves(10_000, 10)));
    }

    #[test]
    fn whole_units_bypass_the_buffer_and_lines_are_gathered() {
        let mut buffer = Combining::new(256, 4);
        assert_eq!(buffer.write(0, 256), 1);
        assert_eq!((0..4).map(|line| buffer.write(1024 + line * 64, 64)).sum::<u64>(), 1);
        // Two partial units, and three complete ones between them.
        assert_eq!(buffer.write(128, 1024), 3);
        assert_eq!((buffer.write(0, 128), buffer.write(1152, 128)), (1, 1));
        let mut none = Combining::new(64, 0);
        assert_eq!((none.write(0, 64), none.write(60, 8), none.write(0, 4096)), (1, 2, 64));
        // An absurd offset is handled as any other.
        assert!(buffer.write(u64::MAX, 4096) <= 17);
    }
}
