/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint on several ranks. Rank 0 chooses it. Where the ranks' file systems are separate, it sends the files to
 * the ranks that do not have the folder: they are in output_dir/checkpoint-copy-RANK, of the rank that writes them,
 * while ranks load them.
 */
#ifndef SNUG_TRAIN_CHECKPOINT_COPY_H
#define SNUG_TRAIN_CHECKPOINT_COPY_H

#include "train/trainer.h"

struct snug_checkpoint_copy {
    struct snug_folder in; /* of a rank without the folder: its output_dir */
    bool sent;             /* to some rank; the same on all */
    bool writes;           /* this rank writes a copy, and removes it */
    char name[32];         /* of the copy, in `in` */
};

/* folder: on rank 0 the checkpoint, which is opened and verified; on the others it is opened here. required: files that
 * must be in it; except: a file that is not sent, or NULL. All ranks have the same status. Ended by
 * snug_checkpoint_copy_end(), which closes the folder, also after a failure. */
snug_status snug_checkpoint_copy_begin(struct snug_trainer *trainer, const char *const *required, const char *except,
                                       struct snug_folder *folder, struct snug_checkpoint_copy *out);
/* status: of loading it, on this rank. Waits until all ranks have loaded it, and returns status, or what removing the
 * copy gives. */
snug_status snug_checkpoint_copy_end(struct snug_trainer *trainer, struct snug_folder *folder,
                                     struct snug_checkpoint_copy *copy, snug_status status);

#endif
