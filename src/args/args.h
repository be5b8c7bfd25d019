/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments as one struct. One table (args_table.c) defines how they are parsed, and --help. */
#ifndef SNUG_ARGS_ARGS_H
#define SNUG_ARGS_ARGS_H

#include <math.h>

#include "core/context.h"
#include "data/classes.h"
#include "dist/process_group.h"
#include "hub/cache.h"
#include "plan/stages.h"

/* Other names that set another argument's value. */
enum snug_conversion {
    SNUG_CONVERT_GROUP_BY_LENGTH,
    SNUG_CONVERT_WARMUP_RATIO,
    SNUG_CONVERT_FSDP,
};
enum { SNUG_CONVERSIONS = SNUG_CONVERT_FSDP + 1 };

enum snug_interval { SNUG_INTERVAL_NO, SNUG_INTERVAL_STEPS, SNUG_INTERVAL_EPOCH, SNUG_INTERVAL_BEST };

/* Strings are owned, NULL where unset. Names are Hugging Face's; see the table for meaning and default. */
struct snug_args {
    snug_context *ctx;

    /* model */
    char *model_name_or_path, *config_name, *tokenizer_name;
    char *args_from;                  /* a file of arguments, which are set already */
    char *run_folder;                 /* NULL, or the folder that --args_from named; output_dir was not set since */
    char *cache_dir, *model_revision; /* of names in the Hugging Face cache */
    char *task;                       /* a name of SNUG_TASK_NAMES, or NULL: derived from the data and the folder */
    bool load_in_4bit, bnb_4bit_use_double_quant;
    char *bnb_4bit_quant_type, *bnb_4bit_compute_dtype; /* "nf4" or "fp4"; "bfloat16", "float16" or "float32" */
    char *llm_int8_skip_modules;                        /* NULL: none */
    char *merge_into;                                   /* "dequantized" or "original" */
    char *dtype; /* "float32", "bfloat16" or "auto": the type of stored weights */
    /* data */
    char *train_file, *validation_file, *test_file;
    char *queries_file, *corpus_file, *relevance_file; /* of a retrieval, instead of validation_file */
    char *prompts;                                     /* of embeddings' columns: a text, or a JSON object */
    char *query_prompt, *corpus_prompt;                /* NULL: the model's */
    char *text, *text_pair;                            /* predict: instead of test_file */
    char *prompt;                                      /* generate: instead of test_file */
    char *keep_columns;                                /* predict: names, or "all" */
    bool return_all_scores;
    int64_t top_k;
    char *data_format; /* NULL: by the name */
    char *text_column_names, *text_column_delimiter, *text_column_name, *text_pair_column_name, *label_column_name,
        *label_separator, *missing_label_values;
    char *do_regression;                                                              /* NULL: the labels decide */
    int64_t max_seq_length, max_train_samples, max_eval_samples, max_predict_samples; /* -1: all */
    int64_t validation_split_percentage;                                              /* 0: none */
    int64_t block_size;                                                               /* 0: not given */
    bool completion_only_loss, assistant_only_loss;
    char *chat_template_path, *chat_template_date; /* NULL: the tokenizer's; today */
    bool overwrite_cache, line_by_line, whole_word_mask, strict, ignore_mismatched_sizes;
    bool class_metrics;
    double threshold; /* of multi-label; 0: above one half */
    bool label_all_tokens, return_entity_level_metrics;
    char *query, *ranking_loss;                         /* reranking */
    int64_t doc_stride, n_best_size, max_answer_length; /* question answering */
    double null_score_diff_threshold;
    bool version_2_with_negative;
    double mlm_probability;
    /* output */
    char *output_dir, *logging_dir, *report_to, *resume_from_checkpoint, *log_level, *max_shard_size;
    bool overwrite_output_dir, disable_tqdm, json, csv_escape_formulas, decode, skip_special_tokens, chat;
    char *format, *outtype, *output_file; /* of export; embed has output_file, too */
    char *prompt_name;                    /* embed: of the model's prompts */
    bool similarity, normalize_embeddings;
    int64_t truncate_dim; /* 0: whole vectors */
    bool adapter_only;
    /* generation */
    int64_t max_new_tokens, min_new_tokens, num_beams, num_return_sequences, no_repeat_ngram_size;
    double length_penalty, temperature, top_p, min_p, repetition_penalty;
    bool do_sample, plan_only, predict_with_generate;
    int64_t generation_max_length; /* 0: not given */
    char *early_stopping;          /* "False", "True" or "never" */
    char *stop_strings;            /* a text or a JSON list of texts, or NULL */
    /* training */
    int64_t per_device_train_tokens; /* of a micro-batch, instead of rows; 0: rows */
    int64_t per_device_train_batch_size, per_device_eval_batch_size, gradient_accumulation_steps, max_steps, seed,
        data_seed; /* data_seed -1: seed */
    double num_train_epochs, learning_rate, weight_decay, adam_beta1, adam_beta2, adam_epsilon, max_grad_norm,
        warmup_steps, /* below 1: a ratio */
        label_smoothing_factor;
    char *loss_type, *ref_model_name_or_path; /* of preference tuning; ref_…: or NULL */
    double beta, label_smoothing;
    char *class_weights;             /* "balanced", a list, or NULL: args/class_weights.h */
    char *batch_sampler;             /* "batch_sampler" or "no_duplicates" */
    char *loss;                      /* embedding: a name, or NULL: by the data */
    double similarity_scale, margin; /* embedding; margin 0: the loss's own, unless it is set */
    bool symmetric;
    char *matryoshka_dims, *matryoshka_weights; /* lists, or NULL */
    int64_t mini_batch_size;                    /* embedding: rows of a micro-batch; 0: per_device_train_batch_size */
    char *lr_scheduler_type, *lr_scheduler_kwargs, *optim, *optim_args;
    char *train_sampling_strategy;
    bool gradient_checkpointing, update_in_backward;
    char *recompute, *freeze;
    bool use_peft, use_rslora, use_dora, lora_bias;
    char *bias; /* "none", "all" or "lora_only" */
    int64_t lora_r, lora_alpha;
    double lora_dropout;
    char *lora_target_modules, *lora_modules_to_save, *lora_task_type, *adapter_name_or_path;
    char *trainable_token_indices;      /* a list of ids, a file or JSON */
    char *rank_pattern, *alpha_pattern; /* a file or a JSON object */
    char *offload, *offload_dir;        /* offload_dir: see snug_args_offload_dir() */
    double offload_ratio, offload_update;
    char *deepspeed;   /* a file or a JSON object */
    char *fsdp_config; /* a file or a JSON object */
    char *gpus;
    int64_t zero_stage, num_processes; /* num_processes: of a plan; 0: those that the launcher started */
    double link_bandwidth;             /* GB/s; 0: unknown */
    bool bf16, fp16, tf32, bf16_full_eval, fp16_full_eval, use_cpu;
    char *device, *gpu, *memory_budget; /* gpu: of a plan, a name or a file of rates */
    bool fit;
    int64_t threads; /* 0: all cores that the process may use */
    int64_t dataloader_num_workers, dataloader_prefetch_factor;
    bool dataloader_drop_last;
    int64_t ddp_timeout; /* seconds */
    /* evaluation, logging, saving */
    enum snug_interval eval_strategy, logging_strategy, save_strategy;
    double eval_steps, logging_steps, save_steps; /* below 1: a fraction of all steps; eval_steps 0: logging_steps */
    double eval_delay;
    bool logging_first_step, logging_nan_inf_filter, eval_on_start, load_best_model_at_end, save_only_model;
    int64_t save_total_limit;                        /* 0: no limit */
    char *metric_for_best_model, *greater_is_better; /* NULL: the default of Trainer */
    int64_t early_stopping_patience;                 /* 0: off */
    double early_stopping_threshold;
    const char *command;       /* while its words are parsed, or NULL */
    const char *file;          /* while its arguments are set, or NULL */
    char *without_effect;      /* names in that file of what snug does not have, and whose value changes nothing */
    struct snug_pair {         /* two names of one value, as warmup_ratio and warmup_steps: args_table.h */
        bool of_file;          /* what follows is what a file has, not the command line */
        bool given[2], off[2]; /* the value's own name, the other one; off: by that name it has its default */
    } pairs[SNUG_CONVERSIONS];
    /* Names of the arguments that were set, separated by spaces; some checks depend on it. */
    char *set_names;
    /* The ranks of a run of several, which snug_train() connects (train/group.h); NULL: one rank. Not copied. */
    struct snug_process_group *group;
    bool deepspeed_told; /* what of --deepspeed has no effect was logged */
    bool to_host; /* --deepspeed has set offload, which then has no effect where the arena is in the host's memory */
    bool alone;   /* trains on one rank, although the launcher started several, which wait. Not copied */
    /* The caller's: see snug_args_rows(). */
    struct snug_rows *train_rows, *validation_rows, *test_rows;
};

/* As the functions of snug.h whose names end with create, destroy, set, get, parse and set_rows, which are calls of the
 * program; these are for use inside one (core/call.h). */
snug_status snug_args_make(snug_context *ctx, struct snug_args **out);
void snug_args_free(struct snug_args *args);
snug_status snug_args_assign(struct snug_args *args, const char *name, const char *value);
snug_status snug_args_value(const struct snug_args *args, const char *name, char *buffer, size_t size);
snug_status snug_args_read_words(struct snug_args *args, int argc, char *const argv[]);
snug_status snug_args_take_rows(struct snug_args *args, const char *name, struct snug_rows *rows);
/* A copy of the arguments, set ones included, in another context. */
snug_status snug_args_copy(snug_context *ctx, const struct snug_args *args, struct snug_args **out);
/* The rows in memory that path, the value of an argument for a file, stands for; NULL if it names a file. */
struct snug_rows *snug_args_rows(const struct snug_args *args, const char *path);
/* Refuses path if it stands for rows in memory that a repeated run does not have. */
snug_status snug_args_check_rows(const struct snug_args *args, const char *path);
/* --ranking_loss */
enum snug_ranking_loss snug_args_ranking_loss(const struct snug_args *args);
/* Whether the user set the argument, under any of its names. */
bool snug_args_is_set(const struct snug_args *args, const char *name);
/* Whether the user set it to another value than the default, which a dump of all arguments sets too. */
bool snug_args_is_chosen(const struct snug_args *args, const char *name);
/* Checks conflicts between arguments (eval_strategy without data, save against load_best_model_at_end, …). Call it
 * before a job. command: "train", "eval", "predict", "plan", "verify" or "tokenize". */
snug_status snug_args_check(struct snug_args *args, const char *command);
/* Whether the check of this command refuses the argument, because another command does what it asks for. */
bool snug_args_refuses(const char *command, const char *name);
/* Refuses arguments of other tasks. */
snug_status snug_args_check_task(const struct snug_args *args, enum snug_task task);
/* Sets the level of each of `layers` layers, from recompute and gradient_checkpointing. */
snug_status snug_args_recompute(const struct snug_args *args, int64_t layers, enum snug_recompute levels[]);
/* Sets the arguments that the file `deepspeed` has; keys that snug does not have are SNUG_E_UNSUPPORTED. */
snug_status snug_args_deepspeed(struct snug_args *args);
/* Sets the arguments that `fsdp_config`, a file or a JSON object, has; the same for its keys. */
snug_status snug_args_fsdp(struct snug_args *args);
/* The ranks of the run, or of the planned one. */
static inline int snug_args_ranks(const struct snug_args *args) {
    return args->num_processes > 0 ? (int)args->num_processes : snug_group_size(args->group);
}
/* More steps and checkpoints than any run has (--max_steps is at most 10^12); sums of a few fit 64 bits. */
#define SNUG_NEVER (INT64_C(1) << 53)
/* --logging_steps and the like of a run of max_steps: below 1 a fraction of these, as in Trainer; a number above every
   run's steps means never. */
static inline int64_t snug_args_steps(double steps, int64_t max_steps) {
    const double whole = steps < 1 ? ceil(steps * (double)max_steps) : steps;
    return whole < (double)SNUG_NEVER ? (int64_t)whole : SNUG_NEVER;
}
/* Rows of a micro-batch, and micro-batches of a step: mini_batch_size divides the batch. */
static inline int64_t snug_args_micro_batch(const struct snug_args *args) {
    return args->mini_batch_size ? args->mini_batch_size : args->per_device_train_batch_size;
}
static inline int64_t snug_args_micro_batches(const struct snug_args *args) {
    return args->per_device_train_batch_size / snug_args_micro_batch(args) * args->gradient_accumulation_steps;
}
/* The seed of the order of rows. */
uint64_t snug_args_data_seed(const struct snug_args *args);
/* Whether labels are numbers to predict. */
enum snug_regression snug_args_regression(const struct snug_args *args);
/* How load_in_4bit stores weights; rows and cols are 0. */
struct snug_quantized snug_args_quantized(const struct snug_args *args);
/* The offloaded memory classes, as bits 1 << memory class. */
snug_status snug_args_offload(const struct snug_args *args, unsigned *classes);
/* The first argument that asks for what several ranks do not support yet; NULL: none does. */
const char *snug_args_alone(const struct snug_args *args);
/* The folder of the offload file; NULL where offloaded tensors are in page-locked host memory: by default if the arena
 * is on a device. */
const char *snug_args_offload_dir(const struct snug_args *args, bool on_device);
/* Where names of models are looked up. */
static inline struct snug_hub_place snug_args_place(const struct snug_args *args) {
    return (struct snug_hub_place){.cache_dir = args->cache_dir, .revision = args->model_revision};
}
/* max_shard_size in bytes. */
snug_status snug_args_shard_size(const struct snug_args *args, int64_t *bytes);
/* memory_budget in bytes ("600MiB", "6GiB", "6GB", "123456"), or -1 if unset. */
snug_status snug_args_budget(const struct snug_args *args, int64_t *bytes);

#endif
