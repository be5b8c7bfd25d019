/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of causal LM against the rules of SFTTrainer and run_clm.py (tools/golden/causal_rows.py, chat_rows.py): tokens,
   ends, which tokens have a loss, blocks, what is left out and told. */
#include "data/dataset_impl.h"
#include "data/loss_mask.h"
#include "io/json.h"
#include "text_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void load_files(struct fixture *f, json_t *files) {
    const char *name;
    json_t *value;
    assert_int_equal(remove(path_of(f, "vocab.txt")) == 0 || errno == ENOENT, 1);
    json_object_foreach(files, name, value) {
        char *text = json_dumps(value, JSON_COMPACT);
        write_file(f, name, text);
        free(text);
    }
    snug_tokenizer_free(f->tokenizer);
    f->tokenizer = NULL;
    if (snug_tokenizer_load(f->ctx, f->folder, snug_family_tokenizer_class, &f->tokenizer) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
}

static struct snug_dataset_options causal_options(const struct fixture *f, const char *path) {
    struct snug_dataset_options options = options_for(path);
    const int32_t end = snug_tokenizer_special(f->tokenizer).eos;
    options.task = SNUG_TASK_CLM;
    options.need_labels = false;
    options.completion_only = true;
    options.chats = true;
    options.chat_date = "2026-11-27";
    options.end = end < 0 ? NULL : snug_tokenizer_token(f->tokenizer, end);
    return options;
}

/* A mask of another length, or with a bit after the last token, is that of a damaged cache. */
TEST(test_mask_bits) {
    const uint32_t all = UINT32_MAX, two[] = {0, 2};
    assert_true(snug_loss_mask_check(NULL, 0, 5));
    assert_true(snug_loss_mask_check(&all, 1, 32));
    assert_false(snug_loss_mask_check(&all, 1, 31));
    assert_false(snug_loss_mask_check(&all, 1, 33));
    assert_true(snug_loss_mask_check(two, 2, 34));
    assert_false(snug_loss_mask_check(two, 2, 33));
}

static bool flag_of(const json_t *one, const char *key, bool otherwise) {
    const json_t *value = json_object_get(one, key);
    return value ? json_is_true(value) : otherwise;
}

static void check_row(struct fixture *f, const struct snug_dataset *dataset, const char *what, int64_t number,
                      const json_t *expected, int64_t *losses) {
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    const json_t *ids = json_array_get(expected, 1), *mask = json_array_get(expected, 2);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, number, &buffer, &row), SNUG_OK);
    assert_int_equal(row.line, json_integer_value(json_array_get(expected, 0)));
    assert_int_equal(row.first_count, row.count);
    assert_int_equal(row.truncated, json_is_true(json_array_get(expected, 3)));
    if (row.count != (int64_t)json_array_size(ids))
        fail_msg("%s, row %lld: %lld tokens, expected %zu", what, (long long)number, (long long)row.count,
                 json_array_size(ids));
    assert_int_equal(row.label_count, json_is_null(mask) ? 0 : (int64_t)snug_loss_mask_numbers((size_t)row.count));
    for (int64_t i = 0; i < row.count; i++) {
        const bool loss = snug_loss_mask_has(row.labels, row.label_count, i);
        if (row.ids[i] != json_integer_value(json_array_get(ids, (size_t)i)) ||
            loss != (json_is_null(mask) || json_integer_value(json_array_get(mask, (size_t)i)) != 0))
            fail_msg("%s, row %lld, token %lld: %d, %s", what, (long long)number, (long long)i, row.ids[i],
                     loss ? "with a loss" : "without a loss");
        *losses += i && loss;
    }
    free(buffer.data);
}

static void check_data(struct fixture *f, const char *what, const json_t *one) {
    const char *path = write_file(f, json_string_value(json_object_get(one, "file")),
                                  json_string_value(json_object_get(one, "content")));
    const json_t *rows = json_object_get(one, "rows");
    const json_int_t left_out = json_integer_value(json_object_get(one, "left_out"));
    struct snug_dataset_options options = causal_options(f, path);
    char says[64];
    options.max_length = json_integer_value(json_object_get(one, "max_length"));
    options.completion_only = flag_of(one, "completion_only", true);
    options.line_by_line = flag_of(one, "line_by_line", false);
    options.blocks = flag_of(one, "blocks", false);
    options.assistant_only = flag_of(one, "assistant_only", false);
    snprintf(says, sizeof says, "%lld row%s without a token that has a loss %s left out", left_out,
             left_out == 1 ? "" : "s", left_out == 1 ? "is" : "are");
    for (int cached = 0; cached < 2; cached++) {
        f->log[0] = '\0';
        struct snug_dataset *dataset = open_with(f, options);
        int64_t losses = 0;
        assert_contains(f->log, cached ? "read from" : "tokenized into");
        assert_int_equal(strstr(f->log, says) != NULL, left_out > 0);
        assert_int_equal(strstr(f->log, "this row is the first without") != NULL, left_out > 0 && !cached);
        assert_int_equal(snug_dataset_rows(dataset), json_array_size(rows));
        assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_MASK);
        assert_int_equal(snug_dataset_labelled(dataset), 0);
        for (size_t i = 0; i < json_array_size(rows); i++)
            check_row(f, dataset, what, (int64_t)i, json_array_get(rows, i), &losses);
        assert_int_equal(snug_dataset_losses(dataset), losses);
        snug_dataset_close(dataset);
    }
    assert_int_equal(remove(path), 0);
}

static void check_cases(struct fixture *f, const char *path, size_t cases) {
    json_t *golden, *one, *data;
    size_t i, k;
    assert_int_equal(snug_json_read(f->ctx, NULL, path, &golden), SNUG_OK);
    assert_int_equal(json_array_size(json_object_get(golden, "cases")), cases);
    json_array_foreach(json_object_get(golden, "cases"), i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        load_files(f, json_object_get(one, "files"));
        json_array_foreach(json_object_get(one, "data"), k, data) {
            char what[64];
            snprintf(what, sizeof what, "%s, data %zu", name, k);
            check_data(f, what, data);
        }
    }
    json_decref(golden);
}

FIXTURE_TEST(test_rows) { check_cases(f, SNUG_SOURCE_DIR "/tests/golden/causal_rows.json", 8); }

/* Against transformers' apply_chat_template() (tools/golden/chat_rows.py). */
FIXTURE_TEST(test_chats) { check_cases(f, SNUG_SOURCE_DIR "/tests/golden/chat_rows.json", 4); }

/* ---- small tokenizer: each letter is a token, and | ends a row ---- */

static void load_letters(struct fixture *f, const char *end) {
    char vocab[512] = "\"|\":0", text[1024];
    json_t *files;
    for (int i = 0; i < 26; i++) sprintf(vocab + strlen(vocab), ",\"%c\":%d", 'a' + i, i + 1);
    snprintf(
        text, sizeof text,
        "{\"tokenizer.json\":{\"model\":{\"type\":\"BPE\",\"vocab\":{%s},\"merges\":[]}},\"tokenizer_config.json\":"
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"eos_token\":%s}}",
        vocab, end);
    files = json_loads(text, 0, NULL);
    assert_non_null(files);
    load_files(f, files);
    json_decref(files);
}

/* Whether an end is learnt, what cannot be trained on, and names of columns. */
FIXTURE_TEST(test_odd_data) {
    static const struct {
        const char *name, *text;
        int64_t max_length;
        bool blocks, fails;
        const char *says;
    } cases[] = {
        {"a.jsonl", "{\"prompt\":\"abc\",\"completion\":\"\"}\n", 3, false, true,
         "no row has a token with a loss, of 1, the first in line 1: are the completions empty, or the prompts"},
        {"b.txt", "abc\nde\n", 32, false, true,
         "do not fill one block of 32: train with --line_by_line or a smaller --b"},
        {"c.jsonl", "{\"text\":\"abc\"}\n", 8, true, true, "do not fill one block of 8"},
        {"d.csv", "prompt,completion\nab,cd\n,\n", 8, false, false, "1 row, 5 tokens"},
        {"e.csv", "Prompt,text\nab,cd\n", 8, false, false, "1 row, 3 tokens"},
        {"f.csv", "id,label,note\n1,2,abcd\n", 8, false, false, "1 row, 5 tokens"},
    };
    load_letters(f, "\"|\"");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_dataset_options options = causal_options(f, write_file(f, cases[i].name, cases[i].text));
        options.max_length = cases[i].max_length;
        options.blocks = cases[i].blocks;
        f->log[0] = '\0';
        if (cases[i].fails) {
            assert_open_fails(f, options, SNUG_E_INPUT, cases[i].says);
            continue;
        }
        struct snug_dataset *dataset = open_with(f, options);
        assert_contains(f->log, cases[i].says);
        assert_true(snug_dataset_learns_end(dataset));
        snug_dataset_close(dataset);
    }
}

FIXTURE_TEST(test_columns_by_name) {
    load_letters(f, "\"|\"");
    struct snug_dataset_options options = causal_options(f, write_file(f, "named.csv", "a,b,c\nab,cd,ef\n"));
    options.text_column = "c";
    options.text_pair_column = "a";
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    static const int32_t ids[] = {5, 6, 1, 2, 0};
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
    assert_int_equal(row.count, 5);
    assert_memory_equal(row.ids, ids, sizeof ids);
    assert_int_equal(row.label_count, 1);
    assert_int_equal(row.labels[0], 0x1c);
    assert_true(snug_dataset_learns_end(dataset));
    snug_dataset_close(dataset);
    free(buffer.data);
}

/* Too long for its end, or joined, or without an end to have. */
FIXTURE_TEST(test_end_is_not_learnt) {
    for (int way = 0; way < 3; way++) {
        load_letters(f, way == 2 ? "null" : "\"|\"");
        struct snug_dataset_options options = causal_options(f, write_file(f, "t.jsonl", "{\"text\":\"abcdef\"}\n"));
        options.max_length = way == 2 ? 32 : 4;
        options.blocks = way == 1;
        struct snug_dataset *dataset = open_with(f, options);
        assert_false(snug_dataset_learns_end(dataset));
        snug_dataset_close(dataset);
    }
}

/* A token that spans the end of the prompt and the beginning of the completion counts as completion; a message says so.
 */
FIXTURE_TEST(test_token_of_both) {
    static const char file[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"|\":0,\"a\":1,\"b\":2,\"ab\":3},\"merges\":[\"a b\"]}}";
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    load_letters(f, "\"|\"");
    write_file(f, "tokenizer.json", file);
    snug_tokenizer_free(f->tokenizer);
    assert_int_equal(snug_tokenizer_load(f->ctx, f->folder, snug_family_tokenizer_class, &f->tokenizer), SNUG_OK);
    struct snug_dataset_options options =
        causal_options(f, write_file(f, "p.csv", "prompt,completion\nba,ab\nba,b\nbba,bb\n"));
    struct snug_dataset *dataset = open_with(f, options);
    assert_contains(f->log, "in 2 rows, first in line 3, a token is of the prompt and of the completion");
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 1, &buffer, &row), SNUG_OK);
    assert_int_equal(row.count, 3);
    assert_int_equal(row.labels[0], 6);
    snug_dataset_close(dataset);
    snug_dataset_close(open_with(f, causal_options(f, write_file(f, "one.csv", "prompt,completion\nba,b\n"))));
    assert_contains(f->log, "in 1 row, first in line 2, a token is of the prompt and of the completion");
    free(buffer.data);
}

/* ---- chats ---- */

static void use_template(struct fixture *f, const char *template) {
    load_letters(f, "\"|\"");
    const char *path = write_file(f, "t.jinja", template);
    assert_int_equal(snug_tokenizer_take_template(f->ctx, f->tokenizer, path), SNUG_OK);
}

static const char plain[] = "{% for m in messages %}{{ m.role[0] + m.content + '|' }}{% endfor %}";

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

/* Which form a file has, and what of a chat cannot be read. */
FIXTURE_TEST(test_odd_chats) {
    static const struct {
        const char *name, *text;
        bool assistant_only, blocks;
        snug_status status;
        const char *says;
    } cases[] = {
        {"a.jsonl", "{\"messages\":[" USER("b") "]}\n", false, false, SNUG_OK, "1 row, 3 tokens"},
        {"both.jsonl", "{\"text\":\"abcde\",\"messages\":[" USER("b") "]}\n", false, false, SNUG_OK, "1 row, 3 tokens"},
        {"late.jsonl", "{\"messages\":null,\"conversations\":null}\n{\"conversations\":[" USER("b") "]}\n", false,
         false, SNUG_E_INPUT, "late.jsonl:1: no chat: neither"},
        {"pair.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\",\"messages\":[" USER("b") "]}\n", false, false, SNUG_OK,
         "1 row, 3 tokens"},
        {"prompts.jsonl", "{\"prompt\":[" USER("b") "],\"completion\":[" ASSISTANT("c") "]}\n", false, false, SNUG_OK,
         "1 row, 6 tokens"},
        {"prompts.jsonl",
         "{\"prompt\":[{\"role\":\"system\",\"content\":\"b\"}],\"completion\":[" ASSISTANT("c") "]}\n", false, false,
         SNUG_OK, "1 row, 6 tokens"},
        {"other.jsonl", "{\"prompt\":[" USER("b") "],\"completion\":\"c\"}\n", false, false, SNUG_E_INPUT,
         "the column \"prompt\" holds a list"},
        {"text.jsonl", "{\"instruction\":\"a\",\"output\":\"b\",\"text\":\"abcd\"}\n", false, false, SNUG_OK,
         "1 row, 5 tokens"},
        {"alpaca.jsonl", "{\"instruction\":\"a\",\"output\":2,\"input\":null}\n", false, false, SNUG_OK,
         "1 row, 5 tokens"},
        {"half.jsonl", "{\"instruction\":\"abc\"}\n", false, false, SNUG_OK, "1 row, 4 tokens"},
        {"number.jsonl", "{\"messages\":5,\"note\":\"abc\"}\n", false, false, SNUG_OK, "1 row, 4 tokens"},
        {"words.csv", "messages\nabc\n", false, false, SNUG_OK, "1 row, 4 tokens"},
        {"object.jsonl", "{\"messages\":{\"a\":1},\"b\":1}\n", false, false, SNUG_E_INPUT,
         "the column \"messages\" holds an object"},
        {"then.jsonl", "{\"messages\":[" USER("b") "]}\n{\"messages\":{}}\n", false, false, SNUG_E_INPUT,
         "then.jsonl:2: \"messages\" must be a list"},
        {"true.jsonl", "{\"messages\":[" USER("b") "]}\n{\"messages\":true}\n", false, false, SNUG_E_INPUT,
         "true.jsonl:2: the column \"messages\" of a chat must be a list or an object, or its JSON as a text, and is a "
         "boolean"},
        {"list.jsonl", "{\"instruction\":\"a\",\"output\":[\"b\"]}\n", false, false, SNUG_E_INPUT,
         "list.jsonl:1: the column \"output\" of a chat must be a text, and is a list"},
        {"nul.jsonl", "{\"instruction\":\"a\",\"output\":\"b\\u0000\"}\n", false, false, SNUG_E_INPUT,
         "nul.jsonl:1: column \"output\": \\u0000 in a chat: remove it"},
        {"great.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"b\",\"x\":1e400}]}\n", false, false,
         SNUG_E_INPUT, "great.jsonl:1: the row cannot be read as JSON"},
        {"role.jsonl", "{\"messages\":[{\"content\":\"b\"}]}\n", false, false, SNUG_E_INPUT, "(the chat of "},
        {"human.jsonl",
         "{\"messages\":[" USER("b") "]}\n{\"conversations\":1,\"messages\":[{\"role\":\"human\",\"content\":\"c\"}]}\n"
                                     "{\"messages\":[{\"role\":\"gpt\",\"content\":\"c\"}]}\n",
         false, false, SNUG_OK, "human.jsonl:2: the roles \"human\" and \"gpt\" reach the chat template as they are"},
        {"says.jsonl", "{\"messages\":[" USER("b") "," ASSISTANT("c") "]}\n", true, false, SNUG_OK, "1 row, 6 tokens"},
        {"says.jsonl", "{\"messages\":[" USER("b") "]}\n", true, false, SNUG_E_INPUT,
         "no row has a token with a loss, of 1, the first in line 1: does the assistant say something within "
         "--max_seq_length 32?"},
        {"says.jsonl", "{\"text\":\"b\"}\n", true, false, SNUG_E_USAGE,
         "says.jsonl: --assistant_only_loss is for chats, and the file has none"},
        {"says.jsonl", "{\"messages\":[" USER("b") "]}\n", true, true, SNUG_E_USAGE,
         "--assistant_only_loss is for rows, and --block_size joins them"},
    };
    use_template(f, plain);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", path_of(f, cases[i].name));
        struct snug_dataset_options options = causal_options(f, write_file(f, cases[i].name, cases[i].text));
        options.assistant_only = cases[i].assistant_only;
        options.blocks = cases[i].blocks;
        f->log[0] = '\0';
        if (cases[i].status != SNUG_OK) {
            assert_open_fails(f, options, cases[i].status, cases[i].says);
            continue;
        }
        struct snug_dataset *dataset = open_with(f, options);
        assert_contains(f->log, cases[i].says);
        assert_true(snug_dataset_learns_end(dataset));
        assert_null(snug_dataset_chat_date(dataset));
        snug_dataset_close(dataset);
    }
    /* without the option, a list of messages is no text */
    struct snug_dataset_options options =
        causal_options(f, write_file(f, "a.jsonl", "{\"id\":\"b\",\"messages\":[" USER("b") "]}\n"));
    options.text_column = "messages"; /* as a text */
    assert_open_fails(f, options, SNUG_E_INPUT, "the column \"messages\" holds a list");
    options.text_column = NULL;
    options.chats = false;
    assert_open_fails(f, options, SNUG_E_INPUT, "the column \"messages\" holds a list of other values");
}

/* The chat does not begin with the rendered prompt: the loss begins where they differ, and a message says so. */
FIXTURE_TEST(test_prompts_of_chats) {
    static const char *const templates[] = {
        "{% for m in messages %}{{ m.role[0] + m.content }}{% endfor %}{{ 'a' if add_generation_prompt }}",
        "{% for m in messages %}{{ m.role[0] + m.content }}{% endfor %}{{ 'x' if add_generation_prompt }}",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    };
    static const uint32_t masks[] = {0x18, 0x1c, 0x6};
    for (size_t i = 0; i < 3; i++) {
        struct snug_row_buffer buffer = {0};
        struct snug_dataset_row row;
        use_template(f, templates[i]);
        const char *rows = "{\"prompt\":[" USER("b") "],\"completion\":[" ASSISTANT(
            "cd") "]}\n"
                  "{\"prompt\":[" USER("b") "],\"completion\":[" ASSISTANT("ee") "]}\n";
        f->log[0] = '\0';
        struct snug_dataset *dataset = open_with(f, causal_options(f, write_file(f, "a.jsonl", rows)));
        assert_int_equal(strstr(f->log, "in 2 rows, first in line 1, the tokens of the prompt, by the chat") != NULL,
                         i == 1);
        assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
        assert_int_equal(row.label_count, 1);
        assert_int_equal(row.labels[0], masks[i]);
        snug_dataset_close(dataset);
        free(buffer.data);
    }
    use_template(f, "{{ 'b' if not add_generation_prompt else raise_exception('no prompt') }}");
    assert_open_fails(f, causal_options(f, path_of(f, "a.jsonl")), SNUG_E_INPUT, "no prompt");
}

/* Rows of chats that are joined: all that the template writes, and no more ends. */
FIXTURE_TEST(test_joined_chats) {
    static const int32_t ids[] = {21, 2, 0, 1, 3, 0, 21, 4};
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    use_template(f, plain);
    struct snug_dataset_options options = causal_options(
        f, write_file(f, "a.jsonl",
                      "{\"messages\":[" USER("b") "," ASSISTANT("c") "]}\n"
                                                                     "{\"messages\":[" USER("de") "]}\n"));
    options.blocks = true;
    options.max_length = 8;
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
    assert_int_equal(row.count, 8);
    assert_memory_equal(row.ids, ids, sizeof ids);
    assert_int_equal(row.label_count, 0);
    snug_dataset_close(dataset);
    free(buffer.data);
}

/* Tokens in the cache are those of the template, of the loss, and of a date that it shows. */
FIXTURE_TEST(test_chats_in_the_cache) {
    static const struct {
        const char *template, *date;
        bool assistant_only, cached;
    } cases[] = {
        {plain, "2026-11-27", false, false},
        {plain, "2026-11-28", false, true},
        {plain, NULL, false, true},
        {plain, "2026-11-27", true, false},
        {"{% for m in messages %}{{ m.content + '|' }}{% endfor %}", "2026-11-27", false, false},
        {"{% for m in messages %}{{ strftime_now('%B')|lower + m.content + '|' }}{% endfor %}", "2026-11-27", false,
         false},
        {"{% for m in messages %}{{ strftime_now('%B')|lower + m.content + '|' }}{% endfor %}", "2026-11-27", false,
         true},
        {"{% for m in messages %}{{ strftime_now('%B')|lower + m.content + '|' }}{% endfor %}", "2026-12-01", false,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        use_template(f, cases[i].template);
        struct snug_dataset_options options =
            causal_options(f, write_file(f, "a.jsonl", "{\"messages\":[" USER("b") "," ASSISTANT("c") "]}\n"));
        options.chat_date = cases[i].date;
        options.assistant_only = cases[i].assistant_only;
        f->log[0] = '\0';
        struct snug_dataset *dataset = open_with(f, options);
        assert_contains(f->log, cases[i].cached ? "read from" : "tokenized into");
        if (i < 5) {
            assert_null(snug_dataset_chat_date(dataset));
        } else {
            assert_memory_equal(snug_dataset_chat_date(dataset), cases[i].date, 10);
            assert_contains(f->log, "the chat template shows a date: ");
        }
        snug_dataset_close(dataset);
    }
    struct snug_dataset_options options = causal_options(f, path_of(f, "a.jsonl"));
    options.chat_date = "27.11.";
    assert_open_fails(f, options, SNUG_E_USAGE, "--chat_template_date 27.11.: must be a date");
    load_letters(f, "\"|\"");
    assert_open_fails(f, causal_options(f, path_of(f, "a.jsonl")), SNUG_E_INPUT, "the tokenizer has no chat template");
    assert_int_equal(snug_tokenizer_take_template(f->ctx, f->tokenizer, path_of(f, "none.jinja")), SNUG_E_IO);
}

/* What the model is trained on, and what the file has. */
FIXTURE_TEST(test_trained_on_chats) {
    struct snug_used_columns chat = {.text = {"messages", "tools"}, .texts = 2, .chat = true},
                             text = {.text = {"text"}, .texts = 1};
    use_template(f, plain);
    struct snug_dataset_options options =
        causal_options(f, write_file(f, "a.jsonl", "{\"messages\":[" USER("b") "]}\n"));
    options.trained = &chat;
    struct snug_dataset *dataset = open_with(f, options);
    assert_true(snug_dataset_columns(dataset)->chat);
    assert_null(snug_dataset_columns(dataset)->delimiter);
    snug_dataset_close(dataset);
    options.trained = &text;
    dataset = open_with(f, options);
    assert_true(snug_dataset_columns(dataset)->chat);
    snug_dataset_close(dataset);
    options.path = write_file(f, "t.jsonl", "{\"text\":\"b\",\"messages\":[" USER("b") "]}\n");
    dataset = open_with(f, options);
    assert_false(snug_dataset_columns(dataset)->chat);
    snug_dataset_close(dataset);
    options.path = write_file(f, "t.csv", "text\nb\n");
    options.trained = &chat;
    assert_open_fails(f, options, SNUG_E_INPUT, "t.csv: the model is trained on chats, and the file has none");
    options.text_column = "text";
    snug_dataset_close(open_with(f, options));
}

/* ---- masks ---- */

TEST(test_masks) {
    uint32_t mask[3];
    int32_t has[65] = {0};
    has[0] = has[31] = has[32] = has[64] = 1;
    snug_loss_mask_put(mask, has, 65);
    assert_int_equal(mask[0], 0x80000001);
    assert_int_equal(mask[1], 1);
    assert_int_equal(mask[2], 1);
    assert_true(snug_loss_mask_check(mask, 3, 65));
    assert_false(snug_loss_mask_check(mask, 2, 65));
    assert_false(snug_loss_mask_check(mask, 3, 64));
    mask[2] = 3;
    assert_false(snug_loss_mask_check(mask, 3, 65));
    assert_true(snug_loss_mask_check(mask, 2, 64));
    assert_true(snug_loss_mask_check(NULL, 0, 65));
    for (int i = 0; i < 65; i++) assert_int_equal(snug_loss_mask_has(mask, 3, i), has[i]);
    assert_true(snug_loss_mask_has(NULL, 0, 7));
}

TEST_MAIN(NULL, NULL)
