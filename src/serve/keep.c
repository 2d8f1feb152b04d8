/* SPDX-License-Identifier: MIT */
/* serve --keep: snapshots of prompts in files, found again after a restart by the hash of their text and of their
 * model. NUMBER.pages holds full pages of keys and values, NUMBER.kept a snapshot that says where its pages are; both
 * are written once and whole, pages first, and a snapshot goes before the pages that no other one needs. So a server
 * that is killed between any two writes leaves files of which each is good, and pages without a snapshot go at the next
 * start. Its own thread writes; the rest is done by the worker. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/directory.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "model/kept.h"
#include "serve/inside.h"
#include "text/strings.h"

enum { PATH = 4096, DIGITS = 16, LONGEST_WAIT = 2 /* seconds */ };

/* A file of pages. */
typedef struct pages_file {
    struct pages_file *next;
    uint64_t number;
    size_t bytes;
    size_t users; /* snapshots that need it */
} pages_file;

/* A snapshot's file. */
typedef struct kept_file {
    struct kept_file *next; /* more recently used ones first */
    uint64_t number;
    pal_kept_head head;
    pages_file **pages; /* that it needs, each once */
    size_t count;
} kept_file;

struct serve_keep {
    pal_server *server;
    char *directory;
    int lock_file;
    size_t limit;
    pthread_t writer;
    bool writing; /* the thread runs */
    pthread_mutex_t lock;
    pthread_cond_t wake, written;
    /* Guarded, and so is where pages say they lie. */
    bool stopping, full; /* full: it was said that the disk is */
    kept_file *files;
    pages_file *pages;
    uint64_t last; /* number of a file */
    serve_snapshot *queue, *now; /* wait to be written, the oldest first; is written */
    serve_kept_counts counts;
};

static void path_of(const serve_keep *k, uint64_t number, const char *kind, char path[PATH]) {
    snprintf(path, PATH, "%s/%016llx.%s", k->directory, (unsigned long long)number, kind);
}

static pages_file *find_pages(const serve_keep *k, uint64_t number) {
    pages_file *f = k->pages;
    while (f && f->number != number) f = f->next;
    return f;
}

static void free_file(kept_file *f) {
    pal_free(f->pages);
    pal_free(f);
}

static void remove_pages(serve_keep *k, pages_file *f) {
    char path[PATH];
    pages_file **at = &k->pages;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    path_of(k, f->number, "pages", path);
    pal_io_unlink(path);
    k->counts.bytes -= f->bytes;
    pal_free(f);
}

/* Takes a snapshot's file out of the list and off the disk, then pages that are no one's any more. */
static void remove_file(serve_keep *k, kept_file **at) {
    kept_file *f = *at;
    char path[PATH];
    *at = f->next;
    path_of(k, f->number, "kept", path);
    pal_io_unlink(path);
    k->counts.bytes -= f->head.bytes;
    k->counts.files--;
    for (size_t i = 0; i < f->count; i++)
        if (!--f->pages[i]->users) remove_pages(k, f->pages[i]);
    free_file(f);
}

static void shrink(serve_keep *k) {
    while (k->counts.bytes > k->limit && k->files) {
        kept_file **at = &k->files;
        while ((*at)->next) at = &(*at)->next;
        remove_file(k, at);
    }
}

/* Which files of pages these places name; false: one is not there, or no memory. */
static bool need_pages(serve_keep *k, kept_file *f, const pal_kept_place *places, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (f->count && f->pages[f->count - 1]->number == places[i].file) continue;
        pages_file *pages = find_pages(k, places[i].file);
        size_t j = 0;
        while (j < f->count && f->pages[j] != pages) j++;
        if (!pages) return false;
        if (j < f->count) continue;
        size_t room = f->count;
        if (pal_grow((void **)&f->pages, &room, f->count, f->count + 1, sizeof *f->pages, NULL)) return false;
        f->pages[f->count++] = pages;
    }
    return true;
}

/* A file is there, whole: it is listed, the most recently used. */
static bool list_file(serve_keep *k, uint64_t number, const pal_kept_head *head, const pal_kept_place *places,
                      size_t count) {
    kept_file *f = pal_alloc(1, sizeof *f);
    if (!f) return false;
    *f = (kept_file){ .number = number, .head = *head };
    if (!need_pages(k, f, places, count)) {
        free_file(f);
        return false;
    }
    for (size_t i = 0; i < f->count; i++) f->pages[i]->users++;
    f->next = k->files;
    k->files = f;
    k->counts.bytes += head->bytes;
    k->counts.files++;
    return true;
}

static bool same_text(const kept_file *f, uint64_t fingerprint, uint64_t text, size_t tokens) {
    return f->head.fingerprint == fingerprint && f->head.text == text && (size_t)f->head.tokens == tokens;
}

/* The pages of a snapshot that are in no file yet, and the number of the file that will hold them. With the lock. */
static size_t new_pages(serve_keep *k, const pal_state *state, pal_page **fresh, uint64_t *number) {
    const size_t full = state->pages ? (size_t)state->position / PAL_PAGE_TOKENS : 0;
    size_t count = 0;
    for (size_t i = 0; i < full; i++)
        if (!state->pages[i]->file || !find_pages(k, state->pages[i]->file)) fresh[count++] = state->pages[i];
    *number = ++k->last;
    return count;
}

static pal_status write_pages(serve_keep *k, const serve_snapshot *e, pal_page **fresh, pal_error *err) {
    uint64_t number;
    char path[PATH];
    struct stat about;
    pthread_mutex_lock(&k->lock);
    const size_t count = new_pages(k, e->state, fresh, &number);
    pthread_mutex_unlock(&k->lock);
    if (!count) return PAL_OK;
    path_of(k, number, "pages", path);
    pages_file *f = pal_alloc(1, sizeof *f);
    if (!f) return pal_fail(err, PAL_E_MEMORY, "out of memory for %s", path);
    pal_status st = pal_kept_save_pages(e->model->bundle.model, fresh, count, path, err);
    if (!st && stat(path, &about) != 0) st = pal_fail(err, PAL_E_IO, "%s: %s", path, strerror(errno));
    if (st) {
        pal_free(f);
        return st;
    }
    pthread_mutex_lock(&k->lock);
    *f = (pages_file){ .next = k->pages, .number = number, .bytes = (size_t)about.st_size };
    k->pages = f;
    k->counts.bytes += f->bytes;
    for (size_t i = 0; i < count; i++) fresh[i]->file = number, fresh[i]->place = i;
    pthread_mutex_unlock(&k->lock);
    return PAL_OK;
}

/* Pages first, then the snapshot; in between nothing of it is listed. */
static pal_status write_snapshot(serve_keep *k, const serve_snapshot *e, pal_error *err) {
    const size_t full = e->state->pages ? (size_t)e->state->position / PAL_PAGE_TOKENS : 0;
    pal_kept_head head = { .fingerprint = pal_model_fingerprint(e->model->bundle.model),
                           .tokens = (int64_t)e->ids.count };
    char path[PATH];
    void *block;
    struct stat about;
    for (size_t i = 0; i < e->ids.count; i++) head.text = pal_kept_hash(head.text, e->ids.data[i]);
    pal_status st = pal_alloc_named(&block, full + 1, sizeof(pal_page *) + sizeof(pal_kept_place), "a snapshot", err);
    if (st) return st;
    pal_kept_place *places = block;
    st = write_pages(k, e, (pal_page **)(places + full), err);
    if (!st) {
        pthread_mutex_lock(&k->lock);
        const uint64_t number = ++k->last;
        for (size_t i = 0; i < full; i++)
            places[i] = (pal_kept_place){ e->state->pages[i]->file, e->state->pages[i]->place };
        pthread_mutex_unlock(&k->lock);
        path_of(k, number, "kept", path);
        st = pal_kept_save(e->state, e->ids.data, places, path, err);
        if (!st && stat(path, &about) != 0) st = pal_fail(err, PAL_E_IO, "%s: %s", path, strerror(errno));
        pthread_mutex_lock(&k->lock);
        if (!st) head.bytes = (size_t)about.st_size;
        if (!st && !list_file(k, number, &head, places, full)) {
            pal_io_unlink(path);
            st = pal_fail(err, PAL_E_MEMORY, "out of memory for %s", path);
        }
        pthread_mutex_unlock(&k->lock);
    }
    pal_free(block);
    return st;
}

static void *write_all(void *user) {
    serve_keep *k = user;
    pthread_mutex_lock(&k->lock);
    while (!k->stopping || k->queue) {
        serve_snapshot *e = k->queue;
        pal_error err;
        if (!e) {
            pthread_cond_wait(&k->wake, &k->lock);
            continue;
        }
        k->queue = e->next_queued;
        k->now = e;
        pthread_mutex_unlock(&k->lock);
        const pal_status st = write_snapshot(k, e, &err);
        if (st && !k->full) pal_warn("--keep: %s", err.text);
        pthread_mutex_lock(&k->lock);
        k->full = st != PAL_OK;
        k->counts.failed += st != PAL_OK;
        k->now = NULL;
        e->queued = false;
        e->written = !st;
        shrink(k);
        if (!e->cached) serve_snapshot_free(e);
        pthread_cond_signal(&k->written);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* Until no earlier one waits or is being written: then a kill loses the last one alone. A disk that is very slow is not
 * waited for. With the lock. */
static void wait_for_earlier(serve_keep *k) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LONGEST_WAIT;
    while ((k->queue || k->now) && pthread_cond_timedwait(&k->written, &k->lock, &until) != ETIMEDOUT) {}
}

void serve_keep_write(serve_keep *k, serve_snapshot *e) {
    pthread_mutex_lock(&k->lock);
    if (!e->queued && !e->written) wait_for_earlier(k);
    if (!e->queued && !e->written) {
        serve_snapshot **end = &k->queue;
        while (*end) end = &(*end)->next_queued;
        *end = e;
        e->next_queued = NULL;
        e->queued = true;
        pthread_cond_signal(&k->wake);
    }
    pthread_mutex_unlock(&k->lock);
}

/* One that only waits is not written any more: what is dropped takes no RAM. */
void serve_keep_drop(serve_keep *k, serve_snapshot *e) {
    pthread_mutex_lock(&k->lock);
    e->cached = false;
    for (serve_snapshot **at = &k->queue; *at; at = &(*at)->next_queued)
        if (*at == e) {
            *at = e->next_queued;
            e->queued = false;
            break;
        }
    const bool mine = !e->queued;
    pthread_mutex_unlock(&k->lock);
    if (mine) serve_snapshot_free(e);
}

/* A page that some snapshot in RAM has from the same file, or from the file. */
static pal_status get_page(serve_keep *k, const serve_cache *cache, const serve_model *model, size_t index,
                           const pal_kept_place *place, pal_kept_pages *open, uint64_t *open_number, pal_page **out,
                           pal_error *err) {
    char path[PATH];
    for (const serve_snapshot *e = cache->list; e; e = e->next) {
        if (e->model != model || index >= (size_t)e->state->position / PAL_PAGE_TOKENS) continue;
        pal_page *page = e->state->pages[index];
        if (page->file != place->file || page->place != place->page) continue;
        pal_page_share(page);
        *out = page;
        return PAL_OK;
    }
    path_of(k, place->file, "pages", path);
    if (*open_number != place->file) {
        pal_kept_close_pages(open);
        *open_number = 0;
        const pal_status st = pal_kept_open_pages(open, model->bundle.model, path, err);
        if (st) return st;
        *open_number = place->file;
    }
    const pal_status st = pal_kept_read_page(out, open, model->bundle.model, place->page, path, err);
    if (!st) (*out)->file = place->file, (*out)->place = place->page;
    return st;
}

static pal_status load(serve_keep *k, const serve_cache *cache, serve_snapshot *e, const pal_kept *kept,
                       pal_error *err) {
    const pal_model *model = e->model->bundle.model;
    pal_kept_pages open = { 0 };
    uint64_t open_number = 0;
    size_t made = 0;
    pal_page **full;
    pal_status st = pal_alloc_named((void **)&full, kept->pages + 1, sizeof *full, "a kept prompt", err);
    if (st) return st;
    while (!st && made < kept->pages) {
        st = get_page(k, cache, e->model, made, &kept->places[made], &open, &open_number, &full[made], err);
        made += !st;
    }
    if (!st) st = pal_kept_take(e->state, kept, full, err);
    while (st && made) pal_page_leave(model->pages, full[--made]);
    pal_kept_close_pages(&open);
    pal_free(full);
    return st;
}

/* *other: the file is good, but of another text with the same hash. */
static pal_status read_snapshot(serve_keep *k, const serve_cache *cache, serve_snapshot *e, const kept_file *f,
                                const uint32_t *ids, bool *other, pal_error *err) {
    const size_t tokens = (size_t)f->head.tokens;
    char path[PATH];
    pal_kept kept;
    path_of(k, f->number, "kept", path);
    pal_status st = pal_kept_open(&kept, e->model->bundle.model, path, err);
    if (st) return st;
    *other = (size_t)kept.head.tokens != tokens || memcmp(kept.ids, ids, tokens * sizeof *ids) != 0;
    if (!*other && !(st = pal_ids_reserve(&e->ids, tokens + 1, err))) {
        memcpy(e->ids.data, ids, tokens * sizeof *ids);
        e->ids.count = tokens;
        st = load(k, cache, e, &kept, err);
    }
    pal_kept_close(&kept);
    return st;
}

/* The longest file whose text these ids begin with; NULL: none has more than `known`. */
static kept_file **longest(serve_keep *k, uint64_t fingerprint, const uint32_t *ids, size_t count, size_t known) {
    kept_file **best = NULL;
    uint64_t *hash = pal_alloc(count + 1, sizeof *hash);
    if (!hash) return NULL;
    for (size_t i = 0; i < count; i++) hash[i + 1] = pal_kept_hash(hash[i], ids[i]);
    for (kept_file **at = &k->files; *at; at = &(*at)->next) {
        const size_t tokens = (size_t)(*at)->head.tokens;
        if (tokens > known && tokens < count && same_text(*at, fingerprint, hash[tokens], tokens))
            best = at, known = tokens;
    }
    pal_free(hash);
    return best;
}

serve_snapshot *serve_keep_find(serve_keep *k, const serve_cache *cache, const serve_model *model, const uint32_t *ids,
                                size_t count, size_t known) {
    const uint64_t fingerprint = pal_model_fingerprint(model->bundle.model);
    serve_snapshot *e = pal_alloc(1, sizeof *e);
    kept_file **at;
    bool other = false;
    pal_error err;
    if (!e) return NULL;
    pthread_mutex_lock(&k->lock);
    at = longest(k, fingerprint, ids, count, known);
    if (at) {
        *e = (serve_snapshot){ .model = model, .written = true, .cached = true };
        e->bytes = model->fixed_bytes + (size_t)(*at)->head.tokens * sizeof *ids;
        pal_status st = pal_state_new(&e->state, model->bundle.model, model->context ? model->context : 1, &err);
        if (!st) st = read_snapshot(k, cache, e, *at, ids, &other, &err);
        if (!st && !other) {
            kept_file *f = *at;
            *at = f->next;
            f->next = k->files;
            k->files = f;
            k->counts.found++;
            pthread_mutex_unlock(&k->lock);
            return e;
        }
        if (st && st != PAL_E_MEMORY) { /* a file that cannot be read is not looked at again */
            pal_warn("--keep: %s; it is removed", err.text);
            k->counts.failed++;
            remove_file(k, at);
        }
    }
    pthread_mutex_unlock(&k->lock);
    serve_snapshot_free(e);
    return NULL;
}

serve_kept_counts serve_keep_counted(serve_keep *k) {
    pthread_mutex_lock(&k->lock);
    const serve_kept_counts counts = k->counts;
    pthread_mutex_unlock(&k->lock);
    return counts;
}

/* NUMBER.kind; *number 0: not a file of ours. What was not written to its end is NUMBER.kind.xxxxxxxx. */
static bool our_file(const char *name, uint64_t *number, const char **kind) {
    if (strspn(name, "0123456789abcdef") != DIGITS || name[DIGITS] != '.') return false;
    *number = strtoull(name, NULL, 16);
    *kind = name + DIGITS + 1;
    return *number != 0;
}

typedef struct {
    uint64_t number;
    struct timespec used;
} found_file;

static int by_time(const void *a, const void *b) {
    const found_file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static void list_found(serve_keep *k, uint64_t number) {
    char path[PATH];
    pal_kept kept;
    pal_error err;
    path_of(k, number, "kept", path);
    pal_status st = pal_kept_open(&kept, NULL, path, &err);
    if (!st && !list_file(k, number, &kept.head, kept.places, kept.pages))
        st = pal_fail(&err, PAL_E_FORMAT, "%s: pages of it are missing", path);
    if (st) {
        pal_warn("--keep: %s; it is removed", err.text);
        pal_io_unlink(path);
    }
    pal_kept_close(&kept);
}

/* Files of an earlier run: pages first, then the snapshots in the order of their age, then what no one needs goes. */
static pal_status read_directory(serve_keep *k, pal_error *err) {
    found_file *found = NULL;
    size_t count = 0, room = 0;
    char path[PATH];
    pal_status st = PAL_OK;
    DIR *d = opendir(k->directory);
    if (!d) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", k->directory, strerror(errno));
    for (struct dirent *entry; !st && (entry = readdir(d));) {
        uint64_t number;
        const char *kind;
        struct stat about;
        if (!our_file(entry->d_name, &number, &kind)) continue;
        snprintf(path, sizeof path, "%.4000s/%.64s", k->directory, entry->d_name);
        if (stat(path, &about) != 0) continue;
        if (number > k->last) k->last = number;
        if (strcmp(kind, "kept") == 0) {
            st = pal_grow((void **)&found, &room, count, count + 1, sizeof *found, err);
            if (!st) found[count++] = (found_file){ number, about.st_mtim };
        } else if (strcmp(kind, "pages") == 0) {
            pages_file *f = pal_alloc(1, sizeof *f);
            if (!f) st = pal_fail(err, PAL_E_MEMORY, "out of memory for %s", path);
            else *f = (pages_file){ .next = k->pages, .number = number, .bytes = (size_t)about.st_size }, k->pages = f;
            if (f) k->counts.bytes += f->bytes;
        } else if (strncmp(kind, "kept.", 5) == 0 || strncmp(kind, "pages.", 6) == 0) {
            pal_io_unlink(path); /* not finished */
        }
    }
    closedir(d);
    if (!st && count) qsort(found, count, sizeof *found, by_time);
    for (size_t i = 0; i < count && !st; i++) list_found(k, found[i].number);
    pal_free(found);
    for (pages_file *f = k->pages, *next; f && !st; f = next) {
        next = f->next;
        if (!f->users) remove_pages(k, f);
    }
    if (!st) shrink(k);
    return st;
}

pal_status serve_keep_open(serve_keep **out, pal_server *s, const char *directory, size_t limit, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if (strlen(directory) > PATH - 200) return pal_fail(err, PAL_E_ARGUMENT, "--keep: the path is too long");
    if ((st = pal_alloc_named(&block, 1, sizeof(serve_keep), "kept prompts", err))) return st;
    serve_keep *k = block;
    *k = (serve_keep){ .server = s, .limit = limit, .lock_file = -1 };
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->wake, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&k->written, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!(k->directory = pal_strdup(directory))) st = pal_fail(err, PAL_E_MEMORY, "out of memory for a path");
    if (!st) st = pal_make_directory(directory, err);
    if (!st) st = pal_lock_directory(&k->lock_file, directory, false, err);
    if (!st && access(directory, W_OK | X_OK) != 0)
        st = pal_fail(err, PAL_E_IO, "%s: cannot write there: %s", directory, strerror(errno));
    if (!st) st = read_directory(k, err);
    if (!st && !(k->writing = pthread_create(&k->writer, NULL, write_all, k) == 0))
        st = pal_fail(err, PAL_E_MEMORY, "cannot start a thread");
    if (st) serve_keep_close(k);
    else *out = k;
    return st;
}

void serve_keep_close(serve_keep *k) {
    if (!k) return;
    if (k->writing) {
        pthread_mutex_lock(&k->lock);
        k->stopping = true;
        pthread_cond_signal(&k->wake);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->writer, NULL);
    }
    while (k->files) {
        kept_file *f = k->files;
        k->files = f->next;
        free_file(f);
    }
    while (k->pages) {
        pages_file *f = k->pages;
        k->pages = f->next;
        pal_free(f);
    }
    if (k->lock_file >= 0) close(k->lock_file);
    pthread_cond_destroy(&k->wake);
    pthread_cond_destroy(&k->written);
    pthread_mutex_destroy(&k->lock);
    pal_free(k->directory);
    pal_free(k);
}
