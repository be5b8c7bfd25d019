/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of a generation: their texts and tokens. */
#ifndef SNUG_TRAIN_PROMPTS_H
#define SNUG_TRAIN_PROMPTS_H

#include "args/args.h"
#include "data/chat.h"
#include "tokenizer/tokenizer.h"

struct snug_prompts {
    struct snug_ids ids; /* of all prompts, one after another */
    size_t *ends;        /* [count] in ids */
    char **texts;        /* [count] */
    size_t count, end_capacity, text_capacity;
    int64_t longest;         /* tokens */
    char *longest_where;     /* the row that has them */
    struct snug_chat *chat;  /* NULL: no prompt was a chat */
    bool compares;           /* a row has an answer, too */
    const char **references; /* [count] of answers; NULL: none is read */
    size_t reference_capacity;
};

/* --prompt, or the rows of --test_file: of a JSON file "messages" and other chats as in a training, of which a last
   answer is left out, or else "prompt" or "text"; else of its text column. Freed in any case with snug_prompts_free().
 */
snug_status snug_prompts_read(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p);
/* The rows of --validation_file, at most max_eval_samples, with the answers that they have: of a chat its last message,
   which the assistant says; else "completion". */
snug_status snug_prompts_read_pairs(snug_args *args, const struct snug_tokenizer *tokenizer, struct snug_prompts *p);
/* Adds a text, with the special tokens that the tokenizer puts before one; a chat, a JSON list of messages. */
snug_status snug_prompts_add(snug_args *args, const struct snug_tokenizer *tokenizer, const char *text,
                             struct snug_prompts *p);
snug_status snug_prompts_add_chat(snug_args *args, const struct snug_tokenizer *tokenizer, const char *messages,
                                  struct snug_prompts *p);
/* Forgets the prompts, but not the chat template. */
void snug_prompts_clear(struct snug_prompts *p);
void snug_prompts_free(struct snug_prompts *p);

static inline size_t snug_prompt_begin(const struct snug_prompts *prompts, size_t i) {
    return i ? prompts->ends[i - 1] : 0;
}

#endif
