/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's memory for a graph hardly grows with its kernels (552 and 1678 of them in one stream: 12 and 18 MiB,
 * with all that a process allocates after the libraries are open), but with its branches: 73 matmuls of a backward that
 * run beside others take 10 MiB, 219 in three backwards 27 to 35 MiB. The two sizes below are a fit to 31 programs of
 * BERTs on an H200, driver 580, with up to 1,635 branches of copies, which took 131 MiB: the root of the mean square
 * error is 4 MiB, the largest 12. Branches of collectives count as those of copies; they were not measured.
 */
#include "backend/cuda/sizes/graph.h"

enum { MATMUL = 148 << 10, COPY = 67 << 10 };

bool snug_cuda_is_concurrent(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_op *next = op + 1;
    if (op->kind != SNUG_OP_LINEAR_DW || next == program->ops + program->op_count) return false;
    if (next->kind != SNUG_OP_LINEAR_DX || next->phase != op->phase || next->linear_dx.dy != op->linear_dw.dy)
        return false;
    const struct snug_tensor *t = program->tensors, *x = &t[op->linear_dw.x], *dx = &t[next->linear_dx.dx];
    if (t[next->linear_dx.dy].dtype != t[next->linear_dx.w].dtype) return false;
    return op->linear_dw.dw == 0 || dx->offset + dx->bytes <= x->offset || x->offset + x->bytes <= dx->offset;
}

static bool is_beside(const struct snug_op *op) {
    return op->kind == SNUG_OP_FETCH || op->kind == SNUG_OP_STORE || op->on_host || op->beside;
}

/* The stream in which op runs beside the others: of stores, of fetches, of updates on the host, of collectives. */
static int stream_of(const struct snug_op *op) { return op->beside ? 3 : op->on_host ? 2 : op->kind == SNUG_OP_STORE; }

/* Whether an operation of the device comes between op and the one before it in the same stream, or there is none. */
static bool begins_branch(const struct snug_program *program, const struct snug_op *op) {
    for (const struct snug_op *before = op; before-- > program->ops && before->phase == op->phase;) {
        if (is_beside(before) && stream_of(before) == stream_of(op)) return false;
        if (!is_beside(before) && before->kind != SNUG_OP_WAIT) return true;
    }
    return true;
}

int64_t snug_cuda_captured_bytes(const struct snug_program *program, const struct snug_op *op) {
    if (is_beside(op)) return begins_branch(program, op) ? COPY : 0;
    return snug_cuda_is_concurrent(program, op) ? MATMUL : 0;
}
