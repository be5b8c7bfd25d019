/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How cuBLASLt does a product: by trial, before the first step, for the sizes of batches that the run will meet.
 *
 * Another algorithm may round otherwise, so a run and its resumption must agree: what was chosen is kept in a file of
 * this GPU and this cuBLASLt, and what stands there is taken without a look at the clock. Of processes that try at the
 * same time the first to write wins, and the others take over what it wrote. Where nothing can be kept, and for sizes
 * that were not announced, it is the heuristic's first, which is always the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/products.h"

enum {
    CANDIDATES = 16,
    FINALISTS = 4, /* of the first round, that are timed longer */
    ROUNDS = 3,
    LAUNCHES = 4 /* in a row, so that the launch itself costs nothing */
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (status == CUBLAS_STATUS_SUCCESS) status = (call);                                                          \
    } while (0)

/* ---- trials ---------------------------------------------------------------------------------------------------- */

static cublasStatus_t ask(const struct snug_cuda *cuda, const struct snug_cuda_product *p, int wanted,
                          cublasLtMatmulHeuristicResult_t *found, int *count) {
    const uint64_t workspace = SNUG_CUDA_PRODUCT_WORKSPACE;
    const uint32_t alignment = 1u << p->shape.alignment;
    cublasLtMatmulPreference_t wish;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&wish);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    TRY(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof workspace));
    static const cublasLtMatmulPreferenceAttributes_t bytes[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < 4; i++)
        TRY(cublasLtMatmulPreferenceSetAttribute(wish, bytes[i], &alignment, sizeof alignment));
    TRY(cublasLtMatmulAlgoGetHeuristic(cuda->lt, p->description, p->a, p->b, p->c, p->c, wish, wanted, found, count));
    cublasLtMatmulPreferenceDestroy(wish);
    return status == CUBLAS_STATUS_SUCCESS && *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
}

/* Milliseconds of a launch; infinite where it failed. */
static float time_of(const struct snug_cuda *cuda, struct snug_cuda_product *p, const struct snug_cuda_matrices *m,
                     const cublasLtMatmulHeuristicResult_t *candidate, void *workspace, int launches) {
    float milliseconds = 0;
    cublasStatus_t status = candidate->state;
    cudaError_t error = cudaEventRecord(cuda->clock[0], NULL);
    for (int i = 0; i < launches; i++)
        TRY(snug_cuda_launch(cuda, p, m, &candidate->algo, candidate->workspaceSize, workspace));
    if (error == cudaSuccess) error = cudaEventRecord(cuda->clock[1], NULL);
    if (error == cudaSuccess) error = cudaEventSynchronize(cuda->clock[1]);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, cuda->clock[0], cuda->clock[1]);
    return status == CUBLAS_STATUS_SUCCESS && error == cudaSuccess ? milliseconds / (float)launches : __builtin_inff();
}

/* The number of the quickest. The first launch of a kernel loads it; rounds go over all in turn, since clocks drift. */
static int fastest(const struct snug_cuda *cuda, struct snug_cuda_product *p, const struct snug_cuda_matrices *m,
                   const cublasLtMatmulHeuristicResult_t *found, int count, void *workspace) {
    float best[CANDIDATES];
    bool out[CANDIDATES] = {false};
    for (int i = 0; i < count; i++) {
        out[i] = time_of(cuda, p, m, &found[i], workspace, 1) == __builtin_inff();
        best[i] = time_of(cuda, p, m, &found[i], workspace, 2);
    }
    for (int left = count; left > FINALISTS;) {
        int slowest = -1;
        left = 0;
        for (int i = 0; i < count; i++) {
            left += !out[i];
            if (!out[i] && (slowest < 0 || best[i] > best[slowest])) slowest = i;
        }
        if (left > FINALISTS) out[slowest] = true;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            const float time = out[i] ? __builtin_inff() : time_of(cuda, p, m, &found[i], workspace, LAUNCHES);
            if (round == 0 || time < best[i]) best[i] = time;
        }
    int winner = 0;
    for (int i = 1; i < count; i++)
        if (best[i] < best[winner]) winner = i;
    return winner;
}

static struct snug_cuda_choice *known(const struct snug_cuda *cuda, const struct snug_cuda_shape *shape) {
    for (size_t i = 0; i < cuda->choice_count; i++)
        if (memcmp(&cuda->choices[i].shape, shape, sizeof *shape) == 0) return &cuda->choices[i];
    return NULL;
}

static snug_status add_choice(struct snug_run *run, const struct snug_cuda_choice *choice) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&cuda->choices, &cuda->choice_capacity, cuda->choice_count + 1,
                              sizeof *cuda->choices));
    cuda->choices[cuda->choice_count++] = *choice;
    return SNUG_OK;
}

cublasStatus_t snug_cuda_choose(struct snug_run *run, struct snug_cuda_product *p, const struct snug_cuda_matrices *m,
                                void *workspace) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0, winner = 0;
    const struct snug_cuda_choice *choice = cuda->warming ? known(cuda, &p->shape) : NULL;
    if (choice && cublasLtMatmulAlgoCheck(cuda->lt, p->description, p->a, p->b, p->c, p->c, &choice->algorithm,
                                          found) == CUBLAS_STATUS_SUCCESS) {
        p->algorithm = choice->algorithm;
        p->workspace = (size_t)choice->workspace;
        return CUBLAS_STATUS_SUCCESS;
    }
    const cublasStatus_t status = ask(cuda, p, cuda->warming ? CANDIDATES : 1, found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (cuda->warming) {
        if (cuda->tried++ == 0) snug_cuda_scatter(run);
        winner = fastest(cuda, p, m, found, count, workspace);
        struct snug_cuda_choice mine;
        memset(&mine, 0, sizeof mine);
        mine.shape = p->shape;
        mine.algorithm = found[winner].algo;
        mine.workspace = (int64_t)found[winner].workspaceSize;
        if (add_choice(run, &mine) != SNUG_OK) return CUBLAS_STATUS_ALLOC_FAILED;
    }
    p->algorithm = found[winner].algo;
    p->workspace = found[winner].workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the file: a line for each choice, shape and algorithm as hexadecimal bytes ---------------------------------- */

static int value_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Lines that are not whole are passed over: they are tried again. */
static snug_status read_choices(struct snug_run *run, FILE *file) {
    char line[2 * sizeof(struct snug_cuda_choice) + 2];
    while (fgets(line, sizeof line, file)) {
        struct snug_cuda_choice choice;
        uint8_t *bytes = (uint8_t *)&choice;
        size_t i = 0;
        for (; i < sizeof choice; i++) {
            const int high = value_of(line[2 * i]), low = high < 0 ? -1 : value_of(line[2 * i + 1]);
            if (low < 0) break;
            bytes[i] = (uint8_t)(16 * high + low);
        }
        const bool whole = i == sizeof choice && line[2 * i] == '\n';
        /* cppcheck-suppress uninitvar ; written byte by byte */
        if (whole && choice.workspace >= 0 && choice.workspace <= SNUG_CUDA_PRODUCT_WORKSPACE &&
            !known(snug_cuda_of(run), &choice.shape))
            RETURN_IF_ERROR(add_choice(run, &choice));
    }
    return SNUG_OK;
}

static bool write_choices(FILE *file, const struct snug_cuda_choice *choices, size_t count) {
    fputc('\n', file); /* after what somebody may have left half written */
    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = (const uint8_t *)&choices[i];
        for (size_t k = 0; k < sizeof *choices; k++) fprintf(file, "%02x", bytes[k]);
        fputc('\n', file);
    }
    return fflush(file) == 0 && !ferror(file);
}

static snug_status path_of(struct snug_run *run, const char *folder, char **path) {
    struct cudaDeviceProp gpu;
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaGetDeviceProperties(&gpu, 0), "its name"));
    for (char *c = gpu.name; *c; c++)
        if (!(*c >= '0' && *c <= '9') && !(*c >= 'A' && *c <= 'Z') && !(*c >= 'a' && *c <= 'z')) *c = '-';
    return snug_format(run->ctx, path, "%s/products-%s-%s-%zu", folder, SNUG_VERSION, gpu.name, cublasLtGetVersion());
}

/* Appends what was tried, where nobody else was quicker; then what is in the file holds for this run too. */
static snug_status keep_choices(struct snug_run *run, FILE *file, size_t kept) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_choice *mine = cuda->choices + kept;
    size_t count = cuda->choice_count - kept;
    void *copy;
    RETURN_IF_ERROR(snug_alloc(run->ctx, count, sizeof *mine, &copy));
    memcpy(copy, mine, count * sizeof *mine);
    cuda->choice_count = kept;
    snug_status status = SNUG_OK;
    if (flock(fileno(file), LOCK_EX) == 0) {
        rewind(file);
        status = read_choices(run, file);
        mine = copy;
        size_t left = 0;
        for (size_t i = 0; i < count; i++)
            if (!known(cuda, &mine[i].shape)) mine[left++] = mine[i];
        fseek(file, 0, SEEK_END);
        if (status == SNUG_OK && !write_choices(file, mine, left))
            snug_log(run->ctx, SNUG_LOG_WARNING,
                     "what was found out of this GPU's products cannot be kept: a resumed run may differ in rounding");
        for (size_t i = 0; i < left && status == SNUG_OK; i++) status = add_choice(run, &mine[i]);
    }
    free(copy);
    return status;
}

/* ---- before the first step --------------------------------------------------------------------------------------- */

/* The products of the program for one batch: of each shape once. */
static snug_status meet(struct snug_run *run, int64_t tokens) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t *capacity = run->program->capacity;
    const struct snug_batch batch = {.tokens = tokens, .sequences = capacity[SNUG_EXTENT_SEQUENCES]};
    /* cppcheck-suppress autoVariables ; taken away below */
    run->batch = &batch;
    run->rows = capacity[SNUG_EXTENT_ROWS];
    snug_cuda_place_batch(run);
    cuda->bucket = tokens;
    cuda->padded = true;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < run->program->op_count && status == SNUG_OK; i++) {
        const struct snug_op *op = &run->program->ops[i];
        if (op->kind != SNUG_OP_LINEAR && op->kind != SNUG_OP_LINEAR_DX && op->kind != SNUG_OP_LINEAR_DW) continue;
        const struct snug_cuda_matrices product = snug_cuda_product_of(run, op);
        status = snug_cuda_multiply(run, &product, run->workspace);
    }
    run->batch = NULL;
    cuda->padded = false;
    return status;
}

static snug_status meet_all(struct snug_run *run, const struct snug_sizes *sizes) {
    for (int size = 1; size < SNUG_SIZES; size++)
        if (snug_sizes_has(sizes, size))
            RETURN_IF_ERROR(meet(run, snug_cuda_bucket_of(run->program, snug_size_tokens(size))));
    return SNUG_OK;
}

void snug_cuda_free_choices(struct snug_cuda *cuda) {
    for (int i = 0; i < 2; i++)
        if (cuda->clock[i]) cudaEventDestroy(cuda->clock[i]);
    free(cuda->choices);
    cuda->choices = NULL;
    cuda->choice_count = cuda->choice_capacity = 0;
}

static snug_status open_clock(struct snug_run *run) {
    for (int i = 0; i < 2; i++)
        if (!snug_cuda_of(run)->clock[i])
            RETURN_IF_ERROR(
                snug_cuda_check(run->ctx, cudaEventCreateWithFlags(&snug_cuda_of(run)->clock[i], 0), "a clock"));
    return SNUG_OK;
}

static snug_status warm(struct snug_run *run, const struct snug_sizes *sizes, FILE *file) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    RETURN_IF_ERROR(open_clock(run));
    RETURN_IF_ERROR(read_choices(run, file));
    const size_t kept = cuda->choice_count;
    cuda->warming = true;
    snug_status status = meet_all(run, sizes);
    if (status == SNUG_OK && cuda->choice_count > kept) {
        status = keep_choices(run, file, kept);
        snug_cuda_free_products(cuda); /* to be made by what the file says */
        if (status == SNUG_OK) status = meet_all(run, sizes);
    }
    cuda->warming = false;
    if (status != SNUG_OK || !cuda->tried) return status;
    snug_log(run->ctx, SNUG_LOG_INFO, "%zu products were tried in all ways that this GPU knows (once)", cuda->tried);
    cuda->tried = 0;
    return snug_cuda_clear(run);
}

/* For reading and appending; NULL where it cannot be opened, or another user may have written it. */
static FILE *open_own(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0) return NULL;
    const bool own = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 && info.st_uid == geteuid() &&
                     !(info.st_mode & 0022);
    FILE *file = own ? fdopen(fd, "a+") : NULL;
    if (!file) close(fd);
    return file;
}

snug_status snug_cuda_warm(struct snug_run *run, const struct snug_sizes *sizes, const char *folder) {
    char *path = NULL;
    if (folder) RETURN_IF_ERROR(path_of(run, folder, &path));
    FILE *file = path ? open_own(path) : NULL;
    free(path);
    if (!file) {
        snug_log(run->ctx, SNUG_LOG_WARNING,
                 "no file that only this user may write, for what is found out about this GPU: products are done in "
                 "the way that cuBLASLt guesses "
                 "(SNUG_CACHE names a folder)");
        return SNUG_OK;
    }
    const snug_status status = warm(run, sizes, file);
    fclose(file);
    return status;
}
