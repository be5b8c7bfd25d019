/* SPDX-License-Identifier: Apache-2.0 */
/* In place of libFuzzer: gives the target each file of a folder, as a test of the sanitized build. */
#include <dirent.h>

#include "fuzz_main.h"

static size_t run_file(const char *folder, const char *name) {
    char path[1024];
    uint8_t *data;
    FUZZ_CHECK(snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file && fseek(file, 0, SEEK_END) == 0);
    const long size = ftell(file);
    FUZZ_CHECK(size >= 0 && fseek(file, 0, SEEK_SET) == 0);
    FUZZ_CHECK(data = malloc((size_t)size)); /* no byte more: the sanitizer reports a read past the end */
    FUZZ_CHECK(fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    printf("%s\n", path); /* before it fails */
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 1;
}

int main(int argc, char *argv[]) {
    size_t count = 0;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        FUZZ_CHECK(folder);
        for (const struct dirent *entry; (entry = readdir(folder));)
            if (entry->d_name[0] != '.') count += run_file(argv[i], entry->d_name);
        closedir(folder);
    }
    FUZZ_CHECK(count > 0);
    return 0;
}
