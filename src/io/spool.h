/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A spool: a file without a name that holds what does not stand in memory, and a thread that copies between the two in
 * the order in which it is asked.
 *
 * Copies are reads and writes, not a mapping: page faults cannot be planned, and a full disk would be a signal. The
 * file has all its blocks from the beginning, so that a disk can be full before the first step only. What was copied is
 * dropped from the kernel's cache, written out first, so that the cache is not silently the memory.
 */
#ifndef SNUG_IO_SPOOL_H
#define SNUG_IO_SPOOL_H

#include "core/context.h"

struct snug_spool;

/* A spool of bytes zeros in folder, which is made if need be. The file has no name: nothing is left behind, whatever
   ends the process. */
snug_status snug_spool_open(snug_context *ctx, const char *folder, int64_t bytes, struct snug_spool **out);
/* Waits for the copies under way; NULL is fine. */
void snug_spool_close(struct snug_spool *spool);
/* Whether folder's file system keeps its files in memory (tmpfs). */
bool snug_spool_is_memory(const char *folder);

/* Starts to copy bytes at offset into data, or data to offset, and gives a number to wait for. data belongs to the
   spool until then. Copies are done in the order of the calls, which wait only while very many are under way. */
uint64_t snug_spool_fetch(struct snug_spool *spool, void *data, int64_t offset, int64_t bytes);
uint64_t snug_spool_store(struct snug_spool *spool, const void *data, int64_t offset, int64_t bytes);
/* Waits for that copy and all before it; the status is that of the first that failed since the spool was opened. */
snug_status snug_spool_wait(snug_context *ctx, struct snug_spool *spool, uint64_t number);
/* Waits for all. */
snug_status snug_spool_drain(snug_context *ctx, struct snug_spool *spool);

#endif
