/* SPDX-License-Identifier: Apache-2.0 */
#include "core/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/call.h"
#include "core/compute.h"
#include "core/process.h"
#include "core/utf8.h"

struct kept {
    struct kept *next;
    char text[];
};

struct snug_context {
    struct snug_call call;
    pthread_mutex_t lock;       /* worker threads report failures too */
    pthread_mutex_t log_lock;   /* and log; a callback of the log may fail */
    bool failed, failed_before; /* before the call in a callback */
    char message[SNUG_MESSAGE_SIZE];
    snug_log_fn *log;
    void *log_user;
    snug_log_level level;
    bool (*should_stop)(void *user);
    void *stop_user;
    int rank; /* of a run on several */
    struct kept *kept;
    struct snug_compute *_Atomic compute; /* other threads log while it is made */
};

snug_status snug_context_create(snug_context **out) {
    SNUG_REQUIRE(out);
    *out = calloc(1, sizeof **out);
    if (!*out) return SNUG_E_MEMORY;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_mutex_init(&(*out)->log_lock, NULL);
    return SNUG_OK;
}

void snug_context_destroy(snug_context *ctx) {
    if (!ctx || snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_QUIET) != SNUG_OK) return;
    snug_compute_end(atomic_load(&ctx->compute));
    for (struct kept *next; ctx->kept; ctx->kept = next) {
        next = ctx->kept->next;
        free(ctx->kept);
    }
    pthread_mutex_destroy(&ctx->log_lock);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

snug_status snug_enter(snug_context *ctx, const char *function, enum snug_turn turn) {
    RETURN_IF_ERROR(snug_call_begin(&ctx->call, function, turn));
    if (ctx->call.depth > 1)
        ctx->failed_before = ctx->failed;
    else if (!ctx->call.quiet)
        snug_clear_error(ctx);
    return SNUG_OK;
}

snug_status snug_leave(snug_context *ctx, snug_status status) {
    /* Not the reason of the call around it. */
    if (ctx->call.depth > 1 && status != SNUG_OK && !ctx->failed_before) {
        snug_keep_message(ctx->message);
        snug_clear_error(ctx);
    }
    snug_call_end(&ctx->call, !ctx->call.quiet && (status == SNUG_OK || ctx->failed));
    return status;
}

bool snug_is_within_call(const snug_context *ctx) { return snug_call_is_own(&ctx->call); }

void snug_context_set_log(snug_context *ctx, snug_log_fn *fn, void *user, snug_log_level level) {
    SNUG_REQUIRE_OR(, ctx);
    if (snug_enter(ctx, __func__, SNUG_TURN_WAITS | SNUG_TURN_WITHIN | SNUG_TURN_QUIET) != SNUG_OK) return;
    ctx->log = fn;
    ctx->log_user = user;
    ctx->level = level;
    snug_leave(ctx, SNUG_OK);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

void snug_set_stop(snug_context *ctx, bool (*should_stop)(void *user), void *user) {
    ctx->should_stop = should_stop;
    ctx->stop_user = user;
}

void snug_context_set_rank(snug_context *ctx, int rank) { ctx->rank = rank; }

struct question {
    const snug_context *ctx;
    bool stop;
};

static void ask(void *user) {
    struct question *question = user;
    question->stop = question->ctx->should_stop(question->ctx->stop_user);
}

bool snug_stop_asked(const snug_context *ctx) {
    struct question question = {ctx, false};
    if (ctx->should_stop) snug_compute_leave(atomic_load(&ctx->compute), ask, &question);
    return question.stop;
}

const char *snug_context_message(const snug_context *ctx) { return ctx->message; }

const char *snug_error_message(const snug_context *ctx) {
    const char *refusal = snug_refusal();
    return refusal ? refusal : ctx ? ctx->message : "";
}

void snug_clear_error(snug_context *ctx) {
    pthread_mutex_lock(&ctx->lock);
    ctx->failed = false;
    ctx->message[0] = '\0';
    pthread_mutex_unlock(&ctx->lock);
}

/* Messages quote names from files. A terminal would interpret control characters in them. */
static void write_message(char *out, size_t size, const char *format, va_list args) {
    char text[SNUG_MESSAGE_SIZE];
    const int length = vsnprintf(text, sizeof text, format, args);
    const size_t kept = length < (int)sizeof text ? strlen(text) : snug_utf8_cut(text, sizeof text - 1);
    snug_escape(out, size, text, kept);
}

snug_status(snug_fail)(snug_context *ctx, snug_status status, const char *format, ...) {
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->failed) {
        va_list args;
        va_start(args, format);
        write_message(ctx->message, sizeof ctx->message, format, args);
        va_end(args);
        ctx->failed = true;
    }
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

snug_status snug_add_to_error(snug_context *ctx, snug_status status, const char *format, ...) {
    pthread_mutex_lock(&ctx->lock);
    const size_t used = strlen(ctx->message);
    va_list args;
    va_start(args, format);
    write_message(ctx->message + used, sizeof ctx->message - used, format, args);
    va_end(args);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

struct message {
    snug_context *ctx;
    snug_log_level level;
    char text[SNUG_MESSAGE_SIZE];
};

static void tell(void *user) {
    const struct message *message = user;
    snug_context *ctx = message->ctx;
    pthread_mutex_lock(&ctx->log_lock);
    ctx->log(ctx->log_user, message->level, message->text);
    pthread_mutex_unlock(&ctx->log_lock);
}

void snug_log(snug_context *ctx, snug_log_level level, const char *format, ...) {
    if (!ctx->log || level < ctx->level || (ctx->rank > 0 && level < SNUG_LOG_WARNING)) return;
    struct message message = {.ctx = ctx, .level = level};
    char *text = message.text;
    const int used = ctx->rank > 0 ? snprintf(text, sizeof message.text, "rank %d: ", ctx->rank) : 0;
    va_list args;
    va_start(args, format);
    write_message(text + used, sizeof message.text - (size_t)used, format, args);
    va_end(args);
    snug_compute_leave(atomic_load(&ctx->compute), tell, &message);
}

/* ---- computing ------------------------------------------------------------------------------------------------- */

static snug_status check_process(snug_context *ctx) {
    if (snug_operations_torn())
        return snug_fail(
            ctx, SNUG_E_USAGE,
            "this process was forked while another thread of its parent computed, so that libraries cannot "
            "be used here: start processes without fork(), as Python's multiprocessing does with the start "
            "method \"spawn\"");
    if (!snug_call_is_parents(&ctx->call)) return SNUG_OK;
    return snug_fail(
        ctx, SNUG_E_USAGE,
        "this process was forked by a callback of %s(), and that call cannot go on here: " SNUG_WITHOUT_FORK,
        ctx->call.function);
}

snug_status snug_compute(snug_context *ctx, snug_status (*function)(void *user), void *user) {
    RETURN_IF_ERROR(check_process(ctx));
    struct snug_compute *compute = atomic_load(&ctx->compute); /* which the caller's thread alone sets */
    const int error = snug_compute_begin(&compute);
    atomic_store(&ctx->compute, compute);
    if (!error) {
        const snug_status status = snug_compute_run(compute, function, user);
        RETURN_IF_ERROR(check_process(ctx)); /* a callback may have forked */
        return status;
    }
    return snug_fail(ctx, SNUG_E_MEMORY,
                     "a thread cannot be made: %s: is there a limit on processes (ulimit -u) or on memory (ulimit -v)?",
                     strerror(error));
}

snug_status snug_alloc(snug_context *ctx, size_t count, size_t size, void **out) {
    *out = NULL;
    if (count == 0) return SNUG_OK;
    *out = calloc(count, size);
    if (!*out) return snug_fail(ctx, SNUG_E_MEMORY, "out of memory: requested %zu elements of %zu bytes", count, size);
    return SNUG_OK;
}

snug_status snug_grow(snug_context *ctx, void **array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return SNUG_OK;
    size_t wanted = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (wanted < need) wanted = need;
    size_t bytes;
    void *grown = __builtin_mul_overflow(wanted, size, &bytes) ? NULL : realloc(*array, bytes);
    if (!grown)
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory: requested %zu elements of %zu bytes", wanted, size);
    *array = grown;
    *capacity = wanted;
    return SNUG_OK;
}

snug_status snug_strdup(snug_context *ctx, const char *text, char **out) {
    size_t size = strlen(text) + 1;
    void *copy;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(ctx, size, 1, &copy));
    *out = memcpy(copy, text, size);
    return SNUG_OK;
}

snug_status snug_keep_text(snug_context *ctx, const char *text, const char **out) {
    const size_t size = strlen(text) + 1;
    pthread_mutex_lock(&ctx->lock);
    struct kept *kept = ctx->kept;
    while (kept && strcmp(kept->text, text) != 0) kept = kept->next;
    if (!kept && (kept = malloc(sizeof *kept + size))) {
        memcpy(kept->text, text, size);
        kept->next = ctx->kept;
        ctx->kept = kept;
    }
    pthread_mutex_unlock(&ctx->lock);
    *out = kept ? kept->text : NULL;
    return kept ? SNUG_OK : snug_fail(ctx, SNUG_E_MEMORY, "out of memory: %zu bytes", size);
}

snug_status snug_format(snug_context *ctx, char **out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vasprintf(out, format, args);
    va_end(args);
    if (length < 0) {
        *out = NULL;
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory while formatting a message");
    }
    return SNUG_OK;
}

const char *snug_memory_class_name(snug_memory_class memory_class) {
    static const char *const names[SNUG_MEMORY_CLASS_COUNT] = {"weights",   "gradients", "optimizer", "activations",
                                                               "temporary", "workspace", "function",  "batch",
                                                               "context",   "host"};
    return (unsigned)memory_class < SNUG_MEMORY_CLASS_COUNT ? names[memory_class] : "?";
}

double snug_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *snug_version(void) { return SNUG_VERSION; }

void snug_free(void *text) { free(text); }
