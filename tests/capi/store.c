/* Names, the store as a whole, key-value entries, misuse. */
#include "check.h"

void see(struct seen *seen, const void *data, size_t len)
{
    CHECK(seen->len + len < sizeof seen->text);
    memcpy(seen->text + seen->len, data, len);
    seen->len += len;
    seen->text[seen->len] = 0;
}

void see_bytes(void *seen, const esker_bytes *bytes)
{
    see(seen, bytes->data, bytes->len);
    see(seen, " ", 1);
}

void see_pair(void *seen, const esker_bytes *key, const esker_bytes *value)
{
    see(seen, key->data, key->len);
    see(seen, "=", 1);
    see_bytes(seen, value);
}

void see_range(void *seen, uint64_t offset, uint64_t len)
{
    char text[64];
    see(seen, text, (size_t)snprintf(text, sizeof text, "%llu~%llu ", (unsigned long long)offset,
                                     (unsigned long long)len));
}

void test_names(void)
{
    const char *names[] = {"meta", "1.2f_head", "1.2fs3_head", "7.0_TEMP"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        esker_cid cid;
        char text[ESKER_CID_TEXT];
        OK(esker_cid_parse(names[i], strlen(names[i]), &cid));
        CHECK(esker_cid_format(&cid, text) == (int)strlen(names[i]));
        CHECK(strcmp(text, names[i]) == 0);
    }
    esker_cid widest = {INT64_MAX, UINT32_MAX, INT8_MAX, ESKER_CID_HEAD};
    char text[ESKER_CID_TEXT];
    CHECK(esker_cid_format(&widest, text) > 0);
    CHECK(esker_cid_parse("1.2F_head", 9, &widest) == -EINVAL);
    CHECK(esker_cid_parse("\xff", 1, &widest) == -EINVAL);

    /* The hash orders with its bits reversed. */
    esker_oid a = object(1, 0x80000000, "a"), b = object(1, 1, "b"), max = {0};
    max.max = 1;
    CHECK(esker_oid_compare(&a, &b) < 0);
    CHECK(esker_oid_compare(&b, &a) > 0);
    CHECK(esker_oid_compare(&a, &a) == 0);
    CHECK(esker_oid_compare(&b, &max) < 0);
}

static void path_in(const char *folder, char *path, size_t max)
{
    CHECK((size_t)snprintf(path, max, "%s/capi.esker", folder) < max);
}

esker_store *test_create(const char *folder)
{
    char path[512];
    esker_store *store = NULL;
    esker_options *options = NULL;
    path_in(folder, path, sizeof path);

    CHECK(esker_open(path, NULL, &store) == -ENOENT);
    CHECK(store == NULL && strlen(esker_last_error()) > 0);
    OK(esker_options_new(&options));
    CHECK(esker_options_set(options, "no such option", 1) == -EINVAL);
    CHECK(esker_options_set(options, NULL, 1) == -EINVAL);
    const char *settings[] = {"buffered", "read_only", "direct_io", "io_uring"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        OK(esker_options_set(options, settings[i], 1));
        OK(esker_options_set(options, settings[i], 0));
    }
    OK(esker_options_set(options, "capacity", 128 << 20));
    OK(esker_options_set(options, "segment_bytes", 1 << 20));
    OK(esker_options_set(options, "cache_bytes", 1 << 20));
    OK(esker_options_set(options, "memory_limit", 1ull << 40));
    OK(esker_options_set(options, "discard_bytes_per_second", 0));
    OK(esker_options_set(options, "checkpoint_interval_bytes", 32 << 20));
    OK(esker_create(path, options, &store));
    esker_store *again = NULL;
    CHECK(esker_create(path, options, &again) < 0 && again == NULL);
    CHECK(esker_open(path, NULL, &again) == -EBUSY && again == NULL);
    CHECK(esker_in_use(path) == 1);
    esker_options_free(options);
    return store;
}

static void count_pair(void *count, const esker_bytes *key, const esker_bytes *value)
{
    CHECK(key->len == 4 && value->len == 1);
    ++*(unsigned *)count;
}

void test_key_value(esker_store *store)
{
    esker_buf buf = {0};
    esker_bytes nothing = {NULL, 0};
    OK(esker_put(store, B("key"), B("value")));
    OK(esker_get(store, B("key"), &buf));
    CHECK(holds(&buf, "value"));
    CHECK(buf.data == NULL);
    OK(esker_put(store, nothing, nothing));
    OK(esker_get(store, nothing, &buf));
    CHECK(holds(&buf, ""));
    CHECK(esker_contains(store, B("key")) == 1);
    CHECK(esker_delete(store, B("key")) == 1);
    CHECK(esker_delete(store, B("key")) == 0);
    CHECK(esker_delete(store, nothing) == 1);
    CHECK(esker_contains(store, B("key")) == 0);
    CHECK(esker_get(store, B("key"), &buf) == -ENOENT);
    esker_buf_free(&buf);

    esker_batch *batch = NULL;
    OK(esker_batch_new(&batch));
    for (int i = 0; i < 1000; i++) {
        char key[5];
        snprintf(key, sizeof key, "%04d", i);
        OK(esker_batch_put(batch, B(key), B("x")));
    }
    OK(esker_batch_delete(batch, B("0000")));
    OK(esker_batch_write(store, batch));
    OK(esker_batch_write(store, batch));
    esker_batch_free(batch);

    uint64_t cursor = 0;
    unsigned count = 0, pages = 0;
    int more;
    do {
        more = esker_scan(store, &cursor, 100, count_pair, &count);
        CHECK(more >= 0);
        pages++;
    } while (more);
    CHECK(count == 999 && pages > 1);
    CHECK(esker_scan(store, &cursor, 100, count_pair, &count) == 0 && count == 999);

    OK(esker_sync(store));
    OK(esker_checkpoint(store));
    OK(esker_set_cache_bytes(store, 2 << 20));
    OK(esker_stats(store, &buf));
    CHECK(buf.len > 2 && buf.data[0] == '{');
    esker_buf_free(&buf);
    /* Twice is harmless, and so is nothing. */
    esker_buf_free(&buf);
    esker_buf_free(NULL);
}

void test_misuse(esker_store *store)
{
    esker_coll *coll = collection(store, 1);
    esker_oid oid = object(1, 1, "misused");
    esker_cid cid = pg(1, 1), bad = {-1, 0, ESKER_NO_SHARD, ESKER_CID_HEAD}, odd = {0, 0, 0, 9};
    esker_bytes broken = {NULL, 1};
    esker_buf buf = {0};
    uint64_t size;
    esker_txn *txn = NULL;

    CHECK(esker_put(NULL, B("a"), B("b")) == -EINVAL);
    CHECK(esker_put(store, broken, B("b")) == -EINVAL);
    CHECK(esker_get(store, B("a"), NULL) == -EINVAL);
    CHECK(esker_options_new(NULL) == -EINVAL);
    CHECK(esker_create(NULL, NULL, NULL) == -EINVAL);
    CHECK(esker_stat(coll, NULL, &size) == -EINVAL);
    CHECK(esker_stat(NULL, &oid, &size) == -EINVAL);
    CHECK(esker_stat(coll, &oid, NULL) == -EINVAL);
    CHECK(esker_coll_open(store, &bad, &coll) == -EINVAL);
    CHECK(esker_coll_open(store, &odd, &coll) == -EINVAL);
    CHECK(esker_coll_list(store, NULL, NULL) == -EINVAL);
    OK(esker_txn_new(&txn));
    CHECK(esker_txn_append(txn, txn) == -EINVAL);
    CHECK(esker_txn_write(txn, &cid, &oid, 0, NULL, 1) == -EINVAL);
    CHECK(esker_txn_touch(txn, &odd, &oid) == -EINVAL);
    CHECK(esker_txn_ops(txn) == 0);
    CHECK(esker_queue(store, NULL, txn, NULL, NULL, NULL) == -EINVAL);
    CHECK(esker_apply(store, coll, NULL) == -EINVAL);
    CHECK(esker_submit(store, coll, NULL, 1, NULL, NULL, NULL) == -EINVAL);
    CHECK(esker_check("/", 4, NULL, NULL) == -EINVAL);
    CHECK(esker_close(store) == -EBUSY);
    esker_txn_free(txn);
    esker_txn_free(NULL);
    esker_batch_free(NULL);
    esker_options_free(NULL);
    esker_iter_free(NULL);
    esker_page_free(NULL);
    esker_coll_close(NULL);
    OK(esker_close(NULL));
    CHECK(esker_page_count(NULL) == 0);
    esker_buf_free(&buf);
    esker_coll_close(coll);
}

void test_reopen(esker_store *store, const char *folder)
{
    char path[512];
    struct seen findings = {0};
    esker_buf buf = {0};
    esker_options *options = NULL;
    esker_oid kept = object(1, 1, "kept");
    path_in(folder, path, sizeof path);

    esker_coll *coll = collection(store, 1);
    esker_txn *txn = NULL;
    esker_cid cid = pg(1, 1);
    esker_bytes data = B("over a close");
    OK(esker_txn_new(&txn));
    OK(esker_txn_write(txn, &cid, &kept, 0, &data, 1));
    /* Queued, not waited for: a close commits it. */
    OK(esker_queue(store, coll, txn, NULL, NULL, NULL));
    esker_txn_free(txn);
    esker_coll_close(coll);
    OK(esker_close(store));

    CHECK(esker_in_use(path) == 0);
    CHECK(esker_in_use("/nowhere/at all") == -ENOENT);
    CHECK(esker_check(path, ESKER_CHECK_DEEP, see_bytes, &findings) == 0);
    CHECK(findings.len == 0);
    CHECK(esker_check(path, ESKER_CHECK_REPAIR, NULL, NULL) == 0);

    OK(esker_options_new(&options));
    OK(esker_options_set(options, "read_only", 1));
    OK(esker_open(path, options, &store));
    esker_options_free(options);
    OK(esker_coll_open(store, &cid, &coll));
    OK(esker_read(coll, &kept, 0, 0, &buf));
    CHECK(esker_put(store, B("a"), B("b")) == -EROFS);
    esker_coll_close(coll);
    OK(esker_close(store));
    /* A buffer outlives the store. */
    CHECK(holds(&buf, "over a close"));
}
