/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One micro-batch: packed tokens and offsets, never padded. Sequence i owns tokens offsets[i] … offsets[i+1]-1.
 * The loader fills batches ahead of time; the arrays lie in the arena (class "batch"), sized for the longest of the
 * run.
 */
#ifndef SNUG_TEXT_BATCH_H
#define SNUG_TEXT_BATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Positions of no class: CrossEntropyLoss's ignore_index. */
#define SNUG_IGNORE_LABEL (-100)

struct snug_batch {
    int64_t sequences, tokens;
    int64_t rows;          /* head rows: sequences (classification) or masked tokens (masked LM) */
    int64_t items;         /* what the loss is summed over: rows with a label; rows * labels if multi-label */
    int64_t items_in_step; /* over all micro-batches of this optimizer step */
    int64_t first_sample;  /* index in the step of the first sequence; dropout is keyed by it */
    int64_t first_row;     /* evaluation: index in the data set of the first sequence */
    int64_t longest;       /* tokens of the longest sequence */
    int64_t truncated;     /* sequences whose text was cut to fit */
    bool last_in_step;

    int32_t *offsets;   /* [sequences + 1] */
    int32_t *ids;       /* [tokens] vocabulary index; for masked LM after masking */
    int32_t *types;     /* [tokens] token type */
    int32_t *positions; /* [tokens] position in its sequence */
    int32_t *sample;    /* [tokens] index in the step of the token's sequence */
    int32_t *by_id;     /* [tokens] token numbers, stably sorted by ids: gives each embedding row one owner */
    int32_t *head_rows; /* [rows] token number of each head row */
    int32_t *labels;    /* [rows] class or masked token's id; SNUG_IGNORE_LABEL where there is none */
    float *targets;     /* [rows * labels] multi-label 0/1, or [rows] regression; unused otherwise */
};

/*
 * Batches by size: whole multiples of 64 tokens up to 1024, then 16 sizes to an octave, so that whoever prepares
 * something for each size meets few of them, and 2 % of a batch is the most that rounding up costs on average.
 */
#define SNUG_SIZES 384 /* up to 2^31 tokens */
struct snug_sizes {
    uint64_t bits[SNUG_SIZES / 64];
};

/* The smallest size that holds so many tokens. */
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
