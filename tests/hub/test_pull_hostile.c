/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls from a hub that attacks, and into a cache that another user may write into. */
#include <sys/socket.h>
#include <sys/un.h>

#include "pull_fixture.h"

#define FIXTURE struct scratch *s, setup, scratch_teardown

static void pull_all(struct scratch *s, const char *const *models, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "org/%s", models[i]);
        const snug_status status = pull(s, name);
        if (status != SNUG_OK) fail_msg("%s: %s", name, snug_error_message(s->ctx));
    }
}
#define PULL_ALL(s, models) pull_all(s, models, sizeof(models) / sizeof *(models))

struct refused {
    const char *model;
    snug_status status;
    const char *message;
};
static void refuse_all(struct scratch *s, const struct refused *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "org/%s", cases[i].model);
        assert_fails(s, pull(s, name), cases[i].status, cases[i].message);
    }
}
#define REFUSE_ALL(s, cases) refuse_all(s, cases, sizeof(cases) / sizeof *(cases))

/* ---- ETags ---------------------------------------------------------------------------------------------------- */

/* The server first gives vocab.txt an ETag that is the name of another file of the cache, and zeros as its content,
 * then what it is. */
FIXTURE_TEST(an_etag_that_is_no_hash_names_nothing) {
    static const char *const models[] = {"etag-part",  "etag-part-of-hub", "etag-lock",    "etag-dot",
                                         "etag-path",  "etag-hidden",      "etag-parent",  "etag-refs",
                                         "etag-blank", "etag-long",        "etag-letters", "etag-odd"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[64], rest[160], target[160] = "", part[SNUG_DIGEST_TEXT];
        snprintf(name, sizeof name, "org/%s", models[i]);
        assert_ok(s, pull(s, name));
        assert_int_equal(entries(in_cache(s, models[i], "blobs")), 5);
        blob_name("config.json", part);
        snprintf(rest, sizeof rest, "blobs/%s.incomplete", part);
        assert_int_not_equal(access(in_cache(s, models[i], rest), F_OK), 0);
        snprintf(rest, sizeof rest, "snapshots/" COMMIT "/vocab.txt");
        assert_true(readlink(in_cache(s, models[i], rest), target, sizeof target - 1) > 0);
        assert_int_equal(strncmp(target, "../../blobs/unverified-", 23), 0);
        assert_int_equal(strlen(target), 23 + 64);
        /* The same commit and size: its hash is what counts. */
        assert_ok(s, pull(s, name));
        assert_linked(s, models[i], "whole", "vocab.txt");
        assert_linked(s, models[i], "whole", "config.json");
    }
}

/* Files with one ETag are not one file; a part of an earlier run is not continued, since nothing would find that it is
 * damaged. */
FIXTURE_TEST(an_etag_that_is_no_hash_is_not_trusted) {
    char path[200], zeros[100] = {0};
    assert_ok(s, pull(s, "org/etag-equal"));
    assert_whole(s, "etag-equal");
    assert_ok(s, pull(s, "org/etag-other"));
    assert_whole(s, "etag-other");
    char target[120] = "";
    in_cache(s, "etag-other", "snapshots/" COMMIT "/vocab.txt");
    assert_true(readlink(s->path, target, sizeof target - 1) > 0);
    assert_int_equal(unlink(s->path), 0);
    assert_int_equal(unlink(in_cache(s, "etag-other", strstr(target, "blobs/"))), 0);
    snprintf(path, sizeof path, "hub/models--org--etag-other/%.100s.incomplete", target + 6);
    scratch_write(s, path, zeros, sizeof zeros);
    assert_ok(s, pull(s, "org/etag-other"));
    assert_whole(s, "etag-other");
}

/* On a file system without case it would have the name of the lower one. */
FIXTURE_TEST(a_hash_in_capitals_is_a_hash) {
    char text[SNUG_DIGEST_TEXT], rest[160];
    assert_ok(s, pull(s, "org/etag-upper"));
    assert_whole(s, "etag-upper");
    blob_name("vocab.txt", text);
    snprintf(rest, sizeof rest, "blobs/%s", text);
    assert_int_equal(access(in_cache(s, "etag-upper", rest), F_OK), 0);
    assert_fails(s, pull(s, "org/etag-upper-wrong"), SNUG_E_INPUT, "the server sent other content than it announced");
}

/* ---- redirects ------------------------------------------------------------------------------------------------ */

/* Real hubs redirect the request for a file's headers to themselves, and say what it is on the way. */
FIXTURE_TEST(what_a_redirect_says_of_a_file_counts) {
    static const char *const models[] = {"self-none", "self-weak", "self-steps", "self-later"};
    PULL_ALL(s, models);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char rest[160], text[SNUG_DIGEST_TEXT];
        assert_whole(s, models[i]);
        blob_name("vocab.txt", text);
        snprintf(rest, sizeof rest, "blobs/%s", text);
        assert_int_equal(access(in_cache(s, models[i], rest), F_OK), 0);
    }
    assert_fails(s, pull(s, "org/other-commit"), SNUG_E_INPUT,
                 "the server answers with the file of commit ffffffffffffffffffffffffffffffffffffffff");
    struct snug_pulled result;
    assert_fails(s, pull_revision(s, "org/plain", "f123456789abcdef0123456789abcdef01234567", &result), SNUG_E_INPUT,
                 "the server answers with the files of commit " COMMIT " instead");
}

FIXTURE_TEST(no_redirect_leaves_https) {
    static const char *const schemes[] = {"https", "HTTPS", "hTTps"};
    static const char *const models[] = {"org/down-list",       "org/down-head",       "org/down-get",
                                         "org/down-list-upper", "org/down-head-upper", "org/plain",
                                         "org/down-get-upper"};
    static const char *const bundles[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"};
    char endpoint[64];
    setenv("HF_TOKEN", "secret", 1);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        snprintf(endpoint, sizeof endpoint, "%s://127.0.0.1:%d", schemes[i], server.secure_port);
        setenv("HF_ENDPOINT", endpoint, 1);
        assert_fails(s, pull(s, "org/inline"), SNUG_E_IO, "127.0.0.1"); /* nobody has signed the certificate */
        setenv(bundles[i], SNUG_SOURCE_DIR "/tests/hub/hub.pem", 1);
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            assert_fails(s, pull(s, models[m]), SNUG_E_INPUT, "redirects from https to http://127.0.0.1:");
        assert_ok(s, pull(s, "org/inline"));
        assert_whole(s, "inline");
        assert_ok(s, pull(s, "org/up"));
        unsetenv(bundles[i]);
        assert_ok(s, snug_folder_remove(s->ctx, NULL, scratch_path(s, "hub")));
    }
    assert_int_equal(
        logged("hub GET /api/models/org/down") + logged("hub GET /org/down") + logged("hub HEAD /org/down"), 0);
    assert_int_equal(logged("secure GET /api/models/org/inline/revision/main 0 Bearer secret"), 6);
    /* The endpoint is where the token is sent, however it is written. */
    snprintf(endpoint, sizeof endpoint, "HTTP://127.0.0.1:%d", server.hub_port);
    setenv("HF_ENDPOINT", endpoint, 1);
    assert_ok(s, pull(s, "org/renamed"));
    assert_int_equal(logged("hub GET /org/private/resolve/" COMMIT "/vocab.txt 0 Bearer secret"), 1);
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

FIXTURE_TEST(only_files_of_a_model_are_fetched) {
    static const struct refused cases[] = {
        {"sharded-program", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-config", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-pickle", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-program-in-folder", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-end", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-option", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-double", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-other-letters", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-trailing", SNUG_E_INPUT, "its shard must be the name of a .safetensors file"},
        {"sharded-unlisted", SNUG_E_INPUT, "has no model-9.safetensors, which model.safetensors.index.json names"},
        {"sharded-case", SNUG_E_INPUT, "model-1.safetensors and Model-1.safetensors have the same name on some"},
        {"sharded-endless", SNUG_E_INPUT, "names more than 1024 shards"},
        {"odd-config", SNUG_E_INPUT, "has no config.json"},
        {"embedding-many", SNUG_E_INPUT, "more than 16 folders of modules"},
        {"long-list", SNUG_E_INPUT, "a list of more than 100000 files is not that of a model"},
        {"huge", SNUG_E_INPUT, "vocab.txt has 268435455 bytes: only weights may have more than 256 MiB"},
        {"huge-weights", SNUG_E_IO, "MiB are to be fetched, and the disk of"},
    };
    REFUSE_ALL(s, cases);
    assert_ok(s, pull(s, "org/odd-names"));
    assert_whole(s, "odd-names");
}

/* ---- time ----------------------------------------------------------------------------------------------------- */

/* An answer to the request for the rest of a file that is not this rest: the file is fetched from its first byte, and
 * the part does not fail every later run. */
FIXTURE_TEST(a_part_that_cannot_be_continued_is_dropped) {
    static const char *const models[] = {"range-refused", "range-refused-why", "range-short", "range-elsewhere",
                                         "range-unnamed"};
    char path[160], *data;
    size_t size;
    snprintf(path, sizeof path, "%s/whole/model.safetensors", server.folder);
    assert_ok(s, snug_file_read(s->ctx, NULL, path, &data, &size));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        make_blob_folder(s, models[i]);
        write_blob(s, models[i], "model.safetensors", ".incomplete", data, 123456);
    }
    PULL_ALL(s, models);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char get[160];
        assert_whole(s, models[i]);
        snprintf(get, sizeof get, "store GET /%s/model.safetensors?signature=1 123456 ", models[i]);
        assert_int_equal(logged(get), 1);
        snprintf(get, sizeof get, "store GET /%s/model.safetensors?signature=1 0 ", models[i]);
        assert_int_equal(logged(get), 1);
    }
    /* An answer without a length continues it. */
    make_blob_folder(s, "range-unsized");
    write_blob(s, "range-unsized", "model.safetensors", ".incomplete", data, 123456);
    free(data);
    assert_ok(s, pull(s, "org/range-unsized"));
    assert_whole(s, "range-unsized");
    assert_int_equal(logged("store GET /range-unsized/model.safetensors?signature=1 123456 "), 1);
    assert_int_equal(logged("store GET /range-unsized/model.safetensors?signature=1 0 "), 0);
    assert_fails(s, pull(s, "org/range-always"), SNUG_E_INPUT, "the server of its content answers 416");
}

/* A server that always sends something has not answered yet. */
FIXTURE_TEST(a_drip_ends) {
    static const struct refused cases[] = {
        {"drip-small", SNUG_E_IO, "config.json: the server has not sent it within 2 s"},
        {"drip-headers", SNUG_E_IO, "config.json: the server has not sent it within 2 s"},
        {"crumbs", SNUG_E_IO, "vocab.txt: Transferred a partial file, also after 5 repetitions"},
    };
    double began = snug_seconds();
    assert_ok(s, pull(s, "org/drip-once")); /* less than 128 bytes per second, for hours */
    assert_whole(s, "drip-once");
    assert_int_equal(logged("store GET /drip-once/model.safetensors?signature=1 10"), 1);
    assert_true(snug_seconds() - began < 10);
    file_seconds = 1.5;
    began = snug_seconds();
    REFUSE_ALL(s, cases);
    file_seconds = 60;
    assert_true(snug_seconds() - began < 10);
}

/* ---- a cache that others may write into ----------------------------------------------------------------------- */

enum trap { TRAP_LINK, TRAP_HARD_LINK, TRAP_PIPE, TRAP_SOCKET, TRAP_FOLDER, TRAP_DANGLING, TRAPS };

static void set_trap(enum trap trap, const char *path, const char *victim) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    switch (trap) {
    case TRAP_LINK: assert_int_equal(symlink(victim, path), 0); break;
    case TRAP_HARD_LINK: assert_int_equal(link(victim, path), 0); break;
    case TRAP_PIPE: assert_int_equal(mkfifo(path, 0666), 0); break;
    case TRAP_FOLDER: assert_int_equal(mkdir(path, 0777), 0); break;
    case TRAP_DANGLING: assert_int_equal(symlink("nothing-here", path), 0); break;
    case TRAP_SOCKET: {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        const char *slash = strrchr(path, '/'); /* the path of a socket has little room */
        char folder[512], before[512];
        assert_true(fd >= 0 && getcwd(before, sizeof before));
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        snprintf(address.sun_path, sizeof address.sun_path, "%s", slash + 1);
        assert_int_equal(chdir(folder), 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(chdir(before), 0);
        close(fd);
        break;
    }
    case TRAPS: break;
    }
}

/* Whatever has the name of a file that is written: it is refused or replaced, never waited for, written to or cut. */
FIXTURE_TEST(names_that_lead_elsewhere) {
    char config[SNUG_DIGEST_TEXT], lock[160], part[160], blob[160];
    blob_name("config.json", config);
    snprintf(lock, sizeof lock, ".locks/models--org--plain/%s.lock", config);
    snprintf(part, sizeof part, "models--org--plain/blobs/%s.incomplete", config);
    snprintf(blob, sizeof blob, "models--org--plain/blobs/%s", config);
    const struct {
        const char *name;
        bool folders_only; /* anything else is replaced */
    } names[] = {{lock, false},
                 {part, false},
                 {".locks/models--org--plain/refs.lock", false},
                 {".locks/models--org--plain/refs.incomplete", true},
                 {blob, true}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (enum trap trap = 0; trap < TRAPS; trap++) {
            char name[256], *victim = strdup(scratch_write(s, "victim", "mine", 4));
            assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "hub/models--org--plain/blobs")));
            assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "hub/.locks/models--org--plain")));
            snprintf(name, sizeof name, "hub/%s", names[i].name);
            set_trap(trap, scratch_path(s, name), victim);
            alarm(20);
            const snug_status status = pull(s, "org/plain");
            alarm(0);
            if (!names[i].folders_only || trap == TRAP_FOLDER)
                assert_fails(s, status, SNUG_E_IO, names[i].name == blob ? "cannot make " : names[i].name);
            else
                assert_ok(s, status);
            if (status == SNUG_OK) assert_whole(s, "plain");
            assert_file_is(s, victim, "mine");
            assert_ok(s, snug_folder_remove(s->ctx, NULL, scratch_path(s, "hub")));
            assert_int_equal(unlink(victim), 0);
            free(victim);
        }
}

/* Each folder below the cache. What is behind the link gets nothing. */
FIXTURE_TEST(folders_that_lead_elsewhere) {
    static const char *const links[] = {"models--org--plain",
                                        ".locks",
                                        ".locks/models--org--plain",
                                        "models--org--plain/blobs",
                                        "models--org--plain/snapshots",
                                        ("models--org--plain/snapshots/" COMMIT),
                                        "models--org--plain/refs",
                                        "models--org--plain/refs/refs",
                                        "models--org--plain/refs/refs/pr"};
    struct snug_pulled result;
    char *elsewhere = strdup(scratch_path(s, "elsewhere"));
    assert_int_equal(mkdir(elsewhere, 0777), 0);
    for (size_t i = 0; i < 2 * sizeof links / sizeof *links; i++) {
        char name[256], *slash;
        const char *link = links[i / 2];
        snprintf(name, sizeof name, "hub/%s", link);
        slash = strrchr(name, '/');
        *slash = '\0';
        assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, name)));
        *slash = '/';
        assert_int_equal(symlink(i % 2 ? "nothing-here" : elsewhere, scratch_path(s, name)), 0);
        const snug_status status = pull_revision(s, "org/plain", "refs/pr/1", &result);
        assert_null(result.folder);
        assert_contains(snug_error_message(s->ctx), link);
        assert_fails(s, status, SNUG_E_IO, " is a symbolic link, which is not followed here: remove it");
        assert_int_equal(entries(elsewhere), 0);
        assert_ok(s, snug_folder_remove(s->ctx, NULL, scratch_path(s, "hub")));
    }
    /* The cache itself is the user's choice. */
    assert_int_equal(symlink(elsewhere, scratch_path(s, "hub")), 0);
    assert_ok(s, pull(s, "org/plain"));
    assert_whole(s, "plain");
    free(elsewhere);
}

/* The snapshot's links: one that leads elsewhere is replaced, what it leads to is not touched; a file is not replaced.
 */
FIXTURE_TEST(links_in_a_snapshot) {
    static const char snapshot[] = "snapshots/" COMMIT "/vocab.txt";
    char *victim = strdup(scratch_write(s, "victim", "mine", 4)), *equal, name[256];
    char *zeros = calloc(1, 50000);
    assert_non_null(zeros);
    equal = strdup(scratch_write(s, "equal", zeros, 50000)); /* as large as vocab.txt */
    const char *const targets[] = {victim, equal, "nothing-here", "../../blobs/nothing-here", s->folder};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_ok(s, snug_folder_create(s->ctx, in_cache(s, "linked", "snapshots/" COMMIT)));
        assert_int_equal(symlink(targets[i], in_cache(s, "linked", snapshot)), 0);
        assert_ok(s, pull(s, "org/linked"));
        assert_whole(s, "linked");
        assert_int_equal(unlink(in_cache(s, "linked", snapshot)), 0);
    }
    snprintf(name, sizeof name, "hub/models--org--linked/%s", snapshot);
    scratch_write(s, name, "mine", 4);
    assert_fails(s, pull(s, "org/linked"), SNUG_E_IO, "exists and is not the file of this name on the hub");
    assert_file_is(s, scratch_path(s, name), "mine");
    assert_file_is(s, victim, "mine");
    free(victim);
    free(equal);
    free(zeros);
}

/* Its owner could change it after its hash was checked. */
FIXTURE_TEST(another_users_part_is_not_continued) {
    char name[160], text[SNUG_DIGEST_TEXT], *data, path[160];
    size_t size;
    if (geteuid() != 0) return;
    blob_name("model.safetensors", text);
    snprintf(path, sizeof path, "%s/whole/model.safetensors", server.folder);
    assert_ok(s, snug_file_read(s->ctx, NULL, path, &data, &size));
    for (int owns_folder = 0; owns_folder < 2; owns_folder++) {
        const char *model = owns_folder ? "of-the-owner" : "of-another";
        make_blob_folder(s, model);
        write_blob(s, model, "model.safetensors", ".incomplete", data, 123456);
        snprintf(name, sizeof name, "blobs/%s.incomplete", text);
        assert_int_equal(chown(in_cache(s, model, name), 65534, 65534), 0);
        if (owns_folder) assert_int_equal(chown(in_cache(s, model, "blobs"), 65534, 65534), 0);
        snprintf(name, sizeof name, "org/%s", model);
        assert_ok(s, pull(s, name));
        assert_whole(s, model);
        snprintf(name, sizeof name, "store GET /%s/model.safetensors?signature=1 %d ", model, owns_folder ? 123456 : 0);
        assert_int_equal(logged(name), 1);
    }
    free(data);
    assert_ok(s, snug_folder_remove(s->ctx, NULL, scratch_path(s, "hub")));
    /* It is removed only where that is allowed: not in a folder like /tmp. */
    make_blob_folder(s, "sticky");
    write_blob(s, "sticky", "model.safetensors", ".incomplete", "", 0);
    assert_int_equal(chmod(s->folder, 0755), 0);
    for (const char *const *at = (const char *const[]){"hub", "hub/models--org--sticky", NULL}; *at; at++)
        assert_int_equal(chmod(scratch_path(s, *at), 0777), 0);
    snprintf(name, sizeof name, "blobs/%s.incomplete", text);
    assert_int_equal(chown(in_cache(s, "sticky", name), 1, 1), 0);
    assert_int_equal(chmod(in_cache(s, "sticky", "blobs"), 01777), 0);
    be_another_user(true);
    const snug_status status = pull(s, "org/sticky");
    be_another_user(false);
    assert_fails(s, status, SNUG_E_IO, "cannot remove another user's ");
}

TEST_MAIN(start_server, stop_server)
