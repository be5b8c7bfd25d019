/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/gguf_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_parts.h"

#define KEY(name) "tokenizer.ggml." name

/* llama.cpp's types of tokens. */
enum type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

static const char spm_space[] = "\xe2\x96\x81"; /* U+2581 */

struct vocabulary {
    struct snug_gguf *file;
    const struct snug_tokenizer *tokenizer;
    int64_t rows;
    enum type *types;               /* by id */
    float *scores;                  /* by id: of SentencePiece's BPE */
    const struct snug_merge **list; /* the merges, by rank */
};

/* ---- pre-tokenizers ---------------------------------------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(end) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define SLASHES " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"

/* llama.cpp knows a pre-tokenizer by a name (llama-vocab.cpp has what each does); these are the names of those that do
   what the steps do, which are separated by newlines. merges: whether words that are tokens are merged all the same. */
static const struct {
    const char *name, *steps;
    bool merges;
} pretokenizers[] = {
    {"gpt-2", "gpt2", true},
    {"smollm", "digits\ngpt2", true},
    {"smaug-bpe", CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" SIGNS "|" SPACES, true},
    {"llama-bpe", CONTRACTIONS "|" WORDS "|\\p{N}{1,3}|" SIGNS "|" SPACES, false},
    {"qwen2", CONTRACTIONS "|" WORDS "|\\p{N}|" SIGNS "|" SPACES, true},
    {"qwen35",
     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES, true},
    {"tekken", CASES("") "|\\p{N}|" SLASHES "|" SPACES, false},
    {"gpt-4o", CASES(CONTRACTIONS "?") "|\\p{N}{1,3}|" SLASHES "|" SPACES, true},
    {"deepseek-v3",
     "\\p{N}{1,3}\n[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+\n"
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
     " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     true},
};
enum { PRETOKENIZERS = sizeof pretokenizers / sizeof *pretokenizers };

/* The step's text in the table; "" if it splits nothing, "?" if the table has none such. Parts that match are words of
   their own in both cases: they are isolated, or what lies between them is removed, which is nothing. */
static const char *step_name(const struct snug_pretokenizer_step *step) {
    const bool isolates =
        step->invert ? step->behavior == SNUG_BEHAVIOR_REMOVED : step->behavior == SNUG_BEHAVIOR_ISOLATED;
    if (step->kind == SNUG_SPLITTING_BYTE_LEVEL && step->prefix == SNUG_PREFIX_NEVER) return step->split ? "gpt2" : "";
    if (step->kind == SNUG_SPLITTING_GPT2 && isolates) return "gpt2";
    if (step->kind == SNUG_SPLITTING_DIGITS && isolates) return "digits";
    return step->kind == SNUG_SPLITTING_REGEX && isolates ? step->pattern : "?";
}

static snug_status describe_steps(snug_context *ctx, const struct snug_pretokenizer *steps, char **out) {
    RETURN_IF_ERROR(snug_strdup(ctx, "", out));
    for (size_t i = 0; i < steps->count; i++) {
        const char *name = step_name(&steps->steps[i]);
        char *before = *out;
        if (!*name) continue;
        *out = NULL;
        const snug_status status = snug_format(ctx, out, "%s%s%s", before, *before ? "\n" : "", name);
        free(before);
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

static snug_status add_pretokenizer(const struct vocabulary *v) {
    snug_context *ctx = v->file->ctx;
    const bool merges = !v->tokenizer->bpe.ignore_merges;
    const char *name = NULL;
    bool same = false;
    char *steps = NULL;
    RETURN_IF_ERROR(describe_steps(ctx, &v->tokenizer->pretokenizer, &steps));
    for (int i = 0; i < PRETOKENIZERS && !same; i++) {
        if (strcmp(steps, pretokenizers[i].steps) != 0) continue;
        name = pretokenizers[i].name;
        same = pretokenizers[i].merges == merges;
    }
    free(steps);
    if (!name)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "the tokenizer's pre_tokenizer is none that snug knows in llama.cpp: a GGUF file would give "
                         "other tokens");
    if (!same)
        snug_log(ctx, SNUG_LOG_WARNING,
                 "llama.cpp's pre-tokenizer %s %s words that are tokens, and this tokenizer does not: tokens of rare "
                 "words may differ",
                 name, merges ? "does not merge" : "also merges");
    snug_gguf_add_text(v->file, KEY("pre"), name, strlen(name));
    return SNUG_OK;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Tokens that llama.cpp's converter takes for control tokens although files do not mark them as special. */
static bool looks_special(const char *text) {
    static const char *const around[][2] = {{"<|", "|>"},     {"<\xef\xbd\x9c", "\xef\xbd\x9c>"},
                                            {"<unused", ">"}, {"<pad>", ""},
                                            {"<mask>", ""},   {"<2mass>", ""},
                                            {"[@BOS@]", ""}};
    const size_t length = strlen(text);
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        const size_t begin = strlen(around[i][0]), end = strlen(around[i][1]);
        const bool begins = strncmp(text, around[i][0], begin) == 0;
        if (begins && (end ? length >= begin + end && strcmp(text + length - end, around[i][1]) == 0 : length == begin))
            return true;
    }
    return false;
}

static void find_types(struct vocabulary *v) {
    const struct snug_tokenizer *t = v->tokenizer;
    for (int64_t id = 0; id < v->rows; id++) v->types[id] = id < t->vocab_size && t->tokens[id] ? NORMAL : UNUSED;
    for (size_t i = 0; i < t->added.count; i++) {
        const struct snug_added_token *token = &t->added.items[i];
        v->types[token->id] = token->special || looks_special(token->content) ? CONTROL : USER_DEFINED;
    }
    if (t->bpe.byte_level) return;
    for (int byte = 0; byte < 256; byte++)
        if (t->bpe.byte_ids[byte] >= 0) v->types[t->bpe.byte_ids[byte]] = BYTE;
    if (t->bpe.unk >= 0) v->types[t->bpe.unk] = UNKNOWN;
}

/* Spaces of a user's token are plain there, where others have U+2581. */
static void append_plain(struct snug_gguf *file, const char *text) {
    uint64_t length = 0;
    for (const char *at = text; *at; at += strncmp(at, spm_space, 3) == 0 ? 3 : 1) length++;
    snug_gguf_append(file, &length, sizeof length);
    while (*text) {
        const bool space = strncmp(text, spm_space, 3) == 0;
        snug_gguf_append(file, space ? " " : text, 1);
        text += space ? 3 : 1;
    }
}

static void add_tokens(const struct vocabulary *v) {
    struct snug_gguf *file = v->file;
    snug_gguf_add_array(file, KEY("tokens"), SNUG_GGUF_TEXT, (uint64_t)v->rows);
    for (int64_t id = 0; id < v->rows; id++) {
        char unused[32];
        snprintf(unused, sizeof unused, "[PAD%lld]", (long long)id);
        const char *text = v->types[id] == UNUSED ? unused : v->tokenizer->tokens[id];
        if (v->types[id] == USER_DEFINED)
            append_plain(file, text);
        else
            snug_gguf_append_text(file, text, strlen(text));
    }
    snug_gguf_add_array(file, KEY("token_type"), SNUG_GGUF_I32, (uint64_t)v->rows);
    for (int64_t id = 0; id < v->rows; id++) {
        const int32_t type = (int32_t)v->types[id];
        snug_gguf_append(file, &type, sizeof type);
    }
}

/* ---- merges and scores ------------------------------------------------------------------------------------------- */

static void add_merges(const struct vocabulary *v) {
    const struct snug_bpe *bpe = &v->tokenizer->bpe;
    snug_gguf_add_array(v->file, KEY("merges"), SNUG_GGUF_TEXT, bpe->merge_count);
    for (size_t i = 0; i < bpe->merge_count; i++) {
        const char *left = v->tokenizer->tokens[v->list[i]->pair >> 32],
                   *right = v->tokenizer->tokens[v->list[i]->pair & UINT32_MAX];
        const uint64_t length = strlen(left) + 1 + strlen(right);
        snug_gguf_append(v->file, &length, sizeof length);
        snug_gguf_append(v->file, left, strlen(left));
        snug_gguf_append(v->file, " ", 1);
        snug_gguf_append(v->file, right, strlen(right));
    }
}

/* SentencePiece merges what gives the token of the highest score: that of a token is the rank of its first merge. */
static void add_scores(const struct vocabulary *v) {
    const size_t count = v->tokenizer->bpe.merge_count;
    bool apart = false; /* merges of a token, with others between them: not SentencePiece's list */
    for (int64_t id = 0; id < v->rows; id++) {
        const bool merged = v->types[id] == NORMAL;
        v->scores[id] = merged ? -(float)count - 1 : v->types[id] == BYTE || v->types[id] == UNKNOWN ? 0 : -1000;
    }
    for (size_t i = 0; i < count; i++) {
        const int32_t id = v->list[i]->id;
        if (v->types[id] != NORMAL) continue;
        const bool first = v->scores[id] < -(float)count;
        apart |= !first && v->list[i - 1]->id != id;
        if (first) v->scores[id] = -(float)i;
    }
    if (apart)
        snug_log(v->file->ctx, SNUG_LOG_WARNING,
                 "the tokenizer's merges are not in the order that SentencePiece's scores give: llama.cpp's tokens of "
                 "rare words may differ");
    snug_gguf_add_array(v->file, KEY("scores"), SNUG_GGUF_REAL, (uint64_t)v->rows);
    snug_gguf_append(v->file, v->scores, (size_t)v->rows * sizeof *v->scores);
}

static int compare_ranks(const void *a, const void *b) {
    const struct snug_merge *const *x = a, *const *y = b;
    return ((*x)->rank > (*y)->rank) - ((*x)->rank < (*y)->rank);
}

static void sort_merges(struct vocabulary *v) {
    const struct snug_bpe *bpe = &v->tokenizer->bpe;
    size_t count = 0;
    for (size_t i = 0; i < bpe->merge_slots; i++)
        if (bpe->merges[i].id >= 0) v->list[count++] = &bpe->merges[i];
    if (count) qsort(v->list, count, sizeof *v->list, compare_ranks);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

/* The special token before a text, or after it, which llama.cpp adds by its name: that is the named one, or takes its
   place where none is. */
static void add_edge(const struct vocabulary *v, const char *key, bool last, int32_t *named) {
    const struct snug_template *row = &v->tokenizer->post_processor.single;
    const int32_t edge = row->count ? row->pieces[last ? row->count - 1 : 0].id : SNUG_PIECE_A;
    if (edge >= 0 && *named < 0) *named = edge;
    if (edge >= 0 && *named != edge)
        snug_log(v->file->ctx, SNUG_LOG_WARNING, "rows of this tokenizer %s with %s, which llama.cpp does not add",
                 last ? "end" : "begin", v->tokenizer->tokens[edge]);
    snug_gguf_add_bool(v->file, key, edge >= 0 && *named == edge);
}

static void add_special(const struct vocabulary *v) {
    struct snug_special_ids ids = v->tokenizer->special;
    add_edge(v, KEY("add_bos_token"), false, &ids.bos);
    add_edge(v, KEY("add_eos_token"), true, &ids.eos);
    const struct {
        const char *key;
        int32_t id;
    } list[] = {{KEY("bos_token_id"), ids.bos},     {KEY("eos_token_id"), ids.eos},
                {KEY("unknown_token_id"), ids.unk}, {KEY("seperator_token_id"), ids.sep},
                {KEY("padding_token_id"), ids.pad}, {KEY("cls_token_id"), ids.cls},
                {KEY("mask_token_id"), ids.mask}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].id >= 0) snug_gguf_add_count(v->file, list[i].key, list[i].id);
}

/* Whether a text gets a space before it. */
static snug_status add_prefix(const struct vocabulary *v) {
    struct snug_ids ids = {0};
    const snug_status status = snug_tokenizer_encode(v->file->ctx, v->tokenizer, "x", 1, &ids);
    const char *first = ids.count ? v->tokenizer->tokens[ids.ids[0]] : "";
    snug_gguf_add_bool(v->file, KEY("add_space_prefix"), strncmp(first, spm_space, 3) == 0);
    free(ids.ids);
    return status;
}

static snug_status add_all(struct vocabulary *v) {
    const bool bytes = v->tokenizer->bpe.byte_level;
    const char *model = bytes ? "gpt2" : "llama";
    find_types(v);
    sort_merges(v);
    snug_gguf_add_text(v->file, KEY("model"), model, strlen(model));
    if (bytes)
        RETURN_IF_ERROR(add_pretokenizer(v));
    else
        snug_gguf_add_text(v->file, KEY("pre"), "default", strlen("default"));
    add_tokens(v);
    if (bytes)
        add_merges(v);
    else
        add_scores(v);
    if (!bytes) RETURN_IF_ERROR(add_prefix(v));
    add_special(v);
    return v->file->status;
}

snug_status snug_gguf_add_vocabulary(struct snug_gguf *file, const struct snug_tokenizer *tokenizer, int64_t rows) {
    snug_context *ctx = file->ctx;
    struct vocabulary v = {.file = file, .tokenizer = tokenizer, .rows = rows};
    const struct snug_bpe *bpe = &tokenizer->bpe;
    if (tokenizer->kind != SNUG_MODEL_BPE || (!bpe->byte_level && !bpe->byte_fallback))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "the tokenizer is neither byte-level BPE nor BPE with byte_fallback, which llama.cpp's "
                         "decoders have");
    if (tokenizer->vocab_size > rows)
        return snug_fail(ctx, SNUG_E_INPUT, "the tokenizer has %lld tokens, and the model rows of %lld",
                         (long long)tokenizer->vocab_size, (long long)rows);
    snug_status status = snug_alloc(ctx, (size_t)rows, sizeof *v.types, (void **)&v.types);
    if (status == SNUG_OK) status = snug_alloc(ctx, (size_t)rows, sizeof *v.scores, (void **)&v.scores);
    if (status == SNUG_OK) status = snug_alloc(ctx, bpe->merge_count, sizeof *v.list, (void **)&v.list);
    if (status == SNUG_OK) status = add_all(&v);
    free(v.types);
    free(v.scores);
    free(v.list);
    return status;
}
