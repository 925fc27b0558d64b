//! Stores and keyspaces.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use terracedb::tools::Backup;
use terracedb::{
    Db, Durability, Error, Keyspace, KeyspaceOptions, PutOptions, Result, WriteOptions,
};

use crate::bytes::{slice, tdb_bytes};
use crate::error::{done, give, tdb_error};

/// Options of `tdb_open`. Free them with `tdb_options_free`.
#[derive(Default)]
pub struct tdb_options {
    memory: Option<u64>,
    must_exist: bool,
    durability: Option<Durability>,
}

/// An open store. Close it with `tdb_close`.
pub struct tdb_db(pub(crate) Db);

/// A keyspace of a store. Free it with `tdb_keyspace_free`.
pub struct tdb_keyspace(pub(crate) Keyspace);

/// When a write returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum tdb_durability {
    /// As the store's setting says.
    Default = 0,
    /// When the log holds it in memory that outlives the process.
    None = 1,
    /// As `None`; the log is made durable at least once an interval.
    Interval = 2,
    /// When it is durable on the device.
    Sync = 3,
    /// Not logged: for keyspaces that are windows only.
    Unlogged = 4,
}

/// The durability with the number `number`, which a caller may get wrong; `None` for the store's default.
fn durability_of(number: c_int) -> Result<Option<Durability>> {
    const DEFAULT: c_int = tdb_durability::Default as c_int;
    const NONE: c_int = tdb_durability::None as c_int;
    const INTERVAL: c_int = tdb_durability::Interval as c_int;
    const SYNC: c_int = tdb_durability::Sync as c_int;
    const UNLOGGED: c_int = tdb_durability::Unlogged as c_int;
    Ok(match number {
        DEFAULT => None,
        NONE => Some(Durability::None),
        INTERVAL => Some(Durability::Interval),
        SYNC => Some(Durability::Sync),
        UNLOGGED => Some(Durability::Unlogged),
        other => return Err(Error::invalid("durability").expected("a tdb_durability").got(other)),
    })
}

/// The options of a write with the durability `number`.
pub(crate) fn write_options(number: c_int) -> Result<WriteOptions> {
    let options = WriteOptions::new();
    Ok(durability_of(number)?.map_or(options, |durability| options.durability(durability)))
}

/// The text at `text`.
///
/// # Safety
/// `text` is NULL or ends with a zero byte.
unsafe fn text<'a>(text: *const c_char, name: &'static str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::invalid(name).expected("text").got("NULL"));
    }
    // SAFETY: as promised by the caller, and not NULL.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|error| Error::invalid(name).expected("UTF-8").caused_by(error))
}

/// The object behind `handle`, or an error that names it.
///
/// # Safety
/// `handle` is NULL or a live handle.
pub(crate) unsafe fn live<'a, T>(handle: *const T, name: &'static str) -> Result<&'a T> {
    // SAFETY: as promised by the caller.
    unsafe { handle.as_ref() }.ok_or_else(|| Error::invalid(name).got("NULL"))
}

/// Options with the defaults.
#[unsafe(no_mangle)]
pub extern "C" fn tdb_options_new() -> *mut tdb_options {
    Box::into_raw(Box::default())
}

/// The limit of everything that the store keeps in memory, bytes.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_options_set_memory(options: *mut tdb_options, bytes: u64) {
    // SAFETY: as promised by the caller.
    if let Some(options) = unsafe { options.as_mut() } {
        options.memory = Some(bytes);
    }
}

/// Whether a store that is missing is created; true by default.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_options_set_create(options: *mut tdb_options, create: bool) {
    // SAFETY: as promised by the caller.
    if let Some(options) = unsafe { options.as_mut() } {
        options.must_exist = !create;
    }
}

/// The durability of writes that do not choose their own: a `tdb_durability`.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_options_set_durability(
    options: *mut tdb_options,
    durability: c_int,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let options = unsafe { options.as_mut() };
    done(durability_of(durability).map(|durability| {
        if let Some(options) = options {
            options.durability = durability;
        }
    }))
}

/// Frees options. NULL is allowed.
///
/// # Safety
/// `options` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_options_free(options: *mut tdb_options) {
    if !options.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller frees it once.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Opens the store in the directory `path`. `options` may be NULL. The store locks the directory until
/// `tdb_close`.
///
/// # Safety
/// `path` ends with a zero byte; `options` is NULL or live; `out` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_open(
    path: *const c_char,
    options: *const tdb_options,
    out: *mut *mut tdb_db,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let options = unsafe { options.as_ref() };
    if path.is_null() {
        return tdb_error::raw(&Error::invalid("path").expected("text").got("NULL"));
    }
    // SAFETY: as promised by the caller, and not NULL.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    let mut builder = Db::builder(path);
    if let Some(options) = options {
        builder = builder.create_if_missing(!options.must_exist);
        if let Some(bytes) = options.memory {
            builder = builder.memory(bytes);
        }
        if let Some(durability) = options.durability {
            builder = builder.durability(durability);
        }
    }
    let open = || builder.open().map(|db| Box::into_raw(Box::new(tdb_db(db))));
    // SAFETY: as promised by the caller.
    unsafe { give(out, open) }
}

/// Closes the store: every acknowledged write is durable afterwards. The handle is freed, also after an
/// error. Free its keyspaces and iterators before: they keep the directory locked. NULL is allowed.
///
/// # Safety
/// `db` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_close(db: *mut tdb_db) -> *mut tdb_error {
    if db.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: it came from `Box::into_raw`, and the caller closes it once.
    let db = unsafe { Box::from_raw(db) };
    done(db.0.close())
}

/// Opens the keyspace `name`, or creates it if `create` is true. `hashed` is NULL for an ordered keyspace, or
/// `keep`, or `window=8GiB`. `merge_operator` is NULL or the name of one.
///
/// # Safety
/// `db` is live; the texts are NULL or end with a zero byte; `out` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_keyspace_open(
    db: *const tdb_db,
    name: *const c_char,
    create: bool,
    hashed: *const c_char,
    merge_operator: *const c_char,
    out: *mut *mut tdb_keyspace,
) -> *mut tdb_error {
    let open = || {
        // SAFETY: as promised by the caller.
        let (db, name) = unsafe { (live(db, "store")?, text(name, "keyspace name")?) };
        if !create {
            return db.0.keyspace(name);
        }
        let mut options = KeyspaceOptions::new();
        if !hashed.is_null() {
            // SAFETY: as promised by the caller.
            options = options.hashed(unsafe { text(hashed, "policy") }?.parse()?);
        }
        if !merge_operator.is_null() {
            // SAFETY: as promised by the caller.
            options = options.merge_operator(unsafe { text(merge_operator, "merge operator") }?);
        }
        db.0.open_or_create_keyspace_opt(name, &options)
    };
    let boxed = |keyspace| Box::into_raw(Box::new(tdb_keyspace(keyspace)));
    // SAFETY: as promised by the caller.
    unsafe { give(out, || open().map(boxed)) }
}

/// Frees the handle of a keyspace. NULL is allowed.
///
/// # Safety
/// `keyspace` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_keyspace_free(keyspace: *mut tdb_keyspace) {
    if !keyspace.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller frees it once.
        drop(unsafe { Box::from_raw(keyspace) });
    }
}

/// Drops the keyspace `name` and all its entries; `existed`, if not NULL, says whether there was one.
///
/// # Safety
/// `db` is live; `name` ends with a zero byte; `existed` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_keyspace_drop(
    db: *const tdb_db,
    name: *const c_char,
    existed: *mut bool,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let drop_it = || {
        // SAFETY: as promised by the caller.
        let (db, name) = unsafe { (live(db, "store")?, text(name, "keyspace name")?) };
        db.0.drop_keyspace(name)
    };
    let mut unused = false;
    // SAFETY: as promised by the caller, or a local.
    unsafe { give(if existed.is_null() { &raw mut unused } else { existed }, drop_it) }
}

/// Sets `key` to `value`. `ttl_ms` of 0 means that the entry does not expire.
///
/// # Safety
/// `keyspace` is live; `key` and `value` point to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_put(
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    ttl_ms: u64,
    durability: c_int,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (key, value) = unsafe { (slice(key, key_len), slice(value, value_len)) };
    let put = || {
        let write = write_options(durability)?;
        let options = match ttl_ms {
            0 => PutOptions::from(write),
            ms => write.ttl(Duration::from_millis(ms)),
        };
        // SAFETY: as promised by the caller.
        unsafe { live(keyspace, "keyspace") }?.0.put_opt(key, value, &options)
    };
    done(put())
}

/// Gives the value of `key`; `out->data` is NULL if it has none. Free it with `tdb_bytes_free`.
///
/// # Safety
/// `keyspace` is live; `key` points to `key_len` bytes; `out` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_get(
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
    out: *mut tdb_bytes,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (keyspace, key) = unsafe { (live(keyspace, "keyspace"), slice(key, key_len)) };
    // SAFETY: as promised by the caller.
    unsafe { give(out, || keyspace?.0.get(key).map(tdb_bytes::new)) }
}

/// Gives the values of `count` keys to `out[0]` .. `out[count - 1]`: their device reads overlap. After an
/// error none is given.
///
/// # Safety
/// `keyspace` is live; `keys` and `key_lens` have `count` elements; `out` has room for `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_multi_get(
    keyspace: *const tdb_keyspace,
    keys: *const *const u8,
    key_lens: *const usize,
    count: usize,
    out: *mut tdb_bytes,
) -> *mut tdb_error {
    if count == 0 {
        return std::ptr::null_mut();
    }
    if keys.is_null() || key_lens.is_null() || out.is_null() {
        return tdb_error::raw(&Error::invalid("array of a multi-get").got("NULL"));
    }
    // SAFETY: as promised by the caller, and not NULL.
    let (keys, lens) = unsafe {
        (std::slice::from_raw_parts(keys, count), std::slice::from_raw_parts(key_lens, count))
    };
    // SAFETY: as promised by the caller.
    let keys: Vec<&[u8]> =
        keys.iter().zip(lens).map(|(key, len)| unsafe { slice(*key, *len) }).collect();
    // SAFETY: as promised by the caller.
    let values = unsafe { live(keyspace, "keyspace") }
        .and_then(|keyspace| keyspace.0.multi_get(&keys)?.into_iter().collect::<Result<Vec<_>>>());
    match values {
        Err(error) => tdb_error::raw(&error),
        Ok(values) => {
            for (number, value) in values.into_iter().enumerate() {
                // SAFETY: `out` has room for `count` values, and there are as many.
                unsafe { out.add(number).write(tdb_bytes::new(value)) };
            }
            std::ptr::null_mut()
        }
    }
}

/// Deletes `key`, whether it has a value or not.
///
/// # Safety
/// `keyspace` is live; `key` points to `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_delete(
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
    durability: c_int,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (keyspace, key) = unsafe { (live(keyspace, "keyspace"), slice(key, key_len)) };
    done(keyspace.and_then(|it| it.0.delete_opt(key, &write_options(durability)?)))
}

/// Hands `operand` to the keyspace's merge operator.
///
/// # Safety
/// `keyspace` is live; `key` and `operand` point to as many bytes as their lengths say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_merge(
    keyspace: *const tdb_keyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    durability: c_int,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let (key, operand) = unsafe { (slice(key, key_len), slice(operand, operand_len)) };
    // SAFETY: as promised by the caller.
    let keyspace = unsafe { live(keyspace, "keyspace") };
    done(keyspace.and_then(|it| it.0.merge_opt(key, operand, &write_options(durability)?)))
}

/// Makes every write before it durable.
///
/// # Safety
/// `db` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_sync(db: *const tdb_db) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    done(unsafe { live(db, "store") }.and_then(|db| db.0.sync()))
}

/// Writes the memtables into tables.
///
/// # Safety
/// `db` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_flush(db: *const tdb_db) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    done(unsafe { live(db, "store") }.and_then(|db| db.0.flush()))
}

/// Merges all tables.
///
/// # Safety
/// `db` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_compact(db: *const tdb_db) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    done(unsafe { live(db, "store") }.and_then(|db| db.0.compact()))
}

/// Adds a backup to the directory `path`; `id`, if not NULL, gets its number.
///
/// # Safety
/// `db` is live; `path` ends with a zero byte; `id` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tdb_backup(
    db: *const tdb_db,
    path: *const c_char,
    id: *mut u64,
) -> *mut tdb_error {
    // SAFETY: as promised by the caller.
    let make = || {
        // SAFETY: as promised by the caller.
        let (db, path) = unsafe { (live(db, "store")?, text(path, "path")?) };
        Backup::open(path)?.create(&db.0, "").map(|report| report.id)
    };
    let mut unused = 0;
    // SAFETY: as promised by the caller, or a local.
    unsafe { give(if id.is_null() { &raw mut unused } else { id }, make) }
}
