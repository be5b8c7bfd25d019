/* SPDX-License-Identifier: Apache-2.0 */
#include "data/choices.h"

#include <stdio.h>
#include <stdlib.h>

#include "data/groups.h"
#include "io/json.h"

static const char *const nested[] = {"choices", "options", "endings", NULL};

/* Usual names of the text before the question, of the question, and of the right choice. */
static const char *const contexts[] = {"context", "article", "passage", "ctx", "sent1", NULL};
static const char *const questions[] = {"question", "sent2", NULL};
static const char *const labels[] = {"label", "answer", "answerKey", "labels", "gold_label", NULL};

/* The column of an ending, as in run_swag.py. */
struct ending {
    char text[16];
};
static struct ending ending_name(size_t number) {
    struct ending name;
    snprintf(name.text, sizeof name.text, "ending%zu", number);
    return name;
}

static bool find(const struct snug_column_names *list, const struct snug_dataset_options *options,
                 struct snug_columns *out) {
    (void)options;
    bool text = snug_columns_add_any(list, contexts, out);
    text |= snug_columns_add_any(list, questions, out);
    bool choices = snug_columns_add_any(list, nested, out);
    size_t endings = 0;
    while (!choices && snug_columns_add(list, ending_name(endings).text, out)) endings++;
    choices |= endings > 1;
    snug_columns_add_any(list, labels, out);
    return text && choices && out->texts < SNUG_TEXTS_MOST;
}

/* ---- a row ------------------------------------------------------------------------------------------------------ */

struct question {
    const char *where, *context, *question; /* NULL: none */
    const char **choices;                   /* [count] */
    size_t count, capacity;
    const json_t *keys; /* of the choices; NULL: none */
    const char *label;  /* NULL: none */
    char *text;         /* question and choice, joined */
    size_t text_capacity;
};

static snug_status add_choice(snug_context *ctx, struct question *q, const json_t *text) {
    if (!json_is_string(text)) return snug_fail(ctx, SNUG_E_INPUT, "%s: choice %zu must be a text", q->where, q->count);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&q->choices, &q->capacity, q->count + 1, sizeof *q->choices));
    q->choices[q->count++] = json_string_value(text);
    return SNUG_OK;
}

/* A list of texts, or as ARC {"text": ["…"], "label": ["A", …]}. */
static snug_status read_list(snug_context *ctx, struct question *q, const json_t *value) {
    const json_t *texts = json_is_object(value) ? json_object_get(value, "text") : value;
    size_t i;
    json_t *text;
    q->keys = json_is_object(value) ? json_object_get(value, "label") : NULL;
    if (!json_is_array(texts) || (q->keys && json_array_size(q->keys) != json_array_size(texts)))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: the choices must be a list of texts, or {\"text\": [\"…\"], \"label\": [\"A\"]} with "
                         "lists of one length",
                         q->where);
    json_array_foreach((json_t *)(uintptr_t)texts, i, text) RETURN_IF_ERROR(add_choice(ctx, q, text));
    return SNUG_OK;
}

/* *parsed: of a list that is a text, as in a CSV file; freed by the caller. */
static snug_status read_choices(snug_context *ctx, struct question *q, const json_t *row, json_t **parsed) {
    for (const char *const *name = nested; *name; name++) {
        const json_t *value = json_object_get(row, *name);
        json_error_t error;
        if (!value) continue;
        if (json_is_string(value))
            *parsed = snug_json_parse(json_string_value(value), json_string_length(value), 0, &error);
        return read_list(ctx, q, *parsed ? *parsed : value);
    }
    for (json_t *text; (text = json_object_get(row, ending_name(q->count).text));)
        RETURN_IF_ERROR(add_choice(ctx, q, text));
    return SNUG_OK;
}

static const char *text_of(const json_t *row, const char *const names[]) {
    for (; *names; names++)
        if (json_object_get(row, *names)) return json_string_value(json_object_get(row, *names));
    return NULL;
}

/* The number of the right choice, by its key, number, letter or text; -1: it is not known; -2: no choice has that
 * label.
 */
static int64_t find_answer(const struct question *q) {
    const char *label = q->label;
    char *end;
    if (!label || !*label) return -1;
    for (size_t i = 0; i < json_array_size(q->keys); i++) {
        const char *key = json_string_value(json_array_get(q->keys, i));
        if (key && strcmp(key, label) == 0) return (int64_t)i;
    }
    const long long number = strtoll(label, &end, 10);
    if (!q->keys && !*end) return number >= -1 && number < (long long)q->count ? number : -2;
    if (!q->keys && label[0] >= 'A' && label[0] < 'A' + (int)q->count && !label[1]) return label[0] - 'A';
    for (size_t i = 0; i < q->count; i++)
        if (strcmp(q->choices[i], label) == 0) return (int64_t)i;
    return -2;
}

/* The second text: the question, if there is a context before it, a space and the choice. */
static snug_status join(snug_context *ctx, struct question *q, size_t i, const char **out) {
    const char *choice = q->choices[i];
    *out = choice;
    if (!q->context || !q->question) return SNUG_OK;
    const size_t before = strlen(q->question), length = strlen(choice);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&q->text, &q->text_capacity, before + 1 + length + 1, 1));
    memcpy(q->text, q->question, before);
    q->text[before] = ' ';
    memcpy(q->text + before + 1, choice, length + 1);
    *out = q->text;
    return SNUG_OK;
}

static snug_status encode_choices(snug_context *ctx, const struct snug_encoding *encoding, struct question *q,
                                  struct snug_encoder *encoder) {
    const int64_t answer = find_answer(q);
    if (q->count < 2 || q->count > SNUG_GROUP_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the row has %zu choices, and must have 2 to %d", q->where, q->count,
                         (int)SNUG_GROUP_MOST);
    if (!q->context && !q->question)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the row has no text before its choices", q->where);
    if (answer == -2 || (answer < 0 && encoding->need_labels))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: the label%s%s is none of the %zu choices: give their number, from 0, or letter, from A",
                         q->where, q->label ? " " : "", q->label ? q->label : "", q->count);
    RETURN_IF_ERROR(snug_group_begin(ctx, q->count, answer >= 0, 0, encoder));
    for (size_t i = 0; i < q->count; i++) {
        const char *second;
        RETURN_IF_ERROR(join(ctx, q, i, &second));
        RETURN_IF_ERROR(snug_group_add(ctx, encoding, q->context ? q->context : q->question, second,
                                       (int64_t)i == answer, encoder));
    }
    return snug_group_end(ctx, encoder);
}

static snug_status encode(snug_context *ctx, const struct snug_encoding *encoding, const char *where, const char *text,
                          size_t length, struct snug_encoder *encoder, struct snug_encoded *out) {
    struct question q = {.where = where};
    json_t *row, *parsed = NULL;
    RETURN_IF_ERROR(snug_object_begin(ctx, where, text, length, encoder, out, &row));
    q.context = text_of(row, contexts);
    q.question = text_of(row, questions);
    q.label = text_of(row, labels);
    snug_status status = read_choices(ctx, &q, row, &parsed);
    if (status == SNUG_OK) status = encode_choices(ctx, encoding, &q, encoder);
    json_decref(parsed);
    json_decref(row);
    free(q.choices);
    free(q.text);
    snug_object_end(encoder, out);
    return status;
}

const struct snug_object_rows snug_choice_rows = {
    .kind = "question with choices",
    .form = SNUG_LABELS_GROUP,
    .nested = nested,
    .columns = "\"sent1\", \"sent2\", \"ending0\", \"ending1\" … and \"label\", as SWAG has them; or \"context\" or "
               "\"question\" or both, \"choices\" and \"label\"",
    .find = find,
    .encode = encode,
};
