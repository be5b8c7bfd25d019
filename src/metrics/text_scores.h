/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores of generated texts against references, each a mean over the texts but bleu, as Hugging Face's `evaluate`
 * computes them with its defaults: exact_match; rouge1, rouge2, rougeL and rougeLsum of rouge_score (without stemmer;
 * their mean, of which evaluate's bootstrap is an estimate); bleu of tokenizer_13a and 4 orders, without smoothing.
 */
#ifndef SNUG_METRICS_TEXT_SCORES_H
#define SNUG_METRICS_TEXT_SCORES_H

#include "core/context.h"
#include "dist/process_group.h"

enum snug_text_score {
    SNUG_EXACT_MATCH,
    SNUG_ROUGE1,
    SNUG_ROUGE2,
    SNUG_ROUGE_L,
    SNUG_ROUGE_L_SUM,
    SNUG_BLEU,
    SNUG_TEXT_SCORE_COUNT
};
enum { SNUG_BLEU_ORDERS = 4 };

/* Numbers of ranks that answered different prompts are added one by one. */
struct snug_text_scores {
    int64_t texts;
    int64_t sums[SNUG_BLEU]; /* of the other scores, in units of 2^-40: in any order the same */
    int64_t matches[SNUG_BLEU_ORDERS], possible[SNUG_BLEU_ORDERS], length, reference_length; /* of bleu, in tokens */
};

/* "eval_exact_match", "eval_rouge1", …, "eval_bleu" */
const char *snug_text_score_name(enum snug_text_score score);
/* Adds a text in UTF-8 to scores, which are zero at the beginning. */
snug_status snug_text_scores_add(snug_context *ctx, const char *text, const char *reference,
                                 struct snug_text_scores *scores);
/* Adds those of all ranks; group may be NULL. */
snug_status snug_text_scores_merge(snug_context *ctx, const struct snug_process_group *group,
                                   struct snug_text_scores *scores);
/* NaN without texts. */
double snug_text_score(const struct snug_text_scores *scores, enum snug_text_score score);

#endif
