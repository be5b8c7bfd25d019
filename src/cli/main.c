/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"

static void print_usage(FILE *out) {
    fputs("usage: snug COMMAND [--argument value]…\n\n"
          "Fine-tunes transformers in the memory you have. Arguments are those of Hugging Face's Trainer.\n\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++) {
        if (cli_commands[i].does) fprintf(out, "  %-10s %s\n", cli_commands[i].name, cli_commands[i].does);
    }
    fputs("\nsnug COMMAND --help lists a command's arguments; snug --version prints the version.\n", out);
}

/* Length of the longest common subsequence of characters, used to suggest a command. */
static size_t likeness(const char *word, const char *name) {
    size_t row[16] = {0};
    for (; *word; word++) {
        size_t diagonal = 0;
        for (size_t j = 0; name[j]; j++) {
            size_t above = row[j + 1];
            if (*word == name[j])
                row[j + 1] = diagonal + 1;
            else if (row[j] > above)
                row[j + 1] = row[j];
            diagonal = above;
        }
    }
    return row[strlen(name)];
}

/* The command that is meant by a script of transformers, or by a usual name; NULL: not known. */
static const char *command_of(const char *word) {
    static const char *const meant[][2] = {
        {"finetune", "train"},
        {"fine-tune", "train"},
        {"fit", "train"},
        {"inference", "predict"},
        {"infer", "predict"},
        {"test", "eval"},
        {"download", "pull"},
        {"run_glue.py", "train"},
        {"run_mlm.py", "train --task mlm"},
        {"run_ner.py", "train --task ner"},
        {"run_classification.py", "train"},
    };
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (strcmp(name, meant[i][0]) == 0) return meant[i][1];
    return NULL;
}

static int fail_unknown(const char *word) {
    const char *meant = command_of(word);
    size_t nearest = 0;
    double best = -1;
    for (size_t i = 0; i < cli_command_count; i++) {
        double score =
            2.0 * (double)likeness(word, cli_commands[i].name) / (double)(strlen(word) + strlen(cli_commands[i].name));
        if (score > best) {
            best = score;
            nearest = i;
        }
    }
    fputs("snug: ", stderr);
    cli_show(stderr, word);
    if (meant)
        fprintf(stderr, ": unknown command; give snug %s\n", meant);
    else if (*word == '-')
        fputs(": a command comes first, as in snug train; snug --help lists all, snug --version prints the version\n",
              stderr);
    else
        fprintf(stderr, ": unknown command; the nearest is %s; snug --help lists all\n", cli_commands[nearest].name);
    return EXIT_USAGE;
}

/* argv[0] is the command's name. */
static int run(int argc, char **argv) {
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(argv[0], cli_commands[i].name) == 0) return cli_commands[i].run(argc, argv);
    return fail_unknown(argv[0]);
}

/* A file that is opened later would otherwise get the number of a closed standard stream, and messages would be written
   into it. /dev/null is opened in the mode in which using it fails, so that results for a closed stdout are an error.
 */
static bool open_standard_streams(void) {
    static const int modes[] = {[STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDONLY};
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) >= 0) continue;
        /* untested: needs a machine without /dev/null */
        if (open("/dev/null", modes[stream]) != stream)
            return false; /* open() returns the lowest free number: this one */
    }
    return true;
}

/* For help and version, which have no struct cli. */
static int finish_stdout(void) {
    /* untested: no text for stdout is larger than its buffer */
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_DONE;
    fprintf(stderr, "snug: writing to stdout: %s\n", strerror(errno));
    return EXIT_FAILED;
}

int main(int argc, char **argv) {
    if (!open_standard_streams()) { /* untested: needs a machine without /dev/null */
        fprintf(stderr, "snug: a standard stream is closed and /dev/null cannot be opened: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    /* A closed pipe or the file size limit must be a failed write, so that a job ends cleanly. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "help") == 0 && argc > 2) return run(2, (char *[]){argv[2], "--help", NULL});
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_usage(stdout);
        return finish_stdout();
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        puts("snug " SNUG_VERSION);
        return finish_stdout();
    }
    return run(argc - 1, argv + 1);
}
