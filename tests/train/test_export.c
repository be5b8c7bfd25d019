/* SPDX-License-Identifier: Apache-2.0 */
/* Files of snug export: the values and tensors that llama.cpp's own converters write (tools/golden/gguf.py). */
#include <math.h>

#include <jansson.h>
#include <zlib.h>

#include "arguments.h"
#include "model/family.h"
#include "model/gguf_model.h"
#include "sanitized.h"
#include "scratch.h"
#include "snug_generate.h"
#include "tokenizer/gguf_vocabulary.h"
#include "tokenizer/tokenizer_parts.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown
#define GOLDEN SNUG_SOURCE_DIR "/tests/golden/"

/* ---- reading GGUF ------------------------------------------------------------------------------------------------ */

struct bytes {
    const unsigned char *at, *end, *begin;
};

static const void *take(struct bytes *b, size_t size) {
    assert_true((size_t)(b->end - b->at) >= size);
    b->at += size;
    return b->at - size;
}

static uint64_t take_number(struct bytes *b, size_t size) {
    uint64_t number = 0;
    memcpy(&number, take(b, size), size);
    return number;
}

static json_t *take_text(struct bytes *b) {
    const size_t length = take_number(b, 8);
    json_t *text = json_stringn(take(b, length), length);
    assert_non_null(text);
    return text;
}

static json_t *take_value(struct bytes *b, uint64_t type) {
    float real;
    switch (type) {
    case 4: return json_integer((json_int_t)take_number(b, 4));
    case 5: return json_integer((int32_t)take_number(b, 4));
    case 6: memcpy(&real, take(b, 4), 4); return json_real((double)real);
    case 7: return json_boolean((int)take_number(b, 1));
    case 8: return take_text(b);
    default: break;
    }
    assert_int_equal(type, 9);
    const uint64_t of = take_number(b, 4), count = take_number(b, 8);
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) json_array_append_new(list, take_value(b, of));
    return list;
}

static size_t bytes_of(int type, uint64_t count) {
    return type == 0 ? 4 * count : type == 8 ? count / 32 * 34 : 2 * count;
}

/* {"values": {key: value}, "tensors": {name: [type, shape, CRC]}} */
static json_t *read_gguf(const unsigned char *data, size_t size) {
    struct bytes b = {data, data + size, data};
    assert_memory_equal(take(&b, 4), "GGUF", 4);
    assert_int_equal(take_number(&b, 4), 3);
    const uint64_t tensors = take_number(&b, 8), count = take_number(&b, 8);
    json_t *values = json_object(), *found = json_object();
    for (uint64_t i = 0; i < count; i++) {
        json_t *key = take_text(&b);
        json_object_set_new(values, json_string_value(key), take_value(&b, take_number(&b, 4)));
        json_decref(key);
    }
    struct {
        char name[96];
        uint64_t offset, elements;
        int type;
        json_t *shape;
    } infos[64] = {0};
    assert_true(tensors <= 64);
    for (uint64_t i = 0; i < tensors; i++) {
        json_t *name = take_text(&b);
        snprintf(infos[i].name, sizeof infos[i].name, "%s", json_string_value(name));
        json_decref(name);
        infos[i].shape = json_array();
        infos[i].elements = 1;
        for (uint64_t k = take_number(&b, 4); k > 0; k--) {
            const uint64_t extent = take_number(&b, 8);
            infos[i].elements *= extent;
            json_array_append_new(infos[i].shape, json_integer((json_int_t)extent));
        }
        infos[i].type = (int)take_number(&b, 4);
        infos[i].offset = take_number(&b, 8);
    }
    const unsigned char *start = data + (b.at - data + 31) / 32 * 32;
    for (uint64_t i = 0; i < tensors; i++) {
        const size_t length = bytes_of(infos[i].type, infos[i].elements);
        assert_true(infos[i].offset % 32 == 0 && start + infos[i].offset + length <= data + size);
        const uint64_t crc = crc32(0, start + infos[i].offset, (unsigned)length);
        json_object_set_new(found, infos[i].name, json_pack("[i,o,I]", infos[i].type, infos[i].shape, (json_int_t)crc));
    }
    return json_pack("{s:o,s:o}", "values", values, "tensors", found);
}

static json_t *read_file(struct scratch *s, const char *name) {
    enum { MOST = 1 << 20 };
    FILE *in = fopen(scratch_path(s, name), "rb"); /* snug itself reads no GGUF */
    unsigned char *data = malloc(MOST);
    assert_true(in && data);
    const size_t size = fread(data, 1, MOST, in);
    fclose(in);
    json_t *file = read_gguf(data, size);
    free(data);
    return file;
}

/* ---- exporting --------------------------------------------------------------------------------------------------- */

static snug_status export_with(struct scratch *s, const char *words) {
    snug_args *args;
    assert_ok(s, snug_args_create(s->ctx, &args));
    set_words(s->ctx, args, s->folder, words);
    const snug_status status = snug_export(args);
    snug_args_destroy(args);
    return status;
}

static const char tiny_tokenizer[] =
    "{\"version\": \"1.0\", \"normalizer\": null, \"post_processor\": null, \"added_tokens\": [{\"id\": 5, "
    "\"content\": "
    "\"<|end|>\", \"special\": true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
    "\"use_regex\": true}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": "
    "0, "
    "\"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4, \"<|end|>\": 5}, \"merges\": [\"a b\", \"ab c\"]}}";

/* Leaves the folder "model" with the tiny tokenizer, and in config.json the members of `changes` (NULL: none). The
   scale of attention's scores of a tiny Gemma is none that llama.cpp has. */
static void make_folder(struct scratch *s, const char *from, const char *changes) {
    char target[700];
    mkdir(scratch_path(s, "model"), 0777);
    write_text(s, "model/tokenizer.json", tiny_tokenizer);
    write_text(s, "model/tokenizer_config.json",
               "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"<|end|>\", \"chat_template\": "
               "[{\"name\": \"default\", \"template\": \"{{ messages }}\"}, {\"name\": \"tool_use\", \"template\": "
               "\"{{ tools }}\"}]}");
    snprintf(target, sizeof target, GOLDEN "%s/model.safetensors", from);
    unlink(scratch_path(s, "model/model.safetensors"));
    assert_int_equal(symlink(target, s->path), 0);
    snprintf(target, sizeof target, GOLDEN "%s/config.json", from);
    json_t *config = json_load_file(target, 0, NULL), *further = json_loads(changes ? changes : "{}", 0, NULL);
    if (json_object_get(config, "query_pre_attn_scalar"))
        json_object_set(config, "query_pre_attn_scalar", json_object_get(config, "head_dim"));
    assert_int_equal(json_object_update(config, further), 0);
    char *text = json_dumps(config, 0);
    write_text(s, "model/config.json", text);
    free(text);
    json_decref(config);
    json_decref(further);
}

/* All that the converter writes; ours may describe more. */
static void compare(const char *name, const json_t *expected, const json_t *got) {
    const json_t *values = json_object_get(got, "values"), *tensors = json_object_get(got, "tensors");
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(expected, "values"), key, value) {
        if (strcmp(key, "general.name") == 0 || strcmp(key, "general.size_label") == 0) continue;
        const json_t *own = json_object_get(values, key);
        const bool real = json_is_real(value) && json_is_real(own);
        if (real ? (float)json_real_value(value) == (float)json_real_value(own) : json_equal(value, own)) continue;
        char *a = json_dumps(value, JSON_ENCODE_ANY), *b = own ? json_dumps(own, JSON_ENCODE_ANY) : NULL;
        fail_msg("%s: %s is %s, not %s", name, key, b, a);
    }
    json_object_foreach(json_object_get(expected, "tensors"), key, value) {
        if (json_equal(value, json_object_get(tensors, key))) continue;
        char *a = json_dumps(value, 0), *b = json_dumps(json_object_get(tensors, key), 0);
        fail_msg("%s: tensor %s is %s, not %s", name, key, b, a);
    }
    assert_int_equal(json_object_size(json_object_get(expected, "tensors")), json_object_size(tensors));
}

static json_t *golden(void) {
    json_t *all = json_load_file(GOLDEN "gguf.json", 0, NULL);
    assert_non_null(all);
    return all;
}

FIXTURE_TEST(files_are_those_of_the_converter) {
    json_t *all = golden(), *model;
    size_t i, refused = 0;
    json_array_foreach(json_object_get(all, "models"), i, model) {
        char words[2048], name[256];
        const char *from = json_string_value(json_object_get(model, "folder")),
                   *type = json_string_value(json_object_get(model, "outtype"));
        snprintf(words, sizeof words, "model_name_or_path=@model outtype=%s output_file=@x.gguf", type);
        make_folder(s, from, NULL);
        snprintf(name, sizeof name, "%s %s", from, type);
        const snug_status status = export_with(s, words);
        if (status == SNUG_E_UNSUPPORTED) {
            if (!strstr(snug_error_message(s->ctx), "it would give other text"))
                fail_msg("%s: %s", name, snug_error_message(s->ctx));
            refused++;
            continue;
        }
        if (status != SNUG_OK) fail_msg("%s: %s", name, snug_error_message(s->ctx));
        json_t *got = read_file(s, "x.gguf");
        compare(name, model, got);
        json_decref(got);
    }
    assert_int_equal(refused, 5); /* settings of the tiny models that llama.cpp does not read */
    json_decref(all);
}

FIXTURE_TEST(adapters_are_those_of_the_converter) {
    json_t *all = golden(), *adapter;
    size_t i;
    json_array_foreach(json_object_get(all, "adapters"), i, adapter) {
        char words[2048];
        const char *folder = json_string_value(json_object_get(adapter, "folder"));
        snprintf(words, sizeof words,
                 "model_name_or_path=" GOLDEN "%s adapter_name_or_path=" GOLDEN
                 "%s outtype=f32 adapter_only=True output_file=@x.gguf",
                 json_string_value(json_object_get(adapter, "base")), folder);
        if (export_with(s, words) != SNUG_OK) fail_msg("%s: %s", folder, snug_error_message(s->ctx));
        json_t *got = read_file(s, "x.gguf");
        compare(folder, adapter, got);
        json_decref(got);
    }
    json_decref(all);
    /* of several scales, alpha is the first one's, and the others are in lora_b */
    assert_ok(s, export_with(s, "model_name_or_path=" GOLDEN "families/llama/biases adapter_name_or_path=" GOLDEN
                                "lora/llama_patterns outtype=f32 adapter_only=True output_file=@x.gguf"));
    json_t *got = read_file(s, "x.gguf");
    assert_true(json_real_value(json_object_get(json_object_get(got, "values"), "adapter.lora.alpha")) == 5);
    json_decref(got);
}

#define MERGED GOLDEN "lora/llama_excluded"

/* Merged, it is the file of the merged folder. */
FIXTURE_TEST(an_adapter_is_merged) {
    static const char *const words[] = {"model_name_or_path=@merged outtype=f32 output_file=@x.gguf",
                                        "model_name_or_path=@model adapter_name_or_path=" MERGED
                                        " outtype=f32 output_file=@x.gguf"};
    snug_args *args;
    json_t *files[2];
    make_folder(s, "families/llama/clm", NULL);
    assert_ok(s, snug_args_create(s->ctx, &args));
    set_words(s->ctx, args, s->folder,
              "model_name_or_path=@model adapter_name_or_path=" MERGED " output_dir=@merged dtype=float32");
    assert_ok(s, snug_merge(args));
    snug_args_destroy(args);
    for (int i = 0; i < 2; i++) {
        if (export_with(s, words[i]) != SNUG_OK) fail_msg("%s: %s", words[i], snug_error_message(s->ctx));
        files[i] = read_file(s, "x.gguf");
    }
    assert_true(json_equal(json_object_get(files[0], "tensors"), json_object_get(files[1], "tensors")));
    json_decref(files[0]);
    make_folder(s, "families/llama/clm", NULL);
    assert_ok(s, export_with(s, "model_name_or_path=@model outtype=f32 output_file=@x.gguf"));
    files[0] = read_file(s, "x.gguf");
    assert_false(json_equal(json_object_get(files[0], "tensors"), json_object_get(files[1], "tensors")));
    json_decref(files[0]);
    json_decref(files[1]);
}

static void refuse(struct scratch *s, const char *words, snug_status expected, const char *message) {
    const snug_status status = export_with(s, words);
    if (status != expected || !strstr(snug_error_message(s->ctx), message))
        fail_msg("%s: %d: %s", words, (int)status, snug_error_message(s->ctx));
    assert_int_equal(access(scratch_path(s, "x.gguf"), F_OK), -1);
}

FIXTURE_TEST(what_llama_cpp_lacks_is_refused) {
    static const struct {
        const char *from, *changes, *message;
    } cases[] = {
        {"gemma/clm", "{\"hidden_act\": \"relu\"}", "Gemma models do not have this activation"},
        {"llama/biases", "{\"mlp_bias\": true, \"model_type\": \"smollm3\"}", "do not have"},
        {"llama/clm", "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {"qwen2/clm",
         "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 4, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8}}",
         "rope_type llama3"},
        {"gemma2/clm", "{\"query_pre_attn_scalar\": 100}", "this scale of attention's scores"},
        {"gemma3_text/clm", "{\"query_pre_attn_scalar\": 100}", "this scale of attention's scores"},
        {"distilbert/single", "{}", "DistilBERT models have no language model to export: --format gguf is of decoders"},
        {"llama/single", "{}", "is a classifier"},
    };
    char words[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[64];
        snprintf(from, sizeof from, "families/%s", cases[i].from);
        make_folder(s, from, cases[i].changes);
        refuse(s, "model_name_or_path=@model output_file=@x.gguf", SNUG_E_UNSUPPORTED, cases[i].message);
    }
    refuse(s, "model_name_or_path=" GOLDEN "families/llama/clm output_file=@x.gguf", SNUG_E_INPUT, "has no tokenizer");
    make_folder(s, "families/llama/clm", NULL);
    refuse(s, "model_name_or_path=@model adapter_only=True output_file=@x.gguf", SNUG_E_USAGE, "has no adapters");
    static const char *const adapters[][2] = {{"gemma/clm", "gemma_saved"},
                                              {"llama/clm", "llama_output"},
                                              {"llama/clm", "llama_dora"},
                                              {"llama/clm", "llama_words"},
                                              {"gpt2/clm", "gpt2_biases"}};
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        snprintf(words, sizeof words,
                 "model_name_or_path=" GOLDEN "families/%s adapter_name_or_path=" GOLDEN
                 "lora/%s adapter_only=True output_file=@x.gguf",
                 adapters[i][0], adapters[i][1]);
        refuse(s, words, SNUG_E_UNSUPPORTED, "export the merged model, without --adapter_only");
    }
    refuse(s, "format=onnx", SNUG_E_UNSUPPORTED, "optimum-cli export onnx");
    refuse(s, "format=gguf", SNUG_E_USAGE, "--output_file FILE");
    refuse(s, "model_name_or_path=@model output_file=@none/x.gguf", SNUG_E_IO, "none/x.gguf");
}

/* Settings that no tiny model has. */
static void describe(struct scratch *s, const char *family, void (*change)(struct snug_config *, struct snug_program *),
                     const char *message, const char *tensor) {
    struct snug_gguf file = {.ctx = s->ctx};
    struct snug_gguf_part *parts = NULL;
    struct snug_config config;
    struct snug_program program;
    char folder[512];
    snprintf(folder, sizeof folder, GOLDEN "families/%s/clm", family);
    assert_ok(s, snug_config_read(s->ctx, folder, &config));
    snug_program_init(&program, s->ctx);
    program.longest = config.positions;
    assert_ok(s, snug_build_model(&program, &config, false, 0));
    change(&config, &program);
    const snug_status status = snug_gguf_add_model(&file, &config, &program, SNUG_GGUF_F32, &parts);
    if (message ? status != SNUG_E_UNSUPPORTED || !strstr(snug_error_message(s->ctx), message) : status != SNUG_OK)
        fail_msg("%s: %s", family, snug_error_message(s->ctx));
    snug_clear_error(s->ctx);
    if (tensor) assert_string_equal(file.tensors[1].name, tensor);
    snug_gguf_free(&file);
    free(parts);
    snug_program_free(&program);
    snug_config_free(&config);
}

static void tie(struct snug_config *config, struct snug_program *program) {
    (void)program;
    config->own_decoder = false;
}

static void untie(struct snug_config *config, struct snug_program *program) {
    (void)program;
    config->own_decoder = true;
}

static void rename_one(struct snug_config *config, struct snug_program *program) {
    (void)config;
    snprintf(program->parameters[0].name, sizeof program->parameters[0].name, "model.other.weight");
}

static void have_longrope(struct snug_config *config, struct snug_program *program) {
    (void)program;
    json_object_set_new(config->json, "rope_scaling", json_pack("{s:s}", "type", "longrope"));
}

/* Of as many layers as the Gemma of 27 billion parameters has. */
static void have_layers(struct snug_config *config, struct snug_program *program) {
    (void)program;
    config->num_hidden_layers = strcmp(config->family->model_type, "gemma2") == 0 ? 46 : 62;
}

FIXTURE_TEST(settings_are_llama_cpps) {
    describe(s, "olmo2", tie, NULL, "output.weight");
    describe(s, "gemma", untie, "an lm_head that is not the word table", NULL);
    describe(s, "llama", rename_one, "llama.cpp has no tensor for model.other.weight", NULL);
    describe(s, "llama", have_longrope, "rope_type longrope", NULL);
    describe(s, "gemma2", have_layers, "this scale of attention's scores", NULL);
    describe(s, "gemma3_text", have_layers, "this scale of attention's scores", NULL);
}

/* ---- tokenizers -------------------------------------------------------------------------------------------------- */

static json_t *vocabulary_of(struct scratch *s, const char *folder, int64_t rows, snug_status *status) {
    struct snug_tokenizer *tokenizer;
    struct snug_gguf file = {.ctx = s->ctx};
    assert_ok(s, snug_tokenizer_load(s->ctx, folder, NULL, &tokenizer));
    s->log[0] = '\0';
    *status = snug_gguf_add_vocabulary(&file, tokenizer, rows);
    if (*status == SNUG_OK) assert_ok(s, snug_gguf_write(&file, scratch_path(s, "v.gguf"), NULL, NULL));
    snug_gguf_free(&file);
    snug_tokenizer_free(tokenizer);
    if (*status != SNUG_OK) return NULL;
    json_t *got = read_file(s, "v.gguf"), *values = json_incref(json_object_get(got, "values"));
    json_decref(got);
    return values;
}

FIXTURE_TEST(tokens_and_merges_are_those_of_the_converter) {
    json_t *all = golden(), *tokenizer;
    size_t i;
    json_array_foreach(json_object_get(all, "tokenizers"), i, tokenizer) {
        char folder[512];
        snug_status status;
        const char *key;
        json_t *value;
        snprintf(folder, sizeof folder, GOLDEN "%s", json_string_value(json_object_get(tokenizer, "folder")));
        json_t *got = vocabulary_of(
            s, folder, (int64_t)json_array_size(json_object_get(tokenizer, "tokenizer.ggml.tokens")), &status);
        assert_int_equal(status, SNUG_OK);
        json_object_foreach(tokenizer, key, value) {
            if (strcmp(key, "folder") == 0 || strcmp(key, "tokenizer.ggml.pre") == 0) continue;
            if (!json_equal(value, json_object_get(got, key))) fail_msg("%s: %s differs", folder, key);
        }
        json_decref(got);
    }
    json_decref(all);
}

/* Writes a tokenizer.json of these parts; the vocabulary has the tokens of a, b, ab and what `tokens` adds. */
static void write_tokenizer(struct scratch *s, const char *pretokenizer, const char *model, const char *tokens,
                            const char *rest) {
    char text[4096];
    mkdir(scratch_path(s, "t"), 0777);
    snprintf(text, sizeof text,
             "{\"version\": \"1.0\", \"normalizer\": null, \"pre_tokenizer\": %s, \"decoder\": null, %s, \"model\": "
             "{\"type\": \"BPE\", %s, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2%s}, \"merges\": [\"a b\"]}}",
             pretokenizer, rest, model, tokens);
    write_text(s, "t/tokenizer.json", text);
    write_text(s, "t/tokenizer_config.json", "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}");
}

#define SPLIT(pattern, behavior, invert)                                                                               \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern           \
    "\"}, \"behavior\": \"" behavior "\", \"invert\": " invert                                                         \
    "}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}"
#define LLAMA3                                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "                             \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2                                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "                                  \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define TEKKEN                                                                                                         \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{"  \
    "M}]+|"                                                                                                            \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{"  \
    "M}]*|\\\\p{N}| "                                                                                                  \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define BYTES(split) "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " split "}"
#define DIGITS(individual) "{\"type\": \"Digits\", \"individual_digits\": " individual "}"
#define NO_ADDED "\"post_processor\": null, \"added_tokens\": []"

/* Other patterns, behaviors and prefixes than those that llama.cpp has give other tokens: refused. */
FIXTURE_TEST(pretokenizers_have_llama_cpps_names) {
    static const struct {
        const char *pretokenizer, *model, *name, *log;
    } cases[] = {
        {BYTES("true"), "\"ignore_merges\": false", "gpt-2", ""},
        {"{\"type\": \"Sequence\", \"pretokenizers\": [" DIGITS("true") ", " BYTES("true") "]}",
         "\"ignore_merges\": false", "smollm", ""},
        {"{\"type\": \"Sequence\", \"pretokenizers\": [" DIGITS("false") ", " BYTES("true") "]}",
         "\"ignore_merges\": false", NULL, ""},
        {SPLIT(LLAMA3, "Isolated", "false"), "\"ignore_merges\": true", "llama-bpe", ""},
        {SPLIT(LLAMA3, "Isolated", "false"), "\"ignore_merges\": false", "smaug-bpe", ""},
        {SPLIT(LLAMA3, "Removed", "true"), "\"ignore_merges\": true", "llama-bpe", ""},
        {SPLIT(LLAMA3, "Removed", "false"), "\"ignore_merges\": true", NULL, ""},
        {SPLIT(LLAMA3, "MergedWithNext", "true"), "\"ignore_merges\": true", NULL, ""},
        {SPLIT(QWEN2, "Isolated", "false"), "\"ignore_merges\": false", "qwen2", ""},
        {SPLIT(QWEN2, "Isolated", "false"), "\"ignore_merges\": true", "qwen2", "also merges"},
        {SPLIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+",
               "Isolated", "false"),
         "\"ignore_merges\": false", "gpt-2", ""},
        {SPLIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+",
               "Contiguous", "false"),
         "\"ignore_merges\": false", NULL, ""},
        {SPLIT(TEKKEN, "Isolated", "false"), "\"ignore_merges\": false", "tekken", "does not merge"},
        {SPLIT("x+", "Isolated", "false"), "\"ignore_merges\": false", NULL, ""},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": true}", "\"ignore_merges\": false", NULL,
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_status status;
        write_tokenizer(s, cases[i].pretokenizer, cases[i].model, "", NO_ADDED);
        json_t *got = vocabulary_of(s, scratch_path(s, "t"), 5, &status);
        const char *name = json_string_value(json_object_get(got, "tokenizer.ggml.pre"));
        if (cases[i].name ? !name || strcmp(name, cases[i].name) != 0 : status != SNUG_E_UNSUPPORTED)
            fail_msg("case %zu: %s", i, name ? name : snug_error_message(s->ctx));
        assert_true(strstr(s->log, cases[i].log) && (*cases[i].log || !*s->log));
        json_decref(got);
    }
}

static int64_t item(const json_t *values, const char *key, size_t i) {
    const json_t *value = json_array_get(json_object_get(values, key), i);
    return (int64_t)json_number_value(value);
}

/* Scores, types and the tokens around a text, of a BPE of characters. */
FIXTURE_TEST(sentencepiece_has_scores) {
    snug_status status;
    write_tokenizer(
        s, "null", "\"byte_fallback\": true, \"unk_token\": \"<unk>\", \"fuse_unk\": true",
        ", \"<unk>\": 3, \"<0x41>\": 4, \"<s>\": 5, \"\xe2\x96\x81\xe2\x96\x81\": 6, \"<pad>\": 7, \"</s>\": 9",
        "\"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true}, {\"id\": 6, \"content\": "
        "\"\xe2\x96\x81\xe2\x96\x81\", \"special\": false}, {\"id\": 7, \"content\": \"<pad>\", \"special\": "
        "false}, {\"id\": 9, \"content\": \"</s>\", \"special\": true}], \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"</s>\", "
        "\"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
        "{\"id\": \"B\", \"type_id\": 0}}], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [5], "
        "\"tokens\": [\"<s>\"]}, \"</s>\": {\"id\": \"</s>\", \"ids\": [9], \"tokens\": [\"</s>\"]}}}");
    json_t *got = vocabulary_of(s, scratch_path(s, "t"), 10, &status);
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(s->ctx));
    static const int types[] = {1, 1, 1, 2, 6, 3, 4, 3, 5, 3},
                     scores[] = {-2, -2, 0, 0, 0, -1000, -1000, -1000, -1000, -1000};
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(item(got, "tokenizer.ggml.token_type", i), types[i]);
        assert_int_equal(item(got, "tokenizer.ggml.scores", i), scores[i]);
    }
    assert_string_equal(json_string_value(json_array_get(json_object_get(got, "tokenizer.ggml.tokens"), 6)), "  ");
    assert_string_equal(json_string_value(json_array_get(json_object_get(got, "tokenizer.ggml.tokens"), 8)), "[PAD8]");
    assert_string_equal(json_string_value(json_object_get(got, "tokenizer.ggml.model")), "llama");
    assert_int_equal(json_integer_value(json_object_get(got, "tokenizer.ggml.bos_token_id")), 5);
    assert_int_equal(json_integer_value(json_object_get(got, "tokenizer.ggml.eos_token_id")), 9);
    assert_true(json_is_true(json_object_get(got, "tokenizer.ggml.add_bos_token")));
    assert_true(json_is_true(json_object_get(got, "tokenizer.ggml.add_eos_token")));
    assert_true(json_is_false(json_object_get(got, "tokenizer.ggml.add_space_prefix")));
    json_decref(got);
    write_text(s, "t/tokenizer_config.json",
               "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"bos_token\": \"</s>\", \"eos_token\": \"<s>\"}");
    got = vocabulary_of(s, scratch_path(s, "t"), 10, &status);
    assert_true(json_is_false(json_object_get(got, "tokenizer.ggml.add_bos_token")));
    assert_non_null(strstr(s->log, "end with </s>, which llama.cpp does not add"));
    json_decref(got);
    assert_null(vocabulary_of(s, scratch_path(s, "t"), 8, &status));
    assert_non_null(strstr(snug_error_message(s->ctx), "has 10 tokens, and the model rows of 8"));
    got = vocabulary_of(s, GOLDEN "tokenizer_parts/bpe_bytes", 1000, &status);
    assert_true(json_is_true(json_object_get(got, "tokenizer.ggml.add_space_prefix")));
    json_decref(got);
    assert_null(vocabulary_of(s, GOLDEN "tokenizer_parts/bpe_characters", 1000, &status));
    assert_int_equal(status, SNUG_E_UNSUPPORTED);
    assert_null(vocabulary_of(s, GOLDEN "tokenizer_parts/unigram", 10000, &status));
    assert_int_equal(status, SNUG_E_UNSUPPORTED);
}

/* Tokens that are merged twice have the first rank; tokens that no merge gives, the lowest score. */
FIXTURE_TEST(scores_are_ranks) {
    static const struct {
        const char *model;
        bool warns;
        int score; /* of token 5 */
    } cases[] = {
        {"\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 5}, \"merges\": [\"a b\", \"b c\", "
         "\"ab c\", \"a bc\"]",
         false, -2},
        {"\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"bc\": 4, \"abc\": 5}, \"merges\": [\"a b\", \"ab c\", "
         "\"b c\", \"a bc\"]",
         true, -1},
        {"\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"<x>\": 4, \"e\": 5}, \"merges\": []", false, -1},
        {"\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \"<x>\": 4, \"ab\": 5}, \"merges\": [\"a b\"]", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snug_status status;
        write_tokenizer(s, "null", "", "", NO_ADDED);
        snprintf(text, sizeof text,
                 "{\"added_tokens\": [%s], \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, %s}}",
                 i == 3 ? "{\"id\": 5, \"content\": \"ab\", \"special\": true}" : "", cases[i].model);
        write_text(s, "t/tokenizer.json", text);
        json_t *got = vocabulary_of(s, scratch_path(s, "t"), 6, &status);
        if (status != SNUG_OK) fail_msg("%s", snug_error_message(s->ctx));
        assert_int_equal(item(got, "tokenizer.ggml.scores", 5), i == 3 ? -1000 : cases[i].score);
        assert_true((strstr(s->log, "not in the order that SentencePiece's scores give") != NULL) == cases[i].warns);
        json_decref(got);
    }
}

/* Added tokens that look like control tokens are such. */
FIXTURE_TEST(added_tokens_have_types) {
    static const char *const tokens[] = {"<|x|>", "<|x", "<|>", "<pad>", "<padding>", "<unused7>", "x y"};
    static const int types[] = {3, 4, 4, 3, 4, 3, 4};
    char vocabulary[512] = "", added[1024] = "\"post_processor\": null, \"added_tokens\": [";
    snug_status status;
    for (int i = 0; i < 7; i++) {
        snprintf(vocabulary + strlen(vocabulary), sizeof vocabulary - strlen(vocabulary), ", \"%s\": %d", tokens[i],
                 3 + i);
        snprintf(added + strlen(added), sizeof added - strlen(added),
                 "%s{\"id\": %d, \"content\": \"%s\", \"special\": false}", i ? ", " : "", 3 + i, tokens[i]);
    }
    strcat(added, "]");
    write_tokenizer(s, BYTES("true"), "\"ignore_merges\": false", vocabulary, added);
    json_t *got = vocabulary_of(s, scratch_path(s, "t"), 10, &status);
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(s->ctx));
    for (size_t i = 0; i < 7; i++) assert_int_equal(item(got, "tokenizer.ggml.token_type", 3 + i), types[i]);
    assert_string_equal(json_string_value(json_array_get(json_object_get(got, "tokenizer.ggml.tokens"), 9)), "x y");
    json_decref(got);
}

/* A value beyond 16 bits is named; a row that is no multiple of 32 has 16 bits instead of 8. */
static snug_status large_values(void *user, size_t tensor, int64_t first, int64_t rows, float *out) {
    (void)first;
    for (int64_t i = 0; i < (tensor ? 32 : 3) * rows; i++) out[i] = tensor ? 0 : *(const float *)user;
    return SNUG_OK;
}

FIXTURE_TEST(values_fit_their_type) {
    struct snug_gguf file = {.ctx = s->ctx};
    float value = 65504;
    snug_gguf_add_tensor(&file, &(struct snug_gguf_tensor){"x.weight", SNUG_GGUF_Q8_0, 5, 3});
    snug_gguf_add_tensor(&file, &(struct snug_gguf_tensor){"zeros.weight", SNUG_GGUF_Q8_0, 1, 32});
    assert_ok(s, snug_gguf_write(&file, scratch_path(s, "x.gguf"), large_values, &value));
    json_t *got = read_file(s, "x.gguf");
    assert_int_equal(item(json_object_get(got, "tensors"), "x.weight", 0), SNUG_GGUF_F16);
    json_decref(got);
    value = 65520;
    assert_int_equal(snug_gguf_write(&file, scratch_path(s, "x.gguf"), large_values, &value), SNUG_E_INPUT);
    assert_non_null(strstr(snug_error_message(s->ctx), "x.gguf: a value of tensor x.weight is too large for 16 bits"));
    snug_gguf_free(&file);
}

TEST_MAIN(NULL, NULL)
