/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a model folder, or of a base model and its adapters, read and merged a piece at a time. */
#ifndef SNUG_TRAIN_MERGE_H
#define SNUG_TRAIN_MERGE_H

#include "args/args.h"
#include "io/folder.h"
#include "io/safetensors.h"
#include "model/adapters.h"
#include "model/bitsandbytes.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

/* Where the values of a parameter come from. */
struct snug_origin {
    const struct snug_safetensors *files;
    const struct snug_stored_tensor *weight;
    const struct snug_stored_tensor *a, *b;   /* of an adapter, or NULL */
    const struct snug_stored_tensor *lengths; /* DoRA's magnitudes, or NULL */
    const struct snug_stored_tensor *bias;    /* of B: of the weight's own bias; or NULL */
    const struct snug_stored_tensor *rows;    /* of tokens, in place of the weight's; or NULL */
    const json_t *ids;                        /* of these tokens */
    double scale;
    bool transposed;                /* the weight is stored as [in, out] */
    bool turned;                    /* and its codes as [out, in] */
    struct snug_stored_codes codes; /* of a base model that is stored quantized */
    struct snug_quantized form;     /* in which the training had the weight; type NONE: as the file has it */
};

/* One parameter as the training had it: its codes. */
struct snug_coded {
    struct snug_program program;
    struct snug_parameter parameter;
    struct snug_memory memory;
    size_t number;    /* of the merged model's parameters */
    double off, size; /* sums of squares, over all of them: of what quantizing changed, of the weights */
};

/* Zero-initialise. */
struct snug_merged {
    snug_context *ctx;
    const struct snug_args *args;
    struct snug_folder model, folder; /* folder: of the adapters; without a path: there are none */
    struct snug_config config;
    struct snug_adapter *adapter;
    struct snug_program program; /* the merged model's parameters, in their saved types */
    struct snug_safetensors base, own;
    bool untied;                 /* the merged model has a decoder of its own, the base model has not */
    struct snug_origin *origins; /* by parameter */
    /* of parameter `current`, whose values row i of the weight gets: weight += scale sum over k of c[i][k] v[k] */
    size_t current;
    float *c, *v, *factors; /* factors: of DoRA, by which outputs are multiplied; or NULL */
    float *turned;          /* all values of the codes of a weight that are turned, of parameter `turned_of` */
    size_t turned_of;
    float *values, *others; /* of a piece */
    struct snug_coded coded;
    int threads;
};

enum { SNUG_MERGED_PIECE = 1 << 20 }; /* values: at most as many as bytes that are saved at a time */

/* Opens what args name. with_adapters: a folder without is SNUG_E_USAGE. choose may be NULL: it may refuse the
   configuration, or change its task. snug_merged_close() also after a failure. */
snug_status snug_merged_open(struct snug_args *args, bool with_adapters,
                             snug_status (*choose)(void *user, struct snug_config *config), void *user,
                             struct snug_merged *m);
/* Elements of a parameter, at most a piece, into m->values; in the compute thread. */
snug_status snug_merged_read(struct snug_merged *m, size_t parameter, int64_t first, int64_t count);
/* Logs what the training's codes changed of the weights that were read. */
void snug_merged_report(const struct snug_merged *m);
/* The adapters' folder's, or else the model's; *out NULL: there is none. */
snug_status snug_merged_tokenizer(const struct snug_merged *m, struct snug_tokenizer **out);
void snug_merged_close(struct snug_merged *m);

#endif
