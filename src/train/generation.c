/* SPDX-License-Identifier: Apache-2.0 */
#include "train/generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/json.h"
#include "model/decoders/decoder.h"

enum { CONTEXT = 4096, NEW_TOKENS = 20, TOP_K = 50 };

/* ---- settings -------------------------------------------------------------------------------------------------- */

struct reading {
    snug_args *args;
    json_t *json; /* generation_config.json; NULL: there is none */
    char *path;
};

static snug_status read_file(struct reading *r, const char *folder) {
    RETURN_IF_ERROR(snug_path_join(r->args->ctx, &r->path, folder, SNUG_GENERATION_CONFIG));
    return access(r->path, F_OK) ? SNUG_OK : snug_json_read(r->args->ctx, NULL, r->path, &r->json);
}

/* The file's value, unless the argument is given; null is none. */
static const json_t *of_file(const struct reading *r, const char *name) {
    const json_t *value = snug_args_is_set(r->args, name) ? NULL : json_object_get(r->json, name);
    return json_is_null(value) ? NULL : value;
}

static snug_status refuse(const struct reading *r, const char *name, const char *what) {
    return snug_fail(r->args->ctx, SNUG_E_INPUT, "%s: %s must be %s; or give --%s", r->path, name, what, name);
}

static snug_status read_real(const struct reading *r, const char *name, double least, double most, double given,
                             double *out) {
    const json_t *value = of_file(r, name);
    *out = value ? json_number_value(value) : given;
    if (!value || (json_is_number(value) && *out >= least && *out <= most)) return SNUG_OK;
    char what[64];
    snprintf(what, sizeof what, "a number from %g to %g", least, most);
    return refuse(r, name, what);
}

static snug_status read_count(const struct reading *r, const char *name, int64_t least, int64_t most, int64_t given,
                              int64_t *out) {
    double value;
    RETURN_IF_ERROR(read_real(r, name, (double)least, (double)most, (double)given, &value));
    *out = (int64_t)value;
    return SNUG_OK;
}

static snug_status read_flag(const struct reading *r, const char *name, bool given, bool *out) {
    const json_t *value = of_file(r, name);
    *out = value ? json_is_true(value) : given;
    return !value || json_is_boolean(value) ? SNUG_OK : refuse(r, name, "true or false");
}

static snug_status read_early(const struct reading *r, enum snug_early_stopping *out) {
    const json_t *value = of_file(r, "early_stopping");
    const char *text = value ? json_string_value(value) : r->args->early_stopping;
    if (value && json_is_boolean(value)) text = json_is_true(value) ? "True" : "False";
    if (!text || (strcmp(text, "True") != 0 && strcmp(text, "False") != 0 && strcmp(text, "never") != 0))
        return refuse(r, "early_stopping", "true, false or \"never\"");
    *out = strcmp(text, "never") == 0  ? SNUG_EARLY_NEVER
           : strcmp(text, "True") == 0 ? SNUG_EARLY_TRUE
                                       : SNUG_EARLY_FALSE;
    return SNUG_OK;
}

static snug_status add_end(const struct reading *r, const struct snug_config *config, int64_t id,
                           struct snug_token_choice *to) {
    if (id < 0 || id >= config->vocab_size || snug_sampling_ends(to, (int32_t)id)) return SNUG_OK;
    if (to->end_count == SNUG_ENDS_MOST)
        return snug_fail(r->args->ctx, SNUG_E_UNSUPPORTED, "eos_token_id: more than %d end tokens are not supported",
                         (int)SNUG_ENDS_MOST);
    to->ends[to->end_count++] = (int32_t)id;
    return SNUG_OK;
}

static snug_status add_ends(const struct reading *r, const struct snug_config *config, const json_t *ids,
                            struct snug_token_choice *to) {
    if (json_is_integer(ids)) return add_end(r, config, json_integer_value(ids), to);
    for (size_t i = 0; i < json_array_size(ids); i++)
        RETURN_IF_ERROR(add_end(r, config, json_integer_value(json_array_get(ids, i)), to));
    return SNUG_OK;
}

static snug_status read_ends(const struct reading *r, const struct snug_config *config,
                             const struct snug_tokenizer *tokenizer, struct snug_token_choice *to) {
    RETURN_IF_ERROR(add_ends(r, config, json_object_get(r->json, "eos_token_id"), to));
    if (to->end_count) return SNUG_OK;
    RETURN_IF_ERROR(add_ends(r, config, json_object_get(config->json, "eos_token_id"), to));
    return add_end(r, config, snug_tokenizer_special(tokenizer).eos, to);
}

static snug_status read_choice(const struct reading *r, struct snug_token_choice *to) {
    const snug_args *args = r->args;
    RETURN_IF_ERROR(read_flag(r, "do_sample", args->do_sample, &to->draws));
    RETURN_IF_ERROR(read_real(r, "temperature", 0, 1e6, args->temperature, &to->temperature));
    RETURN_IF_ERROR(
        read_count(r, "top_k", 0, 1 << 24, snug_args_is_set(args, "top_k") ? args->top_k : TOP_K, &to->top_k));
    RETURN_IF_ERROR(read_real(r, "top_p", 0, 1, args->top_p, &to->top_p));
    RETURN_IF_ERROR(read_real(r, "min_p", 0, 1, args->min_p, &to->min_p));
    RETURN_IF_ERROR(read_real(r, "repetition_penalty", 1e-6, 1e6, args->repetition_penalty, &to->repetition_penalty));
    RETURN_IF_ERROR(
        read_count(r, "no_repeat_ngram_size", 0, 1 << 24, args->no_repeat_ngram_size, &to->no_repeat_ngram_size));
    RETURN_IF_ERROR(read_count(r, "min_new_tokens", 0, 1 << 24, args->min_new_tokens, &to->min_new_tokens));
    if (!snug_args_is_set(args, "min_new_tokens"))
        RETURN_IF_ERROR(read_count(r, "min_length", 0, 1 << 24, 0, &to->min_length));
    to->seed = (uint64_t)args->seed;
    if (!to->draws || to->temperature > 0) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "temperature 0: --do_sample needs one above 0; for the most probable tokens give --no_do_sample");
}

/* What transformers would do by the file, and is not done here. */
static void tell_unknown(const struct reading *r) {
    static const struct {
        const char *name;
        double neutral; /* with which it changes nothing; also null, false and an empty list */
    } settings[] = {{"bad_words_ids", -1},
                    {"suppress_tokens", -1},
                    {"begin_suppress_tokens", -1},
                    {"forced_bos_token_id", -1},
                    {"forced_eos_token_id", -1},
                    {"sequence_bias", -1},
                    {"guidance_scale", 1},
                    {"exponential_decay_length_penalty", -1},
                    {"typical_p", 1},
                    {"epsilon_cutoff", 0},
                    {"eta_cutoff", 0},
                    {"top_h", -1},
                    {"penalty_alpha", 0},
                    {"diversity_penalty", 0},
                    {"num_beam_groups", 1},
                    {"renormalize_logits", -1},
                    {"watermarking_config", -1},
                    {"max_time", -1},
                    {"constraints", -1},
                    {"force_words_ids", -1},
                    {"token_healing", -1}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const json_t *value = json_object_get(r->json, settings[i].name);
        const bool nothing = !value || json_is_null(value) || json_is_false(value) ||
                             (json_is_array(value) && json_array_size(value) == 0) ||
                             (json_is_number(value) && json_number_value(value) == settings[i].neutral);
        if (!nothing)
            snug_log(r->args->ctx, SNUG_LOG_WARNING, "%s: %s is not supported: answers are without it", r->path,
                     settings[i].name);
    }
}

/* Arguments without effect. */
static void tell_unused(const snug_args *args, const struct snug_generation *how) {
    static const struct {
        const char *name;
        bool beams; /* else do_sample */
    } settings[] = {{"temperature", false}, {"top_k", false},         {"top_p", false},
                    {"min_p", false},       {"length_penalty", true}, {"early_stopping", true}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const bool beams = settings[i].beams, used = beams ? how->search.beams > 1 : how->sampling.draws;
        if (!used && snug_args_is_chosen(args, settings[i].name))
            snug_log(args->ctx, SNUG_LOG_INFO, "--%s has no effect without --%s", settings[i].name,
                     beams ? "num_beams" : "do_sample");
    }
}

/* New tokens, or tokens of a prompt and its answer together, or both. */
static snug_status read_length(const struct reading *r, bool reads, struct snug_generation_setup *s) {
    const snug_args *args = r->args;
    const int64_t given = snug_args_is_set(args, "max_new_tokens") ? args->max_new_tokens : -1;
    int64_t *new_tokens = &s->how.max_new_tokens;
    s->limit = INT64_MAX;
    if (reads && !args->predict_with_generate && snug_args_is_set(args, "max_seq_length")) {
        s->limit = args->max_seq_length;
        s->limited_by = "--max_seq_length";
    } else if (given < 0 && args->generation_max_length > 0) {
        s->limit = args->generation_max_length;
        s->limited_by = "--generation_max_length";
    }
    RETURN_IF_ERROR(read_count(r, "max_new_tokens", 1, 1 << 24, given, new_tokens));
    if (s->limited_by && given < 0) *new_tokens = -1;
    if (*new_tokens < 0 && !s->limited_by && reads) {
        RETURN_IF_ERROR(read_count(r, "max_length", 1, 1 << 24, -1, &s->limit));
        if (s->limit > 0) s->limited_by = "max_length of " SNUG_GENERATION_CONFIG;
        if (s->limit < 0) *new_tokens = NEW_TOKENS, s->limit = INT64_MAX;
    }
    if (*new_tokens < 0) *new_tokens = INT64_MAX; /* the rest of the memory for prompt and answer */
    return SNUG_OK;
}

static snug_status read_search(const struct reading *r, struct snug_generation *how) {
    const snug_args *args = r->args;
    RETURN_IF_ERROR(read_count(r, "num_beams", 1, SNUG_BEAMS_MOST, args->num_beams, &how->search.beams));
    RETURN_IF_ERROR(read_real(r, "length_penalty", -1e6, 1e6, args->length_penalty, &how->search.length_penalty));
    RETURN_IF_ERROR(read_count(r, "num_return_sequences", 1, 1 << 16, args->num_return_sequences, &how->returned));
    RETURN_IF_ERROR(read_early(r, &how->search.early_stopping));
    if (how->search.beams > 1 && how->returned > how->search.beams)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--num_return_sequences %lld is more than --num_beams %lld",
                         (long long)how->returned, (long long)how->search.beams);
    if (how->search.beams == 1 && how->returned > 1 && !how->sampling.draws)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--num_return_sequences %lld would give the same answer several times: give --do_sample or "
                         "--num_beams",
                         (long long)how->returned);
    return SNUG_OK;
}

static bool are_texts(const json_t *list) {
    bool right = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++) right &= json_string_length(json_array_get(list, i)) > 0;
    return right;
}

/* One text, or a list of them: of the argument as JSON. */
static snug_status read_stops(const struct reading *r, json_t **out) {
    const char *text = r->args->stop_strings;
    const json_t *value = text ? NULL : of_file(r, "stop_strings");
    json_error_t error;
    if (value) {
        *out = json_is_string(value) ? json_pack("[O]", value) : json_deep_copy(value);
        return are_texts(*out) ? SNUG_OK : refuse(r, "stop_strings", "a text, or a list of texts");
    }
    if (!text) return SNUG_OK;
    *out = *text == '[' ? snug_json_parse(text, strlen(text), 0, &error) : json_pack("[s]", text);
    if (are_texts(*out)) return SNUG_OK;
    return snug_fail(r->args->ctx, SNUG_E_USAGE,
                     "--stop_strings %s: must be a text, or a JSON list of texts, [\"\\n\", \"END\"]", text);
}

/* Whether one of the stop strings ends after the first `from` bytes. */
static bool has_stop(const json_t *stops, const struct snug_text *text, size_t from) {
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const json_t *stop = json_array_get(stops, i);
        const size_t length = json_string_length(stop);
        for (size_t at = from >= length ? from - length + 1 : 0; at + length <= text->length; at++)
            if (memcmp(text->text + at, json_string_value(stop), length) == 0) return true;
    }
    return false;
}

/* The last tokens are enough, as each has a byte at least; but a decoder may leave out what begins a text. */
static int64_t window_of(const json_t *stops) {
    size_t longest = 0;
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const size_t length = json_string_length(json_array_get(stops, i));
        if (length > longest) longest = length;
    }
    return (int64_t)longest + 2;
}

bool snug_generation_stops(snug_context *ctx, const struct snug_generation_setup *setup,
                           const struct snug_tokenizer *tokenizer, const int32_t *ids, int64_t count, int64_t before,
                           struct snug_text *scratch) {
    struct snug_text *without = &scratch[0], *with = &scratch[1];
    if (!setup->stops) return false;
    const int64_t window = window_of(setup->stops), all = before + count, taken = window < all ? window : all;
    const int32_t *begin = ids + count - taken;
    if (snug_tokenizer_decode_raw(ctx, tokenizer, begin, (size_t)taken - 1, false, without) != SNUG_OK ||
        snug_tokenizer_decode_raw(ctx, tokenizer, begin, (size_t)taken, false, with) != SNUG_OK)
        return true;
    size_t same = 0; /* the last token may complete a character */
    while (same < without->length && same < with->length && with->text[same] == without->text[same]) same++;
    return has_stop(setup->stops, with, same);
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static snug_status check_length(const snug_args *args, const struct snug_config *config,
                                struct snug_generation_setup *s) {
    const struct snug_decoder *d = snug_decoder_of(config);
    const int64_t changes = larger(d->rope.longer_from, d->sliding_rope.longer_from);
    const char *where = s->prompts.longest_where;
    if (s->prompt >= config->positions)
        return snug_fail(args->ctx, SNUG_E_INPUT,
                         "%s: a prompt of %lld tokens leaves no room for an answer within the model's %lld positions",
                         where, (long long)s->prompt, (long long)config->positions);
    if (s->prompt >= s->limit)
        return snug_fail(
            args->ctx, SNUG_E_USAGE,
            "%s: a prompt of %lld tokens leaves no room for an answer within the %lld tokens of %s: raise it, or "
            "give --max_new_tokens alone",
            where, (long long)s->prompt, (long long)s->limit, s->limited_by);
    s->longest = smaller(s->longest, config->positions);
    if (!changes || s->longest <= changes) return SNUG_OK;
    return snug_fail(
        args->ctx, SNUG_E_UNSUPPORTED,
        "prompt and answer may have %lld tokens, and this model's rotary embeddings change after %lld, which "
        "generation does not support: lower --%s",
        (long long)s->longest, (long long)changes, s->prompts.count ? "max_new_tokens" : "max_seq_length");
}

int64_t snug_generation_pages(const struct snug_generation_setup *s, int64_t groups, int64_t beams) {
    return snug_generating_pages(groups, beams, s->prompt, s->longest, s->how.max_new_tokens);
}

void snug_generation_resize(struct snug_generation_setup *s, const struct snug_config *config,
                            const struct snug_backend *backend, int64_t groups, int64_t beams) {
    s->groups = groups;
    s->how.search.beams = beams;
    s->rows = groups * beams;
    s->tokens = larger(s->rows, smaller(backend->prompt_tokens, groups * s->prompt));
    s->pages = snug_generation_pages(s, groups, beams);
    s->top = snug_generating_top(&s->how, snug_backend_is_device(backend), config->vocab_size);
}

static snug_status choose_sizes(const snug_args *args, const struct snug_config *config,
                                const struct snug_backend *backend, bool reads, struct snug_generation_setup *s) {
    const int64_t beams = s->how.search.beams, each = beams > 1 ? 1 : s->how.returned;
    const int64_t given = snug_args_is_set(args, "max_seq_length") ? args->max_seq_length : CONTEXT;
    const int64_t answers = reads ? (int64_t)s->prompts.count * each : args->plan_only ? INT64_MAX : 1;
    s->longest = !reads                                                    ? smaller(given, config->positions)
                 : s->how.max_new_tokens < larger(0, s->limit - s->prompt) ? s->prompt + s->how.max_new_tokens
                                                                           : s->limit;
    if (!reads) s->prompt = larger(1, s->longest - (args->plan_only ? s->how.max_new_tokens : 1));
    RETURN_IF_ERROR(check_length(args, config, s));
    int64_t groups = smaller(args->per_device_eval_batch_size, answers);
    if (backend->independent_rows) groups = smaller(groups, larger(1, backend->independent_rows / beams));
    snug_generation_resize(s, config, backend, groups, beams);
    s->asked_groups = groups;
    s->asked_beams = beams;
    return SNUG_OK;
}

static snug_status open_settings(const struct reading *r, const struct snug_config *config,
                                 const struct snug_tokenizer *tokenizer, bool reads, struct snug_generation_setup *s) {
    RETURN_IF_ERROR(read_choice(r, &s->how.sampling));
    RETURN_IF_ERROR(read_ends(r, config, tokenizer, &s->how.sampling));
    RETURN_IF_ERROR(read_search(r, &s->how));
    RETURN_IF_ERROR(read_stops(r, &s->stops));
    s->prompt = s->prompts.longest;
    tell_unknown(r);
    tell_unused(r->args, &s->how);
    return read_length(r, reads, s);
}

snug_status snug_generation_open(snug_args *args, const struct snug_config *config,
                                 const struct snug_tokenizer *tokenizer, const char *folder,
                                 const struct snug_backend *backend, bool reads, struct snug_generation_setup *out) {
    struct reading r = {.args = args};
    if (reads)
        RETURN_IF_ERROR((args->predict_with_generate ? snug_prompts_read_pairs : snug_prompts_read)(args, tokenizer,
                                                                                                    &out->prompts));
    snug_status status = read_file(&r, folder);
    if (status == SNUG_OK) status = open_settings(&r, config, tokenizer, reads, out);
    json_decref(r.json);
    free(r.path);
    return status == SNUG_OK ? choose_sizes(args, config, backend, reads, out) : status;
}

void snug_generation_free(struct snug_generation_setup *setup) {
    json_decref(setup->stops);
    snug_prompts_free(&setup->prompts);
    *setup = (struct snug_generation_setup){0};
}
