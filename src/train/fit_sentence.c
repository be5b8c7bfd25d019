/* SPDX-License-Identifier: Apache-2.0 */
/* The result of the search in words. */
#include <stdio.h>

#include "train/fit.h"

snug_status snug_fit_sentence(snug_context *ctx, const struct snug_fit *fit, char **text) {
    const struct snug_priced *asked = &fit->asked, *chosen = &fit->chosen;
    const double mib = 0x1p20, limit = (double)fit->limit / mib;
    if (asked->total <= fit->limit)
        return snug_format(ctx, text, "the requested plan fits: %.1f of %.1f MiB; nothing was added",
                           (double)asked->total / mib, limit);
    if (!fit->fits)
        return snug_format(ctx, text, "no mix of methods fits %.1f MiB; the smallest takes %.1f MiB: %s", limit,
                           (double)(chosen->total + SNUG_FIT_MARGIN) / mib,
                           *chosen->flags ? chosen->flags : "the requested plan");
    char faster[512] = "";
    if (fit->rounding.work.seconds > 0)
        snprintf(faster, sizeof faster, "; %s would take %.3g s, with results that are not exactly the same",
                 fit->rounding.flags, fit->rounding.work.seconds);
    return snug_format(
        ctx, text,
        "%s: %.1f MiB instead of %.1f, about %.3g s per step instead of %.3g (%+.0f %%); the fastest of "
        "the mixes that fit %.1f MiB%s%s",
        chosen->flags, (double)chosen->total / mib, (double)asked->total / mib, chosen->work.seconds,
        asked->work.seconds, 100 * (chosen->work.seconds / asked->work.seconds - 1), limit,
        chosen->approximate ? ", none of which gives exactly the same results" : ", with the same results", faster);
}
