/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run will write, against the free space of the disks that it goes to, before the first step. The token cache is
 * written by then, and what is offloaded has its blocks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "io/folder.h"
#include "model/weights.h"
#include "train/trainer.h"

enum {
    REST = 4 << 20,   /* of a model's folder: tokenizer, config, headers */
    SLACK = 1 << 20,  /* result files, and what file systems keep for themselves */
    LOG_ENTRY = 256,  /* bytes of one log in trainer_state.json, and of its three records for TensorBoard */
    EVALUATION = 1024 /* the same of an evaluation's metrics */
};

/* What happens from here to the last step. */
struct prospect {
    int64_t logs, evaluations, made, replaced; /* checkpoints: where none is, where one of that step is */
};

static bool is_saved(const struct snug_trainer *t, int64_t step, bool epoch_ends, bool evaluated) {
    const enum snug_interval strategy = t->args->save_strategy;
    if (strategy == SNUG_INTERVAL_BEST) return evaluated; /* each may turn out to be the best */
    return snug_trainer_is_due(strategy, t->save_steps, step, epoch_ends) ||
           (strategy == SNUG_INTERVAL_STEPS && step == t->session->job.max_steps);
}

static struct prospect look_ahead(const struct snug_trainer *t, const int64_t *there, size_t count) {
    const struct snug_job *job = &t->session->job;
    struct prospect p = {0};
    size_t next = 0;
    for (int64_t step = t->session->step + 1; step <= job->max_steps; step++) {
        const bool epoch_ends = step == job->max_steps || step % job->steps_per_epoch == 0;
        const bool evaluated = snug_trainer_is_due(t->args->eval_strategy, t->eval_steps, step, epoch_ends);
        p.logs += snug_trainer_is_due(t->args->logging_strategy, t->logging_steps, step, epoch_ends);
        p.evaluations += evaluated;
        if (!is_saved(t, step, epoch_ends, evaluated)) continue;
        while (next < count && there[next] < step) next++;
        if (next < count && there[next] == step)
            p.replaced++;
        else
            p.made++;
    }
    p.evaluations += 2; /* before the first step, after the last */
    return p;
}

static int64_t weight_bytes(const struct snug_program *program) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        bytes += snug_parameter_count(p) * snug_dtype_size(program->tensors[p->tensor].dtype);
    }
    return bytes;
}

static int64_t state_bytes(const struct snug_program *program) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *tensor = &program->tensors[i];
        if (tensor->saved) bytes += tensor->rows * tensor->cols * snug_dtype_size(tensor->dtype);
    }
    return bytes;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Checkpoints on the disk beyond the old ones: at the worst moment, and at the end. A new one stands beside the old
   until it is whole. */
static void count_checkpoints(const struct snug_trainer *t, const struct prospect *p, int64_t old, int64_t *peak,
                              int64_t *end) {
    *peak = p->made + (p->replaced > 0);
    *end = p->made;
    if (t->save_total_limit <= 0) return;
    const int64_t kept = larger(t->save_total_limit, t->args->metric_for_best_model ? 2 : 1);
    *peak = smaller(*peak, larger(old, kept) + 1 - old);
    *end = smaller(*end, larger(old, kept) - old);
}

static snug_status compare(const struct snug_trainer *t, const struct prospect *p, int64_t old, int64_t freed) {
    const struct snug_program *program = t->session->job.training;
    const char *folder = t->args->output_dir, *logs = t->args->logging_dir;
    const int64_t history = p->logs * LOG_ENTRY + p->evaluations * EVALUATION,
                  events = snug_trainer_reports(t->args) ? history : 0;
    const int64_t model = weight_bytes(program) + REST;
    const int64_t one = model + history + (t->args->save_only_model ? 0 : state_bytes(program));
    int64_t peak, end, free_bytes;
    count_checkpoints(t, p, old, &peak, &end);
    const int64_t need = larger(peak * one, end * one + model + history) + events + SLACK;
    RETURN_IF_ERROR(snug_disk_free(t->ctx, folder, &free_bytes));
    free_bytes += freed;
    if (free_bytes < need) {
        char what[96] = "the model";
        const char *room = t->room     ? t->room
                           : peak == 0 ? "free some, or name another --output_dir"
                                       : "--save_total_limit, --save_only_model or --save_strategy make it less";
        if (peak > 0)
            snprintf(what, sizeof what, "at most %lld new checkpoints of %.1f MiB at a time, and the model",
                     (long long)peak, (double)one / 0x1p20);
        return snug_fail(t->ctx, SNUG_E_IO, "%s: the run will write %.1f MiB (%s), and %.1f MiB are free; %s", folder,
                         (double)need / 0x1p20, what, (double)free_bytes / 0x1p20, room);
    }
    if (peak == 0 && free_bytes < need + one)
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "%s: %.1f MiB are free; a checkpoint of %.1f MiB, if the run is interrupted, would not fit", folder,
                 (double)free_bytes / 0x1p20, (double)one / 0x1p20);
    if (!logs || !events) return SNUG_OK;
    RETURN_IF_ERROR(snug_disk_free(t->ctx, logs, &free_bytes));
    if (free_bytes >= events) return SNUG_OK;
    return snug_fail(t->ctx, SNUG_E_IO, "%s: the run's event logs take %.1f MiB, and %.1f MiB are free", logs,
                     (double)events / 0x1p20, (double)free_bytes / 0x1p20);
}

snug_status snug_trainer_check_disk(const struct snug_trainer *t) {
    struct snug_checkpoint *items;
    int64_t *steps = NULL, freed = 0, there = 0, old = 0; /* old: those that rotation counts */
    size_t count;
    snug_status status = snug_checkpoint_list(t, &items, &count);
    if (status == SNUG_OK) status = snug_alloc(t->ctx, count, sizeof *steps, (void **)&steps);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        char name[SNUG_CHECKPOINT_NAME];
        snprintf(name, sizeof name, "checkpoint-%lld", (long long)items[i].step);
        if (snug_trainer_starts_anew(t) && items[i].own) /* it goes before the first step */
            freed += snug_folder_bytes(&t->output.folder, name);
        else if (items[i].own)
            steps[there++] = items[i].step;
        old += items[i].own && items[i].from.run == t->from.run;
    }
    if (status == SNUG_OK) {
        const struct prospect p = look_ahead(t, steps, (size_t)there);
        status = compare(t, &p, old, freed);
    }
    free(steps);
    free(items);
    return status;
}
