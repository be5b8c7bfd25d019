/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of trainings, read from the folders that they wrote: read in runs.c, printed by report/runs.c. */
#ifndef SNUG_INSPECT_RUNS_H
#define SNUG_INSPECT_RUNS_H

#include "core/context.h"
#include "program/op.h"

enum { SNUG_RUNS_MOST = 32 };

/* One quantity over steps, from log_history: "loss", "eval_accuracy", … */
struct snug_series {
    char *name;
    size_t count, capacity;
    struct snug_sample {
        double step, value; /* value: NaN where it was not finite */
    } * samples;
};

/* A line of a table: a name and its value as text. */
struct snug_entry {
    char *name, *value;
};
struct snug_entries {
    struct snug_entry *items;
    size_t count, capacity;
};

/* Memory of a step by operation. Classes are those up to SNUG_MEMORY_BATCH. */
struct snug_step_memory {
    size_t ops; /* 0: unknown */
    struct snug_step_op {
        const char *kind, *phase; /* live as long as the context */
        enum snug_part part;
        int64_t layer; /* if part is LAYER */
    } * items;
    int64_t resident[SNUG_MEMORY_CLASS_COUNT]; /* bytes that live during the whole step */
    int64_t *live[SNUG_MEMORY_CLASS_COUNT];    /* [ops] bytes in addition to them, or NULL: none */
    int64_t arena;                             /* bytes that were allocated for all of them */
    size_t peak;                               /* the operation with most bytes, the first of equal ones */
    int64_t peak_bytes;
};

struct snug_time_part {
    char *name;
    double seconds;
};

/* Rows of an evaluation by their class and the predicted one. */
struct snug_confusion {
    int64_t classes; /* 0: unknown */
    char **labels;   /* [classes] */
    int64_t *counts; /* [classes][classes] */
};

struct snug_history {
    char *folder;           /* as the user named it */
    bool has_model;         /* of this training, in the folder */
    char checkpoint[64];    /* the newest one, where the folder has no trainer_state.json; else "" */
    double step, max_steps; /* of trainer_state.json, as the following */
    double epoch;           /* NaN: unknown */
    /* The best evaluation: its metric, NULL: unknown; NaN: there is none, or its step is unknown. */
    char *best_metric;
    double best, best_step;
    char *best_checkpoint; /* NULL: none */
    bool best_is_model;    /* the saved model has its weights */
    struct snug_series *series;
    size_t series_count, series_capacity;
    struct snug_step_memory memory;
    /* Seconds; -1: unknown. operations: by kind, the longest first; none if they were not measured. */
    double start, training, evaluating_and_saving;
    struct snug_time_part *operations;
    size_t operation_count, operation_capacity;
    struct snug_memory_figure {
        char *name;
        int64_t planned, measured; /* bytes; -1: unknown */
    } * figures;
    size_t figure_count, figure_capacity;
    struct snug_confusion confusion;
    struct snug_entries results, settings;
};

struct snug_runs {
    snug_context *ctx;
    size_t count;
    struct snug_history *items;
};

/* Bytes of a class during operation op. */
static inline int64_t snug_step_memory_bytes(const struct snug_step_memory *memory, int memory_class, size_t op) {
    return memory->resident[memory_class] + (memory->live[memory_class] ? memory->live[memory_class][op] : 0);
}

#endif
