/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic writes of files and folders, JSON, and TensorBoard events. */
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

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* Replaces libc's function: simulates a file system that cannot exchange two folders, or whose second rename fails. */
static bool no_exchange;
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

FIXTURE_TEST(reading) {
    char *text;
    size_t size;
    assert_file_is(s, scratch_write(s, "a", "hello", 5), "hello");
    assert_file_is(s, scratch_write(s, "empty", "", 0), "");
    assert_ok(s, snug_file_read(s->ctx, NULL, "/proc/self/status", &text, &size)); /* reports 0 bytes */
    assert_contains(text, "VmRSS");
    assert_int_equal(strlen(text), size);
    free(text);
    assert_fails(s, snug_file_read(s->ctx, NULL, scratch_path(s, "none"), &text, &size), SNUG_E_IO,
                 "none: No such file");
    assert_fails(s, snug_file_read(s->ctx, NULL, s->folder, &text, &size), SNUG_E_INPUT, "directory");
}

FIXTURE_TEST(names) {
    char path[512], *joined;
    const int fd = open(scratch_write(s, "a", "", 0), O_RDONLY, 0);
    snprintf(path, sizeof path, "%s", s->path);
    assert_true(snug_file_is_named(fd, NULL, path));
    assert_false(snug_file_is_named(fd, NULL, scratch_write(s, "b", "", 0)));
    assert_false(snug_file_is_named(fd, NULL, scratch_path(s, "c")));
    assert_int_equal(close(fd), 0);
    assert_false(snug_file_is_named(fd, NULL, path));
    const int processes = open("/proc", O_RDONLY | O_DIRECTORY, 0); /* its inode is 1, as that of /sys */
    assert_false(snug_file_is_named(processes, NULL, "/sys"));
    assert_int_equal(close(processes), 0);
    static const char *const pairs[][2] = {{"a", "a/x"}, {"a/", "a/x"}, {"/", "/x"}, {"", "x"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_ok(s, snug_path_join(s->ctx, &joined, pairs[i][0], "x"));
        assert_string_equal(joined, pairs[i][1]);
        free(joined);
    }
}

FIXTURE_TEST(cache_folder) {
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

FIXTURE_TEST(folders) {
    int64_t here, there;
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "a/b//c/")));
    assert_ok(s, snug_folder_create(s->ctx, s->path));
    assert_true(snug_folder_exists(scratch_path(s, "a/b/c")));
    assert_false(snug_file_exists(NULL, s->path));
    assert_ok(s, snug_disk_free(s->ctx, s->folder, &here));
    assert_ok(s, snug_disk_free(s->ctx, scratch_path(s, "x/y/z"), &there));
    assert_true(here > 0 && there > here / 2 && there < here * 2);
    assert_ok(s, snug_disk_free(s->ctx, "not-here/either", &here));
    assert_ok(s, snug_disk_free(s->ctx, "", &here));
    assert_int_equal(snug_folder_bytes(NULL, s->folder), 0);
    assert_int_equal(snug_folder_bytes(NULL, "none"), 0);
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_folder_create(s->ctx, scratch_path(s, "file/sub")), SNUG_E_IO, "file/sub: Not a directory");
    assert_fails(s, snug_folder_create(s->ctx, scratch_path(s, "file")), SNUG_E_IO, "file: File exists");
    assert_ok(s, snug_folder_remove(s->ctx, NULL, scratch_path(s, "a")));
    assert_false(snug_folder_exists(s->path));
    assert_ok(s, snug_folder_remove(s->ctx, NULL, s->path));
}

FIXTURE_TEST(folder_check) {
    assert_ok(s, snug_folder_check(s->ctx, s->folder));
    assert_ok(s, snug_folder_check(s->ctx, scratch_path(s, "a/b//c/")));
    assert_ok(s, snug_folder_check(s->ctx, "not-here/either"));
    assert_int_equal(entries(s->folder), 0); /* it only reads */
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

FIXTURE_TEST(writer) {
    struct snug_writer first, second;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    assert_ok(s, snug_file_replace(s->ctx, NULL, path, "old", 3));
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &first));
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &second)); /* two processes at once do not collide */
    snug_writer_put(&first, "first", 5);
    snug_writer_put(&second, "second", 6);
    assert_file_is(s, path, "old");
    snug_writer_abandon(&first);
    assert_file_is(s, path, "old");
    assert_ok(s, snug_writer_commit(s->ctx, &second));
    snug_writer_abandon(&second);
    assert_file_is(s, path, "second");
    assert_int_equal(entries(s->folder), 1);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

FIXTURE_TEST(unwritable) {
    char path[512];
    scratch_write(s, "file", "x", 1);
    assert_fails(s, snug_file_replace(s->ctx, NULL, scratch_path(s, "file/a"), "", 0), SNUG_E_IO,
                 "file/a: Not a directory");
    assert_fails(s, snug_file_replace(s->ctx, NULL, scratch_path(s, "none/a"), "", 0), SNUG_E_IO,
                 "none/a: No such file");
    assert_fails(s, snug_file_replace(s->ctx, NULL, s->folder, "", 0), SNUG_E_IO, "not a regular file");
    assert_fails(s, snug_file_replace(s->ctx, NULL, "/dev/null", "", 0), SNUG_E_IO, "/dev/null");
    /* A disk that fills up in the middle of a file, simulated by the limit of a file's size. */
    snprintf(path, sizeof path, "%s", scratch_write(s, "out", "old", 3));
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){100000, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char *big = calloc(1, 300000);
    snug_status status = snug_file_replace(s->ctx, NULL, path, big, 300000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    free(big);
    assert_fails(s, status, SNUG_E_IO, "out: File too large");
    assert_file_is(s, path, "old");
    assert_int_equal(entries(s->folder), 2);
}

static const struct snug_provenance from = {.run = 0xfedcba9876543210, .started = 1700000000};

/* Writes checkpoint-1, in which the file a has this text. */
static void commit(struct scratch *s, const struct snug_folder *in, const char *text) {
    struct snug_folder temporary;
    assert_ok(s, snug_folder_begin(s->ctx, in, "checkpoint-1", &temporary));
    fill(s, &temporary, text);
    assert_ok(s, snug_folder_commit(s->ctx, in, "checkpoint-1", &temporary, &from));
    assert_null(temporary.path);
}

static snug_status verify(struct scratch *s, const struct snug_folder *in, const char *required) {
    struct snug_folder folder;
    assert_ok(s, snug_folder_open(s->ctx, in, "checkpoint-1", &folder));
    const snug_status status = snug_manifest_verify(s->ctx, &folder, (const char *const[]){required, NULL});
    snug_folder_close(&folder);
    return status;
}

FIXTURE_TEST(folder_commit) {
    struct snug_folder in = scratch_open(s), temporary;
    static const char *const texts[] = {"zero", "one", "two", "three"};
    for (int round = 0; round < 4; round++) {
        no_exchange = round == 2;
        assert_ok(s, snug_folder_begin(s->ctx, &in, "checkpoint-1", &temporary));
        fill(s, &temporary, texts[round]);
        if (round) assert_file_is(s, scratch_path(s, "checkpoint-1/a"), texts[round - 1]);
        assert_ok(s, snug_folder_commit(s->ctx, &in, "checkpoint-1", &temporary, &from));
        assert_file_is(s, scratch_path(s, "checkpoint-1/a"), texts[round]);
        assert_ok(s, verify(s, &in, "a"));
        assert_int_equal(entries(s->folder), 1);
        assert_int_equal(entries(scratch_path(s, "checkpoint-1")), 2);
    }
    no_exchange = false;
    assert_fails(s, verify(s, &in, "b"), SNUG_E_INPUT, "does not list b");
    assert_ok(s, verify(s, &in, "a|b"));
    assert_ok(s, verify(s, &in, "b|aa|a"));
    assert_fails(s, verify(s, &in, "b|aa"), SNUG_E_INPUT, "does not list b");
    assert_int_equal(s->log_count, 0);
    struct snug_manifest manifest;
    assert_ok(s, snug_manifest_claim(s->ctx, &in, "checkpoint-1", NULL, &manifest));
    assert_true(manifest.from.run == from.run && manifest.from.started == from.started);
    snug_manifest_free(&manifest);
    snug_folder_close(&in);
}

/* A folder that is renamed and replaced during a write: files go to the renamed one. */
FIXTURE_TEST(folder_moves) {
    struct snug_folder in;
    char from_path[512];
    assert_ok(s, snug_folder_make(s->ctx, NULL, scratch_path(s, "out"), 0600, &in));
    in.run = 5;
    snprintf(from_path, sizeof from_path, "%s", scratch_path(s, "out"));
    assert_int_equal(rename(from_path, scratch_path(s, "moved")), 0);
    assert_int_equal(mkdir(from_path, 0777), 0);
    commit(s, &in, "text");
    assert_ok(s, snug_file_replace(s->ctx, &in, "file", "x", 1));
    assert_file_is(s, scratch_path(s, "moved/checkpoint-1/a"), "text");
    assert_int_equal(entries(from_path), 0);
    struct stat info;
    assert_int_equal(stat(scratch_path(s, "moved/file"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(stat(scratch_path(s, "moved/checkpoint-1"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    snug_folder_close(&in);
}

/* A process killed before the commit, and one killed between the two renames: a sweep restores the old folder. */
FIXTURE_TEST(folder_crash) {
    struct snug_folder in = scratch_open(s), temporary;
    char whole[512];
    const uint64_t killed[] = {1, in.run};
    commit(s, &in, "old");
    assert_ok(s, snug_folder_begin(s->ctx, &in, "checkpoint-1", &temporary));
    fill(s, &temporary, "half");
    free(temporary.written->names[0]); /* as if the process had ended here */
    free(temporary.written->names);
    free(temporary.written);
    snug_folder_close(&temporary);
    snprintf(whole, sizeof whole, "%s", scratch_path(s, "checkpoint-1"));
    assert_int_equal(rename(whole, scratch_path(s, ".checkpoint-1.snug-0123456789abcdef.old")), 0);
    assert_int_equal(entries(s->folder), 2);
    snug_folder_sweep(s->ctx, &in, killed, 1); /* of another run */
    assert_int_equal(entries(s->folder), 2);
    snug_folder_sweep(s->ctx, &in, killed, 2);
    assert_int_equal(entries(s->folder), 1);
    assert_file_is(s, scratch_path(s, "checkpoint-1/a"), "old");
    assert_int_equal(s->log_count, 2);
    assert_ok(s, snug_folder_begin(s->ctx, &in, "checkpoint-1", &temporary));
    assert_int_equal(entries(scratch_path(s, ".checkpoint-1.snug-0123456789abcdef")), 0);
    fill(s, &temporary, "new");
    assert_ok(s, snug_folder_commit(s->ctx, &in, "checkpoint-1", &temporary, &from));
    assert_file_is(s, scratch_path(s, "checkpoint-1/a"), "new");
    assert_int_equal(entries(s->folder), 1);
    snug_folder_close(&in);
}

/* A sweep removes hidden entries of the named runs, and nothing with a similar name. */
FIXTURE_TEST(sweep) {
    struct snug_folder in = scratch_open(s);
    static const char *const kept[] = {".a.snug-1",
                                       ".mine.snug-1-2",
                                       ".a.snug-0123456789abcdef-",
                                       ".a.snug-0123456789abcdef-1x",
                                       ".a.snug-0123456789abcdeg-1",
                                       ".a.snug-0123456789abcdef0-1",
                                       ".a.snug-fedcba9876543210-1",
                                       "a.snug-0123456789abcdef-1",
                                       ".snug-0123456789abcdef-1.txt"};
    enum { KEPT = sizeof kept / sizeof *kept };
    char path[512];
    for (int i = 0; i < KEPT; i++) scratch_write(s, kept[i], "", 0);
    snprintf(path, sizeof path, "%s", scratch_path(s, kept[0]));
    assert_int_equal(mkfifo(scratch_path(s, ".a.snug-0123456789abcdef-4"), 0600), 0);
    assert_int_equal(symlink(path, scratch_path(s, ".a.snug-0123456789abcdef-5")), 0);
    assert_int_equal(link(path, scratch_path(s, ".a.snug-0123456789abcdef-6")), 0);
    scratch_write(s, ".a.b.snug-0123456789abcdef-7", "", 0);
    scratch_write(s, ".a.snug-0123456789abcdef", "", 0);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, ".b.snug-0123456789abcdef")));
    scratch_write(s, ".b.snug-0123456789abcdef/file", "", 0);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, ".c.snug-0123456789abcdef/sub"))); /* never made by snug */
    snug_folder_sweep(s->ctx, &in, (const uint64_t[]){7, in.run}, 2);
    assert_int_equal(entries(s->folder), KEPT + 4);
    assert_true(snug_folder_exists(scratch_path(s, ".c.snug-0123456789abcdef/sub")));
    snug_folder_close(&in);
}

/* A process that is killed by SIGKILL while it writes into a cache. */
static void kill_writer(struct scratch *s, const struct snug_folder *cache, const char *name, int before) {
    struct snug_writer out;
    int ready[2], status;
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* otherwise it would outlive a failed test */
        if (snug_writer_open(s->ctx, cache, name, &out) != SNUG_OK || write(ready[1], &byte, 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    snug_cache_folder_sweep(s->ctx, cache); /* it is alive */
    assert_int_equal(entries(s->folder), before + 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

FIXTURE_TEST(cache) {
    struct snug_folder folder = scratch_open(s);
    static const char tokens[] = "0123456789abcdef0123456789abcdef.tokens";
    folder.run = 0;
    folder.mode = 0600;
    scratch_write(s, ".mine.snug-1-2", "", 0);
    scratch_write(s, ".notes.txt.snug-0123456789abcdef-0", "", 0);
    kill_writer(s, &folder, tokens, 2);
    kill_writer(s, &folder, "notes.txt", 2);
    snug_cache_folder_sweep(s->ctx, &folder);
    assert_int_equal(entries(s->folder), 3); /* its name is not a cache's: it is kept */
    assert_contains(s->log, "/.0123456789abcdef0123456789abcdef.tokens.snug-");
    assert_int_equal(snug_cache_folder_find(s->ctx, &folder, tokens), -1);
    assert_int_equal(s->log_count, 1);
    assert_ok(s, snug_file_replace(s->ctx, &folder, tokens, "x", 1));
    const int fd = snug_cache_folder_find(s->ctx, &folder, tokens);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(chmod(scratch_path(s, tokens), 0666), 0);
    assert_int_equal(snug_cache_folder_find(s->ctx, &folder, tokens), -1);
    assert_contains(s->log, "other users may write to it");
    assert_int_equal(unlink(scratch_path(s, tokens)), 0);
    assert_int_equal(symlink("/etc/hostname", scratch_path(s, tokens)), 0);
    assert_int_equal(snug_cache_folder_find(s->ctx, &folder, tokens), -1);
    assert_int_equal(unlink(scratch_path(s, tokens)), 0);
    assert_int_equal(mkfifo(scratch_path(s, tokens), 0600), 0);
    assert_int_equal(snug_cache_folder_find(s->ctx, &folder, tokens), -1);
    assert_contains(s->log, "as a regular file");
    if (geteuid() == 0) {
        assert_int_equal(unlink(scratch_path(s, tokens)), 0);
        scratch_write(s, tokens, "x", 1);
        assert_int_equal(chmod(s->path, 0600), 0);
        assert_int_equal(chown(s->path, 65534, 65534), 0);
        assert_int_equal(snug_cache_folder_find(s->ctx, &folder, tokens), -1);
        assert_contains(s->log, "another user");
    }
    snug_folder_close(&folder);
}

FIXTURE_TEST(folder_discard) {
    struct snug_folder in = scratch_open(s);
    assert_ok(s, snug_folder_discard(s->ctx, &in, "checkpoint-1")); /* it does not exist */
    for (int round = 0; round < 2; round++) {
        commit(s, &in, "a");
        if (round) /* left by a kill */
            assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, ".checkpoint-1.snug-0123456789abcdef")));
        assert_ok(s, snug_folder_discard(s->ctx, &in, "checkpoint-1"));
        assert_int_equal(entries(s->folder), 0);
    }
    snug_folder_close(&in);
}

/* What snug did not create is neither replaced nor removed, and is named. */
FIXTURE_TEST(foreign) {
    struct snug_folder in = scratch_open(s), temporary;
    char outside[512], target[512];
    snprintf(outside, sizeof outside, "%s", scratch_path(s, "outside"));
    assert_ok(s, snug_folder_create(s->ctx, outside));
    scratch_write(s, "outside/file", "mine", 4);
    snprintf(target, sizeof target, "%s", scratch_path(s, "checkpoint-1"));
    for (int kind = 0; kind < 7; kind++) {
        static const char *const says[] = {"is a symbolic link", "is a symbolic link", "is a file",       "is a pipe",
                                           "has no manifest",    "notes was not made", "checksum differs"};
        switch (kind) {
        case 0: assert_int_equal(symlink(outside, target), 0); break;
        case 1: assert_int_equal(symlink("nowhere", target), 0); break;
        case 2: scratch_write(s, "checkpoint-1", "x", 1); break;
        case 3: assert_int_equal(mkfifo(target, 0600), 0); break;
        case 4: assert_ok(s, snug_folder_create(s->ctx, target)); break;
        case 5:
            commit(s, &in, "a");
            scratch_write(s, "checkpoint-1/notes", "mine", 4);
            break;
        default:
            commit(s, &in, "a");
            FILE *file = fopen(scratch_path(s, "checkpoint-1/manifest.json"), "r+");
            assert_non_null(file);
            char text[1024] = "";
            assert_true(fread(text, 1, sizeof text - 1, file) > 0);
            char *started = strstr(text, "17000");
            assert_non_null(started);
            assert_int_equal(fseek(file, started - text, SEEK_SET), 0);
            fputc('2', file);
            assert_int_equal(fclose(file), 0);
        }
        assert_fails(s, snug_folder_begin(s->ctx, &in, "checkpoint-1", &temporary), SNUG_E_IO, says[kind]);
        assert_fails(s, snug_folder_discard(s->ctx, &in, "checkpoint-1"), SNUG_E_IO, says[kind]);
        assert_file_is(s, scratch_path(s, "outside/file"), "mine");
        assert_int_equal(entries(s->folder), 2);
        assert_ok(s, snug_folder_remove(s->ctx, &in, "checkpoint-1")); /* the link, not its target */
        assert_int_equal(entries(outside), 1);
    }
    /* Entries that appear while the new folder is written. */
    assert_ok(s, snug_folder_begin(s->ctx, &in, "checkpoint-1", &temporary));
    fill(s, &temporary, "a");
    assert_int_equal(symlink(outside, target), 0);
    assert_fails(s, snug_folder_commit(s->ctx, &in, "checkpoint-1", &temporary, &from), SNUG_E_IO, "symbolic link");
    assert_int_equal(entries(outside), 1);
    assert_int_equal(entries(s->folder), 2);
    /* Links and hard links where files are written. */
    assert_int_equal(symlink("outside/file", scratch_path(s, "file")), 0);
    assert_fails(s, snug_file_replace(s->ctx, &in, "file", "x", 1), SNUG_E_IO, "file: it exists and is not a regular");
    assert_file_is(s, scratch_path(s, "outside/file"), "mine");
    assert_int_equal(link(scratch_path(s, "outside/file"), outside), -1);
    snug_folder_close(&in);
}

FIXTURE_TEST(folder_verify) {
    struct snug_folder in = scratch_open(s);
    commit(s, &in, "twelve bytes");
    assert_ok(s, verify(s, &in, NULL));
    for (size_t at = 0; at < 12; at++) { /* any single bit */
        char text[] = "twelve bytes";
        text[at] ^= (char)(1 << at % 8);
        scratch_write(s, "checkpoint-1/a", text, 12);
        assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, "checkpoint-1/a is damaged: its checksum");
    }
    scratch_write(s, "checkpoint-1/a", "twelve byte", 11);
    assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, "has 11 bytes");
    unlink(s->path);
    assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, "checkpoint-1/a is missing");
    assert_int_equal(mkfifo(s->path, 0600), 0);
    assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, "checkpoint-1/a is not a regular file");
    static const char *const wrong[][2] = {{"{\"files\": {}}", "was not written by this version of snug"},
                                           {"{\"fil", "cannot be read"},
                                           {"{\"program\": \"snug\", \"version\": 1}", "\"version\" must be 2"},
                                           {"{\"program\": \"snug\", \"version\": 2}", "\"run\" must be"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scratch_write(s, "checkpoint-1/manifest.json", wrong[i][0], strlen(wrong[i][0]));
        assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, wrong[i][1]);
    }
    unlink(s->path);
    assert_fails(s, verify(s, &in, NULL), SNUG_E_INPUT, "has no manifest.json");
    snug_folder_close(&in);
}

static json_t *json_from(struct scratch *s, const char *text) {
    json_t *value;
    assert_ok(s, snug_json_read(s->ctx, NULL, scratch_write(s, "a.json", text, strlen(text)), &value));
    return value;
}

FIXTURE_TEST(json_members) {
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
    assert_ok(s, snug_json_real(s->ctx, "p", o, "huge", 0, &r)); /* as in tokenizer_config.json */
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
    assert_ok(s, snug_json_string(s->ctx, "p", o, "t", NULL, &t)); /* text that looks like a number is kept */
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

FIXTURE_TEST(json_files) {
    json_t *o = json_from(s, "{\"lr\": 5e-05, \"eps\": 1e-12, \"p\": 0.1, \"third\": 0.3333333333333333, \"one\": 1.0,"
                             " \"n\": -7, \"big\": 1e22, \"s\": \"0.10000000000000001 \\\" \\u00e9\"}");
    assert_ok(s, snug_json_write(s->ctx, NULL, scratch_path(s, "b.json"), o));
    assert_file_is(s, s->path,
                   "{\n  \"lr\": 5e-5,\n  \"eps\": 1e-12,\n  \"p\": 0.1,\n  \"third\": 0.3333333333333333,\n"
                   "  \"one\": 1.0,\n  \"n\": -7,\n  \"big\": 1e22,\n"
                   "  \"s\": \"0.10000000000000001 \\\" \xC3\xA9\"\n}\n");
    json_t *back;
    assert_ok(s, snug_json_read(s->ctx, NULL, s->path, &back));
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
        assert_fails(s, snug_json_read(s->ctx, NULL, scratch_write(s, "w.json", wrong[i], strlen(wrong[i])), &back),
                     SNUG_E_INPUT, "w.json");
    assert_fails(s, snug_json_read(s->ctx, NULL, scratch_write(s, "w.json", "{\n\n1", 4), &back), SNUG_E_INPUT,
                 "w.json:3:");
    assert_fails(s, snug_json_read(s->ctx, NULL, scratch_path(s, "none.json"), &back), SNUG_E_IO, "none.json");
    assert_fails(s, snug_json_read(s->ctx, NULL, scratch_write(s, "w.json", "{\"a\": 1\0}", 9), &back), SNUG_E_INPUT,
                 "a NUL byte");
}

/* Errors refer to the text: they name only its contents, and its lines and columns. */
FIXTURE_TEST(json_messages) {
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
        const snug_status status = snug_json_read(s->ctx, NULL, path, &value);
        const char *end = strstr(snug_error_message(s->ctx), cases[i].message);
        if (!end || strcmp(end, cases[i].message) != 0)
            fail_msg("%s: \"%s\"", cases[i].text, snug_error_message(s->ctx));
        assert_fails(s, status, SNUG_E_INPUT, expected);
    }
    const char *path = scratch_write(s, "w.json", "{\n\"a\": \"\xC3\xA9\0\"}", 13);
    assert_fails(s, snug_json_read(s->ctx, NULL, path, &value), SNUG_E_INPUT,
                 "/w.json:2: not valid JSON (column 8): a NUL byte");
}

/* Any double is read back with the same bits. */
FIXTURE_TEST(json_reals) {
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
    char version[32], tag[64], plugin[16], text[4096];
    int64_t type, length; /* of the tensor that holds the text */
    float value;
};

static uint64_t varint(const unsigned char **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128)) return value;
    }
}

/* path: the fields so far, as decimal digits: 5, 51, … */
static void decode(const unsigned char *at, const unsigned char *end, int path, struct decoded *out) {
    while (at < end) {
        uint64_t key = varint(&at), size = 0;
        int field = path * 10 + (int)(key >> 3);
        const unsigned char *data = at;
        switch (key & 7) {
        case 0:
            *(field == 5181 ? &out->type : field == 518221 ? &out->length : &out->step) = (int64_t)varint(&at);
            break;
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
        const int nested[] = {5, 51, 518, 5182, 51822, 519, 5191};
        for (size_t i = 0; i < sizeof nested / sizeof *nested; i++)
            if (field == nested[i]) decode(data, at, field, out);
        if (field == 51911) snprintf(out->plugin, sizeof out->plugin, "%.*s", (int)size, (const char *)data);
        if (field == 5188) snprintf(out->text, sizeof out->text, "%.*s", (int)size, (const char *)data);
        if (field == 511) snprintf(out->tag, sizeof out->tag, "%.*s", (int)size, (const char *)data);
        if (field == 512) memcpy(&out->value, data, 4);
    }
}

FIXTURE_TEST(events) {
    assert_int_equal(checksum((const unsigned char *)"123456789", 9),
                     0xC78AB0E5u); /* 0xE3069283, the published check value, masked */
    struct snug_events *file, *other;
    assert_ok(s, snug_events_open(s->ctx, NULL, scratch_path(s, "runs/x"), 0666, &file));
    assert_ok(s, snug_events_open(s->ctx, NULL, s->path, 0666, &other)); /* its own name */
    snug_events_close(other);
    assert_ok(s, snug_events_scalar(file, "train/loss", 10, 0.693147, 1700000000.25));
    assert_ok(s, snug_events_scalar(file, "eval/accuracy", 123456789012, -1.5, 1700000001.5));
    char tag[2000], text[3000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_ok(s, snug_events_text(file, "args/text_summary", text, 1700000002.5));
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
            assert_ok(s, snug_file_read(s->ctx, NULL, path, &bytes, &size));
        }
    closedir(list);
    struct decoded found[4] = {{0}};
    int records = 0;
    for (const unsigned char *at = (unsigned char *)bytes, *end = at + size; at < end; records++) {
        uint64_t length;
        uint32_t crc;
        assert_true(records < 4);
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
    assert_int_equal(records, 4);
    assert_string_equal(found[0].version, "brain.Event:2");
    assert_true(found[0].wall_time > 1.7e9);
    assert_string_equal(found[1].tag, "train/loss");
    assert_true(found[1].step == 10 && found[1].value == 0.693147f && found[1].wall_time == 1700000000.25);
    assert_string_equal(found[2].tag, "eval/accuracy");
    assert_true(found[2].step == 123456789012 && found[2].value == -1.5f && found[2].wall_time == 1700000001.5);
    assert_string_equal(found[3].tag, "args/text_summary"); /* a tensor of one string, for the plug-in of texts */
    assert_string_equal(found[3].plugin, "text");
    assert_string_equal(found[3].text, text);
    assert_true(found[3].type == 7 && found[3].length == 1 && found[3].wall_time == 1700000002.5);
    scratch_write(s, "file", "", 0);
    assert_fails(s, snug_events_open(s->ctx, NULL, scratch_path(s, "file/x"), 0666, &file), SNUG_E_IO, "file/x");
}

TEST_MAIN(NULL, NULL)
