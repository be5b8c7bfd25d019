/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor found, as text and JSON. */
#include "inspect/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json.h"
#include "report/report.h"

static double gib(int64_t bytes) { return (double)bytes / 0x1p30; }

/* One line for all pairs; snug gpu has each. */
static void print_links(FILE *out, const struct snug_gpus *gpus) {
    char first[16], text[16];
    bool differ = false;
    if (!gpus->links) return;
    snug_gpu_link_text(first, &gpus->links[1]);
    for (size_t i = 0; i < gpus->listed * gpus->listed; i++) {
        snug_gpu_link_text(text, &gpus->links[i]);
        differ |= i / gpus->listed != i % gpus->listed && strcmp(text, first) != 0;
    }
    fprintf(out, "Links      %s%s: snug gpu lists them\n", differ ? "" : first,
            differ ? "not the same between all GPUs" : " between all GPUs");
}

static void print_gpus(FILE *out, const snug_doctor *d) {
    const struct snug_gpus *gpus = &d->gpus;
    char shown[SNUG_SHOWN];
    if (*gpus->driver || *gpus->cuda)
        fprintf(out, "Driver     %s%s%s\n", *gpus->driver ? gpus->driver : "version unknown to NVML",
                *gpus->cuda ? ", for CUDA up to " : "", gpus->cuda);
    else
        fputs("Driver     none\n", out);
    fprintf(out, "NVML       %s\n", *gpus->nvml_problem ? gpus->nvml_problem : gpus->nvml);
    fprintf(out, "Plug-in    %s\n", d->plugin_text);
    if (*d->cublaslt) fprintf(out, "cuBLASLt   %s\n", d->cublaslt);
    if (gpus->restricted) fprintf(out, "CUDA_VISIBLE_DEVICES=%s\n", snug_shown(shown, gpus->visible));
    for (size_t i = 0; i < gpus->count; i++) {
        const struct snug_gpu *gpu = &gpus->items[i];
        fprintf(out, "GPU        %s, %s", gpu->name, gpu->bus);
        if (gpu->major) fprintf(out, ", compute capability %d.%d", gpu->major, gpu->minor);
        if (gpu->total > 0) fprintf(out, ", %.1f of %.1f GiB free", gib(gpu->unused), gib(gpu->total));
        if (gpu->process_count)
            fprintf(out, ", %zu process%s on it", gpu->process_count, gpu->process_count == 1 ? "" : "es");
        if (gpu->ordinal < 0) fputs(", hidden by CUDA_VISIBLE_DEVICES", out);
        if (gpu->ordinal >= 0) fprintf(out, ", CUDA device %d", gpu->ordinal);
        fputc('\n', out);
    }
    print_links(out, gpus);
    if (*d->nccl) fprintf(out, "NCCL       %s\n", d->nccl);
}

static void print_ranks(FILE *out, const snug_doctor *d) {
    char shown[SNUG_SHOWN];
    fprintf(out, "MPI        %s\n", d->mpi);
    if (d->rank_count) fprintf(out, "Ranks      %s\n", d->group);
    for (int i = 0; i < d->rank_count; i++) {
        const struct snug_doctor_rank *r = &d->ranks[i];
        fprintf(out, "           %d on %s: ", i, snug_shown(shown, r->host));
        fprintf(out, "%s\n", snug_shown(shown, *r->refused ? r->refused : r->used));
    }
}

/* What a container, a batch job or a systemd unit may use of the machine. */
static void print_limits(FILE *out, const snug_doctor *d) {
    const struct snug_cgroup *group = &d->cgroup;
    const bool cpus = group->cpus >= 0 && group->cpus < d->cores,
               memory = group->memory >= 0 && group->memory == d->memory;
    if (cpus)
        fprintf(out, "Limits     %.3g CPU%s%s", group->cpus, group->cpus == 1 ? "" : "s",
                memory ? ", " : " by a control group (a container)\n");
    if (memory)
        fprintf(out, "%s%.1f GiB of memory by a control group (a container)\n", cpus ? "" : "Limits     ",
                gib(group->memory));
}

static void print_doctor(FILE *out, const void *report) {
    const snug_doctor *d = report;
    char shown[SNUG_SHOWN];
    fprintf(out, "snug %s, %s %s, %s\n\n", SNUG_VERSION, d->system.sysname, d->system.release, d->system.machine);
    fprintf(out, "CPU        %s, using %d of %d cores\n", d->cpu, d->threads, d->cores);
    fprintf(out, "           %s: kernels for %s\n", d->features, d->isa);
    fprintf(out, "Waiting    %s\n", d->waiting);
    fprintf(out, "Matmuls    %s\n", d->matmuls);
    fprintf(out, "Memory     %.1f GiB, %.1f available\n", gib(d->memory), gib(d->available));
    print_limits(out, d);
    fprintf(out, "Cache      %s\n", snug_shown(shown, *d->cache_problem ? d->cache_problem : d->cache));
    print_gpus(out, d);
    print_ranks(out, d);
    fprintf(out, "\nUsed       %s\n", d->used);
    if (*d->refused) fprintf(out, "Refused    %s\n", d->refused);
    for (int i = 0; i < d->missing_count; i++) fprintf(out, "%-10s %s\n", i ? "" : "Missing", d->missing[i]);
    if (!d->missing_count) fputs("Missing    nothing\n", out);
}

snug_status snug_doctor_text(const snug_doctor *doctor, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(doctor);
    return snug_report_text(doctor->ctx, print_doctor, doctor, text);
}

/* null: none */
static json_t *limits_json(const struct snug_cgroup *group) {
    return json_pack("{s:o, s:o}", "cpus", group->cpus < 0 ? json_null() : json_real(group->cpus), "memory",
                     group->memory < 0 ? json_null() : json_integer(group->memory));
}

static snug_status doctor_json(const snug_doctor *d, char **text) {
    json_t *missing = json_array(), *ranks = json_array();
    for (int i = 0; i < d->rank_count; i++) {
        const struct snug_doctor_rank *r = &d->ranks[i];
        snug_json_append(&ranks, json_pack("{s:o, s:o, s:o}", "host", snug_json_from_text(r->host), "used",
                                           snug_json_from_text(r->used), "refused",
                                           *r->refused ? snug_json_from_text(r->refused) : json_null()));
    }
    for (int i = 0; i < d->missing_count; i++) snug_json_append(&missing, snug_json_from_text(d->missing[i]));
    return snug_report_json(
        d->ctx,
        json_pack(
            "{s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s, s:s, s:s, s:i, s:i}, s:{s:I, s:I}, s:{s:o, s:o}, s:o, "
            "s:{s:b, s:o, s:o}, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
            "version", SNUG_VERSION, "system", "name", d->system.sysname, "release", d->system.release, "machine",
            d->system.machine, "cpu", "name", d->cpu, "features", d->features, "level", d->isa, "matmuls", d->matmuls,
            "cores", d->cores, "threads", d->threads, "memory", "bytes", (json_int_t)d->memory, "available",
            (json_int_t)d->available, "cache", "folder", d->cache ? snug_json_from_text(d->cache) : json_null(),
            "problem", *d->cache_problem ? snug_json_from_text(d->cache_problem) : json_null(), "gpu",
            snug_gpus_object(&d->gpus), "plugin", "works", d->cuda != NULL, "text", snug_json_from_text(d->plugin_text),
            "cublaslt", *d->cublaslt ? json_string(d->cublaslt) : json_null(), "used", snug_json_from_text(d->used),
            "refused", *d->refused ? snug_json_from_text(d->refused) : json_null(), "missing", missing, "nccl",
            *d->nccl ? snug_json_from_text(d->nccl) : json_null(), "mpi", snug_json_from_text(d->mpi), "ranks", ranks,
            "limits", limits_json(&d->cgroup), "waiting", json_string(d->waiting)),
        text);
}

snug_status snug_doctor_json(const snug_doctor *doctor, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(doctor);
    return doctor_json(doctor, text);
}
