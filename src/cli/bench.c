/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static snug_status make_rates(struct cli *cli, char **text) {
    snug_rates *rates;
    snug_status status = snug_rates_create(cli->args, &rates);
    if (status == SNUG_OK) status = cli->json ? snug_rates_json(rates, text) : snug_rates_text(rates, text);
    snug_rates_destroy(rates);
    return status;
}

static snug_status make_anatomy(struct cli *cli, char **text) {
    snug_anatomy *anatomy;
    cli_catch_signals(cli);
    snug_status status = snug_anatomy_create(cli->args, &cli->callbacks, &anatomy);
    if (status == SNUG_OK && snug_args_rank(cli->args) == 0)
        status = cli->json ? snug_anatomy_json(anatomy, text) : snug_anatomy_text(anatomy, text);
    snug_anatomy_destroy(anatomy);
    return status;
}

/* argv[1] and what follows are a command of two words. */
static int bench(int argc, char **argv, char *command, snug_status (*make)(struct cli *cli, char **text)) {
    argv[1] = command;
    return cli_report(argc - 1, argv + 1, make);
}

static int anatomy(int argc, char **argv) {
    char *const word = argv[1], name[] = "bench anatomy";
    struct cli cli;
    int code;
    argv[1] = name;
    const bool opened = cli_open(&cli, argc - 1, argv + 1, &code);
    argv[1] = word; /* a rank is started by both words */
    if (opened && !cli_launch(&cli, argc, argv, &code)) {
        code = cli_make(&cli, make_anatomy);
        if (code != EXIT_DONE) snug_end_ranks(cli.args, code);
    }
    cli_close(&cli);
    return code;
}

int command_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "rates") == 0) return bench(argc, argv, "bench rates", make_rates);
    if (argc > 1 && strcmp(argv[1], "anatomy") == 0) return anatomy(argc, argv);
    const bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (argc > 1 && !help) {
        fputs("snug bench: ", stderr);
        cli_show(stderr, argv[1]);
        fputs(": unknown bench; the benches are anatomy and rates\n", stderr);
    }
    fputs("usage: snug bench rates [--threads N] [--device cpu|cuda] [--json]\n"
          "       snug bench anatomy [--config_name NAME] [--per_device_train_batch_size N] [--bf16] [--device "
          "cpu|cuda]\n"
          "                          [--max_steps N] [--gpus N|all] [--json]\n\n"
          "  rates     how fast this machine runs each operation, for the seconds in snug plan\n"
          "  anatomy   memory by class and time by group of operations of a BERT-large training\n",
          help ? stdout : stderr);
    return help ? EXIT_DONE : EXIT_USAGE;
}
