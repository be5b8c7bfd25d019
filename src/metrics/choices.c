/* SPDX-License-Identifier: Apache-2.0 */
/* Accuracy of choices: how often the right one of a group has the highest score, the first of equal ones. */
#include "metrics/metrics_impl.h"

struct state {
    float best; /* of the current group */
    bool right; /* its choice with the highest score is the right one */
};

/* A group's scores may come in several chunks. Each group has a right choice: others are not measured. */
static void add(struct snug_metric_accumulator *a, const struct snug_chunk *chunk, const struct snug_batch *batch) {
    struct state *s = a->state;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t position = chunk->first + i, next = position + 1;
        const bool begins = batch->labels[position] & SNUG_SEGMENT_BEGINS, target = batch->labels[position] & 1;
        if (begins || chunk->logits[i] > s->best) {
            s->right = target;
            s->best = chunk->logits[i];
        }
        if (next < batch->rows && !(batch->labels[next] & SNUG_SEGMENT_BEGINS)) continue;
        a->rows++;
        a->correct += s->right;
    }
}

static void result(struct snug_metric_accumulator *a, double *values) {
    values[1] = snug_metric_accumulator_accuracy(a);
}

const struct snug_metric_kind snug_choice_metrics = {
    .names = {"eval_loss", "eval_accuracy"},
    .main = 1,
    .state_size = sizeof(struct state),
    .add = add,
    .logits = true,
    .result = result,
};
