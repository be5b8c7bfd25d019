/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives through TCP, for ranks on GPUs that no MPI connects: what their hosts tell each other is small (a status,
 * counts, predictions, the parts of a checkpoint), and all of it passes through rank 0. Data between GPUs does not.
 */
#ifndef SNUG_DIST_TCP_H
#define SNUG_DIST_TCP_H

#include "dist/collectives.h"
#include "dist/rendezvous.h"

/* Connects all ranks (dist/handshake.h), within `timeout` seconds and at most five minutes; once in a process at a
 * time. An operation waits as long for another rank, unless a watch decides that. */
snug_status snug_tcp_open(snug_context *ctx, const struct snug_ranks *ranks, const struct snug_rendezvous *at,
                          double timeout, const struct snug_collectives **out);

#endif
