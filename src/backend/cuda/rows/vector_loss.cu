/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses over the vectors of a step; backend/cpu/vector_loss.c has the derivation. RANKING computes the similarities of
 * SNUG_CUDA_LOSS_ROWS vectors at a time with all others, by an fp32 matmul of its own, whose operands may have any
 * strides, since a row of data has its texts one after the other. The host knows the number of vectors, and a graph is
 * of one number.
 */
#include "backend/cuda/device.cuh"
#define inline inline __host__ __device__
#include "program/vector_loss.h"
#undef inline

#include "backend/cuda/sizes/workspace.h"

/* One term of the sum over dims, and the scratch: its layout follows vector_loss_bytes() of sizes/workspace.c. */
struct pass {
    struct snug_vector_loss_form form;
    struct snug_cuda_batch batch;
    const float *x, *scores;
    float *d, *loss;
    int64_t n, cols, texts, dim;
    bool unit, again;        /* again: not the first term */
    float weight;
    double *losses, *sums;   /* [n] */
    float *inverse, *turns;  /* [texts n], in the vectors' order: 1 / |x|; 1: the vector has a direction */
    float *of_rows, *of_texts; /* [n] logs of sums of exponentials */
    float *s, *slope;        /* [texts - 1, n] of the rows' pairs */
    float *along;            /* [SNUG_CUDA_LOSS_ROWS] of a block's vectors */
    float *block;            /* their similarities */
};

enum { THREADS = 256, WARPS = 8 };

static __device__ __forceinline__ float factor_of(const struct pass &p) { return p.weight * p.batch.step->loss_scale; }
static __device__ __forceinline__ const float *vector_of(const struct pass &p, int64_t row, int64_t text) {
    return p.x + (row * p.texts + text) * p.cols;
}
static __device__ __forceinline__ float *gradient_of(const struct pass &p, int64_t row, int64_t text) {
    return p.d + (row * p.texts + text) * p.cols;
}

/* Thread 0 adds a term to the loss, or begins with it. */
static __device__ void add_term(const struct pass &p, double term) {
    if (threadIdx.x == 0) *p.loss = (float)(p.again ? *p.loss + term : term);
}

/* ---- lengths -------------------------------------------------------------------------------------------------- */

static __global__ void lengths_kernel(struct pass p) {
    const int64_t vector = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (vector >= p.n * p.texts) return;
    const float *x = p.x + vector * p.cols;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < p.dim; c += 32) squares += x[c] * x[c];
    const float length = p.unit ? sqrtf(warp_sum(squares)) : 1;
    if (threadIdx.x) return;
    p.inverse[vector] = 1 / fmaxf(length, SNUG_NORMALIZE_LEAST);
    p.turns[vector] = p.unit && length > SNUG_NORMALIZE_LEAST;
}

/* ---- matmuls -------------------------------------------------------------------------------------------------- */

/* c [m,n] = a b, or += if add. Element (i, k) of a is at a[i * down + k * across]. */
struct operand {
    const float *data;
    int64_t down, across;
};
enum { TILE = 64, DEPTH = 16, EACH = 4 };

static __global__ void matmul_kernel(float *c, int64_t ldc, struct operand a, struct operand b, int64_t m, int64_t n,
                                     int64_t depth, bool add) {
    __shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE + 1];
    const int64_t row = (int64_t)blockIdx.y * TILE, column = (int64_t)blockIdx.x * TILE;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float sums[EACH][EACH] = {};
    for (int64_t k = 0; k < depth; k += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            /* Neighbouring threads read neighbouring elements, if the inner dimension has them. */
            const int ar = a.across == 1 ? i / DEPTH : i % TILE, ak = a.across == 1 ? i % DEPTH : i / TILE;
            const int br = b.down == 1 ? i / DEPTH : i % TILE, bk = b.down == 1 ? i % DEPTH : i / TILE;
            const bool in_a = row + ar < m && k + ak < depth, in_b = column + br < n && k + bk < depth;
            as[ak][ar] = in_a ? a.data[(row + ar) * a.down + (k + ak) * a.across] : 0;
            bs[bk][br] = in_b ? b.data[(k + bk) * b.down + (column + br) * b.across] : 0;
        }
        __syncthreads();
        for (int i = 0; i < DEPTH; i++)
            for (int r = 0; r < EACH; r++)
                for (int s = 0; s < EACH; s++) sums[r][s] += as[i][y + 16 * r] * bs[i][x + 16 * s];
        __syncthreads();
    }
    for (int r = 0; r < EACH; r++)
        for (int s = 0; s < EACH; s++) {
            const int64_t i = row + y + 16 * r, j = column + x + 16 * s;
            if (i < m && j < n) c[i * ldc + j] = sums[r][s] + (add ? c[i * ldc + j] : 0);
        }
}

static void matmul(const struct snug_run *run, float *c, int64_t ldc, struct operand a, struct operand b, int64_t m,
                   int64_t n, int64_t depth, bool add) {
    const dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    matmul_kernel<<<blocks, THREADS, 0, snug_cuda_of(run)->stream>>>(c, ldc, a, b, m, n, depth, add);
}

/* ---- ranking -------------------------------------------------------------------------------------------------- */

/* Vectors first … first + count - 1 of one text, and the texts whose vectors they are compared with. */
struct block {
    int64_t first, count, text, from, to;
};

/* A block has a vector: makes its products cosines; with losses, also the log of the sum of exponentials. */
static __global__ void scores_kernel(struct pass p, struct block b, bool losses) {
    const int64_t row = b.first + blockIdx.x, width = (b.to - b.from) * p.n;
    float *s = p.block + blockIdx.x * width;
    const float own = p.inverse[row * p.texts + b.text];
    float most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        s[i] *= own * p.inverse[i % p.n * p.texts + b.from + i / p.n];
        most = fmaxf(most, p.form.scale * s[i]);
    }
    if (!losses) return;
    most = block_max<WARPS>(most);
    for (int64_t i = threadIdx.x; i < width; i += THREADS) sum += expf(p.form.scale * s[i] - most);
    const float log_sum = most + logf(block_sum<WARPS>(sum));
    if (threadIdx.x) return;
    (b.text ? p.of_texts : p.of_rows)[row] = log_sum;
    (b.text ? p.sums : p.losses)[row] = (double)log_sum - (double)p.form.scale * s[row];
}

/* Replaces the cosines by the factors of the other vectors in the gradient. */
static __global__ void weigh_kernel(struct pass p, struct block b) {
    const int64_t row = b.first + blockIdx.x, width = (b.to - b.from) * p.n;
    float *s = p.block + blockIdx.x * width;
    const float own = p.inverse[row * p.texts + b.text], each = factor_of(p) * p.form.scale;
    const float share = p.form.symmetric ? 0.5f : 1;
    float along = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        const int64_t other = i % p.n, text = b.from + i / p.n, second = b.text ? b.text : text;
        const float cosine = s[i], score = p.form.scale * cosine;
        const bool both = p.form.symmetric && second == 1;
        float g = share * expf(score - p.of_rows[b.text ? other : row]);
        if (both) g += share * expf(score - p.of_texts[b.text ? row : other]);
        if (second == 1 && other == row) g -= both ? 2 * share : share;
        g *= each;
        along += g * cosine;
        s[i] = g * own * p.inverse[other * p.texts + text];
    }
    along = block_sum<WARPS>(along);
    if (threadIdx.x == 0) p.along[blockIdx.x] = along;
}

/* Takes off the parts of gradients along their vectors. */
static __global__ void project_kernel(struct pass p, struct block b) {
    const int64_t row = b.first + blockIdx.x, vector = row * p.texts + b.text;
    const float inverse = p.inverse[vector], factor = p.turns[vector] * p.along[blockIdx.x] * inverse * inverse;
    for (int64_t c = threadIdx.x; c < p.dim; c += THREADS)
        gradient_of(p, row, b.text)[c] -= factor * vector_of(p, row, b.text)[c];
}

static void rank_block(const struct snug_run *run, const struct pass &p, const struct block &b, bool losses,
                       bool differentiates) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const int64_t ld = p.texts * p.cols, width = (b.to - b.from) * p.n;
    const float *own = p.x + (b.first * p.texts + b.text) * p.cols;
    for (int64_t t = b.from; t < b.to; t++)
        matmul(run, p.block + (t - b.from) * p.n, width, {own, ld, 1}, {p.x + t * p.cols, 1, ld}, b.count, p.n, p.dim,
               false);
    scores_kernel<<<(unsigned)b.count, THREADS, 0, stream>>>(p, b, losses);
    if (!differentiates) return;
    weigh_kernel<<<(unsigned)b.count, THREADS, 0, stream>>>(p, b);
    for (int64_t t = b.from; t < b.to; t++)
        matmul(run, p.d + (b.first * p.texts + b.text) * p.cols, ld, {p.block + (t - b.from) * p.n, width, 1},
               {p.x + t * p.cols, ld, 1}, b.count, p.dim, p.n, true);
    project_kernel<<<(unsigned)b.count, THREADS, 0, stream>>>(p, b);
}

static void rank_text(const struct snug_run *run, const struct pass &p, int64_t text, bool losses,
                      bool differentiates) {
    for (int64_t first = 0; first < p.n; first += SNUG_CUDA_LOSS_ROWS) {
        const int64_t left = p.n - first;
        const struct block b = {.first = first,
                                .count = left < SNUG_CUDA_LOSS_ROWS ? left : SNUG_CUDA_LOSS_ROWS,
                                .text = text,
                                .from = text ? 0 : 1,
                                .to = text ? 1 : p.texts};
        rank_block(run, p, b, losses, differentiates);
    }
}

static __global__ void ranking_loss_kernel(struct pass p) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        sum += p.form.symmetric ? (p.losses[i] + p.sums[i]) / 2 : p.losses[i];
    sum = block_sum<WARPS>(sum) * p.weight;
    add_term(p, sum);
}

static void rank(const struct snug_run *run, const struct pass &p) {
    const bool symmetric = p.form.symmetric;
    rank_text(run, p, 0, true, p.d && !symmetric);
    if (symmetric) rank_text(run, p, 1, true, false);
    if (symmetric && p.d) rank_text(run, p, 0, false, true);
    for (int64_t text = 1; text < p.texts && p.d; text++) rank_text(run, p, text, false, true);
    ranking_loss_kernel<<<1, THREADS, 0, snug_cuda_of(run)->stream>>>(p);
}

/* ---- losses of a row's own pairs ------------------------------------------------------------------------------- */

/* A warp has a pair: its similarity, signed where its absolute value counts, or distance. */
static __global__ void pairs_kernel(struct pass p) {
    const int64_t pair = (int64_t)blockIdx.x * WARPS + threadIdx.y, row = pair / (p.texts - 1);
    const int64_t text = 1 + pair % (p.texts - 1);
    if (row >= p.n) return;
    const float *a = vector_of(p, row, 0), *b = vector_of(p, row, text);
    const float of_a = p.inverse[row * p.texts], of_b = p.inverse[row * p.texts + text];
    float sum = 0;
    for (int64_t c = threadIdx.x; c < p.dim; c += 32) {
        if (p.form.function == SNUG_LOSS_TRIPLET) {
            const float difference = a[c] * of_a - b[c] * of_b;
            sum += difference * difference;
            continue;
        }
        float sign, other = b[c];
        const int64_t turned = snug_turned(c, p.dim, &sign);
        if (p.form.function == SNUG_LOSS_ANGLE && turned >= 0) other += sign * b[turned];
        sum += a[c] * other;
    }
    sum = warp_sum(sum);
    if (threadIdx.x) return;
    p.s[(text - 1) * p.n + row] = p.form.function == SNUG_LOSS_TRIPLET ? sqrtf(sum) : sum * of_a * of_b;
}

static __device__ __forceinline__ float similarity_of(const struct pass &p, int64_t row) {
    return p.form.function == SNUG_LOSS_ANGLE ? fabsf(p.s[row]) : p.s[row];
}
static __device__ __forceinline__ float score_of(const struct pass &p, int64_t row) { return p.scores[row * p.texts]; }

/* COSENT: a block has row i. First its largest difference, to of_rows; that of all rows, to of_texts[0]; then what s_i
   adds and takes off. */
static __global__ void differences_kernel(struct pass p) {
    const int64_t i = blockIdx.x;
    float most = 0;
    for (int64_t j = threadIdx.x; j < p.n; j += THREADS)
        if (score_of(p, i) < score_of(p, j)) most = fmaxf(most, similarity_of(p, i) - similarity_of(p, j));
    most = block_max<WARPS>(most);
    if (threadIdx.x == 0) p.of_rows[i] = most * p.form.scale;
}
static __global__ void largest_kernel(struct pass p) {
    float most = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) most = fmaxf(most, p.of_rows[i]);
    most = block_max<WARPS>(most);
    if (threadIdx.x == 0) p.of_texts[0] = most; /* any number close to it will do */
}
static __global__ void exponentials_kernel(struct pass p) {
    const int64_t i = blockIdx.x;
    const double most = p.of_texts[0], scale = p.form.scale;
    double plus = 0, minus = 0;
    for (int64_t j = threadIdx.x; j < p.n; j += THREADS) {
        const double difference = scale * ((double)similarity_of(p, i) - (double)similarity_of(p, j));
        if (score_of(p, i) < score_of(p, j)) plus += exp(difference - most);
        if (score_of(p, i) > score_of(p, j)) minus += exp(-difference - most);
    }
    plus = block_sum<WARPS>(plus);
    minus = block_sum<WARPS>(minus);
    if (threadIdx.x) return;
    p.losses[i] = plus;
    p.sums[i] = plus - minus;
}
static __global__ void cosent_kernel(struct pass p) {
    const double most = p.of_texts[0];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) sum += p.losses[i];
    sum = block_sum<WARPS>(sum) + exp(-most);
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS)
        p.slope[i] = (float)((double)p.n * p.form.scale * p.sums[i] / sum);
    add_term(p, p.weight * (double)p.n * (most + log(sum)));
}

static __global__ void rows_kernel(struct pass p) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.n; i += THREADS) {
        if (p.form.function != SNUG_LOSS_TRIPLET) {
            sum += snug_vector_pair(&p.form, p.s[i], score_of(p, i), &p.slope[i]);
            continue;
        }
        const float room = p.s[i] - p.s[p.n + i] + p.form.margin;
        p.slope[i] = room > 0;
        p.slope[p.n + i] = -p.slope[i];
        sum += room > 0 ? room : 0;
    }
    sum = block_sum<WARPS>(sum) * p.weight;
    add_term(p, sum);
}

/* A warp has a row of data: the gradients of its vectors. */
static __global__ void pair_gradients_kernel(struct pass p) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (row >= p.n) return;
    const bool far = p.form.function == SNUG_LOSS_TRIPLET, angle = p.form.function == SNUG_LOSS_ANGLE;
    const float *a = vector_of(p, row, 0);
    float *of_a = gradient_of(p, row, 0);
    const float ia = p.inverse[row * p.texts], turns_a = p.turns[row * p.texts];
    for (int64_t text = 1; text < p.texts; text++) {
        const float *b = vector_of(p, row, text);
        float *of_b = gradient_of(p, row, text);
        const float ib = p.inverse[row * p.texts + text], turns_b = p.turns[row * p.texts + text];
        const float s = p.s[(text - 1) * p.n + row];
        float slope = factor_of(p) * p.slope[(text - 1) * p.n + row];
        if (angle && s < 0) slope = -slope;
        if (far) slope = s > 0 ? slope / s : 0;
        float aa = 0, bb = 0, ab = 0; /* of vectors of length 1 */
        for (int64_t c = threadIdx.x; c < p.dim && far; c += 32) {
            aa += a[c] * a[c];
            bb += b[c] * b[c];
            ab += a[c] * b[c];
        }
        aa = warp_sum(aa) * ia * ia, bb = warp_sum(bb) * ib * ib, ab = warp_sum(ab) * ia * ib;
        const float along_a = far ? aa - ab : s, along_b = far ? bb - ab : s;
        for (int64_t c = threadIdx.x; c < p.dim; c += 32) {
            float sign, ga = b[c], gb = a[c];
            const int64_t turned = snug_turned(c, p.dim, &sign); /* J's transpose is its negative */
            if (angle && turned >= 0) ga += sign * b[turned], gb -= sign * a[turned];
            const float own_a = far ? ia * a[c] - ib * ga : ib * ga, own_b = far ? ib * b[c] - ia * gb : ia * gb;
            of_a[c] += slope * ia * (own_a - turns_a * along_a * ia * a[c]);
            of_b[c] += slope * ib * (own_b - turns_b * along_b * ib * b[c]);
        }
    }
}

static void pair(const struct snug_run *run, const struct pass &p) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const bool compares = p.form.function == SNUG_LOSS_COSENT || p.form.function == SNUG_LOSS_ANGLE;
    pairs_kernel<<<blocks_for(p.n * (p.texts - 1), WARPS), dim3(32, WARPS), 0, stream>>>(p);
    if (compares) {
        differences_kernel<<<(unsigned)p.n, THREADS, 0, stream>>>(p);
        largest_kernel<<<1, THREADS, 0, stream>>>(p);
        exponentials_kernel<<<(unsigned)p.n, THREADS, 0, stream>>>(p);
        cosent_kernel<<<1, THREADS, 0, stream>>>(p);
    } else {
        rows_kernel<<<1, THREADS, 0, stream>>>(p);
    }
    if (p.d) pair_gradients_kernel<<<blocks_for(p.n, WARPS), dim3(32, WARPS), 0, stream>>>(p);
}

/* ---- all terms ------------------------------------------------------------------------------------------------- */

static void lay_out(struct pass &p, float *scratch) {
    p.losses = (double *)scratch;
    p.sums = p.losses + p.n;
    p.inverse = scratch + 4 * p.n;
    p.turns = p.inverse + p.texts * p.n;
    p.of_rows = p.turns + p.texts * p.n;
    p.of_texts = p.of_rows + p.n;
    p.s = p.of_texts + p.n;
    p.slope = p.s + (p.texts - 1) * p.n;
    p.along = p.slope + (p.texts - 1) * p.n;
    p.block = p.along + SNUG_CUDA_LOSS_ROWS;
}

extern "C" snug_status snug_cuda_vector_loss(struct snug_run *run, const struct snug_op *op) {
    const struct snug_vector_loss_op &v = op->vector_loss;
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    struct pass p = {.form = v.form,
                     .batch = snug_cuda_of(run)->batch,
                     .x = (const float *)snug_run_data(run, v.vectors),
                     .scores = (const float *)snug_run_data(run, v.scores),
                     .d = (float *)snug_run_data(run, v.d),
                     .loss = (float *)snug_run_data(run, v.loss),
                     .n = run->step_rows / v.form.texts,
                     .cols = snug_run_cols(run, v.vectors),
                     .texts = v.form.texts};
    if (p.n == 0) return SNUG_OK;
    lay_out(p, (float *)run->workspace);
    if (p.d) cudaMemsetAsync(p.d, 0, (size_t)(p.n * p.texts * p.cols) * sizeof *p.d, stream);
    for (int i = 0; i < snug_vector_passes(&v.form); i++) {
        const struct snug_vector_pass part = snug_vector_pass(&v.form, i, p.cols);
        p.dim = part.dim;
        p.unit = part.unit;
        p.weight = part.weight;
        p.again = i > 0;
        lengths_kernel<<<blocks_for(p.n * p.texts, WARPS), dim3(32, WARPS), 0, stream>>>(p);
        if (v.form.function == SNUG_LOSS_RANKING)
            rank(run, p);
        else
            pair(run, p);
    }
    return snug_cuda_done(run, op);
}
