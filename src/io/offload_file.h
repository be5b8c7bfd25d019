/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offload file: an unnamed file with the offloaded tensors, and a thread that copies between file and memory in the
 * order of the requests.
 *
 * Copies are reads and writes, not a mapping: page faults cannot be scheduled, and a full disk would raise a signal.
 * All blocks of the file are allocated when it is opened, so that a full disk fails before the first step. Copied
 * regions are dropped from the page cache (after writeback), so that the page cache does not hold the offloaded tensors
 * in memory.
 */
#ifndef SNUG_IO_OFFLOAD_FILE_H
#define SNUG_IO_OFFLOAD_FILE_H

#include "core/context.h"

struct snug_offload_file;

/* Opens an offload file of `bytes` zeros in folder, which is created if missing. The file has no name, so it disappears
 * when the process ends in any way. */
snug_status snug_offload_file_open(snug_context *ctx, const char *folder, int64_t bytes,
                                   struct snug_offload_file **out);
/* Waits for the copies in flight; NULL is allowed. */
void snug_offload_file_close(struct snug_offload_file *file);
/* Whether folder's file system keeps its files in memory (tmpfs). */
bool snug_offload_file_is_memory(const char *folder);

/* Starts the copy of `bytes` at offset into data, or of data to offset, and returns the number to wait for. data must
 * not be used until then. Copies are done in the order of the calls. A call blocks only if very many copies are in
 * flight. A fetch that fails, or follows a copy that failed, gives zeros. */
uint64_t snug_offload_file_fetch(struct snug_offload_file *file, void *data, int64_t offset, int64_t bytes);
uint64_t snug_offload_file_store(struct snug_offload_file *file, const void *data, int64_t offset, int64_t bytes);
/* Waits for this copy and all before it; returns the status of the first copy that failed since the file was opened. */
snug_status snug_offload_file_wait(snug_context *ctx, struct snug_offload_file *file, uint64_t number);
/* Waits for all copies. */
snug_status snug_offload_file_drain(snug_context *ctx, struct snug_offload_file *file);
/* Seconds that the copies so far took: of fetches and of stores. Those in flight do not count. */
void snug_offload_file_seconds(struct snug_offload_file *file, double seconds[2]);
/* The status of snug_offload_file_drain() without waiting: of the copies that are done. */
snug_status snug_offload_file_check(snug_context *ctx, struct snug_offload_file *file);

/* The calls for a device's copies. They may come from any thread, and a plug-in, which is not linked with them, reaches
 * them through its run's backing store. await() is snug_offload_file_wait() without a status, because a context belongs
 * to one thread: the next wait, drain or check reports a copy that failed. */
struct snug_offload_file_calls {
    uint64_t (*fetch)(struct snug_offload_file *file, void *data, int64_t offset, int64_t bytes);
    uint64_t (*store)(struct snug_offload_file *file, const void *data, int64_t offset, int64_t bytes);
    void (*await)(struct snug_offload_file *file, uint64_t number);
};
extern const struct snug_offload_file_calls snug_offload_file_calls;

#endif
