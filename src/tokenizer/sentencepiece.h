/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a SentencePiece model (sentencepiece.bpe.model, tokenizer.model): a ModelProto in protobuf's wire format.
   A small bounds-checked reader of the few needed fields replaces libprotobuf-c, which would need a copy of
   SentencePiece's schema, a compiler at build time and one more library at run time. */
#ifndef SNUG_TOKENIZER_SENTENCEPIECE_H
#define SNUG_TOKENIZER_SENTENCEPIECE_H

#include "core/context.h"

/* ModelProto.SentencePiece.Type */
enum snug_sentencepiece_type {
    SNUG_SENTENCEPIECE_NORMAL = 1,
    SNUG_SENTENCEPIECE_UNKNOWN = 2,
    SNUG_SENTENCEPIECE_CONTROL = 3,
    SNUG_SENTENCEPIECE_USER_DEFINED = 4,
    SNUG_SENTENCEPIECE_UNUSED = 5,
    SNUG_SENTENCEPIECE_BYTE = 6,
};

struct snug_sentencepiece_piece {
    const char *text; /* in the data of the file; not NUL-terminated */
    uint32_t length;
    enum snug_sentencepiece_type type;
    double score;
};

/* trainer_spec.model_type */
enum snug_sentencepiece_kind { SNUG_SENTENCEPIECE_UNIGRAM = 1, SNUG_SENTENCEPIECE_BPE = 2 };

/* A model; the fields that the file does not have are SentencePiece's defaults. Freed by
   snug_sentencepiece_free. */
struct snug_sentencepiece {
    struct snug_sentencepiece_piece *pieces; /* [count] by id */
    size_t count, capacity;
    int64_t unk_id, bos_id, eos_id, pad_id; /* trainer_spec; -1: none. unk_id is the id of a piece. */
    bool byte_fallback, treat_whitespace_as_suffix;
    const unsigned char *charsmap; /* normalizer_spec.precompiled_charsmap, in the data of the file; NULL: none */
    size_t charsmap_size;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces; /* normalizer_spec */
};

/* Reads the size bytes of the file, which must outlive the model. path is for messages. A malformed file is
   SNUG_E_INPUT; a model of another kind SNUG_E_UNSUPPORTED. */
snug_status snug_sentencepiece_read(snug_context *ctx, struct snug_sentencepiece *model,
                                    enum snug_sentencepiece_kind kind, const char *path, const void *data, size_t size);
void snug_sentencepiece_free(struct snug_sentencepiece *model);

#endif
