/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that a run writes its results into: opened once, locked, and with a manifest of what snug wrote there.
 *
 * A file is replaced only if the manifest lists it, or --overwrite_output_dir allows it; a link, pipe or folder never.
 * Conflicting files are found before any work.
 */
#ifndef SNUG_TRAIN_OUTPUT_H
#define SNUG_TRAIN_OUTPUT_H

#include "io/folder.h"
#include "io/lock.h"
#include "io/manifest.h"

#define SNUG_RUN_REPORT "run_report.json" /* the figures of a training for `snug report` */

/* A zeroed struct is closed: folder.path is NULL. */
struct snug_output {
    snug_context *ctx;
    struct snug_folder folder;
    struct snug_lock lock;
    json_t *files;               /* the manifest's: files that snug wrote into the folder */
    struct snug_provenance from; /* of the last training in the folder; run 0: none */
    bool model;                  /* a model is written into it; otherwise only results of an evaluation */
    bool overwrite;              /* regular files that snug did not write may be replaced */
};

/* Opens and locks the folder at path, and checks for conflicting files. The folder is not created: if there is none,
 *out stays closed. */
snug_status snug_output_open(snug_context *ctx, const char *path, bool model, bool overwrite, struct snug_output *out);
/* Opens the folder to read from it, for ranks other than 0, which write nothing: neither locked nor checked. If there
 * is none, *out stays closed. */
snug_status snug_output_look(snug_context *ctx, const char *path, struct snug_output *out);
/* Makes the folder, if *out is closed, and opens it; removes what killed runs left unfinished. mode: permissions of
 * files made in it (io/folder.h). */
snug_status snug_output_make(snug_context *ctx, const char *path, bool model, bool overwrite, mode_t mode,
                             struct snug_output *out);
/* NULL is allowed. */
void snug_output_close(struct snug_output *output);
/* Notes in the manifest that a training writes into the folder from here on. */
snug_status snug_output_start(struct snug_output *output, const struct snug_provenance *from);
/* Before another training than the folder's last one: removes the results that the manifest lists (metrics, reports,
   the model card, predictions), since they would be taken for this one's, and logs what is removed or replaced. Its
   model stays until the new one is written. A file that was changed since snug wrote it stays, if a training does not
   replace it anyway, and so do those of the names kept (NULL-terminated). Call snug_output_start() next. */
snug_status snug_output_replace(struct snug_output *output, const char *const *kept);
/* Notes in the manifest that the files of these names (NULL-terminated) are being written. If it has config.json, it
   removes those files of a model that this list lacks, since files of two models would be read as one, and the results
   that belong to the model before; but weights stay until snug_output_end_model(). */
snug_status snug_output_begin(struct snug_output *output, const char *const *names);
/* Whether these names can be written: SNUG_E_IO names one that another program made. *output may be closed. */
snug_status snug_output_check(const struct snug_output *output, const char *const *names);
/* Whether there is no such file, or it is as snug wrote it: people edit a model card, and predictions. */
bool snug_output_is_as_written(const struct snug_output *output, const char *name);
/* After snug_output_begin() with the files of a model, of these names: removes weights that the list lacks. Where these
   would be read instead of the new ones (model.safetensors beside an index), the new model takes effect here. */
snug_status snug_output_end_model(struct snug_output *output, const char *const *names);
/* Records that these files are complete. */
snug_status snug_output_end(struct snug_output *output);

#endif
