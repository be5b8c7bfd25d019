/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of a plan, by --gpu: its memory and its rates, on any machine. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/sizes/contract.h"
#include "measure/gpu_rates.h"
#include "train/device.h"

static bool is_file(const char *gpu) {
    const char *end = strrchr(gpu, '.');
    return strchr(gpu, '/') || (end && strcmp(end, ".json") == 0);
}

/* The GPU's name in a file of rates. */
static snug_status read_name(const struct snug_args *args, char *name, size_t size) {
    struct snug_rates rates;
    RETURN_IF_ERROR(snug_rates_read(args->ctx, args->gpu, &rates));
    const bool of_gpu = rates.overlaps;
    snprintf(name, size, "%s", *rates.device ? rates.device : "GPU");
    snug_rates_free(&rates);
    if (of_gpu) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "--gpu %s: these are rates of a CPU: on the GPU's machine, snug bench rates --device cuda --json "
                     "prints the GPU's",
                     args->gpu);
}

static snug_status fail_unknown(const struct snug_args *args) {
    char names[1536];
    snug_gpu_model_list(args->gpu, names, sizeof names);
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "--gpu %s: snug knows no GPU of this name, but %s; or give a file of its rates, which snug bench "
                     "rates --device cuda --json prints there",
                     args->gpu, names);
}

static snug_status check_model(const struct snug_args *args, const struct snug_gpu_model *model) {
    if (model->capability >= SNUG_CUDA_LEAST_CAPABILITY) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_UNSUPPORTED,
                     "--gpu %s: %s has compute capability %d.%d, and snug needs %d.%d or later", args->gpu, model->name,
                     model->capability / 10, model->capability % 10, SNUG_CUDA_LEAST_CAPABILITY / 10,
                     SNUG_CUDA_LEAST_CAPABILITY % 10);
}

snug_status snug_device_plan(const struct snug_args *args, int threads, struct snug_device *device) {
    struct snug_gpu *gpu = &device->usage.gpu;
    *device = (struct snug_device){.ctx = args->ctx,
                                   .backend = snug_backend_cuda_planned(INT_MAX),
                                   .threads = threads,
                                   .link_bandwidth = args->link_bandwidth,
                                   .opened_bytes = SNUG_GPU_OPENED_BYTES,
                                   .growth_bytes = SNUG_GPU_GROWTH_BYTES};
    device->usage.ctx = args->ctx;
    if (args->use_cpu || strcmp(args->device, "cpu") == 0)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--gpu %s and %s contradict each other: leave one out", args->gpu,
                         args->use_cpu ? "--use_cpu" : "--device cpu");
    if (is_file(args->gpu)) {
        device->rates_file = args->gpu;
        RETURN_IF_ERROR(read_name(args, gpu->name, sizeof gpu->name));
        device->model = snug_gpu_model_find(gpu->name);
    } else {
        device->model = snug_gpu_model_find(args->gpu);
        if (!device->model) return fail_unknown(args);
        snprintf(gpu->name, sizeof gpu->name, "%s", device->model->name);
    }
    if (device->model) {
        RETURN_IF_ERROR(check_model(args, device->model));
        device->backend = snug_backend_cuda_planned(device->model->capability);
        gpu->total = gpu->unused = (int64_t)(device->model->memory * 0x1p30);
    } else if (args->fit && !args->memory_budget) {
        return snug_fail(args->ctx, SNUG_E_USAGE, "--fit: snug does not know the memory of %s: give --memory_budget",
                         gpu->name);
    }
    return SNUG_OK;
}

snug_status snug_device_planned_rates(const struct snug_device *device, struct snug_rates *out) {
    if (device->rates_file) return snug_rates_read(device->ctx, device->rates_file, out);
    return snug_rates_scale(device->ctx, device->model, out);
}
