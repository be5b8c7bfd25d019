/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's invariants: what must not change the result does not change a bit of it. */
#include <malloc.h>
#include <math.h>
#include <sys/stat.h>

#include "backend/backend.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up_tasks, tear_down

static bool same_weights(const struct fixture *f, const char *a, const char *b) {
    return same_file(f, path_of(f, "%s/model.safetensors", a), path_of(f, "%s/model.safetensors", b));
}

static const char *const tasks[] = {
    "",
    "task=mlm line_by_line=True train_file=@train.txt per_device_train_batch_size=8",
    "task=ner train_file=@train.conll per_device_train_batch_size=8",
    "config_name=@llama line_by_line=True train_file=@train.txt per_device_train_batch_size=8",
};
enum { TASKS = sizeof tasks / sizeof *tasks };

static int set_up_tasks(void **state) {
    if (set_up(state)) return 1;
    write_words(*state, "train.conll", TRAIN_ROWS, 1);
    write_words(*state, "dev.conll", EVAL_ROWS, 2);
    write_other_families(*state, 32);
    return 0;
}

/* Pairs of compute type and type of stored weights. */
static bool next_type(const char **words) {
    static const char *const types[] = {"", " dtype=bfloat16", " bf16=True", " bf16=True dtype=bfloat16"};
    const size_t count = snug_backend_cpu_fast_bf16() ? 4 : 2;
    size_t next = 0;
    while (*words && types[next++] != *words) continue;
    if (next == count) return false;
    *words = types[next];
    return true;
}

/* ---- a user's training loop ----------------------------------------------------------------------------------- */

/* One optimizer step; false at the epoch's end. gradients, if given, is called before clipping. */
static bool own_step(const struct fixture *f, snug_session *session, double *loss,
                     void look(const struct fixture *f, snug_session *session, void *user), void *user) {
    const snug_batch_info *batch;
    *loss = 0;
    do {
        double part;
        const snug_status status = snug_next_batch(session, &batch);
        if (status == SNUG_END) return false;
        ok(f, status);
        ok(f, snug_forward(session));
        ok(f, snug_loss(session, &part));
        ok(f, snug_backward(session));
        *loss += part;
    } while (!batch->last_in_step);
    if (look) look(f, session, user);
    ok(f, snug_clip_grad_norm(session, 1, NULL));
    ok(f, snug_optimizer_step(session));
    ok(f, snug_scheduler_step(session));
    ok(f, snug_zero_grad(session));
    return true;
}

FIXTURE_TEST(test_own_loop_is_the_trainer) {
    for (const char *type = NULL; next_type(&type);)
        for (size_t task = 0; task < TASKS; task++) {
            char words[256];
            snug_session *session;
            double loss, total = 0;
            snprintf(words, sizeof words, "%s gradient_accumulation_steps=4 warmup_steps=2 weight_decay=0.01%s",
                     tasks[task], type);
            const snug_train_result result = train(f, "trained", words);
            snug_args *args = training_args(f, words);
            ok(f, snug_session_create(args, &session));
            for (int64_t epoch = 0; epoch < snug_session_epochs(session); epoch++) {
                ok(f, snug_session_begin_epoch(session, epoch));
                while (own_step(f, session, &loss, NULL, NULL)) total += loss;
            }
            assert_true(total / (double)result.steps == result.train_loss);
            ok(f, snug_save_model(session, path_of(f, "own")));
            snug_session_destroy(session);
            snug_args_destroy(args);
            assert_true(same_weights(f, "trained", "own"));
        }
}

FIXTURE_TEST(test_misused_loop) {
    snug_args *args = training_args(f, NULL);
    snug_session *session;
    float value;
    ok(f, snug_session_create(args, &session));
    assert_int_equal(snug_forward(session), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "snug_next_batch");
    assert_int_equal(snug_optimizer_step(session), SNUG_E_USAGE);
    assert_int_equal(snug_clip_grad_norm(session, 1, NULL), SNUG_E_USAGE);
    assert_int_equal(snug_get_parameter(session, "bert.nothing", &value, 1), SNUG_E_USAGE);
    assert_int_equal(snug_get_parameter(session, "classifier.bias", &value, 1), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "classifier.bias has 2 values");
    snug_metrics *metrics;
    assert_int_equal(snug_session_evaluate(session, &metrics), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--validation_file");
    assert_null(metrics);
    snug_session_destroy(session);
    snug_args_destroy(args);
    args = training_args(f, "validation_file=@dev.csv");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_session_begin_epoch(session, 0));
    ok(f, snug_next_batch(session, NULL));
    ok(f, snug_forward(session));
    ok(f, snug_session_evaluate(session, &metrics));
    assert_true(metric_of(metrics, "eval_samples") == EVAL_ROWS);
    snug_metrics_destroy(metrics);
    assert_int_equal(snug_backward(session), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "snug_next_batch");
    snug_session_destroy(session);
    snug_args_destroy(args);
}

/* ---- accumulation --------------------------------------------------------------------------------------------- */

/* The values of all parameters or gradients except the keys' biases: their true gradient is zero, so that only rounding
   remains. */
struct snapshot {
    float *values;
    size_t count;
    bool gradients;
};

static void take(const struct fixture *f, snug_session *session, void *user) {
    struct snapshot *snapshot = user;
    size_t count, used = 0;
    const char *name;
    for (size_t i = 0; (name = snug_parameter_name(session, i, &count)); i++) snapshot->count += count;
    snapshot->values = calloc(snapshot->count, sizeof *snapshot->values);
    assert_non_null(snapshot->values);
    for (size_t i = 0; (name = snug_parameter_name(session, i, &count)); used += count, i++)
        if (!strstr(name, "key.bias"))
            ok(f, snapshot->gradients ? snug_get_gradient(session, name, snapshot->values + used, count)
                                      : snug_get_parameter(session, name, snapshot->values + used, count));
}

static double relative_distance(const struct snapshot *a, const struct snapshot *b) {
    double difference = 0, norm = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        difference += pow((double)a->values[i] - (double)b->values[i], 2);
        norm += pow((double)a->values[i], 2);
    }
    assert_true(norm > 0);
    return sqrt(difference / norm);
}

enum { STEPS = 3 }; /* of an epoch: 32, 32 and 12 rows */
struct accumulated {
    double loss[STEPS];
    struct snapshot gradients[STEPS], weights;
};

static void accumulate(struct fixture *f, const char *words, struct accumulated *out) {
    double loss;
    snug_session *session;
    snug_args *args = training_args(f, words);
    /* AdamW's first updates are lr * sign(g) where epsilon is tiny: rounding would decide the sign of the smallest
       gradients. */
    set_args(f, args, "adam_epsilon=1e-2");
    *out = (struct accumulated){0};
    ok(f, snug_session_create(args, &session));
    ok(f, snug_session_begin_epoch(session, 0));
    for (int step = 0; step < STEPS; step++) {
        out->gradients[step].gradients = true;
        assert_true(own_step(f, session, &out->loss[step], take, &out->gradients[step]));
    }
    assert_false(own_step(f, session, &loss, NULL, NULL));
    take(f, session, &out->weights);
    snug_session_destroy(session);
    snug_args_destroy(args);
}

static void forget(struct accumulated *run) {
    for (int step = 0; step < STEPS; step++) free(run->gradients[step].values);
    free(run->weights.values);
}

FIXTURE_TEST(test_accumulation_changes_nothing) {
    static const struct { int batch, steps; } splits[] = {{8, 4}, {1, 32}};
    for (size_t task = 0; task < TASKS; task++) {
        char words[256];
        struct accumulated whole, split;
        snprintf(words, sizeof words, "%s per_device_train_batch_size=32", tasks[task]);
        accumulate(f, words, &whole);
        for (size_t i = 0; i < 2; i++) {
            snprintf(words, sizeof words, "%s per_device_train_batch_size=%d gradient_accumulation_steps=%d",
                     tasks[task], splits[i].batch, splits[i].steps);
            accumulate(f, words, &split);
            for (int step = 0; step < STEPS; step++) {
                assert_true(fabs(split.loss[step] / whole.loss[step] - 1) < 1e-5);
                assert_true(relative_distance(&whole.gradients[step], &split.gradients[step]) < 1e-5);
            }
            assert_true(relative_distance(&whole.weights, &split.weights) < 1e-6);
            forget(&split);
        }
        /* The comparison can fail: another dropout seed gives another gradient. */
        snprintf(words, sizeof words, "%s per_device_train_batch_size=32 data_seed=42 seed=43", tasks[task]);
        accumulate(f, words, &split);
        assert_true(relative_distance(&whole.gradients[0], &split.gradients[0]) > 1e-2);
        forget(&split);
        forget(&whole);
    }
}

/* ---- the same bits -------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_threads_seeds_and_workers) {
    static const char *const same[] = {
        "threads=1",
        "threads=2",
        "threads=3",
        "dataloader_num_workers=1",
        "dataloader_num_workers=3 dataloader_prefetch_factor=1",
        "dataloader_num_workers=3 dataloader_prefetch_factor=7 threads=1",
    };
    for (const char *type = NULL; next_type(&type);)
        for (size_t task = 0; task < TASKS; task++) {
            char words[256];
            snprintf(words, sizeof words, "%s gradient_accumulation_steps=2%s", tasks[task], type);
            train(f, "first", words);
            for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
                if (!is_chosen((long)(task + i), 2)) continue;
                snprintf(words, sizeof words, "%s gradient_accumulation_steps=2%s %s", tasks[task], type, same[i]);
                train(f, "again", words);
                assert_same_run(f, "first", "again");
            }
            snprintf(words, sizeof words, "%s gradient_accumulation_steps=2%s seed=43", tasks[task], type);
            train(f, "other", words);
            assert_false(same_weights(f, "first", "other"));
        }
}

FIXTURE_TEST(test_bf16_is_another_arithmetic) {
    const snug_train_result full = train(f, "full", NULL), half = train(f, "half", "bf16=True");
    if (snug_backend_cpu_fast_bf16()) {
        assert_false(same_weights(f, "full", "half"));
        assert_true(fabs(full.train_loss - half.train_loss) < 0.02);
    } else {
        assert_true(same_weights(f, "full", "half"));
        assert_contains(f->log, "warning: --bf16");
    }
}

/* ---- resuming ------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_resumed_is_uninterrupted) {
    /* 76 rows, 8 a step: 10 steps an epoch. 7 and 13 are in the middle of the first and the second; with the
       evaluations below, 10 and 12 fall into one. */
    static const char *const runs[] = {
        "",
        "gradient_accumulation_steps=2 num_train_epochs=4",
        "group_by_length=True weight_decay=0.1 warmup_steps=5",
        "validation_file=@dev.csv eval_strategy=steps eval_steps=3 dataloader_num_workers=2",
        "validation_file=@dev.csv eval_strategy=epoch lr_scheduler_type=cosine logging_steps=5",
        "task=mlm train_file=@train.txt line_by_line=True label_smoothing_factor=0",
        "bf16=True",
        "config_name=@wide weight_decay=0.1 gradient_accumulation_steps=2 num_train_epochs=4",
        "config_name=@wide validation_file=@dev.csv eval_strategy=steps eval_steps=3",
        "dtype=bfloat16 weight_decay=0.1 validation_file=@dev.csv eval_strategy=steps eval_steps=3",
        "dtype=bfloat16 bf16=True task=mlm train_file=@train.txt line_by_line=True whole_word_mask=True",
        "per_device_train_tokens=70 max_steps=20 gradient_accumulation_steps=2 dataloader_num_workers=2",
        "config_name=@qwen task=clm train_file=@train.txt line_by_line=True per_device_train_tokens=90 max_steps=20",
        "config_name=@gemma task=clm train_file=@train.txt line_by_line=True max_steps=20 bf16=True",
        ("task=ner train_file=@train.conll validation_file=@dev.conll eval_strategy=steps eval_steps=3 "
         "label_all_tokens=True"),
    };
    static const int stops[] = {7, 10, 12, 13};
    write_other_families(f, 32);
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[512];
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=1000", runs[run]);
        train(f, "whole", words);
        for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
            if (!is_chosen((long)(run + i), 2 + 2 * SANITIZED)) continue;
            ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "cut")));
            assert_int_equal(try_train(f, "cut", words, stops[i], NULL), SNUG_E_INTERRUPTED);
            assert_contains(snug_error_message(f->ctx), "--resume_from_checkpoint True");
            const char *checkpoint = path_of(f, "cut/checkpoint-%d", stops[i]);
            ok(f, folder_verify(f->ctx, checkpoint));
            assert_false(exists(path_of(f, "cut/model.safetensors")));
            char more[1024];
            snprintf(more, sizeof more, "%s resume_from_checkpoint=%s", words, i % 2 ? "True" : checkpoint);
            const snug_train_result result = train(f, "cut", more);
            assert_int_equal(result.steps, 20 - stops[i]);
            assert_same_run(f, "whole", "cut");
            assert_same_in_both(f, "whole", "cut", "checkpoint-20/optimizer.safetensors");
        }
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "whole")));
    }
}

FIXTURE_TEST(test_interrupted_at_the_last_step) {
    train(f, "whole", "");
    /* Nothing remains to be done after the last step, so nothing can be interrupted. */
    assert_int_equal(try_train(f, "last", "", 20, NULL), SNUG_OK);
    assert_same_run(f, "whole", "last");
    /* A model whose last evaluation was interrupted is complete anyway. */
    assert_int_equal(try_train(f, "unmeasured", "validation_file=@dev.csv", 20, NULL), SNUG_E_INTERRUPTED);
    assert_contains(snug_error_message(f->ctx), "the trained model is in");
    assert_true(same_weights(f, "whole", "unmeasured"));
    assert_false(exists(path_of(f, "unmeasured/eval_results.json")));
    /* The card has no metrics of earlier weights. */
    assert_int_equal(try_train(f, "earlier", "validation_file=@dev.csv eval_strategy=steps eval_steps=15", 20, NULL),
                     SNUG_E_INTERRUPTED);
    char *card = read_text(f, path_of(f, "earlier/README.md"), NULL);
    assert_contains(card, "| Training Loss | Epoch | Step | Validation Loss |");
    assert_null(strstr(card, "achieves the following results"));
    free(card);
}

FIXTURE_TEST(test_damaged_checkpoint_is_skipped) {
    char *bytes;
    size_t size;
    train(f, "whole", "save_strategy=steps save_steps=5");
    assert_int_equal(try_train(f, "cut", "save_strategy=steps save_steps=5", 12, NULL), SNUG_E_INTERRUPTED);
    const char *states = path_of(f, "cut/checkpoint-12/optimizer.safetensors");
    bytes = read_text(f, states, &size);
    bytes[size / 2] ^= 1;
    write_bytes(states, bytes, size);
    /* If it is named by the argument, it is refused. */
    assert_int_equal(
        try_train(f, "cut", "save_strategy=steps save_steps=5 resume_from_checkpoint=@cut/checkpoint-12", 0, NULL),
        SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "optimizer.safetensors");
    f->log[0] = '\0';
    train(f, "cut", "save_strategy=steps save_steps=5 resume_from_checkpoint=True");
    assert_contains(f->log, "warning: ");
    assert_contains(f->log, "checkpoint-12 is skipped");
    assert_contains(f->log, "checkpoint-10, step 10 of 20");
    assert_same_run(f, "whole", "cut");
    /* Incomplete folders, as a killed run leaves them, are ignored. */
    ok(f, snug_folder_create(f->ctx, path_of(f, "none/.checkpoint-5.snug-aside")));
    assert_int_equal(try_train(f, "none", "resume_from_checkpoint=True", 0, NULL), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "no complete checkpoint");
    free(bytes);
}

FIXTURE_TEST(test_resuming_another_run_is_logged) {
    train(f, "out", "save_strategy=epoch");
    f->log[0] = '\0';
    train(f, "out", "save_strategy=no num_train_epochs=3 resume_from_checkpoint=True");
    assert_contains(f->log, "max_steps was 20 and is 30");
#define MASKED "task=mlm train_file=@train.txt line_by_line=True save_strategy=epoch "
    train(f, "masked", MASKED "whole_word_mask=True");
    train(f, "masked", MASKED "num_train_epochs=3 resume_from_checkpoint=True");
    assert_contains(f->log, "whole_word_mask was true and is null");
    train(f, "only", "save_strategy=epoch save_only_model=True");
    assert_false(exists(path_of(f, "only/checkpoint-10/optimizer.safetensors")));
    assert_int_equal(try_train(f, "only", "resume_from_checkpoint=True", 0, NULL), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "--save_only_model");
}

/* ---- saving and the best model -------------------------------------------------------------------------------- */

/* The steps of the checkpoints in output, as "5 10 15". */
static const char *checkpoints_of(const struct fixture *f, const char *output) {
    static char text[256];
    text[0] = '\0';
    for (int step = 1; step <= 40; step++) {
        if (!exists(path_of(f, "%s/checkpoint-%d", output, step))) continue;
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%d", used ? " " : "", step);
    }
    return text;
}

/* The step of the evaluation with the lowest eval_loss, as log_history has it. */
static int64_t best_step_of(const struct fixture *f, const char *output, double *loss) {
    json_t *history = history_of(f, output), *entry;
    int64_t step = -1;
    size_t i;
    json_array_foreach(history, i, entry) {
        const json_t *value = json_object_get(entry, "eval_loss");
        if (!value || (step >= 0 && json_number_value(value) >= *loss)) continue;
        *loss = json_number_value(value);
        step = json_integer_value(json_object_get(entry, "step"));
    }
    json_decref(history);
    return step;
}

FIXTURE_TEST(test_rotation_of_checkpoints) {
    train(f, "all", "save_strategy=steps save_steps=5");
    assert_string_equal(checkpoints_of(f, "all"), "5 10 15 20");
    train(f, "two", "save_strategy=steps save_steps=5 save_total_limit=2");
    assert_string_equal(checkpoints_of(f, "two"), "15 20");
    /* Folders with such names are no checkpoints: they are neither counted nor removed. */
    const char *others[] = {"two/checkpoint- 30",
                            "two/checkpoint-+30",
                            "two/checkpoint-030",
                            "two/checkpoint-",
                            "two/checkpoint-00",
                            "two/checkpoint-30x",
                            "two/checkpoint-99999999999999999999"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ok(f, snug_folder_create(f->ctx, path_of(f, "%s", others[i])));
    f->log[0] = '\0';
    train(f, "two", "save_strategy=steps save_steps=5 save_total_limit=2 max_steps=30 resume_from_checkpoint=True");
    assert_contains(f->log, "checkpoint-20, step 20 of 30");
    assert_null(strstr(f->log, "is skipped"));
    assert_string_equal(checkpoints_of(f, "two"), "25 30");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_true(exists(path_of(f, "%s", others[i])));
    train(f, "epochs", "save_strategy=epoch");
    assert_string_equal(checkpoints_of(f, "epochs"), "10 20");
    train(f, "last", "save_strategy=steps save_steps=0.4 max_steps=15");
    assert_string_equal(checkpoints_of(f, "last"), "6 12 15");
    train(f, "all", "overwrite_output_dir=True");
    assert_string_equal(checkpoints_of(f, "all"), "");
}

/* With a learning rate so high that training soon diverges, the best model is not the last. */
#define WILD "validation_file=@dev.csv eval_strategy=steps eval_steps=2 lr_scheduler_type=constant learning_rate=0.03"

FIXTURE_TEST(test_best_model) {
    double loss, logged;
    char name[128];
    const snug_train_result result =
        train(f, "best", WILD " save_strategy=steps save_steps=2 load_best_model_at_end=True save_total_limit=1");
    const int64_t best = best_step_of(f, "best", &loss);
    assert_true(best > 0 && best < 20);
    snprintf(name, sizeof name, "%lld 20", (long long)best);
    assert_string_equal(checkpoints_of(f, "best"), name);
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)best);
    assert_contains(result.best_checkpoint, name);
    assert_same_file(f, path_of(f, "best/checkpoint-%lld/model.safetensors", (long long)best),
                     path_of(f, "best/model.safetensors"));
    assert_true(metric_of(result.metrics, "eval_loss") == loss);

    train(f, "strategy", WILD " save_strategy=best metric_for_best_model=loss");
    assert_int_equal(best_step_of(f, "strategy", &logged), best);
    assert_true(logged == loss);
    assert_true(exists(path_of(f, "strategy/checkpoint-%lld", (long long)best)));
    assert_false(exists(path_of(f, "strategy/checkpoint-20")));

    const snug_train_result early = train(f, "early",
                                          WILD " save_strategy=steps save_steps=2 load_best_model_at_end=True "
                                               "early_stopping_patience=2 num_train_epochs=3");
    assert_true(early.steps < 30);
    assert_contains(f->log, "stopped early");
    json_t *state_json = read_json(f, path_of(f, "early/trainer_state.json"));
    assert_int_equal(json_integer_value(json_object_get(state_json, "global_step")), early.steps);
    json_decref(state_json);
    assert_int_equal(try_train(f, "odd", WILD " save_strategy=best metric_for_best_model=bleu", 0, NULL), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--metric_for_best_model bleu");
    assert_contains(snug_error_message(f->ctx), "eval_accuracy");
    assert_int_equal(try_train(f, "odd", WILD " metric_for_best_model=mse", 0, NULL), SNUG_E_USAGE);
    assert_null(strstr(snug_error_message(f->ctx), "eval_pearson")); /* of another problem */
    assert_false(exists(path_of(f, "odd")));                         /* long before the first evaluation */
    train(f, "odd", "metric_for_best_model=bleu");                   /* no metric to compare */
}

static size_t count_in_history(const struct fixture *f, const char *output, const char *key) {
    json_t *history = history_of(f, output), *entry;
    size_t i, count = 0;
    json_array_foreach(history, i, entry) count += json_object_get(entry, key) != NULL;
    json_decref(history);
    return count;
}

FIXTURE_TEST(test_strategies) {
    train(f, "steps", "validation_file=@dev.csv eval_strategy=steps eval_steps=6");
    assert_int_equal(count_in_history(f, "steps", "eval_loss"), 4); /* at 6, 12, 18 and of the model that is saved */
    assert_int_equal(count_in_history(f, "steps", "loss"), 10);
    train(f, "epoch", "validation_file=@dev.csv eval_strategy=epoch logging_strategy=epoch");
    assert_int_equal(count_in_history(f, "epoch", "eval_loss"), 2);
    assert_int_equal(count_in_history(f, "epoch", "loss"), 2);
    train(f, "start", "validation_file=@dev.csv eval_strategy=epoch eval_on_start=True logging_first_step=True");
    assert_int_equal(count_in_history(f, "start", "eval_loss"), 3);
    assert_int_equal(count_in_history(f, "start", "loss"), 11);
    train(f, "delay", "validation_file=@dev.csv eval_strategy=steps eval_steps=5 eval_delay=11");
    assert_int_equal(count_in_history(f, "delay", "eval_loss"), 2);
    /* Evaluating changes nothing. */
    assert_true(same_weights(f, "steps", "start"));
    train(f, "board", "report_to=tensorboard logging_dir=@board/logs");
    struct stat info;
    assert_int_equal(stat(path_of(f, "board/logs"), &info), 0);
}

/* ---- tasks ---------------------------------------------------------------------------------------------------- */

struct rows {
    int64_t count;
    char labels[64][24];
    double scores[64];
    float logits[64][2];
};

static snug_status keep_row(void *user, const snug_prediction *row) {
    struct rows *rows = user;
    assert_int_equal(row->index, rows->count);
    assert_true(rows->count < 64 && row->logits_count <= 2);
    snprintf(rows->labels[rows->count], sizeof rows->labels[0], "%s", row->label);
    rows->scores[rows->count] = row->score;
    for (size_t i = 0; i < row->logits_count; i++) rows->logits[rows->count][i] = row->logits[i];
    rows->count++;
    return SNUG_OK;
}

static void predict(struct fixture *f, const char *words, struct rows *rows) {
    snug_args *args = plain_args(f, words);
    *rows = (struct rows){0};
    ok(f, snug_predict(args, NULL, keep_row, rows));
    snug_args_destroy(args);
}

static snug_metrics evaluate(struct fixture *f, const char *words) {
    snug_args *args = plain_args(f, words);
    snug_metrics metrics = {0};
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    return metrics;
}

static void assert_same_metrics(const snug_metrics *a, const snug_metrics *b) {
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->items[i].name, b->items[i].name);
        if (!is_clock(a->items[i].name) && a->items[i].value != b->items[i].value)
            fail_msg("%s is %.17g and %.17g", a->items[i].name, a->items[i].value, b->items[i].value);
    }
}

#define LEARN "num_train_epochs=12 learning_rate=3e-3 warmup_steps=0.1 "

/* Evaluating the saved folder gives the metrics of the training; predictions agree with them. */
FIXTURE_TEST(test_single_label) {
    struct rows rows, wide;
    const snug_train_result result = train(f, "out", LEARN "validation_file=@dev.csv eval_strategy=epoch");
    const double accuracy = metric_of(result.metrics, "eval_accuracy");
    assert_true(accuracy >= 0.9);
    const snug_metrics metrics = evaluate(f, "model_name_or_path=@out validation_file=@dev.csv output_dir=@evaluated");
    assert_same_metrics(result.metrics, &metrics);
    json_t *written = read_json(f, path_of(f, "evaluated/eval_results.json"));
    assert_true(json_number_value(json_object_get(written, "eval_accuracy")) == accuracy);
    json_decref(written);

    predict(f, "model_name_or_path=@out test_file=@dev.csv", &rows);
    assert_int_equal(rows.count, EVAL_ROWS);
    char *truth = read_text(f, path_of(f, "dev.csv"), NULL), *line = strchr(truth, '\n') + 1;
    int right = 0;
    for (int i = 0; i < EVAL_ROWS; i++, line = strchr(line, '\n') + 1) {
        right += strncmp(strchr(line, ',') + 1, rows.labels[i], strlen(rows.labels[i])) == 0;
        const double other = exp(-fabs((double)rows.logits[i][0] - (double)rows.logits[i][1]));
        assert_true(fabs(rows.scores[i] - 1 / (1 + other)) < 1e-12);
    }
    assert_true(fabs(right / (double)EVAL_ROWS - accuracy) < 1e-12);
    free(truth);

    /* Neither the batch size of predictions nor the number of threads makes a difference. */
    static const char *const batches[] = {"per_device_eval_batch_size=1", "per_device_eval_batch_size=30 threads=1"};
    for (size_t b = 0; b < 2; b++) {
        char words[256];
        snprintf(words, sizeof words, "model_name_or_path=@out test_file=@dev.csv %s", batches[b]);
        predict(f, words, &wide);
        for (int i = 0; i < EVAL_ROWS; i++)
            for (int k = 0; k < 2; k++) assert_true(fabs((double)wide.logits[i][k] - (double)rows.logits[i][k]) < 1e-6);
    }
}

FIXTURE_TEST(test_label_smoothing) {
    const snug_train_result plain = train(f, "plain", "num_train_epochs=1 max_steps=1"),
                            smooth =
                                train(f, "smooth", "num_train_epochs=1 max_steps=1 label_smoothing_factor=0.3 seed=42");
    /* Before training both are near ln 2, but not equal. */
    assert_true(plain.train_loss != smooth.train_loss);
    assert_true(fabs(smooth.train_loss - log(2)) < 0.1);
    const snug_train_result learnt = train(f, "learnt", LEARN "label_smoothing_factor=0.3 validation_file=@dev.csv");
    assert_true(metric_of(learnt.metrics, "eval_accuracy") >= 0.9);
    /* The minimum of the smoothed loss: the entropy of (0.85, 0.15). */
    assert_true(learnt.train_loss > -0.85 * log(0.85) - 0.15 * log(0.15));
}

FIXTURE_TEST(test_multi_label_and_regression) {
    struct rows rows;
    write_data(f, "multi.csv", FORM_MULTI, 4 * TRAIN_ROWS, 1);
    write_data(f, "multi_dev.csv", FORM_MULTI, EVAL_ROWS, 2);
    write_data(f, "real.csv", FORM_REGRESSION, 4 * TRAIN_ROWS, 1);
    write_data(f, "real_dev.csv", FORM_REGRESSION, EVAL_ROWS, 2);
    /* With this many epochs each of a dozen seeds learns it; with a third of them, two of three do. */
    const snug_train_result multi =
        train(f, "multi",
              "num_train_epochs=40 learning_rate=3e-3 warmup_steps=0.1 label_separator=| train_file=@multi.csv "
              "validation_file=@multi_dev.csv eval_strategy=epoch");
    assert_true(metric_of(multi.metrics, "eval_accuracy") >= 0.9);
    predict(f, "model_name_or_path=@multi test_file=@multi_dev.csv", &rows);
    bool both = false, one = false;
    for (int i = 0; i < EVAL_ROWS; i++) {
        both |= strcmp(rows.labels[i], "calm|keen") == 0;
        one |= strcmp(rows.labels[i], "calm") == 0;
    }
    assert_true(both && one);
    snug_metrics metrics = evaluate(f, "model_name_or_path=@multi validation_file=@multi_dev.csv");
    assert_same_metrics(multi.metrics, &metrics);

    const snug_train_result real =
        train(f, "real", LEARN "train_file=@real.csv validation_file=@real_dev.csv eval_strategy=epoch");
    assert_true(metric_of(real.metrics, "eval_pearson") > 0.8);
    assert_true(metric_of(real.metrics, "eval_mse") < 0.3);
    metrics = evaluate(f, "model_name_or_path=@real validation_file=@real_dev.csv");
    assert_same_metrics(real.metrics, &metrics);
    predict(f, "model_name_or_path=@real test_file=@real_dev.csv", &rows);
    for (int i = 0; i < EVAL_ROWS; i++) {
        assert_true(rows.scores[i] == rows.logits[i][0]);
        assert_true(fabs(strtod(rows.labels[i], NULL) - rows.scores[i]) < 1e-6);
    }
    assert_int_equal(try_train(f, "x", "train_file=@real.csv label_smoothing_factor=0.1", 0, NULL), SNUG_E_USAGE);
    assert_int_equal(try_train(f, "x", "train_file=@multi.csv label_separator=| label_smoothing_factor=0.1", 0, NULL),
                     SNUG_E_USAGE);
    assert_false(exists(path_of(f, "x")));
}

static snug_status count_row(void *user, const snug_prediction *row) {
    assert_int_equal(row->logits_count, VOCABULARY);
    assert_true(row->score > 0 && row->score < 1);
    ++*(int64_t *)user;
    return SNUG_OK;
}

FIXTURE_TEST(test_masked_language_model) {
    static const char *const forms[] = {"line_by_line=True ", ""};
    for (size_t i = 0; i < 2; i++) {
        char words[512];
        snprintf(words, sizeof words,
                 LEARN "%stask=mlm train_file=@train.txt validation_file=@dev.txt eval_strategy=epoch "
                       "eval_on_start=True max_seq_length=32",
                 forms[i]);
        const snug_train_result result = train(f, "out", words);
        const double loss = metric_of(result.metrics, "eval_loss");
        json_t *history = history_of(f, "out");
        const double before = json_number_value(json_object_get(json_array_get(history, 0), "eval_loss"));
        assert_true(fabs(before - log(VOCABULARY)) < 0.5); /* nothing is learnt yet */
        assert_true(loss < before - 0.3);
        assert_true(fabs(metric_of(result.metrics, "perplexity") / exp(loss) - 1) < 1e-12);
        json_decref(history);
        snprintf(words, sizeof words, "%smodel_name_or_path=@out validation_file=@dev.txt max_seq_length=32", forms[i]);
        const snug_metrics metrics = evaluate(f, words);
        assert_same_metrics(result.metrics, &metrics);
    }
    /* The encoder is fine-tuned for another task; the head is new, which is logged. */
    f->log[0] = '\0';
    train(f, "tuned", "model_name_or_path=@out");
    assert_contains(f->log, "classifier.weight");
    /* Fill-mask. */
    write_text(f, "mask.txt", "w1 w2 w3 [MASK] w4 w5\n");
    snug_args *args = plain_args(f, "model_name_or_path=@out test_file=@mask.txt predict_with_generate=True");
    int64_t rows = 0;
    ok(f, snug_predict(args, NULL, count_row, &rows));
    assert_int_equal(rows, 1);
    snug_args_destroy(args);
}

/* A decoder's task is causal LM, unless another one is given that it has; what it has not is refused by name. */
FIXTURE_TEST(test_causal_language_model) {
    static const struct {
        const char *words, *sentence;
    } refused[] = {
        {"config_name=@llama train_file=@train.txt task=mlm",
         "--task mlm: a Llama has no head for it; its tasks are classification, clm"},
        {"config_name=@llama train_file=@train.txt task=ner", "a Llama has no head for it"},
        {"train_file=@train.txt task=clm",
         "--task clm: a BERT has no head for it; its tasks are classification, mlm, "},
        {"config_name=@llama train_file=@train.txt mlm_probability=0.2", "mlm_probability"},
    };
    const snug_train_result result =
        train(f, "out",
              LEARN "config_name=@llama train_file=@train.txt validation_file=@dev.txt eval_strategy=epoch "
                    "eval_on_start=True max_seq_length=32");
    const double loss = metric_of(result.metrics, "eval_loss");
    json_t *history = history_of(f, "out");
    const double before = json_number_value(json_object_get(json_array_get(history, 0), "eval_loss"));
    assert_true(fabs(before - log(VOCABULARY)) < 0.5); /* nothing is learnt yet */
    assert_true(loss < before - 0.3);
    assert_true(fabs(metric_of(result.metrics, "perplexity") / exp(loss) - 1) < 1e-12);
    assert_true(metric_of(result.metrics, "eval_accuracy") > 0.1);
    json_decref(history);
    const snug_metrics metrics = evaluate(f, "model_name_or_path=@out validation_file=@dev.txt max_seq_length=32");
    assert_same_metrics(result.metrics, &metrics);
    /* Trained again without --task, it is still a language model. */
    f->log[0] = '\0';
    train(f, "tuned", "config_name= model_name_or_path=@out train_file=@train.txt");
    assert_null(strstr(f->log, "initialised"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_not_equal(try_train(f, "no", refused[i].words, 0, &(snug_train_result){0}), SNUG_OK);
        assert_contains(snug_error_message(f->ctx), refused[i].sentence);
    }
    int64_t rows = 0;
    snug_args *args = plain_args(f, "model_name_or_path=@out test_file=@dev.txt");
    assert_int_equal(snug_predict(args, NULL, count_row, &rows), SNUG_E_UNSUPPORTED);
    assert_contains(snug_error_message(f->ctx), "predictions of a causal language model are not supported");
    snug_args_destroy(args);
}

FIXTURE_TEST(test_truncation_is_counted) {
    const snug_train_result whole = train(f, "whole", "max_steps=1"),
                            cut = train(f, "cut", "max_steps=1 max_seq_length=8");
    int64_t longer = 0;
    for (uint32_t row = 0; row < TRAIN_ROWS; row++) longer += 3 + random_word(row, 0, 1) % 20 + 2 > 8;
    assert_int_equal(whole.truncated_texts, 0);
    assert_true(longer > 0);
    assert_int_equal(cut.truncated_texts, longer);
    assert_contains(f->log, "are longer than 8 tokens and were truncated");
}

FIXTURE_TEST(test_only_true_labels_can_be_learnt) {
    if (SANITIZED || !is_long()) skip(); /* three long trainings; each optimizer learns in test_optimizer_training */
    const char *demo = SNUG_SOURCE_DIR "/examples/demo";
    char words[1024], *text = NULL;
    size_t size;
    enum { TAKEN = 2000 };
    /* The demo's first rows, once with their labels and once with labels from a generator. */
    snprintf(words, sizeof words, "%s/train.csv", demo);
    ok(f, snug_file_read(f->ctx, NULL, words, &text, &size));
    FILE *files[2] = {fopen(path_of(f, "true.csv"), "w"), fopen(path_of(f, "random.csv"), "w")};
    char *line = strchr(text, '\n') + 1;
    fputs("sentence,label\n", files[0]);
    fputs("sentence,label\n", files[1]);
    for (uint32_t row = 0; row < TAKEN; row++) {
        const char *end = strchr(line, '\n');
        const char *comma = end;
        while (*comma != ',') comma--;
        fprintf(files[0], "%.*s\n", (int)(end - line), line);
        fprintf(files[1], "%.*s,%s\n", (int)(comma - line), line,
                random_word(row, 0, 99) & 1 ? "positive" : "negative");
        line += end + 1 - line;
    }
    fclose(files[0]);
    fclose(files[1]);
    free(text);
    double accuracy[3], loss[3];
    for (int i = 0; i < 3; i++) {
        const char *labels = i == 1 ? "random" : "true", *weights = i == 2 ? "bfloat16" : "float32";
        snprintf(words, sizeof words,
                 "config_name=%s tokenizer_name=%s train_file=@%s.csv validation_file=%s/test.csv num_train_epochs=5 "
                 "per_device_train_batch_size=32 learning_rate=1e-3 warmup_steps=0.1 group_by_length=True bf16=True "
                 "dtype=%s",
                 demo, demo, labels, demo, weights);
        const snug_train_result result = train(f, labels, words);
        accuracy[i] = metric_of(result.metrics, "eval_accuracy");
        loss[i] = result.train_loss;
        print_message(
            "%s labels, %s weights: loss %.3f, accuracy %.3f on sentence patterns that are not in the training data\n",
            labels, weights, loss[i], accuracy[i]);
    }
    assert_true(accuracy[0] > 0.6 && accuracy[2] > 0.6);
    assert_true(fabs(loss[0] - loss[2]) < 0.05);
    assert_true(fabs(accuracy[1] - 0.5) < 0.06); /* 1000 rows: four standard deviations */
}

/* ---- no memory grows ------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_no_growth) {
    const char *words = "validation_file=@dev.csv eval_strategy=epoch save_strategy=epoch dataloader_num_workers=2";
    size_t used[4];
    if (SANITIZED) skip(); /* its allocator does not report to mallinfo2(), and it has its own leak check */
    for (int i = 0; i < 4; i++) {
        ok(f, try_train(f, "out", words, 0, NULL));
        used[i] = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    print_message("heap after each of four trainings: %zu %zu %zu %zu\n", used[0], used[1], used[2], used[3]);
    assert_int_equal(used[3], used[1]);
}

/* Freed blocks in the caches of malloc()'s threads count as used: without caches the heap must not grow by a byte. */
static void without_caches(char *argv[]) {
    if (SANITIZED || getenv("GLIBC_TUNABLES")) return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char *argv[]) {
    without_caches(argv);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return run_registered(NULL, NULL);
}
