/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions of tensor cores and of asynchronous copies: bf16 and fp16 with fp32 sums (mma.sync m16n8k16). GPUs
 * before compute capability 8.0 have fp16 alone (two m16n8k8), and no asynchronous copies: there a copy is done when it
 * is started.
 *
 * The instruction's registers: of a 16 x 8 result a lane holds rows g = lane / 4 and g + 8, columns 2 t and 2 t + 1
 * with t = lane % 4.
 */
#ifndef SNUG_BACKEND_CUDA_MMA_CUH
#define SNUG_BACKEND_CUDA_MMA_CUH

#include <type_traits>

#include "backend/cuda/device.cuh"

/* Whether the GPU's tensor cores take tensors of a type. */
static inline bool has_matmuls(const struct snug_cuda *cuda, enum snug_dtype type) {
    return cuda->capability >= 80 || type == SNUG_F16;
}

/* Whether the GPU for which a kernel is compiled has matmuls of E. A kernel of other types returns at once: it is never
   launched there, see has_matmuls(). */
template <typename E> static __device__ __forceinline__ bool is_compiled() {
    return SNUG_CUDA_ARCH >= 800 || std::is_same_v<E, f16>;
}

/* ---- a tile of rows in shared memory, in pieces of 16 bytes, swizzled against bank conflicts ---- */

template <int BYTES> static __device__ __forceinline__ int piece_of(int row, int piece) {
    constexpr int PIECES = BYTES / 16;
    if constexpr (PIECES >= 8) return row * PIECES + (piece ^ (row & 7));
    return row * PIECES + (piece ^ ((row >> 1) & 3));
}

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Starts copying 16 bytes into shared memory, or clears them. __ldg: no store orders these loads, so that a thread's
   copies overlap. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool there) {
    if (SNUG_CUDA_ARCH < 800) {
        *(uint4 *)to = there ? __ldg((const uint4 *)from) : make_uint4(0, 0, 0, 0);
        return;
    }
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0));
}
static __device__ __forceinline__ void commit_copies() {
    if (SNUG_CUDA_ARCH >= 800) asm volatile("cp.async.commit_group;\n");
}
template <int LEFT> static __device__ __forceinline__ void wait_copies() {
    if (SNUG_CUDA_ARCH >= 800) asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT));
}

/* ---- matmuls ---- */

static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
static __device__ __forceinline__ void load_turned(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

template <typename E>
static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> __device__ __forceinline__ void mma<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (SNUG_CUDA_ARCH >= 800)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                     "{%0,%1,%2,%3};\n"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Half of its depth: the first two words of a and the first one of b, or the others. */
static __device__ __forceinline__ void half_mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}
template <> __device__ __forceinline__ void mma<f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if (SNUG_CUDA_ARCH < 800) {
        half_mma(c, a[0], a[1], b0);
        half_mma(c, a[2], a[3], b1);
        return;
    }
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
