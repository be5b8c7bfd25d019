/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend: memory, batches, and the table of operations.
 *
 * Operations and what the host reads are put into the device's default stream, so that they are in order by themselves,
 * also between the programs of a run. A recorded phase is recorded in a stream of its own and launched into the default
 * one. Batches travel in a stream of their own (send()).
 */
#include "backend/cuda/cuda.h"
#include "backend/cuda/codes.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"

snug_status snug_cuda_check(snug_context *ctx, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return SNUG_OK;
    return snug_fail(ctx, error == cudaErrorMemoryAllocation ? SNUG_E_MEMORY : SNUG_E_INTERNAL, "GPU: %s: %s", what,
                     cudaGetErrorString(error));
}

snug_status snug_cuda_done(const struct snug_run *run, const struct snug_op *op) {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return SNUG_OK;
    const int32_t out = op->out[0];
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "GPU: operation %d, which writes %s, failed: %s", (int)op->kind,
                     out >= 0 ? run->program->tensors[out].name : "nothing", cudaGetErrorString(error));
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static void release_arena(struct snug_block *memory) { cudaFree(memory->base); }
static void release_host(struct snug_block *memory) { cudaFreeHost(memory->base); }

/* In the default stream, and done when it returns: after all operations, and before what follows. */
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
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaHostAlloc(&base, size, cudaHostAllocDefault),
                                        "page-locked memory of the host cannot be had"));
        memset(base, 0, size);
        *out = (struct snug_block){.base = base, .bytes = (int64_t)size, .release = release_host};
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaMalloc(&base, size), "the arena cannot be had"));
    *out = (struct snug_block){
        .base = base, .bytes = (int64_t)size, .copy = copy, .copy_later = copy_later, .release = release_arena};
    return snug_cuda_check(ctx, cudaMemset(base, 0, size), "clearing the arena");
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

static void *carve(uint8_t *base, int64_t *offset, int64_t bytes) {
    void *taken = base ? base + *offset : NULL;
    *offset += (bytes + 255) / 256 * 256;
    return taken;
}

/* The loss's width where it reads targets; 0 where it reads labels. */
static int64_t target_width(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (op->kind == SNUG_OP_LOSS && op->loss != SNUG_CROSS_ENTROPY) return program->tensors[op->in[0]].cols;
    }
    return 0;
}

/* Bytes of the batch's copy; out is carved from base unless that is NULL. Head rows are tokens or sequences, of which
   there are no more than tokens. */
static int64_t carve_batch(const struct snug_program *program, uint8_t *base, struct snug_cuda_batch *out) {
    const int64_t tokens = program->capacity[SNUG_EXTENT_TOKENS], sequences = program->capacity[SNUG_EXTENT_SEQUENCES];
    const int64_t rows = tokens > program->capacity[SNUG_EXTENT_ROWS] ? tokens : program->capacity[SNUG_EXTENT_ROWS];
    int64_t size = 0;
    out->step = carve(base, &size, sizeof *out->step);
    out->offsets = carve(base, &size, 4 * (sequences + 1));
    int32_t **arrays[] = {&out->ids, &out->types, &out->positions, &out->sample, &out->by_id};
    for (size_t i = 0; i < 5; i++) *arrays[i] = carve(base, &size, 4 * tokens);
    out->head_rows = carve(base, &size, 4 * rows);
    out->labels = carve(base, &size, 4 * rows);
    out->targets = carve(base, &size, 4 * rows * target_width(program));
    out->norms =
        carve(base, &size, snug_cuda_find_many(program, SNUG_OP_SQUARED_NORM).count * (int64_t)sizeof *out->norms);
    out->updates = carve(base, &size, snug_cuda_find_updates(program).count * (int64_t)sizeof *out->updates);
    out->updates_8bit =
        carve(base, &size, snug_cuda_find_many(program, SNUG_OP_ADAM_8BIT).count * (int64_t)sizeof *out->updates);
    const bool coded = snug_program_has(program, SNUG_OP_ADAM_8BIT);
    uint8_t *codes = carve(base, &size, coded ? (int64_t)sizeof *out->codes : 0);
    out->codes = coded ? (struct snug_cuda_codes *)codes : NULL;
    int64_t bytes;
    const int32_t count = snug_cuda_count_biases(program, &bytes);
    out->bias_list = carve(base, &size, count * (int64_t)sizeof *out->bias_list);
    out->sent = size;
    out->landing = carve(base, &size, out->sent);
    out->biases = carve(base, &size, bytes);
    return size;
}

static int64_t available(void) {
    size_t unused, all;
    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? (int64_t)unused : 0;
}

static int64_t batch_bytes(const struct snug_program *program) {
    struct snug_cuda_batch batch;
    return carve_batch(program, NULL, &batch);
}

/* It asks for the program's operations, so not for every batch again. */
void snug_cuda_place_batch(const struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    if (cuda->batch.step != run->batch_copy) carve_batch(run->program, run->batch_copy, &cuda->batch);
}

int64_t snug_cuda_bucket_of(const struct snug_program *program, int64_t tokens) {
    const int64_t room = (program->capacity[SNUG_EXTENT_TOKENS] + SNUG_ROW_TILE - 1) / SNUG_ROW_TILE * SNUG_ROW_TILE;
    const int64_t size = snug_size_tokens(snug_size_of(tokens));
    return size < room ? size : room;
}

static void put(void *to, const void *from, int64_t bytes) {
    if (from && bytes > 0) memcpy(to, from, (size_t)bytes);
}

/* From staging into the device's copy, beside the operations that were asked for before. Recorded ones read a fixed
   place, so the batch waits where it landed until they are done. What another program has in this part of the arena is
   laid out differently: then it travels when that one's operations are done. */
static cudaError_t send(struct snug_cuda *cuda, const struct snug_run *run) {
    const size_t bytes = (size_t)cuda->batch.sent;
    const int turn = cuda->turn;
    cudaError_t error = run->in_turn ? cudaSuccess : cudaEventRecord(cuda->taken, NULL);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cuda->copies, cuda->taken, 0);
    if (error == cudaSuccess)
        error =
            cudaMemcpyAsync(cuda->batch.landing, cuda->staging[turn].step, bytes, cudaMemcpyHostToDevice, cuda->copies);
    if (error == cudaSuccess) error = cudaEventRecord(cuda->sent[turn], cuda->copies);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(NULL, cuda->sent[turn], 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(run->batch_copy, cuda->batch.landing, bytes, cudaMemcpyDeviceToDevice, NULL);
    return error == cudaSuccess ? cudaEventRecord(cuda->taken, NULL) : error;
}

/* Through one of two blocks of page-locked memory, laid out as the device's copy, so that one transfer takes it all and
   the loader may have its own arrays back at once. */
static snug_status load(struct snug_run *run) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_batch *b = run->batch;
    const int turn = cuda->turn ^= 1;
    const struct snug_cuda_batch *h = &cuda->staging[turn];
    snug_cuda_place_batch(run);
    cuda->bucket = snug_cuda_bucket_of(run->program, b->tokens);
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaEventSynchronize(cuda->sent[turn]), "sending a batch"));
    put(h->offsets, b->offsets, 4 * (b->sequences + 1));
    put(h->ids, b->ids, 4 * b->tokens);
    put(h->types, b->types, 4 * b->tokens);
    put(h->positions, b->positions, 4 * b->tokens);
    put(h->sample, b->sample, 4 * b->tokens);
    put(h->by_id, b->by_id, 4 * b->tokens);
    put(h->head_rows, b->head_rows, 4 * b->rows);
    put(h->labels, b->labels, 4 * b->rows);
    put(h->targets, b->targets, 4 * b->rows * target_width(run->program));
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, send(cuda, run), "sending a batch"));
    return snug_cuda_send_step(run);
}

snug_status snug_cuda_send_step(struct snug_run *run) {
    const struct snug_optimizer *o = run->optimizer;
    const struct snug_cuda_step step = {.tokens = (int32_t)run->batch->tokens,
                                        .sequences = (int32_t)run->batch->sequences,
                                        .rows = (int32_t)run->rows,
                                        .first_row = (int32_t)run->first_row,
                                        .key = snug_philox_key(run->seed),
                                        .step = (uint32_t)run->step,
                                        .loss_scale = run->loss_scale,
                                        .max_grad_norm = run->max_grad_norm};
    struct snug_cuda_pace pace = {.beta1 = o ? o->beta1 : 0,
                                  .beta2 = o ? o->beta2 : 0,
                                  .decay_rate = o ? o->decay_rate : 0,
                                  .skipped = run->skipped,
                                  .learning_rates = {run->learning_rate}};
    for (int i = 1; i < SNUG_UNSEEN_STEPS; i++) pace.learning_rates[i] = run->later_rates[i - 1];
    snug_cuda_set_step(snug_cuda_of(run), step, &pace, snug_run_data(run, snug_cuda_of(run)->scaler));
    return snug_cuda_check(run->ctx, cudaGetLastError(), "starting a phase");
}

/* ---- state ---------------------------------------------------------------------------------------------------- */

static void close_state(void *state) {
    struct snug_cuda *cuda = state;
    if (!cuda) return;
    cudaDeviceSynchronize();
    snug_cuda_free_graphs(cuda);
    snug_cuda_free_products(cuda);
    snug_cuda_free_choices(cuda);
    if (cuda->lt) cublasLtDestroy(cuda->lt);
    if (cuda->record) cudaStreamDestroy(cuda->record);
    if (cuda->side) cudaStreamDestroy(cuda->side);
    if (cuda->copies) cudaStreamDestroy(cuda->copies);
    if (cuda->taken) cudaEventDestroy(cuda->taken);
    for (int i = 0; i < 2; i++) {
        if (cuda->staging[i].step) cudaFreeHost(cuda->staging[i].step);
        if (cuda->sent[i]) cudaEventDestroy(cuda->sent[i]);
        if (cuda->fork[i]) cudaEventDestroy(cuda->fork[i]);
    }
    free(cuda);
}

/* Out of the CPU's tables, which have cells for all numbers. */
static snug_status fill_codes(snug_context *ctx, struct snug_cuda_codes *out) {
    struct snug_codes *codes;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *codes, (void **)&codes));
    snug_codes_init(codes);
    memcpy(out->signed_book, codes->signed_book, sizeof out->signed_book);
    memcpy(out->unsigned_book, codes->unsigned_book, sizeof out->unsigned_book);
    memcpy(out->signed_cells, codes->signed_cells + (SNUG_CUDA_SIGNED_LEAST >> SNUG_SIGNED_SHIFT),
           sizeof out->signed_cells);
    memcpy(out->unsigned_cells, codes->unsigned_cells + (SNUG_CUDA_UNSIGNED_LEAST >> SNUG_UNSIGNED_SHIFT),
           sizeof out->unsigned_cells);
    free(codes);
    return SNUG_OK;
}

static snug_status open_state(snug_context *ctx, const struct snug_program *program, int threads, void **state) {
    (void)threads;
    int device, minor;
    cublasLtHandle_t lt;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_cuda), state));
    struct snug_cuda *cuda = *state;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDevice(&device), "no device is set"));
    RETURN_IF_ERROR(snug_cuda_check(
        ctx, cudaDeviceGetAttribute(&cuda->multiprocessors, cudaDevAttrMultiProcessorCount, device), "its attributes"));
    RETURN_IF_ERROR(snug_cuda_check(
        ctx, cudaDeviceGetAttribute(&cuda->capability, cudaDevAttrComputeCapabilityMajor, device), "its attributes"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                                    "its attributes"));
    cuda->capability = 10 * cuda->capability + minor;
    RETURN_IF_ERROR(snug_cuda_check(
        ctx, cudaDeviceGetAttribute(&cuda->block_memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "its attributes"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->record, cudaStreamNonBlocking),
                                    "a stream cannot be had"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->side, cudaStreamNonBlocking), "a stream cannot be had"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking),
                                    "a stream cannot be had"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->taken, cudaEventDisableTiming), "an event cannot be had"));
    cuda->tf32 = program->tf32;
    cuda->scaler = snug_program_scaler(program);
    cuda->norms = snug_cuda_find_many(program, SNUG_OP_SQUARED_NORM);
    cuda->updates = snug_cuda_find_updates(program);
    cuda->updates_8bit = snug_cuda_find_many(program, SNUG_OP_ADAM_8BIT);
    struct snug_cuda_batch sizes;
    carve_batch(program, NULL, &sizes);
    for (int i = 0; i < 2; i++) {
        void *memory;
        struct snug_cuda_batch *tables = &cuda->staging[i];
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaHostAlloc(&memory, (size_t)sizes.sent, cudaHostAllocDefault),
                                        "page-locked memory"));
        carve_batch(program, memory, tables);
        snug_cuda_list_many(program, &cuda->norms, tables->norms);
        snug_cuda_list_many(program, &cuda->updates, tables->updates);
        snug_cuda_list_many(program, &cuda->updates_8bit, tables->updates_8bit);
        if (tables->codes) RETURN_IF_ERROR(fill_codes(ctx, tables->codes));
        int64_t bytes;
        const int32_t most = snug_cuda_count_biases(program, &bytes);
        cuda->biases = tables->bias_list;
        cuda->bias_count = snug_cuda_list_biases(program, tables->bias_list, most);
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->sent[i], cudaEventDisableTiming),
                                        "an event cannot be had"));
        RETURN_IF_ERROR(snug_cuda_check(ctx, cudaEventCreateWithFlags(&cuda->fork[i], cudaEventDisableTiming),
                                        "an event cannot be had"));
    }
    const cublasStatus_t status = cublasLtCreate(&lt);
    if (status != CUBLAS_STATUS_SUCCESS)
        return snug_fail(ctx, SNUG_E_INTERNAL, "cuBLASLt cannot be opened: %s", cublasLtGetStatusString(status));
    cuda->lt = lt;
    return SNUG_OK;
}

/* What of the device is taken now, the driver's context and whatever else runs there. */
static int64_t library(const struct snug_program *program, int threads) {
    (void)program, (void)threads;
    size_t unused, all;
    return cudaMemGetInfo(&unused, &all) == cudaSuccess ? (int64_t)(all - unused) : 0;
}

static int64_t workspace(const struct snug_program *program, const struct snug_op *op, int threads) {
    (void)threads;
    switch (op->kind) {
    case SNUG_OP_LINEAR:
    case SNUG_OP_LINEAR_DX:
    case SNUG_OP_LINEAR_DW: return snug_cuda_linear_workspace(program, op);
    case SNUG_OP_NORM_BACKWARD: return snug_cuda_norm_workspace(program, op);
    case SNUG_OP_ACTIVATION_BACKWARD: return snug_cuda_activation_workspace(program, op);
    case SNUG_OP_EMBED_BACKWARD: return snug_cuda_embed_workspace(program, op);
    case SNUG_OP_ATTENTION:
    case SNUG_OP_ATTENTION_BACKWARD: return snug_cuda_attention_workspace(program, op);
    case SNUG_OP_LOSS: return snug_cuda_loss_workspace(program, op);
    case SNUG_OP_SQUARED_NORM: return snug_cuda_squared_norm_workspace(program, op);
    case SNUG_OP_ADAFACTOR: return snug_cuda_adafactor_workspace(program, op);
    default: return 0;
    }
}

static const struct snug_backend backend = {
    .name = "cuda",
    .head_rows = 1024, /* the decoder's gradient is read and written once a chunk */
    .allocate = allocate,
    .batch = batch_bytes,
    .available = available,
    .load = load,
    .begin = snug_cuda_begin,
    .end = snug_cuda_end,
    .stamp = snug_cuda_stamp,
    .stamps = snug_cuda_stamps,
    .free_stamps = snug_cuda_free_stamps,
    .open = open_state,
    .close = close_state,
    .warm = snug_cuda_warm,
    .library = library,
    .workspace = workspace,
    .ops = {[SNUG_OP_EMBED] = snug_cuda_embed,
            [SNUG_OP_LINEAR] = snug_cuda_linear,
            [SNUG_OP_ATTENTION] = snug_cuda_attention,
            [SNUG_OP_RESIDUAL_NORM] = snug_cuda_residual_norm,
            [SNUG_OP_NORM] = snug_cuda_norm,
            [SNUG_OP_ACTIVATION] = snug_cuda_activation,
            [SNUG_OP_DROPOUT] = snug_cuda_dropout,
            [SNUG_OP_GATHER] = snug_cuda_gather,
            [SNUG_OP_LOSS] = snug_cuda_loss,
            [SNUG_OP_FILL] = snug_cuda_fill,
            [SNUG_OP_EMBED_BACKWARD] = snug_cuda_embed_backward,
            [SNUG_OP_LINEAR_DX] = snug_cuda_linear_dx,
            [SNUG_OP_LINEAR_DW] = snug_cuda_linear_dw,
            [SNUG_OP_ATTENTION_BACKWARD] = snug_cuda_attention_backward,
            [SNUG_OP_NORM_BACKWARD] = snug_cuda_norm_backward,
            [SNUG_OP_ACTIVATION_BACKWARD] = snug_cuda_activation_backward,
            [SNUG_OP_GATHER_BACKWARD] = snug_cuda_gather_backward,
            [SNUG_OP_SQUARED_NORM] = snug_cuda_squared_norm,
            [SNUG_OP_CLIP] = snug_cuda_clip,
            [SNUG_OP_RESCALE] = snug_cuda_rescale,
            [SNUG_OP_ADAM] = snug_cuda_adam,
            [SNUG_OP_ADAM_8BIT] = snug_cuda_adam_8bit,
            [SNUG_OP_ADAFACTOR] = snug_cuda_adafactor,
            [SNUG_OP_SGD] = snug_cuda_sgd,
            [SNUG_OP_ADAGRAD] = snug_cuda_adagrad,
            [SNUG_OP_RMSPROP] = snug_cuda_rmsprop,
            [SNUG_OP_LION] = snug_cuda_lion,
            [SNUG_OP_CAST] = snug_cuda_cast},
};

/* ---- the door ------------------------------------------------------------------------------------------------- */

/* Makes the device's context, which is the longest part of a start. */
static snug_status open_plugin(snug_context *ctx, const struct snug_backend **out) {
    int count = 0, major, driver = 0;
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
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaSetDevice(0), "its context cannot be made"));
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "its attributes"));
    if (major < 8)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "the GPU is of compute capability %d, and snug needs 8.0 or later",
                         major);
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaFree(NULL), "its context cannot be made"));
    *out = &backend;
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
