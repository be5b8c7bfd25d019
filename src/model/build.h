/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions with which model families are written: each call appends an operation to the program and returns its
 * output, so that a model reads like its formula. The first failure sticks in the builder; later calls then do nothing.
 */
#ifndef SNUG_MODEL_BUILD_H
#define SNUG_MODEL_BUILD_H

#include "model/adapters.h"
#include "model/config.h"

/* An adapter's weights, or none. */
struct snug_lora {
    int32_t a, b, bias; /* [r,in] [out,r] [1,out]; bias: or none; of the word table: [vocabulary,r] [size,r] none */
    int32_t lengths;    /* [1,out]: DoRA's magnitudes, or none */
    double scale, dropout;
    struct snug_column_range of_u; /* those of x a^T that are this adapter's, if a has further rows: those of linears
                                      that read the same x; else count is 0 */
};

/* Rows of tokens that are trained in place of a table's, or none: see EMBED. */
struct snug_token_rows {
    int32_t rows, tokens;
};

struct snug_builder {
    struct snug_program *program;
    const struct snug_config *config;
    snug_status status;
    enum snug_phase phase;
    enum snug_part part; /* of what is being built */
    int32_t layer;       /* -1 outside the layers */
    bool training;       /* dropout is on */
    double label_smoothing;
    struct snug_adapter_use use; /* where the config has adapters */
    struct snug_lora words;      /* of the word table */
    struct snug_token_rows word_rows;
    const json_t *word_ids; /* whose they are */
    struct snug_lora stack; /* of the linears that are built next: a and the columns of the next one; or none */
};

/* Begins a part of the model; layer is used if part is LAYER. */
void snug_build_part(struct snug_builder *b, enum snug_part part, int32_t layer);

/* A weight and its bias, or a norm's gamma and beta; bias and beta are optional. rms, unit_offset, parts: of a norm, as
   in struct snug_norm_form. transposed: of a linear, as in struct snug_linear. */
struct snug_affine {
    int32_t weight, bias;
    bool rms, unit_offset, transposed;
    int32_t parts;
    struct snug_lora lora;       /* of a linear */
    struct snug_token_rows rows; /* of the linear over the vocabulary */
};

/* Parameters, by their Hugging Face names below prefix. zero_row: the table's row that is initialised to zeros, or
   -1. */
int32_t snug_build_table(struct snug_builder *b, int64_t rows, int64_t cols, int64_t zero_row, const char *name);
/* The table of the vocabulary, with the adapters that it may have: snug_embed_sum() reads them. */
int32_t snug_build_word_table(struct snug_builder *b, int64_t size, const char *name);
struct snug_affine snug_build_norm(struct snug_builder *b, int64_t size, const char *prefix, bool bias);
/* The same with the form's rms and unit_offset. */
struct snug_affine snug_build_norm_of(struct snug_builder *b, int64_t size, const char *prefix, struct snug_affine form,
                                      bool bias);
struct snug_affine snug_build_linear(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name,
                                     bool bias);
/* Over a sequence, as torch's Conv1d, whose weight is [outputs, inputs, kernel]; it has no adapters. */
struct snug_affine snug_build_convolution(struct snug_builder *b, int64_t outputs, int64_t inputs, int64_t kernel,
                                          const char *name);
/* Its weight is stored as [inputs, outputs], as transformers' Conv1D has it. */
struct snug_affine snug_build_transposed_linear(struct snug_builder *b, int64_t outputs, int64_t inputs,
                                                const char *name, bool bias);
/* One tensor for count linears that read the same input: names[i] + ".weight" / ".bias" are its row blocks, of
   outputs[i] rows, which are multiples of the last one's. They differ in no program that trains them: a tensor's
   parameters have one shape for optimizers (struct snug_weight), and for codes of 4 bits. */
struct snug_affine snug_build_fused_linear(struct snug_builder *b, const int64_t outputs[], int64_t inputs, int count,
                                           const char *const names[], bool bias);
/* Gives the linear over the vocabulary, whose weight is a table, maybe the word table, its adapters. */
void snug_build_output_adapters(struct snug_builder *b, int64_t outputs, int64_t inputs, const char *name,
                                struct snug_affine *linear);
/* Whether linears of these names cannot be one tensor: some have adapters, or are trained while others are not. */
bool snug_build_splits(struct snug_builder *b, int count, const char *const names[]);
/* The adapters of these linears, which read one input and are built next, have one a, if their forms allow it. */
void snug_build_stack(struct snug_builder *b, int64_t inputs, int count, const char *const names[]);
int32_t snug_build_bias(struct snug_builder *b, int64_t size, const char *name);
/* Marks the parameters from number first on as the task head's. */
void snug_build_mark_head(struct snug_builder *b, size_t first);
/* Marks the parameters from number first on as what a block adds: by_depth. */
void snug_build_mark_output(struct snug_builder *b, size_t first);
/* Marks the last parameter: its rows are the vocabulary's tokens. */
void snug_build_mark_vocabulary(struct snug_builder *b);
/* Saves the last parameter under this name, too; the name must outlive the program. */
void snug_build_save_also(struct snug_builder *b, const char *name);

/* The programs of a run are built from the same config, so they share tensors by their number: gives one to this. */
void snug_build_share(struct snug_builder *b, int32_t tensor);

/* Operations. Extents follow from the inputs. */
int32_t snug_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name);
/* The same of several linears that read x: y[i] = linear w[i]. */
void snug_linears(struct snug_builder *b, int32_t x, int count, const struct snug_affine w[], const char *const names[],
                  int32_t y[]);
/* linear(x) is added to addend, which no other operation reads. */
int32_t snug_added_linear(struct snug_builder *b, int32_t x, struct snug_affine w, int32_t addend);
/* The convolution of x over each sequence, with zeros beyond its ends. */
int32_t snug_convolution(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name);
int32_t snug_activated(struct snug_builder *b, int32_t x, enum snug_activation activation, const char *name);
/* activation(linear(x)); the tensors are named name and activated */
int32_t snug_activated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                              enum snug_activation activation, const char *activated);
/* activation(one half of linear(x)) * the other half */
int32_t snug_gated_linear(struct snug_builder *b, int32_t x, struct snug_affine w, const char *name,
                          enum snug_activation activation, const char *activated);
/* The same with linears of their own: activation(gate(x)) * up(x) */
int32_t snug_gated_linears(struct snug_builder *b, int32_t x, struct snug_affine gate, struct snug_affine up,
                           enum snug_activation activation, const char *activated);
/* The form of BERT's attention: the configuration's heads, all keys, scores over the root of a head's size. */
struct snug_attention_form snug_attention_form(const struct snug_builder *b);
/* The columns of operands that are one tensor follow one another. bias: or none. */
int32_t snug_attention(struct snug_builder *b, int32_t q, int32_t k, int32_t v, int32_t bias,
                       struct snug_attention_form form);
/* Attention with position keys, position queries, or both, which are linears of snug_table(); the form has farthest. */
int32_t snug_position_attention(struct snug_builder *b, const int32_t operands[3], int32_t pk, int32_t pq,
                                struct snug_attention_form form);
/* In a program that generates: attention over a cache, for which queries and keys are rotated (pairs 0: they are not),
   keys without the rotation's growth. */
int32_t snug_cached_attention(struct snug_builder *b, const int32_t operands[3], const struct snug_rotation *rotation,
                              struct snug_attention_form form);
/* norm(dropout(z) + x) */
int32_t snug_residual_norm(struct snug_builder *b, int32_t z, int32_t x, double p, struct snug_affine norm,
                           const char *name);
/* As snug_residual_norm(), where the sum itself, *s, is read, as in pre-norm models. */
int32_t snug_residual_sum_norm(struct snug_builder *b, int32_t z, int32_t x, double p, struct snug_affine norm,
                               const char *name, int32_t *s);
int32_t snug_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, const char *name);
/* dropout(norm(s)) */
int32_t snug_dropped_norm(struct snug_builder *b, int32_t s, struct snug_affine norm, double p, const char *name);
/* The norm of queries or keys, before attention reads them. */
int32_t snug_head_norm(struct snug_builder *b, int32_t x, struct snug_affine norm, const char *name);
/* Rotates the first `heads` heads of x in place, before attention reads them. */
void snug_rotate(struct snug_builder *b, int32_t x, int32_t heads, int32_t head_dim,
                 const struct snug_rotation *rotation);
/* scale x + addend, or none */
int32_t snug_scaled_sum(struct snug_builder *b, int32_t x, int32_t addend, double scale, const char *name);
/* x = cap tanh(x / cap), in place */
void snug_softcap(struct snug_builder *b, int32_t x, double cap);
int32_t snug_dropout(struct snug_builder *b, int32_t x, double p, const char *name);
/* The rows of x for an extent, most often the loss positions. */
int32_t snug_gather(struct snug_builder *b, int32_t x, enum snug_extent extent, const char *name);
/* A row for each sequence, [B,h], from its rows of x. */
int32_t snug_pool(struct snug_builder *b, int32_t x, enum snug_pooling pooling, const char *name);
/* The sum of a token's rows of the tables, of which position and type may be none; word's row is multiplied by scale.
 */
int32_t snug_embed_sum(struct snug_builder *b, int32_t word, int32_t position, int32_t type, double scale);
/* snug_embed_sum(), then a norm and a dropout. */
int32_t snug_embed_normed(struct snug_builder *b, int32_t word, int32_t position, int32_t type,
                          struct snug_affine norm);
/* All rows of a table as values, for operations that read no weights. */
int32_t snug_table(struct snug_builder *b, int32_t table, const char *name);
/* x / |x| of each row, or x; low: in the compute type, else F32. */
int32_t snug_normalize_rows(struct snug_builder *b, int32_t x, bool unit, bool low, const char *name);
/* The vectors of sequences as the program's outputs. */
void snug_build_vectors(struct snug_builder *b, int32_t vectors);
/* The loss over the vectors of a step, of all its micro-batches. */
void snug_build_vector_loss(struct snug_builder *b, int32_t vectors, const struct snug_vector_loss_form *form,
                            bool scored);
void snug_loss_op(struct snug_builder *b, int32_t logits, enum snug_loss_kind kind, double label_smoothing);
/* The loss of the config's task and problem. */
void snug_build_loss(struct snug_builder *b, int32_t logits);

/* Appends the forward operations of config's family and task. With adapters, all other parameters are frozen. */
snug_status snug_build_model(struct snug_program *program, const struct snug_config *config, bool training,
                             double label_smoothing);

#endif
