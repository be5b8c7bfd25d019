/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence embeddings: the vectors of each row's texts, and of two their similarity. */
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "metrics/metrics_impl.h"
#include "model/sentence.h"
#include "train/predictions_impl.h"

struct state {
    float *vectors; /* of the current row's texts */
    size_t capacity;
    int64_t texts, given; /* of a row; of the current one so far */
    struct snug_writer file;
    bool writes;
};

/* A .npy file of NumPy, version 1.0: its header ends at a multiple of 64 bytes. */
static snug_status begin_file(struct snug_predicting *p, int64_t size) {
    struct state *s = p->state;
    const struct snug_setup *setup = &p->session->job.setup;
    char header[128] = "\x93NUMPY\x01", text[118];
    const int rest = (int)sizeof header - 10;
    RETURN_IF_ERROR(snug_writer_open(setup->ctx, NULL, setup->args->output_file, &s->file));
    s->writes = true;
    snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
             (long long)(setup->eval.rows * s->texts), (long long)size);
    memset(header + 10, ' ', (size_t)rest);
    memcpy(header + 10, text, strlen(text));
    header[sizeof header - 1] = '\n';
    header[8] = (char)rest;
    snug_writer_put(&s->file, header, sizeof header);
    return SNUG_OK;
}

static int64_t kept_size(const struct snug_setup *setup) {
    return setup->args->truncate_dim ? setup->args->truncate_dim : setup->config.sentence->size;
}

static snug_status open_state(struct snug_predicting *p) {
    struct state *s = p->state;
    const struct snug_setup *setup = &p->session->job.setup;
    const int64_t texts = snug_dataset_texts(setup->eval.dataset), size = setup->config.sentence->size;
    const bool to_file = p->command == SNUG_COMMAND_EMBED && setup->args->output_file;
    s->texts = texts ? texts : 1;
    s->given = 0;
    if (to_file && snug_group_rank(setup->args->group) == 0) RETURN_IF_ERROR(begin_file(p, kept_size(setup)));
    return snug_grow(setup->ctx, (void **)&s->vectors, &s->capacity, (size_t)(s->texts * size), sizeof *s->vectors);
}

static snug_status finish(struct snug_predicting *p) {
    struct state *s = p->state;
    if (!s->writes) return SNUG_OK;
    s->writes = false;
    return snug_writer_commit(p->session->ctx, &s->file);
}

static void close_state(struct snug_predicting *p) {
    struct state *s = p->state;
    if (s->writes) snug_writer_abandon(&s->file);
    free(s->vectors);
}

static snug_status give_row(struct snug_predicting *p, int64_t index, int64_t size) {
    struct state *s = p->state;
    const struct snug_setup *setup = &p->session->job.setup;
    const char *name = json_string_value(json_object_get(setup->config.sentence->settings, "similarity_fn_name"));
    snug_prediction row = {.index = index, .logits_count = (size_t)(s->texts * size), .logits = s->vectors};
    if (s->texts == 2) row.score = snug_similarity(snug_similarity_of(name), s->vectors, s->vectors + size, size);
    if (s->writes) snug_writer_put(&s->file, row.logits, row.logits_count * sizeof *row.logits);
    RETURN_IF_ERROR(snug_prediction_set_label(p, ""));
    return snug_prediction_give(p, &row, row.index);
}

static snug_status take_vectors(struct snug_predicting *p, const struct snug_outputs *outputs, int64_t classes) {
    struct state *s = p->state;
    const struct snug_args *args = p->session->job.setup.args;
    const int64_t size = kept_size(&p->session->job.setup);
    for (int64_t i = 0; i < outputs->count; i++) {
        float *vector = s->vectors + s->given * size;
        memcpy(vector, outputs->logits + i * classes, (size_t)size * sizeof *vector);
        if (args->normalize_embeddings) snug_scale_to_unit(vector, size);
        if (++s->given < s->texts) continue;
        s->given = 0;
        RETURN_IF_ERROR(give_row(p, outputs->rows[i], size));
    }
    return SNUG_OK;
}

const struct snug_task_results snug_task_embedding_results = {
    .metrics = {&snug_embedding_metrics, &snug_embedding_metrics, &snug_embedding_metrics},
    .state_size = sizeof(struct state),
    .open = open_state,
    .close = close_state,
    .take = take_vectors,
    .finish = finish,
};
