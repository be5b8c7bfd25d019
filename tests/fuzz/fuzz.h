/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(): it gives the input to a parser as
 * the product does, then uses what the parser made of it. Files lie in a folder in memory (/dev/shm).
 */
#ifndef SNUG_TESTS_FUZZ_H
#define SNUG_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A context for this input: without a log, and without the failure of the input before. */
snug_context *fuzz_context(void);
/* The folder; it goes when the process ends. */
const char *fuzz_folder(void);
/* The path of a file in it; valid until the next call but seven. */
const char *fuzz_path(const char *name);
/* Writes a file into the folder and gives its path. */
const char *fuzz_write(const char *name, const void *data, size_t size);
void fuzz_remove(const char *name);

/* The next part of an input whose parts are separated by the byte 0xFF, which no UTF-8 text holds. NULL after the last.
   Start with *at = 0. */
const uint8_t *fuzz_part(const uint8_t *data, size_t size, size_t *at, size_t *length);

/* What must hold of whatever the parser accepts. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
/* A call that failed says why. */
#define FUZZ_CHECK_STATUS(ctx, status) FUZZ_CHECK((status) == SNUG_OK || *snug_error_message(ctx))

#endif
