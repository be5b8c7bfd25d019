/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --metric_for_best_model: the best evaluation, by which early stopping counts, and the best of those whose step was
 * saved, which --load_best_model_at_end loads. Trainer has only the first, and loads nothing, or another step's
 * checkpoint, where that step was not saved.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"
#include "train/group.h"
#include "train/trainer.h"

/* Whether a metric is better than another one: greater_is_better is set with the metric (snug_args_check()). */
static bool is_better(const struct snug_args *args, double metric, double than) {
    return strcasecmp(args->greater_is_better, "true") == 0 ? metric > than : metric < than;
}

/* Patience counts only gains above the threshold. */
void snug_best_judge(struct snug_trainer *t, const struct snug_metric_list *metrics, bool *improved) {
    const struct snug_args *args = t->args;
    *improved = false;
    if (!args->metric_for_best_model) return;
    const double value = metrics->items[t->session->job.setup.best_metric].value;
    const bool better = isfinite(value) && (!t->has_best || is_better(args, value, t->best_metric));
    const bool clearly = better && (!t->has_best || fabs(value - t->best_metric) > args->early_stopping_threshold);
    t->impatience = clearly ? 0 : t->impatience + 1;
    t->judged_step = t->session->step;
    t->judged_metric = value;
    if (!better) return;
    t->has_best = *improved = true;
    t->best_metric = value;
    t->best_step = t->session->step;
}

void snug_best_save(struct snug_trainer *t) {
    if (t->judged_step != t->session->step || !isfinite(t->judged_metric)) return;
    if (t->streak) return;
    if (t->best_saved_step >= 0 && !is_better(t->args, t->judged_metric, t->best_saved_metric)) return;
    t->best_saved_step = t->judged_step;
    t->best_saved_metric = t->judged_metric;
}

/* ---- at the end ------------------------------------------------------------------------------------------------- */

/* Whether all ranks have the same status. */
static snug_status have_loaded(const struct snug_trainer *t, snug_status status, bool *all) {
    const struct snug_process_group *group = t->args->group;
    int64_t *statuses;
    *all = true;
    if (!group) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(t->ctx, (size_t)group->ranks.size, sizeof *statuses, (void **)&statuses));
    statuses[group->ranks.rank] = status;
    const snug_status gathered = snug_group_all_gather(t->ctx, group, statuses, sizeof *statuses);
    for (int rank = 0; rank < group->ranks.size; rank++) *all &= statuses[rank] == (int64_t)status;
    free(statuses);
    return gathered;
}

/* If the best checkpoint is damaged, the last weights must not be lost. */
static snug_status load(struct snug_trainer *t) {
    char path[SNUG_CHECKPOINT_PATH];
    /* Rank 0 may still be writing it, and may have made the folder. */
    RETURN_IF_ERROR(snug_group_barrier(t->ctx, t->args->group));
    if (!t->output.folder.path) RETURN_IF_ERROR(snug_output_look(t->ctx, t->args->output_dir, &t->output));
    const snug_status status = snug_checkpoint_load_best(t);
    bool all;
    RETURN_IF_ERROR(have_loaded(t, status, &all));
    if (status == SNUG_OK || status == SNUG_E_MEMORY || !all) return status;
    char why[1024];
    int64_t last = -1;
    snprintf(why, sizeof why, "%s", snug_context_message(t->ctx));
    snug_clear_error(t->ctx);
    if (snug_trainer_leads(t)) RETURN_IF_ERROR(snug_checkpoint_last(t, &last));
    RETURN_IF_ERROR(snug_group_broadcast(t->ctx, t->args->group, &last, sizeof last));
    if (last != t->session->step) RETURN_IF_ERROR(snug_checkpoint_save(t, path));
    snug_checkpoint_path(t, t->session->step, path);
    return snug_fail(t->ctx, status, "%s; the last model is in %s", why, path);
}

/* Never another step's figure. */
static void tell(const struct snug_trainer *t) {
    char path[SNUG_CHECKPOINT_PATH];
    const char *metric = t->args->metric_for_best_model;
    snug_checkpoint_path(t, t->best_saved_step, path);
    if (!t->has_best)
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "--load_best_model_at_end: no evaluation in the training had a finite %s: the last weights stay",
                 metric);
    else if (t->best_saved_step < 0)
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "--load_best_model_at_end: no step that was evaluated is saved: the last weights stay; the best "
                 "evaluation was that of step %lld (%s %g)",
                 (long long)t->best_step, metric, t->best_metric);
    else if (is_better(t->args, t->best_metric, t->best_saved_metric))
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "loading the best saved model, from %s (%s %g): the best evaluation was that of step %lld (%s %g), "
                 "which is not saved; with --save_strategy best it is",
                 path, metric, t->best_saved_metric, (long long)t->best_step, metric, t->best_metric);
    else
        snug_log(t->ctx, SNUG_LOG_INFO, "loading the best model from %s (%s %g)", path, metric, t->best_saved_metric);
}

void snug_best_summarise(const struct snug_trainer *t) {
    const struct snug_setup *setup = &t->session->job.setup;
    const struct snug_args *args = t->args;
    const struct snug_metric_form form = snug_setup_metric_form(setup, setup->config.labels.problem);
    const bool chosen = args->metric_for_best_model && args->eval_strategy != SNUG_INTERVAL_NO;
    const char *name = snug_setup_metric_name(setup, chosen ? setup->best_metric : snug_metric_main(&form));
    const bool loaded = args->load_best_model_at_end && t->best_saved_step >= 0; /* the first of equal ones */
    const bool cost = chosen ? strcasecmp(args->greater_is_better, "true") != 0 : snug_metric_is_smaller_better(name);
    snug_train_result *r = t->result;
    const json_t *entry;
    size_t i;
    json_array_foreach(t->log_history, i, entry) {
        const json_t *value = json_object_get(entry, name);
        const double metric = json_number_value(value);
        if (!json_is_number(value)) continue; /* not an evaluation, or not finite */
        const bool better = cost ? metric < r->best_value : metric > r->best_value;
        if (r->best_metric && !better && (loaded || metric != r->best_value)) continue;
        r->best_metric = name;
        r->best_value = metric;
        r->best_step = json_integer_value(json_object_get(entry, "step"));
        r->best_epoch = json_number_value(json_object_get(entry, "epoch"));
    }
    r->best_is_model = r->best_metric && r->best_step == (loaded ? t->best_saved_step : t->session->step);
}

snug_status snug_best_load(struct snug_trainer *t) {
    if (snug_trainer_leads(t)) tell(t);
    return t->best_saved_step >= 0 ? load(t) : SNUG_OK;
}
