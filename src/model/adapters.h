/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LoRA adapters (Hu et al., arXiv:2106.09685), with the settings, names and files of PEFT: beside a linear that is not
 * trained, y = x W^T, two small ones are: y += s dropout(x) A^T B^T, where A is [r,in], B [out,r] and s = alpha / r, or
 * alpha / sqrt(r) with rslora. With lora_bias, B has a bias. Beside the word table A is a table, too, [vocabulary,r],
 * whose transpose is in the file, and there is no dropout. With DoRA (Liu et al., arXiv:2402.09353) the rows of
 * W + s B A get the lengths that a vector has, which is trained: W's at first. Rows of tokens of the word table, or of
 * the linear over the vocabulary, may be trained in place of the table's (trainable_token_indices). All other
 * parameters are frozen, but those of whole modules that are to be saved, and biases, if the setting bias says so.
 */
#ifndef SNUG_MODEL_ADAPTERS_H
#define SNUG_MODEL_ADAPTERS_H

#include <jansson.h>

#include "core/context.h"

#define SNUG_ADAPTER_CONFIG "adapter_config.json"
#define SNUG_ADAPTER_WEIGHTS "adapter_model.safetensors"
/* What the names of parameters begin with in the latter. */
#define SNUG_ADAPTER_PREFIX "base_model.model."

struct snug_adapter;

/* Of one linear; r is 0 where it has none. */
struct snug_lora_form {
    int64_t r;
    double scale, dropout;
    bool bias; /* of B */
    bool dora;
};

/* Reads adapter_config.json, as PEFT writes it; path is for messages. Members that are absent have PEFT's defaults;
 * those that ask for what snug does not have are SNUG_E_UNSUPPORTED, by name. Without target_modules they are PEFT's
 * for the family, or SNUG_E_USAGE where it has none. strict: each name of target_modules must be a linear's. A copy of
 * json is kept. Freed with snug_adapter_free(). */
snug_status snug_adapter_read(snug_context *ctx, const char *path, const json_t *json, const char *default_names,
                              bool strict, struct snug_adapter **out);
void snug_adapter_free(struct snug_adapter *adapter);
/* The settings, target_modules included. */
const json_t *snug_adapter_json(const struct snug_adapter *adapter);
/* As PEFT writes them: all-linear is a list of names there. program: the model. NULL: out of memory. Freed with
 * json_decref(). */
struct snug_program;
json_t *snug_adapter_written(const struct snug_adapter *adapter, const struct snug_program *program);

/* The adapter of the linear `module`, such as model.layers.0.self_attn.q_proj. */
snug_status snug_adapter_find(const struct snug_adapter *adapter, const char *module, struct snug_lora_form *out);
/* The same of the linear over the vocabulary, which all-linear leaves out; and of the word table. */
snug_status snug_adapter_find_output(const struct snug_adapter *adapter, const char *module,
                                     struct snug_lora_form *out);
snug_status snug_adapter_find_table(const struct snug_adapter *adapter, const char *module, struct snug_lora_form *out);
/* The number of the name in modules_to_save to whose module the parameter, model.norm.weight, belongs, so that it is
 * trained and saved; -1: it is frozen. */
int64_t snug_adapter_saves(const struct snug_adapter *adapter, const char *parameter);
/* The same of such a list, or NULL. */
int64_t snug_adapter_place(const json_t *list, const char *parameter);
/* Whether the adapters of tied weights are tied, too (ensure_weight_tying). */
bool snug_adapter_ties(const struct snug_adapter *adapter);

/* Ends the names of rows of tokens that are trained, after their module's. */
#define SNUG_TOKEN_ROWS "token_adapter.trainable_tokens_delta"
/* The ids of tokens whose rows of the module's weight are trained by themselves, a list of integers that differ; NULL:
   none. words: it is the word table. */
const json_t *snug_adapter_tokens(const struct snug_adapter *adapter, const char *module, bool words);

/* Biases of the base model that are trained and saved with the adapters. */
enum snug_adapter_biases { SNUG_ADAPTER_NO_BIAS, SNUG_ADAPTER_ALL_BIASES, SNUG_ADAPTER_OWN_BIASES };
enum snug_adapter_biases snug_adapter_biases(const struct snug_adapter *adapter);

/* The name that a parameter has in the adapter's file, below SNUG_ADAPTER_PREFIX. */
struct snug_parameter;
void snug_adapter_stored_name(const struct snug_parameter *parameter, char *name, size_t size);
/* A stored name, without SNUG_ADAPTER_PREFIX, without what it adds to that of the base model. */
void snug_adapter_plain_name(const char *stored, char *name, size_t size);

/* Of elements first … first + count - 1 of a matrix with cols columns, those of column k are in rows *begin … end - 1:
   returns end. */
static inline int64_t snug_rows_of_column(int64_t first, int64_t count, int64_t cols, int64_t k, int64_t *begin) {
    *begin = (first - k + cols - 1) / cols;
    return (first + count - k + cols - 1) / cols;
}

/* The linears of a model while it is built, and which names of target_modules they had. */
enum { SNUG_ADAPTER_NAMES_MOST = 4096 };
struct snug_adapter_use {
    char linears[1024]; /* their names without the layers' numbers, each once */
    bool matched[SNUG_ADAPTER_NAMES_MOST], saved[SNUG_ADAPTER_NAMES_MOST]; /* of modules_to_save */
    char words[128], output[128]; /* the modules of the vocabulary; output: of a language model */
    int64_t adapters;
};
void snug_adapter_note(const struct snug_adapter *adapter, const char *module, bool adapted,
                       struct snug_adapter_use *use);
/* Refuses targets and modules to save that the model lacks, naming its linears. */
snug_status snug_adapter_check(const struct snug_adapter *adapter, const struct snug_adapter_use *use);

#endif
