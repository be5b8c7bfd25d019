/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/dial.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static const double first_pause = 0.05, longest_pause = 0.5; /* seconds */
static const double connecting = 3; /* seconds: the kernel would wait longer and longer before it asks again */

static socklen_t size_of(const struct sockaddr *address) {
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

void snug_dial_prepare(struct snug_dial *dial, const struct sockaddr *to, double due) {
    *dial = (struct snug_dial){.due = due, .fd = -1, .pause = first_pause};
    memcpy(&dial->to, to, size_of(to));
}

struct pollfd snug_dial_events(const struct snug_dial *dial) {
    return (struct pollfd){.fd = dial->fd, .events = dial->sent < dial->hello_size ? POLLOUT : POLLIN};
}

void snug_dial_again(struct snug_dial *dial, double now) {
    if (dial->fd >= 0) close(dial->fd);
    dial->fd = -1;
    dial->due = now + dial->pause;
    dial->pause = fmin(2 * dial->pause, longest_pause);
}

void snug_dial_close(struct snug_dial *dial) {
    if (dial->fd >= 0) close(dial->fd);
    dial->fd = -1;
    dial->due = INFINITY;
}

int snug_dial_take(struct snug_dial *dial) {
    const int fd = dial->fd;
    dial->fd = -1;
    dial->due = INFINITY;
    return fd;
}

static void call(struct snug_dial *dial, double now) {
    const struct sockaddr *to = (const struct sockaddr *)&dial->to;
    dial->began = now;
    dial->sent = dial->received = 0;
    dial->fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (dial->fd < 0 || (connect(dial->fd, to, size_of(to)) && errno != EINPROGRESS && errno != EINTR))
        snug_dial_again(dial, now);
}

/* False: nothing is possible now, or the connection has ended and is called again. */
static bool move(struct snug_dial *dial, double now) {
    const bool sends = dial->sent < dial->hello_size;
    const ssize_t n =
        sends ? send(dial->fd, (const char *)dial->hello + dial->sent, dial->hello_size - dial->sent,
                     MSG_DONTWAIT | MSG_NOSIGNAL)
              : recv(dial->fd, (char *)dial->answer + dial->received, dial->answer_size - dial->received, MSG_DONTWAIT);
    if (n > 0) {
        *(sends ? &dial->sent : &dial->received) += (size_t)n;
        return true;
    }
    const bool waits = n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN);
    if (!waits || (dial->sent == 0 && now > dial->began + connecting)) snug_dial_again(dial, now);
    return false;
}

bool snug_dial_work(struct snug_dial *dial, double now) {
    if (dial->fd < 0 && now >= dial->due) call(dial, now);
    while (dial->fd >= 0 && move(dial, now)) {
        if (dial->received < dial->answer_size) continue;
        dial->received = 0; /* of the next one */
        return true;
    }
    return false;
}
