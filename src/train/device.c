/* SPDX-License-Identifier: Apache-2.0 */
#include "train/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/folder.h"
#include "io/json.h"
#include "run/captured.h"
#include "train/memory.h"

snug_status snug_device_fail(snug_context *ctx, snug_status status) {
    char why[512];
    snprintf(why, sizeof why, "%s", snug_context_message(ctx));
    snug_clear_error(ctx);
    return snug_fail(ctx, status, "--device cuda: %s", why);
}

static snug_status refuse_planned_gpu(const struct snug_args *args) {
    if (!args->gpu) return SNUG_OK;
    return snug_fail(
        args->ctx, SNUG_E_USAGE,
        "--gpu %s: only snug plan accepts a GPU that is not installed; the other commands use --device cuda",
        args->gpu);
}

snug_status snug_device_choose(const struct snug_args *args, int threads, struct snug_device *device) {
    const struct snug_backend *cuda;
    *device = (struct snug_device){
        .ctx = args->ctx, .backend = snug_backend_cpu(), .threads = threads, .link_bandwidth = args->link_bandwidth};
    RETURN_IF_ERROR(refuse_planned_gpu(args));
    if (args->use_cpu || strcmp(args->device, "cpu") == 0) return SNUG_OK;
    const int local_rank = args->group ? args->group->ranks.local_rank : 0;
    RETURN_IF_ERROR(snug_gpu_usage_open(device->ctx, local_rank, &device->usage));
    const snug_status status = snug_backend_cuda_of(device->ctx, local_rank, &cuda);
    if (status == SNUG_OK) {
        device->backend = cuda;
    } else if (strcmp(args->device, "cuda") == 0) {
        return snug_device_fail(device->ctx, status);
    } else {
        snug_log(device->ctx, SNUG_LOG_INFO, "using the CPU: %s", snug_context_message(device->ctx));
        snug_clear_error(device->ctx);
    }
    return SNUG_OK;
}

void snug_device_close(struct snug_device *device) { snug_gpu_usage_close(&device->usage); }

/* As transformers, which refuses types that the GPU lacks. */
static snug_status check_types(const struct snug_args *args, const struct snug_backend *backend) {
    const struct {
        bool given;
        const char *flag, *instead;
    } flags[] = {
        {args->bf16, "bf16", "use --fp16"},
        {args->bf16_full_eval, "bf16_full_eval", "use --fp16_full_eval"},
        {args->tf32, "tf32", "leave it out, or use --fp16"},
    };
    if (!backend->lacks_bf16) return SNUG_OK;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].given)
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "--%s needs a GPU of compute capability 8.0 or later, and %s is an earlier one: %s",
                             flags[i].flag, args->gpu ? args->gpu : "this machine's", flags[i].instead);
    return SNUG_OK;
}

snug_status snug_device_check(const struct snug_args *args, const struct snug_backend *backend) {
    const bool gpu = snug_backend_is_device(backend);
    if (!backend->plans_only) RETURN_IF_ERROR(refuse_planned_gpu(args));
    RETURN_IF_ERROR(check_types(args, backend));
    if (!gpu && (args->fp16 || args->fp16_full_eval))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--%s: fp16 needs a GPU, and this run is on the CPU: use --%s, or leave it out",
                         args->fp16 ? "fp16" : "fp16_full_eval", args->fp16 ? "bf16" : "bf16_full_eval");
    if (!gpu && args->gpus && args->num_processes > 0)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gpus %s: this plan would be for CPUs: name the GPUs' model, for example --gpu H100; "
                         "--num_processes %s plans for ranks on CPUs",
                         args->gpus, args->gpus);
    if (!gpu && args->tf32) /* as transformers */
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--tf32 needs an NVIDIA GPU, and this run is on the CPU: leave it out");
    if (!gpu && args->group && !args->group->hosts)
        return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                         "this run would use CPUs, and %s does not start MPI, which several ranks on CPUs need: start "
                         "them with mpirun -n %d snug …, or with srun --mpi=pmix",
                         args->group->ranks.launcher, args->group->ranks.size);
    return SNUG_OK;
}

/* With --device auto a rank would use the CPU where its GPU does not work, and the others would wait for it. */
static snug_status check_kinds(const struct snug_args *args, bool gpu) {
    const struct snug_process_group *group = args->group;
    char *kinds;
    RETURN_IF_ERROR(snug_alloc(args->ctx, (size_t)group->ranks.size, 1, (void **)&kinds));
    kinds[group->ranks.rank] = gpu;
    snug_status status = snug_group_all_gather(args->ctx, group, kinds, 1);
    for (int r = 1; r < group->ranks.size && status == SNUG_OK; r++)
        if (kinds[r] != kinds[0])
            status = snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                               "rank 0 uses a %s, and rank %d a %s: with --device cuda the rank without one says why, "
                               "with --device cpu all use CPUs",
                               kinds[0] ? "GPU" : "CPU", r, kinds[r] ? "GPU" : "CPU");
    free(kinds);
    return status;
}

snug_status snug_device_connect(const struct snug_args *args, const struct snug_device *device) {
    struct snug_process_group *group = args->group;
    const struct snug_backend *backend = device->backend;
    if (!group) return SNUG_OK;
    RETURN_IF_ERROR(check_kinds(args, snug_backend_is_device(backend)));
    if (!backend->connects || group->devices) return SNUG_OK;
    snug_group_at(group, -1, "connecting the GPUs");
    group->disconnect = backend->disconnect;
    return backend->connect(args->ctx, group->collectives, &group->devices);
}

int64_t snug_device_available(const struct snug_device *device) {
    if (!snug_device_is_gpu(device)) return snug_available_bytes();
    if (!device->backend->plans_only) return device->backend->available() + device->opened_bytes;
    return device->usage.gpu.total > 0 ? device->usage.gpu.total : -1;
}

/* ---- several ranks ---------------------------------------------------------------------------------------------- */

/* Shares of a link's peak rate: of NVLink's, which copies of a few MiB beside matmuls reached on H100, and of PCI
   Express's, assumed. The seconds until the first byte of a call is sent, and those of the message to each other rank:
   docs/scaling.md. GB/s of a GPU's own network adapter of 400 Gb/s: 90 % of its peak. */
#define NVLINK_SHARE 0.45
#define PCIE_SHARE 0.8
#define LINK_CALL 10e-6
#define LINK_MESSAGE 1e-6
#define NETWORK 45.0
enum { GPUS_OF_HOST = 8 };

double snug_device_link(const struct snug_device *device, int ranks, const char **what) {
    const struct snug_gpu_model *model = device->model;
    *what = "--link_bandwidth";
    if (device->link_bandwidth > 0) return device->link_bandwidth;
    if (!snug_device_is_gpu(device)) return 0;
    if (!model) model = snug_gpu_model_find(device->usage.gpu.name);
    *what = "of a network adapter of 400 Gb/s for each GPU, assumed";
    if (ranks > GPUS_OF_HOST) return NETWORK;
    if (!model) return 0;
    *what = model->nvlink > 0 ? "45 % of NVLink's, as on H100" : "80 % of PCI Express's, assumed";
    return model->nvlink > 0 ? NVLINK_SHARE * model->nvlink : PCIE_SHARE * model->link;
}

void snug_device_set_link(const struct snug_device *device, int ranks, struct snug_rates *rates) {
    const char *what;
    const double bandwidth = snug_device_link(device, ranks, &what);
    if (bandwidth > 0)
        rates->link = (struct snug_link){.call = LINK_CALL, .rank = LINK_MESSAGE, .byte = 1e-9 / bandwidth};
}

/* ---- rates ------------------------------------------------------------------------------------------------------ */

snug_status snug_device_rates(const struct snug_device *device, struct snug_rates *out) {
    if (device->backend->plans_only) return snug_device_planned_rates(device, out);
    const char *gpu = snug_device_gpu(device);
    const snug_status status = snug_rates_open(device->ctx, device->backend, gpu, device->threads, out);
    if (status != SNUG_E_MEMORY || !gpu) return status;
    snug_log(device->ctx, SNUG_LOG_WARNING, "the seconds of a step are unknown: %s", snug_context_message(device->ctx));
    snug_clear_error(device->ctx);
    *out = (struct snug_rates){.ctx = device->ctx};
    return SNUG_OK;
}

/* ---- memory that is allocated after the plan --------------------------------------------------------------------- */

/* The driver loads a kernel when it is first used, and allocates memory for captured phases, and NCCL has buffers for
   other ranks. Captured phases are in the plan; the rest depends on the kind of run. */
static void key_of(const struct snug_run_plan *plan, char *key, size_t size) {
    const struct snug_program *program = &plan->programs[0].program;
    const int used = snprintf(key, size, "%s %s", snug_dtype_name(program->compute),
                              snug_run_plan_find(plan, SNUG_ROLE_TRAINING) ? "training" : "evaluation");
    if (program->ranks > 1) snprintf(key + used, size - (size_t)used, " %d ranks", program->ranks);
}

/* The name of the file for this GPU, driver and version. */
static snug_status growth_name(const struct snug_device *device, char **name) {
    char gpu[sizeof device->usage.gpu.name + 1];
    snprintf(gpu, sizeof gpu, "%s", device->usage.gpu.name);
    for (char *at = gpu; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = '-';
    return snug_format(device->ctx, name, "gpu-%s-%s-%s.json", SNUG_VERSION, gpu,
                       *device->usage.driver ? device->usage.driver : "unknown");
}

/* The stored figures, by kind of run: an object, empty if nothing is stored. */
static json_t *read_growth(const struct snug_device *device, const struct snug_folder *cache, const char *name) {
    json_t *json = NULL;
    const int fd = cache->path ? snug_cache_folder_find(device->ctx, cache, name) : -1;
    if (fd >= 0) {
        close(fd);
        if (snug_json_read(device->ctx, cache, name, &json) != SNUG_OK) {
            snug_log(device->ctx, SNUG_LOG_WARNING, "%s: rewriting it", snug_context_message(device->ctx));
            snug_clear_error(device->ctx);
        }
    }
    if (json_is_object(json)) return json;
    json_decref(json);
    return json_object();
}

/* All programs share the number of phases that are captured. */
static int64_t captured_bytes(const struct snug_device *device, const struct snug_run_plan *plan) {
    int64_t bytes = 0;
    int phases = device->backend->captured_phases;
    for (int i = 0; i < plan->count; i++) {
        const struct snug_data_pipeline *pipeline = &plan->programs[i].pipeline;
        bytes += snug_captured_bytes(device->backend, &plan->programs[i].program, &pipeline->limits.sizes,
                                     snug_loader_share(&pipeline->options), &phases);
    }
    return bytes;
}

static int64_t stored_bytes(const json_t *known, const char *key, const char *name) {
    const json_t *bytes = json_object_get(json_object_get(known, key), name);
    return json_is_integer(bytes) ? json_integer_value(bytes) : -1;
}

static snug_status find_growth(struct snug_device *device, const struct snug_run_plan *plan) {
    char key[48], *name, problem[256];
    struct snug_folder cache;
    RETURN_IF_ERROR(growth_name(device, &name));
    const snug_status status = snug_cache_folder_open(device->ctx, &cache, problem);
    json_t *known = read_growth(device, &cache, name);
    key_of(plan, key, sizeof key);
    device->growth_bytes = stored_bytes(known, key, "growth");
    device->captured_bytes = stored_bytes(known, key, "captured");
    if (device->growth_bytes < 0 || device->captured_bytes < 0) { /* the first run of this kind */
        device->growth_bytes = SNUG_GPU_GROWTH_BYTES;
        device->captured_bytes = 0;
    }
    json_decref(known);
    snug_folder_close(&cache);
    free(name);
    return status;
}

static snug_status keep_growth(const struct snug_device *device, const struct snug_run_plan *plan, int64_t growth) {
    char key[48], *name, problem[256];
    struct snug_folder cache;
    RETURN_IF_ERROR(growth_name(device, &name));
    snug_status status = snug_cache_folder_open(device->ctx, &cache, problem);
    if (status == SNUG_OK && cache.path) {
        json_t *known = read_growth(device, &cache, name);
        key_of(plan, key, sizeof key);
        snug_json_add(&known, key,
                      json_pack("{s:I, s:I}", "growth", (json_int_t)growth, "captured",
                                (json_int_t)captured_bytes(device, plan)));
        status = known ? snug_json_write(device->ctx, &cache, name, known) : SNUG_E_MEMORY;
        json_decref(known);
    }
    snug_folder_close(&cache);
    free(name);
    return status;
}

void snug_device_learn(const struct snug_device *device, const struct snug_run_plan *plan, int64_t used) {
    enum { SAME = 2 << 20 }; /* variation from run to run */
    const int64_t grown = used - plan->layout.arena - device->opened_bytes,
                  known = snug_device_context(device, plan) - device->opened_bytes;
    if (!device->usage.fresh || device->usage.method == SNUG_GPU_BY_NOTHING) return; /* no growth was measured */
    if (grown < 0 || (grown < known + SAME && grown > known - SAME)) return;
    if (keep_growth(device, plan, snug_round_up_mib(grown)) != SNUG_OK)
        snug_clear_error(device->ctx); /* a failure only loses a better estimate */
}

/* ---- the context ---------------------------------------------------------------------------------------------- */

int64_t snug_device_used(struct snug_device *device, const struct snug_run_plan *plan) {
    const int64_t used = snug_gpu_usage_read(&device->usage);
    return used >= 0 ? used : device->backend->library(&plan->programs[0].program, device->threads);
}

/* What an earlier run allocated besides its captured phases, and this plan's. */
int64_t snug_device_context(const struct snug_device *device, const struct snug_run_plan *plan) {
    const int64_t captured = captured_bytes(device, plan), growth = device->growth_bytes;
    if (device->usage.device && !device->usage.fresh)
        return device->opened_bytes; /* what an earlier run of the process allocated remains allocated */
    if (captured == device->captured_bytes) return device->opened_bytes + growth; /* as that run */
    const int64_t rest = growth > device->captured_bytes ? growth - device->captured_bytes : 0;
    return device->opened_bytes + snug_round_up_mib(rest + captured);
}

snug_status snug_device_measure(struct snug_device *device, const struct snug_run_plan *plan) {
    char *others;
    if (device->backend->plans_only) return SNUG_OK; /* snug_device_plan() has set it */
    device->opened_bytes = snug_round_up_mib(snug_device_used(device, plan));
    RETURN_IF_ERROR(find_growth(device, plan));
    RETURN_IF_ERROR(snug_gpu_usage_others(&device->usage, &others));
    if (*others) snug_log(device->ctx, SNUG_LOG_INFO, "other processes on %s: %s", device->usage.gpu.name, others);
    free(others);
    return SNUG_OK;
}

snug_status snug_device_refuse(struct snug_device *device, int64_t arena) {
    char *others;
    snug_clear_error(device->ctx);
    RETURN_IF_ERROR(snug_gpu_usage_others(&device->usage, &others));
    const snug_status status =
        snug_fail(device->ctx, SNUG_E_DOES_NOT_FIT,
                  "this run needs %.1f MiB of %s for its arena, and %.1f MiB are left: another "
                  "process allocated memory after the plan was "
                  "made%s%s; wait for it, choose another GPU by CUDA_VISIBLE_DEVICES, or plan with less by "
                  "--memory_budget and --fit",
                  (double)arena / 0x1p20, device->usage.gpu.name, (double)device->backend->available() / 0x1p20,
                  *others ? ": " : "", others);
    free(others);
    return status;
}

snug_status snug_device_describe(struct snug_device *device, struct snug_device_use *out) {
    char *others;
    *out = (struct snug_device_use){.name = ""};
    snprintf(out->name, sizeof out->name, "%s",
             *device->usage.gpu.name ? device->usage.gpu.name : device->backend->name);
    snprintf(out->method, sizeof out->method, "%s", snug_gpu_method_text(device->usage.method));
    RETURN_IF_ERROR(snug_gpu_usage_others(&device->usage, &others));
    snprintf(out->others, sizeof out->others, "%s", others);
    free(others);
    return SNUG_OK;
}
