// Names and bytes of Ceph's as Esker's, and back. Borrowed: what they point to must stay.
#pragma once

#include <string>

#include "common/hobject.h"
#include "include/buffer.h"
#include "osd/osd_types.h"

#include "esker.h"

namespace esker {

inline esker_bytes bytes(const char *data, size_t len)
{
  return {reinterpret_cast<const uint8_t *>(data), len};
}

inline esker_bytes bytes(const std::string& s)
{
  return bytes(s.data(), s.size());
}

inline std::string text(const esker_bytes& b)
{
  return {reinterpret_cast<const char *>(b.data), b.len};
}

inline ceph::buffer::ptr pointer(const esker_bytes& b)
{
  // c_str() of a ptr without memory asserts, and an empty value is a value.
  if (!b.len)
    return ceph::buffer::create(0);
  return ceph::buffer::ptr(reinterpret_cast<const char *>(b.data), b.len);
}

inline ceph::buffer::list list(const esker_bytes& b)
{
  ceph::buffer::list bl;
  if (b.len)
    bl.append(reinterpret_cast<const char *>(b.data), b.len);
  return bl;
}

inline esker_cid to_cid(const coll_t& c)
{
  esker_cid cid = {0, 0, ESKER_NO_SHARD, ESKER_CID_META};
  spg_t pg;
  if (c.is_pg_prefix(&pg)) {
    cid.pool = pg.pool();
    cid.seed = pg.ps();
    cid.shard = pg.shard;
    cid.kind = c.is_temp() ? ESKER_CID_TEMP : ESKER_CID_HEAD;
  }
  return cid;
}

inline coll_t from_cid(const esker_cid& cid)
{
  if (cid.kind == ESKER_CID_META)
    return coll_t();
  coll_t c(spg_t(pg_t(cid.seed, cid.pool), shard_id_t(cid.shard)));
  return cid.kind == ESKER_CID_TEMP ? c.get_temp() : c;
}

inline esker_oid to_oid(const ghobject_t& o)
{
  esker_oid oid = {};
  // A bound may have the one mark or the other.
  if (o.is_max() || o.hobj.is_max()) {
    oid.max = 1;
    return oid;
  }
  oid.pool = o.hobj.pool;
  oid.snap = o.hobj.snap;
  oid.gen = o.generation;
  oid.hash = o.hobj.get_hash();
  oid.shard = o.shard_id;
  oid.nspace = bytes(o.hobj.nspace);
  oid.key = bytes(o.hobj.get_key());
  oid.name = bytes(o.hobj.oid.name);
  return oid;
}

inline ghobject_t from_oid(const esker_oid& oid)
{
  if (oid.max)
    return ghobject_t::get_max();
  hobject_t h(object_t(text(oid.name)), text(oid.key), oid.snap, oid.hash, oid.pool,
              text(oid.nspace));
  return ghobject_t(h, oid.gen, shard_id_t(oid.shard));
}

} // namespace esker
