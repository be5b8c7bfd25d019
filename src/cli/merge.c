/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

static int merge(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) code = cli_finish(&cli, snug_merge(cli.args));
    cli_close(&cli);
    return code;
}

int command_merge(int argc, char **argv) { return cli_name_model(argc, argv, merge); }
