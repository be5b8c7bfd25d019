/* SPDX-License-Identifier: Apache-2.0 */
/* A .safetensors file: its header, and reading what it describes. */
#include "fuzz.h"
#include "io/safetensors.h"

static void read_tensor(snug_context *ctx, const struct snug_safetensors *files,
                        const struct snug_stored_tensor *tensor) {
    enum { MOST = 64 };
    float values[MOST];
    uint64_t stored[MOST];
    const int64_t count = tensor->count < MOST ? tensor->count : MOST, first = tensor->count - count;
    FUZZ_CHECK(tensor->count >= 0 && tensor->dims >= 0 && tensor->dims <= SNUG_SAFETENSORS_DIMS);
    FUZZ_CHECK(snug_safetensors_find(files, tensor->name) == tensor);
    snug_clear_error(ctx);
    if (tensor->readable)
        FUZZ_CHECK(snug_safetensors_read(ctx, files, tensor, first, count, values) == SNUG_OK);
    else
        FUZZ_CHECK(snug_safetensors_read(ctx, files, tensor, first, count, values) == SNUG_E_INPUT);
    if (strcmp(tensor->type_name, snug_dtype_name(tensor->dtype)) == 0)
        FUZZ_CHECK(snug_safetensors_read_stored(ctx, files, tensor, first, count, stored) == SNUG_OK);
}

void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size) {
    struct snug_safetensors files;
    const char *path = fuzz_file(FUZZ_FOLDER "/model.safetensors", data, size);
    if (!fuzz_accepts(ctx, snug_safetensors_open(ctx, NULL, path, &files))) return;
    for (size_t i = 0; i < files.count && i < 8; i++) read_tensor(ctx, &files, &files.tensors[i]);
    snug_safetensors_close(&files);
}
