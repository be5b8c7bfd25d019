/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer classes of transformers, as data. */
#ifndef SNUG_TOKENIZER_TOKENIZER_CLASS_H
#define SNUG_TOKENIZER_TOKENIZER_CLASS_H

#include "tokenizer/special_tokens.h"

/*
 * What a class builds, as a tokenizer.json without vocabulary, together with the class's defaults for
 * tokenizer_config.json: tokens, model_input_names, extra_special_tokens. Where the folder decides, a text is:
 *   "$KEY"   the setting KEY (true or false) of tokenizer_config.json, or else of the class; or a named token's text
 *   "&NAME"  the named token as [text, id]
 *   "@NAME"  the id of the named token in the vocabulary, 0 if it has none
 * A member {"if": "$KEY", "then": A, "else": B} is A or B. A section that it lacks is that of the folder's
 * tokenizer.json; null is none. In the vocabulary of a Unigram model, which is that of a sentencepiece.bpe.model, a
 * number N is the model's pieces from number N on, and a token has a name, a score, and perhaps the named token whose
 * text it is instead. "text_is_object"  a named token given as text becomes an object, which need not be special
 *   "mask_strips"     a mask token given as text strips the white space before it
 */
struct snug_tokenizer_class {
    const char *name;
    const char *json;  /* NULL: any tokenizer.json, and nothing without one */
    bool wraps;        /* normalizer, pre_tokenizer and model are those of a tokenizer.json, if there is one */
    bool wraps_bytes;  /* the same, if that tokenizer.json is byte-level */
    bool plain_pieces; /* merges are of normal pieces alone */
    bool spm;          /* Unigram: without tokenizer.json it is a spm.model, whose charsmap is not used */
    bool pieces;       /* BPE: without tokenizer.json it is a tokenizer.model, not vocab.json and merges.txt */
    bool prefix_words; /* run_ner.py loads it with add_prefix_space=True */
};

/* The class named so, with or without "Fast"; NULL if there is none. */
const struct snug_tokenizer_class *snug_tokenizer_class_find(const char *name);
/* What wraps any tokenizer.json, for a tokenizer.model without one: SentencePiece's own settings. */
const struct snug_tokenizer_class *snug_tokenizer_class_of_pieces(void);
/* The class of a folder with vocab.txt alone. */
const struct snug_tokenizer_class *snug_tokenizer_class_default(void);

/* Parses the class's JSON; {} if it has none. */
snug_status snug_tokenizer_class_parse(snug_context *ctx, const struct snug_tokenizer_class *class, json_t **out);

/* What the class's texts stand for. */
struct snug_class_settings {
    snug_context *ctx;
    const char *path, *config_path; /* for messages: of the tokenizer, and of tokenizer_config.json */
    const json_t *json;             /* the class's */
    const struct snug_special_sources *sources;
    const struct snug_tokenizer *tokenizer;
};

/* A copy of a part of the class's JSON with the folder's settings in place of these texts. Free it with
   json_decref(). */
snug_status snug_tokenizer_class_fill(const struct snug_class_settings *settings, const json_t *part, json_t **out);

#endif
