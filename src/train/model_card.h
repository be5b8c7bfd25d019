/* SPDX-License-Identifier: Apache-2.0 */
/* README.md of a trained model: the model card that Trainer writes, from the arguments and the log. */
#ifndef SNUG_TRAIN_MODEL_CARD_H
#define SNUG_TRAIN_MODEL_CARD_H

#include <jansson.h>

#include "train/job.h"
#include "train/output.h"

/* Writes README.md into the output folder, unless it has one that snug did not write, or that was changed since: that
 * is kept, and logged. log_history: as in trainer_state.json; evaluated: its last evaluation is that of the model. */
snug_status snug_model_card_write(const struct snug_job *job, struct snug_output *output, const json_t *log_history,
                                  bool evaluated);

#endif
