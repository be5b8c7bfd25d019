/* SPDX-License-Identifier: Apache-2.0 */
#include "text/columns.h"

#include <stdio.h>
#include <string.h>

#include "text/task.h"

struct name_list {
    const char *const *names;
    size_t count;
    char text[512]; /* for messages: "a, b, c", truncated if it is long */
};

static void describe(struct name_list *list) {
    size_t used = 0;
    list->text[0] = '\0';
    for (size_t i = 0; i < list->count && used < sizeof list->text; i++) {
        used += (size_t)snprintf(list->text + used, sizeof list->text - used, "%s%s", i ? ", " : "", list->names[i]);
    }
}

/* The column called name (length bytes); count if there is none. */
static size_t find(const struct name_list *list, const char *name, size_t length) {
    size_t i = 0;
    while (i < list->count && (strlen(list->names[i]) != length || memcmp(list->names[i], name, length) != 0)) i++;
    return i;
}

static snug_status find_label(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct name_list *list, struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *name = options->label_column ? options->label_column : task->label_column;
    out->label = find(list, name, strlen(name));
    /* untested: a --label_column that is missing */
    if (out->label == list->count && !options->label_column && task->label_second && list->count > 1 &&
        strcmp(list->names[1], task->text_column[0]) != 0)
        out->label = 1;
    out->has_label = task->labelled && out->label < list->count;
    if (out->has_label || !options->need_labels || !task->labelled) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: there is no label column \"%s\"; its columns are: %s. Give the right one with "
                     "--label_column_name, or train without labels with --task mlm",
                     options->path, name, list->text);
}

static snug_status find_named_texts(snug_context *ctx, const struct snug_dataset_options *options,
                                    const struct name_list *list, struct snug_columns *out) {
    const size_t most = snug_task_info(options->task)->texts;
    for (const char *name = options->text_columns; name;) {
        const char *comma = strchr(name, ',');
        size_t length = comma ? (size_t)(comma - name) : strlen(name);
        size_t column = find(list, name, length);
        if (column == list->count)
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: --text_column_names: there is no column \"%.*s\"; its columns are: %s", options->path,
                             (int)length, name, list->text);
        if (out->texts == most)
            return snug_fail(ctx, SNUG_E_USAGE, "--text_column_names \"%s\": at most %zu column%s can be used",
                             options->text_columns, most, most == 1 ? "" : "s");
        out->text[out->texts++] = column;
        name = comma ? comma + 1 : NULL;
    }
    return SNUG_OK;
}

/* run_mlm uses "text", else the first column; run_ner "tokens", else the first column; run_glue "sentence1" and
   "sentence2", else the first two columns that are not the label, else the only one. */
static void find_usual_texts(const struct snug_dataset_options *options, const struct name_list *list,
                             struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    for (size_t i = 0; i < task->texts; i++) {
        const size_t column = find(list, task->text_column[i], strlen(task->text_column[i]));
        if (column < list->count) out->text[out->texts++] = column;
    }
    if (out->texts == task->texts) return;
    out->texts = 0;
    for (size_t i = 0; i < list->count && out->texts < task->texts; i++)
        if (i != out->label) out->text[out->texts++] = i;
}

snug_status snug_columns_find(snug_context *ctx, const struct snug_dataset_options *options, const char *const *names,
                              size_t count, struct snug_columns *out) {
    struct name_list list = {.names = names, .count = count};
    *out = (struct snug_columns){0};
    describe(&list);
    RETURN_IF_ERROR(find_label(ctx, options, &list, out));
    if (options->text_columns) return find_named_texts(ctx, options, &list, out);
    find_usual_texts(options, &list, out);
    if (out->texts) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: there is no text column; its columns are: %s", options->path, list.text);
}
