/* SPDX-License-Identifier: Apache-2.0 */
/* Names, meaning and defaults are those of transformers 5's TrainingArguments, run_glue.py, run_classification.py and
   run_mlm.py; what is snug's own says so in its help. */
#include "train/args_table.h"

#define ROW(type, field, aliases, group, value, default_value, range, known, help)                                     \
    {                                                                                                                  \
        {#field, aliases, group, value, default_value, help}, SNUG_ARG_##type, offsetof(struct snug_args, field),      \
            range, known                                                                                               \
    }
#define TEXT(field, aliases, group, value, help) ROW(STRING, field, aliases, group, value, "", NULL, NULL, help)
#define FLAG(field, aliases, group, default_value, help)                                                               \
    ROW(BOOL, field, aliases, group, "BOOL", default_value, NULL, NULL, help)
#define COUNT(field, aliases, group, default_value, range, help)                                                       \
    ROW(INT, field, aliases, group, "N", default_value, range, NULL, help)
#define REAL(field, group, default_value, range, help)                                                                 \
    ROW(REAL, field, "", group, "FLOAT", default_value, range, NULL, help)

#define MODEL "Model"
#define DATA "Data"
#define OUTPUT "Output"
#define TRAINING "Training"
#define MEMORY "Memory for time"
#define MACHINE "Machine and loading"
#define STRATEGY "Evaluation, logging and saving"

/* Values that Hugging Face has and snug does not yet. */
#define OTHER_OPTIMIZERS                                                                                               \
    "adamw_torch_xla|adamw_torch_npu_fused|adamw_apex_fused|adamw_hf|adamw_anyprecision|adamw_torch_4bit|"             \
    "adamw_torch_8bit|ademamix|ademamix_8bit|lion_8bit|"                                                               \
    "paged_adamw_32bit|paged_adamw_8bit|paged_ademamix_32bit|paged_ademamix_8bit|paged_lion_32bit|paged_lion_8bit|"    \
    "rmsprop_bnb|rmsprop_bnb_8bit|rmsprop_bnb_32bit|galore_adamw|galore_adamw_8bit|galore_adafactor|"                  \
    "galore_adamw_layerwise|galore_adamw_8bit_layerwise|galore_adafactor_layerwise|lomo|adalomo|grokadamw|"            \
    "schedule_free_radam|schedule_free_adamw|schedule_free_sgd|apollo_adamw|apollo_adamw_layerwise|stable_adamw"
#define OTHER_REPORTS                                                                                                  \
    "azure_ml|clearml|codecarbon|comet_ml|dagshub|dvclive|flyte|mlflow|neptune|swanlab|trackio|wandb|kubeflow"

const struct snug_argument snug_arguments[] = {
    TEXT(model_name_or_path, "", MODEL, "DIR", "model folder, or its name in the local Hugging Face cache"),
    TEXT(config_name, "", MODEL, "DIR",
         "config.json's folder, or bert-base-uncased / bert-large-uncased; alone: train from scratch"),
    TEXT(tokenizer_name, "", MODEL, "DIR", "tokenizer's folder, if not the model's"),
    ROW(CHOICE, task, "", MODEL, "classification|mlm", "", NULL, NULL,
        "the head (snug's own); found from the data and the model's folder where not given"),
    ROW(CHOICE, dtype, "torch_dtype", MODEL, "float32|bfloat16|auto", "float32", NULL, "float16",
        "how weights are stored; bfloat16: without fp32 masters, updates rounded stochastically; auto is float32"),
    FLAG(ignore_mismatched_sizes, "", MODEL, "False", "make a new head where the folder's has another shape"),

    TEXT(train_file, "", DATA, "FILE", ".csv, .tsv, .json, .jsonl, .txt, or dummy:ROWSxTOKENS, dummy:ROWSxLEAST-MOST"),
    TEXT(validation_file, "", DATA, "FILE", "the same, to evaluate on"),
    TEXT(test_file, "", DATA, "FILE", "the same, to predict"),
    TEXT(text_column_names, "text_column_name", DATA, "A,B",
         "text columns; default sentence1 and sentence2, else the first one or two others"),
    TEXT(label_column_name, "", DATA, "NAME", "label column; default label"),
    COUNT(max_seq_length, "", DATA, "128", "[3,)", "tokens a text is cut to"),
    COUNT(max_train_samples, "", DATA, "-1", "[-1,)", "rows of train_file at most; -1 takes all"),
    COUNT(max_eval_samples, "max_val_samples", DATA, "-1", "[-1,)", "rows of validation_file at most; -1 takes all"),
    COUNT(max_predict_samples, "max_test_samples", DATA, "-1", "[-1,)", "rows of test_file at most; -1 takes all"),
    FLAG(overwrite_cache, "", DATA, "False", "tokenize anew, even if the cache is good"),
    FLAG(line_by_line, "", DATA, "False", "masked LM: each line is a row, instead of joined text cut into blocks"),
    REAL(mlm_probability, DATA, "0.15", "(0,1]", "share of tokens that masked LM predicts"),
    FLAG(do_regression, "", DATA, "False", "labels are numbers to predict, even if all are whole"),
    FLAG(strict, "", DATA, "False", "refuse malformed UTF-8 instead of replacing it (snug's own)"),

    TEXT(output_dir, "", OUTPUT, "DIR", "where the model, results and checkpoints go"),
    FLAG(overwrite_output_dir, "", OUTPUT, "False", "remove the folder's checkpoints before training"),
    TEXT(resume_from_checkpoint, "", OUTPUT, "DIR|True", "go on from this checkpoint, or from output_dir's last"),
    ROW(CHOICE, report_to, "", OUTPUT, "none|tensorboard|all", "none", NULL, OTHER_REPORTS, "where logs also go"),
    TEXT(logging_dir, "", OUTPUT, "DIR", "TensorBoard's folder; default output_dir/runs"),
    ROW(CHOICE, log_level, "", OUTPUT, "detail|debug|info|warning|error|critical|passive", "passive", NULL, NULL,
        "messages shown; passive is info"),
    FLAG(disable_tqdm, "", OUTPUT, "False", "no live progress bar"),
    FLAG(json, "", OUTPUT, "False", "results on stdout as JSON (snug's own)"),
    FLAG(csv_escape_formulas, "", OUTPUT, "False",
         "predict: an apostrophe before labels that a spreadsheet would run: =, +, -, @, tab, CR (snug's own)"),

    COUNT(per_device_train_batch_size, "per_gpu_train_batch_size", TRAINING, "8", "[1,65536]", "rows of a micro-batch"),
    COUNT(gradient_accumulation_steps, "", TRAINING, "1", "[1,65536]", "micro-batches of an optimizer step"),
    REAL(num_train_epochs, TRAINING, "3", "(0,1000000]", "passes over the training data"),
    COUNT(max_steps, "", TRAINING, "-1", "[-1,1e12]", "optimizer steps, instead of num_train_epochs; -1 is unset"),
    REAL(learning_rate, TRAINING, "5e-5", "[0,)", "the highest rate of the schedule"),
    ROW(CHOICE, lr_scheduler_type, "", TRAINING,
        "linear|cosine|cosine_with_restarts|polynomial|constant|constant_with_warmup|inverse_sqrt|cosine_with_min_lr|"
        "cosine_warmup_with_min_lr|warmup_stable_decay",
        "linear", NULL, "reduce_lr_on_plateau|greedy", "how the rate falls"),
    TEXT(lr_scheduler_kwargs, "", TRAINING, "JSON", "the schedule's own settings, as in '{\"num_cycles\": 2}'"),
    REAL(warmup_steps, TRAINING, "0", "[0,)", "steps over which the rate rises; below 1: a share of all steps"),
    ROW(CHOICE, optim, "", TRAINING,
        "adamw_torch|adamw_torch_fused|adamw_8bit|adamw_bnb_8bit|sgd|adafactor|adagrad|rmsprop|lion_32bit|adam|adam_"
        "8bit",
        "adamw_torch_fused", NULL, OTHER_OPTIMIZERS, "optimizer; adam and adam_8bit, with L2 decay, are snug's own"),
    TEXT(optim_args, "", TRAINING, "KEY=VALUE", "the optimizer's own settings, as in momentum=0.9,nesterov=True"),
    REAL(weight_decay, TRAINING, "0", "[0,)", "any optimizer's, not applied to biases and norms"),
    REAL(adam_beta1, TRAINING, "0.9", "[0,1)", "Adam's decay of the first moment; Lion's first beta"),
    REAL(adam_beta2, TRAINING, "0.999", "[0,1)", "Adam's decay of the second moment; Lion's second beta"),
    REAL(adam_epsilon, TRAINING, "1e-8", "[0,)", "added to Adam's denominator"),
    REAL(max_grad_norm, TRAINING, "1", "[0,)", "gradients are scaled to this norm at most; 0: never"),
    REAL(label_smoothing_factor, TRAINING, "0", "[0,1)",
         "share of a label spread over all classes; single labels only"),
    COUNT(seed, "", TRAINING, "42", "[0,)", "of initial weights, dropout, order and masks"),
    COUNT(data_seed, "", TRAINING, "-1", "[-1,)", "of the order of rows and of masks; -1: seed"),
    ROW(CHOICE, train_sampling_strategy, "", TRAINING, "random|sequential|group_by_length", "random", NULL,
        "batch_rebalance", "order of the rows"),

    FLAG(gradient_checkpointing, "activation_checkpointing", MEMORY, "False",
         "keep only each layer's input and run the layer again backward; the same as --recompute layer"),
    TEXT(
        recompute, "", MEMORY, "LEVELS",
        "what layers make again backward instead of storing: none, elementwise, ffn, attention or layer, for all or as "
        "a list, as layer*4,elementwise*2; default elementwise (snug's own)"),
    TEXT(offload, "", MEMORY, "A,B",
         "what is kept in a file and comes when it is used: optimizer, gradients, weights, activations (snug's own)"),
    TEXT(offload_dir, "", MEMORY, "DIR",
         "where that file is made, without a name; default output_dir; on a tmpfs it is host memory (snug's own)"),
    FLAG(update_in_backward, "", MEMORY, "False",
         "use and free each gradient as it completes; with clipping, backward runs twice (snug's own)"),

    FLAG(bf16, "", MACHINE, "False", "bf16 products and activations, where the CPU is fast at it"),
    FLAG(fp16, "", MACHINE, "False", "fp16 products and activations with loss scaling; on a GPU only"),
    FLAG(bf16_full_eval, "", MACHINE, "False", "eval, predict: weights in bf16 as well, half the memory"),
    FLAG(fp16_full_eval, "", MACHINE, "False",
         "eval, predict: weights in fp16 as well, half the memory; on a GPU only"),
    FLAG(tf32, "", MACHINE, "False", "fp32 products on the GPU's tensor cores, which round operands to 11 bits"),
    FLAG(use_cpu, "no_cuda", MACHINE, "False", "the CPU, even if there is a GPU"),
    ROW(CHOICE, device, "", MACHINE, "auto|cpu|cuda", "auto", NULL, NULL, "where to run (snug's own)"),
    ROW(BYTES, memory_budget, "", MACHINE, "SIZE", "", NULL, NULL,
        "limit on memory, as 600MiB or 6GB; a run over it is refused before step 1 (snug's own)"),
    FLAG(fit, "", MACHINE, "False",
         "where the run is over its limit, add the cheapest methods that make it fit; what is set stays (snug's own)"),
    COUNT(per_device_eval_batch_size, "per_gpu_eval_batch_size", MACHINE, "8", "[1,65536]",
          "rows of a batch in evaluation and prediction"),
    COUNT(threads, "", MACHINE, "0", "[0,4096]", "CPU threads; 0: as many as the process may use (snug's own)"),
    COUNT(dataloader_num_workers, "", MACHINE, "0", "[0,256]", "threads that make batches ahead of time"),
    COUNT(dataloader_prefetch_factor, "", MACHINE, "2", "[1,1024]", "batches that each of these keeps ready"),
    FLAG(dataloader_drop_last, "", MACHINE, "False", "leave out an epoch's last, smaller batch"),

    ROW(INTERVAL, eval_strategy, "evaluation_strategy", STRATEGY, "no|steps|epoch", "no", NULL, NULL,
        "when to evaluate"),
    REAL(eval_steps, STRATEGY, "0", "[0,)", "steps between evaluations; below 1: a share; 0: logging_steps"),
    REAL(eval_delay, STRATEGY, "0", "[0,)", "epochs or steps before the first evaluation"),
    FLAG(eval_on_start, "", STRATEGY, "False", "evaluate before the first step"),
    ROW(INTERVAL, logging_strategy, "", STRATEGY, "no|steps|epoch", "steps", NULL, NULL, "when to log"),
    REAL(logging_steps, STRATEGY, "500", "[0,)", "steps between logs; below 1: a share of all steps"),
    FLAG(logging_first_step, "", STRATEGY, "False", "log the first step too"),
    FLAG(logging_nan_inf_filter, "", STRATEGY, "True", "log the mean of the others for a loss that is NaN or infinite"),
    ROW(INTERVAL, save_strategy, "", STRATEGY, "no|steps|epoch|best", "steps", NULL, NULL, "when to save a checkpoint"),
    REAL(save_steps, STRATEGY, "500", "(0,)", "steps between checkpoints; below 1: a share of all steps"),
    COUNT(save_total_limit, "", STRATEGY, "0", "[0,)", "checkpoints kept, the best among them; 0: all"),
    FLAG(save_only_model, "", STRATEGY, "False", "checkpoints without the optimizer's state; they cannot be resumed"),
    FLAG(load_best_model_at_end, "", STRATEGY, "False", "end with the checkpoint that evaluated best"),
    TEXT(metric_for_best_model, "", STRATEGY, "NAME", "what best means: loss, accuracy, f1, …; default loss"),
    ROW(TRISTATE, greater_is_better, "", STRATEGY, "BOOL", "", NULL, NULL,
        "default: unless the metric is a loss, mse or perplexity"),
    COUNT(early_stopping_patience, "", STRATEGY, "0", "[0,)",
          "stop after so many evaluations without a better one; 0: off"),
    REAL(early_stopping_threshold, STRATEGY, "0", "[0,)", "what counts as better"),
};
const size_t snug_argument_count = sizeof snug_arguments / sizeof *snug_arguments;

const struct snug_converted snug_converted_arguments[] = {
    {"group_by_length", "train_sampling_strategy", SNUG_CONVERT_GROUP_BY_LENGTH},
    {"warmup_ratio", "warmup_steps", SNUG_CONVERT_WARMUP_RATIO},
};
const size_t snug_converted_count = sizeof snug_converted_arguments / sizeof *snug_converted_arguments;

const struct snug_foreign snug_foreign_arguments[] = {
    {SNUG_FOREIGN_FLAG_IGNORED,
     "do_train do_eval do_predict full_determinism average_tokens_across_devices log_on_each_node save_on_each_node "
     "skip_memory_metrics dataloader_pin_memory dataloader_persistent_workers dataloader_in_order "
     "eval_do_concat_batches eval_use_gather_object batch_eval_metrics remove_unused_columns use_fast_tokenizer "
     "low_cpu_mem_usage save_safetensors ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph "
     "hub_private_repo hub_always_push use_cache use_legacy_prediction_loop restore_callback_states_from_checkpoint "
     "enable_jit_checkpoint"},
    {SNUG_FOREIGN_FLAG_OFF,
     "torch_compile "
     "use_liger_kernel auto_find_batch_size ignore_data_skip prediction_loss_only push_to_hub trust_remote_code "
     "streaming shuffle_train_dataset pad_to_max_length include_inputs_for_metrics include_tokens_per_second "
     "include_num_input_tokens_seen use_mps_device use_ipex jit_mode_eval adafactor use_auth_token "
     "split_batches"},
    {SNUG_FOREIGN_VALUE_IGNORED,
     "local_rank run_name log_level_replica cache_dir preprocessing_num_workers length_column_name "
     "eval_accumulation_steps "
     "ddp_backend ddp_bucket_cap_mb ddp_timeout hub_token hub_model_id hub_strategy hub_revision token project "
     "trackio_space_id trackio_bucket_id trackio_static_space_id dataloader_multiprocessing_context "
     "torch_empty_cache_steps gradient_checkpointing_kwargs activation_checkpointing_kwargs"},
    {SNUG_FOREIGN_VALUE,
     "torch_compile_backend torch_compile_mode "
     "liger_kernel_config neftune_noise_alpha optim_target_modules accelerator_config parallelism_config "
     "include_for_metrics label_names fsdp fsdp_config fsdp_min_num_params deepspeed debug sharded_ddp past_index "
     "half_precision_backend fp16_backend fp16_opt_level mp_parameters tpu_num_cores torchdynamo ray_scope "
     "task_name dataset_name dataset_config_name text_column_delimiter train_split_name "
     "validation_split_name test_split_name remove_splits remove_columns shuffle_seed metric_name model_revision "
     "validation_split_percentage model_type config_overrides push_to_hub_model_id "
     "push_to_hub_organization push_to_hub_token"},
};
const size_t snug_foreign_count = sizeof snug_foreign_arguments / sizeof *snug_foreign_arguments;
