/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NVML and of the driver API that snug uses to list GPUs. Both are opened at run time, so that one build
 * runs on machines with and without them. The types are those of nvml.h and cuda.h, whose layouts are fixed by their
 * version numbers.
 */
#ifndef SNUG_BACKEND_NVML_H
#define SNUG_BACKEND_NVML_H

#include "core/context.h"

typedef struct nvmlDevice_st *snug_nvml_device;

struct snug_nvml_memory { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct snug_nvml_old_memory { /* nvmlMemory_t; its used includes reserved memory */
    unsigned long long total, free, used;
};
struct snug_nvml_utilisation {
    unsigned gpu, memory;
};
struct snug_nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct snug_nvml_process { /* nvmlProcessInfo_v2_t, which versions 2 and 3 of the calls take */
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

enum {
    SNUG_NVML_OK = 0,
    SNUG_NVML_TOO_SMALL = 7,
    SNUG_NVML_NO_DRIVER = 9,
    SNUG_NVML_NVLINKS = 18,    /* the most of a GPU: NVML_NVLINK_MAX_LINKS */
    SNUG_NVML_P2P_NVLINK = 2,  /* nvmlGpuP2PCapsIndex_t */
    SNUG_NVML_P2P_OK = 0,      /* nvmlGpuP2PStatus_t */
    SNUG_NVML_INTERNAL = 0,    /* nvmlGpuTopologyLevel_t: two GPUs of a board, */
    SNUG_NVML_SINGLE = 10,     /* a PCIe switch, */
    SNUG_NVML_MULTIPLE = 20,   /* several switches, */
    SNUG_NVML_HOSTBRIDGE = 30, /* a host bridge, */
    SNUG_NVML_NODE = 40,       /* a NUMA node, */
    SNUG_NVML_SYSTEM = 50,     /* the link between these */
};
#define SNUG_NVML_UNKNOWN (~0ull) /* of a process's memory */

struct snug_nvml {
    void *library;
    int (*shutdown)(void);
    const char *(*error_string)(int error);
    int (*driver_version)(char *text, unsigned size);
    int (*nvml_version)(char *text, unsigned size);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, snug_nvml_device *device);
    int (*by_uuid)(const char *uuid, snug_nvml_device *device);
    int (*name)(snug_nvml_device device, char *text, unsigned size);
    int (*uuid)(snug_nvml_device device, char *text, unsigned size);
    int (*pci)(snug_nvml_device device, struct snug_nvml_pci *pci);
    int (*memory)(snug_nvml_device device, struct snug_nvml_memory *memory);
    int (*old_memory)(snug_nvml_device device, struct snug_nvml_old_memory *memory);
    int (*utilisation)(snug_nvml_device device, struct snug_nvml_utilisation *utilisation);
    int (*temperature)(snug_nvml_device device, int sensor, unsigned *celsius);
    int (*power)(snug_nvml_device device, unsigned *milliwatts);
    int (*power_limit)(snug_nvml_device device, unsigned *milliwatts);
    int (*compute_processes)(snug_nvml_device device, unsigned *count, struct snug_nvml_process *processes);
    int (*graphics_processes)(snug_nvml_device device, unsigned *count, struct snug_nvml_process *processes);
    int (*process_name)(unsigned pid, char *text, unsigned size);
    int (*common_ancestor)(snug_nvml_device a, snug_nvml_device b, int *level); /* SNUG_NVML_PIX … */
    int (*p2p_status)(snug_nvml_device a, snug_nvml_device b, int capability, int *status);
    int (*nvlink_state)(snug_nvml_device device, unsigned link, unsigned *active);
    int (*nvlink_remote)(snug_nvml_device device, unsigned link, struct snug_nvml_pci *pci);
};

/* Opens NVML. Returns false, with the reason in why, if it is missing or does not work; *out is then empty. SNUG_NVML
   names another file than libnvidia-ml.so.1. */
bool snug_nvml_open(struct snug_nvml *out, char *why, size_t size);
void snug_nvml_close(struct snug_nvml *nvml);
/* The memory of a device; all 0 if unknown. */
void snug_nvml_memory_of(const struct snug_nvml *nvml, snug_nvml_device device, struct snug_nvml_memory *out);

/* A CUDA device: one that CUDA_VISIBLE_DEVICES allows, in its order. */
struct snug_cuda_device {
    int ordinal;
    char name[96], uuid[48], bus[32]; /* uuid as NVML writes it, without its "GPU-" or "MIG-" */
    int major, minor;
    bool active; /* this process already has a context on it */
};
enum { SNUG_CUDA_DEVICES = 64 };
struct snug_cuda_driver {
    int version; /* 13000 is CUDA 13.0; 0 if unknown */
    struct snug_cuda_device devices[SNUG_CUDA_DEVICES];
    int count;
    char problem[192]; /* why no device can be used; "" if one can */
};
/* Queries the driver; creates no context and uses no GPU memory. */
void snug_cuda_driver_look(struct snug_cuda_driver *out);

#endif
