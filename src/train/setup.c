/* SPDX-License-Identifier: Apache-2.0 */
#include "train/setup_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "args/class_weights.h"
#include "data/data_file.h"
#include "data/given.h"
#include "data/label_checks.h"
#include "data/labels.h"
#include "data/packs.h"
#include "data/rows.h"
#include "data/task.h"
#include "data/used_rows.h"
#include "io/json.h"
#include "metrics/task_results.h"
#include "metrics/text_scores.h"
#include "model/sentence.h"
#include "train/adapter.h"

static bool is_dummy(const char *path) { return strncmp(path, "dummy:", 6) == 0; }

/* ---- data ----------------------------------------------------------------------------------------------------- */

static const char *prediction_file(const struct snug_args *args) { return args->text ? "--text" : args->test_file; }

enum { DATA_FILES = 5 };

/* The files that the command reads; NULL: none. */
static void list_files(const struct snug_setup *setup, const char *files[DATA_FILES]) {
    const struct snug_args *args = setup->args;
    const char *prompts = setup->command == SNUG_COMMAND_GENERATE && !args->prompt ? args->test_file : NULL;
    files[0] = prompts                           ? prompts
               : setup->trains                   ? args->train_file
               : snug_setup_predicts_file(setup) ? prediction_file(args)
                                                 : NULL;
    const char *const others[] = {args->validation_file, args->queries_file, args->corpus_file, args->relevance_file};
    for (int i = 1; i < DATA_FILES; i++)
        files[i] = snug_setup_predicts(setup) || snug_setup_generates(setup) ? NULL : others[i - 1];
}

/* Before the model and the tokenizer are read, and the first file is tokenized. */
static snug_status look_for_files(const struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const char *files[DATA_FILES];
    list_files(setup, files);
    for (int i = 0; i < DATA_FILES; i++) {
        if (!files[i] || args->text) continue; /* a sentence to predict is in no file */
        RETURN_IF_ERROR(snug_args_check_rows(args, files[i]));
        if (!is_dummy(files[i]) && !snug_args_rows(args, files[i]))
            RETURN_IF_ERROR(snug_data_look(setup->ctx, files[i], args->data_format));
    }
    return SNUG_OK;
}

/* Whether a file must be tokenized; dummy data consists of ids. */
static const char *first_text_file(const struct snug_setup *setup) {
    const char *files[DATA_FILES];
    list_files(setup, files);
    for (int i = 0; i < DATA_FILES; i++)
        if (files[i] && !is_dummy(files[i])) return files[i];
    return setup->command == SNUG_COMMAND_MODEL || snug_setup_generates(setup) ? "a text" : NULL;
}

/* A default that is too long is no mistake of the user's. */
int64_t snug_setup_limit_length(snug_context *ctx, int64_t length, bool is_given, int64_t most, const char *before,
                                const char *after) {
    if (length <= most) return length;
    if (is_given)
        snug_log(ctx, SNUG_LOG_WARNING, "--max_seq_length %lld is more than the %s %lld%s: using %lld",
                 (long long)length, before, (long long)most, after, (long long)most);
    else
        snug_log(ctx, SNUG_LOG_INFO, "texts have at most %lld tokens, the %s %lld%s (without it %lld)", (long long)most,
                 before, (long long)most, after, (long long)length);
    return most;
}

/* Positions that are relative have no limit. */
static int64_t longest_possible(const struct snug_setup *setup) {
    const int64_t most = setup->tokenizer ? snug_tokenizer_max_length(setup->tokenizer) : INT64_MAX;
    const int64_t positions = setup->config.positions, given = setup->config.max_position_embeddings;
    const int64_t own = positions < given ? positions : given;
    return most < own ? most : own;
}

/* The length of the training counts in evaluation and prediction, unless another one is given. */
static void choose_length(struct snug_setup *setup) {
    const int64_t given = setup->args->max_seq_length, trained = setup->trained.max_seq_length;
    const int64_t blocks = setup->args->block_size;
    const bool is_given = blocks || snug_args_is_set(setup->args, "max_seq_length");
    if (snug_setup_generates(setup)) return; /* no text is cut */
    setup->max_length = trained && !is_given ? trained : given;
    if (snug_setup_task(setup)->max_length && !trained && !is_given)
        setup->max_length = snug_setup_task(setup)->max_length;
    if (blocks) setup->max_length = blocks;
    /* As in sentence-transformers: the model's own, else the longest possible. */
    if (setup->config.sentence && !trained && !is_given)
        setup->max_length =
            setup->config.sentence->max_seq_length ? setup->config.sentence->max_seq_length : longest_possible(setup);
    if (trained && is_given && given != trained)
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "--max_seq_length %lld: the model was trained with %lld, and results may differ from the training's",
                 (long long)given, (long long)trained);
    setup->max_length = snug_setup_limit_length(setup->ctx, setup->max_length, is_given, setup->config.positions,
                                                "model's", " positions");
    if (setup->tokenizer)
        setup->max_length =
            snug_setup_limit_length(setup->ctx, setup->max_length, is_given,
                                    snug_tokenizer_max_length(setup->tokenizer), "tokenizer's model_max_length", "");
}

/* The columns of the training: of this one's file, or of the one that the model's folder remembers. */
static const struct snug_used_columns *trained_columns(const struct snug_setup *setup) {
    return setup->train.dataset ? snug_dataset_columns(setup->train.dataset) : &setup->trained.columns;
}

static const char *kind_of(const struct snug_used_columns *columns) {
    if (columns->chat) return "chats";
    return columns->pair ? "pairs" : columns->texts > 1 ? "joined columns" : "single columns";
}

/* Arguments name other columns than those of the training: a pair for one text, or the reverse. given: the text itself
   is given, which may be joined already. */
static void compare_columns(const struct snug_setup *setup, const struct snug_dataset *dataset, bool given) {
    const struct snug_used_columns *here = snug_dataset_columns(dataset), *there = trained_columns(setup);
    if (!there->texts || !here->texts || here->apart || here->objects || here->preferences) return;
    const bool same = here->pair == there->pair && here->chat == there->chat;
    if (same && (given || here->chat || here->texts == there->texts)) return;
    snug_log(setup->ctx, SNUG_LOG_WARNING, "%s: its texts are %s, and the model was trained on %s",
             snug_dataset_path(dataset), kind_of(here), kind_of(there));
}

/* A model that gives one label, or several, has decided what a '|' in a label is; in a prediction it does not matter.
 */
static const char *label_separator(const struct snug_setup *setup) {
    const char *given = setup->args->label_separator ? setup->args->label_separator : setup->trained.label_separator;
    if (given) return strcmp(given, "none") == 0 ? "" : given;
    if (setup->command == SNUG_COMMAND_TRAIN || setup->command == SNUG_COMMAND_PLAN) {
        /* The validation file of a training: as its training file. */
        if (!setup->train.dataset) return NULL;
        return snug_labels_are_lists(snug_dataset_label_form(setup->train.dataset)) ? "|" : NULL;
    }
    return setup->config.labels.problem == SNUG_PROBLEM_MULTI_LABEL ? "|" : "";
}

/* As in the model's training, unless the argument says something else. */
static const char *missing_labels(const struct snug_setup *setup) {
    const char *given = setup->args->missing_label_values;
    return given ? given : setup->trained.missing_labels;
}

enum { MANY_TRUNCATED = 20 }; /* one text in so many is a reason to warn */

static void tell_truncated(const struct snug_setup *setup, const struct snug_data_source *source) {
    const int64_t truncated = snug_dataset_truncated(source->dataset), most = longest_possible(setup);
    const bool many = truncated * MANY_TRUNCATED > source->rows;
    char advice[128] = "";
    if (!truncated) return;
    if (many && setup->max_length < most)
        snprintf(advice, sizeof advice, ": give a larger --max_seq_length, at most %lld, to use more of them",
                 (long long)most);
    if (many && setup->max_length >= most)
        snprintf(advice, sizeof advice, ": this model takes no larger --max_seq_length");
    snug_log(setup->ctx, many ? SNUG_LOG_WARNING : SNUG_LOG_INFO,
             "%s: %lld of %lld texts are longer than %lld tokens and were truncated%s",
             snug_dataset_path(source->dataset), (long long)truncated, (long long)source->rows,
             (long long)setup->max_length, advice);
}

/* Of the token that ends a row of causal LM. */
static const char *end_text(const struct snug_setup *setup) {
    const int32_t end =
        setup->tokenizer && snug_setup_task(setup)->causal ? snug_tokenizer_special(setup->tokenizer).eos : -1;
    return end < 0 ? NULL : snug_tokenizer_token(setup->tokenizer, end);
}

static void tell_end(const struct snug_setup *setup, const struct snug_data_source *source) {
    const char *end = end_text(setup), *path = snug_dataset_path(source->dataset);
    if (source != &setup->train || snug_dataset_learns_end(source->dataset)) return;
    if (end)
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "%s: no token \"%s\" that ends a row has a loss: this model would not learn to stop", path, end);
    else
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "%s: the tokenizer names no eos_token to end rows with: this model would not learn to stop", path);
}

/* The date that a chat template shows is then an argument of the run: it does not change, and the run can be repeated.
 */
static snug_status keep_date(struct snug_setup *setup, const struct snug_dataset *dataset) {
    const char *date = snug_dataset_chat_date(dataset);
    if (!date || setup->args->chat_template_date) return SNUG_OK;
    return snug_strdup(setup->ctx, date, &setup->args->chat_template_date);
}

/* Whether a setting is that of the model's training. */
static bool remembers(const struct snug_setup *setup, const char *name) {
    return snug_setup_is_inference(setup) && !snug_args_is_set(setup->args, name);
}

/* Whether the model's pooling leaves out the prompt's tokens. */
static bool leaves_out_prompts(const struct snug_setup *setup) {
    return setup->config.sentence && setup->config.sentence->without_prompt;
}

/* Whether the model can take the rows of a data set. */
static snug_status check_rows(struct snug_setup *setup, const char *path, struct snug_data_source *source) {
    source->rows = snug_dataset_rows(source->dataset);
    if (source->rows > SNUG_ROWS_MOST)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "%s: %lld rows are too many to be planned: give at most %d", path,
                         (long long)source->rows, (int)SNUG_ROWS_MOST);
    const int64_t longest = snug_dataset_longest_sequence(source->dataset);
    if (longest > setup->config.positions)
        return snug_fail(setup->ctx, SNUG_E_INPUT,
                         "%s: a text of %lld tokens is longer than the model's %lld positions", path,
                         (long long)longest, (long long)setup->config.positions);
    if (snug_dataset_pairs(source->dataset) && snug_setup_lacks_type(setup))
        return snug_fail(setup->ctx, SNUG_E_INPUT,
                         "%s contains pairs of texts, and the tokenizer gives the second one token type 1, which the "
                         "model does not have (type_vocab_size 1): give one column with --text_column_name, or join "
                         "them with --text_column_names",
                         path);
    const struct snug_used_columns *columns = snug_dataset_columns(source->dataset);
    if (columns->pair && !snug_setup_task(setup)->causal && setup->config.type_vocab_size > 1 &&
        !snug_tokenizer_types(setup->tokenizer))
        snug_log(setup->ctx, SNUG_LOG_INFO,
                 "%s: both texts of a pair have token type 0, since the tokenizer returns no token types (by its "
                 "class, or by model_input_names)",
                 path);
    return SNUG_OK;
}

snug_status snug_setup_take_source(struct snug_setup *setup, const char *path, struct snug_data_source *source) {
    snug_setup_note_source(setup, path);
    RETURN_IF_ERROR(check_rows(setup, path, source));
    tell_truncated(setup, source);
    return SNUG_OK;
}

static snug_status open_dataset(struct snug_setup *setup, const char *path, int64_t max_samples, bool need_labels,
                                struct snug_data_source *source) {
    const struct snug_args *args = setup->args;
    const bool given = snug_setup_predicts_file(setup) && args->text;
    struct snug_rows *sentence = NULL, *rows = given ? NULL : snug_args_rows(args, path);
    if (given) RETURN_IF_ERROR(snug_sentence_rows(args, snug_setup_task(setup)->words, &sentence));
    if (given) rows = sentence;
    const struct snug_dataset_options options = {
        .path = path,
        .rows = rows,
        .format = args->data_format,
        .task = setup->config.task,
        .text_columns = given ? NULL : args->text_column_names,
        .text_column = given ? NULL : args->text_column_name,
        .text_pair_column = given ? NULL : args->text_pair_column_name,
        .text_delimiter = args->text_column_delimiter,
        .label_column = given ? NULL : args->label_column_name,
        .label_separator = label_separator(setup),
        .missing_labels = missing_labels(setup),
        .trained = given || setup->command == SNUG_COMMAND_EMBED ? NULL : trained_columns(setup),
        .texts_most = setup->command == SNUG_COMMAND_EMBED ? 1 + (size_t)args->similarity : 0,
        .prompt = setup->prompt,
        .prompts = setup->prompts,
        .prompts_are_all = source == &setup->train || !setup->trains,
        .leaves_out_prompts = leaves_out_prompts(setup),
        .need_labels = need_labels || (snug_setup_task(setup)->groups && !snug_setup_predicts(setup)),
        .line_by_line = args->line_by_line || snug_setup_predicts_file(setup),
        .blocks = args->block_size > 0,
        .completion_only =
            remembers(setup, "completion_only_loss") ? setup->trained.completion_only_loss : args->completion_only_loss,
        .chats = snug_setup_task(setup)->causal,
        .doc_stride = args->doc_stride,
        .query = snug_setup_predicts(setup) ? args->query : NULL,
        .ranking_loss = setup->config.ranking_loss,
        .assistant_only = args->assistant_only_loss,
        .assistant_only_trained = remembers(setup, "assistant_only_loss") && setup->trained.assistant_only_loss,
        .chat_date = args->chat_template_date ? args->chat_template_date : setup->trained.chat_date,
        .end = end_text(setup),
        .keep_words = snug_setup_predicts_file(setup),
        .max_length = setup->max_length,
        .max_samples = max_samples,
        .strict = args->strict,
        .overwrite_cache = args->overwrite_cache,
        .threads = setup->threads,
        .seed = (uint64_t)args->seed,
        .vocab_size = setup->config.vocab_size};
    const snug_status opened = snug_dataset_open(setup->ctx, setup->tokenizer, &options, &source->dataset);
    snug_rows_free(sentence);
    RETURN_IF_ERROR(opened);
    RETURN_IF_ERROR(keep_date(setup, source->dataset));
    compare_columns(setup, source->dataset, given);
    if (!is_dummy(path) && !rows) snug_setup_note_source(setup, path);
    source->bytes = -1;
    if (setup->command == SNUG_COMMAND_TRAIN && !rows)
        RETURN_IF_ERROR(snug_data_checksum(setup->ctx, path, &source->bytes, &source->digest));
    RETURN_IF_ERROR(check_rows(setup, path, source));
    if (snug_setup_task(setup)->preferences && setup->command == SNUG_COMMAND_TRAIN)
        RETURN_IF_ERROR(
            snug_alloc(setup->ctx, (size_t)(2 * source->rows), sizeof *source->reference, (void **)&source->reference));
    tell_truncated(setup, source);
    tell_end(setup, source);
    const int64_t lost = snug_dataset_words_without_tokens(source->dataset);
    if (lost)
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "%s: %lld of %lld words were truncated, or have no token: they have no loss and get no tag", path,
                 (long long)lost, (long long)snug_dataset_words(source->dataset));
    return SNUG_OK;
}

/* Rows without a label are not used. */
static snug_status bind_labels(struct snug_setup *setup, struct snug_data_source *source) {
    RETURN_IF_ERROR(snug_dataset_bind_labels(setup->ctx, source->dataset, &setup->config.labels));
    RETURN_IF_ERROR(snug_dataset_leave_out(setup->ctx, source->dataset));
    source->rows = snug_dataset_rows(source->dataset);
    return SNUG_OK;
}

/* As run_glue.py and run_ner.py: the data's classes, in the model's order if it has the same ones. */
static snug_status choose_labels(struct snug_setup *setup) {
    const enum snug_task task = setup->config.task;
    if (!snug_setup_task(setup)->labelled || !setup->train.dataset)
        return snug_config_set_task(setup->ctx, &setup->config, task, &setup->config.labels);
    struct snug_labels labels;
    bool same = false;
    RETURN_IF_ERROR(snug_labels_of(setup->ctx, setup->train.dataset, snug_args_regression(setup->args), &labels));
    snug_status status =
        setup->eval.dataset ? snug_labels_add(setup->ctx, &labels, setup->train.dataset, setup->eval.dataset) : SNUG_OK;
    if (status == SNUG_OK)
        status = snug_labels_serve(setup->ctx, setup->train.dataset, &setup->config.labels, &labels, &same);
    const bool keep = same && setup->config.has_label_names;
    if (status == SNUG_OK)
        status = snug_config_set_task(setup->ctx, &setup->config, task, keep ? &setup->config.labels : &labels);
    snug_labels_free(&labels);
    if (status == SNUG_OK) status = snug_config_check_size(setup->ctx, &setup->config, setup->args->train_file);
    if (status != SNUG_OK) return status;
    if (setup->args->label_smoothing_factor > 0 && setup->config.labels.problem != SNUG_PROBLEM_SINGLE_LABEL)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--label_smoothing_factor is for single labels; %s has %s",
                         setup->args->train_file,
                         setup->config.labels.problem == SNUG_PROBLEM_REGRESSION ? "real ones" : "several per row");
    RETURN_IF_ERROR(bind_labels(setup, &setup->train));
    return snug_labels_check(setup->ctx, setup->train.dataset, &setup->config.labels);
}

static int64_t count_metrics(const char *const *names) {
    int64_t count = 0;
    while (names[count]) count++;
    return count;
}

struct snug_metric_form snug_setup_metric_form(const struct snug_setup *setup, enum snug_problem problem) {
    const struct snug_sentence *sentence = setup->config.sentence;
    const json_t *name = sentence ? json_object_get(sentence->settings, "similarity_fn_name") : NULL;
    return (struct snug_metric_form){.task = setup->config.task,
                                     .problem = problem,
                                     .retrieves = sentence && setup->args->queries_file,
                                     .similarity = snug_similarity_of(json_string_value(name))};
}

const char *snug_setup_metric_name(const struct snug_setup *setup, int64_t index) {
    const struct snug_metric_form form = snug_setup_metric_form(setup, setup->config.labels.problem);
    const char *const *names = snug_metric_names(&form);
    const int64_t count = count_metrics(names);
    return index < count ? names[index] : snug_text_score_name((enum snug_text_score)(index - count));
}

/* Those of answers come after the other metrics; -1: it is none. */
static int64_t find_text_score(const char *const *others, const char *name) {
    const int64_t count = count_metrics(others);
    for (int i = 0; i < SNUG_TEXT_SCORE_COUNT; i++) {
        const char *score = snug_text_score_name((enum snug_text_score)i);
        if (strcmp(score, name) == 0 || strcmp(score + strlen("eval_"), name) == 0) return count + i;
    }
    return -1;
}

/* Until the problem type is known, metrics of all problem types are accepted. */
static snug_status find_best_metric(struct snug_setup *setup, bool decided) {
    const struct snug_args *args = setup->args;
    const char *name = args->metric_for_best_model;
    char known[512] = "";
    int problem = decided ? setup->config.labels.problem : SNUG_PROBLEM_SINGLE_LABEL;
    const int last = decided ? problem : SNUG_PROBLEM_REGRESSION;
    if (setup->command != SNUG_COMMAND_TRAIN || !name || args->eval_strategy == SNUG_INTERVAL_NO) return SNUG_OK;
    for (; problem <= last; problem++) {
        const struct snug_metric_form form = snug_setup_metric_form(setup, (enum snug_problem)problem);
        setup->best_metric = snug_metric_find(&form, name);
        if (setup->best_metric < 0 && args->predict_with_generate)
            setup->best_metric = find_text_score(snug_metric_names(&form), name);
        if (setup->best_metric >= 0) return SNUG_OK;
        for (const char *const *next = snug_metric_names(&form); *next; next++) {
            const size_t used = strlen(known);
            if (!strstr(known, *next)) snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", *next);
        }
    }
    for (int i = 0; i < SNUG_TEXT_SCORE_COUNT && args->predict_with_generate; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", snug_text_score_name((enum snug_text_score)i));
    }
    return snug_fail(setup->ctx, SNUG_E_USAGE, "--metric_for_best_model %s is not one of this task's metrics: %s", name,
                     known);
}

/* Labels of a file to predict are for metrics; they may be absent, or stand for none, as -1 in GLUE's files. */
static snug_status try_labels(struct snug_setup *setup) {
    struct snug_dataset *dataset = setup->eval.dataset;
    if (snug_dataset_label_form(dataset) == SNUG_LABELS_NONE) {
        if (snug_dataset_raw_labels(dataset))
            snug_log(setup->ctx, SNUG_LOG_INFO, "no metrics: %s: some rows have no list of labels",
                     snug_dataset_path(dataset));
        return SNUG_OK;
    }
    snug_status status = snug_dataset_bind_labels(setup->ctx, dataset, &setup->config.labels);
    if (status == SNUG_OK) status = snug_dataset_check_labels(setup->ctx, dataset);
    if (status != SNUG_E_INPUT) return status;
    snug_log(setup->ctx, SNUG_LOG_INFO, "no metrics: %s", snug_context_message(setup->ctx));
    snug_clear_error(setup->ctx);
    return SNUG_OK;
}

/* The argument's, else those of the model's training, so that its evaluations give the same loss. */
static snug_status choose_class_weights(struct snug_setup *setup) {
    const struct snug_labels *labels = &setup->config.labels;
    const struct snug_trained *trained = &setup->trained;
    if (setup->args->class_weights)
        return snug_class_weights_find(setup->args, setup->config.task, labels, setup->train.dataset,
                                       &setup->class_weights);
    if (!trained->class_weights) return SNUG_OK;
    if (!snug_setup_task(setup)->labelled || trained->classes != (size_t)labels->count) return SNUG_OK;
    RETURN_IF_ERROR(
        snug_alloc(setup->ctx, trained->classes, sizeof *setup->class_weights, (void **)&setup->class_weights));
    memcpy(setup->class_weights, trained->class_weights, trained->classes * sizeof *setup->class_weights);
    return SNUG_OK;
}

/* One label is the most probable class, a regression has none: a threshold would change nothing. */
static snug_status check_results(const struct snug_setup *setup) {
    if (setup->args->class_metrics && setup->config.labels.problem == SNUG_PROBLEM_REGRESSION)
        return snug_fail(setup->ctx, SNUG_E_USAGE,
                         "--class_metrics is for classes, and a regression has none: leave it out");
    if (setup->args->threshold <= 0 || setup->config.labels.problem == SNUG_PROBLEM_MULTI_LABEL) return SNUG_OK;
    return snug_fail(setup->ctx, SNUG_E_USAGE,
                     "--threshold is for texts with several labels, which this model does not have: leave it out");
}

/* Opens the training file again, for the rows that are evaluated on. */
static snug_status open_split(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const int64_t all = setup->train.rows;
    RETURN_IF_ERROR(open_dataset(setup, args->train_file, -1, snug_setup_task(setup)->labelled, &setup->eval));
    if (setup->eval.rows != all)
        return snug_fail(setup->ctx, SNUG_E_INPUT, "%s changed while it was read: start again", args->train_file);
    return SNUG_OK;
}

static void use_first(struct snug_data_source *source, int64_t most) {
    if (most >= 0) snug_dataset_use_first(source->dataset, most);
    source->rows = snug_dataset_rows(source->dataset);
}

/* As in run_mlm.py, texts without labels are evaluated on first: of masked LM without --line_by_line rows are blocks of
   tokens, of which neighbours are of one text. Rows with labels may be sorted by them, and are drawn. */
static snug_status split(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool labelled = snug_setup_task(setup)->labelled;
    const int64_t percentage = args->validation_split_percentage, all = setup->train.rows;
    const int64_t rows = (all * percentage + 50) / 100;
    if (rows < 1 || rows == all)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--validation_split_percentage %lld: of %lld rows %s",
                         (long long)percentage, (long long)all, rows ? "none is left to train on" : "that is none");
    RETURN_IF_ERROR(snug_dataset_split(setup->ctx, setup->train.dataset, setup->eval.dataset,
                                       labelled ? &setup->config.labels : NULL, rows, snug_args_data_seed(args)));
    use_first(&setup->train, args->max_train_samples);
    use_first(&setup->eval, args->max_eval_samples);
    char drawn[64] = "";
    if (labelled)
        snprintf(drawn, sizeof drawn, ", drawn with seed %llu (--data_seed)",
                 (unsigned long long)snug_args_data_seed(args));
    snug_log(setup->ctx, SNUG_LOG_INFO, "%s: %lld %s trained on, %lld of %s%lld %s evaluated on%s", args->train_file,
             (long long)setup->train.rows, setup->train.rows == 1 ? "row is" : "rows are", (long long)setup->eval.rows,
             labelled ? "" : "the first ", (long long)rows, rows == 1 ? "row is" : "rows are", drawn);
    return SNUG_OK;
}

/* Before the first step: classes that cannot be learnt, or an evaluation that cannot tell them apart. */
static snug_status check_classes(const struct snug_setup *setup, const struct snug_data_source *source, int64_t most,
                                 bool trains) {
    const struct snug_loader_options options = {.task = setup->config.task,
                                                .problem = setup->config.labels.problem,
                                                .labels = setup->config.labels.count,
                                                .label_all_tokens = setup->args->label_all_tokens};
    if (!source->dataset || !snug_setup_task(setup)->labelled) return SNUG_OK;
    const bool whole = most < 0 || source->rows < most;
    return snug_classes_check(setup->ctx, source->dataset, &setup->config.labels, &options, whole, trains);
}

enum snug_sampling snug_setup_sampling(const struct snug_args *args) {
    if (strcmp(args->train_sampling_strategy, "group_by_length") == 0) return SNUG_SAMPLING_GROUP_BY_LENGTH;
    return strcmp(args->train_sampling_strategy, "sequential") == 0 ? SNUG_SAMPLING_SEQUENTIAL : SNUG_SAMPLING_RANDOM;
}

/* Packs the rows of the training into micro-batches by tokens, if they are asked for. */
static snug_status pack(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    struct snug_data_source *source = &setup->train;
    if (!source->dataset || !args->per_device_train_tokens) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(setup->ctx, 1, sizeof *source->packs, (void **)&source->packs));
    return snug_packs_open(setup->ctx, source->dataset, args->per_device_train_tokens, snug_setup_sampling(args),
                           snug_args_data_seed(args), source->packs);
}

/* An embedding is evaluated on pairs of texts with a score. */
static snug_status check_scores(const struct snug_setup *setup) {
    const struct snug_dataset *dataset = setup->eval.dataset;
    const struct snug_used_columns *columns = snug_dataset_columns(dataset);
    const int64_t texts = snug_dataset_texts(dataset);
    if (texts == 2 && (columns->label || !columns->texts)) return SNUG_OK;
    return snug_fail(setup->ctx, SNUG_E_INPUT,
                     "%s: an embedding is evaluated on two texts and their score in each row, and there %s %lld text%s "
                     "and %s: name them with --text_column_names A,B and --label_column_name",
                     snug_dataset_path(dataset), texts == 1 ? "is" : "are", (long long)texts, texts == 1 ? "" : "s",
                     columns->label ? "a score" : "no score");
}

/* Opens the data to train on and that of its evaluations, from which the classes follow. */
static snug_status open_training_data(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool labelled = snug_setup_task(setup)->labelled;
    const bool splits = args->train_file && args->validation_split_percentage;
    RETURN_IF_ERROR(snug_setup_find_prompt(setup));
    if (args->train_file)
        RETURN_IF_ERROR(
            open_dataset(setup, args->train_file, splits ? -1 : args->max_train_samples, labelled, &setup->train));
    if (splits) RETURN_IF_ERROR(open_split(setup));
    if (args->validation_file)
        RETURN_IF_ERROR(open_dataset(setup, args->validation_file, args->max_eval_samples, labelled, &setup->eval));
    RETURN_IF_ERROR(choose_labels(setup));
    if (setup->config.sentence) RETURN_IF_ERROR(snug_setup_choose_loss(setup));
    if (args->queries_file) RETURN_IF_ERROR(snug_setup_open_retrieval(setup));
    if (setup->config.sentence && setup->eval.dataset && !args->queries_file) RETURN_IF_ERROR(check_scores(setup));
    if (setup->eval.dataset && labelled && !splits) RETURN_IF_ERROR(bind_labels(setup, &setup->eval));
    /* A part of the same file, whose labels were reported. */
    if (splits && labelled)
        RETURN_IF_ERROR(snug_dataset_bind_labels(setup->ctx, setup->eval.dataset, &setup->config.labels));
    if (splits) RETURN_IF_ERROR(split(setup));
    RETURN_IF_ERROR(check_classes(setup, &setup->train, args->max_train_samples, true));
    RETURN_IF_ERROR(pack(setup));
    RETURN_IF_ERROR(snug_setup_choose_order(setup));
    return check_classes(setup, &setup->eval, args->max_eval_samples, false);
}

static snug_status check_vectors(const struct snug_setup *setup) {
    const int64_t kept = setup->args->truncate_dim, size = setup->config.sentence->size;
    const struct snug_dataset *dataset = setup->eval.dataset;
    const int64_t texts = snug_dataset_texts(dataset);
    if (kept > size)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--truncate_dim %lld: the model's vectors have %lld values",
                         (long long)kept, (long long)size);
    if (setup->args->similarity && texts != 2)
        return snug_fail(setup->ctx, SNUG_E_INPUT,
                         "%s: --similarity compares two texts, and a row has %lld: name two columns with "
                         "--text_column_names A,B",
                         snug_dataset_path(dataset), (long long)texts);
    if (!setup->args->similarity && snug_dataset_columns(dataset)->texts > 1)
        return snug_fail(setup->ctx, SNUG_E_USAGE,
                         "%s: a vector is of one text, and %lld columns are named: name one with --text_column_name, "
                         "or compare two with --similarity",
                         snug_dataset_path(dataset), (long long)texts);
    return SNUG_OK;
}

/* Opens the data to evaluate or to predict. */
static snug_status open_other_data(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool labelled = snug_setup_task(setup)->labelled;
    RETURN_IF_ERROR(snug_setup_find_prompt(setup));
    if (setup->command == SNUG_COMMAND_MODEL) { /* its texts have no labels */
        const struct snug_dataset_options options = snug_setup_texts(setup);
        RETURN_IF_ERROR(snug_dataset_open_given(setup->ctx, setup->tokenizer, &options, &setup->eval.dataset));
        return setup->config.sentence ? check_vectors(setup) : SNUG_OK;
    }
    if (snug_setup_predicts_file(setup)) {
        RETURN_IF_ERROR(open_dataset(setup, prediction_file(args), args->max_predict_samples, false, &setup->eval));
        if (setup->config.sentence) return check_vectors(setup);
        return labelled ? try_labels(setup) : SNUG_OK;
    }
    if (args->queries_file) return snug_setup_open_retrieval(setup);
    RETURN_IF_ERROR(open_dataset(setup, args->validation_file, args->max_eval_samples, labelled, &setup->eval));
    if (labelled) RETURN_IF_ERROR(bind_labels(setup, &setup->eval));
    if (setup->config.sentence) return check_scores(setup);
    return check_classes(setup, &setup->eval, args->max_eval_samples, false);
}

struct snug_dataset_options snug_setup_texts(const struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const struct snug_sentence *sentence = setup->config.sentence;
    return (struct snug_dataset_options){.task = setup->config.task,
                                         .text_columns = args->text_column_names,
                                         .text_column = args->text_column_name,
                                         .text_pair_column = args->text_pair_column_name,
                                         .text_delimiter = args->text_column_delimiter,
                                         .label_column = args->label_column_name,
                                         .trained = sentence ? NULL : trained_columns(setup),
                                         .texts_most = 1,
                                         .prompt = setup->prompt,
                                         .leaves_out_prompts = leaves_out_prompts(setup),
                                         .max_length = setup->max_length,
                                         .max_samples = -1,
                                         .strict = args->strict};
}

static snug_status open_generation(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool sizes_alone = args->plan_only && !args->prompt && !args->test_file; /* not from standard input */
    const bool own = setup->adapter.path && snug_file_exists(&setup->adapter, SNUG_GENERATION_CONFIG);
    const struct snug_hub_place place = snug_args_place(args);
    const char *folder = own ? setup->adapter.path : setup->model.path;
    char *located = NULL; /* a plan opens no model */
    if (!folder) RETURN_IF_ERROR(snug_model_locate(setup->ctx, &place, args->model_name_or_path, &located));
    const snug_status status =
        snug_generation_open(setup->args, &setup->config, setup->tokenizer, folder ? folder : located, setup->backend,
                             setup->command != SNUG_COMMAND_CHAT && !sizes_alone, &setup->generation);
    free(located);
    return status;
}

static snug_status open_answers(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const char *flag = "--predict_with_generate";
    if (!snug_setup_answers(setup)) return SNUG_OK;
    if (setup->config.task != SNUG_TASK_CLM)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "%s is for --task clm: other models write no text", flag);
    if (!args->validation_file || !args->model_name_or_path)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "%s needs --model_name_or_path and --validation_file", flag);
    if (snug_args_ranks(args) > 1 && args->zero_stage == 3)
        return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED,
                         "%s: with --zero_stage 3 no rank has all weights, and ranks answer different prompts: give a "
                         "lower --zero_stage, or snug eval %s later",
                         flag, flag);
    return open_generation(setup);
}

static snug_status open_data(struct snug_setup *setup) {
    if (snug_setup_generates(setup)) return open_generation(setup);
    RETURN_IF_ERROR(find_best_metric(setup, false));
    RETURN_IF_ERROR(setup->trains ? open_training_data(setup) : open_other_data(setup));
    RETURN_IF_ERROR(find_best_metric(setup, true));
    RETURN_IF_ERROR(choose_class_weights(setup));
    RETURN_IF_ERROR(check_results(setup));
    setup->evaluates = setup->eval.dataset != NULL;
    return open_answers(setup);
}

bool snug_setup_lacks_type(const struct snug_setup *setup) {
    const struct snug_config *config = &setup->config;
    return !config->one_type && config->type_vocab_size < 2 && snug_tokenizer_types(setup->tokenizer);
}

int64_t snug_setup_classes(const struct snug_setup *setup) {
    const enum snug_head head = snug_setup_task(setup)->head;
    if (setup->config.sentence) return setup->config.sentence->size;
    if (head == SNUG_HEAD_SPAN) return SNUG_SPAN_SCORES;
    if (head == SNUG_HEAD_CHOICE) return 1;
    return head == SNUG_HEAD_VOCABULARY ? setup->config.vocab_size : setup->config.labels.count;
}

const struct snug_task_info *snug_setup_task(const struct snug_setup *setup) {
    return snug_task_info(setup->config.task);
}

struct snug_metric_accumulator_options snug_setup_metrics(const struct snug_setup *setup) {
    const struct snug_metric_form form = snug_setup_metric_form(setup, setup->config.labels.problem);
    return (struct snug_metric_accumulator_options){.task = setup->config.task,
                                                    .labels = &setup->config.labels,
                                                    .classes = snug_setup_classes(setup),
                                                    .rows = setup->eval.rows,
                                                    .entities = setup->args->return_entity_level_metrics,
                                                    .each_class = setup->args->class_metrics,
                                                    .threshold = setup->args->threshold,
                                                    .dataset = setup->eval.dataset,
                                                    .ranking_loss = setup->config.ranking_loss,
                                                    .judgements = setup->judgements.queries ? &setup->judgements : NULL,
                                                    .similarity = form.similarity,
                                                    .threads = setup->threads,
                                                    .ranks = snug_args_ranks(setup->args),
                                                    .rank = snug_group_rank(setup->args->group),
                                                    .batch_size = setup->args->per_device_eval_batch_size,
                                                    .answers = {.n_best = setup->args->n_best_size,
                                                                .longest = setup->args->max_answer_length,
                                                                .negative = setup->args->version_2_with_negative,
                                                                .threshold = setup->args->null_score_diff_threshold}};
}

bool snug_setup_reads_logits(const struct snug_setup *setup) {
    const struct snug_metric_accumulator_options metrics = snug_setup_metrics(setup);
    return snug_setup_predicts(setup) || snug_metrics_need_logits(&metrics);
}

json_t *snug_setup_class_weights_json(const struct snug_setup *setup) {
    if (!setup->class_weights) return json_null();
    json_t *list = json_array();
    for (int64_t i = 0; i < setup->config.labels.count; i++)
        snug_json_append(&list, snug_json_number((double)setup->class_weights[i]));
    return list;
}

snug_status snug_setup_longest(const struct snug_args *args, int64_t limit, int64_t *longest) {
    const struct snug_hub_place place = snug_args_place(args);
    struct snug_config config;
    const char *name = args->config_name ? args->config_name : args->model_name_or_path;
    RETURN_IF_ERROR(snug_config_find(args->ctx, &place, name, &config));
    *longest = limit < config.positions ? limit : config.positions;
    snug_config_free(&config);
    return SNUG_OK;
}

snug_status snug_setup_open(struct snug_args *args, enum snug_command command, const struct snug_backend *backend,
                            int threads, struct snug_setup *setup) {
    *setup = (struct snug_setup){.ctx = args->ctx,
                                 .args = args,
                                 .command = command,
                                 .backend = backend,
                                 .threads = threads,
                                 .mode = 0666,
                                 .trains = command == SNUG_COMMAND_TRAIN || command == SNUG_COMMAND_PLAN};
    RETURN_IF_ERROR(look_for_files(setup));
    RETURN_IF_ERROR(snug_setup_open_model(setup));
    if (snug_setup_is_inference(setup))
        RETURN_IF_ERROR(snug_trained_read(setup->ctx, setup->lora ? &setup->adapter : &setup->model, &setup->trained));
    RETURN_IF_ERROR(snug_setup_open_tokenizer(setup, first_text_file(setup)));
    choose_length(setup);
    RETURN_IF_ERROR(snug_setup_choose_types(setup));
    RETURN_IF_ERROR(open_data(setup));
    return SNUG_OK;
}

void snug_setup_close(struct snug_setup *setup) {
    if (setup->train.packs) snug_packs_close(setup->train.packs);
    free(setup->train.packs);
    snug_distinct_close(setup->train.distinct);
    free(setup->train.reference);
    free(setup->eval.reference);
    snug_dataset_close(setup->train.dataset);
    snug_dataset_close(setup->eval.dataset);
    snug_judgements_free(&setup->judgements);
    json_decref(setup->prompts);
    snug_generation_free(&setup->generation);
    snug_tokenizer_free(setup->tokenizer);
    snug_config_free(&setup->config);
    snug_folder_close(&setup->model);
    snug_folder_close(&setup->adapter);
    snug_adapter_free(setup->lora);
    free(setup->tokenizer_folder);
    free(setup->class_weights);
    snug_trained_free(&setup->trained);
    *setup = (struct snug_setup){0};
}
