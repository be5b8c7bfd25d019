/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry_point {
    const char *names; /* newer ones first, separated by spaces */
    void *function;    /* a pointer to one */
};

/* Looks up each entry point by the first of its names that the library exports; false if one is missing. */
static bool find(void *library, const struct entry_point entry_points[], size_t count) {
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        char name[64];
        void *symbol = NULL;
        const char *names = entry_points[i].names;
        for (int used = 0; !symbol && sscanf(names, "%63s%n", name, &used) == 1; names += used)
            symbol = dlsym(library, name);
        memcpy(entry_points[i].function, &symbol, sizeof symbol); /* ISO C has no cast from data to function pointers */
        all &= symbol != NULL;
    }
    return all;
}

/* If a struct differs between versions of a call, only versions with the same struct. */
static bool load(struct snug_nvml *n, int (**init)(void)) {
    const struct entry_point entry_points[] = {
        {"nvmlInit_v2 nvmlInit", init},
        {"nvmlShutdown", &n->shutdown},
        {"nvmlErrorString", &n->error_string},
        {"nvmlSystemGetDriverVersion", &n->driver_version},
        {"nvmlSystemGetNVMLVersion", &n->nvml_version},
        {"nvmlDeviceGetCount_v2 nvmlDeviceGetCount", &n->count},
        {"nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex", &n->by_index},
        {"nvmlDeviceGetHandleByUUID", &n->by_uuid},
        {"nvmlDeviceGetName", &n->name},
        {"nvmlDeviceGetUUID", &n->uuid},
        {"nvmlDeviceGetPciInfo_v3", &n->pci},
        {"nvmlDeviceGetMemoryInfo_v2", &n->memory},
        {"nvmlDeviceGetMemoryInfo", &n->old_memory},
        {"nvmlDeviceGetUtilizationRates", &n->utilisation},
        {"nvmlDeviceGetTemperature", &n->temperature},
        {"nvmlDeviceGetPowerUsage", &n->power},
        {"nvmlDeviceGetEnforcedPowerLimit", &n->power_limit},
        {"nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2", &n->compute_processes},
        {"nvmlDeviceGetGraphicsRunningProcesses_v3 nvmlDeviceGetGraphicsRunningProcesses_v2", &n->graphics_processes},
        {"nvmlSystemGetProcessName", &n->process_name},
        {"nvmlDeviceGetTopologyCommonAncestor", &n->common_ancestor},
        {"nvmlDeviceGetP2PStatus", &n->p2p_status},
        {"nvmlDeviceGetNvLinkState", &n->nvlink_state},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &n->nvlink_remote},
    };
    return find(n->library, entry_points, sizeof entry_points / sizeof *entry_points);
}

bool snug_nvml_open(struct snug_nvml *n, char *why, size_t size) {
    const char *given = getenv("SNUG_NVML"), *file = given && *given ? given : "libnvidia-ml.so.1";
    int (*init)(void);
    *n = (struct snug_nvml){.library = dlopen(file, RTLD_NOW | RTLD_LOCAL)};
    *why = '\0';
    if (!n->library) {
        snprintf(why, size, "there is no %s: it comes with the NVIDIA driver", file);
        return false;
    }
    if (!load(n, &init)) {
        snprintf(why, size, "%s lacks calls that the driver 510 and all later ones have: update the driver", file);
    } else {
        const int error = init();
        if (error == SNUG_NVML_OK) return true;
        snprintf(why, size, "%s: %s", file,
                 error == SNUG_NVML_NO_DRIVER ? "the NVIDIA driver is not loaded" : n->error_string(error));
    }
    dlclose(n->library);
    *n = (struct snug_nvml){0};
    return false;
}

void snug_nvml_close(struct snug_nvml *n) {
    if (!n->library) return;
    n->shutdown();
    dlclose(n->library);
    *n = (struct snug_nvml){0};
}

void snug_nvml_memory_of(const struct snug_nvml *n, snug_nvml_device device, struct snug_nvml_memory *out) {
    struct snug_nvml_old_memory old = {0};
    *out = (struct snug_nvml_memory){.version = (unsigned)sizeof *out | 2u << 24};
    if (n->memory(device, out) == SNUG_NVML_OK) return;
    n->old_memory(device, &old);
    *out = (struct snug_nvml_memory){.total = old.total, .free = old.free, .used = old.used};
}

/* ---- the driver ----------------------------------------------------------------------------------------------- */

struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int size, int device);
    int (*uuid)(unsigned char uuid[16], int device);
    int (*bus)(char *bus, int size, int device);
    int (*attribute)(int *value, int attribute, int device);
    int (*state)(int device, unsigned *flags, int *active);
    int (*error_string)(int error, const char **text);
};

static bool load_driver(void *library, struct driver *d) {
    const struct entry_point entry_points[] = {
        {"cuInit", &d->init},
        {"cuDriverGetVersion", &d->version},
        {"cuDeviceGetCount", &d->count},
        {"cuDeviceGet", &d->get},
        {"cuDeviceGetName", &d->name},
        {"cuDeviceGetUuid_v2 cuDeviceGetUuid", &d->uuid},
        {"cuDeviceGetPCIBusId", &d->bus},
        {"cuDeviceGetAttribute", &d->attribute},
        {"cuDevicePrimaryCtxGetState", &d->state},
        {"cuGetErrorString", &d->error_string},
    };
    return find(library, entry_points, sizeof entry_points / sizeof *entry_points);
}

static void look_at(const struct driver *d, int ordinal, struct snug_cuda_device *out) {
    enum { MAJOR = 75, MINOR = 76 }; /* of CUdevice_attribute */
    int device, active = 0;
    unsigned flags;
    unsigned char id[16] = {0};
    *out = (struct snug_cuda_device){.ordinal = ordinal};
    if (d->get(&device, ordinal) != 0) return;
    d->name(out->name, sizeof out->name, device);
    d->bus(out->bus, sizeof out->bus, device);
    d->attribute(&out->major, MAJOR, device);
    d->attribute(&out->minor, MINOR, device);
    if (d->state(device, &flags, &active) == 0) out->active = active != 0;
    if (d->uuid(id, device) != 0) return;
    char *at = out->uuid;
    for (int i = 0; i < 16; i++) /* 8-4-4-4-12 */
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
}

void snug_cuda_driver_look(struct snug_cuda_driver *out) {
    enum { NO_DEVICE = 100 };
    struct driver d;
    *out = (struct snug_cuda_driver){0};
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); /* never closed: a context may live in it */
    if (!library) {
        snprintf(out->problem, sizeof out->problem, "there is no NVIDIA driver on this machine (libcuda.so.1)");
        return;
    }
    if (!load_driver(library, &d)) {
        snprintf(out->problem, sizeof out->problem,
                 "libcuda.so.1 lacks calls that every driver of CUDA 7 or later has");
        return;
    }
    d.version(&out->version);
    int error = d.init(0), count = 0;
    if (error == 0) error = d.count(&count);
    if (error == NO_DEVICE || (error == 0 && count == 0)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        snprintf(out->problem, sizeof out->problem, "the NVIDIA driver offers no GPU%s%.100s%s",
                 visible ? ": CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "", visible ? "\"" : "");
    } else if (error != 0) {
        const char *text = NULL;
        d.error_string(error, &text);
        snprintf(out->problem, sizeof out->problem, "the NVIDIA driver does not work: %.120s (%d)",
                 text ? text : "error", error);
    }
    if (*out->problem) return;
    out->count = count < SNUG_CUDA_DEVICES ? count : SNUG_CUDA_DEVICES;
    for (int i = 0; i < out->count; i++) look_at(&d, i, &out->devices[i]);
}
