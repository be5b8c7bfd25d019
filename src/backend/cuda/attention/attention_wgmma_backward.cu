/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward pass by Hopper's matmuls of four warps, for heads of 64 channels in 16 bits and sequences of up
 * to 512 tokens, or windows of up to 129, whose dq fits shared memory in fp32: a block has a head of a sequence to
 * itself. It processes the keys in blocks of 128, 64 for each of two groups of four warps, and loops over the queries
 * in tiles of 64: S^T = k q^T, dP^T = v do^T, from them, in registers, (F * P)^T and dS^T; dv += (F * P)^T do, dk +=
 * dS^T q, with sums in registers. They compute dropout masks while the first two matmuls run. A third group copies
 * tiles, and computes dq += dS k from dS in shared memory. The groups wait at barriers only for results that they need,
 * so the arithmetic of one group overlaps with the matmuls of another.
 */
#include "backend/cuda/attention/wgmma_backward.cuh"

enum { D = 64, KEYS = 128, PLACES = 8 };

/* Shared memory, in bytes. Keys of two blocks: the next block is prefetched. A stage is a tile of queries: q, do, lse
   and delta. */
enum {
    KEYS_BYTES = 2 * PANEL,
    V = 2 * KEYS_BYTES,
    STAGE = V + KEYS_BYTES,
    STAGE_BYTES = 2 * PANEL,
    DS = STAGE + 2 * STAGE_BYTES,
    ROWS = DS + 2 * PANEL,
    BARRIERS = ROWS + 2 * 2 * QUERIES * 4,
    SUMS = BARRIERS + 128,
    TILE_SUMS = QUERIES * D * 4,
};

/* Barriers for data that has arrived, and for buffers that are free again: stages (two), values, dS (of each
   worker). */
enum barrier { FULL, EMPTY = FULL + 2, VALUES_FULL = EMPTY + 2, DS_FULL, DS_EMPTY = DS_FULL + WORKERS };
static __device__ __forceinline__ uint32_t place_of(uint32_t base, int barrier) {
    return base + BARRIERS + 8 * barrier;
}

struct backward {
    struct row_values rows;
    int places; /* buffers for tiles' dq in shared memory; with a window they are reused */
};

/* Tiles of queries that attend to a block of keys, and blocks of keys that a tile attends to: all, or those within the
   window. */
template <unsigned FORM>
static __device__ __forceinline__ int first_tile(const struct attention &a, const struct head &head, int block) {
    return FORM & WINDOWED ? queries_of(a, block * KEYS, KEYS, head.length, QUERIES).first / QUERIES : 0;
}
template <unsigned FORM>
static __device__ __forceinline__ int end_tile(const struct attention &a, const struct head &head, int block,
                                               int tiles) {
    if (!(FORM & WINDOWED)) return tiles;
    return (queries_of(a, block * KEYS, KEYS, head.length, QUERIES).end + QUERIES - 1) / QUERIES;
}
template <unsigned FORM>
static __device__ __forceinline__ int first_block(const struct attention &a, const struct head &head, int tile) {
    return FORM & WINDOWED ? keys_of(a, tile * QUERIES, QUERIES, head.length, KEYS).first / KEYS : 0;
}
template <unsigned FORM>
static __device__ __forceinline__ int end_block(const struct attention &a, const struct head &head, int tile,
                                                int blocks) {
    if (!(FORM & WINDOWED)) return blocks;
    return (keys_of(a, tile * QUERIES, QUERIES, head.length, KEYS).end + KEYS - 1) / KEYS;
}

/* ---- the helping group ---- */

/* Copies a block's keys or values. */
template <typename E>
static __device__ __forceinline__ void copy_keys(uint8_t *to, const void *operand, int64_t stride,
                                                 const struct head &head, int k0) {
    const E *from = (const E *)operand + head.first * stride + head.keys;
    copy_tile<D, KEYS, GROUP, QUERIES_IN_ROWS>((uint4 *)to, from, stride, head.length, k0);
}

template <typename E>
static __device__ __forceinline__ void copy_queries(uint8_t *shared, const struct attention &a,
                                                    const struct backward &b, const struct head &head, int stage,
                                                    int q0) {
    uint8_t *to = shared + STAGE + stage * STAGE_BYTES;
    copy_tile<D, QUERIES, GROUP, AS_THEY_ARE>((uint4 *)to, (const E *)a.q + head.first * a.q_row + head.column, a.q_row,
                                              head.length, q0);
    copy_tile<D, QUERIES, GROUP, AS_THEY_ARE>((uint4 *)(to + PANEL), (const E *)a.dout + head.first * a.h + head.column,
                                              a.h, head.length, q0);
    copy_row_values(shared + ROWS + 4 * stage * 2 * QUERIES, b.rows, head, q0);
}

template <typename E, unsigned FORM>
static __device__ __forceinline__ void help(uint8_t *shared, const struct attention &a, const struct backward &b,
                                            const struct head &head, int blocks, int tiles) {
    const uint32_t base = shared_address(shared);
    const uint64_t left = descriptor_of(base + DS);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    copy_keys<E>(shared, a.k, a.k_row, head, 0);
    copy_keys<E>(shared + V, a.v, a.v_row, head, 0);
    copy_queries<E>(shared, a, b, head, 0, 0);
    commit_copies();
    publish<0>(place_of(base, FULL));
    arrive_at(place_of(base, VALUES_FULL));
    uint32_t count = 0; /* tiles so far */
    for (int block = 0; block < blocks; block++) {
        const uint64_t keys = descriptor_of(base + block % 2 * KEYS_BYTES);
        const int first = first_tile<FORM>(a, head, block), end = end_tile<FORM>(a, head, block, tiles);
        for (int tile = first; tile < end; tile++, count++) {
            const bool turns = tile + 1 == end, more = !turns || block + 1 < blocks;
            if (more) { /* the next tile */
                const int stage = (count + 1) % 2;
                if (count > 0) wait_for(place_of(base, EMPTY + stage), (count - 1) / 2);
                copy_queries<E>(shared, a, b, head, stage,
                                turns ? first_tile<FORM>(a, head, block + 1) * QUERIES : (tile + 1) * QUERIES);
                if (tile == first && block + 1 < blocks) {
                    if (block > 0)
                        wait_for(place_of(base, DS_EMPTY), count - 1); /* the previous block's are no longer needed */
                    copy_keys<E>(shared + (block + 1) % 2 * KEYS_BYTES, a.k, a.k_row, head, (block + 1) * KEYS);
                }
                commit_copies();
            }
            const int place = FORM & WINDOWED ? tile % b.places : tile;
            float4 *const sums = (float4 *)(shared + SUMS + place * TILE_SUMS) + warp * 8 * 32;
            float dq[8][4];
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const float4 sum =
                    block > first_block<FORM>(a, head, tile) ? sums[32 * n + lane] : make_float4(0, 0, 0, 0);
                dq[n][0] = sum.x, dq[n][1] = sum.y, dq[n][2] = sum.z, dq[n][3] = sum.w;
            }
            if (more) publish<0>(place_of(base, FULL + (count + 1) % 2));
            for (int worker = 0; worker < WORKERS; worker++) wait_for(place_of(base, DS_FULL + worker), count);
            hold(dq);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < KEYS / 16; k++) multiply_tiles<E, 1, 1>(dq, left + 128 * k, keys + 128 * k, true);
            wgmma_commit();
            if (turns && more) { /* dS was the last to come of the values */
                copy_keys<E>(shared + V, a.v, a.v_row, head, (block + 1) * KEYS);
                commit_copies();
            }
            wgmma_wait<0>();
            hold(dq);
            arrive_at(place_of(base, DS_EMPTY));
            if (block + 1 < end_block<FORM>(a, head, tile, blocks)) {
#pragma unroll
                for (int n = 0; n < 8; n++) sums[32 * n + lane] = make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
            } else {
                const int row = tile * QUERIES + 16 * warp;
                store_rows<E, AS_THEY_ARE>((E *)a.dq + (head.first + row) * a.q_row + head.column, a.q_row, dq,
                                           a.scale * a.dropout.scale, head.length - row, (uint8_t *)sums);
            }
            if (turns && more) publish<0>(place_of(base, VALUES_FULL));
        }
    }
}

/* ---- the working groups ---- */

/*
 * A lane's masks of a tile. It has 2 of the 4 keys of a block of random words, its neighbour has the other 2: one
 * computes the words for even n, the other for odd n, and they exchange halves. For query 8 n + 2 t + odd and key i the
 * bit is 16 odd + 2 n + i, set where the element is dropped.
 */
static __device__ __forceinline__ uint32_t draw_masks(const struct head &head, const struct quad_part &quad,
                                                      uint32_t threshold, int q0) {
    const int second = threadIdx.x / 4 % 2;
    const uint32_t below = ((threshold >> 16) - 1) * 0x10001, above = __vneg2(below);
    uint32_t kept = 0; /* as in the result, but keys 0 … 3 in place of even and odd n */
#pragma unroll
    for (int n = 6; n >= 0; n -= 2) {
        const struct pair_part pair = pair_part_of(head, (uint32_t)q0 / 2 + 4 * (n + second) + threadIdx.x % 4);
        const struct snug_philox_block random = random_of(head, quad, pair);
#pragma unroll
        for (int i = 3; i >= 0; i--) /* 0 below the threshold, 1 from it on */
            kept = 2 * kept + __viaddmin_u16x2(__vmaxu2(random.word[i], below), above, 0x10001);
    }
    const uint32_t other = __shfl_xor_sync(FULL_WARP, kept, 4);
    return second ? ~(kept & 0xcccccccc | other >> 2 & 0x33333333) : ~(kept & 0x33333333 | other << 2 & 0xcccccccc);
}

/* The last block has no keys for this group. */
static __device__ __forceinline__ void rest(uint8_t *shared, uint8_t *slab_of_ds, int worker, uint32_t count,
                                            int tiles) {
    const uint32_t base = shared_address(shared);
    for (int tile = 0; tile < tiles; tile++, count++) {
        wait_for(place_of(base, FULL + count % 2), count / 2);
        arrive_at(place_of(base, EMPTY + count % 2));
        if (count > 0) wait_for(place_of(base, DS_EMPTY), count - 1);
        for (int i = 0; tile == 0 && i < 16 * ROW_BYTES; i += 16 * 32)
            *(uint4 *)(slab_of_ds + i + threadIdx.x % 32 * 16) = make_uint4(0, 0, 0, 0);
        async_proxy_fence();
        arrive_at(place_of(base, DS_FULL + worker));
    }
}

template <typename E, bool DROP, unsigned FORM>
static __device__ __forceinline__ void work(uint8_t *shared, const struct attention &a, const struct head &head,
                                            int worker, int blocks, int tiles) {
    const uint32_t base = shared_address(shared);
    const int slab = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;
    const uint64_t values = descriptor_of(base + V + worker * PANEL);
    uint8_t *const slab_of_ds = shared + DS + slab * 16 * ROW_BYTES;
    const uint32_t ds_at = shared_address(slab_of_ds) + by_rows<ROW_BYTES>();
    const float scale = a.scale * LOG2_E; /* powers of two from here on */
    uint32_t count = 0;                   /* tiles so far */
    int block = 0;
    for (; block < blocks && block * KEYS + worker * 64 < head.length; block++) {
        const uint64_t keys = descriptor_of(base + block % 2 * KEYS_BYTES + worker * PANEL);
        float dk[8][4] = {}, dv[8][4] = {};
        const int k0 = block * KEYS + 64 * worker, key = k0 + slab % 4 * 16 + 2 * g; /* and the next one */
        struct quad_part quad;
        if (DROP) quad = quad_part_of(head, (uint32_t)key / 4);
        const int first_of_block = first_tile<FORM>(a, head, block), end = end_tile<FORM>(a, head, block, tiles);
        for (int tile = first_of_block; tile < end; tile++, count++) {
            const int stage = count % 2;
            wait_for(place_of(base, FULL + stage), count / 2);
            const uint64_t q = descriptor_of(base + STAGE + stage * STAGE_BYTES), dout = q + PANEL / 16;
            const float2 *lse = (const float2 *)(shared + ROWS + 8 * QUERIES * stage) + t, *delta = lse + QUERIES / 2;
            float s[8][4], dp[8][4];
            uint32_t p[4][4], ds[4][4];
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) multiply_tiles<E, 0, 0>(s, keys + 2 * k, q + 2 * k, k > 0);
            wgmma_commit();
            if (tile == first_of_block) wait_for(place_of(base, VALUES_FULL), block);
            const uint32_t dropped = DROP ? draw_masks(head, quad, a.dropout.threshold, tile * QUERIES) : 0;
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) multiply_tiles<E, 0, 0>(dp, values + 2 * k, dout + 2 * k, k > 0);
            wgmma_commit();
            wgmma_wait<1>(); /* done with the previous tile, and with S */
            hold(s);
            if (tile > first_of_block) arrive_at(place_of(base, EMPTY + (stage ^ 1)));
            if (FORM & WINDOWED) hide_elements(s, a, tile * QUERIES, key);
            probabilities<E, DROP>(p, s, lse, dropped, scale);
            hold(p);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) multiply_tile<E, 1>(dv, p[k], dout + 128 * k, true);
            wgmma_commit();
            wgmma_wait<1>(); /* dP */
            hold(dp);
            gradients<E, DROP>(ds, s, dp, delta);
            if (k0 + 64 > head.length) { /* P of keys after the last may be infinite: it must not reach dq */
#pragma unroll
                for (int k = 0; k < 4; k++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (key + i % 2 >= head.length) ds[k][i] = 0;
            }
            if (count > 0) wait_for(place_of(base, DS_EMPTY), count - 1);
#pragma unroll
            for (int k = 0; k < 4; k++) store_matrices(ds_at ^ 32 * k, ds[k]);
            async_proxy_fence();
            arrive_at(place_of(base, DS_FULL + worker));
            hold(ds);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++) multiply_tile<E, 1>(dk, ds[k], q + 128 * k, true);
            wgmma_commit();
        }
        wgmma_wait<0>();
        hold(dk);
        hold(dv);
        arrive_at(place_of(base, EMPTY + (count - 1) % 2));
        wait_for(place_of(base, DS_EMPTY), count - 1);
        const int first = k0 + slab % 4 * 16;
        E *const to_k = (E *)a.dk + (head.first + first) * a.k_row + head.keys;
        E *const to_v = (E *)a.dv + (head.first + first) * a.v_row + head.keys;
        store_rows<E, QUERIES_IN_ROWS>(to_k, a.k_row, dk, a.scale * a.dropout.scale, head.length - first, slab_of_ds);
        store_rows<E, QUERIES_IN_ROWS>(to_v, a.v_row, dv, a.dropout.scale, head.length - first, slab_of_ds);
    }
    if (block < blocks)
        rest(shared, slab_of_ds, worker, count,
             end_tile<FORM>(a, head, block, tiles) - first_tile<FORM>(a, head, block));
}

template <typename E, bool DROP, unsigned FORM>
static __global__ void __launch_bounds__(THREADS, 1)
    backward_kernel(const struct attention a, const struct backward b) {
    extern __shared__ __align__(1024) uint8_t shared[];
    const struct head head = head_of(a, blockIdx.y, blockIdx.x);
    const int blocks = (head.length + KEYS - 1) / KEYS, tiles = (head.length + QUERIES - 1) / QUERIES;
    if (threadIdx.x == 0) {
        const uint32_t base = shared_address(shared);
        for (int i = 0; i < 2; i++) {
            make_barrier(place_of(base, FULL + i), GROUP / 32);
            make_barrier(place_of(base, EMPTY + i), WORKERS * GROUP / 32);
        }
        make_barrier(place_of(base, VALUES_FULL), GROUP / 32);
        for (int i = 0; i < WORKERS; i++) make_barrier(place_of(base, DS_FULL + i), GROUP / 32);
        make_barrier(place_of(base, DS_EMPTY), GROUP / 32);
    }
    __syncthreads();
    const int group = __shfl_sync(FULL_WARP, threadIdx.x / GROUP, 0); /* tells the compiler that warps do not diverge */
    if (group == 0) {
        leave_registers<120>();
        if (head.length > 0) help<E, FORM>(shared, a, b, head, blocks, tiles);
    } else {
        take_registers<192>();
        work<E, DROP, FORM>(shared, a, head, group - 1, blocks, tiles);
    }
}

/* ---- launching ---- */

template <typename E, bool DROP, unsigned FORM>
static void launch(const struct attention &a, const struct backward &b, const struct snug_run *run) {
    const int bytes = SUMS + b.places * TILE_SUMS;
    const dim3 grid((unsigned)a.heads, (unsigned)run->batch->sequences);
    const auto kernel = backward_kernel<E, DROP, FORM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, THREADS, bytes, snug_cuda_of(run)->stream>>>(a, b);
}

/* Tiles whose dq is in shared memory at once: all, or with a window those that attend to a block of keys. */
static int64_t places_of(const struct attention &a, const struct snug_run *run) {
    const int64_t all = blocks_for(run->program->longest, QUERIES), seen = KEYS + (int64_t)a.before + a.after;
    const int64_t most = (seen + 2 * (QUERIES - 1)) / QUERIES;
    return most < all ? most : all;
}

template <typename E> static void launch_all(const struct attention &a, const struct snug_run *run) {
    const struct backward b = {prepare_rows<E, D>(a, run), (int)places_of(a, run)};
    if (run->batch->sequences == 0) return;
    if (is_windowed(a))
        a.dropout.threshold ? launch<E, true, WINDOWED>(a, b, run) : launch<E, false, WINDOWED>(a, b, run);
    else
        a.dropout.threshold ? launch<E, true, PLAIN>(a, b, run) : launch<E, false, PLAIN>(a, b, run);
}

/*
 * For short sequences, and if the blocks would leave half of the GPU idle, attention_mma_backward.cu with its smaller
 * blocks takes less time. The decision is the same whenever a batch's layer is recomputed, and for all batches of a
 * graph.
 */
static bool is_worth_it(const struct attention &a, const struct snug_run *run) {
    return run->program->longest > 128 && 2 * a.heads * run->batch->sequences >= snug_cuda_of(run)->multiprocessors;
}

bool snug_cuda_attention_wgmma_backward(const struct attention &a, const struct snug_run *run, enum snug_dtype type) {
    if (a.bias || a.softcap > 0 || a.group > 1 || snug_cuda_of(run)->capability != 90 || a.d != D ||
        places_of(a, run) > PLACES || !is_worth_it(a, run))
        return false;
    bool done = false;
    with_type(type, [&](auto value) {
        if constexpr (sizeof value == 2) launch_all<decltype(value)>(a, run), done = true;
    });
    return done;
}
