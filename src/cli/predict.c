/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* RFC 4180: a field with a comma, quote or line break stands in quotes, its own quotes doubled. */
static snug_status put_field(struct cli *cli, const char *text) {
    if (!text[strcspn(text, ",\"\r\n")]) return cli_put(cli, text);
    cli_put(cli, "\"");
    for (; *text; text++) {
        char quoted[] = {*text, *text == '"' ? '"' : '\0', '\0'};
        cli_put(cli, quoted);
    }
    return cli_put(cli, "\"");
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
