/* The few calls of Berkeley DB that the comparison needs. Its C interface is a structure of function pointers
 * whose layout depends on how the library was built, so a compiler reads it from db.h. */

#include <db.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct berkeley {
	DB_ENV *env;
	DB *db;
};

/* Closes what is open; returns the first error. */
int berkeley_close(struct berkeley *store) {
	int status = 0, closed;
	if (store->db != NULL)
		status = store->db->close(store->db, 0);
	if (store->env != NULL && (closed = store->env->close(store->env, 0)) != 0 && status == 0)
		status = closed;
	free(store);
	return status;
}

/* Opens or makes the hash `name` in `dir`, with a cache of `cache` bytes. `page`, `entries_a_page`
 * and `entries` are used when it is made. */
int berkeley_open(const char *dir, const char *name, uint64_t cache, uint32_t page, uint32_t entries_a_page,
		uint32_t entries, struct berkeley **out) {
	struct berkeley *store = calloc(1, sizeof *store);
	int status;
	if (store == NULL)
		return -1;
	if ((status = db_env_create(&store->env, 0)) != 0)
		goto failed;
	if ((status = store->env->set_cachesize(store->env, (uint32_t)(cache >> 30),
			(uint32_t)(cache & ((1u << 30) - 1)), 1)) != 0)
		goto failed;
	if ((status = store->env->open(store->env, dir, DB_CREATE | DB_INIT_MPOOL | DB_PRIVATE, 0)) != 0)
		goto failed;
	if ((status = db_create(&store->db, store->env, 0)) != 0)
		goto failed;
	if ((status = store->db->set_pagesize(store->db, page)) != 0 ||
			(status = store->db->set_h_ffactor(store->db, entries_a_page)) != 0 ||
			(status = store->db->set_h_nelem(store->db, entries)) != 0)
		goto failed;
	if ((status = store->db->open(store->db, NULL, name, NULL, DB_HASH, DB_CREATE, 0600)) != 0)
		goto failed;
	*out = store;
	return 0;
failed:
	berkeley_close(store);
	return status;
}

static DBT bytes(const void *data, uint32_t size) {
	DBT dbt;
	memset(&dbt, 0, sizeof dbt);
	dbt.data = (void *)data;
	dbt.size = size;
	return dbt;
}

int berkeley_put(struct berkeley *store, const void *key, uint32_t key_size, const void *value,
		uint32_t value_size) {
	DBT k = bytes(key, key_size), v = bytes(value, value_size);
	return store->db->put(store->db, NULL, &k, &v, 0);
}

/* Sets `found`. The value lies in memory of the library until the next call. */
int berkeley_get(struct berkeley *store, const void *key, uint32_t key_size, int *found,
		const void **value, uint32_t *value_size) {
	DBT k = bytes(key, key_size), v = bytes(NULL, 0);
	int status = store->db->get(store->db, NULL, &k, &v, 0);
	*found = status == 0;
	*value = v.data;
	*value_size = v.size;
	return status == DB_NOTFOUND ? 0 : status;
}

int berkeley_delete(struct berkeley *store, const void *key, uint32_t key_size) {
	DBT k = bytes(key, key_size);
	int status = store->db->del(store->db, NULL, &k, 0);
	return status == DB_NOTFOUND ? 0 : status;
}

int berkeley_sync(struct berkeley *store) {
	return store->db->sync(store->db, 0);
}

const char *berkeley_error(int status) {
	return db_strerror(status);
}
