//! The policy of TerraceDB's caches, over keys alone.

use std::collections::{HashMap, VecDeque};

use base::Account;
use base::limits::PAGE_BYTES;
use cache::PageKind;
use cache::curve::{Contest, Subject};
use cache::rows::Ghost;
use cache::rows::policy::{self, Admission, Queue, Rules, Verdict};

use crate::Policy;

/// The greatest heat of an entry.
const HEAT_MAX: u8 = 3;

pub(crate) struct Own {
    capacity: usize,
    new: VecDeque<u64>,
    main: VecDeque<u64>,
    heat: HashMap<u64, u8>,
    ghost: Ghost,
    admission: Admission,
    contest: Contest,
}

impl Own {
    pub(crate) fn new(capacity: usize) -> Self {
        let ghost = Ghost::new(policy::ghost_entries(Rules::Open, capacity));
        let account = Account::unlimited("contest");
        let contest = Contest::new(&account, Subject::Rows, (capacity * PAGE_BYTES) as u64);
        let (new, main, heat, admission) = Default::default();
        Self { capacity, new, main, heat, ghost, admission, contest }
    }

    fn evict(&mut self) {
        while self.heat.len() >= self.capacity {
            let (new, main) = (self.new.len() as u64, self.main.len() as u64);
            let queue = policy::victim(self.contest.rules(), new, main);
            let oldest = match queue {
                Queue::New => self.new.pop_front(),
                Queue::Main => self.main.pop_front(),
            };
            let Some(key) = oldest else { return };
            let heat = self.heat.get(&key).copied().unwrap_or_default();
            self.admission.note_turn(queue, heat);
            match policy::verdict(queue, heat) {
                Verdict::Keep(heat) => {
                    self.heat.insert(key, heat);
                    self.main.push_back(key);
                }
                Verdict::Evict { remember } => {
                    self.heat.remove(&key);
                    if remember {
                        self.ghost.remember(key);
                    }
                }
            }
        }
    }
}

impl Policy for Own {
    fn ask(&mut self, key: u64) -> bool {
        let bytes = || (self.capacity * PAGE_BYTES) as u64;
        self.contest.ask(key, PAGE_BYTES, PageKind::Data, bytes);
        if let Some(heat) = self.heat.get_mut(&key) {
            *heat = (*heat + 1).min(HEAT_MAX);
            return true;
        }
        let rules = self.contest.rules();
        self.ghost.set_len(policy::ghost_entries(rules, self.capacity));
        let recalled = self.ghost.recall(key);
        match self.admission.queue(rules, key, recalled) {
            None => self.ghost.remember(key),
            Some(queue) => {
                self.evict();
                self.heat.insert(key, 0);
                match queue {
                    Queue::New => self.new.push_back(key),
                    Queue::Main => self.main.push_back(key),
                }
            }
        }
        false
    }
}
