/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of 4 bits: bitsandbytes' codes, scales and values (tools/golden/quantized.py), its files, and trainings. The
   models' logits are in test_golden. */
#include <math.h>

#include "dist/save.h"
#include "io/json.h"
#include "model/bitsandbytes.h"
#include "model/freeze.h"
#include "model/quantization.h"
#include "model/quantize.h"
#include "plan/stages.h"
#include "training_fixture.h"
#include "write_tensors.h"

#define FIXTURE struct fixture *f, set_up, tear_down
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/"
#define QUICK "max_steps=4 model_name_or_path=@start config_name= "

/* ---- codes ------------------------------------------------------------------------------------------------------ */

/* A program of one parameter, stored as codes. */
struct one {
    struct snug_program program;
    struct snug_parameter parameter;
    struct snug_memory memory;
    int64_t bytes;
};

static void open_one(const struct fixture *f, const struct snug_quantized *form, struct one *one) {
    *one = (struct one){.bytes = snug_quantized_lay_out(form).bytes,
                        .parameter = {.name = "w", .shape = {form->rows, form->cols}, .tensor = 1}};
    int32_t tensor;
    snug_program_init(&one->program, f->ctx);
    ok(f, snug_program_tensor(&one->program,
                              (struct snug_tensor){.dtype = SNUG_U8,
                                                   .memory_class = SNUG_MEMORY_WEIGHTS,
                                                   .rows = 1,
                                                   .cols = one->bytes,
                                                   .persistent = true,
                                                   .quantized = *form},
                              &tensor, "w"));
    one->memory.arena = calloc(1, (size_t)one->bytes);
    one->memory.threads = 2;
}

static void close_one(struct one *one) {
    free(one->memory.arena);
    snug_program_free(&one->program);
}

static float *read_tensor(const struct fixture *f, const struct snug_safetensors *files, const char *name) {
    const struct snug_stored_tensor *stored = snug_safetensors_find(files, name);
    if (!stored) return NULL;
    float *values = calloc((size_t)stored->count, sizeof *values);
    ok(f, snug_safetensors_read(f->ctx, files, stored, 0, stored->count, values));
    return values;
}

/* Any range has the values of the whole. */
static void check_ranges(const struct fixture *f, const struct one *one, const struct snug_stored_codes *codes,
                         const float *values, int64_t count) {
    static const int64_t steps[] = {1, 63, 64, 129, 5000};
    float *part = calloc((size_t)count, sizeof *part);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int64_t first = 0; first < count; first += (count / 7 + 1)) {
            const int64_t n = count - first < steps[i] ? count - first : steps[i];
            ok(f, snug_parameter_read(&one->program, &one->memory, &one->parameter, first, n, part));
            assert_memory_equal(part, values + first, (size_t)n * sizeof *part);
            ok(f, snug_codes_read(codes, first, n, part));
            assert_memory_equal(part, values + first, (size_t)n * sizeof *part);
        }
    free(part);
}

/* The bytes of values that snug quantizes are those of bitsandbytes' file, and so are their values. */
FIXTURE_TEST(test_codes_are_bitsandbytes) {
    static const char *const names[] = {"wide", "odd", "zeros", "equal", "codes", "one"};
    static const char *const forms[] = {"nf4", "nf4_plain", "fp4"};
    struct snug_safetensors files;
    ok(f, snug_safetensors_open(f->ctx, NULL, GOLDEN "quantized/codes.safetensors", &files));
    for (size_t i = 0; i < 18; i++) {
        char name[64], about[96];
        struct snug_stored_codes codes;
        struct one ours, theirs;
        snprintf(name, sizeof name, "%s.%s", names[i / 3], forms[i % 3]);
        ok(f, snug_codes_find(f->ctx, &files, "codes", snug_safetensors_find(&files, name), &codes));
        assert_int_equal(codes.form.type, i % 3 == 2 ? SNUG_CODES_FP4 : SNUG_CODES_NF4);
        assert_int_equal(codes.form.nested, i % 3 != 1);
        assert_int_equal(codes.form.rounded, SNUG_BF16);
        open_one(f, &codes.form, &ours);
        open_one(f, &codes.form, &theirs);
        snprintf(about, sizeof about, "%s.values", names[i / 3]);
        float *values = read_tensor(f, &files, about);
        const int64_t count = snug_parameter_count(&ours.parameter);
        ok(f, snug_parameter_write(&ours.program, &ours.memory, &ours.parameter, 0, count, values));
        ok(f, snug_codes_copy(&codes, &theirs.program, &theirs.memory, &theirs.parameter));
        for (int64_t k = 0; k < ours.bytes; k++)
            if (ours.memory.arena[k] != theirs.memory.arena[k])
                fail_msg("%s: byte %lld of %lld", name, (long long)k, (long long)ours.bytes);
        snprintf(about, sizeof about, "%s.dequantized", name);
        float *expected = read_tensor(f, &files, about);
        ok(f, snug_parameter_read(&ours.program, &ours.memory, &ours.parameter, 0, count, values));
        for (int64_t k = 0; expected && k < count; k++)
            if (values[k] != expected[k]) fail_msg("%s[%lld]: %g", name, (long long)k, (double)values[k]);
        check_ranges(f, &ours, &codes, values, count);
        free(values);
        free(expected);
        close_one(&ours);
        close_one(&theirs);
    }
    snug_safetensors_close(&files);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* A weight [2,64] in the nested form; what a case changes is its own. */
static const char state_text[] =
    "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"float16\", \"shape\": [2, 64], "
    "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.5}";

static snug_status find(struct fixture *f, const struct values_to_write *parts, size_t count) {
    struct snug_safetensors files;
    struct snug_stored_codes codes;
    float values[128];
    ok(f, write_tensors(f->ctx, path_of(f, "w.safetensors"), parts, count));
    ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "w.safetensors"), &files));
    snug_clear_error(f->ctx);
    snug_status status = snug_codes_find(f->ctx, &files, "file", snug_safetensors_find(&files, "w"), &codes);
    if (status == SNUG_OK && codes.form.type) status = snug_codes_read(&codes, 0, 128, values);
    assert_true(snug_codes_is_part(&files, "w.quant_map") && !snug_codes_is_part(&files, "v.quant_map"));
    snug_safetensors_close(&files);
    return status;
}

enum { CODES, ABSMAX, MAP, NESTED, NESTED_MAP, STATE, PARTS };
/* A part of a quantized weight that is replaced, or text of its state. */
struct damage {
    int part;
    const void *data;
    int64_t shape[2];
    int dtype; /* -1: it is left out */
    const char *from, *to, *says;
};

/* The error names what is damaged, and the tensor. */
static void expect_damage(struct fixture *f, const struct values_to_write *whole, const struct damage *d) {
    struct values_to_write parts[PARTS];
    char text[sizeof state_text];
    size_t count = PARTS;
    memcpy(parts, whole, sizeof parts);
    memcpy(text, state_text, sizeof state_text);
    parts[STATE].data = text;
    if (d->from) {
        char *at = strstr(text, d->from);
        memcpy(at, d->to, strlen(d->to));
    } else if (d->dtype < 0) {
        parts[d->part] = parts[--count];
    } else {
        parts[d->part] =
            (struct values_to_write){parts[d->part].name, (enum snug_dtype)d->dtype, 1, {d->shape[0]}, d->data};
    }
    if (find(f, parts, count) == SNUG_OK) fail_msg("%s: accepted", d->says);
    assert_contains(snug_error_message(f->ctx), d->says);
    assert_contains(snug_error_message(f->ctx), "w");
}

FIXTURE_TEST(test_damaged_codes_are_refused) {
    static uint8_t codes[64], absmax[2] = {1, 2}, large[5000];
    static float map[SNUG_CODES], nested[1] = {0.25f}, infinite[1] = {INFINITY}, other[SNUG_CODES];
    snug_quantization_map(true, map);
    memcpy(other, map, sizeof other);
    other[200] *= 1.1f;
    const struct values_to_write whole[PARTS] = {
        {"w", SNUG_U8, 2, {64, 1}, codes},
        {"w.absmax", SNUG_U8, 1, {2}, absmax},
        {"w.quant_map", SNUG_F32, 1, {16}, snug_code_values(SNUG_CODES_NF4)},
        {"w.nested_absmax", SNUG_F32, 1, {1}, nested},
        {"w.nested_quant_map", SNUG_F32, 1, {256}, map},
        {"w.quant_state.bitsandbytes__nf4", SNUG_U8, 1, {(int64_t)strlen(state_text)}, state_text},
    };
    const struct damage cases[] = {
        {.part = ABSMAX, .dtype = -1, .says = "w.absmax is needed, of type U8 and 2 elements"},
        {.part = ABSMAX, .data = absmax, .shape = {1}, .dtype = SNUG_U8, .says = "w.absmax is needed"},
        {.part = ABSMAX, .data = nested, .shape = {1}, .dtype = SNUG_F32, .says = "w.absmax is needed"},
        {.part = MAP,
         .data = map,
         .shape = {16},
         .dtype = SNUG_F32,
         .says = "w.quant_map: the value of code 0 is -0.99"},
        {.part = NESTED, .dtype = -1, .says = "w.nested_absmax is needed, of type F32 and 1 elements"},
        {.part = NESTED,
         .data = infinite,
         .shape = {1},
         .dtype = SNUG_F32,
         .says = "a scale of tensor w is not finite"},
        {.part = NESTED_MAP,
         .data = other,
         .shape = {256},
         .dtype = SNUG_F32,
         .says = "w.nested_quant_map: the value of code 200"},
        {.part = CODES, .data = map, .shape = {64}, .dtype = SNUG_F32, .says = "its codes are not stored as U8"},
        {.part = CODES, .data = codes, .shape = {63}, .dtype = SNUG_U8, .says = "not the number of codes"},
        {.part = STATE, .data = map, .shape = {4}, .dtype = SNUG_F32, .says = "its quant_state is not a JSON text"},
        {.from = "64, ", .to = "32, ", .says = "its blocks are not of 64 values"},
        {.from = "256", .to = "128", .says = "its blocks are not of 64 values"},
        {.from = "float16", .to = "float64", .says = "is not one of float32, bfloat16, float16"},
        {.from = "[2, 64]", .to = "[128]  ", .says = "not the number of codes"},
        {.from = "[2, 64]", .to = "[0, 64]", .says = "not the number of codes"},
        {.from = "[2, 64]", .to = "[64, 0]", .says = "not the number of codes"},
        {.from = "{\"quant", .to = "\"quant\"", .says = "w.quant_state"},
        {.from = "\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"float16\", \"shape\": [2, 64]",
         .to = "\"blocksize\":64,\"dtype\":\"float16\",\"shape\":[9007199254,9007199254]          ",
         .says = "not the number of codes"},
        {.part = STATE, .data = large, .shape = {5000}, .dtype = SNUG_U8, .says = "its quant_state is not a JSON text"},
        {.from = "0.5", .to = "[1]", .says = "nested_offset"},
    };
    ok(f, find(f, whole, PARTS));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_damage(f, whole, &cases[i]);
}

/* A model for a causal LM or of tokens, without data, and all frozen but its head. */
struct model {
    struct snug_config config;
    struct snug_program program;
    struct snug_layout layout;
    struct snug_memory memory;
};

static snug_status build(struct fixture *f, const char *folder, const struct snug_quantized *form, const char *skip,
                         struct model *m) {
    *m = (struct model){0};
    RETURN_IF_ERROR(snug_config_read(f->ctx, folder, &m->config));
    if (form) RETURN_IF_ERROR(snug_config_quantize(f->ctx, &m->config, form, skip));
    snug_program_init(&m->program, f->ctx);
    m->program.longest = 8;
    m->program.capacity[SNUG_EXTENT_TOKENS] = m->program.capacity[SNUG_EXTENT_ROWS] = 8;
    m->program.capacity[SNUG_EXTENT_SEQUENCES] = 1;
    RETURN_IF_ERROR(snug_build_model(&m->program, &m->config, false, 0));
    return snug_program_quantize(&m->program, &m->config, false);
}

static void close_model(struct model *m) {
    free(m->memory.arena);
    snug_program_free(&m->program);
    snug_config_free(&m->config);
}

static void open_model(struct fixture *f, const char *folder, const struct snug_quantized *form, struct model *m) {
    struct snug_program *programs[] = {&m->program};
    ok(f, build(f, folder, form, NULL, m));
    ok(f, snug_stages(&m->program, &(struct snug_methods){.micro_batches = 1}));
    ok(f, snug_stage_place(f->ctx, programs, 1, snug_backend_cpu(), 1, 0, 0, &m->layout));
    m->memory.arena = aligned_alloc(256, (size_t)(m->layout.arena + 255) / 256 * 256);
    memset(m->memory.arena, 0, (size_t)m->layout.arena);
    ok(f, weights_load(f->ctx, folder, &m->program, &m->config, &m->memory, 3, false));
}

static int compare_codes(const struct model *a, const struct model *b) {
    int quantized = 0;
    assert_int_equal(a->program.parameter_count, b->program.parameter_count);
    for (size_t i = 0; i < a->program.parameter_count; i++) {
        const struct snug_parameter *p = &a->program.parameters[i];
        const struct snug_tensor *x = &a->program.tensors[p->tensor], *y = &b->program.tensors[p->tensor];
        if (!x->quantized.type) continue;
        const uint8_t *u = a->memory.arena + x->offset, *v = b->memory.arena + y->offset;
        if (memcmp(u, v, (size_t)(x->rows * x->cols)) != 0) fail_msg("%s differs", p->name);
        quantized++;
    }
    return quantized;
}

static void save(const struct fixture *f, const struct model *m, const char *name, int64_t shard) {
    struct snug_folder to;
    struct snug_weight_files files;
    struct snug_weight_source source = {0};
    assert_int_equal(mkdir(path_of(f, "%s", name), 0700), 0);
    ok(f, snug_folder_open(f->ctx, NULL, path_of(f, "%s", name), &to));
    ok(f, snug_weight_files_plan(&m->program, shard, &files));
    ok(f, snug_weights_save(f->ctx, NULL, &to, &files, &m->program, &m->memory, &source));
    assert_true(files.count == 1 || shard < 1 << 20);
    snug_weight_files_free(&files);
    ok(f, snug_json_write(f->ctx, &to, "config.json", m->config.json));
    snug_folder_close(&to);
}

/* What transformers and bitsandbytes made of the model that `source` names has the bytes of what snug makes of it;
   saved by snug, in one file or in shards, it has the same tensors, which give the same bytes again. */
FIXTURE_TEST(test_folders_of_transformers) {
    static const struct {
        const char *folder, *source;
        int quantized;
    } cases[] = {{"nf4", "llama/clm", 14},
                 {"fp4", "llama/single", 14},
                 {"encoder", "bert/tokens", 12},
                 {"conv1d", "gpt2/single", 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model theirs, ours, again, sharded;
        char path[256], source[256];
        snprintf(path, sizeof path, GOLDEN "quantized/%s", cases[i].folder);
        snprintf(source, sizeof source, GOLDEN "families/%s", cases[i].source);
        open_model(f, path, NULL, &theirs);
        open_model(f, source, &theirs.config.quantized, &ours);
        assert_int_equal(compare_codes(&theirs, &ours), cases[i].quantized);
        ok(f, snug_config_record_quantized(f->ctx, &ours.config, &ours.program));
        char one[32], many[32];
        snprintf(one, sizeof one, "one%zu", i);
        snprintf(many, sizeof many, "many%zu", i);
        save(f, &ours, one, INT64_MAX);
        save(f, &ours, many, 4000);
        open_model(f, path_of(f, "%s", one), NULL, &again);
        open_model(f, path_of(f, "%s", many), NULL, &sharded);
        assert_int_equal(compare_codes(&ours, &again), cases[i].quantized);
        assert_int_equal(compare_codes(&ours, &sharded), cases[i].quantized);
        struct snug_safetensors a, b;
        ok(f, snug_safetensors_open(f->ctx, NULL, path_of(f, "%s/model.safetensors", one), &a));
        snprintf(path + strlen(path), sizeof path - strlen(path), "/model.safetensors");
        ok(f, snug_safetensors_open(f->ctx, NULL, path, &b));
        for (size_t k = 0; k < a.count; k++) { /* the encoder's classifier has codes in their file alone */
            const struct snug_stored_tensor *x = &a.tensors[k], *y = snug_safetensors_find(&b, x->name);
            if (!y) fail_msg("%s", x->name);
            if (strstr(x->name, "quant_state") || strncmp(x->name, "classifier", 10) == 0) continue;
            assert_int_equal(x->dims, y->dims);
            assert_memory_equal(x->shape, y->shape, (size_t)x->dims * sizeof *x->shape);
        }
        snug_safetensors_close(&a);
        snug_safetensors_close(&b);
        close_model(&theirs);
        close_model(&ours);
        close_model(&again);
        close_model(&sharded);
    }
}

/* The type in config.json decides, and a file that says another one is reported. */
FIXTURE_TEST(test_other_type_is_reported) {
    struct model m;
    ok(f, build(f, GOLDEN "quantized/nf4", NULL, NULL, &m));
    close_model(&m);
    json_t *json = json_load_file(GOLDEN "quantized/nf4/config.json", 0, NULL);
    json_object_set_new(json, "dtype", json_string("float16"));
    assert_int_equal(mkdir(path_of(f, "other"), 0700), 0);
    assert_int_equal(json_dump_file(json, path_of(f, "other/config.json"), 0), 0);
    json_decref(json);
    assert_int_equal(symlink(GOLDEN "quantized/nf4/model.safetensors", path_of(f, "other/model.safetensors")), 0);
    open_model(f, path_of(f, "other"), NULL, &m);
    assert_contains(f->log, "was quantized from BF16, but the config's dtype is F16");
    close_model(&m);
    /* Codes of another form than config.json says are quantized again. */
    for (int i = 0; i < 2; i++) {
        json = json_load_file(GOLDEN "quantized/nf4/config.json", 0, NULL);
        json_t *form = json_object_get(json, "quantization_config");
        json_object_set_new(form, i ? "bnb_4bit_quant_type" : "bnb_4bit_use_double_quant",
                            i ? json_string("fp4") : json_false());
        assert_int_equal(json_dump_file(json, path_of(f, "other/config.json"), 0), 0);
        json_decref(json);
        open_model(f, path_of(f, "other"), NULL, &m);
        assert_int_equal(m.config.quantized.type == SNUG_CODES_FP4, i);
        close_model(&m);
    }
}

/* ---- config.json ------------------------------------------------------------------------------------------------ */

FIXTURE_TEST(test_configs) {
    static const struct {
        const char *quantization, *dtype, *says; /* says: NULL: it is read */
    } cases[] = {
        {"null", "float32", NULL},
        {"{}", "float32", NULL},
        {"{\"load_in_4bit\": true}", "float16", NULL},
        {"{\"load_in_4bit\": true, \"llm_int8_skip_modules\": [\"a.b\"]}", "bfloat16", NULL},
        {"{\"load_in_4bit\": true}", "float64", "dtype is not one of"},
        {"3", "float32", "it is not an object"},
        {"{\"quant_method\": \"gptq\", \"bits\": 4}", "float32", "bitsandbytes' 4 bits (load_in_4bit) alone"},
        {"{\"load_in_8bit\": true}", "float32", "bitsandbytes' 4 bits (load_in_4bit) alone"},
        {"{\"load_in_4bit\": false, \"load_in_8bit\": false}", "float32", "bitsandbytes' 4 bits"},
        {"{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"int4\"}", "float32", "neither nf4 nor fp4"},
        {"{\"load_in_4bit\": true, \"bnb_4bit_quant_storage\": \"bfloat16\"}", "float32", "read as uint8 alone"},
        {"{\"load_in_4bit\": true, \"llm_int8_skip_modules\": \"a\"}", "float32", "not a list of names"},
        {"{\"load_in_4bit\": true, \"llm_int8_skip_modules\": [\"layers.*\"]}", "float32", "other entries than names"},
        {"{\"load_in_4bit\": true, \"llm_int8_skip_modules\": [1]}", "float32", "other entries than names"},
        {"{\"load_in_4bit\": 1}", "float32", "load_in_4bit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        struct snug_config config;
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
            "\"intermediate_size\": 8, \"vocab_size\": 9, \"torch_dtype\": \"%s\", \"quantization_config\": %s}",
            cases[i].dtype, cases[i].quantization);
        write_text(f, "config.json", text);
        snug_clear_error(f->ctx);
        const snug_status status = snug_config_read(f->ctx, path_of(f, "config.json"), &config);
        if ((status == SNUG_OK) != !cases[i].says) fail_msg("%s: %s", text, snug_error_message(f->ctx));
        if (cases[i].says) assert_contains(snug_error_message(f->ctx), cases[i].says);
        if (status == SNUG_OK) assert_int_equal(config.quantized.type, i < 2 ? SNUG_CODES_NONE : SNUG_CODES_FP4);
        snug_config_free(&config);
    }
}

/* ---- which weights ---------------------------------------------------------------------------------------------- */

static const struct snug_quantized nf4 = {.type = SNUG_CODES_NF4, .nested = true, .rounded = SNUG_BF16};

/* How many matrices are quantized. */
static int count(const struct snug_program *program) {
    int found = 0;
    for (size_t i = 0; i < program->parameter_count; i++)
        found += program->tensors[program->parameters[i].tensor].quantized.type != SNUG_CODES_NONE;
    return found;
}

FIXTURE_TEST(test_which_weights) {
    static const struct {
        const char *folder, *skip, *says;
        int quantized;
    } cases[] = {
        {"llama/clm", NULL, NULL, 14},
        {"llama/clm", "", NULL, 14},
        {"llama/biases", NULL, NULL, 14},
        {"llama/clm", "q_proj,model.layers.1.self_attn.o_proj", NULL, 11},
        {"llama/clm", "model.layers.1", NULL, 7},
        {"llama/clm", "model.layers.1.self", NULL, 14},
        {"llama/clm", "model.layers.1.mlp,o_proj", NULL, 9},
        {"llama/clm", "gate_proj", "gate_proj.weight and model.layers.0.mlp.up_proj.weight are stored as one tensor",
         0},
        {"llama/clm", "gate_proj,up_proj", NULL, 10},
        {"bert/tokens", "key,query", "name both or neither", 0},
        {"bert/tokens", "attention.output.dense", NULL, 10},
        {"bert/tokens", "this_name_is_longer_than_the_name_of_any_module_of_any_model_that_there_is_in_the_world", NULL,
         12},
        {"gpt2/clm", NULL, NULL, 8},
        {"gpt2/clm", "c_attn", NULL, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        struct model m;
        snprintf(path, sizeof path, GOLDEN "families/%s", cases[i].folder);
        snug_clear_error(f->ctx);
        const snug_status status = build(f, path, &nf4, cases[i].skip, &m);
        if ((status == SNUG_OK) != !cases[i].says) fail_msg("%s: %s", path, snug_error_message(f->ctx));
        if (cases[i].says)
            assert_contains(snug_error_message(f->ctx), cases[i].says);
        else
            assert_int_equal(count(&m.program), cases[i].quantized);
        close_model(&m);
    }
}

/* ---- trainings -------------------------------------------------------------------------------------------------- */

static void assert_same_weights(const struct fixture *f, const char *a, const char *b) {
    char one[128], two[128];
    snprintf(one, sizeof one, "%s/model.safetensors", a);
    snprintf(two, sizeof two, "%s/model.safetensors", b);
    assert_same_file(f, path_of(f, "%s", one), path_of(f, "%s", two));
}

/* Only the head is trained, whatever the method; the codes stay as they are, and a resumed run has the same bits. */
FIXTURE_TEST(test_methods_have_the_same_bits) {
    static const char *const ways[] = {
        "recompute=layer",         "recompute=ffn",
        "offload=weights",         "threads=2",
        "update_in_backward=True", "offload=weights,gradients,optimizer,activations recompute=layer"};
    write_model(f, "large", 0.1, 260, 2, VOCABULARY);
    train(f, "start", "config_name=@large max_steps=1");
    const char *words = QUICK "load_in_4bit=True freeze=base_model save_strategy=steps save_steps=2";
    const snug_train_result whole = train(f, "whole", QUICK "bf16=True freeze=base_model");
    const snug_train_result coded = train(f, "coded", words);
    assert_true(coded.memory[SNUG_MEMORY_WEIGHTS].planned < whole.memory[SNUG_MEMORY_WEIGHTS].planned * 6 / 10);
    assert_int_equal(coded.memory[SNUG_MEMORY_WEIGHTS].planned, coded.memory[SNUG_MEMORY_WEIGHTS].measured);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s %s", words, ways[i]);
        train(f, "way", text);
        assert_same_weights(f, "coded", "way");
    }
    char text[512];
    snprintf(text, sizeof text, "%s resume_from_checkpoint=@coded/checkpoint-2", words);
    train(f, "resumed", text);
    assert_same_weights(f, "coded", "resumed");
    /* A folder that is quantized needs no flag; the same type of matmuls gives the same bits. */
    train(f, "again", "max_steps=4 model_name_or_path=@coded config_name= learning_rate=0 bf16=True freeze=base_model");
    assert_same_weights(f, "coded", "again");
    /* Without its settings it is one of values, which are rounded to the type of the matmuls. */
    json_t *config = read_json(f, path_of(f, "coded/config.json"));
    json_object_del(config, "quantization_config");
    assert_int_equal(json_dump_file(config, path_of(f, "coded/config.json"), 0), 0);
    json_decref(config);
    train(f, "values", "max_steps=1 model_name_or_path=@coded config_name= bf16=True freeze=base_model");
}

static double loss_of(struct fixture *f, const char *folder) {
    char words[128];
    snprintf(words, sizeof words, "validation_file=@dev.csv threads=1 model_name_or_path=@%s", folder);
    return eval_loss_of(f, words);
}

#define ADAPTED                                                                                                        \
    "max_steps=6 learning_rate=0.05 config_name= use_peft=True lora_target_modules=query,dense "                       \
    "bnb_4bit_compute_dtype="                                                                                          \
    "float32 load_in_4bit=True "

/* QLoRA: an adapter's folder keeps the quantization of its training. Merged into the values of the codes it has the
   same loss; into the original weights another one; into a base model that is stored as codes, whichever is asked for,
   the same. */
FIXTURE_TEST(test_adapters) {
    train(f, "start", "max_steps=1");
    train(f, "adapter", ADAPTED "model_name_or_path=@start");
    const double loss = loss_of(f, "adapter"), start = loss_of(f, "start");
    assert_true(fabs(loss - start) > 1e-3);
    run_merge(f, "model_name_or_path=@adapter output_dir=@merged threads=2");
    assert_contains(f->log, "the adapters were trained beside 4-bit weights, which differ by ");
    assert_contains(f->log, "merged into the values of the codes (--merge_into dequantized)");
    assert_true(fabs(loss - loss_of(f, "merged")) < 1e-5);
    run_merge(f, "model_name_or_path=@adapter output_dir=@original merge_into=original");
    assert_contains(f->log, "merged into the weights of the file (--merge_into original)");
    const double other = fabs(loss - loss_of(f, "original"));
    assert_true(other > 1e-5 && other < fabs(loss - start));
    train(f, "coded", QUICK "load_in_4bit=True bnb_4bit_compute_dtype=float32 freeze=base_model learning_rate=0");
    train(f, "again",
          "max_steps=6 learning_rate=0.05 config_name= use_peft=True lora_target_modules=query,dense "
          "model_name_or_path=@coded");
    assert_same_file(f, path_of(f, "again/adapter_model.safetensors"), path_of(f, "adapter/adapter_model.safetensors"));
    run_merge(f, "model_name_or_path=@again output_dir=@of_codes");
    assert_true(fabs(loss - loss_of(f, "of_codes")) < 1e-5);
}

FIXTURE_TEST(test_refused) {
    static const char *const cases[][2] = {
        {QUICK "load_in_4bit=True", "has 4 bits, and would be trained"},
        {QUICK "load_in_4bit=True freeze=layer.0", "--use_peft"},
        {"load_in_4bit=True freeze=base_model", "give --model_name_or_path"},
        {QUICK "bnb_4bit_quant_type=fp4", "--bnb_4bit_quant_type is a setting of --load_in_4bit"},
        {QUICK "use_bnb_nested_quant=False", "--bnb_4bit_use_double_quant is a setting of --load_in_4bit"},
        {QUICK "load_in_4bit=True bf16=True bnb_4bit_compute_dtype=float32", "a run has one type of matmuls"},
        {QUICK "load_in_4bit=True fp16=True bnb_4bit_compute_dtype=float32", "and --fp16: a run has one type"},
        {"model_name_or_path=@coded config_name= load_in_4bit=True bnb_4bit_quant_type=fp4 freeze=base_model",
         "--bnb_4bit_quant_type: the model is quantized already, as nf4 with double quantization"},
        {"model_name_or_path=@coded config_name= load_in_4bit=True use_bnb_nested_quant=False freeze=base_model",
         "--bnb_4bit_use_double_quant: the model is quantized already"},
        {"model_name_or_path=@coded config_name= load_in_4bit=True llm_int8_skip_modules=query freeze=base_model",
         "--llm_int8_skip_modules: the model is quantized already"},
        {"config_name=@coded max_steps=1 freeze=base_model", "give --model_name_or_path"},
        {"model_name_or_path=@plain config_name= load_in_4bit=True llm_int8_skip_modules=query freeze=base_model",
         "the model is quantized already, as fp4: leave it out"},
        {QUICK "load_in_4bit=True freeze=base_model learning_rate=1e38", "not finite"},
    };
    snug_train_result result;
    train(f, "start", "max_steps=1");
    train(f, "coded", QUICK "load_in_4bit=True bnb_4bit_compute_dtype=float32 freeze=base_model");
    train(f, "plain", QUICK "load_in_4bit=True use_bnb_nested_quant=False bnb_4bit_quant_type=fp4 freeze=base_model");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (try_train(f, "refused", cases[i][0], 0, &result) == SNUG_OK) fail_msg("%s: accepted", cases[i][0]);
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
    train(f, "more", "max_steps=1 model_name_or_path=@coded config_name= load_in_4bit=True freeze=base_model");
    train(f, "same",
          "max_steps=1 model_name_or_path=@plain config_name= load_in_4bit=True bnb_4bit_quant_type=fp4 "
          "use_bnb_nested_quant=False freeze=base_model");
}

TEST_MAIN(NULL, NULL)
