/* SPDX-License-Identifier: Apache-2.0 */
/* What the sub-commands share. The command line uses the library through snug.h alone. */
#ifndef SNUG_CLI_CLI_H
#define SNUG_CLI_CLI_H

#include <jansson.h>
#include <stdio.h>

#include "progress.h"
#include "snug.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DOES_NOT_FIT = 3, EXIT_INTERRUPTED = 130 };

/* argv[0] is the command's name. Each gives the process's exit code. */
int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_predict(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_gpu(int argc, char **argv);
int command_doctor(int argc, char **argv);

/* One run of a command. */
struct cli {
    snug_context *ctx;
    snug_args *args;
    snug_callbacks callbacks; /* draw the progress */
    struct progress progress;
    bool json;        /* --json */
    bool terminal;    /* stdout is one: results are escaped */
    bool guarded;     /* predict: --csv_escape_formulas */
    bool headed;      /* predict: the heading is out */
    bool reader_gone; /* stdout is a pipe that nobody reads any more */
    int write_error;  /* errno of another failed write to stdout */
};

/* Context, arguments and log of a command. True if the command shall run; else *code is the process's exit code, --help
   having been printed or the mistake been told. cli_close() in both cases. */
bool cli_open(struct cli *cli, int argc, char **argv, int *code);
void cli_close(struct cli *cli);
/* SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU ask the job to stop, which then ends with EXIT_INTERRUPTED. A second
   SIGINT or a second SIGTERM ends the program at once. Signals that were ignored when the program started stay ignored.
 */
void cli_catch_signals(struct cli *cli);
/* Tells what went wrong, if anything did, and gives the exit code. Flushes stdout, which may fail too. */
int cli_finish(struct cli *cli, snug_status status);
/* A command that prints one text, which make allocates, as JSON where cli->json says so; if it fails and gives one,
   that is printed too. */
int cli_report(int argc, char **argv, snug_status (*make)(struct cli *cli, char **text));

/* Text that snug.h does not escape, escaped: on stderr always. */
void cli_show(FILE *out, const char *text);
/* All results go through these: SNUG_E_IO when they could not be written. On a terminal lines are escaped, since names
   and labels are shown there; files and pipes get the bytes, since those are data. */
snug_status cli_put(struct cli *cli, const char *text);
/* A part of a field: on a terminal newlines are escaped too. */
snug_status cli_put_part(struct cli *cli, const char *text, size_t length);
/* The same, with an end to its last line. */
snug_status cli_put_lines(struct cli *cli, const char *text);
/* value as one line; takes the reference; NULL is out of memory. digits: significant ones of a real. */
snug_status cli_put_json(struct cli *cli, json_t *value, int digits);
/* A number, null where JSON has none. */
json_t *cli_real(double value);
/* A string, with U+FFFD for one that is not UTF-8. */
json_t *cli_string(const char *text);
/* Add a member or an element, taking the reference. Where memory is short the whole is freed and becomes NULL, so that
   nothing is printed without a part of it. */
void cli_add(json_t **object, const char *key, json_t *value);
void cli_append(json_t **array, json_t *value);
void cli_add_metrics(json_t **object, const snug_metrics *metrics);

/* The usage of a command and all arguments, by group. */
void cli_help(const char *command);

#endif
