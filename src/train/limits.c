/* SPDX-License-Identifier: Apache-2.0 */
#include "train/limits.h"

#include <stdlib.h>
#include <string.h>

#include "io/offload_file.h"
#include "train/memory.h"

/* Host memory of a GPU's backing store: all of it, or the bounce buffers of one in a file. */
static int64_t backing_bytes(const struct snug_limits *limits, const struct snug_run_plan *plan) {
    if (!plan->layout.offload_bytes) return 0;
    return plan->offload_dir ? limits->device.backend->bounce : plan->layout.offload_bytes;
}

void snug_limits_account(const struct snug_limits *limits, struct snug_run_plan *plan) {
    const struct snug_device *device = &limits->device;
    const struct snug_layout *layout = &plan->layout;
    const int64_t batch = layout->function_offset - layout->batch_offset;
    int64_t context, host = limits->host_bytes;
    memcpy(plan->bytes, layout->bytes, sizeof plan->bytes);
    if (snug_device_is_gpu(device)) {
        plan->bytes[SNUG_MEMORY_BATCH] -= batch;
        plan->bytes[SNUG_MEMORY_FUNCTION] -= layout->host - batch;
        context = snug_device_context(device, plan);
        plan->total = layout->arena + context;
        host += layout->host + backing_bytes(limits, plan);
    } else {
        const struct snug_program *program = &plan->programs[0].program;
        context = snug_round_up_mib(limits->own_bytes + device->backend->library(program, device->threads));
        plan->total = layout->total + context + host;
    }
    plan->bytes[SNUG_MEMORY_CONTEXT] = context;
    plan->bytes[SNUG_MEMORY_HOST] = host;
}

int64_t snug_limits_memory(const struct snug_limits *limits) {
    if (!snug_device_is_gpu(&limits->device)) return snug_machine_bytes();
    return limits->device.usage.gpu.total > 0 ? limits->device.usage.gpu.total : -1;
}

int64_t snug_limits_available(const struct snug_limits *limits) { return snug_device_available(&limits->device); }

snug_status snug_limits_find(const struct snug_limits *limits, const struct snug_setup *setup,
                             const struct snug_run_plan *plan, struct snug_limit *out, bool *over) {
    int64_t budget;
    RETURN_IF_ERROR(snug_args_budget(setup->args, &budget));
    int64_t available = snug_available_bytes();
    /* The other ranks of this host need as much. */
    if (available > 0) available /= snug_group_local_size(setup->args->group);
    if (available >= 0 && plan->layout.offload_bytes && plan->offload_dir &&
        snug_offload_file_is_memory(plan->offload_dir))
        available = available > plan->layout.offload_bytes ? available - plan->layout.offload_bytes : 0;
    /* Resident memory is not in the available memory, and is already allocated. */
    int64_t machine = available < 0 ? INT64_MAX : available + snug_resident_bytes();
    if (snug_device_is_gpu(&limits->device)) {
        available = snug_limits_available(limits);
        machine = available < 0 ? INT64_MAX : available;
    }
    out->budgeted = budget >= 0 && (plan->total > budget || budget < machine);
    out->bytes = out->budgeted ? budget : machine;
    *over = plan->total > out->bytes;
    return SNUG_OK;
}

/* The classes of what a plan allocates. */
static const snug_memory_class planned[] = {SNUG_MEMORY_WEIGHTS,     SNUG_MEMORY_GRADIENTS, SNUG_MEMORY_OPTIMIZER,
                                            SNUG_MEMORY_ACTIVATIONS, SNUG_MEMORY_TEMPORARY, SNUG_MEMORY_WORKSPACE,
                                            SNUG_MEMORY_FUNCTION,    SNUG_MEMORY_BATCH};

/* The class at which the running sum of the classes exceeds the limit. */
static snug_memory_class class_that_is_short(const struct snug_limits *limits, const struct snug_run_plan *plan,
                                             int64_t limit) {
    int64_t sum = plan->bytes[SNUG_MEMORY_CONTEXT] + (snug_device_is_gpu(&limits->device) ? 0 : limits->host_bytes);
    for (size_t i = 0; i < sizeof planned / sizeof *planned && sum <= limit; i++) {
        sum += plan->bytes[planned[i]];
        if (sum > limit) return planned[i];
    }
    return SNUG_MEMORY_CONTEXT;
}

/* With a file on a tmpfs also the file. */
int64_t snug_limits_backing(const struct snug_limits *limits, const struct snug_run_plan *plan) {
    const int64_t offloaded = plan->layout.offload_bytes;
    int64_t bytes = backing_bytes(limits, plan); /* on a CPU 0 */
    if (offloaded && plan->offload_dir && snug_offload_file_is_memory(plan->offload_dir)) bytes += offloaded;
    return bytes;
}

snug_status snug_limits_check_backing(const struct snug_limits *limits, const struct snug_setup *setup,
                                      const struct snug_run_plan *plan) {
    const int64_t bytes = snug_limits_backing(limits, plan);
    int64_t available = snug_available_bytes();
    if (available > 0) available /= snug_group_local_size(setup->args->group); /* other ranks offload as much */
    if (bytes == 0 || available < 0 || bytes <= available) return SNUG_OK;
    return snug_fail(
        limits->device.ctx, SNUG_E_DOES_NOT_FIT,
        "this run offloads %.1f MiB to host memory, of which %.1f MiB are available: offload less, or free some; --fit "
        "offloads no more than the host has memory for, and --memory_budget limits what stays%s",
        (double)bytes / 0x1p20, (double)available / 0x1p20, setup->trains && !setup->args->fit ? "; add --fit" : "");
}

snug_status snug_limits_refuse(struct snug_limits *limits, const struct snug_run_plan *plan,
                               const struct snug_limit *limit, const struct snug_advice *advice) {
    struct snug_device *device = &limits->device;
    const snug_memory_class which = class_that_is_short(limits, plan, limit->bytes);
    const bool gpu = snug_device_is_gpu(device);
    char *others = NULL;
    if (gpu && !limit->budgeted) RETURN_IF_ERROR(snug_gpu_usage_others(&device->usage, &others));
    const snug_status status =
        snug_fail(device->ctx, SNUG_E_DOES_NOT_FIT,
                  "this run needs %.1f MiB%s%s, %.1f MiB (%lld bytes) more than %s %.1f MiB; it is short at %s (%.1f "
                  "MiB); %s%s%s%s%s",
                  (double)plan->total / 0x1p20, gpu ? " of " : "", gpu ? device->usage.gpu.name : "",
                  (double)(plan->total - limit->bytes) / 0x1p20, (long long)(plan->total - limit->bytes),
                  limit->budgeted ? "--memory_budget of" : "the available", (double)limit->bytes / 0x1p20,
                  snug_memory_class_name(which), (double)plan->bytes[which] / 0x1p20, advice->text,
                  others && *others ? "; other processes on it: " : "", others ? others : "",
                  *advice->add ? "; add " : "", advice->add);
    free(others);
    return status;
}
