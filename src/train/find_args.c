/* SPDX-License-Identifier: Apache-2.0 */
/* Which file of arguments a folder has: that of its last training, also of one that was interrupted. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "args/table.h"
#include "train/trained.h"
#include "train/trainer.h"

static snug_status join_checkpoint(snug_context *ctx, const char *folder, int64_t step, char **out) {
    return snug_format(ctx, out, "%s/checkpoint-%lld/" SNUG_TRAINING_ARGS, folder, (long long)step);
}

/* The arguments of the newest checkpoint of the folder's last run; NULL: it has none. */
static snug_status find_checkpoint(snug_context *ctx, const char *path, char **out) {
    struct snug_trainer run = {.ctx = ctx};
    struct snug_checkpoint *items = NULL;
    size_t count = 0;
    *out = NULL;
    RETURN_IF_ERROR(snug_output_look(ctx, path, &run.output));
    snug_status status = snug_checkpoint_list(&run, &items, &count);
    while (status == SNUG_OK && count-- > 0 && !*out) {
        char *found;
        if (!items[count].own || items[count].from.run != run.output.from.run) continue;
        status = join_checkpoint(ctx, path, items[count].step, &found);
        if (status == SNUG_OK && snug_file_exists(NULL, found))
            *out = found;
        else if (status == SNUG_OK)
            free(found);
    }
    free(items);
    snug_output_close(&run.output);
    return status;
}

/* A training that ended has trainer_state.json beside its arguments: a new one removes it at its start, while the
   arguments of the model before stay until this one is saved. */
static snug_status find_in_folder(snug_context *ctx, const char *path, char **out) {
    char *own, *state = NULL, *checkpoint = NULL;
    RETURN_IF_ERROR(snug_path_join(ctx, &own, path, SNUG_TRAINING_ARGS));
    snug_status status = snug_path_join(ctx, &state, path, "trainer_state.json");
    const bool ended = status == SNUG_OK && snug_file_exists(NULL, state);
    if (status == SNUG_OK && !ended) status = find_checkpoint(ctx, path, &checkpoint);
    if (status == SNUG_OK && !checkpoint && !snug_file_exists(NULL, own))
        status = snug_fail(ctx, SNUG_E_INPUT,
                           "--args_from %s: the folder has no " SNUG_TRAINING_ARGS ", and no checkpoint of a training",
                           path);
    *out = status != SNUG_OK ? NULL : checkpoint ? checkpoint : own;
    if (*out != own) free(own);
    if (*out != checkpoint) free(checkpoint);
    free(state);
    return status;
}

snug_status snug_args_find_file(snug_context *ctx, const char *path, char **out, bool *folder) {
    struct stat info;
    const bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const char *slash = strrchr(path, '/');
    *folder = is_folder && strncmp(slash ? slash + 1 : path, "checkpoint-", strlen("checkpoint-")) != 0;
    return is_folder ? find_in_folder(ctx, path, out) : snug_strdup(ctx, path, out);
}
