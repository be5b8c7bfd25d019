/* SPDX-License-Identifier: Apache-2.0 */
/* Conflicts between arguments, and derived arguments, as in TrainingArguments, before any file is read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args/class_weights.h"
#include "data/data_file.h"
#include "data/task.h"
#include "metrics/metrics.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

static const char *interval_name(enum snug_interval interval) {
    static const char *const names[] = {"no", "steps", "epoch", "best"};
    return names[interval];
}

/* What a command cannot do without: all that is missing is named at once, with an example. */
struct missing {
    char names[256];
    int count;
};

static void need(struct missing *missing, bool there, const char *what) {
    if (there) return;
    const size_t used = strlen(missing->names);
    snprintf(missing->names + used, sizeof missing->names - used, "%s%s", missing->count++ ? " and " : "", what);
}

static snug_status tell_missing(const struct snug_args *args, const struct missing *missing, const char *command,
                                const char *example) {
    if (!missing->count) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE, "snug %s needs %s; for example: snug %s %s", command, missing->names,
                     command, example);
}

/* Commands that take the texts of --test_file, or those of --text and --text_pair. */
static bool takes_texts(const char *command) {
    return strcmp(command, "predict") == 0 || strcmp(command, "embed") == 0;
}

/* An empty string unsets other arguments; an empty text, or prompt, is a text. */
static snug_status take_empty_texts(struct snug_args *args, const char *command) {
    const bool generates = strcmp(command, "generate") == 0;
    if (!args->query_prompt && snug_args_is_set(args, "query_prompt"))
        RETURN_IF_ERROR(snug_strdup(args->ctx, "", &args->query_prompt));
    if (!args->corpus_prompt && snug_args_is_set(args, "corpus_prompt"))
        RETURN_IF_ERROR(snug_strdup(args->ctx, "", &args->corpus_prompt));
    if (generates && !args->prompt && snug_args_is_set(args, "prompt"))
        return snug_strdup(args->ctx, "", &args->prompt);
    if (!takes_texts(command)) return SNUG_OK;
    if (!args->text && snug_args_is_set(args, "text")) RETURN_IF_ERROR(snug_strdup(args->ctx, "", &args->text));
    if (args->text_pair || !snug_args_is_set(args, "text_pair")) return SNUG_OK;
    return snug_strdup(args->ctx, "", &args->text_pair);
}

/* Generation takes more, and 0. */
static snug_status check_top_k(const struct snug_args *args) {
    if (args->top_k >= 1 && args->top_k <= 1000) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE, "--top_k %lld: a prediction lists 1 to 1000 tokens",
                     (long long)args->top_k);
}

static snug_status check_embedded(const struct snug_args *args) {
    if (args->text && args->test_file)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--text and --test_file are both given: which one is embedded?");
    if (args->text_pair && !args->similarity)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--text_pair is compared with --text: give --similarity, too");
    if (args->similarity && args->text && !args->text_pair)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--similarity compares two texts: give --text_pair, too");
    if (args->similarity && args->output_file)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--similarity writes to stdout, and --output_file is for vectors: leave one out");
    return SNUG_OK;
}

static snug_status check_files(const struct snug_args *args, const char *command) {
    static const char *const given[] = {"text", "text_pair", "test_file", "keep_columns"};
    const bool model = args->model_name_or_path, from_scratch = args->config_name;
    struct missing missing = {.count = 0};
    if (strcmp(command, "train") == 0) {
        need(&missing, model || from_scratch, "--model_name_or_path DIR (or --config_name DIR, to train from scratch)");
        need(&missing, args->train_file, "--train_file FILE");
        return tell_missing(args, &missing, command,
                            "--model_name_or_path distilbert/distilbert-base-uncased --train_file train.csv "
                            "--validation_file dev.csv --output_dir out");
    }
    if (strcmp(command, "eval") == 0) {
        need(&missing, model, "--model_name_or_path DIR");
        need(&missing, args->validation_file || args->queries_file, "--validation_file FILE");
        return tell_missing(args, &missing, command, "--model_name_or_path out --validation_file dev.csv");
    }
    if (strcmp(command, "predict") == 0) {
        if (args->text && args->test_file)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--text and --test_file are both given: which one is predicted?");
        if (args->text_pair && !args->text)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--text_pair is the second text of a pair: give --text too");
        need(&missing, model, "--model_name_or_path DIR");
        RETURN_IF_ERROR(check_top_k(args));
        need(&missing, args->test_file || args->text, "--test_file FILE (or --text TEXT)");
        return tell_missing(args, &missing, command, "--model_name_or_path out --test_file new.csv > predictions.csv");
    }
    if (strcmp(command, "embed") == 0) {
        RETURN_IF_ERROR(check_embedded(args));
        need(&missing, model, "--model_name_or_path DIR");
        need(&missing, args->test_file || args->text, "--test_file FILE (or --text TEXT)");
        return tell_missing(args, &missing, command, "out --test_file texts.txt --output_file vectors.npy");
    }
    if (strcmp(command, "generate") == 0) {
        if (args->prompt && args->test_file)
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "--prompt and --test_file are both given: which one is answered?");
        need(&missing, model, "--model_name_or_path DIR");
        return tell_missing(args, &missing, command, "--model_name_or_path out --prompt \"Once upon a time\"");
    }
    if (strcmp(command, "model") == 0) {
        if (!model) return snug_fail(args->ctx, SNUG_E_USAGE, "a loaded model needs model_name_or_path");
        RETURN_IF_ERROR(check_top_k(args));
        for (size_t i = 0; i < sizeof given / sizeof *given; i++)
            if (snug_args_is_set(args, given[i]))
                return snug_fail(args->ctx, SNUG_E_USAGE,
                                 "--%s: a loaded model gets its texts from snug_model_predict(): leave it out",
                                 given[i]);
        return SNUG_OK;
    }
    if (strcmp(command, "doctor") == 0) return SNUG_OK;
    if (strcmp(command, "plan") == 0 || strcmp(command, "verify") == 0) {
        need(&missing, model || from_scratch, "--model_name_or_path DIR or --config_name NAME");
        return tell_missing(args, &missing, command, "--config_name bert-base-uncased");
    }
    if (strcmp(command, "merge") == 0) {
        need(&missing, model, "--model_name_or_path DIR, an adapter's folder");
        need(&missing, args->output_dir, "--output_dir DIR");
        return tell_missing(args, &missing, command, "out --output_dir merged");
    }
    if (strcmp(command, "export") == 0) {
        if (strcmp(args->format, "onnx") == 0)
            return snug_fail(
                args->ctx, SNUG_E_UNSUPPORTED,
                "--format onnx is not supported: model folders of snug are transformers' (snug merge makes "
                "one of adapters), so Hugging Face's Optimum exports them: optimum-cli export onnx --model "
                "DIR OUT");
        need(&missing, model, "--model_name_or_path DIR");
        need(&missing, args->output_file, "--output_file FILE");
        return tell_missing(args, &missing, command, "out --output_file model.gguf");
    }
    need(&missing, model || args->tokenizer_name, "--model_name_or_path DIR");
    need(&missing, args->test_file || args->validation_file || args->train_file, "--test_file FILE");
    return tell_missing(args, &missing, command, "--model_name_or_path out --test_file new.csv");
}

/* What a command does not do is refused: a file that is not read would be taken for one that is. */
static const struct {
    const char *command, *names[8], *advice;
} others[] = {
    {"train",
     {"do_predict", "test_file", "text", "text_pair", "keep_columns", "return_all_scores", "top_k"},
     "snug train does not predict: run snug predict with --model_name_or_path OUTPUT_DIR"},
    {"train", {"early_stopping"}, "it is of beam search, in snug generate; give --early_stopping_patience N"},
    {"eval", {"do_train", "train_file"}, "snug eval does not train: run snug train, or leave it out"},
    {"eval", {"test_file"}, "snug eval does not predict: run snug predict, or give the file as --validation_file"},
    {"eval",
     {"do_predict", "text", "text_pair", "keep_columns", "return_all_scores", "top_k"},
     "snug eval does not predict: run snug predict, or leave it out"},
    {"embed",
     {"queries_file", "corpus_file", "relevance_file", "query_prompt", "corpus_prompt"},
     "snug embed does not evaluate: run snug eval, or leave it out"},
    {"embed", {"prompts"}, "snug embed has one prompt for all texts: give --prompt TEXT or --prompt_name NAME"},
    {"predict", {"do_train", "train_file"}, "snug predict does not train: run snug train, or leave it out"},
    {"predict", {"do_eval"}, "snug predict does not evaluate: run snug eval, or leave it out"},
    {"predict", {"validation_file"}, "snug predict does not evaluate: run snug eval, or give the file as --test_file"},
};

bool snug_args_refuses(const char *command, const char *name) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (const char *const *other = others[i].names; *other && strcmp(command, others[i].command) == 0; other++)
            if (strcmp(*other, name) == 0) return true;
    return false;
}

/* Whether there is something to evaluate on. */
static bool evaluates(const struct snug_args *args) {
    return args->validation_file || args->validation_split_percentage || args->queries_file;
}

static snug_status check_command(const struct snug_args *args, const char *command) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (const char *const *name = others[i].names; *name && strcmp(command, others[i].command) == 0; name++)
            if (snug_args_is_set(args, *name))
                return snug_fail(args->ctx, SNUG_E_USAGE, "--%s: %s", *name, others[i].advice);
    if (strcmp(command, "train") == 0 && snug_args_is_set(args, "do_eval") && !evaluates(args))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--do_eval needs --validation_file FILE, or --validation_split_percentage N, to evaluate on");
    return SNUG_OK;
}

/* It can be read only once. */
static snug_status check_standard_input(const struct snug_args *args) {
    const char *const files[] = {args->train_file, args->validation_file, args->test_file};
    int count = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) count += files[i] && snug_data_is_stdin(files[i]);
    if (count && snug_group_size(args->group) > 1)
        return snug_fail(
            args->ctx, SNUG_E_USAGE,
            "standard input is given as a file, and only one of %d ranks can read it: give a file that all "
            "of them can open",
            snug_group_size(args->group));
    if (count < 2) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE, "standard input is given as %d files, and can be read only once", count);
}

static snug_status check_split(const struct snug_args *args, bool trains) {
    if (!args->validation_split_percentage) return SNUG_OK;
    if (!trains)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--validation_split_percentage splits the file of a training: leave it out");
    if (args->validation_file)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--validation_split_percentage takes rows of --train_file to evaluate on, and "
                         "--validation_file names a file: give one of them");
    if (args->train_file && snug_data_is_stdin(args->train_file))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--validation_split_percentage opens --train_file twice, and standard input can be read only "
                         "once: give a file");
    return SNUG_OK;
}

/* The files of a retrieval, which are read twice. */
static snug_status check_retrieval(const struct snug_args *args) {
    const char *const files[] = {args->queries_file, args->corpus_file, args->relevance_file};
    if (!files[0] && !files[1] && !files[2]) {
        if (!args->query_prompt && !args->corpus_prompt) return SNUG_OK;
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--%s is of a retrieval: give --queries_file, --corpus_file and --relevance_file, too",
                         args->query_prompt ? "query_prompt" : "corpus_prompt");
    }
    if (args->prompts && !args->train_file)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--prompts is of the columns of other files: give --query_prompt and --corpus_prompt");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!files[i])
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "a retrieval needs --queries_file, --corpus_file and --relevance_file: give all three");
        if (snug_data_is_stdin(files[i]))
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "the files of a retrieval are read twice, and standard input can be read only once: give "
                             "a file");
    }
    if (!args->validation_file && !args->validation_split_percentage) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE, "--%s and --queries_file are both given: an evaluation is of one of them",
                     args->validation_file ? "validation_file" : "validation_split_percentage");
}

static snug_status check_blocks(const struct snug_args *args) {
    if (args->block_size == 1)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--block_size 1: a token predicts the next one of its block, which needs at least 2");
    if (!args->block_size || !args->line_by_line) return SNUG_OK;
    return snug_fail(args->ctx, SNUG_E_USAGE,
                     "--block_size joins the rows, and --line_by_line keeps them: give one or the other");
}

static snug_status check_rows(const struct snug_args *args) {
    const struct {
        const char *name;
        int64_t rows;
    } limits[] = {
        {"max_train_samples", args->max_train_samples},
        {"max_eval_samples", args->max_eval_samples},
        {"max_predict_samples", args->max_predict_samples},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].rows == 0)
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s 0 leaves no rows; -1 is all", limits[i].name);
    return SNUG_OK;
}

/* A fraction of all steps, below 1, or a whole number of steps. */
static snug_status check_steps(const struct snug_args *args, const char *name, enum snug_interval strategy,
                               double steps) {
    if (strategy != SNUG_INTERVAL_STEPS) return SNUG_OK;
    if (steps == 0)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s 0: its strategy is steps, so it must be above 0", name);
    if (steps > 1 && steps != floor(steps))
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s %g: above 1 it must be a whole number", name, steps);
    return SNUG_OK;
}

/* Every saved step must be evaluated. Fractions are compared in millionths, as in Trainer. */
static bool is_multiple(double save_steps, double eval_steps) {
    if ((save_steps < 1) != (eval_steps < 1)) return false;
    double scale = save_steps < 1 ? 1e6 : 1;
    return fmod(round(save_steps * scale), round(eval_steps * scale)) == 0;
}

static snug_status check_best(const struct snug_args *args) {
    enum snug_interval eval = args->eval_strategy, save = args->save_strategy;
    if (save == SNUG_INTERVAL_BEST && eval == SNUG_INTERVAL_NO)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--save_strategy best needs --eval_strategy steps or epoch");
    if (save == SNUG_INTERVAL_BEST && !args->metric_for_best_model)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--save_strategy best needs --metric_for_best_model, as in loss");
    if (args->load_best_model_at_end && eval == SNUG_INTERVAL_NO)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--load_best_model_at_end needs --eval_strategy steps or epoch");
    if (args->load_best_model_at_end && save != SNUG_INTERVAL_BEST) {
        if (save != eval)
            return snug_fail(
                args->ctx, SNUG_E_USAGE,
                "--load_best_model_at_end needs the same --eval_strategy (%s) and --save_strategy (%s), or "
                "--save_strategy best",
                interval_name(eval), interval_name(save));
        if (eval == SNUG_INTERVAL_STEPS && !is_multiple(args->save_steps, args->eval_steps))
            return snug_fail(args->ctx, SNUG_E_USAGE,
                             "--load_best_model_at_end needs --save_steps (%g) to be a multiple of --eval_steps (%g)",
                             args->save_steps, args->eval_steps);
    }
    if (args->early_stopping_patience > 0 && eval == SNUG_INTERVAL_NO)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--early_stopping_patience needs --eval_strategy steps or epoch");
    return SNUG_OK;
}

static snug_status check_optimizer(const struct snug_args *args) {
    static const char *const unused[] = {"learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps",
                                         "warmup_ratio"};
    struct snug_optimizer optimizer;
    RETURN_IF_ERROR(snug_optimizer_parse(args->ctx, args->optim, args->optim_args, args->adam_beta1, args->adam_beta2,
                                         args->adam_epsilon, args->weight_decay, &optimizer));
    for (size_t i = 0; optimizer.relative_step && i < sizeof unused / sizeof *unused; i++)
        if (snug_args_is_set(args, unused[i]))
            return snug_fail(
                args->ctx, SNUG_E_USAGE,
                "--optim_args relative_step=True: Adafactor then computes its own learning rate; leave out "
                "--%s",
                unused[i]);
    return SNUG_OK;
}

/* The GPUs of a plan are ranks that are not started. */
static snug_status plan_gpus(struct snug_args *args) {
    enum { MOST = 65536 /* as --num_processes */ };
    char *end;
    const long count = strtol(args->gpus, &end, 10);
    if (*end || count < 1 || count > MOST)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gpus %s: snug plan needs their number, from 1 to %d, for example --gpus 8", args->gpus,
                         (int)MOST);
    if (args->num_processes > 0 && args->num_processes != count)
        return snug_fail(args->ctx, SNUG_E_USAGE, "--gpus %ld and --num_processes %lld contradict each other", count,
                         (long long)args->num_processes);
    args->num_processes = count;
    return SNUG_OK;
}

/* What several ranks do not support yet, where the arguments alone decide. */
static snug_status check_ranks(const struct snug_args *args, const char *command) {
    const struct snug_weight weight = {.rows = 1 << 10, .cols = 1 << 10, .segments = 1};
    struct snug_optimizer optimizer;
    if (args->num_processes > 0 && strcmp(command, "plan") != 0)
        return snug_fail(
            args->ctx, SNUG_E_USAGE,
            "--num_processes is for snug plan; start the ranks of snug %s with --gpus %lld, or on CPUs with "
            "mpirun -n %lld",
            command, (long long)args->num_processes, (long long)args->num_processes);
    const bool takes = strcmp(command, "train") == 0 || strcmp(command, "eval") == 0 || takes_texts(command) ||
                       strcmp(command, "verify") == 0 || strcmp(command, "plan") == 0;
    if (args->gpus && !takes)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--gpus starts the ranks of snug train, eval, predict, embed, verify and bench anatomy, and "
                         "snug plan plans for them; leave it out of snug %s",
                         command);
    const char *alone = snug_args_ranks(args) > 1 ? snug_args_alone(args) : NULL;
    if (alone) /* on ranks that run: what --deepspeed has set, too */
        return snug_fail(args->ctx, SNUG_E_UNSUPPORTED, "%s is not supported on several ranks yet: leave it out, or %s",
                         alone, args->num_processes > 0 ? "--num_processes" : "start a single process");
    if (!args->zero_stage) return SNUG_OK;
    RETURN_IF_ERROR(snug_optimizer_parse(args->ctx, args->optim, args->optim_args, args->adam_beta1, args->adam_beta2,
                                         args->adam_epsilon, args->weight_decay, &optimizer));
    const struct snug_states states = optimizer.info->states(&optimizer, &weight);
    if (snug_op_info(states.update)->flags & SNUG_OP_ELEMENTS) return SNUG_OK;
    return snug_fail(
        args->ctx, SNUG_E_UNSUPPORTED,
        "--zero_stage %lld does not support --optim %s yet, whose update needs whole rows and columns: use "
        "another optimizer, or leave --zero_stage out",
        (long long)args->zero_stage, args->optim);
}

/* The task that args name. */
static enum snug_task task_of(const struct snug_args *args) { return (enum snug_task)snug_task_find(args->task); }

static bool is_given(const struct snug_args *args, const char *name) {
    char value[64];
    return snug_args_is_set(args, name) && snug_args_value(args, name, value, sizeof value) == SNUG_OK &&
           strcmp(value, "False") != 0;
}

static bool is_of(enum snug_task task, const char *name) {
    const char *const *own = snug_task_info(task)->only;
    while (*own && strcmp(*own, name) != 0) own++;
    return *own;
}

snug_status snug_args_check_task(const struct snug_args *args, enum snug_task task) {
    for (int other = 0; other < SNUG_TASK_COUNT; other++) {
        const struct snug_task_info *info = snug_task_info((enum snug_task)other);
        for (const char *const *name = info->only; *name; name++)
            if (!is_of(task, *name) && is_given(args, *name))
                return snug_fail(
                    args->ctx, SNUG_E_USAGE, "--%s is for %s, and this task is %s: leave it out, or give --task %s",
                    *name, info->short_title, snug_task_info(task)->short_title, snug_task_name((enum snug_task)other));
    }
    return SNUG_OK;
}

static snug_status check_batches(const struct snug_args *args) {
    if (args->mini_batch_size && args->per_device_train_batch_size % args->mini_batch_size)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--mini_batch_size %lld: --per_device_train_batch_size %lld is no multiple of it",
                         (long long)args->mini_batch_size, (long long)args->per_device_train_batch_size);
    const bool grouped = strcmp(args->train_sampling_strategy, "group_by_length") == 0;
    if (grouped && strcmp(args->batch_sampler, "no_duplicates") == 0)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--batch_sampler no_duplicates and --train_sampling_strategy group_by_length both order the "
                         "rows: leave one out");
    if (!args->per_device_train_tokens) return SNUG_OK;
    if (snug_args_is_chosen(args, "per_device_train_batch_size"))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--per_device_train_batch_size %lld and --per_device_train_tokens %lld are both given: "
                         "micro-batches have either so many rows or so many tokens",
                         (long long)args->per_device_train_batch_size, (long long)args->per_device_train_tokens);
    if (grouped)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--per_device_train_tokens packs rows of any lengths: leave out --train_sampling_strategy "
                         "group_by_length");
    return SNUG_OK;
}

static snug_status check_training(struct snug_args *args) {
    struct snug_schedule schedule;
    if (args->eval_strategy == SNUG_INTERVAL_STEPS && args->eval_steps == 0) args->eval_steps = args->logging_steps;
    const bool selects = args->load_best_model_at_end || args->early_stopping_patience > 0;
    if (selects && !args->metric_for_best_model)
        RETURN_IF_ERROR(snug_strdup(args->ctx, "loss", &args->metric_for_best_model));
    const char *metric = args->metric_for_best_model;
    if (metric && !args->greater_is_better) {
        const char *greater = snug_metric_is_smaller_better(metric) ? "False" : "True";
        RETURN_IF_ERROR(snug_strdup(args->ctx, greater, &args->greater_is_better));
    }
    RETURN_IF_ERROR(check_steps(args, "logging_steps", args->logging_strategy, args->logging_steps));
    RETURN_IF_ERROR(check_steps(args, "eval_steps", args->eval_strategy, args->eval_steps));
    RETURN_IF_ERROR(check_steps(args, "save_steps", args->save_strategy, args->save_steps));
    RETURN_IF_ERROR(check_best(args));
    RETURN_IF_ERROR(check_batches(args));
    RETURN_IF_ERROR(check_optimizer(args));
    if (args->dataloader_num_workers == 0 && snug_args_is_set(args, "dataloader_prefetch_factor"))
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--dataloader_prefetch_factor needs --dataloader_num_workers of at least 1");
    if (args->label_smoothing_factor > 0 &&
        (snug_args_regression(args) == SNUG_REGRESSION_YES || (args->task && !snug_task_info(task_of(args))->labelled)))
        return snug_fail(args->ctx, SNUG_E_USAGE, "--label_smoothing_factor is for single labels; leave it out");
    /* The number of steps is not known yet, but names and values can be checked. */
    return snug_schedule_init(args->ctx, args->lr_scheduler_type, args->lr_scheduler_kwargs, args->learning_rate,
                              args->warmup_steps, 100, &schedule);
}

/* Conflicts of the two 16-bit types; the messages are those of TrainingArguments. */
static snug_status check_precision(const struct snug_args *args) {
    if (args->bf16 && args->fp16)
        return snug_fail(args->ctx, SNUG_E_USAGE, "at most one of --fp16 and --bf16 can be set, not both");
    if (args->bf16_full_eval && args->fp16_full_eval)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "at most one of --fp16_full_eval and --bf16_full_eval can be set, not both");
    if (args->fp16 && strcmp(args->dtype, "bfloat16") == 0)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--fp16 needs fp32 weights: use --bf16 with --dtype bfloat16, or leave --dtype out");
    return SNUG_OK;
}

struct snug_quantized snug_args_quantized(const struct snug_args *args) {
    return (struct snug_quantized){.type =
                                       strcmp(args->bnb_4bit_quant_type, "fp4") == 0 ? SNUG_CODES_FP4 : SNUG_CODES_NF4,
                                   .nested = args->bnb_4bit_use_double_quant,
                                   .rounded = args->bf16   ? SNUG_BF16
                                              : args->fp16 ? SNUG_F16
                                                           : SNUG_F32};
}

/* The run has one type of matmuls: it is that of bnb_4bit_compute_dtype, unless it was given by its own flag alone. */
static snug_status check_quantized(struct snug_args *args) {
    static const char *const parts[] = {"bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype",
                                        "llm_int8_skip_modules"};
    const char *type = args->bnb_4bit_compute_dtype, *own = args->bf16 ? "bfloat16" : args->fp16 ? "float16" : NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!args->load_in_4bit && snug_args_is_chosen(args, parts[i]))
            return snug_fail(args->ctx, SNUG_E_USAGE, "--%s is a setting of --load_in_4bit: give that, too", parts[i]);
    if (!args->load_in_4bit) return SNUG_OK;
    if (own && snug_args_is_chosen(args, parts[2]) && strcmp(own, type) != 0)
        return snug_fail(args->ctx, SNUG_E_USAGE,
                         "--bnb_4bit_compute_dtype %s and --%s: a run has one type of matmuls; give one of them", type,
                         args->bf16 ? "bf16" : "fp16");
    if (own) return SNUG_OK;
    args->bf16 = strcmp(type, "bfloat16") == 0;
    args->fp16 = strcmp(type, "float16") == 0;
    return SNUG_OK;
}

/* Its last checkpoint is meant, wherever the folder is now, and from where it is named. */
static snug_status continue_in_folder(struct snug_args *args) {
    const char *from = args->resume_from_checkpoint, *folder = args->run_folder;
    if (!from || !folder || (strcasecmp(from, "true") != 0 && strcasecmp(from, "auto") != 0)) return SNUG_OK;
    char *copy;
    RETURN_IF_ERROR(snug_strdup(args->ctx, folder, &copy));
    free(args->output_dir);
    args->output_dir = copy;
    return SNUG_OK;
}

snug_status snug_args_check(struct snug_args *args, const char *command) {
    bool train = strcmp(command, "train") == 0;
    RETURN_IF_ERROR(check_command(args, command));
    if (train) RETURN_IF_ERROR(continue_in_folder(args));
    RETURN_IF_ERROR(take_empty_texts(args, command));
    RETURN_IF_ERROR(check_files(args, command));
    RETURN_IF_ERROR(snug_args_deepspeed(args));
    RETURN_IF_ERROR(snug_args_fsdp(args));
    RETURN_IF_ERROR(check_blocks(args));
    RETURN_IF_ERROR(check_rows(args));
    RETURN_IF_ERROR(check_standard_input(args));
    RETURN_IF_ERROR(check_split(args, train || strcmp(command, "plan") == 0));
    RETURN_IF_ERROR(check_retrieval(args));
    RETURN_IF_ERROR(check_precision(args));
    RETURN_IF_ERROR(check_quantized(args));
    unsigned classes;
    RETURN_IF_ERROR(snug_args_offload(args, &classes));
    if (args->gpus && strcmp(command, "plan") == 0) RETURN_IF_ERROR(plan_gpus(args));
    RETURN_IF_ERROR(check_ranks(args, command));
    const bool trains = strcmp(command, "eval") != 0 && !takes_texts(command);
    RETURN_IF_ERROR(snug_class_weights_check(args, trains));
    if (train || strcmp(command, "plan") == 0) RETURN_IF_ERROR(check_training(args));
    if (!train) return SNUG_OK;
    if (!evaluates(args) && (args->eval_strategy != SNUG_INTERVAL_NO || args->eval_on_start))
        return snug_fail(args->ctx, SNUG_E_USAGE, "--%s needs --validation_file FILE to evaluate on",
                         args->eval_on_start ? "eval_on_start" : "eval_strategy");
    return SNUG_OK;
}
