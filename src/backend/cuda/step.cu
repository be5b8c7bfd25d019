/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a step in device memory. In fp16 some of them are known there alone: what the loss is multiplied by,
 * whether this update is done, and how many were, from which the learning rate and the corrections of moments follow.
 */
#include "backend/cuda/device.cuh"

/* What follows from the number of updates that were done. */
static __host__ __device__ void pace_update(struct snug_cuda_step *s, const struct snug_cuda_pace &pace, double updates,
                                            float learning_rate) {
    const double t = updates + 1, beta1 = (float)pace.beta1, beta2 = (float)pace.beta2, lr = learning_rate;
    const double correction = sqrt(1 - pow(beta2, t));
    s->updates = (int32_t)updates;
    s->learning_rate = learning_rate;
    s->rate = (float)(lr / (1 - pow(pace.beta1, t)));
    s->root = (float)(1 / sqrt(1 - pow(pace.beta2, t)));
    s->rate_8bit = (float)(lr * correction / (1 - pow(beta1, t)));
    s->correction_8bit = (float)correction;
    s->fresh = (float)pow(t, pace.decay_rate);
}

/* By value, so that nothing on the host has to stay. */
static __global__ void set_step(struct snug_cuda_step *to, const struct snug_cuda_step step) { *to = step; }

static __global__ void set_scaled_step(struct snug_cuda_step *to, struct snug_cuda_step step,
                                       const struct snug_cuda_pace pace, const float *scaler) {
    const int64_t skipped = (int64_t)scaler[SNUG_SCALE_SKIPPED], unseen = skipped - pace.skipped;
    const int64_t most = SNUG_UNSEEN_STEPS - 1;
    step.loss_scale *= scaler[SNUG_SCALE];
    step.skip = scaler[SNUG_SCALE_SKIPS] != 0;
    pace_update(&step, pace, (double)step.step - (double)skipped,
                pace.learning_rates[unseen < 0 ? 0 : unseen < most ? unseen : most]);
    *to = step;
}

extern "C" void snug_cuda_set_step(struct snug_cuda *cuda, struct snug_cuda_step step,
                                   const struct snug_cuda_pace *pace, const float *scaler) {
    if (scaler) {
        set_scaled_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step, *pace, scaler);
    } else {
        pace_update(&step, *pace, (double)step.step, pace->learning_rates[0]);
        set_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step);
    }
}

static __global__ void rescale_kernel(float *scaler) { snug_loss_scale_next(scaler); }

extern "C" snug_status snug_cuda_rescale(struct snug_run *run, const struct snug_op *op) {
    rescale_kernel<<<1, 1, 0, snug_cuda_of(run)->stream>>>((float *)snug_run_data(run, op->out[0]));
    return snug_cuda_done(run, op);
}
