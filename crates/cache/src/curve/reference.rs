//! The policy once more, as simply as possible: one cache, every key, no sampling.

use std::collections::{HashMap, VecDeque};

use crate::rows::Ghost;
use crate::rows::policy::{self, Admission, Queue, Rules, Verdict};

pub(super) struct Reference {
    capacity: usize,
    /// `None` for pages: all are admitted.
    admission: Option<Admission>,
    new: VecDeque<u64>,
    main: VecDeque<u64>,
    heat: HashMap<u64, u8>,
    ghost: Ghost,
}

impl Reference {
    /// A cache of `capacity` keys.
    pub(super) fn new(capacity: usize, are_rows: bool) -> Self {
        let ghost = if are_rows {
            Ghost::default()
        } else {
            Ghost::new(policy::ghost_entries(Rules::Open, capacity))
        };
        let (new, main, heat) = Default::default();
        Self { capacity, admission: are_rows.then(Admission::default), new, main, heat, ghost }
    }

    /// Whether the access is a hit.
    pub(super) fn ask(&mut self, key: u64) -> bool {
        if let Some(heat) = self.heat.get_mut(&key) {
            *heat = (*heat + 1).min(3);
            return true;
        }
        let recalled = self.ghost.recall(key);
        let queue = match &mut self.admission {
            None => Some(if recalled { Queue::Main } else { Queue::New }),
            Some(admission) => admission.queue(Rules::Open, key, recalled),
        };
        match queue {
            None => self.remember(key),
            Some(queue) => {
                while self.heat.len() >= self.capacity {
                    self.evict_oldest();
                }
                self.heat.insert(key, 0);
                self.queue(queue).push_back(key);
            }
        }
        false
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<u64> {
        match queue {
            Queue::New => &mut self.new,
            Queue::Main => &mut self.main,
        }
    }

    /// Adds a key to the ghost list. For rows the list grows with the number of rows, as in
    /// [`crate::RowCache`].
    fn remember(&mut self, key: u64) {
        let (held, now) = (self.new.len() + self.main.len(), self.ghost.capacity());
        let rows = policy::ghost_entries(Rules::Open, held.max(64));
        if self.admission.is_some() && (rows > now / 4 * 5 || rows < now / 2) {
            self.ghost.resize(rows);
        }
        self.ghost.remember(key);
    }

    fn evict_oldest(&mut self) {
        let queue = policy::victim(Rules::Open, self.new.len() as u64, self.main.len() as u64);
        let key = self.queue(queue).pop_front().unwrap();
        let heat = self.heat[&key];
        if let Some(admission) = &mut self.admission {
            admission.note_turn(queue, heat);
        }
        match policy::verdict(queue, heat) {
            Verdict::Keep(heat) => {
                self.heat.insert(key, heat);
                self.main.push_back(key);
            }
            Verdict::Evict { remember } => {
                self.heat.remove(&key);
                if remember {
                    self.remember(key);
                }
            }
        }
    }
}
