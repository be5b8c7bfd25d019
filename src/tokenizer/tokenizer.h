/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens identical to those of transformers 5's AutoTokenizer for the same folder. */
#ifndef SNUG_TOKENIZER_TOKENIZER_H
#define SNUG_TOKENIZER_TOKENIZER_H

#include <jansson.h>

#include "io/file.h"
#include "tokenizer/ids.h"
#include "tokenizer/text_buffer.h"

struct snug_tokenizer;

/* transformers' tokenizer class for a config.json's model_type; NULL if it is not known. */
typedef const char *snug_class_of_type(const char *model_type, bool *keeps);

/* Reads from folder tokenizer.json, or vocab.txt (WordPiece), vocab.json + merges.txt (byte-level BPE),
   sentencepiece.bpe.model or spm.model (Unigram) or tokenizer.model (SentencePiece's BPE), with tokenizer_config.json,
   special_tokens_map.json and added_tokens.json. The class named in tokenizer_config.json builds the tokenizer, as in
   transformers 5: BertTokenizer uses only the vocabulary of tokenizer.json, PreTrainedTokenizerFast all of it. Where it
   names none, class_of_type gives the class for the model type in config.json. Ignored settings are logged. */
snug_status snug_tokenizer_load(snug_context *ctx, const char *folder, snug_class_of_type *class_of_type,
                                struct snug_tokenizer **out);
/* Whether folder has a vocabulary, which each tokenizer has. */
bool snug_tokenizer_is_in(const struct snug_folder *folder);
void snug_tokenizer_free(struct snug_tokenizer *tokenizer);
/* Uses a file's chat template instead of the folder's, which snug_tokenizer_save() then writes. */
snug_status snug_tokenizer_take_template(snug_context *ctx, struct snug_tokenizer *tokenizer, const char *path);
/* Writes the tokenizer's files into another folder, with the contents that were loaded, even if the files have changed
   since. */
snug_status snug_tokenizer_save(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                const struct snug_folder *in);

/* The name of number index of these files, from 0; NULL after the last. */
const char *snug_tokenizer_file(const struct snug_tokenizer *tokenizer, size_t index);

/* The texts of its special tokens by name: {"bos_token": "<s>", …}. */
const json_t *snug_tokenizer_named(const struct snug_tokenizer *tokenizer);

int64_t snug_tokenizer_vocab_size(const struct snug_tokenizer *tokenizer); /* largest id + 1 */
int64_t snug_tokenizer_model_size(const struct snug_tokenizer *tokenizer); /* the same without added tokens */
/* The token's text; "" for an id that has none. */
const char *snug_tokenizer_token(const struct snug_tokenizer *tokenizer, int32_t id);
struct snug_special_ids snug_tokenizer_special(const struct snug_tokenizer *tokenizer);
/* Changes whenever tokens could change: key of the token cache. */
uint64_t snug_tokenizer_fingerprint(const struct snug_tokenizer *tokenizer);

/* Appends the tokens of text (length bytes, valid UTF-8), without the special tokens around it. Safe from several
 * threads. */
snug_status snug_tokenizer_encode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                  size_t length, struct snug_ids *out);
/* The same, of a text of less than 2 GiB. Appends to added, for each added token that is found in the text itself (not
   in the normalized one), where its bytes begin and how many tokens out had before it. A text that begins there has the
   tokens that follow. */
snug_status snug_tokenizer_encode_added(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, struct snug_ids *out, struct snug_ids *added);
/* Appends to bytes, for each of count ids, which are the tokens of text, where its bytes begin and end in text, without
   white space around them: as return_offsets_mapping of transformers, in bytes. A token whose characters are not found
   there, such as the unknown one, has what is left up to the next word or the next token. */
snug_status snug_tokenizer_offsets(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                   size_t length, const int32_t *ids, size_t count, struct snug_ids *bytes);
/* The row of a pair of which nothing is truncated. */
snug_status snug_tokenizer_assemble_pair(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                         const struct snug_ids *a, const int32_t *b, size_t count, struct snug_ids *out,
                                         size_t *first_count, size_t *b_begin);
/* As snug_tokenizer_encode(), but may stop after `most` tokens or a few more: the rest of a long text is truncated
   anyway. (All tokens if the tokenizer truncates at the left.) */
snug_status snug_tokenizer_encode_begin(snug_context *ctx, const struct snug_tokenizer *tokenizer, const char *text,
                                        size_t length, size_t most, struct snug_ids *out);
/* The post-processor's row for a, or for a pair, such as [CLS] a [SEP] b [SEP]: truncates a and b to max_length in
   total, as `tokenizers` does (truncation="longest_first"), and appends the row to out. *first_count: tokens of type 0;
   the rest are of type 1 (none if the tokenizer returns no token types). *truncated: whether it was truncated. b may be
   NULL. */
snug_status snug_tokenizer_assemble(snug_context *ctx, const struct snug_tokenizer *tokenizer, const struct snug_ids *a,
                                    const struct snug_ids *b, size_t max_length, struct snug_ids *out,
                                    size_t *first_count, bool *truncated);

/* Appends the post-processor's row for a, of any length. A special token that the row has beside the text is left out
   where the text begins or ends with it. open: without what follows the text. */
snug_status snug_tokenizer_assemble_once(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                         const struct snug_ids *a, bool open, struct snug_ids *out);

/* Whether a second text has token type 1. */
bool snug_tokenizer_types(const struct snug_tokenizer *tokenizer);
/* model_max_length: the most tokens of a row; INT64_MAX if there is no limit. */
int64_t snug_tokenizer_max_length(const struct snug_tokenizer *tokenizer);
/* Special tokens of a row, of one sequence or a pair. */
size_t snug_tokenizer_specials(const struct snug_tokenizer *tokenizer, bool pair);

/* A word of a pre-split text: length bytes of valid UTF-8. */
struct snug_word {
    const char *text;
    size_t length;
};
/* Appends the tokens of words (is_split_into_words=True of transformers), and to word_of the index of its word for each
   token: each word is normalized and split by itself, and may have no token or several. RobertaTokenizer and
   GPT2Tokenizer put a space before each word, as with add_prefix_space=True, with which run_ner.py loads them. Safe
   from several threads. */
snug_status snug_tokenizer_encode_words(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                        const struct snug_word *words, size_t count, struct snug_ids *out,
                                        struct snug_ids *word_of);
/* The row of snug_tokenizer_assemble for one sequence a, whose tokens belong to the words a_word_of. Appends to word_of
   the index of its word for each token of the row, -1 for special tokens. */
snug_status snug_tokenizer_assemble_words(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                          const struct snug_ids *a, const struct snug_ids *a_word_of, size_t max_length,
                                          struct snug_ids *out, struct snug_ids *word_of, size_t *first_count,
                                          bool *truncated);

/* Replaces out's contents by the text of ids, as transformers' decode() does, with its clean_up_tokenization_spaces of
   tokenizer_config.json: ids without a token are left out, and special tokens too, if skip_special. Well-formed UTF-8,
   with a NUL after it. Safe from several threads. */
snug_status snug_tokenizer_decode(snug_context *ctx, const struct snug_tokenizer *tokenizer, const int32_t *ids,
                                  size_t count, bool skip_special, struct snug_text *out);
/* The same without clean_up_tokenization_spaces. */
snug_status snug_tokenizer_decode_raw(snug_context *ctx, const struct snug_tokenizer *tokenizer, const int32_t *ids,
                                      size_t count, bool skip_special, struct snug_text *out);

/* The text of ids that come one by one, without clean_up_tokenization_spaces. Set the first line, zero-initialise the
   rest; snug_decode_stream_free. */
struct snug_decode_stream {
    const struct snug_tokenizer *tokenizer;
    bool skip_special;
    struct snug_ids ids; /* those that the next text depends on: the first `done` gave the text `before` */
    size_t done;
    struct snug_text before, text, shown; /* text: of all ids, until it is shown */
};
/* *out: the text that this id completes, length bytes of whole characters; empty while a character, or what would
   follow it, may depend on the next id. Valid until the next call. */
snug_status snug_decode_stream_push(snug_context *ctx, struct snug_decode_stream *stream, int32_t id, const char **out,
                                    size_t *length);
/* The rest of the text, if it ends with an incomplete character. */
snug_status snug_decode_stream_end(snug_context *ctx, struct snug_decode_stream *stream, const char **out,
                                   size_t *length);
void snug_decode_stream_free(struct snug_decode_stream *stream);

#endif
