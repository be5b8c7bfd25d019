/* SPDX-License-Identifier: Apache-2.0 */
/* Data that is too long, too wide or too varied: the program answers in bounded memory and in time linear in the file's
   size. SNUG_LARGE=1 adds tests that write more than 400 MB. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up, tear_down

#define MIB ((int64_t)1 << 20)
/* A generous limit for slow and busy machines: quadratic time at these sizes would be hours. */
enum { SECONDS = 120 };
/* The sanitized build measures no memory: where no limit must be exceeded its inputs are so many times smaller. */
enum { SMALLER = SANITIZED ? 10 : 1 };

struct answer {
    int code;
    int64_t peak;
    double seconds;
    char *errors; /* its messages; freed by the caller */
};

/* Runs snug in the test's folder. */
static struct answer ask(const struct fixture *f, const char *words) {
    struct rusage usage;
    int status;
    const double begin = snug_seconds();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char copy[1024], *rest = copy, *arguments[32] = {"snug"};
        snprintf(copy, sizeof copy, "%s", words);
        for (int i = 1; i < 31 && (arguments[i] = strsep(&rest, " ")); i++) continue;
        if (chdir(f->folder) != 0 || !freopen("/dev/null", "w", stdout) || !freopen("stderr", "w", stderr)) _exit(126);
        execv(SNUG_BINARY_DIR "/snug", arguments);
        _exit(127);
    }
    while (wait4(child, &status, 0, &usage) < 0) assert_int_equal(errno, EINTR);
    struct answer answer = {.peak = (int64_t)usage.ru_maxrss * 1024, .seconds = snug_seconds() - begin};
    answer.errors = read_text(f, path_of(f, "stderr"), NULL);
    if (!WIFEXITED(status)) fail_msg("snug %s: ended by signal %d: %s", words, WTERMSIG(status), answer.errors);
    answer.code = WEXITSTATUS(status);
    print_message("%s: %.1f s, %lld MiB\n", words, answer.seconds, (long long)(answer.peak / MIB));
    return answer;
}

static void assert_answer(const struct fixture *f, const char *words, int code, const char *sentence, int64_t peak) {
    struct answer answer = ask(f, words);
    if (answer.code != code) fail_msg("snug %s: exit code %d: %s", words, answer.code, answer.errors);
    assert_contains(answer.errors, sentence);
    assert_true(answer.seconds < SECONDS);
    if (!SANITIZED && answer.peak > peak)
        fail_msg("snug %s: %lld bytes, over %lld", words, (long long)answer.peak, (long long)peak);
    free(answer.errors);
}

/* Writes piece repeatedly until the file has length bytes more. */
static void repeat(FILE *file, const char *piece, int64_t length) {
    char block[1 << 16];
    const size_t size = strlen(piece), whole = sizeof block / size * size;
    for (size_t i = 0; i < whole; i++) block[i] = piece[i % size];
    for (size_t part; length > 0; length -= (int64_t)part) {
        part = (int64_t)whole < length ? whole : (size_t)length;
        /* cppcheck-suppress uninitvar ; the first part bytes are written above */
        assert_int_equal(fwrite(block, 1, part, file), part);
    }
}

static FILE *open_new(const struct fixture *f, const char *name) {
    FILE *file = fopen(path_of(f, "%s", name), "w");
    assert_non_null(file);
    return file;
}

#define TOKENIZE "tokenize --model_name_or_path model --test_file "

FIXTURE_TEST(test_ten_million_characters) {
    static const char *const pieces[] = {"good w1 ", "w", ".", "\u0301", "\u4e2d", "e\u0323\u0301 "};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        int64_t characters = 0;
        for (const char *c = pieces[i]; *c; c++) characters += ((unsigned char)*c & 0xC0) != 0x80;
        const int64_t bytes = 10000000 / SMALLER / characters * (int64_t)strlen(pieces[i]);
        FILE *file = open_new(f, "long.txt");
        repeat(file, pieces[i], bytes);
        assert_int_equal(fclose(file), 0);
        /* the line, its normalised text, ids of 4 bytes, and copies while arrays grow: some 20 bytes for each byte of
           the text */
        assert_answer(f, TOKENIZE "long.txt", 0, "", 48 * MIB + 20 * bytes);
    }
}

/* A text of one letter, or of blanks, and a tokenizer for which a search from each position reads to the end of the
   text. */
FIXTURE_TEST(test_linear_time_searches) {
    enum { LONG = 500000 / SMALLER };
    static const struct {
        bool piece;          /* a piece of the vocabulary; otherwise an added token */
        const char *letters; /* this many of them, then a b */
        const char *flags;   /* of the added token */
        const char *text;    /* the text repeats this */
    } cases[] = {
        {true, "a", "", "a"},
        {false, "z", "", "z"},
        {false, " ", ",\"normalized\":true", " "},
        {false, NULL, ",\"rstrip\":true", " "},
        {false, NULL, ",\"lstrip\":true", " "},
        {false, NULL, ",\"lstrip\":true,\"rstrip\":true,\"single_word\":true", " "},
        {false, NULL, ",\"rstrip\":true,\"normalized\":true", " "},
    };
    assert_int_equal(mkdir(path_of(f, "searches"), 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FILE *file = open_new(f, "searches/tokenizer.json");
        fputs("{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":\"BertProcessing\","
              "\"cls\":[\"c\",1],\"sep\":[\"s\",2]},\"model\":{\"unk_token\":\"u\",\"max_input_chars_per_word\":"
              "100000000,\"vocab\":{\"u\":0,\"c\":1,\"s\":2,\"a\":3,\"##a\":4",
              file);
        fputs(cases[i].piece ? ",\"##" : "}},\"added_tokens\":[{\"id\":5,\"content\":\"", file);
        if (cases[i].letters) repeat(file, cases[i].letters, LONG);
        fputs(cases[i].letters ? "b\"" : " \"", file);
        fprintf(file, cases[i].piece ? ":5}}}" : "%s}]}", cases[i].flags);
        assert_int_equal(fclose(file), 0);
        file = open_new(f, "letters.txt");
        repeat(file, cases[i].text, 6 * LONG);
        fputs("c\n", file);
        assert_int_equal(fclose(file), 0);
        assert_answer(f, "tokenize --model_name_or_path searches --test_file letters.txt", 0, "", 200 * MIB);
    }
}

FIXTURE_TEST(test_million_columns) {
    enum { COLUMNS = 1000000 / SMALLER };
    FILE *file = open_new(f, "wide.csv");
    for (int i = 0; i < COLUMNS; i++) fprintf(file, i ? ",c%d" : "c%d", i);
    fputc('\n', file);
    repeat(file, "1,", 2 * (COLUMNS - 1));
    fputs("1\n", file);
    assert_int_equal(fclose(file), 0);
    assert_answer(f, TOKENIZE "wide.csv --text_column_name c0", 0, "", 600 * MIB);
    assert_answer(f, "plan --model_name_or_path model --train_file wide.csv --text_column_name c0", 1,
                  "there is no label column", 600 * MIB);
}

FIXTURE_TEST(test_rows_that_lack_most_columns) {
    enum { COLUMNS = 200000 / SMALLER };
    FILE *file = open_new(f, "sparse.jsonl");
    for (int i = 0; i < COLUMNS; i++) fprintf(file, "%s\"c%d\":\"w1\"", i ? "," : "{", i);
    fputs("}\n", file);
    char row[64];
    snprintf(row, sizeof row, "{\"c0\":\"w2\",\"c1\":\"w3\",\"c%d\":4}\n", COLUMNS - 1);
    repeat(file, row, COLUMNS * (int64_t)strlen(row));
    assert_int_equal(fclose(file), 0);
    assert_answer(f, TOKENIZE "sparse.jsonl --text_column_name c0 --text_pair_column_name c1", 0, "", 600 * MIB);
}

FIXTURE_TEST(test_as_many_labels_as_rows) {
    enum { LABELS = 100000 / SMALLER };
    FILE *file = open_new(f, "labels.csv");
    fputs("sentence,label\n", file);
    for (int i = 0; i < LABELS; i++) fprintf(file, "good,l%d\n", i);
    assert_int_equal(fclose(file), 0);
    file = open_new(f, "lists.csv");
    fputs("sentence,label\ngood,x", file);
    for (int i = 0; i < LABELS; i++) fprintf(file, "|l%d", i);
    fputs("\n", file);
    assert_int_equal(fclose(file), 0);
    /* Both are refused, but only after all labels were found, sorted and bound. */
    static const char *const files[] = {"labels.csv", "lists.csv"};
    for (int i = 0; i < 2; i++) {
        char words[256];
        snprintf(
            words, sizeof words,
            "train --config_name model --tokenizer_name model --train_file %s --memory_budget 1MiB --output_dir out%s",
            files[i], i ? " --label_separator |" : "");
        assert_answer(f, words, 3, "--memory_budget of 1.0 MiB", 900 * MIB);
    }
}

FIXTURE_TEST(test_endless_lines) {
    /* A line of 1 GiB of zeros, as a hole in the file. */
    const int fd = open(path_of(f, "hole.txt"), O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1024 * MIB), 0);
    close(fd);
    assert_answer(f, TOKENIZE "hole.txt", 1, "hole.txt:1: a NUL byte", 64 * MIB);
    const int64_t bytes = (getenv("SNUG_LARGE") ? 1024 : 300) * MIB;
    static const char *const names[] = {"endless.txt", "endless.csv", "endless.jsonl"};
    for (int i = 0; i < 3; i++) {
        FILE *file = open_new(f, names[i]);
        fputs(i == 0 ? "" : i == 1 ? "sentence\n\"" : "[{\"sentence\":\"", file);
        repeat(file, "good w1 ", bytes);
        assert_int_equal(fclose(file), 0);
        char words[128];
        snprintf(words, sizeof words, TOKENIZE "%s", names[i]);
        assert_answer(f, words, 1, "a row of over 256 MiB begins here", 700 * MIB);
        unlink(path_of(f, "%s", names[i]));
    }
}

/* Whether a mount namespace and a tmpfs are permitted: not on every system. */
static bool can_mount(void) { return system("unshare -rm true > /dev/null 2>&1") == 0; }

/* Runs snug with a token cache on a disk of this many MiB; returns its messages and the files that it left there. */
static char *ask_on_disk(const struct fixture *f, int mib, const char *file, int *left) {
    char command[2048];
    snprintf(command, sizeof command,
             "cd %s && mkdir -p disk && unshare -rm sh -c 'mount -t tmpfs -o size=%dm none disk && SNUG_CACHE=disk "
             "%s/snug train --config_name model --tokenizer_name model --train_file %s --max_steps 1 --device cpu "
             "--output_dir out > /dev/null 2> stderr; echo $? > code; find disk -type f | wc -l > left'",
             f->folder, mib, SNUG_BINARY_DIR, file);
    assert_int_equal(system(command), 0);
    char *text = read_text(f, path_of(f, "left"), NULL), *code = read_text(f, path_of(f, "code"), NULL);
    *left = atoi(text);
    assert_int_equal(atoi(code), 1);
    free(text);
    free(code);
    return read_text(f, path_of(f, "stderr"), NULL);
}

/* A token cache that does not fit the disk: reported after a part of the text was read, or, for a small file, when the
   disk is full. */
FIXTURE_TEST(test_full_disk) {
    static const struct {
        int64_t bytes;
        int mib;
        const char *said;
    } cases[] = {{48 * MIB, 128, "its tokens will take about"},
                 {8 * MIB, 4, "cannot be written: No space left on device"}};
    if (!can_mount()) skip();
    for (int i = 0; i < 2; i++) {
        int left;
        FILE *file = open_new(f, "full.csv");
        fputs("sentence,label\n", file);
        repeat(file, "good w1 w2 w3,0\nbad w1 w2 w3,1\n", cases[i].bytes / 31 * 31);
        assert_int_equal(fclose(file), 0);
        char *said = ask_on_disk(f, cases[i].mib, "full.csv", &left);
        assert_contains(said, cases[i].said);
        assert_contains(said, "SNUG_CACHE");
        assert_int_equal(left, 0);
        free(said);
    }
}

/* Stopped while it tokenizes, in any way: nothing remains that could be mistaken for a complete cache. */
FIXTURE_TEST(test_stopped_while_tokenizing) {
    FILE *file = open_new(f, "long.csv");
    fputs("sentence,label\n", file);
    repeat(file, "good w1 w2 w3,0\nbad w1 w2 w3,1\n", 64 * MIB / 31 * 31);
    assert_int_equal(fclose(file), 0);
    for (int i = 0; i < 2; i++) {
        const pid_t child = fork();
        int status;
        assert_true(child >= 0);
        if (child == 0) {
            if (chdir(f->folder) != 0 || !freopen("/dev/null", "w", stdout) || !freopen("stderr", "w", stderr))
                _exit(126);
            setenv("SNUG_CACHE", "stopped", 1);
            execl(SNUG_BINARY_DIR "/snug", "snug", "train", "--config_name", "model", "--tokenizer_name", "model",
                  "--train_file", "long.csv", "--device", "cpu", "--output_dir", "out", NULL);
            _exit(127);
        }
        while (access(path_of(f, "stopped"), F_OK) != 0) { /* created right before the first row is read */
            if (waitpid(child, &status, WNOHANG) != 0)
                fail_msg("it did not begin: %s", read_text(f, path_of(f, "stderr"), NULL));
            usleep(1000);
        }
        usleep(20000);
        assert_int_equal(kill(child, i ? SIGKILL : SIGINT), 0);
        while (waitpid(child, &status, 0) < 0) assert_int_equal(errno, EINTR);
        if (i) {
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else {
            char *said = read_text(f, path_of(f, "stderr"), NULL);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 130) fail_msg("%s", said);
            assert_contains(said, "interrupted while long.csv was tokenized");
            free(said);
        }
        DIR *folder = opendir(path_of(f, "stopped"));
        assert_non_null(folder);
        for (struct dirent *entry;
             (entry = readdir(folder));) { /* except a hidden name, where the file system has no unnamed files */
            const char *end = strrchr(entry->d_name, '.');
            assert_true(!end || strcmp(end, ".tokens") != 0);
        }
        closedir(folder);
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "stopped")), SNUG_OK);
    }
}

FIXTURE_TEST(test_deep_nesting_and_many_entries) {
    FILE *file = open_new(f, "deep.jsonl");
    repeat(file, "[", 5000000);
    assert_int_equal(fclose(file), 0);
    assert_answer(f, TOKENIZE "deep.jsonl", 1, "deep.jsonl:1: ", 200 * MIB);
    file = open_new(f, "deeper.jsonl");
    fputs("{\"sentence\":", file);
    repeat(file, "[", 5000000);
    assert_int_equal(fclose(file), 0);
    assert_answer(f, TOKENIZE "deeper.jsonl", 1, "over 1000 lists and objects within", 200 * MIB);
    file = open_new(f, "many.jsonl");
    fputs("{\"x\":1,\"sentence\":[\"\\\\,\"", file);
    repeat(file, ",0", 20000000);
    fputs("]}\n", file);
    assert_int_equal(fclose(file), 0);
    assert_answer(f, TOKENIZE "many.jsonl", 1, "many.jsonl: its column \"sentence\" holds lists", 400 * MIB);
}

TEST_MAIN(NULL, NULL)
