/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. A target is one file with fuzz_one(): it gives the input to a parser as the product
 * does, then uses what the parser made of it. Files lie in memory: the linker puts fuzz.c between snug and the calls
 * that open and read files (see CMakeLists.txt), so that an input costs no call of the system.
 */
#ifndef SNUG_TESTS_FUZZ_H
#define SNUG_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"

/* The context has no log and no failure yet. Every file that snug opens for the input must be closed afterwards. */
void fuzz_one(snug_context *ctx, const uint8_t *data, size_t size);

/* The folder of the files. Opening a path outside of it is a finding. */
#define FUZZ_FOLDER "/fuzz"

/* A file of this path (a literal), until the path is given again: size bytes, which are not copied. No file where data
   is NULL. Returns the path. */
const char *fuzz_file(const char *path, const void *data, size_t size);
/* The file at every path, in the folder or not, for input that itself names files. No file where data is NULL. */
void fuzz_any_file(const void *data, size_t size);
/* A handle of the folder of this path (a literal); one at a time. */
struct snug_folder fuzz_folder(const char *path);
/* An entry that is no regular file: S_IFDIR, or S_IFIFO without a writer. Reading from it is a finding. */
void fuzz_special(const char *path, unsigned kind);

/* The next part of an input whose parts are separated by the byte 0xFF, which no UTF-8 text holds. NULL after the last.
   Start with *at = 0. */
const uint8_t *fuzz_part(const uint8_t *data, size_t size, size_t *at, size_t *length);

/* An invariant of everything that the parser accepts. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
/* Whether a call succeeded; a failed call must have set a message of one line. */
bool fuzz_accepts(const snug_context *ctx, snug_status status);

#endif
