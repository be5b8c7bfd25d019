/* SPDX-License-Identifier: Apache-2.0 */
/* Weights stored in bf16: made, loaded, saved and looked at as fp32 ones are, rounded to nearest; and they learn. */
#include <math.h>

#include "io/safetensors.h"
#include "model/weights.h"
#include "training_fixture.h"

static void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

static snug_session *open_session(struct fixture *f, const char *words) {
    snug_session *session;
    snug_args *args = training_args(f, words);
    ok(f, snug_session_create(args, &session));
    return session;
}

static void close_session(snug_session *session) {
    snug_args *args = session->job.args;
    snug_session_destroy(session);
    snug_args_destroy(args);
}

/* A parameter's values by the public call, to be freed. */
static float *values_of(const struct fixture *f, snug_session *session, const char *name, size_t count) {
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    ok(f, snug_get_parameter(session, name, values, count));
    return values;
}

static float rounded(float value) { return snug_bf16_to_f32(snug_f32_to_bf16(value)); }

/* Every parameter of narrow is wide's; its matrices are rounded first. */
static void assert_rounded(const struct fixture *f, snug_session *narrow, snug_session *wide) {
    const char *name;
    size_t count;
    for (size_t i = 0; (name = snug_parameter_name(wide, i, &count)); i++) {
        float *x = values_of(f, narrow, name, count), *y = values_of(f, wide, name, count);
        const bool matrix = wide->job.training->parameters[i].shape[1] > 0;
        for (size_t k = 0; k < count; k++)
            if (x[k] != (matrix ? rounded(y[k]) : y[k])) fail_msg("%s[%zu]: %.9g from %.9g", name, k, x[k], y[k]);
        free(x);
        free(y);
    }
}

static void assert_stored_types(const struct fixture *f, const char *path) {
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, path, &files));
    assert_true(files.count > 30);
    for (size_t i = 0; i < files.count; i++)
        assert_int_equal(files.tensors[i].dtype, files.tensors[i].dims == 2 ? SNUG_BF16 : SNUG_F32);
    snug_safetensors_close(&files);
}

/* Drawn in fp32, then rounded; saved as they are; loaded in either type; fp32 files are rounded. */
static void test_made_saved_and_loaded(void **state) {
    struct fixture *f = *state;
    snug_session *wide = open_session(f, NULL), *narrow = open_session(f, "dtype=bfloat16");
    assert_rounded(f, narrow, wide);
    ok(f, snug_save_model(wide, path_of(f, "wide")));
    ok(f, snug_save_model(narrow, path_of(f, "narrow")));
    assert_stored_types(f, path_of(f, "narrow/model.safetensors"));
    const char *const folders[] = {"wide", "narrow"}, *const types[] = {"float32", "bfloat16"};
    for (int i = 0; i < 2; i++) {
        json_t *config = read_json(f, path_of(f, "%s/config.json", folders[i]));
        assert_string_equal(json_string_value(json_object_get(config, "dtype")), types[i]);
        assert_null(json_object_get(config, "torch_dtype"));
        json_decref(config);
    }
    /* Another seed: what is not loaded shows. */
    snug_session *again = open_session(f, "seed=7 model_name_or_path=@narrow dtype=bfloat16");
    ok(f, snug_save_model(again, path_of(f, "again")));
    assert_same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "again/model.safetensors"));
    snug_session *from_wide = open_session(f, "seed=7 model_name_or_path=@wide dtype=bfloat16");
    ok(f, snug_save_model(from_wide, path_of(f, "from_wide")));
    assert_same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "from_wide/model.safetensors"));
    snug_session *widened = open_session(f, "seed=7 model_name_or_path=@narrow");
    assert_rounded(f, narrow, widened);
    ok(f, snug_save_model(widened, path_of(f, "widened")));
    assert_false(same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "widened/model.safetensors")));
    snug_session *const all[] = {wide, narrow, again, from_wide, widened};
    for (size_t i = 0; i < 5; i++) close_session(all[i]);
}

/* Any piece of a parameter, of a fused one's later row blocks too, and nothing around it. */
static void test_pieces(void **state) {
    struct fixture *f = *state;
    for (int type = 0; type < 2; type++) {
        snug_session *session = open_session(f, type ? "dtype=bfloat16" : NULL);
        const struct snug_program *program = session->job.training;
        for (size_t i = 0; i < program->parameter_count; i++) {
            const struct snug_parameter *p = &program->parameters[i];
            const int64_t count = snug_parameter_count(p), first = count / 3, n = count - first - count / 4;
            float *before = values_of(f, session, p->name, (size_t)count), *piece = calloc((size_t)n, sizeof *piece);
            assert_int_equal(snug_parameter_read(program, &session->memory, p, first, n, piece), SNUG_OK);
            assert_memory_equal(piece, before + first, (size_t)n * sizeof *piece);
            for (int64_t k = 0; k < n; k++) piece[k] = (float)(k + 1) / 3;
            assert_int_equal(snug_parameter_write(program, &session->memory, p, first, n, piece), SNUG_OK);
            float *after = values_of(f, session, p->name, (size_t)count);
            for (int64_t k = 0; k < count; k++) {
                const bool within = k >= first && k < first + n;
                const float want = !within               ? before[k]
                                   : type && p->shape[1] ? rounded(piece[k - first])
                                                         : piece[k - first];
                if (after[k] != want) fail_msg("%s[%lld]: %g, expected %g", p->name, (long long)k, after[k], want);
            }
            /* For those that share its tensor. */
            assert_int_equal(snug_parameter_write(program, &session->memory, p, 0, count, before), SNUG_OK);
            free(before);
            free(after);
            free(piece);
        }
        close_session(session);
    }
}

/* The largest fp32 numbers round to an infinity in bf16. */
static void test_too_large_for_bf16(void **state) {
    struct fixture *f = *state;
    const float large = 3.4e38f;
    snug_session *session = open_session(f, NULL);
    const struct snug_program *program = session->job.training;
    const struct snug_parameter *p = program->parameters;
    while (!strstr(p->name, "layer.1.attention.self.value.weight")) p++;
    assert_int_equal(snug_parameter_write(program, &session->memory, p, 5, 1, &large), SNUG_OK);
    ok(f, snug_save_model(session, path_of(f, "large")));
    close_session(session);
    session = open_session(f, "model_name_or_path=@large");
    close_session(session);
    snug_args *args = training_args(f, "model_name_or_path=@large dtype=bfloat16");
    assert_int_equal(snug_session_create(args, &session), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "layer.1.attention.self.value.weight holds 3.4e+38 at element 5");
    assert_contains(snug_error_message(f->ctx), "--dtype float32");
    snug_args_destroy(args);
}

/* The same initial weights up to their rounding, the same batches and masks: about the same losses. */
static void test_losses_are_about_the_same(void **state) {
    struct fixture *f = *state;
    const char *words = "validation_file=@dev.csv num_train_epochs=25 learning_rate=2e-3";
    char more[256];
    snprintf(more, sizeof more, "%s dtype=bfloat16", words);
    const snug_train_result full = train(f, "full", words), half = train(f, "half", more);
    print_message("train_loss %.4f with fp32 weights, %.4f with bf16 ones\n", full.train_loss, half.train_loss);
    assert_true(full.train_loss != half.train_loss);
    assert_true(full.train_loss < 0.65 && fabs(full.train_loss - half.train_loss) < 0.03);
    assert_stored_types(f, path_of(f, "half/model.safetensors"));
    /* What was evaluated is what was saved, in either storage: its weights are bf16 numbers. */
    for (int i = 0; i < 2; i++) {
        snug_metrics metrics;
        snprintf(more, sizeof more, "model_name_or_path=@half validation_file=@dev.csv threads=2 dtype=%s",
                 i ? "bfloat16" : "float32");
        snug_args *args = plain_args(f, more);
        ok(f, snug_evaluate(args, NULL, &metrics));
        assert_true(metric_of(&metrics, "eval_loss") == metric_of(&half.metrics, "eval_loss"));
        snug_args_destroy(args);
    }
}

/* Ten updates of about 1e-6 each, far below half of a bf16 step of a value of 0.02 (6e-5): to nearest nothing would
   move. Stochastically few values move, and on the whole as far as fp32 ones do, in their direction. */
static void test_small_updates_count(void **state) {
    static const char name[] = "bert.encoder.layer.0.intermediate.dense.weight";
    enum { COUNT = 128 * 32 };
    struct fixture *f = *state;
    double moves[2][COUNT], along = 0, length = 0;
    int changed = 0;
    for (int type = 0; type < 2; type++) {
        char words[256];
        snprintf(words, sizeof words, "learning_rate=1e-6 lr_scheduler_type=constant num_train_epochs=1 dtype=%s",
                 type ? "bfloat16" : "float32");
        snug_session *session = open_session(f, words);
        float *before = values_of(f, session, name, COUNT);
        close_session(session);
        train(f, "slow", words);
        strcat(words, " model_name_or_path=@slow");
        session = open_session(f, words);
        float *after = values_of(f, session, name, COUNT);
        close_session(session);
        for (int i = 0; i < COUNT; i++) moves[type][i] = (double)after[i] - (double)before[i];
        free(before);
        free(after);
    }
    for (int i = 0; i < COUNT; i++) {
        changed += moves[1][i] != 0;
        length += fabs(moves[0][i]);
        along += moves[0][i] > 0 ? moves[1][i] : -moves[1][i];
    }
    print_message("%d of %d values moved, by %.2f of what they move in fp32\n", changed, COUNT, along / length);
    assert_true(changed > COUNT / 100 && changed < COUNT / 2);
    assert_true(fabs(along / length - 1) < 0.3); /* one standard deviation is about 0.06 */
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_made_saved_and_loaded), TEST(test_pieces),
        TEST(test_too_large_for_bf16),    TEST(test_losses_are_about_the_same),
        TEST(test_small_updates_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
