/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's trainer_state.json, read into a run of 1000 steps; what was read can be written again. */
#include "fuzz.h"
#include "train/trainer.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    static struct snug_session session;
    static struct snug_program program;
    static snug_args *args;
    if (!args) {
        FUZZ_CHECK(snug_args_create(ctx, &args) == SNUG_OK);
        snug_program_init(&program, ctx);
        struct snug_job *job = &session.job;
        job->training = &program;
        job->optimizer.name = "adamw_torch";
        job->max_steps = 1000;
        job->steps_per_epoch = 100;
        job->train.rows = 6400;
        job->train.options.batch_size = job->train.options.accumulation = 8;
        session.ctx = ctx;
    }
    snug_train_result result = {0};
    struct snug_trainer trainer = {
        .session = &session, .ctx = ctx, .args = args, .result = &result, .log_history = json_array()};
    fuzz_file(FUZZ_FOLDER "/trainer_state.json", data, size);
    if (fuzz_accepts(ctx, snug_trainer_state_read(&trainer, FUZZ_FOLDER))) {
        FUZZ_CHECK(session.step >= 0 && session.step <= INT64_C(1000000000000));
        FUZZ_CHECK(trainer.logged_step >= 0 && trainer.logged_step <= session.step);
        FUZZ_CHECK(trainer.samples >= 0 && trainer.tokens >= 0 && trainer.impatience >= 0);
        FUZZ_CHECK(memchr(trainer.best_checkpoint, 0, sizeof trainer.best_checkpoint));
        FUZZ_CHECK(snug_trainer_flops(&trainer) >= 0 && snug_trainer_epoch(&trainer) >= 0);
    }
    json_decref(trainer.log_history);
}
