//! Many gets of one moment: rows first, and what is left in flight together.

use std::sync::Arc;

use base::{Key, Result, Seqno};
use bytes::Bytes;

use crate::Keyspace;
use read::Completed;
use tree::View;
use tree::reads::{Probe, ReadQueue};

impl Keyspace {
    /// The values of `keys`, in their order, all as of one moment. Device reads are in flight
    /// together.
    ///
    /// # Errors
    /// `Invalid` where a key is out of bounds. What fails for one key is that key's result.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Result<Option<Bytes>>>> {
        for key in keys {
            Key::new(key.as_ref())?;
        }
        let probes = self.store().reader.rows.probes(self.tree().rows(), keys);
        let (view, at) = self.now()?;
        self.multi_get_with(keys, &probes, view, at)
    }

    /// Puts gets of the first of `keys` in flight in `queue`, as many as it has room for, and says how
    /// many; the result of the *n*-th carries `token` + *n*. They are all as of one moment, and what
    /// each needs of memory is asked for together, which makes them cheaper than one by one.
    ///
    /// # Errors
    /// `Invalid` where a key is out of bounds or the queue is another store's, `Closed` where the
    /// keyspace was dropped; none is in flight then.
    pub fn submit_many<K: AsRef<[u8]>>(
        &self,
        queue: &mut ReadQueue,
        keys: &[K],
        token: u64,
    ) -> Result<usize> {
        self.check_queue(queue)?;
        let keys = keys.get(..queue.room()).unwrap_or(keys);
        for key in keys {
            Key::new(key.as_ref())?;
        }
        let probes = self.store().reader.rows.probes(self.tree().rows(), keys);
        let (view, at) = self.now()?;
        let mut count = 0;
        for (key, probe) in keys.iter().zip(probes) {
            // Results that were not taken yet need room, too.
            if queue.room() == 0 {
                break;
            }
            let token = token.wrapping_add(count as u64);
            queue.start(&view, Key::new(key.as_ref())?, probe, at, None, token)?;
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        view: Arc<View>,
        at: Seqno,
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        for key in keys {
            Key::new(key.as_ref())?;
        }
        let probes: Vec<_> = keys.iter().map(|key| Probe::without_fill(key.as_ref())).collect();
        self.multi_get_with(keys, &probes, view, at)
    }

    fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        probes: &[Probe],
        view: Arc<View>,
        at: Seqno,
    ) -> Result<Vec<Result<Option<Bytes>>>> {
        let now = Some(view.read_context.timekeeper().now());
        let reader = &self.store().reader;
        let mut rest = Vec::new();
        let mut results: Vec<Result<Option<Bytes>>> = Vec::with_capacity(keys.len());
        for (token, (key, probe)) in (0u64..).zip(keys.iter().zip(probes)) {
            let row = reader.row(&view, key.as_ref(), *probe, at, now);
            if row.is_none() {
                rest.push((token, key.as_ref(), *probe));
            }
            results.push(Ok(row.map(|value| value.bytes)));
        }
        if rest.is_empty() {
            return Ok(results);
        }
        let mut done = Vec::new();
        let mut place = |done: &mut Vec<Completed>| {
            for Completed { token, result } in done.drain(..) {
                if let Some(slot) = results.get_mut(token as usize) {
                    *slot = result;
                }
            }
        };
        self.store().queues.with(&self.store().reader, &*self.store().medium, |queue| {
            for (token, key, probe) in rest {
                while queue.room() == 0 {
                    queue.wait(1, &mut done)?;
                    place(&mut done);
                }
                queue.start(&view, Key::new(key)?, probe, at, now, token)?;
            }
            while queue.in_flight() > 0 {
                queue.wait(1, &mut done)?;
            }
            queue.poll(&mut done)?;
            place(&mut done);
            Ok(())
        })?;
        Ok(results)
    }
}
