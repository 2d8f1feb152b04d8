/* SPDX-License-Identifier: MIT */
/* The files of a sweep: sweep.json, results.csv, and the metrics of its runs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/log.h"
#include "base/map.h"
#include "cli.h"
#include "format/json.h"
#include "format/model_dir.h"
#include "sweep.h"
#include "train/checkpoint.h"

int sweep_find(const word_list *list, const char *word) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->entry[i], word) == 0) return i;
    return -1;
}

int sweep_join(char path[SWEEP_PATH], const char *folder, const char *name) {
    return cli_path(path, SWEEP_PATH, "%s/%s", folder, name);
}

int sweep_name(char name[256], const char *model, const char *rate, const char *seed) {
    const int length = snprintf(name, 256, "%s-lr%s-seed%s", model, rate, seed);
    /* A ':' means a list or a host to many programs, a '/' another directory. */
    for (char *c = name; *c; c++) *c = *c == ':' || *c == '/' ? '-' : *c;
    return length;
}

void sweep_run_name(const sweep *s, const sweep_run *r, char name[256]) {
    sweep_name(name, s->models.entry[r->model], s->rates.entry[r->rate], s->seeds.entry[r->seed]);
}

int sweep_check_names(const sweep *s) {
    enum { MOST = 240 }; /* file systems end at 255, with the suffix of a file that is being written */
    char name[256], other[256];
    for (int i = 0; i < s->models.count; i++) {
        const char *model = s->models.entry[i];
        for (int k = 0; k < s->rates.count * s->seeds.count; k++)
            if (sweep_name(name, model, s->rates.entry[k / s->seeds.count], s->seeds.entry[k % s->seeds.count]) > MOST)
                return cli_error(CLI_USAGE, "sweep: '%.60s...' is too long for the name of a run", name);
        sweep_name(name, model, "", "");
        for (int k = 0; k < i; k++) {
            sweep_name(other, s->models.entry[k], "", "");
            if (strcmp(name, other) == 0)
                return cli_error(CLI_USAGE, "--models: '%s' and '%s' would give runs of the same name",
                                 s->models.entry[k], model);
        }
    }
    return CLI_OK;
}

int sweep_run_path(const sweep *s, const sweep_run *r, const char *file, char path[SWEEP_PATH]) {
    char name[256];
    sweep_run_name(s, r, name);
    return cli_path(path, SWEEP_PATH, "%s/runs/%s%s%s", s->out, name, file ? "/" : "", file ? file : "");
}

sweep_run *sweep_at(const sweep *s, int model, int rate, int seed) {
    return &s->runs[((size_t)model * (size_t)s->rates.count + (size_t)rate) * (size_t)s->seeds.count + (size_t)seed];
}

static json_t *words_of(const word_list *list) {
    json_t *out = json_array();
    for (int i = 0; i < list->count; i++) pal_json_append(out, pal_json_text(list->entry[i]));
    return out;
}

/* The sweep's own configuration, so that a restart with a different one is refused. */
static json_t *describe(const sweep *s) {
    json_t *extra = json_array();
    for (int i = 0; i < s->extra_count; i++) pal_json_append(extra, pal_json_text(s->extra[i]));
    json_t *out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "models", words_of(&s->models), "lrs",
                            words_of(&s->rates), "seeds", words_of(&s->seeds), "train",
                            s->train_options ? json_incref(s->train_options) : json_null(), "options", extra, "threads",
                            s->threads);
    if (s->search) pal_json_set(out, "search", pal_json_text(s->search));
    if (s->extend) pal_json_set(out, "extend", json_integer(s->extend));
    if (s->endpoint.count) pal_json_set(out, "endpoint", words_of(&s->endpoint));
    if (s->search_seeds.count) pal_json_set(out, "search_seeds", words_of(&s->search_seeds));
    return out;
}

int sweep_write(const sweep *s, const char *name, void (*print)(FILE *to, const sweep *s)) {
    char path[SWEEP_PATH];
    pal_writer w;
    pal_error err;
    const int code = sweep_join(path, s->out, name);
    if (code) return code;
    if (pal_writer_open(&w, path, &err)) return cli_fail_writing(&err);
    print(w.stream, s); /* commit looks at ferror */
    return pal_writer_commit(&w, &err) ? cli_fail_writing(&err) : CLI_OK;
}

int sweep_check_description(const sweep *s) {
    char path[SWEEP_PATH];
    json_error_t why;
    int code = sweep_join(path, s->out, "sweep.json");
    if (code) return code;
    json_t *stored = NULL, *mine = pal_json_whole(describe(s));
    if (!mine) return cli_error(CLI_FAILED, "out of memory for %s", path);
    if (access(path, F_OK) != 0) {
        pal_error err;
        code = pal_json_write(path, mine, &err) ? cli_fail_writing(&err) : CLI_OK;
        json_decref(mine);
        return code;
    }
    if (!(stored = pal_json_load(path, 0, &why, NULL))) code = cli_error(CLI_USAGE, "%s: %s", path, why.text);
    const char *key;
    json_t *value;
    json_object_foreach(mine, key, value) {
        if (code || json_equal(value, json_object_get(stored, key))) continue;
        char *before = pal_json_dumps(json_object_get(stored, key), JSON_ENCODE_ANY),
             *after = pal_json_dumps(value, JSON_ENCODE_ANY);
        if (!after || (!before && json_object_get(stored, key)))
            code = cli_error(CLI_FAILED, "out of memory while comparing %s with this sweep", path);
        else
            code = cli_error(CLI_USAGE, "%s: this sweep cannot resume with another configuration: %s was %s, now %s",
                             path, key, before ? before : "not set", after);
        free(before);
        free(after);
    }
    json_object_foreach(stored, key, value) {
        if (code || json_object_get(mine, key)) continue;
        code = cli_error(CLI_USAGE, "%s: this sweep cannot resume with another configuration: %s was set, now not",
                         path, key);
    }
    json_decref(stored);
    json_decref(mine);
    return code;
}

static const char header[] = "model,lr,seed,stage,length,pairs,accuracy,steps";

static void print_results(FILE *to, const sweep *s) {
    fprintf(to, "%s\n", header);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < s->runs[i].stages; k++) {
            const sweep_run *r = &s->runs[i];
            fprintf(to, "%s,%s,%s,%d,%d,%d,%.6f,%lld\n", s->models.entry[r->model], s->rates.entry[r->rate],
                    s->seeds.entry[r->seed], k + 1, r->length[k], r->pairs[k], r->accuracy[k], r->steps[k]);
        }
}

int sweep_write_results(const sweep *s) { return sweep_write(s, "results.csv", print_results); }

static bool parse_row(const char *line, sweep_row *row) {
    if (sscanf(line, "%255[^,],%63[^,],%63[^,],%9d,%9d,%9d,%lf,%18lld", row->model, row->rate, row->seed, &row->stage,
               &row->length, &row->pairs, &row->accuracy, &row->steps) != 8)
        return false;
    pal_tame(row->model), pal_tame(row->rate), pal_tame(row->seed); /* they are printed */
    row->value = row->accuracy;
    return row->stage >= 1 && row->stage <= SWEEP_STAGES && row->length >= 0 && row->pairs >= 0 && row->steps >= 0 &&
           row->accuracy >= 0 && row->accuracy <= 1;
}

/* The word of a line at a place; NULL: there is none, or it is empty. */
static const char *word_at(const char *line, int place) {
    for (; place > 0 && line; place--)
        if ((line = strchr(line, ','))) line++;
    return line && *line && *line != ',' ? line : NULL;
}

/* The place of a column in the first line, or -1. */
static int find_column(const char *names, const char *column) {
    const size_t length = strlen(column);
    const char *word;
    for (int i = 0; (word = word_at(names, i)); i++)
        if (strcspn(word, ",\r") == length && memcmp(word, column, length) == 0) return i;
    return -1;
}

static bool parse_value(const char *line, int place, sweep_row *row) {
    const char *word = word_at(line, place);
    char *end;
    if (!word) return false;
    row->value = strtod(word, &end);
    return end != word && isfinite(row->value);
}

int sweep_each_row(const char *path, const char *column, sweep_take_row *take, void *user) {
    char line[1024];
    pal_map map;
    pal_error err;
    int number = 0, code = CLI_OK, place = -1;
    if (pal_map_open(&map, path, &err)) return cli_fail(&err);
    for (size_t at = 0; at < map.size && !code;) {
        const unsigned char *end = memchr(map.data + at, '\n', map.size - at);
        const size_t size = end ? (size_t)(end - map.data) - at : map.size - at;
        sweep_row row;
        snprintf(line, sizeof line, "%.*s", size < sizeof line ? (int)size : 0, (const char *)map.data + at);
        at += size + 1;
        if (++number == 1) { /* the names of the columns */
            if (column && (place = find_column(line, column)) < 0)
                code = cli_error(CLI_USAGE, "%s: there is no column '%s'", path, column);
            continue;
        }
        code = parse_row(line, &row) && (place < 0 || parse_value(line, place, &row))
                   ? take(user, path, number, &row)
                   : cli_error(CLI_USAGE, "%s: line %d is not a row of a sweep", path, number);
    }
    pal_map_close(&map);
    return code;
}

static int take_result(void *user, const char *path, int number, const sweep_row *row) {
    const sweep *s = user;
    const int m = sweep_find(&s->models, row->model), l = sweep_find(&s->rates, row->rate),
              d = sweep_find(&s->seeds, row->seed);
    if (m < 0 || l < 0 || d < 0)
        return cli_error(CLI_USAGE, "%s: line %d names a run that is not in this sweep", path, number);
    sweep_run *r = sweep_at(s, m, l, d);
    r->accuracy[row->stage - 1] = row->accuracy;
    r->length[row->stage - 1] = row->length;
    r->pairs[row->stage - 1] = row->pairs;
    r->steps[row->stage - 1] = row->steps;
    if (row->stage > r->stages) r->stages = row->stage;
    return CLI_OK;
}

/* Rows of an earlier start. Rows of runs outside the grid cannot be there: sweep.json was compared first. */
int sweep_read_results(sweep *s) {
    char path[SWEEP_PATH];
    const int code = sweep_join(path, s->out, "results.csv");
    return code || access(path, F_OK) != 0 ? code : sweep_each_row(path, NULL, take_result, s);
}

/* A number of a line, or the mean of a list's finite ones (one a layer), after a comma; nothing if there is none.
 */
static void print_number(FILE *to, const json_t *line, const char *key) {
    const json_t *value = json_object_get(line, key);
    double sum = 0;
    size_t count = 0;
    fputc(',', to);
    if (json_is_number(value)) sum = json_number_value(value), count = 1;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_number(json_array_get(value, i))) sum += json_number_value(json_array_get(value, i)), count++;
    if (count) fprintf(to, "%.5g", sum / (double)count);
}

/* A count of a line, 0 where there is none; false: none that a run writes. */
static bool count_of(const json_t *line, const char *key, int most, int *out) {
    const json_int_t count = json_integer_value(json_object_get(line, key));
    if (count < 0 || count > most) return false;
    *out = (int)count;
    return true;
}

static void take_line(const json_t *line, sweep_run *r, FILE *curve) {
    static const char *const columns[] = { "loss", "train_accuracy", "accuracy", "n_t", "ratio" };
    const json_t *accuracy = json_object_get(line, "accuracy");
    const long long step = json_integer_value(json_object_get(line, "step"));
    int stage, length, pairs;
    if (step < 1 || !count_of(line, "stage", SWEEP_STAGES - 1, &stage) || !count_of(line, "length", INT_MAX, &length) ||
        !count_of(line, "pairs", INT_MAX, &pairs))
        return; /* no line of metrics */
    fprintf(curve, "%lld,%d", step, stage + 1);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) print_number(curve, line, columns[i]);
    fputc('\n', curve);
    if (!json_is_number(accuracy)) return;
    r->accuracy[stage] = json_number_value(accuracy);
    r->steps[stage] = step;
    r->length[stage] = length;
    r->pairs[stage] = pairs;
    if (stage + 1 > r->stages) r->stages = stage + 1;
}

static int open_curve(const sweep *s, const sweep_run *r, pal_writer *w) {
    char folder[SWEEP_PATH], path[SWEEP_PATH], name[256 + 4];
    pal_error err;
    int code;
    sweep_run_name(s, r, name);
    strcat(name, ".csv");
    if ((code = sweep_join(folder, s->out, "curves")) || (code = sweep_join(path, folder, name))) return code;
    return pal_make_directory(folder, &err) || pal_writer_open(w, path, &err) ? cli_fail_writing(&err) : CLI_OK;
}

/* From the run's metrics: the last accuracy of every stage, with the lengths and pairs of what was trained, and the
 * curve. */
int sweep_read_run(const sweep *s, sweep_run *r) {
    char path[SWEEP_PATH];
    pal_map map;
    pal_error err;
    pal_writer curve;
    int code = sweep_run_path(s, r, "metrics.jsonl", path);
    if (code) return code;
    if (pal_map_open(&map, path, &err)) return cli_error(CLI_FAILED, "%s", err.text);
    if ((code = open_curve(s, r, &curve))) {
        pal_map_close(&map);
        return code;
    }
    fprintf(curve.stream, "step,stage,loss,train_accuracy,accuracy,n_t,ratio\n");
    for (size_t at = 0; at < map.size;) {
        const unsigned char *end = memchr(map.data + at, '\n', map.size - at);
        const size_t size = end ? (size_t)(end - map.data) - at : map.size - at;
        bool starved;
        json_t *line = pal_json_parse((const char *)map.data + at, size, 0, NULL, &starved);
        if (starved) {
            pal_writer_drop(&curve);
            pal_map_close(&map);
            return cli_error(CLI_FAILED, "out of memory while reading %s", path);
        }
        take_line(line, r, curve.stream);
        json_decref(line);
        at += size + 1;
    }
    pal_map_close(&map);
    if (pal_writer_commit(&curve, &err)) return cli_fail_writing(&err); /* it looks at ferror */
    return r->stages ? CLI_OK : cli_error(CLI_FAILED, "%s: no accuracy in it", path);
}
