/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of this machine, measured for whoever asks, and as a table. */
#include "plan/rates.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"
#include "train/job.h"
#include "train/threads.h"

snug_status snug_rates_create(snug_args *args, snug_rates **out) {
    void *memory;
    char *path;
    *out = NULL;
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(snug_threads_check(args->ctx, snug_args_threads(args)));
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_rates *rates = memory;
    snug_status status = snug_rates_measure(args->ctx, snug_backend_cpu(), snug_args_threads(args), rates);
    if (status == SNUG_OK) status = snug_rates_keep(rates, &path);
    if (status != SNUG_OK) {
        snug_rates_destroy(rates);
        return status;
    }
    if (path) snug_log(args->ctx, SNUG_LOG_INFO, "kept in %s", path);
    free(path);
    *out = rates;
    return SNUG_OK;
}

void snug_rates_destroy(snug_rates *rates) {
    if (!rates) return;
    snug_rates_free(rates);
    free(rates);
}

/* A rate's inverse in units of 1e9 a second; nothing where the work does not count. */
static void print_inverse(FILE *out, double seconds) {
    if (seconds > 0)
        fprintf(out, " %10.1f", 1e-9 / seconds);
    else
        fprintf(out, " %10s", "-");
}

static const char *type_name(int32_t types) { return types == 0 ? "fp32" : (types & 5) == 5 ? "bf16" : "mixed"; }

static void print_rates(FILE *out, const void *report) {
    const snug_rates *rates = report;
    fprintf(out, "%s, %s, %d threads. A call takes its own time, that of its FLOPs and that of its bytes.\n\n",
            rates->cpu, rates->isa, rates->threads);
    fprintf(out, "%-22s %-5s %-8s %10s %10s %10s %8s %8s\n", "operation", "type", "dropout", "us a call", "GFLOP/s",
            "GB/s", "shapes", "error");
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        fprintf(out, "%-22s %-5s %-8s %10.2f", snug_op_name(rate->kind), type_name(rate->types),
                rate->dropout ? "yes" : "no", rate->call * 1e6);
        print_inverse(out, rate->flop);
        print_inverse(out, rate->byte);
        fprintf(out, " %8d %7.0f%%\n", (int)rate->samples, 100 * rate->error);
    }
}

snug_status snug_rates_text(const snug_rates *rates, char **text) {
    return snug_report_text(rates->ctx, print_rates, rates, text);
}
