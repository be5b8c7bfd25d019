/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of words with tags: from files through the cache to batches. */
#include "data/task.h"
#include "data/words.h"
#include "loader_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

enum { O, B_X, I_X, B_Y, CLASSES };
static char *const names[] = {(char *)"O", (char *)"B-X", (char *)"I-X", (char *)"B-Y"};
static const struct snug_labels labels = {.count = CLASSES, .names = (char **)(uintptr_t)names};

/* Words of the vocabulary have one token each; "w1.w2" has three, the second of which is [UNK]. */
static const char three_rows[] = "{\"tokens\":[\"w1\",\"w2.w3\",\"w4\"],\"ner_tags\":[\"O\",\"B-X\",\"I-X\"]}\n"
                                 "{\"tokens\":[],\"ner_tags\":[]}\n"
                                 "{\"tokens\":[\"w5.w6\",\" \",\"w7\"],\"ner_tags\":[\"B-Y\",\"O\",\"O\"]}\n";

static struct snug_dataset_options words_options(const char *path) {
    struct snug_dataset_options options = options_for(path);
    options.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    return options;
}

/* A row as "token:word:tag …", its words' tags and, where they are kept, texts. */
static const char *show(struct fixture *f, const struct snug_dataset *dataset, int64_t row) {
    static char text[512];
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row read;
    struct snug_words words;
    size_t used = 0;
    assert_int_equal(snug_dataset_read(f->ctx, dataset, row, &buffer, &read), SNUG_OK);
    assert_true(snug_words_of(read.labels, read.label_count, read.count, 100, &words));
    assert_int_equal(read.first_count, read.count);
    text[0] = '\0';
    for (int64_t i = 0; i < read.count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%d:%d ", (int)read.ids[i], (int)words.word_of[i]);
    const char *at = words.texts;
    for (int64_t i = 0; i < words.count; i++) {
        const bool tagged = words.tags[i] != SNUG_NO_TAG;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s=%s ", at ? at : "",
                                 tagged ? snug_dataset_raw_label(dataset, words.tags[i]) : "none");
        if (at) at += strlen(at) + 1;
    }
    if (used) text[used - 1] = '\0';
    free(buffer.data);
    return text;
}

FIXTURE_TEST(test_rows) {
    struct snug_dataset_options options = words_options(write_file(f, "w.jsonl", three_rows));
    for (int again = 0; again < 2; again++) { /* the second time from the cache */
        struct snug_dataset *dataset = open_with(f, options);
        assert_string_equal(show(f, dataset, 0), "2:-1 6:0 7:1 1:1 8:1 9:2 3:-1 =O =B-X =I-X");
        assert_string_equal(show(f, dataset, 1), "2:-1 3:-1");
        assert_string_equal(show(f, dataset, 2), "2:-1 10:0 1:0 11:0 12:2 3:-1 =B-Y =O =O");
        assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_TAGS);
        assert_int_equal(snug_dataset_words(dataset), 6);
        assert_int_equal(snug_dataset_words_without_tokens(dataset), 1);
        assert_int_equal(snug_dataset_truncated(dataset), 0);
        snug_dataset_close(dataset);
    }
    assert_contains(f->log, "read from");
    options.max_length = 4; /* two tokens of words */
    struct snug_dataset *dataset = open_with(f, options);
    assert_string_equal(show(f, dataset, 0), "2:-1 6:0 7:1 3:-1 =O =B-X =I-X");
    assert_string_equal(show(f, dataset, 2), "2:-1 10:0 1:0 3:-1 =B-Y =O =O");
    assert_int_equal(snug_dataset_words_without_tokens(dataset), 3);
    assert_int_equal(snug_dataset_truncated(dataset), 2);
    snug_dataset_close(dataset);
    options.need_labels = false;
    options.keep_words = true;
    dataset = open_with(f, options);
    assert_string_equal(show(f, dataset, 0), "2:-1 6:0 7:1 3:-1 w1=O w2.w3=B-X w4=I-X");
    assert_string_equal(show(f, dataset, 1), "2:-1 3:-1");
    assert_string_equal(show(f, dataset, 2), "2:-1 10:0 1:0 3:-1 w5.w6=B-Y  =O w7=O");
    assert_int_equal(snug_dataset_raw_labels(dataset), 4);
    snug_dataset_close(dataset);
    options.max_samples = 1;
    options.need_labels = true;
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_rows(dataset), 1);
    assert_int_equal(snug_dataset_raw_labels(dataset), 4); /* of the whole file */
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_bad_rows) {
    static const struct {
        const char *name, *text, *part;
    } cases[] = {
        {"1.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[\"O\"]}\n{\"tokens\":[\"a\",\"b\"],\"ner_tags\":[\"O\"]}\n",
         "1.jsonl:2: 2 words and 1 tags: each word must have one tag"},
        {"2.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[1.5]}\n", "2.jsonl:1: tags must be a list of strings, or"},
        {"3.jsonl", "{\"tokens\":[\"a\",\"b\"],\"ner_tags\":[\"O\",1]}\n", "3.jsonl:1: tags must be a list of"},
        {"4.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[null]}\n", "4.jsonl:1: tags must be a list of strings"},
        {"5.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":\"O\"}\n", "5.jsonl:1: tags must be a list of strings"},
        {"6.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[\"\"]}\n", "6.jsonl:1: a tag is empty"},
        {"7.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[\"O\"]}\n{\"tokens\":[\"a\"],\"ner_tags\":[1]}\n",
         "7.jsonl:2: the tag 1: some tags are strings and some are integers"},
        {"8.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[-100]}\n", "8.jsonl:1: the tag -100: an integer is the number"},
        {"9.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[1048576]}\n",
         "an integer is the number of a class, from 0 to 1048"},
        {"21.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[12345678]}\n",
         "21.jsonl:1: the tag 12345678: an integer is the number of a class"},
        {"22.conll", "word tag\na O\nb\n", "22.conll:3: the line has 1 column, and the file has 2"},
        {"10.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[\"O\"]}\n{\"tokens\":[\"a\"]}\n",
         "10.jsonl:2: the row has no tags"},
        {"11.jsonl", "{\"tokens\":[\"a\"],\"ner_tags\":[\"O\"]}\n{\"ner_tags\":[\"O\"]}\n",
         "11.jsonl:2: the row has no words"},
        {"12.jsonl", "{\"tokens\":[7],\"ner_tags\":[\"O\"]}\n", "12.jsonl:1: the words must be a list of strings"},
        {"13.jsonl", "{\"tokens\":\"a b\",\"ner_tags\":[\"O\"]}\n", "13.jsonl:1: the words must be a list of strings"},
        {"14.jsonl", "{\"tokens\":[\"a\"]}\n",
         "14.jsonl: there is no label column \"ner_tags\"; its columns are: tokens"},
        {"15.jsonl", "{\"x\":1,\"tokens\":[\"a\"]}\n", "15.jsonl: there is no label column \"ner_tags\""},
        {"16.conll", "a O\n\nb O\nc\n",
         "16.conll:4: the line has 1 column, and the file has 2, with blanks between them"},
        {"17.conll", "a O\n\nb\n", "17.conll:3: the line has 1 column, and the file has 2"},
        {"19.conll", "a\tO\n\nb\t\nc\t\n", "19.conll:3: the row has no tags"},
        {"20.conll", "a\nb\n", "20.conll: its words are in column 1 of 1, and no column has tags"},
        {"18.conll", "-DOCSTART- O\n\n", "18.conll: there is no row with text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_open_fails(f, words_options(write_file(f, cases[i].name, cases[i].text)), SNUG_E_INPUT, cases[i].part);
    struct snug_labels of;
    struct snug_dataset *dataset = open_with(f, words_options(write_file(f, "h.conll", "word tag\nw1 O\n")));
    assert_int_equal(snug_dataset_rows(dataset), 1);
    snug_dataset_close(dataset);
    dataset = open_with(f, words_options(write_file(f, "e.jsonl", "{\"tokens\":[],\"tags\":[]}\n")));
    assert_failed(f, snug_labels_of(f->ctx, dataset, false, &of), SNUG_E_INPUT, "no row has a label");
    snug_dataset_close(dataset);
}

/* Numbers of a model's classes: each is named, as far as a message goes. */
FIXTURE_TEST(test_numbers) {
    enum { MANY = 200 };
    char text[4096] = "{\"tokens\":[", called[MANY][32], *list[MANY];
    for (int i = 0; i < MANY; i++) strcat(text, i ? ",\"w1\"" : "\"w1\"");
    strcat(text, "],\"ner_tags\":[");
    for (int i = 0; i < MANY; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? "," : "", i);
        snprintf(called[i], sizeof called[i], "B-CLASS%d", i);
        list[i] = called[i];
    }
    strcat(text, "]}\n");
    struct snug_labels classes = {.problem = SNUG_PROBLEM_SINGLE_LABEL, .count = MANY, .names = list};
    struct snug_dataset *dataset = open_with(f, words_options(write_file(f, "n.jsonl", text)));
    f->log[0] = '\0';
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &classes), SNUG_OK);
    assert_contains(f->log, "n.jsonl: its tags are numbers, taken for places in the model's list of 200 classes: 0 = "
                            "B-CLASS0, 1 = B-CLASS1, ");
    assert_contains(f->log, "If they number other classes, write names instead");
    /* Names that say no more than the numbers. */
    for (int i = 0; i < MANY; i++) snprintf(called[i], sizeof called[i], "LABEL_%d", i);
    f->log[0] = '\0';
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &classes), SNUG_OK);
    assert_string_equal(f->log, "");
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_damaged_words) {
    const uint32_t good[] = {SNUG_NO_WORD, 0, 1, 1, SNUG_NO_WORD, 2, 0, SNUG_NO_TAG, 0x00630062}; /* "b", "c" */
    const struct {
        size_t place;
        uint32_t value;
    } bad[] = {{0, 2}, {1, 2}, {3, 0}, {5, 9}, {5, UINT32_MAX}, {6, 2}, {8, 0x63636363}, {8, 0x63626200}};
    struct snug_words words;
    assert_true(snug_words_of(good, 9, 5, 2, &words));
    assert_string_equal(words.texts, "b");
    assert_true(snug_words_of(good, 8, 5, 2, &words));
    assert_null(words.texts);
    assert_false(snug_words_of(good, 7, 5, 2, &words));
    assert_false(snug_words_of(good, 5, 5, 2, &words));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t numbers[9];
        memcpy(numbers, good, sizeof numbers);
        numbers[bad[i].place] = bad[i].value;
        if (snug_words_of(numbers, 9, 5, 2, &words)) fail_msg("damage %zu is not detected", i);
    }
}

/* ---- batches --------------------------------------------------------------------------------------------------- */

static struct run start_words(struct fixture *f, const struct snug_dataset *dataset,
                              struct snug_loader_options options) {
    options.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    options.labels = CLASSES;
    options.prefetch = 1;
    struct run run = start(f, dataset, options, 1);
    assert_int_equal(run.limits.rows, run.limits.tokens);
    assert_int_equal(snug_loader_begin_epoch(run.loader, 0, 0), SNUG_OK);
    return run;
}

static void assert_positions(const struct snug_batch *batch, int64_t count, const int32_t *positions,
                             const int32_t *classes) {
    assert_int_equal(batch->rows, count);
    assert_memory_equal(batch->loss_positions, positions, (size_t)count * sizeof *positions);
    assert_memory_equal(batch->labels, classes, (size_t)count * sizeof *classes);
}

FIXTURE_TEST(test_positions) {
    static const int32_t first[] = {1, 2, 5, 10, 13}, of_first[] = {O, B_X, I_X, B_Y, O};
    static const int32_t all[] = {1, 2, 3, 4, 5, 10, 11, 12, 13}, of_all[] = {O, B_X, I_X, I_X, I_X, B_Y, B_Y, B_Y, O};
    static const int32_t unlabelled[] = {SNUG_IGNORE_LABEL, SNUG_IGNORE_LABEL, SNUG_IGNORE_LABEL, SNUG_IGNORE_LABEL,
                                         SNUG_IGNORE_LABEL};
    struct snug_dataset_options options = words_options(write_file(f, "w.jsonl", three_rows));
    struct snug_dataset *dataset = open_with(f, options);
    const struct snug_loader_options in_order = {
        .sampling = SNUG_SAMPLING_SEQUENTIAL, .batch_size = 3, .accumulation = 1};
    struct snug_loader_options other = in_order;
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    struct run run = start_words(f, dataset, in_order);
    const struct snug_batch *batch = next(f, &run);
    assert_positions(batch, 5, first, of_first);
    assert_int_equal(batch->items, 5);
    assert_int_equal(batch->items_in_step, 5);
    assert_int_equal(batch->tokens, 7 + 2 + 6); /* no padding */
    stop(&run);

    /* After the B- of a word's first token, its other tokens have the tag I-, where the model has one. */
    other.label_all_tokens = true;
    run = start_words(f, dataset, other);
    assert_positions(next(f, &run), 9, all, of_all);
    stop(&run);

    other = in_order;
    other.batch_size = 1; /* one step with all rows: each micro-batch has the step's number of items */
    other.accumulation = 3;
    run = start_words(f, dataset, other);
    for (int i = 0; i < 3; i++) {
        static const int64_t items[] = {3, 0, 2};
        batch = next(f, &run);
        assert_int_equal(batch->items, items[i]);
        assert_int_equal(batch->rows, items[i]);
        assert_int_equal(batch->items_in_step, 5);
    }
    stop(&run);
    snug_dataset_close(dataset);

    options.need_labels = false;
    dataset = open_with(f, options);
    other = in_order;
    other.predict = true;
    run = start_words(f, dataset, other);
    batch = next(f, &run);
    assert_positions(batch, 5, first, unlabelled);
    assert_int_equal(batch->items, 0);
    stop(&run);
    snug_dataset_close(dataset);
}

/* Workers give the same batches, and synthetic words are deterministic. */
FIXTURE_TEST(test_workers) {
    struct snug_dataset *dataset = open_with(f, words_options("dummy:101x3-19"));
    struct snug_labels of;
    assert_int_equal(snug_labels_of(f->ctx, dataset, false, &of), SNUG_OK);
    assert_string_equal(of.names[1], "LABEL_1");
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &of), SNUG_OK);
    struct snug_loader_options options = {.sampling = SNUG_SAMPLING_RANDOM, .batch_size = 4, .accumulation = 3};
    struct run alone = start_words(f, dataset, options);
    options.workers = 3;
    struct run three = start_words(f, dataset, options);
    int64_t ones = 0, positions = 0;
    for (int64_t i = 0; i < snug_loader_batches(101, &options); i++) {
        const struct snug_batch *a = next(f, &alone), *b = next(f, &three);
        assert_int_equal(a->rows, a->tokens); /* each token is a word */
        assert_int_equal(a->items_in_step, b->items_in_step);
        assert_positions(a, b->rows, b->loss_positions, b->labels);
        for (int64_t k = 0; k < a->rows; k++) ones += a->labels[k];
        positions += a->rows;
    }
    assert_int_equal(positions, snug_dataset_tokens(dataset));
    assert_true(3 * ones > positions && 3 * ones < 2 * positions);
    stop(&alone);
    stop(&three);
    snug_labels_free(&of);
    snug_dataset_close(dataset);
}

/* Each name of --task belongs to one task, and each task has a line. */
FIXTURE_TEST(test_table) {
    static const char *const all[] = {"classification",
                                      "text_classification",
                                      "mlm",
                                      "clm",
                                      "causal_lm",
                                      "text_generation",
                                      "dpo",
                                      "preference_tuning",
                                      "token_classification",
                                      "ner",
                                      "embedding",
                                      "sentence_embedding",
                                      "question_answering",
                                      "question-answering",
                                      "qa",
                                      "multiple_choice",
                                      "multiple-choice",
                                      "swag",
                                      "reranking",
                                      "rerank",
                                      "cross-encoder"};
    static const int tasks[] = {SNUG_TASK_CLASSIFICATION,
                                SNUG_TASK_CLASSIFICATION,
                                SNUG_TASK_MLM,
                                SNUG_TASK_CLM,
                                SNUG_TASK_CLM,
                                SNUG_TASK_CLM,
                                SNUG_TASK_DPO,
                                SNUG_TASK_DPO,
                                SNUG_TASK_TOKEN_CLASSIFICATION,
                                SNUG_TASK_TOKEN_CLASSIFICATION,
                                SNUG_TASK_EMBEDDING,
                                SNUG_TASK_EMBEDDING,
                                SNUG_TASK_QUESTION_ANSWERING,
                                SNUG_TASK_QUESTION_ANSWERING,
                                SNUG_TASK_QUESTION_ANSWERING,
                                SNUG_TASK_MULTIPLE_CHOICE,
                                SNUG_TASK_MULTIPLE_CHOICE,
                                SNUG_TASK_MULTIPLE_CHOICE,
                                SNUG_TASK_RERANKING,
                                SNUG_TASK_RERANKING,
                                SNUG_TASK_RERANKING};
    char names_text[512] = "";
    for (int i = 0; i < 21; i++) {
        assert_int_equal(snug_task_find(all[i]), tasks[i]);
        snprintf(names_text + strlen(names_text), sizeof names_text - strlen(names_text), "%s%s", i ? "|" : "", all[i]);
    }
    assert_string_equal(names_text, SNUG_TASK_NAMES);
    static const char *const unknown[] = {"translation", "", "n", "mlm|", "token_classification|ner"};
    for (int i = 0; i < 5; i++) assert_int_equal(snug_task_find(unknown[i]), -1);
    for (int i = 0; i < SNUG_TASK_COUNT; i++) {
        const struct snug_task_info *info = snug_task_info((enum snug_task)i);
        assert_int_equal(snug_task_find(snug_task_name((enum snug_task)i)), i);
        assert_non_null(info->model_class);
        assert_true(info->title && info->short_title && (info->count || info->items) && info->collate);
        assert_true(info->text_column[0] && info->label_column[0]);
    }
}

TEST_MAIN(NULL, NULL)
