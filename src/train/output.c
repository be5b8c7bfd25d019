/* SPDX-License-Identifier: Apache-2.0 */
#include "train/output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "io/folder_write.h"
#include "io/json.h"
#include "model/sentence.h"
#include "model/weight_files.h"
#include "tokenizer/tokenizer_parts.h"
#include "train/training_args.h"

/* Every file that snug writes into such a folder, or that would be read together with them as a part of the model:
   these, the tokenizer's, and shards of weights, which are read only where their index is. */
struct known {
    const char *name;
    bool model;  /* belongs to the model */
    bool always; /* also written by an evaluation */
};
static const struct known fixed[] = {
    {"config.json", true, false},         {SNUG_GENERATION_CONFIG, true, false},
    {"adapter_config.json", true, false}, {"adapter_model.safetensors", true, false},
    {SNUG_TRAINING_ARGS, true, false},    {SNUG_SENTENCE_LIST, true, false},
    {SNUG_SENTENCE_LENGTH, true, false},  {SNUG_SENTENCE_SETTINGS, true, false},
    {"trainer_state.json", false, false}, {SNUG_RUN_REPORT, false, false},
    {"train_results.json", false, false}, {"eval_results.json", false, true},
    {"all_results.json", false, true},
};
enum { FIXED = sizeof fixed / sizeof *fixed, KNOWN = FIXED + SNUG_TOKENIZER_FILES };

static struct known known_file(int i) {
    return i < FIXED ? fixed[i] : (struct known){snug_tokenizer_file_names[i - FIXED], true, false};
}

/* ---- conflicting files ------------------------------------------------------------------------------------------- */

static bool is_listed(const struct snug_output *o, const char *name) { return json_object_get(o->files, name); }

static snug_status check_name(const struct snug_output *o, const char *name, bool own) {
    const char *kind = snug_entry_kind(&o->folder, name);
    if (!kind) return SNUG_OK;
    if (strcmp(kind, "a file") != 0)
        return snug_fail(o->ctx, SNUG_E_IO,
                         "%s/%s is %s, and snug writes a file there: move it, or give another "
                         "--output_dir",
                         o->folder.path, name, kind);
    if (own || o->overwrite) return SNUG_OK;
    return snug_fail(o->ctx, SNUG_E_IO,
                     "%s/%s was not written by snug: move it, give another --output_dir, or --overwrite_output_dir to "
                     "replace it",
                     o->folder.path, name);
}

/* Results are merged into the file of this name. */
static snug_status check_results(const struct snug_output *o) {
    json_t *all;
    if (!snug_entry_kind(&o->folder, "all_results.json")) return SNUG_OK;
    RETURN_IF_ERROR(snug_json_read(o->ctx, &o->folder, "all_results.json", &all));
    json_decref(all);
    return SNUG_OK;
}

static bool has_name(const char *const *names, const char *name) {
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static snug_status check_own(struct snug_output *o, const char *name) {
    return check_name(o, name, is_listed(o, name));
}

static snug_status check_folder(struct snug_output *o) {
    struct snug_manifest manifest;
    RETURN_IF_ERROR(snug_manifest_read(o->ctx, &o->folder, &manifest));
    snug_status status = check_name(o, SNUG_MANIFEST, !*manifest.problem);
    o->files = manifest.files ? json_incref(manifest.files) : json_object();
    o->from = manifest.from;
    snug_manifest_free(&manifest);
    if (!o->files) return snug_fail(o->ctx, SNUG_E_MEMORY, "out of memory while opening %s", o->folder.path);
    for (int i = 0; i < KNOWN && status == SNUG_OK; i++)
        if (o->model || known_file(i).always) status = check_own(o, known_file(i).name);
    return status == SNUG_OK ? check_results(o) : status;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static snug_status lock_and_check(struct snug_output *o) {
    RETURN_IF_ERROR(snug_lock_take(o->ctx, &o->folder, &o->lock));
    return check_folder(o);
}

static snug_status opened(struct snug_output *o, snug_status status) {
    if (status == SNUG_OK) status = lock_and_check(o);
    if (status != SNUG_OK) snug_output_close(o);
    return status;
}

snug_status snug_output_open(snug_context *ctx, const char *path, bool model, bool overwrite, struct snug_output *out) {
    *out = (struct snug_output){.ctx = ctx, .model = model, .overwrite = overwrite};
    if (!snug_folder_exists(path)) return SNUG_OK;
    return opened(out, snug_folder_open(ctx, NULL, path, &out->folder));
}

snug_status snug_output_look(snug_context *ctx, const char *path, struct snug_output *out) {
    struct snug_manifest manifest;
    *out = (struct snug_output){.ctx = ctx};
    if (!snug_folder_exists(path)) return SNUG_OK;
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &out->folder));
    RETURN_IF_ERROR(snug_manifest_read(ctx, &out->folder, &manifest));
    out->from = manifest.from;
    snug_manifest_free(&manifest);
    return SNUG_OK;
}

snug_status snug_output_make(snug_context *ctx, const char *path, bool model, bool overwrite, mode_t mode,
                             struct snug_output *out) {
    if (!out->folder.path) {
        *out = (struct snug_output){.ctx = ctx, .model = model, .overwrite = overwrite};
        RETURN_IF_ERROR(opened(out, snug_folder_make(ctx, NULL, path, mode, &out->folder)));
    }
    out->folder.mode = mode;
    if (snug_folder_sweep(ctx, &out->folder, out->lock.killed, out->lock.killed_count))
        snug_lock_forget_killed(&out->lock);
    return SNUG_OK;
}

void snug_output_close(struct snug_output *output) {
    if (!output) return;
    /* Removes temporary files that could not be removed when out of memory. No other file has this run's number now. */
    if (output->lock.folder && !snug_folder_sweep(output->ctx, &output->folder, &output->folder.run, 1))
        output->lock.keep = true; /* the next run removes them */
    snug_lock_release(&output->lock);
    snug_folder_close(&output->folder);
    json_decref(output->files);
    *output = (struct snug_output){0};
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static snug_status write_manifest(struct snug_output *o) {
    return snug_manifest_write(o->ctx, &o->folder, o->files, &o->from);
}

snug_status snug_output_start(struct snug_output *output, const struct snug_provenance *from) {
    output->from = *from;
    return write_manifest(output);
}

static snug_status remove_file(const struct snug_output *o, const char *name) {
    if (unlinkat(o->folder.fd, name, 0) == 0 || errno == ENOENT) return SNUG_OK;
    return snug_fail(o->ctx, SNUG_E_IO, "cannot remove %s/%s, which belongs to another model: %s", o->folder.path, name,
                     strerror(errno));
}

static snug_status remove_own(struct snug_output *o, const char *name) {
    RETURN_IF_ERROR(check_own(o, name));
    RETURN_IF_ERROR(remove_file(o, name));
    json_object_del(o->files, name);
    return SNUG_OK;
}

static bool is_known(const char *name, bool *model) {
    for (int i = 0; i < KNOWN; i++) {
        if (strcmp(known_file(i).name, name) != 0) continue;
        *model = known_file(i).model;
        return true;
    }
    return *model = snug_weight_files_has(name);
}

bool snug_output_is_as_written(const struct snug_output *o, const char *name) {
    const char *kind = snug_entry_kind(&o->folder, name);
    const json_t *entry = json_object_get(o->files, name);
    if (!kind) return true;
    if (!entry || strcmp(kind, "a file") != 0) return false;
    if (json_is_null(entry)) return true; /* a run was killed while it wrote the file */
    const bool same = snug_manifest_verify_file(o->ctx, &o->folder, name, entry) == SNUG_OK;
    snug_clear_error(o->ctx);
    return same;
}

/* Text of names, truncated at its end. */
struct names {
    char text[512];
};
static void add_name(struct names *names, const char *name) {
    const size_t used = strlen(names->text);
    snprintf(names->text + used, sizeof names->text - used, "%s%s", used ? ", " : "", name);
}

/* Removes the listed files that are neither the model's nor have one of these names; those that are left are logged. */
static snug_status remove_results(struct snug_output *o, const char *const *names, struct names *removed) {
    const char *name;
    json_t *entry;
    void *next;
    json_object_foreach_safe(o->files, next, name, entry) {
        bool model = false;
        const bool written_by_train = is_known(name, &model), there = snug_entry_kind(&o->folder, name);
        if (has_name(names, name) || model) continue;
        if (!written_by_train && !snug_output_is_as_written(o, name)) {
            snug_log(o->ctx, SNUG_LOG_WARNING, "%s/%s is of an earlier training, and was changed since: it stays",
                     o->folder.path, name);
            continue;
        }
        RETURN_IF_ERROR(remove_file(o, name));
        if (there) add_name(removed, name);
        json_object_del(o->files, name);
    }
    return SNUG_OK;
}

snug_status snug_output_replace(struct snug_output *o, const char *const *kept) {
    struct names removed = {""};
    const bool model = snug_entry_kind(&o->folder, "config.json");
    RETURN_IF_ERROR(remove_results(o, kept, &removed));
    if (!model && !*removed.text) return SNUG_OK;
    snug_log(o->ctx, o->overwrite ? SNUG_LOG_INFO : SNUG_LOG_WARNING, "%s has %s an earlier training%s%s%s",
             o->folder.path, model ? "the model of" : "results of",
             model ? ", which is replaced when this one ends" : "", *removed.text ? "; removed: " : "", removed.text);
    return SNUG_OK;
}

snug_status snug_output_begin(struct snug_output *output, const char *const *names) {
    const bool model = has_name(names, "config.json");
    struct names removed = {""};
    for (const char *const *name = names; *name; name++)
        if (json_object_set_new(output->files, *name, json_null()))
            return snug_fail(output->ctx, SNUG_E_MEMORY, "out of memory while writing into %s", output->folder.path);
    RETURN_IF_ERROR(write_manifest(output));
    if (!model) return SNUG_OK;
    for (int i = 0; i < KNOWN; i++) {
        const char *name = known_file(i).name;
        if (known_file(i).model && !has_name(names, name)) RETURN_IF_ERROR(remove_own(output, name));
    }
    RETURN_IF_ERROR(remove_results(output, names, &removed));
    if (*removed.text)
        snug_log(output->ctx, SNUG_LOG_INFO, "%s: removed what belongs to the model before: %s", output->folder.path,
                 removed.text);
    return SNUG_OK;
}

snug_status snug_output_check(const struct snug_output *output, const char *const *names) {
    for (; output->folder.path && *names; names++)
        RETURN_IF_ERROR(check_name(output, *names, is_listed(output, *names)));
    return SNUG_OK;
}

snug_status snug_output_end_model(struct snug_output *output, const char *const *names) {
    const char *name;
    json_t *entry;
    void *next;
    if (!has_name(names, SNUG_WEIGHTS)) RETURN_IF_ERROR(remove_own(output, SNUG_WEIGHTS));
    json_object_foreach_safe(output->files, next, name, entry) {
        if (snug_weight_files_has(name) && !has_name(names, name)) RETURN_IF_ERROR(remove_own(output, name));
    }
    return snug_output_end(output);
}

snug_status snug_output_end(struct snug_output *output) {
    const char *name;
    json_t *entry;
    void *next;
    json_object_foreach_safe(output->files, next, name, entry) {
        if (!json_is_null(entry)) continue;
        if (snug_entry_kind(&output->folder, name))
            RETURN_IF_ERROR(snug_manifest_add(output->ctx, output->files, &output->folder, name));
        else
            json_object_del(output->files, name);
    }
    return write_manifest(output);
}
