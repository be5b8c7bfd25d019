/* SPDX-License-Identifier: Apache-2.0 */
#include "measure/gpu_rates.h"

#include <stdio.h>

#include "measure/rates_measured.h"

/* An fp32 matmul of attention is divided into so many of TF32. */
enum { SPLIT_MATMULS = 3 };

/* Peak rate of a contraction in TFLOP/s; types: snug_operand_types(). Attention divides fp32 operands into parts for
 * tensor cores, where these take TF32; cuBLASLt computes fp32 matmuls without them. */
static double contraction_peak(const struct snug_gpu_model *model, const struct snug_rate *rate) {
    const bool half = rate->types & 1, tf32 = rate->types & 8, pairs = snug_op_info(rate->kind)->flags & SNUG_OP_PAIRS;
    if (half) return model->half;
    if (tf32) return model->tf32;
    return pairs && model->tf32 > 0 ? model->tf32 / SPLIT_MATMULS : model->fp32;
}

/* The peak rate that limits an operation; only ratios of it matter. */
static double peak_of(const struct snug_gpu_model *model, const struct snug_rate *rate) {
    const struct snug_op_info *info = snug_op_info(rate->kind);
    if (info->flags & SNUG_OP_COPIES) return model->link;
    return info->group == SNUG_GROUP_CONTRACTION ? contraction_peak(model, rate) : model->bandwidth;
}

snug_status snug_rates_scale(snug_context *ctx, const struct snug_gpu_model *model, struct snug_rates *out) {
    const struct snug_gpu_model *measured = snug_gpu_model_find(SNUG_MEASURED_GPU);
    *out = (struct snug_rates){.ctx = ctx, .isa = "cuda", .overlaps = true, .scaled_from = SNUG_MEASURED_GPU};
    snprintf(out->device, sizeof out->device, "%s", model->name);
    for (size_t i = 0; i < sizeof snug_measured_rates / sizeof *snug_measured_rates; i++) {
        struct snug_rate rate = snug_measured_rates[i];
        if (rate.types & 8 && model->tf32 == 0) continue; /* it has no TF32 */
        const double slower = peak_of(measured, &rate) / peak_of(model, &rate);
        rate.flop *= slower;
        rate.byte *= slower;
        const snug_status status = snug_rates_add(out, rate);
        if (status == SNUG_OK) continue;
        snug_rates_free(out);
        return status;
    }
    return SNUG_OK;
}
