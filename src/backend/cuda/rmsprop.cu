/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.RMSprop (Hinton; centered: Graves, arXiv:1308.0850). */
#include "backend/cuda/update.cuh"

struct rmsprop {
    enum { LEAST = 1, MOST = 3 }; /* v, the momentum buffer, the mean of g */
    float alpha, rest, momentum, eps, decay; /* rest: 1 - alpha */
    bool centered;

    __device__ float operator()(float p, float g, float (&state)[3], const struct snug_cuda_step &step) const {
        g += decay * p;
        state[0] = alpha * state[0] + rest * g * g;
        float square = state[0];
        if (centered) {
            float &mean = momentum != 0 ? state[2] : state[1];
            mean = alpha * mean + rest * g;
            square = fmaxf(0, square - mean * mean);
        }
        float direction = g / (sqrtf(square) + eps);
        if (momentum != 0) direction = state[1] = direction + momentum * state[1];
        return p - step.learning_rate * direction;
    }
};

extern "C" snug_status snug_cuda_rmsprop(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct rmsprop formula = {(float)o->alpha,   (float)(1 - o->alpha), (float)o->momentum,
                                    (float)o->epsilon, (float)o->weight_decay, o->centered};
    return run_update(run, op, formula);
}
