/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli.h"

static snug_status put_metrics(struct cli *cli, const snug_metrics *metrics) {
    if (cli->json) {
        json_t *object = json_object();
        cli_add_metrics(&object, metrics);
        return cli_put_result(cli, object, 15);
    }
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < metrics->count; i++) {
        char value[64];
        snprintf(value, sizeof value, " = %.10g\n", metrics->items[i].value);
        cli_put(cli, metrics->items[i].name);
        status = cli_put(cli, value);
    }
    return status;
}

int command_eval(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        snug_metrics *metrics;
        snug_status status = snug_evaluate(cli.args, &cli.callbacks, &metrics);
        progress_end(&cli.progress);
        if (status == SNUG_OK && snug_args_rank(cli.args) == 0) status = put_metrics(&cli, metrics);
        snug_metrics_destroy(metrics);
        code = cli_finish(&cli, status);
        if (status != SNUG_OK) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}
