/* SPDX-License-Identifier: Apache-2.0 */
#include "train/pace.h"

#include <math.h>
#include <stdio.h>

enum {
    SECONDS_LEAST = 30, /* of a window */
    STEPS_LEAST = 10,   /* so that a pause or a few long texts do not decide */
    STEPS_FEW = 3,      /* enough if they are slower than planned by this: */
    FAR = 20,
};

/* How many times slower than planned is slow: estimates of other sources are less exact. */
static double factor_of(enum snug_seconds_source source) {
    switch (source) {
    case SNUG_SECONDS_MEASURED:
    case SNUG_SECONDS_PROBED: return 2;
    case SNUG_SECONDS_SCALED: return 3;
    case SNUG_SECONDS_ASSUMED: return 5;
    case SNUG_SECONDS_UNKNOWN: break;
    }
    return INFINITY;
}

static void print_duration(char text[32], double seconds) {
    const long long minutes = llround(seconds / 60);
    if (minutes < 2)
        snprintf(text, 32, "%.0f s", seconds);
    else if (minutes < 100)
        snprintf(text, 32, "%lld minutes", minutes);
    else
        snprintf(text, 32, "%lld h %02lld min", minutes / 60, minutes % 60);
}

static void begin_window(struct snug_pace *p, double now) {
    p->began = p->last = now;
    p->expected = 0;
    p->steps = p->slow = 0;
    p->has_before = false;
}

void snug_pace_begin(struct snug_pace *p, const struct snug_pace_plan *plan, double now) {
    *p = (struct snug_pace){.plan = *plan};
    begin_window(p, now);
}

static void tell(struct snug_pace *p, snug_context *ctx, double seconds, double copied, int64_t left) {
    struct snug_slow slow = {.before = p->before,
                             .threads = p->plan.threads,
                             .copying = copied - p->copied,
                             .disk = p->plan.disk,
                             .gpu = p->plan.gpu};
    const struct snug_duration source = {.source = p->plan.source};
    const double step = seconds / (double)p->steps, planned = p->expected / (double)p->steps;
    char cause[512], rest[32], hoped[32];
    snug_machine_read("", &slow.after);
    if (!p->has_before) slow.before = slow.after;
    snug_slow_cause(&slow, cause, sizeof cause);
    print_duration(rest, step * (double)left);
    print_duration(hoped, p->plan.step * (double)left);
    snug_log(ctx, SNUG_LOG_WARNING,
             "the run takes %.1f times as long as planned: the last %lld steps took %.3g s each, planned were %.3g s "
             "(rates: %s); the other %lld take about %s, not %s; %s",
             step / planned, (long long)p->steps, step, planned, snug_duration_source(&source), (long long)left, rest,
             hoped, cause);
    p->told = true;
}

void snug_pace_step(struct snug_pace *p, snug_context *ctx, double now, double tokens, double copied, int64_t left) {
    const double factor = factor_of(p->plan.source), more = tokens / p->plan.tokens;
    if (p->told || !(p->plan.step > 0)) return;
    /* Longer texts than the average take longer; shorter ones have the step's other work, too. */
    const double planned = more > 1 ? p->plan.step * more : p->plan.step;
    p->steps++;
    p->slow += now - p->last > factor * planned;
    p->expected += planned;
    p->last = now;
    if (!p->has_before && now - p->began >= 1) {
        snug_machine_read("", &p->before);
        p->has_before = true;
        p->copied = copied;
    }
    const double seconds = now - p->began;
    const bool enough = p->steps >= STEPS_LEAST || (p->steps >= STEPS_FEW && seconds > FAR * p->expected);
    if (seconds < SECONDS_LEAST || !enough) return;
    if (2 * p->slow > p->steps && seconds > factor * p->expected && left > 0)
        tell(p, ctx, seconds, copied, left);
    else
        begin_window(p, now);
}
