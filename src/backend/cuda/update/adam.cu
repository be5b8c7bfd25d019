/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam (Kingma and Ba, arXiv:1412.6980). */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/adam.h"
#undef inline

struct adam {
    enum { LEAST = 2, MOST = 2 }; /* m, v */

    static __device__ struct snug_adam_numbers of(const struct snug_cuda_step &step) {
        return step.update.numbers.adam;
    }
    static __device__ __forceinline__ float step(const struct snug_adam_numbers &s, float p, float g,
                                                 float (&state)[3]) {
        return snug_adam_step(&s, p, g, &state[0], &state[1]);
    }
};

extern "C" snug_status snug_cuda_adam(struct snug_run *run, const struct snug_op *op) {
    return run_update<struct adam>(run, op);
}
