/* SPDX-License-Identifier: Apache-2.0 */
#include "core/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "core/process.h"

/* A call that is refused must not touch its context, which another thread may be using: its message is kept here. */
static _Thread_local char refusal[SNUG_MESSAGE_SIZE];

snug_status snug_refuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(refusal, sizeof refusal, format, args);
    va_end(args);
    return SNUG_E_USAGE;
}

snug_status snug_refuse_null(const char *function, const char *argument) {
    return snug_refuse("%s: %s must not be NULL", function, argument);
}

void snug_keep_message(const char *message) { snprintf(refusal, sizeof refusal, "%s", message); }

const char *snug_refusal(void) { return *refusal ? refusal : NULL; }

static bool is_here(const struct snug_call *call) { return call->process == getpid(); }

static bool is_of_this_thread(const struct snug_call *call) {
    return call->function && is_here(call) && pthread_equal(call->thread, pthread_self());
}

static snug_status refuse_busy(const struct snug_call *call, const char *function) {
    if (!is_here(call))
        return snug_refuse("%s: this process was forked while its parent was in %s() with the same context, and that "
                           "call never ends here: " SNUG_WITHOUT_FORK,
                           function, call->function);
    if (is_of_this_thread(call))
        return snug_refuse("%s: called in a callback of %s() with the same context: call it when that has returned",
                           function, call->function);
    return snug_refuse("%s: another thread is in %s() with the same context: a context, and what was made with it, "
                       "belong to one thread at a time",
                       function, call->function);
}

static snug_status begin(struct snug_call *call, const char *function, enum snug_turn turn) {
    while (turn & SNUG_TURN_WAITS && call->function && is_here(call) && !is_of_this_thread(call)) snug_gate_wait();
    const bool within = turn & SNUG_TURN_WITHIN && is_of_this_thread(call);
    if (call->function && !within) return refuse_busy(call, function);
    if (!within)
        *call = (struct snug_call){
            .function = function, .thread = pthread_self(), .process = getpid(), .quiet = turn & SNUG_TURN_QUIET};
    call->depth++;
    if (!(turn & SNUG_TURN_QUIET)) *refusal = '\0';
    return SNUG_OK;
}

snug_status snug_call_begin(struct snug_call *call, const char *function, enum snug_turn turn) {
    snug_gate_lock();
    const snug_status status = begin(call, function, turn);
    snug_gate_unlock();
    return status;
}

void snug_call_end(struct snug_call *call, bool explained) {
    snug_gate_lock();
    if (--call->depth == 0) call->function = NULL;
    if (call->depth == 0 && explained) *refusal = '\0'; /* that of a call in a callback */
    snug_gate_wake();
    snug_gate_unlock();
}

bool snug_call_is_own(const struct snug_call *call) {
    snug_gate_lock();
    const bool own = is_of_this_thread(call);
    snug_gate_unlock();
    return own;
}

bool snug_call_is_parents(const struct snug_call *call) {
    snug_gate_lock();
    const bool parents = call->function && !is_here(call);
    snug_gate_unlock();
    return parents;
}
