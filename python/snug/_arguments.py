# SPDX-License-Identifier: Apache-2.0
# Made from the library's table of arguments: cmake --build BUILD --target argument_types
"""The arguments of the package's functions, with their types, and defaults in brackets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional, TypedDict, Union

from ._context import PathLike


class _Of15(TypedDict, total=False):
    args_from: Optional[PathLike]
    """JSON file of arguments, such as OUTPUT_DIR/training_args.json, or OUTPUT_DIR, which repeats its run; eval, predict:
    without train_file and others of a training; arguments of the command line have precedence (snug's own)"""
    config_name: Optional[PathLike]
    """folder of config.json, or bert-base-uncased, bert-large-uncased, mpnet-base, ModernBERT-base or -large,
    deberta-v3-xsmall, -small, -base or -large; without model_name_or_path: train from scratch"""
    tokenizer_name: Optional[PathLike]
    """tokenizer folder; default: the model folder"""
    dtype: Optional[Literal["float32", "bfloat16", "auto"]]
    """type of the stored weights; bfloat16: no fp32 master weights, stochastic rounding; on a CPU it is the default for
    files in bf16 that are only read; auto is float32 [float32]"""
    torch_dtype: Optional[Literal["float32", "bfloat16", "auto"]]
    """Another name of dtype."""
    load_in_4bit: Optional[bool]
    """store the weights of the linears as 4-bit codes (QLoRA), as bitsandbytes; a model folder that is quantized needs no
    flag; they must be frozen [False]"""
    bnb_4bit_quant_type: Optional[Literal["nf4", "fp4"]]
    """load_in_4bit: type of the codes [nf4]"""
    bnb_4bit_use_double_quant: Optional[bool]
    """load_in_4bit: the scales of the codes are quantized, too: 4.13 instead of 4.5 bits a weight [True]"""
    use_bnb_nested_quant: Optional[bool]
    """Another name of bnb_4bit_use_double_quant."""
    bnb_4bit_compute_dtype: Optional[Literal["bfloat16", "float16", "float32"]]
    """load_in_4bit: type of the run's matmuls, the same as --bf16 or --fp16; float32: neither [bfloat16]"""
    merge_into: Optional[Literal["dequantized", "original"]]
    """merge, of adapters that were trained beside 4-bit weights: into the values of their codes, which the training saw, or
    into the original weights (snug's own) [dequantized]"""
    llm_int8_skip_modules: Optional[Union[str, list[str], tuple[str, ...]]]
    """load_in_4bit: modules that are not quantized"""
    ignore_mismatched_sizes: Optional[bool]
    """initialise a new head if the checkpoint's head has another shape [False]"""
    data_format: Optional[Literal["csv", "tsv", "json", "jsonl", "txt", "conll"]]
    """format of the data files, where their names do not tell it, as on standard input (snug's own)"""
    text_column_name: Optional[str]
    """text column; default: the pair of columns of a GLUE task, sentence or text, else the only column that can be a text;
    causal LM: prompt and completion, or text; token classification: tokens; in a file with a word a line also a column's
    number, from 1"""
    dataset_text_field: Optional[str]
    """Another name of text_column_name."""
    text_pair_column_name: Optional[str]
    """second text column, of pairs of texts; causal LM: of the completions (snug's own)"""
    text_column_names: Optional[Union[str, list[str], tuple[str, ...]]]
    """text columns that are joined to one text"""
    text_column_delimiter: Optional[str]
    """what is put between joined text columns; default: a space"""
    label_column_name: Optional[Union[str, list[str], tuple[str, ...]]]
    """label column; default: label, labels or gold_label; token classification: ner_tags, tags or labels, in a file with a
    word a line also a column's number, from 1; several labels: columns of zeros and ones, A,B,C"""
    label_separator: Optional[str]
    """what separates the labels in a text that holds several, such as '|'; none: '|' is a part of a class's name (snug's
    own)"""
    missing_label_values: Optional[Union[str, list[str], tuple[str, ...]]]
    """labels that mean that a row has none: it is left out, and so are rows without a label; none: every label is a class;
    default: -1 and - among other classes (snug's own)"""
    max_seq_length: Optional[int]
    """maximum tokens of a sequence; longer texts are truncated; causal LM: 1024 if it is not given, question answering:
    384, multiple choice: at most 1024 [128]"""
    max_length: Optional[int]
    """Another name of max_seq_length."""
    label_all_tokens: Optional[bool]
    """token classification: label all tokens of a word, not only the first [False]"""
    return_entity_level_metrics: Optional[bool]
    """token classification: also metrics of each entity type [False]"""
    ranking_loss: Optional[Literal["binary", "listnet", "margin"]]
    """reranking: loss; binary: cross entropy of each document's label from 0 to 1; listnet: of a query's labels together;
    margin: squared error of the scores' differences (snug's own) [binary]"""
    query: Optional[str]
    """reranking: predict: the query of all documents of test_file, which are sorted by their scores (snug's own)"""
    doc_stride: Optional[int]
    """question answering: tokens that neighbouring parts of a long context share [128]"""
    version_2_with_negative: Optional[bool]
    """question answering: questions may have no answer, as in SQuAD 2 [False]"""
    null_score_diff_threshold: Optional[float]
    """question answering: by how much no answer must have the higher score to be the answer [0]"""
    n_best_size: Optional[int]
    """question answering: first and last tokens that are combined to answers, and answers that are written [20]"""
    max_answer_length: Optional[int]
    """question answering: maximum number of tokens of an answer [30]"""
    class_metrics: Optional[bool]
    """classification: also precision, recall and F1 of each class, AUC, the confusion matrix; several labels: the threshold
    with the best F1 (snug's own) [False]"""
    threshold: Optional[float]
    """several labels: probability from which on a class is predicted; 0: above one half (snug's own) [0]"""
    class_weights: Optional[Union[str, Mapping[str, float], list[float], tuple[float, ...]]]
    """weights of the classes in the loss, by name (1 if not named) or as a list in the model's order; balanced: by the rows
    of each class; several labels: of a class's positives; none: no weights; eval: default, those of the model's training
    (snug's own)"""
    strict: Optional[bool]
    """refuse malformed UTF-8 instead of replacing it (snug's own) [False]"""
    max_shard_size: Optional[Union[int, str]]
    """maximum size of a file of weights, such as 5GB or 50MB; a larger model is saved in several, with an index [50GB]"""
    decode: Optional[bool]
    """tokenize: also the text that the ids stand for (snug's own) [False]"""
    skip_special_tokens: Optional[bool]
    """leave special tokens out of the text of --decode [False]"""
    chat: Optional[bool]
    """generate: prompt is a user's message for the chat template; tokenize: rows are chats: the text that the chat template
    makes of each, its tokens, and which of them the assistant says (snug's own) [False]"""
    use_peft: Optional[bool]
    """train LoRA adapters beside the model's linears, and nothing else of it; the output is an adapter's folder, as PEFT
    writes it [False]"""
    lora_r: Optional[int]
    """rank of the adapters [16]"""
    lora_alpha: Optional[int]
    """what they add is multiplied by lora_alpha / lora_r [32]"""
    lora_dropout: Optional[float]
    """dropout of the adapters' inputs [0.05]"""
    lora_target_modules: Optional[Union[str, list[str], tuple[str, ...]]]
    """linears that get an adapter: names or their ends, as q_proj,v_proj; all-linear; or one regular expression of whole
    names; default: PEFT's for the model's type"""
    lora_modules_to_save: Optional[Union[str, list[str], tuple[str, ...]]]
    """modules that are trained as a whole, and saved with the adapters; a classifier always is; a word table and an output
    that are one weight are two then"""
    trainable_token_indices: Optional[Union[str, list[int], tuple[int, ...], Mapping[str, list[int]]]]
    """ids of tokens whose rows of the word table are trained, too, as 5,6,7; in a language model whose output is that
    table, of the output as well; JSON may name modules: {"embed_tokens": [5], "lm_head": [6]}"""
    use_rslora: Optional[bool]
    """divide lora_alpha by the root of the rank [False]"""
    bias: Optional[Literal["none", "all", "lora_only"]]
    """biases of the model that are trained and saved, too: all, or those of the linears that have an adapter [none]"""
    lora_bias: Optional[bool]
    """give each adapter a bias of its own [False]"""
    use_dora: Optional[bool]
    """DoRA: the adapters change the directions of the weights of each output, a vector of magnitudes their lengths [False]"""
    lora_task_type: Optional[str]
    """SEQ_CLS, TOKEN_CLS or CAUSAL_LM, which must be that of the task; default: that of the task"""
    rank_pattern: Optional[Union[PathLike, Mapping[str, Any]]]
    """ranks of some linears, by name or regular expression: {"down_proj": 8}; PEFT's rank_pattern"""
    alpha_pattern: Optional[Union[PathLike, Mapping[str, Any]]]
    """the same of lora_alpha; PEFT's alpha_pattern"""
    adapter_name_or_path: Optional[PathLike]
    """folder of an adapter of model_name_or_path: to continue its training, to evaluate or to predict with it; also
    model_name_or_path can be such a folder, which names its model (snug's own)"""
    offload: Optional[Union[str, list[str], tuple[str, ...]]]
    """tensors to offload: optimizer, gradients, weights, master_weights, embeddings, activations; from the CPU to a file,
    from a GPU to page-locked host memory, or to a file in offload_dir (snug's own)"""
    offload_ratio: Optional[float]
    """fraction of the optimizer states, gradients and weights of --offload that is offloaded (snug's own) [1]"""
    offload_update: Optional[float]
    """fraction of the offloaded weights that the host's cores update, of those whose gradients and states are offloaded
    too; a GPU updates the others (snug's own) [0]"""
    offload_dir: Optional[PathLike]
    """folder of the unnamed offload file; default on the CPU: output_dir, on a GPU: none; a tmpfs is host memory (snug's
    own)"""
    zero_stage: Optional[int]
    """several ranks: what they divide (ZeRO); 1: optimizer states; 2: gradients, too; 3: weights, too; 0: nothing [0]"""
    fsdp: Optional[Union[bool, str]]
    """Sets zero_stage."""
    deepspeed: Optional[Union[PathLike, Mapping[str, Any]]]
    """DeepSpeed's configuration, of which snug understands the ZeRO stage, clipping, batch sizes, bf16, fp16, AdamW and
    warm-up schedules"""
    fsdp_config: Optional[Union[PathLike, Mapping[str, Any]]]
    """FSDP's configuration of transformers, with --fsdp True or full_shard: snug understands reshard_after_forward,
    activation_checkpointing and what changes nothing here"""
    bf16: Optional[bool]
    """bf16 mixed precision; on a CPU only with AMX-BF16, AVX512-BF16 or BFDOT; default: also on a GPU, for decoders whose
    files are bf16 [False]"""
    fp16: Optional[bool]
    """fp16 mixed precision with loss scaling; on a GPU only [False]"""
    tf32: Optional[bool]
    """TF32 matmuls in fp32 training: tensor cores round operands to 11 bits; on a GPU only [False]"""
    use_cpu: Optional[bool]
    """use the CPU, even if there is a GPU [False]"""
    no_cuda: Optional[bool]
    """Another name of use_cpu."""
    device: Optional[Literal["auto", "cpu", "cuda"]]
    """device; auto: a GPU if one works (snug's own) [auto]"""
    gpus: Optional[Union[int, Literal["all"]]]
    """train, eval, predict, verify: start so many ranks on this machine, each on its own GPU; plan: for so many GPUs, which
    need not be installed with --gpu (snug's own)"""
    num_processes: Optional[int]
    """plan: for so many ranks, without starting them; train gets its ranks from --gpus, torchrun, mpirun or srun [0]"""
    link_bandwidth: Optional[float]
    """several ranks: GB/s that a rank can send to the others, for estimates of seconds; 0: what is known of the GPUs
    (snug's own) [0]"""
    memory_budget: Optional[Union[int, str]]
    """memory limit, such as 600MiB or 6GB; a run that exceeds it is refused before step 1 (snug's own)"""
    per_device_eval_batch_size: Optional[int]
    """batch size of evaluation and prediction [8]"""
    per_gpu_eval_batch_size: Optional[int]
    """Another name of per_device_eval_batch_size."""
    threads: Optional[int]
    """CPU threads; 0: all cores that the process may use (snug's own) [0]"""
    dataloader_num_workers: Optional[int]
    """data loader threads; 0: the main thread loads the data [0]"""
    dataloader_prefetch_factor: Optional[int]
    """batches that each loader thread prefetches [2]"""
    ddp_timeout: Optional[int]
    """several ranks: seconds that a rank waits for the others in an operation; then the late one is named, and all end
    [1800]"""


class _Of3(TypedDict, total=False):
    model_name_or_path: Optional[PathLike]
    """model folder, or model name in the local Hugging Face cache"""
    train_file: Optional[PathLike]
    """training data: .csv, .tsv, .json, .jsonl, .txt or .conll, also with .gz; -: standard input; synthetic data:
    dummy:ROWSxTOKENS, dummy:ROWSxMIN-MAX"""
    validation_file: Optional[PathLike]
    """evaluation data, in the same formats"""
    max_train_samples: Optional[int]
    """maximum number of training rows; -1: all [-1]"""
    validation_split_percentage: Optional[int]
    """percentage of train_file's rows that are evaluated on and not trained on: drawn by data_seed, of each class the same
    share; masked LM: the first rows; 0: none [0]"""
    do_regression: Optional[bool]
    """True: regression, even if all labels are integers; False: classes, even if they are numbers; default: regression if a
    label is a number that is not whole (1.0 is)"""
    overwrite_output_dir: Optional[bool]
    """remove the checkpoints in output_dir before training [False]"""
    resume_from_checkpoint: Optional[Union[bool, PathLike]]
    """resume from this checkpoint; True: from the last one in output_dir; auto: the same if there is one, else start"""
    report_to: Optional[Literal["none", "tensorboard", "all"]]
    """integrations to report logs to [none]"""
    logging_dir: Optional[PathLike]
    """TensorBoard log folder; default: output_dir/runs"""
    per_device_train_batch_size: Optional[int]
    """batch size of a micro-batch [8]"""
    per_gpu_train_batch_size: Optional[int]
    """Another name of per_device_train_batch_size."""
    per_device_train_tokens: Optional[int]
    """tokens of a micro-batch at most, instead of per_device_train_batch_size rows: rows are packed once, and the packs are
    shuffled; 0: rows (snug's own) [0]"""
    gradient_accumulation_steps: Optional[int]
    """micro-batches per optimizer step, on each rank [1]"""
    mini_batch_size: Optional[int]
    """embedding: rows of a micro-batch, of which per_device_train_batch_size is a multiple: the loss is over the whole
    batch, the memory that of a micro-batch; 0: the batch is one [0]"""
    loss: Optional[
        Literal[
            "multiple_negatives_ranking",
            "cosent",
            "angle",
            "cosine_similarity",
            "contrastive",
            "triplet",
        ]
    ]
    """embedding: the loss, as sentence-transformers names it; default: cosent where rows have a score or label, else
    multiple_negatives_ranking (snug's own)"""
    similarity_scale: Optional[float]
    """embedding: what similarities are multiplied by, sentence-transformers' scale: of multiple_negatives_ranking, cosent
    and angle (snug's own) [20]"""
    margin: Optional[float]
    """embedding: the margin of contrastive (default: 0.5) and triplet (default: 5) [0]"""
    batch_sampler: Optional[Literal["batch_sampler", "no_duplicates"]]
    """embedding: no_duplicates: no text is twice in a step, where the loss would take it for another row's negative;
    batch_sampler: rows as they come (sentence-transformers' names) [batch_sampler]"""
    symmetric: Optional[bool]
    """embedding: multiple_negatives_ranking also finds the first text of each second one (snug's own) [False]"""
    matryoshka_dims: Optional[Union[str, list[str], tuple[str, ...]]]
    """embedding: the loss is summed over vectors that are cut off after so many values, as MatryoshkaLoss does"""
    matryoshka_weights: Optional[Union[str, list[str], tuple[str, ...]]]
    """embedding: weights of matryoshka_dims; default: 1 each"""
    num_train_epochs: Optional[float]
    """number of training epochs [3]"""
    max_steps: Optional[int]
    """optimizer steps; overrides num_train_epochs; -1: unset [-1]"""
    learning_rate: Optional[float]
    """peak learning rate of the schedule [5e-5]"""
    lr_scheduler_type: Optional[
        Literal[
            "linear",
            "cosine",
            "cosine_with_restarts",
            "polynomial",
            "constant",
            "constant_with_warmup",
            "inverse_sqrt",
            "cosine_with_min_lr",
            "cosine_warmup_with_min_lr",
            "warmup_stable_decay",
        ]
    ]
    """learning-rate schedule [linear]"""
    lr_scheduler_kwargs: Optional[Union[str, Mapping[str, Any]]]
    """settings of the schedule, such as '{"num_cycles": 2}'"""
    warmup_steps: Optional[float]
    """linear warm-up steps; below 1: a fraction of all steps [0]"""
    warmup_ratio: Optional[float]
    """Sets warmup_steps."""
    optim: Optional[
        Literal[
            "adamw_torch",
            "adamw_torch_fused",
            "adamw_8bit",
            "adamw_bnb_8bit",
            "sgd",
            "adafactor",
            "adagrad",
            "rmsprop",
            "lion_32bit",
            "adam",
            "adam_8bit",
        ]
    ]
    """optimizer; adam and adam_8bit, with L2 decay, are snug's own [adamw_torch_fused]"""
    optim_args: Optional[Union[str, Mapping[str, Any]]]
    """settings of the optimizer, such as momentum=0.9,nesterov=True"""
    weight_decay: Optional[float]
    """weight decay, not applied to biases and norms [0]"""
    adam_beta1: Optional[float]
    """beta1 of Adam and Lion [0.9]"""
    adam_beta2: Optional[float]
    """beta2 of Adam and Lion [0.999]"""
    adam_epsilon: Optional[float]
    """epsilon of Adam [1e-8]"""
    max_grad_norm: Optional[float]
    """maximum gradient norm, for clipping; 0: no clipping [1]"""
    label_smoothing_factor: Optional[float]
    """label smoothing; single-label tasks only [0]"""
    loss_type: Optional[Literal["sigmoid", "hinge", "ipo", "robust", "sigmoid_norm"]]
    """preference tuning: the loss of a pair, as TRL's DPOTrainer names it [sigmoid]"""
    beta: Optional[float]
    """preference tuning: how much a deviation from the reference model counts; ipo: the regularization [0.1]"""
    label_smoothing: Optional[float]
    """preference tuning: probability that a preference is wrong, of loss_type sigmoid and robust [0]"""
    ref_model_name_or_path: Optional[PathLike]
    """preference tuning: model folder of the reference; default: the model as it is before the first step, without a new
    adapter"""
    seed: Optional[int]
    """random seed: initial weights, dropout, order of rows, masks [42]"""
    data_seed: Optional[int]
    """random seed of the order of rows and of masks; -1: seed [-1]"""
    train_sampling_strategy: Optional[Literal["random", "sequential", "group_by_length"]]
    """order of the training rows [random]"""
    group_by_length: Optional[bool]
    """Sets train_sampling_strategy."""
    freeze: Optional[Union[str, list[str], tuple[str, ...]]]
    """list of parts that are not trained: embeddings, layer.N, layer.A-B, base_model (all but the task head); they have no
    gradients, no optimizer states and no backward (snug's own)"""
    gradient_checkpointing: Optional[bool]
    """store only each layer's input and recompute the layer in backward; the same as --recompute layer [False]"""
    activation_checkpointing: Optional[bool]
    """Another name of gradient_checkpointing."""
    recompute: Optional[Union[str, list[str], tuple[str, ...]]]
    """activations that are recomputed in backward instead of stored: none, elementwise, ffn, attention or layer, for all
    layers or as a list, such as layer*4,elementwise*2; default: elementwise (snug's own)"""
    update_in_backward: Optional[bool]
    """update weights in backward and free each gradient; with clipping, backward runs twice (snug's own) [False]"""
    dataloader_drop_last: Optional[bool]
    """drop an epoch's last incomplete batch [False]"""
    eval_strategy: Optional[Literal["no", "steps", "epoch"]]
    """when to evaluate [no]"""
    evaluation_strategy: Optional[Literal["no", "steps", "epoch"]]
    """Another name of eval_strategy."""
    eval_steps: Optional[float]
    """steps between evaluations; below 1: a fraction of all steps; 0: logging_steps [0]"""
    eval_delay: Optional[float]
    """epochs or steps before the first evaluation [0]"""
    eval_on_start: Optional[bool]
    """evaluate before the first step [False]"""
    logging_strategy: Optional[Literal["no", "steps", "epoch"]]
    """when to log [steps]"""
    logging_steps: Optional[float]
    """steps between logs; below 1: a fraction of all steps [500]"""
    logging_first_step: Optional[bool]
    """log the first step too [False]"""
    logging_nan_inf_filter: Optional[bool]
    """replace NaN and infinite losses in logs by the mean of the others [True]"""
    save_strategy: Optional[Literal["no", "steps", "epoch", "best"]]
    """when to save a checkpoint [steps]"""
    save_steps: Optional[float]
    """steps between checkpoints; below 1: a fraction of all steps [500]"""
    save_total_limit: Optional[int]
    """maximum number of checkpoints, the best one included; 0: no limit [0]"""
    save_only_model: Optional[bool]
    """save checkpoints without optimizer states; they cannot be resumed [False]"""
    load_best_model_at_end: Optional[bool]
    """load the best checkpoint at the end: the best of the steps that are evaluated and saved [False]"""
    metric_for_best_model: Optional[str]
    """metric that selects the best checkpoint: loss, accuracy, f1, …; default: loss"""
    greater_is_better: Optional[bool]
    """whether larger metrics are better; default: True unless the metric is a loss, mse or perplexity"""
    early_stopping_patience: Optional[int]
    """stop after this many evaluations without improvement; 0: off [0]"""
    early_stopping_threshold: Optional[float]
    """minimum improvement for early_stopping_patience [0]"""


class _Of31(TypedDict, total=False):
    cache_dir: Optional[PathLike]
    """Hugging Face cache, where model names are looked up; default: HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub"""
    model_revision: Optional[str]
    """branch, tag or commit of a model in the Hugging Face cache [main]"""


class _Of7(TypedDict, total=False):
    task: Optional[
        Literal[
            "classification",
            "text_classification",
            "mlm",
            "clm",
            "causal_lm",
            "text_generation",
            "dpo",
            "preference_tuning",
            "token_classification",
            "ner",
            "embedding",
            "sentence_embedding",
            "question_answering",
            "question-answering",
            "qa",
            "multiple_choice",
            "multiple-choice",
            "swag",
            "reranking",
            "rerank",
            "cross-encoder",
        ]
    ]
    """task, which selects the head; default: derived from the data and the model folder (snug's own)"""
    queries_file: Optional[PathLike]
    """embedding: train, eval: instead of validation_file, the queries of a retrieval, for which the documents of
    corpus_file are ranked: columns _id and text, as BEIR's queries.jsonl (snug's own)"""
    corpus_file: Optional[PathLike]
    """embedding: the documents of queries_file: columns _id, text and perhaps title, as BEIR's corpus.jsonl (snug's own)"""
    relevance_file: Optional[PathLike]
    """embedding: the documents that are relevant to a query: columns query-id, corpus-id and score, above 0, as BEIR's
    qrels/test.tsv (snug's own)"""
    prompts: Optional[str]
    """embedding: train, eval: what is put before the texts of train_file and validation_file: one text, or an object of
    texts by column, {"anchor": "query: "}"""
    query_prompt: Optional[str]
    """embedding: what is put before each of queries_file; default: the model's prompt query"""
    corpus_prompt: Optional[str]
    """embedding: what is put before each of corpus_file; default: the model's prompt document"""
    max_eval_samples: Optional[int]
    """maximum number of evaluation rows; -1: all [-1]"""
    max_val_samples: Optional[int]
    """Another name of max_eval_samples."""
    overwrite_cache: Optional[bool]
    """tokenize again, even if the cached tokens are valid [False]"""
    line_by_line: Optional[bool]
    """masked LM; causal LM, of a text file: each line is a row; otherwise the text is concatenated and split into blocks
    [False]"""
    block_size: Optional[int]
    """causal LM: the texts of any file are concatenated and split into blocks of so many tokens, as in run_clm.py; default:
    those of text files, into blocks of max_seq_length [0]"""
    completion_only_loss: Optional[bool]
    """causal LM: in rows with a prompt and a completion only the completion's tokens have a loss [True]"""
    assistant_only_loss: Optional[bool]
    """causal LM: in rows of messages only the tokens that the assistant says have a loss [False]"""
    chat_template_path: Optional[PathLike]
    """causal LM, tokenize --chat: chat template, a Jinja file, which the trained model's folder gets; default: the
    tokenizer's"""
    chat_template_date: Optional[str]
    """what a chat template shows that asks for the date: 2026-11-27, or a time, 2026-11-27T08:30:00; default: today, eval:
    that of the model's training (snug's own)"""
    mlm_probability: Optional[float]
    """masked LM: fraction of tokens to mask [0.15]"""
    whole_word_mask: Optional[bool]
    """masked LM: mask whole words, as run_mlm_wwm.py, not single tokens [False]"""
    output_dir: Optional[PathLike]
    """folder for the model, results and checkpoints"""
    max_new_tokens: Optional[int]
    """maximum tokens of an answer [20]"""
    min_new_tokens: Optional[int]
    """tokens before which an answer does not end [0]"""
    do_sample: Optional[bool]
    """draw tokens by their probabilities, by seed; else the most probable [False]"""
    temperature: Optional[float]
    """do_sample: logits are divided by it [1]"""
    top_p: Optional[float]
    """do_sample: of the most probable tokens whose probabilities add up to it [1]"""
    min_p: Optional[float]
    """do_sample: of tokens with this fraction of the largest probability; 0: off [0]"""
    repetition_penalty: Optional[float]
    """logits of tokens of the prompt and the answer are divided by it, or multiplied if below 0 [1]"""
    no_repeat_ngram_size: Optional[int]
    """no sequence of so many tokens occurs twice; 0: off [0]"""
    num_beams: Optional[int]
    """beam search: beams of each prompt; 1: none [1]"""
    generation_num_beams: Optional[int]
    """Another name of num_beams."""
    length_penalty: Optional[float]
    """beam search: scores are divided by this power of the length [1]"""
    predict_with_generate: Optional[bool]
    """train, eval: also answer the prompts of validation_file, and compare: exact match, ROUGE, BLEU [False]"""
    generation_max_length: Optional[int]
    """predict_with_generate: tokens of a prompt and its answer at most, without max_new_tokens; 0: generation_config.json's
    [0]"""
    stop_strings: Optional[str]
    """texts that end an answer: one, or a JSON list of them"""
    fit: Optional[bool]
    """if the run exceeds its memory limit, add the cheapest methods that make it fit; arguments that are set do not change.
    Answers: fewer prompts at a time, and where one does not fit, as many beams as do (snug's own) [False]"""


class _Of12(TypedDict, total=False):
    prompt_name: Optional[str]
    """embed: the name of the model's prompt that is put before each text; default: default_prompt_name of the model"""
    bf16_full_eval: Optional[bool]
    """eval, predict, generate: weights in bf16, too: half the memory [False]"""
    fp16_full_eval: Optional[bool]
    """eval, predict: weights in fp16, too: half the memory; on a GPU only [False]"""


class _Of8(TypedDict, total=False):
    top_k: Optional[int]
    """predict: masked LM: the most probable tokens of a mask, at most 1000 (snug's own); generate: with do_sample: one of
    so many is drawn; 0: of all; there the default is 50 [1]"""
    normalize_embeddings: Optional[bool]
    """embed: scale vectors to length 1 [False]"""
    truncate_dim: Optional[int]
    """embed: keep so many of a vector's first values; 0: all [0]"""
    prompt: Optional[str]
    """generate: one prompt, instead of test_file; with chat: a user's message; embed: what is put before each text (snug's
    own)"""


class _Of2(TypedDict, total=False):
    gpu: Optional[PathLike]
    """plan: for a GPU that is not installed, by its name, as "RTX 4090" or H100, or by a file of its rates, as snug bench
    rates --device cuda --json prints them (snug's own)"""


class TrainArguments(_Of3, _Of7, _Of15, _Of31, total=False):
    """The arguments of train()."""


class PlanArguments(_Of2, _Of3, _Of7, _Of15, _Of31, total=False):
    """The arguments of plan()."""


class EvaluateArguments(_Of7, _Of12, _Of15, _Of31, total=False):
    """The arguments of evaluate()."""


class LoadArguments(_Of8, _Of12, _Of15, _Of31, total=False):
    """The arguments of load()."""


class PullArguments(_Of31, total=False):
    """The arguments of pull()."""
