/* SPDX-License-Identifier: Apache-2.0 */
/* The context: errors, log and memory of one user of the library. Nothing in snug is global. */
#ifndef SNUG_CORE_CONTEXT_H
#define SNUG_CORE_CONTEXT_H

#include <stdarg.h>

#include "core/call.h"

#define RETURN_IF_ERROR(expression)                                                                                    \
    do {                                                                                                               \
        snug_status status_ = (expression);                                                                            \
        if (status_ != SNUG_OK) return status_;                                                                        \
    } while (0)

/* Around what a public function does (core/call.h): it is the call of ctx in progress from enter to leave. Enter clears
 * the error message, unless turn is quiet. Leave returns status. */
snug_status snug_enter(snug_context *ctx, const char *function, enum snug_turn turn);
snug_status snug_leave(snug_context *ctx, snug_status status);
/* Whether this thread is in a call of ctx: in a callback of it. */
bool snug_is_within_call(const snug_context *ctx);

/* The last failure's message, as snug_error_message() gives it to the program, but never that of a refused call. */
const char *snug_context_message(const snug_context *ctx);
/* Records the error message and returns status, so that a failing function ends with `return snug_fail(…)`. The message
 * names the file, line, tensor, flag or device, and what to do. Safe from any thread. The first failure since the last
 * public call is kept, because later ones follow from it. The text is escaped by snug_escape(). */
snug_status snug_fail(snug_context *ctx, snug_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends to the recorded message, for callers that know more about where the error occurred; returns status. */
snug_status snug_add_to_error(snug_context *ctx, snug_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
/* For the static analyzer, which sees one file at a time: a failure is never SNUG_OK. */
static inline snug_status snug_same_status(snug_status result, snug_status status) {
    (void)result;
    return status;
}
#define snug_fail(ctx, status, ...) snug_same_status((snug_fail)(ctx, status, __VA_ARGS__), status)
#endif
/* Clears the recorded failure, for code that handles it. */
void snug_clear_error(snug_context *ctx);
/* Sets the function that work before the first step calls to ask whether to stop (NULL: never). */
void snug_set_stop(snug_context *ctx, bool (*should_stop)(void *user), void *user);
bool snug_stop_asked(const snug_context *ctx);
/* In a run on several ranks the log of a rank other than 0 begins with its number, and has warnings and errors only.
 */
void snug_context_set_rank(snug_context *ctx, int rank);
/* Runs function(user) in the context's compute thread (core/compute.h), which the first call makes, and returns its
 * status. All parallel regions are opened there, and oneDNN is called there alone. Within that thread it is a plain
 * call. One thread of the caller's at a time. SNUG_E_MEMORY: no thread can be made. */
snug_status snug_compute(snug_context *ctx, snug_status (*function)(void *user), void *user);
/* Safe from any thread; in the compute thread the message goes to the thread that waits for it. */
void snug_log(snug_context *ctx, snug_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Allocates count * size zeroed bytes. On failure (overflow included) *out is NULL and the status SNUG_E_MEMORY. For 0
 * bytes *out is NULL and the status SNUG_OK. Freed with free(). */
snug_status snug_alloc(snug_context *ctx, size_t count, size_t size, void **out);
/* Grows *array (elements of size bytes) to hold at least need elements; *capacity is in elements. Existing elements are
 * kept. */
snug_status snug_grow(snug_context *ctx, void **array, size_t *capacity, size_t need, size_t size);
/* A copy of text. */
snug_status snug_strdup(snug_context *ctx, const char *text, char **out);
/* A formatted string. */
snug_status snug_format(snug_context *ctx, char **out, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A copy of text that lives as long as the context; equal texts share one copy. */
snug_status snug_keep_text(snug_context *ctx, const char *text, const char **out);

/* Seconds of a monotonic clock. */
double snug_seconds(void);

#endif
