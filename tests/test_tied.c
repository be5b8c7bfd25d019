/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that config.json calls redundant: they are used as in transformers (tools/golden_tied.py), or refused, and
   what is trained from such a folder is saved so that it is read back as it is. */
#include <math.h>

#include "io/safetensors.h"
#include "training_fixture.h"
#include "write_tensors.h"

enum { TENSORS = 64, TOKENS = 200 };

static void ok(const struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("status %d: %s", status, snug_error_message(f->ctx));
}

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

static void write_folder(const struct fixture *f, const char *folder, const struct tensors *t, const json_t *config) {
    char vocab[8 * TOKENS];
    size_t used = (size_t)snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    snug_folder_remove(f->ctx, NULL, path_of(f, "%s", folder));
    ok(f, snug_folder_create(f->ctx, path_of(f, "%s", folder)));
    ok(f, write_tensors(f->ctx, path_of(f, "%s/model.safetensors", folder), t->of, t->count));
    assert_int_equal(json_dump_file(config, path_of(f, "%s/config.json", folder), 0), 0);
    for (int64_t i = 5; i < json_integer_value(json_object_get(config, "vocab_size")); i++)
        used += (size_t)snprintf(vocab + used, sizeof vocab - used, "t%d\n", (int)i);
    write_bytes(path_of(f, "%s/vocab.txt", folder), vocab, used);
    write_text(f, "tokenizer_config.json", "{\"tokenizer_class\": \"BertTokenizer\"}");
    assert_int_equal(rename(path_of(f, "tokenizer_config.json"), path_of(f, "%s/tokenizer_config.json", folder)), 0);
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

/* The probabilities of all tokens for the masked one of a text. */
static void predict(struct fixture *f, const char *folder, double scores[TOKENS]) {
    static const char *const texts[] = {"t5 [MASK] t7"};
    char words[128];
    snug_model *model;
    snprintf(words, sizeof words, "task=mlm model_name_or_path=@%s top_k=%d", folder, TOKENS);
    snug_args *args = plain_args(f, words);
    ok(f, snug_model_open(args, &model));
    ok(f, snug_model_predict(model, f->ctx, texts, NULL, 1, take, scores));
    snug_model_destroy(model);
    snug_args_destroy(args);
}

static void check_scores(const double scores[TOKENS], const json_t *expected) {
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const double wanted = json_number_value(json_array_get(expected, i));
        if (!(fabs(scores[i] - wanted) <= 2e-5 * wanted)) fail_msg("token %zu: %.8g, not %.8g", i, scores[i], wanted);
    }
}

/* ---- cases of tools/golden_tied.py --------------------------------------------------------------------------------
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
    write_folder(f, "case", &t, config);
    json_decref(config);
    free_tensors(&t);
}

/* Read as transformers reads it; what is dropped or untied is said. */
static void used_as_in_transformers(void **state) {
    struct fixture *f = *state;
    size_t i;
    json_t *c, *golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/tied.json", 0, NULL);
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
        predict(f, "case", scores);
        check_scores(scores, json_object_get(c, "scores"));
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
static void trained_with_its_own_decoder(void **state) {
    struct fixture *f = *state;
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
static void planned_with_its_own_decoder(void **state) {
    struct fixture *f = *state;
    write_own_decoder(f);
    const int64_t own = planned_weights(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@own");
    const int64_t tied = planned_weights(f, "task=mlm train_file=dummy:8x16 config_name=@own");
    assert_int_equal(own - tied, 200 * 32 * (int64_t)sizeof(float));
    assert_int_equal(remove(path_of(f, "own/model.safetensors")), 0);
    assert_int_equal(planned_weights(f, "task=mlm train_file=dummy:8x16 model_name_or_path=@own"), tied);
}

/* ---- two names of one weight --------------------------------------------------------------------------------------
 */

/* The same twice is read; with other values both names are in the message. */
static void two_names_of_a_weight(void **state) {
    static const struct {
        const char *name, *other;
    } cases[] = {
        {"bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma"},
        {"bert.encoder.layer.1.output.LayerNorm.bias", "bert.encoder.layer.1.output.LayerNorm.beta"},
        {"bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"},
        {"bert.encoder.layer.0.attention.self.query.bias", "encoder.layer.0.attention.self.query.bias"},
        {"cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.gamma"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int differs = 0; differs < 2; differs++) {
            struct tensors t;
            double scores[TOKENS] = {0};
            read_tensors(f, SNUG_SOURCE_DIR "/tests/golden/model/mlm/model.safetensors", &t);
            copy_tensor(&t, cases[i].name, cases[i].other, differs);
            json_t *config = json_load_file(SNUG_SOURCE_DIR "/tests/golden/model/mlm/config.json", 0, NULL);
            write_folder(f, "twice", &t, config);
            json_decref(config);
            free_tensors(&t);
            if (!differs) {
                predict(f, "twice", scores);
                continue;
            }
            snug_model *model;
            snug_args *args = plain_args(f, "task=mlm model_name_or_path=@twice");
            assert_int_equal(snug_model_open(args, &model), SNUG_E_INPUT);
            assert_contains(snug_error_message(f->ctx), cases[i].name);
            assert_contains(snug_error_message(f->ctx), cases[i].other);
            assert_contains(snug_error_message(f->ctx), "are the same weight of a BERT model, but differ at element 0");
            snug_args_destroy(args);
        }
}

/* A classifier has no decoder: the stored one is unused, whatever its values, and named. */
static void decoder_of_a_classifier(void **state) {
    struct fixture *f = *state;
    write_own_decoder(f);
    f->log[0] = '\0';
    train(f, "class", "config_name=@own tokenizer_name=@own model_name_or_path=@own max_steps=1");
    assert_contains(f->log, "cls.predictions.decoder.weight");
    assert_null(strstr(f->log, "has other values"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(used_as_in_transformers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trained_with_its_own_decoder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(planned_with_its_own_decoder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_names_of_a_weight, set_up, tear_down),
        cmocka_unit_test_setup_teardown(decoder_of_a_classifier, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
