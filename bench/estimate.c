/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimated against measured seconds of a training step, by kind of operation:
 *   bench_estimate STEPS --model_name_or_path DIR --train_file FILE … (arguments of snug train)
 * Measured is the median step's sum over its operations; rates come from the cache, or are measured first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "train/session.h"
#include "train/threads.h"

static void check(snug_context *ctx, snug_status status) {
    if (status == SNUG_OK) return;
    fprintf(stderr, "bench_estimate: %s\n", snug_error_message(ctx));
    exit(1);
}

static void step(snug_context *ctx, snug_session *session) {
    const snug_batch_info *info;
    double loss, norm;
    do {
        check(ctx, snug_next_batch(session, &info));
        check(ctx, snug_forward(session));
        check(ctx, snug_loss(session, &loss));
        check(ctx, snug_backward(session));
    } while (!info->last_in_step);
    check(ctx, snug_clip_grad_norm(session, 1, &norm));
    check(ctx, snug_optimizer_step(session));
    check(ctx, snug_scheduler_step(session));
    check(ctx, snug_zero_grad(session));
}

int main(int argc, char **argv) {
    snug_context *ctx;
    snug_args *args;
    snug_session *session;
    struct snug_rates rates;
    const int steps = argc > 1 ? atoi(argv[1]) : 0;
    if (steps < 1) {
        fputs("usage: bench_estimate STEPS --model_name_or_path DIR --train_file FILE …\n", stderr);
        return 2;
    }
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    check(ctx, snug_args_create(ctx, &args));
    check(ctx, snug_args_parse(args, argc - 1, argv + 1));
    check(ctx, snug_session_create(args, &session));
    check(ctx, snug_rates_open(ctx, session->job.setup.backend, snug_device_gpu(&session->job.limits.device),
                               snug_args_threads(args), &rates));
    check(ctx, snug_session_begin_epoch(session, 0));
    const struct snug_program *program = &session->training->program;
    const struct snug_load *load = &session->training->pipeline.load;
    step(ctx, session); /* what the first step alone does */
    session->profile = (struct snug_profile){0};
    const double begin = snug_seconds();
    for (int i = 0; i < steps; i++) step(ctx, session);
    const double wall = (snug_seconds() - begin) / steps;

    double measured = 0;
    printf("%-22s %12s %12s %8s\n", "operation", "estimated ms", "measured ms", "ratio");
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        double estimated = 0;
        const double seconds = session->profile.seconds[kind] / steps;
        if (session->profile.calls[kind] == 0) continue;
        for (size_t i = 0; i < program->op_count; i++) {
            const struct snug_op *op = &program->ops[i];
            const bool once = op->last || op->phase == SNUG_PHASE_CLIP || op->phase == SNUG_PHASE_UPDATE ||
                              (op->kind == SNUG_OP_FILL && op->first);
            if ((int)op->kind == kind && op->phase != SNUG_PHASE_PREPARE)
                estimated +=
                    (once ? 1 : load->micro_batches) * snug_estimate_op(&rates, program, op, load, load->rows).seconds;
        }
        measured += seconds;
        printf("%-22s %12.3f %12.3f %8.2f\n", snug_op_name(kind), 1e3 * estimated, 1e3 * seconds, estimated / seconds);
    }
    struct snug_step_estimate step_estimate;
    check(ctx, snug_estimate_parts(&rates, program, load, &step_estimate));
    const struct snug_estimate all = step_estimate.total;
    printf("%-22s %12.3f %12.3f %8.2f   (%.3f ms on the clock: %.2f)\n", "a step", 1e3 * all.seconds, 1e3 * measured,
           all.seconds / measured, 1e3 * wall, all.seconds / wall);
    snug_session_destroy(session);
    snug_rates_free(&rates);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return 0;
}
