/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families of models. A family is one file src/model/encoders/NAME.c or src/model/decoders/NAME.c, which defines a
 * struct snug_family, and one line in SNUG_FAMILIES. The rest of snug asks this table: the names of config.json's keys,
 * transformers' classes for each task, the names of a file's tensors, and how the program is built.
 */
#ifndef SNUG_MODEL_FAMILY_H
#define SNUG_MODEL_FAMILY_H

#include "model/build.h"

/* A parameter's name: the family's prefix + rest, up to its greatest length. */
struct snug_name {
    char text[96];
};
struct snug_name snug_model_name(const struct snug_builder *b, const char *rest);

/* ---- reading config.json -------------------------------------------------------------------------------------- */

/* Far above any model in use, and low enough that no product of two sizes and a batch overflows 64 bits. */
enum { SNUG_DIMENSION_MOST = 1 << 20, SNUG_VOCABULARY_MOST = 1 << 24, SNUG_HEADS_MOST = 4095 };

/* A config.json while it is read. The first failure sticks in status; later calls then do nothing. */
struct snug_reading {
    snug_context *ctx;
    const char *path;
    const json_t *json;
    struct snug_config *config;
    snug_status status;
};

/* The member key; otherwise if it is absent or null. A size is 1 to most. */
void snug_read_size(struct snug_reading *r, const char *key, int64_t otherwise, int64_t most, int64_t *out);
void snug_read_real(struct snug_reading *r, const char *key, double otherwise, double least, double most, double *out);
void snug_read_dropout(struct snug_reading *r, const char *key, double otherwise, double *out);
bool snug_read_bool(struct snug_reading *r, const char *key, bool otherwise);
/* config->hidden_act */
void snug_read_activation(struct snug_reading *r, const char *key);
/* The activation that the member key names, otherwise if it is absent; and, unless known is NULL, that name. */
void snug_read_function(struct snug_reading *r, const char *key, const char *otherwise, enum snug_activation *out,
                        const char **known);
/* config->pad_token_id, an id of the vocabulary or -1: otherwise if it is absent, -1 if it is null. Below 0 in the file
   it counts from the vocabulary's end. */
void snug_read_padding(struct snug_reading *r, int64_t otherwise);
/* The key to read: alias (of transformers' attribute_map) if it is given, which wins there, too. */
const char *snug_read_key(struct snug_reading *r, const char *key, const char *alias);
/* hidden_size must be a multiple of num_attention_heads, under these keys. */
void snug_read_check_heads(struct snug_reading *r, const char *size, const char *heads);
/* The sizes, norm, dropouts, activation and padding under BERT's names; config holds the defaults. */
void snug_read_encoder(struct snug_reading *r);
/* config->first_position: the one after the padding token's id, as in RoBERTa; the table must have it. */
void snug_read_first_position(struct snug_reading *r);

/* ---- the table ------------------------------------------------------------------------------------------------ */

/* A class of transformers that has another name, in config.json's "architectures". */
struct snug_architecture {
    const char *name;
    enum snug_task task;
    bool saved; /* the task's only name: transformers has no class of class_name */
};

/* The names of a language model's head, below none. */
struct snug_language_model_names {
    const char *dense, *norm; /* of masked LM */
    const char *decoder;      /* its weight is the word table, or a table of its own */
    const char *bias; /* the decoder's, or NULL; a second name of it, or NULL, which the model reads in transformers: */
    const char *decoder_bias;
    bool reads_words; /* the decoder is no module: in transformers it reads the word table's weight */
};

/* A built-in shape for --config_name, which needs no file. */
struct snug_shape {
    const char *name, *json;
};

/* Appends a head and the loss, on the encoder's output. word: the word table. */
typedef void snug_head_builder(struct snug_builder *b, int32_t hidden, int32_t word);

struct snug_heads {
    snug_head_builder *build[SNUG_HEAD_COUNT]; /* NULL: the family has no such head */
    const char *const *prefixes;               /* of their parameters' names; ends with NULL */
    const struct snug_language_model_names *language_model;
};

/* As which llama.cpp has a family, and what it computes there. */
struct snug_gguf_form {
    const char *architecture;
    enum snug_activation activation;
    bool permuted;     /* the two channels of a rotated pair of queries and keys are neighbours */
    bool transposed;   /* linears are stored as [in, out] in the model's own files */
    bool windows;      /* layers may slide */
    bool biases;       /* linears may have biases */
    bool tied;         /* the output is always the word table */
    bool untied;       /* the output always has a tensor of its own */
    bool scaled;       /* scores, word table, blocks and logits have their own scales */
    bool own_window;   /* all layers have one sliding window */
    bool own_trained;  /* the training's length is always written; rope_type longrope */
    int64_t unrotated; /* n: of n layers the last does not rotate; 0: all do */
    int64_t shared;    /* with this number of layers, scores are scaled by hidden_size / heads; 0: with none */
};

struct snug_family {
    const char *model_type; /* of config.json */
    const char *name;       /* for messages and reports */
    const char *prefix;     /* of the encoder's parameters in a model with a head */
    const char *word;       /* the word table, below prefix; NULL: embeddings.word_embeddings */
    const char *class_name; /* of transformers' classes, before a task's: "Bert" of BertForMaskedLM */
    const struct snug_architecture *further_classes; /* that are read, too; the last has no name; NULL: none */
    const struct snug_shape *shapes;                 /* the last entry has no name; NULL: none */
    const char *tokenizer_class;                     /* of transformers, for a folder that names none */
    bool keeps_tokenizer_class;                      /* also for one that names another */
    bool one_type;                                   /* has no token types: those of the tokenizer are not used */
    bool causal; /* a decoder: tokens see those before them, and its language model predicts the next one */
    bool untied; /* tie_word_embeddings is false in a file without it */
    const char *lora_targets;     /* PEFT's default of target_modules, separated by spaces; NULL: it has none */
    const char *const *constants; /* ends of names of tensors that files may have and no model needs; NULL: none */
    size_t settings_size;         /* of config->settings, zero before read(); 0: none */
    void (*read)(struct snug_reading *r); /* fills r->config, except labels, task and tie_word_embeddings */
    /* Adds the family's own settings to a checkpoint's identity (train/identity.c): a run with other values cannot
       resume it. NULL: the family has none. */
    void (*identify)(json_t **to, const struct snug_config *config);
    /* Appends the encoder's operations; returns its output ([T,h]; for SNUG_HEAD_SEQUENCE and SNUG_HEAD_CHOICE [B,h],
       the pooled tokens) and the word table. */
    int32_t (*encode)(struct snug_builder *b, int32_t *word);
    const struct snug_heads *heads;
    const struct snug_gguf_form *gguf; /* NULL: it is not exported */
};

/* The registry, one line per family: snug_family_NAME. The first is used for a config.json without
   model_type. */
/* clang-format off */
#define SNUG_FAMILIES(FAMILY) \
    FAMILY(bert) \
    FAMILY(roberta) FAMILY(camembert) FAMILY(xlm_roberta) \
    FAMILY(roberta_prelayernorm) \
    FAMILY(electra) \
    FAMILY(deberta_v2) \
    FAMILY(distilbert) \
    FAMILY(mpnet) \
    FAMILY(modernbert) \
    FAMILY(llama) FAMILY(mistral) FAMILY(ministral3) \
    FAMILY(qwen2) FAMILY(qwen3) \
    FAMILY(gpt2) \
    FAMILY(gemma) FAMILY(gemma2) FAMILY(gemma3_text) \
    FAMILY(phi3) \
    FAMILY(olmo2) FAMILY(olmo3) \
    FAMILY(granite) \
    FAMILY(smollm3)
/* clang-format on */

#define SNUG_DECLARE_FAMILY(name) extern const struct snug_family snug_family_##name;
SNUG_FAMILIES(SNUG_DECLARE_FAMILY)
#undef SNUG_DECLARE_FAMILY

/* The family of a config.json without model_type. */
#define SNUG_FAMILY_DEFAULT snug_family_bert

/* The kind of the config's head. */
enum snug_head snug_head_of(const struct snug_config *config);
/* Whether the family has models for the task, and the name of transformers' class. */
bool snug_family_has(const struct snug_family *family, enum snug_task task);
struct snug_name snug_family_class(const struct snug_family *family, enum snug_task task);
/* The task that is trained unless another one is given: a decoder's language model, else SNUG_TASK_DEFAULT. */
enum snug_task snug_family_task(const struct snug_family *family);

extern const struct snug_family *const snug_families[]; /* all of them, then NULL */

/* NULL if there is none. */
const struct snug_family *snug_family_find(const char *model_type);
/* Its tokenizer_class, for snug_tokenizer_load(); NULL if there is none. *keeps: whatever class a folder names. */
const char *snug_family_tokenizer_class(const char *model_type, bool *keeps);
/* What a file's tensor is. */
enum snug_stored_use {
    SNUG_STORED_CONSTANT,  /* not needed: it has the same values in all models */
    SNUG_STORED_PARAMETER, /* of the parameter `name`, if the program has one */
    SNUG_STORED_SPARE,     /* the same, but where the parameter's tensor is stored, too, transformers reads only that */
};
/* The name of the parameter for a file's tensor named stored. Tied, the word table and the decoder's weight are one
   parameter, and so are both names of the decoder's bias. */
enum snug_stored_use snug_family_parameter(const struct snug_config *config, const char *stored, char *name,
                                           size_t size);
/* The full names of the word table's weight and, of masked LM, the decoder's. */
void snug_family_word_name(const struct snug_config *config, char *name, size_t size);
void snug_family_decoder_name(const struct snug_config *config, char *name, size_t size);
/* Where the settings of adapters (adapter_config.json) save the module of a tied word table or decoder: as in PEFT,
   whose module is a copy of the model's, they are two weights from then on, of which those that are named are trained.
   Its log entry names the bytes. With ensure_weight_tying they stay one. Before the model is built. */
snug_status snug_family_copy_decoder(snug_context *ctx, struct snug_config *config, const json_t *settings);

#endif
