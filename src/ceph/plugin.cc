// What the hook calls, and what a Ceph source tree would call.
#include <cstdio>
#include <cstring>

#include "common/version.h"

#include "store.h"

#ifndef ESKER_CEPH_VERSION
#define ESKER_CEPH_VERSION CEPH_GIT_NICE_VER
#include "ceph_ver.h"
#endif

extern "C" __attribute__((visibility("default")))
ObjectStore *esker_objectstore_create(CephContext *cct, const std::string *type,
                                      const std::string *data, const std::string *journal,
                                      uint32_t flags)
{
  // The layouts compiled in here are those of one release.
  if (strcmp(ceph_version_to_str(), ESKER_CEPH_VERSION) != 0) {
    fprintf(stderr, "esker: built for Ceph %s, this is %s\n", ESKER_CEPH_VERSION,
            ceph_version_to_str());
    return nullptr;
  }
  if (esker_abi() != ESKER_ABI) {
    fprintf(stderr, "esker: built for ABI %d of libesker, found %u\n", ESKER_ABI, esker_abi());
    return nullptr;
  }
  return new EskerStore(cct, *type, *data);
}
