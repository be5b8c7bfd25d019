/* SPDX-License-Identifier: Apache-2.0 */
#include "train/cgroup.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

void snug_system_read(const char *root, const char *name, char text[SNUG_SYSTEM_TEXT]) {
    char path[PATH_SIZE];
    ssize_t length = 0;
    const bool fits = snprintf(path, sizeof path, "%s/%s", root, name) < (int)sizeof path;
    const int fd = fits ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        length = read(fd, text, SNUG_SYSTEM_TEXT - 1);
        close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
}

double snug_system_figure(const char *text, const char *key) {
    const size_t length = strlen(key);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, key, length) == 0) return strtod(line + length, NULL);
    return -1;
}

/* A group, and the groups above it by cutting its path. In a container the path may be that of the host, of which the
   container sees nothing, or the root of what it sees: where there is no such folder its files are missing. */
struct group {
    const char *root;
    bool first; /* version 1 */
    char path[PATH_SIZE];
};

/* The path after the first two colons of the line of /proc/self/cgroup that names the controller; else that of
 * version 2. */
static struct group group_of(const char *root, const char *controller) {
    struct group g = {.root = root};
    char text[SNUG_SYSTEM_TEXT];
    snug_system_read(root, "proc/self/cgroup", text);
    for (char *line = text, *next; *line && !g.first; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        for (char *save, *name = strtok_r(names + 1, ",", &save); name; name = strtok_r(NULL, ",", &save))
            g.first |= strcmp(name, controller) == 0;
        if (g.first || names[1] == '\0') snprintf(g.path, sizeof g.path, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    return g;
}

static void read_file(const struct group *g, const char *controller, const char *file, char text[SNUG_SYSTEM_TEXT]) {
    char name[2 * PATH_SIZE];
    snprintf(name, sizeof name, "sys/fs/cgroup%s%s%s/%s", g->first ? "/" : "", g->first ? controller : "", g->path,
             file);
    snug_system_read(g->root, name, text);
}

/* A file's only number; -1: it has none, or "max", or version 1's word for no limit. */
static double read_number(const struct group *g, const char *controller, const char *file) {
    char text[SNUG_SYSTEM_TEXT], *end;
    read_file(g, controller, file, text);
    const double number = strtod(text, &end);
    return end > text && number < 0x1p62 ? number : -1;
}

static bool go_up(struct group *g) {
    char *last = strrchr(g->path, '/');
    if (last) *last = '\0';
    return last;
}

static double tighter(double a, double b) { return a < 0 || (b >= 0 && b < a) ? b : a; }

static double quota_of(const struct group *g) {
    char text[SNUG_SYSTEM_TEXT], *rest = text;
    double most, period;
    if (g->first) {
        most = read_number(g, "cpu", "cpu.cfs_quota_us");
        period = read_number(g, "cpu", "cpu.cfs_period_us");
    } else {
        read_file(g, "cpu", "cpu.max", text);
        most = strtod(text, &rest);
        period = strtod(rest, NULL);
    }
    return most > 0 && period > 0 ? most / period : -1;
}

static void read_cpu(const char *root, struct snug_cgroup *out) {
    struct group g = group_of(root, "cpu");
    char text[SNUG_SYSTEM_TEXT];
    read_file(&g, "cpu", "cpu.stat", text);
    const double stopped = snug_system_figure(text, g.first ? "throttled_time " : "throttled_usec ");
    out->throttled = stopped < 0 ? -1 : stopped * (g.first ? 1e-9 : 1e-6);
    out->cpus = -1;
    do out->cpus = tighter(out->cpus, quota_of(&g));
    while (go_up(&g));
}

static void read_memory(const char *root, struct snug_cgroup *out) {
    struct group g = group_of(root, "memory");
    double limit = -1, available = -1;
    do {
        char text[SNUG_SYSTEM_TEXT];
        /* Above memory.high the kernel makes a process wait while it looks for pages to reclaim. */
        const double own =
            g.first ? read_number(&g, "memory", "memory.limit_in_bytes")
                    : tighter(read_number(&g, "memory", "memory.max"), read_number(&g, "memory", "memory.high"));
        if (own < 0) continue;
        const double used = read_number(&g, "memory", g.first ? "memory.usage_in_bytes" : "memory.current");
        read_file(&g, "memory", "memory.stat", text);
        const double unused = snug_system_figure(text, g.first ? "total_inactive_file " : "inactive_file ");
        limit = tighter(limit, own);
        available = tighter(available, fmax(own - fmax(used, 0) + fmax(unused, 0), 0));
    } while (go_up(&g));
    out->memory = (int64_t)limit;
    out->available = (int64_t)available;
}

void snug_cgroup_read(const char *root, struct snug_cgroup *out) {
    read_cpu(root, out);
    read_memory(root, out);
}

int snug_affinity_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int snug_cgroup_threads(const struct snug_cgroup *group, int cores, int ranks) {
    const double part = group->cpus < 0 ? cores : fmax(round(group->cpus / (double)ranks), 1);
    return part < cores ? (int)part : cores;
}
