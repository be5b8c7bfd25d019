/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.SGD: momentum after Polyak, or after Nesterov as Sutskever et al. (ICML 2013) write it. */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/sgd.h"
#undef inline

struct sgd {
    enum { LEAST = 0, MOST = 1 }; /* the momentum buffer */

    static __device__ struct snug_sgd_numbers of(const struct snug_cuda_step &step) { return step.update.numbers.sgd; }
    static __device__ __forceinline__ float step(const struct snug_sgd_numbers &s, float p, float g,
                                                 float (&state)[3]) {
        return snug_sgd_step(&s, p, g, &state[0]);
    }
};

extern "C" snug_status snug_cuda_sgd(struct snug_run *run, const struct snug_op *op) {
    return run_update<struct sgd>(run, op);
}
