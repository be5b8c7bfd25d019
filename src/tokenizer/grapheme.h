/* SPDX-License-Identifier: Apache-2.0 */
/* Extended grapheme clusters (Unicode Standard Annex 29) as the `tokenizers` library finds them; see
   tools/gen_grapheme_tables.py. */
#ifndef SNUG_TOKENIZER_GRAPHEME_H
#define SNUG_TOKENIZER_GRAPHEME_H

#include <stddef.h>

/* The end of the cluster that begins at text[at]; at < length, and text is well-formed UTF-8. Linear time. */
size_t snug_grapheme_end(const char *text, size_t length, size_t at);

#endif
