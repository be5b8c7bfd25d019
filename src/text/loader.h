/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sampler and the loader. The order of an epoch is a permutation computed from (seed, epoch) in O(1) memory (a
 * Feistel network over the row numbers, with cycle walking), so that resuming needs no replay. Grouping by length sorts
 * windows of that order, longest first, as transformers' LengthGroupedSampler does: 50 steps of rows each, or a quarter
 * of the data. The rows of a step with several micro-batches are dealt to them by length, so that ranks have the same
 * work (struct snug_deal). Loader threads collate batches ahead of time, in order; the batches do not depend on the
 * number of threads. Sequential sampling, which evaluation uses, has the same masks in every epoch.
 */
#ifndef SNUG_TEXT_LOADER_H
#define SNUG_TEXT_LOADER_H

#include "text/batch.h"
#include "text/dataset.h"

enum snug_sampling { SNUG_SAMPLING_RANDOM, SNUG_SAMPLING_SEQUENTIAL, SNUG_SAMPLING_GROUP_BY_LENGTH };

struct snug_loader_options {
    enum snug_sampling sampling;
    uint64_t seed;        /* data_seed: order and masking */
    int64_t batch_size;   /* sequences per micro-batch */
    int64_t accumulation; /* micro-batches per step, of all ranks; an epoch's last step may have fewer */
    int ranks, rank; /* rank r of `ranks` has the step's micro-batches from r * accumulation / ranks on; ranks 0 is 1 */
    bool in_turns;   /* instead, it has the step's micro-batches r, r + ranks, … */
    bool independent; /* evaluation: accumulation is 1, and rank r has the batches r, r + ranks, r + 2 ranks, … */
    bool drop_last;   /* drop the epoch's last incomplete micro-batch */
    int workers;      /* threads; 0: the caller's thread collates */
    int prefetch;     /* prefetched batches per worker */
    int threads;      /* threads that scan the order of the epochs; 0 or 1: only the caller's */
    enum snug_task task;
    enum snug_problem problem;
    int64_t labels;             /* classes */
    const float *class_weights; /* [labels] weight of a class's loss; multi-label: of its positives; NULL: all 1. It
                                   outlives the loader */
    double mlm_probability;     /* 0.15 */
    bool predict;          /* masked LM: the loss positions are the text's own [MASK] tokens, nothing else is masked,
                              and labels are SNUG_IGNORE_LABEL */
    bool label_all_tokens; /* token classification: all tokens of a word have its tag, not the first one only */
    const struct snug_tokenizer *tokenizer; /* masked LM: special tokens; vocabulary size */
    int64_t vocab_size;                     /* masked LM: random replacements are drawn below this */
    int32_t first_position;                 /* of each sequence's first token */
    bool one_type;                          /* tokens of a second text have type 0, too */
};

/* Largest batch that the run will see, and the sizes of all: exact for the given epochs, or a bound. */
struct snug_loader_limits {
    int64_t sequences, tokens, rows, longest;
    struct snug_sizes sizes;
    bool any_order;             /* the run is too long to be scanned: the largest batch and all sizes of any order */
    int64_t first_epoch_tokens; /* with any_order: of the first epoch's largest batch; 0: not scanned */
};

struct snug_loader;

/* The row of the data set at position `place` of an epoch. A bijection of [0, rows). */
int64_t snug_permutation(uint64_t seed, int64_t epoch, int64_t rows, int64_t place);

int64_t snug_loader_batches(int64_t rows, const struct snug_loader_options *options); /* micro-batches per epoch */
int64_t snug_loader_steps(int64_t rows, const struct snug_loader_options *options);   /* optimizer steps per epoch */
/* Micro-batches of a rank per step. */
static inline int64_t snug_loader_share(const struct snug_loader_options *options) {
    return options->ranks > 1 && !options->independent ? options->accumulation / options->ranks : options->accumulation;
}
/* The ranks that have a micro-batch number `own` of theirs in optimizer step `step` of an epoch: those before this
 * number. */
int snug_loader_contributors(int64_t rows, const struct snug_loader_options *options, int64_t step, int64_t own);
/* Whether options are valid for the data set. */
snug_status snug_loader_check(snug_context *ctx, const struct snug_dataset *dataset,
                              const struct snug_loader_options *options);
/* Scans the order of epochs 0 … epochs - 1 (stopping after max_steps optimizer steps if that is > 0). More than 3
   epochs with over 2^24 rows in all are not scanned: the limits are then those of any order, so that the time does not
   grow with the steps. */
snug_status snug_loader_limits(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, int64_t epochs, int64_t max_steps,
                               struct snug_loader_limits *out);
/* Bytes of the batch arrays for prefetch + current: what the arena's class "batch" must hold. */
int64_t snug_loader_bytes(const struct snug_loader_limits *limits, const struct snug_loader_options *options);

/* memory: snug_loader_bytes() bytes, 64-byte aligned, owned by the caller for the loader's life. */
snug_status snug_loader_create(snug_context *ctx, const struct snug_dataset *dataset,
                               const struct snug_loader_options *options, const struct snug_loader_limits *limits,
                               void *memory, struct snug_loader **out);
void snug_loader_destroy(struct snug_loader *loader);
/* Starts epoch at optimizer step first_step of it (0, or the step at which a resumed run continues); drops prefetched
   batches. */
snug_status snug_loader_begin_epoch(struct snug_loader *loader, int64_t epoch, int64_t first_step);
/* This rank's next batch, valid until the next call; SNUG_END after the epoch's last. */
snug_status snug_loader_next(struct snug_loader *loader, const struct snug_batch **out);
/* Tokens of all batches so far, and tokens if each batch were padded to its longest sequence. */
void snug_loader_padding(const struct snug_loader *loader, int64_t *tokens, int64_t *padded);

#endif
