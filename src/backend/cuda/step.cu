/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of a step in device memory. In fp16 only the device knows some of them: the loss scale, whether this
 * update is skipped, and the number of updates that were not, which determines the learning rate and the bias
 * corrections.
 */
#include "backend/cuda/device.cuh"

/* Computes the values that depend on the number of updates done. */
static __host__ __device__ void count_update(struct snug_cuda_step *s, const struct snug_cuda_update_settings &settings,
                                             double updates, float learning_rate) {
    const double t = updates + 1, beta1 = (float)settings.beta1, beta2 = (float)settings.beta2, lr = learning_rate;
    const double correction = sqrt(1 - pow(beta2, t));
    s->updates = (int32_t)updates;
    s->learning_rate = learning_rate;
    s->rate = (float)(lr / (1 - pow(settings.beta1, t)));
    s->root = (float)(1 / sqrt(1 - pow(settings.beta2, t)));
    s->rate_8bit = (float)(lr * correction / (1 - pow(beta1, t)));
    s->correction_8bit = (float)correction;
    s->fresh = (float)pow(t, settings.decay_rate);
}

/* Passed by value: the host's copy may change at once. */
static __global__ void set_step(struct snug_cuda_step *to, const struct snug_cuda_step step) { *to = step; }

static __global__ void set_scaled_step(struct snug_cuda_step *to, struct snug_cuda_step step,
                                       const struct snug_cuda_update_settings settings, const float *scaler) {
    const int64_t skipped = (int64_t)scaler[SNUG_SCALE_SKIPPED], unseen = skipped - settings.skipped;
    const int64_t most = SNUG_UNSEEN_STEPS - 1;
    step.loss_scale *= scaler[SNUG_SCALE];
    step.skip = scaler[SNUG_SCALE_SKIPS] != 0;
    count_update(&step, settings, (double)step.step - (double)skipped,
                 settings.learning_rates[unseen < 0      ? 0
                                         : unseen < most ? unseen
                                                         : most]);
    *to = step;
}

extern "C" void snug_cuda_set_step(struct snug_cuda *cuda, struct snug_cuda_step step,
                                   const struct snug_cuda_update_settings *settings, const float *scaler) {
    if (scaler) {
        set_scaled_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step, *settings, scaler);
    } else {
        count_update(&step, *settings, (double)step.step, settings->learning_rates[0]);
        set_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, step);
    }
}

static __global__ void rescale_kernel(float *scaler) { snug_loss_scale_next(scaler); }

extern "C" snug_status snug_cuda_rescale(struct snug_run *run, const struct snug_op *op) {
    rescale_kernel<<<1, 1, 0, snug_cuda_of(run)->stream>>>((float *)snug_run_data(run, op->rescale.scaler));
    return snug_cuda_done(run, op);
}
