/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement with transformers, dropout off, in fp32: logits and loss, every gradient, ten losses, for every case of
   tests/golden/model (tools/golden/model.py), on the reference and on the fast backend. */

#include "golden.h"
#include "sanitized.h"

enum { STEPS = 10, THREADS = 1 }; /* cpu_agrees() has more */

/* Tolerances of the project: logits and loss 1e-5, gradients 1e-4 relative L2, losses 1e-5. A logit's error is relative
   to the largest logit, since these models' logits are far larger than a trained model's. Of the key bias's gradient,
   which is zero, rounding leaves up to 8.5e-7 in the reference, and 1.3e-6 with the order of sums of few rows. */
static double LOGITS = 1e-5, LOSS = 1e-5, GRADIENT = 1e-4, TEN_LOSSES = 1e-5, KEY_BIAS = 2e-6;

typedef void look_fn(const struct golden *g, const float *logits, int64_t first, int64_t count, void *user);

/* Computes the logits of each chunk. The loss is left out, because it replaces them by its gradient in place. */
static void compute_logits(struct golden *g, look_fn *look, void *user) {
    const int64_t classes = g->program.tensors[g->program.logits].cols;
    golden_phase(g, SNUG_PHASE_FORWARD);
    for (int64_t chunk = 0; chunk < snug_head_chunks(&g->run); chunk++) {
        const int64_t size = g->program.capacity[SNUG_EXTENT_ROWS];
        g->run.chunk = chunk;
        g->run.first_row = chunk * size;
        g->run.rows = g->batch.rows - chunk * size < size ? g->batch.rows - chunk * size : size;
        assert_int_equal(g->backend->load(&g->run), SNUG_OK); /* for operations outside a phase */
        for (size_t i = 0; i < g->program.op_count; i++) {
            const struct snug_op *op = &g->program.ops[i];
            if (op->phase != SNUG_PHASE_HEAD) continue;
            if (op->kind == SNUG_OP_LOSS) break;
            assert_int_equal(g->backend->ops[op->kind](&g->run, op), SNUG_OK);
        }
        golden_pull(g);
        look(g, golden_data(g, g->program.logits), g->run.first_row * classes, g->run.rows * classes, user);
    }
}

struct expected_logits {
    float *values, largest;
};

static void compare_logits(const struct golden *g, const float *logits, int64_t first, int64_t count, void *user) {
    const struct expected_logits *expected = user;
    (void)g;
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs((double)logits[i] - (double)expected->values[first + i]) / expected->largest;
        if (!(error <= LOGITS)) fail_msg("logit %lld differs by %g", (long long)i, error);
    }
}

static void check_logits(struct golden *g) {
    int64_t count;
    struct expected_logits expected = {golden_read(g, "logits", &count), 1};
    for (int64_t i = 0; i < count; i++) expected.largest = fmaxf(expected.largest, fabsf(expected.values[i]));
    compute_logits(g, compare_logits, &expected);
    free(expected.values);
}

/* The bias of the queries next to a bias of keys, whose true gradient is zero: softmax does not depend on it, unless
   keys are compared with position queries. Otherwise NULL. */
static const struct snug_parameter *query_bias(const struct golden *g, const struct snug_parameter *p) {
    const struct snug_program *program = &g->program;
    const struct snug_parameter *query = p - 1;
    if (p == program->parameters || p->shape[1] || p->row != 1 || program->tensors[p->tensor].rows != 3) return NULL;
    for (size_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == SNUG_OP_ATTENTION && program->ops[i].layer == program->tensors[p->tensor].layer)
            return program->ops[i].attention.pq ? NULL : query;
    return NULL;
}

static double check_gradients(struct golden *g) {
    double worst = 0;
    for (size_t i = 0; i < g->program.parameter_count; i++) {
        const struct snug_parameter *p = &g->program.parameters[i];
        char name[160];
        int64_t count;
        if (!g->program.tensors[p->tensor].trainable) continue;
        snprintf(name, sizeof name, "grad.%s", p->name);
        float *expected = golden_read(g, name, &count);
        const float *found = golden_gradient(g, p);
        const struct snug_parameter *query = query_bias(g, p);
        if (query) {
            const double ratio = golden_norm(found, count) / golden_norm(golden_gradient(g, query), count);
            if (!(ratio <= KEY_BIAS)) fail_msg("%s: norm is %g of the query bias's", p->name, ratio);
        } else if (golden_norm(expected, count) < 1e-12) { /* of a key's bias in a tensor of its own */
            if (!(golden_norm(found, count) < 1e-7)) fail_msg("%s: %g", p->name, golden_norm(found, count));
        } else {
            double difference = 0;
            for (int64_t k = 0; k < count; k++) difference += pow((double)found[k] - (double)expected[k], 2);
            const double error = sqrt(difference) / fmax(golden_norm(expected, count), 1e-30);
            if (!(error <= GRADIENT)) fail_msg("%s: relative L2 error %g", p->name, error);
            worst = fmax(worst, error);
        }
        free(expected);
    }
    return worst;
}

static void check_ten_losses(struct golden *g) {
    int64_t count;
    float *losses = golden_read(g, "losses", &count), *norms = golden_read(g, "grad_norms", &count);
    assert_int_equal(count, STEPS);
    g->run.learning_rate = 1e-3f;
    g->optimizer.weight_decay = 0.01;
    g->run.max_grad_norm = 1;
    for (g->run.step = 0; g->run.step < STEPS; g->run.step++) {
        const double loss = golden_step(g), expected = losses[g->run.step];
        if (!(fabs(loss - expected) <= TEN_LOSSES * fmax(1, fabs(expected))))
            fail_msg("loss %lld is %.8g, expected %.8g", (long long)g->run.step, loss, expected);
        golden_phase(g, SNUG_PHASE_CLIP);
        golden_pull(g);
        const double norm = ((const float *)golden_data(g, g->program.clip))[0];
        assert_true(fabs(norm - (double)norms[g->run.step]) <= 1e-4 * (double)norms[g->run.step]);
        golden_phase(g, SNUG_PHASE_UPDATE);
    }
    free(losses);
    free(norms);
}

/* Adapters that PEFT made (tools/golden/lora.py), beside the weights of a model: every family, and every way to name
   targets. logits are stored of some. */
static void check_adapters(const struct snug_backend *backend, int threads, enum snug_recompute level, size_t every) {
    json_t *cases = json_load_file(SNUG_SOURCE_DIR "/tests/golden/lora/cases.json", 0, NULL), *c;
    size_t index, seen = 0;
    const double bar = TEN_LOSSES;
    TEN_LOSSES = fmax(bar, 5e-5); /* AdamW turns rounding of the small gradients into updates of full size */
    json_array_foreach(json_object_get(cases, "cases"), index, c) {
        char folder[600], expected[256];
        const char *own = json_string_value(json_object_get(c, "folder"));
        struct golden g;
        if (index % every) continue;
        snprintf(folder, sizeof folder, SNUG_SOURCE_DIR "/tests/golden/lora/%s", own);
        snprintf(expected, sizeof expected, "../lora/%s/expected.safetensors", own);
        golden_open(&g, json_string_value(json_object_get(c, "base")), expected,
                    json_string_value(json_object_get(c, "task")), 0, backend, threads, 0,
                    &(struct golden_method){.recompute = level, .adapter = folder});
        if (snug_safetensors_find(&g.expected, "logits")) check_logits(&g);
        golden_step(&g);
        const double worst = check_gradients(&g);
        print_message("%-28s %-10s: worst gradient error %.1e\n", own, backend->name, worst);
        check_ten_losses(&g);
        golden_close(&g);
        seen++;
    }
    TEN_LOSSES = bar;
    assert_true(seen >= 50 / every);
    json_decref(cases);
}

TEST(adapters_agree_with_peft) {
    check_adapters(snug_backend_cpu(), 2, SNUG_RECOMPUTE_ELEMENTWISE, SANITIZED ? 4 : 1);
    check_adapters(snug_backend_reference(), 1, SNUG_RECOMPUTE_ELEMENTWISE, SANITIZED ? 8 : 2);
}

TEST(adapters_agree_with_every_level_of_recomputation) {
    for (int level = 0; level < SNUG_RECOMPUTE_COUNT; level++)
        check_adapters(snug_backend_cpu(), THREADS, (enum snug_recompute)level, SANITIZED ? 9 : 3);
}

static void check_case(const json_t *c, const struct snug_backend *backend, int threads, int64_t chunk_rows,
                       enum snug_recompute level) {
    const char *folder = json_string_value(json_object_get(c, "folder"));
    const char *file = json_string_value(json_object_get(c, "expected"));
    const char *task = json_string_value(json_object_get(c, "task"));
    const double smoothing = json_number_value(json_object_get(c, "label_smoothing_factor"));
    char expected[256];
    int64_t count;
    struct golden g;
    snprintf(expected, sizeof expected, "%s/%s", folder, file);
    golden_open(&g, folder, expected, task, smoothing, backend, threads, chunk_rows,
                &(struct golden_method){.recompute = level});
    check_logits(&g);
    float *loss = golden_read(&g, "loss", &count);
    const double found = golden_step(&g);
    if (!(fabs(found - (double)*loss) <= LOSS * fmax(1, fabs((double)*loss))))
        fail_msg("%s: loss %.8g, expected %.8g", folder, found, (double)*loss);
    free(loss);
    if (json_is_true(json_object_get(c, "gradients"))) {
        const double worst = check_gradients(&g);
        print_message("%-16s %-10s %d threads, chunks of %lld: worst gradient error %.1e\n",
                      json_string_value(json_object_get(c, "name")), backend->name, threads, (long long)chunk_rows,
                      worst);
        check_ten_losses(&g);
    }
    golden_close(&g);
}

/* Adds the cases of a folder of tests/golden, which must exist. */
static void add_cases(json_t *cases, const char *from) {
    char path[512];
    size_t index;
    json_t *c;
    json_error_t error;
    snprintf(path, sizeof path, SNUG_SOURCE_DIR "/tests/golden/%s/cases.json", from);
    json_t *own = json_load_file(path, 0, &error);
    if (!own) fail_msg("%s: %s", path, error.text);
    json_array_foreach(json_object_get(own, "cases"), index, c) {
        snprintf(path, sizeof path, "../%s/%s", from, json_string_value(json_object_get(c, "folder")));
        json_object_set_new(c, "folder", json_string(path));
        json_array_append(json_object_get(cases, "cases"), c);
    }
    json_decref(own);
}

/* The cases of tools/golden/families.py for a family. */
static void add_family(json_t *cases, const char *model_type) {
    char folder[128];
    snprintf(folder, sizeof folder, "families/%s", model_type);
    add_cases(cases, folder);
}

/* Families with the same build function have the same programs: methods are tested with the first of them. Each method
   has a third of the cases, others in the sanitized build. */
enum families { EVERY_FAMILY, EVERY_PROGRAM };

static bool has_case(size_t method, size_t index) { return is_long() || index % 3 == (method + !SANITIZED) % 3; }

static bool repeats_program(size_t family) {
    for (size_t i = 0; i < family; i++)
        if (snug_families[i]->encode == snug_families[family]->encode) return true;
    return false;
}

static json_t *read_cases(enum families families) {
    json_error_t error;
    json_t *cases = json_load_file(GOLDEN_FOLDER "/cases.json", 0, &error);
    assert_non_null(cases);
    for (size_t i = 0; snug_families[i]; i++)
        if (families == EVERY_FAMILY || !repeats_program(i)) add_family(cases, snug_families[i]->model_type);
    add_cases(cases, "quantized"); /* tools/golden/quantized.py: frozen but for the head */
    return cases;
}

static void check_all(enum families families, const struct snug_backend *backend, int threads, int64_t chunk_rows,
                      enum snug_recompute level) {
    json_t *cases = read_cases(families);
    size_t index;
    json_t *c;
    assert_true(json_array_size(json_object_get(cases, "cases")) >= 11);
    json_array_foreach(json_object_get(cases, "cases"), index, c) {
        if (families == EVERY_PROGRAM && !has_case((size_t)level, index)) continue;
        check_case(c, backend, threads, chunk_rows, level);
    }
    json_decref(cases);
}

TEST(reference_agrees) {
    check_all(SANITIZED ? EVERY_PROGRAM : EVERY_FAMILY, snug_backend_reference(), 1, 0, SNUG_RECOMPUTE_ELEMENTWISE);
}

TEST(cpu_agrees) {
    if (SANITIZED) return check_all(EVERY_PROGRAM, snug_backend_cpu(), 1, 0, SNUG_RECOMPUTE_ELEMENTWISE);
    for (int threads = 1; threads <= 2; threads++)
        check_all(EVERY_FAMILY, snug_backend_cpu(), threads, 0, SNUG_RECOMPUTE_ELEMENTWISE);
}

/* A GPU's tolerances: logits 1e-4, gradients 1e-3. Its sums have another order, and dS is computed from do . o, which
   leaves more of the key bias's gradient. */
TEST(cuda_agrees) {
    snug_context *ctx;
    const struct snug_backend *cuda;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    if (snug_backend_cuda(ctx, &cuda) != SNUG_OK) {
        print_message("skipped: %s\n", snug_error_message(ctx));
        snug_context_destroy(ctx);
        skip();
    }
    const double bars[] = {LOGITS, LOSS, GRADIENT, TEN_LOSSES, KEY_BIAS};
    LOGITS = LOSS = TEN_LOSSES = 1e-4;
    GRADIENT = 1e-3;
    KEY_BIAS = 1e-4;
    check_all(EVERY_FAMILY, cuda, 1, 0, SNUG_RECOMPUTE_ELEMENTWISE);
    check_adapters(cuda, 1, SNUG_RECOMPUTE_ELEMENTWISE, 1);
    check_all(EVERY_PROGRAM, cuda, 1, 3, SNUG_RECOMPUTE_ELEMENTWISE);
    for (int level = 0; level < SNUG_RECOMPUTE_COUNT; level++)
        check_all(EVERY_PROGRAM, cuda, 1, 0, (enum snug_recompute)level);
    LOGITS = bars[0], LOSS = bars[1], GRADIENT = bars[2], TEN_LOSSES = bars[3], KEY_BIAS = bars[4];
    snug_context_destroy(ctx);
}

/* ---- 16 bits ---------------------------------------------------------------------------------------------------- */

struct squares {
    const float *expected;
    double off, size;
};

static void add_logits(const struct golden *g, const float *logits, int64_t first, int64_t count, void *user) {
    struct squares *sums = user;
    (void)g;
    for (int64_t i = 0; i < count; i++) {
        sums->off += pow((double)logits[i] - (double)sums->expected[first + i], 2);
        sums->size += pow((double)sums->expected[first + i], 2);
    }
}

/* Relative L2 errors of the logits, and of all gradients as one vector, without the key biases'. */
static void measure(struct golden *g, double *logits, double *gradients) {
    struct squares sums = {0};
    int64_t count;
    float *expected = golden_read(g, "logits", &count);
    sums.expected = expected;
    compute_logits(g, add_logits, &sums);
    free(expected);
    *logits = sqrt(sums.off / sums.size);
    golden_step(g);
    const double scale = g->program.compute == SNUG_F16 ? (double)SNUG_SCALE_FIRST : 1;
    double off = 0, size = 0;
    for (size_t i = 0; i < g->program.parameter_count; i++) {
        const struct snug_parameter *p = &g->program.parameters[i];
        char name[160];
        snprintf(name, sizeof name, "grad.%s", p->name);
        if (query_bias(g, p)) continue;
        expected = golden_read(g, name, &count);
        const float *found = golden_gradient(g, p);
        for (int64_t k = 0; k < count; k++) {
            off += pow((double)found[k] / scale - (double)expected[k], 2);
            size += pow((double)expected[k], 2);
        }
        free(expected);
    }
    *gradients = sqrt(off / size);
}

/* In bf16 and fp16 the error is at most twice torch.autocast's (tools/golden/autocast.py), in every case; over enough
   rows that the error of a classifier's logits is not a single random sample. */
static void check_autocast(const struct snug_backend *backend) {
    json_t *cases = read_cases(EVERY_PROGRAM), *c;
    json_t *bars = json_load_file(SNUG_SOURCE_DIR "/tests/golden/autocast.json", 0, NULL);
    static const char *const what[] = {"logits", "gradients"};
    size_t index, seen = 0;
    json_array_foreach(json_object_get(cases, "cases"), index, c) {
        const char *name = json_string_value(json_object_get(c, "name"));
        const json_t *bar = json_object_get(json_object_get(bars, "cases"), name);
        if (SANITIZED && index % 8) continue; /* the reference takes seconds for each */
        for (enum snug_dtype type = backend->lacks_bf16 ? SNUG_F16 : SNUG_BF16; bar && type <= SNUG_F16; type++) {
            const char *folder = json_string_value(json_object_get(c, "folder"));
            const char *task = json_string_value(json_object_get(c, "task"));
            char expected[256];
            double found[2], ratio[2];
            struct golden g;
            snprintf(expected, sizeof expected, "%s/%s.safetensors", folder,
                     snug_task_info(golden_task(task))->head == SNUG_HEAD_VOCABULARY ? "expected" : "many");
            golden_open(&g, folder, expected, task, 0, backend, 1, 0,
                        &(struct golden_method){.recompute = SNUG_RECOMPUTE_ELEMENTWISE, .compute = type});
            measure(&g, &found[0], &found[1]);
            golden_close(&g);
            for (int i = 0; i < 2; i++) {
                const json_t *errors = json_object_get(bar, snug_dtype_name(type));
                ratio[i] = found[i] / json_number_value(json_object_get(errors, what[i]));
            }
            print_message("%-16s %-10s %s: errors of logits %.2f, of gradients %.2f times torch's\n", name,
                          backend->name, snug_dtype_name(type), ratio[0], ratio[1]);
            assert_true(ratio[0] <= 2 && ratio[1] <= 2);
            seen++;
        }
    }
    assert_true(seen >= (SANITIZED ? 2 : backend->lacks_bf16 ? 7 : 14));
    json_decref(bars);
    json_decref(cases);
}

TEST(reference_is_no_worse_than_autocast) { check_autocast(snug_backend_reference()); }

TEST(cuda_is_no_worse_than_autocast) {
    snug_context *ctx;
    const struct snug_backend *cuda;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    const snug_status found = snug_backend_cuda(ctx, &cuda);
    snug_context_destroy(ctx);
    if (found != SNUG_OK) skip();
    check_autocast(cuda);
}

/* The number of loss positions per chunk changes nothing but the order of sums. */
TEST(chunks_do_not_matter) { check_all(EVERY_PROGRAM, snug_backend_cpu(), THREADS, 3, SNUG_RECOMPUTE_ELEMENTWISE); }

TEST(every_level_of_recomputation_agrees) {
    for (int level = 0; level < SNUG_RECOMPUTE_COUNT; level++)
        check_all(EVERY_PROGRAM, snug_backend_cpu(), THREADS, 0, (enum snug_recompute)level);
}

/* The other methods change the steps themselves; ten losses and norms show their result. */
static void check_method(const json_t *c, const struct golden_method *method) {
    const char *folder = json_string_value(json_object_get(c, "folder"));
    const char *task = json_string_value(json_object_get(c, "task"));
    char expected[256];
    struct golden g;
    const bool frozen = json_object_get(c, "source"); /* a quantized model, whose word table is frozen, too */
    if (!json_is_true(json_object_get(c, "gradients")) ||
        (method->lazy && (frozen || snug_task_info(golden_task(task))->head == SNUG_HEAD_VOCABULARY)))
        return;
    if (method->offloads && strncmp(folder, "..", 2) == 0)
        return; /* the tensors of these families are too small for that */
    snprintf(expected, sizeof expected, "%s/%s", folder, json_string_value(json_object_get(c, "expected")));
    golden_open(&g, folder, expected, task, json_number_value(json_object_get(c, "label_smoothing_factor")),
                snug_backend_cpu(), THREADS, 0, method);
    bool lazy = false;
    for (size_t i = 0; i < g.program.op_count; i++) lazy |= g.program.ops[i].kind == SNUG_OP_LAZY_UPDATE;
    assert_true(lazy == method->lazy && (g.runner.memory.backing.file != NULL) == method->offloads);
    check_ten_losses(&g);
    golden_close(&g);
}

TEST(every_method_agrees) {
    static const struct golden_method methods[] = {
        {.name = "update in backward", .update_in_backward = true},
        {.name = "micro-batches", .micro_batches = 3},
        {.name = "both", .update_in_backward = true, .micro_batches = 2},
        {.name = "lazy rows", .lazy = true},
        {.name = "offload", .offloads = true},
        {.name = "offload, update in backward", .offloads = true, .update_in_backward = true},
        {.name = "all that go together",
         .recompute = SNUG_RECOMPUTE_LAYER,
         .offloads = true,
         .update_in_backward = true,
         .micro_batches = GOLDEN_PARTS},
        {.name = "lazy rows, offload", .lazy = true, .recompute = SNUG_RECOMPUTE_FFN, .offloads = true},
    };
    json_t *cases = read_cases(EVERY_PROGRAM), *c;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        size_t index;
        print_message("%s\n", methods[i].name);
        json_array_foreach(json_object_get(cases, "cases"), index, c) if (has_case(i, index))
            check_method(c, &methods[i]);
    }
    json_decref(cases);
}

/* Weights stored without a head, without the prefix, in shards or under old names give the same values. */
TEST(other_files_hold_the_same_weights) {
    json_t *cases = read_cases(EVERY_PROGRAM), *entry;
    size_t index;
    json_array_foreach(json_object_get(cases, "same_weights"), index, entry) {
        const char *folder = json_string_value(json_object_get(entry, "folder"));
        const char *like = json_string_value(json_object_get(entry, "same_as"));
        const json_t *missing = json_object_get(entry, "missing");
        char expected[256];
        snprintf(expected, sizeof expected, "%s/expected.safetensors", like);
        const char *task = strncmp(like, "mlm", 3) == 0 ? "mlm" : "classification";
        struct golden a, b;
        golden_open(&a, like, expected, task, 0, snug_backend_reference(), 1, 0, &(struct golden_method){0});
        golden_open(&b, folder, expected, task, 0, snug_backend_reference(), 1, 0, &(struct golden_method){0});
        assert_int_equal(a.program.parameter_count, b.program.parameter_count);
        for (size_t i = 0; i < a.program.parameter_count; i++) {
            const struct snug_parameter *p = &a.program.parameters[i];
            bool fresh = false;
            for (size_t k = 0; k < json_array_size(missing); k++)
                fresh |= strcmp(json_string_value(json_array_get(missing, k)), p->name) == 0;
            float *x = golden_parameter(&a, p), *y = golden_parameter(&b, p);
            const bool same = memcmp(x, y, (size_t)snug_parameter_count(p) * sizeof *x) == 0;
            free(x);
            free(y);
            if (same == fresh)
                fail_msg("%s: %s is %s", folder, p->name, fresh ? "not initialised" : "not the stored one");
        }
        golden_close(&a);
        golden_close(&b);
    }
    json_decref(cases);
}

/* ---- weights in bf16 ------------------------------------------------------------------------------------------ */

static void keep_logits(const struct golden *g, const float *logits, int64_t first, int64_t count, void *user) {
    (void)g;
    memcpy((float *)user + first, logits, (size_t)count * sizeof *logits);
}

/* Rounds the matrices of fp32 storage to what bf16 storage of the same file holds. */
static void round_matrices(struct golden *g) {
    for (size_t i = 0; i < g->program.parameter_count; i++) {
        const struct snug_parameter *p = &g->program.parameters[i];
        if (!p->shape[1]) continue;
        float *values = golden_parameter(g, p);
        const int64_t count = snug_parameter_count(p);
        for (int64_t k = 0; k < count; k++) values[k] = snug_bf16_to_f32(snug_f32_to_bf16(values[k]));
        const struct snug_memory memory = {.arena = g->arena};
        assert_int_equal(snug_parameter_write(&g->program, &memory, p, 0, count, values), SNUG_OK);
        free(values);
    }
}

static void assert_same_storage(const struct golden *narrow, const struct golden *wide) {
    assert_int_equal(narrow->program.parameter_count, wide->program.parameter_count);
    for (size_t i = 0; i < narrow->program.parameter_count; i++) {
        const struct snug_parameter *p = &narrow->program.parameters[i];
        float *x = golden_parameter(narrow, p), *y = golden_parameter(wide, &wide->program.parameters[i]);
        assert_int_equal(narrow->program.tensors[p->tensor].dtype, p->shape[1] ? SNUG_BF16 : SNUG_F32);
        if (memcmp(x, y, (size_t)snug_parameter_count(p) * sizeof *x) != 0) fail_msg("%s differs", p->name);
        free(x);
        free(y);
    }
}

/* Values that are exact in bf16 give the same logits, loss and gradients, bit for bit, in either storage. */
TEST(storage_changes_nothing) {
    json_t *cases = read_cases(EVERY_PROGRAM), *c;
    size_t index;
    json_array_foreach(json_object_get(cases, "cases"), index, c) for (int backend = 0; backend < 2; backend++) {
        if (json_object_get(c, "source")) continue; /* a quantized model */
        const char *folder = json_string_value(json_object_get(c, "folder"));
        const char *task = json_string_value(json_object_get(c, "task"));
        char expected[256];
        struct golden g[2];
        float *logits[2];
        double loss[2];
        snprintf(expected, sizeof expected, "%s/%s", folder, json_string_value(json_object_get(c, "expected")));
        for (int i = 0; i < 2; i++)
            golden_open(
                &g[i], folder, expected, task, 0, backend ? snug_backend_cpu() : snug_backend_reference(),
                1 + i * backend, 0,
                &(struct golden_method){.recompute = SNUG_RECOMPUTE_ELEMENTWISE, .weights = i ? SNUG_F32 : SNUG_BF16});
        round_matrices(&g[1]);
        assert_same_storage(&g[0], &g[1]);
        assert_true(g[0].runner.layout.bytes[SNUG_MEMORY_WEIGHTS] <
                    0.65 * (double)g[1].runner.layout.bytes[SNUG_MEMORY_WEIGHTS]);
        const size_t count = (size_t)(g[0].batch.rows * g[0].program.tensors[g[0].program.logits].cols);
        for (int i = 0; i < 2; i++) {
            logits[i] = calloc(count + 1, sizeof **logits);
            compute_logits(&g[i], keep_logits, logits[i]);
            loss[i] = golden_step(&g[i]);
        }
        assert_memory_equal(logits[0], logits[1], count * sizeof **logits);
        assert_true(isfinite(loss[0]) && loss[0] == loss[1]);
        for (size_t i = 0; i < g[0].program.parameter_count; i++) {
            const struct snug_parameter *p = &g[0].program.parameters[i];
            const float *x = golden_gradient(&g[0], p), *y = golden_gradient(&g[1], &g[1].program.parameters[i]);
            if (memcmp(x, y, (size_t)snug_parameter_count(p) * sizeof *x) != 0) fail_msg("gradient of %s", p->name);
        }
        for (int i = 0; i < 2; i++) {
            free(logits[i]);
            golden_close(&g[i]);
        }
    }
    json_decref(cases);
}

TEST_MAIN(NULL, NULL)
