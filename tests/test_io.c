/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders that appear whole or not at all, JSON, and TensorBoard events. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/events.h"
#include "io/json.h"
#include "scratch.h"

/* Stands before libc's: plays a file system that cannot exchange two folders, or whose second rename fails. */
static bool no_exchange;
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

static void reading(void **state) {
    struct scratch *s = *state;
    char *text;
    size_t size;
    assert_file_is(s, scratch_write(s, "a", "hello", 5), "hello");
    assert_file_is(s, scratch_write(s, "empty", "", 0), "");
    assert_ok(s, snug_file_read(s->ctx, "/proc/self/status", &text, &size)); /* says that it has 0 bytes */
    assert_contains(text, "VmRSS");
    assert_int_equal(strlen(text), size);
    free(text);
    assert_fails(s, snug_file_read(s->ctx, scratch_path(s, "none"), &text, &size), SNUG_E_IO, "none: No such file");
    assert_fails(s, snug_file_read(s->ctx, s->folder, &text, &size), SNUG_E_IO, "directory");
}

static void names(void **state) {
    struct scratch *s = *state;
    char path[512], *joined;
    const int fd = open(scratch_write(s, "a", "", 0), O_RDONLY, 0);
    snprintf(path, sizeof path, "%s", s->path);
    assert_true(snug_file_is_named(fd, path));
    assert_false(snug_file_is_named(fd, scratch_write(s, "b", "", 0)));
    assert_false(snug_file_is_named(fd, scratch_path(s, "c")));
    assert_int_equal(close(fd), 0);
    assert_false(snug_file_is_named(fd, path));
    const int processes = open("/proc", O_RDONLY | O_DIRECTORY, 0); /* of the number 1, as all its kind */
    assert_false(snug_file_is_named(processes, "/sys"));
    assert_int_equal(close(processes), 0);
    static const char *const pairs[][2] = {{"a", "a/x"}, {"a/", "a/x"}, {"/", "/x"}, {"", "x"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_ok(s, snug_path_join(s->ctx, &joined, pairs[i][0], "x"));
        assert_string_equal(joined, pairs[i][1]);
        free(joined);
    }
}

static void cache_folder(void **state) {
    static const char *const variables[] = {"SNUG_CACHE", "XDG_CACHE_HOME", "HOME"};
    static const struct {
        const char *values[3], *folder;
    } cases[] = {
        {{"/own", "/user", "/home"}, "/own"},
        {{"", "/user", "/home"}, "/user/snug"},
        {{NULL, "/user", NULL}, "/user/snug"},
        {{"", "", "/home"}, "/home/.cache/snug"},
        {{NULL, NULL, "/home"}, "/home/.cache/snug"},
        {{"", "", ""}, NULL},
        {{NULL, NULL, NULL}, NULL},
    };
    struct scratch *s = *state;
    char *before[3], *folder;
    for (int k = 0; k < 3; k++) before[k] = getenv(variables[k]) ? strdup(getenv(variables[k])) : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int k = 0; k < 3; k++)
            cases[i].values[k] ? setenv(variables[k], cases[i].values[k], 1) : unsetenv(variables[k]);
        assert_ok(s, snug_cache_folder(s->ctx, &folder));
        if (cases[i].folder)
            assert_string_equal(folder, cases[i].folder);
        else
            assert_null(folder);
        free(folder);
    }
    for (int k = 0; k < 3; k++) before[k] ? setenv(variables[k], before[k], 1) : unsetenv(variables[k]);
    for (int k = 0; k < 3; k++) free(before[k]);
}

static void folders(void **state) {
    struct scratch *s = *state;
    int64_t here, there;
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "a/b//c/")));
    assert_ok(s, snug_folder_create(s->ctx, s->path));
    assert_true(snug_folder_exists(scratch_path(s, "a/b/c")));
    assert_false(snug_file_exists(s->path));
    assert_ok(s, snug_disk_free(s->ctx, s->folder, &here));
    assert_ok(s, snug_disk_free(s->ctx, scratch_path(s, "x/y/z"), &there));
    assert_true(here > 0 && there > here / 2 && there < here * 2);
    assert_ok(s, snug_disk_free(s->ctx, "not-here/either", &here));
    assert_ok(s, snug_disk_free(s->ctx, "", &here));
    assert_int_equal(snug_folder_bytes(s->folder), 0);
    assert_int_equal(snug_folder_bytes(""), 0);
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_folder_create(s->ctx, scratch_path(s, "file/sub")), SNUG_E_IO, "file/sub: Not a directory");
    assert_fails(s, snug_folder_create(s->ctx, scratch_path(s, "file")), SNUG_E_IO, "file: File exists");
    assert_ok(s, snug_folder_remove(s->ctx, scratch_path(s, "a")));
    assert_false(snug_folder_exists(s->path));
    assert_ok(s, snug_folder_remove(s->ctx, s->path));
}

static void folder_check(void **state) {
    struct scratch *s = *state;
    assert_ok(s, snug_folder_check(s->ctx, s->folder));
    assert_ok(s, snug_folder_check(s->ctx, scratch_path(s, "a/b//c/")));
    assert_ok(s, snug_folder_check(s->ctx, "not-here/either"));
    assert_int_equal(entries(s->folder), 0); /* it only looks */
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_folder_check(s->ctx, scratch_path(s, "file")), SNUG_E_IO, "file: Not a directory");
    assert_fails(s, snug_folder_check(s->ctx, scratch_path(s, "file/")), SNUG_E_IO, "file: Not a directory");
    assert_fails(s, snug_folder_check(s->ctx, scratch_path(s, "file/a/b")), SNUG_E_IO, "file/a/b in ");
    assert_int_equal(symlink("nowhere", scratch_path(s, "link")), 0);
    assert_fails(s, snug_folder_check(s->ctx, s->path), SNUG_E_IO, "link: No such file");
    assert_fails(s, snug_folder_check(s->ctx, scratch_path(s, "link/below")), SNUG_E_IO, "link: No such file");
    char longest[300] = "";
    memset(longest, 'n', sizeof longest - 1);
    assert_fails(s, snug_folder_check(s->ctx, longest), SNUG_E_IO, "File name too long");
}

static void writer(void **state) {
    struct scratch *s = *state;
    struct snug_writer first, second;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    assert_ok(s, snug_file_replace(s->ctx, path, "old", 3));
    assert_ok(s, snug_writer_open(s->ctx, path, &first));
    assert_ok(s, snug_writer_open(s->ctx, path, &second)); /* two at once do not meet */
    snug_writer_put(&first, "first", 5);
    snug_writer_put(&second, "second", 6);
    assert_file_is(s, path, "old");
    snug_writer_abandon(&first);
    assert_file_is(s, path, "old");
    assert_ok(s, snug_writer_commit(s->ctx, &second));
    snug_writer_abandon(&second);
    assert_file_is(s, path, "second");
    assert_ok(s, snug_file_copy(s->ctx, path, scratch_path(s, "copy")));
    assert_file_is(s, s->path, "second");
    assert_int_equal(entries(s->folder), 2);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

static void unwritable(void **state) {
    struct scratch *s = *state;
    char path[512];
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_file_replace(s->ctx, scratch_path(s, "file/a"), "", 0), SNUG_E_IO, "file/a: Not a directory");
    assert_fails(s, snug_file_replace(s->ctx, scratch_path(s, "none/a"), "", 0), SNUG_E_IO, "none/a: No such file");
    assert_fails(s, snug_file_replace(s->ctx, s->folder, "", 0), SNUG_E_IO, "not a regular file");
    assert_fails(s, snug_file_replace(s->ctx, "/dev/null", "", 0), SNUG_E_IO, "/dev/null");
    assert_fails(s, snug_file_copy(s->ctx, scratch_path(s, "none"), "x"), SNUG_E_IO, "none");
    /* A disk that is full in the middle of a file, played by the limit on a file's size. */
    snprintf(path, sizeof path, "%s", scratch_write(s, "out", "old", 3));
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){100000, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *big = calloc(1, 300000);
    snug_status status = snug_file_replace(s->ctx, path, big, 300000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    free(big);
    assert_fails(s, status, SNUG_E_IO, "out: File too large");
    assert_file_is(s, path, "old");
    assert_int_equal(entries(s->folder), 2);
}

static void folder_commit(void **state) {
    struct scratch *s = *state;
    char path[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "runs/checkpoint-1/"));
    for (int round = 0; round < 4; round++) {
        static const char *const texts[] = {"zero", "one", "two", "three"};
        no_exchange = round == 2;
        assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
        fill(s, aside, texts[round]);
        if (round) assert_file_is(s, scratch_path(s, "runs/checkpoint-1/sub/a"), texts[round - 1]);
        assert_ok(s, snug_folder_commit(s->ctx, aside, path));
        assert_file_is(s, scratch_path(s, "runs/checkpoint-1/sub/a"), texts[round]);
        assert_ok(s, snug_folder_verify(s->ctx, path));
        assert_int_equal(entries(scratch_path(s, "runs")), 1);
        assert_int_equal(entries(path), 2);
    }
    no_exchange = false;
    assert_int_equal(s->log_count, 0);
}

/* A process killed before commit, and one killed between the two renames: the old folder is there, then the new one. */
static void folder_crash(void **state) {
    struct scratch *s = *state;
    char path[512], old[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    snprintf(old, sizeof old, "%s", scratch_path(s, ".out.snug-old"));
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    fill(s, aside, "old");
    assert_ok(s, snug_folder_commit(s->ctx, aside, path));
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    fill(s, aside, "half");
    free(aside);
    assert_ok(s, snug_folder_verify(s->ctx, path));
    assert_int_equal(rename(path, old), 0);
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    assert_file_is(s, scratch_path(s, "out/sub/a"), "old");
    assert_int_equal(entries(aside), 0);
    fill(s, aside, "new");
    assert_ok(s, snug_folder_commit(s->ctx, aside, path));
    assert_file_is(s, scratch_path(s, "out/sub/a"), "new");
    assert_int_equal(entries(s->folder), 1);
}

/* A process that writes b and dies before it is done with it, by SIGKILL. */
static void kill_writer(struct scratch *s, const char *path) {
    struct snug_writer out;
    int ready[2], status;
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (snug_writer_open(s->ctx, path, &out) != SNUG_OK || write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    snug_folder_sweep(s->ctx, s->folder); /* it lives */
    assert_int_equal(entries(s->folder), 5);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Of what is hidden, files that nobody writes any more go, and nothing else. */
static void sweep(void **state) {
    struct scratch *s = *state;
    struct snug_writer own;
    char path[512];
    scratch_write(s, ".a.snug-1", "", 0);
    scratch_write(s, ".snug-1-0.txt", "", 0);
    scratch_write(s, "b.snug-1-0", "", 0);
    snprintf(path, sizeof path, "%s", scratch_path(s, "own"));
    assert_ok(s, snug_writer_open(s->ctx, path, &own));
    snprintf(path, sizeof path, "%s", scratch_path(s, "b"));
    kill_writer(s, path);
    assert_int_equal(entries(s->folder), 5);
    assert_int_equal(s->log_count, 0);
    snug_folder_sweep(s->ctx, s->folder);
    assert_int_equal(entries(s->folder), 4);
    assert_contains(s->log, "/.b.snug-");
    assert_int_equal(s->log_count, 1);
    snug_writer_put(&own, "whole", 5);
    assert_ok(s, snug_writer_commit(s->ctx, &own));
    assert_file_is(s, scratch_path(s, "own"), "whole");
    snug_folder_sweep(s->ctx, scratch_path(s, "none"));
}

static void folder_discard(void **state) {
    struct scratch *s = *state;
    char path[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    assert_ok(s, snug_folder_discard(s->ctx, path)); /* there is none */
    for (int round = 0; round < 2; round++) {
        assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
        fill(s, aside, "a");
        assert_ok(s, snug_folder_commit(s->ctx, aside, path));
        if (round) assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, ".out.snug-aside/x"))); /* left by a kill */
        assert_ok(s, snug_folder_discard(s->ctx, path));
        assert_int_equal(entries(s->folder), 0);
    }
    scratch_write(s, "file", "", 0);
    assert_fails(s, snug_folder_discard(s->ctx, scratch_path(s, "file/x")), SNUG_E_IO, "Not a directory");
}

static void folder_links_and_refusals(void **state) {
    struct scratch *s = *state;
    char target[512], link[512], *aside;
    snprintf(target, sizeof target, "%s", scratch_path(s, "disk"));
    snprintf(link, sizeof link, "%s", scratch_path(s, "link"));
    assert_ok(s, snug_folder_create(s->ctx, target));
    assert_int_equal(symlink(target, link), 0);
    assert_ok(s, snug_folder_begin(s->ctx, link, &aside));
    fill(s, aside, "x");
    assert_ok(s, snug_folder_commit(s->ctx, aside, link)); /* the link stays, what it names is replaced */
    assert_file_is(s, scratch_path(s, "disk/sub/a"), "x");
    assert_fails(s, snug_folder_begin(s->ctx, ".", &aside), SNUG_E_USAGE, "\".\"");
    assert_fails(s, snug_folder_begin(s->ctx, "..", &aside), SNUG_E_USAGE, "\"..\"");
    assert_int_equal(symlink("nowhere", scratch_path(s, "lost")), 0);
    assert_fails(s, snug_folder_begin(s->ctx, s->path, &aside), SNUG_E_IO, "cannot follow the link ");
    assert_ok(s, snug_folder_begin(s->ctx, target, &aside));
    assert_int_equal(symlink("nowhere", scratch_path(s, ".disk.snug-aside/lost")), 0);
    assert_fails(s, snug_folder_commit(s->ctx, aside, target), SNUG_E_INTERNAL, "lost is neither a file nor a folder");
    assert_fails(s, snug_folder_begin(s->ctx, "/", &aside), SNUG_E_USAGE, "\"/\"");
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_folder_begin(s->ctx, scratch_path(s, "file"), &aside), SNUG_E_IO, "file of that name");
    assert_fails(s, snug_folder_begin(s->ctx, scratch_path(s, "file/out"), &aside), SNUG_E_IO, "file");
    assert_fails(s, snug_folder_begin(s->ctx, "/proc/snug/out", &aside), SNUG_E_IO, "/proc/snug");
    assert_null(aside);
}

static void folder_verify(void **state) {
    struct scratch *s = *state;
    char path[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    fill(s, aside, "twelve bytes");
    scratch_write(s, ".out.snug-aside/ab", "", 0);
    assert_ok(s, snug_folder_commit(s->ctx, aside, path));
    assert_ok(s, snug_folder_verify(s->ctx, path));
    for (size_t at = 0; at < 12; at++) { /* any one bit */
        char text[] = "twelve bytes";
        text[at] ^= (char)(1 << at % 8);
        scratch_write(s, "out/sub/a", text, 12);
        assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "out/sub/a is damaged: its checksum");
    }
    scratch_write(s, "out/sub/a", "twelve byte", 11);
    assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "has 11 bytes");
    unlink(s->path);
    assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "out/sub/a is missing");
    scratch_write(s, "out/manifest.json", "{\"files\": 1}", 12);
    assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "\"files\" must be an object");
    scratch_write(s, "out/manifest.json", "{\"fil", 5);
    assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "manifest.json:1");
    unlink(s->path);
    assert_fails(s, snug_folder_verify(s->ctx, path), SNUG_E_INPUT, "has no manifest.json");
}

static json_t *json_from(struct scratch *s, const char *text) {
    json_t *value;
    assert_ok(s, snug_json_read(s->ctx, scratch_write(s, "a.json", text, strlen(text)), &value));
    return value;
}

static void json_members(void **state) {
    struct scratch *s = *state;
    json_t *o =
        json_from(s, "\xEF\xBB\xBF{\"i\": 3, \"r\": 0.5, \"w\": 512.0, \"b\": true, \"s\": \"x\", \"n\": null,"
                     " \"huge\": 1000000000000000019884624838656, \"t\": \"\\\"1000000000000000019884624838656\","
                     " \"long\": 1.0000000000000000000, \"up\": 1000000000000000000E2, \"plus\": 1e+20, \"o\": {},"
                     " \"l\": [], \"f\": false}");
    int64_t i;
    double r;
    bool b;
    const char *t;
    assert_ok(s, snug_json_int(s->ctx, "p", o, "i", 0, &i));
    assert_int_equal(i, 3);
    assert_ok(s, snug_json_int(s->ctx, "p", o, "w", 0, &i));
    assert_int_equal(i, 512);
    assert_ok(s, snug_json_int(s->ctx, "p", o, "n", 7, &i));
    assert_int_equal(i, 7);
    assert_ok(s, snug_json_int(s->ctx, "p", o, "none", -7, &i));
    assert_int_equal(i, -7);
    assert_ok(s, snug_json_real(s->ctx, "p", o, "r", 0, &r));
    assert_true(r == 0.5);
    assert_ok(s, snug_json_real(s->ctx, "p", o, "i", 0, &r));
    assert_true(r == 3);
    assert_ok(s, snug_json_real(s->ctx, "p", o, "huge", 0, &r)); /* as tokenizer_config.json has it */
    assert_true(r == 1000000000000000019884624838656.0);
    static const char *const reals[] = {"long", "up", "plus"};
    static const double values[] = {1, 1e20, 1e20};
    for (int k = 0; k < 3; k++) {
        assert_ok(s, snug_json_real(s->ctx, "p", o, reals[k], 0, &r));
        assert_true(r == values[k]);
    }
    assert_ok(s, snug_json_bool(s->ctx, "p", o, "b", false, &b));
    assert_true(b);
    assert_ok(s, snug_json_string(s->ctx, "p", o, "s", NULL, &t));
    assert_string_equal(t, "x");
    assert_ok(s, snug_json_string(s->ctx, "p", o, "t", NULL, &t)); /* text that looks like a number stays */
    assert_string_equal(t, "\"1000000000000000019884624838656");
    assert_ok(s, snug_json_string(s->ctx, "p", o, "none", NULL, &t));
    assert_null(t);
    assert_fails(s, snug_json_int(s->ctx, "p", o, "s", 0, &i), SNUG_E_INPUT, "p: \"s\" must be an integer");
    assert_fails(s, snug_json_int(s->ctx, "p", o, "r", 0, &i), SNUG_E_INPUT, "found a number");
    assert_fails(s, snug_json_int(s->ctx, "p", o, "huge", 0, &i), SNUG_E_INPUT, "of at most 64 bits");
    assert_fails(s, snug_json_real(s->ctx, "p", o, "b", 0, &r), SNUG_E_INPUT, "found true or false");
    assert_fails(s, snug_json_real(s->ctx, "p", o, "f", 0, &r), SNUG_E_INPUT, "found true or false");
    assert_fails(s, snug_json_real(s->ctx, "p", o, "o", 0, &r), SNUG_E_INPUT, "found an object");
    assert_fails(s, snug_json_real(s->ctx, "p", o, "l", 0, &r), SNUG_E_INPUT, "found a list");
    assert_fails(s, snug_json_bool(s->ctx, "p", o, "i", 0, &b), SNUG_E_INPUT, "\"i\" must be true or false");
    assert_fails(s, snug_json_string(s->ctx, "p", o, "i", 0, &t), SNUG_E_INPUT, "\"i\" must be a string");
    json_decref(o);
}

static void json_files(void **state) {
    struct scratch *s = *state;
    json_t *o = json_from(s, "{\"lr\": 5e-05, \"eps\": 1e-12, \"p\": 0.1, \"third\": 0.3333333333333333, \"one\": 1.0,"
                             " \"n\": -7, \"big\": 1e22, \"s\": \"0.10000000000000001 \\\" \\u00e9\"}");
    assert_ok(s, snug_json_write(s->ctx, scratch_path(s, "b.json"), o));
    assert_file_is(s, s->path,
                   "{\n  \"lr\": 5e-5,\n  \"eps\": 1e-12,\n  \"p\": 0.1,\n  \"third\": 0.3333333333333333,\n"
                   "  \"one\": 1.0,\n  \"n\": -7,\n  \"big\": 1e22,\n"
                   "  \"s\": \"0.10000000000000001 \\\" \xC3\xA9\"\n}\n");
    json_t *back;
    assert_ok(s, snug_json_read(s->ctx, s->path, &back));
    assert_true(json_equal(o, back));
    json_decref(back);
    json_decref(o);
    static const char *const wrong[] = {"",
                                        "{",
                                        "[1]",
                                        "{\"a\": 1,}",
                                        "{\"a\": 1e999}",
                                        "{\"a\": \"\xFF\"}",
                                        "{} x",
                                        "3",
                                        "{}, {}",
                                        "{\"a\": \"\\",
                                        "{\"a\": 1000000000000000000000, \"\\"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(s, snug_json_read(s->ctx, scratch_write(s, "w.json", wrong[i], strlen(wrong[i])), &back),
                     SNUG_E_INPUT, "w.json");
    assert_fails(s, snug_json_read(s->ctx, scratch_write(s, "w.json", "{\n\n1", 4), &back), SNUG_E_INPUT, "w.json:3:");
    assert_fails(s, snug_json_read(s->ctx, scratch_path(s, "none.json"), &back), SNUG_E_IO, "none.json");
    assert_fails(s, snug_json_read(s->ctx, scratch_write(s, "w.json", "{\"a\": 1\0}", 9), &back), SNUG_E_INPUT,
                 "a NUL byte");
}

/* What is wrong with a text is said of that text: nothing is named that it does not hold, and places are its own. */
static void json_messages(void **state) {
    struct scratch *s = *state;
    static const struct {
        const char *text;
        int line, column;
        const char *message;
    } cases[] = {
        {"", 1, 0, "'[' or '{' expected near end of file"},
        {"   ", 1, 3, "'[' or '{' expected near end of file"},
        {"{", 1, 1, "string or '}' expected near end of file"},
        {"{\"a\": 1", 1, 7, "'}' expected near end of file"},
        {"{\"a\": [1, 2", 1, 11, "']' expected near end of file"},
        {"{\"a\": 1}}", 1, 9, "end of file expected near '}'"},
        {"{\"a\": 1}]", 1, 9, "end of file expected near ']'"},
        {"{} x", 1, 4, "end of file expected near 'x'"},
        {"{}, {}", 1, 3, "end of file expected near ','"},
        {"{\n}\n[]", 3, 1, "end of file expected near '['"},
        {"3", 1, 1, "'[' or '{' expected near '3'"},
        {"\"x\"", 1, 3, "'[' or '{' expected near '\"x\"'"},
        {"]", 1, 1, "'[' or '{' expected near ']'"},
        {"{\"a\": 1,}", 1, 9, "string or '}' expected near '}'"},
        {"{\"a\": \"xx", 1, 9, "premature end of input near '\"xx'"},
        {"{\"a\" 1}", 1, 6, "':' expected near '1'"},
        {"{\"a\":\n  \"b\"\n  \"c\": 1}", 3, 5, "'}' expected near '\"c\"'"},
        {"{\"\u00e9\": 1 2}", 1, 9, "'}' expected near '2'"},
        {"{\"a\": tru}", 1, 9, "invalid token near 'tru'"},
        {"{\"a\": 1e999}", 1, 11, "real number overflow near '1e999'"},
        {"{\"a\": \"long enough for a buffer to grow \\q\"}", 1, 42, "invalid escape"},
        /* integers beyond 64 bits, which are read as reals */
        {"{\"a\": 10000000000000000000000, \"b\": x}", 1, 37, "invalid token near 'x'"},
        {"{\"a\": 10000000000000000000000 5}", 1, 31, "'}' expected near '5'"},
        {"{\n\"a\": 10000000000000000000000, }", 2, 31, "string or '}' expected near '}'"},
    };
    json_t *value;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "/w.json:%d: not valid JSON (column %d): %s", cases[i].line,
                 cases[i].column, cases[i].message);
        const char *path = scratch_write(s, "w.json", cases[i].text, strlen(cases[i].text));
        const snug_status status = snug_json_read(s->ctx, path, &value);
        const char *end = strstr(snug_error_message(s->ctx), cases[i].message);
        if (!end || strcmp(end, cases[i].message) != 0)
            fail_msg("%s: \"%s\"", cases[i].text, snug_error_message(s->ctx));
        assert_fails(s, status, SNUG_E_INPUT, expected);
    }
    const char *path = scratch_write(s, "w.json", "{\n\"a\": \"\xC3\xA9\0\"}", 13);
    assert_fails(s, snug_json_read(s->ctx, path, &value), SNUG_E_INPUT,
                 "/w.json:2: not valid JSON (column 8): a NUL byte");
}

/* Any double comes back as it was. */
static void json_reals(void **state) {
    struct scratch *s = *state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double value = i < 1000 ? i / 1000.0 : 0;
        if (i >= 1000) memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        json_t *real = json_real(value);
        char *text;
        assert_ok(s, snug_json_text(s->ctx, real, JSON_ENCODE_ANY, &text));
        if (strtod(text, NULL) != value) fail_msg("%.17g became %s", value, text);
        if (i < 1000) assert_true(strlen(text) <= 5); /* 0.123 */
        free(text);
        json_decref(real);
    }
}

/* ---- events: decoded here from the format's description, not by the code that wrote them ---- */

/* CRC-32C by its definition as polynomial division, most significant bit first over reflected bits. */
static uint32_t checksum(const unsigned char *data, size_t size) {
    uint32_t remainder = 0xFFFFFFFFu, reflected = 0;
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = (remainder >> 31) ^ (uint32_t)(data[i] >> bit & 1);
            remainder = remainder << 1 ^ (in ? 0x1EDC6F41u : 0);
        }
    for (int bit = 0; bit < 32; bit++) reflected |= (remainder >> bit & 1) << (31 - bit);
    reflected = ~reflected;
    return (reflected >> 15 | reflected << 17) + 0xa282ead8u;
}

struct decoded {
    double wall_time;
    int64_t step;
    char version[32], tag[64];
    float value;
};

static uint64_t varint(const unsigned char **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128)) return value;
    }
}

/* path: the fields entered so far, as decimal digits: 5, 51, … */
static void decode(const unsigned char *at, const unsigned char *end, int path, struct decoded *out) {
    while (at < end) {
        uint64_t key = varint(&at), size = 0;
        int field = path * 10 + (int)(key >> 3);
        const unsigned char *data = at;
        switch (key & 7) {
        case 0: out->step = (int64_t)varint(&at); break;
        case 1: at += 8; break;
        case 2:
            size = varint(&at);
            data = at;
            at += size;
            break;
        case 5: at += 4; break;
        default: fail_msg("wire type %d", (int)(key & 7));
        }
        assert_true(at <= end);
        if (field == 1) memcpy(&out->wall_time, data, 8);
        if (field == 3) snprintf(out->version, sizeof out->version, "%.*s", (int)size, (const char *)data);
        if (field == 5 || field == 51) decode(data, at, field, out);
        if (field == 511) snprintf(out->tag, sizeof out->tag, "%.*s", (int)size, (const char *)data);
        if (field == 512) memcpy(&out->value, data, 4);
    }
}

static void events(void **state) {
    struct scratch *s = *state;
    assert_int_equal(checksum((const unsigned char *)"123456789", 9),
                     0xC78AB0E5u); /* 0xE3069283, the published check value, masked */
    struct snug_events *file, *other;
    assert_ok(s, snug_events_open(s->ctx, scratch_path(s, "runs/x"), &file));
    assert_ok(s, snug_events_open(s->ctx, s->path, &other)); /* a name of its own */
    snug_events_close(other);
    assert_ok(s, snug_events_scalar(file, "train/loss", 10, 0.693147, 1700000000.25));
    assert_ok(s, snug_events_scalar(file, "eval/accuracy", 123456789012, -1.5, 1700000001.5));
    char tag[2000];
    memset(tag, 't', sizeof tag);
    tag[1999] = '\0';
    assert_fails(s, snug_events_scalar(file, tag, 1, 1, 1), SNUG_E_INTERNAL, "1999 bytes");
    snug_events_close(file);
    assert_int_equal(entries(s->path), 2);

    char folder[512], *bytes = NULL;
    size_t size = 0;
    snprintf(folder, sizeof folder, "%s", s->path);
    DIR *list = opendir(folder);
    for (struct dirent *entry; (entry = readdir(list));)
        if (strlen(entry->d_name) > 2 && !strcmp(entry->d_name + strlen(entry->d_name) - 2, ".0")) {
            assert_int_equal(strncmp(entry->d_name, "events.out.tfevents.", 20), 0);
            char path[1024];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            assert_ok(s, snug_file_read(s->ctx, path, &bytes, &size));
        }
    closedir(list);
    struct decoded found[3] = {{0}};
    int records = 0;
    for (const unsigned char *at = (unsigned char *)bytes, *end = at + size; at < end; records++) {
        uint64_t length;
        uint32_t crc;
        assert_true(records < 3);
        memcpy(&length, at, 8);
        memcpy(&crc, at + 8, 4);
        assert_int_equal(crc, checksum(at, 8));
        assert_true(length + 16 <= (size_t)(end - at));
        memcpy(&crc, at + 12 + length, 4);
        assert_int_equal(crc, checksum(at + 12, length));
        decode(at + 12, at + 12 + length, 0, &found[records]);
        at += length + 16;
    }
    free(bytes);
    assert_int_equal(records, 3);
    assert_string_equal(found[0].version, "brain.Event:2");
    assert_true(found[0].wall_time > 1.7e9);
    assert_string_equal(found[1].tag, "train/loss");
    assert_true(found[1].step == 10 && found[1].value == 0.693147f && found[1].wall_time == 1700000000.25);
    assert_string_equal(found[2].tag, "eval/accuracy");
    assert_true(found[2].step == 123456789012 && found[2].value == -1.5f && found[2].wall_time == 1700000001.5);
    scratch_write(s, "file", "", 0);
    assert_fails(s, snug_events_open(s->ctx, scratch_path(s, "file/x"), &file), SNUG_E_IO, "file/x");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folders, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_check, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(writer, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(unwritable, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_commit, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_crash, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sweep, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_discard, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_links_and_refusals, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_verify, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(names, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(cache_folder, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(json_members, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(json_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(json_messages, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(json_reals, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(events, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
