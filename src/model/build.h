/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What architectures are written with: each call appends an operation to the program and returns the tensor that it
 * makes, so that a model reads like its formula. The first failure sticks in the builder; later calls then do nothing.
 */
#ifndef SNUG_MODEL_BUILD_H
#define SNUG_MODEL_BUILD_H

#include "model/config.h"

struct snug_builder {
    struct snug_program *program;
    const struct snug_config *config;
    snug_status status;
    enum snug_phase phase;
    int32_t layer; /* of what is being built, -1 outside the encoder's layers */
    bool training; /* dropout is on */
};

/* A weight and its bias, or a norm's gamma and beta. */
struct snug_affine {
    int32_t weight, bias;
};

/* Parameters, by their Hugging Face names below prefix. */
int32_t snug_build_table(struct snug_builder *b, int64_t rows, int64_t cols, const char *name);
struct snug_affine snug_build_norm(struct snug_builder *b, const char *prefix);
/* One fused tensor for count layers that read the same input: names[i] + ".weight" / ".bias" are its row blocks. */
struct snug_affine snug_build_linear(struct snug_builder *b, int64_t outputs, int64_t inputs, int count,
                                     const char *const names[]);
int32_t snug_build_bias(struct snug_builder *b, int64_t size, const char *name);
/* Marks the parameters made since number first as the task head's. */
void snug_build_mark_head(struct snug_builder *b, size_t first);

/* Operations. Extents follow from the inputs. */
int32_t snug_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name);
/* activation(linear(x)); the tensors are called name and activated */
int32_t snug_activated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                              enum snug_activation activation, const char *activated);
int32_t snug_attention(struct snug_builder *b, int32_t qkv);
/* norm(dropout(z) + x) */
int32_t snug_residual_norm(struct snug_builder *b, int32_t z, int32_t x, struct snug_affine norm, const char *name);
int32_t snug_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, const char *name);
int32_t snug_dropout(struct snug_builder *b, int32_t x, double p, const char *name);
/* The rows of x that extent has: each sequence's first token, or the head rows. */
int32_t snug_gather(struct snug_builder *b, int32_t x, enum snug_extent extent, const char *name);
int32_t snug_embed(struct snug_builder *b, int32_t word, int32_t position, int32_t type, struct snug_affine norm);
void snug_loss_op(struct snug_builder *b, int32_t logits, enum snug_loss_kind kind, double label_smoothing);

/* The architectures: append the forward operations of config's model and task. */
snug_status snug_build_bert(struct snug_program *program, const struct snug_config *config, bool training,
                            double label_smoothing);

#endif
