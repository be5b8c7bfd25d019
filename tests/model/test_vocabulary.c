/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the vocabulary. Tensors that config.json calls redundant are used as in transformers
   (tools/golden/vocabulary.py), or refused, and what is trained from such a folder is saved so that it is read back as
   it is. New tokens of the tokenizer get rows. */
#include <math.h>

#include "io/safetensors.h"
#include "model/draw.h"
#include "training_fixture.h"
#include "write_tensors.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { TENSORS = 64, TOKENS = 240, NEW_TOKENS = 2 };

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

/* A file's tensors, to be changed and written again. */
struct tensors {
    struct values_to_write of[TENSORS];
    char names[TENSORS][128];
    size_t count;
};

static void read_tensors(const struct fixture *f, const char *path, struct tensors *t) {
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, NULL, path, &files));
    *t = (struct tensors){.count = files.count};
    assert_true(files.count + 4 < TENSORS);
    for (size_t i = 0; i < files.count; i++) {
        const struct snug_stored_tensor *stored = &files.tensors[i];
        float *values = calloc((size_t)stored->count, sizeof *values);
        ok(f, snug_safetensors_read(f->ctx, &files, stored, 0, stored->count, values));
        snprintf(t->names[i], sizeof t->names[i], "%s", stored->name);
        t->of[i] = (struct values_to_write){.name = t->names[i], .dims = stored->dims, .data = values};
        memcpy(t->of[i].shape, stored->shape, sizeof t->of[i].shape);
    }
    snug_safetensors_close(&files);
}

static void free_tensors(struct tensors *t) {
    for (size_t i = 0; i < t->count; i++) free((void *)(uintptr_t)t->of[i].data);
}

static struct values_to_write *tensor(struct tensors *t, const char *name) {
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->of[i].name, name) == 0) return &t->of[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static void rename_tensor(struct tensors *t, const char *from, const char *to) {
    struct values_to_write *found = tensor(t, from);
    snprintf((char *)(uintptr_t)found->name, sizeof t->names[0], "%s", to);
}

/* A copy with its rows in reverse order, or as they are. */
static void copy_tensor(struct tensors *t, const char *from, const char *to, bool reverse) {
    const struct values_to_write *source = tensor(t, from);
    const int64_t rows = source->shape[0], cols = source->dims == 2 ? source->shape[1] : 1;
    float *values = calloc((size_t)(rows * cols), sizeof *values);
    for (int64_t r = 0; r < rows; r++)
        memcpy(values + (reverse ? rows - 1 - r : r) * cols, (const float *)source->data + r * cols,
               (size_t)cols * sizeof *values);
    struct values_to_write *added = &t->of[t->count];
    snprintf(t->names[t->count], sizeof t->names[0], "%s", to);
    *added = (struct values_to_write){.name = t->names[t->count], .dims = source->dims, .data = values};
    memcpy(added->shape, source->shape, sizeof added->shape);
    t->count++;
}

/* A folder whose tokenizer has `more` tokens, t200, t201 …, that its model lacks. */
static void write_longer_folder(const struct fixture *f, const char *folder, const struct tensors *t,
                                const json_t *config, int64_t more) {
    char vocab[8 * TOKENS];
    size_t used = (size_t)snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    snug_folder_remove(f->ctx, NULL, path_of(f, "%s", folder));
    ok(f, snug_folder_create(f->ctx, path_of(f, "%s", folder)));
    ok(f, write_tensors(f->ctx, path_of(f, "%s/model.safetensors", folder), t->of, t->count));
    assert_int_equal(json_dump_file(config, path_of(f, "%s/config.json", folder), 0), 0);
    for (int64_t i = 5; i < json_integer_value(json_object_get(config, "vocab_size")) + more; i++)
        used += (size_t)snprintf(vocab + used, sizeof vocab - used, "t%d\n", (int)i);
    write_bytes(path_of(f, "%s/vocab.txt", folder), vocab, used);
    write_text(f, "tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizer\"}");
    assert_int_equal(rename(path_of(f, "tokenizer_config.json"), path_of(f, "%s/tokenizer_config.json", folder)), 0);
}

static void write_folder(const struct fixture *f, const char *folder, const struct tensors *t, const json_t *config) {
    write_longer_folder(f, folder, t, config, 0);
}

/* ---- predictions ------------------------------------------------------------------------------------------------ */

static snug_status take(void *user, const snug_prediction *row) {
    double *scores = user;
    for (size_t i = 0; i < row->candidate_count; i++) {
        static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
        int id = atoi(row->candidates[i] + 1);
        for (int k = 0; k < 5; k++)
            if (strcmp(row->candidates[i], special[k]) == 0) id = k;
        scores[id] = row->candidate_scores[i];
    }
    return SNUG_OK;
}

/* The probabilities of all tokens for the masked one of "t5 [MASK] tNUMBER". */
static void predict_before(struct fixture *f, const char *folder, int number, double scores[TOKENS]) {
    char words[128], text[32];
    const char *const texts[] = {text};
    snprintf(text, sizeof text, "t5 [MASK] t%d", number);
    snug_model *model;
    snprintf(words, sizeof words, "task=mlm model_name_or_path=@%s top_k=%d", folder, TOKENS);
    snug_args *args = plain_args(f, words);
    ok(f, snug_model_open(args, &model));
    ok(f, snug_model_predict(model, f->ctx, texts, NULL, 1, take, scores));
    snug_model_destroy(model);
    snug_args_destroy(args);
}

static void predict(struct fixture *f, const char *folder, double scores[TOKENS]) {
    predict_before(f, folder, 7, scores);
}

static void check_scores(const double *scores, const json_t *expected, double tolerance) {
    assert_true(json_array_size(expected) > 0);
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const double wanted = json_number_value(json_array_get(expected, i));
        if (!(fabs(scores[i] - wanted) <= tolerance * wanted))
            fail_msg("token %zu: %.8g, not %.8g", i, scores[i], wanted);
    }
}

/* ---- cases of tools/golden/vocabulary.py
 * --------------------------------------------------------------------------------
 */

static bool has_change(const json_t *c, const char *name) {
    size_t i;
    json_t *value;
    json_array_foreach(json_object_get(c, "changes"), i,
                       value) if (strcmp(json_string_value(value), name) == 0) return true;
    return false;
}

static void write_case(const struct fixture *f, const json_t *c) {
    struct tensors t;
    const char *names[4], *folder = json_string_value(json_object_get(c, "folder"));
    char path[512];
    for (size_t i = 0; i < 4; i++) names[i] = json_string_value(json_array_get(json_object_get(c, "names"), i));
    snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/%s/model.safetensors", folder);
    read_tensors(f, path, &t);
    if (has_change(c, "own")) copy_tensor(&t, names[0], names[1], true);
    if (has_change(c, "bias")) copy_tensor(&t, names[2], names[3], true);
    if (has_change(c, "move")) rename_tensor(&t, names[0], names[1]);
    if (has_change(c, "move_bias")) rename_tensor(&t, names[2], names[3]);
    snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/%s/config.json", folder);
    json_t *config = json_load_file(path, 0, NULL), *tied = json_object_get(c, "tie_word_embeddings");
    assert_non_null(config);
    json_object_del(config, "tie_word_embeddings");
    if (!json_is_null(tied)) json_object_set(config, "tie_word_embeddings", tied);
    write_longer_folder(f, "case", &t, config, has_change(c, "grow") ? NEW_TOKENS : 0);
    json_decref(config);
    free_tensors(&t);
}

/* A session of a training on the folder, which gives new tokens rows; its model is saved as "grown". */
static void grow(struct fixture *f, const char *folder) {
    char words[512];
    snug_session *session;
    snprintf(words, sizeof words,
             "task=mlm line_by_line=True train_file=@t.txt config_name=@%s tokenizer_name=@%s model_name_or_path=@%s",
             folder, folder, folder);
    snug_args *args = training_args(f, words);
    write_text(f, "t.txt", "t5 t6 t7 t8\nt9 t10 t11\nt12 t13 t14 t15\nt16 t17 t18\n");
    ok(f, snug_session_create(args, &session));
    ok(f, snug_save_model(session, path_of(f, "grown")));
    snug_session_destroy(session);
    snug_args_destroy(args);
}

static void check_grown(struct fixture *f, const json_t *c) {
    double scores[TOKENS] = {0};
    grow(f, "case");
    json_t *config = read_json(f, path_of(f, "grown/config.json"));
    const int64_t tokens = json_integer_value(json_object_get(config, "vocab_size")) - NEW_TOKENS;
    json_decref(config);
    predict_before(f, "grown", (int)tokens, scores);
    check_scores(scores, json_object_get(c, "scores"), 2e-3); /* new rows are random, within 3e-5 deviations */
    check_scores(scores + tokens, json_object_get(c, "new_scores"), 2e-3);
}

/* Read as transformers reads it; what is dropped or untied is said. */
FIXTURE_TEST(used_as_in_transformers) {
    size_t i;
    json_t *c, *golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/vocabulary.json", 0, NULL);
    assert_non_null(golden);
    json_array_foreach(json_object_get(golden, "cases"), i, c) {
        const json_t *tie = json_object_get(c, "tie_word_embeddings");
        const bool tied = !json_is_false(tie), own = has_change(c, "own"), bias = has_change(c, "bias");
        const bool two_names = !json_is_null(json_array_get(json_object_get(c, "names"), 3));
        double scores[TOKENS] = {0};
        char *text = json_dumps(json_object_get(c, "changes"), 0);
        print_message("%s %s%s\n", json_string_value(json_object_get(c, "folder")), text, tied ? "" : " untied");
        free(text);
        write_case(f, c);
        f->log[0] = '\0';
        if (has_change(c, "grow")) {
            check_grown(f, c);
            continue;
        }
        predict(f, "case", scores);
        check_scores(scores, json_object_get(c, "scores"), 2e-5);
        assert_int_equal(strstr(f->log, "though the model's configuration ties them") != NULL, own && tied);
        assert_int_equal(strstr(f->log, "only the latter is used") != NULL, bias);
        assert_int_equal(strstr(f->log, "1 tensors are not used") != NULL, own && !tied && !bias && two_names);
    }
    assert_true(i > 60);
    json_decref(golden);
}

/* ---- training -----------------------------------------------------------------------------------------------------
 */

/* The MLM of tests/golden/model with its own decoder, though config.json says tied. */
static void write_own_decoder(struct fixture *f) {
    struct tensors t;
    read_tensors(f, SNUG_SOURCE_DIR "/tests/golden/model/mlm/model.safetensors", &t);
    copy_tensor(&t, "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", true);
    json_t *config = json_load_file(SNUG_SOURCE_DIR "/tests/golden/model/mlm/config.json", 0, NULL);
    json_object_set_new(config, "tie_word_embeddings", json_true());
    write_folder(f, "own", &t, config);
    json_decref(config);
    free_tensors(&t);
    write_text(f, "t.txt", "t5 t6 t7 t8\nt9 t10 t11\nt12 t13 t14 t15\nt16 t17 t18\n");
}

/* What is trained has both tables, says so, and is read back with the same predictions, also by a resumed run. */
FIXTURE_TEST(trained_with_its_own_decoder) {
    double before[TOKENS] = {0}, after[TOKENS] = {0}, resumed[TOKENS] = {0};
    const char *words = "task=mlm line_by_line=True train_file=@t.txt config_name=@own tokenizer_name=@own"
                        " model_name_or_path=@own per_device_train_batch_size=4 save_strategy=steps save_steps=1";
    char more[512];
    write_own_decoder(f);
    predict(f, "own", before);
    snprintf(more, sizeof more, "%s max_steps=2", words);
    train(f, "out", more);
    predict(f, "out", after);
    json_t *config = read_json(f, path_of(f, "out/config.json"));
    assert_true(json_is_false(json_object_get(config, "tie_word_embeddings")));
    json_decref(config);
    struct tensors t;
    read_tensors(f, path_of(f, "out/model.safetensors"), &t);
    tensor(&t, "cls.predictions.decoder.weight");
    assert_memory_equal(tensor(&t, "cls.predictions.bias")->data, tensor(&t, "cls.predictions.decoder.bias")->data,
                        200 * sizeof(float));
    free_tensors(&t);
    double moved = 0;
    for (int i = 0; i < TOKENS; i++) moved += fabs(after[i] - before[i]);
    assert_true(moved > 1e-4 && moved < 0.5);
    snprintf(more, sizeof more, "%s max_steps=2 resume_from_checkpoint=@out/checkpoint-1", words);
    train(f, "again", more);
    predict(f, "again", resumed);
    assert_memory_equal(after, resumed, sizeof after);
}

static int64_t planned_weights(struct fixture *f, const char *words) {
    snug_args *args = plain_args(f, words);
    snug_plan *plan;
    ok(f, snug_plan_create(args, &plan));
    const int64_t bytes = snug_plan_bytes(plan, SNUG_MEMORY_WEIGHTS);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    return bytes;
}

/* A plan has the bytes of both tables if the weights are there; a config.json alone says nothing of them. */
FIXTURE_TEST(planned_with_its_own_decoder) {
    write_own_decoder(f);
    const int64_t own = planned_weights(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@own");
    const int64_t tied = planned_weights(f, "task=mlm train_file=dummy:8x16 config_name=@own");
    assert_int_equal(own - tied, 200 * 32 * (int64_t)sizeof(float));
    write_bytes(path_of(f, "own/model.safetensors"), "?", 1);
    snug_plan *plan;
    snug_args *args = plain_args(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@own");
    assert_int_equal(snug_plan_create(args, &plan), SNUG_E_INPUT); /* what cannot be read is not passed over */
    snug_args_destroy(args);
    assert_int_equal(remove(path_of(f, "own/model.safetensors")), 0);
    assert_int_equal(planned_weights(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@own"), tied);
}

/* ---- two names of one weight --------------------------------------------------------------------------------------
 */

/* The same twice is read; with other values both names are in the message. */
FIXTURE_TEST(two_names_of_a_weight) {
    static const struct {
        const char *name, *other;
    } cases[] = {
        {"bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"},
        {"bert.encoder.layer.1.output.LayerNorm.bias", "bert.encoder.layer.1.output.LayerNorm.beta"},
        {"bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"},
        {"bert.encoder.layer.0.attention.self.query.bias", "encoder.layer.0.attention.self.query.bias"},
        {"cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.gamma"},
    };
    enum { SAME, REVERSED, SHORTER, FLAT, WAYS }; /* the second tensor */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int way = 0; way < WAYS; way++) {
            struct tensors t;
            double scores[TOKENS] = {0};
            read_tensors(f, SNUG_SOURCE_DIR "/tests/golden/model/mlm/model.safetensors", &t);
            copy_tensor(&t, cases[i].name, cases[i].other, way == REVERSED);
            struct values_to_write *second = tensor(&t, cases[i].other);
            if (way == SHORTER) second->shape[0]--;
            if (way == FLAT) second->dims = 3 - second->dims, second->shape[1] = 1;
            json_t *config = json_load_file(SNUG_SOURCE_DIR "/tests/golden/model/mlm/config.json", 0, NULL);
            write_folder(f, "twice", &t, config);
            json_decref(config);
            free_tensors(&t);
            if (way == SAME) {
                predict(f, "twice", scores);
                continue;
            }
            snug_model *model;
            snug_args *args = plain_args(f, "task=mlm model_name_or_path=@twice");
            assert_int_equal(snug_model_open(args, &model), SNUG_E_INPUT);
            const char *message = snug_error_message(f->ctx);
            assert_contains(message, cases[i].other);
            if (way == REVERSED || !strstr(message, "has shape")) { /* of the one that was read first */
                assert_contains(message, cases[i].name);
                assert_contains(message, "are the same weight of a BERT model, but differ at element 0");
            }
            snug_args_destroy(args);
        }
}

/* A classifier has no decoder: the stored one is unused, whatever its values, and named. */
FIXTURE_TEST(decoder_of_a_classifier) {
    write_own_decoder(f);
    f->log[0] = '\0';
    train(f, "class", "config_name=@own tokenizer_name=@own model_name_or_path=@own max_steps=1");
    assert_contains(f->log, "cls.predictions.decoder.weight");
    assert_null(strstr(f->log, "has other values"));
}

/* The MLM of tests/golden/model, with t200 … at the end of its vocabulary. */
static void write_new_words(const struct fixture *f, const char *folder, int64_t more) {
    struct tensors t;
    read_tensors(f, SNUG_SOURCE_DIR "/tests/golden/model/mlm/model.safetensors", &t);
    json_t *config = json_load_file(SNUG_SOURCE_DIR "/tests/golden/model/mlm/config.json", 0, NULL);
    write_longer_folder(f, folder, &t, config, more);
    json_decref(config);
    free_tensors(&t);
}

/* ---- the padding token --------------------------------------------------------------------------------------------
 */

/* A tokenizer of these words that has no padding token. */
#define NO_PADDING                                                                                                     \
    "{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\","           \
    " \"max_input_chars_per_word\": 100, \"vocab\": {\"[UNK]\": 0, \"t5\": 1, \"t6\": 2, \"t7\": 3}},"                 \
    " \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}}"

/* A pad_token_id that is not the tokenizer's padding token is a warning, of what it means in the family. */
FIXTURE_TEST(padding_tokens_are_compared) {
    static const struct {
        const char *model, *pad;
        bool without;     /* the tokenizer has no padding token */
        const char *says; /* NULL: nothing */
    } cases[] = {
        {"bert", "0", false, NULL},
        {"bert", "null", false, NULL},
        {"bert", "6", false,
         "pad_token_id is 6 (\"t6\"), the tokenizer pads with \"[PAD]\": as in transformers, the "
         "embedding"},
        {"modernbert", "6", false, "the embedding of 6 is not trained"},
        {"roberta", "0", false, NULL},
        {"roberta", "6", false,
         "tokens of that id in a text are not counted by position ids, and the embedding of 6 is not trained"},
        {"mpnet", "0", false, "pad_token_id is 1 (\"[UNK]\"), the tokenizer pads with \"[PAD]\""},
        {"bert", "2", true, NULL},
        {"xlm-roberta", "2", true, "pad_token_id is 2 (\"t6\"), the tokenizer has no padding token"},
    };
    static const char class[] = "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}";
    write_text(f, "t.csv", "text,label\nt5 t6,no\nt7,yes\n");
    write_new_words(f, "full", 0);
    ok(f, snug_folder_create(f->ctx, path_of(f, "none")));
    write_bytes(path_of(f, "none/tokenizer.json"), NO_PADDING, strlen(NO_PADDING));
    write_bytes(path_of(f, "none/tokenizer_config.json"), class, sizeof class - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512], words[256];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"vocab_size\": 200, \"hidden_size\": 16, \"num_hidden_layers\": 1,"
                 " \"num_attention_heads\": 2, \"intermediate_size\": 16, \"max_position_embeddings\": 40,"
                 " \"pad_token_id\": %s}",
                 cases[i].model, cases[i].pad);
        write_text(f, "padded.json", config);
        snprintf(words, sizeof words,
                 "task=classification train_file=@t.csv config_name=@padded.json tokenizer_name=@%s",
                 cases[i].without ? "none" : "full");
        f->log[0] = '\0';
        planned_weights(f, words);
        if (cases[i].says)
            assert_contains(f->log, cases[i].says);
        else
            assert_null(strstr(f->log, "pad_token_id is"));
    }
}

/* ---- new tokens ---------------------------------------------------------------------------------------------------
 */

enum { COLS = 48 };

/* Old rows of which every second column of three is twice the first, plus 3, and every third is constant. */
static snug_status make_old(const void *user, int64_t first, int64_t count, void *values) {
    float *out = values;
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t row = (uint32_t)((first + i) / COLS), column = (uint32_t)((first + i) % COLS);
        const uint32_t triple = column / 3, word = snug_philox(row, triple, 1, 2, 3, 4).word[0];
        const float base = (float)word * 0x1p-32f;
        out[i] = column % 3 == 0 ? base : column % 3 == 1 ? 2 * base + 3 : 0.5f;
    }
    return SNUG_OK;
}

/* The mean and covariance of the old rows, scaled; any piece of the new rows has the same bits, with any threads. */
TEST(distribution_of_new_rows) {
    enum { ROWS = 6001, NEW = 100, COUNT = COLS * NEW }; /* more old rows than are made at a time */
    struct snug_new_rows rows = {
        .old = make_old, .rows = ROWS, .cols = COLS, .deviation = 10 / sqrt(ROWS), .threads = 2};
    static float drawn[COUNT], again[COUNT];
    const double deviation = 10 / sqrt(12), count = COUNT / 3.0; /* ten times a uniform number's */
    double mean[COLS], sum = 0, squares = 0;
    rows.draw = snug_draw_of("a table", 5);
    rows.mean = mean;
    rows.part = calloc((size_t)snug_new_rows_part(COLS), sizeof(float));
    assert_int_equal(snug_new_rows_begin(&rows), SNUG_OK);
    assert_int_equal(snug_new_rows_make(&rows, 0, COUNT, drawn), SNUG_OK);
    for (int i = 0; i < COUNT; i += 3) {
        const double own = (double)drawn[i] - mean[i % COLS];
        assert_float_equal(mean[i % COLS], 0.5, 0.02);
        sum += own;
        squares += own * own;
        assert_float_equal((double)drawn[i + 1] - mean[i % COLS + 1], 2 * own, 1e-3);
        assert_float_equal(drawn[i + 2], 0.5, 1e-5);
    }
    assert_float_equal(sum / count, 0, 5 * deviation / sqrt(count)); /* five standard errors */
    assert_float_equal(sqrt(squares / count), deviation, 5 * deviation / sqrt(2 * count));
    rows.threads = 1;
    for (int64_t first = 0; first < COUNT; first += 77)
        assert_int_equal(snug_new_rows_make(&rows, first, COUNT - first < 77 ? COUNT - first : 77, again + first),
                         SNUG_OK);
    assert_memory_equal(drawn, again, sizeof drawn);
    free(rows.part);
    assert_int_equal(snug_new_rows_part(1 << 20), 4 << 20); /* of very wide tables a few rows */
}

static void add_token(struct fixture *f, const char *folder, const char *json) {
    const char *path = path_of(f, "%s/added_tokens.json", folder);
    write_bytes(path, json, strlen(json));
}

/* Old rows are unchanged, new ones differ from each other and from threads to threads not at all; also in bf16. */
FIXTURE_TEST(old_rows_are_kept) {
    static const char word[] = "bert.embeddings.word_embeddings.weight", bias[] = "cls.predictions.bias";
    struct tensors before, after;
    write_new_words(f, "new", 3);
    f->log[0] = '\0';
    grow(f, "new");
    assert_contains(f->log, "has 203 tokens, the model's vocab_size was 200: its tables get 3 rows more");
    assert_contains(f->log, "for \"t200\", \"t201\", \"t202\"");
    read_tensors(f, path_of(f, "new/model.safetensors"), &before);
    read_tensors(f, path_of(f, "grown/model.safetensors"), &after);
    assert_int_equal(before.count, after.count);
    for (size_t i = 0; i < before.count; i++) {
        const struct values_to_write *a = &before.of[i], *b = tensor(&after, a->name);
        const bool grows = strcmp(a->name, word) == 0 || strcmp(a->name, bias) == 0;
        const size_t cols = a->dims == 2 ? (size_t)a->shape[1] : 1;
        assert_int_equal(b->shape[0], a->shape[0] + (grows ? 3 : 0));
        assert_memory_equal(a->data, b->data, (size_t)a->shape[0] * cols * sizeof(float));
    }
    const float *rows = tensor(&after, word)->data, *biases = tensor(&after, bias)->data;
    for (int i = 200; i < 203; i++) {
        assert_true(biases[i] == 0);
        for (int k = 200; k < i; k++) assert_memory_not_equal(rows + 32 * i, rows + 32 * k, 32 * sizeof *rows);
    }
    free_tensors(&before);
    free_tensors(&after);
}

/* A run, resumed after each step, gives the bits of one that goes through; eval and predict read its folder. */
FIXTURE_TEST(trained_with_new_tokens) {
    snug_metrics metrics;
    const char *words = "task=mlm line_by_line=True train_file=@t.txt config_name=@new tokenizer_name=@new"
                        " model_name_or_path=@new per_device_train_batch_size=2 max_steps=4 save_strategy=steps"
                        " save_steps=2";
    char more[512];
    write_new_words(f, "new", 2);
    write_text(f, "t.txt", "t5 t200 t7 t8\nt9 t10 t201\nt12 t13 t14 t15\nt200 t17 t18\n");
    train(f, "whole", words);
    snprintf(more, sizeof more, "%s resume_from_checkpoint=@whole/checkpoint-2", words);
    train(f, "rest", more);
    assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "rest/model.safetensors"));
    snug_args *args =
        plain_args(f, "task=mlm line_by_line=True model_name_or_path=@whole validation_file=@t.txt threads=2");
    ok(f, evaluate_args(f, args, NULL, &metrics));
    snug_args_destroy(args);
    double scores[TOKENS] = {0};
    predict_before(f, "whole", 201, scores);
    assert_true(scores[200] > 0 && scores[201] > 0);
    /* A second training does not grow it again. */
    f->log[0] = '\0';
    train(f, "second",
          "task=mlm line_by_line=True train_file=@t.txt config_name=@whole tokenizer_name=@whole"
          " model_name_or_path=@whole max_steps=1");
    assert_null(strstr(f->log, "rows more"));
}

/* Of a frozen table in 16 bits, the rows of the file are saved as they are there, the new ones as they are used. */
FIXTURE_TEST(frozen_with_new_tokens) {
    static const char word[] = "bert.embeddings.word_embeddings.weight";
    struct tensors before, after;
    const char *words = "task=mlm line_by_line=True train_file=@t.txt config_name=@new tokenizer_name=@new"
                        " model_name_or_path=@new per_device_train_batch_size=2 bf16=True"
                        " freeze=embeddings max_steps=4 save_strategy=steps save_steps=2";
    char more[512];
    write_new_words(f, "new", 2);
    write_text(f, "t.txt", "t5 t200 t7 t8\nt9 t10 t201\nt12 t13 t14 t15\nt200 t17 t18\n");
    train(f, "whole", words);
    snprintf(more, sizeof more, "%s resume_from_checkpoint=@whole/checkpoint-2", words);
    train(f, "rest", more);
    assert_same_file(f, path_of(f, "whole/model.safetensors"), path_of(f, "rest/model.safetensors"));
    read_tensors(f, path_of(f, "new/model.safetensors"), &before);
    read_tensors(f, path_of(f, "whole/model.safetensors"), &after);
    const float *rows = tensor(&after, word)->data;
    assert_memory_equal(tensor(&before, word)->data, rows, 200 * 32 * sizeof *rows);
    for (int i = 200 * 32; i < 202 * 32 && snug_backend_cpu_fast_bf16(); i++)
        assert_true(rows[i] == snug_bf16_to_f32(snug_f32_to_bf16(rows[i])));
    free_tensors(&before);
    free_tensors(&after);
}

static int64_t trained_vocabulary(struct fixture *f, const char *words) {
    train(f, "out", words);
    json_t *config = read_json(f, path_of(f, "out/config.json"));
    const int64_t size = json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
    return size;
}

/* From scratch, with marker tokens of a classifier, of tags, and in bf16: the tables have the tokenizer's size. */
FIXTURE_TEST(every_training_grows) {
    write_new_words(f, "new", 1);
    write_new_words(f, "markers", 0);
    add_token(f, "markers", "{\"[A1]\": 200, \"[/A1]\": 201}");
    write_text(f, "t.txt", "t5 t200 t7 t8\nt9 t10 t11\n");
    write_text(f, "m.csv", "text,label\nt5 [A1] t6 [/A1],no\nt7 t8,yes\n");
    write_text(f, "m.jsonl", "{\"tokens\": [\"t5\", \"[A1]\"], \"ner_tags\": [\"O\", \"B\"]}\n");
    assert_int_equal(trained_vocabulary(f, "task=mlm line_by_line=True train_file=@t.txt config_name=@new"
                                           " tokenizer_name=@new max_steps=1"),
                     201);
    assert_int_equal(trained_vocabulary(f, "train_file=@m.csv config_name=@markers tokenizer_name=@markers"
                                           " model_name_or_path=@markers max_steps=1"),
                     202);
    assert_int_equal(trained_vocabulary(f, "task=ner train_file=@m.jsonl config_name=@markers tokenizer_name=@markers"
                                           " model_name_or_path=@markers max_steps=1"),
                     202);
    assert_int_equal(trained_vocabulary(f, "task=mlm line_by_line=True train_file=@t.txt config_name=@new"
                                           " tokenizer_name=@new model_name_or_path=@new max_steps=1 dtype=bfloat16"),
                     201);
    const int64_t plain =
        planned_weights(f, "task=mlm line_by_line=True train_file=@t.txt model_name_or_path=@markers");
    const int64_t none = planned_weights(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@markers");
    assert_true(plain >= none + 2 * 32 * (int64_t)sizeof(float));
}

static void fails(struct fixture *f, snug_status found, const char *says) {
    assert_int_equal(found, SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), says);
    snug_clear_error(f->ctx);
}

/* A tokenizer that is another model's, or a model that was not trained with it. */
FIXTURE_TEST(tokenizers_of_other_models) {
    snug_model *model;
    write_new_words(f, "new", 70); /* of its own vocabulary */
    write_text(f, "m.csv", "text,label\nt5,no\nt7 t8,yes\n");
    fails(f,
          try_train(f, "o", "train_file=@m.csv config_name=@new tokenizer_name=@new model_name_or_path=@new", 0, NULL),
          "has 270 tokens, the model's vocab_size is 200: they do not belong together; --task mlm would give");
    snug_args *args = plain_args(f, "task=mlm model_name_or_path=@new");
    fails(f, snug_model_open(args, &model), "they do not belong together, unless tokens were added: a training gives");
    snug_args_destroy(args);
    f->log[0] = '\0';
    grow(f, "new");
    assert_contains(f->log, "70 rows more");
    assert_contains(f->log, " ...\n"); /* not all of their names */
}

TEST_MAIN(NULL, NULL)
