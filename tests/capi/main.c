/*
 * Every function of esker.h once or more, as a C program would use it: capi FOLDER.
 *
 * Prints what failed and exits with 1. Run it under a memory checker.
 */
#include "check.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: capi FOLDER\n");
        return 2;
    }
    CHECK(esker_abi() == ESKER_ABI);
    CHECK(strlen(esker_version()) > 0);
    CHECK(strcmp(esker_last_error(), "") == 0);

    test_names();
    esker_store *store = test_create(argv[1]);
    test_key_value(store);
    test_objects(store);
    test_omap(store);
    test_tables(store);
    test_callbacks(store);
    test_collections(store);
    test_misuse(store);
    test_reopen(store, argv[1]);
    return EXIT_SUCCESS;
}
