/* SPDX-License-Identifier: MIT */
/* Models over HTTP (docs/reference/http.md). One thread speaks HTTP, one alone calls models. */
#ifndef PAL_SERVE_SERVE_H
#define PAL_SERVE_SERVE_H

#include "palimpsa/bundle.h"
#include "palimpsa/session.h"

typedef struct pal_serve_model {
    const char *name;
    pal_bundle bundle; /* borrowed; its scratch is the server's while it runs */
} pal_serve_model;

typedef struct pal_serve_options {
    const char *host;
    int port;             /* 0: any */
    const char *api_key;  /* NULL: none is asked for */
    const char *cors;     /* an origin that pages may call from; NULL: none */
    const char *template; /* of chats: a built-in one's name, or a file; NULL: the model's own, else plain */
    int max_sessions;     /* texts at a time */
    int max_queue;        /* requests that wait; more are refused */
    size_t max_body;      /* bytes of a request */
    size_t max_answer;    /* bytes of RAM that answers may take together: one that takes more is refused, or ends */
    int max_tokens;       /* that a request may ask for */
    double timeout; /* seconds in which a request must have come, and a stream be read on; bodies get more by size */
    int context;          /* tokens that attention layers hold */
    int speculate;        /* tokens that a text which runs alone guesses; 0: none */
    size_t memory_budget; /* bytes that texts which run and the cache may take */
    int cache_distance;   /* tokens between snapshots of a prompt, a multiple of 256; 0: nothing is cached */
    const char *keep;       /* a directory for what the cache holds, to be found after a restart; NULL: none */
    size_t keep_disk;       /* bytes of its files */
    const char *memory_dir; /* where memories are kept; NULL: in a directory that ends with the server */
    size_t memory_disk;     /* bytes of their files */
    const char *web;  /* a directory with the page's files, read when they are asked for; NULL: the built-in ones */
    const char *runs; /* a directory with training runs; NULL: none */
    bool log_json;
    void (*log)(void *user, const char *line); /* a line a request; called by any thread */
    void *user;
} pal_serve_options;

/* How the server will run each model. */
pal_engine_options pal_serve_engine_options(const pal_serve_options *options);

typedef struct pal_server pal_server;
/* No model at all is fine: then only the page, and what is in `runs`, are served. */
pal_status pal_serve_start(pal_server **out, const pal_serve_model *models, int count, const pal_context *cx,
                           const pal_serve_options *options, pal_error *err);
int pal_serve_port(const pal_server *server);
/* Takes no more requests, lets those that run end for at most `seconds`, then ends them, and frees everything. */
void pal_serve_stop(pal_server *server, double seconds);

#endif
