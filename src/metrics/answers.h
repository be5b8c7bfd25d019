/* SPDX-License-Identifier: Apache-2.0 */
/* Question answering: answers from the scores of a window's tokens, as postprocess_qa_predictions() of run_qa.py finds
 * them, and how right they are, as the metric squad has it. */
#ifndef SNUG_METRICS_ANSWERS_H
#define SNUG_METRICS_ANSWERS_H

#include "core/context.h"
#include "data/answers.h"

enum { SNUG_N_BEST_MOST = 100 }; /* of --n_best_size, as args/table.c limits it */

struct snug_answer_rules {
    int64_t n_best;   /* starts and ends that are looked at in a window, and answers that remain of a question */
    int64_t longest;  /* tokens of an answer */
    bool negative;    /* a question may have no answer */
    double threshold; /* the score of no answer must be more than the best answer's by this */
};

/* An answer: bytes of the context. */
struct snug_answer_span {
    float score; /* start + stop */
    float start, stop;
    uint32_t begin, end;
};

/* Passes the possible answers of a window to take. logits: [tokens, 2]. */
void snug_answer_spans(const struct snug_answer_rules *rules, const struct snug_answers *window, const float *logits,
                       int64_t tokens, void (*take)(void *user, const struct snug_answer_span *span), void *user);
/* Whether no answer is the answer. null: the least score of it in the windows. */
static inline bool snug_answer_is_none(const struct snug_answer_rules *rules, double null, double best) {
    return rules->negative && null - best > rules->threshold;
}
/* The text of a question in no window of which an answer is possible. */
#define SNUG_ANSWER_EMPTY "empty"

/* The exact match (0 or 1) and the F1 of a text, the best over the answers of a window that knows them. */
snug_status snug_answer_compare(snug_context *ctx, const struct snug_answers *window, const char *text, size_t length,
                                bool negative, double *exact, double *f1);

#endif
