/* SPDX-License-Identifier: Apache-2.0 */
/* Answers in an evaluation and in a training (--predict_with_generate), and what --fit chooses for them. */
#include "generated.h"
#include "train/fit.h"
#include "train/generation.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static const char *const asked[] = {"What colour is gold?", "Tell me", "Hm"};

/* A chat for each question, with the first answer that was given, or `last` to the last one; without answers: to ask.
 */
static void write_chats(struct fixture *f, const char *name, const struct answers *a, const char *last) {
    char *text = calloc(1, 1 << 16);
    for (int i = 0; i < 3; i++) {
        json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", asked[i]);
        const char *said = last && i == 2 ? last : a ? a->of[i * (a->count / 3)].text : NULL;
        if (said) json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "assistant", "content", said));
        json_t *row = json_pack("{s:o}", "messages", messages);
        char *line = json_dumps(row, 0);
        strcat(strcat(text, line), "\n");
        free(line);
        json_decref(row);
    }
    write_text(f, name, text);
    free(text);
}

/* Three rows with answers, in pairs.jsonl. */
static void write_pairs(struct fixture *f) {
    struct answers *said = calloc(1, sizeof *said);
    said->count = 3;
    for (int i = 0; i < 3; i++) strcpy(said->of[i].text, "Gold is yellow.");
    write_chats(f, "pairs.jsonl", said, NULL);
    free(said);
}

/* Counts its calls down: true from the last one on. */
static bool counts_down(void *user) {
    int *left = user;
    return --*left <= 0;
}

static snug_status evaluate(struct fixture *f, const char *words, const snug_callbacks *callbacks,
                            snug_metrics **metrics) {
    char all[1024];
    snprintf(all, sizeof all, "model_name_or_path=@out threads=1 task=clm predict_with_generate=True %s", words);
    snug_args *args = plain_args(f, all);
    const snug_status status = snug_evaluate(args, callbacks, metrics);
    snug_args_destroy(args);
    return status;
}

/* The answers of an evaluation are those of snug generate; a training measures them, too. */
FIXTURE_TEST(test_answers_in_an_evaluation) {
    static const char *const settings[] = {"max_new_tokens=9", "max_new_tokens=9 num_beams=3 num_return_sequences=2",
                                           "generation_max_length=40", "max_new_tokens=9 stop_strings=a",
                                           "max_new_tokens=9 num_beams=2 stop_strings=[\"e\"]"};
    make_model(f);
    write_chats(f, "asked.jsonl", NULL, NULL);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char words[512];
        snug_metrics *metrics;
        snprintf(words, sizeof words, "test_file=@asked.jsonl %s", settings[i]);
        struct answers *a = answer(f, words);
        for (int changed = 0; changed < 2; changed++) {
            write_chats(f, "pairs.jsonl", a, changed ? "entirely different" : NULL);
            snprintf(words, sizeof words, "validation_file=@pairs.jsonl per_device_eval_batch_size=2 %s", settings[i]);
            if (evaluate(f, words, NULL, &metrics) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
            assert_float_equal(metric_of(metrics, "eval_exact_match"), changed ? 2.0 / 3 : 1, 1e-9);
            if (i < 3) assert_float_equal(metric_of(metrics, "eval_rougeL"), changed ? 2.0 / 3 : 1, 1e-9);
            if (i < 3) assert_true(changed == (metric_of(metrics, "eval_bleu") < 1 - 1e-9));
            assert_true(metric_of(metrics, "eval_loss") > 0);
            snug_metrics_destroy(metrics);
        }
        free(a);
    }
    static const char *const plain = "validation_file=@pairs.jsonl per_device_eval_batch_size=2 max_new_tokens=4";
    bool found = false;
    for (int calls = 1; calls < 60 && !found; calls++) { /* setting up and the evaluation's batches ask as well */
        int left = calls;
        snug_metrics *metrics;
        const snug_callbacks callbacks = {.user = &left, .should_stop = counts_down};
        assert_failed(f, plain, evaluate(f, plain, &callbacks, &metrics), SNUG_E_INTERRUPTED, "");
        found = strstr(snug_error_message(f->ctx), "interrupted after 0 of 3 prompts");
    }
    assert_true(found);
    int many = 1000;
    snug_metrics *metrics;
    const snug_callbacks asks = {.user = &many, .should_stop = counts_down}, none = {.user = &many};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(evaluate(f, plain, i ? &asks : &none, &metrics), SNUG_OK);
        snug_metrics_destroy(metrics);
    }
    snug_args *args =
        plain_args(f, "model_name_or_path=@out task=clm train_file=@pairs.jsonl validation_file=@pairs.jsonl "
                      "predict_with_generate=True max_new_tokens=4 output_dir=@trained max_steps=2 "
                      "eval_strategy=steps eval_steps=1 save_steps=1 threads=1 overwrite_output_dir=True");
    for (int i = 0; i < 2; i++) { /* a metric by both of its names */
        snug_train_result *result;
        assert_int_equal(snug_args_set(args, "metric_for_best_model", i ? "rougeLsum" : "eval_rougeLsum"), SNUG_OK);
        if (snug_train(args, NULL, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        assert_string_equal(result->best_metric, "eval_rougeLsum");
        snug_train_result_destroy(result);
    }
    snug_args_destroy(args);
    char *state = read_text(f, path_of(f, "trained/trainer_state.json"), NULL);
    assert_contains(state, "eval_rougeLsum");
    free(state);
}

/* The arena that a generation, evaluation or training with so many beams has. */
static int64_t arena_with(struct fixture *f, enum snug_command command, const char *run, int64_t beams) {
    char words[1024];
    struct snug_job job;
    snprintf(words, sizeof words, "%s num_beams=%lld per_device_eval_batch_size=1", run, (long long)beams);
    snug_args *args = plain_args(f, words);
    if (snug_job_open(args, command, &job) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    const int64_t arena = job.plan.layout.total;
    snug_job_close(&job);
    snug_args_destroy(args);
    return arena;
}

/* What --fit chose with budgets from the one that the run needs down to one that is too small. */
struct chosen {
    int fewer_prompts, fewer_beams, methods, refused;
    int64_t least, budget; /* the fewest beams; the last budget with fewer than asked */
};

static struct chosen fit_all(struct fixture *f, enum snug_command command, const char *run, int64_t fewest,
                             int64_t wanted) {
    enum { STEPS = 160 };
    const bool trains = command == SNUG_COMMAND_TRAIN;
    const int64_t step = trains ? 1 << 19 : 1 << 16;
    const int most = trains ? 8 : 40; /* refusals: what the process holds varies by a MiB */
    struct chosen c = {.least = wanted};
    int64_t arenas[17], budget = 0;
    for (int64_t beams = fewest; beams <= wanted; beams++)
        arenas[beams] = trains ? 0 : arena_with(f, command, run, beams);
    for (int i = 0; i < STEPS && c.refused < most; i++) {
        char words[1024], says[96];
        struct snug_job job;
        snprintf(words, sizeof words, "%s num_beams=%lld", run, (long long)wanted);
        if (i)
            snprintf(words + strlen(words), sizeof words - strlen(words), " fit=True memory_budget=%lldB",
                     (long long)budget);
        snug_args *args = plain_args(f, words);
        f->log[0] = '\0';
        const snug_status status = snug_job_open(args, command, &job);
        const struct snug_generation_setup *g = &job.setup.generation;
        const int64_t beams = g->how.search.beams, others = job.plan.total - job.plan.layout.total;
        if (status != SNUG_OK) {
            assert_failed(f, words, status, SNUG_E_DOES_NOT_FIT, "");
            assert_true(beams == wanted && g->groups == g->asked_groups);
            c.refused++;
        } else if (i) {
            assert_true(job.plan.total <= budget);
            assert_int_equal(g->asked_beams, wanted);
            assert_int_equal(g->rows, g->groups * beams);
            c.fewer_prompts += beams == wanted && g->groups < g->asked_groups;
            c.methods += job.fit && job.fit->applied;
            if (beams < wanted) {
                snprintf(says, sizeof says, "--fit: %lld beams instead of %lld", (long long)beams, (long long)wanted);
                assert_contains(f->log, says);
                assert_int_equal(args->num_beams, beams);
                assert_int_equal(g->groups, 1);
                if (arenas[beams]) assert_true(others + arenas[beams + 1] > budget); /* it is the most */
                c.fewer_beams++;
                c.budget = budget;
            }
            if (beams < c.least) c.least = beams;
        }
        budget = (i ? budget : job.plan.total) - step;
        snug_job_close(&job);
        snug_args_destroy(args);
    }
    return c;
}

/* --fit answers fewer prompts at a time, and where one does not fit, with as many beams as do: in snug generate, in an
   evaluation, and in a training, where methods that save memory come before fewer beams. */
FIXTURE_TEST(test_fit_chooses_beams) {
    static const char run[] = "model_name_or_path=@out threads=1 test_file=@rows.txt max_new_tokens=100";
    char words[512];
    make_model(f);
    write_text(f, "rows.txt", "What colour\nTell me\nWhat\nHow many\n");
    struct chosen c = fit_all(f, SNUG_COMMAND_GENERATE, run, 1, 8);
    assert_true(c.fewer_prompts && c.fewer_beams && c.refused && c.least == 1);
    snprintf(words, sizeof words, "%s num_return_sequences=3", run);
    c = fit_all(f, SNUG_COMMAND_GENERATE, words, 3, 8);
    assert_true(c.fewer_prompts && c.fewer_beams && c.refused && c.least == 3);
    /* A number of prompts that is given stays. */
    snprintf(words, sizeof words, "%s per_device_eval_batch_size=4", run);
    c = fit_all(f, SNUG_COMMAND_GENERATE, words, 1, 2);
    assert_true(!c.fewer_prompts && !c.fewer_beams && c.refused);
    c = fit_all(f, SNUG_COMMAND_CHAT, "model_name_or_path=@out threads=1", 1, 4);
    assert_true(!c.fewer_prompts && c.fewer_beams && c.refused && c.least == 1);
    write_pairs(f);
    snprintf(words, sizeof words,
             "model_name_or_path=@out threads=1 task=clm predict_with_generate=True "
             "validation_file=@pairs.jsonl max_new_tokens=60");
    c = fit_all(f, SNUG_COMMAND_EVAL, words, 1, 8);
    assert_true(c.fewer_prompts && c.fewer_beams && c.refused && c.least == 1);
    bool recorded = false;
    for (int64_t i = 0; i < 64 && !recorded; i++) { /* the process's memory varies */
        snug_metrics *metrics = NULL;
        snprintf(words, sizeof words,
                 "validation_file=@pairs.jsonl max_new_tokens=60 num_beams=8 fit=True "
                 "memory_budget=%lldB",
                 (long long)(c.budget + (i << 16)));
        const bool runs = evaluate(f, words, NULL, &metrics) == SNUG_OK;
        for (size_t k = 0; runs && k < metrics->count; k++)
            if (strcmp(metrics->items[k].name, "eval_num_beams") == 0) recorded = metrics->items[k].value < 8;
        snug_metrics_destroy(metrics);
    }
    assert_true(recorded);
    /* One prompt takes less memory than eight, and recomputing saves more, than what the process holds varies. */
    snprintf(words, sizeof words,
             "model_name_or_path=@out threads=1 task=clm predict_with_generate=True train_file=" CHAT "/plain.jsonl "
             "validation_file=" CHAT "/plain.jsonl output_dir=@fitted max_new_tokens=60 per_device_train_batch_size=32 "
             "gradient_accumulation_steps=1 optim=adamw_torch dtype=float32 update_in_backward=False");
    c = fit_all(f, SNUG_COMMAND_TRAIN, words, 1, 8);
    assert_true(c.fewer_prompts && c.fewer_beams && c.methods && c.refused);
    snug_args *args = plain_args(f, "model_name_or_path=@out threads=1 task=clm validation_file=@pairs.jsonl fit=True");
    f->log[0] = '\0';
    if (snug_evaluate(args, NULL, NULL) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_contains(f->log, "--fit has no effect without --predict_with_generate");
    snug_args_destroy(args);
}

/* A plan of more ranks has no --zero_stage 3, with which none could answer. */
FIXTURE_TEST(test_answers_on_planned_ranks) {
    char words[512];
    struct snug_job job;
    make_model(f);
    write_pairs(f);
    snprintf(words, sizeof words,
             "model_name_or_path=@out threads=1 task=clm predict_with_generate=True train_file=@pairs.jsonl "
             "validation_file=@pairs.jsonl max_new_tokens=60 output_dir=@none");
    snug_args *args = plain_args(f, words);
    if (snug_job_open(args, SNUG_COMMAND_TRAIN, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    int least[SNUG_ZERO_STAGES];
    assert_int_equal(snug_fit_ranks(&job.setup, &job.limits, job.plan.total - (1 << 18), least), SNUG_OK);
    assert_true(least[0] == 0 && least[1] > 1 && least[2] > 1 && least[3] == 0);
    snug_job_close(&job);
    snug_plan *plan; /* which opens no model, but reads its generation_config.json */
    write_text(f, "out/generation_config.json", "{\"num_beams\": 0}");
    assert_failed(f, words, snug_plan_create(args, &plan), SNUG_E_INPUT, "num_beams must be a number from 1 to 16");
    write_text(f, "out/generation_config.json", "{}");
    if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_evaluations_without_answers) {
    static const struct {
        const char *row, *words;
        snug_status status;
        const char *says;
    } cases[] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hm\"}, {\"role\": \"assistant\", \"content\": \"Ha\"}, "
         "{\"role\": \"user\", \"content\": \"Ha\"}]}",
         "", SNUG_E_INPUT, "needs an answer to compare with"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hm\"}, {\"role\": \"assistant\", \"content\": \"Ha\"}]}",
         "stop_strings=[]", SNUG_E_USAGE, "must be a text, or a JSON list"},
    };
    make_model(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snug_metrics *metrics;
        write_text(f, "odd.jsonl", cases[i].row);
        snprintf(words, sizeof words, "validation_file=@odd.jsonl max_new_tokens=4 %s", cases[i].words);
        assert_failed(f, words, evaluate(f, words, NULL, &metrics), cases[i].status, cases[i].says);
    }
    write_text(f, "odd.csv", "text\nWhat colour\nTell me\n");
    snug_metrics *metrics;
    assert_failed(f, "text", evaluate(f, "validation_file=@odd.csv text_column_name=text", NULL, &metrics),
                  SNUG_E_USAGE, "prompts with their answers");
    write_text(f, "chats.jsonl",
               "{\"prompt\": [{\"role\": \"user\", \"content\": \"Hm\"}], \"completion\": [{\"role\": \"assistant\", "
               "\"content\": \"Ha\"}]}\n");
    if (evaluate(f, "validation_file=@chats.jsonl max_new_tokens=2", NULL, &metrics) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    assert_true(metric_of(metrics, "eval_exact_match") < 1);
    snug_metrics_destroy(metrics);
}

FIXTURE_TEST(test_trainings_that_cannot_answer) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"config_name=" CHAT " tokenizer_name=" CHAT " train_file=@pairs.jsonl validation_file=@pairs.jsonl task=clm",
         "needs --model_name_or_path"},
        {"model_name_or_path=@out train_file=@pairs.jsonl validation_split_percentage=50 task=clm",
         "and --validation_file"},
        {"model_name_or_path=@out train_file=@labels.csv validation_file=@labels.csv task=classification",
         "is for --task clm"},
        {"model_name_or_path=@out train_file=@pairs.jsonl validation_file=@pairs.jsonl task=clm eval_strategy=epoch "
         "metric_for_best_model=rougeX",
         "is not one of this task's metrics: eval_loss"},
    };
    make_model(f);
    struct answers *a = calloc(1, sizeof *a);
    a->count = 3;
    for (int i = 0; i < 3; i++) strcpy(a->of[i].text, "Gold is yellow.");
    write_chats(f, "pairs.jsonl", a, NULL);
    free(a);
    write_text(f, "labels.csv", "text,label\nGold is yellow,1\nIt is blue,0\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char all[1024];
        snprintf(all, sizeof all, "output_dir=@no threads=1 predict_with_generate=True %s", cases[i].words);
        snug_args *args = plain_args(f, all);
        const snug_status status = snug_train(args, NULL, NULL);
        if (status == SNUG_OK || !strstr(snug_error_message(f->ctx), cases[i].says))
            fail_msg("%s: %s", all, snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
}

/* A model that has learnt to say nothing, with and without its template. */
FIXTURE_TEST(test_answers_without_text) {
    static const struct {
        const char *words;
        bool template, told;
    } cases[] = {
        {"prompt=<|user|>Hm<|end|><|assistant|> max_new_tokens=3", true, true},
        {"prompt=Hm chat=True max_new_tokens=3", true, false},
        {"prompt=<|user|>Hm<|end|><|assistant|> max_new_tokens=3", false, false},
    };
    write_text(f, "silent.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hm\"}, "
               "{\"role\": \"assistant\", \"content\": \"\"}]}\n");
    train_model(f, "@silent.jsonl", 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!cases[i].template) write_text(f, "out/tokenizer_config.json", "{\"eos_token\": \"<|end|>\"}");
        if (!cases[i].template) unlink(path_of(f, "out/chat_template.jinja"));
        f->log[0] = '\0';
        struct answers *a = answer(f, cases[i].words);
        assert_string_equal(a->of[0].text, "");
        assert_contains(f->log, "1 of 1 answers have no text: only special tokens were generated");
        assert_int_equal(strstr(f->log, "the model has a chat template") != NULL, cases[i].told);
        free(a);
    }
}

TEST_MAIN(NULL, NULL)
