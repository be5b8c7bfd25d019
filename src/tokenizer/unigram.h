/* SPDX-License-Identifier: Apache-2.0 */
/* The Unigram model of the `tokenizers` library: the segmentation of a word into pieces with the largest sum of scores
   (Viterbi), with ties resolved as in the library. */
#ifndef SNUG_TOKENIZER_UNIGRAM_H
#define SNUG_TOKENIZER_UNIGRAM_H

#include "tokenizer/ids.h"

struct snug_unigram_piece {
    const char *text; /* NULL after finish */
    double score;
    uint32_t length; /* bytes */
};

struct snug_unigram_state {
    uint32_t children; /* the first one */
    uint32_t failure;  /* the state of the longest proper suffix of the state's string that has one */
    uint32_t shorter;  /* the state of the longest proper suffix that is a piece; 0: none */
    int32_t id;        /* id of the piece that equals the state's string; -1: none */
};

/* Zero-initialise; snug_unigram_free also after a failure. Read-only after snug_unigram_finish: safe from several
   threads. */
struct snug_unigram {
    struct snug_unigram_piece *pieces; /* [count] by id */
    size_t count, capacity;
    double min_score;
    int32_t unk;           /* -1: none */
    bool byte_fallback;    /* unknown characters become the tokens <0x00> … <0xFF> of their bytes, if all exist */
    int32_t byte_ids[256]; /* of these tokens; -1: none */
    size_t longest;        /* bytes of the longest piece */

    /* An Aho-Corasick automaton of the pieces, its states in breadth-first order; 0 is the root. The children of state
       s are automaton[s].children … automaton[s + 1].children - 1, sorted by byte. 17 bytes a state, and at most one
       state for each byte of the pieces. */
    uint32_t states;
    struct snug_unigram_state *automaton;
    unsigned char *bytes; /* by state: the last byte of its string */
    size_t room;          /* states that the arrays have memory for */
    uint32_t root[256];   /* the root's children by byte; 0: none */
    uint32_t up_to[5];    /* number of states with strings of at most this many bytes */
};

/* Adds the piece of the next id: ids are 0, 1, 2, … in the order of the calls. text is borrowed until
   snug_unigram_finish() returns. path is for messages. SNUG_E_INPUT if it is not valid UTF-8 or the score is not
   finite. Of two equal pieces the later one is used, as in the library. */
snug_status snug_unigram_add(snug_context *ctx, struct snug_unigram *model, const char *path, const char *text,
                             size_t length, double score);
/* Ends the vocabulary. unk: the id of the unknown token, -1 if the model has none (then encoding an unknown character
   is SNUG_E_INPUT). */
snug_status snug_unigram_finish(snug_context *ctx, struct snug_unigram *model, const char *path, int64_t unk,
                                bool byte_fallback);
void snug_unigram_free(struct snug_unigram *model);
/* The id of a piece, or -1. */
int32_t snug_unigram_find(const struct snug_unigram *model, const char *text, size_t length);

/* Buffers of snug_unigram_encode, reused for every word. Zero-initialise; one for each thread. */
struct snug_unigram_scratch {
    struct snug_unigram_node *nodes;
    size_t capacity;
};
void snug_unigram_scratch_free(struct snug_unigram_scratch *scratch);

/* Appends the tokens of word (well-formed UTF-8), in time linear in its length and in the number of pieces' occurrences
   in it. */
snug_status snug_unigram_encode(snug_context *ctx, const struct snug_unigram *model, const char *word, size_t length,
                                struct snug_unigram_scratch *scratch, struct snug_ids *out);

#endif
