/* SPDX-License-Identifier: Apache-2.0 */
#include "train/job.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/build.h"
#include "model/weights.h"
#include "train/device.h"
#include "train/fit.h"
#include "train/metrics.h"
#include "train/threads.h"

enum {
    WAITING_STEPS = 256,    /* all rows of a table are updated this often at least: once costs about one whole update */
    OFFLOAD_AHEAD = 1,      /* the product before hides a copy where it can be hidden at all */
    OFFLOAD_PART = 1 << 18, /* 1 MiB in fp32: long enough for a disk */
};

static bool is_dummy(const char *path) { return strncmp(path, "dummy:", 6) == 0; }

/* ---- model and tokenizer -------------------------------------------------------------------------------------- */

int snug_args_threads(const struct snug_args *args) {
    cpu_set_t set;
    if (args->threads > 0) return (int)args->threads;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Notes a file or folder that the job reads: the folder, links followed, and who may read it. */
static void note_source(struct snug_job *job, const char *path) {
    struct stat info;
    bool known = false;
    char *folder = realpath(path, NULL);
    if (folder && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) *strrchr(folder, '/') = '\0';
    if (folder && stat(*folder ? folder : "/", &info) == 0) {
        for (int i = 0; i < job->source_count; i++)
            known |= job->sources[i].device == info.st_dev && job->sources[i].inode == info.st_ino;
        if (!known && job->source_count < SNUG_SOURCES)
            job->sources[job->source_count++] = (struct snug_source){info.st_dev, info.st_ino};
    }
    free(folder);
    const mode_t readable = snug_readable_by(path);
    if (readable != 0044) job->mode &= 0600 | readable;
}

/* A folder of a model or tokenizer, and its files, which may be links to other folders. */
static void note_folder(struct snug_job *job, const char *folder) {
    static const char *const ends[] = {".json", ".txt", ".safetensors"};
    note_source(job, folder);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *end = strrchr(entry->d_name, '.');
        char *path;
        for (size_t i = 0; end && i < sizeof ends / sizeof *ends; i++) {
            if (strcmp(end, ends[i]) != 0 || snug_path_join(job->ctx, &path, folder, entry->d_name) != SNUG_OK)
                continue;
            note_source(job, path);
            free(path);
        }
    }
    if (entries) closedir(entries);
}

static snug_status open_model(struct snug_job *job, const char *name) {
    char *folder;
    RETURN_IF_ERROR(snug_model_locate(job->ctx, name, &folder));
    const snug_status status = snug_folder_open(job->ctx, NULL, folder, &job->model);
    if (status == SNUG_OK) note_folder(job, folder);
    free(folder);
    return status;
}

static snug_status find_model(struct snug_job *job) {
    const struct snug_args *args = job->args;
    const char *model = args->model_name_or_path, *config = args->config_name ? args->config_name : model;
    if (job->command == SNUG_COMMAND_PLAN) return snug_config_find(job->ctx, config, &job->config);
    if (model) RETURN_IF_ERROR(open_model(job, model));
    RETURN_IF_ERROR(snug_config_find(job->ctx, args->config_name ? args->config_name : job->model.path, &job->config));
    if (args->config_name) note_source(job, args->config_name);
    return model ? snug_weights_look(job->ctx, &job->model) : SNUG_OK; /* before the data is read */
}

/* Whether some file needs tokens; dummy data is made of ids. */
static const char *first_text_file(const struct snug_job *job) {
    const struct snug_args *args = job->args;
    const bool training = job->command == SNUG_COMMAND_TRAIN || job->command == SNUG_COMMAND_PLAN;
    const char *files[] = {training ? args->train_file : NULL,
                           job->command == SNUG_COMMAND_PREDICT ? NULL : args->validation_file,
                           job->command == SNUG_COMMAND_PREDICT ? args->test_file : NULL};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] && !is_dummy(files[i])) return files[i];
    return NULL;
}

static snug_status open_tokenizer(struct snug_job *job) {
    const char *file = first_text_file(job);
    const char *name = job->args->tokenizer_name ? job->args->tokenizer_name : job->args->model_name_or_path;
    if (!file) return SNUG_OK;
    if (!name)
        return snug_fail(job->ctx, SNUG_E_USAGE, "%s holds text, and there is no tokenizer: give --tokenizer_name",
                         file);
    RETURN_IF_ERROR(snug_model_locate(job->ctx, name, &job->tokenizer_folder));
    RETURN_IF_ERROR(snug_tokenizer_load(job->ctx, job->tokenizer_folder, &job->tokenizer));
    note_folder(job, job->tokenizer_folder);
    const int64_t vocabulary = snug_tokenizer_vocab_size(job->tokenizer);
    if (vocabulary > job->config.vocab_size)
        return snug_fail(job->ctx, SNUG_E_INPUT,
                         "tokenizer %s has %lld tokens, the model's vocab_size is %lld: they do not belong together",
                         job->tokenizer_folder, (long long)vocabulary, (long long)job->config.vocab_size);
    return SNUG_OK;
}

/* ---- data ----------------------------------------------------------------------------------------------------- */

static void choose_length(struct snug_job *job) {
    job->max_length = job->args->max_seq_length;
    if (job->max_length <= job->config.max_position_embeddings) return;
    job->max_length = job->config.max_position_embeddings;
    snug_log(job->ctx, SNUG_LOG_WARNING, "--max_seq_length %lld is more than the model's %lld positions: using %lld",
             (long long)job->args->max_seq_length, (long long)job->max_length, (long long)job->max_length);
}

static snug_status open_dataset(struct snug_job *job, const char *path, int64_t max_samples, bool need_labels,
                                struct snug_feed *feed) {
    const struct snug_args *args = job->args;
    const struct snug_dataset_options options = {.path = path,
                                                 .task = job->config.task,
                                                 .text_columns = args->text_column_names,
                                                 .label_column = args->label_column_name,
                                                 .need_labels = need_labels,
                                                 .line_by_line =
                                                     args->line_by_line || job->command == SNUG_COMMAND_PREDICT,
                                                 .max_length = job->max_length,
                                                 .max_samples = max_samples,
                                                 .strict = args->strict,
                                                 .overwrite_cache = args->overwrite_cache,
                                                 .threads = job->threads,
                                                 .seed = (uint64_t)args->seed,
                                                 .vocab_size = job->config.vocab_size};
    RETURN_IF_ERROR(snug_dataset_open(job->ctx, job->tokenizer, &options, &feed->dataset));
    if (!is_dummy(path)) note_source(job, path);
    feed->rows = snug_dataset_rows(feed->dataset);
    if (feed->rows > SNUG_ROWS_MOST)
        return snug_fail(job->ctx, SNUG_E_USAGE, "%s: %lld rows are too many to be planned: name at most %d", path,
                         (long long)feed->rows, (int)SNUG_ROWS_MOST);
    const int64_t longest = snug_dataset_longest(feed->dataset);
    if (longest > job->config.max_position_embeddings)
        return snug_fail(job->ctx, SNUG_E_INPUT, "%s: a row of %lld tokens is longer than the model's %lld positions",
                         path, (long long)longest, (long long)job->config.max_position_embeddings);
    if (snug_dataset_pairs(feed->dataset) && job->config.type_vocab_size < 2)
        return snug_fail(
            job->ctx, SNUG_E_INPUT,
            "%s holds pairs of texts, and the model tells no second one apart (type_vocab_size 1): name one "
            "column with --text_column_names",
            path);
    const int64_t truncated = snug_dataset_truncated(feed->dataset);
    if (truncated)
        snug_log(job->ctx, SNUG_LOG_INFO, "%s: %lld of %lld texts are longer than %lld tokens and were cut", path,
                 (long long)truncated, (long long)feed->rows, (long long)job->max_length);
    return SNUG_OK;
}

/* As run_glue.py: the data's classes, in the model's order if it has the same ones. */
static snug_status choose_labels(struct snug_job *job) {
    if (job->config.task == SNUG_TASK_MLM) return snug_config_set_task(job->ctx, &job->config, SNUG_TASK_MLM, NULL);
    if (!job->train.dataset)
        return snug_config_set_task(job->ctx, &job->config, SNUG_TASK_CLASSIFICATION, &job->config.labels);
    struct snug_labels labels;
    RETURN_IF_ERROR(snug_labels_of(job->ctx, job->train.dataset, job->args->do_regression, &labels));
    bool same;
    snug_status status = snug_labels_match(job->ctx, &job->config.labels, &labels, &same);
    const bool keep = same && job->config.has_label_names;
    if (status == SNUG_OK)
        status = snug_config_set_task(job->ctx, &job->config, SNUG_TASK_CLASSIFICATION,
                                      keep ? &job->config.labels : &labels);
    snug_labels_free(&labels);
    if (status == SNUG_OK) status = snug_config_check_size(job->ctx, &job->config, job->args->train_file);
    if (status != SNUG_OK) return status;
    if (job->args->label_smoothing_factor > 0 && job->config.labels.problem != SNUG_PROBLEM_SINGLE_LABEL)
        return snug_fail(job->ctx, SNUG_E_USAGE, "--label_smoothing_factor is for single labels; %s has %s",
                         job->args->train_file,
                         job->config.labels.problem == SNUG_PROBLEM_REGRESSION ? "real ones" : "several a row");
    return snug_dataset_bind_labels(job->ctx, job->train.dataset, &job->config.labels);
}

/* The task, from the arguments or the model's folder, and what goes with the other one only. */
static snug_status choose_task(struct snug_job *job, bool trains) {
    const struct snug_args *args = job->args;
    if (args->task) {
        job->config.task = strcmp(args->task, "mlm") == 0 ? SNUG_TASK_MLM : SNUG_TASK_CLASSIFICATION;
    } else if (trains) {
        job->config.task = SNUG_TASK_CLASSIFICATION;
    } else if (!job->config.has_head) {
        return snug_fail(
            job->ctx, SNUG_E_INPUT,
            "%s: its config names neither BertForSequenceClassification nor BertForMaskedLM: train it first, "
            "or say --task",
            job->model.path);
    }
    const char *only_mlm = args->line_by_line                          ? "line_by_line"
                           : snug_args_is_set(args, "mlm_probability") ? "mlm_probability"
                                                                       : NULL;
    if (job->config.task == SNUG_TASK_MLM || !only_mlm) return SNUG_OK;
    return snug_fail(job->ctx, SNUG_E_USAGE,
                     "--%s is for masked LM, and this is classification: leave it out, or say --task mlm", only_mlm);
}

/* While the problem is not decided yet, a metric of any of them will do. */
static snug_status find_best_metric(struct snug_job *job, bool decided) {
    const struct snug_args *args = job->args;
    const char *name = args->metric_for_best_model;
    char known[256] = "";
    int problem = decided ? job->config.labels.problem : SNUG_PROBLEM_SINGLE_LABEL;
    const int last = decided ? problem : SNUG_PROBLEM_REGRESSION;
    if (job->command != SNUG_COMMAND_TRAIN || !name || args->eval_strategy == SNUG_INTERVAL_NO) return SNUG_OK;
    for (; problem <= last; problem++) {
        job->best_metric = snug_metric_find(job->config.task, (enum snug_problem)problem, name);
        if (job->best_metric >= 0) return SNUG_OK;
        for (const char *const *next = snug_metric_names(job->config.task, (enum snug_problem)problem); *next; next++) {
            const size_t used = strlen(known);
            if (!strstr(known, *next)) snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", *next);
        }
    }
    return snug_fail(job->ctx, SNUG_E_USAGE, "--metric_for_best_model %s is none of this task's metrics: %s", name,
                     known);
}

static snug_status open_data(struct snug_job *job) {
    const struct snug_args *args = job->args;
    const bool trains = job->command == SNUG_COMMAND_TRAIN || job->command == SNUG_COMMAND_PLAN;
    RETURN_IF_ERROR(choose_task(job, trains));
    RETURN_IF_ERROR(find_best_metric(job, false));
    const bool labelled = job->config.task == SNUG_TASK_CLASSIFICATION;
    if (trains && args->train_file)
        RETURN_IF_ERROR(open_dataset(job, args->train_file, args->max_train_samples, labelled, &job->train));
    if (trains) RETURN_IF_ERROR(choose_labels(job));
    RETURN_IF_ERROR(find_best_metric(job, true));
    const char *eval_file = job->command == SNUG_COMMAND_PREDICT ? args->test_file : args->validation_file;
    const bool predicts = job->command == SNUG_COMMAND_PREDICT;
    if (eval_file) {
        RETURN_IF_ERROR(open_dataset(job, eval_file, predicts ? args->max_predict_samples : args->max_eval_samples,
                                     labelled && !predicts, &job->eval));
        if (labelled && !predicts)
            RETURN_IF_ERROR(snug_dataset_bind_labels(job->ctx, job->eval.dataset, &job->config.labels));
    }
    job->trains = trains;
    job->evaluates = eval_file != NULL;
    return SNUG_OK;
}

/* ---- batches and steps ---------------------------------------------------------------------------------------- */

static enum snug_sampling sampling_of(const struct snug_args *args) {
    if (strcmp(args->train_sampling_strategy, "group_by_length") == 0) return SNUG_SAMPLING_GROUP_BY_LENGTH;
    return strcmp(args->train_sampling_strategy, "sequential") == 0 ? SNUG_SAMPLING_SEQUENTIAL : SNUG_SAMPLING_RANDOM;
}

/* The mean micro-batch of an epoch, or the only one of a plan without data. */
static struct snug_load load_of(const struct snug_job *job, const struct snug_feed *feed) {
    const struct snug_loader_limits *limits = &feed->limits;
    struct snug_load load = {.tokens = (double)limits->tokens,
                             .sequences = (double)limits->sequences,
                             .pairs = (double)limits->tokens * (double)limits->longest,
                             .micro_batches = (double)feed->options.accumulation};
    if (feed->dataset) {
        const double batches = (double)snug_loader_batches(feed->rows, &feed->options);
        const double rows = feed->options.drop_last ? batches * (double)feed->options.batch_size : (double)feed->rows;
        const double share = rows / (double)feed->rows / batches;
        load.tokens = (double)snug_dataset_tokens(feed->dataset) * share;
        load.sequences = rows / batches;
        load.pairs = job->squared_lengths * share;
        load.micro_batches = batches / (double)snug_loader_steps(feed->rows, &feed->options);
    }
    load.rows = job->config.task == SNUG_TASK_MLM ? load.tokens * job->args->mlm_probability : load.sequences;
    return load;
}

static snug_status plan_feed(struct snug_job *job, struct snug_feed *feed, bool training) {
    const struct snug_args *args = job->args;
    feed->options = (struct snug_loader_options){
        .sampling = training ? sampling_of(args) : SNUG_SAMPLING_SEQUENTIAL,
        .seed = (uint64_t)(args->data_seed >= 0 ? args->data_seed : args->seed),
        .batch_size = training ? args->per_device_train_batch_size : args->per_device_eval_batch_size,
        .accumulation = training ? args->gradient_accumulation_steps : 1,
        .drop_last = training && args->dataloader_drop_last,
        .workers = (int)args->dataloader_num_workers,
        .prefetch = (int)args->dataloader_prefetch_factor,
        .threads = job->threads,
        .task = job->config.task,
        .problem = job->config.labels.problem,
        .labels = job->config.labels.count,
        .mlm_probability = args->mlm_probability,
        .fill_mask = job->command == SNUG_COMMAND_PREDICT,
        .tokenizer = job->tokenizer,
        .vocab_size = job->config.vocab_size,
    };
    if (!feed->dataset) { /* a plan without data: every batch full, every sequence as long as may be */
        const int64_t sequences = feed->options.batch_size, tokens = sequences * job->max_length;
        if (tokens > INT32_MAX)
            return snug_fail(job->ctx, SNUG_E_USAGE,
                             "a batch of %lld texts of %lld tokens is too large: make --per_device_train_batch_size or "
                             "--max_seq_length smaller",
                             (long long)sequences, (long long)job->max_length);
        feed->limits = (struct snug_loader_limits){.sequences = sequences,
                                                   .tokens = tokens,
                                                   .rows = job->config.task == SNUG_TASK_MLM ? tokens : sequences,
                                                   .longest = job->max_length};
        return SNUG_OK;
    }
    if (!training) return snug_loader_limits(job->ctx, feed->dataset, &feed->options, 1, 0, &feed->limits);
    job->steps_per_epoch = snug_loader_steps(feed->rows, &feed->options);
    if (job->steps_per_epoch < 1)
        return snug_fail(job->ctx, SNUG_E_USAGE,
                         "%s: %lld rows are less than one batch of %lld, and --dataloader_drop_last drops it",
                         args->train_file, (long long)feed->rows, (long long)feed->options.batch_size);
    const double steps = ceil(args->num_train_epochs * (double)job->steps_per_epoch - 1e-9);
    job->max_steps = args->max_steps > 0 ? args->max_steps : steps < 1 ? 1 : (int64_t)steps;
    job->epochs = (job->max_steps + job->steps_per_epoch - 1) / job->steps_per_epoch;
    return snug_loader_limits(job->ctx, feed->dataset, &feed->options, job->epochs, job->max_steps, &feed->limits);
}

/* What the plan of a training counts with, where that is not the run's own order. */
static void log_any_order(const struct snug_job *job) {
    const struct snug_loader_limits *limits = &job->train.limits;
    char first[80] = "";
    if (!limits->any_order) return;
    if (limits->first_epoch_tokens)
        snprintf(first, sizeof first, "; the largest batch of the first epoch has %lld tokens",
                 (long long)limits->first_epoch_tokens);
    snug_log(
        job->ctx, SNUG_LOG_INFO,
        "%s: the order of %lld epochs is too long to scan, so the plan counts with the largest batch of any order: the "
        "%lld longest rows, %lld tokens%s",
        job->args->train_file, (long long)job->epochs, (long long)limits->sequences, (long long)limits->tokens, first);
}

/* ---- methods -------------------------------------------------------------------------------------------------- */

/* As in Trainer, evaluations within a training have its types. */
static bool is_inference(const struct snug_job *job) {
    return job->command == SNUG_COMMAND_EVAL || job->command == SNUG_COMMAND_PREDICT;
}

static snug_status choose_methods(struct snug_job *job) {
    const struct snug_args *args = job->args;
    const int64_t layers = job->config.num_hidden_layers;
    RETURN_IF_ERROR(snug_optimizer_parse(job->ctx, args->optim, args->optim_args, args->adam_beta1, args->adam_beta2,
                                         args->adam_epsilon, args->weight_decay, &job->optimizer));
    job->offload = (struct snug_offload){.ahead = OFFLOAD_AHEAD, .part = OFFLOAD_PART};
    RETURN_IF_ERROR(snug_args_offload(args, &job->offload.classes));
    job->weights = strcmp(args->dtype, "bfloat16") == 0 ? SNUG_BF16 : SNUG_F32;
    if (is_inference(job) && args->bf16_full_eval) job->weights = SNUG_BF16;
    if (is_inference(job) && args->fp16_full_eval) job->weights = SNUG_F16;
    RETURN_IF_ERROR(snug_alloc(job->ctx, (size_t)layers, sizeof *job->recompute, (void **)&job->recompute));
    return snug_args_recompute(args, layers, job->recompute);
}

/* ---- programs and plan ---------------------------------------------------------------------------------------- */

static enum snug_dtype compute_type(const struct snug_job *job) {
    const struct snug_args *args = job->args;
    if (is_inference(job) && args->fp16_full_eval) return SNUG_F16;
    if (!args->bf16 && !(is_inference(job) && args->bf16_full_eval)) return args->fp16 ? SNUG_F16 : SNUG_F32;
    if (job->backend != snug_backend_cpu() || snug_backend_cpu_fast_bf16()) return SNUG_BF16;
    snug_log(job->ctx, SNUG_LOG_WARNING,
             "--%s: this CPU has neither AMX-BF16 nor AVX512-BF16, so bf16 products would be slower than fp32: using "
             "fp32",
             args->bf16 ? "bf16" : "bf16_full_eval");
    return SNUG_F32;
}

/* A backend may lack operations: those of methods that it does not have yet. snug_device_check() knows them by their
   flags, before anything is read; this one knows all. */
static snug_status check_operations(const struct snug_job *job, const struct snug_program *program) {
    for (size_t i = 0; i < program->op_count; i++)
        if (!job->backend->ops[program->ops[i].kind])
            return snug_fail(job->ctx, SNUG_E_UNSUPPORTED,
                             "this run needs the operation %s, which the backend %s does not do yet: use --device cpu",
                             snug_op_name(program->ops[i].kind), job->backend->name);
    return SNUG_OK;
}

/* Rows that wait are looked up in tensors that have to stand in the arena. */
static bool rows_may_wait(const struct snug_job *job) {
    const unsigned homes = 1u << SNUG_MEMORY_WEIGHTS | 1u << SNUG_MEMORY_GRADIENTS | 1u << SNUG_MEMORY_OPTIMIZER;
    return job->backend->ops[SNUG_OP_ADAM_ROWS] && !(job->offload.classes & homes);
}

static snug_status build_program(struct snug_job *job, const struct snug_feed *feed, bool training) {
    struct snug_program *program = &job->programs[job->program_count++];
    snug_program_init(program, job->ctx);
    program->compute = compute_type(job);
    program->tf32 = job->args->tf32;
    program->longest = feed->limits.longest;
    program->capacity[SNUG_EXTENT_TOKENS] = feed->limits.tokens;
    program->capacity[SNUG_EXTENT_SEQUENCES] = feed->limits.sequences;
    program->capacity[SNUG_EXTENT_ROWS] = feed->limits.rows;
    if (job->config.task == SNUG_TASK_MLM && feed->limits.rows > job->backend->head_rows)
        program->capacity[SNUG_EXTENT_ROWS] = job->backend->head_rows;
    RETURN_IF_ERROR(snug_build_bert(program, &job->config, training, job->args->label_smoothing_factor));
    const struct snug_methods methods = {.optimizer = training ? &job->optimizer : NULL,
                                         .weights = job->weights,
                                         .recompute = job->recompute,
                                         .update_in_backward = job->args->update_in_backward,
                                         .clips = job->args->max_grad_norm > 0,
                                         .accumulates = job->args->gradient_accumulation_steps > 1,
                                         .micro_batches = feed->options.accumulation,
                                         .waiting_steps = rows_may_wait(job) ? WAITING_STEPS : 0,
                                         .offload = job->offload};
    RETURN_IF_ERROR(snug_stages(program, &methods));
    return check_operations(job, program);
}

static snug_status place_programs(struct snug_job *job) {
    struct snug_program *placed[2] = {&job->programs[0], &job->programs[1]};
    int64_t batch = 0;
    struct snug_feed *feeds[2] = {job->trains ? &job->train : NULL, job->evaluates ? &job->eval : NULL};
    for (int i = 0; i < 2; i++)
        if (feeds[i]) batch += job->loader_bytes[i] = snug_loader_bytes(&feeds[i]->limits, &feeds[i]->options);
    job->losses_offset = batch;
    if (job->trains) batch += job->train.options.accumulation * (int64_t)sizeof(float);
    if (job->evaluates)
        job->meter_bytes =
            snug_meter_bytes(job->config.task, job->config.labels.problem, job->config.labels.count, job->eval.rows);
    return snug_stage_place(job->ctx, placed, job->program_count, job->backend, job->threads, batch, job->meter_bytes,
                            &job->layout);
}

int64_t snug_job_classes(const struct snug_job *job) {
    return job->config.task == SNUG_TASK_MLM ? job->config.vocab_size : job->config.labels.count;
}

int64_t snug_job_bytes(const struct snug_job *job, snug_memory_class memory_class) {
    const struct snug_layout *layout = &job->layout;
    const int64_t bytes = layout->bytes[memory_class], batch = layout->function_offset - layout->batch_offset;
    const bool device = snug_job_on_device(job);
    switch (memory_class) {
    case SNUG_MEMORY_BATCH: return device ? bytes - batch : bytes;
    case SNUG_MEMORY_FUNCTION: return device ? bytes - (layout->host - batch) : bytes;
    case SNUG_MEMORY_CONTEXT: return job->context_bytes;
    case SNUG_MEMORY_HOST: return job->host_bytes + (device ? layout->host : 0);
    default: return bytes;
    }
}

int64_t snug_job_total(const struct snug_job *job) {
    if (snug_job_on_device(job)) return job->layout.arena + job->context_bytes;
    return job->layout.total + job->context_bytes + job->host_bytes;
}

int64_t snug_job_place_bytes(const struct snug_job *job) {
    if (!snug_job_on_device(job)) return snug_machine_bytes();
    return job->meter.gpu.total > 0 ? job->meter.gpu.total : -1;
}

/* On a device with what the process holds of it already. */
int64_t snug_job_place_available(const struct snug_job *job) {
    return snug_job_on_device(job) ? job->backend->available() + job->opened_bytes : snug_available_bytes();
}

/* The class during whose turn the limit is passed, when they are laid one after the other. */
static snug_memory_class class_that_is_short(const struct snug_job *job, int64_t limit) {
    int64_t sum = job->context_bytes + (snug_job_on_device(job) ? 0 : job->host_bytes);
    int memory_class = 0;
    if (sum > limit) return SNUG_MEMORY_CONTEXT;
    for (; memory_class < SNUG_MEMORY_CONTEXT; memory_class++) {
        sum += snug_job_bytes(job, (snug_memory_class)memory_class);
        if (sum > limit) break;
    }
    return (snug_memory_class)memory_class;
}

static snug_status open_backend(struct snug_job *job) {
    for (int i = 0; i < job->program_count; i++)
        RETURN_IF_ERROR(job->backend->open(job->ctx, &job->programs[i], job->threads, &job->backend_state[i]));
    return SNUG_OK;
}

/* Whole mebibytes, so that two looks at the same program agree. */
static int64_t round_up_mib(int64_t bytes) { return bytes < 0 ? 0 : (bytes + (1 << 20) - 1) >> 20 << 20; }

/* On a device once: methods do not change what the driver holds. */
static snug_status measure_context(struct snug_job *job) {
    if (snug_job_on_device(job)) return job->context_bytes ? SNUG_OK : snug_device_measure(job);
    job->context_bytes = round_up_mib(job->own_bytes + job->backend->library(&job->programs[0], job->threads));
    return SNUG_OK;
}

/* Everything that methods change: programs and layout. */
static snug_status plan_programs(struct snug_job *job) {
    RETURN_IF_ERROR(choose_methods(job));
    if (job->trains) RETURN_IF_ERROR(build_program(job, &job->train, true));
    if (job->evaluates) RETURN_IF_ERROR(build_program(job, &job->eval, false));
    job->training = job->trains ? &job->programs[0] : NULL;
    job->evaluation = job->evaluates ? &job->programs[job->program_count - 1] : NULL;
    return place_programs(job);
}

void snug_job_drop_plan(struct snug_job *job) {
    for (int i = 0; i < 2; i++) {
        if (job->backend_state[i]) job->backend->close(job->backend_state[i]);
        job->backend_state[i] = NULL;
        snug_program_free(&job->programs[i]);
    }
    job->program_count = 0;
    free(job->recompute);
    job->recompute = NULL;
}

snug_status snug_job_plan_training(struct snug_job *job, const struct snug_args *args, struct snug_feed *feed) {
    struct snug_args *own = job->args;
    job->args = (struct snug_args *)args;
    const snug_status status = plan_feed(job, feed, true);
    job->args = own;
    if (status == SNUG_OK) feed->load = load_of(job, feed);
    return status;
}

snug_status snug_job_replan(const struct snug_job *job, struct snug_args *args, const struct snug_feed *train,
                            struct snug_job *out) {
    *out = *job;
    out->ctx = args->ctx;
    out->args = args;
    out->train = *train;
    out->program_count = 0;
    out->recompute = NULL;
    for (int i = 0; i < 2; i++) {
        out->programs[i] = (struct snug_program){0};
        out->backend_state[i] = NULL;
    }
    RETURN_IF_ERROR(plan_programs(out));
    return measure_context(out);
}

/* The plan of the arguments as they are now, in the place of the one before. */
static snug_status plan_anew(struct snug_job *job) {
    snug_job_drop_plan(job);
    RETURN_IF_ERROR(snug_job_plan_training(job, job->args, &job->train));
    RETURN_IF_ERROR(plan_programs(job));
    RETURN_IF_ERROR(snug_config_set_dtype(job->ctx, &job->config, job->weights));
    RETURN_IF_ERROR(open_backend(job));
    return measure_context(job);
}

/* Bytes that the run may take: the budget, or what the machine has left beside it; *over tells whether it takes more.
 */
static snug_status find_limit(const struct snug_job *job, int64_t *limit, bool *budgeted, bool *over) {
    int64_t budget;
    RETURN_IF_ERROR(snug_args_budget(job->args, &budget));
    const int64_t total = snug_job_total(job);
    int64_t available = snug_available_bytes();
    if (available >= 0 && job->layout.spool && snug_spool_is_memory(snug_args_offload_dir(job->args)))
        available = available > job->layout.spool ? available - job->layout.spool : 0;
    /* What is resident already is not available any more, and need not be. */
    int64_t machine = available < 0 ? INT64_MAX : available + snug_resident_bytes();
    if (snug_job_on_device(job)) machine = snug_job_place_available(job);
    *budgeted = budget >= 0 && (total > budget || budget < machine);
    *limit = *budgeted ? budget : machine;
    *over = total > *limit && (*budgeted || job->args->fit || job->command != SNUG_COMMAND_PLAN);
    return SNUG_OK;
}

static snug_status search_fit(struct snug_job *job, int64_t limit) {
    struct snug_rates rates = {0};
    RETURN_IF_ERROR(snug_alloc(job->ctx, 1, sizeof *job->fit, (void **)&job->fit));
    if (snug_job_total(job) > limit) RETURN_IF_ERROR(snug_rates_open(job->ctx, job->backend, job->threads, &rates));
    const snug_status status = snug_fit_search(job, &rates, limit, job->fit);
    snug_rates_free(&rates);
    return status;
}

/* What would make it less. */
static snug_status advise(const struct snug_job *job, char **advice) {
    if (!job->fit)
        return snug_format(job->ctx, advice, "a smaller --per_device_%s_batch_size needs less",
                           job->trains ? "train" : "eval");
    if (!job->fit->fits) return snug_fit_sentence(job->ctx, job->fit, advice);
    return snug_format(job->ctx, advice, "--fit would add %s, which takes %.1f MiB", job->fit->chosen.flags,
                       (double)job->fit->chosen.total / 0x1p20);
}

static snug_status refuse(struct snug_job *job, int64_t limit, bool budgeted) {
    const snug_memory_class which = class_that_is_short(job, limit);
    const int64_t total = snug_job_total(job);
    const bool device = snug_job_on_device(job);
    char *advice = NULL, *others = NULL;
    snug_status status = advise(job, &advice);
    if (status == SNUG_OK && device && !budgeted) status = snug_gpu_meter_others(&job->meter, &others);
    if (status == SNUG_OK)
        status = snug_fail(
            job->ctx, SNUG_E_DOES_NOT_FIT,
            "this run needs %.1f MiB%s%s, %lld bytes more than %s %.1f MiB; it is short at %s (%.1f MiB); %s%s%s",
            (double)total / 0x1p20, device ? " of " : "", device ? job->meter.gpu.name : "", (long long)(total - limit),
            budgeted ? "--memory_budget of" : "the available", (double)limit / 0x1p20, snug_memory_class_name(which),
            (double)snug_job_bytes(job, which) / 0x1p20, advice, others && *others ? "; other processes on it: " : "",
            others ? others : "");
    free(advice);
    free(others);
    return status;
}

/* Takes the mix that was found, for this run and all that looks at its arguments. */
static snug_status apply_fit(struct snug_job *job) {
    char *sentence;
    RETURN_IF_ERROR(snug_fit_sentence(job->ctx, job->fit, &sentence));
    snug_log(job->ctx, SNUG_LOG_INFO, "--fit: %s", sentence);
    free(sentence);
    if (!*job->fit->chosen.flags) return SNUG_OK;
    RETURN_IF_ERROR(snug_fit_give(job->args, &job->fit->chosen));
    job->fit->applied = true;
    return plan_anew(job);
}

static snug_status check_fit(struct snug_job *job) {
    int64_t limit;
    bool budgeted, over;
    RETURN_IF_ERROR(find_limit(job, &limit, &budgeted, &over));
    const bool device = snug_job_on_device(job);
    if (!device && job->trains && (over || job->args->fit)) RETURN_IF_ERROR(search_fit(job, limit));
    if (job->fit && job->fit->fits && job->args->fit) {
        RETURN_IF_ERROR(apply_fit(job));
        over = snug_job_total(job) > limit;
    }
    return over ? refuse(job, limit, budgeted) : SNUG_OK;
}

snug_status snug_job_longest(const struct snug_args *args, int64_t limit, int64_t *longest) {
    struct snug_config config;
    const char *name = args->config_name ? args->config_name : args->model_name_or_path;
    RETURN_IF_ERROR(snug_config_find(args->ctx, name, &config));
    *longest = limit < config.max_position_embeddings ? limit : config.max_position_embeddings;
    snug_config_free(&config);
    return SNUG_OK;
}

snug_status snug_job_open(struct snug_args *args, enum snug_command command, struct snug_job *job) {
    *job = (struct snug_job){.ctx = args->ctx, .args = args, .command = command, .mode = 0666};
    snug_clear_error(job->ctx);
    static const char *const names[] = {"train", "eval", "predict", "plan"};
    RETURN_IF_ERROR(snug_args_check(args, names[command]));
    job->threads = snug_args_threads(args);
    RETURN_IF_ERROR(snug_threads_check(job->ctx, job->threads));
    RETURN_IF_ERROR(snug_device_choose(job));
    RETURN_IF_ERROR(snug_device_check(job));
    const int64_t before = snug_resident_bytes();
    RETURN_IF_ERROR(find_model(job));
    RETURN_IF_ERROR(open_tokenizer(job));
    choose_length(job);
    RETURN_IF_ERROR(open_data(job));
    if (job->train.dataset) job->squared_lengths = snug_dataset_squared_lengths(job->train.dataset);
    if (job->trains) RETURN_IF_ERROR(snug_job_plan_training(job, args, &job->train));
    log_any_order(job);
    if (job->evaluates) RETURN_IF_ERROR(plan_feed(job, &job->eval, false));
    RETURN_IF_ERROR(plan_programs(job));
    RETURN_IF_ERROR(snug_config_set_dtype(job->ctx, &job->config, job->weights));
    const int64_t after = snug_resident_bytes();
    RETURN_IF_ERROR(open_backend(job));
    job->host_bytes = round_up_mib(after - before);
    job->own_bytes = before + snug_resident_bytes() - after;
    RETURN_IF_ERROR(measure_context(job));
    return check_fit(job);
}

void snug_job_close(struct snug_job *job) {
    snug_job_drop_plan(job);
    snug_gpu_meter_close(&job->meter);
    snug_dataset_close(job->train.dataset);
    snug_dataset_close(job->eval.dataset);
    snug_tokenizer_free(job->tokenizer);
    snug_config_free(&job->config);
    free(job->fit);
    snug_folder_close(&job->model);
    free(job->tokenizer_folder);
    *job = (struct snug_job){0};
}
