/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's calls of snug.h. A function there begins with SNUG_REQUIRE() for each pointer that must not be NULL.
 * If it uses what belongs to one thread at a time, snug_enter() and snug_leave() (core/context.h) follow, around what
 * it does: the library itself calls the functions inside. A call that is refused has not begun, and changes nothing.
 */
#ifndef SNUG_CORE_CALL_H
#define SNUG_CORE_CALL_H

#include <pthread.h>
#include <sys/types.h>

#include "snug.h"

enum { SNUG_MESSAGE_SIZE = 2048 };

/* Returns SNUG_E_USAGE, or value, from a public function if argument is NULL. */
#define SNUG_REQUIRE(argument)                                                                                         \
    do {                                                                                                               \
        if (!(argument)) return snug_refuse_null(__func__, #argument);                                                 \
    } while (0)
#define SNUG_REQUIRE_OR(value, argument)                                                                               \
    do {                                                                                                               \
        if (!(argument)) {                                                                                             \
            snug_refuse_null(__func__, #argument);                                                                     \
            return value;                                                                                              \
        }                                                                                                              \
    } while (0)
/* Before the other arguments: what a failed call gives is NULL. */
#define SNUG_REQUIRE_OUT(out)                                                                                          \
    do {                                                                                                               \
        SNUG_REQUIRE(out);                                                                                             \
        *(out) = NULL;                                                                                                 \
    } while (0)
/* For an array of count pointers, none of which may be NULL. */
#define SNUG_REQUIRE_ITEMS(array, count)                                                                               \
    do {                                                                                                               \
        SNUG_REQUIRE(array);                                                                                           \
        for (size_t i_ = 0; i_ < (size_t)(count); i_++)                                                                \
            if (!(array)[i_]) return snug_refuse("%s: " #array "[%zu] must not be NULL", __func__, i_);                \
    } while (0)

/* Refuses a call: the message is this thread's until its next call begins or is refused. Returns SNUG_E_USAGE. */
snug_status snug_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
snug_status snug_refuse_null(const char *function, const char *argument);
/* As snug_refuse(), for a call that has failed, where its context may get other messages before this thread reads it.
 */
void snug_keep_message(const char *message);
/* The message; NULL if this thread's last call was not refused. */
const char *snug_refusal(void);

/* The call in progress of a context; function is NULL if there is none. */
struct snug_call {
    const char *function;
    pthread_t thread;
    pid_t process;
    bool quiet;
    int depth; /* 2: within it, a callback has called a function that allows it */
};

/* What a call does if another one is in progress, and flags. */
enum snug_turn {
    SNUG_TURN_ALONE = 0,  /* it is refused */
    SNUG_TURN_WAITS = 1,  /* it waits for that of another thread */
    SNUG_TURN_WITHIN = 2, /* it is allowed in a callback of that call */
    SNUG_TURN_QUIET = 4,  /* it cannot fail, and leaves the message of the last failure */
};

snug_status snug_call_begin(struct snug_call *call, const char *function, enum snug_turn turn);
/* explained: if a call in a callback was refused, that is not why this one has failed. */
void snug_call_end(struct snug_call *call, bool explained);
/* Whether this thread is in the call. */
bool snug_call_is_own(const struct snug_call *call);
/* Whether this process was forked within the call, which cannot go on here. */
bool snug_call_is_parents(const struct snug_call *call);

/* The end of messages about what a child of fork() cannot use. */
#define SNUG_WITHOUT_FORK                                                                                              \
    "open or create it again in this process, or start processes without fork(), as Python's multiprocessing does "    \
    "with the start method \"spawn\""

#endif
