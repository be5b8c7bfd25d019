/* SPDX-License-Identifier: Apache-2.0 */
/* Names, meaning and defaults are those of transformers 5's TrainingArguments, run_glue.py, run_classification.py and
   run_mlm.py; the help of snug's own arguments contains "snug's own". */
#include "args/table.h"
#include "data/data_file.h"
#include "data/task.h"

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
#define GENERATION "Generation"
#define TRAINING "Training"
#define ADAPTERS "LoRA adapters"
#define MEMORY "Memory for time"
#define MACHINE "Machine and loading"
#define STRATEGY "Evaluation, logging and saving"

/* Hugging Face's values that snug does not support yet. */
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
    TEXT(args_from, "", MODEL, "FILE|DIR",
         "JSON file of arguments, such as OUTPUT_DIR/training_args.json, or OUTPUT_DIR, which repeats its run; eval, "
         "predict: without train_file and others of a training; arguments of the command line have precedence (snug's "
         "own)"),
    TEXT(model_name_or_path, "", MODEL, "DIR", "model folder, or model name in the local Hugging Face cache"),
    TEXT(config_name, "", MODEL, "DIR",
         "folder of config.json, or bert-base-uncased, bert-large-uncased, mpnet-base, ModernBERT-base or -large, "
         "deberta-v3-xsmall, -small, -base or -large; "
         "without model_name_or_path: train from scratch"),
    TEXT(tokenizer_name, "", MODEL, "DIR", "tokenizer folder; default: the model folder"),
    TEXT(cache_dir, "", MODEL, "DIR",
         "Hugging Face cache, where model names are looked up; default: HF_HUB_CACHE, HF_HOME/hub or "
         "~/.cache/huggingface/hub"),
    ROW(STRING, model_revision, "", MODEL, "NAME", "main", NULL, NULL,
        "branch, tag or commit of a model in the Hugging Face cache"),
    ROW(CHOICE, task, "", MODEL, SNUG_TASK_NAMES, "", NULL, NULL,
        "task, which selects the head; default: derived from the data and the model folder (snug's own)"),
    ROW(CHOICE, dtype, "torch_dtype", MODEL, "float32|bfloat16|auto", "float32", NULL, "float16",
        "type of the stored weights; bfloat16: no fp32 master weights, stochastic rounding; on a CPU it is the default "
        "for files in bf16 that are only read; auto is float32"),
    FLAG(load_in_4bit, "", MODEL, "False",
         "store the weights of the linears as 4-bit codes (QLoRA), as bitsandbytes; a model folder that is quantized "
         "needs no flag; they must be frozen"),
    ROW(CHOICE, bnb_4bit_quant_type, "", MODEL, "nf4|fp4", "nf4", NULL, NULL, "load_in_4bit: type of the codes"),
    FLAG(bnb_4bit_use_double_quant, "use_bnb_nested_quant", MODEL, "True",
         "load_in_4bit: the scales of the codes are quantized, too: 4.13 instead of 4.5 bits a weight"),
    ROW(CHOICE, bnb_4bit_compute_dtype, "", MODEL, "bfloat16|float16|float32", "bfloat16", NULL, NULL,
        "load_in_4bit: type of the run's matmuls, the same as --bf16 or --fp16; float32: neither"),
    ROW(CHOICE, merge_into, "", MODEL, "dequantized|original", "dequantized", NULL, NULL,
        "merge, of adapters that were trained beside 4-bit weights: into the values of their codes, which the training "
        "saw, or into the original weights (snug's own)"),
    TEXT(llm_int8_skip_modules, "", MODEL, "A,B", "load_in_4bit: modules that are not quantized"),
    FLAG(ignore_mismatched_sizes, "", MODEL, "False",
         "initialise a new head if the checkpoint's head has another shape"),

    TEXT(train_file, "", DATA, "FILE",
         "training data: .csv, .tsv, .json, .jsonl, .txt or .conll, also with .gz; -: standard input; synthetic data: "
         "dummy:ROWSxTOKENS, dummy:ROWSxMIN-MAX"),
    TEXT(validation_file, "", DATA, "FILE", "evaluation data, in the same formats"),
    TEXT(queries_file, "", DATA, "FILE",
         "embedding: train, eval: instead of validation_file, the queries of a retrieval, for which the documents of "
         "corpus_file are ranked: columns _id and text, as BEIR's queries.jsonl (snug's own)"),
    TEXT(corpus_file, "", DATA, "FILE",
         "embedding: the documents of queries_file: columns _id, text and perhaps title, as BEIR's corpus.jsonl "
         "(snug's own)"),
    TEXT(relevance_file, "", DATA, "FILE",
         "embedding: the documents that are relevant to a query: columns query-id, corpus-id and score, above 0, as "
         "BEIR's qrels/test.tsv (snug's own)"),
    TEXT(prompts, "", DATA, "TEXT|JSON",
         "embedding: train, eval: what is put before the texts of train_file and validation_file: one text, or an "
         "object of texts by column, {\"anchor\": \"query: \"}"),
    TEXT(query_prompt, "", DATA, "TEXT",
         "embedding: what is put before each of queries_file; default: the model's prompt query"),
    TEXT(corpus_prompt, "", DATA, "TEXT",
         "embedding: what is put before each of corpus_file; default: the model's prompt document"),
    TEXT(test_file, "", DATA, "FILE", "prediction data, in the same formats"),
    TEXT(text, "", DATA, "TEXT", "predict, embed: one text, instead of test_file (snug's own)"),
    TEXT(text_pair, "", DATA, "TEXT", "predict, embed: the second text of a pair (snug's own)"),
    TEXT(prompt_name, "", DATA, "NAME",
         "embed: the name of the model's prompt that is put before each text; default: default_prompt_name of the "
         "model"),
    TEXT(keep_columns, "", DATA, "A,B",
         "predict: columns of test_file to write beside the predictions; all: every one (snug's own)"),
    FLAG(return_all_scores, "", DATA, "False",
         "predict: classification: the probabilities of all classes (snug's own)"),
    COUNT(
        top_k, "", DATA, "1", "[0,16777216]",
        "predict: masked LM: the most probable tokens of a mask, at most 1000 (snug's own); generate: with do_sample: "
        "one of so many is drawn; 0: of all; there the default is 50"),
    ROW(CHOICE, data_format, "", DATA, SNUG_DATA_FORMATS, "", NULL, NULL,
        "format of the data files, where their names do not tell it, as on standard input (snug's own)"),
    TEXT(text_column_name, "dataset_text_field", DATA, "NAME",
         "text column; default: the pair of columns of a GLUE task, sentence or text, else the only column that can be "
         "a text; causal LM: prompt and completion, or text; token classification: tokens; in a file with a word a "
         "line also a column's number, from 1"),
    TEXT(text_pair_column_name, "", DATA, "NAME",
         "second text column, of pairs of texts; causal LM: of the completions (snug's own)"),
    TEXT(text_column_names, "", DATA, "A,B", "text columns that are joined to one text"),
    ROW(STRING, text_column_delimiter, "", DATA, "TEXT", "", NULL, NULL,
        "what is put between joined text columns; default: a space"),
    TEXT(
        label_column_name, "", DATA, "NAME|A,B",
        "label column; default: label, labels or gold_label; token classification: ner_tags, tags or labels, in a file "
        "with a word a line also a column's number, from 1; several labels: columns of zeros and ones, A,B,C"),
    TEXT(label_separator, "", DATA, "TEXT",
         "what separates the labels in a text that holds several, such as '|'; none: '|' is a part of a class's name "
         "(snug's own)"),
    ROW(STRING, missing_label_values, "", DATA, "A,B", "", NULL, NULL,
        "labels that mean that a row has none: it is left out, and so are rows without a label; none: every label is a "
        "class; default: -1 and - among other classes (snug's own)"),
    COUNT(max_seq_length, "max_length", DATA, "128", "[3,)",
          "maximum tokens of a sequence; longer texts are truncated; causal LM: 1024 if it is not given, question "
          "answering: 384, multiple choice: at most 1024"),
    COUNT(max_train_samples, "", DATA, "-1", "[-1,)", "maximum number of training rows; -1: all"),
    COUNT(max_eval_samples, "max_val_samples", DATA, "-1", "[-1,)", "maximum number of evaluation rows; -1: all"),
    COUNT(max_predict_samples, "max_test_samples", DATA, "-1", "[-1,)", "maximum number of prediction rows; -1: all"),
    COUNT(validation_split_percentage, "", DATA, "0", "[0,99]",
          "percentage of train_file's rows that are evaluated on and not trained on: drawn by data_seed, of each class "
          "the same share; masked LM: the first rows; 0: none"),
    FLAG(overwrite_cache, "", DATA, "False", "tokenize again, even if the cached tokens are valid"),
    FLAG(line_by_line, "", DATA, "False",
         "masked LM; causal LM, of a text file: each line is a row; otherwise the text is concatenated and split into "
         "blocks"),
    COUNT(
        block_size, "", DATA, "0", "[0,)",
        "causal LM: the texts of any file are concatenated and split into blocks of so many tokens, as in run_clm.py; "
        "default: those of text files, into blocks of max_seq_length"),
    FLAG(completion_only_loss, "", DATA, "True",
         "causal LM: in rows with a prompt and a completion only the completion's tokens have a loss"),
    FLAG(assistant_only_loss, "", DATA, "False",
         "causal LM: in rows of messages only the tokens that the assistant says have a loss"),
    TEXT(chat_template_path, "", DATA, "FILE",
         "causal LM, tokenize --chat: chat template, a Jinja file, which the trained model's folder gets; default: the "
         "tokenizer's"),
    TEXT(chat_template_date, "", DATA, "TEXT",
         "what a chat template shows that asks for the date: 2026-11-27, or a time, 2026-11-27T08:30:00; default: "
         "today, eval: that of the model's training (snug's own)"),
    REAL(mlm_probability, DATA, "0.15", "(0,1]", "masked LM: fraction of tokens to mask"),
    FLAG(whole_word_mask, "", DATA, "False", "masked LM: mask whole words, as run_mlm_wwm.py, not single tokens"),
    FLAG(label_all_tokens, "", DATA, "False", "token classification: label all tokens of a word, not only the first"),
    FLAG(return_entity_level_metrics, "", DATA, "False", "token classification: also metrics of each entity type"),
    ROW(CHOICE, ranking_loss, "", DATA, "binary|listnet|margin", "binary", NULL, NULL,
        "reranking: loss; binary: cross entropy of each document's label from 0 to 1; listnet: of a query's labels "
        "together; margin: squared error of the scores' differences (snug's own)"),
    TEXT(query, "", DATA, "TEXT",
         "reranking: predict: the query of all documents of test_file, which are sorted by their scores (snug's own)"),
    COUNT(doc_stride, "", DATA, "128", "[0,)",
          "question answering: tokens that neighbouring parts of a long context share"),
    FLAG(version_2_with_negative, "", DATA, "False", "question answering: questions may have no answer, as in SQuAD 2"),
    REAL(null_score_diff_threshold, DATA, "0", "[-1e6,1e6]",
         "question answering: by how much no answer must have the higher score to be the answer"),
    COUNT(n_best_size, "", DATA, "20", "[1,100]",
          "question answering: first and last tokens that are combined to answers, and answers that are written"),
    COUNT(max_answer_length, "", DATA, "30", "[1,)", "question answering: maximum number of tokens of an answer"),
    FLAG(class_metrics, "", DATA, "False",
         "classification: also precision, recall and F1 of each class, AUC, the confusion matrix; several labels: the "
         "threshold with the best F1 (snug's own)"),
    REAL(threshold, DATA, "0", "[0,1)",
         "several labels: probability from which on a class is predicted; 0: above one half (snug's own)"),
    TEXT(
        class_weights, "", DATA, "A=W,B=W",
        "weights of the classes in the loss, by name (1 if not named) or as a list in the model's order; balanced: by "
        "the rows of each class; several labels: of a class's positives; none: no weights; eval: default, those of the "
        "model's training (snug's own)"),
    ROW(TRISTATE, do_regression, "", DATA, "BOOL", "", NULL, NULL,
        "True: regression, even if all labels are integers; False: classes, even if they are numbers; default: "
        "regression if a label is a number that is not whole (1.0 is)"),
    FLAG(strict, "", DATA, "False", "refuse malformed UTF-8 instead of replacing it (snug's own)"),

    TEXT(output_dir, "", OUTPUT, "DIR", "folder for the model, results and checkpoints"),
    FLAG(overwrite_output_dir, "", OUTPUT, "False", "remove the checkpoints in output_dir before training"),
    TEXT(resume_from_checkpoint, "", OUTPUT, "DIR|True|auto",
         "resume from this checkpoint; True: from the last one in output_dir; auto: the same if there is one, else "
         "start"),
    ROW(BYTES, max_shard_size, "", OUTPUT, "SIZE", "50GB", NULL, NULL,
        "maximum size of a file of weights, such as 5GB or 50MB; a larger model is saved in several, with an index"),
    ROW(CHOICE, format, "", OUTPUT, "gguf|onnx", "gguf", NULL, NULL, "export: format of the file (snug's own)"),
    ROW(CHOICE, outtype, "", OUTPUT, "f32|f16|bf16|q8_0", "f16", NULL, NULL,
        "export: type of the matrices; vectors are f32 (llama.cpp's name)"),
    TEXT(output_file, "outfile", OUTPUT, "FILE",
         "export: the file, which is replaced; embed: a .npy file for the vectors, instead of JSON lines (snug's own)"),
    FLAG(similarity, "", OUTPUT, "False",
         "embed: the similarity of the two texts of each row, instead of vectors (snug's own)"),
    FLAG(normalize_embeddings, "", OUTPUT, "False", "embed: scale vectors to length 1"),
    COUNT(truncate_dim, "", OUTPUT, "0", "[0,)", "embed: keep so many of a vector's first values; 0: all"),
    FLAG(adapter_only, "", OUTPUT, "False",
         "export: the LoRA adapters alone, for llama.cpp's --lora, not the merged model (snug's own)"),
    ROW(CHOICE, report_to, "", OUTPUT, "none|tensorboard|all", "none", NULL, OTHER_REPORTS,
        "integrations to report logs to"),
    TEXT(logging_dir, "", OUTPUT, "DIR", "TensorBoard log folder; default: output_dir/runs"),
    ROW(CHOICE, log_level, "", OUTPUT, "detail|debug|info|warning|error|critical|passive", "passive", NULL, NULL,
        "minimum level of messages; passive is info"),
    FLAG(disable_tqdm, "", OUTPUT, "False", "no live progress bar"),
    FLAG(json, "", OUTPUT, "False", "print results as JSON (snug's own)"),
    FLAG(
        csv_escape_formulas, "", OUTPUT, "False",
        "predict: put an apostrophe before labels that a spreadsheet would evaluate: =, +, -, @, tab, CR (snug's own)"),
    FLAG(decode, "", OUTPUT, "False", "tokenize: also the text that the ids stand for (snug's own)"),
    FLAG(skip_special_tokens, "", OUTPUT, "False", "leave special tokens out of the text of --decode"),
    FLAG(chat, "", OUTPUT, "False",
         "generate: prompt is a user's message for the chat template; tokenize: rows are chats: the text that the chat "
         "template makes of each, its tokens, and which of them the "
         "assistant says (snug's own)"),

    TEXT(prompt, "", GENERATION, "TEXT",
         "generate: one prompt, instead of test_file; with chat: a user's message; embed: what is put before each text "
         "(snug's own)"),
    COUNT(max_new_tokens, "", GENERATION, "20", "[1,16777216]", "maximum tokens of an answer"),
    COUNT(min_new_tokens, "", GENERATION, "0", "[0,16777216]", "tokens before which an answer does not end"),
    FLAG(do_sample, "", GENERATION, "False", "draw tokens by their probabilities, by seed; else the most probable"),
    REAL(temperature, GENERATION, "1", "[0,1e6]", "do_sample: logits are divided by it"),
    REAL(top_p, GENERATION, "1", "[0,1]", "do_sample: of the most probable tokens whose probabilities add up to it"),
    REAL(min_p, GENERATION, "0", "[0,1]", "do_sample: of tokens with this fraction of the largest probability; 0: off"),
    REAL(repetition_penalty, GENERATION, "1", "[1e-6,1e6]",
         "logits of tokens of the prompt and the answer are divided by it, or multiplied if below 0"),
    COUNT(no_repeat_ngram_size, "", GENERATION, "0", "[0,16777216]",
          "no sequence of so many tokens occurs twice; 0: off"),
    COUNT(num_beams, "generation_num_beams", GENERATION, "1", "[1,16]", "beam search: beams of each prompt; 1: none"),
    REAL(length_penalty, GENERATION, "1", "[-1e6,1e6]", "beam search: scores are divided by this power of the length"),
    ROW(CHOICE, early_stopping, "", GENERATION, "False|True|never", "False", NULL, NULL,
        "beam search: when no better answer is expected; True: as soon as there are num_beams; never: when none is "
        "possible"),
    COUNT(num_return_sequences, "", GENERATION, "1", "[1,65536]", "answers to each prompt"),
    FLAG(predict_with_generate, "", GENERATION, "False",
         "train, eval: also answer the prompts of validation_file, and compare: exact match, ROUGE, BLEU"),
    COUNT(generation_max_length, "", GENERATION, "0", "[0,16777216]",
          "predict_with_generate: tokens of a prompt and its answer at most, without max_new_tokens; 0: "
          "generation_config.json's"),
    FLAG(plan_only, "", GENERATION, "False",
         "generate: print the memory that the answers would take, and answer nothing (snug's own)"),
    TEXT(stop_strings, "", GENERATION, "TEXT|JSON", "texts that end an answer: one, or a JSON list of them"),

    COUNT(per_device_train_batch_size, "per_gpu_train_batch_size", TRAINING, "8", "[1,65536]",
          "batch size of a micro-batch"),
    COUNT(per_device_train_tokens, "", TRAINING, "0", "[0,2147483647]",
          "tokens of a micro-batch at most, instead of per_device_train_batch_size rows: rows are packed once, and the "
          "packs are shuffled; 0: rows (snug's own)"),
    COUNT(gradient_accumulation_steps, "", TRAINING, "1", "[1,65536]",
          "micro-batches per optimizer step, on each rank"),
    COUNT(mini_batch_size, "", TRAINING, "0", "[0,65536]",
          "embedding: rows of a micro-batch, of which per_device_train_batch_size is a multiple: the loss is over the "
          "whole batch, the memory that of a micro-batch; 0: the batch is one"),
    ROW(CHOICE, loss, "", TRAINING, "multiple_negatives_ranking|cosent|angle|cosine_similarity|contrastive|triplet", "",
        NULL, NULL,
        "embedding: the loss, as sentence-transformers names it; default: cosent where rows have a score or label, "
        "else multiple_negatives_ranking (snug's own)"),
    REAL(similarity_scale, TRAINING, "20", "(0,1e6]",
         "embedding: what similarities are multiplied by, sentence-transformers' scale: of multiple_negatives_ranking, "
         "cosent and angle (snug's own)"),
    REAL(margin, TRAINING, "0", "[0,1e6]",
         "embedding: the margin of contrastive (default: 0.5) and triplet (default: 5)"),
    ROW(CHOICE, batch_sampler, "", TRAINING, "batch_sampler|no_duplicates", "batch_sampler", NULL,
        "no_duplicates_hashed|group_by_label",
        "embedding: no_duplicates: no text is twice in a step, where the loss would take it for another row's "
        "negative; "
        "batch_sampler: rows as they come (sentence-transformers' names)"),
    FLAG(symmetric, "", TRAINING, "False",
         "embedding: multiple_negatives_ranking also finds the first text of each second one (snug's own)"),
    TEXT(matryoshka_dims, "", TRAINING, "A,B",
         "embedding: the loss is summed over vectors that are cut off after so many values, as MatryoshkaLoss does"),
    TEXT(matryoshka_weights, "", TRAINING, "A,B", "embedding: weights of matryoshka_dims; default: 1 each"),
    REAL(num_train_epochs, TRAINING, "3", "(0,1000000]", "number of training epochs"),
    COUNT(max_steps, "", TRAINING, "-1", "[-1,1e12]", "optimizer steps; overrides num_train_epochs; -1: unset"),
    REAL(learning_rate, TRAINING, "5e-5", "[0,)", "peak learning rate of the schedule"),
    ROW(CHOICE, lr_scheduler_type, "", TRAINING,
        "linear|cosine|cosine_with_restarts|polynomial|constant|constant_with_warmup|inverse_sqrt|cosine_with_min_lr|"
        "cosine_warmup_with_min_lr|warmup_stable_decay",
        "linear", NULL, "reduce_lr_on_plateau|greedy", "learning-rate schedule"),
    TEXT(lr_scheduler_kwargs, "", TRAINING, "JSON", "settings of the schedule, such as '{\"num_cycles\": 2}'"),
    REAL(warmup_steps, TRAINING, "0", "[0,)", "linear warm-up steps; below 1: a fraction of all steps"),
    ROW(CHOICE, optim, "", TRAINING,
        "adamw_torch|adamw_torch_fused|adamw_8bit|adamw_bnb_8bit|sgd|adafactor|adagrad|rmsprop|lion_32bit|adam|adam_"
        "8bit",
        "adamw_torch_fused", NULL, OTHER_OPTIMIZERS, "optimizer; adam and adam_8bit, with L2 decay, are snug's own"),
    TEXT(optim_args, "", TRAINING, "KEY=VALUE", "settings of the optimizer, such as momentum=0.9,nesterov=True"),
    REAL(weight_decay, TRAINING, "0", "[0,)", "weight decay, not applied to biases and norms"),
    REAL(adam_beta1, TRAINING, "0.9", "[0,1)", "beta1 of Adam and Lion"),
    REAL(adam_beta2, TRAINING, "0.999", "[0,1)", "beta2 of Adam and Lion"),
    REAL(adam_epsilon, TRAINING, "1e-8", "[0,)", "epsilon of Adam"),
    REAL(max_grad_norm, TRAINING, "1", "[0,)", "maximum gradient norm, for clipping; 0: no clipping"),
    REAL(label_smoothing_factor, TRAINING, "0", "[0,1)", "label smoothing; single-label tasks only"),
    ROW(CHOICE, loss_type, "", TRAINING, "sigmoid|hinge|ipo|robust|sigmoid_norm", "sigmoid", NULL,
        "exo_pair|nca_pair|bco_pair|sppo_hard|aot|aot_unpaired|apo_zero|apo_down|discopop|sft",
        "preference tuning: the loss of a pair, as TRL's DPOTrainer names it"),
    REAL(beta, TRAINING, "0.1", "(0,1000000]",
         "preference tuning: how much a deviation from the reference model counts; ipo: the regularization"),
    REAL(label_smoothing, TRAINING, "0", "[0,0.5)",
         "preference tuning: probability that a preference is wrong, of loss_type sigmoid and robust"),
    TEXT(ref_model_name_or_path, "", TRAINING, "DIR",
         "preference tuning: model folder of the reference; default: the model as it is before the first step, without "
         "a new adapter"),
    COUNT(seed, "", TRAINING, "42", "[0,)", "random seed: initial weights, dropout, order of rows, masks"),
    COUNT(data_seed, "", TRAINING, "-1", "[-1,)", "random seed of the order of rows and of masks; -1: seed"),
    ROW(CHOICE, train_sampling_strategy, "", TRAINING, "random|sequential|group_by_length", "random", NULL,
        "batch_rebalance", "order of the training rows"),

    TEXT(freeze, "", TRAINING, "PARTS",
         "list of parts that are not trained: embeddings, layer.N, layer.A-B, base_model (all but the task head); they "
         "have no gradients, no optimizer states and no backward (snug's own)"),

    FLAG(
        use_peft, "", ADAPTERS, "False",
        "train LoRA adapters beside the model's linears, and nothing else of it; the output is an adapter's folder, as "
        "PEFT writes it"),
    COUNT(lora_r, "", ADAPTERS, "16", "[1,65536]", "rank of the adapters"),
    COUNT(lora_alpha, "", ADAPTERS, "32", "[1,1e6]", "what they add is multiplied by lora_alpha / lora_r"),
    REAL(lora_dropout, ADAPTERS, "0.05", "[0,1)", "dropout of the adapters' inputs"),
    TEXT(lora_target_modules, "", ADAPTERS, "A,B",
         "linears that get an adapter: names or their ends, as q_proj,v_proj; all-linear; or one regular expression of "
         "whole names; default: PEFT's for the model's type"),
    TEXT(
        lora_modules_to_save, "", ADAPTERS, "A,B",
        "modules that are trained as a whole, and saved with the adapters; a classifier always is; a word table and an "
        "output that are one weight are two then"),
    TEXT(trainable_token_indices, "", ADAPTERS, "IDS|FILE|JSON",
         "ids of tokens whose rows of the word table are trained, too, as 5,6,7; in a language model whose output is "
         "that table, of the output as well; JSON may name modules: {\"embed_tokens\": [5], \"lm_head\": [6]}"),
    FLAG(use_rslora, "", ADAPTERS, "False", "divide lora_alpha by the root of the rank"),
    ROW(CHOICE, bias, "", ADAPTERS, "none|all|lora_only", "none", NULL, NULL,
        "biases of the model that are trained and saved, too: all, or those of the linears that have an adapter"),
    FLAG(lora_bias, "", ADAPTERS, "False", "give each adapter a bias of its own"),
    FLAG(
        use_dora, "", ADAPTERS, "False",
        "DoRA: the adapters change the directions of the weights of each output, a vector of magnitudes their lengths"),
    TEXT(lora_task_type, "", ADAPTERS, "NAME",
         "SEQ_CLS, TOKEN_CLS or CAUSAL_LM, which must be that of the task; default: that of the task"),
    TEXT(rank_pattern, "", ADAPTERS, "FILE|JSON",
         "ranks of some linears, by name or regular expression: {\"down_proj\": 8}; PEFT's rank_pattern"),
    TEXT(alpha_pattern, "", ADAPTERS, "FILE|JSON", "the same of lora_alpha; PEFT's alpha_pattern"),
    TEXT(
        adapter_name_or_path, "", ADAPTERS, "DIR",
        "folder of an adapter of model_name_or_path: to continue its training, to evaluate or to predict with it; also "
        "model_name_or_path can be such a folder, which names its model (snug's own)"),

    FLAG(gradient_checkpointing, "activation_checkpointing", MEMORY, "False",
         "store only each layer's input and recompute the layer in backward; the same as --recompute layer"),
    TEXT(recompute, "", MEMORY, "LEVELS",
         "activations that are recomputed in backward instead of stored: none, elementwise, ffn, attention or layer, "
         "for "
         "all layers or as a list, such as layer*4,elementwise*2; default: elementwise (snug's own)"),
    TEXT(offload, "", MEMORY, "A,B",
         "tensors to offload: optimizer, gradients, weights, master_weights, embeddings, activations; from the CPU to "
         "a file, from a GPU to page-locked host memory, or to a file in offload_dir (snug's own)"),
    REAL(offload_ratio, MEMORY, "1", "(0,1]",
         "fraction of the optimizer states, gradients and weights of --offload that is offloaded (snug's own)"),
    REAL(offload_update, MEMORY, "0", "[0,1]",
         "fraction of the offloaded weights that the host's cores update, of those whose gradients and states are "
         "offloaded too; a GPU updates the others (snug's own)"),
    TEXT(offload_dir, "", MEMORY, "DIR",
         "folder of the unnamed offload file; default on the CPU: output_dir, on a GPU: none; a tmpfs is host memory "
         "(snug's own)"),
    COUNT(
        zero_stage, "", MEMORY, "0", "[0,3]",
        "several ranks: what they divide (ZeRO); 1: optimizer states; 2: gradients, too; 3: weights, too; 0: nothing"),
    TEXT(
        deepspeed, "", MEMORY, "FILE|JSON",
        "DeepSpeed's configuration, of which snug understands the ZeRO stage, clipping, batch sizes, bf16, fp16, AdamW "
        "and warm-up schedules"),
    TEXT(
        fsdp_config, "", MEMORY, "FILE|JSON",
        "FSDP's configuration of transformers, with --fsdp True or full_shard: snug understands reshard_after_forward, "
        "activation_checkpointing and what changes nothing here"),
    FLAG(update_in_backward, "", MEMORY, "False",
         "update weights in backward and free each gradient; with clipping, backward runs twice (snug's own)"),

    FLAG(
        bf16, "", MACHINE, "False",
        "bf16 mixed precision; on a CPU only with AMX-BF16, AVX512-BF16 or BFDOT; default: also on a GPU, for decoders "
        "whose files are bf16"),
    FLAG(fp16, "", MACHINE, "False", "fp16 mixed precision with loss scaling; on a GPU only"),
    FLAG(bf16_full_eval, "", MACHINE, "False", "eval, predict, generate: weights in bf16, too: half the memory"),
    FLAG(fp16_full_eval, "", MACHINE, "False", "eval, predict: weights in fp16, too: half the memory; on a GPU only"),
    FLAG(tf32, "", MACHINE, "False",
         "TF32 matmuls in fp32 training: tensor cores round operands to 11 bits; on a GPU only"),
    FLAG(use_cpu, "no_cuda", MACHINE, "False", "use the CPU, even if there is a GPU"),
    ROW(CHOICE, device, "", MACHINE, "auto|cpu|cuda", "auto", NULL, NULL,
        "device; auto: a GPU if one works (snug's own)"),
    TEXT(gpu, "", MACHINE, "NAME|FILE",
         "plan: for a GPU that is not installed, by its name, as \"RTX 4090\" or H100, or by a file of its rates, as "
         "snug "
         "bench rates --device cuda --json prints them (snug's own)"),
    TEXT(gpus, "", MACHINE, "N|all",
         "train, eval, predict, verify: start so many ranks on this machine, each on its own GPU; plan: for so many "
         "GPUs, which need not be installed with --gpu (snug's own)"),
    COUNT(num_processes, "", MACHINE, "0", "[0,65536]",
          "plan: for so many ranks, without starting them; train gets its ranks from --gpus, torchrun, mpirun or srun"),
    REAL(link_bandwidth, MACHINE, "0", "[0,)",
         "several ranks: GB/s that a rank can send to the others, for estimates of seconds; 0: what is known of the "
         "GPUs "
         "(snug's own)"),
    ROW(BYTES, memory_budget, "", MACHINE, "SIZE", "", NULL, NULL,
        "memory limit, such as 600MiB or 6GB; a run that exceeds it is refused before step 1 (snug's own)"),
    FLAG(
        fit, "", MACHINE, "False",
        "if the run exceeds its memory limit, add the cheapest methods that make it fit; arguments that are set do not "
        "change. Answers: fewer prompts at a time, and where one does not fit, as many beams as do (snug's own)"),
    COUNT(per_device_eval_batch_size, "per_gpu_eval_batch_size", MACHINE, "8", "[1,65536]",
          "batch size of evaluation and prediction"),
    COUNT(threads, "", MACHINE, "0", "[0,4096]", "CPU threads; 0: all cores that the process may use (snug's own)"),
    COUNT(dataloader_num_workers, "", MACHINE, "0", "[0,256]",
          "data loader threads; 0: the main thread loads the data"),
    COUNT(dataloader_prefetch_factor, "", MACHINE, "2", "[1,1024]", "batches that each loader thread prefetches"),
    FLAG(dataloader_drop_last, "", MACHINE, "False", "drop an epoch's last incomplete batch"),
    COUNT(
        ddp_timeout, "", MACHINE, "1800", "[1,1e9]",
        "several ranks: seconds that a rank waits for the others in an operation; then the late one is named, and all "
        "end"),

    ROW(INTERVAL, eval_strategy, "evaluation_strategy", STRATEGY, "no|steps|epoch", "no", NULL, NULL,
        "when to evaluate"),
    REAL(eval_steps, STRATEGY, "0", "[0,)",
         "steps between evaluations; below 1: a fraction of all steps; 0: logging_steps"),
    REAL(eval_delay, STRATEGY, "0", "[0,)", "epochs or steps before the first evaluation"),
    FLAG(eval_on_start, "", STRATEGY, "False", "evaluate before the first step"),
    ROW(INTERVAL, logging_strategy, "", STRATEGY, "no|steps|epoch", "steps", NULL, NULL, "when to log"),
    REAL(logging_steps, STRATEGY, "500", "[0,)", "steps between logs; below 1: a fraction of all steps"),
    FLAG(logging_first_step, "", STRATEGY, "False", "log the first step too"),
    FLAG(logging_nan_inf_filter, "", STRATEGY, "True",
         "replace NaN and infinite losses in logs by the mean of the others"),
    ROW(INTERVAL, save_strategy, "", STRATEGY, "no|steps|epoch|best", "steps", NULL, NULL, "when to save a checkpoint"),
    REAL(save_steps, STRATEGY, "500", "(0,)", "steps between checkpoints; below 1: a fraction of all steps"),
    COUNT(save_total_limit, "", STRATEGY, "0", "[0,)",
          "maximum number of checkpoints, the best one included; 0: no limit"),
    FLAG(save_only_model, "", STRATEGY, "False", "save checkpoints without optimizer states; they cannot be resumed"),
    FLAG(load_best_model_at_end, "", STRATEGY, "False",
         "load the best checkpoint at the end: the best of the steps that are evaluated and saved"),
    TEXT(metric_for_best_model, "", STRATEGY, "NAME",
         "metric that selects the best checkpoint: loss, accuracy, f1, …; default: loss"),
    ROW(TRISTATE, greater_is_better, "", STRATEGY, "BOOL", "", NULL, NULL,
        "whether larger metrics are better; default: True unless the metric is a loss, mse or perplexity"),
    COUNT(early_stopping_patience, "", STRATEGY, "0", "[0,1e12]",
          "stop after this many evaluations without improvement; 0: off"),
    REAL(early_stopping_threshold, STRATEGY, "0", "[0,)", "minimum improvement for early_stopping_patience"),
};
const size_t snug_argument_count = sizeof snug_arguments / sizeof *snug_arguments;

const struct snug_converted snug_converted_arguments[] = {
    {"group_by_length", "train_sampling_strategy", SNUG_CONVERT_GROUP_BY_LENGTH},
    {"warmup_ratio", "warmup_steps", SNUG_CONVERT_WARMUP_RATIO},
    {"fsdp", "zero_stage", SNUG_CONVERT_FSDP},
};
const size_t snug_converted_count = sizeof snug_converted_arguments / sizeof *snug_converted_arguments;
