/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.RMSprop (Hinton; centered: Graves, arXiv:1308.0850). */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/rmsprop.h"
#undef inline

struct rmsprop {
    enum { LEAST = 1, MOST = 3 }; /* v, the momentum buffer, the mean of g */

    static __device__ struct snug_rmsprop_numbers of(const struct snug_cuda_step &step) {
        return step.update.numbers.rmsprop;
    }
    static __device__ __forceinline__ float step(const struct snug_rmsprop_numbers &s, float p, float g,
                                                 float (&state)[3]) {
        float &mean = s.momentum != 0 ? state[2] : state[1];
        return snug_rmsprop_step(&s, p, g, &state[0], &state[1], &mean);
    }
};

extern "C" snug_status snug_cuda_rmsprop(struct snug_run *run, const struct snug_op *op) {
    return run_update<struct rmsprop>(run, op);
}
