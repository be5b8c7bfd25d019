/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and gradients of a session, by their names. */
#include <math.h>
#include <string.h>

#include "model/weights.h"
#include "train/session.h"

/* Every program has all parameters. */
static const struct snug_program *program_of(const struct snug_session *s) { return &s->job.plan.programs[0].program; }

static const struct snug_parameter *find_parameter(const struct snug_session *s, const char *name) {
    const struct snug_program *program = program_of(s);
    for (size_t i = 0; i < program->parameter_count; i++)
        if (strcmp(program->parameters[i].name, name) == 0) return &program->parameters[i];
    return NULL;
}

/* The gradient, scaled by the last clipping. */
static snug_status copy_gradient(struct snug_session *s, int32_t gradient, int64_t first_row, float *values,
                                 size_t count) {
    const struct snug_run *run = &s->train_run;
    const int32_t index = run->program->tensors[gradient].index;
    const int64_t cols = snug_run_cols(run, gradient), rows = (int64_t)count / cols;
    float clip[2] = {0, 1};
    if (s->clipped) {
        RETURN_IF_ERROR(snug_session_read(s, run, run->program->clip, clip, sizeof clip));
    } else if (s->scaler) {
        RETURN_IF_ERROR(snug_session_read(s, run, s->scaler, &clip[1], sizeof clip[1]));
        clip[1] = 1 / clip[1];
    }
    if (!index)
        RETURN_IF_ERROR(snug_tensor_read(run->program, &s->memory, gradient, first_row * cols, (int64_t)count, values));
    for (int64_t row = 0; index && row < rows; row++) {
        const int64_t slots = 1 + snug_run_rows(run, gradient);
        int32_t slot;
        RETURN_IF_ERROR(snug_tensor_read(run->program, &s->memory, index, slots + first_row + row, 1, &slot));
        if (slot < 0)
            memset(values + row * cols, 0, (size_t)cols * sizeof *values);
        else
            RETURN_IF_ERROR(
                snug_tensor_read(run->program, &s->memory, gradient, slot * cols, cols, values + row * cols));
    }
    for (size_t i = 0; i < count; i++) values[i] *= clip[1];
    return SNUG_OK;
}

/* The parameter of that name and so many values. */
static snug_status require_parameter(struct snug_session *s, const char *name, size_t count,
                                     const struct snug_parameter **out) {
    *out = find_parameter(s, name);
    if (!*out) return snug_fail(s->ctx, SNUG_E_USAGE, "the model has no parameter %s", name);
    if ((int64_t)count == snug_parameter_count(*out)) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s has %lld values, not %zu", name, (long long)snug_parameter_count(*out),
                     count);
}

static snug_status copy_parameter(struct snug_session *s, const char *name, bool gradient, float *values,
                                  size_t count) {
    const struct snug_program *program = program_of(s);
    const struct snug_parameter *parameter;
    RETURN_IF_ERROR(require_parameter(s, name, count, &parameter));
    if (!gradient) {
        RETURN_IF_ERROR(snug_session_flush(s));
        return snug_parameter_read(program, &s->memory, parameter, 0, (int64_t)count, values);
    }
    const int32_t kept = program->tensors[parameter->tensor].gradient;
    if (program->tensors[kept].persistent) return copy_gradient(s, kept, parameter->row, values, count);
    return snug_fail(s->ctx, SNUG_E_USAGE, "%s has no gradient in this session", name);
}

snug_status snug_session_gradient(struct snug_session *s, const char *name, float *values, size_t count) {
    if (s->train_run.micro_batch > 0) return copy_parameter(s, name, true, values, count);
    return snug_fail(s->ctx, SNUG_E_USAGE, "snug_get_gradient: there are no gradients; call snug_backward first");
}

/* ---- calls of the program ---------------------------------------------------------------------------------------- */

snug_status snug_get_parameter(snug_session *session, const char *name, float *values, size_t count) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(values);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, copy_parameter(session, name, false, values, count));
}

snug_status snug_get_gradient(snug_session *session, const char *name, float *values, size_t count) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(values);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, snug_session_gradient(session, name, values, count));
}

static snug_status write_parameter(struct snug_session *s, const struct snug_parameter *parameter, const float *values,
                                   size_t count) {
    RETURN_IF_ERROR(snug_session_flush(s));
    if (s->source.of) s->source.of[parameter - program_of(s)->parameters] = NULL; /* its values are the caller's now */
    RETURN_IF_ERROR(snug_parameter_write(program_of(s), &s->memory, parameter, 0, (int64_t)count, values));
    return snug_session_prepare(s);
}

static snug_status set_parameter(struct snug_session *s, const char *name, const float *values, size_t count) {
    const struct snug_parameter *parameter;
    RETURN_IF_ERROR(require_parameter(s, name, count, &parameter));
    if (s->loop.stage == SNUG_LOOP_FORWARD || s->loop.stage == SNUG_LOOP_LOSS)
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "snug_set_parameter: %s would have another value in backward than in forward: call it between "
                         "steps",
                         name);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return snug_fail(s->ctx, SNUG_E_USAGE, "snug_set_parameter: value %zu for %s is %g", i, name,
                             snug_without_sign((double)values[i]));
    return snug_session_changed(s, "snug_set_parameter", write_parameter(s, parameter, values, count));
}

snug_status snug_set_parameter(snug_session *session, const char *name, const float *values, size_t count) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(name);
    SNUG_REQUIRE(values);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, set_parameter(session, name, values, count));
}

const char *snug_parameter_name(const snug_session *session, size_t index, size_t *count) {
    SNUG_REQUIRE_OR(NULL, session);
    const struct snug_program *program = program_of(session);
    if (index >= program->parameter_count) return NULL;
    if (count) *count = (size_t)snug_parameter_count(&program->parameters[index]);
    return program->parameters[index].name;
}

bool snug_parameter_trainable(const snug_session *session, size_t index) {
    SNUG_REQUIRE_OR(false, session);
    const struct snug_program *program = program_of(session);
    return index < program->parameter_count && program->tensors[program->parameters[index].tensor].trainable;
}
