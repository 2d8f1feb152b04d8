/* SPDX-License-Identifier: MIT */
/* results.csv and curves/ of a sweep, by model and seed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/map.h"
#include "cli.h"
#include "compare.h"

/* The place of a word in a list, at its end if it is new; -1: the list is full. */
static int place(char *words, size_t size, int *count, const char *word) {
    for (int i = 0; i < *count; i++)
        if (strcmp(words + (size_t)i * size, word) == 0) return i;
    if (*count == SWEEP_ENTRIES) return -1;
    snprintf(words + (size_t)*count * size, size, "%s", word);
    return (*count)++;
}

/* For which rows are taken. */
typedef struct {
    comparison *c;
    const char *rate; /* NULL: all */
    int rows[SWEEP_ENTRIES][SWEEP_STAGES][SWEEP_ENTRIES];
} reading;

static int take_row(void *user, const char *path, int number, const sweep_row *row) {
    reading *r = user;
    comparison *c = r->c;
    if (r->rate && strcmp(r->rate, row->rate) != 0) return CLI_OK;
    const int known = c->models, k = row->stage - 1;
    const int m = place(c->model[0], sizeof c->model[0], &c->models, row->model);
    const int d = place(c->seed[0], sizeof c->seed[0], &c->seeds, row->seed);
    if (m < 0 || d < 0) return cli_error(CLI_USAGE, "%s: more than %d models or seeds", path, SWEEP_ENTRIES);
    if (m == known) snprintf(c->rate[m], sizeof c->rate[m], "%s", row->rate);
    if (strcmp(c->rate[m], row->rate) != 0)
        return cli_error(CLI_USAGE, "%s: line %d: %s has rows at the rates %s and %s; give one by --lr", path, number,
                         row->model, c->rate[m], row->rate);
    if (row->stage > c->stages) c->stages = row->stage;
    if (!c->length[k]) c->length[k] = row->length, c->pairs[k] = row->pairs;
    if (c->length[k] != row->length || c->pairs[k] != row->pairs)
        return cli_error(CLI_USAGE, "%s: line %d: stage %d is %d tokens here and %d elsewhere", path, number,
                         row->stage, row->length, c->length[k]);
    const int before = r->rows[m][k][d]++;
    const double sum = before ? c->accuracy[m][k][d] * before : 0;
    c->accuracy[m][k][d] = (sum + row->value) / (before + 1);
    return CLI_OK;
}

static int read_rows(comparison *c, const char *rate) {
    char path[SWEEP_PATH];
    int code = sweep_join(path, c->folder, "results.csv");
    reading *r = pal_alloc(1, sizeof *r);
    if (!r) return cli_error(CLI_FAILED, "compare: out of memory");
    r->c = c, r->rate = rate;
    if (!code) code = sweep_each_row(path, c->column, take_row, r);
    pal_free(r);
    if (code || c->models) return code;
    return rate ? cli_error(CLI_USAGE, "%s: no rows at the rate %s", path, rate)
                : cli_error(CLI_USAGE, "%s: no rows", path);
}

static int read_curve(const char *path, run_curve *out) {
    static const char *const names[CURVE_COLUMNS] = { "step", "loss", "train_accuracy", "n_t", "ratio" };
    int column_of[16], columns = 0;
    pal_map map;
    pal_error err;
    if (pal_map_open(&map, path, &err)) return cli_fail(&err);
    size_t lines = 0;
    for (size_t i = 0; i < map.size; i++) lines += map.data[i] == '\n';
    double *numbers = pal_alloc((lines + 1) * CURVE_COLUMNS, sizeof *numbers);
    char *text = pal_alloc(map.size + 1, 1);
    int code = numbers && text ? CLI_OK : cli_error(CLI_FAILED, "%s: out of memory while reading it", path);
    for (int i = 0; i < CURVE_COLUMNS && !code; i++) out->column[i] = numbers + (size_t)i * (lines + 1);
    if (code) pal_free(numbers);
    else if (map.size) memcpy(text, map.data, map.size);
    char *rest = text;
    for (char *line; !code && (line = strsep(&rest, "\n")) && *line;) {
        int at = 0;
        const bool first = !columns;
        for (int i = 0; i < CURVE_COLUMNS && !first; i++) out->column[i][out->count] = NAN;
        for (char *word; (word = strsep(&line, ",")) && at < 16; at++) {
            if (first) {
                column_of[columns++] = -1;
                for (int i = 0; i < CURVE_COLUMNS; i++)
                    if (strcmp(names[i], word) == 0) column_of[at] = i;
            } else if (at < columns && column_of[at] >= 0 && *word)
                out->column[column_of[at]][out->count] = strtod(word, NULL);
        }
        if (first) continue;
        if (!(out->column[CURVE_STEP][out->count] >= 1)) code = cli_error(CLI_USAGE, "%s: a line has no step", path);
        out->count++;
    }
    if (!code && !out->count) code = cli_error(CLI_USAGE, "%s: no lines", path);
    pal_free(text);
    pal_map_close(&map);
    return code;
}

static bool is_there(const comparison *c, int model, int seed) {
    for (int k = 0; k < c->stages; k++)
        if (!isnan(c->accuracy[model][k][seed])) return true;
    return false;
}

static int read_curves(comparison *c) {
    char folder[SWEEP_PATH], path[SWEEP_PATH], name[256 + 4];
    int code = sweep_join(folder, c->folder, "curves");
    c->curves = !code && access(folder, F_OK) == 0;
    for (int m = 0; m < c->models && c->curves && !code; m++)
        for (int d = 0; d < c->seeds && !code; d++) {
            if (!is_there(c, m, d)) continue;
            sweep_name(name, c->model[m], c->rate[m], c->seed[d]);
            strcat(name, ".csv");
            if (!(code = sweep_join(path, folder, name))) code = read_curve(path, &c->curve[m][d]);
        }
    return code;
}

int compare_read(comparison *c, const char *folder, const char *rate) {
    c->folder = folder;
    for (int m = 0; m < SWEEP_ENTRIES; m++)
        for (int k = 0; k < SWEEP_STAGES; k++)
            for (int d = 0; d < SWEEP_ENTRIES; d++) c->accuracy[m][k][d] = NAN;
    const int code = read_rows(c, rate);
    return code ? code : read_curves(c);
}

void compare_free(comparison *c) {
    pal_free(c->endpoint.text);
    for (int m = 0; m < SWEEP_ENTRIES; m++)
        for (int d = 0; d < SWEEP_ENTRIES; d++) pal_free(c->curve[m][d].column[0]);
}

int compare_accuracies(const comparison *c, int model, int stage, double out[SWEEP_ENTRIES]) {
    int n = 0;
    for (int d = 0; d < c->seeds; d++)
        if (!isnan(c->accuracy[model][stage][d])) out[n++] = c->accuracy[model][stage][d];
    return n;
}

int compare_differences(const comparison *c, int a, int b, int stage, double out[SWEEP_ENTRIES]) {
    int n = 0;
    for (int d = 0; d < c->seeds; d++) {
        const double difference = c->accuracy[a][stage][d] - c->accuracy[b][stage][d];
        if (!isnan(difference)) out[n++] = difference;
    }
    return n;
}

bool compare_at_endpoint(const comparison *c, int stage) {
    return c->endpoint.count ? sweep_counts(&c->endpoint, c->length[stage]) : stage == c->stages - 1;
}

int compare_endpoints(const comparison *c, int a, int b, double out[SWEEP_ENTRIES]) {
    int n = 0;
    for (int d = 0; d < c->seeds; d++) {
        double sum = 0;
        int stages = 0;
        for (int k = 0; k < c->stages; k++)
            if (compare_at_endpoint(c, k)) sum += c->accuracy[a][k][d] - c->accuracy[b][k][d], stages++;
        if (!isnan(sum)) out[n++] = sum / stages;
    }
    return n;
}

/* The place in a curve where it first exceeds the level, or its last one. */
static size_t passing_place(const run_curve *r, double level) {
    size_t i = 0;
    while (i + 1 < r->count && !(r->column[CURVE_TRAIN_ACCURACY][i] > level)) i++;
    return i;
}

bool compare_passes(const comparison *c, int model, int seed, double level) {
    const run_curve *r = &c->curve[model][seed];
    return r->count && r->column[CURVE_TRAIN_ACCURACY][passing_place(r, level)] > level;
}

pal_times compare_times(const comparison *c, int model, double level, double *time, bool *happened) {
    size_t n = 0;
    for (int d = 0; d < c->seeds; d++) {
        const run_curve *r = &c->curve[model][d];
        if (!r->count) continue;
        const size_t i = passing_place(r, level);
        happened[n] = r->column[CURVE_TRAIN_ACCURACY][i] > level;
        time[n++] = r->column[CURVE_STEP][i];
    }
    return (pal_times){ n, time, happened };
}
