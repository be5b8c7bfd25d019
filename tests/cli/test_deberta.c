/* SPDX-License-Identifier: Apache-2.0 */
/* A DeBERTa with a Unigram tokenizer, from its text files to predictions. */
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define TOKENIZER SNUG_SOURCE_DIR "/tests/golden/deberta_tokenizer"

static const char config[] =
    "{\"model_type\": \"deberta-v2\", \"architectures\": [\"DebertaV2ForSequenceClassification\"], \"vocab_size\": 26, "
    "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 48, "
    "\"max_position_embeddings\": 64, \"relative_attention\": true, \"position_buckets\": 8, \"share_att_key\": true, "
    "\"pos_att_type\": [\"p2c\", \"c2p\"], \"norm_rel_ebd\": \"layer_norm\", \"position_biased_input\": false, "
    "\"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1%s}";

static void write_config(const struct fixture *f, const char *more) {
    char text[1024];
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "deberta")), SNUG_OK);
    snprintf(text, sizeof text, config, more);
    write_text(f, "deberta/config.json", text);
}

/* The ids are those of transformers. */
FIXTURE_TEST(tokenizer_of_deberta) {
    char *printed = run_well(f, "tokenize --tokenizer_name " TOKENIZER " --test_file " TOKENIZER "/rows.jsonl"),
         *expected = read_text(f, TOKENIZER "/rows.jsonl", NULL), *rest = printed, *wanted = expected;
    for (int i = 0; i < 5; i++) {
        json_t *got = json_loads(strsep(&rest, "\n"), 0, NULL), *want = json_loads(strsep(&wanted, "\n"), 0, NULL);
        assert_true(want && json_equal(json_object_get(got, "input_ids"), json_object_get(want, "input_ids")));
        json_decref(got);
        json_decref(want);
    }
    assert_string_equal(rest, wanted); /* both at the end */
    free(printed);
    free(expected);
}

FIXTURE_TEST(from_training_to_predictions) {
    static const char *const written[] = {"config.json", "model.safetensors", "tokenizer.json",
                                          "tokenizer_config.json"};
    write_config(f, "");
    json_t *trained = run_json(f, "train --json --config_name deberta --tokenizer_name " TOKENIZER
                                  " --train_file train.csv --validation_file dev.csv --output_dir out "
                                  "--num_train_epochs 8 --learning_rate 2e-3 --eval_strategy epoch --save_strategy no "
                                  "--threads 2 --device cpu");
    assert_true(json_number_value(json_object_get(trained, "eval_accuracy")) >= 0.9);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (!exists(path_of(f, "out/%s", written[i]))) fail_msg("there is no %s", written[i]);
    assert_same_file(f, path_of(f, "out/tokenizer.json"), TOKENIZER "/tokenizer.json");

    json_t *evaluated = run_json(f, "eval --json --model_name_or_path out --validation_file dev.csv --device cpu");
    assert_true(json_number_value(json_object_get(evaluated, "eval_loss")) ==
                json_number_value(json_object_get(trained, "eval_loss")));
    write_text(f, "new.csv", "sentence\nw1 good w2\nw3 bad\n");
    char *text = run_well(f, "predict --model_name_or_path out --test_file new.csv --device cpu");
    assert_true(strncmp(text, "index,label,score\n0,positive,", 29) == 0);
    assert_contains(text, "\n1,negative,");
    free(text);
    json_decref(evaluated);
    json_decref(trained);

    /* The folder begins another training, with adapters. */
    free(run_well(f, "train --model_name_or_path out --train_file train.csv --output_dir more --use_peft --max_steps 2 "
                     "--save_strategy no --threads 2 --device cpu"));
    assert_true(exists(path_of(f, "more/adapter_model.safetensors")));
}

#define TRAIN                                                                                                          \
    "train --train_file train.csv --max_steps 2 --save_strategy no --threads 2 --device cpu --overwrite_output_dir "   \
    "--output_dir "
#define TUNE TRAIN "tuned --model_name_or_path out --use_peft --lora_target_modules "

/* That of deberta-v2-xlarge is neither stored in 4 bits nor an all-linear target, as in bitsandbytes and PEFT. */
FIXTURE_TEST(convolution_of_deberta) {
    static const char new[] = TRAIN "out --config_name deberta --tokenizer_name " TOKENIZER;
    static const struct {
        const char *words, *says;
    } refused[] = {
        {TRAIN "other --model_name_or_path out --optim adafactor",
         "--optim: deberta.encoder.conv.conv.weight is the weight of a convolution"},
        {TUNE "conv,query_proj", "target_modules name deberta.encoder.conv.conv, a convolution"},
        {TUNE "deberta.*", "target_modules name deberta.encoder.conv.conv, a convolution"},
    };
    write_config(f, ", \"conv_kernel_size\": 3, \"conv_act\": \"gelu\"");
    free(run_well(f, new));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_not_equal(run(f, refused[i].words), 0);
        char *errors = output_of(f, "stderr");
        assert_contains(errors, refused[i].says);
        free(errors);
    }
    free(run_well(f, TUNE "all-linear"));
    free(run_well(f, TUNE "all-linear --load_in_4bit"));
    free(run_well(f, "merge --model_name_or_path tuned --output_dir merged"));
    free(run_well(f, "predict --model_name_or_path merged --test_file dev.csv --device cpu"));
}

TEST_MAIN(NULL, NULL)
