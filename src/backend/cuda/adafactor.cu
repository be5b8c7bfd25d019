/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformers' Adafactor (Shazeer and Stern, arXiv:1804.04235), of a weight or of all at once, in four launches:
 * squares of rows and of columns; the factors of columns and the mean over rows; the norm of the resulting update; the
 * update. A block processes a part of a matrix's rows, or a vector, which the first launch completes. Every launch but
 * the second reads the gradient. Sums have a fixed order: a warp sums a row; columns and totals are summed over parts,
 * then over the parts in order.
 */
#include "backend/cuda/update.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct adafactor {
    float *p;
    bf16 *p16; /* the parameter itself if it is stored in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    float *row_state, *column_state, *momentum; /* vectors have column_state only; momentum may be NULL */
    const struct snug_cuda_step *step;
    int64_t rows, cols; /* of one parameter of the stack; a vector has 1 row */
    int32_t parts;      /* of rows */
    bool vector;
    float eps, eps2, threshold, b1, rest1, decay;
    bool scales;
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

static __device__ double block_sum(double value) {
    __shared__ double shared[WARPS];
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int i = 0; i < WARPS; i++) value += shared[i];
    return value;
}

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
        if (!entry.decay) a.decay = 0;
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
    return {part, a.rows * part / a.parts, a.rows * (part + 1) / a.parts, number * a.rows * a.cols};
}

static __device__ __forceinline__ float average(float state, float mean, float fresh) {
    return state * (1 - fresh) + mean * fresh;
}

/* Squares of a part: its rows' new means (y = 0), its columns' sums (y = 1), and that of p (y = 2). */
static __device__ void square_part(const struct adafactor &a, const struct place &at, const struct snug_cuda_step &step,
                                   float clip) {
    if (blockIdx.y == 0) {
        for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
            double sum = 0;
            for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
                const float g = a.g[at.first + row * a.cols + c] * clip;
                sum += g * g;
            }
            sum = warp_sum(sum);
            if (threadIdx.x % 32 == 0)
                a.row_state[row] = average(a.row_state[row], (float)(sum / (double)a.cols + a.eps), step.fresh);
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
        sum = block_sum(sum);
        if (threadIdx.x == 0) a.sizes[at.part] = sum;
    }
}

/* A part's share of the columns; the first part computes the mean over the rows. */
static __global__ void __launch_bounds__(THREADS) factor_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    for (int64_t c = a.cols * at.part / a.parts + threadIdx.x; c < a.cols * (at.part + 1) / a.parts; c += THREADS) {
        double sum = 0;
        for (int part = 0; part < a.parts; part++) sum += a.columns[part * a.cols + c];
        a.column_state[c] = average(a.column_state[c], (float)(sum / (double)a.rows + a.eps), step.fresh);
        a.factors[c] = 1 / sqrtf(a.column_state[c]);
    }
    if (at.part > 0) return;
    double sum = 0;
    for (int64_t row = threadIdx.x; row < a.rows; row += THREADS) sum += a.row_state[row];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *a.row_mean = sum / (double)a.rows;
}

static __device__ __forceinline__ float row_factor(const struct adafactor &a, int64_t row) {
    return (float)(1 / sqrt((double)a.row_state[row] / *a.row_mean));
}

/* The sum of squares of a part's update, before it is scaled. */
static __global__ void __launch_bounds__(THREADS) measure_kernel(struct adafactor a) {
    if (a.step->skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    const float clip = a.clip ? a.clip[1] : 1;
    const float *g = a.g + at.first;
    double sum = 0;
    for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
        const float factor = row_factor(a, row) * clip;
        float part = 0;
        for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
            const float u = g[row * a.cols + c] * factor * a.factors[c];
            part += u * u;
        }
        sum += part;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) a.squares[at.part] = sum;
}

/* The factor of a parameter's update, from the sums of squares of p and of the update; the factor of p (weight
   decay). */
struct scales {
    float step, keep;
};
static __device__ struct scales scales_of(const struct adafactor &a, double learning_rate, double size, double square) {
    const double elements = (double)(a.rows * a.cols);
    if (a.scales) learning_rate *= fmax((double)a.eps2, sqrt(size / elements));
    return {(float)(learning_rate / fmax(1.0, sqrt(square / elements) / a.threshold)),
            (float)(1 - learning_rate * a.decay)};
}

/* u: the update without the factor that the whole parameter shares. */
static __device__ __forceinline__ void update_one(const struct adafactor &a, const struct snug_cuda_step &step,
                                                  const struct scales &s, int64_t i, float u) {
    u *= s.step;
    if (a.momentum) a.momentum[i] = u = a.momentum[i] * a.b1 + u * a.rest1;
    store_parameter(a, step, i, parameter_at(a, i) * s.keep - u);
}

static __global__ void __launch_bounds__(THREADS) apply_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    const struct place at = take_place(a);
    if (a.vector) return;
    double size = 0, square = 0; /* over all parts, in order */
    for (int part = 0; part < a.parts; part++) {
        if (a.scales) size += a.sizes[part];
        square += a.squares[part];
    }
    const struct scales s = scales_of(a, step.learning_rate, size, square);
    const float clip = a.clip ? a.clip[1] : 1;
    for (int64_t row = at.begin + threadIdx.x / 32; row < at.end; row += WARPS) {
        const float factor = row_factor(a, row) * clip;
        for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
            const int64_t i = at.first + row * a.cols + c;
            update_one(a, step, s, i, a.g[i] * factor * a.factors[c]);
        }
    }
}

/* The whole update of a vector. */
static __device__ void update_vector(const struct adafactor &a, const struct place &at,
                                     const struct snug_cuda_step &step, float clip) {
    double size = 0, square = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float g = a.g[at.first + c] * clip, mean = average(a.column_state[c], g * g + a.eps, step.fresh);
        const float u = g / sqrtf(mean);
        a.column_state[c] = mean;
        square += (double)u * u;
        if (a.scales) size += (double)parameter_at(a, at.first + c) * parameter_at(a, at.first + c);
    }
    square = block_sum(square);
    if (a.scales) size = block_sum(size);
    const struct scales s = scales_of(a, step.learning_rate, size, square);
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS)
        update_one(a, step, s, at.first + c, a.g[at.first + c] * clip / sqrtf(a.column_state[c]));
}

static __global__ void __launch_bounds__(THREADS) square_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    const struct place at = take_place(a);
    const float clip = a.clip ? a.clip[1] : 1;
    if (!a.vector)
        square_part(a, at, step, clip);
    else if (blockIdx.y == 0)
        update_vector(a, at, step, clip);
}

/* ---- launching ---- */

extern "C" snug_status snug_cuda_adafactor(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_optimizer *o = run->optimizer;
    const enum snug_cuda_share share = snug_cuda_share_of(run, op, &cuda->updates);
    if (share == SNUG_CUDA_NO_TENSOR) return SNUG_OK;
    const int factors = op->update.vector ? 1 : 2; /* number of states before the first moment */
    struct adafactor a = weight_of<struct adafactor>(run, op);
    a.eps = (float)o->epsilon;
    a.eps2 = (float)o->epsilon2;
    a.threshold = (float)o->clip_threshold;
    a.b1 = (float)o->beta1;
    a.rest1 = (float)(1 - o->beta1);
    a.decay = (float)o->weight_decay;
    a.scales = o->scale_parameter;
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
        a.parts = op->update.vector ? 1 : snug_cuda_parts(a.rows, cuda->updates.first >= 0);
        a.vector = op->update.vector;
        a.row_state = op->update.vector ? NULL : (float *)snug_run_data(run, op->update.states[0]);
        a.column_state = (float *)snug_run_data(run, op->update.states[factors - 1]);
        a.momentum = (float *)snug_run_data(run, op->update.states[factors]);
        if (!op->update.decay) a.decay = 0;
        lay_out_scratch(a, a.workspace, op->update.segments);
        blocks = a.cols > 0 ? op->update.segments * a.parts : 0;
    }
    if (blocks == 0) return SNUG_OK;
    square_kernel<<<dim3((unsigned)blocks, a.scales ? 3 : 2), THREADS, 0, cuda->stream>>>(a);
    if (!a.vector) {
        factor_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
        measure_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
        apply_kernel<<<(unsigned)blocks, THREADS, 0, cuda->stream>>>(a);
    }
    return snug_cuda_done(run, op);
}
