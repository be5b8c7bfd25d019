/* SPDX-License-Identifier: Apache-2.0 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/file.h"

/* Whom the file names, as "process 4711 on host"; it may be empty, since it is locked before it is written. */
static void read_owner(int fd, char *text, size_t size) {
    const ssize_t got = pread(fd, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (!*text) snprintf(text, size, "another process");
}

static void write_owner(int fd) {
    char text[128], host[HOST_NAME_MAX + 1];
    gethostname(host, sizeof host); /* has room for any */
    const int length = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    /* Without the name the lock holds all the same. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)length, 0) != length) return;
}

snug_status snug_lock_take(snug_context *ctx, const char *folder, struct snug_lock *lock) {
    char owner[128];
    int fd;
    *lock = (struct snug_lock){0};
    RETURN_IF_ERROR(snug_path_join(ctx, &lock->path, folder, ".snug.lock"));
    snug_status status = SNUG_OK;
    for (;;) {
        fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) {
            status = snug_fail(ctx, SNUG_E_IO, "cannot write %s, which keeps other runs out of the folder: %s",
                               lock->path, strerror(errno));
            break;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (snug_file_is_named(fd, lock->path)) break; /* else who held it has removed it since it was opened */
            close(fd);
            continue;
        }
        if (errno == EWOULDBLOCK) {
            read_owner(fd, owner, sizeof owner);
            status = snug_fail(ctx, SNUG_E_IO,
                               "%s: another run is writing into this folder (%s): wait for its end, or give another "
                               "--output_dir",
                               folder, owner);
        } else {
            snug_log(ctx, SNUG_LOG_WARNING, "%s cannot be locked (%s): see that no second run writes into it", folder,
                     strerror(errno));
            unlink(lock->path);
        }
        close(fd);
        fd = -1;
        break;
    }
    if (fd >= 0) {
        write_owner(fd);
        lock->fd = fd;
        return SNUG_OK;
    }
    free(lock->path);
    *lock = (struct snug_lock){0};
    return status;
}

void snug_lock_release(struct snug_lock *lock) {
    if (!lock->path) return;
    unlink(lock->path); /* while it is held: nobody else's can be meant */
    close(lock->fd);
    free(lock->path);
    *lock = (struct snug_lock){0};
}
