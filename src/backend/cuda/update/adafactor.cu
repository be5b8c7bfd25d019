/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformers' Adafactor (Shazeer and Stern, arXiv:1804.04235), of a weight or of all at once, in four launches:
 * squares of rows and of columns; the factors of columns and the mean over rows; the norm of the resulting update; the
 * update. A block processes a part of a matrix's rows, or a vector, which the first launch completes. Every launch but
 * the second reads the gradient. The order of all sums is that of optim/formulas/adafactor.h: its lanes are a warp's,
 * its groups a block's warps.
 */
#include "backend/cuda/update/update.cuh"

#define inline inline __host__ __device__
#include "optim/formulas/adafactor.h"
#undef inline

enum { THREADS = SNUG_ADAFACTOR_SUMS, WARPS = SNUG_ADAFACTOR_GROUPS, CHUNK = 32 * SNUG_ADAFACTOR_EACH };
enum { AHEAD = 4 }; /* elements whose loads a thread begins before it stores one */

struct adafactor {
    float *p;
    bf16 *p16; /* the parameter itself if it is stored in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    float *row_state, *column_state, *momentum; /* vectors have column_state only; momentum may be NULL */
    const struct snug_cuda_step *step;
    int64_t rows, cols; /* of one parameter of the stack; a vector has 1 row */
    int32_t parts;      /* of rows */
    bool vector, decay;
    int32_t parameter;
    int64_t element; /* of the parameter, at which p begins */
    /* Scratch, for each parameter of the stack. */
    double *sizes, *squares, *row_mean; /* [parts]: of p, of the update; [1] */
    float *columns, *factors;           /* [parts, cols]; [cols] */
    /* For all weights at once, see multi_tensor.c; entries is NULL for a single weight. */
    const struct snug_cuda_entry *entries;
    int32_t count;
    uint8_t *arena, *workspace;
};

static __device__ __forceinline__ float parameter_at(const struct adafactor &a, int64_t i) {
    return a.p ? a.p[i] : to_float(a.p16[i]);
}

static __host__ __device__ void lay_out_scratch(struct adafactor &a, uint8_t *workspace, int64_t segments) {
    a.sizes = (double *)workspace;
    a.squares = a.sizes + segments * a.parts;
    a.row_mean = a.squares + segments * a.parts;
    a.columns = (float *)(a.row_mean + segments);
    a.factors = a.columns + segments * a.parts * a.cols;
}

static __device__ float *state_at(const struct adafactor &a, int64_t offset) {
    return offset < 0 ? NULL : (float *)(a.arena + offset);
}

/* The work of a block: a part of the rows of one parameter of a stack. */
struct place {
    int64_t part, begin, end, first; /* number of the part; its rows; the stack's elements before this parameter */
};

/* This block's work. Sets *a to its weight, with the pointers of its parameter of the stack; p and g still point to the
   whole stack. */
static __device__ struct place take_place(struct adafactor &a) {
    int64_t block = blockIdx.x;
    if (a.entries) {
        const struct snug_cuda_entry entry = entry_of_block(a.entries, a.count);
        block -= entry.block;
        take_entry(a, entry, a.arena);
        a.cols = entry.cols;
        a.rows = entry.count / entry.segments / entry.cols;
        a.parts = entry.parts;
        a.vector = entry.vector;
        a.row_state = entry.vector ? NULL : state_at(a, entry.state[0]);
        a.column_state = state_at(a, entry.vector ? entry.state[0] : entry.state[1]);
        a.momentum = state_at(a, entry.vector ? entry.state[1] : entry.state[2]);
        a.decay = entry.decay;
        lay_out_scratch(a, a.workspace + entry.scratch, entry.segments);
    }
    const int64_t number = block / a.parts, part = block % a.parts;
    if (a.row_state) a.row_state += number * a.rows;
    a.column_state += number * a.cols;
    a.sizes += number * a.parts;
    a.squares += number * a.parts;
    a.row_mean += number;
    a.columns += number * a.parts * a.cols;
    a.factors += number * a.cols;
    return {part, snug_adafactor_begin(a.rows, a.parts, part), snug_adafactor_begin(a.rows, a.parts, part + 1),
            number * a.rows * a.cols};
}

static __device__ struct snug_adafactor_numbers numbers_of(const struct adafactor &a) {
    struct snug_adafactor_numbers s = a.step->update.numbers.adafactor;
    if (!a.decay) s.decay = 0;
    return s;
}

/* This lane's sum of the squares of value(column) over a row. All loads of a chunk begin before the first is used. */
template <typename F> static __device__ __forceinline__ double lane_sum(const struct adafactor &a, F value) {
    double sum = 0;
    int64_t first = threadIdx.x % 32;
    for (; first + CHUNK - 32 < a.cols; first += CHUNK) {
        float x[SNUG_ADAFACTOR_EACH], part = 0;
#pragma unroll
        for (int i = 0; i < SNUG_ADAFACTOR_EACH; i++) x[i] = value(first + 32 * i);
#pragma unroll
        for (int i = 0; i < SNUG_ADAFACTOR_EACH; i++) part += x[i] * x[i];
        sum += part;
    }
    float part = 0;
    for (; first < a.cols; first += 32) {
        const float x = value(first);
        part += x * x;
    }
    return sum + part;
}

/* Squares of a part: its rows' new means (y = 0), its columns' sums (y = 1), and that of p (y = 2). */
static __device__ void square_part(const struct adafactor &a, const struct place &at, float clip) {
    if (blockIdx.y == 0) {
        const struct snug_adafactor_numbers s = numbers_of(a);
        for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
            const float *g = a.g + at.first + row * a.cols;
            const double sum = warp_sum(lane_sum(a, [&](int64_t c) { return g[c] * clip; }));
            if (threadIdx.x % 32 == 0)
                a.row_state[row] = snug_adafactor_average(&s, a.row_state[row], snug_adafactor_mean(&s, sum, a.cols));
        }
    } else if (blockIdx.y == 1) {
        for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
            float sum = 0;
            for (int64_t row = at.begin; row < at.end; row++) {
                const float g = a.g[at.first + row * a.cols + c] * clip;
                sum += g * g;
            }
            a.columns[at.part * a.cols + c] = sum;
        }
    } else {
        double sum = 0;
        for (int64_t i = at.begin * a.cols + threadIdx.x; i < at.end * a.cols; i += THREADS)
            sum += (double)parameter_at(a, at.first + i) * parameter_at(a, at.first + i);
        sum = block_sum<WARPS>(sum);
        if (threadIdx.x == 0) a.sizes[at.part] = sum;
    }
}

/* A part's share of the columns; the first part computes the mean over the rows. */
static __global__ void __launch_bounds__(THREADS) factor_kernel(struct adafactor a) {
    if (a.step->skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    const struct snug_adafactor_numbers s = numbers_of(a);
    for (int64_t c = a.cols * at.part / a.parts + threadIdx.x; c < a.cols * (at.part + 1) / a.parts; c += THREADS) {
        double sum = 0;
        for (int part = 0; part < a.parts; part++) sum += a.columns[part * a.cols + c];
        const float state = snug_adafactor_average(&s, a.column_state[c], snug_adafactor_mean(&s, sum, a.rows));
        a.column_state[c] = state;
        a.factors[c] = snug_adafactor_column_factor(state);
    }
    if (at.part > 0) return;
    double sum = 0;
    for (int64_t row = threadIdx.x; row < a.rows; row += THREADS) sum += a.row_state[row];
    sum = block_sum<WARPS>(sum);
    if (threadIdx.x == 0) *a.row_mean = sum / (double)a.rows;
}

static __device__ __forceinline__ float row_factor(const struct adafactor &a, int64_t row, float clip) {
    return snug_adafactor_row_factor(a.row_state[row], *a.row_mean) * clip;
}

/* The sum of squares of a part's update, before it is scaled. */
static __global__ void __launch_bounds__(THREADS) measure_kernel(struct adafactor a) {
    if (a.step->skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    const float clip = a.clip ? a.clip[1] : 1;
    double sum = 0;
    for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
        const float factor = row_factor(a, row, clip), *g = a.g + at.first + row * a.cols;
        sum += lane_sum(a, [&](int64_t c) { return snug_adafactor_direction(g[c], factor, a.factors[c]); });
    }
    sum = block_sum<WARPS>(sum);
    if (threadIdx.x == 0) a.squares[at.part] = sum;
}

/* u: the update without the factor that the whole parameter shares; step: a copy, which no store changes. */
static __device__ __forceinline__ void update_one(const struct adafactor &a, const struct snug_cuda_step &step,
                                                  const struct snug_adafactor_numbers &s,
                                                  const struct snug_adafactor_scales &scales, int64_t i, float p,
                                                  float u) {
    store_parameter(a, step, i,
                    a.momentum ? snug_adafactor_momentum_step(&s, &scales, p, u, &a.momentum[i])
                               : snug_adafactor_step(&scales, p, u));
}

static __global__ void __launch_bounds__(THREADS) apply_kernel(struct adafactor a) {
    if (a.step->skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    const struct snug_adafactor_numbers s = numbers_of(a);
    double size = 0, square = 0; /* over all parts, in order */
    for (int part = 0; part < a.parts; part++) {
        if (s.scales) size += a.sizes[part];
        square += a.squares[part];
    }
    const struct snug_adafactor_scales scales = snug_adafactor_scales(&s, size, square, a.rows * a.cols);
    const float clip = a.clip ? a.clip[1] : 1;
    const struct snug_cuda_step step = *a.step;
    for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
        const float factor = row_factor(a, row, clip);
        const int64_t begin = at.first + row * a.cols;
        int64_t c = threadIdx.x % 32;
        for (; c + 32 * (AHEAD - 1) < a.cols; c += 32 * AHEAD) {
            float p[AHEAD], u[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                p[k] = parameter_at(a, begin + c + 32 * k);
                u[k] = snug_adafactor_direction(a.g[begin + c + 32 * k], factor, a.factors[c + 32 * k]);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) update_one(a, step, s, scales, begin + c + 32 * k, p[k], u[k]);
        }
        for (; c < a.cols; c += 32)
            update_one(a, step, s, scales, begin + c, parameter_at(a, begin + c),
                       snug_adafactor_direction(a.g[begin + c], factor, a.factors[c]));
    }
}

/* The whole update of a vector. */
static __device__ void update_vector(const struct adafactor &a, const struct place &at, float clip) {
    const struct snug_adafactor_numbers s = numbers_of(a);
    double size = 0, square = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float g = a.g[at.first + c] * clip;
        const float state = snug_adafactor_average(&s, a.column_state[c], g * g + s.epsilon);
        const float u = snug_adafactor_vector_direction(g, state);
        a.column_state[c] = state;
        square += (double)u * u;
        if (s.scales) size += (double)parameter_at(a, at.first + c) * parameter_at(a, at.first + c);
    }
    square = block_sum<WARPS>(square);
    if (s.scales) size = block_sum<WARPS>(size);
    const struct snug_adafactor_scales scales = snug_adafactor_scales(&s, size, square, a.rows * a.cols);
    const struct snug_cuda_step step = *a.step;
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS)
        update_one(a, step, s, scales, at.first + c, parameter_at(a, at.first + c),
                   snug_adafactor_vector_direction(a.g[at.first + c] * clip, a.column_state[c]));
}

static __global__ void __launch_bounds__(THREADS) square_kernel(struct adafactor a) {
    if (a.step->skip) return;
    const struct place at = take_place(a);
    const float clip = a.clip ? a.clip[1] : 1;
    if (!a.vector)
        square_part(a, at, clip);
    else if (blockIdx.y == 0)
        update_vector(a, at, clip);
}

/* ---- launching ---- */

extern "C" snug_status snug_cuda_adafactor(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const enum snug_cuda_share share = snug_cuda_share_of(run, op, &cuda->updates);
    if (share == SNUG_CUDA_NO_TENSOR) return SNUG_OK;
    const int factors = op->update.vector ? 1 : 2; /* number of states before the first moment */
    struct adafactor a = weight_of<struct adafactor>(run, op);
    a.arena = run->arena;
    a.workspace = (uint8_t *)run->workspace;
    int64_t blocks = cuda->updates.blocks;
    if (share == SNUG_CUDA_ALL_TENSORS) {
        a.entries = cuda->batch.updates;
        a.count = cuda->updates.count;
    } else {
        a.cols = snug_run_cols(run, op->update.weight);
        a.rows = snug_run_rows(run, op->update.weight) / op->update.segments;
        /* Offloaded weights are updated one by one, and give the bits of the launch for all. */
        a.parts = op->update.vector ? 1 : snug_cuda_adafactor_parts(a.rows, cuda->updates.first >= 0);
        a.vector = op->update.vector;
        a.row_state = op->update.vector ? NULL : (float *)snug_run_data(run, op->update.states[0]);
        a.column_state = (float *)snug_run_data(run, op->update.states[factors - 1]);
        a.momentum = (float *)snug_run_data(run, op->update.states[factors]);
        a.decay = op->update.decay;
        lay_out_scratch(a, a.workspace, op->update.segments);
        blocks = a.cols > 0 ? op->update.segments * a.parts : 0;
    }
    if (blocks == 0) return SNUG_OK;
    square_kernel<<<dim3((unsigned)blocks, run->optimizer->scale_parameter ? 3 : 2), THREADS, 0, cuda->stream>>>(a);
    if (!a.vector) {
        factor_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
        measure_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
        apply_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
    }
    return snug_cuda_done(run, op);
}
