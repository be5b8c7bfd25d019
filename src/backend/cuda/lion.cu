/* SPDX-License-Identifier: Apache-2.0 */
/* Lion (Chen et al., arXiv:2302.06675), with decoupled weight decay. */
#include "backend/cuda/update.cuh"

struct lion {
    enum { LEAST = 1, MOST = 1 };      /* m */
    float b1, b2, rest1, rest2, decay; /* rest: 1 - b */

    __device__ float operator()(float p, float g, float (&state)[3], const struct snug_cuda_step &step) const {
        const float direction = b1 * state[0] + rest1 * g;
        const float sign = direction > 0 ? 1 : direction < 0 ? -1 : direction; /* sign(0) is 0, sign(NaN) is NaN */
        state[0] = b2 * state[0] + rest2 * g;
        return p * (1 - step.learning_rate * decay) - step.learning_rate * sign;
    }
};

extern "C" snug_status snug_cuda_lion(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct lion formula = {(float)o->beta1, (float)o->beta2, (float)(1 - o->beta1), (float)(1 - o->beta2),
                                 (float)o->weight_decay};
    return run_update(run, op, formula);
}
