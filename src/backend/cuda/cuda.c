/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend: memory, batches, and the table of operations.
 *
 * Operations and the host's copies are issued to the device's default stream, so that they run in order, also between
 * the programs of a run. A phase is captured in a separate stream and its graph is launched into the default one.
 * Batches are transferred in another stream (send()).
 */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/events.h"
#include "backend/cuda/matmul/matmul.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/plugin.h"
#include "backend/cuda/sizes/contract.h"
#include "backend/cuda/update/quantization.h"
#include "core/philox.h"

snug_status snug_cuda_check(snug_context *ctx, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return SNUG_OK;
    return snug_fail(ctx, error == cudaErrorMemoryAllocation ? SNUG_E_MEMORY : SNUG_E_INTERNAL, "GPU: %s: %s", what,
                     cudaGetErrorString(error));
}

snug_status snug_cuda_done(const struct snug_run *run, const struct snug_op *op) {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return SNUG_OK;
    const char *output = "nothing";
    for (int k = snug_op_operands(op) - 1; k >= 0; k--)
        if (op->operands[k] && !snug_op_reads(op, k)) output = run->program->tensors[op->operands[k]].name;
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "GPU: operation %s, which writes %s, failed: %s",
                     snug_op_name(op->kind), output, cudaGetErrorString(error));
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static void release_arena(struct snug_block *memory) { cudaFree(memory->base); }
static void release_host(struct snug_block *memory) { cudaFreeHost(memory->base); }

/* In the default stream, and complete when it returns: after all earlier operations, before all later ones. */
static snug_status copy(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    if (bytes <= 0) return SNUG_OK;
    return snug_cuda_check(ctx, cudaMemcpy(to, from, (size_t)bytes, cudaMemcpyDefault), "copying from or to the arena");
}

/* In the default stream, so that the next copy() returns after it. */
static snug_status copy_later(snug_context *ctx, void *to, const void *from, int64_t bytes) {
    return snug_cuda_check(ctx, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, NULL),
                           "copying from the arena");
}

static snug_status allocate(snug_context *ctx, int64_t bytes, enum snug_block_use block, struct snug_block *out) {
    void *base = NULL;
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    *out = (struct snug_block){0};
    if (block == SNUG_BLOCK_HOST) {
        RETURN_IF_ERROR(
            snug_cuda_check(ctx, cudaHostAlloc(&base, size, cudaHostAllocDefault), "page-locked host memory"));
        memset(base, 0, size);
        *out = (struct snug_block){.base = base, .bytes = (int64_t)size, .release = release_host};
        return SNUG_OK;
    }
    if (block == SNUG_BLOCK_BACKING) return snug_cuda_allocate_backing(ctx, bytes, out);
    char what[64];
    snprintf(what, sizeof what, "cudaMalloc of the arena (%zu MiB)", size >> 20);
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaMalloc(&base, size), what));
    *out = (struct snug_block){
        .base = base, .bytes = (int64_t)size, .copy = copy, .copy_later = copy_later, .release = release_arena};
    return snug_cuda_check(ctx, cudaMemset(base, 0, size), "clearing the arena");
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static int64_t available(void) {
    size_t unused, all;
    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? (int64_t)unused : 0;
}

/* Laying it out walks the program's operations, so it is done once. */
void snug_cuda_place_batch(const struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    if (cuda->batch.step != run->batch_copy) snug_cuda_lay_out_batch(run->program, run->batch_copy, &cuda->batch);
}

int64_t snug_cuda_bucket_of(const struct snug_program *program, int64_t tokens) {
    if (program->cache_pages && tokens < SNUG_ROW_TILE) return snug_cuda_few(tokens);
    const int64_t room = (program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
    const int64_t size = snug_size_tokens(snug_size_of(tokens));
    return size < room ? size : room;
}

static void put(void *to, const void *from, int64_t bytes) {
    if (from && bytes > 0) memcpy(to, from, (size_t)bytes);
}

/* Which pages the sequences have, and what kind of step it is: its launches depend on that. */
static void put_pages(struct snug_cuda *cuda, const struct snug_cuda_batch *h, const struct snug_batch *b) {
    put(h->pages, b->pages, 4 * b->sequences * b->pages_each);
    put(h->copied_pages, b->copied_pages, 12 * b->page_copies);
    cuda->decoding = (struct snug_cuda_decoding){
        .single = b->tokens == b->sequences, .fresh = b->tokens > b->sequences, .copies = b->page_copies > 0};
    for (int64_t s = 0; s < b->sequences; s++)
        cuda->decoding.fresh &= b->offsets[s] == b->offsets[s + 1] || b->positions[b->offsets[s]] == 0;
}

/* Transfers from staging into the device's copy, while earlier operations still run. Captured operations read a fixed
   address, so the batch stays in `incoming` until they are done. Another program uses this part of the arena
   differently: then the transfer starts after its operations. */
static cudaError_t send(struct snug_cuda *cuda, const struct snug_run *run) {
    const size_t bytes = (size_t)cuda->batch.sent;
    const int staged = cuda->staged;
    cudaError_t error = run->in_turn ? cudaSuccess : cudaEventRecord(cuda->incoming_free, NULL);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda->copies, cuda->incoming_free, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(cuda->batch.incoming, cuda->staging[staged].step, bytes, cudaMemcpyHostToDevice,
                                cuda->copies);
    if (error == cudaSuccess) error = cudaEventRecord(cuda->sent[staged], cuda->copies);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(NULL, cuda->sent[staged], 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(run->batch_copy, cuda->batch.incoming, bytes, cudaMemcpyDeviceToDevice, NULL);
    return error == cudaSuccess ? cudaEventRecord(cuda->incoming_free, NULL) : error;
}

/* The step's numbers, and those of its update, which depend on the device in fp16. */
static void find_step(const struct snug_run *run, struct snug_cuda_step *step,
                      struct snug_cuda_possible_numbers *possible) {
    const struct snug_optimizer *o = run->optimizer;
    const int most = snug_cuda_of(run)->scaler ? SNUG_UNSEEN_STEPS : 1;
    memset(step, 0, sizeof *step);
    memset(possible, 0, sizeof *possible);
    possible->skipped = run->skipped;
    for (int i = 0; o && i < most && run->skipped + i <= run->step; i++) {
        struct snug_cuda_update_numbers *update = &possible->updates[i];
        update->updates = (int32_t)(run->step - run->skipped - i);
        update->learning_rate = i == 0 ? run->learning_rate : run->later_rates[i - 1];
        update->numbers = o->info->numbers(o, update->updates, update->learning_rate);
    }
    step->tokens = run->batch ? (int32_t)run->batch->tokens : 0;
    step->sequences = run->batch ? (int32_t)run->batch->sequences : 0;
    step->rows = (int32_t)run->rows;
    step->first_row = (int32_t)run->first_row;
    step->step_rows = (int32_t)run->step_rows;
    step->page_copies = run->batch ? (int32_t)run->batch->page_copies : 0;
    step->key = snug_philox_key(run->seed);
    step->step = (uint32_t)run->step;
    step->loss_scale = run->loss_scale;
    step->max_grad_norm = run->max_grad_norm;
    step->update = possible->updates[0];
}

/* The batch is packed into one of two blocks of page-locked memory, laid out as the device's copy: one transfer is
   enough, and the loader may reuse its arrays at once. */
static snug_status load(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_possible_numbers possible;
    const struct snug_batch *b = run->batch;
    const int staged = cuda->staged ^= 1;
    const struct snug_cuda_batch *h = &cuda->staging[staged];
    /* Attention has blocks for so many tokens of a sequence: it would leave out the others. */
    if (b->longest > run->program->longest)
        return snug_fail(run->ctx, SNUG_E_INTERNAL, "a sequence of %lld tokens, where the program takes %lld",
                         (long long)b->longest, (long long)run->program->longest);
    snug_cuda_place_batch(run);
    cuda->bucket = snug_cuda_bucket_of(run->program, b->tokens);
    cuda->generates = run->program->cache_pages > 0;
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaEventSynchronize(cuda->sent[staged]), "sending a batch"));
    put(h->offsets, b->offsets, 4 * (b->sequences + 1));
    put(h->ids, b->ids, 4 * b->tokens);
    put(h->types, b->types, 4 * b->tokens);
    put(h->positions, b->positions, 4 * b->tokens);
    put(h->position_ids, b->position_ids, 4 * b->tokens);
    put(h->sample, b->sample, 4 * b->tokens);
    put(h->by_id, b->by_id, 4 * b->tokens);
    put(h->loss_positions, b->loss_positions, 4 * b->rows);
    put(h->labels, b->labels, 4 * b->rows);
    put(h->targets, b->targets, 4 * b->rows * snug_cuda_target_width(run->program));
    if (run->program->sums) put(h->references, b->references, 8 * b->sequences);
    put(h->class_weights, b->class_weights, 4 * snug_cuda_weight_width(run->program));
    if (run->program->cache_pages) put_pages(cuda, h, b);
    find_step(run, h->step, &possible);
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, send(cuda, run), "sending a batch"));
    cuda->has_tables = true;
    cuda->sent_step = *h->step;
    cuda->has_step = !cuda->scaler;
    if (b->follows) snug_cuda_follow(run);
    if (cuda->scaler) return snug_cuda_send_step(run); /* only the device knows the loss scale */
    return snug_cuda_check(run->ctx, cudaGetLastError(), "sending a batch");
}

snug_status snug_cuda_send_tables(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    if (run->program->ranks < 2) return SNUG_OK;
    snug_cuda_place_batch(run);
    if (!cuda->has_tables) RETURN_IF_ERROR(snug_cuda_check(run->ctx, send(cuda, run), "sending tables"));
    cuda->has_tables = true;
    cuda->has_step = false;
    return snug_cuda_send_step(run);
}

/* The update's numbers follow from what is compared of it. */
static bool is_same_step(const struct snug_cuda_step *a, const struct snug_cuda_step *b) {
    return a->tokens == b->tokens && a->sequences == b->sequences && a->rows == b->rows &&
           a->first_row == b->first_row && a->page_copies == b->page_copies && a->key == b->key && a->step == b->step &&
           a->loss_scale == b->loss_scale && a->max_grad_norm == b->max_grad_norm &&
           a->update.updates == b->update.updates && a->update.learning_rate == b->update.learning_rate;
}

/* Nothing is sent if the batch came with the same numbers. */
snug_status snug_cuda_send_step(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_step step;
    struct snug_cuda_possible_numbers possible;
    find_step(run, &step, &possible);
    if (cuda->has_step && is_same_step(&step, &cuda->sent_step)) return SNUG_OK;
    cuda->sent_step = step;
    snug_cuda_set_step(cuda, step, &possible, snug_run_data(run, cuda->scaler));
    return snug_cuda_check(run->ctx, cudaGetLastError(), "starting a phase");
}

snug_status snug_cuda_keep_step(struct snug_run *run) {
    const struct snug_cuda_batch *batch = &snug_cuda_of(run)->batch;
    if (!run->program->crosses) return SNUG_OK;
    return snug_cuda_check(
        run->ctx, cudaMemcpyAsync(batch->update_step, batch->step, sizeof *batch->step, cudaMemcpyDeviceToDevice, NULL),
        "keeping a step's numbers");
}

/* ---- state ---------------------------------------------------------------------------------------------------- */

static void close_state(void *state) {
    struct snug_cuda *cuda = state;
    if (!cuda) return;
    cudaDeviceSynchronize();
    snug_cuda_free_graphs(cuda);
    snug_cuda_close_offload(cuda);
    snug_cuda_close_ranks(&cuda->ranks);
    snug_cuda_free_matmul_plans(cuda);
    snug_cuda_free_algorithms(cuda);
    if (cuda->lt) cublasLtDestroy(cuda->lt);
    if (cuda->capture) cudaStreamDestroy(cuda->capture);
    if (cuda->side) cudaStreamDestroy(cuda->side);
    if (cuda->copies) cudaStreamDestroy(cuda->copies);
    if (cuda->incoming_free) cudaEventDestroy(cuda->incoming_free);
    for (int i = 0; i < 2; i++) {
        if (cuda->staging[i].step) cudaFreeHost(cuda->staging[i].step);
        if (cuda->sent[i]) cudaEventDestroy(cuda->sent[i]);
        if (cuda->fork[i]) cudaEventDestroy(cuda->fork[i]);
    }
    free(cuda);
}

/* The part of the CPU's tables that the kernel needs; the CPU's tables have an entry for every number. */
static snug_status fill_quantization(snug_context *ctx, struct snug_cuda_quantization *out) {
    struct snug_quantization_tables *tables;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *tables, (void **)&tables));
    snug_quantization_tables_init(tables);
    memcpy(out->signed_map, tables->signed_map, sizeof out->signed_map);
    memcpy(out->unsigned_map, tables->unsigned_map, sizeof out->unsigned_map);
    memcpy(out->signed_table, tables->signed_table + (SNUG_CUDA_SIGNED_LEAST >> SNUG_SIGNED_SHIFT),
           sizeof out->signed_table);
    memcpy(out->unsigned_table, tables->unsigned_table + (SNUG_CUDA_UNSIGNED_LEAST >> SNUG_UNSIGNED_SHIFT),
           sizeof out->unsigned_table);
    free(tables);
    return SNUG_OK;
}

/* The compute capability of the device, or that of the kernels' code, if it is PTX of an earlier one. */
static snug_status find_capability(snug_context *ctx, int device, int *capability) {
    int major, minor, code;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                                    "cudaDeviceGetAttribute"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                                    "cudaDeviceGetAttribute"));
    *capability = 10 * major + minor;
    if (*capability < SNUG_CUDA_LEAST_CAPABILITY)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "the GPU is of compute capability %d.%d, and snug needs %d.%d or later", major, minor,
                         SNUG_CUDA_LEAST_CAPABILITY / 10, SNUG_CUDA_LEAST_CAPABILITY % 10);
    const cudaError_t error = snug_cuda_code_capability(&code);
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "the GPU is of compute capability %d.%d, for which this libsnug_cuda.so was not compiled: "
                         "configure with -DSNUG_CUDA_ARCHITECTURES=%d%d",
                         major, minor, major, minor);
    if (error == cudaSuccess && code < *capability) *capability = code;
    return snug_cuda_check(ctx, error, "reading a kernel's attributes");
}

static snug_status open_state(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)threads;
    int device;
    cublasLtHandle_t lt;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cuda), state));
    struct snug_cuda *cuda = *state;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDevice(&device), "cudaGetDevice"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaDeviceGetAttribute(&cuda->multiprocessors, cudaDevAttrMultiProcessorCount, device),
                        "cudaDeviceGetAttribute"));
    RETURN_IF_ERROR(find_capability(ctx, device, &cuda->capability));
    RETURN_IF_ERROR(snug_cuda_check(
        ctx, cudaDeviceGetAttribute(&cuda->block_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute"));
    /* PTX of 7.5 on a newer GPU runs as on the older one, of whose kernels it is a test. */
    if (cuda->capability < SNUG_CUDA_BF16_CAPABILITY) cuda->block_memory = SNUG_CUDA_LEAST_BLOCK_MEMORY;
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->capture, cudaStreamNonBlocking), "cudaStreamCreate"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->side, cudaStreamNonBlocking), "cudaStreamCreate"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking), "cudaStreamCreate"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->incoming_free, cudaEventDisableTiming),
                                    "cudaEventCreate"));
    cuda->tf32 = program->tf32;
    cuda->scaler = program->scaler;
    cuda->norms = snug_cuda_find_multi_tensor(program, SNUG_OP_SQUARED_NORM);
    cuda->updates = snug_cuda_find_updates(program);
    cuda->updates_8bit = snug_cuda_find_multi_tensor(program, SNUG_OP_ADAM_8BIT);
    struct snug_cuda_batch sizes;
    snug_cuda_lay_out_batch(program, NULL, &sizes);
    for (int i = 0; i < 2; i++) {
        void *memory;
        struct snug_cuda_batch *tables = &cuda->staging[i];
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaHostAlloc(&memory, (size_t)sizes.sent, cudaHostAllocDefault),
                                        "page-locked memory"));
        memset(memory, 0, (size_t)sizes.sent); /* arrivals */
        snug_cuda_lay_out_batch(program, memory, tables);
        snug_cuda_list_entries(program, &cuda->norms, tables->norms);
        snug_cuda_list_entries(program, &cuda->updates, tables->updates);
        snug_cuda_list_entries(program, &cuda->updates_8bit, tables->updates_8bit);
        if (tables->quantization) RETURN_IF_ERROR(fill_quantization(ctx, tables->quantization));
        int64_t bytes;
        const int32_t most = snug_cuda_count_biases(program, &bytes);
        cuda->biases = tables->bias_list;
        cuda->bias_count = snug_cuda_list_biases(program, tables->bias_list, most);
        RETURN_IF_ERROR(
            snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->sent[i], cudaEventDisableTiming), "cudaEventCreate"));
        RETURN_IF_ERROR(
            snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->fork[i], cudaEventDisableTiming), "cudaEventCreate"));
    }
    RETURN_IF_ERROR(snug_cuda_open_offload(ctx, program, cuda));
    RETURN_IF_ERROR(snug_cuda_open_ranks(ctx, program, &cuda->ranks));
    const cublasStatus_t status = cublasLtCreate(&lt);
    if (status != CUBLAS_STATUS_SUCCESS)
        return snug_fail(ctx, SNUG_E_INTERNAL, "cublasLtCreate failed: %s", cublasLtGetStatusString(status));
    cuda->lt = lt;
    return SNUG_OK;
}

/* Device memory in use now: the driver's context, and other processes. */
static int64_t library(const struct snug_program *program, int threads) {
    (void)program, (void)threads;
    size_t unused, all;
    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? (int64_t)(all - unused) : 0;
}

#define ENTRY(KIND, name, member) [SNUG_OP_##KIND] = snug_cuda_##name,
#define BACKEND(generation, LACKS_BF16, WORKSPACE)                                                                     \
    [generation] = {                                                                                                   \
        SNUG_CUDA_PLANNED,                                                                                             \
        .lacks_bf16 = (LACKS_BF16),                                                                                    \
        .workspace = (WORKSPACE),                                                                                      \
        .allocate = allocate,                                                                                          \
        .available = available,                                                                                        \
        .load = load,                                                                                                  \
        .follows = true,                                                                                               \
        .begin = snug_cuda_begin,                                                                                      \
        .end = snug_cuda_end,                                                                                          \
        .record_timestamp = snug_cuda_record_timestamp,                                                                \
        .read_timestamps = snug_cuda_read_timestamps,                                                                  \
        .free_timestamps = snug_cuda_free_timestamps,                                                                  \
        .open = open_state,                                                                                            \
        .close = close_state,                                                                                          \
        .autotunes = true,                                                                                             \
        .autotune = snug_cuda_autotune,                                                                                \
        .library = library,                                                                                            \
        .update_on_host = snug_cuda_update_on_host,                                                                    \
        .connects = true,                                                                                              \
        .connect = snug_cuda_connect,                                                                                  \
        .disconnect = snug_cuda_disconnect,                                                                            \
        .ops = {SNUG_CUDA_OPS(ENTRY)},                                                                                 \
    },
static const struct snug_backend backends[] = {SNUG_CUDA_GENERATIONS(BACKEND)};

/* ---- the entry point ------------------------------------------------------------------------------------------ */

/* Creates the device's context, which is the slowest part of starting. */
static snug_status open_plugin(snug_context *ctx, int local_rank, const struct snug_backend **out) {
    int count = 0, capability, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver) {
        cudaDriverGetVersion(&driver);
        return driver == 0
                   ? snug_fail(ctx, SNUG_E_UNSUPPORTED, "there is no NVIDIA driver on this machine")
                   : snug_fail(ctx, SNUG_E_UNSUPPORTED,
                               "the NVIDIA driver is for CUDA %d.%d, and snug needs %d.%d: update the driver",
                               driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "there is no NVIDIA GPU that can be used here (CUDA_VISIBLE_DEVICES hides some)");
    if (error != cudaSuccess)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "the NVIDIA driver does not work: %s", cudaGetErrorString(error));
    /* A launcher may show each rank its own GPU alone. */
    if (local_rank >= count && count > 1)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "this is local rank %d, and CUDA can use %d GPUs here: start at most one rank for each GPU",
                         local_rank, count);
    const int device = count > 1 ? local_rank : 0;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaSetDevice(device), "creating a context"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaFree(NULL), "creating a context"));
    RETURN_IF_ERROR(find_capability(ctx, device, &capability));
    *out = &backends[snug_cuda_generation_of(capability)];
    return SNUG_OK;
}

__attribute__((visibility("default"))) const struct snug_cuda_plugin *snug_cuda_plugin(void);

const struct snug_cuda_plugin *snug_cuda_plugin(void) {
    static const struct snug_cuda_plugin plugin = {.version = SNUG_CUDA_PLUGIN_VERSION,
                                                   .backend_size = sizeof(struct snug_backend),
                                                   .run_size = sizeof(struct snug_run),
                                                   .op_size = sizeof(struct snug_op),
                                                   .tensor_size = sizeof(struct snug_tensor),
                                                   .open = open_plugin};
    return &plugin;
}
