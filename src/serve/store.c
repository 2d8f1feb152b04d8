/* SPDX-License-Identifier: MIT */
/* Memories as files of one directory: ID.state, ID.N.state for its marks, and ID.json with names and dates. A state's
 * file is never changed in place, so a fork and a mark are a second name of the same file until one of them is
 * replaced. What belongs to no ID.json is a memory that was not finished, and goes at the next start. File names are
 * made of ids that the server chose, never of what a request says. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/map.h"
#include "format/json.h"
#include "model/state.h"
#include "serve/inside.h"
#include "text/strings.h"

enum { ID_LENGTH = 16, PATH = 4096, MOST_MARKS = 1000 };

void serve_memory_path(const pal_server *s, const serve_memory *m, int mark, char path[PATH]) {
    if (mark) snprintf(path, PATH, "%s/%s.%d.state", s->store.directory, m->id, mark);
    else snprintf(path, PATH, "%s/%s.state", s->store.directory, m->id);
}

static void description_path(const pal_server *s, const serve_memory *m, char path[PATH]) {
    snprintf(path, PATH, "%s/%s.json", s->store.directory, m->id);
}

serve_memory *serve_memory_find(pal_server *s, const char *id) {
    for (serve_memory *m = s->store.list; m; m = m->next)
        if (strcmp(m->id, id) == 0) return m;
    return NULL;
}

serve_mark *serve_mark_find(const serve_memory *m, const char *name) {
    for (size_t i = 0; i < m->mark_count; i++)
        if (strcmp(m->marks[i].name, name) == 0) return &m->marks[i];
    return NULL;
}

static void free_memory(serve_memory *m) {
    if (!m) return;
    pal_free(m->name);
    pal_free(m->marks);
    pal_free(m);
}

json_t *serve_memory_json(const serve_memory *m) {
    json_t *marks = json_array();
    for (size_t i = 0; i < m->mark_count; i++)
        pal_json_append(marks, json_pack("{s:s, s:I, s:I}", "name", m->marks[i].name, "tokens",
                                         (json_int_t)m->marks[i].tokens, "created", (json_int_t)m->marks[i].created));
    json_t *root = json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:I, s:s, s:s?, s:I, s:I, s:o}", "id", m->id, "object",
                             "memory", "name", m->name, "model", m->model ? m->model->name : NULL, "tokens",
                             (json_int_t)m->tokens, "bytes", (json_int_t)m->bytes, "origin", m->origin, "parent",
                             m->parent[0] ? m->parent : NULL, "created", (json_int_t)m->created, "changed",
                             (json_int_t)m->changed, "marks", marks);
    if (root && m->model && m->model->context)
        pal_json_set(root, "note",
                     json_sprintf("this model has attention layers: a memory grows with its text, to at most %d tokens "
                                  "(--max-context)",
                                  m->model->context));
    return root;
}

/* What ID.json holds: names and dates. Tokens and sizes are read from the states' own files. */
static json_t *description(const serve_memory *m) {
    json_t *marks = json_array();
    for (size_t i = 0; i < m->mark_count; i++)
        pal_json_append(marks, json_pack("{s:s, s:i, s:I}", "name", m->marks[i].name, "number", m->marks[i].number,
                                         "created", (json_int_t)m->marks[i].created));
    return json_pack("{s:s?, s:s, s:s, s:I, s:I, s:o}", "name", m->name, "origin", m->origin, "parent", m->parent,
                     "created", (json_int_t)m->created, "changed", (json_int_t)m->changed, "marks", marks);
}

static pal_status write_description(pal_server *s, const serve_memory *m, pal_error *err) {
    char path[PATH];
    pal_writer w;
    json_t *root = description(m);
    description_path(s, m, path);
    pal_status st = root ? pal_writer_open(&w, path, err) : pal_fail(err, PAL_E_MEMORY, "out of memory for %s", path);
    if (!st && !pal_json_print(root, JSON_INDENT(1), w.stream)) {
        pal_writer_drop(&w);
        st = pal_fail(err, PAL_E_IO, "%s: cannot write: %s", path, strerror(errno));
    } else if (!st) {
        st = pal_writer_commit(&w, err);
    }
    json_decref(root);
    return st;
}

static serve_model *model_of(pal_server *s, uint64_t fingerprint) {
    for (int i = 0; i < s->count; i++)
        if (pal_model_fingerprint(s->models[i].bundle.model) == fingerprint) return &s->models[i];
    return NULL;
}

static bool has_room(const pal_server *s, size_t bytes) {
    return s->store.used <= s->store.limit && bytes <= s->store.limit - s->store.used;
}

serve_memory *serve_memory_new(pal_server *s, serve_model *model, const char *name, const char *origin, int *status) {
    uint64_t number;
    *status = 507;
    if (!has_room(s, model->file_bytes)) return NULL;
    *status = 500;
    serve_memory *m = pal_alloc(1, sizeof *m);
    if (!m || (name && !(m->name = pal_strdup(name)))) goto failed;
    do {
        if (getrandom(&number, sizeof number, 0) != sizeof number) goto failed;
        snprintf(m->id, sizeof m->id, "%016llx", (unsigned long long)number);
    } while (serve_memory_find(s, m->id));
    snprintf(m->origin, sizeof m->origin, "%s", origin);
    m->model = model;
    m->created = m->changed = time(NULL);
    m->next_mark = 1;
    m->users = 1;
    m->bytes = model->file_bytes;
    s->store.used += m->bytes;
    return m;
failed:
    free_memory(m);
    return NULL;
}

/* Its files go, and their room is free. */
static void drop_files(pal_server *s, serve_memory *m) {
    char path[PATH];
    description_path(s, m, path);
    pal_io_unlink(path);
    serve_memory_path(s, m, 0, path);
    pal_io_unlink(path);
    s->store.used -= m->bytes;
    for (size_t i = 0; i < m->mark_count; i++) {
        serve_memory_path(s, m, m->marks[i].number, path);
        pal_io_unlink(path);
        s->store.used -= m->marks[i].bytes;
    }
}

void serve_memory_leave(pal_server *s, serve_memory *m) {
    if (--m->users || m->listed) return;
    if (!m->deleted) drop_files(s, m);
    free_memory(m);
}

void serve_memory_delete(pal_server *s, serve_memory *m) {
    serve_memory **at = &s->store.list;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    drop_files(s, m);
    m->listed = false;
    m->deleted = true;
    m->users++;
    serve_memory_leave(s, m);
}

pal_status serve_memory_link(pal_server *s, const char *from, const char *to, pal_error *err) {
    char aside[PATH];
    snprintf(aside, sizeof aside, "%.4000s/link.part", s->store.directory);
    pal_io_unlink(aside);
    if (!pal_io_link(from, aside) || !pal_io_rename(aside, to)) {
        const int why = errno;
        pal_io_unlink(aside);
        return pal_fail(err, PAL_E_IO, "%s: cannot be given a second name: %s", from, strerror(why));
    }
    pal_io_unlink(aside); /* renaming one name of a file onto another of the same file does nothing */
    return PAL_OK;
}

void serve_hide_paths(const pal_server *s, char *sentence) {
    const size_t size = strlen(s->store.directory);
    for (char *at = sentence; (at = strstr(at, s->store.directory));)
        if (at[size] == '/') memmove(at, at + size + 1, strlen(at + size + 1) + 1);
        else at += size;
}

/* A file that claims to be larger than its model's memory would take everybody's room. */
static pal_status check_size(pal_server *s, const pal_state_head *head, const char *path, pal_error *err) {
    const serve_model *model = model_of(s, head->fingerprint);
    if (!model || (model->context && head->context != model->context) || head->bytes <= model->file_bytes)
        return PAL_OK;
    return pal_fail(err, PAL_E_FORMAT, "%s: %zu bytes, a memory of its model has at most %zu", path, head->bytes,
                    model->file_bytes);
}

/* The newest state's tokens and size. */
static pal_status look(pal_server *s, serve_memory *m, pal_error *err) {
    char path[PATH];
    pal_state_head head;
    serve_memory_path(s, m, 0, path);
    pal_status st = pal_state_peek(&head, path, err);
    if (!st) st = check_size(s, &head, path, err);
    if (st) return st;
    s->store.used = s->store.used - m->bytes + head.bytes;
    m->bytes = head.bytes;
    m->tokens = head.tokens;
    m->fingerprint = head.fingerprint;
    m->has_file = true;
    m->version = ++s->next_id;
    return PAL_OK;
}

pal_status serve_memory_keep(pal_server *s, serve_memory *m, pal_error *err) {
    pal_status st = look(s, m, err);
    m->changed = time(NULL);
    if (!st) st = write_description(s, m, err);
    if (st || m->listed) return st;
    m->listed = true;
    m->next = s->store.list;
    s->store.list = m;
    return PAL_OK;
}

pal_status serve_mark_add(pal_server *s, serve_memory *m, const char *name, int *status, pal_error *err) {
    char from[PATH], to[PATH];
    pal_status st;
    *status = 507;
    if (!has_room(s, m->bytes))
        return pal_fail(err, PAL_E_IO, "no room for a mark of %zu bytes (--memory-disk)", m->bytes);
    if (m->mark_count == MOST_MARKS) return pal_fail(err, PAL_E_IO, "a memory has at most %d marks", MOST_MARKS);
    *status = 500;
    if ((st = pal_grow((void **)&m->marks, &m->mark_room, m->mark_count, m->mark_count + 1, sizeof *m->marks, err)))
        return st;
    serve_mark mark = { .number = m->next_mark, .tokens = m->tokens, .created = time(NULL), .bytes = m->bytes,
                       .version = m->version };
    snprintf(mark.name, sizeof mark.name, "%s", name);
    serve_memory_path(s, m, 0, from);
    serve_memory_path(s, m, mark.number, to);
    if ((st = serve_memory_link(s, from, to, err))) return st;
    m->next_mark++;
    m->marks[m->mark_count++] = mark;
    if ((st = write_description(s, m, err))) {
        m->mark_count--;
        pal_io_unlink(to);
        return st;
    }
    s->store.used += mark.bytes;
    return PAL_OK;
}

pal_status serve_mark_remove(pal_server *s, serve_memory *m, serve_mark *mark, pal_error *err) {
    char path[PATH];
    const serve_mark old = *mark;
    const size_t at = (size_t)(mark - m->marks);
    serve_memory_path(s, m, mark->number, path);
    memmove(mark, mark + 1, (--m->mark_count - at) * sizeof *mark);
    const pal_status st = write_description(s, m, err);
    if (st) { /* as it was; there is room */
        memmove(m->marks + at + 1, m->marks + at, (m->mark_count++ - at) * sizeof *mark);
        m->marks[at] = old;
        return st;
    }
    pal_io_unlink(path);
    s->store.used -= old.bytes;
    return PAL_OK;
}

/* Marks of ID.json whose files are there. */
static bool read_marks(pal_server *s, serve_memory *m, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        const json_int_t number = json_integer_value(json_object_get(one, "number"));
        char path[PATH];
        pal_state_head head;
        if (!name || strlen(name) >= SERVE_NAME || number < 1 || number > 1 << 30) return false;
        serve_memory_path(s, m, (int)number, path);
        if (pal_state_peek(&head, path, NULL) || check_size(s, &head, path, NULL)) continue;
        if (pal_grow((void **)&m->marks, &m->mark_room, m->mark_count, m->mark_count + 1, sizeof *m->marks, NULL))
            return false;
        serve_mark *mark = &m->marks[m->mark_count++];
        *mark = (serve_mark){ .number = (int)number,
                              .tokens = head.tokens,
                              .bytes = head.bytes,
                              .version = ++s->next_id,
                              .created = (time_t)json_integer_value(json_object_get(one, "created")) };
        snprintf(mark->name, sizeof mark->name, "%s", name);
        s->store.used += mark->bytes;
        if (mark->number >= m->next_mark) m->next_mark = mark->number + 1;
    }
    return true;
}

static bool is_origin(const char *origin) {
    return origin && (strcmp(origin, "text") == 0 || strcmp(origin, "fork") == 0 || strcmp(origin, "upload") == 0);
}

static bool is_id(const char *text) { return strspn(text, "0123456789abcdef") == ID_LENGTH && text[ID_LENGTH] == '\0'; }

/* A memory of an earlier run. One that cannot be read stays where it is, and is not offered. */
static void read_memory(pal_server *s, const char *id) {
    serve_memory *m = pal_alloc(1, sizeof *m);
    char path[PATH];
    pal_error err = { 0 };
    if (!m) return;
    snprintf(m->id, sizeof m->id, "%s", id);
    m->next_mark = 1;
    description_path(s, m, path);
    json_error_t why;
    json_t *root = pal_json_load(path, 0, &why, NULL);
    const char *name = json_string_value(json_object_get(root, "name"));
    const char *origin = json_string_value(json_object_get(root, "origin"));
    const char *parent = json_string_value(json_object_get(root, "parent"));
    const size_t before = s->store.used;
    bool fine = is_origin(origin) && (!parent || !*parent || is_id(parent)) &&
                (!name || (m->name = pal_strdup(name))) && read_marks(s, m, json_object_get(root, "marks"));
    if (fine) snprintf(m->origin, sizeof m->origin, "%s", origin);
    if (fine && parent) snprintf(m->parent, sizeof m->parent, "%s", parent);
    m->created = (time_t)json_integer_value(json_object_get(root, "created"));
    m->changed = (time_t)json_integer_value(json_object_get(root, "changed"));
    json_decref(root);
    if (!fine) pal_warn("%s: not the description of a memory: it is not offered", path);
    else if (look(s, m, &err)) {
        pal_warn("%s: the memory is not offered", err.text);
        fine = false;
    }
    if (!fine) {
        s->store.used = before;
        free_memory(m);
        return;
    }
    m->model = model_of(s, m->fingerprint);
    m->listed = true;
    serve_memory **at = &s->store.list; /* newest first */
    while (*at && (*at)->created > m->created) at = &(*at)->next;
    m->next = *at;
    *at = m;
}

/* The id that a name of one of our files begins with; false: the file is not ours. */
static bool our_file(const char *name, char id[20], const char **rest) {
    if (strspn(name, "0123456789abcdef") != ID_LENGTH || name[ID_LENGTH] != '.') return false;
    snprintf(id, 20, "%.*s", (int)ID_LENGTH, name);
    *rest = name + ID_LENGTH;
    return true;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* FILE.xxxxxxxx, as base/map.c names what is not written to its end: a server that was killed left it. */
static bool is_unfinished(const char *rest) {
    const char *dot = strrchr(rest, '.');
    return dot > rest && strspn(dot + 1, "0123456789abcdef") == 8 && dot[9] == '\0';
}

/* Memories first; then states that no description knows, and what was not finished. */
static pal_status read_directory(pal_server *s, pal_error *err) {
    const char *directory = s->store.directory, *rest;
    char id[20], path[PATH];
    for (int pass = 0; pass < 2; pass++) {
        DIR *d = opendir(directory);
        if (!d) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", directory, strerror(errno));
        for (struct dirent *entry; (entry = readdir(d));) {
            if (!our_file(entry->d_name, id, &rest)) continue;
            if (pass == 0 && strcmp(rest, ".json") == 0) read_memory(s, id);
            if (pass == 1 && (ends_with(rest, ".state") || is_unfinished(rest))) {
                snprintf(path, sizeof path, "%.4000s/%s.json", directory, id);
                if (!is_unfinished(rest) && access(path, F_OK) == 0) continue;
                snprintf(path, sizeof path, "%.4000s/%.64s", directory, entry->d_name);
                pal_io_unlink(path);
            }
        }
        closedir(d);
    }
    return PAL_OK;
}

pal_status serve_store_open(pal_server *s, pal_error *err) {
    serve_store *store = &s->store;
    pal_status st;
    char path[PATH], prefix[PATH - 64];
    const char *temporary = getenv("TMPDIR");
    store->limit = s->options.memory_disk;
    store->lock_file = -1;
    if (!s->options.memory_dir) {
        if ((st = pal_path(prefix, sizeof prefix, err, "%s/palimpsa-memories",
                           temporary && *temporary ? temporary : "/tmp")) ||
            (st = pal_lock_temporary_directory(&store->lock_file, path, sizeof path, prefix, err)))
            return st;
        store->temporary = true;
    } else {
        if (strlen(s->options.memory_dir) > PATH - 200)
            return pal_fail(err, PAL_E_ARGUMENT, "--memory-dir: the path is too long");
        snprintf(path, sizeof path, "%s", s->options.memory_dir);
        if ((st = pal_make_directory(path, err)) || (st = pal_lock_directory(&store->lock_file, path, false, err)))
            return st;
    }
    if (!(store->directory = pal_strdup(path))) return pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    if (access(path, W_OK | X_OK) != 0)
        return pal_fail(err, PAL_E_IO, "%s: cannot write there: %s", path, strerror(errno));
    return store->temporary ? PAL_OK : read_directory(s, err);
}

void serve_store_close(pal_server *s) {
    serve_store *store = &s->store;
    while (store->list) {
        serve_memory *next = store->list->next;
        free_memory(store->list);
        store->list = next;
    }
    if (store->temporary && store->directory) pal_remove_directory(store->directory);
    if (store->lock_file >= 0) close(store->lock_file);
    pal_free(store->directory);
}
