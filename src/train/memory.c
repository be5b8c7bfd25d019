/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about memory. */
#include <stdio.h>
#include <string.h>

#include "train/job.h"

/* The figure behind key in a file of "key: N kB" lines. */
static int64_t read_kib(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    long long kib = -1;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), ": %lld", &kib) == 1) break;
    fclose(file);
    return kib < 0 ? -1 : kib * 1024;
}

int64_t snug_resident_bytes(void) { return read_kib("/proc/self/status", "VmRSS"); }
int64_t snug_peak_resident_bytes(void) { return read_kib("/proc/self/status", "VmHWM"); }
int64_t snug_machine_bytes(void) { return read_kib("/proc/meminfo", "MemTotal"); }
int64_t snug_available_bytes(void) { return read_kib("/proc/meminfo", "MemAvailable"); }
