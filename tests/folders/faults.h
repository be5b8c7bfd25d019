/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of snug's code that fail on request: the linker puts faults.c between snug and the C library
 * (--wrap, see tests/CMakeLists.txt). Allocations of other libraries never fail; jansson allocates through snug.
 */
#ifndef SNUG_TESTS_FAULTS_H
#define SNUG_TESTS_FAULTS_H

#include <stdint.h>

enum fault_calls { FAULT_MEMORY, FAULT_FILES };
enum fault_effect {
    FAULT_ONCE,   /* call number at fails */
    FAULT_ALL,    /* and every later one of its class */
    FAULT_WRITES, /* and every later one that uses disk space, as on a full disk */
    FAULT_KILL,   /* SIGKILL instead of the call */
};

/* The call sites, up to the size of the table, each with the number of its first call. */
enum { FAULT_PLACES = 4096 };
struct fault_places {
    int64_t count;
    struct {
        uint64_t place;
        int64_t number;
    } items[FAULT_PLACES];
};

/* In memory that parent and child share. */
struct faults {
    int64_t at; /* from 1 on; 0: count only */
    enum fault_calls calls;
    enum fault_effect effect;
    int64_t count;      /* calls of the class so far */
    char name[24];      /* of the first failed call; "" if none failed */
    int64_t held;       /* memory, mappings, streams, descriptors allocated since counting began and not freed */
    int64_t free_bytes; /* free bytes of every disk; 0: the real number */
    struct fault_places *places; /* where places are recorded; NULL: nowhere */
};

/* From now on calls are counted in faults, and fail as it says; NULL: no longer. */
void faults_arm(struct faults *faults);

#endif
