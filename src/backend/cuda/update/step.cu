/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a step in device memory. In fp16 only the device knows some of them: the loss scale, whether this
 * update is skipped, and the number of updates that were not, which determines the learning rate and the bias
 * corrections. The host computes these for each number that is possible, so that no number depends on the device's
 * pow().
 */
#include "backend/cuda/device.cuh"

/* Passed by value: the host's copy may change at once. */
static __global__ void set_step(struct snug_cuda_step *to, const struct snug_cuda_step step) { *to = step; }

static __global__ void set_scaled_step(struct snug_cuda_step *to, struct snug_cuda_step step,
                                       const struct snug_cuda_possible_numbers possible, const float *scaler) {
    const int64_t unseen = (int64_t)scaler[SNUG_SCALE_SKIPPED] - possible.skipped, most = SNUG_UNSEEN_STEPS - 1;
    step.loss_scale *= scaler[SNUG_SCALE];
    step.skip = scaler[SNUG_SCALE_SKIPS] != 0;
    step.update = possible.updates[unseen < 0 ? 0 : unseen < most ? unseen : most];
    *to = step;
}

extern "C" void snug_cuda_set_step(struct snug_cuda *cuda, struct snug_cuda_step step,
                                   const struct snug_cuda_possible_numbers *possible, const float *scaler) {
    if (scaler)
        set_scaled_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step, *possible, scaler);
    else
        set_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step);
}

/* That of any kernel: all are compiled for the same ones. */
extern "C" cudaError_t snug_cuda_code_capability(int *capability) {
    struct cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)set_step);
    *capability = error == cudaSuccess ? attributes.ptxVersion : 0;
    return error;
}

static __global__ void rescale_kernel(float *scaler) { snug_loss_scale_next(scaler); }

extern "C" snug_status snug_cuda_rescale(struct snug_run *run, const struct snug_op *op) {
    rescale_kernel<<<1, 1, 0, snug_cuda_of(run)->stream>>>((float *)snug_run_data(run, op->rescale.scaler));
    return snug_cuda_done(run, op);
}
