/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The setup of a run: the files and settings that the arguments name, opened. It does not change after it is open:
 * every plan of the run (run_plan.h) is built from the same setup.
 */
#ifndef SNUG_TRAIN_SETUP_H
#define SNUG_TRAIN_SETUP_H

#include <jansson.h>

#include "args/args.h"
#include "backend/backend.h"
#include "data/distinct.h"
#include "data/judgements.h"
#include "data/loader.h"
#include "data/task.h"
#include "io/folder.h"
#include "metrics/metrics.h"
#include "model/config.h"
#include "train/generation.h"
#include "train/trained.h"

enum snug_command {
    SNUG_COMMAND_TRAIN,
    SNUG_COMMAND_EVAL,
    SNUG_COMMAND_PREDICT,
    SNUG_COMMAND_EMBED,
    SNUG_COMMAND_PLAN,
    SNUG_COMMAND_MODEL,
    SNUG_COMMAND_GENERATE, /* the prompts of the arguments */
    SNUG_COMMAND_CHAT      /* prompts that come later */
};

struct snug_data_source {
    struct snug_dataset *dataset; /* NULL where a plan is made without data */
    int64_t rows;
    int64_t bytes; /* of a training's file; -1: it is no regular file */
    uint64_t digest;
    float *reference;               /* [rows * 2] of preferences: snug_loader_options.reference; or NULL */
    uint64_t reference_key;         /* of all that they depend on */
    bool reference_stale;           /* the output folder has others */
    struct snug_packs *packs;       /* of a training with micro-batches by tokens, or NULL */
    struct snug_distinct *distinct; /* of a training with steps that have no text twice, or NULL */
};

/* A folder that the run reads from; it may be renamed during the run. */
struct snug_source {
    dev_t device;
    ino_t inode;
};
enum { SNUG_SOURCES = 32 };

struct snug_setup {
    snug_context *ctx;
    struct snug_args *args; /* the caller's */
    enum snug_command command;
    const struct snug_backend *backend;
    int threads;
    struct snug_config config;
    struct snug_folder model;   /* none: weights are initialised */
    struct snug_folder adapter; /* of its adapters; none: they are initialised, or there are none */
    struct snug_adapter *lora;  /* config.adapter; NULL: none */
    uint64_t base_digest;       /* of the weights beside the adapters of a training: snug_weights_digest() */
    char *tokenizer_folder;     /* NULL: dummy data */
    struct snug_tokenizer *tokenizer;
    struct snug_source sources[SNUG_SOURCES];
    int source_count;
    mode_t mode; /* permissions of files derived from the sources: no more readable than these */
    struct snug_data_source train, eval; /* eval: the data to evaluate or predict */
    struct snug_judgements judgements; /* eval is a retrieval: its queries, then its documents; queries 0: it is not */
    bool trains, evaluates;
    struct snug_generation_setup generation; /* if it generates */
    const char *prompt;                      /* before the texts of an embedding, or NULL */
    json_t *prompts;                         /* instead: texts by the name of a column; or NULL */
    int64_t max_length;                      /* tokens that texts are truncated to */
    struct snug_trained trained;             /* of the model that is evaluated or predicts */
    float *class_weights;                    /* [config.labels.count] of the loss, or NULL */
    int64_t best_metric; /* training: index of --metric_for_best_model among the metrics of an evaluation */
};

/* The length of texts within a limit, "BEFORE MOST AFTER" in messages: a longer one that was given is warned of. */
int64_t snug_setup_limit_length(snug_context *ctx, int64_t length, bool is_given, int64_t most, const char *before,
                                const char *after);
/* The order of a training's rows. */
enum snug_sampling snug_setup_sampling(const struct snug_args *args);
/* Opens config, tokenizer and data. args are checked (snug_args_check()). The setup is freed in any case with
   snug_setup_close(). */
snug_status snug_setup_open(struct snug_args *args, enum snug_command command, const struct snug_backend *backend,
                            int threads, struct snug_setup *setup);
void snug_setup_close(struct snug_setup *setup);

/* --text and --text_pair as a row; words: split at blanks, for tags. Destroyed by the caller. */
snug_status snug_sentence_rows(const struct snug_args *args, bool words, struct snug_rows **out);
/* Longest row of dummy data: limit, or the model's positions if these are fewer. */
snug_status snug_setup_longest(const struct snug_args *args, int64_t limit, int64_t *longest);
const struct snug_task_info *snug_setup_task(const struct snug_setup *setup);
/* What decides the metrics of its evaluations; problem: that of labels. */
struct snug_metric_form snug_setup_metric_form(const struct snug_setup *setup, enum snug_problem problem);
/* Whether logits are read on the host: for scores of predictions, and for some metrics. */
bool snug_setup_reads_logits(const struct snug_setup *setup);
struct snug_metric_accumulator_options snug_setup_metrics(const struct snug_setup *setup); /* of its evaluations */
/* How texts in memory are read that a loaded model predicts; path and rows are the caller's. */
struct snug_dataset_options snug_setup_texts(const struct snug_setup *setup);
/* Whether the tokenizer gives second texts token type 1, which the model does not have. */
bool snug_setup_lacks_type(const struct snug_setup *setup);
int64_t snug_setup_classes(const struct snug_setup *setup);            /* width of the logits, or of a vector */
json_t *snug_setup_loss_json(const struct snug_setup *setup);          /* of a sentence embedding, else null */
json_t *snug_setup_class_weights_json(const struct snug_setup *setup); /* a list in the classes' order, or null */
static inline bool snug_setup_predicts_file(const struct snug_setup *setup) {
    return setup->command == SNUG_COMMAND_PREDICT || setup->command == SNUG_COMMAND_EMBED;
}
/* Predictions of a file, or of a loaded model. */
static inline bool snug_setup_predicts(const struct snug_setup *setup) {
    return snug_setup_predicts_file(setup) || setup->command == SNUG_COMMAND_MODEL;
}
static inline bool snug_setup_generates(const struct snug_setup *setup) {
    return setup->command == SNUG_COMMAND_GENERATE || setup->command == SNUG_COMMAND_CHAT;
}
/* Whether evaluations answer prompts, too. */
static inline bool snug_setup_answers(const struct snug_setup *setup) {
    return setup->evaluates && setup->args->predict_with_generate && !snug_setup_predicts(setup);
}
/* Of a metric of an evaluation, by its index among them. */
const char *snug_setup_metric_name(const struct snug_setup *setup, int64_t index);
/* As in Trainer, evaluations within a training compute in the training's types; eval and predict have their own
   flags. */
static inline bool snug_setup_is_inference(const struct snug_setup *setup) {
    return setup->command == SNUG_COMMAND_EVAL || snug_setup_predicts(setup) || snug_setup_generates(setup);
}

/* Appends the model's operations, with the parts frozen and quantized that the arguments say: the setup's, or those of
   another plan. config: the setup's. */
snug_status snug_setup_build(const struct snug_setup *setup, const struct snug_args *args,
                             const struct snug_config *config, bool training, struct snug_program *program);

#endif
