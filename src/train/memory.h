/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this process and of the machine, as the kernel reports it; -1 if it does not. */
#ifndef SNUG_TRAIN_MEMORY_H
#define SNUG_TRAIN_MEMORY_H

#include <stdint.h>

/* Resident bytes of this process now and at its peak, from /proc/self/status. */
int64_t snug_resident_bytes(void);
int64_t snug_peak_resident_bytes(void);
/* Total and available memory of the machine, from /proc/meminfo, or of the control group if it may use less. */
int64_t snug_machine_bytes(void);
int64_t snug_available_bytes(void);

/* Whole mebibytes, so that two measurements of the same program agree. */
static inline int64_t snug_round_up_mib(int64_t bytes) { return bytes < 0 ? 0 : (bytes + (1 << 20) - 1) >> 20 << 20; }

#endif
