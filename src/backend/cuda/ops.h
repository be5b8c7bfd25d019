/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the CUDA backend. */
#ifndef SNUG_BACKEND_CUDA_OPS_H
#define SNUG_BACKEND_CUDA_OPS_H

#include "backend/cuda/sizes/contract.h"

#define SNUG_CUDA_FUNCTION(KIND, name, member) snug_op_fn snug_cuda_##name;
SNUG_CUDA_OPS(SNUG_CUDA_FUNCTION)
#undef SNUG_CUDA_FUNCTION
snug_op_fn snug_cuda_update_on_host; /* struct snug_backend's update_on_host */

#endif
