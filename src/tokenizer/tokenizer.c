/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "io/file.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"

const char *const snug_tokenizer_file_names[SNUG_TOKENIZER_FILES] = {
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
};

void snug_tokenizer_free(struct snug_tokenizer *tokenizer) {
    if (!tokenizer) return;
    snug_normalizer_free(&tokenizer->normalizer);
    snug_pretokenizer_free(&tokenizer->pretokenizer);
    snug_vocabulary_free(&tokenizer->vocabulary);
    snug_wordpiece_free(&tokenizer->wordpiece);
    snug_bpe_free(&tokenizer->bpe);
    snug_unigram_free(&tokenizer->unigram);
    snug_decoder_free(&tokenizer->decoder);
    snug_added_tokens_free(&tokenizer->added);
    free(tokenizer->tokens);
    json_decref(tokenizer->named);
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        free(tokenizer->paths[file]);
        free(tokenizer->data[file]);
    }
    free(tokenizer);
}

snug_status snug_tokenizer_take_template(snug_context *ctx, struct snug_tokenizer *tokenizer, const char *path) {
    const enum snug_tokenizer_file file = SNUG_TOKENIZER_CHAT_TEMPLATE;
    char *name, *text;
    size_t size;
    RETURN_IF_ERROR(snug_file_read(ctx, NULL, path, &text, &size));
    const snug_status status = snug_strdup(ctx, path, &name);
    if (status != SNUG_OK) {
        free(text);
        return status;
    }
    free(tokenizer->paths[file]);
    free(tokenizer->data[file]);
    tokenizer->paths[file] = name;
    tokenizer->data[file] = text;
    tokenizer->sizes[file] = size;
    return SNUG_OK;
}

snug_status snug_tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                const struct snug_folder *in) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++) {
        if (!tokenizer->paths[file]) continue;
        RETURN_IF_ERROR(
            snug_file_replace(ctx, in, snug_tokenizer_file_names[file], tokenizer->data[file], tokenizer->sizes[file]));
    }
    return SNUG_OK;
}

const char *snug_tokenizer_file(const struct snug_tokenizer *tokenizer, size_t index) {
    for (int file = 0; file < SNUG_TOKENIZER_FILES; file++)
        if (tokenizer->paths[file] && index-- == 0) return snug_tokenizer_file_names[file];
    return NULL;
}

const json_t *snug_tokenizer_named(const struct snug_tokenizer *tokenizer) { return tokenizer->named; }

const char *snug_tokenizer_content(const struct snug_tokenizer *tokenizer, enum snug_tokenizer_file file,
                                   const char **path, size_t *size) {
    *path = tokenizer->paths[file];
    *size = tokenizer->sizes[file];
    return tokenizer->data[file];
}

int64_t snug_tokenizer_vocab_size(const struct snug_tokenizer *tokenizer) { return tokenizer->vocab_size; }

const char *snug_tokenizer_token(const struct snug_tokenizer *tokenizer, int32_t id) {
    bool known = id >= 0 && id < tokenizer->vocab_size && tokenizer->tokens[id];
    return known ? tokenizer->tokens[id] : "";
}

int64_t snug_tokenizer_model_size(const struct snug_tokenizer *tokenizer) { return tokenizer->vocabulary.size; }

struct snug_special_ids snug_tokenizer_special(const struct snug_tokenizer *tokenizer) {
    return tokenizer->special;
}

bool snug_tokenizer_types(const struct snug_tokenizer *tokenizer) {
    return tokenizer->types && snug_template_has_types(&tokenizer->post_processor.pair);
}

int64_t snug_tokenizer_max_length(const struct snug_tokenizer *tokenizer) { return tokenizer->max_length; }

uint64_t snug_tokenizer_fingerprint(const struct snug_tokenizer *tokenizer) { return tokenizer->fingerprint; }

/* A text while it is encoded, with the buffers that its parts share. */
struct encoding {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    size_t most;                               /* tokens in out after which encoding stops */
    const char *begin;                         /* of the whole text */
    bool first;                                /* the split text is at the beginning of the whole text */
    struct snug_text normalized;               /* of the part between two raw added tokens */
    struct snug_search raw, normalized_search; /* for added tokens, in the text and in its normalized parts */
    struct snug_words words;
    struct snug_search pieces; /* of the models: */
    struct snug_bpe_scratch bpe;
    struct snug_unigram_scratch unigram;
    struct snug_ids *out;
    struct snug_ids *added; /* of snug_tokenizer_encode_added(), or NULL */
};

/* Stops after the word with which out has `most` tokens. */
static snug_status encode_word(void *user, const char *word, size_t length) {
    struct encoding *e = user;
    const struct snug_tokenizer *tokenizer = e->tokenizer;
    if (e->out->count >= e->most) return SNUG_END;
    switch (tokenizer->kind) {
    case SNUG_MODEL_WORDPIECE:
        return snug_wordpiece_encode(e->ctx, &tokenizer->wordpiece, word, length, &e->pieces, e->out);
    case SNUG_MODEL_BPE: return snug_bpe_encode(e->ctx, &tokenizer->bpe, word, length, e->most, &e->bpe, e->out);
    case SNUG_MODEL_UNIGRAM: break;
    }
    return snug_unigram_encode(e->ctx, &tokenizer->unigram, word, length, &e->unigram, e->out);
}

static snug_status encode_words(struct encoding *e, const char *text, size_t length) {
    const bool first = e->first && text == e->normalized.text;
    const snug_status status = snug_words_split(&e->words, text, length, first);
    return status == SNUG_END ? SNUG_OK : status;
}

/* A part of a text that is searched for added tokens: each becomes its id, and encode_between encodes the text between
   them. SNUG_END at its end. */
static snug_status encode_part(struct encoding *e, struct snug_search *search,
                               snug_status (*encode_between)(struct encoding *e, const char *text, size_t length)) {
    struct snug_splitter splitter = {.tokens = &e->tokenizer->added, .search = search};
    const struct snug_added_token *token;
    size_t start, stop;
    while (e->out->count < e->most) {
        RETURN_IF_ERROR(snug_splitter_next(e->ctx, &splitter, &token, &start, &stop));
        if (token && e->added && search == &e->raw) {
            RETURN_IF_ERROR(snug_ids_append(e->ctx, e->added, (int32_t)start));
            RETURN_IF_ERROR(snug_ids_append(e->ctx, e->added, (int32_t)e->out->count));
        }
        RETURN_IF_ERROR(token ? snug_ids_append(e->ctx, e->out, token->id)
                              : encode_between(e, search->text + start, stop - start));
    }
    return SNUG_END;
}

/* A part without raw added tokens: normalizes it, and searches it for normalized tokens. */
static snug_status encode_normalized(struct encoding *e, const char *text, size_t length) {
    e->first = text == e->begin;
    RETURN_IF_ERROR(snug_normalize(e->ctx, &e->tokenizer->normalizer, text, length, &e->normalized));
    snug_search_begin(&e->normalized_search, &e->tokenizer->added.normalized, e->normalized.text, e->normalized.length);
    const snug_status status = encode_part(e, &e->normalized_search, encode_words);
    return status == SNUG_END ? SNUG_OK : status;
}

/* add_prefix: the text is a single word of a pre-split text. */
static snug_status encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text, size_t length,
                          size_t most, bool add_prefix, struct snug_ids *out, struct snug_ids *added) {
    const size_t invalid = snug_utf8_invalid(text, length);
    if (invalid < length)
        return snug_fail(ctx, SNUG_E_INPUT, "byte %zu of a text to be tokenized is not valid UTF-8", invalid);
    struct encoding e = {.ctx = ctx, .tokenizer = tokenizer, .begin = text, .out = out, .added = added};
    e.words = (struct snug_words){.ctx = ctx,
                                  .pretokenizer = &tokenizer->pretokenizer,
                                  .sink = encode_word,
                                  .user = &e,
                                  .add_prefix = add_prefix};
    e.most = tokenizer->truncate_left || most > SIZE_MAX - out->count ? SIZE_MAX : out->count + most;
    snug_search_begin(&e.raw, &tokenizer->added.raw, text, length);
    const snug_status status = encode_part(&e, &e.raw, encode_normalized);
    free(e.normalized.text);
    snug_search_free(&e.raw);
    snug_search_free(&e.normalized_search);
    snug_search_free(&e.pieces);
    snug_words_free(&e.words);
    snug_bpe_scratch_free(&e.bpe);
    snug_unigram_scratch_free(&e.unigram);
    return status == SNUG_END ? SNUG_OK : status;
}

snug_status snug_tokenizer_encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                  size_t length, struct snug_ids *out) {
    return encode(ctx, tokenizer, text, length, SIZE_MAX, false, out, NULL);
}

snug_status snug_tokenizer_encode_added(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, struct snug_ids *out, struct snug_ids *added) {
    return encode(ctx, tokenizer, text, length, SIZE_MAX, false, out, added);
}

snug_status snug_tokenizer_encode_begin(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, size_t most, struct snug_ids *out) {
    return encode(ctx, tokenizer, text, length, most, false, out, NULL);
}

snug_status snug_tokenizer_encode_words(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                        const struct snug_word *words, size_t count, struct snug_ids *out,
                                        struct snug_ids *word_of) {
    for (size_t word = 0; word < count; word++) {
        const size_t before = out->count;
        RETURN_IF_ERROR(
            encode(ctx, tokenizer, words[word].text, words[word].length, SIZE_MAX, tokenizer->prefix_words, out, NULL));
        for (size_t i = before; i < out->count; i++) RETURN_IF_ERROR(snug_ids_append(ctx, word_of, (int32_t)word));
    }
    return SNUG_OK;
}

/* How many tokens of each remain, as in the library's truncate_encodings: only the longer is truncated while the
   shorter fits; if both are truncated, each gets half, and the longer gets the odd one (the second, if equally
   long). */
static void truncate_pair(size_t *first, size_t *second, size_t room) {
    if (*first + *second <= room) return;
    size_t *shorter = *first > *second ? second : first, *longer = shorter == first ? second : first;
    *longer = *shorter > room || room - *shorter < *shorter ? *shorter : room - *shorter;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = room - room / 2;
    }
}

/* The remaining tokens of a sequence: ids[from … from + count). */
struct kept {
    const struct snug_ids *ids, *word_of;
    size_t from, count;
};

/* The row that a template describes. word_of: NULL if not requested. */
static snug_status fill_template(snug_context *ctx, const struct snug_template *template, const struct kept *sequences,
                                 struct snug_ids *out, struct snug_ids *word_of, size_t *first_count) {
    *first_count = 0;
    for (size_t i = 0; i < template->count; i++) {
        const struct snug_template_piece *piece = &template->pieces[i];
        const size_t begin = out->count;
        if (piece->id >= 0) {
            RETURN_IF_ERROR(snug_ids_append(ctx, out, piece->id));
            if (word_of) RETURN_IF_ERROR(snug_ids_append(ctx, word_of, -1));
        } else {
            const struct kept *kept = &sequences[piece->id == SNUG_PIECE_B];
            for (size_t k = 0; k < kept->count; k++) {
                RETURN_IF_ERROR(snug_ids_append(ctx, out, kept->ids->ids[kept->from + k]));
                if (word_of) RETURN_IF_ERROR(snug_ids_append(ctx, word_of, kept->word_of->ids[kept->from + k]));
            }
        }
        if (!piece->type) *first_count += out->count - begin;
    }
    return SNUG_OK;
}

static snug_status assemble(snug_context *ctx, const struct snug_tokenizer *tokenizer, struct kept sequences[2],
                            size_t max_length, struct snug_ids *out, struct snug_ids *word_of, size_t *first_count,
                            bool *truncated) {
    const bool pair = sequences[1].ids != NULL;
    const struct snug_template *template = pair ? &tokenizer->post_processor.pair : &tokenizer->post_processor.single;
    const size_t specials = snug_template_specials(template);
    if (max_length < specials)
        return snug_fail(ctx, SNUG_E_USAGE, "max_seq_length %zu leaves no room for the %zu special tokens", max_length,
                         specials);
    const size_t count_a = sequences[0].ids->count, count_b = pair ? sequences[1].ids->count : 0;
    sequences[0].count = count_a;
    sequences[1].count = count_b;
    truncate_pair(&sequences[0].count, &sequences[1].count, max_length - specials);
    *truncated = sequences[0].count < count_a || sequences[1].count < count_b;
    sequences[0].from = tokenizer->truncate_left ? count_a - sequences[0].count : 0;
    sequences[1].from = tokenizer->truncate_left ? count_b - sequences[1].count : 0;
    const size_t begin = out->count;
    RETURN_IF_ERROR(fill_template(ctx, template, sequences, out, word_of, first_count));
    if (!tokenizer->types) *first_count = out->count - begin;
    return SNUG_OK;
}

snug_status snug_tokenizer_assemble(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_ids *a,
                                    const struct snug_ids *b, size_t max_length, struct snug_ids *out,
                                    size_t *first_count, bool *truncated) {
    struct kept sequences[2] = {{.ids = a}, {.ids = b}};
    return assemble(ctx, tokenizer, sequences, max_length, out, NULL, first_count, truncated);
}

snug_status snug_tokenizer_assemble_pair(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                         const struct snug_ids *a, const int32_t *b, size_t count, struct snug_ids *out,
                                         size_t *first_count, size_t *b_begin) {
    const struct snug_template *template = &tokenizer->post_processor.pair;
    const struct snug_ids second = {.ids = (int32_t *)(uintptr_t)b, .count = count};
    const struct kept sequences[2] = {{.ids = a, .count = a->count}, {.ids = &second, .count = count}};
    const size_t begin = out->count;
    *b_begin = 0;
    for (size_t i = 0; i < template->count && template->pieces[i].id != SNUG_PIECE_B; i++)
        *b_begin += template->pieces[i].id >= 0 ? 1 : a->count;
    RETURN_IF_ERROR(fill_template(ctx, template, sequences, out, NULL, first_count));
    if (!tokenizer->types) *first_count = out->count - begin;
    return SNUG_OK;
}

snug_status snug_tokenizer_assemble_words(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                          const struct snug_ids *a, const struct snug_ids *a_word_of, size_t max_length,
                                          struct snug_ids *out, struct snug_ids *word_of, size_t *first_count,
                                          bool *truncated) {
    struct kept sequences[2] = {{.ids = a, .word_of = a_word_of}};
    return assemble(ctx, tokenizer, sequences, max_length, out, word_of, first_count, truncated);
}

snug_status snug_tokenizer_assemble_once(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                         const struct snug_ids *a, bool open, struct snug_ids *out) {
    const struct snug_template *template = &tokenizer->post_processor.single;
    const int32_t first = a->count ? a->ids[0] : -1, last = a->count ? a->ids[a->count - 1] : -1;
    bool after = false;
    for (size_t i = 0; i < template->count && !(after && open); i++) {
        const int32_t id = template->pieces[i].id;
        if (id < 0) after = true;
        for (size_t k = 0; id < 0 && k < a->count; k++) RETURN_IF_ERROR(snug_ids_append(ctx, out, a->ids[k]));
        /* There is a text among the pieces. */
        const bool before_text = id >= 0 && !after && template->pieces[i + 1].id < 0,
                   after_text = id >= 0 && after && template->pieces[i - 1].id < 0;
        if (id < 0 || (before_text && id == first) || (after_text && id == last)) continue;
        RETURN_IF_ERROR(snug_ids_append(ctx, out, id));
    }
    return SNUG_OK;
}

size_t snug_tokenizer_specials(const struct snug_tokenizer *tokenizer, bool pair) {
    return snug_template_specials(pair ? &tokenizer->post_processor.pair : &tokenizer->post_processor.single);
}

/* ---- ids to text ---- */

/* The text of an id for decoders: NULL if it has none, or is left out. Of a normalized added token it is the normalized
   text, which the library does not take for special. */
static const char *text_of(const struct snug_tokenizer *tokenizer, int32_t id, bool skip_special) {
    if (id < 0 || id >= tokenizer->vocab_size || !tokenizer->tokens[id]) return NULL;
    const char *text = tokenizer->tokens[id];
    const struct snug_added_token *added = snug_added_tokens_find(&tokenizer->added, text);
    if (added && added->sought) {
        text = added->sought;
        added = snug_added_tokens_find(&tokenizer->added, text);
    }
    return added && added->special && skip_special ? NULL : text;
}

snug_status snug_tokenizer_decode_raw(snug_context *ctx, const struct snug_tokenizer *tokenizer, const int32_t *ids,
                                      size_t count, bool skip_special, struct snug_text *out) {
    const char **tokens;
    size_t kept = 0;
    RETURN_IF_ERROR(snug_alloc(ctx, count + 1, sizeof *tokens, (void **)&tokens));
    for (size_t i = 0; i < count; i++) {
        const char *text = text_of(tokenizer, ids[i], skip_special);
        if (text) tokens[kept++] = text;
    }
    const snug_status status = snug_decode(ctx, &tokenizer->decoder, tokens, kept, out);
    free(tokens);
    return status;
}

snug_status snug_tokenizer_decode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const int32_t *ids,
                                  size_t count, bool skip_special, struct snug_text *out) {
    RETURN_IF_ERROR(snug_tokenizer_decode_raw(ctx, tokenizer, ids, count, skip_special, out));
    return tokenizer->cleans ? snug_decode_clean(ctx, out) : SNUG_OK;
}

static const char replacement[] = "\xef\xbf\xbd"; /* of bytes that are no character, perhaps not yet */

/* What the text has after the text before it, which is shorter; a decoder may have changed the latter's last
 * characters. */
static snug_status yield(snug_context *ctx, struct snug_decode_stream *stream, const char **out, size_t *length) {
    size_t same = 0;
    const struct snug_text *text = &stream->text, *before = &stream->before;
    while (same < before->length && text->text[same] == before->text[same]) same++;
    while (((unsigned char)text->text[same] & 0xc0) == 0x80) same--;
    stream->shown.length = 0;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&stream->shown.text, &stream->shown.capacity, text->length - same + 1, 1));
    memcpy(stream->shown.text, text->text + same, text->length - same + 1);
    *out = stream->shown.text;
    *length = text->length - same;
    return SNUG_OK;
}

snug_status snug_decode_stream_push(snug_context *ctx, struct snug_decode_stream *stream, int32_t id, const char **out,
                                    size_t *length) {
    struct snug_ids *ids = &stream->ids;
    struct snug_text *text = &stream->text;
    *out = "";
    *length = 0;
    RETURN_IF_ERROR(snug_ids_append(ctx, ids, id));
    RETURN_IF_ERROR(
        snug_tokenizer_decode_raw(ctx, stream->tokenizer, ids->ids, ids->count, stream->skip_special, text));
    const size_t end = sizeof replacement - 1;
    if (text->length <= stream->before.length) return SNUG_OK;
    if (text->length >= end && !memcmp(text->text + text->length - end, replacement, end)) return SNUG_OK;
    RETURN_IF_ERROR(yield(ctx, stream, out, length));
    /* The tokens of the text before are not needed any more: only the last ones, as the context of the next. */
    const size_t rest = ids->count - stream->done;
    memmove(ids->ids, ids->ids + stream->done, rest * sizeof *ids->ids);
    ids->count = stream->done = rest;
    text->length = 0;
    return snug_tokenizer_decode_raw(ctx, stream->tokenizer, ids->ids, ids->count, stream->skip_special,
                                     &stream->before);
}

snug_status snug_decode_stream_end(snug_context *ctx, struct snug_decode_stream *stream, const char **out,
                                   size_t *length) {
    *out = "";
    *length = 0;
    return stream->text.length > stream->before.length ? yield(ctx, stream, out, length) : SNUG_OK;
}

void snug_decode_stream_free(struct snug_decode_stream *stream) {
    free(stream->ids.ids);
    free(stream->before.text);
    free(stream->text.text);
    free(stream->shown.text);
    *stream = (struct snug_decode_stream){0};
}
