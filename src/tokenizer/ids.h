/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids. */
#ifndef SNUG_TOKENIZER_IDS_H
#define SNUG_TOKENIZER_IDS_H

#include "core/context.h"

/* A growing list of token ids. Zero-initialise; free(ids). */
struct snug_ids {
    int32_t *ids;
    size_t count, capacity;
};

static inline snug_status snug_ids_append(snug_context *ctx, struct snug_ids *ids, int32_t id) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&ids->ids, &ids->capacity, ids->count + 1, sizeof *ids->ids));
    ids->ids[ids->count++] = id;
    return SNUG_OK;
}

/* The ids of special tokens: -1 if the vocabulary has none. */
struct snug_special_ids {
    int32_t cls, sep, pad, unk, mask, bos, eos;
};

#endif
