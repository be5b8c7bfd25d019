/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/device.cuh"

/* By value, so that nothing on the host has to stay. */
static __global__ void set_step(struct snug_cuda_step *to, const struct snug_cuda_step step) { *to = step; }

extern "C" void snug_cuda_set_step(struct snug_cuda *cuda, const struct snug_cuda_step *step) {
    set_step<<<1, 1, 0, cuda->stream>>>(cuda->batch.step, *step);
}
