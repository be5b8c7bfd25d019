/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the rates. Small BERTs, DeBERTas and Llamas of several widths run on batches of several shapes. Each
 * operation is timed inside its program, so that the caches are in the state that the previous operations leave. A
 * model with three constants is then fitted to each kind (least squares of the relative errors).
 */
#include "measure/rates.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/philox.h"
#include "io/folder.h"
#include "model/family.h"
#include "optim/loss_scale.h"
#include "run/runner.h"

/* ---- the law -------------------------------------------------------------------------------------------------- */

enum { TERMS = 3 };

/* Solves the equations of the terms in mask; false if they do not determine them. */
static bool solve(const double normal[TERMS][TERMS], const double right[TERMS], int mask, double x[TERMS]) {
    double a[TERMS][TERMS + 1];
    int terms[TERMS], count = 0;
    for (int i = 0; i < TERMS; i++) {
        x[i] = 0;
        if (mask >> i & 1) terms[count++] = i;
    }
    for (int i = 0; i < count; i++) {
        /* cppcheck-suppress uninitvar ; the first count of them are not */
        for (int j = 0; j < count; j++) a[i][j] = normal[terms[i]][terms[j]];
        a[i][count] = right[terms[i]];
    }
    for (int k = 0; k < count; k++) { /* symmetric and positive: no pivoting */
        if (!(a[k][k] > 1e-9 * normal[terms[k]][terms[k]])) return false;
        for (int i = k + 1; i < count; i++)
            for (int j = count; j >= k; j--) a[i][j] -= a[i][k] / a[k][k] * a[k][j];
    }
    for (int k = count; k-- > 0;) {
        double sum = a[k][count];
        for (int j = k + 1; j < count; j++) sum -= a[k][j] * x[terms[j]];
        x[terms[k]] = sum / a[k][k];
    }
    return true;
}

/* How much a sample counts: a step is a sum, to which the error of a long operation matters more. Not in proportion,
 * which would leave the time of a call to the longest ones. */
static double weight_of(const struct snug_rate_sample *sample) { return sqrt(sample->seconds); }

/* The mean square of the relative errors, and the weighted one. */
static double error_of(const double x[TERMS], const struct snug_rate_sample samples[], size_t count, double *weighted) {
    double sum = 0, weights = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        const struct snug_rate_sample *s = &samples[i];
        const double off = (x[0] * s->calls + x[1] * s->cost.flops + x[2] * s->cost.bytes) / s->seconds - 1;
        sum += weight_of(s) * off * off;
        weights += weight_of(s);
        all += off * off;
    }
    *weighted = sum / weights;
    return all / (double)count;
}

snug_status snug_rates_add(struct snug_rates *rates, struct snug_rate rate) {
    RETURN_IF_ERROR(snug_grow(rates->ctx, (void **)&rates->items, &rates->capacity, rates->count + 1, sizeof rate));
    rates->items[rates->count++] = rate;
    return SNUG_OK;
}

/* No term may be negative: the subset of terms with the least error. */
snug_status snug_rates_fit(struct snug_rates *rates, struct snug_rate rate, const struct snug_rate_sample samples[],
                           size_t count) {
    double normal[TERMS][TERMS] = {{0}}, right[TERMS] = {0};
    for (size_t i = 0; i < count; i++) {
        const struct snug_rate_sample *s = &samples[i];
        const double row[TERMS] = {s->calls / s->seconds, s->cost.flops / s->seconds, s->cost.bytes / s->seconds};
        for (int j = 0; j < TERMS; j++) {
            right[j] += weight_of(s) * row[j];
            for (int k = 0; k < TERMS; k++) normal[j][k] += weight_of(s) * row[j] * row[k];
        }
    }
    double least = INFINITY;
    for (int mask = 1; mask < 1 << TERMS; mask++) {
        double x[TERMS];
        if (!solve(normal, right, mask, x) || x[0] < 0 || x[1] < 0 || x[2] < 0) continue;
        double weighted;
        const double error = error_of(x, samples, count, &weighted);
        if (weighted >= least) continue;
        least = weighted;
        rate.call = x[0];
        rate.flop = x[1];
        rate.byte = x[2];
        rate.error = sqrt(error);
    }
    if (least == INFINITY) return SNUG_OK; /* these shapes do not measure it */
    rate.samples = (int32_t)count;
    return snug_rates_add(rates, rate);
}

void snug_rates_free(struct snug_rates *rates) {
    free(rates->items);
    *rates = (struct snug_rates){0};
}

/* ---- running -------------------------------------------------------------------------------------------------- */

/* Widths from short rows to long rows; lengths from a few words to full length; batches that fill a tile and that do
 * not. */
struct shape {
    int64_t hidden, heads, sequences, length;
    enum {
        PLAIN = 1,      /* also without dropout, for the few models without it */
        STATES = 2,     /* also with every other optimizer */
        MLM = 4,        /* masked LM: a loss over the vocabulary at every seventh token */
        CAUSAL = 8,     /* a decoder, in which up to four heads share a key; no dropout, a loss at each token */
        POSITIONS = 16, /* DeBERTa: attention to position keys and queries */
    } kinds;
};
/* Small, because machines with little memory run them too. */
static const struct shape host_shapes[] = {
    {128, 2, 1, 16, PLAIN | STATES},
    {256, 8, 4, 32, 0},
    {256, 4, 32, 32, PLAIN | STATES},
    {256, 4, 2, 512, 0},
    {384, 12, 64, 8, PLAIN},
    {384, 12, 32, 24, 0},
    {384, 12, 6, 128, PLAIN},
    {512, 8, 1, 64, STATES},
    {512, 8, 8, 128, 0},
    {384, 12, 4, 128, MLM},
    {256, 4, 8, 32, CAUSAL | PLAIN},
    {512, 8, 2, 256, CAUSAL},
    {256, 4, 8, 32, POSITIONS},
    {384, 6, 4, 128, POSITIONS},
};
/* Large enough that the constant time of a call does not hide the rates of what a GPU is used for. The first is the
   smallest: find_gap(). */
static const struct shape device_shapes[] = {
    {256, 4, 32, 32, PLAIN | STATES},
    {384, 12, 64, 64, 0},
    {768, 12, 8, 128, PLAIN | STATES},
    {768, 12, 32, 512, 0},
    {1024, 16, 4, 512, 0},
    {1024, 16, 32, 512, PLAIN | STATES},
    {1024, 16, 64, 128, PLAIN},
    {2048, 32, 8, 512, STATES},
    {2560, 20, 4, 512, 0},
    {1024, 16, 128, 512, 0},
    {768, 12, 32, 128, MLM},
    {1024, 16, 8, 256, CAUSAL | PLAIN},
    {1024, 8, 16, 1024, CAUSAL},
    {2048, 32, 4, 2048, CAUSAL | PLAIN},
    {4096, 32, 2, 2048, CAUSAL},
    {768, 12, 32, 128, POSITIONS},
    {768, 12, 16, 512, POSITIONS},
};
/* From few to many FLOPs: a probe measures as many as it has time for. */
static const struct shape probe_shapes[] = {
    {128, 2, 2, 16, 0}, {128, 4, 16, 32, 0}, {256, 4, 8, 64, 0}, {384, 12, 6, 128, 0}, {512, 8, 8, 128, 0},
};
enum {
    HOST_SHAPES = sizeof host_shapes / sizeof *host_shapes,
    DEVICE_SHAPES = sizeof device_shapes / sizeof *device_shapes,
    PROBE_SHAPES = sizeof probe_shapes / sizeof *probe_shapes,
    VOCABULARY = 2048,
    PROBE_VOCABULARY = 512,
    TOKENS_PER_LABEL = 7, /* about as many as masked LM's 15 % */
    REPETITIONS = 3,
    /* Steps whose phases run as a whole: the first runs operation by operation, the second captures them; for so many
       milliseconds, after which the GPU has the clock rate of one that works. */
    LEAST_STEPS = 4,
    MOST_STEPS = 100,
    LOADED = 100,
    /* A GPU updates all weights in one launch, in which those of one layer are too few to keep it busy: so many layers
       that there are about so many weights. */
    UPDATED_WEIGHTS = 150 << 20,
    MOST_LAYERS = 12,
    HOST_SWEEP = 32 << 20,
    /* Writing it takes longer than issuing the operations of a phase, so that these follow each other at once. */
    DEVICE_SWEEP = 1 << 30,
    DEVICE_SWEEPS = 4,
};
#define SHORTEST 1e-8     /* the resolution of a GPU's clock */
#define PROBE_SECONDS 0.2 /* a probe begins no other shape after them */

struct sample {
    enum snug_op_kind kind;
    int32_t types;
    bool dropout;
    double most; /* bytes of the largest of its operations, which has these types */
    struct snug_rate_sample one;
};

struct bench {
    snug_context *ctx;
    const struct snug_backend *backend;
    const struct shape *shapes;
    size_t shape_count;
    int32_t vocabulary;
    int64_t most, sweep; /* bytes: the largest arena, 0 without limit; of the tensor that flushes caches */
    char *cache;         /* folder for a GPU's matmul algorithms; NULL if there is none */
    int threads;
    double gap; /* what timestamps around an operation add to its time */
    struct sample *samples;
    size_t count, capacity;
};

/* Types of a program's values. */
struct types {
    enum snug_dtype weights, compute;
    bool tf32;
};

/* What a trial measures: all its operations, its updates, or norms and updates in launches of their own. */
enum measured { ALL, UPDATES, ALONE };

struct trial {
    enum measured measured;
    struct snug_config config;
    struct snug_optimizer optimizer;
    struct snug_program program;
    struct snug_runner runner;
    struct snug_batch batch;
    struct snug_run run;
    int32_t sweep;    /* a tensor larger than any core's cache */
    int32_t *numbers; /* the batch's arrays */
    struct snug_op_times times;
    double scale[SNUG_PHASE_COUNT]; /* of a whole phase's seconds to the sum of its operations' */
    double *best;                   /* by operation: seconds of its fastest run */
};

static bool on_device(const struct bench *bench) { return snug_backend_is_device(bench->backend); }

/* Every how many tokens there is a loss. */
static int64_t stride_of(const struct shape *shape) {
    return shape->kinds & CAUSAL ? 1 : shape->kinds & MLM ? TOKENS_PER_LABEL : shape->length;
}

static int64_t rows_of(const struct shape *shape) { return shape->sequences * shape->length / stride_of(shape); }

static snug_status make_config(struct bench *bench, const struct shape *shape, bool dropout, int32_t layers,
                               struct snug_config *out) {
    static const char encoder[] = "{%s%s\"], \"max_position_embeddings\": 512, \"hidden_dropout_prob\": %g,"
                                  " \"attention_probs_dropout_prob\": %g, ";
    static const char bert[] = "\"model_type\": \"bert\", \"architectures\": [\"BertFor";
    static const char deberta[] =
        "\"model_type\": \"deberta-v2\", \"relative_attention\": true, \"position_buckets\": 256,"
        " \"pos_att_type\": [\"c2p\", \"p2c\"], \"share_att_key\": true,"
        " \"norm_rel_ebd\": \"layer_norm\", \"position_biased_input\": false,"
        " \"architectures\": [\"DebertaV2For";
    static const char decoder[] = "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"],"
                                  " \"tie_word_embeddings\": true, \"num_key_value_heads\": %" PRId64 ", ";
    const double p = dropout ? 0.1 : 0;
    char text[640];
    int used = shape->kinds & CAUSAL ? snprintf(text, sizeof text, decoder, (shape->heads + 3) / 4)
                                     : snprintf(text, sizeof text, encoder, shape->kinds & POSITIONS ? deberta : bert,
                                                shape->kinds & MLM ? "MaskedLM" : "SequenceClassification", p, p);
    snprintf(text + used, sizeof text - (size_t)used,
             "\"hidden_size\": %" PRId64 ", \"num_attention_heads\": %" PRId64 ", \"intermediate_size\": %" PRId64
             ", \"num_hidden_layers\": %" PRId32 ", \"vocab_size\": %" PRId32 ", \"pad_token_id\": null}",
             shape->hidden, shape->heads, 4 * shape->hidden, layers, bench->vocabulary);
    return snug_config_parse(bench->ctx, "a model for rates", text, out);
}

static snug_status build_trial(struct bench *bench, const struct shape *shape, struct trial *t,
                               const struct types *types, bool dropout, int32_t layers) {
    struct snug_program *program = &t->program;
    RETURN_IF_ERROR(make_config(bench, shape, dropout, layers, &t->config));
    snug_program_init(program, bench->ctx);
    program->compute = types->compute;
    program->tf32 = types->tf32;
    program->longest = shape->length;
    program->capacity[SNUG_EXTENT_TOKENS] = shape->sequences * shape->length;
    program->capacity[SNUG_EXTENT_SEQUENCES] = shape->sequences;
    program->capacity[SNUG_EXTENT_ROWS] = rows_of(shape);
    program->low_logits = bench->backend->low_logits;
    RETURN_IF_ERROR(snug_build_model(program, &t->config, true, 0));
    /* Lazy rows; the other half of the shapes, which a probe does not have, updates whole tables. */
    const int64_t lazy = bench->backend->lazy_rows ? 256 : 0;
    const struct snug_methods methods = {
        .optimizer = &t->optimizer,
        .weights = types->weights,
        .micro_batches = 1,
        .update_in_backward = t->measured == ALONE,
        .lazy_steps = (dropout || bench->most) && t->measured != ALONE ? lazy : 0,
    };
    RETURN_IF_ERROR(snug_stages(program, &methods));
    return snug_program_tensor(program,
                               (struct snug_tensor){.memory_class = SNUG_MEMORY_TEMPORARY,
                                                    .rows = 1,
                                                    .cols = bench->sweep / 4,
                                                    .layer = -1,
                                                    .persistent = true},
                               &t->sweep, "sweep");
}

/* Each token has a different id, as long as there are enough ids. */
static snug_status make_batch(struct bench *bench, const struct shape *shape, struct trial *t) {
    const int64_t tokens = shape->sequences * shape->length, rows = rows_of(shape);
    RETURN_IF_ERROR(snug_alloc(bench->ctx, (size_t)(6 * tokens + shape->sequences + 1 + 2 * rows), sizeof(int32_t),
                               (void **)&t->numbers));
    int32_t *at = t->numbers;
    struct snug_batch *batch = &t->batch;
    int32_t **columns[] = {&batch->ids,          &batch->types,  &batch->positions,
                           &batch->position_ids, &batch->sample, &batch->by_id};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++, at += tokens) *columns[i] = at;
    batch->offsets = at;
    batch->loss_positions = at + shape->sequences + 1;
    batch->labels = batch->loss_positions + rows;
    batch->sequences = shape->sequences;
    batch->rows = batch->items = batch->items_in_step = rows;
    batch->last_in_step = true;
    batch->tokens = tokens;
    batch->longest = shape->length;
    for (int64_t i = 0; i < tokens; i++) {
        batch->ids[i] = (int32_t)(i % bench->vocabulary);
        batch->positions[i] = batch->position_ids[i] = (int32_t)(i % shape->length);
        batch->sample[i] = (int32_t)(i / shape->length);
        batch->by_id[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < shape->sequences; i++) batch->offsets[i + 1] = (int32_t)((i + 1) * shape->length);
    for (int64_t i = 0; i < rows; i++) {
        batch->loss_positions[i] = (int32_t)(i * stride_of(shape));
        batch->labels[i] = (int32_t)(i % 2);
    }
    return SNUG_OK;
}

/* Small values of both signs, so that no result overflows, vanishes or becomes subnormal; random ones, because a GPU
   needs less power for repeated values, and is faster then. */
static snug_status fill_weights(struct trial *t) {
    enum { PART = 1 << 16 };
    float *values;
    RETURN_IF_ERROR(snug_alloc(t->program.ctx, PART, sizeof *values, (void **)&values));
    for (uint32_t k = 0; k < PART; k++) values[k] = 0.1f * (snug_philox_uniform(k * 2654435761u) - 0.5f);
    snug_status status = SNUG_OK;
    for (size_t i = 1; i < t->program.tensor_count; i++) {
        const struct snug_tensor *tensor = &t->program.tensors[i];
        const int64_t count = tensor->rows * tensor->cols;
        if (tensor->memory_class != SNUG_MEMORY_WEIGHTS || tensor->dtype != SNUG_F32) continue;
        for (int64_t k = 0; k < count && status == SNUG_OK; k += PART)
            status = snug_tensor_write(&t->program, &t->runner.memory, (int32_t)i, k,
                                       count - k < PART ? count - k : PART, values);
    }
    free(values);
    const float scale[SNUG_SCALE_VALUES] = {1}; /* with 0 every step would be skipped, and with it the updates */
    if (status == SNUG_OK && t->program.scaler)
        status = snug_tensor_write(&t->program, &t->runner.memory, t->program.scaler, 0, SNUG_SCALE_VALUES, scale);
    return status;
}

/* Flushes the caches between phases: in a deep model too, the results of an earlier phase are not in a core's cache. */
static snug_status sweep_caches(struct bench *bench, struct trial *t) {
    const struct snug_op fill = {.kind = SNUG_OP_FILL, .fill = {.x = t->sweep}};
    const int sweeps = on_device(bench) ? DEVICE_SWEEPS : 1;
    for (int i = 0; i < sweeps; i++) RETURN_IF_ERROR(snug_run_one(&t->run, bench->backend, &fill));
    return SNUG_OK;
}

static snug_status run_phases(struct bench *bench, struct trial *t) {
    struct snug_profile profile = {.times = &t->times};
    const size_t count = t->program.op_count;
    memset(t->times.seconds, 0, count * sizeof *t->times.seconds);
    memset(t->times.calls, 0, count * sizeof *t->times.calls);
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++) {
        RETURN_IF_ERROR(sweep_caches(bench, t));
        RETURN_IF_ERROR(snug_run_phase(&t->run, bench->backend, (enum snug_phase)phase, &profile));
    }
    return snug_op_times_collect(&t->run, bench->backend, &t->times);
}

/* The seconds of phases that run as a whole. */
static snug_status time_phases(struct bench *bench, struct trial *t, int first, int last,
                               double seconds[SNUG_PHASE_COUNT]) {
    struct snug_timestamps *stamps = NULL;
    double took[SNUG_PHASE_COUNT + 1] = {0};
    size_t count = 0;
    snug_status status = bench->backend->record_timestamp(&t->run, &stamps, count++);
    for (int phase = first; phase <= last && status == SNUG_OK; phase++) {
        status = snug_run_phase(&t->run, bench->backend, (enum snug_phase)phase, NULL);
        if (status == SNUG_OK) status = bench->backend->record_timestamp(&t->run, &stamps, count++);
    }
    if (status == SNUG_OK) status = bench->backend->read_timestamps(&t->run, stamps, took, count);
    bench->backend->free_timestamps(stamps);
    for (int phase = first; phase <= last; phase++) seconds[phase] = took[1 + phase - first];
    return status;
}

/* As time_phases(), when the GPU has the clock rate of one that works. */
static snug_status time_loaded(struct bench *bench, struct trial *t, int first, int last,
                               double seconds[SNUG_PHASE_COUNT]) {
    double loaded = 0;
    for (int i = 0; i < LEAST_STEPS || (i < MOST_STEPS && loaded < 1e-3 * LOADED); i++) {
        RETURN_IF_ERROR(time_phases(bench, t, first, last, seconds));
        for (int phase = first; phase <= last; phase++) loaded += seconds[phase];
    }
    return SNUG_OK;
}

/* Operations between timestamps start later than within a captured phase: by how much follows from the time of a whole
   step of the smallest shape. In whole phases of a larger one the GPU's clock rate is that of a GPU that works, which
   is lower, and so the seconds of its operations are scaled. Forward, which needs the most power, also runs alone, as
   in inference. */
static snug_status find_gap(struct bench *bench, struct trial *t) {
    double whole[SNUG_PHASE_COUNT], forward[SNUG_PHASE_COUNT], sum[SNUG_PHASE_COUNT] = {0},
                                                               calls[SNUG_PHASE_COUNT] = {0};
    double all = 0, sums = 0, count = 0;
    for (int i = 0; i < 2; i++) RETURN_IF_ERROR(run_phases(bench, t)); /* the first one loads kernels */
    for (size_t i = 0; i < t->program.op_count; i++) {
        sum[t->program.ops[i].phase] += t->times.seconds[i];
        calls[t->program.ops[i].phase] += (double)t->times.calls[i];
    }
    t->run.one_by_one = false;
    RETURN_IF_ERROR(time_loaded(bench, t, SNUG_PHASE_FORWARD, SNUG_PHASE_COUNT - 1, whole));
    RETURN_IF_ERROR(time_loaded(bench, t, SNUG_PHASE_FORWARD, SNUG_PHASE_FORWARD, forward));
    t->run.one_by_one = true;
    for (int phase = SNUG_PHASE_FORWARD; phase < SNUG_PHASE_COUNT; phase++) {
        all += whole[phase];
        sums += sum[phase];
        count += calls[phase];
    }
    whole[SNUG_PHASE_FORWARD] = forward[SNUG_PHASE_FORWARD];
    if (bench->gap == 0 && sums > all) bench->gap = (sums - all) / count;
    for (int phase = SNUG_PHASE_FORWARD; phase < SNUG_PHASE_COUNT; phase++) {
        const double gaps = calls[phase] * bench->gap;
        if (sum[phase] > 2 * gaps) t->scale[phase] = whole[phase] / (sum[phase] - gaps);
    }
    return SNUG_OK;
}

static snug_status time_operations(struct bench *bench, struct trial *t) {
    struct snug_run *run = &t->run;
    *run = snug_runner_run(&t->runner, 0);
    run->batch = &t->batch;
    run->rows = t->batch.rows;
    run->loss_scale = 1.0f / (float)t->batch.items;
    run->learning_rate = 1e-5f;
    run->max_grad_norm = 1;
    run->optimizer = &t->optimizer;
    run->one_by_one = true;
    if (bench->backend->autotunes) {
        struct snug_sizes sizes = {0};
        snug_sizes_add(&sizes, t->batch.tokens);
        RETURN_IF_ERROR(bench->backend->autotune(run, &sizes, bench->cache));
        run->batch = &t->batch;
    }
    if (t->measured == ALL) RETURN_IF_ERROR(fill_weights(t)); /* an update takes as long with zeros */
    RETURN_IF_ERROR(bench->backend->load(run));
    RETURN_IF_ERROR(snug_op_times_init(run, bench->backend, &t->times));
    RETURN_IF_ERROR(snug_alloc(bench->ctx, t->program.op_count, sizeof *t->best, (void **)&t->best));
    if (on_device(bench)) RETURN_IF_ERROR(find_gap(bench, t));
    for (int repetition = 0; repetition < REPETITIONS; repetition++, run->step++) {
        RETURN_IF_ERROR(run_phases(bench, t));
        for (size_t i = 0; i < t->program.op_count; i++) {
            if (repetition == 0 || t->times.seconds[i] < t->best[i]) t->best[i] = t->times.seconds[i];
        }
    }
    return SNUG_OK;
}

/* A GPU does all operations of an elementwise kind, and all updates, of any types, in one launch, which counts as the
   first one's: they are one measurement. */
static struct sample *same_launch(struct bench *bench, size_t first, const struct sample *like) {
    const unsigned together = SNUG_OP_ELEMENTS | SNUG_OP_UPDATES;
    const bool launched = on_device(bench) && snug_op_info(like->kind)->flags & together && !(like->types & SNUG_ALONE);
    const bool updates = snug_op_info(like->kind)->flags & SNUG_OP_UPDATES;
    for (size_t i = first; launched && i < bench->count; i++) {
        struct sample *sample = &bench->samples[i];
        if (sample->kind == like->kind && (updates || sample->types == like->types)) return sample;
    }
    return NULL;
}

static snug_status collect(struct bench *bench, const struct shape *shape, const struct trial *t) {
    const size_t first = bench->count;
    const int64_t tokens = shape->sequences * shape->length;
    for (size_t i = 0; i < t->program.op_count; i++) {
        const struct snug_op *op = &t->program.ops[i];
        if (t->measured == UPDATES && !snug_op_is(op, SNUG_OP_UPDATES)) continue;
        if (t->measured == ALONE && !op->alone) continue;
        struct sample sample = {
            .kind = op->kind,
            .types = snug_operand_types(&t->program, op),
            .dropout = op->p > 0,
            .one = {.calls = 1,
                    .seconds = fmax((t->best[i] - bench->gap) * t->scale[op->phase], SHORTEST),
                    .cost = snug_op_cost(&t->program, op, (double)tokens, (double)shape->sequences,
                                         (double)rows_of(shape))},
        };
        sample.most = sample.one.cost.bytes;
        struct sample *same = same_launch(bench, first, &sample);
        if (same) {
            if (sample.most > same->most) same->types = sample.types;
            same->most = fmax(same->most, sample.most);
            same->one.calls++;
            same->one.seconds += sample.one.seconds;
            same->one.cost.flops += sample.one.cost.flops;
            same->one.cost.bytes += sample.one.cost.bytes;
            continue;
        }
        RETURN_IF_ERROR(snug_grow(bench->ctx, (void **)&bench->samples, &bench->capacity, bench->count + 1,
                                  sizeof *bench->samples));
        bench->samples[bench->count++] = sample;
    }
    return SNUG_OK;
}

/* As many layers as a GPU needs for the rate of an update. */
static int32_t layers_to_update(const struct bench *bench, const struct shape *shape) {
    const int64_t layers = UPDATED_WEIGHTS / (12 * shape->hidden * shape->hidden);
    if (!on_device(bench)) return 1;
    return layers < MOST_LAYERS ? (int32_t)layers : MOST_LAYERS;
}

/* SNUG_END: it takes more memory than there is for it. */
static snug_status start(struct bench *bench, struct trial *t) {
    RETURN_IF_ERROR(snug_runner_open_one(bench->ctx, bench->backend, bench->threads, &t->program, 0, &t->runner));
    if (bench->most && t->runner.layout.arena > bench->most) return SNUG_END;
    return snug_runner_allocate(&t->runner, NULL);
}

static snug_status run_trial(struct bench *bench, const struct shape *shape, struct trial *t, const struct types *types,
                             bool dropout) {
    const int32_t layers = t->measured == UPDATES ? layers_to_update(bench, shape) : 1;
    for (int phase = 0; phase < SNUG_PHASE_COUNT; phase++) t->scale[phase] = 1;
    RETURN_IF_ERROR(build_trial(bench, shape, t, types, dropout, layers));
    RETURN_IF_ERROR(make_batch(bench, shape, t));
    RETURN_IF_ERROR(start(bench, t));
    return time_operations(bench, t);
}

static void close_trial(struct bench *bench, struct trial *t) {
    snug_op_times_free(bench->backend, &t->times);
    snug_runner_close(&t->runner);
    snug_program_free(&t->program);
    snug_config_free(&t->config);
    free(t->numbers);
    free(t->best);
}

static snug_status measure_shape(struct bench *bench, const struct shape *shape,
                                 const struct snug_optimizer_info *optimizer, const struct types *types, bool dropout,
                                 enum measured measured) {
    struct trial trial = {.measured = measured};
    struct shape short_batch = *shape; /* of a GPU's updates, to which the batch makes no difference */
    short_batch.sequences = 1;
    short_batch.length = 32;
    if (on_device(bench) && measured != ALL) shape = &short_batch;
    RETURN_IF_ERROR(snug_optimizer_parse(bench->ctx, optimizer->names[0].optim, optimizer->measured, 0.9, 0.999, 1e-8,
                                         0, &trial.optimizer));
    snug_status status = run_trial(bench, shape, &trial, types, dropout);
    if (status == SNUG_OK) status = collect(bench, shape, &trial);
    close_trial(bench, &trial);
    /* A GPU with less memory does without the largest shapes. */
    if (on_device(bench) && status == SNUG_E_MEMORY && bench->count) {
        snug_clear_error(bench->ctx);
        return SNUG_OK;
    }
    return status;
}

/* The updates of all optimizers: of the first one, only what other trials do not measure. */
static snug_status measure_updates(struct bench *bench, const struct shape *shape, const struct types *types) {
    for (int i = 0; snug_optimizers[i]; i++) {
        if (i > 0) RETURN_IF_ERROR(measure_shape(bench, shape, snug_optimizers[i], types, true, UPDATES));
        if (on_device(bench)) RETURN_IF_ERROR(measure_shape(bench, shape, snug_optimizers[i], types, true, ALONE));
    }
    return SNUG_OK;
}

/* How many of the types below a machine has. */
static int count_types(const struct bench *bench) {
    if (bench->backend->lacks_bf16) return 3;
    return on_device(bench) ? 5 : snug_backend_cpu_fast_bf16() ? 4 : 2;
}

/* Matmuls in fp32 and, if this machine has fast ones, in 16 bits; with weights of both types. */
static snug_status measure_all(struct bench *bench) {
    const enum snug_dtype half = bench->backend->lacks_bf16 ? SNUG_F16 : SNUG_BF16;
    const struct types types[] = {
        {SNUG_F32, SNUG_F32, false},   {SNUG_BF16, SNUG_F32, false}, {SNUG_F32, half, false},
        {SNUG_BF16, SNUG_BF16, false}, {SNUG_F32, SNUG_F32, true}, /* a GPU's alone */
    };
    const int count = count_types(bench);
    for (int type = 0; type < count; type++)
        for (size_t i = 0; i < bench->shape_count; i++) {
            const struct shape *shape = &bench->shapes[i];
            const bool low = types[type].weights == SNUG_BF16, fp32 = types[type].compute == SNUG_F32;
            /* With bf16 weights only the operations that read or write them are different, with TF32 only matmuls. */
            const bool most = low || types[type].tf32;
            if (most && !(shape->kinds & (PLAIN | STATES))) continue;
            const bool causal = shape->kinds & CAUSAL;
            for (int dropout = causal || (shape->kinds & PLAIN && !low) ? 0 : 1; dropout < (causal ? 1 : 2); dropout++)
                RETURN_IF_ERROR(measure_shape(bench, shape, snug_optimizers[0], &types[type], dropout, ALL));
            if (shape->kinds & STATES && fp32 && !types[type].tf32)
                RETURN_IF_ERROR(measure_updates(bench, shape, &types[type]));
        }
    return SNUG_OK;
}

/* A GPU needs them for --offload_dir only, so they may be missing: snug_estimate_parts() then refuses such a plan. */
static snug_status measure_disk(snug_context *ctx, struct bench *bench, struct snug_rates *rates) {
    const snug_status status = snug_rates_measure_disk(bench->ctx, NULL, rates);
    if (status == SNUG_OK || !on_device(bench)) return status;
    snug_log(ctx, SNUG_LOG_WARNING, "the rates of copies from and to a disk are unknown: %s",
             snug_context_message(bench->ctx));
    snug_clear_error(bench->ctx);
    return SNUG_OK;
}

/* ---- all rates ------------------------------------------------------------------------------------------------ */

static snug_status fit_all(struct bench *bench, struct snug_rates *rates) {
    struct snug_rate_sample *chosen;
    RETURN_IF_ERROR(snug_alloc(bench->ctx, bench->count, sizeof *chosen, (void **)&chosen));
    snug_status status = SNUG_OK;
    for (int kind = 0; kind < SNUG_OP_COUNT; kind++)
        for (int variant = 0; variant < 2 * SNUG_OPERAND_TYPES && status == SNUG_OK; variant++) {
            const struct snug_rate rate = {.kind = kind, .types = variant / 2, .dropout = variant & 1};
            size_t count = 0;
            for (size_t i = 0; i < bench->count; i++) {
                const struct sample *sample = &bench->samples[i];
                if (sample->kind == rate.kind && sample->types == rate.types && sample->dropout == rate.dropout)
                    chosen[count++] = sample->one;
            }
            if (count) status = snug_rates_fit(rates, rate, chosen, count);
        }
    free(chosen);
    return status;
}

/* Beside another program, timestamps are so far apart that the operations between them seem to take no time. */
static snug_status check_samples(struct bench *bench) {
    size_t none = 0, count = 0;
    for (size_t i = 0; i < bench->count; i++) {
        if (snug_op_info(bench->samples[i].kind)->flags & (SNUG_OP_ELEMENTS | SNUG_OP_UPDATES)) continue;
        count++;
        none += bench->samples[i].one.seconds <= SHORTEST;
    }
    if (2 * none < count) return SNUG_OK;
    return snug_fail(bench->ctx, SNUG_E_UNSUPPORTED,
                     "%zu of %zu operations took too little time to be measured: does another program use this GPU? "
                     "End it, or name a file of rates in SNUG_RATES",
                     none, count);
}

/* A GPU's algorithms are stored in the cache folder. */
static snug_status open_cache(struct bench *bench, struct snug_folder *cache) {
    char problem[256];
    *cache = (struct snug_folder){0};
    if (!on_device(bench)) return SNUG_OK;
    RETURN_IF_ERROR(snug_cache_folder_open(bench->ctx, cache, problem));
    bench->cache = cache->path;
    return SNUG_OK;
}

snug_status snug_rates_measure(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                               struct snug_rates *out) {
    struct bench bench = {.backend = backend, .threads = threads};
    struct snug_folder cache;
    snug_rates_init(ctx, out, backend, gpu, threads);
    const bool device = on_device(&bench);
    bench.shapes = device ? device_shapes : host_shapes;
    bench.shape_count = device ? DEVICE_SHAPES : HOST_SHAPES;
    bench.vocabulary = VOCABULARY;
    bench.sweep = device ? DEVICE_SWEEP : HOST_SWEEP;
    if (snug_context_create(&bench.ctx) != SNUG_OK) /* silent */
        return snug_fail(ctx, SNUG_E_MEMORY, "out of memory for measuring rates");
    snug_status status = open_cache(&bench, &cache);
    if (status == SNUG_OK) status = measure_all(&bench);
    if (status == SNUG_OK && device) status = check_samples(&bench);
    if (status == SNUG_OK) status = fit_all(&bench, out);
    if (status == SNUG_OK && device) status = snug_rates_measure_copies(bench.ctx, backend, threads, out);
    if (status == SNUG_OK && device) status = snug_rates_measure_host(out, 4096, threads);
    if (status == SNUG_OK) status = measure_disk(ctx, &bench, out);
    if (status != SNUG_OK) {
        snug_rates_free(out);
        snug_fail(ctx, status, "measuring rates: %s", snug_context_message(bench.ctx));
    }
    free(bench.samples);
    snug_folder_close(&cache);
    snug_context_destroy(bench.ctx);
    return status;
}

/* ---- a short measurement ---------------------------------------------------------------------------------------- */

static bool drops(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].p > 0) return true;
    return false;
}

static bool has_positions(const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++)
        if (snug_operand_types(program, &program->ops[i]) & SNUG_POSITIONS) return true;
    return false;
}

static snug_status probe_shapes_of(struct bench *bench, const struct snug_program *program,
                                   const struct snug_rates_probe *probe) {
    const struct types types = {probe->weights, program->compute, program->tf32};
    const double begin = snug_seconds();
    for (size_t i = 0; i < bench->shape_count && snug_seconds() - begin < PROBE_SECONDS; i++) {
        struct shape shape = bench->shapes[i];
        shape.kinds = probe->causal ? CAUSAL : probe->masked_lm ? MLM : 0;
        if (has_positions(program)) shape.kinds |= POSITIONS;
        const snug_status status = measure_shape(bench, &shape, probe->optimizer, &types, drops(program), ALL);
        if (status != SNUG_END) RETURN_IF_ERROR(status);
    }
    return SNUG_OK;
}

snug_status snug_rates_probe(snug_context *ctx, const struct snug_backend *backend, int threads,
                             const struct snug_program *program, const struct snug_rates_probe *probe,
                             struct snug_rates *out) {
    struct bench bench = {.ctx = ctx,
                          .backend = backend,
                          .threads = threads,
                          .shapes = probe_shapes,
                          .shape_count = PROBE_SHAPES,
                          .vocabulary = PROBE_VOCABULARY,
                          .most = probe->bytes,
                          .sweep = probe->bytes / 4 < HOST_SWEEP ? probe->bytes / 4 : HOST_SWEEP};
    snug_rates_init(ctx, out, backend, NULL, threads);
    snug_status status = probe_shapes_of(&bench, program, probe);
    if (status == SNUG_OK) status = fit_all(&bench, out);
    if (status == SNUG_OK && out->count && snug_program_has(program, SNUG_OP_FETCH))
        status = snug_rates_measure_disk(ctx, probe->offload_dir, out);
    if (status != SNUG_OK) snug_rates_free(out);
    free(bench.samples);
    return status;
}
