/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD: momentum after Polyak, or after Nesterov as Sutskever et al. (ICML 2013) write it. */
#include "backend/cuda/update.cuh"

struct sgd {
    enum { LEAST = 0, MOST = 1 }; /* the momentum buffer */
    float momentum, rest, decay; /* rest: 1 - dampening */
    bool nesterov;

    __device__ float operator()(float p, float g, float (&state)[3], const struct snug_cuda_step &step) const {
        g += decay * p;
        float direction = g;
        if (momentum != 0) { /* the buffer begins as the first gradient, undamped */
            state[0] = step.updates > 0 ? momentum * state[0] + rest * g : g;
            direction = nesterov ? g + momentum * state[0] : state[0];
        }
        return p - step.learning_rate * direction;
    }
};

extern "C" snug_status snug_cuda_sgd(struct snug_run *run, const struct snug_op *op) {
    const struct snug_optimizer *o = run->optimizer;
    const struct sgd formula = {(float)o->momentum, (float)(1 - o->dampening), (float)o->weight_decay, o->nesterov};
    return run_update(run, op, formula);
}
