/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* A plan that does not fit is printed all the same: it shows what is short. */
static snug_status put_plan(struct cli *cli, const snug_plan *plan) {
    char *text = NULL;
    snug_status status = cli->json ? snug_plan_json(plan, &text) : snug_plan_text(plan, &text);
    if (status == SNUG_OK && *text) status = cli_put_lines(cli, text);
    free(text);
    return status;
}

int command_plan(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        snug_plan *plan = NULL;
        snug_status status = snug_plan_create(cli.args, &plan);
        snug_status printed = plan ? put_plan(&cli, plan) : SNUG_OK;
        code = cli_finish(&cli, status == SNUG_OK ? printed : status);
        snug_plan_destroy(plan);
    }
    cli_close(&cli);
    return code;
}
