/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a training, as text. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/wrap.h"
#include "data/label_names.h"
#include "report/report.h"

/* ---- the summary, in lines as before the first step -------------------------------------------------------------- */

static void say(FILE *out, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(FILE *out, const char *name, const char *format, ...) {
    char line[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    for (const char *text = line; *text; name = "") {
        const size_t length = snug_wrap(text);
        fprintf(out, "%-*s%.*s\n", SNUG_WRAP_INDENT, name, (int)length, text);
        text += length + (text[length] == ' ');
    }
}

/* After a number: nothing after 1. */
static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* Not broken at a space. */
static void say_path(FILE *out, const char *name, const char *path, const char *note) {
    char shown[SNUG_SHOWN];
    fprintf(out, "%-*s%s%s\n", SNUG_WRAP_INDENT, name, snug_shown(shown, path), note);
}

/* Four digits, or all of a larger number. */
static const char *rate_of(char text[32], double rate) {
    snprintf(text, 32, rate >= 1e4 ? "%.0f" : "%.4g", rate);
    return text;
}

static const char *duration_of(char text[32], double seconds) {
    const long long whole = (long long)seconds;
    if (seconds < 60)
        snprintf(text, 32, "%.2f s", seconds);
    else if (whole < 3600)
        snprintf(text, 32, "%lld:%02lld min", whole / 60, whole % 60);
    else
        snprintf(text, 32, "%lld:%02lld:%02lld h", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

static void print_steps(FILE *out, const snug_train_result *r) {
    char text[32], samples[32], steps[32], flops[48] = "";
    say(out, "Trained", "%" PRId64 " step%s, %.2f epochs, %" PRId64 " samples, %" PRId64 " tokens; loss %.4f", r->steps,
        plural(r->steps), r->epochs, r->samples, r->tokens, r->train_loss);
    if (r->seconds > 0 && r->flops > 0) snprintf(flops, sizeof flops, ", %.1f GFLOP/s", r->flops / r->seconds / 1e9);
    say(out, "Time", "%s, first step after %.2f s; %s samples/s, %s steps/s%s", duration_of(text, r->seconds),
        r->seconds_to_first_step, rate_of(samples, r->samples_per_second), rate_of(steps, r->steps_per_second), flops);
    say(out, "Padding", "%.1f %% of a padded batch's tokens were not computed", 100 * r->padding_avoided);
}

static void print_trouble(FILE *out, const snug_train_result *r) {
    if (r->loss_scale > 0)
        say(out, "Skipped", "%" PRId64 " steps, whose fp16 gradients were not finite; loss scale %g at the end",
            r->skipped_steps, r->loss_scale);
    if (r->truncated_texts > 0)
        say(out, "Truncated", "%" PRId64 " text%s longer than --max_seq_length", r->truncated_texts,
            r->truncated_texts == 1 ? " was" : "s were");
    if (r->infinite_losses > 0 || r->infinite_gradients > 0)
        say(out, "Not finite", "the loss of %" PRId64 " steps, the gradients of %" PRId64 ", which changed no weight",
            r->infinite_losses, r->infinite_gradients);
}

static void print_occupied(FILE *out, const snug_memory_line *total) {
    if (total->measured < 0)
        say(out, "Memory", "%.1f MiB planned", (double)total->planned / 0x1p20);
    else
        say(out, "Memory", "%.1f MiB, planned were %.1f", (double)total->measured / 0x1p20,
            (double)total->planned / 0x1p20);
}

static double value_of(const snug_metrics *metrics, const char *name) {
    for (size_t i = 0; i < metrics->count; i++)
        if (strcmp(metrics->items[i].name, name) == 0) return metrics->items[i].value;
    return NAN;
}

/* How the saved model compares with the best one; "" if it was not evaluated. */
static const char *saved_of(char text[96], const snug_train_result *r) {
    const double value = value_of(r->metrics, r->best_metric);
    *text = '\0';
    if (!r->best_is_model && !isnan(value))
        snprintf(text, 96, "; the saved model has %.4g%s", value,
                 r->best_checkpoint ? "" : "; --load_best_model_at_end keeps the best");
    return r->best_is_model ? ": the saved model" : text;
}

static void print_best(FILE *out, const snug_train_result *r) {
    char name[SNUG_NAME_SHOWN], note[96];
    if (!r->best_metric) return;
    say(out, "Best", "%s %.4g at step %" PRId64 ", epoch %.2f%s", snug_name_show(name, r->best_metric), r->best_value,
        r->best_step, r->best_epoch, saved_of(note, r));
    if (r->best_checkpoint) say_path(out, "Checkpoint", r->best_checkpoint, ", the best");
}

static void print_result(FILE *out, const void *report) {
    const snug_train_result *r = report;
    print_steps(out, r);
    print_trouble(out, r);
    print_occupied(out, &r->total);
    print_best(out, r);
    if (r->output_dir) say_path(out, "Model", r->output_dir, "");
}

snug_status snug_train_result_text(const snug_train_result *result, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(result);
    return snug_report_text(NULL, print_result, result, text);
}

/* ---- the memory report ------------------------------------------------------------------------------------------- */

static const char *const meanings[SNUG_MEMORY_CLASS_COUNT] = {
    [SNUG_MEMORY_WEIGHTS] = "parameters, and copies of them in 16 bits",
    [SNUG_MEMORY_GRADIENTS] = "a value per trained parameter",
    [SNUG_MEMORY_OPTIMIZER] = "the optimizer's states",
    [SNUG_MEMORY_ACTIVATIONS] = "written forward, read backward",
    [SNUG_MEMORY_TEMPORARY] = "live within a phase of a step",
    [SNUG_MEMORY_WORKSPACE] = "scratch of operations",
    [SNUG_MEMORY_FUNCTION] = "logits and metrics of evaluations",
    [SNUG_MEMORY_BATCH] = "texts of a batch",
    [SNUG_MEMORY_CONTEXT] = "program, libraries, driver",
    [SNUG_MEMORY_HOST] = "tokenizer, data, labels",
};

static void print_mebibytes(FILE *out, int64_t bytes) {
    if (bytes < 0)
        fprintf(out, " %11s", "-");
    else
        fprintf(out, " %11.1f", (double)bytes / 0x1p20);
}

static void print_figures(FILE *out, const snug_memory_line *line, const char *meaning) {
    char difference[32] = "";
    print_mebibytes(out, line->planned);
    print_mebibytes(out, line->measured);
    if (line->planned > 0 && line->measured >= 0)
        snprintf(difference, sizeof difference, "%+.2f %%", 100 * ((double)line->measured / (double)line->planned - 1));
    if (*meaning)
        fprintf(out, " %10s  %s\n", difference, meaning);
    else if (*difference)
        fprintf(out, " %10s\n", difference);
    else
        fputc('\n', out);
}

static void print_memory_line(FILE *out, const char *name, const snug_memory_line *line, const char *meaning) {
    fprintf(out, "  %-12s", name);
    print_figures(out, line, meaning);
}

/* Each rank's total, which for rank 0 is that of the table before. */
static void print_ranks(FILE *out, const snug_train_result *result) {
    char shown[SNUG_SHOWN];
    if (!result->rank_count) return;
    fprintf(out, "\n  %4s  %-20s %-28s %11s %11s %10s\n", "rank", "host", "device", "planned", "measured",
            "difference");
    for (size_t i = 0; i < result->rank_count; i++) {
        const snug_rank_use *rank = &result->ranks[i];
        fprintf(out, "  %4zu  %-20s %-28s", i, snug_shown(shown, rank->host), rank->device ? rank->device : "CPU");
        print_figures(out, &rank->total, "");
    }
}

static void print_memory(FILE *out, const void *report) {
    const snug_train_result *result = report;
    fprintf(out, "  %-12s %11s %11s %10s\n", "memory, MiB", "planned", "measured", "difference");
    for (int i = 0; i < (int)result->memory_count; i++)
        if (result->memory[i].planned > 0 || result->memory[i].measured > 0)
            print_memory_line(out, snug_memory_class_name((snug_memory_class)i), &result->memory[i], meanings[i]);
    print_memory_line(out, "total", &result->total,
                      result->device ? "on the GPU, without host" : "the process's largest resident memory");
    print_ranks(out, result);
    if (!result->device) return;
    fprintf(out, "  total is what %s holds of this process; measured: %s\n", result->device, result->device_method);
    if (*result->device_others) fprintf(out, "  other processes on it: %s\n", result->device_others);
}

snug_status snug_train_result_memory_text(const snug_train_result *result, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(result);
    return snug_report_text(NULL, print_memory, result, text);
}
