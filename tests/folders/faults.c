/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <jansson.h>

static struct faults *armed;

static bool is_due(const struct faults *f, int64_t number, bool writes) {
    if (f->at == 0 || number < f->at) return false;
    if (number == f->at) return f->effect != FAULT_WRITES || writes;
    return f->effect == FAULT_ALL || (f->effect == FAULT_WRITES && writes);
}

/* The chain of callers, up to some functions: the same call may fail differently in another chain. */
static uint64_t place_of_call(void) {
    void *frames[8];
    const int count = backtrace(frames, sizeof frames / sizeof *frames);
    uint64_t place = 0;
    for (int i = 0; i < count; i++) place = (place ^ (uintptr_t)frames[i]) * 0x9E3779B97F4A7C15u;
    return place;
}

static void note_place(struct fault_places *places, int64_t number) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    const uint64_t place = place_of_call();
    pthread_mutex_lock(&mutex);
    int64_t i = 0;
    while (i < places->count && places->items[i].place != place) i++;
    if (i == places->count && i < FAULT_PLACES) {
        places->items[i].place = place;
        places->items[i].number = number;
        places->count++;
    }
    pthread_mutex_unlock(&mutex);
}

/* Counts a call; returns true, with errno set, if it must fail. */
static bool fails(enum fault_calls calls, const char *name, bool writes, int error) {
    struct faults *f = armed;
    if (!f || f->calls != calls) return false;
    const int64_t number = __atomic_add_fetch(&f->count, 1, __ATOMIC_SEQ_CST);
    if (f->places) note_place(f->places, number);
    if (!is_due(f, number, writes)) return false;
    if (f->effect == FAULT_KILL) kill(getpid(), SIGKILL);
    if (!*f->name) snprintf(f->name, sizeof f->name, "%s", name);
    errno = error;
    return true;
}

/* Calls that do not fail, but before which a process may be killed. */
static void may_be_killed(const char *name) {
    if (armed && armed->effect == FAULT_KILL) fails(FAULT_FILES, name, false, 0);
}

#define NO_MEMORY(name) fails(FAULT_MEMORY, name, false, ENOMEM)
#define NO_READ(name, error) fails(FAULT_FILES, name, false, error)
#define NO_WRITE(name) fails(FAULT_FILES, name, true, ENOSPC)

/* __real_x is x itself; every call of x by snug goes to __wrap_x. */
#define WRAP(type, name, parameters)                                                                                   \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters

/* ---- what is held --------------------------------------------------------------------------------------------- */

/* Memory, streams, folders and descriptors that are allocated and not yet released: open addressing, by number. A
   descriptor's number is below every address. */
enum { PLACES_LOG = 15, PLACES = 1 << PLACES_LOG };
static struct {
    pthread_mutex_t mutex;
    uintptr_t held[PLACES];
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static size_t place_of(uintptr_t number) { return (size_t)((number * 0x9E3779B97F4A7C15u) >> (64 - PLACES_LOG)); }

static size_t find(uintptr_t number) {
    size_t at = place_of(number);
    while (table.held[at] && table.held[at] != number) at = (at + 1) % PLACES;
    return at;
}

static void hold(uintptr_t number) {
    struct faults *f = armed;
    if (!f || !number) return;
    pthread_mutex_lock(&table.mutex);
    const size_t at = find(number);
    if (!table.held[at] && ++f->held > PLACES / 2) abort();
    table.held[at] = number;
    pthread_mutex_unlock(&table.mutex);
}

static void *hold_memory(void *memory) {
    hold((uintptr_t)memory);
    return memory;
}

static int hold_descriptor(int fd) {
    hold((uintptr_t)(fd + 1));
    return fd;
}

/* What was allocated before counting began is not in the table. */
static void release(uintptr_t number) {
    struct faults *f = armed;
    if (!f || !number) return;
    pthread_mutex_lock(&table.mutex);
    size_t gap = find(number);
    if (table.held[gap]) {
        f->held--;
        table.held[gap] = 0;
        for (size_t at = (gap + 1) % PLACES; table.held[at]; at = (at + 1) % PLACES) {
            const size_t home = place_of(table.held[at]); /* it moves up if its search would pass the gap */
            if ((at - home) % PLACES < (at - gap) % PLACES) continue;
            table.held[gap] = table.held[at];
            table.held[at] = 0;
            gap = at;
        }
    }
    pthread_mutex_unlock(&table.mutex);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

WRAP(void *, malloc, (size_t size)) { return NO_MEMORY("malloc") ? NULL : hold_memory(__real_malloc(size)); }
WRAP(void *, calloc, (size_t count, size_t size)) {
    return NO_MEMORY("calloc") ? NULL : hold_memory(__real_calloc(count, size));
}
WRAP(void *, realloc, (void *old, size_t size)) {
    if (NO_MEMORY("realloc")) return NULL;
    release((uintptr_t)old); /* before another thread can be given the same number */
    return hold_memory(__real_realloc(old, size));
}
WRAP(void, free, (void *memory)) {
    release((uintptr_t)memory);
    __real_free(memory);
}
WRAP(int, posix_memalign, (void **out, size_t alignment, size_t size)) {
    if (NO_MEMORY("posix_memalign")) return ENOMEM;
    const int error = __real_posix_memalign(out, alignment, size);
    if (!error) hold_memory(*out);
    return error;
}
WRAP(void *, aligned_alloc, (size_t alignment, size_t size)) {
    return NO_MEMORY("aligned_alloc") ? NULL : hold_memory(__real_aligned_alloc(alignment, size));
}
WRAP(char *, strdup, (const char *text)) { return NO_MEMORY("strdup") ? NULL : hold_memory(__real_strdup(text)); }
WRAP(int, vasprintf, (char **out, const char *format, va_list values)) {
    if (NO_MEMORY("vasprintf")) return -1;
    const int length = __real_vasprintf(out, format, values);
    if (length >= 0) hold_memory(*out);
    return length;
}
/* _FORTIFY_SOURCE replaces vasprintf() by this. */
WRAP(int, __vasprintf_chk, (char **out, int flag, const char *format, va_list values)) {
    (void)flag;
    return __wrap_vasprintf(out, format, values);
}
WRAP(FILE *, open_memstream, (char **text, size_t *size)) {
    return NO_MEMORY("open_memstream") ? NULL : hold_memory(__real_open_memstream(text, size));
}
WRAP(void *, mmap, (void *at, size_t size, int protection, int flags, int fd, off_t offset)) {
    const bool refused = fd < 0 ? NO_MEMORY("mmap") : NO_READ("mmap", ENOMEM);
    void *mapped = refused ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
    return mapped == MAP_FAILED ? mapped : hold_memory(mapped);
}
WRAP(int, munmap, (void *mapped, size_t size)) {
    release((uintptr_t)mapped);
    return __real_munmap(mapped, size);
}
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)) {
    return NO_MEMORY("pthread_create") ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}
WRAP(char *, realpath, (const char *path, char *out)) {
    if (NO_MEMORY("realpath")) return NULL;
    char *real = __real_realpath(path, out);
    return out ? real : hold_memory(real);
}

WRAP(locale_t, newlocale, (int category, const char *name, locale_t base)) {
    return NO_MEMORY("newlocale") ? (locale_t)0 : __real_newlocale(category, name, base);
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

WRAP(int, open, (const char *path, int flags, ...)) {
    va_list values;
    va_start(values, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(values, mode_t) : 0;
    va_end(values);
    const bool refused = flags & O_CREAT ? NO_WRITE("open") : NO_READ("open", EMFILE);
    return refused ? -1 : hold_descriptor(__real_open(path, flags, mode));
}
WRAP(int, openat, (int folder, const char *path, int flags, ...)) {
    va_list values;
    va_start(values, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(values, mode_t) : 0;
    va_end(values);
    const bool refused = flags & O_CREAT ? NO_WRITE("openat") : NO_READ("openat", EMFILE);
    return refused ? -1 : hold_descriptor(__real_openat(folder, path, flags, mode));
}
WRAP(int, mkostemp, (char *template, int flags)) {
    return NO_WRITE("mkostemp") ? -1 : hold_descriptor(__real_mkostemp(template, flags));
}
WRAP(int, close, (int fd)) {
    release((uintptr_t)(fd + 1));
    return __real_close(fd);
}
WRAP(FILE *, fopen, (const char *path, const char *mode)) {
    const bool refused = *mode == 'r' ? NO_READ("fopen", EMFILE) : NO_WRITE("fopen");
    return refused ? NULL : hold_memory(__real_fopen(path, mode));
}
WRAP(FILE *, fdopen, (int fd, const char *mode)) {
    FILE *file = NO_READ("fdopen", ENOMEM) ? NULL : __real_fdopen(fd, mode);
    if (file) release((uintptr_t)(fd + 1)); /* now owned by the stream */
    return hold_memory(file);
}
WRAP(FILE *, tmpfile, (void)) { return NO_WRITE("tmpfile") ? NULL : hold_memory(__real_tmpfile()); }
WRAP(int, memfd_create, (const char *name, unsigned flags)) {
    return NO_READ("memfd_create", EMFILE) ? -1 : hold_descriptor(__real_memfd_create(name, flags));
}
WRAP(ssize_t, read, (int fd, void *data, size_t size)) {
    return NO_READ("read", EIO) ? -1 : __real_read(fd, data, size);
}
WRAP(ssize_t, pread, (int fd, void *data, size_t size, off_t offset)) {
    return NO_READ("pread", EIO) ? -1 : __real_pread(fd, data, size, offset);
}
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t offset)) {
    return NO_WRITE("pwrite") ? -1 : __real_pwrite(fd, data, size, offset);
}
/* A stream remembers its failure. */
static size_t fail_stream(FILE *file) {
    file->_flags |= _IO_ERR_SEEN;
    return 0;
}
WRAP(size_t, fread, (void *data, size_t size, size_t count, FILE *file)) {
    return NO_READ("fread", EIO) ? fail_stream(file) : __real_fread(data, size, count, file);
}
WRAP(char *, fgets, (char *text, int size, FILE *file)) {
    if (!NO_READ("fgets", EIO)) return __real_fgets(text, size, file);
    fail_stream(file);
    return NULL;
}
WRAP(size_t, fwrite, (const void *data, size_t size, size_t count, FILE *file)) {
    return NO_WRITE("fwrite") ? fail_stream(file) : __real_fwrite(data, size, count, file);
}
WRAP(int, fflush, (FILE * file)) {
    if (file == stderr || !NO_WRITE("fflush")) return __real_fflush(file);
    fail_stream(file);
    return EOF;
}
WRAP(int, fclose, (FILE * file)) {
    const bool refused = NO_WRITE("fclose");
    release((uintptr_t)file);
    const int error = errno, result = __real_fclose(file); /* it is closed in either case */
    if (refused) errno = error;
    return refused ? EOF : result;
}
/* A killed process keeps what it has written, so there is no need to wait for the disk. */
WRAP(int, fsync, (int fd)) {
    (void)fd;
    return NO_WRITE("fsync") ? -1 : 0;
}
WRAP(int, sync_file_range, (int fd, off_t offset, off_t size, unsigned flags)) {
    (void)fd, (void)offset, (void)size, (void)flags;
    return NO_WRITE("sync_file_range") ? -1 : 0;
}
WRAP(int, fseeko, (FILE * file, off_t offset, int whence)) {
    return NO_WRITE("fseeko") ? -1 : __real_fseeko(file, offset, whence);
}
WRAP(int, ftruncate, (int fd, off_t size)) { return NO_WRITE("ftruncate") ? -1 : __real_ftruncate(fd, size); }
WRAP(int, posix_fallocate, (int fd, off_t offset, off_t size)) {
    return NO_WRITE("posix_fallocate") ? ENOSPC : __real_posix_fallocate(fd, offset, size);
}
WRAP(int, renameat, (int from_folder, const char *from, int to_folder, const char *to)) {
    return NO_WRITE("renameat") ? -1 : __real_renameat(from_folder, from, to_folder, to);
}
WRAP(int, renameat2, (int from_folder, const char *from, int to_folder, const char *to, unsigned flags)) {
    return NO_WRITE("renameat2") ? -1 : __real_renameat2(from_folder, from, to_folder, to, flags);
}
WRAP(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags)) {
    return NO_WRITE("linkat") ? -1 : __real_linkat(from_folder, from, to_folder, to, flags);
}
WRAP(int, unlinkat, (int folder, const char *path, int flags)) {
    may_be_killed("unlinkat");
    return __real_unlinkat(folder, path, flags);
}
WRAP(int, unlink, (const char *path)) {
    may_be_killed("unlink");
    return __real_unlink(path);
}
WRAP(int, mkdirat, (int folder, const char *path, mode_t mode)) {
    return NO_WRITE("mkdirat") ? -1 : __real_mkdirat(folder, path, mode);
}
WRAP(DIR *, opendir, (const char *path)) {
    return NO_READ("opendir", EMFILE) ? NULL : hold_memory(__real_opendir(path));
}
WRAP(DIR *, fdopendir, (int fd)) {
    DIR *entries = NO_READ("fdopendir", ENOMEM) ? NULL : __real_fdopendir(fd);
    if (entries) release((uintptr_t)(fd + 1)); /* now owned by the stream */
    return hold_memory(entries);
}
WRAP(struct dirent *, readdir, (DIR * folder)) { return NO_READ("readdir", EIO) ? NULL : __real_readdir(folder); }
WRAP(int, closedir, (DIR * folder)) {
    release((uintptr_t)folder);
    return __real_closedir(folder);
}
WRAP(int, statvfs, (const char *path, struct statvfs *out)) {
    const int result = NO_READ("statvfs", EIO) ? -1 : __real_statvfs(path, out);
    if (result == 0 && armed && armed->free_bytes) {
        out->f_frsize = 1;
        out->f_bavail = (fsblkcnt_t)armed->free_bytes;
    }
    return result;
}
WRAP(int, flock, (int fd, int operation)) { return NO_READ("flock", ENOLCK) ? -1 : __real_flock(fd, operation); }

/* Before io/json.c wraps these with its own functions. */
__attribute__((constructor)) static void join_jansson(void) { json_set_alloc_funcs(__wrap_malloc, __wrap_free); }

void faults_arm(struct faults *faults) { armed = faults; }
