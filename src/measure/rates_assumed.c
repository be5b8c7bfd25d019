/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/rates.h"

/* What a thread of a slow processor with AVX2 does in a second: a run that is short at these is short on most
 * machines. */
#define FLOPS 30e9
#define BANDWIDTH 4e9
#define CALL 5e-6 /* to start the threads, and to wait for them */

/* Rates of contractions, and of activations: operations of kinds without a rate are taken for those. */
snug_status snug_rates_assume(snug_context *ctx, const struct snug_backend *backend, int threads,
                              struct snug_rates *out) {
    snug_rates_init(ctx, out, backend, NULL, threads);
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++) {
        const bool contraction = snug_op_info((enum snug_op_kind)kind)->group == SNUG_GROUP_CONTRACTION;
        struct snug_rate rate = {.kind = (enum snug_op_kind)kind, .call = CALL};
        if (!contraction && kind != SNUG_OP_ACTIVATION) continue;
        if (contraction)
            rate.flop = 1 / (FLOPS * threads);
        else
            rate.byte = 1 / (BANDWIDTH * threads);
        const snug_status status = snug_rates_add(out, rate);
        if (status == SNUG_OK) continue;
        snug_rates_free(out);
        return status;
    }
    return SNUG_OK;
}
