/* SPDX-License-Identifier: Apache-2.0 */
/* Measured rates as a table. */
#include "plan/estimate.h"

#include <stdio.h>

#include "report/report.h"

/* The inverse of a rate in units of 1e9 per second; empty if the rate is not measured. */
static void print_inverse(FILE *out, double seconds) {
    if (seconds > 0)
        fprintf(out, " %10.1f", 1e-9 / seconds);
    else
        fprintf(out, " %10s", "-");
}

static const char *type_name(int32_t types) {
    types &= ~SNUG_ON_HOST;
    return types == 0 ? "fp32" : types & 8 ? "tf32" : (types & 5) == 5 ? "bf16" : "mixed";
}

static void print_rates(FILE *out, const void *report) {
    const snug_rates *rates = report;
    fprintf(out, "%s, %s", rates->device, rates->isa);
    if (rates->threads) fprintf(out, ", %d threads", rates->threads);
    fputs(". Time of a call = a constant + its FLOPs and its bytes, each divided by its rate.\n\n", out);
    fprintf(out, "%-22s %-5s %-8s %10s %10s %10s %8s %8s\n", "operation", "type", "dropout", "us a call", "GFLOP/s",
            "GB/s", "shapes", "error");
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        char name[32];
        snprintf(name, sizeof name, "%s%s", snug_op_name(rate->kind),
                 rate->file                   ? ", file"
                 : rate->types & SNUG_ON_HOST ? ", host"
                                              : "");
        fprintf(out, "%-22s %-5s %-8s %10.2f", name, type_name(rate->types), rate->dropout ? "yes" : "no",
                rate->call * 1e6);
        print_inverse(out, rate->flop);
        print_inverse(out, rate->byte);
        fprintf(out, " %8d %7.0f%%\n", (int)rate->samples, 100 * rate->error);
    }
}

snug_status snug_rates_text(const snug_rates *rates, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(rates);
    return snug_report_text(rates->ctx, print_rates, rates, text);
}
