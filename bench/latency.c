/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seconds of a loaded model: bench_latency --model_name_or_path DIR --threads 1
 * The first answer is timed from the process's start, libraries included, also by the processor's time, which other
 * processes hardly change; then batches of 1 and of 32 sentences, each the median of many calls; and of handing a call
 * to the compute thread. Run it pinned: taskset -c 0 build/bench_latency … On a GPU: --device cuda, with
 * --fp16_full_eval or --bf16_full_eval.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/context.h"

static const char sentence[] =
    "the movie was a gripping and often very moving story about a family that falls apart after the war";

/* Since the kernel started the process, whose clock has ticks of 10 ms. */
static double since_start(void) {
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    struct timespec now;
    const size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[size] = '\0';
    const char *at = text;
    for (int field = 1; field < 22 && *at; at++) field += *at == ' '; /* starttime; the program's name has no blank */
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - strtod(at, NULL) / 100;
}

static snug_status on_row(void *user, const snug_prediction *row) {
    *(double *)user += row->score;
    return SNUG_OK;
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static snug_status measure(snug_context *ctx, snug_model *model, size_t count) {
    enum { ROUNDS = 101 };
    const char *texts[32];
    double seconds[ROUNDS], sum = 0;
    for (size_t i = 0; i < count; i++) texts[i] = sentence;
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = snug_seconds();
        RETURN_IF_ERROR(snug_model_predict(model, ctx, texts, NULL, count, on_row, &sum));
        seconds[round] = snug_seconds() - begin;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, compare);
    printf("batch %2zu: %8.3f ms a call, %8.3f ms a sentence (median of %d; best %.3f)\n", count,
           seconds[ROUNDS / 2] * 1e3, seconds[ROUNDS / 2] * 1e3 / (double)count, (int)ROUNDS, seconds[0] * 1e3);
    return SNUG_OK;
}

static snug_status nothing(void *user) {
    (void)user;
    return SNUG_OK;
}

/* What each phase of a prediction takes more because the compute thread runs it: forward and head are two. */
static snug_status measure_handing(snug_context *ctx) {
    enum { ROUNDS = 1001 };
    double seconds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const double begin = snug_seconds();
        RETURN_IF_ERROR(snug_compute(ctx, nothing, NULL));
        seconds[round] = snug_seconds() - begin;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, compare);
    printf("handing a call to the compute thread: %.1f us (median of %d; best %.1f)\n", seconds[ROUNDS / 2] * 1e6,
           (int)ROUNDS, seconds[0] * 1e6);
    return SNUG_OK;
}

static snug_status run(snug_context *ctx, snug_args *args, int argc, char **argv, double begin, snug_model **model) {
    const char *const texts[] = {sentence};
    double sum = 0;
    RETURN_IF_ERROR(snug_args_parse(args, argc, argv));
    RETURN_IF_ERROR(snug_model_open(args, model));
    const double opened = snug_seconds();
    RETURN_IF_ERROR(snug_model_predict(*model, ctx, texts, NULL, 1, on_row, &sum));
    printf("first answer: %.1f ms after main() began (opened in %.1f), %.0f ms after the process started, of which the "
           "processor took %.1f\n",
           (snug_seconds() - begin) * 1e3, (opened - begin) * 1e3, since_start() * 1e3,
           (double)clock() / CLOCKS_PER_SEC * 1e3);
    RETURN_IF_ERROR(measure(ctx, *model, 1));
    RETURN_IF_ERROR(measure(ctx, *model, 32));
    return measure_handing(ctx);
}

int main(int argc, char **argv) {
    const double begin = snug_seconds();
    snug_context *ctx;
    snug_args *args = NULL;
    snug_model *model = NULL;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    snug_status status = snug_args_create(ctx, &args);
    if (status == SNUG_OK) status = run(ctx, args, argc, argv, begin, &model);
    if (status != SNUG_OK) fprintf(stderr, "%s\n", snug_error_message(ctx));
    snug_model_destroy(model);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return status != SNUG_OK;
}
