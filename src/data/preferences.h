/* SPDX-License-Identifier: Apache-2.0 */
/* Preference tuning: rows of a prompt with a chosen and a rejected completion, as TRL's DPOTrainer takes them, become
   two sequences each. */
#ifndef SNUG_DATA_PREFERENCES_H
#define SNUG_DATA_PREFERENCES_H

#include "data/encode.h"
#include "data/label_columns.h"

/* For messages. */
#define SNUG_PREFERENCES_COLUMNS                                                                                       \
    "\"chosen\" and \"rejected\", and \"prompt\" unless both begin with it, all texts or all lists of messages"

/* The columns of a file of preferences: "chosen" and "rejected", with "prompt" if it is there, and what chat templates
   take. They are texts or lists of messages. False if it is none. */
bool snug_preferences_columns_find(const struct snug_column_names *list, const struct snug_peek *peek,
                                   struct snug_columns *out);

/* The numbers of a row in encoder->counts: tokens of the chosen and of the rejected sequence, and those of the prompt
   with which both begin. */
enum { SNUG_PREFERENCE_NUMBERS = 3 };
/* Both sequences of a row, the text of a JSON object (snug_chat_json()), in encoder->out, chosen first. where is for
   messages: "train.jsonl:7". A row whose prompt leaves no room for a completion has no tokens. */
snug_status snug_encode_preference(snug_context *ctx, const struct snug_encoding *encoding, const char *where,
                                   const char *text, size_t length, struct snug_encoder *encoder,
                                   struct snug_encoded *out);

#endif
