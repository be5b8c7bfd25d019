/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libsnug_cuda.so for tests: the reference backend as a simulated GPU. The host reaches its arena only through
 * copies, timestamps time the operations, and gpu.c simulates the free memory. Further lines of its file:
 *   free MIB         free memory of the device
 *   taken            allocating the arena fails: another process took the memory
 *   broken           copies from the device fail
 *   unusable         creating a context fails
 *   context MIB      the size of a context: once created, NVML lists this process with it
 *   foreign NUMBER   which version number of the entry point differs, from 1 on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/plugin.h"

enum { LIBRARY = 64 << 20, BATCH = 4096, BOUNCE = 16 << 10 };

/* The number after word in the file; -1 where no line begins with word, 0 where no number follows. */
static long long find(const char *word) {
    char line[256];
    long long found = -1;
    const char *path = getenv("SNUG_FAKE_GPU");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, word, strlen(word)) == 0) found = atoll(line + strlen(word));
    if (file) fclose(file);
    return found;
}

static snug_status wait_for_device(snug_context *ctx) {
    return find("broken") < 0 ? SNUG_OK : snug_fail(ctx, SNUG_E_INTERNAL, "GPU: an illegal memory access");
}

static snug_status copy(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    RETURN_IF_ERROR(wait_for_device(ctx));
    memcpy(to, from, (size_t)bytes);
    return SNUG_OK;
}

static snug_status allocate(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out) {
    if (block == SNUG_BLOCK_ARENA && find("taken") >= 0)
        return snug_fail(ctx, SNUG_E_MEMORY, "GPU: the arena cannot be had: out of memory");
    RETURN_IF_ERROR(snug_block_host(ctx, bytes, out));
    if (block == SNUG_BLOCK_HOST) return SNUG_OK;
    out->copy = out->copy_later = copy;
    out->wait = wait_for_device;
    return SNUG_OK;
}

/* The backing store of offloaded tensors is a block of memory or the offload file. Copies are done when they were
   started, those from and to the file in pieces through a bounce buffer. */
static int64_t offset_of(const struct snug_run *run, const struct snug_op *op, int32_t backing) {
    const struct snug_tensor *tensor = &run->program->tensors[backing];
    return tensor->offset + op->element * snug_dtype_size(tensor->dtype);
}

static int64_t bytes_of(const struct snug_run *run, int32_t x) {
    return snug_run_rows(run, x) * snug_run_cols(run, x) * snug_dtype_size(snug_run_dtype(run, x));
}

static void copy_through(const struct snug_backing *backing, uint8_t *data, int64_t offset, int64_t bytes, bool store) {
    uint8_t *bounce = backing->memory.base;
    for (int64_t at = 0; at < bytes; at += BOUNCE) {
        const int64_t n = bytes - at < BOUNCE ? bytes - at : BOUNCE;
        if (store) memcpy(bounce, data + at, (size_t)n);
        backing->calls->await(backing->file, store ? backing->calls->store(backing->file, bounce, offset + at, n)
                                                   : backing->calls->fetch(backing->file, bounce, offset + at, n));
        if (!store) memcpy(data + at, bounce, (size_t)n);
    }
}

static snug_status record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number);

static snug_status time_copy(struct snug_run *run, bool done) {
    struct snug_copy_times *times = run->copy_times;
    if (!times) return SNUG_OK;
    RETURN_IF_ERROR(record_timestamp(run, &times->timestamps, 2 * times->count + done));
    times->count += done;
    return SNUG_OK;
}

static snug_status fetch(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->fetch.x;
    const int64_t offset = offset_of(run, op, op->fetch.backing);
    RETURN_IF_ERROR(time_copy(run, false));
    if (run->backing.file)
        copy_through(&run->backing, snug_run_data(run, x), offset, bytes_of(run, x), false);
    else
        memcpy(snug_run_data(run, x), run->backing.memory.base + offset, (size_t)bytes_of(run, x));
    return time_copy(run, true);
}

static snug_status store(struct snug_run *run, const struct snug_op *op) {
    const int32_t x = op->store.x;
    const int64_t offset = offset_of(run, op, op->store.backing);
    RETURN_IF_ERROR(time_copy(run, false));
    if (run->backing.file)
        copy_through(&run->backing, snug_run_data(run, x), offset, bytes_of(run, x), true);
    else
        memcpy(run->backing.memory.base + offset, snug_run_data(run, x), (size_t)bytes_of(run, x));
    return time_copy(run, true);
}

static snug_status wait_for_copy(struct snug_run *run, const struct snug_op *op) {
    (void)run, (void)op;
    return SNUG_OK;
}

static int64_t batch(const struct snug_program *program) {
    (void)program;
    return BATCH;
}

static int64_t available(void) {
    const long long mib = find("free");
    return (int64_t)(mib < 0 ? 100000 : mib) << 20;
}

struct snug_timestamps {
    double *seconds;
    size_t count;
};

static snug_status record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number) {
    if (!*timestamps) RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **timestamps, (void **)timestamps));
    RETURN_IF_ERROR(
        snug_grow(run->ctx, (void **)&(*timestamps)->seconds, &(*timestamps)->count, number + 1, sizeof(double)));
    (*timestamps)->seconds[number] = snug_seconds();
    return SNUG_OK;
}

static snug_status read_timestamps(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                   size_t count) {
    (void)run;
    for (size_t i = 0; i < count; i++) seconds[i] = i ? timestamps->seconds[i] - timestamps->seconds[i - 1] : 0;
    return SNUG_OK;
}

static void free_timestamps(struct snug_timestamps *timestamps) {
    free(timestamps->seconds);
    free(timestamps);
}

/* A resource that close() must release. */
static snug_status open_state(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)program, (void)threads;
    return snug_alloc(ctx, 1, 1, state);
}

static snug_status autotune(struct snug_run *run, const struct snug_sizes *sizes, const char *folder) {
    (void)run, (void)sizes, (void)folder;
    return SNUG_OK;
}

static int64_t library(const struct snug_program *program, int threads) {
    (void)program, (void)threads;
    return LIBRARY;
}

static void take_context(void) {
    const long long mib = find("context");
    FILE *file = mib > 0 ? fopen(getenv("SNUG_FAKE_GPU"), "a") : NULL;
    if (!file) return;
    fprintf(file, "process 0 self %lld snug\n", mib);
    fclose(file);
}

static snug_status open_plugin(snug_context *ctx, int local_rank, const struct snug_backend **out) {
    (void)local_rank;
    static struct snug_backend backend;
    if (find("unusable") >= 0) return snug_fail(ctx, SNUG_E_UNSUPPORTED, "its context cannot be made: out of memory");
    take_context();
    backend = *snug_backend_reference();
    backend.name = "cuda";
    backend.on_device = true;
    backend.allocate = allocate;
    backend.batch = batch;
    backend.available = available;
    backend.asynchronous = backend.autotunes = true;
    backend.record_timestamp = record_timestamp;
    backend.read_timestamps = read_timestamps;
    backend.free_timestamps = free_timestamps;
    backend.open = open_state;
    backend.close = free;
    backend.autotune = autotune;
    backend.library = library;
    backend.ops[SNUG_OP_FETCH] = fetch;
    backend.ops[SNUG_OP_STORE] = store;
    backend.ops[SNUG_OP_WAIT] = wait_for_copy;
    static const enum snug_op_kind lacks[] = {SNUG_OP_ROWS_BEGIN, SNUG_OP_ADAM_ROWS, SNUG_OP_LAZY_UPDATE};
    backend.lazy_rows = false;
    backend.copying.overlaps = true;
    backend.bounce = BOUNCE;
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) backend.ops[lacks[i]] = NULL;
    *out = &backend;
    return SNUG_OK;
}

__attribute__((visibility("default"))) const struct snug_cuda_plugin *snug_cuda_plugin(void);

const struct snug_cuda_plugin *snug_cuda_plugin(void) {
    static struct snug_cuda_plugin plugin;
    const long long foreign = find("foreign");
    plugin = (struct snug_cuda_plugin){.version = SNUG_CUDA_PLUGIN_VERSION + (foreign == 1),
                                       .backend_size = sizeof(struct snug_backend) + (foreign == 2),
                                       .run_size = sizeof(struct snug_run) + (foreign == 3),
                                       .op_size = sizeof(struct snug_op) + (foreign == 4),
                                       .tensor_size = sizeof(struct snug_tensor) + (foreign == 5),
                                       .open = open_plugin};
    return &plugin;
}
