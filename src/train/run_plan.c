/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/min_max.h"
#include "data/packs.h"
#include "data/positions.h"
#include "model/family.h"
#include "model/freeze.h"
#include "model/quantization.h"

enum {
    LAZY_STEPS =
        256, /* all rows of a table are flushed at least this often: a flush costs about as much as a whole update */
    OUTPUT_BYTES = 16 << 20, /* long enough for the full bandwidth of a copy */
};

/* ---- batches and steps ---------------------------------------------------------------------------------------- */

/* The mean micro-batch of an epoch or an evaluation, or the only one of a plan without data. */
static struct snug_load load_of(const struct snug_setup *setup, const struct snug_data_source *source,
                                const struct snug_data_pipeline *pipeline) {
    const struct snug_loader_limits *limits = &pipeline->limits;
    struct snug_load load = {.tokens = (double)limits->tokens,
                             .sequences = (double)limits->sequences,
                             .pairs = (double)limits->tokens * (double)limits->longest,
                             .micro_batches = (double)snug_loader_share(&pipeline->options)};
    if (source->dataset) {
        const double batches = (double)snug_loader_batches(source->rows, &pipeline->options);
        const double rows =
            pipeline->options.drop_last ? batches * (double)pipeline->options.batch_size : (double)source->rows;
        const double share = rows / (double)source->rows / batches;
        load.tokens = (double)snug_dataset_tokens(source->dataset) * share;
        load.sequences = rows / batches;
        load.sequences *= snug_dataset_sequences(source->dataset);
        load.pairs = snug_dataset_squared_lengths(source->dataset) * share;
        load.micro_batches =
            batches / (double)snug_loader_steps(source->rows, &pipeline->options) / (double)pipeline->options.ranks;
    }
    load.rows =
        snug_task_positions(snug_setup_task(setup), &pipeline->options, source->dataset, load.sequences, load.tokens);
    return load;
}

/* The reference model sees all rows, also those that are in no batch: the longest one fits. */
static void fit_rows(const struct snug_dataset *dataset, struct snug_loader_limits *limits) {
    const int64_t longest = snug_dataset_longest(dataset), sequence = snug_dataset_longest_sequence(dataset);
    if (limits->tokens < longest) limits->rows = limits->tokens = longest;
    if (limits->longest < sequence) limits->longest = sequence;
    snug_sizes_add(&limits->sizes, longest);
}

static snug_status plan_batches(const struct snug_setup *setup, const struct snug_args *args, enum snug_role role,
                                struct snug_data_pipeline *out) {
    const bool training = role == SNUG_ROLE_TRAINING;
    const int ranks = snug_args_ranks(args);
    const enum snug_task task = setup->config.task;
    const struct snug_data_source *source = training ? &setup->train : &setup->eval;
    *out = (struct snug_data_pipeline){0};
    out->options = (struct snug_loader_options){
        .sampling = training ? snug_setup_sampling(args) : SNUG_SAMPLING_SEQUENTIAL,
        .seed = snug_args_data_seed(args),
        .batch_size = !training       ? args->per_device_eval_batch_size
                      : source->packs ? 1
                                      : snug_args_micro_batch(args),
        .packs = source->packs,
        .distinct = source->distinct,
        .pack_count = source->packs ? snug_packs_count(source->packs) : 0,
        .accumulation = training ? snug_args_micro_batches(args) * ranks : 1,
        .ranks = ranks,
        .rank = snug_group_rank(args->group),
        .two_passes = training && task == SNUG_TASK_EMBEDDING && snug_args_micro_batches(args) > 1,
        .in_turns = training && ranks > 1 && args->zero_stage >= 2,
        .independent = !training,
        .drop_last = training && args->dataloader_drop_last && !source->packs,
        .texts = source->dataset ? snug_dataset_texts(source->dataset) : 0,
        .workers = setup->command == SNUG_COMMAND_MODEL ? 0 : (int)args->dataloader_num_workers,
        .prefetch = (int)args->dataloader_prefetch_factor,
        .threads = setup->threads,
        .task = task,
        .problem = setup->config.labels.problem,
        .labels = setup->config.labels.count,
        .class_weights = setup->class_weights,
        .reference = source->reference,
        .mlm_probability = args->mlm_probability,
        .whole_words = args->whole_word_mask,
        .predict = snug_setup_predicts(setup),
        .ranking_loss = setup->config.ranking_loss,
        .label_all_tokens = args->label_all_tokens,
        .tokenizer = setup->tokenizer,
        .vocab_size = setup->config.vocab_size,
        .first_position = (int32_t)setup->config.first_position,
        .one_type = setup->config.one_type,
    };
    /* A plan without data, and a loaded model: every batch is full, every sequence has the maximum length. */
    if (!source->rows) {
        const int64_t most = training ? args->per_device_train_tokens : 0;
        const int64_t sequences = most ? (most + setup->max_length - 1) / setup->max_length : out->options.batch_size;
        const int64_t tokens = most ? most : sequences * setup->max_length;
        if (tokens > INT32_MAX)
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "a batch of %lld texts of %lld tokens is too large: make --per_device_%s_batch_size or "
                             "--max_seq_length smaller",
                             (long long)sequences, (long long)setup->max_length, training ? "train" : "eval");
        out->limits =
            (struct snug_loader_limits){.sequences = sequences,
                                        .tokens = tokens,
                                        .rows = snug_task_is_per_token(snug_setup_task(setup)) ? tokens : sequences,
                                        .longest = snug_min(setup->max_length, tokens)};
        out->max_steps = training && args->max_steps > 0 ? args->max_steps : 0;
        return SNUG_OK;
    }
    if (!training) return snug_loader_limits(args->ctx, source->dataset, &out->options, 1, 0, &out->limits);
    out->steps_per_epoch = snug_loader_steps(source->rows, &out->options);
    if (out->steps_per_epoch < 1)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "%s: %lld rows are less than one batch of %lld, and --dataloader_drop_last drops it",
                         args->train_file, (long long)source->rows, (long long)out->options.batch_size);
    const double steps = ceil(args->num_train_epochs * (double)out->steps_per_epoch - 1e-9);
    out->max_steps = args->max_steps > 0 ? args->max_steps : steps < 1 ? 1 : (int64_t)steps;
    out->epochs = (out->max_steps + out->steps_per_epoch - 1) / out->steps_per_epoch;
    RETURN_IF_ERROR(
        snug_loader_limits(args->ctx, source->dataset, &out->options, out->epochs, out->max_steps, &out->limits));
    if (source->reference) fit_rows(source->dataset, &out->limits);
    return SNUG_OK;
}

/* Its batches are steps of new tokens. */
static struct snug_data_pipeline generation_pipeline(const struct snug_generation_setup *g) {
    struct snug_loader_limits limits = {
        .sequences = g->rows, .tokens = g->tokens, .rows = g->rows, .longest = g->longest};
    snug_sizes_add(&limits.sizes, g->rows);
    snug_sizes_add(&limits.sizes, g->tokens);
    return (struct snug_data_pipeline){.options = {.batch_size = g->rows, .accumulation = 1, .ranks = 1},
                                       .limits = limits};
}

snug_status snug_data_pipeline_plan(const struct snug_setup *setup, const struct snug_args *args, enum snug_role role,
                                    struct snug_data_pipeline *out) {
    if (role == SNUG_ROLE_GENERATION) {
        *out = generation_pipeline(&setup->generation);
        return SNUG_OK;
    }
    RETURN_IF_ERROR(plan_batches(setup, args, role, out));
    out->load = load_of(setup, role == SNUG_ROLE_TRAINING ? &setup->train : &setup->eval, out);
    return SNUG_OK;
}

/* ---- methods -------------------------------------------------------------------------------------------------- */

static snug_status choose_methods(const struct snug_setup *setup, const struct snug_args *args,
                                  struct snug_run_plan *plan) {
    const int64_t layers = setup->config.num_hidden_layers;
    RETURN_IF_ERROR(snug_optimizer_parse(args->ctx, args->optim, args->optim_args, args->adam_beta1, args->adam_beta2,
                                         args->adam_epsilon, args->weight_decay, &plan->optimizer));
    const struct snug_backend *backend = setup->backend;
    plan->offload = backend->copying;
    plan->offload_dir = snug_args_offload_dir(args, snug_backend_is_device(backend));
    plan->offload.reads_rows &= !plan->offload_dir; /* from host memory */
    RETURN_IF_ERROR(snug_args_offload(args, &plan->offload.classes));
    if (args->to_host && !snug_backend_is_device(backend)) plan->offload.classes = 0;
    plan->offload.resident = 1 - args->offload_ratio;
    plan->offload.on_host = args->offload_update;
    if (args->offload_update > 0 && !backend->updates_on_host)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--offload_update %g needs a GPU: on a CPU the host updates all weights anyway",
                         args->offload_update);
    plan->weights = strcmp(args->dtype, "bfloat16") == 0 ? SNUG_BF16 : SNUG_F32;
    if (snug_setup_is_inference(setup) && args->bf16_full_eval) plan->weights = SNUG_BF16;
    if (snug_setup_is_inference(setup) && args->fp16_full_eval) plan->weights = SNUG_F16;
    RETURN_IF_ERROR(snug_alloc(args->ctx, (size_t)layers, sizeof *plan->recompute, (void **)&plan->recompute));
    return snug_args_recompute(args, layers, plan->recompute);
}

/* ---- programs and plan ---------------------------------------------------------------------------------------- */

static enum snug_dtype compute_type(const struct snug_setup *setup, const struct snug_args *args) {
    if (snug_setup_is_inference(setup) && args->fp16_full_eval) return SNUG_F16;
    if (!args->bf16 && !(snug_setup_is_inference(setup) && args->bf16_full_eval))
        return args->fp16 ? SNUG_F16 : SNUG_F32;
    if (setup->backend != snug_backend_cpu() || snug_backend_cpu_fast_bf16()) return SNUG_BF16;
    snug_log(
        args->ctx, SNUG_LOG_WARNING,
        "--%s: this CPU has no AMX-BF16, AVX512-BF16 or BFDOT (ARM), so bf16 matmuls would be slower than fp32: using "
        "fp32",
        args->bf16 ? "bf16" : "bf16_full_eval");
    return SNUG_F32;
}

static snug_status check_host_updates(const struct snug_run_plan *plan, const struct snug_program *program) {
    bool any = plan->offload.on_host == 0;
    for (size_t i = 0; i < program->op_count; i++) any |= program->ops[i].on_host;
    if (any) return SNUG_OK;
    return snug_fail(program->ctx, SNUG_E_USAGE,
                     "--offload_update %g: there is no weight that the host could update: small weights are not "
                     "offloaded, Adafactor is updated by the GPU alone, and a weight is updated as a whole; use a "
                     "larger fraction, or leave it out",
                     plan->offload.on_host);
}

/* A backend may lack operations of some methods, or sizes of some models. snug_device_check() refuses flags of these
   methods before anything is read; this is the complete check. */
static snug_status check_operations(const struct snug_setup *setup, const struct snug_program *program) {
    const struct snug_backend *backend = setup->backend;
    for (size_t i = 0; i < program->op_count; i++) {
        if (!backend->ops[program->ops[i].kind])
            return snug_fail(
                program->ctx, SNUG_E_UNSUPPORTED,
                "this run needs the operation %s, which the backend %s does not support yet: use --device cpu",
                snug_op_name(program->ops[i].kind), backend->name);
        if (backend->supports) RETURN_IF_ERROR(backend->supports(program, &program->ops[i]));
    }
    return SNUG_OK;
}

/* Lazy updates look up rows in tensors that must be in the arena. */
static bool may_update_lazily(const struct snug_setup *setup, const struct snug_args *args,
                              const struct snug_run_plan *plan) {
    const unsigned classes_of_rows =
        1u << SNUG_MEMORY_WEIGHTS | 1u << SNUG_MEMORY_GRADIENTS | 1u << SNUG_MEMORY_OPTIMIZER;
    /* Rows that other ranks have read would be missing in the index: several ranks sum whole gradients. */
    return snug_args_ranks(args) == 1 && setup->backend->lazy_rows && !(plan->offload.classes & classes_of_rows);
}

/* The most vectors of a step that has a loss over them. */
static int64_t step_vectors(const struct snug_setup *setup, const struct snug_data_pipeline *pipeline) {
    const int64_t rows = pipeline->options.batch_size * pipeline->options.accumulation;
    const int64_t texts = pipeline->options.texts ? pipeline->options.texts : 1;
    return texts * (setup->train.rows ? snug_min(rows, setup->train.rows) : rows);
}

static snug_status build_program(const struct snug_setup *setup, const struct snug_args *args,
                                 const struct snug_run_plan *plan, struct snug_planned_program *planned) {
    const bool training = planned->role == SNUG_ROLE_TRAINING;
    const struct snug_data_pipeline *pipeline = &planned->pipeline;
    struct snug_program *program = &planned->program;
    snug_program_init(program, args->ctx);
    program->compute = compute_type(setup, args);
    program->tf32 = args->tf32;
    program->to_file = plan->offload_dir != NULL;
    program->untrained = !setup->trains;
    program->weighs_classes = setup->class_weights != NULL;
    program->longest = pipeline->limits.longest;
    program->capacity[SNUG_EXTENT_TOKENS] = pipeline->limits.tokens;
    program->capacity[SNUG_EXTENT_SEQUENCES] = pipeline->limits.sequences;
    program->capacity[SNUG_EXTENT_ROWS] = pipeline->limits.rows;
    if (planned->role == SNUG_ROLE_GENERATION) {
        program->cache_pages = setup->generation.pages;
        program->top_count = setup->generation.top;
    }
    program->low_logits = setup->backend->low_logits;
    const int64_t positions = setup->backend->loss_positions / (program->low_logits && !training ? 2 : 1);
    const struct snug_task_info *task = snug_setup_task(setup);
    const bool divides = snug_task_is_per_token(task) && task->head != SNUG_HEAD_SPAN; /* whose loss is of sequences */
    if (!program->cache_pages && divides && pipeline->limits.rows > positions)
        program->capacity[SNUG_EXTENT_ROWS] = positions;
    program->capacity[SNUG_EXTENT_STEP] = training ? step_vectors(setup, pipeline) : 0;
    RETURN_IF_ERROR(snug_setup_build(setup, args, &setup->config, training, program));
    const struct snug_methods methods = {.optimizer = training ? &plan->optimizer : NULL,
                                         .weights = plan->weights,
                                         .recompute = plan->recompute,
                                         .update_in_backward = args->update_in_backward,
                                         .clips = args->max_grad_norm > 0,
                                         .accumulates = snug_args_micro_batches(args) > 1,
                                         .micro_batches = snug_loader_share(&pipeline->options),
                                         .ranks = snug_args_ranks(args),
                                         .rank = snug_group_rank(args->group),
                                         .zero_stage = (int)args->zero_stage,
                                         .lazy_steps = may_update_lazily(setup, args, plan) ? LAZY_STEPS : 0,
                                         .offload = plan->offload};
    RETURN_IF_ERROR(snug_stages(program, &methods));
    if (methods.optimizer) RETURN_IF_ERROR(check_host_updates(plan, program));
    return check_operations(setup, program);
}

/* Bytes that an evaluation copies from a device at a time. Logits of a vocabulary come in pieces. */
static int64_t plan_outputs(const struct snug_setup *setup, const struct snug_program *program,
                            struct snug_run_plan *plan) {
    const int64_t rows = program->capacity[SNUG_EXTENT_ROWS], row = snug_setup_classes(setup) * (int64_t)sizeof(float);
    const int64_t texts = setup->eval.dataset ? snug_dataset_texts(setup->eval.dataset) : 0; /* of a row: together */
    const int64_t pieces = (OUTPUT_BYTES + row - 1) / row, most = texts ? (pieces / texts + 1) * texts : pieces;
    plan->logits_offset = plan->output_rows = 0;
    if (!snug_backend_is_device(setup->backend)) return 0;
    plan->logits_offset = (rows * (int64_t)sizeof(int32_t) + 255) / 256 * 256;
    if (snug_setup_reads_logits(setup)) plan->output_rows = rows < most ? rows : most;
    return plan->logits_offset + plan->output_rows * row;
}

static int64_t plan_collected(const struct snug_setup *setup, const struct snug_args *args,
                              const struct snug_planned_program *planned, struct snug_run_plan *plan, int64_t offset) {
    const int64_t ranks = snug_args_ranks(args), logits = ranks > 1 ? snug_setup_classes(setup) : 0;
    const int64_t lists = ranks > 1 && snug_group_rank(args->group) == 0 ? ranks + 1 : 1;
    plan->collected_offset = (offset + 7) / 8 * 8;
    plan->collected_rows = 0;
    if (!snug_setup_predicts(setup)) return offset;
    plan->collected_rows = ranks > 1 ? planned->pipeline.limits.rows : planned->program.capacity[SNUG_EXTENT_ROWS];
    return plan->collected_offset +
           lists * plan->collected_rows * ((int64_t)sizeof(int64_t) + logits * (int64_t)sizeof(float));
}

/* Finds the layout by find: snug_stage_place() or snug_find_least_layout(). */
static snug_status find_layout(const struct snug_setup *setup, const struct snug_args *args, struct snug_run_plan *plan,
                               typeof(snug_stage_place) *find) {
    struct snug_program *placed[SNUG_ROLE_COUNT];
    const struct snug_metric_accumulator_options metrics = snug_setup_metrics(setup);
    int64_t batch = 0, losses = 0, function = 0;
    for (int i = 0; i < plan->count; i++) {
        struct snug_planned_program *planned = &plan->programs[i];
        const struct snug_data_pipeline *pipeline = &planned->pipeline;
        placed[i] = &planned->program;
        planned->loader_bytes = planned->role == SNUG_ROLE_GENERATION
                                    ? snug_decoding_bytes(&planned->program, setup->backend)
                                    : snug_loader_bytes(&pipeline->limits, &pipeline->options);
        batch += planned->loader_bytes;
        if (planned->role == SNUG_ROLE_TRAINING)
            losses =
                snug_loader_share(&pipeline->options) * snug_step_results(&planned->program) * (int64_t)sizeof(float);
        if (planned->role != SNUG_ROLE_EVALUATION) continue;
        plan->metric_bytes = snug_metric_accumulator_bytes(&metrics);
        function = plan->metric_bytes + plan_outputs(setup, &planned->program, plan);
        function = plan_collected(setup, args, planned, plan, function);
    }
    plan->losses_offset = batch;
    return find(args->ctx, placed, plan->count, setup->backend, setup->threads, batch + losses, function,
                &plan->layout);
}

static snug_status build_programs(const struct snug_setup *setup, const struct snug_args *args,
                                  const struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT],
                                  struct snug_run_plan *out) {
    const bool has[SNUG_ROLE_COUNT] = {[SNUG_ROLE_TRAINING] = setup->trains,
                                       [SNUG_ROLE_EVALUATION] = setup->evaluates,
                                       [SNUG_ROLE_GENERATION] =
                                           snug_setup_generates(setup) || snug_setup_answers(setup)};
    *out = (struct snug_run_plan){0};
    RETURN_IF_ERROR(choose_methods(setup, args, out));
    RETURN_IF_ERROR(snug_alloc(args->ctx, SNUG_ROLE_COUNT, sizeof *out->programs, (void **)&out->programs));
    for (int role = 0; role < SNUG_ROLE_COUNT; role++) {
        if (!has[role]) continue;
        struct snug_planned_program *planned = &out->programs[out->count++];
        planned->role = (enum snug_role)role;
        planned->pipeline = pipelines[role];
        RETURN_IF_ERROR(build_program(setup, args, out, planned));
    }
    return SNUG_OK;
}

snug_status snug_run_plan_place(const struct snug_setup *setup, const struct snug_args *args,
                                struct snug_run_plan *plan) {
    return find_layout(setup, args, plan, snug_stage_place);
}

snug_status snug_run_plan_build(const struct snug_setup *setup, const struct snug_args *args,
                                const struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT], struct snug_run_plan *out) {
    RETURN_IF_ERROR(build_programs(setup, args, pipelines, out));
    return snug_run_plan_place(setup, args, out);
}

snug_status snug_run_plan_build_least(const struct snug_setup *setup, const struct snug_args *args,
                                      const struct snug_data_pipeline pipelines[SNUG_ROLE_COUNT],
                                      struct snug_run_plan *out) {
    RETURN_IF_ERROR(build_programs(setup, args, pipelines, out));
    return find_layout(setup, args, out, snug_find_least_layout);
}

void snug_run_plan_free(struct snug_run_plan *plan) {
    for (int i = 0; i < plan->count; i++) snug_program_free(&plan->programs[i].program);
    free(plan->programs);
    free(plan->recompute);
    *plan = (struct snug_run_plan){0};
}

snug_status snug_run_plan_step(const struct snug_run_plan *plan, const struct snug_rates *rates,
                               struct snug_estimate *out) {
    const struct snug_planned_program *training = snug_run_plan_find(plan, SNUG_ROLE_TRAINING);
    struct snug_step_estimate step;
    RETURN_IF_ERROR(snug_estimate_parts(rates, &training->program, &training->pipeline.load, &step));
    *out = step.total;
    return SNUG_OK;
}

const char *snug_precision_text(enum snug_dtype compute, bool tf32, enum snug_dtype weights) {
    if (compute == SNUG_F16) return "fp16 with fp32 masters and loss scaling";
    if (compute == SNUG_BF16) return weights == SNUG_BF16 ? "bf16 with bf16 weights" : "bf16 with fp32 masters";
    if (tf32) return weights == SNUG_BF16 ? "TF32 with bf16 weights" : "TF32";
    return weights == SNUG_BF16 ? "fp32 with bf16 weights" : "fp32";
}

struct snug_quantized_sum snug_quantized_sum_of(const struct snug_program *program) {
    struct snug_quantized_sum sum = {0};
    int64_t whole = 0; /* bytes, on all ranks */
    for (size_t i = 1; i < program->tensor_count; i++) {
        const struct snug_tensor *t = &program->tensors[i];
        if (!t->quantized.type || !t->persistent) continue;
        sum.form = t->quantized;
        sum.parameters += t->rows * t->quantized.rows * t->quantized.cols;
        sum.bytes += t->bytes;
        whole += t->rows * t->cols;
    }
    for (size_t i = 0; i < program->op_count; i++) {
        const int64_t bytes = program->tensors[program->ops[i].dequantize.q].bytes;
        if (program->ops[i].kind == SNUG_OP_DEQUANTIZE && bytes > sum.values) sum.values = bytes;
    }
    if (sum.parameters) sum.bits = 8 * (double)whole / (double)sum.parameters;
    return sum;
}

void snug_quantized_text(const struct snug_quantized_sum *sum, char text[192]) {
    snprintf(text, 192, "%.1f M parameters as %s codes, %.2f bits each: %.1f MiB; a matmul's values take %.1f MiB",
             (double)sum->parameters / 1e6, sum->form.type == SNUG_CODES_NF4 ? "NF4" : "FP4", sum->bits,
             (double)sum->bytes / 0x1p20, (double)sum->values / 0x1p20);
}
