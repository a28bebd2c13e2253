#include "tables.h"

#include "names.h"

using ceph::bufferlist;
using ceph::os::Transaction;

namespace esker {

Tables::Tables(std::vector<Transaction>& txns)
{
  tables.reserve(txns.size());
  for (auto& t : txns) {
    auto& one = all.emplace_back(t);
    for (auto& c : one.i.colls)
      one.cids.push_back(to_cid(c));
    for (auto& o : one.i.objects)
      one.oids.push_back(to_oid(o));
    one.ops.reserve(t.get_num_ops());
    while (one.i.have_op() && !failure)
      add(one, one.i.decode_op());
    tables.push_back({one.cids.data(), one.cids.size(), one.oids.data(), one.oids.size(),
                      one.ops.data(), one.ops.size()});
  }
}

void Tables::attach(esker_op& row, bufferlist&& bl)
{
  auto& kept = buffers.emplace_back(std::move(bl));
  auto& list = pieces.back();
  for (auto& p : kept.buffers())
    if (p.length())
      list.push_back(bytes(p.c_str(), p.length()));
  payload += kept.length();
}

void Tables::attach(esker_op& row, std::string&& s)
{
  pieces.back().push_back(bytes(strings.emplace_back(std::move(s))));
}

void Tables::add(One& one, Transaction::Op *op)
{
  auto& i = one.i;
  esker_op row = {};
  row.op = op->op;
  row.cid = op->cid;
  row.oid = op->oid;
  row.dest_cid = op->dest_cid;
  row.dest_oid = op->dest_oid;
  row.offset = op->off;
  row.len = op->len;
  row.dest_offset = op->dest_off;
  pieces.emplace_back();
  auto blob = [&] { bufferlist bl; i.decode_bl(bl); attach(row, std::move(bl)); };

  // Whatever an op has in the stream is taken off it here.
  switch (op->op) {
  case Transaction::OP_NOP:
  case Transaction::OP_CREATE:
  case Transaction::OP_TOUCH:
  case Transaction::OP_ZERO:
  case Transaction::OP_TRUNCATE:
  case Transaction::OP_RMATTRS:
  case Transaction::OP_CLONE:
  case Transaction::OP_CLONERANGE2:
  case Transaction::OP_OMAP_CLEAR:
    break;
  case Transaction::OP_TRY_RENAME:
  case Transaction::OP_COLL_MOVE_RENAME:
  case Transaction::OP_REMOVE:
    drops.push_back(i.get_oid(op->oid));
    break;
  case Transaction::OP_CLONERANGE:
    row.op = Transaction::OP_CLONERANGE2;
    row.dest_offset = op->off;
    break;
  case Transaction::OP_WRITE:
  case Transaction::OP_OMAP_SETHEADER:
    blob();
    break;
  case Transaction::OP_SETATTR:
    attach(row, i.decode_string());
    blob();
    break;
  case Transaction::OP_RMATTR:
    attach(row, i.decode_string());
    break;
  case Transaction::OP_OMAP_RMKEYRANGE:
    attach(row, i.decode_string());
    attach(row, i.decode_string());
    break;
  case Transaction::OP_SETATTRS:
  case Transaction::OP_OMAP_SETKEYS: {
    bufferlist bl;
    i.decode_attrset_bl(&bl);
    attach(row, std::move(bl));
    break;
  }
  case Transaction::OP_OMAP_RMKEYS: {
    bufferlist bl;
    i.decode_keyset_bl(&bl);
    attach(row, std::move(bl));
    break;
  }
  case Transaction::OP_SETALLOCHINT:
    row.offset = op->expected_object_size;
    row.len = op->expected_write_size;
    row.flags = op->hint;
    break;
  case Transaction::OP_MKCOLL:
    row.flags = op->split_bits;
    comes.push_back(i.get_cid(op->cid));
    break;
  case Transaction::OP_RMCOLL:
    goes.push_back(i.get_cid(op->cid));
    break;
  case Transaction::OP_SPLIT_COLLECTION2:
    row.flags = op->split_bits;
    row.len = op->split_rem;
    break;
  case Transaction::OP_MERGE_COLLECTION:
    row.flags = op->split_bits;
    goes.push_back(i.get_cid(op->cid));
    break;
  case Transaction::OP_COLL_SET_BITS:
    row.flags = op->split_bits;
    break;
  case Transaction::OP_COLL_HINT:
    row.flags = op->hint;
    blob();
    break;
  case Transaction::OP_TRIMCACHE:
    row = {};
    break;
  default:
    // What older releases had; no OSD of this one makes it.
    failure = -EOPNOTSUPP;
    return;
  }
  row.bytes = pieces.back().data();
  row.bytes_count = pieces.back().size();
  one.ops.push_back(row);
}

} // namespace esker
