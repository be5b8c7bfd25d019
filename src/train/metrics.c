/* SPDX-License-Identifier: Apache-2.0 */
#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/batch.h"

/* Of one class: rows that have it, rows predicted to have it, and both. */
struct tally {
    int64_t truth, predicted, both;
};

struct snug_meter {
    snug_context *ctx;
    enum snug_task task;
    enum snug_problem problem;
    int64_t classes, capacity;
    struct tally *tallies; /* [classes], in the memory given; classification */
    uint64_t *pairs;       /* [capacity], in the memory given; regression: prediction and target as ordered words */
    int64_t rows, correct;
    double loss_sum;
    int64_t loss_items;
    /* Regression: Welford's running moments of prediction x and target y, and the squared error. */
    double mean_x, mean_y, square_x, square_y, product, squared_error;
    bool not_a_number; /* a NaN has no rank */
    bool ranked;       /* pairs hold ranks now */
    const char *misuse;
};

static bool keeps_tallies(enum snug_task task, enum snug_problem problem) {
    return task == SNUG_TASK_CLASSIFICATION && problem != SNUG_PROBLEM_REGRESSION;
}

static bool keeps_pairs(enum snug_task task, enum snug_problem problem) {
    return task == SNUG_TASK_CLASSIFICATION && problem == SNUG_PROBLEM_REGRESSION;
}

int64_t snug_meter_bytes(enum snug_task task, enum snug_problem problem, int64_t classes, int64_t rows) {
    if (keeps_tallies(task, problem)) return classes * (int64_t)sizeof(struct tally);
    return keeps_pairs(task, problem) ? rows * (int64_t)sizeof(uint64_t) : 0;
}

snug_status snug_meter_create(snug_context *ctx, enum snug_task task, enum snug_problem problem, int64_t classes,
                              int64_t rows, void *memory, struct snug_meter **out) {
    void *meter;
    *out = NULL;
    /* A doubled rank is kept in 32 bits. */
    if (keeps_pairs(task, problem) && rows > INT32_MAX)
        return snug_fail(ctx, SNUG_E_UNSUPPORTED, "%lld rows to evaluate: at most %d are ranked for eval_spearmanr",
                         (long long)rows, INT32_MAX);
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &meter));
    *out = meter;
    **out = (struct snug_meter){
        .ctx = ctx,
        .task = task,
        .problem = problem,
        .classes = classes,
        .capacity = rows,
        .tallies = keeps_tallies(task, problem) ? memory : NULL,
        .pairs = keeps_pairs(task, problem) ? memory : NULL,
    };
    snug_meter_reset(*out);
    return SNUG_OK;
}

void snug_meter_reset(struct snug_meter *meter) {
    struct snug_meter fresh = {
        .ctx = meter->ctx,
        .task = meter->task,
        .problem = meter->problem,
        .classes = meter->classes,
        .capacity = meter->capacity,
        .tallies = meter->tallies,
        .pairs = meter->pairs,
    };
    *meter = fresh;
    if (meter->tallies) memset(meter->tallies, 0, (size_t)meter->classes * sizeof *meter->tallies);
}

void snug_meter_free(struct snug_meter *meter) { free(meter); }

static int64_t argmax(const float *values, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

static void add_single_label(struct snug_meter *meter, const float *logits, const int32_t *labels, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t label = labels[row];
        if (label == SNUG_IGNORE_LABEL) continue;
        if (label < 0 || label >= meter->classes) {
            meter->misuse = "a label is not one of the model's classes";
            return;
        }
        int64_t predicted = argmax(logits + row * meter->classes, meter->classes);
        meter->rows++;
        meter->correct += predicted == label;
        if (!meter->tallies) continue;
        meter->tallies[label].truth++;
        meter->tallies[predicted].predicted++;
        meter->tallies[label].both += predicted == label;
    }
}

/* A class is predicted where its probability is above one half, which is a logit above 0. */
static void add_multi_label(struct snug_meter *meter, const float *logits, const float *targets, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        bool whole = true;
        for (int64_t label = 0; label < meter->classes; label++) {
            bool predicted = logits[row * meter->classes + label] > 0;
            bool truth = targets[row * meter->classes + label] > 0.5f;
            meter->tallies[label].truth += truth;
            meter->tallies[label].predicted += predicted;
            meter->tallies[label].both += truth && predicted;
            whole &= truth == predicted;
        }
        meter->rows++;
        meter->correct += whole;
    }
}

/* The float's bits, so turned that words order as the numbers do. */
static uint32_t ordered_word(float value) {
    uint32_t bits;
    value += 0.0f; /* -0 equals +0 */
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static void add_regression(struct snug_meter *meter, const float *predictions, const float *targets, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        double x = predictions[row], y = targets[row];
        meter->not_a_number |= isnan(x) || isnan(y);
        meter->pairs[meter->rows++] = (uint64_t)ordered_word(predictions[row]) << 32 | ordered_word(targets[row]);
        double step_x = x - meter->mean_x, step_y = y - meter->mean_y;
        meter->mean_x += step_x / (double)meter->rows;
        meter->mean_y += step_y / (double)meter->rows;
        meter->square_x += step_x * (x - meter->mean_x);
        meter->square_y += step_y * (y - meter->mean_y);
        meter->product += step_x * (y - meter->mean_y);
        meter->squared_error += (x - y) * (x - y);
    }
}

void snug_meter_add(struct snug_meter *meter, const float *logits, const int32_t *labels, const float *targets,
                    int64_t rows) {
    bool ranks = keeps_pairs(meter->task, meter->problem);
    if (ranks && (meter->ranked || rows > meter->capacity - meter->rows)) {
        meter->misuse = meter->ranked ? "rows were added after the result was taken" : "more rows than were announced";
        return;
    }
    if (ranks)
        add_regression(meter, logits, targets, rows);
    else if (meter->task == SNUG_TASK_CLASSIFICATION && meter->problem == SNUG_PROBLEM_MULTI_LABEL)
        add_multi_label(meter, logits, targets, rows);
    else
        add_single_label(meter, logits, labels, rows);
}

void snug_meter_add_loss(struct snug_meter *meter, double loss_sum, int64_t items) {
    meter->loss_sum += loss_sum;
    meter->loss_items += items;
}

/* qsort may allocate; this does not. */
static void heap_sort(uint64_t *values, int64_t count) {
    for (int64_t begin = count / 2, end = count; end > 1;) {
        uint64_t value;
        if (begin > 0) { /* still building the heap */
            value = values[--begin];
        } else {
            value = values[--end];
            values[end] = values[0];
        }
        int64_t parent = begin;
        for (int64_t child = 2 * parent + 1; child < end; child = 2 * parent + 1) {
            if (child + 1 < end && values[child + 1] > values[child]) child++;
            if (values[child] <= value) break;
            values[parent] = values[child];
            parent = child;
        }
        values[parent] = value;
    }
}

/* Sorts by the high words, replaces them by twice their rank from 1 (equal ones share their mean rank, which twice is
   whole), and swaps the words of each pair: called twice, both words are ranked and stand where they stood. */
static void rank_and_swap(uint64_t *pairs, int64_t count) {
    heap_sort(pairs, count);
    for (int64_t first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count && pairs[next] >> 32 == pairs[first] >> 32;) next++;
        uint64_t twice_rank = (uint64_t)(first + 1 + next);
        for (int64_t i = first; i < next; i++) pairs[i] = pairs[i] << 32 | twice_rank;
    }
}

static double correlation(double product, double square_x, double square_y) {
    if (!(square_x > 0) || !(square_y > 0)) return NAN; /* also NaN and no rows */
    double r = product / (sqrt(square_x) * sqrt(square_y));
    return r > 1 ? 1 : r < -1 ? -1 : r;
}

static double spearman(struct snug_meter *meter) {
    if (meter->not_a_number || meter->rows == 0) return NAN;
    rank_and_swap(meter->pairs, meter->rows);
    rank_and_swap(meter->pairs, meter->rows);
    meter->ranked = true; /* ranks have the same ranks: taking the result again gives the same */
    double mean = (double)meter->rows + 1, product = 0, square_x = 0, square_y = 0;
    for (int64_t i = 0; i < meter->rows; i++) {
        double x = (double)(meter->pairs[i] >> 32) - mean, y = (double)(uint32_t)meter->pairs[i] - mean;
        product += x * y;
        square_x += x * x;
        square_y += y * y;
    }
    return correlation(product, square_x, square_y);
}

static double pearson(const struct snug_meter *meter) {
    return correlation(meter->product, meter->square_x, meter->square_y);
}

/* 0 where nothing is there to be found, as scikit-learn's zero_division says. */
static double f1_of(int64_t both, int64_t predicted, int64_t truth) {
    return predicted + truth > 0 ? 2 * (double)both / (double)(predicted + truth) : 0;
}

/* Of class 1 where there are two, else the mean over the classes that occur. */
static double single_label_f1(const struct snug_meter *meter) {
    const struct tally *t = meter->tallies;
    if (meter->rows == 0) return NAN;
    if (meter->classes == 2) return f1_of(t[1].both, t[1].predicted, t[1].truth);
    double sum = 0;
    int64_t occurring = 0;
    for (int64_t i = 0; i < meter->classes; i++) {
        sum += f1_of(t[i].both, t[i].predicted, t[i].truth);
        occurring += t[i].predicted + t[i].truth > 0;
    }
    return sum / (double)occurring;
}

/* Over all classes' rows together. */
static double micro_f1(const struct snug_meter *meter) {
    struct tally sum = {0};
    for (int64_t i = 0; i < meter->classes; i++) {
        sum.truth += meter->tallies[i].truth;
        sum.predicted += meter->tallies[i].predicted;
        sum.both += meter->tallies[i].both;
    }
    return meter->rows ? f1_of(sum.both, sum.predicted, sum.truth) : NAN;
}

/* Gorodkin's multi-class form (Computational Biology and Chemistry 28, 2004); 0 where one side has no variance, as in
   scikit-learn. */
static double matthews(const struct snug_meter *meter) {
    double rows = (double)meter->rows, truth_predicted = 0, truth_truth = 0, predicted_predicted = 0;
    if (meter->rows == 0) return NAN;
    for (int64_t i = 0; i < meter->classes; i++) {
        double truth = (double)meter->tallies[i].truth, predicted = (double)meter->tallies[i].predicted;
        truth_predicted += truth * predicted;
        truth_truth += truth * truth;
        predicted_predicted += predicted * predicted;
    }
    double variance = (rows * rows - truth_truth) * (rows * rows - predicted_predicted);
    return variance > 0 ? ((double)meter->correct * rows - truth_predicted) / sqrt(variance) : 0;
}

const char *const *snug_metric_names(enum snug_task task, enum snug_problem problem) {
    static const char *const mlm[] = {"eval_loss", "eval_accuracy", "perplexity", NULL};
    static const char *const classification[][5] = {
        [SNUG_PROBLEM_SINGLE_LABEL] = {"eval_loss", "eval_accuracy", "eval_f1", "eval_matthews_correlation"},
        [SNUG_PROBLEM_MULTI_LABEL] = {"eval_loss", "eval_accuracy", "eval_f1"},
        [SNUG_PROBLEM_REGRESSION] = {"eval_loss", "eval_mse", "eval_pearson", "eval_spearmanr"},
    };
    return task == SNUG_TASK_MLM ? mlm : classification[problem];
}

int64_t snug_metric_find(enum snug_task task, enum snug_problem problem, const char *name) {
    const char *const *names = snug_metric_names(task, problem);
    for (int64_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0 || (strncmp(names[i], "eval_", 5) == 0 && strcmp(names[i] + 5, name) == 0))
            return i;
    return -1;
}

snug_status snug_meter_result(struct snug_meter *meter, snug_metrics *out) {
    out->count = 0;
    if (meter->misuse) return snug_fail(meter->ctx, SNUG_E_INTERNAL, "evaluation: %s", meter->misuse);
    const char *const *names = snug_metric_names(meter->task, meter->problem);
    const double loss = meter->loss_items ? meter->loss_sum / (double)meter->loss_items : NAN;
    const double rows = (double)meter->rows, accuracy = meter->rows ? (double)meter->correct / rows : NAN;
    double values[4] = {loss, accuracy}; /* in the order of their names */
    if (meter->task == SNUG_TASK_MLM) {
        values[2] = exp(loss);
    } else if (meter->problem == SNUG_PROBLEM_SINGLE_LABEL) {
        values[2] = single_label_f1(meter);
        values[3] = matthews(meter);
    } else if (meter->problem == SNUG_PROBLEM_MULTI_LABEL) {
        values[2] = micro_f1(meter);
    } else {
        values[1] = meter->rows ? meter->squared_error / rows : NAN;
        values[2] = pearson(meter);
        values[3] = spearman(meter);
    }
    for (; names[out->count]; out->count++) { /* a NaN of 0/0 has a sign, which printf would show */
        const double value = values[out->count];
        out->items[out->count] = (snug_metric){names[out->count], isnan(value) ? NAN : value};
    }
    return SNUG_OK;
}
