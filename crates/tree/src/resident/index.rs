//! The index of a resident keyspace: for each key the place of its newest version in the log.
//!
//! A slot of 8 bytes has a place and a tag, 19 bits of the key's hash; 10 more bits of the hash choose the
//! shard. The keys are in the log only, so a lookup reads a record to see whether it has the key: at 10
//! million keys one lookup in a hundred reads a second record. The index is lossless: it never drops an
//! entry.
//!
//! A shard is a hash table with linear probing. The home of a slot follows from its tag alone, so a shard
//! grows, by a fifth each time, without reading keys from the log. Between 73 and 88 % of the slots are full:
//! 9.1 to 11 bytes an entry, once a shard has more than a few entries.
//!
//! Any thread may call. Each shard has a lock, which a reader holds while it reads the log: the log keeps a
//! segment while the index points into it.

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Account, Charge, Error, Result, format_bytes, invariant};
use parking_lot::{Mutex, RwLock};

use super::place::{BITS, Place};
use super::sizes::ResidentSizes;

/// Bits of the hash that choose the shard.
const SHARD_BITS: u32 = 10;

/// The number of shards.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// Bits of the hash in a slot.
const TAG_BITS: u32 = u64::BITS - BITS;

/// A shard grows by at least this many slots.
const GROWTH_MIN: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Index {
    shards: Box<[RwLock<Shard>]>,
    charge: Mutex<Charge>,
    /// Memory that was taken without a promise.
    lent: Mutex<Charge>,
    tombstones: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    /// A tag above a place; 0: free.
    slots: Vec<u64>,
    /// Slots that are not free.
    used: usize,
    /// Slots that are kept free for keys that memtables have.
    promised: usize,
}

impl Shard {
    fn home(tag: u64, slots: usize) -> usize {
        ((tag * slots as u64) >> TAG_BITS) as usize
    }

    /// The positions of the full slots from the home of `tag` on.
    fn probe(&self, tag: u64) -> impl Iterator<Item = (usize, u64)> {
        let (len, home) = (self.slots.len(), Self::home(tag, self.slots.len()));
        let positions = (0..len).map(move |step| (home + step) % len);
        let slots = positions.filter_map(|at| Some((at, *self.slots.get(at)?)));
        slots.take_while(|(_, slot)| *slot != 0)
    }

    fn has_room(&self, more: usize) -> bool {
        (self.used + self.promised + more) * 8 <= self.slots.len() * 7
    }

    /// The number of slots after the next growth.
    fn grown(&self) -> usize {
        let len = self.slots.len();
        (len + (len / 5).max(GROWTH_MIN)).next_multiple_of(GROWTH_MIN)
    }

    fn grow(&mut self) {
        let slots = vec![0; self.grown()];
        let old = std::mem::replace(&mut self.slots, slots);
        old.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.put(slot));
    }

    /// Puts `slot` into the first free place from its home on. There is one.
    fn put(&mut self, slot: u64) {
        let len = self.slots.len();
        let home = Self::home(slot >> BITS, len);
        let mut positions = (0..len).map(|step| (home + step) % len);
        let free = positions.find(|at| self.slots.get(*at) == Some(&0));
        invariant!(free.is_some(), "a shard grows before its last slot is used");
        if let Some(free) = free.and_then(|free| self.slots.get_mut(free)) {
            *free = slot;
        }
    }
}

impl Shard {
    /// Frees the slot at `at`. Later slots that were put behind it because it was full move up.
    fn remove(&mut self, at: usize) {
        let len = self.slots.len();
        let behind: Vec<_> = (1..len)
            .map(|step| (at + step) % len)
            .map_while(|at| {
                self.slots.get(at).copied().filter(|slot| *slot != 0).map(|it| (at, it))
            })
            .collect();
        for position in behind.iter().map(|(at, _)| *at).chain([at]) {
            if let Some(slot) = self.slots.get_mut(position) {
                *slot = 0;
            }
        }
        self.used = self.used.saturating_sub(1);
        behind.into_iter().for_each(|(_, slot)| self.put(slot));
    }
}

/// The shard of a hash.
pub(super) const fn shard_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARD_BITS)) as usize
}

const fn tag_of(hash: u64) -> u64 {
    (hash << SHARD_BITS) >> (u64::BITS - TAG_BITS)
}

const fn slot(tag: u64, place: Place) -> u64 {
    (tag << BITS) | place.bits()
}

/// The bits of a hash that an index knows.
pub(super) const fn hash_bits_of(hash: u64) -> u64 {
    hash >> (u64::BITS - SHARD_BITS - TAG_BITS)
}

/// The bits of the hash, as [`hash_bits_of`], and the place of a slot of the shard `shard`.
pub(super) const fn hash_bits(shard: usize, slot: u64) -> (u64, Place) {
    (((shard as u64) << TAG_BITS) | (slot >> BITS), place_in(slot))
}

const fn place_in(slot: u64) -> Place {
    Place::of_bits(slot & ((1 << BITS) - 1))
}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    /// `Retry` if there is no memory for it.
    pub(super) fn new(account: &Account) -> Result<Self> {
        let charge = account.charge((SHARDS * size_of::<RwLock<Shard>>()) as u64)?;
        let lent = Mutex::new(account.lending().empty_charge());
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        Ok(Self { shards, charge: Mutex::new(charge), lent, tombstones: AtomicU64::new(0) })
    }

    fn shard(&self, number: usize) -> Result<&RwLock<Shard>> {
        let shard = self.shards.get(number);
        shard.ok_or_else(|| base::broken_invariant!("a hash has its shard"))
    }

    /// Keeps a slot free for a key with this hash, while all indexes have at most `bytes_max`. Returns its
    /// shard.
    ///
    /// # Errors
    /// `Retry` if there is no memory.
    pub(super) fn promise(&self, hash: u64, bytes_max: u64) -> Result<u16> {
        let number = shard_of(hash);
        let mut shard = self.shard(number)?.write();
        if !shard.has_room(1) {
            let more = (shard.grown() - shard.slots.len()) * size_of::<u64>();
            let mut charge = self.charge.lock();
            let used = charge.account().used().saturating_add(more as u64);
            if used > bytes_max {
                return Err(Error::retry("memory")
                    .expected(format_args!("at most {}", format_bytes(bytes_max)))
                    .got(format_bytes(used)));
            }
            charge.grow(more as u64)?;
            shard.grow();
        }
        shard.promised += 1;
        Ok(number as u16)
    }

    /// Takes `count` promises of `shard` back: their keys are in the index now, or were not written.
    pub(super) fn redeem(&self, shard: usize, count: usize) {
        if let Some(shard) = self.shards.get(shard) {
            let mut shard = shard.write();
            invariant!(count <= shard.promised, "a promise is redeemed once");
            shard.promised = shard.promised.saturating_sub(count);
        }
    }

    /// Returns the first result of `of` for the places that keys with this hash have.
    pub(super) fn find<R>(
        &self,
        hash: u64,
        mut of: impl FnMut(Place) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let tag = tag_of(hash);
        let shard = self.shard(shard_of(hash))?.read();
        for (_, slot) in shard.probe(tag).filter(|(_, slot)| slot >> BITS == tag) {
            if let Some(found) = of(place_in(slot))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Sets the place of a key with this hash; `is_of_key` says whether a place is of the key. Without a
    /// place of the key, adds one if `adds`. Returns the place before.
    pub(super) fn set(
        &self,
        hash: u64,
        place: Place,
        adds: bool,
        mut is_of_key: impl FnMut(Place) -> Result<bool>,
    ) -> Result<Option<Place>> {
        let tag = tag_of(hash);
        let mut shard = self.shard(shard_of(hash))?.write();
        let mut found = None;
        for (at, slot) in shard.probe(tag).filter(|(_, slot)| slot >> BITS == tag) {
            if is_of_key(place_in(slot))? {
                found = Some((at, place_in(slot)));
                break;
            }
        }
        match found {
            Some((at, before)) => {
                if let Some(old) = shard.slots.get_mut(at) {
                    *old = slot(tag, place);
                }
                Ok(Some(before))
            }
            None if adds => {
                // Without a promise: a replayed write, and one whose memtable was sealed after its admission.
                if (shard.used + 1) * 8 > shard.slots.len() * 7 {
                    let more = (shard.grown() - shard.slots.len()) * size_of::<u64>();
                    self.lent.lock().grow(more as u64)?;
                    shard.grow();
                }
                shard.put(slot(tag, place));
                shard.used += 1;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Whether a key with this hash has the place `place`.
    pub(super) fn contains(&self, hash: u64, place: Place) -> Result<bool> {
        let wanted = slot(tag_of(hash), place);
        let shard = self.shard(shard_of(hash))?.read();
        Ok(shard.probe(tag_of(hash)).any(|(_, slot)| slot == wanted))
    }

    /// Replaces the place `from` of a key with this hash by `to`. Returns false if the key has another place
    /// by now.
    pub(super) fn replace(&self, hash: u64, from: Place, to: Place) -> Result<bool> {
        let tag = tag_of(hash);
        let wanted = slot(tag, from);
        let mut shard = self.shard(shard_of(hash))?.write();
        let found = shard.probe(tag).find(|(_, slot)| *slot == wanted);
        match found.and_then(|(at, _)| shard.slots.get_mut(at)) {
            Some(old) => {
                *old = slot(tag, to);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Removes the place `place` of a key with this hash. Returns false if the key has another place by now.
    pub(super) fn remove(&self, hash: u64, place: Place) -> Result<bool> {
        let wanted = slot(tag_of(hash), place);
        let mut shard = self.shard(shard_of(hash))?.write();
        let found = shard.probe(tag_of(hash)).find(|(_, slot)| *slot == wanted);
        let Some((at, _)) = found else { return Ok(false) };
        shard.remove(at);
        Ok(true)
    }

    /// The number of tombstones changes by as much.
    pub(super) fn count_tombstone(&self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.add_tombstones(1),
            (true, false) => {
                // The number is not exact once a checkpoint was loaded.
                let less = |count: u64| Some(count.saturating_sub(1));
                let _ = self.tombstones.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            }
            _ => {}
        }
    }

    /// Counts so many tombstones more.
    pub(super) fn add_tombstones(&self, count: u64) {
        self.tombstones.fetch_add(count, Ordering::Relaxed);
    }

    /// The full slots of the shard with this number.
    pub(super) fn slots_of(&self, shard: usize) -> Vec<u64> {
        let Some(shard) = self.shards.get(shard) else { return Vec::new() };
        shard.read().slots.iter().copied().filter(|slot| *slot != 0).collect()
    }

    /// The hash, as far as it is known, and the place of each slot that points into the segment `segment`.
    pub(super) fn slots_in(&self, segment: u16) -> Vec<(u64, Place)> {
        let of = |shard: usize| {
            let slots = self.slots_of(shard).into_iter();
            let all = slots.map(move |slot| hash_bits(shard, slot));
            all.filter(|(_, place)| place.segment() == segment)
        };
        let hash = |(bits, place)| (bits << (u64::BITS - SHARD_BITS - TAG_BITS), place);
        (0..self.shards.len()).flat_map(of).map(hash).collect()
    }

    /// Adds `slots`, as [`Index::slots_of`] returned some, to a shard that has none of them.
    ///
    /// # Errors
    /// `Corrupt` if there is no such shard or a slot has no place; `Retry` without memory.
    pub(super) fn load(&self, shard: usize, slots: &[u64]) -> Result<()> {
        let damaged = || Error::corrupt("slots of an index checkpoint").at(shard);
        let has_place = |slot: &u64| place_in(*slot).offset() > 0;
        let shard_of = self.shards.get(shard).filter(|_| slots.iter().all(has_place));
        let mut shard = shard_of.ok_or_else(damaged)?.write();
        let most = (shard.used + slots.len()) * 8 / 6;
        if (shard.used + slots.len()) * 8 > shard.slots.len() * 7 {
            let len = most.next_multiple_of(GROWTH_MIN).max(shard.grown());
            let more = (len - shard.slots.len()) * size_of::<u64>();
            self.lent.lock().grow(more as u64)?;
            let old = std::mem::replace(&mut shard.slots, vec![0; len]);
            old.into_iter().filter(|slot| *slot != 0).for_each(|slot| shard.put(slot));
        }
        slots.iter().for_each(|slot| shard.put(*slot));
        shard.used += slots.len();
        Ok(())
    }

    /// Removes the slots whose places `keeps` refuses.
    pub(super) fn retain(&self, mut keeps: impl FnMut(Place) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.write();
            let len = shard.slots.len();
            let all = std::mem::take(&mut shard.slots).into_iter().filter(|slot| *slot != 0);
            let kept: Vec<_> = all.filter(|slot| keeps(place_in(*slot))).collect();
            shard.slots = vec![0; len];
            shard.used = kept.len();
            kept.into_iter().for_each(|slot| shard.put(slot));
        }
    }

    /// The tags in the shard with this number.
    pub(super) fn tags_of(&self, shard: usize) -> Vec<u64> {
        let Some(shard) = self.shards.get(shard) else { return Vec::new() };
        let shard = shard.read();
        let full = shard.slots.iter().filter(|slot| **slot != 0);
        let mut tags: Vec<_> = full.map(|slot| slot >> BITS).collect();
        drop(shard);
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// Calls `visit` with the places that keys with this tag have, which stay there meanwhile.
    pub(super) fn visit(
        &self,
        shard: usize,
        tag: u64,
        mut visit: impl FnMut(Place) -> Result<()>,
    ) -> Result<()> {
        let shard = self.shard(shard)?.read();
        let mut found = shard.probe(tag).filter(|(_, slot)| slot >> BITS == tag);
        found.try_for_each(|(_, slot)| visit(place_in(slot)))
    }

    /// The places of all entries.
    pub(super) fn places(&self) -> Vec<Place> {
        let of = |shard: &RwLock<Shard>| {
            let shard = shard.read();
            shard.slots.iter().filter(|slot| **slot != 0).map(|slot| place_in(*slot)).collect()
        };
        self.shards.iter().flat_map(|shard| -> Vec<_> { of(shard) }).collect()
    }

    pub(super) fn sizes(&self) -> ResidentSizes {
        let entries = self.shards.iter().map(|shard| shard.read().used as u64).sum();
        ResidentSizes {
            entries,
            tombstones: self.tombstones.load(Ordering::Relaxed),
            index_bytes: self.charge.lock().bytes() + self.lent.lock().bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::{Budget, Rng};

    use super::*;

    fn place(number: u64) -> Place {
        Place::new((number >> 20) as u16, (number & 0xf_ffff) + 4096, true).unwrap()
    }

    /// Against a map, with keys that share their hash, and with a shard that grows.
    #[test]
    fn behaves_as_a_map() {
        let mut rng = Rng::new(7);
        let index = Index::new(&Account::unlimited("index")).unwrap();
        let mut model = BTreeMap::new();
        // 40 hashes of one shard, three keys each.
        let hash = |key: u64| (key / 3) << 40;
        let mut owners = BTreeMap::new();
        for number in 1..20_000 {
            let key = rng.below(120);
            let before = model.insert(key, number);
            let is_of_key = |at: Place| Ok(owners[&at.bits()] == key);
            let set = index.set(hash(key), place(number), true, is_of_key);
            assert_eq!(set.unwrap(), before.map(place));
            owners.insert(place(number).bits(), key);
            let key = rng.below(120);
            let found = index.find(hash(key), |at| Ok((owners[&at.bits()] == key).then_some(at)));
            assert_eq!(found.unwrap(), model.get(&key).copied().map(place));
        }
        assert_eq!(index.sizes().entries, model.len() as u64);
    }

    /// The claim of the design: at most 12 bytes an entry, whatever the number of entries.
    #[test]
    fn an_entry_costs_at_most_12_bytes() {
        let index = Index::new(&Account::unlimited("index")).unwrap();
        let mut rng = Rng::new(11);
        for number in 1..=400_000 {
            let hash = rng.next_u64();
            let shard = index.promise(hash, u64::MAX).unwrap();
            assert_eq!(index.set(hash, place(number), true, |_| Ok(false)).unwrap(), None);
            index.redeem(usize::from(shard), 1);
            if number >= 100_000 && number % 10_000 == 0 {
                let sizes = index.sizes();
                let each = sizes.index_bytes as f64 / sizes.entries as f64;
                assert!((9.0..=12.0).contains(&each), "{number} entries: {each} B each");
            }
        }
    }

    /// I10: a new key is refused when memory is full; a key that the index has is not.
    #[test]
    fn a_full_memory_refuses_new_keys_only() {
        // Once by the budget, once by the share of the indexes.
        refuses_new_keys_only(200_000, u64::MAX);
        refuses_new_keys_only(1 << 30, 200_000);
    }

    fn refuses_new_keys_only(budget: u64, bytes_max: u64) {
        let budget = Budget::new(budget);
        let index = Index::new(&budget.account("index")).unwrap();
        let mut rng = Rng::new(3);
        let mut hashes = Vec::new();
        let refused = loop {
            let hash = rng.next_u64();
            match index.promise(hash, bytes_max) {
                Ok(_) => hashes.push(hash),
                Err(error) => break error,
            }
            let number = hashes.len() as u64;
            index.set(hash, place(number), true, |_| Ok(false)).unwrap();
            index.redeem(shard_of(hash), 1);
        };
        assert!(refused.is_retryable(), "{refused}");
        assert!(hashes.len() > 5000, "{}", hashes.len());
        for (number, hash) in (1..).zip(&hashes) {
            let before =
                index.set(*hash, place(number + (1 << 20)), true, |at| Ok(at == place(number)));
            assert_eq!(before.unwrap(), Some(place(number)));
        }
    }
}
