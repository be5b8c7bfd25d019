/* SPDX-License-Identifier: Apache-2.0 */
/* --help of a command: its usage, and the arguments of the library that affect it. */
#include "help.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 120, INDENT = 49 }; /* columns of a line; of the texts after the names */

#define STRATEGY "Evaluation, logging and saving|"
#define TRAINING "Training|"

/* Arguments of training only; each name has a space before and after it. */
#define OF_TRAINING                                                                                                    \
    " train_file max_train_samples validation_split_percentage do_regression overwrite_output_dir "                    \
    "resume_from_checkpoint report_to logging_dir "                                                                    \
    "gradient_checkpointing recompute update_in_backward gpu dataloader_drop_last "
/* Arguments of prediction only, and those of results of classes. */
#define OF_PREDICTION                                                                                                  \
    " test_file max_predict_samples csv_escape_formulas text text_pair keep_columns return_all_scores top_k "
#define OF_CLASSES " class_metrics threshold "
#define OF_ASKING " prompt early_stopping num_return_sequences plan_only "
#define OF_GENERATION                                                                                                  \
    OF_ASKING " stop_strings max_new_tokens min_new_tokens do_sample temperature top_p min_p repetition_penalty "      \
              "no_repeat_ngram_size num_beams length_penalty "
/* Those that train and eval have, beside the ones of answers. */
#define OF_COMPARING " predict_with_generate generation_max_length "
#define OF_EXPORT " format outtype output_file adapter_only "
#define OF_EMBEDDING " prompt_name similarity normalize_embeddings truncate_dim "
#define OF_RETRIEVAL " prompts queries_file corpus_file relevance_file query_prompt corpus_prompt "
/* Arguments without effect in a measurement. */
#define OF_RESULTS                                                                                                     \
    " validation_file validation_split_percentage test_file max_eval_samples max_predict_samples "                     \
    "overwrite_output_dir resume_from_checkpoint "                                                                     \
    "report_to logging_dir bf16_full_eval fp16_full_eval per_device_eval_batch_size csv_escape_formulas gpu "          \
    "text text_pair keep_columns return_all_scores top_k class_metrics threshold "
#define OF_TALKING " log_level disable_tqdm json "

/* The beginning of --help, which --help all continues. */
#define OF_MOST " model_name_or_path text_column_name label_column_name max_seq_length output_dir bf16 device "

const struct cli_help cli_helps[] = {
    {"train",
     "--model_name_or_path DIR --train_file FILE [--validation_file FILE] --output_dir DIR",
     "Fine-tunes a model and writes a Hugging Face folder.",
     "",
     OF_PREDICTION OF_ASKING OF_EXPORT OF_EMBEDDING " bf16_full_eval fp16_full_eval gpu ",
     NULL,
     OF_MOST " task train_file validation_file resume_from_checkpoint per_device_train_batch_size num_train_epochs "
             "learning_rate warmup_steps memory_budget fit eval_strategy save_strategy load_best_model_at_end ",
     {{"output_dir", "trainer_output"}},
     .operand = "FILE"},
    {"eval", "MODEL --validation_file FILE",
     "Evaluates a model on labelled data; with --output_dir it writes eval_results.json there.", STRATEGY TRAINING,
     OF_TRAINING OF_PREDICTION OF_ASKING OF_EXPORT " similarity normalize_embeddings truncate_dim ", NULL,
     OF_MOST " validation_file max_eval_samples class_metrics threshold per_device_eval_batch_size json ",
     .operand = "DIR"},
    {"predict", "MODEL --test_file FILE|--text TEXT > predictions.csv",
     "Writes index,label,score of every row to stdout, as CSV or with --json as one object per row; token "
     "classification: a line of tags per row. With --output_dir also predict_results.txt, and with labels in the file "
     "predict_results.json there.",
     STRATEGY TRAINING,
     OF_TRAINING OF_GENERATION OF_COMPARING OF_EXPORT OF_EMBEDDING OF_RETRIEVAL
     " fit validation_file max_eval_samples line_by_line block_size completion_only_loss "
     "assistant_only_loss chat_template_path chat_template_date mlm_probability whole_word_mask ",
     NULL,
     OF_MOST " test_file text text_pair keep_columns return_all_scores top_k threshold max_predict_samples "
             "per_device_eval_batch_size json ",
     .operand = "DIR"},
    {"embed",
     "MODEL --test_file FILE|--text TEXT [--output_file vectors.npy] [--similarity]",
     "Writes the vector of each text, as a line of JSON or into a .npy file, by a folder of sentence-transformers or "
     "any model, of which it is the mean of the tokens, or of a decoder's language model the last token. --similarity "
     "writes index,similarity of the two texts of each row instead, by the model's function, else the cosine.",
     "",
     "",
     OF_EMBEDDING OF_TALKING
     " task model_name_or_path adapter_name_or_path tokenizer_name cache_dir model_revision test_file text text_pair "
     "prompt "
     "text_column_name text_pair_column_name text_column_names data_format max_seq_length max_predict_samples strict "
     "overwrite_cache output_file per_device_eval_batch_size dataloader_num_workers dataloader_prefetch_factor dtype "
     "bf16 tf32 bf16_full_eval fp16_full_eval device gpus use_cpu threads memory_budget fit ",
     " model_name_or_path test_file text output_file similarity prompt_name max_seq_length truncate_dim "
     "normalize_embeddings per_device_eval_batch_size device ",
     {{"max_seq_length", "the model's"}},
     .operand = "DIR"},
    {"generate",
     "MODEL [--prompt TEXT|--test_file FILE]",
     "Answers prompts with a decoder: that of --prompt, each row of --test_file (\"messages\", \"prompt\" or a text "
     "column), or each line of standard input. Settings are transformers': an argument, else generation_config.json of "
     "the model, else its default. The text goes to stdout, of a single prompt as it comes; with --json an object per "
     "answer: prompt, text, token ids, log-probabilities, why it stopped.",
     "",
     "",
     OF_GENERATION OF_TALKING
     "model_name_or_path tokenizer_name cache_dir model_revision test_file text_column_name text_column_names "
     "text_column_delimiter data_format max_predict_samples strict chat chat_template_path chat_template_date top_k "
     "seed max_seq_length gpu "
     "per_device_eval_batch_size dtype bf16 bf16_full_eval device use_cpu threads memory_budget fit ",
     " model_name_or_path prompt test_file chat max_new_tokens do_sample temperature top_k top_p num_beams "
     "stop_strings "
     "seed device json ",
     {{"max_seq_length", "4096, or the model's positions; of a plan without prompts"}},
     .operand = "DIR"},
    {"chat",
     "MODEL [--do_sample] [--temperature F] [--max_seq_length N]",
     "Answers each line of the terminal through the model's chat template, and keeps what it has read between turns. A "
     "line that ends with \\ continues, and so does a text between lines of three quotes. /reset begins a new chat, "
     "/system TEXT one with a system message, /quit or the end of the input ends. An interrupt stops the answer.",
     "",
     "",
     OF_GENERATION
     "log_level model_name_or_path tokenizer_name cache_dir model_revision max_seq_length "
     "chat_template_path chat_template_date top_k seed dtype bf16 bf16_full_eval device use_cpu threads memory_budget "
     "fit ",
     " model_name_or_path max_seq_length max_new_tokens do_sample temperature top_k top_p seed device ",
     {{"max_seq_length", "4096, or the model's positions"}, {"max_new_tokens", "the rest of max_seq_length"}},
     .operand = "DIR"},
    {"plan", "MODEL [--per_device_train_batch_size N] [--max_seq_length N] [--gpu NAME]",
     "Reports memory, FLOPs and time of a training, without running it; with --task generate the memory of snug "
     "generate, "
     "whose flags it then has, for its prompts, or for prompts of any kind with their answers in --max_seq_length. If "
     "it does not fit the machine, the GPU or "
     "--memory_budget, the exit code is 3, and the message names what fits.",
     "", OF_PREDICTION OF_ASKING OF_EXPORT OF_EMBEDDING OF_CLASSES " bf16_full_eval fp16_full_eval ", NULL,
     " model_name_or_path config_name train_file max_seq_length per_device_train_batch_size "
     "gradient_accumulation_steps optim gradient_checkpointing offload bf16 device gpu gpus memory_budget fit "
     "num_train_epochs json ",
     .operand = "DIR"},
    {"verify",
     "MODEL [--train_file FILE] [--max_steps N] [--device cpu|cuda] [--gpus N|all]",
     "Checks snug's invariants on this model and machine by short trainings that must agree; on several ranks (--gpus, "
     "mpirun, torchrun, srun) also that these have the bits of one.",
     STRATEGY,
     OF_RESULTS OF_GENERATION OF_COMPARING OF_EXPORT OF_EMBEDDING OF_RETRIEVAL " num_train_epochs memory_budget fit ",
     NULL,
     NULL,
     {{"train_file", "synthetic rows"},
      {"max_train_samples", "those of twice the steps"},
      {"max_steps", "6"},
      {"output_dir", "TMPDIR, else /tmp; removed at the end"},
      {"device", "the CPU, then the GPU if there is one"}},
     .operand = "DIR"},
    {"pull", "MODEL [--model_revision NAME] [--cache_dir DIR] [--json]",
     "Brings a model, such as ORG/NAME, from a Hugging Face hub into the local cache, where --model_name_or_path MODEL "
     "finds it, and prints its folder. Only the files that snug reads are fetched: config.json, the tokenizer with its "
     "chat templates, generation_config.json, modules of sentence-transformers, and the weights, or an adapter, in "
     "safetensors. An interrupted pull continues where it ended. The hub is HF_ENDPOINT "
     "[https://huggingface.co], the token HF_TOKEN or that of `hf auth login`.",
     "", "", OF_TALKING " model_name_or_path cache_dir model_revision ", .operand = NULL},
    {"merge", "ADAPTER --output_dir DIR [--model_name_or_path BASE --adapter_name_or_path ADAPTER]",
     "Writes the model that a base model and its LoRA adapters are, as an ordinary model's folder, in the base model's "
     "types unless --dtype is given, a piece at a time: neither model is ever in memory as a whole.",
     "", "",
     " model_name_or_path adapter_name_or_path cache_dir model_revision output_dir overwrite_output_dir max_shard_size "
     "merge_into "
     "dtype threads log_level ",
     .operand = "DIR"},
    {"export", "MODEL --output_file FILE [--outtype f32|f16|bf16|q8_0] [--adapter_only]",
     "Writes a language model with its tokenizer and chat template as one GGUF file for llama.cpp and Ollama, as "
     "llama.cpp's convert_hf_to_gguf.py does. An adapter's folder is merged into its base model, or its adapters are "
     "written alone. A few rows are read, merged and converted at a time.",
     "", "",
     " model_name_or_path adapter_name_or_path cache_dir model_revision merge_into threads "
     "log_level " OF_EXPORT,
     .operand = "DIR"},
    {"tokenize", "--model_name_or_path DIR --test_file FILE",
     "Prints the tokens of every row, one JSON object per line.", "", "",
     " model_name_or_path tokenizer_name cache_dir model_revision train_file validation_file test_file "
     "text_column_name text_pair_column_name text_column_names text_column_delimiter label_column_name "
     "task data_format max_seq_length max_train_samples max_eval_samples max_predict_samples strict log_level "
     "decode skip_special_tokens chat chat_template_path chat_template_date ",
     .operand = NULL},
    {"bench rates", "[--threads N] [--device cpu|cuda] [--json]",
     "Measures how fast this machine or its GPU runs each operation, and stores the rates, from which snug plan "
     "estimates "
     "seconds.",
     "", "", OF_TALKING " threads device use_cpu ", .operand = NULL},
    {"bench anatomy",
     "[--config_name NAME] [--per_device_train_batch_size N] [--bf16] [--device cpu|cuda] [--max_steps N]"
     " [--gpus N|all] [--json]",
     "The experiment of \"Model training anatomy\": memory by class and time by operation group of a "
     "training; writes no model.",
     STRATEGY,
     OF_RESULTS OF_GENERATION OF_COMPARING OF_EXPORT OF_EMBEDDING OF_RETRIEVAL " output_dir ",
     NULL,
     NULL,
     {{"config_name", "bert-large-uncased, if no model is named"},
      {"train_file", "dummy:512x512"},
      {"per_device_train_batch_size", "4"},
      {"num_train_epochs", "1"},
      {"max_steps", "on a CPU 3, if no epochs are asked for"},
      {"offload_dir", "."}},
     .operand = NULL},
    {"doctor", "[--device auto|cpu|cuda] [--json]",
     "Reports what was found on this machine, what is missing, and what a training would use, and why. With arguments "
     "that a training would refuse, it prints that error and returns its exit code.",
     "", "",
     OF_TALKING " device use_cpu threads bf16 fp16 tf32 bf16_full_eval fp16_full_eval dtype offload offload_dir fit ",
     .operand = NULL},
    {.command = "report",
     .usage = "RUN [RUN …] > report.html",
     .does = "Writes one HTML page about trainings, which loads nothing from a network: where the models are, their "
             "metrics and confusion matrices; loss, metrics, learning rate, gradient norm and throughput over steps, "
             "with the runs overlaid; the memory of a step over its operations, planned and measured memory; where the "
             "time went; settings. RUN is the "
             "--output_dir of a training, finished or not, or a checkpoint.",
     .only = " ",
     .operand = "DIR"},
    {.command = "gpu",
     .usage = "[--watch [SECONDS]] [--json]",
     .does = "Shows the GPUs with their memory, load, links and processes; \"CUDA\" is the device number that programs "
             "see, "
             "as set by CUDA_VISIBLE_DEVICES.",
     .only = " ",
     .options = {{"watch", "[SECONDS]", "repeat every SECONDS seconds until interrupted [2]"},
                 {"json", "", "print one JSON object; with --watch one per line"}}},
    {.command = "completion",
     .usage = "bash|zsh|fish",
     .does = "Prints the script with which a shell completes commands, arguments, their values and files. make install "
             "installs the three; without it: snug completion bash > "
             "~/.local/share/bash-completion/completions/snug; snug completion fish > "
             "~/.config/fish/completions/snug.fish; for zsh a file _snug in a folder of $fpath.",
     .only = " ",
     .operand = "bash|zsh|fish"},
};
const size_t cli_help_count = sizeof cli_helps / sizeof *cli_helps;

static bool lists(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if (at[-1] == ' ' && at[length] == ' ') return true; /* names begin and end with a space */
    return false;
}

static const struct cli_help *find_help(const char *command) {
    const struct cli_help *help = cli_helps;
    while (strcmp(help->command, command) != 0) help++; /* main() calls only commands that are here */
    return help;
}

bool cli_help_concerns(const struct cli_help *help, const snug_arg_info *info) {
    if (help->only) return lists(help->only, info->name);
    return !strstr(help->hidden, info->group) && !lists(help->unused, info->name);
}

/* A dump of all arguments gives defaults, which ask for nothing. */
static bool has_default(const snug_args *args, const snug_args *fresh, const char *name) {
    char value[256], other[256];
    if (!fresh) return false;
    return snug_args_get(args, name, value, sizeof value) == SNUG_OK &&
           snug_args_get(fresh, name, other, sizeof other) == SNUG_OK && strcmp(value, other) == 0;
}

void cli_find_unused(struct cli *cli, const char *command) {
    const struct cli_help *help = find_help(command);
    const snug_arg_info *info;
    snug_args *fresh;
    size_t used = 0;
    snug_args_create(cli->ctx, &fresh); /* without memory for it all are named */
    for (size_t i = 0; (info = snug_args_info(i)); i++) {
        if (cli_help_concerns(help, info) || !snug_args_given(cli->args, info->name)) continue;
        if (has_default(cli->args, fresh, info->name)) continue;
        char *longer = realloc(cli->unused, used + strlen(info->name) + 2);
        if (!longer) break;
        cli->unused = longer;
        used += (size_t)sprintf(longer + used, "%s ", info->name);
    }
    snug_args_destroy(fresh);
    cli->command = command;
}

void cli_tell_unused(struct cli *cli) {
    char text[256];
    for (const char *at = cli->unused; at && *at; at += strcspn(at, " ") + 1) {
        snprintf(text, sizeof text, "--%.*s has no effect on snug %s", (int)strcspn(at, " "), at, cli->command);
        progress_on_log(&cli->progress, SNUG_LOG_INFO, text);
    }
    free(cli->unused);
    cli->unused = NULL;
}

const char *cli_help_default(const struct cli_help *help, const snug_arg_info *info) {
    for (size_t i = 0; i < sizeof help->own / sizeof *help->own && help->own[i].name; i++)
        if (strcmp(help->own[i].name, info->name) == 0) return help->own[i].value;
    return info->default_value;
}

bool cli_is_flag(const snug_arg_info *info) { return strcmp(info->value_name, "BOOL") == 0 && *info->default_value; }

static bool has_lower_case(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (islower((unsigned char)text[i])) return true;
    return false;
}

void cli_find_values(const char *value_name, struct cli_values *values) {
    *values = (struct cli_values){.files = false};
    size_t used = 0;
    if (strcmp(value_name, "BOOL") == 0) value_name = "True|False";
    for (const char *at = value_name; *at; at += strcspn(at, "|"), at += *at == '|') {
        const int length = (int)strcspn(at, "|");
        values->files |= strncmp(at, "FILE", (size_t)length) == 0;
        values->folders |= strncmp(at, "DIR", (size_t)length) == 0;
        if (has_lower_case(at, (size_t)length))
            used += (size_t)snprintf(values->words + used, sizeof values->words - used, "%s%.*s", used ? " " : "",
                                     length, at);
    }
}

/* Prints from column `at` on; breaks lines at spaces, and after the '|' of long lists. */
static void put_wrapped(FILE *out, const char *text, size_t at, size_t indent) {
    while (*text) {
        const size_t length = strcspn(text, " |") + (text[strcspn(text, " |")] == '|');
        if (at + length > WIDTH) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        fprintf(out, "%.*s", (int)length, text);
        at += length;
        text += length;
        if (*text != ' ') continue;
        text++;
        if (at + 1 + strcspn(text, " |") <= WIDTH) { /* else the line ends here, without a space */
            putc(' ', out);
            at++;
        } else {
            at = WIDTH;
        }
    }
    putc('\n', out);
}

static void print_argument(FILE *out, const struct cli_help *help, const snug_arg_info *info) {
    char name[INDENT], text[1024];
    const bool flag = cli_is_flag(info);
    const bool list = 2 + 2 + strlen(info->name) + 1 + strlen(info->value_name) + 1 > INDENT; /* of long choices */
    snprintf(name, sizeof name, "--%s%s%s", info->name, flag ? "" : " ", flag ? "" : list ? "NAME" : info->value_name);
    int used = snprintf(text, sizeof text, "%s", info->help);
    const char *value = cli_help_default(help, info);
    if (*value) used += snprintf(text + used, sizeof text - (size_t)used, " [%s]", value);
    if (*info->aliases) used += snprintf(text + used, sizeof text - (size_t)used, " (also --%s)", info->aliases);
    if (list) snprintf(text + used, sizeof text - (size_t)used, "; one of %s", info->value_name);
    fprintf(out, "  %-*s", INDENT - 2, name);
    put_wrapped(out, text, INDENT, INDENT);
}

static void print_options(FILE *out, const struct cli_help *help) {
    for (const struct cli_option *option = help->options; option->name; option++) {
        char name[INDENT];
        snprintf(name, sizeof name, "--%s %s", option->name, option->value);
        fprintf(out, "%s  %-*s", option == help->options ? "\n" : "", INDENT - 2, name);
        put_wrapped(out, option->help, INDENT, INDENT);
    }
}

/* What the arguments of --help are followed by. */
static void print_more(FILE *out, const struct cli_help *help) {
    const snug_arg_info *info;
    char text[256];
    int all = 0;
    for (size_t i = 0; (info = snug_args_info(i)); i++) all += cli_help_concerns(help, info);
    snprintf(text, sizeof text,
             "snug %s --help all lists all %d arguments, and so does man snug-%s. Names and defaults are those of "
             "transformers; docs/command-line.md has the differences.",
             help->command, all, help->command);
    putc('\n', out);
    put_wrapped(out, text, 0, 0);
}

void cli_help(FILE *out, const char *command, bool all) {
    const struct cli_help *help = find_help(command);
    const int used = fprintf(out, "usage: snug %s ", command);
    put_wrapped(out, help->usage, (size_t)used, (size_t)used);
    putc('\n', out);
    put_wrapped(out, help->does, 0, 0);
    print_options(out, help);
    const char *group = NULL;
    all |= !help->common;
    const snug_arg_info *info;
    for (size_t i = 0; (info = snug_args_info(i)); i++) {
        if (!cli_help_concerns(help, info) || !(all || lists(help->common, info->name))) continue;
        if (!group) put_wrapped(out, CLI_GRAMMAR, 0, 0);
        if (!group || strcmp(group, info->group) != 0) fprintf(out, "\n%s\n", info->group);
        group = info->group;
        print_argument(out, help, info);
    }
    if (!all) print_more(out, help);
}
