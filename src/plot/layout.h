/* SPDX-License-Identifier: MIT */
/* Inside the plot room: where everything in a figure goes. layout.c fills a canvas, charts.c draws it. */
#ifndef PAL_PLOT_LAYOUT_H
#define PAL_PLOT_LAYOUT_H

#include <cairo.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "plot/draw.h"
#include "plot/ticks.h"

#define PAL_FONT_TITLE  ((pal_font){ 15, true })
#define PAL_FONT_PANEL  ((pal_font){ 12, true })
#define PAL_FONT_LABEL  ((pal_font){ 11, false })
#define PAL_FONT_TICK   ((pal_font){ 10, false })
#define PAL_FONT_LEGEND ((pal_font){ 11, false })
#define PAL_FONT_MARK   ((pal_font){ 9, false })

/* Pixels: around the figure, between plots, in the legend, of a heat map's colour scale. */
enum {
    PAL_OUTER = 16,
    PAL_GAP_X = 22,
    PAL_GAP_Y = 14,
    PAL_LEGEND_ROW = 19,
    PAL_LEGEND_GAP = 20,
    PAL_SWATCH = 24,
    PAL_BOX = 12,
    PAL_SCALE_BAR = 12
};

typedef struct pal_frame_axis {
    double lo, hi; /* hi < lo when the axis runs backwards, as the rows of a heat map */
    bool log;
    pal_ticks ticks;
} pal_frame_axis;

typedef struct pal_frame {
    const pal_panel *panel;
    int row, column;
    double left, top, width, height; /* of the plot itself */
    pal_frame_axis x, y;
    pal_frame_axis scale; /* of a heat map's colours */
    double inset;         /* between the data and both sides: room for points that are shifted */
    double margin_left;   /* the column's: labels of the y axes stand on one line */
    bool empty;           /* nothing to show */
    bool x_labels;
} pal_frame;

typedef struct pal_legend_entry {
    const char *label;
    int colour;
    bool dashed, points, line, box;
    double x, y; /* of the swatch's left end and the text's baseline, relative to the legend */
    double text_width;
} pal_legend_entry;

typedef struct pal_canvas {
    cairo_t *cr;
    const pal_theme_colours *theme;
    const pal_figure *figure;
    int rows, columns;
    pal_frame *frames;
    pal_legend_entry *legend;
    size_t legend_count;
    double width, height, header, legend_top, legend_height;
} pal_canvas;

static inline bool pal_plot_usable(double v, bool log) {
    return fabs(v) < PAL_PLOT_HUGE && (!log || v >= 1 / PAL_PLOT_HUGE);
}

static inline uint32_t pal_series_colour(const pal_canvas *c, int colour) {
    return c->theme->series[((colour % PAL_COLOURS) + PAL_COLOURS) % PAL_COLOURS];
}

/* Points with intervals of several series at one place are drawn next to each other, over this many pixels. */
enum { PAL_SHIFT_WIDTH = 36 };
bool pal_shifts_points(const pal_panel *panel);

/* Where v lands, from 0 at the axis's lo to 1 at its hi. */
static inline double pal_axis_place(const pal_frame_axis *a, double v) {
    return a->log ? (log(v) - log(a->lo)) / (log(a->hi) - log(a->lo)) : (v - a->lo) / (a->hi - a->lo);
}
/* cairo's coordinates are 24-bit fixed point; what lies far outside is clipped anyway. */
static inline double pal_clamp_pixel(double p) { return fmin(fmax(p, -30000), 60000); }
static inline double pal_frame_x(const pal_frame *f, double v) {
    return pal_clamp_pixel(f->left + f->inset + pal_axis_place(&f->x, v) * (f->width - 2 * f->inset));
}
static inline double pal_frame_y(const pal_frame *f, double v) {
    return pal_clamp_pixel(f->top + (1 - pal_axis_place(&f->y, v)) * f->height);
}

/* Settles frames and legend of a canvas whose cr, theme, figure and size are set. Both lists are the caller's to free.
 */
pal_status pal_layout_make(pal_canvas *c, pal_error *err);
double pal_widest_tick(const pal_canvas *c, const pal_frame_axis *a); /* width of the widest text */
double pal_margin_bottom(const pal_frame *f);

void pal_chart_draw(const pal_canvas *c, const pal_frame *f);
void pal_legend_draw(const pal_canvas *c);

#endif
