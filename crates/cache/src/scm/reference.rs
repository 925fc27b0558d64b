//! Reference model of both tiers as plain data, without frames, locks, queues or threads: it tells what each
//! access must find. It shares the pure policies, the contest of the admission rules and the ghost list
//! ([`Ghost`]) with the tiers. Slots, writes, the write budget and its history, obsolete files and promotions
//! are implemented again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::admission::{Candidate, decide};
use super::admission_contest::AdmissionContest;
use super::placement::{ALL, Costs, Placement, Tier};
use super::slot_map::WAYS;
use super::stored_map::SLOTS_PER_PAGE;
use crate::rows::Ghost;
use crate::rows::policy::{self, Queue, Rules, Verdict};
use crate::{PageKey, PageKind};

/// Where an access found its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundIn {
    Dram,
    Scm,
    Nowhere,
}

struct Page {
    key: PageKey,
    kind: PageKind,
    heat: u8,
}

/// Hashes with their heat, and the CLOCK hand.
type Set = ([Option<(u64, u8)>; WAYS], usize);

/// The hash of a claimed slot.
const CLAIMED: u64 = u64::MAX;

/// Reuse of pages of one kind in DRAM's main queue, and their promoted share, in 1/256.
struct Promotions {
    /// Turns at which pages were kept, and evicted.
    turns: (u64, u64),
    /// The same at the last update of the share.
    before: (u64, u64),
    share: u32,
}

const NO_PROMOTIONS: Promotions = Promotions { turns: (0, 0), before: (0, 0), share: ALL };

/// Bytes written per second, and dirty map pages.
struct Writes {
    rate: Option<u64>,
    by_second: BTreeMap<u64, u64>,
    dirty: Vec<bool>,
    turn: usize,
    writes_since: usize,
    quiet_since: Duration,
}

impl Writes {
    /// Bytes written in the 61 seconds up to `now`.
    fn minute(&self, now: u64) -> u64 {
        self.by_second.range(now.saturating_sub(60)..=now).map(|(_, bytes)| bytes).sum()
    }

    fn may_write(&self, now: u64) -> bool {
        let Some(rate) = self.rate else { return true };
        let this_second = self.by_second.get(&now).copied().unwrap_or(0);
        let minute = (rate * 60).saturating_sub(self.minute(now));
        let second = ((minute + this_second) / 60 * 4).max(4096);
        minute.min(second.saturating_sub(this_second)) >= 4096
    }

    fn write(&mut self, now: u64) {
        *self.by_second.entry(now).or_default() += 4096;
    }

    fn fullness(&self, now: u64) -> u32 {
        self.rate.map_or(0, |rate| (self.minute(now).min(rate * 60) * 256 / (rate * 60)) as u32)
    }

    /// Writes dirty map pages in turn: one per 16 pages written, and 16 if nothing was written for 100 ms.
    fn write_map(&mut self, now: Duration) {
        let due = self.writes_since / 16;
        self.writes_since %= 16;
        let is_idle = now - self.quiet_since >= Duration::from_millis(100);
        if is_idle {
            self.quiet_since = now;
        }
        for _ in 0..if is_idle { due.max(16) } else { due } {
            let pages = self.dirty.len();
            let next = (0..pages).map(|step| (self.turn + step) % pages).find(|n| self.dirty[*n]);
            let Some(next) = next.filter(|_| self.may_write(now.as_secs())) else { return };
            self.dirty[next] = false;
            self.turn = (next + 1) % pages;
            self.write(now.as_secs());
        }
    }
}

pub(super) struct Reference {
    placement: Placement,
    costs: Costs,
    frames: usize,
    new: VecDeque<Page>,
    main: VecDeque<Page>,
    dram_ghost: Ghost,
    sets: Vec<Set>,
    ghosts: Vec<Ghost>,
    contest: AdmissionContest,
    staged: Vec<(PageKey, PageKind)>,
    /// A reader promotes a page of a device; the background task promotes a page of memory afterwards.
    is_device: bool,
    queued_promotions: Vec<(PageKey, PageKind)>,
    /// For data pages and for metadata pages.
    promotions: [Promotions; 2],
    shares_updated: Duration,
    writes: Writes,
    fullness: u32,
    /// Obsolete files.
    obsolete: BTreeSet<u64>,
}

const fn least_heat(kind: PageKind) -> u8 {
    match kind {
        PageKind::Data => 0,
        PageKind::Meta => 8,
    }
}

impl Reference {
    pub(super) fn new(frames: usize, sets: usize, placement: Placement, costs: Costs) -> Self {
        Self {
            placement,
            costs,
            // The other frames are free, or hold pages that wait to be written.
            frames: frames - frames / 16,
            new: VecDeque::new(),
            main: VecDeque::new(),
            dram_ghost: Ghost::new(policy::ghost_entries(Rules::Open, frames)),
            sets: (0..sets).map(|_| ([None; WAYS], 0)).collect(),
            contest: AdmissionContest::new(sets),
            ghosts: (0..16).map(|_| Ghost::new(sets * WAYS / 8)).collect(),
            staged: Vec::new(),
            is_device: false,
            queued_promotions: Vec::new(),
            promotions: [NO_PROMOTIONS; 2],
            shares_updated: Duration::ZERO,
            writes: Writes {
                rate: None,
                // The first page, written when the tier is formatted.
                by_second: BTreeMap::from([(0, 4096)]),
                dirty: vec![false; (sets * WAYS).div_ceil(SLOTS_PER_PAGE)],
                turn: 0,
                writes_since: 0,
                quiet_since: Duration::ZERO,
            },
            fullness: 0,
            obsolete: BTreeSet::new(),
        }
    }

    /// Models a device, and a write budget of `rate` bytes per second.
    pub(super) fn with(mut self, is_device: bool, rate: Option<u64>) -> Self {
        (self.is_device, self.writes.rate) = (is_device, rate);
        self
    }

    /// One access of one page, without time passing, and the background work after it.
    pub(super) fn access(&mut self, key: PageKey, kind: PageKind) -> FoundIn {
        self.access_run(&[key], kind, Duration::ZERO)
    }

    /// An access of a run of pages: if any of them is nowhere, all are read. Returns where the last page that
    /// was looked up was.
    pub(super) fn access_run(&mut self, run: &[PageKey], kind: PageKind, now: Duration) -> FoundIn {
        let mut found = FoundIn::Dram;
        for key in run {
            found = self.look(*key, kind);
            if found == FoundIn::Nowhere {
                run.iter().for_each(|key| self.fill(*key, kind));
                break;
            }
        }
        self.step(now);
        found
    }

    /// Removes the pages of an obsolete file; `hashes` are theirs.
    pub(super) fn remove(&mut self, file: u64, hashes: &BTreeSet<u64>, now: Duration) {
        self.obsolete.insert(file);
        self.new.retain(|page| page.key.file != file);
        self.main.retain(|page| page.key.file != file);
        for (set, (slots, _)) in self.sets.iter_mut().enumerate() {
            for (way, slot) in slots.iter_mut().enumerate() {
                if slot.is_some_and(|(hash, _)| hashes.contains(&hash)) {
                    *slot = None;
                    self.writes.dirty[(set * WAYS + way) / SLOTS_PER_PAGE] = true;
                }
            }
        }
        self.step(now);
    }

    /// Pages in SCM.
    pub(super) fn resident(&self) -> u64 {
        self.sets.iter().map(|(set, _)| set.iter().flatten().count() as u64).sum()
    }

    /// The promoted share of this kind, in 1/256.
    pub(super) const fn promoted_share(&self, kind: PageKind) -> u32 {
        self.promotions[kind as usize].share
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.writes.by_second.values().sum()
    }

    fn promotion_heat(&self, kind: PageKind, hash: u64) -> Option<u8> {
        let may = u32::from((hash >> 40) as u8) < self.promotions[kind as usize].share;
        match (kind, self.costs.promotion_heat()) {
            (PageKind::Data, promotion_heat) => promotion_heat.filter(|_| may),
            (PageKind::Meta, Some(_)) => Some(1),
            (PageKind::Meta, None) => may.then_some(1),
        }
    }

    fn look(&mut self, key: PageKey, kind: PageKind) -> FoundIn {
        let mut all = self.new.iter_mut().chain(&mut self.main);
        if let Some(page) = all.find(|page| page.key == key) {
            page.heat = least_heat(page.kind).max((page.heat + 1).min(3));
            return FoundIn::Dram;
        }
        let promotion_heat = self.promotion_heat(kind, key.hash());
        self.contest.looked_up(key.hash());
        let Some((_, heat)) = self.slot(key.hash()) else { return FoundIn::Nowhere };
        *heat = (*heat + 1).min(3);
        let heat = *heat;
        match self.placement.promotes(kind, heat, promotion_heat) {
            true if self.is_device => self.promote(key, kind),
            true => self.queued_promotions.push((key, kind)),
            false => {}
        }
        FoundIn::Scm
    }

    fn promote(&mut self, key: PageKey, kind: PageKind) {
        self.insert(key, kind, true);
        if let Some((_, heat)) = self.slot(key.hash()) {
            *heat = 2;
        }
    }

    fn fill(&mut self, key: PageKey, kind: PageKind) {
        let is_scm_first =
            self.placement.tier_on_miss(kind, self.promotion_heat(kind, key.hash())) == Tier::Scm;
        if is_scm_first && self.admit(key, kind, false) {
            self.staged.push((key, kind));
        } else {
            self.insert(key, kind, false);
        }
    }

    fn step(&mut self, now: Duration) {
        for (key, kind) in std::mem::take(&mut self.queued_promotions) {
            self.promote(key, kind);
        }
        self.write(now);
        self.writes.write_map(now);
        self.fullness = self.writes.fullness(now.as_secs());
        if now - self.shares_updated >= Duration::from_millis(100) {
            self.shares_updated = now;
            for (kind, Promotions { turns, before, share }) in
                self.promotions.iter_mut().enumerate()
            {
                let (kept, evicted) = (turns.0 - before.0, turns.1 - before.1);
                if evicted >= 256 {
                    let first = if kind == PageKind::Meta as usize { evicted } else { 0 };
                    let uses = kept.saturating_sub(first) * 256 / evicted;
                    *share = Costs::next_share(*share, self.costs.pays_off(uses as u32));
                    *before = *turns;
                }
            }
        }
    }

    fn set_number(&self, hash: u64) -> usize {
        let mixed = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        (mixed as usize * self.sets.len()) >> 32
    }

    fn set(&mut self, hash: u64) -> &mut Set {
        let number = self.set_number(hash);
        &mut self.sets[number]
    }

    fn slot(&mut self, hash: u64) -> Option<&mut (u64, u8)> {
        let (set, _) = self.set(hash);
        set.iter_mut().flatten().find(|(other, _)| *other == hash)
    }

    fn insert(&mut self, key: PageKey, kind: PageKind, is_warm: bool) {
        if self.new.iter().chain(&self.main).any(|page| page.key == key) {
            return;
        }
        // Pages that are promoted or refused by SCM pass through DRAM, too.
        if self.new.len() + self.main.len() == self.frames {
            let evicted = self.evict();
            if self.admit(evicted.0, evicted.1, true) {
                self.staged.push((evicted.0, evicted.1));
            }
        }
        let recalled = kind == PageKind::Data && self.dram_ghost.recall(key.hash());
        let page = Page { key, kind, heat: least_heat(kind) };
        if kind == PageKind::Meta || recalled || is_warm {
            self.main.push_back(page);
        } else {
            self.new.push_back(page);
        }
    }

    fn evict(&mut self) -> (PageKey, PageKind) {
        loop {
            let queue = policy::victim(Rules::Open, self.new.len() as u64, self.main.len() as u64);
            let mut page = match queue {
                Queue::New => self.new.pop_front(),
                Queue::Main => self.main.pop_front(),
            }
            .unwrap();
            let turns = &mut self.promotions[page.kind as usize].turns;
            let counts = u64::from(queue == Queue::Main);
            match policy::verdict(queue, page.heat) {
                Verdict::Keep(heat) => {
                    let was_used = page.kind == PageKind::Data || page.heat == 8;
                    turns.0 += counts * u64::from(was_used);
                    page.heat = heat;
                    self.main.push_back(page);
                }
                Verdict::Evict { remember } => {
                    turns.1 += counts;
                    if remember {
                        self.dram_ghost.remember(page.key.hash());
                    }
                    return (page.key, page.kind);
                }
            }
        }
    }

    fn admit(&mut self, key: PageKey, kind: PageKind, is_demoted: bool) -> bool {
        let hash = key.hash();
        self.contest.offered(hash, kind, is_demoted);
        if let Some((_, heat)) = self.slot(hash) {
            *heat = (*heat).max(1);
            return false;
        }
        if is_demoted && !self.placement.may_demote(kind) {
            return false;
        }
        let has_room = self.set(hash).0.iter().any(Option::is_none);
        let ghost = (hash >> 60) as usize;
        let came_back = has_room || kind == PageKind::Meta || self.ghosts[ghost].recall(hash);
        let candidate = Candidate {
            has_room,
            came_back,
            admits_all: self.contest.admits_all(),
            chance: (hash >> 24) as u8,
            fullness: self.fullness,
            is_slow: false,
        };
        let is_admitted = decide(candidate).is_ok();
        if !is_admitted && is_demoted {
            self.ghosts[ghost].remember(hash);
        }
        is_admitted
    }

    /// Writes the staged pages as far as the budget allows, each into a slot of its own. None is found before
    /// all are written.
    fn write(&mut self, now: Duration) {
        let mut placed: Vec<(usize, usize, u64, u8)> = Vec::new();
        for (key, kind) in std::mem::take(&mut self.staged) {
            let heat = if kind == PageKind::Meta { 3 } else { 0 };
            let hash = key.hash();
            let is_placed = placed.iter().any(|(_, _, other, _)| *other == hash);
            if is_placed || self.obsolete.contains(&key.file) || self.slot(hash).is_some() {
                continue;
            }
            if !self.writes.may_write(now.as_secs()) {
                continue;
            }
            let number = self.set_number(hash);
            let (set, hand) = self.set(hash);
            let way = set.iter().position(Option::is_none).unwrap_or_else(|| {
                loop {
                    let way = *hand;
                    let next = (way + 1) % WAYS;
                    match &mut set[way] {
                        Some((CLAIMED, _)) => {}
                        Some((_, heat)) if *heat > 0 => *heat -= 1,
                        _ => {
                            *hand = next;
                            break way;
                        }
                    }
                    *hand = next;
                }
            });
            set[way] = Some((CLAIMED, 0));
            placed.push((number, way, hash, heat));
            self.writes.write(now.as_secs());
            self.writes.quiet_since = now;
        }
        for (number, way, hash, heat) in placed {
            self.sets[number].0[way] = Some((hash, heat));
            self.writes.dirty[(number * WAYS + way) / SLOTS_PER_PAGE] = true;
            self.writes.writes_since += 1;
        }
    }
}
