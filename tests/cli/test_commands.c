/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of tests/cli/commands/commands.txt, as users of transformers type them: each gives what Trainer gives,
   or a sentence that says what to do instead. "test_commands files" only writes their models and data, for
   tools/golden/commands.py. */
#include <math.h>
#include <regex.h>
#include <sys/stat.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up_commands, tear_down

enum { LEAST = 60 }; /* commands that the file must have */

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void make_folder(const struct fixture *f, const char *name) {
    assert_int_equal(mkdir(path_of(f, "%s", name), 0700), 0);
}

/* Three to nine words. */
static void put_words(FILE *file, uint32_t row, uint32_t column, const char *separator) {
    const uint32_t count = 3 + random_word(row, 0, column) % 7;
    for (uint32_t i = 0; i < count; i++) fprintf(file, "%sw%u", i ? separator : "", frequent_word(row, 1 + i, column));
}

/* Four to seven words, the second of three tokens, with tags. */
static void put_sentence(FILE *file, uint32_t row) {
    static const char *const tags[] = {
        "\"O\", \"B-PER\", \"I-PER\", \"O\"",
        "\"B-LOC\", \"O\", \"O\", \"B-PER\"",
        "\"O\", \"O\", \"B-LOC\", \"I-LOC\"",
    };
    fprintf(file, "{\"id\": \"%u\", \"tokens\": [\"w1\", \"w%u-w3\", \"w2\", \"good\"", row, row % WORDS);
    for (uint32_t i = 0; i < row % 4; i++) fprintf(file, ", \"w%u\"", row + i);
    fprintf(file, "], \"ner_tags\": [%s", tags[row % 3]);
    for (uint32_t i = 0; i < row % 4; i++) fputs(", \"O\"", file);
    fputs("]}\n", file);
}

/* A row in the form of a task's usual files. */
static void put_row(FILE *file, const char *folder, uint32_t row) {
    static const char *const topics[] = {"[\"earn\"]", "[\"acq\", \"grain\"]", "[]"};
    if (strcmp(folder, "wikitext") == 0) {
        put_words(file, row, 1, " ");
        fputc('\n', file);
    } else if (strcmp(folder, "reuters") == 0) {
        fputs("{\"text\": \"", file);
        put_words(file, row, 1, " ");
        fprintf(file, "\", \"topics\": %s}\n", topics[row % 3]);
    } else if (strcmp(folder, "ner") == 0) {
        put_sentence(file, row);
    } else {
        put_words(file, row, 1, " ");
        if (strcmp(folder, "sst2") != 0) {
            fputc(',', file);
            put_words(file, row, 2, " ");
        }
        if (strcmp(folder, "stsb") == 0)
            fprintf(file, ",%u.5\n", row % 5);
        else
            fprintf(file, ",%u\n", row % (strcmp(folder, "reviews") == 0 ? 5 : 2));
    }
}

/* Most trainings have one batch, because snug's random order of rows is not Trainer's, and so have evaluations of tags,
   because Trainer's loss is the mean of the batches' means. */
static void write_task(const struct fixture *f, const char *folder, const char *ending, const char *head,
                       uint32_t rows) {
    const struct {
        const char *name;
        uint32_t rows;
    } files[] = {{"train", rows}, {"dev", rows < 12 ? rows : 12}, {"test", 6}};
    make_folder(f, folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *file = fopen(path_of(f, "%s/%s.%s", folder, files[i].name, ending), "w");
        assert_non_null(file);
        if (*head) fprintf(file, "%s\n", head);
        const uint32_t lines = strcmp(folder, "wikitext") == 0 ? 4 * files[i].rows : files[i].rows;
        for (uint32_t row = 0; row < lines; row++) put_row(file, folder, 100 * (uint32_t)i + row);
        assert_int_equal(fclose(file), 0);
    }
}

/* Without dropout, whose masks are not Trainer's, and with weights large enough that logits differ. */
static void write_start(const struct fixture *f) {
    write_model(f, "start", 0, 32, 2, VOCABULARY);
    json_t *config = read_json(f, path_of(f, "start/config.json"));
    json_object_set_new(config, "initializer_range", json_real(0.4));
    assert_int_equal(json_dump_file(config, path_of(f, "start/config.json"), 0), 0);
    json_decref(config);
    write_text(f, "start/tokenizer_config.json", "{\"do_lower_case\": true, \"model_max_length\": 64}");
}

static int set_up_commands(void **state) {
    if (set_up(state) != 0) return -1;
    struct fixture *f = *state;
    make_folder(f, "google-bert");
    make_folder(f, "google-t5");
    make_folder(f, "google-t5/t5-small");
    write_text(f, "google-t5/t5-small/config.json", "{\"model_type\": \"t5\", \"d_model\": 512}");
    write_start(f);
    free(run_well(f, "train --task mlm --config_name start --tokenizer_name start --train_file train.txt "
                     "--line_by_line --max_steps 1 --save_strategy no --output_dir google-bert/bert-base-cased"));
    assert_int_equal(symlink("bert-base-cased", path_of(f, "google-bert/bert-base-uncased")), 0);
    write_task(f, "sst2", "csv", "sentence,label", 8);
    write_task(f, "mrpc", "csv", "sentence1,sentence2,label", 30);
    write_task(f, "stsb", "csv", "sentence1,sentence2,label", 8);
    write_task(f, "reviews", "csv", "review_title,review_body,stars", 30);
    write_task(f, "reuters", "json", "", 30);
    write_task(f, "ner", "json", "", 8);
    write_task(f, "wikitext", "txt", "", 40);
    make_folder(f, "data");
    write_text(f, "data/train-00000-of-00001.parquet", "PAR1\x15\x04\x15PAR1");
    write_bytes(path_of(f, "cache/imdb-train.arrow"), "ARROW1\0", 8);
    write_text(f, "ds_config.json",
               "{\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": 4, "
               "\"gradient_clipping\": \"auto\"}");
    write_text(f, "ds_offload.json",
               "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}}");
    write_text(f, "args.json",
               "{\"model_name_or_path\": \"google-bert/bert-base-cased\", \"train_file\": \"sst2/train.csv\", "
               "\"learning_rate\": 2e-5, \"max_steps\": 1, \"do_train\": true, \"output_dir\": \"out/args\"}");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s:%s", SNUG_BINARY_DIR, getenv("PATH"));
    setenv("PATH", path, 1); /* as after make install */
    setenv("HF_HOME", path_of(f, "huggingface"), 1);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    return 0;
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* Runs it in a shell in the test's folder; returns its exit code, and what it wrote to both streams. */
static int run_command(const struct fixture *f, const char *command, char **output) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (chdir(f->folder) != 0 || !freopen("/dev/null", "r", stdin) || !freopen("output", "w", stdout) ||
            dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
            _exit(125);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    const int code = wait_for(child);
    *output = output_of(f, "output");
    return code;
}

static bool matches(const char *pattern, const char *output) {
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB) != 0)
        fail_msg("not an expression: %s", pattern);
    const bool found = regexec(&regex, output, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* What follows the name's next place in the text: at the beginning of a line, or as a key of JSON. */
static const char *after_name(const char *text, const char *at, const char *name) {
    while ((at = strstr(at, name))) {
        const bool begins = at == text || at[-1] == '\n' || at[-1] == '"';
        at += strlen(name);
        if (begins && (!*at || strchr("\": =,\t\n", *at))) return at;
    }
    return NULL;
}

/* Whether the text has the name, and the numbers after its places begin with the wanted ones. On a CPU with AVX-512
   they differ by up to 1e-5. */
static bool has_numbers(const char *text, const char *name, const char *wanted) {
    const char *at = text;
    bool found = false, same = true;
    while ((!found || *wanted) && same && (at = after_name(text, at, name))) {
        found = true;
        while (*wanted && same) {
            char *end, *next;
            at += strspn(at, "\": =,\t");
            if (*at != '-' && (*at < '0' || *at > '9')) break;
            const double number = strtod(at, &end), value = strtod(wanted, &next);
            same = fabs(number - value) <= 1e-4 * fabs(value) + 1e-7;
            if (!same) print_error("%s is %.9g, not %.9g\n", name, number, value);
            at = end;
            wanted = next;
        }
    }
    return found && same && !*wanted;
}

/* Of "FILE NAME = NUMBERS" or "FILE NAME". */
static bool agrees(const struct fixture *f, const char *output, const char *line) {
    char copy[1024], *name = copy;
    assert_true(strlen(line) < sizeof copy);
    strcpy(copy, line);
    const char *file = strsep(&name, " "), *numbers = "";
    assert_non_null(name);
    char *sign = strstr(name, " = ");
    if (sign) {
        *sign = '\0';
        numbers = sign + strlen(" = ");
    }
    char *text = strcmp(file, "-") == 0 ? strdup(output) : read_text(f, path_of(f, "%s", file), NULL);
    const bool same = has_numbers(text, name, numbers);
    free(text);
    return same;
}

/* A line's text without its end. */
static char *next_line(char **rest) {
    char *line = strsep(rest, "\n");
    return line && !*line && !*rest ? NULL : line;
}

/* A command that is being read and run. */
struct command {
    char text[2048], *output;
    bool unchecked; /* nothing is expected of it yet */
};

static void add_line(struct command *c, const char *line) {
    const size_t used = strlen(c->text), length = strlen(line);
    assert_true(used + length < sizeof c->text);
    memcpy(c->text + used, line, length + 1);
    if (line[length - 1] == '\\') c->text[used + length - 1] = ' ';
    c->unchecked = true;
}

/* All commands are run, and what differs is printed. */
FIXTURE_TEST(test_commands) {
    struct command c = {"", NULL, false};
    char *file = read_text(f, SNUG_SOURCE_DIR "/tests/cli/commands/commands.txt", NULL), *rest = file;
    int commands = 0, differ = 0;
    for (char *line; (line = next_line(&rest));) {
        if (*line == '#' || !*line) {
            if (c.unchecked) fail_msg("%s: no outcome is expected of it", c.text);
            *c.text = '\0';
        } else if (strncmp(line, "= ", 2) == 0) {
            free(c.output);
            const int code = run_command(f, c.text, &c.output);
            if (code != atoi(line + 2)) print_error("%s: exit code %d, not %s: %s\n", c.text, code, line + 2, c.output);
            differ += code != atoi(line + 2);
            commands++;
        } else if (strncmp(line, "~ ", 2) == 0 || strncmp(line, ": ", 2) == 0) {
            assert_non_null(c.output);
            const bool right = *line == '~' ? matches(line + 2, c.output) : agrees(f, c.output, line + 2);
            if (!right) print_error("%s: it does not have \"%s\": %s\n", c.text, line, c.output);
            differ += !right;
            c.unchecked = false;
        } else {
            add_line(&c, line);
        }
    }
    assert_false(c.unchecked);
    free(c.output);
    free(file);
    if (differ) fail_msg("%d outcomes differ", differ);
    if (commands < LEAST) fail_msg("only %d commands", commands);
    print_message("%d commands\n", commands);
}

int main(int argc, char **argv) {
    void *state;
    if (argc == 2 && strcmp(argv[1], "files") == 0) { /* the caller removes the folder */
        const int failed = set_up_commands(&state);
        if (!failed) puts(((struct fixture *)state)->folder);
        return failed;
    }
    return run_registered(NULL, NULL);
}
