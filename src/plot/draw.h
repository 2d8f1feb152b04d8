/* SPDX-License-Identifier: MIT */
/* Inside the plot room: themes, and text that is measured, cleaned and cut before it is drawn. */
#ifndef PAL_PLOT_DRAW_H
#define PAL_PLOT_DRAW_H

#include <cairo.h>
#include <stdbool.h>
#include <stdint.h>

#include "plot/clean.h"
#include "plot/figure.h"

typedef struct pal_theme_colours {
    uint32_t background, ink, muted, grid; /* 0xRRGGBB */
    uint32_t series[PAL_COLOURS];
} pal_theme_colours;

const pal_theme_colours *pal_theme_of(pal_theme theme);
/* Sequential, dark to light, lightness strictly increasing; u in 0 .. 1. */
uint32_t pal_heat_colour(double u);

typedef enum { PAL_ALIGN_LEFT, PAL_ALIGN_CENTRE, PAL_ALIGN_RIGHT } pal_align;
typedef struct pal_font {
    double size;
    bool bold;
} pal_font;

double pal_text_width(cairo_t *cr, pal_font font, const char *text);
/* y is the baseline. What is wider than max_width (if > 0) ends in an ellipsis. Returns the width drawn. */
double pal_text_draw(cairo_t *cr, pal_font font, uint32_t colour, pal_align align, double x, double y, double max_width,
                     const char *text);
/* Onto any cairo surface of the figure's size times scale. */
pal_status pal_figure_draw(const pal_figure *figure, cairo_surface_t *surface, double scale, pal_error *err);

void pal_set_colour(cairo_t *cr, uint32_t colour, double alpha);

#endif
