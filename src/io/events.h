/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorBoard event files, of scalars and texts: records of the TFRecord framing (length and data, each with a masked
 * CRC-32C), each one Event message of tensorflow/core/util/event.proto. TensorBoard reads them while they grow, so each
 * record is flushed; TensorBoard skips an incomplete last record.
 */
#ifndef SNUG_IO_EVENTS_H
#define SNUG_IO_EVENTS_H

#include "io/file.h"

struct snug_events;

/* Makes the folder (in: see io/file.h), and in it events.out.tfevents.<seconds>.<host>.<pid>.<n>, n being the first
   free one from 0. mode: permissions of the file. */
snug_status snug_events_open(snug_context *ctx, const struct snug_folder *in, const char *folder, mode_t mode,
                             struct snug_events **out);
/* wall_time: seconds since 1970. */
snug_status snug_events_scalar(struct snug_events *events, const char *tag, int64_t step, double value,
                               double wall_time);
/* A text, which the dashboard shows under tag. */
snug_status snug_events_text(struct snug_events *events, const char *tag, const char *text, double wall_time);
/* NULL is allowed. */
void snug_events_close(struct snug_events *events);

#endif
