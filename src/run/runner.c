/* SPDX-License-Identifier: Apache-2.0 */
#include "run/runner.h"

#include <stdlib.h>

static snug_status open_host_updates(snug_context *ctx, struct snug_runner_program *p, int threads) {
    bool any = false;
    for (size_t i = 0; i < p->program->op_count; i++) any |= p->program->ops[i].on_host;
    if (!any) return SNUG_OK;
    p->host_updates.backend = snug_backend_updates(NULL);
    return p->host_updates.backend->open(ctx, p->program, threads, &p->host_updates.state);
}

/* A backend's open call. */
struct opening {
    snug_context *ctx;
    const struct snug_backend *backend;
    const struct snug_program *program;
    int threads;
    void **state;
};

static snug_status open_here(void *user) {
    const struct opening *o = user;
    return o->backend->open(o->ctx, o->program, o->threads, o->state);
}

/* In the compute thread, where the operations will run: it generates kernels and allocates buffers by thread. */
static snug_status open_backend(snug_context *ctx, const struct snug_backend *backend,
                                const struct snug_program *program, int threads, void **state) {
    struct opening opening = {ctx, backend, program, threads, state};
    return snug_backend_is_device(backend) ? open_here(&opening) : snug_compute(ctx, open_here, &opening);
}

snug_status snug_runner_open(snug_context *ctx, const struct snug_backend *backend, int threads,
                             struct snug_program *const programs[], int count, const struct snug_layout *layout,
                             struct snug_runner *out) {
    *out = (struct snug_runner){.ctx = ctx, .backend = backend, .threads = threads, .layout = *layout};
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)count, sizeof *out->programs, (void **)&out->programs));
    out->count = count;
    for (int i = 0; i < count; i++) {
        out->programs[i].program = programs[i];
        RETURN_IF_ERROR(open_backend(ctx, backend, programs[i], threads, &out->programs[i].state));
        RETURN_IF_ERROR(open_host_updates(ctx, &out->programs[i], threads));
    }
    return SNUG_OK;
}

/* The disk space or memory for offloaded tensors is allocated before the first step, as the arena's memory is. */
static snug_status open_backing(struct snug_runner *r, const char *offload_dir) {
    struct snug_backing *backing = &r->memory.backing;
    const int64_t bounce = r->backend->bounce;
    if (!r->layout.offload_bytes) return SNUG_OK;
    if (!offload_dir)
        return r->backend->allocate(r->ctx, r->layout.offload_bytes, SNUG_BLOCK_BACKING, &backing->memory);
    if (bounce) RETURN_IF_ERROR(r->backend->allocate(r->ctx, bounce, SNUG_BLOCK_BACKING, &backing->memory));
    for (int i = 0; i < r->count; i++) {
        struct snug_runner_program *p = &r->programs[i];
        RETURN_IF_ERROR(snug_alloc(r->ctx, p->program->tensor_count, sizeof *p->copies, (void **)&p->copies));
    }
    return snug_backing_open_file(r->ctx, offload_dir, r->layout.offload_bytes, backing);
}

snug_status snug_runner_allocate(struct snug_runner *r, const char *offload_dir) {
    RETURN_IF_ERROR(open_backing(r, offload_dir));
    RETURN_IF_ERROR(r->backend->allocate(r->ctx, r->layout.arena, SNUG_BLOCK_ARENA, &r->arena));
    r->memory.arena = r->arena.base;
    r->memory.copy = r->arena.copy;
    r->memory.threads = r->threads;
    return r->backend->allocate(r->ctx, r->layout.host, SNUG_BLOCK_HOST, &r->host);
}

snug_status snug_runner_open_one(snug_context *ctx, const struct snug_backend *backend, int threads,
                                 struct snug_program *program, int64_t batch, struct snug_runner *out) {
    struct snug_layout layout;
    *out = (struct snug_runner){.ctx = ctx};
    RETURN_IF_ERROR(snug_stage_place(ctx, &program, 1, backend, threads, batch, 0, &layout));
    return snug_runner_open(ctx, backend, threads, &program, 1, &layout, out);
}

snug_status snug_runner_start(snug_context *ctx, const struct snug_backend *backend, int threads,
                              struct snug_program *program, int64_t batch, const char *offload_dir,
                              struct snug_runner *out) {
    RETURN_IF_ERROR(snug_runner_open_one(ctx, backend, threads, program, batch, out));
    return snug_runner_allocate(out, offload_dir);
}

struct snug_run snug_runner_run(const struct snug_runner *r, int program) {
    struct snug_runner_program *p = &r->programs[program];
    return (struct snug_run){.ctx = r->ctx,
                             .program = p->program,
                             .arena = r->arena.base,
                             .backend_state = p->state,
                             .workspace = r->arena.base + r->layout.workspace_offset,
                             .batch_copy = r->arena.base + r->layout.copy_offset,
                             .threads = r->threads,
                             .backing = r->memory.backing,
                             .copies = p->copies,
                             .crossing = &p->crossing,
                             .host_updates = p->host_updates};
}

void snug_runner_close(struct snug_runner *r) {
    for (int i = 0; i < r->count; i++) /* first: a copy may be in flight */
        if (r->programs[i].state) r->backend->close(r->programs[i].state);
    for (int i = 0; i < r->count; i++)
        if (r->programs[i].host_updates.state)
            r->programs[i].host_updates.backend->close(r->programs[i].host_updates.state);
    snug_backing_close(&r->memory.backing);
    for (int i = 0; i < r->count; i++) free(r->programs[i].copies);
    snug_block_release(&r->arena);
    snug_block_release(&r->host);
    free(r->programs);
    *r = (struct snug_runner){0};
}
