// Counters and dumps.
#include "common/Formatter.h"
#include "common/ceph_context.h"

#include "collection.h"

using std::string;

void EskerStore::make_counters()
{
  PerfCountersBuilder b(cct, "esker", l_esker_first, l_esker_last);
  const int useful = PerfCountersBuilder::PRIO_USEFUL, critical = PerfCountersBuilder::PRIO_CRITICAL;
  b.add_time_avg(l_esker_submit_lat, "submit_lat", "From a transaction's coming to its effects", "es_l",
                 useful);
  b.add_time_avg(l_esker_commit_lat, "commit_lat", "From a transaction's coming to its commit", "ec_l",
                 critical);
  b.add_time_avg(l_esker_read_lat, "read_lat", "Reads of data", "er_l", critical);
  b.add_u64_counter(l_esker_txc, "txc", "Calls that queued transactions");
  b.add_u64_counter(l_esker_ops, "ops", "Operations in them");
  b.add_u64_counter(l_esker_write_bytes, "write_bytes", "Data, attributes and omap entries in them",
                    nullptr, 0, unit_t(UNIT_BYTES));
  b.add_u64_counter(l_esker_read_bytes, "read_bytes", "Data read", nullptr, 0, unit_t(UNIT_BYTES));
  b.add_u64_counter(l_esker_omap_iterators, "omap_iterators", "Omap iterators made");
  b.add_u64(l_esker_total_bytes, "total_bytes", "Bytes the store offers", nullptr, 0,
            unit_t(UNIT_BYTES));
  b.add_u64(l_esker_available_bytes, "available_bytes", "Bytes that are left", nullptr, 0,
            unit_t(UNIT_BYTES));
  b.add_u64(l_esker_allocated_bytes, "allocated_bytes", "Data of objects on flash", "alls", useful,
            unit_t(UNIT_BYTES));
  b.add_u64(l_esker_stored_bytes, "stored_bytes", "Data of objects", "stor", useful,
            unit_t(UNIT_BYTES));
  b.add_u64(l_esker_omap_bytes, "omap_bytes", "Omap values on flash", nullptr, 0, unit_t(UNIT_BYTES));
  b.add_u64(l_esker_objects, "objects", "Objects");
  logger = b.create_perf_counters();
  cct->get_perfcounters_collection()->add(logger);
}

void EskerStore::refresh_perf_counters()
{
  esker_statfs_t s;
  if (store && esker_statfs(store, &s) == 0)
    set_gauges(s);
}

// Every statfs() sets them too: an OSD asks for that once a second, and dumps its counters
// without a word to the store.
void EskerStore::set_gauges(const esker_statfs_t& s)
{
  logger->set(l_esker_total_bytes, s.total);
  logger->set(l_esker_available_bytes, s.available);
  logger->set(l_esker_allocated_bytes, s.allocated);
  logger->set(l_esker_stored_bytes, s.data_stored);
  logger->set(l_esker_omap_bytes, s.omap_allocated);
  logger->set(l_esker_objects, s.objects);
}

objectstore_perf_stat_t EskerStore::get_cur_stats()
{
  objectstore_perf_stat_t s;
  s.os_commit_latency_ns = logger->get_tavg_ns(l_esker_commit_lat).first;
  s.os_apply_latency_ns = logger->get_tavg_ns(l_esker_submit_lat).first;
  return s;
}

string EskerStore::stats()
{
  esker_buf json = {};
  if (!store || esker_stats(store, &json) < 0)
    return "{}";
  string text(reinterpret_cast<const char *>(json.data), json.len);
  esker_buf_free(&json);
  return text;
}

void EskerStore::get_db_statistics(ceph::Formatter *f)
{
  f->dump_string("esker", stats());
}

void EskerStore::dump_perf_counters(ceph::Formatter *f)
{
  refresh_perf_counters();
  f->open_object_section("perf_counters");
  logger->dump_formatted(f, false, false);
  f->close_section();
}

void EskerStore::dump_cache_stats(ceph::Formatter *f)
{
  f->dump_string("esker", stats());
}

void EskerStore::dump_cache_stats(std::ostream& out)
{
  out << stats();
}

int EskerStore::flush_cache(std::ostream *out)
{
  int r = esker_set_cache_bytes(store, 0);
  if (r == 0)
    r = esker_set_cache_bytes(store, cache_bytes());
  return r;
}

// There is nothing to compact; an operator who asks wants a quick next start.
int EskerStore::compact()
{
  return esker_checkpoint(store);
}
