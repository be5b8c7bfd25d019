/* SPDX-License-Identifier: Apache-2.0 */
/* Well-formed UTF-8, as files and names of strangers need not be. snug_escape() of snug.h is implemented here too. */
#ifndef SNUG_CORE_UTF8_H
#define SNUG_CORE_UTF8_H

#include "core/context.h"

/* The first byte that is not well-formed UTF-8 (surrogates, overlong forms and > U+10FFFF included); length if none. */
size_t snug_utf8_invalid(const char *text, size_t length);
/* Replaces each malformed sequence by U+FFFD, as Python's errors="replace" does; *out is freed with free(). */
snug_status snug_utf8_repair(snug_context *ctx, const char *text, size_t length, char **out, size_t *out_length);

/* The length of text without a character that is cut off at its end. */
size_t snug_utf8_cut(const char *text, size_t length);

#endif
