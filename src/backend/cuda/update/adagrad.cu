/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.Adagrad (Duchi, Hazan, Singer, JMLR 2011). */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/adagrad.h"
#undef inline

struct adagrad {
    enum { LEAST = 1, MOST = 1 }; /* the sum */

    static __device__ struct snug_adagrad_numbers of(const struct snug_cuda_step &step) {
        return step.update.numbers.adagrad;
    }
    static __device__ __forceinline__ float step(const struct snug_adagrad_numbers &s, float p, float g,
                                                 float (&state)[3]) {
        return snug_adagrad_step(&s, p, g, &state[0]);
    }
};

extern "C" snug_status snug_cuda_adagrad(struct snug_run *run, const struct snug_op *op) {
    return run_update<struct adagrad>(run, op);
}
