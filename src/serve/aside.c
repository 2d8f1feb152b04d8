/* SPDX-License-Identifier: MIT */
/* Long requests are read by their own thread: the JSON and the tokens of many megabytes take seconds, in which the
 * thread that speaks HTTP answers others. Meanwhile the connection is suspended, and nothing else touches its exchange.
 * What the handler answers is sent by the HTTP thread, to which the connection then goes back. */
#include "serve/inside.h"

serve_result serve_read_aside(serve_exchange *x) {
    pal_server *s = x->server;
    pthread_mutex_lock(&s->lock);
    const bool stopping = s->stopping, full = s->aside_count >= s->options.max_queue;
    if (!stopping && !full) {
        serve_exchange **end = &s->aside;
        while (*end) end = &(*end)->next_aside;
        *end = x;
        s->aside_count++;
        x->was_aside = true;
        MHD_suspend_connection(x->connection);
        pthread_cond_signal(&s->wake_aside);
    } else if (!stopping) {
        s->counts.refused++;
    }
    pthread_mutex_unlock(&s->lock);
    if (stopping) return serve_error(x, 503, NULL, "the server is stopping");
    if (full) return serve_error(x, 429, NULL, "%d long requests wait already; try again", s->options.max_queue);
    return MHD_YES;
}

serve_result serve_after_aside(serve_exchange *x) {
    struct MHD_Response *response = x->response;
    if (!response) return MHD_NO; /* out of memory */
    if (x->held) serve_connection_stage(x, SERVE_SENDING, x->held);
    const serve_result result = MHD_queue_response(x->connection, (unsigned)x->status, response);
    MHD_destroy_response(response);
    x->response = NULL;
    x->answered = true;
    return result;
}

static void *read_long(void *user) {
    pal_server *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stopping || s->aside) {
        serve_exchange *x = s->aside;
        if (!x) {
            pthread_cond_wait(&s->wake_aside, &s->lock);
            continue;
        }
        const bool stopping = s->stopping;
        serve_aside outcome = { 0 };
        s->aside = x->next_aside;
        x->aside = &outcome;
        pthread_mutex_unlock(&s->lock);
        if (stopping) (void)serve_error(x, 503, NULL, "the server is stopping");
        else (void)x->route->run(x);
        pthread_mutex_lock(&s->lock);
        s->aside_count--;
        if (outcome.handed) continue; /* it is a job's now, and may be gone */
        x->response = outcome.response;
        x->aside = NULL;
        MHD_resume_connection(x->connection);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

bool serve_aside_start(pal_server *s) {
    s->reading = pthread_create(&s->reader, NULL, read_long, s) == 0;
    return s->reading;
}
