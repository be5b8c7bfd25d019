/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, and the plan of a training of that model: of its first two layers, since all are alike. */
#include "fuzz.h"
#include "model/config.h"
#include "model/family.h"
#include "optim/optimizer.h"
#include "plan/stages.h"

static void plan(snug_context *ctx, const struct snug_config *config) {
    struct snug_program program, *programs[] = {&program};
    struct snug_optimizer optimizer;
    struct snug_layout layout;
    const struct snug_methods methods = {
        .optimizer = &optimizer, .weights = SNUG_BF16, .clips = true, .micro_batches = 2, .lazy_steps = 8};
    FUZZ_CHECK(snug_optimizer_parse(ctx, "adamw_torch", NULL, 0.9, 0.999, 1e-8, 0.01, &optimizer) == SNUG_OK);
    snug_program_init(&program, ctx);
    program.compute = SNUG_F32;
    program.longest = config->max_position_embeddings;
    program.capacity[SNUG_EXTENT_TOKENS] = 8 * program.longest;
    program.capacity[SNUG_EXTENT_SEQUENCES] = program.capacity[SNUG_EXTENT_ROWS] = 8;
    snug_status status = snug_build_model(&program, config, true, 0);
    if (status == SNUG_OK) status = snug_stages(&program, &methods);
    if (status == SNUG_OK)
        status = snug_stage_place(ctx, programs, 1, snug_backend_cpu(), 2, 1 << 20, 1 << 20, &layout);
    if (fuzz_accepts(ctx, status)) {
        int64_t sum = 0;
        for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++) {
            FUZZ_CHECK(layout.bytes[i] >= 0);
            sum += layout.bytes[i];
        }
        FUZZ_CHECK(sum == layout.total && layout.total > 0);
    }
    snug_program_free(&program);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_config config;
    const char *path = fuzz_file(FUZZ_FOLDER "/config.json", data, size);
    if (!fuzz_accepts(ctx, snug_config_read(ctx, path, &config))) return;
    if (config.num_hidden_layers > 2) config.num_hidden_layers = 2;
    plan(ctx, &config);
    FUZZ_CHECK(snug_config_set_task(ctx, &config, config.task, &config.labels) == SNUG_OK);
    FUZZ_CHECK(snug_config_set_dtype(ctx, &config, SNUG_BF16) == SNUG_OK);
    snug_config_free(&config);
}
