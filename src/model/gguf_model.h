/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder as llama.cpp reads it from a GGUF file: the values that describe it, and its tensors. */
#ifndef SNUG_MODEL_GGUF_MODEL_H
#define SNUG_MODEL_GGUF_MODEL_H

#include "io/gguf.h"
#include "model/config.h"

/* What the values of one of the file's tensors are. */
enum snug_gguf_order {
    SNUG_GGUF_ROWS,    /* a parameter's, as they are */
    SNUG_GGUF_PAIRS,   /* rows of each head in another order: those of a rotated pair are neighbours */
    SNUG_GGUF_COLUMNS, /* the parameter transposed */
    SNUG_GGUF_FACTORS  /* by which the frequencies of a rotation are divided; no parameter's */
};
struct snug_gguf_part {
    enum snug_gguf_order order;
    size_t parameter;
    int64_t head; /* PAIRS: rows of a head */
    bool add_one; /* to each value: of a norm whose file has the difference to 1 */
    const struct snug_rotation *rotation;
    double theta;
};
/* Factor i of such a tensor. */
double snug_gguf_factor(const struct snug_gguf_part *part, int64_t i);

/* Adds the values and tensors of a language model. *parts: by tensor; freed with free(). SNUG_E_UNSUPPORTED names what
   llama.cpp computes differently, or does not have. */
snug_status snug_gguf_add_model(struct snug_gguf *file, const struct snug_config *config,
                                const struct snug_program *program, enum snug_gguf_type type,
                                struct snug_gguf_part **parts);
/* Refuses other models than language models of families that llama.cpp has. */
snug_status snug_gguf_check_family(snug_context *ctx, const struct snug_config *config);
/* The name of a parameter's tensor, and how it is stored; false: it has none. */
bool snug_gguf_find(const struct snug_config *config, const struct snug_program *program, size_t parameter,
                    char name[64], struct snug_gguf_part *part);

#endif
