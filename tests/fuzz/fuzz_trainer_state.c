/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's trainer_state.json, loaded into a run of 1000 steps, written and read again. */
#include "fuzz.h"
#include "train/trainer.h"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    static struct snug_session session;
    static struct snug_planned_program training = {.role = SNUG_ROLE_TRAINING};
    static snug_args *args;
    if (!args) {
        FUZZ_CHECK(snug_args_create(ctx, &args) == SNUG_OK);
        snug_program_init(&training.program, ctx);
        training.pipeline.options.batch_size = training.pipeline.options.accumulation = 8;
        session.job.plan.optimizer.name = "adamw_torch";
        session.job.setup.train.rows = 6400;
        session.training = &training;
        session.max_steps = 1000;
        session.steps_per_epoch = 100;
        session.ctx = ctx;
    }
    struct snug_trainer read = {.session = &session, .ctx = ctx, .args = args, .log_history = json_array()},
                        again = read;
    again.log_history = json_array();
    const struct snug_folder folder = fuzz_folder(FUZZ_FOLDER);
    read.output.folder = again.output.folder = folder;
    fuzz_file(FUZZ_FOLDER "/trainer_state.json", data, size);
    if (fuzz_accepts(ctx, snug_trainer_state_read(&read, &folder))) {
        const int64_t step = session.step;
        FUZZ_CHECK(step >= 0 && step <= INT64_C(1000000000000));
        FUZZ_CHECK(read.logged_step >= 0 && read.logged_step <= step);
        FUZZ_CHECK(read.samples >= 0 && read.tokens >= 0 && read.impatience >= 0);
        FUZZ_CHECK(snug_trainer_flops(&read) >= 0 && snug_trainer_epoch(&read) >= 0);
        FUZZ_CHECK(snug_trainer_state_write(&read, &folder) == SNUG_OK);
        FUZZ_CHECK(snug_trainer_state_read(&again, &folder) == SNUG_OK);
        FUZZ_CHECK(session.step == step && again.samples == read.samples && again.tokens == read.tokens);
        FUZZ_CHECK(again.best_saved_step == read.best_saved_step);
        FUZZ_CHECK(json_equal(again.log_history, read.log_history));
    }
    json_decref(read.log_history);
    json_decref(again.log_history);
}
