/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.json: the figures of a training that no other file of its folder has, for `snug report`. */
#include <stdlib.h>

#include "io/json.h"
#include "train/trainer.h"

/* Whether an operation runs in every step; those of PREPARE ran once, before the first. */
static bool is_of_step(const struct snug_op *op) { return op->phase != SNUG_PHASE_PREPARE; }

/* Appends a value, or where it is that of the last one, too, counts it there: [value, times]. */
static void append(json_t **list, json_t *value) {
    const size_t count = json_array_size(*list);
    json_t *last = count ? json_array_get(*list, count - 1) : NULL;
    const bool counted = json_is_array(last);
    if (!last || !json_equal(counted ? json_array_get(last, 0) : last, value)) {
        snug_json_append(list, value);
        return;
    }
    const json_int_t times = counted ? json_integer_value(json_array_get(last, 1)) : 1;
    json_array_remove(*list, count - 1);
    snug_json_append(list, json_pack("[o, I]", value, times + 1));
}

static json_t *integers(const int64_t *values, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) append(&list, json_integer(values[i]));
    return list;
}

/* A list of one figure of each operation of a step. */
static json_t *list_ops(const struct snug_program *program, json_t *(*figure)(const struct snug_op *op)) {
    json_t *list = json_array();
    for (size_t i = 0; i < program->op_count; i++)
        if (is_of_step(&program->ops[i])) append(&list, figure(&program->ops[i]));
    return list;
}

static json_t *list_kinds(void) {
    json_t *list = json_array();
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        snug_json_append(&list, json_string(snug_op_name((enum snug_op_kind)kind)));
    return list;
}

static json_t *kind_of(const struct snug_op *op) { return json_integer(op->kind); }
static json_t *phase_of(const struct snug_op *op) { return json_string(snug_phase_name(op->phase)); }
/* The layer; -1 in the embeddings, -2 in the head. */
static json_t *layer_of(const struct snug_op *op) {
    return json_integer(op->part == SNUG_PART_LAYER ? op->layer : op->part == SNUG_PART_EMBEDDINGS ? -1 : -2);
}

/* Bytes that live during the whole step, by class. */
static json_t *resident_bytes(const struct snug_program *program, const struct snug_layout *layout) {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT] = {0};
    json_t *object = json_object();
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->persistent && !t->offloaded) bytes[t->memory_class] += t->bytes;
    }
    for (int i = SNUG_MEMORY_WORKSPACE; i <= SNUG_MEMORY_BATCH; i++) bytes[i] += layout->bytes[i];
    for (int i = 0; i <= SNUG_MEMORY_BATCH; i++)
        snug_json_add(&object, snug_memory_class_name((snug_memory_class)i), json_integer(bytes[i]));
    return object;
}

/* Adds the tensors of one class that live during a part of the step to live[op_count]; whether there are any. */
static bool add_live(const struct snug_program *program, int memory_class, int64_t *live) {
    bool any = false;
    const int32_t ops = (int32_t)program->op_count;
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->persistent || t->offloaded || t->view || t->first < 0 || (int)t->memory_class != memory_class) continue;
        any = true;
        const bool wraps = t->last < t->first; /* it lives across the end of the step (plan/stages.h) */
        for (int32_t k = wraps ? 0 : t->first; k <= t->last; k++) live[k] += t->bytes;
        for (int32_t k = t->first; wraps && k < ops; k++) live[k] += t->bytes;
    }
    return any;
}

/* Bytes that live during each operation, by class, in addition to the resident ones. */
static snug_status live_bytes(snug_context *ctx, const struct snug_program *program, json_t **out) {
    size_t before = 0; /* operations of PREPARE, which are first; others follow */
    while (!is_of_step(&program->ops[before])) before++;
    *out = json_object();
    for (int c = 0; c <= SNUG_MEMORY_BATCH; c++) {
        int64_t *live;
        RETURN_IF_ERROR(snug_alloc(ctx, program->op_count, sizeof *live, (void **)&live));
        if (add_live(program, c, live))
            snug_json_add(out, snug_memory_class_name((snug_memory_class)c),
                          integers(live + before, program->op_count - before));
        free(live);
    }
    return SNUG_OK;
}

/* On a GPU the profile has the time of launching operations, which says nothing about the time of running them. */
static json_t *seconds_of(const struct snug_trainer *t) {
    const struct snug_profile *profile = &t->session->profile;
    const bool gpu = snug_device_is_gpu(&t->session->job.limits.device);
    const snug_train_result *r = t->result;
    json_t *kinds = json_object();
    for (int kind = 0; kind < SNUG_OP_COUNT && !gpu; kind++)
        if (profile->calls[kind])
            snug_json_add(&kinds, snug_op_name((enum snug_op_kind)kind), snug_json_number(profile->seconds[kind]));
    return json_pack("{s:o, s:o, s:o, s:o}", "start", snug_json_number(r->seconds_to_first_step), "training",
                     snug_json_number(r->steps > 0 ? (double)r->steps / r->steps_per_second : 0),
                     "evaluating_and_saving", snug_json_number(t->idle), "operations", kinds);
}

static json_t *best_of(const snug_train_result *r) {
    if (!r->best_metric) return json_null();
    return json_pack("{s:s, s:o, s:I, s:b}", "metric", r->best_metric, "value", snug_json_number(r->best_value), "step",
                     (json_int_t)r->best_step, "is_model", r->best_is_model);
}

static snug_status make_report(const struct snug_trainer *t, json_t **out) {
    const struct snug_program *program = &t->session->training->program;
    const struct snug_layout *layout = &t->session->job.plan.layout;
    json_t *live;
    *out = NULL;
    const snug_status status = live_bytes(t->ctx, program, &live);
    if (status != SNUG_OK) {
        json_decref(live);
        return status;
    }
    *out = json_pack("{s:i, s:I, s:I, s:o, s:o, s:{s:I, s:o, s:o, s:o, s:o, s:o, s:o}}", "version", 1, "steps",
                     (json_int_t)t->result->steps, "step", (json_int_t)t->session->step, "best", best_of(t->result),
                     "seconds", seconds_of(t), "memory", "arena", (json_int_t)layout->total, "resident",
                     resident_bytes(program, layout), "live", live, "kinds", list_kinds(), "operations",
                     list_ops(program, kind_of), "phases", list_ops(program, phase_of), "layers",
                     list_ops(program, layer_of));
    return *out ? SNUG_OK : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_RUN_REPORT);
}

snug_status snug_run_report_write(struct snug_trainer *t) {
    json_t *report;
    RETURN_IF_ERROR(make_report(t, &report));
    /* On one line: the lists have a number for each operation. */
    char *text = snug_json_dump(report, JSON_COMPACT);
    json_decref(report);
    if (!text) return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_RUN_REPORT);
    const snug_status status = snug_file_replace(t->ctx, &t->output.folder, SNUG_RUN_REPORT, text, strlen(text));
    free(text);
    return status;
}
