/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: its keys, their aliases and older layouts mean what they mean in transformers, or are refused. */
#include "scratch.h"

#include <math.h>

#include <jansson.h>

#include "model/family.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/configs.json"

static snug_status read_json(struct scratch *s, const json_t *json, struct snug_config *config) {
    char *text = json_dumps(json, JSON_ENCODE_ANY);
    assert_non_null(text);
    const snug_status status = snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), config);
    free(text);
    return status;
}

static snug_status read_text(struct scratch *s, const char *text, struct snug_config *config) {
    return snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), config);
}

/* What the program's attentions have, in the order of their layers. */
static void check_layers(const struct snug_program *program, const json_t *windows, const json_t *thetas) {
    size_t layer = 0;
    double frequency = 0; /* of the second pair of the layer's rotation */
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_attention *a = &program->ops[i].attention;
        if (program->ops[i].kind == SNUG_OP_ROTATE)
            frequency = program->rotations[program->ops[i].rotate.rotation].frequencies[1];
        if (program->ops[i].kind != SNUG_OP_ATTENTION) continue;
        const json_int_t window = json_integer_value(json_array_get(windows, layer));
        assert_int_equal(a->form.before, window > 0 ? window : -1);
        assert_int_equal(a->form.after, a->form.before);
        const double theta = json_number_value(json_array_get(thetas, layer));
        assert_float_equal(frequency, theta > 0 ? pow(theta, -2.0 / a->form.head_dim) : 0, 1e-7);
        layer++;
    }
    assert_int_equal(layer, json_array_size(windows));
}

static int64_t rows_of(const struct snug_program *program, const char *name) {
    for (size_t i = 0; i < program->parameter_count; i++)
        if (strcmp(program->parameters[i].name, name) == 0) return program->parameters[i].shape[0];
    return 0;
}

/* DeBERTa's tables of positions, and which terms and linears its scores have. */
static void check_positions(struct scratch *s, const struct snug_config *c, const json_t *expected) {
    const json_t *absolute = json_object_get(expected, "absolute_positions"),
                 *relative = json_object_get(expected, "relative");
    const bool c2p = json_is_true(json_object_get(relative, "c2p")),
               p2c = json_is_true(json_object_get(relative, "p2c")),
               own = json_is_true(json_object_get(relative, "own_linears"));
    struct snug_program program;
    if (!absolute) return;
    snug_program_init(&program, s->ctx);
    assert_ok(s, snug_build_model(&program, c, false, 0));
    const int64_t rows = json_integer_value(json_object_get(relative, "rows"));
#define LAYER "deberta.encoder.layer.0.attention.self."
    assert_int_equal(rows_of(&program, "deberta.embeddings.position_embeddings.weight"), json_integer_value(absolute));
    assert_int_equal(rows_of(&program, "deberta.encoder.rel_embeddings.weight"), rows);
    assert_int_equal(rows_of(&program, "deberta.encoder.LayerNorm.weight") != 0,
                     json_is_true(json_object_get(relative, "norm")));
    assert_int_equal(rows_of(&program, LAYER "pos_key_proj.weight") != 0, own && c2p);
    assert_int_equal(rows_of(&program, LAYER "pos_query_proj.weight") != 0, own && p2c);
#undef LAYER
    for (size_t i = 0; i < program.op_count; i++) {
        const struct snug_attention *a = &program.ops[i].attention;
        if (program.ops[i].kind != SNUG_OP_ATTENTION) continue;
        assert_int_equal(a->pk != 0, c2p);
        assert_int_equal(a->pq != 0, p2c);
        assert_int_equal(a->form.farthest != 0, json_integer_value(json_object_get(relative, "buckets")) != 0);
    }
    snug_program_free(&program);
}

static void check_values(struct scratch *s, const struct snug_config *c, const json_t *expected) {
    const struct {
        const char *key;
        double value;
    } values[] = {
        {"vocab_size", (double)c->vocab_size},
        {"embedding_size", (double)c->embedding_size},
        {"pad_token_id", (double)c->pad_token_id},
        {"max_position_embeddings", (double)c->max_position_embeddings},
        {"type_vocab_size", (double)c->type_vocab_size},
        {"layer_norm_eps", c->layer_norm_eps},
        {"num_hidden_layers", (double)c->num_hidden_layers},
        {"initializer_range", c->initializer_range},
        {"hidden_size", (double)c->hidden_size},
        {"num_attention_heads", (double)c->num_attention_heads},
        {"intermediate_size", (double)c->intermediate_size},
        {"hidden_dropout_prob", c->hidden_dropout_prob},
        {"attention_probs_dropout_prob", c->attention_probs_dropout_prob},
        {"classifier_dropout", c->classifier_dropout},
        {"tie_word_embeddings", c->tie_word_embeddings},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const json_t *value = json_object_get(expected, values[i].key);
        const double wanted = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        assert_non_null(value);
        if (values[i].value != wanted) fail_msg("%s is %g, not %g", values[i].key, values[i].value, wanted);
    }
    static const char *const functions[] = {"gelu", "gelu_new", "relu", "silu", "tanh"}; /* of enum snug_activation */
    assert_string_equal(functions[c->hidden_act], json_string_value(json_object_get(expected, "hidden_act")));
    const json_t *labels = json_object_get(expected, "labels");
    assert_int_equal(c->labels.count, json_array_size(labels));
    for (size_t i = 0; i < json_array_size(labels); i++)
        assert_string_equal(c->labels.names[i], json_string_value(json_array_get(labels, i)));
    check_positions(s, c, expected);
    const json_t *windows = json_object_get(expected, "windows");
    if (!windows) return;
    struct snug_program program;
    snug_program_init(&program, s->ctx);
    assert_ok(s, snug_build_model(&program, c, false, 0));
    check_layers(&program, windows, json_object_get(expected, "thetas"));
    snug_program_free(&program);
}

static void check_case(struct scratch *s, const json_t *family, const json_t *c) {
    const char *refused = json_string_value(json_object_get(c, "refused"));
    json_t *json = json_deep_copy(json_object_get(family, "config")),
           *expected = json_deep_copy(json_object_get(family, "expected"));
    char *text = json_dumps(json_object_get(c, "changes"), 0);
    struct snug_config config;
    json_object_update(json, json_object_get(c, "changes"));
    json_object_update(expected, json_object_get(c, "expected"));
    print_message("%s %s\n", json_string_value(json_object_get(json, "model_type")), text);
    const snug_status status = read_json(s, json, &config);
    if (refused) {
        assert_true(status == SNUG_E_UNSUPPORTED || status == SNUG_E_INPUT);
        assert_fails(s, status, status, refused);
    } else {
        assert_ok(s, status);
        check_values(s, &config, expected);
        snug_config_free(&config);
    }
    free(text);
    json_decref(json);
    json_decref(expected);
}

TEST_IN(keys_mean_what_they_mean_in_transformers, void *fixture, scratch_setup, scratch_teardown) {
    size_t f, i;
    json_t *family, *c;
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    assert_non_null(golden);
    json_array_foreach(json_object_get(golden, "families"), f, family) {
        json_array_foreach(json_object_get(family, "cases"), i, c) check_case(fixture, family, c);
    }
    assert_int_equal(f, 10);
    json_decref(golden);
}

/* A choice between two keys is said. */
FIXTURE_TEST(contradictions_are_said) {
    static const struct {
        const char *json, *sentence;
    } cases[] = {
        {"{\"model_type\": \"distilbert\", \"dim\": 24, \"hidden_size\": 48}", "dim and hidden_size contradict"},
        {"{\"model_type\": \"distilbert\", \"n_layers\": 1, \"num_hidden_layers\": 2}", "using num_hidden_layers"},
        {"{\"model_type\": \"distilbert\", \"n_heads\": 12, \"num_attention_heads\": 6}", "using num_attention_heads"},
        {"{\"model_type\": \"modernbert\", \"local_attention\": 6, \"sliding_window\": 5}",
         "local_attention is 6, but sliding_window 5"},
        {"{\"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"num_labels\": 3}",
         "num_labels is 3, but id2label names 2 classes"},
        {"{\"id2label\": {\"0\": 1, \"1\": 0}, \"label2id\": {\"0\": 0, \"1\": 1}}", "label2id contradicts id2label"},
        /* the same twice is no contradiction */
        {"{\"model_type\": \"distilbert\", \"dim\": 768, \"hidden_size\": 768}", NULL},
        {"{\"model_type\": \"modernbert\", \"local_attention\": 7, \"sliding_window\": 3}", NULL},
        {"{\"model_type\": \"modernbert\", \"sliding_window\": 3}", NULL},
        {"{\"id2label\": {\"0\": 5, \"1\": 7}, \"label2id\": {\"5\": 0, \"7\": 1}, \"num_labels\": 2}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_config config;
        s->log_count = 0;
        assert_ok(s, read_text(s, cases[i].json, &config));
        assert_int_equal(s->log_count, cases[i].sentence != NULL);
        if (cases[i].sentence) assert_contains(s->log, cases[i].sentence);
        snug_config_free(&config);
    }
}

/* Names that are not texts are classes as Python prints them, and are saved as texts. */
FIXTURE_TEST(names_that_are_numbers) {
    struct snug_config config;
    assert_ok(s, read_text(s, "{\"id2label\": {\"0\": 7, \"1\": 2.0, \"2\": false}}", &config));
    assert_true(config.has_label_names);
    assert_ok(s, snug_config_set_task(s->ctx, &config, SNUG_TASK_CLASSIFICATION, &config.labels));
    json_t *saved = json_deep_copy(config.json);
    snug_config_free(&config);
    assert_ok(s, read_json(s, saved, &config));
    json_decref(saved);
    assert_string_equal(config.labels.names[0], "7");
    assert_string_equal(config.labels.names[1], "2.0");
    assert_string_equal(config.labels.names[2], "False");
    snug_config_free(&config);
    static const char *const wrong[] = {"{\"id2label\": {\"0\": null, \"1\": \"b\"}}",
                                        "{\"id2label\": {\"0\": [\"a\"], \"1\": \"b\"}}",
                                        "{\"id2label\": {\"1\": \"a\", \"2\": \"b\"}}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(s, read_text(s, wrong[i], &config), SNUG_E_INPUT, "id2label has no name for class 0");
    assert_fails(s, read_text(s, "{\"id2label\": {\"0\": 1, \"1\": \"1\"}}", &config), SNUG_E_INPUT,
                 "id2label gives classes 0 and 1 the same name, \"1\"");
}

TEST_MAIN(NULL, NULL)
