/* SPDX-License-Identifier: Apache-2.0 */
/* What a training shows in a terminal: a bar that fits its width, in the characters and colours that it has. */
#include <errno.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "training_fixture.h"

/* All that build/snug writes to a terminal of so many columns, to be freed. */
static char *shown(const struct fixture *f, const char *terminal, const char *locale, const char *colour, int columns) {
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    size_t length = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    int master, status;
    const pid_t child = forkpty(&master, NULL, NULL, &size);
    assert_true(child >= 0 && text);
    if (child == 0) {
        setenv("TERM", terminal, 1);
        setenv("LC_ALL", locale, 1);
        setenv("NO_COLOR", colour, 1);
        if (chdir(f->folder) != 0) _exit(125);
        execl(SNUG_BINARY_DIR "/snug", "snug", "train", "--config_name", "model", "--tokenizer_name", "model",
              "--train_file", "train.csv", "--validation_file", "dev.csv", "--output_dir", "out", "--max_steps", "20",
              "--eval_strategy", "steps", "--eval_steps", "10", "--logging_steps", "10", "--save_strategy", "no",
              "--threads", "1", "--device", "cpu", (char *)NULL);
        _exit(127);
    }
    for (ssize_t got; length < capacity - 1;) {
        got = read(master, text + length, capacity - 1 - length);
        if (got <= 0 && errno != EINTR) break; /* EIO: the other end is closed */
        if (got > 0) length += (size_t)got;
    }
    text[length] = '\0';
    close(master);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("status %d: %s", status, text);
    return text;
}

/* Columns that text takes up to its end: escapes none, a character of several bytes one. */
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
        if (at[1] == '\n' || !end || end == at + 1) continue; /* a line's end, or an erased bar */
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

static void test_a_bar_is_drawn(void **state) {
    const struct fixture *f = *state;
    char *text = shown(f, "xterm", "C.UTF-8", "", 100);
    assert_true(count_bars(text, 100) >= 2);
    assert_contains(text, "\033[32m━");
    assert_contains(text, " 20/20  loss ");
    assert_contains(text, "samples/s  ETA 0:00");
    assert_contains(text, "'eval_loss': ");
    free(text);
}

static void test_a_narrow_terminal_cuts_it(void **state) {
    const struct fixture *f = *state;
    for (int columns = 8; columns <= 64; columns *= 2) {
        char *text = shown(f, "xterm", "C.UTF-8", "", columns);
        assert_true(count_bars(text, columns) >= 2);
        free(text);
    }
}

static void test_what_the_terminal_cannot_do(void **state) {
    const struct fixture *f = *state;
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

static int set_up_here(void **state) {
    set_up(state);
    struct fixture *f = *state;
    write_model(f, "model", 0.1, 16, 2, VOCABULARY);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_bar_is_drawn, set_up_here, tear_down),
        cmocka_unit_test_setup_teardown(test_a_narrow_terminal_cuts_it, set_up_here, tear_down),
        cmocka_unit_test_setup_teardown(test_what_the_terminal_cannot_do, set_up_here, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
