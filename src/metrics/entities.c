/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of tagged words, as seqeval computes them in its default mode: an entity is a type with its first and last
 * position, found by the rules of the CoNLL evaluation (IOB1, IOB2, IOE and BIOES alike), and is right if truth and
 * prediction agree on all three. Both sides are scanned position by position.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics_impl.h"
#include "tokenizer/hash_map.h"

/* Counts of one type: true entities, predicted entities, and both. */
struct tally {
    int64_t truth, predicted, both;
};

/* The tag of a class, parsed from its name. */
struct tag {
    int32_t type;
    char kind; /* its first character: B, I, O, E, S; 0 for one that is not ASCII */
};

/* One side: the last tag, and the beginning of the current entity, if any. */
struct side {
    struct tag last;
    int64_t begin;
};

struct entities {
    struct side truth, predicted;
    int64_t position;
    int64_t row; /* of the data set, plus 1; 0: no sentence is open */
};

/* accumulator->memory: tables derived from the labels, and counts. Type 0 is the type of tags without a type. */
struct table {
    struct tally *tallies; /* [classes + 1] by type */
    struct tag *tags;      /* [classes] */
    int32_t *named_by;     /* [classes + 1] by type: a class that names it, or -1 */
    int32_t *order;        /* [classes + 1] types in the order of their names */
    int32_t *types;        /* how many */
};

static struct table table_of(const struct snug_metric_accumulator *accumulator) {
    const int64_t most = accumulator->options.classes + 1;
    struct table table = {.tallies = accumulator->memory};
    table.tags = (struct tag *)(table.tallies + most);
    table.named_by = (int32_t *)(table.tags + most);
    table.order = table.named_by + most;
    table.types = table.order + most;
    return table;
}

static int64_t bytes(const struct snug_metric_accumulator_options *options) {
    const int64_t most = options->classes + 1;
    return most * (int64_t)(sizeof(struct tally) + sizeof(struct tag) + 2 * sizeof(int32_t)) + (int64_t)sizeof(int32_t);
}

/* ---- tags ------------------------------------------------------------------------------------------------------ */

/* A tag's type is what follows its first '-' after the first character, or all after that; "_" where it is empty. */
static const char *type_of(const char *name) {
    const char *rest = name + (*name != 0);
    while (((unsigned char)*rest & 0xC0) == 0x80) rest++; /* of one character in UTF-8 */
    const char *dash = strchr(rest, '-');
    if (dash) rest = dash + 1;
    return *rest ? rest : "_";
}

struct named_type {
    const char *name;
    int32_t type;
};

static int compare_types(const void *a, const void *b) {
    return strcmp(((const struct named_type *)a)->name, ((const struct named_type *)b)->name);
}

static snug_status number_types(struct snug_metric_accumulator *accumulator, struct snug_hash_map *types) {
    const struct snug_labels *labels = accumulator->options.labels;
    const struct table table = table_of(accumulator);
    int32_t known;
    RETURN_IF_ERROR(snug_hash_map_reserve(accumulator->ctx, types, (size_t)labels->count + 1));
    RETURN_IF_ERROR(snug_hash_map_add(accumulator->ctx, types, "_", 1, 0, &known));
    table.named_by[0] = -1;
    *table.types = 1;
    for (int64_t i = 0; i < labels->count; i++) {
        const char *type = type_of(labels->names[i]);
        int32_t number = snug_hash_map_find(types, "", 0, type, strlen(type));
        if (number < 0) {
            number = (*table.types)++;
            RETURN_IF_ERROR(snug_hash_map_add(accumulator->ctx, types, type, strlen(type), number, &known));
            table.named_by[number] = (int32_t)i;
        }
        const char kind = *labels->names[i];
        table.tags[i] = (struct tag){.type = number, .kind = (unsigned char)kind < 0x80 ? kind : 0};
    }
    return SNUG_OK;
}

static const char *type_name(const struct snug_metric_accumulator *accumulator, int32_t type) {
    const int32_t class = table_of(accumulator).named_by[type];
    return class < 0 ? "_" : type_of(accumulator->options.labels->names[class]);
}

static snug_status order_types(struct snug_metric_accumulator *accumulator) {
    const struct table table = table_of(accumulator);
    void *memory;
    RETURN_IF_ERROR(snug_alloc(accumulator->ctx, (size_t)*table.types, sizeof(struct named_type), &memory));
    struct named_type *named = memory;
    for (int32_t i = 0; i < *table.types; i++) named[i] = (struct named_type){type_name(accumulator, i), i};
    qsort(named, (size_t)*table.types, sizeof *named, compare_types);
    for (int32_t i = 0; i < *table.types; i++) table.order[i] = named[i].type;
    free(named);
    return SNUG_OK;
}

static snug_status read_tags(struct snug_metric_accumulator *accumulator) {
    struct snug_hash_map types = {0};
    snug_status status = number_types(accumulator, &types);
    snug_hash_map_free(&types);
    return status == SNUG_OK ? order_types(accumulator) : status;
}

/* ---- scanning ---------------------------------------------------------------------------------------------------- */

static const struct tag outside = {.type = 0, .kind = 'O'};

static bool is_one_of(char kind, const char *kinds) { return kind && strchr(kinds, kind); }

/* Whether an entity ends between two tags. */
static bool ends(struct tag before, struct tag now) {
    if (is_one_of(before.kind, "ES")) return true;
    if (is_one_of(before.kind, "BI") && is_one_of(now.kind, "BSO")) return true;
    return !is_one_of(before.kind, "O.") && before.type != now.type;
}

/* Whether one begins. */
static bool begins(struct tag before, struct tag now) {
    if (is_one_of(now.kind, "BS")) return true;
    if (is_one_of(before.kind, "ESO") && is_one_of(now.kind, "EI")) return true;
    return !is_one_of(now.kind, "O.") && before.type != now.type;
}

static void follow(struct side *side, struct tag now, int64_t position) {
    if (begins(side->last, now)) side->begin = position;
    side->last = now;
}

static void step(struct snug_metric_accumulator *accumulator, struct tag truth, struct tag predicted) {
    struct entities *e = accumulator->state;
    struct tally *tallies = table_of(accumulator).tallies;
    const bool truth_ends = ends(e->truth.last, truth), predicted_ends = ends(e->predicted.last, predicted);
    if (truth_ends) tallies[e->truth.last.type].truth++;
    if (predicted_ends) tallies[e->predicted.last.type].predicted++;
    if (truth_ends && predicted_ends && e->truth.last.type == e->predicted.last.type &&
        e->truth.begin == e->predicted.begin)
        tallies[e->truth.last.type].both++;
    follow(&e->truth, truth, e->position);
    follow(&e->predicted, predicted, e->position);
    e->position++;
}

/* No entity crosses a sentence boundary. */
static void end_sentence(struct snug_metric_accumulator *accumulator) {
    struct entities *e = accumulator->state;
    if (e->row) step(accumulator, outside, outside);
    e->row = 0;
}

static void reset(struct snug_metric_accumulator *accumulator) {
    struct entities *e = accumulator->state;
    const struct tag none = {.type = -1, .kind = 'O'};
    e->truth.last = e->predicted.last = none;
    memset(accumulator->memory, 0, (size_t)(accumulator->options.classes + 1) * sizeof(struct tally));
}

static void add(struct snug_metric_accumulator *accumulator, const struct snug_chunk *chunk,
                const struct snug_batch *batch) {
    struct entities *e = accumulator->state;
    const struct tag *tags = table_of(accumulator).tags;
    for (int64_t i = 0; i < chunk->rows; i++) {
        const int64_t label = batch->labels[chunk->first + i], predicted = chunk->best[i];
        if (!snug_metric_accumulator_takes(accumulator, label)) continue;
        const int64_t row = snug_batch_row(batch, chunk->first + i) + 1;
        if (row != e->row) end_sentence(accumulator);
        e->row = row;
        step(accumulator, tags[label], tags[predicted]);
        accumulator->rows++;
        accumulator->correct += predicted == label;
    }
}

_Static_assert(sizeof(struct tally) == 3 * sizeof(int64_t), "tallies are added up as whole numbers");

/* A sentence is a row, so it is whole on one rank. */
static int64_t counts(struct snug_metric_accumulator *accumulator, int64_t **out) {
    end_sentence(accumulator);
    *out = accumulator->memory;
    return 3 * (accumulator->options.classes + 1);
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

/* Precision, recall and F1; 0 without a denominator. */
static void scores_of(const struct tally *t, double scores[3]) {
    const double both = (double)t->both;
    scores[0] = t->predicted ? both / (double)t->predicted : 0;
    scores[1] = t->truth ? both / (double)t->truth : 0;
    scores[2] = t->predicted + t->truth ? 2 * both / (double)(t->predicted + t->truth) : 0;
}

static void result(struct snug_metric_accumulator *accumulator, double *values) {
    const struct table table = table_of(accumulator);
    struct tally sum = {0};
    end_sentence(accumulator);
    for (int32_t i = 0; i < *table.types; i++) {
        sum.truth += table.tallies[i].truth;
        sum.predicted += table.tallies[i].predicted;
        sum.both += table.tallies[i].both;
    }
    scores_of(&sum, &values[1]);
    for (int i = 1; i <= 3 && !accumulator->rows; i++) values[i] = NAN;
    values[4] = snug_metric_accumulator_accuracy(accumulator);
}

static snug_status more(struct snug_metric_accumulator *accumulator, struct snug_metric_list *out) {
    static const char *const names[] = {"precision", "recall", "f1"};
    const struct table table = table_of(accumulator);
    int32_t left_out = 0;
    for (int32_t i = 0; i < *table.types && accumulator->options.entities; i++) {
        const struct tally *t = &table.tallies[table.order[i]];
        const char *type = type_name(accumulator, table.order[i]);
        double scores[3];
        if (!t->truth && !t->predicted) continue;
        if (out->count + 4 > SNUG_METRICS_OF_TASK) {
            left_out++;
            continue;
        }
        scores_of(t, scores);
        for (int k = 0; k < 3; k++) RETURN_IF_ERROR(snug_metric_add(accumulator, type, names[k], scores[k], out));
        RETURN_IF_ERROR(snug_metric_add(accumulator, type, "number", (double)t->truth, out));
    }
    if (left_out)
        snug_log(accumulator->ctx, SNUG_LOG_WARNING,
                 "--return_entity_level_metrics: %d entity types are left out, because at most %d metrics are reported",
                 (int)left_out, (int)SNUG_METRICS_OF_TASK);
    return SNUG_OK;
}

const struct snug_metric_kind snug_entity_metrics = {
    .names = {"eval_loss", "eval_precision", "eval_recall", "eval_f1", "eval_accuracy"},
    .main = 3,
    .state_size = sizeof(struct entities),
    .bytes = bytes,
    .open = read_tags,
    .reset = reset,
    .add = add,
    .counts = counts,
    .result = result,
    .more = more,
};
