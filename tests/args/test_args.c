/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's grammar, Hugging Face's names and defaults, and the messages for invalid arguments. */
#include <stdlib.h>
#include <string.h>

#include "args/table.h"
#include "test.h"

#define FIXTURE struct fixture *fixture, set_up, tear_down

struct fixture {
    snug_context *ctx;
    snug_args *args;
};

static int set_up(void **state) {
    struct fixture *fixture = calloc(1, sizeof *fixture);
    *state = fixture;
    return snug_context_create(&fixture->ctx) != SNUG_OK || snug_args_create(fixture->ctx, &fixture->args) != SNUG_OK;
}

static int tear_down(void **state) {
    struct fixture *fixture = *state;
    snug_args_destroy(fixture->args);
    snug_context_destroy(fixture->ctx);
    free(fixture);
    return 0;
}

static void renew(struct fixture *fixture) {
    snug_args_destroy(fixture->args);
    assert_int_equal(snug_args_create(fixture->ctx, &fixture->args), SNUG_OK);
}

/* Words separated by spaces, parsed as a command line. */
static snug_status parse(struct fixture *fixture, const char *line) {
    char copy[512], *words[64] = {"snug"}, *save = NULL;
    int count = 1;
    assert_true(strlen(line) < sizeof copy);
    strcpy(copy, line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) words[count++] = word;
    return snug_args_parse(fixture->args, count, words);
}

static void expect_text(struct fixture *fixture, const char *name, const char *expected) {
    char value[256];
    assert_int_equal(snug_args_get(fixture->args, name, value, sizeof value), SNUG_OK);
    if (strcmp(value, expected) != 0) fail_msg("--%s is \"%s\", not \"%s\"", name, value, expected);
}

static void expect_message(struct fixture *fixture, const char *line, const char *says) {
    const char *message = snug_error_message(fixture->ctx);
    if (!strstr(message, says)) fail_msg("%s: \"%s\" does not contain \"%s\"", line, message, says);
}

FIXTURE_TEST(test_values) {
    static const struct {
        const char *line, *name, *value;
    } cases[] = {
        {"--learning_rate 2e-5", "learning_rate", "2e-05"},
        {"--learning-rate=3e-5", "learning_rate", "3e-05"},
        {"--learning_rate 0.1 --learning_rate 0.2", "learning-rate", "0.2"},
        {"--max_steps -1", "max_steps", "-1"},
        {"--warmup_steps 0.06", "warmup_steps", "0.06"},
        {"--warmup_ratio 0.06", "warmup_steps", "0.06"},
        {"--warmup_ratio 0.06 --warmup_ratio 0.1", "warmup_ratio", "0.1"},
        {"--learning_rate 0.123456789", "learning_rate", "0.123456789"},
        {"--learning_rate 1", "group_by_length", "False"},
        {"--greater_is_better", "greater_is_better", "True"},
        {"--no_greater_is_better", "greater_is_better", "False"},
        {"--greater_is_better --greater_is_better=", "greater_is_better", ""},
        {"--seed 9007199254740993", "seed", "9007199254740993"},
        {"--train_file=a=b.csv", "train_file", "a=b.csv"},
        {"--train_file=--odd", "train_file", "--odd"},
        {"--text_column_name t", "text_column_name", "t"},
        {"--text_column_name t", "text_column_names", ""},
        {"--text_column_delimiter ,", "text_column_delimiter", ","},
        {"--no_do_regression", "do_regression", "False"},
        {"--do_regression", "do_regression", "True"},
        {"--evaluation_strategy epoch", "eval_strategy", "epoch"},
        {"--save-strategy best", "save_strategy", "best"},
        {"--per_gpu_train_batch_size 4", "per_device_train_batch_size", "4"},
        {"--no_cuda", "use_cpu", "True"},
        {"--no_cuda False", "use_cpu", "False"},
        {"--no_use_cpu", "use_cpu", "False"},
        {"--bf16", "bf16", "True"},
        {"--bf16 --strict", "strict", "True"},
        {"--bf16 False", "bf16", "False"},
        {"--bf16=yes", "bf16", "True"},
        {"--dtype bfloat16", "dtype", "bfloat16"},
        {"--torch_dtype bfloat16", "dtype", "bfloat16"},
        {"--torch-dtype auto", "dtype", "auto"},
        {"--bf16 0", "bf16", "False"},
        {"--tf32 true", "tf32", "True"},
        {"--no_line_by_line", "line_by_line", "False"},
        {"--no-line-by-line", "line_by_line", "False"},
        {"--group_by_length", "train_sampling_strategy", "group_by_length"},
        {"--fsdp full_shard,auto_wrap", "zero_stage", "3"},
        {"--fsdp shard_grad_op", "zero_stage", "2"},
        {"--fsdp no_shard", "zero_stage", "0"},
        {"--fsdp true", "fsdp", "3"},
        {"--zero_stage 1 --fsdp none", "zero_stage", "1"},
        {"--zero_stage 1 --fsdp False", "zero_stage", "1"},
        {"--group_by_length", "group_by_length", "True"},
        {"--group_by_length --no_group_by_length", "train_sampling_strategy", "random"},
        {"--greater_is_better no", "greater_is_better", "False"},
        {"--memory_budget 1.5GiB", "memory_budget", "1.5GiB"},
        {"--optim adamw_torch", "optim", "adamw_torch"},
        {"--optim adafactor --optim_args beta1=0.9", "optim_args", "beta1=0.9"},
        {"--log_level warning", "log_level", "warning"},
        {"--report_to all", "report_to", "all"},
        {"--output_dir a --output_dir=", "output_dir", ""},
        {"--optim adamw_torch --optim=", "optim", "adamw_torch_fused"},
        {"--resume_from_checkpoint out/checkpoint-2", "resume_from_checkpoint", "out/checkpoint-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        renew(fixture);
        if (parse(fixture, cases[i].line) != SNUG_OK)
            fail_msg("%s: %s", cases[i].line, snug_error_message(fixture->ctx));
        expect_text(fixture, cases[i].name, cases[i].value);
    }
}

TEST_IN(test_defaults_are_those_of_transformers, void *fixture, set_up, tear_down) {
    static const struct {
        const char *name, *value;
    } cases[] = {
        {"per_device_train_batch_size", "8"},
        {"per_device_eval_batch_size", "8"},
        {"num_train_epochs", "3"},
        {"max_steps", "-1"},
        {"learning_rate", "5e-05"},
        {"lr_scheduler_type", "linear"},
        {"warmup_steps", "0"},
        {"optim", "adamw_torch_fused"},
        {"dtype", "float32"},
        {"weight_decay", "0"},
        {"adam_beta1", "0.9"},
        {"adam_beta2", "0.999"},
        {"adam_epsilon", "1e-08"},
        {"gradient_accumulation_steps", "1"},
        {"max_grad_norm", "1"},
        {"label_smoothing_factor", "0"},
        {"logging_strategy", "steps"},
        {"logging_steps", "500"},
        {"log_level", "passive"},
        {"report_to", "none"},
        {"eval_strategy", "no"},
        {"save_strategy", "steps"},
        {"save_steps", "500"},
        {"seed", "42"},
        {"train_sampling_strategy", "random"},
        {"max_seq_length", "128"},
        {"mlm_probability", "0.15"},
        {"output_dir", ""},
        {"greater_is_better", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_text(fixture, cases[i].name, cases[i].value);
}

/* The table documents each default correctly and accepts it. */
FIXTURE_TEST(test_table_is_consistent) {
    size_t count = 0;
    for (const snug_arg_info *info; (info = snug_args_info(count)); count++) {
        char value[256], again[256];
        assert_true(*info->help && *info->group && *info->value_name);
        assert_int_equal(snug_args_get(fixture->args, info->name, value, sizeof value), SNUG_OK);
        assert_int_equal(*value == '\0', *info->default_value == '\0');
        if (snug_args_set(fixture->args, info->name, info->default_value) != SNUG_OK)
            fail_msg("%s", snug_error_message(fixture->ctx));
        assert_int_equal(snug_args_get(fixture->args, info->name, again, sizeof again), SNUG_OK);
        assert_string_equal(value, again);
        for (size_t other = 0; other < count; other++) assert_string_not_equal(info->name, snug_args_info(other)->name);
    }
    assert_true(count > 60);
    assert_null(snug_args_info(count + 1));
}

FIXTURE_TEST(test_refused) {
    static const struct {
        const char *line, *says;
        snug_status status;
    } cases[] = {
        {"--learning_rte 1", "--learning_rte: unknown argument; the nearest is --learning_rate", SNUG_E_USAGE},
        {"--x", "--x: unknown argument; --help all lists all", SNUG_E_USAGE},
        {"---", "--: unknown argument; --help all lists all", SNUG_E_USAGE},
        {"--no_learning_rate", "--no_learning_rate: unknown", SNUG_E_USAGE},
        {"--no_such_thing_at_all", "--no_such_thing_at_all: unknown", SNUG_E_USAGE},
        {"--no_deepspeed", "--no_deepspeed: unknown", SNUG_E_USAGE},
        {"--deepspeed", "--deepspeed needs a value", SNUG_E_USAGE},
        {"--do_train perhaps", "--do_train perhaps: must be True or False", SNUG_E_USAGE},
        {"--a_name_that_is_far_longer_than_any_name_that_snug_has_or_will_ever_have_in_its_table 1", "unknown",
         SNUG_E_USAGE},
        {"--hub_token", "--hub_token needs a value", SNUG_E_USAGE},
        {"train.csv", "train.csv: an argument must begin with --", SNUG_E_USAGE},
        {"json", "json: an argument must begin with --", SNUG_E_USAGE},
        {"--", "must begin with --", SNUG_E_USAGE},
        {"-5", "must begin with --", SNUG_E_USAGE},
        {"--learning_rate", "--learning_rate needs a value", SNUG_E_USAGE},
        {"--learning_rate --bf16", "--learning_rate needs a value", SNUG_E_USAGE},
        {"--learning_rate abc", "--learning_rate abc: must be a number of at least 0", SNUG_E_USAGE},
        {"--learning_rate nan", "--learning_rate nan", SNUG_E_USAGE},
        {"--learning_rate inf", "--learning_rate inf", SNUG_E_USAGE},
        {"--learning_rate 1e999", "--learning_rate 1e999", SNUG_E_USAGE},
        {"--learning_rate 0x10", "--learning_rate 0x10", SNUG_E_USAGE},
        {"--learning_rate=", "must be a number", SNUG_E_USAGE},
        {"--learning_rate -1", "--learning_rate -1: must be a number of at least 0", SNUG_E_USAGE},
        {"--max_shard_size 5XB", "--max_shard_size 5XB: must be a size of at least 1 byte", SNUG_E_USAGE},
        {"--per_device_train_batch_size 0", "--per_device_train_batch_size 0: must be a whole number of at least 1",
         SNUG_E_USAGE},
        {"--per_gpu_train_batch_size 0", "--per_gpu_train_batch_size 0", SNUG_E_USAGE},
        {"--per_device_train_batch_size 8.5", "must be a whole number", SNUG_E_USAGE},
        {"--seed=", "--seed : must be a whole number", SNUG_E_USAGE},
        {"--seed 1-2", "--seed 1-2: must be a whole number", SNUG_E_USAGE},
        {"--seed 99999999999999999999", "--seed 99999999999999999999", SNUG_E_USAGE},
        {"--mlm_probability 1.5", "must be a number above 0 and of at most 1", SNUG_E_USAGE},
        {"--mlm_probability 0", "--mlm_probability 0", SNUG_E_USAGE},
        {"--adam_beta1 1", "of at least 0 and below 1", SNUG_E_USAGE},
        {"--bf16 perhaps", "--bf16 perhaps: must be True or False", SNUG_E_USAGE},
        {"--no_bf16=True", "--no_bf16 takes no value", SNUG_E_USAGE},
        {"--no_bf16 True", "must begin with --", SNUG_E_USAGE},
        {"--eval_strategy best", "must be one of no|steps|epoch", SNUG_E_USAGE},
        {"--task regression", "must be one of classification|text_classification|mlm", SNUG_E_USAGE},
        {"--task classification|mlm", "must be one of", SNUG_E_USAGE},
        {"--greater_is_better maybe", "must be True or False", SNUG_E_USAGE},
        {"--group_by_length maybe", "--group_by_length maybe: must be True or False", SNUG_E_USAGE},
        {"--fsdp full_shard,offload", "--fsdp full_shard,offload: snug supports full_shard", SNUG_E_UNSUPPORTED},
        {"--fsdp hybrid_shard", "--fsdp hybrid_shard: snug supports full_shard", SNUG_E_UNSUPPORTED},
        {"--warmup_ratio half", "--warmup_ratio half: must be a number of at least 0 and below 1", SNUG_E_USAGE},
        {"--warmup_ratio -0.1", "--warmup_ratio -0.1: must be a number of at least 0 and below 1", SNUG_E_USAGE},
        {"--warmup_ratio 1.5", "--warmup_ratio 1.5: must be a number of at least 0 and below 1", SNUG_E_USAGE},
        {"--warmup_ratio 0.1 --warmup_steps 10", "both given", SNUG_E_USAGE},
        {"--warmup_steps 10 --warmup_ratio 0.1", "both given", SNUG_E_USAGE},
        {"--memory_budget lots", "must be a size", SNUG_E_USAGE},
        {"--memory_budget 0", "must be a size", SNUG_E_USAGE},
        {"--optim ademamix", "--optim ademamix: a known Hugging Face value, not supported by snug yet",
         SNUG_E_UNSUPPORTED},
        {"--dtype float16", "--dtype float16: snug does not have this value: give --dtype bfloat16",
         SNUG_E_UNSUPPORTED},
        {"--dtype fp32", "must be one of float32|bfloat16|auto", SNUG_E_USAGE},
        {"--optim madam", "must be one of adamw_torch|adamw_torch_fused", SNUG_E_USAGE},
        {"--report_to wandb", "give --report_to tensorboard", SNUG_E_UNSUPPORTED},
        {"--tf32 perhaps", "--tf32 perhaps: must be True or False", SNUG_E_USAGE},
        {"--fp16 perhaps", "must be True or False", SNUG_E_USAGE},
        {"--validation_split_percentage 100", "validation_split_percentage", SNUG_E_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        renew(fixture);
        if (parse(fixture, cases[i].line) != cases[i].status) fail_msg("%s: wrong status", cases[i].line);
        expect_message(fixture, cases[i].line, cases[i].says);
    }
}

/* Arguments of Hugging Face that snug does not have, and names that are often tried: each leads on. */
FIXTURE_TEST(test_refusals_lead_on) {
    static const struct {
        const char *line, *says;
        snug_status status;
    } cases[] = {
        {"--push_to_hub", "--push_to_hub True: snug does not upload: leave it out, and run hf upload",
         SNUG_E_UNSUPPORTED},
        {"--fsdp_min_num_params 1000", "--fsdp_min_num_params 1000: give --zero_stage", SNUG_E_UNSUPPORTED},
        {"--task_name sst2", "--task_name sst2: snug reads files: give --train_file", SNUG_E_UNSUPPORTED},
        {"--adafactor", "give --optim adafactor", SNUG_E_UNSUPPORTED},
        {"--accelerator_config {\"split_batches\":true}", "snug does not use Accelerate", SNUG_E_UNSUPPORTED},
        {"--peft lora", "--peft: unknown argument: --use_peft trains LoRA adapters", SNUG_E_USAGE},
        {"--lora_alhpa 1", "the nearest is --lora_alpha", SNUG_E_USAGE},
        {"--lora_rate 1", "--use_peft trains LoRA adapters, with --lora_r", SNUG_E_USAGE},
        {"--use-flash-attention-2", "attention is fused and without padding already", SNUG_E_USAGE},
        {"--quantization 4bit", "give --load_in_4bit for frozen weights in 4 bits", SNUG_E_USAGE},
        {"--load_in_8bit", "give --load_in_4bit, which takes half of its memory", SNUG_E_UNSUPPORTED},
        {"--bnb_4bit_quant_storage uint8", "snug stores codes as bytes", SNUG_E_UNSUPPORTED},
        {"--n_gpus 2", "give --gpus N for several GPUs", SNUG_E_USAGE},
        {"--amp_level O1", "give --bf16, or --fp16", SNUG_E_USAGE},
        {"--batch_sizes 8", "give --per_device_train_batch_size N", SNUG_E_USAGE},
        {"--max_len 8", "give --max_seq_length", SNUG_E_USAGE},
        {"--export_onnx 1", "from which optimum exports", SNUG_E_USAGE},
        {"--fp_16", "the nearest is --fp16", SNUG_E_USAGE}, /* a slip, not another meaning */
        {"--batch_size_", "give --per_device_train_batch_size", SNUG_E_USAGE},
        {"--device gpu", "give --device cuda", SNUG_E_USAGE},
        {"--no_save_safetensors", "--save_safetensors False: snug writes safetensors only", SNUG_E_UNSUPPORTED},
        {"--lr 1e-3", "--lr: unknown argument; give --learning_rate", SNUG_E_USAGE},
        {"--epochs=3", "--epochs: unknown argument; give --num_train_epochs", SNUG_E_USAGE},
        {"--batch-size 3", "--batch_size: unknown argument; give --per_device_train_batch_size", SNUG_E_USAGE},
        {"-lr 1e-3", "-lr: an argument must begin with --: give --learning_rate", SNUG_E_USAGE},
        {"-learning_rate 1e-3", "give --learning_rate", SNUG_E_USAGE},
        {"-x", "-x: an argument must begin with --, as in --train_file -x", SNUG_E_USAGE},
        {"/", "/: an argument must begin with --, as in --model_name_or_path /", SNUG_E_USAGE},
        {"-V", "snug --version prints the version", SNUG_E_USAGE},
        {"--version", "snug --version prints the version", SNUG_E_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        renew(fixture);
        if (parse(fixture, cases[i].line) != cases[i].status) fail_msg("%s: wrong status", cases[i].line);
        expect_message(fixture, cases[i].line, cases[i].says);
    }
}

static void count_notes(void *user, snug_log_level level, const char *message) {
    if (level == SNUG_LOG_INFO && strstr(message, ": a Hugging Face argument without effect in snug")) ++*(int *)user;
}

FIXTURE_TEST(test_inert_arguments_are_accepted_and_noted) {
    int notes = 0;
    snug_context_set_log(fixture->ctx, count_notes, &notes, SNUG_LOG_INFO);
    assert_int_equal(parse(fixture,
                           "--do_train --do_eval --streaming False --no_streaming --push_to_hub False --local_rank -1 "
                           "--pad_to_max_length False --torch_compile=False --hub_token x "
                           "--sharded_ddp none --remove_unused_columns False --sharded_ddp= --do_train="),
                     SNUG_OK);
    assert_int_equal(notes, 11); /* do_train and do_eval are compared with the command */
    /* Those that ask for what snug does anyway, with the reason. */
    static const char *const lines[] = {"--torch_compile",
                                        "--torch_compile_mode max-autotune",
                                        "--use_liger_kernel True",
                                        "--pad_to_max_length",
                                        "--ddp_backend nccl",
                                        "--ddp_find_unused_parameters",
                                        "--streaming",
                                        "--trust_remote_code",
                                        "--attn_implementation sdpa",
                                        "--include_num_input_tokens_seen all",
                                        "--push_to_hub_model_id x"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        notes = 0;
        assert_int_equal(parse(fixture, lines[i]), SNUG_OK);
        if (notes != 1) fail_msg("%s: %d notes", lines[i], notes);
    }
}

/* A refused argument says what to do; a suggested name is one that works; no name has two meanings. */
FIXTURE_TEST(test_tables_of_other_names) {
    char value[256];
    for (size_t i = 0; i < snug_foreign_count; i++) {
        const struct snug_foreign *foreign = &snug_foreign_arguments[i];
        const bool refused = foreign->kind == SNUG_FOREIGN_FLAG_OFF || foreign->kind == SNUG_FOREIGN_FLAG_ON ||
                             foreign->kind == SNUG_FOREIGN_VALUE;
        if (refused && !foreign->advice) fail_msg("%s: it is refused without advice", foreign->names);
    }
    for (size_t i = 0; i < snug_short_count; i++)
        if (snug_args_get(fixture->args, snug_short_names[i].meant, value, sizeof value) != SNUG_OK)
            fail_msg("--%s is suggested, and is no argument", snug_short_names[i].meant);
    for (size_t i = 0; i < snug_argument_count; i++)
        for (size_t k = 0; k < snug_short_count; k++)
            if (snug_list_has(snug_short_names[k].names, ' ', snug_arguments[i].info.name,
                              strlen(snug_arguments[i].info.name)))
                fail_msg("--%s is an argument and a short name", snug_arguments[i].info.name);
    for (size_t i = 0; i < snug_argument_count; i++)
        for (size_t k = 0; k < snug_foreign_count; k++)
            if (snug_list_has(snug_foreign_arguments[k].names, ' ', snug_arguments[i].info.name,
                              strlen(snug_arguments[i].info.name)))
                fail_msg("--%s is an argument and one that snug does not have", snug_arguments[i].info.name);
}

/* Values of other programs are refused, each with its own sentence. */
FIXTURE_TEST(test_values_of_others) {
    for (size_t i = 0; i < snug_foreign_value_count; i++) {
        const struct snug_foreign_value *value = &snug_foreign_values[i];
        char text[64];
        snprintf(text, sizeof text, "%s1", value->begins); /* "-1"; also of longer values */
        if (snug_args_set(fixture->args, value->argument, text) == SNUG_OK)
            fail_msg("--%s %s is valid", value->argument, text);
        expect_message(fixture, text, value->advice);
    }
}

FIXTURE_TEST(test_get_and_set_by_name) {
    char value[6];
    assert_int_equal(snug_args_set(fixture->args, "nonesuch", "1"), SNUG_E_USAGE);
    assert_int_equal(snug_args_get(fixture->args, "nonesuch", value, sizeof value), SNUG_E_USAGE);
    assert_int_equal(snug_args_set(fixture->args, "train-file", "12345"), SNUG_OK);
    assert_int_equal(snug_args_get(fixture->args, "train_file", value, sizeof value), SNUG_OK);
    assert_string_equal(value, "12345");
    assert_int_equal(snug_args_get(fixture->args, "train_file", value, 5), SNUG_E_USAGE);
    expect_message(fixture, "get", "needs 6 bytes");
    assert_false(snug_args_is_set(fixture->args, "warmup_steps"));
    assert_int_equal(snug_args_mark(fixture->args, "nonesuch"), SNUG_OK); /* a file of another version */
    assert_false(snug_args_is_set(fixture->args, "nonesuch"));
    assert_int_equal(parse(fixture, "--warmup_ratio 0.1 --no_cuda"), SNUG_OK);
    assert_true(snug_args_is_set(fixture->args, "warmup_steps"));
    assert_true(snug_args_is_set(fixture->args, "train_file"));
    assert_true(snug_args_is_set(fixture->args, "use_cpu"));
    assert_true(snug_args_is_set(fixture->args, "no_cuda"));
    assert_false(snug_args_is_set(fixture->args, "use"));
    assert_false(snug_args_is_set(fixture->args, "test_file"));
}

FIXTURE_TEST(test_copy) {
    snug_args *copy;
    json_t *given = snug_args_given_json(fixture->args);
    assert_int_equal(json_array_size(given), 0);
    json_decref(given);
    for (int set = 0; set < 2; set++) {
        if (set) assert_int_equal(snug_args_set(fixture->args, "learning_rate", "0.1"), SNUG_OK);
        assert_int_equal(snug_args_copy(fixture->ctx, fixture->args, &copy), SNUG_OK);
        assert_true(copy->learning_rate == fixture->args->learning_rate);
        assert_int_equal(snug_args_is_set(copy, "learning_rate"), set);
        snug_args_destroy(copy);
    }
    snug_args_free(NULL);
}

FIXTURE_TEST(test_levels_and_layers) {
    enum snug_recompute level;
    assert_int_equal(snug_args_set(fixture->args, "recompute", "layer*2"), SNUG_OK);
    assert_int_equal(snug_args_recompute(fixture->args, 1, &level), SNUG_E_USAGE);
    expect_message(fixture, "layer*2", "as many as the model has layers (1), as in layer*1");
    assert_int_equal(snug_args_set(fixture->args, "recompute", "layer"), SNUG_OK);
    assert_int_equal(snug_args_recompute(fixture->args, 1, &level), SNUG_OK);
    assert_int_equal(level, SNUG_RECOMPUTE_LAYER);
    enum snug_recompute three[3];
    assert_int_equal(snug_args_set(fixture->args, "recompute", "layer,ffn"), SNUG_OK);
    assert_int_equal(snug_args_recompute(fixture->args, 3, three), SNUG_E_USAGE);
    expect_message(fixture, "layer,ffn", "fewer levels than layers");
}

FIXTURE_TEST(test_budget) {
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"123456", 123456},       {"1B", 1},           {"2K", 2048},
        {"2KiB", 2048},           {"2KB", 2000},       {"3m", 3 << 20},
        {"3MiB", 3 << 20},        {"3MB", 3000000},    {"600 MiB", 600LL << 20},
        {"6G", 6LL << 30},        {"6GiB", 6LL << 30}, {"6gb", 6000000000},
        {"1.5GiB", 1536LL << 20}, {"0.5K", 512},       {"2TiB", 2LL << 40},
    };
    static const char *const bad[] = {
        "-1",         "GiB", "1.2.3", "1e3", "1 Gig",
        "9000000TiB", "1..", "0.1",   "nan", "11111111111111111111111111111111111111111111"};
    int64_t bytes;
    assert_int_equal(snug_args_budget(fixture->args, &bytes), SNUG_OK);
    assert_int_equal(bytes, -1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(snug_args_set(fixture->args, "memory_budget", cases[i].text), SNUG_OK);
        assert_int_equal(snug_args_budget(fixture->args, &bytes), SNUG_OK);
        if (bytes != cases[i].bytes) fail_msg("%s: %lld", cases[i].text, (long long)bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (snug_args_set(fixture->args, "memory_budget", bad[i]) != SNUG_E_USAGE) fail_msg("%s was accepted", bad[i]);
}

#define MODEL "--model_name_or_path m "
#define TRAIN MODEL "--train_file t.csv "
#define EVALUATED TRAIN "--validation_file v.csv "

static const struct {
    const char *command, *line, *says; /* NULL: accepted */
} checked_commands[] = {
    {"train", TRAIN, NULL},
    {"train", "--config_name bert-base-uncased --train_file dummy:8x8", NULL},
    {"train", "--train_file t.csv", "--model_name_or_path"},
    {"train", MODEL, "--train_file"},
    {"train", TRAIN "--eval_strategy epoch", "--eval_strategy needs --validation_file"},
    {"train", TRAIN "--eval_on_start", "--eval_on_start needs --validation_file"},
    {"train", EVALUATED "--eval_strategy epoch", NULL},
    {"train", TRAIN "--max_train_samples 0", "--max_train_samples 0 leaves no rows"},
    {"train", TRAIN "--logging_steps 0", "--logging_steps 0"},
    {"train", TRAIN "--logging_steps 0 --logging_strategy no", NULL},
    {"train", TRAIN "--save_steps 10.5", "--save_steps 10.5"},
    {"train", TRAIN "--save_steps 0.25", NULL},
    {"train", TRAIN "--load_best_model_at_end", "--load_best_model_at_end needs --eval_strategy"},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy epoch", "the same --eval_strategy (epoch)"},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy epoch --save_strategy epoch", NULL},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy steps", NULL},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy steps --eval_steps 200", "multiple"},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy steps --eval_steps 100", NULL},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy steps --eval_steps 0.1 --save_steps 0.3", NULL},
    {"train", EVALUATED "--load_best_model_at_end --eval_strategy steps --eval_steps 0.1", "multiple"},
    {"train", EVALUATED "--save_strategy best --eval_strategy epoch", "--metric_for_best_model"},
    {"train", EVALUATED "--save_strategy best --metric_for_best_model f1", "--eval_strategy"},
    {"train", EVALUATED "--save_strategy best --metric_for_best_model f1 --eval_strategy epoch", NULL},
    {"train",
     EVALUATED "--load_best_model_at_end --save_strategy best --metric_for_best_model f1 --eval_strategy epoch", NULL},
    {"train", EVALUATED "--early_stopping_patience 2", "--early_stopping_patience needs --eval_strategy"},
    {"train", EVALUATED "--early_stopping_patience 2 --eval_strategy steps", NULL},
    {"train", EVALUATED "--early_stopping_patience 2 --eval_strategy epoch --save_strategy no", NULL},
    {"train", EVALUATED "--early_stopping_patience 2 --eval_strategy steps --load_best_model_at_end", NULL},
    {"train", TRAIN "--per_device_train_tokens 512 --per_device_train_batch_size 4", "are both given"},
    {"train", TRAIN "--per_device_train_tokens 512 --per_device_train_batch_size 8", NULL}, /* the default */
    {"train", TRAIN "--per_device_train_tokens 512 --train_sampling_strategy group_by_length",
     "leave out --train_sampling_strategy group_by_length"},
    {"train", TRAIN "--per_device_train_tokens 512 --train_sampling_strategy sequential", NULL},
    {"train", TRAIN "--dataloader_prefetch_factor 4", "--dataloader_num_workers"},
    {"train", TRAIN "--dataloader_prefetch_factor 4 --dataloader_num_workers 1", NULL},
    {"train", TRAIN "--label_smoothing_factor 0.1", NULL},
    {"train", TRAIN "--label_smoothing_factor 0.1 --task mlm", "single labels"},
    {"train", TRAIN "--label_smoothing_factor 0.1 --do_regression", "single labels"},
    {"train", TRAIN "--label_smoothing_factor 0.1 --no_do_regression", NULL},
    {"train", TRAIN "--label_smoothing_factor 0.1 --task classification", NULL},
    {"train", TRAIN "--lr_scheduler_kwargs {\"x\":1}", "does not take \"x\""},
    {"train", TRAIN "--lr_scheduler_type cosine_with_min_lr", "min_lr"},
    {"train", TRAIN "--do_train --do_eval", "--do_eval needs --validation_file"},
    {"train", TRAIN "--do_train --validation_file v.csv --do_eval", NULL},
    {"train", TRAIN "--do_eval --validation_split_percentage 5", NULL},
    {"train", TRAIN "--do_predict False", NULL},
    {"train", TRAIN "--do_predict", "run snug predict with --model_name_or_path OUTPUT_DIR"},
    {"train", TRAIN "--test_file t.csv", "--test_file: snug train does not predict"},
    {"eval", MODEL "--validation_file v.csv --do_eval", NULL},
    {"eval", MODEL "--validation_file v.csv --train_file t.csv", "--train_file: snug eval does not train"},
    {"predict", MODEL "--test_file t.csv --do_eval", "--do_eval: snug predict does not evaluate"},
    {"predict", MODEL "--test_file t.csv --validation_file v.csv", "or give the file as --test_file"},
    {"train", TRAIN "--optim sgd --optim_args momentum=0.9", NULL},
    {"train", TRAIN "--optim sgd --optim_args beta=0.9", "sgd does not take \"beta\""},
    {"plan", MODEL "--optim_args momentum=0.9", "it takes none"},
    {"train", TRAIN "--optim adafactor --optim_args relative_step=True", NULL},
    {"train", TRAIN "--optim adafactor --optim_args relative_step=True --learning_rate 1e-3", "--learning_rate"},
    {"train", TRAIN "--optim adafactor --optim_args relative_step=True --warmup_ratio 0.1", "--warmup_steps"},
    {"eval", MODEL, "--validation_file"},
    {"eval", "--validation_file v.csv", "--model_name_or_path"},
    {"eval", MODEL "--validation_file v.csv", NULL},
    {"predict", MODEL, "snug predict needs --test_file"},
    {"predict", MODEL "--test_file t.csv", NULL},
    {"tokenize", MODEL, "--test_file"},
    {"tokenize", "--tokenizer_name m --train_file t.csv", NULL},
    {"tokenize", "--tokenizer_name m --validation_file v.csv", NULL},
    {"tokenize", "--train_file t.csv", "--model_name_or_path"},
    {"plan", "", "--config_name"},
    {"plan", MODEL "--eval_strategy epoch", NULL},
    {"plan", MODEL "--validation_split_percentage 5", NULL},
};

FIXTURE_TEST(test_check) {
    for (size_t i = 0; i < sizeof checked_commands / sizeof *checked_commands; i++) {
        renew(fixture);
        if (parse(fixture, checked_commands[i].line) != SNUG_OK) fail_msg("%s", snug_error_message(fixture->ctx));
        snug_status status = snug_args_check(fixture->args, checked_commands[i].command);
        if (status != (checked_commands[i].says ? SNUG_E_USAGE : SNUG_OK))
            fail_msg("%s %s: %s", checked_commands[i].command, checked_commands[i].line,
                     snug_error_message(fixture->ctx));
        if (checked_commands[i].says) expect_message(fixture, checked_commands[i].line, checked_commands[i].says);
    }
}

FIXTURE_TEST(test_check_derives_what_trainer_derives) {
    assert_int_equal(parse(fixture, EVALUATED "--eval_strategy steps --logging_steps 50 --load_best_model_at_end"),
                     SNUG_OK);
    assert_int_equal(snug_args_check(fixture->args, "train"), SNUG_OK);
    expect_text(fixture, "eval_steps", "50");
    expect_text(fixture, "metric_for_best_model", "loss");
    expect_text(fixture, "greater_is_better", "False");
    renew(fixture);
    assert_int_equal(parse(fixture, EVALUATED "--eval_strategy epoch --early_stopping_patience 2"), SNUG_OK);
    assert_int_equal(snug_args_check(fixture->args, "train"), SNUG_OK);
    expect_text(fixture, "metric_for_best_model", "loss");
    expect_text(fixture, "greater_is_better", "False");
    renew(fixture);
    assert_int_equal(parse(fixture, TRAIN "--metric_for_best_model eval_f1"), SNUG_OK);
    assert_int_equal(snug_args_check(fixture->args, "train"), SNUG_OK);
    expect_text(fixture, "greater_is_better", "True");
    static const char *const smaller[] = {"perplexity", "eval_mse", "eval_loss"};
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++) {
        renew(fixture);
        assert_int_equal(snug_args_set(fixture->args, "metric_for_best_model", smaller[i]), SNUG_OK);
        assert_int_equal(parse(fixture, TRAIN), SNUG_OK);
        assert_int_equal(snug_args_check(fixture->args, "train"), SNUG_OK);
        expect_text(fixture, "greater_is_better", "False");
    }
    renew(fixture);
    assert_int_equal(parse(fixture, TRAIN "--metric_for_best_model f1 --greater_is_better False"), SNUG_OK);
    assert_int_equal(snug_args_check(fixture->args, "train"), SNUG_OK);
    expect_text(fixture, "greater_is_better", "False");
}

TEST_MAIN(NULL, NULL)
