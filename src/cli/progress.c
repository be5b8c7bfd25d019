/* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "progress.h"
#include "show.h"
#include "system.h"

/* A line that is being formatted, truncated at its end. */
struct line {
    char text[1 << 14]; /* long enough for the metrics of many entity types */
    size_t length;
};

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, args);
    va_end(args);
    line->length += (size_t)length;
    if (line->length >= sizeof line->text) line->length = sizeof line->text - 1;
}

/* The locale that setlocale() would choose; calling it would change how numbers are parsed. */
static bool locale_is_utf8(void) {
    const char *locale = cli_is_set("LC_ALL")     ? getenv("LC_ALL")
                         : cli_is_set("LC_CTYPE") ? getenv("LC_CTYPE")
                                                  : getenv("LANG");
    return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

void progress_begin(struct progress *progress) {
    const char *terminal = getenv("TERM");
    bool capable = isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    *progress = (struct progress){
        .live = capable,
        .colour = capable && !cli_is_set("NO_COLOR"),
        .utf8 = locale_is_utf8(),
    };
}

static void erase(struct progress *progress) {
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
}

void progress_end(struct progress *progress) {
    flockfile(stderr);
    erase(progress);
    fflush(stderr);
    funlockfile(stderr);
}

/* Worker threads log too: the stream's lock separates message and bar. */
static void say(struct progress *progress, const char *prefix, const char *text) {
    flockfile(stderr);
    erase(progress);
    fputs(prefix, stderr);
    cli_show(stderr, text);
    fputc('\n', stderr);
    fflush(stderr);
    funlockfile(stderr);
}

void progress_on_log(void *user, snug_log_level level, const char *message) {
    static const char *const prefixes[] = {"debug: ", "", "warning: ", "error: "};
    say(user, prefixes[level], message);
}

/* ---- Trainer's log lines ------------------------------------------------------------------------------------- */

bool progress_is_whole(double value) { return value == floor(value) && fabs(value) < 0x1p53; }

/* As Python's dict; a class's name that ends the key would look like another value. */
static void add_pair(struct line *line, const char *key, double value) {
    add(line, "%s'", line->length > 1 ? ", " : "");
    for (; *key; key++) add(line, "%s%c", *key == '\'' || *key == '\\' ? "\\" : "", *key);
    add(line, "': ");
    const bool long_one = fabs(value) >= 1e4 && fabs(value) < 1e15; /* without an exponent */
    add(line, isnan(value) ? "nan" : progress_is_whole(value) || long_one ? "%.0f" : "%.4g", value);
}

static void say_log(struct progress *progress, const snug_event *event) {
    struct line line = {"{", 1};
    add_pair(&line, "loss", event->loss);
    add_pair(&line, "grad_norm", event->grad_norm);
    add_pair(&line, "learning_rate", event->learning_rate);
    add(&line, ", 'epoch': %.2f}", event->epoch);
    say(progress, "", line.text);
}

static void say_metrics(struct progress *progress, const snug_event *event) {
    struct line line = {"{", 1};
    for (size_t i = 0; i < event->metrics->count; i++)
        add_pair(&line, event->metrics->items[i].name, event->metrics->items[i].value);
    add(&line, ", 'epoch': %.2f}", event->epoch);
    say(progress, "", line.text);
}

/* ---- the bar ------------------------------------------------------------------------------------------------- */

static int terminal_width(void) {
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    return size.ws_col > 0 ? size.ws_col : 80;
}

static void add_duration(struct line *line, double seconds) {
    long long whole = llround(seconds), hours = whole / 3600, minutes = whole / 60 % 60;
    if (hours)
        add(line, "%lld:%02lld:%02lld", hours, minutes, whole % 60);
    else
        add(line, "%lld:%02lld", minutes, whole % 60);
}

/* The text right of the bar, most important part first, because a narrow terminal truncates it. */
static void add_facts(struct line *line, const snug_event *event) {
    if (event->kind == SNUG_EVENT_DOWNLOAD) {
        add(line, " %.1f/%.1f MiB", (double)event->step / 0x1p20, (double)event->max_steps / 0x1p20);
        add(line, "  %.1f MiB/s", event->bytes_per_second / 0x1p20);
        add(line, "  ETA ");
        add_duration(line, event->seconds_left);
        return;
    }
    add(line, " %lld/%lld", (long long)event->step, (long long)event->max_steps);
    if (event->kind != SNUG_EVENT_STEP) return;
    add(line, "  loss %.4g", event->loss);
    add(line, "  %.4g samples/s", event->samples_per_second);
    add(line, "  ETA ");
    add_duration(line, event->seconds_left);
    add(line, "  epoch %.2f", event->epoch);
}

static void draw(struct progress *progress, const snug_event *event) {
    double time = cli_now(), share = (double)event->step / (double)event->max_steps;
    bool last = event->step >= event->max_steps;
    if (!progress->live || (!last && time - progress->at < 0.1)) return;
    struct line facts = {"", 0}, line = {"", 0};
    add(&facts, " %3.0f%%", 100 * share);
    add_facts(&facts, event);
    int width = terminal_width() - 1; /* a character in the last column would wrap */
    int room = width - (int)facts.length, cells = room > 30 ? 30 : room >= 8 ? room : 0;
    int full = (int)(share * cells), text = width < (int)facts.length ? width : (int)facts.length;
    for (int i = 0; i < cells; i++) {
        if (progress->colour && i == 0) add(&line, "\033[32m");
        if (progress->colour && i == full) add(&line, "\033[2m");
        add(&line, "%s", progress->utf8 ? (i < full ? "━" : "─") : i < full ? "#" : ".");
    }
    if (progress->colour) add(&line, "\033[0m");
    flockfile(stderr);
    fprintf(stderr, "\r%s%.*s\033[K", line.text, text, facts.text);
    fflush(stderr);
    progress->drawn = true;
    progress->at = time;
    funlockfile(stderr);
}

void progress_on_event(void *user, const snug_event *event) {
    struct progress *progress = user;
    if (progress->quiet) return;
    switch (event->kind) {
    case SNUG_EVENT_BEGIN:
    case SNUG_EVENT_STEP:
    case SNUG_EVENT_DOWNLOAD:
    case SNUG_EVENT_PROGRESS: draw(progress, event); return;
    case SNUG_EVENT_LOG: say_log(progress, event); return;
    case SNUG_EVENT_EVALUATE: say_metrics(progress, event); return;
    case SNUG_EVENT_SAVE: say(progress, "saved ", event->path); return;
    default: progress_end(progress); /* SNUG_EVENT_END */
    }
}
