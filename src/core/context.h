/* SPDX-License-Identifier: Apache-2.0 */
/* The context: errors, log and memory of one user of the library. Nothing in snug is global. */
#ifndef SNUG_CORE_CONTEXT_H
#define SNUG_CORE_CONTEXT_H

#include <stdarg.h>

#include "snug.h"

#define RETURN_IF_ERROR(expression)                                                                                    \
    do {                                                                                                               \
        snug_status status_ = (expression);                                                                            \
        if (status_ != SNUG_OK) return status_;                                                                        \
    } while (0)

/* Records the sentence and gives status back, so that a failing function ends with `return snug_fail(…)`.
   The sentence names the file, line, tensor, flag or device, and what to do. Safe from any thread; the first
   failure since the last public call stands, since later ones follow from it. The text is escaped by snug_escape(). */
snug_status snug_fail(snug_context *ctx, snug_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds to the sentence that was recorded, for who knows more of where it happened; gives status back. */
snug_status snug_add_to_error(snug_context *ctx, snug_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
/* The analyzer sees one file at a time, and must not think that a failure can be SNUG_OK. */
static inline snug_status snug_same_status(snug_status result, snug_status status) {
    (void)result;
    return status;
}
#define snug_fail(ctx, status, ...) snug_same_status((snug_fail)(ctx, status, __VA_ARGS__), status)
#endif
/* Forgets the recorded failure; for code that has another way to go. */
void snug_clear_error(snug_context *ctx);
/* Work before the first step asks whether it shall end: a job says by whom that is decided (NULL: by nobody). */
void snug_set_stop(snug_context *ctx, bool (*should_stop)(void *user), void *user);
bool snug_stop_asked(const snug_context *ctx);
/* Safe from any thread. */
void snug_log(snug_context *ctx, snug_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* count * size zeroed bytes; *out is NULL and the status SNUG_E_MEMORY when they cannot be had (overflow included).
   Asking for nothing gives NULL and SNUG_OK. Freed with free(). */
snug_status snug_alloc(snug_context *ctx, size_t count, size_t size, void **out);
/* Grows *array (elements of size bytes) to hold at least need; *capacity is in elements. Existing elements stay. */
snug_status snug_grow(snug_context *ctx, void **array, size_t *capacity, size_t need, size_t size);
/* A copy of text. */
snug_status snug_strdup(snug_context *ctx, const char *text, char **out);
/* A formatted string. */
snug_status snug_format(snug_context *ctx, char **out, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Seconds on a clock that only goes forward. */
double snug_seconds(void);

#endif
