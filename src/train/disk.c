/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks before the first step that the disks have enough free space for all files of the run. The token cache is
 * already written, and the offload file is already allocated.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/min_max.h"
#include "io/folder.h"
#include "model/bitsandbytes.h"
#include "model/weights.h"
#include "train/trainer.h"

enum {
    REST = 4 << 20,   /* a model folder's other files: tokenizer, config, headers */
    SLACK = 1 << 20,  /* result files, and the overhead of file systems */
    LOG_ENTRY = 320,  /* bytes of one log in trainer_state.json, and of its four records for TensorBoard */
    EVALUATION = 1024 /* the same of an evaluation's metrics */
};

struct snug_prospect snug_trainer_look_ahead(const struct snug_trainer *t, int64_t last, const int64_t *there,
                                             size_t count) {
    const struct snug_calendar *c = &t->calendar;
    const int64_t step = t->session->step;
    struct snug_prospect p = {.logs = snug_calendar_count(c, &c->logging, step, last),
                              .evaluations = snug_calendar_count(c, &c->evaluating, step, last),
                              .made = snug_calendar_count(c, &c->saving, step, last)};
    for (size_t i = 0; i < count; i++)
        p.replaced += there[i] > step && there[i] <= last && snug_calendar_is_due(c, &c->saving, there[i]);
    p.made -= p.replaced;
    p.evaluations += 2; /* before the first step, after the last */
    return p;
}

/* The first step in which early stopping may end the run: that of evaluation patience + 1, the first being the best. */
int64_t snug_trainer_first_stop(const struct snug_trainer *t) {
    const int64_t patience = t->args->early_stopping_patience;
    if (patience <= 0) return t->session->max_steps;
    const int64_t stop = snug_calendar_nth(&t->calendar, &t->calendar.evaluating, t->session->step, patience + 1);
    return stop ? stop : t->session->max_steps;
}

static int64_t weight_bytes(const struct snug_program *program, bool adapters) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        const struct snug_tensor *t = &program->tensors[p->tensor];
        if (p->adapter || !adapters)
            bytes += t->quantized.type ? snug_codes_saved_bytes(&t->quantized)
                                       : snug_parameter_count(p) * snug_dtype_size(t->dtype);
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

/* Checkpoints on the disk in addition to the old ones: at most, and at the end. An old checkpoint is removed only when
   the new one is complete. */
static void count_checkpoints(const struct snug_trainer *t, const struct snug_prospect *p, int64_t old, int64_t *peak,
                              int64_t *end) {
    *peak = p->made + (p->replaced > 0);
    *end = p->made;
    if (t->save_total_limit <= 0) return;
    const int64_t kept = snug_max(t->save_total_limit, t->args->metric_for_best_model ? 2 : 1);
    *peak = snug_min(*peak, snug_max(old, kept) + 1 - old);
    *end = snug_min(*end, snug_max(old, kept) - old);
}

/* Bytes that a run writes; doubles, because 10^12 steps may write more than 2^63 bytes. */
struct need {
    int64_t peak; /* new checkpoints at a time */
    double history, events, model, checkpoint, all;
};

/* p has the schedule of logs, saving that of checkpoints. */
static struct need need_of(const struct snug_trainer *t, const struct snug_prospect *p,
                           const struct snug_prospect *saving, int64_t old) {
    const struct snug_program *program = &t->session->training->program;
    struct need need = {.history = (double)p->logs * LOG_ENTRY + (double)p->evaluations * EVALUATION,
                        .model = (double)(weight_bytes(program, t->session->job.setup.lora != NULL) + REST)};
    int64_t end;
    count_checkpoints(t, saving, old, &need.peak, &end);
    need.events = snug_trainer_reports(t->args) ? need.history : 0;
    need.checkpoint = need.model + need.history + (t->args->save_only_model ? 0 : (double)state_bytes(program));
    need.all = fmax((double)need.peak * need.checkpoint, (double)end * need.checkpoint + need.model + need.history) +
               need.events + SLACK;
    return need;
}

static snug_status refuse(const struct snug_trainer *t, const struct need *need, int64_t free_bytes) {
    char what[96] = "the model", logs[64] = "";
    const bool talkative = need->history > need->model; /* then the logs take most of the space */
    const char *room = t->room           ? t->room
                       : talkative       ? "use a larger --logging_steps"
                       : need->peak == 0 ? "free some, or give another --output_dir"
                                         : "--save_total_limit, --save_only_model or --save_strategy reduce it";
    if (need->peak > 0)
        snprintf(what, sizeof what, "at most %lld new checkpoints of %.1f MiB at a time, and the model",
                 (long long)need->peak, need->checkpoint / 0x1p20);
    if (talkative) snprintf(logs, sizeof logs, ", each with logs of %.1f MiB", need->history / 0x1p20);
    return snug_fail(t->ctx, SNUG_E_IO, "%s: the run will write %.1f MiB (%s%s), and %.1f MiB are free; %s",
                     t->args->output_dir, need->all / 0x1p20, what, logs, (double)free_bytes / 0x1p20, room);
}

static snug_status compare(const struct snug_trainer *t, const struct need *need, int64_t freed) {
    const char *folder = t->args->output_dir, *logs = t->args->logging_dir;
    int64_t free_bytes;
    RETURN_IF_ERROR(snug_disk_free(t->ctx, folder, &free_bytes));
    free_bytes += freed;
    if ((double)free_bytes < need->all) return refuse(t, need, free_bytes);
    const bool again = t->output.folder.path != NULL; /* the last check: one warning is enough */
    if (again && need->peak == 0 && (double)free_bytes < need->all + need->checkpoint)
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "%s: %.1f MiB are free; a checkpoint of %.1f MiB, if the run is interrupted, would not fit", folder,
                 (double)free_bytes / 0x1p20, need->checkpoint / 0x1p20);
    if (!logs || need->events == 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_disk_free(t->ctx, logs, &free_bytes));
    if ((double)free_bytes >= need->events) return SNUG_OK;
    return snug_fail(t->ctx, SNUG_E_IO, "%s: the run's event logs take %.1f MiB, and %.1f MiB are free", logs,
                     need->events / 0x1p20, (double)free_bytes / 0x1p20);
}

/* With early stopping the number of steps is unknown: the files up to the earliest stop must fit. --save_total_limit
   limits the checkpoints for any number of steps, so all of these are counted. */
static snug_status check_prospects(const struct snug_trainer *t, const int64_t *there, size_t count, int64_t old,
                                   int64_t freed) {
    const int64_t last = t->session->max_steps, stop = snug_trainer_first_stop(t);
    const struct snug_prospect whole = snug_trainer_look_ahead(t, last, there, count),
                               sure = snug_trainer_look_ahead(t, stop, there, count);
    const struct need all = need_of(t, &whole, &whole, old),
                      need = need_of(t, &sure, t->save_total_limit > 0 ? &whole : &sure, old);
    if (stop < last)
        snug_log(
            t->ctx, SNUG_LOG_INFO,
            "%s: early stopping may end the run at step %lld, before which it writes up to %.1f MiB; all %lld steps "
            "would write up to %.1f MiB",
            t->args->output_dir, (long long)stop, need.all / 0x1p20, (long long)last, all.all / 0x1p20);
    return compare(t, &need, freed);
}

snug_status snug_trainer_check_disk(const struct snug_trainer *t) {
    struct snug_checkpoint *items;
    int64_t *steps = NULL, freed = 0, there = 0, old = 0; /* old: those that count for save_total_limit */
    size_t count;
    snug_status status = snug_checkpoint_list(t, &items, &count);
    if (status == SNUG_OK) status = snug_alloc(t->ctx, count, sizeof *steps, (void **)&steps);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        char name[SNUG_CHECKPOINT_NAME];
        snprintf(name, sizeof name, "checkpoint-%lld", (long long)items[i].step);
        if (snug_trainer_starts_over(t) && items[i].own) /* it is removed before the first step */
            freed += snug_folder_bytes(&t->output.folder, name);
        else if (items[i].own)
            steps[there++] = items[i].step;
        old += items[i].own && items[i].from.run == t->from.run;
    }
    if (status == SNUG_OK) status = check_prospects(t, steps, (size_t)there, old, freed);
    free(steps);
    free(items);
    return status;
}
