/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated GPUs for tests, reported by the libraries of tests/fake, which read them from a file. */
#ifndef SNUG_TESTS_FAKE_GPU_H
#define SNUG_TESTS_FAKE_GPU_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define TWO_GPUS "driver 580.65.06 13000\ngpu 143771 1000 7 NVIDIA H200\ngpu 81559 0 0 NVIDIA H100\n"

static char world[64];

static inline void begin_world(void) {
    snprintf(world, sizeof world, "/tmp/snug-gpu-%d", (int)getpid());
    setenv("SNUG_FAKE_GPU", world, 1);
}

static inline void set_world(const char *text) {
    FILE *file = fopen(world, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* The loader reads LD_LIBRARY_PATH when a program starts: the program starts itself again, with the fakes first. An
   rpath would not do, since a sanitizer's dlopen() does not know it. The new process has the path name in the folder of
   the fakes: snug opens the plug-in in the program's folder, and the build may have made a real one. */
static inline void start_with_fakes(const char *name, char **argv) {
    const char *before = getenv("SNUG_TEST_LIBRARIES"), *now = getenv("LD_LIBRARY_PATH");
    char path[4096], own[4096];
    if (before) {
        *before ? setenv("LD_LIBRARY_PATH", before, 1) : unsetenv("LD_LIBRARY_PATH");
        unsetenv("SNUG_TEST_LIBRARIES");
        return;
    }
    snprintf(path, sizeof path, "%s%s%s", SNUG_FAKE_DIR, now ? ":" : "", now ? now : "");
    setenv("SNUG_TEST_LIBRARIES", now ? now : "", 1);
    setenv("LD_LIBRARY_PATH", path, 1);
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    snprintf(path, sizeof path, SNUG_FAKE_DIR "/%s", name);
    unlink(path);
    if (link(own, path) == 0) execv(path, argv);
}

/* The output of folder/snug with these arguments, and its exit code. */
static inline int run_in(const char *folder, const char *environment, const char *arguments, char *output,
                         size_t size) {
    char command[1024];
    snprintf(command, sizeof command, "%s '%s/snug' %s 2>&1", environment, folder, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t length = fread(output, 1, size - 1, pipe);
    output[length] = '\0';
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline int run(const char *environment, const char *arguments, char *output, size_t size) {
    return run_in(SNUG_BINARY_DIR, environment, arguments, output, size);
}

#define WITH_FAKES "LD_LIBRARY_PATH='" SNUG_FAKE_DIR "'"

static inline void says(const char *output, const char *text) {
    if (!strstr(output, text)) fail_msg("\"%s\" is not in:\n%s", text, output);
}

#endif
