/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses and gradients that are NaN or infinite. A normal step checks only the loss and the gradient norm. If one of
 * them is not finite, the tensor is searched. torch would clip by a norm of NaN and set every weight to NaN; in snug
 * such a step is counted and logged, and changes no weight.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "model/weights.h"
#include "train/trainer.h"

enum {
    PIECE = 4096,     /* values per block of the search */
    LOGGED_EACH = 10, /* number of warnings after which only powers of two are logged */
};

static const char *kind_of(double value) { return isnan(value) ? "NaN" : "infinite"; }

/* "the loss is 0.7", or NaN, or infinite. */
static void describe_loss(double loss, char *text, size_t size) {
    if (isfinite(loss))
        snprintf(text, size, "the loss is %g", loss);
    else
        snprintf(text, size, "the loss is %s", kind_of(loss));
}

/* The sum of squares of a whole gradient. */
struct norm {
    int32_t sums, slot, parameter; /* -1: op is none */
    bool rows;                     /* its gradient has only some rows of its table */
};

static struct norm norm_of(const struct snug_op *op) {
    if (op->kind == SNUG_OP_SUM_CHUNKS)
        return (struct norm){op->sum_chunks.sums, op->sum_chunks.slot, op->sum_chunks.parameter, .rows = false};
    if (op->kind != SNUG_OP_SQUARED_NORM || op->squared_norm.chunks) return (struct norm){.parameter = -1};
    return (struct norm){op->squared_norm.sums, op->squared_norm.slot, op->squared_norm.parameter,
                         .rows = op->squared_norm.index != 0};
}

static snug_status read_norm(struct snug_session *s, const struct norm *norm, double *sum) {
    const double *sums = snug_run_data(&s->train_run, norm->sums);
    return snug_block_copy(s->ctx, &s->job.runner.arena, sum, sums + norm->slot, sizeof *sum);
}

/* Whether one of count values of a persistent F32 tensor is not finite; *bad is then the first such value. */
static snug_status scan_tensor(struct snug_session *s, int32_t tensor, int64_t first, int64_t count, float *bad) {
    float values[PIECE];
    *bad = 0;
    for (int64_t done = 0; done < count; done += PIECE) {
        const int64_t n = snug_min(PIECE, count - done);
        RETURN_IF_ERROR(snug_tensor_read(&s->training->program, &s->memory, tensor, first + done, n, values));
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(values[i])) {
                *bad = values[i];
                return SNUG_OK;
            }
    }
    return SNUG_OK;
}

struct finding {
    const char *name; /* of the parameter, or of a stack of parameters; NULL: every gradient's norm is finite */
    int64_t tensors;  /* whose gradients are not finite */
    float value;      /* the value found in the gradient; 0 if the gradient does not exist any more */
};

/* The last of the parameters stacked in weight whose gradient is not finite, if the gradient still exists. */
static snug_status find_parameter(struct snug_session *s, int32_t weight, bool whole, struct finding *found) {
    const struct snug_program *program = &s->training->program;
    const int32_t kept = program->tensors[weight].gradient;
    const int32_t gradient = whole && program->tensors[kept].persistent ? kept : 0;
    size_t stacked = 0;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        float value = 0;
        if (p->tensor != weight) continue;
        if (gradient)
            RETURN_IF_ERROR(
                scan_tensor(s, gradient, p->row * program->tensors[weight].cols, snug_parameter_count(p), &value));
        if (gradient && isfinite(value)) continue;
        found->name = stacked++ && !gradient ? program->tensors[weight].name : p->name;
        found->value = value;
    }
    if (!found->name) found->name = program->tensors[weight].name; /* finite, but the sum of its squares is not */
    return SNUG_OK;
}

/* Whether a gradient has the sum over all ranks, whole: on one rank, and where it is not divided. */
static bool is_summed_here(const struct snug_program *program, int32_t gradient) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_sum_ranks *sum = &program->ops[i].sum_ranks;
        if (program->ops[i].kind != SNUG_OP_SUM_RANKS || sum->g != gradient) continue;
        return snug_sums_for_all(&program->ops[i]) && !sum->sum;
    }
    return true;
}

/* Parameters are in forward order, and backward propagates values that are not finite to earlier parameters: the last
 * one is nearest to their origin. */
static snug_status find_gradient(struct snug_session *s, struct finding *found) {
    const struct snug_program *program = &s->training->program;
    struct norm source = {.parameter = -1};
    int32_t slot = -1;
    *found = (struct finding){0};
    for (size_t i = 0; i < program->op_count; i++) {
        const struct norm norm = norm_of(&program->ops[i]);
        double sum;
        if (norm.parameter < 0 || norm.slot == slot) continue; /* a tensor in parts has one sum */
        slot = norm.slot;
        RETURN_IF_ERROR(read_norm(s, &norm, &sum));
        if (isfinite(sum)) continue;
        found->tensors++;
        if (norm.parameter > source.parameter) source = norm;
    }
    if (source.parameter < 0) return SNUG_OK;
    const int32_t weight = program->parameters[source.parameter].tensor;
    return find_parameter(s, weight, !source.rows && is_summed_here(program, program->tensors[weight].gradient), found);
}

/* The number of the first parameter of which this rank stores a value that is not finite; or their number. */
static snug_status find_weight(struct snug_session *s, int64_t *number) {
    const struct snug_program *program = &s->training->program;
    float values[PIECE];
    for (*number = 0; *number < (int64_t)program->parameter_count; ++*number) {
        const struct snug_parameter *p = &program->parameters[*number];
        const struct snug_tensor *t = &program->tensors[p->tensor];
        const int64_t before = p->row * t->cols;
        int64_t begin;
        if (t->quantized.type) continue; /* it was checked when it was loaded, and has not changed */
        const int64_t stored = snug_tensor_stored(program, t, &begin);
        const int64_t end = snug_min(begin + stored - before, snug_parameter_count(p));
        for (int64_t first = begin > before ? begin - before : 0; first < end; first += PIECE) {
            const int64_t n = snug_min(PIECE, end - first);
            RETURN_IF_ERROR(snug_parameter_read(program, &s->memory, p, first, n, values));
            for (int64_t i = 0; i < n; i++)
                if (!isfinite(values[i])) return SNUG_OK;
        }
    }
    return SNUG_OK;
}

/* A weight that an earlier update made infinite, or NULL; the same on all ranks. */
static snug_status find_weight_together(const struct snug_trainer *t, const char **name) {
    struct snug_session *s = t->session;
    const struct snug_program *program = &s->training->program;
    const struct snug_process_group *group = t->args->group;
    int64_t *numbers, first = (int64_t)program->parameter_count;
    RETURN_IF_ERROR(snug_session_flush(s));
    RETURN_IF_ERROR(snug_alloc(t->ctx, (size_t)snug_group_size(group), sizeof *numbers, (void **)&numbers));
    snug_status status = find_weight(s, &numbers[snug_group_rank(group)]);
    if (status == SNUG_OK) status = snug_group_all_gather(t->ctx, group, numbers, sizeof *numbers);
    for (int rank = 0; rank < snug_group_size(group) && status == SNUG_OK; rank++)
        first = snug_min(first, numbers[rank]);
    *name = first < (int64_t)program->parameter_count ? program->parameters[first].name : NULL;
    free(numbers);
    return status;
}

static bool is_logged(int64_t number) { return number <= LOGGED_EACH || (number & (number - 1)) == 0; }

static void describe(const struct finding *found, double grad_norm, char *text, size_t size) {
    if (!found->name)
        snprintf(text, size, "the gradient norm is %s, but each tensor's is finite", kind_of(grad_norm));
    else if (!isfinite(found->value))
        snprintf(text, size, "the gradient of %s holds %s values", found->name, kind_of(found->value));
    else
        snprintf(text, size, "the gradient of %s is not finite, or too large for its norm", found->name);
    const size_t used = strlen(text);
    if (found->tensors > 1)
        snprintf(text + used, size - used, " (and those of %lld more tensors)", (long long)found->tensors - 1);
}

#define ADVICE "a smaller --learning_rate or more --warmup_steps usually helps"

snug_status snug_trainer_not_finite(struct snug_trainer *t, double loss, double grad_norm) {
    struct snug_session *s = t->session;
    const long long step = (long long)t->finished + 1;
    struct finding found;
    char text[256], loss_text[40];
    const bool applied = isfinite(grad_norm);
    t->infinite_losses += !isfinite(loss);
    t->infinite_gradients += !applied;
    t->infinite_in_a_row = applied ? 0 : t->infinite_in_a_row + 1;
    describe_loss(loss, loss_text, sizeof loss_text);
    if (applied) {
        if (is_logged(t->infinite_losses))
            snug_log(t->ctx, SNUG_LOG_WARNING, "step %lld: %s; its gradients are finite and are applied", step,
                     loss_text);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(find_gradient(s, &found));
    describe(&found, grad_norm, text, sizeof text);
    if (s->training->program.updates_in_backward)
        return snug_fail(t->ctx, SNUG_E_NUMERIC,
                         "step %lld: %s and %s, and --update_in_backward with --max_grad_norm 0 has changed "
                         "weights already: continue from the last checkpoint; " ADVICE,
                         step, loss_text, text);
    if (t->infinite_in_a_row == 1) {
        const char *weight;
        RETURN_IF_ERROR(find_weight_together(t, &weight));
        if (weight)
            return snug_fail(t->ctx, SNUG_E_NUMERIC,
                             "step %lld: %s, and the weight %s is not finite since an earlier update: " ADVICE, step,
                             loss_text, weight);
    }
    if (t->infinite_in_a_row == SNUG_HOPELESS)
        return snug_fail(t->ctx, SNUG_E_NUMERIC, "step %lld: %s and %s, as in the previous %d steps; " ADVICE, step,
                         loss_text, text, SNUG_HOPELESS - 1);
    if (is_logged(t->infinite_gradients))
        snug_log(t->ctx, SNUG_LOG_WARNING, "step %lld: %s and %s: this step changes no weight%s", step, loss_text, text,
                 t->infinite_gradients == LOGGED_EACH ? "; further ones are counted, but not all are logged" : "");
    return SNUG_OK;
}

snug_status snug_trainer_outputs_not_finite(struct snug_trainer *t) {
    char before[64] = "";
    if (t->evaluated_step > 0)
        snprintf(before, sizeof before, "; they were finite after step %lld", (long long)t->evaluated_step);
    return snug_add_to_error(t->ctx, SNUG_E_NUMERIC, "; this is the evaluation after step %lld%s: " ADVICE,
                             (long long)t->session->step, before);
}

/* As Trainer: a loss that is not finite counts as the mean of those since the last log. */
double snug_trainer_filter_loss(const struct snug_trainer *t, double in_step, double part) {
    if (isfinite(part) || !t->args->logging_nan_inf_filter) return part;
    return (t->loss_sum + in_step) / (double)(1 + t->finished - t->logged_step);
}
