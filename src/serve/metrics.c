/* SPDX-License-Identifier: MIT */
/* GET /metrics, in the text format of Prometheus. */
#include <stdarg.h>

#include "base/clock.h"
#include "base/context.h"
#include "serve/inside.h"
#include "text/strings.h"

typedef struct {
    const char *name, *help;
    double bounds[SERVE_BUCKETS]; /* rising; after the last one comes +Inf */
    int count;
} histogram;

static const histogram histograms[SERVE_HISTOGRAMS] = {
    [SERVE_QUEUE_SECONDS] = { "palimpsa_request_queue_seconds",
                              "Time from a request's arrival to its start.",
                              { .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300 },
                              12 },
    [SERVE_FIRST_TOKEN_SECONDS] = { "palimpsa_time_to_first_token_seconds",
                                    "Time from a request's arrival to its first token.",
                                    { .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300 },
                                    14 },
    [SERVE_TOKEN_SECONDS] = { "palimpsa_time_per_output_token_seconds",
                              "Mean time between the tokens of a text.",
                              { .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .5, 1, 2.5 },
                              14 },
    [SERVE_PROMPT_TOKENS] = { "palimpsa_request_prompt_tokens",
                              "Tokens of a text's prompt.",
                              { 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144 },
                              12 },
    [SERVE_CACHED_RATIO] = { "palimpsa_request_cached_ratio",
                             "Share of a request's prompt tokens that were in the cache.",
                             { 0, .1, .25, .5, .75, .9, .95, .99, 1 },
                             9 },
};

void serve_measure(pal_server *s, serve_histogram which, double value) {
    const histogram *h = &histograms[which];
    int i = 0;
    while (i < h->count && value > h->bounds[i]) i++;
    s->measured[which].in[i]++;
    s->measured[which].sum += value;
}

typedef struct {
    pal_bytes text;
    bool failed;
} writer;

static void add(writer *w, const char *format, ...) PAL_PRINTF(2, 3);
static void add(writer *w, const char *format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    const int size = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (!w->failed && pal_bytes_append(&w->text, line, (size_t)size, NULL)) w->failed = true;
}

static void add_head(writer *w, const char *name, const char *kind, const char *help) {
    add(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void add_counter(writer *w, const char *name, double value, const char *help) {
    add_head(w, name, "counter", help);
    add(w, "%s %.17g\n", name, value);
}

static void add_gauge(writer *w, const char *name, double value, const char *help) {
    add_head(w, name, "gauge", help);
    add(w, "%s %.17g\n", name, value);
}

static void add_histogram(writer *w, const histogram *h, const serve_measured *m) {
    uint64_t below = 0;
    add_head(w, h->name, "histogram", h->help);
    for (int i = 0; i < h->count; i++) {
        below += m->in[i];
        add(w, "%s_bucket{le=\"%g\"} %llu\n", h->name, h->bounds[i], (unsigned long long)below);
    }
    below += m->in[h->count];
    add(w, "%s_bucket{le=\"+Inf\"} %llu\n", h->name, (unsigned long long)below);
    add(w, "%s_sum %.17g\n%s_count %llu\n", h->name, m->sum, h->name, (unsigned long long)below);
}

static size_t weight_bytes(const pal_server *s) {
    size_t bytes = 0;
    for (int m = 0; m < s->given; m++) {
        const pal_model *model = s->models[m].bundle.model;
        for (size_t i = 0; i < pal_model_weight_count(model); i++)
            bytes += pal_weight_bytes(pal_model_weight(model, i));
    }
    return bytes;
}

/* RAM by what it is for. */
static void add_bytes(writer *w, const pal_server *s) {
    const char *name = "palimpsa_bytes";
    add_head(w, name, "gauge", "RAM by purpose, as the server counts it; weights may be mapped from their file.");
    add(w, "%s{purpose=\"weights\"} %zu\n", name, weight_bytes(s));
    add(w, "%s{purpose=\"texts\"} %zu\n", name, s->session_fixed);
    add(w, "%s{purpose=\"cache\"} %zu\n", name, s->cache_bytes);
    add(w, "%s{purpose=\"pages\"} %zu\n", name, s->page_bytes);
    add(w, "%s{purpose=\"answers\"} %zu\n", name, s->answers);
    add(w, "%s{purpose=\"requests\"} %zu\n", name, s->held);
}

static void add_kept(writer *w, serve_kept_counts c) {
    add_gauge(w, "palimpsa_kept_bytes", (double)c.bytes, "Files of kept prompts.");
    add_gauge(w, "palimpsa_kept_prompts", (double)c.files, "Kept prompts in files, by number.");
    add_counter(w, "palimpsa_kept_found_total", (double)c.found, "Prompts that were read from a file.");
    add_counter(w, "palimpsa_kept_failed_total", (double)c.failed, "Kept prompts that could not be written or read.");
}

serve_result serve_metrics(serve_exchange *x) {
    pal_server *s = x->server;
    writer w = { 0 };
    pthread_mutex_lock(&s->lock);
    const serve_counts *n = &s->counts;
    add_head(&w, "palimpsa_build_info", "gauge", "Always 1; its labels say what runs.");
    char version[64] = "", matmul[64] = "";
    sscanf(pal_version(), "%63s (matmul: %63[a-z])", version, matmul);
    add(&w, "palimpsa_build_info{version=\"%s\",matmul=\"%s\",cpu=\"%s\"} 1\n", version, matmul,
        pal_cpu_level_name(pal_context_level(s->cx)));
    add_counter(&w, "palimpsa_requests_total", (double)n->requests, "Requests answered, by any status.");
    add_counter(&w, "palimpsa_errors_total", (double)n->errors, "Requests answered with a status of 400 or more.");
    add_counter(&w, "palimpsa_refused_total", (double)n->refused, "Requests refused because the queue was full.");
    add_counter(&w, "palimpsa_cancelled_total", (double)n->cancelled, "Requests whose client went away.");
    add_counter(&w, "palimpsa_prompt_tokens_total", (double)s->engine.read, "Tokens read.");
    add_counter(&w, "palimpsa_written_tokens_total", (double)s->engine.written, "Tokens written.");
    add_counter(&w, "palimpsa_cached_tokens_total", (double)n->cached_tokens, "Tokens of prompts from the cache.");
    add_counter(&w, "palimpsa_accepted_tokens_total", (double)s->engine.accepted, "Guessed tokens that were written.");
    add_counter(&w, "palimpsa_rejected_tokens_total", (double)s->engine.rejected, "Guessed tokens that were not.");
    add_counter(&w, "palimpsa_prompt_seconds_total", s->engine.read_seconds, "Time spent reading prompts.");
    add_counter(&w, "palimpsa_write_seconds_total", s->engine.write_seconds, "Time spent writing.");
    add_gauge(&w, "palimpsa_queue", s->queued, "Requests that wait.");
    add_gauge(&w, "palimpsa_texts_running", s->texts_running, "Texts that are read or written now.");
    add_gauge(&w, "palimpsa_cache_bytes", (double)s->cache_bytes, "Memories of prompts in RAM, without pages.");
    add_gauge(&w, "palimpsa_text_bytes", (double)s->session_fixed, "Memories of texts that run.");
    add_gauge(&w, "palimpsa_page_bytes", (double)s->page_bytes,
              "Keys and values of attention, of running texts and of the cache, each page once.");
    add_gauge(&w, "palimpsa_memory_bytes", (double)(s->session_fixed + s->cache_bytes + s->page_bytes),
              "All memories in RAM, of running texts and of the cache.");
    add_gauge(&w, "palimpsa_memory_budget_bytes", (double)s->options.memory_budget, "What they may take.");
    add_gauge(&w, "palimpsa_cache_snapshots", (double)s->cache_count, "Memories of prompts in RAM, by number.");
    if (s->cache.keep) add_kept(&w, serve_keep_counted(s->cache.keep));
    add_gauge(&w, "palimpsa_memory_disk_bytes", (double)s->store.used, "Files of kept memories.");
    add_bytes(&w, s);
    add_gauge(&w, "palimpsa_connections", s->connection_count, "Open connections.");
    add_gauge(&w, "palimpsa_uptime_seconds", pal_seconds() - s->started, "Time since the start.");
    for (int i = 0; i < SERVE_HISTOGRAMS; i++) add_histogram(&w, &histograms[i], &s->measured[i]);
    pthread_mutex_unlock(&s->lock);
    const serve_result result = w.failed ? serve_error(x, 500, NULL, "out of memory for metrics")
                                         : serve_reply(x, 200, "text/plain; version=0.0.4", (const char *)w.text.data,
                                                       w.text.size);
    pal_bytes_free(&w.text);
    return result;
}
