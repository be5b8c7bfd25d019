/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static snug_status put_rates(struct cli *cli, const snug_rates *rates) {
    char *text = NULL;
    snug_status status = cli->json ? snug_rates_json(rates, &text) : snug_rates_text(rates, &text);
    if (status == SNUG_OK) status = cli_put_lines(cli, text);
    free(text);
    return status;
}

static int bench_rates(int argc, char **argv) {
    struct cli cli;
    int code;
    argv[0] = "bench rates";
    if (cli_open(&cli, argc, argv, &code)) {
        snug_rates *rates = NULL;
        snug_status status = snug_rates_create(cli.args, &rates);
        if (status == SNUG_OK) status = put_rates(&cli, rates);
        code = cli_finish(&cli, status);
        snug_rates_destroy(rates);
    }
    cli_close(&cli);
    return code;
}

static snug_status put_anatomy(struct cli *cli, const snug_anatomy *anatomy) {
    char *text = NULL;
    progress_end(&cli->progress);
    snug_status status = cli->json ? snug_anatomy_json(anatomy, &text) : snug_anatomy_text(anatomy, &text);
    if (status == SNUG_OK) status = cli_put_lines(cli, text);
    free(text);
    return status;
}

static int bench_anatomy(int argc, char **argv) {
    struct cli cli;
    int code;
    argv[0] = "bench anatomy";
    if (cli_open(&cli, argc, argv, &code)) {
        snug_anatomy *anatomy = NULL;
        cli_catch_signals(&cli);
        snug_status status = snug_anatomy_create(cli.args, &cli.callbacks, &anatomy);
        if (status == SNUG_OK) status = put_anatomy(&cli, anatomy);
        code = cli_finish(&cli, status);
        snug_anatomy_destroy(anatomy);
    }
    cli_close(&cli);
    return code;
}

int command_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "rates") == 0) return bench_rates(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "anatomy") == 0) return bench_anatomy(argc - 1, argv + 1);
    const bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc > 1 && !help) fprintf(stderr, "snug bench: %s: unknown bench; there are anatomy and rates\n", argv[1]);
    fputs("usage: snug bench rates [--threads N] [--json]\n"
          "       snug bench anatomy [--config_name NAME] [--per_device_train_batch_size N] [--bf16] [--device "
          "cpu|cuda]\n"
          "                          [--max_steps N] [--json]\n\n"
          "  rates     how fast this machine runs each operation, for the seconds in snug plan\n"
          "  anatomy   what a training of BERT-large takes, in memory by class and in time by group of operations\n",
          help ? stdout : stderr);
    return help ? EXIT_DONE : EXIT_USAGE;
}
