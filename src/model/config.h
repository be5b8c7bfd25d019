/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a BERT, as transformers writes it. */
#ifndef SNUG_MODEL_CONFIG_H
#define SNUG_MODEL_CONFIG_H

#include <jansson.h>

#include "model/program.h"
#include "text/dataset.h"

struct snug_config {
    int64_t hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size, max_position_embeddings,
        type_vocab_size;
    double layer_norm_eps, initializer_range;
    double hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout; /* the last: hidden's where null */
    int64_t pad_token_id;                                                         /* -1: none */
    enum snug_activation hidden_act;
    bool tie_word_embeddings;
    enum snug_task task;       /* from architectures; classification where they name neither head */
    bool has_head;             /* architectures name the head of task */
    struct snug_labels labels; /* num_labels, id2label, problem_type; count 2, LABEL_0 and LABEL_1 by default */
    bool has_label_names;      /* id2label is given and not LABEL_0, LABEL_1, … */
    json_t *json;              /* all of it, what snug does not know included: written back */
};

/* Where a model's files are: a folder; else a name in the local Hugging Face cache ($HF_HUB_CACHE, $HF_HOME/hub,
   ~/.cache/huggingface/hub). *folder is freed by the caller. */
snug_status snug_model_locate(snug_context *ctx, const char *name_or_path, char **folder);
/* Reads folder/config.json, or the file itself. Every size is checked; what snug cannot do is SNUG_E_UNSUPPORTED. */
snug_status snug_config_read(snug_context *ctx, const char *path, struct snug_config *out);
/* The built-in shapes bert-base-uncased and bert-large-uncased; SNUG_END if name is neither. */
snug_status snug_config_builtin(snug_context *ctx, const char *name, struct snug_config *out);
/* A model name or folder, a config file, or a built-in shape, in that order. */
snug_status snug_config_find(snug_context *ctx, const char *name_or_path, struct snug_config *out);
/* Sets the task, the classes and the problem type, and brings json in line with them. Takes labels over. */
snug_status snug_config_set_task(snug_context *ctx, struct snug_config *config, enum snug_task task,
                                 struct snug_labels *labels);
/* Whether config.json can be read back once it is written; path: the data that the classes come from, for the message.
 */
snug_status snug_config_check_size(snug_context *ctx, const struct snug_config *config, const char *path);
/* Says in json what the matrices of the saved weights are stored in. */
snug_status snug_config_set_dtype(snug_context *ctx, struct snug_config *config, enum snug_dtype dtype);
void snug_config_free(struct snug_config *config);

#endif
