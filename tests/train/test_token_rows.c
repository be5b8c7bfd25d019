/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tokens that are trained beside adapters (trainable_token_indices): trained with the same bits, saved, loaded,
   merged and refused. Their arithmetic is compared with PEFT's in test_golden. */
#include <math.h>

#include "adapted.h"
#include "inspect/plan.h"
#include "io/safetensors.h"
#include "snug_generate.h"

#define FIXTURE struct fixture *f, set_up_base, tear_down

/* "base" is a trained classifier, "llama_base" a language model whose output is its word table, "untied_base" one whose
   output is not, "mlm_base" a masked one. */
static int set_up_base(void **state) {
    if (set_up(state)) return 1;
    write_other_families(*state, 32);
    train(*state, "base", "max_steps=2");
    train(*state, "llama_base", "config_name=@llama line_by_line=True train_file=@train.txt max_steps=2");
    train(*state, "qwen_base", "config_name=@qwen line_by_line=True train_file=@train.txt max_steps=2");
    train(*state, "mlm_base", "task=mlm train_file=@train.txt max_steps=2");
    return 0;
}

#define LORA "use_peft=True lora_r=2 lora_dropout=0 "
#define CLASSIFIER "config_name= model_name_or_path=@base " LORA
#define MASKED "config_name= model_name_or_path=@mlm_base task=mlm train_file=@train.txt " LORA
#define TEXTS "line_by_line=True train_file=@train.txt "
#define TIED "config_name= model_name_or_path=@llama_base " TEXTS LORA
#define IDS "trainable_token_indices=7,5,6 "

/* Values of a tensor, which are freed by the caller. */
static float *read_tensor(const struct fixture *f, const char *path, const char *name, int64_t shape[2]) {
    struct snug_safetensors files;
    assert_int_equal(snug_safetensors_open(f->ctx, NULL, path, &files), SNUG_OK);
    const struct snug_stored_tensor *stored = snug_safetensors_find(&files, name);
    if (!stored) fail_msg("%s has no %s", path, name);
    float *values = calloc((size_t)stored->count, sizeof *values);
    assert_int_equal(snug_safetensors_read(f->ctx, &files, stored, 0, stored->count, values), SNUG_OK);
    memcpy(shape, stored->shape, 2 * sizeof *shape);
    snug_safetensors_close(&files);
    return values;
}

/* New rows are those of the base model, under PEFT's name, in the order of the list. */
FIXTURE_TEST(rows_begin_as_those_of_the_table) {
    static const int ids[] = {7, 5, 6};
    int64_t shape[2], whole[2];
    train(f, "out", TIED IDS "learning_rate=0 max_steps=1");
    float *rows = read_tensor(f, adapter_of(f, "out"),
                              "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", shape);
    float *table = read_tensor(f, path_of(f, "llama_base/model.safetensors"), "model.embed_tokens.weight", whole);
    assert_int_equal(shape[0], 3);
    assert_int_equal(shape[1], whole[1]);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(rows + i * shape[1], table + ids[i] * shape[1], (size_t)shape[1] * sizeof *rows);
    free(rows);
    free(table);
    json_t *config = read_json(f, path_of(f, "out/adapter_config.json"));
    assert_int_equal(json_array_size(json_object_get(config, "trainable_token_indices")), 3);
    json_decref(config);
    train(f, "none", TIED "max_steps=1");
    config = read_json(f, path_of(f, "none/adapter_config.json"));
    assert_true(json_is_null(json_object_get(config, "trainable_token_indices")));
    json_decref(config);
}

/* Of a table that the model's file lacks, they are what is drawn for it. */
FIXTURE_TEST(rows_of_a_drawn_table) {
    static const char name[] = "model.embed_tokens.weight";
    size_t size, at = 0;
    char *path = strdup(path_of(f, "llama_base/model.safetensors")), *bytes = read_text(f, path, &size);
    int64_t shape[2];
    while (memcmp(bytes + at, name, sizeof name - 1) != 0) at++;
    bytes[at] = 'x';
    write_bytes(path, bytes, size);
    free(bytes);
    free(path);
    train(f, "out", TIED IDS "learning_rate=0 max_steps=1");
    assert_contains(f->log, "adapters are trained beside their random values");
    float *rows = read_tensor(f, adapter_of(f, "out"),
                              "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", shape);
    for (int i = 0; i < 3; i++) assert_true(rows[i * 32] != 0);
    free(rows);
}

/* Ids in the argument, in a list or an object, there or in a file. */
FIXTURE_TEST(ids_are_read) {
    static const char *const forms[] = {"trainable_token_indices=[7,5,6]", "trainable_token_indices=@ids.json",
                                        "trainable_token_indices={\"embed_tokens\":[7,5,6]}",
                                        "trainable_token_indices={\"lm_head\":[7,5,6],\"embed_tokens\":[7,5,6]}"};
    write_text(f, "ids.json", "{\"embed_tokens\": [7, 5, 6]}");
    train(f, "out", TIED IDS "max_steps=2");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char words[512];
        snprintf(words, sizeof words, TIED "max_steps=2 %s", forms[i]);
        train(f, "other", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "other"));
    }
}

FIXTURE_TEST(methods_do_not_change_rows_of_tokens) {
    static const char *const runs[] = {
        TIED IDS, CLASSIFIER IDS, MASKED IDS,
        TIED "trainable_token_indices={\"embed_tokens\":[7,5],\"lm_head\":[6,7,9]} lora_target_modules=all-linear"};
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[1024];
        snprintf(words, sizeof words, "%s max_steps=6", runs[run]);
        assert_methods_keep_bits(f, words);
        snprintf(words, sizeof words, "%s max_steps=6 max_grad_norm=0", runs[run]);
        train(f, "plain", words);
        snprintf(words, sizeof words, "%s max_steps=6 max_grad_norm=0 update_in_backward=True", runs[run]);
        train(f, "other", words);
        assert_same_file(f, adapter_of(f, "plain"), adapter_of(f, "other"));
        snprintf(words, sizeof words, "%s max_steps=6 per_device_train_batch_size=2 gradient_accumulation_steps=4",
                 runs[run]);
        const double loss = train(f, "parts", words).train_loss;
        snprintf(words, sizeof words, "%s max_steps=6", runs[run]);
        assert_true(fabs(loss - train(f, "whole", words).train_loss) < 1e-5);
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=3 max_steps=6", runs[run]);
        assert_int_equal(try_train(f, "cut", words, 5, NULL), SNUG_E_INTERRUPTED);
        snprintf(words, sizeof words, "%s save_strategy=steps save_steps=3 max_steps=6 resume_from_checkpoint=True",
                 runs[run]);
        train(f, "cut", words);
        assert_same_file(f, adapter_of(f, "whole"), adapter_of(f, "cut"));
    }
}

/* Only these rows have gradients and states; the plan knows how many they are. */
FIXTURE_TEST(a_plan_counts_rows_of_tokens) {
    static const char *const runs[] = {TIED IDS, TIED};
    int64_t trainable[2];
    for (int i = 0; i < 2; i++) {
        snug_args *args = training_args(f, runs[i]);
        snug_plan *plan;
        if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        trainable[i] = plan->trainable;
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
    assert_int_equal(trainable[0] - trainable[1], 3 * 32);
}

/* Evaluated, continued and merged, tied or not, with rows for the words and the output, or for one of them. */
FIXTURE_TEST(rows_of_tokens_are_a_part_of_the_model) {
    static const struct {
        const char *words, *data;
    } runs[] = {
        {TIED IDS, "dummy:8x8"},
        {TIED "trainable_token_indices={\"lm_head\":[7,5]}", "dummy:8x8"},
        {TIED "trainable_token_indices={\"lm_head\":[7,5],\"embed_tokens\":[9,5]}", "dummy:8x8"},
        {"config_name= model_name_or_path=@qwen_base " TEXTS LORA IDS, "dummy:8x8"},
        {"config_name= model_name_or_path=@qwen_base " TEXTS LORA "trainable_token_indices={\"lm_head\":[7,5,9]}",
         "dummy:8x8"},
        {MASKED IDS, "dummy:8x8"},
        {CLASSIFIER IDS "lora_modules_to_save=output.dense bias=all", "@dev.csv"},
        {TIED IDS "load_in_4bit=True bnb_4bit_compute_dtype=float32 merge_into=dequantized", "dummy:8x8"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        snprintf(words, sizeof words, "%s learning_rate=0.1 max_steps=4", runs[i].words);
        train(f, "out", words);
        snprintf(words, sizeof words, "model_name_or_path=@out threads=1 validation_file=%s", runs[i].data);
        const double loss = eval_loss_of(f, words);
        snug_args *args = plain_args(f, "model_name_or_path=@out output_dir=@merged merge_into=dequantized");
        if (snug_merge(args) != SNUG_OK) fail_msg("%s: %s", runs[i].words, snug_error_message(f->ctx));
        snug_args_destroy(args);
        snprintf(words, sizeof words, "model_name_or_path=@merged threads=1 validation_file=%s", runs[i].data);
        const double merged = eval_loss_of(f, words);
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", runs[i].words, loss, merged);
        snprintf(words, sizeof words, "config_name= model_name_or_path=@out learning_rate=0 max_steps=1 %s",
                 i == 6                               ? ""
                 : strncmp(runs[i].words, MASKED, 40) ? TEXTS
                                                      : "task=mlm train_file=@train.txt");
        train(f, "again", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "again"));
    }
}

/* ---- new tokens --------------------------------------------------------------------------------------------------
 */

/* A tokenizer with two words more than the models, and texts and labels with them. */
static void write_bigger(struct fixture *f) {
    char longer[4096];
    write_model(f, "bigger", 0, 32, 2, VOCABULARY);
    char *vocabulary = read_text(f, path_of(f, "bigger/vocab.txt"), NULL);
    snprintf(longer, sizeof longer, "%snewa\nnewb\n", vocabulary);
    write_text(f, "bigger/vocab.txt", longer);
    free(vocabulary);
    write_model(f, "added", 0, 32, 2, VOCABULARY);
    snprintf(longer, sizeof longer, "{\"[A1]\": %d, \"[A2]\": %d}", VOCABULARY, VOCABULARY + 1);
    write_text(f, "added/added_tokens.json", longer);
    write_text(f, "new.txt", "w1 newa w2 w3\nw5 newb w6\nnewa newb w7 w8 w9\nw1 w2 w3 newb\n");
    write_text(f, "new.csv", "text,label\nw1 [A1] w2,negative\nw5 w6,positive\n[A2] w7,negative\nw3 [A1],positive\n");
}

#define BIGGER "tokenizer_name=@bigger line_by_line=True train_file=@new.txt " LORA

/* The adapters train the rows of new tokens: of the word table, and of an output of its own. Loaded, merged, continued,
   resumed, and without the config.json that PEFT does not write. */
FIXTURE_TEST(new_tokens_have_rows_of_their_own) {
    static const struct {
        const char *words, *data;
        int64_t words_ids, output_ids;
    } runs[] = {
        {"model_name_or_path=@llama_base " BIGGER, "@new.txt line_by_line=True", 2, 0},
        {"model_name_or_path=@llama_base trainable_token_indices=7,5 " BIGGER, "@new.txt line_by_line=True", 4, 0},
        {"model_name_or_path=@qwen_base trainable_token_indices={\"lm_head\":[7]} " BIGGER,
         "@new.txt line_by_line=True", 2, 3},
        {"model_name_or_path=@qwen_base lora_modules_to_save=,embed_tokens,lm_head " BIGGER,
         "@new.txt line_by_line=True", 0, 0},
        {"model_name_or_path=@mlm_base task=mlm " BIGGER, "@new.txt line_by_line=True", 2, 0},
        {"model_name_or_path=@base train_file=@new.csv tokenizer_name=@added " LORA, "@new.csv", 2, 0},
    };
    write_bigger(f);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024], data[256];
        f->log[0] = '\0';
        snprintf(words, sizeof words, "config_name= %s learning_rate=0.1 max_steps=4 save_strategy=steps save_steps=2",
                 runs[i].words);
        train(f, "out", words);
        assert_contains(f->log, "its tables get 2 rows more");
        json_t *config = read_json(f, path_of(f, "out/adapter_config.json"));
        const json_t *ids = json_object_get(config, "trainable_token_indices");
        const char *table = i == 4 || i == 5 ? "word_embeddings" : "embed_tokens";
        assert_int_equal(json_array_size(json_object_get(ids, table)), runs[i].words_ids);
        assert_int_equal(json_array_size(json_object_get(ids, "lm_head")), runs[i].output_ids);
        json_decref(config);
        snprintf(data, sizeof data, "threads=1 validation_file=%s", runs[i].data);
        snprintf(words, sizeof words, "model_name_or_path=@out %s", data);
        const double loss = eval_loss_of(f, words);
        snug_args *args = plain_args(f, "model_name_or_path=@out output_dir=@merged");
        if (snug_merge(args) != SNUG_OK) fail_msg("%s: %s", runs[i].words, snug_error_message(f->ctx));
        snug_args_destroy(args);
        snprintf(words, sizeof words, "model_name_or_path=@merged %s", data);
        const double merged = eval_loss_of(f, words);
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", runs[i].words, loss, merged);
        snprintf(words, sizeof words, "config_name= %s learning_rate=0.1 max_steps=4 resume_from_checkpoint=%s",
                 runs[i].words, path_of(f, "out/checkpoint-2"));
        train(f, "rest", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "rest"));
        snprintf(words, sizeof words,
                 "config_name= model_name_or_path=@out learning_rate=0 max_steps=1 train_file=%s%s", runs[i].data,
                 i == 4 ? " task=mlm" : "");
        train(f, "again", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "again"));
        if (i == 3 || i == 4) continue; /* PEFT has no name of masked LM */
        assert_int_equal(unlink(path_of(f, "out/config.json")), 0);
        snprintf(words, sizeof words, "model_name_or_path=@out %s", data);
        assert_true(fabs(loss - eval_loss_of(f, words)) < 1e-9);
    }
}

/* PEFT's own folders (tools/golden/lora.py), of rows of tokens and of whole tables: they have further names of both. */
FIXTURE_TEST(new_tokens_of_peft) {
    static const char *const folders[] = {"new_tokens", "new_saved"};
    char adapter[1024], words[1200];
    for (int i = 0; i < 2; i++) {
        snprintf(adapter, sizeof adapter,
                 "model_name_or_path=" SNUG_SOURCE_DIR
                 "/tests/golden/families/gpt2/clm adapter_name_or_path=" SNUG_SOURCE_DIR
                 "/tests/golden/lora/%s threads=1",
                 folders[i]);
        snprintf(words, sizeof words, "%s output_dir=@merged%d dtype=float32", adapter, i);
        run_merge(f, words);
        json_t *config = read_json(f, path_of(f, "merged%d/config.json", i));
        assert_int_equal(json_integer_value(json_object_get(config, "vocab_size")), 62);
        json_decref(config);
        snprintf(words, sizeof words, "%s validation_file=dummy:8x8", adapter);
        const double loss = eval_loss_of(f, words);
        snprintf(words, sizeof words, "model_name_or_path=@merged%d threads=1 validation_file=dummy:8x8", i);
        assert_true(fabs(loss - eval_loss_of(f, words)) < 2e-5);
    }
    /* one of the tables alone is saved: the new rows of the other are not found */
    size_t size;
    char *text = read_text(f, SNUG_SOURCE_DIR "/tests/golden/lora/new_saved/adapter_config.json", NULL);
    char *bytes = read_text(f, SNUG_SOURCE_DIR "/tests/golden/lora/new_saved/" SNUG_ADAPTER_WEIGHTS, &size);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "half")), SNUG_OK);
    write_bytes(adapter_of(f, "half"), bytes, size);
    json_t *settings = json_loads(text, 0, NULL);
    json_object_set_new(settings, "modules_to_save", json_pack("[s]", "wte"));
    free(text);
    text = json_dumps(settings, 0);
    write_text(f, "half/adapter_config.json", text);
    json_decref(settings);
    free(text);
    free(bytes);
    snug_args *args = plain_args(f, "model_name_or_path=" SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm "
                                    "adapter_name_or_path=@half threads=1 validation_file=dummy:8x8");
    assert_failed(f, "half", snug_evaluate(args, NULL, NULL), SNUG_E_INPUT, "lm_head has rows for 2 new tokens");
    snug_args_destroy(args);
}

/* New rows are drawn as a training of everything would draw them. */
FIXTURE_TEST(new_rows_begin_as_those_of_a_larger_table) {
    int64_t shape[2], whole[2];
    write_bigger(f);
    train(f, "out", "config_name= model_name_or_path=@llama_base " BIGGER "learning_rate=0 max_steps=1");
    train(f, "all",
          "config_name= model_name_or_path=@llama_base tokenizer_name=@bigger line_by_line=True train_file=@new.txt "
          "learning_rate=0 max_steps=1");
    float *rows = read_tensor(f, adapter_of(f, "out"),
                              "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", shape);
    float *table = read_tensor(f, path_of(f, "all/model.safetensors"), "model.embed_tokens.weight", whole);
    assert_int_equal(whole[0], VOCABULARY + 2);
    assert_memory_equal(rows, table + VOCABULARY * 32, 2 * 32 * sizeof *rows);
    free(rows);
    free(table);
}

FIXTURE_TEST(new_tokens_are_refused) {
    static const char lacking[] = "model_name_or_path=@out threads=1 validation_file=@new.txt line_by_line=True";
    static const char untied[] =
        "{\"model_type\": \"bert\", \"vocab_size\": %d, \"hidden_size\": 32, \"num_hidden_layers\": 2,"
        " \"num_attention_heads\": 4, \"intermediate_size\": 64, \"max_position_embeddings\": 64,"
        " \"tie_word_embeddings\": false}";
    char config[512];
    write_bigger(f);
    train(f, "out", "config_name= model_name_or_path=@llama_base " BIGGER "max_steps=1");
    train(f, "wider", "config_name= model_name_or_path=@qwen_base " BIGGER "max_steps=1");
    /* the adapter's tokenizer is another one */
    train(f, "small", TIED "max_steps=1");
    assert_failed(f, "small",
                  try_train(f, "refused",
                            "config_name= model_name_or_path=@small tokenizer_name=@bigger line_by_line=True "
                            "train_file=@new.txt max_steps=1",
                            0, NULL),
                  SNUG_E_INPUT, "was trained with");
    /* settings that leave a new token out */
    char *text = read_text(f, path_of(f, "out/adapter_config.json"), NULL), *ids = strstr(text, "\"embed_tokens\"");
    assert_non_null(ids);
    memset(ids + strlen("\"embed_tokens\""), ' ', strcspn(ids + strlen("\"embed_tokens\""), "]"));
    ids[strlen("\"embed_tokens\"")] = ':';
    memcpy(ids + strlen("\"embed_tokens\"") + 1, "[7", 2);
    write_text(f, "out/adapter_config.json", text);
    free(text);
    snug_args *args = plain_args(f, lacking);
    assert_failed(f, lacking, snug_evaluate(args, NULL, NULL), SNUG_E_INPUT, "trainable_token_indices names 0 of them");
    snug_args_destroy(args);
    /* as PEFT might write them */
    write_text(f, "small/adapter_config.json", "{\"trainable_token_indices\": [1073741824]}");
    static const char large[] = "model_name_or_path=@llama_base adapter_name_or_path=@small threads=1 task=clm "
                                "validation_file=@new.txt line_by_line=True";
    assert_int_equal(unlink(path_of(f, "small/config.json")), 0);
    args = plain_args(f, large);
    assert_failed(f, large, snug_evaluate(args, NULL, NULL), SNUG_E_USAGE, "1073741824 is not the id of a token");
    snug_args_destroy(args);
    /* the bias of an output of its own */
    snprintf(config, sizeof config, untied, VOCABULARY);
    write_text(f, "untied.json", config);
    train(f, "untied_base", "config_name=@untied.json task=mlm train_file=@train.txt max_steps=1");
    assert_failed(f, "untied",
                  try_train(f, "refused", "config_name= model_name_or_path=@untied_base task=mlm " BIGGER, 0, NULL),
                  SNUG_E_UNSUPPORTED, "has values for 2 new tokens");
    train(f, "biases",
          "config_name= model_name_or_path=@untied_base task=mlm max_steps=1 "
          "lora_modules_to_save=predictions.decoder " BIGGER);
}

FIXTURE_TEST(rows_of_tokens_are_refused) {
    static const struct {
        const char *words, *message;
        snug_status status;
    } cases[] = {
        {TIED "trainable_token_indices=7,100000", "100000 is not the id of a token: model.embed_tokens has",
         SNUG_E_USAGE},
        {TIED "trainable_token_indices=7,7", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices=7,x", "7,x", SNUG_E_IO},
        {TIED "trainable_token_indices={\"lm_head\":[-1]}", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices={\"lm_head\":[1.5]}", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices={\"lm_head\":7}", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices={\"lm_head\"", "trainable_token_indices", SNUG_E_INPUT},
        {TIED "trainable_token_indices=,", ",: ", SNUG_E_IO},
        {TIED "trainable_token_indices=99999999999999999999", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices={\"lm_head\":[]}", "must be a list of different ids", SNUG_E_INPUT},
        {TIED "trainable_token_indices={\"q_proj\":[1]}",
         "\"q_proj\" is not a module with rows of tokens; the model has: model.embed_tokens lm_head", SNUG_E_USAGE},
        {CLASSIFIER "trainable_token_indices={\"decoder\":[1]}",
         "\"decoder\" is not a module with rows of tokens; the model has: bert.embeddings.word_embeddings",
         SNUG_E_USAGE},
        {TIED IDS "lora_target_modules=embed_tokens,q_proj", "model.embed_tokens has an adapter", SNUG_E_USAGE},
        {TIED IDS "lora_target_modules=lm_head,q_proj", "lm_head has an adapter", SNUG_E_USAGE},
        {CLASSIFIER IDS "lora_modules_to_save=word_embeddings",
         "both name bert.embeddings.word_embeddings: its rows are trained all, or some", SNUG_E_USAGE},
        {MASKED IDS "bias=all", "cls.predictions.bias, which is added to the logits, is trained, too",
         SNUG_E_UNSUPPORTED},
        {IDS, "--trainable_token_indices is for LoRA adapters: give --use_peft, too", SNUG_E_USAGE},
        {"config_name= model_name_or_path=@out " TEXTS IDS, "has its own settings: leave it out", SNUG_E_USAGE},
    };
    train(f, "out", TIED IDS "max_steps=1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_failed(f, cases[i].words, try_train(f, "refused", cases[i].words, 0, NULL), cases[i].status,
                      cases[i].message);
    /* weights that are not those of the settings */
    train(f, "fewer", TIED "trainable_token_indices=7,5 max_steps=1");
    size_t size;
    char *other = read_text(f, adapter_of(f, "fewer"), &size);
    write_bytes(adapter_of(f, "out"), other, size);
    free(other);
    static const char data[] = "model_name_or_path=@out validation_file=dummy:8x8 threads=1";
    snug_args *args = plain_args(f, data);
    assert_failed(f, data, snug_evaluate(args, NULL, NULL), SNUG_E_INPUT, "expected [3, 32]");
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@out output_dir=@merged");
    assert_failed(f, data, snug_merge(args), SNUG_E_INPUT, "has not the shape [3, 32]");
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@fewer output_file=@x.gguf adapter_only=True");
    assert_failed(f, data, snug_export(args), SNUG_E_UNSUPPORTED, "do not have model.embed_tokens.weight");
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
