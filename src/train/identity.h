/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that determines the result of a training, as a checkpoint stores it: by content, not by name. Resuming
 * compares it with the current run.
 */
#ifndef SNUG_TRAIN_IDENTITY_H
#define SNUG_TRAIN_IDENTITY_H

#include <jansson.h>

#include "train/job.h"

/* {"fixed": {…}, "settings": {…}}: "fixed" must be the same for the optimizer's state and the position in the data to
 * be valid; a user may change "settings". NULL if out of memory. */
json_t *snug_identity(const struct snug_job *job);
/* SNUG_E_INPUT names what differs in "fixed"; what differs in "settings" is logged. path: of the saved identity.
   other_best: the best checkpoint has another metric, or was measured on other data. */
snug_status snug_identity_check(const struct snug_job *job, const char *path, const json_t *saved, bool *other_best);
/* SNUG_E_INPUT if a model of the configuration `other`, whose name is path, cannot have the weights of this one. */
snug_status snug_identity_compare_models(snug_context *ctx, const char *path, const struct snug_config *here,
                                         const struct snug_config *other);
/* snug_identity_check() for a loop of the caller's, which may freeze other parts: *refrozen. */
snug_status snug_identity_check_loop(const struct snug_job *job, const char *path, json_t *saved, bool *refrozen);

#endif
