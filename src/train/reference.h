/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preference tuning: the log-probabilities that the reference model gives to the completions of each row. They are
 * computed before the first step, with the training's programs, and kept in a file of the output folder.
 */
#ifndef SNUG_TRAIN_REFERENCE_H
#define SNUG_TRAIN_REFERENCE_H

#include "train/session.h"

/* Sets those of the session's data (struct snug_data_source), for tasks of preferences; others are left as they are.
   Those in the folder `in` are taken if they are of the same reference model, data and precision; the folder may be
   closed. The session's weights must be those of its beginning, and are so afterwards. */
snug_status snug_reference_find(struct snug_session *session, const snug_callbacks *callbacks,
                                const struct snug_folder *in);
/* Writes the files that the folder lacks. */
snug_status snug_reference_write(struct snug_session *session, struct snug_output *output);

#endif
