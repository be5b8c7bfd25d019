/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "cli.h"

static const char *const verdicts[] = {"kept", "BROKEN", "skipped"};

static snug_status put_json(struct cli *cli, const snug_promise *promise) {
    json_t *object = json_object();
    cli_add(&object, "promise", cli_string(promise->name));
    cli_add(&object, "device", cli_string(promise->device));
    cli_add(&object, "verdict", cli_string(verdicts[promise->verdict]));
    cli_add(&object, "detail", cli_string(promise->detail));
    cli_add(&object, "seconds", cli_real(promise->seconds));
    return cli_put_json(cli, object, 6);
}

static snug_status on_promise(void *user, const snug_promise *promise) {
    struct cli *cli = user;
    char line[1024];
    if (cli->json) return put_json(cli, promise);
    snprintf(line, sizeof line, "%-42s %-6s %-8s %6.1f s  %s\n", promise->name, promise->device,
             verdicts[promise->verdict], promise->seconds, promise->detail);
    const snug_status status = cli_put(cli, line);
    fflush(stdout); /* seconds pass until the next one */
    return status;
}

int command_verify(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        cli_catch_signals(&cli);
        code = cli_finish(&cli, snug_verify(cli.args, &cli.callbacks, on_promise, &cli));
    }
    cli_close(&cli);
    return code;
}
