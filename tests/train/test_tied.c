/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters of models whose word table and output are one weight, of which modules_to_save makes two, as in PEFT:
   trained with the same bits, planned, saved, loaded, merged, continued and refused. Their arithmetic is compared with
   PEFT's in test_golden. */
#include <math.h>

#include "adapted.h"
#include "inspect/plan.h"
#include "io/safetensors.h"
#include "snug_generate.h"

#define FIXTURE struct fixture *f, set_up_base, tear_down

/* "llama_base" is a language model whose output is its word table, "mlm_base" a masked one. */
static int set_up_base(void **state) {
    if (set_up(state)) return 1;
    write_other_families(*state, 32);
    train(*state, "llama_base", "config_name=@llama line_by_line=True train_file=@train.txt max_steps=2");
    train(*state, "mlm_base", "task=mlm train_file=@train.txt max_steps=2");
    return 0;
}

#define LORA "use_peft=True lora_r=2 lora_dropout=0 "
#define TEXTS "line_by_line=True train_file=@train.txt "
#define TIED "config_name= model_name_or_path=@llama_base " TEXTS LORA
#define MASKED "config_name= model_name_or_path=@mlm_base task=mlm train_file=@train.txt " LORA
#define WORDS "base_model.model.model.embed_tokens.weight"
#define OUTPUT "base_model.model.lm_head.weight"
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/"

/* Values of a tensor, which are freed by the caller; NULL: the file has none. */
static float *read_tensor(const struct fixture *f, const char *path, const char *name, int64_t *count) {
    struct snug_safetensors files;
    float *values = NULL;
    assert_int_equal(snug_safetensors_open(f->ctx, NULL, path, &files), SNUG_OK);
    const struct snug_stored_tensor *stored = snug_safetensors_find(&files, name);
    if (stored) {
        values = calloc((size_t)stored->count, sizeof *values);
        assert_int_equal(snug_safetensors_read(f->ctx, &files, stored, 0, stored->count, values), SNUG_OK);
        *count = stored->count;
    }
    snug_safetensors_close(&files);
    return values;
}

static bool has_tensor(const struct fixture *f, const char *path, const char *name) {
    int64_t count;
    float *values = read_tensor(f, path, name, &count);
    free(values);
    return values != NULL;
}

static void assert_same_tensors(const struct fixture *f, const char *a, const char *name, const char *b,
                                const char *other) {
    int64_t count, others;
    float *x = read_tensor(f, a, name, &count), *y = read_tensor(f, b, other, &others);
    if (!x || !y) fail_msg("%s of %s, %s of %s", name, a, other, b);
    assert_int_equal(count, others);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
    free(x);
    free(y);
}

static bool is_tied(const struct fixture *f, const char *run) {
    json_t *config = read_json(f, path_of(f, "%s/config.json", run));
    const json_t *tied = json_object_get(config, "tie_word_embeddings");
    const bool found = !tied || json_is_true(tied);
    json_decref(config);
    return found;
}

/* The log says that there are two weights; the adapter has what is named; both begin as the table. */
FIXTURE_TEST(saved_modules_are_copies) {
    static const struct {
        const char *saved, *says;
        bool words, output;
    } runs[] = {{"embed_tokens", "the first is trained: ", true, false},
                {"lm_head", "the second is trained: ", false, true},
                {"embed_tokens,lm_head", "both are trained: ", true, true}};
    char *base = strdup(path_of(f, "llama_base/model.safetensors"));
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[512];
        f->log[0] = '\0';
        snprintf(words, sizeof words, TIED "learning_rate=0 max_steps=1 lora_modules_to_save=%s", runs[i].saved);
        train(f, "out", words);
        assert_contains(f->log,
                        "model.embed_tokens.weight and lm_head.weight, which are one weight in the model, are two");
        assert_contains(f->log, runs[i].says);
        char *path = strdup(adapter_of(f, "out"));
        assert_int_equal(has_tensor(f, path, WORDS), runs[i].words);
        assert_int_equal(has_tensor(f, path, OUTPUT), runs[i].output);
        if (runs[i].words) assert_same_tensors(f, path, WORDS, base, "model.embed_tokens.weight");
        if (runs[i].output) assert_same_tensors(f, path, OUTPUT, base, "model.embed_tokens.weight");
        free(path);
        assert_true(is_tied(f, "out"));
    }
    free(base);
}

/* Rows, states and gradients of what is saved are planned; the training of everything beside it has one table. */
FIXTURE_TEST(a_plan_knows_both_weights) {
    static const char *const saved[] = {"", "lora_modules_to_save=embed_tokens", "lora_modules_to_save=lm_head",
                                        "lora_modules_to_save=embed_tokens,lm_head"};
    int64_t trainable[4], whole[4][SNUG_MEMORY_CLASS_COUNT];
    for (size_t i = 0; i < 4; i++) {
        char words[512];
        snprintf(words, sizeof words, TIED "%s", saved[i]);
        snug_args *args = training_args(f, words);
        snug_plan *plan;
        if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
        trainable[i] = plan->trainable;
        memcpy(whole[i], plan->frozen.bytes, sizeof whole[i]);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
    assert_int_equal(trainable[1] - trainable[0], VOCABULARY * 32);
    assert_int_equal(trainable[2] - trainable[0], VOCABULARY * 32);
    assert_int_equal(trainable[3] - trainable[0], 2 * VOCABULARY * 32);
    for (int i = 1; i < 4; i++) assert_int_equal(whole[i][SNUG_MEMORY_WEIGHTS], whole[0][SNUG_MEMORY_WEIGHTS]);
}

FIXTURE_TEST(methods_do_not_change_saved_tables) {
    static const char *const runs[] = {TIED "lora_modules_to_save=embed_tokens,lm_head",
                                       TIED "lora_modules_to_save=lm_head",
                                       MASKED "lora_modules_to_save=word_embeddings"};
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        char words[1024];
        snprintf(words, sizeof words, "%s max_steps=6 save_strategy=steps save_steps=3", runs[run]);
        assert_methods_keep_bits(f, words);
        assert_int_equal(try_train(f, "cut", words, 5, NULL), SNUG_E_INTERRUPTED);
        strcat(words, " resume_from_checkpoint=True");
        train(f, "cut", words);
        assert_same_file(f, adapter_of(f, "plain"), adapter_of(f, "cut"));
    }
}

/* Evaluated, merged and continued. The merged model has two weights. */
FIXTURE_TEST(saved_tables_are_a_part_of_the_model) {
    static const struct {
        const char *words, *again;
    } runs[] = {
        {TIED "lora_modules_to_save=embed_tokens", TEXTS},
        {TIED "lora_modules_to_save=lm_head max_shard_size=20KB", TEXTS},
        {TIED "lora_modules_to_save=embed_tokens,lm_head", TEXTS},
        {TIED "lora_modules_to_save=embed_tokens trainable_token_indices={\"lm_head\":[7,5]}", TEXTS},
        {TIED "lora_modules_to_save=embed_tokens lora_target_modules=q_proj,lm_head", TEXTS},
        {TIED "lora_modules_to_save=embed_tokens lora_target_modules=q_proj,lm_head use_dora=True", TEXTS},
        {TIED "lora_modules_to_save=lm_head lora_target_modules=q_proj,embed_tokens", TEXTS},
        {TIED "lora_modules_to_save=lm_head load_in_4bit=True bnb_4bit_compute_dtype=float32", TEXTS},
        {MASKED "lora_modules_to_save=word_embeddings", "task=mlm train_file=@train.txt"},
        {MASKED "lora_modules_to_save=predictions.decoder", "task=mlm train_file=@train.txt"},
        {MASKED "lora_modules_to_save=cls.predictions", "task=mlm train_file=@train.txt"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        snprintf(words, sizeof words, "%s learning_rate=0.1 max_steps=4", runs[i].words);
        train(f, "out", words);
        const double loss = eval_loss_of(f, "model_name_or_path=@out threads=1 validation_file=dummy:8x8");
        run_merge(f, "model_name_or_path=@out output_dir=@merged merge_into=dequantized max_shard_size=20KB");
        assert_false(is_tied(f, "merged"));
        const double merged = eval_loss_of(f, "model_name_or_path=@merged threads=1 validation_file=dummy:8x8");
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", runs[i].words, loss, merged);
        snprintf(words, sizeof words, "config_name= model_name_or_path=@out learning_rate=0 max_steps=1 %s",
                 runs[i].again);
        train(f, "again", words);
        assert_same_file(f, adapter_of(f, "out"), adapter_of(f, "again"));
    }
}

/* Beside a base in shards and in 16 bits, and one that has the weight by both names. */
FIXTURE_TEST(bases_of_each_form) {
    static const char *const bases[] = {"max_shard_size=20KB", "bf16=True"};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        char words[1024];
        if (i == 1 && !snug_backend_cpu_fast_bf16()) continue;
        snprintf(words, sizeof words, "config_name=@llama " TEXTS "max_steps=2 %s", bases[i]);
        train(f, "other_base", words);
        train(f, "out",
              "config_name= model_name_or_path=@other_base " TEXTS LORA
              "lora_modules_to_save=embed_tokens,lm_head learning_rate=0.1 max_steps=3");
        const double loss = eval_loss_of(f, "model_name_or_path=@out threads=1 validation_file=dummy:8x8");
        run_merge(f, "model_name_or_path=@out output_dir=@merged dtype=float32");
        const double merged = eval_loss_of(f, "model_name_or_path=@merged threads=1 validation_file=dummy:8x8");
        assert_true(fabs(loss - merged) < 2e-5 * loss);
    }
    train(f, "out", TIED "lora_modules_to_save=lm_head learning_rate=0 max_steps=1");
    run_merge(f, "model_name_or_path=@out output_dir=@twice"); /* the same values by both names */
    json_t *config = read_json(f, path_of(f, "twice/config.json"));
    json_object_set_new(config, "tie_word_embeddings", json_true());
    char *text = json_dumps(config, 0);
    write_text(f, "twice/config.json", text);
    free(text);
    json_decref(config);
    train(f, "other", TIED "lora_modules_to_save=lm_head model_name_or_path=@twice learning_rate=0 max_steps=1");
    assert_contains(f->log, "are two with these adapters");
    char *path = strdup(path_of(f, "twice/model.safetensors"));
    assert_same_tensors(f, adapter_of(f, "other"), OUTPUT, path, "lm_head.weight");
    free(path);
}

/* Of a base that lacks the table, both are what is drawn for it. */
FIXTURE_TEST(copies_of_a_drawn_table) {
    static const char name[] = "model.embed_tokens.weight";
    size_t size, at = 0;
    char *path = strdup(path_of(f, "llama_base/model.safetensors")), *bytes = read_text(f, path, &size);
    while (memcmp(bytes + at, name, sizeof name - 1) != 0) at++;
    bytes[at] = 'x';
    write_bytes(path, bytes, size);
    free(bytes);
    free(path);
    train(f, "out", TIED "lora_modules_to_save=embed_tokens,lm_head learning_rate=0 max_steps=1");
    path = strdup(adapter_of(f, "out"));
    assert_same_tensors(f, path, WORDS, path, OUTPUT);
    free(path);
}

/* ---- generation ---------------------------------------------------------------------------------------------------
 */

static snug_status take_text(void *user, const snug_answer *answer) {
    snprintf(user, 512, "%s", answer->text);
    return SNUG_OK;
}

static void answer(struct fixture *f, const char *model, char text[512]) {
    char words[512];
    snprintf(words, sizeof words,
             "model_name_or_path=%s threads=1 prompt=w1 max_new_tokens=8 min_new_tokens=8 do_sample=False", model);
    snug_args *args = plain_args(f, words);
    if (snug_generate(args, NULL, NULL, take_text, text) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_args_destroy(args);
}

FIXTURE_TEST(answers_are_those_of_the_merged_model) {
    char own[512], merged[512];
    train(f, "out", TIED "lora_modules_to_save=lm_head learning_rate=0.1 max_steps=4");
    run_merge(f, "model_name_or_path=@out output_dir=@merged");
    answer(f, "@out", own);
    answer(f, "@merged", merged);
    assert_string_equal(own, merged);
}

/* A sentence embedding has no output: the adapter's is not read. */
static snug_status keep_vector(void *user, const snug_prediction *row) {
    memcpy(user, row->logits, 32 * sizeof(float));
    return SNUG_OK;
}

FIXTURE_TEST(embeddings_do_not_read_the_output) {
    float vectors[2][32];
    static const char *const models[] = {"@out", "@llama_base"};
    write_text(f, "texts.txt", "w1 w2 w3\n");
    train(f, "out", TIED "lora_modules_to_save=lm_head learning_rate=0 max_steps=1");
    for (int i = 0; i < 2; i++) {
        char words[256];
        snprintf(words, sizeof words, "model_name_or_path=%s threads=1 test_file=@texts.txt", models[i]);
        snug_args *args = plain_args(f, words);
        if (snug_embed(args, NULL, keep_vector, vectors[i]) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_memory_equal(vectors[0], vectors[1], sizeof vectors[0]);
}

/* The reference of preference tuning is the model before it has copies: the first loss is log 2. Another one is tied.
 */
FIXTURE_TEST(the_reference_is_tied) {
    static const char *const runs[] = {"", "ref_model_name_or_path=" GOLDEN "dpo/reference"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        snprintf(words, sizeof words,
                 "task=dpo config_name= tokenizer_name= model_name_or_path=" GOLDEN
                 "dpo use_cpu=True train_file=" GOLDEN
                 "dpo/texts.jsonl max_seq_length=40 max_steps=2 logging_steps=1 learning_rate=1e-3 " LORA
                 "lora_modules_to_save=embed_tokens,lm_head %s",
                 runs[i]);
        train(f, "out", words);
        json_t *history = history_of(f, "out");
        const double loss = json_number_value(json_object_get(json_array_get(history, 0), "loss"));
        if (i == 0 && !(fabs(loss - log(2)) < 1e-6)) fail_msg("%.8g", loss);
        if (i == 1) assert_true(fabs(loss - log(2)) > 1e-3);
        json_decref(history);
    }
}

/* ---- new tokens --------------------------------------------------------------------------------------------------
 */

/* A tokenizer with two words more than the models, and texts with them. */
static void write_bigger(struct fixture *f) {
    char longer[4096];
    write_model(f, "bigger", 0, 32, 2, VOCABULARY);
    char *vocabulary = read_text(f, path_of(f, "bigger/vocab.txt"), NULL);
    snprintf(longer, sizeof longer, "%snewa\nnewb\n", vocabulary);
    write_text(f, "bigger/vocab.txt", longer);
    free(vocabulary);
    write_text(f, "new.txt", "w1 newa w2 w3\nw5 newb w6\nnewa newb w7 w8 w9\nw1 w2 w3 newb\n");
}

#define BIGGER "tokenizer_name=@bigger line_by_line=True train_file=@new.txt " LORA

/* The new rows of both are drawn as one; those of the one that is not saved are rows of tokens. */
FIXTURE_TEST(new_tokens_of_saved_tables) {
    static const char *const runs[] = {
        "model_name_or_path=@llama_base lora_modules_to_save=embed_tokens ",
        "model_name_or_path=@llama_base lora_modules_to_save=embed_tokens,lm_head ",
        "model_name_or_path=@mlm_base task=mlm lora_modules_to_save=word_embeddings ",
        "model_name_or_path=@mlm_base task=mlm lora_modules_to_save=word_embeddings,decoder ",
    };
    write_bigger(f);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char words[1024];
        snprintf(words, sizeof words, "config_name= %s" BIGGER "learning_rate=0.1 max_steps=4", runs[i]);
        train(f, "out", words);
        static const char data[] = "threads=1 validation_file=@new.txt line_by_line=True model_name_or_path=";
        snprintf(words, sizeof words, "%s@out", data);
        const double loss = eval_loss_of(f, words);
        run_merge(f, "model_name_or_path=@out output_dir=@merged");
        snprintf(words, sizeof words, "%s@merged", data);
        const double merged = eval_loss_of(f, words);
        if (!(fabs(loss - merged) < 2e-5 * fmax(1, loss))) fail_msg("%s: %g and %g", runs[i], loss, merged);
    }
    train(f, "out",
          "config_name= model_name_or_path=@llama_base lora_modules_to_save=embed_tokens,lm_head " BIGGER
          "learning_rate=0 max_steps=1");
    char *path = strdup(adapter_of(f, "out"));
    assert_same_tensors(f, path, WORDS, path, OUTPUT);
    free(path);
}

/* ---- tied adapters ------------------------------------------------------------------------------------------------
 */

/* With ensure_weight_tying, in PEFT's folder, they stay one, which is trained and has both names in the file. */
FIXTURE_TEST(tied_adapters_stay_one) {
#define PEFT_TIED                                                                                                      \
    "model_name_or_path=" GOLDEN "families/gemma/clm adapter_name_or_path=" GOLDEN "lora/gemma_saved_tied "
    const double loss = eval_loss_of(f, PEFT_TIED "threads=1 task=clm validation_file=dummy:8x8");
    run_merge(f, PEFT_TIED "output_dir=@merged dtype=float32");
    assert_true(is_tied(f, "merged"));
    assert_false(has_tensor(f, path_of(f, "merged/model.safetensors"), "lm_head.weight"));
    const double merged = eval_loss_of(f, "model_name_or_path=@merged threads=1 validation_file=dummy:8x8");
    assert_true(fabs(loss - merged) < 2e-5 * loss);
    train(f, "more",
          "config_name= tokenizer_name= " PEFT_TIED "task=clm train_file=dummy:16x8 max_seq_length=20 max_steps=3");
    char *path = strdup(adapter_of(f, "more"));
    assert_same_tensors(f, path, WORDS, path, OUTPUT);
    free(path);
    eval_loss_of(f, "model_name_or_path=" GOLDEN "families/gemma/clm adapter_name_or_path=@more threads=1 "
                    "validation_file=dummy:8x8");
    /* Saved by the output's name alone, it is the same. */
    char *config = read_text(f, GOLDEN "lora/gemma_saved_tied/adapter_config.json", NULL);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "named")), SNUG_OK);
    size_t size;
    char *weights = read_text(f, GOLDEN "lora/gemma_saved_tied/" SNUG_ADAPTER_WEIGHTS, &size);
    write_bytes(adapter_of(f, "named"), weights, size);
    free(weights);
    json_t *settings = json_loads(config, 0, NULL);
    json_object_set_new(settings, "modules_to_save", json_pack("[s]", "lm_head"));
    char *changed = json_dumps(settings, 0);
    write_text(f, "named/adapter_config.json", changed);
    free(changed);
    static const char named[] =
        "model_name_or_path=" GOLDEN "families/gemma/clm adapter_name_or_path=@named threads=1 ";
    char words[1024];
    snprintf(words, sizeof words, "%stask=clm validation_file=dummy:8x8", named);
    assert_true(loss == eval_loss_of(f, words));
    /* What PEFT ties by other names, or refuses, is refused. */
    static const struct {
        const char *key, *value, *message;
        snug_status status;
    } cases[] = {
        {"target_modules", "[\"q_proj\", \"embed_tokens\"]", "target_modules name model.embed_tokens",
         SNUG_E_UNSUPPORTED},
        {"target_modules", "[\"q_proj\", \"lm_head\"]", "target_modules name lm_head", SNUG_E_UNSUPPORTED},
        {"trainable_token_indices", "{\"embed_tokens\": [1], \"lm_head\": [2]}", "other ids of lm_head", SNUG_E_USAGE},
        {"trainable_token_indices", "{\"embed_tokens\": [1], \"lm_head\": [1]}", "is not of the adapters",
         SNUG_E_INPUT},
        {"trainable_token_indices", "{\"lm_head\": [1]}", "is not of the adapters", SNUG_E_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *other = json_deep_copy(settings);
        json_object_set_new(other, "modules_to_save", json_null());
        json_object_set_new(other, cases[i].key, json_loads(cases[i].value, 0, NULL));
        changed = json_dumps(other, 0);
        write_text(f, "named/adapter_config.json", changed);
        free(changed);
        json_decref(other);
        snug_args *args = plain_args(f, words);
        assert_failed(f, cases[i].value, snug_evaluate(args, NULL, NULL), cases[i].status, cases[i].message);
        snug_args_destroy(args);
    }
    json_object_set_new(settings, "modules_to_save", json_pack("[s]", "lm_head"));
    changed = json_dumps(settings, 0);
    write_text(f, "named/adapter_config.json", changed);
    free(changed);
    snug_args *args =
        plain_args(f, "model_name_or_path=" GOLDEN "families/gpt2/clm adapter_name_or_path=@named threads=1 "
                      "task=clm validation_file=dummy:8x8");
    assert_failed(f, "gpt2", snug_evaluate(args, NULL, NULL), SNUG_E_UNSUPPORTED,
                  "here they are transformer.wte.weight and lm_head.weight");
    snug_args_destroy(args);
    json_decref(settings);
    free(config);
#undef PEFT_TIED
}

/* It does nothing where PEFT ties nothing: of an untied model, and by a name that PEFT does not look for. */
FIXTURE_TEST(tying_without_effect) {
    static const char *const runs[][2] = {{"mistral/clm", "mistral_saved"}, {"gpt2/clm", "gpt2_saved_words"}};
    for (size_t i = 0; i < 2; i++) {
        char from[600], words[1200];
        double losses[2];
        snprintf(from, sizeof from, GOLDEN "lora/%s", runs[i][1]);
        for (int tied = 0; tied < 2; tied++) {
            snprintf(words, sizeof words,
                     "model_name_or_path=" GOLDEN "families/%s adapter_name_or_path=%s threads=1 task=clm "
                     "validation_file=dummy:8x8",
                     runs[i][0], from);
            losses[tied] = eval_loss_of(f, words);
            if (tied) break;
            char file[700];
            size_t size;
            snprintf(file, sizeof file, "%s/" SNUG_ADAPTER_WEIGHTS, from);
            char *weights = read_text(f, file, &size);
            if (!i) assert_int_equal(snug_folder_create(f->ctx, path_of(f, "flagged")), SNUG_OK);
            write_bytes(adapter_of(f, "flagged"), weights, size);
            free(weights);
            snprintf(file, sizeof file, "%s/adapter_config.json", from);
            json_t *settings = read_json(f, file);
            json_object_set_new(settings, "ensure_weight_tying", json_true());
            char *changed = json_dumps(settings, 0);
            write_text(f, "flagged/adapter_config.json", changed);
            free(changed);
            json_decref(settings);
            snprintf(from, sizeof from, "%s", path_of(f, "flagged"));
        }
        assert_true(losses[0] == losses[1]);
    }
}

/* The decoder of DeBERTa's own checkpoints is no module: what is saved of its word table is the output, too. */
FIXTURE_TEST(a_decoder_that_reads_the_words) {
    train(f, "out",
          "config_name= tokenizer_name= model_name_or_path=" GOLDEN "families/deberta-v2/mlm_newer task=mlm "
          "train_file=dummy:16x8 max_seq_length=20 lora_target_modules=query_proj lora_modules_to_save=word_embeddings "
          "learning_rate=0.1 max_steps=3 " LORA);
    assert_null(strstr(f->log, "are two with these adapters"));
    const double loss = eval_loss_of(f, "model_name_or_path=@out threads=1 validation_file=dummy:8x8");
    run_merge(f, "model_name_or_path=@out output_dir=@merged dtype=float32");
    assert_true(is_tied(f, "merged"));
    const double merged = eval_loss_of(f, "model_name_or_path=@merged threads=1 validation_file=dummy:8x8");
    if (!(fabs(loss - merged) < 2e-5 * loss)) fail_msg("%g and %g", loss, merged);
}

/* ---- refusals -----------------------------------------------------------------------------------------------------
 */

FIXTURE_TEST(saved_tables_are_refused) {
    static const struct {
        const char *words, *message;
    } cases[] = {
        {TIED "lora_modules_to_save=lm_head trainable_token_indices=7,5",
         "modules_to_save names lm_head, and rows of the tied word table model.embed_tokens are trained "
         "(trainable_token_indices)"},
        {"config_name= model_name_or_path=@llama_base lora_modules_to_save=lm_head " BIGGER,
         "(trainable_token_indices, new tokens), for which PEFT has no form: name model.embed_tokens in"},
        {TIED "lora_modules_to_save=embed_tokens trainable_token_indices=7,5", "both name model.embed_tokens"},
        {TIED "lora_modules_to_save=embed_tokens,lm_head trainable_token_indices={\"lm_head\":[1]}",
         "both name lm_head"},
    };
    write_bigger(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_failed(f, cases[i].words, try_train(f, "refused", cases[i].words, 0, NULL), SNUG_E_USAGE,
                      cases[i].message);
    train(f, "out", TIED "lora_modules_to_save=lm_head max_steps=1");
    snug_args *args = plain_args(f, "model_name_or_path=@out output_file=@x.gguf adapter_only=True");
    assert_failed(f, "export", snug_export(args), SNUG_E_UNSUPPORTED, "do not have lm_head.weight");
    snug_args_destroy(args);
    /* a resume with another set of modules */
    train(f, "kept", TIED "lora_modules_to_save=lm_head save_strategy=steps save_steps=2 max_steps=2");
    char words[1024];
    snprintf(words, sizeof words, TIED "max_steps=4 resume_from_checkpoint=%s", path_of(f, "kept/checkpoint-2"));
    assert_failed(f, words, try_train(f, "refused", words, 0, NULL), SNUG_E_INPUT, "modules_to_save");
}

TEST_MAIN(NULL, NULL)
