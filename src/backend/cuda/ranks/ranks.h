/* SPDX-License-Identifier: Apache-2.0 */
/* Operations over the GPUs of several ranks: see collectives.c. */
#ifndef SNUG_BACKEND_CUDA_RANKS_RANKS_H
#define SNUG_BACKEND_CUDA_RANKS_RANKS_H

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
    double *chunks;  /* of the sums' squares, or NULL */
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
    cudaStream_t stream, exchange; /* of all operations; of copies of gradients to the ranks that add them */
    cudaEvent_t ready, done;
    cudaEvent_t passed, exchanged; /* the last barrier; the copies of a group of gradients */
    bool busy;                     /* operations have not waited for `done` */
    bool compared, same_layout; /* as the other ranks: the tensors of all collective operations have the same offsets */
    const struct snug_cuda_peers *peers; /* NULL: NCCL does everything */
    uint8_t *arenas[SNUG_CUDA_PEERS];    /* of all ranks, by rank */
    int64_t buffers[SNUG_CUDA_PEERS];    /* offset of their buffers for what is received */
    bool in_phase;                       /* a barrier has shown that all ranks are in this phase */
    bool expected;                       /* other ranks write to this one, or read from it, until the next barrier */
    int flags;                           /* of the next barrier */
    int half;                            /* of the buffer, for the next group */
    struct snug_cuda_slice *slices;
    size_t slice_count, slice_capacity;
    int64_t buffer, received; /* bytes of half the buffer for what is received, and of these, what the slices use */
    struct snug_cuda_gathered *gathered;
    size_t gathered_count, gathered_capacity;
};

/* struct snug_backend's connect and disconnect. */
snug_status snug_cuda_connect(snug_context *ctx, const struct snug_collectives *hosts, void **devices);
void snug_cuda_disconnect(void *devices);

snug_status snug_cuda_open_ranks(snug_context *ctx, const struct snug_program *program, struct snug_cuda_ranks *ranks);
void snug_cuda_close_ranks(struct snug_cuda_ranks *ranks);
/* At the end of a phase: starts what is queued, and makes later operations wait for it. */
snug_status snug_cuda_end_ranks(struct snug_run *run);
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

/* One rank's shards of all ranks: its own, and those of the others, which it received in their order. `count` elements
   of each. */
struct snug_cuda_shard_sum {
    float *to;
    const float *own, *received;
    double *chunks; /* the sums of squares of each chunk of the sums, or NULL */
    int64_t count;
    bool accumulate;
    bool to_all; /* the sums are written to the other ranks, too */
};
enum { SNUG_CUDA_SUMS = 64 }; /* of a launch: its table is an argument, of at most 4 KiB */
struct snug_cuda_shard_sums {
    struct snug_cuda_shard_sum items[SNUG_CUDA_SUMS];
    ptrdiff_t others[SNUG_CUDA_PEERS]; /* bytes from this rank's arena to those of the others */
    int other_count;
};

/* to = ((shard 0 + shard 1) + …), or += the shards one by one, in the order of the first `contributors` ranks. */
void snug_cuda_add_shards(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                          cudaStream_t stream);

/* snug_cuda_add_shards() with the sums of squares of their chunks: all items have them, and some elements, and none is
 * to_all. */
void snug_cuda_add_chunks(const struct snug_cuda_shard_sums *sums, int count, int rank, int contributors,
                          cudaStream_t stream);

/* A rank's part of a sparse gradient, which it sums for those that get the sums. */
enum { SNUG_CUDA_SPARSE = 256 }; /* elements of a block; a part begins with a whole one */
struct snug_cuda_sparse_sum {
    const float *from[SNUG_CUDA_PEERS]; /* the part's values, by rank */
    float *to[SNUG_CUDA_PEERS];         /* where its sums are written, by rank; NULL: not there */
    const uint8_t *marks;               /* of the part's first block, of rank 0 */
    int64_t each, count;                /* marks of a rank; elements of the part */
    int rank, ranks, contributors;
    uint32_t stale;  /* bit r: where no contributor has a mark, the zeros must be written to[r], too */
    bool accumulate; /* onto *to[rank] */
};
/* marks[i] = whether block i of g, of `count` elements, has others than +0. */
void snug_cuda_mark_blocks(uint8_t *marks, const float *g, int64_t count, cudaStream_t stream);
/* The sums of snug_cuda_add_shards(). */
void snug_cuda_add_sparse(const struct snug_cuda_sparse_sum *sum, cudaStream_t stream);

/* to[i] = from[i], of one type, or from F32 rounded to nearest even; to may be another rank's. */
struct snug_cuda_fill {
    void *to;
    const void *from;
    int64_t count;
    enum snug_dtype dtype, from_dtype; /* of to, of from */
};
enum { SNUG_CUDA_FILLS = 120 }; /* of a launch */
struct snug_cuda_fills {
    struct snug_cuda_fill items[SNUG_CUDA_FILLS];
    int count;
};
/* Adds a copy to those of the next launch; the stream does them when there are SNUG_CUDA_FILLS. */
void snug_cuda_add_fill(struct snug_cuda_fills *fills, struct snug_cuda_fill fill, cudaStream_t stream);
/* Does those that were added. */
void snug_cuda_launch_fills(struct snug_cuda_fills *fills, cudaStream_t stream);

#endif
