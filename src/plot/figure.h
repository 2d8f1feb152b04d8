/* SPDX-License-Identifier: MIT */
/* Figures: described by plain structs, drawn by one code for SVG and PNG (and, through report.h, for HTML).
 *
 * A figure is a grid of panels under a title and one legend; a panel is a line chart, a grouped bar chart or a heat
 * map. Everything a figure points to is borrowed for the call. Numbers may be anything: what is NaN or infinite (or, on
 * a log axis, not positive) is left out, and a panel without a number left says "no data". Texts are UTF-8; bytes that
 * are not become '?', and what is too long for its place ends in an ellipsis. */
#ifndef PAL_PLOT_FIGURE_H
#define PAL_PLOT_FIGURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "palimpsa/status.h"

/* Colours by number: 0 .. PAL_COLOURS-1 are distinct for all common kinds of colour blindness; larger numbers repeat
 * them with other dashes. */
enum { PAL_COLOURS = 7 };

typedef struct pal_axis {
    const char *label; /* NULL: none */
    bool log;
    bool whole; /* ticks at whole numbers alone; on a log axis at powers of two */
    bool fixed; /* min and max are given; otherwise they follow from the data */
    double min, max;
} pal_axis;

typedef struct pal_series {
    const char *label; /* in the legend; NULL: not there. Equal label and look appear once per figure */
    const char *name;  /* where single values are shown; NULL: label */
    size_t count;
    const double *x, *y;      /* a NaN in y ends a line and starts another */
    const double *low, *high; /* interval around y, or NULL */
    int colour;
    bool dashed;
    bool points; /* a dot at each point */
    bool bare;   /* no line */
} pal_series;

/* A vertical line with a few words, such as "stage 2". */
typedef struct pal_mark {
    double x;
    const char *label; /* or NULL */
} pal_mark;

typedef struct pal_lines {
    const pal_series *series;
    size_t series_count;
    const pal_mark *marks;
    size_t mark_count;
} pal_lines;

/* One bar: a value, half the length of its error bar (NaN: none) and what it summarises, a dot each. */
typedef struct pal_bar {
    double value, error;
    const double *dots;
    size_t dot_count;
} pal_bar;

typedef struct pal_bars {
    const char *const *groups; /* names on the x axis */
    size_t group_count;
    const char *const
        *names;         /* of the bars of a group, in the legend; bar s has colour s unless colours says otherwise */
    const int *colours; /* or NULL */
    size_t name_count;
    const pal_bar *bars; /* (group_count, name_count) */
} pal_bars;

typedef struct pal_heat {
    const double *values; /* (rows, columns), row 0 on top */
    int rows, columns;
    const char *label; /* of the colour scale, or NULL */
    bool log;
    bool fixed; /* the colour scale runs from min to max; otherwise over the data */
    double min, max;
} pal_heat;

typedef enum pal_panel_kind { PAL_PANEL_LINES, PAL_PANEL_BARS, PAL_PANEL_HEAT } pal_panel_kind;

typedef struct pal_panel {
    pal_panel_kind kind;
    const char *title; /* or NULL */
    pal_axis x, y;     /* bars use y only */
    pal_lines lines;
    pal_bars bars;
    pal_heat heat;
} pal_panel;

typedef enum pal_theme { PAL_THEME_LIGHT, PAL_THEME_DARK } pal_theme;

typedef struct pal_figure {
    const char *title; /* or NULL */
    const pal_panel *panels;
    int panel_count, columns;
    bool share_x;      /* panels of a column have one x axis, under the lowest */
    int width, height; /* CSS pixels (1/96 inch); 0: a size that suits the panels */
    pal_theme theme;
} pal_figure;

enum { PAL_FIGURE_MIN = 120, PAL_FIGURE_MAX = 16384 };

/* Whether this build draws: without cairo it says that it does not, here and wherever a figure is to be written. */
pal_status pal_figures_drawn(pal_error *err);

/* The size that drawing will use; refuses what cannot be drawn. */
pal_status pal_figure_size(const pal_figure *figure, int *width, int *height, pal_error *err);

/* Written aside and renamed. scale: PNG pixels per CSS pixel, 2 for sharp screens and print. */
pal_status pal_figure_write_svg(const pal_figure *figure, const char *path, pal_error *err);
pal_status pal_figure_write_png(const pal_figure *figure, double scale, const char *path, pal_error *err);

/* The same SVG without the XML declaration, for use inside HTML. Names inside it start with `prefix`, so that several
 * figures of one page do not read each other's glyphs. */
pal_status pal_figure_inline_svg(const pal_figure *figure, const char *prefix, FILE *stream, pal_error *err);

#endif
