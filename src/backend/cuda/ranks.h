/* SPDX-License-Identifier: Apache-2.0 */
/* Operations over the GPUs of several ranks: see collectives.c. */
#ifndef SNUG_BACKEND_CUDA_RANKS_H
#define SNUG_BACKEND_CUDA_RANKS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "dist/nccl/nccl.h"

enum { SNUG_CUDA_PEERS = 16 };

/* The memory of the other ranks' GPUs (peers.c). */
struct snug_cuda_peers {
    const struct snug_collectives *hosts;
    uint32_t *own;                   /* this rank's flags */
    uint8_t *flags[SNUG_CUDA_PEERS]; /* by rank; [0] is NULL if copy engines cannot be used */
    void *batch_operations;          /* cuStreamBatchMemOp */
};

/* The GPUs of a run's ranks: struct snug_run's devices. */
struct snug_cuda_devices {
    struct snug_nccl nccl;
    snug_nccl_comm comm;
    struct snug_cuda_peers peers;
    int rank, size;
};

/* Shards that are summed together, of one gradient or of gradients that follow each other in the arena: of each rank's
   part, the elements from `first` on, at most `most`. */
struct snug_cuda_slice {
    float *values; /* of this rank, whole */
    float *to;     /* where this rank's sum is written */
    float *received;
    int64_t bytes;            /* of the buffer for what is received */
    struct snug_shards parts; /* in elements */
    int64_t first, most;
    bool accumulate; /* onto *to */
    bool for_all;    /* all ranks get the sums */
};

/* A whole tensor whose shards are gathered. */
struct snug_cuda_gathered {
    const struct snug_op *op;
    uint8_t *values;
    struct snug_shards parts; /* in bytes */
};

/* Part of a program's state; all zeros for one rank. */
struct snug_cuda_ranks {
    cudaStream_t stream;
    cudaEvent_t ready, done;
    bool busy;                  /* operations have not waited for `done` */
    bool compared, same_layout; /* as the other ranks: the tensors of all collective operations have the same offsets */
    const struct snug_cuda_peers *peers; /* NULL: NCCL does everything */
    uint8_t *arenas[SNUG_CUDA_PEERS];    /* of all ranks, by rank */
    bool in_phase;                       /* a barrier has shown that all ranks are in this phase */
    struct snug_cuda_slice *slices;
    size_t slice_count, slice_capacity;
    int64_t buffer, received; /* bytes of the buffer for what is received, and of these, what the slices use */
    struct snug_cuda_gathered *gathered;
    size_t gathered_count, gathered_capacity;
};

/* struct snug_backend's connect and disconnect. */
snug_status snug_cuda_connect(snug_context *ctx, const struct snug_collectives *hosts, void **devices);
void snug_cuda_disconnect(void *devices);

snug_status snug_cuda_open_ranks(snug_context *ctx, const struct snug_program *program, struct snug_cuda_ranks *ranks);
void snug_cuda_close_ranks(struct snug_cuda_ranks *ranks);
/* Starts what is queued, and makes later operations wait for it: at the end of a phase. */
snug_status snug_cuda_await_ranks(struct snug_run *run);
/* Forgets what a phase that failed has queued. */
void snug_cuda_drop_queued(struct snug_cuda_ranks *ranks);

/* ---- copy engines (peers.c) ---- */

/* Whether all ranks have this value; all call it. */
snug_status snug_cuda_compare_ranks(snug_context *ctx, const struct snug_collectives *hosts, uint64_t value,
                                    bool *equal);
/* All ranks call it. Closed also after a failure. */
snug_status snug_cuda_open_peers(snug_context *ctx, const struct snug_collectives *hosts,
                                 struct snug_cuda_peers *peers);
void snug_cuda_close_peers(struct snug_cuda_peers *peers);
/* Maps the arenas of all ranks, which all call it; arenas[0] stays NULL if one cannot be mapped. */
snug_status snug_cuda_map_arenas(snug_context *ctx, const struct snug_cuda_peers *peers, uint8_t *arena,
                                 uint8_t *arenas[]);
void snug_cuda_unmap_arenas(const struct snug_cuda_peers *peers, uint8_t *const arenas[]);
/* In the stream: waits until all ranks are here, and what they copied before is complete. number: 0 and 1 in turns. */
snug_status snug_cuda_barrier(snug_context *ctx, const struct snug_cuda_peers *peers, int number, cudaStream_t stream);

/* ---- kernels (shards.cu) ---- */

/* One rank's shards of all ranks: its own, and what it received, `count` elements of each. */
struct snug_cuda_shard_sum {
    float *to;
    const float *own, *received;
    int64_t count;
    bool accumulate;
};
enum { SNUG_CUDA_SUMS = 64 }; /* of a launch: its table is an argument, of at most 4 KiB */
struct snug_cuda_shard_sums {
    struct snug_cuda_shard_sum items[SNUG_CUDA_SUMS];
};

/* to = ((shard 0 + shard 1) + …), or += the shards one by one, in the order of the first `contributors` ranks. */
void snug_cuda_add_shards(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                          cudaStream_t stream);
/* to[i] = from[i], rounded to nearest even in bf16 or fp16. */
void snug_cuda_fill_shard(void *to, enum snug_dtype dtype, const float *from, int64_t count, cudaStream_t stream);

#endif
