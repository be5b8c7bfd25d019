/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a table for people and as JSON: bytes by class, by layer and per parameter; FLOPs and bytes moved by the
   three groups of operations of "Model training anatomy". */
#include <stdio.h>
#include <stdlib.h>

#include "io/json.h"
#include "model/weights.h"
#include "report/report.h"
#include "train/device.h"
#include "train/fit.h"
#include "train/results.h"

struct snug_plan {
    struct snug_job job;
    int64_t parameters;
    struct snug_priced *methods; /* the plan itself, then each method alone */
    size_t method_count;
    char *fit; /* the search for a mix of methods, if there was one, in words */
};

/* Figures of one step: all of its micro-batches at the size of the run's largest, and the update. */
struct work {
    struct snug_cost cost[SNUG_SIDE_COUNT][SNUG_GROUP_COUNT];
};

/* The classes that belong to a layer, of one layer, of the embeddings (part -1) or of the head (part -2). */
struct part {
    int64_t bytes[SNUG_MEMORY_ACTIVATIONS + 1];
};
enum { EMBEDDINGS = -1, HEAD = -2 };

static snug_status price_methods(snug_plan *plan) {
    struct snug_rates rates;
    if (plan->job.fit) RETURN_IF_ERROR(snug_fit_sentence(plan->job.ctx, plan->job.fit, &plan->fit));
    if (snug_job_on_device(&plan->job)) return SNUG_OK; /* no rates of operations are measured on a device yet */
    RETURN_IF_ERROR(snug_rates_open(plan->job.ctx, plan->job.backend, plan->job.threads, &rates));
    const snug_status status = snug_fit_table(&plan->job, &rates, &plan->methods, &plan->method_count);
    snug_rates_free(&rates);
    return status;
}

snug_status snug_plan_create(snug_args *args, snug_plan **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_plan *plan = memory;
    snug_status status = snug_job_open(args, SNUG_COMMAND_PLAN, &plan->job);
    if (status != SNUG_OK && status != SNUG_E_DOES_NOT_FIT) {
        snug_plan_destroy(plan);
        return status;
    }
    const struct snug_program *program = plan->job.training;
    for (size_t i = 0; i < program->parameter_count; i++)
        plan->parameters += snug_parameter_count(&program->parameters[i]);
    const snug_status priced = price_methods(plan);
    if (priced != SNUG_OK) {
        snug_plan_destroy(plan);
        return priced;
    }
    *out = plan;
    return status;
}

void snug_plan_destroy(snug_plan *plan) {
    if (!plan) return;
    snug_job_close(&plan->job);
    free(plan->methods);
    free(plan->fit);
    free(plan);
}

int64_t snug_plan_bytes(const snug_plan *plan, snug_memory_class memory_class) {
    return snug_job_bytes(&plan->job, memory_class);
}

int64_t snug_plan_total(const snug_plan *plan) { return snug_job_total(&plan->job); }

static int part_of(const struct snug_tensor *tensor) {
    if (tensor->layer >= 0) return tensor->layer;
    return strstr(tensor->name, "embeddings") ? EMBEDDINGS : HEAD;
}

static struct part measure_part(const snug_plan *plan, int which) {
    struct part part = {0};
    const struct snug_program *program = plan->job.training;
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *tensor = &program->tensors[i];
        const bool stays =
            !tensor->offloaded && (tensor->persistent || tensor->memory_class == SNUG_MEMORY_ACTIVATIONS);
        if (stays && tensor->memory_class <= SNUG_MEMORY_ACTIVATIONS && part_of(tensor) == which)
            part.bytes[tensor->memory_class] += tensor->bytes;
    }
    return part;
}

static struct work measure_work(const snug_plan *plan) {
    const struct snug_job *job = &plan->job;
    const struct snug_loader_limits *limits = &job->train.limits;
    struct work work = {0};
    bool behind_loss = false;
    for (size_t i = 0; i < job->training->op_count; i++) {
        const struct snug_op *op = &job->training->ops[i];
        if (op->phase == SNUG_PHASE_PREPARE || op->phase == SNUG_PHASE_SETTLE) continue; /* no part of a step */
        /* Masked LM: the share of tokens that are masked goes through the head. */
        const int64_t rows = job->config.task == SNUG_TASK_MLM
                                 ? (int64_t)((double)limits->tokens * job->args->mlm_probability)
                                 : limits->rows;
        const struct snug_cost cost = snug_op_cost(job->training, op, limits->tokens, limits->sequences, rows);
        const enum snug_side side = snug_side_of(op, behind_loss);
        const double times = side == SNUG_SIDE_UPDATE ? 1 : (double)job->train.options.accumulation;
        struct snug_cost *sum = &work.cost[side][snug_op_group(op->kind)];
        behind_loss |= op->kind == SNUG_OP_LOSS;
        sum->flops += times * cost.flops;
        sum->bytes += times * cost.bytes;
    }
    return work;
}

/* ---- as text -------------------------------------------------------------------------------------------------- */

static double mib(int64_t bytes) { return (double)bytes / 0x1p20; }

static void print_head(FILE *out, const snug_plan *plan) {
    const struct snug_job *job = &plan->job;
    const struct snug_config *c = &job->config;
    fprintf(out,
            "Model      BERT, %lld layers, hidden %lld, %lld heads, FFN %lld, vocabulary %lld: %.1f M parameters\n",
            (long long)c->num_hidden_layers, (long long)c->hidden_size, (long long)c->num_attention_heads,
            (long long)c->intermediate_size, (long long)c->vocab_size, (double)plan->parameters / 1e6);
    fprintf(out, "Task       %s\n", c->task == SNUG_TASK_MLM ? "masked language model" : "sequence classification");
    fprintf(out, "Batch      %lld sequences x %lld accumulation, %lld tokens at most (longest sequence %lld), %s\n",
            (long long)job->train.limits.sequences, (long long)job->train.options.accumulation,
            (long long)job->train.limits.tokens, (long long)job->train.limits.longest,
            snug_precision_text(job->training, job->weights));
}

static void print_classes(FILE *out, const snug_plan *plan) {
    fprintf(out, "\n%-14s %12s %16s\n", "Memory", "MiB", "bytes/parameter");
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        const int64_t bytes = snug_plan_bytes(plan, (snug_memory_class)i);
        fprintf(out, "%-14s %12.1f %16.2f\n", snug_memory_class_name((snug_memory_class)i), mib(bytes),
                (double)bytes / (double)plan->parameters);
    }
    const struct snug_job *job = &plan->job;
    const int64_t total = snug_plan_total(plan), place = snug_job_place_bytes(job);
    const int64_t available = snug_job_place_available(job);
    const bool device = snug_job_on_device(job);
    fprintf(out, "%-14s %12.1f %16.2f%s\n", "total", mib(total), (double)total / (double)plan->parameters,
            device ? "   on the GPU, without host" : "");
    if (place > 0)
        fprintf(out, "%-14s %12.1f   (%.1f available): %s\n", device ? job->meter.gpu.name : "this machine", mib(place),
                mib(available), total <= available ? "it fits" : "it does not fit");
}

static void print_offloaded(FILE *out, const snug_plan *plan) {
    const struct snug_layout *layout = &plan->job.layout;
    const char *folder = snug_args_offload_dir(plan->job.args), *separator = "";
    char shown[SNUG_SHOWN];
    if (!layout->spool) return;
    fprintf(out, "\nOffloaded: %.1f MiB to %s%s:", mib(layout->spool), snug_shown(shown, folder),
            snug_spool_is_memory(folder) ? ", which is host memory" : "");
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
        if (!layout->spooled[i]) continue;
        fprintf(out, "%s %s %.1f", separator, snug_memory_class_name((snug_memory_class)i), mib(layout->spooled[i]));
        separator = ",";
    }
    fputc('\n', out);
}

static void print_rules(FILE *out, const snug_plan *plan) {
    const double n = (double)plan->parameters;
    const double states =
        (double)(plan->job.layout.bytes[SNUG_MEMORY_WEIGHTS] + plan->job.layout.bytes[SNUG_MEMORY_GRADIENTS] +
                 plan->job.layout.bytes[SNUG_MEMORY_OPTIMIZER]);
    fprintf(out, "\n%-44s %10s %10s\n", "Rule of thumb, before activations", "rule", "snug");
    fprintf(out, "%-44s %6.1f MiB %6.1f MiB\n", "training, AdamW, 18 bytes a parameter", 18 * n / 0x1p20,
            states / 0x1p20);
    fprintf(out, "%-44s %6.1f MiB %6.1f MiB\n", "inference, 6 bytes a parameter", 6 * n / 0x1p20,
            mib(plan->job.layout.bytes[SNUG_MEMORY_WEIGHTS]));
}

static void print_part(FILE *out, const char *name, const struct part *part) {
    int64_t sum = 0;
    fprintf(out, "%-14s", name);
    for (int i = 0; i <= SNUG_MEMORY_ACTIVATIONS; i++) {
        fprintf(out, " %12.1f", mib(part->bytes[i]));
        sum += part->bytes[i];
    }
    fprintf(out, " %12.1f\n", mib(sum));
}

/* Equal layers share a line. */
static void print_layers(FILE *out, const snug_plan *plan) {
    const int layers = (int)plan->job.config.num_hidden_layers;
    struct part part = measure_part(plan, EMBEDDINGS);
    fprintf(out, "\n%-14s %12s %12s %12s %12s %12s\n", "MiB", "weights", "gradients", "optimizer", "activations",
            "sum");
    print_part(out, "embeddings", &part);
    for (int first = 0, last; first < layers; first = last + 1) {
        char name[32];
        part = measure_part(plan, first);
        for (last = first; last + 1 < layers; last++) {
            const struct part next = measure_part(plan, last + 1);
            if (memcmp(&part, &next, sizeof part) != 0) break;
        }
        if (first == last)
            snprintf(name, sizeof name, "layer %d", first);
        else
            snprintf(name, sizeof name, "each of %d-%d", first, last);
        print_part(out, name, &part);
    }
    part = measure_part(plan, HEAD);
    print_part(out, "head", &part);
}

static void print_work(FILE *out, const snug_plan *plan) {
    const struct work work = measure_work(plan);
    fprintf(out, "\n%-20s", "A step");
    for (int side = 0; side < SNUG_SIDE_COUNT; side++)
        fprintf(out, " %10s GFLOP %8s", snug_side_name((enum snug_side)side), "GB");
    fputc('\n', out);
    struct snug_cost total[SNUG_SIDE_COUNT] = {0};
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        fprintf(out, "%-20s", snug_group_name((enum snug_op_group)group));
        for (int side = 0; side < SNUG_SIDE_COUNT; side++) {
            const struct snug_cost cost = work.cost[side][group];
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

static void print_methods(FILE *out, const snug_plan *plan) {
    const struct snug_priced *here = plan->methods;
    if (!here) return; /* on a device */
    fprintf(out,
            "\nA step takes about %.3g s here: what each method alone saves of the plan above, and adds to a step\n",
            here->work.seconds);
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
    if (plan->method_count == 1) fputs("(every method is set)\n", out);
}

static void print_fit(FILE *out, const snug_plan *plan) {
    const struct snug_fit *fit = plan->job.fit;
    if (!fit) return;
    fprintf(out, "\n%s %s\n",
            fit->fits && *fit->chosen.flags && !fit->applied ? "--fit would choose" : "--fit:", plan->fit);
}

static void print_plan(FILE *out, const void *report) {
    const snug_plan *plan = report;
    print_head(out, plan);
    print_classes(out, plan);
    print_offloaded(out, plan);
    print_layers(out, plan);
    print_work(out, plan);
    print_methods(out, plan);
    print_rules(out, plan);
    print_fit(out, plan);
}

snug_status snug_plan_text(const snug_plan *plan, char **text) {
    return snug_report_text(plan->job.ctx, print_plan, plan, text);
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

static json_t *classes_json(const snug_plan *plan) {
    json_t *classes = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&classes, snug_memory_class_name((snug_memory_class)i),
                      json_integer(snug_plan_bytes(plan, (snug_memory_class)i)));
    snug_json_add(&classes, "total", json_integer(snug_plan_total(plan)));
    return classes;
}

static json_t *offloaded_json(const snug_plan *plan) {
    const struct snug_layout *layout = &plan->job.layout;
    if (!layout->spool) return json_null();
    json_t *offloaded = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        if (layout->spooled[i])
            snug_json_add(&offloaded, snug_memory_class_name((snug_memory_class)i), json_integer(layout->spooled[i]));
    snug_json_add(&offloaded, "total", json_integer(layout->spool));
    snug_json_add(&offloaded, "folder", snug_json_from_text(snug_args_offload_dir(plan->job.args)));
    return offloaded;
}

static json_t *part_json(const snug_plan *plan, int which) {
    const struct part part = measure_part(plan, which);
    json_t *object = json_object();
    for (int i = 0; i <= SNUG_MEMORY_ACTIVATIONS; i++)
        snug_json_add(&object, snug_memory_class_name((snug_memory_class)i), json_integer(part.bytes[i]));
    return object;
}

static json_t *work_json(const snug_plan *plan) {
    const struct work work = measure_work(plan);
    json_t *groups = json_object();
    for (int group = 0; group < SNUG_GROUP_COUNT; group++) {
        json_t *sides = json_object();
        for (int side = 0; side < SNUG_SIDE_COUNT; side++)
            snug_json_add(
                &sides, snug_side_name((enum snug_side)side),
                json_pack("{s:f, s:f}", "flops", work.cost[side][group].flops, "bytes", work.cost[side][group].bytes));
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

static json_t *methods_json(const snug_plan *plan) {
    json_t *methods = json_array();
    for (size_t i = 0; i < plan->method_count; i++) snug_json_append(&methods, priced_json(&plan->methods[i]));
    return methods;
}

static json_t *fit_json(const struct snug_fit *fit) {
    if (!fit) return json_null();
    return json_pack("{s:I, s:b, s:b, s:o, s:o}", "limit", (json_int_t)fit->limit, "fits", fit->fits, "applied",
                     fit->applied, "asked", priced_json(&fit->asked), "chosen", priced_json(&fit->chosen));
}

snug_status snug_plan_json(const snug_plan *plan, char **text) {
    const struct snug_job *job = &plan->job;
    json_t *layers = json_array();
    for (int i = 0; i < (int)job->config.num_hidden_layers; i++) snug_json_append(&layers, part_json(plan, i));
    json_t *all = json_pack(
        "{s:I, s:s, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:f, s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:{s:f, s:f}, "
        "s:I, s:I, s:o}",
        "parameters", (json_int_t)plan->parameters, "task",
        job->config.task == SNUG_TASK_MLM ? "mlm" : "classification", "compute",
        snug_dtype_name(job->training->compute), "dtype", snug_dtype_name(job->weights), "batch", "sequences",
        (json_int_t)job->train.limits.sequences, "tokens", (json_int_t)job->train.limits.tokens, "longest",
        (json_int_t)job->train.limits.longest, "gradient_accumulation_steps",
        (json_int_t)job->train.options.accumulation, "bytes", classes_json(plan), "offloaded", offloaded_json(plan),
        "bytes_per_parameter", (double)snug_plan_total(plan) / (double)plan->parameters, "layers", "embeddings",
        part_json(plan, EMBEDDINGS), "encoder", layers, "head", part_json(plan, HEAD), "step", work_json(plan),
        "methods", methods_json(plan), "fit", fit_json(job->fit), "rule_of_thumb_bytes", "training",
        18.0 * (double)plan->parameters, "inference", 6.0 * (double)plan->parameters, "machine_bytes",
        (json_int_t)snug_job_place_bytes(job), "available_bytes", (json_int_t)snug_job_place_available(job), "device",
        snug_job_on_device(job) ? json_string(job->meter.gpu.name) : json_string("cpu"));
    return snug_report_json(job->ctx, all, text);
}
