/* SPDX-License-Identifier: MIT */
#include "eval/task_data.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/map.h"
#include "eval/documents.h"
#include "eval/python_text.h"
#include "eval/records.h"

enum { PATH = 4096 };

struct pal_task_data {
    const pal_eval_task *task;
    char path[PATH];
    pal_records *records; /* or pages of a raw text */
    pal_map map;
    pal_slice *pages;
    size_t count, capacity;
};

void pal_task_data_close(pal_task_data *d) {
    if (!d) return;
    pal_records_close(d->records);
    pal_map_close(&d->map);
    pal_free(d->pages);
    pal_free(d);
}

size_t pal_task_data_count(const pal_task_data *d) { return d->records ? pal_records_count(d->records) : d->count; }
const char *pal_task_data_path(const pal_task_data *d) { return d->path; }

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static pal_status find_file(pal_task_data *d, const char *directory, pal_error *err) {
    static const char *const endings[] = { "", ".jsonl", ".json", ".csv" };
    char tried[512] = "";
    struct stat info;
    if (stat(directory, &info) == 0 && S_ISREG(info.st_mode)) {
        snprintf(d->path, PATH, "%s", directory);
        return PAL_OK;
    }
    for (size_t i = 0; i < 4 && d->task->files[i]; i++) {
        for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
            if (snprintf(d->path, PATH, "%s/%s%s", directory, d->task->files[i], endings[e]) >= PATH) continue;
            if (is_file(d->path)) return PAL_OK;
        }
        const size_t used = strlen(tried);
        const bool raw = strstr(d->task->files[i], ".raw") != NULL;
        snprintf(tried + used, sizeof tried - used, "%s%s%s", used ? ", " : "", d->task->files[i],
                 raw ? "" : ".jsonl or .csv");
    }
    return pal_fail(err, PAL_E_IO, "%s: no file for the task %s: looked for %s", directory, d->task->name, tried);
}

/* Pages without the line break before the next one; what is blank is none. */
static pal_status find_pages(pal_task_data *d, pal_error *err) {
    pal_status st = pal_map_open(&d->map, d->path, err);
    for (size_t at = 0; at < d->map.size && !st;) {
        pal_slice page = { d->map.data + at, 0 };
        page.size = pal_wikitext_page((pal_slice){ page.data, d->map.size - at });
        at += page.size;
        if (at < d->map.size) page.size--;
        if (!pal_py_strip(page).size) continue;
        void *block = d->pages;
        st = pal_grow(&block, &d->capacity, d->count, d->count + 1, sizeof page, err);
        d->pages = block;
        if (!st) d->pages[d->count++] = page;
    }
    return st;
}

static bool is_raw_text(const pal_task_data *d) {
    const char *dot = strrchr(d->path, '.');
    return d->task->kind == PAL_TASK_ROLLING &&
           !(dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".json") == 0 || strcmp(dot, ".csv") == 0));
}

pal_status pal_task_data_open(pal_task_data **out, const pal_eval_task *task, const char *directory, pal_error *err) {
    pal_status st;
    void *block;
    *out = NULL;
    if ((st = pal_alloc_named(&block, 1, sizeof(pal_task_data), "the documents of a task", err))) return st;
    pal_task_data *d = block;
    d->task = task;
    if (!(st = find_file(d, directory, err)))
        st = is_raw_text(d) ? find_pages(d, err) : pal_records_open(&d->records, d->path, err);
    if (!st && !pal_task_data_count(d)) st = pal_fail(err, PAL_E_FORMAT, "%s: there is no document in it", d->path);
    if (st) {
        pal_task_data_close(d);
        return st;
    }
    *out = d;
    return PAL_OK;
}

pal_status pal_task_data_read(const pal_task_data *d, size_t i, pal_task_doc *doc, json_t **out, pal_error *err) {
    json_t *row = NULL;
    pal_error why;
    pal_status st = PAL_OK;
    char place[PATH + 32];
    if (d->records) {
        if ((st = pal_records_read(d->records, i, &row, err))) return st;
        pal_records_place(d->records, i, place, sizeof place);
    } else {
        row = json_pack("{s:o?}", "page", json_stringn((const char *)d->pages[i].data, d->pages[i].size));
        snprintf(place, sizeof place, "%s: page %zu", d->path, i + 1);
        if (!row || !json_object_get(row, "page")) st = pal_fail(err, PAL_E_FORMAT, "%s: the text is not UTF-8", place);
    }
    if (!st && (st = d->task->make(d->task, row, doc, &why))) pal_fail(err, st, "%s: %s", place, why.text);
    if (st || !out) json_decref(row);
    else *out = row;
    return st;
}
