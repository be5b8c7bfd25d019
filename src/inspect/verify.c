/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug verify: short trainings of the user's own model that must agree, by the bit or up to the order of sums.
 *
 * On several ranks all of them train together; then rank 0 trains alone, while the others wait, and must get the same.
 * What the ranks compare is rank 0's, so that all decide alike.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "io/folder_write.h"
#include "model/adapters.h"
#include "model/weight_files.h"
#include "train/group.h"
#include "train/threads.h"
#include "train/trainer.h"

enum { STEPS = 6, DETAIL = 512 };

/* The results of a training that are compared: the weights' file, and every step's loss. */
struct outcome {
    int64_t steps;
    double loss;
    snug_memory_line memory[SNUG_MEMORY_CLASS_COUNT], total;
    uint64_t weights, losses;
    bool on_gpu;
};

struct verifying {
    snug_context *ctx, *quiet; /* the caller's; the trainings', which drops messages */
    const snug_args *args;
    const snug_callbacks *callbacks;
    snug_status (*on_check)(void *user, const snug_check *check);
    void *user;
    const char *device;
    char *folder;    /* of the trainings, removed at the end, */
    bool made;       /* and so is output_dir, if it did not exist before */
    int64_t longest; /* of synthetic rows, tokens */
    struct outcome plain;
    int checked, broken;
    double begun; /* time at the start of the current check */
};

static int ranks_of(const struct verifying *v) { return snug_group_size(v->args->group); }
static bool leads(const struct verifying *v) { return snug_group_rank(v->args->group) == 0; }

/* ---- arguments of a training ---------------------------------------------------------------------------------- */

/* A training's arguments in addition to the user's: alternating names and values, ended by NULL. */
typedef const char *const words[];
static words no_words = {NULL};

static snug_status set_words(snug_args *args, words list) {
    for (size_t i = 0; list[i]; i += 2) RETURN_IF_ERROR(snug_args_assign(args, list[i], list[i + 1]));
    return SNUG_OK;
}

static snug_status set_number(snug_args *args, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return snug_args_assign(args, name, text);
}

/* Rows of random tokens if the user names no data: of all lengths, to test packing. */
static snug_status choose_data(const struct verifying *v, snug_args *args, int64_t rows) {
    char name[64];
    if (v->args->train_file)
        return snug_args_is_set(v->args, "max_train_samples") ? SNUG_OK : set_number(args, "max_train_samples", rows);
    const int64_t least = v->longest < 8 ? v->longest : 8;
    snprintf(name, sizeof name, "dummy:%" PRId64 "x%" PRId64 "-%" PRId64, rows, least, v->longest);
    return snug_args_assign(args, "train_file", name);
}

/* No evaluations, no checkpoints; logs every step's loss; only the methods that the user chose. */
static const char *const always[] = {"use_cpu",
                                     "False",
                                     "fit",
                                     "False",
                                     "memory_budget",
                                     "",
                                     "resume_from_checkpoint",
                                     "",
                                     "eval_strategy",
                                     "no",
                                     "save_strategy",
                                     "no",
                                     "load_best_model_at_end",
                                     "False",
                                     "validation_file",
                                     "",
                                     "logging_steps",
                                     "1",
                                     "report_to",
                                     "none",
                                     "logging_strategy",
                                     "steps",
                                     NULL};

static snug_status make_args(const struct verifying *v, const char *output, words list, snug_args **out) {
    const int64_t steps = v->args->max_steps > 0 ? v->args->max_steps : STEPS;
    const int64_t batch = v->args->per_device_train_batch_size * v->args->gradient_accumulation_steps * ranks_of(v);
    const int64_t rows = steps < SNUG_ROWS_MOST / 2 / batch ? 2 * steps * batch : SNUG_ROWS_MOST;
    char *folder;
    *out = NULL;
    RETURN_IF_ERROR(snug_path_join(v->quiet, &folder, v->folder, output));
    snug_status status = snug_args_copy(v->quiet, v->args, out);
    if (status == SNUG_OK) status = set_words(*out, always);
    if (status == SNUG_OK) status = snug_args_assign(*out, "device", v->device);
    if (status == SNUG_OK) status = snug_args_assign(*out, "output_dir", folder);
    free(folder);
    if (status == SNUG_OK) status = set_number(*out, "max_steps", steps);
    if (status == SNUG_OK && v->args->mini_batch_size) /* the checks choose the micro-batches */
        status = set_number(*out, "mini_batch_size", 0);
    if (status == SNUG_OK) status = choose_data(v, *out, rows);
    return status == SNUG_OK ? set_words(*out, list) : status;
}

/* ---- trainings ------------------------------------------------------------------------------------------------ */

struct listening {
    const struct verifying *v;
    XXH3_state_t *losses;
};

static void on_event(void *user, const snug_event *event) {
    struct listening *l = user;
    if (event->kind == SNUG_EVENT_STEP) XXH3_64bits_update(l->losses, &event->loss, sizeof event->loss);
}

static bool should_stop(void *user) {
    const snug_callbacks *callbacks = ((struct listening *)user)->v->callbacks;
    return callbacks && callbacks->should_stop && callbacks->should_stop(callbacks->user);
}

static snug_status add_digest(const struct verifying *v, const struct snug_folder *folder, const char *name,
                              uint64_t *sum) {
    int64_t size;
    uint64_t digest = 0;
    int fd;
    RETURN_IF_ERROR(snug_file_open(v->quiet, folder, name, &fd));
    const snug_status status = snug_file_digest(v->quiet, fd, name, &size, &digest);
    close(fd);
    *sum += XXH3_64bits_withSeed(name, strlen(name), digest);
    return status;
}

/* Of the weights that the manifest lists, in any order of the files. */
static snug_status hash_weights(const struct verifying *v, const char *path, uint64_t *out) {
    static const char *const any[] = {SNUG_WEIGHTS_ANY "|" SNUG_ADAPTER_WEIGHTS, NULL};
    struct snug_folder folder;
    struct snug_manifest manifest = {0};
    const char *name;
    json_t *entry;
    *out = 0;
    RETURN_IF_ERROR(snug_folder_open(v->quiet, NULL, path, &folder));
    snug_status status = snug_manifest_verify(v->quiet, &folder, any);
    if (status == SNUG_OK) status = snug_manifest_read(v->quiet, &folder, &manifest);
    json_object_foreach(manifest.files, name, entry) {
        if (status != SNUG_OK) break;
        if (snug_weight_files_has(name) || strcmp(name, SNUG_ADAPTER_WEIGHTS) == 0)
            status = add_digest(v, &folder, name, out);
    }
    snug_manifest_free(&manifest);
    snug_folder_close(&folder);
    return status;
}

/* The advice for a full disk: no flag for saving helps here. */
static const char room[] = "free some, or let snug verify write elsewhere: --output_dir or TMPDIR";

static void take_result(const snug_train_result *result, struct outcome *out) {
    out->steps = result->steps;
    out->loss = result->train_loss;
    out->total = result->total;
    out->on_gpu = result->device != NULL;
    memcpy(out->memory, result->memory, sizeof out->memory);
}

/* This rank's part of a training into the folder output. */
static snug_status train_here(const struct verifying *v, bool alone, const char *output, bool keep, words list,
                              struct outcome *out) {
    struct listening l = {v, XXH3_createState()};
    const snug_callbacks callbacks = {.user = &l, .on_event = on_event, .should_stop = should_stop};
    snug_args *args = NULL;
    snug_train_result *result = NULL;
    if (!l.losses) return snug_fail(v->quiet, SNUG_E_MEMORY, "out of memory");
    XXH3_64bits_reset(l.losses);
    snug_status status = make_args(v, output, list, &args);
    if (status == SNUG_OK) {
        args->alone = alone;
        args->group = alone ? NULL : v->args->group;
        status = snug_train_in(args, &callbacks, &result, room);
        args->group = NULL; /* which the caller's arguments close */
    }
    if (status == SNUG_OK) take_result(result, out);
    if (status == SNUG_OK && leads(v)) status = hash_weights(v, args->output_dir, &out->weights);
    if (status == SNUG_OK && leads(v) && !keep) status = snug_folder_remove(v->quiet, NULL, args->output_dir);
    out->losses = XXH3_64bits_digest(l.losses);
    XXH3_freeState(l.losses);
    snug_args_free(args);
    snug_train_result_destroy(result);
    return status;
}

/* Whether the ranks cannot continue together. */
static bool have_failed(const struct verifying *v) { return v->args->group && v->args->group->failed; }

/* Trains into the folder output; alone: on rank 0, while the others wait; keep: its files are removed at the end only.
   What is compared is rank 0's on all ranks; memory is each rank's own. */
static snug_status train_as(const struct verifying *v, bool alone, const char *output, bool keep, words list,
                            struct outcome *out) {
    snug_status status = SNUG_OK;
    if (!alone || leads(v)) status = train_here(v, alone, output, keep, list, out);
    if (!v->args->group || have_failed(v)) return status;
    struct {
        struct outcome outcome;
        int64_t status;
    } all = {*out, status};
    RETURN_IF_ERROR(snug_group_broadcast(v->quiet, v->args->group, &all, sizeof all));
    if (leads(v)) return status;
    out->steps = all.outcome.steps;
    out->loss = all.outcome.loss;
    out->weights = all.outcome.weights;
    out->losses = all.outcome.losses;
    return all.status == SNUG_OK ? SNUG_OK : snug_fail(v->quiet, (snug_status)all.status, "rank 0 has failed");
}

static snug_status train(const struct verifying *v, const char *output, bool keep, words list, struct outcome *out) {
    return train_as(v, false, output, keep, list, out);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static snug_status report_check(struct verifying *v, const char *name, snug_check_result result, const char *detail) {
    const double now = snug_seconds();
    const snug_check check = {
        .name = name, .device = v->device, .result = result, .detail = detail, .seconds = now - v->begun};
    v->checked += result != SNUG_CHECK_SKIPPED;
    v->broken += result == SNUG_CHECK_FAILED;
    v->begun = now;
    return leads(v) ? v->on_check(v->user, &check) : SNUG_OK;
}

/* Failures that are not results: removes a training's advice on how to continue, which does not apply to a
 * verification.
 */
static snug_status give_up(struct verifying *v, const char *what, snug_status status) {
    if (status == SNUG_E_INTERRUPTED) return snug_fail(v->ctx, status, "interrupted");
    return snug_fail(v->ctx, status, "%s%s", what, snug_context_message(v->quiet));
}

/* A training that ended early: an unsupported method, too little memory or a full disk does not break the invariant;
 * any other failure does. */
static snug_status tell_failure(struct verifying *v, const char *name, const char *variant, snug_status status) {
    char detail[DETAIL];
    snprintf(detail, sizeof detail, "%s: ", variant);
    if (status == SNUG_E_INTERRUPTED || status == SNUG_E_IO || status == SNUG_E_MEMORY || have_failed(v))
        return give_up(v, detail, status);
    snprintf(detail, sizeof detail, "%s: %s", variant, snug_context_message(v->quiet));
    return report_check(v, name, status == SNUG_E_DOES_NOT_FIT ? SNUG_CHECK_SKIPPED : SNUG_CHECK_FAILED, detail);
}

/* The order of fp32 sums changes a loss or a gradient by about 1e-7 of it; 16-bit results are rounded at other
   points. */
static double share_allowed(bool low) { return low ? 2e-2 : 1e-5; }

static bool is_low(const struct snug_args *args) {
    return args->bf16 || args->fp16 || strcmp(args->dtype, "bfloat16") == 0;
}

/* A training that must give the same bits as the plain one. */
struct variant {
    const char *name;
    const char *words[5];
};

/* allowed: the relative difference allowed for the mean loss if the order of sums differs; 0: same bits as expected. */
static snug_status check_runs(struct verifying *v, const char *name, const struct variant *variants, size_t count,
                              const struct outcome *expected, double allowed) {
    char detail[DETAIL] = "same bits:";
    for (size_t i = 0; i < count; i++) {
        struct outcome out = {0};
        const snug_status status = train(v, "variant", false, variants[i].words, &out);
        if (status != SNUG_OK) return tell_failure(v, name, variants[i].name, status);
        const double off = fabs(out.loss / expected->loss - 1);
        const bool same = out.weights == expected->weights && out.losses == expected->losses;
        if (!same && off <= allowed) {
            snprintf(detail, sizeof detail, "%s: mean loss differs by %.1e (allowed %.0e)", variants[i].name, off,
                     allowed);
            continue;
        }
        if (!same) {
            snprintf(detail, sizeof detail, "%s: other %s after %" PRId64 " steps", variants[i].name,
                     out.losses == expected->losses ? "weights" : "losses", out.steps);
            return report_check(v, name, SNUG_CHECK_FAILED, detail);
        }
        const size_t used = strlen(detail);
        snprintf(detail + used, sizeof detail - used, "%s %s", i ? "," : "", variants[i].name);
    }
    return report_check(v, name, SNUG_CHECK_PASSED, detail);
}

static snug_status check_same_bits(struct verifying *v) {
    const struct snug_args *args = v->args;
    const bool cpu = strcmp(v->device, "cpu") == 0, in_backward = args->update_in_backward, alone = args->threads == 1;
    const bool several = ranks_of(v) > 1; /* which do not support each method */
    const struct variant seed[] = {{"a second run", {NULL}}};
    const struct variant levels[] = {
        {"none", {"recompute", "none", "gradient_checkpointing", "False", NULL}},
        {"elementwise", {"recompute", "elementwise", "gradient_checkpointing", "False", NULL}},
        {"ffn", {"recompute", "ffn", "gradient_checkpointing", "False", NULL}},
        {"attention", {"recompute", "attention", "gradient_checkpointing", "False", NULL}},
        {"layer", {"recompute", "layer", "gradient_checkpointing", "False", NULL}}};
    const struct variant update[] = {
        {in_backward ? "after backward" : "in backward", {"update_in_backward", in_backward ? "False" : "True", NULL}}};
    const struct variant offload[] = {
        {several ? "optimizer, activations" : "all classes",
         {"offload", several ? "optimizer,activations" : "optimizer,gradients,weights,activations", NULL}}};
    const struct variant threads[] = {{alone ? "2 threads" : "1 thread", {"threads", alone ? "2" : "1", NULL}}};
    const struct variant loader[] = {
        {"0 workers", {"dataloader_num_workers", "0", "overwrite_cache", "True", NULL}},
        {"3 workers", {"dataloader_num_workers", "3", "dataloader_prefetch_factor", "5", NULL}}};
    const struct {
        const char *name;
        const struct variant *variants;
        size_t count;
        double allowed;
    } checks[] = {
        {"same seed, same bits", seed, 1, 0},
        {"recomputed = stored", levels, sizeof levels / sizeof *levels, 0},
        {"independent of when weights are updated", update, !several, cpu ? 0 : share_allowed(is_low(args))},
        {"offloaded = in memory", offload, 1, 0},
        {"independent of threads", threads, cpu, 0},
        {"independent of the loader", loader, 2, 0},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].count)
            RETURN_IF_ERROR(
                check_runs(v, checks[i].name, checks[i].variants, checks[i].count, &v->plain, checks[i].allowed));
    return SNUG_OK;
}

/* ---- several ranks ----------------------------------------------------------------------------------------------- */

static const char inexact[] = "with these arguments ranks have the bits of one rank up to the order of sums alone";

/* Whether several operations add to one gradient, micro-batch after micro-batch. */
static bool adds_twice(const struct snug_program *program) {
    for (size_t w = 1; w < program->tensor_count; w++) {
        const int32_t g = program->tensors[w].gradient;
        int writers = 0;
        for (size_t i = 0; i < program->op_count && g; i++)
            for (int k = 0; k < snug_op_operands(&program->ops[i]); k++)
                writers += program->ops[i].operands[k] == g &&
                           snug_op_info(program->ops[i].kind)->operands[k].access == SNUG_GRADIENT;
        if (writers > 1) return true;
    }
    return false;
}

/* Whether ranks with a micro-batch each have the bits of one rank: docs/distributed.md has the exceptions. */
static bool is_exact(const struct snug_job *job) {
    enum { CHUNK_ROWS = 1024 }; /* of bf16 matmuls on a CPU */
    const struct snug_planned_program *training = snug_run_plan_find(&job->plan, SNUG_ROLE_TRAINING);
    const struct snug_program *program = &training->program;
    const struct snug_loader_limits *limits = &training->pipeline.limits;
    const bool in_chunks = program->compute == SNUG_BF16 && !snug_backend_is_device(job->setup.backend);
    if (in_chunks && limits->tokens > CHUNK_ROWS) return false;
    return limits->rows <= program->capacity[SNUG_EXTENT_ROWS] && !adds_twice(program);
}

static snug_status plan_alone(const struct verifying *v, bool *exact) {
    static words plans = {"gpus", "", NULL}; /* which a plan does not start */
    snug_args *args;
    struct snug_job job;
    snug_status status = make_args(v, "alone", plans, &args);
    if (status == SNUG_OK) {
        args->alone = true;
        status = snug_job_open(args, SNUG_COMMAND_PLAN, &job);
        if (status == SNUG_OK) *exact = is_exact(&job);
        snug_job_close(&job);
    }
    snug_args_free(args);
    return status;
}

/* Rank 0 plans the run of one rank; all ranks get its answer. */
static snug_status find_exact(const struct verifying *v, bool *exact) {
    struct {
        int64_t status;
        bool exact;
    } all = {SNUG_OK, false};
    snug_status status = leads(v) ? plan_alone(v, &all.exact) : SNUG_OK;
    all.status = status;
    RETURN_IF_ERROR(snug_group_broadcast(v->quiet, v->args->group, &all, sizeof all));
    *exact = all.exact;
    if (leads(v) || all.status == SNUG_OK) return status;
    return snug_fail(v->quiet, (snug_status)all.status, "rank 0 has failed");
}

/* The micro-batches of a step of one rank that does the work of all. */
static void all_micro_batches(const struct verifying *v, char text[static 32]) {
    snprintf(text, 32, "%" PRId64, v->args->gradient_accumulation_steps * ranks_of(v));
}

/* From stage 2 on several micro-batches of a rank are added in the order of one rank, too. */
static bool keeps_order(const struct verifying *v, int64_t stage) {
    return v->args->gradient_accumulation_steps == 1 || stage >= 2;
}

/* Stages above 0 are refused before the ranks train, if the optimizer does not support them. */
static snug_status check_stages(const struct verifying *v) {
    snug_args *args = NULL;
    snug_status status = make_args(v, "variant", (words){"zero_stage", "1", NULL}, &args);
    if (status == SNUG_OK) status = snug_args_check(args, "train");
    snug_args_free(args);
    return status;
}

/* Every ZeRO stage on all ranks has the results of rank 0 alone, with all micro-batches. */
static snug_status check_one_rank(struct verifying *v) {
    static const struct variant stages[2][2] = {
        {{"stage 0", {"zero_stage", "0", NULL}}, {"1", {"zero_stage", "1", NULL}}},
        {{"stage 2", {"zero_stage", "2", NULL}}, {"3", {"zero_stage", "3", NULL}}}};
    char name[64], accumulation[32];
    struct outcome alone = {0};
    bool exact;
    snprintf(name, sizeof name, "%d ranks = 1 rank", ranks_of(v));
    all_micro_batches(v, accumulation);
    snug_status status = find_exact(v, &exact);
    if (status != SNUG_OK) return tell_failure(v, name, "the plan of one rank", status);
    status = train_as(v, true, "alone", false, (words){"gradient_accumulation_steps", accumulation, NULL}, &alone);
    if (status != SNUG_OK) return tell_failure(v, name, "one rank", status);
    for (int high = 0; high < 2; high++) {
        const bool divides = check_stages(v) == SNUG_OK; /* else its error is the reason */
        const double allowed = exact && keeps_order(v, 2 * high) ? 0 : share_allowed(is_low(v->args));
        snprintf(name, sizeof name, "%d ranks = 1 rank, ZeRO %s", ranks_of(v), high ? "2 and 3" : "0 and 1");
        if (high && !divides)
            RETURN_IF_ERROR(report_check(v, name, SNUG_CHECK_SKIPPED, snug_context_message(v->quiet)));
        else
            RETURN_IF_ERROR(check_runs(v, name, stages[high], divides ? 2 : 1, &alone, allowed));
    }
    return SNUG_OK;
}

/* A checkpoint of all ranks, resumed by rank 0 alone. */
static snug_status check_resume_alone(struct verifying *v, const char *checkpoint) {
    static const char name[] = "resumed on 1 rank = uninterrupted";
    char accumulation[32];
    struct outcome resumed = {0};
    bool exact;
    all_micro_batches(v, accumulation);
    snug_status status = find_exact(v, &exact);
    if (status != SNUG_OK) return tell_failure(v, name, "the plan of one rank", status);
    if (!exact || !keeps_order(v, v->args->zero_stage)) return report_check(v, name, SNUG_CHECK_SKIPPED, inexact);
    status = train_as(v, true, "alone", false,
                      (words){"resume_from_checkpoint", checkpoint, "gradient_accumulation_steps", accumulation, NULL},
                      &resumed);
    if (status != SNUG_OK) return tell_failure(v, name, "the resumed training", status);
    if (resumed.weights != v->plain.weights)
        return report_check(v, name, SNUG_CHECK_FAILED, "the resumed run has other weights");
    return report_check(v, name, SNUG_CHECK_PASSED, "same bits: resumed halfway");
}

/* A training with a checkpoint halfway, and one that resumes from it. */
static snug_status check_resume(struct verifying *v) {
    static const char name[] = "resumed = uninterrupted";
    const int64_t half = v->plain.steps / 2;
    char every[32], checkpoint[512];
    struct outcome whole = {0}, resumed = {0};
    if (half < 1) return report_check(v, name, SNUG_CHECK_SKIPPED, "needs 2 steps or more: --max_steps");
    snprintf(every, sizeof every, "%" PRId64, half);
    snprintf(checkpoint, sizeof checkpoint, "%s/saved/checkpoint-%" PRId64, v->folder, half);
    words saving = {"save_strategy",    "steps", "save_steps", every, "save_only_model", "False",
                    "save_total_limit", "0",     NULL};
    snug_status status = train(v, "saved", true, saving, &whole);
    if (status != SNUG_OK) return tell_failure(v, name, "the training that saves", status);
    status = train(v, "variant", false, (words){"resume_from_checkpoint", checkpoint, NULL}, &resumed);
    if (status != SNUG_OK) return tell_failure(v, name, "the resumed training", status);
    if (whole.weights != v->plain.weights || whole.losses != v->plain.losses)
        return report_check(v, name, SNUG_CHECK_FAILED, "saving a checkpoint changed the training");
    if (resumed.weights != v->plain.weights)
        return report_check(v, name, SNUG_CHECK_FAILED, "the resumed run has other weights");
    RETURN_IF_ERROR(report_check(v, name, SNUG_CHECK_PASSED, "same bits: resumed halfway"));
    return ranks_of(v) > 1 ? check_resume_alone(v, checkpoint) : SNUG_OK;
}

/* ---- up to the order of sums ---------------------------------------------------------------------------------- */

/* Loss and gradients of the first step. */
struct gradients {
    float *values; /* of all parameters, in the program's order */
    size_t count;
    double loss;
    bool low; /* results are rounded to 16 bits */
};

static snug_status run_step(struct snug_session *session, double *loss) {
    const snug_batch_info *info;
    *loss = 0;
    RETURN_IF_ERROR(snug_session_start_epoch(session, 0));
    do RETURN_IF_ERROR(snug_session_micro_batch(session, &info));
    while (!info->last_in_step);
    float last; /* reading it waits for the losses */
    const struct snug_run *run = &session->train_run;
    RETURN_IF_ERROR(snug_session_read(session, run, session->training->program.loss, &last, sizeof last));
    for (int64_t micro = 0; micro < run->micro_batch; micro++) *loss += snug_session_loss(session, micro);
    return SNUG_OK;
}

static snug_status take_gradients(const struct verifying *v, struct snug_session *session, struct gradients *out) {
    size_t count, used = 0;
    const char *name;
    for (size_t i = 0; snug_parameter_name(session, i, &count); i++) out->count += count;
    RETURN_IF_ERROR(snug_alloc(v->quiet, out->count, sizeof *out->values, (void **)&out->values));
    for (size_t i = 0; (name = snug_parameter_name(session, i, &count)); used += count, i++)
        if (snug_parameter_trainable(session, i))
            RETURN_IF_ERROR(snug_session_gradient(session, name, out->values + used, count));
    return SNUG_OK;
}

static bool has_low_activations(const struct snug_program *program) {
    for (size_t i = 0; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (t->memory_class == SNUG_MEMORY_ACTIVATIONS && (t->dtype == SNUG_BF16 || t->dtype == SNUG_F16)) return true;
    }
    return false;
}

static snug_status find_gradients(const struct verifying *v, int64_t batch, int64_t accumulation,
                                  struct gradients *out) {
    char sizes[2][32];
    snug_args *args = NULL;
    struct snug_session *session = NULL;
    *out = (struct gradients){0};
    snprintf(sizes[0], sizeof sizes[0], "%" PRId64, batch);
    snprintf(sizes[1], sizeof sizes[1], "%" PRId64, accumulation);
    snug_status status = make_args(v, "variant",
                                   (words){"per_device_train_batch_size", sizes[0], "gradient_accumulation_steps",
                                           sizes[1], "update_in_backward", "False", NULL},
                                   &args);
    if (status == SNUG_OK) status = snug_session_open(args, SNUG_COMMAND_TRAIN, NULL, &session);
    if (status == SNUG_OK) status = run_step(session, &out->loss);
    if (status == SNUG_OK) status = take_gradients(v, session, out);
    if (status == SNUG_OK) out->low = has_low_activations(&session->training->program);
    snug_session_close(session);
    snug_args_free(args);
    return status;
}

static double distance(const struct gradients *a, const struct gradients *b) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a->count; i++) {
        const double x = (double)a->values[i], d = x - (double)b->values[i];
        difference += d * d;
        norm += x * x;
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

static snug_status compare_split(struct verifying *v, const char *name, const struct gradients *whole, int64_t batch,
                                 int64_t accumulation) {
    char detail[DETAIL];
    struct gradients split;
    const snug_status status = find_gradients(v, batch, accumulation, &split);
    if (status != SNUG_OK) {
        free(split.values);
        snprintf(detail, sizeof detail, "%" PRId64 " x %" PRId64, batch, accumulation);
        return tell_failure(v, name, detail, status);
    }
    const double loss = fabs(split.loss / whole->loss - 1), gradient = distance(whole, &split);
    const double limit = share_allowed(whole->low);
    free(split.values);
    snprintf(detail, sizeof detail,
             "%" PRId64 " x %" PRId64 " for %" PRId64 " x %" PRId64
             ": loss differs by %.1e, gradient by %.1e (allowed %.0e)",
             batch, accumulation, v->args->per_device_train_batch_size, v->args->gradient_accumulation_steps, loss,
             gradient, limit);
    return report_check(v, name, loss <= limit && gradient <= limit ? SNUG_CHECK_PASSED : SNUG_CHECK_FAILED, detail);
}

static snug_status check_sums(struct verifying *v) {
    static const char *const names[] = {"independent of accumulation", "independent of packing"};
    const int64_t batch = v->args->per_device_train_batch_size, times = v->args->gradient_accumulation_steps;
    struct gradients whole;
    const bool packs = v->args->per_device_train_tokens > 0;
    for (int i = 0; i < 2 && (batch == 1 || packs); i++)
        RETURN_IF_ERROR(report_check(v, names[i], SNUG_CHECK_SKIPPED,
                                     packs ? "needs micro-batches of rows, without --per_device_train_tokens"
                                           : "needs --per_device_train_batch_size 2 or more"));
    if (batch == 1 || packs) return SNUG_OK;
    snug_status status = find_gradients(v, batch, times, &whole);
    if (status == SNUG_OK)
        status = batch % 2
                     ? report_check(v, names[0], SNUG_CHECK_SKIPPED, "needs an even --per_device_train_batch_size")
                     : compare_split(v, names[0], &whole, batch / 2, 2 * times);
    else
        status = tell_failure(v, names[0], "the first step", status);
    if (status == SNUG_OK && whole.values) status = compare_split(v, names[1], &whole, 1, batch * times);
    free(whole.values);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* For small models the memory of the libraries varies by more than this fraction. */
static const int64_t slack_bytes = 8 << 20;

static snug_status plan_classes(const struct verifying *v, int64_t classes[SNUG_MEMORY_CLASS_COUNT]) {
    snug_args *args;
    struct snug_job job;
    snug_status status = make_args(v, "variant", no_words, &args);
    if (status == SNUG_OK) {
        status = snug_job_open(args, SNUG_COMMAND_PLAN, &job);
        memcpy(classes, job.plan.bytes, sizeof job.plan.bytes);
        snug_job_close(&job);
    }
    snug_args_free(args);
    return status;
}

/* The total, of all ranks, that differs most from its plan; one that was not measured differs most of all. */
static snug_status find_worst(const struct verifying *v, snug_memory_line *worst, int *rank) {
    snug_memory_line *all;
    double most = -1;
    RETURN_IF_ERROR(snug_alloc(v->quiet, (size_t)ranks_of(v), sizeof *all, (void **)&all));
    all[snug_group_rank(v->args->group)] = v->plain.total;
    const snug_status status = snug_group_all_gather(v->quiet, v->args->group, all, sizeof *all);
    for (int r = 0; r < ranks_of(v); r++) {
        const double off = all[r].measured < 0 ? INFINITY : fabs((double)all[r].measured / (double)all[r].planned - 1);
        if (off <= most) continue;
        most = off;
        *worst = all[*rank = r];
    }
    free(all);
    return status;
}

/* The classes of memory that were allocated differ from those of the plan. */
static snug_status compare_classes(struct verifying *v, const char *name, bool *differ) {
    int64_t classes[SNUG_MEMORY_CLASS_COUNT];
    char detail[DETAIL];
    const snug_memory_line *allocated = v->plain.memory;
    const snug_status status = plan_classes(v, classes);
    *differ = true;
    if (status != SNUG_OK) return tell_failure(v, name, "the plan", status);
    for (int i = 0; i < SNUG_MEMORY_CONTEXT; i++) {
        if (classes[i] == allocated[i].measured) continue;
        snprintf(detail, sizeof detail, "%s: %" PRId64 " bytes planned, %" PRId64 " allocated",
                 snug_memory_class_name((snug_memory_class)i), classes[i], allocated[i].measured);
        return report_check(v, name, SNUG_CHECK_FAILED, detail);
    }
    *differ = false;
    return SNUG_OK;
}

/* The plain training is the first of the process, so the measured peak is its own. */
static snug_status check_memory(struct verifying *v) {
    static const char name[] = "planned = allocated = measured";
    char detail[DETAIL];
    snug_memory_line total = {0, -1};
    int rank = 0;
    bool differ = false;
    if (ranks_of(v) == 1) RETURN_IF_ERROR(compare_classes(v, name, &differ)); /* a single process plans for itself */
    if (differ) return SNUG_OK;
    RETURN_IF_ERROR(find_worst(v, &total, &rank));
    const int64_t planned = total.planned;
    const int64_t measured = total.measured, off = measured < planned ? planned - measured : measured - planned;
    const double share = strcmp(v->device, "cpu") == 0 ? 0.02 : 0.01;
    int used = snprintf(detail, sizeof detail, "%.1f MiB planned, %.1f measured (%+.2f %%)", (double)planned / 0x1p20,
                        (double)measured / 0x1p20, 100 * ((double)measured / (double)planned - 1));
    if (ranks_of(v) > 1) snprintf(detail + used, sizeof detail - (size_t)used, " on rank %d, which differs most", rank);
    if (measured < 0)
        return report_check(v, name, SNUG_CHECK_SKIPPED, "every class as planned; the total cannot be measured");
    const bool kept = (double)off <= share * (double)planned || off <= slack_bytes;
    return report_check(v, name, kept ? SNUG_CHECK_PASSED : SNUG_CHECK_FAILED, detail);
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static snug_status verify_device(struct verifying *v, const char *device) {
    v->device = device;
    v->begun = snug_seconds();
    const snug_status status = train(v, "variant", false, no_words, &v->plain);
    if (status != SNUG_OK) return give_up(v, "", status);
    if (strcmp(device, "auto") == 0) v->device = v->plain.on_gpu ? "cuda" : "cpu";
    RETURN_IF_ERROR(check_memory(v));
    RETURN_IF_ERROR(check_same_bits(v));
    RETURN_IF_ERROR(check_resume(v));
    return ranks_of(v) > 1 ? check_one_rank(v) : check_sums(v);
}

static snug_status verify_devices(struct verifying *v) {
    const char *device = v->args->use_cpu ? "cpu" : v->args->device;
    const struct snug_backend *cuda;
    if (ranks_of(v) > 1 || strcmp(device, "auto") != 0) return verify_device(v, device);
    RETURN_IF_ERROR(verify_device(v, "cpu"));
    if (snug_backend_cuda(v->quiet, &cuda) == SNUG_OK) return verify_device(v, "cuda");
    snug_log(v->ctx, SNUG_LOG_INFO, "on the CPU alone: %s", snug_context_message(v->quiet));
    return SNUG_OK;
}

static snug_status make_own_folder(struct verifying *v) {
    const char *own = v->args->output_dir, *temporary = getenv("TMPDIR");
    const bool named = !own && temporary && *temporary;
    const char *parent = own ? own : named ? temporary : "/tmp";
    v->made = own && !snug_folder_exists(own);
    if (own) RETURN_IF_ERROR(snug_folder_create(v->ctx, own));
    RETURN_IF_ERROR(snug_path_join(v->ctx, &v->folder, parent, "snug-verify-XXXXXX"));
    if (mkdtemp(v->folder)) return SNUG_OK;
    const snug_status status =
        snug_fail(v->ctx, SNUG_E_IO,
                  "%s%s: cannot make a folder there: %s; snug verify writes into --output_dir, else TMPDIR, else /tmp",
                  own     ? "--output_dir "
                  : named ? "TMPDIR="
                          : "",
                  parent, strerror(errno));
    free(v->folder);
    v->folder = NULL;
    return status;
}

/* All ranks use rank 0's. */
static snug_status make_folder(struct verifying *v) {
    struct {
        int64_t status;
        char path[PATH_MAX];
    } all = {SNUG_OK, ""};
    snug_status status = leads(v) ? make_own_folder(v) : SNUG_OK;
    if (!v->args->group) return status;
    all.status = status;
    if (v->folder) snprintf(all.path, sizeof all.path, "%s", v->folder);
    RETURN_IF_ERROR(snug_group_broadcast(v->ctx, v->args->group, &all, sizeof all));
    if (leads(v)) return status;
    if (all.status != SNUG_OK) return snug_fail(v->ctx, (snug_status)all.status, "rank 0 has no folder");
    return snug_strdup(v->ctx, all.path, &v->folder);
}

static snug_status verify(struct verifying *v) {
    const struct snug_args *args = v->args;
    RETURN_IF_ERROR(snug_threads_check(v->ctx, snug_args_threads(args)));
    snug_status status = snug_context_create(&v->quiet);
    if (status != SNUG_OK) return snug_fail(v->ctx, status, "out of memory");
    status = snug_setup_longest(args, args->max_seq_length, &v->longest);
    if (status == SNUG_OK) status = make_folder(v);
    if (status == SNUG_OK) status = verify_devices(v);
    if (status == SNUG_OK) status = snug_group_barrier(v->ctx, args->group); /* rank 0 may end the others */
    if (v->folder && leads(v)) snug_folder_remove(v->quiet, NULL, v->folder);
    if (v->made) rmdir(args->output_dir);
    free(v->folder);
    snug_context_destroy(v->quiet);
    if (status != SNUG_OK || v->broken == 0) return status;
    return snug_fail(v->ctx, SNUG_E_INTERNAL, "%d of %d invariants do not hold here: please report it", v->broken,
                     v->checked);
}

static snug_status verify_in_group(struct verifying *v, snug_args *args) {
    RETURN_IF_ERROR(snug_group_join(args));
    snug_status status = snug_args_check(args, "verify");
    if (status == SNUG_OK) status = verify(v);
    /* A training that failed has named its rank. */
    if (status == SNUG_OK || have_failed(v)) return status;
    return snug_group_fail(args, v->callbacks, status, -1);
}

snug_status snug_verify(snug_args *args, const snug_callbacks *callbacks,
                        snug_status (*on_check)(void *user, const snug_check *check), void *user) {
    SNUG_REQUIRE(args);
    SNUG_REQUIRE(on_check);
    struct verifying v = {.ctx = args->ctx, .args = args, .callbacks = callbacks, .on_check = on_check, .user = user};
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, verify_in_group(&v, args));
}
