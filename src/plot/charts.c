/* SPDX-License-Identifier: MIT */
/* Axes, curves, bars, cells and the legend, drawn where layout.c put them. */
#include <cairo.h>
#include <math.h>
#include <string.h>

#include "plot/layout.h"

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

static void rotated_label(const pal_canvas *c, double x, double y, double room, const char *label) {
    cairo_save(c->cr);
    cairo_translate(c->cr, x, y);
    cairo_rotate(c->cr, -1.5707963267948966);
    pal_text_draw(c->cr, PAL_FONT_LABEL, c->theme->ink, PAL_ALIGN_CENTRE, 0, 0, room, label);
    cairo_restore(c->cr);
}

static void draw_axes(const pal_canvas *c, const pal_frame *f) {
    cairo_t *cr = c->cr;
    const pal_panel *p = f->panel;
    const double bottom = f->top + f->height, right = f->left + f->width;
    const bool grid = p->kind != PAL_PANEL_HEAT;
    cairo_set_line_width(cr, 0.8);
    cairo_set_line_cap(cr, CAIRO_LINE_CAP_BUTT);
    for (int i = 0; i < f->y.ticks.count; i++) {
        const double y = pal_frame_y(f, f->y.ticks.at[i]);
        pal_set_colour(cr, c->theme->grid, 1);
        if (grid) hline(cr, f->left, right, y);
        pal_text_draw(cr, PAL_FONT_TICK, c->theme->muted, PAL_ALIGN_RIGHT, f->left - 7, y + PAL_FONT_TICK.size * 0.36,
                      0, f->y.ticks.text[i]);
        pal_set_colour(cr, c->theme->muted, 1);
        hline(cr, f->left - 4, f->left, y);
    }
    for (int i = 0; i < f->y.ticks.minor_count; i++) {
        pal_set_colour(cr, c->theme->muted, 0.7);
        hline(cr, f->left - 2.5, f->left, pal_frame_y(f, f->y.ticks.minor[i]));
    }
    for (int i = 0; i < f->x.ticks.count; i++) {
        const double x = pal_frame_x(f, f->x.ticks.at[i]);
        pal_set_colour(cr, c->theme->grid, 1);
        if (grid) vline(cr, x, f->top, bottom);
        pal_set_colour(cr, c->theme->muted, 1);
        vline(cr, x, bottom, bottom + 4);
        if (f->x_labels)
            pal_text_draw(cr, PAL_FONT_TICK, c->theme->muted, PAL_ALIGN_CENTRE, x, bottom + 7 + PAL_FONT_TICK.size, 0,
                          f->x.ticks.text[i]);
    }
    for (int i = 0; i < f->x.ticks.minor_count; i++) {
        pal_set_colour(cr, c->theme->muted, 0.7);
        vline(cr, pal_frame_x(f, f->x.ticks.minor[i]), bottom, bottom + 2.5);
    }
    pal_set_colour(cr, c->theme->muted, 1);
    cairo_set_line_width(cr, 1);
    cairo_move_to(cr, f->left, f->top);
    cairo_line_to(cr, f->left, bottom);
    cairo_line_to(cr, right, bottom);
    cairo_stroke(cr);

    if (p->title)
        pal_text_draw(cr, PAL_FONT_PANEL, c->theme->ink, PAL_ALIGN_LEFT, f->left, f->top - 9, f->width, p->title);
    if (p->y.label)
        rotated_label(c, f->left - f->margin_left + PAL_FONT_LABEL.size, f->top + f->height / 2,
                      f->height + 2 * PAL_GAP_Y, p->y.label);
    if (p->x.label && f->x_labels)
        pal_text_draw(cr, PAL_FONT_LABEL, c->theme->ink, PAL_ALIGN_CENTRE, f->left + f->width / 2,
                      f->top + f->height + pal_margin_bottom(f) - 3, f->width + 2 * PAL_GAP_X, p->x.label);
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

static bool shown(const pal_frame *f, const pal_series *s, size_t i) {
    return pal_plot_usable(s->x[i], f->x.log) && pal_plot_usable(s->y[i], f->y.log);
}
static bool has_interval(const pal_frame *f, const pal_series *s, size_t i) {
    return s->low && s->high && shown(f, s, i) && fabs(s->low[i]) < PAL_PLOT_HUGE &&
           pal_plot_usable(s->high[i], f->y.log);
}

/* Where a series is among those of its panel that have intervals, from -1/2 to 1/2. */
static double place_among(const pal_frame *f, const pal_series *s) {
    const pal_lines *lines = &f->panel->lines;
    int before = 0, all = 0;
    for (size_t i = 0; i < lines->series_count; i++)
        if (lines->series[i].low && lines->series[i].high) {
            before += &lines->series[i] < s;
            all++;
        }
    return all ? (before + 0.5) / all - 0.5 : 0;
}

static double shift_of(const pal_frame *f, const pal_series *s) {
    return s->points && s->low && s->high ? PAL_SHIFT_WIDTH * place_among(f, s) : 0;
}

static void draw_interval(const pal_canvas *c, const pal_frame *f, const pal_series *s, size_t i) {
    enum { CAP = 3 };
    /* On a log axis a mean minus a deviation may reach below zero: the interval then ends at the bottom. */
    const double least = f->y.log && s->low[i] < f->y.lo ? f->y.lo : s->low[i];
    const double x = pal_frame_x(f, s->x[i]) + shift_of(f, s), low = pal_frame_y(f, least),
                 high = pal_frame_y(f, s->high[i]);
    vline(c->cr, x, low, high);
    hline(c->cr, x - CAP, x + CAP, low);
    hline(c->cr, x - CAP, x + CAP, high);
}

/* An interval at each point, or, on a line of many points, at a few places that differ from series to series. */
static void draw_intervals(const pal_canvas *c, const pal_frame *f, const pal_series *s) {
    enum { PLACES = 12 };
    const double step = s->points ? 0 : f->width / PLACES;
    double next = f->left + step * (place_among(f, s) + 0.5);
    pal_set_colour(c->cr, pal_series_colour(c, s->colour), 1);
    cairo_set_line_width(c->cr, 1.1);
    cairo_set_line_cap(c->cr, CAIRO_LINE_CAP_BUTT);
    cairo_set_dash(c->cr, NULL, 0, 0);
    for (size_t i = 0; i < s->count; i++) {
        if (!has_interval(f, s, i)) continue;
        const double x = pal_frame_x(f, s->x[i]);
        if (step > 0 && x < next) continue;
        draw_interval(c, f, s, i);
        while (step > 0 && next <= x) next += step;
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

static void dot(const pal_canvas *c, double x, double y, double radius) {
    cairo_arc(c->cr, x, y, radius, 0, 6.283185307179586);
    cairo_fill(c->cr);
}

static void draw_series(const pal_canvas *c, const pal_frame *f, const pal_series *s) {
    cairo_t *cr = c->cr;
    const double shift = shift_of(f, s);
    pal_set_colour(cr, pal_series_colour(c, s->colour), 1);
    cairo_set_line_width(cr, 1.7);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    set_dashes(cr, s->colour, s->dashed);
    pen p = { .cr = cr };
    for (size_t i = 0; i < s->count && !s->bare; i++)
        if (shown(f, s, i)) pen_to(&p, pal_frame_x(f, s->x[i]) + shift, pal_frame_y(f, s->y[i]));
        else pen_up(&p);
    pen_up(&p);
    cairo_stroke(cr);
    for (size_t i = 0; i < s->count; i++) {
        if (!shown(f, s, i)) continue;
        const bool alone = (i == 0 || !shown(f, s, i - 1)) && (i + 1 == s->count || !shown(f, s, i + 1));
        if (s->points || s->bare || alone) dot(c, pal_frame_x(f, s->x[i]) + shift, pal_frame_y(f, s->y[i]), 2.6);
    }
}

static void draw_marks(const pal_canvas *c, const pal_frame *f) {
    const pal_lines *lines = &f->panel->lines;
    static const double dashes[] = { 3, 3 };
    for (size_t m = 0; m < lines->mark_count; m++) {
        const pal_mark *mark = &lines->marks[m];
        if (!pal_plot_usable(mark->x, f->x.log)) continue;
        const double x = pal_frame_x(f, mark->x);
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
            if (pal_plot_usable(lines->marks[other].x, f->x.log) && pal_frame_x(f, lines->marks[other].x) > x)
                room = fmin(room, pal_frame_x(f, lines->marks[other].x) - x);
        if (room > 24)
            pal_text_draw(c->cr, PAL_FONT_MARK, c->theme->muted, PAL_ALIGN_LEFT, x + 4, f->top + PAL_FONT_MARK.size,
                          room - 6, mark->label);
    }
}

static void draw_lines(const pal_canvas *c, const pal_frame *f) {
    const pal_lines *lines = &f->panel->lines;
    cairo_save(c->cr);
    cairo_rectangle(c->cr, f->left - 3, f->top - 3, f->width + 6, f->height + 6);
    cairo_clip(c->cr);
    draw_marks(c, f);
    for (size_t s = 0; s < lines->series_count; s++)
        if (lines->series[s].low && lines->series[s].high) draw_intervals(c, f, &lines->series[s]);
    for (size_t s = 0; s < lines->series_count; s++) draw_series(c, f, &lines->series[s]);
    cairo_restore(c->cr);
}

static void draw_bars(const pal_canvas *c, const pal_frame *f) {
    cairo_t *cr = c->cr;
    const pal_bars *bars = &f->panel->bars;
    const double pitch = f->width / (double)(bars->group_count ? bars->group_count : 1);
    const double slot = pitch * 0.8 / (double)(bars->name_count ? bars->name_count : 1),
                 bar_width = fmin(slot * 0.86, 64);
    const double base = pal_frame_y(f, f->y.log ? f->y.lo : fmin(fmax(0, f->y.lo), f->y.hi)),
                 bottom = f->top + f->height;
    cairo_save(cr);
    cairo_rectangle(cr, f->left - 3, f->top - 3, f->width + 6, f->height + 3.5);
    cairo_clip(cr);
    for (size_t i = 0; i < bars->group_count * bars->name_count; i++) {
        const pal_bar *bar = &bars->bars[i];
        if (!pal_plot_usable(bar->value, f->y.log)) continue;
        const size_t group = i / bars->name_count, name = i % bars->name_count;
        const double middle = f->left + pitch * ((double)group + 0.1) + slot * ((double)name + 0.5),
                     top = pal_frame_y(f, bar->value);
        pal_set_colour(cr, pal_series_colour(c, bars->colours ? bars->colours[name] : (int)name), 0.88);
        cairo_rectangle(cr, middle - bar_width / 2, fmin(top, base), bar_width, fabs(base - top));
        cairo_fill(cr);
        if (bar->error > 0 && bar->error < PAL_PLOT_HUGE) {
            const double low = bar->value - bar->error, cap = fmin(bar_width * 0.28, 6);
            /* Within the axis: where it is fixed, such as 0 to 1 for accuracies, no value can be beyond. */
            const double y0 = pal_plot_usable(low, f->y.log) ? fmin(pal_frame_y(f, low), bottom) : bottom,
                         y1 = fmax(pal_frame_y(f, bar->value + bar->error), f->top);
            pal_set_colour(cr, c->theme->ink, 1);
            cairo_set_line_width(cr, 1.2);
            vline(cr, middle, y0, y1);
            hline(cr, middle - cap, middle + cap, y0);
            hline(cr, middle - cap, middle + cap, y1);
        }
        for (size_t d = 0; d < bar->dot_count; d++) {
            if (!pal_plot_usable(bar->dots[d], f->y.log)) continue;
            const double spread = bar->dot_count > 1
                                      ? ((double)d / (double)(bar->dot_count - 1) - 0.5) * bar_width * 0.55
                                      : 0;
            const double x = middle + spread, y = pal_frame_y(f, bar->dots[d]);
            pal_set_colour(cr, c->theme->background, 0.9);
            dot(c, x, y, 2.9);
            pal_set_colour(cr, c->theme->ink, 1);
            dot(c, x, y, 2.0);
        }
    }
    cairo_restore(cr);
    for (size_t g = 0; g < bars->group_count; g++)
        pal_text_draw(cr, PAL_FONT_LABEL, c->theme->ink, PAL_ALIGN_CENTRE, f->left + pitch * ((double)g + 0.5),
                      bottom + 8 + PAL_FONT_LABEL.size, pitch - 4, bars->groups[g]);
}

/* Cells become an image whose pixels are a whole number per cell, so that viewers that smooth images blur edges only.
 */
static void draw_cells(const pal_canvas *c, const pal_frame *f) {
    const pal_heat *h = &f->panel->heat;
    const int zoom_x = (int)fmax(1, fmin(64, floor(2 * f->width / h->columns))),
              zoom_y = (int)fmax(1, fmin(64, floor(2 * f->height / h->rows)));
    if ((double)h->columns * zoom_x > 16384 || (double)h->rows * zoom_y > 16384) {
        pal_text_draw(c->cr, PAL_FONT_LABEL, c->theme->muted, PAL_ALIGN_CENTRE, f->left + f->width / 2,
                      f->top + f->height / 2, f->width, "too many cells to draw");
        return;
    }
    cairo_surface_t *image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, h->columns * zoom_x, h->rows * zoom_y);
    if (cairo_surface_status(image) == CAIRO_STATUS_SUCCESS) {
        unsigned char *data = cairo_image_surface_get_data(image);
        const int stride = cairo_image_surface_get_stride(image);
        for (int r = 0; r < h->rows * zoom_y; r++)
            for (int q = 0; q < h->columns * zoom_x; q++) {
                const double v = h->values[(size_t)(r / zoom_y) * (size_t)h->columns + (size_t)(q / zoom_x)];
                const uint32_t colour = pal_plot_usable(v, h->log) ? pal_heat_colour(pal_axis_place(&f->scale, v))
                                                                   : c->theme->grid;
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

static void draw_scale(const pal_canvas *c, const pal_frame *f) {
    cairo_t *cr = c->cr;
    const double x = f->left + f->width + 10;
    cairo_pattern_t *shades = cairo_pattern_create_linear(0, f->top + f->height, 0, f->top);
    for (int i = 0; i <= 24; i++) {
        const uint32_t colour = pal_heat_colour(i / 24.0);
        cairo_pattern_add_color_stop_rgb(shades, i / 24.0, (colour >> 16) / 255.0, (colour >> 8 & 255) / 255.0,
                                         (colour & 255) / 255.0);
    }
    cairo_set_source(cr, shades);
    cairo_rectangle(cr, x, f->top, PAL_SCALE_BAR, f->height);
    cairo_fill(cr);
    cairo_pattern_destroy(shades);
    cairo_set_line_width(cr, 1);
    for (int i = 0; i < f->scale.ticks.count; i++) {
        const double y = f->top + (1 - pal_axis_place(&f->scale, f->scale.ticks.at[i])) * f->height;
        pal_set_colour(cr, c->theme->muted, 1);
        hline(cr, x + PAL_SCALE_BAR, x + PAL_SCALE_BAR + 3, y);
        pal_text_draw(cr, PAL_FONT_TICK, c->theme->muted, PAL_ALIGN_LEFT, x + PAL_SCALE_BAR + 6,
                      y + PAL_FONT_TICK.size * 0.36, 0, f->scale.ticks.text[i]);
    }
    if (f->panel->heat.label)
        rotated_label(c, x + PAL_SCALE_BAR + 6 + pal_widest_tick(c, &f->scale) + 6 + PAL_FONT_LABEL.size,
                      f->top + f->height / 2, f->height, f->panel->heat.label);
}

void pal_legend_draw(const pal_canvas *c) {
    cairo_t *cr = c->cr;
    for (size_t i = 0; i < c->legend_count; i++) {
        const pal_legend_entry *e = &c->legend[i];
        const double x = PAL_OUTER + e->x, baseline = c->legend_top + e->y,
                     middle = baseline - PAL_FONT_LEGEND.size * 0.36;
        pal_set_colour(cr, pal_series_colour(c, e->colour), 1);
        if (e->box) {
            cairo_rectangle(cr, x, middle - PAL_BOX / 2.0, PAL_BOX, PAL_BOX);
            cairo_fill(cr);
        } else {
            cairo_set_line_width(cr, 2.2);
            set_dashes(cr, e->colour, e->dashed);
            if (e->line) hline(cr, x + 1, x + PAL_SWATCH - 1, middle);
            cairo_set_dash(cr, NULL, 0, 0);
            if (e->points || !e->line) dot(c, x + PAL_SWATCH / 2.0, middle, 3);
        }
        pal_text_draw(cr, PAL_FONT_LEGEND, c->theme->ink, PAL_ALIGN_LEFT, x + (e->box ? PAL_BOX : PAL_SWATCH) + 6,
                      baseline, e->text_width + 0.5, e->label);
    }
}

void pal_chart_draw(const pal_canvas *c, const pal_frame *f) {
    const bool heat = f->panel->kind == PAL_PANEL_HEAT && !f->empty;
    if (heat) draw_cells(c, f);
    draw_axes(c, f);
    if (heat) draw_scale(c, f);
    if (f->empty)
        pal_text_draw(c->cr, PAL_FONT_LABEL, c->theme->muted, PAL_ALIGN_CENTRE, f->left + f->width / 2,
                      f->top + f->height / 2 + 4, f->width, "no data");
    else if (f->panel->kind == PAL_PANEL_LINES) draw_lines(c, f);
    else if (f->panel->kind == PAL_PANEL_BARS) draw_bars(c, f);
}
