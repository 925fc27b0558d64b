//! The policy of TerraceDB's caches, over keys alone.

use std::collections::{HashMap, VecDeque};

use cache::rows::Ghost;
use cache::rows::policy::{self, Admission, Queue, Verdict};

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
}

impl Own {
    pub(crate) fn new(capacity: usize) -> Self {
        let ghost = Ghost::new(policy::ghost_entries(capacity));
        let (new, main, heat, admission) = Default::default();
        Self { capacity, new, main, heat, ghost, admission }
    }

    fn evict(&mut self) {
        while self.heat.len() >= self.capacity {
            let queue = policy::victim(self.new.len() as u64, self.main.len() as u64);
            let oldest = match queue {
                Queue::New => self.new.pop_front(),
                Queue::Main => self.main.pop_front(),
            };
            let Some(key) = oldest else { return };
            let heat = self.heat.get(&key).copied().unwrap_or_default();
            if queue == Queue::New {
                self.admission.note_left_new(heat);
            }
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
        if let Some(heat) = self.heat.get_mut(&key) {
            *heat = (*heat + 1).min(HEAT_MAX);
            return true;
        }
        let recalled = self.ghost.recall(key);
        match self.admission.queue(key, recalled) {
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
