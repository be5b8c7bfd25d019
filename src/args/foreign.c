/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of transformers, its scripts, Accelerate and PEFT that snug does not have: accepted where they change
   nothing, else refused with what to use instead. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args/table.h"
#include "io/json.h"

const struct snug_foreign snug_foreign_arguments[] = {
    {SNUG_FOREIGN_FLAG_IGNORED,
     "full_determinism average_tokens_across_devices log_on_each_node save_on_each_node "
     "skip_memory_metrics dataloader_pin_memory dataloader_persistent_workers dataloader_in_order "
     "eval_do_concat_batches eval_use_gather_object batch_eval_metrics remove_unused_columns use_fast_tokenizer "
     "low_cpu_mem_usage hub_private_repo hub_always_push use_cache use_legacy_prediction_loop "
     "restore_callback_states_from_checkpoint enable_jit_checkpoint",
     NULL},
    {SNUG_FOREIGN_VALUE_IGNORED,
     "local_rank run_name log_level_replica preprocessing_num_workers length_column_name "
     "eval_accumulation_steps hub_token hub_model_id hub_strategy hub_revision token project "
     "trackio_space_id trackio_bucket_id trackio_static_space_id dataloader_multiprocessing_context "
     "torch_empty_cache_steps gradient_checkpointing_kwargs activation_checkpointing_kwargs",
     NULL},
    /* What a command does not do is refused with it: args_check.c. */
    {SNUG_FOREIGN_COMMAND, "do_train do_eval do_predict", NULL},

    {SNUG_FOREIGN_FLAG_ON, "save_safetensors", "snug writes safetensors only: leave it out"},
    {SNUG_FOREIGN_FLAG_IGNORED, "ddp_find_unused_parameters ddp_broadcast_buffers ddp_static_graph",
     "it is for PyTorch's DistributedDataParallel, which snug does not use"},
    {SNUG_FOREIGN_VALUE_IGNORED, "ddp_backend ddp_bucket_cap_mb",
     "it is for PyTorch's DistributedDataParallel, which snug does not use"},
    {SNUG_FOREIGN_FLAG_IGNORED, "torch_compile use_liger_kernel use_ipex jit_mode_eval",
     "snug's kernels are compiled and fused already"},
    {SNUG_FOREIGN_VALUE_IGNORED,
     "torch_compile_backend torch_compile_mode liger_kernel_config torchdynamo dynamo_backend",
     "snug's kernels are compiled and fused already"},
    {SNUG_FOREIGN_VALUE_IGNORED, "attn_implementation", "snug has one attention, which is fused and without padding"},
    {SNUG_FOREIGN_FLAG_IGNORED, "pad_to_max_length", "snug never pads, and the result is the same"},
    {SNUG_FOREIGN_FLAG_IGNORED, "trust_remote_code", "snug runs no code from a model"},
    {SNUG_FOREIGN_FLAG_IGNORED, "streaming", "files of any size are read in constant memory"},
    {SNUG_FOREIGN_FLAG_IGNORED, "shuffle_train_dataset",
     "training rows are shuffled in every epoch; --train_sampling_strategy sets their order"},
    {SNUG_FOREIGN_FLAG_IGNORED, "include_inputs_for_metrics include_tokens_per_second include_num_input_tokens_seen",
     "the results have the number of tokens and the samples per second"},
    {SNUG_FOREIGN_VALUE_IGNORED, "include_for_metrics", "the metrics are those of the task"},
    {SNUG_FOREIGN_FLAG_IGNORED, "use_slow_tokenizer", "the tokens are those of the fast tokenizer"},
    {SNUG_FOREIGN_VALUE_IGNORED, "remove_columns", "columns that are not used are ignored"},
    {SNUG_FOREIGN_VALUE_IGNORED, "ray_scope", "snug searches no hyper-parameters"},
    {SNUG_FOREIGN_VALUE_IGNORED, "push_to_hub_model_id push_to_hub_organization push_to_hub_token",
     "snug does not upload; hf upload NAME OUTPUT_DIR does"},
    {SNUG_FOREIGN_FLAG_OFF, "auto_find_batch_size",
     "snug knows before the run what fits: give --fit, which keeps the batch size and adds methods that save memory"},
    {SNUG_FOREIGN_FLAG_OFF, "ignore_data_skip",
     "a resumed run continues at its next batch, without reading the earlier ones: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "prediction_loss_only",
     "an evaluation has the metrics of its task, which cost next to nothing: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "push_to_hub",
     "snug does not upload: leave it out, and run hf upload NAME OUTPUT_DIR afterwards"},
    {SNUG_FOREIGN_FLAG_IGNORED, "precompute_ref_log_probs",
     "the reference's log-probabilities are always computed once, before the first step"},
    {SNUG_FOREIGN_VALUE_IGNORED, "precompute_ref_batch_size", "the batches are the training's"},
    {SNUG_FOREIGN_FLAG_ON, "disable_dropout", "preference tuning has no dropout: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "sync_ref_model use_weighting",
     "the reference stays the same, and pairs have no weights: leave it out"},
    {SNUG_FOREIGN_VALUE, "ref_model_mixup_alpha ref_model_sync_steps", "the reference stays the same: leave it out"},
    {SNUG_FOREIGN_VALUE, "ld_alpha loss_weights f_divergence_type f_alpha_divergence_coef discopop_tau",
     "the losses of preference tuning are those of --loss_type: leave it out"},
    {SNUG_FOREIGN_VALUE, "shuffle_seed", "give --data_seed, the seed of the order of rows"},
    {SNUG_FOREIGN_FLAG_OFF, "use_mps_device", "snug runs on CPUs and NVIDIA GPUs: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "adafactor", "give --optim adafactor"},
    {SNUG_FOREIGN_FLAG_OFF, "use_auth_token", "give the token to snug pull, in HF_TOKEN"},
    {SNUG_FOREIGN_FLAG_OFF, "split_batches", "the batch size is that of one rank: leave it out"},
    {SNUG_FOREIGN_VALUE, "neftune_noise_alpha", "snug adds no noise to embeddings: leave it out"},
    {SNUG_FOREIGN_VALUE, "optim_target_modules", "it is for GaLore and APOLLO, which snug does not have: leave it out"},
    {SNUG_FOREIGN_VALUE,
     "accelerator_config parallelism_config dispatch_batches config_file num_machines machine_rank main_process_ip "
     "main_process_port",
     "snug does not use Accelerate: leave it out; --gpus N or mpirun starts several ranks"},
    {SNUG_FOREIGN_FLAG_OFF, "multi_gpu",
     "snug does not use Accelerate: leave it out; --gpus N starts ranks on N GPUs, mpirun on CPUs"},
    {SNUG_FOREIGN_VALUE, "mixed_precision", "give --bf16 or --fp16"},
    {SNUG_FOREIGN_VALUE, "n_gpu gpu_ids gpu_id",
     "give --device cuda, or --gpus N for several; CUDA_VISIBLE_DEVICES selects GPUs"},
    {SNUG_FOREIGN_VALUE, "label_names", "give --label_column_name, the column of the labels"},
    {SNUG_FOREIGN_VALUE, "fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap sharded_ddp",
     "give --zero_stage, which divides states, gradients and weights over the ranks"},
    {SNUG_FOREIGN_VALUE, "debug", "leave it out: --log_level debug has the times of all operations"},
    {SNUG_FOREIGN_VALUE, "past_index", "encoders have no past: leave it out"},
    {SNUG_FOREIGN_VALUE, "half_precision_backend fp16_backend fp16_opt_level", "give --bf16 or --fp16 alone"},
    {SNUG_FOREIGN_VALUE, "mp_parameters", "it is for SageMaker: leave it out"},
    {SNUG_FOREIGN_VALUE, "tpu_num_cores", "snug runs on CPUs and NVIDIA GPUs: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "tpu_metrics_debug", "snug runs on CPUs and NVIDIA GPUs: leave it out"},
    {SNUG_FOREIGN_VALUE, "task_name",
     "snug reads files: give --train_file, --validation_file or --test_file; tags of words, such as ner and pos, are "
     "--task token_classification"},
    {SNUG_FOREIGN_VALUE, "dataset_name dataset_config_name dataset data_dir",
     "snug reads files: give --train_file, --validation_file or --test_file"},
    {SNUG_FOREIGN_VALUE, "language train_language",
     "snug reads files: give those of the language by --train_file, --validation_file or --test_file"},
    {SNUG_FOREIGN_VALUE, "train_split_name validation_split_name test_split_name remove_splits",
     "snug reads files, without splits: give --train_file, --validation_file and --test_file"},
    {SNUG_FOREIGN_VALUE, "metric_name compute_metrics",
     "an evaluation has all metrics of its task: leave it out; --metric_for_best_model chooses one"},
    {SNUG_FOREIGN_VALUE, "problem_type num_labels",
     "the labels decide: leave it out; --do_regression makes them values, --do_regression False classes"},
    {SNUG_FOREIGN_FLAG_OFF, "do_lower_case", "the tokenizer's files decide: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "with_tracking", "give --report_to tensorboard"},
    {SNUG_FOREIGN_VALUE, "wandb_project wandb_run_id wandb_entity", "give --report_to tensorboard"},
    {SNUG_FOREIGN_VALUE, "checkpointing_steps", "give --save_steps N, or --save_strategy epoch"},
    {SNUG_FOREIGN_VALUE, "peft_type", "--use_peft trains adapters of one type, LORA: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "use_lora", "give --use_peft"},
    {SNUG_FOREIGN_FLAG_OFF, "use_qalora", "snug has no such adapters: leave it out"},
    {SNUG_FOREIGN_VALUE, "lora_target_parameters",
     "adapters are trained beside linears and the word table alone: leave it out, or give --lora_target_modules"},
    {SNUG_FOREIGN_FLAG_OFF, "load_in_8bit",
     "give --load_in_4bit, which takes half of its memory; --dtype bfloat16 for weights in 16 bits, --optim adamw_8bit "
     "for states in 8; --fit chooses what is needed"},
    {SNUG_FOREIGN_VALUE, "bnb_4bit_quant_storage", "snug stores codes as bytes: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "mlm", "give --task mlm"},
    {SNUG_FOREIGN_VALUE, "train_ref_file validation_ref_file",
     "--whole_word_mask takes the words from the tokens, not from a file of references: leave it out"},
    {SNUG_FOREIGN_FLAG_OFF, "eval_only evaluate_only", "run snug eval"},
    {SNUG_FOREIGN_VALUE, "max_source_length max_target_length", "snug generate has its own arguments"},
    {SNUG_FOREIGN_VALUE, "model_type", "give --config_name FOLDER, whose config.json names the type"},
    {SNUG_FOREIGN_VALUE, "config_overrides", "change a copy of config.json, and give its folder by --config_name"},
};
const size_t snug_foreign_count = sizeof snug_foreign_arguments / sizeof *snug_foreign_arguments;

/* Values that TrainingArguments.to_dict() of transformers 4 and 5 has by default, separated by '|', or as one object;
   besides false, null and empty ones. */
static const struct {
    const char *names, *values;
} defaults[] = {
    {"accelerator_config",
     "{\"split_batches\": false, \"even_batches\": true, \"use_seedable_sampler\": true, \"non_blocking\": false, "
     "\"use_configured_state\": false}"},
    {"include_num_input_tokens_seen", "no"},
    {"half_precision_backend fp16_backend", "auto"},
    {"fp16_opt_level", "O1"},
    {"past_index", "-1"},
    {"ray_scope", "last"},
    {"fsdp_min_num_params", "0"},
    {"push_to_hub_token", "<PUSH_TO_HUB_TOKEN>"},
};

/* Whether each member of value is null, or as in expected. */
static snug_status compare_members(const struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                                   const json_t *value, const json_t *expected) {
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        char *text;
        if (json_is_null(member) || json_equal(member, json_object_get(expected, key))) continue;
        RETURN_IF_ERROR(snug_json_text(args->ctx, member, JSON_ENCODE_ANY | JSON_COMPACT, &text));
        const snug_status status =
            snug_fail(args->ctx, SNUG_E_UNSUPPORTED, "--%s: %s is %s: %s", name, key, text, foreign->advice);
        free(text);
        return status;
    }
    return SNUG_OK;
}

static snug_status compare_object(const struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                                  const char *text, const char *values, bool *out) {
    json_t *value, *expected;
    if (*text != '{') return SNUG_OK; /* a file */
    RETURN_IF_ERROR(snug_json_read_text(args->ctx, name, text, strlen(text), &value));
    snug_status status = snug_json_read_text(args->ctx, name, values, strlen(values), &expected);
    if (status == SNUG_OK) {
        status = compare_members(args, foreign, name, value, expected);
        json_decref(expected);
    }
    json_decref(value);
    *out = status == SNUG_OK;
    return status;
}

snug_status snug_foreign_is_default(const struct snug_args *args, const struct snug_foreign *foreign, const char *name,
                                    const char *text, bool *out) {
    *out = !*text || strcasecmp(text, "none") == 0;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && !*out; i++) {
        const char *values = defaults[i].values;
        if (!snug_list_has(defaults[i].names, ' ', name, strlen(name))) continue;
        if (*values == '{') return compare_object(args, foreign, name, text, values, out);
        *out = snug_list_has(values, '|', text, strlen(text));
    }
    return SNUG_OK;
}

const struct snug_foreign_value snug_foreign_values[] = {
    {"save_steps", "-", "give --save_strategy no"},
    {"eval_steps", "-", "give --eval_strategy no"},
    {"logging_steps", "-", "give --logging_strategy no"},
    {"device", "gpu", "give --device cuda"},
    {"device", "cuda:", "give --device cuda; CUDA_VISIBLE_DEVICES selects the GPU"},
    {"device", "mps", "snug runs on CPUs and NVIDIA GPUs: leave it out"},
    {"dtype", "float16", "give --dtype bfloat16, or --fp16 with weights in float32"},
    {"per_device_train_batch_size", "auto", "give a number, and --fit, which makes it fit"},
    {"gradient_accumulation_steps", "auto",
     "give a number: the batch is its product with the batch size and the ranks"},
    {"lr_scheduler_type", "reduce_lr_on_plateau", "give --lr_scheduler_type linear, and --early_stopping_patience N"},
    {"report_to", "wandb", "give --report_to tensorboard"},
    {"report_to", "mlflow", "give --report_to tensorboard"},
    {"optim", "adamw_hf", "give --optim adamw_torch"},
    {"optim", "adamw_apex", "give --optim adamw_torch"},
    {"optim", "adamw_torch_8bit", "give --optim adamw_8bit"},
    {"optim", "paged_adamw_8bit", "give --optim adamw_8bit --offload optimizer"},
    {"optim", "paged_adamw_32bit", "give --optim adamw_torch --offload optimizer"},
    {"optim", "paged_lion", "give --optim lion_32bit --offload optimizer"},
    {"optim", "lion_8bit", "give --optim lion_32bit"},
    {"optim", "rmsprop_bnb", "give --optim rmsprop"},
    {"optim", "galore", "give --optim adamw_8bit, or --fit, which finds what saves enough memory"},
    {"optim", "apollo", "give --optim adamw_8bit, or --fit, which finds what saves enough memory"},
    {"optim", "lomo", "give --optim sgd --update_in_backward"},
    {"optim", "adalomo", "give --optim adafactor --update_in_backward"},
};
const size_t snug_foreign_value_count = sizeof snug_foreign_values / sizeof *snug_foreign_values;

/* Names of other programs, and short ones. */
const struct snug_short_name snug_short_names[] = {
    {"lr", "learning_rate"},
    {"json_file args_file arguments_file", "args_from"},
    {"epochs epoch num_epochs n_epochs", "num_train_epochs"},
    {"batch_size bs batch train_batch_size", "per_device_train_batch_size"},
    {"eval_batch_size val_batch_size test_batch_size", "per_device_eval_batch_size"},
    {"model m model_name pretrained_model_name_or_path", "model_name_or_path"},
    {"tokenizer", "tokenizer_name"},
    {"config", "config_name"},
    {"train train_data data data_file", "train_file"},
    {"dev dev_file val val_file valid_file eval_file eval_data validation", "validation_file"},
    {"test test_data predict_file input", "test_file"},
    {"output o out out_dir save_dir", "output_dir"},
    {"max_len maxlen seq_len seq_length sequence_length", "max_seq_length"},
    {"steps iterations train_steps max_train_steps num_train_steps", "max_steps"},
    {"accumulation_steps grad_accum grad_accumulation accumulate_grad_batches grad_acc_steps",
     "gradient_accumulation_steps"},
    {"warmup num_warmup_steps", "warmup_steps"},
    {"wd", "weight_decay"},
    {"scheduler lr_scheduler", "lr_scheduler_type"},
    {"optimizer opt", "optim"},
    {"grad_clip clip clip_grad_norm gradient_clip_val", "max_grad_norm"},
    {"resume", "resume_from_checkpoint"},
    {"cpu", "use_cpu"},
    {"workers num_workers", "dataloader_num_workers"},
    {"text_column", "text_column_name"},
    {"label_column label", "label_column_name"},
    {"patience", "early_stopping_patience"},
    {"verbose v", "log_level"},
    {"half amp", "bf16"},
    {"quiet q", "log_level"},
};
const size_t snug_short_count = sizeof snug_short_names / sizeof *snug_short_names;

/* What people of other programs look for, by a word of the name that they try. */
static const struct {
    const char *words, *advice;
} meanings[] = {
    {"peft lora adapter adapters",
     "--use_peft trains LoRA adapters, with --lora_r, --lora_alpha, --lora_dropout and --lora_target_modules"},
    {"qlora", "give --load_in_4bit --use_peft"},
    {"dora", "give --use_peft --use_dora"},
    {"quant quantize quantized quantization bnb bits 4bit 8bit int8 nf4 gptq awq",
     "give --load_in_4bit for frozen weights in 4 bits, --optim adamw_8bit for states in 8, --dtype bfloat16 for "
     "weights "
     "in 16; --fit chooses what is needed"},
    {"flash flashattention sdpa attn xformers", "snug's attention is fused and without padding already: leave it out"},
    {"compile compiled liger triton jit", "snug's kernels are compiled and fused already: leave it out"},
    {"onnx gguf export torchscript", "snug writes a Hugging Face folder, from which optimum exports: leave it out"},
    {"distill distillation teacher", "snug does not distill yet: leave it out"},
    {"sweep trials hpo optuna ray",
     "snug searches no hyper-parameters: run it in a loop, and compare with snug report"},
    {"wandb mlflow comet neptune clearml tensorboard tb", "give --report_to tensorboard"},
    {"hub upload push", "snug does not upload: run hf upload NAME OUTPUT_DIR afterwards"},
    {"checkpointing", "give --gradient_checkpointing, or --recompute for a choice of levels"},
    {"accelerator accelerators gpus ngpus ngpu devices nproc nnodes nodes distributed strategy ddp",
     "give --gpus N for several GPUs of this machine; CPUs and other machines are started by mpirun, srun or torchrun"},
    {"cuda gpu gpuid", "give --device cuda; CUDA_VISIBLE_DEVICES selects the GPU"},
    {"mps tpu xpu hpu npu rocm", "snug runs on CPUs and NVIDIA GPUs: leave it out"},
    {"precision amp half mixed", "give --bf16, or --fp16 on a GPU"},
    {"cpus cores njobs jobs nthreads", "give --threads N"},
    {"lr", "give --learning_rate, the peak of --lr_scheduler_type"},
    {"epochs epoch", "give --num_train_epochs N"},
    {"batch batchsize bs", "give --per_device_train_batch_size N, and --per_device_eval_batch_size for evaluations"},
    {"truncation maxlen seqlen", "texts are truncated at --max_seq_length tokens"},
    {"padding pad", "snug never pads, and the result is the same: leave it out"},
    {"pretrained checkpoint ckpt weights", "give --model_name_or_path DIR, or --resume_from_checkpoint DIR"},
    {"dropout", "config.json has the dropout: change it in a copy of the model's folder"},
    {"labels classes num", "the labels decide: leave it out; --do_regression makes them values"},
    {"dataset datasets split splits", "snug reads files: give --train_file, --validation_file or --test_file"},
    {"sampling generate beams generation", "snug generate answers prompts: see snug generate --help"},
    {"debug verbosity loglevel logging", "give --log_level debug"},
    {"memory vram ram", "give --memory_budget SIZE, with --fit, which makes the run fit it"},
};

const char *snug_foreign_meaning(const char *name) {
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        for (const char *word = name; *word; word += strcspn(word, "_"), word += *word == '_')
            if (snug_list_has(meanings[i].words, ' ', word, strcspn(word, "_"))) return meanings[i].advice;
    return NULL;
}
