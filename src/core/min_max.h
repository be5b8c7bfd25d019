/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_CORE_MIN_MAX_H
#define SNUG_CORE_MIN_MAX_H

#include <stdint.h>

static inline int64_t snug_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t snug_max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
