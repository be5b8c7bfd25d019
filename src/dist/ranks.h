/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks: the processes of one training. Which of them this process is, is what the launcher's variables say; no flag is
 * needed. A process that no launcher started is rank 0 of 1.
 */
#ifndef SNUG_DIST_RANKS_H
#define SNUG_DIST_RANKS_H

#include <limits.h>
#include <stdbool.h>

#include "core/context.h"

/* In bytes: any host's name, and a message about a rank. */
enum { SNUG_RANKS_MOST = 1 << 20, SNUG_HOST_NAME = HOST_NAME_MAX + 1, SNUG_RANK_MESSAGE = 768 };

struct snug_ranks {
    int rank, size;             /* of the run */
    int local_rank, local_size; /* on this host; local_size 0: the launcher does not say */
    char host[SNUG_HOST_NAME];
    const char *launcher;    /* "torchrun", "Open MPI", "MPICH", "Slurm"; NULL: none */
    const char *size_source; /* the variable that size was read from, for messages; NULL: none */
};

/* Reads the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), Open MPI (OMPI_COMM_WORLD_…), MPICH
 * and others with PMI (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS), and of a Slurm step (SLURM_PROCID, …).
 * The first launcher of this order that is found decides; Slurm is last, since the others can run inside of a step. PMI
 * variables that agree with a step's are srun's (--mpi=pmi2).
 * SNUG_E_USAGE names a variable that is no number, is out of range, or contradicts another one. */
snug_status snug_ranks_find(snug_context *ctx, struct snug_ranks *out);

/* The rank and the number of ranks of another process, as its environment says: size bytes of "NAME=VALUE", each with a
 * zero byte at the end. False: no launcher started it as one of several ranks. */
bool snug_ranks_read(const char *environment, size_t size, int *rank, int *count);

#endif
