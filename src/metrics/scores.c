/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory after the tallies: a confusion matrix [classes, classes] of a single label, then [columns, rows] words
 * with the score of a row and whether it has the class. Two classes of a single label are one column, of class 1.
 */
#include "metrics/scores.h"

#include <math.h>
#include <string.h>

#include "metrics/sort.h"

/* With more classes there is no matrix: without and with class_metrics, 20 KiB and 8 MiB. */
enum { CONFUSION_CLASSES = 50, CONFUSION_CLASSES_MOST = 1024 };

static bool is_multi_label(const struct snug_metric_accumulator_options *options) {
    return options->labels->problem == SNUG_PROBLEM_MULTI_LABEL;
}

int64_t snug_scores_counts(const struct snug_metric_accumulator_options *options) {
    const int64_t most = options->each_class ? CONFUSION_CLASSES_MOST : CONFUSION_CLASSES;
    return !is_multi_label(options) && options->classes <= most ? options->classes * options->classes : 0;
}

static int64_t columns_of(const struct snug_metric_accumulator_options *options) {
    return options->classes == 2 && !is_multi_label(options) ? 1 : options->classes;
}

int64_t snug_scores_bytes(const struct snug_metric_accumulator_options *options) {
    const int64_t scores = options->each_class ? columns_of(options) * options->rows : 0;
    return (snug_scores_counts(options) + scores) * (int64_t)sizeof(uint64_t);
}

static int64_t *confusion_of(const struct snug_metric_accumulator *accumulator) {
    return (int64_t *)((struct snug_tally *)accumulator->memory + accumulator->options.classes);
}

static uint64_t *column_of(const struct snug_metric_accumulator *accumulator, int64_t column) {
    return (uint64_t *)confusion_of(accumulator) + snug_scores_counts(&accumulator->options) +
           column * accumulator->options.rows;
}

const int64_t *snug_metric_accumulator_confusion(const struct snug_metric_accumulator *accumulator) {
    const bool classes = accumulator->kind == &snug_single_label_metrics;
    return classes && snug_scores_counts(&accumulator->options) ? confusion_of(accumulator) : NULL;
}

void snug_scores_reset(struct snug_metric_accumulator *accumulator) {
    const int64_t entries = snug_scores_counts(&accumulator->options);
    if (entries) memset(confusion_of(accumulator), 0, (size_t)entries * sizeof(int64_t));
}

snug_status snug_scores_merge(struct snug_metric_accumulator *accumulator, const struct snug_process_group *group,
                              int64_t batch) {
    const int64_t columns = accumulator->options.each_class ? columns_of(&accumulator->options) : 0;
    for (int64_t i = 0; i < columns; i++)
        RETURN_IF_ERROR(snug_metric_merge_words(accumulator, group, batch, column_of(accumulator, i)));
    return SNUG_OK;
}

static uint64_t word_of(double score, bool truth) { return (uint64_t)snug_ordered_word((float)score) << 32 | truth; }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void snug_scores_add(struct snug_metric_accumulator *accumulator, const float *logits, int64_t label, int64_t predicted,
                     const float *targets) {
    const struct snug_metric_accumulator_options *options = &accumulator->options;
    const int64_t classes = options->classes, columns = columns_of(options), row = accumulator->rows;
    if (snug_scores_counts(options)) confusion_of(accumulator)[label * classes + predicted]++;
    if (!options->each_class) return;
    if (row >= options->rows) {
        accumulator->misuse = "more rows than were announced";
        return;
    }
    double sum = 0;
    const double most = (double)logits[predicted];
    for (int64_t i = 0; i < classes && !targets; i++) sum += exp((double)logits[i] - most);
    for (int64_t i = 0; i < columns; i++) {
        const int64_t of = columns < classes ? 1 : i;
        const double score = targets ? sigmoid(logits[of]) : exp((double)logits[of] - most) / sum;
        column_of(accumulator, i)[row] = word_of(score, targets ? targets[of] > 0.5f : label == of);
    }
}

/* ---- one column ------------------------------------------------------------------------------------------------ */

struct curve {
    double auc;                /* NaN if all rows have the class, or none */
    double threshold, best_f1; /* the lowest score from which on predicting it gives the best F1; NaN, 0 without */
};

/* scikit-learn's roc_auc_score: the share of pairs of a row with the class and one without it in which the first has
   the higher score, equal ones counting a half. precision_recall_curve: a row is predicted from its score on. */
static struct curve curve_of(const uint64_t *words, int64_t rows) {
    struct curve curve = {.auc = NAN, .threshold = NAN};
    double positives = 0, won = 0, both = 0;
    for (int64_t i = 0; i < rows; i++) positives += (double)(words[i] & 1);
    for (int64_t end = rows, first; end > 0; end = first) {
        double here = 0;
        for (first = end; first > 0 && words[first - 1] >> 32 == words[end - 1] >> 32; first--)
            here += (double)(words[first - 1] & 1);
        const double others = (double)(end - first) - here, below = (double)first - (positives - both - here);
        won += here * (below + others / 2);
        both += here;
        const double f1 = snug_metric_ratio(2 * both, (double)(rows - first) + positives);
        if (positives == 0 || f1 < curve.best_f1) continue;
        curve.best_f1 = f1;
        curve.threshold = (double)snug_ordered_value((uint32_t)(words[first] >> 32));
    }
    if (positives > 0 && positives < (double)rows) curve.auc = won / (positives * ((double)rows - positives));
    return curve;
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

static snug_status add_class(struct snug_metric_accumulator *accumulator, int64_t class, const struct curve *curve,
                             struct snug_metric_list *out) {
    const struct snug_tally *t = (const struct snug_tally *)accumulator->memory + class;
    const char *name = accumulator->options.labels->names[class];
    const double both = (double)t->both;
    const struct {
        const char *what;
        double value;
        bool there;
    } values[] = {
        {"precision", snug_metric_ratio(both, (double)t->predicted), true},
        {"recall", snug_metric_ratio(both, (double)t->truth), true},
        {"f1", snug_metric_ratio(2 * both, (double)(t->predicted + t->truth)), true},
        {"number", (double)t->truth, true},
        {"auc", curve ? curve->auc : NAN, curve != NULL},
        {"threshold", curve ? curve->threshold : NAN, is_multi_label(&accumulator->options)},
        {"best_f1", curve ? curve->best_f1 : NAN, is_multi_label(&accumulator->options)},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].there) RETURN_IF_ERROR(snug_metric_add(accumulator, name, values[i].what, values[i].value, out));
    return SNUG_OK;
}

snug_status snug_scores_more(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out) {
    const struct snug_metric_accumulator_options *options = &accumulator->options;
    const int64_t classes = options->classes, columns = columns_of(options);
    const size_t each = is_multi_label(options) ? 7 : columns < classes ? 4 : 5, all = out->count++;
    double sum = 0;
    int64_t left_out = 0;
    if (!options->each_class) {
        out->count--;
        return SNUG_OK;
    }
    for (int64_t i = 0; i < classes; i++) {
        const bool own = columns == classes || i == 1;
        struct curve curve;
        if (own) {
            uint64_t *words = column_of(accumulator, columns < classes ? 0 : i);
            snug_sort_words(words, accumulator->rows);
            curve = curve_of(words, accumulator->rows);
            sum += curve.auc;
        }
        if (out->count + each <= SNUG_METRICS_OF_TASK)
            RETURN_IF_ERROR(add_class(accumulator, i, columns == classes ? &curve : NULL, out));
        else
            left_out++;
    }
    const double auc = sum / (double)columns;
    out->items[all] = (snug_metric){"eval_auc", isnan(auc) ? NAN : auc};
    if (left_out)
        snug_log(accumulator->ctx, SNUG_LOG_WARNING,
                 "--class_metrics: %lld classes are left out, because at most %d metrics are reported",
                 (long long)left_out, (int)SNUG_METRICS_OF_TASK);
    return SNUG_OK;
}
