/* SPDX-License-Identifier: Apache-2.0 */
/* Files, folders, locks and the spool where the system refuses: calls that fail, file systems that lack one,
 * permissions. */
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
#include "io/spool.h"
#include "scratch.h"

/* Of one kind some calls of snug's pass, then so many fail with an errno, or do nothing where it is 0: what no file
   system here does by itself. They stand between it and the C library (--wrap, see CMakeLists.txt). */
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
REFUSABLE(int, rename, (const char *from, const char *to), (from, to))
REFUSABLE(int, statvfs, (const char *path, struct statvfs *out), (path, out))
REFUSABLE(int, sync_file_range, (int fd, off_t at, off_t size, unsigned flags), (fd, at, size, flags))
REFUSABLE(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
REFUSABLE(ssize_t, read, (int fd, void *out, size_t size), (fd, out, size))
REFUSABLE(ssize_t, pread, (int fd, void *out, size_t size, off_t at), (fd, out, size, at))
REFUSABLE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))

/* Open files that have no name. */
static struct refusal unnamed_refused;
int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode) {
    return (flags & O_TMPFILE) == O_TMPFILE && refused(&unnamed_refused) ? -1 : __real_open(path, flags, mode);
}

static struct refusal flock_refused;
static const char *gone_before_lock; /* what another process removes in that moment */
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation) {
    if (gone_before_lock) assert_int_equal(unlink(gone_before_lock), 0);
    gone_before_lock = NULL;
    return refused(&flock_refused) ? -1 : __real_flock(fd, operation);
}

static long file_system; /* what every folder is on; 0: the truth */
int __real_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out) {
    const int result = __real_statfs(path, out);
    if (file_system) out->f_type = (__typeof__(out->f_type))file_system;
    return result;
}

static void reading_at(void **state) {
    struct scratch *s = *state;
    char text[8] = "";
    const int fd = open(scratch_write(s, "a", "hello", 5), O_RDONLY, 0);
    pread_refused = (struct refusal){.times = 1, .error = EINTR};
    assert_int_equal(snug_read_at(fd, text, 4, 1), 4);
    assert_string_equal(text, "ello");
    assert_int_equal(snug_read_at(fd, text, 4, 3), 2); /* the file ends there */
    assert_int_equal(errno, 0);
    pread_refused = (struct refusal){.times = 1, .error = EIO};
    assert_int_equal(snug_read_at(fd, text, 4, 1), -1);
    assert_int_equal(errno, EIO);
    read_refused = (struct refusal){.times = 2, .error = EINTR};
    assert_int_equal(snug_read(fd, text, 4), 4);
    assert_int_equal(close(fd), 0);
}

static void folders_that_are_gone(void **state) {
    struct scratch *s = *state;
    int64_t bytes;
    statvfs_refused = (struct refusal){.times = 9, .error = ENOENT}; /* as a network's file system may say */
    assert_fails(s, snug_disk_free(s->ctx, "/a/b", &bytes), SNUG_E_IO, "free space of /: No such file");
    assert_fails(s, snug_disk_free(s->ctx, "a/b", &bytes), SNUG_E_IO, "free space of .: No such file");
    statvfs_refused.times = 0;
    lstat_refused = (struct refusal){.times = 3, .error = ENOENT};
    assert_ok(s, snug_folder_check(s->ctx, "/a/b"));
    lstat_refused = (struct refusal){.times = 2, .error = ENOENT};
    assert_ok(s, snug_folder_check(s->ctx, "a"));
}

/* File systems without locks, or without files that have no name; a sweep that comes between. */
static void other_file_systems(void **state) {
    struct scratch *s = *state;
    struct snug_writer out;
    char path[512];
    int fd;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    flock_refused = (struct refusal){.times = 1, .error = ENOLCK};
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &out));
    assert_contains(out.aside, "-0");
    assert_ok(s, snug_writer_commit(s->ctx, &out));
    flock_refused = (struct refusal){.times = 1, .error = EWOULDBLOCK}; /* a sweep has it */
    assert_ok(s, snug_writer_open(s->ctx, NULL, path, &out));
    assert_contains(out.aside, "-1");
    snug_writer_abandon(&out);
    snug_folder_sweep(s->ctx, s->folder); /* now it takes the other one */
    assert_int_equal(entries(s->folder), 1);
    assert_int_equal(s->log_count, 1);
    fsync_refused = (struct refusal){.pass = 1, .times = 1, .error = EINVAL}; /* folders are not synced */
    assert_ok(s, snug_file_replace(s->ctx,NULL, path, "", 0));
    assert_int_equal(s->log_count, 1);
    fsync_refused = (struct refusal){.pass = 1, .times = 1, .error = EIO};
    assert_ok(s, snug_file_replace(s->ctx,NULL, path, "", 0));
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
    /* A name alone, in the folder where the process is. */
    char here[1024];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(s->folder), 0);
    const snug_status written = snug_file_replace(s->ctx,NULL, "alone", "x", 1);
    assert_int_equal(chdir(here), 0);
    assert_ok(s, written);
    assert_file_is(s, scratch_path(s, "alone"), "x");
}

static void permissions(void **state) {
    struct scratch *s = *state;
    char closed[512], below[512], *aside = NULL;
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, "closed/.out.snug-aside/full")));
    scratch_write(s, "closed/.a.snug-1-2", "", 0);
    assert_int_equal(chmod(s->path, 0666), 0);
    snprintf(below, sizeof below, "%s", scratch_path(s, "closed/out"));
    snprintf(closed, sizeof closed, "%s", scratch_path(s, "closed"));
    assert_int_equal(chmod(closed, 0555), 0);
    assert_int_equal(chmod(s->folder, 0755), 0);
    be_somebody_else(true);
    const snug_status in = snug_folder_check(s->ctx, closed);
    const bool in_told = strstr(snug_error_message(s->ctx), "closed: Permission denied");
    snug_clear_error(s->ctx);
    const snug_status made = snug_folder_check(s->ctx, below);
    const bool made_told = strstr(snug_error_message(s->ctx), "closed: Permission denied");
    snug_clear_error(s->ctx);
    const snug_status begun = snug_folder_begin(s->ctx, below, &aside); /* what a killed run left cannot be removed */
    const bool begun_told = strstr(snug_error_message(s->ctx), ".out.snug-aside: Permission denied");
    snug_clear_error(s->ctx);
    snug_folder_sweep(s->ctx, closed); /* nor swept */
    be_somebody_else(false);
    assert_int_equal(chmod(closed, 0755), 0);
    assert_true(in == SNUG_E_IO && in_told);
    assert_true(made == SNUG_E_IO && made_told);
    assert_true(begun == SNUG_E_IO && begun_told && !aside);
    assert_int_equal(entries(closed), 2);
    assert_int_equal(s->log_count, 0);
}

/* Each step of a commit fails: what was there stays, and nothing else. */
static void folder_commit_fails(void **state) {
    struct scratch *s = *state;
    static const struct {
        struct refusal rename, fsync, lstat;
        const char *sentence; /* NULL: it goes well all the same */
    } cases[] = {
        {.rename = {0, 1, EIO}, .sentence = "manifest.json: "},
        {.rename = {1, 1, EIO}, .sentence = "cannot write folder "},
        {.rename = {1, 1, EEXIST}}, /* what some file systems call a folder that is not empty */
        {.rename = {2, 1, EIO}, .sentence = "cannot replace folder "},
        {.rename = {3, 1, EIO}, .sentence = "cannot write folder "},
        {.fsync = {1, 1, EINVAL}}, /* folders are not synced */
        {.fsync = {1, 1, EIO}, .sentence = "cannot sync folder "},
        {.lstat = {1, 1, EIO}, .sentence = "cannot read "},
    };
    char path[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    renameat2_refused = (struct refusal){.times = INT_MAX, .error = EINVAL}; /* it cannot exchange two folders */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
        fill(s, aside, "old");
        assert_ok(s, snug_folder_commit(s->ctx, aside, path));
        assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
        fill(s, aside, "new");
        rename_refused = cases[i].rename;
        fsync_refused = cases[i].fsync;
        lstat_refused = cases[i].lstat;
        const snug_status status = snug_folder_commit(s->ctx, aside, path);
        assert_int_equal(rename_refused.times + fsync_refused.times + lstat_refused.times, 0);
        if (cases[i].sentence)
            assert_fails(s, status, SNUG_E_IO, cases[i].sentence);
        else
            assert_ok(s, status);
        assert_file_is(s, scratch_path(s, "out/sub/a"), cases[i].sentence ? "old" : "new");
        assert_ok(s, snug_folder_verify(s->ctx, path));
        assert_int_equal(entries(s->folder), 1);
    }
    /* Nor can the old folder be put back: it is named, and the next run does it, if it can. */
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    fill(s, aside, "new");
    rename_refused = (struct refusal){3, 2, EIO};
    assert_fails(s, snug_folder_commit(s->ctx, aside, path), SNUG_E_IO, "cannot write folder ");
    assert_contains(s->log, "/.out.snug-old");
    rename_refused = (struct refusal){0, 1, EIO};
    assert_fails(s, snug_folder_begin(s->ctx, path, &aside), SNUG_E_IO, "cannot restore folder ");
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    assert_file_is(s, scratch_path(s, "out/sub/a"), "old");
    free(aside);
    renameat2_refused = (struct refusal){0};
}

/* What the new folder stands in place of belongs to somebody else. */
static void folder_is_superseded_and_stays(void **state) {
    struct scratch *s = *state;
    char path[512], *aside;
    snprintf(path, sizeof path, "%s", scratch_path(s, "out"));
    assert_ok(s, snug_folder_begin(s->ctx, path, &aside));
    fill(s, aside, "old");
    assert_ok(s, snug_folder_commit(s->ctx, aside, path));
    assert_int_equal(chmod(scratch_path(s, "out/sub"), 0555), 0);
    assert_int_equal(chmod(s->folder, 0777), 0);
    renameat2_refused = (struct refusal){.times = INT_MAX, .error = EINVAL};
    be_somebody_else(true);
    snug_status status[4] = {snug_folder_begin(s->ctx, path, &aside)};
    fill(s, aside, "new");
    status[1] = snug_folder_commit(s->ctx, aside, path);
    status[2] = snug_folder_begin(s->ctx, path, &aside); /* both are there: nothing is restored */
    fill(s, aside, "newer");
    status[3] = snug_folder_commit(s->ctx, aside, path);
    be_somebody_else(false);
    renameat2_refused = (struct refusal){0};
    assert_int_equal(chmod(scratch_path(s, ".out.snug-old/sub"), 0755), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(status[i], SNUG_OK);
    assert_contains(s->log, "cannot remove the superseded folder ");
    assert_fails(s, status[3], SNUG_E_IO, "cannot remove folder ");
    assert_file_is(s, scratch_path(s, "out/sub/a"), "new");
}

/* Names that are not quite of that form, and what is no file. */
static void sweep_spares(void **state) {
    struct scratch *s = *state;
    static const char *const spared[] = {".a.snug-x-1", ".a.snug-1x2", ".a.snug-1-2x", ".a.snug-1-"};
    char path[512];
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++) scratch_write(s, spared[i], "", 0);
    assert_ok(s, snug_folder_create(s->ctx, scratch_path(s, ".a.snug-1-3")));
    assert_int_equal(mkfifo(scratch_path(s, ".a.snug-1-4"), 0600), 0);
    assert_int_equal(symlink(spared[0], scratch_path(s, ".a.snug-1-5")), 0);
    const int before = entries(s->folder);
    snug_folder_sweep(s->ctx, s->folder);
    assert_int_equal(entries(s->folder), before);
    snprintf(path, sizeof path, "%s", scratch_write(s, ".a.snug-1-6", "", 0));
    gone_before_lock = path; /* another sweep was quicker */
    snug_folder_sweep(s->ctx, s->folder);
    assert_null(gone_before_lock);
    assert_int_equal(s->log_count, 0);
}

static void locks(void **state) {
    struct scratch *s = *state;
    struct snug_lock lock, other;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(s, ".snug.lock"));
    assert_ok(s, snug_lock_take(s->ctx, s->folder, &lock));
    assert_fails(s, snug_lock_take(s->ctx, s->folder, &other), SNUG_E_IO, "(process ");
    assert_int_equal(truncate(path, 0), 0); /* who holds it has not written its name yet */
    assert_fails(s, snug_lock_take(s->ctx, s->folder, &other), SNUG_E_IO, "(another process)");
    snug_lock_release(&lock);
    assert_false(snug_file_exists(NULL, path));
    gone_before_lock = path; /* by whom held it until now */
    assert_ok(s, snug_lock_take(s->ctx, s->folder, &lock));
    assert_true(snug_file_is_named(lock.fd, path));
    snug_lock_release(&lock);
    flock_refused = (struct refusal){.times = 1, .error = ENOLCK};
    assert_ok(s, snug_lock_take(s->ctx, s->folder, &lock));
    assert_contains(s->log, "cannot be locked");
    snug_lock_release(&lock);
    assert_int_equal(entries(s->folder), 0);
}

static void spool_failures(void **state) {
    struct scratch *s = *state;
    static const struct {
        struct refusal sync, write, read;
        int error;
        const char *sentence;
    } cases[] = {
        {.write = {0, 1, EINTR}, .read = {0, 1, EINTR}},
        {.sync = {256, 1000, EINVAL}}, /* of waiting: the file system cannot do it */
        {.sync = {256, 1000, EIO}, .error = EIO, .sentence = "written"},
        {.sync = {256, 1000, ENOSPC}, .error = ENOSPC, .sentence = "written"},
        {.write = {9, 1, ENOSPC}, .error = ENOSPC, .sentence = "written"},
        {.write = {9, 1, 0}, .error = EIO, .sentence = "written"},
        {.read = {1, 1, EIO}, .error = EIO, .sentence = "read back"},
        {.read = {1, 1, 0}, .error = EIO, .sentence = "read back"},
    };
    enum { COPIES = 300 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snug_spool *spool;
        char byte = 'x', back = 0;
        assert_ok(s, snug_spool_open(s->ctx, s->folder, COPIES, &spool));
        sync_file_range_refused = cases[i].sync;
        pwrite_refused = cases[i].write;
        pread_refused = cases[i].read;
        for (int k = 0; k < COPIES; k++) snug_spool_store(spool, &byte, k, 1);
        for (int k = 0; k < 3; k++) snug_spool_fetch(spool, &back, k, 1);
        const snug_status status = snug_spool_drain(s->ctx, spool);
        snug_spool_close(spool);
        sync_file_range_refused = pwrite_refused = pread_refused = (struct refusal){0};
        if (!cases[i].error) {
            assert_ok(s, status);
            assert_int_equal(back, 'x');
            continue;
        }
        assert_contains(snug_error_message(s->ctx), strerror(cases[i].error));
        assert_fails(s, status, SNUG_E_IO, cases[i].sentence);
    }
    assert_false(snug_spool_is_memory("/proc"));
    file_system = TMPFS_MAGIC;
    assert_true(snug_spool_is_memory(s->folder));
    file_system = RAMFS_MAGIC;
    assert_true(snug_spool_is_memory(s->folder));
    file_system = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading_at, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folders_that_are_gone, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(other_file_systems, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(permissions, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_commit_fails, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(folder_is_superseded_and_stays, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(sweep_spares, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(locks, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(spool_failures, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("io_refused", tests, NULL, NULL);
}
