/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sentence embedding: what a folder of sentence-transformers has after the transformer, a row of each sequence by its
 * pooling, then linears and normalizations. modules.json lists them; each has a folder of its own with a config.json,
 * linears also a model.safetensors.
 */
#ifndef SNUG_MODEL_SENTENCE_H
#define SNUG_MODEL_SENTENCE_H

#include "io/folder.h"
#include "model/build.h"

enum { SNUG_SENTENCE_MODULES = 8 };
#define SNUG_SENTENCE_LIST "modules.json"
#define SNUG_SENTENCE_LENGTH "sentence_bert_config.json"
#define SNUG_SENTENCE_SETTINGS "config_sentence_transformers.json"

struct snug_sentence_module {
    char folder[48];
    bool dense; /* a linear; else a normalization to length 1 */
    int64_t in, out;
    bool bias, activates;
    enum snug_activation activation;
};

struct snug_sentence {
    struct snug_vector_loss_form loss; /* of a training; texts 0: none */
    bool scored;                       /* rows of the training have scores */
    enum snug_pooling pooling;
    bool without_prompt; /* pooling leaves the prompt's tokens out */
    int count;
    struct snug_sentence_module modules[SNUG_SENTENCE_MODULES];
    int64_t size;           /* of a vector */
    int64_t max_seq_length; /* 0: the tokenizer's and the model's limit */
    json_t *settings;       /* config_sentence_transformers.json: an object, empty if there is no file */
};

/* Whether folder is one of sentence-transformers. */
bool snug_sentence_is_in(const struct snug_folder *folder);
/* Sets config->sentence, which belongs to the config. Of a plain model's folder: as sentence-transformers makes one,
 * its tokens' mean, or of a decoder of causal LM its last token. */
snug_status snug_sentence_open(snug_context *ctx, const struct snug_folder *folder, struct snug_config *config);
void snug_sentence_free(struct snug_sentence *sentence);
/* The text that is put before a text: of that name, else the default one. NULL: none. SNUG_E_USAGE: no such name. */
snug_status snug_sentence_prompt(snug_context *ctx, const struct snug_sentence *sentence, const char *name,
                                 const char **out);

/* The switch of pooling number i in the files of sentence-transformers, NULL after the last one; and the pooling. */
const char *snug_pooling_key(int i);
enum snug_pooling snug_pooling_of(int i);
/* The class of a linear's activation there. */
const char *snug_dense_activation(const struct snug_sentence_module *module);

/* Appends the modules on the layers' output: program->logits are the vectors, [B,size] F32. */
void snug_build_sentence(struct snug_builder *b, int32_t hidden);
/* Fills the linears' parameters from folder: from their own folders, or from a checkpoint's weights. Those of new
   linears are initialised by snug_weights_init(). */
snug_status snug_sentence_load(snug_context *ctx, const struct snug_folder *folder, const struct snug_program *program,
                               const struct snug_config *config, const struct snug_memory *memory);

#endif
