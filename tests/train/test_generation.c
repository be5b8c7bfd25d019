/* SPDX-License-Identifier: Apache-2.0 */
/* Generation as a job: prompts, settings, texts, memory. The model is the demo's decoder, trained for a few steps. */
#include <math.h>

#include "generated.h"
#include "train/fit.h"
#include "train/generation.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void refuse(struct fixture *f, const char *words, snug_status status, const char *says) {
    struct answers a = {.count = 0};
    assert_failed(f, words, generate(f, words, &a), status, says);
    assert_int_equal(a.count, 0);
}

FIXTURE_TEST(test_prompts_of_every_kind) {
    make_model(f);
    struct answers *a = answer(f, "test_file=" CHAT "/questions.jsonl max_new_tokens=9 per_device_eval_batch_size=4");
    assert_int_equal(a->count, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(a->of[i].index, i);
        assert_true(a->of[i].tokens <= 9 && isnan(a->of[i].score));
        assert_string_equal(a->of[i].text, a->pieces_of[i]);
        assert_contains(a->of[i].prompt, "<|end|><|assistant|>");
    }
    write_text(f, "rows.jsonl",
               "{\"prompt\": \"What colour\"}\n{\"text\": \"Tell me\"}\n"
               "{\"prompt\": [{\"role\": \"user\", \"content\": \"What^colour^is^gold?\"}]}\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"What^colour^is^gold?\"}, "
               "{\"role\": \"assistant\", \"content\": \"Gold is yellow.\"}]}\n");
    struct answers *rows = answer(f, "test_file=@rows.jsonl max_new_tokens=5");
    assert_int_equal(rows->count, 4);
    assert_string_equal(rows->of[0].prompt, "What colour");
    assert_string_equal(rows->of[2].prompt, rows->of[3].prompt); /* without its answer */
    assert_string_equal(rows->of[2].text, rows->of[3].text);
    struct answers *chat = answer(f, "prompt=What^colour^is^gold? chat=True max_new_tokens=5");
    assert_string_equal(chat->of[0].prompt, rows->of[2].prompt);
    assert_string_equal(chat->of[0].text, rows->of[2].text);
    write_text(f, "rows.csv", "prompt,number\nWhat colour,1\nTell me,2\n");
    struct answers *table = answer(f, "test_file=@rows.csv text_column_name=prompt max_new_tokens=5");
    assert_int_equal(table->count, 2);
    assert_string_equal(table->of[1].text, rows->of[1].text);
    write_text(f, "rows.txt", "What colour\nTell me\n");
    struct answers *lines = answer(f, "test_file=@rows.txt max_new_tokens=5 max_predict_samples=1");
    assert_int_equal(lines->count, 1);
    assert_string_equal(lines->of[0].text, rows->of[0].text);
    free(answer(f, "test_file=@rows.txt data_format=txt max_new_tokens=5"));
    write_text(f, "odd.jsonl", "{\"question\": \"What colour\"}\n");
    struct answers *column = answer(f, "test_file=@odd.jsonl text_column_name=question max_new_tokens=5");
    assert_string_equal(column->of[0].text, rows->of[0].text);
    free(column);
    struct answers *one = answer(f, "test_file=@rows.jsonl max_new_tokens=5 max_predict_samples=2");
    assert_int_equal(one->count, 2);
    free(a), free(rows), free(chat), free(table), free(lines), free(one);

    write_text(f, "empty.jsonl", "{\"prompt\": \"\"}\n");
    write_text(f, "none.jsonl", "");
    write_text(f, "no_role.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hm\"}, {\"content\": 1}]}\n");
    /* A last message without a role is part of the prompt: only an assistant's is removed as an answer. */
    free(answer(f, "test_file=@no_role.jsonl max_new_tokens=2"));
    refuse(f, "test_file=@none.jsonl", SNUG_E_INPUT, "none.jsonl: there is no prompt");
    refuse(f, "test_file=@odd.jsonl text_column_name=other", SNUG_E_INPUT, "odd.jsonl:1: a prompt is needed");
    refuse(f, "test_file=@empty.jsonl", SNUG_E_INPUT, "empty.jsonl:1: the prompt has no token");
    refuse(f, "test_file=@odd.jsonl", SNUG_E_INPUT, "odd.jsonl:1: a prompt is needed");
    refuse(f, "test_file=@missing.txt", SNUG_E_IO, "missing.txt");
    refuse(f, "test_file=@rows.txt prompt=x", SNUG_E_USAGE, "which one is answered?");
}

FIXTURE_TEST(test_settings) {
    make_model(f);
    struct answers *plain = answer(f, "prompt=What^colour max_new_tokens=12");
    struct answers *beams = answer(f, "prompt=What^colour max_new_tokens=12 num_beams=3 num_return_sequences=2");
    assert_int_equal(beams->count, 2);
    assert_int_equal(beams->pieces, 0);
    assert_true(beams->of[0].score >= beams->of[1].score);
    struct answers *drawn =
        answer(f, "prompt=What^colour max_new_tokens=12 do_sample=True temperature=1.5 num_return_sequences=3 seed=5");
    assert_int_equal(drawn->count, 3);
    assert_int_equal(drawn->of[2].sequence, 2);
    /* The file's settings count unless an argument is given. */
    write_text(f, "out/generation_config.json",
               "{\"max_new_tokens\": 12, \"num_beams\": 3, \"num_return_sequences\": 2, \"eos_token_id\": [0, 500], "
               "\"early_stopping\": \"never\", \"top_k\": null}");
    struct answers *file = answer(f, "prompt=What^colour");
    assert_int_equal(file->count, 2);
    assert_string_equal(file->of[0].text, beams->of[0].text);
    struct answers *again = answer(f, "prompt=What^colour num_beams=1 num_return_sequences=1");
    assert_string_equal(again->of[0].text, plain->of[0].text);
    write_text(f, "out/generation_config.json", "{\"max_length\": 8, \"early_stopping\": true, \"do_sample\": false}");
    struct answers *length = answer(f, "prompt=What^colour");
    assert_true(length->of[0].tokens < 8);
    write_text(f, "out/generation_config.json", "{\"eos_token_id\": [-1, 100000]}");
    struct answers *longer = answer(f, "prompt=What^colour min_new_tokens=30");
    assert_int_equal(longer->of[0].tokens, 20);
    free(plain), free(beams), free(drawn), free(file), free(again), free(length), free(longer);

    static const struct {
        const char *file, *words;
        snug_status status;
        const char *says;
    } cases[] = {
        {"{\"temperature\": \"hot\"}", "", SNUG_E_INPUT, "temperature must be a number from"},
        {"{\"top_p\": 1.5}", "", SNUG_E_INPUT, "top_p must be a number from 0 to 1"},
        {"{\"top_k\": -1}", "", SNUG_E_INPUT, "top_k must be a number from 0"},
        {"{\"do_sample\": 1}", "", SNUG_E_INPUT, "do_sample must be true or false"},
        {"{\"early_stopping\": \"soon\"}", "", SNUG_E_INPUT, "early_stopping must be true, false or \"never\""},
        {"{\"early_stopping\": 3}", "", SNUG_E_INPUT, "early_stopping must be"},
        {"{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "", SNUG_E_UNSUPPORTED, "more than 16"},
        {"{}", "num_beams=2 num_return_sequences=3", SNUG_E_USAGE, "is more than --num_beams 2"},
        {"{}", "num_return_sequences=3", SNUG_E_USAGE, "the same answer several times"},
        {"{}", "stop_strings=[1]", SNUG_E_USAGE, "must be a text, or a JSON list of texts"},
        {"{}", "stop_strings=[", SNUG_E_USAGE, "must be a text, or a JSON list of texts"},
        {"{\"stop_strings\": [1]}", "", SNUG_E_INPUT, "stop_strings must be a text, or a list of texts"},
        {"{\"stop_strings\": []}", "", SNUG_E_INPUT, "stop_strings must be"},
        {"{}", "do_sample=True temperature=0", SNUG_E_USAGE, "--do_sample needs one above 0"},
        {"{", "", SNUG_E_INPUT, "generation_config.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        write_text(f, "out/generation_config.json", cases[i].file);
        snprintf(words, sizeof words, "prompt=What^colour max_new_tokens=3 %s", cases[i].words);
        refuse(f, words, cases[i].status, cases[i].says);
    }
}

/* Tokens of a prompt and its answer together: each answer has the rest, whatever the other prompts are. */
FIXTURE_TEST(test_lengths_with_the_prompt) {
    static const char *const limits[][2] = {
        {"{\"max_length\": 30}", ""}, {"{}", "max_seq_length=30"}, {"{}", "generation_max_length=30"}};
    make_model(f);
    write_text(f, "rows.txt", "What\nWhat colour is gold? Tell me\n");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char words[256];
        write_text(f, "out/generation_config.json", limits[i][0]);
        snprintf(words, sizeof words, "test_file=@rows.txt min_new_tokens=100 %s", limits[i][1]);
        struct answers *both = answer(f, words);
        assert_true(both->of[0].tokens > both->of[1].tokens && both->of[0].tokens < 30);
        snprintf(words, sizeof words, "prompt=What min_new_tokens=100 %s", limits[i][1]);
        struct answers *one = answer(f, words);
        assert_string_equal(one->of[0].text, both->of[0].text);
        assert_int_equal(one->of[0].tokens, both->of[0].tokens);
        free(both), free(one);
    }
    write_text(f, "out/generation_config.json", "{\"max_length\": 2}");
    refuse(f, "test_file=@rows.txt", SNUG_E_USAGE, "rows.txt:2: a prompt of ");
    refuse(f, "test_file=@rows.txt", SNUG_E_USAGE,
           " within the 2 tokens of max_length of generation_config.json: raise");
    refuse(f, "prompt=What^colour^is^gold max_seq_length=3", SNUG_E_USAGE, "within the 3 tokens of --max_seq_length");
    struct answers *both = answer(f, "prompt=What max_new_tokens=3 min_new_tokens=3 max_seq_length=40");
    assert_int_equal(both->of[0].tokens, 3);
    free(both);
    /* No end before so many tokens, of prompt and answer. */
    write_text(f, "out/generation_config.json", "{\"min_length\": 40, \"max_length\": 40}");
    struct answers *least = answer(f, "prompt=What^colour");
    assert_string_equal(least->of[0].stop, "length");
    free(least);
}

/* What is said of settings without effect; and bytes that are no text. */
FIXTURE_TEST(test_settings_without_effect) {
    make_model(f);
    write_text(f, "out/generation_config.json",
               "{\"typical_p\": 0.9, \"guidance_scale\": 1.0, \"suppress_tokens\": [], \"bad_words_ids\": null, "
               "\"sequence_bias\": [[[1], 2]], "
               "\"token_healing\": false, \"max_time\": 5}");
    free(answer(f, "prompt=What max_new_tokens=2 top_p=0.5 length_penalty=2"));
    assert_contains(f->log, "typical_p is not supported: answers are without it");
    assert_contains(f->log, "max_time is not supported");
    assert_contains(f->log, "sequence_bias is not supported");
    assert_null(strstr(f->log, "guidance_scale"));
    assert_null(strstr(f->log, "suppress_tokens"));
    assert_null(strstr(f->log, "token_healing"));
    assert_contains(f->log, "--top_p has no effect without --do_sample");
    assert_contains(f->log, "--length_penalty has no effect without --num_beams");
    struct answers *bytes = answer(f, "prompt=What\xff max_new_tokens=2");
    assert_string_equal(bytes->of[0].prompt, "What\xef\xbf\xbd");
    free(bytes);
    refuse(f, "prompt=What\xff max_new_tokens=2 strict=True", SNUG_E_INPUT, "--prompt: malformed UTF-8");
}

/* A model that was trained keeps the file, also through adapters and their merge; a classifier has none. */
FIXTURE_TEST(test_settings_are_kept) {
    static const char *const runs[][2] = {
        {"trained", "task=clm train_file=" CHAT "/plain.jsonl"},
        {"adapter", "task=clm use_peft=True train_file=" CHAT "/plain.jsonl"},
        {"labels", "task=classification train_file=@labels.csv"},
    };
    make_model(f);
    write_text(f, "out/generation_config.json", "{\"eos_token_id\": [0, 5], \"transformers_version\": \"5\"}");
    write_text(f, "labels.csv", "text,label\nGold is yellow,1\nIt is blue,0\n");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 max_steps=1 output_dir=@%s %s", runs[i][0],
                 runs[i][1]);
        snug_args *args = plain_args(f, words);
        if (snug_train(args, NULL, NULL) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_false(exists(path_of(f, "labels/generation_config.json")));
    run_merge(f, "model_name_or_path=@adapter output_dir=@merged threads=1");
    json_t *given = read_json(f, path_of(f, "out/generation_config.json"));
    static const char *const kept[] = {"trained", "merged"};
    for (size_t i = 0; i < 2; i++) {
        json_t *found = read_json(f, path_of(f, "%s/generation_config.json", kept[i]));
        assert_true(json_equal(found, given));
        json_decref(found);
    }
    json_decref(given);
    /* Answers of an adapter follow its own file, or else its base's. */
    write_text(f, "adapter/generation_config.json", "{\"max_new_tokens\": 3}");
    write_text(f, "out/generation_config.json", "{\"max_new_tokens\": 5}");
    for (int own = 1; own >= 0; own--) {
        struct answers a = {.count = 0};
        const snug_callbacks callbacks = {.user = &a, .should_stop = should_stop};
        snug_args *args = plain_args(f, own ? "model_name_or_path=@adapter threads=1 prompt=What min_new_tokens=3"
                                            : "model_name_or_path=@adapter threads=1 prompt=What min_new_tokens=5");
        ok(f, snug_generate(args, &callbacks, take_piece, take_answer, &a));
        snug_args_destroy(args);
        assert_int_equal(a.of[0].tokens, own ? 3 : 5);
        if (own) assert_int_equal(remove(path_of(f, "adapter/generation_config.json")), 0);
    }
}

FIXTURE_TEST(test_stopping) {
    make_model(f);
    struct answers *all = answer(f, "prompt=What^colour max_new_tokens=40 min_new_tokens=40");
    assert_string_equal(all->of[0].stop, "length");
    char words[256], stop[3] = {all->of[0].text[6], all->of[0].text[7]};
    if (stop[0] == ' ' || stop[1] == ' ') stop[0] = stop[1] == ' ' ? stop[0] : stop[1], stop[1] = '\0';
    snprintf(words, sizeof words, "prompt=What^colour max_new_tokens=40 min_new_tokens=40 stop_strings=%s", stop);
    struct answers *stopped = answer(f, words);
    assert_string_equal(stopped->of[0].stop, "stop_string");
    assert_contains(stopped->of[0].text, stop);
    assert_true(strlen(stopped->of[0].text) < strlen(all->of[0].text));
    snprintf(words, sizeof words,
             "prompt=What^colour max_new_tokens=40 min_new_tokens=40 num_beams=2 stop_strings=[\"zzz\",\"%s\"]", stop);
    struct answers *beams = answer(f, words);
    assert_int_equal(beams->count, 1);

    /* Of the file; one that begins in the prompt. */
    snprintf(words, sizeof words, "{\"stop_strings\": [\"zzz\", \"%s\"]}", stop);
    write_text(f, "out/generation_config.json", words);
    struct answers *of_file = answer(f, "prompt=What^colour max_new_tokens=40 min_new_tokens=40");
    assert_string_equal(of_file->of[0].text, stopped->of[0].text);
    free(of_file);
    snprintf(words, sizeof words, "{\"stop_strings\": \"%s\"}", stop);
    write_text(f, "out/generation_config.json", words);
    of_file = answer(f, "prompt=What^colour max_new_tokens=40 min_new_tokens=40");
    assert_string_equal(of_file->of[0].text, stopped->of[0].text);
    write_text(f, "out/generation_config.json", "{}");
    const char first = all->of[0].text[0] == ' ' ? all->of[0].text[1] : all->of[0].text[0];
    snprintf(words, sizeof words,
             "prompt=What^colour max_new_tokens=40 min_new_tokens=40 stop_strings=[\"colour%c\",\"colour\\u0020%c\"]",
             first, first);
    struct answers *across = answer(f, words);
    assert_string_equal(across->of[0].stop, "stop_string");
    assert_int_equal(across->of[0].tokens, 1);
    free(of_file), free(across);

    struct answers *never = answer(f, "prompt=What^colour max_new_tokens=40 min_new_tokens=40 "
                                      "stop_strings=a^stop^that^is^longer^than^the^prompt^and^all^of^its^answer");
    assert_string_equal(never->of[0].text, all->of[0].text);
    free(never);

    struct answers interrupted = {.stop_after = 3}, failed = {.returns = SNUG_E_IO};
    assert_int_equal(generate(f, "prompt=What^colour max_new_tokens=40 min_new_tokens=40", &interrupted),
                     SNUG_E_INTERRUPTED);
    assert_int_equal(interrupted.count, 0);
    assert_int_equal(generate(f, "prompt=What^colour max_new_tokens=4", &failed), SNUG_E_IO);
    free(all), free(stopped), free(beams);
}

static bool is_refused(struct fixture *f, const char *run, int64_t budget, const char *says) {
    struct answers a = {.count = 0};
    char words[256];
    snprintf(words, sizeof words, "%s memory_budget=%lldB", run, (long long)budget);
    return generate(f, words, &a) == SNUG_E_DOES_NOT_FIT && strstr(snug_error_message(f->ctx), says);
}

/* Some budget near this one is refused so. The plan counts what the process holds already, which varies. */
static void refuse_near(struct fixture *f, const char *run, int64_t budget, int64_t step, const char *says) {
    for (int i = 0; i < 400; i++)
        if (is_refused(f, run, budget + (i + 1) / 2 * (i % 2 ? step : -step), says)) return;
    fail_msg("%s: %s", run, snug_error_message(f->ctx));
}

FIXTURE_TEST(test_what_does_not_fit) {
    make_model(f);
    write_text(f, "rows.txt", "What colour\nTell me\nWhat\nHow many\n");
    refuse(f, "test_file=@rows.txt max_new_tokens=100 memory_budget=1MiB", SNUG_E_DOES_NOT_FIT,
           "one prompt at a time, with its answer");
    write_text(f, "long.jsonl", "");
    FILE *file = fopen(path_of(f, "long.jsonl"), "w");
    fprintf(file, "{\"prompt\": \"");
    for (int i = 0; i < 200; i++) fprintf(file, "What colour is it? ");
    fprintf(file, "\"}\n");
    fclose(file);
    refuse(f, "test_file=@long.jsonl", SNUG_E_INPUT, "leaves no room for an answer within the model's 128 positions");
    /* Rotations that change with the length. */
    json_t *config = read_json(f, path_of(f, "out/config.json"));
    json_t *factors = json_array();
    for (int i = 0; i < 12; i++) json_array_append_new(factors, json_real(1.5));
    json_object_set_new(config, "rope_parameters",
                        json_pack("{s:s,s:f,s:O,s:O,s:i}", "rope_type", "longrope", "rope_theta", 1e4, "short_factor",
                                  factors, "long_factor", factors, "original_max_position_embeddings", 64));
    char *old = read_text(f, path_of(f, "out/config.json"), NULL);
    assert_int_equal(json_dump_file(config, path_of(f, "out/config.json"), 0), 0);
    free(answer(f, "prompt=What max_new_tokens=3"));
    refuse(f, "prompt=What max_new_tokens=100", SNUG_E_UNSUPPORTED,
           "rotary embeddings change after 64, which generation does not support: lower --max_new_tokens");
    snug_args *lower = plain_args(f, "model_name_or_path=@out threads=1");
    snug_generator *none;
    assert_int_equal(snug_generator_open(lower, &none), SNUG_E_UNSUPPORTED);
    assert_contains(snug_error_message(f->ctx), "lower --max_seq_length");
    snug_args_destroy(lower);
    write_text(f, "out/config.json", old);
    free(old);
    json_decref(config);
    json_decref(factors);
    /* Of 40 prompts at a time about half fit. */
    char many[600] = "";
    for (int i = 0; i < 40; i++) strcat(many, "What colour\n");
    write_text(f, "many.txt", many);
    static const char asked[] = "test_file=@many.txt max_new_tokens=100 per_device_eval_batch_size=40";
    char words[256];
    snprintf(words, sizeof words, "model_name_or_path=@out threads=1 %s", asked);
    snug_args *args = plain_args(f, words);
    struct snug_job job;
    if (snug_job_open(args, SNUG_COMMAND_GENERATE, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    const int64_t total = job.plan.total, cache = job.plan.bytes[SNUG_MEMORY_FUNCTION];
    assert_int_equal(job.setup.generation.pages, 2 * job.setup.generation.groups);
    assert_int_equal(cache, 3 * 2 * job.setup.generation.pages * 64 * 48 * (int64_t)sizeof(float));
    snug_job_close(&job);
    snug_args_destroy(args);
    snprintf(words, sizeof words, "%s memory_budget=%lldB", asked, (long long)(total - cache / 2));
    refuse(f, words, SNUG_E_DOES_NOT_FIT, "; add --per_device_eval_batch_size ");
    /* --fit does that, unless the number is given, or none would fit */
    strcat(words, " fit=True");
    refuse(f, words, SNUG_E_DOES_NOT_FIT, "; add --per_device_eval_batch_size ");
    refuse(f, "test_file=@many.txt max_new_tokens=100 fit=True memory_budget=1MiB", SNUG_E_DOES_NOT_FIT,
           "one prompt at a time, with its answer, does not fit either");
    /* one of the two pages of a single prompt */
    args = plain_args(f, "model_name_or_path=@out threads=1 prompt=What max_new_tokens=100");
    if (snug_job_open(args, SNUG_COMMAND_GENERATE, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(job.setup.generation.pages, 2);
    const int64_t page = job.plan.bytes[SNUG_MEMORY_FUNCTION] / 2, single = job.plan.total;
    snug_job_close(&job);
    snug_args_destroy(args);
    refuse_near(f, "prompt=What max_new_tokens=100", single - page, page / 2,
                "with its answer and --num_beams 1, fits up to about 64 tokens");
    int64_t budget = 0;
    for (int fits = 0; fits < 2; fits++) {
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 test_file=@many.txt max_new_tokens=100");
        if (fits)
            snprintf(words + strlen(words), sizeof words - strlen(words), " fit=True memory_budget=%lldB",
                     (long long)budget);
        args = plain_args(f, words);
        if (snug_job_open(args, SNUG_COMMAND_GENERATE, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        const int64_t groups = job.setup.generation.groups;
        assert_true(fits ? groups >= 2 && groups < 8 && job.plan.total <= budget : groups == 8);
        assert_int_equal(job.setup.generation.pages, 2 * groups);
        budget = job.plan.total - job.plan.bytes[SNUG_MEMORY_FUNCTION] / 2;
        snug_job_close(&job);
        snug_args_destroy(args);
    }
}

/* Bytes that a run plans. */
struct planned {
    int64_t total, weights, cache;
};

static struct planned plan_run(struct fixture *f, const char *run) {
    char words[256];
    struct snug_job job;
    snprintf(words, sizeof words, "model_name_or_path=@out threads=1 %s", run);
    snug_args *args = plain_args(f, words);
    if (snug_job_open(args, SNUG_COMMAND_GENERATE, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    const struct planned planned = {job.plan.total, job.plan.bytes[SNUG_MEMORY_WEIGHTS],
                                    job.plan.bytes[SNUG_MEMORY_FUNCTION]};
    snug_job_close(&job);
    snug_args_destroy(args);
    return planned;
}

/* Of four beams two or three fit: with a part of the cache, and so much more. */
FIXTURE_TEST(test_beams_that_fit) {
    static const char run[] = "prompt=What max_new_tokens=100 num_beams=4";
    static const char *const says[] = {"beams instead of 4, which may give another answer; add --num_beams ",
                                       "with 2 beams instead of 4"};
    make_model(f);
    for (int i = 0; i < 2; i++) {
        bool refused = false;
        for (int more = 0; more < 64 && !refused; more++) { /* what the process holds varies: planned each time */
            const struct planned planned = plan_run(f, run);
            refused = is_refused(f, run, planned.total - planned.cache / 2 + more % 16 * planned.cache / 64, says[i]);
        }
        if (!refused) fail_msg("%s: %s", says[i], snug_error_message(f->ctx));
    }
}

/* Chats of several turns: what was read is kept, and the answers are those of whole prompts. */
FIXTURE_TEST(test_a_generator_keeps_what_it_has_read) {
    static const char first[] = "[{\"role\": \"user\", \"content\": \"What colour is gold?\"}]";
    static const char second[] = "[{\"role\": \"user\", \"content\": \"What colour is gold?\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"Gold.\"}, "
                                 "{\"role\": \"user\", \"content\": \"Tell me what a cow does.\"}]";
    make_model(f);
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=1 max_new_tokens=8");
    snug_generator *g, *fresh;
    struct answers a = {.count = 0}, b = {.count = 0};
    const snug_callbacks callbacks = {.user = &a, .should_stop = should_stop}, no_callback = {.user = &a};
    assert_int_equal(snug_generator_open(args, &g), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, first, true, &callbacks, take_piece, take_answer, &a), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, second, true, &callbacks, NULL, take_answer, &a), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, "Tell me", false, &no_callback, NULL, take_answer, &a), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, second, true, NULL, NULL, take_answer, &a), SNUG_OK);
    assert_string_equal(a.of[1].text, a.of[3].text);
    a.stop_after = 1;
    assert_int_equal(snug_generator_answer(g, second, true, &callbacks, NULL, take_answer, &a), SNUG_E_INTERRUPTED);
    assert_int_equal(snug_generator_answer(g, second, true, NULL, NULL, take_answer, &a), SNUG_OK);
    assert_string_equal(a.of[1].text, a.of[4].text);
    assert_int_equal(snug_generator_answer(g, "[", true, NULL, NULL, take_answer, &a), SNUG_E_INPUT);
    assert_int_equal(snug_generator_answer(g, "", false, NULL, NULL, take_answer, &a), SNUG_E_INPUT);
    char *longest = calloc(1, 4000);
    for (int i = 0; i < 200; i++) strcat(longest, "What colour is it? ");
    assert_int_equal(snug_generator_answer(g, longest, false, NULL, NULL, take_answer, &a), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "there is memory for 128: raise --max_seq_length, or begin a new chat");
    free(longest);
    a.destroys = g; /* in a callback: does nothing */
    assert_int_equal(snug_generator_answer(g, "Tell", false, NULL, NULL, take_answer, &a), SNUG_OK);
    assert_int_equal(snug_generator_answer(NULL, "x", false, NULL, NULL, take_answer, &a), SNUG_E_USAGE);
    snug_generator_destroy(g);
    snug_generator_destroy(NULL);
    assert_int_equal(snug_generator_open(args, &fresh), SNUG_OK);
    assert_int_equal(snug_generator_answer(fresh, second, true, NULL, NULL, take_answer, &b), SNUG_OK);
    assert_string_equal(a.of[1].text, b.of[0].text);
    snug_generator_destroy(fresh);
    snug_args_destroy(args);

    args = plain_args(f, "model_name_or_path=@out threads=1 max_new_tokens=8 num_beams=2 max_seq_length=60");
    assert_int_equal(snug_generator_open(args, &g), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, "Tell me", false, NULL, NULL, take_answer, &b), SNUG_OK);
    snug_generator_destroy(g);
    snug_args_destroy(args);

    args = plain_args(f, "model_name_or_path=@out threads=1 max_new_tokens=8 do_sample=True num_return_sequences=2");
    assert_int_equal(snug_generator_open(args, &g), SNUG_OK);
    b.count = 0;
    assert_int_equal(snug_generator_answer(g, "Tell me", false, NULL, NULL, take_answer, &b), SNUG_OK);
    assert_int_equal(snug_generator_answer(g, "Tell me", false, NULL, NULL, take_answer, &b), SNUG_OK);
    assert_int_equal(b.count, 4);
    assert_string_equal(b.of[0].text, b.of[2].text);
    assert_string_equal(b.of[1].text, b.of[3].text);
    snug_generator_destroy(g);
    snug_args_destroy(args);
}

/* Files in bf16 take half of the memory on a CPU, and the answers are those of the same values in fp32: of a few
   sequences and of many, for which other matmuls are used. */
FIXTURE_TEST(test_files_in_bf16) {
    static const char asked[] = "test_file=@rows.txt max_new_tokens=6 num_beams=4 per_device_eval_batch_size=%d%s";
    train_model(f, CHAT "/plain.jsonl dtype=bfloat16", 40);
    write_text(f, "rows.txt", "What colour\nTell me\nWhat\nHow many\n");
    for (int rows = 1; rows <= 4; rows += 3) {
        char words[256];
        f->log[0] = '\0';
        snprintf(words, sizeof words, asked, rows, "");
        struct answers *kept = answer(f, words);
        assert_contains(f->log, "keeping the weights in bf16");
        f->log[0] = '\0';
        snprintf(words, sizeof words, asked, rows, " dtype=float32");
        struct answers *wide = answer(f, words);
        assert_null(strstr(f->log, "keeping"));
        assert_int_equal(kept->count, 4);
        assert_memory_equal(kept, wide, sizeof *kept);
        free(kept);
        free(wide);
    }
    const int64_t kept = plan_run(f, "prompt=What").weights, wide = plan_run(f, "prompt=What dtype=float32").weights;
    assert_true(kept > wide / 2 && kept < wide * 51 / 100);
}

FIXTURE_TEST(test_models_that_generate_nothing) {
    snug_args *args = plain_args(f, "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/model/mlm prompt=x");
    struct answers a = {.count = 0};
    assert_int_equal(snug_generate(args, NULL, NULL, take_answer, &a), SNUG_E_UNSUPPORTED);
    assert_contains(snug_error_message(f->ctx), "a BERT is no decoder, and generates no text");
    snug_args_destroy(args);
    args = plain_args(f, "prompt=x");
    assert_int_equal(snug_generate(args, NULL, NULL, take_answer, &a), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "snug generate needs --model_name_or_path");
    assert_int_equal(snug_generate(args, NULL, NULL, NULL, &a), SNUG_E_USAGE);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
