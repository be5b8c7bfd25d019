/* SPDX-License-Identifier: Apache-2.0 */
#include "train/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "data/task.h"
#include "io/json.h"
#include "model/adapter_weights.h"
#include "run/run.h"
#include "train/identity.h"

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* A file is this, and then two floats for each row, of the chosen and of the rejected completion. */
struct header {
    char magic[8];
    uint64_t key, rows, digest; /* key: of all that the values depend on; digest: XXH3-64 of the values */
};
static const char magic[8] = "SNUGREF1";
static const char *const names[] = {SNUG_REFERENCE_TRAIN, SNUG_REFERENCE_EVAL};

static struct snug_data_source *source_of(struct snug_session *s, int k) {
    return k == 0 ? &s->job.setup.train : &s->job.setup.eval;
}

static size_t size_of(const struct snug_data_source *source) {
    return (size_t)(2 * source->rows) * sizeof *source->reference;
}

/* All that the values of these rows depend on: the reference's weights, the tokens, and how they are computed. */
static snug_status find_key(const struct snug_session *s, const struct snug_data_source *source, uint64_t model,
                            uint64_t *out) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_program *program = &s->training->program;
    const struct snug_quantized *form = &setup->config.quantized;
    char *text;
    RETURN_IF_ERROR(snug_format(s->ctx, &text, "%016" PRIx64 " %016" PRIx64 " %" PRId64 " %" PRId64 " %d %d %d %d %d",
                                model, snug_dataset_digest(source->dataset), source->rows, setup->max_length,
                                (int)program->compute, program->tf32, (int)s->job.plan.weights, (int)form->type,
                                form->nested));
    *out = XXH3_64bits(text, strlen(text));
    free(text);
    return SNUG_OK;
}

/* Whether the file has the values; why not: *problem, or NULL if there is no file. */
static bool read_values(const struct snug_folder *in, const char *name, uint64_t key,
                        const struct snug_data_source *source, snug_context *ctx, const char **problem) {
    struct header header;
    int fd = -1;
    *problem = NULL;
    if (!in->path || !snug_file_exists(in, name)) return false;
    *problem = "is damaged";
    const bool opened = snug_file_open(ctx, in, name, &fd) == SNUG_OK;
    const size_t size = size_of(source);
    bool good = opened && snug_read_at(fd, &header, sizeof header, 0) == (ssize_t)sizeof header &&
                memcmp(header.magic, magic, sizeof magic) == 0;
    if (good && header.key != key) { /* which has the number of rows, too */
        *problem = "is of another reference model, other data or another precision";
        good = false;
    }
    good = good && snug_read_at(fd, source->reference, size, sizeof header) == (ssize_t)size &&
           XXH3_64bits(source->reference, size) == header.digest;
    if (opened) close(fd);
    snug_clear_error(ctx);
    if (!good) memset(source->reference, 0, size);
    return good;
}

static snug_status write_values(const struct snug_session *s, const struct snug_folder *in, const char *name,
                                const struct snug_data_source *source) {
    struct header header = {.key = source->reference_key, .rows = (uint64_t)source->rows};
    struct snug_writer writer;
    memcpy(header.magic, magic, sizeof magic);
    header.digest = XXH3_64bits(source->reference, size_of(source));
    RETURN_IF_ERROR(snug_writer_open(s->ctx, in, name, &writer));
    snug_writer_put(&writer, &header, sizeof header);
    snug_writer_put(&writer, source->reference, size_of(source));
    return snug_writer_commit(s->ctx, &writer);
}

snug_status snug_reference_write(struct snug_session *s, struct snug_output *output) {
    for (int k = 0; k < 2; k++) {
        const struct snug_data_source *source = source_of(s, k);
        const bool has = snug_file_exists(&output->folder, names[k]) && !source->reference_stale;
        if (!source->reference || has) continue;
        RETURN_IF_ERROR(snug_output_begin(output, (const char *const[]){names[k], NULL}));
        RETURN_IF_ERROR(write_values(s, &output->folder, names[k], source));
        RETURN_IF_ERROR(snug_output_end(output));
    }
    return SNUG_OK;
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Rows in their order, in batches of at most as many as the program was planned for, of any lengths. */
struct scoring {
    struct snug_session *s;
    struct snug_run *run;
    const struct snug_data_source *source;
    struct snug_loader_options options;
    struct snug_loader_limits limits;
    struct snug_loader *loader;
    void *memory;
    double *sums;
};

static snug_status plan_scoring(struct scoring *c, const struct snug_data_pipeline *planned) {
    const struct snug_loader_limits *most = &planned->limits;
    c->options = planned->options;
    c->options.sampling = SNUG_SAMPLING_SEQUENTIAL;
    c->options.packs = NULL;
    c->options.pack_count = 0;
    c->options.accumulation = 1;
    c->options.independent = true;
    c->options.drop_last = c->options.in_turns = false;
    c->options.workers = 0;
    for (c->options.batch_size = most->sequences / 2; c->options.batch_size > 0; c->options.batch_size /= 2) {
        RETURN_IF_ERROR(snug_loader_limits(c->s->ctx, c->source->dataset, &c->options, 1, 0, &c->limits));
        if (c->limits.tokens <= most->tokens) return SNUG_OK;
    }
    return snug_fail(c->s->ctx, SNUG_E_INTERNAL, "%s: a row is larger than planned",
                     snug_dataset_path(c->source->dataset));
}

static snug_status open_scoring(struct scoring *c) {
    const int64_t bytes = snug_loader_bytes(&c->limits, &c->options);
    RETURN_IF_ERROR(snug_alloc(c->s->ctx, (size_t)c->limits.sequences, sizeof *c->sums, (void **)&c->sums));
    RETURN_IF_ERROR(snug_alloc(c->s->ctx, (size_t)bytes + 64, 1, &c->memory));
    void *aligned = (void *)(((uintptr_t)c->memory + 63) / 64 * 64);
    return snug_loader_create(c->s->ctx, c->source->dataset, &c->options, &c->limits, aligned, &c->loader);
}

static snug_status score_batch(struct scoring *c) {
    struct snug_session *s = c->s;
    struct snug_run *run = c->run;
    const int64_t row = run->batch->first_row, count = run->batch->sequences;
    run->loss_scale = 1;
    RETURN_IF_ERROR(snug_session_load(s, run));
    RETURN_IF_ERROR(snug_run_phase(run, s->job.setup.backend, SNUG_PHASE_FORWARD, NULL));
    RETURN_IF_ERROR(snug_run_scores(run, s->job.setup.backend, NULL));
    RETURN_IF_ERROR(snug_session_read(s, run, run->program->sums, c->sums, count * (int64_t)sizeof *c->sums));
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(c->sums[i]))
            return snug_fail(s->ctx, SNUG_E_NUMERIC,
                             "%s: row %lld: the reference model's log-probability is not finite: its values are too "
                             "large for %s",
                             snug_dataset_path(c->source->dataset), (long long)(row + i / 2),
                             snug_dtype_name(run->program->compute));
        c->source->reference[2 * row + i] = (float)-c->sums[i];
    }
    return SNUG_OK;
}

/* A rank without a batch in the last round: with ZeRO stage 3 the others need its shards of the weights. */
static snug_status attend(struct scoring *c) {
    struct snug_run run = *c->run;
    run.idle = true;
    run.batch = NULL;
    return snug_run_phase(&run, c->s->job.setup.backend, SNUG_PHASE_FORWARD, NULL);
}

/* Each value is of one rank, and 0 on the others. */
static snug_status share(struct scoring *c, const struct snug_process_group *group) {
    enum { TOGETHER = 1024 };
    int64_t words[TOGETHER]; /* the two floats of a row */
    for (int64_t row = 0; group && row < c->source->rows; row += TOGETHER) {
        const int64_t count = c->source->rows - row < TOGETHER ? c->source->rows - row : TOGETHER;
        memcpy(words, c->source->reference + 2 * row, (size_t)count * sizeof *words);
        RETURN_IF_ERROR(snug_group_sum(c->s->ctx, group, words, count));
        memcpy(c->source->reference + 2 * row, words, (size_t)count * sizeof *words);
    }
    return SNUG_OK;
}

/* The ranks take turns with the batches. One of them cannot stop alone. */
static snug_status score_batches(struct scoring *c, const snug_callbacks *callbacks) {
    const struct snug_process_group *group = c->s->job.setup.args->group;
    const int64_t batches = snug_loader_batches(c->source->rows, &c->options);
    RETURN_IF_ERROR(snug_loader_begin_epoch(c->loader, 0, 0));
    for (int64_t done = 0; done < batches; done += snug_group_size(group)) {
        RETURN_IF_ERROR(snug_group_check(c->s->ctx, group));
        if (!group && callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user))
            return snug_fail(c->s->ctx, SNUG_E_INTERRUPTED,
                             "interrupted after %lld of %lld batches of the reference model", (long long)done,
                             (long long)batches);
        const snug_status status = snug_loader_next(c->loader, &c->run->batch);
        if (status != SNUG_OK && status != SNUG_END) return status; /* END: the last round's rest */
        RETURN_IF_ERROR(status == SNUG_OK ? score_batch(c) : attend(c));
    }
    return share(c, group);
}

static snug_status score(struct snug_session *s, int k, const snug_callbacks *callbacks) {
    const struct snug_process_group *group = s->job.setup.args->group;
    const bool train = k == 0;
    struct scoring c = {.s = s, .run = train ? &s->train_run : &s->eval_run, .source = source_of(s, k)};
    const double begun = snug_seconds();
    snug_status status = plan_scoring(&c, train ? &s->training->pipeline : &s->evaluation->pipeline);
    if (status == SNUG_OK) status = open_scoring(&c);
    if (status == SNUG_OK) status = score_batches(&c, callbacks);
    snug_loader_destroy(c.loader);
    free(c.memory);
    free(c.sums);
    c.run->batch = NULL;
    RETURN_IF_ERROR(status);
    if (snug_group_rank(group) > 0) return SNUG_OK;
    snug_log(s->ctx, SNUG_LOG_INFO, "%s: the reference model's log-probabilities of %lld rows took %.1f s",
             snug_dataset_path(c.source->dataset), (long long)c.source->rows, snug_seconds() - begun);
    return SNUG_OK;
}

/* ---- another model ----------------------------------------------------------------------------------------------- */

static snug_status open_model(struct snug_session *s, struct snug_folder *out) {
    const struct snug_setup *setup = &s->job.setup;
    const struct snug_hub_place place = snug_args_place(setup->args);
    const char *name = setup->args->ref_model_name_or_path;
    struct snug_config config;
    char *path;
    *out = (struct snug_folder){0};
    if (!setup->model.path)
        return snug_fail(
            s->ctx, SNUG_E_USAGE,
            "--ref_model_name_or_path %s needs --model_name_or_path: a model from scratch has no reference", name);
    if (setup->adapter.path)
        return snug_fail(s->ctx, SNUG_E_UNSUPPORTED,
                         "--ref_model_name_or_path %s: %s has adapters that are trained further, and whose model is "
                         "the reference: leave it out, or merge them first (snug merge)",
                         name, setup->adapter.path);
    RETURN_IF_ERROR(snug_model_locate(s->ctx, &place, name, &path));
    snug_status status = snug_folder_open(s->ctx, NULL, path, out);
    free(path);
    RETURN_IF_ERROR(status);
    RETURN_IF_ERROR(snug_config_find(s->ctx, &place, name, &config));
    status = snug_identity_compare_models(s->ctx, name, &setup->config, &config);
    snug_config_free(&config);
    return status;
}

/* The digest of the reference: of its folder, or of what the session began with. */
static snug_status digest_of(struct snug_session *s, const struct snug_folder *other, uint64_t *out) {
    const struct snug_setup *setup = &s->job.setup;
    uint64_t adapter = 0;
    *out = (uint64_t)setup->args->seed;
    if (other->path) return snug_weights_digest(s->ctx, other, out);
    if (setup->model.path) RETURN_IF_ERROR(snug_weights_digest(s->ctx, &setup->model, out));
    if (!setup->adapter.path) return SNUG_OK;
    RETURN_IF_ERROR(snug_adapter_digest(s->ctx, &setup->adapter, &adapter));
    *out ^= adapter;
    return SNUG_OK;
}

static snug_status compute(struct snug_session *s, const bool missing[2], const struct snug_folder *other,
                           const snug_callbacks *callbacks) {
    snug_status status = SNUG_OK;
    if (other->path) RETURN_IF_ERROR(snug_session_load_base(s, other));
    for (int k = 0; k < 2 && status == SNUG_OK; k++)
        if (missing[k]) status = score(s, k, callbacks);
    if (other->path && status == SNUG_OK) status = snug_session_load_base(s, &s->job.setup.model);
    return status;
}

/* Takes the values of the file, which are then everywhere those of rank 0. */
static snug_status take_file(struct snug_session *s, int k, const struct snug_folder *in, bool *missing) {
    const struct snug_process_group *group = s->job.setup.args->group;
    struct snug_data_source *source = source_of(s, k);
    const char *problem = NULL;
    if (snug_group_rank(group) == 0) {
        *missing = !read_values(in, names[k], source->reference_key, source, s->ctx, &problem);
        if (!*missing)
            snug_log(s->ctx, SNUG_LOG_INFO, "%s/%s has the reference model's log-probabilities", in->path, names[k]);
        source->reference_stale = *missing && problem;
        if (source->reference_stale)
            snug_log(s->ctx, SNUG_LOG_WARNING, "%s/%s %s: it is computed again", in->path, names[k], problem);
    }
    RETURN_IF_ERROR(snug_group_broadcast(s->ctx, group, missing, sizeof *missing));
    if (*missing) return SNUG_OK;
    return snug_group_broadcast(s->ctx, group, source->reference, (int64_t)size_of(source));
}

static snug_status find(struct snug_session *s, const snug_callbacks *callbacks, const struct snug_folder *in,
                        const struct snug_folder *other) {
    bool missing[2] = {false};
    uint64_t model;
    RETURN_IF_ERROR(digest_of(s, other, &model));
    for (int k = 0; k < 2; k++) {
        struct snug_data_source *source = source_of(s, k);
        if (!source->reference) continue;
        RETURN_IF_ERROR(find_key(s, source, model, &source->reference_key));
        RETURN_IF_ERROR(take_file(s, k, in, &missing[k]));
    }
    return missing[0] || missing[1] ? compute(s, missing, other, callbacks) : SNUG_OK;
}

snug_status snug_reference_find(struct snug_session *s, const snug_callbacks *callbacks, const struct snug_folder *in) {
    struct snug_folder other = {0};
    snug_status status = SNUG_OK;
    if (!s->job.setup.train.reference) return SNUG_OK;
    if (s->job.setup.args->ref_model_name_or_path) status = open_model(s, &other);
    if (status == SNUG_OK) status = find(s, callbacks, in, &other);
    snug_folder_close(&other);
    return status;
}
