/* SPDX-License-Identifier: Apache-2.0 */
#include "io/folder_kind.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/folder.h"
#include "io/json.h"

enum { PATH_SIZE = 4096 };

static bool has(const char *folder, const char *name) {
    char path[PATH_SIZE];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path && access(path, F_OK) == 0;
}

/* ---- a model's folder ----------------------------------------------------------------------------------------- */

/* Whether a folder has a model: a config.json alone may be that of a pooling layer. */
static bool has_model(const char *folder) {
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"};
    bool found = false;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) found |= has(folder, weights[i]);
    return found && has(folder, "config.json");
}

/* Which of two folders with models is named: the later checkpoint, else the first by name. */
static bool is_better(const char *name, const char *than) {
    static const char prefix[] = "checkpoint-";
    const size_t length = sizeof prefix - 1;
    const bool checkpoint = strncmp(name, prefix, length) == 0, other = strncmp(than, prefix, length) == 0;
    if (checkpoint != other || !*than) return checkpoint || !*than;
    return checkpoint ? strtoll(name + length, NULL, 10) > strtoll(than + length, NULL, 10) : strcmp(name, than) < 0;
}

/* The path of a folder in this one that has a model; "" if there is none. */
static void find_below(snug_context *ctx, const char *parent, char out[PATH_SIZE]) {
    struct snug_folder folder;
    char best[256] = "", path[PATH_SIZE];
    *out = '\0';
    if (snug_folder_open(ctx, NULL, parent, &folder) != SNUG_OK) return;
    DIR *entries = snug_folder_entries(&folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const int length = snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
        if (*entry->d_name == '.' || length >= PATH_SIZE || !has_model(path)) continue;
        if (!is_better(entry->d_name, best)) continue;
        snprintf(best, sizeof best, "%s", entry->d_name);
        memcpy(out, path, (size_t)length + 1);
    }
    if (entries) closedir(entries);
    snug_folder_close(&folder);
}

static snug_status fail_adapter(snug_context *ctx, const char *path, const char *lacks) {
    struct snug_folder folder;
    const char *base = NULL;
    json_t *config = NULL;
    RETURN_IF_ERROR(snug_folder_open(ctx, NULL, path, &folder));
    snug_status status = snug_json_read(ctx, &folder, "adapter_config.json", &config);
    if (status == SNUG_OK)
        status = snug_json_string(ctx, "adapter_config.json", config, "base_model_name_or_path", "?", &base);
    if (status == SNUG_OK)
        status = snug_fail(ctx, SNUG_E_INPUT,
                           "%s: there is %s: it is the folder of a PEFT adapter for the model %s. Give that model, or "
                           "merge the two with snug merge, and give the folder that this writes",
                           path, lacks, base);
    json_decref(config);
    snug_folder_close(&folder);
    return status;
}

snug_status snug_fail_model_folder(snug_context *ctx, const char *folder, const char *lacks) {
    static const struct {
        const char *file, *what;
    } others[] = {
        {"zero_to_fp32.py", "it is a checkpoint of DeepSpeed, whose weights are in parts: run its zero_to_fp32.py with "
                            "--safe_serialization, which writes them as model.safetensors"},
        {"pytorch_model_fsdp_0", "it is a checkpoint of FSDP, whose weights are in parts: join them with `accelerate "
                                 "merge-weights`"},
        {"tf_model.h5", "it has the weights of TensorFlow: load it in transformers 4 with from_tf=True, and save it "
                        "with save_pretrained()"},
        {"flax_model.msgpack", "it has the weights of Flax: load it in transformers 4 with from_flax=True, and save it "
                               "with save_pretrained()"},
        {"model.onnx", "it has an ONNX model: give the folder of the model that it was made from"},
        {"dataset_info.json", "it has a data set, not a model"},
        {"dataset_dict.json", "it has a data set, not a model"},
    };
    char below[PATH_SIZE], snapshots[PATH_SIZE];
    if (has(folder, "adapter_config.json")) return fail_adapter(ctx, folder, lacks);
    find_below(ctx, folder, below);
    const int length = snprintf(snapshots, sizeof snapshots, "%s/snapshots", folder); /* of a hub's cache */
    if (!*below && length < PATH_SIZE && snug_folder_exists(snapshots)) find_below(ctx, snapshots, below);
    snug_clear_error(ctx);
    if (*below)
        return snug_fail(ctx, SNUG_E_INPUT, "%s: there is %s, but the folder %s has a model%s: give that one", folder,
                         lacks, below, has(folder, "modules.json") ? " (sentence-transformers' older layout)" : "");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has(folder, others[i].file))
            return snug_fail(ctx, SNUG_E_INPUT, "%s: there is %s: %s", folder, lacks, others[i].what);
    return snug_fail(ctx, SNUG_E_INPUT, "%s: there is %s: it is not the folder of a model", folder, lacks);
}

/* ---- a file of data --------------------------------------------------------------------------------------------- */

snug_status snug_fail_data_folder(snug_context *ctx, const char *path) {
    const bool saved = has(path, "dataset_info.json") || has(path, "dataset_dict.json");
    return snug_fail(ctx, SNUG_E_INPUT, "%s is a folder%s", path,
                     saved ? " of datasets.save_to_disk(): write its rows as JSON Lines, in Python: "
                             "datasets.load_from_disk(FOLDER)[\"train\"].to_json(\"train.jsonl\")"
                           : ": give a file with rows in it");
}
