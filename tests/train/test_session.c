/* SPDX-License-Identifier: Apache-2.0 */
/* What a loop of the caller's can do beyond the steps: checkpoints, the learning rate, parameters. */
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void fails(const struct fixture *f, snug_status found, snug_status status, const char *says) {
    if (found != status) fail_msg("status %d: %s", found, snug_error_message(f->ctx));
    assert_contains(snug_error_message(f->ctx), says);
}

struct loop {
    snug_args *args;
    snug_session *session;
};

static struct loop open_loop(struct fixture *f, const char *words) {
    struct loop loop = {.args = training_args(f, words)};
    ok(f, snug_session_create(loop.args, &loop.session));
    return loop;
}

static void close_loop(struct loop *loop) {
    snug_session_destroy(loop->session);
    snug_args_destroy(loop->args);
}

/* One optimizer step; false at the epoch's end. */
static bool step(const struct fixture *f, snug_session *session) {
    const snug_batch_info *batch;
    do {
        double loss;
        const snug_status status = snug_next_batch(session, &batch);
        if (status == SNUG_END) return false;
        ok(f, status);
        ok(f, snug_forward(session));
        ok(f, snug_loss(session, &loss));
        ok(f, snug_backward(session));
    } while (!batch->last_in_step);
    ok(f, snug_clip_grad_norm(session, session->job.setup.args->max_grad_norm, NULL));
    ok(f, snug_optimizer_step(session));
    ok(f, snug_scheduler_step(session));
    ok(f, snug_zero_grad(session));
    return true;
}

/* All epochs from the session's on; after `stop` steps in all it saves a checkpoint and ends. */
static void run(const struct fixture *f, snug_session *session, int64_t stop, const char *folder) {
    for (int64_t epoch = snug_session_epoch(session); epoch < snug_session_epochs(session); epoch++) {
        ok(f, snug_session_begin_epoch(session, epoch));
        while (step(f, session)) {
            if (snug_session_steps(session) != stop) continue;
            ok(f, snug_save_checkpoint(session, folder));
            return;
        }
    }
}

FIXTURE_TEST(test_resumed_is_uninterrupted) {
    static const char *const settings[] = {
        "",
        "optim=adamw_8bit gradient_accumulation_steps=2 per_device_train_batch_size=4",
        "config_name=@wide",
        "optim=sgd dtype=bfloat16",
        "update_in_backward=True max_grad_norm=0 dataloader_num_workers=2",
        "offload=optimizer offload_dir=@disk"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char words[256];
        snprintf(words, sizeof words, "warmup_steps=2 weight_decay=0.01 %s", settings[i]);
        train(f, "trained", words);
        /* In the middle of an epoch, at its end, and after the last step: 10 steps an epoch. */
        for (int64_t stop = 4; stop <= (i == 0 ? 20 : 4); stop += stop == 4 ? 6 : 10) {
            struct loop loop = open_loop(f, words);
            run(f, loop.session, stop, path_of(f, "saved/checkpoint-1"));
            close_loop(&loop);
            loop = open_loop(f, words);
            ok(f, snug_load_checkpoint(loop.session, path_of(f, "saved/checkpoint-1/")));
            assert_int_equal(snug_session_steps(loop.session), stop);
            run(f, loop.session, 0, NULL);
            assert_int_equal(snug_session_steps(loop.session), 20);
            ok(f, snug_save_model(loop.session, path_of(f, "own")));
            close_loop(&loop);
            assert_same_file(f, path_of(f, "trained/model.safetensors"), path_of(f, "own/model.safetensors"));
        }
    }
}

/* A session that has gone on returns to its own checkpoint. */
FIXTURE_TEST(test_return) {
    struct loop loop = open_loop(f, "config_name=@wide optim_args= ");
    run(f, loop.session, 13, path_of(f, "checkpoint"));
    while (step(f, loop.session)) continue;
    ok(f, snug_save_model(loop.session, path_of(f, "once")));
    ok(f, snug_load_checkpoint(loop.session, path_of(f, "checkpoint")));
    assert_int_equal(snug_session_epoch(loop.session), 1);
    run(f, loop.session, 0, NULL);
    ok(f, snug_save_model(loop.session, path_of(f, "again")));
    assert_same_file(f, path_of(f, "once/model.safetensors"), path_of(f, "again/model.safetensors"));
    close_loop(&loop);
}

FIXTURE_TEST(test_learning_rate) {
    struct loop loop = open_loop(f, "lr_scheduler_type=constant optim=sgd"), other;
    const double own = 0.25;
    ok(f, snug_session_begin_epoch(loop.session, 0));
    assert_true(snug_learning_rate(loop.session) == 1e-3);
    ok(f, snug_set_learning_rate(loop.session, own));
    assert_true(snug_learning_rate(loop.session) == own);
    ok(f, snug_save_checkpoint(loop.session, path_of(f, "own")));
    assert_true(step(f, loop.session));
    assert_true(snug_learning_rate(loop.session) == 1e-3); /* the schedule's again */
    ok(f, snug_save_model(loop.session, path_of(f, "set")));
    fails(f, snug_set_learning_rate(loop.session, -1), SNUG_E_USAGE, "-1 is no learning rate");
    fails(f, snug_set_learning_rate(loop.session, NAN), SNUG_E_USAGE, "nan is no learning rate");
    /* The rate is a part of a checkpoint. */
    ok(f, snug_load_checkpoint(loop.session, path_of(f, "own")));
    assert_true(snug_learning_rate(loop.session) == own);
    ok(f, snug_session_begin_epoch(loop.session, snug_session_epoch(loop.session)));
    assert_true(step(f, loop.session));
    ok(f, snug_save_model(loop.session, path_of(f, "resumed")));
    assert_same_file(f, path_of(f, "set/model.safetensors"), path_of(f, "resumed/model.safetensors"));
    close_loop(&loop);
    /* A session with that rate takes the same step. */
    other = open_loop(f, "lr_scheduler_type=constant optim=sgd learning_rate=0.25");
    ok(f, snug_session_begin_epoch(other.session, 0));
    assert_true(step(f, other.session));
    ok(f, snug_save_model(other.session, path_of(f, "given")));
    assert_same_file(f, path_of(f, "set/model.safetensors"), path_of(f, "given/model.safetensors"));
    close_loop(&other);
    other.args =
        plain_args(f, "config_name=@model tokenizer_name=@model train_file=@train.csv threads=2 optim=adafactor "
                      "optim_args=relative_step=True");
    ok(f, snug_session_create(other.args, &other.session));
    fails(f, snug_set_learning_rate(other.session, own), SNUG_E_USAGE, "computes its own learning rate");
    close_loop(&other);
}

FIXTURE_TEST(test_parameters) {
    static const char name[] = "bert.encoder.layer.1.attention.self.key.weight";
    static const char *const settings[] = {"validation_file=@dev.csv", "validation_file=@dev.csv config_name=@wide"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct loop from = open_loop(f, settings[i]), to = open_loop(f, settings[i]);
        snug_metrics *before, *after;
        const char *parameter;
        size_t count;
        run(f, from.session, 3, path_of(f, "checkpoint"));
        ok(f, snug_session_evaluate(from.session, &before));
        ok(f, snug_session_begin_epoch(to.session, 1));
        assert_true(step(f, to.session)); /* other weights, and rows with updates to come */
        for (size_t k = 0; (parameter = snug_parameter_name(from.session, k, &count)); k++) {
            float *values = malloc(count * sizeof *values), *back = malloc(count * sizeof *values);
            assert_non_null(values);
            assert_non_null(back);
            assert_true(snug_parameter_trainable(from.session, k));
            ok(f, snug_get_parameter(from.session, parameter, values, count));
            ok(f, snug_set_parameter(to.session, parameter, values, count));
            ok(f, snug_get_parameter(to.session, parameter, back, count));
            assert_memory_equal(values, back, count * sizeof *values);
            if (strcmp(parameter, name) == 0) {
                values[5] = INFINITY;
                fails(f, snug_set_parameter(to.session, name, values, count), SNUG_E_USAGE, "value 5 for bert.encoder");
            }
            free(values);
            free(back);
        }
        ok(f, snug_session_evaluate(to.session, &after));
        assert_true(metric_of(before, "eval_loss") == metric_of(after, "eval_loss"));
        fails(f, snug_set_parameter(to.session, "none", (const float[]){0}, 1), SNUG_E_USAGE, "no parameter none");
        fails(f, snug_set_parameter(to.session, name, (const float[]){0}, 1), SNUG_E_USAGE, "values, not 1");
        snug_metrics_destroy(before);
        snug_metrics_destroy(after);
        close_loop(&from);
        close_loop(&to);
    }
}

/* Numbers of trained parameters. */
static size_t trained(const snug_session *session) {
    size_t count = 0;
    for (size_t i = 0; snug_parameter_name(session, i, NULL); i++) count += snug_parameter_trainable(session, i);
    return count;
}

FIXTURE_TEST(test_freezing) {
    static const char name[] = "bert.encoder.layer.0.output.dense.bias";
    float before[32], after[32];
    struct loop loop = open_loop(f, "freeze=embeddings");
    const size_t all = trained(loop.session);
    assert_false(snug_parameter_trainable(loop.session, 0));
    assert_false(snug_parameter_trainable(loop.session, 100000));
    run(f, loop.session, 3, path_of(f, "checkpoint"));
    ok(f, snug_get_parameter(loop.session, name, before, 32));
    close_loop(&loop);
    /* More is frozen than before. */
    loop = open_loop(f, "freeze=embeddings,layer.0");
    assert_true(trained(loop.session) < all);
    ok(f, snug_load_checkpoint(loop.session, path_of(f, "checkpoint")));
    run(f, loop.session, 6, path_of(f, "later"));
    ok(f, snug_get_parameter(loop.session, name, after, 32));
    assert_memory_equal(before, after, sizeof before);
    close_loop(&loop);
    /* Less: there are no states for it. */
    loop = open_loop(f, "");
    fails(f, snug_load_checkpoint(loop.session, path_of(f, "later")), SNUG_E_INPUT, "no state");
    assert_contains(snug_error_message(f->ctx), "freeze");
    close_loop(&loop);
}

FIXTURE_TEST(test_refused_checkpoints) {
    struct loop loop = open_loop(f, NULL);
    ok(f, snug_session_begin_epoch(loop.session, 0));
    ok(f, snug_next_batch(loop.session, NULL));
    fails(f, snug_save_checkpoint(loop.session, path_of(f, "out/a")), SNUG_E_USAGE, "a step has begun");
    ok(f, snug_session_begin_epoch(loop.session, 0));
    fails(f, snug_save_checkpoint(loop.session, ""), SNUG_E_USAGE, "does not end with the name of a folder");
    fails(f, snug_save_checkpoint(loop.session, path_of(f, "..")), SNUG_E_USAGE, "does not end with");
    fails(f, snug_save_checkpoint(loop.session, "//"), SNUG_E_USAGE, "does not end with");
    fails(f, snug_save_checkpoint(loop.session, "."), SNUG_E_USAGE, "does not end with");
    ok(f, snug_folder_create(f->ctx, path_of(f, "theirs")));
    write_text(f, "theirs/notes", "mine");
    fails(f, snug_save_checkpoint(loop.session, path_of(f, "theirs")), SNUG_E_IO, "theirs");
    fails(f, snug_load_checkpoint(loop.session, path_of(f, "theirs")), SNUG_E_INPUT, "manifest.json");
    fails(f, snug_load_checkpoint(loop.session, path_of(f, "none")), SNUG_E_IO, "none");
    train(f, "trained", "save_strategy=steps save_steps=5 max_steps=5");
    fails(f, snug_load_checkpoint(loop.session, path_of(f, "trained/checkpoint-5")), SNUG_E_INPUT,
          "is a checkpoint of snug_train()");
    ok(f, snug_save_checkpoint(loop.session, path_of(f, "good//")));
    fails(f, try_train(f, "trained", "resume_from_checkpoint=@good", 0, NULL), SNUG_E_INPUT,
          "is a checkpoint of a program's own loop");
    /* Another optimizer, and files that were changed. */
    struct loop other = open_loop(f, "optim=sgd");
    fails(f, snug_load_checkpoint(other.session, path_of(f, "good")), SNUG_E_INPUT, "optim was");
    close_loop(&other);
    write_text(f, "good/optimizer.safetensors", "x");
    fails(f, snug_load_checkpoint(loop.session, path_of(f, "good")), SNUG_E_INPUT, "optimizer.safetensors");
    /* The session is as it was. */
    ok(f, snug_session_begin_epoch(loop.session, 0));
    assert_true(step(f, loop.session));
    close_loop(&loop);
}

/* Values that no loop reaches, in a checkpoint whose checksums are right. */
FIXTURE_TEST(test_edited_state) {
    static const struct {
        const char *key, *says;
        double value;
    } cases[] = {{"step", "step is -1, which no loop reaches", -1},
                 {"epoch", "which no loop reaches", 1e17},
                 {"epoch_step", "epoch_step is 11, and an epoch has 10 steps", 11},
                 {"learning_rate", "learning_rate is -2", -2}};
    struct loop loop = open_loop(f, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_folder folder;
        struct snug_manifest manifest;
        ok(f, snug_save_checkpoint(loop.session, path_of(f, "good")));
        ok(f, snug_folder_open(f->ctx, NULL, path_of(f, "good"), &folder));
        ok(f, snug_manifest_read(f->ctx, &folder, &manifest));
        json_t *edited = read_json(f, path_of(f, "good/session_state.json"));
        json_object_set_new(edited, cases[i].key,
                            i == 3 ? json_real(cases[i].value) : json_integer((json_int_t)cases[i].value));
        assert_int_equal(json_dump_file(edited, path_of(f, "good/session_state.json"), 0), 0);
        json_decref(edited);
        ok(f, snug_manifest_add(f->ctx, manifest.files, &folder, "session_state.json"));
        ok(f, snug_manifest_write(f->ctx, &folder, manifest.files, &manifest.from));
        snug_manifest_free(&manifest);
        snug_folder_close(&folder);
        fails(f, snug_load_checkpoint(loop.session, path_of(f, "good")), SNUG_E_INPUT, cases[i].says);
    }
    close_loop(&loop);
}

TEST_MAIN(NULL, NULL)
