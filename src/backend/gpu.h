/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in this machine: its GPUs, who uses them, and how much of one this process holds. */
#ifndef SNUG_BACKEND_GPU_H
#define SNUG_BACKEND_GPU_H

#include "backend/nvml.h"

struct snug_gpu_process {
    int64_t pid, bytes; /* bytes: -1 where it is not told */
    char name[64];      /* "" where it is not known, as in a container whose process ids are others */
};

struct snug_gpu {
    int index;   /* as nvidia-smi counts; -1 where only CUDA lists it */
    int ordinal; /* as programs count it, CUDA_VISIBLE_DEVICES respected; -1 where it is hidden from them */
    char name[96], uuid[64], bus[32];
    int major, minor;                      /* compute capability; 0 where it is not known */
    int64_t total, reserved, used, unused; /* bytes; used: without the driver's reserve, where that is told */
    int utilisation, memory_utilisation;   /* percent of the last sampling period; -1: not told */
    int temperature;                       /* degrees Celsius; -1: not told */
    double power, power_limit;             /* watts; -1: not told */
    bool lists_processes;                  /* NVML tells them, if there are any */
    struct snug_gpu_process *processes;
    size_t process_count;
};

struct snug_gpus {
    snug_context *ctx;
    char driver[80], nvml[80], cuda[16];       /* versions; "" where not known. cuda: the newest that the driver runs */
    char nvml_problem[192], cuda_problem[192]; /* why one of them cannot be used; "" if it can */
    char visible[128];                         /* CUDA_VISIBLE_DEVICES; "" if unset */
    bool restricted;                           /* it is set */
    struct snug_gpu *items;
    size_t count;
};

/* All GPUs, as NVML lists them and CUDA sees them. Fails only where memory is out. */
snug_status snug_gpus_look(snug_context *ctx, struct snug_gpus *out);
void snug_gpus_free(struct snug_gpus *gpus);

/* How much of a GPU this process holds. Process ids of NVML need not be ours (a container has its own), and it may tell
   none; then what the device's use grew by since before our context is ours, but what processes that NVML does list
   have taken meanwhile. */
enum snug_gpu_method {
    SNUG_GPU_BY_NOTHING,    /* NVML cannot be used: the driver's figure, which holds all processes */
    SNUG_GPU_BY_PROCESS,    /* NVML lists this process, by its own id */
    SNUG_GPU_BY_DIFFERENCE, /* as said above */
};

struct snug_gpu_meter {
    snug_context *ctx;
    struct snug_nvml nvml;
    snug_nvml_device device;
    struct snug_gpu gpu; /* as it was before; memory and processes are its first reading */
    enum snug_gpu_method method;
    bool fresh;          /* this process had no context of it yet */
    bool shared_ids;     /* our own id may stand in NVML's list */
    int64_t own_host_id; /* the id under which NVML lists us where ours is another; -1 as long as that is not known */
    char driver[80];
    char problem[192]; /* why NVML cannot be used */
};

/* Begins to watch the GPU that a CUDA program takes first: to be called before its context is made. Where nothing can
   be watched that is no failure. */
snug_status snug_gpu_meter_open(snug_context *ctx, struct snug_gpu_meter *meter);
void snug_gpu_meter_close(struct snug_gpu_meter *meter);
/* Bytes that this process holds of it now; -1 where NVML does not tell. To be called once when the context stands and
   nothing else: it then learns under which id NVML lists this process. */
int64_t snug_gpu_meter_read(struct snug_gpu_meter *meter);
/* "4711 python 1024.0 MiB, …" of the other processes on it now; a sentence of its own where their ids are not told; ""
   where there are none. */
snug_status snug_gpu_meter_others(struct snug_gpu_meter *meter, char **text);
/* How the figures were found, for people. */
const char *snug_gpu_method_text(enum snug_gpu_method method);

#endif
