/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks that no MPI connects find each other, over TCP at a rendezvous (dist/rendezvous.h):
 *
 *     rank N             rank 0
 *     HELLO    ------->            the key of the run, rank, number of ranks, process
 *              <-------  WELCOME
 *     CONFIRM  ------->            rank 0 counts the rank from here on
 *              <-------  START     to all, once all are counted; with each rank's place on its host
 *
 * A rank calls all ports and addresses until one of them says WELCOME, and then waits for START. It ends a connection
 * only if that has broken, and calls again: rank 0 drops it, counted or not, and takes the rank in again. So either
 * side may be stopped, slow or killed and started again at any moment until all are there. Connections that say
 * nothing, too little or something else take one of a few places for a few seconds, and delay nothing.
 *
 * What cannot become a run is reported by all at once: another number of ranks, a second rank 0, which rank 0 finds
 * because it calls the rendezvous itself.
 */
#ifndef SNUG_DIST_HANDSHAKE_H
#define SNUG_DIST_HANDSHAKE_H

#include "dist/ranks.h"
#include "dist/rendezvous.h"

enum snug_handshake_kind {
    SNUG_HANDSHAKE_HELLO = 1,
    SNUG_HANDSHAKE_WELCOME,
    SNUG_HANDSHAKE_CONFIRM,
    SNUG_HANDSHAKE_START,
    SNUG_HANDSHAKE_OTHER_RUN, /* the key is another one: this is rank 0 of another run */
    SNUG_HANDSHAKE_TAKEN,     /* another process has this rank; the text names it */
    SNUG_HANDSHAKE_REFUSED,   /* the run cannot begin, as the text says */
    SNUG_HANDSHAKE_SELF,      /* rank 0 has called itself */
};

struct snug_handshake_message {
    char magic[8];
    uint64_t key;     /* of the run; 0 in an answer to another one */
    uint64_t process; /* a random number of the sender's */
    int32_t kind, rank, size, pid;
    int32_t attempt, unused;        /* of a rank: how often its connection has broken */
    int32_t local_rank, local_size; /* of START: the receiver's, among the ranks of its host */
    char host[SNUG_HOST_NAME], text[SNUG_RANK_MESSAGE];
};
#define SNUG_HANDSHAKE_MAGIC "snugTCP2" /* without the zero at its end */

struct snug_handshake {
    int *
        sockets; /* connections that do not block: of rank 0 [size], by rank, its own is -1; of others [1], to rank 0 */
    int local_rank, local_size;
};

/* Connects all ranks within `seconds`. SNUG_E_IO: a rank is missing, the ports of the rendezvous are taken, or the
 * ranks do not belong together. Afterwards as after a failure, snug_handshake_free() frees what out has. */
snug_status snug_handshake_run(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                               double seconds, struct snug_handshake *out);
void snug_handshake_free(struct snug_handshake *out, int size);

#endif
