//! Rare slow writes: at random, and after many writes to one small region (wear).

use base::Rng;

use super::profile::Tail;

/// The state that determines the next slow write.
#[derive(Debug)]
pub(super) struct TailState {
    tail: Tail,
    rng: Rng,
    /// Number of writes in this group, and the most written regions of the group with their counts.
    group: u64,
    regions: [(u64, u64); 4],
    /// Added latency of the next write, nanoseconds.
    due_ns: f64,
}

impl TailState {
    pub(super) fn new(tail: Tail) -> Self {
        Self { tail, rng: Rng::new(2), group: 0, regions: [(0, 0); 4], due_ns: 0.0 }
    }

    /// The added latency of a write at `at`, nanoseconds.
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

    /// Counts writes by region with the few counters of Misra and Gries: a region with over a fifth of the
    /// writes has one.
    fn count(&mut self, region: u64) {
        self.group += 1;
        let known = self.regions.iter_mut().find(|(known, count)| *count > 0 && *known == region);
        if let Some((_, count)) = known {
            *count += 1;
        } else if let Some(free) = self.regions.iter_mut().find(|(_, count)| *count == 0) {
            *free = (region, 1);
        } else {
            self.regions.iter_mut().for_each(|(_, count)| *count -= 1);
        }
        if self.group < self.tail.wear_writes {
            return;
        }
        let most = self.regions.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let part = most as f64 / self.group as f64;
        let reached = self.tail.wear.iter().rev().find(|(least, _)| part >= *least);
        self.due_ns =
            reached.map_or(0.0, |(_, (least, most))| least + (most - least) * self.rng.unit());
        self.group = 0;
        self.regions = [(0, 0); 4];
    }
}
