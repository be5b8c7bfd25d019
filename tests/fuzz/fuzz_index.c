/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json beside two shards. Outside of its folder lies a file that it must not reach. */
#include <sys/stat.h>

#include "fuzz.h"
#include "io/safetensors.h"

static void write_shard(const char *name, const char *tensor) {
    char file[256] = {0};
    const int length = snprintf(file + 8, sizeof file - 8,
                                "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    file[0] = (char)length;
    fuzz_write(name, file, 8 + (size_t)length + 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool prepared;
    if (!prepared) {
        mkdir(fuzz_path("in"), 0700);
        mkdir(fuzz_path("in/sub"), 0700);
        write_shard("in/a", "a");
        write_shard("in/b", "b");
        write_shard("out", "outside");
        write_shard("in/sub/c", "outside");
        prepared = true;
    }
    snug_context *ctx = fuzz_context();
    struct snug_safetensors files;
    const char *path = fuzz_write("in/model.safetensors.index.json", data, size);
    const snug_status status = snug_safetensors_open(ctx, path, &files);
    FUZZ_CHECK_STATUS(ctx, status);
    if (status != SNUG_OK) return 0;
    FUZZ_CHECK(files.count == 1 || files.count == 2);
    FUZZ_CHECK(!snug_safetensors_find(&files, "outside"));
    snug_safetensors_close(&files);
    return 0;
}
