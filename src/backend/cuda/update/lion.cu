/* SPDX-License-Identifier: Apache-2.0 */
/* Lion (Chen et al., arXiv:2302.06675), with decoupled weight decay. */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/lion.h"
#undef inline

struct lion {
    enum { LEAST = 1, MOST = 1 }; /* m */

    static __device__ struct snug_lion_numbers of(const struct snug_cuda_step &step) {
        return step.update.numbers.lion;
    }
    static __device__ __forceinline__ float step(const struct snug_lion_numbers &s, float p, float g,
                                                 float (&state)[3]) {
        return snug_lion_step(&s, p, g, &state[0]);
    }
};

extern "C" snug_status snug_cuda_lion(struct snug_run *run, const struct snug_op *op) {
    return run_update<struct lion>(run, op);
}
