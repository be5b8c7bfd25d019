/* SPDX-License-Identifier: Apache-2.0 */
#include "train/parallel.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "args/table.h"
#include "core/build_id.h"
#include "io/json.h"
#include "train/identity.h"

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* What the ranks compare, and where an error looks for the cause. */
enum { VERSION, PROCESSOR, ARGUMENTS, DATA, STEP, MODEL, COMPARED };
static const char *const compared[COMPARED] = {"another version or build of snug",
                                               "other instructions of the processor or another oneDNN",
                                               "other arguments",
                                               "other data or another model configuration",
                                               "another checkpoint to resume from",
                                               "other weights or optimizer states"};

struct fingerprint {
    uint64_t values[COMPARED];
    char host[SNUG_HOST_NAME];
};

/* Arguments that may differ between hosts: they change neither what is computed nor what is written. */
static bool may_differ(const char *name) {
    static const char *const names[] = {"threads", "log_level", "disable_tqdm", "json", "memory_budget"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static snug_status hash_arguments(const struct snug_args *args, uint64_t *hash) {
    char value[4096];
    *hash = 0;
    for (size_t i = 0; i < snug_argument_count; i++) {
        const char *name = snug_arguments[i].info.name;
        if (may_differ(name)) continue;
        RETURN_IF_ERROR(snug_args_value(args, name, value, sizeof value));
        *hash = XXH3_64bits_withSeed(value, strlen(value) + 1, *hash + i);
    }
    return SNUG_OK;
}

/* A hash of every weight and state, as it is stored. */
static snug_status hash_tensors(const struct snug_program *program, const struct snug_memory *memory, uint64_t *hash) {
    enum { PART = 1 << 14 };
    uint8_t values[PART];
    *hash = memory->written ? *memory->written : 0;
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->shards.chunk) continue; /* of which each rank has another part */
        if (!t->saved && !(t->persistent && t->memory_class == SNUG_MEMORY_WEIGHTS)) continue;
        const int64_t count = t->rows * t->cols, size = snug_dtype_size(t->dtype), part = PART / size;
        for (int64_t first = 0; first < count; first += part) {
            const int64_t n = count - first < part ? count - first : part;
            RETURN_IF_ERROR(snug_tensor_read(program, memory, (int32_t)i, first, n, values));
            *hash = XXH3_64bits_withSeed(values, (size_t)(n * size), *hash);
        }
    }
    return SNUG_OK;
}

/* The model's configuration and the data. */
static snug_status hash_identity(const struct snug_job *job, uint64_t *hash) {
    const struct snug_setup *setup = &job->setup;
    json_t *identity = setup->trains ? snug_identity(job) : json_incref(setup->config.json);
    char *text = NULL;
    const snug_status status = identity ? snug_json_text(job->ctx, identity, JSON_COMPACT | JSON_SORT_KEYS, &text)
                                        : snug_fail(job->ctx, SNUG_E_MEMORY, "out of memory before the first step");
    if (status == SNUG_OK)
        *hash = XXH3_64bits_withSeed(text, strlen(text),
                                     setup->eval.dataset ? snug_dataset_digest(setup->eval.dataset) : 0);
    free(text);
    json_decref(identity);
    return status;
}

/* Ranks update their copies of the weights each by itself: kernels for other instructions would round differently.
   Those of a GPU do not depend on the processor; its model was compared when the GPUs were connected. */
static uint64_t hash_processor(const struct snug_job *job) {
    static const char *const names[] = {"v2", "v3", "v4", "generic"};
    char text[160];
    const char *own = "";
    if (snug_device_is_gpu(&job->limits.device)) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (snug_backend_cpu_isa(names[i]) == snug_backend_cpu()) own = names[i];
    snug_backend_cpu_describe(text, sizeof text);
    return XXH3_64bits_withSeed(text, strlen(text), XXH3_64bits(own, strlen(own)));
}

static uint64_t hash_build(void) {
    static const char version[] = SNUG_VERSION " " __VERSION__;
    size_t size;
    const void *id = snug_build_id(&size);
    return XXH3_64bits_withSeed(id, size, XXH3_64bits(version, sizeof version));
}

static snug_status find_fingerprint(const struct snug_job *job, const struct snug_memory *memory, int64_t step,
                                    struct fingerprint *out) {
    const struct snug_program *program = &job->plan.programs[0].program; /* every program has all parameters */
    *out = (struct fingerprint){.values = {[VERSION] = hash_build(), [STEP] = (uint64_t)step}};
    out->values[PROCESSOR] = hash_processor(job);
    memcpy(out->host, job->setup.args->group->ranks.host, sizeof out->host);
    RETURN_IF_ERROR(hash_arguments(job->setup.args, &out->values[ARGUMENTS]));
    RETURN_IF_ERROR(hash_identity(job, &out->values[DATA]));
    return hash_tensors(program, memory, &out->values[MODEL]);
}

static snug_status compare(snug_context *ctx, const struct fingerprint *all, int ranks) {
    for (int what = 0; what < COMPARED; what++)
        for (int rank = 1; rank < ranks; rank++)
            if (all[rank].values[what] != all[0].values[what])
                return snug_fail(ctx, SNUG_E_USAGE,
                                 "rank %d on %s has %s than rank 0 on %s: start all ranks with the same command, "
                                 "program and files",
                                 rank, all[rank].host, compared[what], all[0].host);
    return SNUG_OK;
}

snug_status snug_parallel_compare(const struct snug_job *job, const struct snug_memory *memory, int64_t step) {
    const struct snug_process_group *group = job->setup.args->group;
    void *array;
    if (!group) return SNUG_OK;
    RETURN_IF_ERROR(snug_alloc(job->ctx, (size_t)group->ranks.size, sizeof(struct fingerprint), &array));
    struct fingerprint *all = array;
    snug_status status = find_fingerprint(job, memory, step, &all[group->ranks.rank]);
    if (status == SNUG_OK) status = snug_group_all_gather(job->ctx, group, all, sizeof *all);
    if (status == SNUG_OK) status = compare(job->ctx, all, group->ranks.size);
    free(array);
    return status;
}

int64_t snug_parallel_bytes(const struct snug_program *program, int64_t micro_batches) {
    double bytes = 0;
    for (size_t i = 0; i < program->op_count; i++) {
        const struct snug_op *op = &program->ops[i];
        if (!snug_op_is(op, SNUG_OP_COLLECTIVE) || op->phase == SNUG_PHASE_PREPARE) continue;
        const bool once = op->crosses || op->last || op->phase >= SNUG_PHASE_CLIP;
        bytes += (once ? 1 : (double)micro_batches) * snug_op_cost(program, op, 0, 0, 0).bytes;
    }
    if (program->ranks < 2) return 0;
    return (int64_t)(bytes * (program->ranks - 1) / program->ranks); /* a rank's own shards stay where they are */
}

/* ---- reports --------------------------------------------------------------------------------------------------- */

int64_t snug_parallel_report_doubles(const struct snug_loader_options *options) {
    return (int64_t)(sizeof(struct snug_report) / sizeof(double)) + snug_loader_share(options);
}
