/* SPDX-License-Identifier: MIT */
/* palimpsa generate: prompts to continuations. Standard output holds what the model wrote and nothing else; what a
 * person may want to know besides goes to standard error. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/context.h"
#include "chat/chat.h"
#include "chat_generate.h"
#include "data/text.h"
#include "format/json.h"
#include "generate.h"
#include "stop.h"
#include "text/json_text.h"
#include "text/strings.h"
#include "text_model.h"

/* The first signal asks for a clean end, a second one ends the process at once; in a conversation each SIGINT stops one
 * answer. */
static void listen_for_signals(bool conversation) {
    if (conversation) cli_stop_in_conversation();
    else cli_stop_on_signals(true);
    signal(SIGPIPE, SIG_IGN); /* a reader that closes the pipe is not an error: see generate_show() */
}

/* Writes to standard output. A closed pipe ends the work without complaint; anything else is main's to report. */
void generate_show(generation *s, const void *bytes, size_t size) {
    if (s->closed) return;
    if ((size && fwrite(bytes, 1, size, stdout) != size) || fflush(stdout) != 0) {
        s->closed = true;
        if (errno == EPIPE && !freopen("/dev/null", "w", stdout)) return;
    }
}

static void show_json(generation *s, json_t *value) {
    char *text = pal_json_dumps(value, JSON_COMPACT);
    json_decref(value);
    if (text) generate_show(s, text, strlen(text)), generate_show(s, "\n", 1);
    else s->short_of_memory = true;
    free(text);
}

static json_t *token_json(const generation *s, const pal_token *t) {
    const pal_slice text = pal_tokenizer_text(s->m.tokenizer, (uint32_t)t->id);
    return json_pack("{s:i, s:o, s:o, s:o}", "id", (int)t->id, "text", pal_json_bytes(text.data, text.size),
                     "probability", pal_json_number(exp(t->logprob)), "variance", pal_json_number(t->variance));
}

void generate_header(generation *s) {
    static const char header[] = "token\tprobability\tvariance\n";
    if (s->stream && s->o->uncertainty) generate_show(s, header, sizeof header - 1);
}

static void show_uncertainty(generation *s, const pal_token *t) {
    const pal_slice text = pal_tokenizer_text(s->m.tokenizer, (uint32_t)t->id);
    json_t *quoted = pal_json_bytes(text.data, text.size);
    char *spelled = pal_json_dumps(quoted, JSON_ENCODE_ANY), numbers[64];
    const int n = snprintf(numbers, sizeof numbers, "\t%.6f\t%.6g\n", exp(t->logprob), t->variance);
    if (spelled) generate_show(s, spelled, strlen(spelled)), generate_show(s, numbers, (size_t)n);
    else s->short_of_memory = true;
    free(spelled);
    json_decref(quoted);
}

/* What the model wrote: shown as it comes, or kept until its turn. */
static void tell(job *j, pal_slice text) {
    if (j->of->o->chat && !chat_generate_read(j, text, false)) j->of->short_of_memory = true;
    if (j->of->o->chat && j->of->stream) return;
    if (j->of->stream) generate_show(j->of, text.data, text.size);
    else if (pal_bytes_append(&j->text, text.data, text.size, NULL)) j->of->short_of_memory = true;
}

static void on_token(void *user, const pal_token *t) {
    job *j = user;
    generation *s = j->of;
    live_clear(&s->reading);
    if (t->id >= 0) {
        s->written_tokens++;
        if ((s->o->common.json || s->o->chat) && pal_ids_append(&j->written, (uint32_t)t->id, NULL))
            s->short_of_memory = true;
        if (j->details) pal_json_append(j->details, token_json(s, t));
    }
    j->finish = t->finish;
    if (t->finish == PAL_FINISH_ERROR) snprintf(j->error, sizeof j->error, "%s", t->error);
    if (s->stream && s->o->uncertainty) {
        if (t->id >= 0) show_uncertainty(s, t);
    } else {
        tell(j, t->text);
    }
}

/* Shows text that was held back, when nothing will follow it. An incomplete character of the last token is kept in a
 * saved memory, and shown by the generation that continues from there. */
static void tell_rest(job *j, pal_session *session) {
    if (j->of->stream && (j->of->o->uncertainty || (j->of->o->save && j->finish && !j->of->o->chat))) return;
    tell(j, pal_session_rest(session));
    if (j->of->o->chat && j->of->stream && !chat_generate_read(j, (pal_slice){ 0 }, true))
        j->of->short_of_memory = true;
}

static double rate(uint64_t tokens, double seconds) { return seconds > 0 ? (double)tokens / seconds : 0; }

static json_t *job_json(const generation *s, const job *j) {
    json_t *ids = json_array();
    for (size_t i = 0; i < j->written.count; i++) pal_json_append(ids, json_integer((json_int_t)j->written.data[i]));
    json_t *root = json_pack(
        "{s:o, s:o, s:o, s:s, s:I, s:I, s:I}", "prompt", pal_json_bytes(j->prompt.data, j->prompt.size), "text",
        pal_json_bytes(j->text.data, j->text.size), "ids", ids, "finish",
        j->finish        ? pal_finish_name(j->finish)
        : cli_stopping() ? "interrupted"
                         : "length",
        "prompt_tokens", (json_int_t)j->ids.count, "tokens", (json_int_t)j->written.count, "seed", (json_int_t)j->seed);
    if (j->details) pal_json_set(root, "uncertainty", json_incref(j->details));
    if (s->o->chat) pal_json_set(root, "message", chat_generate_message(j));
    pal_json_set(root, "memory_bytes", json_integer((json_int_t)pal_state_bytes(s->m.model, s->o->context)));
    if (s->count == 1) {
        const pal_engine_counts c = pal_engine_counted(s->engine);
        pal_json_set(root, "prompt_tokens_per_s", json_real(rate(c.read, c.read_seconds)));
        pal_json_set(root, "tokens_per_s", json_real(rate(c.written, c.write_seconds)));
        if (s->o->speculate) {
            pal_json_set(root, "accepted_prediction_tokens", json_integer((json_int_t)c.accepted));
            pal_json_set(root, "rejected_prediction_tokens", json_integer((json_int_t)c.rejected));
        }
    }
    return root;
}

/* Continuations that are done, in the order of their prompts. */
static void show_done(generation *s) {
    for (; s->printed < s->count && s->jobs[s->printed].done; s->printed++) {
        job *j = &s->jobs[s->printed];
        if (s->o->chat && !s->stream && !chat_generate_read(j, (pal_slice){ 0 }, true)) s->short_of_memory = true;
        if (s->o->common.json) {
            show_json(s, job_json(s, j));
        } else if (!s->stream) {
            if (!s->o->chat) generate_show(s, j->text.data, j->text.size);
            generate_show(s, "\n", 1);
        }
        pal_bytes_free(&j->text);
        pal_ids_free(&j->ids);
        pal_ids_free(&j->written);
    }
}

static const char *prompts_name(const generate_options *o) {
    return strcmp(o->prompts, "-") == 0 ? "standard input" : o->prompts;
}

static int fail_prompt(const generation *s, const job *j, const pal_error *err) {
    if (!j->line) return cli_fail(err);
    return cli_error(err->status == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s: line %d: %s", prompts_name(s->o),
                     j->line, err->text);
}

/* What a user says, after what the system says. */
static pal_status encode_chat(generation *s, job *j, pal_error *err) {
    json_t *messages = json_array();
    if (s->o->system) pal_json_append(messages, json_pack("{s:s, s:s}", "role", "system", "content", s->o->system));
    pal_json_append(messages,
                    json_pack("{s:s, s:o}", "role", "user", "content", pal_json_bytes(j->prompt.data, j->prompt.size)));
    messages = pal_json_whole(messages);
    const pal_status st = messages ? chat_generate_encode(s, j, messages, err)
                                   : pal_fail(err, PAL_E_MEMORY, "out of memory for a message");
    json_decref(messages);
    return st;
}

pal_status generate_encode(generation *s, job *j, bool fresh, pal_error *err) {
    if (s->o->chat) return encode_chat(s, j, err);
    const int64_t bos = pal_tokenizer_bos(s->m.tokenizer), eos = pal_tokenizer_eos(s->m.tokenizer);
    pal_status st;
    const bool begins = fresh || !s->o->interactive; /* what follows in a conversation is the same text */
    if (s->o->bos && begins && (st = pal_ids_append(&j->ids, (uint32_t)bos, err))) return st;
    if ((st = pal_tokenizer_encode(s->m.tokenizer, s->m.scratch, j->prompt.data, j->prompt.size, NULL, &j->ids, err)))
        return st;
    if (j->ids.count || !fresh) return PAL_OK;
    const int64_t start = bos >= 0 ? bos : eos; /* a text begins where another ended */
    if (start < 0)
        return pal_fail(err, PAL_E_ARGUMENT,
                        "the prompt is empty, and this tokenizer has no token to begin a text with");
    return pal_ids_append(&j->ids, (uint32_t)start, err);
}

/* Reports prompts that cannot be continued before anything is printed. */
static int encode_all(generation *s) {
    pal_error err;
    const pal_state *state = pal_session_state(s->sessions[0]);
    const bool grows = pal_model_grows(pal_model_config_of(s->m.model));
    const bool pending = pal_state_pending(state) >= 0;
    const int64_t before = pal_state_position(state) + pending;
    for (job *j = s->jobs; j < s->jobs + s->count; j++) {
        pal_status st = generate_encode(s, j, !s->o->load, &err);
        if (!st && !j->ids.count && !pending)
            st = pal_fail(&err, PAL_E_ARGUMENT, "%s: this memory has nothing to continue from; give a prompt",
                          s->o->load);
        if (!st && grows && before + (int64_t)j->ids.count > s->o->context)
            st = pal_fail(&err, PAL_E_ARGUMENT,
                          "the prompt has %zu tokens after %lld, but attention layers hold %d (--max-context)",
                          j->ids.count, (long long)before, s->o->context);
        if (st) return fail_prompt(s, j, &err);
    }
    return CLI_OK;
}

pal_session_options generate_session_options(const generation *s, job *j) {
    const bool more = s->o->chat && s->form->stop;
    return (pal_session_options){ .sampling = s->o->sampling,
                                  .seed = j->seed,
                                  .max_tokens = s->o->max_tokens,
                                  .stop = s->o->chat ? s->stops : s->o->stop.items,
                                  .stop_count = (size_t)s->o->stop.count + more,
                                  .shown = s->o->chat ? s->form->shown.data : NULL,
                                  .shown_count = s->o->chat ? s->form->shown.count : 0,
                                  .ignore_eos = s->o->ignore_eos,
                                  .grammar = s->grammar,
                                  .logprobs = s->o->uncertainty,
                                  .on_token = on_token,
                                  .user = j };
}

/* Job `index` in session `slot`, from an empty or from the loaded memory, which stays as it is in `loaded`. */
static int begin(generation *s, int slot, int index) {
    pal_error err;
    job *j = &s->jobs[index];
    pal_session *session = s->sessions[slot];
    s->job_of[slot] = index;
    if (!s->loaded) pal_session_reset(session);
    else if (pal_session_copy(session, s->loaded, &err)) return cli_fail(&err);
    const pal_session_options options = generate_session_options(s, j);
    if (pal_session_begin(session, j->ids.data, j->ids.count, &options, &err)) return fail_prompt(s, j, &err);
    s->prompt_tokens += (int64_t)j->ids.count;
    return CLI_OK;
}

static int check_memory(const generation *s) {
    return s->short_of_memory ? cli_error(CLI_FAILED, "out of memory for the generated text") : CLI_OK;
}

/* The session of a job that has ended. */
static int finish(job *j, pal_session *session) {
    if (j->finish == PAL_FINISH_ERROR) return cli_error(CLI_FAILED, "%s", j->error);
    tell_rest(j, session);
    j->done = true;
    return check_memory(j->of);
}

static pal_engine_options engine_options(const generate_options *o) {
    return (pal_engine_options){
        .piece = o->piece, .context = o->context, .variance = o->uncertainty, .speculate = o->speculate
    };
}

/* Printed when nothing of what was asked for is wrong, before the first token is read. */
static int tell_memory(const generation *s, const pal_context *cx) {
    const pal_engine_options options = engine_options(s->o);
    return text_model_tell_memory(s->m.model, &options, s->slots + !!s->o->load, 0, cx);
}

/* How much of a long prompt has been read, on a terminal, until the first token. */
static void show_reading(generation *s) {
    if (!s->reading.terminal || !s->stream || s->written_tokens || !live_due(&s->reading)) return;
    const long long read = (long long)pal_engine_counted(s->engine).read;
    if (read < s->prompt_tokens) live_show(&s->reading, "read %lld of %lld tokens", read, (long long)s->prompt_tokens);
}

static int run_jobs(generation *s, const pal_context *cx) {
    int next = 0, code = encode_all(s);
    bool told = false;
    for (int slot = 0; slot < s->slots; slot++) s->job_of[slot] = -1;
    s->reading = live_begin(stderr);
    while (!code && !cli_stopping() && !s->closed) {
        for (int slot = 0; slot < s->slots && !code && !cli_stopping(); slot++) {
            if (next < s->count && s->job_of[slot] < 0) code = begin(s, slot, next++);
        }
        if (!code && !told) code = tell_memory(s, cx), told = true;
        if (code || !pal_engine_busy(s->engine)) break;
        pal_engine_step(s->engine);
        show_reading(s);
        for (int slot = 0; slot < s->slots && !code; slot++) {
            const int now = s->job_of[slot];
            if (now < 0 || !s->jobs[now].finish) continue;
            code = finish(&s->jobs[now], s->sessions[slot]);
            s->job_of[slot] = -1;
        }
        if (!code) show_done(s);
    }
    live_clear(&s->reading);
    for (int slot = 0; slot < s->slots && !code; slot++) { /* after an interrupt: as far as they came */
        if (s->job_of[slot] < 0) continue;
        pal_session_cancel(s->sessions[slot]);
        code = finish(&s->jobs[s->job_of[slot]], s->sessions[slot]);
    }
    if (!code) show_done(s);
    return code ? code : check_memory(s);
}

static void summary(const generation *s) {
    char memory[32], speed[48] = "";
    const pal_model_config *c = pal_model_config_of(s->m.model);
    const pal_engine_counts n = pal_engine_counted(s->engine);
    text_size(memory, pal_state_bytes(s->m.model, s->o->context));
    fprintf(stderr, "prompt: %lld token%s", (long long)s->prompt_tokens, s->prompt_tokens == 1 ? "" : "s");
    if (n.read) fprintf(stderr, ", %.0f tokens/s", rate(n.read, n.read_seconds));
    if (n.written) snprintf(speed, sizeof speed, ", %.1f tokens/s", rate(n.written, n.write_seconds));
    fprintf(stderr, "; written: %lld%s; memory: %s%s\n", (long long)s->written_tokens, speed,
            pal_model_grows(c) ? "up to " : "", memory);
    if (s->o->speculate)
        fprintf(stderr, "guessed: %llu token%s came true, %llu did not\n", (unsigned long long)n.accepted,
                n.accepted == 1 ? "" : "s", (unsigned long long)n.rejected);
    int full = 0;
    for (int i = 0; i < s->count; i++) full += s->jobs[i].finish == PAL_FINISH_CONTEXT;
    if (full && s->count > 1) fprintf(stderr, "%d of %d ", full, s->count);
    if (full)
        fprintf(stderr, "ended: the context of %d token%s is full (--max-context)\n", s->o->context,
                s->o->context == 1 ? "" : "s");
}

static int add_prompt(generation *s, int *room, const void *text, size_t size, uint64_t seed, int line) {
    if (s->count == *room) {
        *room = *room ? 2 * *room : 16;
        job *larger = realloc(s->jobs, (size_t)*room * sizeof *larger);
        if (!larger) return cli_error(CLI_FAILED, "out of memory for %d prompts", *room);
        s->jobs = larger;
    }
    job *j = &s->jobs[s->count++];
    *j = (job){
        .of = s, .line = line, .seed = seed, .details = s->o->uncertainty && s->o->common.json ? json_array() : NULL
    };
    return pal_bytes_append(&j->prompt, text, size, NULL) ? cli_error(CLI_FAILED, "out of memory for a prompt")
                                                          : CLI_OK;
}

/* A line of --prompts: text, or with a field an object that holds the text and, if it likes, a seed. */
static int add_line(generation *s, int *room, pal_slice line, const char *field, int number) {
    pal_error err;
    void *owner;
    if (!field) return line.size ? add_prompt(s, room, line.data, line.size, (uint64_t)s->o->seed, number) : CLI_OK;
    if (pal_text_parse(s->o->prompts, field, (uint64_t)number, line, &owner, &line, &err)) return cli_fail(&err);
    const json_t *seed = json_object_get(owner, "seed");
    int code = CLI_OK;
    if (seed && !json_is_integer(seed))
        code = cli_error(CLI_USAGE, "%s: line %d: seed must be a whole number", prompts_name(s->o), number);
    else if (line.data)
        code = add_prompt(s, room, line.data, line.size, (uint64_t)(seed ? json_integer_value(seed) : s->o->seed),
                          number);
    pal_text_release(owner);
    return code;
}

static int add_lines(generation *s, int *room) {
    pal_bytes file = { 0 };
    const char *field = s->o->field ? s->o->field : pal_text_field(s->o->prompts, NULL) ? "prompt" : NULL;
    int code = text_read(s->o->prompts, &file), number = 0;
    const bool marked = file.size >= 3 && memcmp(file.data, "\xEF\xBB\xBF", 3) == 0; /* byte order */
    for (size_t at = marked ? 3 : 0; !code && at < file.size; number++) {
        const unsigned char *line = file.data + at, *end = memchr(line, '\n', file.size - at);
        const size_t size = end ? (size_t)(end - line) : file.size - at;
        code = add_line(s, room, (pal_slice){ line, size && line[size - 1] == '\r' ? size - 1 : size }, field,
                        number + 1);
        at += size + 1;
    }
    pal_bytes_free(&file);
    if (!code && !s->count) code = cli_error(CLI_USAGE, "%s: there is no prompt in this file", prompts_name(s->o));
    return code;
}

static int read_prompts(generation *s) {
    int room = 0, code;
    const generate_options *o = s->o;
    if (o->prompts) return add_lines(s, &room);
    if (!o->prompt && !o->prompt_file) return add_prompt(s, &room, "", 0, (uint64_t)o->seed, 0);
    if (o->prompt && strcmp(o->prompt, "-") != 0)
        return add_prompt(s, &room, o->prompt, strlen(o->prompt), (uint64_t)o->seed, 0);
    pal_bytes text = { 0 };
    if (!(code = text_read(o->prompt ? "-" : o->prompt_file, &text)))
        code = add_prompt(s, &room, text.data, text.size, (uint64_t)o->seed, 0);
    pal_bytes_free(&text);
    return code;
}

static int open_sessions(generation *s, const pal_context *cx) {
    const generate_options *o = s->o;
    const pal_engine_options options = engine_options(o);
    pal_error err;
    s->job_of = calloc((size_t)s->slots, sizeof *s->job_of);
    s->sessions = calloc((size_t)s->slots, sizeof *s->sessions);
    if (!s->job_of || !s->sessions) return cli_error(CLI_FAILED, "out of memory for %d sessions", s->slots);
    if (pal_engine_new(&s->engine, s->m.model, s->m.tokenizer, cx, &options, &err)) return cli_fail(&err);
    for (int i = 0; i < s->slots; i++)
        if (pal_session_new(&s->sessions[i], s->engine, &err)) return cli_fail(&err);
    if (!o->load) return CLI_OK;
    if (pal_session_new(&s->loaded, s->engine, &err) || pal_session_load(s->loaded, o->load, &err) ||
        pal_session_copy(s->sessions[0], s->loaded, &err))
        return cli_fail(&err);
    return CLI_OK;
}

static int read_grammar(generation *s) {
    const char *path = s->o->schema ? s->o->schema : s->o->grammar;
    pal_bytes text = { 0 };
    pal_error err;
    if (!path || (s->o->chat && s->o->schema)) return CLI_OK;
    int code = text_read(path, &text);
    if (code) return code;
    const pal_status st = (s->o->schema ? pal_grammar_from_schema
                                        : pal_grammar_read)(&s->grammar, (const char *)text.data, text.size, &err);
    if (st) code = cli_error(st == PAL_E_MEMORY ? CLI_FAILED : CLI_USAGE, "%s: %s", path, err.text);
    pal_bytes_free(&text);
    return code;
}

static int run(generation *s, const pal_context *cx) {
    const generate_options *o = s->o;
    pal_error err;
    int code = o->save ? cli_check_target(o->save)
                       : CLI_OK; /* a memory that cannot be kept is known before the reading */
    if (!code) code = read_grammar(s);
    if (!code) code = text_model_open(&s->m, o->path, o->tokenizer, NULL, cx);
    if (!code) code = text_model_keep_as(s->m.model, o->kv_type);
    if (!code && o->bos && pal_tokenizer_bos(s->m.tokenizer) < 0)
        code = cli_error(CLI_USAGE, "--bos: this tokenizer has no token for the beginning of a text");
    if (!code && o->chat) code = chat_generate_open(s);
    if (!code) code = read_prompts(s);
    if (code) return code;
    s->slots = s->count < o->batch ? s->count : o->batch;
    s->stream = (s->count == 1 && !o->prompts && !o->common.json) || o->interactive;
    if ((code = open_sessions(s, cx))) return code;
    listen_for_signals(o->interactive);
    generate_header(s);
    if (o->interactive) code = tell_memory(s, cx);
    if (!code) code = !o->interactive ? run_jobs(s, cx) : o->chat ? chat_generate_converse(s) : generate_converse(s);
    if (!code && !o->interactive) {
        if (s->stream && isatty(STDOUT_FILENO)) fputc('\n', stderr);
        summary(s);
    }
    if (!code && o->save && pal_session_save(s->sessions[0], o->save, &err)) code = cli_fail_writing(&err);
    return code;
}

static int check(const generate_options *o) {
    const int sources = !!o->prompt + !!o->prompt_file + !!o->prompts;
    if (sources > 1) return cli_error(CLI_USAGE, "generate takes one of --prompt, --prompt-file and --prompts");
    if (!sources && !o->load && !o->interactive)
        return cli_error(CLI_USAGE,
                         "generate needs a prompt: --prompt TEXT ('-': standard input), --prompt-file FILE, --prompts "
                         "FILE or --interactive");
    if (o->interactive && (o->prompts || o->common.json))
        return cli_error(CLI_USAGE, "--interactive goes with neither --prompts nor --json");
    if (o->interactive &&
        ((o->prompt && strcmp(o->prompt, "-") == 0) || (o->prompt_file && strcmp(o->prompt_file, "-") == 0)))
        return cli_error(CLI_USAGE, "--interactive reads standard input itself; give the text as a file");
    if (!o->chat && (o->template || o->system || o->tools))
        return cli_error(CLI_USAGE, "--chat-template, --system and --tools go with --chat");
    if (o->chat && (o->uncertainty || o->bos))
        return cli_error(CLI_USAGE, "--chat goes with neither --uncertainty nor --bos");
    if (o->chat && o->interactive && o->load)
        return cli_error(CLI_USAGE, "--load-memory does not go with --chat --interactive, which begins a conversation");
    if (o->schema && o->grammar) return cli_error(CLI_USAGE, "generate takes one of --json-schema and --grammar");
    if (o->prompts && o->save)
        return cli_error(CLI_USAGE, "--save-memory keeps one memory; it does not go with --prompts");
    if (o->prompts && o->uncertainty && !o->common.json)
        return cli_error(CLI_USAGE, "--uncertainty with --prompts needs --json");
    if (o->max_tokens < 0)
        return cli_error(CLI_USAGE, "--max-tokens expects 0 or more, found %lld", (long long)o->max_tokens);
    if (!(o->sampling.top_p > 0 && o->sampling.top_p <= 1))
        return cli_error(CLI_USAGE, "--top-p expects a probability above 0, at most 1, found %g", o->sampling.top_p);
    if (!(o->sampling.repetition_penalty > 0))
        return cli_error(CLI_USAGE, "--repetition-penalty expects a number above 0, found %g",
                         o->sampling.repetition_penalty);
    if (o->batch < 1 || o->batch > 4096) return cli_error(CLI_USAGE, "--batch expects 1 to 4096, found %d", o->batch);
    if (o->context < 1 || o->context > 1 << 24)
        return cli_error(CLI_USAGE, "--max-context expects 1 to %d, found %d", 1 << 24, o->context);
    if (o->piece < 1 || o->piece > 1 << 20)
        return cli_error(CLI_USAGE, "--piece expects 1 to %d, found %d", 1 << 20, o->piece);
    if (o->speculate < 0 || o->speculate > PAL_SPECULATE_MOST)
        return cli_error(CLI_USAGE, "--speculate expects 0 to %d, found %d", PAL_SPECULATE_MOST, o->speculate);
    for (int i = 0; i < o->stop.count; i++)
        if (!o->stop.items[i][0]) return cli_error(CLI_USAGE, "--stop expects a text, found an empty one");
    return CLI_OK;
}

int cmd_generate(int argc, char **argv) {
    generate_options o = { .sampling = { .temperature = 0.8, .top_p = 1, .repetition_penalty = 1 },
                           .max_tokens = 128,
                           .seed = 1,
                           .context = 4096,
                           .batch = 8,
                           .piece = 256 };
    const cli_option options[] = {
        { "prompt", OPT_TEXT, &o.prompt, "TEXT", "text to continue ('-': standard input)" },
        { "prompt-file", OPT_TEXT, &o.prompt_file, "FILE", "file with the text to continue ('-': standard input)" },
        { "prompts", OPT_TEXT, &o.prompts, "FILE",
          "file with one prompt per line, or JSON objects with \"prompt\" and optionally \"seed\" "
          "('-': standard input)" },
        { "field", OPT_TEXT, &o.field, "NAME",
          "--prompts is JSONL with the text in this field (default: 'prompt' for *.jsonl and "
          "*.ndjson)" },
        { "max-tokens", OPT_LONG, &o.max_tokens, "N",
          "generate at most N tokens (default 128; 0: only read the prompt)" },
        { "temperature", OPT_FLOAT, &o.sampling.temperature, "T",
          "divide the logits by T; 0: always take the likeliest token (default 0.8)" },
        { "top-k", OPT_INT, &o.sampling.top_k, "K", "sample from the K likeliest tokens (default 0: all)" },
        { "top-p", OPT_FLOAT, &o.sampling.top_p, "P",
          "sample from the likeliest tokens that together have probability P (default 1)" },
        { "min-p", OPT_FLOAT, &o.sampling.min_p, "P",
          "sample from tokens at least P times as likely as the likeliest (default 0)" },
        { "repetition-penalty", OPT_FLOAT, &o.sampling.repetition_penalty, "X",
          "penalise tokens that already occurred (default 1: off)" },
        { "seed", OPT_LONG, &o.seed, "N", "sampling seed; the same seed gives the same text (default 1)" },
        { "stop", OPT_LIST, &o.stop, "TEXT", "stop before this text; may be repeated" },
        { "ignore-eos", OPT_FLAG, &o.ignore_eos, NULL, "continue after the model's end-of-text token" },
        { "json-schema", OPT_TEXT, &o.schema, "FILE", "write JSON that is valid under the JSON Schema in this file" },
        { "grammar", OPT_TEXT, &o.grammar, "FILE", "write only what the rules in this file allow" },
        { "bos", OPT_FLAG, &o.bos, NULL, "start with the tokenizer's beginning-of-text token" },
        { "save-memory", OPT_TEXT, &o.save, "FILE", "save the memory of what was read and generated" },
        { "load-memory", OPT_TEXT, &o.load, "FILE", "continue from a saved memory" },
        { "interactive", OPT_FLAG, &o.interactive, NULL,
          "have a conversation; --prompt or --prompt-file is read first" },
        { "chat", OPT_FLAG, &o.chat, NULL, "prompts are messages, for the model's chat template; print its answers" },
        { "chat-template", OPT_TEXT, &o.template, "X",
          "with --chat: a template's file, or chatml, llama2 or plain (default: the model's own, else plain)" },
        { "system", OPT_TEXT, &o.system, "TEXT", "with --chat: what the system says first" },
        { "tools", OPT_TEXT, &o.tools, "FILE", "with --chat: a JSON list of tools that the model may call" },
        { "uncertainty", OPT_FLAG, &o.uncertainty, NULL,
          "print a table, one token per line: probability and mean output variance" },
        { "tokenizer", OPT_TEXT, &o.tokenizer, "X", "tokenizer to use (default: the model's own)" },
        TEXT_MODEL_KV_OPTION(o.kv_type),
        { "max-context", OPT_INT, &o.context, "N", "context of attention layers, in tokens (default 4096)" },
        { "batch", OPT_INT, &o.batch, "N", "prompts to run at a time (default 8)" },
        { "speculate", OPT_INT, &o.speculate, "N",
          "guess up to N tokens from the text itself where it repeats, and read them at once: the same text, sooner "
          "(default 0: off; try 7)" },
        { "piece", OPT_INT, &o.piece, "N", "prompt tokens to read at once (default 256)" },
        { "json", OPT_FLAG, &o.common.json, NULL, "print one JSON object per prompt, one per line" },
        CLI_COMMON_OPTIONS(o.common),
        CLI_DEVICE_OPTION(o.common),
    };
    const cli_usage usage = {
        .synopsis = "generate MODEL --prompt TEXT [options]",
        .about = "Continues a text, or chats.\n\n"
                 "MODEL is a model directory, a run directory or a GGUF file. "
                 "Standard output gets the continuation and nothing else, as it is generated, in whole "
                 "characters; speed and the size of the memory go to stderr. A continuation depends on its "
                 "prompt and the seed, not on other prompts. A saved memory holds everything that was read "
                 "and generated, at a fixed size, and with attention also the keys and values of every token; only "
                 "the model that made it accepts it.",
        .examples = "  palimpsa generate models/shakespeare.gguf --prompt 'ROMEO:' --max-tokens 200\n  palimpsa "
                    "generate my-model --chat --interactive\n  palimpsa generate my-model --prompt-file "
                    "book.txt --max-tokens 0 --save-memory book.memory\n  palimpsa generate my-model --load-memory "
                    "book.memory --prompt 'The end of the story is'\n  palimpsa generate my-model --prompts "
                    "questions.jsonl --stop '###' --json > answers.jsonl\n  palimpsa generate my-model "
                    "--chat --prompt 'Weather in Bonn?' --tools tools.json\n",
        .options = options,
        .option_count = PAL_COUNT(options)
    };
    int count;
    int code = cli_parse(&usage, argc, argv, &o.path, 1, &count);
    if (code) return code < 0 ? CLI_OK : code;
    if (count != 1)
        return cli_error(CLI_USAGE,
                         "generate: name a model: a directory or a GGUF file; see 'palimpsa generate --help'");
    if ((code = check(&o))) return code;
    pal_context *cx;
    pal_error err;
    if (pal_context_new_on(&cx, o.common.threads, o.common.cpu, o.common.device, &err)) return cli_fail(&err);
    generation s = { .o = &o };
    code = run(&s, cx);
    for (int i = 0; s.sessions && i < s.slots; i++) pal_session_free(s.sessions[i]);
    pal_session_free(s.loaded);
    pal_engine_free(s.engine);
    pal_grammar_free(s.grammar);
    chat_generate_close(&s);
    for (int i = 0; i < s.count; i++) {
        pal_bytes_free(&s.jobs[i].prompt);
        pal_bytes_free(&s.jobs[i].text);
        pal_reader_free(&s.jobs[i].said);
        pal_ids_free(&s.jobs[i].ids);
        pal_ids_free(&s.jobs[i].written);
        json_decref(s.jobs[i].details);
    }
    free(s.jobs);
    free(s.job_of);
    free(s.sessions);
    pal_bundle_close(&s.m);
    pal_context_free(cx);
    return code;
}
