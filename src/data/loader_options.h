/* SPDX-License-Identifier: Apache-2.0 */
/* How a loader makes batches, and how many follow from that. */
#ifndef SNUG_DATA_LOADER_OPTIONS_H
#define SNUG_DATA_LOADER_OPTIONS_H

#include "data/batch.h"
#include "data/tasks.h"

struct snug_tokenizer;
struct snug_packs;
struct snug_distinct;

enum snug_sampling { SNUG_SAMPLING_RANDOM, SNUG_SAMPLING_SEQUENTIAL, SNUG_SAMPLING_GROUP_BY_LENGTH };

struct snug_loader_options {
    enum snug_sampling sampling;
    uint64_t seed;                  /* data_seed: order and masking */
    int64_t batch_size;             /* sequences per micro-batch; of packs: 1 */
    const struct snug_packs *packs; /* of micro-batches by tokens (data/packs.h), which outlive the loader; or NULL */
    int64_t pack_count;             /* of them */
    struct snug_distinct *distinct; /* order of rows in which no text is twice in a step (data/distinct.h), of which the
                                       data set uses so many; it outlives the loader; or NULL */
    int64_t accumulation;           /* micro-batches per step, of all ranks; an epoch's last step may have fewer */
    int ranks, rank; /* rank r of `ranks` has the step's micro-batches from r * accumulation / ranks on; ranks 0 is 1 */
    bool two_passes; /* a loss over the step: its micro-batches come twice, first to collect their vectors */
    bool in_turns;   /* instead, it has the step's micro-batches r, r + ranks, … */
    bool independent; /* evaluation: accumulation is 1, and rank r has the batches r, r + ranks, r + 2 ranks, … */
    bool drop_last;   /* drop the epoch's last incomplete micro-batch */
    int64_t texts;    /* sequences of a row, if the task's texts are apart; of groups at most; else 0 */
    int workers;      /* threads; 0: the caller's thread collates */
    int prefetch;     /* prefetched batches per worker */
    int threads;      /* threads that scan the order of the epochs; 0 or 1: only the caller's */
    enum snug_task task;
    enum snug_problem problem;
    int64_t labels;             /* classes */
    const float *reference;     /* [rows * 2] preferences: the reference model's log-probabilities of the chosen and the
                                   rejected completion of each row of the data set; NULL: not known. They outlive the
                                   loader */
    const float *class_weights; /* [labels] weight of a class's loss; multi-label: of its positives; NULL: all 1. It
                                   outlives the loader */
    double mlm_probability;     /* 0.15 */
    bool whole_words;           /* masked LM: whole words are masked, not single tokens */
    bool predict; /* masked LM: the loss positions are the text's own [MASK] tokens, nothing else is masked,
                     and labels are SNUG_IGNORE_LABEL */
    enum snug_ranking_loss ranking_loss; /* reranking */
    bool label_all_tokens; /* token classification: all tokens of a word have its tag, not the first one only */
    const struct snug_tokenizer *tokenizer; /* masked LM: special tokens; vocabulary size */
    int64_t vocab_size;                     /* masked LM: random replacements are drawn below this */
    int32_t first_position;                 /* snug_batch_number_positions()'s */
    bool one_type;                          /* tokens of a second text have type 0, too */
};

/* Largest batch that the run will see, and the sizes of all: exact for the given epochs, or a bound. */
struct snug_loader_limits {
    int64_t sequences, tokens, rows, longest;
    struct snug_sizes sizes;
    bool any_order;             /* the run is too long to be scanned: the largest batch and all sizes of any order */
    int64_t first_epoch_tokens; /* with any_order: of the first epoch's largest batch; 0: not scanned */
};

int64_t snug_loader_batches(int64_t rows, const struct snug_loader_options *options); /* micro-batches per epoch */
int64_t snug_loader_steps(int64_t rows, const struct snug_loader_options *options);   /* optimizer steps per epoch */
/* Micro-batches of a rank per step. */
static inline int64_t snug_loader_share(const struct snug_loader_options *options) {
    return options->ranks > 1 && !options->independent ? options->accumulation / options->ranks : options->accumulation;
}
/* The ranks that have a micro-batch number `own` of theirs in optimizer step `step` of an epoch: those before this
 * number. */
int snug_loader_contributors(int64_t rows, const struct snug_loader_options *options, int64_t step, int64_t own);

#endif
