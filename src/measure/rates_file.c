/* SPDX-License-Identifier: Apache-2.0 */
/* Rates as a JSON file in the cache folder, one for each processor, instruction set, number of threads and version. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/folder.h"
#include "io/json.h"
#include "measure/rates.h"

/* A part of ARM's registers, after the Linux kernel's arch/arm64/include/asm/cputype.h. */
static const char *arm_name(unsigned long implementer, unsigned long part) {
    static const struct {
        unsigned implementer, part;
        const char *name;
    } known[] = {{0x41, 0xd03, "ARM Cortex-A53"},  {0x41, 0xd05, "ARM Cortex-A55"},  {0x41, 0xd08, "ARM Cortex-A72"},
                 {0x41, 0xd0b, "ARM Cortex-A76"},  {0x41, 0xd0c, "ARM Neoverse-N1"}, {0x41, 0xd40, "ARM Neoverse-V1"},
                 {0x41, 0xd49, "ARM Neoverse-N2"}, {0x41, 0xd4f, "ARM Neoverse-V2"}, {0x41, 0xd84, "ARM Neoverse-V3"},
                 {0xc0, 0xac3, "Ampere-1"},        {0xc0, 0xac4, "Ampere-1a"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].implementer == implementer && known[i].part == part) return known[i].name;
    return NULL;
}

void snug_cpu_name(FILE *cpuinfo, char *name, size_t size) {
    unsigned long implementer = 0, part = 0;
    char line[256];
    snprintf(name, size, "unknown");
    while (fgets(line, sizeof line, cpuinfo)) {
        const char *text = strchr(line, ':');
        if (!text) continue;
        text += 1 + strspn(text + 1, " ");
        if (strncmp(line, "CPU implementer", 15) == 0) implementer = strtoul(text, NULL, 16);
        if (strncmp(line, "CPU part", 8) == 0) part = strtoul(text, NULL, 16);
        if (strncmp(line, "model name", 10) != 0) continue;
        snprintf(name, size, "%.*s", (int)strcspn(text, "\n"), text);
        return;
    }
    if (!implementer) return;
    const char *known = arm_name(implementer, part);
    if (known)
        snprintf(name, size, "%s", known);
    else /* Apple's number of a core says little: 0x61 is Apple */
        snprintf(name, size, "%s, part 0x%lx", implementer == 0x61 ? "Apple" : "ARM64 processor", part);
}

static void read_cpu_name(char *name, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(name, size, "unknown");
    if (!file) return;
    snug_cpu_name(file, name, size);
    fclose(file);
}

void snug_rates_init(snug_context *ctx, struct snug_rates *rates, const struct snug_backend *backend, const char *gpu,
                     int threads) {
    static const char *const names[] = {"v4", "v3", "v2", "generic"};
    *rates = (struct snug_rates){.ctx = ctx, .threads = gpu ? 0 : threads, .overlaps = backend->copying.overlaps};
    if (gpu)
        snprintf(rates->device, sizeof rates->device, "%s", gpu);
    else
        read_cpu_name(rates->device, sizeof rates->device);
    snprintf(rates->isa, sizeof rates->isa, "%s", backend->name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snug_backend_cpu_isa(names[i]) == backend) snprintf(rates->isa, sizeof rates->isa, "%s", names[i]);
}

/* ---- as JSON -------------------------------------------------------------------------------------------------- */

snug_status snug_rates_json(const struct snug_rates *rates, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(rates);
    json_t *items = json_array();
    for (size_t i = 0; i < rates->count; i++) {
        const struct snug_rate *rate = &rates->items[i];
        snug_json_append(&items, json_pack("{s:s, s:i, s:b, s:b, s:f, s:f, s:f, s:i, s:f}", "operation",
                                           snug_op_name(rate->kind), "types", (int)rate->types, "dropout",
                                           rate->dropout, "file", rate->file, "call", rate->call, "flop", rate->flop,
                                           "byte", rate->byte, "samples", (int)rate->samples, "error", rate->error));
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:i, s:b, s:o}", "version", SNUG_VERSION, "device", rates->device, "isa",
                            rates->isa, "threads", rates->threads, "overlaps", rates->overlaps, "seconds", items);
    *text = all ? snug_json_dump(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    return *text ? SNUG_OK : snug_fail(rates->ctx, SNUG_E_MEMORY, "out of memory while writing the rates as JSON");
}

static int kind_of(const char *name) {
    int kind = 0;
    while (kind < SNUG_OP_COUNT && strcmp(snug_op_name((enum snug_op_kind)kind), name) != 0) kind++;
    return kind;
}

static snug_status read_rate(snug_context *ctx, const char *path, const json_t *item, struct snug_rates *out) {
    struct snug_rate rate = {0};
    const char *name;
    int64_t samples, types;
    if (!json_is_object(item)) return snug_fail(ctx, SNUG_E_INPUT, "%s: \"seconds\" must hold objects", path);
    RETURN_IF_ERROR(snug_json_string(ctx, path, item, "operation", "", &name));
    RETURN_IF_ERROR(snug_json_int(ctx, path, item, "types", 0, &types));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, item, "dropout", false, &rate.dropout));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, item, "file", false, &rate.file));
    RETURN_IF_ERROR(snug_json_real(ctx, path, item, "call", 0, &rate.call));
    RETURN_IF_ERROR(snug_json_real(ctx, path, item, "flop", 0, &rate.flop));
    RETURN_IF_ERROR(snug_json_real(ctx, path, item, "byte", 0, &rate.byte));
    RETURN_IF_ERROR(snug_json_int(ctx, path, item, "samples", 0, &samples));
    RETURN_IF_ERROR(snug_json_real(ctx, path, item, "error", 0, &rate.error));
    const int kind = kind_of(name);
    if (kind == SNUG_OP_COUNT) return snug_fail(ctx, SNUG_E_INPUT, "%s: \"%s\" is not an operation", path, name);
    if (!(rate.call >= 0 && rate.flop >= 0 && rate.byte >= 0))
        return snug_fail(ctx, SNUG_E_INPUT, "%s: %s has a negative time", path, name);
    rate.kind = (enum snug_op_kind)kind;
    rate.types = (int32_t)types;
    rate.samples = (int32_t)samples;
    return snug_rates_add(out, rate);
}

static snug_status read_rates(snug_context *ctx, const char *path, const json_t *json, struct snug_rates *out) {
    const char *device, *isa;
    int64_t threads;
    const json_t *items = json_object_get(json, "seconds");
    RETURN_IF_ERROR(snug_json_string(ctx, path, json, "device", "", &device));
    RETURN_IF_ERROR(snug_json_string(ctx, path, json, "isa", "", &isa));
    RETURN_IF_ERROR(snug_json_int(ctx, path, json, "threads", 0, &threads));
    RETURN_IF_ERROR(snug_json_bool(ctx, path, json, "overlaps", false, &out->overlaps));
    if (!json_is_array(items) || json_array_size(items) == 0)
        return snug_fail(ctx, SNUG_E_INPUT,
                         "%s: \"seconds\" must be a list of rates; snug bench rates --json makes one", path);
    snprintf(out->device, sizeof out->device, "%s", device);
    snprintf(out->isa, sizeof out->isa, "%s", isa);
    out->threads = (int)threads;
    for (size_t i = 0; i < json_array_size(items); i++)
        RETURN_IF_ERROR(read_rate(ctx, path, json_array_get(items, i), out));
    return SNUG_OK;
}

snug_status snug_rates_read(snug_context *ctx, const char *path, struct snug_rates *out) {
    json_t *json;
    *out = (struct snug_rates){.ctx = ctx};
    RETURN_IF_ERROR(snug_json_read(ctx, NULL, path, &json));
    const snug_status status = read_rates(ctx, path, json, out);
    json_decref(json);
    if (status != SNUG_OK) snug_rates_free(out);
    return status;
}

/* ---- the cache ------------------------------------------------------------------------------------------------ */

/* The name of the file for rates' machine. */
static snug_status cached_name(snug_context *ctx, const struct snug_rates *rates, char **name) {
    char device[sizeof rates->device];
    for (size_t i = 0; i < sizeof device; i++)
        device[i] = isalnum((unsigned char)rates->device[i]) ? rates->device[i] : '-';
    device[strlen(rates->device)] = '\0';
    return snug_format(ctx, name, "rates-%s-%s-%s-%d.json", SNUG_VERSION, device, rates->isa, rates->threads);
}

snug_status snug_rates_keep(const struct snug_rates *rates, char **path) {
    snug_context *ctx = rates->ctx;
    struct snug_folder cache;
    char *text = NULL, *name = NULL, *folder, problem[256];
    *path = NULL;
    RETURN_IF_ERROR(snug_cache_folder(ctx, &folder));
    if (!folder) return SNUG_OK; /* none is set */
    free(folder);
    RETURN_IF_ERROR(snug_cache_folder_open(ctx, &cache, problem));
    if (!cache.path) return snug_fail(ctx, SNUG_E_IO, "%s", problem);
    snug_status status = cached_name(ctx, rates, &name);
    if (status == SNUG_OK) status = snug_rates_json(rates, &text);
    if (status == SNUG_OK) status = snug_file_replace(ctx, &cache, name, text, strlen(text));
    if (status == SNUG_OK) status = snug_path_join(ctx, path, cache.path, name);
    free(name);
    free(text);
    snug_folder_close(&cache);
    return status;
}

/* The cached rates of this machine, identified by the file's name, if they exist and are complete; else *out is empty.
 */
static snug_status open_cached(snug_context *ctx, const struct snug_rates *wanted, struct snug_rates *out) {
    struct snug_folder cache;
    char *name = NULL, problem[256];
    json_t *json = NULL;
    RETURN_IF_ERROR(snug_cache_folder_open(ctx, &cache, problem));
    if (!cache.path) return SNUG_OK;
    snug_status status = cached_name(ctx, wanted, &name);
    const int fd = status == SNUG_OK ? snug_cache_folder_find(ctx, &cache, name) : -1;
    if (fd >= 0) {
        close(fd);
        *out = (struct snug_rates){.ctx = ctx};
        snug_status found = snug_json_read(ctx, &cache, name, &json);
        if (found == SNUG_OK) found = read_rates(ctx, name, json, out);
        if (found != SNUG_OK) {
            snug_rates_free(out);
            snug_log(ctx, SNUG_LOG_WARNING, "%s: the rates are measured again", snug_context_message(ctx));
            snug_clear_error(ctx);
        }
        json_decref(json);
    }
    free(name);
    snug_folder_close(&cache);
    return status;
}

/* CPU rates do not apply to a GPU, and vice versa. */
static snug_status read_given(snug_context *ctx, const struct snug_backend *backend, const char *path,
                              struct snug_rates *out) {
    RETURN_IF_ERROR(snug_rates_read(ctx, path, out));
    if (out->overlaps == backend->copying.overlaps) return SNUG_OK;
    snug_rates_free(out);
    return snug_fail(ctx, SNUG_E_USAGE, "SNUG_RATES=%s: these are not the rates of a %s, which this run uses", path,
                     backend->copying.overlaps ? "GPU" : "CPU");
}

snug_status snug_rates_known(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                             struct snug_rates *out) {
    const char *given = getenv("SNUG_RATES");
    struct snug_rates wanted = {0};
    *out = wanted;
    if (given && *given) return read_given(ctx, backend, given, out);
    snug_rates_init(ctx, &wanted, backend, gpu, threads);
    return open_cached(ctx, &wanted, out);
}

snug_status snug_rates_open(snug_context *ctx, const struct snug_backend *backend, const char *gpu, int threads,
                            struct snug_rates *out) {
    char *path = NULL;
    RETURN_IF_ERROR(snug_rates_known(ctx, backend, gpu, threads, out));
    if (out->count) return SNUG_OK;
    snug_log(ctx, SNUG_LOG_INFO, "measuring how fast this %s is (once; snug bench rates does it again)",
             gpu ? "GPU" : "machine");
    RETURN_IF_ERROR(snug_rates_measure(ctx, backend, gpu, threads, out));
    if (snug_rates_keep(out, &path) != SNUG_OK) {
        snug_log(ctx, SNUG_LOG_WARNING, "the rates are measured in every run: %s", snug_context_message(ctx));
        snug_clear_error(ctx);
    }
    free(path);
    return SNUG_OK;
}
