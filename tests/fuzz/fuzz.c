/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "train/identity.h"

static snug_context *context;
static volatile bool running;
static volatile unsigned executions;

/* ---- files in memory ---- */

enum { FILES = 8, HANDLES = 64, FIRST_HANDLE = 1 << 20 /* beyond the system's numbers */ };

static struct entry {
    const char *path;
    const uint8_t *data; /* NULL: no such file */
    size_t size;
    mode_t kind;
} entries[FILES];

enum { FOLDER = FIRST_HANDLE - 1 };
static const char *folder_path;

struct snug_folder fuzz_folder(const char *path) {
    folder_path = path;
    return (struct snug_folder){.fd = FOLDER, .path = (char *)(uintptr_t)path, .mode = 0600};
}

static struct handle {
    const struct entry *entry; /* NULL: free */
    size_t at;
} handles[HANDLES];
static int opened;

static struct entry *entry_of(const char *path) {
    for (size_t i = 0; i < FILES; i++) {
        if (!entries[i].path) entries[i].path = path;
        if (strcmp(entries[i].path, path) == 0) return &entries[i];
    }
    abort();
}

const char *fuzz_file(const char *path, const void *data, size_t size) {
    struct entry *entry = entry_of(path);
    *entry = (struct entry){entry->path, data, size, S_IFREG};
    return path;
}

void fuzz_special(const char *path, unsigned kind) {
    struct entry *entry = entry_of(path);
    *entry = (struct entry){entry->path, (const uint8_t *)"", 0, kind};
}

static struct entry any_file = {.kind = S_IFREG};
static bool any_path;

void fuzz_any_file(const void *data, size_t size) {
    any_file.data = data;
    any_file.size = size;
    any_path = true;
}

/* The file at path; NULL and errno if there is none. */
static struct entry *find(const char *path) {
    const size_t length = sizeof FUZZ_FOLDER - 1;
    if (any_path) {
        errno = ENOENT;
        return any_file.data ? &any_file : NULL;
    }
    FUZZ_CHECK(strncmp(path, FUZZ_FOLDER "/", length + 1) == 0);
    for (const char *at = path + length; *at; at += strcspn(at + 1, "/") + 1) {
        const size_t name = strcspn(at + 1, "/");
        FUZZ_CHECK(name > 0 && !(name == 2 && memcmp(at + 1, "..", 2) == 0));
    }
    for (size_t i = 0; i < FILES && entries[i].path; i++)
        if (entries[i].data && strcmp(entries[i].path, path) == 0) return &entries[i];
    errno = ENOENT;
    return NULL;
}

static struct handle *handle_of(int fd) { return fd >= FIRST_HANDLE ? &handles[fd - FIRST_HANDLE] : NULL; }

/* A few bytes at a time, as read() may, so that inputs cross the ends of buffers. */
static ssize_t give(const struct entry *entry, size_t at, void *out, size_t size) {
    const size_t left = at < entry->size ? entry->size - at : 0;
    FUZZ_CHECK(entry->kind == S_IFREG);
    if (size > left) size = left;
    if (size > 61) size = 61;
    if (size) memcpy(out, entry->data + at, size);
    return (ssize_t)size;
}

static int describe(const struct entry *entry, struct stat *info) {
    *info = (struct stat){.st_mode = entry->kind | 0600, .st_size = (off_t)entry->size};
    return 0;
}

/* ---- calls: those of libFuzzer and of seeds.c go to the system ---- */

/* The path of a name in a folder of fuzz_folder(), or of the process. Valid until the next call. */
static const char *path_in(int folder, const char *name) {
    static char path[1024];
    if (folder == AT_FDCWD) return name;
    FUZZ_CHECK(folder == FOLDER);
    FUZZ_CHECK(snprintf(path, sizeof path, "%s/%s", folder_path, name) < (int)sizeof path);
    return path;
}

static int open_entry(const char *path, int flags) {
    const struct entry *entry = find(path);
    if (!entry) return -1;
    FUZZ_CHECK((flags & O_ACCMODE) == O_RDONLY && (entry->kind != S_IFIFO || flags & O_NONBLOCK));
    int i = 0;
    while (i < HANDLES && handles[i].entry) i++;
    FUZZ_CHECK(i < HANDLES);
    handles[i] = (struct handle){entry, 0};
    opened++;
    return FIRST_HANDLE + i;
}

WRAP(int, open, (const char *path, int flags, ...)) {
    return running ? open_entry(path, flags) : __real_open(path, flags, 0600);
}

WRAP(int, openat, (int folder, const char *path, int flags, ...)) {
    return running ? open_entry(path_in(folder, path), flags) : __real_openat(folder, path, flags, 0600);
}

WRAP(int, close, (int fd)) {
    struct handle *handle = handle_of(fd);
    if (!handle) return __real_close(fd);
    FUZZ_CHECK(handle->entry);
    handle->entry = NULL;
    opened--;
    return 0;
}

WRAP(ssize_t, read, (int fd, void *out, size_t size)) {
    struct handle *handle = handle_of(fd);
    if (!handle) return __real_read(fd, out, size);
    const ssize_t given = give(handle->entry, handle->at, out, size);
    handle->at += (size_t)given;
    return given;
}

WRAP(ssize_t, pread, (int fd, void *out, size_t size, off_t at)) {
    const struct handle *handle = handle_of(fd);
    return handle ? give(handle->entry, (size_t)at, out, size) : __real_pread(fd, out, size, at);
}

WRAP(int, fstat, (int fd, struct stat *info)) {
    const struct handle *handle = handle_of(fd);
    return handle ? describe(handle->entry, info) : __real_fstat(fd, info);
}

WRAP(int, stat, (const char *path, struct stat *info)) {
    if (!running) return __real_stat(path, info);
    const struct entry *entry = find(path);
    return entry ? describe(entry, info) : -1;
}

WRAP(int, fstatat, (int folder, const char *path, struct stat *info, int flags)) {
    if (!running) return __real_fstatat(folder, path, info, flags);
    const struct entry *entry = find(path_in(folder, path));
    return entry ? describe(entry, info) : -1;
}

/* Not by snug's own functions, which read a few bytes at a time. */
WRAP(snug_status, snug_file_read,
     (snug_context * ctx, const struct snug_folder *in, const char *name, char **data, size_t *size)) {
    const char *path = path_in(snug_folder_fd(in), name);
    const struct entry *entry = find(path);
    *data = NULL;
    *size = 0;
    if (!entry) return snug_fail(ctx, SNUG_E_IO, "cannot open %s: %s", path, strerror(errno));
    FUZZ_CHECK(entry->kind == S_IFREG);
    FUZZ_CHECK(*data = malloc(entry->size + 1)); /* the sanitizer reports a read past the end */
    memcpy(*data, entry->data, entry->size);
    (*data)[ *size = entry->size] = '\0';
    return SNUG_OK;
}

WRAP(snug_status, snug_file_replace,
     (snug_context * ctx, const struct snug_folder *in, const char *name, const void *data, size_t size)) {
    static void *kept; /* of the last call only */
    (void)ctx;
    struct entry *entry = find(path_in(snug_folder_fd(in), name));
    FUZZ_CHECK(entry);
    free(kept);
    FUZZ_CHECK(kept = malloc(size));
    entry->data = memcpy(kept, data, entry->size = size);
    return SNUG_OK;
}

/* A run without data, as in fuzz_trainer_state, has no identity. */
WRAP(json_t *, snug_identity, (const struct snug_job *job)) {
    (void)job;
    return json_object();
}

WRAP(snug_status, snug_identity_check,
     (const struct snug_job *job, const char *path, const json_t *saved, bool *other_best)) {
    (void)job, (void)path;
    *other_best = json_is_true(saved);
    return SNUG_OK;
}

/* ---- inputs ---- */

/* CPU seconds: -timeout also counts seconds of other processes on a busy machine. */
static void look_at_clock(int number) {
    static unsigned last, seconds;
    (void)number;
    seconds = running && last == executions ? seconds + 1 : 0;
    last = executions;
    FUZZ_CHECK(seconds < 10);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const struct sigaction action = {.sa_handler = look_at_clock, .sa_flags = SA_RESTART};
    const struct itimerval second = {{1, 0}, {1, 0}};
    FUZZ_CHECK(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &second, NULL) == 0);
    FUZZ_CHECK(snug_context_create(&context) == SNUG_OK);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    snug_clear_error(context);
    executions++;
    running = true;
    fuzz_one(context, data, size);
    running = false;
    FUZZ_CHECK(opened == 0);
    return 0;
}

bool fuzz_accepts(const snug_context *ctx, snug_status status) {
    if (status == SNUG_OK) return true;
    const char *message = snug_error_message(ctx);
    char escaped[4096];
    FUZZ_CHECK(*message);
    FUZZ_CHECK(!message[snug_escape(escaped, sizeof escaped, message, strlen(message))]);
    FUZZ_CHECK(strcmp(escaped, message) == 0); /* nothing in it needs to be escaped */
    return false;
}

const uint8_t *fuzz_part(const uint8_t *data, size_t size, size_t *at, size_t *length) {
    *length = 0;
    if (*at > size) return NULL;
    const uint8_t *begin = data + *at, *end = *at < size ? memchr(begin, 0xFF, size - *at) : NULL;
    *length = end ? (size_t)(end - begin) : size - *at;
    *at += *length + 1;
    return begin;
}
