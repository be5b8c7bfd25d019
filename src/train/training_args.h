/* SPDX-License-Identifier: Apache-2.0 */
/*
 * training_args.json: how a model was made, in its folder. All arguments, which of them were given, versions, the data
 * files with checksums, and what an evaluation or prediction uses again: columns and max_seq_length.
 *
 *   {"program": "snug", "version": "0.1.0", "system": "Linux 6.1 x86_64", "compiler": "12.2.0", "device": "CPU",
 *    "arguments": {"learning_rate": 5e-05, …}, "given": ["learning_rate", …], "seed": 42,
 *    "data": {"text": ["sentence"], "pair": false, "delimiter": null, "label": "label",
 *              "label_separator": null, "missing_label_values": null, "validation_split": null,
 *              "max_seq_length": 128},
 *    "files": {"train_file": {"path": "/data/train.csv", "bytes": 1234, "xxh3_64": "16 hex digits"}, …}}
 */
#ifndef SNUG_TRAIN_TRAINING_ARGS_H
#define SNUG_TRAIN_TRAINING_ARGS_H

#include "train/job.h"

/* Writes the file of a training. */
snug_status snug_training_args_write(const struct snug_job *job, const struct snug_folder *folder);
/* With --args_from: warns if a data file has another content than in the run that is repeated. */
snug_status snug_training_args_compare(const struct snug_job *job);

#endif
