/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranks that no MPI connects find each other: rank 0 listens on one of a few ports of its host. */
#ifndef SNUG_DIST_RENDEZVOUS_H
#define SNUG_DIST_RENDEZVOUS_H

#include "dist/ranks.h"

enum { SNUG_RENDEZVOUS_HOST = 256, SNUG_RENDEZVOUS_PORTS = 16 };

/* The variable with a secret that snug --gpus gives to its ranks: connections without it are rejected. */
#define SNUG_RENDEZVOUS_SECRET "SNUG_RANKS_SECRET"

struct snug_rendezvous {
    char host[SNUG_RENDEZVOUS_HOST]; /* of rank 0; "": there is no rendezvous */
    int first, count;                /* ports: the first that is free */
    uint64_t key;                    /* of the run: connections without it, on the same ports, are rejected */
};

/* MASTER_ADDR and MASTER_PORT, whoever started the ranks; in a Slurm step, with or without --mpi, the first host of the
 * step and a port that follows from its number. SNUG_E_USAGE: a variable that makes no sense. */
snug_status snug_rendezvous_find(snug_context *ctx, const struct snug_ranks *ranks, struct snug_rendezvous *out);

#endif
