/* SPDX-License-Identifier: Apache-2.0 */
#include "train/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/folder.h"
#include "io/json.h"

static int64_t round_up_mib(int64_t bytes) { return bytes < 0 ? 0 : (bytes + (1 << 20) - 1) >> 20 << 20; }

snug_status snug_device_fail(snug_context *ctx, snug_status status) {
    char why[512];
    snprintf(why, sizeof why, "%s", snug_error_message(ctx));
    snug_clear_error(ctx);
    return snug_fail(ctx, status, "--device cuda: %s", why);
}

snug_status snug_device_choose(struct snug_job *job) {
    const struct snug_args *args = job->args;
    const struct snug_backend *cuda;
    job->backend = snug_backend_cpu();
    if (args->use_cpu || strcmp(args->device, "cpu") == 0) return SNUG_OK;
    RETURN_IF_ERROR(snug_gpu_meter_open(job->ctx, &job->meter));
    const snug_status status = snug_backend_cuda(job->ctx, &cuda);
    if (status == SNUG_OK) {
        job->backend = cuda;
    } else if (strcmp(args->device, "cuda") == 0) {
        return snug_device_fail(job->ctx, status);
    } else {
        snug_log(job->ctx, SNUG_LOG_INFO, "using the CPU: %s", snug_error_message(job->ctx));
        snug_clear_error(job->ctx);
    }
    return SNUG_OK;
}

snug_status snug_device_check(const struct snug_job *job) {
    const struct snug_args *args = job->args;
    const bool gpu = snug_job_on_device(job);
    if (!gpu && (args->fp16 || args->fp16_full_eval))
        return snug_fail(job->ctx, SNUG_E_USAGE,
                         "--%s: fp16 needs a GPU, and this run is on the CPU: use --%s, or leave it out",
                         args->fp16 ? "fp16" : "fp16_full_eval", args->fp16 ? "bf16" : "bf16_full_eval");
    if (!gpu && args->tf32) /* as transformers */
        return snug_fail(job->ctx, SNUG_E_USAGE,
                         "--tf32 needs an NVIDIA GPU, and this run is on the CPU: leave it out");
    if (gpu && args->offload && !job->backend->ops[SNUG_OP_FETCH])
        return snug_fail(job->ctx, SNUG_E_UNSUPPORTED,
                         "--offload %s: snug offloads on the CPU so far, and this run is on the GPU: leave it out, or "
                         "say --device cpu",
                         args->offload);
    if (gpu && args->fit) /* no rates of operations are measured there yet */
        return snug_fail(job->ctx, SNUG_E_UNSUPPORTED,
                         "--fit: snug searches for the CPU so far, and this run is on the GPU: leave it out, or say "
                         "--device cpu");
    return SNUG_OK;
}

/* ---- what is loaded after the plan ---------------------------------------------------------------------------- */

/* The driver loads a kernel when it is first used, and keeps memory for recorded phases: which ones, the kind of run
   decides. */
static void key_of(const struct snug_job *job, char *key, size_t size) {
    snprintf(key, size, "%s %s", snug_dtype_name(job->programs[0].compute), job->trains ? "training" : "evaluation");
}

/* The name of the file for this GPU, driver and version. */
static snug_status growth_name(const struct snug_job *job, char **name) {
    char gpu[sizeof job->meter.gpu.name + 1];
    snprintf(gpu, sizeof gpu, "%s", job->meter.gpu.name);
    for (char *at = gpu; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = '-';
    return snug_format(job->ctx, name, "gpu-%s-%s-%s.json", SNUG_VERSION, gpu,
                       *job->meter.driver ? job->meter.driver : "unknown");
}

/* What is remembered, by kind of run: an object, empty where there is nothing. */
static json_t *read_growth(const struct snug_job *job, const struct snug_folder *cache, const char *name) {
    json_t *json = NULL;
    const int fd = cache->path ? snug_cache_folder_find(job->ctx, cache, name) : -1;
    if (fd >= 0) {
        close(fd);
        if (snug_json_read(job->ctx, cache, name, &json) != SNUG_OK) {
            snug_log(job->ctx, SNUG_LOG_WARNING, "%s: it is written again", snug_error_message(job->ctx));
            snug_clear_error(job->ctx);
        }
    }
    if (json_is_object(json)) return json;
    json_decref(json);
    return json_object();
}

static snug_status find_growth(const struct snug_job *job, int64_t *growth) {
    enum { FIRST_GUESS = 8 << 20 }; /* what BERTs made the driver load on an H200 */
    char key[48], *name, problem[256];
    struct snug_folder cache;
    RETURN_IF_ERROR(growth_name(job, &name));
    const snug_status status = snug_cache_folder_open(job->ctx, &cache, problem);
    json_t *known = read_growth(job, &cache, name);
    key_of(job, key, sizeof key);
    const json_t *bytes = json_object_get(known, key);
    *growth = json_is_integer(bytes) && json_integer_value(bytes) >= 0 ? json_integer_value(bytes) : FIRST_GUESS;
    json_decref(known);
    snug_folder_close(&cache);
    free(name);
    return status;
}

static snug_status keep_growth(const struct snug_job *job, int64_t growth) {
    char key[48], *name, problem[256];
    struct snug_folder cache;
    RETURN_IF_ERROR(growth_name(job, &name));
    snug_status status = snug_cache_folder_open(job->ctx, &cache, problem);
    if (status == SNUG_OK && cache.path) {
        json_t *known = read_growth(job, &cache, name);
        key_of(job, key, sizeof key);
        json_object_set_new(known, key, json_integer(growth));
        status = known ? snug_json_write(job->ctx, &cache, name, known) : SNUG_E_MEMORY;
        json_decref(known);
    }
    snug_folder_close(&cache);
    free(name);
    return status;
}

void snug_device_learn(const struct snug_job *job, int64_t held) {
    enum { SAME = 2 << 20 }; /* varies by as much from run to run */
    const int64_t grown = held - job->layout.arena - job->opened_bytes, known = job->context_bytes - job->opened_bytes;
    if (!job->meter.fresh || job->meter.method == SNUG_GPU_BY_NOTHING) return; /* nothing was seen to grow */
    if (grown < 0 || (grown < known + SAME && grown > known - SAME)) return;
    if (keep_growth(job, round_up_mib(grown)) != SNUG_OK) snug_clear_error(job->ctx); /* only a better guess is lost */
}

/* ---- the context ---------------------------------------------------------------------------------------------- */

int64_t snug_device_held(struct snug_job *job) {
    const int64_t held = snug_gpu_meter_read(&job->meter);
    return held >= 0 ? held : job->backend->library(&job->programs[0], job->threads);
}

snug_status snug_device_measure(struct snug_job *job) {
    int64_t growth;
    char *others;
    job->opened_bytes = round_up_mib(snug_device_held(job));
    RETURN_IF_ERROR(find_growth(job, &growth));
    if (job->meter.device && !job->meter.fresh) growth = 0; /* what a job before loaded stays */
    job->context_bytes = job->opened_bytes + growth;
    RETURN_IF_ERROR(snug_gpu_meter_others(&job->meter, &others));
    if (*others) snug_log(job->ctx, SNUG_LOG_INFO, "other processes on %s: %s", job->meter.gpu.name, others);
    free(others);
    return SNUG_OK;
}

snug_status snug_device_refuse(struct snug_job *job) {
    char *others;
    snug_clear_error(job->ctx);
    RETURN_IF_ERROR(snug_gpu_meter_others(&job->meter, &others));
    const snug_status status = snug_fail(job->ctx, SNUG_E_DOES_NOT_FIT,
                                         "this run needs %.1f MiB of %s for its arena, and %.1f MiB are left: another "
                                         "process took them after the plan was "
                                         "made%s%s; wait for it, or choose another GPU by CUDA_VISIBLE_DEVICES",
                                         (double)job->layout.arena / 0x1p20, job->meter.gpu.name,
                                         (double)job->backend->available() / 0x1p20, *others ? ": " : "", others);
    free(others);
    return status;
}

snug_status snug_device_describe(struct snug_job *job, snug_device_use *out) {
    char *others;
    *out = (snug_device_use){.name = ""};
    snprintf(out->name, sizeof out->name, "%s", *job->meter.gpu.name ? job->meter.gpu.name : job->backend->name);
    snprintf(out->method, sizeof out->method, "%s", snug_gpu_method_text(job->meter.method));
    RETURN_IF_ERROR(snug_gpu_meter_others(&job->meter, &others));
    snprintf(out->others, sizeof out->others, "%s", others);
    free(others);
    return SNUG_OK;
}
