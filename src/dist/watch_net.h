/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and connections of the watch (dist/watch.c). */
#ifndef SNUG_DIST_WATCH_NET_H
#define SNUG_DIST_WATCH_NET_H

#include <sys/socket.h>

#include "dist/ranks.h"

enum { SNUG_WATCH_MAGIC = 0x736e7531, SNUG_WATCH_ADDRESSES = 16, SNUG_WATCH_TOKEN = 16 };

/* Where rank 0 can be connected to. The ranks get it through their communication library; connections without the
 * token are rejected. */
struct snug_watch_address {
    uint8_t token[SNUG_WATCH_TOKEN];
    char host[SNUG_HOST_NAME];
    int count; /* 0: it does not listen */
    struct sockaddr_storage addresses[SNUG_WATCH_ADDRESSES];
};

enum snug_watch_kind {
    SNUG_WATCH_HELLO, /* the first message, in both directions; a rank's next one confirms the connection */
    SNUG_WATCH_STATE,
    SNUG_WATCH_BYE,      /* the rank ends by intention */
    SNUG_WATCH_FAILS,    /* the rank has failed and reports it */
    SNUG_WATCH_REPORTED, /* of rank 0: another rank has failed and reports it */
    SNUG_WATCH_ENDED,    /* the rank reports the text; the other one ends */
};

struct snug_watch_message {
    uint8_t token[SNUG_WATCH_TOKEN];
    uint32_t magic;
    int32_t kind;
    int64_t rank, step;
    int64_t entered; /* collective operations so far */
    double waited;   /* seconds in the current one; negative: none */
    char host[SNUG_HOST_NAME], phase[48], operation[48], text[SNUG_RANK_MESSAGE];
};

/* Listens on all interfaces, at a port that is free; the socket, or -1. */
int snug_watch_listen(struct snug_watch_address *out, const char *host);
/* Calls the addresses, says hello, waits for rank 0's, and confirms it with a state, after which rank 0 watches this
 * rank: before that it may end the connection. The socket; -1 if no address can be reached in 2 s, or rank 0 does not
 * answer within 30 s. */
int snug_watch_connect(const struct snug_watch_address *address, const char *host,
                       const struct snug_watch_message *hello, struct snug_watch_message *answer);
/* Data that the other host does not acknowledge within 5 s break the connection, and so does a host that is gone. */
void snug_watch_tune(int fd);
/* errno, or 0. A state that does not fit the socket's buffer is not sent. */
int snug_watch_send(int fd, const struct snug_watch_message *message);
bool snug_watch_is_valid(const struct snug_watch_message *message, const struct snug_watch_address *address);

#endif
