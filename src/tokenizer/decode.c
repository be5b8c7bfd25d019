/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/decode.h"

#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Pieces of text, one after another. */
struct pieces {
    struct snug_text text;
    size_t *ends; /* [count] */
    size_t count, capacity;
};

snug_status snug_decoder_add(snug_context *ctx, struct snug_decoder *decoder, const struct snug_decoder_step *step) {
    struct snug_decoder_step added = *step;
    const snug_status status =
        snug_grow(ctx, (void **)&decoder->steps, &decoder->capacity, decoder->count + 1, sizeof *decoder->steps);
    if (status == SNUG_OK)
        decoder->steps[decoder->count++] = added;
    else
        snug_decoder_step_free(&added);
    return status;
}

void snug_decoder_step_free(struct snug_decoder_step *step) {
    free(step->text);
    free(step->content);
    snug_regex_free(step->regex);
}

void snug_decoder_free(struct snug_decoder *decoder) {
    for (size_t i = 0; i < decoder->count; i++) snug_decoder_step_free(&decoder->steps[i]);
    free(decoder->steps);
    *decoder = (struct snug_decoder){0};
}

static snug_status put(snug_context *ctx, struct snug_text *out, const char *text, size_t length) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->text, &out->capacity, out->length + length + 1, 1));
    if (length) memcpy(out->text + out->length, text, length);
    out->length += length;
    out->text[out->length] = '\0';
    return SNUG_OK;
}

static snug_status end_piece(snug_context *ctx, struct pieces *out) {
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&out->ends, &out->capacity, out->count + 1, sizeof *out->ends));
    out->ends[out->count++] = out->text.length;
    return SNUG_OK;
}

/* Puts text with `from` in place of each `pattern`. */
static snug_status put_replaced(snug_context *ctx, struct snug_text *out, const char *text, size_t length,
                                const char *pattern, size_t pattern_length, const char *by, size_t by_length) {
    for (size_t at = 0; at < length;) {
        const char *found = memmem(text + at, length - at, pattern, pattern_length);
        const size_t stop = found ? (size_t)(found - text) : length;
        RETURN_IF_ERROR(put(ctx, out, text + at, stop - at));
        if (found) RETURN_IF_ERROR(put(ctx, out, by, by_length));
        at = found ? stop + pattern_length : length;
    }
    return SNUG_OK;
}

/* ---- steps that see all pieces ---- */

/* A token with a character outside the alphabet stands for itself. */
static snug_status decode_bytes(snug_context *ctx, const struct pieces *from, struct pieces *out) {
    uint16_t byte_of[512];
    struct snug_text bytes = {0};
    char *repaired = NULL;
    size_t length = 0;
    snug_status status = put(ctx, &bytes, "", 0);
    snug_bpe_alphabet(byte_of);
    for (size_t i = 0, start = 0; i < from->count && status == SNUG_OK; start = from->ends[i++]) {
        const size_t before = bytes.length;
        bool all = true;
        for (size_t at = start; at < from->ends[i] && all && status == SNUG_OK;) {
            const uint32_t code = snug_utf8_next(from->text.text, &at);
            const char byte = (char)(code < 512 ? byte_of[code] : 0);
            all = code < 512 && byte_of[code] < 256;
            status = put(ctx, &bytes, &byte, 1);
        }
        if (all) continue;
        bytes.length = before;
        if (status == SNUG_OK) status = put(ctx, &bytes, from->text.text + start, from->ends[i] - start);
    }
    if (status == SNUG_OK) status = snug_utf8_repair(ctx, bytes.text, bytes.length, &repaired, &length);
    free(bytes.text);
    RETURN_IF_ERROR(status);
    status = put(ctx, &out->text, repaired, length);
    free(repaired);
    return status == SNUG_OK ? end_piece(ctx, out) : status;
}

int snug_byte_token(const char *token, size_t length) {
    char *end;
    if (length != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>' || !strchr("0123456789abcdefABCDEF", token[3]))
        return -1;
    const char digits[] = {token[3], token[4], '\0'};
    const long byte = strtol(digits, &end, 16);
    return *end ? -1 : (int)byte;
}

/* The bytes since `begin` become a piece if they are UTF-8, else as many pieces U+FFFD. */
static snug_status end_bytes(snug_context *ctx, struct pieces *out, size_t begin) {
    const size_t count = out->text.length - begin;
    if (!count) return SNUG_OK;
    if (snug_utf8_invalid(out->text.text + begin, count) == count) return end_piece(ctx, out);
    out->text.length = begin;
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_ERROR(put(ctx, &out->text, "\xef\xbf\xbd", 3));
        RETURN_IF_ERROR(end_piece(ctx, out));
    }
    return SNUG_OK;
}

static snug_status decode_fallback(snug_context *ctx, const struct pieces *from, struct pieces *out) {
    size_t begin = 0; /* of the bytes in out that are not a piece yet */
    for (size_t i = 0, start = 0; i < from->count; start = from->ends[i++]) {
        const char *token = from->text.text + start;
        const size_t length = from->ends[i] - start;
        const int byte = snug_byte_token(token, length);
        if (byte >= 0) {
            RETURN_IF_ERROR(put(ctx, &out->text, &(char){(char)byte}, 1));
            continue;
        }
        RETURN_IF_ERROR(end_bytes(ctx, out, begin));
        RETURN_IF_ERROR(put(ctx, &out->text, token, length));
        RETURN_IF_ERROR(end_piece(ctx, out));
        begin = out->text.length;
    }
    return end_bytes(ctx, out, begin);
}

/* ---- steps of one piece ---- */

/* What transformers and WordPiece of the library remove, in this order; " do not" is of the library alone. */
static const char *const cleanings[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

static snug_status clean(snug_context *ctx, bool library, size_t from, struct snug_text *text) {
    struct snug_text spare = {0};
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < COUNT(cleanings) && status == SNUG_OK; i++) {
        const char *pattern = cleanings[i][0], *by = cleanings[i][1];
        const size_t length = text->length - from;
        if ((!library && pattern[1] == 'd') || !memmem(text->text + from, length, pattern, strlen(pattern))) continue;
        spare.length = 0;
        status = put_replaced(ctx, &spare, text->text + from, length, pattern, strlen(pattern), by, strlen(by));
        text->length = from;
        if (status == SNUG_OK) status = put(ctx, text, spare.text, spare.length);
    }
    free(spare.text);
    return status;
}

snug_status snug_decode_clean(snug_context *ctx, struct snug_text *text) { return clean(ctx, false, 0, text); }

static snug_status decode_wordpiece(snug_context *ctx, const struct snug_decoder_step *step, const char *token,
                                    size_t length, bool first, struct snug_text *out) {
    const size_t from = out->length;
    const bool continues = !first && length >= step->text_length && !memcmp(token, step->text, step->text_length);
    if (!first && !continues) RETURN_IF_ERROR(put(ctx, out, " ", 1));
    const size_t skipped = continues ? step->text_length : 0;
    RETURN_IF_ERROR(put(ctx, out, token + skipped, length - skipped));
    return step->cleans ? clean(ctx, true, from, out) : SNUG_OK;
}

static bool begins_with(const struct snug_decoder_step *step, const char *text, size_t length) {
    return length >= step->text_length && !memcmp(text, step->text, step->text_length);
}

static snug_status decode_strip(snug_context *ctx, const struct snug_decoder_step *step, const char *token,
                                size_t length, struct snug_text *out) {
    size_t begin = 0;
    for (int64_t i = 0; i < step->start && begins_with(step, token + begin, length - begin); i++)
        begin += step->text_length;
    for (int64_t i = 0; i < step->stop && length - begin >= step->text_length; i++) {
        if (!begins_with(step, token + length - step->text_length, step->text_length)) break;
        length -= step->text_length;
    }
    return put(ctx, out, token + begin, length - begin);
}

static snug_status decode_regex(snug_context *ctx, const struct snug_decoder_step *step, const char *token,
                                size_t length, struct snug_text *out) {
    struct snug_regex_scratch scratch = {0};
    size_t at = 0, start, end;
    snug_status status;
    while ((status = snug_regex_find(ctx, step->regex, token, length, at, &scratch, &start, &end)) == SNUG_OK) {
        status = put(ctx, out, token + at, start - at);
        if (status == SNUG_OK) status = put(ctx, out, step->content, step->content_length);
        if (status != SNUG_OK) break;
        at = end;
    }
    snug_regex_scratch_free(&scratch);
    return status == SNUG_END ? put(ctx, out, token + at, length - at) : status;
}

static snug_status decode_piece(snug_context *ctx, const struct snug_decoder_step *step, const char *token,
                                size_t length, bool first, bool last, struct snug_text *out) {
    const char *by = step->content;
    size_t by_length = step->content_length;
    switch (step->kind) {
    case SNUG_DECODING_WORDPIECE: return decode_wordpiece(ctx, step, token, length, first, out);
    case SNUG_DECODING_STRIP: return decode_strip(ctx, step, token, length, out);
    case SNUG_DECODING_METASPACE:
        by = " ";
        by_length = !(first && step->drops_first);
        break;
    case SNUG_DECODING_BPE:
        by = " ";
        by_length = !last;
        break;
    default:
        if (step->regex) return decode_regex(ctx, step, token, length, out);
        break;
    }
    return put_replaced(ctx, out, token, length, step->text, step->text_length, by, by_length);
}

static snug_status run(snug_context *ctx, const struct snug_decoder_step *step, const struct pieces *from,
                       struct pieces *out) {
    out->text.length = out->count = 0;
    switch (step->kind) {
    case SNUG_DECODING_BYTE_LEVEL: return decode_bytes(ctx, from, out);
    case SNUG_DECODING_BYTE_FALLBACK: return decode_fallback(ctx, from, out);
    case SNUG_DECODING_FUSE:
        RETURN_IF_ERROR(put(ctx, &out->text, from->text.text, from->text.length));
        return end_piece(ctx, out);
    default: break;
    }
    for (size_t i = 0, start = 0; i < from->count; start = from->ends[i++]) {
        RETURN_IF_ERROR(decode_piece(ctx, step, from->text.text + start, from->ends[i] - start, i == 0,
                                     i + 1 == from->count, &out->text));
        RETURN_IF_ERROR(end_piece(ctx, out));
    }
    return SNUG_OK;
}

static snug_status decode(snug_context *ctx, const struct snug_decoder *decoder, const char *const *tokens,
                          size_t count, struct pieces lists[2], struct snug_text *out) {
    int now = 0;
    for (size_t i = 0; i < count; i++) {
        if (i && !decoder->count) RETURN_IF_ERROR(put(ctx, &lists[0].text, " ", 1));
        RETURN_IF_ERROR(put(ctx, &lists[0].text, tokens[i], strlen(tokens[i])));
        RETURN_IF_ERROR(end_piece(ctx, &lists[0]));
    }
    for (size_t i = 0; i < decoder->count; i++, now = !now)
        RETURN_IF_ERROR(run(ctx, &decoder->steps[i], &lists[now], &lists[!now]));
    out->length = 0;
    return put(ctx, out, lists[now].text.text, lists[now].text.length);
}

snug_status snug_decode(snug_context *ctx, const struct snug_decoder *decoder, const char *const *tokens, size_t count,
                        struct snug_text *out) {
    struct pieces lists[2] = {{.count = 0}};
    const snug_status status = decode(ctx, decoder, tokens, count, lists, out);
    for (int i = 0; i < 2; i++) {
        free(lists[i].text.text);
        free(lists[i].ends);
    }
    return status;
}
