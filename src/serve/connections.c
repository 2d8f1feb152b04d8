/* SPDX-License-Identifier: MIT */
/* Deadlines of connections. libmicrohttpd ends connections that are silent, not those that send a byte now and then,
 * and it overlooks a client that sends and closes at once; so sockets that owe us the rest of a request are watched. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/inside.h"

static serve_connection *of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void serve_connection_notify(void *user, struct MHD_Connection *connection, void **context,
                             enum MHD_ConnectionNotificationCode code) {
    pal_server *s = user;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        serve_connection *c = pal_alloc(1, sizeof *c);
        *context = c;
        if (!c) return;
        const int unsent = SERVE_UNSENT / 2; /* what the system holds for a reader is bounded too */
        if (info) setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &unsent, sizeof unsent);
        *c = (serve_connection){ .socket = info ? info->connect_fd : -1, .since = pal_seconds(), .owes = true };
        pthread_mutex_lock(&s->lock);
        c->next = s->connections;
        if (c->next) c->next->previous = c;
        s->connections = c;
        s->connection_count++;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    serve_connection *c = *context;
    if (!c) return;
    pthread_mutex_lock(&s->lock);
    if (c->next) c->next->previous = c->previous;
    *(c->previous ? &c->previous->next : &s->connections) = c->next;
    s->connection_count--;
    pthread_mutex_unlock(&s->lock);
    pal_free(c);
    *context = NULL;
}

void serve_connection_stage(serve_exchange *x, serve_stage stage, size_t bytes) {
    serve_connection *c = of(x->connection);
    if (!c) return;
    pthread_mutex_lock(&x->server->lock);
    c->owes = stage != SERVE_ANSWERING;
    c->reads = stage == SERVE_SENDING;
    c->bytes = stage == SERVE_BODY ? c->bytes + bytes : bytes;
    if (stage != SERVE_BODY || !c->bytes) c->since = pal_seconds();
    pthread_mutex_unlock(&x->server->lock);
}

bool serve_hung_up(int socket) {
    struct pollfd end = { .fd = socket, .events = POLLRDHUP };
    return poll(&end, 1, 0) > 0;
}

/* Closed, and all that came was taken. What was not yet taken may be the rest of a request. */
static bool has_ended(int socket) {
    char byte;
    const ssize_t n = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void serve_connections_watch(pal_server *s) {
    static const char late[] = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
                               "Content-Length: 124\r\n\r\n"
                               "{\"error\":{\"message\":\"the request did not come in time (--timeout)\","
                               "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
    const double now = pal_seconds();
    for (serve_connection *c = s->connections; c; c = c->next) {
        if (!c->owes || c->socket < 0) continue;
        const double allowed = s->options.timeout + (double)c->bytes / SERVE_BYTES_A_SECOND;
        const bool gone = !c->reads && has_ended(c->socket);
        if (!gone && now - c->since < allowed) continue;
        c->owes = false;
        if (!gone && !c->reads) (void)send(c->socket, late, sizeof late - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        shutdown(c->socket, SHUT_RDWR); /* the HTTP thread wakes up and ends it */
    }
}
