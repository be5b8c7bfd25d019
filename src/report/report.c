/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

const char *snug_side_name(enum snug_side side) {
    static const char *const names[SNUG_SIDE_COUNT] = {"forward", "backward", "update"};
    return names[side];
}

const char *snug_group_name(enum snug_op_group group) {
    static const char *const names[SNUG_GROUP_COUNT] = {"tensor contractions", "normalisations", "element-wise",
                                                        "copies", "communication"};
    return names[group];
}

const char *snug_group_key(enum snug_op_group group) {
    static const char *const keys[SNUG_GROUP_COUNT] = {"tensor_contractions", "normalisations", "elementwise", "copies",
                                                       "communication"};
    return keys[group];
}

const char *snug_shown(char shown[static SNUG_SHOWN], const char *text) {
    snug_escape(shown, SNUG_SHOWN, text, strlen(text));
    return shown;
}

static void escape_lines(FILE *out, const void *report) {
    for (const char *text = report; *text;) {
        char piece[256];
        text += snug_escape(piece, sizeof piece, text, strcspn(text, "\n"));
        fputs(piece, out);
        if (*text != '\n') continue;
        fputc('\n', out);
        text++;
    }
}

static bool print_into(char **text, void (*print)(FILE *out, const void *report), const void *report) {
    size_t size;
    *text = NULL;
    FILE *out = open_memstream(text, &size);
    if (out) {
        print(out, report);
        if (fclose(out) == 0) return true;
    }
    free(*text);
    *text = NULL;
    return false;
}

snug_status snug_report_text(snug_context *ctx, void (*print)(FILE *out, const void *report), const void *report,
                             char **text) {
    char *raw;
    *text = NULL;
    const bool printed = print_into(&raw, print, report) && print_into(text, escape_lines, raw);
    free(raw);
    if (printed) return SNUG_OK;
    return ctx ? snug_fail(ctx, SNUG_E_MEMORY, "out of memory while writing a report") : SNUG_E_MEMORY;
}

snug_status snug_report_json(snug_context *ctx, json_t *object, char **text) {
    *text = object ? snug_json_dump(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return *text ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory while writing JSON");
}
