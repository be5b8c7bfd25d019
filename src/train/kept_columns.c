/* SPDX-License-Identifier: Apache-2.0 */
#include "train/kept_columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The columns of the comma-separated names, or all of them. */
static snug_status find_columns(const struct snug_args *args, struct snug_kept_columns *kept) {
    const char *const *names;
    const size_t all = snug_reader_columns(kept->reader, &names);
    const bool every = strcmp(args->keep_columns, "all") == 0;
    size_t wanted = every ? all : 1;
    for (const char *at = args->keep_columns; !every && *at; at++) wanted += *at == ',';
    RETURN_IF_ERROR(snug_alloc(args->ctx, wanted, sizeof *kept->names, (void **)&kept->names));
    RETURN_IF_ERROR(snug_alloc(args->ctx, wanted, sizeof *kept->columns, (void **)&kept->columns));
    RETURN_IF_ERROR(snug_alloc(args->ctx, wanted, sizeof *kept->texts, (void **)&kept->texts));
    RETURN_IF_ERROR(snug_alloc(args->ctx, wanted, sizeof *kept->made, (void **)&kept->made));
    for (const char *name = args->keep_columns; kept->count < wanted; kept->count++) {
        const size_t length = strcspn(name, ",");
        size_t column = every ? kept->count : 0;
        if (!every) column = snug_reader_find(kept->reader, name, length);
        if (column >= all)
            return snug_fail(args->ctx, SNUG_E_INPUT, "%s: --keep_columns: there is no column \"%.*s\"",
                             args->test_file, (int)length, name);
        kept->columns[kept->count] = column;
        RETURN_IF_ERROR(every ? snug_strdup(args->ctx, names[column], &kept->names[kept->count])
                              : snug_format(args->ctx, &kept->names[kept->count], "%.*s", (int)length, name));
        name += length + (name[length] == ',');
    }
    return SNUG_OK;
}

snug_status snug_kept_columns_check(const struct snug_args *args) {
    struct stat info;
    if (!args->keep_columns || (!args->text && snug_args_rows(args, args->test_file))) return SNUG_OK;
    if (!args->text && stat(args->test_file, &info) == 0 && S_ISREG(info.st_mode)) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "--keep_columns reads the data a second time, and %s can be read only once: give a file",
                     args->text ? "--text" : args->test_file);
}

snug_status snug_kept_columns_open(const struct snug_args *args, bool words, const struct snug_used_columns *used,
                                   struct snug_kept_columns *out) {
    *out = (struct snug_kept_columns){.ctx = args->ctx, .line = -1};
    if (!args->keep_columns) return SNUG_OK;
    if (words && !args->json)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--keep_columns: a line of tags has no columns: give --json for an object per row");
    const struct snug_conll_choice choice = {.words = used->text[0], .tags = used->label};
    const struct snug_reader_options options = {.format = args->data_format,
                                                .strict = args->strict,
                                                .words = words,
                                                .quiet = true,
                                                .conll = &choice,
                                                .rows = snug_args_rows(args, args->test_file)};
    RETURN_IF_ERROR(snug_reader_open(args->ctx, args->test_file, &options, &out->reader));
    return find_columns(args, out);
}

/* A list of words as text, separated by blanks. */
static snug_status join_words(snug_context *ctx, const struct snug_field *field, char **out) {
    RETURN_IF_ERROR(snug_alloc(ctx, field->length + 1, 1, (void **)out));
    memcpy(*out, field->text, field->length);
    for (size_t i = 0; i + 1 < field->length; i++)
        if (!(*out)[i]) (*out)[i] = ' ';
    return SNUG_OK;
}

static snug_status take_row(struct snug_kept_columns *kept, const struct snug_row *row) {
    for (size_t i = 0; i < kept->count; i++) {
        const struct snug_field *field = &row->fields[kept->columns[i]];
        free(kept->made[i]);
        kept->made[i] = NULL;
        kept->texts[i] = field->kind == SNUG_FIELD_MISSING ? NULL : field->text;
        if (field->kind == SNUG_FIELD_OTHER)
            return snug_fail(kept->ctx, SNUG_E_INPUT,
                             "line %" PRId64 ": --keep_columns: the value of \"%s\" is %s, which "
                             "cannot be written as text",
                             row->line, kept->names[i], field->text);
        if (field->kind != SNUG_FIELD_WORDS && field->kind != SNUG_FIELD_NUMBERS) continue;
        RETURN_IF_ERROR(join_words(kept->ctx, field, &kept->made[i]));
        kept->texts[i] = kept->made[i];
    }
    return SNUG_OK;
}

snug_status snug_kept_columns_seek(struct snug_kept_columns *kept, int64_t line) {
    struct snug_row row;
    if (kept->line == line) return SNUG_OK;
    do {
        const snug_status status = snug_reader_next(kept->reader, &row);
        if (status == SNUG_END)
            return snug_fail(kept->ctx, SNUG_E_INPUT, "the data file changed while it was read: start again");
        if (status != SNUG_OK) return status;
    } while (row.line < line);
    kept->line = row.line;
    return take_row(kept, &row);
}

void snug_kept_columns_close(struct snug_kept_columns *kept) {
    for (size_t i = 0; i < kept->count; i++) {
        free(kept->made[i]);
        free(kept->names[i]);
    }
    snug_reader_close(kept->reader);
    free(kept->names);
    free(kept->columns);
    free(kept->texts);
    free(kept->made);
    *kept = (struct snug_kept_columns){0};
}
