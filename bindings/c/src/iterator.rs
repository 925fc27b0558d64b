//! Iterators.

use std::ops::Bound;

use bytes::Bytes;
use terracedb::hashed::Entries;
use terracedb::{Error, Iter, Result};

use crate::bytes::slice;
use crate::error::{give, tdb_error};
use crate::store::{live, tdb_keyspace};

enum Source {
    Ordered(Iter),
    Hashed(Entries),
}

/// An iterator over entries. It reads one state: later writes do not appear. Free it with `tdb_iter_free`.
pub struct tdb_iter {
    source: Source,
    reverse: bool,
    entry: Option<(Bytes, Bytes)>,
}

/// A view of an entry, which lives until the iterator moves or is freed.
#[repr(C)]
pub struct tdb_entry {
    /// The key.
    pub key: *const u8,
    /// Its length.
    pub key_len: usize,
    /// The value.
    pub value: *const u8,
    /// Its length.
    pub value_len: usize,
}

/// Iterates over the keys from `start` (NULL: the first) up to `stop` (exclusive; NULL: to the end), from the
/// end if `reverse`. A hashed keyspace has no key order: it takes neither bounds nor `reverse`.
///
/// # Safety
/// `keyspace` is live; `start` and `stop` are NULL or point to as many bytes as their lengths say; `out` is
/// valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_iterate(
    keyspace: *const tdb_keyspace,
    start: *const u8,
    start_len: usize,
    stop: *const u8,
    stop_len: usize,
    reverse: bool,
    out: *mut *mut tdb_iter,
) -> *mut tdb_error {
    let open = || {
        // SAFETY: as promised by the caller.
        let keyspace = &unsafe { live(keyspace, "keyspace") }?.0;
        if keyspace.hashed_policy().is_some() && start.is_null() && stop.is_null() && !reverse {
            return keyspace.entries().map(Source::Hashed);
        }
        let lower = match start.is_null() {
            true => Bound::Unbounded,
            // SAFETY: as promised by the caller.
            false => Bound::Included(unsafe { slice(start, start_len) }),
        };
        let upper = match stop.is_null() {
            true => Bound::Unbounded,
            // SAFETY: as promised by the caller.
            false => Bound::Excluded(unsafe { slice(stop, stop_len) }),
        };
        keyspace.range::<&[u8]>((lower, upper)).map(Source::Ordered)
    };
    let boxed = |source| Box::into_raw(Box::new(tdb_iter { source, reverse, entry: None }));
    // SAFETY: as promised by the caller.
    unsafe { give(out, || open().map(boxed)) }
}

/// Moves to the next entry, and gives a view of it; `found` is false at the end, where `entry` is untouched.
///
/// # Safety
/// `iter` is live, and no other thread uses it; `entry` and `found` are valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_iter_next(
    iter: *mut tdb_iter,
    entry: *mut tdb_entry,
    found: *mut bool,
) -> *mut tdb_error {
    let step = || -> Result<bool> {
        // SAFETY: as promised by the caller.
        let iter =
            unsafe { iter.as_mut() }.ok_or_else(|| Error::invalid("iterator").got("NULL"))?;
        let next = match (&mut iter.source, iter.reverse) {
            (Source::Ordered(it), false) => it.next(),
            (Source::Ordered(it), true) => it.next_back(),
            (Source::Hashed(it), _) => it.next(),
        };
        iter.entry = next.transpose()?;
        let Some((key, value)) = &iter.entry else { return Ok(false) };
        if entry.is_null() {
            return Err(Error::invalid("entry pointer").got("NULL"));
        }
        let (key_len, value_len) = (key.len(), value.len());
        let view = tdb_entry { key: key.as_ptr(), key_len, value: value.as_ptr(), value_len };
        // SAFETY: as promised by the caller, and not NULL.
        unsafe { entry.write(view) };
        Ok(true)
    };
    // SAFETY: as promised by the caller.
    unsafe { give(found, step) }
}

/// Frees an iterator. NULL is allowed.
///
/// # Safety
/// `iter` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_iter_free(iter: *mut tdb_iter) {
    if !iter.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller frees it once.
        drop(unsafe { Box::from_raw(iter) });
    }
}
