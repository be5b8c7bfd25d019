/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the GPUs of the ranks: by NCCL, and by mapping their memory (peers.c). */
#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/ranks/ranks.h"
#include "backend/cuda/state.h"

enum { UUID = 16 };

/* What the ranks compare before NCCL starts, which would not say which GPU it is. */
struct place {
    char gpu[64], libraries[96], uuid[UUID];
};

static snug_status find_place(snug_context *ctx, const struct snug_nccl *nccl, struct place *out) {
    int device, driver;
    struct cudaDeviceProp properties;
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDevice(&device), "cudaGetDevice"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
    RETURN_IF_ERROR(snug_cuda_check(ctx, cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
    *out = (struct place){.gpu = ""};
    snprintf(out->libraries, sizeof out->libraries, "a driver for CUDA %d, cuBLASLt %zu, NCCL %d", driver,
             cublasLtGetVersion(), nccl->version);
    snprintf(out->gpu, sizeof out->gpu, "%.*s", (int)sizeof out->gpu - 1, properties.name);
    memcpy(out->uuid, &properties.uuid, sizeof out->uuid);
    return SNUG_OK;
}

/* A GPU has one UUID everywhere, so hosts need not be compared. */
static snug_status check_places(snug_context *ctx, const struct place *places, int size) {
    for (int r = 1; r < size; r++)
        for (int before = 0; before < r; before++)
            if (memcmp(places[r].uuid, places[before].uuid, UUID) == 0)
                return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                                 "ranks %d and %d have the same GPU, %s: start one rank for each GPU, with its local "
                                 "rank as the number of its GPU",
                                 before, r, places[r].gpu);
    for (int r = 1; r < size; r++)
        if (strcmp(places[r].gpu, places[0].gpu) != 0)
            return snug_fail(
                ctx, SNUG_E_UNSUPPORTED,
                "rank 0 has %s, and rank %d has %s: all ranks need the same model of GPU, since kernels for "
                "another one round differently",
                places[0].gpu, r, places[r].gpu);
    for (int r = 1; r < size; r++)
        if (strcmp(places[r].libraries, places[0].libraries) != 0)
            return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                             "rank 0 has %s, and rank %d has %s: all ranks need the same versions, since others may "
                             "choose other algorithms",
                             places[0].libraries, r, places[r].libraries);
    return SNUG_OK;
}

static snug_status compare_places(snug_context *ctx, const struct snug_collectives *hosts,
                                  const struct snug_nccl *nccl) {
    struct place *places;
    RETURN_IF_ERROR(snug_alloc(ctx, (size_t)hosts->size, sizeof *places, (void **)&places));
    snug_status status = find_place(ctx, nccl, &places[hosts->rank]);
    if (status == SNUG_OK) status = snug_all_gather_equal(ctx, hosts, places, sizeof *places);
    if (status == SNUG_OK) status = check_places(ctx, places, hosts->size);
    free(places);
    return status;
}

/* NCCL connects two GPUs and allocates their buffers when they first communicate: now, so that the plan includes them.
 */
static snug_status connect_all(snug_context *ctx, struct snug_cuda_devices *d) {
    enum { EACH = 256 };
    const struct snug_nccl *n = &d->nccl;
    uint8_t *memory;
    int result;
    RETURN_IF_ERROR(
        snug_cuda_check(ctx, cudaMalloc((void **)&memory, (size_t)2 * EACH * (size_t)d->size), "cudaMalloc"));
    uint8_t *received = memory + (ptrdiff_t)EACH * d->size;
    result = n->group_start();
    for (int r = 0; r < d->size && result == SNUG_NCCL_OK; r++) {
        if (r == d->rank) continue;
        result = n->send(memory + (ptrdiff_t)EACH * r, EACH, SNUG_NCCL_BYTES, r, d->comm, NULL);
        if (result == SNUG_NCCL_OK)
            result = n->recv(received + (ptrdiff_t)EACH * r, EACH, SNUG_NCCL_BYTES, r, d->comm, NULL);
    }
    const int ended = n->group_end();
    if (result == SNUG_NCCL_OK) result = ended;
    if (result == SNUG_NCCL_OK)
        result = n->all_gather(memory + (ptrdiff_t)EACH * d->rank, memory, EACH, SNUG_NCCL_BYTES, d->comm, NULL);
    snug_status status = snug_nccl_check(ctx, n, result, "connecting the GPUs");
    if (status == SNUG_OK) status = snug_cuda_check(ctx, cudaDeviceSynchronize(), "connecting the GPUs through NCCL");
    cudaFree(memory);
    return status;
}

static snug_status init_comm(snug_context *ctx, const struct snug_collectives *hosts, struct snug_cuda_devices *d) {
    struct snug_nccl_id id = {{0}};
    int result = SNUG_NCCL_OK;
    RETURN_IF_ERROR(snug_nccl_open(ctx, &d->nccl));
    RETURN_IF_ERROR(compare_places(ctx, hosts, &d->nccl));
    if (hosts->rank == 0) result = d->nccl.get_unique_id(&id);
    RETURN_IF_ERROR(snug_nccl_check(ctx, &d->nccl, result, "ncclGetUniqueId"));
    RETURN_IF_ERROR(hosts->broadcast(ctx, &id, sizeof id, 0));
    result = d->nccl.comm_init_rank(&d->comm, hosts->size, id, hosts->rank);
    RETURN_IF_ERROR(snug_nccl_check(ctx, &d->nccl, result, "ncclCommInitRank"));
    RETURN_IF_ERROR(connect_all(ctx, d));
    RETURN_IF_ERROR(snug_cuda_open_peers(ctx, hosts, &d->peers));
    snug_log(ctx, SNUG_LOG_INFO,
             d->peers.flags[0] ? "the GPUs write to each other's memory"
                               : "NCCL exchanges gradients and weights, since the GPUs cannot map each other's memory");
    return SNUG_OK;
}

snug_status snug_cuda_connect(snug_context *ctx, const struct snug_collectives *hosts, void **devices) {
    struct snug_cuda_devices *d;
    *devices = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof *d, (void **)&d));
    d->rank = hosts->rank;
    d->size = hosts->size;
    const snug_status status = init_comm(ctx, hosts, d);
    if (status == SNUG_OK) {
        *devices = d;
        return SNUG_OK;
    }
    snug_cuda_close_peers(&d->peers);
    free(d);
    return status;
}

void snug_cuda_disconnect(void *devices) {
    struct snug_cuda_devices *d = devices;
    snug_cuda_close_peers(&d->peers);
    d->nccl.comm_destroy(d->comm);
    free(d);
}
