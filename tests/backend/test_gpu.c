/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs as NVML and the driver report them, with libraries that simulate both (tests/fake/gpu.c): the numbers under
   which programs see them, the memory of this process whatever its id is there, and the messages where nothing is
   available. */
#include "fake_gpu.h"

#include <jansson.h>

#include "train/device.h"

static snug_context *ctx;

static const struct snug_gpu *find(const struct snug_gpus *gpus, int index) {
    for (size_t i = 0; i < gpus->count; i++)
        if (gpus->items[i].index == index) return &gpus->items[i];
    fail_msg("GPU %d is missing", index);
    return NULL;
}

/* ---- the list ------------------------------------------------------------------------------------------------- */

TEST(test_list) {
    struct snug_gpus gpus;
    set_world(TWO_GPUS "visible 1\nvisible 0\nprocess 0 4711 990 /usr/bin/python3 train.py\nprocess 0 999999999 -1 -\n"
                       "answer nvmlDeviceGetPowerUsage 3\n");
    assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
    assert_int_equal(gpus.count, 2);
    assert_string_equal(gpus.driver, "580.65.06");
    assert_string_equal(gpus.cuda, "13.0");
    const struct snug_gpu *a = find(&gpus, 0), *b = find(&gpus, 1);
    assert_int_equal(a->ordinal, 1); /* as with CUDA_VISIBLE_DEVICES=1,0 */
    assert_int_equal(b->ordinal, 0);
    assert_string_equal(a->name, "NVIDIA H200");
    assert_int_equal(a->major, 9);
    assert_int_equal(a->total, (int64_t)143771 << 20);
    assert_int_equal(a->used, (int64_t)1000 << 20);
    assert_int_equal(a->reserved, (int64_t)100 << 20);
    assert_int_equal(a->utilisation, 7);
    assert_int_equal(b->temperature, 31);
    assert_true(a->power < 0); /* not reported */
    assert_true(b->power_limit == 701);
    assert_int_equal(a->process_count, 2);
    assert_int_equal(a->processes[0].pid, 4711);
    assert_int_equal(a->processes[0].bytes, (int64_t)990 << 20);
    assert_string_equal(a->processes[0].name, "python3");
    assert_int_equal(a->processes[1].bytes, -1);
    assert_string_equal(a->processes[1].name, "");
    assert_int_equal(b->process_count, 0);
    snug_gpus_free(&gpus);
}

/* Processes of any launcher, which the environment of a process names. */
TEST(test_ranks) {
    static const struct {
        const char *variables, *says;
    } cases[] = {
        {"RANK=1 WORLD_SIZE=2", "  snug, rank 1 of 2\n"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=16", "  snug, rank 0 of 16\n"},
        {"SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n1", "  snug, rank 3 of 4\n"},
        {"SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4", "  snug\n"}, /* a batch script */
        {"RANK=0 WORLD_SIZE=1", "  snug\n"},
        {"RANK=1x RANKS=1 WORLD_SIZE=2", "  snug\n"},
        {"RANK=2 WORLD_SIZE=2 PMI_RANK=x PMI_SIZE=", "  snug\n"},
        {"PMI_RANK=1 PMI_SIZE=123456789", "  snug\n"},
    };
    char output[4096];
    set_world(TWO_GPUS "process 0 self 990 /usr/bin/snug train\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char environment[256];
        snprintf(environment, sizeof environment, "%s " WITH_FAKES, cases[i].variables);
        assert_int_equal(run(environment, "gpu", output, sizeof output), 0);
        says(output, cases[i].says);
    }
    assert_int_equal(run("RANK=1 WORLD_SIZE=2 " WITH_FAKES, "gpu --json", output, sizeof output), 0);
    says(output, "\"rank\": 1");
    says(output, "\"ranks\": 2");
}

TEST(test_hidden) {
    struct snug_gpus gpus;
    set_world(TWO_GPUS "visible 1\n");
    assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
    assert_int_equal(find(&gpus, 0)->ordinal, -1);
    assert_int_equal(find(&gpus, 1)->ordinal, 0);
    snug_gpus_free(&gpus);
    set_world(TWO_GPUS);
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(gpus.count, 2);
    assert_non_null(strstr(gpus.cuda_problem, "CUDA_VISIBLE_DEVICES is \"-1\""));
    snug_gpus_free(&gpus);
}

/* CUDA works without NVML, as in some containers. */
TEST(test_without_nvml) {
    struct snug_gpus gpus;
    set_world(TWO_GPUS "visible 0\nfailing 4\n");
    assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
    assert_non_null(strstr(gpus.nvml_problem, "Insufficient Permissions"));
    assert_int_equal(gpus.count, 1);
    assert_int_equal(gpus.items[0].index, -1);
    assert_int_equal(gpus.items[0].ordinal, 0);
    assert_string_equal(gpus.items[0].name, "NVIDIA H200");
    snug_gpus_free(&gpus);
}

/* An old card, or one in a virtual machine, reports little. Without uuid and bus id, NVML's GPU cannot be matched with
   CUDA's. */
TEST(test_little_information) {
    struct snug_gpus gpus;
    set_world(TWO_GPUS "visible 1\nprocess 1 self 20 ./-\nanswer nvmlDeviceGetName 3\nanswer nvmlDeviceGetUUID 3\n"
                       "answer nvmlDeviceGetMemoryInfo_v2 3\nanswer nvmlDeviceGetUtilizationRates 3\n"
                       "answer nvmlDeviceGetTemperature 3\nanswer nvmlDeviceGetEnforcedPowerLimit 3\n");
    assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
    assert_int_equal(gpus.count, 2);
    const struct snug_gpu *a = find(&gpus, 0), *b = find(&gpus, 1);
    assert_int_equal(a->ordinal, -1);
    assert_int_equal(b->ordinal, 0); /* by its bus id */
    assert_string_equal(b->name, "an NVIDIA GPU");
    assert_string_equal(b->uuid, "");
    assert_int_equal(a->used, (int64_t)1100 << 20);
    assert_int_equal(a->total, (int64_t)143771 << 20);
    assert_int_equal(b->utilisation, -1);
    assert_int_equal(b->temperature, -1);
    assert_true(b->power_limit < 0);
    assert_string_equal(b->processes[0].name, "test_gpu"); /* by the kernel, which knows this process */
    snug_gpus_free(&gpus);
    static const char *const strangers[] = {"answer nvmlDeviceGetUUID 3\nanswer nvmlDeviceGetPciInfo_v3 3\n",
                                            "answer cuDeviceGetUuid_v2 1\nanswer cuDeviceGetPCIBusId 1\n"};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 TWO_GPUS "visible 0\nanswer nvmlDeviceGetMemoryInfo 3\n"
                          "answer nvmlDeviceGetMemoryInfo_v2 3\n%s",
                 strangers[i]);
        set_world(text);
        assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
        assert_int_equal(gpus.count, 3);
        assert_int_equal(find(&gpus, 0)->ordinal, -1);
        assert_int_equal(find(&gpus, 0)->total, 0);
        assert_int_equal(find(&gpus, -1)->ordinal, 0);
        snug_gpus_free(&gpus);
    }
}

/* Errors of the driver or NVML instead of devices. */
TEST(test_no_answers) {
    static const struct {
        const char *world, *says;
        size_t count;
    } cases[] = {
        {"answer cuInit 999\n", "the NVIDIA driver does not work: a fake's error (999)", 2},
        {"answer cuInit 1999\n", "the NVIDIA driver does not work: error (1999)", 2},
        {"answer cuInit 0\n", "the NVIDIA driver offers no GPU", 2},
        {"answer nvmlDeviceGetCount_v2 999\nvisible 0\n", "", 1},
        {"answer nvmlDeviceGetHandleByIndex_v2 15\nvisible 0\n", "", 1},
        {"failing 9\n", "the NVIDIA driver offers no GPU", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct snug_gpus gpus;
        snprintf(text, sizeof text, TWO_GPUS "%s", cases[i].world);
        set_world(text);
        assert_int_equal(snug_gpus_look(ctx, &gpus), SNUG_OK);
        assert_string_equal(gpus.cuda_problem, cases[i].says);
        assert_int_equal(gpus.count, cases[i].count);
        snug_gpus_free(&gpus);
    }
    set_world(TWO_GPUS "visible 0\nmore 100\nanswer cuDevicePrimaryCtxGetState 1\n");
    struct snug_cuda_driver driver;
    snug_cuda_driver_look(&driver);
    assert_int_equal(driver.count, SNUG_CUDA_DEVICES);
    assert_string_equal(driver.devices[0].name, "NVIDIA H200");
    assert_string_equal(driver.devices[1].name, ""); /* the driver would refuse it */
    assert_false(driver.devices[0].active);
}

/* ---- memory of this process ----------------------------------------------------------------------------------- */

static struct snug_gpu_usage usage;

static int close_meter(void **state) {
    (void)state;
    snug_gpu_usage_close(&usage);
    return 0;
}

static void expect(int64_t mib, enum snug_gpu_method method) {
    assert_int_equal(snug_gpu_usage_read(&usage), mib < 0 ? -1 : mib << 20);
    assert_int_equal(usage.method, method);
}

static void expect_others(const char *says) {
    char *text;
    assert_int_equal(snug_gpu_usage_others(&usage, &text), SNUG_OK);
    assert_string_equal(text, says);
    free(text);
}

/* NVML lists this process under its own id: its figure counts, whatever the others do. */
TEST_IN(test_own_process_id, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nprocess 0 4711 990 python\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    assert_string_equal(usage.gpu.name, "NVIDIA H200");
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 4711 990 python\nprocess 0 self 520 snug\n");
    expect(520, SNUG_GPU_BY_PROCESS);
    set_world("gpu 143771 4600 0 NVIDIA H200\nvisible 0\nprocess 0 4711 2040 python\nprocess 0 self 2520 snug\n");
    expect(2520, SNUG_GPU_BY_PROCESS);
    expect_others("4711 python 2040.0 MiB");
}

/* In a container NVML lists this process under the host's id: the one that appeared with its context. Other processes
   appear, grow and end. */
TEST_IN(test_process_id_of_the_host, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nprocess 0 4711 990 python\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 4711 990 python\nprocess 0 31337 520 -\n");
    expect(530, SNUG_GPU_BY_DIFFERENCE);
    set_world("gpu 143771 7630 0 NVIDIA H200\nvisible 0\nprocess 0 4711 1990 python\nprocess 0 31337 2620 -\n"
              "process 0 5000 3000 new\033[2Jcomer\xE2\x80\xAE\n");
    expect(2630, SNUG_GPU_BY_DIFFERENCE);
    expect_others("4711 python 1990.0 MiB, 5000 new\\x1b[2Jcomer\\u202e 3000.0 MiB");
    set_world("gpu 143771 2640 0 NVIDIA H200\nvisible 0\nprocess 0 31337 2620 -\n");
    expect(2630, SNUG_GPU_BY_DIFFERENCE);
}

/* Any user's process may have any name. */
TEST_IN(test_names_are_escaped, void *fixture, NULL, close_meter) {
    snug_gpus *gpus;
    char *text;
    set_world(TWO_GPUS "visible 0\nprocess 0 4711 990 \033[2J\xC2\x9B\xFFx\n");
    assert_int_equal(snug_gpus_create(ctx, &gpus), SNUG_OK);
    assert_int_equal(snug_gpus_text(gpus, &text), SNUG_OK);
    assert_non_null(strstr(text, "  0       4711        990  \\x1b[2J\\u009b\\xffx\n"));
    free(text);
    snug_gpus_destroy(gpus);
}

/* NVML lists no processes: the difference of used memory. */
TEST_IN(test_no_ids, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nunlisted\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    set_world("gpu 143771 1527 0 NVIDIA H200\nvisible 0\nunlisted\n");
    expect(527, SNUG_GPU_BY_DIFFERENCE);
    expect_others("1000.0 MiB of processes that NVML does not list here");
}

/* Where ids cannot be translated, NVML reports 0 for every process. */
TEST_IN(test_zero_ids, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nprocess 0 0 990 -\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 0 990 -\nprocess 0 0 520 -\n");
    expect(530, SNUG_GPU_BY_DIFFERENCE);
    expect_others("1000.0 MiB of processes that NVML does not list here");
}

/* This process's id is listed before it has a context: it belongs to another pid namespace, and is not used. */
TEST_IN(test_foreign_own_id, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nprocess 0 self 990 python\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 self 990 python\nprocess 0 31337 520 -\n");
    expect(530, SNUG_GPU_BY_DIFFERENCE);
}

/* A second training in one process: the context already exists. */
TEST_IN(test_second_job, void *fixture, NULL, close_meter) {
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nactive\nprocess 0 self 530 snug\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    expect(530, SNUG_GPU_BY_PROCESS);
    snug_gpu_usage_close(&usage);
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nactive\nprocess 0 31337 530 -\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    expect(-1, SNUG_GPU_BY_NOTHING); /* there is no earlier figure to subtract */
}

/* Memory is measured on CUDA's first device, which need not be NVML's. */
TEST_IN(test_meter_is_cudas, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 1\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    assert_string_equal(usage.gpu.name, "NVIDIA H100");
    set_world("gpu 143771 9000 7 NVIDIA H200\ngpu 81559 500 0 NVIDIA H100\nvisible 1\nprocess 1 31337 490 -\n");
    expect(500, SNUG_GPU_BY_DIFFERENCE);
}

/* Where the memory of this process cannot be measured: no NVML, or a device that it does not list. */
TEST_IN(test_no_meter, void *fixture, NULL, close_meter) {
    static const struct {
        const char *world, *problem;
    } cases[] = {{"failing 4\n", "libnvidia-ml.so.1: Insufficient Permissions"},
                 {"answer nvmlDeviceGetHandleByUUID 6\n",
                  "NVML does not list NVIDIA H200 (10111213-1415-1617-1819-1a1b1c1d1e1f)"},
                 {"answer cuDeviceGetUuid_v2 1\n", "NVML does not list NVIDIA H200 ()"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, TWO_GPUS "visible 0\n%s", cases[i].world);
        set_world(text);
        assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
        assert_string_equal(usage.problem, cases[i].problem);
        expect(-1, SNUG_GPU_BY_NOTHING);
        expect_others("");
        snug_gpu_usage_close(&usage);
    }
}

/* Two processes appear at once, either of which may be this one; others free more than they are listed with. */
TEST_IN(test_ambiguous_process_lists, void *fixture, NULL, close_meter) {
    set_world(TWO_GPUS "visible 0\nprocess 0 4711 -1 -\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &usage), SNUG_OK);
    set_world("gpu 143771 2000 0 NVIDIA H200\nvisible 0\nprocess 0 4711 -1 -\nprocess 0 31337 520 -\nprocess 0 31338 "
              "480 -\n");
    expect(1000, SNUG_GPU_BY_DIFFERENCE);
    expect_others("4711 (name unknown), 31337 (name unknown) 520.0 MiB, "
                  "31338 (name unknown) 480.0 MiB");
    set_world("gpu 143771 900 0 NVIDIA H200\nvisible 0\nprocess 0 self -1 snug\n");
    expect(0, SNUG_GPU_BY_DIFFERENCE);
}

/* ---- a job ---------------------------------------------------------------------------------------------------- */

static int64_t available(void) { return (int64_t)300 << 20; }
static int64_t library(const struct snug_program *program, int threads) {
    (void)program, (void)threads;
    return (int64_t)9000 << 20;
}
enum { CAPTURED = 3 << 20 }; /* bytes for an operation */
static int64_t captured(const struct snug_program *program, const struct snug_op *op) {
    (void)program, (void)op;
    return CAPTURED;
}
static const struct snug_backend device = {.name = "a device",
                                           .on_device = true,
                                           .available = available,
                                           .library = library,
                                           .captured = captured,
                                           .captured_phases = 17};

/* The memory of a job's context on a GPU: what it takes when the backend is open, and its later growth, which is
   stored. */
TEST(test_context) {
    char cache[96], remove_cache[128];
    struct snug_planned_program programs[] = {{.role = SNUG_ROLE_TRAINING, .program = {.compute = SNUG_BF16}}};
    const struct snug_run_plan plan = {.programs = programs, .count = 1, .layout = {.arena = (int64_t)2000 << 20}};
    struct snug_device used = {.ctx = ctx, .backend = &device, .threads = 1};
    snprintf(cache, sizeof cache, "%s-cache", world);
    setenv("SNUG_CACHE", cache, 1);
    set_world(TWO_GPUS "visible 0\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &used.usage), SNUG_OK);
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 self 520 snug\n");
    assert_int_equal(snug_device_measure(&used, &plan), SNUG_OK);
    assert_int_equal(used.opened_bytes, (int64_t)520 << 20);
    assert_int_equal(snug_device_context(&used, &plan), ((int64_t)520 << 20) + SNUG_GPU_GROWTH_BYTES);
    set_world("gpu 143771 3560 0 NVIDIA H200\nvisible 0\nprocess 0 self 2550 snug\n");
    snug_device_learn(&used, &plan, snug_device_used(&used, &plan));
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 self 520 snug\n");
    assert_int_equal(snug_device_measure(&used, &plan), SNUG_OK);
    assert_int_equal(snug_device_context(&used, &plan) - used.opened_bytes, (int64_t)30 << 20);
    /* Captured phases: FORWARD and BACKWARD of the first, the last and the other micro-batches, and UPDATE, for each of
       two sizes of batches. */
    struct snug_op ops[] = {{.kind = SNUG_OP_ADD, .phase = SNUG_PHASE_FORWARD},
                            {.kind = SNUG_OP_ADD, .phase = SNUG_PHASE_BACKWARD},
                            {.kind = SNUG_OP_ADD, .phase = SNUG_PHASE_BACKWARD},
                            {.kind = SNUG_OP_ADD, .phase = SNUG_PHASE_UPDATE}};
    struct snug_data_pipeline *pipeline = &programs[0].pipeline;
    programs[0].program.ops = ops;
    programs[0].program.op_count = 4;
    pipeline->options.accumulation = 4;
    snug_sizes_add(&pipeline->limits.sizes, 100);
    snug_sizes_add(&pipeline->limits.sizes, 200);
    const int64_t opened = used.opened_bytes, kept = (int64_t)30 << 20;
    assert_int_equal(snug_device_context(&used, &plan), opened + kept + 2 * 10 * CAPTURED);
    snug_sizes_add(&pipeline->limits.sizes, 300); /* no more than 17 phases are captured */
    assert_int_equal(snug_device_context(&used, &plan), opened + kept + 2 * 10 * CAPTURED);
    pipeline->options.accumulation = 2;
    assert_int_equal(snug_device_context(&used, &plan), opened + kept + 3 * 7 * CAPTURED);
    /* What such a run allocates: less than expected, and from then on expected of the same, and of smaller ones. */
    set_world("gpu 143771 3570 0 NVIDIA H200\nvisible 0\nprocess 0 self 2560 snug\n");
    snug_device_learn(&used, &plan, snug_device_used(&used, &plan));
    set_world("gpu 143771 1530 0 NVIDIA H200\nvisible 0\nprocess 0 self 520 snug\n");
    assert_int_equal(snug_device_measure(&used, &plan), SNUG_OK);
    assert_int_equal(snug_device_context(&used, &plan), opened + ((int64_t)40 << 20));
    pipeline->options.accumulation = 1;
    assert_int_equal(snug_device_context(&used, &plan), opened + 3 * 4 * CAPTURED);
    programs[0].program.op_count = 0;
    assert_int_equal(snug_device_context(&used, &plan), opened);
    programs[0].program.compute = SNUG_F32; /* another kind of run */
    assert_int_equal(snug_device_measure(&used, &plan), SNUG_OK);
    assert_int_equal(snug_device_context(&used, &plan) - used.opened_bytes, SNUG_GPU_GROWTH_BYTES);
    snug_gpu_usage_close(&used.usage);
    assert_int_equal(snug_device_used(&used, &plan), (int64_t)9000 << 20); /* without NVML: the driver's figure */
    unsetenv("SNUG_CACHE");
    snprintf(remove_cache, sizeof remove_cache, "rm -r '%s'", cache);
    assert_int_equal(system(remove_cache), 0);
}

/* Another process takes the memory between the plan and the allocation of the arena. */
TEST(test_late_refusal) {
    struct snug_device used = {.ctx = ctx, .backend = &device, .threads = 1};
    set_world(TWO_GPUS "visible 0\n");
    assert_int_equal(snug_gpu_usage_open(ctx, 0, &used.usage), SNUG_OK);
    set_world("gpu 143771 143000 0 NVIDIA H200\nvisible 0\nprocess 0 self 520 snug\nprocess 0 4711 142470 python\n");
    snug_fail(ctx, SNUG_E_MEMORY, "GPU: the arena cannot be had: out of memory");
    assert_int_equal(snug_device_refuse(&used, (int64_t)2000 << 20), SNUG_E_DOES_NOT_FIT);
    assert_non_null(strstr(snug_error_message(ctx), "this run needs 2000.0 MiB of NVIDIA H200"));
    assert_non_null(strstr(snug_error_message(ctx), "300.0 MiB are left"));
    assert_non_null(strstr(snug_error_message(ctx), "4711 python 142470.0 MiB"));
    snug_clear_error(ctx);
    snug_gpu_usage_close(&used.usage);
}

/* ---- the commands --------------------------------------------------------------------------------------------- */

#define WITHOUT "SNUG_NVML=/nonexistent.so CUDA_VISIBLE_DEVICES=-1"

TEST(test_gpu_command) {
    char output[16384];
    set_world(TWO_GPUS
              "visible 1\nprocess 0 4711 990 python\nprocess 0 4712 -1 \xff\nanswer nvmlDeviceGetPowerUsage 3\n");
    assert_int_equal(run("CUDA_VISIBLE_DEVICES=1 " WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "NVIDIA driver 580.65.06, CUDA 13.0, NVML 13.580.1\nCUDA_VISIBLE_DEVICES=1\n");
    says(output, "  0     -  NVIDIA H200");
    says(output, "  1     0  NVIDIA H100");
    says(output, "1000 / 143771");
    says(output, "  0       4711        990  python\n");
    assert_int_equal(run(WITH_FAKES, "gpu --json", output, sizeof output), 0);
    json_t *json = json_loads(output, 0, NULL);
    assert_non_null(json);
    const json_t *gpu = json_array_get(json_object_get(json, "gpus"), 0);
    assert_int_equal(json_integer_value(json_object_get(gpu, "used_bytes")), (json_int_t)1000 << 20);
    assert_true(json_is_null(json_object_get(gpu, "cuda")));
    assert_true(json_is_null(json_object_get(gpu, "watts")));
    assert_int_equal(json_array_size(json_object_get(gpu, "processes")), 2);
    json_decref(json);
}

/* Through NVLink, directly or by a switch, through PCIe, or in a way that NVML does not report. */
TEST(test_links) {
    static const struct {
        const char *lines, *there, *back;
        int nvlinks;
    } cases[] = {
        {"level 0 1 40\nlink 0 -1 3\nlink 1 -1 3\n", "  0         NV3\n", "  1   NV3      \n", 3},
        {"level 0 1 50\nlink 0 1 2\nlink 1 0 2\n", "  0         NV2\n", "  1   NV2      \n", 2},
        {"level 0 1 50\nlink 0 2 2\nlink 0 1 1\nlink 1 0 1\ngpu 81559 0 0 NVIDIA H100\n", "  0         NV1   NV2\n",
         "  1   NV1           -\n", 1},
        {"level 0 1 50\nlink 0 1 2\nanswer nvmlDeviceGetP2PStatus 3\n", "  0         SYS\n", "  1   SYS      \n", 0},
        {"level 0 1 0\nlink 0 1 2\nanswer nvmlDeviceGetNvLinkRemotePciInfo_v2 3\n", "  0         PIX\n", "", 0},
        {"level 0 1 10\n", "  0         PIX\n", "", 0},
        {"level 0 1 20\n", "  0         PXB\n", "", 0},
        {"level 0 1 30\n", "  0         PHB\n", "", 0},
        {"level 0 1 40\n", "  0        NODE\n", "", 0},
        {"", "  0           -\n", "  1     -      \n", 0},
    };
    char output[16384], text[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, TWO_GPUS "visible 0\nvisible 1\nlevel 0 2 50\n%s", cases[i].lines);
        set_world(text);
        assert_int_equal(run(WITH_FAKES, "gpu", output, sizeof output), 0);
        says(output, "\nGPU     0     1");
        says(output, cases[i].there);
        says(output, cases[i].back);
        assert_int_equal(run(WITH_FAKES, "gpu --json", output, sizeof output), 0);
        json_t *json = json_loads(output, 0, NULL);
        const json_t *links = json_object_get(json_array_get(json_object_get(json, "gpus"), 0), "links");
        const json_t *link = json_array_get(links, 0);
        assert_int_equal(json_integer_value(json_object_get(link, "gpu")), 1);
        assert_int_equal(json_integer_value(json_object_get(link, "nvlinks")), cases[i].nvlinks);
        assert_int_equal(json_is_null(json_object_get(link, "path")), !*cases[i].lines);
        json_decref(json);
    }
}

/* Where CUDA sees none of them, NVML names no processes, or there are none. */
TEST(test_gpu_command_with_little_information) {
    char output[16384];
    set_world(TWO_GPUS "unlisted\n");
    assert_int_equal(run(WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "Programs cannot use a GPU: the NVIDIA driver offers no GPU. snug uses the CPU.\n");
    assert_null(strstr(output, "process"));
    assert_int_equal(run(WITH_FAKES, "gpu --json", output, sizeof output), 0);
    json_t *json = json_loads(output, 0, NULL), *gpu = json_array_get(json_object_get(json, "gpus"), 0);
    assert_true(json_is_null(json_object_get(gpu, "processes")));
    json_decref(json);
    set_world(TWO_GPUS "visible 0\n");
    assert_int_equal(run(WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "    none listed\n");
    set_world(TWO_GPUS "visible 0\nprocess 1 999999999 -1 -\nfailing 0\n");
    assert_int_equal(run(WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "  1  999999999          -  (unknown: in another container, or on the host)\n");
    set_world("driver  0\ngpu 81559 0 0 NVIDIA H100\nvisible 0\nfailing 4\n");
    assert_int_equal(run(WITH_FAKES, "gpu", output, sizeof output), 0);
    says(output, "Memory, load and processes are unknown: libnvidia-ml.so.1: Insufficient Permissions.\n");
    says(output, "  -     0  NVIDIA H100");
}

TEST(test_watch) {
    char output[16384];
    set_world(TWO_GPUS "visible 0\n");
    /* Until its reader closes the pipe, or it is interrupted. */
    assert_int_equal(run(WITH_FAKES, "gpu --watch 0.1 --json | head -n 3", output, sizeof output), 0);
    int lines = 0;
    for (const char *at = output; (at = strstr(at, "{\"driver\"")); at++) lines++;
    assert_int_equal(lines, 3);
    assert_int_equal(run("timeout -s INT 0.5 env " WITH_FAKES, "gpu --watch 1000", output, sizeof output), 124);
    assert_int_equal(run("", "gpu --watch never", output, sizeof output), 2);
    says(output, "never is not a valid argument");
    assert_int_equal(run("", "gpu --help", output, sizeof output), 0);
    says(output, "usage: snug gpu [--watch [SECONDS]]");
}

TEST(test_doctor) {
    char output[16384];
    set_world(TWO_GPUS "visible 0\n");
    assert_int_equal(run("SNUG_CACHE=/dev/null/cache " WITH_FAKES, "doctor --device cpu", output, sizeof output), 0);
    says(output, "580.65.06, for CUDA up to 13.0");
    says(output, "NVIDIA H200, 00000000:1A:00.0, compute capability 9.0");
    says(output, "NVIDIA H100, 00000000:1B:00.0");
    says(output, "hidden by CUDA_VISIBLE_DEVICES");
    says(output, "the CPU, ");
    says(output, "requested by --device cpu");
    says(output, "a cache folder");
    says(output, "\nLinks      - between all GPUs: snug gpu lists them\n");
    says(output, "\nNCCL       ");
    says(output, "\nMPI        ");
    assert_null(strstr(output, "Ranks"));
    set_world(TWO_GPUS "gpu 81559 0 0 NVIDIA H100\nvisible 0\nlevel 0 1 40\n");
    assert_int_equal(run(WITH_FAKES, "doctor --device cpu", output, sizeof output), 0);
    says(output, "\nLinks      not the same between all GPUs: snug gpu lists them\n");
    assert_int_equal(run(WITHOUT, "doctor --json", output, sizeof output), 0);
    json_t *json = json_loads(output, 0, NULL);
    assert_non_null(json);
    const char *used = json_string_value(json_object_get(json, "used"));
    assert_non_null(used);
    says(used, "the CPU: ");
    assert_true(json_array_size(json_object_get(json, "missing")) > 0);
    assert_int_equal(json_array_size(json_object_get(json, "ranks")), 0);
    assert_true(json_is_false(json_object_get(json_object_get(json, "plugin"), "works")));
    assert_true(json_is_null(json_object_get(json, "refused")));
    json_decref(json);
}

/* Exit code and message are those of a training. */
TEST(test_doctor_refuses_as_train_does) {
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"--fp16", "--fp16: fp16 needs a GPU"}, {"--tf32", "--tf32 needs an NVIDIA GPU"},
        {"--device cuda", "--device cuda: "},   {"--fp16 --bf16", "at most one of --fp16 and --bf16"},
        {"--offload all", "--offload all"},
    };
    char trained[16384], output[16384], command[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command, "train --config_name bert-tiny --train_file dummy:4x4 %s",
                 cases[i].arguments);
        const int code = run(WITHOUT, command, trained, sizeof trained);
        snprintf(command, sizeof command, "doctor %s", cases[i].arguments);
        assert_int_equal(run(WITHOUT, command, output, sizeof output), code);
        assert_true(code == 1 || code == 2);
        const char *sentence = strstr(trained, cases[i].says);
        if (!sentence) fail_msg("%s: %s", cases[i].arguments, trained);
        says(output, "\nRefused ");
        says(output, "snug: ");
        says(output, sentence);
    }
}

TEST(test_no_driver) {
    char output[16384];
    assert_int_equal(run("env -u HOME -u XDG_CACHE_HOME -u SNUG_CACHE " WITHOUT, "doctor", output, sizeof output), 0);
    says(output, "Cache      none: SNUG_CACHE, XDG_CACHE_HOME and HOME are unset\n");
    says(output, "\nMissing ");
    says(output, "\n           a GPU: ");
    assert_int_equal(
        run("env -u HOME -u XDG_CACHE_HOME -u SNUG_CACHE " WITHOUT, "doctor --json --fp16", output, sizeof output), 2);
    const char *begin = strchr(output, '{');
    json_t *json = begin ? json_loads(begin, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    assert_non_null(json);
    assert_true(json_is_null(json_object_get(json_object_get(json, "cache"), "folder")));
    says(json_string_value(json_object_get(json, "refused")), "--fp16: fp16 needs a GPU");
    json_decref(json);
    assert_int_equal(run(WITHOUT, "gpu", output, sizeof output), 0);
    says(output, "snug uses the CPU");
    assert_int_equal(
        run(WITHOUT, "train --device cuda --config_name bert-tiny --train_file dummy:4x4", output, sizeof output), 1);
    says(output, "NVIDIA");
}

int main(int argc, char **argv) {
    (void)argc;
    start_with_fakes("test_gpu", argv);
    begin_world();
    if (snug_context_create(&ctx) != SNUG_OK) return 1;
    const int failed = run_registered(NULL, NULL);
    snug_context_destroy(ctx);
    remove(world);
    return failed;
}
