/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sub-commands. The command line uses the library only through snug.h. */
#ifndef SNUG_CLI_CLI_H
#define SNUG_CLI_CLI_H

#include <jansson.h>
#include <stdio.h>

#include "progress.h"
#include "show.h"
#include "snug.h"

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DOES_NOT_FIT = 3, EXIT_INTERRUPTED = 130 };

/* argv[0] is the command's name. Each gives the process's exit code. */
int command_train(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_predict(int argc, char **argv);
int command_embed(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_export(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_gpu(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_report(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_manual(int argc, char **argv);

/* One run of a command. */
struct cli {
    snug_context *ctx;
    snug_args *args;
    snug_callbacks callbacks; /* draw the progress */
    struct progress progress;
    bool json;        /* --json */
    bool detailed;    /* --log_level asks for more than it does by default */
    bool terminal;    /* stdout is a terminal: results are escaped */
    bool guarded;     /* predict: --csv_escape_formulas */
    bool headed;      /* predict: the header line was written */
    bool reader_gone; /* stdout is a pipe without a reader */
    int write_error;  /* errno of another failed write to stdout */
    int argc;
    char **argv; /* argv[0] is the command's name */
    const char *command;
    char *unused; /* names of arguments without effect on the command, each with a space after it; NULL: they were named
                   */
    bool saved;   /* train: a checkpoint was saved */
    bool trained; /* train: the last step is done */
    char *run;    /* what the library understood and planned, as JSON; NULL before SNUG_EVENT_RUN */
};

/* Context, arguments and log of a command. True if the command is to run; else *code is the process's exit code, and
 * --help or the error has been printed. cli_close() in both cases. */
bool cli_open(struct cli *cli, int argc, char **argv, int *code);
void cli_close(struct cli *cli);
/* Whether the argument has this value, a short one. */
bool cli_argument_is(const struct cli *cli, const char *name, const char *value);
/* SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU ask the job to stop, which then ends with EXIT_INTERRUPTED. A second
   SIGINT or a second SIGTERM ends the program at once. Signals that were ignored when the program started stay ignored.
 */
void cli_catch_signals(struct cli *cli);
/* With --gpus, in the process that the user started: runs the command on that many ranks, waits for them, and is true;
 *code is then the exit code of the first rank that failed, or 0. */
bool cli_launch(struct cli *cli, int argc, char **argv, int *code);
/* Prints the error, if any, and returns the exit code. Flushes stdout, which may fail too. */
int cli_finish(struct cli *cli, snug_status status);
/* Runs command. A first word that is no argument's name is the model: snug pull MODEL is snug pull
   --model_name_or_path MODEL. */
int cli_name_model(int argc, char **argv, int (*command)(int argc, char **argv));
/* A command that prints one text, which make allocates, as JSON if cli->json is set. If make fails and still returns a
   text, the text is printed too. */
int cli_report(int argc, char **argv, snug_status (*make)(struct cli *cli, char **text));
/* The part of cli_report() between cli_open() and cli_close(). */
int cli_make(struct cli *cli, snug_status (*make)(struct cli *cli, char **text));

/* All results are written with these functions: SNUG_E_IO if that fails. Lines are escaped on a terminal, because names
   and labels may contain control characters; files and pipes get the unchanged bytes. */
snug_status cli_put(struct cli *cli, const char *text); /* an empty text ends the output: it is flushed */
snug_status cli_put_text(struct cli *cli, const char *text, size_t length);
/* A part of a field: on a terminal newlines are escaped too. */
snug_status cli_put_part(struct cli *cli, const char *text, size_t length);
/* A name of a class or a metric in a line of text: in quotes, and escaped, if it has other characters than letters,
   digits and _-.+/ among the ASCII ones. So it cannot look like another line, or like a value. */
snug_status cli_put_name(struct cli *cli, const char *name);
/* Lines of text, with a newline after the last one. */
snug_status cli_put_lines(struct cli *cli, const char *text);
/* value as one line; takes the reference; NULL means out of memory. digits: significant digits of a real. */
snug_status cli_put_json(struct cli *cli, json_t *value, int digits);
/* An object as cli_put_json() does, with what was understood and planned as its last member, "run". */
snug_status cli_put_result(struct cli *cli, json_t *object, int digits);
/* The object of a row; with --json the first one also holds the run. 9 digits are enough to read back the same fp32. */
snug_status cli_put_row(struct cli *cli, json_t *object);
/* A number; null if JSON has no such number. */
json_t *cli_real(double value);
/* A string; malformed UTF-8 becomes U+FFFD. */
json_t *cli_string(const char *text);
/* Add a member or an element and take over the reference. When out of memory, the whole object is freed and becomes
 * NULL, so that an incomplete object is never printed. */
void cli_add(json_t **object, const char *key, json_t *value);
void cli_append(json_t **array, json_t *value);
void cli_add_metrics(json_t **object, const snug_metrics *metrics);

/* Finds the arguments that were given, with another value than their default, and have no effect on the command. It
   forgets an error. */
void cli_find_unused(struct cli *cli, const char *command);
/* Names them, once. */
void cli_tell_unused(struct cli *cli);

/* The usage of a command and its arguments, by group: all, or those that most people need. */
void cli_help(FILE *out, const char *command, bool all);

#endif
