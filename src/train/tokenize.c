/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a file, row by row, without cache or labels. */
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "data/data_file.h"
#include "data/encode.h"
#include "data/task.h"
#include "data/texts.h"
#include "model/config.h"
#include "model/family.h"
#include "train/setup.h"
#include "train/tokenize_chat.h"

struct tokenizing {
    snug_context *ctx;
    const snug_args *args;
    struct snug_tokenizer *tokenizer;
    struct snug_texts texts;
    struct snug_row_buffer joined;
    int64_t max_length;
    struct snug_encoding encoding;
    struct snug_encoder encoder;
    int32_t *types;
    const char **tokens;
    size_t types_capacity, tokens_capacity;
    struct snug_text text;
};

static const char *file_of(const snug_args *args) {
    return args->test_file ? args->test_file : args->validation_file ? args->validation_file : args->train_file;
}

/* The argument's task; words are also what a file has by its name, and what a model is trained on. */
static snug_status choose_task(const struct tokenizing *t, const char *path, enum snug_task *out) {
    const struct snug_hub_place place = snug_args_place(t->args);
    enum snug_data_form form;
    struct snug_config config;
    *out = (enum snug_task)SNUG_TASK_DEFAULT;
    if (t->args->task) *out = (enum snug_task)snug_task_find(t->args->task);
    if (t->args->task) return SNUG_OK;
    RETURN_IF_ERROR(snug_reader_form(t->ctx, path, t->args->data_format, snug_args_rows(t->args, path), &form));
    if (form == SNUG_DATA_CONLL) *out = SNUG_TASK_TOKEN_CLASSIFICATION;
    if (form == SNUG_DATA_CONLL || !t->args->model_name_or_path) return SNUG_OK;
    if (snug_config_find(t->ctx, &place, t->args->model_name_or_path, &config) == SNUG_OK) {
        if (config.has_head && snug_task_info(config.task)->words) *out = config.task;
        snug_config_free(&config);
    }
    snug_clear_error(t->ctx); /* a folder may have a tokenizer alone */
    return SNUG_OK;
}

/* As in a training. */
static void choose_length(struct tokenizing *t) {
    t->max_length =
        snug_setup_limit_length(t->ctx, t->args->max_seq_length, snug_args_is_set(t->args, "max_seq_length"),
                                snug_tokenizer_max_length(t->tokenizer), "tokenizer's model_max_length", "");
}

static snug_status open_tokenizer(struct tokenizing *t) {
    const char *name = t->args->tokenizer_name ? t->args->tokenizer_name : t->args->model_name_or_path;
    const struct snug_hub_place place = snug_args_place(t->args);
    char *folder;
    RETURN_IF_ERROR(snug_model_locate(t->ctx, &place, name, &folder));
    const snug_status status = snug_tokenizer_load(t->ctx, folder, snug_family_tokenizer_class, &t->tokenizer);
    free(folder);
    return status;
}

static snug_status open_file(struct tokenizing *t) {
    struct snug_dataset_options options = {.path = file_of(t->args),
                                           .text_columns = t->args->text_column_names,
                                           .text_column = t->args->text_column_name,
                                           .text_pair_column = t->args->text_pair_column_name,
                                           .text_delimiter = t->args->text_column_delimiter,
                                           .label_column = t->args->label_column_name,
                                           .format = t->args->data_format,
                                           .rows = snug_args_rows(t->args, file_of(t->args)),
                                           .max_samples = -1,
                                           .strict = t->args->strict};
    choose_length(t);
    RETURN_IF_ERROR(choose_task(t, options.path, &options.task));
    RETURN_IF_ERROR(snug_texts_open(t->ctx, &options, &t->texts));
    t->encoding = (struct snug_encoding){
        .tokenizer = t->tokenizer, .pair = t->texts.source.columns.pair, .max_length = (size_t)t->max_length};
    return snug_encoding_check(t->ctx, &t->encoding, t->max_length, false);
}

static snug_status encode_row(struct tokenizing *t, const struct snug_row *in, struct snug_encoded *out) {
    struct snug_field fields[2] = {{SNUG_FIELD_MISSING, "", 0}, {SNUG_FIELD_MISSING, "", 0}};
    size_t words = 0;
    for (size_t i = 0; i < (t->texts.source.columns.pair ? 2 : 1); i++)
        RETURN_IF_ERROR(snug_columns_text(t->ctx, &t->texts.source, in, i, &t->joined, &fields[i]));
    const char *const texts[] = {fields[0].text, fields[1].text};
    const size_t lengths[] = {fields[0].length, fields[1].length};
    if (!t->texts.source.words) return snug_encode_texts(t->ctx, &t->encoding, texts, lengths, &t->encoder, out);
    for (size_t i = 0; i < lengths[0]; i++) words += !texts[0][i];
    return snug_encode_words(t->ctx, &t->encoding, texts[0], words, &t->encoder, out);
}

static snug_status tokenize_row(struct tokenizing *t, const struct snug_row *in, snug_tokenized *out) {
    struct snug_encoded row;
    t->encoder.out.count = t->encoder.word_of.count = 0;
    RETURN_IF_ERROR(encode_row(t, in, &row));
    const int32_t *ids = t->encoder.out.ids;
    RETURN_IF_ERROR(snug_grow(t->ctx, (void **)&t->types, &t->types_capacity, row.count, sizeof *t->types));
    RETURN_IF_ERROR(snug_grow(t->ctx, (void **)&t->tokens, &t->tokens_capacity, row.count, sizeof *t->tokens));
    for (size_t i = 0; i < row.count; i++) {
        t->types[i] = i >= row.first_count;
        t->tokens[i] = snug_tokenizer_token(t->tokenizer, ids[i]);
    }
    *out = (snug_tokenized){
        .index = in->index, .count = row.count, .input_ids = ids, .token_type_ids = t->types, .tokens = t->tokens};
    if (!t->args->decode) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_tokenizer_decode(t->ctx, t->tokenizer, ids, row.count, t->args->skip_special_tokens, &t->text));
    out->text = t->text.text;
    return SNUG_OK;
}

static snug_status tokenize_rows(struct tokenizing *t, int64_t most,
                                 snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    struct snug_row row;
    snug_status status = open_file(t);
    while (status == SNUG_OK && (status = snug_peek_next(&t->texts.peek, &row)) == SNUG_OK) {
        if (most >= 0 && row.index >= most) break;
        snug_tokenized out;
        status = tokenize_row(t, &row, &out);
        if (status == SNUG_OK) status = on_row(user, &out);
    }
    return status == SNUG_END ? SNUG_OK : status;
}

static snug_status tokenize(snug_args *args, snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    struct tokenizing t = {.ctx = args->ctx, .args = args};
    RETURN_IF_ERROR(snug_args_check(args, "tokenize"));
    const int64_t most = args->test_file         ? args->max_predict_samples
                         : args->validation_file ? args->max_eval_samples
                                                 : args->max_train_samples;
    snug_status status = open_tokenizer(&t);
    if (status == SNUG_OK)
        status = args->chat ? snug_tokenize_chats(t.ctx, args, t.tokenizer, file_of(args), most, on_row, user)
                            : tokenize_rows(&t, most, on_row, user);
    snug_texts_close(&t.texts);
    free(t.joined.data);
    snug_tokenizer_free(t.tokenizer);
    snug_encoder_free(&t.encoder);
    free(t.types);
    free(t.tokens);
    free(t.text.text);
    return status;
}

snug_status snug_tokenize(snug_args *args, snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(on_row);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, tokenize(args, on_row, user));
}
