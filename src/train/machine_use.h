/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine does beside this process, as far as it makes a run slow. */
#ifndef SNUG_TRAIN_MACHINE_USE_H
#define SNUG_TRAIN_MACHINE_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counters grow; -1 where the kernel does not report a figure. */
struct snug_machine {
    double seconds;   /* of a clock */
    double cpu;       /* seconds of this process on all cores */
    double stolen;    /* seconds of all cores that a virtual machine's host gave to others */
    double throttled; /* seconds for which a quota stopped threads of the process's control group */
    double faults;    /* page faults of this process that read from a disk */
    double read;      /* bytes that this process read from disks */
    double swapped;   /* bytes of this process in the swap space, now */
    double load;      /* load average of the last minute */
    double quota;     /* CPUs that the control group may use; -1: no quota */
    double frequency; /* of the cores, of 1 their highest one */
    int cores;        /* that the process may use */
};
/* root: "" for the machine; a folder with proc/ and sys/ for tests. No memory is allocated. */
void snug_machine_read(const char *root, struct snug_machine *out);

/* A slow part of a run, from one reading to another. */
struct snug_slow {
    struct snug_machine before, after;
    int threads;      /* of the run */
    double copying;   /* seconds for which operations waited for offloaded tensors */
    const char *disk; /* the folder of the offload file; NULL: none */
    bool gpu;
};
/* The likely cause, as a sentence without a full stop. */
void snug_slow_cause(const struct snug_slow *slow, char *text, size_t size);

#endif
