/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer while it is loaded: shared by the two files that load it. */
#ifndef SNUG_TOKENIZER_TOKENIZER_LOAD_H
#define SNUG_TOKENIZER_TOKENIZER_LOAD_H

#include "tokenizer/model_text.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_class.h"

struct snug_tokenizer_loader {
    snug_context *ctx;
    const char *folder;
    snug_class_of_type *class_of_type;
    struct snug_tokenizer *tokenizer;
    const struct snug_tokenizer_class *class;
    json_t *class_json; /* what it builds itself */
    json_t *json;       /* tokenizer.json, perhaps without its vocabulary; NULL if there is none */
    bool own;           /* all of tokenizer.json is used */
    bool read;          /* vocab.txt was read */
    bool taken;         /* the vocabulary, and plain merges, are those of model_text, which json lacks */
    struct snug_model_text model_text;
    struct snug_special_sources sources;
    struct snug_sentencepiece sentencepiece; /* without tokenizer.json */
};

/* The member of an object; NULL if it is absent or null. */
const json_t *snug_loader_member(const json_t *object, const char *key);
const char *snug_loader_path(const struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
snug_status snug_loader_read_file(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
/* What is not used is not copied into a trained model's folder either: it may be anything. */
void snug_loader_forget(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file);
/* Parses one of the files, if there is one. */
snug_status snug_loader_parse(struct snug_tokenizer_loader *loader, enum snug_tokenizer_file file, json_t **out);

/* AutoTokenizer's exception: wraps a byte-level tokenizer.json, which is parsed, where the class says so. */
snug_status snug_loader_wrap_bytes(struct snug_tokenizer_loader *loader);
/* tokenizer.json, or else the file of the vocabulary: for messages. */
const char *snug_loader_source(const struct snug_tokenizer_loader *loader);
/* A section of the class, with the folder's settings, or else of tokenizer.json; NULL: none. Free it with
   json_decref(). */
snug_status snug_loader_section(const struct snug_tokenizer_loader *loader, const char *key, json_t **out);

/* Parses tokenizer.json and loads the vocabulary, from it or from the class's files. */
snug_status snug_loader_vocabulary(struct snug_tokenizer_loader *loader);
/* Builds the model, and of a sentencepiece.bpe.model the vocabulary; pre-tokenizer and named tokens must be loaded. */
snug_status snug_loader_model(struct snug_tokenizer_loader *loader);

#endif
