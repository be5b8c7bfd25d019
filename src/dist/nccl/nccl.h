/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL, opened at run time: the few functions that snug uses, declared as in nccl.h of NCCL 2.7 and later, whose binary
 * interface is stable. It is part of the CUDA plug-in alone.
 */
#ifndef SNUG_DIST_NCCL_NCCL_H
#define SNUG_DIST_NCCL_NCCL_H

#include <stddef.h>

#include "core/context.h"

struct CUstream_st;

enum { SNUG_NCCL_OK = 0, SNUG_NCCL_BYTES = 0 /* ncclInt8 */ };

typedef struct ncclComm *snug_nccl_comm;
struct snug_nccl_id {
    char bytes[128];
};

struct snug_nccl {
    int version; /* 22809 is 2.28.9 */
    int (*get_version)(int *version);
    int (*get_unique_id)(struct snug_nccl_id *id);
    int (*comm_init_rank)(snug_nccl_comm *comm, int ranks, struct snug_nccl_id id, int rank);
    int (*comm_destroy)(snug_nccl_comm comm);
    int (*comm_get_async_error)(snug_nccl_comm comm, int *error);
    const char *(*get_error_string)(int error);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, snug_nccl_comm comm, struct CUstream_st *stream);
    int (*recv)(void *to, size_t count, int type, int peer, snug_nccl_comm comm, struct CUstream_st *stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, snug_nccl_comm comm,
                      struct CUstream_st *stream);
};

/* SNUG_E_UNSUPPORTED: there is no libnccl.so.2, or it is older than 2.7. It is never closed. */
snug_status snug_nccl_open(snug_context *ctx, struct snug_nccl *out);
/* SNUG_OK, or a failure that says what failed. */
snug_status snug_nccl_check(snug_context *ctx, const struct snug_nccl *nccl, int result, const char *what);

#endif
