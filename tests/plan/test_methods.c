/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that trade time for memory: exact ones give the same bits as the plain run. */
#include "io/safetensors.h"
#include "training_fixture.h"
#include "write_tensors.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void assert_same_model(const struct fixture *f, const char *a, const char *b) {
    assert_same_file(f, path_of(f, "%s/model.safetensors", a), path_of(f, "%s/model.safetensors", b));
}

/* ---- recomputation -------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_recomputation_changes_no_bit) {
    static const char *const ways[] = {
        "recompute=elementwise", "recompute=ffn",           "recompute=attention",         "recompute=layer",
        "recompute=none,layer",  "recompute=attention,ffn", "gradient_checkpointing=True", "recompute=layer,none",
        "recompute=ffn*2"};
    static const char *const tasks[] = {"", " bf16=True", " task=mlm line_by_line=True train_file=@train.txt",
                                        " dtype=bfloat16 task=mlm line_by_line=True train_file=@train.txt"};
    for (size_t task = 0; task < sizeof tasks / sizeof *tasks; task++) {
        char words[256];
        snprintf(words, sizeof words, "recompute=none gradient_accumulation_steps=2%s", tasks[task]);
        train(f, "stored", words);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            snprintf(words, sizeof words, "%s gradient_accumulation_steps=2%s", ways[i], tasks[task]);
            train(f, "again", words);
            assert_same_model(f, "stored", "again");
        }
    }
}

/* Local attention, RoPE, gated MLPs and mean pooling; a bias table that all layers share. */
FIXTURE_TEST(test_methods_of_other_families_change_no_bit) {
    static const char *const families[] = {"config_name=@modern", "config_name=@mpnet"};
    static const char *const kinds[] = {"bf16=True task=mlm line_by_line=True train_file=@train.txt",
                                        "gradient_accumulation_steps=2 optim=adamw_8bit"};
    static const char *const ways[] = {"recompute=ffn update_in_backward=True", "recompute=attention threads=3",
                                       "recompute=layer update_in_backward=True",
                                       "recompute=layer,none offload=weights,gradients,optimizer,activations"};
    write_other_families(f, 32);
    for (size_t family = 0; family < 2; family++)
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            char words[512];
            snprintf(words, sizeof words, "%s %s max_steps=2 max_grad_norm=0.5", families[family], kinds[kind]);
            train(f, "stored", words);
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                snprintf(words, sizeof words, "%s %s max_steps=2 max_grad_norm=0.5 %s", families[family], kinds[kind],
                         ways[i]);
                train(f, "again", words);
                assert_same_model(f, "stored", "again");
            }
        }
}

/* Arguments that are refused, with a part of the message. */
static void check_refused(struct fixture *f, const char *const (*cases)[2], size_t count) {
    for (size_t i = 0; i < count; i++) {
        snug_train_result result;
        assert_int_equal(try_train(f, "refused", cases[i][0], 0, &result), SNUG_E_USAGE);
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
}

TEST_IN(test_wrong_levels_are_refused, void *fixture, set_up, tear_down) {
    static const char *const cases[][2] = {
        {"recompute=some", "not a list of levels"},
        {"recompute=ffn;layer", "not a list of levels"},
        {"recompute=layer,", "not a list of levels"},
        {"recompute=layer*0", "not a list of levels"},
        {"recompute=layer*x", "not a list of levels"},
        {"recompute=layer*3", "more levels than layers"},
        {"recompute=none,ffn,ffn", "more levels than layers"},
        {"recompute=layer*1,", "not a list of levels"},
        {"recompute=layer*1x", "not a list of levels"},
        {"recompute=ffn gradient_checkpointing=True", "only one of them"},
    };
    check_refused(fixture, cases, sizeof cases / sizeof *cases);
}

FIXTURE_TEST(test_tf32_needs_a_gpu) {
    snug_train_result result;
    assert_int_equal(try_train(f, "refused", "tf32=True device=cpu", 0, &result), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "--tf32 needs an NVIDIA GPU");
    train(f, "off", "tf32=False device=cpu max_steps=1");
}

/* ---- lazy rows ------------------------------------------------------------------------------------------------ */

/* All tensors of two files have the same bits; of a table, the rows that both have. */
static void assert_same_but_wider(const struct fixture *f, const char *narrow, const char *wide, size_t expected) {
    struct snug_safetensors a, b;
    ok(f, snug_safetensors_open(f->ctx, NULL, narrow, &a));
    ok(f, snug_safetensors_open(f->ctx, NULL, wide, &b));
    assert_true(a.count == b.count && a.count >= expected);
    for (size_t i = 0; i < a.count; i++) {
        const struct snug_stored_tensor *x = &a.tensors[i], *y = snug_safetensors_find(&b, x->name);
        assert_non_null(y);
        const size_t count = (size_t)x->count;
        float *values = calloc(2 * count, sizeof *values);
        assert_non_null(values);
        ok(f, snug_safetensors_read(f->ctx, &a, x, 0, x->count, values));
        ok(f, snug_safetensors_read(f->ctx, &b, y, 0, x->count, values + count));
        if (memcmp(values, values + count, count * sizeof *values) != 0) fail_msg("%s differs", x->name);
        free(values);
    }
    snug_safetensors_close(&a);
    snug_safetensors_close(&b);
}

/* The same training of the narrow model, whose rows are not lazy, and of the wide one, whose rows are. */
FIXTURE_TEST(test_lazy_rows_change_nothing) {
    static const char *const runs[] = {
        "",
        "weight_decay=0.1 gradient_accumulation_steps=2 num_train_epochs=6 warmup_steps=5",
        "validation_file=@dev.csv eval_strategy=steps eval_steps=3 num_train_epochs=30 learning_rate=3e-3 threads=3",
        "bf16=True max_grad_norm=0.1",
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        snprintf(words, sizeof words, "save_strategy=steps save_steps=5 save_total_limit=1 %s", runs[i]);
        const snug_train_result narrow = train(f, "narrow", words);
        snprintf(words, sizeof words, "save_strategy=steps save_steps=5 save_total_limit=1 %s config_name=@wide",
                 runs[i]);
        const snug_train_result wide = train(f, "wider", words);
        const int64_t more = (int64_t)(WIDE_VOCABULARY - VOCABULARY) * 32 * 4;
        /* Minus the rounding of the narrow table's size. */
        assert_true(wide.memory[SNUG_MEMORY_WEIGHTS].planned > narrow.memory[SNUG_MEMORY_WEIGHTS].planned + more - 256);
        assert_true(wide.memory[SNUG_MEMORY_GRADIENTS].planned <
                    narrow.memory[SNUG_MEMORY_GRADIENTS].planned + more / 8);
        assert_true(narrow.train_loss == wide.train_loss);
        assert_int_equal(narrow.metrics->count, wide.metrics->count);
        if (narrow.metrics->count)
            assert_true(metric_of(narrow.metrics, "eval_loss") == metric_of(wide.metrics, "eval_loss"));
        assert_same_but_wider(f, path_of(f, "narrow/model.safetensors"), path_of(f, "wider/model.safetensors"), 30);
        const char *a = path_of(f, "narrow/checkpoint-%d/optimizer.safetensors", (int)narrow.steps);
        assert_same_but_wider(f, a, path_of(f, "wider/checkpoint-%d/optimizer.safetensors", (int)narrow.steps), 30);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "narrow")));
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "wider")));
    }
}

#define WORD_TABLE "bert.embeddings.word_embeddings.weight"

static void assert_same_table(const struct fixture *f, snug_session *sessions[2], bool gradients) {
    enum { NARROW = VOCABULARY * 32, WIDE = WIDE_VOCABULARY * 32 };
    static float values[2][WIDE];
    for (int i = 0; i < 2; i++)
        ok(f, gradients ? snug_get_gradient(sessions[i], WORD_TABLE, values[i], i ? WIDE : NARROW)
                        : snug_get_parameter(sessions[i], WORD_TABLE, values[i], i ? WIDE : NARROW));
    assert_memory_equal(values[0], values[1], NARROW * sizeof(float));
    for (int i = NARROW; gradients && i < WIDE; i++) assert_true(values[1][i] == 0);
}

/* A user's loop may zero gradients and read everything at any time. */
FIXTURE_TEST(test_lazy_rows_in_own_loop) {
    snug_session *sessions[2];
    snug_args *args[2];
    for (int i = 0; i < 2; i++) {
        args[i] =
            training_args(f, i ? "config_name=@wide gradient_accumulation_steps=2" : "gradient_accumulation_steps=2");
        ok(f, snug_session_create(args[i], &sessions[i]));
        ok(f, snug_session_begin_epoch(sessions[i], 0));
    }
    const snug_batch_info *batch;
    for (int number = 0; number < 10; number++) {
        for (int i = 0; i < 2; i++) {
            double loss;
            ok(f, snug_next_batch(sessions[i], &batch));
            ok(f, snug_forward(sessions[i]));
            ok(f, snug_loss(sessions[i], &loss));
            ok(f, snug_backward(sessions[i]));
            if (number % 4 == 2) ok(f, snug_zero_grad(sessions[i]));
            if (number % 4 == 3) ok(f, snug_clip_grad_norm(sessions[i], 0.1, NULL));
        }
        if (number % 4 != 2) assert_same_table(f, sessions, true);
        for (int i = 0; i < 2 && batch->last_in_step; i++) {
            ok(f, snug_optimizer_step(sessions[i]));
            ok(f, snug_scheduler_step(sessions[i]));
            ok(f, snug_zero_grad(sessions[i]));
        }
        if (number % 4 == 1) assert_same_table(f, sessions, false);
    }
    assert_same_table(f, sessions, false);
    for (int i = 0; i < 2; i++) {
        snug_session_destroy(sessions[i]);
        snug_args_destroy(args[i]);
    }
}

/* ---- update inside backward ----------------------------------------------------------------------------------- */

FIXTURE_TEST(test_update_in_backward_changes_no_bit) {
    static const char *const ways[] = {"recompute=none",  "recompute=elementwise",          "recompute=attention",
                                       "recompute=layer", "recompute=layer,none",           "recompute=ffn",
                                       "max_grad_norm=0", "max_grad_norm=0 recompute=layer"};
    static const char *const steps[] = {"", " gradient_accumulation_steps=2"};
    static const char *const tasks[] = {"", " bf16=True", " task=mlm line_by_line=True train_file=@train.txt",
                                        " dtype=bfloat16 task=mlm line_by_line=True train_file=@train.txt"};
    for (size_t task = 0; task < sizeof tasks / sizeof *tasks; task++)
        for (size_t step = 0; step < 2; step++)
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                char words[256];
                if (!is_chosen((long)(task + step + i), 3)) continue;
                /* A norm that most steps exceed, so that clipping has an effect. */
                const char *norm = strstr(ways[i], "max_grad_norm") ? "" : "max_grad_norm=0.5 ";
                snprintf(words, sizeof words, "%s%s%s%s", norm, ways[i], steps[step], tasks[task]);
                train(f, "after", words);
                snprintf(words, sizeof words, "%s%s%s%s update_in_backward=True", norm, ways[i], steps[step],
                         tasks[task]);
                train(f, "inside", words);
                assert_same_model(f, "after", "inside");
            }
}

/* All that is in the arena: without the context, whose size belongs to the process and depends on earlier runs. */
static int64_t allocated(const snug_train_result *result) {
    int64_t sum = 0;
    for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++) sum += result->memory[i].planned;
    return sum;
}

/* Gradients are never all allocated at the same time. */
FIXTURE_TEST(test_update_in_backward_frees_gradients) {
    const snug_train_result after = train(f, "after", "task=mlm line_by_line=True train_file=@train.txt"),
                            inside = train(f, "inside",
                                           "task=mlm line_by_line=True train_file=@train.txt "
                                           "update_in_backward=True");
    const int64_t weights = after.memory[SNUG_MEMORY_WEIGHTS].planned;
    assert_int_equal(after.memory[SNUG_MEMORY_GRADIENTS].planned, weights);
    assert_true(inside.memory[SNUG_MEMORY_GRADIENTS].planned < weights / 2);
    assert_true(allocated(&inside) < allocated(&after));
}

/* ---- frozen parts --------------------------------------------------------------------------------------------- */

/* Exactly the tensors whose name contains one of parts (up to NULL) have the same bits in both models. */
static void assert_frozen(const struct fixture *f, const char *before, const char *after, const char *const parts[]) {
    struct snug_safetensors a, b;
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "%s/model.safetensors", before), &a));
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "%s/model.safetensors", after), &b));
    for (size_t i = 0; i < a.count; i++) {
        const struct snug_stored_tensor *x = &a.tensors[i], *y = snug_safetensors_find(&b, x->name);
        const size_t count = (size_t)x->count;
        float *values = calloc(2 * count, sizeof *values);
        bool frozen = false;
        assert_non_null(values);
        ok(f, snug_safetensors_read(f->ctx, &a, x, 0, x->count, values));
        ok(f, snug_safetensors_read(f->ctx, &b, y, 0, x->count, values + count));
        for (const char *const *part = parts; *part; part++) frozen |= strstr(x->name, *part) != NULL;
        if ((memcmp(values, values + count, count * sizeof *values) == 0) != frozen)
            fail_msg("%s %s", x->name, frozen ? "changes" : "stays");
        free(values);
    }
    snug_safetensors_close(&a);
    snug_safetensors_close(&b);
}

FIXTURE_TEST(test_frozen_parts_stay_as_they_are) {
    static const struct {
        const char *freeze, *parts[4];
    } cases[] = {
        {"embeddings", {"embeddings"}}, {"embeddings,layer.0", {"embeddings", "layer.0."}},
        {"layer.1", {"layer.1."}},      {"layer.0-1", {"layer.0.", "layer.1."}},
        {"base_model", {"bert."}},
    };
    static const char *const ways[] = {"recompute=layer", "recompute=ffn", "update_in_backward=True",
                                       "offload=weights,gradients,optimizer,activations"};
    train(f, "start", "learning_rate=0");
    const snug_train_result all = train(f, "all", "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        snprintf(words, sizeof words, "freeze=%s", cases[i].freeze);
        const snug_train_result frozen = train(f, "frozen", words);
        assert_frozen(f, "start", "frozen", cases[i].parts);
        assert_true(frozen.memory[SNUG_MEMORY_GRADIENTS].planned < all.memory[SNUG_MEMORY_GRADIENTS].planned);
        assert_true(frozen.memory[SNUG_MEMORY_OPTIMIZER].planned < all.memory[SNUG_MEMORY_OPTIMIZER].planned);
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            snprintf(words, sizeof words, "freeze=%s %s", cases[i].freeze, ways[way]);
            train(f, "way", words);
            assert_same_model(f, "frozen", "way");
        }
    }
    assert_true(train(f, "frozen", "freeze=embeddings,layer.0-1").memory[SNUG_MEMORY_ACTIVATIONS].planned <
                all.memory[SNUG_MEMORY_ACTIVATIONS].planned);
}

/* Writes a model folder's weights again, in another type. */
static void convert_model(const struct fixture *f, const char *folder, enum snug_dtype dtype) {
    const char *path = path_of(f, "%s/model.safetensors", folder);
    struct values_to_write values[64];
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, NULL, path, &files));
    assert_true(files.count <= 64);
    for (size_t i = 0; i < files.count; i++) {
        const struct snug_stored_tensor *t = &files.tensors[i];
        float *singles = calloc((size_t)t->count, sizeof *singles);
        uint16_t *halves = calloc((size_t)t->count, sizeof *halves);
        ok(f, snug_safetensors_read(f->ctx, &files, t, 0, t->count, singles));
        for (int64_t k = 0; k < t->count; k++)
            halves[k] = dtype == SNUG_F16 ? snug_f32_to_f16(singles[k]) : snug_f32_to_bf16(singles[k]);
        values[i] = (struct values_to_write){t->name, dtype, t->dims, {t->shape[0], t->shape[1]}, halves};
        free(singles);
    }
    ok(f, write_tensors(f->ctx, path, values, files.count));
    for (size_t i = 0; i < files.count; i++) free((void *)(uintptr_t)values[i].data);
    snug_safetensors_close(&files);
}

/* A frozen weight is stored in the compute type alone, and saved with the values of the file it was loaded from,
   whatever their type; a resumed training has them, too. */
FIXTURE_TEST(test_frozen_weights_in_16_bits) {
    static const struct {
        const char *freeze, *parts[4];
    } cases[] = {
        {"base_model", {"bert."}}, {"embeddings,layer.0", {"embeddings", "layer.0."}}, {"layer.1", {"layer.1."}}};
    static const enum snug_dtype types[] = {SNUG_F32, SNUG_BF16, SNUG_F16};
    for (size_t type = 0; type < 3; type++) {
        train(f, "start", "max_steps=1");
        if (types[type] != SNUG_F32) convert_model(f, "start", types[type]);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char words[512];
            snprintf(words, sizeof words,
                     "model_name_or_path=@start config_name= bf16=True max_steps=4 validation_file=@dev.csv "
                     "save_strategy=steps save_steps=2 eval_strategy=steps eval_steps=2 freeze=%s",
                     cases[i].freeze);
            train(f, "frozen", words);
            assert_frozen(f, "start", "frozen", cases[i].parts);
            assert_frozen(f, "start", "frozen/checkpoint-2", cases[i].parts);
            strcat(words, " resume_from_checkpoint=@frozen/checkpoint-2");
            train(f, "resumed", words);
            assert_same_model(f, "frozen", "resumed");
        }
    }
}

/* The values are read from the file when they are saved: it may be removed meanwhile, but not changed. */
FIXTURE_TEST(test_source_of_frozen_weights) {
    static const char name[] = "bert.encoder.layer.0.intermediate.dense.weight";
    enum { COUNT = 32 * 128 };
    snug_session *session;
    float values[COUNT], saved[COUNT];
    struct snug_safetensors files;
    if (!snug_backend_cpu_fast_bf16()) skip(); /* weights stay in fp32 */
    train(f, "start", "max_steps=1");
    train(f, "kept", "max_steps=1");
    snug_args *args = training_args(f, "model_name_or_path=@start config_name= bf16=True freeze=layer.0");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "start")));
    ok(f, snug_save_model(session, path_of(f, "saved")));
    assert_same_model(f, "kept", "saved");
    /* What the caller sets is rounded as it is set. */
    for (int i = 0; i < COUNT; i++) values[i] = 1 + (float)i * 0x1p-20f;
    ok(f, snug_set_parameter(session, name, values, COUNT));
    ok(f, snug_save_model(session, path_of(f, "set")));
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "set/model.safetensors"), &files));
    ok(f, snug_safetensors_read(f->ctx, &files, snug_safetensors_find(&files, name), 0, COUNT, saved));
    for (int i = 0; i < COUNT; i++) assert_true(saved[i] == snug_bf16_to_f32(snug_f32_to_bf16(values[i])));
    ok(f, snug_get_parameter(session, name, values, COUNT));
    assert_memory_equal(values, saved, sizeof saved);
    snug_safetensors_close(&files);
    snug_session_destroy(session);

    set_args(f, args, "model_name_or_path=@kept");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "kept/model.safetensors"), &files));
    const struct snug_stored_tensor *stored = snug_safetensors_find(&files, name);
    const int fd = open(path_of(f, "kept/model.safetensors"), O_WRONLY);
    const float other = 7;
    ok(f, snug_write_at(f->ctx, fd, "kept", &other, sizeof other, (int64_t)stored->offset + 400));
    close(fd);
    assert_int_equal(snug_save_model(session, path_of(f, "other")), SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "kept/model.safetensors: tensor bert.encoder.layer.0.intermediate");
    assert_contains(snug_error_message(f->ctx), "were changed in the file since they were loaded");
    snug_safetensors_close(&files);
    snug_session_destroy(session);

    /* More than the type has. */
    values[0] = 3.4e38f;
    const struct values_to_write large = {name, SNUG_F32, 2, {128, 32}, values};
    ok(f, write_tensors(f->ctx, path_of(f, "kept/model.safetensors"), &large, 1));
    assert_int_equal(snug_session_create(args, &session), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "holds 3.4e+38 at element 0, more than bfloat16 has");
    assert_contains(snug_error_message(f->ctx), "in which frozen weights are stored");
    snug_args_destroy(args);
}

/* The decoder of masked LM is the word embedding: only its bias is trained. */
FIXTURE_TEST(test_frozen_tables_of_masked_lm_stay) {
    train(f, "start", "task=mlm line_by_line=True train_file=@train.txt learning_rate=0");
    train(f, "frozen", "task=mlm line_by_line=True train_file=@train.txt freeze=embeddings");
    assert_frozen(f, "start", "frozen", (const char *const[]){"embeddings", NULL});
}

TEST_IN(test_wrong_parts_are_refused, void *fixture, set_up, tear_down) {
    static const char *const cases[][2] = {
        {"freeze=encoder", "not one of embeddings, layer.N"},
        {"freeze=embeddings,", "not one of embeddings"},
        {"freeze=layer.", "not one of embeddings"},
        {"freeze=layer.0-", "not one of embeddings"},
        {"freeze=layer.x", "not one of embeddings"},
        {"freeze=layer.2", "the model's layers 0 to 1"},
        {"freeze=layer.1-0", "the model's layers 0 to 1"},
        {"freeze=layer.99999999999999999999", "not one of embeddings"},
        {"freeze=layer.1x", "not one of embeddings"},
        {"freeze=layer.0-10", "the model's layers 0 to 1"},
    };
    check_refused(fixture, cases, sizeof cases / sizeof *cases);
}

TEST_MAIN(NULL, NULL)
