/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loss summed over items, and its gradient times loss_scale. A block takes a row; the rows' losses are added in
 * order afterwards. d may be the logits' own tensor: a row is read before it is overwritten.
 */
#include <cfloat>

#include "backend/cuda/device.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

struct loss {
    const void *logits;
    void *d; /* NULL: none */
    double *rows;
    float *losses;       /* of preferences: of each row */
    const float *scales; /* of preferences: what d of a sequence's rows is multiplied by, or NULL */
    struct snug_cuda_batch batch;
    int64_t classes;
    const float *weights; /* of the classes, or NULL */
    float smoothing;
};

static __device__ float weight_of(const struct loss &a, int64_t c) { return a.weights ? a.weights[c] : 1; }

/* The maximum of a row, and the sum of exp(x - max), in one pass: each thread's sum is rescaled when its maximum rises
   (online softmax: Milakov and Gimelshein, arXiv 1805.02867). N: values that a thread reads at once. */
template <int N, typename L>
static __device__ void row_sums(const struct loss &a, const L *x, float &max, double &sum) {
    max = -FLT_MAX; /* finite, so that differences of infinite logits are not NaN */
    sum = 0;
    for (int64_t c = N * threadIdx.x; c < a.classes; c += N * THREADS) {
        float values[N], top = -FLT_MAX;
        load<N>(values, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) top = fmaxf(top, values[i]);
        if (top > max) {
            sum *= expf(max - top);
            max = top;
        }
        float part = 0;
#pragma unroll
        for (int i = 0; i < N; i++) part += expf(values[i] - max);
        sum += part;
    }
    const float highest = block_max<WARPS>(max);
    sum = block_sum<WARPS>(sum * expf(max - highest));
    max = highest;
}

/* -sum_c t_c log softmax(x)_c, where t_c is the class's weight times 1 - e for the label, and e / C is added for every
   class. */
template <int N, typename L, typename T>
static __device__ double cross_entropy(const struct loss &a, const L *x, T *d, int64_t item, float scale) {
    const int32_t label = a.batch.labels[item];
    const bool counts = label != SNUG_IGNORE_LABEL;
    const float each = a.smoothing / (float)a.classes;
    float max;
    double sum, part = 0, loss = 0;
    row_sums<N>(a, x, max, sum);
    const float log_sum = (float)log(sum);
    float targets = counts ? weight_of(a, label) : 0; /* their sum */
    if (a.weights && a.smoothing > 0) {
        for (int64_t c = threadIdx.x; c < a.classes; c += THREADS) part += a.weights[c];
        targets = (1 - a.smoothing) * targets + each * (float)block_sum<WARPS>(part);
    }
    for (int64_t c = N * threadIdx.x; c < a.classes; c += N * THREADS) {
        float values[N];
        load<N>(values, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float log_p = values[i] - max - log_sum;
            const float target = weight_of(a, c + i) * ((c + i == label ? 1 - a.smoothing : 0) + each);
            if (counts && target != 0) loss -= (double)target * log_p;
            values[i] = counts ? (expf(log_p) * targets - target) * scale : 0;
        }
        if (d) store<N>(d + c, values);
    }
    return block_sum<WARPS>(loss);
}

/* The scale of the sequence that a loss position's token belongs to. */
static __device__ float scale_of(const struct loss &a, int64_t item) {
    const int32_t token = a.batch.loss_positions[item];
    int32_t low = 0, high = a.batch.step->sequences - 1;
    if (!a.scales) return 1;
    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (a.batch.offsets[middle] <= token)
            low = middle;
        else
            high = middle - 1;
    }
    return a.scales[low];
}

/* max(x, 0) - x t + log(1 + exp(-|x|)), which cannot overflow, and, with a class's weight w,
   -(w - 1) t log sigmoid(x). */
template <typename L, typename T>
static __device__ double binary_cross_entropy(const struct loss &a, const L *x, T *d, int64_t item) {
    double loss = 0;
    for (int64_t c = threadIdx.x; c < a.classes; c += THREADS) {
        const float value = to_float(x[c]), target = a.batch.targets[item * a.classes + c];
        const float rest = log1pf(expf(-fabsf(value))), more = (weight_of(a, c) - 1) * target;
        const float p = 1 / (1 + expf(-value));
        loss += fmaxf(value, 0) - value * target + rest + more * (fmaxf(-value, 0) + rest);
        if (d) d[c] = from_float<T>((p - target + more * (p - 1)) * a.batch.step->loss_scale);
    }
    return block_sum<WARPS>(loss);
}

/* The rows of the segment that begins at row. */
static __device__ int64_t segment_rows(const struct loss &a, int64_t row) {
    const int32_t *labels = a.batch.labels + a.batch.step->first_row;
    int64_t end = row + 1;
    while (end < a.batch.step->rows && !(labels[end] & SNUG_SEGMENT_BEGINS)) end++;
    return end - row;
}

/* The mean over columns of -log softmax over the rows from `row` to the end of its segment, of the column's target. The
   block reads a column twice; segments have the tokens of a sequence at most. */
template <typename L, typename T>
static __device__ double segment_cross_entropy(const struct loss &a, const L *logits, T *d, int64_t row) {
    const int32_t *labels = a.batch.labels + a.batch.step->first_row;
    const int64_t end = row + segment_rows(a, row), columns = a.classes;
    const float each = 1 / (float)columns;
    double loss = 0;
    for (int64_t c = 0; c < columns; c++) {
        float max = -FLT_MAX, found = 0;
        double part = 0;
        for (int64_t i = row + threadIdx.x; i < end; i += THREADS) {
            max = fmaxf(max, to_float(logits[i * columns + c]));
            if (labels[i] >> c & 1) found = 1;
        }
        max = block_max<WARPS>(max);
        found = block_max<WARPS>(found);
        for (int64_t i = row + threadIdx.x; i < end; i += THREADS)
            part += expf(to_float(logits[i * columns + c]) - max);
        const float log_sum = (float)log(block_sum<WARPS>(part));
        for (int64_t i = row + threadIdx.x; i < end; i += THREADS) {
            const float log_p = to_float(logits[i * columns + c]) - max - log_sum, target = labels[i] >> c & 1;
            loss -= (double)(target * log_p * each);
            if (d) d[i * columns + c] = from_float<T>((expf(log_p) - target) * found * each * a.batch.step->loss_scale);
        }
    }
    return block_sum<WARPS>(loss);
}

/* -sum t log softmax over the rows of a segment, of targets whose sum is 1, or 0 where they are not known. */
template <typename L, typename T>
static __device__ double segment_distribution(const struct loss &a, const L *x, T *d, const float *targets,
                                              int64_t rows) {
    float max = -FLT_MAX;
    double part = 0, own = 0, loss = 0;
    for (int64_t i = threadIdx.x; i < rows; i += THREADS) max = fmaxf(max, to_float(x[i]));
    max = block_max<WARPS>(max);
    for (int64_t i = threadIdx.x; i < rows; i += THREADS) {
        part += expf(to_float(x[i]) - max);
        own += targets[i];
    }
    const float log_sum = (float)log(block_sum<WARPS>(part)), known = (float)block_sum<WARPS>(own);
    for (int64_t i = threadIdx.x; i < rows; i += THREADS) {
        const float log_p = to_float(x[i]) - max - log_sum;
        loss -= (double)(targets[i] * log_p);
        if (d) d[i] = from_float<T>((expf(log_p) * known - targets[i]) * a.batch.step->loss_scale);
    }
    return block_sum<WARPS>(loss);
}

/* The sum of (x_0 - x_i - t_i)^2 over the rows of a segment but the first, whose target is 0 where the others are not
   known, else 1. */
template <typename L, typename T>
static __device__ double segment_margin(const struct loss &a, const L *x, T *d, const float *targets, int64_t rows) {
    const float known = targets[0], first = to_float(x[0]);
    double loss = 0, part = 0;
    __syncthreads(); /* d may be x: all have read the first */
    for (int64_t i = 1 + threadIdx.x; i < rows; i += THREADS) {
        const float difference = (first - to_float(x[i]) - targets[i]) * known;
        loss += (double)difference * difference;
        part += difference;
        if (d) d[i] = from_float<T>(-2 * difference * a.batch.step->loss_scale);
    }
    const double sum = block_sum<WARPS>(part);
    if (d && threadIdx.x == 0) d[0] = from_float<T>((float)(2 * sum) * a.batch.step->loss_scale);
    return block_sum<WARPS>(loss);
}

/* L, T: types of the logits and of d. N: elements that a thread reads at once. */
template <typename L, typename T, int N, enum snug_loss_kind K>
static __global__ void loss_kernel(const struct loss a) {
    const int64_t row = blockIdx.x, item = a.batch.step->first_row + row;
    const L *x = (const L *)a.logits + row * a.classes;
    T *d = a.d ? (T *)a.d + row * a.classes : NULL;
    double loss = 0;
    if (row >= a.batch.step->rows) {
        for (int64_t c = threadIdx.x; d && c < a.classes; c += THREADS) d[c] = from_float<T>(0);
    } else if constexpr (K == SNUG_CROSS_ENTROPY) {
        loss = cross_entropy<N>(a, x, d, item, a.batch.step->loss_scale);
    } else if constexpr (K == SNUG_PREFERENCE_CROSS_ENTROPY) {
        loss = cross_entropy<N>(a, x, d, item, a.batch.step->loss_scale * scale_of(a, item));
        if (threadIdx.x == 0) a.losses[row] = (float)loss;
    } else if constexpr (K == SNUG_BINARY_CROSS_ENTROPY) {
        loss = binary_cross_entropy(a, x, d, item);
    } else if constexpr (K == SNUG_SEGMENT_CROSS_ENTROPY) {
        if (a.batch.labels[item] & SNUG_SEGMENT_BEGINS)
            loss = segment_cross_entropy(a, (const L *)a.logits, (T *)a.d, row);
    } else if constexpr (K == SNUG_SEGMENT_DISTRIBUTION || K == SNUG_SEGMENT_MARGIN) {
        if (a.batch.labels[item] & SNUG_SEGMENT_BEGINS) {
            const float *targets = a.batch.targets + item;
            const int64_t rows = segment_rows(a, row);
            if constexpr (K == SNUG_SEGMENT_MARGIN)
                loss = segment_margin(a, x, d, targets, rows);
            else
                loss = segment_distribution(a, x, d, targets, rows);
        }
    } else if (threadIdx.x == 0) {
        const float difference = to_float(x[0]) - a.batch.targets[item];
        if (d) d[0] = from_float<T>(2 * difference * a.batch.step->loss_scale);
        loss = (double)difference * difference;
    }
    if (threadIdx.x == 0) a.rows[row] = loss;
}

static __global__ void add_rows(float *loss, const double *rows, int64_t count, bool overwrite) {
    double part = 0;
    for (int64_t i = threadIdx.x; i < count; i += 32) part += rows[i];
    part = warp_sum(part);
    if (threadIdx.x == 0) *loss = (float)(overwrite ? part : (double)*loss + part);
}

template <typename L, typename T, int N>
static void launch_as(const struct snug_run *run, const struct snug_op *op, const struct loss &a, int64_t rows) {
    const cudaStream_t stream = snug_cuda_of(run)->stream;
    const unsigned blocks = (unsigned)rows;
    switch (op->loss.function) {
    case SNUG_CROSS_ENTROPY: loss_kernel<L, T, N, SNUG_CROSS_ENTROPY><<<blocks, THREADS, 0, stream>>>(a); break;
    case SNUG_BINARY_CROSS_ENTROPY:
        loss_kernel<L, T, N, SNUG_BINARY_CROSS_ENTROPY><<<blocks, THREADS, 0, stream>>>(a);
        break;
    case SNUG_MEAN_SQUARED_ERROR:
        loss_kernel<L, T, N, SNUG_MEAN_SQUARED_ERROR><<<blocks, THREADS, 0, stream>>>(a);
        break;
    case SNUG_SEGMENT_CROSS_ENTROPY:
        loss_kernel<L, T, N, SNUG_SEGMENT_CROSS_ENTROPY><<<blocks, THREADS, 0, stream>>>(a);
        break;
    case SNUG_PREFERENCE_CROSS_ENTROPY:
        loss_kernel<L, T, N, SNUG_PREFERENCE_CROSS_ENTROPY><<<blocks, THREADS, 0, stream>>>(a);
        break;
    case SNUG_SEGMENT_DISTRIBUTION:
        loss_kernel<L, T, N, SNUG_SEGMENT_DISTRIBUTION><<<blocks, THREADS, 0, stream>>>(a);
        break;
    case SNUG_SEGMENT_MARGIN: loss_kernel<L, T, N, SNUG_SEGMENT_MARGIN><<<blocks, THREADS, 0, stream>>>(a); break;
    }
}

template <typename L, typename T>
static void launch(const struct snug_run *run, const struct snug_op *op, const struct loss &a, int64_t rows) {
    constexpr int N = 16 / (int)sizeof(L);
    a.classes % N ? launch_as<L, T, 1>(run, op, a, rows) : launch_as<L, T, N>(run, op, a, rows);
}

extern "C" snug_status snug_cuda_loss(struct snug_run *run, const struct snug_op *op) {
    const struct snug_cuda *cuda = snug_cuda_of(run);
    const bool scores = op->loss.rows && run->pass == SNUG_PASS_SCORES;
    const struct loss a = {.logits = snug_run_data(run, op->loss.logits),
                           .d = scores ? NULL : snug_run_data(run, op->loss.d),
                           .rows = (double *)run->workspace,
                           .losses = (float *)snug_run_data(run, op->loss.rows),
                           .scales = (const float *)snug_run_data(run, op->loss.scales),
                           .batch = cuda->batch,
                           .classes = snug_run_cols(run, op->loss.logits),
                           .weights = op->loss.weighted ? cuda->batch.class_weights : NULL,
                           .smoothing = op->loss.label_smoothing};
    const int64_t rows = snug_cuda_rows(run, op->loss.logits);
    const enum snug_dtype type = snug_run_dtype(run, op->loss.logits);
    const enum snug_dtype d_type = a.d ? snug_run_dtype(run, op->loss.d) : type;
    if (rows > 0)
        with_type(d_type, [&](auto d) {
            if (type == SNUG_F32)
                launch<float, decltype(d)>(run, op, a, rows);
            else
                launch<decltype(d), decltype(d)>(run, op, a, rows);
        });
    float *loss = (float *)snug_run_data(run, op->loss.loss);
    if (loss) add_rows<<<1, 32, 0, cuda->stream>>>(loss, a.rows, rows, run->chunk == 0);
    return snug_cuda_done(run, op);
}
