/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of a tokenizer: whatever changes tokens is in it. */
#ifndef SNUG_TOKENIZER_FINGERPRINT_H
#define SNUG_TOKENIZER_FINGERPRINT_H

#include "tokenizer/tokenizer_parts.h"

/* Fills tokenizer->fingerprint; all other members must be filled. */
snug_status snug_fingerprint_compute(snug_context *ctx, struct snug_tokenizer *tokenizer);

#endif
