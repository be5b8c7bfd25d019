/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of snug pull: a hub on this machine (tests/hub/hub_server.py), a cache of its own for each test, and what a
 * whole model looks like in it. */
#ifndef SNUG_TESTS_PULL_FIXTURE_H
#define SNUG_TESTS_PULL_FIXTURE_H

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include "scratch.h"

#include "hub/fetch/digest.h"
#include "hub/fetch/pull.h"
#include "model/config.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

enum { LARGE = 700000 };

static struct {
    char folder[64], log[96];
    int hub_port, store_port, secure_port;
    int input; /* closing it ends the server */
    pid_t process;
} server;

/* The free space that snug sees; -1: the real one. */
static int64_t free_bytes = -1;
int __real_statvfs(const char *path, struct statvfs *info);
int __wrap_statvfs(const char *path, struct statvfs *info);
int __wrap_statvfs(const char *path, struct statvfs *info) {
    const int result = __real_statvfs(path, info);
    if (free_bytes >= 0) info->f_bavail = (fsblkcnt_t)free_bytes / info->f_frsize;
    return result;
}

/* Nothing here outlives the machine, and syncing takes most of the time. */
static int synced;
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    synced += fd >= 0;
    return 0;
}

/* ---- the server ----------------------------------------------------------------------------------------------- */

static inline void write_bytes(const char *name, const void *data, size_t size) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", server.folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void write_random(const char *name, size_t size, unsigned seed) {
    char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (char)(seed >> 24);
    }
    write_bytes(name, data, size);
    free(data);
}

static inline void make_folder(const char *name) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", server.folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static inline void write_models(void) {
    static const char config[] = "{\"model_type\": \"bert\", \"num_hidden_layers\": 3}";
    static const char index[] = "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-2.safetensors\", "
                                "\"c\": \"model-1.safetensors\"}}";
    make_folder("whole");
    make_folder("sharded");
    write_bytes("whole/config.json", config, strlen(config));
    write_bytes("sharded/config.json", config, strlen(config));
    write_random("whole/vocab.txt", 50000, 1);
    write_random("whole/tokenizer.json", 100000, 2);
    write_bytes("whole/added_tokens.json", "", 0);
    write_random("whole/model.safetensors", LARGE, 3);
    write_random("whole/pytorch_model.bin", 1000, 4);
    write_random("whole/README.md", 1000, 5);
    make_folder("embedding");
    make_folder("embedding/1_Pooling");
    make_folder("embedding/2_Dense");
    make_folder("embedding/additional_chat_templates");
    write_bytes("embedding/config.json", config, strlen(config));
    write_random("embedding/model.safetensors", 1000, 9);
    write_bytes("embedding/modules.json", "[]", 2);
    write_bytes("embedding/chat_template.jinja", "{{ bos_token }}", 15);
    write_bytes("embedding/1_Pooling/config.json", "{}", 2);
    write_bytes("embedding/2_Dense/config.json", "{ }", 3);
    write_random("embedding/2_Dense/model.safetensors", 2000, 10);
    write_random("embedding/2_Dense/pytorch_model.bin", 2000, 11);
    write_bytes("embedding/additional_chat_templates/tool_use.jinja", "{{ tools }}", 11);
    make_folder("adapter");
    write_bytes("adapter/adapter_config.json", config, strlen(config));
    write_random("adapter/adapter_model.safetensors", 3000, 12);
    write_random("adapter/vocab.txt", 1000, 13);
    write_bytes("sharded/model.safetensors.index.json", index, strlen(index));
    write_random("sharded/model-1.safetensors", 100000, 6);
    write_random("sharded/model-2.safetensors", 200000, 7);
    write_random("sharded/model-3.safetensors", 1000, 8);
}

static inline int start_server(void **state) {
    int to[2], from[2];
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (!temporary_folder(server.folder, sizeof server.folder) || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return -1;
    snprintf(server.log, sizeof server.log, "%s/log", server.folder);
    write_models();
    write_bytes("log", "", 0);
    server.process = fork();
    if (server.process == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execlp("python3", "python3", SNUG_SOURCE_DIR "/tests/hub/hub_server.py", server.folder, server.log,
               (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    server.input = to[1];
    FILE *ports = fdopen(from[0], "r");
    const int found = ports ? fscanf(ports, "%d %d %d", &server.hub_port, &server.store_port, &server.secure_port) : 0;
    if (ports) fclose(ports);
    return found == 3 ? 0 : -1;
}

static inline int stop_server(void **state) {
    char command[128];
    (void)state;
    close(server.input);
    waitpid(server.process, NULL, 0);
    snprintf(command, sizeof command, "rm -r %s", server.folder);
    return system(command);
}

/* The number of lines of the log from `from` on that contain part; *end is its size now. */
static inline int logged_from(long from, const char *part, long *end) {
    char line[512];
    int count = 0;
    FILE *log = fopen(server.log, "re");
    assert_non_null(log);
    fseek(log, from, SEEK_SET);
    while (fgets(line, sizeof line, log)) count += strstr(line, part) != NULL;
    if (end) *end = ftell(log);
    fclose(log);
    return count;
}

static inline int logged(const char *part) { return logged_from(0, part, NULL); }

/* ---- a pull --------------------------------------------------------------------------------------------------- */

static const char *const variables[] = {"HF_ENDPOINT",
                                        "HF_HOME",
                                        "HF_HUB_CACHE",
                                        "HUGGINGFACE_HUB_CACHE",
                                        "XDG_CACHE_HOME",
                                        "HF_TOKEN",
                                        "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",
                                        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "HF_HUB_OFFLINE",
                                        "TRANSFORMERS_OFFLINE",
                                        "HF_HUB_DOWNLOAD_TIMEOUT",
                                        "HF_HUB_ETAG_TIMEOUT",
                                        "SSL_CERT_FILE",
                                        "REQUESTS_CA_BUNDLE",
                                        "CURL_CA_BUNDLE",
                                        "http_proxy",
                                        "https_proxy",
                                        "all_proxy"};

/* A cache of its own, and the server as the hub. */
static inline int setup(void **state) {
    char endpoint[64];
    if (scratch_setup(state)) return -1;
    const struct scratch *s = *state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d//", server.hub_port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("HF_HOME", s->folder, 1);
    setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1", 1);
    return 0;
}

static double file_seconds = 60; /* that a file may take */
static int64_t seen_bytes, seen_total;
static inline void on_progress(void *user, int64_t bytes, int64_t total, double bytes_per_second) {
    (void)user;
    assert_true(bytes >= 0 && bytes <= total && bytes_per_second >= 0);
    seen_bytes = bytes;
    seen_total = total;
}

static inline snug_status pull_revision(struct scratch *s, const char *name, const char *revision,
                                        struct snug_pulled *result) {
    static const char *const others[] = {"added_tokens.json", "vocab.txt",    "tokenizer.json",
                                         "merges.txt",        "modules.json", "chat_template.jinja"};
    static const struct snug_pull_kind kinds[] = {{"config.json", "model.safetensors", "model.safetensors.index.json"},
                                                  {"adapter_config.json", "adapter_model.safetensors", NULL}};
    const struct snug_pull_options options = {.name = name,
                                              .place = {.revision = revision},
                                              .kinds = kinds,
                                              .kind_count = 2,
                                              .others = others,
                                              .other_count = sizeof others / sizeof *others,
                                              .retry_seconds = 0.01,
                                              .slow_seconds = 0.5,
                                              .file_seconds = file_seconds,
                                              .on_progress = on_progress};
    snug_clear_error(s->ctx);
    return snug_hub_pull(s->ctx, &options, result);
}

static inline snug_status pull(struct scratch *s, const char *name) {
    struct snug_pulled result;
    const snug_status status = pull_revision(s, name, NULL, &result);
    assert_true((status == SNUG_OK) == (result.folder != NULL));
    free(result.folder);
    return status;
}

static inline const char *in_cache(struct scratch *s, const char *model, const char *rest) {
    char name[320];
    snprintf(name, sizeof name, "hub/models--org--%s/%s", model, rest);
    return scratch_path(s, name);
}

/* The snapshot has this file of the server's folder, as a relative link to its blob. */
static inline void assert_linked(struct scratch *s, const char *model, const char *kind, const char *name) {
    const char *to_blobs = strchr(name, '/') ? "../../../blobs/" : "../../blobs/";
    char rest[160], original[160], target[160] = "", *found, *expected;
    size_t size, expected_size;
    snprintf(rest, sizeof rest, "snapshots/" COMMIT "/%s", name);
    snprintf(original, sizeof original, "%s/%s/%s", server.folder, kind, name);
    assert_true(readlink(in_cache(s, model, rest), target, sizeof target - 1) > 0);
    assert_int_equal(strncmp(target, to_blobs, strlen(to_blobs)), 0);
    assert_ok(s, snug_file_read(s->ctx, NULL, s->path, &found, &size));
    assert_ok(s, snug_file_read(s->ctx, NULL, original, &expected, &expected_size));
    assert_int_equal(size, expected_size);
    assert_memory_equal(found, expected, size);
    free(found);
    free(expected);
}

/* All files of ROOT/whole that snug reads, and nothing else. */
static inline void assert_whole(struct scratch *s, const char *model) {
    static const char *const names[] = {"config.json", "vocab.txt", "tokenizer.json", "added_tokens.json",
                                        "model.safetensors"};
    for (size_t i = 0; i < 5; i++) assert_linked(s, model, "whole", names[i]);
    assert_int_equal(entries(in_cache(s, model, "snapshots/" COMMIT)), 5);
    assert_int_equal(entries(in_cache(s, model, "blobs")), 5);
    assert_int_equal(entries(in_cache(s, model, "refs")), 1);
    assert_file_is(s, in_cache(s, model, "refs/main"), COMMIT);
}

/* The blob's name: the hash of whole/NAME. */
static inline void blob_name(const char *name, char text[SNUG_DIGEST_TEXT]) {
    char path[160], *data;
    size_t size;
    snug_context *ctx;
    struct snug_digest digest;
    assert_int_equal(snug_context_create(&ctx), SNUG_OK);
    snprintf(path, sizeof path, "%s/whole/%s", server.folder, name);
    assert_int_equal(snug_file_read(ctx, NULL, path, &data, &size), SNUG_OK);
    snug_digest_begin(&digest, strstr(name, "safetensors") ? SNUG_DIGEST_SHA256 : SNUG_DIGEST_GIT, (int64_t)size);
    snug_digest_add(&digest, data, size);
    snug_digest_end(&digest, text);
    free(data);
    snug_context_destroy(ctx);
}

static inline void make_blob_folder(struct scratch *s, const char *model) {
    assert_ok(s, snug_folder_create(s->ctx, in_cache(s, model, "blobs")));
}

static inline void write_blob(struct scratch *s, const char *model, const char *name, const char *end, const void *data,
                              size_t size) {
    char blob[SNUG_DIGEST_TEXT], rest[160];
    blob_name(name, blob);
    snprintf(rest, sizeof rest, "hub/models--org--%s/blobs/%s%s", model, blob, end);
    scratch_write(s, rest, data, size);
}

#endif
