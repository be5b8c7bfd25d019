/* SPDX-License-Identifier: Apache-2.0 */
/* The result of the search in words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainings.h"

enum { TEXT = 2048 };
/* The factor from which on a training that fits and is faster than the run's mix is named. */
#define FAR_FASTER 1.5

/* Trainings of fewer parameters: where no mix fits, what each of them needs; otherwise those that fit and take far less
   time. */
static void name_trainings(const struct snug_fit *fit, char text[TEXT]) {
    size_t used = 0;
    *text = '\0';
    for (int kind = (int)fit->training + 1; kind < SNUG_TRAINING_COUNT; kind++) {
        const struct snug_priced *t = &fit->trainings[kind];
        const bool fits = t->total + SNUG_FIT_MARGIN <= fit->limit;
        if (!t->total || (fit->fits && !(fits && FAR_FASTER * t->work.seconds < fit->chosen.work.seconds))) continue;
        used += (size_t)snprintf(text + used, TEXT - used, "%s %s (%s) would take %.1f MiB%s, about %.3g s per step",
                                 used ? ", and" : "; --fit never chooses another training:", t->name, t->flags,
                                 (double)t->total / 0x1p20, fits ? "" : ", which does not fit", t->work.seconds);
    }
}

static snug_status describe_mix(snug_context *ctx, const struct snug_fit *fit, const char *trainings, char **text) {
    const struct snug_priced *asked = &fit->asked, *chosen = &fit->chosen;
    const double mib = 0x1p20, limit = (double)fit->limit / mib;
    char faster[512] = "";
    if (fit->rounding.work.seconds > 0)
        snprintf(faster, sizeof faster, "; %s would take %.3g s, with results that are not exactly the same",
                 fit->rounding.flags, fit->rounding.work.seconds);
    return snug_format(ctx, text,
                       "%s: %.1f MiB instead of %.1f, about %.3g s per step instead of %.3g (%+.0f %%); the fastest of "
                       "the mixes that fit %.1f MiB%s%s%s",
                       chosen->flags, (double)chosen->total / mib, (double)asked->total / mib, chosen->work.seconds,
                       asked->work.seconds, 100 * (chosen->work.seconds / asked->work.seconds - 1), limit,
                       chosen->approximate ? ", none of which gives exactly the same results"
                                           : ", with the same results",
                       faster, trainings);
}

snug_status snug_fit_sentence(snug_context *ctx, const struct snug_fit *fit, char **text) {
    const struct snug_priced *asked = &fit->asked, *chosen = &fit->chosen;
    const double mib = 0x1p20, limit = (double)fit->limit / mib;
    char trainings[TEXT];
    if (asked->total <= fit->limit)
        return snug_format(ctx, text, "the requested plan fits: %.1f of %.1f MiB; nothing was added",
                           (double)asked->total / mib, limit);
    name_trainings(fit, trainings);
    if (fit->fits) return describe_mix(ctx, fit, trainings, text);
    return snug_format(ctx, text, "no mix of methods fits %.1f MiB; the smallest takes %.1f MiB: %s%s", limit,
                       (double)(chosen->total + SNUG_FIT_MARGIN) / mib,
                       *chosen->flags ? chosen->flags : "the requested plan", trainings);
}
