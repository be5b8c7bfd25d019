/* SPDX-License-Identifier: Apache-2.0 */
#include "args/class_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "io/json.h"

static bool is_none(const struct snug_args *args) {
    return !args->class_weights || strcasecmp(args->class_weights, "none") == 0;
}

static bool is_balanced(const struct snug_args *args) { return strcasecmp(args->class_weights, "balanced") == 0; }

snug_status snug_class_weights_check(const struct snug_args *args, bool trains) {
    if (is_none(args)) return SNUG_OK;
    if (args->task && !snug_task_info((enum snug_task)snug_task_find(args->task))->labelled)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--class_weights: --task %s has no classes: leave it out",
                         args->task);
    if (snug_args_regression(args) == SNUG_REGRESSION_YES)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--class_weights: a regression has no classes: leave it out");
    if (is_balanced(args) && !trains)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--class_weights balanced: the weights follow from training rows, and there are none: leave "
                         "it out for those of the model's training, or give them, as in 1,2.5");
    return SNUG_OK;
}

/* ---- given ------------------------------------------------------------------------------------------------------ */

struct reading {
    const struct snug_args *args;
    const struct snug_labels *labels;
    float *weights; /* NAN where none was given */
};

static void list_classes(const struct snug_labels *labels, char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (int64_t i = 0; i < labels->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", labels->names[i]);
}

/* A decimal number; strtod also takes hexadecimal, "nan" and "infinity". */
static bool is_number(const char *text, size_t length, double *out) {
    char digits[64], *end;
    if (length == 0 || length >= sizeof digits) return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (digits[strspn(digits, "+-.0123456789eE")]) return false;
    *out = strtod(digits, &end);
    return *end == '\0';
}

static snug_status set_weight(const struct reading *r, int64_t class, double weight) {
    const char *name = r->labels->names[class];
    if (isnan(weight)) /* not a number in the text */
        return snug_fail(r->args->ctx, SNUG_E_USAGE,
                         "--class_weights: the weight of class \"%s\" must be a number of at least 0", name);
    if (weight < 0 || !isfinite((float)weight))
        return snug_fail(r->args->ctx, SNUG_E_USAGE,
                         "--class_weights: the weight of class \"%s\" must be a number of at least 0, not %g", name,
                         weight);
    if (!isnan(r->weights[class]))
        return snug_fail(r->args->ctx, SNUG_E_USAGE, "--class_weights: class \"%s\" has two weights", name);
    r->weights[class] = (float)weight;
    return SNUG_OK;
}

/* The class of this name; the number k is also LABEL_k, the name of a class that was given none. */
static int64_t find_class(const struct snug_labels *labels, const char *name, size_t length) {
    for (int plain = 1; plain >= 0; plain--)
        for (int64_t i = 0; i < labels->count; i++) {
            const char *its = labels->names[i];
            if (!plain && strncmp(its, "LABEL_", 6) != 0) continue;
            its += plain ? 0 : 6;
            if (strlen(its) == length && strncmp(its, name, length) == 0) return i;
        }
    return -1;
}

static snug_status fail_class(const struct reading *r, const char *name, size_t length) {
    char known[512];
    list_classes(r->labels, known, sizeof known);
    return snug_fail(r->args->ctx, SNUG_E_USAGE,
                     "--class_weights: \"%.*s\" is not one of the %" PRId64 " classes: %s; write CLASS=WEIGHT,…, or a "
                     "list of weights in this order",
                     (int)length, name, r->labels->count, known);
}

/* {"name": weight, …}, from a file of arguments; the only form for names that hold a comma. */
static snug_status read_object(const struct reading *r) {
    const char *name;
    json_t *value, *object = json_loads(r->args->class_weights, 0, NULL);
    snug_status status = SNUG_OK;
    if (!json_is_object(object))
        status = snug_fail(r->args->ctx, SNUG_E_USAGE, "--class_weights %s: not a valid JSON object",
                           r->args->class_weights);
    json_object_foreach(object, name, value) {
        const int64_t class = find_class(r->labels, name, strlen(name));
        if (class < 0)
            status = fail_class(r, name, strlen(name));
        else
            status = set_weight(r, class, json_is_number(value) ? json_number_value(value) : NAN);
        if (status != SNUG_OK) break;
    }
    json_decref(object);
    return status;
}

/* "name=weight,…" */
static snug_status read_named(const struct reading *r) {
    for (const char *at = r->args->class_weights; *at;) {
        const size_t length = strcspn(at, ",");
        size_t name = length;
        double weight;
        while (name > 0 && at[name - 1] != '=') name--; /* the last '=': a name may hold some */
        if (name == 0)
            return snug_fail(r->args->ctx, SNUG_E_USAGE,
                             "--class_weights: \"%.*s\" must be CLASS=WEIGHT; or give balanced, or a weight for each "
                             "class",
                             (int)length, at);
        const int64_t class = find_class(r->labels, at, name - 1);
        if (class < 0) return fail_class(r, at, name - 1);
        if (!is_number(at + name, length - name, &weight)) weight = NAN;
        RETURN_IF_ERROR(set_weight(r, class, weight));
        at += length + (at[length] == ',');
        at += strspn(at, " ");
    }
    return SNUG_OK;
}

/* "weight,weight,…", one for each class. *is_list is false, and nothing is read, where a part is not a number. */
static snug_status read_list(const struct reading *r, bool *is_list) {
    const char *text = r->args->class_weights;
    int64_t count = 0;
    double weight;
    *is_list = true;
    for (const char *at = text; *at && *is_list; count++) {
        const size_t length = strcspn(at, ",");
        *is_list = is_number(at, length, &weight);
        at += length + (at[length] == ',');
        at += strspn(at, " ");
    }
    if (!*is_list) return SNUG_OK;
    if (count != r->labels->count) {
        char known[512];
        list_classes(r->labels, known, sizeof known);
        return snug_fail(r->args->ctx, SNUG_E_USAGE,
                         "--class_weights %s: %" PRId64 " weights, but there are %" PRId64 " classes: %s", text, count,
                         r->labels->count, known);
    }
    for (int64_t i = 0; i < count; i++) {
        const size_t length = strcspn(text, ",");
        is_number(text, length, &weight);
        RETURN_IF_ERROR(set_weight(r, i, weight));
        text += length + (text[length] == ',');
        text += strspn(text, " ");
    }
    return SNUG_OK;
}

static snug_status read_given(const struct reading *r) {
    bool is_list = false;
    double sum = 0;
    for (int64_t i = 0; i < r->labels->count; i++) r->weights[i] = NAN;
    if (*r->args->class_weights == '{') {
        RETURN_IF_ERROR(read_object(r));
    } else {
        RETURN_IF_ERROR(read_list(r, &is_list));
        if (!is_list) RETURN_IF_ERROR(read_named(r));
    }
    for (int64_t i = 0; i < r->labels->count; i++) {
        if (isnan(r->weights[i])) r->weights[i] = 1;
        sum += (double)r->weights[i];
    }
    if (sum > 0) return SNUG_OK;
    return snug_fail(r->args->ctx, SNUG_E_USAGE, "--class_weights %s: all weights are 0, so nothing would be learnt",
                     r->args->class_weights);
}

/* ---- balanced --------------------------------------------------------------------------------------------------- */

/* One label: n / (classes * n_c), as scikit-learn's compute_class_weight. Several labels: rows without the class for
   each row with it, as torch's documentation of pos_weight proposes. */
static snug_status balance(const struct reading *r, enum snug_task task, const struct snug_dataset *train) {
    const struct snug_labels *labels = r->labels;
    const struct snug_loader_options options = {.task = task,
                                                .problem = labels->problem,
                                                .labels = labels->count,
                                                .label_all_tokens = r->args->label_all_tokens};
    const bool several = labels->problem == SNUG_PROBLEM_MULTI_LABEL;
    int64_t *counts, items = 0;
    RETURN_IF_ERROR(snug_alloc(r->args->ctx, (size_t)labels->count, sizeof *counts, (void **)&counts));
    snug_status status = snug_classes_count(r->args->ctx, train, &options, counts, &items);
    for (int64_t i = 0; status == SNUG_OK && i < labels->count; i++) {
        const double n = (double)items, with = (double)counts[i];
        if (counts[i] == 0 || (several && counts[i] == items))
            status = snug_fail(r->args->ctx, SNUG_E_INPUT,
                               "--class_weights balanced: %s has no %s class \"%s\", whose weight is then not "
                               "defined: give the weights, as in %s=1",
                               snug_dataset_path(train), counts[i] ? "row without" : "item of", labels->names[i],
                               labels->names[i]);
        else
            r->weights[i] = (float)(several ? (n - with) / with : n / ((double)labels->count * with));
    }
    free(counts);
    return status;
}

snug_status snug_class_weights_find(const struct snug_args *args, enum snug_task task, const struct snug_labels *labels,
                                    const struct snug_dataset *train, float **out) {
    *out = NULL;
    if (is_none(args)) return SNUG_OK;
    if (!snug_task_info(task)->labelled || labels->problem == SNUG_PROBLEM_REGRESSION)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--class_weights: %s has no classes: leave it out",
                         snug_task_info(task)->labelled ? "a regression" : snug_task_info(task)->title);
    RETURN_IF_ERROR(snug_alloc(args->ctx, (size_t)labels->count, sizeof **out, (void **)out));
    const struct reading r = {args, labels, *out};
    if (!is_balanced(args)) return read_given(&r);
    for (int64_t i = 0; i < labels->count; i++) r.weights[i] = 1;
    return train ? balance(&r, task, train) : SNUG_OK;
}
