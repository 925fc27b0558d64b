//! Berkeley DB's hash without transactions or a log, which the paper of BufferHash compares with.
//!
//! Debian's build refuses direct I/O (`DB_DIRECT_DB`). The memory control group of the case counts its
//! share of the page cache, so it has no more memory than the other store, and at most what its own cache
//! leaves of the group, some 30 MB, waits for the device. An insert in the stream of chunks finds its page in
//! the cache, because the lookup of the chunk read it, and a later lookup writes it. So the case ends with
//! inserts that no lookup precedes, and a sync, which count what they defer; in every store alike.

#![allow(
    unsafe_code,
    reason = "Berkeley DB is a C library; berkeley.c has the calls and their contracts"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use base::{Error, Result};
use workload::{Counters, Direction, ScanVisitor, Store};

use super::{ForeignError, Opened, Setup, option};

const PAGE_BYTES: u32 = 4096;

/// Bytes of a page that hold no entries, and of an entry beside its key and value, from the documentation of
/// `set_h_ffactor`.
const PAGE_HEAD: u32 = 32;
const ENTRY_HEAD: u32 = 8;

/// The share of the process's memory for the cache. The library allocates a quarter more than it was asked
/// for.
const CACHE_PART: f64 = 0.7;

/// The store of `berkeley.c`.
#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn berkeley_open(
        dir: *const c_char,
        name: *const c_char,
        cache: u64,
        page: u32,
        entries_a_page: u32,
        entries: u32,
        out: *mut *mut Raw,
    ) -> c_int;
    fn berkeley_close(store: *mut Raw) -> c_int;
    fn berkeley_put(
        store: *mut Raw,
        key: *const c_void,
        key_size: u32,
        value: *const c_void,
        value_size: u32,
    ) -> c_int;
    fn berkeley_get(
        store: *mut Raw,
        key: *const c_void,
        key_size: u32,
        found: *mut c_int,
        value: *mut *const c_void,
        value_size: *mut u32,
    ) -> c_int;
    fn berkeley_delete(store: *mut Raw, key: *const c_void, key_size: u32) -> c_int;
    fn berkeley_sync(store: *mut Raw) -> c_int;
    fn berkeley_error(status: c_int) -> *const c_char;
}

/// An open hash. One thread at a time uses it: it has no locks of its own.
struct Handle(NonNull<Raw>);

// SAFETY: the library binds a handle to no thread, and the mutex around it lets one thread in at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nobody uses it after this.
        let status = unsafe { berkeley_close(self.0.as_ptr()) };
        if status != 0 {
            eprintln!("berkeleydb close: {}", text(status));
        }
    }
}

struct Berkeley(Mutex<Handle>);

fn text(status: c_int) -> String {
    // SAFETY: the library returns a string that ends with 0 and stays until the next call.
    unsafe { CStr::from_ptr(berkeley_error(status)) }.to_string_lossy().into_owned()
}

fn check(status: c_int, what: &'static str) -> Result<()> {
    match status {
        0 => Ok(()),
        status => Err(Error::invalid(what).caused_by(ForeignError(text(status)))),
    }
}

/// Opens the hash, made for the entries of the case, with half as many again inserted meanwhile.
pub(super) fn open(setup: &Setup<'_>) -> Result<Opened> {
    let entry = setup.entry_bytes as u32;
    let entries = u32::try_from(setup.data_bytes / setup.entry_bytes.max(1) / 2 * 3);
    let entries = entries.unwrap_or(u32::MAX);
    let entries_a_page = ((PAGE_BYTES - PAGE_HEAD) / (entry + ENTRY_HEAD)).max(1);
    let cache = (setup.memory_bytes as f64 * CACHE_PART) as u64;
    let mut options = Vec::new();
    option(&mut options, "access method", "DB_HASH, no transactions, no log, no locks");
    option(&mut options, "cachesize", cache);
    option(&mut options, "pagesize", PAGE_BYTES);
    option(&mut options, "h_ffactor", entries_a_page);
    option(&mut options, "h_nelem", entries);
    let bad = |_| Error::invalid("directory").at(setup.dir.display());
    let dir = CString::new(setup.dir.as_os_str().as_bytes()).map_err(bad)?;
    let mut raw = ptr::null_mut();
    // SAFETY: the strings end with 0, and `raw` is written before success is returned.
    let status = unsafe {
        berkeley_open(
            dir.as_ptr(),
            c"data.db".as_ptr(),
            cache,
            PAGE_BYTES,
            entries_a_page,
            entries,
            &raw mut raw,
        )
    };
    check(status, "berkeleydb open")?;
    let raw = NonNull::new(raw).ok_or_else(|| Error::invalid("berkeleydb open"))?;
    Ok(Opened { store: Box::new(Berkeley(Mutex::new(Handle(raw)))), options })
}

impl Berkeley {
    fn with<T>(&self, work: impl FnOnce(*mut Raw) -> Result<T>) -> Result<T> {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(handle.0.as_ptr())
    }
}

impl Store for Berkeley {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.with(|store| {
            let (key_at, value_at) = (key.as_ptr().cast(), value.as_ptr().cast());
            // SAFETY: the store is open, and both slices are readable for their lengths.
            let status = unsafe {
                berkeley_put(store, key_at, key.len() as u32, value_at, value.len() as u32)
            };
            check(status, "berkeleydb put")
        })?;
        if sync { self.flush() } else { Ok(()) }
    }

    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.with(|store| {
            let (mut found, mut value, mut size) = (0, ptr::null(), 0);
            // SAFETY: the store is open, the key is readable for its length, and the rest is written.
            let status = unsafe {
                berkeley_get(
                    store,
                    key.as_ptr().cast(),
                    key.len() as u32,
                    &raw mut found,
                    &raw mut value,
                    &raw mut size,
                )
            };
            check(status, "berkeleydb get")?;
            if found != 0 {
                let value: *const u8 =
                    if size == 0 { NonNull::dangling().as_ptr() } else { value.cast() };
                // SAFETY: the library holds `size` bytes of the value until the next call, which the lock
                // keeps out.
                visit(unsafe { std::slice::from_raw_parts(value, size as usize) });
            }
            Ok(found != 0)
        })
    }

    fn delete(&self, key: &[u8], sync: bool) -> Result<()> {
        self.with(|store| {
            // SAFETY: the store is open, and the key is readable for its length.
            let status = unsafe { berkeley_delete(store, key.as_ptr().cast(), key.len() as u32) };
            check(status, "berkeleydb del")
        })?;
        if sync { self.flush() } else { Ok(()) }
    }

    fn scan(
        &self,
        _from: Option<&[u8]>,
        _direction: Direction,
        _limit: usize,
        _visit: &mut ScanVisitor<'_>,
    ) -> Result<usize> {
        Err(Error::invalid("scan").expected("a store with an order of keys").got("a hash"))
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: the store is open.
        self.with(|store| check(unsafe { berkeley_sync(store) }, "berkeleydb sync"))
    }

    /// There is no background work.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Pages are updated in place, so there is nothing to merge.
    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
