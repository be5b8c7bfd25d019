/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "io/file.h"

static snug_context *context;
static char folder[64] = "/dev/shm/snug-fuzz-XXXXXX";

static void clean_up(void) {
    snug_folder_remove(context, folder);
    snug_context_destroy(context);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    if (snug_context_create(&context) != SNUG_OK || !mkdtemp(folder)) abort();
    setenv("SNUG_CACHE", folder, 1);
    return atexit(clean_up);
}

snug_context *fuzz_context(void) {
    snug_clear_error(context);
    return context;
}

const char *fuzz_folder(void) { return folder; }

const char *fuzz_path(const char *name) {
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *fuzz_write(const char *name, const void *data, size_t size) {
    const char *path = fuzz_path(name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    return path;
}

void fuzz_remove(const char *name) { unlink(fuzz_path(name)); }

const uint8_t *fuzz_part(const uint8_t *data, size_t size, size_t *at, size_t *length) {
    *length = 0;
    if (*at > size) return NULL;
    const uint8_t *begin = data + *at, *end = *at < size ? memchr(begin, 0xFF, size - *at) : NULL;
    *length = end ? (size_t)(end - begin) : size - *at;
    *at += *length + 1;
    return begin;
}
