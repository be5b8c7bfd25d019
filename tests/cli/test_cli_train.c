/* SPDX-License-Identifier: Apache-2.0 */
/* The program on real files: from training to predictions, messages for bad input, and signals. */
#include <fcntl.h>
#include <math.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up_here, tear_down
static int set_up_here(void **state);

/* ---- bad input ------------------------------------------------------------------------------------------------ */

#define TRAIN                                                                                                          \
    "train --config_name model --tokenizer_name model --output_dir out --max_steps 2 --save_strategy no --threads 2 "
#define TUNE "train --output_dir out --max_steps 2 --save_strategy no --threads 2 --train_file train.csv "

#define JUDGED "--train_file train.csv --validation_file dev.csv --eval_strategy epoch --metric_for_best_model "

/* A trained folder with one file changed. */
static void spoil(const struct fixture *f, const char *name, const char *file, void change(char **data, size_t *size)) {
    static const char *const files[] = {"config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors"};
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "%s", name)), SNUG_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t size;
        char *data = read_text(f, path_of(f, "good/%s", files[i]), &size);
        if (strcmp(files[i], file) == 0) change(&data, &size);
        write_bytes(path_of(f, "%s/%s", name, files[i]), data, size);
        free(data);
    }
}

static void cut_in_half(char **data, size_t *size) {
    (void)data;
    *size /= 2;
}
static void end_in_nan(char **data, size_t *size) { memset(*data + *size - 4, 0xff, 4); }
/* Finite numbers whose matmuls overflow. */
static void enlarge(char **data, size_t *size) {
    static const float large = 1e30f;
    uint64_t header;
    memcpy(&header, *data, sizeof header);
    for (size_t at = sizeof header + header; at + sizeof large <= *size; at += sizeof large)
        memcpy(*data + at, &large, sizeof large);
}
static void break_json(char **data, size_t *size) {
    (void)size;
    **data = '[';
}
static void widen(char **data, size_t *size) {
    char *at = strstr(*data, "\"hidden_size\": 32");
    assert_non_null(at);
    at[15] = '6', at[16] = '4';
    (void)size;
}
static void shrink_vocabulary(char **data, size_t *size) {
    char *at = strstr(*data, "\"vocab_size\": 207");
    assert_non_null(at);
    at[14] = '1';
    (void)size;
}

static void forget_second_type(char **data, size_t *size) {
    static const char head[] = "{\"type_vocab_size\": 1, ";
    char *changed = malloc(*size + sizeof head);
    assert_non_null(changed);
    memcpy(changed, head, sizeof head - 1);
    memcpy(changed + sizeof head - 1, *data + 1, *size - 1); /* after the closing brace */
    *size += sizeof head - 2;
    free(*data);
    *data = changed;
}

static void make_bad_files(const struct fixture *f) {
    free(run_well(f, TRAIN "--train_file train.csv --output_dir good"));
    write_text(f, "empty.csv", "");
    write_text(f, "header.csv", "sentence,label\n");
    write_text(f, "ragged.csv", "sentence,label\nw1 w2,good\nw3,bad,more\n");
    write_text(f, "unlabelled.csv", "sentence\nw1\nw2\n");
    write_text(f, "unseen.csv", "sentence,label\nw1,positive\nw2,neutral\n");
    write_text(f, "wrong.jsonl", "{\"sentence\": \"w1\", \"label\": 1}\n{\"sentence\": \n");
    write_text(f, "nan.csv", "sentence,label\nw1,0.5\nw2,NaN\n");
    write_text(f, "occupied", "a file\n");
    spoil(f, "short", "model.safetensors", cut_in_half);
    spoil(f, "nan", "model.safetensors", end_in_nan);
    spoil(f, "huge", "model.safetensors", enlarge);
    spoil(f, "json", "config.json", break_json);
    spoil(f, "wide", "config.json", widen);
    spoil(f, "small", "config.json", shrink_vocabulary);
    spoil(f, "one_type", "config.json", forget_second_type);
    write_text(f, "pairs.csv", "sentence1,sentence2,label\nw1,w2,good\nw3,w4,bad\n");
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "trainer")), SNUG_OK);
    write_text(f, "trainer/optimizer.pt", "PK\3\4");
}

FIXTURE_TEST(test_bad_input) {
    static const struct {
        const char *words;
        int code;
        const char *says[3];
    } cases[] = {
        {TRAIN "--train_file none.csv", 1, {"none.csv", "No such file"}},
        {TRAIN "--train_file empty.csv", 1, {"empty.csv", "empty"}},
        {TRAIN "--train_file header.csv", 1, {"header.csv"}},
        {TRAIN "--train_file ragged.csv", 1, {"ragged.csv:3", "3"}},
        {TRAIN "--train_file wrong.jsonl", 1, {"wrong.jsonl:2"}},
        {TRAIN "--train_file unlabelled.csv", 1, {"unlabelled.csv", "label", "--task mlm"}},
        {TRAIN "--train_file train.csv --text_column_names words", 1, {"words", "sentence"}},
        {TRAIN "--train_file train.csv --eval_strategy epoch", 2, {"--eval_strategy", "--validation_file"}},
        {TRAIN "--train_file train.csv --lerning_rate 1", 2, {"--lerning_rate", "--learning_rate"}},
        {TRAIN "--train_file train.csv --learning_rate fast", 2, {"--learning_rate fast"}},
        {TRAIN "--train_file train.csv --max_seq_length 2", 2, {"--max_seq_length 2"}},
        {TRAIN "--train_file train.csv --memory_budget 1MiB", 3, {"--memory_budget", "short at", "\nTry "}},
        {TRAIN "--train_file train.csv --memory_budget 1MiB --fit", 3, {"no mix of methods fits 1.0 MiB", "smallest"}},
        {TRAIN "--train_file train.csv --output_dir occupied", 1, {"occupied"}},
        {TRAIN "--train_file train.csv --output_dir occupied/below", 1, {"occupied/below"}},
        {TRAIN "--train_file train.csv --line_by_line", 2, {"--line_by_line", "--task mlm"}},
        {TRAIN "--train_file train.csv --mlm_probability 0.15", 2, {"--mlm_probability", "--task mlm"}},
        {TRAIN "--train_file train.csv --whole_word_mask", 2, {"--whole_word_mask", "--task mlm"}},
        {TRAIN "--train_file nan.csv", 1, {"nan.csv:3", "NaN"}},
        {TRAIN JUDGED "mse", 2, {"--metric_for_best_model mse", "eval_f1"}},
        {TRAIN "--train_file train.csv --resume_from_checkpoint none", 1, {"none"}},
        {TRAIN "--train_file train.csv --resume_from_checkpoint trainer", 1, {"trainer/optimizer.pt is pickled"}},
        {TUNE "--model_name_or_path one_type --train_file pairs.csv",
         1,
         {"pairs.csv contains pairs", "type_vocab_size 1"}},
        {TUNE "--model_name_or_path none", 1, {"none"}},
        {TUNE "--model_name_or_path short", 1, {"short/model.safetensors"}},
        {TUNE "--model_name_or_path nan", 1, {"nan/model.safetensors", "NaN"}},
        {TUNE "--model_name_or_path json", 1, {"json/config.json"}},
        {TUNE "--model_name_or_path wide", 1, {"wide/model.safetensors", "[32]", "[64]"}},
        {TUNE "--model_name_or_path small", 1, {"small", "207", "107"}},
        {"eval --model_name_or_path good --validation_file unseen.csv", 1, {"unseen.csv:3", "neutral"}},
        {"eval --model_name_or_path short --validation_file dev.csv", 1, {"short/model.safetensors"}},
        {"eval --model_name_or_path good --validation_file dev.csv --memory_budget 1MiB",
         3,
         {"a smaller --per_device_eval_batch_size needs less",
          "--memory_budget 1MiB --per_device_eval_batch_size 1\n"}},
        {"predict --model_name_or_path good --test_file dev.csv --memory_budget 1MiB --per_device_eval_batch_size 1",
         3,
         {"a smaller --per_device_eval_batch_size needs less\n"}},
        {"eval --model_name_or_path good --validation_file dev.csv --output_dir occupied", 1, {"occupied"}},
        {"eval --model_name_or_path good --validation_file dev.csv --mlm_probability 0.2", 2, {"--mlm_probability"}},
        {"predict --model_name_or_path good --test_file none.csv", 1, {"none.csv"}},
        {"predict --model_name_or_path nan --test_file dev.csv", 1, {"NaN"}},
        {"predict --model_name_or_path huge --test_file dev.csv", 1, {"dev.csv: row 0", "outputs are NaN"}},
        {"eval --model_name_or_path huge --validation_file dev.csv", 1, {"dev.csv: row 0", "outputs are NaN"}},
        {"tokenize --model_name_or_path good --test_file empty.csv", 1, {"empty.csv"}},
    };
    make_bad_files(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run(f, cases[i].words);
        char *errors = output_of(f, "stderr"), *out = output_of(f, "stdout"), *line = strstr(errors, "snug: ");
        if (code != cases[i].code || !line)
            fail_msg("snug %s: exit code %d, not %d: %s", cases[i].words, code, cases[i].code, errors);
        for (int k = 0; k < 3 && cases[i].says[k]; k++)
            if (!strstr(line, cases[i].says[k]))
                fail_msg("snug %s: does not print \"%s\": %s", cases[i].words, cases[i].says[k], line);
        if (*out) fail_msg("snug %s: on stdout: %s", cases[i].words, out);
        /* The message is one line; wrong usage adds a line with --help, a run that does not fit a command. */
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        if (end[1] && strncmp(end + 1, "snug train --help", 17) != 0 && strncmp(end + 1, "Try  ", 5) != 0)
            fail_msg("snug %s: %s", cases[i].words, line);
        if (exists(path_of(f, "out"))) fail_msg("snug %s: did not remove the output folder", cases[i].words);
        free(errors);
        free(out);
    }
    size_t size;
    char *occupied = read_text(f, path_of(f, "occupied"), &size);
    assert_string_equal(occupied, "a file\n");
    free(occupied);
}

#define FOLDERS "a-folder/a-folder/a-folder/a-folder/a-folder/a-folder/a-folder/"
#define LONG_PATH FOLDERS FOLDERS FOLDERS FOLDERS FOLDERS FOLDERS FOLDERS FOLDERS FOLDERS

/* Errors in the arguments are reported before the data is tokenized. */
FIXTURE_TEST(test_arguments_are_checked_before_data) {
    static const struct {
        const char *words;
        int code;
        const char *says;
    } cases[] = {
        {TRAIN "--train_file train.csv --output_dir occupied", 1, "cannot write into folder occupied"},
        {TRAIN "--train_file train.csv --output_dir occupied/below", 1,
         "cannot make folder occupied/below in occupied"},
        {TRAIN JUDGED "acuracy", 2, "--metric_for_best_model acuracy"},
        {TRAIN JUDGED "f1 --task mlm", 2, "eval_loss, eval_accuracy, perplexity"},
        {TRAIN "--train_file train.csv --line_by_line", 2, "--line_by_line"},
        {TRAIN "--train_file train.csv --resume_from_checkpoint none", 1,
         "--resume_from_checkpoint none: there is no such folder"},
        {TRAIN "--train_file train.csv --resume_from_checkpoint occupied", 1, "occupied: that is a file"},
        {TRAIN "--train_file train.csv --resume_from_checkpoint model", 1, "model: there is no manifest.json"},
        {TRAIN "--train_file train.csv --resume_from_checkpoint True", 1, "out has no complete checkpoint"},
        {TRAIN "--train_file train.csv --output_dir " LONG_PATH, 2, "is too long"},
        {TRAIN "--train_file train.csv --report_to tensorboard --logging_dir occupied", 1, "folder occupied"},
        {TUNE "--model_name_or_path pickled", 1, "pickled/pytorch_model.bin is a pickled PyTorch file"},
        {"eval --model_name_or_path pickled --validation_file dev.csv", 1, "\"pickled/model.safetensors\""},
        {"predict --model_name_or_path pickled --test_file dev.csv", 1, "\"pickled/model.safetensors\""},
    };
    write_text(f, "occupied", "a file\n");
    write_model(f, "pickled", 0.1, 32, 1, VOCABULARY);
    write_text(f, "pickled/pytorch_model.bin", "PK\3\4");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run(f, cases[i].words), cases[i].code);
        char *errors = output_of(f, "stderr");
        assert_contains(errors, cases[i].says);
        free(errors);
        assert_false(exists(path_of(f, "cache")));
        assert_false(exists(path_of(f, "a-folder")));
        assert_false(exists(path_of(f, "out")));
    }
    free(run_well(f, TRAIN "--train_file train.csv"));
    assert_true(exists(path_of(f, "cache"))); /* the folder of the token cache */
}

/* --decode adds the text of the ids, without special tokens where they are skipped. */
FIXTURE_TEST(test_decoded_texts) {
    static const struct {
        const char *words, *text;
    } cases[] = {{"", NULL},
                 {" --decode", "[CLS] w1 good [SEP]"},
                 {" --decode --skip_special_tokens", "w1 good"},
                 {" --skip_special_tokens", NULL}};
    write_text(f, "decoding.csv", "sentence\nw1 good\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        snprintf(words, sizeof words, "tokenize --tokenizer_name model --test_file decoding.csv%s", cases[i].words);
        char *output = run_well(f, words);
        json_t *row = json_loads(output, 0, NULL);
        const char *text = json_string_value(json_object_get(row, "text"));
        if (!row || !text != !cases[i].text || (text && strcmp(text, cases[i].text) != 0))
            fail_msg("%s: %s", words, output);
        json_decref(row);
        free(output);
    }
}

/* --chat prints the text that a chat template makes of messages, and which tokens the assistant says. */
FIXTURE_TEST(test_chats) {
    static const char template[] =
        "{% for m in messages %}{{ m.role }} {{ m.content }} [SEP] {% endfor %}{% if add_generation_prompt %}assistant "
        "{% endif %}{{ strftime_now('%Y') }}";
    static const struct {
        const char *words, *says;
    } refused[] = {
        {"", "has no chat template"},
        {" --chat_template_path nowhere", "nowhere"},
        {" --chat_template_path chat.jinja --chat_template_date May", "--chat_template_date May"},
        {" --chat_template_path bad.jinja", "bad.jinja:2: 'x' is undefined (the chat of chats.jsonl:1)"},
    };
    write_text(f, "chats.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"w1\"}, {\"role\": \"assistant\", \"content\": "
               "\"good\"}, {\"role\": \"user\", \"content\": \"w2\"}]}\n"
               "{\"conversations\": [{\"from\": \"human\", \"value\": \"w1\"}]}\n"
               "{\"conversations\": [{\"from\": \"human\", \"value\": \"w2\"}]}\n"
               "{\"instruction\": \"w1\", \"output\": \"good\"}\n");
    write_text(f, "chat.jinja", template);
    write_text(f, "bad.jinja", "\n{{ x.y }}");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[256];
        snprintf(words, sizeof words, "tokenize --tokenizer_name model --train_file chats.jsonl --chat%s",
                 refused[i].words);
        assert_true(run(f, words) != 0);
        char *errors = output_of(f, "stderr");
        assert_contains(errors, refused[i].says);
        free(errors);
    }
    char *output =
        run_well(f, "tokenize --tokenizer_name model --train_file chats.jsonl --chat --chat_template_path chat.jinja "
                    "--chat_template_date 2026-11-27 --max_train_samples 3");
    char *errors = output_of(f, "stderr");
    assert_contains(errors, "chats.jsonl:2: the roles \"human\" and \"gpt\" reach the chat template as they are");
    assert_int_equal(count_of(errors, "reach the chat template"), 1); /* the second one is not named again */
    char *end = strchr(output, '\n');
    assert_non_null(end);
    json_t *row = json_loadb(output, (size_t)(end - output), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(row, "text")),
                        "user w1 [SEP] assistant good [SEP] user w2 [SEP] 2026");
    const json_t *losses = json_object_get(row, "has_loss"), *tokens = json_object_get(row, "tokens");
    assert_int_equal(json_array_size(losses), json_array_size(tokens));
    for (size_t i = 0; i < json_array_size(losses); i++) {
        const char *before = i ? json_string_value(json_array_get(tokens, i - 1)) : "";
        const bool says = !strcmp(json_string_value(json_array_get(tokens, i)), "good") || !strcmp(before, "good");
        assert_int_equal(json_integer_value(json_array_get(losses, i)), says);
    }
    json_decref(row);
    assert_int_equal(count_of(output, "\n"), 3);
    free(output);
    free(errors);
}

/* The model's positions and the tokenizer's model_max_length limit the length in all commands, which is said; a
   tokenizer without a limit has a very large one. */
FIXTURE_TEST(test_limits_of_the_length) {
    static const struct {
        const char *limit, *words, *says;
        bool truncates;
    } cases[] = {
        {"512", TRAIN "--train_file train.csv --max_seq_length 500",
         "--max_seq_length 500 is more than the model's 64 positions: using 64", false},
        {"6", TRAIN "--train_file train.csv --max_seq_length 500",
         "--max_seq_length 64 is more than the tokenizer's model_max_length 6: using 6", true},
        {"6.0", "eval --model_name_or_path out --tokenizer_name limited --validation_file dev.csv --max_seq_length 16",
         "--max_seq_length 16 is more than the tokenizer's model_max_length 6: using 6", true},
        {"6", "predict --model_name_or_path out --tokenizer_name limited --test_file dev.csv --max_seq_length 16",
         "--max_seq_length 16 is more than the tokenizer's model_max_length 6: using 6", true},
        {"6", "tokenize --tokenizer_name limited --test_file dev.csv --max_seq_length 128",
         "--max_seq_length 128 is more than the tokenizer's model_max_length 6: using 6", false},
        {"6", "tokenize --tokenizer_name limited --test_file dev.csv --log_level info",
         "texts have at most 6 tokens, the tokenizer's model_max_length 6 (without it 128)", false},
        {"512", TRAIN "--train_file train.csv",
         "texts have at most 64 tokens, the model's 64 positions (without it 128)", false},
        {"6", "tokenize --tokenizer_name limited --test_file dev.csv --max_seq_length 6", NULL, false},
        {"1000000000000000019884624838656", "tokenize --tokenizer_name limited --test_file dev.csv", NULL, false},
        {"1e30", "tokenize --tokenizer_name limited --test_file dev.csv --max_seq_length 100000", NULL, false},
        {"null", "tokenize --tokenizer_name limited --test_file dev.csv", NULL, false},
        {"0", "tokenize --tokenizer_name limited --test_file dev.csv", "model_max_length", false},
        {"\"64\"", "tokenize --tokenizer_name limited --test_file dev.csv", "must be a number of tokens, from 1",
         false},
    };
    free(run_well(f, TRAIN "--train_file train.csv"));
    write_model(f, "limited", 0.1, 32, 2, VOCABULARY);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], words[512];
        snprintf(text, sizeof text, "{\"%s\": %s}", i % 2 ? "model_max_length" : "max_len", cases[i].limit);
        write_text(f, "limited/tokenizer_config.json", text);
        snprintf(words, sizeof words, "%s%s", cases[i].words,
                 strncmp(cases[i].words, "train", 5) == 0 ? " --tokenizer_name limited --overwrite_output_dir" : "");
        const int code = run(f, words);
        char *errors = output_of(f, "stderr");
        if (cases[i].says)
            assert_contains(errors, cases[i].says);
        else if (code)
            fail_msg("%s", errors);
        else
            assert_null(strstr(errors, "model_max_length"));
        if (cases[i].truncates) assert_contains(errors, "texts are longer than 6 tokens");
        free(errors);
    }
}

/* ---- the main job --------------------------------------------------------------------------------------------- */

static int64_t count_lines(const char *text) {
    int64_t lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

/* Words with tags: the forms of results. */
FIXTURE_TEST(test_tags) {
    write_words(f, "train.conll", TRAIN_ROWS, 1);
    write_text(f, "new.jsonl",
               "{\"tokens\":[\"good\",\"w1\"]}\n{\"tokens\":[]}\n{\"tokens\":[\"w1\",\"\\t\",\"bad\"]}\n");
    json_t *trained = run_json(f, "train --task ner --json --config_name model --tokenizer_name model --train_file "
                                  "train.conll --validation_file train.conll --output_dir out --num_train_epochs 20 "
                                  "--learning_rate 3e-3 --eval_strategy epoch --return_entity_level_metrics");
    assert_true(json_number_value(json_object_get(trained, "eval_f1")) > 0.5);
    assert_true(json_number_value(json_object_get(trained, "eval_GOOD_number")) > 0);
    json_decref(trained);
    char *text =
        run_well(f, "eval --model_name_or_path out --validation_file train.conll --return_entity_level_metrics");
    assert_contains(text, "\neval_BAD_f1 = ");
    free(text);
    text = run_well(f, "predict --model_name_or_path out --test_file new.jsonl");
    assert_int_equal(count_lines(text), 3);
    assert_true(strncmp(text, "B-GOOD ", 7) == 0);
    assert_contains(text, "\n\nO ");
    free(text);
    text = run_well(f, "predict --json --model_name_or_path out --test_file new.jsonl");
    assert_contains(text, "{\"index\":0,\"words\":[\"good\",\"w1\"],\"tags\":[\"B-GOOD\",");
    assert_contains(text, "\n{\"index\":1,\"words\":[],\"tags\":[],\"scores\":[]}\n");
    assert_contains(text, "\"words\":[\"w1\",\"\\t\",\"bad\"],\"tags\":[\"O\",null,\"B-BAD\"],\"scores\":[0.");
    free(text);
}

FIXTURE_TEST(test_from_training_to_predictions) {
    json_t *plan = run_json(f, "plan --config_name model --per_device_train_batch_size 4 --max_seq_length 32 --json");
    assert_true(json_integer_value(json_object_get(json_object_get(plan, "bytes"), "total")) > 0);
    json_decref(plan);
    json_t *trained = run_json(f, "train --json --config_name model --tokenizer_name model --train_file train.csv "
                                  "--validation_file dev.csv --output_dir out --num_train_epochs 2 --threads 2 "
                                  "--eval-strategy epoch --save_strategy epoch --learning_rate=1e-3 --logging_steps 5");
    assert_int_equal(json_integer_value(json_object_get(trained, "steps")), 20);
    static const char *const written[] = {
        "config.json",           "model.safetensors",  "vocab.txt",
        "tokenizer_config.json", "trainer_state.json", "train_results.json",
        "eval_results.json",     "all_results.json",   "checkpoint-20/optimizer.safetensors",
        "training_args.json",    "README.md",          "checkpoint-20/training_args.json",
        "run_report.json"};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (!exists(path_of(f, "out/%s", written[i]))) fail_msg("there is no %s", written[i]);

    json_t *evaluated = run_json(f, "eval --json --model_name_or_path out --validation_file dev.csv");
    assert_true(json_number_value(json_object_get(evaluated, "eval_loss")) ==
                json_number_value(json_object_get(trained, "eval_loss")));
    char *text = run_well(f, "eval --model_name_or_path out --validation_file dev.csv");
    assert_contains(text, "eval_accuracy = ");
    free(text);

    text = run_well(f, "predict --model_name_or_path out --test_file dev.csv");
    assert_true(strncmp(text, "index,label,score\n0,", 20) == 0);
    assert_int_equal(count_lines(text), 1 + EVAL_ROWS);
    free(text);
    text = run_well(f, "predict --json --model_name_or_path out --test_file dev.csv");
    assert_int_equal(count_lines(text), EVAL_ROWS);
    char *rest = text, *line;
    for (int i = 0; i < EVAL_ROWS; i++) {
        line = strsep(&rest, "\n");
        json_t *row = json_loads(line, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(row, "index")), i);
        assert_int_equal(json_array_size(json_object_get(row, "logits")), 2);
        assert_in_range(lrint(100 * json_number_value(json_object_get(row, "score"))), 50, 100);
        json_decref(row);
    }
    free(text);
    json_t *tokens = run_json(f, "tokenize --model_name_or_path out --test_file one.csv");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(tokens, "input_ids"), 0)), 2);
    assert_string_equal(json_string_value(json_array_get(json_object_get(tokens, "tokens"), 1)), "good");
    json_decref(tokens);
    json_decref(evaluated);
    json_decref(trained);
}

FIXTURE_TEST(test_best_checkpoint_is_reported) {
    json_t *trained = run_json(f, "train --json --config_name model --tokenizer_name model --train_file train.csv "
                                  "--validation_file dev.csv --output_dir b --max_steps 1 --threads 1 "
                                  "--eval_strategy steps --eval_steps 1 --save_strategy steps --save_steps 1 "
                                  "--metric_for_best_model loss");
    assert_string_equal(json_string_value(json_object_get(trained, "best_model_checkpoint")), "b/checkpoint-1");
    json_decref(trained);
}

FIXTURE_TEST(test_log_levels) {
    static const struct {
        const char *level;
        bool notes, warnings;
    } cases[] = {{"debug", true, true},    {"detail", true, true},  {"info", true, true},      {"passive", true, true},
                 {"warning", false, true}, {"error", false, false}, {"critical", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[256];
        snprintf(words, sizeof words,
                 "plan --config_name model --tokenizer_name model --train_file train.csv --max_seq_length 100 "
                 "--log_level %s",
                 cases[i].level);
        free(run_well(f, words));
        char *said = output_of(f, "stderr");
        assert_int_equal(strstr(said, "76 rows") != NULL, cases[i].notes);
        assert_int_equal(strstr(said, "is more than the model's 64 positions") != NULL, cases[i].warnings);
        free(said);
    }
}

/* Each as text and as JSON, of a model small enough to take no time. */
FIXTURE_TEST(test_anatomy_and_verification) {
    const char *anatomy =
        "bench anatomy --config_name model --train_file dummy:8x8 --max_steps 1 --device cpu --threads 1";
    char *text = run_well(f, anatomy), words[256];
    assert_contains(text, "Where a step's time goes");
    free(text);
    snprintf(words, sizeof words, "%s --json", anatomy);
    json_t *json = run_json(f, words);
    assert_true(json_is_object(json));
    json_decref(json);
    /* Its findings are tested in test_verify. */
    assert_in_range(run(f, "verify --config_name model --max_steps 1 --threads 1 --device cpu"), 0, 1);
    text = output_of(f, "stdout");
    assert_contains(text, "planned = allocated = measured             cpu    ");
    assert_int_equal(count_lines(text), 10);
    free(text);
    assert_in_range(run(f, "verify --config_name model --max_steps 1 --threads 1 --device cpu --json"), 0, 1);
    text = output_of(f, "stdout");
    assert_int_equal(count_lines(text), 10);
    *strchr(text, '\n') = '\0';
    json = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(json, "check")), "planned = allocated = measured");
    assert_string_equal(json_string_value(json_object_get(json, "device")), "cpu");
    assert_non_null(json_string_value(json_object_get(json, "result")));
    json_decref(json);
    free(text);
}

FIXTURE_TEST(test_text_without_masks) {
    free(run_well(f, TRAIN "--train_file train.csv --task mlm --line_by_line"));
    char *text = run_well(f, "predict --model_name_or_path out --test_file dev.csv"), *errors = output_of(f, "stderr");
    assert_string_equal(text, "index,label,score\n");
    assert_contains(errors, "dev.csv: no row has a mask token");
    free(text);
    free(errors);
}

FIXTURE_TEST(test_labels_are_quoted) {
    write_text(f, "odd.csv",
               "sentence,label\nw1 good,\"yes, \"\"sure\"\"\"\nw2 bad,\"no,\nnever\"\nw3 good,\"yes, \"\"sure\"\"\"\n");
    free(run_well(f, TRAIN "--train_file odd.csv --num_train_epochs 1"));
    char *text = run_well(f, "predict --model_name_or_path out --test_file odd.csv");
    if (!strstr(text, ",\"yes, \"\"sure\"\"\",0.") && !strstr(text, ",\"no,\nnever\",0.")) fail_msg("%s", text);
    /* snug reads its own output: every row has its three fields. */
    write_text(f, "predictions.csv", text);
    free(text);
    text = run_well(f, "tokenize --model_name_or_path out --test_file predictions.csv --text_column_names label");
    assert_int_equal(count_lines(text), 3);
    free(text);
}

#define PREDICT "predict --model_name_or_path out --test_file rows.csv "

/* Labels that a spreadsheet would execute get an apostrophe if that is requested; numbers are no formulas. */
FIXTURE_TEST(test_formulas_are_escaped) {
    static const struct {
        const char *label, *plain, *guarded; /* as the model has it; as fields */
    } cases[] = {
        {"=1+1", "=1+1", "'=1+1"},
        {"+cmd|' /C calc'!A0", "+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"},
        {"-1-1", "-1-1", "'-1-1"},
        {"@SUM(A1)", "@SUM(A1)", "'@SUM(A1)"},
        {"\tx", "\tx", "'\tx"},
        {"\rx", "\"\rx\"", "\"'\rx\""},
        {"=\"a\",b", "\"=\"\"a\"\",b\"", "\"'=\"\"a\"\",b\""},
        {"-inf", "-inf", "'-inf"},
        {"-0x1p3", "-0x1p3", "'-0x1p3"},
        {"-", "-", "'-"},
        {"--1", "--1", "'--1"},
        {"-1", "-1", "-1"},
        {"+1.5e3", "+1.5e3", "+1.5e3"},
        {"a=b", "a=b", "a=b"},
        {"\"\"", "\"\"\"\"\"\"", "\"\"\"\"\"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[128];
        make_labeller(f, cases[i].label);
        char *text = run_well(f, PREDICT);
        snprintf(expected, sizeof expected, "index,label,score\n0,%s,", cases[i].plain);
        assert_contains(text, expected);
        free(text);
        text = run_well(f, PREDICT "--csv_escape_formulas");
        snprintf(expected, sizeof expected, "index,label,score\n0,%s,", cases[i].guarded);
        assert_contains(text, expected);
        free(text);
        json_t *row = run_json(f, PREDICT "--csv_escape_formulas --json"); /* which spreadsheets do not open */
        assert_string_equal(json_string_value(json_object_get(row, "label")), cases[i].label);
        json_decref(row);
    }
}

/* ---- signals and pipes ---------------------------------------------------------------------------------------- */

#define LONG                                                                                                           \
    "train --config_name model --tokenizer_name model --train_file train.csv --threads 2 --save_strategy no "          \
    "--logging_steps 5 --gradient_accumulation_steps 2 "

/* Starts a training and interrupts it as soon as it has logged a loss; returns its log. */
static char *interrupt_after_loss(struct fixture *f, const char *words, int signal) {
    const pid_t child = start(f, words);
    wait_for_text(f, "stderr", "'loss'");
    kill(child, signal);
    assert_int_equal(wait_for(child), 130);
    return output_of(f, "stderr");
}

FIXTURE_TEST(test_interrupted_and_resumed) {
    for (const int *number = (const int[]){SIGINT, SIGTERM, 0}; *number; number++) {
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "out")), SNUG_OK);
        char *errors =
            interrupt_after_loss(f, LONG "--max_steps 20000 --lr_scheduler_type constant --output_dir out", *number);
        char *out = output_of(f, "stdout");
        assert_string_equal(out, "");
        const char *saved = strstr(errors, "saved out/checkpoint-");
        assert_non_null(saved);
        const long step = strtol(strrchr(saved, '-') > saved ? saved + strlen("saved out/checkpoint-") : "", NULL, 10);
        assert_true(step >= 5);
        assert_contains(errors, "--resume_from_checkpoint True");
        free(errors);
        free(out);
        char words[512];
        snprintf(words, sizeof words,
                 LONG "--max_steps %ld --lr_scheduler_type constant --output_dir out --resume_from_checkpoint True",
                 step + 4);
        free(run_well(f, words));
        snprintf(words, sizeof words, LONG "--max_steps %ld --lr_scheduler_type constant --output_dir whole", step + 4);
        free(run_well(f, words));
        assert_same_file(f, path_of(f, "out/model.safetensors"), path_of(f, "whole/model.safetensors"));
    }
}

TEST_IN(test_interrupted_without_optimizer, void *fixture, set_up_here, tear_down) {
    char *errors = interrupt_after_loss(fixture, LONG "--max_steps 20000 --save_only_model --output_dir out", SIGINT);
    assert_contains(errors, "with --save_only_model it cannot be resumed");
    assert_null(strstr(errors, "--resume_from_checkpoint"));
    free(errors);
}

/* No files are left, and messages do not mention the internal training. */
FIXTURE_TEST(test_interrupted_verification) {
    const pid_t child = start(f, "verify --config_name model --max_steps 1000000 --device cpu "
                                 "--output_dir out --max_train_samples 64");
    for (int tries = 0; tries < 3000 && !exists(path_of(f, "out")); tries++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    kill(child, SIGINT);
    assert_int_equal(wait_for(child), 130);
    char *errors = output_of(f, "stderr"), *out = output_of(f, "stdout");
    assert_string_equal(errors, "snug: interrupted\n");
    assert_string_equal(out, "");
    assert_false(exists(path_of(f, "out")));
    free(errors);
    free(out);
}

FIXTURE_TEST(test_verification_needs_a_folder) {
    const char *before = getenv("TMPDIR");
    char *own = before ? strdup(before) : NULL;
    setenv("TMPDIR", "nowhere", 1);
    assert_int_equal(run(f, "verify --config_name model --max_seq_length 64 --max_steps 1 --device cpu"), 1);
    own ? setenv("TMPDIR", own, 1) : unsetenv("TMPDIR");
    free(own);
    char *errors = output_of(f, "stderr");
    assert_contains(errors, "TMPDIR=nowhere: cannot make a folder there");
    assert_false(exists(path_of(f, "nowhere")));
    free(errors);
}

FIXTURE_TEST(test_second_run_is_refused) {
    char said[128];
    const pid_t child = start(f, LONG "--max_steps 50000 --output_dir out --disable_tqdm");
    wait_for_text(f, "stderr", "'loss'");
    assert_int_equal(rename(path_of(f, "stderr"), path_of(f, "first")), 0); /* the next run makes its own */
    assert_int_equal(run(f, LONG "--max_steps 2 --output_dir out"), 1);
    char *errors = output_of(f, "stderr");
    snprintf(said, sizeof said, "out: another run is writing into this folder (process %ld", (long)child);
    assert_contains(errors, said);
    free(errors);
    kill(child, SIGKILL);
    int status;
    while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
    assert_true(WIFSIGNALED(status));
    /* The lock is released with the process, whatever the lock file says, and the next run removes the file at its end.
     */
    assert_true(exists(path_of(f, "out/.snug.lock")));
    free(run_well(f, LONG "--max_steps 2 --output_dir out"));
    assert_false(exists(path_of(f, "out/.snug.lock")));
}

/* A file that reaches the size limit ends the run cleanly, not by the signal SIGXFSZ. */
FIXTURE_TEST(test_limited_file_size) {
    char command[1024];
    free(run_well(f, LONG "--max_steps 2 --save_strategy steps --save_steps 1 --output_dir out"));
    snprintf(command, sizeof command,
             "cd %s && (ulimit -f 64; exec %s/snug " LONG
             "--max_steps 4 --save_strategy steps --save_steps 1 --output_dir "
             "out --resume_from_checkpoint True) 2>errors",
             f->folder, SNUG_BINARY_DIR);
    const int status = system(command);
    assert_int_equal(WEXITSTATUS(status), 1);
    char *errors = output_of(f, "errors");
    assert_contains(errors, "File too large");
    assert_contains(errors, "checkpoint-3");
    free(errors);
    assert_false(exists(path_of(f, "out/checkpoint-3")));
    assert_int_equal(folder_verify(f->ctx, path_of(f, "out/checkpoint-2")), SNUG_OK);
    assert_false(exists(path_of(f, "out/.checkpoint-3.snug-aside")));
    free(run_well(f, LONG "--max_steps 4 --output_dir out --resume_from_checkpoint True"));
}

/* No step is done yet: the first signal ends the run, which leaves no incomplete cache. */
FIXTURE_TEST(test_interrupted_while_tokenizing) {
    write_data(f, "much.csv", FORM_SINGLE, 400000, 3);
    const pid_t child =
        start(f, "train --config_name model --tokenizer_name model --train_file much.csv --output_dir out "
                 "--threads 1 --device cpu");
    for (int tries = 0; tries < 3000 && !exists(path_of(f, "cache")); tries++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    kill(child, SIGINT);
    assert_int_equal(wait_for(child), 130);
    char *errors = output_of(f, "stderr"), command[256];
    assert_contains(errors, "interrupted while much.csv was tokenized");
    free(errors);
    assert_false(exists(path_of(f, "out")));
    snprintf(command, sizeof command, "test -z \"$(ls -A %s)\"", path_of(f, "cache"));
    assert_int_equal(system(command), 0);
}

/* A training in the middle of an evaluation saves, and the resumed one evaluates again. */
FIXTURE_TEST(test_interrupted_in_evaluation) {
    write_data(f, "many.csv", FORM_SINGLE, 60000, 3);
    /* The loss is logged right before the evaluation. */
    char *errors = interrupt_after_loss(f,
                                        LONG "--max_steps 4 --validation_file many.csv --eval_strategy steps "
                                             "--eval_steps 2 --logging_steps 2 --output_dir out --device cpu",
                                        SIGTERM);
    assert_contains(errors, "saved out/checkpoint-2");
    assert_null(strstr(errors, "eval_loss"));
    free(errors);
    assert_int_equal(folder_verify(f->ctx, path_of(f, "out/checkpoint-2")), SNUG_OK);
}

FIXTURE_TEST(test_closed_pipe) {
    char command[1024],
        words[] = "predict --model_name_or_path out --test_file train.csv --per_device_eval_batch_size 1";
    free(run_well(f, TRAIN "--train_file train.csv"));
    snprintf(command, sizeof command, "cd %s && { %s/snug %s; echo $? >code; } 2>errors | true", f->folder,
             SNUG_BINARY_DIR, words);
    assert_int_equal(system(command), 0);
    wait_for_text(f, "code", "\n");
    char *code = output_of(f, "code"), *errors = output_of(f, "errors");
    assert_string_equal(code, "0\n"); /* as with `| head` */
    assert_null(strstr(errors, "snug: "));
    free(code);
    free(errors);
    /* The same where the reader closes the pipe without reading. */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || !freopen(path_of(f, "errors"), "w", stderr) || chdir(f->folder) != 0)
            _exit(125);
        execl(SNUG_BINARY_DIR "/snug", "snug", "tokenize", "--model_name_or_path", "out", "--test_file", "train.csv",
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(wait_for(child), 0);
    errors = output_of(f, "errors");
    assert_null(strstr(errors, "snug: "));
    free(errors);
    snprintf(command, sizeof command, "cd %s && %s/snug %s >/dev/full 2>errors", f->folder, SNUG_BINARY_DIR, words);
    const int status = system(command);
    assert_int_equal(WEXITSTATUS(status), 1);
    errors = output_of(f, "errors");
    assert_contains(errors, "No space left");
    free(errors);
}

/* If too few threads can be created, snug reports it, before OpenMP's library would end the process. */
FIXTURE_TEST(test_too_few_threads) {
    static const char *const commands[] = {
        "train --config_name model --tokenizer_name model --train_file train.csv --output_dir out",
        "plan --config_name model --tokenizer_name model --train_file train.csv",
        "verify --config_name model --tokenizer_name model --train_file train.csv",
        "bench rates",
    };
    if (SANITIZED) skip(); /* it takes terabytes of address space */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (int threads = i == 1 ? 8 : 64; threads <= 64; threads += 4) {
            char command[512];
            snprintf(command, sizeof command,
                     "cd %s && ulimit -s 8192 && ulimit -v 300000 && %s/snug %s --threads %d >stdout 2>stderr",
                     f->folder, SNUG_BINARY_DIR, commands[i], threads);
            const int status = system(command);
            assert_true(WIFEXITED(status));
            char *errors = output_of(f, "stderr");
            if (strstr(errors, "libgomp") || strstr(errors, "OMP:")) fail_msg("%d threads: %s", threads, errors);
            if (threads == 64) {
                assert_int_equal(WEXITSTATUS(status), 1);
                assert_contains(errors, "snug: 64 threads are needed, but only ");
                assert_contains(errors, "ulimit -u");
                assert_contains(errors, "use fewer --threads");
                assert_false(exists(path_of(f, "out")));
            }
            free(errors);
        }
    const char *const few = "cd %s && ulimit -v 300000 && %s/snug %s --threads 1 --max_steps 1 >stdout 2>stderr";
    char command[512];
    snprintf(command, sizeof command, few, f->folder, SNUG_BINARY_DIR, commands[0]);
    if (system(command) != 0) fail_msg("%s", output_of(f, "stderr"));
}

static int set_up_here(void **state) {
    if (set_up(state)) return -1;
    write_text(*state, "one.csv", "sentence\ngood w1\n");
    return 0;
}

TEST_MAIN(NULL, NULL)
