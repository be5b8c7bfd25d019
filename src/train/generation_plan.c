/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a generation, as text and as JSON. */
#include "snug_generate.h"

#include <stdlib.h>

#include "core/call.h"
#include "io/json.h"
#include "train/job.h"

/* Bytes of the cache, which alone is of this class where nothing is trained. */
struct cache {
    int64_t token, sequence, beam, all; /* sequence: of the longest prompt with its answer; beam: of a further beam */
};

static struct cache cache_of(const struct snug_job *job) {
    const struct snug_generation_setup *g = &job->setup.generation;
    const struct snug_program *program = &job->plan.programs[0].program;
    struct cache c = {.all = 0};
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->memory_class != SNUG_MEMORY_FUNCTION) continue;
        c.token += t->cols * snug_dtype_size(t->dtype);
        c.all += t->bytes;
    }
    const int64_t page = c.token * SNUG_CACHE_PAGE;
    c.sequence = snug_generation_pages(g, 1, 1) * page;
    c.beam = (snug_generation_pages(g, 1, 3) - snug_generation_pages(g, 1, 2)) * page;
    return c;
}

static snug_status plan_text(const struct snug_job *job, char **text) {
    const struct snug_generation_setup *g = &job->setup.generation;
    const struct cache c = cache_of(job);
    const int64_t *bytes = job->plan.bytes;
    return snug_format(
        job->ctx, text,
        "Prompts    %lld at a time, %lld beams each, %lld tokens at most with their answers, %lld tokens a step\n"
        "Cache      %lld bytes a token, %lld a sequence, %lld a further beam: %.1f MiB in pages of %d tokens\n"
        "Memory     %.1f MiB: weights %.1f, function %.1f, temporary %.1f, workspace %.1f, batch %.1f, context %.1f, "
        "host "
        "%.1f\n",
        (long long)g->groups, (long long)g->how.search.beams, (long long)g->longest, (long long)g->tokens,
        (long long)c.token, (long long)c.sequence, (long long)c.beam, (double)c.all / 0x1p20, (int)SNUG_CACHE_PAGE,
        (double)job->plan.total / 0x1p20, (double)bytes[SNUG_MEMORY_WEIGHTS] / 0x1p20,
        (double)bytes[SNUG_MEMORY_FUNCTION] / 0x1p20, (double)bytes[SNUG_MEMORY_TEMPORARY] / 0x1p20,
        (double)bytes[SNUG_MEMORY_WORKSPACE] / 0x1p20, (double)bytes[SNUG_MEMORY_BATCH] / 0x1p20,
        (double)bytes[SNUG_MEMORY_CONTEXT] / 0x1p20, (double)bytes[SNUG_MEMORY_HOST] / 0x1p20);
}

static snug_status plan_json(const struct snug_job *job, char **text) {
    const struct snug_generation_setup *g = &job->setup.generation;
    const struct cache c = cache_of(job);
    json_t *o = json_pack("{s:I,s:I,s:{s:I,s:I},s:I,s:I,s:{s:I,s:I,s:I,s:I,s:I,s:i}}", "prompts", (json_int_t)g->groups,
                          "beams", (json_int_t)g->how.search.beams, "requested", "prompts", (json_int_t)g->asked_groups,
                          "beams", (json_int_t)g->asked_beams, "longest", (json_int_t)g->longest, "step_tokens",
                          (json_int_t)g->tokens, "cache", "bytes_per_token", (json_int_t)c.token, "bytes_per_sequence",
                          (json_int_t)c.sequence, "bytes_per_beam", (json_int_t)c.beam, "bytes", (json_int_t)c.all,
                          "pages", (json_int_t)g->pages, "page_tokens", (int)SNUG_CACHE_PAGE);
    json_t *classes = json_object();
    for (int i = 0; i < SNUG_MEMORY_CLASS_COUNT; i++)
        snug_json_add(&classes, snug_memory_class_name((snug_memory_class)i), json_integer(job->plan.bytes[i]));
    snug_json_add(&o, "bytes", classes);
    snug_json_add(&o, "total", json_integer(job->plan.total));
    *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return *text ? SNUG_OK : snug_fail(job->ctx, SNUG_E_MEMORY, "out of memory while the plan is printed");
}

static snug_status plan(snug_args *args, bool json, char **text) {
    struct snug_job job;
    snug_status status = snug_job_open(args, SNUG_COMMAND_GENERATE, &job);
    if (status == SNUG_OK) status = (json ? plan_json : plan_text)(&job, text);
    snug_job_close(&job);
    return status;
}

snug_status snug_generate_plan(snug_args *args, bool json, char **text) {
    SNUG_REQUIRE_OUT(text);
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, plan(args, json, text));
}
