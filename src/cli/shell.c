/* SPDX-License-Identifier: Apache-2.0 */
#include "shell.h"

#include <errno.h>
#include <string.h>

#include "snug.h"

static bool is_plain(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:=+/@%";
    return *word && word[strspn(word, plain)] == '\0';
}

/* Whether a terminal would show other characters than the word has. */
static bool needs_escapes(const char *word) {
    char piece[256];
    for (size_t step, left = strlen(word); left; word += step, left -= step) {
        step = snug_escape(piece, sizeof piece, word, left);
        if (strncmp(piece, word, step) != 0) return true;
    }
    return false;
}

/* As $'…', which bash, zsh and ksh read with the escapes of snug_escape(). */
static void put_escaped(FILE *out, const char *word) {
    char piece[256];
    fputs("$'", out);
    while (*word) {
        const size_t length = strcspn(word, "'\\");
        if (length) {
            word += snug_escape(piece, sizeof piece, word, length);
            fputs(piece, out);
        } else {
            fprintf(out, "\\%c", *word++);
        }
    }
    putc('\'', out);
}

static void put_quoted(FILE *out, const char *word) {
    putc('\'', out);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            putc(*word, out);
    putc('\'', out);
}

void cli_put_word(FILE *out, const char *word) {
    if (is_plain(word))
        fputs(word, out);
    else if (needs_escapes(word))
        put_escaped(out, word);
    else
        put_quoted(out, word);
}

void cli_put_path(FILE *out, const char *path) {
    if (*path == '-') fputs("./", out); /* else it would be an argument's name */
    cli_put_word(out, path);
}

void cli_put_program(FILE *out) { cli_put_word(out, program_invocation_name); }
