/* SPDX-License-Identifier: Apache-2.0 */
#include "core/utf8_repair.h"

#include <string.h>

#include "core/utf8.h"

snug_status snug_utf8_repair(snug_context *ctx, const char *text, size_t length, char **out, size_t *out_length) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t malformed = 0, to = 0;
    bool well_formed;
    *out = NULL;
    for (size_t at = 0; at < length; malformed += !well_formed)
        at += snug_utf8_sequence(bytes + at, length - at, &well_formed);
    void *repaired; /* a U+FFFD of three bytes replaces one byte or more; no text is so long that this overflows */
    RETURN_IF_ERROR(snug_alloc(ctx, length + 2 * malformed + 1, 1, &repaired));
    for (size_t at = 0, step; at < length; at += step) {
        step = snug_utf8_sequence(bytes + at, length - at, &well_formed);
        size_t size = well_formed ? step : 3;
        memcpy((char *)repaired + to, well_formed ? text + at : "\xEF\xBF\xBD", size);
        to += size;
    }
    *out = repaired;
    *out_length = to;
    return SNUG_OK;
}
