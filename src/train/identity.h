/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decides the result of a training, as a checkpoint remembers it: by content, not by name. Resuming compares it
 * with the run at hand.
 */
#ifndef SNUG_TRAIN_IDENTITY_H
#define SNUG_TRAIN_IDENTITY_H

#include <jansson.h>

#include "train/job.h"

/* {"fixed": {…}, "settings": {…}}: what must be the same for the optimizer's state and the place in the data to have a
   meaning, and what a user may change. NULL without memory. */
json_t *snug_identity(const struct snug_job *job);
/* SNUG_E_INPUT names what differs in "fixed"; what differs in "settings" is logged. path: of the saved one.
 *other_best: the metric of the best checkpoint is another one, or measured on other data. */
snug_status snug_identity_check(const struct snug_job *job, const char *path, const json_t *saved, bool *other_best);

#endif
