/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* --task generate: a plan of snug generate, which has the flags of generation. Returns how many words it is. */
static int generation_at(int argc, char **argv, int i) {
    if (strcmp(argv[i], "--task=generate") == 0) return 1;
    return i + 1 < argc && strcmp(argv[i], "--task") == 0 && strcmp(argv[i + 1], "generate") == 0 ? 2 : 0;
}

int command_plan(int argc, char **argv) {
    static char name[] = "generate", only[] = "--plan_only";
    int at = 1, words = 0;
    while (at < argc && !(words = generation_at(argc, argv, at))) at++;
    if (!words) return cli_name_model(argc, argv, plan);
    char **of_generate = calloc((size_t)argc + 1, sizeof *of_generate);
    if (!of_generate) {
        fputs("snug: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    memcpy(of_generate, argv, (size_t)argc * sizeof *argv);
    memmove(of_generate + at, argv + at + words, (size_t)(argc - at - words) * sizeof *argv);
    of_generate[0] = name;
    of_generate[argc - words] = only;
    const int code = command_generate(argc - words + 1, of_generate);
    free(of_generate);
    return code;
}
