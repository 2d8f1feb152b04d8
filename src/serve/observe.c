/* SPDX-License-Identifier: MIT */
/* POST /v1/observe: the request, and what the worker does for it in addition to what it does for every text. The view
 * may change while the text runs (POST /v1/observe/ID): the HTTP thread leaves the new one, the worker takes it between
 * steps. */
#include "serve/observe.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "format/json.h"
#include "text/json_text.h"
#include "text/strings.h"

static const json_t *given(const json_t *root, const char *name) {
    const json_t *value = json_object_get(root, name);
    return json_is_null(value) ? NULL : value;
}

/* "heads": a list of heads, or "all". */
static bool read_heads(serve_fields *f, const pal_mixer_spec *m, serve_view *v) {
    const json_t *list = given(f->root, "heads");
    v->at.head_count = 0;
    if (!list || (json_is_string(list) && strcmp(json_string_value(list), "all") == 0)) {
        for (; v->at.head_count < m->heads; v->at.head_count++) v->at.heads[v->at.head_count] = v->at.head_count;
        return true;
    }
    for (size_t i = 0; i < json_array_size(list) && i < (size_t)m->heads; i++) {
        const json_t *head = json_array_get(list, i);
        const json_int_t value = json_integer_value(head);
        if (!json_is_integer(head) || value < 0 || value >= m->heads) break;
        v->at.heads[v->at.head_count++] = (int)value;
    }
    if (v->at.head_count && json_array_size(list) == (size_t)v->at.head_count) return true;
    return serve_wrong(f, "heads", "\"all\", or a list of heads of the layer");
}

static bool read_map(serve_fields *outer, const serve_model *m, const char *prefix, serve_view *v) {
    const pal_model *model = m->bundle.model;
    const pal_model_config *c = pal_model_config_of(model);
    const json_t *map = given(outer->root, "map");
    int64_t layer = 0, size = 64;
    v->map = map != NULL;
    if (!map) return true;
    if (!json_is_object(map)) return serve_wrong(outer, "map", "an object, or null for no maps");
    serve_fields f = { .x = outer->x, .root = map, .result = MHD_NO, .prefix = prefix };
    const json_t *how = given(map, "reduce");
    const char *word = how ? json_string_value(how) : "max";
    bool fine = serve_integer(&f, "layer", 0, c->layers - 1, &layer) && serve_integer(&f, "size", 1, 1024, &size);
    const pal_mixer_spec *memory = fine ? pal_model_memory(c, (int)layer) : NULL;
    if (fine && !memory)
        fine = serve_wrong(&f, "layer", "a layer with a memory of keys by values, which attention has not");
    fine = fine && read_heads(&f, memory, v);
    v->at.layer = (int)layer, v->at.size = (int)size;
    if (fine && (!word || (strcmp(word, "max") != 0 && strcmp(word, "mean") != 0)))
        fine = serve_wrong(&f, "reduce", "\"max\" or \"mean\"");
    else if (fine && v->at.head_count * (size < memory->dk ? size : memory->dk) *
                             (size < memory->dv ? size : memory->dv) >
                         PAL_LARGEST_MAP)
        fine = serve_wrong(&f, "size", "fewer numbers: heads times rows times columns up to 1048576");
    v->at.mean = word && strcmp(word, "mean") == 0;
    if (!fine) outer->result = f.result;
    return fine;
}

static bool read_elements(serve_fields *f, const serve_model *m, serve_view *v) {
    const pal_model_config *c = pal_model_config_of(m->bundle.model);
    const json_t *list = given(f->root, "elements");
    static const char expected[] = "at most 16 lists [layer, head, key, value] of layers with such a memory";
    v->element_count = 0;
    if (!list) return true;
    if (!json_is_array(list) || json_array_size(list) > PAL_ELEMENTS) return serve_wrong(f, "elements", expected);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        int limits[4] = { c->layers }, at[4];
        if (json_array_size(one) != 4) return serve_wrong(f, "elements", expected);
        for (size_t k = 0; k < 4; k++) {
            const json_t *number = json_array_get(one, k);
            const json_int_t value = json_integer_value(number);
            if (!json_is_integer(number) || value < 0 || value >= limits[k])
                return serve_wrong(f, "elements", expected);
            at[k] = (int)value;
            if (k) continue;
            const pal_mixer_spec *memory = pal_model_memory(c, at[0]); /* none: nothing is below 0 */
            if (memory) limits[1] = memory->heads, limits[2] = memory->dk, limits[3] = memory->dv;
        }
        v->elements[v->element_count++] = (pal_element){ at[0], at[1], at[2], at[3] };
    }
    return true;
}

void serve_observe_free(serve_observe *o) {
    if (!o) return;
    pal_look_free(&o->look);
    pal_free(o->view.at.heads), pal_free(o->next.at.heads);
    pal_bytes_free(&o->events);
    pal_free(o);
}

static serve_observe *make(const serve_model *m, bool tiles) {
    int heads;
    pal_model_widest(pal_model_config_of(m->bundle.model), &heads, NULL, NULL);
    serve_observe *o = pal_alloc(1, sizeof *o);
    if (!o) return NULL;
    o->mapped_at = o->kept_at = -1;
    o->view.at.heads = pal_alloc((size_t)heads, sizeof(int));
    o->next.at.heads = pal_alloc((size_t)heads, sizeof(int));
    if (pal_look_make(&o->look, m->bundle.model, tiles) && o->view.at.heads && o->next.at.heads) return o;
    serve_observe_free(o);
    return NULL;
}

static bool read_observe(serve_fields *outer, serve_job *job) {
    const json_t *value = given(outer->root, "observe");
    int64_t every = 0, from = 0;
    bool tiles = true;
    if (value && !json_is_object(value)) return serve_wrong(outer, "observe", "an object");
    serve_fields f = { .x = outer->x, .root = value, .result = MHD_NO, .prefix = "observe." };
    bool fine = serve_boolean(&f, "tiles", &tiles) && serve_integer(&f, "every", 0, PAL_LONGEST_PIECE, &every) &&
                serve_integer(&f, "from", 0, INT64_MAX / 2, &from);
    if (fine && !(job->observe = make(job->model, tiles))) fine = serve_no_memory(&f);
    if (fine) {
        serve_observe *o = job->observe;
        o->every = every ? (int)every : SERVE_SNAPSHOT;
        o->from = from;
        o->changed = true; /* the worker takes its view */
        fine = read_map(&f, job->model, "observe.map.", &o->next) && read_elements(&f, job->model, &o->next);
    }
    if (!fine) outer->result = f.result;
    return fine;
}

static bool read_request(serve_fields *f, serve_job *job, int64_t *n) {
    const bool chat = given(f->root, "messages") != NULL;
    int64_t alternatives = 5;
    if (!chat) job->echo = true;
    if (!(chat ? serve_read_chat : serve_read_completion)(f, job, n)) return false;
    job->chat = false; /* the answer is the same for both */
    job->echo = true;
    if (!serve_boolean(f, "echo", &job->echo)) return false;
    if (!json_is_boolean(json_object_get(f->root, "logprobs")) &&
        !serve_integer(f, "logprobs", 0, PAL_ALTERNATIVES, &alternatives))
        return false;
    if (*n != 1 || job->prompt_count != 1) return serve_wrong(f, *n != 1 ? "n" : "prompt", "one text to observe");
    if (!chat || !job->alternatives) job->alternatives = (int)alternatives;
    job->logprobs = job->stream = true;
    return read_observe(f, job);
}

serve_result serve_observe_post(serve_exchange *x) { return serve_text_request(x, read_request); }

/* The observed text of this id that runs or waits. With the lock. */
static serve_job *find_job(pal_server *s, const char *id) {
    for (serve_job *job = s->running; job; job = job->next)
        if (job->observe && strcmp(job->id, id) == 0) return job;
    for (serve_job *job = s->queue; job; job = job->next)
        if (job->observe && strcmp(job->id, id) == 0) return job;
    return NULL;
}

serve_result serve_observe_change(serve_exchange *x) {
    pal_server *s = x->server;
    serve_fields f = { .x = x, .result = MHD_NO };
    json_t *root = serve_body(x, &f.result);
    if (!root) return f.result;
    f.root = root;
    pthread_mutex_lock(&s->lock);
    const serve_job *found = find_job(s, x->parts[0]);
    const serve_model *model = found ? found->model : NULL;
    pthread_mutex_unlock(&s->lock);
    serve_view view = { 0 };
    int heads = 0;
    if (model) pal_model_widest(pal_model_config_of(model->bundle.model), &heads, NULL, NULL);
    if (model) view.at.heads = pal_alloc((size_t)heads, sizeof(int));
    const bool map = json_object_get(root, "map") != NULL, elements = json_object_get(root, "elements") != NULL;
    if (!model) f.result = serve_error(x, 404, "id", "no text that runs is observed as '%.40s'", x->parts[0]);
    else if (!view.at.heads) f.result = serve_error(x, 500, NULL, "out of memory for a view");
    else if (read_map(&f, model, "map.", &view) && read_elements(&f, model, &view)) {
        pthread_mutex_lock(&s->lock);
        serve_job *job = find_job(s, x->parts[0]); /* it may have ended meanwhile */
        if (job) {
            serve_view *to = &job->observe->next;
            if (map) {
                to->map = view.map, to->at.mean = view.at.mean;
                to->at.layer = view.at.layer, to->at.size = view.at.size;
                to->at.head_count = view.at.head_count;
                memcpy(to->at.heads, view.at.heads, (size_t)view.at.head_count * sizeof *view.at.heads);
            }
            if (elements) {
                to->element_count = view.element_count;
                memcpy(to->elements, view.elements, sizeof view.elements);
            }
            job->observe->changed = true;
        }
        pthread_mutex_unlock(&s->lock);
        f.result = job ? serve_reply_json(x, 200, json_pack("{s:s}", "id", x->parts[0]))
                       : serve_error(x, 404, "id", "no text that runs is observed as '%.40s'", x->parts[0]);
    }
    pal_free(view.at.heads);
    json_decref(root);
    return f.result;
}

void serve_observe_view(serve_observe *o) {
    if (!o->changed) return;
    int *heads = o->view.at.heads;
    memcpy(heads, o->next.at.heads, (size_t)o->next.at.head_count * sizeof *heads);
    o->view = o->next;
    o->view.at.heads = heads;
    o->look.watch.elements = o->view.elements;
    o->look.watch.element_count = o->view.element_count;
    o->changed = false;
    o->mapped_at = -1;
    o->mapped = 0;
}

size_t serve_observe_known(const serve_observe *o) { return (size_t)o->from + 1; }

void serve_observe_options(serve_observe *o, pal_session_options *options) {
    options->watch = &o->look.watch;
    options->piece = o->every;
}

/* The first token of a prompt that is reported: after a memory that of the pending one, from a copy the one that was
 * predicted by it, and in an empty text the very first. */
void serve_observe_ready(serve_text *t, const pal_state *known) {
    serve_observe *o = t->job->observe;
    const pal_state *state = known ? known : pal_session_state(t->session);
    o->position = pal_state_position(state);
    o->index = o->position || pal_state_pending(state) >= 0 ? o->position + 1 : 0;
}

bool serve_observe_begin(serve_text *t) {
    const serve_job *job = t->job;
    return pal_frame_start(&job->observe->events, &job->model->bundle, job->id, job->model->name,
                           job->observe->position, t->prompt->data, t->prompt->count);
}

static bool put_tiles(serve_text *t, int64_t from, int64_t position) {
    serve_observe *o = t->job->observe;
    return pal_frame_tiles(&o->events, t->job->model->bundle.model, &o->look.watch, from, position);
}

static bool put_map(serve_text *t, pal_bytes *to) {
    serve_observe *o = t->job->observe;
    const pal_state *state = pal_session_state(t->session);
    o->mapped_at = pal_state_position(state);
    return pal_frame_map(to, state, &o->view.at, &o->look);
}

/* Into its reply. */
static bool put_end(serve_text *t, int64_t position) {
    serve_job *job = t->job;
    return serve_job_event(job, json_pack("{s:s, s:s?, s:I, s:o, s:o}", "type", "end", "finish_reason", serve_finish(t),
                                          "position", (json_int_t)position, "text",
                                          pal_json_bytes(t->text.data, t->text.size), "usage", serve_counts_json(job)));
}

/* A copy of the memory every so often, so that a replay need not read from the beginning. */
static void keep(serve_text *t, const pal_state *state) {
    serve_job *job = t->job;
    serve_observe *o = job->observe;
    const int64_t at = pal_state_position(state), which = at / SERVE_SNAPSHOT;
    const size_t prompt = t->prompt->count, count = (size_t)at;
    pal_ids all = { 0 };
    if (!job->caches || which == o->kept_at || count > prompt + t->ids.count) return;
    o->kept_at = which;
    if (!pal_ids_reserve(&all, count, NULL)) {
        memcpy(all.data, t->prompt->data, (count < prompt ? count : prompt) * sizeof *all.data);
        if (count > prompt) memcpy(all.data + prompt, t->ids.data, (count - prompt) * sizeof *all.data);
        serve_cache_put(job->server, job->model, all.data, count, state, false);
    }
    pal_ids_free(&all);
}

/* After a step or a piece. */
static bool frame(serve_text *t, const pal_state *state) {
    serve_observe *o = t->job->observe;
    const int64_t from = o->position, position = pal_state_position(state);
    o->position = position;
    keep(t, state);
    return position <= o->from || position == from || put_tiles(t, from, position);
}

bool serve_observe_on_token(serve_text *t, const pal_token *token) {
    serve_observe *o = t->job->observe;
    const pal_state *state = pal_session_state(t->session);
    if (token->id < 0) return true;
    const int64_t index = token->prompt ? o->index++ : pal_state_position(state);
    return pal_frame_token(&o->events, &t->job->model->bundle, token, index) && (token->prompt || frame(t, state));
}

bool serve_observe_on_read(serve_text *t, const pal_state *state) { return frame(t, state); }

bool serve_observe_last_map(serve_text *t) {
    serve_observe *o = t->job->observe;
    if (!o->view.map || o->mapped_at == pal_state_position(pal_session_state(t->session))) return true;
    return put_map(t, &o->events);
}

bool serve_observe_publish(serve_text *t) {
    serve_job *job = t->job;
    serve_observe *o = job->observe;
    bool fits = !o->events.size || !pal_bytes_append(&job->reply, o->events.data, o->events.size, NULL);
    o->events.size = 0;
    const double now = pal_seconds();
    if (fits && t->session && o->view.map && job->reply.size - job->sent < SERVE_MAP_ROOM &&
        now - o->mapped >= SERVE_MAP_SECONDS && o->position > o->from && o->mapped_at != o->position) {
        o->mapped = now;
        fits = put_map(t, &job->reply);
    }
    if (fits && t->done && t->finish != PAL_FINISH_ERROR) fits = put_end(t, o->position);
    return fits;
}
