/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "args/args.h"
#include "model/adapters.h"
#include "model/sentence.h"
#include "model/weight_files.h"
#include "tokenizer/tokenizer_parts.h"

void snug_pull_result_destroy(snug_pull_result *result) { free(result); }

#if SNUG_CURL
#include "hub/fetch/pull.h"

static void on_progress(void *user, int64_t bytes, int64_t total, double bytes_per_second) {
    const snug_callbacks *callbacks = user;
    const snug_event event = {.kind = SNUG_EVENT_DOWNLOAD,
                              .step = bytes,
                              .max_steps = total,
                              .bytes_per_second = bytes_per_second,
                              .seconds_left = bytes_per_second > 0 ? (double)(total - bytes) / bytes_per_second : 0};
    callbacks->on_event(callbacks->user, &event);
}

/* One block of memory: the texts follow the struct. */
static snug_status create_result(snug_context *ctx, const struct snug_pulled *pulled, snug_pull_result **out) {
    const size_t folder = strlen(pulled->folder) + 1, commit = strlen(pulled->commit) + 1;
    void *memory;
    RETURN_IF_ERROR(snug_alloc(ctx, 1, sizeof **out + folder + commit, &memory));
    char *texts = (char *)((snug_pull_result *)memory + 1);
    memcpy(texts, pulled->folder, folder);
    memcpy(texts + folder, pulled->commit, commit);
    *out = memory;
    **out = (snug_pull_result){.folder = texts,
                               .commit = texts + folder,
                               .files = pulled->files,
                               .bytes = pulled->bytes,
                               .fetched = pulled->fetched};
    return SNUG_OK;
}

static const struct snug_pull_kind kinds[] = {{"config.json", SNUG_WEIGHTS, SNUG_WEIGHTS_INDEX},
                                              {SNUG_ADAPTER_CONFIG, SNUG_ADAPTER_WEIGHTS, NULL}};

/* Beside the tokenizer's. */
static const char *const other_files[] = {SNUG_GENERATION_CONFIG, SNUG_SENTENCE_LIST, SNUG_SENTENCE_LENGTH,
                                          SNUG_SENTENCE_SETTINGS};
enum { OTHERS = sizeof other_files / sizeof *other_files };

static snug_status pull(snug_args *args, const snug_callbacks *callbacks, snug_pull_result **result) {
    struct snug_pulled pulled;
    if (!args->model_name_or_path)
        return snug_fail(args->ctx, SNUG_E_USAGE, "no model: give its name on the hub, such as ORG/NAME");
    snug_callbacks own = callbacks ? *callbacks : (snug_callbacks){0};
    const char *others[OTHERS + SNUG_TOKENIZER_FILES];
    memcpy(others, other_files, sizeof other_files);
    memcpy(others + OTHERS, snug_tokenizer_file_names, sizeof snug_tokenizer_file_names);
    const struct snug_pull_options options = {.name = args->model_name_or_path,
                                              .place = snug_args_place(args),
                                              .kinds = kinds,
                                              .kind_count = sizeof kinds / sizeof *kinds,
                                              .others = others,
                                              .other_count = sizeof others / sizeof *others,
                                              .retry_seconds = 1,
                                              .slow_seconds = 30,
                                              .file_seconds = 3600,
                                              .on_progress = own.on_event ? on_progress : NULL,
                                              .user = &own};
    snug_set_stop(args->ctx, own.should_stop, own.user);
    snug_status status = snug_hub_pull(args->ctx, &options, &pulled);
    snug_set_stop(args->ctx, NULL, NULL);
    if (status == SNUG_OK && result) status = create_result(args->ctx, &pulled, result);
    free(pulled.folder);
    return status;
}
#else
static snug_status pull(snug_args *args, const snug_callbacks *callbacks, snug_pull_result **result) {
    (void)callbacks;
    (void)result;
    return snug_fail(
        args->ctx, SNUG_E_UNSUPPORTED,
        "this build of snug cannot download: libcurl and nettle were missing when it was built. Install them "
        "(Debian, Ubuntu: apt-get install libcurl4-openssl-dev nettle-dev) and build again, or fetch the "
        "model by other means, such as `hf download`");
}
#endif

snug_status snug_pull(snug_args *args, const snug_callbacks *callbacks, snug_pull_result **result) {
    if (result) *result = NULL;
    SNUG_REQUIRE(args);
    RETURN_IF_ERROR(snug_enter(args->ctx, __func__, SNUG_TURN_ALONE));
    return snug_leave(args->ctx, pull(args, callbacks, result));
}
