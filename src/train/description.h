/* SPDX-License-Identifier: Apache-2.0 */
/* What a run was understood to be and what it will do, reported before its first step: as log lines of at most 80
 * columns, and as JSON. */
#ifndef SNUG_TRAIN_DESCRIPTION_H
#define SNUG_TRAIN_DESCRIPTION_H

#include <jansson.h>

#include "train/session.h"

/* Logs the lines (SNUG_LOG_INFO) and sends SNUG_EVENT_RUN. Rank 0 alone does. */
snug_status snug_description_tell(const struct snug_session *session, const snug_callbacks *callbacks);

#endif
