/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL for the emulated GPUs: processes of one host, connected by sockets. A group's calls are submitted together, as
 * work of the emulated stream, and exchange their bytes then. As with NCCL, calls of two ranks must match in order and
 * size, and a rank whose peer is gone waits for ever: only something else ends it. SNUG_EMULATED_NCCL=fails lets the
 * first group of this rank fail.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dist/nccl/nccl.h"

enum { RANKS = 8, CALLS = 4096, FAILED = 2, INVALID = 4 };

struct ncclComm {
    int rank, size;
    int peers[RANKS];
};

/* Bytes to or from a peer. */
struct call {
    uint8_t *data;
    int64_t bytes;
    int peer;
    bool sends;
};
struct group {
    struct ncclComm *comm;
    int count;
    struct call calls[CALLS];
};
static struct group group;
static int depth;

#define EXPORT __attribute__((visibility("default")))

EXPORT int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    const char *kind = getenv("SNUG_EMULATED_NCCL"), *rank = getenv("RANK");
    const bool other = kind && strcmp(kind, "differs") == 0 && rank && strcmp(rank, "1") == 0;
    *version = other ? 22703 : 22809;
    return 0;
}

EXPORT int ncclGetUniqueId(struct snug_nccl_id *id);
int ncclGetUniqueId(struct snug_nccl_id *id) {
    uint64_t number;
    memset(id, 0, sizeof *id);
    if (getrandom(&number, sizeof number, 0) != sizeof number) return FAILED;
    snprintf(id->bytes, sizeof id->bytes, "snug-nccl-%016llx", (unsigned long long)number);
    return 0;
}

EXPORT const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error) {
    return error == 0 ? "no error" : error == FAILED ? "unhandled system error" : "invalid argument";
}

/* ---- connecting: a rank accepts those after it ---------------------------------------------------------------------
 */

static struct sockaddr_un address_of(const struct snug_nccl_id *id, int rank, socklen_t *length) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int n = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%.60s-%d", id->bytes, rank);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return address;
}

EXPORT int ncclCommInitRank(struct ncclComm **out, int size, struct snug_nccl_id id, int rank);
int ncclCommInitRank(struct ncclComm **out, int size, struct snug_nccl_id id, int rank) {
    socklen_t length;
    struct sockaddr_un own = address_of(&id, rank, &length);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (size > RANKS || listener < 0 || bind(listener, (struct sockaddr *)&own, length) || listen(listener, RANKS))
        return FAILED;
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm) return FAILED;
    comm->rank = rank;
    comm->size = size;
    for (int r = 0; r < rank; r++) {
        const struct sockaddr_un address = address_of(&id, r, &length);
        comm->peers[r] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(comm->peers[r], (const struct sockaddr *)&address, length)) usleep(1000);
        if (send(comm->peers[r], &rank, sizeof rank, MSG_NOSIGNAL) != sizeof rank) return FAILED;
    }
    for (int left = size - 1 - rank; left > 0; left--) {
        int r;
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 || recv(fd, &r, sizeof r, MSG_WAITALL) != sizeof r) return FAILED;
        comm->peers[r] = fd;
    }
    close(listener);
    *out = comm;
    return 0;
}

EXPORT int ncclCommDestroy(struct ncclComm *comm);
int ncclCommDestroy(struct ncclComm *comm) {
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) close(comm->peers[r]);
    free(comm);
    return 0;
}

EXPORT int ncclCommGetAsyncError(struct ncclComm *comm, int *error);
int ncclCommGetAsyncError(struct ncclComm *comm, int *error) {
    (void)comm;
    *error = 0;
    return 0;
}

/* ---- calls ---------------------------------------------------------------------------------------------------------
 */

static void wait_for_ever(void) {
    for (;;) pause();
}

/* The next call with this peer in this direction from number i on; -1: none. */
static int next_call(const struct group *g, int i, int peer, bool sends) {
    for (; i < g->count; i++)
        if (g->calls[i].peer == peer && g->calls[i].sends == sends && g->calls[i].bytes > 0) return i;
    return -1;
}

/* Both directions of all peers at once, in the order of the calls. */
static void exchange(const void *arguments) {
    const struct group *g = arguments;
    int64_t done[2 * RANKS] = {0};
    int at[2 * RANKS];
    for (int k = 0; k < 2 * RANKS; k++) at[k] = next_call(g, 0, k / 2, k % 2);
    for (;;) {
        struct pollfd ready[2 * RANKS];
        int left = 0;
        for (int k = 0; k < 2 * RANKS; k++) {
            ready[k] =
                (struct pollfd){.fd = at[k] < 0 ? -1 : g->comm->peers[k / 2], .events = k % 2 ? POLLOUT : POLLIN};
            left += at[k] >= 0;
        }
        if (!left) return;
        poll(ready, 2 * RANKS, -1);
        for (int k = 0; k < 2 * RANKS; k++) {
            if (at[k] < 0 || !ready[k].revents) continue;
            const struct call *call = &g->calls[at[k]];
            const size_t rest = (size_t)(call->bytes - done[k]);
            const ssize_t n = call->sends ? send(ready[k].fd, call->data + done[k], rest, MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : recv(ready[k].fd, call->data + done[k], rest, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) wait_for_ever();
            done[k] += n > 0 ? n : 0;
            if (done[k] < call->bytes) continue;
            done[k] = 0;
            at[k] = next_call(g, at[k] + 1, k / 2, k % 2);
        }
    }
}

/* The plug-in's emulated runtime records the work, if the stream is captured. */
static int submit(void) {
    typedef void submit_call(void (*call)(const void *), const void *arguments, size_t size);
    submit_call *function;
    const char *fails = getenv("SNUG_EMULATED_NCCL");
    if (fails && strcmp(fails, "fails") == 0) return FAILED;
    void *plugin = dlopen(SNUG_EMULATED_PLUGIN, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = plugin ? dlsym(plugin, "emulate_submit_call") : NULL;
    if (!symbol) return FAILED;
    memcpy(&function, &symbol, sizeof function);
    if (group.count)
        function(exchange, &group, offsetof(struct group, calls) + (size_t)group.count * sizeof *group.calls);
    group.count = 0;
    return 0;
}

EXPORT int ncclGroupStart(void);
int ncclGroupStart(void) {
    depth++;
    return 0;
}
EXPORT int ncclGroupEnd(void);
int ncclGroupEnd(void) { return --depth ? 0 : submit(); }

static int add(void *data, size_t bytes, int peer, struct ncclComm *comm, bool sends) {
    if (group.count == CALLS || peer < 0 || peer >= comm->size || peer == comm->rank) return INVALID;
    group.comm = comm;
    group.calls[group.count++] = (struct call){data, (int64_t)bytes, peer, sends};
    return depth ? 0 : submit();
}

EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *comm, cudaStream_t stream);
int ncclSend(const void *from, size_t count, int type, int peer, struct ncclComm *comm, cudaStream_t stream) {
    (void)stream;
    return type == SNUG_NCCL_BYTES ? add((void *)(uintptr_t)from, count, peer, comm, true) : INVALID;
}
EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *comm, cudaStream_t stream);
int ncclRecv(void *to, size_t count, int type, int peer, struct ncclComm *comm, cudaStream_t stream) {
    (void)stream;
    return type == SNUG_NCCL_BYTES ? add(to, count, peer, comm, false) : INVALID;
}

/* In place: from is this rank's part of `to`. */
EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *comm,
                         cudaStream_t stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, struct ncclComm *comm, cudaStream_t stream) {
    int result = (const uint8_t *)from == (uint8_t *)to + (size_t)comm->rank * count ? 0 : INVALID;
    ncclGroupStart();
    for (int r = 0; r < comm->size && result == 0; r++) {
        if (r == comm->rank) continue;
        result = ncclSend(from, count, type, r, comm, stream);
        if (result == 0) result = ncclRecv((uint8_t *)to + (size_t)r * count, count, type, r, comm, stream);
    }
    const int ended = ncclGroupEnd();
    return result ? result : ended;
}
