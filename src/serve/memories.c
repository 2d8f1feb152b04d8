/* SPDX-License-Identifier: MIT */
/* /v1/memories: what a model has read, as a thing to keep: made from a text, from another memory or from a file,
 * marked, rolled back, downloaded and deleted. Handlers hold the server's lock while they look at memories. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/io.h"
#include "format/json.h"
#include "model/state.h"
#include "serve/inside.h"
#include "text/strings.h"
#include "text/utf8.h"

enum { PATH = 4096, LONGEST_NAME = 200 };

/* The memory of the path, with the lock; without one: no lock, and *result is the answer. */
static serve_memory *begin(serve_exchange *x, bool change, serve_result *result) {
    pal_server *s = x->server;
    pthread_mutex_lock(&s->lock);
    serve_memory *m = serve_memory_find(s, x->parts[0]);
    if (m && !(change && m->updating)) return m;
    pthread_mutex_unlock(&s->lock);
    *result = m ? serve_error(x, 409, "memory", "memory %s is being updated", x->parts[0])
                : serve_error(x, 404, "memory", "no memory has the id '%.40s'", x->parts[0]);
    return NULL;
}

static serve_result answer_error(serve_exchange *x, int status, pal_error *err) {
    serve_hide_paths(x->server, err->text);
    return serve_error(x, status, NULL, "%s", err->text);
}

/* Ends what begin began: an error, or the memory as it is now. */
static serve_result answer(serve_exchange *x, const serve_memory *m, pal_status st, int status, pal_error *err) {
    json_t *value = st ? NULL : serve_memory_json(m);
    pthread_mutex_unlock(&x->server->lock);
    return st ? answer_error(x, status, err) : serve_reply_json(x, status, value);
}

serve_result serve_memories(serve_exchange *x) {
    pal_server *s = x->server;
    json_t *list = json_array();
    pthread_mutex_lock(&s->lock);
    for (const serve_memory *m = s->store.list; m; m = m->next) pal_json_append(list, serve_memory_json(m));
    json_t *root = json_pack("{s:s, s:o, s:I, s:I}", "object", "list", "data", list, "disk_used",
                             (json_int_t)s->store.used, "disk_limit", (json_int_t)s->store.limit);
    pthread_mutex_unlock(&s->lock);
    return serve_reply_json(x, 200, root);
}

serve_result serve_memory_get(serve_exchange *x) {
    serve_result result;
    const serve_memory *m = begin(x, false, &result);
    return m ? answer(x, m, PAL_OK, 200, &(pal_error){ 0 }) : result;
}

serve_result serve_memory_drop(serve_exchange *x) {
    serve_result result;
    serve_memory *m = begin(x, true, &result);
    if (!m) return result;
    serve_memory_delete(x->server, m);
    pthread_mutex_unlock(&x->server->lock);
    return serve_reply_json(x, 200, json_pack("{s:s, s:s, s:b}", "id", x->parts[0], "object", "memory", "deleted", 1));
}

serve_result serve_memory_file(serve_exchange *x) {
    char path[PATH], offered[128];
    struct stat about;
    serve_result result;
    const serve_memory *m = begin(x, false, &result);
    if (!m) return result;
    serve_memory_path(x->server, m, 0, path);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    pthread_mutex_unlock(&x->server->lock);
    if (file < 0 || fstat(file, &about) != 0) {
        if (file >= 0) close(file);
        return serve_error(x, 500, NULL, "the memory's file cannot be opened: %s", strerror(errno));
    }
    snprintf(offered, sizeof offered, "attachment; filename=\"%s.memory\"", x->parts[0]);
    struct MHD_Response *response = MHD_create_response_from_fd((size_t)about.st_size, file);
    if (!response) {
        close(file);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Disposition", offered);
    return serve_send(x, 200, "application/octet-stream", response);
}

/* A name that people see: anything short. NULL after an answer when it is not; "" when there is none. */
static const char *shown_name(serve_fields *f) {
    const json_t *value = json_object_get(f->root, "name");
    const char *name = json_string_value(value);
    if (!value || json_is_null(value)) return "";
    if (name && strlen(name) == json_string_length(value) && strlen(name) <= LONGEST_NAME) return name;
    serve_wrong(f, "name", "a text of at most 200 bytes without zero bytes");
    return NULL;
}

/* A mark's name is part of a path: plain letters. NULL after an answer. */
static const char *mark_name(serve_fields *f, const char *field) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const json_t *value = json_object_get(f->root, field);
    const char *name = json_string_value(value);
    const bool dots = name && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0); /* clients fold them away in paths */
    if (name && *name && !dots && strlen(name) < SERVE_NAME && strspn(name, letters) == json_string_length(value))
        return name;
    serve_wrong(f, field, "1 to 64 letters, digits, dots, dashes and underscores, not only one or two dots");
    return NULL;
}

serve_result serve_memory_name(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    json_t *root = serve_body(x, &f.result);
    f.root = root;
    const char *name = root ? shown_name(&f) : NULL;
    serve_memory *m = name ? begin(x, true, &f.result) : NULL;
    if (m) {
        pal_error err;
        char *new = *name ? pal_strdup(name) : NULL, *old = m->name;
        m->name = new;
        pal_status st = *name && !new ? pal_fail(&err, PAL_E_MEMORY, "out of memory for a name")
                                      : serve_memory_keep(x->server, m, &err);
        if (st) m->name = old;
        pal_free(st ? new : old);
        f.result = answer(x, m, st, st ? 500 : 200, &err);
    }
    json_decref(root);
    return f.result;
}

serve_result serve_memory_mark(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    json_t *root = serve_body(x, &f.result);
    f.root = root;
    const char *name = root ? mark_name(&f, "name") : NULL;
    serve_memory *m = name ? begin(x, true, &f.result) : NULL;
    if (m && serve_mark_find(m, name)) {
        pthread_mutex_unlock(&x->server->lock);
        f.result = serve_error(x, 409, "name", "the memory has a mark '%s' already", name);
    } else if (m) {
        pal_error err;
        int status;
        const pal_status st = serve_mark_add(x->server, m, name, &status, &err);
        f.result = answer(x, m, st, st ? status : 201, &err);
    }
    json_decref(root);
    return f.result;
}

static serve_result no_mark(serve_exchange *x, const char *field, const char *name) {
    pthread_mutex_unlock(&x->server->lock);
    return serve_error(x, 404, field, "the memory has no mark '%.64s'", name);
}

serve_result serve_mark_drop(serve_exchange *x) {
    serve_result result;
    pal_error err;
    serve_memory *m = begin(x, true, &result);
    if (!m) return result;
    serve_mark *mark = serve_mark_find(m, x->parts[1]);
    if (!mark) return no_mark(x, "mark", x->parts[1]);
    const pal_status st = serve_mark_remove(x->server, m, mark, &err);
    return answer(x, m, st, st ? 500 : 200, &err);
}

serve_result serve_memory_rollback(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    char from[PATH], to[PATH];
    json_t *root = serve_body(x, &f.result);
    f.root = root;
    const char *name = root ? mark_name(&f, "mark") : NULL;
    serve_memory *m = name ? begin(x, true, &f.result) : NULL;
    const serve_mark *mark = m ? serve_mark_find(m, name) : NULL;
    if (m && !mark) f.result = no_mark(x, "mark", name);
    else if (m) {
        pal_error err;
        serve_memory_path(x->server, m, mark->number, from);
        serve_memory_path(x->server, m, 0, to);
        const uint64_t version = mark->version;
        pal_status st = serve_memory_link(x->server, from, to, &err);
        if (!st) st = serve_memory_keep(x->server, m, &err);
        if (!st) m->version = version;
        f.result = answer(x, m, st, st ? 500 : 200, &err);
    }
    json_decref(root);
    return f.result;
}

static serve_result no_room(serve_exchange *x, const serve_model *model, int status) {
    pthread_mutex_lock(&x->server->lock);
    const size_t used = x->server->store.used;
    pthread_mutex_unlock(&x->server->lock);
    return status == 507 ? serve_error(x, 507, NULL,
                                       "no room for a memory of %zu bytes: %zu of %zu are taken (--memory-disk); "
                                       "delete one first",
                                       model->file_bytes, used, x->server->store.limit)
                         : serve_error(x, status, NULL, "out of memory while creating the saved memory");
}

/* A new memory that begins as a copy of another, or as one of its marks. NULL after an answer. */
static serve_memory *fork_of(serve_fields *f, const char *name) {
    serve_exchange *x = f->x;
    pal_server *s = x->server;
    const json_t *id = json_object_get(f->root, "from"), *at = json_object_get(f->root, "mark");
    const char *mark_at = NULL;
    char from[PATH], to[PATH];
    pal_error err;
    int status = 0;
    if (!json_is_string(id)) {
        serve_wrong(f, "from", "the id of a memory");
        return NULL;
    }
    if (at && !json_is_null(at) && !(mark_at = mark_name(f, "mark"))) return NULL;
    pthread_mutex_lock(&s->lock);
    const serve_memory *parent = serve_memory_find(s, json_string_value(id));
    const serve_mark *mark = parent && mark_at ? serve_mark_find(parent, mark_at) : NULL;
    serve_model *model = parent ? parent->model : NULL; /* the parent may go when the lock does */
    serve_memory *m = NULL;
    if (!model || (mark_at && !mark)) {
        pthread_mutex_unlock(&s->lock);
        f->result = !parent ? serve_error(x, 404, "from", "no memory has the id '%.40s'", json_string_value(id))
                    : model ? serve_error(x, 404, "mark", "the memory has no mark '%s'", mark_at)
                            : serve_error(x, 404, "from", "the memory's model is not served");
        return NULL;
    }
    m = serve_memory_new(s, model, name, "fork", &status);
    pal_status st = PAL_OK;
    if (m) {
        snprintf(m->parent, sizeof m->parent, "%s", parent->id);
        serve_memory_path(s, parent, mark ? mark->number : 0, from);
        serve_memory_path(s, m, 0, to);
        if ((st = serve_memory_link(s, from, to, &err))) serve_memory_leave(s, m);
        else m->has_file = true, m->version = mark ? mark->version : parent->version;
    }
    pthread_mutex_unlock(&s->lock);
    if (!m) f->result = no_room(x, model, status);
    if (m && st) f->result = answer_error(x, 500, &err);
    return st ? NULL : m;
}

/* The job that reads what a new memory is to hold; takes over the memory. */
static serve_result run(serve_exchange *x, serve_job *job, serve_memory *m) {
    job->memory = m;
    job->makes = true;
    return serve_job_run(x, job, 1);
}

static serve_result drop(serve_exchange *x, serve_memory *m, serve_result result) {
    if (!m) return result;
    pthread_mutex_lock(&x->server->lock);
    serve_memory_leave(x->server, m);
    pthread_mutex_unlock(&x->server->lock);
    return result;
}

static bool read_prompt(serve_fields *f, serve_job *job, const json_t *text, const json_t *tokens) {
    const bool is_text = text && !json_is_null(text);
    if (is_text && !json_is_string(text)) return serve_wrong(f, "text", "a text");
    if (is_text && tokens && !json_is_null(tokens)) return serve_wrong(f, "tokens", "nothing next to \"text\"");
    if (!is_text && !json_is_integer(json_array_get(tokens, 0))) return serve_wrong(f, "tokens", "a list of ids");
    return serve_prompts(f, job, is_text ? "text" : "tokens");
}

/* A request with a memory may also name its model, and no other. */
static bool of_model(serve_fields *f, const serve_model *model) {
    const json_t *name = json_object_get(f->root, "model");
    if (!name || json_is_null(name)) return true;
    const serve_model *named = serve_find_model(f->x, f->root, &f->result);
    if (named && named != model)
        f->result = serve_error(f->x, 400, "model", "'model': the memory belongs to '%s'", model->name);
    return named == model;
}

static serve_result make(serve_fields *f) {
    serve_exchange *x = f->x;
    pal_server *s = x->server;
    const json_t *text = json_object_get(f->root, "text"), *tokens = json_object_get(f->root, "tokens");
    const json_t *from = json_object_get(f->root, "from");
    const bool reads = (text && !json_is_null(text)) || (tokens && !json_is_null(tokens));
    const bool forks = from && !json_is_null(from);
    const char *name = shown_name(f);
    serve_memory *m = NULL;
    serve_model *model = NULL;
    int status = 0;
    if (!name) return f->result;
    if (!*name) name = NULL;
    const bool empty = !reads && !forks && json_is_string(json_object_get(f->root, "model"));
    if (!reads && !forks && !empty) {
        serve_wrong(f, "text", "a text to read, or \"tokens\", or \"from\" with a memory's id, or \"model\" alone");
        return f->result;
    }
    if (forks) {
        if (!(m = fork_of(f, name))) return f->result;
        model = m->model;
        if (!of_model(f, model)) return drop(x, m, f->result);
    } else if (!(model = serve_find_model(x, f->root, &f->result))) {
        return f->result;
    }
    if (!reads && !empty) {
        pal_error err;
        pthread_mutex_lock(&s->lock);
        const uint64_t version = m->version; /* of the file that it shares */
        const pal_status st = serve_memory_keep(s, m, &err);
        m->version = version;
        json_t *value = serve_memory_json(m);
        serve_memory_leave(s, m);
        pthread_mutex_unlock(&s->lock);
        if (!st) return serve_reply_json(x, 201, value);
        json_decref(value);
        return answer_error(x, 500, &err);
    }
    serve_job *job = serve_job_new(x, model);
    if (!job) return drop(x, m, serve_error(x, 500, NULL, "out of memory for a request"));
    job->memory = m; /* an empty text is fine after one */
    if (reads && !read_prompt(f, job, text, tokens)) {
        serve_job_free(job);
        return drop(x, m, f->result);
    }
    if (!m) {
        pthread_mutex_lock(&s->lock);
        m = serve_memory_new(s, model, name, "text", &status);
        pthread_mutex_unlock(&s->lock);
        if (!m) {
            serve_job_free(job);
            return no_room(x, model, status);
        }
    }
    job->update = true;
    return run(x, job, m);
}

/* The file is there: it is looked at by the thread that knows models. */
static serve_result make_from_upload(serve_exchange *x) {
    serve_upload *u = x->upload;
    if (u->status) return serve_error(x, u->status, NULL, "%s", u->error);
    serve_job *job = serve_job_new(x, u->memory->model);
    if (!job) return serve_error(x, 500, NULL, "out of memory for a request");
    serve_memory *m = u->memory;
    u->memory = NULL;
    m->has_file = true;
    return run(x, job, m);
}

serve_result serve_memories_make(serve_exchange *x) {
    serve_fields f = { .x = x, .result = MHD_NO };
    if (x->upload) return make_from_upload(x);
    json_t *root = serve_body(x, &f.result);
    f.root = root;
    const serve_result result = root ? make(&f) : f.result;
    json_decref(root);
    return result;
}

static bool is_utf8(const char *text) {
    uint32_t code;
    size_t n = 1;
    for (; *text && n; text += n) n = pal_utf8_read((const unsigned char *)text, strlen(text), &code);
    return n != 0;
}

bool serve_upload_begin(serve_exchange *x, serve_result *result) {
    pal_server *s = x->server;
    char path[PATH];
    int status = 0;
    const char *name = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "name");
    const char *model_name = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, "model");
    const char *length = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    serve_model *model = serve_find_named(x, model_name, result);
    if (!model) return false;
    if (name && (strlen(name) > LONGEST_NAME || !is_utf8(name))) {
        *result = serve_error(x, 400, "name", "'name': expected at most %d bytes of UTF-8", LONGEST_NAME);
        return false;
    }
    if (length && strtoull(length, NULL, 10) > model->file_bytes) {
        *result = serve_error(x, 413, NULL, "the file has %.20s bytes, a memory of this model at most %zu", length,
                              model->file_bytes);
        return false;
    }
    serve_upload *u = pal_alloc(1, sizeof *u);
    if (!u) {
        *result = serve_error(x, 500, NULL, "out of memory for an upload");
        return false;
    }
    pthread_mutex_lock(&s->lock);
    u->memory = serve_memory_new(s, model, name && *name ? name : NULL, "upload", &status);
    pthread_mutex_unlock(&s->lock);
    if (!u->memory) {
        pal_free(u);
        *result = no_room(x, model, status);
        return false;
    }
    u->most = model->file_bytes;
    serve_memory_path(s, u->memory, 0, path);
    u->file = pal_io_open(path, O_WRONLY | O_CREAT | O_EXCL);
    if (u->file < 0) {
        u->status = 500;
        snprintf(u->error, sizeof u->error, "the memory's file cannot be made: %s", strerror(errno));
    }
    x->upload = u;
    return true;
}

void serve_upload_take(serve_upload *u, const void *data, size_t size) {
    if (u->status) return; /* said when the body has ended */
    if (size > u->most - u->size) {
        u->status = 413;
        snprintf(u->error, sizeof u->error,
                 "the file is larger than a memory of this model, which has at most %zu bytes", u->most);
        return;
    }
    u->size += size;
    if (pal_io_write(u->file, data, size)) return;
    u->status = errno == ENOSPC || errno == EDQUOT ? 507 : 500;
    snprintf(u->error, sizeof u->error, "the memory's file cannot be written: %s", strerror(errno));
}

void serve_upload_end(serve_exchange *x) {
    serve_upload *u = x->upload;
    if (!u) return;
    if (u->file >= 0) close(u->file);
    drop(x, u->memory, MHD_NO);
    pal_free(u);
    x->upload = NULL;
}
