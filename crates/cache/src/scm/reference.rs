//! The two tiers as plain data: what each access must find, told without frames, locks, queues or
//! threads. It shares the pure policies with the tiers, and the ghosts that remember
//! what went ([`Ghost`]).

use std::collections::VecDeque;

use super::admission::{Offer, decide};
use super::placement::{Costs, Placement, Tier};
use super::slot_map::{Room, WAYS};
use crate::rows::Ghost;
use crate::rows::policy::{self, Fate, Queue};
use crate::{PageKey, PageKind};

/// Where an access found its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Dram,
    Scm,
    Nowhere,
}

struct Page {
    key: PageKey,
    kind: PageKind,
    heat: u8,
}

/// Hashes with their heat, and the hand.
type Set = ([Option<(u64, u8)>; WAYS], usize);

pub(super) struct Reference {
    placement: Placement,
    costs: Costs,
    frames: usize,
    new: VecDeque<Page>,
    main: VecDeque<Page>,
    dram_ghost: Ghost,
    sets: Vec<Set>,
    ghosts: Vec<Ghost>,
    /// Pages of late that would have pushed out another, and those that did.
    late: (u32, u32),
    staged: Vec<(PageKey, PageKind)>,
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
            // The rest is free, or on its way down.
            frames: frames - frames / 16,
            new: VecDeque::new(),
            main: VecDeque::new(),
            dram_ghost: Ghost::new(policy::remembered(frames)),
            sets: (0..sets).map(|_| ([None; WAYS], 0)).collect(),
            ghosts: (0..16).map(|_| Ghost::new(sets * WAYS / 16)).collect(),
            late: (0, 0),
            staged: Vec::new(),
        }
    }

    pub(super) fn access(&mut self, key: PageKey, kind: PageKind) -> Found {
        let mut all = self.new.iter_mut().chain(&mut self.main);
        if let Some(page) = all.find(|page| page.key == key) {
            page.heat = least_heat(page.kind).max((page.heat + 1).min(3));
            return Found::Dram;
        }
        let found = match self.slot(key.hash()) {
            Some((_, heat)) => {
                *heat = (*heat + 1).min(3);
                let heat = *heat;
                if self.placement.goes_up(kind, heat, self.costs.worthy_heat()) {
                    self.insert(key, kind, true);
                    if let Some((_, heat)) = self.slot(key.hash()) {
                        *heat = 2;
                    }
                }
                Found::Scm
            }
            None => {
                let goes_down = self.placement.on_miss(kind, self.costs.worthy_heat()) == Tier::Scm;
                if goes_down && self.wants(key, kind, false, false) {
                    self.staged.push((key, kind));
                } else {
                    self.insert(key, kind, false);
                }
                Found::Nowhere
            }
        };
        self.write();
        found
    }

    fn set(&mut self, hash: u64) -> &mut Set {
        let mixed = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let set = (mixed as usize * self.sets.len()) >> 32;
        &mut self.sets[set]
    }

    fn slot(&mut self, hash: u64) -> Option<&mut (u64, u8)> {
        let (set, _) = self.set(hash);
        set.iter_mut().flatten().find(|(other, _)| *other == hash)
    }

    fn insert(&mut self, key: PageKey, kind: PageKind, is_warm: bool) {
        // What is read and not admitted below still passes a full DRAM's memory.
        if self.new.len() + self.main.len() == self.frames {
            let gone = self.evict();
            if self.wants(gone.0, gone.1, gone.2, true) {
                self.staged.push((gone.0, gone.1));
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

    fn evict(&mut self) -> (PageKey, PageKind, bool) {
        loop {
            let queue = policy::victim(self.new.len() as u64, self.main.len() as u64);
            let mut page = match queue {
                Queue::New => self.new.pop_front(),
                Queue::Main => self.main.pop_front(),
            }
            .unwrap();
            match policy::fate(queue, page.heat) {
                Fate::Stays(heat) => {
                    page.heat = heat;
                    self.main.push_back(page);
                }
                Fate::Goes { remembered } => {
                    if remembered {
                        self.dram_ghost.remember(page.key.hash());
                    }
                    return (page.key, page.kind, queue == Queue::Main);
                }
            }
        }
    }

    fn wants(&mut self, key: PageKey, kind: PageKind, is_warm: bool, is_demoted: bool) -> bool {
        let hash = key.hash();
        if let Some((_, heat)) = self.slot(hash) {
            *heat = (*heat).max(1);
            return false;
        }
        if is_demoted && !self.placement.goes_down(kind) {
            return false;
        }
        let is_filling = self.set(hash).0.iter().any(Option::is_none);
        let ghost = (hash >> 60) as usize;
        let is_warm =
            is_filling || is_warm || kind == PageKind::Meta || self.ghosts[ghost].recall(hash);
        let offer = Offer {
            room: if is_filling { Room::Empty } else { Room::Full },
            is_warm,
            chance: (hash >> 24) as u8,
            fullness: 0,
            is_slow: false,
            offers: self.late.0,
            writes: self.late.1,
        };
        let is_admitted = decide(offer).is_ok();
        if !is_filling {
            let half = u32::from(self.late.0 >= 1 << 14);
            self.late = ((self.late.0 + 1) >> half, (self.late.1 + u32::from(is_admitted)) >> half);
        }
        if !is_admitted && is_demoted {
            self.ghosts[ghost].remember(hash);
        }
        is_admitted
    }

    fn write(&mut self) {
        for (key, kind) in std::mem::take(&mut self.staged) {
            let heat = if kind == PageKind::Meta { 3 } else { 0 };
            let hash = key.hash();
            if self.slot(hash).is_some() {
                continue;
            }
            let (set, hand) = self.set(hash);
            let way = set.iter().position(Option::is_none).unwrap_or_else(|| {
                loop {
                    let way = *hand;
                    *hand = (way + 1) % WAYS;
                    match &mut set[way] {
                        Some((_, heat)) if *heat > 0 => *heat -= 1,
                        _ => break way,
                    }
                }
            });
            set[way] = Some((hash, heat));
        }
    }
}
