/* SPDX-License-Identifier: Apache-2.0 */
#include "model/freeze.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct range {
    enum snug_part part;
    int64_t first, last; /* layers */
    bool base;           /* all but the task head */
};

/* Reads a layer's number at *text and moves *text past it. */
static bool read_number(const char **text, int64_t *out) {
    char *end;
    errno = 0;
    if (**text < '0' || **text > '9') return false;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* Parses one item of length characters; false if it is invalid. */
static bool read_item(const char *item, size_t length, struct range *out) {
    static const char layer[] = "layer.";
    const char *text = item + sizeof layer - 1, *const end = item + length;
    *out = (struct range){.part = SNUG_PART_EMBEDDINGS};
    if (length == 10 && strncmp(item, "embeddings", length) == 0) return true;
    out->base = length == 10 && strncmp(item, "base_model", length) == 0;
    if (out->base) return true;
    out->part = SNUG_PART_LAYER;
    if (length < sizeof layer || strncmp(item, layer, sizeof layer - 1) != 0) return false;
    if (!read_number(&text, &out->first)) return false;
    out->last = out->first;
    if (text < end && *text == '-') {
        text++;
        if (!read_number(&text, &out->last)) return false;
    }
    return text == end;
}

static void freeze_range(struct snug_program *program, const struct range *range) {
    for (size_t i = 0; i < program->parameter_count; i++) {
        struct snug_tensor *weight = &program->tensors[program->parameters[i].tensor];
        const bool inside =
            weight->part == range->part &&
            (weight->part != SNUG_PART_LAYER || (weight->layer >= range->first && weight->layer <= range->last));
        if (range->base ? !program->parameters[i].head : inside) weight->trainable = false;
    }
}

snug_status snug_program_freeze(struct snug_program *program, int64_t layers, const char *parts) {
    for (const char *item = parts; item;) {
        const size_t length = strcspn(item, ",");
        struct range range;
        if (!read_item(item, length, &range))
            return snug_fail(program->ctx, SNUG_E_USAGE,
                             "--freeze %s: \"%.*s\" is not one of embeddings, layer.N, layer.A-B, base_model", parts,
                             (int)length, item);
        if (range.part == SNUG_PART_LAYER && (range.first > range.last || range.last >= layers))
            return snug_fail(program->ctx, SNUG_E_USAGE,
                             "--freeze %s: \"%.*s\" is not a range of the model's layers 0 to %lld", parts, (int)length,
                             item, (long long)layers - 1);
        freeze_range(program, &range);
        item = item[length] ? item + length + 1 : NULL;
    }
    return SNUG_OK;
}
