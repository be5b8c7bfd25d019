/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json with shards, two of which have the same tensor. A sub-folder has another shard, which
   the index must not reach. */
#include "fuzz.h"
#include "io/safetensors.h"

/* A file of one tensor of this name, a single character. */
#define SHARD(name) "\x36\0\0\0\0\0\0\0{\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}\0\0\0"

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_safetensors files;
    fuzz_file(FUZZ_FOLDER "/a", SHARD("a"), sizeof SHARD("a"));
    fuzz_file(FUZZ_FOLDER "/b", SHARD("b"), sizeof SHARD("b"));
    fuzz_file(FUZZ_FOLDER "/d", SHARD("a"), sizeof SHARD("a"));
    fuzz_file(FUZZ_FOLDER "/sub/c", SHARD("c"), sizeof SHARD("c"));
    const char *path = fuzz_file(FUZZ_FOLDER "/model.safetensors.index.json", data, size);
    if (!fuzz_accepts(ctx, snug_safetensors_open(ctx, NULL, path, &files))) return;
    FUZZ_CHECK(files.count == 1 || files.count == 2);
    FUZZ_CHECK(!snug_safetensors_find(&files, "c"));
    snug_safetensors_close(&files);
}
