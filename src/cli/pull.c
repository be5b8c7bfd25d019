/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

/* One line on stdout, for scripts: the folder. */
static snug_status put_result(struct cli *cli, const snug_pull_result *result) {
    if (!cli->json) {
        cli_put(cli, result->folder);
        return cli_put(cli, "\n");
    }
    json_t *object = json_object();
    cli_add(&object, "folder", cli_string(result->folder));
    cli_add(&object, "commit", cli_string(result->commit));
    cli_add(&object, "files", json_integer(result->files));
    cli_add(&object, "bytes", json_integer(result->bytes));
    cli_add(&object, "fetched_bytes", json_integer(result->fetched));
    return cli_put_json(cli, object, 15);
}

static int pull(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_pull_result *result;
        snug_status status = snug_pull(cli.args, &cli.callbacks, &result);
        progress_end(&cli.progress);
        if (status == SNUG_OK) status = put_result(&cli, result);
        snug_pull_result_destroy(result);
        code = cli_finish(&cli, status);
    }
    cli_close(&cli);
    return code;
}

int command_pull(int argc, char **argv) { return cli_name_model(argc, argv, pull); }
