/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transformers' Adafactor (Shazeer and Stern, arXiv:1804.04235). A stack of matrices takes four launches: squares of
 * rows and of columns; the factors of columns and the mean over rows; the size of the update that follows; the update.
 * The gradient is read in each but the second, mostly from the second cache. A stack of vectors takes one, a block each.
 * Sums have a fixed order: a row is a warp's; columns and totals are summed over parts, then the parts in order.
 */
#include "backend/cuda/update.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, MOST_PARTS = 256 };

struct adafactor {
    float *p;
    bf16 *p16; /* the parameter itself where it is kept in bf16 */
    struct weight_copy copy;
    const float *g, *clip;
    float *row_state, *column_state, *momentum; /* of vectors, column_state alone; momentum may be NULL */
    const struct snug_cuda_step *step;
    int64_t rows, cols; /* of one of the stack */
    int parts;          /* of rows */
    float eps, eps2, threshold, b1, rest1, decay;
    bool scales;
    int32_t parameter;
    /* Scratch, for each of the stack. */
    double *sizes, *squares, *row_mean; /* [parts]: of p, of the update; [1] */
    float *columns, *factors;           /* [parts, cols]; [cols] */
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

/* The pointers of number blockIdx.y of the stack; p and its kin keep counting from the stack's beginning. */
static __device__ __forceinline__ void take_one(struct adafactor &a) {
    const int64_t number = blockIdx.y;
    if (a.row_state) a.row_state += number * a.rows;
    a.column_state += number * a.cols;
    a.sizes += number * a.parts;
    a.squares += number * a.parts;
    a.row_mean += number;
    a.columns += number * a.parts * a.cols;
    a.factors += number * a.cols;
}

struct range {
    int64_t begin, end;
};
static __device__ __forceinline__ struct range rows_of_part(const struct adafactor &a, int64_t part) {
    return {a.rows * part / a.parts, a.rows * (part + 1) / a.parts};
}

static __device__ __forceinline__ float average(float state, float mean, float fresh) {
    return state * (1 - fresh) + mean * fresh;
}

/* Squares of a part: its rows' new means (z = 0), its columns' sums (z = 1), and that of p (z = 2). */
static __global__ void __launch_bounds__(THREADS) square_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    take_one(a);
    const float clip = a.clip ? a.clip[1] : 1;
    const struct range range = rows_of_part(a, blockIdx.x);
    const int64_t first = blockIdx.y * a.rows * a.cols;
    if (blockIdx.z == 0) {
        for (int64_t row = range.begin + threadIdx.x / 32; row < range.end; row += WARPS) {
            double sum = 0;
            for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
                const float g = a.g[first + row * a.cols + c] * clip;
                sum += g * g;
            }
            sum = warp_sum(sum);
            if (threadIdx.x % 32 == 0)
                a.row_state[row] = average(a.row_state[row], (float)(sum / (double)a.cols + a.eps), step.fresh);
        }
    } else if (blockIdx.z == 1) {
        for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
            float sum = 0;
            for (int64_t row = range.begin; row < range.end; row++) {
                const float g = a.g[first + row * a.cols + c] * clip;
                sum += g * g;
            }
            a.columns[blockIdx.x * a.cols + c] = sum;
        }
    } else {
        double sum = 0;
        for (int64_t i = range.begin * a.cols + threadIdx.x; i < range.end * a.cols; i += THREADS)
            sum += (double)parameter_at(a, first + i) * parameter_at(a, first + i);
        sum = block_sum(sum);
        if (threadIdx.x == 0) a.sizes[blockIdx.x] = sum;
    }
}

/* 256 columns a block; the last block means the rows. */
static __global__ void __launch_bounds__(THREADS) factor_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    take_one(a);
    if (blockIdx.x == gridDim.x - 1) {
        double sum = 0;
        for (int64_t row = threadIdx.x; row < a.rows; row += THREADS) sum += a.row_state[row];
        sum = block_sum(sum);
        if (threadIdx.x == 0) *a.row_mean = sum / (double)a.rows;
        return;
    }
    const int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= a.cols) return;
    double sum = 0;
    for (int part = 0; part < a.parts; part++) sum += a.columns[part * a.cols + c];
    a.column_state[c] = average(a.column_state[c], (float)(sum / (double)a.rows + a.eps), step.fresh);
    a.factors[c] = 1 / sqrtf(a.column_state[c]);
}

static __device__ __forceinline__ float row_factor(const struct adafactor &a, int64_t row) {
    return (float)(1 / sqrt((double)a.row_state[row] / *a.row_mean));
}

/* Squares of a part's update, before it is scaled. */
static __global__ void __launch_bounds__(THREADS) measure_kernel(struct adafactor a) {
    if (a.step->skip) return;
    take_one(a);
    const float clip = a.clip ? a.clip[1] : 1;
    const struct range range = rows_of_part(a, blockIdx.x);
    const float *g = a.g + blockIdx.y * a.rows * a.cols;
    double sum = 0;
    for (int64_t row = range.begin + threadIdx.x / 32; row < range.end; row += WARPS) {
        const float factor = row_factor(a, row) * clip;
        float part = 0;
        for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
            const float u = g[row * a.cols + c] * factor * a.factors[c];
            part += u * u;
        }
        sum += part;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) a.squares[blockIdx.x] = sum;
}

/* What the update of a parameter is multiplied by, from sums of squares of p and of the update; what p keeps. */
struct scales {
    float step, keep;
};
static __device__ struct scales scales_of(const struct adafactor &a, double learning_rate, double size, double square) {
    const double elements = (double)(a.rows * a.cols);
    if (a.scales) learning_rate *= fmax((double)a.eps2, sqrt(size / elements));
    return {(float)(learning_rate / fmax(1.0, sqrt(square / elements) / a.threshold)),
            (float)(1 - learning_rate * a.decay)};
}

/* u: the update but for what is common to the parameter. */
static __device__ __forceinline__ void update_one(const struct adafactor &a, const struct snug_cuda_step &step,
                                                  const struct scales &s, int64_t i, float u) {
    u *= s.step;
    if (a.momentum) a.momentum[i] = u = a.momentum[i] * a.b1 + u * a.rest1;
    store_parameter(a, step, i, parameter_at(a, i) * s.keep - u);
}

static __global__ void __launch_bounds__(THREADS) update_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    take_one(a);
    double size = 0, square = 0; /* of all parts, in order */
    for (int part = 0; part < a.parts; part++) {
        if (a.scales) size += a.sizes[part];
        square += a.squares[part];
    }
    const struct scales s = scales_of(a, step.learning_rate, size, square);
    const float clip = a.clip ? a.clip[1] : 1;
    const struct range range = rows_of_part(a, blockIdx.x);
    const int64_t first = blockIdx.y * a.rows * a.cols;
    for (int64_t row = range.begin + threadIdx.x / 32; row < range.end; row += WARPS) {
        const float factor = row_factor(a, row) * clip;
        for (int64_t c = threadIdx.x % 32; c < a.cols; c += 32) {
            const int64_t i = first + row * a.cols + c;
            update_one(a, step, s, i, a.g[i] * factor * a.factors[c]);
        }
    }
}

/* All of a vector. */
static __global__ void __launch_bounds__(THREADS) vector_kernel(struct adafactor a) {
    const struct snug_cuda_step step = *a.step;
    if (step.skip) return;
    take_one(a);
    const float clip = a.clip ? a.clip[1] : 1;
    const int64_t first = blockIdx.y * a.cols;
    double size = 0, square = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        const float g = a.g[first + c] * clip, mean = average(a.column_state[c], g * g + a.eps, step.fresh);
        const float u = g / sqrtf(mean);
        a.column_state[c] = mean;
        square += (double)u * u;
        if (a.scales) size += (double)parameter_at(a, first + c) * parameter_at(a, first + c);
    }
    square = block_sum(square);
    if (a.scales) size = block_sum(size);
    const struct scales s = scales_of(a, step.learning_rate, size, square);
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS)
        update_one(a, step, s, first + c, a.g[first + c] * clip / sqrtf(a.column_state[c]));
}

/* ---- launching ---- */

/* So many that the device is busy, and that each has some rows. */
static int parts_of(int64_t rows) {
    const int64_t parts = (rows + 7) / 8;
    return (int)(parts < MOST_PARTS ? parts : MOST_PARTS);
}

extern "C" int64_t snug_cuda_adafactor_workspace(const struct snug_program *program, const struct snug_op *op) {
    const struct snug_tensor *g = &program->tensors[op->in[0]];
    const int64_t parts = parts_of(g->rows / op->segments);
    const int64_t doubles = 2 * parts + 1, floats = (parts + 1) * g->cols;
    return op->vector ? 0 : op->segments * (doubles * (int64_t)sizeof(double) + floats * (int64_t)sizeof(float));
}

static void carve_scratch(struct adafactor *a, void *workspace, int64_t segments) {
    a->sizes = (double *)workspace;
    a->squares = a->sizes + segments * a->parts;
    a->row_mean = a->squares + segments * a->parts;
    a->columns = (float *)(a->row_mean + segments);
    a->factors = a->columns + segments * a->parts * a->cols;
}

extern "C" snug_status snug_cuda_adafactor(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const struct snug_optimizer *o = run->optimizer;
    const unsigned segments = (unsigned)op->segments;
    const int after = op->vector ? 3 : 4; /* where the first moment stands among the outputs */
    struct adafactor a = weight_of<struct adafactor>(run, op);
    a.row_state = op->vector ? NULL : (float *)snug_run_data(run, op->out[2]);
    a.column_state = (float *)snug_run_data(run, op->out[after - 1]);
    a.momentum = (float *)snug_run_data(run, op->out[after]);
    a.rows = snug_run_rows(run, op->out[0]) / op->segments;
    a.cols = snug_run_cols(run, op->out[0]);
    a.eps = (float)o->epsilon;
    a.eps2 = (float)o->epsilon2;
    a.threshold = (float)o->clip_threshold;
    a.b1 = (float)o->beta1;
    a.rest1 = (float)(1 - o->beta1);
    a.decay = decay_of(run, op);
    a.scales = o->scale_parameter;
    if (a.rows == 0 || a.cols == 0) return SNUG_OK;
    if (op->vector) {
        vector_kernel<<<dim3(1, segments), THREADS, 0, cuda->stream>>>(a);
        return snug_cuda_done(run, op);
    }
    a.parts = parts_of(a.rows);
    carve_scratch(&a, run->workspace, op->segments);
    const dim3 parts((unsigned)a.parts, segments);
    square_kernel<<<dim3(parts.x, parts.y, a.scales ? 3 : 2), THREADS, 0, cuda->stream>>>(a);
    factor_kernel<<<dim3(blocks_for(a.cols, THREADS) + 1, segments), THREADS, 0, cuda->stream>>>(a);
    measure_kernel<<<parts, THREADS, 0, cuda->stream>>>(a);
    update_kernel<<<parts, THREADS, 0, cuda->stream>>>(a);
    return snug_cuda_done(run, op);
}
