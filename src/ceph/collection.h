// A collection's handle: what Ceph keeps of a placement group in the store.
#pragma once

#include "store.h"

struct EskerStore::Coll : public ObjectStore::CollectionImpl {
  // Null after the store was closed.
  std::atomic<esker_coll *> handle;
  // Where commits are run; the finisher if there is none.
  std::atomic<ContextQueue *> commit_queue{nullptr};
  EskerStore *const store;

  // Everything queued is readable when queue_transactions() returns.
  void flush() override {}
  bool flush_commit(Context *c) override;

  void close()
  {
    if (auto h = handle.exchange(nullptr))
      esker_coll_close(h);
  }

private:
  FRIEND_MAKE_REF(Coll);
  Coll(CephContext *cct, const coll_t& c, EskerStore *s, esker_coll *h)
    : CollectionImpl(cct, c), handle(h), store(s) {}
  ~Coll() override { close(); }
};

inline EskerStore::Coll *EskerStore::of(CollectionHandle& ch)
{
  return static_cast<Coll *>(ch.get());
}

inline esker_coll *EskerStore::handle(CollectionHandle& ch)
{
  return of(ch)->handle;
}

// Counters of `perf dump`, in order.
enum {
  l_esker_first = 732600,
  l_esker_submit_lat,
  l_esker_commit_lat,
  l_esker_read_lat,
  l_esker_txc,
  l_esker_ops,
  l_esker_write_bytes,
  l_esker_read_bytes,
  l_esker_omap_iterators,
  l_esker_total_bytes,
  l_esker_available_bytes,
  l_esker_allocated_bytes,
  l_esker_stored_bytes,
  l_esker_omap_bytes,
  l_esker_objects,
  l_esker_last,
};
