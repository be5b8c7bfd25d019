/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of operations: floating-point operations, and bytes of memory traffic. */
#ifndef SNUG_PROGRAM_COST_H
#define SNUG_PROGRAM_COST_H

#include "program/program.h"

struct snug_cost {
    double flops, bytes; /* bytes read and written, each tensor once */
};

/* The cost of one run of op on a batch of `tokens` tokens, `sequences` sequences of the same length, `rows` loss
 * positions. */
struct snug_cost snug_op_cost(const struct snug_program *program, const struct snug_op *op, double tokens,
                              double sequences, double rows);

/* ---- for descriptors ------------------------------------------------------------------------------------------ */

/* FLOPs per element, counted in the formulas of program/op.h (an exp or erf as 10). */
enum { SNUG_NORM_FLOPS = 8, SNUG_NORM_BACKWARD_FLOPS = 14, SNUG_ACTIVATION_FLOPS = 14, SNUG_SOFTMAX_FLOPS = 13 };
enum { SNUG_UPDATE_FLOPS = 15 };

struct snug_cost_view {
    const struct snug_program *program;
    double tokens, sequences, rows;
    struct snug_cost cost;
};
/* Elements of a tensor in this batch, 0 if there is none; bytes of an element; columns. */
double snug_cost_elements(const struct snug_cost_view *view, int32_t tensor);
double snug_cost_width(const struct snug_cost_view *view, int32_t tensor);
double snug_cost_columns(const struct snug_cost_view *view, int32_t tensor);
/* Query-key pairs of a head: each query attends to so many keys before and after it; -1: to all in its sequence. */
double snug_cost_pairs(const struct snug_cost_view *view, int32_t before, int32_t after);

#endif
