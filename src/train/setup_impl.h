/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the setup share. */
#ifndef SNUG_TRAIN_SETUP_IMPL_H
#define SNUG_TRAIN_SETUP_IMPL_H

#include "train/setup.h"

/* Records a file or folder that the run reads: the folder, with links resolved, and its read permissions. */
void snug_setup_note_source(struct snug_setup *setup, const char *path);
/* Config, task and adapters, and where the weights are. */
snug_status snug_setup_open_model(struct snug_setup *setup);
/* In which types the model computes and is stored, where the arguments leave it to its files. */
snug_status snug_setup_choose_types(struct snug_setup *setup);
/* The tokenizer for texts, which file contains; NULL: there are none, and no tokenizer is opened. */
snug_status snug_setup_open_tokenizer(struct snug_setup *setup, const char *file);

/* Counts what was opened from path, and refuses rows that the model cannot take. */
snug_status snug_setup_take_source(struct snug_setup *setup, const char *path, struct snug_data_source *source);
/* Sets what is put before the texts of an embedding: setup->prompt or prompts. */
snug_status snug_setup_find_prompt(struct snug_setup *setup);
/* Opens the files of a retrieval, as the data to evaluate. */
snug_status snug_setup_open_retrieval(struct snug_setup *setup);
/* Orders the rows of a training of sentence embeddings by --batch_sampler. */
snug_status snug_setup_choose_order(struct snug_setup *setup);
/* Of a training of sentence embeddings: its loss, config.sentence->loss. */
snug_status snug_setup_choose_loss(struct snug_setup *setup);

#endif
