/* SPDX-License-Identifier: Apache-2.0 */
/* The post_processor of tokenizer.json: the special tokens around a row's sequences, and the type of each. */
#ifndef SNUG_TOKENIZER_POST_PROCESSOR_H
#define SNUG_TOKENIZER_POST_PROCESSOR_H

#include "tokenizer/ids.h"

/* A piece is the id of a special token, or one of the sequences. */
enum { SNUG_PIECE_A = -1, SNUG_PIECE_B = -2 };

struct snug_template_piece {
    int32_t id, type; /* type: 0 or 1 */
};

enum { SNUG_TEMPLATE_MOST = 32 };

/* Pieces of type 0 come before those of type 1, A occurs once, and in a pair B once after it. */
struct snug_template {
    struct snug_template_piece pieces[SNUG_TEMPLATE_MOST];
    size_t count;
};

/* Zero-initialise. */
struct snug_post_processor {
    struct snug_template single, pair;
};

/* Appends a piece; SNUG_E_UNSUPPORTED if there are too many. */
snug_status snug_template_add(snug_context *ctx, struct snug_template *template, const char *path, int32_t id,
                              int32_t type);
/* SNUG_E_UNSUPPORTED if the conditions of the struct do not hold, SNUG_E_INPUT if an id is not below size. */
snug_status snug_post_processor_check(snug_context *ctx, const struct snug_post_processor *processor, const char *path,
                                      const char *name, int64_t size);
/* cls A sep (B sep), with sep twice between A and B, and B of type 1, or not. */
snug_status snug_post_processor_frame(snug_context *ctx, struct snug_post_processor *processor, const char *path,
                                      int32_t cls, int32_t sep, bool twice, bool typed);
/* Special tokens of a template. */
size_t snug_template_specials(const struct snug_template *template);
bool snug_template_has_types(const struct snug_template *template); /* a piece of type 1 */

#endif
