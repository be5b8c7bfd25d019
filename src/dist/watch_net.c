/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/watch_net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "dist/dial.h"

enum {
    UNACKNOWLEDGED = 5000, /* milliseconds */
    PATIENCE = 2000,       /* milliseconds that sending may take */
    WAITING = 4096,        /* connections that have not been accepted yet; the kernel lowers it */
    TICK = 50,             /* milliseconds */
};
static const double reach_seconds = 2;   /* in which a host accepts a connection: longer, and a firewall drops it */
static const double answer_seconds = 30; /* in which rank 0 answers once it is connected: it may have been stopped */
static const double stagger = 0.2;       /* between the calls of addresses of which the first is better */

void snug_watch_tune(int fd) {
    const int yes = 1, idle = UNACKNOWLEDGED / 1000;
    const unsigned most = UNACKNOWLEDGED;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* messages are small, and the other end waits */
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes); /* the same where nothing is sent */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &yes, sizeof yes);
}

int snug_watch_send(int fd, const struct snug_watch_message *message) {
    size_t sent = 0;
    while (sent < sizeof *message) {
        const ssize_t n = send(fd, (const char *)message + sent, sizeof *message - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        if (n >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) return errno;
        if (sent == 0) return 0;
        struct pollfd until = {.fd = fd, .events = POLLOUT};
        if (poll(&until, 1, PATIENCE) == 0) return ETIMEDOUT;
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
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return false;
    if (i->ifa_addr->sa_family == AF_INET) return true;
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr);
}

static void list_addresses(struct snug_watch_address *out, in_port_t port, bool both) {
    struct ifaddrs *list;
    if (getifaddrs(&list)) return;
    for (const struct ifaddrs *i = list; i && out->count < SNUG_WATCH_ADDRESSES; i = i->ifa_next) {
        struct sockaddr_storage *to = &out->addresses[out->count];
        if (!is_usable(i) || (i->ifa_addr->sa_family == AF_INET6 && !both)) continue;
        if (i->ifa_addr->sa_family == AF_INET) {
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
    if (fd >= 0) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    bool both = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0;
    if (!both) {
        if (fd >= 0) close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4)) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0) return -1;
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
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* The loopback first, where it may be rank 0's: it is never filtered, and there may be no other. */
static int prepare_calls(const struct snug_watch_address *address, bool same_host,
                         const struct snug_watch_message *hello, struct snug_dial *dials,
                         struct snug_watch_message *answers) {
    const double now = snug_seconds();
    int count = 0;
    for (int i = 0; i < address->count; i++) {
        const bool loopback = is_loopback(&address->addresses[i]);
        if (loopback && !same_host) continue;
        snug_dial_prepare(&dials[count], (const struct sockaddr *)&address->addresses[i],
                          now + (same_host && !loopback ? stagger : 0));
        dials[count].hello = hello;
        dials[count].answer = &answers[count];
        dials[count].hello_size = dials[count].answer_size = sizeof *hello;
        count++;
    }
    return count;
}

/* The socket that a valid answer comes from; -1: none yet. */
static int work_dials(struct snug_dial *dials, int count, const struct snug_watch_address *address,
                      struct snug_watch_message *answer) {
    struct pollfd polled[SNUG_WATCH_ADDRESSES];
    for (int i = 0; i < count; i++) polled[i] = snug_dial_events(&dials[i]);
    poll(polled, (nfds_t)count, TICK); /* negative descriptors are ignored */
    for (int i = 0; i < count; i++) {
        const double now = snug_seconds();
        if (!snug_dial_work(&dials[i], now)) continue;
        memcpy(answer, dials[i].answer, sizeof *answer);
        if (snug_watch_is_valid(answer, address)) return snug_dial_take(&dials[i]);
        snug_dial_again(&dials[i], now); /* another program at this port */
    }
    return -1;
}

int snug_watch_connect(const struct snug_watch_address *address, const char *host,
                       const struct snug_watch_message *hello, struct snug_watch_message *answer) {
    struct snug_watch_message confirmation = *hello, *answers = calloc(SNUG_WATCH_ADDRESSES, sizeof *answers);
    struct snug_dial dials[SNUG_WATCH_ADDRESSES];
    const double began = snug_seconds();
    int fd = -1;
    bool connected = true;
    const int count = answers ? prepare_calls(address, strcmp(host, address->host) == 0, hello, dials, answers) : 0;
    while (count && fd < 0 && snug_seconds() < began + (connected ? answer_seconds : reach_seconds)) {
        fd = work_dials(dials, count, address, answer);
        connected = false;
        for (int i = 0; i < count; i++) connected |= snug_dial_is_connected(&dials[i]);
    }
    for (int i = 0; i < count; i++) snug_dial_close(&dials[i]);
    free(answers);
    if (fd < 0) return -1;
    snug_watch_tune(fd);
    confirmation.kind = SNUG_WATCH_STATE;
    snug_watch_send(fd, &confirmation); /* if it fails the connection has ended, which its user finds */
    return fd;
}
