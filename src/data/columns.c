/* SPDX-License-Identifier: Apache-2.0 */
#include "data/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/chat_columns.h"
#include "data/labels.h"
#include "data/object_rows.h"
#include "data/preferences.h"
#include "data/task.h"

static size_t find_name(const struct snug_column_names *list, const char *name) {
    return snug_column_find(list, name, strlen(name));
}

/* ---- texts that arguments name ----------------------------------------------------------------------------------- */

static snug_status add_text(snug_context *ctx, const struct snug_dataset_options *options,
                            const struct snug_column_names *list, const char *argument, const char *name, size_t length,
                            struct snug_columns *out) {
    const size_t column = snug_column_find(list, name, length);
    const bool several = strcmp(argument, "text_column_name") == 0 && memchr(name, ',', length);
    if (column == list->count)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: --%s: there is no column \"%.*s\"; its columns are: %s%s%s",
                         options->path, argument, (int)length, name, list->text,
                         several ? ". Columns are joined with --text_column_names " : "", several ? name : "");
    if (options->need_labels && snug_columns_is_label(out, column))
        return snug_fail(
            ctx, SNUG_E_USAGE,
            "%s: the column \"%s\" is the label, and --%s names it as a text: name another one, or another "
            "label with --label_column_name",
            options->path, list->names[column], argument);
    out->text[out->texts++] = column;
    return SNUG_OK;
}

static snug_status check_arguments(snug_context *ctx, const struct snug_dataset_options *options) {
    if (options->text_columns && (options->text_column || options->text_pair_column))
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--text_column_names joins columns to one text, and --text_column_name and "
                         "--text_pair_column_name name a text or a pair: give one or the other");
    const struct snug_task_info *task = snug_task_info(options->task);
    if (options->text_pair_column && !task->pairs && !task->causal && !task->apart)
        return snug_fail(ctx, SNUG_E_USAGE, "--text_pair_column_name is for classification: leave it out");
    return SNUG_OK;
}

static snug_status find_joined(snug_context *ctx, const struct snug_dataset_options *options,
                               const struct snug_column_names *list, struct snug_columns *out) {
    const size_t most = snug_task_info(options->task)->words ? 1 : SNUG_TEXTS_MOST;
    for (const char *name = options->text_columns; name;) {
        const char *comma = strchr(name, ',');
        if (out->texts == most)
            return snug_fail(ctx, SNUG_E_USAGE, "--text_column_names \"%s\": at most %zu column%s can be used",
                             options->text_columns, most, most == 1 ? "" : "s");
        RETURN_IF_ERROR(add_text(ctx, options, list, "text_column_names", name,
                                 comma ? (size_t)(comma - name) : strlen(name), out));
        name = comma ? comma + 1 : NULL;
    }
    return SNUG_OK;
}

static snug_status find_named(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, struct snug_columns *out) {
    const char *first = options->text_column, *second = options->text_pair_column;
    RETURN_IF_ERROR(check_arguments(ctx, options));
    if (options->text_columns) return find_joined(ctx, options, list, out);
    if (!first)
        return snug_fail(ctx, SNUG_E_USAGE, "--text_pair_column_name %s needs --text_column_name, the first text",
                         second);
    RETURN_IF_ERROR(add_text(ctx, options, list, "text_column_name", first, strlen(first), out));
    if (!second) return SNUG_OK;
    out->pair = !out->apart;
    return add_text(ctx, options, list, "text_pair_column_name", second, strlen(second), out);
}

/* ---- texts that are found ------------------------------------------------------------------------------------- */

/* The pairs of GLUE's tasks, by the names in run_glue.py. */
static const char *const known_pairs[][2] = {
    {"sentence1", "sentence2"}, {"question1", "question2"}, {"premise", "hypothesis"}, {"question", "sentence"}};

static const char *const completed_pairs[][2] = {{"prompt", "completion"}}; /* TRL's names */

static size_t find_usual(const struct snug_column_names *list, const char *name) {
    return snug_column_find_usual(list, (const char *const[]){name, NULL});
}

static bool find_known(const struct snug_dataset_options *options, const struct snug_column_names *list,
                       const struct snug_peek *peek, struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *const(*pairs)[2] = task->causal ? completed_pairs : known_pairs;
    const size_t count = task->causal ? 1 : task->pairs ? sizeof known_pairs / sizeof *known_pairs : 0;
    if (options->chats && snug_chat_columns_find(list, peek, SNUG_CHAT_PROMPTS, out)) return true;
    for (size_t i = 0; i < count; i++) {
        const size_t a = find_usual(list, pairs[i][0]), b = find_usual(list, pairs[i][1]);
        if (a == list->count || b == list->count || snug_columns_is_label(out, a) || snug_columns_is_label(out, b))
            continue;
        out->text[0] = a;
        out->text[1] = b;
        out->texts = 2;
        out->pair = true;
        return true;
    }
    if (options->chats && snug_chat_columns_find(list, peek, SNUG_CHAT_MESSAGES, out)) return true;
    for (const char *const *name = task->text_column; *name; name++) {
        const size_t column = find_usual(list, *name);
        if (column == list->count || snug_columns_is_label(out, column)) continue;
        out->text[0] = column;
        out->texts = 1;
        return true;
    }
    /* A row of Alpaca may have all of it as a "text", too. */
    return options->chats && snug_chat_columns_find(list, peek, SNUG_CHAT_ALPACA, out);
}

static int compare_numbers(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Whether a column has a different number in each of the first rows. */
static bool has_own_numbers(const struct snug_peek *peek, size_t column) {
    const char *numbers[SNUG_PEEK_ROWS] = {NULL};
    for (size_t i = 0; i < peek->count; i++) {
        const struct snug_field *field = &peek->rows[i].fields[column];
        const bool text = field->kind == SNUG_FIELD_TEXT && snug_number_kind(field->text) != SNUG_NUMBER_NONE;
        if (!text && field->kind != SNUG_FIELD_INTEGER && field->kind != SNUG_FIELD_REAL) return false;
        numbers[i] = field->text;
    }
    qsort(numbers, peek->count, sizeof *numbers, compare_numbers);
    for (size_t i = 1; i < peek->count; i++)
        if (strcmp(numbers[i - 1], numbers[i]) == 0) return false;
    return peek->count > 0;
}

static bool is_identifier(const struct snug_column_names *list, const struct snug_peek *peek, size_t column) {
    static const char *const usual[] = {"id", "idx", "index", "guid", ""};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strcasecmp(list->names[column], usual[i]) == 0) return true;
    if (strncmp(list->names[column], "Unnamed: ", 9) == 0) return true; /* a header's columns without a name */
    return has_own_numbers(peek, column);
}

/* Whether a name or the values show that a column is not the text: a label, or no list of words. */
static bool is_no_text(const struct snug_dataset_options *options, const struct snug_column_names *list,
                       const struct snug_peek *peek, size_t column) {
    const struct snug_task_info *task = snug_task_info(options->task);
    if (snug_column_is_usual(list->names[column], task->label_column)) return !task->pairs;
    return task->words && !snug_column_has_kind(peek, column, SNUG_FIELD_WORDS, SNUG_FIELD_WORDS);
}

/* run_mlm.py and run_ner.py take the first column. Two texts may be a pair, or one may be something else: that is
   asked. */
static snug_status find_only(snug_context *ctx, const struct snug_dataset_options *options,
                             const struct snug_column_names *list, const struct snug_peek *peek,
                             struct snug_columns *out) {
    const bool takes_first = !snug_task_info(options->task)->pairs;
    char candidates[512] = "", joined[512] = "";
    size_t found[2], count = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (snug_columns_is_label(out, i) || is_identifier(list, peek, i) || is_no_text(options, list, peek, i))
            continue;
        if (count < 2) found[count] = i;
        count++;
        snug_column_names_add(candidates, sizeof candidates, list->names[i]);
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", *joined ? "," : "", list->names[i]);
    }
    if (count == 0 && snug_task_info(options->task)->words)
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s: there is no column of words, which are lists of strings; its columns are: %s. Name it with "
            "--text_column_name",
            options->path, list->text);
    if (count == 0)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: there is no text column; its columns are: %s. Identifiers and numbers that all differ "
                         "are not taken for texts: name the column with --text_column_name",
                         options->path, list->text);
    if (count > 1 && !takes_first)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: which column is the text: %s? Give --text_column_name %s; or --text_column_name %s "
                         "--text_pair_column_name %s for a pair; or --text_column_names %s to join them",
                         options->path, candidates, list->names[found[0]], list->names[found[0]], list->names[found[1]],
                         joined);
    out->text[0] = found[0];
    out->texts = 1;
    return SNUG_OK;
}

/* The columns that the model is trained on. */
static bool find_trained(const struct snug_dataset_options *options, const struct snug_column_names *list,
                         struct snug_columns *out) {
    const struct snug_used_columns *trained = options->trained;
    if (!trained || !trained->texts || trained->chat) return false;
    for (size_t i = 0; i < trained->texts; i++) {
        out->text[i] = find_name(list, trained->text[i]);
        if (out->text[i] == list->count) return false;
    }
    out->texts = trained->texts;
    out->pair = trained->pair;
    return true;
}

/* The file has other columns than the training's: one text for one, or a pair for a pair, can be used. */
static snug_status check_trained(snug_context *ctx, const struct snug_dataset_options *options,
                                 const struct snug_column_names *list, const struct snug_columns *columns) {
    const struct snug_used_columns *trained = options->trained;
    char was[512] = "", is[512] = "";
    if (!trained || !trained->texts || columns->chat) return SNUG_OK;
    if (trained->chat)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: the model is trained on chats, and the file has none; its columns are: %s. Give a file "
                         "with \"messages\", or name a text with --text_column_name",
                         options->path, list->text);
    for (size_t i = 0; i < trained->texts; i++) snug_column_names_add(was, sizeof was, trained->text[i]);
    for (size_t i = 0; i < columns->texts; i++) snug_column_names_add(is, sizeof is, list->names[columns->text[i]]);
    if (columns->texts != trained->texts || columns->pair != trained->pair)
        return snug_fail(
            ctx, SNUG_E_INPUT,
            "%s: the model is trained on %s %s, and the file's columns are: %s. Give a file of such texts, or name "
            "them with %s",
            options->path,
            trained->pair        ? "the pair"
            : trained->texts > 1 ? "the joined columns"
                                 : "the column",
            was, list->text,
            trained->pair        ? "--text_column_name and --text_pair_column_name"
            : trained->texts > 1 ? "--text_column_names"
                                 : "--text_column_name");
    if (snug_conll_is_position(trained->text[0])) return SNUG_OK; /* of another file */
    snug_log(ctx, SNUG_LOG_WARNING, "%s: the model is trained on the text column%s %s, which it lacks: using %s",
             options->path, trained->texts > 1 ? "s" : "", was, is);
    return SNUG_OK;
}

/* ---- words with tags ------------------------------------------------------------------------------------------- */

struct snug_conll_choice snug_columns_choice(const struct snug_dataset_options *options) {
    const struct snug_used_columns *trained = options->trained;
    return (struct snug_conll_choice){.words = options->text_columns ? options->text_columns : options->text_column,
                                      .tags = options->label_column,
                                      .trained_words = trained && trained->texts == 1 ? trained->text[0] : NULL,
                                      .trained_tags = trained ? trained->label : NULL,
                                      .need_tags = options->need_labels};
}

/* The reader has decided the columns of a file with a word a line. */
static snug_status take_conll(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, const struct snug_conll *conll,
                              struct snug_columns *out) {
    const struct snug_used_columns *trained = options->trained;
    RETURN_IF_ERROR(check_arguments(ctx, options));
    *out = (struct snug_columns){
        .text = {conll->words}, .texts = 1, .label = conll->tags, .has_label = conll->tags != SNUG_CONLL_NONE};
    const bool known =
        !options->text_column && !options->text_columns && conll->named && trained && trained->texts == 1;
    if (!known || find_name(list, trained->text[0]) < list->count) return SNUG_OK;
    return check_trained(ctx, options, list, out);
}

/* Lists of words, of a task that takes texts. */
static snug_status check_words(snug_context *ctx, const struct snug_dataset_options *options,
                               const struct snug_column_names *list, const struct snug_peek *peek,
                               const struct snug_columns *columns) {
    const struct snug_task_info *task = snug_task_info(options->task);
    for (size_t i = 0; i < columns->texts && !task->words && !columns->chat; i++)
        if (snug_column_has_kind(peek, columns->text[i], SNUG_FIELD_LIST, SNUG_FIELD_LIST))
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: its column \"%s\" holds lists: if they are words with tags, give --task ner; else "
                             "write texts as strings, or name another column with --text_column_name",
                             options->path, list->names[columns->text[i]]);
    return SNUG_OK;
}

/* Texts that are sequences of their own: the usual one where one is wanted, else all columns that can be texts, in
 * their order, which is what counts in sentence-transformers. */
static snug_status find_apart(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, const struct snug_peek *peek,
                              struct snug_columns *out) {
    const size_t most = options->texts_most ? options->texts_most : SNUG_TEXTS_MOST;
    const size_t usual = snug_column_find_usual(list, snug_task_info(options->task)->text_column);
    if (most == 1 && usual < list->count) out->text[out->texts++] = usual;
    for (size_t i = 0; i < list->count && out->texts < most; i++)
        if (!snug_columns_is_label(out, i) && !is_identifier(list, peek, i)) out->text[out->texts++] = i;
    if (out->texts) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: there is no text column; its columns are: %s. Identifiers and numbers that all differ are "
                     "not taken for texts: name the columns with --text_column_names",
                     options->path, list->text);
}

/* Rows that are read as objects, or as preferences. */
static snug_status find_objects(snug_context *ctx, const struct snug_dataset_options *options,
                                const struct snug_column_names *list, const struct snug_peek *peek,
                                struct snug_columns *out) {
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *columns = task->preferences ? SNUG_PREFERENCES_COLUMNS : task->objects->columns;
    if (options->text_columns || options->text_column || options->text_pair_column || options->label_column)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "--text_column_name and others that name columns are not for %s, whose columns are %s: leave "
                         "them out",
                         task->short_title, columns);
    if (task->preferences)
        out->preferences = snug_preferences_columns_find(list, peek, out);
    else
        out->objects = task->objects->find(list, options, out);
    if (out->preferences || out->objects) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: no rows of %s: they have the columns %s; the file's are: %s",
                     options->path, task->short_title, columns, list->text);
}

static snug_status find_texts(snug_context *ctx, const struct snug_dataset_options *options,
                              const struct snug_column_names *list, const struct snug_peek *peek,
                              struct snug_columns *out) {
    out->apart = snug_task_info(options->task)->apart && !options->joins_texts;
    if (options->text_columns || options->text_column || options->text_pair_column)
        return find_named(ctx, options, list, out);
    if (out->apart) return find_apart(ctx, options, list, peek, out);
    if (find_trained(options, list, out)) return SNUG_OK;
    if (!find_known(options, list, peek, out)) RETURN_IF_ERROR(find_only(ctx, options, list, peek, out));
    RETURN_IF_ERROR(check_words(ctx, options, list, peek, out));
    return check_trained(ctx, options, list, out);
}

snug_status snug_columns_find(snug_context *ctx, const struct snug_dataset_options *options, const char *const *names,
                              size_t count, const struct snug_peek *peek, struct snug_columns *out) {
    struct snug_column_names list;
    *out = (struct snug_columns){0};
    snug_column_names_init(&list, names, count);
    const struct snug_conll *conll = snug_reader_conll(peek->reader);
    if (conll) return take_conll(ctx, options, &list, conll, out);
    if (snug_task_info(options->task)->objects || snug_task_info(options->task)->preferences)
        return find_objects(ctx, options, &list, peek, out);
    if (!snug_task_info(options->task)->causal) /* which predicts the text itself */
        RETURN_IF_ERROR(snug_label_columns_find(ctx, options, &list, peek, out));
    RETURN_IF_ERROR(find_texts(ctx, options, &list, peek, out));
    if (options->texts_most) out->has_label = false; /* of texts alone */
    return snug_tag_column_find(ctx, options, &list, peek, out);
}

/* ---- their names and texts ------------------------------------------------------------------------------------- */

static bool is_used(const struct snug_columns *columns, size_t column) {
    for (size_t i = 0; i < columns->texts; i++)
        if (columns->text[i] == column) return true;
    return snug_columns_is_label(columns, column);
}

void snug_used_columns_free(struct snug_used_columns *used) {
    for (size_t i = 0; i < used->texts; i++) free(used->text[i]);
    free(used->label);
    free(used->delimiter);
    free(used->unused);
    *used = (struct snug_used_columns){0};
}

/* The name of the label's column, or those of the classes: "a,b,c", as --label_column_name takes them. */
static snug_status join_labels(snug_context *ctx, const struct snug_columns *columns, const char *const *names,
                               char **out) {
    RETURN_IF_ERROR(snug_strdup(ctx, names[columns->label], out));
    for (size_t i = 1; i < columns->flags; i++) {
        char *longer;
        const snug_status status = snug_format(ctx, &longer, "%s,%s", *out, names[columns->flag[i]]);
        free(*out);
        *out = longer;
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

snug_status snug_columns_describe(snug_context *ctx, const struct snug_columns *columns,
                                  const struct snug_dataset_options *options, const char *const *names, size_t count,
                                  struct snug_used_columns *out) {
    char unused[512] = "";
    *out = (struct snug_used_columns){.pair = columns->pair,
                                      .apart = columns->apart,
                                      .chat = columns->chat,
                                      .objects = columns->objects,
                                      .preferences = columns->preferences,
                                      .flags = columns->flags};
    for (size_t i = 0; i < columns->texts; i++) {
        RETURN_IF_ERROR(snug_strdup(ctx, names[columns->text[i]], &out->text[i]));
        out->texts = i + 1;
    }
    for (size_t i = 0; i < count; i++)
        if (!is_used(columns, i)) snug_column_names_add(unused, sizeof unused, names[i]);
    if (columns->has_label) RETURN_IF_ERROR(join_labels(ctx, columns, names, &out->label));
    if (columns->texts > 1 && !columns->pair && !columns->apart && !columns->chat && !columns->objects &&
        !columns->preferences)
        RETURN_IF_ERROR(snug_strdup(ctx, snug_dataset_delimiter(options), &out->delimiter));
    return snug_strdup(ctx, unused, &out->unused);
}

const char *snug_dataset_delimiter(const struct snug_dataset_options *options) {
    const struct snug_used_columns *trained = options->trained;
    if (options->text_delimiter) return options->text_delimiter;
    return trained && trained->delimiter ? trained->delimiter : " ";
}

const char *snug_columns_value(const struct snug_field *field) {
    switch (field->kind) {
    case SNUG_FIELD_BOOLEAN: return "a boolean";
    case SNUG_FIELD_LIST: return "a list";
    case SNUG_FIELD_JSON: return *field->text == '[' ? "a list" : "an object";
    case SNUG_FIELD_NUMBERS: return "numbers";
    case SNUG_FIELD_TEXT: return "a text";
    case SNUG_FIELD_INTEGER:
    case SNUG_FIELD_REAL: return "a number";
    default: return field->text;
    }
}

static snug_status fail_no_text(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                                size_t column) {
    const struct snug_field *field = &row->fields[column];
    const char *name = source->names[column];
    if (field->kind == SNUG_FIELD_MISSING)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s:%" PRId64 ": the row has no %s: its column \"%s\" is %s; remove the row, or make it empty",
                         source->path, row->line, source->words ? "words" : "text", name,
                         *field->text ? field->text : "missing");
    return snug_fail(ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the %s: the column \"%s\" holds %s%s", source->path, row->line,
                     source->words ? "words must be a list of strings" : "text must be a string", name,
                     snug_columns_value(field),
                     field->kind != SNUG_FIELD_LIST ? ""
                                                    : "; name the columns of texts with --text_column_names, or, if it "
                                                      "is one of words, give --task token_classification");
}

static bool has_text(const struct snug_text_source *source, const struct snug_field *field) {
    return source->words ? field->kind == SNUG_FIELD_WORDS : snug_field_is_text(field);
}

static snug_status join_texts(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                              struct snug_row_buffer *buffer, struct snug_field *out) {
    size_t size = 0;
    for (size_t i = 0; i < source->columns.texts; i++) {
        const struct snug_field *field = &row->fields[source->columns.text[i]];
        const size_t between = i ? strlen(source->delimiter) : 0;
        if (!has_text(source, field)) return fail_no_text(ctx, source, row, source->columns.text[i]);
        RETURN_IF_ERROR(snug_grow(ctx, &buffer->data, &buffer->capacity, size + between + field->length + 1, 1));
        if (between) memcpy((char *)buffer->data + size, source->delimiter, between);
        memcpy((char *)buffer->data + size + between, field->text, field->length + 1);
        size += between + field->length;
    }
    *out = (struct snug_field){SNUG_FIELD_TEXT, buffer->data, size};
    return SNUG_OK;
}

snug_status snug_columns_text(snug_context *ctx, const struct snug_text_source *source, const struct snug_row *row,
                              size_t i, struct snug_row_buffer *buffer, struct snug_field *out) {
    const struct snug_columns *columns = &source->columns;
    if (columns->texts > 1 && !columns->pair && !columns->apart) return join_texts(ctx, source, row, buffer, out);
    *out = row->fields[columns->text[i]];
    return has_text(source, out) ? SNUG_OK : fail_no_text(ctx, source, row, columns->text[i]);
}
