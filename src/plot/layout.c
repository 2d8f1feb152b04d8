/* SPDX-License-Identifier: MIT */
/* All plots of a figure get the same size and stand on common lines: margins are the widest that a column or row needs.
 * Heights are settled first (they depend on fonts alone), then y ticks and with them the left margins, then x ticks. */
#include "plot/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static void extend(double *lo, double *hi, double v, bool log) {
    if (!pal_plot_usable(v, log)) return;
    *lo = fmin(*lo, v);
    *hi = fmax(*hi, v);
}

bool pal_shifts_points(const pal_panel *p) {
    size_t with = 0;
    for (size_t i = 0; i < p->lines.series_count; i++) {
        const pal_series *s = &p->lines.series[i];
        with += s->points && s->low && s->high && s->count;
    }
    return with > 1;
}

/* Room around the data, but not across zero: losses do not lie below it. */
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
static bool settle(pal_frame_axis *a, const pal_axis *want, double lo, double hi, double padding) {
    const bool found = lo <= hi;
    a->log = want->log;
    if (!found) lo = want->log ? 0.1 : 0, hi = 1, padding = 0;
    if (want->fixed && pal_plot_usable(want->min, want->log) && pal_plot_usable(want->max, want->log) &&
        want->min < want->max)
        lo = want->min, hi = want->max, padding = 0;
    const bool single = lo == hi;
    pal_range_widen(&lo, &hi, want->log);
    if (!single && padding > 0) pad(&lo, &hi, want->log, padding);
    a->lo = lo;
    a->hi = hi;
    return found;
}

static void range_of_lines(pal_frame *f) {
    const pal_panel *p = f->panel;
    double xlo = INFINITY, xhi = -INFINITY, ylo = INFINITY, yhi = -INFINITY;
    for (size_t s = 0; s < p->lines.series_count; s++) {
        const pal_series *series = &p->lines.series[s];
        for (size_t i = 0; i < series->count; i++) {
            if (!pal_plot_usable(series->x[i], p->x.log) || !pal_plot_usable(series->y[i], p->y.log)) continue;
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
    if (!p->x.log && xlo > 0 && xlo < 0.06 * xhi)
        xlo = 0; /* training starts at step 0 even if the first is not logged */
    f->empty = !settle(&f->x, &p->x, xlo, xhi, 0);
    settle(&f->y, &p->y, ylo, yhi, 0.05);
}

static void range_of_bars(pal_frame *f) {
    const pal_panel *p = f->panel;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < p->bars.group_count * p->bars.name_count; i++) {
        const pal_bar *bar = &p->bars.bars[i];
        if (!pal_plot_usable(bar->value, p->y.log)) continue;
        extend(&lo, &hi, bar->value, p->y.log);
        extend(&lo, &hi, bar->value - bar->error, p->y.log);
        extend(&lo, &hi, bar->value + bar->error, p->y.log);
        for (size_t d = 0; d < bar->dot_count; d++) extend(&lo, &hi, bar->dots[d], p->y.log);
    }
    if (lo <= hi && !p->y.log) extend(&lo, &hi, 0, false);
    f->empty = !settle(&f->y, &p->y, lo, hi, 0.05);
    if (!p->y.fixed && !p->y.log && lo == 0) f->y.lo = 0; /* bars stand on their axis */
    f->x = (pal_frame_axis){ .lo = 0, .hi = (double)(p->bars.group_count ? p->bars.group_count : 1) };
}

static void range_of_heat(pal_frame *f) {
    const pal_panel *p = f->panel;
    const pal_heat *h = &p->heat;
    double lo = INFINITY, hi = -INFINITY;
    const size_t n = h->rows > 0 && h->columns > 0 ? (size_t)h->rows * (size_t)h->columns : 0;
    for (size_t i = 0; i < n; i++) extend(&lo, &hi, h->values[i], h->log);
    const pal_axis want = { .log = h->log, .fixed = h->fixed, .min = h->min, .max = h->max };
    f->empty = !settle(&f->scale, &want, lo, hi, 0);
    f->x = (pal_frame_axis){ .lo = p->x.fixed ? p->x.min : -0.5,
                             .hi = p->x.fixed ? p->x.max : (h->columns > 0 ? h->columns : 1) - 0.5 };
    f->y = (pal_frame_axis){ .lo = p->y.fixed ? p->y.max : (h->rows > 0 ? h->rows : 1) - 0.5,
                             .hi = p->y.fixed ? p->y.min : -0.5 };
}

static bool shares(const pal_frame *a, const pal_frame *b) {
    return a->column == b->column && a->panel->kind == PAL_PANEL_LINES && b->panel->kind == PAL_PANEL_LINES &&
           a->x.log == b->x.log;
}

static void share_ranges(pal_canvas *c) {
    for (int i = 0; i < c->figure->panel_count; i++) {
        double lo = INFINITY, hi = -INFINITY;
        for (int j = 0; j < c->figure->panel_count; j++)
            if (shares(&c->frames[i], &c->frames[j]) && !c->frames[j].empty)
                lo = fmin(lo, c->frames[j].x.lo), hi = fmax(hi, c->frames[j].x.hi);
        for (int j = 0; j < c->figure->panel_count && lo < hi; j++)
            if (shares(&c->frames[i], &c->frames[j])) c->frames[j].x.lo = lo, c->frames[j].x.hi = hi;
    }
}

static void choose_ticks(pal_frame_axis *a, int wanted, bool whole) {
    const double lo = fmin(a->lo, a->hi), hi = fmax(a->lo, a->hi);
    if (a->log && whole) {
        pal_ticks_doubling(&a->ticks, lo, hi, wanted);
        return;
    }
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

double pal_widest_tick(const pal_canvas *c, const pal_frame_axis *a) {
    double widest = 0;
    for (int i = 0; i < a->ticks.count; i++)
        widest = fmax(widest, pal_text_width(c->cr, PAL_FONT_TICK, a->ticks.text[i]));
    return widest;
}

static bool x_ticks_fit(const pal_canvas *c, const pal_frame *f) {
    double end = -INFINITY;
    for (int i = 0; i < f->x.ticks.count; i++) {
        const double half = pal_text_width(c->cr, PAL_FONT_TICK, f->x.ticks.text[i]) / 2,
                     at = pal_axis_place(&f->x, f->x.ticks.at[i]) * f->width;
        if (at - half < end + 12) return false;
        end = at + half;
    }
    return true;
}

static bool has_whole_ticks(const pal_frame *f, const pal_axis *a) {
    return a->whole || (f->panel->kind == PAL_PANEL_HEAT && !a->fixed);
}

static void choose_x_ticks(const pal_canvas *c, pal_frame *f) {
    if (f->panel->kind == PAL_PANEL_BARS) return;
    for (int wanted = (int)fmin(fmax(f->width / 62, 2), 12); wanted >= 2; wanted--) {
        choose_ticks(&f->x, wanted, has_whole_ticks(f, &f->panel->x));
        if (x_ticks_fit(c, f)) return;
    }
}

static double margin_top(const pal_frame *f) { return f->panel->title ? PAL_FONT_PANEL.size + 10 : 4; }
double pal_margin_bottom(const pal_frame *f) {
    if (!f->x_labels) return 4;
    const bool names = f->panel->kind == PAL_PANEL_BARS;
    return 6 + (names ? PAL_FONT_LABEL.size + 2 : PAL_FONT_TICK.size) + 3 +
           (f->panel->x.label ? PAL_FONT_LABEL.size + 7 : 0);
}
static double margin_left(const pal_canvas *c, const pal_frame *f) {
    return pal_widest_tick(c, &f->y) + 8 + (f->panel->y.label ? PAL_FONT_LABEL.size + 8 : 0);
}
static double margin_right(const pal_canvas *c, const pal_frame *f) {
    if (f->panel->kind != PAL_PANEL_HEAT) return 6;
    return 10 + PAL_SCALE_BAR + 6 + pal_widest_tick(c, &f->scale) +
           (f->panel->heat.label ? PAL_FONT_LABEL.size + 8 : 0);
}

static void add_legend(pal_canvas *c, pal_legend_entry entry) {
    if (!entry.label) return;
    for (size_t i = 0; i < c->legend_count; i++) {
        const pal_legend_entry *e = &c->legend[i];
        if (strcmp(e->label, entry.label) == 0 && e->colour == entry.colour && e->dashed == entry.dashed &&
            e->box == entry.box)
            return;
    }
    c->legend[c->legend_count++] = entry;
}

static pal_status make_legend(pal_canvas *c, pal_error *err) {
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
            add_legend(c, (pal_legend_entry){ .label = series->label,
                                              .colour = series->colour,
                                              .dashed = series->dashed,
                                              .points = series->points,
                                              .line = !series->bare });
        }
        for (size_t s = 0; p->kind == PAL_PANEL_BARS && s < p->bars.name_count; s++)
            add_legend(c, (pal_legend_entry){ .label = p->bars.names[s],
                                              .colour = p->bars.colours ? p->bars.colours[s] : (int)s,
                                              .box = true });
    }
    const double room = c->width - 2 * PAL_OUTER;
    double x = 0;
    int row = 0;
    for (size_t i = 0; i < c->legend_count; i++) {
        pal_legend_entry *e = &c->legend[i];
        const double swatch = e->box ? PAL_BOX : PAL_SWATCH;
        e->text_width = fmin(pal_text_width(c->cr, PAL_FONT_LEGEND, e->label), room - swatch - 6);
        if (x > 0 && x + swatch + 6 + e->text_width > room) x = 0, row++;
        e->x = x;
        e->y = row * PAL_LEGEND_ROW + PAL_FONT_LEGEND.size;
        x += swatch + 6 + e->text_width + PAL_LEGEND_GAP;
    }
    c->legend_height = c->legend_count ? (row + 1) * PAL_LEGEND_ROW + 6 : 0;
    return PAL_OK;
}

static void lay_out(pal_canvas *c) {
    const pal_figure *figure = c->figure;
    c->header = PAL_OUTER + (figure->title ? PAL_FONT_TITLE.size + 12 : 0);
    c->legend_top = c->header;
    c->header += c->legend_height;

    for (int i = 0; i < figure->panel_count; i++) {
        pal_frame *f = &c->frames[i];
        f->panel = &figure->panels[i];
        f->row = i / c->columns;
        f->column = i % c->columns;
        f->x_labels = !figure->share_x || i + c->columns >= figure->panel_count;
        if (f->panel->kind == PAL_PANEL_LINES) {
            range_of_lines(f);
            f->inset = pal_shifts_points(f->panel) ? PAL_SHIFT_WIDTH / 2 : 0;
        } else if (f->panel->kind == PAL_PANEL_BARS) range_of_bars(f);
        else range_of_heat(f);
    }
    if (figure->share_x) share_ranges(c);

    double used = c->header + PAL_OUTER + (c->rows - 1) * PAL_GAP_Y;
    for (int row = 0; row < c->rows; row++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row)
                top = fmax(top, margin_top(&c->frames[i])), bottom = fmax(bottom, pal_margin_bottom(&c->frames[i]));
        used += top + bottom;
    }
    const double height = fmax((c->height - used) / c->rows, 10);
    double y = c->header;
    for (int row = 0; row < c->rows; row++) {
        double top = 0, bottom = 0;
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row)
                top = fmax(top, margin_top(&c->frames[i])), bottom = fmax(bottom, pal_margin_bottom(&c->frames[i]));
        for (int i = 0; i < figure->panel_count; i++)
            if (c->frames[i].row == row) c->frames[i].top = y + top, c->frames[i].height = height;
        y += top + height + bottom + PAL_GAP_Y;
    }

    const int wanted = (int)fmin(fmax(height / 32, 2), 9);
    for (int i = 0; i < figure->panel_count; i++) {
        pal_frame *f = &c->frames[i];
        choose_ticks(&f->y, wanted, has_whole_ticks(f, &f->panel->y));
        if (f->panel->kind == PAL_PANEL_HEAT) choose_ticks(&f->scale, wanted, false);
    }
    /* x ticks need the width, and the width depends on how far the last x tick's text sticks out: two rounds settle it.
     */
    double overhang = 0;
    for (int round = 0; round < 2; round++) {
        double left[64] = { 0 }, right[64] = { 0 };
        used = 2.0 * PAL_OUTER + (c->columns - 1) * PAL_GAP_X;
        for (int i = 0; i < figure->panel_count; i++) {
            const int column = c->frames[i].column;
            left[column] = fmax(left[column], margin_left(c, &c->frames[i]));
            right[column] = fmax(fmax(right[column], margin_right(c, &c->frames[i])), overhang);
        }
        for (int column = 0; column < c->columns; column++) used += left[column] + right[column];
        const double width = fmax((c->width - used) / c->columns, 10);
        for (int i = 0; i < figure->panel_count; i++) {
            pal_frame *f = &c->frames[i];
            f->left = PAL_OUTER + left[f->column] + f->column * (width + PAL_GAP_X);
            for (int column = 0; column < f->column; column++) f->left += left[column] + right[column];
            f->width = width;
            f->margin_left = left[f->column];
            choose_x_ticks(c, f);
            if (f->x.ticks.count && f->x_labels) {
                const int last = f->x.ticks.count - 1;
                const double half = pal_text_width(c->cr, PAL_FONT_TICK, f->x.ticks.text[last]) / 2;
                overhang = fmax(overhang,
                                pal_axis_place(&f->x, f->x.ticks.at[last]) * width + half - width - PAL_OUTER + 4);
            }
        }
    }
}

pal_status pal_layout_make(pal_canvas *c, pal_error *err) {
    const pal_figure *figure = c->figure;
    c->columns = figure->columns < 1                     ? 1
                 : figure->columns > figure->panel_count ? figure->panel_count
                                                         : figure->columns;
    c->rows = (figure->panel_count + c->columns - 1) / c->columns;
    pal_status st = pal_alloc_named((void **)&c->frames, (size_t)figure->panel_count, sizeof *c->frames,
                                    "a figure's panels", err);
    if (!st) st = make_legend(c, err);
    if (!st) lay_out(c);
    return st;
}
