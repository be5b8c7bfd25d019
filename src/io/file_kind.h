/* SPDX-License-Identifier: Apache-2.0 */
/* Files of another kind than the one that was asked for: what they are, and the way out. */
#ifndef SNUG_IO_FILE_KIND_H
#define SNUG_IO_FILE_KIND_H

#include "core/context.h"

/* So many of a file's first bytes tell every kind. */
enum { SNUG_KIND_BYTES = 512 };

struct snug_file_kind {
    const char *name; /* "a zip archive" */
    const char *way;  /* what to do: "unpack it (unzip)" */
    bool pickled;     /* it may hold PyTorch's weights */
};

/* The kind of a file that begins with these bytes; NULL: it may be text, JSON, a tokenizer's file or weights. */
const struct snug_file_kind *snug_file_kind(const void *bytes, size_t size);
/* SNUG_E_INPUT that names path, its kind and the way out, if there is such a kind. */
snug_status snug_file_check_kind(snug_context *ctx, const char *path, const void *bytes, size_t size);

#endif
