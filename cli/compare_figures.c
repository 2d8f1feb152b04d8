/* SPDX-License-Identifier: MIT */
/* The figures of `palimpsa compare`. Intervals are 95% bootstrap intervals of the mean over seeds. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "cli.h"
#include "compare.h"
#include "plot/figure.h"
#include "plot/runs.h"

/* Lines, and what they point to, freed together. */
typedef struct {
    pal_series series[3 * SWEEP_ENTRIES];
    double *numbers[3 * SWEEP_ENTRIES]; /* of each line: x, y, low and high of `room` points */
    size_t room[3 * SWEEP_ENTRIES], count;
    char labels[SWEEP_ENTRIES][608];
} canvas;

/* A line of up to `points` points, whose series is then looked up as the last; false: no memory. */
static bool new_line(canvas *v, size_t points, const char *label, int colour) {
    double *numbers = pal_alloc(4 * points, sizeof *numbers);
    if (!numbers) return false;
    v->numbers[v->count] = numbers;
    v->room[v->count] = points;
    v->series[v->count++] = (pal_series){ .label = label,
                                          .x = numbers,
                                          .y = numbers + points,
                                          .low = numbers + 2 * points,
                                          .high = numbers + 3 * points,
                                          .colour = colour };
    return true;
}

static void put(canvas *v, double x, double y, double low, double high) {
    const size_t line = v->count - 1, points = v->room[line], i = v->series[line].count++;
    double *numbers = v->numbers[line];
    numbers[i] = x, numbers[points + i] = y, numbers[2 * points + i] = low, numbers[3 * points + i] = high;
}

/* One more point: the mean of some numbers and its interval. */
static pal_status put_mean(canvas *v, double x, const double *values, int n, pal_error *err) {
    pal_interval interval;
    const pal_status st = pal_bootstrap_mean(&interval, values, (size_t)n, err);
    const double mean = pal_mean(values, (size_t)n);
    put(v, x, mean, isnan(interval.low) ? mean : interval.low, isnan(interval.high) ? mean : interval.high);
    return st;
}

/* "palimpsa-d:mesa" reads as a model and what is different about it. */
static void write_label(char text[300], const char *entry) {
    char base[256];
    const size_t size = strcspn(entry, ":");
    snprintf(base, sizeof base, "%.*s", (int)(size < 255 ? size : 255), entry);
    snprintf(text, 300, "%s%s%s", pal_model_label(base), entry[size] ? ", " : "", entry[size] ? entry + size + 1 : "");
    for (char *p = text; *p; p++)
        if (*p == ':') *p = ' ';
}

static const char *label_of(canvas *v, const comparison *c, int model) {
    char label[300];
    write_label(label, c->model[model]);
    snprintf(v->labels[model], sizeof v->labels[model], "%s", label);
    return v->labels[model];
}

static int colour_of(const comparison *c, int model) {
    const char *names[SWEEP_ENTRIES];
    int colours[SWEEP_ENTRIES];
    for (int m = 0; m < c->models; m++) names[m] = c->model[m];
    pal_model_colours(names, (size_t)c->models, colours);
    return colours[model];
}

static int no_memory(void) { return cli_error(CLI_FAILED, "compare: out of memory for the figure"); }

static int draw_length(canvas *v, const comparison *c) {
    double values[SWEEP_ENTRIES];
    pal_error err;
    for (int m = 0; m < c->models; m++) {
        if (!new_line(v, (size_t)c->stages, label_of(v, c, m), colour_of(c, m))) return no_memory();
        v->series[v->count - 1].points = true;
        for (int k = 0; k < c->stages; k++)
            if (put_mean(v, c->length[k], values, compare_accuracies(c, m, k, values), &err)) return cli_fail(&err);
    }
    return CLI_OK;
}

static int draw_differences(canvas *v, const comparison *c, const contrast *list, int count) {
    double values[SWEEP_ENTRIES];
    pal_error err;
    for (int i = 0; i < count; i++) {
        if (list[i].slope) continue;
        char a[300], b[300];
        write_label(a, c->model[list[i].a]);
        write_label(b, c->model[list[i].b]);
        snprintf(v->labels[i], sizeof v->labels[i], "%s - %s", a, b);
        if (!new_line(v, (size_t)c->stages, v->labels[i], i)) return no_memory();
        v->series[v->count - 1].points = true;
        for (int k = 0; k < c->stages; k++)
            if (put_mean(v, c->length[k], values, compare_differences(c, list[i].a, list[i].b, k, values), &err))
                return cli_fail(&err);
    }
    if (!v->count) return cli_error(CLI_USAGE, "compare: --figure differences needs --contrasts");
    if (!new_line(v, 2, NULL, PAL_COLOURS - 1)) return no_memory();
    put(v, c->length[0], 0, 0, 0);
    put(v, c->length[c->stages - 1], 0, 0, 0);
    v->series[v->count - 1].low = v->series[v->count - 1].high = NULL;
    v->series[v->count - 1].dashed = true;
    return CLI_OK;
}

/* The last update that any run logged. */
static double last_step(const comparison *c) {
    double last = 0;
    for (int m = 0; m < c->models; m++)
        for (int d = 0; d < c->seeds; d++)
            if (c->curve[m][d].count) last = fmax(last, c->curve[m][d].column[CURVE_STEP][c->curve[m][d].count - 1]);
    return last;
}

/* Stairs: a step at every update at which a run passed the level. */
static int draw_survival(canvas *v, const comparison *c, double level) {
    const double last = last_step(c);
    double time[SWEEP_ENTRIES];
    bool happened[SWEEP_ENTRIES];
    for (int m = 0; m < c->models; m++) {
        const pal_times of = compare_times(c, m, level, time, happened);
        if (!new_line(v, 2 * of.n + 2, label_of(v, c, m), colour_of(c, m))) return no_memory();
        v->series[v->count - 1].low = v->series[v->count - 1].high = NULL;
        double share = 0;
        put(v, 0, 0, 0, 0);
        for (double t = 0;;) {
            double next = INFINITY;
            for (size_t i = 0; i < of.n; i++)
                if (of.happened[i] && of.time[i] > t) next = fmin(next, of.time[i]);
            if (!isfinite(next)) break;
            t = next;
            put(v, t, share, 0, 0);
            share = pal_share_by(&of, t);
            put(v, t, share, 0, 0);
        }
        put(v, last, share, 0, 0);
    }
    return CLI_OK;
}

/* Means over the seeds that logged a number at the update. */
static int draw_column(canvas *v, const comparison *c, curve_column column) {
    double values[SWEEP_ENTRIES];
    pal_error err;
    for (int m = 0; m < c->models; m++) {
        const run_curve *first = NULL;
        for (int d = 0; d < c->seeds; d++)
            if (c->curve[m][d].count && !first) first = &c->curve[m][d];
        if (!first) continue;
        if (!new_line(v, first->count, label_of(v, c, m), colour_of(c, m))) return no_memory();
        for (size_t i = 0; i < first->count; i++) {
            int n = 0;
            if (column == CURVE_LOSS && i % 5) continue; /* it is logged more often than can be seen */
            for (int d = 0; d < c->seeds; d++) {
                const run_curve *r = &c->curve[m][d];
                if (i < r->count && r->column[CURVE_STEP][i] == first->column[CURVE_STEP][i] &&
                    isfinite(r->column[column][i]))
                    values[n++] = r->column[column][i];
            }
            if (n && put_mean(v, first->column[CURVE_STEP][i], values, n, &err)) return cli_fail(&err);
        }
    }
    return CLI_OK;
}

static int write_figure(const pal_figure *figure, const char *path) {
    pal_error err;
    const size_t length = strlen(path);
    const char *ending = length > 4 ? path + length - 4 : "";
    if (strcmp(ending, ".svg") != 0 && strcmp(ending, ".png") != 0)
        return cli_error(CLI_USAGE, "%s: expected a name that ends in .svg or .png", path);
    if (strcmp(ending, ".svg") == 0 ? pal_figure_write_svg(figure, path, &err)
                                    : pal_figure_write_png(figure, 2, path, &err))
        return cli_fail_writing(&err);
    printf("wrote %s\n", path);
    return CLI_OK;
}

int compare_draw(const comparison *c, const contrast *contrasts, int count, const char *kind, double level,
                 const char *title, const char *path) {
    static const struct {
        curve_column column;
        const char *title, *label;
        bool log;
    } shown[] = { { CURVE_WINDOW, "Memory window", "mean window Nₜ (tokens)", true },
                  { CURVE_RATIO, "Metaplasticity ratio", "(Imax − Imin) / Imin", true },
                  { CURVE_LOSS, "Training loss", "loss (nats)", false } };
    char share[80];
    canvas *v = pal_alloc(1, sizeof *v);
    pal_panel panels[3] = { { .kind = PAL_PANEL_LINES } };
    pal_figure figure = {
        .title = title, .panels = panels, .panel_count = 1, .columns = 1, .width = 760, .height = 420
    };
    int code;
    if (!v) return no_memory();
    panels[0].x = (pal_axis){ .label = "tokens of an example", .log = true, .whole = true };
    if (strcmp(kind, "length") == 0) {
        code = draw_length(v, c);
        panels[0].y = c->column ? (pal_axis){ .label = c->column }
                                : (pal_axis){ .label = "test accuracy", .fixed = true, .min = 0, .max = 1 };
    } else if (strcmp(kind, "differences") == 0) {
        code = draw_differences(v, c, contrasts, count);
        snprintf(share, sizeof share, "difference of %s", c->column ? c->column : "test accuracy");
        panels[0].y.label = share;
    } else if (strcmp(kind, "survival") != 0 && strcmp(kind, "dynamics") != 0) {
        code = cli_error(CLI_USAGE, "--figure '%s': expected length, differences, survival or dynamics", kind);
    } else if (!c->curves) {
        code = cli_error(CLI_USAGE, "%s: --figure %s needs its curves, and there are none", c->folder, kind);
    } else if (strcmp(kind, "survival") == 0) {
        code = draw_survival(v, c, level);
        snprintf(share, sizeof share, "share of runs past %g%% training accuracy", 100 * level);
        panels[0].x = (pal_axis){ .label = "update" };
        panels[0].y = (pal_axis){ .label = share, .fixed = true, .min = 0, .max = 1 };
    } else {
        code = CLI_OK;
        figure.panel_count = 3, figure.share_x = true, figure.height = 760;
        for (int i = 0; i < 3 && !code; i++) {
            const size_t before = v->count;
            code = draw_column(v, c, shown[i].column);
            panels[i] = (pal_panel){ .kind = PAL_PANEL_LINES,
                                     .title = shown[i].title,
                                     .x = { .label = "update" },
                                     .y = { .label = shown[i].label, .log = shown[i].log },
                                     .lines = { v->series + before, v->count - before } };
        }
    }
    if (!panels[0].lines.series) panels[0].lines = (pal_lines){ .series = v->series, .series_count = v->count };
    if (!code) code = write_figure(&figure, path);
    for (size_t i = 0; i < v->count; i++) pal_free(v->numbers[i]);
    pal_free(v);
    return code;
}
