/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer as llama.cpp reads it from a GGUF file: byte-level BPE with its merges ("gpt2"), or SentencePiece's BPE
   with scores ("llama"). */
#ifndef SNUG_TOKENIZER_GGUF_VOCABULARY_H
#define SNUG_TOKENIZER_GGUF_VOCABULARY_H

#include "io/gguf.h"
#include "tokenizer/tokenizer.h"

/* Adds its values, of so many tokens as the model has rows. SNUG_E_UNSUPPORTED for parts that llama.cpp lacks. */
snug_status snug_gguf_add_vocabulary(struct snug_gguf *file, const struct snug_tokenizer *tokenizer, int64_t rows);

#endif
