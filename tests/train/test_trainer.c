/* SPDX-License-Identifier: Apache-2.0 */
/* Rare cases of training: callbacks that are missing, settings with little effect, malicious states, and the log of
   values that are not finite. */
#include <math.h>

#include "io/json.h"
#include "train/results.h"
#include "train/trainer.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, snug_status status, const char *says) {
    if (found != status) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
    snug_clear_error(f->ctx);
}

static snug_status train_with(struct fixture *f, const char *output, const char *words,
                              const snug_callbacks *callbacks) {
    snug_args *args = training_args(f, words);
    ok(f, snug_args_set(args, "output_dir", path_of(f, "%s", output)));
    const snug_status status = snug_train(args, callbacks, NULL);
    snug_args_destroy(args);
    return status;
}

/* ---- callbacks, and stopping ------------------------------------------------------------------------------------ */

/* Requests a stop at the given call. */
static bool stop_when_asked(void *user) { return --*(int *)user < 0; }

FIXTURE_TEST(test_stopped_before_a_step) {
    const char words[] =
        "train_file=dummy:16x8 validation_file=dummy:8x8 eval_strategy=epoch eval_on_start=True max_steps=2";
    ok(f, train_with(f, "whole", words, &(snug_callbacks){0})); /* no callbacks */
    int left = 0;
    const snug_callbacks callbacks = {.user = &left, .should_stop = stop_when_asked};
    fails(f, train_with(f, "none", words, &callbacks), SNUG_E_INTERRUPTED, "interrupted before the first step");
    assert_false(exists(path_of(f, "none")));
    left = 1; /* in the evaluation before the first step */
    fails(f, train_with(f, "out", words, &callbacks), SNUG_E_INTERRUPTED, "interrupted at step 0 of 2");
    assert_true(exists(path_of(f, "out/checkpoint-0")));
    ok(f,
       train_with(f, "out",
                  "train_file=dummy:16x8 validation_file=dummy:8x8 eval_strategy=epoch eval_on_start=True max_steps=2 "
                  "resume_from_checkpoint=True",
                  NULL));
    assert_same_in_both(f, "whole", "out", "model.safetensors");
    /* A resumed run does not log again how the first one began. */
    train(f, "steps", "validation_file=@dev.csv eval_on_start=True max_steps=2 save_strategy=steps save_steps=1");
    const snug_train_result resumed = train(f, "steps",
                                            "validation_file=@dev.csv eval_on_start=True max_steps=2 "
                                            "resume_from_checkpoint=@steps/checkpoint-1");
    json_t *history = history_of(f, "steps"), *given = json_loads(resumed.log_history, 0, NULL),
           *state_json = read_json(f, path_of(f, "steps/trainer_state.json"));
    assert_true(json_equal(json_object_get(state_json, "log_history"), given));
    json_decref(state_json);
    json_decref(given);
    int evaluations = 0;
    for (size_t i = 0; i < json_array_size(history); i++)
        evaluations += json_object_get(json_array_get(history, i), "eval_loss") != NULL;
    json_decref(history);
    assert_int_equal(evaluations, 2); /* before the first step, after the last */
}

/* ---- the best model ------------------------------------------------------------------------------------------- */

#define JUDGED                                                                                                         \
    "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=best load_best_model_at_end=True "

FIXTURE_TEST(test_metrics_where_greater_is_better) {
    const snug_train_result result =
        train(f, "out",
              JUDGED "metric_for_best_model=accuracy learning_rate=1e-2 early_stopping_patience=30 "
                     "early_stopping_threshold=2 report_to=all");
    json_t *history = history_of(f, "out"), *value;
    double best = -1;
    long long step = -1;
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *entry = json_array_get(history, i);
        if (!(value = json_object_get(entry, "eval_accuracy")) || json_number_value(value) <= best) continue;
        best = json_number_value(value);
        step = json_integer_value(json_object_get(entry, "step"));
    }
    json_decref(history);
    assert_true(best > 0);
    assert_string_equal(result.best_checkpoint, path_of(f, "out/checkpoint-%lld", step));
    assert_true(metric_of(result.metrics, "eval_accuracy") == best);
    assert_true(snug_folder_exists(path_of(f, "out/runs")));
    /* A gain below the threshold does not reset the patience. */
    const snug_train_result early =
        train(f, "early",
              JUDGED "validation_file=@train.csv metric_for_best_model=loss learning_rate=3e-3 "
                     "early_stopping_patience=12 early_stopping_threshold=100");
    assert_string_not_equal(early.best_checkpoint, path_of(f, "early/checkpoint-1"));
    assert_int_equal(early.steps, 13);
}

/* Where every evaluation is NaN there is no best model: the last one is kept. */
FIXTURE_TEST(test_no_best) {
    write_text(f, "values.csv", "sentence,label\nw1 good,0.25\nw2 bad,-0.5\n");
    write_text(f, "far.csv", "sentence,label\nw1 good,3e38\n");
    const snug_train_result result = train(
        f, "out", JUDGED "train_file=@values.csv validation_file=@far.csv metric_for_best_model=loss max_steps=2");
    assert_null(result.best_checkpoint);
    assert_true(exists(path_of(f, "out/model.safetensors")));
}

/* A resumed run that cannot load the best model in the end is refused at its begin. */
FIXTURE_TEST(test_best_checkpoint_is_gone) {
    const char *const judged =
        "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 "
        "load_best_model_at_end=True learning_rate=0 max_steps=2";
    const char *const resumed =
        "validation_file=@dev.csv eval_strategy=steps eval_steps=1 save_strategy=steps save_steps=1 "
        "load_best_model_at_end=True learning_rate=0 max_steps=3 resume_from_checkpoint=True";
    const char *const unjudged =
        "save_strategy=steps save_steps=1 learning_rate=0 max_steps=3 resume_from_checkpoint=True";
    assert_string_equal(train(f, "out", judged).best_checkpoint, path_of(f, "out/checkpoint-1"));
    train(f, "other", judged);
    ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "out/checkpoint-1")));
    fails(f, train_with(f, "out", resumed, NULL), SNUG_E_INPUT, "move it there, or leave out --load_best_model_at_end");
    assert_int_equal(rename(path_of(f, "other/checkpoint-1"), path_of(f, "out/checkpoint-1")), 0);
    fails(f, train_with(f, "out", resumed, NULL), SNUG_E_INPUT, "belongs to another run");
    train(f, "out", unjudged);
}

/* ---- folders and files ---------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_old_checkpoints) {
    train(f, "out", "max_steps=4 save_strategy=steps save_steps=2 logging_dir=@logs");
    assert_false(exists(path_of(f, "logs"))); /* without callbacks */
    /* Saved at step 3, between those that exist, and replaced at step 4. */
    train(f, "out", "max_steps=4 save_strategy=steps save_steps=3 resume_from_checkpoint=False");
    assert_true(exists(path_of(f, "out/checkpoint-2")));
    assert_true(exists(path_of(f, "out/checkpoint-3")));
    /* A resumed run keeps them. Leftovers of killed runs are removed, by the process id in the lock, and nothing with a
       similar name. */
    write_text(f, "out/.snug.lock",
               "process 1 on host, run 00000000000000aa\nprocess 2 on host, run 00000000000000bb\n");
    ok(f, snug_folder_create(f->ctx, path_of(f, "out/.checkpoint-5.snug-00000000000000aa")));
    ok(f, snug_folder_create(f->ctx, path_of(f, "out/.checkpoint-6.snug-00000000000000cc")));
    write_text(f, "out/.config.json.snug-00000000000000bb-0", "");
    write_text(f, "out/.mine.snug-1-2", "");
    train(f, "out", "max_steps=5 overwrite_output_dir=True resume_from_checkpoint=@out/checkpoint-4");
    assert_true(exists(path_of(f, "out/checkpoint-2")));
    assert_false(exists(path_of(f, "out/.checkpoint-5.snug-00000000000000aa")));
    assert_false(exists(path_of(f, "out/.config.json.snug-00000000000000bb-0")));
    assert_true(exists(path_of(f, "out/.checkpoint-6.snug-00000000000000cc")));
    assert_true(exists(path_of(f, "out/.mine.snug-1-2")));
    assert_false(exists(path_of(f, "out/.snug.lock")));
    train(f, "out", "max_steps=4 overwrite_output_dir=True resume_from_checkpoint=False");
    assert_false(exists(path_of(f, "out/checkpoint-2")));
    /* A checkpoint in which the user keeps a file is kept. */
    train(f, "out", "max_steps=4 save_strategy=steps save_steps=1");
    write_text(f, "out/checkpoint-2/notes.txt", "mine");
    train(f, "out", "max_steps=8 save_strategy=steps save_steps=1 save_total_limit=1 resume_from_checkpoint=True");
    assert_true(exists(path_of(f, "out/checkpoint-2/notes.txt")));
    assert_false(exists(path_of(f, "out/checkpoint-3")));
    fails(f, try_train(f, "out", "max_steps=4 overwrite_output_dir=True", 0, NULL), SNUG_E_IO,
          "out/checkpoint-2/notes.txt was not made by snug");
}

FIXTURE_TEST(test_results) {
    const struct snug_metric_list metrics = {3, {{"whole", 3}, {"large", 0x1p60}, {"none", NAN}}};
    struct snug_output output = {0};
    ok(f, snug_output_make(f->ctx, path_of(f, "results"), false, false, 0666, &output));
    ok(f, snug_results_write(&output, "eval", &metrics, NULL));
    snug_output_close(&output);
    json_t *json = read_json(f, path_of(f, "results/eval_results.json"));
    assert_int_equal(json_integer_value(json_object_get(json, "whole")), 3);
    assert_true(json_is_real(json_object_get(json, "large"))); /* which JSON integers would not represent exactly */
    assert_true(json_is_null(json_object_get(json, "none")));
    json_decref(json);
}

/* A state with a correct manifest and contents that no run writes. */
FIXTURE_TEST(test_hostile_states) {
    static const struct {
        const char *state, *own, *says; /* members */
    } cases[] = {
        {"\"global_step\": -1", "", "global_step is -1, which no run reaches"},
        {"\"global_step\": 2000000000000", "", "global_step is 2000000000000"},
        {"\"global_step\": 3", "\"logged_step\": 4", "logged_step is 4"},
        {"\"global_step\": 3", "\"samples\": -5", "samples is -5"},
        {"\"global_step\": 3, \"best_global_step\": 4", "", "best_global_step is 4"},
        {"\"global_step\": 3", "\"best_checkpoint_step\": 4", "best_checkpoint_step is 4"},
        {"\"global_step\": 3", "\"best_checkpoint_step\": -2", "best_checkpoint_step is -2"},
    };
    struct snug_trainer t = {.ctx = f->ctx};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, \"log_history\": [], \"stateful_callbacks\": {\"snug\": {%s}}}",
                 cases[i].state, cases[i].own);
        write_text(f, "trainer_state.json", text);
        struct snug_folder folder;
        ok(f, snug_folder_open(f->ctx, NULL, f->folder, &folder));
        fails(f, snug_trainer_state_read(&t, &folder), SNUG_E_INPUT, cases[i].says);
        snug_folder_close(&folder);
    }
}

/* ---- tokens and evaluations ----------------------------------------------------------------------------------- */

static snug_status count_rows(void *user, const snug_tokenized *row) {
    int64_t *left = user;
    assert_true(row->count >= 2);
    return --*left < 0 ? SNUG_E_IO : SNUG_OK;
}

FIXTURE_TEST(test_tokenize) {
    static const struct {
        const char *words;
        int64_t rows;
        snug_status status;
        const char *says;
    } cases[] = {
        {"tokenizer_name=@model train_file=@dev.csv", EVAL_ROWS, SNUG_OK, ""},
        {"model_name_or_path=@model validation_file=@dev.csv", EVAL_ROWS, SNUG_OK, ""},
        {"model_name_or_path=@model train_file=@train.csv max_train_samples=3", 3, SNUG_OK, ""},
        {"model_name_or_path=@model validation_file=@dev.csv max_eval_samples=0", 0, SNUG_E_USAGE, "leaves no rows"},
        {"model_name_or_path=@model test_file=@dev.csv max_predict_samples=2", 2, SNUG_OK, ""},
        {"model_name_or_path=@model test_file=@dev.csv", 5, SNUG_E_IO, ""}, /* the caller's own */
        {"model_name_or_path=@none test_file=@dev.csv", 0, SNUG_E_INPUT, "none"},
        {"model_name_or_path=@model test_file=@null.jsonl", 0, SNUG_E_INPUT, "null.jsonl:1: the row has no text"},
        {"model_name_or_path=@model test_file=@list.jsonl", 1, SNUG_E_INPUT, "list.jsonl:2: the text must be a string"},
        {"model_name_or_path=@model test_file=@object.jsonl", 0, SNUG_E_INPUT,
         "object.jsonl:1: the text must be a string"},
    };
    write_text(f, "null.jsonl", "{\"sentence\": null}\n");
    write_text(f, "object.jsonl", "{\"sentence\": {\"w1\": 1}}\n");
    write_text(f, "list.jsonl", "{\"sentence\": \"w1\"}\n{\"sentence\": [\"w1\"]}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args = plain_args(f, cases[i].words);
        int64_t left = cases[i].rows;
        snug_clear_error(f->ctx);
        const snug_status status = snug_tokenize(args, count_rows, &left);
        if (status != cases[i].status) fail_msg("%s: %d: %s", cases[i].words, status, snug_error_message(f->ctx));
        assert_contains(snug_error_message(f->ctx), cases[i].says);
        assert_int_equal(left, cases[i].status == SNUG_E_IO ? -1 : 0);
        snug_args_destroy(args);
    }
}

FIXTURE_TEST(test_evaluations) {
    snug_metrics one, parts;
    train(f, "mlm", "task=mlm train_file=@train.txt max_steps=1");
    /* More masked tokens than the head processes at a time, and fewer: the loss is the same. */
    snug_args *args = plain_args(f, "model_name_or_path=@mlm validation_file=@dev.txt mlm_probability=0.9 output_dir=");
    ok(f, evaluate_args(f, args, &(snug_callbacks){0}, &parts));
    ok(f, snug_args_set(args, "per_device_eval_batch_size", "1"));
    ok(f, evaluate_args(f, args, NULL, &one));
    assert_true(fabs(metric_of(&one, "eval_loss") / metric_of(&parts, "eval_loss") - 1) < 1e-5);
    assert_false(exists(path_of(f, "all_results.json")));
    int left = 0;
    ok(f, snug_args_set(args, "output_dir", path_of(f, "results")));
    fails(f, evaluate_args(f, args, &(snug_callbacks){.user = &left, .should_stop = stop_when_asked}, &one),
          SNUG_E_INTERRUPTED, "interrupted");
    assert_false(exists(path_of(f, "results")));
    snug_args_destroy(args);
    /* A step without masked tokens changes nothing, and does not divide by zero. */
    const snug_train_result result =
        train(f, "idle", "task=mlm train_file=@train.txt mlm_probability=1e-9 max_steps=2");
    assert_true(result.train_loss == 0);
}

/* ---- a job ---------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_jobs) {
    static const struct {
        const char *words;
        snug_status status;
        const char *says;
    } cases[] = {
        {"config_name=@model train_file=@dev.csv", SNUG_E_USAGE, "dev.csv contains text, but there is no tokenizer"},
        {"config_name=@model train_file=dummy:4x100", SNUG_E_INPUT,
         "a text of 100 tokens is longer than the model's 64"},
        {"config_name=@model train_file=dummy:4x8 dataloader_drop_last=True", SNUG_E_USAGE,
         "4 rows are less than one batch of 8, and --dataloader_drop_last drops it"},
        {"config_name=@model tokenizer_name=@model train_file=@pairs.csv max_steps=1", SNUG_OK, ""},
        {"config_name=@model train_file=dummy:4x8 num_train_epochs=1e-12 optim=adam_8bit", SNUG_OK, ""},
    };
    write_text(f, "pairs.csv", "sentence1,sentence2,label\nw1,w2,0\nw3,w4,1\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args = plain_args(f, cases[i].words);
        snug_train_result result;
        ok(f, snug_args_set(args, "output_dir", path_of(f, "out")));
        const snug_status status = train_args(f, args, NULL, &result);
        if (status != cases[i].status) fail_msg("%s: %d: %s", cases[i].words, status, snug_error_message(f->ctx));
        if (status != SNUG_OK) assert_contains(snug_error_message(f->ctx), cases[i].says);
        if (status == SNUG_OK) assert_int_equal(result.steps, 1);
        snug_args_destroy(args);
    }
    train(f, "head", "max_steps=1");
    json_t *config = read_json(f, path_of(f, "head/config.json"));
    json_object_del(config, "architectures");
    assert_int_equal(json_dump_file(config, path_of(f, "head/config.json"), 0), 0);
    json_decref(config);
    snug_args *args = plain_args(f, "model_name_or_path=@head validation_file=@dev.csv");
    snug_metrics metrics;
    fails(f, evaluate_args(f, args, NULL, &metrics), SNUG_E_INPUT,
          "names none of the heads that snug supports, such as BertForSequenceClassification");
    snug_args_destroy(args);
}

FIXTURE_TEST(test_plans_without_data) {
    snug_plan *plan;
    char *text;
    json_t *config = read_json(f, path_of(f, "model/config.json"));
    json_object_set_new(config, "max_position_embeddings", json_integer(65536));
    assert_int_equal(json_dump_file(config, path_of(f, "long.json"), 0), 0);
    json_decref(config);
    ok(f, snug_folder_create(f->ctx, path_of(f, "long")));
    assert_int_equal(rename(path_of(f, "long.json"), path_of(f, "long/config.json")), 0);
    snug_args *args = plain_args(f, "config_name=@long max_seq_length=65536 per_device_train_batch_size=65536");
    fails(f, snug_plan_create(args, &plan), SNUG_E_USAGE, "a batch of 65536 texts of 65536 tokens is too large");
    snug_args_destroy(args);
    args = plain_args(f, "config_name=@model task=mlm dtype=bfloat16");
    ok(f, snug_plan_create(args, &plan));
    ok(f, snug_plan_text(plan, &text));
    assert_contains(text, "masked language model");
    assert_contains(text, "fp32 with bf16 weights");
    free(text);
    ok(f, snug_plan_json(plan, &text));
    assert_contains(text, "\"task\": \"mlm\"");
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_plans_of_chosen_methods) {
    static const struct {
        const char *words, *says[3];
    } cases[] = {
        {"offload=optimizer offload_dir=@offload", {"\nOffloaded: ", "offload: optimizer ", NULL}},
        {"offload=optimizer,weights offload_dir=/dev/shm", {", which is host memory: weights ", ", optimizer ", NULL}},
        {"recompute=layer,none", {"\nlayer 0 ", "\nlayer 1 ", NULL}},
        {"gradient_accumulation_steps=1 recompute=none update_in_backward=False offload=optimizer optim=adamw_torch "
         "dtype=float32",
         {"(every method is already set)\n", NULL}},
        {"train_file= per_device_train_batch_size=5040", {"_batch_size 1 --gradient_accumulation_steps 5040\n", NULL}},
        {"train_file= dataloader_drop_last=True", {"--per_device_train_batch_size 1 ", NULL}},
        {"train_file=dummy:32x8 dataloader_drop_last=True", {"--per_device_train_batch_size 1 ", NULL}},
        {"dataloader_drop_last=True", {"--recompute layer\n", NULL}}, /* the number of steps would change */
        {"config_name=bert-large-uncased train_file= per_device_train_batch_size=4096", {"it does not fit", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_plan *plan;
        char *text;
        if (strstr(cases[i].words, "/dev/shm") && !snug_offload_file_is_memory("/dev/shm"))
            continue; /* not on every processor */
        snug_args *args = training_args(f, cases[i].words);
        const bool fits = strcmp(cases[i].says[0], "it does not fit") != 0;
        assert_int_equal(snug_plan_create(args, &plan), fits ? SNUG_OK : SNUG_E_DOES_NOT_FIT);
        ok(f, snug_plan_text(plan, &text));
        for (int k = 0; k < 3 && cases[i].says[k]; k++) assert_contains(text, cases[i].says[k]);
        free(text);
        ok(f, snug_plan_json(plan, &text));
        json_t *json = json_loads(text, 0, NULL), *offloaded = json_object_get(json, "offloaded");
        assert_int_equal(json_is_object(offloaded), strstr(cases[i].words, "offload=") != NULL);
        json_decref(json);
        free(text);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

/* ---- a session ------------------------------------------------------------------------------------------------ */

static void do_step(const struct fixture *f, snug_session *s) {
    const snug_batch_info *info;
    double loss;
    ok(f, snug_session_begin_epoch(s, 0));
    ok(f, snug_next_batch(s, &info));
    ok(f, snug_forward(s));
    ok(f, snug_loss(s, &loss));
    ok(f, snug_backward(s));
}

FIXTURE_TEST(test_session_that_updates_in_backward) {
    snug_args *args = training_args(f, "update_in_backward=True max_grad_norm=0");
    snug_session *s;
    float values[2];
    ok(f, snug_session_create(args, &s));
    assert_string_equal(snug_parameter_name(s, 0, NULL), "bert.embeddings.word_embeddings.weight");
    do_step(f, s);
    fails(f, snug_clip_grad_norm(s, 1, NULL), SNUG_E_USAGE, "the weights were updated in backward");
    fails(f, snug_get_gradient(s, "classifier.bias", values, 2), SNUG_E_USAGE, "has no gradient in this session");
    snug_session_destroy(s);
    snug_args_destroy(args);
}

/* Also in 16 bits, with more tokens than are packed at a time. */
FIXTURE_TEST(test_gradients_of_many_tokens) {
    float bias[2][128];
    double difference = 0, norm = 0;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        snug_args *args = training_args(f, "train_file=dummy:32x64 max_seq_length=64 per_device_train_batch_size=32");
        snug_session *s;
        if (bf16) ok(f, snug_args_set(args, "bf16", "True"));
        ok(f, snug_session_create(args, &s));
        do_step(f, s);
        ok(f, snug_get_gradient(s, "bert.encoder.layer.0.intermediate.dense.bias", bias[bf16], 128));
        snug_session_destroy(s);
        snug_args_destroy(args);
    }
    for (int i = 0; i < 128; i++) {
        difference += pow((double)bias[0][i] - (double)bias[1][i], 2);
        norm += pow((double)bias[0][i], 2);
    }
    assert_true(norm > 0 && sqrt(difference / norm) < 0.05);
}

/* ---- disk space ----------------------------------------------------------------------------------------------- */

static bool is_due(enum snug_interval strategy, int64_t every, int64_t step, bool epoch_ends) {
    return (strategy == SNUG_INTERVAL_STEPS && step % every == 0) || (strategy == SNUG_INTERVAL_EPOCH && epoch_ends);
}

static bool is_evaluated(const struct snug_trainer *t, int64_t step) {
    const struct snug_session *s = t->session;
    const bool by_steps = t->args->eval_strategy == SNUG_INTERVAL_STEPS;
    const bool epoch_ends = step == s->max_steps || step % s->steps_per_epoch == 0;
    const double reached = by_steps ? (double)step : (double)step / (double)s->steps_per_epoch;
    return is_due(t->args->eval_strategy, (int64_t)t->args->eval_steps, step, epoch_ends) &&
           reached >= t->args->eval_delay;
}

static bool is_saved(const struct snug_trainer *t, int64_t step) {
    const struct snug_session *s = t->session;
    const enum snug_interval saves = t->args->save_strategy;
    const bool ends = step == s->max_steps, epoch_ends = ends || step % s->steps_per_epoch == 0;
    if (saves == SNUG_INTERVAL_BEST) return is_evaluated(t, step);
    return is_due(saves, (int64_t)t->args->save_steps, step, epoch_ends) || (saves == SNUG_INTERVAL_STEPS && ends);
}

/* The same, step by step. */
static struct snug_prospect walk(const struct snug_trainer *t, int64_t last, const int64_t *there, size_t count) {
    const struct snug_session *s = t->session;
    struct snug_prospect p = {.evaluations = 2};
    for (int64_t step = t->session->step + 1; step <= last; step++) {
        const bool epoch_ends = step == s->max_steps || step % s->steps_per_epoch == 0;
        p.logs += is_due(t->args->logging_strategy, (int64_t)t->args->logging_steps, step, epoch_ends);
        p.evaluations += is_evaluated(t, step);
        if (!is_saved(t, step)) continue;
        bool replaced = false;
        for (size_t i = 0; i < count; i++) replaced |= there[i] == step;
        *(replaced ? &p.replaced : &p.made) += 1;
    }
    return p;
}

/* The first step at which early stopping is possible, evaluation by evaluation, as after_step() counts them. */
static int64_t first_stop(const struct snug_trainer *t) {
    int64_t evaluations = 0;
    for (int64_t step = t->session->step + 1; step < t->session->max_steps; step++)
        if (is_evaluated(t, step) && ++evaluations > t->args->early_stopping_patience) return step;
    return t->session->max_steps;
}

static int64_t first_candidate(const struct snug_trainer *t) {
    for (int64_t step = t->session->step + 1; step <= t->session->max_steps; step++)
        if (is_evaluated(t, step) && is_saved(t, step)) return step;
    return 0;
}

FIXTURE_TEST(test_prediction_of_the_schedule_matches_the_loop) {
    static const enum snug_interval strategies[] = {SNUG_INTERVAL_NO, SNUG_INTERVAL_STEPS, SNUG_INTERVAL_EPOCH};
    for (uint32_t trial = 0; trial < 20000; trial++) {
        uint32_t words[4][4];
        for (uint32_t i = 0; i < 4; i++) memcpy(words[i], snug_philox(trial, i, 0, 0, 3, 9).word, sizeof words[i]);
        struct snug_session session = {.step = words[0][0] % 60};
        session.max_steps = session.step + words[0][1] % 80;
        if (session.max_steps == 0) session.max_steps = 1;
        session.steps_per_epoch = 1 + words[0][2] % 30;
        const struct snug_args args = {.eval_strategy = strategies[words[0][3] % 3],
                                       .logging_strategy = strategies[words[1][0] % 3],
                                       .save_strategy = (enum snug_interval)(words[1][1] % 4),
                                       .early_stopping_patience = words[1][2] % 5,
                                       .eval_delay = words[1][3] % 3 ? 0 : words[1][3] % 97 / 4.0,
                                       .logging_steps = words[2][0] % 9 ? 1 + words[2][0] % 20 : SNUG_NEVER,
                                       .eval_steps = words[2][1] % 9 ? 1 + words[2][1] % 20 : SNUG_NEVER,
                                       .save_steps = words[2][2] % 9 ? 1 + words[2][2] % 20 : SNUG_NEVER};
        const struct snug_trainer t = {.session = &session,
                                       .args = &args,
                                       .calendar = snug_calendar_of(&args, session.max_steps, session.steps_per_epoch)};
        int64_t there[5], at = 0;
        size_t count = words[3][0] % 6;
        for (size_t i = 0; i < count; i++) there[i] = at += 1 + (words[3][1] >> 4 * i) % 40;
        const int64_t stop = snug_trainer_first_stop(&t);
        if (args.early_stopping_patience) assert_int_equal(stop, first_stop(&t));
        /* Others than these are refused with --load_best_model_at_end. */
        if (args.save_strategy == args.eval_strategy || args.save_strategy == SNUG_INTERVAL_BEST ||
            args.save_strategy == SNUG_INTERVAL_NO)
            assert_int_equal(snug_calendar_candidate(&t.calendar, session.step), first_candidate(&t));
        for (int whole = 0; whole < 2; whole++) {
            const int64_t last = whole ? session.max_steps : stop;
            const struct snug_prospect p = snug_trainer_look_ahead(&t, last, there, count);
            const struct snug_prospect q = walk(&t, last, there, count);
            if (p.logs != q.logs || p.evaluations != q.evaluations || p.made != q.made || p.replaced != q.replaced)
                fail_msg("trial %u: %lld %lld %lld %lld, the loop has %lld %lld %lld %lld", trial, (long long)p.logs,
                         (long long)p.evaluations, (long long)p.made, (long long)p.replaced, (long long)q.logs,
                         (long long)q.evaluations, (long long)q.made, (long long)q.replaced);
        }
    }
}

/* A run of 10^12 steps starts as fast as one of 10, and with early stopping the disk need not hold the files of all
   steps. */
FIXTURE_TEST(test_endless_runs_start) {
    const double begin = snug_seconds();
    const char *const endless = "max_steps=1000000000000 validation_file=@dev.csv eval_strategy=steps eval_steps=1 "
                                "save_strategy=steps save_steps=1 "
                                "load_best_model_at_end=True early_stopping_patience=2 learning_rate=0";
    *f->log = '\0';
    ok(f, train_with(f, "endless", endless, NULL));
    assert_contains(f->log, "stopped early at step 3");
    assert_contains(f->log, "train.csv: the order of ");
    assert_contains(f->log, "early stopping may end the run at step 3, before which it writes up to ");
    assert_contains(f->log, "all 1000000000000 steps would write up to ");
    /* Without early stopping such a run is refused at once, by the size of its files. */
    fails(f, train_with(f, "refused", "max_steps=1000000000000 save_strategy=steps save_steps=1", NULL), SNUG_E_IO,
          "at most 1000000000000 new checkpoints");
    fails(f, train_with(f, "refused", "max_steps=1000000000000 save_strategy=no logging_steps=1", NULL), SNUG_E_IO,
          "use a larger --logging_steps");
    if (!SANITIZED) assert_true(snug_seconds() - begin < 10);
}

/* ---- values that are not finite ------------------------------------------------------------------------------- */

/* The sum of squares of the gradient whose parameter's name contains name is made infinite, all others 1; spoils: also
   the gradient's values become NaN. */
static void break_norm_of(const struct fixture *f, snug_session *s, const char *name, bool spoils) {
    const struct snug_program *program = &s->training->program;
    bool found = !name;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind != SNUG_OP_SQUARED_NORM) continue;
        const bool here = name && strstr(program->parameters[op->squared_norm.parameter].name, name);
        const double sum = here ? INFINITY : 1;
        ok(f, snug_block_copy(f->ctx, &s->job.runner.arena,
                              (double *)snug_run_data(&s->train_run, op->squared_norm.sums) + op->squared_norm.slot,
                              &sum, sizeof sum));
        found |= here;
        const struct snug_tensor *gradient = &program->tensors[op->squared_norm.g];
        const float bad = NAN;
        for (int64_t k = 0; here && spoils && k < gradient->rows * gradient->cols; k++)
            ok(f, snug_tensor_write(program, &s->memory, op->squared_norm.g, k, 1, &bad));
    }
    assert_true(found);
}

FIXTURE_TEST(test_named_parameter_of_bad_gradients) {
    static const struct {
        const char *words, *breaks, *says;
    } cases[] = {
        {"", NULL, "the gradient norm is infinite, but each tensor's is finite"},
        {"", "classifier.bias", "the gradient of classifier.bias is not finite, or too large for its norm: this"},
        {"config_name=@wide", "word_embeddings",
         "the gradient of bert.embeddings.word_embeddings.weight is not finite"},
        {"update_in_backward=True", "layer.1.attention.self.query.weight",
         "the gradient of bert.encoder.layer.1.attention.self"},
        {"", "layer.1.attention.self.query.weight",
         "the gradient of bert.encoder.layer.1.attention.self.value.weight holds NaN"},
        {"config_name=@huge offload=gradients", "word_embeddings", "the gradient of bert.embeddings.word_embeddings"},
    };
    write_model(f, "huge", 0.1, 32, 1, 9000); /* more than one piece of what is offloaded */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args = training_args(f, cases[i].words);
        snug_session *s;
        ok(f, snug_session_create(args, &s));
        do_step(f, s);
        ok(f, snug_clip_grad_norm(s, 1, NULL));
        break_norm_of(f, s, cases[i].breaks, strstr(cases[i].says, "holds NaN"));
        struct snug_trainer t = {.ctx = f->ctx, .session = s, .args = args};
        f->log[0] = '\0';
        ok(f, snug_trainer_not_finite(&t, 0.5, INFINITY));
        assert_contains(f->log, "step 1: the loss is 0.5 and ");
        assert_contains(f->log, cases[i].says);
        assert_null(strstr(f->log, "more tensors"));
        snug_session_destroy(s);
        snug_args_destroy(args);
    }
}

/* The first ten times one by one, then at powers of two. A loss alone does not skip a step. */
FIXTURE_TEST(test_warnings_are_rate_limited) {
    snug_args *args = training_args(f, NULL);
    snug_session *s;
    ok(f, snug_session_create(args, &s));
    do_step(f, s);
    ok(f, snug_clip_grad_norm(s, 1, NULL));
    struct snug_trainer t = {.ctx = f->ctx, .session = s, .args = args, .infinite_in_a_row = 3};
    int told = 0;
    for (int i = 0; i < 40; i++) {
        f->log[0] = '\0';
        ok(f, snug_trainer_not_finite(&t, NAN, 1));
        told += strstr(f->log, "the loss is NaN; its gradients are finite and are applied") != NULL;
    }
    assert_int_equal(told, 12);
    assert_int_equal(t.infinite_losses, 40);
    assert_int_equal(t.infinite_in_a_row, 0);
    break_norm_of(f, s, "classifier.bias", false);
    for (t.infinite_gradients = 9; t.infinite_gradients < 11;) {
        f->log[0] = '\0';
        t.infinite_in_a_row = 0;
        ok(f, snug_trainer_not_finite(&t, 1, INFINITY));
        if (t.infinite_gradients == 10)
            assert_contains(f->log, "further ones are counted, but not all are logged");
        else
            assert_string_equal(f->log, "");
    }
    snug_session_destroy(s);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
