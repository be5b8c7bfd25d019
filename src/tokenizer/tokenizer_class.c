/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer_class.h"

#include <string.h>

#include "io/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- the classes ----------------------------------------------------------------------------------------------- */

/* clang-format off */
#define JSON(...) #__VA_ARGS__

#define WITH_TYPES JSON("model_input_names": ["input_ids", "token_type_ids", "attention_mask"])
#define BERT_ROWS JSON("post_processor": {"type": "BertProcessing", "cls": "&cls_token", "sep": "&sep_token"})
#define ROBERTA_ROWS JSON("post_processor": {"type": "RobertaProcessing", "cls": "&cls_token", "sep": "&sep_token"})
#define SENTENCE_ROWS JSON("post_processor": {"type": "RobertaProcessing", "cls": "&bos_token", "sep": "&eos_token"})

#define WORDPIECE JSON( \
    "normalizer": {"type": "BertNormalizer", "lowercase": "$do_lower_case", "strip_accents": "$strip_accents", \
                   "handle_chinese_chars": "$tokenize_chinese_chars"}, \
    "pre_tokenizer": {"type": "BertPreTokenizer"}, \
    "model": {"type": "WordPiece", "unk_token": "$unk_token"}, \
    "decoder": {"type": "WordPiece", "prefix": "##"})
#define BERT WORDPIECE "," BERT_ROWS "," JSON( \
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]")

#define BYTE_LEVEL JSON( \
    "normalizer": null, \
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": "$add_prefix_space"}, \
    "model": {"type": "BPE"}, \
    "decoder": {"type": "ByteLevel"}, \
    "add_prefix_space": false)

#define FAIRSEQ JSON( \
    "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>", \
    "cls_token": "<s>", "mask_token": "<mask>")
#define SENTENCEPIECE JSON( \
    "normalizer": {"type": "Precompiled"}, \
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [ \
        {"type": "WhitespaceSplit"}, \
        {"type": "Metaspace", "replacement": "▁", "add_prefix_space": "$add_prefix_space"}]}, \
    "decoder": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": "$add_prefix_space"}) \
    "," SENTENCE_ROWS "," FAIRSEQ

#define DEBERTA_SPACES JSON( \
    {"type": "Replace", "pattern": {"Regex": "\\s{2,}|[\\n\\r\\t]"}, "content": " "}, {"type": "NFC"}, \
    {"type": "Strip", "strip_left": false, "strip_right": true}])
#define DEBERTA_METASPACE JSON( \
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": {"if": "$add_prefix_space", "then": "always", "else": "first"}})

static const struct snug_tokenizer_class classes[] = {
    {.name = "BertTokenizer", .json = "{" BERT "," WITH_TYPES "}"}, /* the first: of vocab.txt alone */
    {.name = "DistilBertTokenizer", .json = "{" BERT "}"},
    {.name = "ElectraTokenizer", .json = "{" BERT "," WITH_TYPES "}"},
    {.name = "MobileBertTokenizer", .json = "{" BERT "," WITH_TYPES "}"},
    {.name = "ConvBertTokenizer", .json = "{" BERT "," WITH_TYPES "}", .wraps = true}, /* has no __init__ of its own */
    {.name = "SqueezeBertTokenizer", .json = "{" BERT "," WITH_TYPES "}"},
    {.name = "MPNetTokenizer", .json = "{" WORDPIECE "," ROBERTA_ROWS "," JSON(
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "[UNK]", "sep_token": "</s>", "pad_token": "<pad>",
        "cls_token": "<s>", "mask_token": "<mask>", "text_is_object": true, "mask_strips": true) "}"},
    {.name = "RobertaTokenizer", .json = "{" BYTE_LEVEL "," FAIRSEQ "," ROBERTA_ROWS "}",
     .prefix_words = true},
    {.name = "GPT2Tokenizer", .json = "{" BYTE_LEVEL "," JSON("bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>", "pad_token": null) "}", .prefix_words = true},
    {.name = "Qwen2Tokenizer", .json = "{" JSON(
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "behavior": "Isolated", "pattern": {"Regex":
                "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
            {"type": "ByteLevel", "add_prefix_space": "$add_prefix_space", "use_regex": false}]},
        "model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}, "add_prefix_space": false,
        "unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>") "}"},
    {.name = "LlamaTokenizer", .json = "{" JSON(
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": false, "prepend_scheme":
            {"if": "$add_prefix_space", "then": {"if": "$legacy", "then": "always", "else": "first"}, "else": "never"}},
        "model": {"type": "BPE", "fuse_unk": true, "byte_fallback": true},
        "decoder": {"type": "Sequence", "decoders": {"if": "$add_prefix_space",
            "then": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                     {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
            "else": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                     {"type": "Fuse"}]}},
        "add_prefix_space": true, "legacy": false, "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>") "}", .wraps_bytes = true,
     .pieces = true},
    {.name = "GemmaTokenizer", .json = "{" JSON(
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"},
        "model": {"type": "BPE", "fuse_unk": true, "byte_fallback": true, "unk_token": "$unk_token"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "mask_token": "<mask>") "}", .pieces = true},
    {.name = "XLMRobertaTokenizer", .json = "{" SENTENCEPIECE "," JSON(
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [
            ["<s>", 0, "bos_token"], ["<pad>", 0, "pad_token"], ["</s>", 0, "eos_token"], ["<unk>", 0, "unk_token"],
            3, ["<mask>", 0, "mask_token"]]}) "}"},
    {.name = "CamembertTokenizer", .json = "{" SENTENCEPIECE "," JSON(
        "model": {"type": "Unigram", "unk_id": "@unk_token", "vocab": [
            ["<s>NOTUSED", 0], ["<pad>", 0, "pad_token"], ["</s>NOTUSED", 0], ["<unk>", 0, "unk_token"],
            ["<unk>NOTUSED", -100], 1, ["<mask>", 0, "mask_token"]]},
        "extra_special_tokens": ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"], "mask_strips": true) "}"},
    {.name = "DebertaV2Tokenizer", .json = "{" JSON(
        "normalizer": {"type": "Sequence", "normalizers": {"if": "$do_lower_case", "then": [{"type": "Lowercase"},)
            DEBERTA_SPACES JSON(, "else": [) DEBERTA_SPACES JSON(}},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": {"if": "$split_by_punct", "then": [
            {"type": "Punctuation", "behavior": "Isolated"},) DEBERTA_METASPACE JSON(], "else": [) DEBERTA_METASPACE JSON(]}},
        "model": {"type": "Unigram", "unk_id": "@unk_token", "vocab": [0]}, "decoder":) DEBERTA_METASPACE JSON(,
        "do_lower_case": false, "split_by_punct": false, "add_prefix_space": true, "bos_token": "[CLS]",
        "eos_token": "[SEP]", "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
        "mask_token": "[MASK]",) BERT_ROWS "," WITH_TYPES "}", .spm = true},
    {.name = "PreTrainedTokenizer", .json = NULL, .wraps = true},
    {.name = "TokenizersBackend", .json = NULL, .wraps = true},
};
/* transformers' build_tokenizer_from_spm_proto(), of a usual file; saved under a name that wraps. */
static const struct snug_tokenizer_class of_pieces = {.name = "PreTrainedTokenizerFast", .json = "{" JSON(
        "normalizer": {"type": "Sequence", "normalizers": {"if": "$legacy", "then": [
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            {"type": "Replace", "pattern": {"Regex": "\\A▁"}, "content": "▁▁"}], "else": []}},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": false, "prepend_scheme":
            {"if": "$legacy", "then": "always", "else": "first"}},
        "model": {"type": "BPE", "fuse_unk": true, "byte_fallback": true, "unk_token": "<unk>"},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "legacy": true, "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>") "}",
    .pieces = true, .plain_pieces = true};
/* clang-format on */

const struct snug_tokenizer_class *snug_tokenizer_class_of_pieces(void) { return &of_pieces; }

const struct snug_tokenizer_class *snug_tokenizer_class_find(const char *name) {
    size_t length = strlen(name);
    if (length > 4 && !strcmp(name + length - 4, "Fast")) length -= 4;
    for (size_t i = 0; i < COUNT(classes); i++)
        if (strlen(classes[i].name) == length && !memcmp(classes[i].name, name, length)) return &classes[i];
    return NULL;
}

const struct snug_tokenizer_class *snug_tokenizer_class_default(void) { return &classes[0]; }

snug_status snug_tokenizer_class_parse(snug_context *ctx, const struct snug_tokenizer_class *class, json_t **out) {
    const char *text = class->json ? class->json : "{}";
    return snug_json_read_text(ctx, class->name, text, strlen(text), out);
}

/* ---- the folder's settings in a class -------------------------------------------------------------------------- */

/* "$KEY" */
static snug_status setting(const struct snug_class_settings *s, const char *key, json_t **out) {
    const json_t *from = s->sources->config, *named = json_object_get(s->sources->named, key);
    bool value;
    if (named) *out = json_string(snug_token_content(named)); /* NULL: no such token */
    if (named) return SNUG_OK;
    if (!json_object_get(from, key) || json_is_null(json_object_get(from, key))) from = s->json;
    if (!json_object_get(from, key)) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_bool(s->ctx, s->config_path, from, key, false, &value));
    *out = json_boolean(value);
    return SNUG_OK;
}

/* "&NAME" and "@NAME" */
static snug_status token(const struct snug_class_settings *s, bool with_text, const char *name, json_t **out) {
    const char *content = snug_token_content(json_object_get(s->sources->named, name));
    if (!with_text) {
        const int32_t id = content ? snug_vocabulary_find(&s->tokenizer->vocabulary, content) : -1;
        *out = json_integer(id < 0 ? 0 : id);
        return SNUG_OK;
    }
    const int32_t id = snug_special_tokens_id(s->sources, s->tokenizer, name);
    if (id < 0)
        return snug_fail(s->ctx, SNUG_E_INPUT, "%s: there is no %s; set it in tokenizer_config.json", s->path, name);
    *out = json_pack("[s,i]", content, (int)id);
    return SNUG_OK;
}

/* Puts one of the two values of a condition in its place, which may be another condition. */
static snug_status choose(const struct snug_class_settings *s, json_t *part, const char *key, json_t **value) {
    const char *condition;
    while ((condition = json_string_value(json_object_get(*value, "if")))) {
        json_t *holds = NULL;
        RETURN_IF_ERROR(setting(s, condition + 1, &holds));
        json_t *chosen = json_object_get(*value, json_is_true(holds) ? "then" : "else");
        if (json_object_set(part, key, chosen))
            return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while reading %s", s->path);
        *value = chosen;
    }
    return SNUG_OK;
}

/* Fills the texts of a copy, which contains no other reference to a member of the class's JSON. */
static snug_status fill(const struct snug_class_settings *s, json_t *part) {
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(part, key, value) {
        RETURN_IF_ERROR(choose(s, part, key, &value));
        const char *text = json_string_value(value);
        RETURN_IF_ERROR(fill(s, value));
        if (!text || !strchr("$&@", *text)) continue;
        json_t *found = NULL;
        RETURN_IF_ERROR(*text == '$' ? setting(s, text + 1, &found) : token(s, *text == '&', text + 1, &found));
        if (json_object_set_new(part, key, found ? found : json_null()))
            return snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while reading %s", s->path);
    }
    json_array_foreach(part, i, value) RETURN_IF_ERROR(fill(s, value));
    return SNUG_OK;
}

snug_status snug_tokenizer_class_fill(const struct snug_class_settings *settings, const json_t *part, json_t **out) {
    *out = json_deep_copy(part);
    if (!*out) return snug_fail(settings->ctx, SNUG_E_MEMORY, "out of memory while reading %s", settings->path);
    const snug_status status = fill(settings, *out);
    if (status != SNUG_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}
