/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives through TCP, for ranks on GPUs that no MPI connects: what their hosts tell each other is small (a status,
 * counts, predictions, the parts of a checkpoint), and all of it passes through rank 0. Data between GPUs does not.
 */
#ifndef SNUG_DIST_TCP_H
#define SNUG_DIST_TCP_H

#include "dist/collectives.h"
#include "dist/rendezvous.h"

/* Connects all ranks; once in a process at a time. SNUG_E_IO: a rank is missing after `timeout` seconds, or the ports
 * of the rendezvous are taken. */
snug_status snug_tcp_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                          double timeout, const struct snug_collectives **out);

#endif
