/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this machine and their processes, as a table and as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpu.h"
#include "io/json.h"
#include "report/report.h"

/* ---- as text -------------------------------------------------------------------------------------------------- */

static void print_versions(FILE *out, const snug_gpus *gpus) {
    char shown[SNUG_SHOWN];
    if (*gpus->driver) fprintf(out, "NVIDIA driver %s", gpus->driver);
    if (*gpus->cuda) fprintf(out, "%sCUDA %s", *gpus->driver ? ", " : "NVIDIA driver of ", gpus->cuda);
    if (*gpus->nvml) fprintf(out, ", NVML %s", gpus->nvml);
    if (*gpus->driver || *gpus->cuda) fputc('\n', out);
    if (gpus->restricted) fprintf(out, "CUDA_VISIBLE_DEVICES=%s\n", snug_shown(shown, gpus->visible));
    if (!gpus->count) /* then CUDA's problem is printed */
        fprintf(out, "No GPU: %s. snug uses the CPU.\n", gpus->cuda_problem);
    else if (*gpus->cuda_problem)
        fprintf(out, "Programs cannot use a GPU: %s. snug uses the CPU.\n", gpus->cuda_problem);
    if (*gpus->nvml_problem && gpus->count)
        fprintf(out, "Memory, load and processes are unknown: %s.\n", gpus->nvml_problem);
}

/* A value and its unit, or "-" if unknown. */
static const char *value(char text[static 32], double number, const char *unit) {
    if (number < 0)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%.0f %s", number, unit);
    return text;
}

static void print_gpu(FILE *out, const struct snug_gpu *gpu) {
    char index[16] = "-", ordinal[16] = "-", memory[48] = "-", a[32], b[32], c[32], d[32];
    if (gpu->index >= 0) snprintf(index, sizeof index, "%d", gpu->index);
    if (gpu->ordinal >= 0) snprintf(ordinal, sizeof ordinal, "%d", gpu->ordinal);
    if (gpu->total > 0)
        snprintf(memory, sizeof memory, "%.0f / %.0f", (double)gpu->used / 0x1p20, (double)gpu->total / 0x1p20);
    fprintf(out, "%3s %5s  %-24s %-17s %6s %8s / %-8s %18s %6s\n", index, ordinal, gpu->name, gpu->bus,
            value(a, gpu->temperature, "C"), value(b, gpu->power, "W"), value(c, gpu->power_limit, "W"), memory,
            value(d, gpu->utilisation, "%"));
}

/* As nvidia-smi topo -m names it; NULL: unknown. */
static const char *path_of(const struct snug_gpu_link *link) {
    switch (link->level) {
    case SNUG_NVML_INTERNAL:
    case SNUG_NVML_SINGLE: return "PIX";
    case SNUG_NVML_MULTIPLE: return "PXB";
    case SNUG_NVML_HOSTBRIDGE: return "PHB";
    case SNUG_NVML_NODE: return "NODE";
    case SNUG_NVML_SYSTEM: return "SYS";
    default: return NULL;
    }
}

void snug_gpu_link_text(char text[static 16], const struct snug_gpu_link *link) {
    const char *path = path_of(link);
    if (link->nvlinks)
        snprintf(text, 16, "NV%d", link->nvlinks);
    else
        snprintf(text, 16, "%s", path ? path : "-");
}

/* From the GPU of a row to that of a column. */
static void print_links(FILE *out, const snug_gpus *gpus) {
    char text[16];
    fputs("\nLinks: NVn is n NVLinks; else the nearest common part of the PCIe tree: PIX one switch, PXB several, PHB "
          "a host\n"
          "bridge, NODE a NUMA node, SYS the link between nodes\nGPU",
          out);
    for (size_t to = 0; to < gpus->listed; to++) fprintf(out, " %5d", gpus->items[to].index);
    fputc('\n', out);
    for (size_t from = 0; from < gpus->listed; from++) {
        fprintf(out, "%3d", gpus->items[from].index);
        for (size_t to = 0; to < gpus->listed; to++) {
            snug_gpu_link_text(text, &gpus->links[from * gpus->listed + to]);
            fprintf(out, " %5s", from == to ? "" : text);
        }
        fputc('\n', out);
    }
}

static void print_processes(FILE *out, const snug_gpus *gpus) {
    bool listed = false;
    fprintf(out, "\n%3s %10s %10s  %s\n", "GPU", "PID", "MiB", "process");
    for (size_t i = 0; i < gpus->count; i++) {
        const struct snug_gpu *gpu = &gpus->items[i];
        for (size_t k = 0; k < gpu->process_count; k++) {
            const struct snug_gpu_process *process = &gpu->processes[k];
            char bytes[32] = "-", rank[48] = "", shown[SNUG_SHOWN];
            if (process->bytes >= 0) snprintf(bytes, sizeof bytes, "%.0f", (double)process->bytes / 0x1p20);
            if (process->ranks) snprintf(rank, sizeof rank, ", rank %d of %d", process->rank, process->ranks);
            fprintf(out, "%3d %10lld %10s  %s%s\n", gpu->index, (long long)process->pid, bytes,
                    *process->name ? snug_shown(shown, process->name)
                                   : "(unknown: in another container, or on the host)",
                    rank);
            listed = true;
        }
    }
    if (!listed) fputs("    none listed\n", out);
}

static void print_gpus(FILE *out, const void *report) {
    const snug_gpus *gpus = report;
    bool listed = false;
    print_versions(out, gpus);
    if (gpus->count)
        fprintf(out, "\n%3s %5s  %-24s %-17s %6s %8s / %-8s %18s %6s\n", "GPU", "CUDA", "name", "bus", "temp", "power",
                "limit", "memory used, MiB", "load");
    for (size_t i = 0; i < gpus->count; i++) {
        print_gpu(out, &gpus->items[i]);
        listed |= gpus->items[i].lists_processes;
    }
    if (gpus->links) print_links(out, gpus);
    if (listed) print_processes(out, gpus);
}

snug_status snug_gpus_text(const snug_gpus *gpus, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(gpus);
    return snug_report_text(gpus->ctx, print_gpus, gpus, text);
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

static json_t *known(bool is_known, json_t *fact) {
    if (is_known) return fact;
    json_decref(fact);
    return json_null();
}

static json_t *processes_json(const struct snug_gpu *gpu) {
    if (!gpu->lists_processes) return json_null();
    json_t *all = json_array();
    for (size_t i = 0; i < gpu->process_count; i++) {
        const struct snug_gpu_process *p = &gpu->processes[i];
        snug_json_append(&all, json_pack("{s:I, s:o, s:o, s:o, s:o}", "pid", (json_int_t)p->pid, "bytes",
                                         known(p->bytes >= 0, json_integer(p->bytes)), "name",
                                         known(*p->name, snug_json_from_text(p->name)), "rank",
                                         known(p->ranks, json_integer(p->rank)), "ranks",
                                         known(p->ranks, json_integer(p->ranks))));
    }
    return all;
}

/* From the GPU number i of the list to all others; null if NVML does not list it. */
static json_t *links_json(const snug_gpus *gpus, size_t from) {
    if (from >= gpus->listed) return json_null();
    json_t *all = json_array();
    for (size_t to = 0; to < gpus->listed; to++) {
        if (to == from) continue;
        const struct snug_gpu_link *link = &gpus->links[from * gpus->listed + to];
        const char *path = path_of(link);
        snug_json_append(&all, json_pack("{s:i, s:i, s:o}", "gpu", gpus->items[to].index, "nvlinks", link->nvlinks,
                                         "path", path ? json_string(path) : json_null()));
    }
    return all;
}

static json_t *gpu_json(const snug_gpus *gpus, size_t i) {
    const struct snug_gpu *gpu = &gpus->items[i];
    const bool has_total = gpu->total > 0;
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", gpu->major, gpu->minor);
    return json_pack(
        "{s:o, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "index",
        known(gpu->index >= 0, json_integer(gpu->index)), "cuda", known(gpu->ordinal >= 0, json_integer(gpu->ordinal)),
        "name", gpu->name, "uuid", gpu->uuid, "bus", gpu->bus, "compute_capability",
        known(gpu->major > 0, json_string(capability)), "memory_bytes", known(has_total, json_integer(gpu->total)),
        "reserved_bytes", known(has_total, json_integer(gpu->reserved)), "used_bytes",
        known(has_total, json_integer(gpu->used)), "free_bytes", known(has_total, json_integer(gpu->unused)),
        "utilisation_percent", known(gpu->utilisation >= 0, json_integer(gpu->utilisation)),
        "memory_utilisation_percent", known(gpu->memory_utilisation >= 0, json_integer(gpu->memory_utilisation)),
        "celsius", known(gpu->temperature >= 0, json_integer(gpu->temperature)), "watts",
        known(gpu->power >= 0, json_real(gpu->power)), "watts_limit",
        known(gpu->power_limit >= 0, json_real(gpu->power_limit)), "processes", processes_json(gpu), "links",
        links_json(gpus, i));
}

json_t *snug_gpus_object(const snug_gpus *gpus) {
    json_t *items = json_array();
    for (size_t i = 0; i < gpus->count; i++) snug_json_append(&items, gpu_json(gpus, i));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "driver", known(*gpus->driver, json_string(gpus->driver)),
                     "cuda", known(*gpus->cuda, json_string(gpus->cuda)), "nvml",
                     known(*gpus->nvml, json_string(gpus->nvml)), "cuda_visible_devices",
                     known(gpus->restricted, snug_json_from_text(gpus->visible)), "cuda_problem",
                     known(*gpus->cuda_problem, snug_json_from_text(gpus->cuda_problem)), "nvml_problem",
                     known(*gpus->nvml_problem, snug_json_from_text(gpus->nvml_problem)), "gpus", items);
}

snug_status snug_gpus_json(const snug_gpus *gpus, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(gpus);
    return snug_report_json(gpus->ctx, snug_gpus_object(gpus), text);
}
