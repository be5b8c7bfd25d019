/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "io/folder.h"
#include "io/offload_file.h"
#include "measure/rates.h"

enum { PIECE = 4 << 20, PIECES = 32 }; /* of the offload file; more than it has in the page cache */

/* Stores all pieces of the file, or, as offloading does, stores some between fetches of others. */
static snug_status copy_pieces(snug_context *ctx, struct snug_offload_file *file, void *data, bool fetches) {
    for (int64_t i = 0; i < PIECES; i++) {
        snug_offload_file_store(file, data, i * PIECE, PIECE);
        if (fetches) snug_offload_file_fetch(file, data, (i + PIECES / 2) % PIECES * PIECE, PIECE);
    }
    return snug_offload_file_drain(ctx, file);
}

/* The first stores are a trial, because the file system may allocate its blocks late. A disk that reads and writes by
   turns is slower than one that does first all of one, then all of the other. A GPU's copies through host memory are
   faster than a disk, and run beside it. */
snug_status snug_rates_measure_disk(snug_context *ctx, const char *offload_dir, struct snug_rates *rates) {
    static const enum snug_op_kind kinds[] = {SNUG_OP_STORE, SNUG_OP_FETCH};
    struct snug_folder folder;
    char problem[256];
    void *data = NULL;
    struct snug_offload_file *file = NULL;
    const char *temporary = getenv("TMPDIR");
    RETURN_IF_ERROR(snug_cache_folder_open(ctx, &folder, problem));
    if (!temporary || !*temporary) temporary = "/tmp";
    const char *path = offload_dir ? offload_dir : folder.path ? folder.path : temporary;
    snug_status status = snug_alloc(ctx, PIECE, 1, &data);
    if (status == SNUG_OK) status = snug_offload_file_open(ctx, path, (int64_t)PIECE * PIECES, &file);
    if (status == SNUG_OK) status = copy_pieces(ctx, file, data, false);
    const double begin = snug_seconds();
    if (status == SNUG_OK) status = copy_pieces(ctx, file, data, true);
    const double seconds = (snug_seconds() - begin) / (2.0 * PIECES);
    for (int k = 0; k < 2 && status == SNUG_OK; k++)
        status = snug_rates_add(
            rates,
            (struct snug_rate){.kind = kinds[k], .file = rates->overlaps, .byte = seconds / PIECE, .samples = 1});
    snug_offload_file_close(file);
    free(data);
    snug_folder_close(&folder);
    return status;
}
