/* Data, attributes, omap: transactions built by calls, and every read. */
#include "check.h"

void apply(esker_store *store, esker_coll *coll, esker_txn *txn)
{
    OK(esker_apply(store, coll, txn));
    OK(esker_txn_clear(txn));
    CHECK(esker_txn_ops(txn) == 0);
}

esker_coll *collection(esker_store *store, uint32_t seed)
{
    esker_cid cid = pg(1, seed);
    esker_coll *coll = NULL;
    esker_txn *txn = NULL;
    if (esker_coll_open(store, &cid, &coll) == 0)
        return coll;
    OK(esker_coll_create(store, &cid, &coll));
    OK(esker_txn_new(&txn));
    OK(esker_txn_create_collection(txn, &cid, 8));
    apply(store, coll, txn);
    esker_txn_free(txn);
    return coll;
}

static uint64_t size_of(esker_coll *coll, const esker_oid *oid)
{
    uint64_t size = 0;
    OK(esker_stat(coll, oid, &size));
    return size;
}

void test_objects(esker_store *store)
{
    esker_coll *coll = collection(store, 1);
    const esker_cid cid = pg(1, 1);
    const esker_oid a = object(1, 1, "a"), b = object(1, 1, "b"), c = object(1, 1, "c");
    esker_oid odd = object(1, 0x101, "odd");
    odd.nspace = B("space");
    odd.key = B("key");
    odd.snap = 7;
    odd.gen = 9;
    esker_buf buf = {0};
    struct seen seen = {0};
    esker_txn *txn = NULL, *more = NULL;
    uint64_t size;
    OK(esker_txn_new(&txn));

    /* Data. */
    const esker_bytes pieces[] = {B("hello"), B(""), B(", world")};
    OK(esker_txn_create(txn, &cid, &a));
    OK(esker_txn_touch(txn, &cid, &odd));
    OK(esker_txn_write(txn, &cid, &a, 4, pieces, 3));
    OK(esker_txn_set_alloc_hint(txn, &cid, &a, 4 << 20, 4096, 1));
    OK(esker_txn_nop(txn));
    CHECK(esker_txn_ops(txn) == 5);
    apply(store, coll, txn);
    CHECK(esker_exists(coll, &a) == 1);
    CHECK(esker_exists(coll, &odd) == 1);
    CHECK(esker_exists(coll, &b) == 0);
    CHECK(size_of(coll, &a) == 16);
    CHECK(esker_stat(coll, &b, &size) == -ENOENT);
    OK(esker_read(coll, &a, 4, 5, &buf));
    CHECK(holds(&buf, "hello"));
    OK(esker_read(coll, &a, 0, 0, &buf));
    CHECK(buf.len == 16 && !memcmp(buf.data, "\0\0\0\0hello, world", 16));
    esker_buf_free(&buf);
    OK(esker_read(coll, &a, 99, 5, &buf));
    CHECK(holds(&buf, ""));
    CHECK(esker_read(coll, &b, 0, 0, &buf) == -ENOENT);
    uint8_t into[8] = {0};
    CHECK(esker_read_into(coll, &a, 11, into, sizeof into) == 5);
    CHECK(is(into, 5, "world"));
    const esker_range ranges[] = {{4, 1}, {15, 9}};
    OK(esker_readv(coll, &a, ranges, 2, &buf));
    CHECK(holds(&buf, "hd"));
    OK(esker_fiemap(coll, &a, 0, 1 << 20, see_range, &seen));
    CHECK(seen.len > 0);

    OK(esker_txn_zero(txn, &cid, &a, 4, 1));
    OK(esker_txn_truncate(txn, &cid, &a, 8));
    OK(esker_txn_clone(txn, &cid, &a, &b));
    OK(esker_txn_clone_range(txn, &cid, &a, &c, 5, 3, 1));
    apply(store, coll, txn);
    OK(esker_read(coll, &b, 5, 9, &buf));
    CHECK(holds(&buf, "ell"));
    OK(esker_read(coll, &c, 1, 9, &buf));
    CHECK(holds(&buf, "ell"));

    /* Attributes. */
    const esker_bytes names[] = {B("x"), B("y")}, values[] = {B("1"), B("")};
    OK(esker_txn_setattr(txn, &cid, &a, B("w"), B("0")));
    OK(esker_txn_new(&more));
    OK(esker_txn_setattrs(more, &cid, &a, names, values, 2));
    OK(esker_txn_rmattr(more, &cid, &a, B("w")));
    OK(esker_txn_append(txn, more));
    CHECK(esker_txn_ops(more) == 0 && esker_txn_ops(txn) == 3);
    esker_txn_free(more);
    apply(store, coll, txn);
    OK(esker_getattr(coll, &a, B("x"), &buf));
    CHECK(holds(&buf, "1"));
    OK(esker_getattr(coll, &a, B("y"), &buf));
    CHECK(holds(&buf, ""));
    CHECK(esker_getattr(coll, &a, B("w"), &buf) == -ENODATA);
    CHECK(esker_getattr(coll, &odd, B("w"), &buf) == -ENODATA);
    memset(&seen, 0, sizeof seen);
    OK(esker_getattrs(coll, &a, see_pair, &seen));
    CHECK(strcmp(seen.text, "x=1 y= ") == 0);
    OK(esker_txn_rmattrs(txn, &cid, &a));

    /* Names. */
    const esker_oid d = object(1, 1, "d"), e = object(1, 1, "e");
    OK(esker_txn_try_rename(txn, &cid, &c, &d));
    OK(esker_txn_move_rename(txn, &cid, &d, &cid, &e));
    OK(esker_txn_remove(txn, &cid, &b));
    apply(store, coll, txn);
    CHECK(esker_exists(coll, &c) == 0 && esker_exists(coll, &d) == 0 && esker_exists(coll, &e) == 1);

    /* A refused transaction has no effect. */
    OK(esker_txn_remove(txn, &cid, &a));
    OK(esker_txn_setattr(txn, &cid, &b, B("x"), B("1")));
    CHECK(esker_apply(store, coll, txn) == -ENOENT);
    CHECK(esker_exists(coll, &a) == 1);
    OK(esker_txn_clear(txn));
    OK(esker_txn_write(txn, &cid, &a, UINT32_MAX, pieces, 3));
    CHECK(esker_apply(store, coll, txn) == -E2BIG);
    esker_txn_free(txn);

    /* Listing: a, e, then odd, whose hash sorts behind. */
    esker_page *page = NULL;
    esker_oid found, next;
    OK(esker_list(coll, NULL, NULL, 2, &page));
    CHECK(esker_page_count(page) == 2);
    OK(esker_page_oid(page, 0, &found));
    CHECK(esker_oid_compare(&found, &a) == 0);
    OK(esker_page_oid(page, 1, &found));
    CHECK(esker_oid_compare(&found, &e) == 0);
    CHECK(esker_page_oid(page, 2, &found) == -EINVAL);
    OK(esker_page_next(page, &next));
    CHECK(esker_oid_compare(&next, &odd) == 0);
    esker_page *rest = NULL;
    OK(esker_list(coll, &next, NULL, 100, &rest));
    CHECK(esker_page_count(rest) == 1);
    OK(esker_page_oid(rest, 0, &found));
    CHECK(found.snap == 7 && found.gen == 9 && is(found.key.data, found.key.len, "key") &&
          is(found.nspace.data, found.nspace.len, "space"));
    OK(esker_page_next(rest, &next));
    CHECK(next.max == 1);
    esker_page_free(rest);
    OK(esker_list(coll, &a, &e, 100, &rest));
    CHECK(esker_page_count(rest) == 1);
    esker_page_free(rest);
    esker_page_free(page);

    esker_statfs_t space, of_pool;
    OK(esker_statfs(store, &space));
    OK(esker_pool_statfs(store, 1, &of_pool));
    CHECK(space.total > 0 && space.available <= space.total && space.allocated > 0);
    CHECK(of_pool.objects == 3 && of_pool.allocated == space.allocated);
    esker_coll_close(coll);
}

void test_omap(esker_store *store)
{
    esker_coll *coll = collection(store, 1);
    const esker_cid cid = pg(1, 1);
    const esker_oid o = object(1, 1, "omap"), none = object(1, 1, "none");
    const esker_bytes keys[] = {B("c"), B("a"), B("b"), B("d")};
    const esker_bytes values[] = {B("3"), B("1"), B(""), B("4")};
    struct seen seen = {0};
    esker_buf header = {0};
    esker_txn *txn = NULL;

    OK(esker_txn_new(&txn));
    OK(esker_txn_touch(txn, &cid, &o));
    OK(esker_txn_omap_setkeys(txn, &cid, &o, keys, values, 4));
    OK(esker_txn_omap_setheader(txn, &cid, &o, B("header")));
    OK(esker_txn_omap_rmkeys(txn, &cid, &o, &keys[3], 1));
    apply(store, coll, txn);
    OK(esker_omap_get(coll, &o, &header, see_pair, &seen));
    CHECK(strcmp(seen.text, "a=1 b= c=3 ") == 0);
    CHECK(holds(&header, "header"));
    OK(esker_omap_get_header(coll, &o, &header));
    CHECK(holds(&header, "header"));
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_get_keys(coll, &o, see_bytes, &seen));
    CHECK(strcmp(seen.text, "a b c ") == 0);
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_get_values(coll, &o, keys, 4, see_pair, &seen));
    CHECK(strcmp(seen.text, "a=1 b= c=3 ") == 0);
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_check_keys(coll, &o, &keys[2], 2, see_bytes, &seen));
    CHECK(strcmp(seen.text, "b ") == 0);

    esker_iter *iter = NULL;
    esker_bytes at;
    CHECK(esker_iter_new(coll, &none, &iter) == -ENOENT);
    OK(esker_iter_new(coll, &o, &iter));
    OK(esker_iter_seek_first(iter));
    CHECK(esker_iter_valid(iter) == 1);
    OK(esker_iter_key(iter, &at));
    CHECK(is(at.data, at.len, "a"));
    OK(esker_iter_next(iter));
    OK(esker_iter_value(iter, &at));
    CHECK(is(at.data, at.len, ""));
    OK(esker_iter_lower_bound(iter, B("b")));
    OK(esker_iter_key(iter, &at));
    CHECK(is(at.data, at.len, "b"));
    OK(esker_iter_upper_bound(iter, B("b")));
    OK(esker_iter_value(iter, &at));
    CHECK(is(at.data, at.len, "3"));
    OK(esker_iter_next(iter));
    CHECK(esker_iter_valid(iter) == 0);
    CHECK(esker_iter_key(iter, &at) == -ENOENT);
    esker_iter_free(iter);

    OK(esker_txn_omap_rmkeyrange(txn, &cid, &o, B("a"), B("c")));
    apply(store, coll, txn);
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_get_keys(coll, &o, see_bytes, &seen));
    CHECK(strcmp(seen.text, "c ") == 0);
    OK(esker_txn_omap_clear(txn, &cid, &o));
    apply(store, coll, txn);
    memset(&seen, 0, sizeof seen);
    OK(esker_omap_get(coll, &o, &header, see_pair, &seen));
    CHECK(seen.len == 0);
    CHECK(holds(&header, ""));
    esker_txn_free(txn);
    esker_coll_close(coll);
}
