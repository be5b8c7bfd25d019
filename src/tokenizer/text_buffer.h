/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a normalizer or decoder writes. */
#ifndef SNUG_TOKENIZER_TEXT_BUFFER_H
#define SNUG_TOKENIZER_TEXT_BUFFER_H

#include "core/context.h"

/* A buffer of UTF-8 that grows and is reused. Zero-initialise; free(text). */
struct snug_text {
    char *text;
    size_t length, capacity;
};

#endif
