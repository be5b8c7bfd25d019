/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/min_max.h"
#include "core/philox.h"
#include "data/build.h"
#include "data/chat_columns.h"
#include "data/column_prompts.h"
#include "data/data_file.h"
#include "data/dataset_impl.h"
#include "data/groups.h"
#include "data/object_rows.h"
#include "data/reader.h"
#include "data/row_texts.h"
#include "data/rows.h"
#include "data/task.h"
#include "io/folder.h"

/* ---- dummy data ------------------------------------------------------------------------------------------------ */

static const char dummy_prefix[] = "dummy:";
enum { DUMMY_TEXTS = 2, DUMMY_MEMBERS = 4 }; /* of a row whose texts are sequences of their own; of a group */

/* Every value is a function of (seed, row, position): nothing is stored. Label and length use a block of random words
   that no token uses. */
static struct snug_philox_block dummy_block(const struct snug_dataset *dataset, int64_t row, uint32_t number) {
    return snug_philox(number, (uint32_t)row, (uint32_t)((uint64_t)row >> 32), (uint32_t)SNUG_PHILOX_DUMMY << 29,
                       snug_philox_key(dataset->seed), 0);
}

int32_t snug_dataset_dummy_length(const struct snug_dataset *dataset, int64_t row) {
    const uint64_t lengths = (uint64_t)(dataset->dummy_most - dataset->dummy_least + 1);
    if (lengths == 1) return (int32_t)dataset->dummy_least;
    return (int32_t)(dataset->dummy_least + (int64_t)(dummy_block(dataset, row, UINT32_MAX).word[1] * lengths >> 32));
}

static snug_status add_dummy_labels(snug_context *ctx, const char *path, struct snug_label_column *column) {
    const struct snug_field zero = {SNUG_FIELD_INTEGER, "0", 1}, one = {SNUG_FIELD_INTEGER, "1", 1};
    RETURN_IF_ERROR(snug_label_column_add(ctx, column, path, 1, &zero, true));
    return snug_label_column_add(ctx, column, path, 2, &one, true);
}

static snug_status open_dummy(snug_context *ctx, const struct snug_dataset_options *options,
                              struct snug_dataset *dataset) {
    const char *text = options->path + sizeof dummy_prefix - 1;
    char *cross, *end = NULL;
    errno = 0;
    long long rows = strtoll(text, &cross, 10), least = *cross == 'x' ? strtoll(cross + 1, &end, 10) : 0, most = least;
    if (end && *end == '-') most = strtoll(end + 1, &end, 10);
    if (errno || !end || *end || rows < 1 || least < 1 || most < least || most > INT32_MAX || rows > INT64_MAX / most)
        return snug_fail(ctx, SNUG_E_USAGE,
                         "%s: synthetic data is named dummy:ROWSxTOKENS, as in dummy:512x512, or dummy:512x8-512",
                         options->path);
    if (options->vocab_size < 1 || options->vocab_size > INT32_MAX)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: a vocabulary of %" PRId64 " tokens cannot be used", options->path,
                         options->vocab_size);
    if (options->max_samples >= 0 && rows > options->max_samples) rows = options->max_samples;
    if (least < most && rows > SNUG_ROWS_MOST)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: %lld rows are too many to be planned: give at most %d", options->path,
                         rows, (int)SNUG_ROWS_MOST);
    int32_t end_id = options->vocab_size < 30000 ? (int32_t)options->vocab_size : 30000;
    dataset->dummy_first = end_id > 100 ? 100 : 0; /* below 100 are BERT's special and unused tokens */
    dataset->dummy_ids = end_id - dataset->dummy_first;
    dataset->dummy_least = least;
    dataset->dummy_most = most;
    dataset->seed = options->seed;
    dataset->cache.rows = rows;
    const uint64_t content[] = {options->seed, (uint64_t)rows, (uint64_t)least, (uint64_t)most, (uint64_t)end_id};
    dataset->cache.digest = XXH3_64bits(content, sizeof content);
    dataset->cache.longest = most;
    dataset->cache.tokens = rows * most;
    dataset->cache.squared_lengths = least == most ? (double)rows * (double)most * (double)most : 0;
    for (int64_t row = 0; row < rows && least < most; row++) {
        const int64_t length = snug_dataset_dummy_length(dataset, row);
        dataset->cache.tokens -= most - length;
        dataset->cache.squared_lengths += (double)length * (double)length;
    }
    const struct snug_task_info *task = snug_task_info(options->task);
    dataset->dummy_words = task->words;
    dataset->cache.words = task->words ? dataset->cache.tokens : 0;
    const int64_t texts = task->apart ? DUMMY_TEXTS : task->groups ? DUMMY_MEMBERS : 0;
    dataset->cache.texts = texts;
    dataset->cache.sequences = task->groups ? rows * texts : 0;
    if (least < texts)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: rows of %" PRId64 " texts have at least %" PRId64 " tokens",
                         options->path, texts, texts);
    dataset->cache.row_bytes = (int64_t)sizeof(int32_t) *
                               (most + (task->words ? most + 1 + most : (int64_t)snug_group_numbers(DUMMY_MEMBERS)));
    if (task->apart) dataset->cache.form = SNUG_LABELS_TEXTS;
    if (task->groups) dataset->cache.form = SNUG_LABELS_GROUP;
    if (!task->labelled) return SNUG_OK;
    struct snug_label_column column = {0};
    const snug_status status = add_dummy_labels(ctx, options->path, &column);
    dataset->cache.form = task->words ? SNUG_LABELS_TAG_NUMBERS : SNUG_LABELS_INTEGER;
    dataset->cache.raw = column.raw;
    column.raw = (struct snug_raw_labels){0};
    snug_label_column_free(&column);
    return status;
}

/* Each token is a word, with a tag that does not depend on it. */
static void add_dummy_words(const struct snug_dataset *dataset, int64_t row, uint32_t *numbers, uint32_t count) {
    uint32_t *tags = numbers + count + 1;
    struct snug_philox_block block = {0};
    numbers[count] = count;
    for (uint32_t i = 0; i < count; i++) {
        if (i % 4 == 0) block = dummy_block(dataset, row, UINT32_MAX / 2 + i / 4);
        numbers[i] = i;
        tags[i] = block.word[i % 4] & 1;
    }
}

/* Its texts are parts of the row, and it has a score. */
static void add_dummy_texts(const struct snug_dataset *dataset, int64_t row, uint32_t *numbers, uint32_t count) {
    const float score = (float)(dummy_block(dataset, row, UINT32_MAX).word[0] & 1);
    numbers[0] = DUMMY_TEXTS;
    numbers[1] = count / DUMMY_TEXTS;
    numbers[2] = count - numbers[1];
    memcpy(&numbers[3], &score, sizeof score);
}

/* The members are parts of the row's tokens; the target of one is 1, of the others 0. */
static void add_dummy_group(const struct snug_dataset *dataset, int64_t row, uint32_t *numbers, uint32_t count) {
    const uint32_t right = dummy_block(dataset, row, UINT32_MAX).word[0] % DUMMY_MEMBERS;
    const uint32_t head[SNUG_GROUP_HEAD] = {(uint32_t)row, DUMMY_MEMBERS, true, (uint32_t)row};
    memcpy(numbers, head, sizeof head);
    for (uint32_t i = 0; i < DUMMY_MEMBERS; i++) {
        const float target = i == right;
        uint32_t *member = numbers + snug_group_numbers(i);
        member[0] = member[1] = count * (i + 1) / DUMMY_MEMBERS - count * i / DUMMY_MEMBERS;
        memcpy(&member[2], &target, sizeof target);
    }
}

static size_t dummy_numbers(const struct snug_dataset *dataset, size_t tokens) {
    if (dataset->cache.form == SNUG_LABELS_GROUP) return snug_group_numbers(DUMMY_MEMBERS);
    if (dataset->cache.texts) return snug_row_texts_numbers(DUMMY_TEXTS, true);
    return dataset->dummy_words ? snug_words_numbers(tokens, tokens, 0) : 1;
}

static snug_status read_dummy(snug_context *ctx, const struct snug_dataset *dataset, int64_t row,
                              struct snug_row_buffer *buffer, struct snug_dataset_row *out) {
    const size_t count = (size_t)snug_dataset_dummy_length(dataset, row);
    const size_t numbers = dummy_numbers(dataset, count);
    RETURN_IF_ERROR(snug_grow(ctx, &buffer->data, &buffer->capacity, sizeof(uint32_t) * (count + numbers), 1));
    uint32_t *label = buffer->data;
    int32_t *ids = (int32_t *)(label + numbers);
    if (dataset->cache.form == SNUG_LABELS_GROUP)
        add_dummy_group(dataset, row, label, (uint32_t)count);
    else if (dataset->cache.texts)
        add_dummy_texts(dataset, row, label, (uint32_t)count);
    else if (dataset->dummy_words)
        add_dummy_words(dataset, row, label, (uint32_t)count);
    else
        *label = dummy_block(dataset, row, UINT32_MAX).word[0] & 1;
    struct snug_philox_block block = {0};
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) block = dummy_block(dataset, row, (uint32_t)(i / 4));
        ids[i] = dataset->dummy_first + (int32_t)((uint64_t)block.word[i % 4] * (uint64_t)dataset->dummy_ids >> 32);
    }
    *out = (struct snug_dataset_row){.ids = ids,
                                     .count = (int64_t)count,
                                     .first_count = (int64_t)count,
                                     .labels = label,
                                     .label_count = dataset->cache.form != SNUG_LABELS_NONE ? (int64_t)numbers : 0,
                                     .line = row + 1};
    return SNUG_OK;
}

/* ---- the cache's key ------------------------------------------------------------------------------------------- */

/* Files up to this size are identified by their content, which takes 10 ms. A larger file cannot be rewritten within
   one tick of the clock of file times. */
#define BY_CONTENT ((int64_t)64 << 20)

/* The identity of the data: its content, or, for a large file, its path, inode, size and times. The inode's change time
   cannot be set by a user, and changes when a file is written, renamed over another, or its times are set. *regular is
   false for a pipe, which has no identity. */
static snug_status describe_data(snug_context *ctx, const char *path, int fd, char **out, bool *regular) {
    struct stat info = {0};
    fstat(fd, &info);
    *out = NULL;
    *regular = S_ISREG(info.st_mode);
    if (!*regular) return snug_strdup(ctx, "", out);
    if (info.st_size <= BY_CONTENT) {
        int64_t size;
        uint64_t digest = 0;
        RETURN_IF_ERROR(snug_file_digest(ctx, fd, path, &size, &digest));
        return snug_format(ctx, out, "%" PRId64 " %016" PRIx64, size, digest);
    }
    char *real = realpath(path, NULL);
    const snug_status status =
        snug_format(ctx, out, "%s\n%" PRIu64 " %" PRId64 " %" PRId64 ".%09ld %" PRId64 ".%09ld", real ? real : path,
                    (uint64_t)info.st_ino, (int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                    (int64_t)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
    free(real);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Repeats the reader's warnings from when the tokens were made. */
static void log_oddities(snug_context *ctx, const char *path, const struct snug_cache *cache) {
    int64_t skipped[SNUG_CONLL_SKIPPED];
    for (int i = 0; i < SNUG_CONLL_SKIPPED; i++) skipped[i] = cache->skipped[i];
    snug_conll_tell_skipped(ctx, path, skipped);
    if (cache->malformed)
        snug_log(ctx, SNUG_LOG_WARNING, "%s: malformed UTF-8 in %" PRIu32 " line(s), replaced by U+FFFD", path,
                 cache->malformed);
    if (cache->added)
        snug_log(ctx, SNUG_LOG_WARNING, "%s: keys that the first object lacks in %" PRIu32 " row(s) are ignored", path,
                 cache->added);
}

/* A data file that is being tokenized. */
struct opening {
    snug_context *ctx;
    const struct snug_tokenizer *tokenizer;
    const struct snug_dataset_options *options;
    struct snug_cache *cache;
    enum snug_data_form form;  /* determines how the file is read */
    int data;                  /* the opened data file */
    char *description;         /* of the data */
    struct snug_folder folder; /* of the cache; none if the tokens are for this run only */
    char *name;                /* of the file in it */
    XXH128_hash_t key;
    struct snug_reader *reader; /* of the data */
    struct snug_peek peek;
    struct snug_columns columns;
    struct snug_chat *chat;         /* rows are chats; else NULL */
    bool assistant_only;            /* of them */
    struct snug_used_columns *used; /* their names */
    struct snug_dataset *dataset;
    int64_t hot; /* classes of labels that are lists of zeros and ones */
    bool cached; /* the tokens are in the cache */
};

/* The template of a file of chats. */
static snug_status open_chat(struct opening *o) {
    const struct snug_dataset_options *options = o->options;
    if (options->assistant_only && (!o->columns.chat || options->blocks))
        return snug_fail(o->ctx, SNUG_E_USAGE, "%s: --assistant_only_loss %s", options->path,
                         o->columns.chat ? "is for rows, and --block_size joins them: leave one out"
                                         : "is for chats, and the file has none: give rows with \"messages\", or "
                                           "leave it out");
    if (!o->columns.chat) return SNUG_OK;
    o->assistant_only = options->assistant_only || (options->assistant_only_trained && !options->blocks);
    RETURN_IF_ERROR(snug_chat_open(o->ctx, o->tokenizer, NULL, options->chat_date, &o->chat));
    const char *date = snug_chat_date(o->chat);
    if (!date) return SNUG_OK;
    snug_log(o->ctx, SNUG_LOG_INFO, "%s: the chat template shows a date: %s (--chat_template_date)", options->path,
             date);
    return snug_strdup(o->ctx, date, &o->dataset->chat_date);
}

/* Reads the first rows, and decides what the columns are. */
static snug_status find_columns(struct opening *o) {
    const struct snug_dataset_options *options = o->options;
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *const *names;
    const struct snug_conll_choice choice = snug_columns_choice(options);
    const struct snug_reader_options how = {.format = options->format,
                                            .strict = options->strict,
                                            .words = task->words,
                                            .keep_ends = task->causal && !options->line_by_line,
                                            .nested = options->chats  ? snug_chat_nested
                                                      : task->objects ? task->objects->nested
                                                                      : NULL,
                                            .conll = &choice,
                                            .rows = options->rows};
    RETURN_IF_ERROR(snug_reader_open_file(o->ctx, options->path, o->data, &how, &o->reader));
    const size_t count = snug_reader_columns(o->reader, &names);
    RETURN_IF_ERROR(snug_peek_open(o->ctx, o->reader, options->max_samples, &o->peek));
    RETURN_IF_ERROR(snug_columns_find(o->ctx, options, names, count, &o->peek, &o->columns));
    RETURN_IF_ERROR(snug_column_prompts_check(o->ctx, options, &o->columns, names));
    RETURN_IF_ERROR(open_chat(o));
    if (snug_reader_conll(o->reader)) snug_conll_tell(o->ctx, options->path, snug_reader_conll(o->reader));
    if (o->columns.has_label && !o->columns.flags && !task->words && !task->apart)
        RETURN_IF_ERROR(snug_label_hot(o->ctx, options->path, &o->peek, o->columns.label, &o->hot));
    if (options->rows && o->columns.has_label && !o->columns.flags)
        o->dataset->class_names = snug_rows_class_names(options->rows, o->columns.label, &o->dataset->class_count);
    return snug_columns_describe(o->ctx, &o->columns, options, names, count, o->used);
}

/* The names of the columns, each with its length, because they may contain any character. */
static snug_status columns_key(const struct opening *o, char **out) {
    const struct snug_used_columns *used = o->used;
    const char *label = used->label ? used->label : "", *delimiter = used->delimiter ? used->delimiter : "";
    RETURN_IF_ERROR(snug_format(o->ctx, out, "%d %zu %zu %zu:%s %zu:%s", used->pair, used->texts, used->flags,
                                strlen(label), label, strlen(delimiter), delimiter));
    for (size_t i = 0; i < used->texts; i++) {
        char *longer;
        const snug_status status =
            snug_format(o->ctx, &longer, "%s %zu:%s", *out, strlen(used->text[i]), used->text[i]);
        free(*out);
        *out = longer;
        RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

/* What rows of causal LM depend on, too. */
static snug_status add_causal(const struct opening *o, char **text) {
    const struct snug_dataset_options *options = o->options;
    char *longer;
    const snug_status status =
        snug_format(o->ctx, &longer, "%s %d %d %d %d %016" PRIx64 " %s", *text, options->blocks,
                    options->completion_only, o->chat != NULL, o->assistant_only,
                    o->chat ? snug_chat_fingerprint(o->chat) : 0, options->end ? options->end : "");
    free(*text);
    *text = longer;
    return status;
}

static snug_status add_prompt(const struct opening *o, char **text) {
    char *longer;
    char *prompts = o->options->prompts ? json_dumps(o->options->prompts, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    const snug_status status = snug_format(o->ctx, &longer, "%s\n%s%s", *text, prompts ? "columns " : "",
                                           prompts ? prompts : o->options->prompt);
    free(prompts);
    free(*text);
    *text = longer;
    return status;
}

/* Rows of reranking also depend on the loss and the query. */
static snug_status add_ranking(const struct opening *o, char **text) {
    const struct snug_dataset_options *options = o->options;
    char *longer;
    const snug_status status = snug_format(o->ctx, &longer, "%s\n%d %s", *text, (int)options->ranking_loss,
                                           options->query ? options->query : "");
    free(*text);
    *text = longer;
    return status;
}

/* Everything that the tokens depend on; any change gives another cache file. */
static snug_status make_key(struct opening *o) {
    const struct snug_dataset_options *options = o->options;
    const struct snug_task_info *task = snug_task_info(options->task);
    const char *separator = options->label_separator;
    char *columns, *text = NULL;
    RETURN_IF_ERROR(columns_key(o, &columns));
    snug_status status = snug_format(
        o->ctx, &text,
        "%s\n%d\n%016" PRIx64 "\n%d\n%s\n%s%s\n%d %d %d %d %d %d\n%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
        o->description, (int)o->form, snug_tokenizer_fingerprint(o->tokenizer), (int)options->task, columns,
        separator ? "=" : "", separator ? separator : "", o->columns.has_label, options->need_labels,
        snug_missing_labels_given(options->missing_labels), options->line_by_line, options->keep_words, options->strict,
        options->max_length, options->max_samples, o->hot, task->objects ? options->doc_stride : 0);
    free(columns);
    if (status == SNUG_OK && task->causal) status = add_causal(o, &text);
    if (status == SNUG_OK && task->groups) status = add_ranking(o, &text);
    if (status == SNUG_OK && (options->prompt || options->prompts)) status = add_prompt(o, &text);
    if (status == SNUG_OK) o->key = XXH3_128bits(text, strlen(text));
    free(text);
    return status;
}

/* The folder and the name of the cache, or none, which is logged. */
static snug_status find_cache(struct opening *o) {
    char problem[256];
    bool regular;
    RETURN_IF_ERROR(describe_data(o->ctx, o->options->path, o->data, &o->description, &regular));
    /* A pipe can be read only once, and of standard input a part may have been read. */
    const bool kept = regular && !o->options->rows && lseek(o->data, 0, SEEK_CUR) == 0;
    RETURN_IF_ERROR(find_columns(o));
    RETURN_IF_ERROR(make_key(o));
    if (!kept) return SNUG_OK;
    RETURN_IF_ERROR(snug_cache_folder_open(o->ctx, &o->folder, problem));
    if (!o->folder.path) {
        snug_log(o->ctx, SNUG_LOG_WARNING, "texts are tokenized again in every run: %s", problem);
        return SNUG_OK;
    }
    return snug_format(o->ctx, &o->name, "%016" PRIx64 "%016" PRIx64 ".tokens", (uint64_t)o->key.high64,
                       (uint64_t)o->key.low64);
}

/* Uses the cached tokens if they exist and are complete; *done is then true. A file of another user is not replaced:
 * the tokens are then for this run only. */
static snug_status open_cached(struct opening *o, bool *done) {
    const char *problem;
    *done = false;
    const int fd = snug_cache_folder_find(o->ctx, &o->folder, o->name);
    if (fd < 0) {
        if (snug_entry_kind(&o->folder, o->name)) snug_folder_close(&o->folder);
        return SNUG_OK;
    }
    if (o->options->overwrite_cache) {
        close(fd);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(snug_cache_open(o->ctx, fd, o->key, snug_tokenizer_vocab_size(o->tokenizer),
                                    snug_tokenizer_special(o->tokenizer).eos, o->cache, &problem));
    const struct snug_task_info *task = snug_task_info(o->options->task);
    const enum snug_label_form form = o->cache->form;
    const bool objects = form == SNUG_LABELS_ANSWERS || form == SNUG_LABELS_GROUP;
    const bool same = task->objects ? form == task->objects->form : !objects;
    if (!problem && (snug_cache_has_words(o->cache) != task->words || !same)) {
        problem = "its rows are of another task";
        snug_cache_close(o->cache);
    }
    *done = !problem;
    if (problem)
        snug_log(o->ctx, SNUG_LOG_WARNING, "%s/%s: the token cache is damaged and is rebuilt: %s", o->folder.path,
                 o->name, problem);
    return SNUG_OK;
}

/* Tokens of a file that changed while it was read match none of its versions. */
static snug_status check_unchanged(const struct opening *o) {
    char *now;
    bool regular;
    RETURN_IF_ERROR(describe_data(o->ctx, o->options->path, o->data, &now, &regular));
    const bool same = strcmp(now, o->description) == 0;
    free(now);
    if (same) return SNUG_OK;
    return snug_fail(o->ctx, SNUG_E_INPUT, "%s changed while it was read: start again when it is complete",
                     o->options->path);
}

static snug_status build_and_open(struct opening *o) {
    const struct snug_folder *folder = o->folder.path ? &o->folder : NULL;
    const char *problem;
    int fd = -1;
    if (folder) snug_cache_folder_sweep(o->ctx, folder);
    RETURN_IF_ERROR(snug_cache_build(o->ctx, o->tokenizer, o->options, &o->peek, &o->columns, o->chat,
                                     o->assistant_only, o->hot, folder, o->name, o->key, &fd));
    const snug_status unchanged = check_unchanged(o);
    if (unchanged != SNUG_OK) {
        close(fd);
        if (folder) unlinkat(folder->fd, o->name, 0);
        return unchanged;
    }
    RETURN_IF_ERROR(snug_cache_open(o->ctx, fd, o->key, snug_tokenizer_vocab_size(o->tokenizer),
                                    snug_tokenizer_special(o->tokenizer).eos, o->cache, &problem));
    if (!problem) return SNUG_OK;
    return snug_fail(o->ctx, SNUG_E_IO,
                     "%s: the token cache %s, just written, reads back wrong: %s; is the disk sound?", o->options->path,
                     folder ? o->name : "in a temporary file", problem);
}

static snug_status open_tokens(struct opening *o) {
    RETURN_IF_ERROR(find_cache(o));
    if (o->folder.path) RETURN_IF_ERROR(open_cached(o, &o->cached));
    const bool cached = o->cached;
    if (cached && !o->peek.ended) log_oddities(o->ctx, o->options->path, o->cache); /* else the reader has done it */
    if (!cached) RETURN_IF_ERROR(build_and_open(o));
    snug_cache_tell_unused(o->ctx, o->options->path, o->cache);
    snug_log(o->ctx, SNUG_LOG_INFO, "%s: %" PRId64 " row%s, %" PRId64 " tokens; %s %s%s%s", o->options->path,
             o->cache->rows, o->cache->rows == 1 ? "" : "s", o->cache->tokens, cached ? "read from" : "tokenized into",
             o->folder.path ? o->folder.path : "a temporary file", o->folder.path ? "/" : "",
             o->folder.path ? o->name : "");
    return SNUG_OK;
}

static const char *prompt_of(const struct snug_dataset_options *options, const struct snug_used_columns *columns,
                             size_t text) {
    if (!options->prompts) return options->prompt;
    return json_string_value(json_object_get(options->prompts, columns->text[text]));
}

snug_status snug_dataset_count_prompts(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                                       const struct snug_dataset_options *options, struct snug_dataset *dataset) {
    const size_t texts = dataset->cache.texts ? (size_t)dataset->cache.texts : 1;
    if (!options->leaves_out_prompts) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(ctx, texts, sizeof *dataset->prompts, (void **)&dataset->prompts));
    for (size_t i = 0; i < texts; i++)
        RETURN_IF_ERROR(
            snug_count_prompt(ctx, tokenizer, prompt_of(options, &dataset->columns, i), &dataset->prompts[i]));
    return SNUG_OK;
}

static snug_status open_file(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                             const struct snug_dataset_options *options, struct snug_dataset *dataset) {
    struct opening o = {.ctx = ctx,
                        .tokenizer = tokenizer,
                        .options = options,
                        .cache = &dataset->cache,
                        .used = &dataset->columns,
                        .dataset = dataset};
    RETURN_IF_ERROR(snug_reader_form(ctx, options->path, options->format, options->rows, &o.form));
    RETURN_IF_ERROR(options->rows ? snug_rows_open(ctx, options->rows, options->path, &o.data)
                                  : snug_data_open(ctx, options->path, &o.data));
    snug_status status = open_tokens(&o);
    if (status == SNUG_OK) status = snug_dataset_count_prompts(ctx, tokenizer, options, dataset);
    snug_peek_free(&o.peek);
    snug_chat_close(o.chat);
    (o.cached ? snug_reader_discard : snug_reader_close)(o.reader);
    close(o.data);
    snug_folder_close(&o.folder);
    free(o.description);
    free(o.name);
    return status;
}

snug_status snug_dataset_open(snug_context *ctx, const struct snug_tokenizer *tokenizer,
                              const struct snug_dataset_options *options, struct snug_dataset **out) {
    void *memory;
    *out = NULL;
    if (options->max_samples == 0)
        return snug_fail(ctx, SNUG_E_USAGE, "%s: at most 0 rows are requested; give 1 or more", options->path);
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof(struct snug_dataset), &memory));
    struct snug_dataset *dataset = memory;
    dataset->cache.fd = -1;
    snug_status status = snug_strdup(ctx, options->path, &dataset->path);
    if (status == SNUG_OK)
        status = strncmp(options->path, dummy_prefix, sizeof dummy_prefix - 1) == 0
                     ? open_dummy(ctx, options, dataset)
                     : open_file(ctx, tokenizer, options, dataset);
    if (status == SNUG_OK && options->missing_labels)
        status = snug_strdup(ctx, options->missing_labels, &dataset->missing_labels);
    if (status == SNUG_OK)
        status = snug_alloc(ctx, dataset->cache.raw.count, sizeof *dataset->left_out, (void **)&dataset->left_out);
    dataset->form = dataset->cache.form;
    if (status != SNUG_OK) {
        snug_dataset_close(dataset);
        return status;
    }
    *out = dataset;
    return SNUG_OK;
}

void snug_dataset_close(struct snug_dataset *dataset) {
    if (!dataset) return;
    snug_cache_close(&dataset->cache);
    snug_given_free(dataset->given);
    snug_selection_free(&dataset->selection);
    snug_dataset_close(dataset->after);
    free(dataset->missing_labels);
    free(dataset->chat_date);
    free(dataset->left_out);
    free(dataset->prompts);
    free(dataset->classes);
    free(dataset->continued);
    free(dataset->values);
    free(dataset->path);
    snug_used_columns_free(&dataset->columns);
    free(dataset);
}

snug_status snug_dataset_append(snug_context *ctx, struct snug_dataset *dataset, struct snug_dataset *after) {
    char *path;
    dataset->after = after;
    RETURN_IF_ERROR(snug_format(ctx, &path, "%s, then %s", dataset->path, after->path));
    free(dataset->path);
    dataset->path = path;
    return SNUG_OK;
}

/* ---- access ------------------------------------------------------------------------------------------------------ */

int64_t snug_dataset_own_rows(const struct snug_dataset *dataset) {
    return dataset->part ? dataset->part : dataset->selection.bits ? dataset->selection.count : dataset->cache.rows;
}

int64_t snug_dataset_rows(const struct snug_dataset *dataset) {
    return snug_dataset_own_rows(dataset) + (dataset->after ? snug_dataset_rows(dataset->after) : 0);
}

int64_t snug_dataset_place(const struct snug_dataset *dataset, int64_t row) {
    return dataset->selection.bits ? snug_selection_row(&dataset->selection, row) : row;
}

/* A sum over all rows of the file, for the part that is used. It is the largest value times the rows only if it was
   before: it is rounded down. */
static int64_t share_of(const struct snug_dataset *dataset, int64_t sum) {
    const int64_t rows = snug_dataset_own_rows(dataset);
    return rows < dataset->cache.rows ? (int64_t)((__int128)sum * rows / dataset->cache.rows) : sum;
}

int64_t snug_dataset_tokens(const struct snug_dataset *dataset) {
    return share_of(dataset, dataset->cache.tokens) + (dataset->after ? snug_dataset_tokens(dataset->after) : 0);
}
int64_t snug_dataset_longest(const struct snug_dataset *dataset) {
    const int64_t own = dataset->cache.longest;
    return dataset->after ? snug_max(own, snug_dataset_longest(dataset->after)) : own;
}
int64_t snug_dataset_longest_sequence(const struct snug_dataset *dataset) {
    const int64_t own = dataset->cache.longest_text ? dataset->cache.longest_text : dataset->cache.longest;
    return dataset->after ? snug_max(own, snug_dataset_longest_sequence(dataset->after)) : own;
}
double snug_dataset_squared_lengths(const struct snug_dataset *dataset) {
    const double share = (double)snug_dataset_own_rows(dataset) / (double)dataset->cache.rows;
    return dataset->cache.squared_lengths * share + (dataset->after ? snug_dataset_squared_lengths(dataset->after) : 0);
}
uint64_t snug_dataset_digest(const struct snug_dataset *dataset) {
    const uint64_t content[] = {dataset->cache.digest,
                                dataset->selection.bits ? snug_selection_digest(&dataset->selection) : 0};
    const uint64_t own = dataset->selection.bits ? XXH3_64bits(content, sizeof content) : dataset->cache.digest;
    const uint64_t both[] = {own, dataset->after ? snug_dataset_digest(dataset->after) : 0};
    return dataset->after ? XXH3_64bits(both, sizeof both) : own;
}
bool snug_dataset_pairs(const struct snug_dataset *dataset) { return dataset->cache.pairs; }
int64_t snug_dataset_truncated(const struct snug_dataset *dataset) {
    return share_of(dataset, dataset->cache.truncated) + (dataset->after ? snug_dataset_truncated(dataset->after) : 0);
}
int64_t snug_dataset_losses(const struct snug_dataset *dataset) {
    const struct snug_cache *cache = &dataset->cache;
    if (cache->form == SNUG_LABELS_TEXTS) /* of preferences, without their prompts */
        return share_of(dataset, cache->tokens - (int64_t)(2 * cache->scores));
    return share_of(dataset, cache->form == SNUG_LABELS_MASK ? cache->losses : cache->tokens - cache->rows);
}
bool snug_dataset_learns_end(const struct snug_dataset *dataset) {
    return dataset->cache.form != SNUG_LABELS_MASK || dataset->cache.ends;
}
int64_t snug_dataset_texts(const struct snug_dataset *dataset) { return dataset->cache.texts; }
int64_t snug_dataset_all_sequences(const struct snug_dataset *dataset) { return dataset->cache.sequences; }
double snug_dataset_sequences(const struct snug_dataset *dataset) {
    const struct snug_cache *cache = &dataset->cache;
    if (cache->form == SNUG_LABELS_GROUP) return (double)cache->sequences / (double)cache->rows;
    return cache->texts ? (double)cache->texts : 1;
}
int64_t snug_dataset_words(const struct snug_dataset *dataset) { return share_of(dataset, dataset->cache.words); }
int64_t snug_dataset_words_without_tokens(const struct snug_dataset *dataset) {
    return share_of(dataset, dataset->cache.words_without_tokens);
}
int64_t snug_dataset_row_bytes(const struct snug_dataset *dataset) {
    const int64_t own = dataset->cache.row_bytes;
    return dataset->after ? snug_max(own, snug_dataset_row_bytes(dataset->after)) : own;
}
bool snug_dataset_all_labelled(const struct snug_dataset *dataset) {
    return dataset->bound && (dataset->dummy_most || snug_labels_are_lists(dataset->form) ||
                              dataset->cache.labelled == dataset->cache.rows);
}
int64_t snug_dataset_labelled(const struct snug_dataset *dataset) {
    return dataset->bound ? (int64_t)dataset->cache.labelled : 0;
}
const char *snug_dataset_chat_date(const struct snug_dataset *dataset) { return dataset->chat_date; }
const char *snug_dataset_path(const struct snug_dataset *dataset) { return dataset->path; }
const struct snug_used_columns *snug_dataset_columns(const struct snug_dataset *dataset) { return &dataset->columns; }
enum snug_label_form snug_dataset_label_form(const struct snug_dataset *dataset) { return dataset->form; }
int64_t snug_dataset_raw_labels(const struct snug_dataset *dataset) { return (int64_t)dataset->cache.raw.count; }

const char *snug_dataset_raw_label(const struct snug_dataset *dataset, uint32_t number) {
    return snug_raw_labels_text(&dataset->cache.raw, number);
}

bool snug_dataset_is_labelled(const struct snug_dataset *dataset, int64_t labels) {
    if (!dataset->bound) return false;
    /* An empty list is a label, too: none of the classes. */
    return dataset->dummy_most || snug_labels_are_lists(dataset->form) || labels;
}

snug_status snug_dataset_count_labels(snug_context *ctx, const struct snug_dataset *dataset, int64_t row,
                                      int64_t *out) {
    struct snug_cache_entry entry = {.labels = 1};
    /* Usually all rows have a label. */
    if (!dataset->dummy_most && (snug_labels_are_lists(dataset->form) || dataset->cache.labelled < dataset->cache.rows))
        RETURN_IF_ERROR(snug_cache_find(ctx, &dataset->cache, snug_dataset_place(dataset, row), &entry));
    *out = entry.labels;
    return SNUG_OK;
}

snug_status snug_dataset_read(snug_context *ctx, const struct snug_dataset *dataset, int64_t row,
                              struct snug_row_buffer *buffer, struct snug_dataset_row *out) {
    struct snug_cache_entry entry;
    const struct snug_cache_row *head;
    const uint32_t *labels;
    const int32_t *ids;
    const int64_t own = snug_dataset_own_rows(dataset);
    if (dataset->after && row >= own) return snug_dataset_read(ctx, dataset->after, row - own, buffer, out);
    if (dataset->dummy_most) return read_dummy(ctx, dataset, snug_dataset_place(dataset, row), buffer, out);
    if (dataset->given) {
        snug_given_read(dataset->given, row, out);
        out->prompts = dataset->prompts;
        return SNUG_OK;
    }
    RETURN_IF_ERROR(
        snug_cache_read(ctx, &dataset->cache, snug_dataset_place(dataset, row), buffer, &entry, &head, &labels, &ids));
    *out = (struct snug_dataset_row){.ids = ids,
                                     .count = entry.length,
                                     .first_count = head->first_count,
                                     .labels = labels,
                                     .label_count = entry.labels,
                                     .line = head->line,
                                     .truncated = head->truncated != 0,
                                     .prompts = dataset->prompts};
    return SNUG_OK;
}

void snug_dataset_row_answers(const struct snug_dataset_row *row, struct snug_answers *out) {
    if (!snug_answers_of(row->labels, row->label_count, row->count, out))
        *out = (struct snug_answers){.id = "", .context = "", .texts = ""}; /* synthetic data: no answer */
}

void snug_dataset_row_texts(const struct snug_dataset_row *row, struct snug_row_texts *out) {
    if (!snug_row_texts_of(row->labels, row->label_count, row->count, out)) *out = (struct snug_row_texts){0};
}

void snug_dataset_row_group(const struct snug_dataset_row *row, struct snug_group *out) {
    if (!snug_group_of(row->labels, row->label_count, row->count, out)) *out = (struct snug_group){0};
}

void snug_dataset_row_words(const struct snug_dataset *dataset, const struct snug_dataset_row *row,
                            struct snug_words *out) {
    if (!snug_words_of(row->labels, row->label_count, row->count, dataset->cache.raw.count, out))
        *out = (struct snug_words){0};
}
