/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's manifest.json, with two files, a folder and a pipe. */
#include <sys/stat.h>

#include "fuzz.h"
#include "io/folder.h"
#include "io/manifest.h"

#define IN FUZZ_FOLDER "/checkpoint"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    fuzz_file(IN "/manifest.json", data, size);
    fuzz_file(IN "/a", "a", 1);
    fuzz_file(IN "/sub/b", "", 0);
    fuzz_special(IN "/sub", S_IFDIR);
    fuzz_special(IN "/pipe", S_IFIFO);
    const struct snug_folder folder = fuzz_folder(IN);
    fuzz_accepts(ctx, snug_manifest_verify(ctx, &folder, (const char *const[]){"a", NULL}));
}
