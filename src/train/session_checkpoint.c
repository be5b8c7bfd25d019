/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a loop of the caller's: a model folder with the optimizer's states and session_state.json. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dist/save.h"
#include "io/folder_write.h"
#include "io/json.h"
#include "model/weight_files.h"
#include "model/weights.h"
#include "train/identity.h"
#include "train/session.h"

#define STATES "optimizer.safetensors"
/* No loop reaches these, and sums of them do not overflow. */
#define STEPS_MOST ((int64_t)1 << 53)

/* ---- saving ---------------------------------------------------------------------------------------------------- */

static snug_status write_state(struct snug_session *s, const struct snug_folder *folder) {
    json_t *state = json_object();
    snug_json_add(&state, "step", json_integer(s->step));
    snug_json_add(&state, "schedule_step", json_integer(s->schedule_step));
    snug_json_add(&state, "epoch", json_integer(s->epoch));
    snug_json_add(&state, "epoch_step", json_integer(s->epoch_step));
    snug_json_add(&state, "learning_rate", snug_json_number(s->own_rate));
    snug_json_add(&state, "identity", snug_identity(&s->job));
    const snug_status status =
        state ? snug_json_write(s->ctx, folder, SNUG_SESSION_STATE, state)
              : snug_fail(s->ctx, SNUG_E_MEMORY, "out of memory while writing " SNUG_SESSION_STATE);
    json_decref(state);
    return status;
}

static snug_status write_files(struct snug_session *s, const struct snug_folder *folder) {
    RETURN_IF_ERROR(snug_session_write_files(s, folder));
    RETURN_IF_ERROR(snug_states_save(s->ctx, NULL, folder, STATES, &s->training->program, &s->memory));
    return write_state(s, folder);
}

static snug_status save(struct snug_session *s, const struct snug_folder *in, const char *name) {
    const struct snug_provenance from = {.run = snug_random_number(), .started = (int64_t)time(NULL)};
    struct snug_folder temporary;
    RETURN_IF_ERROR(snug_folder_begin(s->ctx, in, name, &temporary));
    const snug_status status = write_files(s, &temporary);
    if (status == SNUG_OK) return snug_folder_commit(s->ctx, in, name, &temporary, &from);
    snug_folder_abandon(in, &temporary);
    return status;
}

/* The folder that is to hold the checkpoint, and the checkpoint's name in it, both in *copy. */
static snug_status split(snug_context *ctx, const char *folder, char **copy, const char **parent, const char **name) {
    RETURN_IF_ERROR(snug_strdup(ctx, folder, copy));
    size_t length = strlen(*copy);
    while (length > 1 && (*copy)[length - 1] == '/') (*copy)[--length] = '\0';
    char *slash = strrchr(*copy, '/');
    *name = slash ? slash + 1 : *copy;
    *parent = !slash ? "." : slash == *copy ? "/" : *copy;
    if (slash) *slash = '\0';
    if (**name && strcmp(*name, ".") != 0 && strcmp(*name, "..") != 0) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_USAGE, "snug_save_checkpoint: \"%s\" does not end with the name of a folder", folder);
}

static snug_status save_checkpoint(struct snug_session *s, const char *folder) {
    struct snug_output output = {0};
    char *copy = NULL;
    const char *parent, *name;
    if (s->within_step)
        return snug_fail(s->ctx, SNUG_E_USAGE,
                         "snug_save_checkpoint: a step has begun: call it after snug_optimizer_step, before the next "
                         "snug_next_batch");
    snug_status status = split(s->ctx, folder, &copy, &parent, &name);
    if (status == SNUG_OK) status = snug_output_make(s->ctx, parent, false, false, s->job.setup.mode, &output);
    if (status == SNUG_OK) status = save(s, &output.folder, name);
    snug_output_close(&output);
    free(copy);
    return status;
}

snug_status snug_save_checkpoint(snug_session *session, const char *folder) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(folder);
    RETURN_IF_ERROR(snug_session_enter_whole(session, __func__));
    return snug_leave(session->ctx, save_checkpoint(session, folder));
}

/* ---- loading --------------------------------------------------------------------------------------------------- */

static snug_status read_count(snug_context *ctx, const char *path, const json_t *state, const char *key, int64_t *out) {
    RETURN_IF_ERROR(snug_json_int(ctx, path, state, key, -1, out));
    if (*out >= 0 && *out <= STEPS_MOST) return SNUG_OK;
    return snug_fail(ctx, SNUG_E_INPUT, "%s: %s is %" PRId64 ", which no loop reaches", path, key, *out);
}

/* Where a loop was. */
struct position {
    int64_t step, schedule_step, epoch, epoch_step;
    double own_rate;
    bool refrozen; /* other parts were frozen */
};

static snug_status read_position(struct snug_session *s, const char *path, json_t *state, struct position *at) {
    RETURN_IF_ERROR(read_count(s->ctx, path, state, "step", &at->step));
    RETURN_IF_ERROR(read_count(s->ctx, path, state, "schedule_step", &at->schedule_step));
    RETURN_IF_ERROR(read_count(s->ctx, path, state, "epoch", &at->epoch));
    RETURN_IF_ERROR(read_count(s->ctx, path, state, "epoch_step", &at->epoch_step));
    RETURN_IF_ERROR(snug_json_real(s->ctx, path, state, "learning_rate", NAN, &at->own_rate));
    if (at->own_rate < 0) return snug_fail(s->ctx, SNUG_E_INPUT, "%s: learning_rate is %g", path, at->own_rate);
    RETURN_IF_ERROR(snug_identity_check_loop(&s->job, path, json_object_get(state, "identity"), &at->refrozen));
    if (at->epoch_step <= s->steps_per_epoch) return SNUG_OK;
    return snug_fail(s->ctx, SNUG_E_INPUT, "%s: epoch_step is %" PRId64 ", and an epoch has %" PRId64 " steps", path,
                     at->epoch_step, s->steps_per_epoch);
}

static void seek(struct snug_session *s, const struct position *at) {
    snug_session_seek(s, at->step);
    s->schedule_step = at->schedule_step;
    s->own_rate = at->own_rate;
    s->epoch = at->epoch;
    s->epoch_step = at->epoch_step;
    s->resumed = true;
    s->batch = NULL;
    s->clipped = false;
    s->within_step = false;
    s->loop.stage = SNUG_LOOP_NO_BATCH;
    s->loop.begun = false;
}

static snug_status apply(struct snug_session *s, const struct snug_folder *folder, const struct position *at) {
    RETURN_IF_ERROR(snug_session_flush(s)); /* later it would change what is loaded */
    const snug_status status = snug_states_load(s->ctx, folder, STATES, &s->training->program, &s->memory);
    if (status == SNUG_E_INPUT && at->refrozen)
        return snug_add_to_error(s->ctx, status,
                                 "; freeze named other parts, and what was frozen has no states: create a session from "
                                 "its weights with model_name_or_path");
    RETURN_IF_ERROR(status);
    seek(s, at);
    s->skipped = 0;
    RETURN_IF_ERROR(snug_session_look(s));
    return snug_session_load_weights(s, folder);
}

static snug_status load(struct snug_session *s, const struct snug_folder *folder) {
    const char *const files[] = {"config.json", snug_session_weights(s), STATES, SNUG_SESSION_STATE, NULL};
    struct position at;
    json_t *state;
    char *path;
    if (snug_file_exists(folder, "trainer_state.json"))
        return snug_fail(
            s->ctx, SNUG_E_INPUT,
            "%s is a checkpoint of snug_train(), which continues it with resume_from_checkpoint; a loop can "
            "start from its weights with model_name_or_path",
            folder->path);
    RETURN_IF_ERROR(snug_manifest_verify(s->ctx, folder, files));
    RETURN_IF_ERROR(snug_json_read(s->ctx, folder, SNUG_SESSION_STATE, &state));
    snug_status status = snug_path_join(s->ctx, &path, folder->path, SNUG_SESSION_STATE);
    if (status == SNUG_OK) {
        status = read_position(s, path, state, &at);
        free(path);
    }
    json_decref(state);
    RETURN_IF_ERROR(status);
    return snug_session_changed(s, "snug_load_checkpoint", apply(s, folder, &at));
}

static snug_status load_checkpoint(struct snug_session *s, const char *folder) {
    struct snug_folder opened;
    RETURN_IF_ERROR(snug_folder_open(s->ctx, NULL, folder, &opened));
    const snug_status status = load(s, &opened);
    snug_folder_close(&opened);
    return status;
}

snug_status snug_load_checkpoint(snug_session *session, const char *folder) {
    SNUG_REQUIRE(session);
    SNUG_REQUIRE(folder);
    RETURN_IF_ERROR(snug_session_enter(session, __func__));
    return snug_leave(session->ctx, load_checkpoint(session, folder));
}
