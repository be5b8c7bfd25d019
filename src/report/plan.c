/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a human-readable table and as JSON: bytes by class, by layer and per parameter; FLOPs and bytes moved by
   the three groups of operations of "Model training anatomy". */
#include "inspect/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/task.h"
#include "io/json.h"
#include "report/report.h"
#include "train/run_plan.h"

/* ---- as text -------------------------------------------------------------------------------------------------- */

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

static void print_head(FILE *out, const snug_plan *plan) {
    fprintf(out, "Model      %s, %lld layers, hidden %lld, %lld heads, FFN %lld, vocabulary %lld: %.1f M parameters",
            plan->family, (long long)plan->layers, (long long)plan->hidden, (long long)plan->heads,
            (long long)plan->intermediate, (long long)plan->vocabulary, (double)plan->parameters / 1e6);
    if (plan->trainable < plan->parameters)
        fprintf(out,
                ", %.1f M trained\nFrozen     %.1f M parameters: no gradients (%.1f MiB), no states (%.1f MiB), and "
                "%.1f GFLOP less backward",
                (double)plan->trainable / 1e6, (double)(plan->parameters - plan->trainable) / 1e6,
                mib(plan->frozen.gradients), mib(plan->frozen.states), plan->frozen.flops / 1e9);
    if (plan->adapted) fprintf(out, "\nLoRA       %.1f M parameters of adapters", (double)plan->adapted / 1e6);
    char quantized[192];
    snug_quantized_text(&plan->quantized, quantized);
    if (plan->quantized.parameters) fprintf(out, "\nQuantized  %s", quantized);
    fprintf(out, "\nTask       %s\n", snug_task_info(plan->task)->title);
    fprintf(out, "Batch      %lld sequences x %lld accumulation, %lld tokens at most (longest sequence %lld), %s\n",
            (long long)plan->sequences, (long long)plan->accumulation, (long long)plan->tokens,
            (long long)plan->longest, snug_precision_text(plan->compute, plan->tf32, plan->weights));
}

static void print_ranks(FILE *out, const snug_plan *plan) {
    if (plan->ranks < 2) return;
    fprintf(out, "Ranks      %d, ZeRO stage %d; in a step each sends and receives %.1f MiB\n", plan->ranks,
            plan->zero_stage, mib(plan->sent));
    fprintf(out, "           bytes are those of each rank\n");
    if (!plan->fits_known) return;
    fputs("           fits from", out);
    if (plan->fits_from[0] == 1) {
        fputs(" 1 rank on\n", out);
        return;
    }
    for (int stage = 0; stage < SNUG_ZERO_STAGES; stage++) {
        const int least = plan->fits_from[stage];
        fprintf(out, "%s ", stage ? "," : "");
        if (least)
            fprintf(out, "%d rank%s on", least, least > 1 ? "s" : "");
        else
            fputs("no number of ranks on", out);
        fprintf(out, " with stage %d", stage);
    }
    fputc('\n', out);
}

static void print_memory(FILE *out, const snug_plan *plan) {
    char left[64] = "nothing else on it";
    if (!plan->elsewhere) snprintf(left, sizeof left, "%.1f available", mib(plan->available));
    if (plan->memory > 0)
        fprintf(out, "%-14s %12.1f   (%s): %s\n", plan->gpu ? plan->device : "this machine", mib(plan->memory), left,
                plan->total <= plan->available ? "it fits" : "it does not fit");
    else if (plan->elsewhere)
        fprintf(out, "snug does not know how much memory %s has\n", plan->device);
}

static void print_compared(FILE *out, bool compares, int64_t bytes) {
    if (compares) fprintf(out, " %18.1f", mib(bytes));
}

static void print_classes(FILE *out, const snug_plan *plan) {
    const bool compares = plan->trainable < plan->parameters;
    fprintf(out, "\n%-14s %12s %16s%s\n", "Memory", "MiB", "bytes/parameter", compares ? "   MiB, all trained" : "");
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        const int64_t bytes = snug_plan_bytes(plan, (snug_memory_class)i);
        fprintf(out, "%-14s %12.1f %16.2f", snug_memory_class_name((snug_memory_class)i), mib(bytes),
                (double)bytes / (double)plan->parameters);
        print_compared(out, compares, plan->frozen.bytes[i]);
        fputc('\n', out);
    }
    fprintf(out, "%-14s %12.1f %16.2f", "total", mib(plan->total), (double)plan->total / (double)plan->parameters);
    print_compared(out, compares, plan->frozen.total);
    fputs(plan->gpu ? "   on the GPU, without host\n" : "\n", out);
    print_memory(out, plan);
}

static void print_offloaded(FILE *out, const snug_plan *plan) {
    const char *separator = "";
    char shown[SNUG_SHOWN];
    if (!plan->offloaded_total) return;
    fprintf(out, "\nOffloaded: %.1f MiB to %s%s", mib(plan->offloaded_total),
            plan->offload_dir ? snug_shown(shown, plan->offload_dir) : "page-locked host memory",
            plan->offload_is_memory ? ", which is host memory" : "");
    if (plan->bounce) fprintf(out, " through %.1f MiB of page-locked host memory", mib(plan->bounce));
    fputc(':', out);
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        if (!plan->offloaded[i]) continue;
        fprintf(out, "%s %s %.1f", separator, snug_memory_class_name((snug_memory_class)i), mib(plan->offloaded[i]));
        separator = ",";
    }
    fputc('\n', out);
}

static void print_rules(FILE *out, const snug_plan *plan) {
    const double n = (double)plan->parameters;
    const double states = (double)(plan->bytes[SNUG_MEMORY_WEIGHTS] + plan->bytes[SNUG_MEMORY_GRADIENTS] +
                                   plan->bytes[SNUG_MEMORY_OPTIMIZER]);
    fprintf(out, "\n%-44s %10s %10s\n", "Rule of thumb, before activations", "rule", "snug");
    fprintf(out, "%-44s %6.1f MiB %6.1f MiB\n", "training, AdamW, 18 bytes per parameter", 18 * n / 0x1p20,
            states / 0x1p20);
    fprintf(out, "%-44s %6.1f MiB %6.1f MiB\n", "inference, 6 bytes per parameter", 6 * n / 0x1p20,
            mib(plan->bytes[SNUG_MEMORY_WEIGHTS]));
}

static void print_part(FILE *out, const char *name, const struct snug_plan_part *part) {
    int64_t sum = 0;
    fprintf(out, "%-14s", name);
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        if (!snug_plan_by_part((snug_memory_class)i)) continue;
        fprintf(out, " %12.1f", mib(part->bytes[i]));
        sum += part->bytes[i];
    }
    fprintf(out, " %12.1f\n", mib(sum));
}

/* Identical layers share a line. */
static void print_layers(FILE *out, const snug_plan *plan) {
    fprintf(out, "\n%-14s %12s %12s %12s %12s %12s\n", "MiB", "weights", "gradients", "optimizer", "activations",
            "sum");
    print_part(out, "embeddings", &plan->embeddings);
    for (int64_t first = 0, last; first < plan->layers; first = last + 1) {
        char name[64];
        const struct snug_plan_part *part = &plan->encoder[first];
        for (last = first; last + 1 < plan->layers; last++)
            if (memcmp(part, &plan->encoder[last + 1], sizeof *part) != 0) break;
        if (first == last)
            snprintf(name, sizeof name, "layer %lld", (long long)first);
        else
            snprintf(name, sizeof name, "each of %lld-%lld", (long long)first, (long long)last);
        print_part(out, name, part);
    }
    print_part(out, "head", &plan->head);
}

static void print_work(FILE *out, const snug_plan *plan) {
    fprintf(out, "\n%-20s", "A step");
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        fprintf(out, " %10s GFLOP %8s", snug_side_name((enum snug_side)side), "GB");
    fputc('\n', out);
    struct snug_estimate total[SNUG_SIDE_COUNT] = {0};
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        if (group == SNUG_GROUP_COPIES && !plan->offloaded_total) continue;
        if (group == SNUG_GROUP_COMMUNICATION && plan->ranks < 2) continue;
        fprintf(out, "%-20s", snug_group_name((enum snug_op_group)group));
        for (int side = 0; side < SNUG_SIDE_COUNT; side++) {
            const struct snug_estimate cost = plan->step.parts[side][group];
            fprintf(out, " %16.2f %8.3f", cost.flops / 1e9, cost.bytes / 1e9);
            total[side].flops += cost.flops;
            total[side].bytes += cost.bytes;
        }
        fputc('\n', out);
    }
    fprintf(out, "%-20s", "all");
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        fprintf(out, " %16.2f %8.3f", total[side].flops / 1e9, total[side].bytes / 1e9);
    fputc('\n', out);
}

/* Bytes of the classes from first to last that a method saves. */
static double saved_mib(const snug_plan *plan, const struct snug_priced *method, int first, int last) {
    int64_t saved = 0;
    for (int i = first; i <= last; i++) saved += plan->methods[0].bytes[i] - method->bytes[i];
    return mib(saved);
}

static void print_duration(char *text, size_t size, double seconds) {
    const int64_t minutes = (int64_t)(seconds / 60 + 0.5);
    if (seconds < 100)
        snprintf(text, size, "%.3g s", seconds);
    else if (minutes < 100)
        snprintf(text, size, "%lld minutes", (long long)minutes);
    else
        snprintf(text, size, "%lld h %02lld min", (long long)(minutes / 60), (long long)(minutes % 60));
}

static void print_communication(FILE *out, const snug_plan *plan) {
    if (plan->ranks < 2) return;
    if (plan->link <= 0) {
        fputs("where each rank has a device like this, without communication: --link_bandwidth gives the GB/s between "
              "ranks\n",
              out);
        return;
    }
    fprintf(out,
            "of which it waits %.3g s for other ranks: it communicates for %.3g s, and %.0f %% of that is hidden\n",
            plan->waits, plan->communicates, 100 * (1 - plan->waits / plan->communicates));
    fprintf(out, "(%.4g GB/s from a rank to the others: %s)\n", plan->link, plan->link_is);
}

static void print_seconds(FILE *out, const snug_plan *plan) {
    char run[48];
    if (!plan->methods) return;
    const double step = plan->methods[0].work.seconds;
    print_duration(run, sizeof run, step * (double)plan->max_steps);
    fprintf(out, "\nA step takes about %.3g s %s, %.4g samples/s", step, plan->elsewhere ? "there" : "here",
            plan->samples / step);
    if (plan->max_steps) fprintf(out, "; the run's %lld steps about %s", (long long)plan->max_steps, run);
    if (plan->scaled)
        fprintf(out, "\n(estimated, not measured there: %srates measured on %s, scaled by the ratios of peak rates)",
                plan->untried ? "snug has never run on this GPU; " : "", plan->rates_of);
    else if (plan->elsewhere)
        fprintf(out, "\n(by rates measured on %s)", plan->rates_of);
    fputc('\n', out);
    print_communication(out, plan);
}

static void print_methods(FILE *out, const snug_plan *plan) {
    const struct snug_priced *here = plan->methods;
    if (!here) return;
    fputs("\nWhat each method alone saves of the plan above, and adds to a step\n", out);
    fprintf(out, "%9s %9s %9s %11s %9s %9s %9s %9s %9s %6s\n", "weights", "gradients", "optimizer", "activations",
            "other", "MiB saved", "GFLOP", "GB", "seconds", "");
    for (size_t i = 1; i < plan->method_count; i++) {
        const struct snug_priced *method = &plan->methods[i];
        fprintf(out, "%9.1f %9.1f %9.1f %11.1f %9.1f %9.1f %9.1f %9.3f %+9.4f %+5.0f%%  %s%s\n",
                saved_mib(plan, method, SNUG_MEMORY_WEIGHTS, SNUG_MEMORY_WEIGHTS),
                saved_mib(plan, method, SNUG_MEMORY_GRADIENTS, SNUG_MEMORY_GRADIENTS),
                saved_mib(plan, method, SNUG_MEMORY_OPTIMIZER, SNUG_MEMORY_OPTIMIZER),
                saved_mib(plan, method, SNUG_MEMORY_ACTIVATIONS, SNUG_MEMORY_ACTIVATIONS),
                saved_mib(plan, method, SNUG_MEMORY_TEMPORARY, SNUG_MEMORY_HOST), mib(here->total - method->total),
                (method->work.flops - here->work.flops) / 1e9, (method->work.bytes - here->work.bytes) / 1e9,
                method->work.seconds - here->work.seconds, 100 * (method->work.seconds / here->work.seconds - 1),
                method->flags, method->approximate ? " (rounds)" : "");
    }
    if (plan->method_count == 1) fputs("(every method is already set)\n", out);
}

/* Full, LoRA and QLoRA beside one another. */
static void print_trainings(FILE *out, const snug_plan *plan) {
    if (plan->training == SNUG_TRAINING_COUNT) return;
    fputs("\nTrainings of this model on these batches, which train different parameters\n", out);
    fprintf(out, "%-18s %10s %10s %12s %10s %10s %9s %9s\n", "", "weights", "grad.+opt.", "activations", "other", "MiB",
            "s a step", "");
    for (int kind = 0; kind < SNUG_TRAINING_COUNT; kind++) {
        const struct snug_priced *t = &plan->trainings[kind];
        const int64_t states = t->bytes[SNUG_MEMORY_GRADIENTS] + t->bytes[SNUG_MEMORY_OPTIMIZER];
        const int64_t rest = t->total - t->bytes[SNUG_MEMORY_WEIGHTS] - t->bytes[SNUG_MEMORY_ACTIVATIONS] - states;
        if (!t->total) continue;
        fprintf(out, "%-5s %-12s %10.1f %10.1f %12.1f %10.1f %10.1f %9.3g %9s  %s\n", t->name,
                (int)plan->training == kind ? "(this plan)" : "", mib(t->bytes[SNUG_MEMORY_WEIGHTS]), mib(states),
                mib(t->bytes[SNUG_MEMORY_ACTIVATIONS]), mib(rest), mib(t->total), t->work.seconds,
                t->total <= plan->training_limit ? "" : "too large", t->flags);
    }
}

static void print_fit(FILE *out, const snug_plan *plan) {
    const struct snug_fit *fit = &plan->fit;
    if (!plan->searched) return;
    fprintf(out, "\n%s %s\n",
            fit->fits && *fit->chosen.flags && !fit->applied ? "--fit would choose" : "--fit:", plan->fit_text);
}

static void print_plan(FILE *out, const void *report) {
    const snug_plan *plan = report;
    print_head(out, plan);
    print_ranks(out, plan);
    print_classes(out, plan);
    print_offloaded(out, plan);
    print_layers(out, plan);
    print_work(out, plan);
    print_seconds(out, plan);
    print_methods(out, plan);
    print_trainings(out, plan);
    print_rules(out, plan);
    print_fit(out, plan);
}

snug_status snug_plan_text(const snug_plan *plan, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(plan);
    return snug_report_text(plan->ctx, print_plan, plan, text);
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

static json_t *classes_json(const int64_t bytes[SNUG_MEMORY_CLASS_COUNT], int64_t total) {
    json_t *classes = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&classes, snug_memory_class_name((snug_memory_class)i), json_integer(bytes[i]));
    snug_json_add(&classes, "total", json_integer(total));
    return classes;
}

static json_t *offloaded_json(const snug_plan *plan) {
    if (!plan->offloaded_total) return json_null();
    json_t *offloaded = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        if (plan->offloaded[i])
            snug_json_add(&offloaded, snug_memory_class_name((snug_memory_class)i), json_integer(plan->offloaded[i]));
    snug_json_add(&offloaded, "total", json_integer(plan->offloaded_total));
    snug_json_add(&offloaded, "folder", plan->offload_dir ? snug_json_from_text(plan->offload_dir) : json_null());
    return offloaded;
}

static json_t *part_json(const struct snug_plan_part *part) {
    json_t *object = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        if (snug_plan_by_part((snug_memory_class)i))
            snug_json_add(&object, snug_memory_class_name((snug_memory_class)i), json_integer(part->bytes[i]));
    return object;
}

static json_t *work_json(const snug_plan *plan) {
    json_t *groups = json_object();
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        json_t *sides = json_object();
        for (int side = 0; side < SNUG_SIDE_COUNT; side++)
            snug_json_add(&sides, snug_side_name((enum snug_side)side),
                          json_pack("{s:f, s:f}", "flops", plan->step.parts[side][group].flops, "bytes",
                                    plan->step.parts[side][group].bytes));
        snug_json_add(&groups, snug_group_key((enum snug_op_group)group), sides);
    }
    return groups;
}

static json_t *priced_json(const struct snug_priced *priced) {
    json_t *bytes = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&bytes, snug_memory_class_name((snug_memory_class)i), json_integer(priced->bytes[i]));
    snug_json_add(&bytes, "total", json_integer(priced->total));
    return json_pack("{s:s, s:b, s:o, s:{s:f, s:f, s:f}}", "arguments", priced->flags, "exact", !priced->approximate,
                     "bytes", bytes, "step", "flops", priced->work.flops, "bytes", priced->work.bytes, "seconds",
                     priced->work.seconds);
}

/* The run's steps and seconds; null where the data or the rates are unknown. */
static json_t *run_json(const snug_plan *plan) {
    const double step = plan->methods ? plan->methods[0].work.seconds : 0;
    const bool timed = step > 0, counted = plan->max_steps > 0;
    return json_pack("{s:o, s:f, s:o, s:o, s:o}", "steps", counted ? json_integer(plan->max_steps) : json_null(),
                     "samples_per_step", plan->samples, "seconds_per_step", timed ? json_real(step) : json_null(),
                     "samples_per_second", timed ? json_real(plan->samples / step) : json_null(), "seconds",
                     timed && counted ? json_real(step * (double)plan->max_steps) : json_null());
}

/* null: unknown, or no number of ranks. */
static json_t *ranks_json(const snug_plan *plan) {
    json_t *fits = json_array();
    const bool known = plan->link > 0;
    for (int stage = 0; stage < SNUG_ZERO_STAGES && plan->fits_known; stage++)
        snug_json_append(&fits, plan->fits_from[stage] ? json_integer(plan->fits_from[stage]) : json_null());
    return json_pack("{s:i, s:i, s:I, s:o, s:o, s:o, s:o}", "count", plan->ranks, "zero_stage", plan->zero_stage,
                     "sent_bytes", (json_int_t)plan->sent, "link_gb_per_second",
                     known ? json_real(plan->link) : json_null(), "communication_seconds",
                     known ? json_real(plan->communicates) : json_null(), "waited_seconds",
                     known ? json_real(plan->waits) : json_null(), "fits_from_by_zero_stage", fits);
}

static json_t *rates_json(const snug_plan *plan) {
    if (!*plan->rates_of) return json_null();
    return json_pack("{s:o, s:b}", "device", snug_json_from_text(plan->rates_of), "scaled", plan->scaled);
}

static json_t *methods_json(const snug_plan *plan) {
    json_t *methods = json_array();
    for (size_t i = 0; i < plan->method_count; i++) snug_json_append(&methods, priced_json(&plan->methods[i]));
    return methods;
}

static json_t *trainings_json(const snug_plan *plan) {
    json_t *trainings = json_object();
    for (int kind = 0; kind < SNUG_TRAINING_COUNT && plan->training < SNUG_TRAINING_COUNT; kind++)
        if (plan->trainings[kind].total)
            snug_json_add(&trainings, plan->trainings[kind].name, priced_json(&plan->trainings[kind]));
    return trainings;
}

static json_t *fit_json(const snug_plan *plan) {
    const struct snug_fit *fit = &plan->fit;
    if (!plan->searched) return json_null();
    return json_pack("{s:I, s:b, s:b, s:o, s:o, s:o}", "limit", (json_int_t)fit->limit, "fits", fit->fits, "applied",
                     fit->applied, "requested", priced_json(&fit->asked), "chosen", priced_json(&fit->chosen),
                     "rounding", fit->rounding.work.seconds > 0 ? priced_json(&fit->rounding) : json_null());
}

static json_t *quantized_json(const struct snug_quantized_sum *sum) {
    if (!sum->parameters) return json_null();
    return json_pack("{s:s, s:b, s:I, s:I, s:f, s:I}", "type", snug_code_type_name(sum->form.type), "double_quant",
                     sum->form.nested, "parameters", (json_int_t)sum->parameters, "bytes", (json_int_t)sum->bytes,
                     "bits_per_parameter", sum->bits, "values_bytes", (json_int_t)sum->values);
}

static json_t *frozen_json(const snug_plan *plan) {
    if (plan->trainable == plan->parameters) return json_null();
    return json_pack("{s:I, s:I, s:o, s:I, s:I, s:f}", "parameters", (json_int_t)(plan->parameters - plan->trainable),
                     "adapter_parameters", (json_int_t)plan->adapted, "bytes_if_all_trained",
                     classes_json(plan->frozen.bytes, plan->frozen.total), "gradient_bytes",
                     (json_int_t)plan->frozen.gradients, "state_bytes", (json_int_t)plan->frozen.states,
                     "backward_flops", plan->frozen.flops);
}

snug_status snug_plan_json(const snug_plan *plan, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(plan);
    json_t *layers = json_array();
    for (int64_t i = 0; i < plan->layers; i++) snug_json_append(&layers, part_json(&plan->encoder[i]));
    json_t *all = json_pack(
        "{s:I, s:I, s:o, s:o, s:s, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:f, s:{s:o, s:o, s:o}, s:o, s:o, s:o, "
        "s:o, "
        "s:o, "
        "s:{s:f, s:f}, "
        "s:I, s:I, s:o, s:o, s:o}",
        "parameters", (json_int_t)plan->parameters, "trainable_parameters", (json_int_t)plan->trainable, "frozen",
        frozen_json(plan), "quantized", quantized_json(&plan->quantized), "task", snug_task_name(plan->task), "compute",
        snug_dtype_name(plan->compute), "dtype", snug_dtype_name(plan->weights), "batch", "sequences",
        (json_int_t)plan->sequences, "tokens", (json_int_t)plan->tokens, "longest", (json_int_t)plan->longest,
        "gradient_accumulation_steps", (json_int_t)plan->accumulation, "bytes", classes_json(plan->bytes, plan->total),
        "offloaded", offloaded_json(plan), "bytes_per_parameter", (double)plan->total / (double)plan->parameters,
        "layers", "embeddings", part_json(&plan->embeddings), "encoder", layers, "head", part_json(&plan->head), "step",
        work_json(plan), "run", run_json(plan), "rates", rates_json(plan), "methods", methods_json(plan), "fit",
        fit_json(plan), "rule_of_thumb_bytes", "training", 18.0 * (double)plan->parameters, "inference",
        6.0 * (double)plan->parameters, "machine_bytes", (json_int_t)plan->memory, "available_bytes",
        (json_int_t)plan->available, "device", plan->gpu ? snug_json_from_text(plan->device) : json_string("cpu"),
        "ranks", ranks_json(plan), "trainings", trainings_json(plan));
    return snug_report_json(plan->ctx, all, text);
}
