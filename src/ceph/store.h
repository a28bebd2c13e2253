// Ceph's ObjectStore on Esker: a thin class over esker.h.
//
// It owns what only Ceph knows: collection handles and their commit queues, contexts, the
// files of an OSD's folder, configuration, counters. Everything else is one call of esker.h.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>

#include "common/Finisher.h"
#include "common/ceph_time.h"
#include "common/perf_counters.h"
#include "os/ObjectStore.h"

#include "esker.h"

namespace esker {
class Tables;
}

class EskerStore : public ObjectStore {
public:
  EskerStore(CephContext *cct, const std::string& type, const std::string& path);
  ~EskerStore() override;

  // Life.
  std::string get_type() override { return type; }
  bool test_mount_in_use() override;
  int mkfs() override;
  int mkjournal() override { return 0; }
  bool needs_journal() override { return false; }
  bool wants_journal() override { return false; }
  bool allows_journal() override { return false; }
  int mount() override;
  int umount() override;
  int fsck(bool deep) override;
  int repair(bool deep) override;
  int quick_fix() override { return repair(false); }
  void set_fsid(uuid_d u) override { fsid = u; }
  uuid_d get_fsid() override { return fsid; }

  // What it is on.
  int validate_hobject_key(const hobject_t& o) const override;
  unsigned get_max_attr_name_length() override { return 256; }
  uint64_t get_min_alloc_size() const override { return 4096; }
  int get_ideal_list_max() override { return 256; }
  bool can_sort_nibblewise() override { return true; }
  bool has_builtin_csum() const override { return true; }
  // An engine for flash: what a virtual disk says of itself is often wrong.
  bool is_rotational() override { return false; }
  bool is_journal_rotational() override { return false; }
  int get_devices(std::set<std::string> *devices) override;
  void collect_metadata(std::map<std::string, std::string> *to) override;
  int statfs(store_statfs_t *to, osd_alert_list_t *alerts) override;
  int pool_statfs(uint64_t pool, store_statfs_t *to, bool *per_pool_omap) override;
  uint64_t estimate_objects_overhead(uint64_t objects) override { return objects * 256; }

  // Operation.
  objectstore_perf_stat_t get_cur_stats() override;
  void refresh_perf_counters() override;
  const PerfCounters *get_perf_counters() const override { return logger; }
  void get_db_statistics(ceph::Formatter *f) override;
  void dump_perf_counters(ceph::Formatter *f) override;
  void dump_cache_stats(ceph::Formatter *f) override;
  void dump_cache_stats(std::ostream& out) override;
  int flush_cache(std::ostream *out) override;
  int compact() override;
  void inject_data_error(const ghobject_t& o) override;
  void inject_mdata_error(const ghobject_t& o) override;

  // Collections.
  CollectionHandle open_collection(const coll_t& c) override;
  CollectionHandle create_new_collection(const coll_t& c) override;
  void set_collection_commit_queue(const coll_t& c, ContextQueue *q) override;
  int set_collection_opts(CollectionHandle&, const pool_opts_t&) override { return -EOPNOTSUPP; }
  int list_collections(std::vector<coll_t>& to) override;
  bool collection_exists(const coll_t& c) override;
  int collection_empty(CollectionHandle& ch, bool *empty) override;
  int collection_bits(CollectionHandle& ch) override;
  int collection_list(CollectionHandle& ch, const ghobject_t& start, const ghobject_t& end, int max,
                      std::vector<ghobject_t> *to, ghobject_t *next) override;

  // Writing.
  int queue_transactions(CollectionHandle& ch, std::vector<Transaction>& txns, TrackedOpRef op,
                         ThreadPool::TPHandle *handle) override;

  // Reading.
  bool exists(CollectionHandle& ch, const ghobject_t& o) override;
  int stat(CollectionHandle& ch, const ghobject_t& o, struct stat *to, bool allow_eio) override;
  int read(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
           ceph::buffer::list& to, uint32_t flags) override;
  int readv(CollectionHandle& ch, const ghobject_t& o, interval_set<uint64_t>& ranges,
            ceph::buffer::list& to, uint32_t flags) override;
  int fiemap(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
             ceph::buffer::list& to) override;
  int fiemap(CollectionHandle& ch, const ghobject_t& o, uint64_t off, size_t len,
             std::map<uint64_t, uint64_t>& to) override;
  int getattr(CollectionHandle& ch, const ghobject_t& o, const char *name,
              ceph::buffer::ptr& to) override;
  int getattrs(CollectionHandle& ch, const ghobject_t& o,
               std::map<std::string, ceph::buffer::ptr, std::less<>>& to) override;
  int omap_get(CollectionHandle& ch, const ghobject_t& o, ceph::buffer::list *header,
               std::map<std::string, ceph::buffer::list> *to) override;
  int omap_get_header(CollectionHandle& ch, const ghobject_t& o, ceph::buffer::list *header,
                      bool allow_eio) override;
  int omap_get_keys(CollectionHandle& ch, const ghobject_t& o, std::set<std::string> *to) override;
  int omap_get_values(CollectionHandle& ch, const ghobject_t& o, const std::set<std::string>& keys,
                      std::map<std::string, ceph::buffer::list> *to) override;
  int omap_check_keys(CollectionHandle& ch, const ghobject_t& o, const std::set<std::string>& keys,
                      std::set<std::string> *to) override;
  ObjectMap::ObjectMapIterator get_omap_iterator(CollectionHandle& ch,
                                                 const ghobject_t& o) override;

private:
  struct Coll;
  using CollRef = ceph::ref_t<Coll>;
  struct Iterator;
  struct Done;

  static Coll *of(CollectionHandle& ch);
  static esker_coll *handle(CollectionHandle& ch);
  std::string block_path() const { return path + "/block"; }
  uint64_t cache_bytes() const;
  int make_block();
  int check(bool deep, bool repair);
  void forget(const std::vector<coll_t>& created, const std::vector<coll_t>& removed);
  void call(Coll *c, std::list<Context *>& contexts);
  void fail(const char *what, int r, std::vector<Transaction>& txns);
  void make_counters();
  void set_gauges(const esker_statfs_t& s);
  std::string stats();
  static void on_commit(void *done, int r);

  const std::string type;
  uuid_d fsid;
  esker_store *store = nullptr;
  Finisher finisher;
  PerfCounters *logger = nullptr;

  // Collections by name: the same handle for all who ask, as its commit queue is part of it.
  std::shared_mutex coll_lock;
  std::map<coll_t, CollRef> colls;
  // Those that a transaction has yet to create.
  std::map<coll_t, CollRef> new_colls;

  // Errors that a test injected; looked at only if there are some.
  std::atomic<bool> injected{false};
  std::mutex inject_lock;
  std::set<ghobject_t> bad_data, bad_metadata;
  bool is_bad(const std::set<ghobject_t>& which, const ghobject_t& o);
};
