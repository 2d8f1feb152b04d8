/* SPDX-License-Identifier: MIT */
#include "plot/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "format/json.h"

static const char *const keys[PAL_METRICS] = {
    "step",  "loss",      "valid_loss",       "accuracy",        "valid_accuracy",
    "lr",    "grad_norm", "tokens",           "tokens_per_s",    "n_t",
    "ratio", "b_scale",   "token_perplexity", "word_perplexity", "seconds",
    "stage",
};

/* Read rather than mapped: a run that resumes may cut the file while we look at it. */
pal_status pal_metrics_text(const char *path, char **text, size_t *size, pal_error *err) {
    struct stat info;
    *text = NULL;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* first: to open a pipe is to wait for its writer */
        return pal_fail(err, PAL_E_IO, "%s: not a regular file", path);
    FILE *file = fopen(path, "rb");
    if (!file) return pal_fail(err, PAL_E_IO, "%s: cannot open: %s", path, strerror(errno));
    pal_status st;
    if (fstat(fileno(file), &info) != 0) {
        st = pal_fail(err, PAL_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!(st = pal_alloc_named((void **)text, (size_t)info.st_size + 1, 1, path, err))) {
        *size = fread(*text, 1, (size_t)info.st_size, file);
        if (ferror(file)) st = pal_fail(err, PAL_E_IO, "%s: cannot read: %s", path, strerror(errno));
    }
    fclose(file);
    return st;
}

static void add_up(const json_t *value, double *sum, size_t *count) {
    if (json_is_array(value)) {
        size_t i;
        const json_t *item;
        json_array_foreach(value, i, item) add_up(item, sum, count);
    } else if (json_is_number(value) && isfinite(json_number_value(value))) {
        *sum += json_number_value(value);
        (*count)++;
    }
}

int pal_metric_find(const char *key) {
    for (int k = 0; k < PAL_METRICS; k++)
        if (strcmp(keys[k], key) == 0) return k;
    return -1;
}

pal_status pal_metrics_room(pal_metrics *m, size_t rows, const char *path, pal_error *err) {
    pal_status st;
    for (int k = 0; k < PAL_METRICS; k++)
        if ((st = pal_alloc_named((void **)&m->column[k], rows, sizeof(double), path, err))) return st;
    return pal_alloc_named((void **)&m->present, rows, sizeof *m->present, path, err);
}

void pal_metrics_add(pal_metrics *m, const double value[PAL_METRICS], uint32_t present) {
    while (m->count && m->column[PAL_METRIC_STEP][m->count - 1] >= value[PAL_METRIC_STEP]) m->count--;
    for (int k = 0; k < PAL_METRICS; k++) m->column[k][m->count] = value[k];
    m->present[m->count++] = present;
}

static bool read_line(pal_metrics *m, const char *line, size_t length, bool *starved) {
    json_t *object = pal_json_parse(line, length, 0, NULL, starved);
    const json_t *step = json_object_get(object, "step"); /* NULL when it is not an object */
    const bool good = json_is_number(step) && json_number_value(step) >= 0;
    if (good) {
        double value[PAL_METRICS];
        uint32_t present = 0;
        for (int k = 0; k < PAL_METRICS; k++) {
            const json_t *given = json_object_get(object, keys[k]);
            double sum = 0;
            size_t numbers = 0;
            add_up(given, &sum, &numbers);
            value[k] = numbers ? sum / (double)numbers : NAN;
            if (given) present |= 1u << k;
        }
        pal_metrics_add(m, value, present);
    }
    json_decref(object);
    return good;
}

static void fill_seconds(pal_metrics *m) {
    double elapsed = 0, tokens = 0;
    for (size_t i = 0; i < m->count; i++)
        if (pal_metrics_has(m, i, PAL_METRIC_SECONDS)) return;
    for (size_t i = 0; i < m->count; i++) {
        const double rate = m->column[PAL_METRIC_TOKENS_PER_S][i], now = m->column[PAL_METRIC_TOKENS][i];
        if (!(rate > 0 && now >= tokens)) continue;
        elapsed += (now - tokens) / rate;
        tokens = now;
        m->column[PAL_METRIC_SECONDS][i] = elapsed;
        m->present[i] |= 1u << PAL_METRIC_SECONDS;
    }
}

pal_status pal_metrics_read(pal_metrics *m, const char *path, pal_error *err) {
    char *text;
    size_t size = 0, rows = 1;
    *m = (pal_metrics){ 0 };
    pal_status st = pal_metrics_text(path, &text, &size, err);
    if (st) goto done;
    for (size_t i = 0, begin = 0; i < size; i++)
        if (text[i] == '\n') {
            rows += i - begin >= strlen("{\"step\":1}"); /* a shorter line is not a row */
            begin = i + 1;
        }
    if ((st = pal_metrics_room(m, rows, path, err))) goto done;
    for (size_t begin = 0; begin < size;) {
        const char *newline = memchr(text + begin, '\n', size - begin);
        const size_t end = newline ? (size_t)(newline - text) : size;
        const bool blank = strspn(text + begin, " \t\r") >= end - begin;
        bool starved = false;
        if (!blank && !read_line(m, text + begin, end - begin, &starved) && newline) m->skipped++;
        if (starved) {
            st = pal_fail(err, PAL_E_MEMORY, "out of memory while reading %s", path);
            goto done;
        }
        begin = end + 1;
    }
    if (m->count == 0)
        st = pal_fail(err, PAL_E_FORMAT, "%s: no metrics in it, expected one JSON object with a step per line", path);
    fill_seconds(m);
done:
    pal_free(text);
    if (st) pal_metrics_free(m);
    return st;
}

void pal_metrics_free(pal_metrics *m) {
    for (int k = 0; k < PAL_METRICS; k++) pal_free(m->column[k]);
    pal_free(m->present);
    *m = (pal_metrics){ 0 };
}
