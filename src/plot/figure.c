/* SPDX-License-Identifier: MIT */
/* Layout and drawing of figures. All plots of a figure get the same size and stand on common lines: margins are the widest
 * that a column or row needs. Heights are settled first (they depend on fonts alone), then y ticks and with them the left
 * margins, then x ticks. */
#include "plot/figure.h"

#include <cairo.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "plot/draw.h"
#include "plot/ticks.h"

static const pal_font font_title = { 15, true }, font_panel = { 12, true }, font_label = { 11, false }, font_tick = { 10, false },
                      font_legend = { 11, false }, font_mark = { 9, false };

enum { OUTER = 16, GAP_X = 22, GAP_Y = 14, LEGEND_ROW = 19, LEGEND_GAP = 20, SWATCH = 24, SCALE_BAR = 12 };
static const double line_width = 1.7;

typedef struct {
    double lo, hi; /* hi < lo when the axis runs backwards, as the rows of a heat map */
    bool log;
    pal_ticks ticks;
} axis;

typedef struct {
    const pal_panel *panel;
    int row, column;
    double left, top, width, height; /* of the plot itself */
    axis x, y;
    axis scale; /* of a heat map's colours */
    double margin_left; /* the column's: labels of the y axes stand on one line */
    bool empty;         /* nothing to show */
    bool x_labels;
} frame;

typedef struct {
    const char *label;
    int colour;
    bool dashed, points, line, box;
    double x, y; /* of the swatch's left end and the text's baseline, relative to the legend */
    double text_width;
} legend_entry;

typedef struct {
    cairo_t *cr;
    const pal_theme_colours *theme;
    const pal_figure *figure;
    int rows, columns;
    frame *frames;
    legend_entry *legend;
    size_t legend_count;
    double width, height, header, legend_top, legend_height;
} canvas;

static bool usable(double v, bool log) { return fabs(v) < PAL_PLOT_HUGE && (!log || v >= 1 / PAL_PLOT_HUGE); }

static uint32_t series_colour(const canvas *c, int colour) {
    return c->theme->series[((colour % PAL_COLOURS) + PAL_COLOURS) % PAL_COLOURS];
}

static void extend(double *lo, double *hi, double v, bool log) {
    if (!usable(v, log)) return;
    *lo = fmin(*lo, v);
    *hi = fmax(*hi, v);
}

/* Room around the data, but not across zero: a loss has no business below it. */
static void pad(double *lo, double *hi, bool log_axis, double share) {
    if (log_axis) {
        const double factor = exp(share * (log(*hi) - log(*lo)));
        *lo = fmax(*lo / factor, 1 / PAL_PLOT_HUGE);
        *hi = fmin(*hi * factor, PAL_PLOT_HUGE);
        return;
    }
    const double room = (*hi - *lo) * share;
    const bool positive = *lo >= 0, negative = *hi <= 0;
    *lo = positive && *lo < room * 4 ? 0 : *lo - room;
    *hi = negative && -*hi < room * 4 ? 0 : *hi + room;
}

/* Returns false when nothing usable was found; the axis then shows 0 .. 1. */
static bool settle(axis *a, const pal_axis *want, double lo, double hi, double padding) {
    const bool found = lo <= hi;
    a->log = want->log;
    if (!found) lo = want->log ? 0.1 : 0, hi = 1, padding = 0;
    if (want->fixed && usable(want->min, want->log) && usable(want->max, want->log) && want->min < want->max) lo = want->min, hi = want->max, padding = 0;
    const bool single = lo == hi;
    pal_range_widen(&lo, &hi, want->log);
    if (!single && padding > 0) pad(&lo, &hi, want->log, padding);
    a->lo = lo;
    a->hi = hi;
    return found;
}

static void range_of_lines(frame *f) {
    const pal_panel *p = f->panel;
    double xlo = INFINITY, xhi = -INFINITY, ylo = INFINITY, yhi = -INFINITY;
    for (size_t s = 0; s < p->lines.series_count; s++) {
        const pal_series *series = &p->lines.series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!usable(series->x[i], p->x.log) || !usable(series->y[i], p->y.log)) continue;
            extend(&xlo, &xhi, series->x[i], p->x.log);
            extend(&ylo, &yhi, series->y[i], p->y.log);
            if (!series->low || !series->high) continue;
            extend(&ylo, &yhi, series->high[i], p->y.log);
            /* A mean minus a deviation can be a sliver above zero: it must not stretch a log axis. */
            if (!p->y.log) extend(&ylo, &yhi, series->low[i], false);
        }
    }
    if (xlo <= xhi)
        for (size_t m = 0; m < p->lines.mark_count; m++) extend(&xlo, &xhi, p->lines.marks[m].x, p->x.log);
    if (!p->x.log && xlo > 0 && xlo < 0.06 * xhi) xlo = 0; /* training starts at step 0 even if the first is not logged */
    f->empty = !settle(&f->x, &p->x, xlo, xhi, 0);
    settle(&f->y, &p->y, ylo, yhi, 0.05);
}

static void range_of_bars(frame *f) {
    const pal_panel *p = f->panel;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < p->bars.group_count * p->bars.name_count; i++) {
        const pal_bar *bar = &p->bars.bars[i];
        if (!usable(bar->value, p->y.log)) continue;
        extend(&lo, &hi, bar->value, p->y.log);
        extend(&lo, &hi, bar->value - bar->error, p->y.log);
        extend(&lo, &hi, bar->value + bar->error, p->y.log);
        for (size_t d = 0; d < bar->dot_count; d++) extend(&lo, &hi, bar->dots[d], p->y.log);
    }
    if (lo <= hi && !p->y.log) extend(&lo, &hi, 0, false);
    f->empty = !settle(&f->y, &p->y, lo, hi, 0.05);
    if (!p->y.fixed && !p->y.log && lo == 0) f->y.lo = 0; /* bars stand on their axis */
    f->x = (axis){ .lo = 0, .hi = (double)(p->bars.group_count ? p->bars.group_count : 1) };
}

static void range_of_heat(frame *f) {
    const pal_panel *p = f->panel;
    const pal_heat *h = &p->heat;
    double lo = INFINITY, hi = -INFINITY;
    const size_t n = h->rows > 0 && h->columns > 0 ? (size_t)h->rows * (size_t)h->columns : 0;
    for (size_t i = 0; i < n; i++) extend(&lo, &hi, h->values[i], h->log);
    const pal_axis want = { .log = h->log, .fixed = h->fixed, .min = h->min, .max = h->max };
    f->empty = !settle(&f->scale, &want, lo, hi, 0);
    f->x = (axis){ .lo = p->x.fixed ? p->x.min : -0.5, .hi = p->x.fixed ? p->x.max : (h->columns > 0 ? h->columns : 1) - 0.5 };
    f->y = (axis){ .lo = p->y.fixed ? p->y.max : (h->rows > 0 ? h->rows : 1) - 0.5, .hi = p->y.fixed ? p->y.min : -0.5 };
}

static bool shares(const frame *a, const frame *b) {
    return a->column == b->column && a->panel->kind == PAL_PANEL_LINES && b->panel->kind == PAL_PANEL_LINES && a->x.log == b->x.log;
}

static void share_ranges(canvas *c) {
    for (int i = 0; i < c->figure->panel_count; i++) {
        double lo = INFINITY, hi = -INFINITY;
        for (int j = 0; j < c->figure->panel_count; j++)
            if (shares(&c->frames[i], &c->frames[j]) && !c->frames[j].empty) lo = fmin(lo, c->frames[j].x.lo), hi = fmax(hi, c->frames[j].x.hi);
        for (int j = 0; j < c->figure->panel_count && lo < hi; j++)
            if (shares(&c->frames[i], &c->frames[j])) c->frames[j].x.lo = lo, c->frames[j].x.hi = hi;
    }
}

/* Where v lands, from 0 at the axis's lo to 1 at its hi. */
static double place(const axis *a, double v) {
    return a->log ? (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo)) : (v - a->lo) / (a->hi - a->lo);
}
/* cairo's coordinates are 24-bit fixed point; what lies far outside is clipped anyway. */
static double clamp_pixel(double p) { return fmin(fmax(p, -30000), 60000); }
static double to_x(const frame *f, double v) { return clamp_pixel(f->left + place(&f->x, v) * f->width); }
static double to_y(const frame *f, double v) { return clamp_pixel(f->top + (1 - place(&f->y, v)) * f->height); }

static void choose_ticks(axis *a, int wanted, bool whole) {
    const double lo = fmin(a->lo, a->hi), hi = fmax(a->lo, a->hi);
    if (a->log) pal_ticks_log(&a->ticks, lo, hi, wanted);
    else pal_ticks_linear(&a->ticks, lo, hi, wanted);
    if (!whole) return;
    int kept = 0;
    for (int i = 0; i < a->ticks.count; i++)
        if (a->ticks.at[i] == round(a->ticks.at[i])) {
            char text[PAL_TICK_TEXT];
            a->ticks.at[kept] = a->ticks.at[i];
            snprintf(text, sizeof text, "%.0f", a->ticks.at[i]);
            memcpy(a->ticks.text[kept++], text, sizeof text);
        }
    a->ticks.count = kept;
}

static double widest_tick(const canvas *c, const axis *a) {
    double widest = 0;
    for (int i = 0; i < a->ticks.count; i++) widest = fmax(widest, pal_text_width(c->cr, font_tick, a->ticks.text[i]));
    return widest;
}

static bool x_ticks_fit(const canvas *c, const frame *f) {
    double end = -INFINITY;
    for (int i = 0; i < f->x.ticks.count; i++) {
        const double half = pal_text_width(c->cr, font_tick, f->x.ticks.text[i]) / 2, at = place(&f->x, f->x.ticks.at[i]) * f->width;
        if (at - half < end + 12) return false;
        end = at + half;
    }
    return true;
}

static bool has_whole_cells(const frame *f, const pal_axis *a) { return f->panel->kind == PAL_PANEL_HEAT && !a->fixed; }

static void choose_x_ticks(const canvas *c, frame *f) {
    if (f->panel->kind == PAL_PANEL_BARS) return;
    for (int wanted = (int)fmin(fmax(f->width / 62, 2), 12); wanted >= 2; wanted--) {
        choose_ticks(&f->x, wanted, has_whole_cells(f, &f->panel->x));
        if (x_ticks_fit(c, f)) return;
    }
}

static double margin_top(const frame *f) { return f->panel->title ? font_panel.size + 10 : 4; }
static double margin_bottom(const frame *f) {
    if (!f->x_labels) return 4;
    const bool names = f->panel->kind == PAL_PANEL_BARS;
    return 6 + (names ? font_label.size + 2 : font_tick.size) + 3 + (f->panel->x.label ? font_label.size + 7 : 0);
}
static double margin_left(const canvas *c, const frame *f) {
    return widest_tick(c, &f->y) + 8 + (f->panel->y.label ? font_label.size + 8 : 0);
}
static double margin_right(const canvas *c, const frame *f) {
    if (f->panel->kind != PAL_PANEL_HEAT) return 6;
    return 10 + SCALE_BAR + 6 + widest_tick(c, &f->scale) + (f->panel->heat.label ? font_label.size + 8 : 0);
}

static void add_legend(canvas *c, legend_entry entry) {
    if (!entry.label) return;
    for (size_t i = 0; i < c->legend_count; i++) {
        const legend_entry *e = &c->legend[i];
        if (strcmp(e->label, entry.label) == 0 && e->colour == entry.colour && e->dashed == entry.dashed && e->box == entry.box) return;
    }
    c->legend[c->legend_count++] = entry;
}

static pal_status make_legend(canvas *c, pal_error *err) {
    size_t most = 1;
    for (int i = 0; i < c->figure->panel_count; i++) {
        const pal_panel *p = &c->figure->panels[i];
        most += p->kind == PAL_PANEL_LINES ? p->lines.series_count : p->kind == PAL_PANEL_BARS ? p->bars.name_count : 0;
    }
    const pal_status st = pal_alloc_named((void **)&c->legend, most, sizeof *c->legend, "a figure's legend", err);
    if (st) return st;
    for (int i = 0; i < c->figure->panel_count; i++) {
        const pal_panel *p = &c->figure->panels[i];
        for (size_t s = 0; p->kind == PAL_PANEL_LINES && s < p->lines.series_count; s++) {
            const pal_series *series = &p->lines.series[s];
            add_legend(c, (legend_entry){ .label = series->label, .colour = series->colour, .dashed = series->dashed,
                                          .points = series->points, .line = !series->bare });
        }
        for (size_t s = 0; p->kind == PAL_PANEL_BARS && s < p->bars.name_count; s++)
            add_legend(c, (legend_entry){ .label = p->bars.names[s], .colour = p->bars.colours ? p->bars.colours[s] : (int)s, .box = true });
    }
    const double room = c->width - 2 * OUTER;
    double x = 0;
    int row = 0;
    for (size_t i = 0; i < c->legend_count; i++) {
        legend_entry *e = &c->legend[i];
        const double swatch = e->box ? 12 : SWATCH;
        e->text_width = fmin(pal_text_width(c->cr, font_legend, e->label), room - swatch - 6);
        if (x > 0 && x + swatch + 6 + e->text_width > room) x = 0, row++;
        e->x = x;
        e->y = row * LEGEND_ROW + font_legend.size;
        x += swatch + 6 + e->text_width + LEGEND_GAP;
    }
    c->legend_height = c->legend_count ? (row + 1) * LEGEND_ROW + 6 : 0;
    return PAL_OK;
}

static void lay_out(canvas *c) {
    const pal_figure *figure = c->figure;
    c->header = OUTER + (figure->title ? font_title.size + 12 : 0);
    c->legend_top = c->header;
    c->header += c->legend_height;

    for (int i = 0; i < figure->panel_count; i++) {
        frame *f = &c->frames[i];
        f->panel = &figure->panels[i];
        f->row = i / c->columns;
        f->column = i % c->columns;
        f->x_labels = !figure->share_x || i + c->columns >= figure->panel_count;
        if (f->panel->kind == PAL_PANEL_LINES) range_of_lines(f);
        else if (f->panel->kind == PAL_PANEL_BARS) range_of_bars(f);
        else range_of_heat(f);
    }
    if (figure->share_x) share_ranges(c);

    double used = c->header + OUTER + (c->rows - 1) * GAP_Y;
    for (int row = 0; row < c->rows; row++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row) top = fmax(top, margin_top(&c->frames[i])), bottom = fmax(bottom, margin_bottom(&c->frames[i]));
        used += top + bottom;
    }
    const double height = fmax((c->height - used) / c->rows, 10);
    double y = c->header;
    for (int row = 0; row < c->rows; row++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row) top = fmax(top, margin_top(&c->frames[i])), bottom = fmax(bottom, margin_bottom(&c->frames[i]));
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row) c->frames[i].top = y + top, c->frames[i].height = height;
        y += top + height + bottom + GAP_Y;
    }

    const int wanted = (int)fmin(fmax(height / 32, 2), 9);
    for (int i = 0; i < figure->panel_count; i++) {
        frame *f = &c->frames[i];
        choose_ticks(&f->y, wanted, has_whole_cells(f, &f->panel->y));
        if (f->panel->kind == PAL_PANEL_HEAT) choose_ticks(&f->scale, wanted, false);
    }
    /* x ticks need the width, and the width depends on how far the last x tick's text sticks out: two rounds settle it. */
    double overhang = 0;
    for (int round = 0; round < 2; round++) {
        double left[64] = { 0 }, right[64] = { 0 };
        used = 2.0 * OUTER + (c->columns - 1) * GAP_X;
        for (int i = 0; i < figure->panel_count; i++) {
            const int column = c->frames[i].column;
            left[column] = fmax(left[column], margin_left(c, &c->frames[i]));
            right[column] = fmax(fmax(right[column], margin_right(c, &c->frames[i])), overhang);
        }
        for (int column = 0; column < c->columns; column++) used += left[column] + right[column];
        const double width = fmax((c->width - used) / c->columns, 10);
        for (int i = 0; i < figure->panel_count; i++) {
            frame *f = &c->frames[i];
            f->left = OUTER + left[f->column] + f->column * (width + GAP_X);
            for (int column = 0; column < f->column; column++) f->left += left[column] + right[column];
            f->width = width;
            f->margin_left = left[f->column];
            choose_x_ticks(c, f);
            if (f->x.ticks.count && f->x_labels) {
                const int last = f->x.ticks.count - 1;
                const double half = pal_text_width(c->cr, font_tick, f->x.ticks.text[last]) / 2;
                overhang = fmax(overhang, place(&f->x, f->x.ticks.at[last]) * width + half - width - OUTER + 4);
            }
        }
    }
}

static void hline(cairo_t *cr, double x0, double x1, double y) {
    cairo_move_to(cr, x0, y);
    cairo_line_to(cr, x1, y);
    cairo_stroke(cr);
}
static void vline(cairo_t *cr, double x, double y0, double y1) {
    cairo_move_to(cr, x, y0);
    cairo_line_to(cr, x, y1);
    cairo_stroke(cr);
}

static void rotated_label(const canvas *c, double x, double y, double room, const char *label) {
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    cairo_rotate(c->cr, -1.5707963267948966);
    pal_text_draw(c->cr, font_label, c->theme->ink, PAL_ALIGN_CENTRE, 0, 0, room, label);
    cairo_restore(c->cr);
}

static void draw_axes(const canvas *c, const frame *f) {
    cairo_t *cr = c->cr;
    const pal_panel *p = f->panel;
    const double bottom = f->top + f->height, right = f->left + f->width;
    const bool grid = p->kind != PAL_PANEL_HEAT;
    cairo_set_line_width(cr, 0.8);
    cairo_set_line_cap(cr, CAIRO_LINE_CAP_BUTT);
    for (int i = 0; i < f->y.ticks.count; i++) {
        const double y = to_y(f, f->y.ticks.at[i]);
        pal_set_colour(cr, c->theme->grid, 1);
        if (grid) hline(cr, f->left, right, y);
        pal_text_draw(cr, font_tick, c->theme->muted, PAL_ALIGN_RIGHT, f->left - 7, y + font_tick.size * 0.36, 0, f->y.ticks.text[i]);
        pal_set_colour(cr, c->theme->muted, 1);
        hline(cr, f->left - 4, f->left, y);
    }
    for (int i = 0; i < f->y.ticks.minor_count; i++) {
        pal_set_colour(cr, c->theme->muted, 0.7);
        hline(cr, f->left - 2.5, f->left, to_y(f, f->y.ticks.minor[i]));
    }
    for (int i = 0; i < f->x.ticks.count; i++) {
        const double x = to_x(f, f->x.ticks.at[i]);
        pal_set_colour(cr, c->theme->grid, 1);
        if (grid) vline(cr, x, f->top, bottom);
        pal_set_colour(cr, c->theme->muted, 1);
        vline(cr, x, bottom, bottom + 4);
        if (f->x_labels) pal_text_draw(cr, font_tick, c->theme->muted, PAL_ALIGN_CENTRE, x, bottom + 7 + font_tick.size, 0, f->x.ticks.text[i]);
    }
    for (int i = 0; i < f->x.ticks.minor_count; i++) {
        pal_set_colour(cr, c->theme->muted, 0.7);
        vline(cr, to_x(f, f->x.ticks.minor[i]), bottom, bottom + 2.5);
    }
    pal_set_colour(cr, c->theme->muted, 1);
    cairo_set_line_width(cr, 1);
    cairo_move_to(cr, f->left, f->top);
    cairo_line_to(cr, f->left, bottom);
    cairo_line_to(cr, right, bottom);
    cairo_stroke(cr);

    if (p->title) pal_text_draw(cr, font_panel, c->theme->ink, PAL_ALIGN_LEFT, f->left, f->top - 9, f->width, p->title);
    if (p->y.label) rotated_label(c, f->left - f->margin_left + font_label.size, f->top + f->height / 2, f->height + 2 * GAP_Y, p->y.label);
    if (p->x.label && f->x_labels)
        pal_text_draw(cr, font_label, c->theme->ink, PAL_ALIGN_CENTRE, f->left + f->width / 2, f->top + f->height + margin_bottom(f) - 3,
                      f->width + 2 * GAP_X, p->x.label);
}

/* A polyline that draws at most four points per pixel column, so that long runs make small files and look the same. */
typedef struct {
    cairo_t *cr;
    bool drawing;
    int points; /* waiting, all in one pixel column */
    double column, first_x, first, last_x, last, lowest, highest;
} pen;

static void pen_flush(pen *p) {
    if (p->points == 0) return;
    if (p->drawing) cairo_line_to(p->cr, p->first_x, p->first);
    else cairo_move_to(p->cr, p->first_x, p->first);
    if (p->points > 2) {
        cairo_line_to(p->cr, p->column + 0.5, p->lowest);
        cairo_line_to(p->cr, p->column + 0.5, p->highest);
    }
    if (p->points > 1) cairo_line_to(p->cr, p->last_x, p->last);
    p->drawing = true;
    p->points = 0;
}

static void pen_to(pen *p, double x, double y) {
    if (p->points && floor(x) != p->column) pen_flush(p);
    if (p->points == 0) *p = (pen){ p->cr, p->drawing, 0, floor(x), x, y, x, y, y, y };
    p->lowest = fmin(p->lowest, y);
    p->highest = fmax(p->highest, y);
    p->last_x = x;
    p->last = y;
    p->points++;
}

static void pen_up(pen *p) {
    pen_flush(p);
    p->drawing = false;
}

static bool shown(const frame *f, const pal_series *s, size_t i) { return usable(s->x[i], f->x.log) && usable(s->y[i], f->y.log); }
static bool banded(const frame *f, const pal_series *s, size_t i) {
    return shown(f, s, i) && fabs(s->low[i]) < PAL_PLOT_HUGE && usable(s->high[i], f->y.log);
}

static void draw_band(const canvas *c, const frame *f, const pal_series *s) {
    for (size_t begin = 0; begin < s->count;) {
        if (!banded(f, s, begin)) {
            begin++;
            continue;
        }
        size_t end = begin;
        pen p = { .cr = c->cr };
        while (end < s->count && banded(f, s, end)) pen_to(&p, to_x(f, s->x[end]), to_y(f, s->high[end])), end++;
        pen_flush(&p); /* still drawing: the way back closes the shape */
        for (size_t i = end; i-- > begin;) {
            /* On a log axis a mean minus a deviation may reach below zero: the band then runs out at the bottom. */
            const double low = f->y.log && s->low[i] < f->y.lo ? f->y.lo : s->low[i];
            pen_to(&p, to_x(f, s->x[i]), to_y(f, low));
        }
        pen_up(&p);
        cairo_close_path(c->cr);
        pal_set_colour(c->cr, series_colour(c, s->colour), 0.2);
        cairo_fill(c->cr);
        begin = end;
    }
}

static void set_dashes(cairo_t *cr, int colour, bool dashed) {
    static const double patterns[][4] = { { 5, 3.5, 5, 3.5 }, { 1.5, 2.5, 1.5, 2.5 }, { 7, 2.5, 1.5, 2.5 } };
    const int round = colour >= 0 ? colour / PAL_COLOURS : 0;
    if (dashed) cairo_set_dash(cr, patterns[0], 4, 0);
    else if (round > 0) cairo_set_dash(cr, patterns[1 + (round - 1) % 2], 4, 0);
    else cairo_set_dash(cr, NULL, 0, 0);
    cairo_set_line_cap(cr, dashed || round > 0 ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
}

static void dot(const canvas *c, double x, double y, double radius) {
    cairo_arc(c->cr, x, y, radius, 0, 6.283185307179586);
    cairo_fill(c->cr);
}

static void draw_series(const canvas *c, const frame *f, const pal_series *s) {
    cairo_t *cr = c->cr;
    pal_set_colour(cr, series_colour(c, s->colour), 1);
    cairo_set_line_width(cr, line_width);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    set_dashes(cr, s->colour, s->dashed);
    pen p = { .cr = cr };
    for (size_t i = 0; i < s->count && !s->bare; i++)
        if (shown(f, s, i)) pen_to(&p, to_x(f, s->x[i]), to_y(f, s->y[i]));
        else pen_up(&p);
    pen_up(&p);
    cairo_stroke(cr);
    for (size_t i = 0; i < s->count; i++) {
        if (!shown(f, s, i)) continue;
        const bool alone = (i == 0 || !shown(f, s, i - 1)) && (i + 1 == s->count || !shown(f, s, i + 1));
        if (s->points || s->bare || alone) dot(c, to_x(f, s->x[i]), to_y(f, s->y[i]), 2.6);
    }
}

static void draw_marks(const canvas *c, const frame *f) {
    const pal_lines *lines = &f->panel->lines;
    static const double dashes[] = { 3, 3 };
    for (size_t m = 0; m < lines->mark_count; m++) {
        const pal_mark *mark = &lines->marks[m];
        if (!usable(mark->x, f->x.log)) continue;
        const double x = to_x(f, mark->x);
        if (x < f->left - 0.5 || x > f->left + f->width + 0.5) continue;
        pal_set_colour(c->cr, c->theme->muted, 0.9);
        cairo_set_line_width(c->cr, 1);
        cairo_set_line_cap(c->cr, CAIRO_LINE_CAP_BUTT);
        cairo_set_dash(c->cr, dashes, 2, 0);
        vline(c->cr, x, f->top, f->top + f->height);
        cairo_set_dash(c->cr, NULL, 0, 0);
        if (!mark->label) continue;
        double room = f->left + f->width - x;
        for (size_t other = 0; other < lines->mark_count; other++)
            if (usable(lines->marks[other].x, f->x.log) && to_x(f, lines->marks[other].x) > x) room = fmin(room, to_x(f, lines->marks[other].x) - x);
        if (room > 24) pal_text_draw(c->cr, font_mark, c->theme->muted, PAL_ALIGN_LEFT, x + 4, f->top + font_mark.size, room - 6, mark->label);
    }
}

static void draw_lines(const canvas *c, const frame *f) {
    const pal_lines *lines = &f->panel->lines;
    cairo_save(c->cr);
    cairo_rectangle(c->cr, f->left - 3, f->top - 3, f->width + 6, f->height + 6);
    cairo_clip(c->cr);
    draw_marks(c, f);
    for (size_t s = 0; s < lines->series_count; s++)
        if (lines->series[s].low && lines->series[s].high) draw_band(c, f, &lines->series[s]);
    for (size_t s = 0; s < lines->series_count; s++) draw_series(c, f, &lines->series[s]);
    cairo_restore(c->cr);
}

static void draw_bars(const canvas *c, const frame *f) {
    cairo_t *cr = c->cr;
    const pal_bars *bars = &f->panel->bars;
    const double pitch = f->width / (double)(bars->group_count ? bars->group_count : 1);
    const double slot = pitch * 0.8 / (double)(bars->name_count ? bars->name_count : 1), bar_width = fmin(slot * 0.86, 64);
    const double base = to_y(f, f->y.log ? f->y.lo : fmin(fmax(0, f->y.lo), f->y.hi)), bottom = f->top + f->height;
    cairo_save(cr);
    cairo_rectangle(cr, f->left - 3, f->top - 3, f->width + 6, f->height + 3.5);
    cairo_clip(cr);
    for (size_t i = 0; i < bars->group_count * bars->name_count; i++) {
        const pal_bar *bar = &bars->bars[i];
        if (!usable(bar->value, f->y.log)) continue;
        const size_t group = i / bars->name_count, name = i % bars->name_count;
        const double middle = f->left + pitch * ((double)group + 0.1) + slot * ((double)name + 0.5), top = to_y(f, bar->value);
        pal_set_colour(cr, series_colour(c, bars->colours ? bars->colours[name] : (int)name), 0.88);
        cairo_rectangle(cr, middle - bar_width / 2, fmin(top, base), bar_width, fabs(base - top));
        cairo_fill(cr);
        if (bar->error > 0 && bar->error < PAL_PLOT_HUGE) {
            const double low = bar->value - bar->error, cap = fmin(bar_width * 0.28, 6);
            const double y0 = usable(low, f->y.log) ? to_y(f, low) : bottom, y1 = to_y(f, bar->value + bar->error);
            pal_set_colour(cr, c->theme->ink, 1);
            cairo_set_line_width(cr, 1.2);
            vline(cr, middle, y0, y1);
            hline(cr, middle - cap, middle + cap, y0);
            hline(cr, middle - cap, middle + cap, y1);
        }
        for (size_t d = 0; d < bar->dot_count; d++) {
            if (!usable(bar->dots[d], f->y.log)) continue;
            const double spread = bar->dot_count > 1 ? ((double)d / (double)(bar->dot_count - 1) - 0.5) * bar_width * 0.55 : 0;
            const double x = middle + spread, y = to_y(f, bar->dots[d]);
            pal_set_colour(cr, c->theme->background, 0.9);
            dot(c, x, y, 2.9);
            pal_set_colour(cr, c->theme->ink, 1);
            dot(c, x, y, 2.0);
        }
    }
    cairo_restore(cr);
    for (size_t g = 0; g < bars->group_count; g++)
        pal_text_draw(cr, font_label, c->theme->ink, PAL_ALIGN_CENTRE, f->left + pitch * ((double)g + 0.5), bottom + 8 + font_label.size, pitch - 4,
                      bars->groups[g]);
}

/* Cells become an image whose pixels are a whole number per cell, so that viewers that smooth images blur edges only. */
static void draw_cells(const canvas *c, const frame *f) {
    const pal_heat *h = &f->panel->heat;
    const int zoom_x = (int)fmax(1, fmin(64, floor(2 * f->width / h->columns))), zoom_y = (int)fmax(1, fmin(64, floor(2 * f->height / h->rows)));
    if ((double)h->columns * zoom_x > 16384 || (double)h->rows * zoom_y > 16384) {
        pal_text_draw(c->cr, font_label, c->theme->muted, PAL_ALIGN_CENTRE, f->left + f->width / 2, f->top + f->height / 2, f->width, "too many cells to draw");
        return;
    }
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, h->columns * zoom_x, h->rows * zoom_y);
    if (cairo_surface_status(image) == CAIRO_STATUS_SUCCESS) {
        unsigned char *data = cairo_image_surface_get_data(image);
        const int stride = cairo_image_surface_get_stride(image);
        for (int r = 0; r < h->rows * zoom_y; r++)
            for (int q = 0; q < h->columns * zoom_x; q++) {
                const double v = h->values[(size_t)(r / zoom_y) * (size_t)h->columns + (size_t)(q / zoom_x)];
                const uint32_t colour = usable(v, h->log) ? pal_heat_colour(place(&f->scale, v)) : c->theme->grid;
                memcpy(data + (size_t)r * (size_t)stride + 4 * (size_t)q, &colour, sizeof colour);
            }
        cairo_surface_mark_dirty(image);
        cairo_save(c->cr);
        cairo_translate(c->cr, f->left, f->top);
        cairo_scale(c->cr, f->width / (h->columns * zoom_x), f->height / (h->rows * zoom_y));
        cairo_set_source_surface(c->cr, image, 0, 0);
        cairo_pattern_set_filter(cairo_get_source(c->cr), CAIRO_FILTER_GOOD);
        cairo_pattern_set_extend(cairo_get_source(c->cr), CAIRO_EXTEND_PAD);
        cairo_rectangle(c->cr, 0, 0, h->columns * zoom_x, h->rows * zoom_y);
        cairo_fill(c->cr);
        cairo_restore(c->cr);
    }
    cairo_surface_destroy(image);
}

static void draw_scale(const canvas *c, const frame *f) {
    cairo_t *cr = c->cr;
    const double x = f->left + f->width + 10;
    cairo_pattern_t *shades = cairo_pattern_create_linear(0, f->top + f->height, 0, f->top);
    for (int i = 0; i <= 24; i++) {
        const uint32_t colour = pal_heat_colour(i / 24.0);
        cairo_pattern_add_color_stop_rgb(shades, i / 24.0, (colour >> 16) / 255.0, (colour >> 8 & 255) / 255.0, (colour & 255) / 255.0);
    }
    cairo_set_source(cr, shades);
    cairo_rectangle(cr, x, f->top, SCALE_BAR, f->height);
    cairo_fill(cr);
    cairo_pattern_destroy(shades);
    cairo_set_line_width(cr, 1);
    for (int i = 0; i < f->scale.ticks.count; i++) {
        const double y = f->top + (1 - place(&f->scale, f->scale.ticks.at[i])) * f->height;
        pal_set_colour(cr, c->theme->muted, 1);
        hline(cr, x + SCALE_BAR, x + SCALE_BAR + 3, y);
        pal_text_draw(cr, font_tick, c->theme->muted, PAL_ALIGN_LEFT, x + SCALE_BAR + 6, y + font_tick.size * 0.36, 0, f->scale.ticks.text[i]);
    }
    if (f->panel->heat.label)
        rotated_label(c, x + SCALE_BAR + 6 + widest_tick(c, &f->scale) + 6 + font_label.size, f->top + f->height / 2, f->height, f->panel->heat.label);
}

static void draw_legend(const canvas *c) {
    cairo_t *cr = c->cr;
    for (size_t i = 0; i < c->legend_count; i++) {
        const legend_entry *e = &c->legend[i];
        const double x = OUTER + e->x, baseline = c->legend_top + e->y, middle = baseline - font_legend.size * 0.36;
        pal_set_colour(cr, series_colour(c, e->colour), 1);
        if (e->box) {
            cairo_rectangle(cr, x, middle - 6, 12, 12);
            cairo_fill(cr);
        } else {
            cairo_set_line_width(cr, 2.2);
            set_dashes(cr, e->colour, e->dashed);
            if (e->line) hline(cr, x + 1, x + SWATCH - 1, middle);
            cairo_set_dash(cr, NULL, 0, 0);
            if (e->points || !e->line) dot(c, x + SWATCH / 2.0, middle, 3);
        }
        pal_text_draw(cr, font_legend, c->theme->ink, PAL_ALIGN_LEFT, x + (e->box ? 12 : SWATCH) + 6, baseline, e->text_width + 0.5, e->label);
    }
}

pal_status pal_figure_size(const pal_figure *f, int *width, int *height, pal_error *err) {
    if (f->panel_count < 1 || f->panel_count > 256) return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d panels, expected 1 to 256", f->panel_count);
    const int columns = f->columns < 1 ? 1 : f->columns > f->panel_count ? f->panel_count : f->columns;
    if (columns > 64) return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d columns, expected at most 64", columns);
    const int rows = (f->panel_count + columns - 1) / columns;
    *width = f->width ? f->width : columns == 1 ? 640 : 440 * columns;
    *height = f->height ? f->height : 60 + rows * (f->panel_count == 1 ? 360 : f->share_x ? 190 : 290);
    if (*width < PAL_FIGURE_MIN || *width > PAL_FIGURE_MAX || *height < PAL_FIGURE_MIN || *height > PAL_FIGURE_MAX)
        return pal_fail(err, PAL_E_ARGUMENT, "a figure of %d x %d pixels, expected %d to %d each way", *width, *height, PAL_FIGURE_MIN, PAL_FIGURE_MAX);
    return PAL_OK;
}

pal_status pal_figure_draw(const pal_figure *figure, cairo_surface_t *surface, double scale, pal_error *err) {
    int width, height;
    pal_status st = pal_figure_size(figure, &width, &height, err);
    if (st) return st;
    canvas c = { .figure = figure, .theme = pal_theme_of(figure->theme), .width = width, .height = height };
    c.columns = figure->columns < 1 ? 1 : figure->columns > figure->panel_count ? figure->panel_count : figure->columns;
    c.rows = (figure->panel_count + c.columns - 1) / c.columns;
    c.cr = cairo_create(surface);
    cairo_scale(c.cr, scale, scale);
    /* Unhinted text has the same widths in SVG and PNG, so both have one layout. */
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(c.cr, options);
    cairo_font_options_destroy(options);

    if ((st = pal_alloc_named((void **)&c.frames, (size_t)figure->panel_count, sizeof *c.frames, "a figure's panels", err))) goto done;
    if ((st = make_legend(&c, err))) goto done;
    lay_out(&c);
    pal_set_colour(c.cr, c.theme->background, 1);
    cairo_paint(c.cr);
    if (figure->title) pal_text_draw(c.cr, font_title, c.theme->ink, PAL_ALIGN_LEFT, OUTER, OUTER + font_title.size - 1, width - 2 * OUTER, figure->title);
    draw_legend(&c);
    for (int i = 0; i < figure->panel_count; i++) {
        const frame *f = &c.frames[i];
        const bool heat = f->panel->kind == PAL_PANEL_HEAT && !f->empty;
        if (heat) draw_cells(&c, f);
        draw_axes(&c, f);
        if (heat) draw_scale(&c, f);
        if (f->empty)
            pal_text_draw(c.cr, font_label, c.theme->muted, PAL_ALIGN_CENTRE, f->left + f->width / 2, f->top + f->height / 2 + 4, f->width, "no data");
        else if (f->panel->kind == PAL_PANEL_LINES) draw_lines(&c, f);
        else if (f->panel->kind == PAL_PANEL_BARS) draw_bars(&c, f);
    }
    cairo_show_page(c.cr);
    if (cairo_status(c.cr) != CAIRO_STATUS_SUCCESS)
        st = pal_fail(err, cairo_status(c.cr) == CAIRO_STATUS_NO_MEMORY ? PAL_E_MEMORY : PAL_E_IO, "a figure could not be drawn: %s",
                      cairo_status_to_string(cairo_status(c.cr)));
done:
    cairo_destroy(c.cr);
    pal_free(c.legend);
    pal_free(c.frames);
    return st;
}
