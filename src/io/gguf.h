/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF, version 3 (ggml-org/ggml, docs/gguf.md): values by key, the list of tensors, and their data, each from a
 * multiple of 32 bytes on. A file is described first and then written tensor by tensor, so that no more than a few rows
 * are in memory.
 */
#ifndef SNUG_IO_GGUF_H
#define SNUG_IO_GGUF_H

#include "io/file.h"

/* The numbers of ggml's types. */
enum snug_gguf_type { SNUG_GGUF_F32 = 0, SNUG_GGUF_F16 = 1, SNUG_GGUF_Q8_0 = 8, SNUG_GGUF_BF16 = 30 };
/* The numbers of the types of values. */
enum snug_gguf_value {
    SNUG_GGUF_U32 = 4,
    SNUG_GGUF_I32 = 5,
    SNUG_GGUF_REAL = 6, /* 32 bits */
    SNUG_GGUF_BOOL = 7,
    SNUG_GGUF_TEXT = 8,
    SNUG_GGUF_ARRAY = 9
};

struct snug_gguf_tensor {
    char name[96];
    enum snug_gguf_type type; /* Q8_0 becomes F16 where a row is not a multiple of 32 */
    int64_t rows, cols;       /* cols 0: a vector */
};

/* Zero-initialise but for ctx; the first failure is kept, and later calls do nothing. snug_gguf_free. */
struct snug_gguf {
    snug_context *ctx;
    snug_status status;
    char *values;
    size_t length, capacity;
    uint64_t value_count;
    struct snug_gguf_tensor *tensors;
    size_t tensor_count, tensor_capacity;
};

void snug_gguf_add_text(struct snug_gguf *file, const char *key, const char *text, size_t length);
void snug_gguf_add_count(struct snug_gguf *file, const char *key, int64_t value); /* as a U32 */
void snug_gguf_add_real(struct snug_gguf *file, const char *key, double value);
void snug_gguf_add_bool(struct snug_gguf *file, const char *key, bool value);
/* Begins a list of `count` values of a type, which the calls below then append: as many. */
void snug_gguf_add_array(struct snug_gguf *file, const char *key, enum snug_gguf_value of, uint64_t count);
void snug_gguf_append(struct snug_gguf *file, const void *value, size_t size);
void snug_gguf_append_text(struct snug_gguf *file, const char *text, size_t length);

void snug_gguf_add_tensor(struct snug_gguf *file, const struct snug_gguf_tensor *tensor);
/* Gives `rows` rows of a tensor from `first` on; a vector has rows of one value. */
typedef snug_status snug_gguf_source(void *user, size_t tensor, int64_t first, int64_t rows, float *out);
/* Writes the whole file, atomically. SNUG_E_INPUT if a value is too large for F16. */
snug_status snug_gguf_write(const struct snug_gguf *file, const char *path, snug_gguf_source *source, void *user);
void snug_gguf_free(struct snug_gguf *file);

#endif
