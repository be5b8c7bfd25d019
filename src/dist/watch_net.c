/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/watch_net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    UNACKNOWLEDGED = 5000, /* milliseconds */
    PATIENCE = 2000,       /* milliseconds that a connection and an answer may take */
    WAITING = 4096,        /* connections that have not been accepted yet; the kernel lowers it */
};

void snug_watch_tune(int fd) {
    const int at_once = 1; /* messages are small, and the other end waits for them */
    const unsigned most = UNACKNOWLEDGED;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

int snug_watch_send(int fd, const struct snug_watch_message *message) {
    size_t sent = 0;
    while (sent < sizeof *message) {
        const ssize_t n = send(fd, (const char *)message + sent, sizeof *message - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;           /* may be untested: depends on timing */
        if (n >= 0 || errno == EINTR) continue; /* may be untested: depends on timing */
        if (errno != EAGAIN) return errno;      /* may be untested: the same */
        if (sent == 0) return 0;                /* untested: a host that takes nothing for minutes is lost before */
        struct pollfd until = {.fd = fd, .events = POLLOUT};
        if (poll(&until, 1, PATIENCE) == 0) return ETIMEDOUT; /* untested: the same */
    }
    return 0;
}

bool snug_watch_is_valid(const struct snug_watch_message *m, const struct snug_watch_address *address) {
    return m->magic == SNUG_WATCH_MAGIC && memcmp(m->token, address->token, sizeof m->token) == 0 &&
           m->kind >= SNUG_WATCH_HELLO && m->kind <= SNUG_WATCH_ENDED && memchr(m->host, 0, sizeof m->host) &&
           memchr(m->phase, 0, sizeof m->phase) && memchr(m->operation, 0, sizeof m->operation) &&
           memchr(m->text, 0, sizeof m->text);
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

/* Link-local addresses need the other host's name of the interface. */
static bool is_usable(const struct ifaddrs *i) {
    /* may be untested: depends on the machine's interfaces */
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return false;
    if (i->ifa_addr->sa_family == AF_INET) return true;
    /* may be untested: the same */
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static void list_addresses(struct snug_watch_address *out, in_port_t port, bool both) {
    struct ifaddrs *list;
    if (getifaddrs(&list)) return; /* untested: no memory */
    /* may be untested: the same */
    for (const struct ifaddrs *i = list; i && out->count < SNUG_WATCH_ADDRESSES; i = i->ifa_next) {
        struct sockaddr_storage *to = &out->addresses[out->count];
        /* may be untested: the same */
        if (!is_usable(i) || (i->ifa_addr->sa_family == AF_INET6 && !both)) continue;
        if (i->ifa_addr->sa_family == AF_INET) { /* may be untested: the same */
            memcpy(to, i->ifa_addr, sizeof(struct sockaddr_in));
            ((struct sockaddr_in *)to)->sin_port = port;
        } else {
            memcpy(to, i->ifa_addr, sizeof(struct sockaddr_in6));
            ((struct sockaddr_in6 *)to)->sin6_port = port;
        }
        out->count++;
    }
    freeifaddrs(list);
}

int snug_watch_listen(struct snug_watch_address *out, const char *host) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    const int no = 0;
    socklen_t length = sizeof any;
    memset(out, 0, sizeof *out);
    snprintf(out->host, sizeof out->host, "%s", host);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* may be untested: a machine without IPv6 */
    if (fd >= 0) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    /* may be untested: the same */
    bool both = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0;
    if (!both) { /* may be untested: a machine without IPv6 */
        if (fd >= 0) close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4)) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0) return -1; /* untested: a machine without a network */
    /* untested: no entropy, no memory */
    if (listen(fd, WAITING) || getrandom(out->token, sizeof out->token, 0) != sizeof out->token ||
        getsockname(fd, (struct sockaddr *)&any, &length)) {
        close(fd);
        return -1;
    }
    /* The port is at the same place in both kinds of addresses. */
    list_addresses(out, any.sin6_port, both);
    return fd;
}

/* ---- other ranks ------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr_storage *address) {
    if (address->ss_family == AF_INET6) /* may be untested: depends on the machine's interfaces */
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* Whether the socket is ready within the time that is left. */
static bool is_ready(int fd, short events, double until) {
    struct pollfd one = {.fd = fd, .events = events};
    const double left = until - snug_seconds();
    /* may be untested: a host that does not answer */
    return left > 0 && poll(&one, 1, (int)(left * 1000) + 1) > 0;
}

static bool greet(int fd, const struct snug_watch_address *address, const struct snug_watch_message *hello,
                  struct snug_watch_message *answer, double until) {
    size_t received = 0;
    if (snug_watch_send(fd, hello)) return false; /* may be untested: a connection that is closed at once */
    /* may be untested: a host that does not answer */
    while (received < sizeof *answer && is_ready(fd, POLLIN, until)) {
        const ssize_t n = recv(fd, (char *)answer + received, sizeof *answer - received, 0);
        if (n <= 0) return false; /* may be untested: another program at this port */
        received += (size_t)n;
    }
    /* may be untested: another program at this port */
    return received == sizeof *answer && snug_watch_is_valid(answer, address);
}

static int try_address(const struct snug_watch_address *address, const struct sockaddr_storage *to,
                       const struct snug_watch_message *hello, struct snug_watch_message *answer) {
    const double until = snug_seconds() + PATIENCE / 1000.0;
    /* may be untested: depends on the machine's interfaces */
    const socklen_t size = to->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int error = 0;
    socklen_t length = sizeof error;
    const int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1; /* untested: a machine without the family */
    /* may be untested: depends on timing and the network */
    const bool began = connect(fd, (const struct sockaddr *)to, size) == 0 || errno == EINPROGRESS;
    /* may be untested: depends on timing and the network */
    if (began && is_ready(fd, POLLOUT, until) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
        error == 0 && greet(fd, address, hello, answer, until)) {
        snug_watch_tune(fd);
        return fd;
    }
    close(fd);
    return -1;
}

int snug_watch_connect(const struct snug_watch_address *address, const char *host,
                       const struct snug_watch_message *hello, struct snug_watch_message *answer) {
    const bool same_host = strcmp(host, address->host) == 0;
    /* The loopback first, where it may be rank 0's: it is never filtered, and there may be no other. */
    for (int loopback = same_host; loopback >= 0; loopback--)
        for (int i = 0; i < address->count; i++) {
            if (is_loopback(&address->addresses[i]) != (loopback == 1)) continue;
            const int fd = try_address(address, &address->addresses[i], hello, answer);
            if (fd >= 0) return fd; /* may be untested: depends on the network */
        }
    return -1;
}
