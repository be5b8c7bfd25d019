/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics_impl.h"
#include "metrics/task_results.h"

static const struct snug_metric_kind *kind_for(const struct snug_metric_form *form) {
    return form->retrieves ? &snug_retrieval_metrics[form->similarity]
                           : snug_task_results(form->task)->metrics[form->problem];
}

static const struct snug_metric_kind *kind_of(const struct snug_metric_accumulator_options *options) {
    const struct snug_metric_form form = {.task = options->task,
                                          .problem = options->labels->problem,
                                          .retrieves = options->judgements != NULL,
                                          .similarity = options->similarity};
    return kind_for(&form);
}

int64_t snug_metric_accumulator_bytes(const struct snug_metric_accumulator_options *options) {
    const struct snug_metric_kind *kind = kind_of(options);
    return kind->bytes ? kind->bytes(options) : 0;
}

static snug_status open_accumulator(struct snug_metric_accumulator *accumulator) {
    const struct snug_metric_kind *kind = accumulator->kind;
    RETURN_IF_ERROR(snug_alloc(accumulator->ctx, 1, kind->state_size, &accumulator->state));
    RETURN_IF_ERROR(kind->open ? kind->open(accumulator) : SNUG_OK);
    snug_metric_accumulator_reset(accumulator);
    return SNUG_OK;
}

snug_status snug_metric_accumulator_create(snug_context *ctx, const struct snug_metric_accumulator_options *options,
                                           void *memory, struct snug_metric_accumulator **out) {
    void *made;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &made));
    struct snug_metric_accumulator *accumulator = made;
    *accumulator =
        (struct snug_metric_accumulator){.ctx = ctx, .options = *options, .kind = kind_of(options), .memory = memory};
    const snug_status status = open_accumulator(accumulator);
    if (status == SNUG_OK)
        *out = accumulator;
    else
        snug_metric_accumulator_free(accumulator);
    return status;
}

void snug_metric_accumulator_reset(struct snug_metric_accumulator *accumulator) {
    accumulator->rows = accumulator->correct = 0;
    accumulator->loss_sum = accumulator->loss_weight = 0;
    memset(accumulator->results, 0, sizeof accumulator->results);
    accumulator->misuse = NULL;
    if (accumulator->state) memset(accumulator->state, 0, accumulator->kind->state_size);
    if (accumulator->kind->reset) accumulator->kind->reset(accumulator);
}

void snug_metric_accumulator_free(struct snug_metric_accumulator *accumulator) {
    if (!accumulator) return;
    free(accumulator->state);
    free(accumulator);
}

bool snug_metrics_need_logits(const struct snug_metric_accumulator_options *options) {
    return kind_of(options)->logits || options->each_class;
}

void snug_metric_accumulator_add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                                 const struct snug_batch *batch) {
    if (!accumulator->misuse) accumulator->kind->add(accumulator, chunk, batch);
}

void snug_metric_accumulator_add_loss(struct snug_metric_accumulator *accumulator, double loss_sum, double weight) {
    accumulator->loss_sum += loss_sum;
    accumulator->loss_weight += weight;
}

void snug_metric_accumulator_add_results(struct snug_metric_accumulator *accumulator, const double *results) {
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS; i++) accumulator->results[i] += results[i];
}

snug_status snug_metric_accumulator_share(struct snug_metric_accumulator *accumulator,
                                          const struct snug_process_group *group) {
    return accumulator->kind->share ? accumulator->kind->share(accumulator, group) : SNUG_OK;
}

snug_status snug_metric_accumulator_merge(struct snug_metric_accumulator *accumulator,
                                          const struct snug_process_group *group) {
    const struct snug_metric_kind *kind = accumulator->kind;
    int64_t *counts = NULL;
    if (!group || accumulator->misuse) return SNUG_OK;
    if (kind->merge) RETURN_IF_ERROR(kind->merge(accumulator, group, accumulator->options.batch_size));
    const int64_t count = kind->counts ? kind->counts(accumulator, &counts) : 0;
    RETURN_IF_ERROR(snug_group_sum(accumulator->ctx, group, counts, count));
    int64_t all[] = {accumulator->rows, accumulator->correct};
    RETURN_IF_ERROR(snug_group_sum(accumulator->ctx, group, all, 2));
    accumulator->rows = all[0];
    accumulator->correct = all[1];
    return SNUG_OK;
}

const char *const *snug_metric_names(const struct snug_metric_form *form) { return kind_for(form)->names; }

int64_t snug_metric_find(const struct snug_metric_form *form, const char *name) {
    const char *const *names = snug_metric_names(form);
    for (int64_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0 || (strncmp(names[i], "eval_", 5) == 0 && strcmp(names[i] + 5, name) == 0))
            return i;
    return -1;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), of_end = strlen(end);
    return length >= of_end && strcmp(name + length - of_end, end) == 0;
}

bool snug_metric_is_smaller_better(const char *name) {
    return ends_with(name, "loss") || strcmp(name, "perplexity") == 0 || ends_with(name, "mse");
}

int64_t snug_metric_main(const struct snug_metric_form *form) { return kind_for(form)->main; }

snug_status snug_metric_add(struct snug_metric_accumulator *accumulator, const char *of, const char *what, double value,
                            struct snug_metric_list *out) {
    char *name;
    RETURN_IF_ERROR(snug_format(accumulator->ctx, &name, "eval_%s_%s", of, what));
    const snug_status status = snug_keep_text(accumulator->ctx, name, &out->items[out->count].name);
    free(name);
    if (status == SNUG_OK) out->items[out->count++].value = isnan(value) ? NAN : value;
    return status;
}

snug_status snug_metric_accumulator_result(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out) {
    double values[SNUG_METRIC_VALUES] = {accumulator->loss_weight > 0 ? accumulator->loss_sum / accumulator->loss_weight
                                                                      : NAN};
    const struct snug_metric_kind *kind = accumulator->kind;
    out->count = 0;
    if (accumulator->misuse) return snug_fail(accumulator->ctx, SNUG_E_INTERNAL, "evaluation: %s", accumulator->misuse);
    kind->result(accumulator, values);
    for (; kind->names[out->count]; out->count++) { /* a NaN of 0/0 has a sign, which printf would show */
        const double value = values[out->count];
        out->items[out->count] = (snug_metric){kind->names[out->count], isnan(value) ? NAN : value};
    }
    return kind->more ? kind->more(accumulator, out) : SNUG_OK;
}

snug_status snug_metrics_create(snug_context *ctx, const struct snug_metric_list *list,
                                const struct snug_labels *labels, const int64_t *confusion, snug_metrics **out) {
    const size_t classes = confusion ? (size_t)labels->count : 0;
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1,
                               sizeof **out + list->count * sizeof *list->items + classes * sizeof(char *) +
                                   classes * classes * sizeof *confusion,
                               &memory));
    snug_metric *items = (snug_metric *)((snug_metrics *)memory + 1);
    int64_t *counts = (int64_t *)(items + list->count);
    const char **names = (const char **)(counts + classes * classes);
    memcpy(items, list->items, list->count * sizeof *items);
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < classes && status == SNUG_OK; i++) status = snug_keep_text(ctx, labels->names[i], &names[i]);
    if (status != SNUG_OK) {
        free(memory);
        return status;
    }
    if (confusion) memcpy(counts, confusion, classes * classes * sizeof *counts);
    *out = memory;
    **out = (snug_metrics){
        .count = list->count, .items = items, .classes = classes, .class_names = names, .confusion = counts};
    return SNUG_OK;
}

void snug_metrics_destroy(snug_metrics *metrics) { free(metrics); }
