/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a training, as text. */
#include <stdio.h>

#include "report/report.h"
#include "text/label_names.h"

static void print_duration(FILE *out, double seconds) {
    long long whole = (long long)seconds;
    if (seconds < 60)
        fprintf(out, "%.2f s", seconds);
    else if (whole < 3600)
        fprintf(out, "%lld:%02lld min", whole / 60, whole % 60);
    else
        fprintf(out, "%lld:%02lld:%02lld h", whole / 3600, whole / 60 % 60, whole % 60);
}

static void print_mebibytes(FILE *out, int64_t bytes) {
    if (bytes < 0)
        fprintf(out, " %11s", "-");
    else
        fprintf(out, " %11.1f", (double)bytes / 0x1p20);
}

static void print_figures(FILE *out, const snug_memory_line *line) {
    print_mebibytes(out, line->planned);
    print_mebibytes(out, line->measured);
    if (line->planned > 0 && line->measured >= 0)
        fprintf(out, " %+8.2f %%", 100 * ((double)line->measured / (double)line->planned - 1));
    fputc('\n', out);
}

static void print_memory_line(FILE *out, const char *name, const snug_memory_line *line) {
    fprintf(out, "  %-12s", name);
    print_figures(out, line);
}

/* Each rank's total, which for rank 0 is that of the table before. */
static void print_ranks(FILE *out, const snug_train_result *result) {
    char shown[SNUG_SHOWN];
    if (!result->rank_count) return;
    fprintf(out, "\n  %4s  %-20s %-28s %11s %11s %10s\n", "rank", "host", "device", "predicted", "measured",
            "difference");
    for (size_t i = 0; i < result->rank_count; i++) {
        const snug_rank_use *rank = &result->ranks[i];
        fprintf(out, "  %4zu  %-20s %-28s", i, snug_shown(shown, rank->host), rank->device ? rank->device : "CPU");
        print_figures(out, &rank->total);
    }
}

static void print_memory(FILE *out, const snug_train_result *result) {
    fprintf(out, "\n  %-12s %11s %11s %10s\n", "memory, MiB", "predicted", "measured", "difference");
    for (int i = 0; i < (int)result->memory_count; i++)
        if (result->memory[i].planned > 0 || result->memory[i].measured > 0)
            print_memory_line(out, snug_memory_class_name((snug_memory_class)i), &result->memory[i]);
    print_memory_line(out, "total", &result->total);
    if (!result->device) return;
    fprintf(out, "  total is what %s holds of this process, without host; measured: %s\n", result->device,
            result->device_method);
    if (*result->device_others) fprintf(out, "  other processes on it: %s\n", result->device_others);
}

static void print_run(FILE *out, const snug_train_result *result) {
    fputs("Time: ", out);
    print_duration(out, result->seconds);
    fprintf(out, " (first step after %.2f s)\n", result->seconds_to_first_step);
    fprintf(out, "Samples/second: %.2f (%.2f steps/s", result->samples_per_second, result->steps_per_second);
    if (result->seconds > 0 && result->flops > 0) fprintf(out, ", %.1f GFLOP/s", result->flops / result->seconds / 1e9);
    fputs(")\n", out);
    int64_t occupied = result->total.measured >= 0 ? result->total.measured : result->total.planned;
    fprintf(out, "Memory occupied: %.1f MiB\n", (double)occupied / 0x1p20);
    fprintf(out, "Trained: %lld step%s, %.2f epochs, %lld samples, %lld tokens; loss %.4f\n", (long long)result->steps,
            result->steps == 1 ? "" : "s", result->epochs, (long long)result->samples, (long long)result->tokens,
            result->train_loss);
    fprintf(out, "Padding avoided: %.1f %% of a padded batch's tokens\n", 100 * result->padding_avoided);
    if (result->loss_scale > 0)
        fprintf(out, "Skipped: %lld steps, whose fp16 gradients were not finite; loss scale %g at the end\n",
                (long long)result->skipped_steps, result->loss_scale);
    if (result->truncated_texts > 0)
        fprintf(out, "Truncated: %lld texts were longer than --max_seq_length\n", (long long)result->truncated_texts);
    if (result->infinite_losses > 0 || result->infinite_gradients > 0)
        fprintf(out, "NaN or infinite: the loss of %lld steps, the gradients of %lld, which changed no weight\n",
                (long long)result->infinite_losses, (long long)result->infinite_gradients);
    char name[SNUG_NAME_SHOWN], shown[SNUG_SHOWN];
    for (size_t i = 0; i < result->metrics->count; i++)
        fprintf(out, "%s: %.4f\n", snug_name_show(name, result->metrics->items[i].name),
                result->metrics->items[i].value);
    if (result->best_checkpoint) fprintf(out, "Best checkpoint: %s\n", snug_shown(shown, result->best_checkpoint));
}

static void print_result(FILE *out, const void *report) {
    print_run(out, report);
    print_memory(out, report);
    print_ranks(out, report);
}

snug_status snug_train_result_text(const snug_train_result *result, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(result);
    return snug_report_text(NULL, print_result, result, text);
}
