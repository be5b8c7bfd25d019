/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this machine, the processes that use them, and the GPU memory of this process. */
#ifndef SNUG_BACKEND_GPU_H
#define SNUG_BACKEND_GPU_H

#include "backend/nvml.h"

struct snug_gpu_process {
    int64_t pid, bytes; /* bytes: -1 if unknown */
    char name[64];      /* "" if unknown, as in a container with its own PID namespace */
    int rank, ranks;    /* ranks 0: no launcher started it as one of several, or its environment cannot be read */
};

struct snug_gpu {
    int index;   /* the index of nvidia-smi; -1 if only CUDA lists it */
    int ordinal; /* the CUDA ordinal, which depends on CUDA_VISIBLE_DEVICES; -1 if it is hidden */
    char name[96], uuid[64], bus[32];
    int major, minor;                      /* compute capability; 0 if unknown */
    int64_t total, reserved, used, unused; /* bytes; used: without the driver's reserve, if that is known */
    int utilisation, memory_utilisation;   /* percent of the last sampling period; -1: unknown */
    int temperature;                       /* degrees Celsius; -1: unknown */
    double power, power_limit;             /* watts; -1: unknown */
    bool lists_processes;                  /* NVML reports processes, if there are any */
    struct snug_gpu_process *processes;
    size_t process_count;
};

/* The way from a GPU to another one. */
struct snug_gpu_link {
    int nvlinks; /* that lead there, directly or through switches; 0: none */
    int level;   /* the nearest common part of the PCIe tree: SNUG_NVML_SINGLE … (backend/nvml.h); -1: unknown */
};

struct snug_gpus {
    snug_context *ctx;
    char driver[80], nvml[80],
        cuda[16]; /* versions; "" if unknown. cuda: the newest version that the driver supports */
    char nvml_problem[192], cuda_problem[192]; /* why one of them cannot be used; "" if it can */
    char visible[128];                         /* CUDA_VISIBLE_DEVICES; "" if unset */
    bool restricted;                           /* it is set */
    struct snug_gpu *items;
    size_t count;
    struct snug_gpu_link *links; /* [listed][listed], from and to; NULL with fewer than two */
    size_t listed;               /* the first of items, which NVML lists */
};

/* All GPUs that NVML and CUDA list. Fails only when out of memory. */
snug_status snug_gpus_look(snug_context *ctx, struct snug_gpus *out);
void snug_gpus_free(struct snug_gpus *gpus);

/* The GPU memory of this process. NVML's process ids may differ from the process's own (containers have their own PID
 * namespace), and NVML may list no processes. Then this process's memory is the growth of the used memory since before
 * its context was created, minus the growth of the other processes that NVML lists. */
enum snug_gpu_method {
    SNUG_GPU_BY_NOTHING,    /* NVML cannot be used: the driver's figure, which includes all processes */
    SNUG_GPU_BY_PROCESS,    /* NVML lists this process, by its own id */
    SNUG_GPU_BY_DIFFERENCE, /* as described above */
};

struct snug_gpu_usage {
    snug_context *ctx;
    struct snug_nvml nvml;
    snug_nvml_device device;
    struct snug_gpu gpu; /* the GPU before the run: first reading of memory and processes */
    enum snug_gpu_method method;
    bool fresh;      /* this process had no context on it before */
    bool shared_ids; /* NVML may list this process under its own id */
    int64_t
        own_host_id; /* the id under which NVML lists this process, if it differs from its own; -1 until it is known */
    char driver[80];
    char problem[192]; /* why NVML cannot be used */
};

/* Starts to measure the GPU of this local rank, see snug_backend_cuda_of(). Call it before the context is created. It
 * is no failure if nothing can be measured. */
snug_status snug_gpu_usage_open(snug_context *ctx, int local_rank, struct snug_gpu_usage *usage);
void snug_gpu_usage_close(struct snug_gpu_usage *usage);
/* The GPU memory of this process now; -1 if NVML does not report it. Call it once when only the context exists: it then
 * finds the id under which NVML lists this process. */
int64_t snug_gpu_usage_read(struct snug_gpu_usage *usage);
/* "4711 python 1024.0 MiB, …" of the other processes on it now; a sentence if their ids are unknown; "" if there are
 * none. */
snug_status snug_gpu_usage_others(struct snug_gpu_usage *usage, char **text);
/* A description of how the figures were measured. */
const char *snug_gpu_method_text(enum snug_gpu_method method);

#endif
