/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's backward pass by Hopper's matmuls of four warps, for heads of 64 or 128 channels in 16 bits without
 * dropout, of any length and window, and key/value heads that several query heads share. Two kernels, which both
 * compute S and dP: seven matmuls instead of five, but each sum has one owner and stays in registers, so that no
 * scratch grows with the tokens and no order of blocks changes bits.
 *   keys_kernel: a block has 128 keys of a key/value head and loops over tiles of 64 queries of all heads that read it:
 *     S^T = k q^T, dP^T = v do^T; dv += P^T do, dk += dS^T q.
 *   queries_kernel: a block has 128 queries of a head and loops over tiles of 64 keys: S = q k^T, dP = do v^T; dq += dS
 *     k.
 * Two groups of four warps multiply, 64 keys or queries each, and wait only for data, so that the arithmetic of one
 * overlaps with the matmuls of the other; a third group copies tiles into a ring of stages. Left operands of the last
 * matmuls are in registers.
 */
#include "backend/cuda/attention/wgmma_backward.cuh"

enum { STAGES = 4, SIDE = WORKERS * 64 /* keys or queries of a block */, TILE = 64 };
enum { COPYING_REGISTERS = 24, MULTIPLYING_REGISTERS = 240 };

/* Shared memory of tiles of D channels, in bytes: a matrix of TILE rows has a panel for each 64 channels. A stage: two
   matrices, of keys_kernel q and do, then lse and delta; of queries_kernel k and v. Before them keys_kernel has the
   block's keys and values, a matrix of each for each group. */
template <int D> struct room {
    enum { PANELS = D / 64, MATRIX = PANELS * PANEL, OWN = 2 * WORKERS * MATRIX, VALUES = WORKERS * MATRIX };
    enum { ROWS = OWN + STAGES * 2 * MATRIX, BARRIERS = ROWS + STAGES * 2 * QUERIES * 4 };
    enum { BYTES = BARRIERS + (2 * STAGES + WORKERS) * 8 };
    static __device__ __forceinline__ uint32_t stage(uint32_t base, int stage) {
        return base + OWN + stage * 2 * MATRIX;
    }
    static __device__ __forceinline__ uint32_t full(uint32_t base, int stage) { return base + BARRIERS + 8 * stage; }
    static __device__ __forceinline__ uint32_t empty(uint32_t base, int stage) { return full(base, STAGES + stage); }
    static __device__ __forceinline__ uint32_t done(uint32_t base, int worker) {
        return full(base, 2 * STAGES + worker);
    }
};

template <typename R> static __device__ __forceinline__ void open_barriers(uint32_t base) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            make_barrier(R::full(base, i), GROUP / 32);
            make_barrier(R::empty(base, i), WORKERS * GROUP / 32);
        }
        for (int i = 0; i < WORKERS; i++) make_barrier(R::done(base, i), GROUP / 32);
    }
    __syncthreads();
}

/* Copies a matrix, panel by panel. */
template <typename E, int D, order ORDER>
static __device__ __forceinline__ void copy_matrix(uint8_t *to, const void *operand, int64_t column, int64_t stride,
                                                   const struct head &head, int row0) {
    const E *from = (const E *)operand + head.first * stride + column;
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++)
        copy_tile<64, TILE, GROUP, ORDER>((uint4 *)(to + panel * PANEL), from + 64 * panel, stride, head.length, row0);
}

/* The copying group: tile number i into its stage by copy(i, stage's number), as soon as both working groups are done
   with the stage's former tile; the next copy is under way when a tile is published. */
template <typename R, typename F> static __device__ __forceinline__ void copy_tiles(uint32_t base, int count, F copy) {
    for (int i = 0; i < count; i++) {
        if (i >= STAGES) wait_for(R::empty(base, i % STAGES), i / STAGES - 1);
        copy(i, i % STAGES);
        commit_copies();
        if (i > 0) publish<1>(R::full(base, (i - 1) % STAGES));
    }
    if (count > 0) publish<0>(R::full(base, (count - 1) % STAGES));
}

/* The working groups' place in the ring. */
template <typename R> struct ring {
    uint32_t base, count; /* tiles so far */
    int held;             /* stage that running matmuls read, or -1 */
    __device__ __forceinline__ int next() {
        wait_for(R::full(base, count % STAGES), count / STAGES);
        return count++ % STAGES;
    }
    __device__ __forceinline__ void release() {
        if (held >= 0) arrive_at(R::empty(base, held));
        held = -1;
    }
    /* A tile that the group does not need. */
    __device__ __forceinline__ void skip(int stage) {
        wgmma_wait<0>();
        release();
        arrive_at(R::empty(base, stage));
    }
};

/* Whether none of 64 queries attends to any of 64 keys. */
static __device__ __forceinline__ bool sees_none(const struct attention &a, int query, int key) {
    return query - (key + TILE - 1) > a.before || key - (query + TILE - 1) > a.after;
}

/* ---- dk, dv ---- */

template <typename E, int D>
static __device__ __forceinline__ void work_on_keys(uint8_t *shared, const struct attention &a, const struct head &head,
                                                    int worker, int k0, int first, int end) {
    typedef room<D> R;
    constexpr int PANELS = R::PANELS;
    const uint32_t base = shared_address(shared);
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int key = k0 + 16 * warp + 2 * g; /* and the next one */
    const uint64_t keys = descriptor_of(base + worker * R::MATRIX), values = keys + R::VALUES / 16;
    const float scale = a.scale * LOG2_E; /* powers of two from here on */
    float dk[PANELS][8][4] = {}, dv[PANELS][8][4] = {};
    ring<R> tiles = {base, 0, -1};
    for (int h = 0; h < a.group; h++)
        for (int q0 = first; q0 < end; q0 += TILE) {
            const int stage = tiles.next();
            if (k0 >= head.length || sees_none(a, q0, k0)) {
                tiles.skip(stage);
                continue;
            }
            const uint64_t q = descriptor_of(R::stage(base, stage)), dout = q + R::MATRIX / 16;
            const float2 *lse = (const float2 *)(shared + R::ROWS + 8 * QUERIES * stage) + t;
            const float2 *delta = lse + QUERIES / 2;
            float s[8][4], dp[8][4];
            uint32_t p[4][4], ds[4][4];
            wgmma_fence();
            multiply_rows<E, D / 16>(s, keys, q);
            wgmma_commit();
            multiply_rows<E, D / 16>(dp, values, dout);
            wgmma_commit();
            wgmma_wait<1>(); /* done with the previous tile, and with S */
            hold(s);
            tiles.release();
            hide_elements(s, a, q0, key);
            probabilities<E, false>(p, s, lse, 0, scale);
            hold(p);
            wgmma_fence();
            add_product<E>(dv, p, dout);
            wgmma_commit();
            wgmma_wait<PANELS == 1>(); /* dP; with 128 channels also dv, since registers hold P or dS */
            hold(dp);
            if (PANELS > 1) hold(p);
            gradients<E, false>(ds, s, dp, delta);
            hold(ds);
            wgmma_fence();
            add_product<E>(dk, ds, q);
            wgmma_commit();
            tiles.held = stage;
        }
    wgmma_wait<0>();
    const int row = k0 + 16 * warp;
    uint8_t *const through = shared + worker * R::MATRIX + warp * 16 * ROW_BYTES;
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        hold(dk[panel]);
        hold(dv[panel]);
    }
    arrive_at(R::done(base, worker)); /* the group's keys are free when all of its warps are here */
    wait_for(R::done(base, worker), 0);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        const int64_t column = head.keys + 64 * panel;
        store_rows<E, QUERIES_IN_ROWS>((E *)a.dk + (head.first + row) * a.k_row + column, a.k_row, dk[panel], a.scale,
                                       head.length - row, through);
        store_rows<E, QUERIES_IN_ROWS>((E *)a.dv + (head.first + row) * a.v_row + column, a.v_row, dv[panel], 1,
                                       head.length - row, through);
    }
}

template <typename E, int D>
static __global__ void __launch_bounds__(THREADS, 1)
    keys_kernel(const struct attention a, const struct row_values rows) {
    typedef room<D> R;
    extern __shared__ __align__(1024) uint8_t shared[];
    struct head head = head_of(a, blockIdx.y, blockIdx.x * a.group);
    const int k0 = blockIdx.z * SIDE; /* with a causal window the first keys have most queries */
    if (k0 >= head.length) return;
    const struct range seen = queries_of(a, k0, SIDE, head.length, TILE);
    const int tiles = (seen.end - seen.first + TILE - 1) / TILE;
    const uint32_t base = shared_address(shared);
    open_barriers<R>(base);
    const int group = __shfl_sync(FULL_WARP, threadIdx.x / GROUP, 0); /* tells the compiler that warps do not diverge */
    if (group > 0) {
        take_registers<MULTIPLYING_REGISTERS>();
        work_on_keys<E, D>(shared, a, head, group - 1, k0 + (group - 1) * 64, seen.first, seen.end);
        return;
    }
    leave_registers<COPYING_REGISTERS>();
    for (int worker = 0; worker < WORKERS; worker++) {
        uint8_t *const to = shared + worker * R::MATRIX;
        copy_matrix<E, D, QUERIES_IN_ROWS>(to, a.k, head.keys, a.k_row, head, k0 + 64 * worker);
        copy_matrix<E, D, QUERIES_IN_ROWS>(to + R::VALUES, a.v, head.keys, a.v_row, head, k0 + 64 * worker);
    }
    int q0 = seen.first;
    copy_tiles<R>(base, tiles * a.group, [&](int, int stage) {
        uint8_t *const to = shared + R::OWN + stage * 2 * R::MATRIX;
        copy_matrix<E, D, AS_THEY_ARE>(to, a.q, head.column, a.q_row, head, q0);
        copy_matrix<E, D, AS_THEY_ARE>(to + R::MATRIX, a.dout, head.column, a.h, head, q0);
        copy_row_values(shared + R::ROWS + 8 * QUERIES * stage, rows, head, q0);
        q0 += TILE;
        if (q0 >= seen.end) { /* to the next head */
            q0 = seen.first;
            choose_head(head, a, head.index + 1);
        }
    });
}

/* ---- dq ---- */

/* Masks the keys of the tile from k0 on that the lane's queries row and row + 1 do not attend to, or that do not
   exist. */
static __device__ __forceinline__ void hide_keys(float (&s)[8][4], const struct attention &a, int row, int k0,
                                                 int length) {
    const int first = row & ~15; /* of the warp's 16 */
    if (k0 + TILE <= length && sees_all(a, first, 16, k0, TILE)) return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = k0 + 8 * n + 2 * (int)(threadIdx.x % 4) + i % 2;
            if (key >= length || is_hidden(a, row + i / 2, key)) s[n][i] = HIDDEN;
        }
}

/* A lane's rows row and row + 1 of a matrix, as a left operand. */
template <typename E, int D>
static __device__ __forceinline__ void load_rows(uint32_t (&words)[D / 16][4], const void *operand, int64_t stride,
                                                 const struct head &head, int row) {
    const E *from = (const E *)operand + head.first * stride + head.column + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = row + i % 2;
            words[k][i] = r < head.length ? *(const uint32_t *)(from + r * stride + 16 * k + 8 * (i / 2)) : 0;
        }
}

template <typename E, int D>
static __device__ __forceinline__ void work_on_queries(uint8_t *shared, const struct attention &a,
                                                       const struct row_values &rows, const struct head &head, int q0,
                                                       const struct range &seen) {
    typedef room<D> R;
    constexpr int PANELS = R::PANELS;
    const uint32_t base = shared_address(shared);
    const int row = q0 + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4 * 2; /* and the next one */
    const float scale = a.scale * LOG2_E;
    uint32_t q[D / 16][4], dout[D / 16][4];
    load_rows<E, D>(q, a.q, a.q_row, head, row);
    load_rows<E, D>(dout, a.dout, a.h, head, row);
    float lse[2], delta[2], dq[PANELS][8][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t at = head.index * rows.stride + head.first + row + half;
        const bool there = row + half < head.length;
        lse[half] = there ? rows.lse[at] : 0;
        delta[half] = there ? rows.delta[at] : 0;
    }
    ring<R> tiles = {base, 0, -1};
    for (int k0 = seen.first; k0 < seen.end; k0 += TILE) {
        const int stage = tiles.next();
        if (q0 >= head.length || sees_none(a, q0, k0)) {
            tiles.skip(stage);
            continue;
        }
        const uint64_t keys = descriptor_of(R::stage(base, stage)), values = keys + R::MATRIX / 16;
        float s[8][4], dp[8][4];
        uint32_t ds[4][4];
        wgmma_fence();
        multiply_rows<E>(s, q, keys);
        wgmma_commit();
        multiply_rows<E>(dp, dout, values);
        wgmma_commit();
        wgmma_wait<1>(); /* done with the previous tile, and with S */
        hold(s);
        tiles.release();
        hide_keys(s, a, row, k0, head.length);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[n][i] = quick_exp2(fmaf(s[n][i], scale, -lse[i / 2]));
        wgmma_wait<0>();
        hold(dp);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                ds[n / 2][n % 2 * 2 + half] = pack<E>(s[n][2 * half] * (dp[n][2 * half] - delta[half]),
                                                      s[n][2 * half + 1] * (dp[n][2 * half + 1] - delta[half]));
        hold(ds);
        wgmma_fence();
        add_product<E>(dq, ds, keys);
        wgmma_commit();
        tiles.held = stage;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) {
        hold(dq[panel]);
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (row + half < head.length)
                store_row<E>((E *)a.dq + (head.first + row + half) * a.q_row + head.column + 64 * panel, dq[panel],
                             half, a.scale);
    }
}

template <typename E, int D>
static __global__ void __launch_bounds__(THREADS, 1)
    queries_kernel(const struct attention a, const struct row_values rows) {
    typedef room<D> R;
    extern __shared__ __align__(1024) uint8_t shared[];
    const struct head head = head_of(a, blockIdx.y, blockIdx.x);
    const int q0 = (gridDim.z - 1 - blockIdx.z) * SIDE; /* with a causal window the last queries have most keys */
    if (q0 >= head.length) return;
    const struct range seen = keys_of(a, q0, SIDE, head.length, TILE);
    const uint32_t base = shared_address(shared);
    open_barriers<R>(base);
    const int group = __shfl_sync(FULL_WARP, threadIdx.x / GROUP, 0);
    if (group > 0) {
        take_registers<MULTIPLYING_REGISTERS>();
        work_on_queries<E, D>(shared, a, rows, head, q0 + (group - 1) * 64, seen);
        return;
    }
    leave_registers<COPYING_REGISTERS>();
    copy_tiles<R>(base, (seen.end - seen.first + TILE - 1) / TILE, [&](int i, int stage) {
        uint8_t *const to = shared + R::OWN + stage * 2 * R::MATRIX;
        copy_matrix<E, D, AS_THEY_ARE>(to, a.k, head.keys, a.k_row, head, seen.first + i * TILE);
        copy_matrix<E, D, AS_THEY_ARE>(to + R::MATRIX, a.v, head.keys, a.v_row, head, seen.first + i * TILE);
    });
}

/* ---- launching ---- */

template <typename E, int D> static void launch(const struct attention &a, const struct snug_run *run) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const struct row_values rows = prepare_rows<E, D>(a, run);
    if (run->batch->sequences == 0) return;
    const unsigned blocks = blocks_for(run->program->longest, SIDE), sequences = (unsigned)run->batch->sequences;
    const int bytes = room<D>::BYTES;
    cudaFuncSetAttribute(keys_kernel<E, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaFuncSetAttribute(queries_kernel<E, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    keys_kernel<E, D><<<dim3((unsigned)a.kv_heads, sequences, blocks), THREADS, bytes, stream>>>(a, rows);
    queries_kernel<E, D><<<dim3((unsigned)a.heads, sequences, blocks), THREADS, bytes, stream>>>(a, rows);
}

bool snug_cuda_attention_wgmma_long(const struct attention &a, const struct snug_run *run, const struct snug_op *op,
                                    enum snug_dtype type) {
    if (snug_cuda_of(run)->capability != 90 || !snug_cuda_takes_long_attention(run->program, op)) return false;
    bool done = false;
    with_type(type, [&](auto value) {
        if constexpr (sizeof value == 2) {
            a.d == 64 ? launch<decltype(value), 64>(a, run) : launch<decltype(value), 128>(a, run);
            done = true;
        }
    });
    return done;
}
