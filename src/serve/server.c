/* SPDX-License-Identifier: MIT */
/* HTTP: routes, who may ask, bodies, and the life of the server. */
#include "serve/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "format/json.h"
#include "model/model.h"
#include "model/surgery.h"
#include "serve/inside.h"
#include "text/json_text.h"
#include "text/strings.h"

static const serve_route routes[] = {
    { "POST", "/v1/completions", serve_completions, false },
    { "POST", "/v1/chat/completions", serve_chat, false },
    { "POST", "/v1/observe", serve_observe_post, false },
    { "POST", "/v1/observe/{}", serve_observe_change, false },
    { "GET", "/v1/models", serve_models, false },
    { "GET", "/v1/models/{}", serve_model_get, false },
    { "GET", "/v1/recall", serve_recall, false },
    { "POST", "/v1/attribution", serve_attribution, .aside = true },
    { "GET", "/v1/runs", serve_runs, false },
    { "GET", "/v1/runs/metrics", serve_run_metrics, false },
    { "GET", "/v1/memories", serve_memories, false },
    { "POST", "/v1/memories", serve_memories_make, false },
    { "GET", "/v1/memories/{}", serve_memory_get, false },
    { "POST", "/v1/memories/{}", serve_memory_name, false },
    { "DELETE", "/v1/memories/{}", serve_memory_drop, false },
    { "GET", "/v1/memories/{}/file", serve_memory_file, false },
    { "POST", "/v1/memories/{}/marks", serve_memory_mark, false },
    { "DELETE", "/v1/memories/{}/marks/{}", serve_mark_drop, false },
    { "POST", "/v1/memories/{}/rollback", serve_memory_rollback, false },
    { "POST", "/tokenize", serve_tokenize, false },
    { "POST", "/detokenize", serve_detokenize, false },
    { "GET", "/tokenizer_info", serve_tokenizer_info, false },
    { "GET", "/health", serve_health, true },
    { "GET", "/metrics", serve_metrics, false },
    { "GET", "/openapi.json", serve_openapi, true },
};
static const serve_route asset_route = { "GET", "", serve_asset_get, true };
enum { ROUTES = sizeof routes / sizeof *routes, CONNECTIONS = 4096 };

const char serve_too_many[] = "other requests take all the memory that there is for requests; try again";

bool serve_hold(pal_server *s, size_t bytes) {
    const size_t bodies = SERVE_HELD_BODIES * s->options.max_body;
    const size_t most = bodies > SERVE_HELD_LEAST ? bodies : SERVE_HELD_LEAST;
    if (bytes > most - s->held) return false;
    s->held += bytes;
    return true;
}

static void drop_body(serve_exchange *x) {
    pthread_mutex_lock(&x->server->lock);
    x->server->held -= x->held;
    pthread_mutex_unlock(&x->server->lock);
    x->held = 0;
    pal_bytes_free(&x->body);
}

/* An empty object takes eighty times its bytes once it is read; requests that people make have few. */
enum { MOST_OBJECTS = 1 << 16 };

json_t *serve_body(serve_exchange *x, serve_result *result) {
    json_error_t why;
    bool starved = false;
    if (pal_json_containers((const char *)x->body.data, x->body.size) > MOST_OBJECTS) {
        drop_body(x);
        *result = serve_error(x, 400, NULL, "the body has more than %d objects and lists", MOST_OBJECTS);
        return NULL;
    }
    json_t *root = pal_json_parse(x->body.data ? (const char *)x->body.data : "", x->body.size, JSON_ALLOW_NUL, &why,
                                  &starved);
    drop_body(x);
    if (starved) *result = serve_error(x, 500, NULL, "out of memory for the body");
    else if (!root) *result = serve_error(x, 400, NULL, "the body is not JSON: %s (line %d)", why.text, why.line);
    else if (!json_is_object(root)) {
        *result = serve_error(x, 400, NULL, "the body is JSON, but not an object");
        json_decref(root);
        root = NULL;
    }
    return root;
}

serve_model *serve_find_model(serve_exchange *x, const json_t *root, serve_result *result) {
    const json_t *name = json_object_get(root, "model");
    if (!name || json_is_null(name) || json_is_string(name))
        return serve_find_named(x, json_string_value(name), result);
    *result = serve_error(x, 400, "model", "'model': expected a name");
    return NULL;
}

serve_model *serve_find_named(serve_exchange *x, const char *name, serve_result *result) {
    pal_server *s = x->server;
    if (!s->count) {
        *result = serve_error(x, 404, "model", "this server has no model");
        return NULL;
    }
    for (int i = 0; i < s->count && name; i++)
        if (strcmp(name, s->models[i].name) == 0) return &s->models[i];
    const char *plain = name ? strrchr(name, '@') : NULL;
    /* plasticity is what it says */
    if (s->given == 1 && !(plain && strcmp(plain, "@plain") == 0)) return &s->models[0];
    *result = name ? serve_error(x, 404, "model", "no model is called '%.100s'", name)
                   : serve_error(x, 400, "model", "'model': expected one of /v1/models");
    return NULL;
}

/* Every byte is looked at, whatever the first difference is. */
static bool same_key(const char *given, const char *key) {
    const size_t n = strlen(given), m = strlen(key);
    unsigned char different = n != m;
    for (size_t i = 0; i < n; i++) different |= (unsigned char)(given[i] ^ key[m ? i % m : 0]);
    return !different;
}

/* "Bearer KEY"; the scheme is of any case, and blanks may follow it. */
static bool may_enter(const char *authorization, const char *key) {
    static const char scheme[] = "Bearer ";
    const size_t n = sizeof scheme - 1;
    if (!authorization || strncasecmp(authorization, scheme, n) != 0) return false;
    return same_key(authorization + n + strspn(authorization + n, " "), key);
}

/* A name such as 127.example.org is not an address: its owner may point it here. */
static bool loopback(const char *host) {
    struct in_addr address;
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 || strcmp(host, "[::1]") == 0 ||
           (strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &address) == 1);
}

/* "name:port" or "[address]:port" without the port. */
static void host_name(char out[256], const char *header) {
    snprintf(out, 256, "%s", header);
    char *colon = strrchr(out, ':');
    if (colon && (out[0] != '[' || strchr(colon, ']') == NULL)) *colon = '\0';
}

/* A page that a browser shows must not be able to ask: its Origin is foreign, or (when a name was pointed at this
 * machine) its Host is. */
static bool foreign(serve_exchange *x) {
    const pal_serve_options *o = &x->server->options;
    const char *host = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Origin");
    char name[256];
    if (host) {
        host_name(name, host);
        if (loopback(o->host) && !loopback(name) && strcmp(name, o->host) != 0) return true;
    }
    if (!origin || (o->cors && (strcmp(o->cors, "*") == 0 || strcmp(o->cors, origin) == 0))) return false;
    const char *rest = strncmp(origin, "http://", 7) == 0 ? origin + 7 : origin;
    return !host || strcmp(rest, host) != 0;
}

/* Whether a path is one of this route, whose {} stand for anything but a slash; *parts are what they stand for. */
static bool path_fits(const char *route, char *path, char *parts[2]) {
    int n = 0;
    while (*route && *path) {
        if (route[0] == '{') {
            const size_t size = strcspn(path, "/");
            if (!size) return false;
            parts[n++] = path;
            path += size;
            route += 2;
        } else if (*route++ != *path++) {
            return false;
        }
    }
    return !*route && !*path;
}

/* Finds the route; says whether the path is one of any method. HEAD is GET whose answer libmicrohttpd sends without its
 * body. */
static bool find_route(serve_exchange *x) {
    const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method;
    bool known = false;
    for (int i = 0; i < ROUTES; i++) {
        char *parts[2] = { 0 };
        if (!path_fits(routes[i].path, x->path, parts)) continue;
        known = true;
        if (strcmp(routes[i].method, method) != 0) continue;
        x->route = &routes[i];
        for (int p = 0; p < 2 && parts[p]; p++)
            snprintf(x->parts[p], sizeof x->parts[p], "%.*s", (int)strcspn(parts[p], "/"), parts[p]);
    }
    if (!known && strcmp(method, "GET") == 0 && serve_has_asset(x->server, x->path)) x->route = &asset_route;
    return known;
}

/* 405 with the methods that the path has. */
static serve_result refuse_method(serve_exchange *x) {
    char allowed[64] = "";
    for (int i = 0; i < ROUTES; i++) {
        char *parts[2] = { 0 };
        if (!path_fits(routes[i].path, x->path, parts)) continue;
        const size_t n = strlen(allowed);
        snprintf(allowed + n, sizeof allowed - n, "%s%s", n ? ", " : "",
                 strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
    }
    x->allow = allowed;
    const serve_result result = serve_error(x, 405, NULL, "%.20s is not a method of this path, which has %s", x->method,
                                            allowed);
    x->allow = NULL;
    return result;
}

/* A file is not held in memory: it has its own limit, and goes to disk as it comes. */
static bool is_upload(const serve_exchange *x) {
    const char *type = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Type");
    return x->route->run == serve_memories_make && type && strncmp(type, "application/octet-stream", 24) == 0;
}

/* What can be said before the body is read; true: it was answered. */
static bool refuse_early(serve_exchange *x, serve_result *result) {
    const pal_serve_options *o = &x->server->options;
    const bool path_known = find_route(x);
    if (foreign(x)) {
        *result = serve_error(x, 403, NULL, "requests from other origins and for other hosts are refused");
        return true;
    }
    if (strcmp(x->method, "OPTIONS") == 0 && o->cors) {
        *result = serve_reply(x, 204, "text/plain", "", 0);
        return true;
    }
    if (!x->route) {
        *result = path_known ? refuse_method(x)
                             : serve_error(x, 404, NULL, "no such path; /openapi.json lists those there are");
        return true;
    }
    const char *key = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Authorization");
    if (o->api_key && !x->route->open && !may_enter(key, o->api_key)) {
        *result = serve_error(x, 401, NULL, "this server wants its key: Authorization: Bearer KEY");
        return true;
    }
    if (is_upload(x)) return !serve_upload_begin(x, result);
    const char *length = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    if (length && strtoull(length, NULL, 10) > o->max_body) {
        *result = serve_error(x, 413, NULL, "the body has %.20s bytes, expected at most %zu", length, o->max_body);
        return true;
    }
    return false;
}

/* A piece of a body; a status that is not 0 says why it is not taken. */
static int take_body(serve_exchange *x, const char *data, size_t size, char why[256]) {
    pal_server *s = x->server;
    const size_t before = x->body.capacity;
    if (x->upload) {
        serve_upload_take(x->upload, data, size);
        snprintf(why, 256, "%s", x->upload->error);
        return x->upload->status;
    }
    if (size > s->options.max_body - x->body.size) {
        snprintf(why, 256, "the body has more than %zu bytes, which is the most", s->options.max_body);
        return 413;
    }
    if (pal_bytes_append(&x->body, data, size, NULL)) {
        snprintf(why, 256, "out of memory for a body");
        return 500;
    }
    pthread_mutex_lock(&s->lock);
    const bool fits = serve_hold(s, x->body.capacity - before);
    pthread_mutex_unlock(&s->lock);
    if (fits) x->held += x->body.capacity - before;
    else snprintf(why, 256, "%s", serve_too_many);
    return fits ? 0 : 503;
}

/* Requests that have come and wait for their answer or the end of it. */
static void count_answering(pal_server *s, int change) {
    pthread_mutex_lock(&s->lock);
    s->answering += change;
    pthread_mutex_unlock(&s->lock);
}

static serve_result access_handler(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                   const char *version, const char *data, size_t *size, void **state) {
    pal_server *s = user;
    serve_exchange *x = *state;
    serve_result result = MHD_YES;
    (void)version;
    if (!x) {
        if (!(x = pal_alloc(1, sizeof *x))) return MHD_NO;
        *x = (serve_exchange){ .server = s, .connection = connection, .arrived = pal_seconds() };
        x->path = pal_strdup(url);
        x->method = method;
        *state = x;
        if (!x->path) return MHD_NO;
        serve_connection_stage(x, SERVE_BODY, 0);
        refuse_early(x, &result);
        return result;
    }
    x->method = method;
    if (*size) {
        char why[256];
        const int status = x->cut ? 0 : take_body(x, data, *size, why);
        if (x->cut) x->ignored += *size;
        else if (status) serve_cut_off(x, status, why), drop_body(x);
        else serve_connection_stage(x, SERVE_BODY, *size);
        *size = 0;
        return x->ignored > s->options.max_body ? MHD_NO : MHD_YES;
    }
    if (x->cut) return MHD_NO;
    if (!x->complete) {
        serve_connection_stage(x, SERVE_ANSWERING, 0);
        x->complete = true;
        pal_json_forget();
        count_answering(s, 1);
    }
    if (x->answered) return MHD_YES;
    if (x->job) return serve_job_answer(x);
    if (x->was_aside) return serve_after_aside(x);
    return x->route->aside || x->body.size > SERVE_LONG_BODY ? serve_read_aside(x) : x->route->run(x);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why) {
    pal_server *s = user;
    serve_exchange *x = *state;
    (void)connection, (void)why;
    if (!x) return;
    pthread_mutex_lock(&s->lock);
    s->counts.requests++;
    if (x->status >= 400) s->counts.errors++;
    if (x->path) serve_log_request(x);
    pthread_mutex_unlock(&s->lock);
    if (x->complete) count_answering(s, -1);
    if (x->job) serve_job_leave(x->job);
    serve_upload_end(x);
    if (x->response) MHD_destroy_response(x->response);
    serve_connection_stage(x, SERVE_HEADERS, 0); /* of the next request */
    drop_body(x);
    pal_free(x->path);
    pal_free(x);
    *state = NULL;
}

pal_engine_options pal_serve_engine_options(const pal_serve_options *o) {
    return (pal_engine_options){
        .context = o->context, .variance = true, .read_seconds = 0.2, .speculate = o->speculate
    };
}

pal_status serve_model_engine(pal_server *s, serve_model *m, pal_error *err) {
    const pal_engine_options options = pal_serve_engine_options(&s->options);
    return m->engine ? PAL_OK : pal_engine_new(&m->engine, m->bundle.model, m->bundle.tokenizer, s->cx, &options, err);
}

static pal_status open_model(serve_model *to, const pal_serve_model *from, const pal_serve_options *o, pal_error *err) {
    const size_t state = pal_state_bytes(from->bundle.model, o->context);
    const size_t vocab = pal_tokenizer_size(from->bundle.tokenizer);
    *to = (serve_model){ .bundle = from->bundle,
                         .created = time(NULL),
                         .session_bytes = state + vocab,
                         .fixed_bytes = pal_state_bytes(from->bundle.model, 0) + vocab,
                         .page_bytes = pal_state_bytes(from->bundle.model, 1) - pal_state_bytes(from->bundle.model, 0),
                         .file_bytes = state + vocab / 8 + 256 }; /* the head, and what a session adds */
    if (to->session_bytes > o->memory_budget)
        return pal_fail(err, PAL_E_ARGUMENT, "--memory-budget %zu: one text of %s needs %zu bytes", o->memory_budget,
                        from->name, to->session_bytes);
    json_t *name = pal_json_bytes(from->name, strlen(from->name)); /* as a client can say it */
    to->name = name ? pal_strdup(json_string_value(name)) : NULL;
    json_decref(name);
    if (!to->name) return pal_fail(err, PAL_E_MEMORY, "out of memory for a model's name");
    if (pal_model_grows(pal_model_config_of(from->bundle.model))) to->context = o->context;
    const pal_status st = pal_tokenizer_scratch_new(&to->aside_scratch, from->bundle.tokenizer, err);
    if (st) return st;
    pal_error why;
    if (pal_chat_open(&to->chat, from->bundle.tokenizer, o->template, &why) == PAL_OK) return PAL_OK;
    if (o->template) return pal_fail(err, why.status, "--chat-template: %.480s", why.text);
    snprintf(to->chat_error, sizeof to->chat_error, "%.255s", why.text);
    return PAL_OK;
}

/* The same weights with plasticity off, for those who want to see what it does. Its engine is made when it is used. */
static pal_status open_plain(pal_server *s, const serve_model *from, pal_error *err) {
    const pal_model_config *c = pal_model_config_of(from->bundle.model);
    char name[1024];
    bool metaplastic = false;
    for (int i = 0; i < c->layers; i++) metaplastic |= strcmp(pal_model_layer_rule(c, i), "palimpsa") == 0;
    if (!metaplastic) return PAL_OK;
    serve_model *to = &s->models[s->count];
    *to = *from;
    to->name = NULL, to->engine = NULL, to->bundle.model = NULL;
    to->plain_of = from;
    s->count++;
    snprintf(name, sizeof name, "%s@plain", from->name);
    if (!(to->name = pal_strdup(name))) return pal_fail(err, PAL_E_MEMORY, "out of memory for a model's name");
    const pal_status st = pal_model_view(&to->bundle.model, from->bundle.model, NULL, err);
    if (st) return st;
    const size_t state = pal_state_bytes(to->bundle.model, s->options.context);
    to->fixed_bytes -= pal_state_bytes(from->bundle.model, s->options.context) - state;
    to->session_bytes -= pal_state_bytes(from->bundle.model, s->options.context) - state;
    to->file_bytes -= pal_state_bytes(from->bundle.model, s->options.context) - state;
    return PAL_OK;
}

/* As many sockets as the system lets us have. */
static void raise_limits(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= CONNECTIONS + 256) return;
    limit.rlim_cur = limit.rlim_max < CONNECTIONS + 256 ? limit.rlim_max : CONNECTIONS + 256;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static pal_status listen_on(pal_server *s, pal_error *err) {
    const pal_serve_options *o = &s->options;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    const int why = getaddrinfo(o->host, port, &hints, &found);
    if (why) return pal_fail(err, PAL_E_ARGUMENT, "%s: %s", o->host, gai_strerror(why));
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           (found->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u);
    errno = 0;
    s->daemon = MHD_start_daemon(flags, (uint16_t)o->port, NULL, NULL, access_handler, s, MHD_OPTION_SOCK_ADDR,
                                 found->ai_addr, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_NOTIFY_CONNECTION, serve_connection_notify, s, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)ceil(o->timeout),
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)65536, MHD_OPTION_END);
    const int failed = errno;
    freeaddrinfo(found);
    if (!s->daemon)
        return pal_fail(err, PAL_E_IO, "cannot listen on %s port %d: %s%s", o->host, o->port,
                        failed ? strerror(failed) : "is it taken?",
                        failed == EADDRINUSE ? "; another program listens there" : "");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    s->port = info ? info->port : o->port;
    return PAL_OK;
}

pal_status pal_serve_start(pal_server **out, const pal_serve_model *models, int count, const pal_context *cx,
                           const pal_serve_options *options, pal_error *err) {
    void *block;
    pal_status st;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_server), "a server", err))) return st;
    pal_server *s = block;
    s->options = *options;
    s->started = pal_seconds();
    s->store.lock_file = -1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic; /* who waits does not care what time it is set to */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&s->wake_aside, NULL);
    s->cx = cx;
    st = pal_alloc_named((void **)&s->models, 2 * (size_t)count, sizeof *s->models, "models", err);
    while (!st && s->count < count) {
        serve_model *m = &s->models[s->count];
        st = open_model(m, &models[s->count++], options, err);
        if (!st) st = serve_model_engine(s, m, err);
    }
    s->given = s->count;
    for (int i = 0; !st && i < count; i++) st = open_plain(s, &s->models[i], err);
    raise_limits();
    if (!st) st = serve_store_open(s, err);
    if (!st && options->keep) st = serve_keep_open(&s->cache.keep, s, options->keep, options->keep_disk, err);
    if (!st && (!serve_worker_start(s) || !serve_aside_start(s)))
        st = pal_fail(err, PAL_E_MEMORY, "cannot start a thread");
    if (!st) st = listen_on(s, err);
    if (st) {
        pal_serve_stop(s, 0);
        return st;
    }
    *out = s;
    return PAL_OK;
}

int pal_serve_port(const pal_server *s) { return s->port; }

void pal_serve_stop(pal_server *s, double seconds) {
    const double until = pal_seconds() + seconds;
    if (s->daemon) {
        const MHD_socket socket = MHD_quiesce_daemon(s->daemon);
        if (socket != MHD_INVALID_SOCKET) close(socket);
    }
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->wake_aside);
    while ((s->running || s->queue || s->answering) && pal_seconds() < until) {
        pthread_mutex_unlock(&s->lock);
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
        pthread_mutex_lock(&s->lock);
    }
    for (serve_job *job = s->running; job; job = job->next) job->cancelled = true;
    for (serve_job *job = s->queue; job; job = job->next) job->cancelled = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->working) pthread_join(s->worker, NULL); /* resumes every connection on its way */
    if (s->reading) pthread_join(s->reader, NULL); /* the same */
    if (s->daemon) MHD_stop_daemon(s->daemon);
    serve_keep_close(s->cache.keep); /* once what waits is written */
    s->cache.keep = NULL;
    serve_cache_empty(&s->cache);
    serve_drop_spare(s);
    serve_store_close(s);
    for (int i = 0; i < s->count; i++) {
        pal_engine_free(s->models[i].engine);
        if (s->models[i].plain_of) pal_model_close(s->models[i].bundle.model);
        else pal_tokenizer_scratch_free(s->models[i].aside_scratch), pal_chat_free(s->models[i].chat);
        pal_free(s->models[i].name);
    }
    pal_free(s->models);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->wake_aside);
    pal_free(s);
}
