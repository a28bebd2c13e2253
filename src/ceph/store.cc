// Life of the store: mkfs, mount, check, and what it says of itself.
#include "store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/debug.h"
#include "common/errno.h"
#include "include/stringify.h"

#include "collection.h"
#include "names.h"

#define dout_context cct
#define dout_subsys ceph_subsys_bluestore
#undef dout_prefix
#define dout_prefix *_dout << "esker(" << path << ") "

using std::map;
using std::set;
using std::string;

EskerStore::EskerStore(CephContext *cct, const string& type, const string& path)
  : ObjectStore(cct, path), type(type), finisher(cct, "esker_finisher", "esker_finish")
{
  make_counters();
}

EskerStore::~EskerStore()
{
  ceph_assert(!store);
  if (logger) {
    cct->get_perfcounters_collection()->remove(logger);
    delete logger;
  }
}

namespace {

// The library's threads take no signals: an OSD handles them on threads of its own.
class SignalsBlocked {
  sigset_t before;
public:
  SignalsBlocked()
  {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};

class Options {
  esker_options *o = nullptr;
public:
  Options() { ceph_assert(esker_options_new(&o) == 0); }
  ~Options() { esker_options_free(o); }
  void set(const char *name, uint64_t value) { ceph_assert(esker_options_set(o, name, value) == 0); }
  const esker_options *get() const { return o; }
};

} // namespace

// A quarter of what the OSD may use: the index and the OSD's own memory are the rest.
uint64_t EskerStore::cache_bytes() const
{
  return cct->_conf.get_val<Option::size_t>("osd_memory_target") / 4;
}

bool EskerStore::test_mount_in_use()
{
  return esker_in_use(block_path().c_str()) == 1;
}

// `block` is a link to a device, or a file. As for BlueStore, whose options name them.
int EskerStore::make_block()
{
  const string block = block_path();
  struct stat st;
  const string device = cct->_conf->bluestore_block_path;
  if (::stat(block.c_str(), &st) < 0 && !device.empty() &&
      ::symlink(device.c_str(), block.c_str()) < 0)
    return -errno;

  Options options;
  if (::stat(block.c_str(), &st) < 0 || S_ISREG(st.st_mode)) {
    // What an mkfs that was cut short left.
    if (::unlink(block.c_str()) < 0 && errno != ENOENT)
      return -errno;
    const char *bytes = getenv("ESKER_CAPACITY");
    options.set("capacity", bytes ? strtoull(bytes, nullptr, 0)
                                  : cct->_conf.get_val<Option::size_t>("bluestore_block_size"));
  }
  SignalsBlocked blocked;
  esker_store *s = nullptr;
  int r = esker_create(block.c_str(), options.get(), &s);
  if (r == 0)
    r = esker_close(s);
  if (r < 0)
    derr << __func__ << " " << block << ": " << esker_last_error() << dendl;
  return r;
}

int EskerStore::mkfs()
{
  string done, old;
  if (read_meta("mkfs_done", &done) == 0 && done == "yes") {
    uuid_d had;
    if (read_meta("fsid", &old) < 0 || !had.parse(old.c_str()))
      return -EINVAL;
    if (fsid.is_zero())
      fsid = had;
    if (fsid != had) {
      derr << __func__ << " has fsid " << had << ", not " << fsid << dendl;
      return -EINVAL;
    }
    return 0;
  }
  if (read_meta("fsid", &old) == 0 && fsid.is_zero())
    fsid.parse(old.c_str());
  if (fsid.is_zero())
    fsid.generate_random();
  int r = make_block();
  if (r == 0)
    r = write_meta("type", type);
  if (r == 0)
    r = write_meta("fsid", stringify(fsid));
  if (r == 0)
    r = write_meta("mkfs_done", "yes");
  return r;
}

int EskerStore::mount()
{
  ceph_assert(!store);
  string f;
  int r = read_meta("fsid", &f);
  if (r < 0)
    return r;
  if (!fsid.parse(f.c_str()))
    return -EINVAL;
  Options options;
  options.set("cache_bytes", cache_bytes());
  {
    SignalsBlocked blocked;
    r = esker_open(block_path().c_str(), options.get(), &store);
  }
  if (r < 0) {
    derr << __func__ << " " << block_path() << ": " << esker_last_error() << dendl;
    store = nullptr;
    return r;
  }
  finisher.start();
  return 0;
}

int EskerStore::umount()
{
  ceph_assert(store);
  {
    std::unique_lock l(coll_lock);
    // Callers may keep handles over an umount; what is behind them goes now.
    for (auto *all : {&colls, &new_colls}) {
      for (auto& [c, coll] : *all)
        coll->close();
      all->clear();
    }
  }
  int r = esker_close(store);
  if (r == -EBUSY) {
    derr << __func__ << ": " << esker_last_error() << dendl;
    return r;
  }
  if (r < 0)
    derr << __func__ << ": " << esker_last_error() << dendl;
  store = nullptr;
  // The close made the last callbacks, and they filled it.
  finisher.wait_for_empty();
  finisher.stop();
  return r;
}

int EskerStore::check(bool deep, bool repair)
{
  auto line = [](void *self, const esker_bytes *text) {
    auto cct = static_cast<EskerStore *>(self)->cct;
    auto& path = static_cast<EskerStore *>(self)->path;
    derr << "check: " << esker::text(*text) << dendl;
  };
  const uint32_t flags = (deep ? ESKER_CHECK_DEEP : 0) | (repair ? ESKER_CHECK_REPAIR : 0);
  int64_t r = esker_check(block_path().c_str(), flags, line, this);
  if (r < 0)
    derr << __func__ << ": " << esker_last_error() << dendl;
  return r;
}

int EskerStore::fsck(bool deep)
{
  return check(deep, false);
}

int EskerStore::repair(bool deep)
{
  return check(deep, true);
}

int EskerStore::validate_hobject_key(const hobject_t& o) const
{
  const size_t most = 4096;
  bool fits = o.oid.name.size() <= most && o.get_key().size() <= most && o.nspace.size() <= most;
  return fits ? 0 : -ENAMETOOLONG;
}

namespace {

// The kernel's name of the device a file is on, or is.
string device_of(const string& file)
{
  struct stat st;
  if (::stat(file.c_str(), &st) < 0)
    return {};
  const dev_t d = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
  const string link = "/sys/dev/block/" + stringify(major(d)) + ":" + stringify(minor(d));
  char to[PATH_MAX];
  ssize_t n = ::readlink(link.c_str(), to, sizeof to);
  if (n <= 0)
    return {};
  string target(to, n);
  return target.substr(target.rfind('/') + 1);
}

} // namespace

int EskerStore::get_devices(set<string> *devices)
{
  string name = device_of(block_path());
  if (!name.empty())
    devices->insert(name);
  return 0;
}

void EskerStore::collect_metadata(map<string, string> *to)
{
  char real[PATH_MAX];
  (*to)["esker_version"] = esker_version();
  (*to)["esker_block_path"] = ::realpath(block_path().c_str(), real) ? real : block_path();
  (*to)["esker_device"] = device_of(block_path());
  struct stat st;
  if (::stat(block_path().c_str(), &st) == 0)
    (*to)["esker_access_mode"] = S_ISBLK(st.st_mode) ? "blk" : "file";
  esker_statfs_t s;
  if (store && esker_statfs(store, &s) == 0)
    (*to)["esker_size"] = stringify(s.total + s.internally_reserved);
}

int EskerStore::statfs(store_statfs_t *to, osd_alert_list_t *alerts)
{
  if (alerts)
    alerts->clear();
  esker_statfs_t s;
  int r = esker_statfs(store, &s);
  if (r < 0)
    return r;
  to->reset();
  // Ceph counts reserved bytes in the total; Esker does not.
  to->total = s.total;
  to->available = s.available;
  to->allocated = s.allocated;
  to->data_stored = s.data_stored;
  to->omap_allocated = s.omap_allocated;
  to->internal_metadata = s.internal_metadata;
  set_gauges(s);
  return 0;
}

int EskerStore::pool_statfs(uint64_t pool, store_statfs_t *to, bool *per_pool_omap)
{
  esker_statfs_t s;
  int r = esker_pool_statfs(store, pool, &s);
  if (r < 0)
    return r;
  to->reset();
  to->allocated = s.allocated;
  to->data_stored = s.data_stored;
  to->omap_allocated = s.omap_allocated;
  *per_pool_omap = true;
  return 0;
}
