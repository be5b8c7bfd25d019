/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* As a spreadsheet reads it. */
static bool is_number(const char *text) {
    char *end;
    if (text[strspn(text, "+-.0123456789eE")]) return false; /* strtod() knows more: inf, 0x1p3 */
    (void)strtod(text, &end);                                /* where it ends is all that counts */
    return end > text && !*end;
}

/* RFC 4180: a field with a comma, quote or line break is quoted, its own quotes doubled. With --csv_escape_formulas an
   apostrophe precedes what a spreadsheet would take for a formula. */
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

static snug_status put_csv(struct cli *cli, const snug_prediction *row) {
    char text[64];
    snprintf(text, sizeof text, "%lld,", (long long)row->index);
    cli_put(cli, text);
    put_field(cli, row->label);
    snprintf(text, sizeof text, ",%.9g\n", row->score);
    return cli_put(cli, text);
}

static snug_status put_json(struct cli *cli, const snug_prediction *row) {
    json_t *object = json_object(), *logits = json_array();
    for (size_t i = 0; i < row->logits_count; i++) cli_append(&logits, cli_real((double)row->logits[i]));
    cli_add(&object, "index", json_integer(row->index));
    cli_add(&object, "label", cli_string(row->label));
    cli_add(&object, "score", cli_real(row->score));
    cli_add(&object, "logits", logits);
    return cli_put_json(cli, object, 9); /* as many digits as an fp32 needs to be read back */
}

/* With the first row, or at the end where there is none, so that a job that fails at once writes nothing. */
static snug_status put_heading(struct cli *cli) {
    if (cli->headed || cli->json) return SNUG_OK;
    cli->headed = true;
    return cli_put(cli, "index,label,score\n");
}

static snug_status on_row(void *user, const snug_prediction *row) {
    struct cli *cli = user;
    progress_end(&cli->progress);
    if (cli->json) return put_json(cli, row);
    put_heading(cli);
    return put_csv(cli, row);
}

int command_predict(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_status status = snug_predict(cli.args, &cli.callbacks, on_row, &cli);
        if (status == SNUG_OK) status = put_heading(&cli);
        code = cli_finish(&cli, status);
    }
    cli_close(&cli);
    return code;
}
