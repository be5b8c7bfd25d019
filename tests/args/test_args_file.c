/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments from JSON: what TrainingArguments of transformers writes (tools/golden/training_arguments.py), values of
   another type or without effect, and names that set one value. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args/table.h"
#include "temporary.h"
#include "test.h"

#define FIXTURE struct fixture *f, set_up, tear_down

struct fixture {
    char folder[256], path[300], log[1 << 14];
    snug_context *ctx;
    snug_args *args;
    json_t *golden;
};

static void keep_log(void *user, snug_log_level level, const char *message) {
    struct fixture *f = user;
    const size_t used = strlen(f->log);
    snprintf(f->log + used, sizeof f->log - used, "%s%s\n", level == SNUG_LOG_WARNING ? "warning: " : "", message);
}

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_non_null(temporary_folder(f->folder, sizeof f->folder));
    snprintf(f->path, sizeof f->path, "%s/args.json", f->folder);
    assert_int_equal(snug_context_create(&f->ctx), SNUG_OK);
    snug_context_set_log(f->ctx, keep_log, f, SNUG_LOG_DEBUG);
    f->golden = json_load_file(SNUG_SOURCE_DIR "/tests/golden/training_arguments.json", 0, NULL);
    assert_non_null(f->golden);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    rmdir(f->folder);
    snug_args_destroy(f->args);
    snug_context_destroy(f->ctx);
    json_decref(f->golden);
    free(f);
    return 0;
}

static void write_file(const struct fixture *f, const char *text) {
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The file as the only arguments, then words of a command line, which may be NULL. */
static snug_status read_text(struct fixture *f, const char *text, const char *line) {
    char copy[256] = "", *words[16] = {"train", f->path}, *save = NULL;
    int count = 2;
    write_file(f, text);
    snug_args_destroy(f->args);
    assert_int_equal(snug_args_create(f->ctx, &f->args), SNUG_OK);
    if (line) snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) words[count++] = word;
    snug_status status = SNUG_OK;
    for (int again = 0; again < 2 && status == SNUG_OK; again++) { /* as the program, which parses them twice */
        *f->log = '\0';
        status = snug_args_parse(f->args, count, words);
    }
    return status;
}

static void reads(struct fixture *f, const char *text, const char *line) {
    if (read_text(f, text, line) != SNUG_OK) fail_msg("%s: %s", text, snug_error_message(f->ctx));
}

static snug_status read_object(struct fixture *f, const json_t *object) {
    char *text = json_dumps(object, 0);
    const snug_status status = read_text(f, text, NULL);
    free(text);
    return status;
}

static void expect(const struct fixture *f, const char *name, const char *value) {
    char text[256];
    assert_int_equal(snug_args_get(f->args, name, text, sizeof text), SNUG_OK);
    if (strcmp(text, value) != 0) fail_msg("--%s is \"%s\", not \"%s\"", name, text, value);
}

static void expect_message(const struct fixture *f, const char *says) {
    if (!strstr(snug_error_message(f->ctx), says))
        fail_msg("\"%s\" does not contain \"%s\"", snug_error_message(f->ctx), says);
}

/* The first argument that has not its default. */
static const char *changed(const struct fixture *f) {
    for (size_t i = 0; i < snug_argument_count; i++) {
        const char *name = snug_arguments[i].info.name;
        if (strcmp(name, "args_from") != 0 && !snug_args_has_default(f->args, name)) return name;
    }
    return NULL;
}

/* Whether the one line about arguments without effect has this name. */
static bool is_noted(const struct fixture *f, const char *name) {
    char word[128];
    const char *line = strstr(f->log, "args.json: Hugging Face arguments without effect in snug: ");
    snprintf(word, sizeof word, " %s", name);
    const char *at = line ? strstr(line, word) : NULL;
    return at && (at[strlen(word)] == ',' || at[strlen(word)] == '\n');
}

FIXTURE_TEST(test_default_dumps) {
    static const char *const dumps[] = {"default", "older"};
    for (size_t i = 0; i < 2; i++) {
        json_t *dump = json_object_get(f->golden, dumps[i]);
        assert_true(json_object_size(dump) > 100);
        if (read_object(f, dump) != SNUG_OK) fail_msg("%s: %s", dumps[i], snug_error_message(f->ctx));
        assert_int_equal(snug_args_set(f->args, "model_name_or_path", "model"), SNUG_OK);
        assert_int_equal(snug_args_set(f->args, "train_file", "train.csv"), SNUG_OK);
        if (snug_args_check(f->args, "train") != SNUG_OK) fail_msg("%s: %s", dumps[i], snug_error_message(f->ctx));
        assert_int_equal(snug_args_restore(f->args, "model_name_or_path", ""), SNUG_OK);
        assert_int_equal(snug_args_restore(f->args, "train_file", ""), SNUG_OK);
        const char *name = changed(f);
        /* transformers 5 names the folder; the older one another name of the same optimizer, and empty objects. */
        while (name && snug_list_has("output_dir optim lr_scheduler_kwargs fsdp_config", ' ', name, strlen(name))) {
            assert_int_equal(snug_args_restore(f->args, name, ""), SNUG_OK);
            name = changed(f);
        }
        if (name) fail_msg("%s: --%s has not its default", dumps[i], name);
        assert_false(snug_args_is_chosen(f->args, "zero_stage"));
        assert_true(is_noted(f, "skip_memory_metrics") && is_noted(f, "hub_strategy"));
        assert_false(is_noted(f, "push_to_hub") || is_noted(f, "do_train")); /* false asks for nothing */
        assert_true(strchr(f->log, '\n')[1] == '\0');                        /* one line */
    }
}

/* A value that differs from transformers' default is used, refused by name, or named as one without effect. */
FIXTURE_TEST(test_other_values) {
    const char *name;
    json_t *values, *value;
    size_t i;
    assert_true(json_object_size(json_object_get(f->golden, "others")) > 90);
    json_object_foreach(json_object_get(f->golden, "others"), name, values) json_array_foreach(values, i, value) {
        json_t *object = json_pack("{s:O}", name, value);
        const snug_status status = read_object(f, object);
        char *text = json_dumps(object, 0);
        json_decref(object);
        const bool refused = status == SNUG_E_USAGE || status == SNUG_E_UNSUPPORTED;
        if (refused ? strstr(snug_error_message(f->ctx), name) == NULL : status != SNUG_OK)
            fail_msg("%s: %s", text, snug_error_message(f->ctx));
        const bool command = strncmp(name, "do_", 3) == 0 && snug_args_is_set(f->args, name);
        if (!refused && !changed(f) && !is_noted(f, name) && !json_is_false(value) && !command)
            fail_msg("%s was accepted, and has no effect", text);
        free(text);
    }
}

FIXTURE_TEST(test_values_of_other_types) {
    static const struct {
        const char *text, *name, *value;
    } cases[] = {
        {"{\"max_steps\": 1.0}", "max_steps", "1"},
        {"{\"seed\": 4e1}", "seed", "40"},
        {"{\"save_total_limit\": 2.0, \"max_seq_length\": 64.0}", "max_seq_length", "64"},
        {"{\"per_device_train_batch_size\": 16.0}", "per_device_train_batch_size", "16"},
        {"{\"num_train_epochs\": 2}", "num_train_epochs", "2"},
        {"{\"learning_rate\": 5e-05}", "learning_rate", "5e-05"},
        {"{\"bf16\": 1}", "bf16", "True"},
        {"{\"bf16\": 1.0}", "bf16", "True"},
        {"{\"max_steps\": null, \"tf32\": null, \"no_cuda\": null, \"warmup_ratio\": null}", "max_steps", "-1"},
        {"{\"report_to\": [], \"include_for_metrics\": []}", "report_to", "none"},
        {"{\"report_to\": [\"tensorboard\"]}", "report_to", "tensorboard"},
        {"{\"lr_scheduler_kwargs\": {\"num_cycles\": 2.0}}", "lr_scheduler_kwargs", "{\"num_cycles\":2.0}"},
    };
    static const struct {
        const char *text, *says;
        snug_status status;
    } refused[] = {
        {"{\"max_steps\": 1.5}", "--max_steps 1.5: must be a whole number", SNUG_E_USAGE},
        {"{\"seed\": 1e300}", "--seed 1e300: must be a whole number", SNUG_E_USAGE},
        {"{\"learning_rte\": null}", "--learning_rte: unknown argument; the nearest is --learning_rate", SNUG_E_USAGE},
        {"{\"lr\": null}", "--lr: unknown argument; give --learning_rate (in ", SNUG_E_USAGE},
        {"{\"accelerator_config\": {\"split_batches\": true}}",
         "--accelerator_config: split_batches is true: snug does not use Accelerate", SNUG_E_UNSUPPORTED},
        {"{\"accelerator_config\": {\"even_batches\": true, \"colour\": [1]}}", "--accelerator_config: colour is [1]",
         SNUG_E_UNSUPPORTED},
        {"{\"accelerator_config\": \"accelerate.json\"}", "--accelerator_config accelerate.json: snug does not use",
         SNUG_E_UNSUPPORTED},
        {"{\"accelerator_config\": \"{\"}", "accelerator_config", SNUG_E_INPUT},
        {"{\"half_precision_backend\": \"apex\"}", "--half_precision_backend apex: give --bf16 or --fp16",
         SNUG_E_UNSUPPORTED},
        {"{\"past_index\": 0}", "--past_index 0: encoders have no past", SNUG_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reads(f, cases[i].text, NULL);
        expect(f, cases[i].name, cases[i].value);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const snug_status status = read_text(f, refused[i].text, NULL);
        if (status != refused[i].status)
            fail_msg("%s: status %d: %s", refused[i].text, (int)status, snug_error_message(f->ctx));
        expect_message(f, refused[i].says);
    }
}

/* Two names of one value: what asks for nothing contradicts nothing, and the command line has precedence. */
FIXTURE_TEST(test_two_names) {
    static const struct {
        const char *text, *line, *name, *value; /* name NULL: refused, and value is in the message */
    } cases[] = {
        {"{\"warmup_ratio\": 0.0, \"warmup_steps\": 0}", NULL, "warmup_steps", "0"},
        {"{\"warmup_ratio\": 0.0, \"warmup_steps\": 10}", NULL, "warmup_steps", "10"},
        {"{\"warmup_steps\": 10, \"warmup_ratio\": 0}", NULL, "warmup_steps", "10"},
        {"{\"warmup_ratio\": 0.1, \"warmup_steps\": 0}", NULL, "warmup_steps", "0.1"},
        {"{\"warmup_steps\": 0, \"warmup_ratio\": 0.1}", NULL, "warmup_steps", "0.1"},
        {"{\"warmup_steps\": 0.1, \"warmup_ratio\": 0.1}", NULL, "warmup_steps", "0.1"},
        {"{\"warmup_ratio\": 0.1, \"warmup_steps\": 10}", NULL, NULL,
         "--warmup_ratio and --warmup_steps are both given: leave one out"},
        {"{\"warmup_ratio\": 0.1, \"warmup_steps\": 0}", "--warmup_steps 0", "warmup_steps", "0"},
        {"{\"warmup_ratio\": 0.1, \"warmup_steps\": 0}", "--warmup_steps 50", "warmup_steps", "50"},
        {"{\"warmup_steps\": 50}", "--warmup_ratio 0.2", "warmup_steps", "0.2"},
        {"{\"warmup_steps\": 50}", "--warmup_ratio 0", "warmup_steps", "0"},
        {"{}", "--warmup_ratio 0.2 --warmup_steps 0", "warmup_steps", "0.2"},
        {"{}", "--warmup_ratio 0.2 --warmup_steps 5", NULL, "both given"},
        {"{\"group_by_length\": false, \"train_sampling_strategy\": \"sequential\"}", NULL, "train_sampling_strategy",
         "sequential"},
        {"{\"train_sampling_strategy\": \"sequential\", \"group_by_length\": false}", NULL, "train_sampling_strategy",
         "sequential"},
        {"{\"group_by_length\": true, \"train_sampling_strategy\": \"random\"}", NULL, "train_sampling_strategy",
         "group_by_length"},
        {"{\"group_by_length\": true, \"train_sampling_strategy\": \"sequential\"}", NULL, NULL,
         "--group_by_length and --train_sampling_strategy are both given"},
        {"{\"zero_stage\": 2, \"fsdp\": []}", NULL, "zero_stage", "2"},
        {"{\"fsdp\": \"full_shard\", \"zero_stage\": 1}", NULL, NULL, "--fsdp and --zero_stage are both given"},
        {"{\"activation_checkpointing\": true, \"gradient_checkpointing\": false}", NULL, "gradient_checkpointing",
         "True"},
        {"{\"gradient_checkpointing\": true, \"activation_checkpointing\": false}", NULL, "gradient_checkpointing",
         "True"},
        {"{\"no_cuda\": false, \"use_cpu\": true}", NULL, "use_cpu", "True"},
        {"{\"use_cpu\": true, \"no_cuda\": false}", NULL, "use_cpu", "True"},
        {"{\"use_cpu\": true, \"no_cuda\": null}", NULL, "use_cpu", "True"},
        {"{\"evaluation_strategy\": \"no\", \"eval_strategy\": \"epoch\"}", NULL, "eval_strategy", "epoch"},
        {"{\"per_gpu_train_batch_size\": 4, \"per_device_train_batch_size\": 8}", NULL, "per_device_train_batch_size",
         "4"},
        {"{\"per_gpu_train_batch_size\": 4, \"per_device_train_batch_size\": 16}", NULL, NULL,
         "--per_gpu_train_batch_size and --per_device_train_batch_size are both given: leave one out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const snug_status status = read_text(f, cases[i].text, cases[i].line);
        if (status != (cases[i].name ? SNUG_OK : SNUG_E_USAGE))
            fail_msg("%s %s: %s", cases[i].text, cases[i].line ? cases[i].line : "", snug_error_message(f->ctx));
        if (cases[i].name)
            expect(f, cases[i].name, cases[i].value);
        else
            expect_message(f, cases[i].value);
    }
}

TEST_MAIN(NULL, NULL)
