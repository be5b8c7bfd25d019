/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of snug's own code that fail when they are told to: the linker puts faults.c between snug and the C library
 * (--wrap, see faults.cmake). What other libraries allocate for themselves never fails; jansson's allocations are
 * snug's.
 */
#ifndef SNUG_TESTS_FAULTS_H
#define SNUG_TESTS_FAULTS_H

#include <stdint.h>

enum fault_calls { FAULT_MEMORY, FAULT_FILES };
enum fault_effect {
    FAULT_ONCE,   /* call number at fails */
    FAULT_ALL,    /* and all of its class behind it */
    FAULT_WRITES, /* and all behind it that take room on a disk, as on a full one */
    FAULT_KILL,   /* SIGKILL comes in its place */
};

/* Where calls come from, as far as there is room: of each place the number of its first call. */
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
    int64_t count; /* calls of the class so far */
    char name[24]; /* of the call that failed first; "" while none did */
    int64_t held;  /* memory, mappings, streams, descriptors that were given out since it was armed and not freed */
    int64_t free_bytes;          /* what every disk has left; 0: the truth */
    struct fault_places *places; /* where places are noted; NULL: nowhere */
};

/* From here on calls are counted in faults, and fail as it says; NULL: no more. */
void faults_arm(struct faults *faults);

#endif
