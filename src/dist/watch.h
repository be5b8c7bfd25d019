/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch: a TCP connection between rank 0 and each other rank, on which the ranks send their state twice a second.
 * It finds what a communication library does not report: a rank that was killed, a host that does not answer, a rank
 * that is late. One rank reports it, in the words of snug_watch_verdict(); the others end without a message.
 *
 * A thread of each rank does this. The caller's thread tells it where it is, and asks it in every collective operation.
 */
#ifndef SNUG_DIST_WATCH_H
#define SNUG_DIST_WATCH_H

#include "dist/collectives.h"
#include "dist/ranks.h"

struct snug_watch;

enum snug_watch_verdict {
    SNUG_WATCH_NONE,   /* no rank is known to be lost or late */
    SNUG_WATCH_REPORT, /* one is, and this rank reports it */
    SNUG_WATCH_SILENT, /* another rank reports it */
};

/* Connects the ranks; all call it. A rank that cannot be connected is named by a warning of rank 0, and is not watched.
 * timeout: seconds that a rank waits in a collective operation for the others. */
snug_status snug_watch_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_collectives *c,
                            double timeout, struct snug_watch **out);
/* Tells the others that this rank ends by intention, and frees the watch. NULL is allowed, here and below. */
void snug_watch_close(struct snug_watch *watch);

/* What the caller does from here on. step: negative before the first; phase: a string that is never freed. */
void snug_watch_at(struct snug_watch *watch, int64_t step, const char *phase);
/* For struct snug_collective_watch, whose user is the watch. */
void snug_watch_enter(void *watch, const char *operation);
/* The caller waits, but not in an operation that all ranks count: for a device, on which they communicate. */
void snug_watch_wait(struct snug_watch *watch, const char *what);
snug_status snug_watch_poll(void *watch, snug_context *ctx);
void snug_watch_leave(void *watch);

/* The verdict, and for SNUG_WATCH_REPORT and _SILENT the message: the rank, its host, its step and the cause. If it is
 * not asked for within 3 s after the event and this rank's turn, the watch's thread ends the process; one that reports
 * logs the message first. */
enum snug_watch_verdict snug_watch_verdict(struct snug_watch *watch, char text[SNUG_RANK_MESSAGE]);
/* Seconds for which this rank leaves a report to others. If rank 0 is lost, ranks of several hosts report it, and they
 * are not connected with each other: the first one reports it at once, and then the launcher ends the others. The watch
 * of this function and of the next one is not NULL. */
double snug_watch_turn(const struct snug_watch *watch);
/* Whether another rank has failed and reports it, so that this one need not report the same error. */
bool snug_watch_is_reported(struct snug_watch *watch);
/* This rank failed and reports it: the others do not. */
void snug_watch_fail(struct snug_watch *watch);
/* The process is about to end with this exit code: if it still exists after 2 s, the watch's thread ends it. */
void snug_watch_end(struct snug_watch *watch, int code);

#endif
