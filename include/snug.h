/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snug: fine-tunes transformers in the memory you have.
 *
 * Two levels. A job in one call: fill a snug_args, call snug_train(), snug_evaluate(), snug_predict().
 * Or one's own loop, as people write it in PyTorch: a snug_session gives batches and the steps of training one by one;
 * snug_train() is written with the same calls, so both give the same bits.
 *
 * Conventions. Every call that can fail returns a snug_status; the sentence that says what went wrong, where, and what
 * to do stands in snug_error_message(). Strings are UTF-8. The library never prints and never exits: messages go to the
 * log callback, texts are returned. Handles are not shared between threads; different contexts are independent. Sizes
 * are bytes unless the name says otherwise.
 *
 * Signals. oneDNN, which computes the CPU's fp32 products, at times keeps the stack pointer in a buffer of the heap,
 * and a signal handler that runs in such a thread would write over what lies there. A program with handlers of its own
 * blocks their signals before it makes the first thread, in all threads that call the library (those that it makes
 * inherit that), and takes them with sigwait() in one more thread, as src/cli/signals.c does for should_stop. Signals
 * without a handler do no harm.
 */
#ifndef SNUG_H
#define SNUG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__ /* snug itself is compiled with -fvisibility=hidden: what stands here is exported */
#pragma GCC visibility push(default)
#endif

#define SNUG_VERSION "0.1.0"

/* What a call came to. The command line's exit code follows from it (in brackets). */
typedef enum snug_status {
    SNUG_OK = 0,
    SNUG_END = 1,            /* no more batches in this epoch: not an error */
    SNUG_E_USAGE = 2,        /* an argument that cannot be taken [2] */
    SNUG_E_INPUT = 3,        /* a file's content cannot be used [1] */
    SNUG_E_IO = 4,           /* the operating system refused: open, read, write [1] */
    SNUG_E_MEMORY = 5,       /* an allocation failed [1] */
    SNUG_E_DOES_NOT_FIT = 6, /* the plan is over the budget or the machine [3] */
    SNUG_E_NUMERIC = 7,      /* losses or gradients are NaN or infinite, and stay so [1] */
    SNUG_E_INTERRUPTED = 8,  /* stopped by should_stop; a training saved its state [130] */
    SNUG_E_UNSUPPORTED = 9,  /* known, but not done by this build [1] */
    SNUG_E_INTERNAL = 10,    /* a defect of snug [1] */
} snug_status;

typedef enum snug_log_level {
    SNUG_LOG_DEBUG,
    SNUG_LOG_INFO,
    SNUG_LOG_WARNING,
    SNUG_LOG_ERROR,
} snug_log_level;

/* Where memory goes. The first eight live in the arena; the last two are reported beside it. */
typedef enum snug_memory_class {
    SNUG_MEMORY_WEIGHTS,     /* parameters, and their low-precision copies */
    SNUG_MEMORY_GRADIENTS,   /* one value a trained parameter */
    SNUG_MEMORY_OPTIMIZER,   /* the optimizer's states */
    SNUG_MEMORY_ACTIVATIONS, /* written forward, read backward */
    SNUG_MEMORY_TEMPORARY,   /* live within one phase only */
    SNUG_MEMORY_WORKSPACE,   /* scratch of operations and of the product library */
    SNUG_MEMORY_FUNCTION,    /* what a function needs: logits and metrics of an evaluation */
    SNUG_MEMORY_BATCH,       /* packed inputs, prefetched ones included */
    SNUG_MEMORY_CONTEXT,     /* the program, its libraries and the driver, measured */
    SNUG_MEMORY_HOST,        /* tokenizer, data index, parser buffers */
    SNUG_MEMORY_CLASS_COUNT
} snug_memory_class;
const char *snug_memory_class_name(snug_memory_class memory_class);

/* ---- context ------------------------------------------------------------------------------------------------- */

typedef struct snug_context snug_context;
typedef void snug_log_fn(void *user, snug_log_level level, const char *message);

/* Makes a context. On failure *out is NULL and the status is SNUG_E_MEMORY. */
snug_status snug_context_create(snug_context **out);
void snug_context_destroy(snug_context *ctx);
/* Messages of this level and above go to fn; NULL drops them all (the default). */
void snug_context_set_log(snug_context *ctx, snug_log_fn *fn, void *user, snug_log_level level);
/* The sentence of the last failure in this context; "" if none. Valid until the next failing call. */
const char *snug_error_message(const snug_context *ctx);
/* length bytes of text as a terminal may show them. Control characters, bidirectional controls and line and paragraph
   separators become \x1b or (above ASCII) \u202e, each byte of malformed UTF-8 \xff; a backslash stays as it is. Writes
   whole characters and '\0', at most size bytes (16 or more), and returns how many bytes of text these are: fewer than
   length where out is full. Messages and reports of the library are escaped already; paths of events, labels and tokens
   are not. */
size_t snug_escape(char *out, size_t size, const char *text, size_t length);

/* ---- arguments ----------------------------------------------------------------------------------------------- */

/* The arguments of a job, by Hugging Face's names: those of TrainingArguments, run_glue.py, run_classification.py and
   run_mlm.py, with the same meaning and default, and a few of snug's own. "-" and "_" are the same in a name. */
typedef struct snug_args snug_args;

/* What is known of one argument; for --help and for bindings. */
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
/* The command line's own grammar: --name value, --name=value, --flag, --flag False, --no_flag. argv[0] is skipped. */
snug_status snug_args_parse(snug_args *args, int argc, char *const argv[]);
/* Argument number index, NULL past the last. */
const snug_arg_info *snug_args_info(size_t index);

/* ---- the plan ------------------------------------------------------------------------------------------------ */

typedef struct snug_plan snug_plan;

/* Plans the training that args describe; reads config.json and, if given, the data's lengths; never the weights.
   SNUG_E_DOES_NOT_FIT when over memory_budget: *out is then still made, so that it can be printed. */
snug_status snug_plan_create(snug_args *args, snug_plan **out);
void snug_plan_destroy(snug_plan *plan);
int64_t snug_plan_bytes(const snug_plan *plan, snug_memory_class memory_class);
int64_t snug_plan_total(const snug_plan *plan); /* arena + context + host; on a GPU without the host's part */
/* The whole plan for people, or as one JSON object. The caller frees *text with free(). */
snug_status snug_plan_text(const snug_plan *plan, char **text);
snug_status snug_plan_json(const snug_plan *plan, char **text);

/* ---- how fast this machine is --------------------------------------------------------------------------------- */

/* What plans take seconds from: the rates of each kind of operation, by number of threads. */
typedef struct snug_rates snug_rates;

/* Measures them with args' threads, for some seconds, and keeps them in the cache folder ($SNUG_CACHE,
   $XDG_CACHE_HOME/snug or ~/.cache/snug), where plans find them. */
snug_status snug_rates_create(snug_args *args, snug_rates **out);
void snug_rates_destroy(snug_rates *rates);
/* A table for people, or the file's JSON object. The caller frees *text with free(). */
snug_status snug_rates_text(const snug_rates *rates, char **text);
snug_status snug_rates_json(const snug_rates *rates, char **text);

/* ---- what stands in this machine ------------------------------------------------------------------------------ */

/* The GPUs as NVIDIA's management library lists them and CUDA sees them, with load, memory and processes at this
   moment. There may be none. */
typedef struct snug_gpus snug_gpus;
snug_status snug_gpus_create(snug_context *ctx, snug_gpus **out);
void snug_gpus_destroy(snug_gpus *gpus);
/* A table for people, or one JSON object. The caller frees *text with free(); so below. */
snug_status snug_gpus_text(const snug_gpus *gpus, char **text);
snug_status snug_gpus_json(const snug_gpus *gpus, char **text);

/* What snug finds, what is missing, and what a training with these args will use; a GPU's context is made to know that
   it works. Where such a training would be refused, its failure is given, and *out is still made to be printed. */
typedef struct snug_doctor snug_doctor;
snug_status snug_doctor_create(snug_args *args, snug_doctor **out);
void snug_doctor_destroy(snug_doctor *doctor);
snug_status snug_doctor_text(const snug_doctor *doctor, char **text);
snug_status snug_doctor_json(const snug_doctor *doctor, char **text);

/* ---- a job in one call --------------------------------------------------------------------------------------- */

typedef enum snug_event_kind {
    SNUG_EVENT_BEGIN,    /* planned, carved and loaded; the first step follows */
    SNUG_EVENT_STEP,     /* an optimizer step is done */
    SNUG_EVENT_LOG,      /* every logging_steps: loss, grad_norm and learning_rate are set */
    SNUG_EVENT_EVALUATE, /* an evaluation is done; metrics holds it */
    SNUG_EVENT_SAVE,     /* a checkpoint is whole on disk; path names it */
    SNUG_EVENT_PROGRESS, /* within an evaluation or prediction: step of max_steps batches */
    SNUG_EVENT_END,
} snug_event_kind;

#define SNUG_METRICS_MAX 12
typedef struct snug_metric {
    const char *name; /* "eval_loss", "eval_accuracy", "eval_f1", … */
    double value;
} snug_metric;
typedef struct snug_metrics {
    size_t count;
    snug_metric items[SNUG_METRICS_MAX];
} snug_metrics;

typedef struct snug_event {
    snug_event_kind kind;
    int64_t step, max_steps;
    double epoch;
    double loss;          /* mean over the true items since the last log */
    double grad_norm;     /* before clipping, of the last step */
    double learning_rate; /* of the last step */
    double samples_per_second, seconds, seconds_left;
    const snug_metrics *metrics;
    const char *path;
} snug_event;

typedef struct snug_callbacks {
    void *user;
    void (*on_event)(void *user, const snug_event *event);
    bool (*should_stop)(void *user); /* asked while texts are tokenized, after each step and before
                                       each evaluation batch; true ends the run, a training that has
                                       begun with a checkpoint */
} snug_callbacks;

typedef struct snug_ledger_line {
    int64_t planned, measured; /* bytes; measured is -1 where it cannot be told */
} snug_ledger_line;

/* The GPU that a training ran on. */
typedef struct snug_device_use {
    char name[96];    /* "" on the CPU */
    char method[128]; /* how its memory was measured */
    char others[512]; /* the other processes on it at the end, "" if there are none */
} snug_device_use;

/* What a training came to. */
typedef struct snug_train_result {
    int64_t steps, samples, tokens;
    double epochs, train_loss, seconds, samples_per_second, steps_per_second, seconds_to_first_step, flops;
    double padding_avoided; /* share of a padded batch's tokens that were not computed */
    int64_t truncated_texts;
    int64_t infinite_losses, infinite_gradients; /* steps whose loss, whose gradients were NaN or infinite, those before
                                                    a resumption included; the latter changed no weight */
    int64_t skipped_steps;                       /* fp16: whose gradients were not finite; before a resumption too */
    double loss_scale;                           /* fp16: at the end; 0 elsewhere */
    snug_ledger_line ledger[SNUG_MEMORY_CLASS_COUNT];
    snug_ledger_line total; /* of what the arena lies in. Measured: the process's peak resident memory; on a GPU, what
                               it holds there, without the class host */
    int64_t peak_resident;  /* the process's, in the machine's memory (VmHWM); -1 where it cannot be told */
    snug_device_use device;
    snug_metrics metrics; /* the last evaluation, if any */
    char best_checkpoint[512];
} snug_train_result;

snug_status snug_train(snug_args *args, const snug_callbacks *callbacks, snug_train_result *result);
/* The final summary for people: time, rate, memory occupied, the ledger. Free *text with free(). */
snug_status snug_train_result_text(const snug_train_result *result, char **text);

/* The experiment of Hugging Face's "Model training anatomy": trains, by default BERT-large from random weights on
   dummy:512x512 with batch 4 for an epoch (on a CPU a few steps of it), and tells memory before, with the context and
   in training, time, and what tensor contractions, normalisations and element-wise operations take and reach beside
   what the machine can do. Nothing is saved. callbacks hear SNUG_EVENT_PROGRESS; they may be NULL. */
typedef struct snug_anatomy snug_anatomy;
snug_status snug_anatomy_create(snug_args *args, const snug_callbacks *callbacks, snug_anatomy **out);
void snug_anatomy_destroy(snug_anatomy *anatomy);
snug_status snug_anatomy_text(const snug_anatomy *anatomy, char **text);
snug_status snug_anatomy_json(const snug_anatomy *anatomy, char **text);

/* Evaluates model_name_or_path on validation_file; with output_dir set, eval_results.json is written there. */
snug_status snug_evaluate(snug_args *args, const snug_callbacks *callbacks, snug_metrics *metrics);

typedef struct snug_prediction {
    int64_t index;     /* row in the file, from 0 */
    const char *label; /* class name; names joined by "|" for multi-label; the value for regression */
    double
        score; /* probability of the class; for multi-label of the least likely named one; the value for regression */
    size_t logits_count;
    const float *logits;
} snug_prediction;
/* Calls on_row in the file's order. A status other than SNUG_OK from on_row ends the job with it. */
snug_status snug_predict(snug_args *args, const snug_callbacks *callbacks,
                         snug_status (*on_row)(void *user, const snug_prediction *row), void *user);

typedef struct snug_tokenized {
    int64_t index;
    size_t count;
    const int32_t *input_ids, *token_type_ids;
    const char *const *tokens;
} snug_tokenized;
/* Tokenizes test_file (else validation_file, else train_file) row by row; nothing is cached. */
snug_status snug_tokenize(snug_args *args, snug_status (*on_row)(void *user, const snug_tokenized *row), void *user);

/* ---- promises ------------------------------------------------------------------------------------------------- */

typedef enum snug_verdict { SNUG_PROMISE_KEPT, SNUG_PROMISE_BROKEN, SNUG_PROMISE_SKIPPED } snug_verdict;

typedef struct snug_promise {
    const char *name;   /* "recomputed = stored" */
    const char *device; /* "cpu" or "cuda" */
    snug_verdict verdict;
    const char *detail; /* what was compared, and how it came out; or why it was skipped */
    double seconds;
} snug_promise;

/* Proves on args' model, data and machine what snug promises: short trainings (max_steps, 6 where that is unset) that
   must agree to the bit however they recompute, place, thread, load or resume; gradients that must agree up to the
   order of sums however a step is split; memory that must be what was planned. On the CPU, and on the GPU where there
   is one, unless args name a device. Without train_file, on made-up rows. on_promise hears each verdict; a status other
   than SNUG_OK from it ends the job. SNUG_E_INTERNAL when a promise is broken. To be called first in a process: memory
   is measured as the process's peak. */
snug_status snug_verify(snug_args *args, const snug_callbacks *callbacks,
                        snug_status (*on_promise)(void *user, const snug_promise *promise), void *user);

/* ---- one's own loop ------------------------------------------------------------------------------------------ */

/* A model, its optimizer, its data and the arena that holds them. */
typedef struct snug_session snug_session;

/* One micro-batch of packed sequences. */
typedef struct snug_batch_info {
    int64_t sequences, tokens;
    int64_t items;         /* labels or masked tokens in this micro-batch */
    int64_t items_in_step; /* the same over all micro-batches of the step: what a mean loss divides by */
    bool last_in_step;     /* the optimizer's turn after this one: every k batches, and at the epoch's end */
} snug_batch_info;

/* Plans, carves and loads what args describe. Fails before anything is allocated when it does not fit. */
snug_status snug_session_create(snug_args *args, snug_session **out);
void snug_session_destroy(snug_session *session);
int64_t snug_session_epochs(const snug_session *session);
/* Starts epoch number epoch, from 0: its order is a permutation of (seed, epoch). */
snug_status snug_session_begin_epoch(snug_session *session, int64_t epoch);
/* The next micro-batch, made by the loader ahead of time; SNUG_END after the epoch's last, or the
   run's (max_steps). It stays the current one until the
   next call. */
snug_status snug_next_batch(snug_session *session, snug_batch_info *info);
/* The encoder over the current micro-batch. */
snug_status snug_forward(snug_session *session);
/* The head over the current micro-batch: *loss is the sum of its items' losses divided by items_in_step, so that the
   losses of a step's micro-batches add up to the step's mean. The head's gradients are added here: call it once. */
snug_status snug_loss(snug_session *session, double *loss);
/* Adds the current micro-batch's gradients. */
snug_status snug_backward(snug_session *session);
/* Scales all gradients so that their L2 norm is at most max_norm; *norm is the norm before. max_norm <= 0 only
 * measures. */
snug_status snug_clip_grad_norm(snug_session *session, double max_norm, double *norm);
/* One update of the optimizer at the current learning rate; in fp16 none where gradients are not finite. */
snug_status snug_optimizer_step(snug_session *session);
/* Moves the learning-rate schedule on by one step; in fp16 not for a step that the optimizer skipped. */
snug_status snug_scheduler_step(snug_session *session);
double snug_learning_rate(const snug_session *session);
/* Forgets the gradients: the next backward starts anew. */
snug_status snug_zero_grad(snug_session *session);
/* Evaluates on validation_file with the current weights. There is no current batch afterwards. */
snug_status snug_session_evaluate(snug_session *session, snug_metrics *metrics);
/* Writes config.json, model.safetensors and the tokenizer's files into folder, each whole or not at all, and a
   manifest.json of what it wrote; from_pretrained loads it. Other files there stay. SNUG_E_IO names a file under one of
   these names that snug did not write: the argument overwrite_output_dir allows it to be replaced. */
snug_status snug_save_model(snug_session *session, const char *folder);
/* A parameter by its Hugging Face name, copied as fp32 (count values): for looking inside and for tests. */
snug_status snug_get_parameter(snug_session *session, const char *name, float *values, size_t count);
/* The gradient, scaled by the last snug_clip_grad_norm. */
snug_status snug_get_gradient(snug_session *session, const char *name, float *values, size_t count);
/* Name and size of parameter number index; NULL past the last. */
const char *snug_parameter_name(const snug_session *session, size_t index, size_t *count);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
