/* SPDX-License-Identifier: Apache-2.0 */
#include "train/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cgroup.h"

/* The figure after key, which ends with its colon, in a file of "key: N kB" lines. */
static int64_t read_kib(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    int64_t kib = -1;
    while (kib < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoll(line + strlen(key), NULL, 10);
    fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

int64_t snug_resident_bytes(void) { return read_kib("/proc/self/status", "VmRSS:"); }
int64_t snug_peak_resident_bytes(void) { return read_kib("/proc/self/status", "VmHWM:"); }

/* The figure of the machine, or of the control group if that is less. */
static int64_t limited(int64_t machine, int64_t group) { return group >= 0 && group < machine ? group : machine; }

int64_t snug_machine_bytes(void) {
    struct snug_cgroup group;
    snug_cgroup_read("", &group);
    return limited(read_kib("/proc/meminfo", "MemTotal:"), group.memory);
}

int64_t snug_available_bytes(void) {
    struct snug_cgroup group;
    snug_cgroup_read("", &group);
    return limited(read_kib("/proc/meminfo", "MemAvailable:"), group.available);
}
