/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of causal LM against the rules of SFTTrainer and run_clm.py (tools/golden/causal_rows.py): tokens, ends, which
   tokens have a loss, blocks, what is left out and told. */
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

FIXTURE_TEST(test_rows) {
    json_t *golden, *one, *data;
    size_t i, k;
    assert_int_equal(snug_json_read(f->ctx, NULL, SNUG_SOURCE_DIR "/tests/golden/causal_rows.json", &golden), SNUG_OK);
    assert_int_equal(json_array_size(json_object_get(golden, "cases")), 8);
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

/* A token of the prompt's end and the completion's beginning is of the completion, which is told. */
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
