/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers. An optimizer is one file src/optim/optimizers/NAME.c, which defines a struct snug_optimizer_info and the
 * descriptor of its update, and one line in SNUG_OPTIMIZERS (program/op.h). The rest of snug asks this table: names and
 * keys of the command line, defaults, states, and the operation that updates a weight.
 */
#ifndef SNUG_OPTIM_OPTIMIZER_H
#define SNUG_OPTIM_OPTIMIZER_H

#include <float.h>
#include <stddef.h>

#include "core/context.h"
#include "core/dtype.h"
#include "optim/update_numbers.h"
#include "program/op.h"

/* ---- settings ------------------------------------------------------------------------------------------------- */

struct snug_optimizer_info;

/* Settings, under the names of torch.optim, bitsandbytes and transformers' Adafactor. An optimizer ignores those that
 * it does not have. */
struct snug_optimizer {
    const struct snug_optimizer_info *info;
    const char *name; /* the name in --optim, without synonyms; NULL if the struct was filled in directly */
    double weight_decay, beta1, beta2, epsilon;
    bool decoupled;   /* Adam: decoupled weight decay (AdamW); otherwise it is added to the gradient (L2) */
    bool tables_8bit; /* 8-bit Adam: embedding tables too; transformers keeps their states in 32 bits */
    double momentum;  /* SGD, RMSprop */
    double dampening; /* SGD */
    bool nesterov;    /* SGD */
    double alpha;     /* RMSprop */
    bool centered;    /* RMSprop */
    double lr_decay, initial_accumulator_value;       /* Adagrad */
    double epsilon2, clip_threshold, decay_rate;      /* Adafactor: eps is (epsilon, epsilon2) */
    bool factored_momentum;                           /* Adafactor: beta1 is given, so exp_avg is a state */
    bool scale_parameter, relative_step, warmup_init; /* Adafactor */
};

/* The optimizer named by --optim and --optim_args ("key=value,key=value", or NULL), with Trainer's settings for it.
 * The betas and epsilon are used by those that take them, weight_decay by all. An unknown name or key is SNUG_E_USAGE.
 */
snug_status snug_optimizer_parse(snug_context *ctx, const char *optim, const char *optim_args, double beta1,
                                 double beta2, double epsilon, double weight_decay, struct snug_optimizer *out);
/* Learning rate of optimizer step number step, from 0: the schedule's, or Adafactor's own if relative_step. */
double snug_optimizer_rate(const struct snug_optimizer *optimizer, double scheduled, int64_t step);

/* ---- states --------------------------------------------------------------------------------------------------- */

/* Elements of a block with one absmax (bitsandbytes). */
#define SNUG_QUANTISED_BLOCK 256

enum snug_state_shape {
    SNUG_STATE_LIKE,    /* as the parameter */
    SNUG_STATE_ROWS,    /* one value for each row of the parameter */
    SNUG_STATE_COLUMNS, /* one for each column, of each segment */
    SNUG_STATE_BLOCKS,  /* one for each block of SNUG_QUANTISED_BLOCK values, of each segment */
};
struct snug_state {
    const char *name; /* its name in PyTorch's state_dict */
    enum snug_dtype dtype;
    enum snug_state_shape shape;
};

/* A weight from an optimizer's view: segments parameters of the same shape, stacked. */
struct snug_weight {
    int64_t rows, cols; /* of the stack */
    int32_t segments;
    bool vector; /* the parameters are vectors, a row each */
    bool table;  /* an embedding table */
};

/* What an optimizer keeps for a weight, in the order of the update's operands, and the operation that updates it. */
struct snug_states {
    enum snug_op_kind update;
    int count;
    struct snug_state items[SNUG_STATES_MAX];
};

/* Rows and columns of a state's tensor. */
void snug_state_size(const struct snug_state *state, const struct snug_weight *weight, int64_t *rows, int64_t *cols);

/* ---- the table ------------------------------------------------------------------------------------------------ */

/* A name in --optim, with the defaults of torch.optim, or Trainer's where they differ. */
struct snug_optimizer_name {
    const char *optim;
    struct snug_optimizer defaults;
};

/* A key of --optim_args, and its field in struct snug_optimizer. */
struct snug_optimizer_key {
    const char *key;
    size_t field;      /* a double, or a bool if range is NULL */
    const char *range; /* in words, for the message */
    double least, most;
    size_t given; /* a bool field that is set if the key is given; 0: none */
};
#define SNUG_TRUTH_KEY(member)                                                                                         \
    { .key = #member, .field = offsetof(struct snug_optimizer, member) }
/* range, least, most, and given if there is one */
#define SNUG_NUMBER_KEY(name, member, ...)                                                                             \
    { .key = name, .field = offsetof(struct snug_optimizer, member), .range = __VA_ARGS__ }
#define SNUG_ANY_NUMBER "", -DBL_MAX, DBL_MAX
#define SNUG_AT_LEAST_0 " of at least 0", 0, DBL_MAX

enum { SNUG_OPTIMIZER_NAMES_MOST = 3, SNUG_OPTIMIZER_KEYS_MOST = 8 };

struct snug_optimizer_info {
    struct snug_optimizer_name names[SNUG_OPTIMIZER_NAMES_MOST + 1]; /* optim is NULL after the last */
    struct snug_optimizer_key keys[SNUG_OPTIMIZER_KEYS_MOST + 1];    /* key is NULL after the last */
    bool takes_betas, takes_epsilon; /* those of --adam_beta1, --adam_beta2 and --adam_epsilon */
    const char
        *measured; /* --optim_args with which the update's rate is measured (measure/rates.c); NULL: the defaults */
    /* Refuses settings that exclude each other, as the constructors of torch and transformers do; NULL: there are none.
     */
    snug_status (*check)(snug_context *ctx, const struct snug_optimizer *optimizer);
    /* The optimizer's own learning rate, from the schedule's, of step number step, from 0; NULL: the schedule's. */
    double (*rate)(const struct snug_optimizer *optimizer, double scheduled, int64_t step);
    struct snug_states (*states)(const struct snug_optimizer *optimizer, const struct snug_weight *weight);
    /* The numbers of an update after `updates` earlier ones, of a weight with weight decay. */
    union snug_update_numbers (*numbers)(const struct snug_optimizer *optimizer, double updates, double learning_rate);
};

#define SNUG_DECLARE_OPTIMIZER(KIND, name, member) extern const struct snug_optimizer_info snug_optimizer_##name;
SNUG_OPTIMIZERS(SNUG_DECLARE_OPTIMIZER)
#undef SNUG_DECLARE_OPTIMIZER

extern const struct snug_optimizer_info *const snug_optimizers[]; /* all of them, then NULL */

#endif
