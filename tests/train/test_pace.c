/* SPDX-License-Identifier: Apache-2.0 */
/* A training that takes far longer than planned says so once, with the likely cause; others say nothing. */
#include <math.h>
#include <sys/stat.h>

#include <stdlib.h>
#include <string.h>

#include "io/folder_write.h"
#include "temporary.h"
#include "test.h"
#include "train/cgroup.h"
#include "train/pace.h"

struct said {
    int count;
    char text[1024];
};

static void keep_log(void *user, snug_log_level level, const char *message) {
    struct said *said = user;
    assert_int_equal(level, SNUG_LOG_WARNING);
    said->count++;
    snprintf(said->text, sizeof said->text, "%s", message);
}

static void expect_text(const char *text, const char *says) {
    if (!strstr(text, says)) fail_msg("\"%s\" does not contain \"%s\"", text, says);
}

/* Steps of a training: so many, of these seconds and tokens. */
struct part {
    int steps;
    double seconds, tokens;
};

static void play(enum snug_seconds_source source, const struct part *parts, struct said *said) {
    const struct snug_pace_plan plan = {.step = 1, .tokens = 100, .source = source, .threads = 2};
    struct snug_pace pace;
    snug_context *ctx;
    double now = 5;
    int64_t left = 0;
    *said = (struct said){0};
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    snug_context_set_log(ctx, keep_log, said, SNUG_LOG_DEBUG);
    for (const struct part *part = parts; part->steps; part++) left += part->steps;
    snug_pace_begin(&pace, &plan, now);
    if (source == SNUG_SECONDS_UNKNOWN) pace.plan.step = 0;
    for (const struct part *part = parts; part->steps; part++)
        for (int i = 0; i < part->steps; i++) snug_pace_step(&pace, ctx, now += part->seconds, part->tokens, 0, --left);
    snug_context_destroy(ctx);
}

TEST(test_slow_trainings) {
    static const struct {
        enum snug_seconds_source source;
        struct part parts[4];
        const char *says; /* NULL: nothing */
    } cases[] = {
        /* as planned, a bit slower, faster */
        {SNUG_SECONDS_MEASURED, {{1000, 1, 100}}, NULL},
        {SNUG_SECONDS_MEASURED, {{1000, 1.9, 100}}, NULL},
        {SNUG_SECONDS_PROBED, {{1000, 0.1, 100}}, NULL},
        /* three times slower; estimates from other sources are less exact */
        {SNUG_SECONDS_MEASURED,
         {{100, 3, 100}},
         "the run takes 3.0 times as long as planned: the last 10 steps took 3 s "
         "each, planned were 1 s (rates: measured); the other 90 take about 5 "
         "minutes, not 2 minutes; "},
        {SNUG_SECONDS_PROBED, {{10000, 3, 100}}, "take about 8 h 20 min, not 2 h 47 min"},
        {SNUG_SECONDS_SCALED, {{100, 2.9, 100}}, NULL},
        {SNUG_SECONDS_SCALED, {{100, 4, 100}}, "takes 4.0 times"},
        {SNUG_SECONDS_ASSUMED, {{100, 4, 100}}, NULL},
        {SNUG_SECONDS_ASSUMED, {{100, 6, 100}}, "(rates: assumed)"},
        {SNUG_SECONDS_UNKNOWN, {{100, 600, 100}}, NULL},
        /* a short run, and the end of one */
        {SNUG_SECONDS_MEASURED, {{9, 3, 100}}, NULL},
        {SNUG_SECONDS_MEASURED, {{10, 3, 100}}, NULL},
        {SNUG_SECONDS_MEASURED, {{29, 1, 100}}, NULL},
        /* a pause is not the run's pace; neither are a few slow steps */
        {SNUG_SECONDS_MEASURED, {{20, 1, 100}, {1, 3600, 100}, {1000, 1, 100}}, NULL},
        {SNUG_SECONDS_MEASURED, {{20, 1, 100}, {4, 9, 100}, {1000, 1, 100}}, NULL},
        /* longer texts take longer */
        {SNUG_SECONDS_MEASURED, {{100, 3, 200}}, NULL},
        {SNUG_SECONDS_MEASURED, {{100, 3, 20}}, "takes 3.0 times"},
        {SNUG_SECONDS_MEASURED, {{100, 9, 200}}, "takes 4.5 times"},
        /* a run that becomes slow later; few steps that are very slow; very short steps */
        {SNUG_SECONDS_MEASURED, {{200, 1, 100}, {100, 5, 100}}, "takes 5.0 times"},
        {SNUG_SECONDS_MEASURED, {{5, 600, 100}}, "the last 3 steps took 600 s each"},
        {SNUG_SECONDS_MEASURED, {{5, 19, 100}}, NULL},
        /* most steps are slow, but all of them together are not */
        {SNUG_SECONDS_MEASURED, {{10, 0.01, 100}, {14, 2.2, 100}, {5, 1, 100}}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct said said;
        play(cases[i].source, cases[i].parts, &said);
        if (said.count != (cases[i].says != NULL)) fail_msg("case %zu: %d: %s", i, said.count, said.text);
        if (cases[i].says) expect_text(said.text, cases[i].says);
    }
}

/* ---- the cause -------------------------------------------------------------------------------------------------- */

/* A minute of 4 threads that are busy for 95 % of it, on 4 cores of a quiet machine. */
static const struct snug_slow quiet = {
    .before = {.stolen = 0, .throttled = 0, .load = 4, .quota = -1, .frequency = 1, .cores = 4},
    .after =
        {.seconds = 60, .cpu = 228, .stolen = 1, .throttled = 0, .load = 4, .quota = -1, .frequency = 0.9, .cores = 4},
    .threads = 4};

static void expect_cause(const struct snug_slow *slow, const char *says) {
    char text[512];
    snug_slow_cause(slow, text, sizeof text);
    expect_text(text, says);
}

TEST(test_causes) {
    struct snug_slow s;
    expect_cause(&quiet, "no cause was found: snug bench rates");
#define WITH(change, says)                                                                                             \
    s = quiet;                                                                                                         \
    change;                                                                                                            \
    expect_cause(&s, says)
    WITH((s.after.swapped = 0x1p30, s.after.faults = 6000),
         "1024 MiB of this process are swapped out, and 100 page faults a second read from a disk");
    WITH((s.after.swapped = 0x1p30, s.after.faults = 60), "no cause"); /* what is swapped out is not needed */
    WITH((s.after.swapped = -1, s.after.faults = 6000), "no cause");
    WITH((s.after.throttled = 120, s.after.quota = 2),
         "the quota of this container, 2 CPUs, stopped its 4 threads for 50 %");
    WITH((s.after.throttled = 12), "no cause");
    WITH((s.before.throttled = -1, s.after.throttled = 120), "no cause"); /* not known at first */
    WITH((s.before.throttled = 120, s.after.throttled = -1), "no cause");
    WITH((s.after.stolen = 72), "the host of this virtual machine gave 30 % of the cores' time to others");
    WITH((s.after.stolen = -1), "no cause");
    WITH((s.threads = 8), "8 threads share the 4 cores");
    WITH((s.threads = 8, s.gpu = true), "snug gpu --watch"); /* the GPU computes */
    WITH((s.after.load = 14.3), "the load average is 14.3 on 4 cores, and this run has 4 threads: other programs");
    WITH((s.after.load = 4.4), "no cause");
    WITH((s.after.load = 14, s.threads = 1), "and this run has 1 thread: other");
    WITH((s.after.load = 4.45, s.threads = 4), "no cause"); /* its own threads */
    WITH((s.after.load = -1), "no cause");
    WITH((s.after.frequency = 0.4), "the cores run at 40 % of their highest frequency");
    WITH((s.after.frequency = -1), "no cause");
    WITH((s.disk = "/slow", s.copying = 45), "for 75 % of the time the run waited for the offload file in /slow");
    WITH((s.disk = "/slow", s.copying = 5), "no cause");
    WITH((s.copying = 45), "no cause");
    WITH((s.after.cpu = 24, s.after.read = 600 * 0x1p20),
         "the process read 10.0 MiB/s from a disk, and its cores were busy for 10 %");
    WITH((s.after.cpu = 24), "no cause");
    WITH((s.after.read = 600 * 0x1p20), "no cause");
    WITH((s.after.seconds = 0, s.copying = 1, s.disk = "/slow"), "no cause"); /* nothing was measured */
    WITH((s.gpu = true), "snug gpu --watch shows");
    WITH((s.gpu = true, s.after.load = 14.3), "the load average is 14.3"); /* the host issues its operations */
#undef WITH
}

/* ---- control groups ---------------------------------------------------------------------------------------------- */

static void put(const char *root, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root); (at = strchr(at + 1, '/'));) {
        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct snug_cgroup groups(const char *root, const char *own) {
    struct snug_cgroup g;
    put(root, "proc/self/cgroup", own);
    snug_cgroup_read(root, &g);
    return g;
}

static void check_group(struct snug_cgroup g, double cpus, double throttled, int64_t memory, int64_t available) {
    assert_true(g.cpus == cpus && g.throttled == throttled);
    assert_int_equal(g.memory, memory);
    assert_int_equal(g.available, available);
}

TEST(test_control_groups) {
    const int64_t gib = 1 << 30;
    struct snug_cgroup g;
    char root[256];
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_non_null(temporary_folder(root, sizeof root));
    snug_cgroup_read(root, &g); /* no control groups at all */
    check_group(g, -1, -1, -1, -1);
    check_group(groups(root, "not a line of this file\n7\n"), -1, -1, -1, -1);
    /* Version 2: the tightest limit of the group and those above it; what can be reclaimed is available. */
    put(root, "sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    put(root, "sys/fs/cgroup/pod/run/cpu.max", "max 100000\n");
    put(root, "sys/fs/cgroup/pod/run/cpu.stat", "usage_usec 5\nthrottled_usec 2500000\n");
    put(root, "sys/fs/cgroup/pod/memory.max", "1073741824\n");
    put(root, "sys/fs/cgroup/pod/memory.current", "536870912\n");
    put(root, "sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 268435456\n");
    put(root, "sys/fs/cgroup/pod/run/memory.max", "max\n");
    check_group(groups(root, "0::/pod/run\n"), 1.5, 2.5, gib, gib * 3 / 4);
    put(root, "sys/fs/cgroup/pod/run/memory.high", "536870912\n"); /* nothing is known of its use */
    check_group(groups(root, "0::/pod/run\n"), 1.5, 2.5, gib / 2, gib / 2);
    put(root, "sys/fs/cgroup/pod/memory.current", "4294967296\n"); /* the limit was lowered below what is used */
    check_group(groups(root, "0::/pod/run\n"), 1.5, 2.5, gib / 2, 0);
    put(root, "sys/fs/cgroup/pod/run/cpu.max", "50000 100000\n");
    check_group(groups(root, "0::/pod/run\n"), 0.5, 2.5, gib / 2, 0);
    /* Within a container the path may be that of the host. */
    put(root, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    check_group(groups(root, "0::/docker/4711\n"), 4, -1, -1, -1);
    /* Version 1: controllers have folders of their own; no limit is a large number, no quota is -1. */
    put(root, "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put(root, "sys/fs/cgroup/cpu/job/cpu.stat", "nr_throttled 3\nthrottled_time 1500000000\n");
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2147483648\n");
    put(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    check_group(groups(root, "4:cpuacct,cpu:/job\n3:memory:/job\n0::/\n"), 3, 1.5, 2 * gib, gib);
    check_group(groups(root, "0::/\n4:cpuacct,cpu:/job\n3:memory:/\n"), 3, 1.5, -1, -1);
    assert_int_equal(snug_folder_remove(ctx, NULL, root), SNUG_OK);
    snug_context_destroy(ctx);
}

TEST(test_threads_of_a_quota) {
    static const struct {
        double cpus;
        int cores, ranks, threads;
    } cases[] = {{-1, 8, 1, 8}, {-1, 8, 4, 8},  {2, 8, 1, 2}, {2.4, 8, 1, 2}, {2.5, 8, 1, 3},
                 {16, 8, 1, 8}, {0.1, 8, 1, 1}, {4, 8, 2, 2}, {1, 8, 4, 1},   {6, 2, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_cgroup group = {.cpus = cases[i].cpus};
        assert_int_equal(snug_cgroup_threads(&group, cases[i].cores, cases[i].ranks), cases[i].threads);
    }
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

TEST(test_reading) {
    struct snug_machine m, own;
    char root[256], deep[600];
    snug_context *ctx;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    assert_non_null(temporary_folder(root, sizeof root));
    snug_machine_read(root, &m); /* an empty folder */
    assert_true(m.stolen == -1 && m.throttled == -1 && m.swapped == -1 && m.load == -1 && m.quota == -1 &&
                m.frequency == -1);
    put(root, "proc/loadavg", "3.25 2.00 1.00 2/300 4711\n");
    put(root, "proc/stat", "cpu  10 20 30 40 50 60 70 800 0 0\ncpu0 1 2 3 4\n");
    put(root, "proc/self/status", "Name:\tsnug\nVmRSS:\t 100 kB\nVmSwap:\t 2048 kB\n");
    put(root, "proc/self/cgroup", "0::/\n");
    put(root, "sys/fs/cgroup/cpu.max", "250000 100000\n");
    put(root, "sys/fs/cgroup/cpu.stat", "usage_usec 9\nthrottled_usec 1500000\n");
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1500000\n");
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3000000\n");
    snug_machine_read(root, &m);
    assert_true(m.load == 3.25 && m.swapped == 2048 * 1024.0 && m.quota == 2.5 && m.throttled == 1.5);
    assert_true(m.stolen == 800 / (double)sysconf(_SC_CLK_TCK) && m.frequency == 0.5);
    /* A group of its own, without a quota but below one; a frequency without its highest one. */
    put(root, "proc/self/cgroup", "0::/user.slice/run.scope\n");
    put(root, "sys/fs/cgroup/user.slice/run.scope/cpu.max", "max 100000\n");
    put(root, "sys/fs/cgroup/user.slice/run.scope/cpu.stat", "throttled_usec 0\n");
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "\n");
    snug_machine_read(root, &m);
    assert_true(m.quota == 2.5 && m.throttled == 0 && m.frequency == -1);
    put(root, "proc/self/cgroup", "0::/");
    put(root, "proc/stat", "intr 1 2 3\n");
    put(root, "sys/fs/cgroup/cpu.max", "250000 0\n");
    snug_machine_read(root, &m);
    assert_true(m.quota == -1 && m.throttled == 1.5 && m.stolen == -1);
    memset(deep, 'x', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    snug_machine_read(deep, &m); /* a path that is too long */
    assert_true(m.load == -1);
    snug_machine_read("", &own);
    assert_true(own.cores >= 1 && own.cpu > 0 && own.load >= 0 && own.faults >= 0);
    assert_int_equal(snug_folder_remove(ctx, NULL, root), SNUG_OK);
    snug_context_destroy(ctx);
}

TEST_MAIN(NULL, NULL)
