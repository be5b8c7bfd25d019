/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 4-bit weights in safetensors files, as transformers saves bitsandbytes' Linear4bit: beside WEIGHT, which has the
 * codes, WEIGHT.absmax, WEIGHT.quant_map and WEIGHT.quant_state.bitsandbytes__nf4 (or __fp4), which is a JSON text;
 * with double quantization also WEIGHT.nested_absmax and WEIGHT.nested_quant_map.
 */
#ifndef SNUG_MODEL_BITSANDBYTES_H
#define SNUG_MODEL_BITSANDBYTES_H

#include "io/safetensors.h"
#include "optim/quantization_map.h"
#include "program/program.h"

/* The tensors of a file that a weight is stored in. */
struct snug_stored_codes {
    snug_context *ctx;
    const struct snug_safetensors *files;
    const char *path;                                                /* for messages */
    const struct snug_stored_tensor *codes, *absmax, *nested_absmax; /* the last: NULL unless nested */
    struct snug_quantized form;                                      /* type NONE: the weight is not quantized */
    float mean;                                                      /* nested_offset */
};
/* Finds how weight is stored. What snug does not support is SNUG_E_UNSUPPORTED, what contradicts itself SNUG_E_INPUT.
 */
snug_status snug_codes_find(snug_context *ctx, const struct snug_safetensors *files, const char *path,
                            const struct snug_stored_tensor *weight, struct snug_stored_codes *out);
/* Whether a tensor is one that belongs to the weight of another name. */
bool snug_codes_is_part(const struct snug_safetensors *files, const char *name);
/* Values first … first + count - 1 of the weight. */
snug_status snug_codes_read(const struct snug_stored_codes *from, int64_t first, int64_t count, float *values);
/* Copies the weight to a parameter of the same form. */
snug_status snug_codes_copy(const struct snug_stored_codes *from, const struct snug_program *program,
                            const struct snug_memory *memory, const struct snug_parameter *parameter);

/* A tensor that a quantized parameter is saved as: `count` bytes of its own from `at` on, or constant ones. */
struct snug_codes_part {
    char name[192];
    enum snug_dtype dtype;
    int dims;
    int64_t shape[2], at, count;
    const void *constant;
};
enum { SNUG_CODES_PARTS = 6, SNUG_CODES_STATE = 256 /* bytes of the JSON text: always as many */ };
struct snug_codes_saved {
    struct snug_codes_part parts[SNUG_CODES_PARTS];
    int count;
    float map[SNUG_CODES];
    char state[SNUG_CODES_STATE];
};
/* All of them. mean: of a nested form; names, types and shapes do not depend on it. */
snug_status snug_codes_save(snug_context *ctx, const struct snug_parameter *parameter,
                            const struct snug_quantized *form, float mean, struct snug_codes_saved *out);
/* Their bytes together. */
int64_t snug_codes_saved_bytes(const struct snug_quantized *form);

#endif
