/* SPDX-License-Identifier: Apache-2.0 */
/* What snug finds on this machine, what is missing, and what it will use. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "backend/gpu.h"
#include "io/folder.h"
#include "io/json.h"
#include "report/report.h"
#include "train/device.h"

enum { NOTES = 12 };

struct snug_doctor {
    snug_context *ctx;
    struct utsname system;
    char cpu[96], isa[16], features[160], products[96];
    int cores, threads;
    int64_t memory, available;
    struct snug_gpus gpus;
    const struct snug_backend *cuda; /* NULL where no GPU can be trained on */
    snug_status plugin;              /* what opening the plug-in came to */
    char plugin_text[512];
    char cublaslt[96]; /* version and file, "" if it was not loaded */
    char *cache;       /* folder, NULL if there is none */
    char cache_problem[256];
    char used[640];    /* device and why */
    char refused[640]; /* why a training with these arguments would not begin, or "" */
    char missing[NOTES][384];
    int missing_count;
};

static void miss(snug_doctor *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void miss(snug_doctor *d, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(d->missing[d->missing_count++], sizeof *d->missing, format, args);
    va_end(args);
}

/* ---- the machine ---------------------------------------------------------------------------------------------- */

/* Of the flags that the kernel names, those that kernels of snug or oneDNN are written for. */
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

static void look_at_machine(snug_doctor *d, const struct snug_args *args) {
    struct snug_rates rates;
    uname(&d->system);
    snug_rates_init(d->ctx, &rates, snug_backend_cpu(), 1);
    snprintf(d->cpu, sizeof d->cpu, "%s", rates.cpu);
    snprintf(d->isa, sizeof d->isa, "%s", rates.isa);
    read_features(d);
    snug_backend_cpu_describe(d->products, sizeof d->products);
    d->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    d->threads = snug_args_threads(args);
    d->memory = snug_machine_bytes();
    d->available = snug_available_bytes();
    if (snug_backend_cpu() == snug_backend_reference())
        miss(d, "oneDNN: this build trains on the CPU in plain C, which is slow");
    else if (!snug_backend_cpu_fast_bf16())
        miss(d, "bf16 on the CPU: neither AMX-BF16 nor AVX512-BF16; --bf16 there is fp32");
}

static snug_status look_at_cache(snug_doctor *d) {
    RETURN_IF_ERROR(snug_cache_folder(d->ctx, &d->cache));
    if (!d->cache) {
        snprintf(d->cache_problem, sizeof d->cache_problem,
                 "there is none: SNUG_CACHE, XDG_CACHE_HOME and HOME are unset");
    } else if (snug_folder_check(d->ctx, d->cache) != SNUG_OK) {
        snprintf(d->cache_problem, sizeof d->cache_problem, "%s", snug_error_message(d->ctx));
        snug_clear_error(d->ctx);
    }
    if (*d->cache_problem)
        miss(d, "a cache folder: tokens and rates are made anew in every run (%s)", d->cache_problem);
    return SNUG_OK;
}

/* ---- the GPU -------------------------------------------------------------------------------------------------- */

/* Of the library that the plug-in brought in, if it did. */
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

static void look_at_plugin(snug_doctor *d) {
    const struct snug_backend *cuda;
    d->plugin = snug_backend_cuda(d->ctx, &cuda);
    if (d->plugin == SNUG_OK) d->cuda = cuda;
    snprintf(d->plugin_text, sizeof d->plugin_text, "%s",
             d->cuda ? "libsnug_cuda.so works" : snug_error_message(d->ctx));
    snug_clear_error(d->ctx);
    look_at_cublaslt(d);
    if (*d->gpus.cuda_problem)
        miss(d, "a GPU: %s", d->gpus.cuda_problem);
    else if (!d->cuda)
        miss(d, "training on the GPU: %s", d->plugin_text);
    if (d->cuda && *d->gpus.nvml_problem)
        miss(d, "NVML: %s; the ledger of a GPU then counts all its processes as ours", d->gpus.nvml_problem);
}

/* By the same rules as a training, see snug_device_choose(); its failure where one would be refused. */
static snug_status decide(snug_doctor *d, struct snug_args *args) {
    const bool asked_cpu = args->use_cpu || strcmp(args->device, "cpu") == 0;
    const bool asked_cuda = !args->use_cpu && strcmp(args->device, "cuda") == 0;
    const bool gpus = d->cuda && !asked_cpu;
    const struct snug_job job = {.ctx = d->ctx, .args = args, .backend = gpus ? d->cuda : snug_backend_cpu()};
    const struct snug_gpu *gpu = NULL;
    RETURN_IF_ERROR(snug_args_check(args, "doctor"));
    if (asked_cuda && !d->cuda) return snug_device_fail(d->ctx, snug_fail(d->ctx, d->plugin, "%s", d->plugin_text));
    RETURN_IF_ERROR(snug_device_check(&job));
    for (size_t i = 0; i < d->gpus.count; i++)
        if (d->gpus.items[i].ordinal == 0) gpu = &d->gpus.items[i];
    if (asked_cpu)
        snprintf(d->used, sizeof d->used, "the CPU, %d threads: %s says so", d->threads,
                 args->use_cpu ? "--use_cpu" : "--device cpu");
    else if (gpus)
        snprintf(d->used, sizeof d->used, "the GPU %s: %s%s", gpu ? gpu->name : "that CUDA lists first",
                 asked_cuda ? "--device cuda says so" : "--device auto takes the first one that works",
                 d->gpus.restricted ? " (of those that CUDA_VISIBLE_DEVICES leaves)" : "");
    else
        snprintf(d->used, sizeof d->used, "the CPU: %s", d->plugin_text);
    return SNUG_OK;
}

snug_status snug_doctor_create(snug_args *args, snug_doctor **out) {
    void *memory;
    *out = NULL;
    snug_clear_error(args->ctx);
    RETURN_IF_ERROR(snug_alloc(args->ctx, 1, sizeof **out, &memory));
    snug_doctor *d = memory;
    d->ctx = args->ctx;
    look_at_machine(d, args);
    snug_status status = look_at_cache(d);
    if (status == SNUG_OK) status = snug_gpus_look(d->ctx, &d->gpus);
    if (status != SNUG_OK) {
        snug_doctor_destroy(d);
        return status;
    }
    look_at_plugin(d);
    status = decide(d, args);
    if (status != SNUG_OK) {
        snprintf(d->refused, sizeof d->refused, "%s", snug_error_message(d->ctx));
        snprintf(d->used, sizeof d->used, "nothing: a training with these arguments is refused");
    }
    *out = d;
    return status;
}

void snug_doctor_destroy(snug_doctor *d) {
    if (!d) return;
    snug_gpus_free(&d->gpus);
    free(d->cache);
    free(d);
}

/* ---- as text and JSON ----------------------------------------------------------------------------------------- */

static double gib(int64_t bytes) { return (double)bytes / 0x1p30; }

static void print_gpus(FILE *out, const snug_doctor *d) {
    const struct snug_gpus *gpus = &d->gpus;
    char shown[SNUG_SHOWN];
    if (*gpus->driver || *gpus->cuda)
        fprintf(out, "Driver     %s%s%s\n", *gpus->driver ? gpus->driver : "of a version that NVML does not tell",
                *gpus->cuda ? ", for CUDA up to " : "", gpus->cuda);
    else
        fputs("Driver     none\n", out);
    fprintf(out, "NVML       %s\n", *gpus->nvml_problem ? gpus->nvml_problem : gpus->nvml);
    fprintf(out, "Plug-in    %s\n", d->plugin_text);
    if (*d->cublaslt) fprintf(out, "cuBLASLt   %s\n", d->cublaslt);
    if (gpus->restricted) fprintf(out, "CUDA_VISIBLE_DEVICES=%s\n", snug_shown(shown, gpus->visible));
    for (size_t i = 0; i < gpus->count; i++) {
        const struct snug_gpu *gpu = &gpus->items[i];
        fprintf(out, "GPU        %s, %s", gpu->name, gpu->bus);
        if (gpu->major) fprintf(out, ", compute capability %d.%d", gpu->major, gpu->minor);
        if (gpu->total > 0) fprintf(out, ", %.1f of %.1f GiB free", gib(gpu->unused), gib(gpu->total));
        if (gpu->process_count)
            fprintf(out, ", %zu process%s on it", gpu->process_count, gpu->process_count == 1 ? "" : "es");
        if (gpu->ordinal < 0) fputs(", hidden from programs", out);
        if (gpu->ordinal >= 0) fprintf(out, ", CUDA's number %d", gpu->ordinal);
        fputc('\n', out);
    }
}

static void print_doctor(FILE *out, const void *report) {
    const snug_doctor *d = report;
    char shown[SNUG_SHOWN];
    fprintf(out, "snug %s, %s %s, %s\n\n", SNUG_VERSION, d->system.sysname, d->system.release, d->system.machine);
    fprintf(out, "CPU        %s, %d of %d cores to be used\n", d->cpu, d->threads, d->cores);
    fprintf(out, "           %s: kernels of level %s\n", d->features, d->isa);
    fprintf(out, "Products   %s\n", d->products);
    fprintf(out, "Memory     %.1f GiB, %.1f available\n", gib(d->memory), gib(d->available));
    fprintf(out, "Cache      %s\n", snug_shown(shown, *d->cache_problem ? d->cache_problem : d->cache));
    print_gpus(out, d);
    fprintf(out, "\nUsed       %s\n", d->used);
    if (*d->refused) fprintf(out, "Refused    %s\n", d->refused);
    for (int i = 0; i < d->missing_count; i++) fprintf(out, "%-10s %s\n", i ? "" : "Missing", d->missing[i]);
    if (!d->missing_count) fputs("Missing    nothing\n", out);
}

snug_status snug_doctor_text(const snug_doctor *d, char **text) {
    return snug_report_text(d->ctx, print_doctor, d, text);
}

snug_status snug_doctor_json(const snug_doctor *d, char **text) {
    json_t *missing = json_array();
    for (int i = 0; i < d->missing_count; i++) snug_json_append(&missing, snug_json_from_text(d->missing[i]));
    return snug_report_json(
        d->ctx,
        json_pack(
            "{s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:s, s:i, s:i}, s:{s:I, s:I}, s:{s:o, s:o}, s:o, "
            "s:{s:b, s:o, s:o}, s:o, s:o, s:o}",
            "version", SNUG_VERSION, "system", "name", d->system.sysname, "release", d->system.release, "machine",
            d->system.machine, "cpu", "name", d->cpu, "features", d->features, "level", d->isa, "products", d->products,
            "cores", d->cores, "threads", d->threads, "memory", "bytes", (json_int_t)d->memory, "available",
            (json_int_t)d->available, "cache", "folder", d->cache ? snug_json_from_text(d->cache) : json_null(),
            "problem", *d->cache_problem ? snug_json_from_text(d->cache_problem) : json_null(), "gpu",
            snug_gpus_object(&d->gpus), "plugin", "works", d->cuda != NULL, "text", snug_json_from_text(d->plugin_text),
            "cublaslt", *d->cublaslt ? json_string(d->cublaslt) : json_null(), "used", snug_json_from_text(d->used),
            "refused", *d->refused ? snug_json_from_text(d->refused) : json_null(), "missing", missing),
        text);
}
