/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters are trained. */
#ifndef SNUG_MODEL_FREEZE_H
#define SNUG_MODEL_FREEZE_H

#include "program/program.h"

/* Freezes the weights of parts of the model, as requires_grad = False does in PyTorch: they get no gradient, no
   optimizer state and no update, and backward skips computations that only they need. parts: a list, separated by
   commas, of "embeddings", "layer.N", "layer.A-B" (both included, from 0), "base_model" (all but the task head). Call
   it after building and before differentiating. An unknown part or layer is SNUG_E_USAGE and names --freeze. */
snug_status snug_program_freeze(struct snug_program *program, int64_t layers, const char *parts);

#endif
