/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a run: the CPU, or a GPU with the memory of this process and the other processes on it. The device of a
 * plan may also be a GPU that this machine does not have (planned_gpu.c). */
#ifndef SNUG_TRAIN_DEVICE_H
#define SNUG_TRAIN_DEVICE_H

#include "backend/gpu.h"
#include "backend/gpu_models.h"
#include "train/run_plan.h"

struct snug_device {
    snug_context *ctx;
    const struct snug_backend *backend;
    int threads;
    double link_bandwidth; /* the arguments' */
    /* On a GPU: */
    struct snug_gpu_usage usage; /* measures the process's GPU memory */
    int64_t opened_bytes;        /* used when the backend was opened */
    /* What the driver is expected to allocate later for a plan whose captured phases take this much of it. */
    int64_t growth_bytes, captured_bytes;
    /* On a GPU of which the backend only plans: */
    const struct snug_gpu_model *model; /* NULL: unknown, its rates are in a file */
    const char *rates_file;             /* the arguments'; NULL: rates are scaled */
};

static inline bool snug_device_is_gpu(const struct snug_device *device) {
    return snug_backend_is_device(device->backend);
}

/* The GPU's name; NULL for the CPU. */
static inline const char *snug_device_gpu(const struct snug_device *device) {
    if (!snug_device_is_gpu(device)) return NULL;
    return *device->usage.gpu.name ? device->usage.gpu.name : "GPU";
}

/* Selects the GPU that --device names, and starts to measure it before its context is created. "auto" selects the CPU
 * if no GPU works, and logs why. Closed with snug_device_close(), after a failure too. */
snug_status snug_device_choose(const struct snug_args *args, int threads, struct snug_device *device);
/* Selects the GPU of --gpu, for a plan. */
snug_status snug_device_plan(const struct snug_args *args, int threads, struct snug_device *device);
void snug_device_close(struct snug_device *device);
/* The failure of --device cuda, with the reason why no GPU works. */
snug_status snug_device_fail(snug_context *ctx, snug_status status);
/* Refuses arguments that the backend's device does not support. */
snug_status snug_device_check(const struct snug_args *args, const struct snug_backend *backend);

/* Connects the GPUs of all ranks, if there are several. Before memory is measured: NCCL's buffers are in it. */
snug_status snug_device_connect(const struct snug_args *args, const struct snug_device *device);

/* Bytes that a run may use: those available now, and what the process uses already; -1: unknown. */
int64_t snug_device_available(const struct snug_device *device);
/* The way from a rank on this device to the others: GB/s, by --link_bandwidth or else by the GPU's model, and what it
 * is in words; 0: unknown. */
double snug_device_link(const struct snug_device *device, int ranks, const char **what);
/* Sets rates->link to it. */
void snug_device_set_link(const struct snug_device *device, int ranks, struct snug_rates *rates);
/* The rates of its operations. They stay empty, with a warning, where a GPU lacks the memory to measure them. */
snug_status snug_device_rates(const struct snug_device *device, struct snug_rates *out);
/* As above, for a GPU of which the backend only plans. */
snug_status snug_device_planned_rates(const struct snug_device *device, struct snug_rates *out);

/* The GPU that a run used. */
struct snug_device_use {
    char name[96];
    char method[128]; /* how its memory was measured */
    char others[512]; /* the other processes on it at the end, "" if there are none */
};

/* GPU memory of the driver's context and the libraries for a placed plan: what they use when they are open, and what
   they are expected to allocate later. After snug_device_measure(), or on a GPU of which the backend only plans. */
int64_t snug_device_context(const struct snug_device *device, const struct snug_run_plan *plan);
/* Measures what they use now, and reads what they allocated later in runs like this. */
snug_status snug_device_measure(struct snug_device *device, const struct snug_run_plan *plan);
/* After cudaMalloc of the arena failed though the plan fitted, because another process was faster: the failure. */
snug_status snug_device_refuse(struct snug_device *device, int64_t arena);
/* Bytes that the process uses on the GPU now; those of all processes if NVML does not report it. */
int64_t snug_device_used(struct snug_device *device, const struct snug_run_plan *plan);
/* Called at the end of a run, which then uses `bytes`: stores for later plans what the driver allocated after the
   plan. */
void snug_device_learn(const struct snug_device *device, const struct snug_run_plan *plan, int64_t used);
/* Fills in the GPU part of the summary. */
snug_status snug_device_describe(struct snug_device *device, struct snug_device_use *out);

#endif
