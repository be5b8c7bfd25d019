/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the tiny decoders of tests/golden/families: those of transformers (tools/golden/generation.py), token by
   token; the same bits whatever else is answered at the same time; no memory while decoding. */
#include <malloc.h>
#include <math.h>

#include <jansson.h>

#include "folders.h"
#include "generate/generate.h"
#include "io/json.h"
#include "model/decoders/decoder.h"
#include "model/family.h"
#include "model/quantization.h"
#include "run/runner.h"
#include "sanitized.h"
#include "scratch.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* A model that generates, its weights loaded. */
struct model {
    struct snug_config config;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_run run;
    struct snug_token_steps decoding;
    struct snug_backend device; /* the backend, as if its arena were on a device */
};

struct sizes {
    int64_t rows, tokens, longest, pages;
    int32_t top;
    bool device, asynchronous, follows;
    enum snug_dtype weights, compute;
    int64_t heads; /* 0: the file's; else so many, of one key and value, and other weights */
    struct snug_quantized codes;
};

static snug_status copy_here(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    (void)ctx;
    memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

/* A device whose operations may still run, and which reads the ids of a batch that follows, as a GPU does. */
struct snug_timestamps {
    int records;
};

static snug_status load_following(struct snug_run *run) {
    const int32_t *chosen = snug_run_data(run, run->program->top_ids);
    for (int64_t t = 0; t < run->batch->tokens; t++)
        if (run->batch->ids[t] < 0) run->batch->ids[t] = chosen[-1 - run->batch->ids[t]];
    return snug_backend_cpu()->load(run);
}

static snug_status record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number) {
    assert_int_equal(number, 0);
    if (!*timestamps) *timestamps = calloc(1, sizeof **timestamps);
    (*timestamps)->records++;
    return run ? SNUG_OK : SNUG_E_INTERNAL;
}

static snug_status read_timestamps(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                   size_t count) {
    assert_true(run && timestamps->records > 0 && count == 1);
    seconds[0] = 0;
    return SNUG_OK;
}

static void free_timestamps(struct snug_timestamps *timestamps) { free(timestamps); }

static void open_model(struct scratch *s, const char *name, const struct snug_backend *backend,
                       const struct sizes *sizes, struct model *m) {
    char folder[512];
    *m = (struct model){0};
    snprintf(folder, sizeof folder, "%s/tests/golden/families/%s/clm", SNUG_SOURCE_DIR, name);
    assert_ok(s, snug_config_read(s->ctx, folder, &m->config));
    m->config.task = SNUG_TASK_CLM;
    if (sizes->heads) {
        m->config.num_attention_heads = sizes->heads;
        ((struct snug_decoder *)m->config.settings)->kv_heads = 1;
    }
    if (sizes->codes.type) assert_ok(s, snug_config_quantize(s->ctx, &m->config, &sizes->codes, NULL));
    snug_program_init(&m->program, s->ctx);
    m->program.longest = sizes->longest;
    m->program.capacity[SNUG_EXTENT_TOKENS] = sizes->tokens;
    m->program.capacity[SNUG_EXTENT_SEQUENCES] = m->program.capacity[SNUG_EXTENT_ROWS] = sizes->rows;
    m->program.cache_pages = sizes->pages;
    m->program.untrained = true; /* as in a run that only generates: its operands are one tensor */
    m->program.top_count = sizes->top;
    m->program.compute = sizes->compute;
    assert_ok(s, snug_build_model(&m->program, &m->config, false, 0));
    assert_ok(s, snug_program_quantize(&m->program, &m->config, false));
    assert_ok(s, snug_stages(&m->program, &(struct snug_methods){.micro_batches = 1, .weights = sizes->weights}));
    m->device = *backend;
    m->device.on_device |= sizes->device;
    if (sizes->asynchronous) {
        m->device.asynchronous = true;
        m->device.follows = sizes->follows;
        m->device.load = load_following;
        m->device.record_timestamp = record_timestamp;
        m->device.read_timestamps = read_timestamps;
        m->device.free_timestamps = free_timestamps;
    }
    assert_ok(s, snug_runner_start(s->ctx, backend, 2, &m->program, snug_decoding_bytes(&m->program, &m->device), NULL,
                                   &m->runner));
    if (sizes->device) m->runner.arena.copy = copy_here;
    m->run = snug_runner_run(&m->runner, 0);
    if (!sizes->heads) assert_ok(s, weights_load(s->ctx, folder, &m->program, &m->config, &m->runner.memory, 1, false));
    for (size_t i = 0; sizes->heads && i < m->program.parameter_count; i++)
        assert_ok(s, snug_weights_init(&m->program, &m->config, &m->runner.memory, &m->program.parameters[i], 1));
    assert_ok(s, snug_decoding_open(s->ctx, &m->device, &m->run, &m->runner.arena,
                                    (uint8_t *)m->runner.host.base + m->runner.layout.batch_offset,
                                    (int32_t)m->config.first_position, &m->decoding));
}

static void close_model(struct model *m) {
    snug_decoding_close(&m->decoding);
    snug_runner_close(&m->runner);
    snug_program_free(&m->program);
    snug_config_free(&m->config);
}

/* ---- prompts and answers --------------------------------------------------------------------------------------- */

enum { ANSWERS = 64, TOKENS = 256 };

struct answer {
    int32_t ids[TOKENS];
    float log_probabilities[TOKENS];
    int64_t count;
    double score;
    enum snug_stop stop;
    bool given;
};

/* Prompts that are answered together. */
struct asked {
    const json_t *prompts[ANSWERS];
    int32_t ids[TOKENS];
    int64_t count, next, returned, streamed;
    struct answer answers[ANSWERS];
    int64_t kept;                /* the sequence that the caller keeps, and 1; 0: none */
    int64_t stop_at;             /* tokens after which the caller stops an answer; 0: never */
    bool plain;                  /* without the calls that may be NULL */
    snug_status fails, has_next; /* by a token, and by the second prompt */
    size_t heap;                 /* in use when the second answer's first token came */
    size_t grown;
};

static snug_status next_prompt(void *user, struct snug_generation_prompt *out) {
    struct asked *a = user;
    if (a->next == a->count) return SNUG_END;
    if (a->next == 1 && a->has_next != SNUG_OK) return a->has_next;
    const json_t *prompt = a->prompts[a->next];
    for (size_t i = 0; i < json_array_size(prompt); i++)
        a->ids[i] = (int32_t)json_integer_value(json_array_get(prompt, i));
    *out = (struct snug_generation_prompt){
        .ids = a->ids, .count = (int64_t)json_array_size(prompt), .number = a->next++, .sequence = a->kept - 1};
    return SNUG_OK;
}

static snug_status take_token(void *user, const struct snug_generated *so_far, bool *stop) {
    struct asked *a = user;
    const size_t heap = mallinfo2().uordblks;
    if (a->streamed++ > 1 && heap > a->heap) a->grown += heap - a->heap;
    a->heap = heap;
    *stop = a->stop_at && so_far->count >= a->stop_at;
    return a->fails;
}

static bool stops_beam(void *user, const int32_t *ids, int64_t count, int64_t before) {
    const struct asked *a = user;
    assert_true(before > 0 && ids[-before] >= 0);
    return a->stop_at && count >= a->stop_at;
}

static snug_status take_answer(void *user, const struct snug_generated *answer) {
    struct asked *a = user;
    struct answer *to = &a->answers[answer->prompt * a->returned + answer->sequence];
    assert_false(to->given);
    memcpy(to->ids, answer->ids, (size_t)answer->count * sizeof *to->ids);
    memcpy(to->log_probabilities, answer->log_probabilities, (size_t)answer->count * sizeof(float));
    to->count = answer->count;
    to->score = answer->score;
    to->stop = answer->stop;
    to->given = true;
    return SNUG_OK;
}

static snug_status ask(struct scratch *s, struct model *m, const struct snug_generation *how, struct asked *a) {
    const struct snug_generation_calls calls = {.user = a,
                                                .next = next_prompt,
                                                .token = a->plain ? NULL : take_token,
                                                .stops = a->plain ? NULL : stops_beam,
                                                .answer = take_answer};
    struct snug_generating generating;
    a->returned = how->returned;
    assert_ok(s, snug_generating_open(&m->decoding, how, &generating));
    const snug_status status = snug_generating_run(&generating, &calls);
    snug_generating_close(&generating);
    if (a->kept) { /* the last token is not in the cache */
        assert_int_equal(m->decoding.sequences[a->kept - 1].length,
                         (int64_t)json_array_size(a->prompts[0]) + a->answers[0].count - 1);
        snug_decoding_end(&m->decoding, a->kept - 1);
    }
    assert_int_equal(m->decoding.pages.left, m->decoding.pages.count); /* none is lost */
    assert_int_equal(m->decoding.done, m->decoding.started);
    return status;
}

static double number(const json_t *options, const char *name, double otherwise) {
    const json_t *value = json_object_get(options, name);
    return json_is_number(value) ? json_number_value(value) : json_is_true(value) ? 1 : otherwise;
}

static struct snug_generation read_options(const json_t *options, uint64_t seed) {
    struct snug_generation how = {.returned = (int64_t)number(options, "num_return_sequences", 1),
                                  .max_new_tokens = (int64_t)number(options, "max_new_tokens", 0)};
    const json_t *ends = json_object_get(options, "eos_token_id"), *early = json_object_get(options, "early_stopping");
    how.sampling =
        (struct snug_token_choice){.draws = number(options, "do_sample", 0) > 0,
                                   .temperature = number(options, "temperature", 1),
                                   .top_p = number(options, "top_p", 1),
                                   .min_p = number(options, "min_p", 0),
                                   .repetition_penalty = number(options, "repetition_penalty", 1),
                                   .top_k = (int64_t)number(options, "top_k", 0),
                                   .no_repeat_ngram_size = (int64_t)number(options, "no_repeat_ngram_size", 0),
                                   .min_new_tokens = (int64_t)number(options, "min_new_tokens", 0),
                                   .seed = seed};
    for (size_t i = 0; i < json_array_size(ends); i++)
        how.sampling.ends[how.sampling.end_count++] = (int32_t)json_integer_value(json_array_get(ends, i));
    how.search.beams = (int64_t)number(options, "num_beams", 1);
    how.search.length_penalty = number(options, "length_penalty", 1);
    how.search.early_stopping = json_is_string(early) ? SNUG_EARLY_NEVER
                                : json_is_true(early) ? SNUG_EARLY_TRUE
                                                      : SNUG_EARLY_FALSE;
    return how;
}

static json_t *read_golden(struct scratch *s, uint64_t *seed) {
    json_t *golden;
    assert_ok(s, snug_json_read(s->ctx, NULL, SNUG_SOURCE_DIR "/tests/golden/generation.json", &golden));
    *seed = (uint64_t)json_integer_value(json_object_get(golden, "seed"));
    return golden;
}

static void compare(const char *name, size_t number, const json_t *golden, const struct answer *found, size_t index) {
    const json_t *ids = json_array_get(json_object_get(golden, "answers"), index);
    const json_t *score = json_array_get(json_object_get(golden, "scores"), index);
    if (!found->given) fail_msg("%s, case %zu: no answer %zu", name, number, index);
    for (size_t i = 0; i < json_array_size(ids) || (int64_t)i < found->count; i++)
        if ((int64_t)i >= found->count || json_integer_value(json_array_get(ids, i)) != found->ids[i])
            fail_msg("%s, case %zu, answer %zu: token %zu of %zu is %d of %ld, expected %d", name, number, index, i,
                     json_array_size(ids), (int)found->ids[i], (long)found->count,
                     (int)json_integer_value(json_array_get(ids, i)));
    if (score) assert_float_equal(found->score, json_number_value(score), 1e-4);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

/* The tokens of which the next one is chosen, which are part of the program. */
static int32_t top_of(const struct model *m, const json_t *golden) {
    const struct snug_generation how = read_options(json_object_get(golden, "options"), 0);
    return snug_generating_top(&how, true, m->config.vocab_size);
}

static void check_case(struct scratch *s, struct model *m, const char *name, size_t number, const json_t *golden,
                       uint64_t seed) {
    const struct snug_generation how = read_options(json_object_get(golden, "options"), seed);
    struct asked *a = calloc(1, sizeof *a);
    a->prompts[a->count++] = json_object_get(golden, "prompt");
    assert_ok(s, ask(s, m, &how, a));
    for (size_t k = 0; k < (size_t)how.returned; k++) compare(name, number, golden, &a->answers[k], k);
    free(a);
}

/* With tops: by the most probable tokens, where these are enough. */
static void check_family(struct scratch *s, const struct snug_backend *backend, const char *name, const json_t *cases,
                         uint64_t seed, size_t step, enum snug_dtype weights, bool tops, bool device) {
    struct sizes sizes = {.device = device,
                          .rows = 8,
                          .tokens = 96,
                          .longest = strcmp(name, "gpt2") == 0 ? 26 : 200,
                          .pages = 40,
                          .weights = weights};
    for (int32_t next = 0; next >= 0;) {
        struct model m;
        sizes.top = next;
        next = -1;
        open_model(s, name, backend, &sizes, &m);
        for (size_t i = 0; i < json_array_size(cases); i += step) {
            const json_t *golden = json_array_get(cases, i);
            const int32_t top = tops ? top_of(&m, golden) : 0;
            if (top == sizes.top) check_case(s, &m, name, i, golden, seed);
            if (top > sizes.top && (next < 0 || top < next)) next = top;
        }
        close_model(&m);
    }
}

FIXTURE_TEST(test_answers_are_those_of_transformers) {
    uint64_t seed;
    json_t *golden = read_golden(s, &seed), *cases;
    const char *name;
    json_object_foreach(json_object_get(golden, "families"), name, cases) {
        check_family(s, snug_backend_cpu(), name, cases, seed, 1, SNUG_F32, true, false);
        check_family(s, snug_backend_cpu(), name, cases, seed, 3, SNUG_F32, true, true);
        check_family(s, snug_backend_cpu(), name, cases, seed, 5, SNUG_BF16, false,
                     false); /* as the files have them: the same values */
        if (!SANITIZED) check_family(s, snug_backend_reference(), name, cases, seed, 7, SNUG_F32, false, false);
    }
    json_decref(golden);
}

/* Of weights of 4 bits, those of transformers with the values of bitsandbytes' codes. */
FIXTURE_TEST(test_answers_of_codes_are_those_of_transformers) {
    uint64_t seed;
    size_t i, k;
    json_t *golden = read_golden(s, &seed), *codes, *c;
    json_array_foreach(json_object_get(golden, "quantized"), i, codes) {
        const char *name = json_string_value(json_object_get(codes, "family"));
        const bool nf4 = strcmp(json_string_value(json_object_get(codes, "type")), "nf4") == 0;
        const bool half = strcmp(json_string_value(json_object_get(codes, "dtype")), "bfloat16") == 0;
        const struct sizes sizes = {.rows = 8,
                                    .tokens = 96,
                                    .longest = 26,
                                    .pages = 40,
                                    .codes = {.type = nf4 ? SNUG_CODES_NF4 : SNUG_CODES_FP4,
                                              .rounded = half ? SNUG_BF16 : SNUG_F32,
                                              .nested = json_is_true(json_object_get(codes, "nested"))}};
        struct model m;
        open_model(s, name, i % 2 ? snug_backend_reference() : snug_backend_cpu(), &sizes, &m);
        json_array_foreach(json_object_get(codes, "cases"), k, c) check_case(s, &m, name, k, c, seed);
        close_model(&m);
    }
    assert_int_equal(i, 5);
    json_decref(golden);
}

/* Which tokens the host reads. */
TEST(test_most_probable_tokens_of_a_step) {
    static const struct {
        struct snug_token_choice how;
        int64_t beams;
        bool device;
        int32_t expected;
    } cases[] = {
        {{.repetition_penalty = 1}, 1, false, 1},
        {{.repetition_penalty = 1}, 1, true, 1},
        {{.repetition_penalty = 1.5}, 1, true, 0},
        {{.repetition_penalty = 1, .no_repeat_ngram_size = 2}, 1, true, 0},
        {{.repetition_penalty = 1, .min_new_tokens = 2}, 1, true, 0},
        {{.repetition_penalty = 1, .draws = true, .top_k = 50}, 1, true, 50},
        {{.repetition_penalty = 1, .draws = true, .top_k = 50}, 1, false, 0},
        {{.repetition_penalty = 1, .draws = true, .top_k = 50}, 2, true, 0},
        {{.repetition_penalty = 1, .draws = true, .top_k = 65}, 1, true, 0},
        {{.repetition_penalty = 1, .draws = true, .top_k = 0}, 1, true, 0},
        {{.repetition_penalty = 1}, 4, true, 8},
        {{.repetition_penalty = 1}, 4, false, 0},
        {{.repetition_penalty = 1, .end_count = 3}, 2, true, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct snug_generation how = {.sampling = cases[i].how, .search.beams = cases[i].beams};
        assert_int_equal(snug_generating_top(&how, cases[i].device, 1000), cases[i].expected);
    }
    const struct snug_generation how = {.sampling = cases[5].how, .search.beams = 1};
    assert_int_equal(snug_generating_top(&how, true, 49), 0);
}

FIXTURE_TEST(test_answers_of_a_gpu) {
    const struct snug_backend *cuda;
    uint64_t seed;
    if (snug_backend_cuda(s->ctx, &cuda) != SNUG_OK) skip();
    json_t *golden = read_golden(s, &seed), *cases;
    const char *name;
    json_object_foreach(json_object_get(golden, "families"), name, cases)
        check_family(s, cuda, name, cases, seed, is_long() ? 1 : 11, SNUG_F32, true, false);
    json_decref(golden);
}

/* Prompts of every length, more of them than rows, some longer than a step takes. */
static void ask_many(struct scratch *s, const char *name, const struct sizes *sizes, const struct snug_generation *how,
                     struct asked *a) {
    struct model m;
    open_model(s, name, snug_backend_cpu(), sizes, &m);
    assert_ok(s, ask(s, &m, how, a));
    close_model(&m);
}

static struct asked *many_prompts(json_t **list) {
    static const int lengths[] = {3, 150, 1, 9, 70, 2, 90, 5, 64, 12};
    struct asked *a = calloc(1, sizeof *a);
    *list = json_array();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        json_t *prompt = json_array();
        for (int k = 0; k < lengths[i]; k++) json_array_append_new(prompt, json_integer((k * 7 + (int)i * 13) % 60));
        json_array_append_new(*list, prompt);
        a->prompts[a->count++] = prompt;
    }
    return a;
}

FIXTURE_TEST(test_an_answer_does_not_depend_on_the_others) {
    static const char *const names[] = {"llama", "gemma2", "phi3", "gpt2"};
    static const struct snug_generation ways[] = {
        {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
         .search = {.beams = 1},
         .returned = 1,
         .max_new_tokens = 20},
        {.sampling = {.draws = true, .temperature = 0.9, .top_p = 0.9, .repetition_penalty = 1, .seed = 3},
         .search = {.beams = 1},
         .returned = 2,
         .max_new_tokens = 20},
        {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
         .search = {.beams = 3, .length_penalty = 1},
         .returned = 2,
         .max_new_tokens = 20},
    };
    static const struct {
        enum snug_dtype weights, compute;
        int64_t rows[2]; /* of the two runs: more than 8 have other matmuls in BF16 */
    } types[] = {{SNUG_F32, SNUG_F32, {1, 12}},
                 {SNUG_BF16, SNUG_F32, {1, 12}},
                 {SNUG_BF16, SNUG_BF16, {1, 8}},
                 {SNUG_BF16, SNUG_BF16, {9, 12}}};
    enum { TYPES = sizeof types / sizeof *types, WAYS = sizeof ways / sizeof *ways };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t k = 0; k < (n ? WAYS : (size_t)TYPES * WAYS); k++) { /* the first family in all types */
            const size_t way = k % WAYS;
            const int64_t beams = ways[way].search.beams, *rows = types[k / WAYS].rows;
            const bool short_table = strcmp(names[n], "gpt2") == 0;
            json_t *lists[2];
            struct asked *few = many_prompts(&lists[0]), *all = many_prompts(&lists[1]);
            struct sizes one = {.rows = rows[0] > beams ? rows[0] : beams,
                                .tokens = 140,
                                .longest = 170,
                                .pages = rows[0] > 1 ? 60 : 12,
                                .weights = types[k / WAYS].weights,
                                .compute = types[k / WAYS].compute},
                         many = one;
            many.rows = rows[1];
            many.pages = 60;
            for (int64_t i = 0; short_table && i < few->count; i++) /* of 26 positions */
                while (json_array_size(few->prompts[i]) > 5) {
                    json_array_remove((json_t *)(uintptr_t)few->prompts[i], 0);
                    json_array_remove((json_t *)(uintptr_t)all->prompts[i], 0);
                }
            ask_many(s, names[n], &one, &ways[way], few);
            ask_many(s, names[n], &many, &ways[way], all);
            for (int64_t i = 0; i < few->count * ways[way].returned; i++) {
                const struct answer *x = &few->answers[i], *y = &all->answers[i];
                assert_true(x->given && y->given && x->count == y->count && x->count > 0);
                assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
                assert_memory_equal(x->log_probabilities, y->log_probabilities, (size_t)x->count * sizeof(float));
            }
            json_decref(lists[0]);
            json_decref(lists[1]);
            free(few);
            free(all);
        }
}

FIXTURE_TEST(test_decoding_allocates_nothing) {
    const struct snug_generation how = {
        .sampling = {.draws = true, .temperature = 1, .top_k = 7, .top_p = 0.9, .repetition_penalty = 1.1},
        .search = {.beams = 1},
        .returned = 1,
        .max_new_tokens = 20};
    const struct sizes sizes = {.rows = 4, .tokens = 80, .longest = 170, .pages = 12};
    json_t *list;
    if (SANITIZED) skip(); /* its allocator does not report to mallinfo2() */
    struct asked *a = many_prompts(&list);
    ask_many(s, "llama", &sizes, &how, a);
    assert_int_equal(a->grown, 0);
    json_decref(list);
    free(a);
}

FIXTURE_TEST(test_callers_stop_answers_and_runs) {
    struct snug_generation how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                  .search = {.beams = 1},
                                  .returned = 1,
                                  .max_new_tokens = 20};
    for (int run = 0; run < 8; run++) {
        const int way = run % 4, device = run / 4; /* on a device the next step has begun then */
        const struct sizes sizes = {
            .rows = 4, .tokens = 80, .longest = 170, .pages = 12, .device = device, .top = device && way != 1};
        struct model m;
        json_t *list;
        struct asked *a = many_prompts(&list);
        open_model(s, "llama", snug_backend_cpu(), &sizes, &m);
        how.search.beams = way == 1 ? 2 : 1;
        a->stop_at = way < 2 ? 4 : 0;
        a->fails = way == 2 ? SNUG_E_IO : SNUG_OK;
        a->has_next = way == 3 ? SNUG_E_IO : SNUG_OK;
        assert_int_equal(ask(s, &m, &how, a), way < 2 ? SNUG_OK : SNUG_E_IO);
        for (int64_t i = 0; way < 2 && i < a->count; i++) {
            assert_int_equal(a->answers[i].count, 4);
            assert_int_equal(a->answers[i].stop, SNUG_STOP_CALLER);
        }
        close_model(&m);
        json_decref(list);
        free(a);
    }
}

/* A token at which the caller stops, and which ends the answer, is an end. */
static void stop_at_an_end(struct scratch *s, struct model *m, const struct snug_generation *how, json_t *prompt) {
    struct snug_generation ends = *how;
    struct asked *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    a->prompts[a->count++] = b->prompts[b->count++] = prompt;
    a->plain = true;
    assert_ok(s, ask(s, m, how, a));
    ends.sampling.ends[ends.sampling.end_count++] = a->answers[0].ids[0];
    b->stop_at = 1;
    assert_ok(s, ask(s, m, &ends, b));
    assert_int_equal(b->answers[0].count, 1);
    assert_int_equal(b->answers[0].stop, SNUG_STOP_END);
    free(a), free(b);
}

/* The most probable token alone; a vocabulary that is not cut; beams whose words are used up. */
FIXTURE_TEST(test_ends_of_choices) {
    const struct sizes sizes = {.rows = 4, .tokens = 200, .longest = 170, .pages = 24};
    const struct snug_generation greedy = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                           .search = {.beams = 1, .length_penalty = 1},
                                           .returned = 1,
                                           .max_new_tokens = 12};
    struct snug_generation drawn = greedy, beams = greedy;
    struct asked *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b), *none = calloc(1, sizeof *none);
    struct model m;
    json_t *prompt = json_array();
    open_model(s, "llama", snug_backend_cpu(), &sizes, &m);
    for (int64_t i = 0; i < m.config.vocab_size; i++) json_array_append_new(prompt, json_integer(i));
    a->prompts[a->count++] = b->prompts[b->count++] = none->prompts[none->count++] = prompt;
    drawn.sampling.draws = true;
    drawn.sampling.top_p = 0;
    drawn.sampling.top_k = m.config.vocab_size;
    assert_ok(s, ask(s, &m, &greedy, a));
    assert_ok(s, ask(s, &m, &drawn, b));
    assert_int_equal(b->answers[0].count, 12);
    assert_memory_equal(a->answers[0].ids, b->answers[0].ids, 12 * sizeof(int32_t));
    beams.search.beams = 2;
    beams.sampling.no_repeat_ngram_size = 1;
    assert_ok(s, ask(s, &m, &beams, none));
    assert_true(none->answers[0].given && none->answers[0].count == 0);
    /* nothing is left to draw: of the first beam two tokens, and none of the others */
    json_array_clear(prompt);
    json_array_append_new(prompt, json_integer(7));
    beams.sampling = drawn.sampling;
    beams.sampling.top_p = beams.sampling.top_k = 1;
    beams.search.beams = 4;
    *none = (struct asked){.prompts = {prompt}, .count = 1};
    assert_ok(s, ask(s, &m, &beams, none));
    assert_int_equal(none->answers[0].count, 12);
    stop_at_an_end(s, &m, &greedy, prompt);
    close_model(&m);
    json_decref(prompt);
    free(a), free(b), free(none);
}

/* Steps as a GPU has them: of many rows, which prompts and answers share. */
FIXTURE_TEST(test_steps_of_many_rows) {
    static const char *const names[] = {"llama", "gpt2"};
    struct snug_backend many = *snug_backend_cpu();
    many.independent_rows = 0;
    const struct sizes sizes = {.rows = 20, .tokens = 300, .longest = 170, .pages = 60};
    for (size_t n = 0; n < 2; n++)
        for (int64_t beams = 1; beams <= 2; beams++) {
            const struct snug_generation how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                                .search = {.beams = beams, .length_penalty = 1},
                                                .returned = 1,
                                                .max_new_tokens = 4};
            struct asked *found[2];
            json_t *prompts = json_array();
            for (int i = 0; i < 20; i++) {
                json_t *prompt = json_array();
                for (int k = 0; k < 20; k++) json_array_append_new(prompt, json_integer((k * 7 + i * 13) % 60));
                json_array_append_new(prompts, prompt);
            }
            for (size_t k = 0; k < 2; k++) {
                struct model m;
                found[k] = calloc(1, sizeof *found[k]);
                for (size_t i = 0; i < 20; i++) found[k]->prompts[found[k]->count++] = json_array_get(prompts, i);
                found[k]->plain = k;
                open_model(s, names[n], k ? &many : snug_backend_cpu(), &sizes, &m);
                assert_ok(s, ask(s, &m, &how, found[k]));
                close_model(&m);
            }
            for (size_t i = 0; i < 20; i++) {
                assert_int_equal(found[1]->answers[i].count, 4);
                for (size_t k = 0; k < 4; k++)
                    assert_float_equal(found[1]->answers[i].log_probabilities[k],
                                       found[0]->answers[i].log_probabilities[k], 1e-3);
            }
            free(found[0]), free(found[1]);
            json_decref(prompts);
        }
}

/* On a device a step begins before the host has read the tokens of the one before: the answers are the same, also of
   those that end unforeseen, whose further token is dropped, and of a sequence that the caller keeps. */
FIXTURE_TEST(test_steps_that_begin_before_the_last_one_is_read) {
    struct snug_generation how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                  .search = {.beams = 1},
                                  .returned = 1,
                                  .max_new_tokens = 20};
    struct asked *first = NULL;
    /* 0: to find tokens; 1, 2: on the host and on a device; 3, 4: one prompt; 5, 6: on a device that is asynchronous */
    for (int way = 0; way < 7; way++) {
        const bool ahead = way == 2 || way == 4 || way == 6, one = way == 3 || way == 4;
        const struct sizes sizes = {.rows = one ? 1 : 3,
                                    .tokens = 160,
                                    .longest = 170,
                                    .pages = 12,
                                    .top = 1,
                                    .device = ahead || way == 5,
                                    .asynchronous = way > 4,
                                    .follows = way == 6};
        struct model m;
        json_t *list;
        struct asked *a = many_prompts(&list);
        open_model(s, "llama", snug_backend_cpu(), &sizes, &m);
        assert_int_equal(snug_decoding_runs_ahead(&m.decoding), ahead);
        a->count = one ? 1 : a->count;
        a->kept = one ? snug_decoding_begin(&m.decoding) + 1 : 0;
        assert_ok(s, ask(s, &m, &how, a));
        if (way == 0) { /* every other answer then ends at another token */
            how.sampling.ends[how.sampling.end_count++] = a->answers[0].ids[7];
            how.sampling.ends[how.sampling.end_count++] = a->answers[3].ids[11];
        }
        for (int64_t i = 0; way > 1 && i < a->count; i++) {
            const struct answer *x = &first->answers[i], *y = &a->answers[i];
            assert_true(y->given && x->count == y->count && x->stop == y->stop);
            assert_memory_equal(x->ids, y->ids, (size_t)x->count * sizeof *x->ids);
            assert_memory_equal(x->log_probabilities, y->log_probabilities, (size_t)x->count * sizeof(float));
        }
        if (way == 1) assert_true(a->answers[0].count < 20 && a->answers[0].stop == SNUG_STOP_END);
        if (way == 1) first = a;
        if (way != 1) free(a);
        close_model(&m);
        json_decref(list);
    }
    free(first);
}

/* More heads read a key than a block of attention has rows. */
FIXTURE_TEST(test_many_heads_of_one_key) {
    static const int64_t heads[] = {15, 16, 17, 33};
    const struct snug_generation how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                        .search = {.beams = 1},
                                        .returned = 1,
                                        .max_new_tokens = 4};
    for (size_t n = 0; n < sizeof heads / sizeof *heads; n++) {
        const struct sizes sizes = {.rows = 4, .tokens = 80, .longest = 90, .pages = 12, .heads = heads[n]};
        struct asked *found[2];
        json_t *prompt = json_array();
        for (int k = 0; k < 70; k++) json_array_append_new(prompt, json_integer(k * 7 % 60));
        for (size_t k = 0; k < 2; k++) {
            struct model m;
            found[k] = calloc(1, sizeof *found[k]);
            found[k]->prompts[found[k]->count++] = prompt;
            open_model(s, "llama", k ? snug_backend_reference() : snug_backend_cpu(), &sizes, &m);
            assert_ok(s, ask(s, &m, &how, found[k]));
            close_model(&m);
        }
        assert_memory_equal(found[0]->answers[0].ids, found[1]->answers[0].ids, 4 * sizeof(int32_t));
        for (size_t k = 0; k < 4; k++)
            assert_float_equal(found[0]->answers[0].log_probabilities[k], found[1]->answers[0].log_probabilities[k],
                               1e-4);
        free(found[0]), free(found[1]);
        json_decref(prompt);
    }
}

/* Beams share the prompt's pages: the cache that the plan gives them is enough, and one page less is refused. */
FIXTURE_TEST(test_beams_fit_in_the_planned_pages) {
    const struct snug_generation how = {.sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1},
                                        .search = {.beams = 4, .length_penalty = 1, .early_stopping = SNUG_EARLY_NEVER},
                                        .returned = 1,
                                        .max_new_tokens = 66};
    const int lengths[] = {64, 127, 63};
    for (size_t i = 0; i < 3; i++) {
        struct model m;
        struct asked *a = calloc(1, sizeof *a);
        json_t *prompt = json_array();
        for (int k = 0; k < lengths[i]; k++) json_array_append_new(prompt, json_integer(k * 11 % 60));
        a->prompts[a->count++] = prompt;
        const int64_t pages = snug_generating_pages(1, 4, lengths[i], 200, 66);
        const struct sizes sizes = {.rows = 4, .tokens = 80, .longest = 200, .pages = i < 2 ? pages : 2};
        open_model(s, "llama", snug_backend_cpu(), &sizes, &m);
        if (i < 2) {
            assert_ok(s, ask(s, &m, &how, a));
            assert_true(m.decoding.pages.most <= pages);
        } else {
            assert_int_equal(ask(s, &m, &how, a), SNUG_E_MEMORY);
        }
        close_model(&m);
        json_decref(prompt);
        free(a);
    }
    struct model m; /* a prompt alone */
    const struct sizes one = {.rows = 1, .tokens = 80, .longest = 200, .pages = 1};
    static const int32_t ids[70] = {1};
    open_model(s, "llama", snug_backend_cpu(), &one, &m);
    assert_int_equal(snug_decoding_add(&m.decoding, snug_decoding_begin(&m.decoding), ids, 70, true), SNUG_E_MEMORY);
    close_model(&m);
    static const struct {
        int64_t groups, beams, prompt, longest, answer, pages;
    } cases[] = {
        {3, 1, 60, 65, 5, 6},                  /* an answer that begins in the first page and ends in the second */
        {2, 4, 130, 194, 64, 2 * (2 + 4 * 2)}, /* one that begins at the end of the third */
        {1, 4, 5, 25, 20, 4},                  /* all in one page: a beam is a sequence */
        {1, 3, 64, 72, 8, 3 * 2},              /* of 64 tokens a page is shared; of 63, a beam has two of its own */
        {1, 2, 199, 200, 1000, 2 * 4},         /* a short prompt, whose answer fills the rest */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t pages =
            snug_generating_pages(cases[i].groups, cases[i].beams, cases[i].prompt, cases[i].longest, cases[i].answer);
        if (pages != cases[i].pages) fail_msg("case %zu: %lld pages", i, (long long)pages);
    }
}

/* A sequence that the caller keeps has the first tokens of the next prompt. */
FIXTURE_TEST(test_a_kept_sequence_continues) {
    const struct sizes sizes = {.rows = 2, .tokens = 80, .longest = 170, .pages = 6};
    static const int32_t ids[] = {5, 9, 2, 41, 7, 7, 30};
    struct model m;
    float alone[60];
    open_model(s, "qwen3", snug_backend_cpu(), &sizes, &m);
    const int64_t a = snug_decoding_begin(&m.decoding), b = snug_decoding_begin(&m.decoding);
    assert_ok(s, snug_decoding_add(&m.decoding, a, ids, 7, true));
    assert_ok(s, snug_decoding_step(&m.decoding));
    memcpy(alone, snug_decoding_next(&m.decoding, a).logits, sizeof alone);
    assert_ok(s, snug_decoding_add(&m.decoding, b, ids, 4, false));
    assert_ok(s, snug_decoding_step(&m.decoding));
    snug_decoding_cut(&m.decoding, b, 2);
    assert_ok(s, snug_decoding_add(&m.decoding, b, ids + 2, 5, true));
    assert_ok(s, snug_decoding_step(&m.decoding));
    assert_memory_equal(alone, snug_decoding_next(&m.decoding, b).logits, sizeof alone);
    assert_ok(s, snug_decoding_step(&m.decoding)); /* of nothing */
    assert_int_equal(snug_decoding_begin(&m.decoding), 2);
    assert_int_equal(snug_decoding_begin(&m.decoding), 3);
    assert_int_equal(snug_decoding_begin(&m.decoding), -1);
    close_model(&m);
}

FIXTURE_TEST(test_encoders_generate_nothing) {
    struct snug_config config;
    struct snug_program program;
    assert_ok(s, snug_config_read(s->ctx, SNUG_SOURCE_DIR "/tests/golden/model/cls2", &config));
    snug_program_init(&program, s->ctx);
    program.cache_pages = 1;
    assert_int_equal(snug_build_model(&program, &config, false, 0), SNUG_E_UNSUPPORTED);
    assert_non_null(strstr(snug_error_message(s->ctx), "generates no text"));
    snug_program_free(&program);
    snug_config_free(&config);
}

TEST_MAIN(NULL, NULL)
