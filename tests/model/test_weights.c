/* SPDX-License-Identifier: Apache-2.0 */
/* Weights stored in bf16: created, loaded, saved and read as fp32 weights are, rounded to nearest; and trained. */
#include <math.h>

#include "dist/save.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "training_fixture.h"
#include "write_tensors.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static snug_session *open_session(struct fixture *f, const char *words) {
    snug_session *session;
    snug_args *args = training_args(f, words);
    ok(f, snug_session_create(args, &session));
    return session;
}

static void close_session(snug_session *session) {
    snug_args *args = session->job.setup.args;
    snug_session_destroy(session);
    snug_args_destroy(args);
}

/* A parameter's values through the public API, to be freed. */
static float *values_of(const struct fixture *f, snug_session *session, const char *name, size_t count) {
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    ok(f, snug_get_parameter(session, name, values, count));
    return values;
}

static float rounded(float value) { return snug_bf16_to_f32(snug_f32_to_bf16(value)); }

/* Every parameter of narrow equals wide's, whose matrices are rounded first. */
static void assert_rounded(const struct fixture *f, snug_session *narrow, snug_session *wide) {
    const char *name;
    size_t count;
    for (size_t i = 0; (name = snug_parameter_name(wide, i, &count)); i++) {
        float *x = values_of(f, narrow, name, count), *y = values_of(f, wide, name, count);
        const bool matrix = wide->training->program.parameters[i].shape[1] > 0;
        for (size_t k = 0; k < count; k++)
            if (x[k] != (matrix ? rounded(y[k]) : y[k])) fail_msg("%s[%zu]: %.9g from %.9g", name, k, x[k], y[k]);
        free(x);
        free(y);
    }
}

static void assert_stored_types(const struct fixture *f, const char *path) {
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, NULL, path, &files));
    assert_true(files.count > 30);
    for (size_t i = 0; i < files.count; i++)
        assert_int_equal(files.tensors[i].dtype, files.tensors[i].dims == 2 ? SNUG_BF16 : SNUG_F32);
    snug_safetensors_close(&files);
}

/* Drawn in fp32, then rounded; saved as they are; loaded in either type; fp32 files are rounded. */
FIXTURE_TEST(test_initialised_saved_and_loaded) {
    snug_session *wide = open_session(f, NULL), *narrow = open_session(f, "dtype=bfloat16");
    assert_rounded(f, narrow, wide);
    ok(f, snug_save_model(wide, path_of(f, "broad")));
    ok(f, snug_save_model(narrow, path_of(f, "narrow")));
    assert_stored_types(f, path_of(f, "narrow/model.safetensors"));
    const char *const folders[] = {"broad", "narrow"}, *const types[] = {"float32", "bfloat16"};
    for (int i = 0; i < 2; i++) {
        json_t *config = read_json(f, path_of(f, "%s/config.json", folders[i]));
        assert_string_equal(json_string_value(json_object_get(config, "dtype")), types[i]);
        assert_null(json_object_get(config, "torch_dtype"));
        json_decref(config);
    }
    /* Another seed, so that parameters that are not loaded are noticed. */
    snug_session *again = open_session(f, "seed=7 model_name_or_path=@narrow dtype=bfloat16");
    ok(f, snug_save_model(again, path_of(f, "again")));
    assert_same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "again/model.safetensors"));
    snug_session *from_wide = open_session(f, "seed=7 model_name_or_path=@broad dtype=bfloat16");
    ok(f, snug_save_model(from_wide, path_of(f, "from_wide")));
    assert_same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "from_wide/model.safetensors"));
    snug_session *widened = open_session(f, "seed=7 model_name_or_path=@narrow");
    assert_rounded(f, narrow, widened);
    ok(f, snug_save_model(widened, path_of(f, "widened")));
    assert_false(same_file(f, path_of(f, "narrow/model.safetensors"), path_of(f, "widened/model.safetensors")));
    snug_session *const all[] = {wide, narrow, again, from_wide, widened};
    for (size_t i = 0; i < 5; i++) close_session(all[i]);
}

/* Any piece of a parameter, also of a later row block of a fused tensor, and nothing around it. */
FIXTURE_TEST(test_pieces) {
    for (int type = 0; type < 2; type++) {
        snug_session *session = open_session(f, type ? "dtype=bfloat16" : NULL);
        const struct snug_program *program = &session->training->program;
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
            /* For those that share a tensor with it. */
            assert_int_equal(snug_parameter_write(program, &session->memory, p, 0, count, before), SNUG_OK);
            free(before);
            free(after);
            free(piece);
        }
        close_session(session);
    }
}

/* The largest fp32 numbers round to an infinity in bf16. */
FIXTURE_TEST(test_too_large_for_bf16) {
    const float large = 3.4e38f;
    snug_session *session = open_session(f, NULL);
    const struct snug_program *program = &session->training->program;
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

/* The same initial weights up to rounding, the same batches and masks: about the same losses. */
FIXTURE_TEST(test_losses_are_about_the_same) {
    const char *words = "validation_file=@dev.csv num_train_epochs=25 learning_rate=2e-3";
    char more[256];
    snprintf(more, sizeof more, "%s dtype=bfloat16", words);
    const snug_train_result full = train(f, "full", words), half = train(f, "half", more);
    print_message("train_loss %.4f with fp32 weights, %.4f with bf16 ones\n", full.train_loss, half.train_loss);
    assert_true(full.train_loss != half.train_loss);
    assert_true(full.train_loss < 0.65 && fabs(full.train_loss - half.train_loss) < 0.03);
    assert_stored_types(f, path_of(f, "half/model.safetensors"));
    /* The evaluated model is the saved one, in either storage: its weights are bf16 numbers. */
    for (int i = 0; i < 2; i++) {
        snug_metrics metrics;
        snprintf(more, sizeof more, "model_name_or_path=@half validation_file=@dev.csv threads=2 dtype=%s",
                 i ? "bfloat16" : "float32");
        snug_args *args = plain_args(f, more);
        ok(f, evaluate_args(f, args, NULL, &metrics));
        assert_true(metric_of(&metrics, "eval_loss") == metric_of(half.metrics, "eval_loss"));
        snug_args_destroy(args);
    }
}

/* Ten updates of about 1e-6 each, far below half a bf16 step at 0.02 (6e-5): with rounding to nearest no value would
   change. With stochastic rounding few values change, but on average as much as fp32 ones, in the same direction. */
FIXTURE_TEST(test_small_updates_count) {
    static const char name[] = "bert.encoder.layer.0.intermediate.dense.weight";
    enum { COUNT = 128 * 32 };
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
    print_message("%d of %d values changed, by %.2f of the change in fp32\n", changed, COUNT, along / length);
    assert_true(changed > COUNT / 100 && changed < COUNT / 2);
    assert_true(fabs(along / length - 1) < 0.3); /* one standard deviation is about 0.06 */
}

/* ---- files of other models ------------------------------------------------------------------------------------ */

static void change_config(const struct fixture *f, const char *folder, const char *key, json_t *value) {
    const char *path = path_of(f, "%s/config.json", folder);
    json_t *config = read_json(f, path);
    assert_int_equal(json_object_set_new(config, key, value), 0);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
}

static const struct snug_parameter *parameter_of(const snug_session *session, const char *name) {
    const struct snug_parameter *p = session->training->program.parameters;
    while (strcmp(p->name, name) != 0) p++;
    return p;
}

static double loss_of(struct fixture *f, const char *folder) {
    char words[256];
    snprintf(words, sizeof words,
             "task=mlm model_name_or_path=@%s validation_file=@dev.txt line_by_line=True threads=2", folder);
    return eval_loss_of(f, words);
}

#define MASKED "task=mlm train_file=@train.txt line_by_line=True "

/* A decoder that is not tied to the word embedding, with the same values: the same model. */
FIXTURE_TEST(test_untied_decoder) {
    static const char word[] = "bert.embeddings.word_embeddings.weight", decoder[] = "cls.predictions.decoder.weight";
    enum { COUNT = VOCABULARY * 32 };
    snug_session *session = open_session(f, MASKED);
    ok(f, snug_save_model(session, path_of(f, "tied")));
    ok(f, snug_save_model(session, path_of(f, "other")));
    close_session(session);
    change_config(f, "other", "tie_word_embeddings", json_false());
    f->log[0] = '\0';
    session = open_session(f, MASKED "config_name=@other model_name_or_path=@other");
    assert_contains(f->log, "2 tensors are not in it and were initialised: ");
    assert_contains(f->log, decoder);
    float *values = values_of(f, session, word, COUNT);
    ok(f, snug_parameter_write(&session->training->program, &session->memory, parameter_of(session, decoder), 0, COUNT,
                               values));
    free(values);
    ok(f, snug_save_model(session, path_of(f, "untied")));
    close_session(session);
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "untied/model.safetensors"), &files));
    assert_non_null(snug_safetensors_find(&files, decoder));
    assert_non_null(snug_safetensors_find(&files, "cls.predictions.decoder.bias"));
    assert_non_null(snug_safetensors_find(&files, "cls.predictions.bias")); /* transformers reads both */
    snug_safetensors_close(&files);
    const double tied = loss_of(f, "tied");
    assert_true(fabs(loss_of(f, "untied") - tied) < 1e-6 * tied);
    change_config(f, "untied", "tie_word_embeddings", json_true());
    assert_true(fabs(loss_of(f, "untied") - tied) < 1e-6 * tied);
    change_config(f, "untied", "tie_word_embeddings", json_false());
    train(f, "trained", MASKED "config_name=@untied model_name_or_path=@untied");
    assert_true(fabs(loss_of(f, "trained") - tied) > 1e-3);
}

static void assert_refused(struct fixture *f, const char *words, const char *says, const char *silent) {
    snug_session *session;
    snug_args *args = training_args(f, words);
    assert_int_equal(snug_session_create(args, &session), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), says);
    if (silent) assert_null(strstr(snug_error_message(f->ctx), silent));
    snug_clear_error(f->ctx);
    snug_args_destroy(args);
}

/* A single tensor of zeros, as the model folder's only one. */
static void write_tensor(struct fixture *f, const char *folder, const char *name, int dims, int64_t rows,
                         int64_t cols) {
    void *zeros = calloc((size_t)(rows * (dims == 2 ? cols : 1)), sizeof(float));
    const struct values_to_write source = {.name = name, .dims = dims, .shape = {rows, cols}, .data = zeros};
    assert_non_null(zeros);
    ok(f, write_tensors(f->ctx, path_of(f, "%s/model.safetensors", folder), &source, 1));
    free(zeros);
}

FIXTURE_TEST(test_other_shapes) {
    static const char hint[] = " (--ignore_mismatched_sizes initialises a new head instead)";
    snug_session *session = open_session(f, NULL);
    ok(f, snug_save_model(session, path_of(f, "saved")));
    close_session(session);
    write_text(f, "three.csv", "sentence,label\ngood,x\nbad,y\nw1,z\n");
    const char *words = "config_name=@saved model_name_or_path=@saved train_file=@three.csv";
    assert_refused(f, words, "tensor classifier.bias has shape [2], expected [3]", NULL);
    assert_refused(f, words, hint, NULL);
    session = open_session(
        f, "config_name=@saved model_name_or_path=@saved train_file=@three.csv ignore_mismatched_sizes=True");
    assert_contains(f->log, "classifier.weight has shape [2, 32], the model expects [3, 32]: newly initialised");
    close_session(session);
    change_config(f, "saved", "intermediate_size", json_integer(64));
    assert_refused(f, "config_name=@saved model_name_or_path=@saved ignore_mismatched_sizes=True",
                   "has shape [128], expected [64]", hint);
    write_model(f, "odd", 0.1, 32, 2, VOCABULARY);
    const char *odd = "model_name_or_path=@odd";
    write_tensor(f, "odd", "classifier.bias", 2, 2, 1);
    assert_refused(f, odd, "has shape [2, 1], expected [2]", NULL);
    write_tensor(f, "odd", "classifier.weight", 2, 2, 7);
    assert_refused(f, odd, "has shape [2, 7], expected [2, 32]", NULL);
    write_tensor(f, "odd", "a", 1, 1, 0);
    assert_refused(f, odd, "none of its 1 tensors belongs to a BERT model", NULL);
}

/* Unused tensors of a file are listed up to the length of a line. */
FIXTURE_TEST(test_unused_tensors) {
    enum { TENSORS = 100 };
    static char names[TENSORS][1400];
    static const float zeros[32];
    struct values_to_write sources[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], i ? "tensor.that.nobody.uses.%d" : "bert.pooler.dense.bias", i);
        sources[i] = (struct values_to_write){.name = names[i], .dims = 1, .shape = {32}, .data = zeros};
    }
    memset(names[1], 'A', sizeof names[1] - 1);
    write_model(f, "odd", 0.1, 32, 2, VOCABULARY);
    ok(f, write_tensors(f->ctx, path_of(f, "odd/model.safetensors"), sources, TENSORS));
    close_session(open_session(f, "model_name_or_path=@odd"));
    assert_contains(f->log, "99 tensors are not used: tensor.that.nobody.uses.10, ");
    assert_contains(f->log, ", ...\n");
}

/* The padding token's row is zero at any index, and no row is where there is no such token. */
FIXTURE_TEST(test_padding_row) {
    static const struct { int pad, row; } cases[] = {{0, 0}, {200, 200}, {-1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        change_config(f, "model", "pad_token_id", cases[i].pad < 0 ? json_null() : json_integer(cases[i].pad));
        snug_session *session = open_session(f, NULL);
        float *values = values_of(f, session, "bert.embeddings.word_embeddings.weight", VOCABULARY * 32);
        for (int row = 0; row < VOCABULARY; row++) {
            bool zero = true;
            for (int k = 0; k < 32; k++) zero &= values[32 * row + k] == 0;
            assert_int_equal(zero, row == cases[i].row);
        }
        free(values);
        close_session(session);
    }
}

/* ---- fp16 weights and devices --------------------------------------------------------------------------------- */

/* The tensors of a session whose weights are bf16, declared as fp16, which has the same size. */
static struct snug_program *make_fp16(snug_session *session) {
    struct snug_program *program = &session->job.plan.programs[0].program;
    for (size_t i = 1; i < program->tensor_count; i++)
        if (program->tensors[i].dtype == SNUG_BF16) program->tensors[i].dtype = SNUG_F16;
    return program;
}

FIXTURE_TEST(test_fp16_weights) {
    const float large = 70000;
    snug_session *session = open_session(f, NULL);
    const struct snug_parameter *p = parameter_of(session, "bert.pooler.dense.weight");
    ok(f, snug_parameter_write(&session->training->program, &session->memory, p, 5, 1, &large));
    ok(f, snug_save_model(session, path_of(f, "large")));
    close_session(session);
    session = open_session(f, "dtype=bfloat16");
    struct snug_program *program = make_fp16(session);
    assert_int_equal(
        weights_load(f->ctx, path_of(f, "large"), program, &session->job.setup.config, &session->memory, 1, false),
        SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "pooler.dense.weight holds 70000 at element 5, more than float16 has");
    assert_contains(snug_error_message(f->ctx), "--fp16");
    snug_clear_error(f->ctx);
    p = parameter_of(session, "bert.pooler.dense.weight");
    const float values[] = {0.1f, NAN, 1e6f, -65504}, expected[] = {0x1.998p-4f, NAN, INFINITY, -65504};
    float back[4];
    ok(f, snug_parameter_write(program, &session->memory, p, 3, 4, values));
    ok(f, snug_parameter_read(program, &session->memory, p, 3, 4, back));
    for (int i = 0; i < 4; i++) assert_true(isnan(expected[i]) ? isnan(back[i]) : back[i] == expected[i]);
    close_session(session);
}

/* A device in host memory that is lost after a number of copies. */
static int copies_left;
static snug_status copy_some(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    if (__atomic_fetch_sub(&copies_left, 1, __ATOMIC_RELAXED) <= 0)
        return snug_fail(ctx, SNUG_E_IO, "the device is lost");
    memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

FIXTURE_TEST(test_device_is_lost) {
    snug_session *session = open_session(f, NULL);
    const struct snug_program *program = &session->training->program;
    const struct snug_config *config = &session->job.setup.config;
    const struct snug_parameter *p = parameter_of(session, "bert.pooler.dense.bias");
    struct snug_memory memory = session->memory;
    float value = 7, back = 0;
    memory.copy = copy_some;
    copies_left = 2;
    ok(f, snug_parameter_write(program, &memory, p, 3, 1, &value));
    ok(f, snug_parameter_read(program, &memory, p, 3, 1, &back));
    assert_true(back == 7);
    assert_int_equal(snug_weights_init(program, config, &memory, p, 1), SNUG_E_IO);
    snug_clear_error(f->ctx);
    write_tensor(f, "model", "bert.pooler.dense.bias", 1, 32, 0);
    copies_left = 1; /* its own file is loaded; creating the next one fails */
    assert_int_equal(weights_load(f->ctx, path_of(f, "model"), program, config, &memory, 1, false), SNUG_E_IO);
    assert_string_equal(snug_error_message(f->ctx), "the device is lost");
    close_session(session);
}

FIXTURE_TEST(test_type_of_most_weights) {
    static const struct {
        enum snug_dtype first, second;
        int64_t rows[2];
        int dims; /* of the second */
        bool most, matrices;
    } cases[] = {{SNUG_BF16, SNUG_BF16, {3, 4}, 2, true, true}, {SNUG_BF16, SNUG_F32, {3, 2}, 1, true, true},
                 {SNUG_BF16, SNUG_F32, {3, 2}, 2, true, false}, {SNUG_BF16, SNUG_F32, {3, 3}, 1, false, true},
                 {SNUG_BF16, SNUG_U8, {3, 9}, 2, false, false}, {SNUG_F16, SNUG_F32, {3, 1}, 1, false, false},
                 {SNUG_BF16, SNUG_F16, {9, 1}, 2, true, false}};
    static const float zeros[64];
    struct snug_folder folder;
    ok(f, snug_folder_open(f->ctx, NULL, path_of(f, "model"), &folder));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool most, matrices;
        const struct values_to_write sources[] = {
            {.name = "a", .dtype = cases[i].first, .dims = 2, .shape = {cases[i].rows[0], 1}, .data = zeros},
            {.name = "b",
             .dtype = cases[i].second,
             .dims = cases[i].dims,
             .shape = {cases[i].rows[1], 1},
             .data = zeros}};
        ok(f, write_tensors(f->ctx, path_of(f, "model/model.safetensors"), sources, 2));
        ok(f, snug_weights_are_bf16(f->ctx, &folder, &most, &matrices));
        assert_int_equal(most, cases[i].most);
        assert_int_equal(matrices, cases[i].matrices);
    }
    snug_folder_close(&folder);
}

/* A table of more values than a thread reads at a time, in each type, into each type; and a value that is not finite,
   or too large, at the ends of what threads read. */
FIXTURE_TEST(test_reading_in_pieces) {
    enum { COUNT = WIDE_VOCABULARY * 32, READ = 65536 };
    static const enum snug_dtype types[] = {SNUG_F32, SNUG_F16, SNUG_BF16};
    static const char *const words[] = {"config_name=@wide model_name_or_path=@wide threads=2",
                                        "config_name=@wide model_name_or_path=@wide threads=2 dtype=bfloat16"};
    static const char table[] = "bert.embeddings.word_embeddings.weight";
    static const int64_t bad[] = {0, READ - 1, READ, COUNT - 1};
    float *values = malloc(COUNT * sizeof *values);
    uint16_t *halves = malloc(COUNT * sizeof *halves);
    assert_true(values && halves && COUNT > 2 * READ);
    for (size_t t = 0; t < 3; t++)
        for (size_t w = 0; w < 2; w++)
            for (size_t b = 0; b <= 3 * sizeof bad / sizeof *bad; b++) {
                const int64_t at = b ? bad[(b - 1) % 4] : -1;
                const float odd = b < 5 ? NAN : b < 9 ? -INFINITY : 3.4e38f;
                if (b > 8 && types[t] != SNUG_F32) continue; /* a large value */
                for (int64_t i = 0; i < COUNT; i++) {
                    const float value = i == at ? odd : (float)(i % 251 - 125) / 64;
                    values[i] = value;
                    halves[i] = types[t] == SNUG_F16 ? snug_f32_to_f16(value) : snug_f32_to_bf16(value);
                }
                const struct values_to_write source = {.name = table,
                                                       .dtype = types[t],
                                                       .dims = 2,
                                                       .shape = {WIDE_VOCABULARY, 32},
                                                       .data = types[t] == SNUG_F32 ? (void *)values : halves};
                ok(f, write_tensors(f->ctx, path_of(f, "wide/model.safetensors"), &source, 1));
                if (b && (b < 9 || w)) {
                    char says[64];
                    snprintf(says, sizeof says, " holds %s at element %lld",
                             b < 5   ? "NaN"
                             : b < 9 ? "an infinity"
                                     : "3.4e+38",
                             (long long)at);
                    assert_refused(f, words[w], says, b < 9 ? "more than" : "damaged");
                    continue;
                }
                snug_session *session = open_session(f, words[w]);
                float *found = values_of(f, session, table, COUNT);
                for (int64_t i = 0; i < COUNT; i++)
                    if (found[i] != (w ? rounded(values[i]) : values[i])) fail_msg("%lld: %g", (long long)i, found[i]);
                free(found);
                close_session(session);
            }
    free(values);
    free(halves);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Sizes in floats, with the files that split_torch_state_dict_into_shards() puts them into. */
FIXTURE_TEST(test_division_into_files) {
    static const struct {
        int64_t most, sizes[6]; /* 0 at the end */
        size_t count, files[6];
    } cases[] = {
        {10, {6, 6, 2, 6, 2}, 3, {0, 1, 1, 2, 2}},
        {10, {6, 4, 10, 1}, 3, {0, 0, 1, 2}},
        {10, {3, 20, 3, 20, 3}, 3, {0, 1, 0, 2, 0}}, /* larger ones are alone, and interrupt nothing */
        {10, {20, 20}, 2, {0, 1}},
        {1, {1, 1, 1}, 3, {0, 1, 2}},
        {100, {20, 30, 50}, 1, {0, 0, 0}},
        {99, {20, 30, 50}, 2, {0, 0, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_program program;
        struct snug_weight_files files;
        struct snug_parameter parameters[6] = {{.tensor = 1}};
        struct snug_tensor tensors[] = {
            {.dtype = SNUG_F32}, {.dtype = SNUG_F32}, {.dtype = SNUG_BF16, .narrowed = true}};
        snug_program_init(&program, f->ctx);
        size_t n = 0;
        for (; n < 6 && cases[i].sizes[n]; n++)
            parameters[n] = (struct snug_parameter){.tensor = 1 + (int32_t)(n % 2), .shape = {cases[i].sizes[n], 0}};
        program.parameters = parameters;
        program.parameter_count = n;
        program.tensors = tensors;
        ok(f, snug_weight_files_plan(&program, cases[i].most * (int64_t)sizeof(float), &files));
        assert_int_equal(files.count, cases[i].count);
        for (size_t k = 0; k < n; k++)
            if (files.file_of[k] != cases[i].files[k])
                fail_msg("case %zu: tensor %zu is in file %zu", i, k, files.file_of[k]);
        snug_weight_files_free(&files);
    }
}

FIXTURE_TEST(test_names_of_files) {
    static const char *const theirs[] = {"model.safetensors", "model.safetensors.index.json",
                                         "model-00001-of-00002.safetensors", "model-12345-of-99999.safetensors"};
    static const char *const others[] = {"",
                                         "model",
                                         "model.safetensors2",
                                         "model-00001-of-00002.safetensors2",
                                         "model-0001-of-00002.safetensors",
                                         "model-00001-of-0000x.safetensors",
                                         "model-00001-of-00002.bin",
                                         "model-00001_of-00002.safetensors",
                                         "model-/0001-of-00002.safetensors",
                                         "adapter_model.safetensors"};
    (void)f;
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) assert_true(snug_weight_files_has(theirs[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(snug_weight_files_has(others[i]));
    char name[SNUG_WEIGHT_FILE_NAME];
    snug_weight_files_name(&(struct snug_weight_files){.count = 1}, 0, name);
    assert_string_equal(name, "model.safetensors");
    snug_weight_files_name(&(struct snug_weight_files){.count = 12}, 11, name);
    assert_string_equal(name, "model-00012-of-00012.safetensors");
    snug_weight_files_other_name(&(struct snug_weight_files){.count = 12}, 11, name);
    assert_string_equal(name, "model-00012-of-00012.new.safetensors");
    assert_true(snug_weight_files_has(name));
}

/* The index is transformers': each tensor once, the second name of a tied one in the same file, and both sizes. */
FIXTURE_TEST(test_index) {
    snug_session *session = open_session(f, "task=mlm train_file=@train.txt");
    const struct snug_program *program = &session->training->program;
    struct snug_weight_files files;
    struct snug_folder in;
    struct snug_safetensors all;
    ok(f, snug_folder_make(f->ctx, NULL, path_of(f, "shards"), 0777, &in));
    ok(f, snug_weight_files_plan(program, 50000, &files));
    ok(f, snug_weights_save(f->ctx, NULL, &in, &files, program, &session->memory, &session->source));
    ok(f, snug_safetensors_open(f->ctx, &in, SNUG_WEIGHTS_INDEX, &all));
    json_t *index = read_json(f, path_of(f, "shards/" SNUG_WEIGHTS_INDEX)), *map = json_object_get(index, "weight_map");
    json_t *metadata = json_object_get(index, "metadata");
    int64_t bytes = 0, values = 0;
    assert_true(files.count > 2);
    assert_int_equal(all.file_count, files.count);
    assert_int_equal(all.count, json_object_size(map));
    for (size_t i = 0; i < all.count; i++) bytes += all.tensors[i].count * 4;
    for (size_t i = 0; i < program->parameter_count; i++) {
        const struct snug_parameter *p = &program->parameters[i];
        values += snug_parameter_count(p);
        if (p->also)
            assert_string_equal(json_string_value(json_object_get(map, p->name)),
                                json_string_value(json_object_get(map, p->also)));
    }
    assert_int_equal(json_integer_value(json_object_get(metadata, "total_size")), bytes);
    assert_int_equal(bytes, files.bytes);
    assert_int_equal(json_integer_value(json_object_get(metadata, "total_parameters")), values);
    json_decref(index);
    snug_safetensors_close(&all);
    snug_weight_files_free(&files);
    snug_folder_close(&in);
    close_session(session);
}

/* ---- states --------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_states_of_another_model) {
    char path[512];
    snug_session *session = open_session(f, NULL);
    const struct snug_program *program = &session->training->program;
    const struct snug_tensor *t = program->tensors;
    snprintf(path, sizeof path, "%s", path_of(f, "states.safetensors"));
    ok(f, snug_states_save(f->ctx, NULL, NULL, path, program, &session->memory));
    ok(f, snug_states_load(f->ctx, NULL, path, program, &session->memory));
    while (!t->saved) t++;
    void *zeros = calloc((size_t)((t->rows + 1) * (t->cols + 1)), sizeof(float));
    const struct values_to_write cases[] = {
        {.name = "another", .dtype = t->dtype, .dims = 2, .shape = {t->rows, t->cols}, .data = zeros},
        {.name = t->name, .dtype = t->dtype, .dims = 1, .shape = {t->rows * t->cols}, .data = zeros},
        {.name = t->name, .dtype = t->dtype, .dims = 2, .shape = {t->rows + 1, t->cols}, .data = zeros},
        {.name = t->name, .dtype = t->dtype, .dims = 2, .shape = {t->rows, t->cols + 1}, .data = zeros},
        {.name = t->name, .dtype = SNUG_F16, .dims = 2, .shape = {t->rows, t->cols}, .data = zeros},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ok(f, write_tensors(f->ctx, path, &cases[i], 1));
        assert_int_equal(snug_states_load(f->ctx, NULL, path, program, &session->memory), SNUG_E_INPUT);
        assert_contains(snug_error_message(f->ctx), "the checkpoint is of another model or optimizer");
        snug_clear_error(f->ctx);
    }
    free(zeros);
    close_session(session);
}

TEST_MAIN(NULL, NULL)
