/* SPDX-License-Identifier: Apache-2.0 */
/* Field numbers and defaults: sentencepiece_model.proto of SentencePiece. */
#include "tokenizer/sentencepiece.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { NORMALIZER_CHARSMAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_SPACES = 4, NORMALIZER_ESCAPE = 5 };
enum {
    TRAINER_MODEL_TYPE = 3,
    TRAINER_SUFFIX = 24,
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_UNK = 40,
    TRAINER_BOS = 41,
    TRAINER_EOS = 42,
    TRAINER_PAD = 43,
};
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
static const char *const model_types[] = {NULL, "UNIGRAM", "BPE", "WORD", "CHAR"};

/* The unread part of a message. */
struct message {
    const unsigned char *at, *end;
    const unsigned char *file; /* where the file begins, for messages */
    const char *path;
};

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value;          /* WIRE_VARINT, WIRE_64, WIRE_32 */
    struct message contents; /* WIRE_BYTES */
};

static snug_status malformed(snug_context *ctx, const struct message *message, const char *what) {
    return snug_fail(ctx, SNUG_E_INPUT,
                     "%s: byte %td: %s; this is not a complete SentencePiece model: download it again", message->path,
                     message->at - message->file, what);
}

static snug_status read_varint(snug_context *ctx, struct message *message, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 70 && message->at < message->end; shift += 7) {
        const unsigned char byte = *message->at++;
        *value |= (uint64_t)(byte & 127u) << shift; /* the tenth byte has one valid bit */
        if (byte < 128) return SNUG_OK;
    }
    return malformed(ctx, message, "an integer has no end");
}

static snug_status read_fixed(snug_context *ctx, struct message *message, size_t size, uint64_t *value) {
    if ((size_t)(message->end - message->at) < size) return malformed(ctx, message, "a number is truncated");
    *value = 0;
    for (size_t i = 0; i < size; i++) *value |= (uint64_t)*message->at++ << (8 * i);
    return SNUG_OK;
}

/* The next field. SNUG_END after the last. */
static snug_status next_field(snug_context *ctx, struct message *message, struct field *field) {
    uint64_t key;
    if (message->at == message->end) return SNUG_END;
    RETURN_IF_ERROR(read_varint(ctx, message, &key));
    if (!(key >> 3) || key > UINT32_MAX) return malformed(ctx, message, "a field has no valid number");
    field->number = (uint32_t)(key >> 3);
    field->wire = (enum wire)(key & 7);
    switch (field->wire) {
    case WIRE_VARINT: return read_varint(ctx, message, &field->value);
    case WIRE_64: return read_fixed(ctx, message, 8, &field->value);
    case WIRE_32: return read_fixed(ctx, message, 4, &field->value);
    case WIRE_BYTES:
        RETURN_IF_ERROR(read_varint(ctx, message, &field->value));
        if (field->value > (uint64_t)(message->end - message->at))
            return malformed(ctx, message, "a field is longer than what contains it");
        field->contents = *message;
        field->contents.end = message->at += field->value;
        return SNUG_OK;
    }
    return malformed(ctx, message, "a field is of an unknown kind");
}

/* Whether it is this field, with the right encoding. As in protobuf, a field with another encoding is ignored. */
static bool is_field(const struct field *field, uint32_t number, enum wire wire) {
    return field->number == number && field->wire == wire;
}

static float float_of(uint64_t bits) {
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static snug_status read_piece(snug_context *ctx, struct snug_sentencepiece *model, struct message message) {
    struct snug_sentencepiece_piece piece = {.text = "", .type = SNUG_SENTENCEPIECE_NORMAL};
    const struct message whole = message;
    struct field field;
    snug_status status;
    while ((status = next_field(ctx, &message, &field)) == SNUG_OK) {
        if (is_field(&field, PIECE_TEXT, WIRE_BYTES)) {
            piece.text = (const char *)field.contents.at;
            piece.length = (uint32_t)field.value; /* files of below 256 MiB are read */
        } else if (is_field(&field, PIECE_SCORE, WIRE_32)) {
            piece.score = (double)float_of(field.value);
        } else if (is_field(&field, PIECE_TYPE, WIRE_VARINT)) {
            if (field.value < SNUG_SENTENCEPIECE_NORMAL || field.value > SNUG_SENTENCEPIECE_BYTE)
                return malformed(ctx, &whole, "a piece is of an unknown type");
            piece.type = (enum snug_sentencepiece_type)field.value;
        }
    }
    if (status != SNUG_END) return status;
    if (!piece.length) return malformed(ctx, &whole, "a piece has no text");
    if (snug_utf8_invalid(piece.text, piece.length) < piece.length)
        return malformed(ctx, &whole, "a piece is not valid UTF-8");
    if (!isfinite(piece.score)) return malformed(ctx, &whole, "a piece has no finite score");
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&model->pieces, &model->capacity, model->count + 1, sizeof *model->pieces));
    model->pieces[model->count++] = piece;
    return SNUG_OK;
}

static snug_status read_trainer(snug_context *ctx, struct snug_sentencepiece *model, struct message message,
                                uint64_t *model_type) {
    struct field field;
    snug_status status;
    while ((status = next_field(ctx, &message, &field)) == SNUG_OK) {
        if (field.wire != WIRE_VARINT) continue;
        switch (field.number) {
        case TRAINER_MODEL_TYPE: *model_type = field.value; break;
        case TRAINER_SUFFIX: model->treat_whitespace_as_suffix = field.value; break;
        case TRAINER_BYTE_FALLBACK: model->byte_fallback = field.value; break;
        case TRAINER_UNK: model->unk_id = (int32_t)field.value; break;
        case TRAINER_BOS: model->bos_id = (int32_t)field.value; break;
        case TRAINER_EOS: model->eos_id = (int32_t)field.value; break;
        case TRAINER_PAD: model->pad_id = (int32_t)field.value; break;
        default: break;
        }
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status read_normalizer(snug_context *ctx, struct snug_sentencepiece *model, struct message message) {
    struct field field;
    snug_status status;
    while ((status = next_field(ctx, &message, &field)) == SNUG_OK) {
        if (is_field(&field, NORMALIZER_CHARSMAP, WIRE_BYTES)) {
            model->charsmap = field.value ? field.contents.at : NULL;
            model->charsmap_size = field.value;
        } else if (field.wire == WIRE_VARINT) {
            switch (field.number) {
            case NORMALIZER_PREFIX: model->add_dummy_prefix = field.value; break;
            case NORMALIZER_SPACES: model->remove_extra_whitespaces = field.value; break;
            case NORMALIZER_ESCAPE: model->escape_whitespaces = field.value; break;
            default: break;
            }
        }
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status read_model(snug_context *ctx, struct snug_sentencepiece *model, struct message message,
                              uint64_t *model_type) {
    struct field field;
    snug_status status;
    while ((status = next_field(ctx, &message, &field)) == SNUG_OK) {
        if (is_field(&field, MODEL_PIECES, WIRE_BYTES))
            RETURN_IF_ERROR(read_piece(ctx, model, field.contents));
        else if (is_field(&field, MODEL_TRAINER, WIRE_BYTES))
            RETURN_IF_ERROR(read_trainer(ctx, model, field.contents, model_type));
        else if (is_field(&field, MODEL_NORMALIZER, WIRE_BYTES))
            RETURN_IF_ERROR(read_normalizer(ctx, model, field.contents));
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status check_model(snug_context *ctx, const struct snug_sentencepiece *model,
                               enum snug_sentencepiece_kind kind, const char *path, uint64_t model_type) {
    if (model_type != kind) {
        const bool known = model_type && model_type < sizeof model_types / sizeof *model_types;
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s: the SentencePiece model is of type %s (trainer_spec.model_type %" PRIu64
                         "); only %s is supported here: use the tokenizer.json of the same model",
                         path, known ? model_types[model_type] : "unknown", model_type, model_types[kind]);
    }
    if (!model->count) return snug_fail(ctx, SNUG_E_INPUT, "%s: the SentencePiece model has no pieces", path);
    if (model->unk_id < 0 || model->unk_id >= (int64_t)model->count)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: trainer_spec.unk_id is %" PRId64 ", and the model has %zu pieces",
                         path, model->unk_id, model->count);
    return SNUG_OK;
}

snug_status snug_sentencepiece_read(snug_context *ctx, struct snug_sentencepiece *model,
                                    enum snug_sentencepiece_kind kind, const char *path, const void *data,
                                    size_t size) {
    *model = (struct snug_sentencepiece){.bos_id = 1,
                                         .eos_id = 2,
                                         .pad_id = -1,
                                         .add_dummy_prefix = true,
                                         .remove_extra_whitespaces = true,
                                         .escape_whitespaces = true};
    const unsigned char *file = data;
    /* A first piece has two fields at least: its key is the byte 0x0a. tiktoken's lines begin with base64. */
    if (size && (isalnum(file[0]) || file[0] == '+' || file[0] == '/'))
        return snug_fail(ctx, SNUG_E_UNSUPPORTED,
                         "%s is not a SentencePiece model but text, perhaps tiktoken's; use the tokenizer.json of the "
                         "same model",
                         path);
    uint64_t model_type = SNUG_SENTENCEPIECE_UNIGRAM;
    snug_status status = read_model(ctx, model, (struct message){file, file + size, file, path}, &model_type);
    if (status == SNUG_OK) status = check_model(ctx, model, kind, path, model_type);
    if (status != SNUG_OK) snug_sentencepiece_free(model);
    return status;
}

void snug_sentencepiece_free(struct snug_sentencepiece *model) {
    free(model->pieces);
    *model = (struct snug_sentencepiece){0};
}
