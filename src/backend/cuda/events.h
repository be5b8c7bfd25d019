/* SPDX-License-Identifier: Apache-2.0 */
/* Timestamps of operations on the device: struct snug_backend's record_timestamp, read_timestamps and free_timestamps.
 */
#ifndef SNUG_BACKEND_CUDA_EVENTS_H
#define SNUG_BACKEND_CUDA_EVENTS_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

snug_status snug_cuda_record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number);
snug_status snug_cuda_read_timestamps(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                      size_t count);
/* Records when a copy begins or is done, in its stream, if run->copy_times is set. */
snug_status snug_cuda_time_copy(struct snug_run *run, cudaStream_t stream, bool done);
void snug_cuda_free_timestamps(struct snug_timestamps *timestamps);

#endif
