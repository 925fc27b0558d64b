/* TerraceDB: a key-value store for machines with little DRAM.
 *
 * Generated from bindings/c/src by cbindgen; bindings/c/README.md has the rules.
 *
 * Ownership: a function that returns a handle or bytes gives them to the caller, who frees them with the
 * function that the comment names. Arguments stay the caller's. A handle may be used from any thread, but an
 * iterator and a batch by one thread at a time.
 *
 * Errors: a function that can fail returns a `tdb_error *`: NULL for success, or an error to be freed with
 * `tdb_error_free`. Results go through pointers, which are untouched after an error.
 */

#ifndef TERRACEDB_H
#define TERRACEDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The kind of an error: what the caller should do.
typedef enum {
  // A temporary condition: try again later.
  TDB_CODE_RETRY = 1,
  // The request, a setting or the environment is wrong.
  TDB_CODE_INVALID = 2,
  // The request names something that does not exist.
  TDB_CODE_NOT_FOUND = 3,
  // The request creates something that exists.
  TDB_CODE_ALREADY_EXISTS = 4,
  // Stored bytes are damaged: run `terrace check`.
  TDB_CODE_CORRUPT = 5,
  // The device is full; deletes still work.
  TDB_CODE_NO_SPACE = 6,
  // An earlier failure makes writes unsafe: open the store again.
  TDB_CODE_POISONED = 7,
  // The store or the keyspace was closed or dropped.
  TDB_CODE_CLOSED = 8,
  // Another write came between: run the transaction again.
  TDB_CODE_CONFLICT = 9,
  // Another open store has the directory: close that one.
  TDB_CODE_LOCKED = 10,
  // The system refuses access to a file or directory.
  TDB_CODE_PERMISSION_DENIED = 11,
  // Another kind, of a newer version.
  TDB_CODE_OTHER = 99,
} tdb_code;

// Whether the same call may succeed if it is made again.
typedef enum {
  // Never: something must change first.
  TDB_RETRY_NEVER = 0,
  // At once.
  TDB_RETRY_NOW = 1,
  // Later: background work or other calls hold what it needs.
  TDB_RETRY_LATER = 2,
} tdb_retry;

// When a write returns.
typedef enum {
  // As the store's setting says.
  TDB_DURABILITY_DEFAULT = 0,
  // When the log holds it in memory that outlives the process.
  TDB_DURABILITY_NONE = 1,
  // As `None`; the log is made durable at least once an interval.
  TDB_DURABILITY_INTERVAL = 2,
  // When it is durable on the device.
  TDB_DURABILITY_SYNC = 3,
  // Not logged: for keyspaces that are windows only.
  TDB_DURABILITY_UNLOGGED = 4,
} tdb_durability;

// Writes that are applied together or not at all. Free it with `tdb_batch_free`.
typedef struct tdb_batch tdb_batch;

// An open store. Close it with `tdb_close`.
typedef struct tdb_db tdb_db;

// An error. Free it with `tdb_error_free`.
typedef struct tdb_error tdb_error;

// An iterator over entries. It reads one state: later writes do not appear. Free it with `tdb_iter_free`.
typedef struct tdb_iter tdb_iter;

// A keyspace of a store. Free it with `tdb_keyspace_free`.
typedef struct tdb_keyspace tdb_keyspace;

// Options of `tdb_open`. Free them with `tdb_options_free`.
typedef struct tdb_options tdb_options;

// The owner of bytes.
typedef struct tdb_owner tdb_owner;

// Bytes that the library gives to the caller, to be freed with `tdb_bytes_free`. `data` is NULL if there is
// no value; an empty value has a `data` that is not NULL and a `len` of 0.
typedef struct {
  // The first byte.
  const uint8_t *data;
  // The number of bytes.
  size_t len;
  // The library's.
  tdb_owner *owner;
} tdb_bytes;

// A view of an entry, which lives until the iterator moves or is freed.
typedef struct {
  // The key.
  const uint8_t *key;
  // Its length.
  size_t key_len;
  // The value.
  const uint8_t *value;
  // Its length.
  size_t value_len;
} tdb_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// An empty batch.
tdb_batch *tdb_batch_new(void);

// Frees a batch. NULL is allowed.
//
// # Safety
// `batch` is NULL or live.
void tdb_batch_free(tdb_batch *batch);

// Adds a put.
//
// # Safety
// `batch` and `keyspace` are live; `key` and `value` point to as many bytes as their lengths say.
tdb_error *tdb_batch_put(tdb_batch *batch,
                         const tdb_keyspace *keyspace,
                         const uint8_t *key,
                         size_t key_len,
                         const uint8_t *value,
                         size_t value_len);

// Adds a delete.
//
// # Safety
// `batch` and `keyspace` are live; `key` points to `key_len` bytes.
tdb_error *tdb_batch_delete(tdb_batch *batch,
                            const tdb_keyspace *keyspace,
                            const uint8_t *key,
                            size_t key_len);

// Applies the batch, and empties it. After an error none of it is applied, and it is as before.
//
// # Safety
// `db` and `batch` are live.
tdb_error *tdb_write(const tdb_db *db, tdb_batch *batch, int durability);

// Frees bytes, and makes them absent. Freeing absent bytes does nothing.
//
// # Safety
// `bytes` is NULL or points to bytes that the library gave.
void tdb_bytes_free(tdb_bytes *bytes);

// The text of an error, which lives as long as the error.
//
// # Safety
// `error` is an error that was not freed.
const char *tdb_error_message(const tdb_error *error);

// The kind of an error.
//
// # Safety
// `error` is an error that was not freed.
tdb_code tdb_error_code(const tdb_error *error);

// Whether the call that failed may succeed if it is made again.
//
// # Safety
// `error` is an error that was not freed.
tdb_retry tdb_error_retry(const tdb_error *error);

// Frees an error. NULL is allowed.
//
// # Safety
// `error` is NULL or an error that was not freed.
void tdb_error_free(tdb_error *error);

// Iterates over the keys from `start` (NULL: the first) up to `stop` (exclusive; NULL: to the end), from the
// end if `reverse`. A hashed keyspace has no key order: it takes neither bounds nor `reverse`.
//
// # Safety
// `keyspace` is live; `start` and `stop` are NULL or point to as many bytes as their lengths say; `out` is
// valid for a write.
tdb_error *tdb_iterate(const tdb_keyspace *keyspace,
                       const uint8_t *start,
                       size_t start_len,
                       const uint8_t *stop,
                       size_t stop_len,
                       bool reverse,
                       tdb_iter **out);

// Moves to the next entry, and gives a view of it; `found` is false at the end, where `entry` is untouched.
//
// # Safety
// `iter` is live, and no other thread uses it; `entry` and `found` are valid for writes.
tdb_error *tdb_iter_next(tdb_iter *iter,
                         tdb_entry *entry,
                         bool *found);

// Frees an iterator. NULL is allowed.
//
// # Safety
// `iter` is NULL or live.
void tdb_iter_free(tdb_iter *iter);

// Options with the defaults.
tdb_options *tdb_options_new(void);

// The limit of everything that the store keeps in memory, bytes.
//
// # Safety
// `options` is NULL or live.
void tdb_options_set_memory(tdb_options *options, uint64_t bytes);

// Whether a store that is missing is created; true by default.
//
// # Safety
// `options` is NULL or live.
void tdb_options_set_create(tdb_options *options, bool create);

// The durability of writes that do not choose their own: a `tdb_durability`.
//
// # Safety
// `options` is NULL or live.
tdb_error *tdb_options_set_durability(tdb_options *options, int durability);

// Frees options. NULL is allowed.
//
// # Safety
// `options` is NULL or live.
void tdb_options_free(tdb_options *options);

// Opens the store in the directory `path`. `options` may be NULL. The store locks the directory until
// `tdb_close`.
//
// # Safety
// `path` ends with a zero byte; `options` is NULL or live; `out` is valid for a write.
tdb_error *tdb_open(const char *path,
                    const tdb_options *options,
                    tdb_db **out);

// Closes the store: every acknowledged write is durable afterwards. The handle is freed, also after an
// error. Free its keyspaces and iterators before: they keep the directory locked. NULL is allowed.
//
// # Safety
// `db` is NULL or live.
tdb_error *tdb_close(tdb_db *db);

// Opens the keyspace `name`, or creates it if `create` is true. `hashed` is NULL for an ordered keyspace, or
// `keep`, or `window=8GiB`. `merge_operator` is NULL or the name of one.
//
// # Safety
// `db` is live; the texts are NULL or end with a zero byte; `out` is valid for a write.
tdb_error *tdb_keyspace_open(const tdb_db *db,
                             const char *name,
                             bool create,
                             const char *hashed,
                             const char *merge_operator,
                             tdb_keyspace **out);

// Frees the handle of a keyspace. NULL is allowed.
//
// # Safety
// `keyspace` is NULL or live.
void tdb_keyspace_free(tdb_keyspace *keyspace);

// Drops the keyspace `name` and all its entries; `existed`, if not NULL, says whether there was one.
//
// # Safety
// `db` is live; `name` ends with a zero byte; `existed` is NULL or valid for a write.
tdb_error *tdb_keyspace_drop(const tdb_db *db,
                             const char *name,
                             bool *existed);

// Sets `key` to `value`. `ttl_ms` of 0 means that the entry does not expire.
//
// # Safety
// `keyspace` is live; `key` and `value` point to as many bytes as their lengths say.
tdb_error *tdb_put(const tdb_keyspace *keyspace,
                   const uint8_t *key,
                   size_t key_len,
                   const uint8_t *value,
                   size_t value_len,
                   uint64_t ttl_ms,
                   int durability);

// Gives the value of `key`; `out->data` is NULL if it has none. Free it with `tdb_bytes_free`.
//
// # Safety
// `keyspace` is live; `key` points to `key_len` bytes; `out` is valid for a write.
tdb_error *tdb_get(const tdb_keyspace *keyspace,
                   const uint8_t *key,
                   size_t key_len,
                   tdb_bytes *out);

// Gives the values of `count` keys to `out[0]` .. `out[count - 1]`: their device reads overlap. After an
// error none is given.
//
// # Safety
// `keyspace` is live; `keys` and `key_lens` have `count` elements; `out` has room for `count` values.
tdb_error *tdb_multi_get(const tdb_keyspace *keyspace,
                         const uint8_t *const *keys,
                         const size_t *key_lens,
                         size_t count,
                         tdb_bytes *out);

// Deletes `key`, whether it has a value or not.
//
// # Safety
// `keyspace` is live; `key` points to `key_len` bytes.
tdb_error *tdb_delete(const tdb_keyspace *keyspace,
                      const uint8_t *key,
                      size_t key_len,
                      int durability);

// Hands `operand` to the keyspace's merge operator.
//
// # Safety
// `keyspace` is live; `key` and `operand` point to as many bytes as their lengths say.
tdb_error *tdb_merge(const tdb_keyspace *keyspace,
                     const uint8_t *key,
                     size_t key_len,
                     const uint8_t *operand,
                     size_t operand_len,
                     int durability);

// Makes every write before it durable.
//
// # Safety
// `db` is live.
tdb_error *tdb_sync(const tdb_db *db);

// Writes the memtables into tables.
//
// # Safety
// `db` is live.
tdb_error *tdb_flush(const tdb_db *db);

// Merges all tables.
//
// # Safety
// `db` is live.
tdb_error *tdb_compact(const tdb_db *db);

// Adds a backup to the directory `path`; `id`, if not NULL, gets its number.
//
// # Safety
// `db` is live; `path` ends with a zero byte; `id` is NULL or valid for a write.
tdb_error *tdb_backup(const tdb_db *db, const char *path, uint64_t *id);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACEDB_H */
