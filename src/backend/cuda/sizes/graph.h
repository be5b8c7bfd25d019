/* SPDX-License-Identifier: Apache-2.0 */
/* Phases as CUDA graphs: what runs beside other operations in them, and the memory that it takes. */
#ifndef SNUG_BACKEND_CUDA_SIZES_GRAPH_H
#define SNUG_BACKEND_CUDA_SIZES_GRAPH_H

#include "backend/backend.h"

/* Graphs use memory of the driver, so their number is limited; phases without one run operation by operation. */
enum { SNUG_CUDA_GRAPHS = 96 };

/* Whether the next operation is LINEAR_DX of the same gradient and may run beside op, so that each uses the
 * multiprocessors that the other leaves idle at its end: LINEAR_DX must not write an input of op, nor use the same
 * scratch. The program is placed. */
bool snug_cuda_is_concurrent(const struct snug_program *program, const struct snug_op *op);

/* struct snug_backend's captured. */
int64_t snug_cuda_captured_bytes(const struct snug_program *program, const struct snug_op *op);

#endif
