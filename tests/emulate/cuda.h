/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUDA's driver interface that the backend uses. */
#ifndef SNUG_TESTS_EMULATE_CUDA_H
#define SNUG_TESTS_EMULATE_CUDA_H

#include <stdint.h>

typedef int CUresult;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0 };
enum { CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1, CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2, CU_STREAM_WAIT_VALUE_EQ = 1 };

struct emulated_mem_op {
    int operation;
    CUdeviceptr address;
    uint32_t value;
    unsigned flags;
};
typedef union {
    struct emulated_mem_op waitValue, writeValue;
} CUstreamBatchMemOpParams;

#endif
