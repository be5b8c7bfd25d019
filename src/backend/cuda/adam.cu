/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980). */
#include "backend/cuda/update.cuh"

struct adam {
    enum { LEAST = 2, MOST = 2 }; /* m, v */
    float b1, b2, rest1, rest2, eps,
        decay; /* rest: 1 - b; computed in fp32 from b it would have a relative error of 5e-5 */
    bool decoupled;

    __device__ __forceinline__ float operator()(float p, float g, float (&state)[3],
                                                const struct snug_cuda_step &step) const {
        if (decoupled)
            p *= 1 - step.learning_rate * decay;
        else
            g += decay * p;
        state[0] = b1 * state[0] + rest1 * g;
        state[1] = b2 * state[1] + rest2 * g * g;
        return p - step.rate * state[0] * quick_inverse(quick_root(state[1]) * step.root + eps);
    }
};

extern "C" snug_status snug_cuda_adam(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct adam formula = {(float)o->beta1,       (float)o->beta2,   (float)(1 - o->beta1),
                                 (float)(1 - o->beta2), (float)o->epsilon, (float)o->weight_decay,
                                 o->decoupled};
    return run_update(run, op, formula);
}
