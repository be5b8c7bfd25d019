/* SPDX-License-Identifier: Apache-2.0 */
/* The anatomy as tables and as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "inspect/anatomy.h"
#include "io/json.h"
#include "report/report.h"
#include "train/run_plan.h"

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

static struct snug_anatomy_part sum_of(const snug_anatomy *a, int side, int group) {
    struct snug_anatomy_part sum = {0};
    for (int s = 0; s < SNUG_SIDE_COUNT; s++)
        for (int g = 0; g < SNUG_GROUP_COUNT; g++) {
            if ((side >= 0 && s != side) || (group >= 0 && g != group)) continue;
            sum.seconds += a->parts[s][g].seconds;
            sum.flops += a->parts[s][g].flops;
            sum.bytes += a->parts[s][g].bytes;
            sum.calls += a->parts[s][g].calls;
        }
    return sum;
}

/* Rates of a GPU in tera, of a CPU in giga. */
static double scale_of(const snug_anatomy *a) { return a->device ? 1e-12 : 1e-9; }
static char prefix_of(const snug_anatomy *a) { return a->device ? 'T' : 'G'; }

/* The limit of a group, compute or memory bandwidth: the group's rate and the machine's peak rate. */
static double rate_of(const struct snug_anatomy_part *part, int group) {
    if (part->seconds <= 0) return 0;
    return (group == SNUG_GROUP_CONTRACTION ? part->flops : part->bytes) / part->seconds;
}

/* Copies and communication have tables of their own, without a peak rate. */
static bool has_peak(int group) { return group != SNUG_GROUP_COPIES && group != SNUG_GROUP_COMMUNICATION; }

static double peak_of(const snug_anatomy *a, int group) {
    return group == SNUG_GROUP_CONTRACTION ? a->peaks.flops : a->peaks.bytes;
}

enum { COPIES = 3 };
static const char *const copies_names[COPIES] = {"from the backing store", "to the backing store", "both"};
static const char *const copies_keys[COPIES] = {"from_backing_store", "to_backing_store", "both"};

static struct snug_anatomy_copies copies_of(const snug_anatomy *a, int which) {
    const struct snug_anatomy_copies *x = &a->copies[0], *y = &a->copies[1];
    if (which < 2) return a->copies[which];
    return (struct snug_anatomy_copies){x->seconds + y->seconds, x->bytes + y->bytes, x->calls + y->calls,
                                        x->waited + y->waited};
}

/* The share of the copies' time in which no operation waited for them. A WAIT takes some microseconds even if its copy
 * is done, and copies of the other direction may be first, so the difference may be negative. */
static double hidden_share(const struct snug_anatomy_copies *copies) {
    return copies->seconds > copies->waited ? 1 - copies->waited / copies->seconds : 0;
}

/* ---- as text -------------------------------------------------------------------------------------------------- */

static void print_figure(FILE *out, int64_t bytes) {
    if (bytes < 0)
        fprintf(out, " %11s", "-");
    else
        fprintf(out, " %11.1f", mib(bytes));
}

static void print_memory_line(FILE *out, const char *name, int64_t planned, int64_t measured) {
    fprintf(out, "%-32s", name);
    print_figure(out, planned);
    print_figure(out, measured);
    fputc('\n', out);
}

static void print_memory(FILE *out, const snug_anatomy *a) {
    const int64_t context = a->planned[SNUG_MEMORY_CONTEXT];
    fprintf(out, "\n%-32s %11s %11s\n", a->device ? "Memory of the GPU, MiB" : "Memory of the process, MiB", "planned",
            "measured");
    print_memory_line(out, a->device ? "before, in use by others" : "before", -1, a->before);
    print_memory_line(out, "with the context", context, a->device ? a->opened : -1);
    print_memory_line(out, "with the model", context + a->planned[SNUG_MEMORY_WEIGHTS], -1);
    print_memory_line(out, "in training", a->planned_total, a->measured);
    if (a->measured >= 0)
        fprintf(out, "%-32s %+11.2f %%\n", "  difference", 100 * ((double)a->measured / (double)a->planned_total - 1));
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        char name[40];
        if (!a->planned[i] || (a->device && i == SNUG_MEMORY_HOST)) continue;
        snprintf(name, sizeof name, "  %s", snug_memory_class_name((snug_memory_class)i));
        print_memory_line(out, name, a->planned[i], -1);
    }
    if (a->device && *a->use.others) fprintf(out, "other processes on it: %s\n", a->use.others);
    if (a->device) fprintf(out, "measured by: %s\n", a->use.method);
}

static void print_speed(FILE *out, const snug_anatomy *a) {
    const struct snug_anatomy_part all = sum_of(a, -1, -1);
    const double samples = (double)a->samples / (double)a->steps;
    fprintf(out, "\nTime            %.2f s for %lld steps, %lld samples", a->seconds, (long long)a->steps,
            (long long)a->samples);
    if (a->steps < a->epoch_steps) fprintf(out, " (an epoch has %lld steps)", (long long)a->epoch_steps);
    fprintf(out, "\nSamples/second  %.2f, including the first steps", (double)a->samples / a->seconds);
    if (a->steady_steps > 0)
        fprintf(out, "; %.2f after them (%.2f ms per step, %.1f %cFLOP/s)", samples / a->steady_seconds,
                1e3 * a->steady_seconds, all.flops / a->steady_seconds * scale_of(a), prefix_of(a));
    fputc('\n', out);
}

static void print_part(FILE *out, const snug_anatomy *a, const char *name, const struct snug_anatomy_part *part,
                       int group) {
    const double total = sum_of(a, -1, -1).seconds, rate = rate_of(part, group), peak = peak_of(a, group);
    if (part->calls <= 0) return;
    fprintf(out, "%-30s %9.3f %6.1f %% %12.2f %c%-7s %6.1f %%\n", name, 1e3 * part->seconds,
            100 * part->seconds / total, rate * scale_of(a), prefix_of(a),
            group == SNUG_GROUP_CONTRACTION ? "FLOP/s" : "B/s", 100 * rate / peak);
}

static void print_waits(FILE *out, const snug_anatomy *a) {
    const double waited = sum_of(a, -1, SNUG_GROUP_COPIES).seconds, total = sum_of(a, -1, -1).seconds;
    if (copies_of(a, 2).calls <= 0) return;
    fprintf(out, "%-30s %9.3f %6.1f %%\n", "waiting for copies", 1e3 * waited, 100 * waited / total);
}

static void print_copies(FILE *out, const snug_anatomy *a) {
    if (copies_of(a, 2).calls <= 0) return;
    fprintf(out, "\n%-30s %9s %10s %9s %10s %8s\n", "Copies of offloaded tensors", "ms", "MiB", "GB/s", "waited ms",
            "hidden");
    for (int i = 0; i < COPIES; i++) {
        const struct snug_anatomy_copies copies = copies_of(a, i);
        if (copies.seconds <= 0) continue;
        fprintf(out, "%-30s %9.3f %10.1f %9.2f %10.3f %6.1f %%\n", copies_names[i], 1e3 * copies.seconds,
                copies.bytes / 0x1p20, copies.bytes / copies.seconds / 1e9, 1e3 * copies.waited,
                100 * hidden_share(&copies));
    }
}

/* A step's communication; the share of its time in which other operations run. */
static double hidden_communication(const snug_anatomy *a) {
    const double seconds = sum_of(a, -1, SNUG_GROUP_COMMUNICATION).seconds;
    return seconds > 0 ? 1 - a->exposed / seconds : 0;
}

static void print_communication(FILE *out, const snug_anatomy *a) {
    const struct snug_anatomy_part all = sum_of(a, -1, SNUG_GROUP_COMMUNICATION);
    if (a->ranks < 2) return;
    fprintf(out, "\n%-30s %9s %10s %9s %10s %8s\n", "Communication of rank 0", "ms", "MiB sent", "GB/s", "waited ms",
            "hidden");
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        const struct snug_anatomy_part *part = &a->kinds[kind];
        if (snug_op_info((enum snug_op_kind)kind)->group != SNUG_GROUP_COMMUNICATION) continue;
        fprintf(out, "%-30s %9.3f %10.1f %9.2f\n", snug_op_name((enum snug_op_kind)kind), 1e3 * part->seconds,
                part->bytes / 0x1p20, part->bytes / part->seconds / 1e9);
    }
    fprintf(out, "%-30s %9.3f %10.1f %9.2f %10.3f %6.1f %%\n", "all", 1e3 * all.seconds, all.bytes / 0x1p20,
            all.bytes / all.seconds / 1e9, 1e3 * a->exposed, 100 * hidden_communication(a));
}

static void print_groups(FILE *out, const snug_anatomy *a) {
    fprintf(out, "\n%-30s %9s %8s %21s %8s\n", "Where a step's time goes", "ms", "share", "reached", "of peak");
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        if (!has_peak(group)) continue;
        const struct snug_anatomy_part both = sum_of(a, -1, group);
        print_part(out, a, snug_group_name((enum snug_op_group)group), &both, group);
        for (int side = 0; side < SNUG_SIDE_COUNT; side++) {
            char name[40];
            snprintf(name, sizeof name, "  %s", snug_side_name((enum snug_side)side));
            print_part(out, a, name, &a->parts[side][group], group);
        }
    }
    print_waits(out, a);
    if (a->ranks > 1) {
        const struct snug_anatomy_part ranks = sum_of(a, -1, SNUG_GROUP_COMMUNICATION);
        fprintf(out, "%-30s %9.3f %6.1f %%\n", "communication", 1e3 * ranks.seconds,
                100 * ranks.seconds / sum_of(a, -1, -1).seconds);
    }
    const double total = sum_of(a, -1, -1).seconds;
    fprintf(out, "%-30s %9.3f          forward %.1f %%, backward %.1f %%, update %.1f %%\n", "all operations",
            1e3 * total, 100 * sum_of(a, SNUG_SIDE_FORWARD, -1).seconds / total,
            100 * sum_of(a, SNUG_SIDE_BACKWARD, -1).seconds / total,
            100 * sum_of(a, SNUG_SIDE_UPDATE, -1).seconds / total);
    fprintf(out,
            "Operations were timed one by one in %lld steps. Peaks of this machine: a matmul of %lld x %lld, %.2f "
            "%cFLOP/s; a copy of %.0f MiB, %.2f %cB/s.\n",
            (long long)a->timed_steps, (long long)a->peaks.side, (long long)a->peaks.side, a->peaks.flops * scale_of(a),
            prefix_of(a), mib(a->peaks.count), a->peaks.bytes * scale_of(a), prefix_of(a));
}

static void print_kinds(FILE *out, const snug_anatomy *a) {
    fprintf(out, "\n%-30s %9s %8s %12s %10s %9s\n", "By operation", "ms", "share", a->device ? "TFLOP/s" : "GFLOP/s",
            a->device ? "TB/s" : "GB/s", "calls");
    const double total = sum_of(a, -1, -1).seconds;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        const struct snug_anatomy_part *part = &a->kinds[kind];
        if (!has_peak((int)snug_op_info((enum snug_op_kind)kind)->group) || part->calls <= 0 || part->seconds <= 0)
            continue;
        fprintf(out, "%-30s %9.3f %6.1f %% %12.2f %10.3f %9.0f\n", snug_op_name((enum snug_op_kind)kind),
                1e3 * part->seconds, 100 * part->seconds / total, part->flops / part->seconds * scale_of(a),
                part->bytes / part->seconds * scale_of(a), part->calls);
    }
}

static void print_anatomy(FILE *out, const void *report) {
    const snug_anatomy *a = report;
    char shown[SNUG_SHOWN];
    fprintf(out, "%s\n", a->place);
    fprintf(out, "%s, %lld layers, hidden %lld, %.1f M parameters, random or as given; %s, batch %lld x %lld, %s\n",
            a->family, (long long)a->layers, (long long)a->hidden, a->parameters / 1e6, snug_shown(shown, a->data),
            (long long)a->batch, (long long)a->accumulation, snug_precision_text(a->compute, a->tf32, a->weights));
    if (a->ranks > 1)
        fprintf(out, "%d ranks, ZeRO stage %d; memory and times are those of rank 0\n", a->ranks, a->zero_stage);
    print_memory(out, a);
    print_speed(out, a);
    print_groups(out, a);
    print_kinds(out, a);
    print_copies(out, a);
    print_communication(out, a);
}

snug_status snug_anatomy_text(const snug_anatomy *anatomy, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(anatomy);
    return snug_report_text(anatomy->ctx, print_anatomy, anatomy, text);
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

static json_t *part_json(const struct snug_anatomy_part *part) {
    return json_pack("{s:f, s:f, s:f, s:f}", "seconds", part->seconds, "flops", part->flops, "bytes", part->bytes,
                     "calls", part->calls);
}

static json_t *copies_json(const snug_anatomy *a) {
    json_t *all = json_object();
    for (int i = 0; i < COPIES; i++) {
        const struct snug_anatomy_copies copies = copies_of(a, i);
        snug_json_add(&all, copies_keys[i],
                      json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", copies.seconds, "bytes", copies.bytes, "calls",
                                copies.calls, "waited_seconds", copies.waited, "hidden", hidden_share(&copies)));
    }
    return all;
}

static json_t *ranks_json(const snug_anatomy *a) {
    const struct snug_anatomy_part all = sum_of(a, -1, SNUG_GROUP_COMMUNICATION);
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f}", "count", a->ranks, "zero_stage", a->zero_stage,
                     "communication_seconds", all.seconds, "sent_bytes", all.bytes, "waited_seconds", a->exposed,
                     "hidden", hidden_communication(a));
}

static json_t *or_null(int64_t bytes) { return bytes < 0 ? json_null() : json_integer(bytes); }

static json_t *memory_json(const snug_anatomy *a) {
    json_t *planned = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&planned, snug_memory_class_name((snug_memory_class)i), json_integer(a->planned[i]));
    snug_json_add(&planned, "total", json_integer(a->planned_total));
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o}", "before", or_null(a->before), "with_context",
                     a->device ? or_null(a->opened) : json_null(), "planned", planned, "measured", or_null(a->measured),
                     "method", a->device ? a->use.method : "the process's peak resident memory", "others",
                     snug_json_from_text(a->use.others));
}

static snug_status anatomy_json(const snug_anatomy *a, char **text) {
    json_t *groups = json_object(), *kinds = json_object();
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        json_t *sides = json_object();
        for (int side = 0; side < SNUG_SIDE_COUNT; side++)
            snug_json_add(&sides, snug_side_name((enum snug_side)side), part_json(&a->parts[side][group]));
        snug_json_add(&groups, snug_group_key((enum snug_op_group)group), sides);
    }
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        if (a->kinds[kind].calls > 0)
            snug_json_add(&kinds, snug_op_name((enum snug_op_kind)kind), part_json(&a->kinds[kind]));
    return snug_report_json(
        a->ctx,
        json_pack("{s:o, s:s, s:{s:f, s:I, s:I}, s:o, s:I, s:I, s:s, s:s, s:o, s:{s:I, s:I, s:I, s:I, s:f, s:f, s:f, "
                  "s:f}, s:o, s:o, s:o, s:o, s:{s:f, s:I, s:f}}",
                  "hardware", snug_json_from_text(a->place), "device", a->device ? "cuda" : "cpu", "model",
                  "parameters", a->parameters, "layers", (json_int_t)a->layers, "hidden", (json_int_t)a->hidden, "data",
                  snug_json_from_text(a->data), "batch", (json_int_t)a->batch, "gradient_accumulation_steps",
                  (json_int_t)a->accumulation, "compute", snug_dtype_name(a->compute), "dtype",
                  snug_dtype_name(a->weights), "memory", memory_json(a), "run", "steps", (json_int_t)a->steps,
                  "epoch_steps", (json_int_t)a->epoch_steps, "samples", (json_int_t)a->samples, "tokens",
                  (json_int_t)a->tokens, "seconds", a->seconds, "samples_per_second", (double)a->samples / a->seconds,
                  "steady_samples_per_second", (double)a->samples / (double)a->steps / a->steady_seconds, "loss",
                  a->last_loss, "groups", groups, "operations", kinds, "copies", copies_json(a), "ranks", ranks_json(a),
                  "peak_rates", "flops_per_second", a->peaks.flops, "matmul_size", (json_int_t)a->peaks.side,
                  "bytes_per_second", a->peaks.bytes),
        text);
}

snug_status snug_anatomy_json(const snug_anatomy *anatomy, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(anatomy);
    return anatomy_json(anatomy, text);
}
