/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluations and predictions that several ranks of this machine divide. */
#include <sys/stat.h>

#include "mpirun.h"

#define FIXTURE struct fixture *f, set_up_ranks, tear_down

#define TRAIN_MODEL                                                                                                    \
    "train --use_cpu --config_name model --tokenizer_name model --per_device_train_batch_size 8 --learning_rate 1e-3 " \
    "--threads 1 --max_steps 4 --save_strategy no --num_train_epochs 1 "
#define RUN "--use_cpu --threads 1 --per_device_eval_batch_size "

static int set_up_ranks(void **state) {
    find_mpirun();
    return set_up(state);
}

/* The metrics without times, and without the run, whose memory differs. */
static char *metrics_of(const struct fixture *f) {
    json_error_t error;
    char *text = output_of(f, "stdout");
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json) fail_msg("this is not JSON: %s", text);
    free(text);
    json_object_del(json, "run");
    json_object_del(json, "eval_runtime");
    json_object_del(json, "eval_samples_per_second");
    json_object_del(json, "eval_steps_per_second");
    text = json_dumps(json, JSON_REAL_PRECISION(17));
    json_decref(json);
    assert_non_null(text);
    return text;
}

static char *rows_of(const struct fixture *f) { return without_run(output_of(f, "stdout")); }

/* 2 and 3 ranks, in turn, print what one rank prints: metrics, and predictions in the file's order, as text and as JSON
   in turn. */
static void check(struct fixture *f, const char *model, const char *file, int batch, const char *more) {
    static int turn, form;
    char words[1024];
    form++;
    for (int predicts = 0; predicts < 3; predicts++) { /* eval, predict, predict --json */
        if (!is_long() && predicts == 1 + form % 2) continue;
        snprintf(words, sizeof words, "%s " RUN "%d --model_name_or_path %s --%s_file %s %s%s",
                 predicts ? "predict" : "eval", batch, model, predicts ? "test" : "validation", file,
                 predicts == 1 ? "" : "--json ", more);
        free(run_well(f, words));
        char *one = predicts ? rows_of(f) : metrics_of(f);
        assert_true(strlen(one) > 40);
        for (int ranks = 2; ranks <= 3; ranks++) {
            if (!is_long() && ranks != 2 + turn % 2) continue;
            run_ranks_well(f, ranks, words);
            char *many = predicts ? rows_of(f) : metrics_of(f);
            if (strcmp(one, many) != 0) fail_msg("%s on %d ranks: %s instead of %s", words, ranks, many, one);
            free(many);
        }
        free(one);
        turn++;
    }
}

/* 30 rows: 5 batches of 7, the last with 2 rows; or 1 batch, which the first rank has. */
FIXTURE_TEST(test_classes) {
    if (skips) return;
    free(run_well(f, TRAIN_MODEL "--train_file train.csv --output_dir out"));
    check(f, "out", "dev.csv", 64, "");
    check(f, "out", "dev.csv", 7, "--class_metrics ");
    check(f, "out", "dev.csv", 7, "--class_weights 0.1,0.7 ");
    write_data(f, "multi.csv", FORM_MULTI, TRAIN_ROWS, 3);
    free(run_well(f, TRAIN_MODEL "--train_file multi.csv --label_separator | --output_dir multi"));
    check(f, "multi", "multi.csv", 7, "--class_metrics --threshold 0.4 ");
}

/* A step is divided by the weights of all ranks' rows, with the bits of one rank. */
FIXTURE_TEST(test_class_weights) {
    if (skips) return;
#define WEIGHTED TRAIN_MODEL "--train_file train.csv --class_weights 0.1,0.7 --logging_steps 1 "
    run_ranks_well(f, 2, WEIGHTED "--output_dir two");
    free(run_well(f, WEIGHTED "--gradient_accumulation_steps 2 --output_dir one"));
    assert_same_run(f, "one", "two");
}

/* Correlations need the pairs of all ranks, in the order of the rows; they are exchanged 1024 at a time. */
FIXTURE_TEST(test_regression) {
    if (skips) return;
    FILE *file = fopen(path_of(f, "numbers.csv"), "w");
    assert_non_null(file);
    fprintf(file, "sentence,label\n");
    for (int i = 0; i < 1100; i++) fprintf(file, "w%d good w%d,%g\n", i % 150, i % 7, (i * 37 % 101) / 7.0 - 6);
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN_MODEL "--train_file numbers.csv --output_dir out"));
    check(f, "out", "numbers.csv", 40, "");
}

FIXTURE_TEST(test_tags_and_tokens) {
    if (skips) return;
    write_words(f, "tags.conll", 41, 1);
    free(run_well(f, TRAIN_MODEL "--task token_classification --train_file tags.conll --output_dir tags"));
    check(f, "tags", "tags.conll", 4, "--return_entity_level_metrics ");
    free(run_well(f, TRAIN_MODEL "--task mlm --train_file train.txt --line_by_line --output_dir mlm"));
    write_text(f, "masked.txt", "w1 [MASK] w2 [MASK]\nw3\n[MASK] good\nw4 [MASK]\nbad [MASK] w9 w8\n");
    check(f, "mlm", "masked.txt", 2, "--line_by_line ");
}

/* The ranks compute the reference's rows in turn; rewards and weights are those of one rank. */
FIXTURE_TEST(test_preferences) {
    if (skips) return;
#define DPO SNUG_SOURCE_DIR "/tests/golden/dpo"
#define TUNE                                                                                                           \
    "train --use_cpu --threads 1 --task dpo --model_name_or_path " DPO " --train_file " DPO                            \
    "/texts.jsonl --validation_file " DPO                                                                              \
    "/implicit.jsonl --max_seq_length 40 --per_device_train_batch_size 2 --max_steps 4 --learning_rate 2e-3 "          \
    "--logging_steps 1 --eval_strategy steps --eval_steps 2 --save_strategy no --per_device_eval_batch_size 3 "        \
    "--use_peft --lora_target_modules all-linear "
    static const char *const more[] = {"", "--zero_stage 3 "};
    free(run_well(f, TUNE "--gradient_accumulation_steps 2 --output_dir one"));
    for (int i = 0; i < 2; i++) {
        char words[1024];
        snprintf(words, sizeof words, TUNE "%s--output_dir two%d", more[i], i);
        for (int again = 0; again <= i; again++) { /* with the files of the first time */
            char two[8], *text;
            snprintf(two, sizeof two, "two%d", i);
            run_ranks_well(f, 2, words);
            text = output_of(f, "stderr");
            if (again) assert_contains(text, "/reference_eval.bin has the reference model's log-probabilities");
            free(text);
            assert_same_in_both(f, "one", two, "adapter_model.safetensors");
            assert_same_history(f, "one", two);
            assert_same_in_both(f, "one", two, "reference_train.bin");
            assert_same_in_both(f, "one", two, "reference_eval.bin");
        }
    }
}

/* The windows of a question are on several ranks. */
FIXTURE_TEST(test_questions) {
    if (skips) return;
    FILE *file = fopen(path_of(f, "questions.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 7; i++)
        fprintf(file,
                "{\"question\": \"w%d good\", \"context\": \"w1 w2 bad w%d w4 w5 w6 good w8 w9 w2 w3 w4 w5\", "
                "\"answers\": {\"text\": [\"w2 bad\"], \"answer_start\": [3]}}\n",
                i, i + 1);
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN_MODEL
                  "--task qa --doc_stride 2 --max_seq_length 12 --train_file questions.jsonl --output_dir qa"));
    check(f, "qa", "questions.jsonl", 3, "--doc_stride 2 --max_seq_length 12 --version_2_with_negative ");
}

/* The choices of a question are on one rank. */
FIXTURE_TEST(test_choices) {
    if (skips) return;
    FILE *file = fopen(path_of(f, "choices.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 7; i++)
        fprintf(file, "{\"question\": \"w%d good\", \"choices\": [\"w1 w2\", \"bad w%d\"%s], \"label\": %d}\n", i,
                i + 1, i % 2 ? ", \"w3 w4 w5\"" : "", i % 3 == 0);
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN_MODEL "--task multiple-choice --train_file choices.jsonl --output_dir choices"));
    check(f, "choices", "choices.jsonl", 3, "");
}

/* Each rank answers other prompts; with --zero_stage 3 none has all weights. */
FIXTURE_TEST(test_answers) {
    if (skips) return;
    FILE *file = fopen(path_of(f, "pairs.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 5; i++)
        fprintf(file, "{\"prompt\": \"w%d good\", \"completion\": \" w%d w2 w%d bad\"}\n", i, i, i + 1);
    assert_int_equal(fclose(file), 0);
    char config[512];
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 32, \"num_hidden_layers\": 1, "
             "\"num_attention_heads\": 2, \"intermediate_size\": 48, \"max_position_embeddings\": 64, "
             "\"num_key_value_heads\": 1, \"tie_word_embeddings\": true}",
             VOCABULARY);
    assert_int_equal(mkdir(path_of(f, "llama"), 0777), 0);
    write_text(f, "llama/config.json", config);
    free(run_well(f, "train --use_cpu --config_name llama --tokenizer_name model --task clm --learning_rate 1e-2 "
                     "--threads 1 --max_steps 6 --save_strategy no --train_file pairs.jsonl --output_dir clm"));
    static const char *const words =
        "eval " RUN "2 --model_name_or_path clm --validation_file pairs.jsonl --json --predict_with_generate "
        "--max_new_tokens 5 --stop_strings bad ";
    free(run_well(f, words));
    char *one = metrics_of(f);
    assert_non_null(strstr(one, "eval_rougeLsum"));
    for (int ranks = 2; ranks <= 2 + is_long(); ranks++) {
        run_ranks_well(f, ranks, words);
        char *many = metrics_of(f);
        if (strcmp(one, many) != 0) fail_msg("%d ranks: %s instead of %s", ranks, many, one);
        free(many);
    }
    free(one);
    /* --fit finds the beams for all ranks. */
    run_ranks_well(f, 2,
                   "eval " RUN "2 --model_name_or_path clm --validation_file pairs.jsonl --predict_with_generate "
                   "--max_new_tokens 5 --num_beams 3 --fit --memory_budget 20GiB");
    assert_said(f,
                run_ranks(f, "-n 2 " SNUG " eval " RUN "2 --model_name_or_path clm --validation_file pairs.jsonl "
                             "--predict_with_generate --max_new_tokens 5 --num_beams 3 --fit --memory_budget 5MiB"),
                3, (const char *const[]){"--memory_budget of 5.0 MiB", NULL});
    assert_said(f,
                run_ranks(f,
                          "-n 2 " SNUG " train --use_cpu --threads 1 --model_name_or_path clm --train_file pairs.jsonl "
                          "--validation_file pairs.jsonl --predict_with_generate --output_dir no --fit "
                          "--memory_budget 5MiB"),
                3, (const char *const[]){"no mix of methods fits ", NULL});
    assert_said(f,
                run_ranks(f,
                          "-n 2 " SNUG " train --use_cpu --threads 1 --model_name_or_path clm --train_file pairs.jsonl "
                          "--validation_file pairs.jsonl --predict_with_generate --zero_stage 3 --output_dir no"),
                1, (const char *const[]){"with --zero_stage 3 no rank has all weights", NULL});
}

/* The documents of a query are on several ranks. */
FIXTURE_TEST(test_rankings) {
    if (skips) return;
    FILE *file = fopen(path_of(f, "ranked.jsonl"), "w");
    assert_non_null(file);
    for (int i = 0; i < 11; i++)
        fprintf(file, "{\"query\": \"w%d good\", \"docs\": [\"w1 w2\", \"bad w%d\"%s], \"labels\": [1, 0%s]}\n", i % 4,
                i + 1, i % 2 ? ", \"w3 w4 w5\"" : "", i % 2 ? ", 1" : "");
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TRAIN_MODEL "--task reranking --train_file ranked.jsonl --output_dir reranker"));
    check(f, "reranker", "ranked.jsonl", 3, "");
}

/* Queries and documents are on several ranks; trainings choose their best model by them, and stop early. */
FIXTURE_TEST(test_retrieval) {
    if (skips) return;
#define EMBEDDING SNUG_SOURCE_DIR "/tests/golden/embedding"
#define RETRIEVAL                                                                                                      \
    "--task embedding --model_name_or_path " EMBEDDING "/model --queries_file " EMBEDDING                              \
    "/retrieval/queries.jsonl --corpus_file " EMBEDDING "/retrieval/corpus.jsonl --relevance_file " EMBEDDING          \
    "/retrieval/test.tsv "
    static const int batches[] = {1, 7, 200}, numbers[] = {3, 5, 2}; /* 12 queries and 156 documents */
    for (int i = 0; i < 3; i++) {
        char words[1024];
        snprintf(words, sizeof words, "eval " RUN "%d --json " RETRIEVAL, batches[i]);
        free(run_well(f, words));
        char *one = metrics_of(f);
        assert_non_null(strstr(one, "eval_cosine_map@100"));
        for (int ranks = 2; ranks <= 5; ranks++) {
            if (!is_long() && ranks != numbers[i]) continue;
            run_ranks_well(f, ranks, words);
            char *many = metrics_of(f);
            if (strcmp(one, many) != 0) fail_msg("%s on %d ranks: %s instead of %s", words, ranks, many, one);
            free(many);
        }
        free(one);
    }
    write_text(f, "pairs.csv",
               "anchor,positive\na man is eating,eating food\nthe girl play,music on\ntwo dogs,run fast\n"
               "food,eating\ndogs run,two dogs\nplay music,the girl is playing\nman,girl\non,fast\n");
#define TRAIN_RETRIEVAL                                                                                                \
    "train --use_cpu --threads 1 --train_file pairs.csv --per_device_train_batch_size 2 --learning_rate 2e-2 "         \
    "--logging_steps 1 --max_steps 12 --eval_strategy steps --eval_steps 2 --save_strategy steps --save_steps 2 "      \
    "--load_best_model_at_end --metric_for_best_model cosine_ndcg@10 --early_stopping_patience 2 " RETRIEVAL
    free(run_well(f, TRAIN_RETRIEVAL "--gradient_accumulation_steps 2 --output_dir one"));
    for (int stage = is_long() ? 0 : 3; stage <= 3; stage += 3) {
        char words[1024];
        snprintf(words, sizeof words, TRAIN_RETRIEVAL "--zero_stage %d --output_dir two", stage);
        run_ranks_well(f, 2, words);
        assert_same_in_both(f, "one", "two", "model.safetensors");
        assert_same_history(f, "one", "two");
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "two")));
    }
    json_t *state = read_json(f, path_of(f, "one/trainer_state.json"));
    assert_true(json_integer_value(json_object_get(state, "global_step")) < 12);
    assert_true(json_is_string(json_object_get(state, "best_model_checkpoint")));
    json_decref(state);
}

/* Bytes of function memory in the run's description, which the first row has. */
static int64_t function_bytes(const struct fixture *f) {
    json_error_t error;
    char *text = output_of(f, "stdout");
    json_t *row = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);
    const json_t *memory = json_object_get(json_object_get(row, "run"), "memory");
    const int64_t bytes = json_integer_value(json_object_get(memory, "function"));
    json_decref(row);
    free(text);
    return bytes;
}

/* What predictions collect is in the plan: row numbers of the loss positions of a batch; of several ranks their logits,
   too, and on rank 0 those of all ranks. */
FIXTURE_TEST(test_collected_outputs_are_planned) {
    if (skips) return;
    free(run_well(f, TRAIN_MODEL "--task mlm --train_file train.txt --line_by_line --output_dir mlm"));
    write_text(f, "masked.txt", "w1 [MASK] w2 [MASK]\nw3\n[MASK] good\nw4 [MASK]\nbad [MASK] w9 w8\n");
    json_t *config = read_json(f, path_of(f, "mlm/config.json"));
    const int64_t classes = json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
#define PREDICT "predict " RUN "2 --model_name_or_path mlm --test_file masked.txt --line_by_line --json"
    int64_t bytes[4] = {0}, rows = 0;
    for (int ranks = 3; ranks >= 1; ranks--) {
        run_ranks_well(f, ranks, PREDICT);
        bytes[ranks] = function_bytes(f);
        const int64_t row = ranks > 1 ? (ranks + 1) * (8 + 4 * classes) : 8;
        if (ranks == 3) rows = bytes[3] / row;
        assert_int_equal(bytes[ranks], (rows * row + 255) / 256 * 256);
    }
    assert_true(rows >= 3); /* masks of two texts */
}

/* The results in a folder, without times. */
static json_t *results_in(const struct fixture *f, const char *folder, const char *command) {
    json_t *results = read_json(f, path_of(f, "%s/%s_results.json", folder, command)), *value;
    const char *name;
    void *next;
    json_object_foreach_safe(results, next, name, value) if (strstr(name, "_runtime") || strstr(name, "_per_second"))
        json_object_del(results, name);
    return results;
}

/* Files of predictions, their metrics, and the confusion matrix of an evaluation are those of one rank. */
FIXTURE_TEST(test_files) {
    if (skips) return;
    free(run_well(f, TRAIN_MODEL "--train_file train.csv --output_dir out"));
#define MEASURED RUN "7 --model_name_or_path out --class_metrics "
    free(run_well(f, "predict " MEASURED "--test_file dev.csv --keep_columns all --output_dir one"));
    run_ranks_well(f, 3, "predict " MEASURED "--test_file dev.csv --keep_columns all --output_dir three");
    free(run_well(f, "eval " MEASURED "--validation_file dev.csv --output_dir one"));
    run_ranks_well(f, 3, "eval " MEASURED "--validation_file dev.csv --output_dir three");
    for (int predicts = 0; predicts < 2; predicts++) {
        json_t *one = results_in(f, "one", predicts ? "predict" : "eval"),
               *three = results_in(f, "three", predicts ? "predict" : "eval");
        assert_non_null(json_object_get(one, predicts ? "predict_auc" : "confusion_matrix"));
        assert_non_null(json_object_get(one, predicts ? "predict_loss" : "eval_loss"));
        assert_true(json_equal(one, three));
        json_decref(one);
        json_decref(three);
    }
    size_t size, sizes;
    char *one = read_text(f, path_of(f, "one/predict_results.txt"), &size),
         *three = read_text(f, path_of(f, "three/predict_results.txt"), &sizes);
    assert_int_equal(count_of(one, "\n"), EVAL_ROWS + 1);
    assert_string_equal(one, three);
    free(one);
    free(three);
}

/* A row that cannot be read ends all ranks, with one message; so does a rank's other model. */
FIXTURE_TEST(test_failures) {
    if (skips) return;
    free(run_well(f, TRAIN_MODEL "--train_file train.csv --output_dir out"));
    write_text(f, "bad.csv", "sentence,label\nw1,negative\nw2,neither\n");
    assert_said(f, run_ranks(f, "-n 2 " SNUG " eval " RUN "1 --model_name_or_path out --validation_file bad.csv"), 1,
                (const char *const[]){"rank 0 of 2 on ", "bad.csv", NULL});
    assert_said(f,
                run_ranks(f, "-n 2 " SNUG " predict " RUN "1 --model_name_or_path out --test_file - "
                             "--data_format csv"),
                2, (const char *const[]){"only one of 2 ranks can read it", NULL});
    free(run_well(f, TRAIN_MODEL "--train_file train.csv --seed 1 --output_dir other"));
    if (!is_open_mpi) return; /* -wdir is Open MPI's */
    assert_int_equal(mkdir(path_of(f, "elsewhere"), 0700), 0);
    assert_int_equal(symlink(path_of(f, "other"), path_of(f, "elsewhere/out")), 0);
    assert_int_equal(symlink(path_of(f, "dev.csv"), path_of(f, "elsewhere/dev.csv")), 0);
#define EVAL SNUG " eval " RUN "4 --model_name_or_path out --validation_file dev.csv "
    char command[1024];
    snprintf(command, sizeof command, "-n 1 " EVAL ": -n 1 -wdir %s " EVAL, path_of(f, "elsewhere"));
    assert_said(f, run_ranks(f, command), 2,
                (const char *const[]){"rank 1 on ", "has other weights or optimizer states than rank 0", NULL});
}

TEST_MAIN(NULL, NULL)
