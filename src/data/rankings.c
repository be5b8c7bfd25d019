/* SPDX-License-Identifier: Apache-2.0 */
#include "data/rankings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "data/groups.h"
#include "io/json.h"

static const char *const nested[] = {"docs",   "documents", "passages", "labels",   "label",
                                     "scores", "score",     "positive", "negative", NULL};

static const char *const queries[] = {"query", "question", "anchor", "sentence1", NULL};
static const char *const single[] = {"document", "passage", "doc", "answer", "response", "sentence2", "text", NULL};
static const char *const lists[] = {"docs", "documents", "passages", NULL};
static const char *const labels[] = {"labels", "label", "scores", "score", NULL};

struct negative {
    char text[32];
};
static struct negative negative_name(size_t number) {
    struct negative name = {"negative"};
    if (number) snprintf(name.text, sizeof name.text, "negative_%zu", number);
    return name;
}

static bool find(const struct snug_column_names *list, const struct snug_dataset_options *options,
                 struct snug_columns *out) {
    const bool query = options->query || snug_columns_add_any(list, queries, out);
    bool documents = snug_columns_add_any(list, lists, out);
    const bool positive = snug_columns_add(list, "positive", out);
    documents |= positive && snug_columns_add(list, negative_name(0).text, out);
    for (size_t i = 1; positive && snug_columns_add(list, negative_name(i).text, out); i++) documents = true;
    if (!positive && !documents) documents = snug_columns_add_any(list, single, out);
    const bool labelled = snug_columns_add_any(list, labels, out);
    documents |= positive && labelled; /* relevant ones alone would teach that all are */
    return query && documents && out->texts < SNUG_TEXTS_MOST;
}

/* ---- a row ------------------------------------------------------------------------------------------------------ */

struct ranking {
    const char *where, *query;
    const char **documents; /* [count] */
    float *targets;         /* [count] */
    size_t count, capacity, target_capacity;
    bool labelled;
};

static snug_status add_document(snug_context *ctx, struct ranking *r, const json_t *text, float target) {
    if (!json_is_string(text))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: document %zu must be a text", r->where, r->count);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&r->documents, &r->capacity, r->count + 1, sizeof *r->documents));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&r->targets, &r->target_capacity, r->count + 1, sizeof *r->targets));
    r->targets[r->count] = target;
    r->documents[r->count++] = json_string_value(text);
    return SNUG_OK;
}

/* A text, or a list of texts. */
static snug_status add_documents(snug_context *ctx, struct ranking *r, const json_t *value, float target) {
    size_t i;
    json_t *text;
    if (!json_is_array(value)) return add_document(ctx, r, value, target);
    json_array_foreach((json_t *)(uintptr_t)value, i, text) RETURN_IF_ERROR(add_document(ctx, r, text, target));
    return SNUG_OK;
}

static const json_t *member(const json_t *row, const char *const names[]) {
    for (; *names; names++) {
        const json_t *value = json_object_get(row, *names);
        if (value && !json_is_null(value)) return value;
    }
    return NULL;
}

/* A number, also as a text; NaN: it is none. */
static float number_of(const json_t *value) {
    char *end;
    if (json_is_number(value)) return (float)json_number_value(value);
    if (json_is_boolean(value)) return json_is_true(value);
    const char *text = json_string_value(value);
    if (!text || !*text) return NAN;
    const float number = strtof(text, &end);
    return *end ? NAN : number;
}

static snug_status read_documents(snug_context *ctx, const json_t *row, struct ranking *r) {
    const json_t *positive = json_object_get(row, "positive"), *list = member(row, lists), *one = member(row, single);
    if (!positive) return add_documents(ctx, r, list ? list : one, 0);
    RETURN_IF_ERROR(add_documents(ctx, r, positive, 1));
    for (size_t i = 0;; i++) {
        const json_t *value = json_object_get(row, negative_name(i).text);
        if (value) RETURN_IF_ERROR(add_documents(ctx, r, value, 0));
        if (!value && i) break;
    }
    for (size_t i = 0; i < json_array_size(list); i++) { /* as sentence-transformers' evaluator */
        const json_t *text = json_array_get(list, i);
        bool known = false;
        for (size_t k = 0; json_is_string(text) && k < r->count; k++)
            known |= strcmp(r->documents[k], json_string_value(text)) == 0;
        if (!known) RETURN_IF_ERROR(add_document(ctx, r, text, 0));
    }
    r->labelled = true;
    return SNUG_OK;
}

/* Of a list of labels, or of a single one. */
static size_t label_count(const json_t *label) { return json_is_array(label) ? json_array_size(label) : 1; }
static float label_at(const json_t *label, size_t i) {
    return number_of(json_is_array(label) ? json_array_get(label, i) : label);
}

/* Margins of the first document over the others, or scores, of which they are the differences. */
static snug_status take_margins(snug_context *ctx, const json_t *label, struct ranking *r) {
    const size_t given = label_count(label);
    if (r->count < 2 || (given != r->count && given != r->count - 1))
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: %zu labels of %zu documents: margins are those of the first document over each other, or "
                         "the differences of as many scores as there are documents",
                         r->where, given, r->count);
    for (size_t i = 1; i < r->count; i++)
        r->targets[i] = given == r->count ? label_at(label, 0) - label_at(label, i) : label_at(label, i - 1);
    r->targets[0] = 0;
    return SNUG_OK;
}

static snug_status take_labels(snug_context *ctx, const struct snug_encoding *encoding, const json_t *row,
                               struct ranking *r) {
    const json_t *label = member(row, labels);
    const bool margins = encoding->ranking_loss == SNUG_RANKING_MARGIN;
    if (!label || (json_is_string(label) && !json_string_length(label))) {
        if (!r->labelled || !margins || !encoding->need_labels) return SNUG_OK;
        return snug_fail(ctx, SNUG_E_INPUT, "%s: --ranking_loss margin needs a label, the margin", r->where);
    }
    r->labelled = true;
    if (margins) return take_margins(ctx, label, r);
    if (label_count(label) != r->count)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: %zu labels of %zu documents: each must have one", r->where,
                         label_count(label), r->count);
    for (size_t i = 0; i < r->count; i++) r->targets[i] = label_at(label, i);
    return SNUG_OK;
}

static snug_status check(snug_context *ctx, const struct snug_encoding *encoding, const struct ranking *r) {
    const bool binary = encoding->ranking_loss == SNUG_RANKING_BINARY;
    if (!r->query) return snug_fail(ctx, SNUG_E_INPUT, "%s: the row has no query", r->where);
    if (!r->count || r->count > SNUG_GROUP_MOST)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the row has %zu documents, and must have 1 to %d", r->where, r->count,
                         (int)SNUG_GROUP_MOST);
    if (!r->labelled && encoding->need_labels)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: the row has no label: each document needs one, a number", r->where);
    for (size_t i = 0; i < r->count; i++) {
        const float target = r->targets[i];
        if (!isfinite(target)) return snug_fail(ctx, SNUG_E_INPUT, "%s: label %zu is no number", r->where, i);
        if (binary && encoding->need_labels && (target < 0 || target > 1))
            return snug_fail(ctx, SNUG_E_INPUT,
                             "%s: the label %g is not from 0 to 1, as --ranking_loss binary takes them; listnet takes "
                             "any number",
                             r->where, (double)target);
    }
    return SNUG_OK;
}

static snug_status read_row(snug_context *ctx, const struct snug_encoding *encoding, const json_t *row,
                            struct ranking *r, struct snug_encoder *encoder) {
    RETURN_IF_ERROR(read_documents(ctx, row, r));
    RETURN_IF_ERROR(take_labels(ctx, encoding, row, r));
    RETURN_IF_ERROR(check(ctx, encoding, r));
    RETURN_IF_ERROR(snug_group_begin(ctx, r->count, r->labelled, XXH3_64bits(r->query, strlen(r->query)), encoder));
    for (size_t i = 0; i < r->count; i++)
        RETURN_IF_ERROR(snug_group_add(ctx, encoding, r->query, r->documents[i], r->targets[i], encoder));
    for (size_t i = 0; i < r->count && encoding->keep_texts; i++)
        RETURN_IF_ERROR(snug_object_add_text(ctx, r->documents[i], encoder));
    return snug_group_end(ctx, encoder);
}

static snug_status encode(snug_context *ctx, const struct snug_encoding *encoding, const char *where, const char *text,
                          size_t length, struct snug_encoder *encoder, struct snug_encoded *out) {
    struct ranking r = {.where = where};
    json_t *row;
    RETURN_IF_ERROR(snug_object_begin(ctx, where, text, length, encoder, out, &row));
    r.query = encoding->query ? encoding->query : json_string_value(member(row, queries));
    const snug_status status = read_row(ctx, encoding, row, &r, encoder);
    json_decref(row);
    free(r.documents);
    free(r.targets);
    snug_object_end(encoder, out);
    return status;
}

const struct snug_object_rows snug_ranking_rows = {
    .kind = "query with documents",
    .form = SNUG_LABELS_GROUP,
    .nested = nested,
    .columns =
        "\"query\", and \"document\" and \"label\", or \"docs\" and \"labels\", or \"positive\" and \"negative\"",
    .find = find,
    .encode = encode,
};
