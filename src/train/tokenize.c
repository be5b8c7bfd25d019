/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a file, row by row, without cache or labels. */
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/family.h"
#include "text/columns.h"
#include "text/reader.h"
#include "train/args.h"

struct tokenizing {
    snug_context *ctx;
    const snug_args *args;
    struct snug_tokenizer *tokenizer;
    struct snug_reader *reader;
    struct snug_peek peek;
    struct snug_columns columns;
    const char *delimiter;
    struct snug_row_buffer joined;
    struct snug_ids text[2], row;
    int64_t max_length;
    int32_t *types;
    const char **tokens;
    size_t types_capacity, tokens_capacity;
};

static const char *file_of(const snug_args *args) {
    return args->test_file ? args->test_file : args->validation_file ? args->validation_file : args->train_file;
}

/* As in a training. */
static void choose_length(struct tokenizing *t) {
    const int64_t most = snug_tokenizer_max_length(t->tokenizer);
    t->max_length = t->args->max_seq_length;
    if (t->max_length <= most) return;
    snug_log(t->ctx, SNUG_LOG_WARNING,
             "--max_seq_length %lld is more than the tokenizer's model_max_length %lld: using %lld",
             (long long)t->max_length, (long long)most, (long long)most);
    t->max_length = most;
}

static snug_status open_file(struct tokenizing *t) {
    const struct snug_dataset_options options = {.path = file_of(t->args),
                                                 .text_columns = t->args->text_column_names,
                                                 .text_column = t->args->text_column_name,
                                                 .text_pair_column = t->args->text_pair_column_name,
                                                 .text_delimiter = t->args->text_column_delimiter,
                                                 .label_column = t->args->label_column_name};
    const struct snug_reader_options how = {.format = snug_args_format(t->args, options.path),
                                            .strict = t->args->strict,
                                            .rows = snug_args_rows(t->args, options.path)};
    const char *const *names;
    const char *name = t->args->tokenizer_name ? t->args->tokenizer_name : t->args->model_name_or_path;
    const struct snug_hub_place place = snug_args_place(t->args);
    char *folder;
    RETURN_IF_ERROR(snug_model_locate(t->ctx, &place, name, &folder));
    snug_status status = snug_tokenizer_load(t->ctx, folder, snug_family_tokenizer_class, &t->tokenizer);
    free(folder);
    if (status == SNUG_OK) choose_length(t);
    if (status == SNUG_OK) status = snug_reader_open(t->ctx, options.path, &how, &t->reader);
    if (status != SNUG_OK) return status;
    const size_t count = snug_reader_columns(t->reader, &names);
    t->delimiter = snug_dataset_delimiter(&options);
    RETURN_IF_ERROR(snug_peek_open(t->ctx, t->reader, -1, &t->peek));
    return snug_columns_find(t->ctx, &options, names, count, &t->peek, &t->columns);
}

static snug_status tokenize_row(struct tokenizing *t, const struct snug_row *in, snug_tokenized *out) {
    const struct snug_columns *columns = &t->columns;
    for (size_t i = 0; i < (columns->pair ? 2 : 1); i++) {
        struct snug_field field = in->fields[columns->text[i]];
        if (columns->texts > 1 && !columns->pair)
            RETURN_IF_ERROR(snug_columns_join(t->ctx, columns, t->delimiter, in, &t->joined, &field));
        if (!snug_field_is_text(&field)) /* as in a training */
            return snug_fail(t->ctx, SNUG_E_INPUT, "%s:%lld: the row has no text in its text column", file_of(t->args),
                             (long long)in->line);
        t->text[i].count = 0;
        RETURN_IF_ERROR(snug_tokenizer_encode(t->ctx, t->tokenizer, field.text, field.length, &t->text[i]));
    }
    size_t first;
    bool truncated;
    t->row.count = 0;
    RETURN_IF_ERROR(snug_tokenizer_assemble(t->ctx, t->tokenizer, &t->text[0], columns->pair ? &t->text[1] : NULL,
                                            (size_t)t->max_length, &t->row, &first, &truncated));
    const size_t count = t->row.count;
    RETURN_IF_ERROR(snug_grow(t->ctx, (void **)&t->types, &t->types_capacity, count, sizeof *t->types));
    RETURN_IF_ERROR(snug_grow(t->ctx, (void **)&t->tokens, &t->tokens_capacity, count, sizeof *t->tokens));
    for (size_t i = 0; i < count; i++) {
        t->types[i] = i >= first;
        t->tokens[i] = snug_tokenizer_token(t->tokenizer, t->row.ids[i]);
    }
    *out = (snug_tokenized){
        .index = in->index, .count = count, .input_ids = t->row.ids, .token_type_ids = t->types, .tokens = t->tokens};
    return SNUG_OK;
}

snug_status snug_tokenize(snug_args *args, snug_status (*on_row)(void *user, const snug_tokenized *row), void *user) {
    struct tokenizing t = {.ctx = args->ctx, .args = args};
    struct snug_row row;
    snug_clear_error(t.ctx);
    RETURN_IF_ERROR(snug_args_check(args, "tokenize"));
    snug_status status = open_file(&t);
    const int64_t most = args->test_file         ? args->max_predict_samples
                         : args->validation_file ? args->max_eval_samples
                                                 : args->max_train_samples;
    while (status == SNUG_OK && (status = snug_peek_next(&t.peek, &row)) == SNUG_OK) {
        if (most >= 0 && row.index >= most) break;
        snug_tokenized out;
        status = tokenize_row(&t, &row, &out);
        if (status == SNUG_OK) status = on_row(user, &out);
    }
    snug_peek_free(&t.peek);
    snug_reader_close(t.reader);
    free(t.joined.data);
    snug_tokenizer_free(t.tokenizer);
    for (int i = 0; i < 2; i++) free(t.text[i].ids);
    free(t.row.ids);
    free(t.types);
    free(t.tokens);
    return status == SNUG_END ? SNUG_OK : status;
}
