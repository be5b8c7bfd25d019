/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/min_max.h"
#include "optim/quantization_map.h"

enum {
    BLOCK = SNUG_CODE_BLOCK,
    GROUP = SNUG_CODE_GROUP,
    PIECE = 256 * SNUG_DRAW_MOST, /* values that are made, or codes that are read, at a time: whole blocks */
};

/* ---- values to codes --------------------------------------------------------------------------------------------- */

/* Codes in the order of their values, and the midpoints between the values of neighbours. */
struct bounds {
    float middle[SNUG_CODES - 1];
    uint8_t code[SNUG_CODES];
    int codes;
};

static struct bounds bounds_of(const float *values, int codes) {
    struct bounds b = {.codes = codes};
    for (int i = 0; i < codes; i++) { /* an insertion sort, which keeps the order of equal values */
        int at = i;
        for (; at > 0 && values[b.code[at - 1]] > values[i]; at--) b.code[at] = b.code[at - 1];
        b.code[at] = (uint8_t)i;
    }
    for (int i = 0; i + 1 < codes; i++) b.middle[i] = (values[b.code[i]] + values[b.code[i + 1]]) / 2;
    return b;
}

static float largest_of(const float *values, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(values[i]));
    return largest;
}

/* Values divided by their absmax, to -1 … 1: multiplied by its inverse if the block is whole. */
static void scale_block(const float *values, int64_t count, bool whole, float absmax, float *scaled) {
    const float inverse = 1 / absmax;
    for (int64_t i = 0; i < count; i++) {
        const float x = whole ? values[i] * inverse : values[i] / absmax;
        scaled[i] = fminf(fmaxf(x, -1), 1);
    }
}

static const float least_absmax = 1e-38f; /* by which a block of zeros is divided */

/* The codes of one block, and its absmax. */
static float code_block(const struct bounds *bounds, const float *values, int64_t count, uint8_t *codes) {
    float scaled[BLOCK] = {0}, absmax = largest_of(values, count);
    uint8_t place[BLOCK + 1] = {0};
    scale_block(values, count, count == BLOCK, fmaxf(absmax, least_absmax), scaled);
    const int64_t even = count + count % 2; /* an odd last value has 0 beside it */
    for (int k = 0; k + 1 < bounds->codes; k++)
        for (int64_t i = 0; i < even; i++) place[i] = (uint8_t)(place[i] + (scaled[i] > bounds->middle[k]));
    for (int64_t i = 0; i < even; i += 2)
        codes[i / 2] = (uint8_t)(bounds->code[place[i]] << 4 | bounds->code[place[i + 1]]);
    return count == BLOCK ? absmax : fmaxf(absmax, least_absmax);
}

/* How many midpoints are below x. */
static int place_of(const struct bounds *bounds, float x) {
    int low = 0, high = bounds->codes - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (x > bounds->middle[middle])
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The sum with torch's bits, which one thread of it has on x86-64, whatever the processor: 32 interleaved sums, in four
   levels, of which each is added to the next one after 2^power additions. */
static float sum_as_torch(const float *values, int64_t count) {
    enum { LANES = 8, WIDTH = 4 * LANES, LEVELS = 4 };
    float sums[LEVELS][WIDTH] = {{0}}, sum = 0;
    const int64_t rows = count / WIDTH, vectors = count / LANES;
    int bits = 0;
    while ((int64_t)1 << bits < rows) bits++;
    const int power = snug_max(4, bits / LEVELS);
    for (int64_t row = 0; row < rows;) {
        for (int k = 0; k < WIDTH; k++) sums[0][k] += values[row * WIDTH + k];
        row++;
        for (int level = 1; level < LEVELS && !(row & (((int64_t)1 << level * power) - 1)); level++)
            for (int k = 0; k < WIDTH; k++) {
                sums[level][k] += sums[level - 1][k];
                sums[level - 1][k] = 0;
            }
    }
    for (int level = 1; level < LEVELS; level++)
        for (int k = 0; k < WIDTH; k++) sums[0][k] += sums[level][k];
    for (int64_t i = rows * WIDTH; i < vectors * LANES; i++) sums[0][i % LANES] += values[i];
    for (int k = LANES; k < WIDTH; k++) sums[0][k % LANES] += sums[0][k];
    for (int64_t i = vectors * LANES; i < count; i++) sum += values[i];
    for (int k = 0; k < LANES; k++) sum += sums[0][k];
    return sum;
}

/* The parts of a layout after the codes; bytes is where they begin. absmax is overwritten. */
static void code_absmax(const struct snug_quantized_layout *l, float *absmax, uint8_t *bytes) {
    uint8_t *codes = bytes + l->absmax - l->group_absmax;
    float map[SNUG_CODES], scaled[GROUP];
    if (!l->groups) {
        memcpy(codes, absmax, (size_t)l->blocks * sizeof *absmax);
        return;
    }
    snug_quantization_map(true, map);
    const struct bounds bounds = bounds_of(map, SNUG_CODES);
    const float mean = sum_as_torch(absmax, l->blocks) / (float)l->blocks;
    for (int64_t i = 0; i < l->blocks; i++) absmax[i] -= mean;
    for (int64_t group = 0; group < l->groups; group++) {
        const int64_t count = snug_min(GROUP, l->blocks - group * GROUP);
        const float *values = absmax + group * GROUP, found = largest_of(values, count);
        const float used = fmaxf(found, least_absmax), stored = count == GROUP ? found : used;
        scale_block(values, count, count == GROUP, used, scaled);
        for (int64_t i = 0; i < count; i++) codes[group * GROUP + i] = bounds.code[place_of(&bounds, scaled[i])];
        memcpy(bytes + group * (int64_t)sizeof stored, &stored, sizeof stored);
    }
    memcpy(bytes + l->groups * (int64_t)sizeof mean, &mean, sizeof mean);
}

/* Of values that begin with a whole block. */
static void code_blocks(const struct bounds *bounds, const float *values, int64_t count, uint8_t *codes, float *absmax,
                        int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (count > SNUG_DRAW_MOST)
    for (int64_t i = 0; i < count; i += BLOCK)
        absmax[i / BLOCK] = code_block(bounds, values + i, snug_min(BLOCK, count - i), codes + i / 2);
}

/* ---- in the arena ------------------------------------------------------------------------------------------------ */

snug_status snug_quantized_store(const struct snug_program *program, const struct snug_memory *memory,
                                 const struct snug_parameter *parameter, int64_t at, int64_t count, const void *bytes) {
    const int64_t begin = parameter->row * program->tensors[parameter->tensor].cols;
    return snug_tensor_write(program, memory, parameter->tensor, begin + at, count, bytes);
}

static const struct snug_quantized *form_of(const struct snug_program *program,
                                            const struct snug_parameter *parameter) {
    return &program->tensors[parameter->tensor].quantized;
}

struct filling {
    const struct snug_program *program;
    const struct snug_memory *memory;
    const struct snug_parameter *parameter;
    snug_make_fn *make;
    const void *user;
};

/* The absmax of all blocks are known before the first of them is coded. */
static snug_status fill(void *argument) {
    const struct filling *f = argument;
    const struct snug_quantized *form = form_of(f->program, f->parameter);
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    const struct bounds bounds = bounds_of(snug_code_values(form->type), SNUG_CODE_VALUES);
    const int64_t piece = snug_min(PIECE, l.count), tail = l.bytes - l.group_absmax;
    const int64_t values_bytes = (piece + 1) * (int64_t)sizeof(float);
    const int64_t absmax_bytes = l.blocks * (int64_t)sizeof(float);
    struct snug_block room;
    RETURN_IF_ERROR(
        snug_block_host(f->program->ctx, values_bytes + absmax_bytes + snug_max(tail, piece / 2 + 1), &room));
    float *values = (float *)room.base, *absmax = values + piece + 1;
    uint8_t *bytes = room.base + values_bytes + absmax_bytes;
    snug_status status = SNUG_OK;
    for (int64_t i = 0; i < l.count && status == SNUG_OK; i += piece) {
        const int64_t n = snug_min(piece, l.count - i);
        status = f->make(f->user, i, n, values);
        if (status != SNUG_OK) break;
        code_blocks(&bounds, values, n, bytes, absmax + i / BLOCK, f->memory->threads > 0 ? f->memory->threads : 1);
        status = snug_quantized_store(f->program, f->memory, f->parameter, i / 2, (n + 1) / 2, bytes);
    }
    if (status == SNUG_OK) {
        memset(bytes, 0, (size_t)tail);
        code_absmax(&l, absmax, bytes);
        status = snug_quantized_store(f->program, f->memory, f->parameter, l.group_absmax, tail, bytes);
    }
    snug_block_release(&room);
    return status;
}

snug_status snug_quantized_fill(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, snug_make_fn *make, const void *user) {
    struct filling f = {program, memory, parameter, make, user};
    return memory->copy ? fill(&f) : snug_compute(program->ctx, fill, &f);
}

snug_status snug_quantized_read(const struct snug_program *program, const struct snug_memory *memory,
                                const struct snug_parameter *parameter, int64_t first, int64_t count, float *values) {
    const struct snug_quantized *form = form_of(program, parameter);
    const struct snug_quantized_layout l = snug_quantized_lay_out(form);
    const int64_t bytes = l.bytes - l.group_absmax, at = parameter->row * l.bytes;
    struct snug_block room; /* what follows the codes, and a piece of these */
    float map[SNUG_CODES];
    snug_quantization_map(true, map);
    RETURN_IF_ERROR(snug_block_host(program->ctx, bytes + PIECE / 2 + 1, &room));
    uint8_t *codes = room.base + bytes;
    snug_status status = snug_tensor_read(program, memory, parameter->tensor, at + l.group_absmax, bytes, room.base);
    for (int64_t i = first; i < first + count && status == SNUG_OK; i += PIECE) {
        const int64_t n = snug_min(PIECE, first + count - i), from = i / 2;
        status = snug_tensor_read(program, memory, parameter->tensor, at + from, (i + n + 1) / 2 - from, codes);
        for (int64_t k = i; k < i + n && status == SNUG_OK; k++) {
            const float absmax = snug_absmax_of(&l, room.base, map, k / BLOCK);
            const float value = snug_code_values(form->type)[snug_code_at(codes, k - 2 * from)] * absmax;
            values[k - first] = snug_rounded_to(form->rounded, value);
        }
    }
    snug_block_release(&room);
    return status;
}
