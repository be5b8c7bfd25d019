/* SPDX-License-Identifier: Apache-2.0 */
#include "next.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- opening and ending -------------------------------------------------------------------------------------- */

bool cli_argument_is(const struct cli *cli, const char *name, const char *value) {
    char text[10] = ""; /* snug_args_get() fails for a longer value */
    const snug_status status = snug_args_get(cli->args, name, text, sizeof text);
    return status == SNUG_OK && strcmp(text, value) == 0;
}

static snug_log_level log_level_of(const struct cli *cli) {
    if (cli_argument_is(cli, "log_level", "debug") || cli_argument_is(cli, "log_level", "detail"))
        return SNUG_LOG_DEBUG;
    if (cli_argument_is(cli, "log_level", "warning")) return SNUG_LOG_WARNING;
    if (cli_argument_is(cli, "log_level", "error") || cli_argument_is(cli, "log_level", "critical"))
        return SNUG_LOG_ERROR;
    return SNUG_LOG_INFO; /* info, and passive, which run_glue.py treats as info */
}

/* Keeps the description of the run for --json; all other events are shown. */
static void on_event(void *user, const snug_event *event) {
    struct cli *cli = user;
    cli->saved |= event->kind == SNUG_EVENT_SAVE;
    cli->trained |= event->kind == SNUG_EVENT_STEP && event->step == event->max_steps;
    if (event->kind != SNUG_EVENT_RUN) {
        progress_on_event(&cli->progress, event);
        return;
    }
    cli_tell_unused(cli); /* what the job refuses is an error before this */
    free(cli->run);
    cli->run = strdup(event->run); /* not parsed: Jansson ends the program if it has no memory for a string */
}

/* *all: of all arguments. */
static bool asks_for_help(int argc, char **argv, bool *all) {
    for (int i = 1; i < argc; i++) {
        *all = strcmp(argv[i], "--help=all") == 0;
        if (!*all && strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        *all |= i + 1 < argc && strcmp(argv[i + 1], "all") == 0;
        return true;
    }
    return false;
}

bool cli_open(struct cli *cli, int argc, char **argv, int *code) {
    *cli = (struct cli){.callbacks = {.user = cli, .on_event = on_event}, .argc = argc, .argv = argv};
    progress_begin(&cli->progress);
    cli->terminal = isatty(STDOUT_FILENO);
    bool all;
    if (asks_for_help(argc, argv, &all)) {
        cli_help(stdout, argv[0], all);
        *code = cli_finish(cli, SNUG_OK);
        return false;
    }
    if (snug_context_create(&cli->ctx) != SNUG_OK) {
        fputs("snug: out of memory\n", stderr);
        *code = EXIT_FAILED;
        return false;
    }
    snug_status status = snug_args_create(cli->ctx, &cli->args);
    if (status == SNUG_OK) status = snug_args_parse(cli->args, argc, argv);
    const snug_log_level level = status == SNUG_OK ? log_level_of(cli) : SNUG_LOG_INFO;
    if (status == SNUG_OK) {
        snug_context_set_log(cli->ctx, progress_on_log, &cli->progress, level);
        status =
            snug_args_parse(cli->args, argc, argv); /* parsed again, to log its notes, now that log_level is known */
    }
    if (status != SNUG_OK) {
        *code = cli_finish(cli, status);
        if (status != SNUG_E_USAGE && status != SNUG_E_UNSUPPORTED) return false;
        fprintf(stderr, "snug %s --help lists the usual arguments, --help all all of them\n", argv[0]);
        *code = EXIT_USAGE;
        return false;
    }
    if (level <= SNUG_LOG_INFO) cli_find_unused(cli, argv[0]);
    cli->progress.quiet = level == SNUG_LOG_ERROR;
    if (cli_argument_is(cli, "disable_tqdm", "True")) cli->progress.live = false;
    cli->json = cli_argument_is(cli, "json", "True");
    cli->detailed = cli_argument_is(cli, "log_level", "info") || level == SNUG_LOG_DEBUG;
    cli->guarded = cli_argument_is(cli, "csv_escape_formulas", "True");
    return true;
}

void cli_close(struct cli *cli) {
    free(cli->run);
    free(cli->unused);
    snug_args_destroy(cli->args);
    snug_context_destroy(cli->ctx);
}

static int exit_code_of(snug_status status) {
    switch (status) {
    case SNUG_OK: return EXIT_DONE;
    case SNUG_E_USAGE: return EXIT_USAGE;
    case SNUG_E_DOES_NOT_FIT: return EXIT_DOES_NOT_FIT;
    case SNUG_E_INTERRUPTED: return EXIT_INTERRUPTED;
    default: return EXIT_FAILED;
    }
}

int cli_finish(struct cli *cli, snug_status status) {
    progress_end(&cli->progress);
    cli_put(cli, ""); /* before messages on stderr */
    if (status != SNUG_E_USAGE && status != SNUG_E_UNSUPPORTED) cli_tell_unused(cli);
    if (cli->reader_gone) return EXIT_DONE; /* for `snug predict … | head` */
    if (cli->write_error) {
        fprintf(stderr, "snug: writing to stdout: %s\n", strerror(cli->write_error));
        return EXIT_FAILED;
    }
    /* All ranks agree to stop, and rank 0 says so. */
    if (status == SNUG_E_INTERRUPTED && snug_args_rank(cli->args) > 0) return EXIT_INTERRUPTED;
    if (status != SNUG_OK) {
        const char *message =
            snug_error_message(cli->ctx); /* without a context, out of memory is the only possible failure */
        fprintf(stderr, "snug: %s\n", *message ? message : "out of memory while printing the result");
        if (status == SNUG_E_DOES_NOT_FIT) cli_tell_fitting(cli, message);
    }
    return exit_code_of(status);
}

int cli_make(struct cli *cli, snug_status (*make)(struct cli *cli, char **text)) {
    char *text = NULL;
    const snug_status made = make(cli, &text);
    progress_end(&cli->progress);
    const snug_status printed = text ? cli_put_lines(cli, text) : SNUG_OK;
    snug_free(text);
    return cli_finish(cli, made == SNUG_OK ? printed : made);
}

int cli_report(int argc, char **argv, snug_status (*make)(struct cli *cli, char **text)) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) code = cli_make(&cli, make);
    cli_close(&cli);
    return code;
}

/* ---- results ------------------------------------------------------------------------------------------------- */

static snug_status check_written(struct cli *cli, bool written) {
    if (written) return SNUG_OK;
    cli->reader_gone = errno == EPIPE;
    cli->write_error = cli->reader_gone ? 0 : errno ? errno : EIO;
    return SNUG_E_IO;
}

snug_status cli_put_part(struct cli *cli, const char *text, size_t length) {
    if (cli->reader_gone || cli->write_error) return SNUG_E_IO;
    errno = 0;
    return check_written(cli, cli->terminal ? cli_show_part(stdout, text, length)
                                            : fwrite(text, 1, length, stdout) == length);
}

snug_status cli_put_text(struct cli *cli, const char *text, size_t length) {
    snug_status status = SNUG_OK;
    for (const char *end = text + length; text < end && status == SNUG_OK;) {
        const char *line = memchr(text, '\n', (size_t)(end - text));
        const size_t part = (size_t)((line ? line : end) - text);
        status = cli_put_part(cli, text, part);
        if (line && status == SNUG_OK) status = check_written(cli, putchar('\n') != EOF);
        text += part + (line != NULL);
    }
    return status;
}

snug_status cli_put(struct cli *cli, const char *text) {
    if (*text) return cli_put_text(cli, text, strlen(text));
    if (cli->reader_gone || cli->write_error) return SNUG_E_IO;
    errno = 0;
    return check_written(cli, fflush(stdout) != EOF);
}

static bool is_plain(const char *name) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+/";
    const size_t length = strlen(name);
    char piece[256];
    for (size_t at = 0; at < length; at++)
        if ((unsigned char)name[at] < 0x80 && !strchr(plain, name[at])) return false;
    for (size_t at = 0, step; at < length; at += step) {
        step = snug_escape(piece, sizeof piece, name + at, length - at);
        if (strncmp(piece, name + at, step) != 0) return false;
    }
    return length > 0;
}

snug_status cli_put_name(struct cli *cli, const char *name) {
    const bool plain = is_plain(name);
    snug_status status = plain ? SNUG_OK : cli_put(cli, "\"");
    while (*name) {
        char piece[256];
        const size_t length = strcspn(name, "\"\\");
        if (length)
            name += snug_escape(piece, sizeof piece, name, length);
        else
            snprintf(piece, sizeof piece, "\\%c", *name++);
        status = cli_put(cli, piece);
    }
    return plain ? status : cli_put(cli, "\"");
}

snug_status cli_put_lines(struct cli *cli, const char *text) {
    const snug_status status = cli_put(cli, text);
    return text[strlen(text) - 1] == '\n' ? status : cli_put(cli, "\n");
}

static snug_status put_json(struct cli *cli, json_t *value, int digits, const char *run) {
    /* Not json_dumps(), which may omit a key when out of memory. */
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(digits), size = json_dumpb(value, NULL, 0, flags);
    char *text = size ? calloc(size + 1, 1) : NULL;
    const bool whole = text && json_dumpb(value, text, size, flags) == size;
    json_decref(value);
    if (!whole) {
        free(text);
        cli->write_error = ENOMEM;
        return SNUG_E_MEMORY;
    }
    if (run) {
        text[size - 1] = '\0'; /* the object's end */
        cli_put(cli, text);
        cli_put(cli, ",\"run\":");
        cli_put(cli, run);
    } else {
        cli_put(cli, text);
    }
    free(text);
    return cli_put(cli, run ? "}\n" : "\n");
}

snug_status cli_put_json(struct cli *cli, json_t *value, int digits) { return put_json(cli, value, digits, NULL); }

snug_status cli_put_result(struct cli *cli, json_t *object, int digits) {
    if (cli->run) return put_json(cli, object, digits, cli->run);
    json_decref(object);
    cli->write_error = ENOMEM;
    return SNUG_E_MEMORY;
}

snug_status cli_put_row(struct cli *cli, json_t *object) {
    const bool first = cli->json && !cli->headed;
    cli->headed = true;
    return first ? cli_put_result(cli, object, 9) : cli_put_json(cli, object, 9);
}

json_t *cli_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Malformed UTF-8 (labels come from files) becomes U+FFFD; NULL if out of memory. */
json_t *cli_string(const char *text) {
    json_error_t error;
    json_t *string = json_pack_ex(&error, 0, "s", text);
    const bool refused = !string && json_error_code(&error) == json_error_invalid_utf8;
    return refused ? json_string("\xEF\xBF\xBD") : string;
}

static void drop(json_t **value) {
    json_decref(*value);
    *value = NULL;
}

void cli_add(json_t **object, const char *key, json_t *value) {
    if (json_object_set_new(*object, key, value)) drop(object);
}

void cli_append(json_t **array, json_t *value) {
    if (json_array_append_new(*array, value)) drop(array);
}

/* Counts as whole numbers, as in eval_results.json. */
void cli_add_metrics(json_t **object, const snug_metrics *metrics) {
    for (size_t i = 0; i < metrics->count; i++) {
        const double value = metrics->items[i].value;
        cli_add(object, metrics->items[i].name,
                progress_is_whole(value) ? json_integer((json_int_t)value) : cli_real(value));
    }
}

int cli_name_model(int argc, char **argv, int (*command)(int argc, char **argv)) {
    static char name[] = "--model_name_or_path";
    if (argc < 2 || argv[1][0] == '-') return command(argc, argv);
    char **longer = calloc((size_t)argc + 2, sizeof *longer);
    if (!longer) {
        fputs("snug: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    longer[0] = argv[0];
    longer[1] = name;
    memcpy(longer + 2, argv + 1, (size_t)(argc - 1) * sizeof *argv);
    const int code = command(argc + 1, longer);
    free(longer);
    return code;
}
