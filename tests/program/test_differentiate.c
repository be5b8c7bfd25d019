/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stages by themselves: models drawn at random, small at first, every gradient against finite differences, on the
 * reference and on the CPU backend; and each method that may not change a bit (recomputation, offloading, updates in
 * backward) against the program without it. In 16 bits gradients are held against those of fp32.
 *   test_differentiate [FIRST SEED [COUNT]]
 */
#include "random_model.h"
#include "run/run.h"
#include "sanitized.h"
#include "temporary.h"

enum { SEEDS = 400, STEPS = 2 };

/* How a model is trained. */
struct way {
    const char *name;
    enum snug_dtype compute;
    bool recompute, offload, update_in_backward;
    bool disturbed; /* weights are perturbed by bf16's rounding: how far gradients move then is how far they may move in
                       bf16 */
};
enum { PLAIN, DISTURBED, PLAIN_BF16, REFERENCES, WAYS = 8 };
static const struct way ways[WAYS] = {
    [PLAIN] = {"plain", SNUG_F32, .disturbed = false},
    [DISTURBED] = {"disturbed", SNUG_F32, .disturbed = true},
    [PLAIN_BF16] = {"bf16", SNUG_BF16, .disturbed = false},
    {"recompute", SNUG_F32, .recompute = true},
    {"offload", SNUG_F32, .offload = true},
    {"update in backward", SNUG_F32, .update_in_backward = true},
    {"recompute, offload, update in backward", SNUG_F32, true, true, true, false},
    {"bf16, recompute, offload, update in backward", SNUG_BF16, true, true, true, false},
};

struct training {
    const struct random_model *model;
    const struct snug_backend *backend;
    const struct way *way;
    struct snug_program program;
    struct snug_layout layout;
    struct snug_block arena;
    struct snug_offload_file *offload_file;
    uint64_t *copies;
    struct snug_memory memory;
    struct snug_run run;
    double loss;
};

static uint64_t seed_now;
static const char *where_now = "";

static void must(const struct random_model *m, snug_status status, const char *what) {
    if (status == SNUG_OK) return;
    random_model_print(m);
    fail_msg("seed %llu, %s: %s: %s", (unsigned long long)seed_now, where_now, what, snug_error_message(m->ctx));
}

static void phase(struct training *t, enum snug_phase which) {
    must(t->model, snug_run_phase(&t->run, t->backend, which, NULL), "run");
}

/* ---- a training ------------------------------------------------------------------------------------------------- */

static void place(struct training *t) {
    const struct random_model *m = t->model;
    struct snug_program *programs[] = {&t->program};
    must(m, snug_stage_place(m->ctx, programs, 1, t->backend, 1, 0, 0, &t->layout), "place");
    must(m, t->backend->allocate(m->ctx, t->layout.arena, SNUG_BLOCK_ARENA, &t->arena), "allocate");
    memset(t->arena.base, 0xFF, (size_t)t->layout.arena); /* NaN: shows values that are read before they are written */
    for (size_t i = 1; i < t->program.tensor_count; i++) {
        const struct snug_tensor *tensor = &t->program.tensors[i];
        if (tensor->memory_class == SNUG_MEMORY_OPTIMIZER && tensor->persistent && !tensor->offloaded && !tensor->view)
            memset(t->arena.base + tensor->offset, 0, (size_t)tensor->bytes);
    }
    t->copies = ops_array(t->program.tensor_count, sizeof *t->copies);
    if (t->layout.offload_bytes)
        must(m, snug_offload_file_open(m->ctx, temporary_root(), t->layout.offload_bytes, &t->offload_file),
             "offload file");
    t->memory = (struct snug_memory){.arena = t->arena.base, .backing = {.file = t->offload_file}};
}

static void write_weight(struct training *t, size_t number) {
    const struct random_model *m = t->model;
    const struct random_weight *w = &m->weights[number];
    float *values = ops_array((size_t)w->count, sizeof *values);
    for (int64_t k = 0; k < w->count; k++) {
        const float off = random_word(m, 1900 + number, (uint64_t)k) % 2 ? 0x1p-8f : -0x1p-8f;
        values[k] = w->values[k] * (t->way->disturbed ? 1 + off : 1);
    }
    if (t->program.tensors[w->tensor].dtype == SNUG_BF16) /* frozen */
        for (int64_t k = 0; k < w->count; k++) {
            const uint16_t low = snug_f32_to_bf16(values[k]);
            memcpy((uint8_t *)values + k * (int64_t)sizeof low, &low, sizeof low);
        }
    must(m, snug_tensor_write(&t->program, &t->memory, w->tensor, 0, w->count, values), "weights");
    free(values);
}

static void open_training(struct training *t, const struct random_model *m, const struct snug_backend *backend,
                          const struct way *way) {
    *t = (struct training){.model = m, .backend = backend, .way = way};
    const struct snug_methods methods = {
        .optimizer = &m->optimizer,
        .recompute = way->recompute ? m->levels : m->no_levels,
        .update_in_backward = way->update_in_backward,
        .clips = m->clips,
        .accumulates = m->batch_count > 1,
        .micro_batches = m->batch_count,
        .offload = {.classes = way->offload ? m->offloaded : 0, .ahead = m->ahead, .part = 64}};
    random_model_build(m, &t->program, way->compute);
    must(m, snug_stages(&t->program, &methods), "stages");
    place(t);
    t->run = (struct snug_run){.ctx = m->ctx,
                               .program = &t->program,
                               .arena = t->arena.base,
                               .workspace = t->arena.base + t->layout.workspace_offset,
                               .batch_copy = t->arena.base + t->layout.copy_offset,
                               .batch = &m->batches[0],
                               .backing = {.file = t->offload_file},
                               .copies = t->copies,
                               .threads = 1,
                               .seed = m->seed,
                               .loss_scale = 0.25f,
                               .learning_rate = 0.02f,
                               .max_grad_norm = m->clips ? 0.25f : 0,
                               .optimizer = &m->optimizer};
    must(m, backend->open(m->ctx, &t->program, 1, &t->run.backend_state), "open");
    for (size_t i = 0; i < m->weight_count; i++) write_weight(t, i);
    phase(t, SNUG_PHASE_PREPARE);
}

static void close_training(struct training *t) {
    t->backend->close(t->run.backend_state);
    snug_offload_file_close(t->offload_file);
    free(t->copies);
    snug_block_release(&t->arena);
    snug_program_free(&t->program);
}

/* The loss of all micro-batches, times loss_scale: the function that gradients are computed of. */
static double losses(struct training *t, bool backward) {
    double sum = 0;
    for (int i = 0; i < t->model->batch_count; i++) {
        float loss;
        t->run.batch = &t->model->batches[i];
        t->run.micro_batch = i;
        must(t->model, t->backend->load(&t->run), "load");
        phase(t, SNUG_PHASE_FORWARD);
        phase(t, SNUG_PHASE_HEAD);
        if (backward) phase(t, SNUG_PHASE_BACKWARD);
        must(t->model, snug_tensor_read(&t->program, &t->memory, t->program.loss, 0, 1, &loss), "loss");
        sum += (double)loss * (double)t->run.loss_scale;
    }
    return sum;
}

/* What is compared: gradients of the first step (NULL: the weight has none), and weights after the last step. */
struct outcome {
    float *gradients[RANDOM_WEIGHTS], *weights[RANDOM_WEIGHTS];
    double loss;
};

static void read_gradients(struct training *t, struct outcome *out) {
    for (size_t i = 0; i < t->model->weight_count; i++) {
        const struct random_weight *w = &t->model->weights[i];
        const int32_t gradient = t->program.tensors[w->tensor].gradient;
        if (gradient && w->frozen) fail_msg("seed %llu: a frozen weight has a gradient", (unsigned long long)seed_now);
        if (!gradient) continue;
        out->gradients[i] = ops_array((size_t)w->count, sizeof(float));
        must(t->model, snug_tensor_read(&t->program, &t->memory, gradient, 0, w->count, out->gradients[i]), "read");
    }
}

static void train(struct training *t, struct outcome *out) {
    *out = (struct outcome){0};
    for (t->run.step = 0; t->run.step < STEPS; t->run.step++) {
        const double loss = losses(t, true);
        if (t->run.step == 0) out->loss = loss;
        if (t->run.step == 0 && !t->way->update_in_backward) read_gradients(t, out);
        phase(t, SNUG_PHASE_CLIP);
        phase(t, SNUG_PHASE_UPDATE);
    }
    must(t->model, snug_run_flush(&t->run, t->backend, NULL), "flush");
    for (size_t i = 0; i < t->model->weight_count; i++) {
        const struct random_weight *w = &t->model->weights[i];
        out->weights[i] = ops_array((size_t)w->count, sizeof(float));
        must(t->model, snug_tensor_read(&t->program, &t->memory, w->tensor, 0, w->count, out->weights[i]), "read");
    }
}

static void free_outcome(struct outcome *out) {
    for (size_t i = 0; i < RANDOM_WEIGHTS; i++) {
        free(out->gradients[i]);
        free(out->weights[i]);
    }
}

/* ---- finite differences ----------------------------------------------------------------------------------------- */

/* The derivative of the loss along direction, by the central difference of fourth order. */
static double differentiate(struct training *t, const struct random_weight *w, const float *direction, double step) {
    static const double multiples[4] = {1, -1, 2, -2};
    double loss[4];
    float *moved = ops_array((size_t)w->count, sizeof *moved);
    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < w->count; i++) moved[i] = w->values[i] + (float)(multiples[k] * step) * direction[i];
        must(t->model, snug_tensor_write(&t->program, &t->memory, w->tensor, 0, w->count, moved), "move");
        loss[k] = losses(t, false);
    }
    must(t->model, snug_tensor_write(&t->program, &t->memory, w->tensor, 0, w->count, w->values), "restore");
    free(moved);
    return (8 * (loss[0] - loss[1]) - (loss[2] - loss[3])) / (12 * step);
}

static double along(const float *gradient, const float *direction, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; gradient && i < count; i++) sum += (double)gradient[i] * (double)direction[i];
    return sum;
}

/*
 * The loss is a sum of fp32 values of some rounded operations each: 16 half units in the last place of it and of 1,
 * divided by the step, plus 1 % for the curvature of norms and softmax. Where the curvature is larger, a smaller step
 * shows whether that is the reason.
 */
static void check_direction(struct training *t, const struct random_weight *w, const float *direction,
                            const float *const gradients[2]) {
    double numeric = 0, bound = 0, analytic[2];
    bool agrees = false;
    for (int b = 0; b < 2; b++) analytic[b] = along(gradients[b], direction, w->count);
    for (int exponent = 6; exponent <= 14 && !agrees; exponent += 2) {
        const double step = ldexp(1, -exponent);
        numeric = differentiate(t, w, direction, step);
        bound = 0.01 * fabs(numeric) + 16 * 0x1p-24 / step * (fabs(t->loss) + 1);
        agrees = fabs(numeric - analytic[0]) <= bound && fabs(numeric - analytic[1]) <= bound;
    }
    if (agrees) return;
    random_model_print(t->model);
    fail_msg("seed %llu: gradient of %s: %g on the reference, %g on the CPU, by differences %g, within %g",
             (unsigned long long)seed_now, w->name, analytic[0], analytic[1], numeric, bound);
}

/* Two directions for each weight: random signs, and the gradient's own direction, where an error is largest. */
static void check_gradients(struct training *t, const struct outcome *reference, const struct outcome *cpu) {
    const struct random_model *m = t->model;
    t->run.step = 0;
    t->loss = reference->loss;
    for (size_t i = 0; i < m->weight_count; i++) {
        const struct random_weight *w = &m->weights[i];
        const float *const gradients[2] = {reference->gradients[i], cpu->gradients[i]}, *g = gradients[0];
        float *direction = ops_array((size_t)w->count, sizeof *direction), largest = 0;
        for (int64_t k = 0; k < w->count; k++) {
            direction[k] = (float)w->scale * (random_word(m, 900 + i, (uint64_t)k) % 2 ? 1 : -1);
            if (g) largest = fmaxf(largest, fabsf(g[k]));
        }
        if (!w->frozen) check_direction(t, w, direction, gradients);
        for (int64_t k = 0; g && k < w->count; k++) direction[k] = 2 * (float)w->scale * g[k] / largest;
        if (!w->frozen && largest > 0) check_direction(t, w, direction, gradients);
        free(direction);
    }
}

/* ---- comparisons ------------------------------------------------------------------------------------------------ */

static void check_bits(const struct training *t, const struct outcome *want, const struct outcome *got) {
    for (size_t i = 0; i < t->model->weight_count; i++) {
        const struct random_weight *w = &t->model->weights[i];
        const size_t size = (size_t)w->count * sizeof(float);
        const bool gradients = want->gradients[i] && got->gradients[i];
        const char *what = NULL;
        if (gradients && memcmp(want->gradients[i], got->gradients[i], size) != 0) what = "gradient";
        if (!what && memcmp(want->weights[i], got->weights[i], size) != 0) what = "weight after two steps";
        if (!what) continue;
        const float *a = gradients ? want->gradients[i] : want->weights[i];
        const float *b = gradients ? got->gradients[i] : got->weights[i];
        int64_t first = 0;
        while (first + 1 < w->count && a[first] == b[first]) first++;
        random_model_print(t->model);
        fail_msg("seed %llu, %s: the %s of %s has different bits: %g, expected %g", (unsigned long long)seed_now,
                 where_now, what, w->name, (double)b[first], (double)a[first]);
    }
}

static double distance(const struct outcome *a, const struct outcome *b, size_t weight, int64_t count) {
    double sum = 0;
    for (int64_t k = 0; a->gradients[weight] && k < count; k++)
        sum += pow((double)a->gradients[weight][k] - (double)b->gradients[weight][k], 2);
    return sqrt(sum);
}

/* bf16 rounds each value by 2^-9 of it, over a depth of some fifty values, and single gradients that nearly cancel may
   be off by as much of the others. Where a model amplifies small errors, perturbed weights show how much. */
static void check_close(const struct training *t, const struct outcome *want, const struct outcome *disturbed,
                        const struct outcome *got) {
    double largest = 0, moved = 0;
    for (size_t i = 0; i < t->model->weight_count; i++) {
        const int64_t count = t->model->weights[i].count;
        largest = fmax(largest, sqrt(along(want->gradients[i], want->gradients[i], count)));
        moved = fmax(moved, distance(want, disturbed, i, count));
    }
    for (size_t i = 0; i < t->model->weight_count; i++) {
        const struct random_weight *w = &t->model->weights[i];
        if (!want->gradients[i] != !got->gradients[i]) fail_msg("%s has a gradient in one type only", w->name);
        const double off = distance(want, got, i, w->count);
        if (off <= 64 * 0x1p-8 * largest + 4 * moved) continue;
        random_model_print(t->model);
        fail_msg("seed %llu, %s: the gradient of %s is %g off, the largest is %g and moves by %g",
                 (unsigned long long)seed_now, where_now, w->name, off, largest, moved);
    }
}

static void check_model(const struct random_model *m) {
    const struct snug_backend *const backends[] = {snug_backend_reference(), snug_backend_cpu()};
    struct outcome found[2][WAYS];
    struct training t;
    for (int b = 0; b < 2; b++)
        for (int w = 0; w < WAYS; w++) {
            char where[96];
            snprintf(where, sizeof where, "%s, %s", backends[b]->name, ways[w].name);
            where_now = where;
            open_training(&t, m, backends[b], &ways[w]);
            train(&t, &found[b][w]);
            if (w == PLAIN_BF16) check_close(&t, &found[b][PLAIN], &found[b][DISTURBED], &found[b][w]);
            if (w >= REFERENCES)
                check_bits(&t, &found[b][ways[w].compute == SNUG_F32 ? PLAIN : PLAIN_BF16], &found[b][w]);
            close_training(&t);
        }
    where_now = "finite differences";
    open_training(&t, m, backends[0], &ways[PLAIN]);
    check_gradients(&t, &found[0][PLAIN], &found[1][PLAIN]);
    close_training(&t);
    for (int i = 0; i < 2 * WAYS; i++) free_outcome(&found[i / WAYS][i % WAYS]);
}

static uint64_t first_seed, seed_count;

TEST(test_random_models) {
    for (seed_now = first_seed; seed_now < first_seed + seed_count; seed_now++) {
        struct random_model m;
        random_model_open(&m, seed_now);
        check_model(&m);
        random_model_close(&m);
    }
}

int main(int argc, char **argv) {
    first_seed = SANITIZED || is_long() ? 0 : SEEDS / 10;
    seed_count = is_long() ? SEEDS : SANITIZED ? SEEDS / 10 : SEEDS / 3;
    if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    }
    return run_registered(NULL, NULL);
}
