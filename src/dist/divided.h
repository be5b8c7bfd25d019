/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading divided tensors between steps. Rank 0 reads any elements; meanwhile the others send it what it asks for. It
 * has a program whose tensors have the same numbers on all ranks.
 */
#ifndef SNUG_DIST_DIVIDED_H
#define SNUG_DIST_DIVIDED_H

#include "program/program.h"

/* For snug_memory.read_shards, on rank 0. */
snug_status snug_divided_read(const struct snug_program *program, const struct snug_memory *memory, int32_t tensor,
                              int64_t first, int64_t count, void *out);
/* On the other ranks: sends what rank 0 asks for, until it calls snug_divided_end(). */
snug_status snug_divided_serve(const struct snug_program *program, const struct snug_memory *memory);
snug_status snug_divided_end(const struct snug_program *program, const struct snug_memory *memory);

#endif
