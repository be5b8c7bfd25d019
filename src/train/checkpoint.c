/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: a Hugging Face folder with the optimizer's states and trainer_state.json. All random numbers are keyed
 * by step and position, so that a resumed run needs no generator state to give the same bits.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dist/save.h"
#include "io/folder_write.h"
#include "io/json.h"
#include "model/adapters.h"
#include "model/weight_files.h"
#include "model/weights.h"
#include "train/checkpoint_copy.h"
#include "train/identity.h"
#include "train/results.h"
#include "train/trainer.h"

/* ---- trainer_state.json --------------------------------------------------------------------------------------- */

/* State that only snug reads, in the place where transformers stores the state of callbacks. A sum that is not finite
 * is written as null, and read back as NaN. */
static json_t *own_state_of(const struct snug_trainer *t) {
    json_t *preferences = t->pairs > 0 ? json_array() : json_null();
    for (int i = 0; i < SNUG_PREFERENCE_RESULTS && t->pairs > 0; i++)
        snug_json_append(&preferences, snug_json_number(t->results[i]));
    if (t->pairs > 0) snug_json_append(&preferences, snug_json_number(t->pairs));
    return json_pack(
        "{s:{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:b, s:I, s:I, s:I, s:o}}", "snug", "preferences",
        preferences, "loss_sum", snug_json_number(t->loss_sum), "loss_total", snug_json_number(t->loss_total),
        "logged_step", (json_int_t)t->logged_step, "evaluated_step", (json_int_t)t->evaluated_step, "samples",
        (json_int_t)t->samples, "tokens", (json_int_t)t->tokens, "impatience", (json_int_t)t->impatience,
        "best_evaluation_metric", t->has_best ? snug_json_number(t->best_metric) : json_null(), "best_evaluation_step",
        (json_int_t)t->best_step, "unjudged", t->unjudged, "nan_inf_losses", (json_int_t)t->infinite_losses,
        "nan_inf_gradients", (json_int_t)t->infinite_gradients, "best_checkpoint_step", (json_int_t)t->best_saved_step,
        "identity", snug_identity(&t->session->job));
}

/* best_metric, best_global_step and best_model_checkpoint are of one step: the best saved one, else the best
   evaluation. The path is as transformers writes it. Only its step is read back; the checkpoint is opened in the output
   folder. */
static json_t *best_path(const struct snug_trainer *t) {
    char path[SNUG_CHECKPOINT_PATH];
    if (t->best_saved_step < 0) return json_null();
    snug_checkpoint_path(t, t->best_saved_step, path);
    return snug_json_from_text(path);
}

static json_t *state_of(const struct snug_trainer *t) {
    const struct snug_session *session = t->session;
    const bool saved = t->best_saved_step >= 0;
    return json_pack(
        "{s:o, s:o, s:I, s:o, s:I, s:I, s:b, s:b, s:b, s:O, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:I, s:n, s:n}",
        "best_metric",
        saved         ? snug_json_number(t->best_saved_metric)
        : t->has_best ? snug_json_number(t->best_metric)
                      : json_null(),
        "best_model_checkpoint", best_path(t), "best_global_step",
        (json_int_t)(saved ? t->best_saved_step : t->best_step), "epoch", snug_json_number(snug_trainer_epoch(t)),
        "eval_steps", (json_int_t)t->calendar.evaluating.every, "global_step", (json_int_t)t->session->step,
        "is_hyper_param_search", 0, "is_local_process_zero", 1, "is_world_process_zero", 1, "log_history",
        t->log_history, "logging_steps", (json_int_t)t->calendar.logging.every, "max_steps",
        (json_int_t)session->max_steps, "num_input_tokens_seen", (json_int_t)t->tokens, "num_train_epochs",
        snug_json_number(t->args->num_train_epochs), "save_steps",
        (json_int_t)snug_args_steps(t->args->save_steps, session->max_steps), "stateful_callbacks", own_state_of(t),
        "total_flos", snug_json_number(snug_trainer_flops(t)), "train_batch_size",
        (json_int_t)session->training->pipeline.options.batch_size, "trial_name", "trial_params");
}

snug_status snug_trainer_state_write(struct snug_trainer *t, const struct snug_folder *folder) {
    json_t *state = state_of(t);
    const snug_status status = state
                                   ? snug_json_write(t->ctx, folder, "trainer_state.json", state)
                                   : snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while writing trainer_state.json");
    json_decref(state);
    return status;
}

static double real_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NAN : json_number_value(value);
}
static int64_t int_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

/* Reads the counts of the run so far, each limited so that adding the rest of the run cannot overflow; and the other
   members of t. */
static snug_status check_state(const struct snug_trainer *t, const char *path, const json_t *state, const json_t *own) {
    snug_context *ctx = t->ctx;
    const int64_t step = int_of(state, "global_step"), most_steps = INT64_C(1000000000000), most = INT64_C(1) << 53;
    const struct {
        const json_t *object;
        const char *key;
        int64_t most;
    } counts[] = {{state, "global_step", most_steps},
                  {state, "best_global_step", step},
                  {own, "best_checkpoint_step", step},
                  {own, "best_evaluation_step", step},
                  {own, "logged_step", step},
                  {own, "evaluated_step", step},
                  {own, "nan_inf_losses", step},
                  {own, "nan_inf_gradients", step},
                  {own, "samples", most},
                  {own, "tokens", most},
                  {own, "impatience", most}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int64_t count = int_of(counts[i].object, counts[i].key);
        const bool none = count == -1 && strcmp(counts[i].key, "best_checkpoint_step") == 0;
        if ((count < 0 && !none) || count > counts[i].most)
            return snug_fail(ctx, SNUG_E_INPUT, "%s: %s is %lld, which no run reaches: it cannot be resumed from", path,
                             counts[i].key, (long long)count);
    }
    return SNUG_OK;
}

static snug_status take_state(struct snug_trainer *t, const char *path, const json_t *state, const json_t *own) {
    bool other_best;
    RETURN_IF_ERROR(check_state(t, path, state, own));
    RETURN_IF_ERROR(snug_identity_check(&t->session->job, path, json_object_get(own, "identity"), &other_best));
    snug_session_seek(t->session, int_of(state, "global_step"));
    t->loss_sum = real_of(own, "loss_sum");
    t->loss_total = real_of(own, "loss_total");
    t->logged_step = int_of(own, "logged_step");
    const json_t *preferences = json_object_get(own, "preferences");
    for (size_t i = 0; i < SNUG_PREFERENCE_RESULTS; i++)
        t->results[i] = json_number_value(json_array_get(preferences, i));
    t->pairs = json_number_value(json_array_get(preferences, SNUG_PREFERENCE_RESULTS));
    t->evaluated_step = int_of(own, "evaluated_step");
    t->samples = int_of(own, "samples");
    t->tokens = int_of(own, "tokens");
    t->infinite_losses = int_of(own, "nan_inf_losses");
    t->infinite_gradients = int_of(own, "nan_inf_gradients");
    t->unjudged = json_is_true(json_object_get(own, "unjudged"));
    if (!other_best) { /* otherwise later metrics cannot be compared with it */
        t->impatience = int_of(own, "impatience");
        t->has_best = json_is_number(json_object_get(own, "best_evaluation_metric"));
        t->best_metric = real_of(own, "best_evaluation_metric");
        t->best_step = int_of(own, "best_evaluation_step");
        t->best_saved_step = int_of(own, "best_checkpoint_step");
        t->best_saved_metric = real_of(state, "best_metric");
    }
    json_array_clear(t->log_history);
    if (json_array_extend(t->log_history, json_object_get(state, "log_history")))
        return snug_fail(t->ctx, SNUG_E_MEMORY, "out of memory while reading %s", path);
    return SNUG_OK;
}

snug_status snug_trainer_state_read(struct snug_trainer *t, const struct snug_folder *folder) {
    char *path;
    json_t *state;
    RETURN_IF_ERROR(snug_json_read(t->ctx, folder, "trainer_state.json", &state));
    snug_status status = snug_path_join(t->ctx, &path, folder->path, "trainer_state.json");
    if (status == SNUG_OK) {
        const json_t *own = json_object_get(json_object_get(state, "stateful_callbacks"), "snug");
        if (json_is_object(own) && json_is_array(json_object_get(state, "log_history")))
            status = take_state(t, path, state, own);
        else
            status = snug_fail(t->ctx, SNUG_E_INPUT, "%s was not written by snug: it cannot be resumed from", path);
        free(path);
    }
    json_decref(state);
    return status;
}

/* ---- the folders ---------------------------------------------------------------------------------------------- */

/* The files that a checkpoint must have to load weights from it, and to be resumed. */
struct file_list {
    const char *names[6];
};
static struct file_list loadable(const struct snug_trainer *t) {
    return (struct file_list){{"config.json", snug_session_weights(t->session), "trainer_state.json",
                               t->session->job.setup.lora ? SNUG_ADAPTER_CONFIG : NULL}};
}
static struct file_list resumable(const struct snug_trainer *t) {
    struct file_list files = loadable(t);
    files.names[files.names[3] ? 4 : 3] = "optimizer.safetensors";
    return files;
}

static int by_step(const void *a, const void *b) {
    const struct snug_checkpoint *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

static void name_of(int64_t step, char name[SNUG_CHECKPOINT_NAME]) {
    snprintf(name, SNUG_CHECKPOINT_NAME, "checkpoint-%lld", (long long)step);
}

/* The step of a checkpoint folder; -1 if the name is not a checkpoint's. Only names that snug writes: checkpoint-007
   would be opened as checkpoint-7. */
static int64_t step_of(const char *folder) {
    const char *digits = folder + strlen("checkpoint-");
    if (strncmp(folder, "checkpoint-", strlen("checkpoint-")) != 0 || (*digits == '0' && digits[1])) return -1;
    const size_t length = strspn(digits, "0123456789");
    return length > 0 && length <= 18 && digits[length] == '\0' ? strtoll(digits, NULL, 10) : -1;
}

static bool is_source(const struct snug_trainer *t, const struct snug_folder *folder) {
    const struct snug_setup *setup = t->session ? &t->session->job.setup : NULL;
    struct stat info;
    if (!setup || fstat(folder->fd, &info)) return false;
    for (int i = 0; i < setup->source_count; i++)
        if (setup->sources[i].device == info.st_dev && setup->sources[i].inode == info.st_ino) return true;
    return false;
}

/* Fills in the other members of a checkpoint; its step is set. */
static snug_status look_at(const struct snug_trainer *t, struct snug_checkpoint *checkpoint) {
    char name[SNUG_CHECKPOINT_NAME];
    struct snug_folder folder;
    struct snug_manifest manifest;
    name_of(checkpoint->step, name);
    const snug_status status = snug_manifest_claim(t->ctx, &t->output.folder, name, &folder, &manifest);
    if (status == SNUG_E_MEMORY) return status;
    snug_clear_error(t->ctx);
    if (status != SNUG_OK) return SNUG_OK;
    checkpoint->own = true;
    checkpoint->from = manifest.from;
    checkpoint->source = is_source(t, &folder);
    snug_folder_close(&folder);
    snug_manifest_free(&manifest);
    return SNUG_OK;
}

snug_status snug_checkpoint_list(const struct snug_trainer *t, struct snug_checkpoint **items, size_t *count) {
    size_t capacity = 0;
    *items = NULL;
    *count = 0;
    if (!t->output.folder.path) return SNUG_OK;
    DIR *entries = snug_folder_entries(&t->output.folder);
    snug_status status = SNUG_OK;
    int error = entries ? 0 : errno;
    for (struct dirent *entry; entries && status == SNUG_OK && (errno = 0, entry = readdir(entries));) {
        const int64_t step = step_of(entry->d_name);
        if (step < 0) continue;
        status = snug_grow(t->ctx, (void **)items, &capacity, *count + 1, sizeof **items);
        if (status != SNUG_OK) break;
        struct snug_checkpoint *checkpoint = &(*items)[(*count)++];
        *checkpoint = (struct snug_checkpoint){.step = step};
        status = look_at(t, checkpoint);
        errno = 0;
    }
    if (entries && status == SNUG_OK) error = errno;
    if (entries) closedir(entries);
    if (error)
        status = snug_fail(t->ctx, SNUG_E_IO, "the checkpoints in %s cannot be listed: %s", t->output.folder.path,
                           strerror(error));
    if (*count) qsort(*items, *count, sizeof **items, by_step);
    return status;
}

int snug_checkpoint_path(const struct snug_trainer *t, int64_t step, char path[SNUG_CHECKPOINT_PATH]) {
    const char *folder = t->output.folder.path ? t->output.folder.path : t->args->output_dir;
    return snprintf(path, SNUG_CHECKPOINT_PATH, "%s/checkpoint-%lld", folder, (long long)step);
}

static bool is_of_run(const struct snug_trainer *t, const struct snug_checkpoint *checkpoint) {
    return checkpoint->own && checkpoint->from.run == t->from.run;
}

/* Logs once that a checkpoint was replaced, or that files were added to it, after it was saved. */
static void log_left(struct snug_trainer *t, int64_t step) {
    char name[SNUG_CHECKPOINT_NAME];
    name_of(step, name);
    if (step <= t->left_step) return;
    t->left_step = step;
    if (snug_manifest_claim(t->ctx, &t->output.folder, name, NULL, NULL) != SNUG_E_IO) return;
    snug_log(t->ctx, SNUG_LOG_WARNING, "--save_total_limit leaves %s: %s", name, snug_context_message(t->ctx));
    snug_clear_error(t->ctx);
}

/* Removes the oldest checkpoints of this run first; keeps the best and the newest one, as Trainer does, and the
   checkpoint from which the model was read. */
static snug_status rotate(struct snug_trainer *t, int64_t newest) {
    struct snug_checkpoint *items;
    size_t count;
    int64_t left = 0;
    if (t->save_total_limit <= 0) return SNUG_OK;
    snug_status status = snug_checkpoint_list(t, &items, &count);
    for (size_t i = 0; i < count; i++) {
        left += is_of_run(t, &items[i]);
        if (!items[i].own && items[i].step < newest) log_left(t, items[i].step);
    }
    for (size_t i = 0; i < count && left > t->save_total_limit && status == SNUG_OK; i++) {
        char name[SNUG_CHECKPOINT_NAME];
        name_of(items[i].step, name);
        if (!is_of_run(t, &items[i]) || items[i].source || items[i].step == newest ||
            items[i].step == t->best_saved_step)
            continue;
        status = snug_folder_discard(t->ctx, &t->output.folder, name);
        left--;
    }
    free(items);
    return status;
}

snug_status snug_checkpoint_check_way(struct snug_trainer *t) {
    struct snug_checkpoint *items;
    size_t count;
    const bool all = snug_trainer_starts_over(t);
    snug_status status = snug_checkpoint_list(t, &items, &count);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        const int64_t step = items[i].step;
        char name[SNUG_CHECKPOINT_NAME];
        name_of(step, name);
        if (!all && (step <= t->session->step || step > t->session->max_steps)) continue;
        if (!items[i].own) /* its type */
            status = snug_manifest_claim(t->ctx, &t->output.folder, name, NULL, NULL);
        else if (items[i].source)
            status = snug_fail(t->ctx, SNUG_E_USAGE,
                               "%s/%s, which this run reads its model, tokenizer or data from, would be %s: give "
                               "another --output_dir",
                               t->output.folder.path, name,
                               all ? "removed by --overwrite_output_dir" : "replaced by a checkpoint");
    }
    free(items);
    return status;
}

snug_status snug_checkpoint_remove_all(struct snug_trainer *t) {
    struct snug_checkpoint *items;
    size_t count;
    snug_status status = snug_checkpoint_list(t, &items, &count);
    for (size_t i = 0; i < count && status == SNUG_OK; i++) {
        char name[SNUG_CHECKPOINT_NAME];
        name_of(items[i].step, name);
        status = snug_folder_discard(t->ctx, &t->output.folder, name);
    }
    free(items);
    return status;
}

/* folder: rank 0's. */
static snug_status write_checkpoint(struct snug_trainer *t, const struct snug_folder *folder) {
    RETURN_IF_ERROR(snug_session_write_files(t->session, folder));
    if (snug_trainer_leads(t)) RETURN_IF_ERROR(snug_trainer_state_write(t, folder));
    if (t->args->save_only_model) return SNUG_OK;
    return snug_states_save(t->ctx, t->args->group, folder, "optimizer.safetensors", &t->session->training->program,
                            &t->session->memory);
}

snug_status snug_checkpoint_save(struct snug_trainer *t, char path[SNUG_CHECKPOINT_PATH]) {
    struct snug_folder temporary;
    char name[SNUG_CHECKPOINT_NAME];
    name_of(t->session->step, name);
    snug_checkpoint_path(t, t->session->step, path);
    if (!snug_trainer_leads(t)) return write_checkpoint(t, NULL);
    RETURN_IF_ERROR(snug_folder_begin(t->ctx, &t->output.folder, name, &temporary));
    const snug_status status = write_checkpoint(t, &temporary);
    if (status != SNUG_OK) {
        snug_folder_abandon(&t->output.folder, &temporary);
        return status;
    }
    RETURN_IF_ERROR(snug_folder_commit(t->ctx, &t->output.folder, name, &temporary, &t->from));
    return rotate(t, t->session->step);
}

snug_status snug_checkpoint_last(const struct snug_trainer *t, int64_t *step) {
    struct snug_checkpoint *items;
    size_t count;
    *step = -1;
    const snug_status status = snug_checkpoint_list(t, &items, &count);
    for (size_t i = 0; i < count; i++)
        if (is_of_run(t, &items[i])) *step = items[i].step;
    free(items);
    return status;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

/* Opens the best checkpoint if it exists and belongs to this run. */
static snug_status open_best(struct snug_trainer *t, struct snug_folder *folder) {
    struct snug_manifest manifest;
    char name[SNUG_CHECKPOINT_NAME];
    name_of(t->best_saved_step, name);
    const snug_status status = snug_manifest_claim(t->ctx, &t->output.folder, name, folder, &manifest);
    if (status == SNUG_END)
        return snug_fail(t->ctx, SNUG_E_INPUT, "the best checkpoint, %s, is not in %s", name, t->output.folder.path);
    RETURN_IF_ERROR(status);
    const bool own = manifest.from.run == t->from.run;
    snug_manifest_free(&manifest);
    if (own) return SNUG_OK;
    snug_folder_close(folder);
    return snug_fail(t->ctx, SNUG_E_INPUT, "the best checkpoint, %s/%s, belongs to another run", t->output.folder.path,
                     name);
}

snug_status snug_checkpoint_check_best(struct snug_trainer *t) {
    struct snug_folder folder;
    if (t->best_saved_step < 0 || !t->args->load_best_model_at_end) return SNUG_OK;
    const snug_status status = open_best(t, &folder);
    if (status == SNUG_OK) snug_folder_close(&folder);
    if (status == SNUG_OK || status == SNUG_E_MEMORY) return status;
    return snug_add_to_error(t->ctx, status, ": move it there, or leave out --load_best_model_at_end");
}

snug_status snug_checkpoint_load_best(struct snug_trainer *t) {
    struct snug_folder folder = {0};
    struct snug_checkpoint_copy copy;
    snug_status status = SNUG_OK;
    if (snug_trainer_leads(t)) {
        status = open_best(t, &folder);
        if (status == SNUG_OK) status = snug_manifest_verify(t->ctx, &folder, loadable(t).names);
    }
    int64_t found = status;
    RETURN_IF_ERROR(snug_group_broadcast(t->ctx, t->args->group, &found, sizeof found));
    if (found != SNUG_OK) {
        snug_folder_close(&folder);
        if (status != SNUG_OK) return status;
        return snug_fail(t->ctx, (snug_status)found, "rank 0 cannot load the best checkpoint");
    }
    status = snug_checkpoint_copy_begin(t, loadable(t).names, "optimizer.safetensors", &folder, &copy);
    if (status == SNUG_OK) status = snug_session_load_weights(t->session, &folder);
    return snug_checkpoint_copy_end(t, &folder, &copy, status);
}

/* ---- resuming ------------------------------------------------------------------------------------------------- */

/* A checkpoint of transformers' Trainer: pickled states, and no manifest. */
static snug_status refuse_pickled(const struct snug_trainer *t, const struct snug_folder *folder) {
    if (!snug_file_exists(folder, "optimizer.pt") || snug_file_exists(folder, "optimizer.safetensors")) return SNUG_OK;
    return snug_fail(
        t->ctx, SNUG_E_INPUT,
        "%s/optimizer.pt is pickled, and may run any code when it is loaded: snug does not resume a run of "
        "transformers' Trainer; start a new one from its weights with --model_name_or_path %s",
        folder->path, folder->path);
}

static snug_status resume_from(struct snug_trainer *t, const struct snug_folder *folder) {
    struct snug_manifest manifest;
    RETURN_IF_ERROR(snug_manifest_read(t->ctx, folder, &manifest));
    t->from = manifest.from;
    snug_manifest_free(&manifest);
    RETURN_IF_ERROR(snug_trainer_state_read(t, folder));
    RETURN_IF_ERROR(
        snug_states_load(t->ctx, folder, "optimizer.safetensors", &t->session->training->program, &t->session->memory));
    RETURN_IF_ERROR(snug_session_look(t->session));
    RETURN_IF_ERROR(snug_session_load_weights(t->session, folder));
    snug_log(t->ctx, SNUG_LOG_INFO, "resuming from %s, step %lld of %lld", folder->path, (long long)t->session->step,
             (long long)t->session->max_steps);
    return SNUG_OK;
}

/* The last run that wrote into the folder, from the folder's manifest, else from its checkpoints. */
static uint64_t last_run(const struct snug_trainer *t, const struct snug_checkpoint *items, size_t count) {
    struct snug_provenance last = t->output.from;
    for (size_t i = 0; i < count && !t->output.from.run; i++)
        if (items[i].own && (!last.run || items[i].from.started >= last.started)) last = items[i].from;
    return last.run;
}

static snug_status fail_nothing_whole(const struct snug_trainer *t, bool others) {
    return snug_fail(t->ctx, SNUG_E_INPUT, "%s has no complete checkpoint to resume from%s", t->args->output_dir,
                     others ? " of its last run: give one of an earlier run with --resume_from_checkpoint"
                            : ": --resume_from_checkpoint auto starts where there is none");
}

/* A checkpoint saved with --save_only_model has no optimizer state; that of adapters has not the model's weights. */
static snug_status check_resumable(const struct snug_trainer *t, const struct snug_folder *folder) {
    struct snug_manifest manifest;
    RETURN_IF_ERROR(snug_manifest_read(t->ctx, folder, &manifest));
    const bool lacks_state = manifest.files && !json_object_get(manifest.files, "optimizer.safetensors");
    const bool of_loop = json_object_get(manifest.files, SNUG_SESSION_STATE);
    const bool has_adapters = json_object_get(manifest.files, SNUG_ADAPTER_CONFIG);
    const bool other_kind = manifest.files && has_adapters != (t->session->job.setup.lora != NULL);
    snug_manifest_free(&manifest);
    if (of_loop)
        return snug_fail(t->ctx, SNUG_E_INPUT,
                         "%s is a checkpoint of a program's own loop (snug_save_checkpoint()), which continues it with "
                         "snug_load_checkpoint(): start from its weights with --model_name_or_path instead",
                         folder->path);
    if (other_kind)
        return snug_fail(t->ctx, SNUG_E_INPUT,
                         has_adapters ? "%s has LoRA adapters, and this run trains the model itself: resume with "
                                        "--use_peft and the other arguments of its training"
                                      : "%s has no LoRA adapters, and this run trains some: resume without --use_peft, "
                                        "or start from its weights with --model_name_or_path instead",
                         folder->path);
    if (!lacks_state) return SNUG_OK;
    return snug_fail(t->ctx, SNUG_E_INPUT,
                     "%s has no optimizer.safetensors (saved with --save_only_model?): start from it with "
                     "--model_name_or_path instead",
                     folder->path);
}

/* For jobs that a scheduler starts again, with the same arguments: resume if there is a checkpoint, else start. */
static bool may_start(const char *from) { return strcasecmp(from, "auto") == 0; }
/* Whether the last whole checkpoint of output_dir is meant. */
static bool takes_last(const char *from) { return strcasecmp(from, "true") == 0 || may_start(from); }

snug_status snug_checkpoint_look(const struct snug_trainer *t) {
    const char *from = t->args->resume_from_checkpoint;
    char path[SNUG_CHECKPOINT_PATH];
    struct snug_folder folder;
    if (snug_checkpoint_path(t, INT64_MAX, path) >= SNUG_CHECKPOINT_PATH)
        return snug_fail(t->ctx, SNUG_E_USAGE, "--output_dir %s is too long", t->args->output_dir);
    if (!snug_trainer_resumes(t) || !snug_trainer_leads(t)) return SNUG_OK;
    if (takes_last(from)) {
        struct snug_checkpoint *items;
        size_t count, own = 0;
        const snug_status status = snug_checkpoint_list(t, &items, &count);
        for (size_t i = 0; i < count; i++) own += items[i].own;
        free(items);
        return status != SNUG_OK || own || may_start(from) ? status : fail_nothing_whole(t, false);
    }
    if (!snug_folder_exists(from))
        return snug_fail(t->ctx, SNUG_E_INPUT, "--resume_from_checkpoint %s: %s", from,
                         snug_file_exists(NULL, from)
                             ? "that is a file: give the checkpoint's folder"
                             : "there is no such folder; True takes the last one of --output_dir");
    RETURN_IF_ERROR(snug_folder_open(t->ctx, NULL, from, &folder));
    snug_status status = refuse_pickled(t, &folder);
    if (status == SNUG_OK && !snug_entry_kind(&folder, SNUG_MANIFEST))
        status = snug_fail(t->ctx, SNUG_E_INPUT,
                           "--resume_from_checkpoint %s: there is no manifest.json: it is not a checkpoint, such as "
                           "out/checkpoint-500, or it is incomplete",
                           from);
    snug_folder_close(&folder);
    return status;
}

/* Opens the folder if it is complete. If it is damaged, *whole is false and the reason is logged. */
static snug_status try_checkpoint(struct snug_trainer *t, int64_t step, struct snug_folder *folder, bool *whole) {
    char name[SNUG_CHECKPOINT_NAME];
    name_of(step, name);
    RETURN_IF_ERROR(snug_folder_open(t->ctx, &t->output.folder, name, folder));
    snug_status status = check_resumable(t, folder);
    const snug_status found = status == SNUG_OK ? snug_manifest_verify(t->ctx, folder, resumable(t).names) : SNUG_OK;
    *whole = found == SNUG_OK;
    if (status == SNUG_OK && *whole) return SNUG_OK;
    if (found == SNUG_E_MEMORY) {
        status = found; /* an error that is not due to the checkpoint */
    } else if (!*whole) {
        snug_log(t->ctx, SNUG_LOG_WARNING, "%s is skipped: %s", folder->path, snug_context_message(t->ctx));
        snug_clear_error(t->ctx);
    }
    snug_folder_close(folder);
    return status;
}

static snug_status open_named(struct snug_trainer *t, const char *from, struct snug_folder *folder) {
    RETURN_IF_ERROR(snug_folder_open(t->ctx, NULL, from, folder));
    snug_status status = check_resumable(t, folder);
    if (status == SNUG_OK) status = snug_manifest_verify(t->ctx, folder, resumable(t).names);
    if (status != SNUG_OK) snug_folder_close(folder);
    return status;
}

/* Opens the checkpoint to resume from; folder stays closed if the training starts instead. */
static snug_status choose(struct snug_trainer *t, struct snug_folder *folder) {
    struct snug_checkpoint *items;
    size_t count, others = 0;
    bool whole = false;
    const char *from = t->args->resume_from_checkpoint;
    if (!takes_last(from)) return open_named(t, from, folder);
    snug_status status = snug_checkpoint_list(t, &items, &count);
    const uint64_t run = last_run(t, items, count);
    for (size_t i = count; i-- > 0 && status == SNUG_OK && !whole;) {
        if (items[i].own && items[i].from.run == run)
            status = try_checkpoint(t, items[i].step, folder, &whole);
        else
            others += items[i].own;
    }
    free(items);
    if (status != SNUG_OK || whole) return status;
    if (!may_start(from)) return fail_nothing_whole(t, others);
    snug_log(t->ctx, SNUG_LOG_INFO, "%s has no complete checkpoint%s: the training starts", t->args->output_dir,
             others ? " of its last run" : "");
    return SNUG_OK;
}

snug_status snug_checkpoint_resume(struct snug_trainer *t) {
    struct snug_folder folder = {0};
    struct snug_checkpoint_copy copy;
    if (!snug_trainer_resumes(t)) return SNUG_OK;
    if (snug_trainer_leads(t)) RETURN_IF_ERROR(choose(t, &folder));
    bool found = folder.path != NULL;
    const snug_status status = snug_group_broadcast(t->ctx, t->args->group, &found, sizeof found);
    if (status != SNUG_OK || !found) {
        snug_folder_close(&folder);
        return status;
    }
    snug_status resumed = snug_checkpoint_copy_begin(t, resumable(t).names, NULL, &folder, &copy);
    if (resumed == SNUG_OK) resumed = resume_from(t, &folder);
    return snug_checkpoint_copy_end(t, &folder, &copy, resumed);
}
