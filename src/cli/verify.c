/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli.h"

static const char *const results[] = {"passed", "FAILED", "skipped"};

static snug_status put_json(struct cli *cli, const snug_check *check) {
    json_t *object = json_object();
    cli_add(&object, "check", cli_string(check->name));
    cli_add(&object, "device", cli_string(check->device));
    cli_add(&object, "result", cli_string(results[check->result]));
    cli_add(&object, "detail", cli_string(check->detail));
    cli_add(&object, "seconds", cli_real(check->seconds));
    return cli_put_json(cli, object, 6);
}

static snug_status on_check(void *user, const snug_check *check) {
    struct cli *cli = user;
    char line[1024];
    if (cli->json) return put_json(cli, check);
    snprintf(line, sizeof line, "%-42s %-6s %-8s %6.1f s  %s\n", check->name, check->device, results[check->result],
             check->seconds, check->detail);
    const snug_status status = cli_put(cli, line);
    fflush(stdout); /* the next check takes seconds */
    return status;
}

static int verify(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code) && !cli_launch(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        code = cli_finish(&cli, snug_verify(cli.args, &cli.callbacks, on_check, &cli));
        if (code != EXIT_DONE) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}

int command_verify(int argc, char **argv) { return cli_name_model(argc, argv, verify); }
