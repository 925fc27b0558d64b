//! Multi-gets: many keys of one keyspace in one read view.
//!
//! Keys with a cached row are answered first. The others become reads of a [`ReadQueue`], so that their
//! device reads are in flight together.
//!
//! The results belong to the caller, like those of gets, and are not charged: a call answers as many keys as
//! gets of the same keys would. A value that a read returns may keep the block that it lies in. The values of
//! few keys are returned so. Those of many are read in groups and copied, so that a call never takes many
//! times the memory of its values.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Key, Result, Seqno, StoredKeys};
use bytes::Bytes;
use read::Completed;
use tree::View;
use tree::reads::{Probe, ReadQueue, start_get};

use crate::{Keyspace, ReadOptions};

/// Up to this many values are returned as they were read. More are read in groups of this size, so that the
/// memory of a call besides its results is bounded.
const GROUP_KEYS: usize = 512;

/// A read of several keys of a resident keyspace is repeated this often.
const MOMENTS_MAX: usize = 64;

/// Of more than [`GROUP_KEYS`] values, those from this length on are not copied, bytes: they fill most of
/// their block, or have pages of their own.
const COPIED_BELOW: usize = 8 << 10;

type Found = Result<Option<Bytes>>;

impl Keyspace {
    /// The values of `keys`, in the order of `keys`, read in one read view. Device reads are in flight
    /// together.
    ///
    /// # Errors
    /// `Invalid` if the length of a key is out of bounds; `Closed` if the keyspace was dropped. An error
    /// of a single key is that key's result and fails no other: `Retry` if the values that the caller holds,
    /// those of this call among them, leave no memory for its long value. Drop them and get it again.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Result<Option<Bytes>>>> {
        self.multi_get_opt(keys, &ReadOptions::new())
    }

    /// As [`Keyspace::multi_get`], with options.
    ///
    /// # Errors
    /// As [`Keyspace::multi_get`].
    pub fn multi_get_opt<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        options: &ReadOptions,
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        let keys = self.tree().key_form().stored_all(keys)?;
        for _ in 0..MOMENTS_MAX {
            let (view, at) = self.now()?;
            let found = self.multi_get_with(&keys, options.fill_row_cache, view, at)?;
            let view = self.tree().view();
            match view.read_context.resident() {
                // A flush that began meanwhile may have replaced versions that this read should see.
                Some(resident) if resident.indexed_up_to() > at => {}
                _ => return Ok(found),
            }
        }
        Err(Error::retry("read of several keys of a resident keyspace at one instant")
            .at(format_args!("`{}`", self.name()))
            .expected("no flush meanwhile")
            .got(format_args!("flushes during {MOMENTS_MAX} reads")))
    }

    /// Starts gets of the first of `keys` in `queue`, as many as it has room for, and returns their
    /// number. The result of key *n* carries `token` + *n*.
    ///
    /// All gets use one read view and look up the row cache as a group, which costs less than
    /// one [`Keyspace::submit`] per key.
    ///
    /// # Errors
    /// `Invalid` if the length of a key is out of bounds or the queue belongs to another store; `Closed`
    /// if the keyspace was dropped. No get was started then.
    pub fn submit_many<K: AsRef<[u8]>>(
        &self,
        queue: &mut ReadQueue,
        keys: &[K],
        token: u64,
    ) -> Result<usize> {
        self.check_queue(queue)?;
        let keys = keys.get(..queue.room()).unwrap_or(keys);
        let keys = self.tree().key_form().stored_all(keys)?;
        let probes = self.store().reader.rows.probes(self.tree().rows(), keys.iter());
        base::invariant!(keys.len() == probes.len(), "every key of a multi-get has its probe");
        let (view, at) = self.now()?;
        let mut count = 0;
        for (key, probe) in keys.iter().zip(probes) {
            // A get answered from a row takes room too, until its result is collected.
            if queue.room() == 0 {
                break;
            }
            let token = token.wrapping_add(count as u64);
            start_get(queue, &view, key, probe, at, None, token)?;
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        view: Arc<View>,
        at: Seqno,
    ) -> Result<Vec<Found>> {
        let keys = self.tree().key_form().stored_all(keys)?;
        self.multi_get_with(&keys, false, view, at)
    }

    fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &StoredKeys<'_, K>,
        fills_rows: bool,
        view: Arc<View>,
        at: Seqno,
    ) -> Result<Vec<Found>> {
        if keys.len() <= GROUP_KEYS {
            return self.multi_get_group(keys, 0..keys.len(), fills_rows, &view, at);
        }
        let mut results = Vec::with_capacity(keys.len());
        for first in (0..keys.len()).step_by(GROUP_KEYS) {
            let end = keys.len().min(first + GROUP_KEYS);
            let group = self.multi_get_group(keys, first..end, fills_rows, &view, at)?;
            results.extend(group.into_iter().map(copied));
        }
        Ok(results)
    }

    /// The probes of keys for a view that was taken before. They allow fills only if no later view existed
    /// once they were taken: the view is then at least as new as the buckets, as fills require (I1).
    fn probes_of_view<'k>(
        &self,
        view: &Arc<View>,
        keys: impl Iterator<Item = Key<'k>>,
    ) -> Vec<Probe> {
        let mut probes = self.store().reader.rows.probes(self.tree().rows(), keys);
        if !Arc::ptr_eq(view, &self.tree().view()) {
            probes.iter_mut().for_each(|probe| probe.vacancy = None);
        }
        probes
    }

    /// The values of the keys at the positions `range`.
    fn multi_get_group<K: AsRef<[u8]>>(
        &self,
        keys: &StoredKeys<'_, K>,
        range: Range<usize>,
        fills_rows: bool,
        view: &Arc<View>,
        at: Seqno,
    ) -> Result<Vec<Found>> {
        let keys = || range.clone().filter_map(|at| keys.get(at));
        let probes = match fills_rows {
            true => self.probes_of_view(view, keys()),
            false => keys().map(|key| Probe::without_fill(key.bytes())).collect(),
        };
        base::invariant!(range.len() == probes.len(), "every key of a multi-get has its probe");
        let now = Some(view.read_context.timekeeper().now());
        let reader = &self.store().reader;
        let mut pending = Vec::new();
        let mut results: Vec<Found> = Vec::with_capacity(range.len());
        for (token, (key, probe)) in (0u64..).zip(keys().zip(&probes)) {
            let row = reader.row(view, key.bytes(), *probe, at, now);
            if row.is_none() {
                pending.push((token, key, *probe));
            }
            results.push(Ok(row.map(|value| value.bytes)));
        }
        if pending.is_empty() {
            return Ok(results);
        }
        let mut done = Vec::new();
        let mut store_results = |done: &mut Vec<Completed>| {
            for Completed { token, result } in done.drain(..) {
                let slot = results.get_mut(token as usize);
                base::invariant!(
                    slot.is_some(),
                    "a read queue returns only tokens that were submitted"
                );
                if let Some(slot) = slot {
                    *slot = result;
                }
            }
        };
        self.store().queues.with(&self.store().reader, &*self.store().medium, |queue| {
            for (token, key, probe) in pending {
                while queue.room() == 0 {
                    queue.wait(1, &mut done)?;
                    store_results(&mut done);
                }
                start_get(queue, view, key, probe, at, now, token)?;
            }
            while queue.in_flight() > 0 {
                queue.wait(1, &mut done)?;
            }
            queue.poll(&mut done)?;
            store_results(&mut done);
            Ok(())
        })?;
        Ok(results)
    }
}

/// `found`, which keeps no block that is many times as long as its value.
fn copied(found: Found) -> Found {
    match found {
        Ok(Some(value)) if value.len() < COPIED_BELOW => Ok(Some(Bytes::copy_from_slice(&value))),
        found => found,
    }
}
