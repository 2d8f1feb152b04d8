/* SPDX-License-Identifier: MIT */
/* From runs to figures and reports: smoothing, means over seeds, panels. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plot/ticks.h"
#include "plot/told.h"

typedef struct {
    size_t count;
    double *x, *y, *low, *high; /* low, high NULL for a single run */
} curve;

static bool any_has(const pal_runs *r, pal_metric metric) {
    for (size_t i = 0; i < r->count; i++)
        for (size_t row = 0; row < r->runs[i].metrics.count; row++)
            if (pal_metrics_has(&r->runs[i].metrics, row, metric)) return true;
    return false;
}

/* out[i]: mean of the finite values among the `window` present ones around row i; NaN where row i itself is not
 * finite. Every window is summed by itself: a running sum would lose all that follows a huge value. present has room
 * for every row. */
static void smooth(double *out, const pal_metrics *m, pal_metric metric, int window, size_t *present) {
    size_t count = 0;
    for (size_t row = 0; row < m->count; row++) {
        out[row] = m->column[metric][row];
        if (pal_metrics_has(m, row, metric)) present[count++] = row;
    }
    if (window < 2) return;
    const size_t before = (size_t)(window - 1) / 2, behind = (size_t)window / 2;
    for (size_t at = 0; at < count; at++) {
        const size_t from = at > before ? at - before : 0, to = at + behind < count ? at + behind + 1 : count;
        double sum = 0;
        size_t finite = 0;
        if (!isfinite(m->column[metric][present[at]])) continue;
        for (size_t i = from; i < to; i++) {
            const double v = m->column[metric][present[i]];
            if (isfinite(v)) sum += v, finite++;
        }
        out[present[at]] = sum / (double)finite;
    }
}

/* Schedules are exact, and validation already averages over many examples at few points. */
static bool is_noisy(pal_metric metric) {
    return metric != PAL_METRIC_LR && metric != PAL_METRIC_VALID_LOSS && metric != PAL_METRIC_VALID_ACCURACY;
}

static const pal_metric x_metric[] = {
    [PAL_X_STEP] = PAL_METRIC_STEP, [PAL_X_TOKENS] = PAL_METRIC_TOKENS, [PAL_X_TIME] = PAL_METRIC_SECONDS
};

/* Runs of a group are averaged step by step, over those that logged the metric at that step. */
static pal_status make_curve(pal_runs *r, size_t g, pal_metric metric, const pal_runs_options *o, curve *out,
                             pal_error *err) {
    pal_status st;
    size_t rows = 0, longest = 0, *next, *present_rows;
    double **values;
    const bool several = r->groups[g].count > 1;
    for (size_t i = 0; i < r->count; i++)
        if (r->runs[i].group == g) {
            rows += r->runs[i].metrics.count;
            longest = r->runs[i].metrics.count > longest ? r->runs[i].metrics.count : longest;
        }
    *out = (curve){ 0 };
    if ((st = pal_runs_keep(r, (void **)&out->x, rows, sizeof(double), err)) ||
        (st = pal_runs_keep(r, (void **)&out->y, rows, sizeof(double), err)) ||
        (several && ((st = pal_runs_keep(r, (void **)&out->low, rows, sizeof(double), err)) ||
                     (st = pal_runs_keep(r, (void **)&out->high, rows, sizeof(double), err)))) ||
        (st = pal_runs_keep(r, (void **)&next, r->count, sizeof *next, err)) ||
        (st = pal_runs_keep(r, (void **)&values, r->count, sizeof *values, err)) ||
        (st = pal_runs_keep(r, (void **)&present_rows, longest, sizeof *present_rows, err)))
        return st;
    for (size_t i = 0; i < r->count; i++) {
        if (r->runs[i].group != g) continue;
        if ((st = pal_runs_keep(r, (void **)&values[i], r->runs[i].metrics.count, sizeof(double), err))) return st;
        smooth(values[i], &r->runs[i].metrics, metric, is_noisy(metric) ? o->smooth : 0, present_rows);
    }
    for (;;) {
        double step = INFINITY, x = 0, sum = 0, square = 0;
        size_t present = 0, finite = 0, placed = 0;
        for (size_t i = 0; i < r->count; i++)
            if (r->runs[i].group == g && next[i] < r->runs[i].metrics.count)
                step = fmin(step, r->runs[i].metrics.column[PAL_METRIC_STEP][next[i]]);
        if (isinf(step)) break;
        for (size_t i = 0; i < r->count; i++) {
            const pal_metrics *m = &r->runs[i].metrics;
            if (r->runs[i].group != g || next[i] == m->count || m->column[PAL_METRIC_STEP][next[i]] != step) continue;
            const size_t row = next[i]++;
            if (!pal_metrics_has(m, row, metric)) continue;
            present++;
            if (isfinite(m->column[x_metric[o->x]][row])) x += m->column[x_metric[o->x]][row], placed++;
            if (isfinite(values[i][row])) sum += values[i][row], finite++;
        }
        if (!present) continue;
        const double mean = finite ? sum / (double)finite : NAN;
        out->x[out->count] = placed ? x / (double)placed : NAN;
        out->y[out->count] = mean;
        if (several) {
            for (size_t i = 0; i < r->count; i++) {
                const pal_metrics *m = &r->runs[i].metrics;
                if (r->runs[i].group != g || !next[i] || m->column[PAL_METRIC_STEP][next[i] - 1] != step) continue;
                const double v = values[i][next[i] - 1];
                if (pal_metrics_has(m, next[i] - 1, metric) && isfinite(v)) square += (v - mean) * (v - mean);
            }
            const double deviation = finite > 1 ? sqrt(square / (double)(finite - 1)) : 0;
            /* Every metric is at least 0, and an interval must not say otherwise; accuracies end at 1 (or 100). */
            const double most = metric == PAL_METRIC_ACCURACY || metric == PAL_METRIC_VALID_ACCURACY
                                    ? (mean > 1 ? 100 : 1)
                                    : INFINITY;
            out->low[out->count] = fmax(mean - deviation, 0);
            out->high[out->count] = fmin(mean + deviation, most);
        }
        out->count++;
    }
    return PAL_OK;
}

/* Time is shown in the largest unit in which the longest run lasts more than two. */
static pal_axis x_axis(const pal_runs *r, const pal_runs_options *o, double *divisor) {
    *divisor = 1;
    if (r->by_position) return (pal_axis){ .label = "position (tokens)", .log = true };
    if (o->x == PAL_X_STEP) return (pal_axis){ .label = "step" };
    if (o->x == PAL_X_TOKENS) return (pal_axis){ .label = "tokens" };
    double longest = 0;
    for (size_t i = 0; i < r->count; i++)
        for (size_t row = 0; row < r->runs[i].metrics.count; row++) {
            const double t = r->runs[i].metrics.column[PAL_METRIC_SECONDS][row];
            if (t > longest) longest = t;
        }
    *divisor = longest > 7200 ? 3600 : longest > 120 ? 60 : 1;
    return (pal_axis){ .label = longest > 7200 ? "time (hours)" : longest > 120 ? "time (minutes)" : "time (seconds)" };
}

typedef struct {
    pal_metric metric;
    bool dashed;
    int colour; /* -1: the group's */
} part;

static pal_status group_colours(pal_runs *r, int **colours, pal_error *err) {
    const char **labels;
    pal_status st;
    if ((st = pal_runs_keep(r, (void **)&labels, r->group_count, sizeof *labels, err)) ||
        (st = pal_runs_keep(r, (void **)colours, r->group_count, sizeof **colours, err)))
        return st;
    for (size_t g = 0; g < r->group_count; g++) labels[g] = r->groups[g].label;
    pal_model_colours(labels, r->group_count, *colours);
    return PAL_OK;
}

static pal_status group_label(pal_runs *r, size_t g, char **label, pal_error *err) {
    const pal_status st = pal_runs_keep(r, (void **)label, PAL_RUN_LABEL + 48, 1, err);
    if (st) return st;
    if (r->groups[g].count > 1)
        snprintf(*label, PAL_RUN_LABEL + 32, "%s (%zu seeds)", r->groups[g].label, r->groups[g].count);
    else snprintf(*label, PAL_RUN_LABEL + 32, "%s", r->groups[g].label);
    return PAL_OK;
}

/* One panel with a curve per group and part, in the colours of the groups' models. */
static pal_status add_panel(pal_runs *r, const pal_runs_options *o, pal_panel *panel, const part *parts,
                            size_t part_count, pal_error *err) {
    pal_series *series;
    double divisor;
    int *colours;
    pal_status st = pal_runs_keep(r, (void **)&series, r->group_count * part_count, sizeof *series, err);
    if (st || (st = group_colours(r, &colours, err))) return st;
    panel->kind = PAL_PANEL_LINES;
    panel->x = x_axis(r, o, &divisor);
    size_t count = 0;
    for (size_t p = 0; p < part_count; p++)
        for (size_t g = 0; g < r->group_count; g++) {
            curve c;
            if ((st = make_curve(r, g, parts[p].metric, o, &c, err))) return st;
            if (c.count == 0) continue;
            for (size_t i = 0; i < c.count; i++) c.x[i] /= divisor;
            char *label = NULL, *name;
            if (!parts[p].dashed && r->group_count > 1 && (st = group_label(r, g, &label, err))) return st;
            if ((st = group_label(r, g, &name, err))) return st;
            if (parts[p].dashed) strcat(name, ", validation"); /* group_label() leaves room */
            series[count++] = (pal_series){ .label = label,
                                            .name = name,
                                            .count = c.count,
                                            .x = c.x,
                                            .y = c.y,
                                            .low = parts[p].dashed ? NULL : c.low,
                                            .high = parts[p].dashed ? NULL : c.high,
                                            .colour = parts[p].colour >= 0 && r->group_count == 1 ? parts[p].colour
                                                                                                  : colours[g],
                                            .dashed = parts[p].dashed,
                                            .points = (parts[p].dashed || r->by_position) && c.count <= 30 };
        }
    panel->lines = (pal_lines){ .series = series, .series_count = count };
    return PAL_OK;
}

/* The group without metaplasticity that belongs to group g ("Palimpsa-D, lr 1" and "Palimpsa-D w/o Meta, lr 1"), or
 * group_count. */
static size_t ablation_of(const pal_runs *r, size_t g) {
    static const char *const models[] = { "Palimpsa-D", "Palimpsa-M" };
    const char *own = r->groups[g].label;
    for (size_t h = 0; h < r->group_count; h++)
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
            char expected[PAL_RUN_LABEL + 16];
            const size_t n = strlen(models[i]);
            if (strncmp(own, models[i], n) != 0) continue;
            snprintf(expected, sizeof expected, "%s w/o Meta%s", models[i], own + n);
            if (strcmp(expected, r->groups[h].label) == 0) return h;
        }
    return r->group_count;
}

/* y becomes the difference to `other`, at the points that both have. */
static void subtract(curve *c, const curve *other) {
    size_t kept = 0;
    for (size_t i = 0, j = 0; i < c->count; i++) {
        while (j < other->count && other->x[j] < c->x[i]) j++;
        if (j == other->count || other->x[j] > c->x[i]) continue;
        c->y[kept] = c->y[i] - other->y[j];
        c->x[kept++] = c->x[i];
    }
    c->count = kept;
}

/* Curves that nearly coincide are shown as differences: of metaplastic models to the same without, or, where no
 * model has its ablation next to it, of all to the first. */
static pal_status add_differences(pal_runs *r, const pal_runs_options *o, pal_panel *panel, pal_metric metric,
                                  pal_error *err) {
    pal_series *series;
    double divisor;
    int *colours;
    char *title;
    bool ablations = false;
    pal_status st = pal_runs_keep(r, (void **)&series, r->group_count, sizeof *series, err);
    if (st || (st = group_colours(r, &colours, err)) ||
        (st = pal_runs_keep(r, (void **)&title, PAL_RUN_LABEL + 32, 1, err)))
        return st;
    for (size_t g = 0; g < r->group_count; g++) ablations |= ablation_of(r, g) < r->group_count;
    snprintf(title, PAL_RUN_LABEL + 32, "%s above %s", metric == PAL_METRIC_LOSS ? "Loss" : "Validation loss",
             ablations ? "the same model w/o Meta" : r->groups[0].label);
    *panel = (pal_panel){
        .kind = PAL_PANEL_LINES, .title = title, .x = x_axis(r, o, &divisor), .y = { .label = "difference (nats)" }
    };
    size_t count = 0;
    for (size_t g = 0; g < r->group_count; g++) {
        const size_t other = ablations ? ablation_of(r, g) : 0;
        curve c, reference;
        char *label;
        if (other == g || other == r->group_count) continue;
        if ((st = make_curve(r, g, metric, o, &c, err)) || (st = make_curve(r, other, metric, o, &reference, err)) ||
            (st = group_label(r, g, &label, err)))
            return st;
        subtract(&c, &reference);
        for (size_t i = 0; i < c.count; i++) c.x[i] /= divisor;
        if (c.count)
            series[count++] = (pal_series){
                .label = label, .count = c.count, .x = c.x, .y = c.y, .colour = colours[g], .points = c.count <= 30
            };
    }
    panel->lines = (pal_lines){ .series = series, .series_count = count };
    return PAL_OK;
}

/* Whether two groups followed different schedules. */
static pal_status rates_differ(pal_runs *r, const pal_runs_options *o, bool *differ, pal_error *err) {
    curve first, c;
    pal_status st = make_curve(r, 0, PAL_METRIC_LR, o, &first, err);
    *differ = false;
    for (size_t g = 1; g < r->group_count && !st && !*differ; g++)
        if (!(st = make_curve(r, g, PAL_METRIC_LR, o, &c, err)))
            *differ = c.count != first.count || memcmp(c.y, first.y, c.count * sizeof *c.y) != 0;
    return st;
}

static pal_status make_title(pal_runs *r, const pal_runs_options *o, pal_figure *figure, pal_error *err) {
    bool several = false;
    char *title;
    figure->title = o->title;
    if (o->title) return PAL_OK;
    for (size_t g = 0; g < r->group_count; g++) several |= r->groups[g].count > 1;
    const pal_status st = pal_runs_keep(r, (void **)&title, PAL_RUN_LABEL + 80, 1, err);
    if (st) return st;
    if (r->group_count == 1 && several)
        snprintf(title, PAL_RUN_LABEL + 80, "%s: mean and one standard deviation over %zu seeds", r->groups[0].label,
                 r->groups[0].count);
    else if (r->group_count == 1) snprintf(title, PAL_RUN_LABEL + 80, "%s", r->groups[0].label);
    else if (several) snprintf(title, PAL_RUN_LABEL + 80, "Mean and one standard deviation over seeds");
    else return PAL_OK;
    figure->title = title;
    return PAL_OK;
}

/* Accuracies are shown from 0 to 1 unless a file has percentages. */
static void fix_unit_range(const pal_runs *r, pal_axis *axis) {
    for (size_t i = 0; i < r->count; i++)
        for (size_t row = 0; row < r->runs[i].metrics.count; row++)
            if (r->runs[i].metrics.column[PAL_METRIC_ACCURACY][row] > 1 ||
                r->runs[i].metrics.column[PAL_METRIC_VALID_ACCURACY][row] > 1)
                return;
    axis->fixed = true;
    axis->max = 1;
}

static pal_status dynamics_panels(pal_runs *r, const pal_runs_options *o, pal_panel *panels, int *count,
                                  pal_error *err) {
    /* The paper's colours when there is one model: window blue, ratio orange, loss pink. */
    const part window[] = { { PAL_METRIC_N_T, false, 0 } }, ratio[] = { { PAL_METRIC_RATIO, false, 1 } },
               loss[] = { { PAL_METRIC_LOSS, false, 3 } };
    pal_status st;
    if (!any_has(r, PAL_METRIC_N_T) && !any_has(r, PAL_METRIC_RATIO))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: neither n_t nor ratio was logged, and dynamics need one of them",
                        r->runs[0].directory);
    panels[0] = (pal_panel){ .title = "Memory window", .y = { .label = "mean window Nₜ (tokens)", .log = true } };
    panels[1] = (pal_panel){ .title = "Metaplasticity ratio",
                             .y = { .label = "(Imax − Imin) / Imin", .log = o->log_y } };
    panels[2] = (pal_panel){ .title = "Training loss", .y = { .label = "loss (nats)", .log = o->log_y } };
    if ((st = add_panel(r, o, &panels[0], window, 1, err)) || (st = add_panel(r, o, &panels[1], ratio, 1, err)) ||
        (st = add_panel(r, o, &panels[2], loss, 1, err)))
        return st;
    *count = 3;
    return PAL_OK;
}

static pal_status comparison_panels(pal_runs *r, const pal_runs_options *o, pal_panel *panels, int *count,
                                    pal_error *err) {
    const part loss[] = { { PAL_METRIC_LOSS, false, -1 }, { PAL_METRIC_VALID_LOSS, true, -1 } },
               rate[] = { { PAL_METRIC_LR, false, -1 } };
    const part accuracy[] = { { PAL_METRIC_ACCURACY, false, -1 }, { PAL_METRIC_VALID_ACCURACY, true, -1 } };
    pal_status st;
    pal_panel *p = panels;
    *p = (pal_panel){ .title = any_has(r, PAL_METRIC_VALID_LOSS) ? "Loss (dashed: validation)" : "Loss",
                      .y = { .label = "loss (nats)", .log = o->log_y } };
    if ((st = add_panel(r, o, p++, loss, 2, err))) return st;
    if (any_has(r, PAL_METRIC_ACCURACY) || any_has(r, PAL_METRIC_VALID_ACCURACY)) {
        *p = (pal_panel){ .title = any_has(r, PAL_METRIC_VALID_ACCURACY) ? "Accuracy (dashed: validation)" : "Accuracy",
                          .y = { .label = "accuracy" } };
        fix_unit_range(r, &p->y);
        if ((st = add_panel(r, o, p++, accuracy, 2, err))) return st;
    }
    bool rates = any_has(r, PAL_METRIC_LR);
    if (rates && r->group_count > 1 && (st = rates_differ(r, o, &rates, err))) return st;
    if (r->group_count > 1 && p == panels + 1) { /* accuracies are apart where losses are not */
        const pal_metric metric = any_has(r, PAL_METRIC_VALID_LOSS) ? PAL_METRIC_VALID_LOSS : PAL_METRIC_LOSS;
        if ((st = add_differences(r, o, p++, metric, err))) return st;
    }
    if (rates) {
        *p = (pal_panel){ .title = "Learning rate", .y = { .label = "learning rate" } };
        if ((st = add_panel(r, o, p++, rate, 1, err))) return st;
    }
    *count = (int)(p - panels);
    return PAL_OK;
}

pal_status pal_runs_figure(pal_runs *r, const pal_runs_options *o, pal_figure *figure, pal_error *err) {
    pal_panel *panels = NULL;
    *figure = (pal_figure){ .theme = o->theme, .width = o->width, .height = o->height };
    if (r->count == 0) return pal_fail(err, PAL_E_ARGUMENT, "no run to plot");
    if (o->x != PAL_X_STEP && !any_has(r, x_metric[o->x]))
        return pal_fail(err, PAL_E_ARGUMENT, "%s: no %s were logged to plot against", r->runs[0].directory,
                        o->x == PAL_X_TOKENS ? "tokens" : "tokens_per_s");
    pal_status st = pal_runs_keep(r, (void **)&panels, 4, sizeof *panels, err);
    if (!st) st = make_title(r, o, figure, err);
    if (!st) st = (o->dynamics ? dynamics_panels : comparison_panels)(r, o, panels, &figure->panel_count, err);
    figure->panels = panels;
    figure->columns = o->dynamics ? 1 : figure->panel_count;
    figure->share_x = o->dynamics;
    return st;
}

static double last_of(const pal_metrics *m, pal_metric metric) {
    for (size_t row = m->count; row-- > 0;)
        if (pal_metrics_has(m, row, metric)) return m->column[metric][row];
    return NAN;
}

static double best_of(const pal_metrics *m, pal_metric metric, bool lowest) {
    double best = NAN;
    for (size_t row = 0; row < m->count; row++) {
        const double v = m->column[metric][row];
        if (!isnan(v) && !(lowest ? v >= best : v <= best)) best = v;
    }
    return best;
}

static pal_status report_table(pal_runs *r, pal_report *report, pal_error *err) {
    enum { CELL = PAL_RUN_LABEL };
    static const struct {
        const char *head;
        pal_metric metric;
        int pick; /* -1: lowest, 0: last, 1: highest */
    } numbers[] = {
        { "steps", PAL_METRIC_STEP, 0 },
        { "loss", PAL_METRIC_LOSS, 0 },
        { "best valid loss", PAL_METRIC_VALID_LOSS, -1 },
        { "perplexity", PAL_METRIC_PERPLEXITY, -1 },
        { "per word", PAL_METRIC_WORD_PERPLEXITY, -1 },
        { "accuracy", PAL_METRIC_ACCURACY, 0 },
        { "best valid accuracy", PAL_METRIC_VALID_ACCURACY, 1 },
        { "window Nₜ", PAL_METRIC_N_T, 0 },
        { "ratio", PAL_METRIC_RATIO, 0 },
        { "tokens/s", PAL_METRIC_TOKENS_PER_S, 0 },
    };
    enum { NUMBERS = sizeof numbers / sizeof numbers[0] };
    const char *head[3 + NUMBERS] = { "run", "configuration", "seed" }, **cells;
    int shown[NUMBERS];
    size_t columns = 3;
    for (int k = 0; k < NUMBERS; k++)
        if (any_has(r, numbers[k].metric)) shown[columns - 3] = k, head[columns++] = numbers[k].head;
    pal_status st = pal_runs_keep(r, (void **)&cells, r->count * columns, sizeof *cells, err);
    for (size_t i = 0; !st && i < r->count; i++) {
        const pal_run *now = &r->runs[i];
        for (size_t c = 0; !st && c < columns; c++) {
            char *cell;
            if ((st = pal_runs_keep(r, (void **)&cell, CELL, 1, err))) break;
            cells[i * columns + c] = cell;
            if (c == 0) snprintf(cell, CELL, "%.100s", pal_base_name(now->directory));
            else if (c == 1) snprintf(cell, CELL, "%s", r->groups[now->group].label);
            else if (c == 2) {
                const json_t *seed = now->config ? pal_run_setting(now->config, "seed") : NULL;
                if (json_is_integer(seed)) snprintf(cell, CELL, "%lld", (long long)json_integer_value(seed));
                else snprintf(cell, CELL, "–");
            } else {
                const int k = shown[c - 3];
                pal_number_text(cell, CELL,
                                numbers[k].pick == 0 ? last_of(&now->metrics, numbers[k].metric)
                                                     : best_of(&now->metrics, numbers[k].metric, numbers[k].pick < 0));
            }
        }
    }
    if (!st) pal_report_table(report, head, columns, cells, r->count);
    return st;
}

static pal_status write_report(pal_runs *r, const pal_runs_options *o, const char *path, pal_error *err) {
    static const char intervals[] =
        "Lines are means over runs that differ in nothing but the seed, intervals one standard deviation.";
    pal_report report = { 0 };
    pal_figure figure;
    pal_runs_options options = *o;
    bool several = false;
    for (size_t g = 0; g < r->group_count; g++) several |= r->groups[g].count > 1;
    options.dynamics = false;
    pal_status st = pal_runs_figure(r, &options, &figure, err);
    if (!st)
        st = pal_report_open(&report, path,
                             o->title              ? o->title
                             : r->group_count == 1 ? r->groups[0].label
                                                   : "Comparison of runs",
                             err);
    if (!st) pal_runs_tell_task(r, &report), pal_runs_tell_outcome(r, &report);
    if (!st) st = report_table(r, &report, err);
    if (!st) pal_report_heading(&report, "Training");
    if (!st) st = pal_report_figure(&report, &figure, several ? intervals : NULL, err);
    if (!st && (any_has(r, PAL_METRIC_N_T) || any_has(r, PAL_METRIC_RATIO))) {
        options.dynamics = true;
        if (!(st = pal_runs_figure(r, &options, &figure, err))) {
            pal_report_heading(&report, "Learning dynamics");
            pal_report_text(&report, "The memory window Nₜ is how many tokens back the memory reaches, averaged over "
                                     "tokens, heads and layers. "
                                     "The metaplasticity ratio (Imax − Imin) / Imin compares the most with the least "
                                     "consolidated entry of the final memory.");
            st = pal_report_figure(&report, &figure, several ? intervals : NULL, err);
        }
    }
    if (!st) st = pal_runs_tell_origin(r, o, &report, err);
    if (!st) st = pal_report_close(&report, err);
    pal_report_drop(&report);
    return st;
}

static bool ends_with(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

pal_status pal_runs_check_path(const char *path, pal_error *err) {
    const pal_status st = pal_figures_drawn(err);
    if (st) return st;
    if (ends_with(path, ".svg") || ends_with(path, ".png") || ends_with(path, ".html")) return PAL_OK;
    return pal_fail(err, PAL_E_ARGUMENT, "%s: expected a name that ends in .svg, .png or .html", path);
}

pal_status pal_runs_write(pal_runs *r, const pal_runs_options *o, const char *path, pal_error *err) {
    pal_figure figure;
    pal_status st = pal_runs_check_path(path, err);
    if (st) return st;
    if (ends_with(path, ".html")) return write_report(r, o, path, err);
    if ((st = pal_runs_figure(r, o, &figure, err))) return st;
    return ends_with(path, ".svg") ? pal_figure_write_svg(&figure, path, err)
                                   : pal_figure_write_png(&figure, o->scale > 0 ? o->scale : 2, path, err);
}
