/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of causal LM reports before its first step: the data's form, the first row, what is not learnt; chats and
   the date of their template. */
#include <sys/stat.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define SMALL                                                                                                          \
    "train --config_name small --tokenizer_name " SNUG_SOURCE_DIR                                                      \
    "/tests/golden/tokenizer_parts/gpt2 --max_steps 1 --threads 1 --device cpu --save_strategy no "                    \
    "--overwrite_output_dir --output_dir out "
#define LLAMA SMALL "--per_device_train_batch_size 1 "

static void write_llama(const struct fixture *f) {
    assert_int_equal(mkdir(path_of(f, "small"), 0777), 0);
    write_text(f, "small/config.json",
               "{\"model_type\": \"llama\", \"vocab_size\": 700, \"hidden_size\": 16, \"num_hidden_layers\": 1, "
               "\"num_attention_heads\": 2, \"intermediate_size\": 16, \"max_position_embeddings\": 2048}");
}

static json_int_t length_in(const struct fixture *f) {
    json_t *args = read_json(f, path_of(f, "out/training_args.json"));
    const json_int_t length = json_integer_value(json_object_get(json_object_get(args, "data"), "max_seq_length"));
    json_decref(args);
    return length;
}

/* The first row as the model sees it, with its ends where it is long; an end that is not learnt; lengths and blocks. */
FIXTURE_TEST(test_causal_data) {
    static const struct {
        const char *words, *shown[4], *not_shown;
        json_int_t length;
    } cases[] = {
        {"--train_file pairs.jsonl",
         {"\nText       prompt + completion, which it completes\n",
          "\nFirst row  line 1: 7 tokens, 4 with a loss (« »)\n", "           a\\n\\t«b\\rc<|endoftext|>»\n",
          "           65 199 198 «66 202 67 0»\n"},
         "learn to stop",
         1024},
        {"--train_file pairs.jsonl --completion_only_loss False",
         {"line 1: 7 tokens, 6 with a loss (« »)\n", "           a«\\n\\tb\\rc<|endoftext|>»\n", "»\n", "»\n"},
         "learn to stop",
         1024},
        {"--train_file long.jsonl --max_length 300",
         {"line 1: 201 tokens, 200 with a loss", "           x«", "» …", "<|endoftext|>»"},
         "learn to stop",
         300},
        {"--train_file long.jsonl --max_seq_length 100",
         {"no token \"<|endoftext|>\" that ends a row has a loss: this model would not learn to stop",
          "line 1: 100 tokens, 99 with a loss", "» …", "»"},
         "names no eos_token",
         100},
        {"--train_file long.jsonl --block_size 24 --validation_file long.jsonl",
         {"that ends a row has a loss: this model would not learn to stop", "Train      long.jsonl: 16 rows\n",
          "line 1: 24 tokens, 23 with a loss", "»"},
         NULL,
         24},
        {"--train_file lines.txt", {"lines.txt: its 9 tokens do not fill one block of 1024"}, NULL, 0},
        {"--train_file lines.txt --line_by_line", {"Train      lines.txt: 3 rows\n", "line 1: 3 tokens"}, "stop", 1024},
        {"--train_file lines.txt --line_by_line --block_size 4", {"--block_size joins the rows"}, NULL, 0},
        {"--train_file lines.txt --block_size 1", {"--block_size 1: a token predicts the next"}, NULL, 0},
        {"--train_file lines.txt --whole_word_mask", {"--whole_word_mask is for masked LM"}, NULL, 0},
        {"--train_file dummy:4x20", {"Train      dummy:4x20: 4 rows"}, "First row", 1024},
    };
    write_llama(f);
    write_text(f, "pairs.jsonl", "{\"prompt\": \"a\\n\\t\", \"completion\": \"b\\rc\"}\n");
    write_text(f, "lines.txt", "abc\nabd\nabe\n");
    char text[512] = "{\"text\": \"";
    for (int i = 0; i < 200; i++) strcat(text, i % 2 ? "q" : "x");
    strcat(text, "\"}\n{\"text\": \"");
    for (int i = 0; i < 200; i++) strcat(text, i % 2 ? "q" : "z");
    write_text(f, "long.jsonl", strcat(text, "\"}\n"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1024];
        snprintf(words, sizeof words, LLAMA "%s", cases[i].words);
        const int code = run(f, words);
        char *said = output_of(f, "stderr");
        if ((code == 0) != (cases[i].length > 0)) fail_msg("%s: exit code %d: %s", cases[i].words, code, said);
        for (size_t k = 0; k < 4 && cases[i].shown[k]; k++)
            if (!strstr(said, cases[i].shown[k]))
                fail_msg("%s: no \"%s\" in %s", cases[i].words, cases[i].shown[k], said);
        if (cases[i].not_shown && strstr(said, cases[i].not_shown)) fail_msg("%s: %s", cases[i].words, said);
        if (cases[i].length) assert_int_equal(length_in(f), cases[i].length);
        free(said);
    }
    free(run_well(f, "plan --config_name small --tokenizer_name model --train_file long.jsonl --device cpu"));
    free(run_well(f, "plan --config_name small --tokenizer_name model --device cpu"));
    /* BERT's tokenizer has no eos_token. */
    free(run_well(f,
                  "train --config_name small --tokenizer_name model --train_file long.jsonl --max_steps 1 --threads 1 "
                  "--device cpu --save_strategy no --output_dir bert"));
    char *said = output_of(f, "stderr");
    assert_contains(said, "the tokenizer names no eos_token to end rows with: this model would not learn to stop");
    assert_contains(said, " eval --model_name_or_path bert --validation_file FILE\n"); /* there are no predictions */
    free(said);
}

/* Chats: what is shown, recorded with the date of the template, saved with the model, and evaluated by it. */
FIXTURE_TEST(test_chats) {
    static const struct {
        const char *words;
        bool fails;
        const char *shown[3], *not_shown;
    } cases[] = {
        {LLAMA "--train_file chats.jsonl --chat_template_path dated.jinja --chat_template_date 2024-02-29 "
               "--assistant_only_loss",
         false,
         {"\nText       messages, tools, by the chat template; not used: id\n",
          "\nFirst row  line 1: 19 tokens, 2 with a loss (« »)\n", "           29:user:Hi;29:assistant:«ok»;\n"},
         NULL},
        {"eval --model_name_or_path out --validation_file chats.jsonl --device cpu",
         false,
         {"chats.jsonl: the chat template shows a date: 2024-02-29T00:00:00", "eval_loss"},
         "2 rows without"},
        {"eval --model_name_or_path out --validation_file chats.jsonl --device cpu --chat_template_path plain.jinja",
         false,
         {"eval_loss"},
         "shows a date"},
        {"eval --model_name_or_path out --validation_file text.jsonl --device cpu",
         true,
         {"text.jsonl: the model is trained on chats, and the file has none"},
         NULL},
        {"eval --model_name_or_path out --validation_file text.jsonl --text_column_name text --device cpu",
         false,
         {"text.jsonl: its texts are single columns, and the model was trained on chats"},
         NULL},
        {LLAMA "--train_file chats.jsonl --chat_template_path plain.jinja --validation_file text.jsonl",
         true,
         {"text.jsonl: the model is trained on chats"},
         NULL},
        {LLAMA "--train_file chats.jsonl --chat_template_path dated.jinja",
         false,
         {"with a loss (« »)\n", ":user:Hi;", "(--chat_template_date)"},
         "without a token"},
        {LLAMA "--train_file chats.jsonl --chat_template_path none.jinja", true, {"none.jinja: No such file"}, NULL},
        {LLAMA "--train_file chats.jsonl", true, {"the tokenizer has no chat template"}, NULL},
        {LLAMA "--train_file dummy:4x20 --chat_template_path plain.jinja", false, {"synthetic tokens"}, NULL},
    };
    write_llama(f);
    write_text(f, "chats.jsonl",
               "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
               "{\"role\": \"assistant\", \"content\": \"ok\"}], \"tools\": null}\n");
    write_text(f, "text.jsonl", "{\"text\": \"abc\"}\n");
    write_text(f, "dated.jinja",
               "{% for m in messages %}{{ strftime_now('%d') + ':' + m.role + ':' }}{% if m.role == 'assistant' %}"
               "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}");
    write_text(f, "plain.jinja", "{% for m in messages %}{{ m.content + '|' }}{% endfor %}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int code = run(f, cases[i].words);
        char *said = output_of(f, "stderr"), *results = output_of(f, "stdout");
        if ((code != 0) != cases[i].fails) fail_msg("%s: exit code %d: %s", cases[i].words, code, said);
        for (size_t k = 0; k < 3 && cases[i].shown[k]; k++)
            if (!strstr(said, cases[i].shown[k]) && !strstr(results, cases[i].shown[k]))
                fail_msg("%s: no \"%s\" in %s", cases[i].words, cases[i].shown[k], said);
        if (cases[i].not_shown && strstr(said, cases[i].not_shown)) fail_msg("%s: %s", cases[i].words, said);
        free(said);
        free(results);
        if (i) continue;
        json_t *args = read_json(f, path_of(f, "out/training_args.json"));
        const json_t *data = json_object_get(args, "data"), *arguments = json_object_get(args, "arguments");
        assert_true(json_is_true(json_object_get(data, "chat")));
        assert_string_equal(json_string_value(json_object_get(data, "chat_template_date")), "2024-02-29T00:00:00");
        assert_string_equal(json_string_value(json_object_get(arguments, "chat_template_date")), "2024-02-29");
        json_decref(args);
        char *saved = read_text(f, path_of(f, "out/chat_template.jinja"), NULL),
             *given = read_text(f, path_of(f, "dated.jinja"), NULL);
        assert_string_equal(saved, given);
        free(saved);
        free(given);
    }
}

static double loss_of(struct fixture *f, const char *words) {
    char line[512];
    snprintf(line, sizeof line, "eval --model_name_or_path out --device cpu --json %s", words);
    json_t *metrics = run_json(f, line);
    const double loss = json_number_value(json_object_get(metrics, "eval_loss"));
    json_decref(metrics);
    return loss;
}

/* Micro-batches by tokens: in the description, in a plan without data, in what is said to a run that does not fit. */
FIXTURE_TEST(test_tokens_of_a_batch) {
    write_llama(f);
    write_text(f, "text.jsonl", "{\"text\": \"abc def\"}\n{\"text\": \"abc\"}\n{\"text\": \"abc def ghi\"}\n");
    json_t *result = run_json(f, SMALL "--train_file text.jsonl --per_device_train_tokens 24 --json "
                                       "--gradient_accumulation_steps 2");
    char *said = output_of(f, "stderr");
    assert_contains(said, "Batch      up to 24 tokens x 2 accumulated = 48 a step; ");
    const json_t *batch = json_object_get(json_object_get(result, "run"), "batch");
    assert_int_equal(json_integer_value(json_object_get(batch, "tokens")), 24);
    assert_null(json_object_get(batch, "rows"));
    free(said);
    json_decref(result);
    char *card = read_text(f, path_of(f, "out/README.md"), NULL);
    assert_contains(card, "- train_tokens: 24\n");
    assert_contains(card, "- total_train_tokens: 48\n");
    free(card);
    json_t *plan = run_json(f, "plan --task clm --config_name small --per_device_train_tokens 60 --max_seq_length 16 "
                               "--device cpu --json");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(plan, "batch"), "tokens")), 60);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(plan, "batch"), "sequences")), 4);
    json_decref(plan);
    for (int fit = 0; fit < 2; fit++) {
        char words[512];
        snprintf(words, sizeof words,
                 SMALL "--train_file text.jsonl --per_device_train_tokens 24 --memory_budget 1KiB %s",
                 fit ? "--fit" : "");
        assert_int_equal(run(f, words), 3);
        said = output_of(f, "stderr");
        assert_contains(said, "no mix of methods fits");
        free(said);
    }
}

/* An evaluation counts the loss of the same tokens as the training did, unless a flag says otherwise. */
FIXTURE_TEST(test_remembered_losses) {
    static const struct {
        const char *train, *eval, *flag;
        bool trained; /* the flag in the training */
    } cases[] = {
        {"--train_file chats.jsonl --chat_template_path plain.jinja --assistant_only_loss",
         "--validation_file chats.jsonl", "--assistant_only_loss", true},
        {"--train_file chats.jsonl --chat_template_path plain.jinja", "--validation_file chats.jsonl",
         "--assistant_only_loss", false},
        {"--train_file pairs.jsonl --completion_only_loss False", "--validation_file pairs.jsonl",
         "--completion_only_loss", false},
        {"--train_file pairs.jsonl", "--validation_file pairs.jsonl", "--completion_only_loss", true},
    };
    write_llama(f);
    write_text(f, "plain.jinja", "{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}");
    write_text(f, "chats.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
               "{\"role\": \"assistant\", \"content\": \"ok\"}]}\n");
    write_text(f, "pairs.jsonl", "{\"prompt\": \"abc\", \"completion\": \" de\"}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[512];
        snprintf(words, sizeof words, LLAMA "%s", cases[i].train);
        free(run_well(f, words));
        const double remembered = loss_of(f, cases[i].eval);
        for (int given = 0; given < 2; given++) {
            snprintf(words, sizeof words, "%s %s %s", cases[i].eval, cases[i].flag, given ? "True" : "False");
            const bool same = loss_of(f, words) == remembered;
            if (same != (given == cases[i].trained)) fail_msg("%s: %s", cases[i].train, words);
        }
    }
    /* Rows that are no chats are no error, and neither are blocks. */
    free(run_well(f, LLAMA "--train_file chats.jsonl --chat_template_path plain.jinja --assistant_only_loss"));
    write_text(f, "text.jsonl", "{\"text\": \"abc def\"}\n");
    loss_of(f, "--validation_file text.jsonl --text_column_name text");
    loss_of(f, "--validation_file chats.jsonl --block_size 8");
}

/* A date that is not given is today's, which the arguments have then: the run can be repeated, and resumed on that day
   only, or with that date. */
FIXTURE_TEST(test_date_of_chats) {
    write_llama(f);
    write_text(f, "chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n");
    write_text(f, "dated.jinja", "{{ strftime_now('%d') }}{% for m in messages %}{{ m.content }}{% endfor %}");
#define DATED                                                                                                          \
    LLAMA "--train_file chats.jsonl --chat_template_path dated.jinja --save_strategy steps --save_steps 1 "            \
          "--max_steps "
    free(run_well(f, DATED "1 --output_dir dated"));
    json_t *args = read_json(f, path_of(f, "dated/training_args.json"));
    const char *date = json_string_value(json_object_get(json_object_get(args, "arguments"), "chat_template_date"));
    assert_non_null(date);
    assert_string_equal(date + 10, "T00:00:00");
    free(run_well(f, "train --args_from dated/training_args.json --output_dir again"));
    json_t *again = read_json(f, path_of(f, "again/training_args.json"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(again, "arguments"), "chat_template_date")),
                        date);
    json_decref(again);
    json_decref(args);
    assert_int_not_equal(run(f, DATED "2 --output_dir dated --overwrite_output_dir False --resume_from_checkpoint "
                                      "dated/checkpoint-1 --chat_template_date 2001-01-01"),
                         0);
    char *said = output_of(f, "stderr");
    assert_contains(said, "chat_template_date was \"20");
    assert_contains(said, "and is \"2001-01-01T00:00:00\"");
    free(said);
}

TEST_MAIN(NULL, NULL)
