/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug: fine-tunes transformers in the memory you have.
 * A job in one call: set a snug_args, call snug_train(), snug_evaluate() or snug_predict(). Or your own training loop,
 * as in PyTorch, of the calls of snug_session, which snug_train() uses too: both give the same bits.
 *
 * Conventions. Every call that can fail returns a snug_status; snug_error_message() has the message, which names the
 * error, the place, and what to do. A pointer may be NULL where the comment says so; callbacks, their members and user
 * always may. Else, and in an order that makes no sense, a call is refused: it changes nothing and returns
 * SNUG_E_USAGE, or -1, NaN, false or NULL if it has no status. Strings are UTF-8, paths any bytes. The library never
 * prints and never exits. Sizes are bytes unless the name says otherwise. A status other than SNUG_OK that on_row or
 * on_check returns ends the call with it.
 *
 * Lifetimes. `T **out` gives the caller an object of its own, freed with snug_T_destroy(), which accepts NULL; after a
 * failure it is NULL unless the call says otherwise. `char **text` is freed with snug_free(). `const T *` and
 * `const T **` are the library's: those that a callback gets are valid until it returns, members of a result as long as
 * the result. A context outlives everything that was made with it.
 *
 * Versions. A program works with later libraries of the same SONAME. The library makes the structs that it fills in, so
 * members may be added at their end: do not copy or allocate them, but for snug_callbacks, snug_metric and
 * snug_memory_line, which do not change. Enumerations grow at their end: ignore values that you do not know.
 *
 * Threads. A context and what was made with it belong to one thread at a time; a call during another thread's, or in a
 * callback of a call with the same context, is refused; destroying waits for the other thread, and does nothing in a
 * callback. For any thread: snug_model_predict(), snug_model_close(), snug_version(), snug_free(), snug_escape(),
 * snug_args_info(), snug_memory_class_name(), and reading arguments, also in callbacks.
 *
 * A child of fork() cannot use sessions, models on a GPU, and contexts of which a thread was in a call; it can create
 * them again. A program's signal handlers may run at any moment, in any thread (docs/library.md).
 */
#ifndef SNUG_H
#define SNUG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__ /* snug is compiled with -fvisibility=hidden: only the declarations of this header are exported */
#pragma GCC visibility push(default)
#endif

#define SNUG_VERSION "0.1.0"
const char *snug_version(void); /* the version of the library that runs, which may be later than that of the header */
void snug_free(void *text);     /* a text of the library; the caller's free() may belong to another allocator */

/* The result of a call. The exit code of the command line is in brackets. */
typedef enum snug_status {
    SNUG_OK = 0,
    SNUG_END = 1,            /* no more batches in this epoch: not an error */
    SNUG_E_USAGE = 2,        /* an invalid argument [2] */
    SNUG_E_INPUT = 3,        /* a file's content cannot be used [1] */
    SNUG_E_IO = 4,           /* an operating system call failed: open, read, write [1] */
    SNUG_E_MEMORY = 5,       /* an allocation failed [1] */
    SNUG_E_DOES_NOT_FIT = 6, /* the plan exceeds the budget or the available memory [3] */
    SNUG_E_NUMERIC = 7,      /* losses or gradients are NaN or infinite for many steps [1] */
    SNUG_E_INTERRUPTED = 8,  /* stopped by should_stop; a training has saved its state [130] */
    SNUG_E_UNSUPPORTED = 9,  /* known, but not supported by this build [1] */
    SNUG_E_INTERNAL = 10,    /* a bug in snug [1] */
} snug_status;
typedef enum snug_log_level { SNUG_LOG_DEBUG, SNUG_LOG_INFO, SNUG_LOG_WARNING, SNUG_LOG_ERROR } snug_log_level;

/* Memory classes. The first eight are in the arena; the last two are reported in addition. */
typedef enum snug_memory_class {
    SNUG_MEMORY_WEIGHTS,     /* parameters, and their low-precision copies */
    SNUG_MEMORY_GRADIENTS,   /* one value per trained parameter */
    SNUG_MEMORY_OPTIMIZER,   /* the optimizer's states */
    SNUG_MEMORY_ACTIVATIONS, /* written forward, read backward */
    SNUG_MEMORY_TEMPORARY,   /* live within one phase only */
    SNUG_MEMORY_WORKSPACE,   /* scratch of operations and of the matmul library */
    SNUG_MEMORY_FUNCTION,    /* temporary memory of a function: logits and metrics of an evaluation */
    SNUG_MEMORY_BATCH,       /* packed inputs, prefetched ones included */
    SNUG_MEMORY_CONTEXT,     /* the program, its libraries and the driver, measured */
    SNUG_MEMORY_HOST,        /* tokenizer, data index, parser buffers */
    SNUG_MEMORY_CLASS_COUNT
} snug_memory_class;
const char *snug_memory_class_name(snug_memory_class memory_class);

/* ---- context ------------------------------------------------------------------------------------------------- */
typedef struct snug_context snug_context;
typedef void snug_log_fn(void *user, snug_log_level level, const char *message);
snug_status snug_context_create(snug_context **out); /* fails with SNUG_E_MEMORY only */
void snug_context_destroy(snug_context *ctx);
/* Messages from this level on go to fn, in any thread, one call at a time; NULL drops them all (the default). */
void snug_context_set_log(snug_context *ctx, snug_log_fn *fn, void *user, snug_log_level level);
/* The message of the last failure in this context, valid until the next one; "" if none. A refused call has its message
 * in its thread alone, until the next one there; ctx is then any context, or NULL. */
const char *snug_error_message(const snug_context *ctx);
/* Escapes length bytes of text for a terminal: control characters, bidirectional controls, line and paragraph
 * separators become \x1b or (above ASCII) \u202e, each byte of malformed UTF-8 \xff. Writes whole characters and '\0',
 * at most size bytes (16 or more); returns the bytes of text that were escaped: fewer than length if out is full.
 * Messages and reports of the library are escaped already; paths of events, labels and tokens are not. */
size_t snug_escape(char *out, size_t size, const char *text, size_t length);

/* ---- arguments ----------------------------------------------------------------------------------------------- */
/* The arguments of a job, with Hugging Face's names: those of TrainingArguments, run_glue.py, run_classification.py and
 * run_mlm.py, with the same meaning and default, and some that only snug has. "-" and "_" are the same in a name. */
typedef struct snug_args snug_args;
/* The description of an argument, for --help and for bindings. */
typedef struct snug_arg_info {
    const char *name;          /* "learning_rate" */
    const char *aliases;       /* older names, separated by spaces; "" if none */
    const char *group;         /* heading in --help */
    const char *value_name;    /* "FLOAT", "DIR", "A|B|C"; "BOOL" needs no value on the command line */
    const char *default_value; /* as text; "" if unset */
    const char *help;          /* one line */
} snug_arg_info;
snug_status snug_args_create(snug_context *ctx, snug_args **out);
void snug_args_destroy(snug_args *args);
/* Sets one argument from text. An unknown name fails and the message names the nearest one. */
snug_status snug_args_set(snug_args *args, const char *name, const char *value);
/* The value as text in buffer, as set or default; SNUG_E_USAGE if unknown. */
snug_status snug_args_get(const snug_args *args, const char *name, char *buffer, size_t size);
bool snug_args_given(const snug_args *args, const char *name); /* whether the argument was set, by any of its names */
/* Parses a command line: --name value, --name=value, --flag, --flag False, --no_flag. argv[0] is skipped. */
snug_status snug_args_parse(snug_args *args, int argc, char *const argv[]);
/* This process among the ranks of the run that these args describe, and their number; 0 and 1 before the run, and where
 * the launcher started one process. Rank 0 writes all files; a program prints results on rank 0 alone. */
int snug_args_rank(const snug_args *args);
int snug_args_rank_count(const snug_args *args);
/* Ends all ranks of the run that failed with these args, this process included, with an exit code; without other
 * ranks, or with NULL, it returns. Call it after the error was reported: the other ranks wait for this one. */
void snug_end_ranks(snug_args *args, int code);
const snug_arg_info *snug_args_info(size_t index); /* argument number index, NULL after the last */

/* ---- rows in memory ---------------------------------------------------------------------------------------------- */
/* Rows of data that take the place of a file. Columns, task and labels are recognised and checked as in a file, and
 * messages name the row, from 1, and the column. */
typedef struct snug_rows snug_rows;
/* A value of a row, harmless in a column that is not used. Members without a meaning for the kind are ignored. */
typedef enum snug_value_kind {
    SNUG_VALUE_MISSING, /* text: how the program writes it, as "None", for messages; or NULL */
    SNUG_VALUE_TEXT,    /* text: UTF-8 of length bytes; may hold U+0000 */
    SNUG_VALUE_NUMBER,  /* text: decimal digits of a number to predict, of any size */
    SNUG_VALUE_INTEGER,
    SNUG_VALUE_REAL,    /* a number to predict; NaN and infinity are missing values */
    SNUG_VALUE_BOOLEAN, /* integer: not 0 is true */
    SNUG_VALUE_LIST,    /* items: length texts or numbers, as words, tags, or the labels of a row that has several */
    SNUG_VALUE_OTHER,   /* text: what it is, as "a Timestamp": an error in a column that is used */
} snug_value_kind;
typedef struct snug_value {
    snug_value_kind kind;
    const char *text;
    size_t length;
    int64_t integer;
    double real;
    const struct snug_value *items;
} snug_value;
snug_status snug_rows_create(snug_context *ctx, snug_rows **out);
void snug_rows_destroy(snug_rows *rows);
/* Set a column of the current row; the value is copied. What other rows have and this one lacks is missing there. A
 * label is a class name, a number, or a list of them; for token classification "tokens" and "ner_tags" are lists. A row
 * of which a call failed is discarded. */
snug_status snug_rows_set(snug_rows *rows, const char *column, const snug_value *value);
snug_status snug_rows_text(snug_rows *rows, const char *column, const char *text);
snug_status snug_rows_integer(snug_rows *rows, const char *column, int64_t integer);
snug_status snug_rows_real(snug_rows *rows, const char *column, double real);
snug_status snug_rows_end(snug_rows *rows); /* ends the current row */
/* Adds a whole row: values [count] of columns [count]. */
snug_status snug_rows_add(snug_rows *rows, const char *const *columns, const snug_value *values, size_t count);
/* Whole numbers of this column, also in lists, are classes of these names, from 0; below 0 is no label. A model that is
 * trained on it has all of them, in this order. */
snug_status snug_rows_classes(snug_rows *rows, const char *column, const char *const *names, size_t count);
/* args read rows instead of the file that the argument name, "train_file", "validation_file" or "test_file", gives.
 * rows outlive args, and do not change during a call; others may read them before or after. */
snug_status snug_args_set_rows(snug_args *args, const char *name, snug_rows *rows);

/* ---- the plan ------------------------------------------------------------------------------------------------ */
typedef struct snug_plan snug_plan;
/* Plans the training that args describe. Reads config.json and, if given, the lengths of the data; never the weights.
 * SNUG_E_DOES_NOT_FIT if over memory_budget or the memory of its machine or GPU: *out is then still set, so that it can
 * be printed. */
snug_status snug_plan_create(snug_args *args, snug_plan **out);
void snug_plan_destroy(snug_plan *plan);
int64_t snug_plan_bytes(const snug_plan *plan, snug_memory_class memory_class);
int64_t snug_plan_total(const snug_plan *plan); /* arena + context + host; on a GPU without the host's part */
snug_status snug_plan_text(const snug_plan *plan, char **text); /* the whole plan as text, or as one JSON object */
snug_status snug_plan_json(const snug_plan *plan, char **text);

/* ---- the machine --------------------------------------------------------------------------------------------- */
/* The measured rates of each kind of operation, by number of threads, from which plans estimate seconds. */
typedef struct snug_rates snug_rates;
/* Measures them with args' threads, for some seconds, and stores them in the cache folder ($SNUG_CACHE,
 * $XDG_CACHE_HOME/snug or ~/.cache/snug), from which plans read them. */
snug_status snug_rates_create(snug_args *args, snug_rates **out);
void snug_rates_destroy(snug_rates *rates);
snug_status snug_rates_text(const snug_rates *rates, char **text); /* a table as text, or the file's JSON object */
snug_status snug_rates_json(const snug_rates *rates, char **text);
/* The GPUs that NVML lists and CUDA can use, with their current load, memory and processes. There may be none. */
typedef struct snug_gpus snug_gpus;
snug_status snug_gpus_create(snug_context *ctx, snug_gpus **out);
void snug_gpus_destroy(snug_gpus *gpus);
snug_status snug_gpus_text(const snug_gpus *gpus, char **text); /* a table as text, or one JSON object */
snug_status snug_gpus_json(const snug_gpus *gpus, char **text);

/* What snug finds, what is missing, and what a training with these args will use, or each rank, where a launcher
 * started several, which all call it. Creates a GPU context to check that it works. Returns the failure with which such
 * a training would be refused; *out is still set, so that it can be printed. */
typedef struct snug_doctor snug_doctor;
snug_status snug_doctor_create(snug_args *args, snug_doctor **out);
void snug_doctor_destroy(snug_doctor *doctor);
snug_status snug_doctor_text(const snug_doctor *doctor, char **text);
snug_status snug_doctor_json(const snug_doctor *doctor, char **text);

/* ---- a job in one call --------------------------------------------------------------------------------------- */
typedef enum snug_event_kind {
    SNUG_EVENT_BEGIN,    /* planned, allocated and loaded; the first step follows */
    SNUG_EVENT_STEP,     /* an optimizer step is done */
    SNUG_EVENT_LOG,      /* every logging_steps: loss, grad_norm and learning_rate are set */
    SNUG_EVENT_EVALUATE, /* an evaluation is done; metrics holds it */
    SNUG_EVENT_SAVE,     /* a checkpoint is complete on disk; path names it */
    SNUG_EVENT_PROGRESS, /* within an evaluation or prediction: step of max_steps batches */
    SNUG_EVENT_DOWNLOAD, /* within snug_pull(): step of max_steps bytes are in the cache; bytes_per_second is set */
    SNUG_EVENT_END,
    SNUG_EVENT_RUN, /* before SNUG_EVENT_BEGIN, or before an evaluation or prediction begins: run describes it */
} snug_event_kind;
typedef struct snug_metric {
    const char *name; /* "eval_loss", "eval_accuracy", "eval_f1", …; lives as long as the context */
    double value;
} snug_metric;
typedef struct snug_metrics {
    size_t count;
    const snug_metric *items;
    /* snug_evaluate(), a single label of at most 50 classes, with class_metrics 1024; else classes is 0 */
    size_t classes;
    const char *const *class_names; /* [classes]; they live as long as the context */
    const int64_t *confusion;       /* [classes][classes]: rows by class and predicted class */
} snug_metrics;
void snug_metrics_destroy(snug_metrics *metrics);

typedef struct snug_event {
    snug_event_kind kind;
    int64_t step, max_steps;
    double epoch;
    double loss;          /* mean over the true items since the last log */
    double grad_norm;     /* before clipping, of the last step */
    double learning_rate; /* of the last step */
    double samples_per_second, bytes_per_second, seconds, seconds_left;
    const snug_metrics *metrics;
    const char *path;
    const char *run; /* what was understood and planned, as a JSON object */
} snug_event;
typedef struct snug_callbacks {
    void *user;
    void (*on_event)(void *user, const snug_event *event);
    bool (*should_stop)(void *user); /* asked while tokenizing, after each step, before each evaluation batch; true
                                        ends the run; a training that has begun writes a checkpoint first */
} snug_callbacks;
typedef struct snug_memory_line {
    int64_t planned, measured; /* bytes; measured is -1 if unknown */
} snug_memory_line;
typedef struct snug_rank_use {
    const char *host;
    const char *device;     /* the GPU; NULL on the CPU */
    snug_memory_line total; /* as in snug_train_result */
} snug_rank_use;
typedef struct snug_train_result {
    int64_t steps, samples, tokens;
    double epochs, train_loss, seconds, samples_per_second, steps_per_second, seconds_to_first_step, flops;
    double padding_avoided; /* share of a padded batch's tokens that were not computed */
    int64_t truncated_texts;
    /* Steps whose losses were NaN or infinite; whose gradients were, and which changed no weight; and which fp16
     * skipped for that. Those before a resumption are included. */
    int64_t infinite_losses, infinite_gradients, skipped_steps;
    double loss_scale; /* fp16: at the end; 0 in other types */
    size_t memory_count;
    const snug_memory_line *memory; /* [memory_count], by snug_memory_class */
    snug_memory_line total; /* measured: the peak resident memory; on a GPU the process's memory of it, without host */
    int64_t peak_resident;  /* the process's peak in host memory (VmHWM); -1 if unknown */
    const char *device;     /* the GPU that it ran on; NULL on the CPU */
    const char *device_method;   /* how the GPU's memory was measured; NULL on the CPU */
    const char *device_others;   /* the other processes on it at the end; "" if there are none, NULL on the CPU */
    const snug_metrics *metrics; /* the last evaluation; none has count 0 */
    const char *best_checkpoint; /* NULL: none */
    size_t rank_count;           /* of a run on several ranks; else 0 */
    const snug_rank_use *ranks;  /* [rank_count]; memory, total and device above are those of the calling rank */
    const char *log_history;     /* Trainer's state.log_history as JSON, with the part before a resumption */
    const char *output_dir;      /* where the model is */
    const char *best_metric; /* metric_for_best_model, else the task's main one; NULL: no evaluation has its value */
    double best_value, best_epoch; /* the best one of all evaluations, those before a resumption included */
    int64_t best_step;
    bool best_is_model; /* the saved model has the weights of that step */
    const char *task;   /* as of --task */
} snug_train_result;
void snug_train_result_destroy(snug_train_result *result);

/* Trains; result may be NULL. Where a launcher started several ranks (docs/distributed.md), every process calls it with
 * the same arguments, and snug_evaluate() and snug_predict() too. The first call connects the ranks until args are
 * destroyed: one snug_args of a process is used on several ranks, always in the same thread. */
snug_status snug_train(snug_args *args, const snug_callbacks *callbacks, snug_train_result **result);
/* As text: the summary, from steps to where the model is; memory by class, planned and measured, and ranks' totals. */
snug_status snug_train_result_text(const snug_train_result *result, char **text);
snug_status snug_train_result_memory_text(const snug_train_result *result, char **text);
/* Writes the model that model_name_or_path, an adapter's folder, and its base model are, into output_dir. */
snug_status snug_merge(snug_args *args);
/* The experiment of "Model training anatomy": trains, by default BERT-large from random weights on dummy:512x512 with
 * batch 4 for an epoch (on a CPU a few steps), and reports memory, and the time of each kind of operation beside the
 * machine's peak rates. Nothing is saved. callbacks get SNUG_EVENT_PROGRESS. */
typedef struct snug_anatomy snug_anatomy;
snug_status snug_anatomy_create(snug_args *args, const snug_callbacks *callbacks, snug_anatomy **out);
void snug_anatomy_destroy(snug_anatomy *anatomy);
snug_status snug_anatomy_text(const snug_anatomy *anatomy, char **text);
snug_status snug_anatomy_json(const snug_anatomy *anatomy, char **text);
/* The figures of 1 to 32 trainings, from their --output_dir or a checkpoint: SNUG_E_INPUT names what is not one. */
typedef struct snug_runs snug_runs;
snug_status snug_runs_create(snug_context *ctx, const char *const *folders, size_t count, snug_runs **out);
void snug_runs_destroy(snug_runs *runs);
/* One HTML page that loads nothing: where the models are, their metrics and confusion matrices; curves over steps with
 * the runs overlaid; the memory of a step over its operations; planned and measured memory, time, settings. */
snug_status snug_runs_html(const snug_runs *runs, char **html);
/* Evaluates model_name_or_path on validation_file, into output_dir's eval_results.json, if set; metrics may be NULL. */
snug_status snug_evaluate(snug_args *args, const snug_callbacks *callbacks, snug_metrics **metrics);

typedef struct snug_prediction {
    int64_t index;     /* row in the file, or text of the call, from 0 */
    const char *label; /* class name; names joined by "|" for multi-label; the value for regression */
    double score; /* the class's probability; for multi-label the lowest of the named classes; regression's value */
    size_t logits_count;
    const float *logits;
    /* With their probabilities, return_all_scores: the classes in the model's order; masked LM: the top_k tokens. */
    size_t candidate_count;
    bool ranked; /* they are the top_k tokens, the most probable first */
    const char *const *candidates;
    const double *candidate_scores;
    /* keep_columns: the row's values in the data file; NULL where it has none. */
    size_t column_count;
    const char *const *column_names, *const *columns;
    /* Token classification: the row's words, their tags and the tags' probabilities. A word that was truncated, or that
     * has no token, has no tag: NULL. label has the other tags, separated by spaces, and score is the lowest
     * probability. words is NULL for synthetic data; tags is NULL for other tasks. */
    size_t word_count;
    const char *const *words, *const *tags;
    const double *scores;
    bool truncated; /* the text was cut to max_seq_length tokens */
} snug_prediction;
typedef snug_status snug_on_prediction(void *user, const snug_prediction *row);
/* Calls on_row in the file's order; on several ranks on rank 0 alone. With labels in test_file, or output_dir set,
 * metrics are logged, and predict_results.txt (or predictions.txt) and predict_results.json are written there.
 * snug_embed(): the vectors of texts as logits; of a row of two texts both, and their similarity as score. */
snug_status snug_predict(snug_args *args, const snug_callbacks *callbacks, snug_on_prediction *on_row, void *user);
snug_status snug_embed(snug_args *args, const snug_callbacks *callbacks, snug_on_prediction *on_row, void *user);

/* ---- a loaded model ---------------------------------------------------------------------------------------------- */
/* A model and its tokenizer, opened once for many predictions of texts in memory. */
typedef struct snug_model snug_model;
/* Opens model_name_or_path with the arguments of snug_predict(); files of data are not read. Plans, allocates and loads
 * what predictions of per_device_eval_batch_size texts of max_seq_length tokens at a time need. The arguments must
 * outlive the model, and are not changed meanwhile. One rank only. */
snug_status snug_model_open(snug_args *args, snug_model **out);
typedef struct snug_model_info {
    const char *task;    /* "classification", "mlm", "clm", "token_classification" or "embedding" */
    const char *problem; /* Hugging Face's problem_type, as "regression"; NULL where the task has no kinds */
    size_t class_count;  /* 0 for language models and regression */
    const char *const *classes;
} snug_model_info;
/* For any thread, also of a closed model; valid until the model is destroyed. */
const snug_model_info *snug_model_describe(const snug_model *model);
/* Frees the model's memory after the prediction that runs, in on_row at the end of that call; predictions that wait or
 * begin later are refused. Any thread may call it, also again. */
snug_status snug_model_close(snug_model *model);
/* Closes the model, and waits for the calls that have begun. None may begin later. */
void snug_model_destroy(snug_model *model);
/* Predicts count texts and calls on_row for each in their order (masked LM: for each mask token), with the bits of
 * snug_predict() on a file of them. pairs has the second text of each, or is NULL; texts may be NULL if count is 0.
 * Token classification takes the words of a text between its blanks. Texts that are too long are truncated. Of several
 * threads' calls on one model one runs at a time; on_row must not call it on the same model. Models of different
 * contexts run at the same time. ctx, of the calling thread, gets the message of a failure. */
snug_status snug_model_predict(snug_model *model, snug_context *ctx, const char *const *texts, const char *const *pairs,
                               size_t count, snug_on_prediction *on_row, void *user);
/* As snug_model_predict(), for rows with columns, of which the texts are those that the model was trained on, or that
 * its arguments name (text_column_name, …), as snug_predict() finds them in a file. Words are lists. SNUG_E_INPUT names
 * row and column of a text that is missing. */
snug_status snug_model_predict_rows(snug_model *model, snug_context *ctx, snug_rows *rows, snug_on_prediction *on_row,
                                    void *user);

/* ---- tokens ------------------------------------------------------------------------------------------------------ */
typedef struct snug_tokenized {
    int64_t index;
    size_t count;
    const int32_t *input_ids, *token_type_ids; /* types: 0 where the tokenizer returns none */
    const char *const *tokens;
    const char *text; /* of the ids, as transformers' decode() gives it; NULL without decode; with chat: the row's */
    const int32_t *has_loss; /* of each token, with chat: 1 if the assistant says it, else 0; NULL without chat */
} snug_tokenized;
/* Tokenizes test_file (else validation_file, else train_file) row by row, uncached; words by task, name or model;
   with chat, rows of messages by the chat template. */
snug_status snug_tokenize(snug_args *args, snug_status (*on_row)(void *user, const snug_tokenized *row), void *user);

/* ---- models from a hub ------------------------------------------------------------------------------------------- */
typedef struct snug_pull_result {
    const char *folder;   /* of the model's files */
    const char *commit;   /* the commit that model_revision named */
    int64_t files, bytes; /* the model's */
    int64_t fetched;      /* bytes that were received for them now; the others were in the cache */
} snug_pull_result;
void snug_pull_result_destroy(snug_pull_result *result);
/* Brings model_name_or_path, a name such as ORG/NAME, from a Hugging Face hub into the cache of huggingface_hub, where
 * all calls find it: config.json, the tokenizer's files and the weights in safetensors, checked by size and hash. Uses
 * args' cache_dir and model_revision, and huggingface_hub's environment variables. callbacks get SNUG_EVENT_DOWNLOAD;
 * result may be NULL. The next call continues a failed or interrupted one. SNUG_E_IO: network, server or disk.
 * SNUG_E_INPUT: no such model, or refused, or other content than announced. SNUG_E_UNSUPPORTED: no libcurl. */
snug_status snug_pull(snug_args *args, const snug_callbacks *callbacks, snug_pull_result **result);

/* ---- checks ------------------------------------------------------------------------------------------------------ */
typedef enum snug_check_result { SNUG_CHECK_PASSED, SNUG_CHECK_FAILED, SNUG_CHECK_SKIPPED } snug_check_result;
typedef struct snug_check {
    const char *name;   /* "recomputed = stored" */
    const char *device; /* "cpu" or "cuda" */
    snug_check_result result;
    const char *detail; /* what was compared, and the result; or why it was skipped */
    double seconds;
} snug_check;

/* Checks snug's invariants on args' model, data (without train_file synthetic rows) and machine: short trainings
 * (max_steps, 6 if unset) must agree bit for bit with any recomputation, placement, number of threads, loading and
 * resumption; gradients up to the order of sums if a step is split; memory must be as planned. Runs on the CPU, and on
 * the GPU if there is one, unless args name a device. On several ranks, which all call it, it compares them with one
 * rank, and calls on_check on rank 0 alone. SNUG_E_INTERNAL: an invariant does not hold. Call it first in a process:
 * memory is measured as the process's peak. */
snug_status snug_verify(snug_args *args, const snug_callbacks *callbacks,
                        snug_status (*on_check)(void *user, const snug_check *check), void *user);

/* ---- your own training loop -------------------------------------------------------------------------------------- */
/* A model, its optimizer, its data and their arena. A micro-batch is snug_next_batch(), snug_forward() (as often as
 * wanted), snug_loss() and snug_backward(), each once; what is left out at the end is not done. After a call that
 * failed and may have changed a part of the weights or states only snug_load_checkpoint() makes the session usable. */
typedef struct snug_session snug_session;
/* One micro-batch of packed sequences. */
typedef struct snug_batch_info {
    int64_t sequences, tokens;
    int64_t items;         /* labels, or tokens that are predicted, in this micro-batch */
    int64_t items_in_step; /* in all of the step: the mean loss's divisor, if no class_weights weigh the items */
    bool last_in_step;     /* the optimizer steps after this one: every k batches, and at the epoch's end */
} snug_batch_info;
/* Plans, allocates and loads what args describe. Fails before anything is allocated if it does not fit. */
snug_status snug_session_create(snug_args *args, snug_session **out);
void snug_session_destroy(snug_session *session);
int64_t snug_session_epochs(const snug_session *session);
/* The epoch that began last, 0 before the first one; a loop begins with it, also after snug_load_checkpoint(). */
int64_t snug_session_epoch(const snug_session *session);
int64_t snug_session_steps(const snug_session *session); /* optimizer steps done, those before a checkpoint included */
/* Starts an epoch, from 0 and below snug_session_epochs(), in the order of (seed, epoch); after snug_load_checkpoint()
 * the checkpoint's epoch continues after its last step. */
snug_status snug_session_begin_epoch(snug_session *session, int64_t epoch);
/* The next micro-batch, which the loader has prefetched; SNUG_END after the last of the epoch or of the run
 * (max_steps). It is the current one until the next call, and *info is valid as long; info may be NULL. */
snug_status snug_next_batch(snug_session *session, const snug_batch_info **info);
snug_status snug_forward(snug_session *session); /* runs the encoder on the current micro-batch */
/* Runs the head on the current micro-batch: *loss is the sum of its items' losses divided by the step's divisor, so
 * that the losses of a step's micro-batches add up to the step's mean. It adds the head's gradients. */
snug_status snug_loss(snug_session *session, double *loss);
snug_status snug_backward(snug_session *session); /* adds the current micro-batch's gradients */
/* Scales all gradients so that their L2 norm is at most max_norm, unless <= 0; *norm, or NULL, is the norm before. */
snug_status snug_clip_grad_norm(snug_session *session, double max_norm, double *norm);
/* One update at the current learning rate, one step of the schedule; in fp16 skipped if gradients are not finite. */
snug_status snug_optimizer_step(snug_session *session);
snug_status snug_scheduler_step(snug_session *session);
double snug_learning_rate(const snug_session *session);
/* Sets the learning rate until the next snug_scheduler_step(). Call it before snug_next_batch() if weights are updated
 * in backward. SNUG_E_USAGE: it is negative or not finite, or the optimizer computes its own. */
snug_status snug_set_learning_rate(snug_session *session, double learning_rate);
snug_status snug_zero_grad(snug_session *session); /* discards the gradients: the next backward overwrites them */
/* Evaluates on validation_file with the current weights. There is no current batch afterwards. */
snug_status snug_session_evaluate(snug_session *session, snug_metrics **metrics);
/* Writes config.json, model.safetensors and the tokenizer's files into folder, each atomically, and a manifest.json
 * that lists them; from_pretrained loads it. What an earlier manifest lists is removed, other files are kept. SNUG_E_IO
 * names a file of such a name that snug did not write: overwrite_output_dir allows replacing it. */
snug_status snug_save_model(snug_session *session, const char *folder);
/* Writes the model as snug_save_model() does, the optimizer's states, and the position in schedule and data. The folder
 * is complete or absent; one that snug wrote is replaced, another one is SNUG_E_IO. Call it between steps: after
 * snug_optimizer_step(), before the next snug_next_batch(). Gradients are not saved. */
snug_status snug_save_checkpoint(snug_session *session, const char *folder);
/* Continues from such a checkpoint, with the bits of a loop that was not interrupted. Model, data, optimizer and the
 * rows of a step must be those of its session, else SNUG_E_INPUT names what differs; other differences are logged.
 * freeze may name more parts: their states are dropped. SNUG_E_INPUT also: it is damaged or no checkpoint of a session;
 * the session may then have parts of it, and only another call that succeeds makes it usable. */
snug_status snug_load_checkpoint(snug_session *session, const char *folder);
/* Copies a parameter, by its Hugging Face name, as fp32 (count values), for inspection and tests. */
snug_status snug_get_parameter(snug_session *session, const char *name, float *values, size_t count);
/* Replaces them, rounded to nearest even in the stored type, between steps. SNUG_E_USAGE: a value is not finite. */
snug_status snug_set_parameter(snug_session *session, const char *name, const float *values, size_t count);
/* The gradient, scaled by the last snug_clip_grad_norm. */
snug_status snug_get_gradient(snug_session *session, const char *name, float *values, size_t count);
/* Name and size of parameter number index; NULL after the last. count may be NULL. */
const char *snug_parameter_name(const snug_session *session, size_t index, size_t *count);
/* Whether parameter number index is trained. What is frozen (the argument freeze) is decided when the session is
 * created: to freeze more, load its checkpoint in a session with another freeze; to train what was frozen, create a
 * session from the saved model, whose states begin at zero. */
bool snug_parameter_trainable(const snug_session *session, size_t index);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
