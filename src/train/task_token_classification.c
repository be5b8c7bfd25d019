/* SPDX-License-Identifier: Apache-2.0 */
/* Token classification: the words of each row with their tags. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset_impl.h"
#include "metrics/metrics_impl.h"
#include "train/predictions_impl.h"

struct state {
    int64_t row; /* the current one, and its loss positions so far */
    int32_t *classes;
    double *scores;
    size_t positions, class_capacity, score_capacity;
    struct snug_row_buffer buffer;
    const char **words, **tags;
    double *word_scores;
    size_t words_capacity, tags_capacity, word_scores_capacity;
};

static snug_status open_state(struct snug_predicting *p) {
    struct state *s = p->state;
    s->row = 0;
    s->positions = 0;
    return SNUG_OK;
}

static void close_state(struct snug_predicting *p) {
    const struct state *s = p->state;
    free(s->classes);
    free(s->scores);
    free(s->buffer.data);
    free(s->words);
    free(s->tags);
    free(s->word_scores);
}

static snug_status make_room(snug_context *ctx, struct state *s, const struct snug_words *words) {
    const size_t count = (size_t)words->count + 1; /* a row without words has empty lists */
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->words, &s->words_capacity, count, sizeof *s->words));
    RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->tags, &s->tags_capacity, count, sizeof *s->tags));
    return snug_grow(ctx, (void **)&s->word_scores, &s->word_scores_capacity, count, sizeof *s->word_scores);
}

/* A blank or a line break in a tag would look like further tags, or another row. */
static snug_status append_tag(struct snug_predicting *p, const char *tag) {
    char piece[64];
    RETURN_IF_ERROR(snug_prediction_append_label(p, " ", ""));
    while (*tag) {
        const size_t word = strcspn(tag, " ");
        if (word)
            tag += snug_escape(piece, sizeof piece, tag, word);
        else
            snprintf(piece, sizeof piece, "\\x%02x", *tag++);
        RETURN_IF_ERROR(snug_prediction_append_label(p, "", piece));
    }
    return SNUG_OK;
}

/* Passes the current row to on_row: the tag of each word that has a loss position. */
static snug_status give_words(struct snug_predicting *p) {
    struct state *s = p->state;
    const struct snug_dataset *dataset = p->session->job.setup.eval.dataset;
    const struct snug_labels *labels = &p->session->job.setup.config.labels;
    struct snug_dataset_row text;
    struct snug_words words;
    snug_prediction row = {.index = s->row, .score = 1};
    RETURN_IF_ERROR(snug_dataset_read(p->session->ctx, dataset, s->row, &s->buffer, &text));
    snug_dataset_row_words(dataset, &text, &words);
    RETURN_IF_ERROR(make_room(p->session->ctx, s, &words));
    RETURN_IF_ERROR(snug_prediction_set_label(p, ""));
    const char *word = words.texts;
    for (int64_t i = 0; i < words.count; i++) {
        s->tags[i] = NULL;
        s->word_scores[i] = 0;
        if (word) s->words[i] = word;
        if (word) word += strlen(word) + 1;
    }
    size_t position = 0;
    const bool all = p->session->job.setup.args->label_all_tokens;
    for (int64_t i = 0; i < text.count && position < s->positions; i++) {
        const uint32_t at = words.word_of[i];
        const bool begins = snug_words_begins(&words, i);
        if (!begins) {
            position += all && at != SNUG_NO_WORD; /* its loss counts, its tag does not */
            continue;
        }
        s->tags[at] = labels->names[s->classes[position]];
        s->word_scores[at] = s->scores[position++];
        row.score = fmin(row.score, s->word_scores[at]);
        RETURN_IF_ERROR(append_tag(p, s->tags[at]));
    }
    row.word_count = (size_t)words.count;
    row.words = words.texts || !words.count ? s->words : NULL;
    row.tags = s->tags;
    row.scores = s->word_scores;
    s->positions = 0;
    s->row++;
    return snug_prediction_give(p, &row, row.index);
}

static snug_status take_tags(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    struct state *s = p->state;
    snug_context *ctx = p->session->ctx;
    for (int64_t i = 0; i < outputs->count; i++) {
        const int64_t row = outputs->rows[i];
        while (s->row < row) RETURN_IF_ERROR(give_words(p)); /* those in between have no words */
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->classes, &s->class_capacity, s->positions + 1, sizeof *s->classes));
        RETURN_IF_ERROR(snug_grow(ctx, (void **)&s->scores, &s->score_capacity, s->positions + 1, sizeof *s->scores));
        s->classes[s->positions] =
            (int32_t)snug_best_class(outputs->logits + i * classes, classes, &s->scores[s->positions]);
        s->positions++;
    }
    return SNUG_OK;
}

static snug_status give_rest(struct snug_predicting *p) {
    const struct state *s = p->state;
    while (s->row < p->session->job.setup.eval.rows) RETURN_IF_ERROR(give_words(p));
    return SNUG_OK;
}

const struct snug_task_results snug_task_token_classification_results = {
    .metrics = {&snug_entity_metrics, &snug_entity_metrics, &snug_entity_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_tags,
    .finish = give_rest,
    .file = "predictions.txt",
};
