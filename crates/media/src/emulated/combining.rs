//! The buffer in which a medium gathers short writes into its unit.
//!
//! A unit that is whole is written at once; one of which only a part has come waits for the rest, until
//! a random choice gives its place to another.

use std::collections::HashMap;

use base::Rng;

/// The least that is gathered, bytes: a cache line.
const PIECE_BYTES: u64 = 64;

/// Nothing is written behind it: no device is as long.
const END: u64 = 1 << 62;

/// Units in part.
#[derive(Debug)]
pub(super) struct Combining {
    unit: u64,
    most: usize,
    /// Which pieces have come, by the number of the unit; and where in `order` it is.
    held: HashMap<u64, (u64, usize)>,
    order: Vec<u64>,
    rng: Rng,
}

impl Combining {
    /// A buffer of `most` units of `unit` bytes (at most 64 pieces each).
    pub(super) fn new(unit: u64, most: usize) -> Self {
        Self { unit, most, held: HashMap::new(), order: Vec::new(), rng: Rng::new(1) }
    }

    /// Takes `len` bytes at `at`; how many units the medium writes now.
    pub(super) fn write(&mut self, at: u64, len: u64) -> u64 {
        let (at, len) = (at.min(END - len.clamp(1, END)), len.clamp(1, END));
        let (first, last) = (at / self.unit, (at + len - 1) / self.unit);
        if self.most == 0 {
            return last - first + 1;
        }
        // All but the ends are whole, and are written at once.
        let mut written = (last - first).saturating_sub(1);
        written += self.part(first, at, len);
        if last > first {
            written += self.part(last, at, len);
        }
        written
    }

    fn part(&mut self, unit: u64, at: u64, len: u64) -> u64 {
        let start = unit * self.unit;
        let from = at.max(start) - start;
        let to = (at + len).min(start + self.unit) - start;
        let pieces = self.unit.div_ceil(PIECE_BYTES).min(64);
        let all = u64::MAX >> (64 - pieces);
        let below = |piece: u64| if piece >= 64 { u64::MAX } else { (1 << piece) - 1 };
        let come = (below(to.div_ceil(PIECE_BYTES)) & !below(from / PIECE_BYTES)) & all;
        let known = self.held.get(&unit).copied();
        let (held, place) = known.unwrap_or((0, self.order.len()));
        if held | come == all {
            if known.is_some() {
                self.forget(place);
            }
            return 1;
        }
        self.held.insert(unit, (held | come, place));
        if known.is_some() {
            return 0;
        }
        self.order.push(unit);
        if self.order.len() <= self.most {
            return 0;
        }
        // Not the one that just came.
        let gone = self.rng.below(self.most as u64);
        self.forget(usize::try_from(gone).unwrap_or(0));
        1
    }

    fn forget(&mut self, place: usize) {
        if place >= self.order.len() {
            return;
        }
        let gone = self.order.swap_remove(place);
        self.held.remove(&gone);
        if let Some(entry) = self.order.get(place).and_then(|moved| self.held.get_mut(moved)) {
            entry.1 = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Combining;

    /// Units written for each of `lines` that come in two halves, one half of all of them after the
    /// other.
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
    fn what_fits_is_written_once_and_what_does_not_twice() {
        assert_eq!(halves(1, 10), 1.0);
        assert_eq!(halves(72, 1), 1.0);
        assert!((1.2..1.5).contains(&halves(80, 100)));
        assert!((1.9..=2.0).contains(&halves(10_000, 10)));
    }

    #[test]
    fn whole_units_pass_and_pieces_gather() {
        let mut buffer = Combining::new(256, 4);
        assert_eq!(buffer.write(0, 256), 1);
        assert_eq!((0..4).map(|piece| buffer.write(1024 + piece * 64, 64)).sum::<u64>(), 1);
        // Two ends and what is between.
        assert_eq!(buffer.write(128, 1024), 3);
        assert_eq!((buffer.write(0, 128), buffer.write(1152, 128)), (1, 1));
        let mut none = Combining::new(64, 0);
        assert_eq!((none.write(0, 64), none.write(60, 8), none.write(0, 4096)), (1, 2, 64));
        // A wild offset is no more than that.
        assert!(buffer.write(u64::MAX, 4096) <= 17);
    }
}
