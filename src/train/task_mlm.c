/* SPDX-License-Identifier: Apache-2.0 */
/* Masked LM: the token at the place of each mask token. */
#include <math.h>

#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

enum { TOP_MOST = 1000 }; /* of --top_k, as args_table.c limits it */

static void close_state(struct snug_predicting *p) { snug_candidates_free(p->state); }

/* The top_k tokens. Their number is small: each is inserted into a sorted list. */
static snug_status list_tokens(struct snug_predicting *p, snug_prediction *row) {
    struct snug_candidates *candidates = p->state;
    const struct snug_setup *setup = &p->session->job.setup;
    const int64_t count = (int64_t)row->logits_count, most = setup->args->top_k < count ? setup->args->top_k : count;
    int64_t top[TOP_MOST + 1] = {0}, found = 0;
    double best;
    RETURN_IF_ERROR(snug_candidates_reserve(setup->ctx, candidates, (size_t)most));
    const float highest = row->logits[snug_best_class(row->logits, count, &best)];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = found;
        if (found == most && !(row->logits[i] > row->logits[top[most - 1]])) continue;
        for (; at > 0 && row->logits[i] > row->logits[top[at - 1]]; at--) top[at] = top[at - 1];
        top[at] = i;
        if (found < most) found++;
    }
    for (int64_t i = 0; i < most; i++) {
        candidates->names[i] = snug_tokenizer_token(setup->tokenizer, (int32_t)top[i]);
        candidates->scores[i] = best * exp((double)row->logits[top[i]] - (double)highest);
    }
    row->candidate_count = (size_t)most;
    row->ranked = true;
    row->candidates = candidates->names;
    row->candidate_scores = candidates->scores;
    return SNUG_OK;
}

static snug_status name_token(struct snug_predicting *p, const float *logits, int64_t classes, double *score) {
    const int64_t token = snug_best_class(logits, classes, score);
    return snug_prediction_set_label(p, snug_tokenizer_token(p->session->job.setup.tokenizer, (int32_t)token));
}

static snug_status take_masked(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    return snug_predictions_take_each(p, outputs, classes, name_token, list_tokens);
}

const struct snug_task_results snug_task_mlm_results = {
    .metrics = {&snug_language_model_metrics, &snug_language_model_metrics, &snug_language_model_metrics},
    .state_size = sizeof(struct snug_candidates),
    .close = close_state,
    .take = take_masked,
    .nothing = "no row has a mask token, and masked LM predicts only masked tokens",
    .file = "predict_results.txt",
    .columns = "index\tprediction\n",
};
