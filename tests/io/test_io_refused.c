/* SPDX-License-Identifier: Apache-2.0 */
/* Files, folders, locks and the offload file where the system refuses: calls that fail, file systems that lack a call,
   permissions. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/lock.h"
#include "io/offload_file.h"
#include "scratch.h"

#define FIXTURE struct scratch *s, scratch_setup, scratch_teardown

/* Some calls of one kind pass, then a number of them fail with an errno, or do nothing where it is 0: no file system
   here does so by itself. These functions are between snug and the C library (--wrap, see CMakeLists.txt). */
struct refusal {
    int pass, times, error;
};

static bool refused(struct refusal *r) {
    if (r->times == 0 || (r->pass > 0 && r->pass--)) return false;
    r->times--;
    errno = r->error;
    return true;
}

#define REFUSABLE(type, name, parameters, arguments)                                                                   \
    static struct refusal name##_refused;                                                                              \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters {                                                                                    \
        return refused(&name##_refused) ? name##_refused.error ? -1 : 0 : __real_##name arguments;                     \
    }
REFUSABLE(int, fsync, (int fd), (fd))
REFUSABLE(int, lstat, (const char *path, struct stat *out), (path, out))
REFUSABLE(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
REFUSABLE(int, openat, (int folder, const char *path, int flags, mode_t mode), (folder, path, flags, mode))
REFUSABLE(int, statvfs, (const char *path, struct statvfs *out), (path, out))
REFUSABLE(int, sync_file_range, (int fd, off_t at, off_t size, unsigned flags), (fd, at, size, flags))
REFUSABLE(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
REFUSABLE(ssize_t, read, (int fd, void *out, size_t size), (fd, out, size))
REFUSABLE(ssize_t, pread, (int fd, void *out, size_t size, off_t at), (fd, out, size, at))
REFUSABLE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))

/* Open files without a name. */
static struct refusal unnamed_refused;
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode) {
    return (flags & O_TMPFILE) == O_TMPFILE && refused(&unnamed_refused) ? -1 : __real_open(path, flags, mode);
}

static struct refusal flock_refused;
static const char *gone_before_lock; /* a file that another process removes at that moment */
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if (gone_before_lock) assert_int_equal(unlink(gone_before_lock), 0);
    gone_before_lock = NULL;
    return refused(&flock_refused) ? -1 : __real_flock(fd, operation);
}

static long file_system; /* the type of every file system; 0: the real one */
int __real_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out) {
    const int result = __real_statfs(path, out);
    if (file_system) out->f_type = (__typeof__(out->f_type))file_system;
    return result;
}

FIXTURE_TEST(reading_at) {
    char text[8] = "";
    const int fd = open(scratch_write(s, "a", "hello", 5), O_RDONLY, 0);
    pread_refused = (struct refusal){.times = 1, .error = EINTR};
    assert_int_equal(snug_read_at(fd, text, 4, 1), 4);
    assert_string_equal(text, "ello");
    assert_int_equal(snug_read_at(fd, text, 4, 3), 2); /* reads return the end of the file from here on */
    assert_int_equal(errno, 0);
    pread_refused = (struct refusal){.times = 1, .error = EIO};
    assert_int_equal(snug_read_at(fd, text, 4, 1), -1);
    assert_int_equal(errno, EIO);
    read_refused = (struct refusal){.times = 2, .error = EINTR};
    assert_int_equal(snug_read(fd, text, 4), 4);
    assert_int_equal(close(fd), 0);
}

/* Parts of one file, by several writers. */
FIXTURE_TEST(writing_at) {
    char text[9] = "";
    const char *path = scratch_path(s, "parts");
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_ok(s, snug_write_at(s->ctx, fd, path, "5678", 4, 4));
    pwrite_refused = (struct refusal){.times = 2, .error = EINTR};
    assert_ok(s, snug_write_at(s->ctx, fd, path, "1234", 4, 0));
    assert_ok(s, snug_file_sync(s->ctx, fd, path));
    assert_int_equal(pread(fd, text, 8, 0), 8);
    assert_string_equal(text, "12345678");
    pwrite_refused = (struct refusal){.times = 1, .error = ENOSPC};
    assert_fails(s, snug_write_at(s->ctx, fd, path, "1234", 4, 0), SNUG_E_IO, "parts: No space left on device");
    pwrite_refused = (struct refusal){.times = 1, .error = 0};
    assert_fails(s, snug_write_at(s->ctx, fd, path, "1234", 4, 0), SNUG_E_IO, "parts: Input/output error");
    fsync_refused = (struct refusal){.times = 1, .error = EDQUOT};
    assert_fails(s, snug_file_sync(s->ctx, fd, path), SNUG_E_IO, "parts: Disk quota exceeded");
    assert_int_equal(close(fd), 0);
}

FIXTURE_TEST(removed_folders) {
    int64_t bytes;
    statvfs_refused = (struct refusal){.times = 9, .error = ENOENT}; /* as a network file system may do */
    assert_fails(s, snug_disk_free(s->ctx, "/a/b", &bytes), SNUG_E_IO, "free space of /: No such file");
    assert_fails(s, snug_disk_free(s->ctx, "a/b", &bytes), SNUG_E_IO, "free space of .: No such file");
    statvfs_refused.times = 0;
    lstat_refused = (struct refusal){.times = 3, .error = ENOENT};
    assert_ok(s, snug_folder_check(s->ctx, "/a/b"));
    lstat_refused = (struct refusal){.times = 2, .error = ENOENT};
    assert_ok(s, snug_folder_check(s->ctx, "a"));
}

/* File systems without locks, or without unnamed files; a sweep in between. */
FIXTURE_TEST(other_file_systems) {
    struct snug_writer out;
    char path[512];
    int fd;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    flock_refused = (struct refusal){.times = 1, .error = ENOLCK};
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &out));
    assert_string_equal(out.temporary + strlen(out.temporary) - 2, "-0");
    assert_ok(s, snug_writer_commit(s->ctx, &out));
    flock_refused = (struct refusal){.times = 1, .error = EWOULDBLOCK}; /* a sweep holds the lock */
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &out));
    assert_string_equal(out.temporary + strlen(out.temporary) - 2, "-1");
    snug_writer_abandon(&out);
    assert_int_equal(entries(s->folder), 2); /* the sweep would have removed the other file */
    assert_ok(s, snug_folder_remove(s->ctx, NULL, s->folder));
    assert_ok(s, snug_folder_create(s->ctx, s->folder));
    assert_ok(s, snug_file_replace(s->ctx, NULL, path, "", 0));
    assert_int_equal(s->log_count, 0);
    fsync_refused = (struct refusal){.pass = 1, .times = 1, .error = EINVAL}; /* folders are not synced */
    assert_ok(s, snug_file_replace(s->ctx, NULL, path, "", 0));
    assert_int_equal(s->log_count, 0);
    fsync_refused = (struct refusal){.pass = 1, .times = 1, .error = EIO};
    assert_ok(s, snug_file_replace(s->ctx, NULL, path, "", 0));
    assert_contains(s->log, "cannot sync folder ");
    static const int without[] = {EOPNOTSUPP, EISDIR, ENOENT, EINVAL};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        unnamed_refused = (struct refusal){.times = 1, .error = without[i]};
        assert_int_equal(snug_unnamed_open(s->ctx, s->folder, &fd), 0);
        assert_int_equal(pwrite(fd, "x", 1, 0), 1);
        assert_int_equal(close(fd), 0);
        assert_int_equal(entries(s->folder), 1);
    }
    unnamed_refused = (struct refusal){.times = 1, .error = EACCES};
    assert_int_equal(snug_unnamed_open(s->ctx, s->folder, &fd), EACCES);
    assert_int_equal(snug_unnamed_open(s->ctx, scratch_path(s, "none"), &fd), ENOENT);
    /* A name without a folder, in the process's working folder. */
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(s->folder), 0);
    const snug_status written = snug_file_replace(s->ctx, NULL, "alone", "x", 1);
    assert_int_equal(chdir(here), 0);
    assert_ok(s, written);
    assert_file_is(s, scratch_path(s, "alone"), "x");
}

FIXTURE_TEST(permissions) {
    char closed[512], below[512];
    struct snug_folder in, temporary = {0};
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "closed/.out.snug-0123456789abcdef/full")));
    snprintf(below, sizeof below, "%s", scratch_path(s, "closed/out"));
    snprintf(closed, sizeof closed, "%s", scratch_path(s, "closed"));
    assert_ok(s, snug_folder_open(s->ctx, NULL, closed, &in));
    in.run = 0x0123456789abcdef;
    assert_int_equal(chmod(closed, 0555), 0);
    assert_int_equal(chmod(s->folder, 0755), 0);
    be_another_user(true);
    const snug_status checked = snug_folder_check(s->ctx, closed);
    const bool checked_named = strstr(snug_error_message(s->ctx), "closed: Permission denied");
    snug_clear_error(s->ctx);
    const snug_status made = snug_folder_check(s->ctx, below);
    const bool made_named = strstr(snug_error_message(s->ctx), "closed: Permission denied");
    snug_clear_error(s->ctx);
    const snug_status begun = snug_folder_begin(s->ctx, &in, "out", &temporary); /* the leftovers cannot be removed */
    const bool begun_named = strstr(snug_error_message(s->ctx), ".out.snug-0123456789abcdef: ");
    snug_clear_error(s->ctx);
    snug_folder_sweep(s->ctx, &in, &in.run, 1); /* nor swept, which is logged */
    be_another_user(false);
    assert_int_equal(chmod(closed, 0755), 0);
    assert_true(checked == SNUG_E_IO && checked_named);
    assert_true(made == SNUG_E_IO && made_named);
    assert_true(begun == SNUG_E_IO && begun_named && !temporary.path);
    assert_int_equal(entries(closed), 1);
    assert_int_equal(s->log_count, 1);
    snug_folder_close(&in);
}

static const struct snug_provenance from = {.run = 1, .started = 2};

static void commit(struct scratch *s, const struct snug_folder *in, const char *text, snug_status *status) {
    struct snug_folder temporary;
    *status = snug_folder_begin(s->ctx, in, "out", &temporary);
    if (*status != SNUG_OK) return;
    fill(s, &temporary, text);
    *status = snug_folder_commit(s->ctx, in, "out", &temporary, &from);
}

static snug_status verify(struct scratch *s, const struct snug_folder *in) {
    struct snug_folder folder;
    assert_ok(s, snug_folder_open(s->ctx, in, "out", &folder));
    const snug_status status = snug_manifest_verify(s->ctx, &folder, (const char *const[]){"a", NULL});
    snug_folder_close(&folder);
    return status;
}

/* Each step of a commit fails: the old content is kept, and nothing else remains. */
FIXTURE_TEST(folder_commit_fails) {
    static const struct {
        struct refusal rename, fsync;
        const char *sentence; /* NULL: it succeeds anyway */
    } cases[] = {
        {.rename = {0, 1, EIO}, .sentence = "manifest.json: "},
        {.rename = {1, 1, EIO}, .sentence = "cannot replace folder "},
        {.rename = {2, 1, EIO}, .sentence = "cannot write folder "},
        {.fsync = {1, 1, EIO}, .sentence = "cannot write "},
        {.fsync = {3, 1, EINVAL}}, /* folders are not synced */
        {.fsync = {3, 1, EIO}, .sentence = "cannot sync folder "},
    };
    struct snug_folder in = scratch_open(s), temporary;
    snug_status status;
    renameat2_refused = (struct refusal){.times = INT_MAX, .error = EINVAL}; /* it cannot exchange two folders */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        commit(s, &in, "old", &status);
        assert_ok(s, status);
        assert_ok(s, snug_folder_begin(s->ctx, &in, "out", &temporary));
        fill(s, &temporary, "new");
        renameat_refused = cases[i].rename;
        fsync_refused = cases[i].fsync;
        status = snug_folder_commit(s->ctx, &in, "out", &temporary, &from);
        assert_int_equal(renameat_refused.times + fsync_refused.times, 0);
        if (cases[i].sentence)
            assert_fails(s, status, SNUG_E_IO, cases[i].sentence);
        else
            assert_ok(s, status);
        assert_file_is(s, scratch_path(s, "out/a"), cases[i].sentence ? "old" : "new");
        assert_ok(s, verify(s, &in));
        assert_int_equal(entries(s->folder), 1);
    }
    /* The old folder cannot be restored either: the message names it, and a sweep restores it. */
    assert_ok(s, snug_folder_begin(s->ctx, &in, "out", &temporary));
    fill(s, &temporary, "new");
    renameat_refused = (struct refusal){2, 2, EIO};
    assert_fails(s, snug_folder_commit(s->ctx, &in, "out", &temporary, &from), SNUG_E_IO, "cannot write folder ");
    assert_contains(s->log, "/.out.snug-0123456789abcdef.old");
    snug_folder_sweep(s->ctx, &in, &in.run, 1);
    assert_file_is(s, scratch_path(s, "out/a"), "old");
    renameat2_refused = (struct refusal){0};
    snug_folder_close(&in);
}

FIXTURE_TEST(locks) {
    struct snug_folder folder = scratch_open(s), second = scratch_open(s);
    struct snug_lock lock, other;
    char path[512], outside[512];
    snprintf(path, sizeof path, "%s", scratch_path(s, ".snug.lock"));
    assert_ok(s, snug_lock_take(s->ctx, &folder, &lock));
    assert_true(folder.run && folder.run != 0x0123456789abcdef);
    assert_fails(s, snug_lock_take(s->ctx, &second, &other), SNUG_E_IO, "(process ");
    assert_int_equal(truncate(path, 0), 0); /* its holder has not written its name yet */
    assert_fails(s, snug_lock_take(s->ctx, &second, &other), SNUG_E_IO, "(another process)");
    snug_lock_release(&lock);
    assert_false(snug_file_exists(NULL, path));
    gone_before_lock = path; /* its holder has just removed it */
    assert_ok(s, snug_lock_take(s->ctx, &folder, &lock));
    assert_true(snug_file_is_named(lock.fd, NULL, path));
    snug_lock_release(&lock);
    flock_refused = (struct refusal){.times = 1, .error = ENOLCK};
    assert_ok(s, snug_lock_take(s->ctx, &folder, &lock));
    assert_contains(s->log, "cannot be locked");
    snug_lock_release(&lock);
    assert_int_equal(entries(s->folder), 0);
    /* Leftovers of killed runs: a lock of another version, and one with an incomplete line. */
    static const char left[] = "process 1 on a\nprocess 2 on b, run 00000000000000aa\nprocess 3 on c, ru";
    scratch_write(s, ".snug.lock", left, strlen(left));
    assert_ok(s, snug_lock_take(s->ctx, &folder, &lock));
    assert_int_equal(lock.killed_count, 1);
    assert_int_equal(lock.killed[0], 0xaa);
    snug_lock_forget_killed(&lock);
    assert_int_equal(lock.killed_count, 0);
    snug_lock_release(&lock);
    /* A file that is not snug's lock is not changed. */
    snprintf(outside, sizeof outside, "%s", scratch_write(s, "outside", "mine\n", 5));
    for (int kind = 0; kind < 5; kind++) {
        static const char *const says[] = {"is a symbolic link", "several names", "is not a regular file",
                                           "is not a regular file", "contains text that snug did not write"};
        switch (kind) {
        case 0: assert_int_equal(symlink(outside, path), 0); break;
        case 1: assert_int_equal(link(outside, path), 0); break;
        case 2: assert_int_equal(mkfifo(path, 0600), 0); break;
        case 3: assert_int_equal(mkdir(path, 0777), 0); break;
        default: scratch_write(s, ".snug.lock", "mine\n", 5);
        }
        assert_fails(s, snug_lock_take(s->ctx, &folder, &lock), SNUG_E_IO, says[kind]);
        assert_file_is(s, outside, "mine\n");
        if (kind == 4) assert_file_is(s, path, "mine\n");
        assert_int_equal(kind == 3 ? rmdir(path) : unlink(path), 0);
    }
    snug_folder_close(&folder);
    snug_folder_close(&second);
}

FIXTURE_TEST(offload_file_failures) {
    static const struct {
        struct refusal sync, write, read;
        int error;
        const char *sentence;
    } cases[] = {
        {.write = {0, 1, EINTR}, .read = {0, 1, EINTR}},
        {.sync = {256, 1000, EINVAL}}, /* waiting fails: the file system does not support it */
        {.sync = {256, 1000, EIO}, .error = EIO, .sentence = "written"},
        {.sync = {256, 1000, ENOSPC}, .error = ENOSPC, .sentence = "written"},
        {.write = {9, 1, ENOSPC}, .error = ENOSPC, .sentence = "written"},
        {.write = {9, 1, 0}, .error = EIO, .sentence = "written"},
        {.read = {1, 1, EIO}, .error = EIO, .sentence = "read back"},
        {.read = {1, 1, 0}, .error = EIO, .sentence = "read back"},
    };
    enum { COPIES = 300 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_offload_file *file;
        char byte = 'x', back = 0;
        assert_ok(s, snug_offload_file_open(s->ctx, s->folder, COPIES, &file));
        sync_file_range_refused = cases[i].sync;
        pwrite_refused = cases[i].write;
        pread_refused = cases[i].read;
        for (int k = 0; k < COPIES; k++) snug_offload_file_store(file, &byte, k, 1);
        for (int k = 0; k < 3; k++) snug_offload_file_fetch(file, &back, k, 1);
        const snug_status status = snug_offload_file_drain(s->ctx, file);
        snug_offload_file_close(file);
        sync_file_range_refused = pwrite_refused = pread_refused = (struct refusal){0};
        if (!cases[i].error) {
            assert_ok(s, status);
            assert_int_equal(back, 'x');
            continue;
        }
        assert_contains(snug_error_message(s->ctx), strerror(cases[i].error));
        assert_fails(s, status, SNUG_E_IO, cases[i].sentence);
    }
    assert_false(snug_offload_file_is_memory("/proc"));
    file_system = TMPFS_MAGIC;
    assert_true(snug_offload_file_is_memory(s->folder));
    file_system = RAMFS_MAGIC;
    assert_true(snug_offload_file_is_memory(s->folder));
    file_system = 0;
}

TEST_MAIN(NULL, NULL)
