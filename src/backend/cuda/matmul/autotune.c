/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algorithms of cuBLASLt, timed before the first step for all batch sizes of the run.
 *
 * Another algorithm may round differently, so a run and its resumption must use the same: the choice is stored in a
 * file for this GPU and this cuBLASLt, and shapes in the file are never timed again. Of concurrent processes the first
 * to write wins, and the others use what it wrote. Without a file, and for sizes that were not announced, the
 * heuristic's first choice is used, which is always the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/matmul/matmul_plan.h"

enum {
    CANDIDATES = 16,
    FINALISTS = 4, /* candidates that are timed more accurately */
    ROUNDS = 3,
    LAUNCHES = 4 /* back to back, so that launch overhead is hidden */
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if (status == CUBLAS_STATUS_SUCCESS) status = (call);                                                          \
    } while (0)

/* ---- timing ---------------------------------------------------------------------------------------------------- */

static cublasStatus_t query(const struct snug_cuda *cuda, const struct snug_cuda_matmul_plan *p, int wanted,
                            cublasLtMatmulHeuristicResult_t *found, int *count) {
    const uint64_t workspace = SNUG_CUDA_MATMUL_WORKSPACE;
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

/* Milliseconds of a launch; infinite if it failed. */
static float time_of(const struct snug_cuda *cuda, struct snug_cuda_matmul_plan *p, const struct snug_cuda_matmul *m,
                     const cublasLtMatmulHeuristicResult_t *candidate, void *workspace, int launches) {
    float milliseconds = 0;
    cublasStatus_t status = candidate->state;
    cudaError_t error = cudaEventRecord(cuda->timer[0], NULL);
    for (int i = 0; i < launches; i++)
        TRY(snug_cuda_launch_matmul(cuda, p, m, &candidate->algo, candidate->workspaceSize, workspace));
    if (error == cudaSuccess) error = cudaEventRecord(cuda->timer[1], NULL);
    if (error == cudaSuccess) error = cudaEventSynchronize(cuda->timer[1]);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, cuda->timer[0], cuda->timer[1]);
    return status == CUBLAS_STATUS_SUCCESS && error == cudaSuccess ? milliseconds / (float)launches : __builtin_inff();
}

/* The index of the fastest. The first launch of a kernel loads it; every round times all, since clock rates drift. */
static int fastest(const struct snug_cuda *cuda, struct snug_cuda_matmul_plan *p, const struct snug_cuda_matmul *m,
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

static struct snug_cuda_algorithm *known(const struct snug_cuda *cuda, const struct snug_cuda_matmul_shape *shape) {
    for (size_t i = 0; i < cuda->algorithm_count; i++)
        if (memcmp(&cuda->algorithms[i].shape, shape, sizeof *shape) == 0) return &cuda->algorithms[i];
    return NULL;
}

static snug_status add_algorithm(struct snug_run *run, const struct snug_cuda_algorithm *algorithm) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    RETURN_IF_ERROR(snug_grow(run->ctx, (void **)&cuda->algorithms, &cuda->algorithm_capacity,
                              cuda->algorithm_count + 1, sizeof *cuda->algorithms));
    cuda->algorithms[cuda->algorithm_count++] = *algorithm;
    return SNUG_OK;
}

cublasStatus_t snug_cuda_choose_algorithm(struct snug_run *run, struct snug_cuda_matmul_plan *p,
                                          const struct snug_cuda_matmul *m, void *workspace) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0, winner = 0;
    const struct snug_cuda_algorithm *stored = cuda->autotuning ? known(cuda, &p->shape) : NULL;
    if (stored && cublasLtMatmulAlgoCheck(cuda->lt, p->description, p->a, p->b, p->c, p->c, &stored->algorithm,
                                          found) == CUBLAS_STATUS_SUCCESS) {
        p->algorithm = stored->algorithm;
        p->workspace = (size_t)stored->workspace;
        return CUBLAS_STATUS_SUCCESS;
    }
    const cublasStatus_t status = query(cuda, p, cuda->autotuning ? CANDIDATES : 1, found, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (cuda->autotuning) {
        if (cuda->tuned++ == 0) snug_cuda_randomize(run);
        winner = fastest(cuda, p, m, found, count, workspace);
        struct snug_cuda_algorithm mine;
        memset(&mine, 0, sizeof mine);
        mine.shape = p->shape;
        mine.algorithm = found[winner].algo;
        mine.workspace = (int64_t)found[winner].workspaceSize;
        if (add_algorithm(run, &mine) != SNUG_OK) return CUBLAS_STATUS_ALLOC_FAILED;
    }
    p->algorithm = found[winner].algo;
    p->workspace = found[winner].workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the file: a line for each shape, with its algorithm, as hexadecimal bytes ---------------------------------- */

static int value_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Incomplete lines are skipped: their shapes are timed again. */
static snug_status read_algorithms(struct snug_run *run, FILE *file) {
    char line[2 * sizeof(struct snug_cuda_algorithm) + 2];
    while (fgets(line, sizeof line, file)) {
        struct snug_cuda_algorithm stored;
        uint8_t *bytes = (uint8_t *)&stored;
        size_t i = 0;
        for (; i < sizeof stored; i++) {
            const int high = value_of(line[2 * i]), low = high < 0 ? -1 : value_of(line[2 * i + 1]);
            if (low < 0) break;
            bytes[i] = (uint8_t)(16 * high + low);
        }
        const bool whole = i == sizeof stored && line[2 * i] == '\n';
        /* cppcheck-suppress uninitvar ; written byte by byte */
        if (whole && stored.workspace >= 0 && stored.workspace <= SNUG_CUDA_MATMUL_WORKSPACE &&
            !known(snug_cuda_of(run), &stored.shape))
            RETURN_IF_ERROR(add_algorithm(run, &stored));
    }
    return SNUG_OK;
}

static bool write_algorithms(FILE *file, const struct snug_cuda_algorithm *algorithms, size_t count) {
    fputc('\n', file); /* ends an incomplete line */
    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = (const uint8_t *)&algorithms[i];
        for (size_t k = 0; k < sizeof *algorithms; k++) fprintf(file, "%02x", bytes[k]);
        fputc('\n', file);
    }
    return fflush(file) == 0 && !ferror(file);
}

static snug_status path_of(struct snug_run *run, const char *folder, char **path) {
    struct cudaDeviceProp gpu;
    RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaGetDeviceProperties(&gpu, 0), "its name"));
    for (char *c = gpu.name; *c; c++)
        if (!(*c >= '0' && *c <= '9') && !(*c >= 'A' && *c <= 'Z') && !(*c >= 'a' && *c <= 'z')) *c = '-';
    return snug_format(run->ctx, path, "%s/matmuls-%s-%s-%zu", folder, SNUG_VERSION, gpu.name, cublasLtGetVersion());
}

/* Appends the algorithms that no other process has written meanwhile; then this run uses those of the file. */
static snug_status keep_algorithms(struct snug_run *run, FILE *file, size_t kept) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    struct snug_cuda_algorithm *mine = cuda->algorithms + kept;
    size_t count = cuda->algorithm_count - kept;
    void *copy;
    RETURN_IF_ERROR(snug_alloc(run->ctx, count, sizeof *mine, &copy));
    memcpy(copy, mine, count * sizeof *mine);
    cuda->algorithm_count = kept;
    snug_status status = SNUG_OK;
    if (flock(fileno(file), LOCK_EX) == 0) {
        rewind(file);
        status = read_algorithms(run, file);
        mine = copy;
        size_t left = 0;
        for (size_t i = 0; i < count; i++)
            if (!known(cuda, &mine[i].shape)) mine[left++] = mine[i];
        fseek(file, 0, SEEK_END);
        if (status == SNUG_OK && !write_algorithms(file, mine, left))
            snug_log(run->ctx, SNUG_LOG_WARNING,
                     "the algorithms of this GPU's matmuls could not be saved: a resumed run may differ in rounding");
        for (size_t i = 0; i < left && status == SNUG_OK; i++) status = add_algorithm(run, &mine[i]);
    }
    free(copy);
    return status;
}

/* ---- autotuning --------------------------------------------------------------------------------------- */

/* Plans the matmuls of the program that cuBLASLt computes, for one batch size. */
static snug_status tune_size(struct snug_run *run, int64_t tokens) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t *capacity = run->program->capacity;
    const struct snug_batch batch = {.tokens = tokens, .sequences = capacity[SNUG_EXTENT_SEQUENCES]};
    /* cppcheck-suppress autoVariables ; removed below */
    run->batch = &batch;
    run->rows = capacity[SNUG_EXTENT_ROWS];
    if (run->program->cache_pages && tokens < run->rows) run->rows = tokens; /* a logit of each sequence's token */
    snug_cuda_place_batch(run);
    cuda->bucket = tokens;
    cuda->padded = true;
    snug_status status = SNUG_OK;
    for (size_t i = 0; i < run->program->op_count && status == SNUG_OK; i++) {
        const struct snug_op *op = &run->program->ops[i];
        if (!snug_cuda_has_matmul(op)) continue;
        const struct snug_cuda_matmul matmul = snug_cuda_matmul_of(run, op);
        if (snug_cuda_takes_few_rows(run, op, &matmul) || snug_cuda_takes_streamed(run, op, &matmul) ||
            snug_cuda_takes_thin(run, op, &matmul))
            continue;
        status = snug_cuda_run_matmul(run, &matmul, run->workspace);
    }
    run->batch = NULL;
    cuda->padded = false;
    return status;
}

static snug_status tune_sizes(struct snug_run *run, const struct snug_sizes *sizes) {
    for (int size = 1; size < SNUG_SIZES; size++)
        if (snug_sizes_has(sizes, size))
            RETURN_IF_ERROR(tune_size(run, snug_cuda_bucket_of(run->program, snug_size_tokens(size))));
    /* Generation: a token of each sequence that is left. */
    const int64_t sequences = run->program->cache_pages ? run->program->capacity[SNUG_EXTENT_SEQUENCES] : 0;
    for (int64_t few = 1; few < 2 * sequences && few < SNUG_ROW_TILE; few *= 2) RETURN_IF_ERROR(tune_size(run, few));
    return SNUG_OK;
}

void snug_cuda_free_algorithms(struct snug_cuda *cuda) {
    for (int i = 0; i < 2; i++)
        if (cuda->timer[i]) cudaEventDestroy(cuda->timer[i]);
    free(cuda->algorithms);
    cuda->algorithms = NULL;
    cuda->algorithm_count = cuda->algorithm_capacity = 0;
}

static snug_status create_timer(struct snug_run *run) {
    for (int i = 0; i < 2; i++)
        if (!snug_cuda_of(run)->timer[i])
            RETURN_IF_ERROR(snug_cuda_check(run->ctx, cudaEventCreateWithFlags(&snug_cuda_of(run)->timer[i], 0),
                                            "cudaEventCreate"));
    return SNUG_OK;
}

static snug_status autotune(struct snug_run *run, const struct snug_sizes *sizes, FILE *file) {
    struct snug_cuda *cuda = snug_cuda_of(run);
    RETURN_IF_ERROR(create_timer(run));
    RETURN_IF_ERROR(read_algorithms(run, file));
    const size_t kept = cuda->algorithm_count;
    cuda->autotuning = true;
    snug_status status = tune_sizes(run, sizes);
    if (status == SNUG_OK && cuda->algorithm_count > kept) {
        status = keep_algorithms(run, file, kept);
        snug_cuda_free_matmul_plans(cuda); /* read again, from the file */
        if (status == SNUG_OK) status = tune_sizes(run, sizes);
    }
    cuda->autotuning = false;
    if (status != SNUG_OK || !cuda->tuned) return status;
    snug_log(run->ctx, SNUG_LOG_INFO,
             "timed the cuBLASLt algorithms of %zu matmul shapes; the fastest are stored for later runs", cuda->tuned);
    cuda->tuned = 0;
    return snug_cuda_clear(run);
}

/* For reading and appending; NULL if it cannot be opened, or if another user may have written it. */
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

snug_status snug_cuda_autotune(struct snug_run *run, const struct snug_sizes *sizes, const char *folder) {
    char *path = NULL;
    if (folder) RETURN_IF_ERROR(path_of(run, folder, &path));
    FILE *file = path ? open_own(path) : NULL;
    free(path);
    if (!file) {
        snug_log(run->ctx, SNUG_LOG_WARNING,
                 "no file that only this user may write, for the matmul algorithms of this GPU: cuBLASLt's heuristic "
                 "chooses them (SNUG_CACHE names a folder)");
        return SNUG_OK;
    }
    const snug_status status = autotune(run, sizes, file);
    fclose(file);
    return status;
}
