/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors (huggingface/safetensors): 8 bytes of header length, a JSON header, the data. */
#ifndef SNUG_IO_SAFETENSORS_H
#define SNUG_IO_SAFETENSORS_H

#include "core/context.h"
#include "core/dtype.h"
#include "io/file.h"

#define SNUG_SAFETENSORS_DIMS 8

struct snug_stored_tensor {
    char *name;
    enum snug_dtype dtype;
    bool readable; /* dtype is one that snug reads; type_name is its name in the file */
    char type_name[16];
    int dims;
    int64_t shape[SNUG_SAFETENSORS_DIMS];
    int64_t count;   /* elements */
    int file;        /* which of the opened files */
    uint64_t offset; /* absolute, in bytes */
};

/* One or several files opened for reading. Data is read on request; none stays in memory. */
struct snug_safetensors {
    struct snug_stored_tensor *tensors; /* sorted by name */
    size_t count;
    struct snug_safetensors_file *files;
    size_t file_count;
};

/* Opens a .safetensors file, or a model.safetensors.index.json with the shards beside it (their names may not
   leave the folder). Every size and offset is checked against the file's length. */
snug_status snug_safetensors_open(snug_context *ctx, const struct snug_folder *in, const char *name,
                                  struct snug_safetensors *out);
void snug_safetensors_close(struct snug_safetensors *files);
/* Refuses a pickled file; the message explains how to convert it. */
snug_status snug_fail_pickled(snug_context *ctx, const char *path);
/* NULL if there is none of that name. */
const struct snug_stored_tensor *snug_safetensors_find(const struct snug_safetensors *files, const char *name);
/* Reads elements first … first + count - 1 of a F32, F16 or BF16 tensor as fp32, through a small buffer. */
snug_status snug_safetensors_read(snug_context *ctx, const struct snug_safetensors *files,
                                  const struct snug_stored_tensor *tensor, int64_t first, int64_t count, float *out);

/* As snug_safetensors_read(), but in their stored type, of any type that snug supports. */
snug_status snug_safetensors_read_stored(snug_context *ctx, const struct snug_safetensors *files,
                                         const struct snug_stored_tensor *tensor, int64_t first, int64_t count,
                                         void *out);

/* As one of them (stored: the second; a tensor of F16 or BF16 is read as fp32 otherwise), of elements that the tensor
   has, but without a message, so that several threads may read: false if reading fails. */
bool snug_safetensors_try(const struct snug_safetensors *files, const struct snug_stored_tensor *tensor, int64_t first,
                          int64_t count, bool stored, void *out);

/* A tensor of a file to write, and where its data begins in the file. */
struct snug_tensor_entry {
    const char *name;
    enum snug_dtype dtype;
    int dims;
    int64_t shape[SNUG_SAFETENSORS_DIMS];
    int64_t offset; /* set by snug_safetensors_lay_out() */
};
/* What a file has before its data, which begins at a multiple of 8. */
struct snug_safetensors_head {
    char *text; /* owned */
    int64_t bytes;
    int64_t file_bytes; /* of the whole file */
};
/* Lays out a file with these tensors and "__metadata__": {"format": "pt"}. It depends on names, types and shapes alone,
 * not on the order of the entries: processes that write parts of one file lay it out alike. */
snug_status snug_safetensors_lay_out(snug_context *ctx, struct snug_tensor_entry *tensors, size_t count,
                                     struct snug_safetensors_head *out);

#endif
