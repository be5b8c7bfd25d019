/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls from a hub on this machine (tests/hub/hub_server.py) that misbehaves in every way. */
#include "pull_fixture.h"

#define FIXTURE struct scratch *s, setup, scratch_teardown

/* ---- what a hub gives ----------------------------------------------------------------------------------------- */

/* No library, and one that is not libcurl. The first test: libcurl stays open in a process. */
FIXTURE_TEST(without_libcurl) {
    static const char *const libraries[] = {"/nonexistent/libcurl.so", "libm.so.6"};
    static const char *const messages[] = {"downloading needs libcurl, which cannot be opened", "is too old"};
    for (int i = 0; i < 2; i++) {
        setenv("SNUG_LIBCURL", libraries[i], 1);
        assert_fails(s, pull(s, "org/plain"), SNUG_E_UNSUPPORTED, messages[i]);
    }
    unsetenv("SNUG_LIBCURL");
}

FIXTURE_TEST(a_model_comes_whole_and_once) {
    struct snug_pulled result;
    char *folder;
    assert_ok(s, pull_revision(s, "org/plain", NULL, &result));
    assert_contains(result.folder, "/hub/models--org--plain/snapshots/" COMMIT);
    assert_string_equal(result.commit, COMMIT);
    assert_int_equal(result.files, 5);
    assert_int_equal(result.bytes, result.fetched);
    assert_true(result.bytes > LARGE + 150000 && seen_bytes == result.bytes && seen_total == result.bytes);
    assert_whole(s, "plain");
    assert_int_equal(synced, 5 * 2 + 2); /* each file and its folder, and the name of the revision */
    assert_ok(s, snug_model_locate(s->ctx, &(struct snug_hub_place){0}, "org/plain", &folder));
    assert_string_equal(folder, result.folder);
    free(folder);
    free(result.folder);
    const int requests = logged("GET /org/plain/resolve");
    assert_ok(s, pull_revision(s, "org/plain", NULL, &result));
    assert_int_equal(result.fetched, 0);
    assert_int_equal(result.files, 5);
    assert_contains(s->log, "in the cache already");
    assert_int_equal(logged("GET /org/plain/resolve"), requests);
    free(result.folder);
}

FIXTURE_TEST(a_revision_has_its_own_name) {
    const struct snug_hub_place place = {.revision = "refs/pr/1"};
    struct snug_pulled result;
    char *folder;
    assert_ok(s, pull_revision(s, "org/revised", "refs/pr/1", &result));
    free(result.folder);
    assert_int_equal(logged("/api/models/org/revised/revision/refs%2Fpr%2F1"), 1);
    assert_file_is(s, in_cache(s, "revised", "refs/refs/pr/1"), COMMIT);
    assert_ok(s, snug_hub_find(s->ctx, &place, "org/revised", &folder));
    assert_non_null(folder);
    free(folder);
    assert_ok(s, snug_hub_find(s->ctx, &(struct snug_hub_place){0}, "org/revised", &folder));
    assert_null(folder);
    /* A commit needs no name. */
    assert_ok(s, pull_revision(s, "org/revised", COMMIT, &result));
    free(result.folder);
    assert_int_equal(entries(in_cache(s, "revised", "refs")), 1);
    assert_ok(s, snug_hub_find(s->ctx, &(struct snug_hub_place){.revision = COMMIT}, "org/revised", &folder));
    assert_non_null(folder);
    free(folder);
    assert_fails(s, pull_revision(s, "org/revised", "nowhere", &result), SNUG_E_INPUT,
                 "org/revised has no revision nowhere");
    static const char *const wrong[] = {"../x", "/x", "a//b", "", "a b", "a\\b", "a/", ".x", "a\x7f"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_fails(s, pull_revision(s, "org/revised", wrong[i], &result), SNUG_E_USAGE, "--model_revision");
        assert_fails(s, snug_hub_find(s->ctx, &(struct snug_hub_place){.revision = wrong[i]}, "a/b", &folder),
                     SNUG_E_USAGE, "--model_revision");
    }
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_fails(s, pull_revision(s, "org/revised", longest, &result), SNUG_E_USAGE, "--model_revision");
}

FIXTURE_TEST(shards_are_those_of_the_index) {
    assert_ok(s, pull(s, "org/sharded-cut"));
    assert_linked(s, "sharded-cut", "sharded", "config.json");
    assert_linked(s, "sharded-cut", "sharded", "model.safetensors.index.json");
    assert_linked(s, "sharded-cut", "sharded", "model-1.safetensors");
    assert_linked(s, "sharded-cut", "sharded", "model-2.safetensors");
    assert_int_equal(entries(in_cache(s, "sharded-cut", "snapshots/" COMMIT)), 4);
    static const char *const wrong[] = {"org/sharded-up",      "org/sharded-absolute", "org/sharded-number",
                                        "org/sharded-no-name", "org/sharded-hidden",   "org/sharded-long",
                                        "org/sharded-line",    "org/sharded-delete",   "org/sharded-backslash"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(s, pull(s, wrong[i]), SNUG_E_INPUT,
                     "its shard must be the name of a .safetensors file in the same folder");
    assert_fails(s, pull(s, "org/sharded-nothing"), SNUG_E_INPUT, "needs \"weight_map\"");
    assert_ok(s, pull(s, "org/sharded-many")); /* more than are fetched at once */
    assert_int_equal(entries(in_cache(s, "sharded-many", "snapshots/" COMMIT)), 2 + 12);
    /* No name leads to a model that is not whole. */
    assert_int_not_equal(access(in_cache(s, "sharded-up", "refs/main"), F_OK), 0);
}

/* A folder of sentence-transformers with its modules, templates by name, and an adapter, whose base is another model.
 */
FIXTURE_TEST(other_models_come_with_their_files) {
    static const char *const files[] = {"config.json",
                                        "model.safetensors",
                                        "modules.json",
                                        "chat_template.jinja",
                                        "1_Pooling/config.json",
                                        "2_Dense/config.json",
                                        "2_Dense/model.safetensors",
                                        "additional_chat_templates/tool_use.jinja"};
    struct snug_pulled result;
    for (int again = 0; again < 2; again++) {
        assert_ok(s, pull_revision(s, "org/embedding", NULL, &result));
        assert_int_equal(result.files, sizeof files / sizeof *files);
        assert_int_equal(result.fetched, again ? 0 : result.bytes);
        free(result.folder);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) assert_linked(s, "embedding", "embedding", files[i]);
    assert_int_equal(entries(in_cache(s, "embedding", "snapshots/" COMMIT)), 4 + 3);
    assert_int_equal(entries(in_cache(s, "embedding", "snapshots/" COMMIT "/2_Dense")), 2);
    assert_ok(s, pull(s, "org/adapter"));
    assert_linked(s, "adapter", "adapter", "adapter_config.json");
    assert_linked(s, "adapter", "adapter", "adapter_model.safetensors");
    assert_linked(s, "adapter", "adapter", "vocab.txt");
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_ok(s, pull(s, "org/adapter"));
    assert_int_equal(remove(in_cache(s, "adapter", "snapshots/" COMMIT "/adapter_model.safetensors")), 0);
    assert_fails(s, pull(s, "org/adapter"), SNUG_E_INPUT, "the cache has no adapter_model.safetensors");
    unsetenv("HF_HUB_OFFLINE");
    /* A folder that is a link leads elsewhere, and is not followed. */
    assert_ok(s, pull(s, "org/embedding-again"));
    assert_int_equal(remove(in_cache(s, "embedding-again", "snapshots/" COMMIT "/1_Pooling/config.json")), 0);
    const char *pooling = in_cache(s, "embedding-again", "snapshots/" COMMIT "/1_Pooling");
    assert_int_equal(remove(pooling), 0);
    assert_int_equal(symlink("/tmp", pooling), 0);
    assert_fails(s, pull(s, "org/embedding-again"), SNUG_E_IO, "is a symbolic link");
}

FIXTURE_TEST(names_are_those_of_a_hub) {
    static const char *const wrong[] = {"",     "a/b/c", "/a",   "a/",    "-a",  "a-",   "a/.b",
                                        ".a/b", "a--b",  "a..b", "a.git", "a b", "../a", "ä"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(s, pull(s, wrong[i]), SNUG_E_USAGE, "is not the name of a model");
    char longest[98];
    memset(longest, 'a', 97);
    longest[97] = '\0';
    assert_false(snug_hub_is_name(longest));
    assert_true(snug_hub_is_name(longest + 1));
    assert_true(snug_hub_is_name("bert-base.uncased_1"));
    assert_true(snug_hub_is_name("git"));
    assert_true(snug_hub_is_commit(COMMIT));
    assert_false(snug_hub_is_commit("x123456789abcdef0123456789abcdef01234567"));
}

/* ---- where things are ----------------------------------------------------------------------------------------- */

static void assert_cache(struct scratch *s, const struct snug_hub_place *place, const char *expected) {
    char *found;
    assert_ok(s, snug_hub_cache(s->ctx, place, &found));
    assert_string_equal(found, expected);
    free(found);
}

FIXTURE_TEST(folders_are_huggingface_hubs) {
    const struct snug_hub_place none = {0}, given = {.cache_dir = "/given"};
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL, *found;
    setenv("HF_HOME", "/home-of-hf", 1);
    assert_cache(s, &none, "/home-of-hf/hub");
    setenv("HUGGINGFACE_HUB_CACHE", "/older", 1);
    assert_cache(s, &none, "/older");
    setenv("HF_HUB_CACHE", "~/newer", 1);
    setenv("HOME", "/me", 1);
    assert_cache(s, &none, "/me/newer");
    setenv("HF_HUB_CACHE", "~", 1);
    assert_cache(s, &none, "/me");
    setenv("HF_HUB_CACHE", "~other", 1);
    assert_cache(s, &none, "~other");
    assert_cache(s, &given, "/given");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    setenv("HF_HOME", "", 1); /* as if unset */
    assert_cache(s, &none, "/me/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    assert_cache(s, &none, "/xdg/huggingface/hub");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    assert_cache(s, &none, "~/.cache/huggingface/hub");
    unsetenv("HOME");
    assert_ok(s, snug_hub_home(s->ctx, &found));
    assert_string_equal(found, "~/.cache/huggingface");
    free(found);
    if (home) setenv("HOME", home, 1);
    free(home);
}

/* The token is sent to the hub, also where it redirects to itself, and to no other server. */
FIXTURE_TEST(the_token_stays_at_the_hub) {
    char *path;
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "it is private: check the name, or give a token");
    setenv("HF_TOKEN", "wrong", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "the token in HF_TOKEN");
    setenv("HF_TOKEN", " secret\n", 1);
    assert_ok(s, pull(s, "org/renamed"));
    assert_linked(s, "renamed", "whole", "model.safetensors");
    assert_true(logged("hub GET /org/private/resolve/" COMMIT "/config.json 0 Bearer secret") == 1);
    assert_true(logged("store GET /private/model.safetensors?signature=1 0 None") == 1);
    /* The file of `hf auth login`, and that of HF_TOKEN_PATH. */
    unsetenv("HF_TOKEN");
    scratch_write(s, "token", "secret\r\n", 8);
    assert_ok(s, pull(s, "org/private"));
    setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "it is private");
    unsetenv("HF_HUB_DISABLE_IMPLICIT_TOKEN");
    path = strdup(scratch_path(s, "other"));
    setenv("HF_TOKEN_PATH", path, 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "it is private");
    scratch_write(s, "other", "\n", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "it is private");
    free(path);
    setenv("HUGGING_FACE_HUB_TOKEN", "", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_INPUT, "it is private");
    setenv("HUGGING_FACE_HUB_TOKEN", "secret", 1);
    setenv("HF_TOKEN", "", 1);
    assert_fails(s, pull(s, "org/missing"), SNUG_E_INPUT, "may not read it: as ");
    assert_ok(s, pull(s, "org/private"));
    setenv("HF_TOKEN", "a\nX-Injected: 1", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_USAGE, "contains characters that no token has");
    setenv("HF_TOKEN", "a\x7f", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_USAGE, "contains characters that no token has");
    setenv("HF_TOKEN", "a\xc3\xa4", 1);
    assert_fails(s, pull(s, "org/private"), SNUG_E_USAGE, "contains characters that no token has");
}

FIXTURE_TEST(without_a_network) {
    char *name;
    struct snug_pulled result;
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_fails(s, pull(s, "org/offline"), SNUG_E_INPUT, "is not in the cache, and HF_HUB_OFFLINE forbids");
    setenv("HF_HUB_OFFLINE", "0", 1);
    setenv("TRANSFORMERS_OFFLINE", "1", 1);
    assert_ok(s, pull(s, "org/offline"));
    setenv("HF_HUB_OFFLINE", "", 1);
    const int requests = logged("org/offline");
    assert_ok(s, pull_revision(s, "org/offline", NULL, &result));
    assert_string_equal(result.commit, COMMIT);
    free(result.folder);
    assert_int_equal(logged("org/offline"), requests);
    name = strdup(in_cache(s, "offline", "snapshots/" COMMIT "/model.safetensors"));
    assert_int_equal(unlink(name), 0);
    assert_fails(s, pull(s, "org/offline"), SNUG_E_INPUT, "the cache has no model.safetensors");
    free(name);
    assert_int_equal(unlink(in_cache(s, "offline", "snapshots/" COMMIT "/config.json")), 0);
    assert_fails(s, pull(s, "org/offline"), SNUG_E_INPUT, "the cache has no config.json");
    unsetenv("TRANSFORMERS_OFFLINE");
    assert_ok(s, pull(s, "org/sharded"));
    setenv("HF_HUB_OFFLINE", "TRUE", 1);
    assert_ok(s, pull(s, "org/sharded"));
    assert_int_equal(unlink(in_cache(s, "sharded", "snapshots/" COMMIT "/model-2.safetensors")), 0);
    assert_fails(s, pull(s, "org/sharded"), SNUG_E_INPUT, "the cache has no model-2.safetensors");
    assert_int_equal(unlink(in_cache(s, "sharded", "snapshots/" COMMIT "/model-1.safetensors")), 0);
    assert_fails(s, pull(s, "org/sharded"), SNUG_E_INPUT, "the cache has no model-1.safetensors");
    /* A server that is not there. */
    unsetenv("HF_HUB_OFFLINE");
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_IO, "cannot reach http://127.0.0.1:1");
    setenv("HF_ENDPOINT", "ftp://127.0.0.1", 1);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_USAGE, "HF_ENDPOINT ftp://127.0.0.1 is not a URL with http");
    setenv("HF_ENDPOINT", "https://127.0.0.1:1", 1);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_IO, "cannot reach https://127.0.0.1:1");
    setenv("HF_ENDPOINT", "//", 1);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_USAGE, "is not a URL");
    setenv("HF_ENDPOINT", "http://", 1);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_USAGE, "is not a URL");
}

/* ---- servers that misbehave ----------------------------------------------------------------------------------- */

FIXTURE_TEST(cut_connections_are_continued) {
    struct snug_pulled result;
    assert_ok(s, pull_revision(s, "org/cut", NULL, &result));
    assert_int_equal(result.bytes, result.fetched); /* nothing was fetched twice */
    free(result.folder);
    assert_whole(s, "cut");
    assert_int_equal(logged("store GET /cut/model.safetensors"), 4);
    assert_ok(s, pull_revision(s, "org/cut-without-ranges", NULL, &result));
    assert_true(result.fetched > result.bytes);
    free(result.folder);
    assert_whole(s, "cut-without-ranges");
    assert_ok(s, pull(s, "org/cut-list"));
    assert_ok(s, pull(s, "org/cut-unannounced"));
    assert_whole(s, "cut-unannounced");
    assert_fails(s, pull(s, "org/no-store"), SNUG_E_IO, "also after 5 repetitions");
    assert_fails(s, pull(s, "org/cut-always"), SNUG_E_IO, "also after 5 repetitions: run the command again");
    assert_fails(s, pull(s, "org/other-range"), SNUG_E_IO, "does not continue the file where it was cut, also after 5");
    const double began = snug_seconds();
    assert_ok(s, pull(s, "org/stalls")); /* for ten seconds, of which HF_HUB_DOWNLOAD_TIMEOUT waits for one */
    assert_true(snug_seconds() - began < 5);
    assert_whole(s, "stalls");
}

FIXTURE_TEST(wrong_content_is_not_kept) {
    assert_fails(s, pull(s, "org/hash"), SNUG_E_INPUT,
                 "model.safetensors: the server sent other content than it announced: its sha256 is ");
    assert_fails(s, pull(s, "org/hash-small"), SNUG_E_INPUT,
                 "config.json: the server sent other content than it announced: "
                 "its git sha1 is ");
    assert_int_not_equal(access(in_cache(s, "hash", "refs/main"), F_OK), 0);
    assert_int_not_equal(access(in_cache(s, "hash", "snapshots/" COMMIT "/model.safetensors"), F_OK), 0);
    assert_fails(s, pull(s, "org/short-length"), SNUG_E_INPUT, "the server sends 699990 bytes instead of 700000");
    assert_fails(s, pull(s, "org/endless"), SNUG_E_INPUT,
                 "the server sends more than the 700000 bytes that it announced");
    /* The part that a run left is damaged. */
    assert_fails(s, pull(s, "org/hash-once"), SNUG_E_INPUT, "the server sent other content");
    assert_ok(s, pull(s, "org/hash-once"));
    assert_whole(s, "hash-once");
}

FIXTURE_TEST(answers_have_limits) {
    static const struct {
        const char *name;
        snug_status status;
        const char *message;
    } cases[] = {
        {"unauthorized", SNUG_E_INPUT, "answers 401: there is no such model"},
        {"gated", SNUG_E_INPUT, "is gated on"},
        {"gated-file", SNUG_E_INPUT, "is gated on"},
        {"missing", SNUG_E_INPUT, "as \\x1b asked"},
        {"teapot", SNUG_E_INPUT, "the server answers 418: as \\x1b asked"},
        {"gone", SNUG_E_INPUT, "config.json: the server answers 404"},
        {"denied", SNUG_E_INPUT, "the server of its content answers 403"},
        {"limited-long", SNUG_E_IO, "asks to wait 100000 seconds"},
        {"down", SNUG_E_IO, "the server answers 503, also after 5 repetitions"},
        {"endless-list", SNUG_E_INPUT, "longer than 16 MiB"},
        {"endless-error", SNUG_E_INPUT, "answers 404"},
        {"endless-headers", SNUG_E_INPUT, "more than 128 KiB of headers"},
        {"loop", SNUG_E_IO, "more than 10 redirects"},
        {"local-file", SNUG_E_INPUT, "redirects to file:///etc/passwd, which is neither http nor https"},
        {"malformed", SNUG_E_INPUT, "not valid JSON"},
        {"empty", SNUG_E_INPUT, "not valid JSON"},
        {"list", SNUG_E_INPUT, "object"},
        {"no-commit", SNUG_E_INPUT, "\"sha\" is not a commit"},
        {"number", SNUG_E_INPUT, "\"sha\""},
        {"no-name", SNUG_E_INPUT, "has no \"rfilename\""},
        {"no-config", SNUG_E_INPUT, "has no config.json"},
        {"adapter-bare", SNUG_E_INPUT, "has no config.json"},
        {"pickled", SNUG_E_INPUT, "has no model.safetensors"},
        {"linked-no-size", SNUG_E_INPUT, "does not say how large it is"},
        {"bad-length", SNUG_E_IO, "/resolve/0123456789abcdef0123456789abcdef01234567/"}, /* of any file */
        {"no-location", SNUG_E_INPUT, "the server answers 302"},
        {"denied-why", SNUG_E_INPUT, "the server of its content answers 403: because"},
        {"range-unasked", SNUG_E_INPUT, "the server sent bytes from 7 on, not from 0 on"},
        {"no-etag", SNUG_E_INPUT, "sends no ETag"},
        {"no-size", SNUG_E_INPUT, "does not say how large it is"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        snprintf(name, sizeof name, "org/%s", cases[i].name);
        assert_fails(s, pull(s, name), cases[i].status, cases[i].message);
    }
    assert_ok(s, pull(s, "org/busy"));
    assert_ok(s, pull(s, "org/answer-408"));
    assert_ok(s, pull(s, "org/answer-500"));
    assert_ok(s, pull(s, "org/answer-504"));
    assert_ok(s, pull(s, "org/odd-headers"));
    assert_linked(s, "odd-headers", "whole", "vocab.txt");
    const double began = snug_seconds();
    assert_ok(s, pull(s, "org/limited"));
    assert_true(snug_seconds() - began > 0.9);                             /* Retry-After: 1 */
    static const char *const seconds[] = {"soon", "", "0", "100000", "5"}; /* all but the last as if unset */
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        setenv("HF_HUB_ETAG_TIMEOUT", seconds[i], 1);
        assert_ok(s, pull(s, "org/limited"));
    }
}

/* ---- the cache ------------------------------------------------------------------------------------------------ */

TEST(hashes_are_those_of_git_and_sha256) {
    char text[SNUG_DIGEST_TEXT];
    struct snug_digest digest;
    snug_digest_begin(&digest, SNUG_DIGEST_GIT, 0); /* git hash-object /dev/null */
    snug_digest_end(&digest, text);
    assert_string_equal(text, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    snug_digest_begin(&digest, SNUG_DIGEST_SHA256, 3); /* FIPS 180-2, B.1 */
    snug_digest_add(&digest, "abc", 3);
    snug_digest_end(&digest, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(snug_digest_kind_of("0123"), SNUG_DIGEST_NONE);
}

FIXTURE_TEST(what_is_there_is_used_if_it_is_right) {
    char path[160], *data;
    size_t size;
    snprintf(path, sizeof path, "%s/whole/model.safetensors", server.folder);
    assert_ok(s, snug_file_read(s->ctx, NULL, path, &data, &size));
    /* A part of the file is continued, a damaged one replaced, a whole one renamed, one that is too long cut. */
    make_blob_folder(s, "partial");
    write_blob(s, "partial", "model.safetensors", ".incomplete", data, 123456);
    assert_ok(s, pull(s, "org/partial"));
    assert_whole(s, "partial");
    assert_int_equal(logged("store GET /partial/model.safetensors?signature=1 123456"), 1);
    make_blob_folder(s, "complete");
    write_blob(s, "complete", "model.safetensors", ".incomplete", data, size);
    assert_ok(s, pull(s, "org/complete"));
    assert_whole(s, "complete");
    assert_int_equal(logged("store GET /complete/"), 0);
    data[5] ^= 1;
    make_blob_folder(s, "damaged");
    write_blob(s, "damaged", "model.safetensors", ".incomplete", data, 123456);
    assert_ok(s, pull(s, "org/damaged"));
    assert_whole(s, "damaged");
    assert_int_equal(logged("store GET /damaged/"), 2);
    make_blob_folder(s, "damaged-end");
    write_blob(s, "damaged-end", "model.safetensors", ".incomplete", data, size);
    assert_ok(s, pull(s, "org/damaged-end"));
    assert_whole(s, "damaged-end");
    make_blob_folder(s, "long");
    write_blob(s, "long", "config.json", ".incomplete", data, 5000);
    write_blob(s, "long", "vocab.txt", "", data, 10); /* a blob of another size */
    assert_ok(s, snug_folder_create(s->ctx, in_cache(s, "long", "refs")));
    scratch_write(s, "hub/models--org--long/refs/main", "another commit", 14);
    assert_ok(s, pull(s, "org/long"));
    assert_whole(s, "long");
    free(data);
}

FIXTURE_TEST(a_file_system_without_links_has_the_files_themselves) {
    char path[160], *data;
    size_t size;
    snprintf(path, sizeof path, "%s/whole/config.json", server.folder);
    assert_ok(s, snug_file_read(s->ctx, NULL, path, &data, &size));
    assert_ok(s, snug_folder_create(s->ctx, in_cache(s, "unlinked", "snapshots/" COMMIT)));
    scratch_write(s, "hub/models--org--unlinked/snapshots/" COMMIT "/config.json", data, size);
    assert_ok(s, pull(s, "org/unlinked"));
    assert_int_equal(logged("hub GET /org/unlinked/resolve/" COMMIT "/config.json"), 0);
    free(data);
}

FIXTURE_TEST(a_cache_that_cannot_be_written) {
    scratch_write(s, "hub", "", 0);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_IO, "cannot make folder");
    assert_int_equal(unlink(scratch_path(s, "hub")), 0);
    assert_int_equal(mkdir(scratch_path(s, "hub"), 0555), 0);
    be_another_user(true);
    assert_fails(s, pull(s, "org/plain"), SNUG_E_IO, "Permission denied");
    be_another_user(false);
    /* What is whole needs no writing. */
    assert_int_equal(chmod(scratch_path(s, "hub"), 0777), 0);
    assert_ok(s, pull(s, "org/plain"));
    assert_int_equal(chmod(in_cache(s, "plain", "blobs"), 0555), 0);
    assert_int_equal(chmod(in_cache(s, "plain", "refs"), 0555), 0);
    assert_int_equal(chmod(s->folder, 0755), 0);
    be_another_user(true);
    const snug_status status = pull(s, "org/plain");
    be_another_user(false);
    assert_ok(s, status);
    assert_int_equal(mkdir(in_cache(s, "odd", ""), 0777), 0);
    assert_int_equal(mkdir(in_cache(s, "odd", "refs"), 0777), 0);
    assert_int_equal(mkdir(in_cache(s, "odd", "refs/main"), 0777), 0);
    assert_fails(s, pull(s, "org/odd"), SNUG_E_IO, "cannot write ");
}

FIXTURE_TEST(a_full_disk) {
    free_bytes = 500000;
    assert_fails(s, pull(s, "org/full"), SNUG_E_IO, "0.8 MiB are to be fetched, and the disk of ");
    free_bytes = -1;
    assert_int_equal(logged("/full/model.safetensors?signature=1"), 0);
    struct rlimit before, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 200000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const snug_status status = pull(s, "org/full");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(s, status, SNUG_E_IO, ".incomplete: File too large");
    assert_ok(s, pull(s, "org/full"));
    assert_whole(s, "full");
    assert_int_equal(logged("store GET /full/model.safetensors?signature=1 200000"), 1);
}

/* ---- several processes ---------------------------------------------------------------------------------------- */

static int held = -1; /* a lock of this process, which a child would inherit */

static pid_t pull_in_child(struct scratch *s, const char *name) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (held >= 0) close(held);
        alarm(60);
        const snug_status status = pull(s, name);
        _exit(status == SNUG_OK ? 0 : 1);
    }
    return child;
}

static void wait_for(pid_t child, int expected) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, expected);
}

FIXTURE_TEST(two_pulls_at_once_share_the_work) {
    pid_t children[3];
    for (int i = 0; i < 3; i++) children[i] = pull_in_child(s, "org/throttled-two");
    for (int i = 0; i < 3; i++) wait_for(children[i], 0);
    assert_whole(s, "throttled-two");
    assert_int_equal(logged("store GET /throttled-two/model.safetensors"), 1);
    assert_int_equal(logged("hub GET /org/throttled-two/resolve/" COMMIT "/vocab.txt"), 1);
}

static int calls_until_stop;
static bool should_stop(void *user) {
    (void)user;
    return --calls_until_stop < 0;
}

/* Once this much of a file has arrived. */
static bool has_arrived(void *path) {
    struct stat part;
    return stat(path, &part) == 0 && part.st_size >= 100000;
}

FIXTURE_TEST(an_interrupted_pull_keeps_what_has_arrived) {
    char name[SNUG_DIGEST_TEXT + 32], blob[SNUG_DIGEST_TEXT], *part;
    struct snug_pulled result;
    blob_name("model.safetensors", blob);
    snprintf(name, sizeof name, "blobs/%s.incomplete", blob);
    part = strdup(in_cache(s, "throttled-stop", name));
    snug_set_stop(s->ctx, has_arrived, part);
    assert_fails(s, pull(s, "org/throttled-stop"), SNUG_E_INTERRUPTED, "interrupted: what has arrived is kept");
    free(part);
    /* At every moment before that, also while the part is read. */
    snug_set_stop(s->ctx, should_stop, NULL);
    snug_status status = SNUG_E_INTERRUPTED;
    for (int longer = 0; status != SNUG_OK; longer++) {
        calls_until_stop = longer;
        status = pull_revision(s, "org/throttled-stop", NULL, &result);
        if (status != SNUG_OK) assert_fails(s, status, SNUG_E_INTERRUPTED, "interrupted");
    }
    snug_set_stop(s->ctx, NULL, NULL);
    assert_true(result.fetched < result.bytes);
    free(result.folder);
    assert_whole(s, "throttled-stop");
}

/* While another process has a lock, a pull waits, and can be stopped. */
FIXTURE_TEST(a_lock_is_waited_for) {
    char name[160], blob[SNUG_DIGEST_TEXT];
    blob_name("vocab.txt", blob);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "hub/.locks/models--org--locked")));
    snprintf(name, sizeof name, "hub/.locks/models--org--locked/%s.lock", blob);
    held = open(scratch_path(s, name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(flock(held, LOCK_EX), 0);
    calls_until_stop = 20;
    snug_set_stop(s->ctx, should_stop, NULL);
    assert_fails(s, pull(s, "org/locked"), SNUG_E_INTERRUPTED, "interrupted");
    assert_contains(s->log, "another process fetches it");
    snug_set_stop(s->ctx, NULL, NULL);
    const pid_t child = pull_in_child(s, "org/locked");
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    close(held);
    held = -1;
    wait_for(child, 0);
    assert_whole(s, "locked");
    scratch_path(s, name);
    assert_int_equal(unlink(s->path), 0);
    assert_int_equal(mkdir(s->path, 0777), 0);
    assert_int_equal(unlink(in_cache(s, "locked", "snapshots/" COMMIT "/vocab.txt")), 0);
    assert_fails(s, pull(s, "org/locked"), SNUG_E_IO, "cannot write ");
}

/* A run after a kill fetches no whole file again, and continues the one that was cut. */
struct fetched {
    const char *name, *get;
    char blob[SNUG_DIGEST_TEXT];
    bool whole;
    long part;
} fetched_files[] = {
    {.name = "model.safetensors", .get = "store GET /throttled-kill/model.safetensors?signature=1 "},
    {.name = "tokenizer.json", .get = "hub GET /org/throttled-kill/resolve/" COMMIT "/tokenizer.json "},
    {.name = "vocab.txt", .get = "hub GET /org/throttled-kill/resolve/" COMMIT "/vocab.txt "},
};

static void look(struct scratch *s, struct fetched *file) {
    char rest[160];
    struct stat info;
    snprintf(rest, sizeof rest, "blobs/%s", file->blob);
    file->whole = access(in_cache(s, "throttled-kill", rest), F_OK) == 0;
    strcat(rest, ".incomplete");
    file->part = stat(in_cache(s, "throttled-kill", rest), &info) == 0 ? (long)info.st_size : 0;
}

static void check_requests(struct fetched *file, long log) {
    char get[160];
    const int requests = logged_from(log, file->get, NULL);
    assert_true(requests <= (file->whole ? 0 : 1));
    snprintf(get, sizeof get, "%s%ld ", file->get, file->part);
    assert_int_equal(logged_from(log, get, NULL), requests);
}

FIXTURE_TEST(killed_at_any_moment_it_loses_nothing) {
    unsigned seed = 1;
    int kills = 0, ends = 0;
    for (int i = 0; i < 3; i++) blob_name(fetched_files[i].name, fetched_files[i].blob);
    while (kills < 50 || ends < 1) {
        long log;
        int status;
        for (int i = 0; i < 3; i++) look(s, &fetched_files[i]);
        logged_from(0, "", &log);
        const pid_t child = pull_in_child(s, "org/throttled-kill");
        seed = seed * 1664525u + 1013904223u;
        nanosleep(&(struct timespec){.tv_nsec = (seed >> 8) % 100 * 1000000L}, NULL);
        if (kills < 50) kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        for (int i = 0; i < 3; i++) check_requests(&fetched_files[i], log);
        if (WIFSIGNALED(status)) {
            kills++;
            continue;
        }
        assert_int_equal(status, 0);
        ends++;
        assert_whole(s, "throttled-kill");
        assert_ok(s, snug_folder_remove(s->ctx, NULL, in_cache(s, "throttled-kill", "")));
    }
}

/* ---- the library ---------------------------------------------------------------------------------------------- */

static bool never(void *user) {
    (void)user;
    return false;
}

static void on_event(void *user, const snug_event *event) {
    assert_int_equal(event->kind, SNUG_EVENT_DOWNLOAD);
    assert_true(event->step <= event->max_steps && event->bytes_per_second >= 0 && event->seconds_left >= 0);
    ++*(int *)user;
}

FIXTURE_TEST(the_public_call) {
    int events = 0;
    const snug_callbacks callbacks = {.user = &events, .on_event = on_event, .should_stop = never};
    snug_args *args;
    snug_pull_result *result;
    assert_ok(s, snug_args_create(s->ctx, &args));
    assert_fails(s, snug_pull(args, NULL, &result), SNUG_E_USAGE, "no model: give its name");
    assert_null(result);
    assert_ok(s, snug_args_set(args, "model_name_or_path", "org/public"));
    assert_ok(s, snug_args_set(args, "cache_dir", scratch_path(s, "own")));
    assert_ok(s, snug_args_set(args, "model_revision", "v1"));
    assert_ok(s, snug_pull(args, &callbacks, &result));
    assert_true(events > 0);
    assert_contains(result->folder, "/own/models--org--public/snapshots/" COMMIT);
    assert_string_equal(result->commit, COMMIT);
    assert_true(result->files > 0 && result->bytes == result->fetched);
    snug_pull_result_destroy(result);
    assert_file_is(s, scratch_path(s, "own/models--org--public/refs/v1"), COMMIT);
    assert_ok(s, snug_pull(args, NULL, &result));
    snug_pull_result_destroy(result);
    assert_ok(s, snug_pull(args, NULL, NULL));
    snug_args_destroy(args);
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

/* Starts snug with these words; its output, on a terminal or not, is read from *output. */
static pid_t start_snug(const char *words, bool terminal, int *output) {
    char command[512];
    int ends[2];
    pid_t child;
    snprintf(command, sizeof command, "exec '%s/snug' %s", SNUG_BINARY_DIR, words);
    if (terminal) {
        struct winsize size = {.ws_row = 24, .ws_col = 100};
        child = forkpty(output, NULL, NULL, &size);
    } else {
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        *output = ends[0];
        child = fork();
    }
    assert_true(child >= 0);
    if (child > 0) {
        if (!terminal) close(ends[1]);
        return child;
    }
    if (!terminal) dup2(ends[1], STDOUT_FILENO);
    setenv("TERM", "xterm", 1);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* The exit code; all output in text. */
static int end_snug(pid_t child, int output, char *text, size_t size) {
    size_t length = 0;
    int status;
    for (ssize_t got; (got = read(output, text + length, size - 1 - length)) > 0;) length += (size_t)got;
    text[length] = '\0';
    close(output);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *words, int code, const char *says) {
    char text[8192];
    int output;
    const pid_t child = start_snug(words, false, &output);
    const int found = end_snug(child, output, text, sizeof text);
    if (found != code) fail_msg("snug %s: exit code %d, not %d: %s", words, found, code, text);
    assert_contains(text, says);
}

FIXTURE_TEST(the_command) {
    char words[256], text[8192];
    int output;
    expect("plan --model_name_or_path org/shown 2>&1", 1, "fetch it with `snug pull org/shown`, or give the folder");
    snprintf(words, sizeof words, "plan --model_name_or_path org/shown --cache_dir %s/c --model_revision v1 2>&1",
             s->folder);
    expect(words, 1, "`snug pull org/shown --model_revision v1 --cache_dir /");
    expect("plan --model_name_or_path ./absent 2>&1", 1, "model ./absent: there is no such folder\n");
    expect("pull 2>&1", 2, "no model: give its name");
    expect("pull org/missing 2>&1 >/dev/null", 1, "there is no such model");
    const pid_t child = start_snug("pull org/throttled-shown", true, &output);
    assert_int_equal(end_snug(child, output, text, sizeof text), 0);
    assert_contains(text, "/0.8 MiB  ");
    assert_contains(text, " MiB/s  ETA 0:0");
    assert_contains(text, "/models--org--throttled-shown/snapshots/" COMMIT);
    expect("pull --model_name_or_path org/shown 2>/dev/null", 0, "/hub/models--org--shown/snapshots/" COMMIT "\n");
    expect("pull org/shown --json 2>/dev/null", 0, "\"files\":5,\"bytes\":850046,\"fetched_bytes\":0}\n");
    expect("plan --model_name_or_path org/shown 2>/dev/null", 0, "BERT, 3 layers");
}

FIXTURE_TEST(a_signal_ends_it_with_130) {
    static const int signals[] = {SIGINT, SIGTERM};
    char text[8192], name[SNUG_DIGEST_TEXT + 32], blob[SNUG_DIGEST_TEXT];
    struct stat part = {0};
    blob_name("model.safetensors", blob);
    snprintf(name, sizeof name, "blobs/%s.incomplete", blob);
    for (int i = 0; i < 2; i++) {
        int output;
        const long before = (long)part.st_size;
        const pid_t child = start_snug("pull org/throttled-signal 2>&1", false, &output);
        while (stat(in_cache(s, "throttled-signal", name), &part) || part.st_size <= before)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        assert_int_equal(kill(child, signals[i]), 0);
        assert_int_equal(end_snug(child, output, text, sizeof text), 130);
        assert_contains(text, "interrupted: what has arrived is kept, and the same command continues there");
        assert_int_equal(stat(in_cache(s, "throttled-signal", name), &part), 0);
    }
    assert_ok(s, pull(s, "org/throttled-signal"));
    assert_whole(s, "throttled-signal");
}

TEST_MAIN(start_server, stop_server)
