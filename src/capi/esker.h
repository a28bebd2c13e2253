/*
 * Esker: a log-structured storage engine, for C and whatever calls C.
 *
 * One store holds key-value entries and objects in collections with the semantics of Ceph's
 * ObjectStore. Link with `pkg-config --cflags --libs esker`.
 *
 * Conventions, referred to below by number:
 *
 *  1. Results. A function that returns int (or int64_t) returns 0, or what it says there
 *     (a count, 1 for yes), or a negative errno. After a negative result esker_last_error()
 *     says in words what happened. A call that fails has no effect unless it says so.
 *  2. Bytes. An esker_bytes is a pointer and a length; nothing is NUL-terminated except
 *     paths and option names. The pointer may be NULL if the length is 0.
 *  3. Arguments. What a call is given is only read until the call returns; nothing is kept.
 *     Out-parameters are written only on success, except that an esker_buf is emptied first.
 *  4. Buffers. An esker_buf filled by a call belongs to the caller, who gives it to
 *     esker_buf_free(), once, from any thread. It stays valid after the store is closed.
 *  5. Handles. What a *_new, *_open, *_create or esker_list call returned is given back with
 *     the matching *_free or *_close. NULL is freed without effect. Collections and
 *     iterators are given back before the store is closed: esker_close() refuses with
 *     -EBUSY while there are any.
 *  6. Visitors. A function given as `visit` is called in the calling thread, without any
 *     lock of the store held, before the call returns; the bytes it gets are valid until it
 *     returns. It may call the store.
 *  7. Callbacks. on_applied and on_commit are called once each, unless the call that was
 *     given them failed: then never. They come from a thread of the store (on_applied may come
 *     before the call returns, in the calling thread), without any lock of the store
 *     held; those of one collection in the order of its calls. `result` is 0, or -EIO when the
 *     store stopped after a failed write. They may call the store, but must not wait for
 *     another callback: one thread makes them all.
 *  8. Threads. Stores and collections may be used from many threads at once; calls that
 *     queue transactions to one collection are ordered as they return or, if they overlap,
 *     in some order. Transactions, batches, iterators, pages and options belong to one
 *     thread at a time.
 *  9. Errors that stop. After a write or a flush failed, writing calls return -EIO until the
 *     store is closed and opened again; reads go on.
 * 10. Nothing unwinds out of a call: a defect of the library becomes -EFAULT. Callbacks and
 *     visitors must not throw or longjmp.
 * 11. A NULL handle, a NULL out-parameter, or an index out of its table is -EINVAL.
 */
#ifndef ESKER_H
#define ESKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Values ------------------------------------------------------------------------------ */

/* Counts up when a program compiled with an older header would break. */
#define ESKER_ABI 1

typedef struct esker_store esker_store;
typedef struct esker_options esker_options;
typedef struct esker_batch esker_batch;
typedef struct esker_coll esker_coll;
typedef struct esker_txn esker_txn;
typedef struct esker_iter esker_iter;
typedef struct esker_page esker_page;

typedef struct esker_bytes {
    const uint8_t *data;
    size_t len;
} esker_bytes;

/* Bytes of the library's; `owner` is its own. Start with {0}. */
typedef struct esker_buf {
    const uint8_t *data;
    size_t len;
    void *owner;
} esker_buf;

typedef struct esker_range {
    uint64_t offset;
    uint64_t len;
} esker_range;

/* Name of a collection: Ceph's coll_t. */
#define ESKER_CID_META 0 /* the one collection of the daemon; the other fields are ignored */
#define ESKER_CID_HEAD 1 /* a placement group */
#define ESKER_CID_TEMP 2 /* the temporary objects of one, as old versions had */
#define ESKER_NO_SHARD (-1)

typedef struct esker_cid {
    int64_t pool;
    uint32_t seed;
    int8_t shard;
    uint8_t kind;
} esker_cid;

/* Longest text of a collection's name, with its NUL. */
#define ESKER_CID_TEXT 64

/* Name of an object: Ceph's ghobject_t. */
#define ESKER_NO_SNAP (UINT64_MAX - 1) /* a head object */
#define ESKER_SNAPDIR UINT64_MAX
#define ESKER_NO_GEN UINT64_MAX

typedef struct esker_oid {
    int64_t pool;
    uint64_t snap;
    uint64_t gen;
    uint32_t hash;
    int8_t shard;
    uint8_t max; /* 1: the bound above every name; the other fields are ignored */
    esker_bytes nspace;
    esker_bytes key;
    esker_bytes name;
} esker_oid;

typedef struct esker_statfs_t {
    uint64_t total;               /* bytes that are offered */
    uint64_t available;           /* bytes that are left */
    uint64_t internally_reserved; /* what the store keeps for itself */
    uint64_t allocated;           /* data of objects on flash, shared data once */
    uint64_t data_stored;         /* data of objects, shared data for each */
    uint64_t omap_allocated;      /* omap values on flash */
    uint64_t internal_metadata;   /* checkpoints */
    uint64_t objects;             /* how many there are */
} esker_statfs_t;

typedef void (*esker_done_fn)(void *ctx, int result);
typedef void (*esker_bytes_fn)(void *ctx, const esker_bytes *bytes);
typedef void (*esker_pair_fn)(void *ctx, const esker_bytes *key, const esker_bytes *value);
typedef void (*esker_range_fn)(void *ctx, uint64_t offset, uint64_t len);
typedef void (*esker_cid_fn)(void *ctx, const esker_cid *cid);

/* What the library was built as. esker_abi() is compared with ESKER_ABI. */
uint32_t esker_abi(void);
const char *esker_version(void);

/* Why the last call in this thread that failed did so; "" before any. Valid until the next
 * call in this thread. */
const char *esker_last_error(void);

void esker_buf_free(esker_buf *buf);

/* The text of a collection's name ("meta", "1.2f_head", "1.2fs3_head", "1.2f_TEMP"), and back.
 * Format writes a NUL behind it and returns the length without. */
int esker_cid_parse(const char *text, size_t len, esker_cid *cid);
int esker_cid_format(const esker_cid *cid, char text[ESKER_CID_TEXT]);

/* Below 0, 0 or above 0, as a sorts before, with or behind b. */
int esker_oid_compare(const esker_oid *a, const esker_oid *b);

/* ---- The store --------------------------------------------------------------------------- */

/* Options have defaults; a call sets one. Names and values:
 *   capacity                      bytes of a new store; needed for a file, not for a device
 *   segment_bytes                 a power of two, 128 KiB to 256 MiB
 *   cache_bytes                   DRAM for the record cache
 *   memory_limit                  bound on index and cache, in bytes
 *   buffered                      1: put, delete and write return before they are on flash
 *   read_only                     1: nothing is written
 *   discard_bytes_per_second      0 turns discards off
 *   checkpoint_interval_bytes     bytes of log between checkpoints
 *   direct_io, io_uring           0 avoids them
 * An unknown name is -EINVAL. NULL in place of options means the defaults. */
int esker_options_new(esker_options **options);
int esker_options_set(esker_options *options, const char *name, uint64_t value);
void esker_options_free(esker_options *options);

/* Makes a store in a new or empty file, or on a block device without one (-EEXIST). */
int esker_create(const char *path, const esker_options *options, esker_store **store);

/* -ENOENT: no store there. -EBUSY: open elsewhere. */
int esker_open(const char *path, const esker_options *options, esker_store **store);

/* 1: a process has the store open for writing; 0: none. Looks at the lock, and opens nothing. */
int esker_in_use(const char *path);

/* Waits for everything queued, calls what callbacks are left, and closes. -EBUSY: handles
 * are still out (5); the store stays open. After any other result the handle is gone; an error
 * says that the next open will recover the store as after a crash. */
int esker_close(esker_store *store);

/* Returns when everything accepted so far is on flash. */
int esker_sync(esker_store *store);

/* Writes an image of everything in DRAM, so that an open after a crash replays little. */
int esker_checkpoint(esker_store *store);

int esker_set_cache_bytes(esker_store *store, uint64_t bytes);

/* All counters, as JSON text. */
int esker_stats(esker_store *store, esker_buf *json);

/* Verifies a store that is not open; `visit` (may be NULL) gets one line of text for each
 * finding. Returns how many errors there are, after the repair if that was asked for. */
#define ESKER_CHECK_DEEP 1   /* reads and verifies all data */
#define ESKER_CHECK_REPAIR 2 /* mends what can be mended */
int64_t esker_check(const char *path, uint32_t flags, esker_bytes_fn visit, void *ctx);

/* ---- Key-value entries ------------------------------------------------------------------- */

int esker_put(esker_store *store, esker_bytes key, esker_bytes value);
/* -ENOENT: no such key. */
int esker_get(esker_store *store, esker_bytes key, esker_buf *value);
/* 1 or 0. */
int esker_contains(esker_store *store, esker_bytes key);
/* 1 if there was one, else 0. */
int esker_delete(esker_store *store, esker_bytes key);

/* Visits at least `max` more entries if there are as many, a few more at most, in no useful
 * order, and moves the cursor, which begins at 0. Returns 1 if there is more, 0 at the end. */
int esker_scan(esker_store *store, uint64_t *cursor, uint32_t max, esker_pair_fn visit, void *ctx);

/* A batch takes effect as a whole. Writing it empties it, unless that fails. */
int esker_batch_new(esker_batch **batch);
int esker_batch_put(esker_batch *batch, esker_bytes key, esker_bytes value);
int esker_batch_delete(esker_batch *batch, esker_bytes key);
int esker_batch_write(esker_store *store, esker_batch *batch);
void esker_batch_free(esker_batch *batch);

/* ---- Collections ------------------------------------------------------------------------- */

/* A handle for a collection that a transaction will create. */
int esker_coll_create(esker_store *store, const esker_cid *cid, esker_coll **coll);
/* -ENOENT: no such collection. */
int esker_coll_open(esker_store *store, const esker_cid *cid, esker_coll **coll);
void esker_coll_close(esker_coll *coll);

int esker_coll_cid(esker_coll *coll, esker_cid *cid);
/* 1 or 0. */
int esker_coll_exists(esker_store *store, const esker_cid *cid);
int esker_coll_empty(esker_coll *coll);
/* How many low bits of the hash its objects share. */
int esker_coll_bits(esker_coll *coll);
int esker_coll_list(esker_store *store, esker_cid_fn visit, void *ctx);

/* Returns when everything queued to the collection is readable. */
int esker_coll_flush(esker_coll *coll);
/* 1: everything queued to the collection is on flash, and `done` will not be called. 0: it
 * will be, when that is so (7). */
int esker_coll_flush_commit(esker_coll *coll, esker_done_fn done, void *ctx);

/* ---- Transactions ------------------------------------------------------------------------ */

/* Built by calls: a transaction keeps copies of what it is given. Operations apply in order
 * and see what those before them did. On an absent object an operation creates it [c],
 * is ignored [i], or makes the transaction fail with -ENOENT [r]. */
int esker_txn_new(esker_txn **txn);
void esker_txn_free(esker_txn *txn);
int esker_txn_clear(esker_txn *txn);
/* How many operations it has. */
int64_t esker_txn_ops(const esker_txn *txn);
/* Moves the operations of `from` behind those of `txn`. */
int esker_txn_append(esker_txn *txn, esker_txn *from);

int esker_txn_nop(esker_txn *txn);
int esker_txn_create(esker_txn *txn, const esker_cid *cid, const esker_oid *oid); /* [c] */
int esker_txn_touch(esker_txn *txn, const esker_cid *cid, const esker_oid *oid);  /* [c] */
/* [c] No data: the size stays. -E2BIG beyond 4 GiB, as for the three that follow. */
int esker_txn_write(esker_txn *txn, const esker_cid *cid, const esker_oid *oid, uint64_t offset,
                    const esker_bytes *pieces, size_t count);
int esker_txn_zero(esker_txn *txn, const esker_cid *cid, const esker_oid *oid, uint64_t offset,
                   uint64_t len); /* [c] */
int esker_txn_truncate(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                       uint64_t size);                                              /* [i] */
int esker_txn_remove(esker_txn *txn, const esker_cid *cid, const esker_oid *oid); /* [i] */
int esker_txn_setattr(esker_txn *txn, const esker_cid *cid, const esker_oid *oid, esker_bytes attr,
                      esker_bytes value); /* [r] */
int esker_txn_setattrs(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                       const esker_bytes *attrs, const esker_bytes *values, size_t count); /* [r] */
int esker_txn_rmattr(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                     esker_bytes attr);                                            /* [r] */
int esker_txn_rmattrs(esker_txn *txn, const esker_cid *cid, const esker_oid *oid); /* [i] */
int esker_txn_clone(esker_txn *txn, const esker_cid *cid, const esker_oid *source,
                    const esker_oid *target); /* [r] */
/* [r] -EINVAL if the range goes past the source's end. */
int esker_txn_clone_range(esker_txn *txn, const esker_cid *cid, const esker_oid *source,
                          const esker_oid *target, uint64_t source_offset, uint64_t len,
                          uint64_t target_offset);
int esker_txn_omap_clear(esker_txn *txn, const esker_cid *cid, const esker_oid *oid); /* [i] */
int esker_txn_omap_setkeys(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                           const esker_bytes *keys, const esker_bytes *values,
                           size_t count); /* [r] */
int esker_txn_omap_rmkeys(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                          const esker_bytes *keys, size_t count); /* [r] */
/* [r] Keys from first to before last. */
int esker_txn_omap_rmkeyrange(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                              esker_bytes first, esker_bytes last);
int esker_txn_omap_setheader(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                             esker_bytes header); /* [r] */
int esker_txn_set_alloc_hint(esker_txn *txn, const esker_cid *cid, const esker_oid *oid,
                             uint64_t object_bytes, uint64_t write_bytes, uint32_t flags); /* [i] */
/* [i] -EEXIST if there is a target; both collections must be the same. */
int esker_txn_move_rename(esker_txn *txn, const esker_cid *source_cid, const esker_oid *source,
                          const esker_cid *cid, const esker_oid *target);
int esker_txn_try_rename(esker_txn *txn, const esker_cid *cid, const esker_oid *source,
                         const esker_oid *target);
/* -EEXIST, -ENOTEMPTY, -ENOENT as one would think. */
int esker_txn_create_collection(esker_txn *txn, const esker_cid *cid, uint32_t bits);
int esker_txn_remove_collection(esker_txn *txn, const esker_cid *cid);
int esker_txn_split_collection(esker_txn *txn, const esker_cid *cid, uint32_t bits, uint32_t rem,
                               const esker_cid *target);
int esker_txn_merge_collection(esker_txn *txn, const esker_cid *cid, const esker_cid *target,
                               uint32_t bits);
int esker_txn_collection_set_bits(esker_txn *txn, const esker_cid *cid, uint32_t bits);
int esker_txn_collection_hint(esker_txn *txn, const esker_cid *cid, uint32_t kind,
                              esker_bytes hint);

/* Queues a transaction, in the collection's order. When it returns the effects are readable.
 * An error: nothing happened. Callbacks may be NULL. The transaction stays the caller's. */
int esker_queue(esker_store *store, esker_coll *coll, const esker_txn *txn,
                esker_done_fn on_applied, esker_done_fn on_commit, void *ctx);
/* Returns when it is on flash. */
int esker_apply(esker_store *store, esker_coll *coll, const esker_txn *txn);

/* A transaction as flat tables, for callers that have one already: nothing is copied before
 * the log takes it. Operations have Ceph's numbers. `cid`, `oid`, `dest_cid` and `dest_oid`
 * are indices into the tables. Unnamed fields are ignored.
 *
 *    0 nop
 *    7 create, 9 touch, 13 remove, 28 rmattrs, 31 omap_clear    oid
 *   10 write                  offset; bytes: the data, in pieces
 *   11 zero                   offset, len
 *   12 truncate               offset: the size
 *   14 setattr                bytes: name, value in pieces
 *   15 setattrs, 32 omap_setkeys    bytes: a map, encoded, in pieces
 *   16 rmattr                 bytes: name
 *   17 clone                  oid to dest_oid
 *   30 clone_range            oid, offset, len to dest_oid, dest_offset
 *   33 omap_rmkeys            bytes: a set, encoded, in pieces
 *   34 omap_setheader         bytes: the header, in pieces
 *   37 omap_rmkeyrange        bytes: first, last
 *   38 move_rename            cid, oid to dest_cid, dest_oid
 *   41 try_rename             oid to dest_oid
 *   39 set_alloc_hint         offset: size of the object, len: of writes; flags
 *   20 create_collection, 42 collection_set_bits    flags: bits
 *   21 remove_collection
 *   36 split_collection       flags: bits, len: rem; to dest_cid
 *   43 merge_collection       flags: bits; to dest_cid
 *   40 collection_hint        flags: kind; bytes: the hint, in pieces
 *
 * A set is encoded as its count and each member, a map as its count and each key and value:
 * counts and lengths as 32 bits, little-endian, before the bytes, as Ceph does.
 * Any other number is -EOPNOTSUPP. */
typedef struct esker_op {
    uint32_t op;
    uint32_t flags;
    uint32_t cid;
    uint32_t oid;
    uint32_t dest_cid;
    uint32_t dest_oid;
    uint64_t offset;
    uint64_t len;
    uint64_t dest_offset;
    const esker_bytes *bytes;
    size_t bytes_count;
} esker_op;

typedef struct esker_table {
    const esker_cid *cids;
    size_t cid_count;
    const esker_oid *oids;
    size_t oid_count;
    const esker_op *ops;
    size_t op_count;
} esker_table;

/* As esker_queue(), of several transactions that take effect as one. */
int esker_submit(esker_store *store, esker_coll *coll, const esker_table *tables, size_t count,
                 esker_done_fn on_applied, esker_done_fn on_commit, void *ctx);

/* ---- Reading objects --------------------------------------------------------------------- */

/* All return -ENOENT if there is no such object or its collection is gone, unless they say
 * something else, and -EIO if what flash holds fails its checksum three times. */

/* 1 or 0. */
int esker_exists(esker_coll *coll, const esker_oid *oid);
int esker_stat(esker_coll *coll, const esker_oid *oid, uint64_t *size);
/* Clipped at the end of the object; len 0 at offset 0 is all of it. */
int esker_read(esker_coll *coll, const esker_oid *oid, uint64_t offset, uint64_t len,
               esker_buf *data);
/* As esker_read(), into memory of the caller's; returns how many bytes there were. What is behind
 * them is as it was, or zero. */
int64_t esker_read_into(esker_coll *coll, const esker_oid *oid, uint64_t offset, uint8_t *to,
                        size_t len);
/* The ranges one behind the other, each clipped. */
int esker_readv(esker_coll *coll, const esker_oid *oid, const esker_range *ranges, size_t count,
                esker_buf *data);
/* Visits ranges that hold data, in order. What is between them reads as zeros. */
int esker_fiemap(esker_coll *coll, const esker_oid *oid, uint64_t offset, uint64_t len,
                 esker_range_fn visit, void *ctx);
/* -ENODATA: no such attribute. */
int esker_getattr(esker_coll *coll, const esker_oid *oid, esker_bytes attr, esker_buf *value);
int esker_getattrs(esker_coll *coll, const esker_oid *oid, esker_pair_fn visit, void *ctx);

/* Header and all entries, in order. */
int esker_omap_get(esker_coll *coll, const esker_oid *oid, esker_buf *header, esker_pair_fn visit,
                   void *ctx);
int esker_omap_get_header(esker_coll *coll, const esker_oid *oid, esker_buf *header);
int esker_omap_get_keys(esker_coll *coll, const esker_oid *oid, esker_bytes_fn visit, void *ctx);
/* Those of the keys that are there. */
int esker_omap_get_values(esker_coll *coll, const esker_oid *oid, const esker_bytes *keys,
                          size_t count, esker_pair_fn visit, void *ctx);
int esker_omap_check_keys(esker_coll *coll, const esker_oid *oid, const esker_bytes *keys,
                          size_t count, esker_bytes_fn visit, void *ctx);

/* An iterator over the omap of one object: a cursor by key, which sees changes made meanwhile
 * and holds up nothing. It begins at the first entry. Its calls return -EIO when a value is
 * damaged; then it is at no entry. */
int esker_iter_new(esker_coll *coll, const esker_oid *oid, esker_iter **iter);
int esker_iter_seek_first(esker_iter *iter);
/* To the first key that is not below `key`. */
int esker_iter_lower_bound(esker_iter *iter, esker_bytes key);
/* To the first key above `key`. */
int esker_iter_upper_bound(esker_iter *iter, esker_bytes key);
int esker_iter_next(esker_iter *iter);
/* 1: it is at an entry; 0: behind the last. */
int esker_iter_valid(esker_iter *iter);
/* -ENOENT: at no entry. The bytes are valid until the iterator is moved or freed. */
int esker_iter_key(esker_iter *iter, esker_bytes *key);
int esker_iter_value(esker_iter *iter, esker_bytes *value);
void esker_iter_free(esker_iter *iter);

/* Objects of a collection from `start` to before `end`, in order, at most `max` of them.
 * NULL as start is the first, as end is behind the last. */
int esker_list(esker_coll *coll, const esker_oid *start, const esker_oid *end, size_t max,
               esker_page **page);
size_t esker_page_count(const esker_page *page);
/* What they give out is valid until the page is freed. Next is where the next page starts;
 * `max` is set in it if there is nothing more. */
int esker_page_oid(const esker_page *page, size_t index, esker_oid *oid);
int esker_page_next(const esker_page *page, esker_oid *next);
void esker_page_free(esker_page *page);

int esker_statfs(esker_store *store, esker_statfs_t *to);
/* total and available are those of the store. */
int esker_pool_statfs(esker_store *store, int64_t pool, esker_statfs_t *to);

#ifdef __cplusplus
}
#endif

#endif
