/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a training in a terminal: a progress bar that fits its width, in the terminal's characters and colours.
 */
#include <errno.h>
#include <glob.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define FIXTURE struct fixture *f, set_up_here, tear_down
static int set_up_here(void **state);

/* The terminal's capabilities; NULL: the variable is not set. */
struct terminal {
    const char *terminal, *all, *type, *colour;
    int columns;
};

static void set_or_not(const char *name, const char *value) { value ? setenv(name, value, 1) : unsetenv(name); }

/* Starts build/snug in this terminal with these words. */
static pid_t start_in(const struct fixture *f, const struct terminal *t, const char *words, int *master) {
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)t->columns};
    char copy[1024], *rest = copy, *arguments[64] = {"snug"};
    int count = 1;
    snprintf(copy, sizeof copy, "%s", words);
    while (count < 63 && (arguments[count] = strsep(&rest, " "))) count++;
    const pid_t child = forkpty(master, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child) return child;
    set_or_not("TERM", t->terminal);
    set_or_not("LC_ALL", t->all);
    set_or_not("LC_CTYPE", t->type);
    set_or_not("LANG", NULL);
    set_or_not("NO_COLOR", t->colour);
    if (chdir(f->folder) != 0) _exit(125);
    execv(SNUG_BINARY_DIR "/snug", arguments);
    _exit(127);
}

/* All of its output, to be freed; where until is not NULL, the program is interrupted once it has printed that text. */
static char *written(const struct fixture *f, const struct terminal *t, const char *words, const char *until) {
    size_t length = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    int master, status;
    const pid_t child = start_in(f, t, words, &master);
    assert_non_null(text);
    for (ssize_t got; length < capacity - 1;) {
        got = read(master, text + length, capacity - 1 - length);
        if (got <= 0 && errno != EINTR) break; /* EIO: the other end is closed */
        if (got > 0) length += (size_t)got;
        text[length] = '\0';
        if (!until || !strstr(text, until)) continue;
        assert_int_equal(kill(child, SIGINT), 0);
        until = NULL;
    }
    text[length] = '\0';
    close(master);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) % 130 != 0 || until) fail_msg("status %d: %s", status, text);
    return text;
}

#define MODEL                                                                                                          \
    "train --config_name model --tokenizer_name model --output_dir out --save_strategy no --threads 1 --device cpu "

static char *shown(const struct fixture *f, const char *terminal, const char *locale, const char *colour, int columns) {
    return written(f, &(struct terminal){terminal, locale, NULL, colour, columns},
                   MODEL "--train_file train.csv --validation_file dev.csv --max_steps 20 --eval_strategy steps "
                         "--eval_steps 10 --logging_steps 10",
                   NULL);
}

/* Columns of the text up to its end: an escape takes none, a character of several bytes one. */
static int width_of(const char *text, const char *end) {
    int width = 0;
    for (; text < end; text++) {
        if (*text == '\033') {
            while (text < end && (*text < 'A' || *text == '[')) text++;
            continue;
        }
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

/* The bars drawn, none of them wider than the terminal; each ends by clearing the rest of its line. */
static int count_bars(const char *text, int columns) {
    static const char clear[] = "\033[K";
    int bars = 0;
    for (const char *at = text; (at = strchr(at, '\r')); at++) {
        const char *end = strstr(at, clear);
        if (at[1] == '\n' || !end || end == at + 1) continue; /* the end of a line, or an erased bar */
        const int width = width_of(at + 1, end);
        if (width >= columns) fail_msg("%d columns in a terminal of %d: %.*s", width, columns, (int)(end - at), at);
        bars++;
    }
    return bars;
}

static bool is_ascii(const char *text) {
    while (*text && !((unsigned char)*text & 0x80)) text++;
    return !*text;
}

FIXTURE_TEST(test_progress_bar) {
    char *text = shown(f, "xterm", "C.UTF-8", "", 100);
    assert_true(count_bars(text, 100) >= 2);
    assert_contains(text, "\033[32m━");
    assert_contains(text, " 20/20  loss ");
    assert_contains(text, "samples/s  ETA 0:00");
    assert_contains(text, "'eval_loss': ");
    free(text);
}

FIXTURE_TEST(test_narrow_terminal) {
    for (int columns = 8; columns <= 64; columns *= 2) {
        char *text = shown(f, "xterm", "C.UTF-8", "", columns);
        assert_true(count_bars(text, columns) >= 2);
        free(text);
    }
}

FIXTURE_TEST(test_terminal_without_capabilities) {
    char *text = shown(f, "xterm", "C", "", 100);
    assert_true(is_ascii(text) && count_bars(text, 100) >= 2);
    assert_contains(text, "\033[32m#");
    free(text);
    text = shown(f, "xterm", "C.UTF-8", "1", 100);
    assert_contains(text, "━");
    assert_null(strstr(text, "m━"));
    free(text);
    text = shown(f, "dumb", "C.UTF-8", "", 100);
    assert_null(strchr(text, '\033'));
    assert_contains(text, "'eval_loss': ");
    free(text);
}

FIXTURE_TEST(test_terminal_without_information) {
    const char *words = MODEL "--train_file train.csv --max_steps 5";
    /* No size, and a locale that sets only the characters. */
    char *text = written(f, &(struct terminal){"xterm", "", "C.utf8", NULL, 0}, words, NULL);
    assert_true(count_bars(text, 80) >= 1);
    assert_contains(text, "━");
    free(text);
    /* No terminal type; no bar where it is disabled. */
    text = written(f, &(struct terminal){NULL, NULL, NULL, NULL, 80}, words, NULL);
    assert_null(strchr(text, '\033'));
    free(text);
    text = written(f, &(struct terminal){"xterm", NULL, NULL, NULL, 80},
                   MODEL "--train_file train.csv --max_steps 5 --disable_tqdm True", NULL);
    assert_int_equal(count_bars(text, 80), 0);
    free(text);
}

FIXTURE_TEST(test_time_format) {
    static const char before[] = "samples/s  ETA ";
    char *text = written(f, &(struct terminal){"xterm", NULL, NULL, NULL, 120},
                         MODEL "--train_file dummy:64x8 --max_steps 50000000", before);
    int hours, minutes, seconds;
    assert_true(is_ascii(text)); /* without a locale */
    assert_int_equal(sscanf(strstr(text, before) + strlen(before), "%d:%2d:%2d", &hours, &minutes, &seconds), 3);
    assert_true(hours > 0 && minutes < 60 && seconds < 60);
    free(text);
}

FIXTURE_TEST(test_watch) {
    free(written(f, &(struct terminal){"xterm", NULL, NULL, NULL, 80}, "gpu --watch 0.1", "\n\033[H\033[2J"));
}

/* A training whose terminal is closed saves and ends. */
/* A page is not for a terminal. */
FIXTURE_TEST(test_report) {
    char text[4096] = "";
    size_t length = 0;
    int master, status;
    const pid_t child = start_in(f, &(struct terminal){.terminal = "xterm", .columns = 80}, "report out", &master);
    for (ssize_t got = 1; got > 0 && length<sizeof text - 1; length += got> 0 ? (size_t)got : 0)
        got = read(master, text + length, sizeof text - 1 - length);
    close(master);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_contains(text, "the page goes to stdout: give it a file");
}

FIXTURE_TEST(test_closed_terminal) {
    char text[4096] = "";
    int master, status;
    const pid_t child = start_in(f, &(struct terminal){"xterm", NULL, NULL, NULL, 80},
                                 MODEL "--train_file train.csv --max_steps 100000 --logging_steps 5", &master);
    for (size_t length = 0; !strstr(text, "'loss'");) {
        const ssize_t got = read(master, text + length, sizeof text - 1 - length);
        if (got <= 0) fail_msg("it ended by itself: %s", text);
        length += (size_t)got;
    }
    close(master);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 130);
    glob_t found;
    assert_int_equal(glob(path_of(f, "out/checkpoint-*"), 0, NULL, &found), 0);
    assert_int_equal(folder_verify(f->ctx, found.gl_pathv[0]), SNUG_OK);
    globfree(&found);
}

/* NOLINTBEGIN(misc-misleading-bidirectional): such characters are what is tested, written as escapes */
/* A label with ESC, DEL, CSI, a line break, a bidirectional override, a line separator and U+0082, and its escaped
   form. */
#define ODD "\033[2J\x7f\xC2\x9B\n\xE2\x80\xAE\xE2\x80\xA8,\xC3\xA9\xC2\x82"
#define SHOWN "\\x1b[2J\\u007f\\u009b\\x0a\\u202e\\u2028,\xC3\xA9\\u0082"

/* No control byte except line ends. */
static void assert_harmless(const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if ((*at < ' ' && *at != '\n' && *at != '\r') || *at == 0x7F || (*at == 0xC2 && at[1] < 0xA0) ||
            (*at == 0xE2 && at[1] == 0x80 && at[2] >= 0xA8 && at[2] <= 0xAE))
            fail_msg("byte %02x: %s", *at, text);
}

FIXTURE_TEST(test_results_are_escaped) {
    const struct terminal terminal = {"xterm", "C.UTF-8", NULL, "1", 80};
    make_labeller(f, ODD);
    char *text = written(f, &terminal, "predict --disable_tqdm --model_name_or_path out --test_file rows.csv", NULL);
    assert_harmless(text);
    assert_contains(text, "0,\"" SHOWN "\",0.");
    free(text);
    text = written(f, &terminal, "predict --disable_tqdm --json --model_name_or_path out --test_file rows.csv", NULL);
    assert_harmless(text);
    json_t *row =
        json_loads(strchr(text, '{'), JSON_DISABLE_EOF_CHECK, NULL); /* it is still JSON, with the same value */
    assert_string_equal(json_string_value(json_object_get(row, "label")), ODD);
    json_decref(row);
    free(text);
    /* Files and pipes get the label's bytes. */
    text = run_well(f, "predict --model_name_or_path out --test_file rows.csv");
    assert_contains(text, "0,\"" ODD "\",0.");
    free(text);
    row = run_json(f, "predict --json --model_name_or_path out --test_file rows.csv");
    assert_string_equal(json_string_value(json_object_get(row, "label")), ODD);
    json_decref(row);
    /* Tokens: an added token may contain anything. */
    write_text(f, "out/added_tokens.json", "{\"w1\\u009b\": 207}");
    write_text(f, "rows.csv", "sentence\nw1\xC2\x9B\n");
    text = written(f, &terminal, "tokenize --model_name_or_path out --test_file rows.csv", NULL);
    assert_harmless(text);
    free(text);
}

FIXTURE_TEST(test_names_are_escaped) {
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"tr\033[2Jain", "snug: tr\\x1b[2Jain: unknown command; the nearest is train"},
        {"bench \xE2\x80\xAE\xFF", "snug bench: \\u202e\\xff: unknown bench"},
        {"gpu \a\xE2\x80\xA9", "snug gpu: \\x07\\u2029 is not a valid argument"},
        {"train --\xE2\x81\xA6x 1", "\\u2066x"},
        {"plan --config_name \x7f\xC2\x85\n\xE2\x80\x8F", "\\u007f\\u0085\\x0a\\u200f"},
        {"plan --config_name bert-base-uncased --train_file dummy:8x8 --offload optimizer --offload_dir out\033\n",
         "to out\\x1b\\x0a"},
        {"bench anatomy --config_name model --train_file dummy:8x8 --max_steps 1 --device cpu --threads 1 "
         "--offload optimizer --offload_dir out\033\n",
         "Where a step's time goes"},
        {MODEL "--train_file train.csv --max_steps 2 --disable_tqdm --output_dir o\033ut\xD8\x9C --save_steps 1 "
               "--save_strategy steps",
         "saved o\\x1but\\u061c/checkpoint-1"},
        {MODEL "--train_file train.csv --max_steps 1 --disable_tqdm --output_dir o\nut --validation_file dev.csv "
               "--save_strategy steps --save_steps 1 --eval_strategy steps --eval_steps 1 --load_best_model_at_end",
         "Checkpoint o\\x0aut/checkpoint-1, the best"},
        {"doctor --device cpu", "CUDA_VISIBLE_DEVICES=\\x1b[2J\\x0a\\u202e"},
        {"gpu", "CUDA_VISIBLE_DEVICES=\\x1b[2J\\x0a\\u202e"},
    };
    setenv("CUDA_VISIBLE_DEVICES", "\033[2J\n\xE2\x80\xAE", 1);
    assert_int_equal(snug_folder_create(f->ctx, path_of(f, "out\033\n")), SNUG_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int master;
        char text[1 << 14] = "";
        const pid_t child =
            start_in(f, &(struct terminal){"dumb", "C.UTF-8", NULL, NULL, 200}, cases[i].words, &master);
        for (size_t length = 0; length < sizeof text - 1;) {
            const ssize_t got = read(master, text + length, sizeof text - 1 - length);
            if (got <= 0) break;
            length += (size_t)got;
        }
        close(master);
        wait_for(child);
        assert_harmless(text);
        assert_contains(text, cases[i].says);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* NOLINTEND(misc-misleading-bidirectional) */

static int set_up_here(void **state) {
    set_up(state);
    struct fixture *f = *state;
    write_model(f, "model", 0.1, 16, 2, VOCABULARY);
    return 0;
}

TEST_MAIN(NULL, NULL)
