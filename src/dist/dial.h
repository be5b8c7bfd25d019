/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to addresses where another rank may listen. Each is called again and again, says hello once it is there,
 * and then waits for answers, as long as it takes: who calls does not give up a connection because the other side is
 * slow. Several are called at once, in a loop around poll(), so that one that is silent does not delay the others.
 */
#ifndef SNUG_DIST_DIAL_H
#define SNUG_DIST_DIAL_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct snug_dial {
    struct sockaddr_storage to;
    double due;                     /* when it is called; INFINITY: never again */
    const void *hello;              /* [hello_size] the first message */
    void *answer;                   /* [answer_size] the messages of the other side, one at a time */
    size_t hello_size, answer_size; /* bytes */

    int fd;       /* -1: not called now */
    double began; /* the running call */
    double pause; /* before the next call */
    size_t sent, received;
};

/* fd is -1 afterwards; the caller sets the first members. */
void snug_dial_prepare(struct snug_dial *dial, const struct sockaddr *to, double due);
/* For poll(): its descriptor is negative while there is nothing to wait for. */
struct pollfd snug_dial_events(const struct snug_dial *dial);
/* Calls, says hello or receives, whatever is possible now. True if a whole answer is there. */
bool snug_dial_work(struct snug_dial *dial, double now);
/* Whether the hello was sent: the other side, or its kernel, has accepted the connection. */
static inline bool snug_dial_is_connected(const struct snug_dial *dial) {
    return dial->fd >= 0 && dial->sent == dial->hello_size;
}
/* Ends the call; the next one begins after a pause, which grows. */
void snug_dial_again(struct snug_dial *dial, double now);
/* Ends the call; there is no other one. */
void snug_dial_close(struct snug_dial *dial);
/* The connection, which is the caller's from here on. */
int snug_dial_take(struct snug_dial *dial);

#endif
