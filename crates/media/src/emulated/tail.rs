//! Rare long writes: by chance, and where a small region wears out under them.

use base::Rng;

use super::profile::Tail;

/// What decides over the next long write.
#[derive(Debug)]
pub(super) struct Tails {
    tail: Tail,
    rng: Rng,
    /// Writes of this group, and by place of its fullest candidates.
    group: u64,
    places: [(u64, u64); 4],
    /// What the next write takes more.
    due_ns: f64,
}

impl Tails {
    pub(super) fn new(tail: Tail) -> Self {
        Self { tail, rng: Rng::new(2), group: 0, places: [(0, 0); 4], due_ns: 0.0 }
    }

    /// What the write at `at` takes more, nanoseconds.
    pub(super) fn write(&mut self, at: u64) -> f64 {
        let mut more = std::mem::take(&mut self.due_ns);
        if self.rng.one_in(self.tail.slow_one_in) {
            more += self.tail.slow_ns;
        }
        if self.rng.one_in(self.tail.rare_one_in) {
            more += self.tail.rare_ns;
        }
        self.count(at / self.tail.wear_bytes.max(1));
        more
    }

    /// Counts by the few places written most, as Misra and Gries do: a place that has over a fifth of
    /// the writes is among them.
    fn count(&mut self, place: u64) {
        self.group += 1;
        let known = self.places.iter_mut().find(|(known, count)| *count > 0 && *known == place);
        if let Some((_, count)) = known {
            *count += 1;
        } else if let Some(free) = self.places.iter_mut().find(|(_, count)| *count == 0) {
            *free = (place, 1);
        } else {
            self.places.iter_mut().for_each(|(_, count)| *count -= 1);
        }
        if self.group < self.tail.wear_writes {
            return;
        }
        let most = self.places.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let part = most as f64 / self.group as f64;
        let reached = self.tail.wear.iter().rev().find(|(least, _)| part >= *least);
        self.due_ns =
            reached.map_or(0.0, |(_, (least, most))| least + (most - least) * self.rng.unit());
        self.group = 0;
        self.places = [(0, 0); 4];
    }
}
