/*
 * Preloaded into a program of Ceph's: its main() becomes esker_main() of $ESKER_MAIN, which
 * finds every class the program exports, the real BlueStore among them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*main_fn)(int, char **, char **);
typedef int (*start_fn)(main_fn, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static int instead(int argc, char **argv, char **environment)
{
    void *library = dlopen(getenv("ESKER_MAIN"), RTLD_NOW | RTLD_GLOBAL);
    main_fn run = library ? (main_fn)dlsym(library, "esker_main") : NULL;
    if (!run) {
        fprintf(stderr, "storebench: %s\n", dlerror());
        return 2;
    }
    return run(argc, argv, environment);
}

int __libc_start_main(main_fn main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    start_fn start = (start_fn)dlsym(RTLD_NEXT, "__libc_start_main");
    /* Children inherit the preload; they are left alone. */
    const int here = getenv("ESKER_MAIN") && dlsym(RTLD_DEFAULT, "_ZTV11ObjectStore");
    return start(here ? instead : main, argc, argv, init, fini, rtld_fini, stack_end);
}
