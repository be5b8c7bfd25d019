/* SPDX-License-Identifier: Apache-2.0 */
/* snug gpu: the most used figures of nvidia-smi. It has two arguments of its own, and none of a job's. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

struct wishes {
    bool json, help;
    double every; /* seconds; 0: once */
};

static bool read_seconds(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    return *text && !*end && isfinite(*seconds) && *seconds >= 0.1 && *seconds <= 86400;
}

/* The first invalid word, NULL if all are valid. */
static const char *parse(int argc, char **argv, struct wishes *wishes) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            wishes->help = true;
            if (i + 1 < argc && strcmp(argv[i + 1], "all") == 0) i++; /* its help has all of them */
        } else if (strcmp(word, "--json") == 0) {
            wishes->json = true;
        } else if (strncmp(word, "--watch=", 8) == 0) {
            if (!read_seconds(word + 8, &wishes->every)) return word;
        } else if (strcmp(word, "--watch") == 0) {
            wishes->every = 2;
            if (i + 1 < argc && argv[i + 1][0] != '-' && !read_seconds(argv[++i], &wishes->every)) return argv[i];
        } else {
            return word;
        }
    }
    return NULL;
}

/* Joins the lines of an indented object into one line; all white space is between its parts. */
static void join_lines(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from == '\n')
            from += strspn(from + 1, " ");
        else
            *to++ = *from;
    }
    *to = '\0';
}

static snug_status show(struct cli *cli, const struct wishes *wishes) {
    snug_gpus *gpus;
    char *text = NULL;
    snug_status status = snug_gpus_create(cli->ctx, &gpus);
    if (status != SNUG_OK) return status;
    status = wishes->json ? snug_gpus_json(gpus, &text) : snug_gpus_text(gpus, &text);
    snug_gpus_destroy(gpus);
    if (status != SNUG_OK) return status;
    if (wishes->json && wishes->every > 0) join_lines(text);
    if (!wishes->json && wishes->every > 0 && cli->terminal) fputs("\033[H\033[2J", stdout);
    status = cli_put_lines(cli, text);
    snug_free(text);
    return wishes->every > 0 ? cli_put(cli, "") : status;
}

/* Sleeps in short intervals, because another thread receives the signals and they do not wake this one. */
static bool rest(const struct cli *cli, double seconds) {
    const int naps = (int)ceil(10 * seconds); /* at most a tenth of a second */
    const struct timespec nap = {.tv_nsec = (long)(seconds / naps * 1e9)};
    for (int i = 0; i < naps; i++) {
        if (cli->callbacks.should_stop(NULL)) return false;
        nanosleep(&nap, NULL);
    }
    return !cli->callbacks.should_stop(NULL);
}

static snug_status watch(struct cli *cli, const struct wishes *wishes) {
    snug_status status = show(cli, wishes);
    cli_catch_signals(cli);
    while (status == SNUG_OK && wishes->every > 0 && rest(cli, wishes->every)) status = show(cli, wishes);
    return status;
}

int command_gpu(int argc, char **argv) {
    struct wishes wishes = {.json = false};
    struct cli cli = {.ctx = NULL};
    const char *wrong = parse(argc, argv, &wishes);
    if (wrong) {
        fputs("snug gpu: ", stderr);
        cli_show(stderr, wrong);
        fputs(" is not a valid argument\n", stderr);
        cli_help(stderr, argv[0], true);
        return EXIT_USAGE;
    }
    progress_begin(&cli.progress);
    cli.terminal = isatty(STDOUT_FILENO);
    if (wishes.help) {
        cli_help(stdout, argv[0], true);
        return cli_finish(&cli, SNUG_OK);
    }
    if (snug_context_create(&cli.ctx) != SNUG_OK) {
        fputs("snug: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    const int code = cli_finish(&cli, watch(&cli, &wishes));
    cli_close(&cli);
    return code;
}
