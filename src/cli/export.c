/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"
#include "snug_generate.h"

static int run_export(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) code = cli_finish(&cli, snug_export(cli.args));
    cli_close(&cli);
    return code;
}

int command_export(int argc, char **argv) { return cli_name_model(argc, argv, run_export); }
