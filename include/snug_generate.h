/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from a decoder: what a language model answers to prompts or chats. The conventions are those of snug.h.
 */
#ifndef SNUG_GENERATE_H
#define SNUG_GENERATE_H

#include "snug.h"

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* New text of an answer: length bytes of whole characters, without a NUL after them. */
typedef struct snug_piece {
    int64_t index;    /* of the prompt, from 0 */
    int64_t sequence; /* of the answer to it, below num_return_sequences */
    const char *text;
    size_t length;
} snug_piece;

/* A complete answer. */
typedef struct snug_answer {
    int64_t index, sequence; /* as above */
    const char *prompt;      /* its text: of a chat, as the chat template makes it */
    const char *text;        /* of the ids, without special tokens */
    size_t text_length;      /* bytes of it; a token may be a NUL character */
    size_t count;            /* new tokens, with the one that ended the answer */
    const int32_t *ids;
    const float *log_probabilities; /* of the tokens, by the model itself, before temperature and penalties */
    double score;     /* with num_beams: the sum of log-probabilities, over length^length_penalty; else NaN */
    const char *stop; /* why it ended: "eos", "length" or "stop_string" */
    int64_t beams;    /* of its search, of which --fit may have chosen fewer than num_beams; 1: it was not searched */
} snug_answer;

/* A status other than SNUG_OK ends the call with it. */
typedef snug_status snug_on_piece(void *user, const snug_piece *piece);
typedef snug_status snug_on_answer(void *user, const snug_answer *answer);

/* Answers the prompts of the arguments: prompt, or each row of test_file. The settings are those of transformers'
 * generate(): an argument, else generation_config.json of the model's folder, else transformers' default.
 * on_piece gets the text of each answer as it grows, not with num_beams, and may be NULL; on_answer gets the answers in
 * the prompts' order. Prompts, cache and batch are planned before the first token: SNUG_E_DOES_NOT_FIT says what would
 * fit. callbacks may be NULL. */
snug_status snug_generate(snug_args *args, const snug_callbacks *callbacks, snug_on_piece *on_piece,
                          snug_on_answer *on_answer, void *user);

/* The memory that snug_generate() would take, as text or JSON: of the cache a token, a sequence and a further beam, and
 * of all classes. It reads no weights. */
snug_status snug_generate_plan(snug_args *args, bool json, char **text);

/* A model that answers one prompt after another, and keeps what it has read: a prompt that begins like the last one and
 * its answer costs only its new tokens, as in a chat. */
typedef struct snug_generator snug_generator;
/* Opens model_name_or_path for prompts with answers of at most max_seq_length tokens in all [4096, or the model's
 * positions if these are fewer]. The arguments must outlive the generator, and are not changed meanwhile. */
snug_status snug_generator_open(snug_args *args, snug_generator **out);
void snug_generator_destroy(snug_generator *generator);
/* Answers a prompt; chat: prompt is a JSON list of messages, [{"role": "user", "content": "…"}, …], for the chat
 * template. callbacks may be NULL: should_stop ends the answer, which is then SNUG_E_INTERRUPTED, and no more. */
snug_status snug_generator_answer(snug_generator *generator, const char *prompt, bool chat,
                                  const snug_callbacks *callbacks, snug_on_piece *on_piece, snug_on_answer *on_answer,
                                  void *user);

/* Writes the language model of model_name_or_path with its tokenizer and chat template into output_file, in GGUF, for
 * llama.cpp; adapters are merged into their base model, or with adapter_only written alone. What llama.cpp does not
 * have is SNUG_E_UNSUPPORTED, by name. */
snug_status snug_export(snug_args *args);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
