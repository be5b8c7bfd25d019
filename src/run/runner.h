/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner: placed programs that share one arena, opened on a backend, with the memory of their plan. Sessions, the
 * measured rates, the peak rates, tests and benches all run programs through it.
 */
#ifndef SNUG_RUN_RUNNER_H
#define SNUG_RUN_RUNNER_H

#include "run/run.h"

struct snug_runner_program {
    struct snug_program *program; /* owned by the caller; outlives the runner */
    void *state;                  /* the backend's */
    uint64_t *copies;             /* see snug_run; NULL where nothing is offloaded */
    struct snug_crossing crossing;
    struct snug_host_updates host_updates;
};

struct snug_runner {
    snug_context *ctx;
    const struct snug_backend *backend;
    int threads;
    struct snug_runner_program *programs;
    int count;
    struct snug_layout layout;
    struct snug_block arena, host; /* memory of the operations; memory of batches and metrics */
    struct snug_memory memory;     /* the arena and the backing store, for reading and writing tensors */
};

/* Opens backend for programs that were placed in layout. Closed with snug_runner_close(), also after a failure. */
snug_status snug_runner_open(snug_context *ctx, const struct snug_backend *backend, int threads,
                             struct snug_program *const programs[], int count, const struct snug_layout *layout,
                             struct snug_runner *out);
/* Allocates the backing store, if the layout has one: the offload file in folder offload_dir, with the backend's bounce
 * buffers, or a block of the backend's if that is NULL; the arena; the host block. */
snug_status snug_runner_allocate(struct snug_runner *runner, const char *offload_dir);
/* A runner of one program: places it, with `batch` bytes in the host block, and opens the backend; runner.layout has
 * its bytes.
 */
snug_status snug_runner_open_one(snug_context *ctx, const struct snug_backend *backend, int threads,
                                 struct snug_program *program, int64_t batch, struct snug_runner *out);
/* As snug_runner_open_one(), and allocates. offload_dir may be NULL if nothing is offloaded. */
snug_status snug_runner_start(snug_context *ctx, const struct snug_backend *backend, int threads,
                              struct snug_program *program, int64_t batch, const char *offload_dir,
                              struct snug_runner *out);
/* A run of program number `program`. The caller sets the members that change with batches and steps. */
struct snug_run snug_runner_run(const struct snug_runner *runner, int program);
void snug_runner_close(struct snug_runner *runner);

#endif
