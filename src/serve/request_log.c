/* SPDX-License-Identifier: MIT */
/* One line of log for a request, which no client can break or use to move a terminal's cursor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "format/json.h"
#include "serve/inside.h"
#include "text/json_text.h"

enum { LOGGED_METHOD = 20, LOGGED_PATH = 120 }; /* bytes: a line has at most a kilobyte, also escaped as JSON */

/* The beginning of a text in letters that no terminal takes for anything else. */
static void print_plain(char *out, size_t size, const char *text) {
    snprintf(out, size, "%s", text);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > 126) *c = '?';
}

void serve_log_request(const serve_exchange *x) {
    const pal_serve_options *o = &x->server->options;
    const double ms = 1e3 * (pal_seconds() - x->arrived);
    const serve_job *job = x->job;
    if (!o->log) return;
    if (o->log_json) {
        json_t *root = json_pack("{s:I, s:o, s:o, s:i, s:f}", "time", (json_int_t)time(NULL), "method",
                                 pal_json_bytes(x->method, strnlen(x->method, LOGGED_METHOD)), "path",
                                 pal_json_bytes(x->path, strnlen(x->path, LOGGED_PATH)), "status", x->status, "ms", ms);
        if (job) {
            pal_json_set(root, "prompt_tokens", json_integer((json_int_t)job->prompt_tokens));
            pal_json_set(root, "cached_tokens", json_integer((json_int_t)job->cached_tokens));
            pal_json_set(root, "tokens", json_integer((json_int_t)job->written_tokens));
        }
        char *text = pal_json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
        o->log(o->user, text ? text : "{\"error\":\"no memory\"}");
        free(text);
        json_decref(root);
    } else {
        char line[512], method[LOGGED_METHOD + 1], path[LOGGED_PATH + 1];
        print_plain(method, sizeof method, x->method);
        print_plain(path, sizeof path, x->path);
        const int n = snprintf(line, sizeof line, "%s %s %d %.1f ms", method, path, x->status, ms);
        if (job)
            snprintf(line + n, sizeof line - (size_t)n, ", %lld tokens read, %lld cached, %lld written",
                     (long long)(job->prompt_tokens - job->cached_tokens), (long long)job->cached_tokens,
                     (long long)job->written_tokens);
        o->log(o->user, line);
    }
}
