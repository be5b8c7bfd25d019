/* SPDX-License-Identifier: Apache-2.0 */
/* Names of classes with any characters: no line of text, CSV, YAML or Markdown can be forged by them. */
#include <ctype.h>

#include "core/utf8.h"
#include "program.h"

#define FIXTURE struct fixture *f, set_up, tear_down

/* In CSV and JSON. The names of metrics begin with eval_ and end with _f1. */
static const char *const names[] = {
    "a\nb",
    "x\neval_accuracy = 0.99",
    "accuracy = 0.99 #",
    "@a",
    "*",
    "topic: x",
    "- item",
    "say \"hi\", you",
    "it's', 'eval_accuracy': 1",
    "back\\slash",
    "<b>bold</b>",
    "col|umn",
    "\x1b[31mred",
    "tab\there",
    "line\xe2\x80\xa8separator",
    "right\xe2\x80\xaeleft", /* NOLINT(misc-misleading-bidirectional): an override, as an attacker would write it */
    "next\xc2\x85line",
    "not a character \xef\xbf\xbe",
    "\xef\xbb\xbfmark",
    "k\xc3\xa4se",
    "---",
    "...",
    "{a: b}",
    "[a]",
    "&anchor !tag %d",
    "yes",
    "```",
    "$x$ `code`",
    "plain_name-1",
};
enum { NAMES = sizeof names / sizeof *names };

#define TINY                                                                                                           \
    "train --config_name model --tokenizer_name model --max_steps 4 --threads 1 --device cpu --save_strategy no "      \
    "--per_device_train_batch_size 8 --eval_strategy steps --eval_steps 2 "

static void put_csv_field(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text; text++) fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', file);
}

static void write_rows_of(const struct fixture *f, const char *path, const char *const *labels, int count) {
    FILE *file = fopen(path_of(f, "%s", path), "w");
    assert_non_null(file);
    fputs("sentence,label\n", file);
    for (int row = 0; row < 2 * count; row++) {
        fprintf(file, "w%d w%d,", row % 20, row % 7);
        put_csv_field(file, labels[row % count]);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_rows(const struct fixture *f) { write_rows_of(f, "odd.csv", names, NAMES); }

/* ---- lines ------------------------------------------------------------------------------------------------------ */

static void assert_no_controls(const char *text) {
    char shown[64];
    for (const char *at = text; *at; at++) {
        if (*at == '\n') continue;
        bool whole;
        const size_t step = snug_utf8_sequence((const unsigned char *)at, strlen(at), &whole);
        snug_escape(shown, sizeof shown, at, step);
        if (strncmp(shown, at, step) != 0) fail_msg("a control character at: %.60s", shown);
        at += step - 1;
    }
}

/* Where a name ends: a plain one, or one in quotes. */
static const char *after_name(const char *line) {
    if (*line != '"') return line + strcspn(line, " \"\\=:'\n");
    for (line++; *line && *line != '"' && *line != '\n'; line++) line += *line == '\\';
    return *line == '"' ? line + 1 : line;
}

/* "NAME = NUMBER" lines, then the confusion matrix. Returns the number of metrics. */
static size_t check_eval_lines(const char *text, size_t classes) {
    size_t metrics = 0, accuracies = 0;
    assert_no_controls(text);
    for (; *text && strncmp(text, "confusion matrix", 16) != 0; metrics++) {
        const char *end = after_name(text);
        accuracies += strncmp(text, "eval_accuracy =", 15) == 0;
        if (strncmp(end, " = ", 3) != 0) fail_msg("not a metric: %.80s", text);
        const size_t number = strspn(end + 3, "0123456789.e+-naif");
        if (number == 0 || end[3 + number] != '\n') fail_msg("not a number: %.80s", text);
        text = end + 4 + number;
    }
    assert_int_equal(accuracies, 1);
    if (!*text) return metrics;
    text += strcspn(text, "\n") + 1;
    for (size_t i = 0; i < classes; i++) {
        text += strspn(text, " 0123456789");
        const char *end = after_name(text);
        if (*end != '\n') fail_msg("not a class: %.80s", text);
        text = end + 1;
    }
    if (*text) fail_msg("more than the matrix: %s", text);
    return metrics;
}

FIXTURE_TEST(test_metrics_of_classes) {
    write_rows(f);
    free(run_well(f, TINY "--train_file odd.csv --validation_file odd.csv --label_separator none --class_metrics "
                          "--output_dir odd"));
    char *text = output_of(f, "stderr");
    size_t dicts = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) { /* Trainer's lines: one key each */
        if (strncmp(line, "{'eval_", 7) != 0) continue;
        const size_t length = strcspn(line, "\n");
        char copy[1 << 14];
        snprintf(copy, sizeof copy, "%.*s", (int)length, line);
        assert_null(strstr(copy, ", 'eval_accuracy': 1")); /* the quote before it has a backslash */
        dicts++;
    }
    assert_true(dicts >= 2);
    free(text);
    char *out = run_well(f, "eval --model_name_or_path odd --validation_file odd.csv --label_separator none "
                            "--class_metrics --threads 1 --device cpu --output_dir=");
    assert_true(check_eval_lines(out, 0) > 4 * NAMES);
    free(out);
}

/* At most 20 classes are printed as a matrix. */
FIXTURE_TEST(test_confusion_matrix) {
    FILE *file = fopen(path_of(f, "few.jsonl"), "w");
    assert_non_null(file);
    for (int row = 0; row < 24; row++) {
        json_t *object = json_pack("{s:s, s:s}", "sentence", row % 2 ? "w1 w2" : "w3", "label", names[row % 12]);
        assert_int_equal(json_dumpf(object, file, JSON_COMPACT), 0);
        json_decref(object);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
    free(
        run_well(f, TINY "--train_file few.jsonl --validation_file few.jsonl --label_separator none --output_dir few"));
    char *out = run_well(f, "eval --model_name_or_path few --validation_file few.jsonl --label_separator none "
                            "--class_metrics --threads 1 --device cpu --output_dir=");
    assert_true(check_eval_lines(out, 12) >= 4 * 12);
    assert_contains(out, " \"a\\x0ab\"\n");
    assert_contains(out, "\"eval_accuracy = 0.99 #_f1\" = ");
    assert_contains(out, "\"eval_say \\\"hi\\\", you_f1\" = ");
    free(out);
}

/* ---- predictions ------------------------------------------------------------------------------------------------ */

/* The fields of a CSV text (RFC 4180), whose rows must all have this many; calls take for each. */
static size_t read_csv(const char *text, size_t columns, char fields[][256]) {
    size_t rows = 0, column = 0;
    while (*text) {
        size_t length = 0;
        char field[256];
        const bool quoted = *text == '"';
        for (text += quoted; *text; text++) {
            if (quoted && *text == '"' && text[1] != '"') break;
            if (!quoted && (*text == ',' || *text == '\n')) break;
            if (quoted && *text == '"') text++;
            if (!quoted && *text == '"') fail_msg("a quote within a field: %.40s", text);
            assert_true(length < sizeof field - 1);
            field[length++] = *text;
        }
        field[length] = '\0';
        text += quoted;
        if (column == 1) strcpy(fields[rows], field);
        column++;
        if (*text == '\n') {
            assert_int_equal(column, columns);
            column = 0;
            rows++;
        } else if (*text != ',') {
            fail_msg("not the end of a field: %.40s", text);
        }
        text++;
    }
    return rows;
}

static bool is_name(const char *text) {
    for (size_t i = 0; i < NAMES; i++)
        if (strcmp(names[i], text) == 0) return true;
    return false;
}

FIXTURE_TEST(test_predictions) {
    static char fields[4 * NAMES][256];
    write_rows(f);
    free(run_well(f, TINY "--train_file odd.csv --validation_file odd.csv --label_separator none --output_dir odd"));
    const char *const words = "predict --model_name_or_path odd --test_file odd.csv --label_separator none --threads 1 "
                              "--device cpu --return_all_scores --output_dir results";
    char *out = run_well(f, words);
    assert_int_equal(read_csv(out, 3 + NAMES, fields), 2 * NAMES + 1);
    for (size_t row = 1; row <= 2 * NAMES; row++)
        if (!is_name(fields[row])) fail_msg("row %zu: the label is %s", row, fields[row]);
    free(out);
    /* Lines of index, tab, label: as many as there are rows. */
    char *text = read_text(f, path_of(f, "results/predict_results.txt"), NULL);
    size_t lines = 0, tabs = 0;
    for (const char *at = text; *at; at++) lines += *at == '\n', tabs += *at == '\t';
    assert_int_equal(lines, 2 * NAMES + 1);
    assert_int_equal(tabs, 2 * NAMES + 1);
    free(text);
}

FIXTURE_TEST(test_tags) {
    static const char *const tags[] = {"B-a\nb", "I-two words", "O", "B-x\neval_f1 = 1", "B-tab\there"};
    FILE *file = fopen(path_of(f, "tags.jsonl"), "w");
    assert_non_null(file);
    for (int row = 0; row < 20; row++) {
        json_t *object = json_pack("{s:[s, s, s], s:[s, s, s]}", "tokens", "w1", "w2", "w3", "ner_tags", tags[row % 5],
                                   tags[(row + 1) % 5], tags[(row + 3) % 5]);
        assert_int_equal(json_dumpf(object, file, JSON_COMPACT), 0);
        json_decref(object);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
    free(run_well(f, TINY "--task ner --train_file tags.jsonl --validation_file tags.jsonl --learning_rate 1e-2 "
                          "--return_entity_level_metrics --output_dir tags"));
    char *out = run_well(f, "eval --model_name_or_path tags --validation_file tags.jsonl --threads 1 --device cpu "
                            "--return_entity_level_metrics --output_dir=");
    check_eval_lines(out, 0);
    free(out);
    out = run_well(f, "predict --model_name_or_path tags --test_file tags.jsonl --threads 1 --device cpu --output_dir "
                      "results");
    char *text = read_text(f, path_of(f, "results/predictions.txt"), NULL);
    assert_string_equal(text, out);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        size_t blanks = 0;
        for (const char *at = line; *at != '\n'; at++) blanks += *at == ' ';
        if (blanks != 2) fail_msg("not three tags: %.60s", line);
    }
    assert_no_controls(text);
    free(text);
    free(out);
}

/* ---- the model card --------------------------------------------------------------------------------------------- */

/* Whether a line of the front matter is a string of YAML in quotes, of printable characters, with nothing after it. */
static bool is_quoted(const char *text, size_t length) {
    if (length < 2 || *text != '"') return false;
    for (size_t i = 1; i + 1 < length; i++) {
        if (text[i] == '"') return false;
        if (text[i] != '\\') continue;
        const char kind = text[++i];
        const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 0;
        if (!digits && kind != '"' && kind != '\\') return false;
        for (size_t k = 0; k < digits; k++)
            if (!isxdigit((unsigned char)text[i + 1 + k])) return false;
    }
    return text[length - 1] == '"';
}

FIXTURE_TEST(test_card) {
    write_rows(f);
    free(run_well(f, TINY "--train_file odd.csv --validation_file odd.csv --label_separator none --class_metrics "
                          "--output_dir odd"));
    char *text = read_text(f, path_of(f, "odd/README.md"), NULL);
    assert_no_controls(text);
    const char *end = strstr(text, "\n---\n"), *mark = strstr(text, "\xef\xbb\xbf"),
               *none = strstr(text, "\xef\xbf\xbe");
    assert_true(end && (!mark || mark > end) && (!none || none > end)); /* YAML does not take them */
    static const char *const keys[] = {
        "library_name: transformers", "tags:", "metrics:", "model-index:", "  results: []", "- generated_from_trainer"};
    assert_true(strncmp(text, "---\n", 4) == 0);
    const char *line = text + 4;
    size_t items = 0;
    for (; strncmp(line, "---\n", 4) != 0; line += strcspn(line, "\n") + 1) {
        const size_t length = strcspn(line, "\n");
        bool known = strncmp(line, "- name: ", 8) == 0 && is_quoted(line + 8, length - 8);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known |= strlen(keys[i]) == length && strncmp(line, keys[i], length) == 0;
        if (strncmp(line, "- ", 2) == 0 && !known) {
            size_t plain = 2;
            while (isalnum((unsigned char)line[plain]) || line[plain] == '_' || line[plain] == '-') plain++;
            known = (isalpha((unsigned char)line[2]) && plain == length) || is_quoted(line + 2, length - 2);
            items++;
        }
        if (!known) fail_msg("not YAML: %.*s", (int)length, line);
    }
    assert_true(items > 20);
    /* The head of the table has as many cells as the row of dashes. */
    const char *head = strstr(text, "\n| Training Loss |");
    assert_non_null(head);
    size_t bars[2] = {0, 0};
    for (int row = 0; row < 2; row++) {
        for (head++; *head != '\n'; head++) bars[row] += *head == '|' && head[-1] != '\\';
    }
    assert_int_equal(bars[0], bars[1]);
    assert_contains(text, "\n- \\$x\\$ \\`code\\` F1: ");
    assert_contains(text, "\n- \\\\x1b\\[31mred F1: ");
    assert_null(strstr(text, "<b>"));
    free(text);
    /* Of few classes all metrics are there; the folder's name has what YAML does not take. */
    static const char *const few[] = {"\xc3\xa9t\xc3\xa9", "topic: x", "@a", "a\nb", "~"};
    write_rows_of(f, "few.csv", few, 5);
    free(run_well(f, TINY "--train_file few.csv --validation_file few.csv --class_metrics --output_dir "
                          "a\xef\xbf\xbe\xef\xbf\xbf\xef\xbb\xbf"));
    text = read_text(f, path_of(f, "a\xef\xbf\xbe\xef\xbf\xbf\xef\xbb\xbf/README.md"), NULL);
    static const char *const parts[] = {"\n- \"@a_f1\"\n",
                                        "\n- \"a\\x0ab_f1\"\n",
                                        "\n- \"topic: x_f1\"\n",
                                        "\n- \"\xc3\xa9t\xc3\xa9_f1\"\n",
                                        "\n- name: \"a\\ufffe\\uffff\\ufeff\"\n",
                                        "\n- \xc3\xa9t\xc3\xa9 F1: ",
                                        "\n- Topic\\: x F1: "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_contains(text, parts[i]);
    free(text);
}

TEST_MAIN(NULL, NULL)
