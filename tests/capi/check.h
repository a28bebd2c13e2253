/* What the parts of the test program share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "esker.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,        \
                    esker_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == 0)

static inline esker_bytes B(const char *text)
{
    esker_bytes bytes = {(const uint8_t *)text, strlen(text)};
    return bytes;
}

static inline int is(const uint8_t *data, size_t len, const char *text)
{
    return len == strlen(text) && !memcmp(data, text, len);
}

/* Checks a buffer and gives it back. */
static inline int holds(esker_buf *buf, const char *text)
{
    int same = is(buf->data, buf->len, text);
    esker_buf_free(buf);
    return same;
}

static inline esker_cid pg(int64_t pool, uint32_t seed)
{
    esker_cid cid = {pool, seed, ESKER_NO_SHARD, ESKER_CID_HEAD};
    return cid;
}

static inline esker_oid object(int64_t pool, uint32_t hash, const char *name)
{
    esker_oid oid = {0};
    oid.pool = pool;
    oid.snap = ESKER_NO_SNAP;
    oid.gen = ESKER_NO_GEN;
    oid.hash = hash;
    oid.shard = ESKER_NO_SHARD;
    oid.name = B(name);
    return oid;
}

/* Visitors write what they see to a text, entries behind one another. */
struct seen {
    char text[512];
    size_t len;
};

void see(struct seen *seen, const void *data, size_t len);
void see_bytes(void *seen, const esker_bytes *bytes);
void see_pair(void *seen, const esker_bytes *key, const esker_bytes *value);
void see_range(void *seen, uint64_t offset, uint64_t len);

/* Applies a transaction and empties it. */
void apply(esker_store *store, esker_coll *coll, esker_txn *txn);
/* A collection of pool 1 with 8 bits and this seed, made if it is not there. */
esker_coll *collection(esker_store *store, uint32_t seed);

void test_names(void);
esker_store *test_create(const char *folder);
void test_key_value(esker_store *store);
void test_objects(esker_store *store);
void test_omap(esker_store *store);
void test_tables(esker_store *store);
void test_callbacks(esker_store *store);
void test_collections(esker_store *store);
void test_misuse(esker_store *store);
void test_reopen(esker_store *store, const char *folder);

#endif
