/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

/* A plan that does not fit is printed too: it shows which part is too large. */
static snug_status make_plan(struct cli *cli, char **text) {
    snug_plan *plan;
    const snug_status status = snug_plan_create(cli->args, &plan);
    snug_status printed = SNUG_OK;
    if (plan) printed = cli->json ? snug_plan_json(plan, text) : snug_plan_text(plan, text);
    snug_plan_destroy(plan);
    return status == SNUG_OK ? printed : status;
}

static int plan(int argc, char **argv) { return cli_report(argc, argv, make_plan); }

int command_plan(int argc, char **argv) { return cli_name_model(argc, argv, plan); }
