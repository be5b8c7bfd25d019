/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: a Hugging Face folder with the optimizer's states and trainer_state.json. All randomness is keyed by
 * step and place, so that no generator's state is needed to go on with the same bits.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "io/json.h"
#include "model/weights.h"
#include "train/results.h"
#include "train/trainer.h"

/* ---- trainer_state.json --------------------------------------------------------------------------------------- */

/* What has to be the same for a resumed run to be the same run. */
static json_t *identity_of(const struct snug_trainer *t) {
    const struct snug_job *job = &t->session->job;
    const struct snug_loader_options *options = &job->train.options;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:s, s:s, s:s, s:s}", "train_rows", (json_int_t)job->train.rows,
        "train_batch_size", (json_int_t)options->batch_size, "gradient_accumulation_steps",
        (json_int_t)options->accumulation, "seed", (json_int_t)t->args->seed, "data_seed", (json_int_t)options->seed,
        "sampling", (int)options->sampling, "max_steps", (json_int_t)job->max_steps, "compute",
        job->training->tf32 ? "TF32" : snug_dtype_name(job->training->compute), "dtype", snug_dtype_name(job->weights),
        "optim", job->optimizer.name, "optim_args", t->args->optim_args ? t->args->optim_args : "");
}

/* What only snug reads: where transformers keeps the state of callbacks that it may not know. A sum that is not finite
   is null, and NaN when it is read back. */
static json_t *own_state_of(const struct snug_trainer *t) {
    return json_pack("{s:{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:o}}", "snug", "loss_sum",
                     snug_json_number(t->loss_sum), "loss_total", snug_json_number(t->loss_total), "logged_step",
                     (json_int_t)t->logged_step, "evaluated_step", (json_int_t)t->evaluated_step, "samples",
                     (json_int_t)t->samples, "tokens", (json_int_t)t->tokens, "impatience", (json_int_t)t->impatience,
                     "unjudged", t->unjudged, "nan_inf_losses", (json_int_t)t->infinite_losses, "nan_inf_gradients",
                     (json_int_t)t->infinite_gradients, "identity", identity_of(t));
}

static json_t *state_of(const struct snug_trainer *t) {
    const struct snug_job *job = &t->session->job;
    return json_pack(
        "{s:o, s:o, s:I, s:o, s:I, s:I, s:b, s:b, s:b, s:O, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:I, s:n, s:n}",
        "best_metric", t->has_best ? snug_json_number(t->best_metric) : json_null(), "best_model_checkpoint",
        t->best_checkpoint[0] ? json_string(t->best_checkpoint) : json_null(), "best_global_step",
        (json_int_t)t->best_step, "epoch", snug_json_number(snug_trainer_epoch(t)), "eval_steps",
        (json_int_t)t->eval_steps, "global_step", (json_int_t)t->session->step, "is_hyper_param_search", 0,
        "is_local_process_zero", 1, "is_world_process_zero", 1, "log_history", t->log_history, "logging_steps",
        (json_int_t)t->logging_steps, "max_steps", (json_int_t)job->max_steps, "num_input_tokens_seen",
        (json_int_t)t->tokens, "num_train_epochs", snug_json_number(t->args->num_train_epochs), "save_steps",
        (json_int_t)t->save_steps, "stateful_callbacks", own_state_of(t), "total_flos",
        snug_json_number(snug_trainer_flops(t)), "train_batch_size", (json_int_t)job->train.options.batch_size,
        "trial_name", "trial_params");
}

snug_status snug_trainer_state_write(struct snug_trainer *t, const char *folder) {
    char *path = NULL;
    json_t *state = state_of(t);
    snug_status status = state ? snug_path_join(t->ctx, &path, folder, "trainer_state.json")
                               : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing trainer_state.json");
    if (status == SNUG_OK) status = snug_json_write(t->ctx, path, state);
    json_decref(state);
    free(path);
    return status;
}

static double real_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NAN : json_number_value(value);
}
static int64_t int_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static snug_status check_identity(struct snug_trainer *t, const char *path, const json_t *saved) {
    json_t *here = identity_of(t);
    const char *key;
    json_t *value;
    snug_status status = here ? SNUG_OK : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    json_object_foreach(here, key, value) {
        if (json_equal(value, json_object_get(saved, key))) continue;
        snug_log(t->ctx, SNUG_LOG_WARNING,
                 "%s: %s was another when this checkpoint was made: the run goes on, but not "
                 "as it would have without the interruption",
                 path, key);
    }
    json_decref(here);
    return status;
}

/* Counts of a run so far, each from 0 to a most that the run to come can be added to; and what has its place in t. */
static snug_status check_state(const struct snug_trainer *t, const char *path, const json_t *state, const json_t *own) {
    snug_context *ctx = t->ctx;
    const int64_t step = int_of(state, "global_step"), most_steps = INT64_C(1000000000000), most = INT64_C(1) << 53;
    const struct {
        const json_t *object;
        const char *key;
        int64_t most;
    } counts[] = {{state, "global_step", most_steps},
                  {state, "best_global_step", step},
                  {own, "logged_step", step},
                  {own, "evaluated_step", step},
                  {own, "nan_inf_losses", step},
                  {own, "nan_inf_gradients", step},
                  {own, "samples", most},
                  {own, "tokens", most},
                  {own, "impatience", most}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int64_t count = int_of(counts[i].object, counts[i].key);
        if (count < 0 || count > counts[i].most)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: %s is %lld, which no run comes to: it cannot be resumed from",
                             path, counts[i].key, (long long)count);
    }
    if (json_string_length(json_object_get(state, "best_model_checkpoint")) >= sizeof t->best_checkpoint)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: best_model_checkpoint is a path of over %zu bytes", path,
                         sizeof t->best_checkpoint - 1);
    return SNUG_OK;
}

snug_status snug_trainer_state_read(struct snug_trainer *t, const char *folder) {
    char *path;
    json_t *state;
    RETURN_IF_ERROR(snug_path_join(t->ctx, &path, folder, "trainer_state.json"));
    snug_status status = snug_json_read(t->ctx, path, &state);
    if (status == SNUG_OK) {
        const json_t *own = json_object_get(json_object_get(state, "stateful_callbacks"), "snug");
        const json_t *history = json_object_get(state, "log_history");
        if (!json_is_object(own) || !json_is_array(history))
            status = snug_fail(t->ctx, SNUG_E_INPUT, "%s was not written by snug: it cannot be resumed from", path);
        else
            status = check_state(t, path, state, own);
        if (status == SNUG_OK) status = check_identity(t, path, json_object_get(own, "identity"));
        if (status == SNUG_OK) {
            snug_session_seek(t->session, int_of(state, "global_step"));
            t->loss_sum = real_of(own, "loss_sum");
            t->loss_total = real_of(own, "loss_total");
            t->logged_step = int_of(own, "logged_step");
            t->evaluated_step = int_of(own, "evaluated_step");
            t->samples = int_of(own, "samples");
            t->tokens = int_of(own, "tokens");
            t->impatience = int_of(own, "impatience");
            t->infinite_losses = int_of(own, "nan_inf_losses");
            t->infinite_gradients = int_of(own, "nan_inf_gradients");
            t->unjudged = json_is_true(json_object_get(own, "unjudged"));
            t->has_best = json_is_number(json_object_get(state, "best_metric"));
            t->best_metric = real_of(state, "best_metric");
            t->best_step = int_of(state, "best_global_step");
            const char *best = json_string_value(json_object_get(state, "best_model_checkpoint"));
            snprintf(t->best_checkpoint, sizeof t->best_checkpoint, "%s", best ? best : "");
            json_array_clear(t->log_history);
            if (json_array_extend(t->log_history, (json_t *)history))
                status = snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
        }
        json_decref(state);
    }
    free(path);
    return status;
}

/* ---- the folders ---------------------------------------------------------------------------------------------- */

static int by_step(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The step of a checkpoint's folder; -1 where it is none. As snug writes it: what is called checkpoint-007 would be
   looked for as checkpoint-7. */
static int64_t step_of(const char *folder) {
    const char *digits = folder + strlen("checkpoint-");
    if (strncmp(folder, "checkpoint-", strlen("checkpoint-")) != 0 || (*digits == '0' && digits[1])) return -1;
    const size_t length = strspn(digits, "0123456789");
    return length > 0 && length <= 18 && digits[length] == '\0' ? strtoll(digits, NULL, 10) : -1;
}

static snug_status fail_list(const struct snug_trainer *t) {
    return snug_fail(t->ctx, SNUG_E_IO, "the checkpoints in %s cannot be listed: %s", t->args->output_dir,
                     strerror(errno));
}

snug_status snug_checkpoint_list(const struct snug_trainer *t, int64_t **steps, size_t *count) {
    size_t capacity = 0;
    *steps = NULL;
    *count = 0;
    DIR *folder = opendir(t->args->output_dir);
    if (!folder && errno == ENOENT) return SNUG_OK;
    if (!folder) return fail_list(t);
    snug_status status = SNUG_OK;
    for (struct dirent *entry; status == SNUG_OK && (errno = 0, entry = readdir(folder));) {
        const int64_t step = step_of(entry->d_name);
        if (step < 0) continue;
        status = snug_grow(t->ctx, (void **)steps, &capacity, *count + 1, sizeof **steps);
        if (status == SNUG_OK) (*steps)[(*count)++] = step;
    }
    if (status == SNUG_OK && errno) status = fail_list(t);
    closedir(folder);
    if (*count) qsort(*steps, *count, sizeof **steps, by_step);
    return status;
}

int snug_checkpoint_path(const struct snug_trainer *t, int64_t step, char path[SNUG_CHECKPOINT_PATH]) {
    return snprintf(path, SNUG_CHECKPOINT_PATH, "%s/checkpoint-%lld", t->args->output_dir, (long long)step);
}

/* The oldest go first; the best and the newest stay, as in Trainer. */
static snug_status rotate(struct snug_trainer *t, int64_t newest) {
    int64_t *steps;
    size_t count;
    if (t->save_total_limit <= 0) return SNUG_OK;
    snug_status status = snug_checkpoint_list(t, &steps, &count);
    int64_t left = (int64_t)count;
    for (size_t i = 0; i < count && left > t->save_total_limit && status == SNUG_OK; i++) {
        char path[SNUG_CHECKPOINT_PATH];
        snug_checkpoint_path(t, steps[i], path);
        if (steps[i] == newest || strcmp(path, t->best_checkpoint) == 0) continue;
        status = snug_folder_discard(t->ctx, path);
        left--;
    }
    free(steps);
    return status;
}

snug_status snug_checkpoint_remove_all(struct snug_trainer *t) {
    int64_t *steps;
    size_t count;
    snug_status status = snug_checkpoint_list(t, &steps, &count);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        char path[SNUG_CHECKPOINT_PATH];
        snug_checkpoint_path(t, steps[i], path);
        status = snug_folder_discard(t->ctx, path);
    }
    free(steps);
    return status;
}

void snug_checkpoint_sweep(struct snug_trainer *t) {
    DIR *folder = opendir(t->args->output_dir);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[SNUG_CHECKPOINT_PATH + sizeof entry->d_name];
        int end = 0;
        if (sscanf(entry->d_name, ".checkpoint-%*d.snug-aside%n", &end) != 0 || !end || entry->d_name[end]) continue;
        snprintf(path, sizeof path, "%s/%s", t->args->output_dir, entry->d_name);
        if (snug_folder_remove(t->ctx, path) == SNUG_OK)
            snug_log(t->ctx, SNUG_LOG_INFO, "removed %s, which a killed run left unfinished", path);
        snug_clear_error(t->ctx);
    }
    closedir(folder);
    snug_folder_sweep(t->ctx, t->args->output_dir);
}

static snug_status write_checkpoint(struct snug_trainer *t, const char *aside) {
    RETURN_IF_ERROR(snug_session_write_model(t->session, aside));
    RETURN_IF_ERROR(snug_trainer_state_write(t, aside));
    if (t->args->save_only_model) return SNUG_OK;
    char *path;
    RETURN_IF_ERROR(snug_path_join(t->ctx, &path, aside, "optimizer.safetensors"));
    snug_status status = snug_states_save(t->ctx, path, t->session->job.training, &t->session->memory);
    free(path);
    return status;
}

snug_status snug_checkpoint_save(struct snug_trainer *t, char path[SNUG_CHECKPOINT_PATH]) {
    char *aside = NULL;
    snug_checkpoint_path(t, t->session->step, path);
    RETURN_IF_ERROR(snug_folder_begin(t->ctx, path, &aside));
    snug_status status = write_checkpoint(t, aside);
    if (status != SNUG_OK) {
        snug_folder_remove(t->ctx, aside);
        free(aside);
        return status;
    }
    RETURN_IF_ERROR(snug_folder_commit(t->ctx, aside, path));
    return rotate(t, t->session->step);
}

/* ---- going on ------------------------------------------------------------------------------------------------- */

snug_status snug_checkpoint_load_weights(struct snug_trainer *t, const char *folder) {
    struct snug_session *s = t->session;
    RETURN_IF_ERROR(
        snug_weights_load(t->ctx, folder, s->job.training, &s->job.config, &s->memory, (uint64_t)t->args->seed, false));
    return snug_session_prepare(s);
}

/* What transformers' Trainer saves: states as pickles, and no manifest. */
static snug_status refuse_pickled(const struct snug_trainer *t, const char *folder) {
    char *states, *own = NULL;
    RETURN_IF_ERROR(snug_path_join(t->ctx, &states, folder, "optimizer.pt"));
    snug_status status = snug_path_join(t->ctx, &own, folder, "optimizer.safetensors");
    if (status == SNUG_OK && snug_file_exists(states) && !snug_file_exists(own))
        status = snug_fail(t->ctx, SNUG_E_INPUT,
                           "%s is pickled, and may run any code when it is loaded: snug does not go on with a run of "
                           "transformers' Trainer; start a new one from its weights with --model_name_or_path %s",
                           states, folder);
    free(states);
    free(own);
    return status;
}

static snug_status resume_from(struct snug_trainer *t, const char *folder) {
    char *states;
    RETURN_IF_ERROR(snug_path_join(t->ctx, &states, folder, "optimizer.safetensors"));
    snug_status status = SNUG_OK;
    if (!snug_file_exists(states))
        status = snug_fail(t->ctx, SNUG_E_INPUT,
                           "%s holds no optimizer.safetensors (saved with --save_only_model?): start from it with "
                           "--model_name_or_path instead",
                           folder);
    if (status == SNUG_OK) status = snug_trainer_state_read(t, folder);
    if (status == SNUG_OK) status = snug_states_load(t->ctx, states, t->session->job.training, &t->session->memory);
    if (status == SNUG_OK) status = snug_session_look(t->session);
    if (status == SNUG_OK) status = snug_checkpoint_load_weights(t, folder);
    free(states);
    if (status == SNUG_OK)
        snug_log(t->ctx, SNUG_LOG_INFO, "resuming from %s, step %lld of %lld", folder, (long long)t->session->step,
                 (long long)t->session->job.max_steps);
    return status;
}

static snug_status fail_nothing_whole(const struct snug_trainer *t) {
    return snug_fail(t->ctx, SNUG_E_INPUT, "%s holds no whole checkpoint to resume from", t->args->output_dir);
}

snug_status snug_checkpoint_look(const struct snug_trainer *t) {
    const char *from = t->args->resume_from_checkpoint;
    char path[SNUG_CHECKPOINT_PATH];
    if (snug_checkpoint_path(t, INT64_MAX, path) >= SNUG_CHECKPOINT_PATH)
        return snug_fail(t->ctx, SNUG_E_USAGE, "--output_dir %s is too long", t->args->output_dir);
    if (!snug_trainer_resumes(t)) return SNUG_OK;
    if (strcasecmp(from, "true") == 0) {
        int64_t *steps;
        size_t count;
        RETURN_IF_ERROR(snug_checkpoint_list(t, &steps, &count));
        free(steps);
        return count ? SNUG_OK : fail_nothing_whole(t);
    }
    if (snug_folder_exists(from)) {
        char *manifest;
        RETURN_IF_ERROR(refuse_pickled(t, from));
        RETURN_IF_ERROR(snug_path_join(t->ctx, &manifest, from, "manifest.json"));
        const bool whole = snug_file_exists(manifest);
        free(manifest);
        return whole ? SNUG_OK
                     : snug_fail(t->ctx, SNUG_E_INPUT,
                                 "--resume_from_checkpoint %s: there is no manifest.json: it is no checkpoint, as "
                                 "out/checkpoint-500 is one, or was not written to its end",
                                 from);
    }
    return snug_fail(t->ctx, SNUG_E_INPUT, "--resume_from_checkpoint %s: %s", from,
                     snug_file_exists(from) ? "that is a file: name the checkpoint's folder"
                                            : "there is no such folder; True takes the last one of --output_dir");
}

snug_status snug_checkpoint_resume(struct snug_trainer *t) {
    const char *from = t->args->resume_from_checkpoint;
    if (!snug_trainer_resumes(t)) return SNUG_OK;
    if (strcasecmp(from, "true") != 0) {
        RETURN_IF_ERROR(snug_folder_verify(t->ctx, from));
        return resume_from(t, from);
    }
    int64_t *steps;
    size_t count;
    snug_status status = snug_checkpoint_list(t, &steps, &count), found = SNUG_END;
    for (size_t i = count; i-- > 0 && status == SNUG_OK && found != SNUG_OK;) {
        char path[SNUG_CHECKPOINT_PATH];
        snug_checkpoint_path(t, steps[i], path);
        found = snug_folder_verify(t->ctx, path);
        if (found == SNUG_OK) {
            status = resume_from(t, path);
        } else if (found == SNUG_E_MEMORY) {
            status = found; /* which says nothing of the checkpoint */
        } else {
            snug_log(t->ctx, SNUG_LOG_WARNING, "%s is skipped: %s", path, snug_error_message(t->ctx));
            snug_clear_error(t->ctx);
        }
    }
    free(steps);
    return status == SNUG_OK && found != SNUG_OK ? fail_nothing_whole(t) : status;
}
