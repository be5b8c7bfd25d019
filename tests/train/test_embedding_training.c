/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings of sentence embeddings: sentence-transformers' losses (tools/golden/embedding_losses.py); a step of any
   number of micro-batches, repeated and resumed; what is refused. */
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up_rows, tear_down
#define GOLDEN "tests/golden/embedding/"
#define EMBEDDING "task=embedding train_file=@pairs.csv "

/* Rows of two or three texts, which share words, and with a score of 0 or more. */
static void write_rows(const struct fixture *f, const char *name, int texts, bool scored, uint32_t rows) {
    static const char *const heads[] = {NULL, NULL, "anchor,positive", "anchor,positive,negative"};
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    fprintf(file, "%s%s\n", heads[texts], scored ? ",score" : "");
    for (uint32_t row = 0; row < rows; row++) {
        for (int text = 0; text < texts; text++) {
            const uint32_t length = 2 + random_word(row, (uint32_t)text, 3) % 12;
            fprintf(file, "%sw%u", text ? "," : "", text < 2 ? row % WORDS : random_word(row, 40, 5) % WORDS);
            for (uint32_t i = 0; i < length; i++) fprintf(file, " w%u", frequent_word(row, 50 * (uint32_t)text + i, 4));
        }
        fprintf(file, scored ? ",%g\n" : "\n", random_word(row, 60, 6) % 5 / 4.0);
    }
    assert_int_equal(fclose(file), 0);
}

static int set_up_rows(void **state) {
    const int failed = set_up(state);
    const struct fixture *f = *state;
    write_rows(f, "pairs.csv", 2, false, TRAIN_ROWS);
    write_rows(f, "scored.csv", 2, true, TRAIN_ROWS);
    write_rows(f, "triplets.csv", 3, false, TRAIN_ROWS);
    return failed;
}

static snug_status refuse(void *user, const snug_prediction *row) {
    (void)user, (void)row;
    return SNUG_E_INTERRUPTED;
}

/* ---- sentence-transformers --------------------------------------------------------------------------------------- */

/* The golden model without dropout, and a case's rows. */
static void write_case(const struct fixture *f, const json_t *one) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    static const char *const names[] = {"anchor", "positive", "negative"};
    const json_t *scores = json_object_get(one, "scores");
    char path[128];
    json_t *row, *text;
    size_t size, i, k;
    for (size_t file = 0; file < 3; file++) {
        snprintf(path, sizeof path, GOLDEN "model/%s", files[file]);
        char *data = read_text(f, path, &size);
        write_bytes(path_of(f, "golden/%s", files[file]), data, size);
        free(data);
    }
    json_t *config = read_json(f, GOLDEN "model/config.json");
    json_object_set_new(config, "hidden_dropout_prob", json_integer(0));
    json_object_set_new(config, "attention_probs_dropout_prob", json_integer(0));
    assert_int_equal(json_dump_file(config, path_of(f, "golden/config.json"), 0), 0);
    json_decref(config);
    const json_t *pooling = json_object_get(one, "pooling");
    if (pooling) {
        if (!exists(path_of(f, "golden/1_Pooling")))
            assert_int_equal(snug_folder_create(f->ctx, path_of(f, "golden/1_Pooling")), SNUG_OK);
        assert_int_equal(json_dump_file(pooling, path_of(f, "golden/1_Pooling/config.json"), 0), 0);
        write_text(f, "golden/modules.json",
                   "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"x.Transformer\"},"
                   " {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"x.Pooling\"}]");
    }
    FILE *out = fopen(path_of(f, "golden.jsonl"), "w");
    assert_non_null(out);
    json_array_foreach(json_object_get(one, "rows"), i, row) {
        json_t *object = json_object();
        json_array_foreach(row, k, text) json_object_set(object, names[k], text);
        if (json_is_array(scores)) json_object_set(object, "score", json_array_get(scores, i));
        char *line = json_dumps(object, JSON_COMPACT);
        fprintf(out, "%s\n", line);
        free(line);
        json_decref(object);
    }
    assert_int_equal(fclose(out), 0);
}

/* Losses that are nearly 0 are compared with the first one. */
static void expect_losses(const struct fixture *f, const char *output, const json_t *losses, const char *what) {
    json_t *history = history_of(f, output), *entry;
    const double first = json_number_value(json_array_get(losses, 0));
    size_t i, seen = 0;
    json_array_foreach(history, i, entry) {
        const json_t *loss = json_object_get(entry, "loss");
        if (!loss) continue;
        const double want = json_number_value(json_array_get(losses, seen++)), got = json_number_value(loss);
        if (fabs(got - want) > 1e-5 * first)
            fail_msg("%s, step %zu: the loss is %.9g, not %.9g", what, seen, got, want);
    }
    assert_int_equal(seen, json_array_size(losses));
    json_decref(history);
}

FIXTURE_TEST(test_losses_of_sentence_transformers) {
    json_t *golden = read_json(f, GOLDEN "losses.json"), *one;
    static const char *const batches[] = {"--per_device_train_batch_size 6",
                                          "--per_device_train_batch_size 6 --mini_batch_size 2"};
    size_t i;
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "golden")), SNUG_OK);
    json_array_foreach(golden, i, one) {
        const char *own = json_string_value(json_object_get(one, "arguments"));
        write_case(f, one);
        for (size_t k = 0; k < 2; k++) {
            char words[512], *argv[48] = {words}, *rest = words;
            int argc = 0;
            snug_args *args;
            snprintf(words, sizeof words,
                     "train --task embedding --learning_rate 5e-4 --lr_scheduler_type constant --num_train_epochs 10 "
                     "--logging_steps 1 --save_strategy no --threads 1 --device cpu %s %s",
                     batches[k], own);
            while ((argv[argc] = strsep(&rest, " "))) argc += *argv[argc] != '\0';
            assert_int_equal(snug_args_create(f->ctx, &args), SNUG_OK);
            ok(f, snug_args_parse(args, argc, argv));
            set_args(f, args, "model_name_or_path=@golden train_file=@golden.jsonl output_dir=@golden_out");
            if (snug_train(args, NULL, NULL) != SNUG_OK) fail_msg("%s: %s", own, snug_error_message(f->ctx));
            snug_args_destroy(args);
            expect_losses(f, "golden_out", json_object_get(one, "losses"), own);
        }
    }
    json_decref(golden);
}

/* ---- micro-batches ----------------------------------------------------------------------------------------------- */

/* The relative difference of the weights of two models. */
static double weights_apart(const struct fixture *f, const char *a, const char *b) {
    size_t sizes[2];
    char *files[2] = {read_text(f, path_of(f, "%s/model.safetensors", a), &sizes[0]),
                      read_text(f, path_of(f, "%s/model.safetensors", b), &sizes[1])};
    uint64_t header;
    double apart = 0, whole = 0;
    assert_int_equal(sizes[0], sizes[1]);
    memcpy(&header, files[0], sizeof header);
    for (size_t at = 8 + header; at + 4 <= sizes[0]; at += 4) {
        float x, y;
        memcpy(&x, files[0] + at, sizeof x);
        memcpy(&y, files[1] + at, sizeof y);
        apart += (double)(x - y) * (double)(x - y);
        whole += (double)x * (double)x;
    }
    free(files[0]);
    free(files[1]);
    return sqrt(apart / whole);
}

static void same_up_to_rounding(const struct fixture *f, const char *a, const char *b) {
    json_t *x = history_of(f, a), *y = history_of(f, b), *entry;
    size_t i;
    json_array_foreach(x, i, entry) {
        const json_t *loss = json_object_get(entry, "loss");
        const double other = json_number_value(json_object_get(json_array_get(y, i), "loss"));
        if (loss && !(fabs(json_number_value(loss) / other - 1) < 2e-5))
            fail_msg("%s: %g, %s: %g", a, json_number_value(loss), b, other);
    }
    json_decref(x);
    json_decref(y);
    const double apart = weights_apart(f, a, b);
    if (!(apart < 1e-5)) fail_msg("weights of %s and %s are %g apart", a, b, apart);
}

/* With dropout, and an epoch's last step that has fewer micro-batches, and one that is not full. */
FIXTURE_TEST(test_a_step_does_not_depend_on_its_micro_batches) {
    static const char *const runs[] = {
        "", "train_file=@triplets.csv symmetric=True ", "train_file=@scored.csv loss=cosent matryoshka_dims=32,8 ",
        "train_file=@scored.csv loss=contrastive update_in_backward=True max_grad_norm=0 "};
    static const char *const splits[] = {"per_device_train_batch_size=32",
                                         "per_device_train_batch_size=8 gradient_accumulation_steps=4",
                                         "per_device_train_batch_size=32 mini_batch_size=4"};
    char words[256];
    for (size_t run = 0; run < sizeof runs / sizeof *runs; run++) {
        for (size_t k = 0; k < 3; k++) {
            char name[16];
            snprintf(name, sizeof name, "split%zu", k);
            snprintf(words, sizeof words, EMBEDDING "logging_steps=1 learning_rate=1e-4 %s%s", runs[run], splits[k]);
            assert_int_equal(train(f, name, words).steps, 6);
        }
        same_up_to_rounding(f, "split0", "split1");
        same_up_to_rounding(f, "split0", "split2");
        snprintf(words, sizeof words,
                 EMBEDDING "logging_steps=1 learning_rate=1e-4 threads=2 dataloader_num_workers=2 %s%s", runs[run],
                 splits[2]);
        train(f, "again", words);
        assert_same_run(f, "split2", "again");
    }
}

FIXTURE_TEST(test_resumed_is_uninterrupted) {
    const char *words = EMBEDDING "logging_steps=1 save_strategy=steps save_steps=1 per_device_train_batch_size=16 "
                                  "mini_batch_size=4 ";
    train(f, "whole", words);
    for (int stop = 1; stop < 9; stop += 3) {
        char more[256];
        assert_int_equal(try_train(f, "cut", words, stop, NULL), SNUG_E_INTERRUPTED);
        snprintf(more, sizeof more, "%sresume_from_checkpoint=True", words);
        train(f, "cut", more);
        assert_same_run(f, "whole", "cut");
        snprintf(more, sizeof more, "%soverwrite_output_dir=True", words);
        train(f, "cut", more);
    }
}

static snug_status train_with_prompts(struct fixture *f, const char *words, const char *prompts) {
    snug_args *args = training_args(f, words);
    ok(f, snug_args_set(args, "output_dir", path_of(f, "prompted")));
    ok(f, snug_args_set(args, "prompts", prompts));
    const snug_status status = snug_train(args, NULL, NULL);
    snug_args_destroy(args);
    return status;
}

/* Beside the golden trainings: names that no column has, and what is not understood. */
FIXTURE_TEST(test_prompts_of_columns) {
    const char *words = EMBEDDING "max_steps=1 overwrite_output_dir=True";
    snug_metrics metrics;
    ok(f, train_with_prompts(f, words, "{\"anchor\": \"w3 \", \"positive\": \"\"}"));
    assert_failed(f, words, train_with_prompts(f, words, "{\"query\": \"w3 \"}"), SNUG_E_INPUT,
                  "pairs.csv: --prompts: there is no text column \"query\"; the columns of its texts are: anchor, "
                  "positive");
    assert_failed(f, words, train_with_prompts(f, words, "{\"anchor\": "), SNUG_E_USAGE, "this is not JSON");
    assert_failed(f, words, train_with_prompts(f, words, "{\"anchor\": 1}"), SNUG_E_USAGE,
                  "the prompt of \"anchor\" must be a text");
    /* A file to evaluate on has other columns; those that are named have their prompts. */
    write_text(f, "scores.csv", "anchor,other,score\nw1 w2,w2 w1,1\nw3 w4,w5 w6,0\nw5 w1,w1,0.5\n");
    words = EMBEDDING "max_steps=1 overwrite_output_dir=True validation_file=@scores.csv";
    ok(f, train_with_prompts(f, words, "{\"anchor\": \"w3 \", \"positive\": \"w9\"}"));
    static const char *const prompts[] = {NULL, "w7 w8 ", "{\"anchor\": \"w7 w8 \"}", "{\"other\": \"\"}"};
    double values[4];
    for (int i = 0; i < 4; i++) {
        snug_args *args = plain_args(f, "task=embedding model_name_or_path=@prompted validation_file=@scores.csv");
        if (prompts[i]) ok(f, snug_args_set(args, "prompts", prompts[i]));
        ok(f, evaluate_args(f, args, NULL, &metrics));
        values[i] = metric_of(&metrics, "eval_pearson_cosine");
        snug_args_destroy(args);
    }
    assert_true(values[0] != values[1] && values[1] != values[2] && values[0] == values[3]);
    snug_args *args = plain_args(f, "model_name_or_path=@prompted test_file=@scores.csv prompts=w1");
    assert_failed(f, "embed", snug_embed(args, NULL, refuse, NULL), SNUG_E_USAGE,
                  "give --prompt TEXT or --prompt_name");
    snug_args_destroy(args);
    args = plain_args(f, "model_name_or_path=@prompted queries_file=a corpus_file=b relevance_file=c prompts=w1");
    assert_failed(f, "eval", snug_evaluate(args, NULL, NULL), SNUG_E_USAGE, "give --query_prompt and --corpus_prompt");
    snug_args_destroy(args);
}

/* Rows that share texts: steps without a text twice, of any micro-batches, resumed, and what must not change. */
FIXTURE_TEST(test_no_duplicates) {
    const char *words = "task=embedding train_file=@alike.csv batch_sampler=no_duplicates logging_steps=1 "
                        "save_strategy=steps save_steps=1 num_train_epochs=3 ";
    char more[512];
    FILE *file = fopen(path_of(f, "alike.csv"), "w");
    assert_non_null(file);
    fputs("anchor,positive\n", file);
    for (int row = 0; row < 60; row++) fprintf(file, "w%d w1,w%d w%d\n", row % 12, 20 + row % 25, row % 3);
    assert_int_equal(fclose(file), 0);
    snprintf(more, sizeof more, "%sper_device_train_batch_size=8", words);
    *f->log = '\0';
    const snug_train_result whole = train(f, "split0", more);
    assert_contains(f->log, "no text is twice in a step of 8 rows: in an epoch ");
    assert_true(whole.steps % 3 == 0 && whole.steps <= 24);
    snprintf(more, sizeof more, "%sper_device_train_batch_size=8 mini_batch_size=2 dataloader_num_workers=2", words);
    train(f, "split1", more);
    same_up_to_rounding(f, "split0", "split1");
    assert_int_equal(try_train(f, "cut", more, 10, NULL), SNUG_E_INTERRUPTED);
    snprintf(more, sizeof more,
             "%sper_device_train_batch_size=8 mini_batch_size=2 dataloader_num_workers=2 resume_from_checkpoint=True",
             words);
    train(f, "cut", more);
    assert_same_run(f, "split1", "cut");
    snprintf(more, sizeof more,
             "%sper_device_train_batch_size=8 batch_sampler=batch_sampler max_steps=30 resume_from_checkpoint=True",
             words);
    assert_failed(f, more, try_train(f, "cut", more, 0, NULL), SNUG_E_INPUT, "batch_sampler");
    snprintf(more, sizeof more, "%sper_device_train_batch_size=32", words);
    assert_failed(f, more, try_train(f, "none", more, 0, NULL), SNUG_E_INPUT,
                  "give a smaller --per_device_train_batch");
    snprintf(more, sizeof more, "%strain_sampling_strategy=group_by_length", words);
    assert_failed(f, more, try_train(f, "none", more, 0, NULL), SNUG_E_USAGE, "both order the rows");
}

/* ---- folders ------------------------------------------------------------------------------------------------------
 */

/* A golden model's folder, with the modules of a case of cases.json. */
static void write_folder(const struct fixture *f, const json_t *one) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    const char *name;
    json_t *value, *kind;
    char from[128];
    size_t size, i;
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "golden")), SNUG_OK);
    for (size_t file = 0; file < 4; file++) {
        snprintf(from, sizeof from, GOLDEN "model/%s", files[file]);
        char *data = read_text(f, from, &size);
        write_bytes(path_of(f, "golden/%s", files[file]), data, size);
        free(data);
    }
    json_object_foreach(json_object_get(one, "files"), name, value) {
        const char *slash = strchr(name, '/');
        if (slash) mkdir(path_of(f, "golden/%.*s", (int)(slash - name), name), 0700);
        assert_int_equal(json_dump_file(value, path_of(f, "golden/%s", name), JSON_ENCODE_ANY), 0);
    }
    json_array_foreach(json_object_get(one, "dense"), i, kind) {
        if (strcmp(json_string_value(kind), "normalize") == 0) continue;
        snprintf(from, sizeof from, GOLDEN "model/%s.safetensors", json_string_value(kind));
        char *data = read_text(f, from, &size);
        write_bytes(path_of(f, "golden/%zu_Dense/model.safetensors", i + 2), data, size);
        free(data);
    }
}

struct expected {
    const json_t *vectors;
    size_t seen;
};
static snug_status compare_vector(void *user, const snug_prediction *row) {
    struct expected *e = user;
    const json_t *vector = json_array_get(e->vectors, e->seen++);
    assert_int_equal(row->logits_count, json_array_size(vector));
    for (size_t i = 0; i < row->logits_count; i++)
        assert_true(fabs((double)row->logits[i] - json_number_value(json_array_get(vector, i))) < 1e-5);
    return SNUG_OK;
}

/* A training that changes nothing writes a folder with the same vectors, and one in which checkpoints are resumed. */
FIXTURE_TEST(test_folders_of_sentence_transformers) {
    json_t *golden = read_json(f, GOLDEN "cases.json"), *one, *text;
    size_t i, k;
    char words[256];
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        write_folder(f, one);
        const char *still =
            "task=embedding model_name_or_path=@golden train_file=@pairs.csv learning_rate=0 max_steps=2 "
            "threads=1 output_dir=@still overwrite_output_dir=True save_strategy=no";
        snug_args *args = plain_args(f, still);
        if (snug_train(args, NULL, NULL) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
        snug_rows *rows;
        ok(f, snug_rows_create(f->ctx, &rows));
        json_array_foreach(json_object_get(golden, "texts"), k, text) {
            ok(f, snug_rows_text(rows, "text", json_string_value(text)));
            ok(f, snug_rows_end(rows));
        }
        struct expected expected = {.vectors = json_object_get(one, "vectors")};
        args = plain_args(f, "model_name_or_path=@still threads=1");
        ok(f, snug_args_set_rows(args, "test_file", rows));
        if (snug_embed(args, NULL, compare_vector, &expected) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        assert_int_equal(expected.seen, json_array_size(expected.vectors));
        snug_args_destroy(args);
        snug_rows_destroy(rows);
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "golden")));
        ok(f, snug_folder_remove(f->ctx, NULL, path_of(f, "still")));
    }
    write_folder(f, json_array_get(json_object_get(golden, "cases"), 7)); /* two linears */
    const char *common = "task=embedding config_name= model_name_or_path=@golden tokenizer_name= train_file=@pairs.csv "
                         "save_strategy=steps save_steps=3 ";
    snprintf(words, sizeof words, "%s", common);
    train(f, "whole", words);
    assert_int_equal(try_train(f, "cut", words, 7, NULL), SNUG_E_INTERRUPTED);
    snprintf(words, sizeof words, "%sresume_from_checkpoint=True", common);
    train(f, "cut", words);
    assert_same_run(f, "whole", "cut");
    assert_same_in_both(f, "whole", "cut", "2_Dense/model.safetensors");
    /* A folder of that name that snug did not make stays. */
    ok(f, snug_folder_create(f->ctx, path_of(f, "own/1_Pooling")));
    write_text(f, "own/1_Pooling/config.json", "{}");
    assert_int_equal(try_train(f, "own", common, 0, NULL), SNUG_E_IO);
    assert_contains(snug_error_message(f->ctx), "was not made by snug");
    json_decref(golden);
}

/* ---- what is refused ----------------------------------------------------------------------------------------------
 */

FIXTURE_TEST(test_what_is_refused) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"loss=cosent", "there is none: name it with --label_column_name"},
        {"loss=triplet", "is of three texts in each row, and there are 2"},
        {"train_file=@triplets.csv loss=cosine_similarity", "is of two texts in each row, and there are 3"},
        {"text_column_name=anchor", "is of two or more texts in each row, and there is 1"},
        {"mini_batch_size=3", "is no multiple of it"},
        {"margin=1", "--margin is not a setting of --loss multiple_negatives_ranking"},
        {"train_file=@scored.csv symmetric=True", "--symmetric is not a setting of --loss cosent"},
        {"train_file=@scored.csv loss=contrastive similarity_scale=3", "--similarity_scale is not a setting"},
        {"matryoshka_dims=33", "from 1 to the 32 values of a vector"},
        {"matryoshka_dims=8,x", "whole numbers"},
        {"matryoshka_dims=8,1.5", "whole numbers"},
        {"matryoshka_dims=8;16", "whole numbers"},
        {"matryoshka_dims=0", "whole numbers"},
        {"matryoshka_dims=1e10", "whole numbers"},
        {"matryoshka_dims=8,16 matryoshka_weights=1", "a number above 0 for each"},
        {"matryoshka_weights=1", "give these, too"},
        {"per_device_train_tokens=512", "in place of --per_device_train_tokens"},
        {"mini_batch_size=2 offload=activations", "steps of one micro-batch"},
        {"validation_file=@pairs.csv eval_strategy=epoch", "is evaluated on two texts and their score"},
        {"task=classification train_file=@train.csv loss=cosent", "--loss is for sentence embedding"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        snprintf(words, sizeof words, EMBEDDING "%s", cases[i].words);
        if (try_train(f, "refused", words, 0, NULL) == SNUG_OK) fail_msg("%s is not refused", cases[i].words);
        assert_contains(snug_error_message(f->ctx), cases[i].says);
    }
}

static void plan(struct fixture *f, const char *words, snug_status expected, const char *says) {
    snug_args *args = plain_args(f, words);
    snug_plan *found = NULL;
    const snug_status status = snug_plan_create(args, &found);
    if (status != expected) fail_msg("%s: %d: %s", words, (int)status, snug_error_message(f->ctx));
    if (says) assert_contains(snug_error_message(f->ctx), says);
    snug_plan_destroy(found);
    snug_args_destroy(args);
}

/* Plans without data have pairs, with a score where the loss needs it. */
FIXTURE_TEST(test_plans) {
    static const char *const losses[] = {"", "loss=cosent"};
    char words[256];
    for (size_t i = 0; i < 2; i++) {
        snprintf(words, sizeof words, "task=embedding config_name=@model mini_batch_size=2 threads=1 %s", losses[i]);
        plan(f, words, SNUG_OK, NULL);
    }
    plan(f, "task=embedding config_name=@model num_processes=2", SNUG_OK, NULL);
    plan(f, "task=embedding config_name=@model matryoshka_dims=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", SNUG_E_USAGE,
         "up to 16 whole numbers");
    plan(f, "task=embedding config_name=@model train_file=dummy:64x16 per_device_train_batch_size=16 mini_batch_size=4",
         SNUG_OK, NULL);
}

/* Adapters' folders are PEFT's. */
FIXTURE_TEST(test_adapters) {
    train(f, "base", EMBEDDING "max_steps=1");
    snug_args *args =
        plain_args(f, "task=embedding model_name_or_path=@base train_file=@pairs.csv use_peft=True "
                      "per_device_train_batch_size=16 mini_batch_size=4 max_steps=4 threads=1 "
                      "save_strategy=steps save_steps=2 load_best_model_at_end=False output_dir=@adapter");
    if (snug_train(args, NULL, NULL) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_args_destroy(args);
    assert_true(exists(path_of(f, "adapter/adapter_model.safetensors")));
    assert_false(exists(path_of(f, "adapter/modules.json")));
    assert_true(exists(path_of(f, "base/modules.json")) && exists(path_of(f, "base/1_Pooling/config.json")));
}

/* A loop has steps of one micro-batch. */
FIXTURE_TEST(test_loop) {
    snug_args *args = training_args(f, EMBEDDING "save_strategy=no");
    snug_session *session;
    const snug_batch_info *batch;
    double loss, norm;
    ok(f, snug_session_create(args, &session));
    ok(f, snug_session_begin_epoch(session, 0));
    ok(f, snug_next_batch(session, &batch));
    ok(f, snug_forward(session));
    ok(f, snug_loss(session, &loss));
    assert_true(loss > 0);
    ok(f, snug_backward(session));
    ok(f, snug_clip_grad_norm(session, 1, &norm));
    ok(f, snug_optimizer_step(session));
    snug_session_destroy(session);
    set_args(f, args, "mini_batch_size=2");
    assert_int_equal(snug_session_create(args, &session), SNUG_E_UNSUPPORTED);
    assert_contains(snug_error_message(f->ctx), "leave mini_batch_size and gradient_accumulation_steps out");
    snug_args_destroy(args);
}

/* What is reported: the loss that the data decides on. */
FIXTURE_TEST(test_loss_is_reported) {
    train(f, "out", EMBEDDING "max_steps=1");
    assert_contains(f->log, "loss: multiple_negatives_ranking, scale 20, over the 8 rows of a step together");
    train(f, "out", EMBEDDING "train_file=@scored.csv max_steps=1 overwrite_output_dir=True matryoshka_dims=8");
    assert_contains(f->log, "loss: cosent, scale 20, of the first values 8, over");
    assert_contains(f->log, "whole vectors, of 32 values, are not among them");
    train(f, "out",
          EMBEDDING "train_file=@scored.csv loss=multiple_negatives_ranking max_steps=1 "
                    "overwrite_output_dir=True");
    assert_contains(f->log, "does not read the scores");
    train(f, "out", EMBEDDING "train_file=@triplets.csv loss=triplet max_steps=1 overwrite_output_dir=True");
    assert_contains(f->log, "loss: triplet, margin 5");
}
TEST_MAIN(NULL, NULL)
