/* Flat tables, callbacks, and collections that come, split, merge and go. */
#include "check.h"

#include <pthread.h>

/* The callbacks of one collection, in the order they came. */
struct calls {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned applied, committed;
    pthread_t caller;
};

struct call {
    struct calls *calls;
    unsigned number;
};

static void on_applied(void *ctx, int result)
{
    struct call *call = ctx;
    CHECK(result == 0);
    pthread_mutex_lock(&call->calls->lock);
    CHECK(call->calls->applied++ == call->number);
    pthread_mutex_unlock(&call->calls->lock);
}

static void on_commit(void *ctx, int result)
{
    struct call *call = ctx;
    CHECK(result == 0);
    CHECK(!pthread_equal(pthread_self(), call->calls->caller));
    pthread_mutex_lock(&call->calls->lock);
    CHECK(call->calls->committed == call->number);
    CHECK(call->calls->applied > call->number);
    call->calls->committed++;
    pthread_cond_signal(&call->calls->changed);
    pthread_mutex_unlock(&call->calls->lock);
}

static void never(void *ctx, int result)
{
    (void)ctx;
    (void)result;
    CHECK(!"a callback of a call that failed");
}

static void on_flushed(void *ctx, int result)
{
    struct calls *calls = ctx;
    CHECK(result == 0);
    pthread_mutex_lock(&calls->lock);
    calls->committed++;
    pthread_cond_signal(&calls->changed);
    pthread_mutex_unlock(&calls->lock);
}

static void wait_for(struct calls *calls, unsigned committed)
{
    pthread_mutex_lock(&calls->lock);
    while (calls->committed < committed)
        pthread_cond_wait(&calls->changed, &calls->lock);
    pthread_mutex_unlock(&calls->lock);
}

enum { CALLS = 64 };

void test_callbacks(esker_store *store)
{
    esker_coll *coll = collection(store, 2);
    const esker_cid cid = pg(1, 2);
    const esker_oid o = object(1, 2, "called");
    struct calls calls = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, pthread_self()};
    struct call call[CALLS];
    esker_txn *txn = NULL;

    OK(esker_txn_new(&txn));
    for (unsigned i = 0; i < CALLS; i++) {
        char text[16];
        snprintf(text, sizeof text, "%08u", i);
        const esker_bytes data = B(text);
        call[i].calls = &calls;
        call[i].number = i;
        OK(esker_txn_write(txn, &cid, &o, 0, &data, 1));
        OK(esker_queue(store, coll, txn, on_applied, on_commit, &call[i]));
        OK(esker_txn_clear(txn));
        /* Readable as soon as it is queued. */
        esker_buf buf = {0};
        OK(esker_read(coll, &o, 0, 0, &buf));
        CHECK(holds(&buf, text));
    }
    wait_for(&calls, CALLS);

    OK(esker_txn_omap_setheader(txn, &cid, &(esker_oid){.name = B("nobody")}, B("")));
    CHECK(esker_queue(store, coll, txn, never, never, NULL) == -ENOENT);
    OK(esker_txn_clear(txn));

    /* An empty one commits, too. */
    call[0].number = CALLS;
    OK(esker_queue(store, coll, txn, on_applied, on_commit, &call[0]));
    OK(esker_coll_flush(coll));
    wait_for(&calls, CALLS + 1);
    int idle = esker_coll_flush_commit(coll, on_flushed, &calls);
    CHECK(idle == 0 || idle == 1);
    if (!idle)
        wait_for(&calls, CALLS + 2);
    esker_txn_free(txn);
    esker_coll_close(coll);
}

/* Rows for the operations with an object or two; the rest is 0. */
static esker_op row(uint32_t op, uint32_t oid, uint32_t dest_oid)
{
    esker_op made = {0};
    made.op = op;
    made.oid = oid;
    made.dest_oid = dest_oid;
    return made;
}

static esker_op with(esker_op made, const esker_bytes *bytes, size_t count)
{
    made.bytes = bytes;
    made.bytes_count = count;
    return made;
}

static esker_op range(esker_op made, uint64_t offset, uint64_t len, uint64_t dest_offset)
{
    made.offset = offset;
    made.len = len;
    made.dest_offset = dest_offset;
    return made;
}

static esker_op flags(esker_op made, uint32_t value, uint32_t cid, uint32_t dest_cid)
{
    made.flags = value;
    made.cid = cid;
    made.dest_cid = dest_cid;
    return made;
}

static void submit(esker_store *store, esker_coll *coll, esker_table *table, const esker_op *ops,
                   size_t count)
{
    table->ops = ops;
    table->op_count = count;
    OK(esker_submit(store, coll, table, 1, NULL, NULL, NULL));
}

void test_tables(esker_store *store)
{
    /* Two keys and values, cut in the middle of the second key. */
    static const char map1[] = "\2\0\0\0\2\0\0\0k1\1\0\0\0v\2\0\0\0k", map2[] = "2\0\0\0\0";
    static const char set[] = "\1\0\0\0\2\0\0\0k1";
    const esker_bytes map[] = {{(const uint8_t *)map1, sizeof map1 - 1},
                               {(const uint8_t *)map2, sizeof map2 - 1}};
    const esker_bytes encoded_set = {(const uint8_t *)set, sizeof set - 1};
    const esker_bytes pieces[] = {B("da"), B("ta")}, attr[] = {B("n"), B("v")};
    const esker_bytes key_range[] = {B("a"), B("b")};
    const esker_cid cids[] = {pg(2, 0), pg(2, 1)};
    const esker_oid oids[] = {object(2, 0, "p"), object(2, 0, "q"), object(2, 0, "r"),
                              object(2, 1, "s")};
    esker_table table = {cids, 2, oids, 4, NULL, 0};
    esker_coll *coll = NULL, *other = NULL;
    esker_buf buf = {0};
    struct seen seen = {0};
    OK(esker_coll_create(store, &cids[0], &coll));

    const esker_op create[] = {
        row(0, 0, 0),
        flags(row(20, 0, 0), 0, 0, 0),
        with(flags(row(40, 0, 0), 1, 0, 0), pieces, 1),
        row(7, 0, 0),
        row(9, 3, 0),
        with(range(row(10, 0, 0), 1, 0, 0), pieces, 2),
        range(row(11, 0, 0), 1, 1, 0),
        range(row(12, 0, 0), 4, 0, 0),
        with(row(14, 0, 0), attr, 2),
        with(row(15, 0, 0), map, 2),
        with(row(16, 0, 0), attr, 1),
        with(row(32, 0, 0), map, 2),
        with(row(33, 0, 0), &encoded_set, 1),
        with(row(34, 0, 0), pieces, 2),
        with(row(37, 0, 0), key_range, 2),
        row(17, 0, 1),
        range(row(30, 0, 2), 2, 2, 0),
        flags(range(row(39, 0, 0), 4096, 512, 0), 3, 0, 0),
    };
    submit(store, coll, &table, create, sizeof create / sizeof *create);
    OK(esker_read(coll, &oids[1], 0, 0, &buf));
    CHECK(buf.len == 4 && !memcmp(buf.data, "\0\0at", 4));
    esker_buf_free(&buf);
    OK(esker_read(coll, &oids[2], 0, 0, &buf));
    CHECK(holds(&buf, "at"));
    OK(esker_getattrs(coll, &oids[1], see_pair, &seen));
    CHECK(strcmp(seen.text, "k1=v k2= ") == 0);
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_get(coll, &oids[0], &buf, see_pair, &seen));
    CHECK(strcmp(seen.text, "k2= ") == 0);
    CHECK(holds(&buf, "data"));

    /* Splits by the lowest bit of the hash, and merges again. */
    OK(esker_coll_create(store, &cids[1], &other));
    const esker_op split[] = {
        flags(row(20, 0, 0), 1, 1, 0),
        range(flags(row(36, 0, 0), 1, 0, 1), 0, 1, 0),
    };
    submit(store, coll, &table, split, 2);
    CHECK(esker_coll_bits(coll) == 1 && esker_coll_bits(other) == 1);
    CHECK(esker_exists(other, &oids[3]) == 1);
    CHECK(esker_coll_empty(other) == 0);
    const esker_op merge[] = {
        flags(row(43, 0, 0), 0, 1, 0),
        flags(row(42, 0, 0), 0, 0, 0),
        row(28, 1, 0),
        row(31, 0, 0),
        row(41, 2, 1),
    };
    table.ops = merge;
    table.op_count = 5;
    CHECK(esker_submit(store, coll, &table, 1, NULL, NULL, NULL) == -EEXIST);
    CHECK(esker_coll_exists(store, &cids[1]) == 1);
    submit(store, coll, &table, merge, 4);
    CHECK(esker_coll_exists(store, &cids[1]) == 0);
    esker_coll_close(other);

    const esker_op end[] = {
        row(13, 0, 0), row(38, 1, 0), row(13, 0, 0), row(13, 2, 0), row(13, 3, 0), row(21, 0, 0),
    };
    submit(store, coll, &table, end, 6);
    CHECK(esker_coll_empty(coll) == -ENOENT);

    const esker_op unknown = row(99, 0, 0), outside = row(9, 4, 0);
    table.op_count = 1;
    table.ops = &unknown;
    CHECK(esker_submit(store, coll, &table, 1, NULL, NULL, NULL) == -EOPNOTSUPP);
    table.ops = &outside;
    CHECK(esker_submit(store, coll, &table, 1, NULL, NULL, NULL) == -EINVAL);
    esker_coll_close(coll);
}

static void see_cid(void *seen, const esker_cid *cid)
{
    char text[ESKER_CID_TEXT];
    int len = esker_cid_format(cid, text);
    CHECK(len > 0);
    see(seen, text, (size_t)len);
    see(seen, " ", 1);
}

void test_collections(esker_store *store)
{
    const esker_cid parent = pg(5, 0), child = pg(5, 1), meta = {0, 0, 0, ESKER_CID_META};
    struct seen seen = {0};
    esker_coll *coll = NULL, *other = NULL;
    esker_txn *txn = NULL;
    esker_cid cid;

    CHECK(esker_coll_open(store, &parent, &coll) == -ENOENT);
    OK(esker_coll_create(store, &parent, &coll));
    OK(esker_coll_create(store, &child, &other));
    OK(esker_txn_new(&txn));
    OK(esker_txn_create_collection(txn, &meta, 0));
    OK(esker_txn_create_collection(txn, &parent, 0));
    OK(esker_txn_create_collection(txn, &child, 1));
    OK(esker_txn_collection_hint(txn, &parent, 1, B("ignored")));
    OK(esker_txn_split_collection(txn, &parent, 1, 1, &child));
    apply(store, coll, txn);
    OK(esker_coll_cid(other, &cid));
    CHECK(cid.pool == 5 && cid.seed == 1 && cid.kind == ESKER_CID_HEAD);
    CHECK(esker_coll_bits(coll) == 1);
    CHECK(esker_coll_empty(coll) == 1);
    OK(esker_coll_list(store, see_cid, &seen));
    CHECK(strstr(seen.text, "meta 1.1_head 1.2_head 5.0_head 5.1_head "));
    OK(esker_txn_merge_collection(txn, &child, &parent, 0));
    OK(esker_txn_collection_set_bits(txn, &parent, 3));
    apply(store, coll, txn);
    CHECK(esker_coll_bits(coll) == 3);
    OK(esker_txn_remove_collection(txn, &parent));
    OK(esker_txn_remove_collection(txn, &meta));
    apply(store, coll, txn);
    CHECK(esker_coll_exists(store, &parent) == 0);
    OK(esker_txn_remove_collection(txn, &(esker_cid){1, 2, ESKER_NO_SHARD, ESKER_CID_HEAD}));
    CHECK(esker_apply(store, coll, txn) == -ENOTEMPTY);
    esker_txn_free(txn);
    esker_coll_close(coll);
    esker_coll_close(other);
}
