/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA adapters: what is trained, planned, saved, resumed, continued, evaluated, merged and refused. Their arithmetic
   is compared with PEFT's in test_golden. */
#include <math.h>

#include "adapted.h"
#include "inspect/plan.h"
#include "inspect/runs.h"
#include "io/safetensors.h"
#include "model/weights.h"

#define FIXTURE struct fixture *f, set_up_base, tear_down

/* "base" is a trained classifier, "llama_base" a language model. */
static int set_up_base(void **state) {
    if (set_up(state)) return 1;
    write_other_families(*state, 32);
    train(*state, "base", "max_steps=2");
    train(*state, "llama_base", "config_name=@llama line_by_line=True train_file=@train.txt max_steps=2");
    return 0;
}

#define CLASSIFIER "config_name= model_name_or_path=@base use_peft=True lora_r=4 lora_dropout=0.1 "
#define DECODER                                                                                                        \
    "config_name= model_name_or_path=@llama_base line_by_line=True train_file=@train.txt use_peft=True lora_r=4 "      \
    "lora_target_modules=all-linear lora_dropout=0.1 "

static bool has_file(const struct fixture *f, const char *run, const char *file) {
    return access(path_of(f, "%s/%s", run, file), F_OK) == 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(an_adapter_has_the_files_of_peft) {
    snug_runs *runs;
    static const char *const absent[] = {"model.safetensors", "checkpoint-4/model.safetensors"};
    static const char *const present[] = {"adapter_config.json", "checkpoint-4/adapter_config.json",
                                          "checkpoint-4/adapter_model.safetensors", "config.json"};
    struct snug_safetensors files;
    train(f, "out", CLASSIFIER "save_strategy=steps save_steps=4 max_steps=4");
    for (size_t i = 0; i < 2; i++) assert_false(has_file(f, "out", absent[i]));
    for (size_t i = 0; i < 4; i++) assert_true(has_file(f, "out", present[i]));
    if (snug_runs_create(f->ctx, &(const char *){path_of(f, "out")}, 1, &runs) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    assert_true(runs->items[0].has_model);
    snug_runs_destroy(runs);
    json_t *config = read_json(f, path_of(f, "out/adapter_config.json"));
    assert_string_equal(json_string_value(json_object_get(config, "peft_type")), "LORA");
    assert_string_equal(json_string_value(json_object_get(config, "task_type")), "SEQ_CLS");
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 4);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 32);
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 2); /* PEFT's: query, value */
    assert_int_equal(json_array_size(json_object_get(config, "modules_to_save")), 2);
    char *base = realpath(path_of(f, "base"), NULL), *card = read_text(f, path_of(f, "out/README.md"), NULL);
    assert_contains(card, "library_name: peft");
    assert_contains(card, "/base\", num_labels=2)\nmodel = PeftModel.from_pretrained(base, \"out\")");
    free(card);
    assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), base);
    free(base);
    json_decref(config);
    assert_int_equal(snug_safetensors_open(f->ctx, NULL, adapter_of(f, "out"), &files), SNUG_OK);
    assert_int_equal(files.count, 2 * 2 * 2 + 2); /* layers, targets, A and B; the classifier */
    const struct snug_stored_tensor *b =
        snug_safetensors_find(&files, "base_model.model.bert.encoder.layer.1.attention.self.query.lora_B.weight");
    assert_non_null(b);
    assert_int_equal(b->shape[0], 32);
    assert_int_equal(b->shape[1], 4);
    assert_non_null(snug_safetensors_find(&files, "base_model.model.classifier.weight"));
    snug_safetensors_close(&files);
}

/* PEFT's distributions: A uniform in +-1 / sqrt(in), or normal with 1 / r; B zeros. */
FIXTURE_TEST(adapters_are_initialised_as_in_peft) {
    train(f, "out", DECODER "learning_rate=0 max_steps=1 lora_r=32");
    struct snug_safetensors files;
    json_t *config = read_json(f, path_of(f, "out/adapter_config.json")); /* all-linear is a list there */
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 7);
    json_decref(config);
    assert_int_equal(snug_safetensors_open(f->ctx, NULL, adapter_of(f, "out"), &files), SNUG_OK);
    size_t drawn = 0;
    for (size_t i = 0; i < files.count; i++) {
        const struct snug_stored_tensor *t = &files.tensors[i];
        float *values = calloc((size_t)t->count, sizeof *values);
        assert_int_equal(snug_safetensors_read(f->ctx, &files, t, 0, t->count, values), SNUG_OK);
        const double bound = strstr(t->name, "lora_A") ? 1 / sqrt((double)t->shape[1]) : 0;
        double squares = 0, sum = 0;
        for (int64_t k = 0; k < t->count; k++) {
            assert_true(fabs((double)values[k]) <= bound);
            squares += (double)values[k] * (double)values[k];
            sum += (double)values[k];
        }
        if (bound > 0) {
            assert_true(fabs(squares / (double)t->count - bound * bound / 3) < 0.1 * bound * bound / 3);
            assert_true(fabs(sum / (double)t->count) < 0.05 * bound);
            drawn++;
        }
        free(values);
    }
    assert_int_equal(drawn, 14);
    snug_safetensors_close(&files);
}

/* ---- the same bits ------------------------------------------------------------------------------------------------
 */

FIXTURE_TEST(methods_do_not_change_an_adapter) {
    static const char *const runs[] = {CLASSIFIER,
                                       DECODER,
                                       DECODER "use_dora=True",
                                       DECODER "lora_dropout=0",
                                       DECODER "lora_target_modules=q_proj,embed_tokens bias=all",
                                       CLASSIFIER "use_dora=True bias=all lora_target_modules=query,dense"};
    static const char *const methods[] = {"threads=2",
                                          "gradient_checkpointing=True",
                                          "recompute=ffn",
                                          "recompute=attention",
                                          "offload=optimizer,weights,activations offload_dir=@.",
                                          "recompute=none"};
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[1024];
        snprintf(words, sizeof words, "%s max_steps=6", runs[run]);
        train(f, "plain", words);
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
            snprintf(words, sizeof words, "%s max_steps=6 %s", runs[run], methods[i]);
            train(f, "other", words);
            assert_same_file(f, adapter_of(f, "plain"), adapter_of(f, "other"));
        }
        snprintf(words, sizeof words, "%s max_steps=6 per_device_train_batch_size=2 gradient_accumulation_steps=4",
                 runs[run]);
        const double loss = train(f, "parts", words).train_loss;
        snprintf(words, sizeof words, "%s max_steps=6", runs[run]);
        assert_true(fabs(loss - train(f, "whole", words).train_loss) < 1e-5);
    }
}

/* Adapters that read one input have one A; a dropout, if only of one element in a billion, keeps them apart. */
FIXTURE_TEST(stacked_adapters_compute_the_same) {
    static const char *const runs[] = {DECODER, DECODER "use_rslora=True lora_target_modules=q_proj,v_proj",
                                       DECODER "lora_target_modules=k_proj,v_proj,gate_proj,up_proj lora_alpha=4",
                                       DECODER "lora_bias=True", CLASSIFIER "lora_target_modules=query,key,value"};
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[1024];
        snprintf(words, sizeof words, "%s max_steps=8 lora_dropout=0", runs[run]);
        const double stacked = train(f, "stacked", words).train_loss;
        snprintf(words, sizeof words, "%s max_steps=8 lora_dropout=1e-9", runs[run]);
        const double apart = train(f, "apart", words).train_loss;
        if (!(fabs(stacked - apart) < 1e-6)) fail_msg("%s: %.9g, apart %.9g", runs[run], stacked, apart);
    }
}

FIXTURE_TEST(a_resumed_adapter_is_uninterrupted) {
    static const char *const runs[] = {CLASSIFIER, DECODER "use_dora=True ",
                                       DECODER "lora_target_modules=q_proj,embed_tokens ", DECODER};
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[1024];
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=3 max_steps=8", runs[run]);
        train(f, "whole", words);
        assert_int_equal(try_train(f, "cut", words, 5, NULL), SNUG_E_INTERRUPTED);
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=3 max_steps=8 resume_from_checkpoint=True",
                 runs[run]);
        train(f, "cut", words);
        assert_same_file(f, adapter_of(f, "whole"), adapter_of(f, "cut"));
        snprintf(words, sizeof words, "%s lora_alpha=5 max_steps=9 resume_from_checkpoint=%s", runs[run],
                 path_of(f, "whole/checkpoint-6"));
        assert_int_equal(try_train(f, "cut", words, 0, NULL), SNUG_E_INPUT);
        assert_contains(snug_error_message(f->ctx), "adapters: lora_alpha was 32 and is 5;");
    }
    /* by a run of the other kind */
    assert_int_equal(
        try_train(f, "cut",
                  "config_name= model_name_or_path=@llama_base line_by_line=True train_file=@train.txt max_steps=9 "
                  "resume_from_checkpoint=True",
                  0, NULL),
        SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx),
                    "has LoRA adapters, and this run trains the model itself: resume with --use_peft");
    train(f, "other_base",
          "config_name=@llama line_by_line=True train_file=@train.txt max_steps=2 seed=7 "
          "save_strategy=steps save_steps=2");
    char other[1024];
    snprintf(other, sizeof other, DECODER "max_steps=9 resume_from_checkpoint=%s",
             path_of(f, "other_base/checkpoint-2"));
    assert_int_equal(try_train(f, "cut", other, 0, NULL), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx),
                    "has no LoRA adapters, and this run trains some: resume without --use_peft");
    /* beside other weights of the same shapes */
    assert_int_equal(try_train(f, "cut",
                               DECODER "model_name_or_path=@other_base save_strategy=steps save_steps=3 max_steps=8 "
                                       "resume_from_checkpoint=True",
                               0, NULL),
                     SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "other_base are not those beside which its adapters were trained");
}

/* The best checkpoint's adapters are loaded at the end. */
FIXTURE_TEST(the_best_adapter_is_loaded) {
    train(f, "out",
          CLASSIFIER "max_steps=6 validation_file=@dev.csv eval_strategy=steps eval_steps=2 save_steps=2 "
                     "save_strategy=steps load_best_model_at_end=True learning_rate=0.5");
    json_t *state = read_json(f, path_of(f, "out/trainer_state.json"));
    const char *best = json_string_value(json_object_get(state, "best_model_checkpoint"));
    assert_non_null(best);
    char path[600];
    snprintf(path, sizeof path, "%s/" SNUG_ADAPTER_WEIGHTS, best);
    assert_same_file(f, adapter_of(f, "out"), path);
    json_decref(state);
}

/* A checkpoint of the caller's loop has the adapters alone. */
FIXTURE_TEST(a_loop_saves_and_loads_adapters) {
    snug_args *args = training_args(f, CLASSIFIER "max_steps=4 output_dir=@loop");
    snug_session *session, *other;
    const snug_batch_info *batch;
    double loss[2];
    if (snug_session_create(args, &session) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(snug_session_begin_epoch(session, 0), SNUG_OK);
    if (snug_next_batch(session, &batch) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(snug_forward(session), SNUG_OK);
    assert_int_equal(snug_loss(session, &loss[0]), SNUG_OK);
    assert_int_equal(snug_backward(session), SNUG_OK);
    assert_int_equal(snug_optimizer_step(session), SNUG_OK);
    assert_int_equal(snug_scheduler_step(session), SNUG_OK);
    assert_int_equal(snug_zero_grad(session), SNUG_OK);
    assert_int_equal(snug_save_checkpoint(session, path_of(f, "saved")), SNUG_OK);
    assert_true(has_file(f, "saved", SNUG_ADAPTER_WEIGHTS) && !has_file(f, "saved", "model.safetensors"));
    assert_int_equal(snug_session_create(args, &other), SNUG_OK);
    if (snug_load_checkpoint(other, path_of(f, "saved")) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_session *const both[] = {session, other};
    for (int i = 0; i < 2; i++) {
        if (i == 1) assert_int_equal(snug_session_begin_epoch(other, 0), SNUG_OK);
        assert_int_equal(snug_next_batch(both[i], &batch), SNUG_OK);
        assert_int_equal(snug_forward(both[i]), SNUG_OK);
        assert_int_equal(snug_loss(both[i], &loss[i]), SNUG_OK);
    }
    assert_true(loss[0] == loss[1]);
    snug_session_destroy(session);
    snug_session_destroy(other);
    snug_args_destroy(args);
}

/* ---- the plan -----------------------------------------------------------------------------------------------------
 */

struct planned {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], whole[SNUG_MEMORY_CLASS_COUNT], trainable;
};

static struct planned plan_of(struct fixture *f, const char *words) {
    snug_args *args = training_args(f, words);
    snug_plan *plan;
    struct planned planned;
    if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    memcpy(planned.bytes, plan->bytes, sizeof planned.bytes);
    memcpy(planned.whole, plan->frozen.bytes, sizeof planned.whole);
    planned.trainable = plan->trainable;
    char *text;
    assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
    assert_int_equal(strstr(text, "M parameters of adapters") != NULL,
                     strstr(words, "use_peft") || strstr(words, "@out") || strstr(words, "@named"));
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    return planned;
}

/* No gradient, no state and no stored input of a frozen linear, whose weights have 16 bits and nothing else. */
FIXTURE_TEST(a_plan_knows_what_adapters_save) {
    static const char all[] = "config_name= model_name_or_path=@llama_base line_by_line=True train_file=@train.txt "
                              "recompute=none";
    char words[1024];
    const struct planned whole = plan_of(f, all);
    snprintf(words, sizeof words, "%s use_peft=True lora_r=2 lora_target_modules=q_proj,v_proj", all);
    const struct planned two = plan_of(f, words);
    /* A [2,32] and B [32,2] or [16,2] in two layers */
    assert_int_equal(two.trainable, 2 * (2 * 2 * 32 + 32 * 2 + 16 * 2));
    for (int i = 0; i < SNUG_MEMORY_BATCH; i++) assert_int_equal(two.whole[i], whole.bytes[i]); /* beside it */
    assert_true(two.bytes[SNUG_MEMORY_GRADIENTS] < whole.bytes[SNUG_MEMORY_GRADIENTS] / 20);
    assert_true(two.bytes[SNUG_MEMORY_OPTIMIZER] < whole.bytes[SNUG_MEMORY_OPTIMIZER] / 20);
    assert_true(two.bytes[SNUG_MEMORY_ACTIVATIONS] < whole.bytes[SNUG_MEMORY_ACTIVATIONS]);
    snprintf(words, sizeof words, "%s use_peft=True lora_r=2 lora_target_modules=.*layers\\.1\\..*_proj", all);
    const struct planned last = plan_of(f, words);
    assert_true(last.bytes[SNUG_MEMORY_ACTIVATIONS] < 0.7 * (double)whole.bytes[SNUG_MEMORY_ACTIVATIONS]);
    f->log[0] = '\0';
    snprintf(words, sizeof words, "%s use_peft=True gpu=H100", all);
    plan_of(f, words); /* config.json says float32 */
    assert_null(strstr(f->log, "computing in bf16"));
    if (!snug_backend_cpu_fast_bf16()) return;
    snprintf(words, sizeof words, "%s use_peft=True lora_r=2 lora_target_modules=q_proj,v_proj bf16=True", all);
    const struct planned half = plan_of(f, words);
    assert_true(half.bytes[SNUG_MEMORY_WEIGHTS] < 0.6 * (double)two.bytes[SNUG_MEMORY_WEIGHTS]);
}

/* ---- adapters' folders --------------------------------------------------------------------------------------------
 */

/* The folder names its base; or both are named; a moved base is found by its name alone. Continued, by either way, the
   adapter is the same. */
FIXTURE_TEST(an_adapter_folder_is_a_model) {
    static const char data[] = "validation_file=@dev.csv threads=1 ";
    char words[1024];
    train(f, "out", CLASSIFIER "learning_rate=0.05 max_steps=6");
    snprintf(words, sizeof words, "%smodel_name_or_path=@out", data);
    const double loss = eval_loss_of(f, words);
    snprintf(words, sizeof words, "%smodel_name_or_path=@base adapter_name_or_path=@out", data);
    assert_true(loss == eval_loss_of(f, words));
    snprintf(words, sizeof words, "%smodel_name_or_path=@base", data);
    assert_true(fabs(loss - eval_loss_of(f, words)) > 1e-3);
    train(f, "first", "config_name= model_name_or_path=@out max_steps=3");
    train(f, "second", "config_name= model_name_or_path=@base adapter_name_or_path=@out max_steps=3 use_peft=True");
    assert_same_file(f, adapter_of(f, "first"), adapter_of(f, "second"));
    assert_false(same_file(f, adapter_of(f, "first"), adapter_of(f, "out")));
    plan_of(f, "config_name= model_name_or_path=@out");
    /* the merged model, in shards */
    run_merge(f, "model_name_or_path=@out output_dir=@merged max_shard_size=20KB threads=2");
    assert_true(has_file(f, "merged", "model.safetensors.index.json") && has_file(f, "merged", "vocab.txt"));
    snprintf(words, sizeof words, "%smodel_name_or_path=@merged", data);
    assert_true(fabs(loss - eval_loss_of(f, words)) < 1e-5);
    run_merge(f, "model_name_or_path=@out output_dir=@merged dtype=bfloat16"); /* again, into the same folder */
    assert_false(has_file(f, "merged", "model.safetensors.index.json"));
    assert_true(fabs(loss - eval_loss_of(f, words)) < 0.02);
}

/* An adapter's folder has a tokenizer if it has a vocabulary; else the base model's is used, by each command. */
FIXTURE_TEST(an_adapter_without_a_vocabulary_has_the_tokenizer_of_its_base) {
    static const char *const others[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                         "chat_template.jinja"};
    static const char words[] = "validation_file=@dev.csv threads=1 model_name_or_path=@out";
    train(f, "out", CLASSIFIER "learning_rate=0.05 max_steps=6");
    const double loss = eval_loss_of(f, words);
    assert_true(has_file(f, "out", "vocab.txt"));
    assert_int_equal(unlink(path_of(f, "out/vocab.txt")), 0);
    unlink(path_of(f, "out/tokenizer.json"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char name[64];
        snprintf(name, sizeof name, "out/%s", others[i]);
        write_text(f, name, "{}");
        assert_true(loss == eval_loss_of(f, words));
        run_merge(f, "model_name_or_path=@out output_dir=@merged");
        assert_true(has_file(f, "merged", "vocab.txt"));
    }
}

/* PEFT's folders, without config.json, and with every way to name targets: merged, they give the same. Where there is
   one table for the output and the words, and one of them has an adapter, there are two afterwards. */
FIXTURE_TEST(adapters_of_peft_are_merged) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/lora/cases.json", 0, NULL), *c;
    size_t index, refused = 0;
    json_array_foreach(json_object_get(cases, "cases"), index, c) {
        char words[1024], folders[700];
        const char *task = json_string_value(json_object_get(c, "task"));
        const char *name = json_string_value(json_object_get(c, "name"));
        const bool output = strstr(name, "/output") || strstr(name, "words") || strstr(name, "biases");
        const bool transposed = strncmp(name, "gpt2/", 5) == 0;
        if (index % (is_long() ? 1 : SANITIZED ? 12 : 4) && !output && !transposed) continue;
        snprintf(folders, sizeof folders,
                 "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/lora/%s adapter_name_or_path=" SNUG_SOURCE_DIR
                 "/tests/golden/lora/%s task=%s threads=1",
                 json_string_value(json_object_get(c, "base")), json_string_value(json_object_get(c, "folder")), task);
        snprintf(words, sizeof words, "%s output_dir=@merged%zu dtype=float32", folders, index);
        snug_args *args = plain_args(f, words);
        const snug_status status = snug_merge(args);
        snug_args_destroy(args);
        if (status == SNUG_E_UNSUPPORTED) { /* a bias beside linears without */
            assert_contains(snug_error_message(f->ctx), "lora_bias");
            refused++;
            continue;
        }
        if (status != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
        snprintf(words, sizeof words, "%s validation_file=dummy:8x4-20", folders);
        const double loss = eval_loss_of(f, words);
        snprintf(words, sizeof words, "model_name_or_path=@merged%zu task=%s threads=1 validation_file=dummy:8x4-20",
                 index, task);
        const double merged = eval_loss_of(f, words);
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", folders, loss, merged);
    }
    assert_int_equal(refused, 2); /* ModernBERT and Qwen2 */
    json_decref(cases);
}

/* Adapters of tables and biases are saved, read, continued and merged as those of linears. */
FIXTURE_TEST(adapters_of_tables_and_biases) {
    static const struct {
        const char *words, *data, *tensor;
    } runs[] = {
        {DECODER "lora_target_modules=embed_tokens,q_proj lora_r=3", "dummy:8x8", "embed_tokens.lora_embedding_A"},
        {DECODER "lora_target_modules=embed_tokens,lm_head lora_r=1", "dummy:8x8", "lm_head.lora_B.weight"},
        {CLASSIFIER "lora_target_modules=word_embeddings bias=all", "@dev.csv", "embeddings.LayerNorm.bias"},
        {CLASSIFIER "bias=lora_only lora_bias=True", "@dev.csv", "query.base_layer.bias"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        struct snug_safetensors files;
        snprintf(words, sizeof words, "%s lora_dropout=0 learning_rate=0.1 max_steps=4", runs[i].words);
        train(f, "out", words);
        assert_int_equal(snug_safetensors_open(f->ctx, NULL, adapter_of(f, "out"), &files), SNUG_OK);
        bool found = false;
        for (size_t k = 0; k < files.count; k++) found |= strstr(files.tensors[k].name, runs[i].tensor) != NULL;
        assert_true(found);
        snug_safetensors_close(&files);
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 validation_file=%s", runs[i].data);
        const double loss = eval_loss_of(f, words);
        run_merge(f, "model_name_or_path=@out output_dir=@merged");
        snprintf(words, sizeof words, "model_name_or_path=@merged threads=1 validation_file=%s", runs[i].data);
        const double merged = eval_loss_of(f, words);
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", runs[i].words, loss, merged);
        snprintf(words, sizeof words, "config_name= model_name_or_path=@out learning_rate=0 max_steps=1 %s",
                 i < 2 ? "line_by_line=True train_file=@train.txt" : "");
        train(f, "again", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "again"));
    }
    plan_of(f, DECODER "lora_target_modules=all-linear"); /* which the word table is not */
}

/* DoRA begins as the base model, however its weights are stored; trained, it is merged. */
FIXTURE_TEST(dora_begins_with_the_lengths_of_the_weights) {
    static const struct {
        const char *base, *words, *data;
    } runs[] = {
        {"@llama_base", "line_by_line=True train_file=@train.txt", "dummy:8x8"},
        {SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm",
         "task=clm tokenizer_name= train_file=dummy:8x8 lora_target_modules=c_attn,c_fc", "dummy:8x8"},
        {"@base", "lora_target_modules=all-linear lora_dropout=0.2", "@dev.csv"},
        {SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm",
         "task=clm tokenizer_name= train_file=dummy:8x8 lora_target_modules=c_attn,c_fc load_in_4bit=True "
         "bnb_4bit_compute_dtype=float32",
         "dummy:8x8"},
        {"@llama_base", "line_by_line=True train_file=@train.txt load_in_4bit=True bnb_4bit_compute_dtype=float32",
         "dummy:8x8"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const bool quantized = strstr(runs[i].words, "4bit");
        for (int trained = 0; trained < 2; trained++) {
            char words[1024];
            snprintf(words, sizeof words, "config_name= model_name_or_path=%s use_peft=True use_dora=True %s %s",
                     runs[i].base, runs[i].words,
                     trained ? "learning_rate=0.05 max_steps=3" : "learning_rate=0 max_steps=1");
            train(f, "out", words);
            snprintf(words, sizeof words, "model_name_or_path=@out threads=1 validation_file=%s", runs[i].data);
            const double loss = eval_loss_of(f, words);
            if (trained) run_merge(f, "model_name_or_path=@out output_dir=@merged dtype=float32");
            snprintf(words, sizeof words, "model_name_or_path=%s threads=1 validation_file=%s %s",
                     trained ? "@merged" : runs[i].base, runs[i].data,
                     quantized && !trained ? "load_in_4bit=True bnb_4bit_compute_dtype=float32" : "");
            const double other = eval_loss_of(f, words);
            if (!(fabs(loss - other) < 2e-5 * fmax(1, loss)) && !(i == 2 && !trained)) /* its classifier is new */
                fail_msg("%s %d: %g and %g", runs[i].words, trained, loss, other);
        }
    }
}

static void refuse_merge(struct fixture *f, const char *words, snug_status expected, const char *message) {
    snug_args *args = plain_args(f, words);
    assert_failed(f, words, snug_merge(args), expected, message);
    snug_args_destroy(args);
}

/* Beside a model that is stored in 4 bits; merged into the one that it was quantized from. */
FIXTURE_TEST(adapters_of_a_quantized_model) {
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/"
    train(f, "out",
          "config_name= tokenizer_name= model_name_or_path=" GOLDEN
          "quantized/nf4 task=clm train_file=dummy:16x8 use_peft=True "
          "max_seq_length=20 max_steps=2");
    run_merge(f, "model_name_or_path=" GOLDEN "families/llama/clm adapter_name_or_path=@out output_dir=@merged");
    json_t *config = read_json(f, path_of(f, "merged/config.json"));
    assert_null(json_object_get(config, "quantization_config"));
    json_decref(config);
    eval_loss_of(f, "model_name_or_path=@merged task=clm validation_file=dummy:8x8 threads=1");
    /* GPT-2's weights are the transpose of what is stored as codes */
    train(f, "out",
          "config_name= tokenizer_name= model_name_or_path=" GOLDEN "quantized/conv1d train_file=dummy:16x8 "
          "use_peft=True task=clm lora_target_modules=c_attn,c_proj learning_rate=0.1 "
          "max_seq_length=20 max_steps=2");
    run_merge(f, "model_name_or_path=@out output_dir=@merged dtype=float32");
    const double loss = eval_loss_of(f, "model_name_or_path=@out task=clm validation_file=dummy:8x8 threads=1");
    const double merged = eval_loss_of(f, "model_name_or_path=@merged task=clm validation_file=dummy:8x8 threads=1");
    if (!(fabs(loss - merged) < 2e-5)) fail_msg("%g and %g", loss, merged);
#undef GOLDEN
}

/* ---- refusals -----------------------------------------------------------------------------------------------------
 */

FIXTURE_TEST(arguments_are_refused) {
    static const struct {
        const char *words, *message;
        snug_status status;
    } cases[] = {
        {"lora_r=4", "--lora_r is for LoRA adapters: give --use_peft, too", SNUG_E_USAGE},
        {"use_peft=True", "give --model_name_or_path", SNUG_E_USAGE},
        {CLASSIFIER "lora_target_modules=q_proj",
         "no linear \"q_proj\" that can have an adapter; it has: "
         "attention.self.query attention.self.key",
         SNUG_E_USAGE},
        {CLASSIFIER "lora_target_modules=query,classifier", "no linear \"classifier\"", SNUG_E_USAGE},
        {CLASSIFIER "lora_target_modules=.*nothing.*", "no linear of the model matches; it has: ", SNUG_E_USAGE},
        {CLASSIFIER "lora_target_modules=(query", "(query", SNUG_E_UNSUPPORTED},
        {CLASSIFIER "lora_modules_to_save=nowhere", "in a module \"nowhere\"; it has: bert.embeddings.word_embeddings ",
         SNUG_E_USAGE},
        {CLASSIFIER "use_dora=True lora_bias=True", "lora_bias and use_dora exclude each other", SNUG_E_USAGE},
        {CLASSIFIER "use_dora=True lora_target_modules=word_embeddings", "for which DoRA is not supported",
         SNUG_E_UNSUPPORTED},
        {CLASSIFIER "freeze=embeddings", "--freeze: with --use_peft", SNUG_E_USAGE},
        {"freeze=layer.0-7", "is not a range of the model's layers", SNUG_E_USAGE},
        {CLASSIFIER "lora_target_modules=word_embeddings lora_bias=True", "lora_bias: bert.embeddings.word_embeddings",
         SNUG_E_UNSUPPORTED},
        {CLASSIFIER "lora_task_type=CAUSAL_LM", "the task is classification, which is SEQ_CLS", SNUG_E_USAGE},
        {CLASSIFIER "rank_pattern={\"query\":0}", "rank_pattern of \"query\" must be a number", SNUG_E_INPUT},
        {CLASSIFIER "alpha_pattern=@missing.json", "missing.json", SNUG_E_IO},
        {CLASSIFIER "alpha_pattern={\"a\"", "alpha_pattern", SNUG_E_INPUT},
        {"config_name= model_name_or_path=@mlm task=mlm train_file=@train.txt use_peft=True lora_task_type=SEQ_CLS",
         "the task is mlm: leave it out", SNUG_E_USAGE},
        {"config_name= model_name_or_path=@mpnet_base use_peft=True", "PEFT has no default of target_modules",
         SNUG_E_USAGE},
        {"config_name= model_name_or_path=@out lora_r=8", "has its own settings: leave it out", SNUG_E_USAGE},
        {"config_name= model_name_or_path=@nameless", "names no base_model_name_or_path", SNUG_E_INPUT},
    };
    train(f, "out", CLASSIFIER "max_steps=1");
    train(f, "mlm", "task=mlm train_file=@train.txt max_steps=1");
    train(f, "mpnet_base", "config_name=@mpnet max_steps=1");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "nameless")), SNUG_OK);
    write_text(f, "nameless/adapter_config.json", "{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f->log[0] = '\0';
        assert_failed(f, cases[i].words, try_train(f, "refused", cases[i].words, 0, NULL), cases[i].status,
                      cases[i].message);
        if (strstr(f->log, " tokens; ")) fail_msg("%s: %s", cases[i].words, f->log); /* before the data is read */
    }
}

/* --fit changes how adapters are trained; where nothing fits, it names what would need less, and does not choose it. */
FIXTURE_TEST(adapters_fit) {
    static const struct {
        const char *words, *message;
    } runs[] = {
        {"config_name= model_name_or_path=@base", "; --fit never chooses another training: LoRA (--use_peft"},
        {CLASSIFIER, "training: QLoRA (--load_in_4bit) would take"},
        {CLASSIFIER "load_in_4bit=True bnb_4bit_compute_dtype=float32", "no mix of methods fits"},
    };
    char words[1024];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(words, sizeof words, "%s fit=True memory_budget=1MiB", runs[i].words);
        assert_int_equal(try_train(f, "refused", words, 0, NULL), SNUG_E_DOES_NOT_FIT);
        assert_contains(snug_error_message(f->ctx), runs[i].message);
        assert_true(i < 2 || !strstr(snug_error_message(f->ctx), "--use_peft"));
    }
}

static void refuse_evaluation(struct fixture *f, const char *words, snug_status expected, const char *message) {
    snug_args *args = plain_args(f, words);
    assert_failed(f, words, snug_evaluate(args, NULL, NULL), expected, message);
    snug_args_destroy(args);
}

/* A classifier on a masked language model: its pooler is drawn, and frozen unless it is to be saved. */
FIXTURE_TEST(drawn_weights_are_warned_of) {
    static const char words[] = "config_name= model_name_or_path=@mlm use_peft=True max_steps=1";
    char more[256];
    train(f, "mlm", "task=mlm train_file=@train.txt max_steps=1");
    train(f, "out", words);
    assert_contains(f->log, "adapters are trained beside their random values");
    refuse_merge(f, "model_name_or_path=@out output_dir=@merged", SNUG_E_INPUT, "drawn at random");
    f->log[0] = '\0';
    snprintf(more, sizeof more, "%s lora_modules_to_save=pooler", words);
    train(f, "out", more);
    assert_null(strstr(f->log, "random values"));
    run_merge(f, "model_name_or_path=@out output_dir=@merged");
    /* lengths of weights that are drawn; and a head that is not in the files of a model whose table becomes two */
    static const char mlm[] =
        "config_name= model_name_or_path=@base task=mlm train_file=@train.txt use_peft=True max_steps=1 ";
    snprintf(more, sizeof more, "%s use_dora=True lora_target_modules=query,transform.dense", mlm);
    train(f, "out", more);
    snprintf(more, sizeof more, "%s lora_target_modules=word_embeddings", mlm);
    train(f, "out", more);
    refuse_merge(f, "model_name_or_path=@out output_dir=@merged task=mlm", SNUG_E_INPUT, "drawn at random");
}

/* Each task, and each kind of module that is trained as a whole. */
FIXTURE_TEST(all_kinds_of_adapters_are_evaluated) {
    static const struct {
        const char *words, *data;
    } runs[] = {
        {"model_name_or_path=@mlm task=mlm train_file=@train.txt use_peft=True "
         "lora_modules_to_save=intermediate.dense bias=lora_only",
         "dummy:8x8"},
        {"model_name_or_path=@llama_base task=classification use_peft=True lora_target_modules=,q_proj,",
         "@dev.csv"}, /* a classifier: score */
        {CLASSIFIER "lora_target_modules=dense lora_modules_to_save=attention.self.key lora_task_type=SEQ_CLS "
                    "max_shard_size=20KB",
         "@dev.csv"},
        {"model_name_or_path=@mlm task=ner train_file=@train.conll use_peft=True", "@train.conll"},
    };
    train(f, "mlm", "task=mlm train_file=@train.txt max_steps=1 max_shard_size=20KB");
    write_words(f, "train.conll", TRAIN_ROWS, 1);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        snprintf(words, sizeof words, "config_name= max_steps=1 %s", runs[i].words);
        train(f, "out", words);
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 validation_file=%s", runs[i].data);
        eval_loss_of(f, words);
        assert_int_equal(unlink(path_of(f, "out/config.json")), 0); /* as PEFT leaves it: the classes are counted */
        if (i) eval_loss_of(f, i == 2 ? words : "model_name_or_path=@out validation_file=dummy:8x8 threads=1");
    }
    /* without an adapter its arguments do nothing */
    assert_true(eval_loss_of(f, "model_name_or_path=@base validation_file=@dev.csv threads=1") ==
                eval_loss_of(f, "model_name_or_path=@base validation_file=@dev.csv threads=1 use_peft=True lora_r=4"));
    assert_true(eval_loss_of(f, "model_name_or_path=@base validation_file=@dev.csv threads=1") ==
                eval_loss_of(f, "model_name_or_path=@base validation_file=@dev.csv threads=1 lora_r=4"));
    plan_of(f, "config_name=@model use_peft=True"); /* without weights */
    train(f, "named", CLASSIFIER "max_steps=1");
    plan_of(f, "config_name= model_name_or_path=@base adapter_name_or_path=@named");
    assert_int_equal(unlink(path_of(f, "named/vocab.txt")), 0); /* then the base's tokenizer is used */
    assert_int_equal(unlink(path_of(f, "named/tokenizer_config.json")), 0);
    const double loss = eval_loss_of(f, "model_name_or_path=@named validation_file=@dev.csv threads=1");
    assert_true(loss ==
                eval_loss_of(f, "model_name_or_path=@named config_name=@base validation_file=@dev.csv threads=1"));
    run_merge(f, "model_name_or_path=@named output_dir=@merged");
    write_text(f, "named/tokenizer.json", "{}"); /* its own goes first */
    refuse_evaluation(f, "model_name_or_path=@named validation_file=@dev.csv threads=1", SNUG_E_UNSUPPORTED,
                      "named/tokenizer.json");
}

/* Weights in 16 bits, in shards, with constants of older versions, and larger than what is merged at a time. */
FIXTURE_TEST(all_kinds_of_models_are_merged) {
#define GOLDEN_MODEL "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/model/"
    static const char *const runs[] = {
        GOLDEN_MODEL "half train_file=dummy:16x8",
        GOLDEN_MODEL "bfloat train_file=dummy:16x8",
        GOLDEN_MODEL "sharded train_file=dummy:16x8",
        GOLDEN_MODEL "old_names task=mlm train_file=dummy:16x8",
        "model_name_or_path=@large_base tokenizer_name=@model",
        "model_name_or_path=@large_base tokenizer_name=@model load_in_4bit=True bnb_4bit_compute_dtype=float32",
    };
    write_model(f, "large", 0.1, 260, 1, VOCABULARY);
    train(f, "large_base", "config_name=@large max_steps=1");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        snprintf(words, sizeof words,
                 "config_name= tokenizer_name= max_steps=2 learning_rate=0.01 use_peft=True "
                 "lora_target_modules=all-linear %s",
                 runs[i]);
        train(f, "out", words);
        run_merge(f, "model_name_or_path=@out output_dir=@merged");
        const char *data = strstr(runs[i], "dummy") ? "dummy:8x8" : "@dev.csv";
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 validation_file=%s", data);
        const double loss = eval_loss_of(f, words);
        snprintf(words, sizeof words, "model_name_or_path=@merged threads=1 validation_file=%s", data);
        assert_true(fabs(loss - eval_loss_of(f, words)) < 2e-2);
    }
    write_text(f, "merged/adapter_config.json", "{}"); /* beside a whole model: a warning */
    eval_loss_of(f, "model_name_or_path=@merged validation_file=@dev.csv threads=1");
    run_merge(f, "model_name_or_path=@out output_dir=@shards max_shard_size=20KB");
    write_text(f, "shards/adapter_config.json", "{}");
    eval_loss_of(f, "model_name_or_path=@shards validation_file=@dev.csv threads=1");
#undef GOLDEN_MODEL
}

/* Replaces a part of a file by another one, padded with spaces. */
static void patch(const struct fixture *f, const char *path, const char *old, const char *new) {
    size_t size, at = 0;
    char *bytes = read_text(f, path, &size);
    while (at + strlen(old) <= size && memcmp(bytes + at, old, strlen(old)) != 0) at++;
    assert_true(at + strlen(old) <= size);
    memset(bytes + at, ' ', strlen(old));
    memcpy(bytes + at, new, strlen(new));
    write_bytes(path, bytes, size);
    free(bytes);
}

/* Weights that are not those of the settings beside them. */
FIXTURE_TEST(other_weights_are_refused) {
    static const char evaluated[] = "model_name_or_path=@wrong validation_file=@dev.csv threads=1";
    static const char merged[] = "model_name_or_path=@wrong output_dir=@merged threads=1";
    train(f, "wrong", CLASSIFIER "max_steps=1");
    train(f, "right", CLASSIFIER "max_steps=1");
    train(f, "more", CLASSIFIER "max_steps=1 lora_target_modules=query,key");
    train(f, "wider", CLASSIFIER "max_steps=1 lora_r=8");
    train(f, "fewer", CLASSIFIER "max_steps=1 lora_target_modules=query");
    train(f, "saving", CLASSIFIER "max_steps=1 lora_modules_to_save=self.key");
    char *config = read_text(f, path_of(f, "wrong/adapter_config.json"), NULL);
    size_t size;
    char *other = read_text(f, adapter_of(f, "more"), &size);
    write_bytes(adapter_of(f, "wrong"), other, size);
    free(other);
    refuse_evaluation(f, evaluated, SNUG_E_INPUT, "is not of the adapters that adapter_config.json");
    refuse_merge(f, merged, SNUG_E_INPUT, "value.lora_A.weight, which adapter_config.json");
    static const struct {
        const char *run, *message;
    } cases[] = {
        {"fewer", "value.lora_A.weight, which adapter_config.json beside it asks for"},
        {"saving", "self.key.bias is not of the adapters that adapter_config.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        other = read_text(f, adapter_of(f, cases[i].run), &size);
        write_bytes(adapter_of(f, "wrong"), other, size);
        free(other);
        refuse_evaluation(f, evaluated, SNUG_E_INPUT, cases[i].message);
    }
    train(f, "words", CLASSIFIER "max_steps=1 lora_target_modules=word_embeddings");
    train(f, "broad", CLASSIFIER "max_steps=1 lora_target_modules=word_embeddings lora_r=8");
    other = read_text(f, adapter_of(f, "broad"), &size);
    write_bytes(adapter_of(f, "words"), other, size);
    free(other);
    refuse_evaluation(f, "model_name_or_path=@words validation_file=@dev.csv threads=1", SNUG_E_INPUT, "expected [4, ");
    patch(f, adapter_of(f, "right"), "\"F32\"", "\"I32\"");
    refuse_evaluation(f, "model_name_or_path=@right validation_file=@dev.csv threads=1", SNUG_E_INPUT, "has type I32");
    patch(f, adapter_of(f, "right"), "\"I32\"", "\"F32\"");
    patch(f, adapter_of(f, "right"), "bert.encoder.layer.0.attention.self.value.lora_A.weight\"",
          "encoder.layer.0.attention.self.query.lora_A.weight\""); /* twice */
    refuse_evaluation(f, "model_name_or_path=@right validation_file=@dev.csv threads=1", SNUG_E_INPUT,
                      "is not of the adapters that adapter_config.json");
    other = read_text(f, adapter_of(f, "wider"), &size);
    write_bytes(adapter_of(f, "wrong"), other, size);
    free(other);
    refuse_evaluation(f, evaluated, SNUG_E_INPUT, "expected [4, 32]");
    refuse_merge(f, merged, SNUG_E_INPUT, "has not the shape [4, 32]");
    other = read_text(f, path_of(f, "base/model.safetensors"), &size);
    write_bytes(adapter_of(f, "wrong"), other, size);
    free(other);
    refuse_evaluation(f, evaluated, SNUG_E_INPUT, "is not of the adapters that adapter_config.json");
    refuse_merge(f, merged, SNUG_E_INPUT, "there is no tensor");
    assert_int_equal(unlink(adapter_of(f, "wrong")), 0);
    refuse_evaluation(f, evaluated, SNUG_E_IO, SNUG_ADAPTER_WEIGHTS);
    refuse_merge(f, merged, SNUG_E_IO, SNUG_ADAPTER_WEIGHTS);
    write_text(f, "wrong/adapter_config.json", "{\"base_model_name_or_path\": 1}");
    refuse_merge(f, merged, SNUG_E_INPUT, "base_model_name_or_path");
    write_text(f, "wrong/adapter_config.json", "[");
    refuse_merge(f, merged, SNUG_E_INPUT, "adapter_config.json");
    refuse_merge(f, "model_name_or_path=@base output_dir=@merged", SNUG_E_USAGE, "has no adapters");
    refuse_merge(f, "model_name_or_path=@base", SNUG_E_USAGE, "--output_dir");
    refuse_merge(f, "model_name_or_path=@nowhere output_dir=@merged", SNUG_E_INPUT, "nowhere");
    free(config);
}

TEST_MAIN(NULL, NULL)
