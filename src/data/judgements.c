/* SPDX-License-Identifier: Apache-2.0 */
#include "data/judgements.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "data/numbers.h"
#include "data/reader.h"
#include "tokenizer/hash_map.h"

/* A judgement of relevance: places of its identifiers, then their numbers. */
struct judgement {
    size_t query, document;
    int64_t line;
};

/* The identifiers of one kind that judgements have, and where they are. */
struct identifiers {
    const char *path;         /* the file that defines them */
    struct snug_hash_map map; /* to their numbers */
    int64_t *rows, *lines;    /* [map.count] by number; -1: not found yet */
    int64_t all;              /* rows of the file */
};

struct reading {
    snug_context *ctx;
    const struct snug_retrieval_files *files;
    char *texts; /* identifiers of judgements, each with a NUL */
    size_t size, capacity;
    struct judgement *judgements;
    size_t count, judgement_capacity;
    struct identifiers queries, documents;
    bool titled;
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static snug_status open_reader(const struct reading *r, const char *path, struct snug_reader **out) {
    const struct snug_reader_options options = {.strict = r->files->strict, .quiet = true};
    return snug_reader_open(r->ctx, path, &options, out);
}

static bool find_column(const struct snug_reader *reader, const char *name, size_t *out) {
    *out = snug_reader_find(reader, name, strlen(name));
    return *out != SIZE_MAX;
}

static snug_status fail_column(const struct reading *r, const char *path, const char *what) {
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s: there is no column %s", path, what);
}

/* ---- judgements -------------------------------------------------------------------------------------------------- */

static snug_status keep_text(struct reading *r, const struct snug_field *field, size_t *place) {
    RETURN_IF_ERROR(snug_grow(r->ctx, (void **)&r->texts, &r->capacity, r->size + field->length + 1, 1));
    memcpy(r->texts + r->size, field->text, field->length);
    r->texts[r->size + field->length] = '\0';
    *place = r->size;
    r->size += field->length + 1;
    return SNUG_OK;
}

struct judgement_columns {
    size_t query, document, score;
    bool scored;
};

static snug_status take_judgement(struct reading *r, const struct judgement_columns *columns,
                                  const struct snug_row *row) {
    const char *path = r->files->relevance;
    const struct snug_field *query = &row->fields[columns->query], *document = &row->fields[columns->document];
    if (!snug_field_is_text(query) || !snug_field_is_text(document))
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no %s: give the identifier of a %s", path,
                         row->line, snug_field_is_text(query) ? "corpus-id" : "query-id",
                         snug_field_is_text(query) ? "document" : "query");
    if (columns->scored) {
        const struct snug_field *score = &row->fields[columns->score];
        if (!snug_field_is_text(score) || snug_number_kind(score->text) == SNUG_NUMBER_NONE)
            return snug_fail(r->ctx, SNUG_E_INPUT,
                             "%s:%" PRId64 ": the score must be a number, above 0 where the document is relevant", path,
                             row->line);
        if (!(strtod(score->text, NULL) > 0)) return SNUG_OK;
    }
    RETURN_IF_ERROR(
        snug_grow(r->ctx, (void **)&r->judgements, &r->judgement_capacity, r->count + 1, sizeof *r->judgements));
    struct judgement *judgement = &r->judgements[r->count++];
    judgement->line = row->line;
    RETURN_IF_ERROR(keep_text(r, query, &judgement->query));
    return keep_text(r, document, &judgement->document);
}

static snug_status read_rows(struct reading *r, struct snug_reader *reader) {
    struct judgement_columns columns;
    struct snug_row row;
    snug_status status;
    if (!find_column(reader, "query-id", &columns.query))
        return fail_column(r, r->files->relevance, "query-id: judgements have the columns query-id, corpus-id, score");
    if (!find_column(reader, "corpus-id", &columns.document))
        return fail_column(r, r->files->relevance, "corpus-id: judgements have the columns query-id, corpus-id, score");
    columns.scored = find_column(reader, "score", &columns.score);
    while ((status = snug_reader_next(reader, &row)) == SNUG_OK) RETURN_IF_ERROR(take_judgement(r, &columns, &row));
    if (status != SNUG_END) return status;
    if (r->count) return SNUG_OK;
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s: no judgement says that a document is relevant, with a score above 0",
                     r->files->relevance);
}

static snug_status read_judgements(struct reading *r) {
    struct snug_reader *reader;
    RETURN_IF_ERROR(open_reader(r, r->files->relevance, &reader));
    const snug_status status = read_rows(r, reader);
    snug_reader_close(reader);
    return status;
}

/* ---- identifiers ------------------------------------------------------------------------------------------------- */

/* Replaces the place of an identifier by its number. */
static snug_status number_identifier(const struct reading *r, struct identifiers *ids, size_t *identifier) {
    const char *text = r->texts + *identifier;
    const int32_t next = (int32_t)ids->map.count;
    int32_t before;
    RETURN_IF_ERROR(snug_hash_map_add(r->ctx, &ids->map, text, strlen(text), next, &before));
    *identifier = (size_t)(before < 0 ? next : before);
    return SNUG_OK;
}

static snug_status open_identifiers(const struct reading *r, struct identifiers *ids) {
    const size_t count = ids->map.count;
    RETURN_IF_ERROR(snug_alloc(r->ctx, count, sizeof *ids->rows, (void **)&ids->rows));
    RETURN_IF_ERROR(snug_alloc(r->ctx, count, sizeof *ids->lines, (void **)&ids->lines));
    memset(ids->rows, -1, count * sizeof *ids->rows);
    return SNUG_OK;
}

static snug_status number_all(struct reading *r) {
    if (r->count > INT32_MAX)
        return snug_fail(r->ctx, SNUG_E_UNSUPPORTED, "%s: %zu judgements are too many", r->files->relevance, r->count);
    for (size_t i = 0; i < r->count; i++) {
        RETURN_IF_ERROR(number_identifier(r, &r->queries, &r->judgements[i].query));
        RETURN_IF_ERROR(number_identifier(r, &r->documents, &r->judgements[i].document));
    }
    RETURN_IF_ERROR(open_identifiers(r, &r->queries));
    return open_identifiers(r, &r->documents);
}

static snug_status find_row(const struct reading *r, struct identifiers *ids, const struct snug_field *field,
                            const struct snug_row *row) {
    if (!snug_field_is_text(field))
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the row has no identifier in its column _id", ids->path,
                         row->line);
    const int32_t number = snug_hash_map_find(&ids->map, "", 0, field->text, field->length);
    if (number < 0) return SNUG_OK;
    if (ids->rows[number] >= 0)
        return snug_fail(r->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": the identifier \"%s\" is also that of line %" PRId64,
                         ids->path, row->line, field->text, ids->lines[number]);
    ids->rows[number] = row->index;
    ids->lines[number] = row->line;
    return SNUG_OK;
}

static snug_status find_rows(struct reading *r, struct identifiers *ids, struct snug_reader *reader) {
    size_t column;
    struct snug_row row;
    snug_status status;
    if (!find_column(reader, "_id", &column) && !find_column(reader, "id", &column))
        return fail_column(r, ids->path, "_id, of identifiers");
    if (ids == &r->documents) r->titled = find_column(reader, "title", &(size_t){0});
    while ((status = snug_reader_next(reader, &row)) == SNUG_OK) {
        RETURN_IF_ERROR(find_row(r, ids, &row.fields[column], &row));
        if (ids->all++ % 4096 == 0 && snug_stop_asked(r->ctx))
            return snug_fail(r->ctx, SNUG_E_INTERRUPTED, "interrupted while %s was read", ids->path);
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status read_identifiers(struct reading *r, struct identifiers *ids) {
    struct snug_reader *reader;
    RETURN_IF_ERROR(open_reader(r, ids->path, &reader));
    const snug_status status = find_rows(r, ids, reader);
    snug_reader_close(reader);
    return status;
}

static snug_status check_found(const struct reading *r, const struct identifiers *ids, const char *column,
                               size_t number, int64_t line) {
    if (ids->rows[number] >= 0) return SNUG_OK;
    return snug_fail(r->ctx, SNUG_E_INPUT, "%s:%" PRId64 ": %s \"%s\" is not in %s", r->files->relevance, line, column,
                     ids->map.entries[number].text, ids->path);
}

/* ---- their lists ------------------------------------------------------------------------------------------------- */

struct pair {
    int64_t query, document; /* rows */
};

static int compare_pairs(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    if (x->query != y->query) return (x->query > y->query) - (x->query < y->query);
    return (x->document > y->document) - (x->document < y->document);
}

/* Sorted, and each once. */
static snug_status make_pairs(const struct reading *r, struct pair *pairs, size_t *count) {
    for (size_t i = 0; i < r->count; i++) {
        const struct judgement *j = &r->judgements[i];
        RETURN_IF_ERROR(check_found(r, &r->queries, "query-id", j->query, j->line));
        RETURN_IF_ERROR(check_found(r, &r->documents, "corpus-id", j->document, j->line));
        pairs[i] = (struct pair){r->queries.rows[j->query], r->documents.rows[j->document]};
    }
    qsort(pairs, r->count, sizeof *pairs, compare_pairs);
    *count = 0;
    for (size_t i = 0; i < r->count; i++)
        if (!i || compare_pairs(&pairs[i], &pairs[*count - 1]) != 0) pairs[(*count)++] = pairs[i];
    return SNUG_OK;
}

static snug_status list(const struct reading *r, int64_t most, struct pair *pairs, struct snug_judgements *out) {
    const size_t queries = r->queries.map.count;
    size_t count;
    RETURN_IF_ERROR(make_pairs(r, pairs, &count));
    RETURN_IF_ERROR(snug_alloc(r->ctx, queries, sizeof *out->rows, (void **)&out->rows));
    RETURN_IF_ERROR(snug_alloc(r->ctx, queries + 1, sizeof *out->begin, (void **)&out->begin));
    RETURN_IF_ERROR(snug_alloc(r->ctx, count, sizeof *out->documents, (void **)&out->documents));
    for (size_t i = 0; i < count; i++) {
        const bool first = !i || pairs[i].query != pairs[i - 1].query;
        if (first && out->queries == most) break;
        if (first) out->rows[out->queries++] = pairs[i].query;
        out->documents[i] = pairs[i].document;
        out->begin[out->queries] = (int64_t)i + 1;
    }
    out->query_rows = r->queries.all;
    out->corpus_rows = r->documents.all;
    out->titled = r->titled;
    return SNUG_OK;
}

static snug_status read_all(struct reading *r, int64_t most, struct snug_judgements *out) {
    struct pair *pairs;
    RETURN_IF_ERROR(read_judgements(r));
    RETURN_IF_ERROR(number_all(r));
    RETURN_IF_ERROR(read_identifiers(r, &r->queries));
    RETURN_IF_ERROR(read_identifiers(r, &r->documents));
    RETURN_IF_ERROR(snug_alloc(r->ctx, r->count, sizeof *pairs, (void **)&pairs));
    const snug_status status = list(r, most, pairs, out);
    free(pairs);
    return status;
}

static void free_identifiers(struct identifiers *ids) {
    snug_hash_map_free(&ids->map);
    free(ids->rows);
    free(ids->lines);
}

snug_status snug_judgements_read(snug_context *ctx, const struct snug_retrieval_files *files, int64_t most,
                                 struct snug_judgements *out) {
    struct reading r = {
        .ctx = ctx, .files = files, .queries = {.path = files->queries}, .documents = {.path = files->corpus}};
    *out = (struct snug_judgements){0};
    const snug_status status = read_all(&r, most, out);
    free_identifiers(&r.queries);
    free_identifiers(&r.documents);
    free(r.judgements);
    free(r.texts);
    return status;
}

void snug_judgements_free(struct snug_judgements *judgements) {
    free(judgements->rows);
    free(judgements->begin);
    free(judgements->documents);
    *judgements = (struct snug_judgements){0};
}

bool snug_judgements_has(const struct snug_judgements *judgements, int64_t query, int64_t document) {
    int64_t first = judgements->begin[query], end = judgements->begin[query + 1];
    while (first < end) {
        const int64_t middle = (first + end) / 2;
        if (judgements->documents[middle] < document)
            first = middle + 1;
        else
            end = middle;
    }
    return first < judgements->begin[query + 1] && judgements->documents[first] == document;
}

uint64_t snug_judgements_digest(const struct snug_judgements *judgements) {
    const size_t queries = (size_t)judgements->queries, documents = (size_t)judgements->begin[queries];
    const uint64_t seed = XXH3_64bits(judgements->begin, (queries + 1) * sizeof *judgements->begin);
    return XXH3_64bits_withSeed(judgements->documents, documents * sizeof *judgements->documents, seed);
}
