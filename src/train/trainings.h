/* SPDX-License-Identifier: Apache-2.0 */
/* Other trainings of a run's model on the same batches: of all weights, of LoRA adapters, and of adapters beside
   weights of 4 bits. They are planned to be compared; none of them is ever chosen in place of the run's. */
#ifndef SNUG_TRAIN_TRAININGS_H
#define SNUG_TRAIN_TRAININGS_H

#include "train/fit.h"

/* Which training a run is; SNUG_TRAINING_COUNT: another one, of parts of the model. */
enum snug_training snug_training_of(const struct snug_setup *setup);
const char *snug_training_name(enum snug_training kind);

/* Plans the training `kind` with the arguments and batches of the run whose plan is `asked`, without --freeze, and with
   `flags` of methods. SNUG_E_USAGE or SNUG_E_UNSUPPORTED: the model or the arguments exclude it. */
snug_status snug_training_plan(snug_context *ctx, const struct snug_setup *setup, const struct snug_run_plan *asked,
                               enum snug_training kind, const char *flags, struct snug_run_plan *out);
/* The bytes and the time of each training, out[SNUG_TRAINING_COUNT], with the arguments that make it of the run's. One
   that does not fit limit recomputes its layers, unless that is set. total is 0 where it is not possible. */
snug_status snug_trainings_price(const struct snug_setup *setup, const struct snug_limits *limits,
                                 const struct snug_run_plan *asked, const struct snug_rates *rates, int64_t limit,
                                 struct snug_priced *out);

#endif
