/* SPDX-License-Identifier: Apache-2.0 */
#include "show.h"

#include <string.h>

#include "snug.h"

/* In pieces, because escaping can take twelve times the bytes. */
bool cli_show_part(FILE *out, const char *text, size_t length) {
    bool good = true;
    for (const char *end = text + length; text < end && good;) {
        char piece[512];
        text += snug_escape(piece, sizeof piece, text, (size_t)(end - text));
        good = fputs(piece, out) != EOF;
    }
    return good;
}

void cli_show(FILE *out, const char *text) { cli_show_part(out, text, strlen(text)); }
