/* SPDX-License-Identifier: Apache-2.0 */
/* --recompute and --gradient_checkpointing: a level for each layer. */
#include <stdlib.h>
#include <string.h>

#include "args/args.h"

static const char *const names[SNUG_RECOMPUTE_COUNT] = {"none", "elementwise", "ffn", "attention", "layer"};

/* Parses "level" or "level*count" at *text; moves *text after it. */
static bool read_item(const char **text, enum snug_recompute *level, int64_t *count) {
    const size_t length = strcspn(*text, ",*");
    int found = -1;
    for (int i = 0; i < SNUG_RECOMPUTE_COUNT; i++)
        if (strlen(names[i]) == length && strncmp(names[i], *text, length) == 0) found = i;
    if (found < 0) return false;
    *level = (enum snug_recompute)found;
    *text += length;
    *count = 1;
    if (**text == '*') {
        char *end;
        *count = strtoll(*text + 1, &end, 10);
        if (end == *text + 1 || *count < 1) return false;
        *text = end;
    }
    if (**text == '\0') return true;
    return *(*text)++ == ',' && **text;
}

static snug_status refuse(const struct snug_args *args, int64_t layers, const char *why) {
    return snug_fail(
        args->ctx, SNUG_E_USAGE,
        "--recompute %s: %s; give one of none, elementwise, ffn, attention, layer for all layers, or as many "
        "as the model has layers (%lld), as in layer*%lld,ffn",
        args->recompute, why, (long long)layers, (long long)(layers > 1 ? layers - 1 : 1));
}

snug_status snug_args_recompute(const struct snug_args *args, int64_t layers, enum snug_recompute levels[]) {
    const enum snug_recompute all = args->gradient_checkpointing ? SNUG_RECOMPUTE_LAYER : SNUG_RECOMPUTE_ELEMENTWISE;
    int64_t given = 0;
    for (int64_t i = 0; i < layers; i++) levels[i] = all;
    if (!args->recompute) return SNUG_OK;
    if (args->gradient_checkpointing)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gradient_checkpointing is the same as --recompute layer: give only one of them");
    for (const char *text = args->recompute; *text;) {
        enum snug_recompute level;
        int64_t count;
        if (!read_item(&text, &level, &count)) return refuse(args, layers, "not a list of levels");
        if (count == 1 && given == 0 && *text == '\0') count = layers; /* one level for all layers */
        if (count > layers - given) return refuse(args, layers, "more levels than layers");
        while (count-- > 0) levels[given++] = level;
    }
    return given == layers ? SNUG_OK : refuse(args, layers, "fewer levels than layers");
}
