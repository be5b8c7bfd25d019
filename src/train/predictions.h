/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of a loaded model: the conversion that snug_predict() uses, batch by batch. */
#ifndef SNUG_TRAIN_PREDICTIONS_H
#define SNUG_TRAIN_PREDICTIONS_H

#include "train/session.h"

struct snug_predicting;

/* Closed with snug_predicting_close(), also after a failure. */
snug_status snug_predicting_open(struct snug_session *session, struct snug_predicting **out);
/* Predicts the rows of the session's data set, the first of which has index `first` in results. */
snug_status snug_predicting_run(struct snug_predicting *predicting, int64_t first,
                                snug_status (*on_row)(void *user, const snug_prediction *row), void *user);
void snug_predicting_close(struct snug_predicting *predicting);

#endif
