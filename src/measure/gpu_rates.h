/* SPDX-License-Identifier: Apache-2.0 */
/* Estimated rates of a GPU on which none were measured. */
#ifndef SNUG_MEASURE_GPU_RATES_H
#define SNUG_MEASURE_GPU_RATES_H

#include "backend/gpu_models.h"
#include "measure/rates.h"

/* The rates measured on one GPU (rates_measured.h), scaled by the ratios of the two GPUs' peak rates: matmuls and
 * attention by that of their type, copies from and to the host by the link's, all others by the memory's bandwidth. The
 * time of a call, which the host and the driver determine, stays. */
snug_status snug_rates_scale(snug_context *ctx, const struct snug_gpu_model *model, struct snug_rates *out);

#endif
