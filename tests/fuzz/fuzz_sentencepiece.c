/* SPDX-License-Identifier: Apache-2.0 */
/* A SentencePiece model and a text: the first byte is the length of the text, which follows; the rest is the model. The
   ids are compared with those of an exhaustive search, which tries the pieces in the library's order. */
#include "core/utf8.h"
#include "core/utf8_repair.h"
#include "fuzz.h"
#include "tokenizer/precompiled.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/unigram.h"

enum { MOST = 256 };

/* The best path to a position. */
struct best {
    double score;
    size_t start; /* of its last piece */
    int64_t id;   /* -1: no path yet */
};

static void improve(struct best *best, double score, size_t start, int64_t id) {
    if (best->id < 0 || score > best->score) *best = (struct best){score, start, id};
}

static size_t character_length(const char *text, size_t length) {
    size_t size = 1;
    while (size < length && ((unsigned char)text[size] & 0xC0) == 0x80) size++;
    return size;
}

/* Of equal pieces the last one counts. */
static bool is_replaced(const struct snug_sentencepiece *file, size_t id) {
    for (size_t later = id + 1; later < file->count; later++)
        if (file->pieces[later].length == file->pieces[id].length &&
            !memcmp(file->pieces[later].text, file->pieces[id].text, file->pieces[id].length))
            return true;
    return false;
}

static void try_pieces(const struct snug_sentencepiece *file, double unknown, const char *text, size_t length,
                       size_t at, struct best *best) {
    const size_t character = character_length(text + at, length - at);
    bool known = false;
    for (size_t id = 0; id < file->count; id++) {
        const struct snug_sentencepiece_piece *piece = &file->pieces[id];
        if (piece->length > length - at || memcmp(piece->text, text + at, piece->length) != 0 || is_replaced(file, id))
            continue;
        known = known || piece->length == character;
        improve(&best[at + piece->length], best[at].score + piece->score, at, (int64_t)id);
    }
    if (!known) improve(&best[at + character], best[at].score + unknown, at, file->unk_id);
}

/* Without unknown characters the ids are those of the best path. */
static void check_ids(const struct snug_sentencepiece *file, const char *text, size_t length,
                      const struct snug_ids *ids) {
    struct best best[MOST + 1];
    double unknown = file->pieces[0].score;
    size_t left = ids->count;
    for (size_t id = 0; id < file->count; id++)
        if (file->pieces[id].score < unknown) unknown = file->pieces[id].score;
    for (size_t i = 0; i <= length; i++) best[i].id = -1;
    best[0].score = 0;
    for (size_t at = 0; at < length; at += character_length(text + at, length - at))
        try_pieces(file, unknown - 10, text, length, at, best);
    for (size_t at = length; at > 0; at = best[at].start)
        if (best[at].id == file->unk_id) return;
    for (size_t at = length; at > 0; at = best[at].start) FUZZ_CHECK(left && ids->ids[--left] == best[at].id);
    FUZZ_CHECK(!left);
}

static void encode(snug_context *ctx, const struct snug_sentencepiece *file, const char *text, size_t length) {
    struct snug_unigram model = {0};
    struct snug_unigram_scratch scratch = {0};
    struct snug_ids ids = {0};
    for (size_t id = 0; id < file->count; id++) {
        const struct snug_sentencepiece_piece *piece = &file->pieces[id];
        FUZZ_CHECK(snug_unigram_add(ctx, &model, "m", piece->text, piece->length, piece->score) == SNUG_OK);
    }
    FUZZ_CHECK(snug_unigram_finish(ctx, &model, "m", file->unk_id, file->byte_fallback) == SNUG_OK);
    for (size_t id = 0; id < file->count && id < 32; id++) {
        const int32_t found = snug_unigram_find(&model, file->pieces[id].text, file->pieces[id].length);
        FUZZ_CHECK(found == (int32_t)id || (found > (int32_t)id && is_replaced(file, id)));
    }
    FUZZ_CHECK(snug_unigram_encode(ctx, &model, text, length, &scratch, &ids) == SNUG_OK);
    for (size_t i = 0; i < ids.count; i++) FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < (int32_t)file->count);
    FUZZ_CHECK(!length == !ids.count);
    if (length <= MOST && file->count < 32) check_ids(file, text, length, &ids);
    snug_unigram_scratch_free(&scratch);
    snug_unigram_free(&model);
    free(ids.ids);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_sentencepiece file;
    if (!size || data[0] >= size) return;
    const uint8_t *rest = data + 1 + data[0];
    if (!fuzz_accepts(ctx,
                      snug_sentencepiece_read(ctx, &file, SNUG_SENTENCEPIECE_UNIGRAM, "m", rest, size - 1 - data[0])))
        return;
    struct snug_precompiled map = {0};
    struct snug_text out = {0};
    size_t length;
    char *text;
    FUZZ_CHECK(snug_utf8_repair(ctx, (const char *)data + 1, data[0], &text, &length) == SNUG_OK);
    if (file.charsmap && fuzz_accepts(ctx, snug_precompiled_read(ctx, &map, "m", file.charsmap, file.charsmap_size))) {
        FUZZ_CHECK(snug_precompiled_normalize(ctx, &map, text, length, &out) == SNUG_OK);
        encode(ctx, &file, out.text, out.length);
    }
    encode(ctx, &file, text, length);
    snug_precompiled_free(&map);
    snug_sentencepiece_free(&file);
    free(out.text);
    free(text);
}
