/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a plan: computed in plan.c, printed by report. */
#ifndef SNUG_INSPECT_PLAN_H
#define SNUG_INSPECT_PLAN_H

#include "train/fit.h"

/* The bytes of one layer, of the embeddings or of the head. */
struct snug_plan_part {
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT];
};
/* Whether the bytes of a class belong to such parts. */
static inline bool snug_plan_by_part(snug_memory_class memory_class) {
    return memory_class == SNUG_MEMORY_WEIGHTS || memory_class == SNUG_MEMORY_GRADIENTS ||
           memory_class == SNUG_MEMORY_OPTIMIZER || memory_class == SNUG_MEMORY_ACTIVATIONS;
}

struct snug_plan {
    snug_context *ctx;
    /* the model */
    const char *family; /* in words */
    enum snug_task task;
    int64_t layers, hidden, heads, intermediate, vocabulary, parameters, trainable;
    /* the training program and its largest batch */
    enum snug_dtype compute, weights;
    bool tf32;
    struct snug_quantized_sum quantized;
    int64_t sequences, tokens, longest, accumulation; /* accumulation: of each rank */
    /* of a run of several ranks: their number, and what each sends and receives in a step */
    int ranks, zero_stage;
    int64_t sent;
    /* GB/s from a rank to the others, 0 if unknown, and what they are; of a step the seconds in which ranks
       communicate, and those for which operations wait */
    double link, communicates, waits;
    const char *link_is;
    bool fits_known;
    int fits_from[SNUG_ZERO_STAGES]; /* ranks from which on it fits, by ZeRO stage */
    /* bytes */
    int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total;
    int64_t offloaded[SNUG_MEMORY_CLASS_COUNT], offloaded_total;
    char *offload_dir;      /* NULL: nothing is offloaded, or to page-locked host memory */
    int64_t bounce;         /* bytes of host memory through which a GPU copies from and to a file in offload_dir */
    bool offload_is_memory; /* the folder's file system is host memory */
    struct snug_plan_part embeddings, head, *encoder; /* encoder: of each layer */
    /* Of the plan in which all parameters are trained, without --freeze and adapters: its bytes; what is saved of them:
       of gradients and states, in the arena or offloaded, and FLOPs of a step's backward. */
    struct snug_plan_frozen {
        int64_t gradients, states;
        double flops;
        int64_t bytes[SNUG_MEMORY_CLASS_COUNT], total;
    } frozen;
    /* Of a decoder, if rates are known: the trainings that are compared, and which of them this one is;
       SNUG_TRAINING_COUNT: none is. */
    struct snug_priced trainings[SNUG_TRAINING_COUNT];
    enum snug_training training;
    int64_t training_limit; /* bytes that they have */
    int64_t adapted;        /* of the parameters, those of LoRA adapters */
    /* of the machine, or of the GPU that has the arena; -1 if unknown */
    bool gpu;
    char device[96];
    int64_t memory, available;
    /* a step: all micro-batches at the size of the run's largest one, and the update */
    struct snug_step_estimate step;
    double samples;              /* of a step, on average */
    int64_t max_steps;           /* of the run; 0: unknown, without data */
    bool elsewhere;              /* the GPU need not be installed: --gpu */
    char rates_of[96];           /* the device on which the rates were measured; "": no rates are known */
    bool scaled;                 /* from that device's to the GPU's */
    bool untried;                /* and snug has never run on a GPU of that model */
    struct snug_priced *methods; /* the plan itself, then each method alone; NULL if no rates are known */
    size_t method_count;
    bool searched; /* for a mix of methods; then: */
    struct snug_fit fit;
    char *fit_text; /* in words */
};

#endif
