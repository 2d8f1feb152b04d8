/* SPDX-License-Identifier: MIT */
/* palimpsa eval --by-position: the loss of models by position in documents, and how far it is from a baseline's, with
 * confidence bands over documents. Every document is read from its beginning, so a bin of a document holds the same
 * tokens for all models, as far as they read. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/statistics.h"
#include "eval_text.h"
#include "format/json.h"
#include "plot/runs.h"
#include "text/json_text.h"

enum { LEAST_DOCUMENTS = 8 }; /* below which a bin says little */

/* One bin of one model: its loss, or the difference to the baseline's. */
typedef struct {
    size_t documents;
    double tokens, mean;
    pal_interval band; /* 95% */
} cell;

typedef struct {
    int bins, count;
    bool shown[PAL_POSITION_BINS]; /* enough documents, for every model */
    cell loss[EVAL_MODELS + 1][PAL_POSITION_BINS], above[EVAL_MODELS][PAL_POSITION_BINS];
} positions;

/* Documents that both read a bin of to its end, as far as it goes. */
static pal_status fill_cell(cell *c, const pal_perplexity *p, const pal_perplexity *minus, int bin, double *x,
                            double *weight, pal_error *err) {
    double sum = 0;
    *c = (cell){ .mean = NAN, .band = { NAN, NAN } };
    for (size_t d = 0; d < p->documents; d++) {
        const pal_position_bin *own = &p->of_document[d][bin], *other = minus ? &minus->of_document[d][bin] : own;
        if (!own->count || own->count != other->count) continue;
        x[c->documents] = own->nll - (minus ? other->nll : 0);
        weight[c->documents] = (double)own->count;
        sum += x[c->documents];
        c->tokens += weight[c->documents++];
    }
    if (!c->documents) return PAL_OK;
    c->mean = sum / c->tokens;
    return pal_bootstrap_ratio(&c->band, x, weight, c->documents, err);
}

static pal_status fill(positions *v, const eval_measured *all, const eval_measured *baseline, pal_error *err) {
    const int rows = v->count + (baseline != NULL);
    double *x;
    pal_status st = pal_alloc_named((void **)&x, 2 * (size_t)all[0].result.documents, sizeof *x, "a bootstrap", err);
    if (st) return st;
    double *weight = x + all[0].result.documents;
    for (int i = 0; i < rows; i++)
        if (all[i].result.bin_count > v->bins) v->bins = all[i].result.bin_count;
    for (int b = 0; b < v->bins; b++) {
        v->shown[b] = true;
        for (int i = 0; i < rows && !st; i++) {
            st = fill_cell(&v->loss[i][b], &all[i].result, NULL, b, x, weight, err);
            const bool differs = baseline && i < v->count;
            if (!st && differs) st = fill_cell(&v->above[i][b], &all[i].result, &baseline->result, b, x, weight, err);
            v->shown[b] &= (differs ? v->above[i][b] : v->loss[i][b]).documents >= LEAST_DOCUMENTS;
        }
    }
    pal_free(x);
    return st;
}

static void print_cell(const cell *c, const char *format) {
    char text[64];
    snprintf(text, sizeof text, format, c->mean, c->band.low, c->band.high);
    printf(" %28s", text);
}

static void print_table(const positions *v, const eval_measured *all, const eval_measured *baseline,
                        const eval_text_options *o) {
    const pal_perplexity *p = &all[0].result;
    char name[48];
    printf("%llu documents", (unsigned long long)p->documents);
    if (p->passed_over) printf(" (%llu shorter ones passed over)", (unsigned long long)p->passed_over);
    printf("; nats per token with 95%% intervals over documents\n\n%20s %9s %9s", o->answers ? "distance" : "position",
           "documents", "tokens");
    for (int i = 0; i < v->count + (baseline != NULL); i++) printf(" %28.28s", all[i].label);
    for (int i = 0; i < v->count && baseline; i++) printf(" %21.21s - base.", all[i].label);
    putchar('\n');
    for (int b = 0; b < v->bins; b++) {
        if (!v->shown[b]) continue;
        const cell *first = baseline ? &v->above[0][b] : &v->loss[0][b];
        eval_bin_name(name, b, p->last);
        printf("%20s %9zu %9.0f", name, first->documents, first->tokens);
        for (int i = 0; i < v->count + (baseline != NULL); i++) print_cell(&v->loss[i][b], "%.4f [%.4f, %.4f]");
        for (int i = 0; i < v->count && baseline; i++) print_cell(&v->above[i][b], "%+.4f [%+.4f, %+.4f]");
        putchar('\n');
    }
    for (int b = 0; b < v->bins; b++) {
        if (v->shown[b]) continue;
        size_t fewest = SIZE_MAX;
        for (int i = 0; i < v->count + (baseline != NULL); i++) {
            const cell *c = baseline && i < v->count ? &v->above[i][b] : &v->loss[i][b];
            if (c->documents < fewest) fewest = c->documents;
        }
        eval_bin_name(name, b, p->last);
        printf("%s left out: %zu document%s to compare, at least %d are needed\n", name, fewest, fewest == 1 ? "" : "s",
               LEAST_DOCUMENTS);
    }
    for (int i = 0; i < v->count + (baseline != NULL); i++)
        if (all[i].context)
            printf("%s: the first %d tokens of a document%s\n", all[i].label, all[i].context, all[i].why);
}

static json_t *cells_json(const positions *v, const cell *cells) {
    json_t *list = json_array();
    for (int b = 0; b < v->bins; b++)
        if (v->shown[b])
            pal_json_append(list, json_pack("{s:I, s:I, s:o, s:o, s:o, s:I, s:I}", "from", (json_int_t)1 << b, "to",
                                            (json_int_t)1 << (b + 1), "nll", pal_json_number(cells[b].mean), "low",
                                            pal_json_number(cells[b].band.low), "high",
                                            pal_json_number(cells[b].band.high), "documents",
                                            (json_int_t)cells[b].documents, "tokens", (json_int_t)cells[b].tokens));
    return list;
}

static int write_json(const positions *v, const eval_measured *all, const eval_measured *baseline, const char *path) {
    json_t *root = json_array();
    for (int i = 0; i < v->count; i++) {
        json_t *model = json_pack(
            "{s:o, s:I, s:I, s:o, s:o}", "model", pal_json_bytes(all[i].label, strlen(all[i].label)), "documents",
            (json_int_t)all[i].result.documents, "passed_over", (json_int_t)all[i].result.passed_over, "context",
            all[i].context ? json_integer(all[i].context) : json_null(), "by_position", cells_json(v, v->loss[i]));
        if (all[i].answers) {
            pal_json_set(model, "answers", json_integer((json_int_t)all[i].result.words));
            pal_json_set(model, "right", json_integer((json_int_t)all[i].result.right));
        }
        if (baseline) {
            pal_json_set(model, "baseline", pal_json_bytes(baseline->label, strlen(baseline->label)));
            pal_json_set(model, "difference_by_position", cells_json(v, v->above[i]));
        }
        pal_json_append(root, model);
    }
    const int code = eval_write_json(v->count == 1 ? json_array_get(root, 0) : root, path);
    json_decref(root);
    return code;
}

/* x, y, low and high of a line. */
typedef struct {
    double x[PAL_POSITION_BINS], y[PAL_POSITION_BINS], low[PAL_POSITION_BINS], high[PAL_POSITION_BINS];
} line;

static pal_series make_series(line *l, const positions *v, const pal_perplexity *p, const cell *cells, const char *name,
                              int colour, bool dashed) {
    size_t n = 0;
    for (int b = 0; b < v->bins; b++) {
        if (!v->shown[b]) continue;
        l->x[n] = eval_bin_middle(p, b);
        l->y[n] = cells[b].mean;
        l->low[n] = cells[b].band.low;
        l->high[n++] = cells[b].band.high;
    }
    return (pal_series){ .label = name,
                         .count = n,
                         .x = l->x,
                         .y = l->y,
                         .low = l->low,
                         .high = l->high,
                         .colour = colour,
                         .points = true,
                         .dashed = dashed };
}

static int draw(const positions *v, const eval_measured *all, const eval_measured *baseline,
                const eval_text_options *o) {
    const int rows = v->count + (baseline != NULL);
    const char *names[EVAL_MODELS + 1];
    int colours[EVAL_MODELS + 1];
    pal_series loss[EVAL_MODELS + 1], above[EVAL_MODELS];
    char title[256];
    line *lines;
    pal_error err;
    if (pal_alloc_named((void **)&lines, 2 * (size_t)rows, sizeof *lines, "a figure", &err)) return cli_fail(&err);
    for (int i = 0; i < rows; i++) names[i] = pal_model_label(all[i].label);
    pal_model_colours(names, (size_t)rows, colours);
    for (int i = 0; i < rows; i++) {
        loss[i] = make_series(&lines[2 * i], v, &all[i].result, v->loss[i], names[i], colours[i], i == v->count);
        if (baseline && i < v->count)
            above[i] = make_series(&lines[2 * i + 1], v, &all[i].result, v->above[i], names[i], colours[i], false);
    }
    snprintf(title, sizeof title, "Loss above %s", baseline ? names[v->count] : "");
    const pal_axis x = { .label = eval_axis_name(o), .log = true };
    const pal_panel panels[2] = { { .kind = PAL_PANEL_LINES,
                                    .title = baseline ? "Loss" : NULL,
                                    .x = x,
                                    .y = { .label = "nats per token" },
                                    .lines = { .series = loss, .series_count = (size_t)rows } },
                                  { .kind = PAL_PANEL_LINES,
                                    .title = title,
                                    .x = x,
                                    .y = { .label = "difference, nats per token" },
                                    .lines = { .series = above, .series_count = (size_t)v->count } } };
    const pal_figure figure = { .title = o->answers ? "Loss on answers by distance, 95% over documents"
                                                    : "Loss by position, 95% over documents",
                                .panels = panels,
                                .panel_count = baseline ? 2 : 1,
                                .columns = baseline ? 2 : 1 };
    const int code = eval_write_figure(&figure, o->figure);
    pal_free(lines);
    return code;
}

int eval_show_positions(const eval_measured *all, int count, const eval_measured *baseline,
                        const eval_text_options *o) {
    positions *v;
    pal_error err;
    bool some = false;
    int code = CLI_OK;
    if (pal_alloc_named((void **)&v, 1, sizeof *v, "losses by position", &err)) return cli_fail(&err);
    v->count = count;
    if (fill(v, all, baseline, &err)) code = cli_fail(&err);
    for (int b = 0; b < v->bins; b++) some |= v->shown[b];
    if (!code && !some)
        code = cli_error(CLI_USAGE, "%s: no position is reached by %d documents of every model: nothing to compare",
                         o->data, LEAST_DOCUMENTS);
    if (!code && (!o->json || strcmp(o->json, "-") != 0)) print_table(v, all, baseline, o);
    if (!code && o->json) code = write_json(v, all, baseline, o->json);
    if (!code && o->figure) code = draw(v, all, baseline, o);
    pal_free(v);
    return code;
}
