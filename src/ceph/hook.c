/*
 * Lets an unmodified Ceph program make an Esker store. Preloaded; free of any Ceph release.
 *
 * LD_PRELOAD reaches every child, so nothing here needs a symbol of Ceph. Programs with an
 * object store export ObjectStore::create(), but call it directly, so a function of the same
 * name would not be found. The first bytes of it become a jump to take_over(), which loads
 * libesker_ceph<release>.so from its own folder for the types in $ESKER_TYPES (by default
 * "esker"), and for others puts the bytes back for the call.
 *
 *   ESKER_TYPES    store types to take, separated by commas
 *   ESKER_PLUGIN   the library to load instead
 *   ESKER_VERBOSE  says on stderr what happens
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How a std::string of libstdc++ begins. */
struct cxx_string {
    const char *data;
    size_t len;
};

/* A std::unique_ptr comes back through a hidden first argument. */
typedef void **(*create_fn)(void **ret, void *cct, const struct cxx_string *type,
                            const struct cxx_string *data, const struct cxx_string *journal,
                            uint32_t flags);
typedef void *(*plugin_fn)(void *cct, const struct cxx_string *type, const struct cxx_string *data,
                           const struct cxx_string *journal, uint32_t flags);
typedef const char *(*version_fn)(void);

static const char CREATE[] =
    "_ZN11ObjectStore6createEPN4ceph6common11CephContextERKNSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEESB_SB_j";
static const char VERSION[] = "_Z19ceph_version_to_strv";

#define JUMP_MAX 32
static uint8_t *entry;
static uint8_t before[JUMP_MAX], jump[JUMP_MAX];
static size_t jump_len;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ceph-osd's unit has MemoryDenyWriteExecute: code can never be made writable. Its pages are
 * mapped anew, from a file in memory that holds them with the change. */
static int patch(const uint8_t *bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *const start = (uint8_t *)((uintptr_t)entry & ~(uintptr_t)(page - 1));
    const size_t offset = (size_t)(entry - start);
    const size_t len = (offset + jump_len + page - 1) & ~(page - 1);
    int result = -1;
    uint8_t *copy = malloc(len);
    int fd = memfd_create("esker_hook", MFD_CLOEXEC);
    if (copy && fd >= 0) {
        memcpy(copy, start, len);
        memcpy(copy + offset, bytes, jump_len);
        if (write(fd, copy, len) == (ssize_t)len &&
            mmap(start, len, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) == start) {
            __builtin___clear_cache((char *)entry, (char *)entry + jump_len);
            result = 0;
        }
    }
    if (fd >= 0)
        close(fd);
    free(copy);
    return result;
}

static int is_ours(const struct cxx_string *type)
{
    const char *types = getenv("ESKER_TYPES");
    if (!types)
        types = "esker";
    while (*types) {
        const size_t len = strcspn(types, ",");
        if (len == type->len && !memcmp(types, type->data, len))
            return 1;
        types += len;
        types += *types == ',';
    }
    return 0;
}

/* The library for the release that runs, beside this one. */
static const char *plugin_path(char *to, size_t max)
{
    const char *set = getenv("ESKER_PLUGIN");
    version_fn version = (version_fn)dlsym(RTLD_DEFAULT, VERSION);
    Dl_info self;
    if (set)
        return set;
    if (!version || !dladdr((void *)&is_ours, &self) || !self.dli_fname)
        return "libesker_ceph.so";
    const char *slash = strrchr(self.dli_fname, '/');
    const int folder = slash ? (int)(slash + 1 - self.dli_fname) : 0;
    snprintf(to, max, "%.*slibesker_ceph%d.so", folder, self.dli_fname, atoi(version()));
    return to;
}

static void *make_ours(void *cct, const struct cxx_string *type, const struct cxx_string *data,
                       const struct cxx_string *journal, uint32_t flags)
{
    char path[PATH_MAX];
    const char *plugin = plugin_path(path, sizeof path);
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    plugin_fn make = library ? (plugin_fn)dlsym(library, "esker_objectstore_create") : NULL;
    if (!make) {
        fprintf(stderr, "esker: cannot load %s: %s\n", plugin, dlerror());
        return NULL;
    }
    return make(cct, type, data, journal, flags);
}

static void **take_over(void **ret, void *cct, const struct cxx_string *type,
                        const struct cxx_string *data, const struct cxx_string *journal,
                        uint32_t flags)
{
    const int ours = is_ours(type);
    pthread_mutex_lock(&lock);
    if (ours) {
        *ret = make_ours(cct, type, data, journal, flags);
    } else {
        patch(before);
        ((create_fn)(void *)entry)(ret, cct, type, data, journal, flags);
        patch(jump);
    }
    pthread_mutex_unlock(&lock);
    if (getenv("ESKER_VERBOSE"))
        fprintf(stderr, "esker: a store of type %.*s at %.*s %s\n", (int)type->len, type->data,
                (int)data->len, data->data, ours ? *ret ? "made" : "not made" : "left to Ceph");
    return ret;
}

__attribute__((constructor)) static void init(void)
{
    void *const target = (void *)take_over;
    entry = dlsym(RTLD_DEFAULT, CREATE);
    if (!entry)
        return; /* not a program with an object store */
#if defined(__x86_64__)
    static const uint8_t endbr64[4] = {0xf3, 0x0f, 0x1e, 0xfa};
    static const uint8_t movabs_rax[2] = {0x48, 0xb8}, jmp_rax[2] = {0xff, 0xe0};
    /* An indirect call must land on endbr64 where the processor checks. */
    if (!memcmp(entry, endbr64, sizeof endbr64)) {
        memcpy(jump, endbr64, sizeof endbr64);
        jump_len = sizeof endbr64;
    }
    memcpy(jump + jump_len, movabs_rax, 2);
    memcpy(jump + jump_len + 2, &target, 8);
    memcpy(jump + jump_len + 10, jmp_rax, 2);
    jump_len += 12;
#elif defined(__aarch64__)
    static const uint32_t ldr_br[2] = {0x58000050u, 0xd61f0200u}; /* ldr x16, .+8; br x16 */
    memcpy(jump, ldr_br, 8);
    memcpy(jump + 8, &target, 8);
    jump_len = 16;
#else
#error "no jump for this machine"
#endif
    memcpy(before, entry, jump_len);
    if (patch(jump))
        perror("esker: cannot take over ObjectStore::create");
}
