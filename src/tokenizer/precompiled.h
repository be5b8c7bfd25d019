/* SPDX-License-Identifier: Apache-2.0 */
/* The "Precompiled" normalizer of tokenizer.json: SentencePiece's precompiled_charsmap, applied to one grapheme cluster
   after another as the `tokenizers` library does. */
#ifndef SNUG_TOKENIZER_PRECOMPILED_H
#define SNUG_TOKENIZER_PRECOMPILED_H

#include "tokenizer/text_buffer.h"

/* Maximum bytes of a charsmap (nmt_nfkc has 237,539) and of one replacement. */
#define SNUG_CHARSMAP_MOST (16 << 20)
#define SNUG_REPLACEMENT_MOST 1024

/* Zero-initialise; snug_precompiled_free also after a failure. Read-only once it was read: safe from several threads.
 */
struct snug_precompiled {
    uint32_t *units; /* [count] Darts double-array trie of byte strings; its values are offsets in texts */
    size_t count;
    char *texts;        /* replacements, each NUL-terminated */
    size_t size;        /* bytes of texts, without the NUL after the last */
    int32_t ascii[128]; /* offset of the replacement of an ASCII character; -1: none */
};

/* From the map's data, as in normalizer_spec.precompiled_charsmap of a SentencePiece model: a little-endian u32 with
   the bytes of the trie, the trie, the replacements. name is for messages, such as "spiece.model: normalizer_spec".
   Everything in the map is checked here, so that normalizing cannot fail because of it. */
snug_status snug_precompiled_read(snug_context *ctx, struct snug_precompiled *map, const char *name, const void *data,
                                  size_t size);
/* From base64, as in "precompiled_charsmap" of tokenizer.json. */
snug_status snug_precompiled_read_base64(snug_context *ctx, struct snug_precompiled *map, const char *name,
                                         const char *text, size_t length);
void snug_precompiled_free(struct snug_precompiled *map);

/* Replaces out's contents by the normalized text (length bytes, well-formed UTF-8). */
snug_status snug_precompiled_normalize(snug_context *ctx, const struct snug_precompiled *map, const char *text,
                                       size_t length, struct snug_text *out);

#endif
