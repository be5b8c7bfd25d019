/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
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
    fputs("\nsnug COMMAND --help lists a command's usual arguments, --help all all of them; snug --version prints the "
          "version.\n",
          out);
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

/* What is meant by a script of transformers, or by a usual name. */
static const struct {
    const char *names, *says; /* names: separated by spaces */
} meant[] = {
    {"finetune fine-tune fine_tune fit tune training learn run run_glue.py run_classification.py", "give snug train"},
    {"pretrain pre-train run_mlm.py run_mlm_wwm.py", "give snug train --task mlm"},
    {"run_ner.py ner", "give snug train --task token_classification"},
    {"inference infer classify score label tag prediction", "give snug predict"},
    {"test evaluate evaluation validate metrics", "give snug eval"},
    {"download fetch get install clone", "give snug pull"},
    {"estimate memory dry-run dryrun fits", "give snug plan"},
    {"encode tokens", "give snug tokenize"},
    {"benchmark perf profile speed", "give snug bench"},
    {"check selftest", "give snug verify, or snug doctor for the machine"},
    {"info env diagnose", "give snug doctor"},
    {"nvidia-smi gpus", "give snug gpu"},
    {"plot curves visualize dashboard tensorboard compare", "give snug report"},
    {"version", "give snug --version"},
    {"resume continue", "give snug train --args_from FOLDER --resume_from_checkpoint True"},
    {"launch torchrun mpirun", "give snug train --gpus N, or mpirun -n N snug train"},
    {"upload push", "snug does not upload: hf upload NAME OUTPUT_DIR does"},
    {"export convert onnx quantize", "snug does not convert models: transformers' optimum exports a model's folder"},
    {"serve server deploy api", "snug has no server: include/snug.h and its Python package load a model once"},
    {"sweep search hpo", "snug searches no hyper-parameters: run snug train in a loop, and compare with snug report"},
    {"distill", "snug does not distill yet"},
    {"generate chat", "snug has no generation: README.md lists the tasks"},
    {"embed embeddings", "snug embed writes the vectors of texts"},
};

static bool lists(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == length && strncmp(at, name, length) == 0) return true;
    return false;
}

static const char *find_meant(const char *word) {
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (lists(meant[i].names, name)) return meant[i].says;
    return NULL;
}

static int fail_unknown(const char *word) {
    const char *says = find_meant(word);
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
    if (says)
        fprintf(stderr, ": unknown command; %s\n", says);
    else if (*word == '-')
        fputs(": a command comes first, as in snug train; snug --help lists all, snug --version prints the version\n",
              stderr);
    else if (best < 0.5)
        fputs(": unknown command; snug --help lists all\n", stderr);
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
        if (open("/dev/null", modes[stream]) != stream)
            return false; /* open() returns the lowest free number: this one */
    }
    return true;
}

/* For help and version, which have no struct cli. */
static int finish_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_DONE;
    fprintf(stderr, "snug: writing to stdout: %s\n", strerror(errno));
    return EXIT_FAILED;
}

/* A thread that waits for others spins for some 20 µs and then sleeps: long enough for threads that run side by side,
   and the cores are free for other programs. By default GCC's OpenMP spins for milliseconds, which costs most of the
   speed where a core is shared. Its library reads the environment before main(), so the program starts itself again. */
static void wait_briefly(char **argv) {
    const char *self = (const char *)getauxval(AT_EXECFN);
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    if (!self || getauxval(AT_BASE) == 0 || setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;
    execv(self, argv); /* if the file is gone, waiting is slower on a shared machine */
}

int main(int argc, char **argv) {
    wait_briefly(argv);
    if (!open_standard_streams()) {
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
    if (strcmp(word, "help") == 0 && argc > 2)
        return run(argc > 3 ? 3 : 2, (char *[]){argv[2], "--help", argc > 3 ? argv[3] : NULL, NULL});
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
