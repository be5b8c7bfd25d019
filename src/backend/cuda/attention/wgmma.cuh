/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hopper's matmuls of four warps (wgmma: compute capability 9.0 with code for it alone), of tiles of 64 16-bit elements
 * to a row in shared memory, swizzled as by piece_of(); and barriers (mbarrier).
 */
#ifndef SNUG_BACKEND_CUDA_ATTENTION_WGMMA_CUH
#define SNUG_BACKEND_CUDA_ATTENTION_WGMMA_CUH

#include <type_traits>

#include "backend/cuda/attention/attention_mma.cuh"

/* ---- matmuls ---- */

/* Call it before the first matmul that uses registers written by ordinary code. */
static __device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
static __device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(LEFT) : "memory");
}
/* Matmuls read shared memory through the async proxy; this orders their reads after earlier ordinary writes. */
static __device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
/* Prevents the compiler from moving registers that running matmuls read or write until here. */
template <typename R, int N> static __device__ __forceinline__ void hold(R (&registers)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (std::is_same_v<R, float>)
                asm volatile("" : "+f"(registers[n][i])::"memory");
            else
                asm volatile("" : "+r"(registers[n][i])::"memory");
        }
}

/* Descriptor of a tile at a shared address: rows of 128 bytes, swizzled (bit 62), groups of 8 rows 1024 bytes apart
   (from bit 32 on); in units of 16 bytes. 16 columns are 2 units, 16 rows are 128. */
static __device__ __forceinline__ uint64_t descriptor_of(uint32_t at) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (at & 0x3ffff) >> 4;
}

#define REGISTERS(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define RESULT                                                                                                         \
    REGISTERS(0), REGISTERS(1), REGISTERS(2), REGISTERS(3), REGISTERS(4), REGISTERS(5), REGISTERS(6), REGISTERS(7)
#define BEGIN(type, add)                                                                                               \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" add ", 0;\n"                                                              \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                                                    \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                                          \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "

/* c [64, 64] (+)= a [64, 16] times a tile's 16 columns, whose rows are c's columns; BY_ROWS: times 16 of its rows. A
   warp has 16 rows of c and a, laid out as in mma.sync. */
template <typename E, int BY_ROWS>
static __device__ __forceinline__ void multiply_tile(float (&c)[8][4], const uint32_t (&a)[4], uint64_t tile, int add) {
#define PRODUCT(type)                                                                                                  \
    asm volatile(BEGIN(type, "37") "{%32,%33,%34,%35}, %36, add, 1, 1, %38;\n}\n"                                      \
                 : RESULT                                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile), "r"(add), "n"(BY_ROWS));
    if constexpr (std::is_same_v<E, bf16>) {
        PRODUCT("bf16")
    } else {
        PRODUCT("f16")
    }
#undef PRODUCT
}

/* c += a b with a in a tile, too: 16 of its columns, whose rows are c's rows; LEFT_BY_ROWS: 16 of its rows, whose
   columns are c's rows. */
template <typename E, int LEFT_BY_ROWS, int BY_ROWS>
static __device__ __forceinline__ void multiply_tiles(float (&c)[8][4], uint64_t left, uint64_t tile, int add) {
#define PRODUCT(type)                                                                                                  \
    asm volatile(BEGIN(type, "34") "%32, %33, add, 1, 1, %35, %36;\n}\n"                                               \
                 : RESULT                                                                                              \
                 : "l"(left), "l"(tile), "r"(add), "n"(LEFT_BY_ROWS), "n"(BY_ROWS));
    if constexpr (std::is_same_v<E, bf16>) {
        PRODUCT("bf16")
    } else {
        PRODUCT("f16")
    }
#undef PRODUCT
}
#undef BEGIN
#undef RESULT
#undef REGISTERS

/* A panel: 64 rows of 64 channels, of which a matrix of 64 rows has one for each 64 channels; descriptors count in 16
   bytes. */
enum { PANEL = 64 * 128, PANEL_STEP = PANEL / 16 };

/* sum += left [64, 64] times a matrix, whose rows are left's columns. */
template <typename E, int PANELS>
static __device__ __forceinline__ void add_product(float (&sum)[PANELS][8][4], const uint32_t (&left)[4][4],
                                                   uint64_t matrix) {
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            multiply_tile<E, 1>(sum[panel], left[k], matrix + panel * PANEL_STEP + 128 * k, true);
}

/* c = left [64, D] times the rows of a matrix, or the rows of one matrix times those of another. */
template <typename E, int K>
static __device__ __forceinline__ void multiply_rows(float (&c)[8][4], const uint32_t (&left)[K][4], uint64_t matrix) {
#pragma unroll
    for (int k = 0; k < K; k++) multiply_tile<E, 0>(c, left[k], matrix + k / 4 * PANEL_STEP + 2 * (k % 4), k > 0);
}
template <typename E, int K>
static __device__ __forceinline__ void multiply_rows(float (&c)[8][4], uint64_t left, uint64_t matrix) {
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int at = k / 4 * PANEL_STEP + 2 * (k % 4);
        multiply_tiles<E, 0, 0>(c, left + at, matrix + at, k > 0);
    }
}

/* ---- barriers ---- */

/* A barrier is 8 bytes of shared memory. A phase ends when as many arrivals as initialised are counted. */
static __device__ __forceinline__ void make_barrier(uint32_t at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(at), "r"(arrivals) : "memory");
}
/* Each warp arrives once, when all of its lanes have reached this point. */
static __device__ __forceinline__ void arrive_at(uint32_t at) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(at) : "memory");
}
/* Waits until phase number `phase`, from 0 on, has ended: the current or the previous one. */
static __device__ __forceinline__ void wait_for(uint32_t at, uint32_t phase) {
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}\n" ::"r"(at),
                 "r"(phase & 1)
                 : "memory");
}

/* ---- registers ---- */

/* Sets the registers per thread for four warps from here on; N is a multiple of 8. */
template <int N> static __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(N));
}

#endif
