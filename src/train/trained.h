/* SPDX-License-Identifier: Apache-2.0 */
/* What a run records of its data files, and what a model folder records about its training (training_args.json). */
#ifndef SNUG_TRAIN_TRAINED_H
#define SNUG_TRAIN_TRAINED_H

#include "data/dataset.h"
#include "io/file.h"

#define SNUG_TRAINING_ARGS "training_args.json"

/* How a model was trained, as its folder says. */
struct snug_trained {
    struct snug_used_columns columns; /* no texts: not known */
    char *label_separator;            /* --label_separator; NULL: not given */
    char *missing_labels;             /* --missing_label_values; NULL: not given */
    char *chat_date;                  /* --chat_template_date that a chat template showed; NULL: none did */
    int64_t max_seq_length;           /* 0: not known */
    bool completion_only_loss, assistant_only_loss; /* True and False if not known */
    float *class_weights;                           /* [classes] of the loss, or NULL */
    size_t classes;
};
/* There is nothing in a folder without the file, or with one of another program. Freed in any case with
   snug_trained_free(). */
snug_status snug_trained_read(snug_context *ctx, const struct snug_folder *folder, struct snug_trained *out);
void snug_trained_free(struct snug_trained *trained);

/* Bytes and XXH3-64 of a data file; *bytes is -1 for a pipe and for synthetic data, which have none. */
snug_status snug_data_checksum(snug_context *ctx, const char *path, int64_t *bytes, uint64_t *digest);

#endif
