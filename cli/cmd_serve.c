/* SPDX-License-Identifier: MIT */
/* palimpsa serve: serves models over HTTP until a signal arrives. */
#include "cli.h"

#ifdef PAL_HAVE_SERVE

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/context.h"
#include "base/parallel.h"
#include "serve/serve.h"
#include "stop.h"
#include "text_model.h"

enum { MOST_MODELS = 16 };

typedef struct {
    cli_common common;
    const char *models[MOST_MODELS];
    int count;
    const char *tokenizer, *key_file, *log, *kv_type, *keep;
    char kept[4096], memories[4096]; /* directories in `keep` */
    pal_serve_options serve;
    int64_t max_body, max_answer, budget, disk, keep_disk;
    double drain;
} serve_options;

/* Drops lines that cannot be written: requests do not wait for the log. */
static void log_line(void *user, const char *line) {
    struct pollfd out = { .fd = STDERR_FILENO, .events = POLLOUT };
    char text[2048];
    (void)user;
    const int size = snprintf(text, sizeof text, "%.*s\n", (int)sizeof text - 2, line);
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) && write(STDERR_FILENO, text, (size_t)size) < 0) return;
}

static int read_key(const char *path, pal_bytes *key) {
    const int code = text_read(path, key);
    if (code) return code;
    while (key->size && (key->data[key->size - 1] == '\n' || key->data[key->size - 1] == '\r')) key->size--;
    if (!key->size || memchr(key->data, '\0', key->size) || memchr(key->data, '\n', key->size))
        return cli_error(CLI_USAGE, "%s: expected a key on one line", path);
    key->data[key->size] = '\0'; /* where its newline was, or in the space after it */
    return CLI_OK;
}

/* NAME=PATH, or a path that is there, whose last part is the name ("." has that of the directory it is). */
static void split_name(const char *model, char name[256], const char **path) {
    const char *equals = strchr(model, '='), *slash = strchr(model, '/');
    *path = model;
    if (equals && equals != model && (!slash || equals < slash) && access(model, F_OK) != 0) {
        snprintf(name, 256, "%.*s", (int)(equals - model), model);
        *path = equals + 1;
        return;
    }
    size_t end = strlen(model);
    while (end > 1 && model[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && model[begin - 1] != '/') begin--;
    snprintf(name, 256, "%.*s", (int)(end - begin), model + begin);
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) return;
    char *whole = realpath(model, NULL);
    if (whole && whole[1]) snprintf(name, 256, "%s", strrchr(whole, '/') + 1);
    free(whole);
}

/* Says to a service manager that waits for it (systemd, Type=notify) that the server is ready, or stops. */
static void notify(const char *message) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    const size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof to.sun_path) return;
    memcpy(to.sun_path, path, length);
    if (path[0] == '@') to.sun_path[0] = '\0'; /* an abstract name */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (sendto(fd, message, strlen(message), MSG_NOSIGNAL, (const struct sockaddr *)&to, size) < 0)
        fprintf(stderr, "palimpsa: warning: NOTIFY_SOCKET=%s: %s\n", path, strerror(errno));
    close(fd);
}

static int run(serve_options *o, const pal_context *cx) {
    pal_serve_model models[MOST_MODELS] = { 0 };
    char names[MOST_MODELS][256];
    pal_server *server = NULL;
    pal_bytes key = { 0 };
    pal_error err;
    const pal_engine_options engine = pal_serve_engine_options(&o->serve);
    int code = o->key_file ? read_key(o->key_file, &key) : CLI_OK, opened = 0;
    for (; opened < o->count && !code; opened++) {
        const char *path;
        split_name(o->models[opened], names[opened], &path);
        for (int i = 0; i < opened && !code; i++)
            if (strcmp(names[i], names[opened]) == 0)
                code = cli_error(CLI_USAGE, "two models are called '%s'; say NAME=MODEL", names[i]);
        models[opened].name = names[opened];
        if (!code) fprintf(stderr, "loading %s from %s\n", names[opened], path);
        if (!code) code = text_model_open(&models[opened].bundle, path, o->tokenizer, "ids", cx);
        if (!code) code = text_model_keep_as(models[opened].bundle.model, o->kv_type);
        if (!code) code = text_model_tell_memory(models[opened].bundle.model, &engine, 0, o->serve.memory_budget, cx);
    }
    signal(SIGHUP, SIG_IGN); /* a terminal that closes ends nothing */
    cli_stop_on_signals(true);
    signal(SIGPIPE, SIG_IGN);
    o->serve.api_key = o->key_file ? (const char *)key.data : NULL;
    pal_parallel_release(); /* the models are open; from here on the server's worker computes */
    if (!code && pal_serve_start(&server, models, o->count, cx, &o->serve, &err)) code = cli_fail(&err);
    if (!code) {
        const char *host = o->serve.host;
        if (strcmp(host, "localhost") != 0 && strncmp(host, "127.", 4) != 0 && strcmp(host, "::1") != 0)
            fprintf(stderr, "palimpsa: warning: %s can be reached from other machines%s\n", host,
                    key.size ? "" : ", and no key is asked for (--api-key-file)");
        printf(strchr(host, ':') ? "listening on http://[%s]:%d\n" : "listening on http://%s:%d\n", host,
               pal_serve_port(server));
        fflush(stdout);
        notify("READY=1");
        cli_stop_wait();
        notify("STOPPING=1");
        fputs("stopping: requests that run may end\n", stderr);
        pal_serve_stop(server, o->drain);
    }
    for (int i = 0; i < opened; i++) pal_bundle_close(&models[i].bundle);
    pal_bytes_free(&key);
    return code;
}

static int check_directory(const char *option, const char *path) {
    struct stat about;
    if (!path || (stat(path, &about) == 0 && S_ISDIR(about.st_mode))) return CLI_OK;
    return cli_error(CLI_USAGE, "%s %s: not a directory", option, path);
}

static int check(serve_options *o) {
    int code;
    if (o->serve.port < 0 || o->serve.port > 65535)
        return cli_error(CLI_USAGE, "--port expects 0 to 65535, found %d", o->serve.port);
    if (o->serve.max_sessions < 1 || o->serve.max_sessions > 4096)
        return cli_error(CLI_USAGE, "--max-sessions expects 1 to 4096, found %d", o->serve.max_sessions);
    if (o->serve.speculate < 0 || o->serve.speculate > PAL_SPECULATE_MOST)
        return cli_error(CLI_USAGE, "--speculate expects 0 to %d, found %d", PAL_SPECULATE_MOST, o->serve.speculate);
    if (o->serve.max_queue < 1) return cli_error(CLI_USAGE, "--max-queue expects at least 1");
    if (o->max_body < 1024 || o->max_body > (int64_t)1 << 32)
        return cli_error(CLI_USAGE, "--max-body expects 1024 to 4294967296 bytes, found %lld", (long long)o->max_body);
    if (o->max_answer < 1 << 20)
        return cli_error(CLI_USAGE, "--max-answer expects at least 1M, found %lld", (long long)o->max_answer);
    if (o->serve.max_tokens < 1) return cli_error(CLI_USAGE, "--max-tokens expects at least 1");
    if (!(o->serve.timeout > 0 && o->serve.timeout <= 86400))
        return cli_error(CLI_USAGE, "--timeout expects more than 0 and at most 86400 seconds");
    if (o->serve.cache_distance < 0 || o->serve.cache_distance % 256)
        return cli_error(CLI_USAGE, "--cache-distance expects a multiple of 256, found %d", o->serve.cache_distance);
    if (o->budget < 1) return cli_error(CLI_USAGE, "--memory-budget expects at least 1 byte");
    if (o->keep_disk < 0) return cli_error(CLI_USAGE, "--keep-disk expects 0 bytes or more");
    if (o->disk < 0) return cli_error(CLI_USAGE, "--memory-disk expects 0 bytes or more");
    if (o->serve.context < 1 || o->serve.context > 1 << 24)
        return cli_error(CLI_USAGE, "--max-context expects 1 to %d, found %d", 1 << 24, o->serve.context);
    if (strcmp(o->log, "text") != 0 && strcmp(o->log, "json") != 0 && strcmp(o->log, "no") != 0)
        return cli_error(CLI_USAGE, "--log expects text, json or no, found '%s'", o->log);
    if (!(o->drain >= 0 && o->drain <= 86400)) return cli_error(CLI_USAGE, "--drain expects 0 to 86400 seconds");
    if (o->keep && strlen(o->keep) > 3800) return cli_error(CLI_USAGE, "--keep: the path is too long");
    if (o->keep) {
        snprintf(o->kept, sizeof o->kept, "%s/prompts", o->keep);
        snprintf(o->memories, sizeof o->memories, "%s/memories", o->keep);
        o->serve.keep = o->kept;
        if (!o->serve.memory_dir) o->serve.memory_dir = o->memories;
    }
    if ((code = check_directory("--runs", o->serve.runs))) return code;
    if ((code = check_directory("--web", o->serve.web))) return code;
    o->serve.max_body = (size_t)o->max_body;
    o->serve.max_answer = (size_t)o->max_answer;
    o->serve.memory_budget = (size_t)o->budget;
    o->serve.memory_disk = (size_t)o->disk;
    o->serve.keep_disk = (size_t)o->keep_disk;
    o->serve.log_json = strcmp(o->log, "json") == 0;
    o->serve.log = strcmp(o->log, "no") == 0 ? NULL : log_line;
    return CLI_OK;
}

int cmd_serve(int argc, char **argv) {
    serve_options o = { .serve = { .host = "127.0.0.1",
                                   .port = 8080,
                                   .max_sessions = 16,
                                   .max_queue = 64,
                                   .max_tokens = 1 << 17,
                                   .context = 4096,
                                   .timeout = 60,
                                   .cache_distance = 2048 },
                        .max_body = 16 << 20,
                        .max_answer = 512 << 20,
                        .budget = (int64_t)2 << 30,
                        .disk = (int64_t)8 << 30,
                        .keep_disk = (int64_t)8 << 30,
                        .log = "text",
                        .drain = 30 };
    const cli_option options[] = {
        { "port", OPT_INT, &o.serve.port, "N", "port to listen on (default 8080; 0: any free port)" },
        { "host", OPT_TEXT, &o.serve.host, "H", "address to listen on (default 127.0.0.1: this machine only)" },
        { "api-key-file", OPT_TEXT, &o.key_file, "FILE", "require the API key in this file" },
        { "max-sessions", OPT_INT, &o.serve.max_sessions, "N", "texts to run at a time (default 16)" },
        { "max-queue", OPT_INT, &o.serve.max_queue, "N", "requests that may wait; more are refused (default 64)" },
        { "max-body", OPT_LONG, &o.max_body, "SIZE",
          "largest request body (default 16M); at most 16 times that in flight", .bytes = true },
        { "max-answer", OPT_LONG, &o.max_answer, "SIZE", "RAM for answers, for one and for all together (default 512M)",
          .bytes = true },
        { "max-tokens", OPT_INT, &o.serve.max_tokens, "N", "most tokens a request may ask for (default 131072)" },
        { "timeout", OPT_FLOAT, &o.serve.timeout, "SECONDS", "seconds to wait for a request to arrive (default 60)" },
        { "memory-dir", OPT_TEXT, &o.serve.memory_dir, "DIR",
          "keep saved memories (/v1/memories) here across restarts (default: until the server stops)" },
        { "memory-disk", OPT_LONG, &o.disk, "SIZE", "disk space for saved memories (default 8G)", .bytes = true },
        { "keep", OPT_TEXT, &o.keep, "DIR",
          "keep what the prompt cache holds, and saved memories, in files here, and find them after a restart" },
        { "keep-disk", OPT_LONG, &o.keep_disk, "SIZE", "disk space for the prompt cache's files (default 8G)",
          .bytes = true },
        { "memory-budget", OPT_LONG, &o.budget, "SIZE", "RAM for running texts and the prompt cache (default 2G)",
          .bytes = true },
        { "cache-distance", OPT_INT, &o.serve.cache_distance, "N",
          "tokens between snapshots of a prompt, a multiple of 256 (default 2048; 0: no cache)" },
        TEXT_MODEL_KV_OPTION(o.kv_type),
        { "max-context", OPT_INT, &o.serve.context, "N", "context of attention layers, in tokens (default 4096)" },
        { "speculate", OPT_INT, &o.serve.speculate, "N",
          "let a text that runs alone guess up to N tokens where it repeats: the same text, sooner (default 0: off; "
          "try 7)" },
        { "chat-template", OPT_TEXT, &o.serve.template, "X",
          "template of chats: a file, or chatml, llama2 or plain (default: the model's own, else plain)" },
        { "cors", OPT_TEXT, &o.serve.cors, "ORIGIN", "allow pages of this origin to call the server (default: none)" },
        { "runs", OPT_TEXT, &o.serve.runs, "DIR", "show the training runs in DIR; MODEL is then optional" },
        { "web", OPT_TEXT, &o.serve.web, "DIR", "serve the page from DIR, for working on it (default: built in)" },
        { "log", OPT_TEXT, &o.log, "KIND", "log one line per request to stderr: text, json or no (default text)" },
        { "drain", OPT_FLOAT, &o.drain, "SECONDS",
          "how long to let running requests finish after a signal (default 30)" },
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X",
          "tokenizer to use (default: MODEL's own, or 'ids' if it has none: plain numbers)" },
        CLI_COMMON_OPTIONS(o.common),
    };
    const cli_usage usage = {
        .synopsis = "serve [MODEL] [NAME=MODEL ...] [options]",
        .about =
            "Serves models over HTTP, and a page to talk to them and look into their memory.\n\n"
            "Open the address in a browser for the page. Programs use OpenAI's API: /v1/completions, "
            "/v1/chat/completions, /v1/models, and /v1/memories, /v1/observe, /v1/runs, /v1/recall, "
            "/tokenize, /detokenize, /tokenizer_info, /health, /metrics, /openapi.json. NAME@plain is "
            "a model with plasticity off.\n\n"
            "Prints 'listening on http://HOST:PORT' when it is ready. SIGTERM and Ctrl-C let running "
            "requests finish.",
        .examples = "  palimpsa serve models/shakespeare.gguf\n  palimpsa serve my-model --max-context 32768 "
                    "--keep kept\n  palimpsa serve models/recall --runs runs\n  palimpsa serve small=models/recall "
                    "large=my-model --port 0 --log json\n  curl "
                    "http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"ROMEO:\", \"max_tokens\": 50}'\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int code = cli_parse(&usage, argc, argv, o.models, MOST_MODELS, &o.count);
    if (code) return code < 0 ? CLI_OK : code;
    if (!o.count && !o.serve.runs)
        return cli_error(CLI_USAGE,
                         "serve: name a model (a directory or a GGUF file), or --runs; see 'palimpsa serve --help'");
    if ((code = check(&o))) return code;
    pal_context *cx;
    pal_error err;
    if (pal_context_new(&cx, o.common.threads, o.common.cpu, &err)) return cli_fail(&err);
    code = run(&o, cx);
    pal_context_free(cx);
    return code;
}

#else

int cmd_serve(int argc, char **argv) {
    (void)argc, (void)argv;
    return cli_error(CLI_USAGE, "serve: this program was built without its server (libmicrohttpd was not there)");
}

#endif
