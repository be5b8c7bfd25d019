/* SPDX-License-Identifier: Apache-2.0 */
/* Times of single operations, the operation named by a failure, peak rates, and the anatomy's figures compared with the
   plan's. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/anatomy.h"
#include "measure/rates.h"
#include "run/run.h"
#include "test.h"

static snug_context *ctx;

/* ---- a backend as a device's is: operations return before they are done ------------------------------------------ */

struct snug_timestamps {
    size_t count;
};

static int timestamps_alive;

static snug_status quick_op(struct snug_run *run, const struct snug_op *op) {
    (void)run, (void)op;
    return SNUG_OK;
}

static snug_status failing_op(struct snug_run *run, const struct snug_op *op) {
    (void)op;
    return snug_fail(run->ctx, SNUG_E_INTERNAL, "GPU: an illegal memory access");
}

static snug_status begin(struct snug_run *run, enum snug_phase phase, bool *done) {
    (void)run, (void)phase;
    *done = false;
    return SNUG_OK;
}

static snug_status end(struct snug_run *run, enum snug_phase phase) {
    if (phase == SNUG_PHASE_UPDATE) return snug_fail(run->ctx, SNUG_E_INTERNAL, "GPU: a launch failed");
    return SNUG_OK;
}

static snug_status record_timestamp(struct snug_run *run, struct snug_timestamps **timestamps, size_t number) {
    if (!*timestamps) {
        RETURN_IF_ERROR(snug_alloc(run->ctx, 1, sizeof **timestamps, (void **)timestamps));
        timestamps_alive++;
    }
    assert_true(number <= (*timestamps)->count + 1);
    (*timestamps)->count = number;
    return SNUG_OK;
}

/* From timestamp i - 1 to timestamp i it took i seconds. */
static snug_status read_timestamps(struct snug_run *run, const struct snug_timestamps *timestamps, double seconds[],
                                   size_t count) {
    (void)run;
    assert_int_equal(timestamps->count, count - 1);
    for (size_t i = 0; i < count; i++) seconds[i] = (double)i;
    return SNUG_OK;
}

static void free_timestamps(struct snug_timestamps *timestamps) {
    timestamps_alive--;
    free(timestamps);
}

static snug_status copy_op(struct snug_run *run, const struct snug_op *op) {
    struct snug_copy_times *times = run->copy_times;
    (void)op;
    if (!times) return SNUG_OK;
    for (size_t i = 0; i < 2; i++) RETURN_IF_ERROR(record_timestamp(run, &times->timestamps, 2 * times->count + i));
    times->count++;
    return SNUG_OK;
}

static const struct snug_backend device = {
    .name = "a device",
    .asynchronous = true,
    .begin = begin,
    .end = end,
    .record_timestamp = record_timestamp,
    .read_timestamps = read_timestamps,
    .free_timestamps = free_timestamps,
    .ops = {[SNUG_OP_NORM] = quick_op,
            [SNUG_OP_DROPOUT] = quick_op,
            [SNUG_OP_GATHER] = failing_op,
            [SNUG_OP_FETCH] = copy_op,
            [SNUG_OP_STORE] = copy_op,
            [SNUG_OP_WAIT] = quick_op},
};

static void add(struct snug_program *program, enum snug_op_kind kind, enum snug_phase phase) {
    int32_t tensor;
    assert_int_equal(snug_program_tensor(
                         program,
                         (struct snug_tensor){.memory_class = SNUG_MEMORY_TEMPORARY, .rows = 1, .cols = 1, .layer = -1},
                         &tensor, "tensor_%zu", program->op_count),
                     SNUG_OK);
    assert_int_equal(
        snug_program_op(program,
                        (struct snug_op){.kind = kind, .phase = phase, .operands = {tensor, tensor, tensor, tensor}}),
        SNUG_OK);
}

static struct snug_program program;
static struct snug_batch batch = {.last_in_step = true};
static struct snug_run run;

static int make_program(void **state) {
    (void)state;
    snug_program_init(&program, ctx);
    add(&program, SNUG_OP_NORM, SNUG_PHASE_FORWARD);
    add(&program, SNUG_OP_DROPOUT, SNUG_PHASE_FORWARD);
    add(&program, SNUG_OP_NORM, SNUG_PHASE_BACKWARD);
    add(&program, SNUG_OP_GATHER, SNUG_PHASE_CLIP);
    run = (struct snug_run){.ctx = ctx, .program = &program, .batch = &batch, .one_by_one = true};
    return 0;
}

static int free_program(void **state) {
    (void)state;
    snug_program_free(&program);
    return 0;
}

TEST_IN(test_times_of_operations, void *fixture, make_program, free_program) {
    struct snug_op_times times;
    struct snug_profile profile = {.times = &times};
    assert_int_equal(snug_op_times_init(&run, &device, &times), SNUG_OK);
    for (int step = 1; step <= 2; step++) {
        assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_FORWARD, &profile), SNUG_OK);
        assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_BACKWARD, &profile), SNUG_OK);
        assert_int_equal(snug_op_times_collect(&run, &device, &times), SNUG_OK);
        assert_int_equal(times.calls[0], step);
        assert_float_equal(times.seconds[0], 1.0 * step, 1e-12); /* timestamp 0 is the beginning of the phase */
        assert_float_equal(times.seconds[1], 2.0 * step, 1e-12);
        assert_float_equal(times.seconds[2], 4.0 * step,
                           1e-12); /* timestamp 3 is between the phases, and belongs to no operation */
        assert_int_equal(times.calls[3], 0);
    }
    snug_op_times_free(&device, &times);
    assert_int_equal(timestamps_alive, 0);
}

/* Copies have timestamps of their own, and where copies cross phases the end of a phase waits for them. */
TEST_IN(test_times_of_copies, void *fixture, make_program, free_program) {
    struct snug_crossing crossing = {0};
    struct snug_op_times times;
    struct snug_profile profile = {.times = &times};
    add(&program, SNUG_OP_FETCH, SNUG_PHASE_BACKWARD);
    add(&program, SNUG_OP_STORE, SNUG_PHASE_BACKWARD);
    add(&program, SNUG_OP_WAIT, SNUG_PHASE_BACKWARD);
    add(&program, SNUG_OP_FETCH, SNUG_PHASE_BACKWARD);
    program.crosses = true;
    run.crossing = &crossing;
    assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_BACKWARD, &(struct snug_profile){0}), SNUG_OK);
    assert_int_equal(timestamps_alive, 0);
    assert_int_equal(snug_op_times_init(&run, &device, &times), SNUG_OK);
    for (int step = 1; step <= 2; step++) {
        assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_BACKWARD, &profile), SNUG_OK);
        assert_int_equal(snug_op_times_collect(&run, &device, &times), SNUG_OK);
        assert_float_equal(times.copied[0], (1 + 5) * step, 1e-12);
        assert_float_equal(times.copied[1], 3 * step, 1e-12);
        assert_float_equal(times.seconds[6], 4 * step,
                           1e-12); /* the WAIT: one operation and two copies are before it */
        assert_float_equal(times.ended[SNUG_PHASE_BACKWARD], 6 * step, 1e-12);
        assert_float_equal(times.ended[SNUG_PHASE_FORWARD], 0, 0);
    }
    assert_int_equal(timestamps_alive, 2);
    snug_op_times_free(&device, &times);
    assert_int_equal(timestamps_alive, 0);
    assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_BACKWARD, NULL), SNUG_OK);
    assert_int_equal(timestamps_alive, 0);
}

TEST_IN(test_operation_named_by_a_failure, void *fixture, make_program, free_program) {
    snug_clear_error(ctx);
    assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_CLIP, NULL), SNUG_E_INTERNAL);
    assert_string_equal(snug_error_message(ctx), "GPU: an illegal memory access (in clip: gather of tensor_3)");
    snug_clear_error(ctx);
    assert_int_equal(snug_run_phase(&run, &device, SNUG_PHASE_UPDATE, NULL), SNUG_E_INTERNAL);
    assert_string_equal(snug_error_message(ctx), "GPU: a launch failed (in update)");
    snug_clear_error(ctx);
}

/* ---- peak rates ----------------------------------------------------------------------------------------------- */

TEST(test_peak_rates) {
    struct snug_peak_rates peaks;
    for (int bf16 = 0; bf16 <= (int)snug_backend_cpu_fast_bf16(); bf16++) {
        assert_int_equal(snug_peak_rates_measure(ctx, snug_backend_cpu(), bf16 ? SNUG_BF16 : SNUG_F32, 1, &peaks),
                         SNUG_OK);
        assert_true(peaks.side >= 256);
        assert_in_range((int64_t)(peaks.flops * 1e-6), 1, 100000000); /* between 1 MFLOP/s and 100 TFLOP/s */
        assert_in_range((int64_t)(peaks.bytes * 1e-6), 1, 100000000);
    }
}

/* Rates are those of a processor, by the name that Linux gives it, or by ARM's numbers. */
TEST(test_processor_names) {
    static const struct {
        const char *cpuinfo, *name;
    } cases[] = {
        {"processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9B45\nflags\t\t: fpu\n", "AMD EPYC 9B45"},
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "ARM Neoverse-N1"},
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n", "ARM Neoverse-V2"},
        {"CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n", "Ampere-1"},
        {"CPU implementer\t: 0x61\nCPU part\t: 0x023\n", "Apple, part 0x23"},
        {"CPU implementer\t: 0x46\nCPU part\t: 0x001\n", "ARM64 processor, part 0x1"},
        {"CPU implementer\t: 0x41\nCPU part\t: 0xac3\n", "ARM64 processor, part 0xac3"},
        {"CPU implementer\t: 0x41\nCPU part\t: 0xd08\nmodel name\t: BCM2835\n", "BCM2835"},
        {"processor\t: 0\n\nno colon\n", "unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64], text[256];
        snprintf(text, sizeof text, "%s", cases[i].cpuinfo);
        FILE *file = fmemopen(text, strlen(text), "r");
        assert_non_null(file);
        snug_cpu_name(file, name, sizeof name);
        fclose(file);
        assert_string_equal(name, cases[i].name);
    }
}

/* ---- the command's figures ------------------------------------------------------------------------------------- */

static char folder[64];

static snug_args *arguments(void) {
    static const char *const values[][2] = {
        {"train_file", "dummy:12x24"}, {"per_device_train_batch_size", "4"}, {"device", "cpu"}, {"threads", "1"}};
    snug_args *args;
    assert_int_equal(snug_args_create(ctx, &args), SNUG_OK);
    assert_int_equal(snug_args_set(args, "config_name", folder), SNUG_OK);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_int_equal(snug_args_set(args, values[i][0], values[i][1]), SNUG_OK);
    return args;
}

static json_t *parse(char *text) {
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static double number(const json_t *json, const char *a, const char *b, const char *c, const char *d) {
    const char *const keys[] = {a, b, c, d};
    for (size_t i = 0; i < 4 && keys[i]; i++) json = json_object_get(json, keys[i]);
    if (!json_is_number(json)) fail_msg("%s %s has no number", a, b);
    return json_number_value(json);
}

/* The measured work of a run equals the plan's figures for a step: FLOPs, bytes, memory. */
TEST(test_anatomy_matches_the_plan) {
    static const char *const groups[] = {"tensor_contractions", "normalisations", "elementwise"};
    static const char *const sides[] = {"forward", "backward", "update"};
    snug_args *args = arguments();
    snug_plan *plan;
    snug_anatomy *anatomy;
    char *text;
    assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
    assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
    json_t *planned = parse(text);
    if (snug_anatomy_create(args, NULL, &anatomy) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    assert_int_equal(snug_anatomy_json(anatomy, &text), SNUG_OK);
    json_t *json = parse(text);
    double seconds = 0;
    for (int group = 0; group < 3; group++)
        for (int side = 0; side < 3; side++) {
            const double flops = number(json, "groups", groups[group], sides[side], "flops");
            const double bytes = number(json, "groups", groups[group], sides[side], "bytes");
            assert_float_equal(flops, number(planned, "step", groups[group], sides[side], "flops"),
                               1e-6 * flops + 1e-6);
            assert_float_equal(bytes, number(planned, "step", groups[group], sides[side], "bytes"),
                               1e-6 * bytes + 1e-6);
            seconds += number(json, "groups", groups[group], sides[side], "seconds");
        }
    assert_true(seconds > 0);
    assert_float_equal(number(json, "run", "steps", NULL, NULL), 3, 0);
    assert_float_equal(number(json, "run", "samples", NULL, NULL), 12, 0);
    assert_float_equal(number(json, "run", "tokens", NULL, NULL), 12 * 24, 0);
    assert_float_equal(number(json, "memory", "planned", "gradients", NULL),
                       number(planned, "bytes", "gradients", NULL, NULL), 0);
    assert_true(number(json, "memory", "measured", NULL, NULL) > 0);
    json_decref(json);
    json_decref(planned);
    assert_int_equal(snug_anatomy_text(anatomy, &text), SNUG_OK);
    assert_non_null(strstr(text, "tensor contractions"));
    assert_non_null(strstr(text, "of peak"));
    assert_non_null(strstr(text, "embed_backward"));
    free(text);
    snug_anatomy_destroy(anatomy);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

/* Copies of an offload file: their bytes are the plan's, and operations wait for them, since they take longest. */
TEST(test_anatomy_of_copies) {
    static const char *const keys[] = {"from_backing_store", "to_backing_store"};
    snug_args *args = arguments();
    snug_plan *plan;
    snug_anatomy *anatomy;
    char *text;
    assert_int_equal(snug_args_set(args, "offload", "optimizer,weights"), SNUG_OK);
    assert_int_equal(snug_args_set(args, "offload_dir", folder), SNUG_OK);
    assert_int_equal(snug_plan_create(args, &plan), SNUG_OK);
    assert_int_equal(snug_plan_text(plan, &text), SNUG_OK);
    assert_non_null(strstr(text, "\ncopies "));
    free(text);
    assert_int_equal(snug_plan_json(plan, &text), SNUG_OK);
    json_t *planned = parse(text);
    if (snug_anatomy_create(args, NULL, &anatomy) != SNUG_OK) fail_msg("%s", snug_error_message(ctx));
    assert_int_equal(snug_anatomy_json(anatomy, &text), SNUG_OK);
    json_t *json = parse(text);
    double bytes = 0, moved = 0, waited = 0;
    for (int side = 0; side < SNUG_SIDE_COUNT; side++) {
        const char *name = (const char *const[]){"forward", "backward", "update"}[side];
        bytes += number(planned, "step", "copies", name, "bytes");
        waited += number(json, "groups", "copies", name, "seconds");
    }
    for (int k = 0; k < 2; k++) {
        assert_true(number(json, "copies", keys[k], "seconds", NULL) > 0);
        assert_true(number(json, "copies", keys[k], "calls", NULL) > 0);
        assert_true(number(json, "copies", keys[k], "waited_seconds", NULL) > 0);
        const double hidden = number(json, "copies", keys[k], "hidden", NULL);
        assert_true(hidden >= 0 && hidden < 1);
        moved += number(json, "copies", keys[k], "bytes", NULL);
    }
    assert_float_equal(moved, bytes, 1e-6 * bytes);
    assert_float_equal(moved, number(json, "copies", "both", "bytes", NULL), 1e-6 * bytes);
    /* The group also has the time of starting copies. */
    assert_true(number(json, "copies", "both", "waited_seconds", NULL) <= waited);
    json_decref(json);
    json_decref(planned);
    assert_int_equal(snug_anatomy_text(anatomy, &text), SNUG_OK);
    static const char *const says[] = {"\nwaiting for copies ", "\nCopies of offloaded tensors ",
                                       "\nfrom the backing store ", "\nto the backing store ", "\nboth "};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) assert_non_null(strstr(text, says[i]));
    assert_null(strstr(text, "\nfetch "));
    free(text);
    snug_anatomy_destroy(anatomy);
    snug_plan_destroy(plan);
    snug_args_destroy(args);
}

/* The figures of a GPU in a synthetic anatomy: in tera, with the shares of the others. */
TEST(test_anatomy_of_a_gpu) {
    snug_anatomy a = {.ctx = ctx,
                      .place = "NVIDIA H200",
                      .device = true,
                      .use = {.name = "NVIDIA H200", .method = "made up", .others = "4711 python 990.0 MiB"},
                      .data = "dummy:8x8",
                      .epoch_steps = 1,
                      .steps = 1,
                      .samples = 4,
                      .seconds = 2,
                      .steady_seconds = 2,
                      .planned = {[SNUG_MEMORY_WEIGHTS] = 1 << 20, [SNUG_MEMORY_HOST] = 5 << 20},
                      .planned_total = 1 << 20,
                      .before = -1,
                      .opened = 3 << 20,
                      .measured = -1,
                      .timed_steps = 1,
                      .peaks = {.flops = 4e12, .bytes = 2e12, .side = 4096, .count = 1 << 20}};
    char *text;
    a.parts[SNUG_SIDE_FORWARD][SNUG_GROUP_CONTRACTION] = a.kinds[SNUG_OP_LINEAR] =
        (struct snug_anatomy_part){.seconds = 1, .flops = 2e12, .bytes = 1e12, .calls = 1};
    a.kinds[SNUG_OP_NORM] = (struct snug_anatomy_part){.calls = 1}; /* too short to be reported */
    assert_int_equal(snug_anatomy_text(&a, &text), SNUG_OK);
    static const char *const says[] = {"Memory of the GPU, MiB",
                                       "before, in use by others                   -           -\n",
                                       "with the context                         0.0         3.0\n",
                                       "other processes on it: 4711 python 990.0 MiB\n",
                                       "measured by: made up\n",
                                       "2.00 TFLOP/s",
                                       "50.0 %\n",
                                       "By operation                          ms    share      TFLOP/s       TB/s"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (!strstr(text, says[i])) fail_msg("\"%s\" is not in:\n%s", says[i], text);
    assert_null(strstr(text, "difference"));
    assert_null(strstr(text, "  host"));
    assert_null(strstr(text, "\nnorm "));
    assert_null(strstr(text, "an epoch has"));
    assert_null(strstr(text, "after them"));
    assert_null(strstr(text, "opies"));
    free(text);
    a.kinds[SNUG_OP_FETCH] = (struct snug_anatomy_part){.seconds = 1e-6, .bytes = 0x1p30, .calls = 4};
    a.parts[SNUG_SIDE_UPDATE][SNUG_GROUP_COPIES].seconds = 0.005;
    a.copies[0] = (struct snug_anatomy_copies){.seconds = 0.02, .bytes = 0x1p30, .calls = 4, .waited = 0.005};
    assert_int_equal(snug_anatomy_text(&a, &text), SNUG_OK);
    static const char *const copies[] = {
        "waiting for copies                 5.000    0.5 %\n",
        "Copies of offloaded tensors           ms        MiB      GB/s  waited ms   hidden\n",
        "from the backing store            20.000     1024.0     53.69      5.000   75.0 %\n",
        "both                              20.000     1024.0     53.69      5.000   75.0 %\n"};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        if (!strstr(text, copies[i])) fail_msg("\"%s\" is not in:\n%s", copies[i], text);
    assert_null(strstr(text, "\nto the backing store"));
    free(text);
    *a.use.others = '\0';
    assert_int_equal(snug_anatomy_text(&a, &text), SNUG_OK);
    assert_null(strstr(text, "other processes"));
    free(text);
    assert_int_equal(snug_anatomy_json(&a, &text), SNUG_OK);
    json_t *json = parse(text), *memory = json_object_get(json, "memory");
    assert_string_equal(json_string_value(json_object_get(json, "device")), "cuda");
    assert_int_equal(json_integer_value(json_object_get(memory, "with_context")), 3 << 20);
    assert_string_equal(json_string_value(json_object_get(memory, "method")), "made up");
    assert_true(json_is_null(json_object_get(memory, "measured")));
    json_decref(json);
}

static bool go_on(void *user) {
    (void)user;
    return false;
}

/* On a CPU only three steps of a long epoch are measured, unless the arguments request more. */
TEST(test_short_anatomy) {
    snug_args *args = arguments();
    assert_int_equal(snug_args_set(args, "train_file", "dummy:40x24"), SNUG_OK);
    for (int asked = 0; asked < 2; asked++) {
        snug_anatomy *anatomy;
        char *text;
        if (asked) assert_int_equal(snug_args_set(args, "max_steps", "4"), SNUG_OK);
        assert_int_equal(snug_anatomy_create(args, &(snug_callbacks){.should_stop = go_on}, &anatomy), SNUG_OK);
        assert_int_equal(snug_anatomy_text(anatomy, &text), SNUG_OK);
        if (!strstr(text, asked ? "for 4 steps, 16 samples\n" : "for 3 steps, 12 samples (an epoch has 10 steps)\n"))
            fail_msg("%s", text);
        /* All steps but the first one are most of the time, and at least not an instant. */
        assert_int_equal(anatomy->steady_steps, asked ? 3 : 2);
        assert_true((double)anatomy->steady_steps * anatomy->steady_seconds > anatomy->seconds / 100);
        free(text);
        snug_anatomy_destroy(anatomy);
        if (!asked) { /* the choice of the first job is reused */
            snug_args_destroy(args);
            args = arguments();
            assert_int_equal(snug_args_set(args, "train_file", "dummy:40x24"), SNUG_OK);
        }
    }
    snug_args_destroy(args);
}

static bool stop_at_once(void *user) {
    (void)user;
    return true;
}

TEST(test_interrupted_anatomy) {
    snug_args *args = arguments();
    snug_anatomy *anatomy;
    assert_int_equal(snug_args_set(args, "num_train_epochs", "1"), SNUG_OK);
    assert_int_equal(snug_anatomy_create(args, &(snug_callbacks){.should_stop = stop_at_once}, &anatomy),
                     SNUG_E_INTERRUPTED);
    assert_null(anatomy);
    snug_args_destroy(args);
}

int main(void) {
    char path[96];
    snprintf(folder, sizeof folder, "/tmp/snug-anatomy-%d", (int)getpid());
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (mkdir(folder, 0700) != 0 || snug_context_create(&ctx) != SNUG_OK) return 1;
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fputs("{\"model_type\": \"bert\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_hidden_layers\": 2, "
          "\"num_attention_heads\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 32}",
          file);
    fclose(file);
    const int failed = run_registered(NULL, NULL);
    snug_context_destroy(ctx);
    remove(path);
    rmdir(folder);
    return failed;
}
