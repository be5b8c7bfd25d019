/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "dist/ranks.h"

/* ---- one device ----------------------------------------------------------------------------------------------- */

/* The name as in ps. NVML may return a whole path, and returns no name in containers. */
static void name_process(const struct snug_nvml *n, struct snug_gpu_process *process) {
    char path[64], text[256] = "";
    if (n->process_name((unsigned)process->pid, text, sizeof text) != SNUG_NVML_OK) *text = '\0';
    text[sizeof text - 1] = '\0';
    text[strcspn(text, " ")] = '\0'; /* without its arguments */
    const char *base = strrchr(text, '/');
    base = base ? base + 1 : text;
    if (*base && strcmp(base, "-") != 0) {
        snprintf(process->name, sizeof process->name, "%.*s", (int)sizeof process->name - 1, base);
        return;
    }
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)process->pid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (fgets(process->name, sizeof process->name, file)) process->name[strcspn(process->name, "\n")] = '\0';
    fclose(file);
}

static void find_rank(struct snug_gpu_process *process) {
    char path[64], environment[1 << 16];
    int rank, ranks;
    snprintf(path, sizeof path, "/proc/%lld/environ", (long long)process->pid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    const size_t size = fread(environment, 1, sizeof environment - 1, file);
    environment[size] = '\0';
    fclose(file);
    if (!snug_ranks_read(environment, size, &rank, &ranks)) return;
    process->rank = rank;
    process->ranks = ranks;
}

static bool is_listed(const struct snug_gpu *gpu, int64_t pid) {
    for (size_t i = 0; i < gpu->process_count; i++)
        if (gpu->processes[i].pid == pid) return true;
    return false;
}

/* A process that uses compute and graphics is in both lists, with the same figure. */
static snug_status read_processes(snug_context *ctx, const struct snug_nvml *n, snug_nvml_device device,
                                  struct snug_gpu *gpu) {
    int (*const lists[])(snug_nvml_device, unsigned *, struct snug_nvml_process *) = {n->compute_processes,
                                                                                      n->graphics_processes};
    size_t capacity = 0;
    free(gpu->processes);
    gpu->processes = NULL;
    gpu->process_count = 0;
    gpu->lists_processes = false;
    for (int k = 0; k < 2; k++) {
        enum { ROOM = 256 };
        struct snug_nvml_process found[ROOM];
        unsigned count = ROOM;
        if (lists[k](device, &count, found) != SNUG_NVML_OK) continue;
        gpu->lists_processes = true;
        for (unsigned i = 0; i < count; i++) {
            /* 0 is any process of another PID namespace, possibly this one. */
            if (found[i].pid == 0 || is_listed(gpu, found[i].pid)) continue;
            RETURN_IF_ERROR(
                snug_grow(ctx, (void **)&gpu->processes, &capacity, gpu->process_count + 1, sizeof *gpu->processes));
            struct snug_gpu_process *process = &gpu->processes[gpu->process_count++];
            *process = (struct snug_gpu_process){
                .pid = found[i].pid, .bytes = found[i].bytes == SNUG_NVML_UNKNOWN ? -1 : (int64_t)found[i].bytes};
            name_process(n, process);
            find_rank(process);
        }
    }
    return SNUG_OK;
}

static void read_memory(const struct snug_nvml *n, snug_nvml_device device, struct snug_gpu *gpu) {
    struct snug_nvml_memory memory;
    snug_nvml_memory_of(n, device, &memory);
    gpu->total = (int64_t)memory.total;
    gpu->reserved = (int64_t)memory.reserved;
    gpu->used = (int64_t)memory.used;
    gpu->unused = (int64_t)memory.free;
}

static void read_state(const struct snug_nvml *n, snug_nvml_device device, struct snug_gpu *gpu) {
    enum { CORE = 0 }; /* NVML_TEMPERATURE_GPU */
    struct snug_nvml_utilisation utilisation;
    unsigned value;
    gpu->utilisation = gpu->memory_utilisation = gpu->temperature = -1;
    gpu->power = gpu->power_limit = -1;
    if (n->utilisation(device, &utilisation) == SNUG_NVML_OK) {
        gpu->utilisation = (int)utilisation.gpu;
        gpu->memory_utilisation = (int)utilisation.memory;
    }
    if (n->temperature(device, CORE, &value) == SNUG_NVML_OK) gpu->temperature = (int)value;
    if (n->power(device, &value) == SNUG_NVML_OK) gpu->power = value * 1e-3;
    if (n->power_limit(device, &value) == SNUG_NVML_OK) gpu->power_limit = value * 1e-3;
}

static void read_names(const struct snug_nvml *n, snug_nvml_device device, struct snug_gpu *gpu) {
    struct snug_nvml_pci pci = {.domain = 0};
    if (n->name(device, gpu->name, sizeof gpu->name) != SNUG_NVML_OK)
        snprintf(gpu->name, sizeof gpu->name, "an NVIDIA GPU");
    if (n->uuid(device, gpu->uuid, sizeof gpu->uuid) != SNUG_NVML_OK) *gpu->uuid = '\0';
    if (n->pci(device, &pci) == SNUG_NVML_OK) snprintf(gpu->bus, sizeof gpu->bus, "%s", pci.id);
}

/* NVML writes eight digits of the domain, CUDA four; "" if unknown. */
static bool same_bus(const char *nvml, const char *cuda) {
    const size_t x = strlen(nvml), y = strlen(cuda);
    return y > 0 && x >= y && strcasecmp(nvml + x - y, cuda) == 0;
}

static bool is_same(const struct snug_gpu *gpu, const struct snug_cuda_device *device) {
    const char *uuid = strchr(gpu->uuid, '-');
    if (uuid && *device->uuid) return strcasecmp(uuid + 1, device->uuid) == 0;
    return same_bus(gpu->bus, device->bus);
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

static snug_status add(struct snug_gpus *gpus, const struct snug_gpu *gpu) {
    size_t capacity = gpus->count;
    RETURN_IF_ERROR(snug_grow(gpus->ctx, (void **)&gpus->items, &capacity, gpus->count + 1, sizeof *gpu));
    gpus->items[gpus->count++] = *gpu;
    return SNUG_OK;
}

static snug_status add_listed(struct snug_gpus *gpus, const struct snug_nvml *n) {
    unsigned count = 0;
    if (n->count(&count) != SNUG_NVML_OK) count = 0;
    for (unsigned i = 0; i < count; i++) {
        struct snug_gpu gpu = {.index = (int)i, .ordinal = -1};
        snug_nvml_device device;
        if (n->by_index(i, &device) != SNUG_NVML_OK)
            continue; /* a GPU that was lost, or that this user has no access to */
        read_names(n, device, &gpu);
        read_memory(n, device, &gpu);
        read_state(n, device, &gpu);
        RETURN_IF_ERROR(add(gpus, &gpu));
        RETURN_IF_ERROR(read_processes(gpus->ctx, n, device, &gpus->items[gpus->count - 1]));
    }
    return SNUG_OK;
}

/* An NVLink of a GPU may lead to a switch, and from there to all GPUs. */
static bool leads_to(const struct snug_gpus *gpus, const struct snug_nvml_pci *remote, const struct snug_gpu *to) {
    if (strcasecmp(remote->id, to->bus) == 0) return true;
    for (size_t i = 0; i < gpus->listed; i++)
        if (strcasecmp(remote->id, gpus->items[i].bus) == 0) return false;
    return true;
}

static struct snug_gpu_link find_link(const struct snug_gpus *gpus, const struct snug_nvml *n, size_t from, size_t to) {
    struct snug_gpu_link link = {.level = -1};
    snug_nvml_device a, b;
    int status;
    if (n->by_index((unsigned)gpus->items[from].index, &a) != SNUG_NVML_OK) return link;
    if (n->by_index((unsigned)gpus->items[to].index, &b) != SNUG_NVML_OK) return link;
    if (n->common_ancestor(a, b, &link.level) != SNUG_NVML_OK) link.level = -1;
    if (n->p2p_status(a, b, SNUG_NVML_P2P_NVLINK, &status) != SNUG_NVML_OK || status != SNUG_NVML_P2P_OK) return link;
    for (unsigned i = 0; i < SNUG_NVML_NVLINKS; i++) {
        struct snug_nvml_pci remote = {.id = ""};
        unsigned active = 0;
        if (n->nvlink_state(a, i, &active) != SNUG_NVML_OK || !active) continue;
        if (n->nvlink_remote(a, i, &remote) != SNUG_NVML_OK) continue;
        link.nvlinks += leads_to(gpus, &remote, &gpus->items[to]);
    }
    return link;
}

static snug_status add_links(struct snug_gpus *gpus, const struct snug_nvml *n) {
    gpus->listed = gpus->count;
    if (gpus->listed < 2) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(gpus->ctx, gpus->listed * gpus->listed, sizeof *gpus->links, (void **)&gpus->links));
    for (size_t from = 0; from < gpus->listed; from++)
        for (size_t to = 0; to < gpus->listed; to++)
            if (from != to) gpus->links[from * gpus->listed + to] = find_link(gpus, n, from, to);
    return SNUG_OK;
}

/* A device that programs can use: a GPU, or a part (MIG) of a GPU that NVML lists as one. */
static snug_status add_usable(struct snug_gpus *gpus, const struct snug_cuda_driver *driver) {
    for (int i = 0; i < driver->count; i++) {
        const struct snug_cuda_device *device = &driver->devices[i];
        size_t k = 0;
        while (k < gpus->count && !is_same(&gpus->items[k], device)) k++;
        if (k == gpus->count) {
            struct snug_gpu gpu = {.index = -1,
                                   .utilisation = -1,
                                   .memory_utilisation = -1,
                                   .temperature = -1,
                                   .power = -1,
                                   .power_limit = -1};
            snprintf(gpu.name, sizeof gpu.name, "%s", device->name);
            snprintf(gpu.uuid, sizeof gpu.uuid, "%s", device->uuid);
            snprintf(gpu.bus, sizeof gpu.bus, "%s", device->bus);
            RETURN_IF_ERROR(add(gpus, &gpu));
        }
        gpus->items[k].ordinal = device->ordinal;
        gpus->items[k].major = device->major;
        gpus->items[k].minor = device->minor;
    }
    return SNUG_OK;
}

snug_status snug_gpus_look(snug_context *ctx, struct snug_gpus *out) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    struct snug_cuda_driver driver;
    struct snug_nvml nvml;
    snug_status status = SNUG_OK;
    *out = (struct snug_gpus){.ctx = ctx, .restricted = visible != NULL};
    if (visible) snprintf(out->visible, sizeof out->visible, "%s", visible);
    if (snug_nvml_open(&nvml, out->nvml_problem, sizeof out->nvml_problem)) {
        nvml.driver_version(out->driver, sizeof out->driver);
        nvml.nvml_version(out->nvml, sizeof out->nvml);
        status = add_listed(out, &nvml);
        if (status == SNUG_OK) status = add_links(out, &nvml);
        snug_nvml_close(&nvml);
    }
    snug_cuda_driver_look(&driver);
    snprintf(out->cuda_problem, sizeof out->cuda_problem, "%s", driver.problem);
    if (driver.version)
        snprintf(out->cuda, sizeof out->cuda, "%d.%d", driver.version / 1000, driver.version % 1000 / 10);
    if (status == SNUG_OK) status = add_usable(out, &driver);
    if (status != SNUG_OK) snug_gpus_free(out);
    return status;
}

void snug_gpus_free(struct snug_gpus *gpus) {
    for (size_t i = 0; i < gpus->count; i++) free(gpus->items[i].processes);
    free(gpus->items);
    free(gpus->links);
    *gpus = (struct snug_gpus){0};
}

static snug_status create_gpus(snug_context *ctx, snug_gpus **out) {
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out, &memory));
    const snug_status status = snug_gpus_look(ctx, memory);
    if (status != SNUG_OK)
        free(memory);
    else
        *out = memory;
    return status;
}

snug_status snug_gpus_create(snug_context *ctx, snug_gpus **out) {
    SNUG_REQUIRE_OUT(out);
    SNUG_REQUIRE(ctx);
    RETURN_IF_ERROR(snug_enter(ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(ctx, create_gpus(ctx, out));
}

void snug_gpus_destroy(snug_gpus *gpus) {
    if (!gpus) return;
    snug_gpus_free(gpus);
    free(gpus);
}

/* ---- the memory of this process ---------------------------------------------------------------------------------- */

/* The handle of a CUDA device, by its UUID, which a part of a GPU (MIG) has too. */
static bool find_handle(const struct snug_nvml *n, const struct snug_cuda_device *device, snug_nvml_device *out) {
    static const char *const kinds[] = {"GPU", "MIG"};
    char name[64];
    for (int i = 0; *device->uuid && i < 2; i++) {
        snprintf(name, sizeof name, "%s-%s", kinds[i], device->uuid);
        if (n->by_uuid(name, out) == SNUG_NVML_OK) return true;
    }
    return false;
}

snug_status snug_gpu_usage_open(snug_context *ctx, int local_rank, struct snug_gpu_usage *usage) {
    struct snug_cuda_driver driver;
    *usage = (struct snug_gpu_usage){.ctx = ctx, .own_host_id = -1, .gpu = {.index = -1}};
    snug_cuda_driver_look(&driver);
    if (driver.count == 0) {
        snprintf(usage->problem, sizeof usage->problem, "%s", driver.problem);
        return SNUG_OK;
    }
    const struct snug_cuda_device *first = &driver.devices[local_rank < driver.count ? local_rank : 0];
    usage->fresh = !first->active;
    snprintf(usage->gpu.name, sizeof usage->gpu.name, "%s", first->name);
    if (!snug_nvml_open(&usage->nvml, usage->problem, sizeof usage->problem)) return SNUG_OK;
    usage->nvml.driver_version(usage->driver, sizeof usage->driver);
    if (!find_handle(&usage->nvml, first, &usage->device)) {
        snprintf(usage->problem, sizeof usage->problem, "NVML does not list %s (%s)", first->name, first->uuid);
        snug_nvml_close(&usage->nvml);
        return SNUG_OK;
    }
    read_names(&usage->nvml, usage->device, &usage->gpu);
    read_memory(&usage->nvml, usage->device, &usage->gpu);
    usage->method = SNUG_GPU_BY_DIFFERENCE;
    RETURN_IF_ERROR(read_processes(ctx, &usage->nvml, usage->device, &usage->gpu));
    /* Before this process uses the device, its own id in the list belongs to a process of another PID namespace. */
    usage->shared_ids = first->active || !is_listed(&usage->gpu, getpid());
    if (first->active && !is_listed(&usage->gpu, getpid()))
        usage->method = SNUG_GPU_BY_NOTHING; /* there is no before */
    return SNUG_OK;
}

void snug_gpu_usage_close(struct snug_gpu_usage *usage) {
    snug_nvml_close(&usage->nvml);
    free(usage->gpu.processes);
    *usage = (struct snug_gpu_usage){0};
}

static const struct snug_gpu_process *find_process(const struct snug_gpu *gpu, int64_t pid) {
    for (size_t i = 0; i < gpu->process_count; i++)
        if (gpu->processes[i].pid == pid) return &gpu->processes[i];
    return NULL;
}

/* The only new process of the second list, or -1. */
static int64_t only_newcomer(const struct snug_gpu *before, const struct snug_gpu *now) {
    int64_t found = -1;
    for (size_t i = 0; i < now->process_count; i++) {
        if (find_process(before, now->processes[i].pid)) continue;
        if (found >= 0) return -1;
        found = now->processes[i].pid;
    }
    return found;
}

static int64_t known_bytes(const struct snug_gpu_process *process) { return process->bytes > 0 ? process->bytes : 0; }

/* The change of the memory of the other listed processes since `before`. */
static int64_t change_of_others(const struct snug_gpu_usage *usage, const struct snug_gpu *now) {
    int64_t change = 0;
    for (size_t i = 0; i < usage->gpu.process_count; i++) change -= known_bytes(&usage->gpu.processes[i]);
    for (size_t i = 0; i < now->process_count; i++) {
        const bool known = find_process(&usage->gpu, now->processes[i].pid) != NULL;
        /* A new process is another one only if this process's id in the list is known. */
        if (known || (usage->own_host_id >= 0 && now->processes[i].pid != usage->own_host_id))
            change += known_bytes(&now->processes[i]);
    }
    return change;
}

static snug_status look_again(struct snug_gpu_usage *usage, struct snug_gpu *now) {
    *now = (struct snug_gpu){0};
    read_memory(&usage->nvml, usage->device, now);
    return read_processes(usage->ctx, &usage->nvml, usage->device, now);
}

int64_t snug_gpu_usage_read(struct snug_gpu_usage *usage) {
    struct snug_gpu now;
    int64_t bytes = -1;
    if (usage->method == SNUG_GPU_BY_NOTHING) return -1;
    if (look_again(usage, &now) == SNUG_OK) {
        const struct snug_gpu_process *own = usage->shared_ids ? find_process(&now, getpid()) : NULL;
        if (own && own->bytes > 0) {
            usage->method = SNUG_GPU_BY_PROCESS;
            usage->own_host_id = own->pid;
            bytes = own->bytes;
        } else {
            if (usage->own_host_id < 0) usage->own_host_id = only_newcomer(&usage->gpu, &now);
            bytes = now.used - usage->gpu.used - change_of_others(usage, &now);
            if (bytes < 0) bytes = 0;
        }
    }
    free(now.processes);
    return bytes;
}

snug_status snug_gpu_usage_others(struct snug_gpu_usage *usage, char **text) {
    struct snug_gpu now;
    size_t size;
    int64_t listed = 0;
    const int64_t own = snug_gpu_usage_read(usage);
    if (usage->method == SNUG_GPU_BY_NOTHING) return snug_strdup(usage->ctx, "", text);
    RETURN_IF_ERROR(look_again(usage, &now));
    FILE *out = open_memstream(text, &size);
    if (!out) {
        free(now.processes);
        return snug_fail(usage->ctx, SNUG_E_MEMORY, "out of memory while naming the GPU's processes");
    }
    const char *separator = "";
    for (size_t i = 0; i < now.process_count; i++) {
        const struct snug_gpu_process *p = &now.processes[i];
        char shown[4 * sizeof p->name];
        if (p->pid == usage->own_host_id) continue;
        snug_escape(shown, sizeof shown, p->name, strlen(p->name));
        fprintf(out, "%s%lld %s", separator, (long long)p->pid, *shown ? shown : "(name unknown)");
        if (p->bytes >= 0) fprintf(out, " %.1f MiB", (double)p->bytes / 0x1p20);
        separator = ", ";
        listed += known_bytes(p);
    }
    /* Memory that NVML counts but attributes to no process; small amounts of the driver are not reported. */
    const int64_t rest = now.used - own - listed;
    if (rest > 64 << 20)
        fprintf(out, "%s%.1f MiB of processes that NVML does not list here", separator, (double)rest / 0x1p20);
    free(now.processes);
    if (fclose(out) == 0) return SNUG_OK;
    free(*text);
    return snug_fail(usage->ctx, SNUG_E_MEMORY, "out of memory while naming the GPU's processes");
}

const char *snug_gpu_method_text(enum snug_gpu_method method) {
    static const char *const texts[] = {
        [SNUG_GPU_BY_NOTHING] =
            "the driver's figure of the whole GPU, other processes included: NVML cannot report this process's",
        [SNUG_GPU_BY_PROCESS] = "NVML's figure of this process",
        [SNUG_GPU_BY_DIFFERENCE] = "NVML's figure of the GPU, less what was used before and what others took since",
    };
    return texts[method];
}
