/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated NVIDIA driver, as two libraries from this file: libnvidia-ml.so.1 and libcuda.so.1, with the calls that
 * src/backend/nvml.c uses. They report what is in the file that SNUG_FAKE_GPU names. Each call reads the file again, so
 * that a test can change it. Its lines:
 *   driver VERSION CUDA              580.1 13000
 *   failing ERROR                    the result of nvmlInit
 *   gpu TOTAL USED LOAD NAME         MiB, MiB, percent; their numbers are their order
 *   visible NUMBER                   the next device that CUDA sees; none: cuInit finds no device
 *   process GPU PID MIB NAME         PID "self" is this process; MIB -1 and NAME "-": not reported
 *   unlisted                         processes are not listed at all
 *   active                           this process has a context
 *   level GPU GPU LEVEL              of the PCIe tree, in both directions; none: not reported
 *   link GPU GPU NUMBER              NVLinks from one to the other; the second GPU -1: to a switch
 *   more NUMBER                      additional devices without a description
 *   answer CALL ERROR                the result of this call, whatever its arguments
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/nvml.h"

#define EXPORT __attribute__((visibility("default")))
enum { GPUS = 4, PROCESSES = 16, MIB = 20, NOT_SUPPORTED = 3, NO_DEVICE = 100, BAD_DEVICE = 101 };

struct world {
    char driver[32];
    int cuda, failing, gpus, visible_count, visible[GPUS], processes;
    int unlisted, active, more;
    int level[GPUS][GPUS], links[GPUS][GPUS + 1]; /* the last ones are those to a switch */
    struct {
        unsigned long long total, used;
        unsigned load;
        char name[64];
    } gpu[GPUS];
    struct {
        int gpu;
        unsigned pid;
        long long mib;
        char name[64];
    } process[PROCESSES];
};

static void read_line(struct world *w, const char *line) {
    char pid[16];
    int from, to, number;
    if (sscanf(line, "level %d %d %d", &from, &to, &number) == 3) w->level[from][to] = w->level[to][from] = number;
    if (sscanf(line, "link %d %d %d", &from, &to, &number) == 3) w->links[from][to < 0 ? GPUS : to] = number;
    if (sscanf(line, "driver %31s %d", w->driver, &w->cuda) == 2) return;
    if (sscanf(line, "failing %d", &w->failing) == 1) return;
    if (w->gpus < GPUS && sscanf(line, "gpu %llu %llu %u %63[^\n]", &w->gpu[w->gpus].total, &w->gpu[w->gpus].used,
                                 &w->gpu[w->gpus].load, w->gpu[w->gpus].name) == 4)
        w->gpus++;
    if (w->visible_count < GPUS && sscanf(line, "visible %d", &w->visible[w->visible_count]) == 1) w->visible_count++;
    if (w->processes < PROCESSES && sscanf(line, "process %d %15s %lld %63[^\n]", &w->process[w->processes].gpu, pid,
                                           &w->process[w->processes].mib, w->process[w->processes].name) == 4) {
        w->process[w->processes].pid = strcmp(pid, "self") == 0 ? (unsigned)getpid() : (unsigned)atoi(pid);
        w->processes++;
    }
    if (strncmp(line, "unlisted", 8) == 0) w->unlisted = 1;
    if (strncmp(line, "active", 6) == 0) w->active = 1;
    sscanf(line, "more %d", &w->more);
}

static struct world look(void) {
    struct world w = {.driver = "580.1", .cuda = 13000};
    memset(w.level, -1, sizeof w.level);
    char line[256];
    const char *path = getenv("SNUG_FAKE_GPU");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) read_line(&w, line);
    if (file) fclose(file);
    return w;
}

/* Whether the file gives an answer for this call. */
static int answers(const char *call, int *error) {
    char line[256], name[64];
    int found = 0;
    const char *path = getenv("SNUG_FAKE_GPU");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "answer %63s %d", name, error) == 2 && strcmp(name, call) == 0;
    if (file) fclose(file);
    return found;
}
#define ANSWER                                                                                                         \
    int error;                                                                                                         \
    if (answers(__func__, &error)) return error

static int number_of(snug_nvml_device device) { return (int)(size_t)device - 1; }

static int put(char *to, unsigned size, const char *text) {
    if (strlen(text) >= size) return SNUG_NVML_TOO_SMALL;
    strcpy(to, text);
    return 0;
}

static void write_uuid(unsigned char uuid[16], int number) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(16 * (number + 1) + i);
}

static void uuid_text(char *to, int number) {
    unsigned char id[16];
    write_uuid(id, number);
    to += sprintf(to, "GPU-");
    for (int i = 0; i < 16; i++) to += sprintf(to, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
}

/* ---- NVML ----------------------------------------------------------------------------------------------------- */

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int error);
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size);
EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned size);
EXPORT int nvmlDeviceGetCount_v2(unsigned *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, snug_nvml_device *device);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, snug_nvml_device *device);
EXPORT int nvmlDeviceGetName(snug_nvml_device device, char *text, unsigned size);
EXPORT int nvmlDeviceGetUUID(snug_nvml_device device, char *text, unsigned size);
EXPORT int nvmlDeviceGetPciInfo_v3(snug_nvml_device device, struct snug_nvml_pci *pci);
EXPORT int nvmlDeviceGetMemoryInfo_v2(snug_nvml_device device, struct snug_nvml_memory *memory);
EXPORT int nvmlDeviceGetMemoryInfo(snug_nvml_device device, struct snug_nvml_old_memory *memory);
EXPORT int nvmlDeviceGetUtilizationRates(snug_nvml_device device, struct snug_nvml_utilisation *utilisation);
EXPORT int nvmlDeviceGetTemperature(snug_nvml_device device, int sensor, unsigned *celsius);
EXPORT int nvmlDeviceGetPowerUsage(snug_nvml_device device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetEnforcedPowerLimit(snug_nvml_device device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(snug_nvml_device device, unsigned *count,
                                                   struct snug_nvml_process *processes);
EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(snug_nvml_device device, unsigned *count,
                                                    struct snug_nvml_process *processes);
EXPORT int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(snug_nvml_device a, snug_nvml_device b, int *level);
EXPORT int nvmlDeviceGetP2PStatus(snug_nvml_device a, snug_nvml_device b, int capability, int *status);
EXPORT int nvmlDeviceGetNvLinkState(snug_nvml_device device, unsigned link, unsigned *active);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(snug_nvml_device device, unsigned link, struct snug_nvml_pci *pci);

int nvmlInit_v2(void) { return look().failing; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int error) { return error == 4 ? "Insufficient Permissions" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ANSWER;
    return put(text, size, look().driver);
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { return put(text, size, "13.580.1"); }
int nvmlDeviceGetCount_v2(unsigned *count) {
    ANSWER;
    *count = (unsigned)look().gpus;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, snug_nvml_device *device) {
    ANSWER;
    *device = (snug_nvml_device)(size_t)(index + 1);
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, snug_nvml_device *device) {
    ANSWER;
    char text[64];
    for (int i = 0; i < look().gpus; i++) {
        uuid_text(text, i);
        if (strcmp(text, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
    return 6; /* not found */
}
int nvmlDeviceGetName(snug_nvml_device device, char *text, unsigned size) {
    ANSWER;
    return put(text, size, look().gpu[number_of(device)].name);
}
int nvmlDeviceGetUUID(snug_nvml_device device, char *text, unsigned size) {
    ANSWER;
    char uuid[64];
    uuid_text(uuid, number_of(device));
    return put(text, size, uuid);
}
int nvmlDeviceGetPciInfo_v3(snug_nvml_device device, struct snug_nvml_pci *pci) {
    ANSWER;
    *pci = (struct snug_nvml_pci){.bus = (unsigned)number_of(device)};
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", (unsigned)number_of(device) + 0x1a);
    return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(snug_nvml_device a, snug_nvml_device b, int *level) {
    *level = look().level[number_of(a)][number_of(b)];
    return *level < 0 ? NOT_SUPPORTED : 0;
}
int nvmlDeviceGetP2PStatus(snug_nvml_device a, snug_nvml_device b, int capability, int *status) {
    ANSWER;
    const struct world w = look();
    const int *from = w.links[number_of(a)], *to = w.links[number_of(b)];
    const int works = from[number_of(b)] || (from[GPUS] && to[GPUS]);
    *status = capability == SNUG_NVML_P2P_NVLINK && works ? SNUG_NVML_P2P_OK : 1;
    return 0;
}
/* The end of an NVLink: a GPU, GPUS for a switch; -1: there are fewer. */
static int end_of_link(snug_nvml_device device, unsigned link) {
    const struct world w = look();
    int left = (int)link;
    for (int to = 0; to <= GPUS; to++)
        if ((left -= w.links[number_of(device)][to]) < 0) return to;
    return -1;
}
int nvmlDeviceGetNvLinkState(snug_nvml_device device, unsigned link, unsigned *active) {
    *active = end_of_link(device, link) >= 0;
    return link < 4 ? 0 : NOT_SUPPORTED; /* four links, of which some are not connected */
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(snug_nvml_device device, unsigned link, struct snug_nvml_pci *pci) {
    ANSWER;
    return nvmlDeviceGetPciInfo_v3((snug_nvml_device)(size_t)(end_of_link(device, link) + 1), pci);
}
int nvmlDeviceGetMemoryInfo_v2(snug_nvml_device device, struct snug_nvml_memory *memory) {
    ANSWER;
    const struct world w = look();
    if (memory->version != (sizeof *memory | 2u << 24)) return 25; /* another version */
    memory->total = w.gpu[number_of(device)].total << MIB;
    memory->used = w.gpu[number_of(device)].used << MIB;
    memory->reserved = 100ull << MIB;
    memory->free = memory->total - memory->used - memory->reserved;
    return 0;
}
int nvmlDeviceGetUtilizationRates(snug_nvml_device device, struct snug_nvml_utilisation *utilisation) {
    ANSWER;
    *utilisation = (struct snug_nvml_utilisation){look().gpu[number_of(device)].load, 1};
    return 0;
}
int nvmlDeviceGetTemperature(snug_nvml_device device, int sensor, unsigned *celsius) {
    ANSWER;
    *celsius = (unsigned)(30 + number_of(device) + sensor);
    return 0;
}
int nvmlDeviceGetMemoryInfo(snug_nvml_device device, struct snug_nvml_old_memory *memory) {
    ANSWER;
    const struct world w = look();
    memory->total = w.gpu[number_of(device)].total << MIB;
    memory->used = (w.gpu[number_of(device)].used + 100) << MIB; /* includes reserved memory */
    memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetPowerUsage(snug_nvml_device device, unsigned *milliwatts) {
    ANSWER;
    *milliwatts = 100000 + 1000 * (unsigned)number_of(device);
    return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(snug_nvml_device device, unsigned *milliwatts) {
    ANSWER;
    *milliwatts = 700000 + 1000 * (unsigned)number_of(device);
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(snug_nvml_device device, unsigned *count,
                                            struct snug_nvml_process *processes) {
    const struct world w = look();
    unsigned found = 0;
    if (w.unlisted) return NOT_SUPPORTED;
    for (int i = 0; i < w.processes; i++) {
        if (w.process[i].gpu != number_of(device)) continue;
        if (found == *count) return SNUG_NVML_TOO_SMALL;
        processes[found++] = (struct snug_nvml_process){
            .pid = w.process[i].pid,
            .bytes = w.process[i].mib < 0 ? SNUG_NVML_UNKNOWN : (unsigned long long)w.process[i].mib << MIB};
    }
    *count = found;
    return 0;
}
/* All of them also render graphics. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(snug_nvml_device device, unsigned *count,
                                             struct snug_nvml_process *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
    const struct world w = look();
    for (int i = 0; i < w.processes; i++)
        if (w.process[i].pid == pid && strcmp(w.process[i].name, "-") != 0) return put(text, size, w.process[i].name);
    return 6;
}

/* ---- the driver ----------------------------------------------------------------------------------------------- */

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGetName(char *name, int size, int device);
EXPORT int cuDeviceGetUuid_v2(unsigned char uuid[16], int device);
EXPORT int cuDeviceGetPCIBusId(char *bus, int size, int device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
EXPORT int cuGetErrorString(int error, const char **text);

int cuInit(unsigned flags) {
    ANSWER;
    (void)flags;
    return look().visible_count ? 0 : NO_DEVICE;
}
int cuDriverGetVersion(int *version) {
    *version = look().cuda;
    return 0;
}
int cuDeviceGetCount(int *count) {
    *count = look().visible_count + look().more;
    return 0;
}
int cuDeviceGet(int *device, int ordinal) {
    const struct world w = look();
    if (ordinal >= w.visible_count) return BAD_DEVICE;
    *device = w.visible[ordinal];
    return 0;
}
int cuDeviceGetName(char *name, int size, int device) { return put(name, (unsigned)size, look().gpu[device].name); }
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    ANSWER;
    write_uuid(uuid, device);
    return 0;
}
int cuDeviceGetPCIBusId(char *bus, int size, int device) {
    ANSWER;
    snprintf(bus, (size_t)size, "0000:%02X:00.0", (unsigned)device + 0x1a);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    ANSWER;
    (void)device;
    *flags = 0;
    *active = look().active;
    return 0;
}
int cuGetErrorString(int error, const char **text) {
    const int known = error < 1000;
    *text = known ? "a fake's error" : NULL;
    return known ? 0 : 1;
}
