/* SPDX-License-Identifier: Apache-2.0 */
#include "train/machine_use.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/context.h"
#include "train/cgroup.h"

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static double read_number(const char *root, const char *name) {
    char text[SNUG_SYSTEM_TEXT], *end;
    snug_system_read(root, name, text);
    const double number = strtod(text, &end);
    return end > text ? number : -1;
}

/* The columns of the first line of /proc/stat, which counts for all cores: user, nice, system, idle, iowait, irq,
 * softirq, steal. */
static double stolen_seconds(const char *root) {
    char text[SNUG_SYSTEM_TEXT], *at;
    double figure = -1;
    snug_system_read(root, "proc/stat", text);
    if (strncmp(text, "cpu ", 4) != 0) return -1;
    at = text + 4;
    for (int i = 0; i < 8; i++) figure = strtod(at, &at);
    return figure / (double)sysconf(_SC_CLK_TCK);
}

/* The mean over the first cores. */
static double read_frequency(const char *root, int cores) {
    enum { FEW = 16 };
    double sum = 0;
    int count = 0;
    for (int i = 0; i < cores && i < FEW; i++) {
        char name[96];
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", i);
        const double now = read_number(root, name);
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq", i);
        const double most = read_number(root, name);
        if (now <= 0 || most <= 0) continue;
        sum += now / most;
        count++;
    }
    return count ? sum / count : -1;
}

void snug_machine_read(const char *root, struct snug_machine *out) {
    char text[SNUG_SYSTEM_TEXT];
    struct rusage use = {0};
    struct snug_cgroup group;
    snug_cgroup_read(root, &group);
    getrusage(RUSAGE_SELF, &use);
    const int cores = snug_affinity_cores();
    snug_system_read(root, "proc/self/status", text);
    const double swapped = snug_system_figure(text, "VmSwap:");
    *out = (struct snug_machine){.seconds = snug_seconds(),
                                 .cpu = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                                        1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec),
                                 .stolen = stolen_seconds(root),
                                 .faults = (double)use.ru_majflt,
                                 .read = 512 * (double)use.ru_inblock,
                                 .swapped = swapped < 0 ? -1 : 1024 * swapped,
                                 .load = read_number(root, "proc/loadavg"),
                                 .throttled = group.throttled,
                                 .quota = group.cpus,
                                 .frequency = read_frequency(root, cores),
                                 .cores = cores};
}

/* ---- the cause -------------------------------------------------------------------------------------------------- */

/* The share of the seconds that a counter grew by; 0 where it is unknown. */
static double growth(double before, double after, double of) {
    return before < 0 || after < 0 || of <= 0 ? 0 : (after - before) / of;
}

/* In the order in which one of them explains the others: swapping raises the load, a quota lowers the frequency. */
void snug_slow_cause(const struct snug_slow *slow, char *text, size_t size) {
    const struct snug_machine *a = &slow->before, *b = &slow->after;
    const double seconds = b->seconds - a->seconds, all = seconds * (double)slow->threads;
    const double faults = growth(a->faults, b->faults, seconds), throttled = growth(a->throttled, b->throttled, all);
    const double stolen = growth(a->stolen, b->stolen, seconds * (double)b->cores);
    const double busy = growth(a->cpu, b->cpu, all), copying = seconds > 0 ? slow->copying / seconds : 0;
    const double read = growth(a->read, b->read, seconds) / 0x1p20;
    const bool crowded = b->load > 1.1 * (double)b->cores && b->load > (double)slow->threads + 0.5;
    if (b->swapped > 0x1p24 && faults >= 20)
        snprintf(
            text, size,
            "%.0f MiB of this process are swapped out, and %.0f page faults a second read from a disk: this run and "
            "other programs need more memory than there is; --memory_budget with --fit makes this run need less",
            b->swapped / 0x1p20, faults);
    else if (throttled >= 0.1)
        snprintf(text, size, "the quota of this container, %.3g CPUs, stopped its %d threads for %.0f %% of the time",
                 b->quota, slow->threads, 100 * fmin(throttled, 1));
    else if (stolen >= 0.1)
        snprintf(text, size, "the host of this virtual machine gave %.0f %% of the cores' time to others",
                 100 * stolen);
    else if (!slow->gpu && slow->threads > b->cores)
        snprintf(text, size, "%d threads share the %d cores that this process may use: give fewer --threads",
                 slow->threads, b->cores);
    else if (crowded)
        snprintf(text, size,
                 "the load average is %.1f on %d cores, and this run has %d thread%s: other programs use the cores",
                 b->load, b->cores, slow->threads, slow->threads == 1 ? "" : "s");
    else if (b->frequency > 0 && b->frequency < 0.6)
        snprintf(text, size,
                 "the cores run at %.0f %% of their highest frequency: heat, a battery or a power limit slows them",
                 100 * b->frequency);
    else if (slow->disk && copying >= 0.3)
        snprintf(text, size, "for %.0f %% of the time the run waited for the offload file in %s: its disk is slow",
                 100 * copying, slow->disk);
    else if (busy < 0.5 && read > 1)
        snprintf(text, size, "the process read %.1f MiB/s from a disk, and its cores were busy for %.0f %% of the time",
                 read, 100 * busy);
    else if (slow->gpu)
        snprintf(
            text, size,
            "no cause was found on the host: snug gpu --watch shows other processes on the GPU, its clocks and its "
            "temperature");
    else
        snprintf(text, size, "no cause was found: snug bench rates measures what this machine can do now");
}
