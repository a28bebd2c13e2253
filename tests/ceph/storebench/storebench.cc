// Store against store, without OSD, network or client: what an OSD queues for an RBD write of
// 4 KiB, from one thread for each shard.
//
//   storebench TYPE FOLDER SECONDS SHARDS DEPTH [options of Ceph]
//
// A transaction: two attributes of the object (293 and 35 bytes), 4096 bytes of data, two omap
// keys of the placement group (234 and 186 bytes), and every hundredth one removes a hundred.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "common/ceph_argparse.h"
#include "global/global_context.h"
#include "global/global_init.h"
#include "os/ObjectStore.h"

using namespace std;
using ceph::bufferlist;
using Transaction = ObjectStore::Transaction;

namespace {

constexpr unsigned OBJECTS = 64, OBJECT_BYTES = 4 << 20, BLOCK = 4096;
constexpr unsigned LOG_ENTRIES = 300, TRIMMED = 100;

double now()
{
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

double cpu_us()
{
  rusage r;
  getrusage(RUSAGE_SELF, &r);
  return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
}

uint64_t written()
{
  ifstream f("/proc/self/io");
  string key;
  uint64_t value;
  while (f >> key >> value)
    if (key == "write_bytes:")
      return value;
  return 0;
}

bufferlist noise(mt19937_64& g, unsigned len)
{
  auto p = ceph::buffer::create_small_page_aligned((len + 7) / 8 * 8);
  bufferptr ptr(std::move(p));
  for (unsigned i = 0; i + 8 <= ptr.length(); i += 8) {
    const uint64_t x = g();
    memcpy(ptr.c_str() + i, &x, 8);
  }
  ptr.set_length(len);
  bufferlist bl;
  bl.append(std::move(ptr));
  return bl;
}

struct Shard {
  mutex lock;
  condition_variable room;
  unsigned in_flight = 0;
  vector<float> latencies;
  ObjectStore::CollectionHandle coll;
  spg_t pg;
};

struct Done : public Context {
  Shard& shard;
  const double start = now();
  explicit Done(Shard& s) : shard(s) {}
  void finish(int) override
  {
    lock_guard l(shard.lock);
    shard.latencies.push_back((now() - start) * 1e6);
    shard.in_flight--;
    shard.room.notify_one();
  }
};

ghobject_t object(unsigned shard, unsigned i)
{
  // The low bits of the hash are those of the placement group.
  hobject_t h(object_t("rbd_data." + to_string(i)), "", CEPH_NOSNAP, shard | i << 8, 1, "");
  return ghobject_t(h);
}

string log_key(uint64_t i)
{
  char key[64];
  snprintf(key, sizeof key, "%010u.%020llu", 10u, (unsigned long long)i);
  return key;
}

// Fills every object, or overwrites blocks of them until told to stop.
void write_shard(ObjectStore *store, Shard& s, unsigned number, unsigned depth, bool fill,
                 const std::atomic<bool>& stop)
{
  mt19937_64 g(number + 7);
  const coll_t c(s.pg);
  const auto meta = s.pg.make_pgmeta_oid();
  const auto whole = noise(g, OBJECT_BYTES), block = noise(g, BLOCK), info = noise(g, 293),
             snaps = noise(g, 35), entry = noise(g, 234), fast = noise(g, 186);
  for (uint64_t i = 0; fill ? i < OBJECTS : !stop; i++) {
    {
      unique_lock l(s.lock);
      s.room.wait(l, [&] { return s.in_flight < depth; });
      s.in_flight++;
    }
    Transaction t;
    const auto o = object(number, fill ? i : g() % OBJECTS);
    if (fill)
      t.touch(c, o);
    map<string, bufferlist, less<>> attrs = {{"_", info}, {"snapset", snaps}};
    t.setattrs(c, o, attrs);
    if (fill)
      t.write(c, o, 0, OBJECT_BYTES, whole);
    else
      t.write(c, o, g() % (OBJECT_BYTES / BLOCK) * BLOCK, BLOCK, block);
    t.omap_setkeys(c, meta, {{log_key(fill ? i : i + OBJECTS), entry}, {"_fastinfo", fast}});
    if (!fill && i >= LOG_ENTRIES && i % TRIMMED == 0) {
      set<string> old;
      for (uint64_t k = i - LOG_ENTRIES; k < i - LOG_ENTRIES + TRIMMED; k++)
        old.insert(log_key(k));
      t.omap_rmkeys(c, meta, old);
    }
    t.register_on_commit(new Done(s));
    store->queue_transaction(s.coll, std::move(t));
  }
  unique_lock l(s.lock);
  s.room.wait(l, [&] { return s.in_flight == 0; });
}

void phase(ObjectStore *store, const char *type, deque<Shard>& shards, unsigned depth, double secs)
{
  const bool fill = secs == 0;
  std::atomic<bool> stop{false};
  const double t0 = now(), c0 = cpu_us();
  const uint64_t w0 = written();
  vector<thread> threads;
  for (unsigned i = 0; i < shards.size(); i++) {
    shards[i].latencies.clear();
    threads.emplace_back([&, i] { write_shard(store, shards[i], i, depth, fill, stop); });
  }
  if (!fill) {
    this_thread::sleep_for(chrono::duration<double>(secs));
    stop = true;
  }
  for (auto& t : threads)
    t.join();
  const double took = now() - t0, cpu = cpu_us() - c0;
  const uint64_t bytes = written() - w0;
  vector<float> all;
  double sum = 0;
  for (auto& s : shards)
    all.insert(all.end(), s.latencies.begin(), s.latencies.end());
  for (float x : all)
    sum += x;
  sort(all.begin(), all.end());
  const size_t n = all.size();
  printf("%s\t%s\t%zux%u\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\n", type, fill ? "fill4m" : "rbd4k",
         shards.size(), depth, n / took, sum / n, all[n / 2], all[n * 99 / 100], all[n * 999 / 1000],
         cpu / n, double(bytes) / n);
  fflush(stdout);
}

} // namespace

extern "C" __attribute__((visibility("default"))) int esker_main(int argc, char **argv, char **)
{
  if (argc < 6)
    return 2;
  const string type = argv[1], folder = argv[2];
  const double secs = atof(argv[3]);
  const unsigned shard_count = atoi(argv[4]), depth = atoi(argv[5]);
  vector<const char *> args(argv + 6, argv + argc);
  auto cct = global_init(nullptr, args, CEPH_ENTITY_TYPE_OSD, CODE_ENVIRONMENT_UTILITY,
                         CINIT_FLAG_NO_DEFAULT_CONFIG_FILE);
  common_init_finish(g_ceph_context);
  mkdir(folder.c_str(), 0755);
  auto store = ObjectStore::create(g_ceph_context, type, folder, folder + "/journal", 0);
  if (!store || store->mkfs() < 0 || store->mount() < 0) {
    fprintf(stderr, "storebench: no store of type %s\n", type.c_str());
    return 1;
  }
  deque<Shard> shards(shard_count);
  for (unsigned i = 0; i < shard_count; i++) {
    auto& s = shards[i];
    s.pg = spg_t(pg_t(i, 1));
    s.coll = store->create_new_collection(coll_t(s.pg));
    Transaction t;
    t.create_collection(coll_t(s.pg), 8);
    t.touch(coll_t(s.pg), s.pg.make_pgmeta_oid());
    store->queue_transaction(s.coll, std::move(t));
  }
  phase(store.get(), type.c_str(), shards, depth, 0);
  phase(store.get(), type.c_str(), shards, depth, secs);
  for (auto& s : shards)
    s.coll.reset();
  const int r = store->umount();
  store.reset();
  return r < 0;
}
