// Collections and transactions.
#include "common/debug.h"
#include "common/errno.h"
#include "common/Formatter.h"

#include "collection.h"
#include "names.h"
#include "tables.h"

#define dout_context cct
#define dout_subsys ceph_subsys_bluestore
#undef dout_prefix
#define dout_prefix *_dout << "esker(" << path << ") "

using std::list;
using std::vector;

// What waits for a commit.
struct EskerStore::Done {
  EskerStore *store;
  CollRef coll;
  list<Context *> contexts;
  ceph::mono_time start;
};

void EskerStore::call(Coll *c, list<Context *>& contexts)
{
  if (contexts.empty())
    return;
  if (ContextQueue *q = c->commit_queue)
    q->queue(contexts);
  else
    finisher.queue(contexts);
}

// From the library's thread, in the order of the collection. Contexts run elsewhere: they
// take locks that callers of this store hold.
void EskerStore::on_commit(void *arg, int r)
{
  std::unique_ptr<Done> done(static_cast<Done *>(arg));
  auto self = done->store;
  if (r < 0)
    ceph_abort_msg("esker: a write or flush of the device failed");
  self->logger->tinc(l_esker_commit_lat, ceph::mono_clock::now() - done->start);
  self->call(done->coll.get(), done->contexts);
}

bool EskerStore::Coll::flush_commit(Context *c)
{
  auto done = std::make_unique<Done>(Done{store, this, {c}, ceph::mono_clock::now()});
  int r = esker_coll_flush_commit(handle, on_commit, done.get());
  if (r == 0)
    done.release();
  return r != 0;
}

int EskerStore::queue_transactions(CollectionHandle& ch, vector<Transaction>& txns, TrackedOpRef op,
                                   ThreadPool::TPHandle *tp)
{
  auto c = of(ch);
  const auto start = ceph::mono_clock::now();
  list<Context *> applied, applied_sync;
  auto done = std::make_unique<Done>(Done{this, c, {}, start});
  Transaction::collect_contexts(txns, &applied, &done->contexts, &applied_sync);

  esker::Tables tables(txns);
  int r = tables.error();
  if (r == 0) {
    // It may wait for room.
    if (tp)
      tp->suspend_tp_timeout();
    const bool silent = done->contexts.empty();
    r = esker_submit(store, c->handle, tables.data(), tables.size(), nullptr,
                     silent ? nullptr : on_commit, done.get());
    if (tp)
      tp->reset_tp_timeout();
    if (r == 0 && !silent)
      done.release();
  }
  if (r < 0)
    fail(tables.error() ? "an operation of another release" : esker_last_error(), r, txns);

  forget(tables.created(), tables.removed());
  if (injected) {
    std::lock_guard l(inject_lock);
    for (auto& o : tables.dropped()) {
      bad_data.erase(o);
      bad_metadata.erase(o);
    }
    injected = !bad_data.empty() || !bad_metadata.empty();
  }
  logger->inc(l_esker_txc);
  for (size_t i = 0; i < tables.size(); i++)
    logger->inc(l_esker_ops, tables.data()[i].op_count);
  logger->inc(l_esker_write_bytes, tables.payload_bytes());
  logger->tinc(l_esker_submit_lat, ceph::mono_clock::now() - start);

  for (auto context : applied_sync)
    context->complete(0);
  call(c, applied);
  return 0;
}

// The OSD has no way on after a transaction that does not apply; Esker refused it as a whole.
void EskerStore::fail(const char *what, int r, vector<Transaction>& txns)
{
  derr << "transaction refused: " << cpp_strerror(r) << ": " << what << dendl;
  ceph::JSONFormatter f(true);
  f.open_array_section("transactions");
  for (auto& t : txns) {
    f.open_object_section("transaction");
    t.dump(&f);
    f.close_section();
  }
  f.close_section();
  std::ostringstream out;
  f.flush(out);
  derr << out.str() << dendl;
  if (cct->_conf.get_val<bool>("objectstore_debug_throw_on_failed_txc"))
    throw r;
  ceph_abort_msg("esker: a transaction was refused");
}

// The handles of collections that have come are those that were made for them.
void EskerStore::forget(const vector<coll_t>& created, const vector<coll_t>& removed)
{
  if (created.empty() && removed.empty())
    return;
  std::unique_lock l(coll_lock);
  for (auto& c : created) {
    auto p = new_colls.find(c);
    if (p != new_colls.end()) {
      colls[c] = p->second;
      new_colls.erase(p);
    }
  }
  for (auto& c : removed) {
    auto p = colls.find(c);
    const auto cid = esker::to_cid(c);
    if (p != colls.end() && esker_coll_exists(store, &cid) == 0)
      colls.erase(p);
  }
}

ObjectStore::CollectionHandle EskerStore::open_collection(const coll_t& c)
{
  {
    std::shared_lock l(coll_lock);
    auto p = colls.find(c);
    if (p != colls.end())
      return p->second;
  }
  const auto cid = esker::to_cid(c);
  esker_coll *h = nullptr;
  if (esker_coll_open(store, &cid, &h) < 0)
    return {};
  auto made = ceph::make_ref<Coll>(cct, c, this, h);
  std::unique_lock l(coll_lock);
  return colls.emplace(c, made).first->second;
}

ObjectStore::CollectionHandle EskerStore::create_new_collection(const coll_t& c)
{
  const auto cid = esker::to_cid(c);
  esker_coll *h = nullptr;
  int r = esker_coll_create(store, &cid, &h);
  ceph_assert(r == 0);
  auto made = ceph::make_ref<Coll>(cct, c, this, h);
  std::unique_lock l(coll_lock);
  new_colls[c] = made;
  return made;
}

void EskerStore::set_collection_commit_queue(const coll_t& c, ContextQueue *q)
{
  std::shared_lock l(coll_lock);
  for (auto *all : {&colls, &new_colls}) {
    auto p = all->find(c);
    if (p != all->end())
      p->second->commit_queue = q;
  }
}

int EskerStore::list_collections(vector<coll_t>& to)
{
  auto visit = [](void *to, const esker_cid *cid) {
    static_cast<vector<coll_t> *>(to)->push_back(esker::from_cid(*cid));
  };
  return esker_coll_list(store, visit, &to);
}

bool EskerStore::collection_exists(const coll_t& c)
{
  const auto cid = esker::to_cid(c);
  return esker_coll_exists(store, &cid) == 1;
}

int EskerStore::collection_empty(CollectionHandle& ch, bool *empty)
{
  int r = esker_coll_empty(handle(ch));
  if (r < 0)
    return r;
  *empty = r;
  return 0;
}

int EskerStore::collection_bits(CollectionHandle& ch)
{
  return esker_coll_bits(handle(ch));
}

int EskerStore::collection_list(CollectionHandle& ch, const ghobject_t& start, const ghobject_t& end,
                                int max, vector<ghobject_t> *to, ghobject_t *next)
{
  const auto from = esker::to_oid(start), until = esker::to_oid(end);
  esker_page *page = nullptr;
  // Callers with no bound of their own say -1 or INT_MAX.
  const size_t most = max < 0 ? SIZE_MAX : max;
  int r = esker_list(handle(ch), &from, &until, most, &page);
  if (r < 0)
    return r;
  esker_oid oid;
  for (size_t i = 0; i < esker_page_count(page); i++) {
    esker_page_oid(page, i, &oid);
    to->push_back(esker::from_oid(oid));
  }
  if (next) {
    esker_page_next(page, &oid);
    *next = esker::from_oid(oid);
  }
  esker_page_free(page);
  return 0;
}
