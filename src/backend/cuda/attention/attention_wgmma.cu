/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention's forward pass by Hopper's matmuls of four warps (wgmma: compute capability 9.0 with code for it alone),
 * for heads of 64 or 128 channels in 16 bits: the GPU's other tensor core instructions reach about two thirds of its
 * peak rate. A block has GROUPS * 64 queries of a head, 64 for each group of four warps. Queries, scores and sums are
 * in registers; keys and values are loaded in tiles of 64 into shared memory, from which the matmuls read them. Without
 * dropout the matmul of a tile's scores starts together with that of the previous values, which runs while the powers
 * of two are computed. Dropout's random words need registers, and more time than matmuls: with dropout a block waits
 * for its matmuls, while other blocks on the multiprocessor compute random words.
 */
#include "backend/cuda/attention/wgmma.cuh"

enum { KEYS = 64, ROW_BYTES = 128, SHORT = 128 };

/* ---- tiles ---- */

/* A thread's part of the copies of keys and values, and of the keys' random words, into a ring of STAGES tiles of
   each. */
template <int D, int GROUPS, int STAGES, bool DROP> struct supply {
    enum {
        PANELS = D / 64,
        TILE = PANELS * PANEL,
        PASS = 16 * GROUPS,
        AHEAD = STAGES - (DROP ? 2 : 3)
    };                            /* rows that the threads copy at once; tiles */
    const uint8_t *keys, *values; /* the thread's piece of the tile's first row that it copies */
    uint8_t *to;
    struct quad_part *quads;
    int64_t key_row, value_row; /* bytes */
    int rows, stage, quad;      /* rows left from that one on */

    __device__ __forceinline__ supply(uint8_t *ring, const struct attention &a, const struct head &head, int first,
                                      int end) {
        const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
        key_row = 2 * a.k_row;
        value_row = 2 * a.v_row;
        keys = (const uint8_t *)a.k + 2 * head.keys + (head.first + first + row) * key_row + 16 * piece;
        values = (const uint8_t *)a.v + 2 * head.keys + (head.first + first + row) * value_row + 16 * piece;
        to = ring + 16 * piece_of<ROW_BYTES>(slot_of<KEYS_IN_COLUMNS>(row), piece);
        quads = (struct quad_part *)(ring + 2 * STAGES * TILE) + threadIdx.x;
        rows = end - first - row;
        stage = 0;
        quad = first / 4 + threadIdx.x;
        for (int i = 0; i < AHEAD; i++) fill(head);
    }
    __device__ __forceinline__ void fill(const struct head &head) {
#pragma unroll
        for (int r = 0; r < KEYS; r += PASS) /* all pieces have the swizzle of the first */
#pragma unroll
            for (int panel = 0; panel < PANELS; panel++) {
                uint8_t *const at = to + 2 * stage * TILE + panel * PANEL + r * ROW_BYTES;
                copy16(at, keys + r * key_row + panel * ROW_BYTES, r < rows);
                copy16(at + TILE, values + r * value_row + panel * ROW_BYTES, r < rows);
            }
        commit_copies();
        if (DROP && threadIdx.x < KEYS / 4) {
            quads[stage * (KEYS / 4)] = quad_part_of(head, quad);
            quad += KEYS / 4;
        }
        keys += KEYS * key_row;
        values += KEYS * value_row;
        rows -= KEYS;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
    /* Waits for the next tile and starts to load another one into the stage of the second (DROP) or third tile before
       it, whose matmuls are done in all groups by now. */
    __device__ __forceinline__ void next(const struct head &head) {
        wait_copies<AHEAD - 1>();
        async_proxy_fence();
        __syncthreads();
        fill(head);
    }
};

/* ---- the kernel ---- */

/* A lane's two rows: maxima, sums of its columns, and the factors that rescale earlier sums. */
struct softmax {
    float max[2], sum[2], shrink[2];
};

/*
 * Computes powers of two of a tile's scores and sums them; true if earlier sums must be rescaled. Maxima keep powers in
 * range, and any number near them does, too: they change only when a score exceeds them by a factor of 2^8.
 */
static __device__ __forceinline__ bool take_powers(struct softmax &rows, float (&s)[8][4], float scale) {
    float top[2];
    bool above = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = -INFINITY;
#pragma unroll
        for (int n = 0; n < 8; n++) top[half] = fmaxf(top[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        above |= (top[half] - rows.max[half]) * scale > 8;
    }
    above = __any_sync(FULL_WARP, above);
    if (above)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float raised = fmaxf(rows.max[half], quad_max(top[half]));
            rows.shrink[half] = quick_exp2((rows.max[half] - raised) * scale);
            rows.max[half] = raised;
            rows.sum[half] *= rows.shrink[half];
        }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float shift = rows.max[half] * scale;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = quick_exp2(fmaf(s[n][i], scale, -shift));
                rows.sum[half] += s[n][i];
            }
    }
    return above;
}

/* Masks keys after the sequence's end, which is `left` keys from here; see KEYS_IN_COLUMNS. */
static __device__ __forceinline__ void mask_scores(float (&s)[8][4], int left) {
    if (left >= KEYS) return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (8 * (n & ~1) + 4 * (int)(threadIdx.x % 4) + 2 * (n & 1) + i % 2 >= left) s[n][i] = -INFINITY;
}

/* Masks the keys of the tile from k0 on that are outside the windows of the lane's queries row and row + 1. */
static __device__ __forceinline__ void hide_keys(float (&s)[8][4], const struct attention &a, int row, int k0) {
    const int first = row & ~15; /* of the warp's 16 */
    if (sees_all(a, first, 16, k0, KEYS)) return;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = k0 + 8 * (n & ~1) + 4 * (int)(threadIdx.x % 4) + 2 * (n & 1) + i % 2;
            if (is_hidden(a, row + i / 2, key)) s[n][i] = HIDDEN;
        }
}

template <typename E> static __device__ __forceinline__ void pack_powers(uint32_t (&p)[4][4], const float (&s)[8][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) p[n / 2][n % 2 * 2 + half] = pack<E>(s[n][2 * half], s[n][2 * half + 1]);
}

/* Selects bytes 0 … 7 of two words by the selector's digits; a digit + 8 replicates the byte's sign bit. */
template <int SELECTOR> static __device__ __forceinline__ uint32_t select_bytes(uint32_t low, uint32_t high) {
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "n"(SELECTOR));
    return r;
}

/* Clears the powers of dropped elements. limit: the threshold's upper half, at most 0x8000, in both halves of a
   word. */
static __device__ __forceinline__ void drop_powers(uint32_t (&p)[4][4], const struct head &head,
                                                   const struct quad_part *quads, const struct pair_part &pair,
                                                   uint32_t limit) {
    const uint32_t highest = limit + 0x7fff7fff, shift = 0x80008000 - limit;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const struct snug_philox_block random = random_of(head, quads[4 * k + threadIdx.x % 4], pair);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* a half's highest bit is set from the limit on; no half overflows */
            const uint32_t left = __vminu2(random.word[2 * i], highest) + shift;
            const uint32_t right = __vminu2(random.word[2 * i + 1], highest) + shift;
            p[k][2 * i] &= select_bytes<0xdd99>(left, right);
            p[k][2 * i + 1] &= select_bytes<0xffbb>(left, right);
        }
    }
}

template <typename E, int D, int GROUPS, int STAGES, int BLOCKS, bool DROP, unsigned FORM>
static __global__ void __launch_bounds__(128 * GROUPS, BLOCKS) forward_kernel(const struct attention a) {
    typedef supply<D, GROUPS, STAGES, DROP> tiles_of;
    constexpr int TILE = tiles_of::TILE, PANELS = tiles_of::PANELS;
    extern __shared__ __align__(1024) uint8_t shared[];
    if (blockIdx.z == gridDim.z - 1) return clear_tail<E>(a, a.o, a.h, a.h);
    const struct head head = head_of(a, blockIdx.z, blockIdx.y);
    /* The block's first query; with a causal window the last queries, which come first, have most keys. */
    const int block = (FORM & WINDOWED ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * GROUPS * 64;
    const int lane = threadIdx.x % 32, q0 = block + threadIdx.x / 128 * 64; /* of the group */
    if (block >= head.length) return;
    const E *from = (const E *)a.q + head.first * a.q_row + head.column;
    const int first = FORM & WINDOWED ? keys_of(a, block, GROUPS * 64, head.length, KEYS).first : 0;
    const int end = FORM & WINDOWED ? keys_of(a, block, GROUPS * 64, head.length, KEYS).end : head.length;
    tiles_of tiles(shared, a, head, first, end);
    if (q0 >= head.length) { /* its threads only copy */
        for (int k0 = first; k0 < end; k0 += KEYS) tiles.next(head);
        wait_copies<0>();
        return;
    }
    const int row =
        q0 + threadIdx.x % 128 / 32 * 16 + lane / 4 * 2; /* and the next one; as in the layout of random words */
    uint32_t q[D / 16][4], p[4][4];
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = row + i % 2, channel = 16 * k + 8 * (i / 2) + 2 * (lane % 4);
            q[k][i] = r < head.length ? *(const uint32_t *)(from + r * a.q_row + channel) : 0;
        }

    const float scale = a.scale * LOG2_E; /* powers of two from here on */
    const uint64_t ring = descriptor_of(shared_address(shared));
    float s[8][4], o[PANELS][8][4] = {};
    struct softmax rows = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
    const auto begin_scores = [&](int stage) {
        const uint64_t tile = ring + 2 * stage * (TILE / 16);
        multiply_rows<E>(s, q, tile);
        wgmma_commit();
    };
    const auto begin_values = [&](int stage) {
        const uint64_t tile = ring + (2 * stage + 1) * (TILE / 16);
        add_product<E>(o, p, tile);
        wgmma_commit();
    };
    const auto hold_sums = [&]() {
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++) hold(o[panel]);
    };
    const auto add_values = [&](int stage) {
        hold(p);
        hold_sums();
        wgmma_fence();
        begin_values(stage);
        wgmma_wait<0>();
        hold_sums();
    };
    const auto shrink = [&]() {
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) o[panel][n][i] *= rows.shrink[i / 2];
    };
    tiles.next(head);
    if constexpr (DROP) {
        const struct pair_part pair = pair_part_of(head, (uint32_t)row / 2);
        const struct quad_part *quads = (const struct quad_part *)(shared + 2 * STAGES * TILE);
        const uint32_t limit = select_bytes<0x3232>(a.dropout.threshold, 0);
        int stage = 0;
        for (int k0 = first; k0 < end; k0 += KEYS) {
            hold(s);
            wgmma_fence();
            begin_scores(stage);
            if (k0 + KEYS < end) tiles.next(head);
            wgmma_wait<0>();
            hold(s);
            if (FORM & WINDOWED) hide_keys(s, a, row, k0);
            mask_scores(s, head.length - k0);
            if (take_powers(rows, s, scale)) shrink();
            pack_powers<E>(p, s);
            drop_powers(p, head, quads + stage * (KEYS / 4), pair, limit);
            add_values(stage);
            stage = stage + 1 < STAGES ? stage + 1 : 0;
        }
    } else {
        wgmma_fence();
        begin_scores(0);
        wgmma_wait<0>();
        hold(s);
        if (FORM & WINDOWED) hide_keys(s, a, row, first);
        mask_scores(s, head.length - first);
        take_powers(rows, s, scale);
        pack_powers<E>(p, s);
        if (end > first + KEYS) tiles.next(head);
        int stage = 0;
        for (int k0 = first + KEYS; k0 < end; k0 += KEYS) {
            const int next = stage + 1 < STAGES ? stage + 1 : 0;
            hold(s);
            hold(p);
            hold_sums();
            wgmma_fence();
            begin_scores(next);
            begin_values(stage);
            wgmma_wait<1>();
            hold(s);
            if (FORM & WINDOWED) hide_keys(s, a, row, k0);
            mask_scores(s, head.length - k0);
            const bool shrinks = take_powers(rows, s, scale);
            hold(s);
            /* A compiler barrier: otherwise it would wait for the values' matmul before it computes powers. */
            if (k0 + KEYS < end) tiles.next(head);
            wgmma_wait<0>();
            hold_sums();
            hold(p);
            if (shrinks) shrink();
            pack_powers<E>(p, s);
            stage = next;
        }
        add_values(stage);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row + half;
        const float total = quad_sum(rows.sum[half]);
        if (r >= head.length) continue;
        const int64_t token = head.first + r;
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++)
            store_row<E>((E *)a.o + token * a.h + head.column + 64 * panel, o[panel], half, a.dropout.scale / total);
        if (lane % 4 == 0) a.lse[token * a.heads + head.index] = rows.max[half] * a.scale + LN_2 * log2f(total);
    }
}

/* ---- launching ---- */

template <typename E, int D, int GROUPS, int STAGES, int BLOCKS, bool DROP, unsigned FORM>
static void launch(const struct attention &a, const struct snug_run *run) {
    constexpr int BYTES = STAGES * (2 * D / 64 * PANEL + (DROP ? KEYS / 4 * (int)sizeof(struct quad_part) : 0));
    const dim3 grid(blocks_for(run->program->longest, 64 * GROUPS), (unsigned)a.heads,
                    (unsigned)run->batch->sequences + 1);
    const auto kernel = forward_kernel<E, D, GROUPS, STAGES, BLOCKS, DROP, FORM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    kernel<<<grid, 128 * GROUPS, BYTES, snug_cuda_of(run)->stream>>>(a);
}

/* Few queries in total: more blocks with fewer rows, which changes no bits. */
template <typename E> static void choose_rows(const struct attention &a, const struct snug_run *run) {
    const bool few = a.bucket * a.heads <= 64 * snug_cuda_of(run)->multiprocessors;
    if (a.d == 128)
        few ? launch<E, 128, 1, 4, 1, false, WINDOWED>(a, run) : launch<E, 128, 2, 4, 1, false, WINDOWED>(a, run);
    else if (is_windowed(a) && a.dropout.threshold)
        launch<E, 64, 1, 3, 4, true, WINDOWED>(a, run);
    else if (is_windowed(a)) /* few tiles each: other blocks hide their loads */
        launch<E, 64, 1, 4, 3, false, WINDOWED>(a, run);
    else if (a.dropout.threshold)
        launch<E, 64, 1, 3, 4, true, PLAIN>(a, run);
    else if (few)
        launch<E, 64, 1, 5, 2, false, PLAIN>(a, run);
    else
        launch<E, 64, 2, 5, 2, false, PLAIN>(a, run);
}

/* Depends on the program, not on the batch, because the bits differ from those of mma.sync, which is as fast or faster
   for short sequences (on an H200). */
bool snug_cuda_attention_wgmma(const struct attention &a, const struct snug_run *run, enum snug_dtype type) {
    if (snug_cuda_of(run)->capability != 90 || run->program->longest <= SHORT || a.bias || a.softcap > 0) return false;
    /* Dropout up to one half: see drop_powers(). */
    if ((a.d != 64 || a.dropout.threshold > 0x80000000) && (a.d != 128 || a.dropout.threshold)) return false;
    bool done = false;
    with_type(type, [&](auto value) {
        if constexpr (sizeof value == 2) choose_rows<decltype(value)>(a, run), done = true;
    });
    return done;
}
