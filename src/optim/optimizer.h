/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers: what each is set to, and which states it keeps for a parameter. The update formulas stand in
 * backend/backend.h; the update stage (plan/update.c) gives every weight its states and its operation.
 */
#ifndef SNUG_OPTIM_OPTIMIZER_H
#define SNUG_OPTIM_OPTIMIZER_H

#include "core/context.h"
#include "core/dtype.h"

enum snug_optimizer_kind {
    SNUG_ADAM,      /* Adam, or AdamW if decoupled */
    SNUG_ADAM_8BIT, /* the same with block-wise quantised states */
    SNUG_SGD,
    SNUG_ADAFACTOR,
    SNUG_ADAGRAD,
    SNUG_RMSPROP,
    SNUG_LION,
    SNUG_OPTIMIZER_COUNT
};

/* Settings, under the names of torch.optim, bitsandbytes and transformers' Adafactor. Those that a kind does not know
   are not looked at. */
struct snug_optimizer {
    const char *name; /* as --optim has it, without synonyms; NULL where it was made by hand */
    enum snug_optimizer_kind kind;
    double weight_decay, beta1, beta2, epsilon;
    bool decoupled;   /* ADAM, ADAM_8BIT: weight decay apart from the gradient (AdamW); otherwise added to it (L2) */
    bool tables_8bit; /* ADAM_8BIT: embedding tables too; transformers keeps theirs in 32 bit */
    double momentum;  /* SGD, RMSPROP */
    double dampening; /* SGD */
    bool nesterov;    /* SGD */
    double alpha;     /* RMSPROP */
    bool centered;    /* RMSPROP */
    double lr_decay, initial_accumulator_value;       /* ADAGRAD */
    double epsilon2, clip_threshold, decay_rate;      /* ADAFACTOR: eps is (epsilon, epsilon2) */
    bool factored_momentum;                           /* ADAFACTOR: beta1 is given, so that it keeps exp_avg */
    bool scale_parameter, relative_step, warmup_init; /* ADAFACTOR */
};

/* The optimizer that --optim and --optim_args ("key=value,key=value", or NULL) name, with Trainer's settings for it.
   Adam and Lion take the betas, Adam epsilon; every optimizer weight_decay. An unknown name or key is SNUG_E_USAGE. */
snug_status snug_optimizer_parse(snug_context *ctx, const char *optim, const char *optim_args, double beta1,
                                 double beta2, double epsilon, double weight_decay, struct snug_optimizer *out);
/* Learning rate of optimizer step number step, from 0: the schedule's, or Adafactor's own if relative_step. */
double snug_optimizer_rate(const struct snug_optimizer *optimizer, double scheduled, int64_t step);

#define SNUG_STATES_MAX 4
/* Elements of a block that shares one absmax, and the size below which states stay in 32 bit (bitsandbytes). */
#define SNUG_QUANTISED_BLOCK 256
#define SNUG_QUANTISED_LEAST 4096

enum snug_state_shape {
    SNUG_STATE_LIKE,    /* as the parameter */
    SNUG_STATE_ROWS,    /* one value for each row of the parameter */
    SNUG_STATE_COLUMNS, /* one for each column, of each segment */
    SNUG_STATE_BLOCKS,  /* one for each block of SNUG_QUANTISED_BLOCK values, of each segment */
};
struct snug_state {
    const char *name; /* as PyTorch's state_dict calls it */
    enum snug_dtype dtype;
    enum snug_state_shape shape;
};

/* A weight as optimizers see it: segments parameters of the same shape, stacked. */
struct snug_weight {
    int64_t rows, cols; /* of the stack */
    int32_t segments;
    bool vector; /* the parameters are vectors, a row each */
    bool table;  /* an embedding table */
};

/* The kind that really updates weight (small ones keep 32-bit states), and the states that it keeps: *count of them. */
enum snug_optimizer_kind snug_optimizer_states(const struct snug_optimizer *optimizer, const struct snug_weight *weight,
                                               struct snug_state states[SNUG_STATES_MAX], int *count);
/* Rows and columns of a state's tensor. */
void snug_state_size(const struct snug_state *state, const struct snug_weight *weight, int64_t *rows, int64_t *cols);

#endif
