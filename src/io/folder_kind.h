/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of another kind than the one that was asked for: what they are, and the way out. */
#ifndef SNUG_IO_FOLDER_KIND_H
#define SNUG_IO_FOLDER_KIND_H

#include "core/context.h"

/* Fails because the model's folder lacks a file (or several: "neither a nor b"), and says what the folder is, as an
   adapter's, or which folder below it has the model. SNUG_E_INPUT. */
snug_status snug_fail_model_folder(snug_context *ctx, const char *folder, const char *lacks);
/* Fails because a file of data was asked for and path is a folder. SNUG_E_INPUT. */
snug_status snug_fail_data_folder(snug_context *ctx, const char *path);

#endif
