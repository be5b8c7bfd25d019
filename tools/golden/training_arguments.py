#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/training_arguments.json: what TrainingArguments of transformers writes as JSON.

    tools/golden/training_arguments.py

"default": TrainingArguments().to_dict(), "older": the keys and defaults of transformers 4.46, written down by hand, because one
environment has one version. "others": for each key of the default dump values that TrainingArguments accepts and writes
differently: each must be used, refused by name, or named as one without effect.
"""
import json
import pathlib
import warnings

import transformers
from transformers import TrainingArguments

warnings.filterwarnings("ignore")

# Keys that transformers 5 no longer has, or writes with another default.
OLDER = {
    "overwrite_output_dir": False, "evaluation_strategy": "no", "per_gpu_train_batch_size": None,
    "per_gpu_eval_batch_size": None, "lr_scheduler_kwargs": {}, "warmup_ratio": 0.0, "warmup_steps": 0,
    "logging_dir": None, "save_safetensors": True, "no_cuda": False, "use_cpu": False, "use_mps_device": False,
    "jit_mode_eval": False, "use_ipex": False, "fp16_opt_level": "O1", "half_precision_backend": "auto",
    "local_rank": 0, "tpu_num_cores": None, "tpu_metrics_debug": False, "past_index": -1, "fsdp": [],
    "fsdp_min_num_params": 0, "fsdp_transformer_layer_cls_to_wrap": None,
    "fsdp_config": {"min_num_params": 0, "xla": False, "xla_fsdp_v2": False, "xla_fsdp_grad_ckpt": False},
    "accelerator_config": {"split_batches": False, "dispatch_batches": None, "even_batches": True,
                           "use_seedable_sampler": True, "non_blocking": False,
                           "gradient_accumulation_kwargs": None, "use_configured_state": False},
    "optim": "adamw_torch", "adafactor": False, "group_by_length": False, "use_legacy_prediction_loop": False,
    "include_inputs_for_metrics": False, "fp16_backend": "auto", "push_to_hub_model_id": None,
    "push_to_hub_organization": None, "push_to_hub_token": "<PUSH_TO_HUB_TOKEN>", "mp_parameters": "",
    "torchdynamo": None, "ray_scope": "last", "dispatch_batches": None, "split_batches": None,
    "include_tokens_per_second": False, "include_num_input_tokens_seen": False,
}

# Values to try for keys whose default is null or a word.
WORDS = ["steps", "epoch", "best", "x", "warning", "all_checkpoints", "cosine", "sgd", "sequential", "non_padding", "adamw_torch",
         "fp8", "nccl", "out"]
OTHERS = {
    "include_for_metrics": [["inputs"]], "report_to": [["tensorboard"], ["wandb"]], "debug": [["underflow_overflow"]],
    "deepspeed": [], "fsdp": [], "fsdp_config": [], "label_names": [["y"]], "parallelism_config": [],
    "accelerator_config": [{"split_batches": True}, {"even_batches": False}, {"dispatch_batches": True},
                           {"gradient_accumulation_kwargs": {"num_steps": 2}}],
    "lr_scheduler_kwargs": [{"num_cycles": 2}], "optim_target_modules": [["all-linear"]],
    "gradient_checkpointing_kwargs": [{"use_reentrant": False}], "activation_checkpointing_kwargs": [{"use_reentrant": False}],
    "liger_kernel_config": [{"rope": True}], "eval_strategy": ["steps"], "log_level": ["warning"],
    "local_rank": [],  # the launcher's
    "eval_steps": [3], "save_total_limit": [3], "data_seed": [3], "greater_is_better": [True], "metric_for_best_model": ["f1"],
    "hub_private_repo": [True], "eval_accumulation_steps": [3], "torch_empty_cache_steps": [3], "neftune_noise_alpha": [5.0],
    "ddp_bucket_cap_mb": [25], "ddp_find_unused_parameters": [True, False], "ddp_broadcast_buffers": [True],
    "ddp_static_graph": [True], "optim_args": ["momentum=0.9"], "optim": ["adamw_torch", "sgd", "galore_adamw"],
    "lr_scheduler_type": ["cosine", "reduce_lr_on_plateau"], "save_strategy": ["epoch"],
    "resume_from_checkpoint": ["out/checkpoint-2"],
}


def candidates(key, value):
    if key in OTHERS:
        return OTHERS[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 3]
    if isinstance(value, float):
        return [value / 2 if value else 0.25]
    if isinstance(value, str):
        return WORDS
    return ["x"]


def dump(**arguments):
    return json.loads(TrainingArguments(use_cpu=True, **arguments).to_json_string())


default = json.loads(TrainingArguments().to_json_string())
others = {}
for key, value in default.items():
    for candidate in candidates(key, value):
        try:
            written = dump(**{key: candidate})[key] if key != "use_cpu" else True
        except Exception:  # not a value of this argument, or one that needs another machine
            continue
        if written == value or written in others.get(key, []):
            continue
        others.setdefault(key, []).append(written)
        if candidates(key, value) is WORDS:
            break

older = {key: value for key, value in default.items() if key not in
         ("warmup_steps", "train_sampling_strategy", "eval_strategy", "project", "trackio_space_id")}
older.update(OLDER)
path = pathlib.Path(__file__).parents[2] / "tests/golden/training_arguments.json"
result = {"transformers": transformers.__version__, "default": default, "older": older, "others": others}
path.write_text(json.dumps(result, indent=1) + "\n")
print(f"{path}: {len(default)} keys, {sum(map(len, others.values()))} other values")
print("no other value:", *[key for key in default if key not in others])
