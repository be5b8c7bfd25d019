/* SPDX-License-Identifier: Apache-2.0 */
/* The BPE model of the `tokenizers` library: adjacent tokens of a word are merged, in the order of the list of
   merges. */
#ifndef SNUG_TOKENIZER_BPE_H
#define SNUG_TOKENIZER_BPE_H

#include <stdatomic.h>

#include "tokenizer/ids.h"
#include "tokenizer/vocabulary.h"

struct snug_merge {
    uint64_t pair; /* id of the left token << 32 | id of the right one */
    uint32_t rank; /* rank in the list */
    int32_t id;    /* of the merged token; -1: the slot is free */
};

/* Zero-initialise; snug_bpe_free also after a failure. After snug_bpe_finish safe from several threads. */
struct snug_bpe {
    const struct snug_vocabulary *vocabulary; /* borrowed */
    bool byte_level;                          /* a word's bytes are its first tokens; otherwise its characters */
    bool ignore_merges;                       /* a word that is a token is not split */
    bool fuse_unk;                            /* consecutive unknown characters are one token */
    bool byte_fallback; /* unknown characters become the tokens <0x00> … <0xFF> of their bytes, if all exist */
    int32_t unk;        /* -1: unknown characters are dropped */

    int32_t byte_ids[256];     /* tokens of single bytes (byte_level, byte_fallback); -1: none */
    struct snug_merge *merges; /* [merge_slots] hash table by pair */
    size_t merge_slots, merge_count;
    uint32_t next_rank;
    int32_t last_id;            /* the token of the merge that was added last */
    char *texts;                /* byte_level: the bytes of the tokens, one after another */
    struct snug_hash_map words; /* byte_level: tokens by these bytes */
    atomic_uchar *states;       /* [vocabulary->size] what is known of a word that is this token */
    bool breaks;                /* of a word's parts that each begin with ▁ */
    bool joined[256];           /* but not after a character with this last byte, which a merge joins with ▁ */
};

/* Reserves memory for count merges. */
snug_status snug_bpe_reserve(snug_context *ctx, struct snug_bpe *model, size_t count);
/* Adds the next merge of the list. Both tokens and the merged one must be in the vocabulary. path is for messages. */
snug_status snug_bpe_add(snug_context *ctx, struct snug_bpe *model, const char *path, const char *left,
                         size_t left_length, const char *right, size_t right_length);
/* Parses a merges.txt: two tokens per line, separated by a space; lines that begin with #version are skipped. */
snug_status snug_bpe_read(snug_context *ctx, struct snug_bpe *model, const char *path, const char *text, size_t length);
/* Finishes the model; byte_level and the members before it must be set. */
snug_status snug_bpe_finish(snug_context *ctx, struct snug_bpe *model);
void snug_bpe_free(struct snug_bpe *model);

/* GPT-2's alphabet: the byte that each of the first 512 code points stands for; above 255: none. */
void snug_bpe_alphabet(uint16_t byte_of[512]);

/* Buffers of snug_bpe_encode, reused for every word. Zero-initialise; snug_bpe_scratch_free. One for each thread. */
struct snug_bpe_scratch {
    struct snug_symbol *symbols;
    size_t count, capacity;
    struct snug_candidate *heap;
    size_t heap_count, heap_capacity;
};
void snug_bpe_scratch_free(struct snug_bpe_scratch *scratch);

/* Appends the tokens of one word (well-formed UTF-8, not empty), in O(length log length). May stop when out has `most`
   tokens. */
snug_status snug_bpe_encode(snug_context *ctx, const struct snug_bpe *model, const char *word, size_t length,
                            size_t most, struct snug_bpe_scratch *scratch, struct snug_ids *out);

#endif
