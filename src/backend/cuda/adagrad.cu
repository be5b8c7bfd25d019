/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adagrad (Duchi, Hazan, Singer, JMLR 2011). */
#include "backend/cuda/update.cuh"

struct adagrad {
    enum { LEAST = 1, MOST = 1 };      /* the sum */
    float lr_decay, start, eps, decay; /* start: initial value of the sum */

    __device__ float operator()(float p, float g, float (&state)[3], const struct snug_cuda_step &step) const {
        g += decay * p;
        state[0] += (step.updates == 0 ? start : 0) + g * g;
        return p - step.learning_rate / (1 + (float)step.updates * lr_decay) * g / (sqrtf(state[0]) + eps);
    }
};

extern "C" snug_status snug_cuda_adagrad(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct adagrad formula = {(float)o->lr_decay, (float)o->initial_accumulator_value, (float)o->epsilon,
                                    (float)o->weight_decay};
    return run_update(run, op, formula);
}
