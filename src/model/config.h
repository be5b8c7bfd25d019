/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of a model, as transformers writes it. */
#ifndef SNUG_MODEL_CONFIG_H
#define SNUG_MODEL_CONFIG_H

#include <jansson.h>

#include "data/classes.h"
#include "hub/cache.h"
#include "program/program.h"

struct snug_family;
struct snug_language_model_names;
struct snug_adapter;
struct snug_sentence;

enum { SNUG_LAYERS_MOST = 512 };

#define SNUG_GENERATION_CONFIG "generation_config.json"
enum { SNUG_CONFIG_FILES = 2 };

struct snug_config {
    const struct snug_family *family;
    const struct snug_language_model_names *language_model; /* of its head; NULL if the family has none */
    int64_t hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size, max_position_embeddings,
        type_vocab_size;    /* the last: 0 where the model has no types */
    bool one_type;          /* the tokenizer's types are not used */
    int64_t new_tokens;     /* of vocab_size: the last ones, of which the model's files have no rows */
    int64_t embedding_size; /* columns of the embeddings' tables: hidden_size in most families */
    int64_t first_position; /* position id of a text's first token */
    int64_t positions;      /* maximum tokens of a text: the position table's rows from there on */
    double layer_norm_eps, initializer_range;
    double mlp_dropout; /* inside the feed-forward network; 0 in most families */
    double hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout; /* the last: hidden's where null */
    double answer_dropout;  /* before the scores of question answering */
    double summary_dropout; /* before the score of a choice, where it is not another one */
    int64_t pad_token_id;   /* -1: none */
    enum snug_activation hidden_act;
    const char *hidden_act_name;
    bool tie_word_embeddings;            /* of the file that was read */
    bool own_decoder;                    /* a language model's decoder is not the word table */
    bool copied_decoder;                 /* own_decoder, but the model's files have one weight of both:
                                            snug_family_copy_decoder() */
    void *settings;                      /* those that the family alone has (its settings_size); NULL: none */
    struct snug_quantized quantized;     /* how linears store their weights, without rows and cols */
    struct snug_sentence *sentence;      /* of a sentence embedding, else NULL */
    const struct snug_adapter *adapter;  /* LoRA adapters of its linears; NULL: none. Not the config's own */
    enum snug_ranking_loss ranking_loss; /* reranking */
    enum snug_task task;                 /* from architectures; the default if they name no head */
    bool has_head;                       /* architectures name the head of task */
    struct snug_labels labels; /* num_labels, id2label, problem_type; count 2, LABEL_0 and LABEL_1 by default */
    bool has_label_names;      /* id2label is given and not LABEL_0, LABEL_1, … */
    json_t *json;              /* the whole file, unknown keys included: written back */
    json_t *generation;        /* the same of generation_config.json beside it; NULL: there is none */
};

/* Finds a model's files: a folder; else a name in the local Hugging Face cache (hub/cache.h), by its revision in place.
 *folder is freed by the caller. */
snug_status snug_model_locate(snug_context *ctx, const struct snug_hub_place *place, const char *name_or_path,
                              char **folder);
/* Reads folder/config.json, or the file itself. Every size is checked; unsupported settings are SNUG_E_UNSUPPORTED. */
snug_status snug_config_read(snug_context *ctx, const char *path, struct snug_config *out);
/* The names of the files that snug_config_write() writes, at most SNUG_CONFIG_FILES; returns their number. */
size_t snug_config_list(const struct snug_config *config, const char **names);
/* config.json, and of a language model generation_config.json, if there was one. */
snug_status snug_config_write(snug_context *ctx, const struct snug_config *config, const struct snug_folder *folder);
/* The text of a config.json that is right; name: for messages. */
snug_status snug_config_parse(snug_context *ctx, const char *name, const char *text, struct snug_config *out);
/* A family's built-in shape, such as bert-base-uncased; SNUG_END if there is none of this name. */
snug_status snug_config_builtin(snug_context *ctx, const char *name, struct snug_config *out);
/* A model name or folder, a config file, or a built-in shape, in that order. */
snug_status snug_config_find(snug_context *ctx, const struct snug_hub_place *place, const char *name_or_path,
                             struct snug_config *out);
/* Sets the task, the classes and the problem type, and updates json accordingly. Takes ownership of labels. */
snug_status snug_config_set_task(snug_context *ctx, struct snug_config *config, enum snug_task task,
                                 struct snug_labels *labels);
/* Gives a reranker its only score, and updates json accordingly. */
snug_status snug_config_set_score(snug_context *ctx, struct snug_config *config);
/* Whether a reranker's scores are the sigmoid of its logits, CrossEncoder's default, which config.json may change. */
bool snug_config_has_sigmoid(const struct snug_config *config);
/* Whether config.json can be read back once it is written; path: the data that the classes come from, for the message.
 */
snug_status snug_config_check_size(snug_context *ctx, const struct snug_config *config, const char *path);
/* Gives masked LM a decoder of its own, and updates json accordingly. */
snug_status snug_config_untie(snug_context *ctx, struct snug_config *config);
/* Gives the vocabulary's tables rows for as many tokens as vocab_size says, and updates json accordingly. */
snug_status snug_config_grow(snug_context *ctx, struct snug_config *config, int64_t vocab_size);
/* Sets json's dtype: the type of the saved matrices. */
snug_status snug_config_set_dtype(snug_context *ctx, struct snug_config *config, enum snug_dtype dtype);
/* Sets a member of json or of an object in it. */
snug_status snug_config_set_key(snug_context *ctx, json_t *json, const char *key, json_t *value);
void snug_config_free(struct snug_config *config);

#endif
