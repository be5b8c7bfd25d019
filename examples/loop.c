/* SPDX-License-Identifier: Apache-2.0 */
/* Your own training loop, as in PyTorch with accelerate. It takes the arguments of `snug train`, for example:
   example_loop --model_name_or_path DIR --train_file train.csv --output_dir out --num_train_epochs 3 The saved weights
   are those of `snug train` with the same arguments, bit for bit. */
#include <snug.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the loop at the first failure; a real program would clean up as main() does. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        snug_status status_ = (call);                                                                                  \
        if (status_ != SNUG_OK) return status_;                                                                        \
    } while (0)

static snug_status train_epoch(snug_session *session, int64_t epoch, double max_grad_norm) {
    const snug_batch_info *batch;
    double step_loss = 0, loss, norm;
    int64_t steps = 0;
    TRY(snug_session_begin_epoch(session, epoch));
    for (;;) {
        snug_status status = snug_next_batch(session, &batch);
        if (status == SNUG_END) return SNUG_OK;
        TRY(status);
        TRY(snug_forward(session));
        TRY(snug_loss(session, &loss)); /* the losses of a step's micro-batches add up to its mean loss */
        TRY(snug_backward(session));
        step_loss += loss;
        if (!batch->last_in_step) continue; /* true every gradient_accumulation_steps batches, and at the epoch's end */
        TRY(snug_clip_grad_norm(session, max_grad_norm, &norm));
        TRY(snug_optimizer_step(session));
        TRY(snug_scheduler_step(session));
        TRY(snug_zero_grad(session));
        if (++steps % 10 == 0)
            printf("epoch %lld step %lld loss %.4f norm %.3f next learning rate %.3g\n", (long long)epoch,
                   (long long)steps, step_loss, norm, snug_learning_rate(session));
        step_loss = 0;
    }
}

static snug_status train(snug_args *args, snug_session **session) {
    char folder[4096], max_grad_norm[64];
    TRY(snug_args_get(args, "output_dir", folder, sizeof folder));
    TRY(snug_args_get(args, "max_grad_norm", max_grad_norm, sizeof max_grad_norm));
    TRY(snug_session_create(args, session));
    for (int64_t epoch = 0; epoch < snug_session_epochs(*session); epoch++)
        TRY(train_epoch(*session, epoch, strtod(max_grad_norm, NULL)));
    return snug_save_model(*session, *folder ? folder : "trainer_output");
}

int main(int argc, char **argv) {
    snug_context *ctx;
    snug_args *args = NULL;
    snug_session *session = NULL;
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    snug_status status = snug_args_create(ctx, &args);
    if (status == SNUG_OK) status = snug_args_parse(args, argc, argv);
    if (status == SNUG_OK) status = train(args, &session);
    if (status != SNUG_OK) fprintf(stderr, "%s\n", snug_error_message(ctx));
    snug_session_destroy(session);
    snug_args_destroy(args);
    snug_context_destroy(ctx);
    return status != SNUG_OK;
}
