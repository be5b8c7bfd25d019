/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTENTION over a cache. A block has up to 8 rows of one key/value head: new queries of a sequence, times the query
 * heads that read this head, which share one read of its keys and values. Lanes of a warp have 8 channels of a key
 * each, and keep the running softmax and sums of the keys that they see; these are added in a fixed order. If every
 * sequence has one new token, several blocks share the keys of a sequence; the last one to be done adds their sums.
 * Prompts without earlier tokens are left to attention.cu.
 */
#include "backend/cuda/attention/attention_operands.cuh"

/* A multiprocessor's registers are enough for two blocks of FEW_WARPS with 4 rows, or for one of MANY_WARPS. Blocks
   have MANY_WARPS where there is about one or fewer for two multiprocessors. All of them run at the same time. */
enum { AHEAD = 4, FEW_WARPS = 4, MANY_WARPS = 8, BLOCKS = SNUG_CUDA_CACHED_BLOCKS, MULTIPROCESSORS = BLOCKS / 2 };
/* The sums of wide heads leave no shared memory for more. */
template <int LANES> constexpr int MOST_WARPS = LANES == 32 ? FEW_WARPS : MANY_WARPS;

struct cached {
    const void *q, *keys, *values; /* q: its first column */
    void *o;
    int64_t q_row, kv_row, o_row; /* elements from a row to the next one */
    float *partial;               /* [blocks, ROWS, channels + 2]; NULL: a block has all keys of its rows */
    struct snug_cuda_batch batch;
    int64_t bucket; /* rows after the last token up to here become zero */
    int heads, group, d, pages_each, splits, before;
    int least;   /* pages of a block, where several share the keys */
    bool single; /* every sequence has one new token */
    float scale, softcap;
};

/* The rows of a block, and its keys: positions from first on, which is a multiple of a page, to end - 1. */
struct block {
    int sequence, token, position, rows, row; /* the first token's row and position; rows of the head; the first */
    int first, end, used;                     /* used: how many blocks share the keys */
};

static __device__ __forceinline__ int lowest_key(const struct cached &a, int position) {
    return a.before >= 0 && position > a.before ? position - a.before : 0;
}

template <int ROWS> static __device__ struct block block_of(const struct cached &a) {
    struct block b = {.sequence = (int)blockIdx.z};
    const int split = blockIdx.x % a.splits;
    b.token = a.single ? b.sequence : a.batch.offsets[b.sequence];
    b.position = a.batch.positions[b.token];
    b.rows = a.single ? a.group : (a.batch.offsets[b.sequence + 1] - b.token) * a.group;
    b.row = blockIdx.x / a.splits * ROWS;
    if (b.row >= b.rows) return b;
    const int last = (b.row + ROWS < b.rows ? b.row + ROWS : b.rows) - 1;
    const int first = lowest_key(a, b.position + b.row / a.group) / SNUG_CACHE_PAGE;
    const int end = b.position + last / a.group + 1, pages = (end - 1) / SNUG_CACHE_PAGE + 1 - first;
    int each = (pages + a.splits - 1) / a.splits;
    if (each < a.least) each = a.least;
    b.used = (pages + each - 1) / each;
    b.first = (first + split * each) * SNUG_CACHE_PAGE;
    b.end = b.first + each * SNUG_CACHE_PAGE < end ? b.first + each * SNUG_CACHE_PAGE : end;
    return b;
}

/* 8 channels as stored: keys are loaded first, and unpacked where they are used. */
template <typename T> struct channels { uint4 piece[sizeof(T) / 2]; };

/* Those from `channel` on of a row of d; WHOLE: d is a multiple of 8. Zeros after the last one. */
template <bool WHOLE, typename T>
static __device__ __forceinline__ void load_channels(struct channels<T> &out, const T *row, int channel, int d,
                                                     bool there) {
    if constexpr (WHOLE) {
#pragma unroll
        for (int i = 0; i < (int)(sizeof out / sizeof *out.piece); i++)
            out.piece[i] = there && channel < d ? ((const uint4 *)(row + channel))[i] : uint4{0, 0, 0, 0};
    } else {
        T values[8];
#pragma unroll
        for (int c = 0; c < 8; c++) values[c] = there && channel + c < d ? row[channel + c] : from_float<T>(0);
        memcpy(out.piece, values, sizeof values);
    }
}

template <typename T>
static __device__ __forceinline__ void open_channels(float (&out)[8], const struct channels<T> &in) {
    if constexpr (sizeof(T) == sizeof(float)) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 v = in.piece[i];
            out[4 * i] = __uint_as_float(v.x), out[4 * i + 1] = __uint_as_float(v.y);
            out[4 * i + 2] = __uint_as_float(v.z), out[4 * i + 3] = __uint_as_float(v.w);
        }
    } else {
        const uint4 v = in.piece[0];
        unpack_words<T, 4>(out, {v.x, v.y, v.z, v.w});
    }
}

/* The running softmax of a row: exponentials are powers of two of score - most. */
struct running {
    float most, total, sum[8];
};

/* Exponents are relative to this. */
static __device__ __forceinline__ float base_of(float most) { return most == -INFINITY ? 0 : most; }

static __device__ __forceinline__ void merge(struct running &r, float most, float total, const float (&sum)[8]) {
    const float raised = fmaxf(r.most, most), base = base_of(raised);
    const float own = exp2f(r.most - base), other = exp2f(most - base);
    r.most = raised;
    r.total = r.total * own + total * other;
#pragma unroll
    for (int c = 0; c < 8; c++) r.sum[c] = r.sum[c] * own + sum[c] * other;
}

/* A lane's part of AHEAD * 32 / LANES keys, which are in one page, and of their values. */
template <typename T> struct keys { struct channels<T> k[AHEAD], v[AHEAD]; };

static __device__ __forceinline__ int64_t page_of(const struct cached &a, const struct block &b, int k0) {
    return k0 < b.end ? a.batch.pages[(int64_t)b.sequence * a.pages_each + k0 / SNUG_CACHE_PAGE] : 0;
}

/* Those from k0 on, of this page. */
template <typename T, int LANES, bool WHOLE>
static __device__ __forceinline__ void load_keys(struct keys<T> &out, const struct cached &a, const struct block &b,
                                                 int64_t page, int k0) {
    constexpr int KEYS = 32 / LANES;
    const int channel = threadIdx.x % LANES * 8, member = threadIdx.x % 32 / LANES;
    const int64_t at = (page * SNUG_CACHE_PAGE + k0 % SNUG_CACHE_PAGE + member) * a.kv_row + (int64_t)blockIdx.y * a.d;
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        load_channels<WHOLE>(out.k[u], (const T *)a.keys + at + u * KEYS * a.kv_row, channel, a.d,
                             k0 + u * KEYS + member < b.end);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        load_channels<WHOLE>(out.v[u], (const T *)a.values + at + u * KEYS * a.kv_row, channel, a.d,
                             k0 + u * KEYS + member < b.end);
}

/* Attends to those keys. */
template <typename T, int LANES, int ROWS>
static __device__ __forceinline__ void attend(struct running (&r)[ROWS], const float (&q)[ROWS][8],
                                              const int (&position)[ROWS], const struct cached &a,
                                              const struct block &b, const struct keys<T> &keys, int k0) {
    constexpr int KEYS = 32 / LANES;
    const int member = threadIdx.x % 32 / LANES;
    float s[AHEAD][ROWS];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        float k[8];
        open_channels(k, keys.k[u]);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int key = k0 + u * KEYS + member;
            float dot = 0;
#pragma unroll
            for (int c = 0; c < 8; c++) dot = fmaf(q[i][c], k[c], dot);
#pragma unroll
            for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(FULL_WARP, dot, step);
            if (a.softcap > 0) dot = a.softcap * LOG2_E * tanhf(dot);
            s[u][i] = key <= position[i] && key >= lowest_key(a, position[i]) && key < b.end ? dot : -INFINITY;
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float raised = r[i].most;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) raised = fmaxf(raised, s[u][i]);
        const float base = base_of(raised), shrink = exp2f(r[i].most - base);
        r[i].most = raised;
        r[i].total *= shrink;
#pragma unroll
        for (int c = 0; c < 8; c++) r[i].sum[c] *= shrink;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            s[u][i] = exp2f(s[u][i] - base);
            r[i].total += s[u][i];
        }
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        float v[8];
        open_channels(v, keys.v[u]);
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int c = 0; c < 8; c++) r[i].sum[c] = fmaf(s[u][i], v[c], r[i].sum[c]);
    }
}

/* Column `column` of row i from the sums of `count` parts, [count][ROWS][stride], each with its maximum and total
   after its channels. total: the sum of all totals, *most: the largest maximum. */
static __device__ __forceinline__ float add_parts(const float *parts, int count, int64_t part, int channels, int column,
                                                  float *most, float *total) {
    float highest = -INFINITY, sum = 0, all = 0;
    for (int n = 0; n < count; n++) highest = fmaxf(highest, parts[n * part + channels]);
    for (int n = 0; n < count; n++) {
        const float factor = exp2f(parts[n * part + channels] - base_of(highest));
        all += parts[n * part + channels + 1] * factor;
        sum += parts[n * part + column] * factor;
    }
    *most = highest;
    *total = all;
    return sum;
}

template <typename T, int ROWS>
static __device__ __forceinline__ void store_output(const struct cached &a, const struct block &b, int i, int column,
                                                    float value) {
    const int row = b.row + i;
    if (row >= b.rows || column >= a.d) return;
    const int64_t head = (int64_t)blockIdx.y * a.group + row % a.group;
    ((T *)a.o)[(b.token + row / a.group) * a.o_row + head * a.d + column] = from_float<T>(value);
}

/* Whether this block is the last one of those that share its rows. */
static __device__ bool is_last(const struct cached &a, const struct block &b) {
    const int64_t tiles = gridDim.x / a.splits, tile = blockIdx.x / a.splits;
    return is_last_to_arrive(a.batch.arrivals + ((int64_t)b.sequence * gridDim.y + blockIdx.y) * tiles + tile,
                             (unsigned)b.used);
}

template <typename T, int LANES, int ROWS, bool WHOLE>
static __global__ void __launch_bounds__(32 * MOST_WARPS<LANES>) cached_kernel(const struct cached a) {
    constexpr int CHANNELS = 8 * LANES, STRIDE = CHANNELS + 2, KEYS = AHEAD * 32 / LANES;
    const int threads = (int)blockDim.x, warps = threads / 32;
    __shared__ float parts[MOST_WARPS<LANES>][ROWS][STRIDE];
    const int64_t tokens = a.batch.step->tokens;
    start_next();
    wait_before();
    if (blockIdx.z == gridDim.z - 1) { /* rows after the last token */
        const int64_t block = (int64_t)blockIdx.y * gridDim.x + blockIdx.x, blocks = (int64_t)gridDim.y * gridDim.x;
        for (int64_t i = tokens * a.o_row + block * threads + threadIdx.x; i < a.bucket * a.o_row;
             i += blocks * threads)
            ((T *)a.o)[i] = from_float<T>(0);
        return;
    }
    if ((int)blockIdx.z >= a.batch.step->sequences) return;
    const struct block b = block_of<ROWS>(a);
    if (b.row >= b.rows || b.first >= b.end) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, channel = lane % LANES * 8;
    const float factor = a.softcap > 0 ? a.scale / a.softcap : a.scale * LOG2_E;
    float q[ROWS][8];
    int position[ROWS];
    struct running r[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int row = b.row + i;
        const T *from = (const T *)a.q + (b.token + row / a.group) * a.q_row +
                        ((int64_t)blockIdx.y * a.group + row % a.group) * a.d;
        struct channels<T> query;
        load_channels<WHOLE>(query, from, channel, a.d, row < b.rows);
        open_channels(q[i], query);
        position[i] = row < b.rows ? b.position + row / a.group : -1;
        r[i] = {-INFINITY, 0};
#pragma unroll
        for (int c = 0; c < 8; c++) q[i][c] *= factor;
    }
    /* The next keys are loaded while the ones before are attended to; their page is known even earlier. */
    struct keys<T> now, next;
    int k0 = b.first + warp * KEYS;
    if (k0 < b.end) load_keys<T, LANES, WHOLE>(now, a, b, page_of(a, b, k0), k0);
    int64_t page = page_of(a, b, k0 + warps * KEYS);
    while (k0 < b.end) {
        const int after = k0 + warps * KEYS;
        if (after < b.end) load_keys<T, LANES, WHOLE>(next, a, b, page, after);
        page = page_of(a, b, after + warps * KEYS);
        attend<T, LANES, ROWS>(r, q, position, a, b, now, k0);
        now = next;
        k0 = after;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int step = 16; step >= LANES; step /= 2) {
            float sum[8];
#pragma unroll
            for (int c = 0; c < 8; c++) sum[c] = __shfl_xor_sync(FULL_WARP, r[i].sum[c], step);
            const float most = __shfl_xor_sync(FULL_WARP, r[i].most, step);
            const float total = __shfl_xor_sync(FULL_WARP, r[i].total, step);
            merge(r[i], most, total, sum);
        }
        if (lane < LANES)
#pragma unroll
            for (int c = 0; c < 8; c++) parts[warp][i][channel + c] = r[i].sum[c];
        if (lane == 0) parts[warp][i][CHANNELS] = r[i].most, parts[warp][i][CHANNELS + 1] = r[i].total;
    }
    __syncthreads();
    const int split = blockIdx.x % a.splits;
    const int64_t tile = ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x - split;
    float *own = a.partial + (tile + split) * ROWS * STRIDE;
    const bool shares = a.splits > 1 && b.used > 1;
    for (int i = threadIdx.x; i < ROWS * CHANNELS; i += threads) {
        const int row = i / CHANNELS, column = i % CHANNELS;
        float most, total;
        const float sum = add_parts(parts[0][row], warps, ROWS * STRIDE, CHANNELS, column, &most, &total);
        if (!shares) {
            store_output<T, ROWS>(a, b, row, column, sum / total);
            continue;
        }
        own[row * STRIDE + column] = sum;
        if (column == 0) own[row * STRIDE + CHANNELS] = most, own[row * STRIDE + CHANNELS + 1] = total;
    }
    if (!shares || !is_last(a, b)) return;
    for (int i = threadIdx.x; i < ROWS * CHANNELS; i += threads) {
        const int row = i / CHANNELS, column = i % CHANNELS;
        float most, total;
        const float sum =
            add_parts(a.partial + (tile * ROWS + row) * STRIDE, b.used, ROWS * STRIDE, CHANNELS, column, &most, &total);
        store_output<T, ROWS>(a, b, row, column, sum / total);
    }
}

/* ---- launching ---- */

template <typename T, int LANES, int ROWS, bool WHOLE>
static void launch(struct cached &a, const struct snug_run *run, int64_t queries) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const int64_t sequences = cuda->decoding.single ? a.bucket : run->batch->sequences, kv_heads = a.heads / a.group;
    const int64_t tiles = blocks_for(queries * a.group, ROWS);
    const int64_t blocks = sequences * kv_heads * tiles;
    const bool many = blocks > MULTIPROCESSORS / 2;
    const int64_t room = cuda->decoding.single && blocks > 0 ? (many ? BLOCKS : MULTIPROCESSORS) / blocks : 1;
    const int warps = many ? FEW_WARPS : MOST_WARPS<LANES>;
    a.least = many ? 2 : 4;
    const int64_t most = (a.pages_each + a.least - 1) / a.least;
    a.splits = (int)(room < 1 ? 1 : room < most ? room : most);
    const dim3 grid((unsigned)(tiles * a.splits), (unsigned)kv_heads, (unsigned)sequences + 1);
    launch_chained(cuda, grid, 32 * warps, cached_kernel<T, LANES, ROWS, WHOLE>, a);
}

template <typename T, int LANES>
static void choose_rows(struct cached &a, const struct snug_run *run, int64_t queries) {
    const int rows = snug_cuda_cached_rows(queries * a.group);
    if (a.d % 8 || a.q_row % 8) return launch<T, LANES, 4, false>(a, run, queries);
    if (rows == 1) return launch<T, LANES, 1, true>(a, run, queries);
    if (rows == 4) return launch<T, LANES, 4, true>(a, run, queries);
    launch<T, LANES, 8, true>(a, run, queries);
}

extern "C" snug_status snug_cuda_cached_attention(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_cached_attention &c = op->cached_attention;
    const struct snug_attention_form &form = c.form;
    if (cuda->decoding.fresh) return snug_cuda_prompt_attention(run, op);
    const enum snug_dtype type = snug_run_dtype(run, c.q);
    const int64_t bucket = snug_cuda_rows(run, c.q), longest = run->program->longest;
    struct cached a = {.q = (uint8_t *)snug_run_data(run, c.q) + form.column[0] * snug_dtype_size(type),
                       .keys = snug_run_data(run, c.keys),
                       .values = snug_run_data(run, c.values),
                       .o = snug_run_data(run, c.o),
                       .q_row = snug_run_cols(run, c.q),
                       .kv_row = snug_run_cols(run, c.keys),
                       .o_row = snug_run_cols(run, c.o),
                       .partial = (float *)run->workspace,
                       .batch = cuda->batch,
                       .bucket = bucket,
                       .heads = form.heads,
                       .group = form.heads / form.kv_heads,
                       .d = form.head_dim,
                       .pages_each = (int)snug_cuda_pages_each(run->program),
                       .before = form.before,
                       .single = cuda->decoding.single,
                       .scale = form.scale,
                       .softcap = form.softcap};
    const int64_t queries = cuda->decoding.single ? 1 : bucket < longest ? bucket : longest;
    if (bucket == 0) return SNUG_OK;
    with_type(type, [&](auto value) {
        typedef decltype(value) T;
        switch (snug_cuda_cached_lanes(a.d)) {
        case 8: return choose_rows<T, 8>(a, run, queries);
        case 16: return choose_rows<T, 16>(a, run, queries);
        default: return choose_rows<T, 32>(a, run, queries);
        }
    });
    return snug_cuda_done(run, op);
}
