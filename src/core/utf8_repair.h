/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SNUG_CORE_UTF8_REPAIR_H
#define SNUG_CORE_UTF8_REPAIR_H

#include "core/context.h"

/* Replaces each malformed sequence by U+FFFD, as Python's errors="replace" does; *out is freed with free(). */
snug_status snug_utf8_repair(snug_context *ctx, const char *text, size_t length, char **out, size_t *out_length);

#endif
