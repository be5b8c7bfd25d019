/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of the tasks, from which their enumeration, the choices of --task and the table of each room follow:
 * TASK(NAME, name, "|other names") is SNUG_TASK_NAME, snug_task_name (data/task.h) and snug_task_name_results
 * (metrics/task_results.h).
 */
#ifndef SNUG_DATA_TASKS_H
#define SNUG_DATA_TASKS_H

/* clang-format off */
#define SNUG_TASKS(TASK) \
    TASK(CLASSIFICATION, classification, "|text_classification") \
    TASK(MLM, mlm, "") \
    TASK(CLM, clm, "|causal_lm|text_generation") \
    TASK(DPO, dpo, "|preference_tuning") \
    TASK(TOKEN_CLASSIFICATION, token_classification, "|ner") \
    TASK(EMBEDDING, embedding, "|sentence_embedding") \
    TASK(QUESTION_ANSWERING, question_answering, "|question-answering|qa") \
    TASK(MULTIPLE_CHOICE, multiple_choice, "|multiple-choice|swag") \
    TASK(RERANKING, reranking, "|rerank|cross-encoder")
/* clang-format on */

#define SNUG_TASK_MEMBER(NAME, name, others) SNUG_TASK_##NAME,
enum snug_task { SNUG_TASKS(SNUG_TASK_MEMBER) };
#define SNUG_TASK_INDEX(NAME, name, others) SNUG_TASK_INDEX_##NAME,
enum { SNUG_TASKS(SNUG_TASK_INDEX) SNUG_TASK_COUNT, SNUG_TASK_DEFAULT = SNUG_TASK_CLASSIFICATION };

/* The choices of --task: "classification|text_classification|…" */
#define SNUG_TASK_CHOICE(NAME, name, others) "|" #name others
#define SNUG_TASK_NAMES (&(SNUG_TASKS(SNUG_TASK_CHOICE))[1])

/* How Hugging Face names and distinguishes a task's labels (config.problem_type). */
enum snug_problem { SNUG_PROBLEM_SINGLE_LABEL, SNUG_PROBLEM_MULTI_LABEL, SNUG_PROBLEM_REGRESSION };
enum { SNUG_PROBLEM_COUNT = SNUG_PROBLEM_REGRESSION + 1 };

/* What a model's logits are: the kind of its head. */
enum snug_head {
    SNUG_HEAD_SEQUENCE,   /* scores of the classes of a sequence, from its pooled tokens */
    SNUG_HEAD_TOKEN,      /* scores of the classes of a token */
    SNUG_HEAD_VOCABULARY, /* scores of all tokens, of which one is at a place, or comes next */
    SNUG_HEAD_VECTOR,     /* no scores: the vector of a sequence (model/sentence.h) */
    SNUG_HEAD_SPAN,       /* scores of each token of a sequence, as the first and the last one of an answer */
    SNUG_HEAD_CHOICE      /* the score of a sequence among those of its group */
};
enum { SNUG_SPAN_SCORES = 2 }; /* of a token, with SNUG_HEAD_SPAN */
enum { SNUG_HEAD_COUNT = SNUG_HEAD_CHOICE + 1 };

enum snug_loss_kind {
    SNUG_CROSS_ENTROPY,
    SNUG_BINARY_CROSS_ENTROPY,
    SNUG_MEAN_SQUARED_ERROR,
    SNUG_SEGMENT_CROSS_ENTROPY,    /* over the rows of a segment, for each column */
    SNUG_SEGMENT_DISTRIBUTION,     /* the same of one column, with a target for each row */
    SNUG_SEGMENT_MARGIN,           /* of the first row's value over each other's, squared error */
    SNUG_PREFERENCE_CROSS_ENTROPY, /* whose sums over the rows of pairs of sequences have a loss: PREFERENCE */
};

/* The choices of --ranking_loss. */
enum snug_ranking_loss { SNUG_RANKING_BINARY, SNUG_RANKING_LISTNET, SNUG_RANKING_MARGIN };

#endif
