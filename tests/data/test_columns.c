/* SPDX-License-Identifier: Apache-2.0 */
/* Which columns of a file are texts, and what its labels are: found, named, or asked about. */
#include "data/classes.h"
#include "data/columns.h"
#include "data/dataset_impl.h"
#include "data/labels.h"
#include "text_fixture.h"
#include "train/trained.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* The columns of a data set, as "a + b", "a|b" if joined, with the label and the others: "w > label (x, y)". */
static const char *columns_of(const struct snug_dataset *dataset) {
    static char text[512];
    const struct snug_used_columns *used = snug_dataset_columns(dataset);
    text[0] = '\0';
    for (size_t i = 0; i < used->texts; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s",
                 !i           ? ""
                 : used->pair ? " + "
                              : used->delimiter,
                 used->text[i]);
    if (used->label) snprintf(text + strlen(text), sizeof text - strlen(text), " > %s", used->label);
    if (*used->unused) snprintf(text + strlen(text), sizeof text - strlen(text), " (%s)", used->unused);
    return text;
}

static void assert_columns(struct fixture *f, struct snug_dataset_options options, const char *expected) {
    for (int times = 0; times < 2; times++) { /* tokenized, then from the cache */
        struct snug_dataset *dataset = open_with(f, options);
        assert_string_equal(columns_of(dataset), expected);
        snug_dataset_close(dataset);
    }
}

/* The ids of row 0 after [CLS]. */
static void assert_ids(struct fixture *f, struct snug_dataset_options options, const char *expected) {
    struct snug_dataset *dataset = open_with(f, options);
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    char text[256] = "";
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
    for (int64_t i = 1; i < row.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%d", i > 1 ? " " : "",
                 row.ids[i] == SEP ? "/" : "w", row.ids[i] == SEP ? 0 : row.ids[i] - W0);
    assert_string_equal(text, expected);
    free(buffer.data);
    snug_dataset_close(dataset);
}

TEST_IN(test_found, void *fixture, set_up, tear_down) {
    static const struct {
        const char *name, *text, *columns;
    } cases[] = {
        {"sst2.tsv", "sentence\tlabel\nw1\t0\nw2\t1\n", "sentence > label"},
        {"qnli.tsv", "index\tquestion\tsentence\tlabel\n0\tw1\tw2\tno\n1\tw3\tw4\tyes\n",
         "question + sentence > label (index)"},
        {"mnli.csv", "hypothesis,premise,label\nw1,w2,0\nw1,w2,1\n", "premise + hypothesis > label"},
        {"qqp.csv", "id,qid1,question1,question2,label\n4,7,w1,w2,0\n5,9,w1,w3,1\n",
         "question1 + question2 > label (id, qid1)"},
        {"rte.tsv", "idx\tsentence1\tsentence2\tlabel\n7\tw1\tw2 w3\t0\n8\tw1\tw2\t1\n",
         "sentence1 + sentence2 > label (idx)"},
        {"half.csv", "sentence1,label\nw1,0\nw2,1\n", "sentence1 > label"},
        {"id.csv", "id,review,label\n1,w1,0\n2,w2,1\n", "review > label (id)"},
        {"pandas.csv", "Unnamed: 0,review,label\n0,w1,0\n1,w2,1\n", "review > label (Unnamed: 0)"},
        {"number.csv", "score,review,label\n.5,w1,0\n1e3,w2,1\n", "review > label (score)"},
        {"guid.jsonl",
         "{\"GUID\": \"a\", \"n\": 3, \"says\": \"w1\", \"label\": 0}\n"
         "{\"GUID\": \"b\", \"n\": 4.5, \"says\": \"w2\", \"label\": 1}\n",
         "says > label (GUID, n)"},
        {"text.csv", "title,text,label\nw1,w2,0\nw3,w4,1\n", "text > label (title)"},
    };
    /* A usual name of a text may be the label's. */
    static const struct {
        const char *label, *text, *columns;
    } labels[] = {
        {"sentence1", "sentence1,sentence2\nw1,w2\nw3,w4\n", "sentence2 > sentence1"},
        {"sentence2", "sentence1,sentence2\nw1,w2\nw3,w4\n", "sentence1 > sentence2"},
        {"text", "text,body\nw1,w2\nw3,w4\n", "body > text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_columns(fixture, options_for(write_file(fixture, cases[i].name, cases[i].text)), cases[i].columns);
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        struct snug_dataset_options options = options_for(write_file(fixture, "labels.csv", labels[i].text));
        options.label_column = labels[i].label;
        assert_columns(fixture, options, labels[i].columns);
    }
}

/* Columns of which any can be the text are asked about; so are files in which none can. */
FIXTURE_TEST(test_asked) {
    assert_open_fails(f, options_for(write_file(f, "two.csv", "title,body,label\nw1,w2,0\nw3,w4,1\n")), SNUG_E_INPUT,
                      "two.csv: which column is the text: title, body? Give --text_column_name title; or "
                      "--text_column_name title --text_pair_column_name body for a pair; or --text_column_names "
                      "title,body to join them");
    assert_open_fails(f, options_for(write_file(f, "three.csv", "a,b,c,label\nw1,w2,w3,0\n")), SNUG_E_INPUT,
                      "three.csv: which column is the text: a, b, c?");
    assert_open_fails(f, options_for(write_file(f, "years.csv", "year,says,label\n1,w2,0\n1,w4,1\n")), SNUG_E_INPUT,
                      "which column is the text: year, says"); /* years repeat */
    assert_open_fails(f, options_for(write_file(f, "none.csv", "id,label\n1,0\n2,1\n")), SNUG_E_INPUT,
                      "none.csv: there is no text column; its columns are: id, label");
    assert_open_fails(f, options_for(write_file(f, "l.csv", "label\n1\n")), SNUG_E_INPUT, "no text column");
    struct snug_dataset_options options = options_for(path_of(f, "two.csv"));
    options.task = SNUG_TASK_MLM; /* as run_mlm.py */
    options.line_by_line = true;
    assert_columns(f, options, "title (body, label)");
}

FIXTURE_TEST(test_named) {
    const char *path = write_file(f, "q.csv", "w,class,x,y\nw1,a,w2,w3\nw1,b,w2,w3\n");
    struct snug_dataset_options options = options_for(path), plain;
    assert_open_fails(f, options, SNUG_E_INPUT, "q.csv: there is no label column \"label\"");
    assert_open_fails(f, options, SNUG_E_INPUT, "w, class, x, y");
    assert_open_fails(f, options, SNUG_E_INPUT, "--label_column_name");
    assert_open_fails(f, options, SNUG_E_INPUT, "--task mlm");
    options.label_column = "class";
    plain = options;
    options.text_column = "y";
    assert_columns(f, options, "y > class (w, x)");
    assert_ids(f, options, "w3 /0");
    options.text_pair_column = "w";
    assert_columns(f, options, "y + w > class (x)");
    assert_ids(f, options, "w3 /0 w1 /0");
    options.text_pair_column = "class";
    assert_open_fails(f, options, SNUG_E_USAGE,
                      "q.csv: the column \"class\" is the label, and --text_pair_column_name names it as a text");
    options.need_labels = false; /* predictions */
    assert_columns(f, options, "y + class > class (w, x)");
    options.need_labels = true;
    plain.task = SNUG_TASK_MLM; /* has no labels */
    plain.line_by_line = true;
    plain.text_column = "class";
    assert_columns(f, plain, "class (w, x, y)");
    plain = options_for(path);
    plain.label_column = "class";
    options.text_pair_column = "nothing";
    assert_open_fails(f, options, SNUG_E_INPUT,
                      "--text_pair_column_name: there is no column \"nothing\"; its columns are: w, class, x, y");
    options.text_columns = "x,y";
    assert_open_fails(f, options, SNUG_E_USAGE, "give one or the other");
    options.text_column = NULL;
    assert_open_fails(f, options, SNUG_E_USAGE, "give one or the other");
    options = plain;
    options.text_pair_column = "w";
    assert_open_fails(f, options, SNUG_E_USAGE, "--text_pair_column_name w needs --text_column_name");
    options = plain;
    options.text_columns = "x,w,y";
    assert_columns(f, options, "x w y > class");
    assert_ids(f, options, "w2 w1 w3 /0"); /* one text */
    options.text_delimiter = " w9 ";
    assert_columns(f, options, "x w9 w w9 y > class");
    assert_ids(f, options, "w2 w9 w1 w9 w3 /0");
    options.text_columns = "y,nothing";
    assert_open_fails(f, options, SNUG_E_INPUT, "--text_column_names: there is no column \"nothing\"");
    options.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    options.path = write_file(f, "q.jsonl", "{\"w\": [\"w1\"], \"x\": [\"w1\"], \"ner_tags\": [\"O\"]}\n");
    options.label_column = NULL;
    options.text_columns = "w,x";
    assert_open_fails(f, options, SNUG_E_USAGE, "at most 1 column can");
    options.text_columns = NULL;
    options.text_column = "w";
    options.text_pair_column = "x";
    assert_open_fails(f, options, SNUG_E_USAGE, "--text_pair_column_name is for classification");
    char many[256] = "w";
    for (int i = 0; i < SNUG_TEXTS_MOST; i++) strcat(many, ",w");
    options = plain;
    options.text_columns = many;
    assert_open_fails(f, options, SNUG_E_USAGE, "at most 32 columns can");
    options = options_for(path);
    options.need_labels = false;
    options.text_column = "w";
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_NONE);
    snug_dataset_close(dataset);
    options = plain;
    options.path = write_file(f, "lists.jsonl", "{\"a\": \"w1\", \"b\": [\"w2\"], \"class\": 1}\n");
    options.text_columns = "a,b";
    assert_open_fails(f, options, SNUG_E_INPUT, "lists.jsonl:1: the text must be a string");
    write_file(f, "lists.jsonl", "{\"a\": \"w1\", \"b\": null, \"class\": 1}\n");
    assert_open_fails(f, options, SNUG_E_INPUT, "lists.jsonl:1: the row has no text");
    write_file(f, "lists.jsonl", "{\"a\": \"w1\", \"b\": true, \"class\": 1}\n");
    assert_open_fails(f, options, SNUG_E_INPUT, "lists.jsonl:1: the text must be a string");
}

/* Columns of the training are used again; another file's are reported, and refused if they are of another shape. */
FIXTURE_TEST(test_trained) {
    struct snug_used_columns one = {.text = {(char *)"body"}, .texts = 1, .label = (char *)"stars"},
                             pair = {.text = {(char *)"title", (char *)"body"}, .texts = 2, .pair = true},
                             joined = {
                                 .text = {(char *)"title", (char *)"body"}, .texts = 2, .delimiter = (char *)" w9 "};
    struct snug_dataset_options options =
        options_for(write_file(f, "t.csv", "title,body,stars\nw1,w2,good\nw3,w4,bad\n"));
    options.trained = &one;
    assert_columns(f, options, "body > stars (title)");
    options.need_labels = false;
    options.trained = &pair;
    assert_columns(f, options, "title + body (stars)");
    options.trained = &joined;
    assert_columns(f, options, "title w9 body (stars)");
    options.text_delimiter = "-";
    assert_columns(f, options, "title-body (stars)");
    options.text_delimiter = NULL;
    options.text_column = "title"; /* an argument has precedence */
    assert_columns(f, options, "title (body, stars)");

    options = options_for(write_file(f, "s.csv", "sentence,label\nw1,good\nw3,bad\n"));
    options.trained = &one;
    f->log[0] = '\0';
    assert_columns(f, options, "sentence > label");
    assert_contains(f->log, "s.csv: the model is trained on the text column body, which it lacks: using sentence");
    options.trained = &pair;
    assert_open_fails(
        f, options, SNUG_E_INPUT,
        "s.csv: the model is trained on the pair title, body, and the file's columns are: sentence, "
        "label. Give a file of such texts, or name them with --text_column_name and --text_pair_column_name");
    options.trained = &joined;
    assert_open_fails(f, options, SNUG_E_INPUT, "trained on the joined columns title, body");
    options.path = write_file(f, "p.csv", "sentence1,sentence2,label\nw1,w2,good\nw3,w3,bad\n");
    options.trained = &one;
    assert_open_fails(f, options, SNUG_E_INPUT, "trained on the column body");
    options.trained = &joined;
    assert_open_fails(f, options, SNUG_E_INPUT, "trained on the joined columns title, body");
    options.trained = &pair;
    f->log[0] = '\0';
    assert_columns(f, options, "sentence1 + sentence2 > label");
    assert_contains(f->log, "trained on the text columns title, body, which it lacks: using sentence1, sentence2");
}

/* What a model's folder says of its training. */
FIXTURE_TEST(test_training_args) {
    struct snug_folder folder;
    struct snug_trained trained;
    char text[256] = "{\"program\": \"snug\", \"data\": {\"text\": [\"a\"";
    assert_int_equal(snug_folder_open(f->ctx, NULL, f->folder, &folder), SNUG_OK);
    for (int i = 0; i < SNUG_TEXTS_MOST; i++) strcat(text, ",\"a\"");
    strcat(text, "]}}");
    write_file(f, SNUG_TRAINING_ARGS, text);
    assert_failed(f, snug_trained_read(f->ctx, &folder, &trained), SNUG_E_INPUT, "is not what a training writes");
    snug_trained_free(&trained);
    write_file(f, SNUG_TRAINING_ARGS, "{\"program\": \"other\", \"data\": {\"text\": [\"a\"]}}");
    assert_int_equal(snug_trained_read(f->ctx, &folder, &trained), SNUG_OK);
    assert_int_equal(trained.columns.texts, 0);
    snug_trained_free(&trained);
    snug_folder_close(&folder);
}

/* ---- labels ---------------------------------------------------------------------------------------------------- */

static struct snug_dataset *open_labels(struct fixture *f, const char *name, const char *text, const char *separator) {
    struct snug_dataset_options options = options_for(write_file(f, name, text));
    options.label_separator = separator;
    return open_with(f, options);
}

/* The classes as "a b c". */
static void assert_classes(struct fixture *f, struct snug_dataset *dataset, enum snug_regression regression,
                           enum snug_problem problem, const char *names) {
    struct snug_labels labels;
    char text[256] = "";
    if (snug_labels_of(f->ctx, dataset, regression, &labels) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    for (int64_t i = 0; i < labels.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", labels.names[i]);
    assert_string_equal(text, names);
    assert_int_equal(labels.problem, problem);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &labels), SNUG_OK);
    snug_labels_free(&labels);
    snug_dataset_close(dataset);
}

static void assert_refused(struct fixture *f, struct snug_dataset *dataset, enum snug_regression regression,
                           const char *says) {
    struct snug_labels labels;
    assert_failed(f, snug_labels_of(f->ctx, dataset, regression, &labels), SNUG_E_INPUT, says);
    snug_dataset_close(dataset);
}

FIXTURE_TEST(test_words_among_numbers) {
    const char *stars = "text,label\nw,1\nw,2\nw,n.a.\nw,2\n", *real = "text,label\nw,1.5\nw,2\nw,1.5\n";
    assert_refused(f, open_labels(f, "a.csv", stars, NULL), SNUG_REGRESSION_AUTO,
                   "a.csv:4: the label \"n.a.\" is among numbers");
    assert_refused(f, open_labels(f, "a.csv", stars, NULL), SNUG_REGRESSION_AUTO, "--do_regression False");
    assert_refused(f, open_labels(f, "a.csv", stars, NULL), SNUG_REGRESSION_YES, "a.csv:4: the label \"n.a.\"");
    assert_classes(f, open_labels(f, "a.csv", stars, NULL), SNUG_REGRESSION_NO, SNUG_PROBLEM_SINGLE_LABEL, "1 2 n.a.");
    assert_classes(f, open_labels(f, "b.csv", real, NULL), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_REGRESSION, "LABEL_0");
    assert_classes(f, open_labels(f, "b.csv", real, NULL), SNUG_REGRESSION_NO, SNUG_PROBLEM_SINGLE_LABEL, "1.5 2");
    assert_classes(f, open_labels(f, "n.csv", "text,label\nw,inf\nw,1\n", NULL), SNUG_REGRESSION_NO,
                   SNUG_PROBLEM_SINGLE_LABEL, "1 inf");
    /* Strings of JSON are names, also of digits. */
    assert_classes(
        f, open_labels(f, "s.jsonl", "{\"text\":\"w\",\"label\":\"1\"}\n{\"text\":\"w\",\"label\":\"n.a.\"}\n", NULL),
        SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "1 n.a.");
    assert_classes(f,
                   open_labels(f, "d.jsonl", "{\"text\":\"w\",\"label\":1}\n{\"text\":\"w\",\"label\":\"2\"}\n", NULL),
                   SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "1 2");
    assert_refused(
        f, open_labels(f, "m.jsonl", "{\"text\":\"w\",\"label\":1}\n{\"text\":\"w\",\"label\":\"n.a.\"}\n", NULL),
        SNUG_REGRESSION_AUTO, "m.jsonl:2: the label \"n.a.\"");
}

FIXTURE_TEST(test_one_class) {
    assert_refused(f, open_labels(f, "a.csv", "text,label\nw,yes\nw,yes\n", NULL), SNUG_REGRESSION_AUTO,
                   "a.csv: all its labels are \"yes\", and classification needs at least two classes");
    assert_refused(f, open_labels(f, "b.csv", "text,label\nw,b|b\nw,\n", "|"), SNUG_REGRESSION_AUTO, "two classes");
    assert_classes(f, open_labels(f, "c.csv", "text,label\nw,1\nw,1\n", NULL), SNUG_REGRESSION_YES,
                   SNUG_PROBLEM_REGRESSION, "LABEL_0");
}

/* Tags that are numbers are classes, too. */
FIXTURE_TEST(test_tag_numbers) {
    struct snug_dataset_options options =
        options_for(write_file(f, "tags.jsonl", "{\"tokens\": [\"w1\", \"w2\"], \"ner_tags\": [1, 0]}\n"));
    options.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    assert_refused(f, open_with(f, options), SNUG_REGRESSION_YES, "its labels are lists, but regression needs");
    assert_classes(f, open_with(f, options), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "LABEL_0 LABEL_1");
}

FIXTURE_TEST(test_separators) {
    const char *text = "text,label\nw,a\nw,a|b\nw,b\n";
    assert_open_fails(f, options_for(write_file(f, "a.csv", text)), SNUG_E_INPUT,
                      "a.csv:3: the label \"a|b\" holds '|': give --label_separator '|' if it is several labels, or "
                      "--label_separator none if it is the name of one class");
    assert_classes(f, open_labels(f, "a.csv", text, "|"), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_MULTI_LABEL, "a b");
    assert_classes(f, open_labels(f, "a.csv", text, ""), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "a a|b b");
    text = "text,label\nw,\"[1, 0]\"\nw,[]\n";
    assert_open_fails(
        f, options_for(write_file(f, "list.csv", text)), SNUG_E_INPUT,
        "list.csv:2: the label \"[1, 0]\" looks like a list: write several labels as lists of JSON Lines");
    assert_classes(f, open_labels(f, "list.csv", text, ""), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL,
                   "[1, 0] []");
    assert_classes(f, open_labels(f, "short.csv", "text,label\nw,[\nw,]\nw,[a\nw,a]\n", NULL), SNUG_REGRESSION_AUTO,
                   SNUG_PROBLEM_SINGLE_LABEL, "[ [a ] a]");
    assert_classes(f, open_labels(f, "b.csv", "text,label\nw,a; b\nw,c|d\n", "; "), SNUG_REGRESSION_AUTO,
                   SNUG_PROBLEM_MULTI_LABEL, "a b c|d");
}

FIXTURE_TEST(test_multi_hot) {
    static const char hot[] = "{\"text\":\"w\",\"label\":[0,1,1]}\n{\"text\":\"w\",\"label\":[0,0,0]}\n"
                              "{\"text\":\"w\",\"label\":[1,0,0]}\n";
    char *names[] = {"x", "y", "z"};
    struct snug_labels model = {.problem = SNUG_PROBLEM_MULTI_LABEL, .count = 3, .names = names}, data;
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    int64_t count;
    bool same;
    assert_classes(f, open_labels(f, "a.jsonl", hot, NULL), SNUG_REGRESSION_AUTO, SNUG_PROBLEM_MULTI_LABEL,
                   "LABEL_0 LABEL_1 LABEL_2");
    struct snug_dataset *dataset = open_labels(f, "a.jsonl", hot, NULL);
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_MULTI_HOT);
    assert_int_equal(snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_AUTO, &data), SNUG_OK);
    assert_int_equal(snug_labels_serve(f->ctx, dataset, &model, &data, &same), SNUG_OK);
    assert_true(same);
    model.problem = SNUG_PROBLEM_SINGLE_LABEL;
    assert_int_equal(snug_labels_serve(f->ctx, dataset, &model, &data, &same), SNUG_OK);
    assert_false(same);
    model.problem = SNUG_PROBLEM_MULTI_LABEL;
    model.count = 2;
    assert_int_equal(snug_labels_serve(f->ctx, dataset, &model, &data, &same), SNUG_OK);
    assert_false(same);
    snug_labels_free(&data);
    model.count = 3;
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_OK);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
    assert_int_equal(row.label_count, 2);
    assert_int_equal(dataset->classes[row.labels[0]], 1);
    assert_int_equal(dataset->classes[row.labels[1]], 2);
    assert_int_equal(snug_dataset_count_labels(f->ctx, dataset, 1, &count), SNUG_OK);
    assert_true(snug_dataset_is_labelled(dataset, count)); /* none of the classes is a label, too */
    model.count = 2;
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT,
                  "lists of 3 zeros and ones, but the model has 2 classes");
    assert_failed(f, snug_labels_of(f->ctx, dataset, SNUG_REGRESSION_YES, &data), SNUG_E_INPUT, "lists");
    /* Of a model whose classes are called by numbers the same lists may be classes. */
    char *numbers[] = {"0", "1", "2"};
    model.count = 3;
    model.names = numbers;
    assert_failed(
        f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT,
        "either a zero or one for each class, or the numbers 0 and 1, which are names of the model's classes");
    numbers[0] = "a";
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT, "write names as text");
    model.problem = SNUG_PROBLEM_SINGLE_LABEL;
    assert_failed(f, snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_E_INPUT, "gives each text one label");
    snug_dataset_close(dataset);
    free(buffer.data);

    /* Other numbers are numbers of classes. */
    assert_classes(
        f, open_labels(f, "c.jsonl", "{\"text\":\"w\",\"label\":[0,2]}\n{\"text\":\"w\",\"label\":[1,0]}\n", NULL),
        SNUG_REGRESSION_AUTO, SNUG_PROBLEM_MULTI_LABEL, "0 1 2");
    assert_classes(
        f, open_labels(f, "d.jsonl", "{\"text\":\"w\",\"label\":[0,1]}\n{\"text\":\"w\",\"label\":\"x\"}\n", NULL),
        SNUG_REGRESSION_AUTO, SNUG_PROBLEM_MULTI_LABEL, "0 1 x");
}

/* As transformers wants multi-hot labels; and what was damaged. */
FIXTURE_TEST(test_real_multi_hot) {
    struct snug_row_buffer buffer = {0};
    struct snug_dataset_row row;
    char *names[] = {"x", "y", "z"};
    const struct snug_labels model = {.problem = SNUG_PROBLEM_MULTI_LABEL, .count = 3, .names = names};
    struct snug_dataset *dataset = open_labels(
        f, "real.jsonl", "{\"text\":\"w\",\"label\":[1.0,0.0,1.0]}\n{\"text\":\"w\",\"label\":[0,1,1.0]}\n", NULL);
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_MULTI_HOT);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_OK);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 0, &buffer, &row), SNUG_OK);
    assert_int_equal(row.label_count, 2);
    assert_int_equal(dataset->classes[row.labels[0]], 0);
    assert_int_equal(dataset->classes[row.labels[1]], 2);
    assert_int_equal(snug_dataset_read(f->ctx, dataset, 1, &buffer, &row), SNUG_OK);
    assert_int_equal(dataset->classes[row.labels[0]], 1);
    snug_dataset_close(dataset);
    free(buffer.data);
    static const struct {
        const char *first, *second, *says;
    } refused[] = {
        {"[0,1]", "[0,1,1]", "refused.jsonl:2: the label is a list of 3 zeros and ones, and those before have 2: give"},
        {"[1]", "[0]", NULL}, /* lists of one class each */
        {"[0,1]", "[1]", "refused.jsonl:2: the label is a list of 1 zeros and ones"},
        {"[1,0.5]", "[1,0]", "refused.jsonl:1: the label is a list that holds 0.5: give zeros and ones"},
        {"[0,1]", "[0,10]", NULL},
        {"[2,1]", "[0,1,1]", "refused.jsonl:2: the label is a list that holds 1 twice: give zeros and ones"},
        {"[\"b\",\"b\"]", "[\"c\"]", NULL},
        {"[\"b\",\"c|d\"]", "[\"c\"]", "or a list of strings or numbers, not a list with an item that holds '|'"},
        {"[\"b\",\"\"]", "[\"c\"]", "not a list with an empty item"},
        {"[\"b\",[]]", "[\"c\"]", "not a list of other values"},
        {"{}", "1", "not an object"},
        {"[1.0,0.0]", "[0.0,0.5]",
         "refused.jsonl:2: the label is not a list of zeros and ones, as those of other rows"},
        {"\"b\"", "[]}\n{\"text\":\"w\",\"label\":[1.0,0.0]",
         "refused.jsonl:1: the label is not a list of zeros and ones"},
        {"[0,1]", "[0,1,1]}\n{\"text\":\"w\",\"label\":[1,1,1,1]",
         "refused.jsonl:2: the label is a list of 3 zeros and ones"},
        {"[\"b\"]", "[\"a name of a class that is longer than every number can be, whatever its form\"]", NULL},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"text\":\"w\",\"label\":%s}\n{\"text\":\"w\",\"label\":%s}\n", refused[i].first,
                 refused[i].second);
        if (refused[i].says)
            assert_open_fails(f, options_for(write_file(f, "refused.jsonl", text)), SNUG_E_INPUT, refused[i].says);
        else
            snug_dataset_close(open_labels(f, "refused.jsonl", text, NULL));
    }
}

/* Names decide before values do: no header takes the text for the label, or the label for the text. */
static const struct {
    const char *name, *text;
    enum snug_task task;
    const char *columns; /* NULL: error */
    const char *says;
} headers[] = {
    {"a.csv", "id,label,text\n1,x,w1\n2,y,w2\n", SNUG_TASK_CLASSIFICATION, "text > label (id)", NULL},
    {"b.csv", "label,sentence\nw1,w2\nw3,w4\n", SNUG_TASK_CLASSIFICATION, "sentence > label", NULL},
    {"c.csv", "text,labels\nw1,x\nw2,y\n", SNUG_TASK_CLASSIFICATION, "text > labels", NULL},
    {"d.csv", "Label,Text\nx,w1\ny,w2\n", SNUG_TASK_CLASSIFICATION, "Text > Label", NULL},
    {"e.csv", "id, text, label\n1, w1, x\n2, w2, y\n", SNUG_TASK_CLASSIFICATION, " text >  label (id)", NULL},
    {"f.csv", "premise,hypothesis,gold_label\nw1,w2,x\nw1,w3,y\n", SNUG_TASK_CLASSIFICATION,
     "premise + hypothesis > gold_label", NULL},
    {"g.tsv", "gold_label\tsentence1\tsentence2\tpairID\nx\tw1\tw2\t7\ny\tw1\tw3\t7\n", SNUG_TASK_CLASSIFICATION,
     "sentence1 + sentence2 > gold_label (pairID)", NULL},
    {"h.csv", "labels,label,text\na,x,w1\nb,y,w2\n", SNUG_TASK_CLASSIFICATION, "text > label (labels)", NULL},
    {"i.csv", "label_text,label,text\na,x,w1\nb,y,w2\n", SNUG_TASK_CLASSIFICATION, "text > label (label_text)", NULL},
    {"j.csv", "Sentence1,SENTENCE2,Label\nw1,w2,x\nw1,w3,y\n", SNUG_TASK_CLASSIFICATION,
     "Sentence1 + SENTENCE2 > Label", NULL},
    {"k.jsonl", "{\"labels\": [\"x\"], \"text\": \"w1\"}\n", SNUG_TASK_CLASSIFICATION, "text > labels", NULL},
    {"l.csv", "text,score\nw1,1.5\nw2,2\n", SNUG_TASK_CLASSIFICATION, NULL,
     "Give the right one, as in --label_column_name \"score\""},
    {"m.csv", "target,tweet\n1,w1\n0,w2\n", SNUG_TASK_CLASSIFICATION, NULL,
     "its columns are: target, tweet. Give the right one, as in --label_column_name \"target\""},
    {"n.jsonl", "{\"id\": 1, \"context\": \"w1\", \"question\": \"w2\", \"answers\": {\"text\": [\"w1\"]}}\n",
     SNUG_TASK_CLASSIFICATION, NULL, "(id, context, question, answers) are those of question answering"},
    {"o.csv", "Question,Context,Answer\nw1,w2,w3\n", SNUG_TASK_CLASSIFICATION, NULL,
     "question answering: give --task question-answering"},
    {"p.csv", "question,context,label\nw1,w2,x\nw1,w2,y\n", SNUG_TASK_CLASSIFICATION, NULL,
     "which column is the text: question, context"},
    {"q.csv", "id,comment,toxic,insult\n1,w1,0,1.0\n2,w2,1,False\n", SNUG_TASK_CLASSIFICATION, NULL,
     "or --label_column_name toxic,insult if these say with 1 which classes a row has"},
    {"va.csv", "comment,toxic,insult\n", SNUG_TASK_CLASSIFICATION, NULL,
     "Give the right one with --label_column_name, or"},
    {"vb.csv", "question,answer\nw1,w2\n", SNUG_TASK_CLASSIFICATION, NULL, "there is no label column"},
    {"vc.csv", "question,context\nw1,w2\n", SNUG_TASK_CLASSIFICATION, NULL, "there is no label column"},
    {"vd.jsonl", "{\"w\": [\"w1\"], \"ner_tags\": [\"O\"], \"n\": 1}\n", SNUG_TASK_CLASSIFICATION, NULL,
     "or on tags of words with --task ner"},
    {"ve.csv", " ,text,label\n1,w1,x\n1,w2,y\n", SNUG_TASK_CLASSIFICATION, "text > label (\" \")", NULL},
    {"r.csv", "comment,toxic\nw1,0\nw2,1\n", SNUG_TASK_CLASSIFICATION, NULL,
     "Give the right one with --label_column_name, or train without"},
    {"s.jsonl", "{\"tokens\": [\"w1\"], \"ner_tags\": [\"O\"]}\n{\"tokens\": [\"w1\"], \"ner_tags\": [\"O\"]}\n",
     SNUG_TASK_CLASSIFICATION, NULL, "or on tags of words with --task ner"},
    {"t.jsonl", "{\"words\": [\"w1\"], \"pos\": [\"O\"]}\n{\"words\": [\"w1\"], \"pos\": [\"O\"]}\n",
     SNUG_TASK_CLASSIFICATION, NULL, "with --task ner"},
    {"u.jsonl", "{\"tokens\": [\"w1\"], \"labels\": [\"O\"]}\n{\"tokens\": [\"w1\"], \"labels\": [\"O\"]}\n",
     SNUG_TASK_CLASSIFICATION, NULL, "its column \"tokens\" holds lists: if they are words with tags, give --task ner"},
    {"a.jsonl", "{\"id\": 1, \"words\": [\"w1\"], \"tags\": [\"O\"]}\n", SNUG_TASK_TOKEN_CLASSIFICATION,
     "words > tags (id)", NULL},
    {"b.jsonl", "{\"tags\": [\"O\"], \"words\": [\"w1\"]}\n", SNUG_TASK_TOKEN_CLASSIFICATION, "words > tags", NULL},
    {"c.jsonl", "{\"label\": [\"O\"], \"text\": [\"w1\"]}\n", SNUG_TASK_TOKEN_CLASSIFICATION, "text > label", NULL},
    {"d.jsonl", "{\"pos\": [1], \"sentence\": [\"w1\"]}\n", SNUG_TASK_TOKEN_CLASSIFICATION, "sentence > pos", NULL},
    {"e.jsonl", "{\"id\": \"7\", \"a\": [\"w1\"], \"b\": [\"O\"], \"c\": 2}\n", SNUG_TASK_TOKEN_CLASSIFICATION,
     "a > b (id, c)", NULL},
    {"f.jsonl", "{\"pos_tags\": [4], \"chunk_tags\": [5], \"ner_tags\": [0], \"tokens\": [\"w1\"]}\n",
     SNUG_TASK_TOKEN_CLASSIFICATION, "tokens > ner_tags (pos_tags, chunk_tags)", NULL},
    {"g.jsonl", "{\"a\": null, \"tokens\": null, \"tags\": null}\n{\"tokens\": [\"w1\"], \"tags\": [\"O\"]}\n",
     SNUG_TASK_TOKEN_CLASSIFICATION, NULL, "g.jsonl:1: the row has no"},
    {"h.jsonl", "{\"text\": \"w1\", \"label\": \"x\"}\n", SNUG_TASK_TOKEN_CLASSIFICATION, NULL,
     "there is no column of words, which are lists of strings; its columns are: text, label"},
    {"i.jsonl", "{\"tokens\": [\"w1\"], \"note\": \"x\"}\n", SNUG_TASK_TOKEN_CLASSIFICATION, NULL,
     "there is no label column \"ner_tags\"; its columns are: tokens, note"},
    {"a.csv", "label,content\nw1,w2\nw3,w4\n", SNUG_TASK_MLM, "content (label)", NULL},
    {"b.csv", "id,gold_label,content\n1,w1,w2\n2,w3,w4\n", SNUG_TASK_MLM, "content (id, gold_label)", NULL},
};

FIXTURE_TEST(test_headers) {
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct snug_dataset_options options = options_for(write_file(f, headers[i].name, headers[i].text));
        options.task = headers[i].task;
        options.line_by_line = true;
        options.need_labels = options.task != SNUG_TASK_MLM;
        if (headers[i].columns)
            assert_columns(f, options, headers[i].columns);
        else
            assert_open_fails(f, options,
                              strstr(headers[i].says, "question answering") ? SNUG_E_UNSUPPORTED : SNUG_E_INPUT,
                              headers[i].says);
    }
    /* Names with blanks, which can hardly be seen, are in quotes; a name of an argument is not guessed. */
    struct snug_dataset_options options = options_for(write_file(f, "blank.csv", "text, class ,n:1\nw1,x,2\nw2,y,2\n"));
    options.label_column = "class";
    assert_open_fails(
        f, options, SNUG_E_INPUT,
        "there is no label column \"class\"; its columns are: text, \" class \", n:1. Give the right one, as "
        "in --label_column_name \" class \"");
    options.label_column = " class ";
    assert_columns(f, options, "text >  class  (n:1)");
}

/* The classes of a data set's rows: "a b; ; c". */
static const char *flags_of(struct fixture *f, struct snug_dataset *dataset) {
    static char text[256];
    struct snug_row_buffer buffer = {0};
    text[0] = '\0';
    for (int64_t row = 0; row < snug_dataset_rows(dataset); row++) {
        struct snug_dataset_row read;
        assert_int_equal(snug_dataset_read(f->ctx, dataset, row, &buffer, &read), SNUG_OK);
        for (int64_t i = 0; i < read.label_count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                     snug_dataset_raw_label(dataset, read.labels[i]));
        strcat(text, row + 1 < snug_dataset_rows(dataset) ? "; " : "");
    }
    free(buffer.data);
    return text;
}

/* Several labels as a column of zeros and ones for each class. */
static const struct {
    const char *name, *text, *label;
    const char *flags, *says; /* NULL: error */
} flag_columns[] = {
    {"a.csv", "text,toxic,insult,threat\nw1,0,1,0\nw2,0,0,0\nw3,1,1,0\n", "toxic,insult,threat",
     "insult; ; toxic insult", NULL},
    {"b.csv", "text,toxic,insult\nw1,0.0,1.0\nw2,True,false\n", "toxic,insult", "insult; toxic", NULL},
    {"c.tsv", "toxic\ttext\tinsult\n1\tw1\t1\n0\tw2\t0\n", "insult, toxic", "insult toxic; ", NULL},
    {"d.jsonl", "{\"text\": \"w1\", \"a\": true, \"b\": 0}\n{\"text\": \"w2\", \"a\": 1.0, \"b\": \"1\"}\n", "a,b",
     "a; a b", NULL},
    {"e.csv", "text,\"a,b\"\nw1,x\nw2,y\n", "a,b", "x; y", NULL}, /* a column of that name */
    {"f.csv", "text,a,b\nw1,0,2\n", "a,b", NULL, "f.csv:2: the column \"b\" holds \"2\", not 0 or 1"},
    {"g.csv", "text,a,b\nw1,0,1\nw1,,1\n", "a,b", NULL, "g.csv:3: the column \"a\" holds nothing, not 0 or 1"},
    {"h.jsonl", "{\"text\": \"w1\", \"a\": 1, \"b\": null}\n", "a,b", NULL, "the column \"b\" holds nothing"},
    {"i.jsonl", "{\"text\": \"w1\", \"a\": 1, \"b\": [1]}\n", "a,b", NULL, "the column \"b\" holds \"1\", not"},
    {"j.csv", "text,a,b\nw1,-1,-1\n", "a,b", NULL, "the column \"a\" holds \"-1\""},
    {"k.csv", "text,a,b\nw1,0,1\n", "a,c", NULL,
     "--label_column_name a,c: there is no column \"c\"; its columns are: text"},
    {"l.csv", "text,a,b\nw1,0,1\n", "a,b,a", NULL, "--label_column_name a,b,a: the column \"a\" is there twice"},
    {"m.csv", "text,a,b\nw1,0,1\n", "a,text", NULL, "the column \"text\" holds \"w1\""},
};

FIXTURE_TEST(test_flags) {
    for (size_t i = 0; i < sizeof flag_columns / sizeof *flag_columns; i++) {
        struct snug_dataset_options options = options_for(write_file(f, flag_columns[i].name, flag_columns[i].text));
        options.label_column = flag_columns[i].label;
        if (strcmp(flag_columns[i].name, "m.csv") == 0) options.text_column = "b";
        for (int times = 0; times < 2 && flag_columns[i].flags; times++) {
            struct snug_dataset *dataset = open_with(f, options);
            assert_string_equal(flags_of(f, dataset), flag_columns[i].flags);
            snug_dataset_close(dataset);
        }
        if (!flag_columns[i].flags)
            assert_open_fails(f, options, strstr(flag_columns[i].says, "twice") ? SNUG_E_USAGE : SNUG_E_INPUT,
                              flag_columns[i].says);
    }

    /* The classes are the columns, in their order, also one that no row has; lists of names mean the same classes. */
    struct snug_dataset_options options = options_for(path_of(f, "a.csv"));
    options.label_column = "toxic,insult,threat";
    assert_columns(f, options, "text > toxic,insult,threat");
    struct snug_dataset *dataset = open_with(f, options);
    assert_int_equal(snug_dataset_label_form(dataset), SNUG_LABELS_COLUMNS);
    assert_int_equal(snug_dataset_columns(dataset)->flags, 3);
    assert_classes(f, dataset, SNUG_REGRESSION_AUTO, SNUG_PROBLEM_MULTI_LABEL, "toxic insult threat");
    assert_refused(f, open_with(f, options), SNUG_REGRESSION_YES, "its labels are lists");
    char *names[] = {"insult", "threat", "toxic"};
    const struct snug_labels model = {.problem = SNUG_PROBLEM_MULTI_LABEL, .count = 3, .names = names};
    dataset = open_with(f, options);
    assert_int_equal(snug_dataset_bind_labels(f->ctx, dataset, &model), SNUG_OK);
    assert_int_equal(dataset->classes[0], 2);
    assert_int_equal(dataset->classes[1], 0);
    snug_dataset_close(dataset);
    options.text_column = "insult";
    assert_open_fails(f, options, SNUG_E_USAGE, "the column \"insult\" is the label");
}

/* A file for a prediction may hold something else, or lack the columns of the training. */
FIXTURE_TEST(test_flags_of_other_files) {
    struct snug_dataset *dataset;
    struct snug_dataset_options options, others;
    char *trained_label = "toxic,insult,threat", *text = "text";
    const struct snug_used_columns trained = {.text = {text}, .texts = 1, .label = trained_label};
    others = options_for(write_file(f, "n.csv", "text,toxic,insult,threat\nw1,-1,-1,-1\nw2,1,0,0\n"));
    others.need_labels = false;
    others.trained = &trained;
    dataset = open_with(f, others);
    assert_string_equal(flags_of(f, dataset), "; toxic");
    snug_dataset_close(dataset);
    others.path = write_file(f, "o.csv", "text,toxic\nw1,1\n");
    assert_columns(f, others, "text (toxic)");
    others.path = write_file(f, "p.csv", "text,label\nw1,toxic\n");
    assert_columns(f, others, "text > label");

    /* A prediction's file may lack a column that an argument names. */
    others = options_for(write_file(f, "r.jsonl", "{\"tokens\": [\"w1\"], \"a\": [\"O\"], \"b\": 1}\n"));
    others.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    others.label_column = "c";
    others.need_labels = false;
    assert_columns(f, others, "tokens (a, b)");
    others.label_column = NULL;
    assert_columns(f, others, "tokens > a (b)");
    others.path = write_file(f, "s.jsonl", "{\"tokens\": [\"w1\"], \"b\": 1}\n");
    assert_columns(f, others, "tokens (b)");

    /* More names than a message has. */
    char wide[2048] = "text", ones[2048] = "w1";
    for (int i = 0; i < 20; i++) {
        snprintf(wide + strlen(wide), sizeof wide - strlen(wide), ",a_name_of_some_length_%d", i);
        strcat(ones, ",1");
    }
    strcat(wide, "\n");
    strcat(wide, ones);
    strcat(wide, "\n");
    assert_open_fails(f, options_for(write_file(f, "wide.csv", wide)), SNUG_E_INPUT,
                      ". Give the right one with --label_column_name, or train");

    /* Tags are in one column. */
    others = options_for(write_file(f, "q.jsonl", "{\"tokens\": [\"w1\"], \"a\": [\"O\"], \"b\": [\"O\"]}\n"));
    others.task = SNUG_TASK_TOKEN_CLASSIFICATION;
    others.label_column = "a,b";
    assert_open_fails(f, others, SNUG_E_INPUT, "there is no label column \"a,b\"");

    char head[4096] = "text", row[4096] = "w1", label[4096] = "";
    for (int i = 0; i <= SNUG_FLAGS_MOST; i++) {
        snprintf(head + strlen(head), sizeof head - strlen(head), ",c%d", i);
        snprintf(label + strlen(label), sizeof label - strlen(label), "%sc%d", i ? "," : "", i);
        strcat(row, ",1");
    }
    strcat(head, "\n");
    strcat(head, row);
    strcat(head, "\n");
    options = options_for(write_file(f, "many.csv", head));
    options.label_column = label;
    assert_open_fails(f, options, SNUG_E_UNSUPPORTED,
                      "more than 256 columns of zeros and ones: write the classes of a row");
}

/* As run_classification.py, which has str(label) for a class's name. */
FIXTURE_TEST(test_booleans) {
    assert_classes(
        f, open_labels(f, "bool.jsonl", "{\"text\":\"w\",\"label\":true}\n{\"text\":\"w\",\"label\":false}\n", NULL),
        SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "False True");
    assert_classes(f, open_labels(f, "real.jsonl", "{\"text\":1.5,\"label\":1}\n{\"text\":2,\"label\":2}\n", NULL),
                   SNUG_REGRESSION_AUTO, SNUG_PROBLEM_SINGLE_LABEL, "1 2");
    assert_open_fails(f, options_for(write_file(f, "text.jsonl", "{\"text\":true,\"label\":false}\n")), SNUG_E_INPUT,
                      "the text must be a string");
}

/* A list of another form after the rows that have decided. */
FIXTURE_TEST(test_late_list) {
    const char *path = path_of(f, "late.jsonl");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < SNUG_PEEK_ROWS + 1; i++)
        fprintf(file, "{\"text\": \"w1\", \"label\": %s}\n", i == 3 ? "null" : "[1, 0]");
    fputs("{\"text\": \"w1\", \"label\": [1, 0, 1]}\n", file);
    assert_int_equal(fclose(file), 0);
    struct snug_dataset_options options = options_for(path);
    options.need_labels = false;
    assert_open_fails(f, options, SNUG_E_INPUT,
                      "late.jsonl:66: the label is not a list of 2 zeros and ones, as the first rows' are");
}

/* Long rows end the peek early; the rows come back once, in order. */
FIXTURE_TEST(test_peek) {
    const char *path = path_of(f, "long.csv");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text,label\n", file);
    for (int row = 0; row < 10; row++) {
        for (int i = 0; i < 1 << 18; i++) fputc('x', file);
        fprintf(file, ",%d\n", row);
    }
    assert_int_equal(fclose(file), 0);
    struct snug_reader *reader;
    struct snug_peek peek;
    struct snug_row row;
    assert_int_equal(snug_reader_open(f->ctx, path, &(struct snug_reader_options){0}, &reader), SNUG_OK);
    assert_int_equal(snug_peek_open(f->ctx, reader, -1, &peek), SNUG_OK);
    assert_int_equal(peek.count, 4);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(snug_peek_next(&peek, &row), SNUG_OK);
        assert_int_equal(row.index, i);
        assert_int_equal(row.fields[0].length, 1 << 18);
        assert_int_equal(atoi(row.fields[1].text), i);
    }
    assert_int_equal(snug_peek_next(&peek, &row), SNUG_END);
    snug_peek_free(&peek);
    snug_reader_close(reader);
}

TEST_MAIN(NULL, NULL)
