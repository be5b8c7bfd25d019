/* SPDX-License-Identifier: Apache-2.0 */
/* For tests with files: a context that keeps its last log message, and a folder that is removed afterwards. */
#ifndef SNUG_TESTS_SCRATCH_H
#define SNUG_TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/context.h"
#include "io/folder_write.h"
#include "temporary.h"
#include "test.h"

struct scratch {
    snug_context *ctx;
    char folder[64];
    char path[512]; /* of the last scratch_path() */
    char log[2048];
    int log_count;
};

static inline void scratch_log(void *user, snug_log_level level, const char *message) {
    struct scratch *scratch = user;
    (void)level;
    snprintf(scratch->log, sizeof scratch->log, "%s", message);
    scratch->log_count++;
}

static inline int scratch_setup(void **state) {
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (!temporary_folder(scratch->folder, sizeof scratch->folder) || snug_context_create(&scratch->ctx) != SNUG_OK)
        return -1;
    snug_context_set_log(scratch->ctx, scratch_log, scratch, SNUG_LOG_DEBUG);
    *state = scratch;
    return 0;
}

static inline int scratch_teardown(void **state) {
    struct scratch *scratch = *state;
    snug_status status = snug_folder_remove(scratch->ctx, NULL, scratch->folder);
    snug_context_destroy(scratch->ctx);
    free(scratch);
    return status == SNUG_OK ? 0 : -1;
}

/* Valid until the next call. */
static inline const char *scratch_path(struct scratch *scratch, const char *name) {
    snprintf(scratch->path, sizeof scratch->path, "%s/%s", scratch->folder, name);
    return scratch->path;
}

static inline const char *scratch_write(struct scratch *scratch, const char *name, const void *data, size_t size) {
    FILE *file = fopen(scratch_path(scratch, name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return scratch->path;
}

static inline const char *write_text(struct scratch *scratch, const char *name, const char *text) {
    return scratch_write(scratch, name, text, strlen(text));
}

static inline void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

/* The call failed with this status and a message that contains part; clears the failure. */
static inline void assert_fails(struct scratch *scratch, snug_status found, snug_status expected, const char *part) {
    if (found != expected) fail_msg("status %d, not %d: %s", found, expected, snug_error_message(scratch->ctx));
    assert_contains(snug_error_message(scratch->ctx), part);
    snug_clear_error(scratch->ctx);
}

static inline void assert_ok(struct scratch *scratch, snug_status found) {
    if (found != SNUG_OK) fail_msg("status %d: %s", found, snug_error_message(scratch->ctx));
}

/* root ignores permissions: switches the process to another user, or back. */
static inline void be_another_user(bool other) {
    static bool root;
    if (geteuid() == 0) root = true;
    if (!root) return;
    assert_int_equal(setresuid(other ? 65534 : 0, other ? 65534 : 0, 0), 0);
    prctl(PR_SET_DUMPABLE, 1); /* reset by a change of user, but LeakSanitizer needs it */
}

/* The number of files and folders in a folder. */
static inline int entries(const char *folder) {
    DIR *list = opendir(folder);
    assert_non_null(list);
    int count = -2; /* "." and ".." */
    while (readdir(list)) count++;
    closedir(list);
    return count;
}

static inline void assert_file_is(struct scratch *s, const char *path, const char *expected) {
    char *text;
    size_t size;
    assert_ok(s, snug_file_read(s->ctx, NULL, path, &text, &size));
    assert_int_equal(size, strlen(expected));
    assert_string_equal(text, expected);
    free(text);
}

/* Opens the scratch folder. */
static inline struct snug_folder scratch_open(struct scratch *s) {
    struct snug_folder folder;
    assert_ok(s, snug_folder_open(s->ctx, NULL, s->folder, &folder));
    folder.run = 0x0123456789abcdef;
    return folder;
}

/* Creates the file a in a folder. */
static inline void fill(struct scratch *s, const struct snug_folder *folder, const char *text) {
    assert_ok(s, snug_file_replace(s->ctx, folder, "a", text, strlen(text)));
}

#endif
