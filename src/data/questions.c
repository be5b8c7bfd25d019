/* SPDX-License-Identifier: Apache-2.0 */
#include "data/questions.h"

#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/answers.h"
#include "data/columns.h"
#include "io/json.h"

static const char *const nested[] = {"answers", "paragraphs", NULL};

static bool find_columns(const struct snug_column_names *list, const struct snug_dataset_options *options,
                         struct snug_columns *out) {
    (void)options;
    if (snug_columns_add(list, "paragraphs", out)) return true;
    snug_columns_add(list, "id", out);
    const bool found = snug_columns_add(list, "question", out) && snug_columns_add(list, "context", out);
    snug_columns_add(list, "answers", out);
    return found;
}

/* ---- a question ---- */

struct question {
    const char *where, *id, *question, *context;
    size_t length;         /* of the context */
    const json_t *answers; /* a list of texts; NULL: not known */
    const json_t *starts;  /* where they begin, in characters */
    size_t begin, end;     /* the first answer's bytes; equal: there is none */
};

/* The byte at which character number `at` of the context begins; the length's successor if there is none. */
static size_t byte_of(const struct question *q, int64_t at) {
    size_t byte = 0;
    for (; at > 0 && byte < q->length; at--) do
            byte++;
        while (((unsigned char)q->context[byte] & 0xc0) == 0x80);
    return at ? q->length + 1 : byte;
}

/* "answers" of a row, {"text": [], "answer_start": []}, or of SQuAD's files, [{"text", "answer_start"}]. */
static snug_status read_answers(snug_context *ctx, const json_t *answers, struct question *q, json_t **texts,
                                json_t **starts) {
    for (size_t i = 0; i < json_array_size(answers); i++) {
        const json_t *answer = json_array_get(answers, i), *text = json_object_get(answer, "text"),
                     *start = json_object_get(answer, "answer_start");
        snug_json_append(texts, json_incref((json_t *)(uintptr_t)text));
        snug_json_append(starts, json_incref((json_t *)(uintptr_t)start));
    }
    q->answers = json_is_array(answers) ? *texts : json_object_get(answers, "text");
    q->starts = json_is_array(answers) ? *starts : json_object_get(answers, "answer_start");
    const size_t count = json_array_size(q->answers);
    bool valid = json_is_array(q->answers) && json_array_size(q->starts) == count;
    for (size_t i = 0; i < count && valid; i++)
        valid = json_is_string(json_array_get(q->answers, i)) && json_is_integer(json_array_get(q->starts, i)) &&
                json_integer_value(json_array_get(q->starts, i)) >= 0;
    if (!valid)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: \"answers\" must be {\"text\": [\"…\"], \"answer_start\": [0]}, lists of one length, or "
                         "a list of objects with \"text\" and \"answer_start\"",
                         q->where);
    if (!count) return SNUG_OK;
    const json_t *text = json_array_get(q->answers, 0);
    q->begin = byte_of(q, json_integer_value(json_array_get(q->starts, 0)));
    q->end = q->begin + json_string_length(text);
    if (q->end <= q->length && !memcmp(q->context + q->begin, json_string_value(text), q->end - q->begin))
        return SNUG_OK;
    return snug_fail(
        ctx, SNUG_E_INPUT,
        "%s: the answer \"%s\" is not at character %lld of the context: \"answer_start\" counts characters "
        "from 0",
        q->where, json_string_value(text), (long long)json_integer_value(json_array_get(q->starts, 0)));
}

/* The answer's tokens in the window of tokens [from, from + count) of the context, if all of it is there. */
static void find_answer(const struct question *q, const uint32_t *offsets, uint32_t count, struct snug_answers *out) {
    uint32_t start = 0, end = count;
    if (!q->answers) out->start = SNUG_NO_ANSWER;
    if (q->begin == q->end || !count || offsets[0] > q->begin || offsets[2 * count - 1] < q->end) return;
    while (start < count && offsets[2 * start] <= q->begin) start++;
    while (end > 0 && offsets[2 * end - 1] >= q->end) end--;
    /* The tokens of one character have the same offsets. */
    out->start = out->first + snug_min(start - 1, end);
    out->end = out->first + snug_max(start - 1, end);
}

/* The texts that all windows of a question have. */
static snug_status put_texts(snug_context *ctx, const struct question *q, struct snug_encoder *encoder) {
    encoder->text_size = 0;
    RETURN_IF_ERROR(snug_object_add_text(ctx, q->id, encoder));
    RETURN_IF_ERROR(snug_object_add_text(ctx, q->context, encoder));
    for (size_t i = 0; i < json_array_size(q->answers); i++)
        RETURN_IF_ERROR(snug_object_add_text(ctx, json_string_value(json_array_get(q->answers, i)), encoder));
    return SNUG_OK;
}

/* Appends the window of count tokens of the context, from `from` on. */
static snug_status add_window(snug_context *ctx, const struct snug_encoding *encoding, const struct question *q,
                              size_t from, size_t count, struct snug_encoder *encoder) {
    struct snug_window window = {.ids = encoder->out.count,
                                 .numbers = encoder->number_count,
                                 .number_count = snug_answers_numbers(count, encoder->text_size),
                                 .begins = !from};
    const uint32_t *offsets = count ? (const uint32_t *)encoder->offsets.ids + 2 * from : NULL;
    struct snug_answers answers = {
        .count = (uint32_t)count, .answers = (uint32_t)json_array_size(q->answers), .offsets = offsets};
    size_t first;
    RETURN_IF_ERROR(snug_tokenizer_assemble_pair(ctx, encoding->tokenizer, &encoder->a,
                                                 count ? encoder->b.ids + from : NULL, count, &encoder->out,
                                                 &window.first_count, &first));
    window.count = encoder->out.count - window.ids;
    answers.first = (uint32_t)first;
    find_answer(q, offsets, answers.count, &answers);
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->numbers, &encoder->number_capacity,
                              window.numbers + window.number_count, sizeof *encoder->numbers));
    snug_answers_put(encoder->numbers + window.numbers, &answers, encoder->text, encoder->text_size);
    encoder->number_count += window.number_count;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&encoder->windows, &encoder->window_capacity, encoder->window_count + 1,
                              sizeof *encoder->windows));
    encoder->windows[encoder->window_count++] = window;
    return SNUG_OK;
}

/* As truncation="only_second" with return_overflowing_tokens: neighbours share stride tokens, and the last window ends
   with the context. */
static snug_status add_windows(snug_context *ctx, const struct snug_encoding *encoding, const struct question *q,
                               struct snug_encoder *encoder) {
    const int64_t specials = (int64_t)snug_tokenizer_specials(encoding->tokenizer, true);
    const int64_t room = (int64_t)encoding->max_length - specials - (int64_t)encoder->a.count;
    const size_t all = encoder->b.count;
    if (room <= encoding->stride && (int64_t)all > room)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: the question's %zu tokens leave %lld of --max_seq_length %zu for its context, and "
                         "windows share %lld: make --max_seq_length larger, or --doc_stride smaller",
                         q->where, encoder->a.count, (long long)(room > 0 ? room : 0), encoding->max_length,
                         (long long)encoding->stride);
    RETURN_IF_ERROR(put_texts(ctx, q, encoder));
    for (size_t from = 0;; from += (size_t)(room - encoding->stride)) {
        const size_t left = all - from, count = left < (size_t)room ? left : (size_t)room;
        RETURN_IF_ERROR(add_window(ctx, encoding, q, from, count, encoder));
        if (count == left) return SNUG_OK;
    }
}

static snug_status encode_question(snug_context *ctx, const struct snug_encoding *encoding, const struct question *q,
                                   struct snug_encoder *encoder) {
    const struct snug_tokenizer *tokenizer = encoding->tokenizer;
    const char *text = q->question + strspn(q->question, " \t\r\n"); /* run_qa.py removes white space before it */
    encoder->a.count = encoder->b.count = encoder->offsets.count = 0;
    RETURN_IF_ERROR(snug_tokenizer_encode(ctx, tokenizer, text, strlen(text), &encoder->a));
    RETURN_IF_ERROR(snug_tokenizer_encode(ctx, tokenizer, q->context, q->length, &encoder->b));
    RETURN_IF_ERROR(snug_tokenizer_offsets(ctx, tokenizer, q->context, q->length, encoder->b.ids, encoder->b.count,
                                           &encoder->offsets));
    return add_windows(ctx, encoding, q, encoder);
}

static snug_status text_of(snug_context *ctx, const char *where, const json_t *row, const char *column,
                           const char **out) {
    RETURN_IF_ERROR(snug_json_string(ctx, where, row, column, NULL, out));
    return *out ? SNUG_OK : snug_fail(ctx, SNUG_E_INPUT, "%s: a question needs \"%s\", a text", where, column);
}

static snug_status read_question(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                 const json_t *row, const char *context, struct snug_encoder *encoder) {
    const json_t *answers = json_object_get(row, "answers");
    struct question q = {.where = where, .context = context};
    json_t *texts = json_array(), *starts = json_array();
    snug_status status = text_of(ctx, where, row, "question", &q.question);
    if (status == SNUG_OK) status = snug_json_string(ctx, where, row, "id", "", &q.id);
    q.length = strlen(context);
    if (status == SNUG_OK && answers && !json_is_null(answers))
        status = read_answers(ctx, answers, &q, &texts, &starts);
    if (status == SNUG_OK) status = encode_question(ctx, encoding, &q, encoder);
    json_decref(texts);
    json_decref(starts);
    return status;
}

/* ---- a row ---- */

/* The questions of an article of SQuAD. */
static snug_status read_paragraphs(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                   const json_t *paragraphs, struct snug_encoder *encoder) {
    for (size_t i = 0; i < json_array_size(paragraphs); i++) {
        const json_t *paragraph = json_array_get(paragraphs, i), *questions = json_object_get(paragraph, "qas");
        const char *context;
        RETURN_IF_ERROR(text_of(ctx, where, paragraph, "context", &context));
        if (!json_is_array(questions))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: paragraph %zu needs \"qas\", a list of questions", where, i + 1);
        for (size_t k = 0; k < json_array_size(questions); k++)
            RETURN_IF_ERROR(read_question(ctx, encoding, where, json_array_get(questions, k), context, encoder));
    }
    return SNUG_OK;
}

static snug_status read_row(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                            const json_t *row, struct snug_encoder *encoder) {
    const json_t *paragraphs = json_object_get(row, "paragraphs");
    const char *context;
    if (paragraphs) return read_paragraphs(ctx, encoding, where, paragraphs, encoder);
    RETURN_IF_ERROR(text_of(ctx, where, row, "context", &context));
    return read_question(ctx, encoding, where, row, context, encoder);
}

static snug_status encode(snug_context *ctx, const struct snug_encoding *encoding, const char *where, const char *text,
                          size_t length, struct snug_encoder *encoder, struct snug_encoded *out) {
    json_t *json;
    RETURN_IF_ERROR(snug_object_begin(ctx, where, text, length, encoder, out, &json));
    const snug_status status = read_row(ctx, encoding, where, json, encoder);
    json_decref(json);
    snug_object_end(encoder, out);
    return status;
}

const struct snug_object_rows snug_question_rows = {
    .kind = "question",
    .form = SNUG_LABELS_ANSWERS,
    .nested = nested,
    .columns = "\"question\" and \"context\", or \"paragraphs\", as SQuAD's files have them",
    .find = find_columns,
    .encode = encode,
};
