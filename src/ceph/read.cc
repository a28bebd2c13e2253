// Reading objects.
#include "common/deleter.h"
#include "common/debug.h"
#include "common/errno.h"

#include "collection.h"
#include "names.h"

using ceph::bufferlist;
using ceph::bufferptr;
using std::map;
using std::set;
using std::string;
using std::vector;

namespace {

// A buffer of the library's as one of Ceph's, without a copy.
bufferptr adopt(const esker_buf& buf)
{
  if (!buf.len) {
    auto copy = buf;
    esker_buf_free(&copy);
    return ceph::buffer::create(0);
  }
  auto data = reinterpret_cast<char *>(const_cast<uint8_t *>(buf.data));
  auto free = make_deleter([held = buf]() mutable { esker_buf_free(&held); });
  return ceph::buffer::claim_buffer(buf.len, data, std::move(free));
}

void append(bufferlist& to, const esker_buf& buf)
{
  auto p = adopt(buf);
  if (p.length())
    to.push_back(std::move(p));
}

vector<esker_bytes> all(const set<string>& keys)
{
  vector<esker_bytes> to;
  to.reserve(keys.size());
  for (auto& k : keys)
    to.push_back(esker::bytes(k));
  return to;
}

void put_pair(void *to, const esker_bytes *key, const esker_bytes *value)
{
  auto& m = *static_cast<map<string, bufferlist> *>(to);
  m[esker::text(*key)] = esker::list(*value);
}

void put_key(void *to, const esker_bytes *key)
{
  static_cast<set<string> *>(to)->insert(esker::text(*key));
}

} // namespace

bool EskerStore::is_bad(const set<ghobject_t>& which, const ghobject_t& o)
{
  if (!injected || !cct->_conf->bluestore_debug_inject_read_err)
    return false;
  std::lock_guard l(inject_lock);
  return which.count(o);
}

void EskerStore::inject_data_error(const ghobject_t& o)
{
  std::lock_guard l(inject_lock);
  bad_data.insert(o);
  injected = true;
}

void EskerStore::inject_mdata_error(const ghobject_t& o)
{
  std::lock_guard l(inject_lock);
  bad_metadata.insert(o);
  injected = true;
}

bool EskerStore::exists(CollectionHandle& ch, const ghobject_t& o)
{
  const auto oid = esker::to_oid(o);
  return esker_exists(handle(ch), &oid) == 1;
}

int EskerStore::stat(CollectionHandle& ch, const ghobject_t& o, struct stat *to, bool allow_eio)
{
  const auto oid = esker::to_oid(o);
  uint64_t size = 0;
  int r = esker_stat(handle(ch), &oid, &size);
  if (r == 0 && is_bad(bad_metadata, o))
    r = -EIO;
  if (r < 0)
    return r;
  *to = {};
  to->st_size = size;
  to->st_blksize = 4096;
  to->st_blocks = (size + 511) / 512;
  to->st_nlink = 1;
  return 0;
}

int EskerStore::read(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
                     bufferlist& to, uint32_t flags)
{
  const auto start = ceph::mono_clock::now();
  to.clear();
  const auto oid = esker::to_oid(o);
  esker_buf buf = {};
  int r = esker_read(handle(ch), &oid, off, len, &buf);
  if (r < 0)
    return r;
  append(to, buf);
  if (is_bad(bad_data, o))
    return -EIO;
  logger->inc(l_esker_read_bytes, to.length());
  logger->tinc(l_esker_read_lat, ceph::mono_clock::now() - start);
  return to.length();
}

int EskerStore::readv(CollectionHandle& ch, const ghobject_t& o, interval_set<uint64_t>& ranges,
                      bufferlist& to, uint32_t flags)
{
  const auto oid = esker::to_oid(o);
  uint64_t size = 0;
  int r = esker_stat(handle(ch), &oid, &size);
  if (r < 0)
    return r;
  // Ranges behind the end are taken out of the set, which the default does, one at a time.
  if (!ranges.empty() && ranges.range_end() > size)
    return ObjectStore::readv(ch, o, ranges, to, flags);
  vector<esker_range> list;
  list.reserve(ranges.num_intervals());
  for (auto p = ranges.begin(); p != ranges.end(); ++p)
    list.push_back({p.get_start(), p.get_len()});
  esker_buf buf = {};
  r = esker_readv(handle(ch), &oid, list.data(), list.size(), &buf);
  if (r < 0)
    return r;
  const int n = buf.len;
  append(to, buf);
  return is_bad(bad_data, o) ? -EIO : n;
}

int EskerStore::fiemap(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
                       map<uint64_t, uint64_t>& to)
{
  const auto oid = esker::to_oid(o);
  auto visit = [](void *to, uint64_t off, uint64_t len) {
    static_cast<map<uint64_t, uint64_t> *>(to)->emplace(off, len);
  };
  return esker_fiemap(handle(ch), &oid, off, len, visit, &to);
}

int EskerStore::fiemap(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
                       bufferlist& to)
{
  map<uint64_t, uint64_t> m;
  int r = fiemap(ch, o, off, len, m);
  if (r >= 0) {
    using ceph::encode;
    encode(m, to);
  }
  return r;
}

int EskerStore::getattr(CollectionHandle& ch, const ghobject_t& o, const char *name, bufferptr& to)
{
  const auto oid = esker::to_oid(o);
  esker_buf buf = {};
  int r = esker_getattr(handle(ch), &oid, esker::bytes(name, strlen(name)), &buf);
  if (r < 0)
    return r;
  to = adopt(buf);
  return is_bad(bad_metadata, o) ? -EIO : 0;
}

int EskerStore::getattrs(CollectionHandle& ch, const ghobject_t& o,
                         map<string, bufferptr, std::less<>>& to)
{
  to.clear();
  const auto oid = esker::to_oid(o);
  auto visit = [](void *to, const esker_bytes *name, const esker_bytes *value) {
    auto& m = *static_cast<map<string, bufferptr, std::less<>> *>(to);
    m.emplace(esker::text(*name), esker::pointer(*value));
  };
  int r = esker_getattrs(handle(ch), &oid, visit, &to);
  return r == 0 && is_bad(bad_metadata, o) ? -EIO : r;
}

int EskerStore::omap_get(CollectionHandle& ch, const ghobject_t& o, bufferlist *header,
                         map<string, bufferlist> *to)
{
  const auto oid = esker::to_oid(o);
  esker_buf buf = {};
  int r = esker_omap_get(handle(ch), &oid, &buf, put_pair, to);
  if (r == 0)
    append(*header, buf);
  return r;
}

int EskerStore::omap_get_header(CollectionHandle& ch, const ghobject_t& o, bufferlist *header,
                                bool allow_eio)
{
  const auto oid = esker::to_oid(o);
  esker_buf buf = {};
  int r = esker_omap_get_header(handle(ch), &oid, &buf);
  if (r == 0)
    append(*header, buf);
  return r;
}

int EskerStore::omap_get_keys(CollectionHandle& ch, const ghobject_t& o, set<string> *to)
{
  const auto oid = esker::to_oid(o);
  return esker_omap_get_keys(handle(ch), &oid, put_key, to);
}

int EskerStore::omap_get_values(CollectionHandle& ch, const ghobject_t& o, const set<string>& keys,
                                map<string, bufferlist> *to)
{
  const auto oid = esker::to_oid(o);
  const auto list = all(keys);
  return esker_omap_get_values(handle(ch), &oid, list.data(), list.size(), put_pair, to);
}

int EskerStore::omap_check_keys(CollectionHandle& ch, const ghobject_t& o, const set<string>& keys,
                                set<string> *to)
{
  const auto oid = esker::to_oid(o);
  const auto list = all(keys);
  return esker_omap_check_keys(handle(ch), &oid, list.data(), list.size(), put_key, to);
}

// A cursor by key: changes to the omap under it do no harm.
struct EskerStore::Iterator : public ObjectMap::ObjectMapIteratorImpl {
  const CollRef coll;
  esker_iter *const it;
  int result = 0;

  Iterator(CollRef c, esker_iter *i) : coll(c), it(i) {}
  ~Iterator() override { esker_iter_free(it); }

  int seek_to_first() override { return result = esker_iter_seek_first(it); }
  int lower_bound(const string& to) override
  {
    return result = esker_iter_lower_bound(it, esker::bytes(to));
  }
  int upper_bound(const string& after) override
  {
    return result = esker_iter_upper_bound(it, esker::bytes(after));
  }
  bool valid() override { return esker_iter_valid(it) == 1; }
  int next() override { return result = esker_iter_next(it); }
  string key() override
  {
    esker_bytes k = {};
    return esker_iter_key(it, &k) == 0 ? esker::text(k) : string();
  }
  bufferlist value() override
  {
    esker_bytes v = {};
    return esker_iter_value(it, &v) == 0 ? esker::list(v) : bufferlist();
  }
  int status() override { return result; }
};

ObjectMap::ObjectMapIterator EskerStore::get_omap_iterator(CollectionHandle& ch, const ghobject_t& o)
{
  const auto oid = esker::to_oid(o);
  esker_iter *it = nullptr;
  if (esker_iter_new(handle(ch), &oid, &it) < 0)
    return {};
  logger->inc(l_esker_omap_iterators);
  return std::make_shared<Iterator>(of(ch), it);
}
