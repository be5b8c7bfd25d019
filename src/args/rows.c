/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in memory in place of the files of the arguments. */
#include <string.h>

#include "args/args.h"

/* In messages and in training_args.json the argument has the value path. */
static const struct {
    const char *name, *path;
    size_t offset;
} files[] = {{"train_file", "train rows in memory", offsetof(struct snug_args, train_rows)},
             {"validation_file", "validation rows in memory", offsetof(struct snug_args, validation_rows)},
             {"test_file", "test rows in memory", offsetof(struct snug_args, test_rows)}};
enum { FILES = sizeof files / sizeof *files };

static struct snug_rows **rows_of(const struct snug_args *args, size_t i) {
    return (struct snug_rows **)((char *)args + files[i].offset);
}

snug_status snug_args_take_rows(struct snug_args *args, const char *name, struct snug_rows *rows) {
    for (size_t i = 0; i < FILES; i++) {
        if (strcmp(files[i].name, name) != 0) continue;
        RETURN_IF_ERROR(snug_args_assign(args, name, files[i].path));
        *rows_of(args, i) = rows;
        return SNUG_OK;
    }
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "%s: rows in memory take the place of train_file, validation_file or test_file", name);
}

struct snug_rows *snug_args_rows(const struct snug_args *args, const char *path) {
    for (size_t i = 0; i < FILES; i++)
        if (strcmp(files[i].path, path) == 0) return *rows_of(args, i);
    return NULL;
}

snug_status snug_args_check_rows(const struct snug_args *args, const char *path) {
    for (size_t i = 0; i < FILES; i++)
        if (strcmp(files[i].path, path) == 0 && !*rows_of(args, i))
            return snug_fail(args->ctx, SNUG_E_USAGE, "%s: a program gave them to that run: give a file by --%s", path,
                             files[i].name);
    return SNUG_OK;
}
