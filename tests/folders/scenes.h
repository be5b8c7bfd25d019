/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenes for build/snug. Each scene sets up a tree of its own and works in it:
 *
 *   in/       a model folder with weights, train.csv, dev.csv
 *   out/      the output folder; it does not exist at first
 *   outside/  what links lead to: a file, a folder with a file in it
 *   cache/    SNUG_CACHE
 *
 * watch() takes a digest of the whole tree. Each expectation compares the tree with it and fails where an entry
 * changed, vanished or appeared that the scene does not allow.
 */
#ifndef SNUG_TESTS_SCENES_H
#define SNUG_TESTS_SCENES_H

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sanitized.h"
#include "temporary.h"
#include "test.h"

enum { TIME_LIMIT = SANITIZED ? 30 : 10, SCENE_PATH = 4096, NOBODY = 65534 };

struct scene;

/* A row of the table of scenes: a function and the parameters of its variants. */
struct scene_case {
    char *name;
    void (*play)(struct scene *s);
    const char *entry; /* the name that the scene is about */
    const char *kind;  /* what it is there, or what is done to it */
    int number;
};

struct scene_entry {
    char *path, *target;
    struct stat info;
    uint64_t hash;
};

struct digest {
    struct scene_entry *items;
    size_t count, capacity;
};

struct scene {
    const struct scene_case *c;
    char root[64];
    const char *out;      /* what @out means in commands */
    int closed;           /* bits of the descriptors that the program begins without */
    bool as_nobody;       /* run it as another user; for root only */
    const char *may_make; /* patterns of entries that may appear, and of those that may change or vanish */
    const char *may_change;
    struct digest before;
    char changes[8192];
    /* The last command. */
    char command[2048], err[1 << 16], *stdout_text;
    size_t err_size;
    pid_t child;
    int pipe, stdout_fd, status;
    struct timespec deadline;
    bool timed_out;
};

#define EACH(i, array) for (size_t i = 0; (i) < sizeof(array) / sizeof *(array); (i)++) /* NOLINT: a name */

/* ---- making entries ------------------------------------------------------------------------------------------- */

/* A call of the test itself failed. fail_msg() does not return, which compilers and linters do not know. */
__attribute__((noreturn)) static inline void call_fails(const char *call, const char *path) {
    fail_msg("%s %s: %s", call, path, strerror(errno));
    abort();
}

/* A system call of the test. */
#define MUST(call) ((call) < 0 ? call_fails(#call, "") : (void)0)

static inline void make_parents(const char *path) {
    char copy[SCENE_PATH];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *at = copy + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) fail_msg("mkdir %s: %s", copy, strerror(errno));
        *at = '/';
    }
}

static inline void put_bytes(const char *path, const void *data, size_t size) {
    make_parents(path);
    FILE *file = fopen(path, "wb");
    if (!file) call_fails("fopen", path);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void put(const char *path, const char *text) { put_bytes(path, text, strlen(text)); }

static inline void put_folder(const char *path) {
    make_parents(path);
    MUST(mkdir(path, 0777));
}

static inline void put_link(const char *path, const char *target) {
    make_parents(path);
    MUST(symlink(target, path));
}

static inline void put_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    make_parents(path);
    assert_true(strlen(path) < sizeof address.sun_path);
    strcpy(address.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd);
    MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
    close(fd);
}

static inline char *get_bytes(const char *path, size_t *size) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) call_fails("open", path);
    MUST(fstat(fd, &info));
    char *data = malloc((size_t)info.st_size + 1);
    assert_non_null(data);
    const ssize_t got = read(fd, data, (size_t)info.st_size);
    if (got != info.st_size) fail_msg("%s cannot be read", path);
    close(fd);
    data[got] = '\0';
    if (size) *size = (size_t)got;
    return data;
}

static inline bool there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static inline void remove_tree(const char *path) {
    if (there(path)) MUST(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS));
}

/* A copy of a tree with its files' times, as `cp -a` makes it. */
static inline void copy_tree(const char *from, const char *to) {
    char *const roots[] = {(char *)(uintptr_t)from, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    assert_non_null(walk);
    for (FTSENT *at; (at = fts_read(walk));) {
        char path[SCENE_PATH];
        snprintf(path, sizeof path, "%s%s", to, at->fts_path + strlen(from));
        if (at->fts_info == FTS_D)
            put_folder(path);
        else if (at->fts_info == FTS_F) {
            size_t size;
            char *data = get_bytes(at->fts_path, &size);
            put_bytes(path, data, size);
            free(data);
            MUST(chmod(path, at->fts_statp->st_mode & 07777));
            MUST(utimensat(AT_FDCWD, path, (struct timespec[]){at->fts_statp->st_atim, at->fts_statp->st_mtim}, 0));
        }
    }
    fts_close(walk);
}

static inline void flip_byte(const char *path) {
    size_t size;
    char *data = get_bytes(path, &size);
    assert_true(size > 0);
    data[size - 1 - size / 8] ^= 1;
    put_bytes(path, data, size);
    free(data);
}

/* "FOLDER/NAME"; valid for the next seven calls. */
static inline const char *in_folder(const char *folder, const char *name) {
    static char paths[8][SCENE_PATH];
    static int next;
    const size_t length = strlen(folder);
    assert_true(length + strlen(name) + 2 <= SCENE_PATH);
    char *path = paths[next = (next + 1) % 8];
    memmove(path, folder, length);
    path[length] = '/';
    strcpy(path + length + 1, name);
    return path;
}

/* What may be at a path where snug expects its own file or nothing. */
static const char *const kinds[] = {"link to a file", "link to a folder", "link to nothing", "link to itself",
                                    "pipe",           "socket",           "device",          "folder",
                                    "foreign file",   "hard link"};
enum { KINDS = sizeof kinds / sizeof *kinds, IRREGULAR_KINDS = 8 };

/* The way from path back to the scene's root: "../" for each folder in it. */
static inline const char *way_back(const char *path, const char *target) {
    static char way[SCENE_PATH];
    way[0] = '\0';
    for (const char *at = path; (at = strchr(at, '/')); at++) strcat(way, "../");
    return strcat(way, target);
}

static inline void put_kind(const char *path, const char *kind) {
    const char *name = strrchr(path, '/');
    make_parents(path);
    if (strcmp(kind, "link to a file") == 0)
        put_link(path, way_back(path, "outside/file"));
    else if (strcmp(kind, "link to a folder") == 0)
        put_link(path, way_back(path, "outside/folder"));
    else if (strcmp(kind, "link to nothing") == 0)
        put_link(path, way_back(path, "outside/nothing"));
    else if (strcmp(kind, "link to itself") == 0)
        put_link(path, name ? name + 1 : path);
    else if (strcmp(kind, "pipe") == 0)
        MUST(mkfifo(path, 0666));
    else if (strcmp(kind, "socket") == 0)
        put_socket(path);
    else if (strcmp(kind, "device") == 0) { /* /dev/null */
        if (geteuid() != 0 || mknod(path, S_IFCHR | 0666, makedev(1, 3)) != 0) skip();
    } else if (strcmp(kind, "link to a device") == 0)
        put_link(path, "/dev/zero");
    else if (strcmp(kind, "folder") == 0) {
        put_folder(path);
        char file[SCENE_PATH];
        snprintf(file, sizeof file, "%s/mine.txt", path);
        put(file, "a file of the user in a folder");
    } else if (strcmp(kind, "foreign file") == 0)
        put(path, "{\"written\": \"by the user\"}\n");
    else if (strcmp(kind, "hard link") == 0)
        MUST(link("outside/file", path));
    else
        fail_msg("no such kind: %s", kind);
}

/* ---- the digest ----------------------------------------------------------------------------------------------- */

static inline int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static inline uint64_t hash_of(const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return 0;
    MUST(fstat(fd, &info));
    char *data = malloc((size_t)info.st_size + 1);
    assert_non_null(data);
    const ssize_t got = read(fd, data, (size_t)info.st_size);
    const uint64_t hash = got < 0 ? 0 : XXH3_64bits(data, (size_t)got);
    free(data);
    close(fd);
    return hash;
}

static inline void add_entry(struct digest *digest, const char *path, const struct stat *info) {
    if (digest->count == digest->capacity) {
        digest->capacity = 2 * digest->capacity + 64;
        digest->items = realloc(digest->items, digest->capacity * sizeof *digest->items);
        assert_non_null(digest->items);
    }
    struct scene_entry *entry = &digest->items[digest->count++];
    char target[SCENE_PATH];
    *entry = (struct scene_entry){.path = strdup(path), .info = *info};
    if (S_ISREG(info->st_mode)) entry->hash = hash_of(path);
    if (!S_ISLNK(info->st_mode)) return;
    const ssize_t length = readlink(path, target, sizeof target - 1);
    MUST(length);
    target[length] = '\0';
    entry->target = strdup(target);
}

static inline struct digest take_digest(void) {
    struct digest digest = {0};
    FTS *walk = fts_open((char *[]){(char[]){"."}, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    assert_non_null(walk);
    for (FTSENT *at; (at = fts_read(walk));)
        if (at->fts_info != FTS_DP && at->fts_pathlen > 2) add_entry(&digest, at->fts_path + 2, at->fts_statp);
    fts_close(walk);
    return digest;
}

static inline void free_digest(struct digest *digest) {
    for (size_t i = 0; i < digest->count; i++) {
        free(digest->items[i].path);
        free(digest->items[i].target);
    }
    free(digest->items);
    *digest = (struct digest){0};
}

/* The first difference between two states of an entry, or NULL. A folder's size and link count depend on its entries.
 */
static inline const char *difference(const struct scene_entry *a, const struct scene_entry *b) {
    const bool folder = S_ISDIR(a->info.st_mode), file = S_ISREG(a->info.st_mode);
    if ((a->info.st_mode ^ b->info.st_mode) & S_IFMT) return "type";
    if (a->info.st_mode != b->info.st_mode) return "mode";
    if (a->info.st_uid != b->info.st_uid || a->info.st_gid != b->info.st_gid) return "owner";
    if (a->target && strcmp(a->target, b->target) != 0) return "link target";
    if (a->info.st_ino != b->info.st_ino) return "inode (another entry is there now)";
    if (!folder && a->info.st_nlink != b->info.st_nlink) return "link count";
    if (file && a->info.st_size != b->info.st_size) return "size";
    if (a->hash != b->hash) return "content";
    if (file &&
        (a->info.st_mtim.tv_sec != b->info.st_mtim.tv_sec || a->info.st_mtim.tv_nsec != b->info.st_mtim.tv_nsec))
        return "modification time";
    return NULL;
}

/* Whether one of the patterns, which blanks divide, matches path. A "*" also matches "/". */
static inline bool is_allowed(const char *patterns, const char *path) {
    char copy[4096], *rest = copy, *pattern;
    if (!patterns) return false;
    assert_true(strlen(patterns) < sizeof copy);
    strcpy(copy, patterns);
    while ((pattern = strsep(&rest, " ")))
        if (*pattern && fnmatch(pattern, path, 0) == 0) return true;
    return false;
}

__attribute__((format(printf, 2, 3))) static inline void add_change(struct scene *s, const char *format, ...) {
    va_list values;
    const size_t used = strlen(s->changes);
    va_start(values, format);
    vsnprintf(s->changes + used, sizeof s->changes - used, format, values);
    va_end(values);
}

static inline void find_changes(struct scene *s) {
    struct digest now = take_digest();
    size_t i = 0, j = 0;
    s->changes[0] = '\0';
    /* Both walks are sorted folder by folder, which is not the order of whole paths: entries are looked up. */
    for (i = 0; i < s->before.count; i++) {
        const struct scene_entry *entry = &s->before.items[i];
        for (j = 0; j < now.count && strcmp(now.items[j].path, entry->path) != 0; j++) continue;
        if (is_allowed(s->may_change, entry->path)) continue;
        const char *what = j < now.count ? difference(entry, &now.items[j]) : NULL;
        if (j == now.count)
            add_change(s, "  is gone:  %s\n", entry->path);
        else if (what)
            add_change(s, "  changed:  %s: %s\n", entry->path, what);
    }
    for (j = 0; j < now.count; j++) {
        const char *path = now.items[j].path;
        for (i = 0; i < s->before.count && strcmp(s->before.items[i].path, path) != 0; i++) continue;
        if (i == s->before.count && !is_allowed(s->may_make, path)) add_change(s, "  appeared: %s\n", path);
    }
    free_digest(&now);
}

/* From here on changes of the tree are detected. */
static inline void watch(struct scene *s) {
    free_digest(&s->before);
    s->before = take_digest();
}

/* ---- commands ------------------------------------------------------------------------------------------------- */

/* Fails the scene; prints the command, its status, what changed in the tree, and stderr. */
__attribute__((format(printf, 2, 3), noreturn)) static inline void scene_fails(struct scene *s, const char *format,
                                                                               ...) {
    char reason[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(reason, sizeof reason, format, values);
    va_end(values);
    print_message("scene:   %s\nfailed:  %s\n", s->c->name, reason);
    print_message("command: snug %s\nstatus:  %s%d\n", s->command,
                  WIFSIGNALED(s->status) ? "ended by signal " : "exit code ",
                  WIFSIGNALED(s->status) ? WTERMSIG(s->status) : WEXITSTATUS(s->status));
    if (s->changes[0]) print_message("tree:\n%s", s->changes);
    print_message("stderr:\n%s\n", s->err);
    fail_msg("%s", reason);
    abort(); /* fail_msg() does not return, which compilers do not know */
}

static inline void reap(struct scene *s) {
    if (s->child > 0) {
        kill(-s->child, SIGKILL);
        while (waitpid(s->child, &s->status, 0) < 0 && errno == EINTR) continue;
        s->child = 0;
    }
    if (s->pipe >= 0) close(s->pipe);
    s->pipe = -1;
}

static inline double seconds_left(const struct scene *s) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(s->deadline.tv_sec - now.tv_sec) + 1e-9 * (double)(s->deadline.tv_nsec - now.tv_nsec);
}

__attribute__((noreturn)) static inline void become_snug(const struct scene *s, int err, char **arguments) {
    setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY);
    if (dup2(nothing, 0) < 0 || dup2(s->stdout_fd, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    close(nothing);
    if (s->as_nobody &&
        (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0))
        _exit(126);
    for (int fd = 0; fd < 3; fd++)
        if (s->closed >> fd & 1) close(fd);
    execv(SNUG_BINARY_DIR "/snug", arguments);
    _exit(127);
}

/* Starts build/snug with words, which blanks divide; @out becomes the scene's name of the output folder, and @root the
   scene's folder. stderr is a pipe of 4 KiB: a run with a longer log stops until the pipe is read. */
static inline void start(struct scene *s, const char *words) {
    char copy[2048], *rest = copy, *word, *arguments[128] = {(char[]){"snug"}}, store[8][SCENE_PATH];
    int count = 1, stored = 0, ends[2];
    assert_true(strlen(words) < sizeof copy);
    snprintf(s->command, sizeof s->command, "%s", words);
    strcpy(copy, words);
    while ((word = strsep(&rest, " "))) {
        char *at = strstr(word, "@out"), *root = strstr(word, "@root");
        if (!*word) continue;
        assert_true(count < 127 && stored < 8);
        if (at && strncmp(s->out, "@root", 5) == 0)
            snprintf(store[stored], sizeof *store, "%.*s%s%s%s", (int)(at - word), word, s->root, s->out + 5, at + 4);
        else if (at)
            snprintf(store[stored], sizeof *store, "%.*s%s%s", (int)(at - word), word, s->out, at + 4);
        else if (root)
            snprintf(store[stored], sizeof *store, "%.*s%s%s", (int)(root - word), word, s->root, root + 5);
        arguments[count++] = at || root ? store[stored++] : word;
    }
    s->err[s->err_size = 0] = '\0';
    s->timed_out = false;
    MUST(pipe2(ends, O_CLOEXEC));
    MUST(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    if (s->stdout_fd >= 0) close(s->stdout_fd);
    MUST(s->stdout_fd = memfd_create("stdout", MFD_CLOEXEC));
    clock_gettime(CLOCK_MONOTONIC, &s->deadline);
    s->deadline.tv_sec += TIME_LIMIT;
    fflush(NULL);
    MUST(s->child = fork());
    if (s->child == 0) become_snug(s, ends[1], arguments);
    close(ends[1]);
    s->pipe = ends[0];
}

/* Reads what the pipe holds; false at its end or when the time is over. */
static inline bool read_some(struct scene *s) {
    struct pollfd wait = {.fd = s->pipe, .events = POLLIN};
    const double left = seconds_left(s);
    const int ready = left > 0 ? poll(&wait, 1, (int)(1000 * left) + 1) : 0;
    if (ready < 0 && errno == EINTR) return true;
    if (ready <= 0) {
        s->timed_out = true;
        return false;
    }
    char rest[256];
    const size_t room = sizeof s->err - 1 - s->err_size;
    /* A few lines at a time, so that the run stops early. */
    const ssize_t got = room ? read(s->pipe, s->err + s->err_size, room < 256 ? room : 256) : read(s->pipe, rest, 256);
    if (got <= 0) return false;
    if (room) s->err[s->err_size += (size_t)got] = '\0';
    return true;
}

/* Reads until the program has printed text. The program continues until 4 KiB more are in the pipe. */
static inline void wait_line(struct scene *s, const char *text) {
    while (!strstr(s->err, text))
        if (!read_some(s)) scene_fails(s, "the program did not print \"%s\"", text);
}

static inline void finish(struct scene *s) {
    while (read_some(s)) continue;
    while (!s->timed_out) {
        const pid_t ended = waitpid(s->child, &s->status, WNOHANG);
        if (ended == s->child) break;
        if (seconds_left(s) <= 0) s->timed_out = true;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    const bool timed_out = s->timed_out;
    if (!timed_out) s->child = 0;
    reap(s);
    if (timed_out) scene_fails(s, "it hung: no end within %d s", TIME_LIMIT);
    if (strstr(s->err, "Sanitizer")) scene_fails(s, "a sanitizer reports an error");
}

static inline void run(struct scene *s, const char *words) {
    start(s, words);
    finish(s);
}

/* The last command's stdout; valid until the next one is read. */
static inline const char *stdout_of(struct scene *s) {
    const off_t size = lseek(s->stdout_fd, 0, SEEK_END);
    free(s->stdout_text);
    s->stdout_text = calloc((size_t)size + 1, 1);
    assert_non_null(s->stdout_text);
    assert_int_equal(pread(s->stdout_fd, s->stdout_text, (size_t)size, 0), size);
    return s->stdout_text;
}

/* ---- expectations --------------------------------------------------------------------------------------------- */

static inline void expect_untouched(struct scene *s) {
    find_changes(s);
    if (s->changes[0]) scene_fails(s, "entries changed that the program may not touch");
}

static inline bool succeeded(const struct scene *s) { return WIFEXITED(s->status) && WEXITSTATUS(s->status) == 0; }

static inline void expect_success(struct scene *s) {
    if (!succeeded(s)) scene_fails(s, "the command failed");
}

static inline void expect_done(struct scene *s) {
    expect_success(s);
    expect_untouched(s);
}

static inline void expect_said(struct scene *s, const char *text) {
    if (!strstr(s->err, text)) scene_fails(s, "no message names \"%s\"", text);
}

/* It ended with an error, whose message names the entry. */
static inline void expect_error(struct scene *s, const char *entry) {
    const char *message = NULL;
    if (WIFSIGNALED(s->status)) scene_fails(s, "ended by signal %d", WTERMSIG(s->status));
    if (succeeded(s)) scene_fails(s, "it was not refused");
    for (const char *at = s->err; (at = strstr(at, "snug: ")); at++)
        if (at == s->err || at[-1] == '\n') message = at;
    if (!message || !strstr(message, entry)) scene_fails(s, "the error message does not name \"%s\"", entry);
}

static inline void expect_refused(struct scene *s, const char *entry) {
    find_changes(s);
    expect_error(s, entry);
    expect_untouched(s);
}

static inline bool same_content(const char *a, const char *b) {
    size_t size_a, size_b;
    char *x = get_bytes(a, &size_a), *y = get_bytes(b, &size_b);
    const bool same = size_a == size_b && memcmp(x, y, size_a) == 0;
    free(x);
    free(y);
    return same;
}

static inline void expect_same(struct scene *s, const char *a, const char *b) {
    if (!there(a)) scene_fails(s, "%s is missing", a);
    if (!there(b)) scene_fails(s, "%s is missing", b);
    if (!same_content(a, b)) scene_fails(s, "%s and %s differ", a, b);
}

static inline void expect_there(struct scene *s, const char *path, bool expected) {
    if (there(path) != expected) scene_fails(s, "%s is %s", path, expected ? "missing" : "there");
}

/* No hidden file of snug's is in folder. */
static inline void expect_nothing_hidden(struct scene *s, const char *folder) {
    FTS *walk = fts_open((char *[]){(char *)(uintptr_t)folder, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    char found[SCENE_PATH] = "";
    for (FTSENT *at; (at = fts_read(walk));)
        if (at->fts_level > 0 && strstr(at->fts_name, ".snug")) snprintf(found, sizeof found, "%s", at->fts_path);
    fts_close(walk);
    if (found[0]) scene_fails(s, "%s was not removed", found);
}

/* ---- the tree ------------------------------------------------------------------------------------------------- */

enum { SCENE_WORDS = 48, SCENE_ROWS = 48 };

/* The model of every scene: the output of a first training of the tiny model. */
static struct {
    char *config, *weights;
    size_t size;
} template;

static inline void put_data(const char *path, int rows, int shift) {
    char text[8192] = "sentence,label\n";
    size_t used = strlen(text);
    for (int i = 0; i < rows; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "w%d %s w%d,%s\n", (i + shift) % SCENE_WORDS,
                             i % 2 ? "good" : "bad", (7 * i + shift) % SCENE_WORDS, i % 2 ? "positive" : "negative");
    put(path, text);
}

static const char tiny_config[] =
    "{\"model_type\": \"bert\", \"vocab_size\": 55, \"hidden_size\": 16, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 2, \"intermediate_size\": 32, \"max_position_embeddings\": 16,"
    " \"hidden_dropout_prob\": 0.1, \"attention_probs_dropout_prob\": 0.1}";

static inline void put_model(const char *folder) {
    char path[SCENE_PATH], vocab[1024];
    size_t used = (size_t)snprintf(vocab, sizeof vocab, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n");
    for (int i = 0; i < SCENE_WORDS; i++) used += (size_t)snprintf(vocab + used, sizeof vocab - used, "w%d\n", i);
    snprintf(path, sizeof path, "%s/config.json", folder);
    put(path, template.config ? template.config : tiny_config);
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    put(path, vocab);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    put(path, "{\"do_lower_case\": true}");
    if (!template.weights) return;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    put_bytes(path, template.weights, template.size);
}

static inline void open_scene(struct scene *s) {
    assert_non_null(temporary_folder(s->root, sizeof s->root));
    MUST(chmod(s->root, 0755)); /* files made of inputs in a private folder are private */
    MUST(chdir(s->root));
    umask(022);
    char cache[128];
    snprintf(cache, sizeof cache, "%s/cache", s->root);
    setenv("SNUG_CACHE", cache, 1);
    setenv("SNUG_RATES", SNUG_SOURCE_DIR "/tests/golden/rates.json", 1);
    setenv("OMP_WAIT_POLICY", "passive", 0);
    put_model("in/model");
    put_data("in/train.csv", SCENE_ROWS, 0);
    put_data("in/dev.csv", 8, 3);
    put("outside/file", "{\"content\": \"of a file outside\"}\n");
    put("outside/folder/file", "a file in a folder outside\n");
    s->out = "out";
    s->pipe = s->stdout_fd = -1;
    s->may_make = "cache cache/*";
    s->may_change = NULL;
}

static inline void close_scene(struct scene *s) {
    reap(s);
    if (s->stdout_fd >= 0) close(s->stdout_fd);
    free(s->stdout_text);
    free_digest(&s->before);
    MUST(chdir("/"));
    umask(022);
    remove_tree(s->root);
}

static inline int set_up_scene(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->c = *state;
    *state = s;
    open_scene(s);
    return 0;
}

static inline int tear_down_scene(void **state) {
    struct scene *s = *state;
    close_scene(s);
    free(s);
    return 0;
}

static inline void play_scene(void **state) {
    struct scene *s = *state;
    s->c->play(s);
}

/* ---- the commands of most scenes -------------------------------------------------------------------------------- */

#define RUN                                                                                                            \
    "--model_name_or_path in/model --train_file in/train.csv --max_steps 4 --save_steps 1 "                            \
    "--per_device_train_batch_size 4 --max_seq_length 16 --threads 1 --device cpu --learning_rate 1e-2 "               \
    "--logging_steps 1 "
#define TRAIN "train " RUN "--output_dir @out "
#define OVERWRITE "--overwrite_output_dir "
#define EVAL "eval --model_name_or_path in/model --validation_file in/dev.csv --threads 1 --device cpu "
#define PREDICT "predict --model_name_or_path in/model --test_file in/dev.csv --threads 1 --device cpu "

/* What a run may write into out/. */
#define OUTPUT                                                                                                         \
    "cache cache/* out out/config.json out/model.safetensors out/vocab.txt out/tokenizer_config.json "                 \
    "out/training_args.json out/README.md out/trainer_state.json out/run_report.json out/train_results.json "          \
    "out/eval_results.json out/all_results.json out/manifest.json "                                                    \
    "out/checkpoint-[1-4] out/checkpoint-[1-4]/*"

static inline void watch_and_run(struct scene *s, const char *words) {
    watch(s);
    run(s, words);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

enum { MOST_SCENES = 1000 };

static struct scene_case cases[MOST_SCENES];
static int case_count;

__attribute__((format(printf, 5, 6))) static inline void add(void (*play)(struct scene *), const char *entry,
                                                             const char *kind, int number, const char *name, ...) {
    va_list values;
    static struct {
        void (*play)(struct scene *);
        int variants;
    } counts[64];
    size_t i = 0;
    while (counts[i].play && counts[i].play != play) i++;
    assert_true(i < 63);
    counts[i].play = play;
    if (!is_chosen(counts[i].variants++, 3)) return;
    struct scene_case *c = &cases[case_count++];
    if (case_count > MOST_SCENES) abort();
    *c = (struct scene_case){.play = play, .entry = entry, .kind = kind, .number = number};
    va_start(values, name);
    if (vasprintf(&c->name, name, values) < 0) abort();
    va_end(values);
}

/* The output of the command on the scene's initial tree, in a folder that is kept until the end; one run for each
   words. */
struct control {
    char words[1024];
    struct scene scene;
};
static struct control controls[32];
static int control_count;

/* The path of name in the output folder of an uninterrupted run of words. */
static inline const char *control(struct scene *s, const char *words, const char *name) {
    static const struct scene_case own = {.name = (char *)(uintptr_t) "a control run"};
    static char path[4][SCENE_PATH];
    static int next;
    int i = 0;
    while (i < control_count && strcmp(controls[i].words, words) != 0) i++;
    if (i == control_count) {
        assert_true(control_count < 32 && strlen(words) < sizeof controls[i].words);
        struct control *c = &controls[control_count++];
        strcpy(c->words, words);
        const char *cache = getenv("SNUG_CACHE");
        char kept[128];
        snprintf(kept, sizeof kept, "%s", cache ? cache : "");
        c->scene.c = &own;
        open_scene(&c->scene);
        run(&c->scene, words);
        expect_success(&c->scene);
        setenv("SNUG_CACHE", kept, 1);
        MUST(chdir(s->root));
    }
    next = (next + 1) % 4;
    snprintf(path[next], sizeof *path, "%s/out/%s", controls[i].scene.root, name);
    return path[next];
}

/* What a run of four steps with these arguments wrote into out/, on the scene's initial tree. */
static inline void train_first(struct scene *s, const char *more) {
    char words[1024], made[SCENE_PATH];
    snprintf(words, sizeof words, TRAIN "%s", more);
    snprintf(made, sizeof made, "%s", control(s, words, ""));
    made[strlen(made) - 1] = '\0';
    copy_tree(made, s->out);
}

/* Runs the scenes whose names match pattern, or all. */
static inline int play_all(const char *group, const char *pattern) {
    static struct CMUnitTest tests[MOST_SCENES];
    struct scene first = {.c = &(struct scene_case){.name = (char[]){"the weights"}}};
    open_scene(&first);
    run(&first, "train --config_name in/model --tokenizer_name in/model --train_file in/train.csv --output_dir out "
                "--max_steps 1 --save_strategy no --threads 1 --device cpu --max_seq_length 16");
    if (!succeeded(&first)) {
        fprintf(stderr, "the first training fails: %s\n", first.err);
        return 1;
    }
    template.weights = get_bytes("out/model.safetensors", &template.size);
    template.config = get_bytes("out/config.json", NULL);
    close_scene(&first);
    for (int i = 0; i < case_count; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, play_scene, set_up_scene, tear_down_scene, &cases[i]};
    if (pattern) cmocka_set_test_filter(pattern);
    const int failed = _cmocka_run_group_tests(group, tests, (size_t)case_count, NULL, NULL);
    for (int i = 0; i < control_count; i++) close_scene(&controls[i].scene);
    for (int i = 0; i < case_count; i++) free(cases[i].name);
    free(template.weights);
    free(template.config);
    return failed;
}

#endif
