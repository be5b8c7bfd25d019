/* SPDX-License-Identifier: Apache-2.0 */
/* snug report: it has folders as arguments, and none of a job's. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* The first argument that begins with '-', NULL if there is none. */
static const char *find_option(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-') return argv[i];
    return NULL;
}

static snug_status report(struct cli *cli, const char *const *folders, size_t count) {
    snug_runs *runs;
    char *html = NULL;
    snug_status status = snug_runs_create(cli->ctx, folders, count, &runs);
    if (status == SNUG_OK) status = snug_runs_html(runs, &html);
    snug_runs_destroy(runs);
    if (status == SNUG_OK) status = cli_put(cli, html);
    free(html);
    return status;
}

int command_report(int argc, char **argv) {
    struct cli cli = {0};
    const char *option = find_option(argc, argv);
    progress_begin(&cli.progress);
    if (option && (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)) {
        cli_help(stdout, argv[0], true);
        return cli_finish(&cli, SNUG_OK);
    }
    if (option || argc < 2 || isatty(STDOUT_FILENO)) {
        fputs("snug report: ", stderr);
        if (option) {
            cli_show(stderr, option);
            fputs(" is not a valid argument\n", stderr);
        } else {
            fputs(argc < 2 ? "no run: name the --output_dir of a training\n"
                           : "the page goes to stdout: give it a file, as in snug report RUN > report.html\n",
                  stderr);
        }
        cli_help(stderr, argv[0], true);
        return EXIT_USAGE;
    }
    if (snug_context_create(&cli.ctx) != SNUG_OK) {
        fputs("snug: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    const int code = cli_finish(&cli, report(&cli, (const char *const *)argv + 1, (size_t)argc - 1));
    snug_context_destroy(cli.ctx);
    return code;
}
