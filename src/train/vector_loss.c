/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a training of sentence embeddings, from the arguments and what a row of the data has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/used_rows.h"
#include "io/json.h"
#include "model/sentence.h"
#include "train/setup_impl.h"

enum { TEXTS_MOST = 64 };

static const struct {
    const char *name;
    double margin; /* sentence-transformers' default; 0: the loss has none */
    bool scores, scales;
    int64_t least, most; /* texts of a row */
} losses[SNUG_VECTOR_LOSSES] = {
    [SNUG_LOSS_RANKING] = {"multiple_negatives_ranking", .scales = true, .least = 2, .most = TEXTS_MOST},
    [SNUG_LOSS_COSENT] = {"cosent", .scores = true, .scales = true, .least = 2, .most = 2},
    [SNUG_LOSS_ANGLE] = {"angle", .scores = true, .scales = true, .least = 2, .most = 2},
    [SNUG_LOSS_COSINE] = {"cosine_similarity", .scores = true, .least = 2, .most = 2},
    [SNUG_LOSS_CONTRASTIVE] = {"contrastive", .scores = true, .margin = 0.5, .least = 2, .most = 2},
    [SNUG_LOSS_TRIPLET] = {"triplet", .margin = 5, .least = 3, .most = 3},
};

static snug_status refuse(const struct snug_setup *setup, const char *why) {
    return snug_fail(setup->ctx, SNUG_E_UNSUPPORTED, "--task embedding: %s", why);
}

static enum snug_vector_loss find_loss(const struct snug_args *args, bool scored) {
    int i = 0;
    if (!args->loss) return scored ? SNUG_LOSS_COSENT : SNUG_LOSS_RANKING;
    while (strcmp(args->loss, losses[i].name) != 0) i++; /* one of its choices */
    return (enum snug_vector_loss)i;
}

/* Whether a row of data has what the loss reads. */
static snug_status check_row(const struct snug_setup *setup, const struct snug_vector_loss_form *form, bool scored,
                             const char *path) {
    const int64_t texts = form->texts, least = losses[form->function].least, most = losses[form->function].most;
    const char *name = losses[form->function].name;
    if (texts < least || texts > most)
        return snug_fail(setup->ctx, SNUG_E_INPUT,
                         "%s: --loss %s is of %s texts in each row, and there %s %lld: name them with "
                         "--text_column_names A,B%s",
                         path, name,
                         least == 3  ? "three"
                         : most == 2 ? "two"
                                     : "two or more",
                         texts == 1 ? "is" : "are", (long long)texts, least == 3 ? ",C" : "");
    if (losses[form->function].scores && !scored)
        return snug_fail(
            setup->ctx, SNUG_E_INPUT,
            "%s: --loss %s is of two texts and their score or label in each row, and there is none: name it "
            "with --label_column_name, or give --loss multiple_negatives_ranking",
            path, name);
    if (scored && !losses[form->function].scores)
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "%s: --loss %s does not read the scores: texts of a row belong together, whatever its score is", path,
                 name);
    return SNUG_OK;
}

/* Settings of other losses. */
static snug_status check_settings(const struct snug_setup *setup, const struct snug_vector_loss_form *form) {
    const struct snug_args *args = setup->args;
    const char *name = losses[form->function].name, *other = NULL;
    if (!losses[form->function].scales && snug_args_is_chosen(args, "similarity_scale")) other = "similarity_scale";
    if (losses[form->function].margin == 0 && snug_args_is_chosen(args, "margin")) other = "margin";
    if (form->function != SNUG_LOSS_RANKING && args->symmetric) other = "symmetric";
    if (!other) return SNUG_OK;
    return snug_fail(setup->ctx, SNUG_E_USAGE, "--%s is not a setting of --loss %s: leave it out", other, name);
}

/* The numbers of a list, "A,B"; *count is 0 where one is not a number above 0. */
static void read_numbers(const char *text, double out[SNUG_LOSS_DIMS_MOST], int32_t *count) {
    *count = 0;
    for (const char *at = text; at;) {
        char *end;
        const double value = strtod(at, &end);
        if (*count == SNUG_LOSS_DIMS_MOST || end == at || (*end && *end != ',') || !(value > 0 && value < 1e9)) {
            *count = 0;
            return;
        }
        out[(*count)++] = value;
        at = *end ? end + 1 : NULL;
    }
}

static snug_status take_dims(const struct snug_setup *setup, struct snug_vector_loss_form *form) {
    const struct snug_args *args = setup->args;
    const int64_t size = setup->config.sentence->size;
    double dims[SNUG_LOSS_DIMS_MOST], weights[SNUG_LOSS_DIMS_MOST];
    int32_t count = 0;
    if (!args->matryoshka_dims && args->matryoshka_weights)
        return snug_fail(setup->ctx, SNUG_E_USAGE,
                         "--matryoshka_weights are those of --matryoshka_dims: give these, too");
    read_numbers(args->matryoshka_dims, dims, &form->dim_count);
    read_numbers(args->matryoshka_weights, weights, &count);
    bool whole = false;
    for (int32_t i = 0; i < form->dim_count; i++) {
        if (dims[i] != floor(dims[i]) || dims[i] > (double)size) form->dim_count = 0;
        whole |= dims[i] == (double)size;
        form->dims[i] = (int32_t)dims[i];
        form->weights[i] = args->matryoshka_weights ? (float)weights[i] : 1;
    }
    if (args->matryoshka_dims && !form->dim_count)
        return snug_fail(
            setup->ctx, SNUG_E_USAGE,
            "--matryoshka_dims %s: give up to %d whole numbers, A,B, from 1 to the %lld values of a vector",
            args->matryoshka_dims, (int)SNUG_LOSS_DIMS_MOST, (long long)size);
    if (args->matryoshka_weights && count != form->dim_count)
        return snug_fail(setup->ctx, SNUG_E_USAGE,
                         "--matryoshka_weights %s: give a number above 0 for each of --matryoshka_dims %s",
                         args->matryoshka_weights, args->matryoshka_dims);
    if (form->dim_count && !whole)
        snug_log(setup->ctx, SNUG_LOG_WARNING,
                 "--matryoshka_dims %s: whole vectors, of %lld values, are not among them and are not trained",
                 args->matryoshka_dims, (long long)size);
    return SNUG_OK;
}

/* Refuses what trainings of embeddings do not support. */
static snug_status check_run(const struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    const bool twice = snug_args_micro_batches(args) > 1;
    unsigned classes;
    if (args->per_device_train_tokens)
        return refuse(setup, "a batch is a number of rows, whatever their tokens: give --per_device_train_batch_size, "
                             "and --mini_batch_size to need less memory, in place of --per_device_train_tokens");
    RETURN_IF_ERROR(snug_args_offload(args, &classes));
    if (twice && classes & 1u << SNUG_MEMORY_ACTIVATIONS)
        return refuse(setup, "--offload activations is for steps of one micro-batch: make --mini_batch_size smaller "
                             "instead");
    return SNUG_OK;
}

static int64_t rows_of_step(const struct snug_args *args) {
    return snug_args_micro_batch(args) * snug_args_micro_batches(args) * snug_args_ranks(args);
}

static void tell(const struct snug_setup *setup, const struct snug_vector_loss_form *form) {
    const struct snug_args *args = setup->args;
    const long long rows = rows_of_step(args);
    char settings[96] = "";
    if (losses[form->function].scales)
        snprintf(settings, sizeof settings, ", scale %g%s", (double)form->scale, form->symmetric ? ", symmetric" : "");
    if (losses[form->function].margin > 0) snprintf(settings, sizeof settings, ", margin %g", (double)form->margin);
    snug_log(setup->ctx, SNUG_LOG_INFO,
             "loss: %s%s%s%s, over the %lld rows of a step together, in micro-batches of %lld",
             losses[form->function].name, settings, form->dim_count ? ", of the first values " : "",
             form->dim_count ? args->matryoshka_dims : "", rows, (long long)snug_args_micro_batch(args));
}

snug_status snug_setup_choose_loss(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    struct snug_sentence *sentence = setup->config.sentence;
    const struct snug_dataset *dataset = setup->train.dataset;
    const struct snug_used_columns *columns = dataset ? snug_dataset_columns(dataset) : NULL;
    const bool scored = columns && (columns->label || !columns->texts);
    struct snug_vector_loss_form form = {.function = find_loss(args, columns && columns->label),
                                         .symmetric = args->symmetric,
                                         .scale = (float)args->similarity_scale,
                                         .texts = dataset ? (int32_t)snug_dataset_texts(dataset) : 2};
    const double margin = losses[form.function].margin;
    form.margin = (float)(snug_args_is_set(args, "margin") ? args->margin : margin);
    RETURN_IF_ERROR(check_run(setup));
    RETURN_IF_ERROR(check_settings(setup, &form));
    if (dataset) RETURN_IF_ERROR(check_row(setup, &form, scored, args->train_file));
    RETURN_IF_ERROR(take_dims(setup, &form));
    sentence->scored = losses[form.function].scores;
    sentence->loss = form;
    if (setup->command == SNUG_COMMAND_TRAIN) tell(setup, &form);
    return SNUG_OK;
}

snug_status snug_setup_choose_order(struct snug_setup *setup) {
    const struct snug_args *args = setup->args;
    struct snug_data_source *source = &setup->train;
    const int64_t step = rows_of_step(args);
    if (!source->dataset || !setup->config.sentence || strcmp(args->batch_sampler, "no_duplicates") != 0)
        return SNUG_OK;
    RETURN_IF_ERROR(snug_distinct_open(setup->ctx, source->dataset, step, snug_setup_sampling(args),
                                       snug_args_data_seed(args), &source->distinct));
    const long long all = snug_distinct_all(source->distinct), used = snug_distinct_used(source->distinct);
    snug_dataset_use_first(source->dataset, used); /* so many; which ones the order says */
    source->rows = used;
    snug_log(setup->ctx, SNUG_LOG_INFO,
             "%s: no text is twice in a step of %lld rows: in an epoch %lld of %lld rows wait for another step, and "
             "%lld are left out of it",
             args->train_file, (long long)step, (long long)snug_distinct_put_off(source->distinct), all, all - used);
    return SNUG_OK;
}

json_t *snug_setup_loss_json(const struct snug_setup *setup) {
    if (!setup->config.sentence) return json_null();
    const struct snug_vector_loss_form *form = &setup->config.sentence->loss;
    json_t *o = json_object(), *dims = json_array();
    for (int32_t i = 0; i < form->dim_count; i++)
        snug_json_append(&dims, json_pack("[i, f]", (int)form->dims[i], (double)form->weights[i]));
    snug_json_add(&o, "loss", json_string(losses[form->function].name));
    snug_json_add(&o, "scale", snug_json_number((double)form->scale));
    snug_json_add(&o, "margin", snug_json_number((double)form->margin));
    snug_json_add(&o, "symmetric", json_boolean(form->symmetric));
    snug_json_add(&o, "matryoshka", dims);
    return o;
}
