/* A store, a batch over two keyspaces, many gets at once, a scan, a counter, an error. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "terracedb.h"

static void check(tdb_error *error) {
    if (error) {
        fprintf(stderr, "%s\n", tdb_error_message(error));
        tdb_error_free(error);
        exit(1);
    }
}

#define TEXT(text) (const uint8_t *)(text), strlen(text)

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
        return 2;
    }
    tdb_options *options = tdb_options_new();
    tdb_options_set_memory(options, 64 << 20);
    tdb_db *db;
    check(tdb_open(arguments[1], options, &db));
    tdb_options_free(options);

    tdb_keyspace *users, *photos, *visits;
    check(tdb_keyspace_open(db, "users", true, NULL, NULL, &users));
    check(tdb_keyspace_open(db, "photos", true, "keep", NULL, &photos));
    check(tdb_keyspace_open(db, "visits", true, NULL, "terrace.i64-add.1", &visits));

    tdb_batch *batch = tdb_batch_new();
    check(tdb_batch_put(batch, users, TEXT("ada"), TEXT("London")));
    check(tdb_batch_put(batch, users, TEXT("bob"), TEXT("Rome")));
    check(tdb_batch_put(batch, photos, TEXT("sunset.jpg"), TEXT("block 77")));
    check(tdb_write(db, batch, TDB_DURABILITY_SYNC));
    tdb_batch_free(batch);

    const uint8_t *keys[] = {(const uint8_t *)"bob", (const uint8_t *)"eve", (const uint8_t *)"ada"};
    size_t lengths[] = {3, 3, 3};
    tdb_bytes values[3];
    check(tdb_multi_get(users, keys, lengths, 3, values));
    for (int i = 0; i < 3; i++) {
        printf("%s: %.*s\n", (const char *)keys[i], values[i].data ? (int)values[i].len : 1,
               values[i].data ? (const char *)values[i].data : "-");
        tdb_bytes_free(&values[i]);
    }

    int64_t one = 1;
    for (int i = 0; i < 3; i++)
        check(tdb_merge(visits, TEXT("ada"), (const uint8_t *)&one, sizeof one, TDB_DURABILITY_DEFAULT));
    tdb_bytes visited;
    check(tdb_get(visits, TEXT("ada"), &visited));
    int64_t total;
    memcpy(&total, visited.data, sizeof total);
    printf("visits: %lld\n", (long long)total);
    tdb_bytes_free(&visited);

    check(tdb_put(users, TEXT("eve"), TEXT(""), 3600000, TDB_DURABILITY_DEFAULT));
    check(tdb_delete(users, TEXT("bob"), TDB_DURABILITY_DEFAULT));
    tdb_iter *entries;
    check(tdb_iterate(users, NULL, 0, NULL, 0, true, &entries));
    tdb_entry entry;
    bool found;
    for (;;) {
        check(tdb_iter_next(entries, &entry, &found));
        if (!found)
            break;
        printf("%.*s = %.*s\n", (int)entry.key_len, (const char *)entry.key, (int)entry.value_len,
               (const char *)entry.value);
    }
    tdb_iter_free(entries);

    tdb_error *error = tdb_put(users, NULL, 0, TEXT("no key"), 0, TDB_DURABILITY_DEFAULT);
    printf("%d %d %s\n", tdb_error_code(error), tdb_error_retry(error), tdb_error_message(error));
    tdb_error_free(error);

    error = tdb_put(users, TEXT("key"), TEXT("value"), 0, 77);
    printf("%s\n", tdb_error_message(error));
    tdb_error_free(error);
    error = tdb_get(users, TEXT("key"), NULL);
    printf("%s\n", tdb_error_message(error));
    tdb_error_free(error);
    error = tdb_keyspace_open(db, "no such", false, NULL, NULL, &photos);
    printf("%s\n", tdb_error_code(error) == TDB_CODE_NOT_FOUND ? "not found" : "?");
    tdb_error_free(error);

    tdb_keyspace_free(users);
    tdb_keyspace_free(photos);
    tdb_keyspace_free(visits);
    check(tdb_close(db));
    return 0;
}
