/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of each family: any class's folder serves any task, with the tensors that it has. */
#include "scratch.h"

#include <jansson.h>
#include <math.h>

#include "data/task.h"
#include "dist/save.h"
#include "folders.h"
#include "io/safetensors.h"
#include "model/decoders/decoder.h"
#include "model/family.h"
#include "model/sentence.h"
#include "plan/stages.h"
#include "write_tensors.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

enum { LONGEST = 64 };

/* A model for a task, without data. */
struct model {
    struct snug_config config;
    struct snug_program program;
    struct snug_layout layout;
    struct snug_memory memory;
};

static void open_model(struct scratch *s, const char *folder, enum snug_task task, struct model *m) {
    struct snug_program *programs[] = {&m->program};
    *m = (struct model){0};
    assert_ok(s, snug_config_read(s->ctx, folder, &m->config));
    m->config.task = task;
    if (task == SNUG_TASK_TOKEN_CLASSIFICATION) m->config.labels.problem = SNUG_PROBLEM_SINGLE_LABEL;
    if (task == SNUG_TASK_EMBEDDING) {
        struct snug_folder opened;
        assert_ok(s, snug_folder_open(s->ctx, NULL, folder, &opened));
        assert_ok(s, snug_sentence_open(s->ctx, &opened, &m->config));
        snug_folder_close(&opened);
    }
    snug_program_init(&m->program, s->ctx);
    /* A model without a table of positions has no end of them. */
    const int64_t longest = m->config.positions < LONGEST ? m->config.positions : LONGEST;
    m->program.longest = longest;
    m->program.capacity[SNUG_EXTENT_TOKENS] = m->program.capacity[SNUG_EXTENT_ROWS] = longest;
    m->program.capacity[SNUG_EXTENT_SEQUENCES] = 1;
    assert_ok(s, snug_build_model(&m->program, &m->config, false, 0));
    assert_ok(s, snug_stages(&m->program, &(struct snug_methods){.micro_batches = 1}));
    assert_ok(s, snug_stage_place(s->ctx, programs, 1, snug_backend_cpu(), 1, 0, 0, &m->layout));
    m->memory.arena = aligned_alloc(256, (size_t)(m->layout.arena + 255) / 256 * 256);
    assert_non_null(m->memory.arena);
    memset(m->memory.arena, 0xff, (size_t)m->layout.arena);
}

static void close_model(struct model *m) {
    free(m->memory.arena);
    snug_program_free(&m->program);
    snug_config_free(&m->config);
}

static float *values_of(const struct model *m, const struct snug_parameter *p) {
    const int64_t count = snug_parameter_count(p);
    float *values = malloc((size_t)count * sizeof *values);
    assert_int_equal(snug_parameter_read(&m->program, &m->memory, p, 0, count, values), SNUG_OK);
    return values;
}

/* Those of a fresh initialization, with transformers' distribution. */
static void assert_initialised(const struct model *m, const struct snug_parameter *p) {
    float *values = values_of(m, p);
    double squares = 0;
    for (int64_t i = 0; i < snug_parameter_count(p); i++) {
        const bool zero = p->shape[1] && p->has_zero_row && i / p->shape[1] == p->zero_row;
        if (p->init != SNUG_INIT_NORMAL || zero) assert_true(values[i] == (p->init == SNUG_INIT_ONES ? 1.0f : 0.0f));
        squares += (double)values[i] * (double)values[i];
    }
    if (p->init == SNUG_INIT_NORMAL) {
        const double deviation = sqrt(squares / (double)snug_parameter_count(p));
        assert_true(deviation > 0.5 * m->config.initializer_range && deviation < 1.5 * m->config.initializer_range);
    }
    free(values);
}

/* Every parameter is the file's tensor of its name, or freshly initialized where there is none: then it belongs to the
   head or a pooler. */
static void check_loaded(struct scratch *s, const char *folder, const struct model *m) {
    char path[600];
    struct snug_safetensors files;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, path, &files));
    for (size_t i = 0; i < m->program.parameter_count; i++) {
        const struct snug_parameter *p = &m->program.parameters[i];
        const struct snug_stored_tensor *stored = snug_safetensors_find(&files, p->name);
        if (!stored) {
            if (!p->head && !strstr(p->name, "pooler")) fail_msg("%s: %s is not loaded", folder, p->name);
            assert_initialised(m, p);
            continue;
        }
        float *found = values_of(m, p), *expected = malloc((size_t)stored->count * sizeof *expected);
        assert_ok(s, snug_safetensors_read(s->ctx, &files, stored, 0, stored->count, expected));
        if (memcmp(found, expected, (size_t)stored->count * sizeof *found) != 0) fail_msg("%s: %s", folder, p->name);
        free(found);
        free(expected);
    }
    snug_safetensors_close(&files);
}

/* The encoder alone, saved without the family's prefix, gives the same encoder. */
static void check_bare_encoder(struct scratch *s, const char *folder, const struct model *m) {
    struct values_to_write *sources = calloc(m->program.parameter_count, sizeof *sources);
    const size_t cut = strlen(m->config.family->prefix);
    size_t count = 0;
    for (size_t i = 0; i < m->program.parameter_count; i++) {
        const struct snug_parameter *p = &m->program.parameters[i];
        if (strncmp(p->name, m->config.family->prefix, cut) != 0) continue;
        sources[count] = (struct values_to_write){.name = p->name + cut, .data = values_of(m, p)};
        sources[count].dims = snug_parameter_shape(p, sources[count].shape);
        count++;
    }
    struct model bare;
    open_model(s, folder, m->config.task, &bare);
    assert_ok(s, write_tensors(s->ctx, scratch_path(s, "model.safetensors"), sources, count));
    assert_ok(s, weights_load(s->ctx, s->folder, &bare.program, &bare.config, &bare.memory, 3, false));
    for (size_t i = 0; i < m->program.parameter_count; i++) {
        const struct snug_parameter *p = &m->program.parameters[i];
        float *a = values_of(m, p), *b = values_of(&bare, &bare.program.parameters[i]);
        if (strncmp(p->name, m->config.family->prefix, cut) == 0)
            assert_memory_equal(a, b, (size_t)snug_parameter_count(p) * sizeof *a);
        else
            assert_true(p->head);
        free(a);
        free(b);
    }
    for (size_t i = 0; i < count; i++) free((void *)(uintptr_t)sources[i].data);
    free(sources);
    close_model(&bare);
}

/* What snug saves has the tensors that transformers saved: the same names and shapes. */
static void check_saved(struct scratch *s, const char *folder, const struct model *m) {
    char path[600];
    struct snug_safetensors theirs, ours;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, path, &theirs));
    struct snug_folder to = scratch_open(s);
    struct snug_weight_files files;
    assert_ok(s, snug_weight_files_plan(&m->program, INT64_MAX, &files));
    assert_ok(s, snug_weights_save(s->ctx, NULL, &to, &files, &m->program, &m->memory, NULL));
    snug_weight_files_free(&files);
    snug_folder_close(&to);
    assert_ok(s, snug_safetensors_open(s->ctx, NULL, scratch_path(s, SNUG_WEIGHTS), &ours));
    for (size_t i = 0; i < theirs.count; i++) {
        const struct snug_stored_tensor *a = &theirs.tensors[i], *b = snug_safetensors_find(&ours, a->name);
        if (!b) fail_msg("%s: %s is not saved", folder, a->name);
        assert_int_equal(a->dims, b->dims);
        assert_int_equal(a->count, b->count);
        assert_memory_equal(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape);
    }
    assert_int_equal(theirs.count, ours.count);
    snug_safetensors_close(&theirs);
    snug_safetensors_close(&ours);
}

FIXTURE_TEST(every_folder_serves_every_task) {
    for (size_t f = 0; snug_families[f]; f++) {
        char path[512];
        size_t index;
        json_t *c;
        snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/families/%s/cases.json",
                 snug_families[f]->model_type);
        json_t *cases = json_load_file(path, 0, NULL);
        assert_non_null(cases);
        json_array_foreach(json_object_get(cases, "cases"), index, c) for (int task = 0; task < SNUG_TASK_COUNT;
                                                                           task++) {
            struct model m;
            const char *word = json_string_value(json_object_get(c, "task"));
            const bool own = snug_task_find(word) == task;
            const bool shared = snug_families[f] == &snug_family_modernbert; /* its classifier, of other classes */
            if (!snug_family_has(snug_families[f], (enum snug_task)task)) continue;
            const bool choice = task == SNUG_TASK_MULTIPLE_CHOICE; /* a classifier of one score */
            if ((shared && task == SNUG_TASK_QUESTION_ANSWERING) || choice) continue;
            snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/families/%s/%s", snug_families[f]->model_type,
                     json_string_value(json_object_get(c, "folder")));
            open_model(s, path, (enum snug_task)task, &m);
            assert_ptr_equal(m.config.family, snug_families[f]);
            assert_ok(s, weights_load(s->ctx, path, &m.program, &m.config, &m.memory, 7, false));
            check_loaded(s, path, &m);
            check_bare_encoder(s, path, &m);
            if (own) check_saved(s, path, &m);
            close_model(&m);
        }
        json_decref(cases);
    }
}

/* Fields of a config other than the model's: the class that a saved folder names is read as the task that it was saved
   for. */
FIXTURE_TEST(classes_have_one_task) {
    for (size_t f = 0; snug_families[f]; f++)
        for (int task = 0; task < SNUG_TASK_COUNT; task++) {
            char text[256], name[96];
            struct snug_config config;
            /* That of an embedding is any base model's. */
            if (!snug_family_has(snug_families[f], (enum snug_task)task) || task == SNUG_TASK_EMBEDDING) continue;
            /* Those of a classifier, and of a causal language model. */
            if (task == SNUG_TASK_RERANKING || task == SNUG_TASK_DPO) continue;
            snprintf(name, sizeof name, "%s", snug_family_class(snug_families[f], (enum snug_task)task).text);
            snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"architectures\": [\"%s\"]}",
                     snug_families[f]->model_type, name);
            assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
            assert_ptr_equal(config.family, snug_families[f]);
            assert_true(config.has_head && (int)config.task == task);
            assert_ok(s, snug_config_set_task(s->ctx, &config, (enum snug_task)task, &config.labels));
            assert_string_equal(json_string_value(json_array_get(json_object_get(config.json, "architectures"), 0)),
                                name);
            const int64_t rows = strcmp(snug_families[f]->model_type, "modernbert") == 0 ? 8192 : 512;
            if (!snug_families[f]->causal) assert_int_equal(config.positions, rows - config.first_position);
            snug_config_free(&config);
        }
}

/* Classes by which a config names no head that is supported, or a second class of a task. */
FIXTURE_TEST(classes_of_no_task) {
    static const struct {
        const char *family, *name;
        bool has_head;
        enum snug_task task;
    } cases[] = {{"bert", "BertModel", false, SNUG_TASK_CLASSIFICATION},
                 {"bert", "RobertaForMaskedLM", false, SNUG_TASK_CLASSIFICATION},
                 {"bert", "BertForPreTraining", true, SNUG_TASK_MLM},
                 {"electra", "ElectraForPreTraining", false, SNUG_TASK_CLASSIFICATION}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct snug_config config;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"architectures\": [\"%s\"]}", cases[i].family,
                 cases[i].name);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        assert_int_equal(config.has_head, cases[i].has_head);
        assert_int_equal(config.task, cases[i].task);
        snug_config_free(&config);
    }
}

/* Without pad_token_id, or with null, a decoder trains all rows of the table; below 0 it counts from the end. */
FIXTURE_TEST(padding_of_a_decoder) {
    static const struct {
        const char *json;
        int64_t padding;
    } cases[] = {
        {"", -1}, {", \"pad_token_id\": null", -1}, {", \"pad_token_id\": -1", 95}, {", \"pad_token_id\": 0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct snug_config config;
        snprintf(text, sizeof text, "{\"model_type\": \"llama\", \"vocab_size\": 96%s}", cases[i].json);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        assert_int_equal(config.pad_token_id, cases[i].padding);
        snug_config_free(&config);
    }
}

struct wrong_config {
    const char *json;
    snug_status status;
    const char *sentence;
};

static void check_wrong(struct scratch *s, const struct wrong_config *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct snug_config config;
        assert_fails(
            s, snug_config_read(s->ctx, scratch_write(s, "config.json", cases[i].json, strlen(cases[i].json)), &config),
            cases[i].status, cases[i].sentence);
    }
}

FIXTURE_TEST(wrong_configs) {
    static const struct wrong_config cases[] = {
        {"{\"model_type\": \"t5\"}", SNUG_E_UNSUPPORTED, "model_type t5 is not supported (known: bert, roberta, "},
        {"{\"model_type\": \"roberta\", \"pad_token_id\": null}", SNUG_E_INPUT,
         "position ids of a RoBERTa start at pad_token_id + 1"},
        {"{\"model_type\": \"roberta\", \"max_position_embeddings\": 2}", SNUG_E_INPUT,
         "position ids start at pad_token_id (1) + 1"},
        {"{\"model_type\": \"distilbert\", \"dim\": 0}", SNUG_E_INPUT, "dim is 0"},
        {"{\"model_type\": \"distilbert\", \"n_heads\": 7}", SNUG_E_INPUT, "dim 768 is not a multiple of n_heads 7"},
        {"{\"model_type\": \"distilbert\", \"activation\": \"mish\"}", SNUG_E_UNSUPPORTED, "activation mish is not"},
        {"{\"model_type\": \"distilbert\", \"sinusoidal_pos_embds\": true}", SNUG_E_UNSUPPORTED,
         "sinusoidal_pos_embds is not supported"},
        {"{\"model_type\": \"mpnet\", \"relative_attention_num_buckets\": 64}", SNUG_E_UNSUPPORTED,
         "relative_attention_num_buckets 64 is not supported"},
        {"{\"model_type\": \"mpnet\", \"max_position_embeddings\": 2}", SNUG_E_INPUT,
         "position ids start at pad_token_id (1) + 1"},
        {"{\"model_type\": \"modernbert\", \"layer_types\": [\"full_attention\"]}", SNUG_E_INPUT,
         "layer_types must name the type of each of 22 layers"},
        {"{\"model_type\": \"modernbert\", \"num_hidden_layers\": 1, \"layer_types\": [\"linear_attention\"]}",
         SNUG_E_UNSUPPORTED, "layer_types may only hold full_attention and sliding_attention"},
        {"{\"model_type\": \"modernbert\", \"num_hidden_layers\": 1, \"layer_types\": [1], \"vocab_size\": 9}",
         SNUG_E_UNSUPPORTED, "layer_types may only hold full_attention and sliding_attention"},
        {"{\"model_type\": \"modernbert\", \"local_attention\": 1}", SNUG_E_UNSUPPORTED,
         "local_attention must be at least 2"},
        {"{\"model_type\": \"modernbert\", \"classifier_pooling\": \"max\"}", SNUG_E_UNSUPPORTED,
         "classifier_pooling is neither cls nor mean"},
        {"{\"model_type\": \"modernbert\", \"rope_scaling\": {\"type\": \"yarn\"}}", SNUG_E_UNSUPPORTED,
         "rope_scaling is not supported"},
        {"{\"model_type\": \"modernbert\", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}}",
         SNUG_E_UNSUPPORTED, "rope_type yarn of full_attention is not supported"},
        {"{\"model_type\": \"modernbert\", \"num_attention_heads\": 256}", SNUG_E_UNSUPPORTED,
         "num_attention_heads gives heads of an odd size"},
        {"{\"model_type\": \"modernbert\", \"classifier_activation\": \"elu\"}", SNUG_E_UNSUPPORTED,
         "classifier_activation elu is not supported"},
        {"{\"model_type\": \"electra\", \"embedding_size\": 0}", SNUG_E_INPUT, "embedding_size is 0"},
        {"{\"model_type\": \"electra\", \"embedding_size\": 1048576, \"vocab_size\": 16777216}", SNUG_E_INPUT,
         "no machine holds that"},
    };
    check_wrong(s, cases, sizeof cases / sizeof *cases);
}

FIXTURE_TEST(wrong_configs_of_deberta) {
#define DEBERTA "{\"model_type\": \"deberta-v2\", "
#define RELATIVE DEBERTA "\"relative_attention\": true, "
    static const struct wrong_config cases[] = {
        {DEBERTA "\"conv_kernel_size\": 4}", SNUG_E_UNSUPPORTED, "conv_kernel_size is even"},
        {DEBERTA "\"conv_kernel_size\": 65}", SNUG_E_UNSUPPORTED, "conv_kernel_size is too large"},
        {DEBERTA "\"conv_kernel_size\": 3, \"conv_groups\": 2}", SNUG_E_UNSUPPORTED, "conv_groups other than 1"},
        {DEBERTA "\"conv_kernel_size\": 3, \"conv_act\": \"elu\"}", SNUG_E_UNSUPPORTED, "conv_act elu is not"},
        {DEBERTA "\"conv_kernel_size\": \"3\"}", SNUG_E_INPUT, "conv_kernel_size"},
        {DEBERTA "\"hidden_size\": 0}", SNUG_E_INPUT, "hidden_size is 0"},
        {DEBERTA "\"type_vocab_size\": -1}", SNUG_E_INPUT, "type_vocab_size is -1"},
        {DEBERTA "\"pooler_hidden_size\": 64}", SNUG_E_UNSUPPORTED, "pooler_hidden_size other than hidden_size"},
        {DEBERTA "\"attention_head_size\": 32}", SNUG_E_UNSUPPORTED, "attention_head_size other than hidden_size / "},
        {DEBERTA "\"norm_rel_ebd\": \"layer_norm\"}", SNUG_E_UNSUPPORTED, "norm_rel_ebd without relative_attention"},
        {DEBERTA "\"pos_att_type\": \"c2p|p2p\"}", SNUG_E_UNSUPPORTED, "pos_att_type has an unknown item"},
        {DEBERTA "\"pos_att_type\": [\"c2p\", 2]}", SNUG_E_UNSUPPORTED, "pos_att_type has an unknown item"},
        {DEBERTA "\"pos_att_type\": 1}", SNUG_E_UNSUPPORTED, "pos_att_type must be a text or a list"},
        {RELATIVE "\"pos_att_type\": null}", SNUG_E_UNSUPPORTED, "pos_att_type is empty"},
        {RELATIVE "\"pos_att_type\": \"c2p\", \"position_buckets\": 1}", SNUG_E_UNSUPPORTED,
         "position_buckets must be at least 2"},
        {RELATIVE "\"pos_att_type\": \"c2p\", \"position_buckets\": 8, \"max_relative_positions\": 5}",
         SNUG_E_UNSUPPORTED, "max_relative_positions must be larger than position_buckets / 2 + 1"},
        {RELATIVE "\"max_relative_positions\": 2000000}", SNUG_E_UNSUPPORTED, "max_relative_positions is too large"},
    };
    check_wrong(s, cases, sizeof cases / sizeof *cases);
#undef RELATIVE
#undef DEBERTA
}

/* Positions that are relative alone have no limit. */
FIXTURE_TEST(positions_of_deberta) {
    static const struct {
        const char *json;
        int64_t positions;
    } cases[] = {{"\"position_biased_input\": true", 512},
                 {"\"position_biased_input\": false", SNUG_DIMENSION_MOST},
                 {"\"position_biased_input\": false, \"pos_att_type\": \" C2P | p2c\"", SNUG_DIMENSION_MOST},
                 {"\"norm_rel_ebd\": [\"none\"], \"type_vocab_size\": null, \"pos_att_type\": \"\"", 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        struct snug_config config;
        snprintf(text, sizeof text, "{\"model_type\": \"deberta-v2\", %s}", cases[i].json);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        assert_int_equal(config.positions, cases[i].positions);
        assert_true(config.one_type && config.type_vocab_size == 0);
        snug_config_free(&config);
    }
}

/* The newer head of masked LM has no decoder of its own. */
FIXTURE_TEST(newer_head_of_deberta) {
    static const char *const wrong[] = {"\"tie_word_embeddings\": false", "\"embedding_size\": 24"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[256];
        struct snug_config config;
        struct snug_program program;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"deberta-v2\", \"architectures\": [\"DebertaV2ForMaskedLM\"], "
                 "\"num_hidden_layers\": 1, \"legacy\": false, %s}",
                 wrong[i]);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        snug_program_init(&program, s->ctx);
        assert_fails(s, snug_build_model(&program, &config, true, 0), SNUG_E_UNSUPPORTED,
                     "masked LM with legacy false has the word table as its decoder");
        snug_program_free(&program);
        snug_config_free(&config);
    }
}

FIXTURE_TEST(wrong_configs_of_decoders) {
    static const struct wrong_config cases[] = {
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 5}", SNUG_E_INPUT,
         "num_attention_heads is not a multiple of num_key_value_heads"},
        {"{\"model_type\": \"llama\", \"num_attention_heads\": 7}", SNUG_E_INPUT,
         "hidden_size 4096 is not a multiple of num_attention_heads 7"},
        {"{\"model_type\": \"llama\", \"head_dim\": 514}", SNUG_E_INPUT, "head_dim is larger than 512"},
        {"{\"model_type\": \"llama\", \"head_dim\": 13}", SNUG_E_UNSUPPORTED, "rotates a number of channels"},
        {"{\"model_type\": \"llama\", \"partial_rotary_factor\": 0.01}", SNUG_E_UNSUPPORTED,
         "rotates a number of channels"},
    };
    check_wrong(s, cases, sizeof cases / sizeof *cases);
}

FIXTURE_TEST(wrong_rotations) {
    static const struct wrong_config cases[] = {
        {"{\"model_type\": \"llama\", \"rope_theta\": 0.5}", SNUG_E_INPUT, "rope_theta is 0.5"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": 2}", SNUG_E_UNSUPPORTED, "rope_scaling must be an object"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"axial\"}}", SNUG_E_UNSUPPORTED,
         "rope_type axial of rope_scaling is not supported (default, linear, "},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\"}}", SNUG_E_UNSUPPORTED,
         "rope_scaling lacks factor, which rope_type linear needs"},
        {"{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8}}",
         SNUG_E_UNSUPPORTED, "rope_parameters lacks low_freq_factor, which rope_type llama3 needs"},
        {"{\"model_type\": \"llama\", \"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 4, \"high_freq_factor\": 1}}",
         SNUG_E_UNSUPPORTED, "high_freq_factor must be larger than low_freq_factor"},
        {"{\"model_type\": \"llama\", \"rope_theta\": 1, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
         SNUG_E_UNSUPPORTED, "a theta or factor that yarn does not support"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 0}}", SNUG_E_UNSUPPORTED,
         "a theta or factor that yarn does not support"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1]}}",
         SNUG_E_UNSUPPORTED, "short_factor must have a factor for each pair"},
        {"{\"model_type\": \"llama\", \"head_dim\": 2, \"rope_scaling\": {\"rope_type\": \"longrope\", "
         "\"short_factor\": [0], \"long_factor\": [1]}}",
         SNUG_E_UNSUPPORTED, "short_factor must hold numbers above 0"},
        {"{\"model_type\": \"qwen3\", \"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]}",
         SNUG_E_INPUT, "layer_types names sliding_attention, and sliding_window is null"},
        {"{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\"]}", SNUG_E_INPUT,
         "layer_types must name the type of each of 2 layers"},
        {"{\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"layer_types\": [\"linear_attention\"]}",
         SNUG_E_UNSUPPORTED, "layer_types may only hold full_attention and sliding_attention"},
        {"{\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"layer_types\": [1]}", SNUG_E_UNSUPPORTED,
         "layer_types may only hold full_attention and sliding_attention"},
        {"{\"model_type\": \"qwen2\", \"max_window_layers\": \"all\"}", SNUG_E_INPUT, "max_window_layers"},
        {"{\"model_type\": \"gpt2\", \"add_cross_attention\": true}", SNUG_E_UNSUPPORTED,
         "add_cross_attention is not supported"},
        {"{\"model_type\": \"gpt2\", \"n_head\": 7}", SNUG_E_INPUT, "n_embd 768 is not a multiple of n_head 7"},
        {"{\"model_type\": \"gpt2\", \"activation_function\": \"mish\"}", SNUG_E_UNSUPPORTED,
         "activation_function mish is not supported"},
        {"{\"model_type\": \"gpt_oss\"}", SNUG_E_UNSUPPORTED,
         "model_type gpt_oss is not supported: mixtures of experts are not supported (known: "},
        {"{\"model_type\": \"jamba\"}", SNUG_E_UNSUPPORTED,
         "jamba is not supported: state-space, recurrent and hybrid"},
        {"{\"model_type\": \"gemma3\"}", SNUG_E_UNSUPPORTED, "gemma3 is not supported: models with vision or audio"},
        {"{\"model_type\": \"mamba mamba2\"}", SNUG_E_UNSUPPORTED, "model_type mamba mamba2 is not supported (known: "},
        {"{\"model_type\": \"gemma\", \"use_bidirectional_attention\": true}", SNUG_E_UNSUPPORTED,
         "use_bidirectional_attention is not supported"},
        {"{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": 0}", SNUG_E_INPUT, "query_pre_attn_scalar is 0"},
        {"{\"model_type\": \"gemma2\", \"final_logit_softcapping\": -1}", SNUG_E_INPUT,
         "final_logit_softcapping is -1"},
        {"{\"model_type\": \"gemma2\", \"sliding_window\": \"all\"}", SNUG_E_INPUT, "sliding_window"},
        {"{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 0}", SNUG_E_INPUT,
         "sliding_window_pattern is 0"},
        {"{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"axial\"}}}",
         SNUG_E_UNSUPPORTED, "rope_type axial of sliding_attention is not supported"},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1]}}", SNUG_E_UNSUPPORTED,
         "short_factor must have a factor for each pair"},
        {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"yarn\", \"short_factor\": [1]}}",
         SNUG_E_UNSUPPORTED, "short_factor must have a factor for each pair"},
        {"{\"model_type\": \"phi3\", \"resid_pdrop\": 1}", SNUG_E_INPUT, "resid_pdrop is 1"},
        {"{\"model_type\": \"olmo3\", \"sliding_window\": -2}", SNUG_E_INPUT, "sliding_window is -2"},
        {"{\"model_type\": \"granite\", \"logits_scaling\": 0}", SNUG_E_INPUT, "logits_scaling is 0"},
        {"{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 0]}", SNUG_E_INPUT,
         "no_rope_layers must have a number for each of 36 layers"},
        {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 0}", SNUG_E_INPUT, "no_rope_layer_interval is 0"},
        {"{\"model_type\": \"ministral3\", \"rope_parameters\": {\"llama_4_scaling_beta\": -1}}", SNUG_E_INPUT,
         "llama_4_scaling_beta is -1"},
        {"{\"model_type\": \"ministral3\", \"rope_parameters\": {\"llama_4_scaling_beta\": 1, \"rope_type\": "
         "\"dynamic\", "
         "\"factor\": 2}}",
         SNUG_E_UNSUPPORTED, "llama_4_scaling_beta is not supported with rope_type dynamic"},
        {"{\"model_type\": \"ministral3\", \"partial_rotary_factor\": 0.5, \"rope_parameters\": "
         "{\"llama_4_scaling_beta\": 1}}",
         SNUG_E_UNSUPPORTED, "llama_4_scaling_beta is not supported with"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 0.5}}", SNUG_E_INPUT,
         "factor is 0.5"},
        {"{\"model_type\": \"llama\", \"head_dim\": 2, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
         SNUG_E_UNSUPPORTED, "fewer than 4 channels"},
        {"{\"model_type\": \"mistral\", \"sliding_window\": 0}", SNUG_E_INPUT, "sliding_window is 0"},
    };
    check_wrong(s, cases, sizeof cases / sizeof *cases);
}

/* Buffers of older files are no weights, and GPT-2's outputs of blocks are initialised by depth. */
FIXTURE_TEST(files_of_decoders) {
    static const struct {
        const char *model_type, *stored;
        enum snug_stored_use use;
        const char *name;
    } cases[] = {{"gpt2", "h.0.attn.bias", SNUG_STORED_CONSTANT, "transformer.h.0.attn.bias"},
                 {"gpt2", "transformer.h.11.attn.masked_bias", SNUG_STORED_CONSTANT, NULL},
                 {"gpt2", "h.0.attn.c_attn.bias", SNUG_STORED_PARAMETER, "transformer.h.0.attn.c_attn.bias"},
                 {"gpt2", "lm_head.weight", SNUG_STORED_PARAMETER, "transformer.wte.weight"},
                 {"llama", "lm_head.weight", SNUG_STORED_PARAMETER, "lm_head.weight"},
                 {"llama", "model.layers.0.self_attn.rotary_emb.inv_freq", SNUG_STORED_CONSTANT, NULL},
                 {"llama", "embed_tokens.weight", SNUG_STORED_PARAMETER, "model.embed_tokens.weight"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], name[128];
        struct snug_config config;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", cases[i].model_type);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        assert_int_equal(snug_family_parameter(&config, cases[i].stored, name, sizeof name), cases[i].use);
        if (cases[i].name) assert_string_equal(name, cases[i].name);
        snug_config_free(&config);
    }
    struct model m;
    open_model(s, SNUG_SOURCE_DIR "/tests/golden/families/gpt2/clm", SNUG_TASK_CLM, &m);
    double squares[2] = {0};
    int64_t counts[2] = {0};
    for (size_t i = 0; i < m.program.parameter_count; i++) {
        const struct snug_parameter *p = &m.program.parameters[i];
        assert_ok(s, snug_weights_init(&m.program, &m.config, &m.memory, p, 5));
        assert_int_equal(p->by_depth, strstr(p->name, "c_proj") != NULL);
        if (p->init != SNUG_INIT_NORMAL) continue;
        float *values = values_of(&m, p);
        for (int64_t k = 0; k < snug_parameter_count(p); k++) squares[p->by_depth] += pow((double)values[k], 2);
        counts[p->by_depth] += snug_parameter_count(p);
        free(values);
    }
    const double all = sqrt(squares[0] / (double)counts[0]), outputs = sqrt(squares[1] / (double)counts[1]);
    assert_true(fabs(all / 0.02 - 1) < 0.05 && fabs(outputs / (0.02 / 2) - 1) < 0.05); /* of two layers */
    close_model(&m);
}

/* Rotations as those of transformers' classes, where files leave them out or have older keys. */
FIXTURE_TEST(rotations_of_configs) {
    static const struct {
        const char *json;
        int64_t positions;
        int32_t pairs;
        double factor, second; /* of the rotation; the second frequency of full layers */
        double sliding;        /* of sliding ones */
    } cases[] = {
        {"{\"model_type\": \"ministral3\"}", 262144, 64, 1, 0.80584218776148, 0.80584218776148},
        {"{\"model_type\": \"ministral3\", \"rope_theta\": 100, \"rope_parameters\": {\"rope_type\": \"default\"}}",
         262144, 64, 1, 0.930572040929699, 0.930572040929699},
        {"{\"model_type\": \"gemma3_text\"}", 131072, 128, 1, 0.897687132447314, 0.930572040929699},
        {"{\"model_type\": \"gemma3_text\", \"rope_theta\": 100, \"rope_local_base_freq\": 10, \"rope_scaling\": "
         "{\"rope_type\": \"linear\", \"factor\": 2}}",
         131072, 128, 1, 0.482330809435165, 0.982171889188604},
        {"{\"model_type\": \"olmo3\", \"rope_theta\": 100}", 2048, 64, 1, 0.930572040929699, 0.814617234082255},
        {"{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"max_window_layers\": -1}", 32768, 64, 1,
         0.865964323360065, 0.865964323360065},
        {"{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": null}", 32768, 64, 1,
         0.865964323360065, 0.865964323360065},
        {"{\"model_type\": \"smollm3\", \"rope_theta\": 10000, \"use_sliding_window\": true}", 32768, 64, 1,
         0.865964323360065, 0.865964323360065},
        {"{\"model_type\": \"ministral3\", \"max_position_embeddings\": 512}", 512, 64, 1, 0.80584218776148,
         0.80584218776148},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1, \"beta_fast\": 0, "
         "\"beta_slow\": 0}}",
         2048, 64, 1, 0.865964323360065, 0.865964323360065},
        {"{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.5}", 4096, 24, 1, 0.681292069057961,
         0.681292069057961},
        {"{\"model_type\": \"llama\", \"rope_theta\": 100, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}}",
         8192, 64, 1, 0.930572040929699, 0.930572040929699},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_config config;
        const char *path = scratch_write(s, "config.json", cases[i].json, strlen(cases[i].json));
        assert_ok(s, snug_config_read(s->ctx, path, &config));
        const struct snug_decoder *d = config.settings;
        const double found = d->rope.rotation.frequencies[1], sliding = d->sliding_rope.rotation.frequencies[1];
        if (config.positions != cases[i].positions || d->rope.rotation.pairs != cases[i].pairs ||
            fabs(found - cases[i].second) > 1e-9 || fabs(sliding - cases[i].sliding) > 1e-9 ||
            fabs(d->rope.rotation.factor - cases[i].factor) > 1e-12)
            fail_msg("%s: %lld positions, %d pairs, %.15g, %.15g", cases[i].json, (long long)config.positions,
                     (int)d->rope.rotation.pairs, found, sliding);
        snug_config_free(&config);
    }
}

/* Gemma's "gelu" is the tanh approximation. */
FIXTURE_TEST(activation_of_gemma) {
    static const char *const functions[] = {"gelu", "gelu_pytorch_tanh"};
    for (int i = 0; i < 2; i++) {
        char text[128];
        struct snug_config config;
        snprintf(text, sizeof text, "{\"model_type\": \"gemma\", \"hidden_act\": \"%s\"}", functions[i]);
        assert_ok(s, snug_config_read(s->ctx, scratch_write(s, "config.json", text, strlen(text)), &config));
        assert_int_equal(config.hidden_act, SNUG_GELU_TANH);
        snug_config_free(&config);
    }
}

/* The sizes of transformers' classes for masked LM. */
FIXTURE_TEST(built_in_shapes) {
    static const struct {
        const char *name;
        int64_t parameters;
    } shapes[] = {{"mpnet-base", 109518527}, {"ModernBERT-base", 149655232}, {"deberta-v3-small", 142024548}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct snug_program program;
        struct snug_config config;
        int64_t parameters = 0;
        assert_ok(s, snug_config_builtin(s->ctx, shapes[i].name, &config));
        snug_program_init(&program, s->ctx);
        assert_ok(s, snug_build_model(&program, &config, true, 0));
        for (size_t p = 0; p < program.parameter_count; p++) parameters += snug_parameter_count(&program.parameters[p]);
        assert_int_equal(parameters, shapes[i].parameters);
        snug_program_free(&program);
        snug_config_free(&config);
    }
}

TEST_MAIN(NULL, NULL)
