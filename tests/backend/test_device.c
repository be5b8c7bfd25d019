/* SPDX-License-Identifier: Apache-2.0 */
/* snug on a GPU apart from computing, with a simulated plug-in (tests/fake): choice of the device, planned and measured
   memory, refusals, fp16's loss scale, and reports. */
#include <math.h>

#include "fake_gpu.h"
#include "inspect/anatomy.h"
#include "inspect/plan.h"
#include "io/offload_file.h"
#include "train/device.h"
#include "training_fixture.h"

#define FIXTURE struct fixture *f, set_up_world, tear_down_world

#define ONE_GPU "driver 580.65.06 13000\ngpu 143771 0 7 NVIDIA H200\nvisible 0\n"
#define QUICK "device=cuda max_steps=3 logging_steps=1 per_device_train_batch_size=2 max_seq_length=16 "

#define GPU_RATES SNUG_SOURCE_DIR "/tests/golden/rates_gpu.json"

static int set_up_world(void **state) {
    begin_world();
    set_world(ONE_GPU "context 520\n");
    const int failed = set_up(state);
    setenv("SNUG_RATES", GPU_RATES, 1);
    return failed;
}

static int tear_down_world(void **state) {
    remove(world);
    return tear_down(state);
}

static void expect_failure(struct fixture *f, const char *words, snug_status status, const char *says_this) {
    snug_train_result result;
    assert_failed(f, words, try_train(f, "failed", words, 0, &result), status, says_this);
}

/* ---- offloading -------------------------------------------------------------------------------------------------- */

#define SMALL "device=cuda max_steps=6 logging_steps=1 per_device_train_batch_size=4 max_seq_length=16 "

/* The update's copies cross phases: evaluations, checkpoints, interruptions and the best model are in between. */
FIXTURE_TEST(test_offloaded_is_resident) {
    static const char *const kinds[] = {
        SMALL,
        SMALL "optim=adamw_8bit gradient_accumulation_steps=2",
        SMALL "bf16=True dtype=bfloat16 max_grad_norm=0",
        SMALL "optim=adafactor update_in_backward=True",
        SMALL "eval_strategy=steps eval_steps=2 validation_file=@dev.csv save_strategy=steps save_steps=2 "
              "load_best_model_at_end=True",
    };
    static const char *const classes[] = {"optimizer", "gradients,weights", "optimizer,gradients,weights,activations"};
    set_world(ONE_GPU);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        train(f, "resident", kinds[i]);
        /* A training has one of the classes in memory or on disk, and another the other way; others in make check. */
        for (size_t k = is_long() ? 0 : (i + !SANITIZED) % 3; k < 2 * sizeof classes / sizeof *classes;
             k += is_long() ? 1 : 3) {
            char words[512];
            snprintf(words, sizeof words, "%s offload=%s%s", kinds[i], classes[k / 2],
                     k % 2 ? " offload_dir=@disk" : "");
            assert_int_equal(try_train(f, "offloaded", words, 3, NULL), SNUG_E_INTERRUPTED);
            strcat(words, " resume_from_checkpoint=True");
            train(f, "offloaded", words);
            assert_same_file(f, path_of(f, "resident/model.safetensors"), path_of(f, "offloaded/model.safetensors"));
            assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "offloaded")), SNUG_OK);
        }
        assert_int_equal(snug_folder_remove(f->ctx, NULL, path_of(f, "resident")), SNUG_OK);
    }
}

#define LARGE "config_name=@large device=cuda max_steps=2 per_device_train_batch_size=4 max_seq_length=16 "

/* The search adds methods until the run fits its budget; only micro-batches change the order of sums. */
FIXTURE_TEST(test_fit) {
    snug_plan *plan;
    char words[256];
    write_model(f, "large", 0.1, 64, 2, 30522);
    set_world(ONE_GPU);
    snug_args *args = training_args(f, LARGE);
    assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
    const int64_t budget = snug_plan_total(plan) - snug_plan_bytes(plan, SNUG_MEMORY_OPTIMIZER) / 2;
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    snprintf(words, sizeof words, LARGE "gradient_accumulation_steps=1 fit=true memory_budget=%lld", (long long)budget);
    const snug_train_result result = train(f, "fitted", words);
    assert_true(result.total.planned <= budget);
    assert_contains(f->log, "--fit: --");
    assert_contains(f->log, ", with the same results");
    train(f, "plain", LARGE);
    assert_same_file(f, path_of(f, "plain/model.safetensors"), path_of(f, "fitted/model.safetensors"));
}

/* Steps by a loop of the user: before the last micro-batch, twice in a row, with weights read in between. */
static void own_loop(struct fixture *f, const char *words, float *values, size_t count) {
    snug_args *args = training_args(f, words);
    snug_session *session;
    if (snug_session_create(args, &session) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(snug_session_begin_epoch(session, 0), SNUG_OK);
    for (int step = 0; step < 7; step++) {
        double loss;
        assert_int_equal(snug_next_batch(session, NULL), SNUG_OK);
        assert_int_equal(snug_forward(session), SNUG_OK);
        assert_int_equal(snug_loss(session, &loss), SNUG_OK);
        assert_int_equal(snug_backward(session), SNUG_OK);
        if (step % 3 == 1) assert_int_equal(snug_clip_grad_norm(session, 1, NULL), SNUG_OK);
        if (step != 4) assert_int_equal(snug_optimizer_step(session), SNUG_OK);
        if (step == 2 || step == 5) assert_int_equal(snug_optimizer_step(session), SNUG_OK);
        if (step % 2) assert_int_equal(snug_get_parameter(session, "classifier.weight", values, 2 * 32), SNUG_OK);
        if (step != 4) assert_int_equal(snug_zero_grad(session), SNUG_OK);
    }
    assert_int_equal(snug_get_parameter(session, "bert.encoder.layer.0.intermediate.dense.weight", values, count),
                     SNUG_OK);
    snug_session_destroy(session);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_own_loop_with_offload) {
    enum { COUNT = 32 * 128 };
    static float resident[COUNT], offloaded[COUNT];
    set_world(ONE_GPU);
    own_loop(f, SMALL "gradient_accumulation_steps=2 max_steps=9", resident, COUNT);
    own_loop(f, SMALL "gradient_accumulation_steps=2 max_steps=9 offload=optimizer,weights", offloaded, COUNT);
    assert_memory_equal(resident, offloaded, sizeof resident);
    own_loop(f, SMALL "gradient_accumulation_steps=2 max_steps=9 offload=optimizer,weights,gradients", offloaded,
             COUNT);
    assert_memory_equal(resident, offloaded, sizeof resident);
    own_loop(f, SMALL "gradient_accumulation_steps=2 max_steps=9 offload=optimizer,weights,gradients offload_dir=@disk",
             offloaded, COUNT);
    assert_memory_equal(resident, offloaded, sizeof resident);
}

FIXTURE_TEST(test_broken_disk) {
    set_world(ONE_GPU);
    expect_broken_disk(f, SMALL "offload=optimizer,weights");
    expect_broken_disk(f, SMALL "offload=optimizer");
}

/* The plan's figures of offloading, with step.total.seconds from GPU_RATES: a byte takes 0.02 ns from or to host
   memory, 0.5 ns from a disk, 1 ns to it. */
static struct snug_plan offload_plan(struct fixture *f, const char *words) {
    snug_args *args = training_args(f, words);
    snug_plan *plan;
    if (snug_plan_create(args, &plan) != SNUG_OK) fail_msg("%s: %s", words, snug_error_message(f->ctx));
    struct snug_plan out = {.offloaded_total = plan->offloaded_total, .bounce = plan->bounce};
    memcpy(out.bytes, plan->bytes, sizeof out.bytes);
    out.step.total.seconds = plan->methods[0].work.seconds;
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    return out;
}

/* The disk's seconds are planned, not those of host memory, and what of it takes host memory. */
FIXTURE_TEST(test_plan_of_a_disk) {
    enum { VARIATION = 4 << 20 }; /* of the process's own memory */
    write_model(f, "large", 0.1, 64, 2, 30522);
    const struct snug_plan memory = offload_plan(f, LARGE "offload=optimizer"),
                           disk = offload_plan(f, LARGE "offload=optimizer offload_dir=@work");
    assert_true(disk.offloaded_total == memory.offloaded_total && disk.bounce > 0 && memory.bounce == 0);
    const int64_t less = memory.bytes[SNUG_MEMORY_HOST] - disk.bytes[SNUG_MEMORY_HOST];
    assert_true(disk.offloaded_total > 2 * VARIATION);
    assert_true(llabs(less - (disk.offloaded_total - disk.bounce)) < VARIATION);
    const double bytes = (double)disk.offloaded_total;
    assert_true(disk.step.total.seconds - memory.step.total.seconds > 1.3e-9 * bytes);
    assert_true(disk.step.total.seconds < memory.step.total.seconds + 1.6e-9 * bytes);
}

/* A file of rates from before there were any of a disk: the seconds are refused, not guessed. */
FIXTURE_TEST(test_rates_without_a_disk) {
    json_error_t error;
    json_t *rates = json_load_file(GPU_RATES, 0, &error), *items = json_object_get(rates, "seconds");
    for (size_t i = json_array_size(items); i-- > 0;)
        if (json_is_true(json_object_get(json_array_get(items, i), "file"))) json_array_remove(items, i);
    assert_int_equal(json_dump_file(rates, path_of(f, "rates.json"), 0), 0);
    json_decref(rates);
    setenv("SNUG_RATES", path_of(f, "rates.json"), 1);
    offload_plan(f, SMALL "offload=optimizer");
    snug_plan *plan;
    snug_args *args = training_args(f, SMALL "offload=optimizer offload_dir=@work");
    assert_int_equal(snug_plan_create(args, &plan), SNUG_E_INPUT);
    assert_contains(snug_error_message(f->ctx), "lack those of copies from and to the offload file: measure them");
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    train(f, "trained", SMALL "offload=optimizer offload_dir=@work"); /* a training needs no rates */
    assert_contains(f->log, "\nTime       unknown: ");
}

/* ---- the plug-in ---------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_plugin_of_another_build) {
    const struct snug_backend *backend;
    for (int number = 1; number <= 5; number++) {
        char text[128];
        snprintf(text, sizeof text, ONE_GPU "foreign %d\n", number);
        set_world(text);
        assert_int_equal(snug_backend_cuda(f->ctx, &backend), SNUG_E_UNSUPPORTED);
        assert_contains(snug_error_message(f->ctx), "libsnug_cuda.so is of another build of snug");
        snug_clear_error(f->ctx);
    }
    set_world(ONE_GPU);
    assert_int_equal(snug_backend_cuda(f->ctx, &backend), SNUG_OK);
    assert_string_equal(backend->name, "cuda");
}

/* Files that are not libraries, or the wrong ones, under a library's name, next to a copy of the program: its folder is
   searched first. */
FIXTURE_TEST(test_wrong_libraries) {
    static const struct {
        const char *library, *says;
        bool text;
    } cases[] = {{"libsnug_cuda.so", "libsnug_cuda.so is of another build of snug", false},
                 {"libsnug_cuda.so", "libsnug_cuda.so cannot be opened: ", true},
                 {"libcuda.so.1", "libcuda.so.1 lacks calls that every driver of CUDA 7", false},
                 {"libnvidia-ml.so.1", "libnvidia-ml.so.1 lacks calls that the driver 510", false}};
    char folder[256], path[300], environment[512], output[8192];
    snprintf(folder, sizeof folder, "%s/wrong-%d", SNUG_FAKE_DIR, (int)getpid());
    assert_int_equal(snug_folder_create(f->ctx, folder), SNUG_OK);
    snprintf(path, sizeof path, "%s/snug", folder);
    assert_int_equal(link(SNUG_BINARY_DIR "/snug", path), 0);
    snprintf(environment, sizeof environment, "LD_LIBRARY_PATH='%s:%s'", folder, SNUG_FAKE_DIR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].library);
        if (cases[i].text)
            write_bytes(path, "no library", 10);
        else
            assert_int_equal(link(SNUG_FAKE_DIR "/libfake_nothing.so", path), 0);
        if (run_in(folder, environment, "doctor", output, sizeof output) != 0) fail_msg("%s", output);
        says(output, cases[i].says);
        remove(path);
    }
    assert_int_equal(snug_folder_remove(f->ctx, NULL, folder), SNUG_OK);
    /* None is found either where the program is alone in its folder, and where NVML's has a wrong name or none. */
    if (run("SNUG_NVML=" SNUG_FAKE_DIR "/libfake_nothing.so " WITH_FAKES, "gpu", output, sizeof output) != 0)
        fail_msg("%s", output);
    says(output, "Memory, load and processes are unknown: ");
    assert_int_equal(run("SNUG_NVML= " WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "NVIDIA driver 580.65.06, CUDA 13.0");
}

FIXTURE_TEST(test_device_is_chosen) {
    assert_string_equal(train(f, "a", "max_steps=1").device, "NVIDIA H200"); /* --device auto */
    assert_null(train(f, "b", "max_steps=1 use_cpu=true device=cuda").device);
    set_world(ONE_GPU "unusable\n");
    assert_null(train(f, "c", "max_steps=1").device);
    assert_contains(f->log, "using the CPU: its context cannot be made: out of memory");
    expect_failure(f, QUICK, SNUG_E_UNSUPPORTED, "--device cuda: its context cannot be made: out of memory");
}

/* ---- training ------------------------------------------------------------------------------------------------- */

/* The arena is reached through copies, no row is updated lazily, and the batch has a place in it: the losses are the
   CPU's. */
FIXTURE_TEST(test_training_matches_the_cpu) {
    static const char *const words[] = {"", "task=mlm train_file=@train.txt validation_file=@dev.txt",
                                        "gradient_accumulation_steps=2 update_in_backward=true max_grad_norm=0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char all[512];
        snprintf(all, sizeof all,
                 QUICK "validation_file=@dev.csv max_eval_samples=4 eval_strategy=steps eval_steps=3 %s", words[i]);
        set_world(ONE_GPU "context 520\n");
        const snug_train_result device = train(f, path_of(f, "device"), all);
        strcat(all, " device=cpu");
        const snug_train_result cpu = train(f, path_of(f, "cpu"), all);
        assert_float_equal(device.train_loss, cpu.train_loss, 1e-4);
        assert_float_equal(metric_of(device.metrics, "eval_loss"), metric_of(cpu.metrics, "eval_loss"), 1e-4);
        assert_null(cpu.device);
        assert_string_equal(device.device_method, "NVML's figure of this process");
        assert_true(device.loss_scale == 0);
    }
}

/* The loss scale begins as torch's; a gradient that overflows fp16 halves it and changes nothing; at its minimum the
   run ends. */
FIXTURE_TEST(test_loss_scale) {
    write_text(f, "far.csv", "sentence,label\nw1 good,3e38\nw2 bad,3e38\n");
    assert_int_equal(try_train(f, "far", QUICK "fp16=true max_steps=10 train_file=@far.csv", 0, NULL), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "the last 10 steps had no finite loss");
    assert_contains(f->log, "steps skipped so far");
    const snug_train_result one = train(f, "fp16", QUICK "fp16=true max_steps=10");
    assert_true(one.loss_scale > 0 && one.loss_scale <= 65536);
    assert_true(isfinite(one.train_loss));
    snug_args *args = training_args(f, QUICK "fp16=true");
    snug_session *s;
    const snug_batch_info *info;
    double loss, norm;
    float before[32], after[32], gradient[32];
    assert_int_equal(snug_session_create(args, &s), SNUG_OK);
    assert_int_equal(snug_session_begin_epoch(s, 0), SNUG_OK);
    for (int step = 0; step < 2; step++) {
        assert_int_equal(snug_next_batch(s, &info), SNUG_OK);
        assert_int_equal(snug_forward(s), SNUG_OK);
        assert_int_equal(snug_loss(s, &loss), SNUG_OK);
        assert_int_equal(snug_backward(s), SNUG_OK);
        assert_int_equal(snug_get_parameter(s, "bert.embeddings.LayerNorm.weight", before, 32), SNUG_OK);
        assert_int_equal(snug_get_gradient(s, "bert.embeddings.LayerNorm.weight", gradient, 32), SNUG_OK);
        assert_true(fabsf(gradient[0]) < 1); /* as without a scale */
        if (step == 1) {                     /* a step that overflows */
            const float scale[4] = {INFINITY};
            assert_int_equal(snug_tensor_write(&s->training->program, &s->memory, s->scaler, 0, 1, scale), SNUG_OK);
            assert_int_equal(snug_session_head(s, &loss), SNUG_OK);
            assert_int_equal(snug_session_backward(s), SNUG_OK);
            assert_int_equal(snug_clip_grad_norm(s, 1, &norm), SNUG_OK);
            assert_int_equal(s->skipped, 1);
            assert_contains(f->log, "fp16: 1 steps skipped so far");
        }
        assert_int_equal(snug_optimizer_step(s), SNUG_OK); /* the first time without clipping */
        assert_int_equal(snug_get_parameter(s, "bert.embeddings.LayerNorm.weight", after, 32), SNUG_OK);
        bool same = true;
        for (int i = 0; i < 32; i++) same &= before[i] == after[i];
        assert_int_equal(same, step == 1);
        assert_int_equal(snug_scheduler_step(s), SNUG_OK);
        assert_int_equal(snug_zero_grad(s), SNUG_OK);
    }
    const float least[4] = {1e-5f};
    assert_int_equal(snug_tensor_write(&s->training->program, &s->memory, s->scaler, 0, 4, least), SNUG_OK);
    assert_int_equal(snug_session_look(s), SNUG_E_NUMERIC);
    assert_contains(snug_error_message(f->ctx), "use --bf16");
    snug_session_destroy(s);
    snug_args_destroy(args);
}

/* Resuming a run in another precision is logged. */
FIXTURE_TEST(test_resumed_in_another_precision) {
    train(f, "saved", QUICK "tf32=true save_strategy=steps save_steps=2");
    train(f, "saved", QUICK "save_strategy=no resume_from_checkpoint=@saved/checkpoint-2");
    assert_contains(f->log, "compute was \"TF32\" and is \"F32\"");
}

/* The failure of a kernel is reported where the host waits for it. */
FIXTURE_TEST(test_failed_kernel) {
    for (int blames = 0; blames < 2; blames++) {
        snug_args *args = training_args(f, QUICK);
        snug_session *s;
        const snug_batch_info *info;
        double loss;
        setenv("CUDA_LAUNCH_BLOCKING", blames ? "1" : "0", 1);
        set_world(ONE_GPU);
        assert_int_equal(snug_session_create(args, &s), SNUG_OK);
        assert_int_equal(snug_session_begin_epoch(s, 0), SNUG_OK);
        assert_int_equal(snug_next_batch(s, &info), SNUG_OK);
        assert_int_equal(snug_forward(s), SNUG_OK);
        set_world(ONE_GPU "broken\n");
        assert_int_equal(snug_loss(s, &loss), SNUG_E_INTERNAL);
        assert_contains(snug_error_message(f->ctx), "GPU: an illegal memory access");
        assert_int_equal(!strstr(snug_error_message(f->ctx), "CUDA_LAUNCH_BLOCKING=1"), blames);
        snug_session_destroy(s);
        snug_args_destroy(args);
    }
    unsetenv("CUDA_LAUNCH_BLOCKING");
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_refusals) {
    snug_rates *rates;
    snug_args *args = plain_args(f, "device=cuda");
    set_world(ONE_GPU "unusable\n");
    assert_int_equal(snug_rates_create(args, &rates), SNUG_E_UNSUPPORTED);
    snug_args_destroy(args);
    set_world(ONE_GPU);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    expect_failure(f, QUICK "memory_budget=2M", SNUG_E_USAGE, "these are not the rates of a GPU");
    setenv("SNUG_RATES", GPU_RATES, 1);
    set_world(ONE_GPU "free 100000000\n");
    write_model(f, "enormous", 0.1, 8192, 2, 10000000);
    expect_failure(f, QUICK "offload=optimizer config_name=@enormous", SNUG_E_DOES_NOT_FIT, "to host memory, of which");
    if (snug_offload_file_is_memory("/dev/shm"))
        expect_failure(f, QUICK "offload=optimizer config_name=@enormous offload_dir=/dev/shm", SNUG_E_DOES_NOT_FIT,
                       "to host memory, of which");
    set_world(ONE_GPU "free 1\ncontext 20\nprocess 0 4711 900 python\n");
    expect_failure(f, QUICK, SNUG_E_DOES_NOT_FIT, "of NVIDIA H200");
    assert_contains(snug_error_message(f->ctx), "more than the available 21.0 MiB");
    assert_contains(snug_error_message(f->ctx), "no mix of methods fits 21.0 MiB; the smallest takes ");
    assert_contains(snug_error_message(f->ctx), "other processes on it: 4711 python 900.0 MiB");
    /* A GPU without the memory to measure its rates: the plan has no seconds, a refusal no mix. */
    setenv("SNUG_RATES", "", 1);
    set_world(ONE_GPU "free 1\ntaken\n");
    expect_failure(f, QUICK, SNUG_E_DOES_NOT_FIT, "a smaller --per_device_train_batch_size needs less");
    expect_failure(f, "device=cuda max_steps=3 per_device_train_tokens=64 max_seq_length=16", SNUG_E_DOES_NOT_FIT,
                   "a smaller --per_device_train_tokens needs less");
    assert_contains(f->log, "the seconds of a step are unknown: ");
    expect_failure(f, QUICK "fit=true", SNUG_E_MEMORY, "--fit needs the seconds of a step");
    set_world(ONE_GPU "taken\n");
    args = training_args(f, NULL);
    assert_int_equal(snug_args_set(args, "device", "cuda"), SNUG_OK);
    snug_plan *plan;
    char *text;
    assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
    assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
    assert_null(strstr(text, "A step takes"));
    free(text);
    assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
    assert_contains(text, "\"seconds_per_step\": null");
    assert_contains(text, "\"rates\": null");
    free(text);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
    setenv("SNUG_RATES", GPU_RATES, 1);
    set_world(ONE_GPU "free 1\n");
    expect_failure(f, QUICK "memory_budget=2M", SNUG_E_DOES_NOT_FIT, "more than --memory_budget of 2.0 MiB");
    assert_null(strstr(snug_error_message(f->ctx), "other processes"));
    set_world(ONE_GPU "taken\n");
    expect_failure(f, QUICK, SNUG_E_DOES_NOT_FIT, "another process allocated memory after the plan was made; wait");
}

/* A GPU without measured rates has those of snug's table, scaled, if the table has its model. */
FIXTURE_TEST(test_time_without_rates) {
    setenv("SNUG_RATES", "", 1);
    set_world(ONE_GPU "context 520\n");
    train(f, "known", QUICK);
    assert_contains(f->log, "\nTime       about ");
    assert_contains(f->log, "snug's table");
    f->log[0] = '\0';
    set_world("driver 580.65.06 13000\ngpu 143771 0 7 Some Card\nvisible 0\ncontext 520\n");
    train(f, "unknown", QUICK);
    assert_contains(f->log, "\nTime       unknown: ");
}

/* ---- the context ---------------------------------------------------------------------------------------------- */

/* Kernels that the driver loads during training: the next plan includes their memory. */
static void grow(void *user, const snug_event *event) {
    (void)user;
    if (event->kind == SNUG_EVENT_STEP)
        set_world("driver 580.65.06 13000\ngpu 143771 1600 7 NVIDIA H200\nvisible 0\nprocess 0 self 600 snug\n");
}

static int64_t context_of_run(struct fixture *f, const char *output, void (*on_event)(void *, const snug_event *)) {
    const snug_callbacks callbacks = {.on_event = on_event};
    snug_train_result result;
    snug_args *args = training_args(f, QUICK);
    assert_int_equal(snug_args_set(args, "output_dir", path_of(f, "%s", output)), SNUG_OK);
    if (train_args(f, args, &callbacks, &result) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
    snug_args_destroy(args);
    return result.memory[SNUG_MEMORY_CONTEXT].planned;
}

FIXTURE_TEST(test_context_size_is_stored) {
    assert_int_equal(context_of_run(f, "first", grow), ((int64_t)520 << 20) + SNUG_GPU_GROWTH_BYTES);
    set_world(ONE_GPU "context 520\n");
    const int64_t learnt = context_of_run(f, "second", grow) - ((int64_t)520 << 20);
    assert_in_range(learnt, 60 << 20, 80 << 20); /* 80 MiB minus the arena */
    /* A context that grows less replaces the stored figure. */
    set_world(ONE_GPU "context 580\n");
    context_of_run(f, "less", grow);
    set_world(ONE_GPU "context 520\n");
    assert_in_range(context_of_run(f, "again", NULL) - ((int64_t)520 << 20), 1 << 20, 30 << 20);
    /* An estimate if nothing is stored or the file is damaged; 0 if an earlier job has loaded the kernels. */
    static const struct {
        const char *world, *remembered;
        int context; /* MiB */
    } cases[] = {
        {ONE_GPU "context 520\n", "[", 532},
        {ONE_GPU "context 520\n", "{\"F32 training\": -5}", 532},
        {ONE_GPU "context 520\n", "{\"F32 training\": {\"growth\": 5242880}}", 532},
        {ONE_GPU "context 520\n", "{\"F32 training\": {\"growth\": 5242880, \"captured\": 0}}", 525},
        {ONE_GPU "context 520\nanswer nvmlSystemGetDriverVersion 3\n", "{}", 532},
        {ONE_GPU "process 0 self 520 snug\nactive\n", "{}", 520},
        {ONE_GPU "failing 4\n", "{}", 76}, /* the driver's figure */
        {ONE_GPU "context 520\nprocess 0 4711 20 python\n", "{}", 532},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = path_of(f, "cache/gpu-%s-NVIDIA-H200-580.65.06.json", SNUG_VERSION);
        assert_true(snug_file_exists(NULL, path));
        write_bytes(path, cases[i].remembered, strlen(cases[i].remembered));
        set_world(cases[i].world);
        assert_int_equal(context_of_run(f, "other", NULL), (int64_t)cases[i].context << 20);
    }
    assert_contains(f->log, "rewriting it");
    assert_contains(f->log, "other processes on NVIDIA H200: 4711 python 20.0 MiB");
    setenv("SNUG_CACHE", "/dev/null/cache", 1);
    set_world(ONE_GPU "context 520\n");
    assert_int_equal(context_of_run(f, "third", grow), ((int64_t)520 << 20) + SNUG_GPU_GROWTH_BYTES);
    setenv("SNUG_CACHE", path_of(f, "cache"), 1);
}

/* A decoder whose files are bf16, without a word of it in config.json. */
FIXTURE_TEST(test_decoder_in_bf16) {
    write_other_families(f, 32);
    set_world(ONE_GPU "context 520\n");
    train(f, "start",
          "config_name=@llama task=clm train_file=@train.txt line_by_line=True dtype=bfloat16 device=cpu max_steps=1");
    json_t *config = read_json(f, path_of(f, "start/config.json"));
    json_object_del(config, "dtype");
    char *text = json_dumps(config, 0);
    write_text(f, "start/config.json", text);
    free(text);
    json_decref(config);
    for (int i = 0; i < 2; i++) {
        *f->log = '\0';
        train(f, i ? "single" : "half",
              i ? "config_name=@start model_name_or_path=@start task=clm train_file=@train.txt line_by_line=True "
                  "max_steps=1 "
                  "device=cuda bf16=False"
                : "config_name=@start model_name_or_path=@start task=clm train_file=@train.txt line_by_line=True "
                  "max_steps=1 "
                  "device=cuda");
        assert_int_equal(strstr(f->log, "computing in bf16, the type of the model's files") != NULL, !i);
    }
    /* What trains nothing stores it without masters, and computes the same; so do answers with --bf16. */
    static const struct {
        enum snug_command command;
        const char *words;
    } cases[] = {{SNUG_COMMAND_EVAL, ""}, {SNUG_COMMAND_EVAL, " bf16=True"}, {SNUG_COMMAND_GENERATE, " bf16=True"}};
    snug_metrics metrics[2];
    int64_t weights[3];
    for (int i = 0; i < 3; i++) {
        char words[256];
        struct snug_job job;
        snprintf(words, sizeof words, "model_name_or_path=@start device=cuda %s%s",
                 i < 2 ? "task=clm validation_file=@train.txt line_by_line=True" : "prompt=gold max_new_tokens=4",
                 cases[i].words);
        snug_args *args = plain_args(f, words);
        if (snug_job_open(args, cases[i].command, &job) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        weights[i] = job.plan.bytes[SNUG_MEMORY_WEIGHTS];
        snug_job_close(&job);
        if (i < 2 && evaluate_args(f, args, NULL, &metrics[i]) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_true(metric_of(&metrics[0], "eval_loss") == metric_of(&metrics[1], "eval_loss"));
    assert_true(2 * weights[0] < weights[1]);
    assert_int_equal(weights[2], weights[0]);
}

/* Without a cache folder, in 16 bits. */
FIXTURE_TEST(test_evaluation) {
    static const char *const variables[] = {"SNUG_CACHE", "XDG_CACHE_HOME", "HOME"};
    char before[3][512] = {{0}};
    snug_metrics metrics[2];
    train(f, "out", QUICK);
    for (int fp16 = 0; fp16 < 2; fp16++) {
        snug_args *args =
            plain_args(f, "device=cuda model_name_or_path=@out validation_file=@dev.csv max_eval_samples=4");
        set_world(ONE_GPU "context 520\n");
        if (fp16) assert_int_equal(snug_args_set(args, "fp16_full_eval", "True"), SNUG_OK);
        for (int i = 0; i < 3; i++) {
            const char *value = getenv(variables[i]);
            snprintf(before[i], sizeof before[i], "%s", value ? value : "");
            unsetenv(variables[i]);
        }
        if (!fp16) context_of_run(f, "untold", grow); /* its measurement is lost */
        if (evaluate_args(f, args, NULL, &metrics[fp16]) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        for (int i = 0; i < 3; i++)
            if (*before[i]) setenv(variables[i], before[i], 1);
        snug_args_destroy(args);
    }
    assert_float_equal(metric_of(&metrics[0], "eval_loss"), metric_of(&metrics[1], "eval_loss"), 1e-2);
}

/* What is frozen is stored in fp16, and saved with the bits of its file. */
FIXTURE_TEST(test_frozen_in_fp16) {
    static const char name[] = "bert.encoder.layer.0.intermediate.dense.weight";
    float values[2][32 * 128];
    set_world(ONE_GPU "context 520\n");
    const snug_train_result plain = train(f, "start", QUICK);
    const snug_train_result frozen =
        train(f, "frozen", QUICK "fp16=true freeze=base_model model_name_or_path=@start config_name=");
    for (int i = 0; i < 2; i++) {
        struct snug_safetensors files;
        const char *path = path_of(f, "%s/model.safetensors", i ? "frozen" : "start");
        assert_int_equal(snug_safetensors_open(f->ctx, NULL, path, &files), SNUG_OK);
        assert_int_equal(
            snug_safetensors_read(f->ctx, &files, snug_safetensors_find(&files, name), 0, 32 * 128, values[i]),
            SNUG_OK);
        snug_safetensors_close(&files);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    assert_true(frozen.memory[SNUG_MEMORY_WEIGHTS].planned < 3 * plain.memory[SNUG_MEMORY_WEIGHTS].planned / 4);
}

struct tokens {
    int count;
    double scores[256];
    char labels[256][16];
};

static snug_status note_token(void *user, const snug_prediction *row) {
    struct tokens *tokens = user;
    assert_in_range(tokens->count, 0, 255);
    tokens->scores[tokens->count] = row->score;
    snprintf(tokens->labels[tokens->count++], sizeof *tokens->labels, "%s", row->label);
    return SNUG_OK;
}

/* A chunk's logits of a large vocabulary come from the device in pieces. */
FIXTURE_TEST(test_logits_in_pieces) {
    enum { ROWS = 8, MASKS = 20, ENTRIES = 60000 }; /* 69 rows of logits are 16 MiB */
    static struct tokens tokens[2];
    char text[4096] = "";
    write_model(f, "large", 0, 8, 1, ENTRIES);
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < MASKS; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "w%d [MASK] ", (row * MASKS + i) % WORDS);
        strcat(text, "\n");
    }
    write_text(f, "masked.txt", text);
    train(f, "out", QUICK " max_seq_length=64 config_name=@large task=mlm line_by_line=True train_file=@train.txt");
    for (int i = 0; i < 2; i++) {
        snug_args *args = plain_args(f, "model_name_or_path=@out tokenizer_name=@model task=mlm test_file=@masked.txt");
        set_world(ONE_GPU);
        set_args(f, args, i ? "device=cuda" : "device=cpu");
        if (snug_predict(args, NULL, note_token, &tokens[i]) != SNUG_OK) fail_msg("%s", snug_error_message(f->ctx));
        snug_args_destroy(args);
    }
    assert_int_equal(tokens[0].count, ROWS * MASKS);
    assert_memory_equal(tokens[0].labels, tokens[1].labels, sizeof tokens[0].labels);
    for (int i = 0; i < tokens[0].count; i++)
        assert_float_equal(tokens[0].scores[i], tokens[1].scores[i], 1e-4 * tokens[0].scores[i]);
}

/* ---- reports -------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(test_plan) {
    static const struct {
        const char *words, *says[3];
    } cases[] = {
        {"tf32=true", {"on the GPU, without host", "NVIDIA H200", "TF32"}},
        {"tf32=true dtype=bfloat16", {"TF32 with bf16 weights", "it fits", NULL}},
        {"fp16=true", {"fp16 with fp32 masters and loss scaling", NULL}},
        {"bf16=true", {"bf16 with fp32 masters", NULL}},
        {"bf16=true dtype=bfloat16", {"bf16 with bf16 weights", NULL}},
        {"offload=optimizer", {"to page-locked host memory: optimizer ", "it fits", " steps about "}},
        {"offload=optimizer offload_dir=@work", {"/work through 0.0 MiB of page-locked host memory: optimizer ", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snug_args *args = training_args(f, cases[i].words);
        snug_plan *plan;
        char *text;
        assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
        assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
        for (int k = 0; k < 3 && cases[i].says[k]; k++) assert_contains(text, cases[i].says[k]);
        free(text);
        assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
        assert_contains(text, "\"device\": \"NVIDIA H200\"");
        free(text);
        snug_plan_destroy(plan);
        snug_args_destroy(args);
    }
}

/* The experiment up to the machine's peak rates, which only a GPU reaches in a moment. */
static void take_at_last_step(void *user, const snug_event *event) {
    *(int64_t *)user = event->step;
    if (event->step == event->max_steps) set_world(ONE_GPU "taken\nprocess 0 self 600 snug\n");
}

FIXTURE_TEST(test_anatomy) {
    snug_args *args = plain_args(f, "device=cuda config_name=@model train_file=dummy:32x8 bf16=true");
    snug_anatomy *anatomy;
    int64_t steps = 0;
    assert_int_equal(
        snug_anatomy_create(args, &(snug_callbacks){.user = &steps, .on_event = take_at_last_step}, &anatomy),
        SNUG_E_MEMORY);
    assert_contains(snug_error_message(f->ctx), "the arena cannot be had");
    assert_int_equal(steps, 8); /* the whole epoch, unlike on a CPU */
    snug_args_destroy(args);
    /* Of an existing model, a step of two micro-batches; without NVML. */
    set_world(ONE_GPU);
    train(f, "out", QUICK "max_steps=1");
    set_world(ONE_GPU "failing 4\n");
    args = plain_args(
        f, "device=cuda model_name_or_path=@out train_file=dummy:16x8 gradient_accumulation_steps=2 max_steps=1 "
           "per_device_train_batch_size=2 offload=optimizer,weights");
    assert_int_equal(
        snug_anatomy_create(args, &(snug_callbacks){.user = &steps, .on_event = take_at_last_step}, &anatomy),
        SNUG_E_MEMORY);
    assert_int_equal(steps, 1);
    assert_int_equal(snug_args_set(args, "train_file", "none.csv"), SNUG_OK);
    assert_int_equal(snug_anatomy_create(args, NULL, &anatomy), SNUG_E_IO);
    snug_args_destroy(args);
}

static snug_status count_verdicts(void *user, const snug_check *check) {
    assert_string_equal(check->device, "cuda");
    ((int *)user)[check->result]++;
    return check->result == SNUG_CHECK_FAILED ? SNUG_E_INTERNAL : SNUG_OK;
}

/* On a GPU the number of threads does not matter, and the order of sums may differ. */
FIXTURE_TEST(test_verify) {
    int verdicts[3] = {0};
    set_world(ONE_GPU "context 2000\n");
    snug_args *args =
        plain_args(f, "config_name=@model device=cuda max_steps=2 per_device_train_batch_size=2 max_seq_length=8 "
                      "fp16=true output_dir=@work");
    if (snug_verify(args, &(snug_callbacks){0}, count_verdicts, verdicts) != SNUG_OK)
        fail_msg("%s", snug_error_message(f->ctx));
    assert_int_equal(verdicts[SNUG_CHECK_PASSED], 9);
    assert_int_equal(verdicts[SNUG_CHECK_SKIPPED], 0);
    snug_args_destroy(args);
}

FIXTURE_TEST(test_doctor) {
    static const struct {
        const char *world, *arguments, *says[3];
        int code;
    } cases[] = {
        {ONE_GPU "process 0 4711 990 python\n",
         "",
         {"libsnug_cuda.so works", "the GPU NVIDIA H200: --device auto takes the first one that works",
          "1 process on it"},
         0},
        {ONE_GPU "process 0 4711 990 python\nprocess 0 4712 90 python\nfailing 4\n",
         "--device cuda",
         {"requested by --device cuda", "a GPU then counts the memory of all its processes",
          "libnvidia-ml.so.1: Insufficient"},
         0},
        {ONE_GPU "process 0 4711 990 python\nprocess 0 4712 90 python\n",
         "--use_cpu",
         {"requested by --use_cpu", "2 processes on it"},
         0},
        {ONE_GPU "unusable\n", "", {"training on the GPU: its context cannot be made", "the CPU: its context"}, 0},
        {ONE_GPU, "--fp16", {"the GPU NVIDIA H200"}, 0},
        {ONE_GPU, "--device cuda --offload optimizer --offload_dir out", {"requested by --device cuda"}, 0},
        {ONE_GPU, "--use_cpu --fp16", {"Refused    --fp16: fp16 needs a GPU"}, 2},
    };
    char path[600], output[8192];
    snprintf(path, sizeof path, "%s/snug", SNUG_FAKE_DIR);
    unlink(path);
    assert_int_equal(link(SNUG_BINARY_DIR "/snug", path), 0);
    set_world(ONE_GPU);
    assert_int_equal(run_in(SNUG_FAKE_DIR, "CUDA_VISIBLE_DEVICES=0 " WITH_FAKES, "doctor", output, sizeof output), 0);
    says(output, "takes the first one that works (of those that CUDA_VISIBLE_DEVICES leaves)");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[128];
        set_world(cases[i].world);
        snprintf(arguments, sizeof arguments, "doctor %s", cases[i].arguments);
        assert_int_equal(run_in(SNUG_FAKE_DIR, WITH_FAKES, arguments, output, sizeof output), cases[i].code);
        for (int k = 0; k < 3 && cases[i].says[k]; k++) says(output, cases[i].says[k]);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    start_with_fakes("test_device", argv);
    return run_registered(NULL, NULL);
}
