/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#include "io/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Maximum depth of nested Sequences. */
#define DEPTH_MOST 8

struct reader {
    snug_context *ctx;
    const char *path, *section; /* of tokenizer.json */
    const char *name;           /* the part's "type" */
    const struct part *fixed;   /* its line in the table */
    int depth;
    struct snug_normalizer *normalizer;
    struct snug_pretokenizer *pretokenizer;
    struct snug_post_processor *post_processor;
    struct snug_special_ids *specials;
    struct snug_decoder *decoder;
};

/* A part that tokenizer.json can have in a section. */
struct part {
    const char *section, *name;
    snug_status (*read)(struct reader *reader, const json_t *part);
    struct snug_normalizer_step normalizer; /* of a part without settings */
    struct snug_pretokenizer_step splitting;
    struct snug_decoder_step decoding;
};

static snug_status read_part(struct reader *reader, const json_t *part);

static snug_status refuse(const struct reader *reader, const char *key, const char *value) {
    return snug_fail(reader->ctx, SNUG_E_UNSUPPORTED, "%s: \"%s\" %s of the %s %s is not supported", reader->path, key,
                     value, reader->section, reader->name);
}

static snug_status malformed(const struct reader *reader, const char *key, const char *what) {
    return snug_fail(reader->ctx, SNUG_E_INPUT, "%s: \"%s\" of the %s %s must be %s", reader->path, key,
                     reader->section, reader->name, what);
}

static snug_status read_sequence(struct reader *reader, const json_t *part) {
    static const char *const keys[][2] = {{"normalizer", "normalizers"},
                                          {"pre_tokenizer", "pretokenizers"},
                                          {"post_processor", "processors"},
                                          {"decoder", "decoders"}};
    const char *key = keys[0][1];
    for (size_t i = 0; i < COUNT(keys); i++)
        if (!strcmp(reader->section, keys[i][0])) key = keys[i][1];
    const json_t *list = json_object_get(part, key);
    if (!json_is_array(list)) return malformed(reader, key, "a list");
    if (reader->depth == DEPTH_MOST) return refuse(reader, key, "so deep");
    reader->depth++;
    for (size_t i = 0; i < json_array_size(list); i++) RETURN_IF_ERROR(read_part(reader, json_array_get(list, i)));
    reader->depth--;
    return SNUG_OK;
}

static snug_status read_bool(const struct reader *reader, const json_t *part, const char *key, bool otherwise,
                             bool *out) {
    return snug_json_bool(reader->ctx, reader->path, part, key, otherwise, out);
}

/* A string of the part, with its length: it may contain NULs. */
static snug_status read_text(const struct reader *reader, const json_t *part, const char *key, char **out,
                             size_t *length) {
    const json_t *value = json_object_get(part, key);
    if (!json_is_string(value)) return malformed(reader, key, "a string");
    *length = json_string_length(value);
    RETURN_IF_ERROR(snug_alloc(reader->ctx, *length + 1, 1, (void **)out));
    memcpy(*out, json_string_value(value), *length);
    return SNUG_OK;
}

/* ---- normalizers ---------------------------------------------------------------------------------------------- */

static snug_status add_normalizer(const struct reader *reader, struct snug_normalizer_step step) {
    return snug_normalizer_add(reader->ctx, reader->normalizer, &step);
}

static snug_status read_bert_normalizer(struct reader *reader, const json_t *part) {
    struct snug_normalizer_step step = {.kind = SNUG_NORMALIZER_BERT};
    RETURN_IF_ERROR(read_bool(reader, part, "clean_text", true, &step.bert.clean_text));
    RETURN_IF_ERROR(read_bool(reader, part, "handle_chinese_chars", true, &step.bert.handle_chinese_chars));
    RETURN_IF_ERROR(read_bool(reader, part, "lowercase", true, &step.bert.lowercase));
    RETURN_IF_ERROR(read_bool(reader, part, "strip_accents", step.bert.lowercase, &step.bert.strip_accents));
    return add_normalizer(reader, step);
}

/* A part without settings: the table has its step. */
static snug_status read_normalizer(struct reader *reader, const json_t *part) {
    (void)part;
    return add_normalizer(reader, reader->fixed->normalizer);
}

static snug_status read_strip(struct reader *reader, const json_t *part) {
    struct snug_normalizer_step step = {.kind = SNUG_NORMALIZER_STRIP};
    RETURN_IF_ERROR(read_bool(reader, part, "strip_left", true, &step.left));
    RETURN_IF_ERROR(read_bool(reader, part, "strip_right", true, &step.right));
    return add_normalizer(reader, step);
}

static snug_status read_prepend(struct reader *reader, const json_t *part) {
    struct snug_normalizer_step step = {.kind = SNUG_NORMALIZER_PREPEND};
    RETURN_IF_ERROR(read_text(reader, part, "prepend", &step.content, &step.content_length));
    return add_normalizer(reader, step);
}

/* {"String": text} or {"Regex": expression}, which is compiled. */
static snug_status read_pattern(const struct reader *reader, const json_t *part, char **text, size_t *length,
                                struct snug_regex **regex) {
    const json_t *pattern = json_object_get(part, "pattern");
    const char *const key = json_is_string(json_object_get(pattern, "Regex")) ? "Regex" : "String";
    if (!json_is_string(json_object_get(pattern, key)))
        return malformed(reader, "pattern", "an object with a \"String\" or a \"Regex\"");
    RETURN_IF_ERROR(read_text(reader, pattern, key, text, length));
    if (*key == 'S') return *length ? SNUG_OK : malformed(reader, "pattern", "not empty");
    return snug_regex_compile(reader->ctx, reader->path, *text, *length, regex);
}

static snug_status read_replace(struct reader *reader, const json_t *part) {
    struct snug_normalizer_step step = {.kind = SNUG_NORMALIZER_REPLACE};
    snug_status status = read_pattern(reader, part, &step.pattern, &step.pattern_length, &step.regex);
    if (step.regex) step.kind = SNUG_NORMALIZER_REPLACE_REGEX;
    if (status == SNUG_OK) status = read_text(reader, part, "content", &step.content, &step.content_length);
    if (status == SNUG_OK) return add_normalizer(reader, step);
    snug_normalizer_step_free(&step);
    return status;
}

static snug_status read_precompiled(struct reader *reader, const json_t *part) {
    const json_t *map = json_object_get(part, "precompiled_charsmap");
    if (json_is_null(map)) return SNUG_OK;
    if (!json_is_string(map)) return malformed(reader, "precompiled_charsmap", "a string");
    return snug_normalizer_add_charsmap(reader->ctx, reader->normalizer, reader->path, json_string_value(map),
                                        json_string_length(map), true);
}

/* ---- pre-tokenizers ------------------------------------------------------------------------------------------- */

static snug_status add_splitting(const struct reader *reader, struct snug_pretokenizer_step step) {
    return snug_pretokenizer_add(reader->ctx, reader->pretokenizer, &step);
}

static snug_status read_splitting(struct reader *reader, const json_t *part) {
    (void)part;
    return add_splitting(reader, reader->fixed->splitting);
}

/* Split writes its behaviors like "MergedWithPrevious"; the library reads both spellings. */
static snug_status read_behavior(const struct reader *reader, const json_t *part, enum snug_behavior *out) {
    static const char *const names[][2] = {{"Removed", "removed"},
                                           {"Isolated", "isolated"},
                                           {"MergedWithPrevious", "merged_with_previous"},
                                           {"MergedWithNext", "merged_with_next"},
                                           {"Contiguous", "contiguous"}};
    const char *name;
    RETURN_IF_ERROR(snug_json_string(reader->ctx, reader->path, part, "behavior", "Isolated", &name));
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(name, names[i][0]) != 0 && strcmp(name, names[i][1]) != 0) continue;
        *out = (enum snug_behavior)i;
        return SNUG_OK;
    }
    return refuse(reader, "behavior", name);
}

static snug_status read_punctuation(struct reader *reader, const json_t *part) {
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_PUNCTUATION};
    RETURN_IF_ERROR(read_behavior(reader, part, &step.behavior));
    return add_splitting(reader, step);
}

static snug_status read_digits(struct reader *reader, const json_t *part) {
    bool individual;
    RETURN_IF_ERROR(read_bool(reader, part, "individual_digits", false, &individual));
    return add_splitting(reader, (struct snug_pretokenizer_step){.kind = SNUG_SPLITTING_DIGITS,
                                                                 .behavior = individual ? SNUG_BEHAVIOR_ISOLATED
                                                                                        : SNUG_BEHAVIOR_CONTIGUOUS});
}

static snug_status read_delimiter(struct reader *reader, const json_t *part) {
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_LITERAL, .behavior = SNUG_BEHAVIOR_REMOVED};
    RETURN_IF_ERROR(read_text(reader, part, "delimiter", &step.pattern, &step.length));
    if (step.length) return add_splitting(reader, step);
    free(step.pattern);
    return malformed(reader, "delimiter", "not empty");
}

static snug_status read_split(struct reader *reader, const json_t *part) {
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    static const char gpt2_short[] = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_LITERAL};
    snug_status status = read_pattern(reader, part, &step.pattern, &step.length, &step.regex);
    if (step.regex) step.kind = SNUG_SPLITTING_REGEX;
    if (step.regex && (!strcmp(step.pattern, gpt2) || !strcmp(step.pattern, gpt2_short))) {
        snug_pretokenizer_step_free(&step);
        step = (struct snug_pretokenizer_step){.kind = SNUG_SPLITTING_GPT2};
    }
    if (status == SNUG_OK) status = read_behavior(reader, part, &step.behavior);
    if (status == SNUG_OK) status = read_bool(reader, part, "invert", false, &step.invert);
    if (status == SNUG_OK) return add_splitting(reader, step);
    snug_pretokenizer_step_free(&step);
    return status;
}

static snug_status read_metaspace(struct reader *reader, const json_t *part) {
    static const char *const schemes[] = {"never", "always", "first"};
    struct snug_pretokenizer_step step = {.kind = SNUG_SPLITTING_METASPACE};
    const char *scheme;
    bool prefix;
    RETURN_IF_ERROR(read_bool(reader, part, "add_prefix_space", true, &prefix)); /* of older files */
    RETURN_IF_ERROR(
        snug_json_string(reader->ctx, reader->path, part, "prepend_scheme", prefix ? "always" : "never", &scheme));
    RETURN_IF_ERROR(read_bool(reader, part, "split", true, &step.split));
    size_t i = 0;
    while (i < COUNT(schemes) && strcmp(scheme, schemes[i]) != 0) i++;
    if (i == COUNT(schemes)) return refuse(reader, "prepend_scheme", scheme);
    step.prefix = (enum snug_prefix)i;
    /* The first word is known only if nothing is split off, or changed, before. */
    if (step.prefix == SNUG_PREFIX_FIRST && reader->pretokenizer->count)
        return refuse(reader, "prepend_scheme", "first after other pre-tokenizers");
    RETURN_IF_ERROR(read_text(reader, part, "replacement", &step.pattern, &step.length));
    if (step.length) return add_splitting(reader, step);
    free(step.pattern);
    return malformed(reader, "replacement", "a character");
}

static snug_status read_byte_level(struct reader *reader, const json_t *part) {
    bool prefix, split;
    RETURN_IF_ERROR(read_bool(reader, part, "add_prefix_space", true, &prefix));
    RETURN_IF_ERROR(read_bool(reader, part, "use_regex", true, &split));
    return add_splitting(reader,
                         (struct snug_pretokenizer_step){.kind = SNUG_SPLITTING_BYTE_LEVEL,
                                                         .split = split,
                                                         .prefix = prefix ? SNUG_PREFIX_ALWAYS : SNUG_PREFIX_NEVER});
}

/* ---- post-processors ------------------------------------------------------------------------------------------ */

/* An id of a file: -1 if it is invalid. */
static int32_t id_of(const json_t *value) {
    const json_int_t id = json_integer_value(value);
    return json_is_integer(value) && id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

/* "cls": ["[CLS]", 101] */
static snug_status read_frame(struct reader *reader, const json_t *part) {
    const bool bert = !strcmp(reader->name, "BertProcessing");
    const int32_t cls = id_of(json_array_get(json_object_get(part, "cls"), 1)),
                  sep = id_of(json_array_get(json_object_get(part, "sep"), 1));
    if (cls < 0 || sep < 0)
        return snug_fail(reader->ctx, SNUG_E_INPUT,
                         "%s: there is no %s_token: \"%s\" of the post_processor %s has no id", reader->path,
                         cls < 0 ? "cls" : "sep", cls < 0 ? "cls" : "sep", reader->name);
    reader->specials->cls = cls;
    reader->specials->sep = sep;
    return snug_post_processor_frame(reader->ctx, reader->post_processor, reader->path, cls, sep, !bert, bert);
}

static snug_status add_specials(struct reader *reader, const json_t *tokens, const char *id, int32_t type,
                                struct snug_template *out) {
    const json_t *ids = json_object_get(json_object_get(tokens, id), "ids");
    if (!json_array_size(ids))
        return snug_fail(
            reader->ctx, SNUG_E_UNSUPPORTED,
            "%s: the post_processor TemplateProcessing is not supported: its token \"%s\" has no \"ids\" in "
            "\"special_tokens\"",
            reader->path, id);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t number = id_of(json_array_get(ids, i));
        if (number < 0) return malformed(reader, id, "ids from 0");
        RETURN_IF_ERROR(snug_template_add(reader->ctx, out, reader->path, number, type));
    }
    return SNUG_OK;
}

static snug_status read_template(struct reader *reader, const json_t *part, const char *key,
                                 struct snug_template *out) {
    const json_t *pieces = json_object_get(part, key), *tokens = json_object_get(part, "special_tokens");
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        const json_t *piece = json_array_get(pieces, i), *special = json_object_get(piece, "SpecialToken"),
                     *sequence = json_object_get(piece, "Sequence"), *which = special ? special : sequence;
        const char *id = json_string_value(json_object_get(which, "id"));
        const json_int_t type = json_integer_value(json_object_get(which, "type_id"));
        const bool known = id && (special || !strcmp(id, "A") || !strcmp(id, "B"));
        if (!known || type < 0 || type > 1)
            return snug_fail(
                reader->ctx, SNUG_E_UNSUPPORTED,
                "%s: the post_processor TemplateProcessing is not supported: piece %zu of \"%s\" is neither a "
                "SpecialToken nor the Sequence A or B, of type 0 or 1",
                reader->path, i + 1, key);
        if (special)
            RETURN_IF_ERROR(add_specials(reader, tokens, id, (int32_t)type, out));
        else
            RETURN_IF_ERROR(snug_template_add(reader->ctx, out, reader->path, *id == 'A' ? SNUG_PIECE_A : SNUG_PIECE_B,
                                              (int32_t)type));
    }
    return SNUG_OK;
}

static snug_status read_templates(struct reader *reader, const json_t *part) {
    struct snug_post_processor *out = reader->post_processor;
    RETURN_IF_ERROR(read_template(reader, part, "single", &out->single));
    RETURN_IF_ERROR(read_template(reader, part, "pair", &out->pair));
    const struct snug_template *single = &out->single;
    if (single->count && single->pieces[0].id >= 0) reader->specials->cls = single->pieces[0].id;
    if (single->count && single->pieces[single->count - 1].id >= 0)
        reader->specials->sep = single->pieces[single->count - 1].id;
    return SNUG_OK;
}

static snug_status read_nothing(struct reader *reader, const json_t *part) {
    (void)reader;
    (void)part;
    return SNUG_OK;
}

/* ---- decoders ------------------------------------------------------------------------------------------------- */

/* A decoder with a text under a key of its own, if it has one, and its other settings. */
static snug_status read_decoder(struct reader *reader, const json_t *part) {
    static const char *const keys[] = {[SNUG_DECODING_STRIP] = "content",
                                       [SNUG_DECODING_METASPACE] = "replacement",
                                       [SNUG_DECODING_WORDPIECE] = "prefix",
                                       [SNUG_DECODING_BPE] = "suffix"};
    struct snug_decoder_step step = reader->fixed->decoding;
    const char *key = keys[step.kind], *scheme = "";
    bool prefix = true;
    snug_status status = SNUG_OK;
    if (key) status = read_text(reader, part, key, &step.text, &step.text_length);
    if (key && status == SNUG_OK && !step.text_length) status = malformed(reader, key, "not empty");
    if (step.kind == SNUG_DECODING_REPLACE) {
        status = read_pattern(reader, part, &step.text, &step.text_length, &step.regex);
        if (status == SNUG_OK) status = read_text(reader, part, "content", &step.content, &step.content_length);
    } else if (step.kind == SNUG_DECODING_METASPACE && status == SNUG_OK) {
        status = read_bool(reader, part, "add_prefix_space", true, &prefix); /* of older files */
        if (status == SNUG_OK)
            status = snug_json_string(reader->ctx, reader->path, part, "prepend_scheme", prefix ? "always" : "never",
                                      &scheme);
        step.drops_first = strcmp(scheme, "never") != 0;
    } else if (step.kind == SNUG_DECODING_WORDPIECE && status == SNUG_OK) {
        status = read_bool(reader, part, "cleanup", true, &step.cleans);
    } else if (step.kind == SNUG_DECODING_STRIP && status == SNUG_OK) {
        status = snug_json_int(reader->ctx, reader->path, part, "start", 0, &step.start);
        if (status == SNUG_OK) status = snug_json_int(reader->ctx, reader->path, part, "stop", 0, &step.stop);
    }
    if (status == SNUG_OK) return snug_decoder_add(reader->ctx, reader->decoder, &step);
    snug_decoder_step_free(&step);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

#define PART(of, type, ...)                                                                                            \
    { .section = of, .name = type, .read = __VA_ARGS__ }
static const struct part parts[] = {
    PART("normalizer", "BertNormalizer", read_bert_normalizer),
    PART("normalizer", "Sequence", read_sequence),
    PART("normalizer", "NFC", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_FORM, .composed = true}),
    PART("normalizer", "NFD", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_FORM}),
    PART("normalizer", "NFKC", read_normalizer,
         .normalizer = {.kind = SNUG_NORMALIZER_FORM, .compatible = true, .composed = true}),
    PART("normalizer", "NFKD", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_FORM, .compatible = true}),
    PART("normalizer", "Lowercase", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_LOWERCASE}),
    PART("normalizer", "StripAccents", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_STRIP_ACCENTS}),
    PART("normalizer", "Replace", read_replace),
    PART("normalizer", "Prepend", read_prepend),
    PART("normalizer", "Strip", read_strip),
    PART("normalizer", "Nmt", read_normalizer, .normalizer = {.kind = SNUG_NORMALIZER_NMT}),
    PART("normalizer", "Precompiled", read_precompiled),
    PART("pre_tokenizer", "BertPreTokenizer", read_splitting, .splitting = {.kind = SNUG_SPLITTING_BERT}),
    PART("pre_tokenizer", "Sequence", read_sequence),
    PART("pre_tokenizer", "ByteLevel", read_byte_level),
    PART("pre_tokenizer", "Whitespace", read_splitting,
         .splitting = {.kind = SNUG_SPLITTING_WORDS, .behavior = SNUG_BEHAVIOR_REMOVED, .invert = true}),
    PART("pre_tokenizer", "WhitespaceSplit", read_splitting,
         .splitting = {.kind = SNUG_SPLITTING_SPACE, .behavior = SNUG_BEHAVIOR_REMOVED}),
    PART("pre_tokenizer", "Punctuation", read_punctuation),
    PART("pre_tokenizer", "Digits", read_digits),
    PART("pre_tokenizer", "CharDelimiterSplit", read_delimiter),
    PART("pre_tokenizer", "Metaspace", read_metaspace),
    PART("pre_tokenizer", "Split", read_split),
    PART("post_processor", "BertProcessing", read_frame),
    PART("post_processor", "RobertaProcessing", read_frame),
    PART("post_processor", "TemplateProcessing", read_templates),
    PART("post_processor", "ByteLevel", read_nothing), /* changes only offsets */
    PART("post_processor", "Sequence", read_sequence),
    PART("decoder", "WordPiece", read_decoder, .decoding = {.kind = SNUG_DECODING_WORDPIECE}),
    PART("decoder", "ByteLevel", read_decoder, .decoding = {.kind = SNUG_DECODING_BYTE_LEVEL}),
    PART("decoder", "Metaspace", read_decoder, .decoding = {.kind = SNUG_DECODING_METASPACE}),
    PART("decoder", "BPEDecoder", read_decoder, .decoding = {.kind = SNUG_DECODING_BPE}),
    PART("decoder", "Replace", read_decoder, .decoding = {.kind = SNUG_DECODING_REPLACE}),
    PART("decoder", "Fuse", read_decoder, .decoding = {.kind = SNUG_DECODING_FUSE}),
    PART("decoder", "Strip", read_decoder, .decoding = {.kind = SNUG_DECODING_STRIP}),
    PART("decoder", "ByteFallback", read_decoder, .decoding = {.kind = SNUG_DECODING_BYTE_FALLBACK}),
    PART("decoder", "Sequence", read_sequence),
};

static snug_status refuse_part(const struct reader *reader, const char *name) {
    char known[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < COUNT(parts); i++)
        if (!strcmp(parts[i].section, reader->section) && used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", parts[i].name);
    return snug_fail(reader->ctx, SNUG_E_UNSUPPORTED, "%s: the %s %s is not supported, only %s", reader->path,
                     reader->section, name, known);
}

static snug_status read_part(struct reader *reader, const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; type && i < COUNT(parts); i++) {
        if (strcmp(parts[i].section, reader->section) != 0 || strcmp(parts[i].name, type) != 0) continue;
        reader->name = parts[i].name;
        reader->fixed = &parts[i];
        return parts[i].read(reader, part);
    }
    return refuse_part(reader, type ? type : "without a type");
}

static snug_status read_section(struct reader *reader, const json_t *part) {
    return part && !json_is_null(part) ? read_part(reader, part) : SNUG_OK;
}

snug_status snug_json_normalizer(snug_context *ctx, const char *path, const json_t *part, struct snug_normalizer *out) {
    struct reader reader = {.ctx = ctx, .path = path, .section = "normalizer", .normalizer = out};
    return read_section(&reader, part);
}

snug_status snug_json_precompiled(snug_context *ctx, const char *path, const json_t *part,
                                  struct snug_normalizer *out) {
    struct reader reader = {
        .ctx = ctx, .path = path, .section = "normalizer", .name = "Precompiled", .normalizer = out};
    const json_t *list = json_object_get(part, "normalizers");
    for (size_t i = 0; i < (list ? json_array_size(list) : 1); i++) {
        const json_t *step = list ? json_array_get(list, i) : part;
        const char *type = json_string_value(json_object_get(step, "type"));
        if (type && !strcmp(type, "Precompiled")) return read_precompiled(&reader, step);
    }
    return SNUG_OK;
}

snug_status snug_json_pretokenizer(snug_context *ctx, const char *path, const json_t *part,
                                   struct snug_pretokenizer *out) {
    struct reader reader = {.ctx = ctx, .path = path, .section = "pre_tokenizer", .pretokenizer = out};
    return read_section(&reader, part);
}

snug_status snug_json_post_processor(snug_context *ctx, const char *path, const json_t *part,
                                     struct snug_post_processor *out, struct snug_special_ids *specials) {
    struct reader reader = {
        .ctx = ctx, .path = path, .section = "post_processor", .post_processor = out, .specials = specials};
    return read_section(&reader, part);
}

snug_status snug_json_decoder(snug_context *ctx, const char *path, const json_t *part, struct snug_decoder *out) {
    struct reader reader = {.ctx = ctx, .path = path, .section = "decoder", .decoder = out};
    return read_section(&reader, part);
}
