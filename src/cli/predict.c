/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Whether a spreadsheet reads the text as a number. */
static bool is_number(const char *text) {
    char *end;
    if (text[strspn(text, "+-.0123456789eE")]) return false; /* strtod() accepts more: inf, 0x1p3 */
    (void)strtod(text, &end);                                /* only the end pointer is used */
    return end > text && !*end;
}

/* RFC 4180: a field with a comma, quote or line break is quoted, its own quotes doubled. With --csv_escape_formulas an
   apostrophe precedes a field that a spreadsheet would evaluate as a formula. */
static snug_status put_field(struct cli *cli, const char *text) {
    const bool quoted = text[strcspn(text, ",\"\r\n")];
    const bool formula = *text && strchr("=+-@\t\r", *text) && !is_number(text);
    snug_status status = quoted ? cli_put(cli, "\"") : SNUG_OK;
    if (cli->guarded && formula) status = cli_put(cli, "'");
    for (size_t length; *text; text += length) { /* a part begins with its quote, if there is one */
        length = 1 + strcspn(text + 1, "\"");
        if (*text == '"') cli_put(cli, "\"");
        status = cli_put_part(cli, text, length);
    }
    return quoted ? cli_put(cli, "\"") : status;
}

/* A column's name: a prefix, and a name that may need quotes. */
static void put_named(struct cli *cli, const char *prefix, const char *name) {
    char *whole = malloc(strlen(prefix) + strlen(name) + 1);
    if (whole) {
        sprintf(whole, "%s%s", prefix, name);
        put_field(cli, whole);
    } else {
        cli->write_error = ENOMEM;
    }
    free(whole);
}

/* Whether a column of the predictions has this name. */
static bool is_predicted(const snug_prediction *row, const char *name) {
    static const char *const always[] = {"index", "label", "score"};
    char text[32];
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(name, always[i]) == 0) return true;
    for (size_t i = 1; row->ranked && i < row->candidate_count; i++)
        for (size_t k = 1; k < sizeof always / sizeof *always; k++) {
            snprintf(text, sizeof text, "%s_%zu", always[k], i + 1);
            if (strcmp(name, text) == 0) return true;
        }
    for (size_t i = 0; !row->ranked && i < row->candidate_count; i++)
        if (strncmp(name, "score_", 6) == 0 && strcmp(name + 6, row->candidates[i]) == 0) return true;
    return false;
}

/* What follows the score, or its names: the classes' probabilities, or further tokens with theirs, then the kept
   columns. */
static void put_more(struct cli *cli, const snug_prediction *row, bool names) {
    char text[64];
    const bool tokens = row->ranked;
    for (size_t i = tokens; i < row->candidate_count; i++) {
        cli_put(cli, ",");
        if (names && tokens) {
            snprintf(text, sizeof text, "label_%zu,score_%zu", i + 1, i + 1);
            cli_put(cli, text);
        } else if (names) {
            put_named(cli, "score_", row->candidates[i]);
        } else {
            if (tokens) put_field(cli, row->candidates[i]);
            snprintf(text, sizeof text, "%s%.9g", tokens ? "," : "", row->candidate_scores[i]);
            cli_put(cli, text);
        }
    }
    for (size_t i = 0; i < row->column_count; i++) {
        cli_put(cli, ",");
        if (names) /* readers of CSV that go by names would take the last of two equal ones */
            put_named(cli, is_predicted(row, row->column_names[i]) ? "input_" : "", row->column_names[i]);
        else
            put_field(cli, row->columns[i] ? row->columns[i] : "");
    }
}

static snug_status put_csv(struct cli *cli, const snug_prediction *row) {
    char text[64];
    snprintf(text, sizeof text, "%lld,", (long long)row->index);
    cli_put(cli, text);
    put_field(cli, row->label);
    snprintf(text, sizeof text, ",%.9g", row->score);
    cli_put(cli, text);
    put_more(cli, row, false);
    return cli_put(cli, "\n");
}

static void add_columns(json_t **object, const snug_prediction *row) {
    json_t *columns = json_object();
    for (size_t i = 0; i < row->column_count; i++)
        cli_add(&columns, row->column_names[i], row->columns[i] ? cli_string(row->columns[i]) : json_null());
    if (row->column_count)
        cli_add(object, "columns", columns);
    else
        json_decref(columns);
}

/* The most probable tokens instead of the logits of a whole vocabulary. */
static void add_tokens(json_t **object, const snug_prediction *row) {
    json_t *top = json_array();
    for (size_t i = 0; i < row->candidate_count; i++) {
        json_t *one = json_object();
        cli_add(&one, "token", cli_string(row->candidates[i]));
        cli_add(&one, "score", cli_real(row->candidate_scores[i]));
        cli_append(&top, one);
    }
    cli_add(object, "top", top);
}

static void add_scores(json_t **object, const snug_prediction *row) {
    json_t *logits = json_array(), *scores = json_object();
    for (size_t i = 0; i < row->logits_count; i++) cli_append(&logits, cli_real((double)row->logits[i]));
    for (size_t i = 0; i < row->candidate_count; i++)
        cli_add(&scores, row->candidates[i], cli_real(row->candidate_scores[i]));
    cli_add(object, "logits", logits);
    if (row->candidate_count)
        cli_add(object, "scores", scores);
    else
        json_decref(scores);
}

static snug_status put_json(struct cli *cli, const snug_prediction *row) {
    json_t *object = json_object();
    cli_add(&object, "index", json_integer(row->index));
    cli_add(&object, "label", cli_string(row->label));
    cli_add(&object, "score", cli_real(row->score));
    if (row->ranked)
        add_tokens(&object, row);
    else
        add_scores(&object, row);
    add_columns(&object, row);
    return cli_put_row(cli, object);
}

/* As run_ner.py's predictions.txt: a line of tags. */
static snug_status put_tags(struct cli *cli, const snug_prediction *row) {
    cli->headed = true; /* no header line */
    cli_put(cli, row->label);
    return cli_put(cli, "\n");
}

static snug_status put_words_json(struct cli *cli, const snug_prediction *row) {
    json_t *object = json_object(), *words = json_array(), *tags = json_array(), *scores = json_array();
    for (size_t i = 0; i < row->word_count; i++) {
        if (row->words) cli_append(&words, cli_string(row->words[i]));
        cli_append(&tags, row->tags[i] ? cli_string(row->tags[i]) : json_null());
        cli_append(&scores, row->tags[i] ? cli_real(row->scores[i]) : json_null());
    }
    cli_add(&object, "index", json_integer(row->index));
    cli_add(&object, "words", words);
    cli_add(&object, "tags", tags);
    cli_add(&object, "scores", scores);
    add_columns(&object, row);
    return cli_put_row(cli, object);
}

/* row: NULL if there is none. Written with the first row, or at the end if there are no rows, so that a job that fails
 * early writes nothing. */
static snug_status put_heading(struct cli *cli, const snug_prediction *row) {
    if (cli->headed || cli->json) return SNUG_OK;
    cli->headed = true;
    cli_put(cli, "index,label,score");
    if (row) put_more(cli, row, true);
    return cli_put(cli, "\n");
}

static snug_status on_row(void *user, const snug_prediction *row) {
    struct cli *cli = user;
    progress_end(&cli->progress);
    if (cli->json) return row->tags ? put_words_json(cli, row) : put_json(cli, row);
    if (row->tags) return put_tags(cli, row);
    put_heading(cli, row);
    return put_csv(cli, row);
}

static int predict(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_status status = snug_predict(cli.args, &cli.callbacks, on_row, &cli);
        if (status == SNUG_OK && snug_args_rank(cli.args) == 0) status = put_heading(&cli, NULL);
        code = cli_finish(&cli, status);
        if (status != SNUG_OK) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}

int command_predict(int argc, char **argv) { return cli_name_model(argc, argv, predict); }
