/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/doctor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/library.h"
#include "dist/mpi/plugin.h"
#include "io/folder.h"
#include "train/device.h"
#include "train/group.h"
#include "train/memory.h"
#include "train/threads.h"

static void miss(snug_doctor *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void miss(snug_doctor *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(d->missing[d->missing_count++], sizeof *d->missing, format, args);
    va_end(args);
}

/* ---- the machine ---------------------------------------------------------------------------------------------- */

/* The CPU flags, as Linux reports them, that kernels of snug or oneDNN use. */
static void read_features(snug_doctor *d) {
    static const char *const known[] = {"sse4_2",      "avx2",     "fma",      "avx512f", "avx512bw", "avx512_vnni",
                                        "avx512_bf16", "amx_tile", "amx_bf16", "asimd",   "sve",      "bf16"};
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && getline(&line, &size, file) > 0)
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) break;
    for (size_t i = 0; line && i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(known[i]), used = strlen(d->features);
        const char *at = line;
        while ((at = strstr(at, known[i])) && (at[-1] != ' ' || !strchr(" \n", at[length]))) at += length;
        if (at) snprintf(d->features + used, sizeof d->features - used, "%s%s", used ? " " : "", known[i]);
    }
    free(line);
    if (file) fclose(file);
}

/* How a thread of OpenMP waits for others; GCC's library reads the variables when it is loaded. */
static void describe_waiting(char *text, size_t size) {
    const char *policy = getenv("OMP_WAIT_POLICY"), *spins = getenv("GOMP_SPINCOUNT"); /* spins come first */
    snprintf(text, size, "%s%.32s",
             spins    ? "threads spin, then sleep: GOMP_SPINCOUNT="
             : policy ? "OMP_WAIT_POLICY="
                      : "",
             spins    ? spins
             : policy ? policy
                      : "threads spin for long: OMP_WAIT_POLICY, GOMP_SPINCOUNT are unset");
}

static void look_at_machine(snug_doctor *d, const struct snug_args *args) {
    struct snug_rates rates;
    uname(&d->system);
    snug_rates_init(d->ctx, &rates, snug_backend_cpu(), NULL, 1);
    snprintf(d->cpu, sizeof d->cpu, "%s", rates.device);
    snprintf(d->isa, sizeof d->isa, "%s", rates.isa);
    read_features(d);
    describe_waiting(d->waiting, sizeof d->waiting);
    snug_backend_cpu_describe(d->matmuls, sizeof d->matmuls);
    d->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    d->threads = snug_args_threads(args);
    snug_cgroup_read("", &d->cgroup);
    d->memory = snug_machine_bytes();
    d->available = snug_available_bytes();
    if (snug_backend_cpu() == snug_backend_reference())
        miss(d, "oneDNN: this build trains on the CPU in plain C, which is slow");
    else if (!snug_backend_cpu_fast_bf16())
        miss(d, "bf16 on the CPU: no AMX-BF16, AVX512-BF16 or BFDOT (ARM); --bf16 there is fp32");
}

static snug_status look_at_cache(snug_doctor *d) {
    RETURN_IF_ERROR(snug_cache_folder(d->ctx, &d->cache));
    if (!d->cache) {
        snprintf(d->cache_problem, sizeof d->cache_problem, "none: SNUG_CACHE, XDG_CACHE_HOME and HOME are unset");
    } else if (snug_folder_check(d->ctx, d->cache) != SNUG_OK) {
        snprintf(d->cache_problem, sizeof d->cache_problem, "%s", snug_context_message(d->ctx));
        snug_clear_error(d->ctx);
    }
    if (*d->cache_problem)
        miss(d, "a cache folder: every run tokenizes and measures rates again (%s)", d->cache_problem);
    return SNUG_OK;
}

/* ---- the GPU -------------------------------------------------------------------------------------------------- */

/* The version of the library that the plug-in loaded, if any. */
static void look_at_cublaslt(snug_doctor *d) {
    static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        void *library = dlopen(files[i], RTLD_LAZY | RTLD_NOLOAD), *symbol;
        size_t (*version)(void);
        if (!library) continue;
        symbol = dlsym(library, "cublasLtGetVersion");
        memcpy(&version, &symbol, sizeof version);
        const size_t number = symbol ? version() : 0;
        snprintf(d->cublaslt, sizeof d->cublaslt, "%zu.%zu.%zu (%s)", number / 10000, number / 100 % 100, number % 100,
                 files[i]);
        dlclose(library);
        return;
    }
}

/* The GPU of this rank. */
static int local_rank(const struct snug_args *args) { return args->group ? args->group->ranks.local_rank : 0; }

static void look_at_plugin(snug_doctor *d, const struct snug_args *args) {
    const struct snug_backend *cuda;
    d->plugin = snug_backend_cuda_of(d->ctx, local_rank(args), &cuda);
    if (d->plugin == SNUG_OK) d->cuda = cuda;
    snprintf(d->plugin_text, sizeof d->plugin_text, "%s",
             d->cuda ? "libsnug_cuda.so works" : snug_context_message(d->ctx));
    snug_clear_error(d->ctx);
    look_at_cublaslt(d);
    if (*d->gpus.cuda_problem)
        miss(d, "a GPU: %s", d->gpus.cuda_problem);
    else if (!d->cuda)
        miss(d, "training on the GPU: %s", d->plugin_text);
    if (d->cuda && d->cuda->lacks_bf16)
        miss(d, "bf16 and TF32 on the GPU: before compute capability 8.0; use --fp16 there");
    if (d->cuda && *d->gpus.nvml_problem)
        miss(d, "NVML: %s; the memory report of a GPU then counts the memory of all its processes",
             d->gpus.nvml_problem);
}

/* ---- several ranks --------------------------------------------------------------------------------------------- */

static void look_at_nccl(snug_doctor *d) {
    int number = 0, (*version)(int *);
    char why[512];
    if (d->gpus.count < 2) return;
    void *library = snug_library_open("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL, why, sizeof why);
    if (!library) {
        snprintf(d->nccl, sizeof d->nccl, "none: %s", why);
        miss(d, "NCCL, for several GPUs: %.300s", why);
        return;
    }
    void *symbol = dlsym(library, "ncclGetVersion");
    memcpy(&version, &symbol, sizeof version);
    if (symbol) version(&number);
    snprintf(d->nccl, sizeof d->nccl, "%d.%d.%d (libnccl.so.2)", number / 10000, number / 100 % 100, number % 100);
}

/* Opened, but not started, which a process can do only once. */
static void look_at_mpi(snug_doctor *d) {
    static const char *const files[] = {SNUG_MPI_OPENMPI, SNUG_MPI_MPICH}, *const names[] = {"Open MPI", "MPICH"};
    char why[512];
    for (int i = 0; i < 2; i++) {
        const size_t used = strlen(d->mpi);
        if (snug_library_open(files[i], RTLD_LAZY | RTLD_LOCAL, why, sizeof why))
            snprintf(d->mpi + used, sizeof d->mpi - used, "%s%s (%s)", used ? ", " : "", names[i], files[i]);
    }
    if (!*d->mpi) snprintf(d->mpi, sizeof d->mpi, "none: %s", why);
}

/* What each rank would use; rank 0 fails if one of them does. */
static snug_status share_ranks(snug_doctor *d, const struct snug_args *args, snug_status own) {
    const struct snug_process_group *group = args->group;
    if (!group) return own;
    d->rank_count = group->ranks.size;
    snprintf(d->group, sizeof d->group, "%d, started by %s, connected through %s", d->rank_count, group->ranks.launcher,
             group->collectives->name);
    RETURN_IF_ERROR(snug_alloc(d->ctx, (size_t)d->rank_count, sizeof *d->ranks, (void **)&d->ranks));
    struct snug_doctor_rank *r = &d->ranks[group->ranks.rank];
    memcpy(r->host, group->ranks.host, sizeof r->host);
    snprintf(r->used, sizeof r->used, "%.*s", (int)sizeof r->used - 1, d->used);
    snprintf(r->refused, sizeof r->refused, "%.*s", (int)sizeof r->refused - 1, d->refused);
    RETURN_IF_ERROR(snug_group_all_gather(d->ctx, group, d->ranks, sizeof *d->ranks));
    for (int i = 0; i < d->rank_count && own == SNUG_OK; i++)
        if (*d->ranks[i].refused)
            own = snug_fail(d->ctx, SNUG_E_UNSUPPORTED, "rank %d on %s: %s", i, d->ranks[i].host, d->ranks[i].refused);
    return own;
}

/* ---- the choice ------------------------------------------------------------------------------------------------ */

/* Uses the same rules as a training, see snug_device_choose(); fails as the training would. */
static snug_status decide(snug_doctor *d, struct snug_args *args) {
    const bool asked_cpu = args->use_cpu || strcmp(args->device, "cpu") == 0;
    const bool asked_cuda = !args->use_cpu && strcmp(args->device, "cuda") == 0;
    const bool gpus = d->cuda && !asked_cpu;
    const struct snug_gpu *gpu = NULL;
    RETURN_IF_ERROR(snug_args_check(args, "doctor"));
    if (asked_cuda && !d->cuda) return snug_device_fail(d->ctx, snug_fail(d->ctx, d->plugin, "%s", d->plugin_text));
    RETURN_IF_ERROR(snug_device_check(args, gpus ? d->cuda : snug_backend_cpu()));
    for (size_t i = 0; i < d->gpus.count; i++)
        if (d->gpus.items[i].ordinal == (d->gpus.count > 1 ? local_rank(args) : 0)) gpu = &d->gpus.items[i];
    if (asked_cpu)
        snprintf(d->used, sizeof d->used, "the CPU, %d threads: requested by %s", d->threads,
                 args->use_cpu ? "--use_cpu" : "--device cpu");
    else if (gpus)
        snprintf(d->used, sizeof d->used, "the GPU %s%s%s: %s%s", gpu ? gpu->name : "that CUDA lists first",
                 gpu && args->group ? " at " : "", gpu && args->group ? gpu->bus : "",
                 args->group  ? "that of its local rank"
                 : asked_cuda ? "requested by --device cuda"
                              : "--device auto takes the first one that works",
                 d->gpus.restricted ? " (of those that CUDA_VISIBLE_DEVICES leaves)" : "");
    else
        snprintf(d->used, sizeof d->used, "the CPU: %s", d->plugin_text);
    return SNUG_OK;
}

static snug_status create_doctor(snug_args *args, snug_doctor **out) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_doctor *d = memory;
    d->ctx = args->ctx;
    const snug_status joined = snug_group_join(args);
    if (joined != SNUG_OK) snprintf(d->refused, sizeof d->refused, "%s", snug_context_message(d->ctx));
    snug_clear_error(d->ctx);
    look_at_machine(d, args);
    snug_status status = look_at_cache(d);
    if (status == SNUG_OK) status = snug_gpus_look(d->ctx, &d->gpus);
    if (status != SNUG_OK) {
        snug_doctor_destroy(d);
        return status;
    }
    look_at_plugin(d, args);
    look_at_nccl(d);
    look_at_mpi(d);
    status = joined == SNUG_OK ? decide(d, args) : snug_fail(d->ctx, joined, "%s", d->refused);
    if (status != SNUG_OK) {
        snprintf(d->refused, sizeof d->refused, "%s", snug_context_message(d->ctx));
        snprintf(d->used, sizeof d->used, "nothing: a training with these arguments is refused");
    }
    *out = d;
    return share_ranks(d, args, status);
}

snug_status snug_doctor_create(snug_args *args, snug_doctor **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, create_doctor(args, out));
}

void snug_doctor_destroy(snug_doctor *d) {
    if (!d) return;
    snug_gpus_free(&d->gpus);
    free(d->cache);
    free(d->ranks);
    free(d);
}
