/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli.h"

struct embedding {
    struct cli *cli;
    bool compares, to_file;
};

static snug_status put_vector(struct cli *cli, const snug_prediction *row) {
    json_t *object = json_object(), *values = json_array();
    for (size_t i = 0; i < row->logits_count; i++) cli_append(&values, cli_real((double)row->logits[i]));
    cli_add(&object, "index", json_integer(row->index));
    cli_add(&object, "embedding", values);
    return cli_put_row(cli, object);
}

static snug_status put_similarity(struct cli *cli, const snug_prediction *row) {
    char text[64];
    if (cli->json) {
        json_t *object = json_object();
        cli_add(&object, "index", json_integer(row->index));
        cli_add(&object, "similarity", cli_real(row->score));
        return cli_put_row(cli, object);
    }
    if (!cli->headed) cli_put(cli, "index,similarity\n");
    cli->headed = true;
    snprintf(text, sizeof text, "%lld,%.9g\n", (long long)row->index, row->score);
    return cli_put(cli, text);
}

static snug_status on_row(void *user, const snug_prediction *row) {
    const struct embedding *e = user;
    if (e->to_file) return SNUG_OK; /* the library writes it */
    progress_end(&e->cli->progress);
    return e->compares ? put_similarity(e->cli, row) : put_vector(e->cli, row);
}

static int embed(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        struct embedding e = {.cli = &cli,
                              .compares = cli_argument_is(&cli, "similarity", "True"),
                              .to_file = snug_args_given(cli.args, "output_file")};
        cli_catch_signals(&cli);
        const snug_status status = snug_embed(cli.args, &cli.callbacks, on_row, &e);
        code = cli_finish(&cli, status);
        if (status != SNUG_OK) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}

int command_embed(int argc, char **argv) { return cli_name_model(argc, argv, embed); }
