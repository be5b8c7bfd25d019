/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point of libsnug_mpi_openmpi.so and libsnug_mpi_mpich.so. */
#ifndef SNUG_DIST_MPI_PLUGIN_H
#define SNUG_DIST_MPI_PLUGIN_H

#include "dist/collectives.h"

/* The ABI version: changes with every change of the interface between program and plug-in, which are built together. */
#define SNUG_MPI_PLUGIN_VERSION 3

struct snug_mpi_plugin {
    int version;
    size_t collectives_size; /* of the struct: another check that both are of the same build */
    /* Starts MPI, once in a process, and connects all ranks that its launcher started. The calling thread is the only
     * one that may use the table. */
    snug_status (*open)(snug_context *ctx, const struct snug_collectives **out);
};
typedef const struct snug_mpi_plugin *snug_mpi_plugin_fn(void);

#define SNUG_MPI_OPENMPI "libsnug_mpi_openmpi.so"
#define SNUG_MPI_MPICH "libsnug_mpi_mpich.so"
#define SNUG_MPI_PLUGIN_SYMBOL "snug_mpi_plugin"

#endif
