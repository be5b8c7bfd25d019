/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint's manifest.json, beside two files and a folder. It must not make snug look at what lies outside. */
#include <sys/stat.h>

#include "fuzz.h"
#include "io/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool prepared;
    if (!prepared) {
        mkdir(fuzz_path("in"), 0700);
        mkdir(fuzz_path("in/sub"), 0700);
        fuzz_write("in/a", "a", 1);
        fuzz_write("in/sub/b", "", 0);
        fuzz_write("out", "", 0);
        FUZZ_CHECK(mkfifo(fuzz_path("in/pipe"), 0600) == 0); /* who reads it waits for ever */
        prepared = true;
    }
    snug_context *ctx = fuzz_context();
    fuzz_write("in/manifest.json", data, size);
    const snug_status status = snug_folder_verify(ctx, fuzz_path("in"));
    FUZZ_CHECK_STATUS(ctx, status);
    return 0;
}
