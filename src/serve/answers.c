/* SPDX-License-Identifier: MIT */
/* Answers as HTTP: headers, JSON, errors, and what long ones hold. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"

serve_result serve_send(serve_exchange *x, int status, const char *type, struct MHD_Response *response) {
    const char *cors = x->server->options.cors;
    MHD_add_response_header(response, "Content-Type", type);
    if (x->allow) MHD_add_response_header(response, "Allow", x->allow);
    if (status == 429 || status == 503) MHD_add_response_header(response, "Retry-After", "1");
    if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (cors) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", cors);
        /* Clients for browsers send headers of their own, which change nothing here. */
        const char *asked = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                        "Access-Control-Request-Headers");
        MHD_add_response_header(response, "Access-Control-Allow-Headers",
                                asked ? asked : "Authorization, Content-Type");
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    }
    x->status = status;
    if (x->aside) {
        x->aside->response = response;
        return MHD_YES;
    }
    if (x->held) serve_connection_stage(x, SERVE_SENDING, x->held);
    const serve_result result = MHD_queue_response(x->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    x->answered = true;
    return result;
}

serve_result serve_reply(serve_exchange *x, int status, const char *type, const char *text, size_t size) {
    struct MHD_Response *response = MHD_create_response_from_buffer(size, (void *)text, MHD_RESPMEM_MUST_COPY);
    return response ? serve_send(x, status, type, response) : MHD_NO;
}

/* A long answer counts among what requests hold until it is read. A short one always has room: /health says more than
 * that there is none. */
static bool hold_answer(serve_exchange *x, size_t size) {
    if (size <= SERVE_LONG_BODY) return true;
    pthread_mutex_lock(&x->server->lock);
    const bool fits = serve_hold(x->server, size);
    pthread_mutex_unlock(&x->server->lock);
    if (fits) x->held += size;
    return fits;
}

serve_result serve_reply_text(serve_exchange *x, int status, char *text) {
    if (!text) return serve_error(x, 500, NULL, "out of memory for an answer");
    const size_t size = strlen(text);
    const bool fits = hold_answer(x, size);
    struct MHD_Response *response = fits ? MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response) return serve_send(x, status, "application/json", response);
    free(text);
    return fits ? MHD_NO : serve_error(x, 503, NULL, "%s", serve_too_many);
}

serve_result serve_reply_json(serve_exchange *x, int status, json_t *value) {
    char *text = pal_json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(value);
    return serve_reply_text(x, status, text);
}

json_t *serve_error_json(int status, const char *param, const char *message) {
    const char *type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    return json_pack("{s:{s:o, s:s, s:s?, s:n}}", "error", "message", pal_json_bytes(message, strlen(message)), "type",
                     type, "param", param, "code");
}

static const char no_memory[] = "{\"error\":{\"message\":\"no memory\",\"type\":\"server_error\"}}";

/* For free(); NULL: there is no memory. */
static char *error_text(int status, const char *param, const char *message) {
    json_t *value = serve_error_json(status, param, message);
    char *text = pal_json_dumps(value, JSON_COMPACT);
    json_decref(value);
    return text;
}

serve_result serve_error(serve_exchange *x, int status, const char *param, const char *format, ...) {
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    char *text = error_text(status, param, message);
    const char *shown = text ? text : no_memory;
    const serve_result result = serve_reply(x, status, "application/json", shown, strlen(shown));
    free(text);
    return result;
}

/* The HTTP library does not answer in the midst of a body. */
void serve_cut_off(serve_exchange *x, int status, const char *message) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char *text = error_text(status, NULL, message), head[256];
    const char *shown = text ? text : no_memory;
    const int size = snprintf(head, sizeof head,
                              "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Type: application/json\r\n%s"
                              "Content-Length: %zu\r\n\r\n",
                              status, MHD_get_reason_phrase_for((unsigned)status),
                              status == 503 ? "Retry-After: 1\r\n" : "", strlen(shown));
    if (info && send(info->connect_fd, head, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) == size)
        (void)send(info->connect_fd, shown, strlen(shown), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (info) shutdown(info->connect_fd, SHUT_WR);
    free(text);
    x->status = status;
    x->cut = true;
}
