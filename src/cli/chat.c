/* SPDX-License-Identifier: Apache-2.0 */
/* A chat in the terminal. Each turn gives the library all messages; it keeps what the model has read of them. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "snug_generate.h"

static volatile sig_atomic_t interrupted;

struct chat {
    struct cli *cli;
    snug_generator *generator;
    json_t *messages; /* NULL: out of memory */
    char *answer;     /* so far; NULL: none */
    size_t length;
    bool asks;   /* standard input is a terminal */
    bool broken; /* an interrupt came instead of a line */
};

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static bool should_stop(void *user) {
    (void)user;
    return interrupted;
}

static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

/* ---- input ----------------------------------------------------------------------------------------------------- */

static bool append(char **text, size_t *length, const char *more, size_t count) {
    char *longer = realloc(*text, *length + count + 1);
    if (!longer) return false;
    *text = longer;
    memcpy(longer + *length, more, count);
    *length += count;
    longer[*length] = '\0';
    return true;
}

static void ask(const struct chat *c, const char *prompt) {
    if (!c->asks) return;
    fputs(prompt, stderr);
    fflush(stderr);
}

/* Waits for a line of the terminal, which gives one at a time; false after an interrupt, also one just before. */
static bool await_line(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, old;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &old);
    if (!interrupted) ppoll(&input, 1, NULL, &old);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return !interrupted;
}

/* A line without its end; false at the end of the input, or after an interrupt. getline() gives at least a byte. */
static bool read_line(struct chat *c, char **line, size_t *capacity, size_t *length) {
    c->broken = c->asks && !await_line();
    const ssize_t count = c->broken ? -1 : getline(line, capacity, stdin);
    if (count < 0) return false;
    *length = (size_t)count;
    if ((*line)[*length - 1] == '\n') (*line)[--*length] = '\0';
    return true;
}

/* A message: a line, lines of which each but the last ends with a backslash, or those between lines of three quotes.
   NULL at the end of the input, and after an interrupt. */
static char *read_message(struct chat *c) {
    char *line = NULL, *text = NULL;
    size_t capacity = 0, count = 0, length = 0;
    bool quoted = false, more = true;
    ask(c, "> ");
    while (more && read_line(c, &line, &capacity, &count)) {
        const bool quotes = strcmp(line, "\"\"\"") == 0, first = !text;
        more = quoted ? !quotes : quotes && first;
        const bool continues = !quoted && !quotes && count && line[count - 1] == '\\';
        if (quotes && (quoted || first)) count = 0;
        if (!append(&text, &length, line, count - continues)) break;
        if (quoted && more) append(&text, &length, "\n", 1);
        if (continues) append(&text, &length, "\n", 1);
        quoted |= quotes;
        more |= continues;
        if (more) ask(c, ". ");
    }
    free(line);
    if (!c->broken) return text;
    free(text);
    return NULL;
}

/* ---- turns ----------------------------------------------------------------------------------------------------- */

static void add_message(struct chat *c, const char *role, const char *text) {
    json_t *message = json_object();
    cli_add(&message, "role", cli_string(role));
    cli_add(&message, "content", cli_string(text));
    cli_append(&c->messages, message);
}

static snug_status on_piece(void *user, const snug_piece *piece) {
    struct chat *c = user;
    if (!append(&c->answer, &c->length, piece->text, piece->length)) return SNUG_E_MEMORY;
    const snug_status status = cli_put_text(c->cli, piece->text, piece->length);
    return status == SNUG_OK ? cli_put(c->cli, "") : status;
}

/* Its text was given in pieces. */
static snug_status on_answer(void *user, const snug_answer *answer) {
    (void)user, (void)answer;
    return SNUG_OK;
}

/* A failure of a turn is shown, and the message is taken back; that of the output ends the chat. */
static snug_status take_turn(struct chat *c, const char *text) {
    const snug_callbacks callbacks = {.user = c, .should_stop = should_stop};
    add_message(c, "user", text);
    char *messages = c->messages ? json_dumps(c->messages, JSON_COMPACT) : NULL;
    if (!messages) return SNUG_E_MEMORY;
    free(c->answer);
    c->answer = NULL;
    c->length = 0;
    snug_status status = snug_generator_answer(c->generator, messages, true, &callbacks, on_piece, on_answer, c);
    free(messages);
    const bool stopped = status == SNUG_E_INTERRUPTED;
    if (status == SNUG_OK || stopped) {
        add_message(c, "assistant", c->answer ? c->answer : "");
        cli_put(c->cli, stopped ? " [stopped]\n" : "\n");
        return cli_put(c->cli, ""); /* now, before messages on stderr */
    }
    if (status == SNUG_E_IO || status == SNUG_E_MEMORY) return status;
    fprintf(stderr, "snug: %s\n", snug_error_message(c->cli->ctx));
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
    return SNUG_OK;
}

static void reset(struct chat *c, const char *system) {
    json_decref(c->messages);
    c->messages = json_array();
    if (*system) add_message(c, "system", system);
    fputs(*system ? "a new chat, with this system message\n" : "a new chat\n", stderr);
}

/* Whether it is a command; *ends: that to end the chat. */
static bool run_command(struct chat *c, const char *text, bool *ends) {
    *ends = strcmp(text, "/quit") == 0 || strcmp(text, "/exit") == 0;
    if (*text != '/' || *ends) return *ends;
    if (strcmp(text, "/reset") == 0)
        reset(c, "");
    else if (strncmp(text, "/system ", 8) == 0)
        reset(c, text + 8);
    else
        fputs("/reset begins a new chat, /system TEXT one with a system message, /quit ends\n", stderr);
    return true;
}

static snug_status talk(struct chat *c) {
    snug_status status = SNUG_OK;
    bool ends = false;
    while (status == SNUG_OK && !ends) {
        char *text = read_message(c);
        interrupted = 0;
        ends = !text && !c->broken;
        if (c->broken) fputs("\n(/quit ends)\n", stderr);
        if (text && *text && !run_command(c, text, &ends)) status = take_turn(c, text);
        interrupted = 0;
        free(text);
    }
    return status;
}

static int chat(int argc, char **argv) {
    struct cli cli;
    int code;
    if (cli_open(&cli, argc, argv, &code)) {
        struct chat c = {.cli = &cli, .messages = json_array(), .asks = isatty(STDIN_FILENO)};
        snug_status status = snug_generator_open(cli.args, &c.generator);
        catch_interrupts();
        if (status == SNUG_OK) status = talk(&c);
        snug_generator_destroy(c.generator);
        json_decref(c.messages);
        free(c.answer);
        code = cli_finish(&cli, status);
    }
    cli_close(&cli);
    return code;
}

int command_chat(int argc, char **argv) { return cli_name_model(argc, argv, chat); }
