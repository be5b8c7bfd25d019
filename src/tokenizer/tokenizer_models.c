/* SPDX-License-Identifier: Apache-2.0 */
/* The models: their vocabularies, from tokenizer.json or from the files that a class uses without it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer_load.h"
#include "tokenizer/unicode.h"

/* ---- vocabulary ---------------------------------------------------------------------------------------------- */

static snug_status read_vocabulary_file(struct snug_tokenizer_loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_VOCAB);
    if (!path) return SNUG_OK;
    RETURN_IF_ERROR(snug_loader_read_file(loader, SNUG_TOKENIZER_VOCAB));
    const snug_status status =
        snug_vocabulary_read(loader->ctx, &tokenizer->vocabulary, path, tokenizer->data[SNUG_TOKENIZER_VOCAB],
                             tokenizer->sizes[SNUG_TOKENIZER_VOCAB]);
    loader->read = status == SNUG_OK;
    return status;
}

/* A vocabulary from an object of a file, by id. */
static snug_status take_vocabulary(struct snug_tokenizer_loader *loader, const char *path, const json_t *vocab) {
    snug_context *ctx = loader->ctx;
    struct snug_vocabulary *vocabulary = &loader->tokenizer->vocabulary;
    size_t bytes = 0;
    int64_t size = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)vocab, key, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: the id of token \"%s\" is not a number from 0", path, key);
        bytes += strlen(key) + 1;
        if (json_integer_value(value) >= size) size = json_integer_value(value) + 1;
    }
    RETURN_IF_ERROR(snug_vocabulary_reserve(ctx, vocabulary, path, (int64_t)json_object_size(vocab), size, bytes));
    char *to = vocabulary->texts;
    json_object_foreach((json_t *)vocab, key, value) {
        size_t length = strlen(key);
        memcpy(to, key, length + 1);
        RETURN_IF_ERROR(snug_vocabulary_add(ctx, vocabulary, path, to, length, json_integer_value(value)));
        to += length + 1;
    }
    return SNUG_OK;
}

/* The vocabulary of tokenizer.json, which transformers prefers to vocab.txt. */
static snug_status take_json_vocabulary(struct snug_tokenizer_loader *loader, const json_t *vocab) {
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    if (!json_is_object(vocab))
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: \"model\" has no object \"vocab\"", path);
    return take_vocabulary(loader, path, vocab);
}

/* a is that of vocab.txt, which has every id; so does another with as many tokens. */
static bool same_vocabulary(const struct snug_vocabulary *a, const struct snug_vocabulary *b) {
    if (a->size != b->size || a->count != b->count) return false;
    for (int64_t id = 0; id < a->size; id++)
        if (strcmp(a->tokens[id], b->tokens[id]) != 0) return false;
    return true;
}

/* Writes a piece to *to, within the memory of the vocabulary's texts, and adds it to the vocabulary. */
static snug_status put_piece(struct snug_tokenizer_loader *loader, const char *path, char **to, const char *text,
                             size_t length) {
    struct snug_vocabulary *vocabulary = &loader->tokenizer->vocabulary;
    const int64_t id = vocabulary->count;
    if (memchr(text, 0, length))
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: piece %" PRId64 " holds a NUL", path, id);
    memcpy(*to, text, length);
    (*to)[length] = '\0';
    RETURN_IF_ERROR(snug_vocabulary_add(loader->ctx, vocabulary, path, *to, length, id));
    *to += length + 1;
    return SNUG_OK;
}

/* Also to a Unigram model. */
static snug_status add_piece(struct snug_tokenizer_loader *loader, const char *path, char **to, const char *text,
                             size_t length, double score) {
    const char *piece = *to;
    RETURN_IF_ERROR(put_piece(loader, path, to, text, length));
    return snug_unigram_add(loader->ctx, &loader->tokenizer->unigram, path, piece, length, score);
}

/*
 * A number as the library reads it from a file: serde_json divides the digits, as a double, by a power of ten, which is
 * not always the nearest double. If two segmentations have almost the same score, this decides. The digits are the
 * fewest that read back as value, as Python and Rust write them.
 */
static double library_number(double value) {
    char text[40];
    int precision = 15;
    if (value == 0) return value;
    do snprintf(text, sizeof text, "%.*e", precision - 1, value);
    while (strtod(text, NULL) != value && precision++ < 17);
    char *exponent = strchr(text, 'e');
    int power = (int)strtol(exponent + 1, NULL, 10);
    uint64_t digits = 0;
    while (exponent[-1] == '0') exponent--;
    const char *point = strpbrk(text, ".,");
    for (const char *at = text; at < exponent; at++) {
        if (*at < '0' || *at > '9') continue;
        digits = digits * 10 + (uint64_t)(*at - '0');
        power -= point && at > point;
    }
    char scale[16];
    snprintf(scale, sizeof scale, "1e%d", power < 0 ? -power : power);
    const double ten = strtod(scale, NULL), read = power < 0 ? (double)digits / ten : (double)digits * ten;
    return value < 0 ? -read : read;
}

/* "vocab": [["piece", score], …], by id. transformers' classes read the file in Python, which reads the nearest double.
 */
static snug_status take_json_pieces(struct snug_tokenizer_loader *loader, const json_t *vocab) {
    snug_context *ctx = loader->ctx;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    size_t bytes = 0;
    if (!json_is_array(vocab))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: \"model\" has no list \"vocab\" of pieces with scores", path);
    const size_t count = json_array_size(vocab);
    for (size_t i = 0; i < count; i++) {
        const json_t *piece = json_array_get(vocab, i);
        if (!json_is_string(json_array_get(piece, 0)) || !json_is_number(json_array_get(piece, 1)))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: number %zu of \"vocab\" is not a piece with a score", path, i);
        bytes += json_string_length(json_array_get(piece, 0)) + 1;
    }
    RETURN_IF_ERROR(
        snug_vocabulary_reserve(ctx, &loader->tokenizer->vocabulary, path, (int64_t)count, (int64_t)count, bytes));
    char *to = loader->tokenizer->vocabulary.texts;
    for (size_t i = 0; i < count; i++) {
        const json_t *piece = json_array_get(vocab, i), *text = json_array_get(piece, 0);
        const double score = json_number_value(json_array_get(piece, 1));
        RETURN_IF_ERROR(add_piece(loader, path, &to, json_string_value(text), json_string_length(text),
                                  loader->own ? library_number(score) : score));
    }
    return SNUG_OK;
}

/* The type of the class's model; NULL if that is tokenizer.json's. */
static const char *class_type(const struct snug_tokenizer_loader *loader) {
    return json_string_value(json_object_get(json_object_get(loader->class_json, "model"), "type"));
}

/* The type of a model, which tokenizer.json of old versions does not name. */
static snug_status find_kind(struct snug_tokenizer_loader *loader, const json_t *part, enum snug_model_kind *out) {
    static const char *const names[] = {"WordPiece", "BPE", "Unigram"};
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON), *of_class = class_type(loader), *type;
    if (!part) return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED, "%s: the model null is not supported", path);
    const char *otherwise = json_object_get(part, "merges")                 ? names[SNUG_MODEL_BPE]
                            : json_is_array(json_object_get(part, "vocab")) ? names[SNUG_MODEL_UNIGRAM]
                                                                            : names[SNUG_MODEL_WORDPIECE];
    RETURN_IF_ERROR(snug_json_string(loader->ctx, path, part, "type", otherwise, &type));
    for (int kind = SNUG_MODEL_WORDPIECE; kind <= SNUG_MODEL_UNIGRAM; kind++) {
        if (strcmp(type, names[kind]) != 0) continue;
        *out = (enum snug_model_kind)kind;
        if (!of_class || !strcmp(type, of_class)) return SNUG_OK;
        return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED,
                         "%s: the model %s is not supported with the tokenizer class %s, only %s", path, type,
                         loader->class->name, of_class);
    }
    return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED, "%s: the model %s is not supported, only WordPiece, BPE, Unigram",
                     path, type);
}

/* Reads vocab.txt, if the model may be WordPiece; if it is invalid and tokenizer.json exists, only that is used. */
static snug_status try_vocabulary_file(struct snug_tokenizer_loader *loader) {
    snug_context *ctx = loader->ctx;
    const char *json_path = snug_loader_path(loader, SNUG_TOKENIZER_JSON);
    if (class_type(loader) && strcmp(class_type(loader), "WordPiece") != 0) return SNUG_OK;
    const snug_status status = read_vocabulary_file(loader);
    if (!json_path || status == SNUG_E_MEMORY || status == SNUG_OK) return status;
    /* transformers ignores it if there is a tokenizer.json */
    snug_log(ctx, SNUG_LOG_WARNING, "%s; %s is used instead", snug_context_message(ctx), json_path);
    snug_clear_error(ctx);
    snug_vocabulary_free(&loader->tokenizer->vocabulary);
    snug_loader_forget(loader, SNUG_TOKENIZER_VOCAB);
    return SNUG_OK;
}

/* Parses tokenizer.json, and reads its vocabulary and merges from the text if they are plain. */
static snug_status read_tokenizer_json(struct snug_tokenizer_loader *loader) {
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_JSON),
               *text = loader->tokenizer->data[SNUG_TOKENIZER_JSON];
    char *rest;
    size_t size = loader->tokenizer->sizes[SNUG_TOKENIZER_JSON];
    json_error_t error;
    if (snug_model_text_find(text, &loader->model_text))
        RETURN_IF_ERROR(snug_model_text_vocabulary(loader->ctx, path, loader->model_text.vocab,
                                                   &loader->tokenizer->vocabulary, &loader->taken));
    if (!loader->taken) return snug_loader_parse(loader, SNUG_TOKENIZER_JSON, &loader->json);
    RETURN_IF_ERROR(snug_model_text_rest(loader->ctx, text, size, &loader->model_text, &rest, &size));
    loader->json = snug_json_parse(rest, size, 0, &error);
    free(rest);
    const json_t *vocab = json_object_get(json_object_get(loader->json, "model"), "vocab");
    if (json_is_object(vocab) && !json_object_size(vocab)) return SNUG_OK;
    json_decref(loader->json); /* malformed elsewhere, or these are not the model's */
    loader->json = NULL;
    loader->taken = false;
    snug_vocabulary_free(&loader->tokenizer->vocabulary);
    return snug_loader_parse(loader, SNUG_TOKENIZER_JSON, &loader->json);
}

static snug_status read_json_model(struct snug_tokenizer_loader *loader) {
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    RETURN_IF_ERROR(read_tokenizer_json(loader));
    RETURN_IF_ERROR(snug_loader_wrap_bytes(loader));
    const json_t *part = snug_loader_member(loader->json, "model"), *vocab = json_object_get(part, "vocab");
    RETURN_IF_ERROR(find_kind(loader, part, &tokenizer->kind));
    if (tokenizer->kind == SNUG_MODEL_UNIGRAM) return take_json_pieces(loader, vocab);
    return loader->taken ? SNUG_OK : take_json_vocabulary(loader, vocab);
}

static snug_status load_json_model(struct snug_tokenizer_loader *loader) {
    struct snug_vocabulary *vocabulary = &loader->tokenizer->vocabulary, of_file = *vocabulary;
    *vocabulary = (struct snug_vocabulary){0};
    const snug_status status = read_json_model(loader);
    if (status == SNUG_OK && loader->read && !same_vocabulary(&of_file, vocabulary)) {
        snug_log(loader->ctx, SNUG_LOG_WARNING,
                 "%s and %s have different vocabularies; the latter is used, as transformers does",
                 snug_loader_path(loader, SNUG_TOKENIZER_VOCAB), snug_loader_path(loader, SNUG_TOKENIZER_JSON));
        snug_loader_forget(loader, SNUG_TOKENIZER_VOCAB);
    }
    snug_vocabulary_free(&of_file);
    return status;
}

/* ---- without tokenizer.json ---- */

static snug_status need_file(const struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file) {
    if (snug_loader_path(loader, file)) return SNUG_OK;
    return snug_fail(loader->ctx, SNUG_E_INPUT,
                     "%s has no tokenizer: its class is %s, but neither tokenizer.json nor %s exists; give a folder "
                     "that has one with --tokenizer_name",
                     loader->folder, loader->class->name, snug_tokenizer_file_names[file]);
}

static snug_status load_vocab_json(struct snug_tokenizer_loader *loader) {
    json_t *vocab = NULL;
    bool done;
    RETURN_IF_ERROR(need_file(loader, SNUG_TOKENIZER_VOCAB_JSON));
    RETURN_IF_ERROR(need_file(loader, SNUG_TOKENIZER_MERGES));
    RETURN_IF_ERROR(snug_loader_read_file(loader, SNUG_TOKENIZER_VOCAB_JSON));
    RETURN_IF_ERROR(snug_loader_read_file(loader, SNUG_TOKENIZER_MERGES));
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_VOCAB_JSON);
    const struct snug_text_span whole = snug_model_text_object(loader->tokenizer->data[SNUG_TOKENIZER_VOCAB_JSON],
                                                               loader->tokenizer->sizes[SNUG_TOKENIZER_VOCAB_JSON]);
    RETURN_IF_ERROR(snug_model_text_vocabulary(loader->ctx, path, whole, &loader->tokenizer->vocabulary, &done));
    if (done) return SNUG_OK;
    snug_status status = snug_loader_parse(loader, SNUG_TOKENIZER_VOCAB_JSON, &vocab);
    if (status == SNUG_OK) status = take_vocabulary(loader, path, vocab);
    json_decref(vocab);
    return status;
}

/* The control and user-defined pieces are added tokens. */
static snug_status list_control_pieces(struct snug_tokenizer_loader *loader, const struct snug_sentencepiece *model) {
    json_t *list = json_array();
    for (size_t i = 0; i < model->count; i++) {
        const struct snug_sentencepiece_piece *piece = &model->pieces[i];
        const bool control = piece->type == SNUG_SENTENCEPIECE_CONTROL;
        if (!control && piece->type != SNUG_SENTENCEPIECE_USER_DEFINED) continue;
        snug_json_append(&list, json_pack("{s:s%,s:b,s:b}", "content", piece->text, (size_t)piece->length, "special",
                                          (int)control, "normalized", 0));
    }
    loader->sources.model_extra = list;
    return list ? SNUG_OK : snug_fail(loader->ctx, SNUG_E_MEMORY, "out of memory while reading %s", loader->folder);
}

/* An entry of the class's vocabulary: its text, which may be that of a named token. */
static const char *entry_text(const struct snug_tokenizer_loader *loader, const json_t *entry) {
    const char *name = json_string_value(json_array_get(entry, 2)),
               *named = name ? snug_token_content(json_object_get(loader->sources.named, name)) : NULL;
    return named ? named : json_string_value(json_array_get(entry, 0));
}

/* The class's file of pieces of a Unigram model. */
static enum snug_tokenizer_file unigram_file(const struct snug_tokenizer_loader *loader) {
    return loader->class->spm ? SNUG_TOKENIZER_SPM : SNUG_TOKENIZER_SENTENCEPIECE;
}

/* The vocabulary of a class: special tokens around the pieces of the file. */
static snug_status take_pieces(struct snug_tokenizer_loader *loader, const json_t *vocab) {
    const char *path = snug_loader_path(loader, unigram_file(loader));
    const struct snug_sentencepiece *model = &loader->sentencepiece;
    size_t bytes = 0, count = 0, i;
    json_t *entry;
    for (i = 0; i < model->count; i++) bytes += model->pieces[i].length + 1;
    json_array_foreach(vocab, i, entry) {
        const size_t first = (size_t)json_integer_value(entry);
        if (json_is_array(entry)) bytes += strlen(entry_text(loader, entry)) + 1;
        if (model->count < first)
            return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: %zu pieces; a %s needs at least %zu", path, model->count,
                             loader->class->name, first);
        count += json_is_array(entry) ? 1 : model->count - first;
    }
    RETURN_IF_ERROR(snug_vocabulary_reserve(loader->ctx, &loader->tokenizer->vocabulary, path, (int64_t)count,
                                            (int64_t)count, bytes));
    char *to = loader->tokenizer->vocabulary.texts;
    json_array_foreach(vocab, i, entry) {
        const char *text = entry_text(loader, entry);
        if (text)
            RETURN_IF_ERROR(
                add_piece(loader, path, &to, text, strlen(text), json_number_value(json_array_get(entry, 1))));
        for (size_t k = (size_t)json_integer_value(entry); !text && k < model->count; k++) {
            const struct snug_sentencepiece_piece *piece = &model->pieces[k];
            RETURN_IF_ERROR(add_piece(loader, path, &to, piece->text, piece->length, piece->score));
        }
    }
    return SNUG_OK;
}

static snug_status read_sentencepiece(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file,
                                      enum snug_sentencepiece_kind kind) {
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_sentencepiece *model = &loader->sentencepiece;
    RETURN_IF_ERROR(need_file(loader, file));
    RETURN_IF_ERROR(snug_loader_read_file(loader, file));
    RETURN_IF_ERROR(snug_sentencepiece_read(loader->ctx, model, kind, snug_loader_path(loader, file),
                                            tokenizer->data[file], tokenizer->sizes[file]));
    return list_control_pieces(loader, model);
}

/* Its pieces become the vocabulary once the names of the special tokens are known. */
static snug_status load_unigram(struct snug_tokenizer_loader *loader) {
    const struct snug_sentencepiece *model = &loader->sentencepiece;
    RETURN_IF_ERROR(read_sentencepiece(loader, unigram_file(loader), SNUG_SENTENCEPIECE_UNIGRAM));
    if (!model->charsmap_size || loader->class->spm) return SNUG_OK;
    return snug_normalizer_add_charsmap(loader->ctx, &loader->tokenizer->normalizer,
                                        snug_loader_path(loader, SNUG_TOKENIZER_SENTENCEPIECE), model->charsmap,
                                        model->charsmap_size, false);
}

/* What snug_tokenizer_class_of_pieces() describes. */
static snug_status check_usual(const struct snug_tokenizer_loader *loader, const struct snug_sentencepiece *model) {
    bool usual = model->add_dummy_prefix && !model->remove_extra_whitespaces && model->escape_whitespaces &&
                 !model->charsmap_size && model->byte_fallback;
    for (size_t i = 0; i < model->count; i++) usual &= model->pieces[i].type != SNUG_SENTENCEPIECE_USER_DEFINED;
    if (usual) return SNUG_OK;
    return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED,
                     "%s has a normalizer, user-defined pieces, or no byte fallback, which is only supported with the "
                     "tokenizer classes LlamaTokenizer and GemmaTokenizer; write a tokenizer.json with transformers: "
                     "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
                     snug_loader_path(loader, SNUG_TOKENIZER_MODEL));
}

/* All pieces by id: also control pieces, bytes, and the unknown one. */
static snug_status load_pieces(struct snug_tokenizer_loader *loader) {
    struct snug_vocabulary *vocabulary = &loader->tokenizer->vocabulary;
    const struct snug_sentencepiece *model = &loader->sentencepiece;
    const char *path = snug_loader_path(loader, SNUG_TOKENIZER_MODEL);
    size_t bytes = 0;
    RETURN_IF_ERROR(read_sentencepiece(loader, SNUG_TOKENIZER_MODEL, SNUG_SENTENCEPIECE_BPE));
    if (loader->class->plain_pieces) RETURN_IF_ERROR(check_usual(loader, model));
    for (size_t i = 0; i < model->count; i++) bytes += model->pieces[i].length + 1;
    RETURN_IF_ERROR(
        snug_vocabulary_reserve(loader->ctx, vocabulary, path, (int64_t)model->count, (int64_t)model->count, bytes));
    char *to = vocabulary->texts;
    for (size_t i = 0; i < model->count; i++) {
        const struct snug_sentencepiece_piece *piece = &model->pieces[i];
        RETURN_IF_ERROR(put_piece(loader, path, &to, piece->text, piece->length));
    }
    return SNUG_OK;
}

snug_status snug_loader_vocabulary(struct snug_tokenizer_loader *loader) {
    const bool json = snug_loader_path(loader, SNUG_TOKENIZER_JSON) != NULL;
    RETURN_IF_ERROR(try_vocabulary_file(loader));
    if (json) {
        RETURN_IF_ERROR(load_json_model(loader));
    } else {
        RETURN_IF_ERROR(find_kind(loader, json_object_get(loader->class_json, "model"), &loader->tokenizer->kind));
        switch (loader->tokenizer->kind) {
        case SNUG_MODEL_WORDPIECE: RETURN_IF_ERROR(need_file(loader, SNUG_TOKENIZER_VOCAB)); break;
        case SNUG_MODEL_BPE:
            RETURN_IF_ERROR(loader->class->pieces ? load_pieces(loader) : load_vocab_json(loader));
            break;
        case SNUG_MODEL_UNIGRAM: RETURN_IF_ERROR(load_unigram(loader)); break;
        }
    }
    const enum snug_model_kind kind = loader->tokenizer->kind;
    if (kind != SNUG_MODEL_WORDPIECE) snug_loader_forget(loader, SNUG_TOKENIZER_VOCAB);
    const bool pieces = !json && loader->class->pieces;
    if (json || pieces || kind != SNUG_MODEL_BPE) {
        snug_loader_forget(loader, SNUG_TOKENIZER_VOCAB_JSON);
        snug_loader_forget(loader, SNUG_TOKENIZER_MERGES);
    }
    const bool unigram = !json && kind == SNUG_MODEL_UNIGRAM;
    if (!unigram || loader->class->spm) snug_loader_forget(loader, SNUG_TOKENIZER_SENTENCEPIECE);
    if (!unigram || !loader->class->spm) snug_loader_forget(loader, SNUG_TOKENIZER_SPM);
    if (!pieces) snug_loader_forget(loader, SNUG_TOKENIZER_MODEL);
    return SNUG_OK;
}

/* ---- models: their settings are those of the class, or of tokenizer.json ---- */

static snug_status make_wordpiece(struct snug_tokenizer_loader *loader, const json_t *settings) {
    snug_context *ctx = loader->ctx;
    const char *path = snug_loader_source(loader), *unk, *prefix;
    int64_t max_word;
    RETURN_IF_ERROR(snug_json_string(ctx, path, settings, "unk_token", "[UNK]", &unk));
    RETURN_IF_ERROR(snug_json_string(ctx, path, settings, "continuing_subword_prefix", "##", &prefix));
    RETURN_IF_ERROR(snug_json_int(ctx, path, settings, "max_input_chars_per_word", 100, &max_word));
    return snug_wordpiece_init(ctx, &loader->tokenizer->wordpiece, &loader->tokenizer->vocabulary, path, unk, prefix,
                               max_word);
}

/* Refuses unsupported settings of tokenizer.json's model. */
static snug_status refuse_bpe(struct snug_tokenizer_loader *loader, const char *path, const json_t *part) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout;
    RETURN_IF_ERROR(snug_json_real(loader->ctx, path, part, "dropout", 0, &dropout));
    if (dropout != 0)
        return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED, "%s: \"dropout\" %g of the model BPE is not supported", path,
                         dropout);
    for (size_t i = 0; i < 2; i++) {
        const char *affix;
        RETURN_IF_ERROR(snug_json_string(loader->ctx, path, part, affixes[i], "", &affix));
        if (*affix)
            return snug_fail(loader->ctx, SNUG_E_UNSUPPORTED, "%s: \"%s\" \"%s\" of the model BPE is not supported",
                             path, affixes[i], affix);
    }
    return SNUG_OK;
}

/* "merges": ["a b", …] or [["a", "b"], …]. */
static snug_status take_json_merges(struct snug_tokenizer_loader *loader, const char *path, const json_t *merges) {
    struct snug_bpe *model = &loader->tokenizer->bpe;
    if (!json_is_array(merges))
        return snug_fail(loader->ctx, SNUG_E_INPUT, "%s: \"model\" has no list \"merges\"", path);
    RETURN_IF_ERROR(snug_bpe_reserve(loader->ctx, model, json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i), *left = json_array_get(merge, 0),
                     *right = json_array_get(merge, 1);
        const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
        if (space && !strchr(space + 1, ' ')) {
            RETURN_IF_ERROR(
                snug_bpe_add(loader->ctx, model, path, text, (size_t)(space - text), space + 1, strlen(space + 1)));
            continue;
        }
        if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
            return snug_fail(loader->ctx, SNUG_E_INPUT,
                             "%s: number %zu of \"merges\" is not two tokens with a space between them", path, i + 1);
        RETURN_IF_ERROR(snug_bpe_add(loader->ctx, model, path, json_string_value(left), json_string_length(left),
                                     json_string_value(right), json_string_length(right)));
    }
    return SNUG_OK;
}

struct ranked {
    double score;
    int64_t id;
};

static int by_score(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    const int order = (x->score < y->score) - (x->score > y->score);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static bool can_merge(const struct snug_tokenizer_loader *loader, int64_t id) {
    return id >= 0 &&
           (!loader->class->plain_pieces || loader->sentencepiece.pieces[id].type == SNUG_SENTENCEPIECE_NORMAL);
}

static snug_status add_merges_of(struct snug_tokenizer_loader *loader, const char *path, int64_t id) {
    const struct snug_vocabulary *vocabulary = &loader->tokenizer->vocabulary;
    const char *piece = vocabulary->tokens[id];
    const size_t length = strlen(piece);
    for (size_t at = 0; can_merge(loader, id) && (snug_utf8_next(piece, &at), at < length);) {
        if (!can_merge(loader, snug_hash_map_find(&vocabulary->ids, "", 0, piece, at)) ||
            !can_merge(loader, snug_vocabulary_find(vocabulary, piece + at)))
            continue;
        RETURN_IF_ERROR(snug_bpe_add(loader->ctx, &loader->tokenizer->bpe, path, piece, at, piece + at, length - at));
    }
    return SNUG_OK;
}

/* A piece is merged from each two pieces that it can be divided into, first the one with the shortest left piece.
   transformers' generate_merges() has the pieces in their order, SentencePiece's own settings by their scores. */
static snug_status derive_merges(struct snug_tokenizer_loader *loader, const char *path) {
    const size_t count = loader->sentencepiece.count;
    struct ranked *order;
    snug_status status = SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(loader->ctx, count, sizeof *order, (void **)&order));
    for (size_t i = 0; i < count; i++)
        order[i] = (struct ranked){loader->class->plain_pieces ? loader->sentencepiece.pieces[i].score : 0, (int64_t)i};
    qsort(order, count, sizeof *order, by_score);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) status = add_merges_of(loader, path, order[i].id);
    free(order);
    return status;
}

static snug_status take_merges(struct snug_tokenizer_loader *loader, const char *path) {
    const struct snug_tokenizer *tokenizer = loader->tokenizer;
    if (loader->taken && loader->model_text.merges.start)
        return snug_model_text_merges(loader->ctx, path, &loader->model_text, &loader->tokenizer->bpe);
    if (loader->json)
        return take_json_merges(loader, path, json_object_get(json_object_get(loader->json, "model"), "merges"));
    if (loader->class->pieces) return derive_merges(loader, path);
    return snug_bpe_read(loader->ctx, &loader->tokenizer->bpe, snug_loader_path(loader, SNUG_TOKENIZER_MERGES),
                         tokenizer->data[SNUG_TOKENIZER_MERGES], tokenizer->sizes[SNUG_TOKENIZER_MERGES]);
}

static snug_status make_bpe(struct snug_tokenizer_loader *loader, const json_t *settings) {
    snug_context *ctx = loader->ctx;
    struct snug_tokenizer *tokenizer = loader->tokenizer;
    struct snug_bpe *model = &tokenizer->bpe;
    const struct snug_pretokenizer *splitting = &tokenizer->pretokenizer;
    const char *path = snug_loader_source(loader), *unk;
    model->vocabulary = &tokenizer->vocabulary;
    RETURN_IF_ERROR(refuse_bpe(loader, path, settings));
    RETURN_IF_ERROR(snug_json_string(ctx, path, settings, "unk_token", NULL, &unk));
    model->unk = unk ? snug_vocabulary_find(&tokenizer->vocabulary, unk) : -1;
    RETURN_IF_ERROR(snug_json_bool(ctx, path, settings, "ignore_merges", false, &model->ignore_merges));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, settings, "fuse_unk", false, &model->fuse_unk));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, settings, "byte_fallback", false, &model->byte_fallback));
    model->byte_level = splitting->count && splitting->steps[splitting->count - 1].kind == SNUG_SPLITTING_BYTE_LEVEL;
    RETURN_IF_ERROR(take_merges(loader, path));
    RETURN_IF_ERROR(snug_bpe_finish(ctx, model));
    bool complete = model->byte_level; /* then no character is unknown */
    for (int byte = 0; byte < 256; byte++) complete &= model->byte_ids[byte] >= 0;
    if (!unk || model->unk >= 0 || complete) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: the unknown token \"%s\" is not in the vocabulary; add it, or set another \"unk_token\" of "
                     "the model",
                     path, unk);
}

static snug_status make_unigram(struct snug_tokenizer_loader *loader, const json_t *settings) {
    const char *path = snug_loader_source(loader);
    int64_t unk;
    bool fallback;
    RETURN_IF_ERROR(snug_json_int(loader->ctx, path, settings, "unk_id", -1, &unk));
    RETURN_IF_ERROR(snug_json_bool(loader->ctx, path, settings, "byte_fallback", false, &fallback));
    return snug_unigram_finish(loader->ctx, &loader->tokenizer->unigram, path, unk, fallback);
}

snug_status snug_loader_model(struct snug_tokenizer_loader *loader) {
    const enum snug_model_kind kind = loader->tokenizer->kind;
    json_t *settings;
    if (kind == SNUG_MODEL_UNIGRAM && !loader->json)
        RETURN_IF_ERROR(take_pieces(loader, json_object_get(json_object_get(loader->class_json, "model"), "vocab")));
    RETURN_IF_ERROR(snug_loader_section(loader, "model", &settings));
    const snug_status status = kind == SNUG_MODEL_WORDPIECE ? make_wordpiece(loader, settings)
                               : kind == SNUG_MODEL_BPE     ? make_bpe(loader, settings)
                                                            : make_unigram(loader, settings);
    json_decref(settings);
    return status;
}
