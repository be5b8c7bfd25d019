/* SPDX-License-Identifier: Apache-2.0 */
#include "io/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/min_max.h"

enum { ALIGNMENT = 32, BLOCK = 32 /* of Q8_0 */, PIECE = 1 << 20 /* values that are written at a time, or a row */ };

/* ---- values ------------------------------------------------------------------------------------------------------ */

void snug_gguf_append(struct snug_gguf *file, const void *value, size_t size) {
    if (file->status == SNUG_OK)
        file->status = snug_grow(file->ctx, (void **)&file->values, &file->capacity, file->length + size, 1);
    if (file->status != SNUG_OK) return;
    memcpy(file->values + file->length, value, size);
    file->length += size;
}

void snug_gguf_append_text(struct snug_gguf *file, const char *text, size_t length) {
    const uint64_t bytes = length;
    snug_gguf_append(file, &bytes, sizeof bytes);
    snug_gguf_append(file, text, length);
}

static void add(struct snug_gguf *file, const char *key, enum snug_gguf_value type) {
    const uint32_t number = type;
    snug_gguf_append_text(file, key, strlen(key));
    snug_gguf_append(file, &number, sizeof number);
    file->value_count++;
}

void snug_gguf_add_text(struct snug_gguf *file, const char *key, const char *text, size_t length) {
    add(file, key, SNUG_GGUF_TEXT);
    snug_gguf_append_text(file, text, length);
}

void snug_gguf_add_count(struct snug_gguf *file, const char *key, int64_t value) {
    const uint32_t number = (uint32_t)value;
    add(file, key, SNUG_GGUF_U32);
    snug_gguf_append(file, &number, sizeof number);
}

void snug_gguf_add_real(struct snug_gguf *file, const char *key, double value) {
    const float number = (float)value;
    add(file, key, SNUG_GGUF_REAL);
    snug_gguf_append(file, &number, sizeof number);
}

void snug_gguf_add_bool(struct snug_gguf *file, const char *key, bool value) {
    const uint8_t byte = value;
    add(file, key, SNUG_GGUF_BOOL);
    snug_gguf_append(file, &byte, sizeof byte);
}

void snug_gguf_add_array(struct snug_gguf *file, const char *key, enum snug_gguf_value of, uint64_t count) {
    const uint32_t type = of;
    add(file, key, SNUG_GGUF_ARRAY);
    snug_gguf_append(file, &type, sizeof type);
    snug_gguf_append(file, &count, sizeof count);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int64_t cols_of(const struct snug_gguf_tensor *tensor) { return tensor->cols ? tensor->cols : 1; }

static int64_t bytes_of(const struct snug_gguf_tensor *tensor, int64_t rows) {
    const int64_t count = rows * cols_of(tensor);
    if (tensor->type == SNUG_GGUF_F32) return count * 4;
    if (tensor->type == SNUG_GGUF_Q8_0) return count / BLOCK * (BLOCK + 2);
    return count * 2;
}

void snug_gguf_add_tensor(struct snug_gguf *file, const struct snug_gguf_tensor *tensor) {
    if (file->status == SNUG_OK)
        file->status = snug_grow(file->ctx, (void **)&file->tensors, &file->tensor_capacity, file->tensor_count + 1,
                                 sizeof *file->tensors);
    if (file->status != SNUG_OK) return;
    struct snug_gguf_tensor *added = &file->tensors[file->tensor_count++];
    *added = *tensor;
    if (added->type == SNUG_GGUF_Q8_0 && added->cols % BLOCK) added->type = SNUG_GGUF_F16;
}

/* As ggml's quantize_row_q8_0_ref: the scale in 16 bits, and 32 bytes. */
static void quantize(const float *values, int64_t count, unsigned char *out) {
    for (int64_t i = 0; i < count; i += BLOCK, out += BLOCK + 2) {
        float most = 0;
        for (int k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(values[i + k]));
        const float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
        const uint16_t stored = snug_f32_to_f16(scale);
        memcpy(out, &stored, sizeof stored);
        for (int k = 0; k < BLOCK; k++) out[2 + k] = (unsigned char)(int8_t)roundf(values[i + k] * inverse);
    }
}

/* *fits: whether all finite values are finite in the type. */
static void convert(const float *values, int64_t count, enum snug_gguf_type type, void *out, bool *fits) {
    uint16_t *halves = out;
    if (type == SNUG_GGUF_F32) memcpy(out, values, (size_t)count * sizeof *values);
    if (type == SNUG_GGUF_Q8_0) quantize(values, count, out);
    for (int64_t i = 0; i < count && type == SNUG_GGUF_BF16; i++) halves[i] = snug_f32_to_bf16(values[i]);
    for (int64_t i = 0; i < count && type == SNUG_GGUF_F16; i++) {
        halves[i] = snug_f32_to_f16(values[i]);
        *fits &= fabsf(values[i]) < 65520; /* what rounds to the largest value, 65504 */
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

struct writing {
    const struct snug_gguf *file;
    struct snug_writer writer;
    float *values;
    void *converted;
    int64_t position;
};

static void put(struct writing *w, const void *data, int64_t size) {
    snug_writer_put(&w->writer, data, (size_t)size);
    w->position += size;
}

static void align(struct writing *w) {
    static const char zeros[ALIGNMENT];
    put(w, zeros, (ALIGNMENT - w->position % ALIGNMENT) % ALIGNMENT);
}

static void put_number(struct writing *w, uint64_t number, int size) { put(w, &number, size); }

static void put_head(struct writing *w) {
    const struct snug_gguf *file = w->file;
    int64_t offset = 0;
    put(w, "GGUF", 4);
    put_number(w, 3, 4);
    put_number(w, file->tensor_count, 8);
    put_number(w, file->value_count, 8);
    put(w, file->values, (int64_t)file->length);
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct snug_gguf_tensor *tensor = &file->tensors[i];
        put_number(w, strlen(tensor->name), 8);
        put(w, tensor->name, (int64_t)strlen(tensor->name));
        put_number(w, tensor->cols ? 2 : 1, 4);
        if (tensor->cols) put_number(w, (uint64_t)tensor->cols, 8);
        put_number(w, (uint64_t)tensor->rows, 8);
        put_number(w, tensor->type, 4);
        put_number(w, (uint64_t)offset, 8);
        offset += (bytes_of(tensor, tensor->rows) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    align(w);
}

static int64_t piece_of(const struct snug_gguf_tensor *tensor) { return snug_max(1, PIECE / cols_of(tensor)); }

static snug_status put_tensor(struct writing *w, size_t number, snug_gguf_source *source, void *user) {
    const struct snug_gguf_tensor *tensor = &w->file->tensors[number];
    const int64_t piece = piece_of(tensor);
    bool fits = true;
    for (int64_t row = 0; row < tensor->rows; row += piece) {
        const int64_t rows = snug_min(piece, tensor->rows - row);
        RETURN_IF_ERROR(source(user, number, row, rows, w->values));
        convert(w->values, rows * cols_of(tensor), tensor->type, w->converted, &fits);
        put(w, w->converted, bytes_of(tensor, rows));
    }
    align(w);
    if (fits) return SNUG_OK;
    return snug_fail(w->file->ctx, SNUG_E_INPUT,
                     "%s: a value of tensor %s is too large for 16 bits: give --outtype bf16 or f32", w->writer.path,
                     tensor->name);
}

static snug_status put_all(struct writing *w, snug_gguf_source *source, void *user) {
    const struct snug_gguf *file = w->file;
    int64_t most = 0;
    for (size_t i = 0; i < file->tensor_count; i++)
        most = snug_max(most, piece_of(&file->tensors[i]) * cols_of(&file->tensors[i]));
    RETURN_IF_ERROR(snug_alloc(file->ctx, (size_t)most, sizeof *w->values, (void **)&w->values));
    RETURN_IF_ERROR(snug_alloc(file->ctx, (size_t)most, sizeof *w->values, &w->converted));
    put_head(w);
    for (size_t i = 0; i < file->tensor_count; i++) RETURN_IF_ERROR(put_tensor(w, i, source, user));
    return SNUG_OK;
}

snug_status snug_gguf_write(const struct snug_gguf *file, const char *path, snug_gguf_source *source, void *user) {
    struct writing w = {.file = file};
    RETURN_IF_ERROR(file->status);
    RETURN_IF_ERROR(snug_writer_open(file->ctx, NULL, path, &w.writer));
    snug_status status = put_all(&w, source, user);
    if (status == SNUG_OK) status = snug_writer_commit(file->ctx, &w.writer);
    snug_writer_abandon(&w.writer);
    free(w.values);
    free(w.converted);
    return status;
}

void snug_gguf_free(struct snug_gguf *file) {
    free(file->values);
    free(file->tensors);
}
