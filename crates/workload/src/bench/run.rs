//! The state that the threads of one run share, and each thread's share of the work.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use base::{Clock, invariant};

use super::gate::Gate;
use super::ledger::Ledger;
use super::watch::{Progress, Tick};
use super::{Chooser, Layout, Name, Options, Source};
use crate::{Sizes, Store, Values};

/// The state that the threads of one run share.
pub(super) struct Run<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) name: Name,
    pub(super) options: &'a Options,
    pub(super) layout: Layout,
    pub(super) values: Values,
    /// Sizes of the values that the run writes.
    pub(super) sizes: Sizes,
    pub(super) ledger: &'a Ledger,
    /// Whether the ledger knows the content of the whole store.
    pub(super) is_known: bool,
    /// The epoch of the values that the run writes.
    pub(super) epoch: u8,
    /// Each thread adds its number and 1.
    pub(super) seed: u64,
    pub(super) source: Source<'a>,
    /// Draws the keys of a mixed workload, instead of `source`.
    pub(super) chooser: Option<Chooser>,
    pub(super) clock: &'a dyn Clock,
    pub(super) gate: Gate,
    /// Ends the run: a thread failed, or all leaders are done.
    pub(super) stop: AtomicBool,
    /// Leaders that still run. The run ends with the last leader; other threads run in the background.
    pub(super) leaders: AtomicUsize,
    /// By thread.
    pub(super) progress: Box<[Progress]>,
}

/// A thread's share of an offered rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateShare {
    /// Operations per second of all `turns` threads together.
    pub(super) ops_per_sec: f64,
    /// The thread's place among the `turns` threads, which begin operations in rotation.
    pub(super) turn: usize,
    pub(super) turns: usize,
}

impl Run<'_> {
    /// Whether `thread` runs in the background until the leaders are done.
    pub(super) fn is_background(&self, thread: usize) -> bool {
        thread >= self.name.leaders(self.options.threads)
    }

    /// The duration that ends the run; `None` if a number of operations ends it.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.options
            .duration
            .filter(|_| !self.name.is_fill() && !matches!(self.name, Name::Compact | Name::Verify))
    }

    fn ops(&self) -> u64 {
        if self.name.is_fill() { self.options.num } else { self.options.ops() }
    }

    /// The share of `thread` in the offered rate; `None` if the thread runs at full speed.
    pub(super) fn rate(&self, thread: usize) -> Option<RateShare> {
        if self.is_background(thread) {
            let rate = self.options.write_rate;
            return rate.map(|ops_per_sec| RateShare { ops_per_sec, turn: 0, turns: 1 });
        }
        let turns = self.name.leaders(self.options.threads);
        self.options.rate.map(|ops_per_sec| RateShare { ops_per_sec, turn: thread, turns })
    }

    pub(super) fn progress(&self, thread: usize) -> Option<&Progress> {
        self.progress.get(thread)
    }

    /// The numbers of the operations of `thread`, out of the operations of all leaders. The range has no
    /// practical end if the run ends by its duration.
    pub(super) fn share(&self, thread: usize) -> Range<u64> {
        invariant!(!self.is_background(thread), "only leaders share the operations of a run");
        let threads = self.name.leaders(self.options.threads) as u128;
        let cut = |thread: usize| (u128::from(self.ops()) * thread as u128 / threads) as u64;
        let end = if self.deadline().is_none() { cut(thread + 1) } else { u64::MAX };
        cut(thread)..end
    }

    pub(super) fn tick(&self, elapsed: Duration) -> Tick {
        let leaders = self.name.leaders(self.options.threads);
        let total = match (self.deadline(), self.name) {
            (Some(_), _) => None,
            (None, Name::Compact) => Some(1),
            (None, name) if name.is_scan() => Some(self.options.num * leaders as u64),
            (None, _) => Some(self.ops()),
        };
        let done = self.progress.iter().take(leaders).map(Progress::ops).sum();
        Tick { done, total, elapsed }
    }
}
