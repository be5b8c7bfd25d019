/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One micro-batch: packed tokens and offsets, never padded. Sequence i owns tokens offsets[i] … offsets[i+1]-1.
 * The loader prefetches batches; the arrays are in the arena (class "batch"), sized for the longest of the
 * run.
 */
#ifndef SNUG_DATA_BATCH_H
#define SNUG_DATA_BATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Label of positions without a class: CrossEntropyLoss's ignore_index. */
#define SNUG_IGNORE_LABEL (-100)

/* Labels of SNUG_SEGMENT_CROSS_ENTROPY: bit c, the row is the target of column c; this bit, it begins a segment. */
enum { SNUG_SEGMENT_BEGINS = 1 << 30 };

struct snug_batch {
    int64_t sequences, tokens;
    int64_t rows;          /* loss positions (data/task.h) */
    int64_t items;         /* number of summed losses: rows with a label; rows * labels if multi-label */
    int64_t items_in_step; /* over all micro-batches of this optimizer step */
    double weight;         /* sum of the items' weights, the divisor of their mean loss: items, unless classes have
                              weights and rows one label */
    double weight_in_step; /* over all micro-batches of this optimizer step, in their order */
    int64_t first_sample;  /* index in the step of the first sequence, before rows are dealt to micro-batches */
    int64_t first_row;     /* evaluation: index in the data set of the first sequence */
    int64_t longest;       /* tokens of the longest sequence, with those of earlier batches in generation */
    int64_t texts;         /* sequences of a row, of groups at most; 0: one */
    int64_t truncated;     /* sequences whose text was truncated */
    bool collects, last_in_pass; /* it is in the first of two passes (data/loader_options.h), in which none is
                                    last_in_step; it is the last one of its pass */
    bool last_in_step;

    int32_t *offsets;           /* [sequences + 1] */
    int32_t *ids;               /* [tokens] vocabulary index; for masked LM after masking */
    int32_t *types;             /* [tokens] token type */
    int32_t *positions;         /* [tokens] place in the sequence, from 0: the key of dropout, the angle of rotations */
    int32_t *position_ids;      /* [tokens] row of the position table: snug_batch_number_positions() */
    int32_t *sample;            /* [tokens] index in the step of the token's sequence */
    int32_t *by_id;             /* [tokens] token numbers, stably sorted by ids: gives each embedding row one owner */
    int32_t *loss_positions;    /* [rows] token number of each loss position */
    int32_t *labels;            /* [rows] class or masked token's id; SNUG_IGNORE_LABEL if there is none; or see
                                   SNUG_SEGMENT_BEGINS */
    float *targets;             /* [rows * labels] multi-label 0/1, or [rows] regression; unused otherwise */
    float *references;          /* [sequences * 2] preferences: the reference model's log-probability of each sequence's
                                   completion, and the number of its tokens; sequences 2 i and 2 i + 1 are a pair */
    const float *class_weights; /* [labels] the options' (data/loader_options.h), or NULL */
    /* Generation (program/op.h, CACHE_ROWS): */
    int64_t pages_each;    /* pages of the longest sequence */
    int64_t page_copies;   /* pages to copy, at most `sequences` */
    int32_t *pages;        /* [sequences * pages_each] the pages of each sequence */
    int32_t *copied_pages; /* [page_copies * 3] from, to; how many rows, those before the sequence's new ones */
    bool follows;          /* an id -1 - r is the one that row r of the step before gives (SNUG_OP_TOP): see load() */
};

/* Sets position_ids of tokens first … end - 1, one text with its final ids: consecutive numbers from first_position on.
   As in transformers' RoBERTa, the tokens of the padding token, whose id is first_position - 1, are not counted, and
   their position is that id. first_position 0: all are counted. */
static inline void snug_batch_number_positions(struct snug_batch *batch, int64_t first, int64_t end,
                                               int32_t first_position) {
    const int32_t padding = first_position - 1;
    int32_t position = first_position;
    for (int64_t t = first; t < end; t++) batch->position_ids[t] = batch->ids[t] == padding ? padding : position++;
}

/* The sequence that a token belongs to. */
static inline int64_t snug_batch_sequence(const struct snug_batch *batch, int32_t token) {
    int64_t low = 0, high = batch->sequences - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (batch->offsets[middle] <= token)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
/* Row of the data set to which a loss position of the batch belongs, if rows are in order. */
static inline int64_t snug_batch_row(const struct snug_batch *batch, int64_t position) {
    const int32_t token = batch->loss_positions[position];
    if (batch->texts) return batch->first_row + batch->sample[token] / batch->texts - batch->first_sample;
    return batch->first_row + snug_batch_sequence(batch, token);
}

/*
 * Batches by size: whole multiples of 64 tokens up to 1024, then 16 sizes to an octave, so that there are few sizes to
 * prepare for (for example graphs), and rounding up costs 2 % of a batch on average at most.
 */
#define SNUG_SIZES 384 /* up to 2^31 tokens */
struct snug_sizes {
    uint64_t bits[SNUG_SIZES / 64];
};

/* The smallest size for this number of tokens. */
static inline int snug_size_of(int64_t tokens) {
    if (tokens <= 1024) return (int)((tokens + 63) / 64);
    const int octave = 63 - __builtin_clzll((unsigned long long)(tokens - 1));
    return 16 * (octave - 9) + (int)((tokens - 1 - (INT64_C(1) << octave)) >> (octave - 4)) + 1;
}
static inline int64_t snug_size_tokens(int size) {
    if (size <= 16) return 64 * (int64_t)size;
    const int octave = 10 + (size - 17) / 16, part = (size - 17) % 16 + 1;
    return (INT64_C(1) << octave) + ((int64_t)part << (octave - 4));
}
static inline void snug_sizes_add(struct snug_sizes *sizes, int64_t tokens) {
    const int size = snug_size_of(tokens);
    sizes->bits[size / 64] |= UINT64_C(1) << size % 64;
}
static inline bool snug_sizes_has(const struct snug_sizes *sizes, int size) {
    return sizes->bits[size / 64] >> size % 64 & 1;
}

#endif
