/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer while it is loaded: shared by the two files that load it. */
#ifndef SNUG_TEXT_TOKENIZER_LOAD_H
#define SNUG_TEXT_TOKENIZER_LOAD_H

#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

/* A tokenizer class of transformers, which builds the parts itself unless all of tokenizer.json is used. */
struct snug_tokenizer_class {
    const char *name;
    enum snug_model_kind kind;
    enum snug_class_form { SNUG_FORM_BERT, SNUG_FORM_ROBERTA, SNUG_FORM_BOS_EOS, SNUG_FORM_PLAIN } form; /* of rows */
    bool wraps;        /* wraps any tokenizer.json */
    bool prefix_words; /* run_ner.py loads it with add_prefix_space=True */
    struct snug_token_defaults defaults;
};

struct snug_tokenizer_loader {
    snug_context *ctx;
    const char *folder;
    snug_class_of_type *class_of_type;
    struct snug_tokenizer *tokenizer;
    const struct snug_tokenizer_class *class;
    json_t *json; /* tokenizer.json, perhaps without its vocabulary; NULL if there is none */
    bool own;     /* all of tokenizer.json is used */
    bool read;    /* the vocabulary is that of vocab.txt */
    struct snug_special_sources sources;
    struct snug_token_list model_extra; /* of a sentencepiece.bpe.model; their texts are in piece_texts */
    char *piece_texts;
};

/* The member of an object; NULL if it is absent or null. */
const json_t *snug_loader_member(const json_t *object, const char *key);
const char *snug_loader_path(const struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
snug_status snug_loader_read_file(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
/* What is not used is not copied into a trained model's folder either: it may be anything. */
void snug_loader_forget(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
/* Parses one of the files, if there is one. */
snug_status snug_loader_parse(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file, json_t **out);

/* Parses tokenizer.json and loads the vocabulary, from it or from the class's files. */
snug_status snug_loader_vocabulary(struct snug_tokenizer_loader *loader);
/* Builds the model; pre-tokenizer and named tokens must be loaded. */
snug_status snug_loader_model(struct snug_tokenizer_loader *loader);

#endif
