// A list of Ceph's transactions as the flat tables that esker_submit() takes.
//
// Everything of this Ceph release's transaction layout is in tables.cc. Payload is not
// copied: the tables point into the transactions, which must outlive them.
#pragma once

#include <deque>
#include <vector>

#include "os/Transaction.h"

#include "esker.h"

namespace esker {

class Tables {
public:
  explicit Tables(std::vector<ceph::os::Transaction>& txns);
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const esker_table *data() const { return tables.data(); }
  size_t size() const { return tables.size(); }

  // 0, or why a transaction cannot be handed on.
  int error() const { return failure; }
  // Collections that come and go, in order.
  const std::vector<coll_t>& created() const { return comes; }
  const std::vector<coll_t>& removed() const { return goes; }
  // Objects whose old self is gone: what was injected into it is over.
  const std::vector<ghobject_t>& dropped() const { return drops; }
  uint64_t payload_bytes() const { return payload; }

private:
  struct One {
    explicit One(ceph::os::Transaction& t) : i(t.begin()) {}
    ceph::os::Transaction::iterator i;
    std::vector<esker_cid> cids;
    std::vector<esker_oid> oids;
    std::vector<esker_op> ops;
  };
  void add(One& one, ceph::os::Transaction::Op *op);
  void attach(esker_op& row, ceph::buffer::list&& bl);
  void attach(esker_op& row, std::string&& s);

  std::deque<One> all;
  std::vector<esker_table> tables;
  // Deques: what is in them does not move when they grow.
  std::deque<ceph::buffer::list> buffers;
  std::deque<std::string> strings;
  std::deque<std::vector<esker_bytes>> pieces;
  std::vector<coll_t> comes, goes;
  std::vector<ghobject_t> drops;
  uint64_t payload = 0;
  int failure = 0;
};

} // namespace esker
