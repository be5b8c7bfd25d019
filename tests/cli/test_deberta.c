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
    "\"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1}";

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
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "deberta")), SNUG_OK);
    write_text(f, "deberta/config.json", config);
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

TEST_MAIN(NULL, NULL)
