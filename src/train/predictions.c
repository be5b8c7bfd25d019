/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions: converts the outputs of each task to results, row by row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/dataset_impl.h"
#include "text/words.h"
#include "train/description.h"
#include "train/group.h"
#include "train/kept_columns.h"
#include "train/parallel.h"
#include "train/predict_files.h"
#include "train/predictions.h"

/* Outputs of loss positions, and the row of the data set that each belongs to. */
struct outputs {
    int64_t count;
    float *logits; /* [count, classes], read only */
    int64_t *rows; /* [count], ascending */
};

/* What a rank tells the others after a round. */
struct notice {
    int64_t count; /* loss positions of its batch */
    int64_t stop;  /* not 0: it was asked to stop */
};

enum { TOP_MOST = 1000 }; /* of --top_k, as args_table.c limits it */

struct snug_predicting {
    struct snug_session *session;
    const struct predictor *predictor;
    snug_status (*on_row)(void *user, const snug_prediction *row);
    void *user;
    char *label;
    size_t label_length, label_capacity;
    int64_t rows;        /* given to on_row */
    int64_t first;       /* index of the data set's first row, in results */
    bool tagging, value; /* token classification; regression */
    bool measured;       /* every row has a label */
    struct snug_measurement measurement;
    struct snug_kept_columns kept;
    struct snug_row_buffer kept_buffer;
    struct snug_predict_files files;
    const char **candidates; /* [top_k] of a masked token; the classes are the config's */
    double *candidate_scores;
    size_t candidate_capacity, candidate_score_capacity;

    /* Token classification: the current row, and its loss positions so far. */
    int64_t row;
    int32_t *classes;
    double *scores;
    size_t positions, class_capacity, score_capacity;
    struct snug_row_buffer buffer;
    const char **words, **tags;
    double *word_scores;
    size_t words_capacity, tags_capacity, word_scores_capacity;

    struct outputs batch;  /* of this rank's current batch */
    struct outputs *ranks; /* rank 0 of several: of those of all ranks, one after the other */
    struct notice *notices;
    size_t logits_capacity, row_capacity, all_logits_capacity, all_row_capacity;
};

struct predictor {
    /* Converts outputs; calls follow each other in the order of the rows. */
    snug_status (*take)(struct snug_predicting *p, const struct outputs *outputs, int64_t classes);
    snug_status (*finish)(struct snug_predicting *p); /* after all batches; NULL: nothing to do */
    const char *nothing;                              /* logged if no row has a result; NULL: every row has one */
};

static snug_status append_label(struct snug_predicting *p, const char *separator, const char *text) {
    const size_t length = strlen(text), gap = p->label_length ? strlen(separator) : 0;
    RETURN_IF_ERROR(
        snug_grow(p->session->ctx, (void **)&p->label, &p->label_capacity, p->label_length + gap + length + 1, 1));
    memcpy(p->label + p->label_length, separator, gap);
    memcpy(p->label + p->label_length + gap, text, length + 1);
    p->label_length += gap + length;
    return SNUG_OK;
}

static snug_status set_label(struct snug_predicting *p, const char *text) {
    p->label_length = 0;
    return append_label(p, "", text);
}

/* The row's values in the file, which is the one that begins in line. */
static snug_status keep_columns(struct snug_predicting *p, int64_t line, snug_prediction *row) {
    RETURN_IF_ERROR(snug_kept_columns_seek(&p->kept, line));
    row->column_count = p->kept.count;
    row->column_names = p->kept.names;
    row->columns = p->kept.texts;
    return SNUG_OK;
}

static snug_status give(struct snug_predicting *p, snug_prediction *row) {
    struct snug_dataset_row text;
    RETURN_IF_ERROR(
        snug_dataset_read(p->session->ctx, p->session->job.setup.eval.dataset, row->index, &p->kept_buffer, &text));
    row->label = p->label;
    row->truncated = text.truncated;
    row->index += p->first;
    p->rows++;
    if (p->kept.reader) RETURN_IF_ERROR(keep_columns(p, text.line, row));
    snug_predict_files_add(&p->files, p->tagging, p->value, row);
    return p->on_row(p->user, row);
}

/* The most probable class, and its softmax probability. */
static int64_t best_class(const float *logits, int64_t count, double *probability) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    for (int64_t i = 0; i < count; i++) sum += exp((double)logits[i] - (double)logits[best]);
    *probability = 1 / sum;
    return best;
}

/* ---- classification and masked LM ------------------------------------------------------------------------------ */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static snug_status name_classes(struct snug_predicting *p, const float *logits, int64_t classes, double *score) {
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    if (labels->problem == SNUG_PROBLEM_SINGLE_LABEL)
        return set_label(p, labels->names[best_class(logits, classes, score)]);
    if (labels->problem == SNUG_PROBLEM_REGRESSION) {
        char text[32];
        snprintf(text, sizeof text, "%.9g", (double)logits[0]);
        *score = logits[0];
        return set_label(p, text);
    }
    RETURN_IF_ERROR(set_label(p, ""));
    *score = 1;
    for (int64_t i = 0; i < classes; i++) {
        if (!snug_is_predicted(logits[i], p->session->job.setup.args->threshold)) continue;
        RETURN_IF_ERROR(append_label(p, "|", labels->names[i]));
        *score = fmin(*score, sigmoid(logits[i]));
    }
    return SNUG_OK;
}

static snug_status make_candidates(struct snug_predicting *p, size_t count) {
    snug_context *ctx = p->session->ctx;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->candidates, &p->candidate_capacity, count, sizeof *p->candidates));
    return snug_grow(ctx, (void **)&p->candidate_scores, &p->candidate_score_capacity, count,
                     sizeof *p->candidate_scores);
}

/* All classes with their probabilities. */
static snug_status list_classes(struct snug_predicting *p, snug_prediction *row) {
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    const int64_t classes = (int64_t)row->logits_count;
    double best;
    if (!p->session->job.setup.args->return_all_scores) return SNUG_OK;
    RETURN_IF_ERROR(make_candidates(p, row->logits_count));
    const float most = row->logits[best_class(row->logits, classes, &best)];
    for (int64_t i = 0; i < classes; i++)
        p->candidate_scores[i] = labels->problem == SNUG_PROBLEM_MULTI_LABEL
                                     ? sigmoid(row->logits[i])
                                     : best * exp((double)row->logits[i] - (double)most);
    row->candidate_count = row->logits_count;
    row->candidates = (const char *const *)labels->names;
    row->candidate_scores = p->candidate_scores;
    return SNUG_OK;
}

/* The top_k tokens. Their number is small: each is inserted into a sorted list. */
static snug_status list_tokens(struct snug_predicting *p, snug_prediction *row) {
    const struct snug_setup *setup = &p->session->job.setup;
    const int64_t count = (int64_t)row->logits_count, most = setup->args->top_k < count ? setup->args->top_k : count;
    int64_t top[TOP_MOST + 1] = {0}, found = 0;
    double best;
    RETURN_IF_ERROR(make_candidates(p, (size_t)most));
    const float highest = row->logits[best_class(row->logits, count, &best)];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = found;
        if (found == most && !(row->logits[i] > row->logits[top[most - 1]])) continue;
        for (; at > 0 && row->logits[i] > row->logits[top[at - 1]]; at--) top[at] = top[at - 1];
        top[at] = i;
        if (found < most) found++;
    }
    for (int64_t i = 0; i < most; i++) {
        p->candidates[i] = snug_tokenizer_token(setup->tokenizer, (int32_t)top[i]);
        p->candidate_scores[i] = best * exp((double)row->logits[top[i]] - (double)highest);
    }
    row->candidate_count = (size_t)most;
    row->ranked = true;
    row->candidates = p->candidates;
    row->candidate_scores = p->candidate_scores;
    return SNUG_OK;
}

static snug_status name_token(struct snug_predicting *p, const float *logits, int64_t classes, double *score) {
    const int64_t token = best_class(logits, classes, score);
    return set_label(p, snug_tokenizer_token(p->session->job.setup.tokenizer, (int32_t)token));
}

/* Each loss position is a row of its own. */
static snug_status take_each(struct snug_predicting *p, const struct outputs *outputs, int64_t classes,
                             snug_status (*name)(struct snug_predicting *, const float *, int64_t, double *),
                             snug_status (*list)(struct snug_predicting *, snug_prediction *)) {
    for (int64_t i = 0; i < outputs->count; i++) {
        snug_prediction row = {
            .index = outputs->rows[i], .logits_count = (size_t)classes, .logits = outputs->logits + i * classes};
        RETURN_IF_ERROR(name(p, row.logits, classes, &row.score));
        RETURN_IF_ERROR(list(p, &row));
        RETURN_IF_ERROR(give(p, &row));
    }
    return SNUG_OK;
}

static snug_status take_classes(struct snug_predicting *p, const struct outputs *outputs, int64_t classes) {
    return take_each(p, outputs, classes, name_classes, list_classes);
}

static snug_status take_masked(struct snug_predicting *p, const struct outputs *outputs, int64_t classes) {
    return take_each(p, outputs, classes, name_token, list_tokens);
}

/* ---- token classification -------------------------------------------------------------------------------------- */

static snug_status make_room(struct snug_predicting *p, const struct snug_words *words) {
    snug_context *ctx = p->session->ctx;
    const size_t count = (size_t)words->count + 1; /* a row without words has empty lists */
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->words, &p->words_capacity, count, sizeof *p->words));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->tags, &p->tags_capacity, count, sizeof *p->tags));
    return snug_grow(ctx, (void **)&p->word_scores, &p->word_scores_capacity, count, sizeof *p->word_scores);
}

/* Passes the current row to on_row: the tag of each word that has a loss position. */
static snug_status give_words(struct snug_predicting *p) {
    const struct snug_dataset *dataset = p->session->job.setup.eval.dataset;
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    struct snug_dataset_row text;
    struct snug_words words;
    snug_prediction row = {.index = p->row, .score = 1};
    RETURN_IF_ERROR(snug_dataset_read(p->session->ctx, dataset, p->row, &p->buffer, &text));
    snug_dataset_row_words(dataset, &text, &words);
    RETURN_IF_ERROR(make_room(p, &words));
    RETURN_IF_ERROR(set_label(p, ""));
    const char *word = words.texts;
    for (int64_t i = 0; i < words.count; i++) {
        p->tags[i] = NULL;
        p->word_scores[i] = 0;
        if (word) p->words[i] = word;
        if (word) word += strlen(word) + 1;
    }
    size_t position = 0;
    for (int64_t i = 0; i < text.count && position < p->positions; i++) {
        if (!snug_words_begins(&words, i)) continue;
        const uint32_t at = words.word_of[i];
        p->tags[at] = labels->names[p->classes[position]];
        p->word_scores[at] = p->scores[position++];
        row.score = fmin(row.score, p->word_scores[at]);
        RETURN_IF_ERROR(append_label(p, " ", p->tags[at]));
    }
    row.word_count = (size_t)words.count;
    row.words = words.texts || !words.count ? p->words : NULL;
    row.tags = p->tags;
    row.scores = p->word_scores;
    p->positions = 0;
    p->row++;
    return give(p, &row);
}

static snug_status take_tags(struct snug_predicting *p, const struct outputs *outputs, int64_t classes) {
    snug_context *ctx = p->session->ctx;
    for (int64_t i = 0; i < outputs->count; i++) {
        const int64_t row = outputs->rows[i];
        while (p->row < row) RETURN_IF_ERROR(give_words(p)); /* those in between have no words */
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->classes, &p->class_capacity, p->positions + 1, sizeof *p->classes));
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->scores, &p->score_capacity, p->positions + 1, sizeof *p->scores));
        p->classes[p->positions] =
            (int32_t)best_class(outputs->logits + i * classes, classes, &p->scores[p->positions]);
        p->positions++;
    }
    return SNUG_OK;
}

static snug_status give_rest(struct snug_predicting *p) {
    while (p->row < p->session->job.setup.eval.rows) RETURN_IF_ERROR(give_words(p));
    return SNUG_OK;
}

/* ---- all tasks ------------------------------------------------------------------------------------------------- */

static const struct predictor predictors[SNUG_TASK_COUNT] = {
    [SNUG_TASK_CLASSIFICATION] = {.take = take_classes},
    [SNUG_TASK_MLM] = {.take = take_masked,
                       .nothing = "no row has a mask token, and masked LM predicts only masked tokens"},
    [SNUG_TASK_TOKEN_CLASSIFICATION] = {.take = take_tags, .finish = give_rest},
};

static int64_t classes_of(const struct snug_predicting *p) {
    const struct snug_program *program = &p->session->evaluation->program;
    return program->tensors[program->logits].cols;
}

static const struct snug_process_group *group_of(const struct snug_predicting *p) {
    return p->session->job.setup.args->group;
}

/* One rank converts a chunk's outputs; several collect those of the batch. */
static snug_status take_chunk(void *user, const float *logits, int64_t first_row, int64_t rows,
                              const struct snug_batch *batch) {
    struct snug_predicting *p = user;
    struct outputs *to = &p->batch;
    const int64_t classes = classes_of(p);
    if (p->measured) RETURN_IF_ERROR(snug_measurement_add(&p->measurement, logits, first_row, rows, batch));
    const size_t need = (size_t)(to->count + rows);
    RETURN_IF_ERROR(snug_grow(p->session->ctx, (void **)&to->rows, &p->row_capacity, need, sizeof *to->rows));
    for (int64_t i = 0; i < rows; i++) to->rows[to->count + i] = snug_batch_row(batch, first_row + i);
    if (!group_of(p))
        return p->predictor->take(p, &(struct outputs){rows, (float *)(uintptr_t)logits, to->rows}, classes);
    RETURN_IF_ERROR(snug_grow(p->session->ctx, (void **)&to->logits, &p->logits_capacity, need * (size_t)classes,
                              sizeof *to->logits));
    memcpy(to->logits + to->count * classes, logits, (size_t)(rows * classes) * sizeof *logits);
    to->count += rows;
    return SNUG_OK;
}

/* Room for `most` loss positions of this rank, whose memory is sent up to there, and on rank 0 for those of all ranks.
 */
static snug_status make_places(struct snug_predicting *p, const struct snug_process_group *group, int64_t most) {
    snug_context *ctx = p->session->ctx;
    const size_t values = (size_t)(most * classes_of(p)), ranks = (size_t)group->ranks.size;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->batch.logits, &p->logits_capacity, values, sizeof(float)));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->batch.rows, &p->row_capacity, (size_t)most, sizeof(int64_t)));
    if (group->ranks.rank != 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&p->ranks->logits, &p->all_logits_capacity, ranks * values, sizeof(float)));
    return snug_grow(ctx, (void **)&p->ranks->rows, &p->all_row_capacity, ranks * (size_t)most, sizeof(int64_t));
}

/* Rank 0 gets the outputs of all ranks, and converts them in the order of the ranks, which is that of the rows. */
static snug_status gather(struct snug_predicting *p, const struct snug_process_group *group) {
    snug_context *ctx = p->session->ctx;
    const int64_t classes = classes_of(p);
    int64_t most = 0;
    for (int r = 0; r < group->ranks.size; r++)
        if (p->notices[r].count > most) most = p->notices[r].count;
    RETURN_IF_ERROR(make_places(p, group, most));
    RETURN_IF_ERROR(
        snug_group_gather(ctx, group, p->batch.logits, most * classes * (int64_t)sizeof(float), p->ranks->logits));
    RETURN_IF_ERROR(snug_group_gather(ctx, group, p->batch.rows, most * (int64_t)sizeof(int64_t), p->ranks->rows));
    for (int r = 0; r < group->ranks.size && group->ranks.rank == 0; r++) {
        const struct outputs outputs = {p->notices[r].count, p->ranks->logits + r * most * classes,
                                        p->ranks->rows + r * most};
        RETURN_IF_ERROR(p->predictor->take(p, &outputs, classes));
    }
    return SNUG_OK;
}

static snug_status end_round(void *user, bool last, bool *stop) {
    struct snug_predicting *p = user;
    const struct snug_process_group *group = group_of(p);
    bool heard = false; /* all ranks hear of a request to stop in every round, below */
    if (p->measured) RETURN_IF_ERROR(snug_measurement_share(&p->measurement, last, &heard));
    if (!group) return SNUG_OK;
    p->notices[group->ranks.rank] = (struct notice){p->batch.count, *stop};
    RETURN_IF_ERROR(snug_group_all_gather(p->session->ctx, group, p->notices, sizeof *p->notices));
    for (int r = 0; r < group->ranks.size; r++) *stop |= p->notices[r].stop != 0;
    RETURN_IF_ERROR(gather(p, group));
    p->batch.count = 0;
    return SNUG_OK;
}

static void release(struct snug_predicting *p) {
    free(p->label);
    free(p->classes);
    free(p->scores);
    free(p->buffer.data);
    free(p->words);
    free(p->tags);
    free(p->word_scores);
    free(p->kept_buffer.data);
    free(p->candidates);
    free(p->candidate_scores);
    snug_kept_columns_close(&p->kept);
    snug_predict_files_close(&p->files);
    snug_measurement_close(&p->measurement);
    free(p->batch.logits);
    free(p->batch.rows);
    if (p->ranks) {
        free(p->ranks->logits);
        free(p->ranks->rows);
    }
    free(p->ranks);
    free(p->notices);
}

/* The metrics under Trainer's names for predictions; none without labels. */
static snug_status finish_metrics(struct snug_predicting *p, double seconds, struct snug_metric_list *metrics) {
    struct snug_session *s = p->session;
    const double rows = (double)s->job.setup.eval.rows;
    if (!p->measured) return SNUG_OK;
    RETURN_IF_ERROR(snug_metric_accumulator_result(s->accumulator, metrics));
    for (size_t i = 0; i < metrics->count; i++) {
        char *name;
        const char *own = metrics->items[i].name;
        RETURN_IF_ERROR(snug_format(s->ctx, &name, "predict_%s", strncmp(own, "eval_", 5) == 0 ? own + 5 : own));
        const snug_status status = snug_keep_text(s->ctx, name, &metrics->items[i].name);
        free(name);
        RETURN_IF_ERROR(status);
        snug_log(s->ctx, SNUG_LOG_INFO, "%s = %.10g", metrics->items[i].name, metrics->items[i].value);
    }
    metrics->items[metrics->count++] = (snug_metric){"predict_runtime", seconds};
    metrics->items[metrics->count++] = (snug_metric){"predict_samples", rows};
    metrics->items[metrics->count++] = (snug_metric){"predict_samples_per_second", rows / seconds};
    return SNUG_OK;
}

static snug_status choose_predictor(struct snug_predicting *p) {
    const struct snug_setup *setup = &p->session->job.setup;
    p->predictor = &predictors[setup->config.task];
    p->tagging = snug_setup_task(setup)->words;
    p->value = snug_setup_task(setup)->problems && setup->config.labels.problem == SNUG_PROBLEM_REGRESSION;
    if (p->value && setup->args->return_all_scores)
        return snug_fail(setup->ctx, SNUG_E_USAGE, "--return_all_scores is for classes; this model predicts a value");
    return SNUG_OK;
}

/* Rank 0 alone converts and writes. */
static snug_status prepare(struct snug_predicting *p) {
    const struct snug_setup *setup = &p->session->job.setup;
    const struct snug_args *args = setup->args;
    const struct snug_process_group *group = args->group;
    RETURN_IF_ERROR(choose_predictor(p));
    p->measured = snug_dataset_all_labelled(setup->eval.dataset) && !p->tagging;
    if (group) RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof *p->ranks, (void **)&p->ranks));
    if (group)
        RETURN_IF_ERROR(snug_alloc(args->ctx, (size_t)group->ranks.size, sizeof *p->notices, (void **)&p->notices));
    RETURN_IF_ERROR(snug_measurement_open(p->session, &p->measurement));
    if (snug_group_rank(group) != 0) return SNUG_OK;
    const int64_t labelled = snug_dataset_labelled(setup->eval.dataset);
    if (!p->measured && labelled)
        snug_log(args->ctx, SNUG_LOG_WARNING, "%s: no metrics: only %lld of %lld rows have a label",
                 snug_dataset_path(setup->eval.dataset), (long long)labelled, (long long)setup->eval.rows);
    RETURN_IF_ERROR(snug_kept_columns_open(args, p->tagging, &p->kept));
    return snug_predict_files_begin(args, setup->mode, p->tagging, &p->files);
}

/* After all batches, on rank 0. */
static snug_status finish(struct snug_predicting *p, double begin) {
    const struct snug_setup *setup = &p->session->job.setup;
    struct snug_metric_list metrics = {0};
    if (p->predictor->finish) RETURN_IF_ERROR(p->predictor->finish(p));
    RETURN_IF_ERROR(finish_metrics(p, snug_seconds() - begin, &metrics));
    RETURN_IF_ERROR(snug_predict_files_end(&p->files, &metrics));
    if (p->rows == 0 && p->predictor->nothing) /* untested: every task reports that it has no rows */
        snug_log(setup->ctx, SNUG_LOG_WARNING, "%s: %s", snug_dataset_path(setup->eval.dataset), p->predictor->nothing);
    return SNUG_OK;
}

static snug_status predict(struct snug_predicting *p, snug_args *args, const snug_callbacks *callbacks) {
    const struct snug_inference inference = {p, take_chunk, end_round};
    const bool leads = snug_group_rank(args->group) == 0;
    RETURN_IF_ERROR(snug_args_check(args, "predict"));
    RETURN_IF_ERROR(snug_kept_columns_check(args));
    if (leads) RETURN_IF_ERROR(snug_predict_files_check(args, &p->files));
    RETURN_IF_ERROR(snug_session_open(args, SNUG_COMMAND_PREDICT, callbacks, &p->session));
    RETURN_IF_ERROR(snug_parallel_compare(&p->session->job, &p->session->memory, 0));
    RETURN_IF_ERROR(snug_description_tell(p->session, callbacks));
    const double begin = snug_seconds();
    RETURN_IF_ERROR(prepare(p));
    RETURN_IF_ERROR(snug_session_infer(p->session, callbacks, &inference));
    if (p->measured) RETURN_IF_ERROR(snug_measurement_merge(&p->measurement));
    if (leads) RETURN_IF_ERROR(finish(p, begin));
    return snug_group_barrier(args->ctx, args->group);
}

snug_status snug_predict(snug_args *args, const snug_callbacks *callbacks,
                         snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    struct snug_predicting p = {.on_row = on_row, .user = user};
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(snug_group_join(args));
    snug_status status = predict(&p, args, callbacks);
    if (status != SNUG_OK) status = snug_group_fail(args, callbacks, status, -1);
    release(&p);
    snug_session_destroy(p.session);
    return status;
}

/* ---- of a loaded model ------------------------------------------------------------------------------------------- */

snug_status snug_predicting_open(struct snug_session *session, struct snug_predicting **out) {
    void *memory;
    *out = NULL;
    RETURN_IF_ERROR(snug_alloc(session->ctx, 1, sizeof **out, &memory));
    *out = memory;
    (*out)->session = session;
    return choose_predictor(*out);
}

snug_status snug_predicting_run(struct snug_predicting *p, int64_t first,
                                snug_status (*on_row)(void *user, const snug_prediction *row), void *user) {
    const struct snug_inference inference = {p, take_chunk, end_round};
    p->on_row = on_row;
    p->user = user;
    p->first = first;
    p->row = 0;
    p->positions = 0; /* also after a call that failed */
    RETURN_IF_ERROR(snug_session_infer(p->session, NULL, &inference));
    return p->predictor->finish ? p->predictor->finish(p) : SNUG_OK;
}

void snug_predicting_close(struct snug_predicting *p) {
    if (!p) return;
    release(p);
    free(p);
}
