/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the control groups that this process is in: a container's, a batch job's, a systemd unit's. */
#ifndef SNUG_TRAIN_CGROUP_H
#define SNUG_TRAIN_CGROUP_H

#include <stdint.h>

/* The tightest limits of the process's groups and those above them, of cgroup version 1 or 2; -1: none. Version 2:
   Linux's Documentation/admin-guide/cgroup-v2.rst; version 1: scheduler/sched-bwc.rst and
   admin-guide/cgroup-v1/memory.rst. */
struct snug_cgroup {
    double cpus;       /* seconds of processors per second */
    double throttled;  /* seconds for which that stopped threads of the process's own group; grows */
    int64_t memory;    /* bytes; swap is not counted */
    int64_t available; /* bytes that may still be allocated; file pages that are not in use count as available */
};
/* root: "" for the machine; a folder with proc/ and sys/ for tests. No memory is allocated. */
void snug_cgroup_read(const char *root, struct snug_cgroup *out);

/* The number of processors that this process may run on. */
int snug_affinity_cores(void);
/* How many of the cores each of so many ranks uses: the nearest whole number to its part of the quota, at least one. */
int snug_cgroup_threads(const struct snug_cgroup *group, int cores, int ranks);

enum { SNUG_SYSTEM_TEXT = 4096 };
/* The first bytes of root/name as text; "" if there is no such file. */
void snug_system_read(const char *root, const char *name, char text[SNUG_SYSTEM_TEXT]);
/* The number after a key that begins a line; -1: none. */
double snug_system_figure(const char *text, const char *key);

#endif
