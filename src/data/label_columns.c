/* SPDX-License-Identifier: Apache-2.0 */
#include "data/label_columns.h"

#include <stdio.h>
#include <string.h>

#include "data/labels.h"
#include "data/task.h"

bool snug_columns_add(const struct snug_column_names *list, const char *name, struct snug_columns *out) {
    const size_t column = snug_column_find(list, name, strlen(name));
    if (column == list->count || out->texts == SNUG_TEXTS_MOST) return false;
    out->text[out->texts++] = column;
    return true;
}

bool snug_columns_add_any(const struct snug_column_names *list, const char *const names[], struct snug_columns *out) {
    for (; *names; names++)
        if (snug_columns_add(list, *names, out)) return true;
    return false;
}

bool snug_columns_is_label(const struct snug_columns *columns, size_t column) {
    bool is = columns->has_label && columns->label == column;
    for (size_t i = 0; i < columns->flags; i++) is |= columns->flag[i] == column;
    return is;
}

bool snug_column_has_kind(const struct snug_peek *peek, size_t column, enum snug_field_kind a, enum snug_field_kind b) {
    bool some = false;
    for (size_t i = 0; i < peek->count; i++) {
        const enum snug_field_kind kind = peek->rows[i].fields[column].kind;
        if (kind == SNUG_FIELD_MISSING) continue;
        if (kind != a && kind != b) return false;
        some = true;
    }
    return some;
}

/* ---- columns of zeros and ones --------------------------------------------------------------------------------- */

/* The next name of a list, with the comma before it passed over; NULL at its end. */
static const char *next_name(const char **at, size_t *length) {
    const char *name = *at;
    if (!name) return NULL;
    *length = strcspn(name, ",");
    *at = name[*length] ? name + *length + 1 : NULL;
    return name;
}

/* Columns whose names are separated by commas. given: they are an argument's; else those of a training, which the file
   may lack: then there are no flags. */
static snug_status find_flags(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, const char *names, bool given,
                              struct snug_columns *out) {
    size_t length;
    for (const char *at = names, *name; (name = next_name(&at, &length));) {
        size_t column = snug_column_find(list, name, length);
        if (column == list->count) column = snug_column_find_alike(list, name, length);
        if (column == list->count) {
            out->flags = 0;
            if (!given) return SNUG_OK;
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: --label_column_name %s: there is no column \"%.*s\"; its columns "
                             "are: %s",
                             options->path, names, (int)length, name, list->text);
        }
        if (snug_columns_is_label(out, column))
            return snug_fail(ctx, SNUG_E_USAGE, "--label_column_name %s: the column \"%.*s\" is there twice", names,
                             (int)length, name);
        if (out->flags == SNUG_FLAGS_MOST)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "--label_column_name: more than %d columns of zeros and ones: write the classes of a row "
                             "as a list in JSON Lines, or joined, as in \"a|b\", with --label_separator '|'",
                             (int)SNUG_FLAGS_MOST);
        out->flag[out->flags++] = column;
    }
    out->label = out->flag[0];
    return SNUG_OK;
}

/* Identifiers and texts that may be beside the label. */
static const char *const no_flags[] = {"id", "idx", "index", NULL};

/* The columns of which the first rows hold zeros and ones alone, for a message: ""; several, "a,b,c". */
static void list_flags(const struct snug_column_names *list, const struct snug_peek *peek, char *out, size_t size) {
    size_t count = 0;
    *out = '\0';
    for (size_t column = 0; column < list->count; column++) {
        bool flags = peek->count > 0 && !snug_column_is_usual(list->names[column], no_flags);
        for (size_t i = 0; i < peek->count; i++) flags &= snug_label_flag(&peek->rows[i].fields[column]) >= 0;
        if (!flags) continue;
        const size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s", count++ ? "," : "", list->names[column]);
    }
    if (count < 2 || strlen(out) + 1 == size) *out = '\0';
}

/* ---- a file without a label ------------------------------------------------------------------------------------ */

/* Usual names of labels, which are proposed: in other files they are something else. */
static const char *const proposed[] = {
    "target",           "class", "category", "sentiment", "intent", "topic",      "score", "rating", "stars",
    "similarity_score", "y",     "relation", "tag",       "gold",   "label_text", NULL};
static const char *const contexts[] = {"context", NULL}, *const answers[] = {"answers", "answer", "answer_start", NULL};

static bool has_any(const struct snug_column_names *list, const char *const names[]) {
    return snug_column_find_usual(list, names) < list->count;
}

static snug_status fail_without(snug_context *ctx, const struct snug_dataset_options *options,
                                const struct snug_column_names *list, const struct snug_peek *peek, const char *name) {
    static const char *const questions[] = {"question", NULL};
    const struct snug_task_info *task = snug_task_info(options->task), *tags = &snug_task_token_classification;
    char flags[256], text[512];
    if (has_any(list, questions) && has_any(list, contexts) && has_any(list, answers))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: its columns (%s) are those of question answering: give --task question-answering",
                         options->path, list->text);
    const size_t other = snug_column_find_usual(list, proposed);
    const size_t alike = snug_column_find_alike(list, name, strlen(name));
    const bool words = !task->words && (has_any(list, tags->text_column) ||
                                        has_any(list, (const char *const[]){tags->label_column[0], NULL}));
    list_flags(list, peek, flags, sizeof flags);
    snprintf(text, sizeof text, "Give the right one with --label_column_name");
    if (*flags)
        snprintf(text, sizeof text,
                 "Give the right one with --label_column_name, or --label_column_name %s if these "
                 "say with 1 which classes a row has",
                 flags);
    else if (alike < list->count || other < list->count)
        snprintf(text, sizeof text, "Give the right one, as in --label_column_name \"%s\"",
                 list->names[alike < list->count ? alike : other]);
    return snug_fail(
        ctx, SNUG_E_INPUT,
        "%s: there is no label column \"%s\"; its columns are: %s. %s, or train without labels with --task "
        "mlm%s",
        options->path, name, list->text, text, words ? ", or on tags of words with --task ner" : "");
}

/* ---- the label ------------------------------------------------------------------------------------------------- */

static snug_status find_named(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, const char *name, bool given,
                              struct snug_columns *out) {
    out->label = snug_column_find(list, name, strlen(name));
    if (out->label < list->count || !strchr(name, ',')) return SNUG_OK;
    if (snug_task_info(options->task)->problems) return find_flags(ctx, options, list, name, given, out);
    return SNUG_OK;
}

snug_status snug_label_columns_find(snug_context *ctx, const struct snug_dataset_options *options,
                                    const struct snug_column_names *list, const struct snug_peek *peek,
                                    struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *given = options->label_column, *trained = options->trained ? options->trained->label : NULL;
    out->label = list->count;
    if (given || trained) RETURN_IF_ERROR(find_named(ctx, options, list, given ? given : trained, given != NULL, out));
    if (out->label == list->count && !given) out->label = snug_column_find_usual(list, task->label_column);
    out->has_label = (task->labelled || task->apart) && out->label < list->count;
    const bool needed = task->apart ? given != NULL : options->need_labels && task->labelled;
    if (out->has_label || !needed) return SNUG_OK;
    if (task->words && !given) return SNUG_OK; /* it may be found by its values */
    return fail_without(ctx, options, list, peek, given ? given : task->label_column[0]);
}

snug_status snug_tag_column_find(snug_context *ctx, const struct snug_dataset_options *options,
                                 const struct snug_column_names *list, const struct snug_peek *peek,
                                 struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    if (out->has_label || !task->words || options->label_column) return SNUG_OK;
    for (size_t i = 0; i < list->count && !out->has_label; i++) {
        if (i == out->text[0] || !snug_column_has_kind(peek, i, SNUG_FIELD_WORDS, SNUG_FIELD_NUMBERS)) continue;
        out->label = i;
        out->has_label = true;
    }
    if (out->has_label || !options->need_labels) return SNUG_OK;
    return fail_without(ctx, options, list, peek, task->label_column[0]);
}
