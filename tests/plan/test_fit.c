/* SPDX-License-Identifier: Apache-2.0 */
/* Measured rates, the predicted seconds of a step, and the search for a mix of methods that fits. */
#include "training_fixture.h"

#include <math.h>
#include <sys/stat.h>

#include "train/fit.h"
#include "train/session.h"

#define FIXTURE struct fixture *f, set_up, tear_down

static void check(struct fixture *f, snug_status status) {
    if (status != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
}

/* ---- rates ---------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_rates_are_fitted) {
    struct snug_rates rates = {.ctx = f->ctx};
    struct snug_rate_sample samples[24];
    for (int i = 0; i < 24; i++) {
        const int doublings = i % 8, triplings = i / 8;
        struct snug_rate_sample *s = &samples[i];
        s->calls = 1 + i % 2; /* a sample may be the sum of several calls */
        s->cost = (struct snug_cost){1e5 * pow(2, doublings), 1e4 * pow(3, triplings) * (1 + i % 3)};
        s->seconds = s->calls * 2e-6 + 1e-11 * s->cost.flops + 5e-11 * s->cost.bytes;
    }
    check(f, snug_rates_fit(&rates, (struct snug_rate){.kind = SNUG_OP_LINEAR}, samples, 24));
    assert_int_equal(rates.count, 1);
    assert_true(fabs(rates.items[0].call / 2e-6 - 1) < 1e-3 && fabs(rates.items[0].flop / 1e-11 - 1) < 1e-3 &&
                fabs(rates.items[0].byte / 5e-11 - 1) < 1e-3 && rates.items[0].error < 1e-6);
    /* Where more work takes less time, the fit would be negative: that term is left out. */
    for (int i = 0; i < 24; i++) samples[i].seconds = 1e-3 / (1 + i % 8);
    check(f, snug_rates_fit(&rates, (struct snug_rate){.kind = SNUG_OP_NORM}, samples, 24));
    assert_true(rates.items[1].call >= 0 && rates.items[1].flop >= 0 && rates.items[1].byte >= 0);
    /* Measurements that did not finish give no rate. */
    for (int i = 0; i < 24; i++) samples[i].seconds = INFINITY;
    check(f, snug_rates_fit(&rates, (struct snug_rate){.kind = SNUG_OP_LOSS}, samples, 24));
    assert_int_equal(rates.count, 2);
    snug_rates_free(&rates);
}

enum { THREADS = 1 };

static void open_rates(struct fixture *f, struct snug_rates *rates) {
    check(f, snug_rates_open(f->ctx, snug_backend_cpu(), NULL, THREADS, rates));
    assert_true(rates->count > 10);
}

FIXTURE_TEST(test_rates_are_measured_once) {
    struct snug_rates measured, again;
    char *path;
    setenv("SNUG_RATES", "", 1);
    /* A damaged file is reported and not used. */
    snug_rates_init(f->ctx, &measured, snug_backend_cpu(), NULL, THREADS);
    check(f, snug_rates_keep(&measured, &path));
    write_bytes(path, "{\"seconds\": [", 13);
    free(path);
    open_rates(f, &measured);
    assert_contains(f->log, "measured again");
    bool found[SNUG_OP_COUNT] = {false}, positions[SNUG_OP_COUNT] = {false};
    for (size_t i = 0; i < measured.count; i++) {
        const struct snug_rate *rate = &measured.items[i];
        positions[rate->kind] |= rate->types & SNUG_POSITIONS;
        assert_true(rate->call >= 0 && rate->flop >= 0 && rate->byte >= 0 && rate->samples > 0);
        assert_true(rate->call + rate->flop + rate->byte > 0);
        found[rate->kind] = true;
    }
    static const enum snug_op_kind needed[] = {
        SNUG_OP_EMBED,      SNUG_OP_LINEAR,    SNUG_OP_ATTENTION,   SNUG_OP_RESIDUAL_NORM,      SNUG_OP_NORM,
        SNUG_OP_LOSS,       SNUG_OP_LINEAR_DX, SNUG_OP_LINEAR_DW,   SNUG_OP_ATTENTION_BACKWARD, SNUG_OP_NORM_BACKWARD,
        SNUG_OP_ACTIVATION, SNUG_OP_ADAM,      SNUG_OP_SQUARED_NORM};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!found[needed[i]]) fail_msg("%s has no rate", snug_op_name(needed[i]));
    assert_true(positions[SNUG_OP_ATTENTION] && positions[SNUG_OP_ATTENTION_BACKWARD]); /* DeBERTa's */
    f->log[0] = '\0';
    open_rates(f, &again);
    assert_null(strstr(f->log, "measuring"));
    assert_int_equal(again.count, measured.count);
    for (size_t i = 0; i < again.count; i++) {
        assert_int_equal(again.items[i].kind, measured.items[i].kind);
        assert_true(fabs(again.items[i].flop - measured.items[i].flop) <= 1e-12 * measured.items[i].flop);
    }
    snug_rates_free(&again);
    snug_rates_free(&measured);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
}

FIXTURE_TEST(test_wrong_rates_are_refused) {
    static const char *const cases[][2] = {
        {"{\"seconds\": []}", "must be a list"},
        {"{\"seconds\": [{\"operation\": \"sing\"}]}", "\"sing\" is not an operation"},
        {"{\"seconds\": [{\"operation\": \"linear\", \"flop\": -1}]}", "has a negative time"},
        {"{\"seconds\": [{\"operation\": \"linear\", \"call\": -1}]}", "has a negative time"},
        {"{\"seconds\": [{\"operation\": \"linear\", \"byte\": -1}]}", "has a negative time"},
        {"{\"seconds\": [3]}", "must hold objects"},
        {"[", "rates.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_rates rates;
        const char *path = write_text(f, "rates.json", cases[i][0]);
        snug_clear_error(f->ctx);
        assert_int_equal(snug_rates_read(f->ctx, path, &rates), SNUG_E_INPUT);
        assert_contains(snug_error_message(f->ctx), "rates.json");
        assert_contains(snug_error_message(f->ctx), cases[i][1]);
    }
}

static void open_few(struct fixture *f) {
    snug_plan *plan;
    char *text;
    snug_args *args = training_args(f, "");
    check(f, snug_plan_create(args, &plan));
    check(f, snug_plan_text(plan, &text));
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_rates_are_shown) {
    struct snug_rates rates;
    char *text;
    check(f, snug_rates_read(f->ctx, SNUG_SOURCE_DIR "/tests/golden/rates.json", &rates));
    rates.items[0].types = 5;
    rates.items[1].types = 2;
    check(f, snug_rates_text(&rates, &text));
    assert_contains(text, " bf16 ");
    assert_contains(text, " mixed ");
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, rates.count + 3);
    assert_contains(text, "\nlinear_dw ");
    assert_contains(text, "GFLOP/s");
    free(text);
    check(f, snug_rates_json(&rates, &text));
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(json_object_get(json, "seconds")), rates.count);
    json_decref(json);
    free(text);
    snug_rates_free(&rates);
}

/* Rates that lack most operations: operations without a rate take no time. Stored where there is a folder. */
/* A GPU's rates have their own file, and TF32 matmuls. */
FIXTURE_TEST(test_rates_of_a_gpu) {
    struct snug_rates rates, again;
    char *path, *text;
    setenv("SNUG_RATES", "", 1);
    snug_rates_init(f->ctx, &rates, snug_backend_cpu(), "NVIDIA H200", 7);
    assert_int_equal(rates.threads, 0);
    check(f, snug_rates_add(&rates, (struct snug_rate){.kind = SNUG_OP_LINEAR, .types = 8, .flop = 1e-14}));
    check(f, snug_rates_keep(&rates, &path));
    assert_contains(path, "NVIDIA-H200");
    check(f, snug_rates_open(f->ctx, snug_backend_cpu(), "NVIDIA H200", 7, &again));
    assert_string_equal(again.device, "NVIDIA H200");
    check(f, snug_rates_text(&again, &text));
    assert_contains(text, " tf32 ");
    assert_null(strstr(text, "threads"));
    free(text);
    free(path);
    snug_rates_free(&rates);
    snug_rates_free(&again);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates_gpu.json", 1);
    assert_int_equal(snug_rates_open(f->ctx, snug_backend_cpu(), NULL, THREADS, &again), SNUG_E_USAGE);
    assert_contains(snug_error_message(f->ctx), "not the rates of a CPU");
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
}

static void ignore_event(void *user, const snug_event *event) {
    (void)user;
    (void)event;
}

/* The expected seconds of a training that is not run. */
static struct snug_duration expect_duration(struct fixture *f, const char *words, bool watched) {
    const snug_callbacks callbacks = {.on_event = watched ? ignore_event : NULL};
    struct snug_session *session;
    snug_args *args = training_args(f, words);
    check(f, snug_args_set(args, "threads", "1"));
    check(f, snug_session_open(args, SNUG_COMMAND_TRAIN, &callbacks, &session));
    const struct snug_duration duration = session->duration;
    snug_session_destroy(session);
    snug_args_destroy(args);
    return duration;
}

/* Without rates a long run measures a few before its arena is allocated; nothing is stored. */
FIXTURE_TEST(test_time_without_rates) {
    struct snug_rates known;
    setenv("SNUG_RATES", "", 1);
    struct snug_duration duration = expect_duration(f, "max_steps=1", true);
    assert_int_equal(duration.source, SNUG_SECONDS_ASSUMED);
    assert_true(duration.step > 0 && duration.run == duration.step && duration.probed == 0);
    /* The arena is smaller than that of any measurement. */
    duration = expect_duration(f, "max_steps=10000000", true);
    assert_int_equal(duration.source, SNUG_SECONDS_ASSUMED);
#define LONG_RUN                                                                                                       \
    "config_name=" SNUG_SOURCE_DIR "/examples/demo train_file=dummy:64x64 per_device_train_batch_size=32 "             \
    "max_steps=1000000 "
    duration = expect_duration(f, LONG_RUN, false);
    assert_int_equal(duration.source, SNUG_SECONDS_ASSUMED);
    assert_string_equal(snug_duration_source(&duration), "assumed");
    duration = expect_duration(f, LONG_RUN, true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    assert_string_equal(snug_duration_source(&duration), "probe");
    assert_true(duration.step > 0 && duration.probed > 0);
    assert_true(fabs(duration.run / (1e6 * duration.step) - 1) < 1e-9);
    assert_int_equal(mkdir(path_of(f, "disk"), 0700), 0);
    duration = expect_duration(f, LONG_RUN "offload=optimizer offload_dir=@disk", true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    duration = expect_duration(f,
                               LONG_RUN "task=mlm train_file=" SNUG_SOURCE_DIR "/examples/demo/pretrain.txt "
                                        "line_by_line=true tokenizer_name=" SNUG_SOURCE_DIR "/examples/demo",
                               true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    duration =
        expect_duration(f,
                        "config_name=" SNUG_SOURCE_DIR "/tests/golden/families/llama/clm train_file=dummy:4096x24 "
                        "per_device_train_batch_size=4096 max_steps=1000000",
                        true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    duration = expect_duration(f,
                               "config_name=" SNUG_SOURCE_DIR "/tests/golden/families/deberta-v2/mlm "
                               "train_file=dummy:4096x24 per_device_train_batch_size=4096 max_steps=1000000",
                               true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    /* Without dropout, and in an arena that has room for every shape. */
    write_model(f, "plain", 0, 64, 2, VOCABULARY);
    duration = expect_duration(f,
                               "config_name=@plain train_file=dummy:4096x24 per_device_train_batch_size=4096 "
                               "max_steps=1000000",
                               true);
    assert_int_equal(duration.source, SNUG_SECONDS_PROBED);
    snug_train_result result;
    f->log[0] = '\0';
    assert_int_equal(try_train(f, "long", LONG_RUN, 1, &result), SNUG_E_INTERRUPTED);
    assert_contains(f->log, "\nTime       about ");
    assert_contains(f->log, " s just now)");
    check(f, snug_rates_known(f->ctx, snug_backend_cpu(), NULL, 1, &known));
    assert_int_equal(known.count, 0);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    assert_int_equal(expect_duration(f, LONG_RUN, true).source, SNUG_SECONDS_MEASURED);
}

FIXTURE_TEST(test_missing_rates) {
    static const char *const variables[] = {"SNUG_CACHE", "XDG_CACHE_HOME", "HOME"};
    char before[3][512] = {{0}}, *path;
    struct snug_rates rates;
    write_text(f, "few.json", "{\"seconds\": [{\"operation\": \"linear\", \"call\": 1}]}");
    setenv("SNUG_RATES", path_of(f, "few.json"), 1);
    open_few(f);
    check(f, snug_rates_read(f->ctx, path_of(f, "few.json"), &rates));
    setenv("SNUG_CACHE", "/dev/null/cache", 1);
    assert_int_equal(snug_rates_keep(&rates, &path), SNUG_E_IO);
    assert_null(path);
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        snprintf(before[i], sizeof before[i], "%s", value ? value : "");
        unsetenv(variables[i]);
    }
    const snug_status status = snug_rates_keep(&rates, &path);
    for (int i = 1; i < 3; i++)
        if (*before[i]) setenv(variables[i], before[i], 1);
    setenv("SNUG_CACHE", path_of(f, "cache"), 1);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    assert_int_equal(status, SNUG_OK);
    assert_null(path);
    snug_rates_free(&rates);
}

/* ---- jobs ----------------------------------------------------------------------------------------------------- */

/* Wide enough, and with texts long enough, that activations and gradients are visible next to measured memory. */
#define WIDE "config_name=@wide output_dir=@out per_device_train_batch_size=16 max_seq_length=32 threads=1"

struct planned {
    snug_args *args;
    struct snug_job job;
    struct snug_rates rates;
};

static void open_job(struct fixture *f, const char *words, struct planned *p) {
    write_model(f, "wide", 0.1, 128, 4, VOCABULARY);
    p->args = training_args(f, WIDE);
    set_args(f, p->args, words);
    check(f, snug_job_open(p->args, SNUG_COMMAND_PLAN, &p->job));
    open_rates(f, &p->rates);
}

static void close_job(struct planned *p) {
    snug_job_close(&p->job);
    snug_rates_free(&p->rates);
    snug_args_destroy(p->args);
}

static struct snug_fit search(struct fixture *f, const struct planned *p, int64_t limit) {
    struct snug_fit fit;
    check(f, snug_fit_search(&p->job.setup, &p->job.limits, &p->job.plan, &p->rates, limit, &fit));
    return fit;
}

static struct snug_data_pipeline *training_pipeline(const struct snug_job *job) {
    return &snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING)->pipeline;
}

/* The same job with flags added, planned from scratch: bytes of its arena and seconds of its step. */
static void plan_alone(struct fixture *f, const struct planned *p, const struct snug_priced *mix, int64_t *arena,
                       double *seconds) {
    struct snug_args *args;
    struct snug_job job;
    check(f, snug_args_copy(f->ctx, p->args, &args));
    check(f, snug_fit_give(args, mix));
    check(f, snug_job_open(args, SNUG_COMMAND_PLAN, &job));
    const struct snug_data_pipeline *pipeline = training_pipeline(&job), *asked = training_pipeline(&p->job);
    *arena = job.plan.layout.total;
    struct snug_estimate step;
    check(f, snug_run_plan_step(&job.plan, &p->rates, &step));
    *seconds = step.seconds;
    assert_int_equal(pipeline->options.batch_size * pipeline->options.accumulation,
                     asked->options.batch_size * asked->options.accumulation);
    assert_int_equal(pipeline->max_steps, asked->max_steps);
    snug_job_close(&job);
    snug_args_destroy(args);
}

static int64_t arena_of(const struct snug_priced *mix) {
    return mix->total - mix->bytes[SNUG_MEMORY_CONTEXT] - mix->bytes[SNUG_MEMORY_HOST];
}

FIXTURE_TEST(test_more_work_takes_longer) {
    struct planned p;
    open_job(f, "", &p);
    const struct snug_planned_program *training = snug_run_plan_find(&p.job.plan, SNUG_ROLE_TRAINING);
    struct snug_load load = training->pipeline.load;
    struct snug_step_estimate step;
    check(f, snug_estimate_parts(&p.rates, &training->program, &load, &step));
    double before = step.total.seconds;
    assert_true(before > 0);
    for (int i = 0; i < 4; i++) {
        double *const grown[] = {&load.tokens, &load.pairs, &load.rows, &load.micro_batches};
        *grown[i] *= 2;
        check(f, snug_estimate_parts(&p.rates, &training->program, &load, &step));
        assert_true(step.total.seconds > before);
        before = step.total.seconds;
    }
    close_job(&p);
}

/* Synthetic rows have their own length, whatever texts would be cut at: kernels look at no more than `longest`. */
FIXTURE_TEST(test_synthetic_rows_are_not_cut) {
    struct planned p;
    open_job(f, "train_file=dummy:4x40", &p);
    assert_int_equal(snug_run_plan_find(&p.job.plan, SNUG_ROLE_TRAINING)->program.longest, 40);
    close_job(&p);
}

/* Copies beside operations take the seconds that operations wait for them: none if copies are fast, and if they are
   slow no less than those of one direction, or with a GPU's offload file of both. */
FIXTURE_TEST(test_waits_are_estimated) {
    static const double bytes[] = {1e-15, 1e-9, 1e-3};
    double alone = 0;
    for (int i = 0; i < 3; i++)
        for (int beside = 0; beside < 2; beside++) {
            struct planned p;
            struct snug_step_estimate step;
            double copied[2] = {0}, rest = 0;
            char words[96];
            snprintf(words, sizeof words, "offload=optimizer,gradients gradient_accumulation_steps=%d", i + 1);
            open_job(f, words, &p);
            const struct snug_planned_program *training = snug_run_plan_find(&p.job.plan, SNUG_ROLE_TRAINING);
            struct snug_program *program = &p.job.plan.programs[0].program;
            assert_ptr_equal(program, &training->program);
            program->to_file = false;
            p.rates.overlaps = beside;
            check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = SNUG_OP_FETCH, .byte = bytes[i]}));
            check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = SNUG_OP_STORE, .byte = bytes[i]}));
            check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = SNUG_OP_WAIT}));
            check(f, snug_estimate_parts(&p.rates, &training->program, &training->pipeline.load, &step));
            for (size_t k = 0; k < training->program.op_count; k++) {
                const struct snug_op *op = &training->program.ops[k];
                if (op->phase != SNUG_PHASE_UPDATE || !snug_op_is(op, SNUG_OP_COPIES)) continue;
                copied[op->kind == SNUG_OP_STORE] +=
                    snug_estimate_op(&p.rates, &training->program, op, &training->pipeline.load, 1).seconds;
            }
            if (!beside) alone = step.total.seconds;
            rest = fmax(copied[0], copied[1]);
            if (i == 0) assert_true(fabs(step.total.seconds / alone - 1) < 1e-3);
            assert_true(step.total.seconds >= rest && step.total.seconds <= alone * (1 + 1e-9));
            if (i == 2 && beside) assert_true(step.total.seconds < 0.8 * alone); /* both directions at once */
            program->to_file = true;
            for (int kind = 0; kind < 2; kind++)
                check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = kind ? SNUG_OP_FETCH : SNUG_OP_STORE,
                                                                     .file = true,
                                                                     .byte = 2 * bytes[i]}));
            check(f, snug_estimate_parts(&p.rates, &training->program, &training->pipeline.load, &step));
            if (beside) assert_true(step.total.seconds >= 2 * (copied[0] + copied[1]));
            if (!beside) assert_true(step.total.seconds == alone); /* a CPU's rates are of the file anyway */
            close_job(&p);
        }
}

/* Norms and updates inside backward are separate launches, which have a rate of their own. */
FIXTURE_TEST(test_separate_launches) {
    for (int clips = 0; clips < 2; clips++)
        for (int inside = 0; inside < 2; inside++) {
            struct planned p;
            struct snug_step_estimate before, after;
            char words[96];
            snprintf(words, sizeof words, "update_in_backward=%s max_grad_norm=%d", inside ? "True" : "False", clips);
            open_job(f, words, &p);
            const struct snug_planned_program *training = snug_run_plan_find(&p.job.plan, SNUG_ROLE_TRAINING);
            const struct snug_program *program = &training->program;
            int alone[SNUG_OP_COUNT] = {0}, all[SNUG_OP_COUNT] = {0};
            for (size_t i = 0; i < program->op_count; i++) {
                all[program->ops[i].kind]++;
                alone[program->ops[i].kind] += program->ops[i].alone;
            }
            check(f, snug_estimate_parts(&p.rates, program, &training->pipeline.load, &before));
            for (int kind = 0; kind < 2; kind++)
                check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = kind ? SNUG_OP_ADAM : SNUG_OP_SQUARED_NORM,
                                                                     .types = SNUG_ALONE,
                                                                     .call = 100,
                                                                     .byte = 1e-12}));
            check(f, snug_estimate_parts(&p.rates, program, &training->pipeline.load, &after));
            const int launches = alone[SNUG_OP_ADAM] + alone[SNUG_OP_SQUARED_NORM];
            assert_true(fabs((after.total.seconds - before.total.seconds) / 100 - launches) < 0.1);
            assert_int_equal(alone[SNUG_OP_ADAM], inside ? all[SNUG_OP_ADAM] : 0);
            assert_int_equal(alone[SNUG_OP_SQUARED_NORM] > 0, inside); /* some are in CLIP, one after the other */
            close_job(&p);
        }
}

FIXTURE_TEST(test_choice_fits_and_equals_the_plan) {
    const int limits = is_long() ? 8 : 4;
    struct planned p;
    double slowest = 0;
    int choices = 0;
    open_job(f, "", &p);
    const struct snug_fit least = search(f, &p, 1), most = search(f, &p, p.job.plan.total);
    const int64_t asked = p.job.plan.total, smallest = least.chosen.total + SNUG_FIT_MARGIN;
    assert_false(least.fits);
    assert_true(smallest < asked - (1 << 20));
    assert_true(most.fits);
    assert_string_equal(most.chosen.flags, "");
    for (int64_t limit = asked - 1; limit >= smallest; limit -= (asked - smallest) / limits + 1) {
        const struct snug_fit fit = search(f, &p, limit), again = search(f, &p, limit);
        int64_t arena;
        double seconds;
        assert_true(fit.fits);
        assert_true(fit.chosen.total + SNUG_FIT_MARGIN <= limit);
        assert_string_equal(fit.chosen.flags, again.chosen.flags);
        plan_alone(f, &p, &fit.chosen, &arena, &seconds);
        assert_int_equal(arena, arena_of(&fit.chosen));
        assert_true(fabs(seconds / fit.chosen.work.seconds - 1) < 1e-9);
        /* Less memory is never faster, up to the granularity of the search, as long as nothing is rounded. */
        assert_true(fit.chosen.approximate || fit.chosen.work.seconds > 0.95 * slowest);
        if (fit.chosen.work.seconds > slowest) slowest = fit.chosen.work.seconds;
        choices++;
        /* With one byte less than it needs, another mix is chosen. */
        const struct snug_fit less = search(f, &p, fit.chosen.total + SNUG_FIT_MARGIN - 1);
        if (less.fits) assert_string_not_equal(less.chosen.flags, fit.chosen.flags);
    }
    assert_true(choices >= limits - 1);
    assert_true(search(f, &p, smallest).fits);
    assert_false(search(f, &p, smallest - 1).fits);
    close_job(&p);
}

/* Every level in every layer, every micro-batch, with and without the update in backward. */
FIXTURE_TEST(test_no_mix_is_much_quicker) {
    static const char *const levels[] = {"elementwise", "ffn", "attention", "layer"};
    static const int64_t batches[] = {16, 8, 4, 2, 1};
    struct planned p;
    struct snug_priced *all;
    size_t count = 0;
    open_job(f, "num_train_epochs=1", &p);
    all = calloc(256 * 5 * 2, sizeof *all);
    assert_non_null(all);
    for (int mix = 0; mix < 256; mix++)
        for (size_t b = 0; b < 5; b++)
            for (int backward = 0; backward < 2; backward++) {
                struct snug_args *args;
                struct snug_run_plan trial;
                struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT] = {0};
                /* Every tenth, and all those of a single level. */
                if ((mix * 10 + (int)b * 2 + backward) % 9 && mix % 85) continue;
                struct snug_priced *one = &all[count++];
                snprintf(one->flags, sizeof one->flags,
                         "--recompute %s,%s,%s,%s --per_device_train_batch_size %d --gradient_accumulation_steps %d%s",
                         levels[mix & 3], levels[mix >> 2 & 3], levels[mix >> 4 & 3], levels[mix >> 6], (int)batches[b],
                         (int)(16 / batches[b]), backward ? " --update_in_backward" : "");
                check(f, snug_args_copy(f->ctx, p.args, &args));
                check(f, snug_fit_give(args, one));
                check(f, snug_data_pipeline_plan(&p.job.setup, args, SNUG_ROLE_TRAINING, pipelines));
                check(f, snug_run_plan_build(&p.job.setup, args, pipelines, &trial));
                snug_limits_account(&p.job.limits, &trial);
                one->total = trial.total;
                check(f, snug_run_plan_step(&trial, &p.rates, &one->work));
                snug_run_plan_free(&trial);
                snug_args_destroy(args);
            }
    const int64_t asked = p.job.plan.total, smallest = search(f, &p, 1).chosen.total + SNUG_FIT_MARGIN;
    for (int part = 0; part < 10; part++) {
        const int64_t limit = smallest + (asked - smallest) * part / 10;
        const struct snug_fit fit = search(f, &p, limit);
        assert_true(fit.fits);
        for (size_t i = 0; i < count; i++)
            if (all[i].total + SNUG_FIT_MARGIN <= limit && all[i].work.seconds * 1.1 < fit.chosen.work.seconds)
                fail_msg("%s takes %g s of %lld bytes, the choice %s %g", all[i].flags, all[i].work.seconds,
                         (long long)limit, fit.chosen.flags, fit.chosen.work.seconds);
    }
    free(all);
    close_job(&p);
}

FIXTURE_TEST(test_user_settings_are_kept) {
    static const char *const cases[][2] = {{"gradient_accumulation_steps=1", "accumulation"},
                                           {"recompute=elementwise", "--recompute"},
                                           {"gradient_checkpointing=False", "--recompute"},
                                           {"update_in_backward=False", "--update_in_backward"},
                                           /* 76 rows are no whole number of steps: other rows would be dropped */
                                           {"dataloader_drop_last=True", "accumulation"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct planned p;
        open_job(f, cases[i][0], &p);
        const struct snug_fit least = search(f, &p, 1);
        const int64_t asked = p.job.plan.total, smallest = least.chosen.total + SNUG_FIT_MARGIN;
        assert_null(strstr(least.chosen.flags, cases[i][1]));
        for (int part = 0; part < 4; part += is_long() ? 1 : 2)
            assert_null(strstr(search(f, &p, smallest + (asked - smallest) * part / 4).chosen.flags, cases[i][1]));
        close_job(&p);
    }
}

FIXTURE_TEST(test_rounding_comes_last) {
    struct planned p, exact;
    open_job(f, "", &p);
    open_job(f, "optim=adamw_torch_fused dtype=float32", &exact);
    /* Memory outside the arena is measured, and varies between measurements. */
    const int64_t beside = p.job.plan.total - exact.job.plan.total;
    const int64_t smallest = search(f, &exact, 1).chosen.total + SNUG_FIT_MARGIN + beside;
    const struct snug_fit less = search(f, &p, smallest - (1 << 16));
    assert_false(search(f, &p, smallest).chosen.approximate);
    assert_true(less.fits && less.chosen.approximate);
    close_job(&p);
    close_job(&exact);
}

/* Where copies are slow, the search offloads no more than it must; where a mix that rounds is much faster than the
   exact choice, it names that, too. */
FIXTURE_TEST(test_slow_offload) {
    struct planned p;
    int named = 0, partial = 0;
    open_job(f, "", &p);
    check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = SNUG_OP_FETCH, .byte = 1e-7}));
    check(f, snug_rates_add(&p.rates, (struct snug_rate){.kind = SNUG_OP_STORE, .byte = 1e-7}));
    const int64_t asked = p.job.plan.total, smallest = search(f, &p, 1).chosen.total + SNUG_FIT_MARGIN;
    for (int i = 1; i < 10; i += 3) {
        const struct snug_fit fit = search(f, &p, smallest + (asked - smallest) * i / 10);
        partial += strstr(fit.chosen.flags, "--offload_ratio 0.") != NULL;
        if (fit.rounding.work.seconds <= 0) continue;
        char *text;
        assert_true(!fit.chosen.approximate && fit.rounding.approximate);
        assert_true(fit.rounding.total <= fit.limit && 1.25 * fit.rounding.work.seconds < fit.chosen.work.seconds);
        check(f, snug_fit_sentence(f->ctx, &fit, &text));
        assert_contains(text, "with results that are not exactly the same");
        free(text);
        named++;
    }
    assert_true(named > 0 && partial > 0);
    close_job(&p);
}

/* ---- whole runs ----------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_fitted_run_is_the_same_run) {
    struct planned p;
    snug_train_result result;
    char words[512];
    if (SANITIZED) skip(); /* the allocator keeps freed memory, so that the process's memory varies */
    write_model(f, "wide", 0.1, 128, 4, VOCABULARY);
    /* Micro-batches would change the order of sums, and so the last bits. */
#define SAME WIDE " gradient_accumulation_steps=1 optim=adamw_torch_fused dtype=float32 num_train_epochs=1 "
    assert_int_equal(try_train(f, "plain", SAME, 0, &result), SNUG_OK);
    open_job(f, "gradient_accumulation_steps=1 optim=adamw_torch_fused dtype=float32 num_train_epochs=1", &p);
    const int64_t smallest = search(f, &p, 1).chosen.total, asked = p.job.plan.total;
    close_job(&p);
    f->log[0] = '\0';
    snprintf(words, sizeof words, SAME "fit=True memory_budget=%lld", (long long)((asked + smallest) / 2));
    if (try_train(f, "fitted", words, 0, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_contains(f->log, "--fit: --");
    assert_contains(f->log, "with the same results");
    assert_same_file(f, path_of(f, "plain/model.safetensors"), path_of(f, "fitted/model.safetensors"));
    assert_true(result.total.planned <= (asked + smallest) / 2);
}

FIXTURE_TEST(test_refusal_names_the_mix) {
    struct planned p;
    snug_plan *plan;
    char budget[32], flags[256];
    if (SANITIZED) skip(); /* the allocator keeps freed memory, so that the process's memory varies */
    open_job(f, "", &p);
    const int64_t smallest = search(f, &p, 1).chosen.total, asked = p.job.plan.total;
    snprintf(budget, sizeof budget, "%lld", (long long)((asked + smallest) / 2));
    assert_int_equal(snug_args_set(p.args, "memory_budget", budget), SNUG_OK);
    assert_int_equal(snug_plan_create(p.args, &plan), SNUG_E_DOES_NOT_FIT);
    char *text;
    check(f, snug_plan_text(plan, &text));
    assert_contains(text, "\n--fit would choose --");
    free(text);
    check(f, snug_plan_json(plan, &text));
    assert_contains(text, "\"fits\": true");
    free(text);
    snug_plan_destroy(plan);
    const char *message = strstr(snug_error_message(f->ctx), "--fit would add ");
    assert_non_null(message);
    assert_int_equal(sscanf(message, "--fit would add %255[^;]", flags), 1);
    *strstr(flags, ", which takes") = '\0';
    const struct snug_priced mix = {.approximate = false};
    struct snug_priced pasted = mix;
    snprintf(pasted.flags, sizeof pasted.flags, "%s", flags);
    check(f, snug_fit_give(p.args, &pasted));
    check(f, snug_plan_create(p.args, &plan));
    snug_plan_destroy(plan);
    /* If nothing fits, the message names the smallest mix. */
    assert_int_equal(snug_args_set(p.args, "memory_budget", "2MiB"), SNUG_OK);
    assert_int_equal(snug_args_set(p.args, "fit", "True"), SNUG_OK);
    assert_int_equal(snug_plan_create(p.args, &plan), SNUG_E_DOES_NOT_FIT);
    assert_contains(snug_error_message(f->ctx), "no mix of methods fits 2.0 MiB; the smallest takes");
    check(f, snug_plan_text(plan, &text));
    assert_contains(text, "\n--fit: no mix of methods fits 2.0 MiB");
    free(text);
    snug_plan_destroy(plan);
    /* A plan that fits is reported as such. */
    assert_int_equal(snug_args_set(p.args, "memory_budget", "20GiB"), SNUG_OK);
    check(f, snug_plan_create(p.args, &plan));
    check(f, snug_plan_text(plan, &text));
    assert_contains(text, "\n--fit: the requested plan fits: ");
    free(text);
    snug_plan_destroy(plan);
    close_job(&p);
}

FIXTURE_TEST(test_plan_has_the_time_of_the_run) {
    /* Rows of one length, so that the sizes of a million batches need not be scanned. */
    static const char *const runs[][2] = {{"max_steps=10", "the run's 10 steps about "},
                                          {"train_file=dummy:76x8 max_steps=1000000", " minutes\n"},
                                          {"train_file=dummy:76x8 max_steps=100000000", " min\n"}};
    for (int i = 0; i < 3; i++) {
        snug_plan *plan;
        char *text;
        snug_args *args = training_args(f, runs[i][0]);
        check(f, snug_plan_create(args, &plan));
        check(f, snug_plan_text(plan, &text));
        if (!strstr(text, runs[i][1])) fail_msg("%s: %s", runs[i][1], strstr(text, "A step takes"));
        free(text);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

FIXTURE_TEST(test_plan_lists_the_costs_of_methods) {
    snug_plan *plan;
    char *text;
    write_model(f, "wide", 0.1, 128, 4, VOCABULARY);
    snug_args *args = training_args(f, WIDE);
    check(f, snug_plan_create(args, &plan));
    check(f, snug_plan_text(plan, &text));
    assert_contains(text, "--recompute layer\n");
    assert_contains(text, "--per_device_train_batch_size 1 --gradient_accumulation_steps 16\n");
    free(text);
    check(f, snug_plan_json(plan, &text));
    json_t *json = json_loads(text, 0, NULL), *methods = json_object_get(json, "methods");
    assert_true(json_array_size(methods) >= 6);
    assert_true(json_is_null(json_object_get(json, "fit")));
    const json_t *here = json_array_get(methods, 0);
    assert_string_equal(json_string_value(json_object_get(here, "arguments")), "");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(here, "bytes"), "total")),
                     json_integer_value(json_object_get(json_object_get(json, "bytes"), "total")));
    for (size_t i = 1; i < json_array_size(methods); i++) {
        const json_t *method = json_array_get(methods, i), *bytes = json_object_get(method, "bytes");
        const char *key;
        json_t *value;
        int64_t sum = 0;
        json_object_foreach((json_t *)bytes, key, value) if (strcmp(key, "total") != 0) sum +=
            json_integer_value(value);
        assert_int_equal(sum, json_integer_value(json_object_get(bytes, "total")));
        assert_true(json_real_value(json_object_get(json_object_get(method, "step"), "seconds")) > 0);
    }
    json_decref(json);
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

TEST_MAIN(NULL, NULL)
